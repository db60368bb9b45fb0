//! Octets both ways, with each direction's end of its own.

use std::future::pending;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf, split};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

/// How long the target's first octets wait for the client's: kube-apiserver takes an octet that it reads together with the
/// answer's head for a broken proxy. Whoever speaks TLS or HTTP speaks first; for protocols in which the server does, this is short.
pub(crate) const HOLD: Duration = Duration::from_millis(100);
/// What a reader waits with: most connections rest most of the time.
const SMALLEST: usize = 4 << 10;
/// And what it takes at once where much comes: a frame of the tunnel, or four TLS records.
const LARGEST: usize = 64 << 10;
/// One direction may end long before the other (RFC 9110 9.3.6 has both end at once, TCP and `nc` do not). A client whose whole
/// connection is gone looks the same on a Unix socket, so that silence after it has an end; without half-close it has none.
const HALF_CLOSED: Duration = Duration::from_mins(15);

/// What was carried.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    /// From the client to the target.
    pub(crate) up: AtomicU64,
    pub(crate) down: AtomicU64,
}

/// Until both directions have ended, or one failed, or nothing came for too long behind a half-close. `first` is what the client sent already, and
/// `answered` what came from the target already; `hold` says that the target's octets must not come together with what was said before.
pub(crate) async fn carry<C, T>(
    client: C,
    target: T,
    (first, answered): (Bytes, Bytes),
    hold: Duration,
    carried: &Carried,
) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite,
    T: AsyncRead + AsyncWrite,
{
    let (from_client, to_client) = split(client);
    let (from_target, to_target) = split(target);
    let spoken = Notify::new();
    let (ended, half) = watch::channel(false);
    if !first.is_empty() {
        spoken.notify_one();
    }
    let up = async {
        let way = Way { first, on_first: Some(&spoken), count: &carried.up, half: half.clone() };
        let done = way.go(from_client, to_target).await;
        let _ = ended.send(true);
        done
    };
    let down = async {
        let _ = timeout(hold, spoken.notified()).await;
        let way = Way { first: answered, on_first: None, count: &carried.down, half: half.clone() };
        let done = way.go(from_target, to_client).await;
        let _ = ended.send(true);
        done
    };
    tokio::try_join!(up, down).map(|_| ())
}

/// One direction.
struct Way<'a> {
    first: Bytes,
    /// Told when the first octet comes.
    on_first: Option<&'a Notify>,
    count: &'a AtomicU64,
    /// Whether the other direction has ended.
    half: watch::Receiver<bool>,
}

impl Way<'_> {
    async fn go<R: AsyncRead, W: AsyncWrite>(mut self, mut from: ReadHalf<R>, mut to: WriteHalf<W>) -> io::Result<()> {
        if !self.first.is_empty() {
            self.send(&mut to, &self.first).await?;
            self.first = Bytes::new();
        }
        let mut buffer = vec![0; SMALLEST];
        loop {
            let read = tokio::select! {
                read = from.read(&mut buffer) => read?,
                () = silence(&mut self.half) => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "silence after a half-close"));
                }
            };
            if let Some(first) = self.on_first.take() {
                first.notify_one();
            }
            if read == 0 {
                return to.shutdown().await;
            }
            self.send(&mut to, &buffer[..read]).await?;
            if read == buffer.len() && read < LARGEST {
                buffer.resize(read * 4, 0);
            } else if read < SMALLEST && buffer.len() > SMALLEST {
                buffer.truncate(SMALLEST);
                buffer.shrink_to_fit();
            }
        }
    }

    async fn send<W: AsyncWrite>(&self, to: &mut WriteHalf<W>, octets: &[u8]) -> io::Result<()> {
        to.write_all(octets).await?;
        // TLS keeps octets back that the socket did not take.
        to.flush().await?;
        self.count.fetch_add(octets.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// Ends when the other direction has been over for as long as one may be silent then.
async fn silence(half: &mut watch::Receiver<bool>) {
    if half.wait_for(|ended| *ended).await.is_err() {
        return pending().await;
    }
    sleep(HALF_CLOSED).await;
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    fn nothing() -> (Bytes, Bytes) {
        (Bytes::new(), Bytes::new())
    }

    async fn read(from: &mut (impl AsyncRead + Unpin), octets: usize) -> Vec<u8> {
        let mut read = vec![0; octets];
        from.read_exact(&mut read).await.unwrap();
        read
    }

    #[tokio::test(start_paused = true)]
    async fn either_direction_ends_by_itself() {
        let ((mut client, ours), (theirs, mut target)) = (duplex(64), duplex(64));
        let carried = Carried::default();
        let talk = async {
            client.write_all(b"question").await.unwrap();
            client.shutdown().await.unwrap();
            let mut question = Vec::new();
            target.read_to_end(&mut question).await.unwrap();
            assert_eq!(question, b"question");
            // Long after the client's end, and in pieces with pauses.
            for _ in 0..3 {
                sleep(HALF_CLOSED / 2).await;
                target.write_all(b"answer").await.unwrap();
            }
            assert_eq!(read(&mut client, 18).await, b"answeransweranswer");
            target.shutdown().await.unwrap();
            assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        };
        let (done, ()) = tokio::join!(carry(ours, theirs, nothing(), HOLD, &carried), talk);
        done.unwrap();
        assert_eq!((carried.up.into_inner(), carried.down.into_inner()), (8, 18));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_has_an_end_behind_a_half_close_alone() {
        let ((mut client, ours), (theirs, target)) = (duplex(64), duplex(64));
        let carried = Carried::default();
        let mut carrying = Box::pin(carry(ours, theirs, nothing(), HOLD, &carried));
        assert!(timeout(100 * HALF_CLOSED, &mut carrying).await.is_err(), "it may rest as long as it wants");
        client.shutdown().await.unwrap();
        let error = timeout(2 * HALF_CLOSED, carrying).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(target);
    }

    #[tokio::test(start_paused = true)]
    async fn the_targets_first_octets_wait_for_the_clients() {
        let ((mut client, ours), (theirs, mut target)) = (duplex(64), duplex(64));
        let carried = Carried::default();
        target.write_all(b"hello").await.unwrap();
        let begun = tokio::time::Instant::now();
        let greeted = async {
            assert_eq!(read(&mut client, 5).await, b"hello");
            assert_eq!(begun.elapsed(), HOLD, "a server that speaks first is heard after a moment");
            drop((client, target));
        };
        let _ = tokio::join!(carry(ours, theirs, nothing(), HOLD, &carried), greeted);

        let ((mut client, ours), (theirs, mut target)) = (duplex(64), duplex(64));
        let begun = tokio::time::Instant::now();
        let asked = async {
            client.write_all(b"?").await.unwrap();
            target.write_all(b"hello").await.unwrap();
            assert_eq!(read(&mut client, 5).await, b"hello");
            assert_eq!(begun.elapsed(), Duration::ZERO, "who speaks first waits for nothing");
            assert_eq!(read(&mut target, 6).await, b"early?");
            drop((client, target));
        };
        let first = (Bytes::from_static(b"early"), Bytes::new());
        let _ = tokio::join!(carry(ours, theirs, first, HOLD, &carried), asked);
    }

    /// One that is lost takes the other side along.
    #[tokio::test(start_paused = true)]
    async fn a_failure_ends_both() {
        let ((client, ours), (theirs, mut target)) = (duplex(64), duplex(64));
        let carried = Carried::default();
        drop(client);
        let talk = async {
            // duplex gives EOF at a drop, and fails on writing.
            assert_eq!(target.read(&mut [0]).await.unwrap(), 0);
            target.write_all(b"for nobody").await.unwrap();
        };
        let (done, ()) = tokio::join!(carry(ours, theirs, nothing(), HOLD, &carried), talk);
        assert!(done.is_err());
    }
}
