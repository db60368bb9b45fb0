use super::*;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, ReadBuf};

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

proptest! {
    /// However the octets come, the same of them pass, and for the same reason no more.
    #[test]
    fn pieces_do_not_matter(parts in proptest::collection::vec(piece(), 0..30), sizes in proptest::collection::vec(1_usize..6, 0..200)) {
        let octets = parts.concat().into_bytes();
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
