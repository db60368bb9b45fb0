//! The doors: listeners that are bound already, the threads that serve them, and the end of both.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use model::routes::HttpTable;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::certificates::Certificates;
use crate::choice::Members;
use crate::connection::{self, Arrival};
use crate::explain::Insight;
use crate::health::Health;
use crate::lean::Lean;
use crate::metrics::{DoorMetrics, Metrics};
use crate::openings::Openings;
use crate::overflow::{self, Sights};
use crate::refusal::Refusal;
use crate::settings::Settings;
use crate::upstream::{Trust, Upstream};

/// Clients of a whole region reconnect at once after an outage; the kernel bounds this by `somaxconn` (4,096 by default).
const BACKLOG: i32 = 4096;
/// A peer that is gone without a word is noticed within two minutes.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_mins(1)).with_interval(Duration::from_secs(15)).with_retries(4);
/// What rests is looked at so often.
const SWEEP: Duration = Duration::from_secs(5);
/// Connections that wait for their thread, each with its hello: more than a thread is behind by, but for a moment.
const GIVEN: usize = 1024;
/// When the kernel has no descriptor left, the next attempt waits.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DoorKind {
    Http,
    Https,
}

impl DoorKind {
    /// The flag that opens such a door.
    pub fn flag(self) -> &'static str {
        match self {
            Self::Http => "--http",
            Self::Https => "--https",
        }
    }

    /// What metrics and logs call it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

impl fmt::Display for DoorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// A listener as doors want it.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait for the old connections' last minute.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A connection to the HTTPS door that somebody else took and has begun to read.
#[derive(Debug)]
pub struct Given {
    pub stream: std::net::TcpStream,
    pub received: Vec<u8>,
    pub client: SocketAddr,
}

/// Gives connections to the threads of the doors, to each in turn.
#[derive(Debug, Clone)]
pub struct Desk {
    threads: Arc<[mpsc::Sender<Given>]>,
    next: Arc<AtomicUsize>,
}

impl Desk {
    /// Whether it was taken; else the connection is closed.
    pub fn give(&self, given: Given) -> bool {
        let number = self.next.fetch_add(1, Ordering::Relaxed) % self.threads.len().max(1);
        self.threads.get(number).is_some_and(|thread| thread.try_send(given).is_ok())
    }
}

/// Bound listeners, ours or another process' that gave them to us. All threads take from each: its queue has no owner
/// that could take waiting connections along.
#[derive(Debug, Default)]
pub struct Doors {
    pub http: Vec<TcpListener>,
    pub https: Vec<TcpListener>,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("preparing TLS")]
    Tls(#[source] rustls::Error),
    #[error("preparing the listeners")]
    Listeners(#[source] io::Error),
    #[error("starting a thread of the doors")]
    Thread(#[source] io::Error),
}

/// What a thread has for all of its connections.
pub(crate) struct Worker {
    pub(crate) table: Arc<ArcSwap<HttpTable>>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) members: Arc<Members>,
    pub(crate) certificates: Arc<Certificates>,
    pub(crate) upstream: Upstream,
    pub(crate) lean: Lean,
    pub(crate) drain: CancellationToken,
    doors: [DoorMetrics; 2],
}

impl Worker {
    pub(crate) fn is_trusted(&self, peer: IpAddr) -> bool {
        self.settings.trusted_proxies.iter().any(|range| range.contains(peer))
    }

    pub(crate) fn metrics_of(&self, door: DoorKind) -> &DoorMetrics {
        &self.doors[usize::from(door == DoorKind::Https)]
    }
}

/// Doors that are being served, until [`Running::drain`].
pub struct Running {
    threads: Vec<JoinHandle<()>>,
    drain: CancellationToken,
    deadline: tokio::sync::watch::Sender<Option<std::time::Instant>>,
    members: Arc<Members>,
    insight: Arc<Insight>,
    desk: Desk,
    sights: Sights,
}

/// Serves the doors from threads of their own. Nothing on their way waits for who publishes the table.
pub fn start(
    settings: Settings,
    doors: Doors,
    table: &Arc<ArcSwap<HttpTable>>,
    metrics: &Metrics,
) -> Result<Running, StartError> {
    let settings = Arc::new(settings);
    let members = Arc::new(Members::new(std::time::Instant::now()));
    metrics.watch(&members, table);
    let certificates = Arc::new(Certificates::new().map_err(StartError::Tls)?);
    let trust = Arc::new(Trust::new());
    let drain = CancellationToken::new();
    let (deadline, _) = tokio::sync::watch::channel(None);
    let open = [Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0))];

    let kinds = [(DoorKind::Http, doors.http), (DoorKind::Https, doors.https)];
    let listeners: Vec<(DoorKind, TcpListener)> =
        kinds.into_iter().flat_map(|(kind, doors)| doors.into_iter().map(move |door| (kind, door))).collect();
    for (kind, listener) in &listeners {
        listener.set_nonblocking(true).map_err(StartError::Listeners)?;
        let address = listener.local_addr().map_err(StartError::Listeners)?;
        tracing::info!(door = %kind, %address, "listening");
    }
    let (mut threads, mut desks) = (Vec::new(), Vec::new());
    for number in 0..settings.threads {
        let worker = Arc::new(Worker {
            table: Arc::clone(table),
            members: Arc::clone(&members),
            certificates: Arc::clone(&certificates),
            upstream: Upstream::new(&settings, &trust, metrics),
            lean: Lean::new(&settings),
            drain: drain.clone(),
            doors: [metrics.of(DoorKind::Http), metrics.of(DoorKind::Https)],
            settings: Arc::clone(&settings),
        });
        let share = listeners.iter().map(|(kind, listener)| Ok((*kind, listener.try_clone()?)));
        let share: Vec<_> = share.collect::<io::Result<_>>().map_err(StartError::Listeners)?;
        let (open, deadline) = (open.clone(), deadline.subscribe());
        let (desk, given) = mpsc::channel(GIVEN);
        desks.push(desk);
        let runtime = new_runtime()?;
        let thread = std::thread::Builder::new()
            .name(format!("web-{number}"))
            .spawn(move || runtime.block_on(run(worker, share, given, open, deadline)))
            .map_err(StartError::Thread)?;
        threads.push(thread);
    }
    let health = settings.checks.then(|| Health {
        table: Arc::clone(table),
        members: Arc::clone(&members),
        upstream: Upstream::new(&settings, &trust, metrics),
        standings: Arc::clone(&settings.standings),
        metrics: metrics.clone(),
    });
    let follow =
        settings.edge.clone().map(|edge| overflow::follow(Arc::clone(&members), edge, Arc::clone(&settings.tables)));
    if health.is_some() || follow.is_some() {
        let (runtime, drain) = (new_runtime()?, drain.clone());
        let both = async move {
            let health = async {
                if let Some(health) = health {
                    health.run().await;
                }
            };
            let follow = async {
                if let Some(follow) = follow {
                    follow.await;
                }
            };
            tokio::join!(health, follow);
        };
        let thread = std::thread::Builder::new()
            .name("web-health".into())
            .spawn(move || _ = runtime.block_on(drain.run_until_cancelled(both)))
            .map_err(StartError::Thread)?;
        threads.push(thread);
    }
    let sights = Sights::new(&members, table, settings.checks);
    let desk = Desk { threads: desks.into(), next: Arc::default() };
    let insight = Arc::new(Insight::new(table, &members, &certificates, &settings));
    Ok(Running { threads, drain, deadline, members, insight, desk, sights })
}

fn new_runtime() -> Result<tokio::runtime::Runtime, StartError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)
}

impl Running {
    /// What is known of members.
    pub fn members(&self) -> Arc<Members> {
        Arc::clone(&self.members)
    }

    /// What these doors know, for as long as somebody wants to look.
    pub fn insight(&self) -> Arc<Insight> {
        Arc::clone(&self.insight)
    }

    /// What is counted and seen from here, for the overflow.
    pub fn sights(&self) -> Sights {
        self.sights.clone()
    }

    /// Where others give connections to the HTTPS door.
    pub fn desk(&self) -> Desk {
        self.desk.clone()
    }

    /// Takes no more connections, lets requests end within the time, and cuts the rest.
    pub fn drain(mut self, within: Duration) {
        self.end(within);
    }

    fn end(&mut self, within: Duration) {
        self.deadline.send_replace(Some(std::time::Instant::now() + within));
        self.drain.cancel();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the HTTP doors panicked");
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

/// A thread's share. What is left of its connections at the end goes with the runtime.
async fn run(
    worker: Arc<Worker>,
    listeners: Vec<(DoorKind, TcpListener)>,
    given: mpsc::Receiver<Given>,
    open: [Arc<AtomicUsize>; 2],
    deadline: tokio::sync::watch::Receiver<Option<std::time::Instant>>,
) {
    let connections = TaskTracker::new();
    let accepting = TaskTracker::new();
    for (kind, listener) in listeners {
        let open = Arc::clone(&open[usize::from(kind == DoorKind::Https)]);
        accepting.spawn(accept(Arc::clone(&worker), kind, listener, open, connections.clone()));
    }
    let open = Arc::clone(&open[1]);
    accepting.spawn(receive(Arc::clone(&worker), given, open, connections.clone()));
    let sweeping = {
        let worker = Arc::clone(&worker);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(SWEEP).await;
                worker.upstream.sweep();
                worker.lean.sweep();
            }
        })
    };
    worker.drain.cancelled().await;
    sweeping.abort();
    accepting.close();
    accepting.wait().await;
    connections.close();
    let until = deadline.borrow().unwrap_or_else(std::time::Instant::now);
    let _ = tokio::time::timeout_at(until.into(), connections.wait()).await;
}

async fn accept(
    worker: Arc<Worker>,
    kind: DoorKind,
    listener: TcpListener,
    open: Arc<AtomicUsize>,
    connections: TaskTracker,
) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return tracing::error!(door = %kind, "a listener cannot be served");
    };
    let openings = new_openings(&worker);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = worker.drain.cancelled() => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                worker.metrics_of(kind).accept_errors.inc();
                tracing::debug!(%error, door = %kind, "no connection could be taken");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        begin(&worker, kind, stream, peer, None, &openings, &open, &connections);
    }
}

/// Takes what others give, until nobody can give any more.
async fn receive(
    worker: Arc<Worker>,
    mut given: mpsc::Receiver<Given>,
    open: Arc<AtomicUsize>,
    connections: TaskTracker,
) {
    let openings = new_openings(&worker);
    while let Some(Some(Given { stream, received, client })) = worker.drain.run_until_cancelled(given.recv()).await {
        let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
        let Ok(stream) = stream else { continue };
        let begun = Some((received, client));
        begin(&worker, DoorKind::Https, stream, client, begun, &openings, &open, &connections);
    }
}

fn new_openings(worker: &Worker) -> Arc<Openings> {
    let (limits, threads) = (worker.settings.limits, worker.settings.threads.max(1));
    Arc::new(Openings::new(limits.openings.div_ceil(threads), limits.openings_per_source.div_ceil(threads)))
}

/// A connection, if there is room for it.
#[allow(clippy::too_many_arguments)] // All that a connection begins with.
fn begin(
    worker: &Arc<Worker>,
    kind: DoorKind,
    stream: TcpStream,
    peer: SocketAddr,
    begun: Option<(Vec<u8>, SocketAddr)>,
    openings: &Arc<Openings>,
    open: &Arc<AtomicUsize>,
    connections: &TaskTracker,
) {
    let limits = worker.settings.limits;
    let place = Place::take(worker, kind, open, connections);
    if open.load(Ordering::Relaxed) > limits.connections {
        return connection::refused(worker, kind, &Refusal::TooManyConnections(limits.connections));
    }
    prepare(&stream, worker.settings.timeouts.untaken);
    let is_trusted = worker.is_trusted(peer.ip());
    let (opening, displaced) = openings.enter(peer.ip(), is_trusted);
    let worker = Arc::clone(worker);
    tokio::spawn(async move {
        let arrival = Arrival { door: kind, stream, peer, begun, opening, place };
        tokio::select! {
            () = connection::serve(Arc::clone(&worker), arrival) => {}
            Ok(refusal) = displaced => connection::refused(&worker, kind, &refusal),
        }
    });
}

/// Whoever made the listener, and whichever end this is.
pub(crate) fn prepare(stream: &TcpStream, untaken: Duration) {
    let _ = stream.set_nodelay(true);
    let socket = SockRef::from(stream);
    let _ = socket.set_tcp_keepalive(&KEEPALIVE);
    let _ = socket.set_tcp_user_timeout(Some(untaken));
}

/// One of a door's connections, whatever protocol it has changed to: it counts, and is waited for at the end.
pub(crate) struct Place {
    worker: Arc<Worker>,
    kind: DoorKind,
    open: Arc<AtomicUsize>,
    _awaited: TaskTrackerToken,
}

impl Place {
    fn take(worker: &Arc<Worker>, kind: DoorKind, open: &Arc<AtomicUsize>, connections: &TaskTracker) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        worker.metrics_of(kind).open.inc();
        Self { worker: Arc::clone(worker), kind, open: Arc::clone(open), _awaited: connections.token() }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.worker.metrics_of(self.kind).open.dec();
    }
}
