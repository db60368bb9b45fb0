use super::*;
use http_body_util::BodyExt as _;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadBuf};

/// Gives octets in pieces of the given sizes, and then the end.
struct Pieces {
    octets: Vec<u8>,
    sizes: Vec<usize>,
}

impl AsyncRead for Pieces {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let size = self.sizes.pop().unwrap_or(usize::MAX).min(self.octets.len()).min(buf.remaining());
        let piece: Vec<u8> = self.octets.drain(..size).collect();
        buf.put_slice(&piece);
        Poll::Ready(Ok(()))
    }
}

/// What hyper would read, and why no more.
fn guarded(octets: &[u8], sizes: Vec<usize>) -> (Vec<u8>, Option<Refusal>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let line = Arc::new(Line::default());
        let hour = Duration::from_hours(1);
        let patience = Patience { opening: Instant::now() + hour, head: hour, idle: hour };
        let mut guard =
            Guard::new(Pieces { octets: octets.to_vec(), sizes }, BytesMut::new(), patience, Arc::clone(&line));
        // Whoever asks for another protocol is told no.
        line.decide(false);
        let mut read = Vec::new();
        let mut buffer = [0; 7];
        loop {
            let more = tokio::select! {
                biased;
                more = guard.read(&mut buffer) => more,
                // Nothing comes any more: it waits for the refusal to be answered, or for a word about a protocol.
                () = std::future::ready(()) => {
                    if guard.state == State::Held {
                        line.decide(false);
                        continue;
                    }
                    break;
                }
            };
            match more {
                Ok(0) | Err(_) => break,
                Ok(count) => read.extend_from_slice(&buffer[..count]),
            }
        }
        let said = line.lock();
        (read, said.refused.as_ref().map(|(_, refusal)| refusal.clone()).or(said.fault.clone()))
    })
}

#[test]
fn only_whole_and_plain_requests_pass() {
    let get = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    let upgrade = "GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
    let chunked = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let sized = "POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nhello";
    let all = [get, upgrade, chunked, "\r\n", sized, get].concat();
    let (read, refusal) = guarded(all.as_bytes(), Vec::new());
    assert_eq!((String::from_utf8(read).unwrap(), refusal), ([get, upgrade, chunked, sized, get].concat(), None));

    let bad = "GET / HTTP/1.1\r\ncontent-length: x\r\n\r\n";
    let (read, refusal) = guarded([get, bad, get].concat().as_bytes(), Vec::new());
    assert_eq!(String::from_utf8(read).unwrap(), [get, std::str::from_utf8(STAND_IN).unwrap()].concat());
    assert_eq!(refusal, Some(head::Malformed::Length.into()));

    // Half a head does not.
    let (read, refusal) = guarded([get, &get[..20]].concat().as_bytes(), Vec::new());
    assert_eq!((String::from_utf8(read).unwrap().as_str(), refusal), (get, None));
}

fn piece() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "GET / HTTP/1.1\r\n",
        "POST / HTTP/1.1\r\n",
        "host: a\r\n",
        "content-length: 3\r\n",
        "content-length: x\r\n",
        "transfer-encoding: chunked\r\n",
        "connection: upgrade\r\nupgrade: x\r\n",
        "\r\n",
        "\n",
        "\r",
        "3\r\nabc\r\n",
        "0\r\n\r\n",
        "abc",
        "x: y\r\n",
        " z\r\n",
        "\0",
    ])
}

/// How many requests hyper sees behind the guard, with their bodies, and how many the guard let pass.
fn both(octets: &[u8]) -> (Vec<Vec<u8>>, u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let line = Arc::new(Line::default());
        let (mut client, server) = tokio::io::duplex(1 << 20);
        let day = Duration::from_hours(24);
        let patience = Patience { opening: Instant::now() + day, head: day, idle: day };
        let guard = Guard::new(server, BytesMut::new(), patience, Arc::clone(&line));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let service = hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| {
            let (line, seen) = (Arc::clone(&line), Arc::clone(&seen));
            async move {
                let stands_in = line.begin().is_some();
                let number = seen.lock().unwrap().len();
                seen.lock().unwrap().push(Vec::new());
                if let (false, Ok(body)) = (stands_in, request.into_body().collect().await) {
                    seen.lock().unwrap()[number] = body.to_bytes().to_vec();
                }
                line.decide(false);
                line.end();
                Ok::<_, std::convert::Infallible>(http::Response::new(http_body_util::Empty::<bytes::Bytes>::new()))
            }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(hyper_util::rt::TokioTimer::new())
            .header_read_timeout(None)
            .serve_connection(hyper_util::rt::TokioIo::new(guard), service);
        client.write_all(octets).await.unwrap();
        // The clock moves once nothing else does: both have read all that they can.
        let _ = tokio::time::timeout(Duration::from_hours(1), connection).await;
        drop(client);
        let heads = line.lock().heads;
        (Arc::into_inner(seen).unwrap().into_inner().unwrap(), heads)
    })
}

#[test]
fn hyper_and_the_guard_agree_on_what_a_request_is() {
    let get = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    let sized = "POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc";
    let chunked = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\n\r\n";
    let (seen, heads) = both([get, sized, chunked, get].concat().as_bytes());
    assert_eq!((seen, heads), (vec![vec![], b"abc".to_vec(), b"abc".to_vec(), vec![]], 4));
}

proptest! {
    /// Two readers behind each other that disagree on where a request ends are what smuggling needs.
    #[test]
    fn hyper_never_sees_another_number_of_requests(parts in proptest::collection::vec(piece(), 0..30)) {
        let (seen, heads) = both(&parts.concat().into_bytes());
        prop_assert_eq!(seen.len() as u64, heads);
    }

    /// However the octets come, the same of them pass, and for the same reason no more.
    #[test]
    fn pieces_do_not_matter(parts in proptest::collection::vec(piece(), 0..30), sizes in proptest::collection::vec(1_usize..6, 0..200)) {
        // With lines that end: nobody looks at half a line before its end has come.
        let octets = (parts.concat() + "\r\n\r\n").into_bytes();
        let whole = guarded(&octets, Vec::new());
        let pieces = guarded(&octets, sizes);
        // A body may have passed in part before its fault was seen.
        let shorter = pieces.0.len().min(whole.0.len());
        prop_assert_eq!(&pieces.0[..shorter], &whole.0[..shorter]);
        // Which of two faults is seen first may differ.
        prop_assert_eq!(pieces.1.as_ref().map(Refusal::code), whole.1.as_ref().map(Refusal::code));
        if !matches!(whole.1, Some(Refusal::MalformedRequest(head::Malformed::Chunk))) {
            prop_assert_eq!(pieces.0.len(), whole.0.len());
        }
    }
}
