//! A zone's SOA, ready to be written.

use model::DnsName;
use model::snapshot::Soa;

#[derive(Debug, Clone)]
pub(crate) struct SoaRecord {
    pub(crate) ttl: u32,
    /// RFC 2308 3 and 5: how long a "no" may be kept is said by the TTL that its SOA has.
    pub(crate) negative_ttl: u32,
    pub(crate) primary: SoaName,
    pub(crate) mailbox: SoaName,
    /// Serial, refresh, retry, expire and minimum.
    pub(crate) numbers: [u8; 20],
}

/// A name that mostly lies in the zone, whose apex the message has already.
#[derive(Debug, Clone)]
pub(crate) struct SoaName {
    pub(crate) name: DnsName,
    /// How many octets stand before the apex, where it lies in the zone.
    pub(crate) before_apex: Option<usize>,
}

impl SoaRecord {
    pub(crate) fn new(apex: &DnsName, soa: &Soa) -> Self {
        let mut numbers = [0; 20];
        let values = [soa.serial, soa.refresh, soa.retry, soa.expire, soa.minimum];
        for (place, value) in numbers.chunks_exact_mut(4).zip(values) {
            place.copy_from_slice(&value.to_be_bytes());
        }
        let name = |name: &DnsName| SoaName {
            name: name.clone(),
            before_apex: name.is_at_or_under(apex).then(|| name.as_wire().len() - apex.as_wire().len()),
        };
        Self {
            ttl: soa.ttl,
            negative_ttl: soa.ttl.min(soa.minimum),
            primary: name(&soa.primary),
            mailbox: name(&soa.mailbox),
            numbers,
        }
    }
}
