//! From records, as they come in a file, to a [`ZoneFile`].

use std::ops::Range;

use super::{CNAME, DNAME, SetEntry, ZoneFile, data_at, name_at};
use crate::digest::Digest;
use crate::name::{self, DnsName, MAX_LABELS, NameError};
use crate::snapshot::Soa;

/// RFC 4034 3 and 4.
const RRSIG: u16 = 46;
const NSEC: u16 = 47;
/// An answer carries as many in 64 KiB at most.
const MAX_RECORDS: u16 = 4096;

/// Collects records as they come in the file. Records of one name mostly stand together: they are put in order as soon as
/// another name follows, where they are, and in the end only names are sorted.
#[derive(Debug)]
pub struct Builder {
    apex: DnsName,
    soa: Option<Soa>,
    /// The name that records are for now, if there was one.
    owner: Option<u32>,
    /// Its records so far.
    records: Vec<Record>,
    /// Names as often as they begin anew, each with its sets.
    groups: Vec<Group>,
    sets: Vec<SetEntry>,
    /// Where each set has its last record, in the words of whoever pushed it.
    lines: Vec<u32>,
    octets: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Record {
    data: u32,
    ttl: u32,
    line: u32,
    rtype: u16,
}

/// A name and the records that stand together.
#[derive(Debug, Clone, Copy)]
struct Group {
    start: [u64; 2],
    name: u32,
    first_set: u32,
}

/// What is wrong with one record, in itself or beside the others.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("there is no name that the record is for")]
    NoOwner,
    #[error(transparent)]
    Name(#[from] NameError),
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

impl Builder {
    pub fn new(apex: DnsName) -> Self {
        Self {
            apex,
            soa: None,
            owner: None,
            records: Vec::new(),
            groups: Vec::new(),
            sets: Vec::new(),
            lines: Vec::new(),
            octets: Vec::new(),
        }
    }

    /// What follows is for this name, in wire form and in any case.
    pub fn at(&mut self, wire: &[u8]) -> Result<(), RecordError> {
        if self.owner.is_some_and(|owner| name_at(&self.octets, owner).eq_ignore_ascii_case(wire)) {
            return Ok(());
        }
        self.close()?;
        name::check_wire(wire)?;
        let mut starts = [0; MAX_LABELS];
        let starts = name::label_starts(wire, &mut starts);
        let Some(below) = labels_below(wire, starts, &self.apex) else {
            return Err(RecordError::OutsideZone { name: DnsName::from_wire(wire)?, apex: self.apex.clone() });
        };
        let (name, first_set) = (position(self.octets.len())?, position(self.sets.len())?);
        // A length is at most 63, and so none of the letters.
        self.octets.extend(wire.iter().map(u8::to_ascii_lowercase));
        self.groups.push(Group { start: start_of(wire, &starts[..below]), name, first_set });
        self.owner = Some(name);
        Ok(())
    }

    pub fn set_soa(&mut self, soa: Soa) -> Result<(), RecordError> {
        let owner = self.owner()?;
        if owner != self.apex {
            return Err(RecordError::SoaBelowApex(owner));
        }
        if self.soa.replace(soa).is_some() { Err(RecordError::SecondSoa) } else { Ok(()) }
    }

    /// `data` is in wire form, its names uncompressed. `line` comes back with an error that [`Builder::finish`] finds.
    pub fn push(&mut self, rtype: u16, ttl: u32, data: &[u8], line: u32) -> Result<(), RecordError> {
        if self.owner.is_none() {
            return Err(RecordError::NoOwner);
        }
        let Ok(length) = u16::try_from(data.len()) else { return Err(RecordError::LongData(self.owner()?)) };
        let at = position(self.octets.len())?;
        self.octets.extend_from_slice(&length.to_be_bytes());
        self.octets.extend_from_slice(data);
        self.records.push(Record { data: at, ttl, line, rtype });
        Ok(())
    }

    /// Sorts what was collected and checks it against each other. The error is about the record that was pushed with
    /// this line; 0 where it is about none of them.
    pub fn finish(mut self) -> Result<ZoneFile, (u32, RecordError)> {
        self.close().map_err(|error| (0, error))?;
        let mut groups = std::mem::take(&mut self.groups);
        groups.sort_unstable_by(|left, right| {
            let names = || name::compare(self.name(left), self.name(right));
            left.start.cmp(&right.start).then_with(names).then(left.name.cmp(&right.name))
        });

        let (mut sets, mut digest) = (Vec::with_capacity(self.sets.len()), Digest::default());
        let mut rest = groups.as_slice();
        while let Some(first) = rest.first() {
            let is_same = |group: &&Group| group.start == first.start && self.name(group) == self.name(first);
            let (of_name, behind) = rest.split_at(1 + rest[1..].iter().take_while(is_same).count());
            rest = behind;
            let before = sets.len();
            match of_name {
                [group] => sets.extend_from_slice(&self.sets[self.numbers_of(group)]),
                _ => self.merge(of_name, &mut sets).map_err(|error| (0, error))?,
            }
            let (name, of_name_sets) = (self.name(first), &sets[before..]);
            check(of_name_sets, name == self.apex.as_wire()).map_err(|(rtype, problem)| {
                let name = DnsName::from_wire(name).unwrap_or_else(|_| self.apex.clone());
                (self.last_line(of_name, rtype), problem(name))
            })?;
            for set in of_name_sets {
                let records = places(&self.octets, set).map(|at| data_at(&self.octets, at));
                digest += Digest::of_set(name, set.rtype, set.ttl, records);
            }
        }
        self.octets.shrink_to_fit();
        Ok(ZoneFile { apex: self.apex, soa: self.soa, sets, octets: self.octets, digest })
    }

    fn owner(&self) -> Result<DnsName, RecordError> {
        let owner = self.owner.ok_or(RecordError::NoOwner)?;
        Ok(DnsName::from_wire(name_at(&self.octets, owner))?)
    }

    /// Puts the records of the last name in order.
    fn close(&mut self) -> Result<(), RecordError> {
        let (Some(name), Some(first)) = (self.owner, self.records.first()) else { return Ok(()) };
        let start = first.data as usize;
        let key = |record: &Record| (record.rtype, data_at(&self.octets, record.data));
        if !self.records.is_sorted_by(|left, right| key(left) < key(right)) {
            rewrite(&mut self.octets, &mut self.records, start)?;
        }
        for of_type in self.records.chunk_by(|left, right| left.rtype == right.rtype) {
            self.sets.push(set_of(name, of_type));
            self.lines.push(of_type.iter().map(|record| record.line).max().unwrap_or_default());
        }
        self.records.clear();
        Ok(())
    }

    /// The sets of a name whose records stand in several places: all of them anew, behind the others.
    fn merge(&mut self, of_name: &[Group], sets: &mut Vec<SetEntry>) -> Result<(), RecordError> {
        let mut records = Vec::new();
        for set in of_name.iter().flat_map(|group| &self.sets[self.numbers_of(group)]) {
            let SetEntry { ttl, rtype, .. } = *set;
            records.extend(places(&self.octets, set).map(|data| Record { data, ttl, line: 0, rtype }));
        }
        let end = self.octets.len();
        rewrite(&mut self.octets, &mut records, end)?;
        let of_types = records.chunk_by(|left, right| left.rtype == right.rtype);
        sets.extend(of_types.map(|of_type| set_of(of_name[0].name, of_type)));
        Ok(())
    }

    fn name(&self, group: &Group) -> &[u8] {
        name_at(&self.octets, group.name)
    }

    fn numbers_of(&self, group: &Group) -> Range<usize> {
        let first = group.first_set as usize;
        let count = self.sets[first..].iter().take_while(|set| set.name == group.name).count();
        first..first + count
    }

    fn last_line(&self, of_name: &[Group], rtype: u16) -> u32 {
        let numbers = of_name.iter().flat_map(|group| self.numbers_of(group));
        numbers.filter(|number| self.sets[*number].rtype == rtype).map(|number| self.lines[number]).max().unwrap_or(0)
    }
}

/// Sorts records by type and data, drops doubles (RFC 2181 5: a set holds no record twice), and writes the data in this
/// order behind all others. What stands from `dropped` on goes.
fn rewrite(octets: &mut Vec<u8>, records: &mut Vec<Record>, dropped: usize) -> Result<(), RecordError> {
    let key = |record: &Record| (record.rtype, data_at(octets, record.data));
    records.sort_unstable_by(|left, right| key(left).cmp(&key(right)).then(left.data.cmp(&right.data)));
    records.dedup_by(|left, right| key(left) == key(right));
    let end = octets.len();
    for record in records {
        let start = record.data as usize;
        let length = 2 + data_at(octets, record.data).len();
        record.data = position(octets.len() - (end - dropped))?;
        octets.extend_from_within(start..start + length);
    }
    octets.drain(dropped..end);
    Ok(())
}

/// Of records that stand one behind the other.
fn set_of(name: u32, of_type: &[Record]) -> SetEntry {
    let first = of_type[0];
    // RFC 2181 5.2: a set has one TTL. Where the file gives several, the shortest promise is kept.
    let ttl = of_type.iter().map(|record| record.ttl).min().unwrap_or(first.ttl);
    // More than fit are more than allowed.
    let count = u16::try_from(of_type.len()).unwrap_or(u16::MAX);
    SetEntry { name, data: first.data, ttl, rtype: first.rtype, count }
}

/// Where the data of each record of a set stands.
fn places(octets: &[u8], set: &SetEntry) -> impl Iterator<Item = u32> {
    let mut at = set.data;
    (0..set.count).map(move |_| {
        let place = at;
        // No more than was put there, which `position` bounds.
        #[allow(clippy::cast_possible_truncation)]
        let length = 2 + data_at(octets, place).len() as u32;
        at += length;
        place
    })
}

/// The type that is wrong at a name, and what is wrong with it.
type Wrong = (u16, fn(DnsName) -> RecordError);

/// Whether the sets of one name may stand together.
fn check(of_name: &[SetEntry], is_apex: bool) -> Result<(), Wrong> {
    for set in of_name {
        let problem: fn(DnsName) -> RecordError = match set.rtype {
            CNAME if is_apex => RecordError::CnameAtApex,
            CNAME if set.count > 1 || !of_name.iter().all(may_accompany_cname) => RecordError::CnameAndOthers,
            DNAME if set.count > 1 => RecordError::SeveralDnames,
            _ if set.count > MAX_RECORDS => RecordError::TooManyRecords,
            _ => continue,
        };
        return Err((set.rtype, problem));
    }
    Ok(())
}

/// RFC 4034 2.5: the signatures and the chain of names of a signed zone.
fn may_accompany_cname(set: &SetEntry) -> bool {
    matches!(set.rtype, CNAME | RRSIG | NSEC)
}

/// How many labels of a name stand below the apex, if it does itself.
fn labels_below(wire: &[u8], starts: &[u8], apex: &DnsName) -> Option<usize> {
    let skip = wire.len().checked_sub(apex.as_wire().len())?;
    let below = starts.partition_point(|start| usize::from(*start) < skip);
    // At a label's start: that of the root is no label's.
    let at = starts.get(below).map_or(wire.len() - 1, |start| usize::from(*start));
    (at == skip && wire[skip..].eq_ignore_ascii_case(apex.as_wire())).then_some(below)
}

/// The first octets of a name, such that they compare as the name does. Most names differ within them, and comparing
/// two of a million names in full costs several misses of the cache.
///
/// Labels come from the apex downwards, each behind a zero, which sorts before all octets: 0 and 1 are written as two.
fn start_of(wire: &[u8], starts_below: &[u8]) -> [u64; 2] {
    let (mut start, mut used) = ([0; 16], 0);
    for label in starts_below.iter().rev() {
        for octet in name::label_at(wire, *label).iter().map(u8::to_ascii_lowercase) {
            let written: &[u8] = if octet > 1 { &[octet] } else { &[1, octet + 1] };
            for octet in written {
                if used == start.len() {
                    return halves(start);
                }
                start[used] = *octet;
                used += 1;
            }
        }
        used += 1;
        if used >= start.len() {
            break;
        }
    }
    halves(start)
}

fn halves(octets: [u8; 16]) -> [u64; 2] {
    let number = u128::from_be_bytes(octets);
    #[allow(clippy::cast_possible_truncation)]
    let halves = [(number >> 64) as u64, number as u64];
    halves
}

fn position(at: usize) -> Result<u32, RecordError> {
    u32::try_from(at).map_err(|_| RecordError::TooLarge)
}
