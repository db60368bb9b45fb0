//! The header that a trusted load balancer puts in front of everything, read without I/O.
//!
//! It says who the client is and nothing else: where the connection goes stands behind it, in an inner header or a TLS
//! hello. Load balancers write either version of the PROXY protocol, and the two cannot be mistaken for each other or
//! for a hello. Whether there is a header is not guessed: a trusted proxy has to send one, anybody else must not.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::address::ClientAddr;
use crate::proxy_header::{self, HeaderError};

/// The protocol's own bound for version 1: UNKNOWN with two IPv6 addresses and two ports, CR and LF included.
pub const MAX_LINE: usize = 107;

const V1_PREFIX: &[u8] = b"PROXY ";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// All right so far; ask again with more.
    Incomplete,
    /// The first `length` bytes are the outer header. Without a client the proxy speaks for itself, as in a health
    /// check, or knows no IP address: then the socket's own peer counts.
    Complete { client: Option<ClientAddr>, length: usize },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OuterHeaderError {
    #[error("the bytes begin with no version of the PROXY protocol")]
    NotProxy,
    #[error("{0}")]
    Version2(HeaderError),
    #[error("the line names no protocol that is known")]
    Protocol,
    #[error("the line does not end within {MAX_LINE} bytes")]
    Unended,
    #[error("the line has a CR or an LF alone")]
    LoneLineEnd,
    #[error("the line has the byte {0:#04x}, which belongs into no address and no port")]
    Character(u8),
    #[error("the line is not two addresses and two ports with one space before each")]
    Fields,
    #[error("the line has an address that is not one of its protocol")]
    Address,
    #[error("the line has a port that is not a plain number up to 65535")]
    Port,
}

pub fn parse(received: &[u8]) -> Result<Parsed, OuterHeaderError> {
    match received.first() {
        None => Ok(Parsed::Incomplete),
        Some(b'P') => parse_v1(received),
        Some(_) => parse_v2(received),
    }
}

/// What selects a cluster in it is not for us: it is the proxy's word about the client that counts.
fn parse_v2(received: &[u8]) -> Result<Parsed, OuterHeaderError> {
    match proxy_header::parse(received) {
        Ok(proxy_header::Parsed::Incomplete) => Ok(Parsed::Incomplete),
        Ok(proxy_header::Parsed::Complete { header, length }) => Ok(Parsed::Complete { client: header.client, length }),
        Err(HeaderError::NotProxy) => Err(OuterHeaderError::NotProxy),
        Err(error) => Err(OuterHeaderError::Version2(error)),
    }
}

fn parse_v1(received: &[u8]) -> Result<Parsed, OuterHeaderError> {
    let compared = received.len().min(V1_PREFIX.len());
    if received[..compared] != V1_PREFIX[..compared] {
        return Err(OuterHeaderError::NotProxy);
    }
    let Some(protocol) = Protocol::read(&received[compared..])? else { return Ok(Parsed::Incomplete) };
    let start = compared + protocol.name().len();
    let Some(end) = end_of_line(received, start, &protocol)? else { return Ok(Parsed::Incomplete) };
    let client = protocol.client(&received[start..end])?;
    Ok(Parsed::Complete { client, length: end + 2 })
}

/// Where the CR and LF stand that end the line.
fn end_of_line(received: &[u8], start: usize, protocol: &Protocol) -> Result<Option<usize>, OuterHeaderError> {
    for (at, &octet) in received.iter().enumerate().skip(start) {
        match (octet, received.get(at + 1)) {
            (b'\r', Some(b'\n')) => return Ok(Some(at)),
            (b'\r', None) => return Ok(None),
            // The protocol tolerates neither: two readers might end the line at different places.
            (b'\r' | b'\n', _) => return Err(OuterHeaderError::LoneLineEnd),
            _ if at + 2 >= MAX_LINE => return Err(OuterHeaderError::Unended),
            (other, _) if !protocol.may_contain(other) => return Err(OuterHeaderError::Character(other)),
            _ => {}
        }
    }
    Ok(None)
}

enum Protocol {
    Tcp4,
    Tcp6,
    Unknown,
}

impl Protocol {
    /// From what stands behind the prefix, as soon as only one is left. Its name ends with a space or the line.
    fn read(rest: &[u8]) -> Result<Option<Self>, OuterHeaderError> {
        for protocol in [Self::Tcp4, Self::Tcp6, Self::Unknown] {
            let name = protocol.name();
            match (rest.strip_prefix(name), &protocol) {
                (Some([]), _) => return Ok(None),
                (Some([b' ', ..]), _) | (Some([b'\r', ..]), Self::Unknown) => return Ok(Some(protocol)),
                (Some(_), _) => return Err(OuterHeaderError::Protocol),
                (None, _) if name.starts_with(rest) => return Ok(None),
                (None, _) => {}
            }
        }
        Err(OuterHeaderError::Protocol)
    }

    fn name(&self) -> &'static [u8] {
        match self {
            Self::Tcp4 => b"TCP4",
            Self::Tcp6 => b"TCP6",
            Self::Unknown => b"UNKNOWN",
        }
    }

    fn may_contain(&self, octet: u8) -> bool {
        match self {
            Self::Tcp4 => matches!(octet, b' ' | b'.' | b'0'..=b'9'),
            // Proxies write an IPv4 client that they met on an IPv6 socket as ::ffff:192.0.2.7.
            Self::Tcp6 => matches!(octet, b' ' | b'.' | b':') || octet.is_ascii_hexdigit(),
            // The protocol wants whatever stands there ignored.
            Self::Unknown => true,
        }
    }

    /// From what stands between the name and the end of the line.
    fn client(&self, rest: &[u8]) -> Result<Option<ClientAddr>, OuterHeaderError> {
        let parse_address: fn(&str) -> Option<IpAddr> = match self {
            Self::Tcp4 => |text| text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
            Self::Tcp6 => |text| text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            Self::Unknown => return Ok(None),
        };
        let text = str::from_utf8(rest).map_err(|_| OuterHeaderError::Fields)?;
        let fields: Vec<&str> = text.split(' ').collect();
        let ["", source, destination, source_port, destination_port] = fields[..] else {
            return Err(OuterHeaderError::Fields);
        };
        let address = parse_address(source).ok_or(OuterHeaderError::Address)?;
        parse_address(destination).ok_or(OuterHeaderError::Address)?;
        let port = port(source_port)?;
        self::port(destination_port)?;
        Ok(Some(ClientAddr(SocketAddr::new(address, port))))
    }
}

/// Digits alone and no leading zero, which might be taken for octal; the library's parser would let a sign pass.
fn port(text: &str) -> Result<u16, OuterHeaderError> {
    let plain = text.bytes().all(|octet| octet.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain).ok_or(OuterHeaderError::Port)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::proxy_header::{Encoder, TLV_CLUSTER_ID};

    fn complete(bytes: &[u8]) -> Option<SocketAddr> {
        match parse(bytes) {
            Ok(Parsed::Complete { client, length }) if length == bytes.len() => client.map(|client| client.0),
            other => panic!("{other:?} of {}", bytes.escape_ascii()),
        }
    }

    fn assert_splits_do_not_matter(bytes: &[u8]) {
        let whole = parse(bytes);
        for end in 0..bytes.len() {
            let part = parse(&bytes[..end]);
            assert!(part == Ok(Parsed::Incomplete) || part == whole, "{end} of {bytes:?}: {part:?}, then {whole:?}");
        }
    }

    /// The protocol's own examples, its longest lines among them, and what proxies write.
    #[test]
    fn lines_that_the_protocol_allows_are_read() {
        let longest = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        for (line, client) in [
            ("PROXY TCP4 192.168.0.1 192.168.0.11 56324 443", Some("192.168.0.1:56324")),
            ("PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535", Some("255.255.255.255:65535")),
            ("PROXY TCP4 0.0.0.0 0.0.0.0 0 0", Some("0.0.0.0:0")),
            ("PROXY TCP6 2001:db8::7 2001:DB8::1 40000 443", Some("[2001:db8::7]:40000")),
            (&format!("PROXY TCP6 {longest} {longest} 65535 65535"), Some(&format!("[{longest}]:65535"))),
            ("PROXY TCP6 ::ffff:192.0.2.7 ::1 1 2", Some("[::ffff:192.0.2.7]:1")),
            ("PROXY UNKNOWN", None),
            ("PROXY UNKNOWN ", None),
            ("PROXY UNKNOWN 192.168.0.1 192.168.0.11 56324 443", None),
            (&format!("PROXY UNKNOWN {longest} {longest} 65535 65535"), None),
            ("PROXY UNKNOWN whatever \t\0\u{7f} it is", None),
        ] {
            let bytes = format!("{line}\r\n").into_bytes();
            assert_eq!(complete(&bytes), client.map(|client| client.parse().unwrap()), "{line}");
            for end in 0..bytes.len() {
                assert_eq!(parse(&bytes[..end]), Ok(Parsed::Incomplete), "{end} of {line}");
            }
        }
    }

    #[test]
    fn lines_that_it_does_not_allow_are_refused() {
        use OuterHeaderError::{Address, Character, Fields, LoneLineEnd, NotProxy, Port, Protocol};
        for (line, error) in [
            ("PROXY\r\n", NotProxy),
            ("PROXY  TCP4 192.0.2.1 192.0.2.2 1 2\r\n", Protocol),
            ("proxy TCP4 192.0.2.1 192.0.2.2 1 2\r\n", NotProxy),
            ("PROXY \r\n", Protocol),
            ("PROXY TCP\r\n", Protocol),
            ("PROXY TCP4\r\n", Protocol),
            ("PROXY TCP5 192.0.2.1 192.0.2.2 1 2\r\n", Protocol),
            ("PROXY tcp4 192.0.2.1 192.0.2.2 1 2\r\n", Protocol),
            ("PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n", Protocol),
            ("PROXY UNKNOWNS\r\n", Protocol),
            ("PROXY UNKNOWN\n", Protocol),
            ("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n", LoneLineEnd),
            ("PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\r\n", LoneLineEnd),
            ("PROXY UNKNOWN a\rb\r\n", LoneLineEnd),
            ("PROXY UNKNOWN a\nb\r\n", LoneLineEnd),
            ("PROXY TCP4 \r\n", Fields),
            ("PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n", Fields),
            ("PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n", Fields),
            ("PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n", Fields),
            ("PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n", Fields),
            ("PROXY TCP4 192.0.2.1  192.0.2.2 1 2\r\n", Fields),
            ("PROXY TCP4 192.0.2.1\t192.0.2.2 1 2\r\n", Character(b'\t')),
            ("PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n", Address),
            ("PROXY TCP4 192.0.2.1 192.00.2.2 1 2\r\n", Address),
            ("PROXY TCP4 192.0.2.256 192.0.2.2 1 2\r\n", Address),
            ("PROXY TCP4 192.0.2 192.0.2.2 1 2\r\n", Address),
            ("PROXY TCP4 2001:db8::7 192.0.2.2 1 2\r\n", Character(b':')),
            ("PROXY TCP6 192.0.2.1 ::1 1 2\r\n", Address),
            ("PROXY TCP6 ::1 192.0.2.1 1 2\r\n", Address),
            ("PROXY TCP6 1::2::3 ::1 1 2\r\n", Address),
            ("PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n", Character(b'%')),
            ("PROXY TCP6 [::1] ::1 1 2\r\n", Character(b'[')),
            ("PROXY TCP4 192.0.2.1 192.0.2.2 65536 2\r\n", Port),
            ("PROXY TCP4 192.0.2.1 192.0.2.2 1 99999999999\r\n", Port),
            ("PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n", Port),
            ("PROXY TCP4 192.0.2.1 192.0.2.2 1 00\r\n", Port),
            ("PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n", Character(b'+')),
            ("PROXY TCP6 ::1 ::1 a 2\r\n", Port),
        ] {
            assert_eq!(parse(line.as_bytes()), Err(error), "{line:?}");
            assert_splits_do_not_matter(line.as_bytes());
        }
    }

    #[test]
    fn a_line_ends_in_time() {
        let line = |length: usize| format!("{:x<1$}\r\n", "PROXY UNKNOWN ", length - 2).into_bytes();
        assert_eq!(complete(&line(107)), None);
        assert_eq!(parse(&line(108)), Err(OuterHeaderError::Unended));
        assert_eq!(parse(&line(108)[..105]), Ok(Parsed::Incomplete));
        assert_eq!(parse(&line(108)[..106]), Err(OuterHeaderError::Unended), "as soon as no end fits any more");
    }

    #[test]
    fn what_is_no_header_is_refused_at_its_first_byte_that_shows_it() {
        for (what, bytes) in [
            ("a TLS hello", b"\x16".as_slice()),
            ("HTTP", b"G"),
            ("HTTP with a P", b"PO"),
            ("almost the line", b"PROXY\t"),
            ("almost the signature", b"\r\n\r\n\x01"),
        ] {
            assert_eq!(parse(bytes), Err(OuterHeaderError::NotProxy), "{what}");
            assert_eq!(parse(&bytes[..bytes.len() - 1]), Ok(Parsed::Incomplete), "{what}");
        }
        assert_eq!(parse(b"PROXY X"), Err(OuterHeaderError::Protocol));
        assert_eq!(parse(b"PROXY TCP4 x"), Err(OuterHeaderError::Character(b'x')));
    }

    #[test]
    fn version_2_needs_no_selector_and_ends_where_the_inner_header_starts() {
        let (client, destination) = ("192.0.2.7:40000".parse().unwrap(), "192.0.2.8:443".parse().unwrap());
        let plain = Encoder::proxy(client, destination).finish_with_checksum().unwrap();
        let selecting = Encoder::proxy(client, destination).tlv(TLV_CLUSTER_ID, b"c1").finish().unwrap();
        let health_check = Encoder::local().finish().unwrap();
        for (outer, client) in [(&plain, Some(client)), (&selecting, Some(client)), (&health_check, None)] {
            assert_eq!(complete(outer), client);
            let stacked = [outer.as_slice(), &selecting].concat();
            let client = client.map(ClientAddr);
            assert_eq!(parse(&stacked), Ok(Parsed::Complete { client, length: outer.len() }));
            assert_splits_do_not_matter(&stacked);
        }
        let stacked = [b"PROXY UNKNOWN\r\n".as_slice(), &selecting].concat();
        assert_eq!(parse(&stacked), Ok(Parsed::Complete { client: None, length: 15 }));
        assert_eq!(
            parse(b"\r\n\r\n\0\r\nQUIT\n\x31"),
            Err(OuterHeaderError::Version2(HeaderError::Version(3))),
            "a header, but a bad one"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_any_split(bytes in proptest::collection::vec(0u8.., 0..150)) {
            assert_splits_do_not_matter(&bytes);
        }

        #[test]
        fn any_line_any_split(line in "PROXY (TCP4|TCP6|UNKNOWN|T)[ .:0-9a-f\r\n]{0,110}(\r\n)?.{0,4}") {
            assert_splits_do_not_matter(line.as_bytes());
        }

        #[test]
        fn any_pair_any_split(client: SocketAddr, destination: SocketAddr, rest in proptest::collection::vec(0u8.., 0..40)) {
            prop_assume!(client.is_ipv4() == destination.is_ipv4());
            let (family, from, to) = (if client.is_ipv4() { 4 } else { 6 }, client.ip(), destination.ip());
            let line = format!("PROXY TCP{family} {from} {to} {} {}\r\n", client.port(), destination.port());
            let bytes = [line.as_bytes(), &rest].concat();
            let same = ClientAddr(SocketAddr::new(from, client.port()));
            prop_assert_eq!(parse(&bytes), Ok(Parsed::Complete { client: Some(same), length: line.len() }));
            assert_splits_do_not_matter(&bytes);
        }
    }
}
