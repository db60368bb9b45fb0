//! * One query: from the octets of a request to the octets of its response. Nothing here reads a socket or a clock.
//!
//! Everything that decides about an answer is in this file, in the order in which it is decided.

use std::sync::Arc;

use domain::base::iana::{Class, Opcode, OptRcode, Rcode, Rtype};
use domain::base::message::Message;
use model::DnsName;
use model::snapshot::{RecordData, RecordSet};

use crate::index::{Index, Place, Zone};
use crate::request::Request;
use crate::response::{self, PAYLOAD_SIZE, Reply, Set, rtype};

/// How many aliases one answer follows. Honest chains have one or two links; each link costs us a lookup and makes the
/// answer larger than the question. Behind the last one the client asks on by itself.
const MAX_CHAIN: usize = 8;

/// RFC 1035 4.2.1: what a client takes over UDP when it does not say more, and can always take.
const SMALL_UDP: u16 = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    Udp,
    Tcp,
}

/// What became of a query, for those who count and watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub rcode: OptRcode,
    /// The apex of the zone of ours that the question lies in.
    pub zone: Option<DnsName>,
    /// The answer did not fit; the client is to ask again over TCP.
    pub truncated: bool,
}

/// Writes the response to `request` into `out`, which is emptied first. `None` means silence: nothing is to be sent.
pub fn answer(index: &Index, request: &[u8], transport: Transport, out: &mut Vec<u8>) -> Option<Outcome> {
    out.clear();
    // Without a header there is no id to answer to.
    let message = Message::from_slice(request).ok()?;
    let header = message.header();
    // An answered response would make two servers talk to each other for ever.
    if header.qr() {
        return None;
    }
    if header.opcode() != Opcode::QUERY {
        return Some(answer_header(message, Rcode::NOTIMP, out));
    }
    let Ok(request) = Request::parse(message) else {
        return Some(answer_header(message, Rcode::FORMERR, out));
    };
    let zone = index.zone_of(&request.name);
    let reply = reply(index, zone, &request);
    let (rcode, truncated) = write(&request, &reply, transport, out);
    Some(Outcome { rcode, zone: zone.map(|zone| zone.apex.clone()), truncated })
}

fn reply<'a>(index: &'a Index, zone: Option<&'a Arc<Zone>>, request: &'a Request<'_>) -> Reply<'a> {
    if request.edns.is_some_and(|edns| edns.version > 0) {
        return Reply::bare(OptRcode::BADVERS);
    }
    if request.qclass() != Class::IN {
        return Reply::bare(OptRcode::REFUSED);
    }
    // Whole zones are for those who were given the right to them; nobody is yet.
    if matches!(request.qtype(), Rtype::AXFR | Rtype::IXFR) {
        return Reply::bare(OptRcode::REFUSED);
    }
    match zone {
        None => Reply::bare(OptRcode::REFUSED),
        Some(zone) => resolve(index, zone, &request.name, request.qtype()),
    }
}

/// Looks the name up and, while it is an alias of another name of ours, that one. The code is that of the last name
/// (RFC 6604 3), the authority that of the first (RFC 1035 4.1.1).
fn resolve<'a>(index: &'a Index, zone: &'a Arc<Zone>, asked: &'a DnsName, qtype: Rtype) -> Reply<'a> {
    let mut reply = Reply::authoritative();
    let (mut zone, mut name) = (zone, asked);
    loop {
        let records = match locate(zone, name) {
            Found::Name(place) => place.records(),
            // RFC 4035 3.1.4.1: the DS of a delegated zone belongs to the zone above.
            Found::Cut { owner, servers } if qtype != Rtype::DS || owner != *name => {
                refer(&mut reply, zone, &owner, servers);
                return reply;
            }
            Found::Cut { .. } => &[],
            Found::Nothing => {
                reply.rcode = OptRcode::NXDOMAIN;
                reply.authority.push(Set::negative_soa(&zone.apex, &zone.soa));
                return reply;
            }
        };
        if let Some(set) = matching(zone, name, records, qtype) {
            reply.answer.push(set);
            return reply;
        }
        let Some((alias, target)) = records.iter().find_map(as_alias) else {
            reply.authority.push(Set::negative_soa(&zone.apex, &zone.soa));
            return reply;
        };
        let in_circle = target == name || reply.answer.iter().any(|set| set.owner == *target);
        reply.answer.push(Set::of(name, alias));
        if in_circle || reply.answer.len() == MAX_CHAIN {
            return reply;
        }
        let Some(next) = index.zone_of(target) else { return reply };
        (zone, name) = (next, target);
    }
}

enum Found<'a> {
    /// The name exists, perhaps without records, or a wildcard stands in for it.
    Name(&'a Place),
    /// The name lies at or below `owner`, which the zone delegates to others.
    Cut {
        owner: DnsName,
        servers: &'a RecordSet,
    },
    Nothing,
}

/// RFC 1034 4.3.2 step 3, with wildcards as RFC 4592 has them: only below the closest encloser, which is the last place
/// on the way to the name that exists. Any existing place counts, be it without records; so it hides the wildcards
/// above it, and a `*` on the way is a name like others.
fn locate<'a>(zone: &'a Zone, name: &DnsName) -> Found<'a> {
    let labels = zone.labels_below(name);
    let mut place = zone.apex_place();
    for (depth, label) in labels.iter().enumerate() {
        let Some(child) = place.child(label) else {
            return place.child(b"*").map_or(Found::Nothing, Found::Name);
        };
        if let Some(servers) = child.records().iter().find(|set| rtype(&set.data) == Rtype::NS) {
            return Found::Cut { owner: ancestor(name, labels.len() - depth - 1), servers };
        }
        place = child;
    }
    Found::Name(place)
}

/// What answers `qtype` itself. ANY gets one set (RFC 8482 4.1): enough for a probe, too little for a reflector.
fn matching<'a>(zone: &'a Zone, name: &DnsName, records: &'a [RecordSet], qtype: Rtype) -> Option<Set<'a>> {
    let at_apex = *name == zone.apex;
    let soa = (at_apex && matches!(qtype, Rtype::SOA | Rtype::ANY)).then(|| Set::soa(name, &zone.soa));
    soa.or_else(|| {
        let set = records.iter().find(|set| qtype == Rtype::ANY || rtype(&set.data) == qtype)?;
        Some(Set::of(name, set))
    })
}

fn as_alias(set: &RecordSet) -> Option<(&RecordSet, &DnsName)> {
    match &set.data {
        RecordData::Cname(target) => Some((set, target)),
        _ => None,
    }
}

/// Points to the servers of a delegated zone, with every address of them that we know (RFC 9471 3).
fn refer<'a>(reply: &mut Reply<'a>, zone: &'a Zone, owner: &DnsName, servers: &'a RecordSet) {
    // What is below the cut is not ours to vouch for, unless an alias of ours led here.
    reply.authoritative = !reply.answer.is_empty();
    reply.authority.push(Set::of(owner, servers));
    let RecordData::Ns(names) = &servers.data else { return };
    for name in names {
        let sets = zone.place(name).map_or(&[][..], Place::records).iter();
        let addresses = sets.filter(|set| matches!(set.data, RecordData::A(_) | RecordData::Aaaa(_)));
        reply.additional.extend(addresses.map(|set| Set::of(name, set)));
    }
}

/// The name without its `levels` leftmost labels.
fn ancestor(name: &DnsName, levels: usize) -> DnsName {
    (0..levels).fold(name.clone(), |name, _| name.parent().unwrap_or(name))
}

fn answer_header(message: &Message<[u8]>, rcode: Rcode, out: &mut Vec<u8>) -> Outcome {
    response::write_header(message.header(), rcode, out);
    Outcome { rcode: rcode.into(), zone: None, truncated: false }
}

/// Writes the reply or, where it does not fit, the word that it does not.
fn write(request: &Request<'_>, reply: &Reply<'_>, transport: Transport, out: &mut Vec<u8>) -> (OptRcode, bool) {
    let limit = match (transport, request.edns) {
        (Transport::Udp, None) => SMALL_UDP,
        (Transport::Udp, Some(edns)) => edns.payload_size.clamp(SMALL_UDP, PAYLOAD_SIZE),
        // RFC 1035 4.2.2: the length before the message has two octets.
        (Transport::Tcp, _) => u16::MAX,
    };
    if response::write(request, reply, limit.into(), out).is_ok() {
        return (reply.rcode, false);
    }
    let instead = match transport {
        Transport::Udp => reply.cut_short(),
        // There is no larger transport to ask for.
        Transport::Tcp => Reply::bare(OptRcode::SERVFAIL),
    };
    response::write(request, &instead, limit.into(), out).expect("a header, a question and an OPT fit in 512 octets");
    (instead.rcode, instead.truncated)
}

#[cfg(test)]
mod tests;
