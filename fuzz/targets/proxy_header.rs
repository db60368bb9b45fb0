//! `gateway::proxy_header`: the header that selects a cluster, beside a second, plain reading of the protocol.
#![no_main]

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use fuzz::decided_at;
use gateway::proxy_header::{Encoder, Header, HeaderError, MAX_HEADER, Parsed, parse};
use libfuzzer_sys::fuzz_target;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const FIXED_PART: usize = 16;
const CHECKSUM: u8 = 0x03;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    check(&made_plausible(bytes));
});

/// The same bytes with a signature and a length that is right, so that the fuzzer need not keep them so.
fn made_plausible(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().max(FIXED_PART), 0);
    bytes[..SIGNATURE.len()].copy_from_slice(SIGNATURE);
    let length = bytes.len().min(MAX_HEADER) - FIXED_PART;
    bytes[14..FIXED_PART].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
    bytes
}

fn check(bytes: &[u8]) {
    let decided = decided_at(bytes, &Ok(Parsed::Incomplete), parse);
    let plain = Plain::read(bytes);
    match parse(bytes) {
        Ok(Parsed::Incomplete) => {
            assert_eq!(plain, None, "all of it is there");
            assert!(bytes.len() < MAX_HEADER, "what is held for an unknown peer is bounded");
        }
        Ok(Parsed::Complete { header, length }) => {
            assert_eq!(decided, Some(length), "as soon as the header is there, and with nothing of the stream");
            let plain = plain.expect("the header is not one that the protocol allows");
            assert_eq!(length, plain.whole.len());
            check_accepted(&header, &plain);
        }
        Err(error) => {
            assert_eq!(plain, None, "refused with {error}");
            let announced = bytes.get(14..FIXED_PART).map(|length| FIXED_PART + usize::from(be16(length)));
            assert!(decided <= Some(FIXED_PART) || decided == announced, "{error} was known earlier than {decided:?}");
        }
    }
}

fn check_accepted(header: &Header<'_>, plain: &Plain<'_>) {
    assert_eq!(header.client.map(|client| client.0), plain.endpoints().map(|(client, _)| client));
    assert_eq!(header.destination, plain.endpoints().map(|(_, destination)| destination));
    // There is at most one of each: nobody else can have taken another for it.
    assert_eq!(header.cluster_id, plain.value(&[0x20, 0xE0]));
    assert_eq!(header.proof, plain.value(&[0xE1]));

    let Some((client, destination)) = plain.endpoints() else { return };
    // What we write is TCP, and IPv4 where both addresses are.
    let is_mapped = |address: SocketAddr| address.ip() != address.ip().to_canonical();
    if !matches!(plain.whole[13], 0x11 | 0x21) || is_mapped(client) && is_mapped(destination) {
        return;
    }
    let start = Encoder::proxy(client, destination);
    let rewritten = plain.tlvs.iter().fold(start, |to, (kind, value)| to.tlv(*kind, &plain.whole[value.clone()]));
    assert_eq!(rewritten.clone().finish().as_deref(), Ok(plain.whole), "what was read can be written");
    if plain.value(&[CHECKSUM]).is_none() {
        check_with_checksum(header, plain, rewritten);
    }
}

/// The fuzzer cannot guess checksums: the same header with one says the same, and not if a bit of its content differs.
fn check_with_checksum(header: &Header<'_>, plain: &Plain<'_>, rewritten: Encoder) {
    let Ok(mut sealed) = rewritten.finish_with_checksum() else {
        return assert!(plain.whole.len() + 7 > MAX_HEADER);
    };
    let length = sealed.len();
    assert_eq!(parse(&sealed), Ok(Parsed::Complete { header: header.clone(), length }));
    // Types and lengths are left alone: with others there may be no checksum to compare.
    for at in (FIXED_PART..plain.tlvs_at).chain([length - 1]) {
        sealed[at] ^= 1 << (at % 8);
        assert_eq!(parse(&sealed), Err(HeaderError::Checksum), "byte {at}");
        sealed[at] ^= 1 << (at % 8);
    }
}

/// A header by the words of the protocol and by our own rules, read without hurry once it is all there.
#[derive(Debug, PartialEq)]
struct Plain<'a> {
    whole: &'a [u8],
    tlvs_at: usize,
    /// Type, and where the value stands.
    tlvs: Vec<(u8, Range<usize>)>,
}

impl<'a> Plain<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let fixed = bytes.get(..FIXED_PART)?;
        let whole = bytes.get(..FIXED_PART + usize::from(be16(&fixed[14..])))?;
        if !fixed.starts_with(SIGNATURE) || whole.len() > MAX_HEADER {
            return None;
        }
        let addresses = match (fixed[12], fixed[13]) {
            // Skips whatever it carries.
            (0x20, _) => return Some(Self { whole, tlvs_at: FIXED_PART, tlvs: Vec::new() }),
            (0x21, 0x00) => 0,
            (0x21, 0x11 | 0x12) => 12,
            (0x21, 0x21 | 0x22) => 36,
            (0x21, 0x31 | 0x32) => 216,
            _ => return None,
        };
        let mut plain = Self { whole, tlvs_at: FIXED_PART + addresses, tlvs: Vec::new() };
        let mut at = plain.tlvs_at;
        while at != whole.len() {
            let length = usize::from(be16(whole.get(at + 1..at + 3)?));
            let value = at + 3..at + 3 + length;
            whole.get(value.clone())?;
            at = value.end;
            plain.tlvs.push((whole[value.start - 3], value));
        }
        plain.keeps_the_rules().then_some(plain)
    }

    fn keeps_the_rules(&self) -> bool {
        let count = |kinds: &[u8]| self.tlvs.iter().filter(|(kind, _)| kinds.contains(kind)).count();
        let all_within = |kind, bound| self.tlvs.iter().all(|(own, value)| *own != kind || value.len() <= bound);
        let mut checksums = self.tlvs.iter().filter(|(kind, _)| *kind == CHECKSUM);
        count(&[0x20, 0xE0]) <= 1
            && count(&[0xE1]) <= 1
            && count(&[CHECKSUM]) <= 1
            && all_within(0x02, 255)
            && all_within(0x05, 128)
            && checksums.all(|(_, field)| self.whole[field.clone()] == self.checksum(field).to_be_bytes())
    }

    /// Of the first TLV that is of one of these types.
    fn value(&self, kinds: &[u8]) -> Option<&'a [u8]> {
        self.tlvs.iter().find(|(kind, _)| kinds.contains(kind)).map(|(_, value)| &self.whole[value.clone()])
    }

    /// The checksum of the protocol bit by bit, over the whole with zeroes in place of `field`.
    fn checksum(&self, field: &Range<usize>) -> u32 {
        let register = self.whole.iter().enumerate().fold(u32::MAX, |register, (at, octet)| {
            let octet = if field.contains(&at) { 0 } else { *octet };
            (0..8).fold(register ^ u32::from(octet), |register, _| {
                (register >> 1) ^ if register & 1 == 1 { 0x82f6_3b78 } else { 0 }
            })
        });
        !register
    }

    fn endpoints(&self) -> Option<(SocketAddr, SocketAddr)> {
        let block = &self.whole[FIXED_PART..self.tlvs_at];
        match block.len() {
            12 => {
                let address = |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&block[at..at + 4]).unwrap());
                Some(((address(0), be16(&block[8..])).into(), (address(4), be16(&block[10..])).into()))
            }
            36 => {
                let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&block[at..at + 16]).unwrap());
                Some(((address(0), be16(&block[32..])).into(), (address(16), be16(&block[34..])).into()))
            }
            _ => None,
        }
    }
}

fn be16(octets: &[u8]) -> u16 {
    u16::from_be_bytes([octets[0], octets[1]])
}
