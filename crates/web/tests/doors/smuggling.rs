//! Requests that two readers could take for different things (RFC 9112 11.2): refused, and nothing of them reaches a member.

use crate::backend::{Recorder, scripted};
use crate::fixture::{Answer, Front, Site};

/// A request that must not be taken for one, wherever it stands.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nhost: shop.test\r\n\r\n";

fn fields(fields: &str) -> String {
    format!("POST /first HTTP/1.1\r\nhost: shop.test\r\n{fields}\r\n\r\n")
}

/// What is refused outright: the head, what follows it, and the code.
#[test]
fn ambiguous_requests_are_refused_and_go_nowhere() {
    let recorder = Recorder::start();
    let front = Front::start(Site::new("shop.test", &[recorder.address]).table());
    let chunked = format!("0\r\n\r\n{SMUGGLED}");
    for (head, body) in [
        // CL.TE and TE.CL, CVE-2026-2835 among them.
        (fields("content-length: 6\r\ntransfer-encoding: chunked"), chunked.as_str()),
        (fields("transfer-encoding: chunked\r\ncontent-length: 6"), &chunked),
        (fields("content-length: 0\r\ntransfer-encoding: chunked"), &chunked),
        (fields("transfer-encoding: identity, chunked"), &chunked),
        (fields("transfer-encoding: chunked, identity"), &chunked),
        (fields("transfer-encoding: identity\r\ntransfer-encoding: chunked"), &chunked),
        (fields("transfer-encoding: chunked\r\ntransfer-encoding: chunked"), &chunked),
        (fields("transfer-encoding: xchunked"), &chunked),
        (fields("transfer-encoding : chunked"), &chunked),
        (fields("transfer-encoding:\r\n chunked"), &chunked),
        (fields("transfer-encoding: chunked\r\n , identity"), &chunked),
        (fields("x: y\r\n transfer-encoding: chunked"), &chunked),
        (fields("transfer-encoding: \"chunked\""), &chunked),
        (fields("transfer-encoding: chunked;q=1"), &chunked),
        ("POST /first HTTP/1.0\r\nhost: shop.test\r\ntransfer-encoding: chunked\r\n\r\n".into(), &chunked),
        ("POST /first HTTP/1.0\r\nhost: shop.test\r\nconnection: keep-alive\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n".into(), &chunked),
        // Lengths.
        (fields("content-length: 0\r\ncontent-length: 46"), SMUGGLED),
        (fields("content-length: 0\r\ncontent-length: 0"), SMUGGLED),
        (fields("content-length: 0, 46"), SMUGGLED),
        (fields("content-length: -1"), SMUGGLED),
        (fields("content-length: +0"), SMUGGLED),
        (fields("content-length: 0x0"), SMUGGLED),
        (fields("content-length: 0 46"), SMUGGLED),
        (fields("content-length: 18446744073709551616"), SMUGGLED),
        (fields("content-length : 46"), SMUGGLED),
        // Lines.
        ("POST /first HTTP/1.1\nhost: shop.test\ncontent-length: 0\n\n".into(), SMUGGLED),
        (fields("x: y\ncontent-length: 46"), SMUGGLED),
        (fields("x: y\rcontent-length: 46"), SMUGGLED),
        (fields("x: y\r\r\ncontent-length: 46"), SMUGGLED),
        (fields("x: y\0"), SMUGGLED),
        (fields("x\0: y"), SMUGGLED),
        (fields("x y: z"), SMUGGLED),
        (fields("no colon"), SMUGGLED),
        // Targets and versions.
        ("POST /first second HTTP/1.1\r\nhost: shop.test\r\n\r\n".into(), SMUGGLED),
        ("POST /first#part HTTP/1.1\r\nhost: shop.test\r\n\r\n".into(), SMUGGLED),
        ("POST /first HTTP/1.2\r\nhost: shop.test\r\n\r\n".into(), SMUGGLED),
        ("POST /first HTTP/2.0\r\nhost: shop.test\r\n\r\n".into(), SMUGGLED),
        ("POST /first\r\n\r\n".into(), SMUGGLED),
        // Hosts.
        ("POST /first HTTP/1.1\r\nhost: shop.test\r\nhost: other.test\r\nconnection: close\r\n\r\n".into(), ""),
        ("POST /first HTTP/1.1\r\nhost: shop.test, other.test\r\nconnection: close\r\n\r\n".into(), ""),
        ("POST /first HTTP/1.1\r\nhost: user@shop.test\r\nconnection: close\r\n\r\n".into(), ""),
        ("POST http://other.test/ HTTP/1.1\r\nhost: shop.test\r\nconnection: close\r\n\r\n".into(), ""),
        ("POST /first HTTP/1.1\r\nconnection: close\r\n\r\n".into(), ""),
        ("POST /first HTTP/1.1\r\nhost:\r\nconnection: close\r\n\r\n".into(), ""),
        // Another protocol and a body, which one of both ends would take for the new protocol (CVE-2026-58055 of nghttpx).
        (fields("connection: upgrade\r\nupgrade: x\r\ncontent-length: 46"), SMUGGLED),
        (fields("connection: upgrade\r\nupgrade: x\r\ntransfer-encoding: chunked"), &chunked),
    ] {
        let mut client = front.connect();
        client.say(format!("{head}{body}"));
        let answer = client.hear().expect(&head);
        assert_eq!(answer.status, 400, "{head:?} {answer:?}");
        assert!(matches!(answer.code(), Some("MalformedRequest" | "BadHost")), "{head:?} {answer:?}");
        assert_eq!(client.rest(), b"", "nothing follows {head:?}");
        assert!(recorder.requests().is_empty(), "{head:?} {:?}", recorder.requests());
    }
    for (head, status, code) in [
        ("CONNECT shop.test:443 HTTP/1.1\r\nhost: shop.test:443\r\n\r\n", 405, "MethodNotCarried"),
        ("TRACE / HTTP/1.1\r\nhost: shop.test\r\nconnection: close\r\n\r\n", 405, "MethodNotCarried"),
    ] {
        let mut client = front.connect();
        client.say(format!("{head}{SMUGGLED}"));
        let answer = client.hear().unwrap();
        assert_eq!((answer.status, answer.code()), (status, Some(code)), "{head:?}");
        assert_eq!(client.rest(), b"", "nothing follows {head:?}");
        assert!(recorder.requests().is_empty(), "{head:?}");
    }
}

/// Bodies that break off in the middle: the member may have seen the head, but never an end, nor what follows.
#[test]
fn broken_chunks_are_refused_and_end_both_connections() {
    let recorder = Recorder::start();
    let front = Front::start(Site::new("shop.test", &[recorder.address]).table());
    let head = fields("transfer-encoding: chunked");
    for body in [
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "-1\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5;a=\"\r\nhello\r\n0\r\n\r\n",
        "5;\nhello\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "0\r\nx: y\n\r\n",
        "0\r\n x: y\r\n\r\n",
        "\r\n0\r\n\r\n",
    ] {
        let mut client = front.connect();
        client.say(format!("{head}{body}{SMUGGLED}"));
        let answer = client.hear().expect(body);
        assert_eq!((answer.status, answer.code()), (400, Some("MalformedRequest")), "{body:?}");
        assert_eq!(client.rest(), b"", "{body:?}");
        let seen = recorder.requests();
        assert!(seen.iter().all(|request| !request.head.contains("smuggled")), "{body:?} {seen:?}");
        assert!(seen.iter().all(|request| !request.head.ends_with("\r\n\r\n")), "answered: {body:?} {seen:?}");
    }
}

/// What is allowed is written anew: a member reads plain requests only.
#[test]
fn what_is_allowed_reaches_members_in_one_form() {
    let recorder = Recorder::start();
    let front = Front::start(Site::new("shop.test", &[recorder.address]).table());
    let mut client = front.connect();
    let mut ask = |request: &str| -> Answer {
        client.say(request);
        client.hear().unwrap()
    };
    // Extensions are dropped, sizes written anew, and trailers have no say.
    let body = "000A;ext=1\r\n0123456789\r\n5\r\nhello\r\n0;last\r\ncontent-length: 3\r\nx-trailer: y\r\n\r\n";
    let answer = ask(&format!("{}{body}", fields("transfer-encoding: Chunked\r\ntrailer: x-trailer")));
    assert_eq!((answer.status, answer.body.as_str()), (200, "/first 0123456789hello"));
    let seen = recorder.last();
    assert_eq!(seen.all("transfer-encoding"), ["chunked"], "{seen:?}");
    assert_eq!(seen.header("content-length"), None);
    assert_eq!(seen.trailers, "x-trailer: y\r\n\r\n");

    let answer = ask(&format!("\r\n{}hello", fields("content-length: 5")));
    assert_eq!((answer.status, answer.body.as_str()), (200, "/first hello"));
    assert_eq!(recorder.last().all("content-length"), ["5"]);
    assert_eq!(recorder.last().header("transfer-encoding"), None);

    // A body in a GET is a body; what it looks like does not matter.
    let answer = ask(&format!("GET /get HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 43\r\n\r\n{SMUGGLED}"));
    assert_eq!((answer.status, answer.body), (200, format!("/get {SMUGGLED}")));

    // In absolute form, and to a port.
    let answer = ask("GET http://SHOP.test:8080/absolute?q HTTP/1.1\r\nhost: shop.test:8080\r\n\r\n");
    assert_eq!((answer.status, answer.body.as_str()), (200, "/absolute?q "));
    assert_eq!(recorder.last().all("host"), ["shop.test:8080"]);

    // Pipelined requests are requests, each with its own answer.
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: shop.test\r\n\r\n");
    client.say([get("/1"), get("/2"), get("/3")].concat());
    for path in ["/1 ", "/2 ", "/3 "] {
        assert_eq!(client.hear().unwrap().body, path);
    }
    // And one that is refused is refused in its turn.
    client.say([get("/4"), fields("content-length: x"), get("/smuggled")].concat());
    assert_eq!(client.hear().unwrap().body, "/4 ");
    assert_eq!(client.hear().unwrap().status, 400);
    assert_eq!(client.rest(), b"");
    assert_eq!(recorder.requests().len(), 8);
}

/// CVE-2025-4366 of another proxy: an answer without reading the request's body must not leave the body behind as the next
/// request, neither with the client nor with a member.
#[test]
fn a_body_that_nobody_read_is_not_the_next_request() {
    let recorder = Recorder::start();
    let mut site = Site::new("shop.test", &[recorder.address]);
    site.options.max_body = Some(10);
    let front = Front::start(site.table());
    for host in ["shop.test", "nobody.test"] {
        let mut client = front.connect();
        let head = format!("POST / HTTP/1.1\r\nhost: {host}\r\ncontent-length: {}\r\n\r\n", SMUGGLED.len());
        client.say(format!("{head}{SMUGGLED}"));
        let answer = client.hear().unwrap();
        assert_eq!(answer.status, if host == "shop.test" { 413 } else { 404 });
        // Either it is skipped as the body that it is, or the connection ends.
        client.0.write_all_if_open(b"GET /next HTTP/1.1\r\nhost: shop.test\r\nconnection: close\r\n\r\n");
        let rest = String::from_utf8_lossy(&client.rest()).into_owned();
        assert!(rest.is_empty() || rest.contains("/next"), "{rest}");
        let smuggled = recorder.requests().iter().any(|request| request.path() == "/smuggled");
        assert!(!smuggled, "{:?}", recorder.requests());
    }
}

/// A member that answers before it has read a body: its connection is not used again, as the rest of the body would be
/// the next request there.
#[test]
fn a_member_that_answers_early_does_not_get_the_next_request_on_that_connection() {
    let early = scripted(&[
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nearly",
        b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecond",
    ]);
    let front = Front::start(Site::new("shop.test", &[early]).table());
    let mut client = front.connect();
    client.say(format!("{}first half", fields("content-length: 20")));
    assert_eq!(client.hear().unwrap().body, "early");
    let mut other = front.connect();
    other.say("GET /other HTTP/1.1\r\nhost: shop.test\r\n\r\n");
    assert_eq!(other.hear().unwrap().body, "early", "on a connection of its own");
}

/// CVE-2026-2833: what follows a request for another protocol is held back until it was granted, and is a request
/// of the client's, seen by us, where it was not.
#[test]
fn nothing_follows_an_upgrade_that_was_not_granted() {
    let recorder = Recorder::start();
    let front = Front::start(Site::new("shop.test", &[recorder.address]).table());
    let mut client = front.connect();
    let upgrade = "GET /first HTTP/1.1\r\nhost: shop.test\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    client.say(format!("{upgrade}GET /second HTTP/1.1\r\nhost: other.test\r\n\r\n"));
    let answer = client.hear().unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, "/first "));
    // The second is judged like any other: that host is nobody's.
    let answer = client.hear().unwrap();
    assert_eq!((answer.status, answer.code()), (404, Some("NoRoute")));
    let seen = recorder.requests();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(seen[0].header("upgrade"), Some("websocket"));
}

/// A member that changed to HTTP/2 would read requests that nobody judged: the wish goes no further.
#[test]
fn nobody_gets_another_http_behind_our_back() {
    let recorder = Recorder::start();
    let front = Front::start(Site::new("shop.test", &[recorder.address]).table());
    for protocol in ["h2c", "H2C", "websocket, h2c", "HTTP/2.0", "TLS/1.0"] {
        let mut client = front.connect();
        client.say(format!(
            "GET /first HTTP/1.1\r\nhost: shop.test\r\nconnection: upgrade, http2-settings\r\nupgrade: {protocol}\r\n\
             http2-settings: AAMAAABkAAQAAP__\r\n\r\nGET /second HTTP/1.1\r\nhost: shop.test\r\n\r\n"
        ));
        assert_eq!(client.hear().unwrap().body, "/first ");
        assert_eq!(client.hear().unwrap().body, "/second ");
        for seen in recorder.requests() {
            assert_eq!(
                (seen.header("upgrade"), seen.header("http2-settings"), seen.header("connection")),
                (None, None, None)
            );
        }
    }
}

/// Answers that two readers could take for different things are no answers.
#[test]
fn ambiguous_answers_are_not_carried() {
    for answer in [
        &[&b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!"[..]][..],
        &[b"HTTP/1.1 200 OK\r\ncontent-length: +5\r\n\r\nhello"],
        &[b"HTTP/1.1 200 OK\r\nx: y\r\n folded: z\r\ncontent-length: 0\r\n\r\n"],
        &[b"HTTP/1.1 200 OK\r\nx y: z\r\ncontent-length: 0\r\n\r\n"],
        &[b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n"],
        &[b"nonsense\r\n\r\n"],
    ] {
        let front =
            Front::start(Site::new("shop.test", &[scripted(Box::leak(answer.to_vec().into_boxed_slice()))]).table());
        let mut client = front.connect();
        client.say("POST / HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 0\r\n\r\n");
        let got = client.hear().unwrap();
        assert_eq!((got.status, got.code()), (502, Some("NoAnswer")), "{answer:?}");
    }
}

trait WriteIfOpen {
    fn write_all_if_open(&mut self, octets: &[u8]);
}

impl WriteIfOpen for std::net::TcpStream {
    fn write_all_if_open(&mut self, octets: &[u8]) {
        use std::io::Write as _;
        let _ = self.write_all(octets);
    }
}
