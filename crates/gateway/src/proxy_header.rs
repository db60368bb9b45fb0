//! PROXY protocol version 2, read and written without I/O.
//!
//! A receiver never guesses whether a header is there: a door requires one or knows none. [`parse`] is asked again
//! with everything that came so far until it has an answer; the first byte that no header can have ends it at once.

mod crc32c;
mod encode;
#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::address::ClientAddr;
pub use encode::Encoder;

/// Two IPv6 addresses, our longest cluster id, a proof and the longest authority and unique id together take less than
/// 700 bytes. The rest is room for what load balancers add, and still little to hold for a peer that is not known yet.
pub const MAX_HEADER: usize = 2048;

/// The routing TLV of Fleetgate, from the range that the protocol leaves to applications.
pub const TLV_CLUSTER_ID: u8 = 0xE0;
/// The routing TLV of HyperShift. The protocol calls this type SSL; HyperShift's nodes send the cluster's id in it.
pub const TLV_HYPERSHIFT_CLUSTER_ID: u8 = 0x20;
/// What proves that the sender may select the cluster; [`crate::proof`] reads and writes its value.
pub const TLV_PROOF: u8 = 0xE1;
const TLV_AUTHORITY: u8 = 0x02;
const TLV_CRC32C: u8 = 0x03;
const TLV_UNIQUE_ID: u8 = 0x05;

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family, length.
const FIXED_PART: usize = 16;
/// The protocol's own bound: a host name.
const MAX_AUTHORITY: usize = 255;
/// The protocol's own bound.
const MAX_UNIQUE_ID: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// All right so far; ask again with more.
    Incomplete,
    /// The first `length` bytes are the header, everything after them is the stream.
    Complete { header: Header<'a>, length: usize },
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Header<'a> {
    /// Absent for LOCAL and for families without IP addresses: there the socket's own endpoints count.
    pub client: Option<ClientAddr>,
    /// Where the client had meant to go.
    pub destination: Option<SocketAddr>,
    /// The value of the routing TLV, as it stands there.
    pub cluster_id: Option<&'a [u8]>,
    /// The value of the proof TLV, unchecked.
    pub proof: Option<&'a [u8]>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("the bytes do not begin with the signature of PROXY protocol version 2")]
    NotProxy,
    #[error("version {0} of the PROXY protocol is not known")]
    Version(u8),
    #[error("command {0} of the PROXY protocol is not known")]
    Command(u8),
    #[error("address family and transport {0:#04x} are not known")]
    Family(u8),
    #[error("the header is {0} bytes long; at most {MAX_HEADER} are accepted")]
    TooLong(usize),
    #[error("the header's length of {length} does not hold the {needed} bytes of its addresses")]
    ShortAddresses { length: usize, needed: usize },
    #[error("TLV {0:#04x} reaches past the end of the header")]
    TlvPastEnd(u8),
    #[error("{0} bytes after the last TLV are no TLV")]
    TrailingBytes(usize),
    #[error("the checksum TLV has {0} bytes instead of 4")]
    ChecksumLength(usize),
    #[error("the checksum does not match the header")]
    Checksum,
    #[error("the header has two checksums")]
    DuplicateChecksum,
    #[error("the header selects a cluster twice")]
    DuplicateClusterId,
    #[error("the header has two proofs")]
    DuplicateProof,
    #[error("the authority has {0} bytes; at most 255 are allowed")]
    LongAuthority(usize),
    #[error("the unique id has {0} bytes; at most 128 are allowed")]
    LongUniqueId(usize),
}

pub fn parse(received: &[u8]) -> Result<Parsed<'_>, HeaderError> {
    let compared = received.len().min(SIGNATURE.len());
    if received[..compared] != SIGNATURE[..compared] {
        return Err(HeaderError::NotProxy);
    }
    let Some(&version_and_command) = received.get(12) else { return Ok(Parsed::Incomplete) };
    let command = Command::read(version_and_command)?;
    let Some(&family) = received.get(13) else { return Ok(Parsed::Incomplete) };
    let family = match command {
        Command::Proxy => Family::read(family)?,
        // What stands there with LOCAL means nothing.
        Command::Local => Family::Unspecified,
    };
    let Some(&[high, low]) = received.get(14..FIXED_PART) else { return Ok(Parsed::Incomplete) };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let total = FIXED_PART + length;
    if total > MAX_HEADER {
        return Err(HeaderError::TooLong(total));
    }
    let needed = family.address_length();
    if length < needed {
        return Err(HeaderError::ShortAddresses { length, needed });
    }
    let Some(whole) = received.get(..total) else { return Ok(Parsed::Incomplete) };

    let header = match command {
        // The sender speaks for itself, such as in a health check: addresses and TLVs are skipped unread.
        Command::Local => Header::default(),
        Command::Proxy => {
            let (addresses, _) = whole[FIXED_PART..].split_at(needed);
            let endpoints = family.endpoints(addresses);
            let Ours { cluster_id, proof } = read_tlvs(whole, FIXED_PART + needed)?;
            Header {
                client: endpoints.map(|(client, _)| ClientAddr(client)),
                destination: endpoints.map(|(_, destination)| destination),
                cluster_id,
                proof,
            }
        }
    };
    Ok(Parsed::Complete { header, length: total })
}

enum Command {
    Local,
    Proxy,
}

impl Command {
    fn read(octet: u8) -> Result<Self, HeaderError> {
        match (octet >> 4, octet & 0xF) {
            (2, 0) => Ok(Self::Local),
            (2, 1) => Ok(Self::Proxy),
            (2, command) => Err(HeaderError::Command(command)),
            (version, _) => Err(HeaderError::Version(version)),
        }
    }
}

enum Family {
    Unspecified,
    Inet,
    Inet6,
    Unix,
}

impl Family {
    /// The protocol lists these seven values and wants every other one refused.
    fn read(octet: u8) -> Result<Self, HeaderError> {
        match octet {
            0x00 => Ok(Self::Unspecified),
            0x11 | 0x12 => Ok(Self::Inet),
            0x21 | 0x22 => Ok(Self::Inet6),
            0x31 | 0x32 => Ok(Self::Unix),
            other => Err(HeaderError::Family(other)),
        }
    }

    fn address_length(&self) -> usize {
        match self {
            Self::Unspecified => 0,
            Self::Inet => 2 * (4 + 2),
            Self::Inet6 => 2 * (16 + 2),
            Self::Unix => 2 * 108,
        }
    }

    /// Source and destination, where the family has IP addresses.
    fn endpoints(&self, block: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
        let (source, destination, ports) = match self {
            Self::Unspecified | Self::Unix => return None,
            Self::Inet => {
                let (source, rest) = block.split_first_chunk::<4>()?;
                let (destination, ports) = rest.split_first_chunk::<4>()?;
                (Ipv4Addr::from(*source).into(), Ipv4Addr::from(*destination).into(), ports)
            }
            Self::Inet6 => {
                let (source, rest) = block.split_first_chunk::<16>()?;
                let (destination, ports) = rest.split_first_chunk::<16>()?;
                (Ipv6Addr::from(*source).into(), Ipv6Addr::from(*destination).into(), ports)
            }
        };
        let &[source_high, source_low, destination_high, destination_low] = ports else { return None };
        Some((
            SocketAddr::new(source, u16::from_be_bytes([source_high, source_low])),
            SocketAddr::new(destination, u16::from_be_bytes([destination_high, destination_low])),
        ))
    }
}

/// The values of the TLVs that are meant for us.
#[derive(Default)]
struct Ours<'a> {
    cluster_id: Option<&'a [u8]>,
    proof: Option<&'a [u8]>,
}

/// Checks every TLV and returns the values of ours.
fn read_tlvs(whole: &[u8], start: usize) -> Result<Ours<'_>, HeaderError> {
    let mut ours = Ours::default();
    let mut checksum_at = None;
    let mut rest = &whole[start..];
    while !rest.is_empty() {
        let &[kind, high, low, ref after @ ..] = rest else { return Err(HeaderError::TrailingBytes(rest.len())) };
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (value, after) = after.split_at_checked(length).ok_or(HeaderError::TlvPastEnd(kind))?;
        rest = after;
        match kind {
            // Two selectors could mean different clusters to two readers of the same header.
            TLV_CLUSTER_ID | TLV_HYPERSHIFT_CLUSTER_ID => {
                set_once(&mut ours.cluster_id, value, HeaderError::DuplicateClusterId)?;
            }
            TLV_PROOF => set_once(&mut ours.proof, value, HeaderError::DuplicateProof)?,
            TLV_CRC32C if length != 4 => return Err(HeaderError::ChecksumLength(length)),
            TLV_CRC32C => {
                set_once(&mut checksum_at, whole.len() - rest.len() - 4, HeaderError::DuplicateChecksum)?;
            }
            TLV_AUTHORITY if length > MAX_AUTHORITY => return Err(HeaderError::LongAuthority(length)),
            TLV_UNIQUE_ID if length > MAX_UNIQUE_ID => return Err(HeaderError::LongUniqueId(length)),
            // NOOP, and what others put in for themselves.
            _ => {}
        }
    }
    match checksum_at {
        Some(at) if whole[at..at + 4] != crc32c::with_field_zeroed(whole, at).to_be_bytes() => {
            Err(HeaderError::Checksum)
        }
        _ => Ok(ours),
    }
}

fn set_once<T>(slot: &mut Option<T>, value: T, twice: HeaderError) -> Result<(), HeaderError> {
    slot.replace(value).map_or(Ok(()), |_| Err(twice))
}
