//! Which zones are accepted, and what each contributes.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use super::ledger::Ledger;
use super::step::Step;
use crate::digest::Digest;
use crate::fact::Fact;
use crate::identity::{Kind, ObjectName, ObjectRef};
use crate::name::DnsName;
use crate::policy::ground::ZoneGround;
use crate::refusal::Refusal;
use crate::resource::Zone;
use crate::snapshot::{Detail, NameRecords, RecordData, RecordSet, Soa, Status, ZonePart};
use crate::zone_file::ZoneFile;

/// DESIGN: the SOA timers that a secondary gets.
pub(super) const REFRESH: u32 = 3600;
pub(super) const RETRY: u32 = 600;
pub(super) const EXPIRE: u32 = 86_400;
/// Where the agents' door is found by server name.
pub(crate) const AGENTS_LABEL: &str = "agents";

/// The accepted zones, by apex, and the names that they keep to themselves.
#[derive(Debug, Default)]
pub(super) struct Domains {
    by_apex: HashMap<DnsName, ObjectName>,
    reserved: HashMap<DnsName, ObjectName>,
    /// By zone.
    merged_files: HashMap<ObjectName, MergedFile>,
}

/// A zone file and what we add at names that it has: no name has two sources of records. Kept, because making one costs
/// a copy of the file.
#[derive(Debug, Clone)]
struct MergedFile {
    file: Arc<ZoneFile>,
    added: Vec<NameRecords>,
    merged: Arc<ZoneFile>,
}

impl Domains {
    pub(super) fn accepts(&self, zone: &Zone) -> bool {
        self.by_apex.get(&zone.domain) == Some(&zone.name)
    }

    pub(super) fn reserved_by(&self, name: &DnsName) -> Option<&ObjectName> {
        self.reserved.get(name)
    }

    /// The accepted ones, as claims have to know them.
    pub(super) fn ground(&self, zones: &BTreeMap<ObjectName, Fact<Zone>>) -> Vec<ZoneGround> {
        let accepted = zones.values().map(|fact| &fact.value).filter(|zone| self.accepts(zone));
        let grounds = accepted.map(|zone| ZoneGround {
            apex: zone.domain.clone(),
            ttl: zone.ttl,
            negative_ttl: soa(zone).minimum,
            authoritative: zone.authoritative,
            hand_out: zone.hand_out,
            max_share: zone.max_share,
            released: zone.released,
            name: zone.name.clone(),
            file: zone.zone_file.clone(),
        });
        grounds.collect()
    }

    pub(super) fn reserved(&self) -> impl Iterator<Item = (DnsName, ObjectName)> {
        self.reserved.iter().map(|(name, zone)| (name.clone(), zone.clone()))
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
pub(super) fn settle(
    zones: &BTreeMap<ObjectName, Fact<Zone>>,
    before: &Domains,
    ledger: &Ledger,
    step: &mut Step,
) -> Domains {
    let mut domains = Domains::default();
    let mut by_seniority: Vec<&Fact<Zone>> = zones.values().collect();
    by_seniority.sort_by_key(|fact| (&fact.since, &fact.value.name));

    let gone: Vec<ObjectName> = step.zones_before().filter(|name| !zones.contains_key(*name)).cloned().collect();
    for name in gone {
        step.retract_zone(&name);
    }
    for Fact { generation, value: zone, .. } in by_seniority {
        let object = ObjectRef::cluster_scoped(Kind::Zone, zone.name.clone());
        match judge(zone, &domains) {
            Ok(()) => {
                for name in reserved_names(zone) {
                    domains.reserved.insert(name, zone.name.clone());
                }
                domains.by_apex.insert(zone.domain.clone(), zone.name.clone());
                // As it was: whether there is anything new to number is found out when all has been planned.
                let (serial, digest) = ledger.last(&zone.domain);
                let status = Status::accepted([], Detail::Zone { serial, digest });
                step.set_status(object, status.of_generation(*generation));
                let part = part(zone, before, &mut domains);
                let soa = Soa { serial, ..part.soa };
                step.place_zone(&zone.name, ZonePart { soa, digest, ..part });
            }
            Err(refusal) => {
                step.set_status(object, Status::refused(&refusal).of_generation(*generation));
                step.retract_zone(&zone.name);
            }
        }
    }
    domains
}

fn judge(zone: &Zone, domains: &Domains) -> Result<(), Refusal> {
    if let Some(hindrance) = &zone.hindrance {
        return Err(hindrance.clone());
    }
    if let Some(holder) = domains.by_apex.get(&zone.domain) {
        return Err(Refusal::DomainTaken { domain: zone.domain.clone(), holder: holder.clone() });
    }
    // Where only others answer, their own name servers are in the delegation.
    if !zone.authoritative {
        return Ok(());
    }
    let servers = servers(zone);
    if servers.is_empty() {
        return Err(Refusal::NoNameservers);
    }
    for name in servers.into_iter().filter(|name| name.is_at_or_under(&zone.domain)) {
        let file = zone.zone_file.as_ref();
        let of_file = file.is_some_and(|file| file.has_address(&name));
        let mut given = zone.nameservers.iter().filter(|server| server.name == name).peekable();
        // What the file says of its own name servers counts verbatim, also where it says nothing.
        if !of_file && given.peek().is_some() && given.all(|server| server.addresses.is_empty()) {
            return Err(Refusal::NameserverWithoutAddress(name));
        }
        if let Some((cut, rtype @ "DNAME")) = file.and_then(|file| file.hides(&name)) {
            return Err(Refusal::HiddenByZoneFile { name, cut, rtype, zone: zone.name.clone() });
        }
    }
    Ok(())
}

/// Who answers for the zone, each once: a zone file's word counts before the Zone's own.
fn servers(zone: &Zone) -> Vec<DnsName> {
    let of_file = zone.zone_file.as_ref().map_or_else(Vec::new, |file| file.nameservers());
    if !of_file.is_empty() {
        return of_file;
    }
    let mut servers: Vec<DnsName> = Vec::new();
    for server in &zone.nameservers {
        if !servers.contains(&server.name) {
            servers.push(server.name.clone());
        }
    }
    servers
}

fn reserved_names(zone: &Zone) -> impl Iterator<Item = DnsName> + '_ {
    let nameservers = zone.nameservers.iter().map(|server| server.name.clone()).chain(servers(zone));
    let inside = nameservers.filter(|name| name.is_at_or_under(&zone.domain));
    std::iter::once(zone.domain.clone()).chain(zone.domain.prepend(AGENTS_LABEL)).chain(inside)
}

/// Serial and digest are still to be found.
fn part(zone: &Zone, before: &Domains, domains: &mut Domains) -> ZonePart {
    let names = generated_names(zone);
    let generated = !names.is_empty() || zone.zone_file.as_ref().is_none_or(|file| file.soa().is_none());
    let (file, names) = match &zone.zone_file {
        Some(file) => {
            let (shared, names) = names.into_iter().partition(|name| !file.sets_of(&name.name).is_empty());
            (Some(merge(&zone.name, file, shared, before, domains)), names)
        }
        None => (None, names),
    };
    ZonePart {
        apex: zone.domain.clone(),
        soa: soa(zone),
        names,
        file,
        generated,
        digest: Digest::default(),
        authoritative: zone.authoritative,
        hand_out: zone.hand_out,
        pool: None,
    }
}

/// The NS records, and the addresses of name servers inside, where the zone file has none.
fn generated_names(zone: &Zone) -> Vec<NameRecords> {
    let file = zone.zone_file.as_ref();
    let addresses = |name: &DnsName| {
        let of_file = file.is_some_and(|file| file.has_address(name));
        let given = zone.nameservers.iter().filter(|server| server.name == *name && !of_file);
        address_sets(given.flat_map(|server| server.addresses.iter().copied()), zone.ttl)
    };
    let servers = servers(zone);
    let mut at_apex = Vec::new();
    if !servers.is_empty() && file.is_none_or(|file| file.nameservers().is_empty()) {
        at_apex.push(RecordSet { ttl: zone.ttl, data: RecordData::Ns(servers.clone()) });
    }
    if servers.contains(&zone.domain) {
        at_apex.extend(addresses(&zone.domain));
    }
    let inside = servers.iter().filter(|name| name.is_at_or_under(&zone.domain) && **name != zone.domain);
    let below = inside.map(|name| NameRecords::plain(name.clone(), addresses(name).into()));
    std::iter::once(NameRecords::plain(zone.domain.clone(), at_apex.into()))
        .chain(below)
        .filter(|name| !name.records.is_empty())
        .collect()
}

/// The zone file with what we add to its names.
fn merge(
    zone: &ObjectName,
    file: &Arc<ZoneFile>,
    added: Vec<NameRecords>,
    before: &Domains,
    domains: &mut Domains,
) -> Arc<ZoneFile> {
    if added.is_empty() {
        return Arc::clone(file);
    }
    let earlier = before.merged_files.get(zone).filter(|earlier| earlier.file == *file && earlier.added == added);
    let entry = earlier.cloned().unwrap_or_else(|| {
        let merged = Arc::new(file.with(&added));
        MergedFile { file: Arc::clone(file), added, merged }
    });
    let merged = Arc::clone(&entry.merged);
    domains.merged_files.insert(zone.clone(), entry);
    merged
}

/// The zone file's own counts verbatim.
fn soa(zone: &Zone) -> Soa {
    let of_file = zone.zone_file.as_ref().and_then(|file| file.soa());
    of_file.cloned().unwrap_or_else(|| Soa {
        ttl: zone.ttl,
        primary: servers(zone).into_iter().next().unwrap_or_else(|| zone.domain.clone()),
        // A domain that leaves no room for the label has no mailbox of its own; RFC 1035 has no way to say so.
        mailbox: zone.domain.prepend("hostmaster").unwrap_or_else(|_| zone.domain.clone()),
        serial: 0,
        refresh: REFRESH,
        retry: RETRY,
        expire: EXPIRE,
        minimum: zone.ttl,
    })
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
