//! Answers of our own making: what Services have, and what needs no server.

use std::net::IpAddr;

use domain::base::iana::{Class, Rcode, Rtype};
use domain::base::name::Name;
use domain::base::{MessageBuilder, Question, Ttl};
use domain::rdata::{A, Aaaa, Cname, Soa, Srv, Txt};
use model::DnsName;

use crate::message::wire_name;

/// What there is of a name, of all types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) records: Vec<Record>,
    /// Whether there is such a name.
    pub(crate) exists: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) name: DnsName,
    pub(crate) ttl: u32,
    pub(crate) data: RecordData,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecordData {
    Address(IpAddr),
    Alias(DnsName),
    Server { port: u16, target: DnsName },
    Text(String),
}

impl From<IpAddr> for RecordData {
    fn from(address: IpAddr) -> Self {
        Self::Address(address)
    }
}

impl RecordData {
    pub(crate) fn server(port: u16, target: &DnsName) -> Self {
        Self::Server { port, target: target.clone() }
    }

    fn rtype(&self) -> Rtype {
        match self {
            Self::Address(IpAddr::V4(_)) => Rtype::A,
            Self::Address(IpAddr::V6(_)) => Rtype::AAAA,
            Self::Alias(_) => Rtype::CNAME,
            Self::Server { .. } => Rtype::SRV,
            Self::Text(_) => Rtype::TXT,
        }
    }
}

impl Record {
    pub(crate) fn new(name: &DnsName, ttl: u32, data: RecordData) -> Self {
        Self { name: name.clone(), ttl, data }
    }
}

impl Answer {
    pub(crate) fn of(records: Vec<Record>) -> Self {
        Self { records, exists: true }
    }

    /// Without records there is no such name.
    pub(crate) fn of_some(records: Vec<Record>) -> Self {
        let exists = !records.is_empty();
        Self { records, exists }
    }

    pub(crate) fn no_data() -> Self {
        Self::of(Vec::new())
    }

    pub(crate) fn no_such_name() -> Self {
        Self { records: Vec::new(), exists: false }
    }

    /// A response with what was asked for, without OPT. `zone` is where a no comes from.
    pub(crate) fn to_message(&self, name: &DnsName, rtype: Rtype, zone: &DnsName, ttl: u32) -> Option<Vec<u8>> {
        let mut message = MessageBuilder::new_vec();
        let header = message.header_mut();
        header.set_qr(true);
        header.set_rd(true);
        header.set_ra(true);
        header.set_rcode(if self.exists { Rcode::NOERROR } else { Rcode::NXDOMAIN });
        let mut message = message.question();
        message.push(Question::new(wire_name(name)?, rtype, Class::IN)).ok()?;
        let mut message = message.answer();
        let is_asked = |record: &&Record| {
            let found = record.data.rtype();
            found == rtype || found == Rtype::CNAME || rtype == Rtype::ANY
        };
        let mut is_empty = true;
        for record in self.records.iter().filter(is_asked) {
            is_empty = false;
            let owner = wire_name(&record.name)?;
            let ttl = Ttl::from_secs(record.ttl);
            let pushed = match &record.data {
                RecordData::Address(IpAddr::V4(address)) => message.push((owner, Class::IN, ttl, A::from(*address))),
                RecordData::Address(IpAddr::V6(address)) => message.push((owner, Class::IN, ttl, Aaaa::from(*address))),
                RecordData::Alias(target) => message.push((owner, Class::IN, ttl, Cname::new(wire_name(target)?))),
                RecordData::Server { port, target } => {
                    // The weight that Kubernetes' specification shows.
                    message.push((owner, Class::IN, ttl, Srv::new(0, 100, *port, wire_name(target)?)))
                }
                RecordData::Text(text) => {
                    let data = Txt::<Vec<u8>>::build_from_slice(text.as_bytes()).ok()?;
                    message.push((owner, Class::IN, ttl, data))
                }
            };
            pushed.ok()?;
        }
        let mut message = message.authority();
        if is_empty {
            // RFC 2308 3: a no has the SOA record of the zone, which says how long it holds.
            let apex: Name<Vec<u8>> = wire_name(zone)?;
            let primary = zone.prepend("ns.dns").ok().and_then(|name| wire_name(&name)).unwrap_or_else(|| apex.clone());
            let mailbox =
                zone.prepend("hostmaster").ok().and_then(|name| wire_name(&name)).unwrap_or_else(|| apex.clone());
            let (hour, day) = (Ttl::from_secs(7200), Ttl::from_secs(86400));
            let soa = Soa::new(primary, mailbox, 1.into(), hour, Ttl::from_secs(1800), day, Ttl::from_secs(ttl));
            message.push((apex, Class::IN, Ttl::from_secs(ttl), soa)).ok()?;
        }
        Some(message.finish())
    }
}
