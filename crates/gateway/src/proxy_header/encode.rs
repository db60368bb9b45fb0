//! Writes a header into one buffer, to be sent in one write: HAProxy drops a header that arrives in pieces.

use std::net::{IpAddr, SocketAddr};

use super::{FIXED_PART, HeaderError, MAX_HEADER, SIGNATURE, TLV_CRC32C, TLV_PROOF, crc32c};
use crate::proof;

/// A header in the making.
///
/// ```
/// use gateway::proxy_header::{Encoder, TLV_CLUSTER_ID};
///
/// let client = "192.0.2.7:40000".parse().unwrap();
/// let destination = "172.20.0.1:6443".parse().unwrap();
/// let header = Encoder::proxy(client, destination).tlv(TLV_CLUSTER_ID, b"c1").finish().unwrap();
/// assert_eq!(header.len(), 16 + 12 + 3 + 2);
/// ```
#[derive(Debug, Clone)]
pub struct Encoder {
    buffer: Vec<u8>,
    /// A TLV that was longer than its length field can say; reported at the end.
    oversized: Option<usize>,
}

impl Encoder {
    /// A connection that is forwarded for `client`.
    pub fn proxy(client: SocketAddr, destination: SocketAddr) -> Self {
        let mut buffer = SIGNATURE.to_vec();
        match (client.ip().to_canonical(), destination.ip().to_canonical()) {
            (IpAddr::V4(source), IpAddr::V4(target)) => {
                buffer.extend([0x21, 0x11, 0, 0]);
                buffer.extend(source.octets());
                buffer.extend(target.octets());
            }
            // One family for both: the IPv4 one of a mixed pair goes in its mapped form.
            (source, target) => {
                buffer.extend([0x21, 0x21, 0, 0]);
                buffer.extend(octets_in_v6(source));
                buffer.extend(octets_in_v6(target));
            }
        }
        buffer.extend(client.port().to_be_bytes());
        buffer.extend(destination.port().to_be_bytes());
        Self { buffer, oversized: None }
    }

    /// A connection that the sender makes for itself, such as a health check.
    pub fn local() -> Self {
        let mut buffer = SIGNATURE.to_vec();
        buffer.extend([0x20, 0x00, 0, 0]);
        Self { buffer, oversized: None }
    }

    pub fn tlv(mut self, kind: u8, value: &[u8]) -> Self {
        match u16::try_from(value.len()) {
            Ok(length) => {
                self.buffer.push(kind);
                self.buffer.extend(length.to_be_bytes());
                self.buffer.extend(value);
            }
            Err(_) => self.oversized = Some(self.buffer.len() + 3 + value.len()),
        }
        self
    }

    /// What [`proof::sign`] made for the cluster that the header selects.
    pub fn proof(self, octets: &[u8; proof::LENGTH]) -> Self {
        self.tlv(TLV_PROOF, octets)
    }

    pub fn finish(mut self) -> Result<Vec<u8>, HeaderError> {
        let total = self.oversized.unwrap_or(self.buffer.len());
        if total > MAX_HEADER {
            return Err(HeaderError::TooLong(total));
        }
        let length = u16::try_from(total - FIXED_PART).map_err(|_| HeaderError::TooLong(total))?;
        self.buffer[14..FIXED_PART].copy_from_slice(&length.to_be_bytes());
        Ok(self.buffer)
    }

    /// As [`Self::finish`], with a checksum as the last TLV.
    pub fn finish_with_checksum(self) -> Result<Vec<u8>, HeaderError> {
        let mut buffer = self.tlv(TLV_CRC32C, &[0; 4]).finish()?;
        let at = buffer.len() - 4;
        let checksum = crc32c::with_field_zeroed(&buffer, at);
        buffer[at..].copy_from_slice(&checksum.to_be_bytes());
        Ok(buffer)
    }
}

fn octets_in_v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}
