//! The octets of DNS messages: what a client asks, what is asked on its behalf, and what comes back.

mod steady;

use std::net::IpAddr;
use std::sync::Arc;

use domain::base::iana::{Class, Opcode, OptRcode, Rcode, Rtype};
use domain::base::message_builder::RecordSectionBuilder;
use domain::base::name::{Name, ParsedName, ToLabelIter as _};
use domain::base::{Message, MessageBuilder, ParsedRecord, ToName as _};
use domain::rdata::{AllRecordData, Cname, Soa};
use model::DnsName;
use model::name::MAX_NAME;
use model::reach::Reach;

use steady::Changing;

/// RFC 1035 4.1.1.
const HEADER: usize = 12;
/// RFC 1035 4.2.1: without EDNS.
const PLAIN_UDP: usize = 512;
/// What passes everywhere in one piece: <https://www.dnsflagday.net/2020/>.
pub(crate) const UDP: u16 = 1232;
/// RFC 2308 5: nobody should be told for long that there is nothing, and here Services come and go.
const NEGATIVE_TTL: u32 = 30;
/// What changes is to be known within the hour, whatever its owner thinks.
const POSITIVE_TTL: u32 = 3600;
/// RFC 8767 4: for what is served although its time is over.
const STALE_TTL: u32 = 30;
/// How many aliases of one response are followed.
const MOST_ALIASES: usize = 16;
/// The option with which we know our own questions again (RFC 6891 9: for local use).
const MARK: u16 = 65_313;
/// How many resolvers of this kind may stand behind each other.
const MOST_HOPS: usize = 4;

// Bits of the second flags octet (RFC 1035 4.1.1, RFC 4035 3.2).
const RECURSION_AVAILABLE: u8 = 0x80;
const AUTHENTIC: u8 = 0x20;
const UNCHECKED: u8 = 0x10;
// And of the first.
const RESPONSE: u8 = 0x80;
const TRUNCATED: u8 = 0x02;
const RECURSION: u8 = 0x01;

/// RFC 8914.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extended {
    Other = 0,
    Stale = 3,
    Blocked = 15,
    Prohibited = 18,
    NoReachableAuthority = 22,
    NetworkError = 23,
}

/// Why an answer is what it is, in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Remark {
    pub(crate) code: Extended,
    pub(crate) text: &'static str,
}

/// A question as it is kept and compared: the name in lower case, the type, and the flags that change the answer.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    octets: [u8; MAX_NAME + 3],
    length: u16,
}

/// What a message of a client's comes to.
#[allow(clippy::large_enum_variant)] // Nearly all are questions, and nothing is allocated for them.
pub(crate) enum Received<'a> {
    /// Too short to be answered, or an answer itself: two servers would talk for ever.
    Nothing,
    /// The answer is a no right away.
    No {
        head: Head<'a>,
        rcode: OptRcode,
    },
    Question {
        head: Head<'a>,
        key: Key,
        mark: Option<Mark>,
    },
}

/// What goes back as it came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head<'a> {
    id: [u8; 2],
    /// Opcode and RD.
    flags: u8,
    /// CD.
    unchecked: u8,
    /// Name, type and class in the letters that they came in, as far as they could be read.
    question: &'a [u8],
    edns: Option<Edns>,
}

#[derive(Debug, Clone, Copy)]
struct Edns {
    payload: u16,
    dnssec_ok: bool,
}

/// Which resolvers of this kind have asked this, one on behalf of the other: numbers that each process makes up for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mark {
    processes: [[u8; 8]; MOST_HOPS],
    hops: usize,
}

impl Mark {
    fn read(octets: &[u8]) -> Option<Self> {
        let (processes, rest) = octets.as_chunks::<8>();
        let hops = processes.len();
        let mut mark = Self { hops, ..Self::default() };
        mark.processes.get_mut(..hops)?.copy_from_slice(processes);
        rest.is_empty().then_some(mark)
    }

    /// Whether the question goes round in a circle, or has gone through too many hands.
    pub(crate) fn is_loop(self, ours: [u8; 8]) -> bool {
        self.hops >= MOST_HOPS || self.processes[..self.hops].contains(&ours)
    }

    /// With us behind the others.
    pub(crate) fn and(mut self, ours: [u8; 8]) -> Self {
        if let Some(place) = self.processes.get_mut(self.hops) {
            *place = ours;
            self.hops += 1;
        }
        self
    }
}

/// The octets are no message of the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

impl Key {
    pub(crate) fn new(name: &DnsName, rtype: Rtype, flags: u8) -> Self {
        let wire = name.as_wire();
        let mut octets = [0; MAX_NAME + 3];
        octets[..wire.len()].copy_from_slice(wire);
        let [t0, t1] = rtype.to_int().to_be_bytes();
        octets[wire.len()..wire.len() + 3].copy_from_slice(&[t0, t1, flags]);
        Self { octets, length: u16::try_from(wire.len() + 3).unwrap_or(u16::MAX) }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.octets[..self.length.into()]
    }

    pub(crate) fn name(&self) -> DnsName {
        let octets = self.as_slice();
        // It was read as one.
        DnsName::from_wire(&octets[..octets.len() - 3]).unwrap_or_else(|_| DnsName::root())
    }

    pub(crate) fn rtype(&self) -> Rtype {
        let octets = self.as_slice();
        Rtype::from_int(u16::from_be_bytes([octets[octets.len() - 3], octets[octets.len() - 2]]))
    }

    /// RD, AD, CD and DO.
    pub(crate) fn flags(&self) -> u8 {
        self.octets[usize::from(self.length) - 1]
    }

    /// The same of another name: an alias' target.
    pub(crate) fn with_name(&self, name: &DnsName) -> Self {
        Self::new(name, self.rtype(), self.flags())
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.name(), self.rtype())
    }
}

/// Where DO stands in a key's flags; the other bits are those of the header, where this one is QR.
const KEY_DNSSEC_OK: u8 = 0x80;

/// Reads what came to a port of ours.
pub(crate) fn receive(octets: &[u8]) -> Received<'_> {
    let Ok(message) = Message::from_slice(octets) else { return Received::Nothing };
    let [i0, i1, first, second, ..] = *octets else { return Received::Nothing };
    if first & RESPONSE != 0 {
        return Received::Nothing;
    }
    let mut head = Head {
        id: [i0, i1],
        flags: first & (0x78 | RECURSION),
        unchecked: second & UNCHECKED,
        question: &[],
        edns: None,
    };
    let no = |head, rcode| Received::No { head, rcode };
    if message.header().opcode() != Opcode::QUERY {
        return no(head, OptRcode::NOTIMP);
    }
    // RFC 9619 4: exactly one.
    if message.header_counts().qdcount() != 1 {
        return no(head, OptRcode::FORMERR);
    }
    let Ok(question) = message.sole_question() else { return no(head, OptRcode::FORMERR) };
    let length = usize::from(question.qname().compose_len());
    if !is_plain(octets, length) {
        return no(head, OptRcode::FORMERR);
    }
    let Some(asked) = octets.get(HEADER..HEADER + length + 4) else { return no(head, OptRcode::FORMERR) };
    head.question = asked;
    let mark = match read_opt(message, &mut head) {
        Ok(mark) => mark,
        Err(rcode) => return no(head, rcode),
    };
    let is_meta = matches!(
        question.qtype(),
        Rtype::OPT | Rtype::TSIG | Rtype::TKEY | Rtype::AXFR | Rtype::IXFR | Rtype::MAILA | Rtype::MAILB
    );
    if question.qclass() != Class::IN || is_meta {
        return no(head, OptRcode::NOTIMP);
    }
    let dnssec_ok = head.edns.is_some_and(|edns| edns.dnssec_ok);
    let flags = first & RECURSION | second & (AUTHENTIC | UNCHECKED) | if dnssec_ok { KEY_DNSSEC_OK } else { 0 };
    let mut key = Key { octets: [0; MAX_NAME + 3], length: 0 };
    let Some(place) = key.octets.get_mut(..length + 3) else { return no(head, OptRcode::FORMERR) };
    place[..length + 2].copy_from_slice(&asked[..length + 2]);
    place[..length].make_ascii_lowercase();
    place[length + 2] = flags;
    key.length = u16::try_from(length + 3).unwrap_or(u16::MAX);
    Received::Question { head, key, mark }
}

/// Whether the name of the question, which has this length, stands where it should. There is nothing before it that it could
/// point to.
fn is_plain(octets: &[u8], length: usize) -> bool {
    Changing { octets, ttls: &[] }.skip_steady(HEADER) == Some(HEADER + length)
}

/// Has the OPT record, and whose question it was before.
fn read_opt(message: &Message<[u8]>, head: &mut Head<'_>) -> Result<Option<Mark>, OptRcode> {
    let malformed = |_| OptRcode::FORMERR;
    for section in [message.answer().map_err(malformed)?, message.authority().map_err(malformed)?] {
        for record in section {
            record.map_err(malformed)?;
        }
    }
    let mut mark = None;
    for record in message.additional().map_err(malformed)? {
        let record = record.map_err(malformed)?;
        if record.rtype() != Rtype::OPT {
            continue;
        }
        // RFC 6891 6.1.1: a second one is an error, and its owner is the root.
        if head.edns.is_some() || !record.owner().is_root() {
            return Err(OptRcode::FORMERR);
        }
        let [_, version, flags, _] = record.ttl().as_secs().to_be_bytes();
        head.edns = Some(Edns { payload: record.class().to_int(), dnssec_ok: flags & 0x80 != 0 });
        let data = record.to_record::<domain::base::opt::Opt<_>>().map_err(malformed)?.ok_or(OptRcode::FORMERR)?;
        for option in data.data().iter::<domain::base::opt::UnknownOptData<_>>() {
            let option = option.map_err(malformed)?;
            if option.code().to_int() == MARK {
                mark = Mark::read(option.as_slice());
            }
        }
        // RFC 6891 6.1.3.
        if version != 0 {
            return Err(OptRcode::BADVERS);
        }
    }
    Ok(mark)
}

impl Head<'_> {
    /// How much the client takes in one datagram.
    pub(crate) fn udp_limit(&self) -> usize {
        self.edns.map_or(PLAIN_UDP, |edns| usize::from(edns.payload.clamp(512, UDP)))
    }

    /// A response without records.
    pub(crate) fn say(&self, rcode: OptRcode, remark: Option<Remark>) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER + self.question.len() + 96);
        let code = u8::try_from(rcode.to_int() & 0x0f).unwrap_or_default();
        out.extend_from_slice(&self.id);
        out.extend_from_slice(&[RESPONSE | self.flags, RECURSION_AVAILABLE | self.unchecked | code]);
        out.extend_from_slice(&[0, u8::from(!self.question.is_empty()), 0, 0, 0, 0, 0, 0]);
        out.extend_from_slice(self.question);
        self.push_opt(&mut out, rcode, remark);
        out
    }

    /// RFC 6891 6.1.1: who asks with it is answered with it.
    fn push_opt(&self, out: &mut Vec<u8>, rcode: OptRcode, remark: Option<Remark>) {
        let Some(edns) = self.edns else { return };
        let extended = u8::try_from(rcode.to_int() >> 4).unwrap_or_default();
        let [u0, u1] = UDP.to_be_bytes();
        out.extend_from_slice(&[0, 0, 41, u0, u1, extended, 0, if edns.dnssec_ok { 0x80 } else { 0 }, 0]);
        match remark {
            None => out.extend_from_slice(&[0, 0]),
            Some(Remark { code, text }) => {
                let length = u16::try_from(text.len()).unwrap_or_default() + 2;
                out.extend_from_slice(&(length + 4).to_be_bytes());
                out.extend_from_slice(&15_u16.to_be_bytes());
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(&(code as u16).to_be_bytes());
                out.extend_from_slice(text.as_bytes());
            }
        }
        if let Some(count) = out.get_mut(10..12) {
            let additional = u16::from_be_bytes([count[0], count[1]]).saturating_add(1);
            count.copy_from_slice(&additional.to_be_bytes());
        }
    }
}

/// What is asked on a client's behalf.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    octets: Vec<u8>,
    key: Key,
}

impl Query {
    /// With an id that nobody can foresee. Without `mark` it has no OPT record: for servers that do not know it.
    pub(crate) fn new(key: &Key, mark: Option<Mark>) -> Self {
        let flags = key.flags();
        let name = key.as_slice();
        let name = &name[..name.len() - 1];
        let mut octets = Vec::with_capacity(HEADER + name.len() + 2 + 48);
        octets.extend_from_slice(&random_id());
        octets.extend_from_slice(&[flags & RECURSION, flags & (AUTHENTIC | UNCHECKED)]);
        octets.extend_from_slice(&[0, 1, 0, 0, 0, 0, 0, u8::from(mark.is_some())]);
        octets.extend_from_slice(name);
        octets.extend_from_slice(&[0, 1]);
        if let Some(Mark { processes, hops }) = mark {
            let [u0, u1] = UDP.to_be_bytes();
            let [m0, m1] = MARK.to_be_bytes();
            let dnssec_ok = flags & KEY_DNSSEC_OK;
            // At most 32 octets.
            let length = u8::try_from(hops * 8).unwrap_or_default();
            octets.extend_from_slice(&[0, 0, 41, u0, u1, 0, 0, dnssec_ok, 0, 0, length + 4, m0, m1, 0, length]);
            octets.extend_from_slice(processes[..hops].as_flattened());
        }
        Self { octets, key: *key }
    }

    pub(crate) fn as_octets(&self) -> &[u8] {
        &self.octets
    }

    /// Whether these octets answer it, as far as can be told from outside: id and question.
    pub(crate) fn is_answered_by(&self, octets: &[u8]) -> bool {
        let is_response = octets.get(2).is_some_and(|flags| flags & (RESPONSE | 0x78) == RESPONSE);
        if octets.get(..2) != self.octets.get(..2) || !is_response {
            return false;
        }
        let Ok(message) = Message::from_slice(octets) else { return false };
        let Ok(question) = message.sole_question() else { return false };
        let same_name = name_of(question.qname()).is_some_and(|name| name == self.key.name());
        same_name && question.qtype() == self.key.rtype() && question.qclass() == Class::IN
    }

    /// Whether the rest of the answer is only to be had over TCP.
    pub(crate) fn is_truncated(octets: &[u8]) -> bool {
        octets.get(2).is_some_and(|flags| flags & TRUNCATED != 0)
    }
}

/// Ids are what a forger has to guess, beside the port.
pub(crate) fn random_id() -> [u8; 2] {
    let mut id = [0; 2];
    // Where the system has no random numbers at hand, those of the program have to do.
    if ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut id).is_err() {
        id = fastrand::u16(..).to_be_bytes();
    }
    id
}

/// What a server said, ready to be told to many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Response {
    /// Without an id and an OPT record.
    octets: Vec<u8>,
    /// Where the question ends.
    question_end: usize,
    /// Where the TTLs are.
    ttls: Box<[u16]>,
    pub(crate) rcode: Rcode,
    pub(crate) kind: Kind,
    /// For how many seconds it may be told.
    pub(crate) ttl: u32,
    /// Where its aliases lead, if the response does not say what is there.
    pub(crate) alias: Option<DnsName>,
    /// Whether an address in it is the client's own machine, its neighbours, or where clouds hand out credentials.
    pub(crate) misleads: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// There is what was asked for.
    Positive,
    /// There is no such name, or nothing of the type.
    Negative,
}

impl Response {
    /// Reads a response from its octets, all of which have to be in order.
    pub(crate) fn read(octets: &[u8], key: &Key) -> Result<Self, Malformed> {
        let message = Message::from_slice(octets).map_err(|_| Malformed)?;
        let question = message.sole_question().map_err(|_| Malformed)?;
        let length = usize::from(question.qname().compose_len());
        if !is_plain(octets, length) || name_of(question.qname()).is_none_or(|name| name != key.name()) {
            return Err(Malformed);
        }
        let question_end = HEADER + length + 4;
        let mut found = Found::default();
        let mut section = message.answer().map_err(|_| Malformed)?;
        let (mut ttls, mut end, mut additional) = (Vec::new(), section.pos(), 0_u16);
        let (mut places, mut misleads) = (Vec::new(), false);
        for part in 0..3 {
            loop {
                let begins = section.pos();
                let Some(record) = section.next() else { break };
                let record = record.map_err(|_| Malformed)?;
                // RFC 6891 7: it is for the next hop alone. Whatever stands behind it is an extra.
                if part == 2 && matches!(record.rtype(), Rtype::OPT | Rtype::TSIG) {
                    break;
                }
                end = section.pos();
                let ttl_at = end.checked_sub(usize::from(record.rdlen()) + 6).ok_or(Malformed)?;
                ttls.push(u16::try_from(ttl_at).map_err(|_| Malformed)?);
                places.push((begins, record.rtype(), ttl_at + 6..end));
                match part {
                    0 => {
                        misleads |= is_misleading(record.rtype(), octets.get(ttl_at + 6..end).unwrap_or_default());
                        found.answer(&record, key.rtype())?;
                    }
                    1 => found.authority(&record)?,
                    _ => additional += 1,
                }
            }
            if part < 2 {
                section = section.next_section().map_err(|_| Malformed)?.ok_or(Malformed)?;
            }
        }
        let changing = Changing { octets, ttls: &ttls };
        let is_steady =
            |(owner, rtype, data)| changing.skip_steady(owner).is_some() && changing.has_steady_data(rtype, data);
        if !places.into_iter().all(is_steady) {
            return Err(Malformed);
        }
        let rcode = message.header().rcode();
        if message.opt_rcode().to_int() > 0x0f {
            return Err(Malformed);
        }
        let (ends, alias_loop) = found.follow(key.name());
        if alias_loop {
            return Err(Malformed);
        }
        let is_found = rcode == Rcode::NOERROR && found.has(&ends, key.rtype());
        let is_partial = !is_found && rcode == Rcode::NOERROR && !found.aliases.is_empty() && found.soa.is_none();
        let (kind, ttl) = if is_found || is_partial {
            (Kind::Positive, found.ttl.unwrap_or(0).min(POSITIVE_TTL))
        } else {
            // RFC 2308 5: without SOA it is not kept.
            let ttl = found.soa.map_or(0, |soa| soa.min(found.ttl.unwrap_or(u32::MAX)));
            (Kind::Negative, ttl.min(NEGATIVE_TTL))
        };
        let mut kept = octets.get(..end).ok_or(Malformed)?.to_vec();
        kept[..2].fill(0);
        // It is not ours to be sure; the flags of questions are those of who asks.
        kept[2] = RESPONSE;
        kept[3] = kept[3] & (AUTHENTIC | 0x0f) | RECURSION_AVAILABLE;
        kept[10..12].copy_from_slice(&additional.to_be_bytes());
        let alias = is_partial.then_some(ends);
        let mut response = Self { octets: kept, question_end, ttls: ttls.into(), rcode, kind, ttl, alias, misleads };
        let most = if kind == Kind::Positive { POSITIVE_TTL } else { NEGATIVE_TTL };
        response.change_ttls(|ttl| ttl.min(most));
        Ok(response)
    }

    /// One of our own making.
    pub(crate) fn own(octets: &[u8], key: &Key) -> Option<Arc<Self>> {
        Self::read(octets, key).ok().map(Arc::new)
    }

    /// How much room it takes.
    pub(crate) fn size(&self) -> usize {
        self.octets.len() + self.ttls.len() * 2 + size_of::<Self>()
    }

    /// As an answer to this question: `age` seconds after it was received, or after its time.
    pub(crate) fn to(&self, head: &Head<'_>, age: Age, limit: usize) -> Vec<u8> {
        let remark = matches!(age, Age::Stale).then_some(Remark { code: Extended::Stale, text: "" });
        let room = self.octets.len() + if head.edns.is_some() { 17 } else { 0 };
        if room > limit {
            let rcode = OptRcode::from_rcode(self.rcode);
            let mut out = head.say(rcode, remark);
            out[2] |= TRUNCATED;
            return out;
        }
        let mut out = Vec::with_capacity(room);
        out.extend_from_slice(&self.octets);
        out[..2].copy_from_slice(&head.id);
        out[2] |= head.flags & RECURSION;
        out[3] |= head.unchecked;
        if let Some(question) = out.get_mut(HEADER..self.question_end)
            && question.len() == head.question.len()
        {
            question.copy_from_slice(head.question);
        }
        for at in &self.ttls {
            let at = usize::from(*at);
            if let Some(place) = out.get_mut(at..at + 4)
                && let Ok(ttl) = <[u8; 4]>::try_from(&*place)
            {
                let ttl = match age {
                    Age::Seconds(age) => u32::from_be_bytes(ttl).saturating_sub(age),
                    Age::Stale => STALE_TTL,
                };
                place.copy_from_slice(&ttl.to_be_bytes());
            }
        }
        head.push_opt(&mut out, OptRcode::from_rcode(self.rcode), remark);
        out
    }

    fn change_ttls(&mut self, change: impl Fn(u32) -> u32) {
        for at in &self.ttls {
            let at = usize::from(*at);
            if let Some(place) = self.octets.get_mut(at..at + 4)
                && let Ok(ttl) = <[u8; 4]>::try_from(&*place)
            {
                // RFC 2181 8: what has the highest bit counts as none.
                let ttl = u32::from_be_bytes(ttl);
                let ttl = if ttl >> 31 == 0 { change(ttl) } else { 0 };
                place.copy_from_slice(&ttl.to_be_bytes());
            }
        }
    }

    /// One response for a name and where its aliases led, in their order.
    pub(crate) fn chain(key: &Key, parts: &[Arc<Self>]) -> Option<Self> {
        let last = parts.last()?;
        let mut message = MessageBuilder::new_vec();
        let header = message.header_mut();
        header.set_qr(true);
        header.set_rcode(last.rcode);
        let all_authentic = parts.iter().all(|part| part.octets[3] & AUTHENTIC != 0);
        header.set_ad(all_authentic);
        let mut message = message.question();
        message.push((wire_name(&key.name())?, key.rtype(), Class::IN)).ok()?;
        let mut message = message.answer();
        for part in parts {
            let part = Message::from_slice(&part.octets).ok()?;
            for record in part.answer().ok()? {
                copy(&record.ok()?, &mut message)?;
            }
        }
        let mut message = message.authority();
        let authority = Message::from_slice(&last.octets).ok()?;
        for record in authority.authority().ok()? {
            copy(&record.ok()?, &mut message)?;
        }
        Self::read(&message.finish(), key).ok()
    }
}

/// How old an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    Seconds(u32),
    /// Its time is over.
    Stale,
}

/// What the sections of a response have.
#[derive(Default)]
struct Found {
    aliases: Vec<(DnsName, DnsName)>,
    /// Owners of what was asked for.
    owners: Vec<DnsName>,
    /// The lowest of the answers.
    ttl: Option<u32>,
    /// For how long a no holds.
    soa: Option<u32>,
}

impl Found {
    fn answer(&mut self, record: &ParsedRecord<'_, [u8]>, wanted: Rtype) -> Result<(), Malformed> {
        let ttl = record.ttl().as_secs();
        let ttl = if ttl >> 31 == 0 { ttl } else { 0 };
        self.ttl = Some(self.ttl.map_or(ttl, |lowest| lowest.min(ttl)));
        let owner = name_of(&record.owner()).ok_or(Malformed)?;
        if record.rtype() == wanted || wanted == Rtype::ANY {
            self.owners.push(owner);
        } else if record.rtype() == Rtype::CNAME {
            let alias = record.to_record::<Cname<ParsedName<_>>>().map_err(|_| Malformed)?.ok_or(Malformed)?;
            self.aliases.push((owner, name_of(alias.data().cname()).ok_or(Malformed)?));
        }
        Ok(())
    }

    fn authority(&mut self, record: &ParsedRecord<'_, [u8]>) -> Result<(), Malformed> {
        if record.rtype() == Rtype::SOA {
            let soa = record.to_record::<Soa<ParsedName<_>>>().map_err(|_| Malformed)?.ok_or(Malformed)?;
            self.soa = Some(record.ttl().as_secs().min(soa.data().minimum().as_secs()));
        }
        Ok(())
    }

    /// Where the aliases lead, and whether they never end.
    fn follow(&self, mut name: DnsName) -> (DnsName, bool) {
        for _ in 0..=MOST_ALIASES {
            match self.aliases.iter().find(|(owner, _)| *owner == name) {
                Some((_, target)) => name = target.clone(),
                None => return (name, false),
            }
        }
        (name, true)
    }

    fn has(&self, name: &DnsName, wanted: Rtype) -> bool {
        self.owners.contains(name) || (wanted == Rtype::ANY && !self.owners.is_empty())
    }
}

/// Whether the data of a record is an address that no name of others should lead to.
fn is_misleading(rtype: Rtype, data: &[u8]) -> bool {
    let address: Option<IpAddr> = match rtype {
        Rtype::A => <[u8; 4]>::try_from(data).ok().map(IpAddr::from),
        Rtype::AAAA => <[u8; 16]>::try_from(data).ok().map(IpAddr::from),
        _ => None,
    };
    address.is_some_and(|address| Reach::of(address) != Reach::Ordinary)
}

/// Into another message, where its names stand elsewhere.
fn copy(record: &ParsedRecord<'_, [u8]>, to: &mut impl RecordSectionBuilder<Vec<u8>>) -> Option<()> {
    let record = record.to_any_record::<AllRecordData<_, ParsedName<_>>>().ok()?;
    to.push(record).ok()
}

/// Our own form of a name in a message.
fn name_of<Octs: AsRef<[u8]>>(name: &ParsedName<Octs>) -> Option<DnsName>
where
    ParsedName<Octs>: domain::base::ToName,
{
    DnsName::from_wire(name.to_vec().as_slice()).ok()
}

/// The library's form of a name.
pub(crate) fn wire_name(name: &DnsName) -> Option<Name<Vec<u8>>> {
    Name::from_octets(name.as_wire().to_vec()).ok()
}

/// For the fuzzer: whatever the octets are, as a question and as a response to one.
#[doc(hidden)]
pub fn read_any(octets: &[u8]) {
    if let Received::Question { head, key, .. } = receive(octets) {
        let query = Query::new(&key, Some(Mark::default().and([7; 8])));
        assert!(
            matches!(receive(query.as_octets()), Received::Question { key: again, .. } if again.as_slice() == key.as_slice())
        );
        let no = head.say(OptRcode::SERVFAIL, Some(Remark { code: Extended::Other, text: "no" }));
        assert!(Message::from_slice(&no).is_ok_and(|message| message.header().qr()));
    }
    let Ok(message) = Message::from_slice(octets) else { return };
    let Ok(question) = message.sole_question() else { return };
    let Some(name) = name_of(question.qname()) else { return };
    let key = Key::new(&name, question.qtype(), RECURSION);
    let Ok(response) = Response::read(octets, &key) else { return };
    let query = Query::new(&key, None);
    let Received::Question { head, .. } = receive(query.as_octets()) else { return };
    for (age, limit) in [(Age::Seconds(7), usize::MAX), (Age::Stale, 512)] {
        let reply = response.to(&head, age, limit);
        assert!(query.is_answered_by(&reply));
        assert!(reply.len() <= limit.max(HEADER + MAX_NAME + 4));
        // What is told is in order itself.
        if !Query::is_truncated(&reply) {
            assert!(Response::read(&reply, &key).is_ok());
        }
    }
    let _ = Response::chain(&key, &[Arc::new(response)]);
}

#[cfg(test)]
mod tests;
