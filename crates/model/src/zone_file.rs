//! The records of a master file, flat: a million names cost little more than their octets.

mod builder;

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;

use crate::digest::Digest;
use crate::name::{self, DnsName};
use crate::snapshot::{NameRecords, RecordSet, Soa};
pub use builder::{Builder, RecordError};

/// RFC 1035 3.2.2, RFC 3596 2.1 and RFC 6672 2.1.
const A: u16 = 1;
const NS: u16 = 2;
const CNAME: u16 = 5;
const AAAA: u16 = 28;
const DNAME: u16 = 39;

/// All records of one zone but its SOA, checked against each other. Names are in lower case.
#[derive(Clone, PartialEq, Eq)]
pub struct ZoneFile {
    apex: DnsName,
    soa: Option<Soa>,
    /// By name, in the order of [`DnsName`], and then by type.
    sets: Vec<SetEntry>,
    /// Names in wire form; record data behind its length in two octets. In the order of the file, more or less: what was
    /// written together is asked for together.
    octets: Vec<u8>,
    digest: Digest,
}

/// The records of one name and type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SetEntry {
    name: u32,
    data: u32,
    ttl: u32,
    rtype: u16,
    count: u16,
}

/// A name that has records.
#[derive(Debug, Clone)]
pub struct FileName<'a> {
    /// In wire form and lower case.
    pub wire: &'a [u8],
    /// The numbers of its sets, for [`ZoneFile::set`].
    pub sets: Range<u32>,
}

#[derive(Debug, Clone, Copy)]
pub struct FileSet<'a> {
    pub rtype: u16,
    pub ttl: u32,
    pub count: u16,
    /// Each record's data in wire form, uncompressed, behind its length in two octets.
    pub data: &'a [u8],
}

impl ZoneFile {
    pub fn apex(&self) -> &DnsName {
        &self.apex
    }

    pub fn soa(&self) -> Option<&Soa> {
        self.soa.as_ref()
    }

    /// Of all its sets; the SOA is the zone's.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Every name that has records, each right before those below it.
    pub fn names(&self) -> impl Iterator<Item = FileName<'_>> {
        let mut first = 0;
        self.sets.chunk_by(|left, right| left.name == right.name).map(move |sets| {
            // As many as there are sets, which `finish` bounds.
            #[allow(clippy::cast_possible_truncation)]
            let numbers = first..first + sets.len() as u32;
            first = numbers.end;
            FileName { wire: name_at(&self.octets, sets[0].name), sets: numbers }
        })
    }

    /// By a number that [`ZoneFile::names`] gave.
    pub fn set(&self, number: u32) -> FileSet<'_> {
        let entry = self.sets[number as usize];
        let (start, mut end) = (entry.data as usize, entry.data as usize);
        for _ in 0..entry.count {
            end += 2 + usize::from(u16::from_be_bytes([self.octets[end], self.octets[end + 1]]));
        }
        FileSet { rtype: entry.rtype, ttl: entry.ttl, count: entry.count, data: &self.octets[start..end] }
    }

    /// The numbers of the sets that a name has.
    pub fn sets_of(&self, name: &DnsName) -> Range<u32> {
        let wire = name.as_wire();
        let compare = |entry: &SetEntry| name::compare(name_at(&self.octets, entry.name), wire);
        let first = self.sets.partition_point(|entry| compare(entry) == Ordering::Less);
        let count = self.sets[first..].partition_point(|entry| compare(entry) == Ordering::Equal);
        #[allow(clippy::cast_possible_truncation)]
        let numbers = first as u32..(first + count) as u32;
        numbers
    }

    pub fn has(&self, name: &DnsName, rtype: u16) -> bool {
        self.sets_of(name).any(|number| self.sets[number as usize].rtype == rtype)
    }

    /// Whether the name leads to addresses, its own or another's.
    pub fn has_address(&self, name: &DnsName) -> bool {
        self.sets_of(name).any(|number| matches!(self.sets[number as usize].rtype, A | AAAA | CNAME))
    }

    /// The name servers at the apex.
    pub fn nameservers(&self) -> Vec<DnsName> {
        let sets = self.sets_of(&self.apex).map(|number| self.set(number));
        let servers = sets.filter(|set| set.rtype == NS).flat_map(|set| set.records());
        servers.filter_map(|wire| DnsName::from_wire(wire).ok()).collect()
    }

    /// What keeps anything at `name` from being answered: the zone cut or the DNAME record above it, and its type.
    pub fn hides(&self, name: &DnsName) -> Option<(DnsName, &'static str)> {
        let mut above = name.parent();
        while let Some(place) = above.filter(|place| place.is_at_or_under(&self.apex)) {
            if place != self.apex && self.has(&place, NS) {
                return Some((place, "NS"));
            }
            if self.has(&place, DNAME) {
                return Some((place, "DNAME"));
            }
            above = place.parent();
        }
        None
    }

    /// The same file with more sets at names that it has records of, each of a type that the name does not have yet.
    pub(crate) fn with(&self, more: &[NameRecords]) -> Self {
        let mut file = self.clone();
        for name in more {
            for set in name.records.iter() {
                // Only a file of 4 GiB has no room for it.
                let _ = file.add(&name.name, set);
            }
        }
        file
    }

    fn add(&mut self, name: &DnsName, set: &RecordSet) -> Option<()> {
        let rtype = set.data.rtype();
        let mut records = set.data.to_wire();
        records.sort_unstable();
        let there = self.sets_of(name);
        let entries = &self.sets[there.start as usize..there.end as usize];
        let position = there.start as usize + entries.partition_point(|entry| entry.rtype < rtype);
        let entry = SetEntry {
            name: entries.first()?.name,
            data: u32::try_from(self.octets.len()).ok()?,
            ttl: set.ttl,
            rtype,
            count: u16::try_from(records.len()).ok()?,
        };
        for record in &records {
            self.octets.extend_from_slice(&u16::try_from(record.len()).ok()?.to_be_bytes());
            self.octets.extend_from_slice(record);
        }
        self.sets.insert(position, entry);
        self.digest += Digest::of_set(name.as_wire(), rtype, set.ttl, records.iter().map(Vec::as_slice));
        Some(())
    }
}

impl<'a> FileSet<'a> {
    pub fn records(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.data;
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk()?;
            let (record, behind) = behind.split_at(u16::from_be_bytes(*length).into());
            rest = behind;
            Some(record)
        })
    }
}

impl fmt::Debug for ZoneFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ZoneFile({}, {} sets)", self.apex, self.sets.len())
    }
}

fn data_at(octets: &[u8], at: u32) -> &[u8] {
    let at = at as usize;
    let length = usize::from(u16::from_be_bytes([octets[at], octets[at + 1]]));
    &octets[at + 2..at + 2 + length]
}

/// Its length follows from its labels.
fn name_at(octets: &[u8], at: u32) -> &[u8] {
    let name = &octets[at as usize..];
    let mut end = 0;
    while name[end] != 0 {
        end += 1 + usize::from(name[end]);
    }
    &name[..=end]
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::collection::vec;
    use proptest::sample;

    use super::*;

    fn name(text: &str) -> DnsName {
        DnsName::parse(text).unwrap()
    }

    fn file(records: &[(&str, u16, u32, &[u8])]) -> Result<ZoneFile, (u32, RecordError)> {
        let mut builder = Builder::new(name("z.test"));
        for (line, (owner, rtype, ttl, data)) in (0..).zip(records) {
            builder.at(name(owner).as_wire()).map_err(|error| (line, error))?;
            builder.push(*rtype, *ttl, data, line).map_err(|error| (line, error))?;
        }
        builder.finish()
    }

    #[test]
    fn records_are_found_by_name_whatever_order_they_came_in() {
        let file = file(&[
            ("b.z.test", 1, 300, &[1, 1, 1, 1]),
            ("a.z.test", 16, 60, b"\x01t"),
            ("b.z.test", 28, 300, &[0; 16]),
            ("z.test", 2, 60, b"\x02ns\0"),
            ("b.z.test", 1, 200, &[2, 2, 2, 2]),
            ("b.z.test", 1, 300, &[1, 1, 1, 1]),
        ])
        .unwrap();
        let at_b: Vec<_> = file.sets_of(&name("b.z.test")).map(|number| file.set(number)).collect();
        assert_eq!(
            at_b.iter().map(|set| (set.rtype, set.ttl, set.count)).collect::<Vec<_>>(),
            [(1, 200, 2), (28, 300, 1)]
        );
        assert_eq!(at_b[0].records().collect::<Vec<_>>(), [[1, 1, 1, 1], [2, 2, 2, 2]]);
        assert!(file.has(&name("z.test"), 2) && !file.has(&name("z.test"), 1));
        assert!(file.sets_of(&name("c.z.test")).is_empty());
        let names: Vec<_> =
            file.names().map(|name| (DnsName::from_wire(name.wire).unwrap().to_string(), name.sets.len())).collect();
        assert_eq!(names, [("z.test".into(), 1), ("a.z.test".into(), 1), ("b.z.test".into(), 2)]);
    }

    #[test]
    fn signatures_may_stand_beside_a_cname() {
        let file = file(&[("a.z.test", 5, 1, b"\0"), ("a.z.test", 46, 1, b"s"), ("a.z.test", 47, 1, b"n")]).unwrap();
        assert_eq!(file.sets_of(&name("a.z.test")).len(), 3);
    }

    #[test]
    fn records_that_cannot_stand_together_are_refused() {
        let a: &[u8] = &[1, 1, 1, 1];
        for (records, number, error) in [
            (vec![("x.other", 1, 1, a)], 0, RecordError::OutsideZone { name: name("x.other"), apex: name("z.test") }),
            (
                vec![("a.z.test", 5, 1, &b"\0"[..]), ("a.z.test", 1, 1, a)],
                0,
                RecordError::CnameAndOthers(name("a.z.test")),
            ),
            (
                vec![("a.z.test", 5, 1, &b"\0"[..]), ("a.z.test", 5, 1, &b"\x01a\0"[..])],
                1,
                RecordError::CnameAndOthers(name("a.z.test")),
            ),
            (vec![("z.test", 5, 1, &b"\0"[..])], 0, RecordError::CnameAtApex(name("z.test"))),
            (
                vec![("a.z.test", 39, 1, &b"\0"[..]), ("a.z.test", 39, 1, &b"\x01a\0"[..])],
                1,
                RecordError::SeveralDnames(name("a.z.test")),
            ),
        ] {
            assert_eq!(file(&records).unwrap_err(), (number, error));
        }
    }

    proptest::proptest! {
        /// Whatever order records come in, and whatever octets their names have: the same sets in the order of names, and
        /// the same digest.
        #[test]
        fn records_are_put_in_order(
            records in vec((vec(vec(sample::select(&b"\0\x01\x02.aAbB\xff"[..]), 1..4), 0..7), 1..4_u16, vec(0..3_u8, 0..3), 1..4_u32), 0..40),
        ) {
            let apex = name("z.test");
            let below = |labels: &[Vec<u8>]| {
                let labels = labels.iter().flat_map(|label| [vec![u8::try_from(label.len()).unwrap()], label.clone()].concat());
                labels.chain(apex.as_wire().iter().copied()).collect::<Vec<u8>>()
            };
            let build = |records: &mut dyn Iterator<Item = &Drawn>| {
                let mut builder = Builder::new(apex.clone());
                for (labels, rtype, data, ttl) in records {
                    builder.at(&below(labels)).unwrap();
                    builder.push(*rtype, *ttl, data, 0).unwrap();
                }
                builder.finish().unwrap()
            };
            let mut expected: BTreeMap<(DnsName, u16), BTreeSet<&[u8]>> = BTreeMap::new();
            for (labels, rtype, data, _) in &records {
                let name = DnsName::from_wire(&below(labels)).unwrap();
                expected.entry((name, *rtype)).or_default().insert(data);
            }
            let file = build(&mut records.iter());
            let found = file.names().flat_map(|name| name.sets.clone().map(move |number| (name.wire, number)));
            let found = found.map(|(wire, number)| {
                let set = file.set(number);
                ((DnsName::from_wire(wire).unwrap(), set.rtype), set.records().collect::<Vec<_>>())
            });
            let expected: Vec<_> = expected.into_iter().map(|(key, set)| (key, set.into_iter().collect())).collect();
            proptest::prop_assert_eq!(found.collect::<Vec<_>>(), expected);
            for found in file.names() {
                proptest::prop_assert_eq!(file.sets_of(&DnsName::from_wire(found.wire).unwrap()), found.sets);
            }
            let equal_ttl: Vec<Drawn> = records.into_iter().map(|(labels, rtype, data, _)| (labels, rtype, data, 1)).collect();
            let (one, other) = (build(&mut equal_ttl.iter()), build(&mut equal_ttl.iter().rev()));
            proptest::prop_assert_eq!(one.digest(), other.digest());
        }
    }

    /// Labels, type, data and TTL.
    type Drawn = (Vec<Vec<u8>>, u16, Vec<u8>, u32);
}
