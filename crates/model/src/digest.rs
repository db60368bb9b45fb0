//! What the content of a zone is recognised by: the same content has the same digest on every replica, in every release
//! and whatever steps led to it.

use std::fmt;
use std::hash::Hasher as _;
use std::ops::{AddAssign, SubAssign};
use std::str::FromStr;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

use crate::snapshot::{NameRecords, Soa};

/// The sum of the hashes of all record sets, so that one that comes or goes costs one addition.
///
/// SipHash-2-4 with 128 bits and a fixed key: two contents do not meet by accident. Somebody who controls many records
/// could make them meet, sums being what they are; but each tenant's records are its own, so that all it can hide is a
/// change of its own records, from those who compare digests, until the next change of anybody's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Digest(pub u128);

/// What a hash is of; part of what is hashed, so that no set of records is taken for an SOA.
#[derive(Clone, Copy)]
enum Subject {
    Set = 1,
    Soa = 2,
    Text = 3,
}

impl Digest {
    /// Of anything that has a text: what was judged, so that a verdict is not taken for one of other content.
    pub fn of_text(text: &[u8]) -> Self {
        let mut hash = Hash::of(Subject::Text);
        hash.text(text);
        hash.finish()
    }

    /// The records in the order of their octets.
    pub(crate) fn of_set<'a>(name: &[u8], rtype: u16, ttl: u32, records: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut hash = Hash::of(Subject::Set);
        hash.text(name);
        hash.number(rtype.into());
        hash.number(ttl);
        for record in records {
            hash.text(record);
        }
        hash.finish()
    }

    pub(crate) fn of_name(name: &NameRecords) -> Self {
        let mut digest = Self::default();
        for set in name.records.iter() {
            let mut records = set.data.to_wire();
            records.sort_unstable();
            let records = records.iter().map(Vec::as_slice);
            digest += Self::of_set(name.name.as_wire(), set.data.rtype(), set.ttl, records);
        }
        digest
    }

    /// Everything but the serial, which follows from the digest; that of a zone file is content like any other.
    pub(crate) fn of_soa(soa: &Soa, serial_of_file: Option<u32>) -> Self {
        let mut hash = Hash::of(Subject::Soa);
        hash.text(soa.primary.as_wire());
        hash.text(soa.mailbox.as_wire());
        for number in [soa.ttl, soa.refresh, soa.retry, soa.expire, soa.minimum] {
            hash.number(number);
        }
        if let Some(number) = serial_of_file {
            hash.number(number);
        }
        hash.finish()
    }
}

impl AddAssign for Digest {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }
}

impl SubAssign for Digest {
    fn sub_assign(&mut self, other: Self) {
        self.0 = self.0.wrapping_sub(other.0);
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// As it is displayed.
impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let is_digit = |octet: u8| octet.is_ascii_digit() || (b'a'..=b'f').contains(&octet);
        let digits = Some(text).filter(|text| text.len() == 32 && text.bytes().all(is_digit));
        digits.and_then(|digits| u128::from_str_radix(digits, 16).ok()).map(Self).ok_or(DigestError)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a digest has 32 lower-case hexadecimal digits")]
pub struct DigestError;

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Every text stands behind its length, so that no two lists of texts are written alike.
struct Hash(SipHasher24);

impl Hash {
    fn of(subject: Subject) -> Self {
        let mut hasher = SipHasher24::new_with_key(b"fleetgate digest");
        hasher.write(&[subject as u8]);
        Self(hasher)
    }

    fn number(&mut self, number: u32) {
        self.0.write(&number.to_be_bytes());
    }

    fn text(&mut self, text: &[u8]) {
        // Names and record data: 64 KiB at most.
        self.number(u32::try_from(text.len()).unwrap_or(u32::MAX));
        self.0.write(text);
    }

    fn finish(&self) -> Digest {
        let hash = self.0.finish128();
        Digest(u128::from(hash.h1) << 64 | u128::from(hash.h2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &[u8], rtype: u16, ttl: u32, records: &[&[u8]]) -> Digest {
        Digest::of_set(name, rtype, ttl, records.iter().copied())
    }

    /// A digest is on disk and in the status of objects: it must not change from one release to the next.
    #[test]
    fn digests_stay_what_they_are() {
        let digest = set(b"\x01a\x04test\0", 1, 30, &[&[192, 0, 2, 1], &[192, 0, 2, 2]]);
        assert_eq!(digest.to_string(), "1362d0f08d981dd72659d7406dbddb3c");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        for bad in ["", "1", "+1362d0f08d981dd72659d7406dbddb3", "1362D0F08D981DD72659D7406DBDDB3C"] {
            assert_eq!(bad.parse::<Digest>(), Err(DigestError), "{bad}");
        }
    }

    #[test]
    fn whatever_differs_has_another_digest() {
        let some = [
            set(b"\0", 1, 30, &[b"ab"]),
            set(b"\0", 2, 30, &[b"ab"]),
            set(b"\0", 1, 31, &[b"ab"]),
            set(b"\x01a\0", 1, 30, &[b"ab"]),
            set(b"\0", 1, 30, &[b"a", b"b"]),
            set(b"\0", 1, 30, &[b"ab", b""]),
            set(b"\0", 1, 30, &[]),
        ];
        for (position, digest) in some.iter().enumerate() {
            assert!(!some[..position].contains(digest), "number {position}");
        }
    }

    /// How a name is steered is no content: who is healthy must not make serials rise.
    #[test]
    fn steering_does_not_count() {
        use crate::ingress::Steering;
        use crate::record::{RecordData, RecordSet};
        use crate::snapshot::SteeredName;
        use std::sync::Arc;
        let records = Arc::from([RecordSet { ttl: 30, data: RecordData::A(vec![[192, 0, 2, 1].into()]) }]);
        let plain = NameRecords::plain("a.test".parse().unwrap(), records);
        let name = SteeredName { steering: Steering::Geo, members: Vec::new() };
        let steered = NameRecords { steered: Some(Arc::new(name)), ..plain.clone() };
        assert_ne!(plain, steered);
        assert_eq!(Digest::of_name(&plain), Digest::of_name(&steered));
    }
}
