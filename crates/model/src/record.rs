//! Record data: what the plan publishes, and what tenants may ask for.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::name::DnsName;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordSet {
    pub ttl: u32,
    pub data: RecordData,
}

/// The records of one type; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordData {
    A(Vec<Ipv4Addr>),
    Aaaa(Vec<Ipv6Addr>),
    Cname(DnsName),
    Ns(Vec<DnsName>),
    Ptr(DnsName),
    Mx(Vec<Exchange>),
    Srv(Vec<Server>),
    Txt(Vec<Strings>),
    Caa(Vec<Property>),
}

/// RFC 1035 3.3.9.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exchange {
    pub preference: u16,
    pub host: DnsName,
}

/// RFC 2782.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Server {
    pub priority: u16,
    pub weight: u16,
    pub port: u16,
    pub host: DnsName,
}

/// The strings of one TXT record in wire form: each behind its length, at most 255 octets long (RFC 1035 3.3.14).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Strings(Arc<[u8]>);

/// RFC 8659 4.1.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Property {
    pub flags: u8,
    /// 1 to 255 lower-case letters and digits.
    pub tag: Arc<str>,
    pub value: Arc<[u8]>,
}

impl Strings {
    /// One text, cut where the length of a string ends.
    pub fn of_text(text: &[u8]) -> Self {
        let mut wire = Vec::with_capacity(text.len() + text.len() / 255 + 1);
        let chunks = text.chunks(255).chain(text.is_empty().then_some(&[][..]));
        for chunk in chunks {
            #[allow(clippy::cast_possible_truncation)] // Chunks of at most 255.
            wire.push(chunk.len() as u8);
            wire.extend_from_slice(chunk);
        }
        Self(wire.into())
    }

    /// Several strings; `None` if there is none, or one is longer than 255 octets.
    pub fn of_strings<'a>(strings: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        let mut wire = Vec::new();
        for string in strings {
            wire.push(u8::try_from(string.len()).ok()?);
            wire.extend_from_slice(string);
        }
        (!wire.is_empty()).then(|| Self(wire.into()))
    }

    pub fn strings(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &*self.0;
        std::iter::from_fn(move || {
            let (&length, behind) = rest.split_first()?;
            let (string, behind) = behind.split_at_checked(length.into())?;
            rest = behind;
            Some(string)
        })
    }
}

impl RecordData {
    /// The type's number (RFC 1035 3.2.2, RFC 3596 2.1, RFC 2782, RFC 8659 4.1).
    pub fn rtype(&self) -> u16 {
        match self {
            Self::A(_) => 1,
            Self::Ns(_) => 2,
            Self::Cname(_) => 5,
            Self::Ptr(_) => 12,
            Self::Mx(_) => 15,
            Self::Txt(_) => 16,
            Self::Aaaa(_) => 28,
            Self::Srv(_) => 33,
            Self::Caa(_) => 257,
        }
    }

    /// As people write the type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::A(_) => "A",
            Self::Aaaa(_) => "AAAA",
            Self::Cname(_) => "CNAME",
            Self::Ns(_) => "NS",
            Self::Ptr(_) => "PTR",
            Self::Mx(_) => "MX",
            Self::Srv(_) => "SRV",
            Self::Txt(_) => "TXT",
            Self::Caa(_) => "CAA",
        }
    }

    pub fn count(&self) -> usize {
        match self {
            Self::A(addresses) => addresses.len(),
            Self::Aaaa(addresses) => addresses.len(),
            Self::Cname(_) | Self::Ptr(_) => 1,
            Self::Ns(servers) => servers.len(),
            Self::Mx(exchanges) => exchanges.len(),
            Self::Srv(servers) => servers.len(),
            Self::Txt(texts) => texts.len(),
            Self::Caa(properties) => properties.len(),
        }
    }

    /// The names that it leads to, in the order of the records.
    pub fn targets(&self) -> Vec<&DnsName> {
        match self {
            Self::Cname(name) | Self::Ptr(name) => vec![name],
            Self::Ns(names) => names.iter().collect(),
            Self::Mx(exchanges) => exchanges.iter().map(|exchange| &exchange.host).collect(),
            Self::Srv(servers) => servers.iter().map(|server| &server.host).collect(),
            Self::A(_) | Self::Aaaa(_) | Self::Txt(_) | Self::Caa(_) => Vec::new(),
        }
    }

    /// Sorted and without doubles, so that the same records make the same set.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        fn sort<T: Ord>(values: &mut Vec<T>) {
            values.sort_unstable();
            values.dedup();
        }
        match &mut self {
            Self::A(addresses) => sort(addresses),
            Self::Aaaa(addresses) => sort(addresses),
            Self::Cname(_) | Self::Ptr(_) => {}
            Self::Ns(servers) => sort(servers),
            Self::Mx(exchanges) => sort(exchanges),
            Self::Srv(servers) => sort(servers),
            Self::Txt(texts) => sort(texts),
            Self::Caa(properties) => sort(properties),
        }
        self
    }

    /// Each record's data in wire form, uncompressed.
    pub fn to_wire(&self) -> Vec<Vec<u8>> {
        match self {
            Self::A(addresses) => addresses.iter().map(|address| address.octets().to_vec()).collect(),
            Self::Aaaa(addresses) => addresses.iter().map(|address| address.octets().to_vec()).collect(),
            Self::Cname(name) | Self::Ptr(name) => vec![name.as_wire().to_vec()],
            Self::Ns(names) => names.iter().map(|name| name.as_wire().to_vec()).collect(),
            Self::Mx(exchanges) => exchanges
                .iter()
                .map(|Exchange { preference, host }| [&preference.to_be_bytes()[..], host.as_wire()].concat())
                .collect(),
            Self::Srv(servers) => servers.iter().map(Server::to_wire).collect(),
            Self::Txt(texts) => texts.iter().map(|text| text.0.to_vec()).collect(),
            Self::Caa(properties) => properties.iter().map(Property::to_wire).collect(),
        }
    }

    /// Each record's data as people write it (RFC 1035 5.1), names without their final dot.
    pub fn to_text(&self) -> Vec<String> {
        match self {
            Self::A(addresses) => addresses.iter().map(ToString::to_string).collect(),
            Self::Aaaa(addresses) => addresses.iter().map(ToString::to_string).collect(),
            Self::Cname(name) | Self::Ptr(name) => vec![name.to_string()],
            Self::Ns(names) => names.iter().map(ToString::to_string).collect(),
            Self::Mx(exchanges) => exchanges.iter().map(|at| format!("{} {}", at.preference, at.host)).collect(),
            Self::Srv(servers) => {
                servers.iter().map(|at| format!("{} {} {} {}", at.priority, at.weight, at.port, at.host)).collect()
            }
            Self::Txt(texts) => {
                let text = |text: &Strings| text.strings().map(quoted).collect::<Vec<_>>().join(" ");
                texts.iter().map(text).collect()
            }
            Self::Caa(properties) => {
                properties.iter().map(|at| format!("{} {} {}", at.flags, at.tag, quoted(&at.value))).collect()
            }
        }
    }
}

impl Server {
    fn to_wire(&self) -> Vec<u8> {
        let numbers = [self.priority, self.weight, self.port].map(u16::to_be_bytes);
        [numbers.as_flattened(), self.host.as_wire()].concat()
    }
}

impl Property {
    fn to_wire(&self) -> Vec<u8> {
        let length = u8::try_from(self.tag.len()).unwrap_or(u8::MAX);
        [&[self.flags, length], self.tag.as_bytes(), &self.value].concat()
    }
}

fn quoted(text: &[u8]) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for &octet in text {
        match octet {
            b'"' | b'\\' => {
                quoted.push('\\');
                quoted.push(char::from(octet));
            }
            0x20..=0x7e => quoted.push(char::from(octet)),
            _ => _ = write!(quoted, "\\{octet:03}"),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_its_wire_and_its_text() {
        let name = |text: &str| DnsName::parse(text).unwrap();
        let caa = Property { flags: 0, tag: "issue".into(), value: b"ca.test".as_slice().into() };
        for (data, rtype, wire, text) in [
            (RecordData::A(vec![[192, 0, 2, 1].into()]), 1, &[192, 0, 2, 1][..], "192.0.2.1"),
            (RecordData::Cname(name("a.test")), 5, b"\x01a\x04test\0", "a.test"),
            (RecordData::Ptr(name("a.test")), 12, b"\x01a\x04test\0", "a.test"),
            (
                RecordData::Mx(vec![Exchange { preference: 10, host: name("a.test") }]),
                15,
                b"\0\x0a\x01a\x04test\0",
                "10 a.test",
            ),
            (
                RecordData::Srv(vec![Server { priority: 1, weight: 2, port: 259, host: name("a.test") }]),
                33,
                b"\0\x01\0\x02\x01\x03\x01a\x04test\0",
                "1 2 259 a.test",
            ),
            (RecordData::Txt(vec![Strings::of_text(b"a\"\0")]), 16, b"\x03a\"\0", r#""a\"\000""#),
            (RecordData::Caa(vec![caa]), 257, b"\0\x05issueca.test", r#"0 issue "ca.test""#),
        ] {
            assert_eq!((data.rtype(), data.count()), (rtype, 1));
            assert_eq!(data.to_wire(), [wire], "{}", data.type_name());
            assert_eq!(data.to_text(), [text]);
        }
    }

    #[test]
    fn long_texts_are_cut_into_strings() {
        for (length, cut) in [(0, vec![0]), (255, vec![255]), (256, vec![255, 1]), (600, vec![255, 255, 90])] {
            let text = Strings::of_text(&vec![b'x'; length]);
            assert_eq!(text.strings().map(<[u8]>::len).collect::<Vec<_>>(), cut);
        }
        assert_eq!(Strings::of_strings([&[b'x'; 256][..]]), None);
        assert_eq!(Strings::of_strings([]), None);
    }
}
