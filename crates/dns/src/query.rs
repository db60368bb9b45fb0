//! * One query: from the octets of a request to the octets of its response. Nothing here reads a socket or a clock.
//!
//! Nothing allocates either: records go from the index straight into the response. Everything that decides about an
//! answer is in this file, in the order in which it is decided.

use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;

use domain::base::iana::{Class, OptRcode, OptionCode, Rtype};
use model::DnsName;
use model::name::MAX_NAME;

use crate::cookie::Cookie;
use crate::index::{Index, Set, Sets, Types, Zone};
use crate::name::QueryName;
use crate::request::{Edns, Header, Request};
use crate::response::{self, Flags, Full, Owner, PAYLOAD_SIZE, QUESTION, Response, Section, Tail};
use crate::settings::Settings;
use crate::steer::{Asker, Chosen, Steered};
use crate::subnet::{self, Subnet};
use crate::tree::{Node, NodeId};

/// How many aliases one answer follows. Honest chains have one or two links; each link costs us a lookup and makes the
/// answer larger than the question. Behind the last one the client asks on by itself.
const MAX_CHAIN: usize = 8;

/// Whose addresses are added to an answer: more would not fit beside the answer itself.
const MAX_ADDITIONAL: usize = 16;

/// RFC 1035 4.2.1: what a client takes over UDP when it does not say more, and can always take.
const SMALL_UDP: u16 = 512;

/// RFC 8914 4.21.
const NOT_AUTHORITATIVE: u16 = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    Udp,
    Tcp,
}

impl Transport {
    /// What metrics and people call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        }
    }

    /// How large a response over it can get: room for one must be this large.
    pub(crate) const fn max_response(self) -> usize {
        match self {
            Self::Udp => PAYLOAD_SIZE as usize,
            // RFC 1035 4.2.2: the length before the message has two octets.
            Self::Tcp => u16::MAX as usize,
        }
    }
}

/// Who asks, and when.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    pub address: IpAddr,
    pub transport: Transport,
    /// Unix seconds, for cookies.
    pub now: u32,
}

/// What kind of answer it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Answer,
    /// To the servers of a delegated zone.
    Referral,
    /// The name is there, the type is not.
    NoData,
    NoName,
    /// Refused, malformed or failed.
    Error,
}

impl Kind {
    /// For people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answer => "answered",
            Self::Referral => "referred to the servers of a delegated zone",
            Self::NoData => "the name is there, the type is not",
            Self::NoName => "there is no such name",
            Self::Error => "refused or malformed",
        }
    }
}

/// What became of a query, for those who count, limit and watch.
#[derive(Debug, Clone)]
pub struct Outcome<'a> {
    pub rcode: OptRcode,
    pub kind: Kind,
    /// The answer did not fit; the client is to ask again over TCP.
    pub truncated: bool,
    /// The client showed that its address is its own.
    pub proven: bool,
    /// What was asked, where it could be read: how many octets the name has, which stands behind the header, and the
    /// type.
    pub(crate) question: Option<(usize, Rtype)>,
    pub(crate) zone: Option<&'a Arc<Zone>>,
}

impl Outcome<'_> {
    /// The apex of the zone of ours that the question lies in.
    pub fn apex(&self) -> Option<&DnsName> {
        self.zone.map(|zone| &zone.apex)
    }
}

/// Copied at once, where filling a vector octet by octet takes a build without optimisation half a millisecond.
static ROOM: [u8; Transport::Tcp.max_response()] = [0; Transport::Tcp.max_response()];

/// Writes the response to `request` into `response`, which is emptied first. `None` means silence: nothing is to be
/// sent.
pub fn answer<'a>(
    index: &'a Index,
    settings: &Settings,
    client: &Client,
    request: &[u8],
    response: &mut Vec<u8>,
) -> Option<Outcome<'a>> {
    response.clear();
    response.extend_from_slice(&ROOM[..client.transport.max_response()]);
    let answered = answer_into(index, settings, client, request, response);
    response.truncate(answered.as_ref().map_or(0, |(length, _)| *length));
    answered.map(|(_, outcome)| outcome)
}

/// The same, for who wants to know why: it is the same answer, and the choices that were made for it.
pub fn explain<'a>(
    index: &'a Index,
    settings: &Settings,
    client: &Client,
    request: &[u8],
    response: &mut Vec<u8>,
) -> Option<(Outcome<'a>, Vec<Chosen>)> {
    response.clear();
    response.extend_from_slice(&ROOM[..client.transport.max_response()]);
    let witness = RefCell::new(Vec::new());
    let answered = respond(index, settings, client, request, response, Some(&witness));
    response.truncate(answered.as_ref().map_or(0, |(length, _)| *length));
    answered.map(|(_, outcome)| (outcome, witness.take()))
}

/// The same, into a buffer that has room for the largest response; says how long it is.
pub(crate) fn answer_into<'a>(
    index: &'a Index,
    settings: &Settings,
    client: &Client,
    octets: &[u8],
    out: &mut [u8],
) -> Option<(usize, Outcome<'a>)> {
    respond(index, settings, client, octets, out, None)
}

fn respond<'a>(
    index: &'a Index,
    settings: &Settings,
    client: &Client,
    octets: &[u8],
    out: &mut [u8],
    witness: Option<&RefCell<Vec<Chosen>>>,
) -> Option<(usize, Outcome<'a>)> {
    let header = Header::read(octets)?;
    let unread = |rcode, out: &mut [u8]| {
        let outcome = Outcome { rcode, kind: Kind::Error, truncated: false, proven: false, question: None, zone: None };
        Some((response::write_header_only(out, header, rcode), outcome))
    };
    // NOTIFY and UPDATE will branch off here.
    if header.opcode() != 0 {
        return unread(OptRcode::NOTIMP, out);
    }
    let mut name = QueryName::root();
    let Ok(request) = Request::read(header, octets, &mut name) else {
        return unread(OptRcode::FORMERR, out);
    };
    let edns = request.edns.as_ref();
    let extras = Extras::of(edns, settings, client);
    let authority = authority_for(index, request.name, request.qtype);
    let limit = match (client.transport, edns) {
        (Transport::Udp, None) => SMALL_UDP.into(),
        (Transport::Udp, Some(edns)) => edns.payload_size.clamp(SMALL_UDP, PAYLOAD_SIZE).into(),
        (Transport::Tcp, _) => Transport::Tcp.max_response(),
    };
    let mut response = Response::to(&request, out, limit, extras.length(edns));
    let mut reply = Reply::authoritative();
    let mut truncated = false;
    let view = View { settings, client, subnet: extras.subnet, witness };
    if decide(index, &view, authority, &request, &mut response, &mut reply).is_err() {
        match client.transport {
            Transport::Udp => truncated = true,
            // There is no larger transport to ask for.
            Transport::Tcp => {
                response.clear(&request);
                reply = Reply::error(OptRcode::SERVFAIL);
            }
        }
    }
    let flags = Flags { authoritative: reply.authoritative, truncated };
    let length = response.finish(&request, reply.rcode, flags, |tail| extras.write(&reply, tail));
    let outcome = Outcome {
        rcode: reply.rcode,
        kind: reply.kind,
        truncated,
        proven: client.transport == Transport::Tcp || extras.cookie.is_some_and(|cookie| cookie.valid),
        question: Some((request.name.as_wire().len(), request.qtype)),
        zone: authority.map(|authority| authority.zone),
    };
    Some((length, outcome))
}

/// Writes what who is limited gets instead of an answer: no records, and the word that there is another way. `octets`
/// were answered before.
pub(crate) fn put_off(settings: &Settings, client: &Client, octets: &[u8], out: &mut [u8]) -> usize {
    let Some(header) = Header::read(octets) else { return 0 };
    let mut name = QueryName::root();
    let Ok(request) = Request::read(header, octets, &mut name) else {
        return response::write_header_only(out, header, OptRcode::FORMERR);
    };
    let extras = Extras::of(request.edns.as_ref(), settings, client);
    // RFC 7873 5.2.3: who has a cookie may come again with the right one; anybody may come over TCP.
    let (rcode, truncated) =
        if extras.cookie.is_some() { (OptRcode::BADCOOKIE, false) } else { (OptRcode::NOERROR, true) };
    let reply = Reply::error(rcode);
    let response = Response::to(&request, out, SMALL_UDP.into(), extras.length(request.edns.as_ref()));
    let flags = Flags { authoritative: false, truncated };
    response.finish(&request, rcode, flags, |tail| extras.write(&reply, tail))
}

/// The head of a response; its records are in the [`Response`].
struct Reply {
    rcode: OptRcode,
    authoritative: bool,
    kind: Kind,
    /// RFC 8914: more about an error.
    extended: Option<u16>,
    /// RFC 7871: for how many bits of the client's address the answer is; 0 where it is for everybody.
    scope: u8,
}

impl Reply {
    fn authoritative() -> Self {
        Self { rcode: OptRcode::NOERROR, authoritative: true, kind: Kind::Answer, extended: None, scope: 0 }
    }

    fn error(rcode: OptRcode) -> Self {
        Self { rcode, authoritative: false, kind: Kind::Error, extended: None, scope: 0 }
    }
}

/// What an answer may depend on beside the question.
struct View<'v> {
    settings: &'v Settings,
    client: &'v Client,
    subnet: Option<Subnet<'v>>,
    /// Where choices are told to who asked for the reasons; nobody else's query allocates for it.
    witness: Option<&'v RefCell<Vec<Chosen>>>,
}

impl View<'_> {
    /// Who a choice is made for: RFC 7871 7.2.1.
    fn asker(&self) -> Asker {
        match &self.subnet {
            None => Asker::Resolver(self.client.address),
            Some(subnet) => subnet.address().map_or(Asker::Private, Asker::Network),
        }
    }
}

fn decide<'a>(
    index: &'a Index,
    view: &View<'_>,
    authority: Option<Authority<'a>>,
    request: &Request<'_>,
    response: &mut Response<'_>,
    reply: &mut Reply,
) -> Result<(), Full> {
    let no = |rcode| Reply::error(rcode);
    if request.edns.is_some_and(|edns| edns.version > 0) {
        *reply = no(OptRcode::BADVERS);
        return Ok(());
    }
    match (request.qclass, request.qtype) {
        (Class::IN, _) => {}
        (Class::CH, Rtype::TXT | Rtype::ANY) => {
            let Some(text) = view.settings.chaos_text(request.name.as_wire()) else {
                *reply = no(OptRcode::REFUSED);
                return Ok(());
            };
            return response.push_text(Class::CH.to_int(), text);
        }
        _ => {
            *reply = no(OptRcode::REFUSED);
            return Ok(());
        }
    }
    match request.qtype {
        // Whole zones are for those who were given the right to them; nobody is yet.
        Rtype::AXFR | Rtype::IXFR => *reply = no(OptRcode::REFUSED),
        // RFC 6895 3.1: these are in messages and never in zones, or were given up.
        Rtype::OPT | Rtype::TSIG | Rtype::TKEY => *reply = no(OptRcode::FORMERR),
        Rtype::MAILA | Rtype::MAILB => *reply = no(OptRcode::NOTIMP),
        qtype => {
            let Some(authority) = authority else {
                *reply = Reply { extended: Some(NOT_AUTHORITATIVE), ..no(OptRcode::REFUSED) };
                return Ok(());
            };
            let step = Step { view, authority, name: request.name, at: QUESTION, qtype, before: &[] };
            if let Some(alias) = step.answer(response, reply)? {
                chase(index, &step, alias, response, reply)?;
            }
        }
    }
    Ok(())
}

/// The zone that answers for a name.
#[derive(Clone, Copy)]
struct Authority<'a> {
    zone: &'a Arc<Zone>,
    /// How many labels of the name lie below the zone's apex.
    below: usize,
    /// The name is the apex of another zone of ours, so that it exists whatever this one says.
    is_apex_below: bool,
}

/// RFC 4035 3.1.4.1: the DS of a delegated zone belongs to the zone above, where we serve that, too.
fn authority_for<'a>(index: &'a Index, name: &QueryName, qtype: Rtype) -> Option<Authority<'a>> {
    let (zone, below) = index.zone_of(name)?;
    if qtype == Rtype::DS
        && below == 0
        && name.label_count() > 0
        && let Some((zone, below)) = index.zone_above(name, 1)
    {
        return Some(Authority { zone, below, is_apex_below: true });
    }
    Some(Authority { zone, below, is_apex_below: false })
}

/// One name being looked up in one zone; an answer has several when aliases lead on.
struct Step<'a, 'n> {
    view: &'n View<'n>,
    authority: Authority<'a>,
    name: &'n QueryName,
    /// Where the name stands in the response.
    at: u16,
    qtype: Rtype,
    /// What led here.
    before: &'n [Option<Alias<'a>>],
}

/// What leads on to another name.
struct Alias<'a> {
    target: QueryName,
    /// Where the target stands in the response.
    at: u16,
    /// Who has the DNAME that made it.
    dname: Option<&'a Node<Sets>>,
}

enum Found<'a> {
    /// The name exists, perhaps without records, or a wildcard stands in for it.
    Name(&'a Node<Sets>),
    /// The name exists elsewhere.
    Apex,
    /// The name lies at or below another that the zone delegates to others; so many labels below.
    Cut(&'a Node<Sets>, usize),
    /// The name lies below another that has a DNAME; so many labels below.
    Dname(&'a Node<Sets>, usize),
    Nothing,
}

impl<'a> Step<'a, '_> {
    fn zone(&self) -> &'a Zone {
        self.authority.zone
    }

    /// The code is that of the last name (RFC 6604 3), the authority that of the first (RFC 1035 4.1.1).
    fn answer(&self, response: &mut Response<'_>, reply: &mut Reply) -> Result<Option<Alias<'a>>, Full> {
        match self.locate() {
            Found::Name(node) => self.answer_from(node, response, reply),
            Found::Apex => {
                reply.kind = Kind::NoData;
                self.deny(response).map(|()| None)
            }
            Found::Cut(node, above) => self.refer(node, above, response, reply).map(|()| None),
            Found::Dname(node, above) => self.redirect(node, above, response, reply),
            Found::Nothing => {
                reply.rcode = OptRcode::NXDOMAIN;
                reply.kind = Kind::NoName;
                self.deny(response).map(|()| None)
            }
        }
    }

    /// RFC 1034 4.3.2 step 3, with wildcards as RFC 4592 has them: only below the closest encloser, which is the last
    /// place on the way to the name that exists. Any existing place counts, be it without records; so it hides the
    /// wildcards above it, and a `*` on the way is a name like others.
    fn locate(&self) -> Found<'a> {
        let names = &self.zone().names;
        let (mut id, mut left) = (NodeId::ROOT, self.authority.below);
        let mut node = names.node(id);
        loop {
            let types = node.value.types();
            if types.has_any(Types::CUT_OR_DNAME) {
                // What is asked of the parent's side of a cut is answered there: RFC 4035 3.1.4.1.
                let parent_side = left == 0 && self.qtype == Rtype::DS;
                if types.has_any(Types::NS) && left < self.authority.below && !parent_side {
                    return Found::Cut(node, left);
                }
                if types.has_any(Types::DNAME) && left > 0 {
                    return Found::Dname(node, left);
                }
            }
            if left == 0 {
                return Found::Name(node);
            }
            match names.child(id, node, self.name.label(left - 1)) {
                Some(child) => (id, node) = child,
                None if self.authority.is_apex_below => return Found::Apex,
                None => return node.star().map_or(Found::Nothing, |star| Found::Name(names.node(star))),
            }
            left -= 1;
        }
    }

    fn answer_from(
        &self,
        node: &'a Node<Sets>,
        response: &mut Response<'_>,
        reply: &mut Reply,
    ) -> Result<Option<Alias<'a>>, Full> {
        let owner = Owner::At(self.at);
        if self.authority.below == 0 && matches!(self.qtype, Rtype::SOA | Rtype::ANY) {
            return response.push_soa(Section::Answer, owner, self.zone(), self.zone().soa.ttl).map(|()| None);
        }
        let matching = match self.qtype {
            // RFC 8482 4.1: one set is enough for a probe, and too little for a reflector.
            Rtype::ANY => self.zone().sets(node).next(),
            qtype => self.zone().set(node, qtype.to_int()),
        };
        if let Some(set) = matching {
            if let Some(steered) = node.value.steered() {
                return self.steer(steered, set.rtype, response, reply).map(|()| None);
            }
            response.push(Section::Answer, owner, &set)?;
            self.add_addresses(&set, response);
            return Ok(None);
        }
        if node.value.types().has_any(Types::CNAME)
            && let Some(set) = self.zone().set(node, Rtype::CNAME.to_int())
            && let Some(target) = set.records().next()
        {
            let at = response.push_alias(owner, set.ttl, target)?;
            return Ok(QueryName::read(target).map(|target| Alias { target, at, dname: None }));
        }
        reply.kind = Kind::NoData;
        self.deny(response).map(|()| None)
    }

    /// The addresses that are chosen for who asks; "no" where no member that is in order has one of the type.
    #[cold]
    fn steer(&self, steered: &Steered, rtype: u16, response: &mut Response<'_>, reply: &mut Reply) -> Result<(), Full> {
        let choice = steered.choose(&self.view.settings.guides, self.view.asker(), Rtype::from_int(rtype));
        let (owner, kind) = (Owner::At(self.at), (rtype, steered.ttl()));
        if let Some(witness) = self.view.witness {
            witness.borrow_mut().push(choice.told());
        }
        if response.push_chosen(Section::Answer, owner, kind, choice.addresses())? > 0 {
            reply.scope = choice.scope;
            return Ok(());
        }
        reply.kind = Kind::NoData;
        // It is the same for everybody, and as soon over as an answer.
        self.deny_for(steered.ttl(), response)
    }

    fn deny(&self, response: &mut Response<'_>) -> Result<(), Full> {
        self.deny_for(u32::MAX, response)
    }

    /// RFC 2308 2: a "no" carries the zone's SOA.
    fn deny_for(&self, most: u32, response: &mut Response<'_>) -> Result<(), Full> {
        let ttl = self.zone().soa.negative_ttl.min(most);
        response.push_soa(Section::Authority, self.owner(self.authority.below), self.zone(), ttl)
    }

    /// The name without its `above` leftmost labels, as short as it can be written.
    fn owner(&self, above: usize) -> Owner<'_> {
        match above {
            0 => Owner::At(self.at),
            // The question's name is not compressed. Its first 255 octets can be pointed to.
            #[allow(clippy::cast_possible_truncation)]
            above if self.at == QUESTION => Owner::At(QUESTION + self.name.start(above) as u16),
            above => Owner::Name(self.name.without(above)),
        }
    }

    /// Points to the servers of a delegated zone, with every address of them that we know. RFC 9471 3: those below the
    /// cut must be there, since nobody else can tell them.
    fn refer(
        &self,
        node: &Node<Sets>,
        above: usize,
        response: &mut Response<'_>,
        reply: &mut Reply,
    ) -> Result<(), Full> {
        // What is below the cut is not ours to vouch for, unless an alias of ours led here.
        reply.authoritative = response.has_answers();
        reply.kind = Kind::Referral;
        let Some(servers) = self.zone().set(node, Rtype::NS.to_int()) else { return Ok(()) };
        response.push(Section::Authority, self.owner(above), &servers)?;
        let cut = self.name.without(above);
        for below_cut in [true, false] {
            for server in servers.records().filter(|server| is_at_or_under(server, cut) == below_cut) {
                let pushed = self.push_addresses(server, response);
                if below_cut {
                    pushed?;
                }
            }
        }
        Ok(())
    }

    /// RFC 6672 3.2: the DNAME itself, and the alias that follows from it.
    fn redirect(
        &self,
        node: &'a Node<Sets>,
        above: usize,
        response: &mut Response<'_>,
        reply: &mut Reply,
    ) -> Result<Option<Alias<'a>>, Full> {
        let Some(set) = self.zone().set(node, Rtype::DNAME.to_int()) else { return Ok(None) };
        let Some(target) = set.records().next() else { return Ok(None) };
        let is_told = |alias: &Alias<'_>| alias.dname.is_some_and(|dname| std::ptr::eq(dname, node));
        if !self.before.iter().flatten().any(is_told) {
            response.push(Section::Answer, self.owner(above), &set)?;
        }
        let Some(redirected) = self.name.redirected(above, target) else {
            reply.rcode = OptRcode::YXDOMAIN;
            reply.kind = Kind::Error;
            return Ok(None);
        };
        let at = response.push_alias(Owner::At(self.at), set.ttl, redirected.as_wire())?;
        // The alias itself was asked for; or it would lead here again, longer each time.
        if matches!(self.qtype, Rtype::CNAME | Rtype::ANY) || is_at_or_under(target, self.name.without(above)) {
            return Ok(None);
        }
        Ok(Some(Alias { target: redirected, at, dname: Some(node) }))
    }

    /// RFC 1034 4.3.2 step 6: the addresses that the client will ask for next, as far as there is room.
    fn add_addresses(&self, set: &Set<'_>, response: &mut Response<'_>) {
        let front = match Rtype::from_int(set.rtype) {
            Rtype::NS => 0,
            Rtype::MX => 2,
            Rtype::SRV => 6,
            _ => return,
        };
        for (number, record) in set.records().take(MAX_ADDITIONAL).enumerate() {
            let Some(name) = record.get(front..) else { continue };
            let before = set.records().take(number);
            // Several records of one machine need its addresses once.
            if before.into_iter().all(|other| other.get(front..).is_none_or(|other| !name.eq_ignore_ascii_case(other)))
                && self.push_addresses(name, response).is_err()
            {
                return;
            }
        }
    }

    fn push_addresses(&self, name: &[u8], response: &mut Response<'_>) -> Result<(), Full> {
        let Some(name) = QueryName::read(name) else { return Ok(()) };
        let Some(node) = self.zone().place(&name) else { return Ok(()) };
        // Those are chosen when somebody asks for them.
        if node.value.steered().is_some() {
            return Ok(());
        }
        for rtype in [Rtype::A, Rtype::AAAA] {
            if let Some(set) = self.zone().set(node, rtype.to_int()) {
                response.push(Section::Additional, Owner::Name(name.as_wire()), &set)?;
            }
        }
        Ok(())
    }
}

/// Follows aliases as long as they stay in the zone that was asked, but to no name twice. Resolvers do not believe what a
/// server says beside that zone (RFC 5452 6), and ask again; it would only be a larger answer.
#[cold]
fn chase<'a>(
    index: &'a Index,
    asked: &Step<'a, '_>,
    first: Alias<'a>,
    response: &mut Response<'_>,
    reply: &mut Reply,
) -> Result<(), Full> {
    let (view, zone, qtype) = (asked.view, asked.authority.zone, asked.qtype);
    let mut chain: [Option<Alias<'a>>; MAX_CHAIN] = [const { None }; MAX_CHAIN];
    let mut next = Some(first);
    for links in 1..MAX_CHAIN {
        let Some(alias) = next else { return Ok(()) };
        let before = chain[..links - 1].iter().flatten().map(|alias| &alias.target).chain([asked.name]);
        if before.into_iter().any(|name| name.as_wire() == alias.target.as_wire()) {
            return Ok(());
        }
        let authority = authority_for(index, &alias.target, qtype);
        let Some(authority) = authority.filter(|authority| Arc::ptr_eq(authority.zone, zone)) else { return Ok(()) };
        let at = alias.at;
        let (before, rest) = chain.split_at_mut(links - 1);
        let name = &rest[0].insert(alias).target;
        // What made the last link does not apply again: its target would lie below it.
        next = Step { view, authority, name, at, qtype, before: &*before }.answer(response, reply)?;
    }
    Ok(())
}

/// Two names in wire form; the first may be in any case.
fn is_at_or_under(name: &[u8], ancestor: &[u8]) -> bool {
    let mut rest = name;
    while rest.len() > ancestor.len() {
        let length = rest.first().map_or(0, |length| usize::from(*length));
        rest = rest.get(1 + length..).unwrap_or_default();
    }
    rest.eq_ignore_ascii_case(ancestor)
}

/// What stands in the OPT beside the code.
struct Extras<'a> {
    cookie: Option<Cookie>,
    nsid: Option<&'a [u8]>,
    subnet: Option<Subnet<'a>>,
}

/// Code and length of an option.
const OPTION: usize = 4;
/// An OPT without options.
const OPT: usize = 11;

impl<'a> Extras<'a> {
    fn of(edns: Option<&Edns<'a>>, settings: &'a Settings, client: &Client) -> Self {
        let sent = edns.and_then(|edns| edns.cookie);
        let cookie = sent.and_then(|sent| settings.cookies.as_ref()?.check(sent, client.address, client.now));
        let nsid = edns.filter(|edns| edns.wants_nsid).and_then(|_| settings.nsid());
        Self { cookie, nsid, subnet: edns.and_then(|edns| edns.subnet) }
    }

    /// How much room must be kept; an extended error only comes without records.
    fn length(&self, edns: Option<&Edns<'_>>) -> usize {
        let cookie = self.cookie.map_or(0, |cookie| OPTION + cookie.octets.len());
        let nsid = self.nsid.map_or(0, |nsid| OPTION + nsid.len());
        let subnet = self.subnet.map_or(0, |subnet| OPTION + subnet.length());
        edns.map_or(0, |_| OPT + cookie + nsid + subnet)
    }

    fn write(&self, reply: &Reply, tail: &mut Tail<'_>) {
        if let Some(cookie) = &self.cookie {
            tail.option(OptionCode::COOKIE.to_int(), &[&cookie.octets]);
        }
        if let Some(nsid) = self.nsid {
            tail.option(OptionCode::NSID.to_int(), &[nsid]);
        }
        if let Some(subnet) = &self.subnet {
            subnet.write(reply.scope, tail);
        }
        if let Some(code) = reply.extended {
            tail.option(OptionCode::EXTENDED_ERROR.to_int(), &[&code.to_be_bytes()]);
        }
    }
}

/// The largest question, a cookie, an identifier, a subnet and an extended error fit into the smallest response.
const _: () = assert!(
    12 + MAX_NAME + 4 + OPT + OPTION + 24 + OPTION + 128 + OPTION + subnet::MAX_LENGTH + OPTION + 2
        <= SMALL_UDP as usize
);

#[cfg(test)]
mod tests;
