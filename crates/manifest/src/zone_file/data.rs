//! The data of one record: from the words behind its type to octets without compression.

use std::net::{Ipv4Addr, Ipv6Addr};

use bytes::Bytes;
use domain::base::iana::Rtype;
use domain::base::rdata::{ComposeRecordData as _, ParseRecordData as _};
use domain::base::{Name, ParsedName};
use domain::dep::octseq::Parser;
use domain::rdata::ZoneRecordData;
use domain::zonefile::inplace::{Entry, Zonefile};
use model::DnsName;
use model::snapshot::Soa;

use super::words::{Word, Words};
use super::{expected, name, ttl};
use crate::Mistake;

/// Reads the data of the common types; `words` stands behind the type.
pub(super) fn read(rtype: Rtype, words: &mut Words<'_>, origin: &[u8], data: &mut Vec<u8>) -> Result<(), Mistake> {
    let first = expected(words, "the record's data")?;
    // RFC 3597 5: any type may be given as octets.
    if first.is("\\#") {
        return by_domain(rtype, first, words, origin, data);
    }
    match rtype {
        Rtype::A => {
            let address: Ipv4Addr = value(&first, "IPv4 address")?;
            data.extend_from_slice(&address.octets());
        }
        Rtype::AAAA => {
            let address: Ipv6Addr = value(&first, "IPv6 address")?;
            data.extend_from_slice(&address.octets());
        }
        Rtype::NS | Rtype::CNAME | Rtype::PTR | Rtype::DNAME => name(&first, origin, data)?,
        Rtype::MX | Rtype::AFSDB | Rtype::RT | Rtype::KX => {
            data.extend_from_slice(&value::<u16>(&first, "number up to 65535")?.to_be_bytes());
            name(&expected(words, "the name behind the number")?, origin, data)?;
        }
        Rtype::TXT | Rtype::SPF => {
            character_string(&first, data)?;
            while let Some(word) = words.next()? {
                character_string(&word, data)?;
            }
        }
        Rtype::SOA => {
            name(&first, origin, data)?;
            name(&expected(words, "the mailbox")?, origin, data)?;
            let serial = expected(words, "the serial")?;
            data.extend_from_slice(&value::<u32>(&serial, "serial of 32 bits")?.to_be_bytes());
            for what in ["the refresh time", "the retry time", "the expiry time", "the negative TTL"] {
                data.extend_from_slice(&ttl(&expected(words, what)?)?.to_be_bytes());
            }
        }
        _ => by_domain(rtype, first, words, origin, data)?,
    }
    Ok(())
}

/// The fields of an SOA record's data.
pub(super) fn soa(ttl: u32, data: &[u8]) -> Option<Soa> {
    let (primary, rest) = split_name(data)?;
    let (mailbox, rest) = split_name(rest)?;
    let (numbers, &[]) = rest.as_chunks::<4>() else { return None };
    let &[serial, refresh, retry, expire, minimum] = numbers else { return None };
    Some(Soa {
        ttl,
        primary,
        mailbox,
        serial: u32::from_be_bytes(serial),
        refresh: u32::from_be_bytes(refresh),
        retry: u32::from_be_bytes(retry),
        expire: u32::from_be_bytes(expire),
        minimum: u32::from_be_bytes(minimum),
    })
}

fn split_name(data: &[u8]) -> Option<(DnsName, &[u8])> {
    let mut end = 0;
    while *data.get(end)? != 0 {
        end += 1 + usize::from(data[end]);
    }
    let (name, rest) = data.split_at(end + 1);
    Some((DnsName::from_wire(name).ok()?, rest))
}

fn value<T: std::str::FromStr>(word: &Word<'_>, what: &str) -> Result<T, Mistake> {
    let read = word.as_str().and_then(|text| text.parse().ok());
    read.ok_or_else(|| word.mistake(format!("{} is no {what}", word.shown())))
}

/// RFC 1035 3.3: up to 255 octets behind their count.
fn character_string(word: &Word<'_>, data: &mut Vec<u8>) -> Result<(), Mistake> {
    let count_at = data.len();
    data.push(0);
    for symbol in word.symbols() {
        data.push(symbol?.octet);
    }
    let count = u8::try_from(data.len() - count_at - 1);
    data[count_at] = count.map_err(|_| word.mistake("the text is longer than 255 octets; split it into several"))?;
    Ok(())
}

/// Gives the words as one record to `domain`'s reader, which knows how people write the other types.
fn by_domain(
    rtype: Rtype,
    first: Word<'_>,
    words: &mut Words<'_>,
    origin: &[u8],
    data: &mut Vec<u8>,
) -> Result<(), Mistake> {
    let wrong = |reason: &str| first.mistake(format!("the data of this {rtype} record cannot be read: {reason}"));
    let origin = Name::from_octets(Bytes::copy_from_slice(origin)).map_err(|_| wrong("its origin is no name"))?;
    let mut text = format!("@ 0 IN TYPE{}", rtype.to_int()).into_bytes();
    let mut word = Some(Word { spaced: true, ..first });
    while let Some(Word { text: written, quoted, spaced, .. }) = word {
        // SVCB parameters are written `key="value"`, without a space.
        text.extend_from_slice(if spaced { b" " } else { b"" });
        let quote: &[u8] = if quoted { b"\"" } else { b"" };
        // `domain` takes an `@` in data for a label of that name.
        let at = (written == b"@" && !quoted && !matches!(rtype, Rtype::HINFO | Rtype::CAA))
            .then(|| origin.fmt_with_dot().to_string().into_bytes());
        for part in [quote, at.as_deref().unwrap_or(written), quote] {
            text.extend_from_slice(part);
        }
        word = words.next()?;
    }
    text.push(b'\n');

    let mut reader = Zonefile::from(text.as_slice());
    reader.set_origin(origin);
    let record = match reader.next_entry() {
        Ok(Some(Entry::Record(record))) => record,
        Ok(_) => return Err(wrong("it is empty")),
        // It begins with a place in the text made above, which means nothing to the author.
        Err(error) => return Err(wrong(error.to_string().splitn(3, ':').last().unwrap_or_default().trim())),
    };
    record.data().compose_rdata(data).unwrap_or_else(|never| match never {});
    if is_sound(rtype, data) { Ok(()) } else { Err(wrong("it is not what a record of this type holds")) }
}

/// Whether octets are what their type says: they may have been given as such, and the reader lets names with empty labels
/// pass.
fn is_sound(rtype: Rtype, data: &[u8]) -> bool {
    let mut parser = Parser::from_ref(data);
    let parsed = ZoneRecordData::<_, ParsedName<_>>::parse_rdata(rtype, &mut parser);
    match parsed {
        Ok(Some(parsed)) => {
            let mut again = Vec::with_capacity(data.len());
            parsed.compose_rdata(&mut again).unwrap_or_else(|never| match never {});
            parser.remaining() == 0 && again == data
        }
        Ok(None) => true,
        Err(_) => false,
    }
}
