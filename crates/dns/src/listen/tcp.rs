//! TCP: a task for each connection, on the runtime of the caller.

mod places;

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Shared;
use crate::metrics::{Metrics, Tally};
use crate::query::{Client, Transport};
use crate::recent::{Ring, unix_time};
use places::{Place, Places};

/// What TCP clients may take from us.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) connections: usize,
    pub(super) per_client: usize,
    pub(super) idle: Duration,
    pub(super) write: Duration,
    pub(super) total: Duration,
}

pub(super) const LIMITS: Limits = Limits {
    // Enough for every resolver that retries after a truncated answer. Each holds one file descriptor and, at worst,
    // two buffers of 64 KiB: 128 MiB when all of them are attackers. Whoever comes above that takes the place of the one
    // that was quiet for longest.
    connections: 1024,
    // A resolver opens a handful; many people behind one address some dozen.
    per_client: 64,
    // RFC 7766 6.2.3 asks for seconds. The time counts until a message is complete, so that a client who sends octet by
    // octet gains nothing.
    idle: Duration::from_secs(10),
    // A client that does not take an answer off its socket for this long has gone, or is an attack.
    write: Duration::from_secs(5),
    // Clients spread anew over servers, and nobody keeps a place for ever.
    total: Duration::from_mins(10),
};

/// Errors of a socket that do not come from one client (no memory, no file descriptors) pass by themselves; until then
/// the loop must not spin.
const AFTER_ERROR: Duration = Duration::from_millis(20);
/// Connections that the kernel holds until we accept them: a burst of retries, not a queue to wait in.
const BACKLOG: i32 = 1024;

pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // Connections of our predecessor that the kernel still waits for must not keep us from starting.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

#[derive(Clone)]
pub(super) struct Server {
    shared: Shared,
    /// All connections write into one: there are few, and they write rarely.
    ring: Arc<Ring>,
    places: Places,
    shutdown: CancellationToken,
    limits: Limits,
}

impl Server {
    pub(super) fn new(shared: Shared, shutdown: CancellationToken, limits: Limits) -> Self {
        let ring = Arc::new(shared.recent.ring());
        let places = Places::new(limits.connections, limits.per_client);
        Self { shared, ring, places, shutdown, limits }
    }

    pub(super) async fn serve(&self, listener: TcpListener) {
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.shutdown.cancelled() => break,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let (place, ousted) = self.places.take(peer.ip().to_canonical());
                    if ousted {
                        self.shared.metrics.connections_refused.inc();
                    }
                    let server = self.clone();
                    connections.spawn(async move {
                        let open = OpenConnection::count(&server.shared.metrics);
                        server.serve_connection(stream, peer, &place).await;
                        drop((open, place));
                    });
                }
                Err(error) => self.pause_after(&error).await,
            }
        }
        connections.close();
        connections.wait().await;
    }

    /// Answers one client's queries in their order. While an answer waits for the client, no further query is read, so
    /// that one is all there ever is in memory.
    async fn serve_connection(&self, mut stream: TcpStream, peer: SocketAddr, place: &Place) {
        // Answers are written whole; waiting to fill a segment would only delay them.
        let _ = stream.set_nodelay(true);
        let (reader, mut writer) = stream.split();
        let mut reader = BufReader::new(reader);
        let (mut request, mut framed) = (Vec::new(), Vec::new());
        let end = Instant::now() + self.limits.total;
        loop {
            let deadline = end.min(Instant::now() + self.limits.idle);
            let read = tokio::select! {
                read = timeout_at(deadline, read_message(&mut reader, &mut request)) => read,
                () = self.shutdown.cancelled() => return,
                () = place.lost() => return,
            };
            // The client is done, gone, or too slow.
            let Ok(Ok(())) = read else { return };
            place.refresh();
            // Who sends what deserves no answer speaks something else than DNS.
            if !self.answer(peer, &request, &mut framed) {
                return;
            }
            let Ok(Ok(())) = timeout(self.limits.write, writer.write_all(&framed)).await else { return };
        }
    }

    /// Whether there is an answer to send.
    fn answer(&self, peer: SocketAddr, request: &[u8], framed: &mut Vec<u8>) -> bool {
        thread_local! {
            /// Room for the largest answer, once for all connections of a thread.
            static ROOM: RefCell<Vec<u8>> = RefCell::new(vec![0; Transport::Tcp.max_response()]);
        }
        let index = self.shared.index.load();
        let now = unix_time();
        // RFC 9018 4.3: cookies count in 32 bits that wrap.
        #[allow(clippy::cast_possible_truncation)]
        let seconds = now.as_secs() as u32;
        let client = Client { address: peer.ip().to_canonical(), transport: Transport::Tcp, now: seconds };
        ROOM.with_borrow_mut(|room| {
            let answered = super::answer_one(&index, &self.shared.settings, &client, request, room);
            let outcome = answered.as_ref().map(|(_, outcome)| outcome);
            Tally::new(&self.shared.metrics, Transport::Tcp).count(outcome);
            if let Some(outcome) = outcome {
                self.ring.open().push(now, &client, request, outcome);
            }
            answered.is_some_and(|(length, _)| frame(&room[..length], framed))
        })
    }

    /// No error ends the loop: what one client caused is forgotten at once, anything else after a moment.
    async fn pause_after(&self, error: &io::Error) {
        use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
        if matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
            tracing::debug!(%error, "a client's connection failed");
            return;
        }
        tracing::warn!(%error, "accepting DNS connections");
        tokio::select! {
            () = sleep(AFTER_ERROR) => {}
            () = self.shutdown.cancelled() => {}
        }
    }
}

/// RFC 1035 4.2.2: every message stands behind its length in two octets.
async fn read_message(reader: &mut (impl AsyncRead + Unpin), message: &mut Vec<u8>) -> io::Result<()> {
    let length = reader.read_u16().await?;
    message.resize(length.into(), 0);
    reader.read_exact(message).await?;
    Ok(())
}

/// In one piece: some clients expect length and message in one segment (RFC 7766 8).
fn frame(message: &[u8], framed: &mut Vec<u8>) -> bool {
    let Ok(length) = u16::try_from(message.len()) else { return false };
    framed.clear();
    framed.extend_from_slice(&length.to_be_bytes());
    framed.extend_from_slice(message);
    true
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
mod tests;
