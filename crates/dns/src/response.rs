//! A reply as a value, and its octets.

use domain::base::Serial;
use domain::base::header::Header;
use domain::base::iana::{Class, OptRcode, Rcode, Rtype};
use domain::base::message_builder::{MessageBuilder, PushError, RecordSectionBuilder, StaticCompressor};
use domain::base::name::Name;
use domain::base::record::Ttl;
use domain::base::wire::Composer;
use domain::rdata;
use model::DnsName;
use model::snapshot::{RecordData, RecordSet, Soa};

use crate::request::Request;

/// What we say we can take, and the most that we send over UDP: the size that crosses the Internet without fragments
/// (an IPv6 MTU of 1280 octets less 48 of headers; the figure of DNS flag day 2020).
pub(crate) const PAYLOAD_SIZE: u16 = 1232;

pub(crate) struct Reply<'a> {
    pub(crate) rcode: OptRcode,
    pub(crate) authoritative: bool,
    pub(crate) truncated: bool,
    pub(crate) answer: Vec<Set<'a>>,
    pub(crate) authority: Vec<Set<'a>>,
    pub(crate) additional: Vec<Set<'a>>,
}

/// The records of one name and type.
pub(crate) struct Set<'a> {
    pub(crate) owner: DnsName,
    ttl: u32,
    data: Data<'a>,
}

enum Data<'a> {
    Records(&'a RecordData),
    Soa(&'a Soa),
}

impl Reply<'_> {
    /// No records, and no claim to be an authority.
    pub(crate) fn bare(rcode: OptRcode) -> Self {
        Self {
            rcode,
            authoritative: false,
            truncated: false,
            answer: Vec::new(),
            authority: Vec::new(),
            additional: Vec::new(),
        }
    }

    pub(crate) fn authoritative() -> Self {
        Self { authoritative: true, ..Self::bare(OptRcode::NOERROR) }
    }

    /// The same reply without its records: RFC 2181 9, a part of a set would be worse than none.
    pub(crate) fn cut_short(&self) -> Reply<'static> {
        Reply { authoritative: self.authoritative, truncated: true, ..Reply::bare(self.rcode) }
    }
}

impl<'a> Set<'a> {
    pub(crate) fn of(owner: &DnsName, records: &'a RecordSet) -> Self {
        Self { owner: owner.clone(), ttl: records.ttl, data: Data::Records(&records.data) }
    }

    pub(crate) fn soa(apex: &DnsName, soa: &'a Soa) -> Self {
        Self { owner: apex.clone(), ttl: soa.ttl, data: Data::Soa(soa) }
    }

    /// RFC 2308 3 and 5: how long a "no" may be kept is said by the TTL that its SOA has.
    pub(crate) fn negative_soa(apex: &DnsName, soa: &'a Soa) -> Self {
        Self { ttl: soa.ttl.min(soa.minimum), ..Self::soa(apex, soa) }
    }
}

pub(crate) fn rtype(data: &RecordData) -> Rtype {
    match data {
        RecordData::A(_) => Rtype::A,
        RecordData::Aaaa(_) => Rtype::AAAA,
        RecordData::Cname(_) => Rtype::CNAME,
        RecordData::Ns(_) => Rtype::NS,
    }
}

/// Writes only a header: for what could not be read, or is of a kind that we do not know.
pub(crate) fn write_header(asked: Header, rcode: Rcode, out: &mut Vec<u8>) {
    let Ok(mut builder) = MessageBuilder::from_target(out);
    reply_to(asked, rcode, builder.header_mut());
}

/// Writes a reply in at most `limit` octets, or fails; then `out` holds nothing of use.
pub(crate) fn write(
    request: &Request<'_>,
    reply: &Reply<'_>,
    limit: usize,
    out: &mut Vec<u8>,
) -> Result<(), PushError> {
    let Ok(mut builder) = MessageBuilder::from_target(StaticCompressor::new(out));
    // The builder also refuses what just reaches its limit.
    builder.set_push_limit(limit + 1);
    let header = builder.header_mut();
    reply_to(request.message.header(), reply.rcode.rcode(), header);
    header.set_aa(reply.authoritative);
    header.set_tc(reply.truncated);

    let mut question = builder.question();
    question.push(request.question)?;
    let mut answer = question.answer();
    push_sets(&mut answer, &reply.answer)?;
    let mut authority = answer.authority();
    push_sets(&mut authority, &reply.authority)?;
    let mut additional = authority.additional();
    push_sets(&mut additional, &reply.additional)?;
    // RFC 6891 6.1.1: only who sent an OPT gets one.
    if let Some(edns) = request.edns {
        additional.opt(|opt| {
            opt.set_udp_payload_size(PAYLOAD_SIZE);
            opt.set_rcode(reply.rcode);
            // RFC 3225 3: the bit comes back as it was sent.
            opt.set_dnssec_ok(edns.dnssec_ok);
            Ok(())
        })?;
    }
    Ok(())
}

/// RA, AD and CD stay clear: we neither recurse nor validate (RFC 4035 3.1.6).
fn reply_to(asked: Header, rcode: Rcode, header: &mut Header) {
    header.set_id(asked.id());
    header.set_qr(true);
    header.set_opcode(asked.opcode());
    header.set_rd(asked.rd());
    header.set_rcode(rcode);
}

fn push_sets<T: Composer>(section: &mut impl RecordSectionBuilder<T>, sets: &[Set<'_>]) -> Result<(), PushError> {
    sets.iter().try_for_each(|set| push_set(section, set))
}

fn push_set<T: Composer>(section: &mut impl RecordSectionBuilder<T>, set: &Set<'_>) -> Result<(), PushError> {
    let (owner, ttl) = (wire(&set.owner), Ttl::from_secs(set.ttl));
    match set.data {
        Data::Records(RecordData::A(addresses)) => {
            addresses.iter().try_for_each(|address| section.push((owner, Class::IN, ttl, rdata::A::new(*address))))
        }
        Data::Records(RecordData::Aaaa(addresses)) => {
            addresses.iter().try_for_each(|address| section.push((owner, Class::IN, ttl, rdata::Aaaa::new(*address))))
        }
        Data::Records(RecordData::Cname(target)) => {
            section.push((owner, Class::IN, ttl, rdata::Cname::new(wire(target))))
        }
        Data::Records(RecordData::Ns(servers)) => {
            servers.iter().try_for_each(|server| section.push((owner, Class::IN, ttl, rdata::Ns::new(wire(server)))))
        }
        Data::Soa(soa) => section.push((
            owner,
            Class::IN,
            ttl,
            rdata::Soa::new(
                wire(&soa.primary),
                wire(&soa.mailbox),
                Serial(soa.serial),
                Ttl::from_secs(soa.refresh),
                Ttl::from_secs(soa.retry),
                Ttl::from_secs(soa.expire),
                Ttl::from_secs(soa.minimum),
            ),
        )),
    }
}

fn wire(name: &DnsName) -> &Name<[u8]> {
    Name::from_slice(name.as_wire()).expect("a DnsName is an absolute name in wire form")
}
