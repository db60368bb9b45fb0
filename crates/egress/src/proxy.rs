//! A proxy beside the API server, in its pod: `CONNECT` on a Unix socket, or on loopback as an `HTTPS_PROXY`, and from there to the
//! gateways with the pod's own certificate. So kube-apiserver needs no certificate, which it would not read again, and finds
//! another gateway when one is lost.

use std::fs;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::carry::{Carried, HOLD, carry};
use crate::client::Gateways;
use crate::head::{self, ESTABLISHED, Request};
use crate::metrics::Metrics;
use crate::refusal::Refusal;
use crate::socket;

/// Of one pod: as many as the gateways give a cluster. Above, the next one waits.
pub(crate) const MAX_CONNECTIONS: usize = 2048;
/// Accepting fails when descriptors are used up, and would fail again at once.
const AFTER_FAILURE: Duration = Duration::from_millis(100);
/// What a socket is called until it has its rights.
const NEW: &str = "new";

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("listening on {}", path.display())]
    Socket { path: PathBuf, source: io::Error },
    #[error("{} is there and no socket; it is not removed", .0.display())]
    NoSocket(PathBuf),
    #[error("another process serves {}", .0.display())]
    Served(PathBuf),
    #[error("listening on {address}")]
    Address { address: SocketAddr, source: io::Error },
    /// Whoever reaches it gets into the cluster.
    #[error("{0} is no loopback address: without TLS the proxy is for its own pod alone")]
    NotLoopback(SocketAddr),
}

/// Where the pod finds its proxy.
#[derive(Default)]
pub struct Listeners {
    socket: Option<(UnixListener, PathBuf)>,
    loopback: Option<TcpListener>,
}

impl Listeners {
    /// Within a tokio runtime. `mode` is of the socket: who may connect.
    pub fn open(socket: Option<(&Path, u32)>, loopback: Option<SocketAddr>) -> Result<Self, OpenError> {
        let loopback = loopback.map(open_loopback).transpose()?;
        let socket = socket.map(|(path, mode)| open_socket(path, mode).map(|socket| (socket, path.to_owned())));
        Ok(Self { socket: socket.transpose()?, loopback })
    }

    /// The address with the port that was given.
    pub fn address(&self) -> Option<SocketAddr> {
        self.loopback.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Carries until `stop`; what is open then has `drain` to end.
    pub async fn serve(self, gateways: Arc<Gateways>, metrics: Metrics, stop: CancellationToken, drain: Duration) {
        let (connections, end) = (TaskTracker::new(), CancellationToken::new());
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let go = |client: Client, place| {
            let (gateways, metrics, end) = (Arc::clone(&gateways), metrics.clone(), end.clone());
            connections.spawn(async move {
                let _counted = metrics.connection();
                match client {
                    Client::Socket(client) => end.run_until_cancelled(serve(client, &gateways, &metrics)).await,
                    Client::Loopback(client) => end.run_until_cancelled(serve(client, &gateways, &metrics)).await,
                };
                drop(place);
            });
        };
        let from_socket = async {
            let Some((listener, _)) = &self.socket else { return pending().await };
            accept(&places, || async { Ok(Client::Socket(listener.accept().await?.0)) }, go).await;
        };
        let from_loopback = async {
            let Some(listener) = &self.loopback else { return pending().await };
            let next = || async {
                let (client, _) = listener.accept().await?;
                socket::prepare(&client);
                Ok(Client::Loopback(client))
            };
            accept(&places, next, go).await;
        };
        tokio::select! {
            () = from_socket => {}
            () = from_loopback => {}
            () = stop.cancelled() => {}
        }
        self.close();
        connections.close();
        tokio::select! {
            () = connections.wait() => return,
            () = sleep(drain) => end.cancel(),
        }
        connections.wait().await;
    }

    /// Removes the socket, unless it is another process's by now.
    fn close(self) {
        let Some((listener, path)) = self.socket else { return };
        drop(listener);
        if std::os::unix::net::UnixStream::connect(&path).is_err() {
            let _ = fs::remove_file(path);
        }
    }
}

enum Client {
    Socket(UnixStream),
    Loopback(TcpStream),
}

/// One by one, and no more than there are places.
pub(crate) async fn accept<S, F>(
    places: &Arc<Semaphore>,
    next: impl Fn() -> F,
    go: impl Fn(S, tokio::sync::OwnedSemaphorePermit),
) where
    F: Future<Output = io::Result<S>>,
{
    loop {
        let Ok(place) = Arc::clone(places).acquire_owned().await else { return };
        match next().await {
            Ok(stream) => go(stream, place),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(AFTER_FAILURE).await;
            }
        }
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(mut client: S, gateways: &Gateways, metrics: &Metrics) {
    let (target, rest, stream, answered) = match open(&mut client, gateways).await {
        Ok(opened) => opened,
        Err(refusal) => {
            metrics.count(refusal.label());
            tracing::warn!(code = refusal.code(), reason = %refusal, "connection refused");
            return refusal.tell(&mut client).await;
        }
    };
    metrics.count("Ok");
    tracing::debug!(destination = %target, "connected");
    let carried = Carried::default();
    let carrying = async {
        client.write_all(ESTABLISHED).await?;
        client.flush().await?;
        carry(client, stream, (rest, answered), HOLD, &carried).await
    };
    // A peer that goes away is nothing to speak of.
    let _ = carrying.await;
    metrics.carried(&carried);
}

type Opened = (tunnel::Target, Bytes, tokio_rustls::client::TlsStream<TcpStream>, Bytes);

async fn open<S: AsyncRead + Unpin>(client: &mut S, gateways: &Gateways) -> Result<Opened, Refusal> {
    // What is forbidden is for the gateway to say, which writes it down.
    let Request { target, rest } = head::read_request(client).await?;
    let (stream, answered) = gateways.connect(&target).await?;
    Ok((target, rest, stream, answered))
}

fn open_loopback(address: SocketAddr) -> Result<TcpListener, OpenError> {
    if !address.ip().is_loopback() {
        return Err(OpenError::NotLoopback(address));
    }
    bind(address).map_err(|source| OpenError::Address { address, source })
}

pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = std::net::TcpListener::bind(address)?;
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket)
}

/// Takes the place of a socket that an earlier process left. It has its rights before anybody can find it.
fn open_socket(path: &Path, mode: u32) -> Result<UnixListener, OpenError> {
    let failed = |source| OpenError::Socket { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(OpenError::NoSocket(path.to_owned())),
        Ok(_) if std::os::unix::net::UnixStream::connect(path).is_ok() => {
            return Err(OpenError::Served(path.to_owned()));
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{}.{NEW}", std::process::id()));
    let new = PathBuf::from(new);
    let _ = fs::remove_file(&new);
    let open = || {
        let listener = UnixListener::bind(&new)?;
        fs::set_permissions(&new, fs::Permissions::from_mode(mode))?;
        fs::rename(&new, path)?;
        Ok(listener)
    };
    open().map_err(|error| {
        let _ = fs::remove_file(&new);
        failed(error)
    })
}
