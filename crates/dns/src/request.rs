//! What a request asks, read from its octets without a copy but that of the name.

use domain::base::iana::{Class, OptionCode, Rtype};

use crate::name::QueryName;
use crate::subnet::Subnet;

/// RFC 1035 4.1.1.
pub(crate) const HEADER: usize = 12;

/// The fixed part of a message that deserves an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub(crate) id: [u8; 2],
    flags: u8,
    /// Of questions, answers, authorities and additional records.
    counts: [u16; 4],
}

/// A well-formed query with one question.
pub(crate) struct Request<'a> {
    pub(crate) header: Header,
    /// As asked: its letters go back in the case they came in, which resolvers check against forgeries.
    pub(crate) question: &'a [u8],
    /// The same name as a key.
    pub(crate) name: &'a QueryName,
    pub(crate) qtype: Rtype,
    pub(crate) qclass: Class,
    pub(crate) edns: Option<Edns<'a>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Edns<'a> {
    pub(crate) version: u8,
    /// The largest UDP message that the client can take, as it says.
    pub(crate) payload_size: u16,
    pub(crate) dnssec_ok: bool,
    /// RFC 7873 4: the client's part, and the server's where it has one from us.
    pub(crate) cookie: Option<&'a [u8]>,
    /// RFC 5001 2.1.
    pub(crate) wants_nsid: bool,
    /// RFC 7871.
    pub(crate) subnet: Option<Subnet<'a>>,
}

/// The octets are no query with one question. What exactly is wrong helps nobody: the client only learns FORMERR.
#[derive(Debug)]
pub(crate) struct Malformed;

impl Header {
    /// None where there is no id to answer to, or where the message is an answer itself: answering it would make two
    /// servers talk to each other for ever.
    pub(crate) fn read(octets: &[u8]) -> Option<Self> {
        let [i0, i1, flags, _, q0, q1, a0, a1, n0, n1, r0, r1] = *octets.first_chunk::<HEADER>()?;
        let counts = [[q0, q1], [a0, a1], [n0, n1], [r0, r1]].map(u16::from_be_bytes);
        (flags & 0x80 == 0).then_some(Self { id: [i0, i1], flags, counts })
    }

    pub(crate) fn opcode(self) -> u8 {
        self.flags >> 3 & 0x0f
    }

    /// Opcode and RD as they go back.
    pub(crate) fn echoed(self) -> u8 {
        self.flags & 0b0111_1001
    }
}

impl<'a> Request<'a> {
    /// `name` is where the name goes.
    pub(crate) fn read(header: Header, octets: &'a [u8], name: &'a mut QueryName) -> Result<Self, Malformed> {
        let [questions, answers, authorities, additionals] = header.counts;
        // RFC 9619 4: exactly one.
        if questions != 1 {
            return Err(Malformed);
        }
        let body = octets.get(HEADER..).ok_or(Malformed)?;
        if !name.read_again(body) {
            return Err(Malformed);
        }
        let end = name.as_wire().len() + 4;
        let (question, mut rest) = body.split_at_checked(end).ok_or(Malformed)?;
        let [.., t0, t1, c0, c1] = *question else { return Err(Malformed) };
        for _ in 0..u32::from(answers) + u32::from(authorities) {
            Record::split_from(&mut rest)?;
        }
        let mut edns = None;
        for _ in 0..additionals {
            let record = Record::split_from(&mut rest)?;
            // RFC 6891 6.1.1: a second one is an error.
            if record.rtype == Rtype::OPT && edns.replace(Edns::read(&record)?).is_some() {
                return Err(Malformed);
            }
        }
        Ok(Self {
            header,
            question,
            name,
            qtype: Rtype::from_int(u16::from_be_bytes([t0, t1])),
            qclass: Class::from_int(u16::from_be_bytes([c0, c1])),
            edns,
        })
    }
}

impl<'a> Edns<'a> {
    fn read(record: &Record<'a>) -> Result<Self, Malformed> {
        // RFC 6891 6.1.2: its owner is the root.
        if !record.owner_is_root {
            return Err(Malformed);
        }
        let [_, version, flags, _] = record.ttl;
        let mut edns = Self {
            version,
            payload_size: record.class,
            dnssec_ok: flags & 0x80 != 0,
            cookie: None,
            wants_nsid: false,
            subnet: None,
        };
        let mut options = record.data;
        while !options.is_empty() {
            let ([c0, c1, l0, l1], rest) = options.split_first_chunk().ok_or(Malformed)?;
            let length = u16::from_be_bytes([*l0, *l1]).into();
            let (value, rest) = rest.split_at_checked(length).ok_or(Malformed)?;
            options = rest;
            match OptionCode::from_int(u16::from_be_bytes([*c0, *c1])) {
                // RFC 7873 5.2.2: 8 octets of the client's, then none or 8 to 32 of the server's. Of several the first
                // counts.
                OptionCode::COOKIE if !matches!(length, 8 | 16..=40) => return Err(Malformed),
                OptionCode::COOKIE => _ = edns.cookie.get_or_insert(value),
                OptionCode::NSID => edns.wants_nsid = true,
                // Two of them would say two things about one client.
                OptionCode::CLIENT_SUBNET if edns.subnet.is_some() => return Err(Malformed),
                OptionCode::CLIENT_SUBNET => edns.subnet = Some(Subnet::read(value).ok_or(Malformed)?),
                // RFC 6891 6.1.2: what we do not know we ignore.
                _ => {}
            }
        }
        Ok(edns)
    }
}

/// A record of the request; only an OPT is looked into.
struct Record<'a> {
    owner_is_root: bool,
    rtype: Rtype,
    class: u16,
    ttl: [u8; 4],
    data: &'a [u8],
}

impl<'a> Record<'a> {
    fn split_from(rest: &mut &'a [u8]) -> Result<Self, Malformed> {
        let owner_is_root = rest.first() == Some(&0);
        let behind = skip_name(rest).ok_or(Malformed)?;
        let ([t0, t1, c0, c1, ttl @ .., l0, l1], behind) = behind.split_first_chunk::<10>().ok_or(Malformed)?;
        let length = u16::from_be_bytes([*l0, *l1]).into();
        let (data, behind) = behind.split_at_checked(length).ok_or(Malformed)?;
        *rest = behind;
        Ok(Self {
            owner_is_root,
            rtype: Rtype::from_int(u16::from_be_bytes([*t0, *t1])),
            class: u16::from_be_bytes([*c0, *c1]),
            ttl: *ttl,
            data,
        })
    }
}

/// What is behind a name, which may end in a pointer. Where that leads does not matter to us.
fn skip_name(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        let (&length, behind) = rest.split_first()?;
        match length {
            0 => return Some(behind),
            1..=63 => rest = behind.get(usize::from(length)..)?,
            0xc0.. => return behind.get(1..),
            _ => return None,
        }
    }
}
