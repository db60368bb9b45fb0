//! Zone files: static records in master-file form (RFC 1035 5), read into the model's flat value.
//!
//! The frame of an entry (owner, TTL, class, type) and the data of the common types are read here, by words that know their
//! place, so that every mistake has a line and a million records take a fraction of a second. All other data, and
//! data in the form of RFC 3597, is read by `domain`, one record at a time.

mod data;
#[cfg(test)]
mod tests;
mod words;

use domain::base::iana::{Class, Rtype};
use model::DnsName;
use model::name::{MAX_LABEL, MAX_NAME, NameError};
use model::zone_file::{Builder, RecordError, ZoneFile};

use crate::Mistake;
use words::{Place, Word, Words};

/// What a caller need not read beyond: some seven million records, ten times the largest zone that anybody puts here, and
/// far from the 4 GiB that the flat form counts to.
pub const MAX_OCTETS: u64 = 256 << 20;

/// What no owner is written as.
const NO_NAME: &[u8] = b"";

/// RFC 2181 8: a TTL has 31 bits.
const MAX_TTL: u32 = 0x7fff_ffff;

/// Reads a whole file. Names are relative to the apex until the file says otherwise; records without a TTL have that of
/// `$TTL`, or else the last one stated (RFC 2308 4), or else `default_ttl`.
///
/// A file without any record is a mistake: it is what an interrupted save looks like, and would withdraw every name.
pub fn parse(octets: &[u8], apex: &DnsName, default_ttl: u32) -> Result<ZoneFile, Mistake> {
    let mut words = Words::of(octets);
    let mut reader = Reader {
        origin: apex.as_wire().to_vec(),
        dollar_ttl: None,
        last_ttl: default_ttl,
        owner: None,
        builder: Builder::new(apex.clone()),
        is_empty: true,
        scratch: Vec::new(),
    };
    while let Some(first) = words.first()? {
        match first.text {
            [b'$', ..] if !first.spaced && !first.quoted => reader.directive(&first, &mut words)?,
            _ => reader.record(&first, &mut words)?,
        }
    }
    reader.finish(words.place())
}

struct Reader<'a> {
    /// In wire form, as it is written.
    origin: Vec<u8>,
    dollar_ttl: Option<u32>,
    last_ttl: u32,
    /// As it was last written. Mostly the next one is the same again.
    owner: Option<&'a [u8]>,
    builder: Builder,
    is_empty: bool,
    scratch: Vec<u8>,
}

impl<'a> Reader<'a> {
    fn directive(&mut self, directive: &Word<'_>, words: &mut Words<'_>) -> Result<(), Mistake> {
        if directive.is("$ORIGIN") {
            let mut origin = Vec::new();
            name(&expected(words, "the origin")?, &self.origin, &mut origin)?;
            self.origin = origin;
            // The same word is another name now; one that was taken over stays as it is.
            self.owner = self.owner.map(|_| NO_NAME);
        } else if directive.is("$TTL") {
            self.dollar_ttl = Some(ttl(&expected(words, "the TTL")?)?);
        } else if directive.is("$INCLUDE") {
            return Err(directive.mistake("$INCLUDE is not supported: a Zone has one zone file, beside its manifest"));
        } else {
            let reason = format!("no directive is called {}; known are $ORIGIN and $TTL", directive.shown());
            return Err(directive.mistake(reason));
        }
        end(words)
    }

    fn record(&mut self, first: &Word<'a>, words: &mut Words<'a>) -> Result<(), Mistake> {
        let wrong = |error: RecordError| first.place.mistake(error.to_string());
        let mut word = *first;
        if !first.spaced {
            if self.owner != Some(first.text) || first.quoted {
                self.scratch.clear();
                name(first, &self.origin, &mut self.scratch)?;
                self.builder.at(&self.scratch).map_err(wrong)?;
                self.owner = Some(if first.quoted { NO_NAME } else { first.text });
            }
            word = expected(words, "the record's type")?;
        }
        let (stated_ttl, rtype) = frame(word, words)?;
        if let Some(ttl) = stated_ttl {
            self.last_ttl = ttl;
        }
        let ttl = stated_ttl.or(self.dollar_ttl).unwrap_or(self.last_ttl);

        self.scratch.clear();
        let data_place = words.place();
        data::read(rtype, words, &self.origin, &mut self.scratch)?;
        end(words)?;

        if self.owner.is_none() {
            return Err(first.mistake("the first record has no owner; there is none before it to take over"));
        }
        self.is_empty = false;
        if rtype == Rtype::SOA {
            let soa = data::soa(ttl, &self.scratch)
                .ok_or_else(|| data_place.mistake("the SOA record's data is cut short"))?;
            return self.builder.set_soa(soa).map_err(wrong);
        }
        let line = u32::try_from(first.place.line).unwrap_or(u32::MAX);
        self.builder.push(rtype.to_int(), ttl, &self.scratch, line).map_err(wrong)
    }

    fn finish(self, end: Place) -> Result<ZoneFile, Mistake> {
        if self.is_empty {
            return Err(end.mistake("the zone file has no records; where none are wanted, leave `zoneFile` out"));
        }
        let place = |line: u32| Place { line: line.max(1) as usize, column: 1 };
        self.builder.finish().map_err(|(line, error)| place(line).mistake(error.to_string()))
    }
}

/// TTL and class, in either order, each only where it is given, and then the type.
fn frame<'a>(mut word: Word<'a>, words: &mut Words<'a>) -> Result<(Option<u32>, Rtype), Mistake> {
    let (mut stated_ttl, mut has_class) = (None, false);
    loop {
        if word.text.first().is_some_and(u8::is_ascii_digit) && stated_ttl.is_none() {
            stated_ttl = Some(ttl(&word)?);
        } else if word.is("IN") && !has_class {
            has_class = true;
        } else if let Some(rtype) = rtype(&word) {
            if !may_stand_in_a_zone(rtype) {
                return Err(word.mistake(format!("records of type {} do not stand in zones", word.shown())));
            }
            return Ok((stated_ttl, rtype));
        } else {
            let is_class = word.as_str().and_then(|text| text.parse::<Class>().ok());
            match is_class {
                Some(Class::IN) if !has_class => has_class = true,
                Some(_) => return Err(word.mistake(format!("class {}; only IN is served", word.shown()))),
                None => return Err(word.mistake(format!("no record type is called {}", word.shown()))),
            }
        }
        word = expected(words, "the record's type")?;
    }
}

fn rtype(word: &Word<'_>) -> Option<Rtype> {
    match word.text {
        _ if word.quoted => None,
        b"A" => Some(Rtype::A),
        b"AAAA" => Some(Rtype::AAAA),
        text => std::str::from_utf8(text).ok()?.parse().ok(),
    }
}

/// RFC 6895 3.1: OPT, and 128 to 255, are for messages; zero is nothing.
fn may_stand_in_a_zone(rtype: Rtype) -> bool {
    !matches!(rtype.to_int(), 0 | 41 | 128..=255)
}

fn expected<'a>(words: &mut Words<'a>, what: &str) -> Result<Word<'a>, Mistake> {
    let place = words.place();
    words.next()?.ok_or_else(|| place.mistake(format!("{what} is missing")))
}

fn end(words: &mut Words<'_>) -> Result<(), Mistake> {
    match words.next()? {
        Some(word) => Err(word.mistake(format!("{} is one word too many", word.shown()))),
        None => Ok(()),
    }
}

/// Seconds; or, as every server takes them, with the units w, d, h, m and s: `1h30m`.
fn ttl(word: &Word<'_>) -> Result<u32, Mistake> {
    let wrong = || word.mistake(format!("{} is no TTL: seconds up to {MAX_TTL}, or such as 1h30m", word.shown()));
    let (mut total, mut number) = (0_u32, None::<u32>);
    for octet in word.text {
        if octet.is_ascii_digit() {
            let tens = number.unwrap_or_default().checked_mul(10);
            number = Some(tens.and_then(|tens| tens.checked_add(u32::from(octet - b'0'))).ok_or_else(wrong)?);
            continue;
        }
        let unit = match octet.to_ascii_lowercase() {
            b'w' => 604_800,
            b'd' => 86_400,
            b'h' => 3600,
            b'm' => 60,
            b's' => 1,
            _ => return Err(wrong()),
        };
        let seconds = number.take().and_then(|number| number.checked_mul(unit));
        total = seconds.and_then(|seconds| total.checked_add(seconds)).ok_or_else(wrong)?;
    }
    let total = total.checked_add(number.unwrap_or_default()).filter(|total| *total <= MAX_TTL);
    total.filter(|_| !word.text.is_empty()).ok_or_else(wrong)
}

/// Appends a name in wire form. Its case is kept: RFC 4343 4.1 wants data as it was written.
fn name(word: &Word<'_>, origin: &[u8], wire: &mut Vec<u8>) -> Result<(), Mistake> {
    let wrong = |error: NameError| word.mistake(format!("{}: {error}", word.shown()));
    let start = wire.len();
    match word.text {
        b"@" if !word.quoted => wire.extend_from_slice(origin),
        b"." => wire.push(0),
        b"" => return Err(wrong(NameError::Empty)),
        text => {
            let is_plain = text.iter().all(|octet| octet.is_ascii_graphic() && *octet != b'\\');
            let last = if is_plain { plain_labels(text, wire).map_err(wrong)? } else { escaped_labels(word, wire)? };
            // Behind a final dot stands the root, whose length has been written.
            if wire.len() > last + 1 {
                end_label(wire, last).map_err(wrong)?;
                wire.extend_from_slice(origin);
            }
        }
    }
    if wire.len() - start > MAX_NAME { Err(wrong(NameError::LongName)) } else { Ok(()) }
}

/// Appends labels, and returns where the last one starts, whose length is still to be written. Most names have no escapes,
/// and are taken label by label.
fn plain_labels(text: &[u8], wire: &mut Vec<u8>) -> Result<usize, NameError> {
    let mut labels = text.split(|octet| *octet == b'.');
    let mut start = wire.len();
    wire.push(0);
    wire.extend_from_slice(labels.next().unwrap_or_default());
    for label in labels {
        end_label(wire, start)?;
        start = wire.len();
        wire.push(0);
        wire.extend_from_slice(label);
    }
    Ok(start)
}

/// The same octet by octet.
fn escaped_labels(word: &Word<'_>, wire: &mut Vec<u8>) -> Result<usize, Mistake> {
    let mut start = wire.len();
    wire.push(0);
    for symbol in word.symbols() {
        let symbol = symbol?;
        match symbol.octet {
            b'.' if !symbol.escaped => {
                end_label(wire, start).map_err(|error| word.mistake(format!("{}: {error}", word.shown())))?;
                start = wire.len();
                wire.push(0);
            }
            octet if !symbol.escaped && !octet.is_ascii_graphic() => {
                let reason = format!("{}: write octets that are no visible ASCII as `\\DDD`", word.shown());
                return Err(word.mistake(reason));
            }
            octet => wire.push(octet),
        }
    }
    Ok(start)
}

fn end_label(wire: &mut [u8], label: usize) -> Result<(), NameError> {
    match wire.len() - label - 1 {
        0 => Err(NameError::EmptyLabel),
        length if length <= MAX_LABEL => {
            wire[label] = u8::try_from(length).expect("a label's length was just compared with 63");
            Ok(())
        }
        _ => Err(NameError::LongLabel(String::from_utf8_lossy(&wire[label + 1..]).into_owned())),
    }
}
