//! Datagrams in a stream: capsules of RFC 9297 3.2 with the context id of RFC 9298 4 before the datagram.

use bytes::{Buf as _, Bytes, BytesMut};

/// The longest payload of UDP (RFC 768 and 791: 65,535 less both headers), and the octet of the context id.
const MAX_CAPSULE: u64 = 65_507 + 1;
/// RFC 9297 3.5.
const DATAGRAM: u64 = 0;
/// RFC 9298 4: the payload of UDP as it is.
const PAYLOAD: u64 = 0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CapsuleError {
    #[error("a datagram is longer than UDP carries")]
    TooLong,
    #[error("a datagram has no context id")]
    NoContext,
}

/// What has come so far. Capsules that nobody knows are skipped without being kept.
#[derive(Debug, Default)]
pub struct Capsules {
    kept: BytesMut,
    /// Of one that is skipped.
    skip: u64,
}

impl Capsules {
    pub fn push(&mut self, mut piece: &[u8]) {
        let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(piece.len());
        self.skip -= skipped as u64;
        piece.advance(skipped);
        self.kept.extend_from_slice(piece);
    }

    /// The next datagram that has come whole.
    pub fn take(&mut self) -> Result<Option<Bytes>, CapsuleError> {
        loop {
            let mut rest = &self.kept[..];
            let (Some(kind), Some(length)) = (integer(&mut rest), integer(&mut rest)) else { return Ok(None) };
            let head = self.kept.len() - rest.len();
            if kind == DATAGRAM {
                if length > MAX_CAPSULE + 7 {
                    return Err(CapsuleError::TooLong);
                }
                let length = usize::try_from(length).map_err(|_| CapsuleError::TooLong)?;
                if rest.len() < length {
                    return Ok(None);
                }
                self.kept.advance(head);
                let mut value = self.kept.split_to(length).freeze();
                let mut context = &value[..];
                let id = integer(&mut context).ok_or(CapsuleError::NoContext)?;
                value.advance(value.len() - context.len());
                // RFC 9298 4: what is in another context is nothing that we agreed upon.
                if id == PAYLOAD {
                    return Ok(Some(value));
                }
            } else {
                // RFC 9297 3.2: unknown ones are skipped.
                self.kept.advance(head);
                let here = usize::try_from(length).unwrap_or(usize::MAX).min(self.kept.len());
                self.kept.advance(here);
                self.skip = length - here as u64;
            }
        }
    }
}

/// One datagram.
pub fn of(datagram: &[u8]) -> Bytes {
    let mut capsule = BytesMut::with_capacity(datagram.len() + 8);
    put_integer(&mut capsule, DATAGRAM);
    put_integer(&mut capsule, datagram.len() as u64 + 1);
    put_integer(&mut capsule, PAYLOAD);
    capsule.extend_from_slice(datagram);
    capsule.freeze()
}

/// RFC 9000 16: the first two bits say how long it is.
fn integer(from: &mut &[u8]) -> Option<u64> {
    let first = *from.first()?;
    let length = 1_usize << (first >> 6);
    let octets = from.get(..length)?;
    *from = &from[length..];
    Some(octets[1..].iter().fold(u64::from(first & 0x3f), |value, &octet| value << 8 | u64::from(octet)))
}

fn put_integer(into: &mut BytesMut, value: u64) {
    let octets = value.to_be_bytes();
    match value {
        0..0x40 => into.extend_from_slice(&octets[7..]),
        0x40..0x4000 => into.extend_from_slice(&[octets[6] | 0x40, octets[7]]),
        0x4000..0x4000_0000 => into.extend_from_slice(&[octets[4] | 0x80, octets[5], octets[6], octets[7]]),
        // Nothing that we send is longer.
        _ => into.extend_from_slice(&[
            octets[0] & 0x3f | 0xc0,
            octets[1],
            octets[2],
            octets[3],
            octets[4],
            octets[5],
            octets[6],
            octets[7],
        ]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(octets: &[u8], cut: usize) -> (Vec<Bytes>, Option<CapsuleError>) {
        let mut capsules = Capsules::default();
        let mut found = Vec::new();
        for piece in octets.chunks(cut.max(1)) {
            capsules.push(piece);
            loop {
                match capsules.take() {
                    Ok(Some(datagram)) => found.push(datagram),
                    Ok(None) => break,
                    Err(error) => return (found, Some(error)),
                }
            }
        }
        (found, None)
    }

    #[test]
    fn unknown_capsules_are_skipped_and_bad_ones_end_it() {
        let known = of(b"abc");
        assert_eq!(&known[..], b"\x00\x04\x00abc");
        for (octets, expected) in [
            ([&b"\x17\x02zz"[..], &known].concat(), (vec![&b"abc"[..]], None)),
            // Another context.
            ([&b"\x00\x02\x02z"[..], &known].concat(), (vec![&b"abc"[..]], None)),
            // An unknown one of 2^62 - 1 octets never ends, and is never kept.
            ([&b"\x17\xff\xff\xff\xff\xff\xff\xff\xff"[..], &known].concat(), (vec![], None)),
            (b"\x00\x00".to_vec(), (vec![], Some(CapsuleError::NoContext))),
            (b"\x00\x80\x01\x00\x20".to_vec(), (vec![], Some(CapsuleError::TooLong))),
            (b"\x00".to_vec(), (vec![], None)),
        ] {
            for cut in [1, 2, 100] {
                let (found, error) = all(&octets, cut);
                assert_eq!((found.iter().map(|datagram| &datagram[..]).collect(), error), expected, "{octets:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn datagrams_come_out_however_they_are_cut(
            datagrams in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8),
            cut in 1_usize..400,
        ) {
            let octets: Vec<u8> = datagrams.iter().flat_map(|datagram| of(datagram)).collect();
            let (found, error) = all(&octets, cut);
            prop_assert_eq!(error, None);
            prop_assert_eq!(found.iter().map(|datagram| datagram.to_vec()).collect::<Vec<_>>(), datagrams);
        }

        #[test]
        fn any_octets_are_survived(octets in prop::collection::vec(any::<u8>(), 0..600), cut in 1_usize..64) {
            let (found, _) = all(&octets, cut);
            prop_assert!(found.iter().map(Bytes::len).sum::<usize>() <= octets.len());
        }
    }
}
