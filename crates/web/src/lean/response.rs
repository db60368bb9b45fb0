//! A member's response, read strictly and written anew without I/O: where it ends, and what clients get of it.

use std::time::SystemTime;

use crate::guard::chunks::Chunks;
use crate::head::{self, Framing, MAX_HEAD, Version};
use crate::headers;

use super::request::write_field;

/// Of Connection; one is usual.
const MAX_NAMED: usize = 4;

/// Where its body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// So many octets are left.
    Sized(u64),
    Chunked(Chunks),
    /// With the connection.
    UntilClose,
    Ended,
}

/// The head of a response.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    pub status: u16,
    /// Octets of it.
    pub length: usize,
    pub body: Body,
    /// Its connection can be used again once the body has ended.
    pub is_kept: bool,
}

/// None until all of it is there. What clients get of it is written to `out`, unless it only says that the answer is to
/// follow.
pub fn read(received: &[u8], to_head: bool, is_last: bool, out: &mut Vec<u8>) -> Result<Option<Head>, &'static str> {
    let mut fields = head::no_fields();
    let mut response = httparse::Response::new(&mut []);
    let window = &received[..received.len().min(MAX_HEAD)];
    let parser = httparse::ParserConfig::default();
    let length = match parser.parse_response_with_uninit_headers(&mut response, window, &mut fields) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if received.len() >= MAX_HEAD => {
            return Err("the head of its answer is too long");
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err("its answer is no HTTP/1.1"),
    };
    let status = response.code.unwrap_or_default();
    let version = if response.version == Some(1) { Version::Http11 } else { Version::Http10 };
    if status == 101 {
        return Err("it changed to a protocol that nobody had asked for");
    }
    if status < 200 {
        return Ok(Some(Head { status, length, body: Body::Ended, is_kept: true }));
    }
    let pairs = || response.headers.iter().map(|field| (field.name, field.value));
    let framing = head::framing(version, pairs()).map_err(|_| "its answer does not say plainly how long it is")?;
    let body = match framing {
        _ if to_head || matches!(status, 204 | 304) => Body::Ended,
        Framing::Sized(0) => Body::Ended,
        Framing::Sized(length) => Body::Sized(length),
        Framing::Chunked => Body::Chunked(Chunks::START),
        Framing::None => Body::UntilClose,
    };
    let mut named: [&[u8]; MAX_NAMED] = [&[]; MAX_NAMED];
    let mut count = 0;
    for (_, value) in pairs().filter(|(name, _)| name.eq_ignore_ascii_case("connection")) {
        *named.get_mut(count).ok_or("its answer has too many Connection fields")? = value;
        count += 1;
    }
    let named = &named[..count];
    let closes = |value: &&[u8]| headers::tokens(value).any(|token| token.eq_ignore_ascii_case(b"close"));
    let is_kept = version == Version::Http11 && !named.iter().any(closes) && body != Body::UntilClose;
    write(&response, status, body, named, is_last, out);
    Ok(Some(Head { status, length, body, is_kept }))
}

fn write(
    response: &httparse::Response<'_, '_>,
    status: u16,
    body: Body,
    named: &[&[u8]],
    is_last: bool,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"HTTP/1.1 ");
    super::request::write_number(status.into(), out);
    out.push(b' ');
    out.extend_from_slice(response.reason.unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
    let mut has_date = false;
    for field in &*response.headers {
        if !headers::ends_here_in_response(field.name, named) {
            has_date |= field.name.eq_ignore_ascii_case("date");
            write_field(field, out);
        }
    }
    if !has_date {
        // RFC 9110 6.6.1: who forwards it adds what is missing.
        out.extend_from_slice(b"date: ");
        out.extend_from_slice(httpdate::fmt_http_date(SystemTime::now()).as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if matches!(body, Body::Chunked(_) | Body::UntilClose) {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    if is_last {
        out.extend_from_slice(b"connection: close\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

impl Body {
    /// Writes what clients get of these octets to `out`; how many of them are the body's, and how much was in them. Chunks
    /// are made anew, so that neither extensions nor trailers go on that nobody asked for.
    pub fn carry(&mut self, received: &[u8], out: &mut Vec<u8>) -> Result<(usize, usize), &'static str> {
        match self {
            Self::Ended => Ok((0, 0)),
            Self::Sized(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(received.len());
                out.extend_from_slice(&received[..taken]);
                *left -= taken as u64;
                if *left == 0 {
                    *self = Self::Ended;
                }
                Ok((taken, taken))
            }
            Self::Chunked(chunks) => {
                let mut carried = 0;
                let taken = chunks.take(received, |data| {
                    write_chunk(data, out);
                    carried += data.len();
                });
                let taken = taken.map_err(|_| "a chunk of its answer breaks the syntax")?;
                if *chunks == Chunks::End {
                    out.extend_from_slice(LAST_CHUNK);
                    *self = Self::Ended;
                }
                Ok((taken, carried))
            }
            Self::UntilClose => {
                write_chunk(received, out);
                Ok((received.len(), received.len()))
            }
        }
    }

    /// The member's connection has ended; whether the body has.
    pub fn close(&mut self, out: &mut Vec<u8>) -> bool {
        if *self == Self::UntilClose {
            out.extend_from_slice(LAST_CHUNK);
            *self = Self::Ended;
        }
        *self == Self::Ended
    }
}

const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

fn write_chunk(data: &[u8], out: &mut Vec<u8>) {
    // An empty one would be the last.
    if !data.is_empty() {
        out.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
        out.extend_from_slice(data);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "date: Mon, 01 Jan 2024 00:00:00 GMT\r\n";

    fn carried(response: &str) -> Result<(String, bool), &'static str> {
        let mut out = Vec::new();
        let octets = response.as_bytes();
        let mut head = read(octets, false, false, &mut out)?.expect("the head is there");
        let (taken, _) = head.body.carry(&octets[head.length..], &mut out)?;
        let is_whole = head.body.close(&mut out);
        assert!(is_whole || head.length + taken == octets.len());
        Ok((String::from_utf8(out).unwrap(), head.is_kept))
    }

    #[test]
    fn clients_get_what_is_theirs() {
        let with = |fields: &str, rest: &str| format!("HTTP/1.1 200 OK\r\n{DATE}{fields}\r\n{rest}");
        for (sent, expected, is_kept) in [
            (with("Content-Length: 2\r\n", "ab"), with("content-length: 2\r\n", "ab"), true),
            (with("content-length: 2\r\nconnection: close\r\n", "ab"), with("content-length: 2\r\n", "ab"), false),
            (
                with("content-length: 0\r\nConnection: X-Mine\r\nx-mine: 1\r\nkeep-alive: 5\r\n", ""),
                with("content-length: 0\r\n", ""),
                true,
            ),
            (with("content-length: 0\r\nfleetgate-refusal: NoRoute\r\n", ""), with("content-length: 0\r\n", ""), true),
            (
                with("transfer-encoding: chunked\r\n", "3;x=y\r\nabc\r\n1\r\nd\r\n0\r\ntrailer: 1\r\n\r\n"),
                with("transfer-encoding: chunked\r\n", "3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n"),
                true,
            ),
            (with("", "abc"), with("transfer-encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n"), false),
        ] {
            assert_eq!(carried(&sent), Ok((expected, is_kept)), "{sent}");
        }
        for refused in [
            with("content-length: 2\r\ntransfer-encoding: chunked\r\n", ""),
            with("content-length: 2\r\ncontent-length: 3\r\n", ""),
            with("transfer-encoding: gzip\r\n", ""),
            with("transfer-encoding: chunked\r\n", "x\r\n"),
            "HTTP/1.1 101 Switching Protocols\r\n\r\n".into(),
            "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".into(),
            "HTTP/2.0 200 OK\r\n\r\n".into(),
            "ICY 200 OK\r\n\r\n".into(),
        ] {
            assert!(carried(&refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn answers_to_head_have_no_body() {
        for (status, to_head, body) in
            [("200 OK", true, Body::Ended), ("204 No Content", false, Body::Ended), ("200 OK", false, Body::Sized(5))]
        {
            let response = format!("HTTP/1.1 {status}\r\ncontent-length: 5\r\n\r\n");
            let head = read(response.as_bytes(), to_head, true, &mut Vec::new()).unwrap().unwrap();
            assert_eq!((head.body, head.is_kept), (body, true), "{status}");
        }
    }
}
