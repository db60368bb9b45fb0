//! The sockets: UDP and TCP on one address (RFC 7766 5: a server must have both).

use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::index::Index;
use crate::metrics::Metrics;
use crate::query::{self, Client, Transport};
use crate::settings::Settings;

/// What TCP clients may take from us.
#[derive(Debug, Clone, Copy)]
struct Limits {
    connections: usize,
    idle: Duration,
    write: Duration,
}

const LIMITS: Limits = Limits {
    // Enough for every resolver that retries after a truncated answer. Each holds one file descriptor and, at worst,
    // three buffers of 64 KiB: 200 MiB when all of them are attackers.
    connections: 1024,
    // RFC 7766 6.2.3 asks for seconds. The time counts until a message is complete, so that a client who sends octet by
    // octet gains nothing.
    idle: Duration::from_secs(10),
    // A client that does not take an answer off its socket for this long has gone, or is an attack.
    write: Duration::from_secs(5),
};

/// A question with its OPT stays far below; what is longer is cut by the kernel and then malformed.
const MAX_UDP_REQUEST: usize = 4096;
/// Errors of a socket that do not come from one packet or client (no memory, no file descriptors) pass by themselves;
/// until then the loop must not spin.
const AFTER_ERROR: Duration = Duration::from_millis(20);
/// Port 0: how often another free port is tried when TCP cannot have the one that UDP got. With half of all ports
/// taken, all of these fail once in 65,000 times.
const PORT_ATTEMPTS: usize = 16;
/// Connections that the kernel holds until we accept them: a burst of retries, not a queue to wait in.
const BACKLOG: i32 = 1024;

/// Both sockets of one address, bound but not yet answering.
#[derive(Debug)]
pub struct Listeners {
    udp: UdpSocket,
    tcp: TcpListener,
    address: SocketAddr,
}

/// All of these are for who runs the server to mend.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("binding DNS on {address}: the {protocol} port is in use by another process")]
    InUse { address: SocketAddr, protocol: &'static str },
    #[error("binding DNS on {address}: not permitted; ports below 1024 need CAP_NET_BIND_SERVICE")]
    NotPermitted { address: SocketAddr },
    #[error("binding DNS on {address}: this machine does not have that address")]
    NotOurs { address: SocketAddr },
    #[error("binding DNS on {address}: the {protocol} socket failed: {source}")]
    Failed { address: SocketAddr, protocol: &'static str, source: io::Error },
}

impl Listeners {
    /// Must be called within a tokio runtime. With port 0 both get the same free port.
    ///
    /// On a wildcard address (`0.0.0.0`, `::`) of a machine with several addresses the kernel may send a UDP answer
    /// from another one than was asked; until the source is set per answer, name the addresses one by one.
    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let mut attempts = if address.port() == 0 { PORT_ATTEMPTS } else { 1 };
        loop {
            attempts -= 1;
            match Self::bind_both(address) {
                Err(BindError::InUse { .. }) if attempts > 0 => {}
                result => return result,
            }
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `shutdown`; then lets every connection finish the answer it is writing.
    pub async fn serve(
        self,
        index: Arc<ArcSwap<Index>>,
        settings: Settings,
        metrics: Metrics,
        shutdown: CancellationToken,
    ) {
        let server = Server { index, settings: Arc::new(settings), metrics, shutdown, limits: LIMITS };
        tokio::join!(server.serve_udp(&self.udp), server.serve_tcp(&self.tcp));
    }

    fn bind_both(address: SocketAddr) -> Result<Self, BindError> {
        let udp = bind_udp(address).map_err(|error| BindError::from_io(address, "UDP", error))?;
        let address = udp.local_addr().map_err(|error| BindError::from_io(address, "UDP", error))?;
        let tcp = bind_tcp(address).map_err(|error| BindError::from_io(address, "TCP", error))?;
        Ok(Self { udp, tcp, address })
    }
}

impl BindError {
    fn from_io(address: SocketAddr, protocol: &'static str, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AddrInUse => Self::InUse { address, protocol },
            io::ErrorKind::PermissionDenied => Self::NotPermitted { address },
            io::ErrorKind::AddrNotAvailable => Self::NotOurs { address },
            _ => Self::Failed { address, protocol, source: error },
        }
    }
}

fn bind_udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    UdpSocket::from_std(socket.into())
}

fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // Connections of our predecessor that the kernel still waits for must not keep us from starting.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

#[derive(Clone)]
struct Server {
    index: Arc<ArcSwap<Index>>,
    settings: Arc<Settings>,
    metrics: Metrics,
    shutdown: CancellationToken,
    limits: Limits,
}

impl Server {
    async fn serve_udp(&self, socket: &UdpSocket) {
        let mut request = vec![0; MAX_UDP_REQUEST];
        let mut response = Vec::new();
        loop {
            let received = tokio::select! {
                received = socket.recv_from(&mut request) => received,
                () = self.shutdown.cancelled() => return,
            };
            match received {
                Ok((length, peer)) => {
                    if self.answer(peer, &request[..length], Transport::Udp, &mut response)
                        && let Err(error) = socket.send_to(&response, peer).await
                    {
                        // One client's bad luck: no route to it, a source port of 0, a full queue.
                        tracing::debug!(%peer, %error, "a UDP answer was not sent");
                    }
                }
                Err(error) => self.pause_after(&error).await,
            }
        }
    }

    async fn serve_tcp(&self, listener: &TcpListener) {
        let places = Arc::new(Semaphore::new(self.limits.connections));
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.shutdown.cancelled() => break,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    self.pause_after(&error).await;
                    continue;
                }
            };
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                self.metrics.connections_refused.inc();
                continue;
            };
            let server = self.clone();
            connections.spawn(async move {
                let open = OpenConnection::count(&server.metrics);
                server.serve_connection(stream, peer).await;
                drop((open, place));
            });
        }
        connections.close();
        connections.wait().await;
    }

    /// Answers one client's queries in their order. While an answer waits for the client, no further query is read, so
    /// that one is all there ever is in memory.
    async fn serve_connection(&self, mut stream: TcpStream, peer: SocketAddr) {
        // Answers are written whole; waiting to fill a segment would only delay them.
        let _ = stream.set_nodelay(true);
        let (reader, mut writer) = stream.split();
        let mut reader = BufReader::new(reader);
        let (mut request, mut response, mut framed) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let read = tokio::select! {
                read = timeout(self.limits.idle, read_message(&mut reader, &mut request)) => read,
                () = self.shutdown.cancelled() => return,
            };
            // The client is done, gone, or too slow.
            let Ok(Ok(())) = read else { return };
            // Who sends what deserves no answer speaks something else than DNS.
            if !self.answer(peer, &request, Transport::Tcp, &mut response) {
                return;
            }
            frame(&response, &mut framed);
            let Ok(Ok(())) = timeout(self.limits.write, writer.write_all(&framed)).await else { return };
        }
    }

    /// Whether there is an answer to send.
    fn answer(&self, peer: SocketAddr, request: &[u8], transport: Transport, response: &mut Vec<u8>) -> bool {
        let index = self.index.load();
        let client = Client { address: peer.ip(), transport, now: unix_seconds() };
        let answered =
            catch_unwind(AssertUnwindSafe(|| query::answer(&index, &self.settings, &client, request, response)));
        // A mistake of ours that one query brings to light costs that query its answer, not everybody theirs.
        let outcome = answered.unwrap_or_else(|_| {
            tracing::error!("a query was not answered because of a mistake in this program; please report it");
            None
        });
        self.metrics.count(transport, outcome.as_ref());
        outcome.is_some()
    }

    /// No error ends a loop: what one packet or client caused is forgotten at once, anything else after a moment.
    async fn pause_after(&self, error: &io::Error) {
        use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
        if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted) {
            tracing::debug!(%error, "a client's packet or connection failed");
            return;
        }
        tracing::warn!(%error, "receiving DNS queries");
        tokio::select! {
            () = sleep(AFTER_ERROR) => {}
            () = self.shutdown.cancelled() => {}
        }
    }
}

fn unix_seconds() -> u32 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // RFC 9018 4.3: cookies count in 32 bits that wrap.
    #[allow(clippy::cast_possible_truncation)]
    let seconds = since.as_secs() as u32;
    seconds
}

/// RFC 1035 4.2.2: every message stands behind its length in two octets.
async fn read_message(reader: &mut (impl AsyncRead + Unpin), message: &mut Vec<u8>) -> io::Result<()> {
    let length = reader.read_u16().await?;
    message.resize(length.into(), 0);
    reader.read_exact(message).await?;
    Ok(())
}

/// In one piece: some clients expect length and message in one segment (RFC 7766 8).
fn frame(message: &[u8], framed: &mut Vec<u8>) {
    let length = u16::try_from(message.len()).expect("a TCP answer is written in at most 65,535 octets");
    framed.clear();
    framed.extend_from_slice(&length.to_be_bytes());
    framed.extend_from_slice(message);
}

/// Counts an open connection until it is dropped, also by a panic.
struct OpenConnection(Metrics);

impl OpenConnection {
    fn count(metrics: &Metrics) -> Self {
        metrics.connections.inc();
        Self(metrics.clone())
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.connections.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So long that only a hang exceeds it.
    const PATIENCE: Duration = Duration::from_secs(30);
    /// Gets REFUSED from an index without zones: `. IN NS`.
    const QUERY: &[u8] = b"\0\x11\0\x07\0\0\0\x01\0\0\0\0\0\0\0\0\x02\0\x01";

    async fn with_limits<T>(limits: Limits, test: impl AsyncFnOnce(SocketAddr, &Metrics) -> T) -> T {
        let listener = bind_tcp("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server {
            index: Arc::default(),
            settings: Arc::default(),
            metrics: Metrics::default(),
            shutdown: CancellationToken::new(),
            limits,
        };
        let (shutdown, metrics) = (server.shutdown.clone(), server.metrics.clone());
        let serving = tokio::spawn(async move { server.serve_tcp(&listener).await });
        let result = timeout(PATIENCE, test(address, &metrics)).await.unwrap();
        shutdown.cancel();
        timeout(PATIENCE, serving).await.unwrap().unwrap();
        assert_eq!(metrics.connections.get(), 0);
        result
    }

    /// Whether the server answers on this connection; otherwise it has closed it.
    async fn is_served(stream: &mut TcpStream) -> bool {
        let mut response = [0; 19];
        stream.write_all(QUERY).await.is_ok() && stream.read_exact(&mut response).await.is_ok()
    }

    #[tokio::test]
    async fn too_many_connections_are_closed_until_one_ends() {
        let limits = Limits { connections: 1, ..LIMITS };
        with_limits(limits, async |address, metrics| {
            let mut first = TcpStream::connect(address).await.unwrap();
            assert!(is_served(&mut first).await);
            assert!(!is_served(&mut TcpStream::connect(address).await.unwrap()).await);
            assert!(is_served(&mut first).await);
            assert_eq!((metrics.connections.get(), metrics.connections_refused.get()), (1, 1));
            drop(first);
            while !is_served(&mut TcpStream::connect(address).await.unwrap()).await {}
        })
        .await;
    }

    #[tokio::test]
    async fn an_idle_connection_and_half_a_message_are_closed() {
        let limits = Limits { idle: Duration::from_millis(50), ..LIMITS };
        for sent in [&b""[..], &QUERY[..1], &QUERY[..9]] {
            with_limits(limits, async |address, _| {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(sent).await.unwrap();
                assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0, "after {} octets", sent.len());
            })
            .await;
        }
    }

    #[tokio::test]
    async fn a_client_that_takes_no_answers_is_hung_up_on() {
        let limits = Limits { write: Duration::from_millis(50), ..LIMITS };
        with_limits(limits, async |address, _| {
            let mut stream = TcpStream::connect(address).await.unwrap();
            // Ends once the server has closed, which it does only when its own side is full.
            while stream.write_all(QUERY).await.is_ok() {}
        })
        .await;
    }
}
