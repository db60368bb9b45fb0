//! What a request asks, read from its octets.

use domain::base::iana::{Class, Rtype};
use domain::base::message::Message;
use domain::base::name::{ParsedName, ToName};
use domain::base::opt::{Opt, OptRecord};
use domain::base::question::Question;
use model::DnsName;

/// A well-formed query with one question.
pub(crate) struct Request<'a> {
    pub(crate) message: &'a Message<[u8]>,
    /// As asked: its letters go back in the case they came in, which resolvers check against forgeries.
    pub(crate) question: Question<ParsedName<&'a [u8]>>,
    /// The same name as a key.
    pub(crate) name: DnsName,
    pub(crate) edns: Option<Edns>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Edns {
    pub(crate) version: u8,
    /// The largest UDP message that the client can take, as it says.
    pub(crate) payload_size: u16,
    pub(crate) dnssec_ok: bool,
}

/// The octets are no query with one question. What exactly is wrong helps nobody: the client only learns FORMERR.
#[derive(Debug)]
pub(crate) struct Malformed;

impl<'a> Request<'a> {
    pub(crate) fn parse(message: &'a Message<[u8]>) -> Result<Self, Malformed> {
        let question = message.sole_question().map_err(|_| Malformed)?;
        let name = DnsName::from_wire(question.qname().to_vec().as_slice()).map_err(|_| Malformed)?;
        Ok(Self { message, question, name, edns: edns(message)? })
    }

    pub(crate) fn qtype(&self) -> Rtype {
        self.question.qtype()
    }

    pub(crate) fn qclass(&self) -> Class {
        self.question.qclass()
    }
}

/// The one OPT record of the additional section (RFC 6891 6.1.1: a second one is an error). Its options are checked for
/// their lengths; none is known yet, and unknown ones are ignored.
fn edns(message: &Message<[u8]>) -> Result<Option<Edns>, Malformed> {
    let mut found = None;
    for record in message.additional().map_err(|_| Malformed)? {
        let record = record.map_err(|_| Malformed)?;
        if record.rtype() != Rtype::OPT {
            continue;
        }
        // RFC 6891 6.1.2: its owner is the root.
        if found.is_some() || !record.owner().is_root() {
            return Err(Malformed);
        }
        let record = record.to_record::<Opt<_>>().map_err(|_| Malformed)?.ok_or(Malformed)?;
        let record = OptRecord::from(record);
        found = Some(Edns {
            version: record.version(),
            payload_size: record.udp_payload_size(),
            dnssec_ok: record.dnssec_ok(),
        });
    }
    Ok(found)
}
