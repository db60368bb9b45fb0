//! The head of an HTTP/1 request, read strictly and without I/O: whatever two readers could take for different things is
//! refused, not mended.
//!
//! hyper reads the same octets afterwards and is more lenient: it takes lines that end with LF alone, drops a
//! Content-Length beside a Transfer-Encoding, and lets several equal lengths pass. Nothing of that goes on to a member, as
//! heads are written anew; but who sends it means no good.

use std::mem::MaybeUninit;

use http::Method;

use crate::refusal::Refusal;

/// Proxies before us take as many: nginx 32 KiB in four lines, HAProxy 16 KiB. Tokens and cookies of some KiB fit.
pub const MAX_HEAD: usize = 32 << 10;
/// Browsers send some twenty, proxies add ten.
pub const MAX_FIELDS: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Lines that do not end with CR and LF among it: which of two faults is met first depends on the pieces it comes in.
    #[error("it breaks the syntax of HTTP/1.1")]
    Syntax,
    #[error("its target is none")]
    Target,
    #[error("Content-Length is not one number")]
    Length,
    #[error("Transfer-Encoding is something else than chunked, or stands where none may be")]
    Encoding,
    #[error("it has both a Content-Length and a Transfer-Encoding")]
    BothLengths,
    #[error("a chunk of its body breaks the syntax")]
    Chunk,
    #[error("it asks for another protocol and has a body")]
    UpgradeWithBody,
    #[error("it has a field that belongs to one connection of HTTP/1")]
    ConnectionField,
}

/// How long the body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    None,
    Sized(u64),
    Chunked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Octets, the empty line included.
    pub length: usize,
    pub framing: Framing,
    /// Another protocol is asked for: what follows is nobody's until it is granted.
    pub upgrade: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    Http10,
    Http11,
    Http2,
}

/// Room for the fields of a head. Some KiB that nobody fills, so they are not cleared either.
pub type Fields<'octets> = [MaybeUninit<httparse::Header<'octets>>; MAX_FIELDS];

pub const fn no_fields<'octets>() -> Fields<'octets> {
    [const { MaybeUninit::uninit() }; MAX_FIELDS]
}

/// None until all of it is there.
pub fn read(received: &[u8]) -> Result<Option<Head>, Refusal> {
    Ok(parse(received, &mut no_fields())?.map(|(head, _)| head))
}

/// The same, and the parts of it.
pub(crate) fn parse<'fields, 'octets>(
    received: &'octets [u8],
    fields: &'fields mut Fields<'octets>,
) -> Result<Option<(Head, httparse::Request<'fields, 'octets>)>, Refusal> {
    let mut request = httparse::Request::new(&mut []);
    let window = &received[..received.len().min(MAX_HEAD)];
    let length = match request.parse_with_uninit_headers(window, fields) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if received.len() >= MAX_HEAD => return Err(Refusal::HeadTooLarge(MAX_HEAD)),
        Ok(httparse::Status::Partial) => {
            // Told at once: the rest of a head that ends its lines otherwise may never come.
            strict_lines(window)?;
            return Ok(None);
        }
        Err(httparse::Error::TooManyHeaders) => return Err(Refusal::TooManyFields(MAX_FIELDS)),
        Err(_) => return Err(Malformed::Syntax.into()),
    };
    strict_lines(&window[..length])?;
    let version = if request.version == Some(1) { Version::Http11 } else { Version::Http10 };
    if request.method == Some(Method::CONNECT.as_str()) {
        // What follows is no HTTP, or is: it depends on the answer.
        return Err(Refusal::MethodNotCarried);
    }
    let target = request.path.unwrap_or_default();
    if !is_target(target) {
        return Err(Malformed::Target.into());
    }
    let pairs = || request.headers.iter().map(|field| (field.name, field.value));
    let framing = framing(version, pairs())?;
    let upgrade = version == Version::Http11 && wants_upgrade(pairs());
    if upgrade && !matches!(framing, Framing::None | Framing::Sized(0)) {
        return Err(Malformed::UpgradeWithBody.into());
    }
    Ok(Some((Head { length, framing, upgrade }, request)))
}

/// Whether a target is written as one: nothing that a client would have to encode, and no fragment, which is its own.
pub fn is_target(target: &str) -> bool {
    target.bytes().all(|octet| octet.is_ascii_graphic() && octet != b'#')
}

/// How long a body is said to be, which must be said once and plainly (RFC 9112 6.3).
pub fn framing<'a>(version: Version, fields: impl Iterator<Item = (&'a str, &'a [u8])>) -> Result<Framing, Malformed> {
    let (mut sized, mut chunked) = (None, false);
    for (name, value) in fields {
        if name.eq_ignore_ascii_case("content-length") {
            let length = Some(value).filter(|digits| digits.iter().all(u8::is_ascii_digit));
            let length = length.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u64>().ok());
            // hyper marks lengths that are not known by the last few numbers.
            let length = length.filter(|length| *length < u64::MAX / 2).ok_or(Malformed::Length)?;
            if sized.replace(length).is_some() {
                return Err(Malformed::Length);
            }
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            // HTTP/1.0 has none, and who forwards it anyway may disagree with us about where the body ends.
            if chunked || version != Version::Http11 || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Malformed::Encoding);
            }
            chunked = true;
        } else if version == Version::Http2 && crate::headers::is_of_connection(name) {
            return Err(Malformed::ConnectionField);
        }
    }
    match (sized, chunked) {
        (Some(_), true) => Err(Malformed::BothLengths),
        (None, true) => Ok(Framing::Chunked),
        (Some(length), false) => Ok(Framing::Sized(length)),
        (None, false) => Ok(Framing::None),
    }
}

/// Both fields are needed (RFC 9110 7.8). HTTP itself and TLS are not granted to anybody: a member would then read
/// requests that we have not seen. Such a wish may be ignored, and is.
pub fn wants_upgrade<'a>(fields: impl Iterator<Item = (&'a str, &'a [u8])>) -> bool {
    let (mut named, mut protocol, mut hidden) = (false, false, false);
    for (name, value) in fields {
        if name.eq_ignore_ascii_case("connection") {
            named |= crate::headers::tokens(value).any(|token| token.eq_ignore_ascii_case(b"upgrade"));
        }
        if name.eq_ignore_ascii_case("upgrade") {
            protocol = true;
            hidden |= crate::headers::tokens(value).any(|token| {
                let starts =
                    |known: &[u8]| token.get(..known.len()).is_some_and(|start| start.eq_ignore_ascii_case(known));
                starts(b"h2") || starts(b"h3") || starts(b"http") || starts(b"tls")
            });
        }
    }
    named && protocol && !hidden
}

fn strict_lines(head: &[u8]) -> Result<(), Malformed> {
    let mut before = None;
    for (at, &octet) in head.iter().enumerate() {
        let is_lone = match octet {
            b'\n' => before != Some(b'\r'),
            b'\r' => head.get(at + 1).is_some_and(|next| *next != b'\n'),
            _ => false,
        };
        if is_lone {
            return Err(Malformed::Syntax);
        }
        before = Some(octet);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head(lines: &str) -> Result<Option<Head>, Refusal> {
        read(lines.as_bytes())
    }

    #[test]
    fn heads_that_mean_one_thing_are_taken() {
        for (text, framing, upgrade) in [
            ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", Framing::None, false),
            ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n", Framing::Sized(5), false),
            ("POST / HTTP/1.1\r\nhost: a\r\nTransfer-Encoding: Chunked\r\n\r\n", Framing::Chunked, false),
            ("POST / HTTP/1.0\r\ncontent-length: 0\r\n\r\n", Framing::Sized(0), false),
            ("GET / HTTP/1.1\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\n\r\n", Framing::None, true),
            ("GET / HTTP/1.1\r\nupgrade: websocket\r\n\r\n", Framing::None, false),
            ("GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n", Framing::None, false),
            ("GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket, H2C\r\n\r\n", Framing::None, false),
            ("GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: HTTP/2.0\r\n\r\n", Framing::None, false),
            ("GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: TLS/1.2\r\n\r\n", Framing::None, false),
            ("GET / HTTP/1.0\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n", Framing::None, false),
        ] {
            let expected = Head { length: text.len(), framing, upgrade };
            assert_eq!(head(text), Ok(Some(expected)), "{text:?}");
            assert_eq!(head(&text[..text.len() - 1]), Ok(None), "{text:?}");
        }
    }

    #[test]
    fn heads_that_could_mean_two_things_are_refused() {
        use Malformed::{BothLengths, Encoding, Length, Syntax, Target, UpgradeWithBody};
        let with = |field: &str| format!("POST / HTTP/1.1\r\nhost: a\r\n{field}\r\n\r\n");
        for (text, expected) in [
            (with("content-length: 5\r\ntransfer-encoding: chunked"), BothLengths),
            (with("transfer-encoding: chunked\r\ncontent-length: 5"), BothLengths),
            (with("content-length: 5\r\ncontent-length: 5"), Length),
            (with("content-length: 5\r\ncontent-length: 6"), Length),
            (with("content-length: 5, 5"), Length),
            (with("content-length: +5"), Length),
            (with("content-length: -5"), Length),
            (with("content-length: 0x5"), Length),
            (with("content-length: 5 5"), Length),
            (with("content-length:"), Length),
            (with("content-length: 18446744073709551615"), Length),
            (with("content-length: 99999999999999999999"), Length),
            (with("transfer-encoding: gzip, chunked"), Encoding),
            (with("transfer-encoding: chunked, identity"), Encoding),
            (with("transfer-encoding: identity"), Encoding),
            (with("transfer-encoding: xchunked"), Encoding),
            (with("transfer-encoding: \"chunked\""), Encoding),
            (with("transfer-encoding:\u{b}chunked"), Syntax),
            (with("transfer-encoding: chunked\r\ntransfer-encoding: chunked"), Encoding),
            (with("transfer-encoding: chunked\r\ntransfer-encoding: identity"), Encoding),
            (with("transfer-encoding:"), Encoding),
            (with("transfer-encoding : chunked"), Syntax),
            (with("content-length : 5"), Syntax),
            (with("content-length\t: 5"), Syntax),
            (with(" content-length: 5"), Syntax),
            (with("x: a\r\n folded: b"), Syntax),
            (with("x: a\r\n\tfolded: b"), Syntax),
            (with("x"), Syntax),
            (with(": y"), Syntax),
            (with("x\u{1}: y"), Syntax),
            (with("x: a\0b"), Syntax),
            (with("x: a\rb"), Syntax),
            (with("x: a\ny: b"), Syntax),
            ("POST / HTTP/1.1\nhost: a\n\n".into(), Syntax),
            ("POST / HTTP/1.1\r\nhost: a\r\nx: y\n\r\n".into(), Syntax),
            ("POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n".into(), Encoding),
            ("POST / HTTP/2.0\r\nhost: a\r\n\r\n".into(), Syntax),
            ("POST / HTTP/1.2\r\nhost: a\r\n\r\n".into(), Syntax),
            ("POST  / HTTP/1.1\r\nhost: a\r\n\r\n".into(), Syntax),
            ("POST /a b HTTP/1.1\r\nhost: a\r\n\r\n".into(), Syntax),
            ("POST /a#b HTTP/1.1\r\nhost: a\r\n\r\n".into(), Target),
            ("POST /\u{e9} HTTP/1.1\r\nhost: a\r\n\r\n".into(), Target),
            (with("connection: upgrade\r\nupgrade: x\r\ncontent-length: 5"), UpgradeWithBody),
        ] {
            assert_eq!(head(&text), Err(expected.into()), "{text:?}");
        }
        assert_eq!(head("CONNECT a:443 HTTP/1.1\r\nhost: a\r\n\r\n"), Err(Refusal::MethodNotCarried));
    }

    #[test]
    fn heads_have_a_size() {
        let long = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(MAX_HEAD));
        assert_eq!(head(&long), Err(Refusal::HeadTooLarge(MAX_HEAD)));
        let many = |count| format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(count));
        assert!(matches!(head(&many(MAX_FIELDS)), Ok(Some(_))));
        assert_eq!(head(&many(MAX_FIELDS + 1)), Err(Refusal::TooManyFields(MAX_FIELDS)));
    }

    proptest! {
        #[test]
        fn no_octets_are_too_much(octets in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&octets);
        }

        /// What was told of a part holds for the whole: nothing is taken first and refused later.
        #[test]
        fn a_head_is_the_same_however_it_comes(octets in "(GET|POST) /[a-c]{0,3} HTTP/1.1(\r\n|\n)([a-c]: [a-c]{0,2}(\r\n|\n|\r)){0,3}(\r\n|\n)") {
            let whole = read(octets.as_bytes());
            for end in 0..octets.len() {
                match read(&octets.as_bytes()[..end]) {
                    Ok(None) => {}
                    part => prop_assert_eq!(part.is_err(), whole.is_err()),
                }
            }
        }
    }
}
