//! Whether the other end of a link is still there.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// From one question to the next.
const INTERVAL: Duration = Duration::from_secs(1);
/// For a sign of life after it. Together a dead link is noticed within 3 s.
const PATIENCE: Duration = Duration::from_secs(2);
/// Who has not answered by then is asked last.
const SUSPECT: Duration = Duration::from_millis(400);

/// When something was last heard, whatever it was. An answer may stand behind megabytes that are on their way.
#[derive(Debug)]
pub(crate) struct Heard {
    start: Instant,
    /// Milliseconds since then.
    last: AtomicU64,
    suspect: watch::Sender<bool>,
}

impl Heard {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { start: Instant::now(), last: AtomicU64::new(0), suspect: watch::Sender::new(false) })
    }

    fn now(&self) {
        let elapsed = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(elapsed, Ordering::Relaxed);
    }

    fn last(&self) -> Instant {
        self.start + Duration::from_millis(self.last.load(Ordering::Relaxed))
    }

    /// Whether an answer is overdue.
    pub(crate) fn is_suspect(&self) -> bool {
        *self.suspect.borrow()
    }

    /// Returns once one is.
    pub(crate) async fn until_suspect(&self) {
        // The sender is this value itself.
        let _ = self.suspect.subscribe().wait_for(|suspect| *suspect).await;
    }
}

/// Asks for ever; returns once there is no answer, and nothing else, for too long. The connection has to be polled before
/// this in the same task: a process that slept first hears what has come meanwhile.
pub(crate) async fn until_silent(mut pings: PingPong, heard: &Heard) {
    loop {
        sleep(INTERVAL).await;
        let asked = Instant::now();
        let pong = pings.ping(Ping::opaque());
        tokio::pin!(pong);
        let mut answer = timeout_at(asked + SUSPECT, &mut pong).await;
        if answer.is_err() {
            heard.suspect.send_replace(heard.last() < asked);
            answer = loop {
                let deadline = heard.last().max(asked) + PATIENCE;
                tokio::select! {
                    biased;
                    answer = &mut pong => break Ok(answer),
                    () = sleep_until(deadline) => if heard.last().max(asked) + PATIENCE <= deadline { return },
                }
            };
        }
        heard.suspect.send_if_modified(std::mem::take);
        if !matches!(answer, Ok(Ok(_))) {
            // The connection says itself how it ended.
            std::future::pending::<()>().await;
        }
    }
}

/// A connection whose every sign of life is noted.
pub(crate) struct Watched<S> {
    inner: S,
    heard: Arc<Heard>,
}

impl<S> Watched<S> {
    pub(crate) fn new(inner: S, heard: Arc<Heard>) -> Self {
        Self { inner, heard }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, into))?;
        if into.filled().len() > before {
            self.heard.now();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}
