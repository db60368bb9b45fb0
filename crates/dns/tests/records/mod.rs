//! Zones as a few lines of text, for tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::snapshot::{NameChange, RecordData, RecordSet, Soa, ZoneChange};
use model::{Changes, DnsName};

pub(crate) fn name(text: &str) -> DnsName {
    DnsName::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The steps from nothing to these records: a line each, `NAME TTL TYPE DATA`. `SOA SERIAL [MINIMUM]` makes a zone; a
/// name goes to the deepest zone that it lies in.
pub(crate) fn changes(text: &str) -> Changes {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut zones = BTreeMap::new();
    let mut names: BTreeMap<DnsName, Vec<RecordSet>> = BTreeMap::new();
    for line in lines {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [owner, ttl, kind, data @ ..] = fields.as_slice() else { panic!("{line:?} is no record") };
        let (owner, ttl) = (name(owner), ttl.parse().unwrap());
        if *kind == "SOA" {
            let soa = soa(&owner, ttl, data[0].parse().unwrap(), data.get(1).map_or(ttl, |text| text.parse().unwrap()));
            zones.insert(owner, soa);
        } else {
            add(names.entry(owner).or_default(), ttl, kind, data[0]);
        }
    }
    let apex_of = |name: &DnsName| {
        let above = std::iter::successors(Some(name.clone()), DnsName::parent);
        above.into_iter().find(|above| zones.contains_key(above)).unwrap_or_else(|| panic!("{name} is in no zone"))
    };
    let names = names
        .into_iter()
        .map(|(name, records)| NameChange { apex: apex_of(&name), name, records: Arc::from(records) })
        .collect();
    let zones = zones.into_iter().map(|(apex, soa)| ZoneChange::Serve { apex, soa, file: None }).collect();
    Changes { zones, names, ..Changes::default() }
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
