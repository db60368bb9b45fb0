//! Which zones are accepted, and what each contributes.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use super::step::Step;
use crate::fact::{Fact, Since};
use crate::identity::{Kind, ObjectName, ObjectRef};
use crate::name::DnsName;
use crate::refusal::Refusal;
use crate::resource::Zone;
use crate::snapshot::{Detail, NameRecords, RecordData, RecordSet, Soa, Status, ZonePart};

/// DESIGN: the SOA timers that a secondary gets.
const REFRESH: u32 = 3600;
const RETRY: u32 = 600;
const EXPIRE: u32 = 86_400;
/// Where the agents' door is found by server name.
const AGENTS_LABEL: &str = "agents";

/// The accepted zones, by apex, and the names that they keep to themselves.
#[derive(Debug, Default)]
pub(super) struct Domains {
    by_apex: HashMap<DnsName, ObjectName>,
    reserved: HashMap<DnsName, ObjectName>,
}

impl Domains {
    pub(super) fn accepts(&self, zone: &Zone) -> bool {
        self.by_apex.get(&zone.domain) == Some(&zone.name)
    }

    pub(super) fn reserved_by(&self, name: &DnsName) -> Option<&ObjectName> {
        self.reserved.get(name)
    }

    /// The zone that answers for a name: the deepest one that it lies in.
    pub(super) fn zone_of(&self, name: &DnsName) -> Option<&ObjectName> {
        let mut at = Some(name.clone());
        while let Some(candidate) = at {
            if let Some(zone) = self.by_apex.get(&candidate) {
                return Some(zone);
            }
            at = candidate.parent();
        }
        None
    }
}

/// Judges all zones anew: there are few of them, and each change of one touches all clusters anyway.
pub(super) fn settle(zones: &BTreeMap<ObjectName, Fact<Zone>>, step: &mut Step) -> Domains {
    let mut domains = Domains::default();
    let mut by_seniority: Vec<(&Since, &Zone)> = zones.values().map(|fact| (&fact.since, &fact.value)).collect();
    by_seniority.sort_by_key(|(since, zone)| (*since, &zone.name));

    let gone: Vec<ObjectName> = step.zones_before().filter(|name| !zones.contains_key(*name)).cloned().collect();
    for name in gone {
        step.retract_zone(&name);
    }
    for (_, zone) in by_seniority {
        let object = ObjectRef::cluster_scoped(Kind::Zone, zone.name.clone());
        match judge(zone, &domains) {
            Ok(()) => {
                for name in reserved_names(zone) {
                    domains.reserved.insert(name, zone.name.clone());
                }
                domains.by_apex.insert(zone.domain.clone(), zone.name.clone());
                let serial = step.serial_before(&zone.domain);
                step.set_status(object, Status::accepted([], Detail::Zone { serial }));
                step.place_zone(&zone.name, part(zone, serial));
            }
            Err(refusal) => {
                step.set_status(object, Status::refused(&refusal));
                step.retract_zone(&zone.name);
            }
        }
    }
    domains
}

fn judge(zone: &Zone, domains: &Domains) -> Result<(), Refusal> {
    if let Some(field) = zone.not_yet {
        return Err(Refusal::NotYet(field));
    }
    if let Some(holder) = domains.by_apex.get(&zone.domain) {
        return Err(Refusal::DomainTaken { domain: zone.domain.clone(), holder: holder.clone() });
    }
    if zone.nameservers.is_empty() {
        return Err(Refusal::NoNameservers);
    }
    let bare =
        |server: &&crate::resource::Nameserver| server.name.is_at_or_under(&zone.domain) && server.addresses.is_empty();
    match zone.nameservers.iter().find(bare) {
        Some(server) => Err(Refusal::NameserverWithoutAddress(server.name.clone())),
        None => Ok(()),
    }
}

fn reserved_names(zone: &Zone) -> impl Iterator<Item = DnsName> + '_ {
    let nameservers = zone.nameservers.iter().map(|server| server.name.clone());
    let inside = nameservers.filter(|name| name.is_at_or_under(&zone.domain));
    std::iter::once(zone.domain.clone()).chain(zone.domain.prepend(AGENTS_LABEL)).chain(inside)
}

fn part(zone: &Zone, serial: u32) -> ZonePart {
    let apex = zone.domain.clone();
    // In the order in which they were given, each once.
    let mut servers: Vec<DnsName> = Vec::new();
    for server in &zone.nameservers {
        if !servers.contains(&server.name) {
            servers.push(server.name.clone());
        }
    }
    let addresses = |name: &DnsName| {
        let same = zone.nameservers.iter().filter(move |server| server.name == *name);
        address_sets(same.flat_map(|server| server.addresses.iter().copied()), zone.ttl)
    };
    let mut at_apex = vec![RecordSet { ttl: zone.ttl, data: RecordData::Ns(servers.clone()) }];
    at_apex.extend(addresses(&apex));
    let inside = servers.iter().filter(|name| name.is_at_or_under(&apex) && **name != apex);
    let below = inside.map(|name| NameRecords { name: name.clone(), records: addresses(name).into() });
    let names = std::iter::once(NameRecords { name: apex.clone(), records: at_apex.into() }).chain(below).collect();
    let soa = Soa {
        ttl: zone.ttl,
        primary: zone.nameservers.first().map_or_else(|| apex.clone(), |server| server.name.clone()),
        // A domain that leaves no room for the label has no mailbox of its own; RFC 1035 has no way to say so.
        mailbox: apex.prepend("hostmaster").unwrap_or_else(|_| apex.clone()),
        serial,
        refresh: REFRESH,
        retry: RETRY,
        expire: EXPIRE,
        minimum: zone.ttl,
    };
    ZonePart { apex, soa, names, file: None, authoritative: zone.authoritative }
}

/// One set per family, sorted and without doubles, so that equal facts give equal records.
pub(super) fn address_sets(addresses: impl Iterator<Item = IpAddr>, ttl: u32) -> Vec<RecordSet> {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for address in addresses {
        match address.to_canonical() {
            IpAddr::V4(address) => v4.push(address),
            IpAddr::V6(address) => v6.push(address),
        }
    }
    v4.sort_unstable();
    v4.dedup();
    v6.sort_unstable();
    v6.dedup();
    let v4 = (!v4.is_empty()).then_some(RecordData::A(v4));
    let v6 = (!v6.is_empty()).then_some(RecordData::Aaaa(v6));
    v4.into_iter().chain(v6).map(|data| RecordSet { ttl, data }).collect()
}
