//! A door: the socket, the loop that accepts, and the end of both.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use model::{Cidr, Snapshot};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::getsockname;
use socket2::{Domain, Protocol, Socket, Type};

use crate::balance::Upstreams;
use crate::doorway::{Common, Doorway, Way};
use crate::health::{CheckSettings, Checks};
use crate::hub::{AGENTS, Hub, open_route};
use crate::insight::Insight;
use crate::inward::Inward;
use crate::limits::Admissions;
use crate::limits::openings::{OpeningLimits, Openings};
use crate::metrics::Metrics;
use crate::proof::Replays;
use crate::upstream::KEEPALIVE;
use crate::worker::{ServedDoor, Shutdown, Worker};

/// Every connection holds two descriptors, so that two full doors take the 65,536 that a process commonly may have.
const MAX_CONNECTIONS: usize = 16 * 1024;
/// Nodes of a whole fleet reconnect at once after an outage; the kernel bounds this by `somaxconn` (4,096 by default).
const BACKLOG: i32 = 4096;
/// How a door learns where a connection goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DoorKind {
    /// From the routing TLV of a PROXY header, which is required and not passed on.
    ClusterId,
    /// From the server name of a TLS hello, which is passed on.
    ServerName,
    /// Not at all: on a node everything goes to the hub, behind a header that names the cluster.
    Node,
}

impl DoorKind {
    /// The flag that opens such a door.
    pub fn flag(self) -> &'static str {
        match self {
            Self::ClusterId => "--apiserver",
            Self::ServerName => "--sni",
            Self::Node => "--listen",
        }
    }

    /// What metrics and logs call it.
    pub fn label(self) -> &'static str {
        match self {
            Self::ClusterId => "apiserver",
            Self::ServerName => "sni",
            Self::Node => "node",
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

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For everything that comes before the decision, however many pieces it comes in. Clients send it at once; five
    /// seconds outlast a lost segment or two and keep a peer that sends nothing from holding its place.
    pub opening: Duration,
    /// For one address of a control plane, or one target inside a cluster. Three addresses are tried within the ten seconds after which clients give
    /// up their handshake.
    pub connect: Duration,
    /// For a connection that carries nothing either way. A quiet watch is not idle enough: keep-alive finds dead peers
    /// in minutes, so that this only ends what was forgotten.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { opening: Duration::from_secs(5), connect: Duration::from_secs(3), idle: Duration::from_hours(24) }
    }
}

/// A connection that came through the door by server name and is not passed through.
#[derive(Debug)]
pub struct Terminated {
    pub stream: TcpStream,
    /// What the client has sent so far: a TLS hello, or more.
    pub received: Vec<u8>,
    /// Who it is: the peer, or whom a trusted proxy names.
    pub client: SocketAddr,
}

/// Takes such a connection, at once; one that it drops is closed.
#[derive(Clone)]
pub struct Terminate(Arc<dyn Fn(Terminated) + Send + Sync>);

impl Terminate {
    pub fn new(take: impl Fn(Terminated) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    pub(crate) fn take(&self, connection: Terminated) {
        (self.0)(connection);
    }
}

impl fmt::Debug for Terminate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Terminate")
    }
}

/// How the doors are served.
#[derive(Debug, Clone)]
pub struct Settings {
    pub timeouts: Timeouts,
    /// Per door.
    pub max_connections: usize,
    /// Whether connections end when their client is not among the allowed sources any more.
    pub cut_disallowed: bool,
    /// Load balancers that must send a PROXY header of their own first, version 1 or 2, and are believed.
    pub trusted_proxies: Arc<[Cidr]>,
    /// Who takes TLS connections to hosts that have a certificate here, where this process terminates them too.
    pub terminate: Option<Terminate>,
    /// Who carries connections into clusters, where this process has a way there.
    pub inward: Option<Inward>,
    /// Where the agents' door is, which the names `agents.<domain>` of accepted zones lead to.
    pub agents: Option<SocketAddr>,
    /// How many may take their time to say where they want to go; trusted proxies are exempt.
    pub openings: OpeningLimits,
    /// How control planes with several addresses are looked after.
    pub checks: CheckSettings,
    /// How often all addresses of a control plane are tried before a connection is given up.
    pub rounds: usize,
    pub threads: usize,
}

impl Default for Settings {
    /// One thread per core.
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            timeouts: Timeouts::default(),
            max_connections: MAX_CONNECTIONS,
            cut_disallowed: true,
            trusted_proxies: Arc::default(),
            terminate: None,
            inward: None,
            agents: None,
            openings: OpeningLimits::default(),
            checks: CheckSettings::default(),
            rounds: 1,
            threads,
        }
    }
}

/// A bound listener that nobody serves yet.
#[derive(Debug)]
pub struct Door {
    kind: DoorKind,
    listener: OwnedFd,
    address: SocketAddr,
}

impl Door {
    pub fn bind(address: SocketAddr, kind: DoorKind) -> Result<Self, BindError> {
        match listener_on(address) {
            Ok((listener, address)) => Ok(Self { kind, listener, address }),
            Err(source) => Err(BindError { door: kind, address, source }),
        }
    }

    pub fn kind(&self) -> DoorKind {
        self.kind
    }

    /// From a listener that another process had bound and set up.
    pub fn adopt(listener: OwnedFd, kind: DoorKind) -> io::Result<Self> {
        let address = getsockname(&listener)?;
        let address = SocketAddr::try_from(address).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(Self { kind, listener, address })
    }

    /// The listener for another process; both take connections from its queue while both have it.
    pub fn share(&self) -> io::Result<OwnedFd> {
        self.listener.try_clone()
    }

    /// Where it listens, with the port that the system chose where none was given.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn listener_on(address: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait for the old connections' last minute.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    // Connections inherit both from their listener, which saves them the calls.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&KEEPALIVE)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    let address = socket.local_addr()?.as_socket().unwrap_or(address);
    Ok((socket.into(), address))
}

/// Doors that are being served, until [`Serving::drain`].
pub struct Serving {
    threads: Vec<JoinHandle<()>>,
    shutdown: Arc<Shutdown>,
    insight: Arc<Insight>,
    /// End with it.
    _checks: Option<Checks>,
}

/// Serves the doors from threads of their own.
pub fn serve(
    doors: Vec<Door>,
    snapshot: &Arc<ArcSwap<Snapshot>>,
    metrics: &Metrics,
    settings: &Settings,
) -> io::Result<Serving> {
    let common = common(settings);
    let checks = Checks::start(snapshot, &common.upstreams, settings.checks.clone())?;
    start(doors, &Way::Asked(Arc::clone(snapshot)), &common, Some(checks), metrics, settings)
}

/// Serves a node's door: what comes in goes to the hub.
pub fn serve_node(door: Door, hub: &Arc<Hub>, metrics: &Metrics, settings: &Settings) -> io::Result<Serving> {
    // What the hub's doors are worth is seen from the connections to them: they answer nobody without a header.
    start(vec![door], &Way::ToHub(Arc::clone(hub)), &common(settings), None, metrics, settings)
}

fn common(settings: &Settings) -> Common {
    let (admissions, upstreams) = (Arc::new(Admissions::new(Instant::now())), Arc::new(Upstreams::default()));
    let agents = settings.agents.map(|address| Arc::new(open_route(AGENTS, vec![address])));
    let (terminate, inward) = (settings.terminate.clone(), settings.inward.clone());
    Common { admissions, upstreams, replays: Replays::default(), agents, terminate, inward }
}

fn start(
    doors: Vec<Door>,
    way: &Way,
    common: &Common,
    checks: Option<Checks>,
    metrics: &Metrics,
    settings: &Settings,
) -> io::Result<Serving> {
    let shutdown = Arc::new(Shutdown {
        wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        asked: AtomicBool::new(false),
        until: OnceLock::new(),
    });
    let exempt = settings.trusted_proxies.iter().copied().chain(settings.openings.exempt.iter().copied()).collect();
    let openings = OpeningLimits { exempt, ..settings.openings.clone() };
    let doors: Vec<ServedDoor> = doors
        .into_iter()
        .map(|door| {
            tracing::info!(door = %door.kind, address = %door.address, "listening");
            let metrics = metrics.of(door.kind);
            let doorway = Doorway::new(door.kind, way.clone(), metrics, settings, common);
            ServedDoor {
                listener: Arc::new(door.listener),
                doorway: Arc::new(doorway),
                openings: Arc::new(Openings::new(openings.clone())),
            }
        })
        .collect();
    let Common { admissions, upstreams, replays, agents, terminate, inward } = common.clone();
    let snapshot = match way {
        Way::Asked(snapshot) => Arc::clone(snapshot),
        // A node knows no fleet.
        Way::ToHub(_) => Arc::default(),
    };
    let insight = Arc::new(Insight {
        snapshot,
        admissions,
        upstreams,
        replays,
        trusted_proxies: Arc::clone(&settings.trusted_proxies),
        agents,
        terminates: terminate.is_some(),
        inward,
        doors: doors.iter().map(|door| (door.doorway.kind, Arc::clone(&door.openings))).collect(),
    });
    metrics.watch(&insight);
    let threads = (0..settings.threads).map(|number| {
        let worker = Worker::new(&doors, settings, Arc::clone(&shutdown))?;
        std::thread::Builder::new().name(format!("door-{number}")).spawn(move || worker.run())
    });
    let threads = threads.collect::<io::Result<_>>()?;
    Ok(Serving { threads, shutdown, insight, _checks: checks })
}

impl Serving {
    /// What these doors know, for as long as somebody wants to look.
    pub fn insight(&self) -> Arc<Insight> {
        Arc::clone(&self.insight)
    }

    /// Takes no more connections, gives those that are open the time `within` to end, and closes the rest.
    pub fn drain(mut self, within: Duration) {
        self.end(within);
    }

    fn end(&mut self, within: Duration) {
        // Whoever is first sets it: there is one end only.
        let _ = self.shutdown.until.set(Instant::now() + within);
        self.shutdown.asked.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.shutdown.wake, &1_u64.to_ne_bytes());
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the doors panicked");
            }
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_address_is_named() {
        let door = Door::bind("127.0.0.1:0".parse().unwrap(), DoorKind::ServerName).unwrap();
        let error = Door::bind(door.address(), DoorKind::ClusterId).unwrap_err();
        assert_eq!(error.to_string(), format!("binding --apiserver on {}", door.address()));
        assert_eq!(error.source.kind(), io::ErrorKind::AddrInUse);
    }
}
