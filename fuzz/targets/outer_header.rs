//! `gateway::outer_header`: what a trusted load balancer says first, in either version of the protocol.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use fuzz::decided_at;
use gateway::outer_header::{MAX_LINE, OuterHeaderError, Parsed, parse};
use gateway::proxy_header::{self, HeaderError, MAX_HEADER};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // The fuzzer would lose it with every second change.
    check(&[b"PROXY ", bytes].concat());
});

fn check(bytes: &[u8]) {
    let decided = decided_at(bytes, &Ok(Parsed::Incomplete), parse);
    let said = parse(bytes);
    match said {
        Ok(Parsed::Complete { length, .. }) => assert_eq!(decided, Some(length), "no byte of what is inside"),
        Ok(Parsed::Incomplete) => {
            let bound = if bytes.first() == Some(&b'P') { MAX_LINE } else { MAX_HEADER };
            assert!(bytes.len() < bound, "what is held for a peer is bounded");
        }
        Err(_) => {}
    }
    if bytes.first() == Some(&b'P') { check_line(bytes, &said) } else { check_version_2(bytes, &said) }
}

/// The inner header's reader reads it, and what it says about the client is all that counts.
fn check_version_2(bytes: &[u8], said: &Result<Parsed, OuterHeaderError>) {
    let expected = match proxy_header::parse(bytes) {
        Ok(proxy_header::Parsed::Incomplete) => Ok(Parsed::Incomplete),
        Ok(proxy_header::Parsed::Complete { header, length }) => Ok(Parsed::Complete { client: header.client, length }),
        Err(HeaderError::NotProxy) => Err(OuterHeaderError::NotProxy),
        Err(error) => Err(OuterHeaderError::Version2(error)),
    };
    assert_eq!(*said, expected);
}

/// Version 1, beside a plain reading of the line once it is there.
fn check_line(bytes: &[u8], said: &Result<Parsed, OuterHeaderError>) {
    let end = bytes.iter().position(|octet| matches!(octet, b'\r' | b'\n'));
    let line = end.filter(|end| bytes[*end..].starts_with(b"\r\n") && end + 2 <= MAX_LINE).map(|end| &bytes[..end]);
    match (said, line.and_then(Speaker::named_in)) {
        (Ok(Parsed::Complete { client, length }), Some(plain)) => {
            assert_eq!(client.map_or(Speaker::Itself, |client| Speaker::For(client.0)), plain);
            assert_eq!(Some(*length), end.map(|end| end + 2));
        }
        (Ok(Parsed::Incomplete) | Err(_), None) => {}
        (said, plain) => panic!("{said:?}, where the line says {plain:?}"),
    }
}

#[derive(Debug, PartialEq)]
enum Speaker {
    Itself,
    For(SocketAddr),
}

impl Speaker {
    /// `None` if the protocol does not allow the line.
    fn named_in(line: &[u8]) -> Option<Self> {
        if line == b"PROXY UNKNOWN" || line.starts_with(b"PROXY UNKNOWN ") {
            return Some(Self::Itself);
        }
        let words: Vec<&str> = str::from_utf8(line).ok()?.split(' ').collect();
        let ["PROXY", family, from, to, from_port, to_port] = words[..] else { return None };
        let address = |text: &str| -> Option<IpAddr> {
            match family {
                "TCP4" => text.parse::<Ipv4Addr>().ok().map(Into::into),
                "TCP6" => text.parse::<Ipv6Addr>().ok().map(Into::into),
                _ => None,
            }
        };
        // As it would be printed: no sign, no zero in front.
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| port.to_string() == text);
        address(to).and(port(to_port))?;
        Some(Self::For(SocketAddr::new(address(from)?, port(from_port)?)))
    }
}
