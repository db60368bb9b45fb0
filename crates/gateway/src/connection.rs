//! * One connection: read where it wants to go, find its route, check who it is, connect and carry; or refuse.
//!
//! What a connection needs of the snapshot it takes once, as an `Arc<Route>`: later snapshots never touch it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use model::snapshot::Route;
use model::{Blame, DnsName, Snapshot};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::address::{ClientAddr, PeerAddr};
use crate::client_hello::{Hello, HelloReader};
use crate::listen::DoorKind;
use crate::metrics::DoorMetrics;
use crate::proxy_header::{self, Parsed};
use crate::refusal::Refusal;
use crate::relay::relay;

/// How long a connection may take on its way in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For everything that comes before the decision, however many pieces it comes in. Clients send it at once; five
    /// seconds outlast a lost segment or two and keep a peer that sends nothing from holding its place.
    pub opening: Duration,
    /// For all upstream addresses together. Clients give up their TLS handshake after about as long.
    pub connect: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { opening: Duration::from_secs(5), connect: Duration::from_secs(10) }
    }
}

/// The usual opening fits: a PROXY header with a TLS hello behind it, or the hello alone. Longer ones grow it, up to
/// what the readers of headers and hellos accept.
const FIRST_READ: usize = 4 * 1024;
/// How long a client that was sent an alert has to close; closing first could reset the connection and lose the alert.
const FAREWELL: Duration = Duration::from_secs(1);
/// Shorter than the idle time-outs of common load balancers and NATs (four minutes and more), with a few tries.
const KEEPALIVE_IDLE: Duration = Duration::from_mins(1);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// What all connections of one door share.
pub(crate) struct Doorway {
    pub(crate) kind: DoorKind,
    pub(crate) timeouts: Timeouts,
    pub(crate) snapshot: Arc<ArcSwap<Snapshot>>,
    pub(crate) metrics: DoorMetrics,
}

/// A connection that may pass, and its way.
struct Admitted {
    route: Arc<Route>,
    upstream: TcpStream,
    opening: Opening,
}

/// What a connection begins with.
struct Opening {
    selector: Selector,
    client: Option<ClientAddr>,
    /// What was read and belongs to the stream.
    first: Vec<u8>,
}

enum Selector {
    ClusterId(Vec<u8>),
    ServerName(DnsName),
}

pub(crate) async fn serve(mut client: TcpStream, peer: PeerAddr, doorway: &Doorway) {
    tune(&client);
    let Admitted { route, upstream, opening } = match admit(&mut client, peer, doorway).await {
        Ok(admitted) => admitted,
        Err(refusal) => return refuse(client, peer, doorway, &refusal).await,
    };
    doorway.metrics.established();
    let door = doorway.kind.label();
    tracing::debug!(
        door, %peer, client = opening.client.map(tracing::field::display),
        cluster = %route.cluster, service = %route.service, "connection established"
    );
    match relay(client, upstream, opening.first, &doorway.metrics).await {
        Ok(()) => tracing::debug!(door, %peer, cluster = %route.cluster, "connection ended"),
        Err(error) => tracing::debug!(door, %peer, cluster = %route.cluster, %error, "connection broke"),
    }
}

async fn admit(client: &mut TcpStream, peer: PeerAddr, doorway: &Doorway) -> Result<Admitted, Refusal> {
    let opening = match doorway.kind {
        DoorKind::ClusterId => {
            let header = timeout(doorway.timeouts.opening, read_header(client)).await;
            header.unwrap_or(Err(Refusal::HeaderTimeout))?
        }
        DoorKind::ServerName => {
            let hello = timeout(doorway.timeouts.opening, read_hello(client)).await;
            hello.unwrap_or(Err(Refusal::HelloTimeout))?
        }
    };
    let route = find_route(&doorway.snapshot.load(), &opening.selector)?;
    // The real peer, never what a header says: anybody can write one.
    if !route.admits(peer.ip()) {
        return Err(Refusal::SourceNotAllowed { peer, cluster: route.cluster.clone() });
    }
    let upstream = connect(&route, doorway.timeouts.connect).await?;
    tune(&upstream);
    Ok(Admitted { route, upstream, opening })
}

/// The header is ours alone; what came behind it is the stream.
async fn read_header(client: &mut TcpStream) -> Result<Opening, Refusal> {
    let mut received = Vec::with_capacity(FIRST_READ);
    loop {
        read_more(client, &mut received).await?;
        if let Parsed::Complete { header, length } = proxy_header::parse(&received)? {
            let id = header.cluster_id.ok_or(Refusal::NoClusterId)?;
            let selector = Selector::ClusterId(id.to_vec());
            let client = header.client;
            received.drain(..length);
            return Ok(Opening { selector, client, first: received });
        }
    }
}

/// The hello is the server's; all of it is passed on.
async fn read_hello(client: &mut TcpStream) -> Result<Opening, Refusal> {
    let mut received = Vec::with_capacity(FIRST_READ);
    let mut reader = HelloReader::default();
    loop {
        read_more(client, &mut received).await?;
        match reader.read(&received)? {
            Hello::Incomplete => {}
            Hello::NoServerName => return Err(Refusal::NoServerName),
            Hello::ServerName(name) => {
                return Ok(Opening { selector: Selector::ServerName(name), client: None, first: received });
            }
        }
    }
}

/// One read. The buffer stays bounded because its reader is asked after every one: it refuses what announces more than
/// it accepts before that has come, and the buffer is never more than twice what the reader waits for.
async fn read_more(client: &mut TcpStream, received: &mut Vec<u8>) -> Result<(), Refusal> {
    if received.len() == received.capacity() {
        received.reserve_exact(received.len());
    }
    match client.read_buf(received).await {
        Ok(0) | Err(_) => Err(Refusal::HungUp),
        Ok(_) => Ok(()),
    }
}

fn find_route(snapshot: &Snapshot, selector: &Selector) -> Result<Arc<Route>, Refusal> {
    match selector {
        Selector::ClusterId(id) => snapshot.route_by_id(id).cloned().ok_or_else(|| Refusal::unknown_cluster_id(id)),
        Selector::ServerName(name) => {
            snapshot.route_by_server_name(name).cloned().ok_or_else(|| Refusal::UnknownServerName(name.clone()))
        }
    }
}

/// Tries the addresses in turn. Each gets its share of the time that is left, so that one that swallows packets does
/// not keep us from the next.
async fn connect(route: &Route, within: Duration) -> Result<TcpStream, Refusal> {
    let deadline = Instant::now() + within;
    let mut failure = None;
    for (tried, &address) in route.upstreams.iter().enumerate() {
        let left = u32::try_from(route.upstreams.len() - tried).unwrap_or(u32::MAX);
        let share = deadline.saturating_duration_since(Instant::now()) / left;
        let error = match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => error,
            Err(_) => io::Error::new(io::ErrorKind::TimedOut, "no answer in time"),
        };
        tracing::debug!(cluster = %route.cluster, service = %route.service, %address, %error, "upstream not reached");
        failure = Some((address, error));
    }
    let (last, source) = failure.unwrap_or_else(|| {
        (
            (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
            io::Error::new(io::ErrorKind::NotFound, "the route has no address"),
        )
    });
    let service = route.service.to_string();
    Err(Refusal::Unreachable { cluster: route.cluster.clone(), service, last, source })
}

pub(crate) async fn refuse(mut client: TcpStream, peer: PeerAddr, doorway: &Doorway, refusal: &Refusal) {
    doorway.metrics.refused(refusal);
    let (door, code, blame) = (doorway.kind.label(), refusal.code(), refusal.blame());
    // Anybody can have us refuse them; only what somebody on our side can mend is worth a line by default.
    if blame == Blame::Client {
        tracing::debug!(door, %peer, code, blame = blame.as_str(), reason = %refusal, "connection refused");
    } else {
        tracing::info!(door, %peer, code, blame = blame.as_str(), reason = %refusal, "connection refused");
    }
    if let Some(alert) = refusal.alert() {
        let _ = timeout(FAREWELL, send_alert(&mut client, alert)).await;
    }
}

/// Sends a fatal alert in a record of its own, and waits for the client to close.
async fn send_alert(client: &mut TcpStream, alert: u8) -> io::Result<()> {
    client.write_all(&[21, 3, 3, 0, 2, 2, alert]).await?;
    client.shutdown().await?;
    tokio::io::copy(client, &mut tokio::io::sink()).await.map(|_| ())
}

/// A socket that does not take an option still carries bytes.
fn tune(stream: &TcpStream) {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    let tuned = stream.set_nodelay(true).and_then(|()| SockRef::from(stream).set_tcp_keepalive(&keepalive));
    if let Err(error) = tuned {
        tracing::debug!(%error, "socket options not set");
    }
}
