//! Carries bytes between two sockets until both directions have ended.
//!
//! A side that ends its stream has that end passed on, and goes on receiving: `kubectl exec` and the like depend on it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, copy_bidirectional};
use tokio::net::TcpStream;

use crate::metrics::DoorMetrics;

/// `first` goes to `upstream` before anything else; it is what the client had sent while it was being judged.
pub(crate) async fn relay(
    client: TcpStream,
    mut upstream: TcpStream,
    first: Vec<u8>,
    metrics: &DoorMetrics,
) -> io::Result<()> {
    upstream.write_all(&first).await?;
    metrics.to_upstream.inc_by(first.len() as u64);
    drop(first);
    let mut client = Counted { stream: client, received: &metrics.to_upstream };
    let mut upstream = Counted { stream: upstream, received: &metrics.to_client };
    copy_bidirectional(&mut client, &mut upstream).await.map(|_| ())
}

/// Counts while the connection lives: an API server's watches last for hours.
struct Counted<'a> {
    stream: TcpStream,
    received: &'a Counter,
}

impl AsyncRead for Counted<'_> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.received.inc_by((buffer.filled().len() - before) as u64);
        outcome
    }
}

impl AsyncWrite for Counted<'_> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
