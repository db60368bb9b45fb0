//! What follows a change of protocol: octets both ways, until one side ends it or neither says anything.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};

use crate::exchange::Exchange;
use crate::upstream::Lease;

/// Each way: messages are small, and there may be thousands of tunnels.
const BUFFER: usize = 8 << 10;

pub(crate) struct Ends {
    pub(crate) client: OnUpgrade,
    pub(crate) member: OnUpgrade,
    /// Held for as long: it is nobody else's again.
    pub(crate) lease: Lease,
}

/// In a task of its own: the connection's is over when its protocol changes.
pub(crate) fn carry(ends: Ends, mut exchange: Exchange, idle: Duration) {
    tokio::spawn(async move {
        let Ends { client, member, lease } = ends;
        let (Ok(client), Ok(member)) = tokio::join!(client, member) else { return exchange.broke() };
        let moved = Arc::new(AtomicU64::new(0));
        let mut client = Watched { io: TokioIo::new(client), moved: Arc::clone(&moved) };
        let mut member = TokioIo::new(member);
        tokio::select! {
            ended = copy_bidirectional_with_sizes(&mut client, &mut member, BUFFER, BUFFER) => match ended {
                Ok((_, sent)) => exchange.sent(usize::try_from(sent).unwrap_or(usize::MAX)),
                Err(_) => exchange.broke(),
            },
            () = silence(&moved, idle) => exchange.broke(),
        }
        drop(lease);
    });
}

/// After a while in which nothing moved: between one and two times the given one.
async fn silence(moved: &AtomicU64, idle: Duration) {
    let mut before = None;
    loop {
        let now = moved.load(Ordering::Relaxed);
        if before.replace(now) == Some(now) {
            return;
        }
        tokio::time::sleep(idle).await;
    }
}

/// Counts whatever moves, either way.
struct Watched<S> {
    io: S,
    moved: Arc<AtomicU64>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let watched = self.get_mut();
        let polled = Pin::new(&mut watched.io).poll_read(cx, buf);
        if polled.is_ready() {
            watched.moved.fetch_add(1, Ordering::Relaxed);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        let watched = self.get_mut();
        let polled = Pin::new(&mut watched.io).poll_write(cx, octets);
        if polled.is_ready() {
            watched.moved.fetch_add(1, Ordering::Relaxed);
        }
        polled
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}
