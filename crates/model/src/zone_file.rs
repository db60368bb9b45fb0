//! The records of a master file, flat: a million names cost little more than their octets.

use std::fmt;
use std::ops::Range;

use crate::digest::Digest;
use crate::name::DnsName;
use crate::snapshot::{NameRecords, RecordSet, Soa};

/// RFC 1035 3.2.2, RFC 3596 2.1, RFC 6672 2.1 and RFC 4034 3 and 4.
const A: u16 = 1;
const NS: u16 = 2;
const CNAME: u16 = 5;
const AAAA: u16 = 28;
const DNAME: u16 = 39;
const RRSIG: u16 = 46;
const NSEC: u16 = 47;

/// All records of one zone but its SOA, checked against each other. Names are in lower case.
#[derive(Clone, PartialEq, Eq)]
pub struct ZoneFile {
    apex: DnsName,
    soa: Option<Soa>,
    /// By name, octet by octet, and then by type.
    sets: Vec<SetEntry>,
    /// Names in wire form; record data behind its length in two octets.
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

    /// Every name that has records, in the order of their octets.
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
        let first = self.sets.partition_point(|entry| name_at(&self.octets, entry.name) < wire);
        let count = self.sets[first..].partition_point(|entry| name_at(&self.octets, entry.name) == wire);
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

/// Collects records as they come in the file.
#[derive(Debug)]
pub struct Builder {
    apex: DnsName,
    soa: Option<Soa>,
    records: Vec<Record>,
    octets: Vec<u8>,
    last_name: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Record {
    name: u32,
    data: u32,
    ttl: u32,
    rtype: u16,
}

/// What is wrong with one record, in itself or beside the others.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("{name} lies outside of the zone {apex}")]
    OutsideZone { name: DnsName, apex: DnsName },
    #[error("a second SOA record")]
    SecondSoa,
    #[error("the SOA record stands at {0} instead of the apex")]
    SoaBelowApex(DnsName),
    #[error("{0} has a CNAME record and other records; RFC 2181 10.1 allows one CNAME and nothing beside it")]
    CnameAndOthers(DnsName),
    #[error("the apex {0} has a CNAME record beside its SOA; RFC 2181 10.1 allows nothing beside it")]
    CnameAtApex(DnsName),
    #[error("{0} has several DNAME records; RFC 6672 2.4 allows one")]
    SeveralDnames(DnsName),
    #[error("{0} has more than {MAX_RECORDS} records of one type")]
    TooManyRecords(DnsName),
    #[error("the data of a record at {0} is longer than 65535 octets")]
    LongData(DnsName),
    #[error("the zone file is larger than 4 GiB")]
    TooLarge,
}

/// An answer carries as many in 64 KiB at most.
const MAX_RECORDS: usize = 4096;

impl Builder {
    pub fn new(apex: DnsName) -> Self {
        Self { apex, soa: None, records: Vec::new(), octets: Vec::new(), last_name: None }
    }

    pub fn set_soa(&mut self, owner: &DnsName, soa: Soa) -> Result<(), RecordError> {
        if *owner != self.apex {
            return Err(RecordError::SoaBelowApex(owner.clone()));
        }
        if self.soa.replace(soa).is_some() { Err(RecordError::SecondSoa) } else { Ok(()) }
    }

    /// `data` is in wire form, its names uncompressed.
    pub fn push(&mut self, name: &DnsName, rtype: u16, ttl: u32, data: &[u8]) -> Result<(), RecordError> {
        if !name.is_at_or_under(&self.apex) {
            return Err(RecordError::OutsideZone { name: name.clone(), apex: self.apex.clone() });
        }
        let length = u16::try_from(data.len()).map_err(|_| RecordError::LongData(name.clone()))?;
        let wire = name.as_wire();
        let name = match self.last_name.filter(|at| name_at(&self.octets, *at) == wire) {
            Some(at) => at,
            None => self.put(|octets| octets.extend_from_slice(wire))?,
        };
        self.last_name = Some(name);
        let data = self.put(|octets| {
            octets.extend_from_slice(&length.to_be_bytes());
            octets.extend_from_slice(data);
        })?;
        self.records.push(Record { name, data, ttl, rtype });
        Ok(())
    }

    fn put(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<u32, RecordError> {
        let at = u32::try_from(self.octets.len()).map_err(|_| RecordError::TooLarge)?;
        write(&mut self.octets);
        Ok(at)
    }

    /// Sorts what was collected and checks it against each other. The error tells which record it is about, by its
    /// number among those that were pushed.
    pub fn finish(self) -> Result<ZoneFile, (usize, RecordError)> {
        let Self { apex, soa, records, octets: unsorted, .. } = self;
        let key = |place: &Place| {
            let record = records[place.number as usize];
            (name_at(&unsorted, record.name), record.rtype, data_at(&unsorted, record.data))
        };
        let mut order: Vec<Place> = (0..)
            .zip(&records)
            .map(|(number, record)| Place { start: start_of(name_at(&unsorted, record.name)), number })
            .collect();
        order.sort_unstable_by(|left, right| {
            left.start.cmp(&right.start).then_with(|| key(left).cmp(&key(right))).then(left.number.cmp(&right.number))
        });
        // RFC 2181 5: a set holds no record twice.
        order.dedup_by(|left, right| left.start == right.start && key(left) == key(right));

        let mut file = ZoneFile {
            apex,
            soa,
            sets: Vec::new(),
            octets: Vec::with_capacity(unsorted.len()),
            digest: Digest::default(),
        };
        let one_name = |left: &Place, right: &Place| left.start == right.start && key(left).0 == key(right).0;
        for of_name in order.chunk_by(one_name) {
            file.take(of_name, &records, &unsorted).map_err(|(place, problem)| {
                let name = DnsName::from_wire(key(&place).0).unwrap_or_else(|_| file.apex.clone());
                (place.number as usize, problem(name))
            })?;
        }
        file.sets.shrink_to_fit();
        file.octets.shrink_to_fit();
        Ok(file)
    }
}

/// A record's place in the order of names. Most names differ within their first octets, which stand here: comparing
/// two of a million records in full costs several misses of the cache.
#[derive(Debug, Clone, Copy)]
struct Place {
    start: [u64; 2],
    number: u32,
}

/// The first octets of a name, such that they compare as the name does.
fn start_of(name: &[u8]) -> [u64; 2] {
    let mut octets = [0; 16];
    let length = name.len().min(octets.len());
    octets[..length].copy_from_slice(&name[..length]);
    let (high, low) = octets.split_at(8);
    [high, low].map(|half| half.iter().fold(0, |value, octet| value << 8 | u64::from(*octet)))
}

/// The record that is wrong, and what is wrong with its name.
type Wrong = (Place, fn(DnsName) -> RecordError);

impl ZoneFile {
    /// The records of one name, in the order of their types.
    fn take(&mut self, of_name: &[Place], records: &[Record], unsorted: &[u8]) -> Result<(), Wrong> {
        let at = |place: &Place| records[place.number as usize];
        // No longer than what was collected, which `Builder::put` bounds.
        #[allow(clippy::cast_possible_truncation)]
        let name = self.octets.len() as u32;
        self.octets.extend_from_slice(name_at(unsorted, at(&of_name[0]).name));
        for of_type in of_name.chunk_by(|left, right| at(left).rtype == at(right).rtype) {
            let (last, rtype) = (of_type[of_type.len() - 1], at(&of_type[0]).rtype);
            match rtype {
                CNAME if name_at(unsorted, at(&of_name[0]).name) == self.apex.as_wire() => {
                    return Err((last, RecordError::CnameAtApex));
                }
                CNAME if of_type.len() > 1 || of_name.iter().any(|place| !may_accompany_cname(at(place).rtype)) => {
                    return Err((last, RecordError::CnameAndOthers));
                }
                DNAME if of_type.len() > 1 => return Err((last, RecordError::SeveralDnames)),
                _ if of_type.len() > MAX_RECORDS => return Err((last, RecordError::TooManyRecords)),
                _ => {}
            }
            #[allow(clippy::cast_possible_truncation)]
            let (data, count) = (self.octets.len() as u32, of_type.len() as u16);
            // RFC 2181 5.2: a set has one TTL. Where the file gives several, the shortest promise is kept.
            let ttl = of_type.iter().map(|place| at(place).ttl).min().unwrap_or_default();
            for place in of_type {
                let octets = data_at(unsorted, at(place).data);
                #[allow(clippy::cast_possible_truncation)]
                self.octets.extend_from_slice(&(octets.len() as u16).to_be_bytes());
                self.octets.extend_from_slice(octets);
            }
            let records = of_type.iter().map(|place| data_at(unsorted, at(place).data));
            self.digest += Digest::of_set(name_at(&self.octets, name), rtype, ttl, records);
            self.sets.push(SetEntry { name, data, ttl, rtype, count });
        }
        Ok(())
    }
}

/// RFC 4034 2.5: the signatures and the chain of names of a signed zone.
fn may_accompany_cname(rtype: u16) -> bool {
    matches!(rtype, CNAME | RRSIG | NSEC)
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
    use super::*;

    fn name(text: &str) -> DnsName {
        DnsName::parse(text).unwrap()
    }

    fn file(records: &[(&str, u16, u32, &[u8])]) -> Result<ZoneFile, (usize, RecordError)> {
        let mut builder = Builder::new(name("z.test"));
        for (number, (owner, rtype, ttl, data)) in records.iter().enumerate() {
            builder.push(&name(owner), *rtype, *ttl, data).map_err(|error| (number, error))?;
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
        assert_eq!(names, [("a.z.test".into(), 1), ("b.z.test".into(), 2), ("z.test".into(), 1)]);
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
}
