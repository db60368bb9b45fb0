//! The way into clusters that have no address outside. Nothing here knows of the tunnel: it is given by whoever has one.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use model::ClusterName;
use model::inside::{Denied, Inner};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A stream that leads inside a cluster. Each direction ends by itself; one that was cut is an error, never an end.
pub trait InnerStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> InnerStream for S {}

/// A connection that is being made.
pub type Reaching = Pin<Box<dyn Future<Output = Result<Box<dyn InnerStream>, Denied>> + Send>>;

/// Begins one.
type Connect = dyn Fn(&Inner, Duration) -> Reaching + Send + Sync;

/// Connects to what is inside clusters.
#[derive(Clone)]
pub struct Inward {
    connect: Arc<Connect>,
    links: Arc<dyn Fn(&ClusterName) -> usize + Send + Sync>,
}

impl Inward {
    /// `connect` is asked within a runtime of ours, and given the time after which nobody waits any more. `links` says by how many
    /// ways a cluster is reached now.
    pub fn new(
        connect: impl Fn(&Inner, Duration) -> Reaching + Send + Sync + 'static,
        links: impl Fn(&ClusterName) -> usize + Send + Sync + 'static,
    ) -> Self {
        Self { connect: Arc::new(connect), links: Arc::new(links) }
    }

    pub(crate) fn links(&self, cluster: &ClusterName) -> usize {
        (self.links)(cluster)
    }

    pub(crate) async fn connect(&self, inner: &Inner, within: Duration) -> Result<Stream, Denied> {
        (self.connect)(inner, within).await.map(Stream::Inside)
    }
}

impl fmt::Debug for Inward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inward")
    }
}

/// A connection to a member, whichever way.
pub(crate) enum Stream {
    Direct(TcpStream),
    Inside(Box<dyn InnerStream>),
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Direct(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Inside(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Direct(stream) => Pin::new(stream).poll_write(cx, octets),
            Self::Inside(stream) => Pin::new(stream).poll_write(cx, octets),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Direct(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            Self::Inside(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Direct(stream) => stream.is_write_vectored(),
            Self::Inside(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Direct(stream) => Pin::new(stream).poll_flush(cx),
            Self::Inside(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Direct(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Inside(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
