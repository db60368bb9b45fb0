//! The octets of a response, written in order into a buffer of the caller's.
//!
//! The starred file decides what goes in; here is how. Nothing allocates: names are compressed against the question and
//! against a few places that were written before.

use domain::base::iana::{OptRcode, Rtype};
use model::name::MAX_NAME;

use crate::index::{Set, SoaRecord, Zone};
use crate::request::{HEADER, Request};

/// What we say we can take, and the most that we send over UDP: the size that crosses the Internet without fragments
/// (an IPv6 MTU of 1280 octets less 48 of headers; the figure of DNS flag day 2020).
pub(crate) const PAYLOAD_SIZE: u16 = 1232;

/// The record does not fit; nothing of it was written.
#[derive(Debug)]
pub(crate) struct Full;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Answer,
    Authority,
    Additional,
}

/// A name that is to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Owner<'a> {
    /// It stands in the message already, at this octet.
    At(u16),
    /// In wire form.
    Name(&'a [u8]),
}

pub(crate) struct Response<'b> {
    octets: &'b mut [u8],
    at: usize,
    /// Records end before this octet; an OPT has room behind it.
    limit: usize,
    /// Of answers, authorities and additional records.
    counts: [u16; 3],
    places: Places,
}

/// Where names begin that later ones can point to.
struct Places {
    at: [u16; MAX_PLACES],
    count: usize,
}

/// The question, an alias or two, and the servers of a delegation with their parents; more would make large answers
/// slow and only a little smaller.
const MAX_PLACES: usize = 16;
/// RFC 1035 4.1.4: a pointer has 14 bits.
const MAX_POINTER: usize = 0x3fff;
/// The question's name follows the header.
pub(crate) const QUESTION: u16 = 12;

impl<'b> Response<'b> {
    /// Begins with the question. `octets` must have room for the header, the question and `reserved`, which is kept for
    /// [`Response::finish`].
    pub(crate) fn to(request: &Request<'_>, octets: &'b mut [u8], limit: usize, reserved: usize) -> Self {
        let end = HEADER + request.question.len();
        octets[HEADER..end].copy_from_slice(request.question);
        let limit = limit.min(octets.len()).saturating_sub(reserved);
        let places = Places { at: [QUESTION; MAX_PLACES], count: 1 };
        Self { octets, at: end, limit, counts: [0; 3], places }
    }

    /// Takes all records back.
    pub(crate) fn clear(&mut self, request: &Request<'_>) {
        self.at = HEADER + request.question.len();
        self.counts = [0; 3];
        self.places.count = 1;
    }

    pub(crate) fn has_answers(&self) -> bool {
        self.counts[0] > 0
    }

    /// All of a set or nothing (RFC 2181 9: a part of a set would be worse than none).
    pub(crate) fn push(&mut self, section: Section, owner: Owner<'_>, set: &Set<'_>) -> Result<(), Full> {
        self.whole(section, set.count, |response| response.push_records(owner, set.rtype, set.ttl, set.records()))
    }

    /// The same of chosen records; says how many they were.
    pub(crate) fn push_chosen<'d>(
        &mut self,
        section: Section,
        owner: Owner<'_>,
        (rtype, ttl): (u16, u32),
        records: impl Iterator<Item = &'d [u8]>,
    ) -> Result<u16, Full> {
        let mut count = 0;
        let records = records.inspect(|_| count += 1);
        self.whole(section, 0, |response| response.push_records(owner, rtype, ttl, records))?;
        self.counts[section as usize] += count;
        Ok(count)
    }

    fn whole<T>(
        &mut self,
        section: Section,
        records: u16,
        write: impl FnOnce(&mut Self) -> Result<T, Full>,
    ) -> Result<T, Full> {
        let (before, places) = (self.at, self.places.count);
        let written = write(self);
        if written.is_ok() {
            self.counts[section as usize] += records;
        } else {
            self.at = before;
            self.places.count = places;
        }
        written
    }

    fn push_records<'d>(
        &mut self,
        owner: Owner<'_>,
        rtype: u16,
        ttl: u32,
        records: impl Iterator<Item = &'d [u8]>,
    ) -> Result<(), Full> {
        let mut owner = owner;
        for data in records {
            let at = self.push_head(owner, rtype, ttl)?;
            // The others point to the first.
            if let (Owner::Name(_), Ok(place)) = (owner, u16::try_from(at))
                && at <= MAX_POINTER
            {
                owner = Owner::At(place);
            }
            self.push_data(Rtype::from_int(rtype), data)?;
        }
        Ok(())
    }

    pub(crate) fn push_soa(&mut self, section: Section, owner: Owner<'_>, zone: &Zone, ttl: u32) -> Result<(), Full> {
        self.whole(section, 1, |response| response.push_soa_record(owner, &zone.soa, ttl))
    }

    fn push_soa_record(&mut self, owner: Owner<'_>, soa: &SoaRecord, ttl: u32) -> Result<(), Full> {
        let apex = self.push_head(owner, Rtype::SOA.to_int(), ttl)?;
        let apex = match owner {
            Owner::At(place) => place,
            Owner::Name(_) => u16::try_from(apex).unwrap_or(u16::MAX),
        };
        let length = self.skip(2)?;
        for name in [&soa.primary, &soa.mailbox] {
            match name.before_apex {
                Some(front) if usize::from(apex) <= MAX_POINTER => {
                    self.put(&name.name.as_wire()[..front])?;
                    self.put(&(0xc000 | apex).to_be_bytes())?;
                }
                _ => self.push_name(name.name.as_wire())?,
            }
        }
        self.put(&soa.numbers)?;
        self.end_data(length);
        Ok(())
    }

    /// An alias record. Says where its target stands.
    pub(crate) fn push_alias(&mut self, owner: Owner<'_>, ttl: u32, target: &[u8]) -> Result<u16, Full> {
        self.whole(Section::Answer, 1, |response| {
            response.push_head(owner, Rtype::CNAME.to_int(), ttl)?;
            let length = response.skip(2)?;
            response.push_name(target)?;
            response.end_data(length);
            // A handful of aliases stays far below.
            u16::try_from(length + 2).map_err(|_| Full)
        })
    }

    /// One TXT record that holds one text of at most 255 octets.
    pub(crate) fn push_text(&mut self, class: u16, text: &[u8]) -> Result<(), Full> {
        let text = &text[..text.len().min(255)];
        self.put(&(0xc000 | QUESTION).to_be_bytes())?;
        self.put(&Rtype::TXT.to_int().to_be_bytes())?;
        self.put(&class.to_be_bytes())?;
        self.put(&[0; 4])?;
        let length = self.skip(2)?;
        self.put(&[u8::try_from(text.len()).unwrap_or_default()])?;
        self.put(text)?;
        self.end_data(length);
        self.counts[Section::Answer as usize] += 1;
        Ok(())
    }

    /// Writes the header and, behind everything else, what `tail` writes. Says how long the message is.
    pub(crate) fn finish(
        mut self,
        request: &Request<'_>,
        rcode: OptRcode,
        flags: Flags,
        tail: impl FnOnce(&mut Tail<'_>),
    ) -> usize {
        let mut additional = self.counts[2];
        if let Some(edns) = &request.edns {
            let mut opt = Tail { octets: self.octets, at: self.at };
            // RFC 6891 6.1.2 and 6.1.3.
            opt.put(&[0, 0, 41]);
            opt.put(&PAYLOAD_SIZE.to_be_bytes());
            // RFC 3225 3: the bit comes back as it was sent.
            opt.put(&[rcode.ext(), 0, if edns.dnssec_ok { 0x80 } else { 0 }, 0]);
            let length = opt.at;
            opt.put(&[0; 2]);
            tail(&mut opt);
            self.at = opt.at;
            self.end_data(length);
            additional += 1;
        }
        write_header(self.octets, request.header, rcode, flags);
        let counts = [1, self.counts[0], self.counts[1], additional];
        for (place, count) in self.octets[4..HEADER].chunks_exact_mut(2).zip(counts) {
            place.copy_from_slice(&count.to_be_bytes());
        }
        self.at
    }

    /// Owner, type, class and TTL. Says where the owner begins.
    fn push_head(&mut self, owner: Owner<'_>, rtype: u16, ttl: u32) -> Result<usize, Full> {
        let start = self.at;
        match owner {
            Owner::At(place) => self.put(&(0xc000 | place).to_be_bytes())?,
            Owner::Name(name) => self.push_name(name)?,
        }
        let [t0, t1] = rtype.to_be_bytes();
        let [l0, l1, l2, l3] = ttl.to_be_bytes();
        self.put(&[t0, t1, 0, 1, l0, l1, l2, l3])?;
        Ok(start)
    }

    /// RFC 3597 4: only the types of RFC 1035 may have compressed names in their data.
    fn push_data(&mut self, rtype: Rtype, data: &[u8]) -> Result<(), Full> {
        let front = match rtype {
            Rtype::NS | Rtype::CNAME | Rtype::PTR => 0,
            Rtype::MX => 2,
            _ => data.len(),
        };
        if front >= data.len() {
            let length = u16::try_from(data.len()).map_err(|_| Full)?;
            self.put(&length.to_be_bytes())?;
            return self.put(data);
        }
        let length = self.skip(2)?;
        self.put(&data[..front])?;
        self.push_name(&data[front..])?;
        self.end_data(length);
        Ok(())
    }

    /// Writes a name as short as it goes, and remembers it.
    fn push_name(&mut self, name: &[u8]) -> Result<(), Full> {
        let (front, place) = self.places.longest(&self.octets[..self.at], name);
        let start = self.at;
        self.put(name.get(..front).unwrap_or_default())?;
        match place {
            Some(place) => self.put(&(0xc000 | place).to_be_bytes())?,
            None => self.put(&[0])?,
        }
        if front > 0 {
            self.places.remember(start);
        }
        Ok(())
    }

    fn put(&mut self, octets: &[u8]) -> Result<(), Full> {
        let end = self.at + octets.len();
        if end > self.limit {
            return Err(Full);
        }
        self.octets[self.at..end].copy_from_slice(octets);
        self.at = end;
        Ok(())
    }

    fn skip(&mut self, octets: usize) -> Result<usize, Full> {
        let at = self.at;
        if at + octets > self.limit {
            return Err(Full);
        }
        self.at += octets;
        Ok(at)
    }

    /// Writes the length of what was written behind the two octets at `length`.
    fn end_data(&mut self, length: usize) {
        // The whole message has at most 65,535 octets.
        #[allow(clippy::cast_possible_truncation)]
        let written = (self.at - length - 2) as u16;
        self.octets[length..length + 2].copy_from_slice(&written.to_be_bytes());
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Flags {
    pub(crate) authoritative: bool,
    pub(crate) truncated: bool,
}

/// Writes only a header: for what could not be read, or is of a kind that we do not know.
pub(crate) fn write_header_only(octets: &mut [u8], header: crate::request::Header, rcode: OptRcode) -> usize {
    octets[..HEADER].fill(0);
    write_header(octets, header, rcode, Flags::default());
    HEADER
}

/// RA, AD and CD stay clear: we neither recurse nor validate (RFC 4035 3.1.6).
fn write_header(octets: &mut [u8], header: crate::request::Header, rcode: OptRcode, flags: Flags) {
    let set = u8::from(flags.authoritative) << 2 | u8::from(flags.truncated) << 1;
    octets[..2].copy_from_slice(&header.id);
    octets[2] = 0x80 | header.echoed() | set;
    octets[3] = rcode.rcode().to_int();
}

/// The options behind an OPT, for which there is room.
pub(crate) struct Tail<'a> {
    octets: &'a mut [u8],
    at: usize,
}

impl Tail<'_> {
    pub(crate) fn option(&mut self, code: u16, value: &[&[u8]]) {
        let length: usize = value.iter().map(|part| part.len()).sum();
        self.put(&code.to_be_bytes());
        self.put(&u16::try_from(length).unwrap_or_default().to_be_bytes());
        for part in value {
            self.put(part);
        }
    }

    fn put(&mut self, octets: &[u8]) {
        self.octets[self.at..self.at + octets.len()].copy_from_slice(octets);
        self.at += octets.len();
    }
}

impl Places {
    fn remember(&mut self, at: usize) {
        if let (Some(free), Ok(place)) = (self.at.get_mut(self.count), u16::try_from(at))
            && at <= MAX_POINTER
        {
            *free = place;
            self.count += 1;
        }
    }

    /// How many octets of `name` have to be written, and what they are to point to; without a pointer the root follows.
    fn longest(&self, message: &[u8], name: &[u8]) -> (usize, Option<u16>) {
        let starts = Starts::of(name, 0);
        let mut best = (name.len().saturating_sub(1), None);
        for place in &self.at[..self.count] {
            let known = Starts::of(message, usize::from(*place));
            let labels = starts.common_with(name, &known, message);
            if labels > 0 {
                let front = usize::from(starts.at[starts.count - labels]);
                let there = known.at[known.count - labels];
                if front < best.0 && usize::from(there) <= MAX_POINTER {
                    best = (front, Some(there));
                }
            }
        }
        best
    }
}

/// Where the labels of a name begin, which may have pointers.
struct Starts {
    at: [u16; MAX_NAME / 2],
    count: usize,
}

impl Starts {
    fn of(octets: &[u8], mut at: usize) -> Self {
        let mut starts = Self { at: [0; MAX_NAME / 2], count: 0 };
        while let (Some(&length), Some(free)) = (octets.get(at), starts.at.get_mut(starts.count)) {
            match length {
                0 => break,
                1..=63 => {
                    *free = u16::try_from(at).unwrap_or(u16::MAX);
                    starts.count += 1;
                    at += 1 + usize::from(length);
                }
                // We wrote it: it points backwards.
                _ => {
                    let low = octets.get(at + 1).copied().unwrap_or_default();
                    at = usize::from(u16::from_be_bytes([length & 0x3f, low]));
                }
            }
        }
        starts
    }

    /// How many labels two names share from the root on.
    fn common_with(&self, mine: &[u8], other: &Self, theirs: &[u8]) -> usize {
        let pairs = self.at[..self.count].iter().rev().zip(other.at[..other.count].iter().rev());
        pairs.take_while(|(at, there)| label(mine, **at).eq_ignore_ascii_case(label(theirs, **there))).count()
    }
}

fn label(octets: &[u8], at: u16) -> &[u8] {
    let at = usize::from(at);
    let length = octets.get(at).copied().map_or(0, usize::from);
    octets.get(at..at + 1 + length).unwrap_or_default()
}
