//! A door: the socket, the loop that accepts, and the end of both.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use model::Snapshot;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::address::PeerAddr;
use crate::connection::{self, Doorway, Timeouts};
use crate::metrics::Metrics;
use crate::refusal::Refusal;

/// Every connection holds two descriptors, so that two full doors take the 65,536 that a process commonly may have.
const MAX_CONNECTIONS: usize = 16 * 1024;
/// Nodes of a whole fleet reconnect at once after an outage; the kernel bounds this by `somaxconn` (4,096 by default).
const BACKLOG: i32 = 4096;
/// While descriptors or memory are short, asking again at once would only burn the processor that could free some.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How a door learns where a connection goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DoorKind {
    /// From the routing TLV of a PROXY header, which is required and not passed on.
    ClusterId,
    /// From the server name of a TLS hello, which is passed on.
    ServerName,
}

impl DoorKind {
    /// The flag that opens such a door.
    pub fn flag(self) -> &'static str {
        match self {
            Self::ClusterId => "--apiserver",
            Self::ServerName => "--sni",
        }
    }

    /// What metrics and logs call it.
    pub fn label(self) -> &'static str {
        match self {
            Self::ClusterId => "apiserver",
            Self::ServerName => "sni",
        }
    }
}

impl fmt::Display for DoorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("binding {} on {address}", .door.flag())]
pub struct BindError {
    pub door: DoorKind,
    pub address: SocketAddr,
    #[source]
    pub source: io::Error,
}

#[derive(Debug)]
pub struct Door {
    kind: DoorKind,
    listener: TcpListener,
    address: SocketAddr,
    timeouts: Timeouts,
    max_connections: usize,
}

impl Door {
    /// Must be called within a tokio runtime.
    pub fn bind(address: SocketAddr, kind: DoorKind) -> Result<Self, BindError> {
        let bound = listener_on(address).and_then(|listener| {
            let address = listener.local_addr()?;
            Ok((listener, address))
        });
        match bound {
            Ok((listener, address)) => {
                let timeouts = Timeouts::default();
                Ok(Self { kind, listener, address, timeouts, max_connections: MAX_CONNECTIONS })
            }
            Err(source) => Err(BindError { door: kind, address, source }),
        }
    }

    pub fn with_timeouts(self, timeouts: Timeouts) -> Self {
        Self { timeouts, ..self }
    }

    pub fn with_max_connections(self, max_connections: usize) -> Self {
        Self { max_connections: max_connections.min(Semaphore::MAX_PERMITS), ..self }
    }

    /// Where it listens, with the port that the system chose where none was given.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown`, then takes no more, gives what is open the time `drain` to end, and closes the rest.
    pub async fn serve(
        self,
        snapshot: Arc<ArcSwap<Snapshot>>,
        metrics: Metrics,
        shutdown: CancellationToken,
        drain: Duration,
    ) {
        let Self { kind, listener, address, timeouts, max_connections } = self;
        let doorway = Arc::new(Doorway { kind, timeouts, snapshot, metrics: metrics.of(kind) });
        let room = Room { places: Arc::new(Semaphore::new(max_connections)), size: max_connections };
        let connections = TaskTracker::new();
        let time_is_up = CancellationToken::new();
        tracing::info!(door = %kind, %address, "listening");

        while let Some((client, peer)) = shutdown.run_until_cancelled(accept(&listener, &doorway)).await {
            let task = enter(client, peer, room.place(), Arc::clone(&doorway));
            connections.spawn(time_is_up.clone().run_until_cancelled_owned(task));
        }

        drop(listener);
        connections.close();
        tracing::info!(door = %kind, open = connections.len(), "listening no more");
        if tokio::time::timeout(drain, connections.wait()).await.is_err() {
            tracing::info!(door = %kind, open = connections.len(), "closing what has not ended in time");
            time_is_up.cancel();
            connections.wait().await;
        }
    }
}

fn listener_on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait for the old connections' last minute.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(StdListener::from(socket))
}

/// The next connection: whatever goes wrong with one or with all for a while, the door stays open.
async fn accept(listener: &TcpListener, doorway: &Doorway) -> (TcpStream, PeerAddr) {
    let mut failing = false;
    loop {
        match listener.accept().await {
            Ok((client, peer)) => return (client, PeerAddr(peer)),
            // That connection's own end; the next may be fine.
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                doorway.metrics.accept_errors.inc();
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(door = %doorway.kind, %error, "no connection can be accepted for now");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// How many connections a door holds at most.
struct Room {
    places: Arc<Semaphore>,
    size: usize,
}

impl Room {
    fn place(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        Arc::clone(&self.places).try_acquire_owned().map_err(|_| Refusal::TooManyConnections(self.size))
    }
}

async fn enter(client: TcpStream, peer: PeerAddr, place: Result<OwnedSemaphorePermit, Refusal>, doorway: Arc<Doorway>) {
    let _open = doorway.metrics.open();
    match place {
        Ok(_place) => connection::serve(client, peer, &doorway).await,
        Err(refusal) => connection::refuse(client, peer, &doorway, &refusal).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shortages_make_the_door_pause() {
        // As Linux numbers them.
        for (number, name, one) in [
            (103, "ECONNABORTED", true),
            (104, "ECONNRESET", true),
            (4, "EINTR", true),
            (24, "EMFILE", false),
            (23, "ENFILE", false),
            (12, "ENOMEM", false),
            (105, "ENOBUFS", false),
        ] {
            assert_eq!(is_of_one_connection(&io::Error::from_raw_os_error(number)), one, "{name}");
        }
    }

    #[tokio::test]
    async fn a_taken_address_is_named() {
        let door = Door::bind("127.0.0.1:0".parse().unwrap(), DoorKind::ServerName).unwrap();
        let error = Door::bind(door.address(), DoorKind::ClusterId).unwrap_err();
        assert_eq!(error.to_string(), format!("binding --apiserver on {}", door.address()));
        assert_eq!(error.source.kind(), io::ErrorKind::AddrInUse);
    }
}
