//! What the small HTTP servers share that stand beside the doors (`--admin`, `--metrics`, `--agents`, `--admission`, `--peers` and those of
//! agents): how connections begin, and how they end.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, SetOnce};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Accepting fails when descriptors are used up, and would fail again at once.
const AFTER_FAILURE: Duration = Duration::from_millis(100);
/// How long answers that are being sent may take when their connection or the process ends.
const FAREWELL: Duration = Duration::from_secs(2);
/// Who connects asks at once.
const FIRST: Duration = Duration::from_secs(1);

/// A bound listener that has not met its runtime yet.
#[derive(Debug)]
pub struct Bound {
    flag: &'static str,
    socket: std::net::TcpListener,
    address: SocketAddr,
}

#[derive(Debug, thiserror::Error)]
#[error("binding {flag} on {address}")]
pub struct BindError {
    flag: &'static str,
    address: SocketAddr,
    source: io::Error,
}

impl Bound {
    /// `flag` is what people call it.
    pub fn bind(flag: &'static str, address: SocketAddr) -> Result<Self, BindError> {
        let bound = std::net::TcpListener::bind(address).and_then(|socket| Self::adopt(flag, socket.into()));
        bound.map_err(|source| BindError { flag, address, source })
    }

    /// From a listener that another process had bound.
    pub fn adopt(flag: &'static str, socket: OwnedFd) -> io::Result<Self> {
        let socket = std::net::TcpListener::from(socket);
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        Ok(Self { flag, socket, address })
    }

    /// What people call it.
    pub fn flag(&self) -> &'static str {
        self.flag
    }

    /// The listener for another process.
    pub fn share(&self) -> io::Result<OwnedFd> {
        Ok(self.socket.try_clone()?.into())
    }

    /// The address with the port that was given.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Within a tokio runtime. Where it cannot be used the log says why.
    pub fn listen(self) -> Option<TcpListener> {
        let flag = self.flag;
        let listener = TcpListener::from_std(self.socket);
        listener.inspect_err(|error| tracing::error!(%error, "the listener of {flag} cannot be used")).ok()
    }
}

/// Has connections answered until `stop`, so many at once: the next one waits. Returns when the last one has ended, each of
/// which hears of `stop` by itself. `flag` is what the log calls the listener.
pub async fn accept<A>(
    listener: TcpListener,
    flag: &str,
    at_once: usize,
    stop: &CancellationToken,
    answer: impl Fn(TcpStream, SocketAddr) -> A,
) where
    A: Future<Output = ()> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(at_once));
    let connections = TaskTracker::new();
    let accepting = async {
        loop {
            let place = Arc::clone(&places).acquire_owned().await;
            match listener.accept().await {
                Ok((stream, peer)) => {
                    // An answer is one small write: it must not wait for an acknowledgement.
                    let _ = stream.set_nodelay(true);
                    let answered = answer(stream, peer);
                    connections.spawn(async move {
                        answered.await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "{flag} could not accept a connection");
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            }
        }
    };
    stop.run_until_cancelled(accepting).await;
    drop(listener);
    connections.close();
    connections.wait().await;
}

/// HTTP/1.1 in which the head of each request, the time since the last one included, comes within so long.
pub fn http(head_within: Duration) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(head_within);
    http
}

/// All requests of one connection, until `end`; what is being answered then may still be sent, and who came just before may still
/// ask. A client that goes away, or sends what is no HTTP, is nothing to speak of.
pub async fn converse<I, S, B>(http: &http1::Builder, io: I, service: S, end: impl Future<Output = ()>)
where
    I: AsyncRead + AsyncWrite + Unpin,
    S: Service<Request<Incoming>, Response = Response<B>>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let asked = SetOnce::new();
    let service = service_fn(|request| {
        // Only the first one is news.
        let _ = asked.set(());
        service.call(request)
    });
    let mut connection = pin!(http.serve_connection(TokioIo::new(io), service));
    tokio::select! {
        _ = connection.as_mut() => return,
        () = end => {}
    }
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = timeout(FIRST, asked.wait()) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(FAREWELL, connection).await;
}
