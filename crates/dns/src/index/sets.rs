//! The records of one name, as they stand in the index: of the plan or in a zone file.

use std::ops::Range;
use std::sync::Arc;

use domain::base::iana::Rtype;
use model::snapshot::{RecordData, RecordSet, SteeredName};
use model::zone_file::{FileSet, ZoneFile};

use crate::steer::Steered;
use crate::tree::Value;

/// The sets of one name. One small set, which most names have, stands right here, where the lookup ends: two IPv4
/// addresses fit. Otherwise the plan's are rendered beside, and those of a file are in the file, which all versions share.
#[derive(Debug, Clone, Default)]
pub(crate) enum Sets {
    /// An empty non-terminal.
    #[default]
    Nothing,
    Planned {
        types: Types,
        /// Each set: type, TTL, number of records and length of the data (2, 4, 2 and 4 octets); then the data as in a
        /// [`FileSet`].
        octets: Arc<[u8]>,
    },
    /// Which of the addresses are told is chosen for each query.
    Steered {
        types: Types,
        sets: Arc<SteeredSets>,
    },
    InFile {
        types: Types,
        first: u32,
        count: u32,
    },
    SmallPlanned {
        length: u8,
        rtype: u16,
        ttl: u32,
        /// As in a [`FileSet`].
        data: [u8; SMALL],
    },
    SmallInFile {
        length: u8,
        rtype: u16,
        ttl: u32,
        data: [u8; SMALL],
    },
}

#[derive(Debug)]
pub(crate) struct SteeredSets {
    /// All of them, as in [`Sets::Planned`].
    octets: Vec<u8>,
    steered: Steered,
}

/// What the other variants leave room for.
const SMALL: usize = 16;

/// The records of one name and type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Set<'a> {
    pub(crate) rtype: u16,
    pub(crate) ttl: u32,
    pub(crate) count: u16,
    /// Each record's data in wire form, uncompressed, behind its length in two octets.
    pub(crate) data: &'a [u8],
}

impl Value for Sets {
    fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }
}

impl Sets {
    pub(crate) fn planned(records: &[RecordSet], steered: Option<&SteeredName>) -> Self {
        if records.is_empty() {
            return Self::Nothing;
        }
        if let [set] = records
            && steered.is_none()
            && let Some((length, data)) = small(&data_of(&set.data).0)
        {
            return Self::SmallPlanned { length, rtype: set.data.rtype(), ttl: set.ttl, data };
        }
        let mut types = Types::default();
        let mut octets = Vec::new();
        for set in records {
            let rtype = set.data.rtype();
            types.add(rtype);
            let (data, count) = data_of(&set.data);
            octets.extend_from_slice(&rtype.to_be_bytes());
            octets.extend_from_slice(&set.ttl.to_be_bytes());
            octets.extend_from_slice(&count.to_be_bytes());
            octets.extend_from_slice(&u32::try_from(data.len()).unwrap_or(u32::MAX).to_be_bytes());
            octets.extend_from_slice(&data);
        }
        match steered {
            Some(name) => {
                let steered = Steered::new(name, records);
                Self::Steered { types, sets: Arc::new(SteeredSets { octets, steered }) }
            }
            None => Self::Planned { types, octets: octets.into() },
        }
    }

    pub(crate) fn in_file(file: &ZoneFile, sets: Range<u32>) -> Self {
        if sets.is_empty() {
            return Self::Nothing;
        }
        let first = file.set(sets.start);
        if sets.len() == 1
            && let Some((length, data)) = small(first.data)
        {
            return Self::SmallInFile { length, rtype: first.rtype, ttl: first.ttl, data };
        }
        let mut types = Types::default();
        sets.clone().for_each(|number| types.add(file.set(number).rtype));
        Self::InFile { types, first: sets.start, count: sets.end - sets.start }
    }

    pub(crate) fn types(&self) -> Types {
        match self {
            Self::Nothing => Types::default(),
            Self::Planned { types, .. } | Self::Steered { types, .. } | Self::InFile { types, .. } => *types,
            Self::SmallPlanned { rtype, .. } | Self::SmallInFile { rtype, .. } => Types::of(*rtype),
        }
    }

    pub(super) fn is_planned(&self) -> bool {
        matches!(self, Self::Planned { .. } | Self::SmallPlanned { .. } | Self::Steered { .. })
    }

    pub(crate) fn steered(&self) -> Option<&Steered> {
        match self {
            Self::Steered { sets, .. } => Some(&sets.steered),
            _ => None,
        }
    }

    pub(super) fn iter<'a>(&'a self, file: Option<&'a ZoneFile>) -> impl Iterator<Item = Set<'a>> {
        let (mut planned, mut in_file): (&[u8], _) = match self {
            Self::Planned { octets, .. } => (octets, 0..0),
            Self::Steered { sets, .. } => (&sets.octets, 0..0),
            Self::InFile { first, count, .. } => (&[], *first..first + count),
            _ => (&[], 0..0),
        };
        let mut here = self.small();
        std::iter::from_fn(move || match (file, in_file.next()) {
            (Some(file), Some(number)) => Some(Set::from(file.set(number))),
            _ => here.take().or_else(|| Set::split_from(&mut planned)),
        })
    }

    /// The one small set of most names.
    pub(super) fn small(&self) -> Option<Set<'_>> {
        let (Self::SmallPlanned { length, rtype, ttl, data } | Self::SmallInFile { length, rtype, ttl, data }) = self
        else {
            return None;
        };
        let mut set = Set { rtype: *rtype, ttl: *ttl, count: 0, data: data.get(..usize::from(*length))? };
        set.records().for_each(|_| set.count += 1);
        Some(set)
    }
}

/// The data of a set, where it is small.
fn small(data: &[u8]) -> Option<(u8, [u8; SMALL])> {
    let mut octets = [0; SMALL];
    octets.get_mut(..data.len())?.copy_from_slice(data);
    Some((u8::try_from(data.len()).ok()?, octets))
}

impl<'a> Set<'a> {
    /// Takes the first off those that [`Sets::planned`] rendered.
    fn split_from(rendered: &mut &'a [u8]) -> Option<Self> {
        let (head, rest) = rendered.split_first_chunk::<12>()?;
        let [t0, t1, l0, l1, l2, l3, c0, c1, d0, d1, d2, d3] = *head;
        let (data, rest) = rest.split_at_checked(u32::from_be_bytes([d0, d1, d2, d3]) as usize)?;
        *rendered = rest;
        Some(Self {
            rtype: u16::from_be_bytes([t0, t1]),
            ttl: u32::from_be_bytes([l0, l1, l2, l3]),
            count: u16::from_be_bytes([c0, c1]),
            data,
        })
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.data;
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk()?;
            let (record, behind) = behind.split_at_checked(u16::from_be_bytes(*length).into())?;
            rest = behind;
            Some(record)
        })
    }
}

impl<'a> From<FileSet<'a>> for Set<'a> {
    fn from(FileSet { rtype, ttl, count, data }: FileSet<'a>) -> Self {
        Self { rtype, ttl, count, data }
    }
}

/// Which types a name has, in 32 bits: those that decide how a name is treated, and what else is asked often, exactly;
/// all others together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Types(u32);

impl Types {
    pub(crate) const NS: Self = Self(1 << Rtype::NS.to_int());
    pub(crate) const CNAME: Self = Self(1 << Rtype::CNAME.to_int());
    pub(crate) const DNAME: Self = Self(1 << 29);
    /// What decides at a name on the way to the one that is asked.
    pub(crate) const CUT_OR_DNAME: Self = Self(Self::NS.0 | Self::DNAME.0);

    fn of(rtype: u16) -> Self {
        Self(match Rtype::from_int(rtype) {
            Rtype::DNAME => Self::DNAME.0,
            Rtype::DS => 1 << 30,
            _ if rtype <= Rtype::AAAA.to_int() => 1 << rtype,
            _ => 1 << 31,
        })
    }

    fn add(&mut self, rtype: u16) {
        self.0 |= Self::of(rtype).0;
    }

    pub(crate) fn has_any(self, of: Self) -> bool {
        self.0 & of.0 != 0
    }

    pub(crate) fn may_have(self, rtype: u16) -> bool {
        self.has_any(Self::of(rtype))
    }
}

/// As in a [`FileSet`], and how many records there are.
fn data_of(data: &RecordData) -> (Vec<u8>, u16) {
    let mut octets = Vec::new();
    let mut count = 0;
    for record in data.to_wire() {
        // The plan's records are far shorter than 64 KiB, and an answer carries some thousand at most.
        if let Ok(length) = u16::try_from(record.len())
            && count < u16::MAX
        {
            octets.extend_from_slice(&length.to_be_bytes());
            octets.extend_from_slice(&record);
            count += 1;
        }
    }
    (octets, count)
}
