use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use proptest::prelude::*;
use tokio::io::ReadBuf;

use super::*;

/// Gives its octets in pieces of these lengths, the last one over and over, and then ends.
struct Pieces<'a> {
    octets: &'a [u8],
    lengths: Vec<usize>,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let length = if self.lengths.len() > 1 { self.lengths.remove(0) } else { self.lengths[0] };
        let (piece, rest) = self.octets.split_at(length.min(self.octets.len()).min(buffer.remaining()));
        buffer.put_slice(piece);
        self.octets = rest;
        Poll::Ready(Ok(()))
    }
}

fn read_in(octets: &[u8], lengths: Vec<usize>) -> Result<Request, Refusal> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(read_request(&mut Pieces { octets, lengths }))
}

fn request(text: &str) -> Result<String, Refusal> {
    read_in(text.as_bytes(), vec![PIECE]).map(|request| request.target.to_string())
}

#[test]
fn a_connect_names_a_host_and_a_port() {
    // As kube-apiserver, curl and Go's own client write it.
    for (head, target) in [
        ("CONNECT 10.10.0.7:443 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "10.10.0.7:443"),
        (
            "CONNECT hook.shop.svc:8443 HTTP/1.1\r\nHost: hook.shop.svc:8443\r\nUser-Agent: curl/8.5.0\r\n\
             Proxy-Connection: Keep-Alive\r\n\r\n",
            "hook.shop.svc:8443",
        ),
        (
            "CONNECT [fd00::1]:443 HTTP/1.1\r\nHost: [fd00::1]:443\r\nUser-Agent: Go-http-client/1.1\r\n\r\n",
            "[fd00::1]:443",
        ),
        ("CONNECT a.example:1 HTTP/1.0\r\n\r\n", "a.example:1"),
        ("CONNECT a.example:1 HTTP/1.1\r\nhost:\r\ncontent-length: 0\r\n\r\n", "a.example:1"),
    ] {
        assert_eq!(request(head).as_deref(), Ok(target), "{head}");
    }
}

#[test]
fn what_is_no_connect_is_told_why() {
    let malformed = |head: &str| match request(head) {
        Err(Refusal::Malformed(_)) => true,
        other => panic!("{head:?}: {other:?}"),
    };
    for head in [
        "x",
        "\r\n\r\n",
        "CONNECT a:1\r\n\r\n",
        "CONNECT  a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT a:1 HTTP/1.1 \r\nHost: a\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\nHost: a\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\nHost : a\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\nHost: a\r\nnothing\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        "CONNECT a:1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "CONNECT a:1 TTP/1.1\r\nHost: a\r\n\r\n",
        "C(NNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01",
        "CONNECT a:1 HTTP/1.1\r\nHost: a\0\r\n\r\n",
    ] {
        assert!(malformed(head));
    }
    for (head, refusal) in [
        ("", Refusal::Silent),
        ("GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", Refusal::MethodNotCarried),
        ("connect a:1 HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::MethodNotCarried),
        ("CONNECT a:1 HTTP/2.0\r\nHost: a\r\n\r\n", Refusal::Version),
        ("CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::BadTarget),
        ("CONNECT a:0 HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::BadTarget),
        ("CONNECT a:65536 HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::BadTarget),
        ("CONNECT :443 HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::BadTarget),
        ("CONNECT fd00::1:443 HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::BadTarget),
        ("CONNECT user@a:443 HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::BadTarget),
        ("CONNECT https://a:443 HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::BadTarget),
        ("CONNECT /v1 HTTP/1.1\r\nHost: a\r\n\r\n", Refusal::BadTarget),
    ] {
        assert_eq!(request(head), Err(refusal), "{head}");
    }
}

#[test]
fn a_head_has_8_kib_and_not_an_octet_more() {
    let head = |length: usize| {
        let begin = "CONNECT a.example:1 HTTP/1.1\r\nHost: a\r\nX: ";
        format!("{begin}{}\r\n\r\n", "x".repeat(length - begin.len() - 4))
    };
    assert_eq!(head(MAX_HEAD).len(), MAX_HEAD);
    assert!(request(&head(MAX_HEAD)).is_ok());
    assert_eq!(request(&head(MAX_HEAD + 1)), Err(Refusal::HeadTooLarge));
    assert_eq!(request(&"x".repeat(1 << 20)), Err(Refusal::HeadTooLarge), "without an end");
}

#[tokio::test(start_paused = true)]
async fn a_slow_head_is_refused_by_the_whole_time_and_not_by_pauses() {
    let (mut client, mut ours) = tokio::io::duplex(64);
    let sending = tokio::spawn(async move {
        for octet in b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n" {
            tokio::io::AsyncWriteExt::write_all(&mut client, &[*octet]).await.ok()?;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Some(client)
    });
    let begun = tokio::time::Instant::now();
    assert_eq!(read_request(&mut ours).await, Err(Refusal::HeadTooSlow));
    assert_eq!(begun.elapsed().as_secs(), HEAD_WITHIN.as_secs());
    sending.abort();
}

#[test]
fn answers_of_proxies_are_read_as_strictly() {
    let parse = |head: &str| parse_answer(head.as_bytes());
    let answer = parse("HTTP/1.1 403 no such thing\r\nFleetgate-Refusal: ForbiddenTarget\r\n\r\n").unwrap();
    assert_eq!((answer.status, answer.phrase.as_str()), (403, "no such thing"));
    assert_eq!(answer.code.as_deref(), Some("ForbiddenTarget"));
    assert_eq!(parse("HTTP/1.0 200\r\n\r\n").map(|answer| answer.status), Ok(200));
    for wrong in ["HTTP/2 200 OK\r\n\r\n", "HTTP/1.1 20 OK\r\n\r\n", "HTTP/1.1 +20 OK\r\n\r\n", "SSH-2.0-x\r\n\r\n"] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}

/// A second reader of heads.
fn by_another(head: &[u8]) -> Option<String> {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut fields);
    let whole = request.parse(head).is_ok_and(|status| status == httparse::Status::Complete(head.len()));
    (whole && request.method == Some("CONNECT")).then(|| request.path.unwrap_or_default().to_ascii_lowercase())
}

/// Pieces of heads, good and bad.
fn piece() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "CONNECT ",
        "GET ",
        "a.example:1",
        "[fd00::1]:443",
        " ",
        " HTTP/1.1",
        "HTTP/1.0",
        "\r\n",
        "\n",
        "\r",
        "Host: a",
        "Host : a",
        "X: y",
        ":",
        "Content-Length: 0",
        "Content-Length: 5",
        "Transfer-Encoding: chunked",
        "\t",
        "\0",
        "\u{e9}",
        "folded",
    ])
}

proptest! {
    /// What is taken here another reader takes too, to the same end and for the same place.
    #[test]
    fn another_reader_agrees(pieces in prop::collection::vec(piece(), 0..16), good in any::<bool>()) {
        let begin = if good { "CONNECT a.example:1 HTTP/1.1\r\nHost: a\r\n" } else { "" };
        let head = format!("{begin}{}\r\n\r\n", pieces.concat());
        if let Ok(target) = parse_request(head.as_bytes()) {
            prop_assert_eq!(by_another(head.as_bytes()), Some(target.to_string()), "{:?}", head);
        }
    }

    /// Nothing that comes makes it panic, and how it is cut changes nothing.
    #[test]
    fn cuts_change_nothing(octets in prop::collection::vec(any::<u8>(), 0..200), cuts in prop::collection::vec(1_usize..40, 1..8)) {
        // Garbage may be refused earlier or later, for one reason or the other.
        prop_assert_eq!(read_in(&octets, cuts).is_ok(), read_in(&octets, vec![PIECE]).is_ok());
    }

    /// What follows the head is carried on, all of what came and in order.
    #[test]
    fn what_follows_is_kept(rest in prop::collection::vec(any::<u8>(), 0..300), cuts in prop::collection::vec(1_usize..90, 1..6)) {
        let head = b"CONNECT hook.shop.svc:443 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
        let all = [&head[..], &rest].concat();
        let mut pieces = Pieces { octets: &all, lengths: cuts };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let request = runtime.block_on(read_request(&mut pieces)).unwrap();
        prop_assert_eq!([&request.rest[..], pieces.octets].concat(), rest);
        prop_assert_eq!(request.target.to_string(), "hook.shop.svc:443");
    }
}
