//! Everything that is in DNS, set by set, for whoever compares: what is served now with what would be.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::name::DnsName;
use crate::snapshot::{NameRecords, Snapshot};

/// By name and type, the zones' SOA left out: the TTL and the records as people write them, sorted.
pub type Listing = BTreeMap<(DnsName, u16), Set>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    pub ttl: u32,
    pub records: Vec<String>,
}

impl Snapshot {
    /// What is published, by us or by others.
    pub fn listing(&self) -> Listing {
        self.listing_under(&DnsName::root())
    }

    /// The same of one name and all below it.
    pub fn listing_under(&self, apex: &DnsName) -> Listing {
        let mut listing = Listing::new();
        for zone in self.zones() {
            add(&mut listing, apex, &zone.names);
            for (name, set) in zone.file.iter().flat_map(|file| {
                file.names().flat_map(move |name| name.sets.clone().map(move |number| (name.wire, file.set(number))))
            }) {
                let Ok(name) = DnsName::from_wire(name) else { continue };
                if !name.is_at_or_under(apex) {
                    continue;
                }
                let records = set.records().map(|wire| text(set.rtype, wire));
                insert(&mut listing, name, set.rtype, set.ttl, records.collect());
            }
        }
        for cluster in self.clusters.values() {
            add(&mut listing, apex, &cluster.names);
        }
        for held in self.names.values() {
            add(&mut listing, apex, std::slice::from_ref(&held.records));
        }
        listing
    }
}

fn add(listing: &mut Listing, apex: &DnsName, names: &[NameRecords]) {
    for name in names.iter().filter(|name| name.name.is_at_or_under(apex)) {
        for set in name.records.iter() {
            insert(listing, name.name.clone(), set.data.rtype(), set.ttl, set.data.to_text());
        }
    }
}

fn insert(listing: &mut Listing, name: DnsName, rtype: u16, ttl: u32, mut records: Vec<String>) {
    records.sort_unstable();
    listing.insert((name, rtype), Set { ttl, records });
}

/// The types that people read, and the others as octets (RFC 3597 5).
pub fn text(rtype: u16, wire: &[u8]) -> String {
    let known = match rtype {
        1 => <[u8; 4]>::try_from(wire).ok().map(|octets| Ipv4Addr::from(octets).to_string()),
        28 => <[u8; 16]>::try_from(wire).ok().map(|octets| Ipv6Addr::from(octets).to_string()),
        2 | 5 | 12 | 39 => DnsName::from_wire(wire).ok().map(|name| name.to_string()),
        _ => None,
    };
    known.unwrap_or_else(|| {
        let mut text = format!("\\# {} ", wire.len());
        for octet in wire {
            // Writing to a text never fails.
            let _ = write!(text, "{octet:02x}");
        }
        text
    })
}

/// As people write it (RFC 3597 5 for those that have no name here).
pub fn type_name(rtype: u16) -> String {
    let known = match rtype {
        1 => "A",
        2 => "NS",
        5 => "CNAME",
        12 => "PTR",
        15 => "MX",
        16 => "TXT",
        28 => "AAAA",
        33 => "SRV",
        39 => "DNAME",
        257 => "CAA",
        _ => return format!("TYPE{rtype}"),
    };
    known.to_owned()
}
