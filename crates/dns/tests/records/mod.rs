//! Zones as a few lines of text, for tests.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use model::identity::Kind;
use model::ingress::Steering;
use model::network::Coordinates;
use model::snapshot::{NameChange, RecordData, RecordSet, Soa, SteeredMember, SteeredName, ZoneChange};
use model::steering::MemberKey;
use model::zone_file::{Builder, ZoneFile};
use model::{Changes, DnsName, Location, ObjectRef};

pub(crate) fn name(text: &str) -> DnsName {
    DnsName::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// TTL, type and data.
type Line<'a> = (u32, &'a str, Vec<&'a str>);

/// The steps from nothing to these records: a line each, `NAME TTL TYPE DATA`. `SOA SERIAL [MINIMUM]` makes a zone; a
/// name goes to the deepest zone that it lies in, and to its zone file where the plan does not know all of its types.
/// `STEER MODE [CLUSTER[=WEIGHT]]...` and `MEMBER CLUSTER LATITUDE,LONGITUDE ADDRESS...` lines make a steered name.
pub(crate) fn changes(text: &str) -> Changes {
    let mut zones = BTreeMap::new();
    let mut lines: BTreeMap<DnsName, Vec<Line<'_>>> = BTreeMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [owner, ttl, kind, data @ ..] = fields.as_slice() else { panic!("{line:?} is no record") };
        let (owner, ttl) = (name(owner), ttl.parse().unwrap());
        if *kind == "SOA" {
            let soa = soa(&owner, ttl, data[0].parse().unwrap(), data.get(1).map_or(ttl, |text| text.parse().unwrap()));
            zones.insert(owner, soa);
        } else {
            lines.entry(owner).or_default().push((ttl, kind, data.to_vec()));
        }
    }
    let apex_of = |name: &DnsName| {
        let above = std::iter::successors(Some(name.clone()), DnsName::parent);
        above.into_iter().find(|above| zones.contains_key(above)).unwrap_or_else(|| panic!("{name} is in no zone"))
    };
    let mut files: BTreeMap<DnsName, Builder> = BTreeMap::new();
    let mut names = Vec::new();
    for (owner, lines) in lines {
        let apex = apex_of(&owner);
        if lines.iter().any(|(_, kind, _)| *kind == "STEER") {
            names.push(steered(apex, owner, &lines));
        } else if lines.iter().all(|(_, kind, _)| matches!(*kind, "A" | "AAAA" | "NS" | "CNAME")) {
            let mut sets = Vec::new();
            for (ttl, kind, data) in &lines {
                add(&mut sets, *ttl, kind, data[0]);
            }
            names.push(NameChange { apex, name: owner, records: Arc::from(sets), steered: None });
        } else {
            let file = files.entry(apex.clone()).or_insert_with(|| Builder::new(apex));
            file.at(owner.as_wire()).unwrap();
            for (ttl, kind, data) in &lines {
                let (rtype, data) = wire(kind, data);
                file.push(rtype, *ttl, &data, 0).unwrap();
            }
        }
    }
    let mut file = |apex: &DnsName| -> Option<Arc<ZoneFile>> { Some(Arc::new(files.remove(apex)?.finish().unwrap())) };
    let zones = zones.into_iter().map(|(apex, soa)| ZoneChange::Serve { file: file(&apex), apex, soa }).collect();
    Changes { zones, names, ..Changes::default() }
}

/// The key of a member, whose cluster's UID is its name here.
pub(crate) fn member_key(cluster: &str) -> MemberKey {
    let (namespace, name) = (Some("acme".parse().unwrap()), "shop".parse().unwrap());
    MemberKey::of(&ObjectRef { kind: Kind::Ingress, namespace, name }, cluster)
}

fn steered(apex: DnsName, name: DnsName, lines: &[Line<'_>]) -> NameChange {
    let (mut sets, mut members, mut steering) = (Vec::new(), Vec::new(), Steering::Geo);
    for (ttl, kind, data) in lines {
        if *kind == "STEER" {
            steering = match data[0] {
                "geo" => Steering::Geo,
                "latency" => Steering::Latency,
                "roundRobin" => Steering::RoundRobin,
                "failover" => Steering::Failover(data[1..].iter().map(|cluster| cluster.parse().unwrap()).collect()),
                _ => {
                    let weights = data[1..].iter().map(|weight| weight.split_once('=').unwrap());
                    let weight = |(cluster, weight): (&str, &str)| (cluster.parse().unwrap(), weight.parse().unwrap());
                    Steering::Weighted(weights.map(weight).collect())
                }
            };
            continue;
        }
        let degrees = data[1].split_once(',');
        let degrees = degrees.map(|(north, east)| (north.parse().unwrap(), east.parse().unwrap()));
        let coordinates = degrees.map(|(north, east)| Coordinates::new(north, east).unwrap());
        let addresses: Vec<IpAddr> = data[2..].iter().map(|address| address.parse().unwrap()).collect();
        for (address, text) in addresses.iter().zip(&data[2..]) {
            add(&mut sets, *ttl, if address.is_ipv4() { "A" } else { "AAAA" }, text);
        }
        let (cluster, key) = (data[0].parse().unwrap(), member_key(data[0]));
        let location = Location { coordinates, ..Location::default() };
        members.push(SteeredMember { cluster, key, location, addresses, unready: None });
    }
    let steered = Some(Arc::new(SteeredName { steering, members }));
    NameChange { apex, name, records: sets.into(), steered }
}

pub(crate) fn soa(apex: &DnsName, ttl: u32, serial: u32, minimum: u32) -> Soa {
    let in_zone = |label: &str| apex.prepend(label).unwrap();
    let (primary, mailbox) = (in_zone("ns1"), in_zone("hostmaster"));
    Soa { ttl, primary, mailbox, serial, refresh: 3600, retry: 600, expire: 86_400, minimum }
}

fn add(sets: &mut Vec<RecordSet>, ttl: u32, kind: &str, data: &str) {
    for set in sets.iter_mut() {
        match (&mut set.data, kind) {
            (RecordData::A(addresses), "A") => return addresses.push(data.parse().unwrap()),
            (RecordData::Aaaa(addresses), "AAAA") => return addresses.push(data.parse().unwrap()),
            (RecordData::Ns(servers), "NS") => return servers.push(name(data)),
            _ => {}
        }
    }
    let data = match kind {
        "A" => RecordData::A(vec![data.parse().unwrap()]),
        "AAAA" => RecordData::Aaaa(vec![data.parse().unwrap()]),
        "NS" => RecordData::Ns(vec![name(data)]),
        "CNAME" => RecordData::Cname(name(data)),
        _ => panic!("{kind} is not known here"),
    };
    sets.push(RecordSet { ttl, data });
}

/// Type and data in wire form; `TYPEnnn` takes hexadecimal digits.
fn wire(kind: &str, data: &[&str]) -> (u16, Vec<u8>) {
    let number = |at: usize| data[at].parse::<u16>().unwrap().to_be_bytes().to_vec();
    let target = |at: usize| name(data[at]).as_wire().to_vec();
    match kind {
        "A" => (1, data[0].parse::<Ipv4Addr>().unwrap().octets().to_vec()),
        "NS" => (2, target(0)),
        "CNAME" => (5, target(0)),
        "MX" => (15, [number(0), target(1)].concat()),
        "TXT" => (16, [&[u8::try_from(data[0].len()).unwrap()], data[0].as_bytes()].concat()),
        "AAAA" => (28, data[0].parse::<Ipv6Addr>().unwrap().octets().to_vec()),
        "SRV" => (33, [number(0), number(1), number(2), target(3)].concat()),
        "DNAME" => (39, target(0)),
        "DS" => (43, hexadecimal(data[0])),
        _ => {
            let number = kind.strip_prefix("TYPE").and_then(|number| number.parse().ok());
            (number.unwrap_or_else(|| panic!("{kind} is not known here")), hexadecimal(data[0]))
        }
    }
}

fn hexadecimal(digits: &str) -> Vec<u8> {
    let octets = (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16));
    octets.collect::<Result<_, _>>().unwrap()
}
