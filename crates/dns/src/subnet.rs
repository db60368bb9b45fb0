//! EDNS client subnet (RFC 7871): where the client is that a resolver asks for.
//!
//! Anybody can write anything into it. It decides which of the addresses of a steered name are told, and nothing else: who
//! is limited, counted and known by a cookie is the peer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use domain::base::iana::OptionCode;

use crate::response::Tail;

/// Family, source and scope.
const HEAD: usize = 4;
/// As it is sent for IPv6.
pub(crate) const MAX_LENGTH: usize = HEAD + 16;

/// A well-formed option of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subnet<'a> {
    /// As it was sent.
    octets: &'a [u8],
}

impl<'a> Subnet<'a> {
    /// RFC 7871 6: exactly the octets that the prefix needs, with zeros behind it, and no scope in a query. None is to be
    /// answered with FORMERR.
    pub(crate) fn read(octets: &'a [u8]) -> Option<Self> {
        let ([f0, f1, source, scope], sent) = octets.split_first_chunk::<HEAD>()?;
        let family = u16::from_be_bytes([*f0, *f1]);
        let longest = match family {
            // Whoever wants no location to be used needs no family either.
            0 => 0,
            1 => 32,
            2 => 128,
            _ => return None,
        };
        if *source > longest || *scope != 0 || sent.len() != usize::from(source.div_ceil(8)) {
            return None;
        }
        // Bits of the last octet that are not the prefix'.
        let spare = sent.len() * 8 - usize::from(*source);
        if sent.last().is_some_and(|last| last.trailing_zeros() < u32::try_from(spare).unwrap_or(u32::MAX)) {
            return None;
        }
        Some(Self { octets })
    }

    /// The first address of the client's network; none where it is not to be used (RFC 7871 7.1.2).
    pub(crate) fn address(&self) -> Option<IpAddr> {
        let ([_, family, source, _], sent) = self.octets.split_first_chunk::<HEAD>()?;
        let mut full = [0; 16];
        full.get_mut(..sent.len())?.copy_from_slice(sent);
        let [a, b, c, d, ..] = full;
        match (family, source) {
            (_, 0) => None,
            (1, _) => Some(IpAddr::from(Ipv4Addr::new(a, b, c, d))),
            _ => Some(IpAddr::from(Ipv6Addr::from(full))),
        }
    }

    pub(crate) fn length(&self) -> usize {
        self.octets.len()
    }

    /// RFC 7871 7.2.1: all as it was sent, and for which addresses the answer is the same.
    pub(crate) fn write(&self, scope: u8, tail: &mut Tail<'_>) {
        if let Some(([f0, f1, source, _], address)) = self.octets.split_first_chunk::<HEAD>() {
            tail.option(OptionCode::CLIENT_SUBNET.to_int(), &[&[*f0, *f1, *source, scope], address]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is sent, and the address that counts, or that it is malformed.
    #[test]
    fn only_exact_options_are_read() {
        let malformed = None;
        let unused = Some(None);
        let used = |address: &str| Some(Some(address.to_owned()));
        for (octets, expected) in [
            (&[0, 1, 24, 0, 192, 0, 2][..], used("192.0.2.0")),
            (&[0, 1, 32, 0, 192, 0, 2, 1], used("192.0.2.1")),
            (&[0, 1, 23, 0, 192, 0, 2], used("192.0.2.0")),
            (&[0, 1, 1, 0, 128], used("128.0.0.0")),
            (&[0, 1, 8, 0, 0], used("0.0.0.0")),
            (&[0, 2, 48, 0, 0x20, 1, 0xd, 0xb8, 0, 7], used("2001:db8:7::")),
            (&[0, 2, 33, 0, 0x20, 1, 0xd, 0xb8, 0x80], used("2001:db8:8000::")),
            (&[0, 2, 128, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 192, 0, 2, 1], used("::ffff:192.0.2.1")),
            (&[0, 1, 0, 0], unused.clone()),
            (&[0, 2, 0, 0], unused.clone()),
            (&[0, 0, 0, 0], unused),
            // Too short for a head.
            (&[], malformed.clone()),
            (&[0, 1, 24], malformed.clone()),
            // Too few or too many octets.
            (&[0, 1, 24, 0, 192, 0], malformed.clone()),
            (&[0, 1, 24, 0, 192, 0, 2, 0], malformed.clone()),
            (&[0, 1, 0, 0, 0], malformed.clone()),
            (&[0, 1, 24, 0], malformed.clone()),
            // Bits behind the prefix.
            (&[0, 1, 23, 0, 192, 0, 3], malformed.clone()),
            (&[0, 1, 1, 0, 192], malformed.clone()),
            (&[0, 2, 33, 0, 0x20, 1, 0xd, 0xb8, 0x40], malformed.clone()),
            // Prefixes that no address has.
            (&[0, 1, 33, 0, 192, 0, 2, 1, 0], malformed.clone()),
            (&[0, 2, 129, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], malformed.clone()),
            (&[0, 1, 255, 0, 192, 0, 2, 1], malformed.clone()),
            // A scope in a query.
            (&[0, 1, 24, 24, 192, 0, 2], malformed.clone()),
            (&[0, 1, 0, 1], malformed.clone()),
            // Families that nobody knows.
            (&[0, 0, 8, 0, 10], malformed.clone()),
            (&[0, 3, 0, 0], malformed.clone()),
            (&[1, 1, 24, 0, 192, 0, 2], malformed),
        ] {
            let read = Subnet::read(octets).map(|subnet| subnet.address().map(|address| address.to_string()));
            assert_eq!(read, expected, "{octets:?}");
        }
    }
}
