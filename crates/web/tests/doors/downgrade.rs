//! HTTP/2 by hand, towards a member that speaks HTTP/1.1: what HTTP/2 could carry into it and must not.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::backend::Recorder;
use crate::fixture::{Front, PATIENCE, Site, wait_for};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// What a client of HTTP/2 gets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// By its place in HPACK's table, for those that have one.
    Status(Option<u16>),
    Reset,
    GoAway,
    Closed,
}

pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    pub(crate) fn connect(front: &Front) -> Self {
        let mut stream = TcpStream::connect(front.http).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        let mut raw = Self(stream);
        raw.frame(SETTINGS, 0, 0, &[]);
        raw
    }

    pub(crate) fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        // The other end may have had enough.
        let _ = self.0.write_all(&frame);
    }

    pub(crate) fn headers(&mut self, stream: u32, fields: &[(&str, &str)], is_end: bool) {
        let flags = END_HEADERS | if is_end { END_STREAM } else { 0 };
        self.frame(HEADERS, flags, stream, &hpack(fields));
    }

    pub(crate) fn data(&mut self, stream: u32, data: &[u8], is_end: bool) {
        self.frame(DATA, if is_end { END_STREAM } else { 0 }, stream, data);
    }

    pub(crate) fn reset(&mut self, stream: u32) {
        self.frame(RESET, 0, stream, &8_u32.to_be_bytes());
    }

    /// The first word about the stream, or about all.
    pub(crate) fn outcome(&mut self, stream: u32) -> Outcome {
        loop {
            let mut head = [0; 9];
            if self.0.read_exact(&mut head).is_err() {
                return Outcome::Closed;
            }
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            if self.0.read_exact(&mut payload).is_err() {
                return Outcome::Closed;
            }
            let about = u32::from_be_bytes(head[5..].try_into().unwrap());
            match head[3] {
                HEADERS if about == stream => {
                    let known = [200, 204, 206, 304, 400, 404, 500];
                    return Outcome::Status(known.get(usize::from(payload[0].wrapping_sub(0x88))).copied());
                }
                RESET if about == stream => return Outcome::Reset,
                GOAWAY => return Outcome::GoAway,
                SETTINGS if head[4] == 0 => self.frame(SETTINGS, 1, 0, &[]),
                _ => {}
            }
        }
    }
}

/// Literal fields without an index (RFC 7541 6.2.2): any octets, as they are.
fn hpack(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            // Lengths with a prefix of seven bits.
            if let Ok(length @ ..127) = u8::try_from(text.len()) {
                block.push(length);
            } else {
                block.push(127);
                let mut left = text.len() - 127;
                while left >= 128 {
                    block.push(u8::try_from(left % 128).unwrap() | 128);
                    left /= 128;
                }
                block.push(u8::try_from(left).unwrap());
            }
            block.extend(text.as_bytes());
        }
    }
    block
}

pub(crate) const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":authority", "shop.test"), (":path", "/first")];

#[test]
fn nothing_of_http_2_breaks_out_of_http_1() {
    let recorder = Recorder::start();
    let front = Front::start(Site::new("shop.test", &[recorder.address]).table());
    let split = "y\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: shop.test\r\n\r\n";
    let with = |name: &'static str, value: &'static str| [&GET[..], &[(name, value)]].concat();
    let instead = |name: &'static str, value: &'static str| {
        let mut fields = GET.to_vec();
        for field in &mut fields {
            if field.0 == name {
                field.1 = value;
            }
        }
        fields
    };
    for fields in [
        // Lengths and codings of HTTP/1 (H2.TE, H2.CL).
        with("transfer-encoding", "chunked"),
        with("connection", "transfer-encoding"),
        with("connection", "close"),
        with("keep-alive", "5"),
        with("proxy-connection", "keep-alive"),
        with("upgrade", "websocket"),
        with("content-length", "5"),
        with("content-length", "x"),
        with("content-length", "+0"),
        [&GET[..], &[("content-length", "0"), ("content-length", "5")]].concat(),
        // Ends of lines in names and values.
        with("x", "y\r\nz: w"),
        with("x", "y\nz: w"),
        with("x", "y\rz: w"),
        with("x", "y\0z"),
        with("x", split),
        with("x: y\r\nz", "w"),
        with("x y", "z"),
        with("X-Upper", "y"),
        with("", "y"),
        with("x:", "y"),
        // Pseudo fields.
        instead(":path", "/first HTTP/1.1\r\nhost: other.test\r\n\r\nGET /smuggled"),
        instead(":path", "/a b"),
        instead(":path", "first"),
        instead(":path", ""),
        instead(":method", "GET /smuggled HTTP/1.1\r\nx:"),
        instead(":method", "GET /smuggled"),
        instead(":authority", "shop.test\r\nx: y"),
        instead(":authority", "user@shop.test"),
        instead(":authority", "shop.test, other.test"),
        instead(":authority", ""),
        with(":path", "/second"),
        with(":authority", "other.test"),
        with(":unknown", "x"),
        [&[("x", "y")], &GET[..]].concat(),
        GET[..3].to_vec(),
        [&GET[..2], &GET[3..]].concat(),
        // Two hosts that differ.
        with("host", "other.test"),
        [&GET[..], &[("host", "shop.test"), ("host", "shop.test")]].concat(),
        // Tunnels.
        vec![(":method", "CONNECT"), (":authority", "shop.test:443")],
        [&[(":protocol", "websocket")], &instead(":method", "CONNECT")[..]].concat(),
        instead(":method", "TRACE"),
    ] {
        let mut client = Raw::connect(&front);
        client.headers(1, &fields, true);
        let outcome = client.outcome(1);
        assert_ne!(outcome, Outcome::Status(Some(200)), "{fields:?}");
        assert_ne!(outcome, Outcome::Closed, "{fields:?}");
        assert!(recorder.requests().is_empty(), "{fields:?} {:?}", recorder.requests());
    }
}

/// A length that the body does not keep: the member never sees an end of it.
#[test]
fn bodies_of_another_length_than_said_are_no_bodies() {
    let recorder = Recorder::start();
    let front = Front::start(Site::new("shop.test", &[recorder.address]).table());
    for (length, body) in [("5", "hello, and GET /smuggled HTTP/1.1\r\n\r\n"), ("50", "hello"), ("0", "hello")] {
        let mut client = Raw::connect(&front);
        let fields = [&[(":method", "POST")], &GET[1..], &[("content-length", length)]].concat();
        client.headers(1, &fields, false);
        client.data(1, body.as_bytes(), true);
        let outcome = client.outcome(1);
        assert_ne!(outcome, Outcome::Status(Some(200)), "{length}");
    }
    let seen = recorder.requests();
    assert!(seen.iter().all(|request| request.path() == "/first"), "{seen:?}");
}

/// What is in order arrives, in the form of HTTP/1.
#[test]
fn what_is_in_order_is_carried() {
    let recorder = Recorder::start();
    let front = Front::start(Site::new("shop.test", &[recorder.address]).table());
    let mut client = Raw::connect(&front);
    client.headers(
        1,
        &[&GET[..], &[("cookie", "a=1"), ("cookie", "b=2"), ("te", "trailers"), ("host", "shop.test")]].concat(),
        true,
    );
    assert_eq!(client.outcome(1), Outcome::Status(Some(200)));
    let seen = recorder.last();
    assert_eq!((seen.all("host"), seen.all("cookie")), (vec!["shop.test"], vec!["a=1; b=2"]));
    assert_eq!(seen.header("transfer-encoding"), None);
    // Without a length it is written in chunks; what trails is no head.
    client.headers(3, &[&[(":method", "POST")], &GET[1..]].concat(), false);
    client.data(3, b"0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n", false);
    client.headers(3, &[("x-trailer", "y"), ("content-length", "3"), ("host", "other.test")], true);
    assert_eq!(client.outcome(3), Outcome::Status(Some(200)));
    let seen = recorder.last();
    assert_eq!((seen.all("transfer-encoding"), seen.path()), (vec!["chunked"], "/first"));
    assert_eq!(seen.body, b"0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n");
    assert!(!seen.trailers.contains("content-length") && !seen.trailers.contains("host"), "{seen:?}");
    assert_eq!(recorder.requests().len(), 2);
}

/// CVE-2023-44487: streams that are opened and reset at once do not reach members in numbers, and end the connection.
#[test]
fn a_flood_of_resets_ends_the_connection() {
    let recorder = Recorder::start();
    let front = Front::start(Site::new("shop.test", &[recorder.address]).table());
    let mut client = Raw::connect(&front);
    for stream in (1..20_000).step_by(2) {
        client.headers(stream, &GET, true);
        client.reset(stream);
    }
    assert!(matches!(client.outcome(99_999), Outcome::GoAway | Outcome::Closed));
    let carried = recorder.requests().len();
    assert!(carried < 2000, "{carried} of 10000 reached the member");
    // Others are served as before, and nothing is left behind.
    let mut other = Raw::connect(&front);
    other.headers(1, &GET, true);
    assert_eq!(other.outcome(1), Outcome::Status(Some(200)));
    drop((client, other));
    wait_for("connections to end", || front.metric(r#"fleetgate_web_open_connections{door="http"}"#) == 0);
}

/// Frames that break the protocol (RFC 9113): each ends its stream or its connection, and nothing else.
#[test]
fn broken_frames_end_their_connection() {
    let recorder = Recorder::start();
    let front = Front::start(Site::new("shop.test", &[recorder.address]).table());
    let block = hpack(&GET);
    for (name, frames) in [
        ("data on stream 0", vec![(DATA, 0, 0, b"x".to_vec())]),
        ("headers on stream 0", vec![(HEADERS, END_HEADERS, 0, block.clone())]),
        ("an even stream", vec![(HEADERS, END_HEADERS | END_STREAM, 2, block.clone())]),
        ("data before headers", vec![(DATA, END_STREAM, 1, b"x".to_vec())]),
        ("a continuation of nothing", vec![(9, END_HEADERS, 1, block.clone())]),
        (
            "data within a head",
            vec![(HEADERS, END_STREAM, 1, block[..4].to_vec()), (DATA, END_STREAM, 1, b"x".to_vec())],
        ),
        ("settings of odd length", vec![(SETTINGS, 0, 0, vec![0; 5])]),
        ("settings on a stream", vec![(SETTINGS, 0, 1, Vec::new())]),
        ("a window of nothing", vec![(8, 0, 0, vec![0; 4])]),
        ("a ping of odd length", vec![(6, 0, 0, vec![0; 7])]),
        ("a push", vec![(5, END_HEADERS, 1, [&[0, 0, 0, 2], &block[..]].concat())]),
        ("a broken head", vec![(HEADERS, END_HEADERS | END_STREAM, 1, vec![0xff; 20])]),
        ("padding longer than the frame", vec![(HEADERS, END_HEADERS | END_STREAM | 8, 1, vec![200, 0])]),
        ("a frame that is too large", vec![(DATA, 0, 1, vec![0; 20_000])]),
        ("a table that is too large", vec![(HEADERS, END_HEADERS | END_STREAM, 1, vec![0x3f, 0xff, 0xff, 0xff, 0x0f])]),
    ] {
        let mut client = Raw::connect(&front);
        for (kind, flags, stream, payload) in frames {
            client.frame(kind, flags, stream, &payload);
        }
        let outcome = client.outcome(1);
        assert!(matches!(outcome, Outcome::GoAway | Outcome::Reset | Outcome::Closed), "{name}: {outcome:?}");
    }
    assert!(recorder.requests().is_empty());
}
