//! `fleetgate serve`, and the roles of a hub: one process, with as much of everything as its job asks for.

use std::future::pending;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use api::orders::{FolderOrders, Orders};
use api::{AdminCredential, Interface, Listener};
use gateway::{Door, DoorKind};
use kubernetes::admission::{self, Admission};
use kubernetes::home::Writing;
use kubernetes::{lease, resolvers, tenants};
use prometheus_client::registry::Registry;
use server::Bound;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;

use crate::agents;
use crate::arguments::{AdmissionOptions, LogFormat};
use crate::control::{Control, Published, Running};
use crate::egress;
use crate::hand_over::{Inheritance, Post, Sockets, Successor};
use crate::home::{self, Opened};
use crate::inward;
use crate::job::{Job, JobHome};
use crate::leading::{Desk, Leading};
use crate::links::Links;
use crate::overflow::{self, Overflow};
use crate::places;
use crate::replicas::RelayListener;
use crate::telemetry::{self, ControlMetrics};
use crate::waiting::Waiting;
use crate::ways::{self, Callers, OnHub, Ways};
use crate::web_doors::{self, WebDoor};
use crate::wiring::{self, Wiring};

/// What sockets are called that pass from process to process; those of doors and interfaces by their flags.
const DNS_UDP: &str = "--dns/udp";
const DNS_TCP: &str = "--dns/tcp";
pub(crate) fn run(job: &Job) -> anyhow::Result<ExitCode> {
    telemetry::start_log(&job.views.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(async {
        let signals = Signals::listen()?;
        let server = Server::start(job).await?;
        server.until_told_to_stop(signals).await
    })?;
    // Connections that a second signal did not wait for would keep their threads.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

/// What tells us to stop; listened for before anything is answered, so that a start that is called off ends in order.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Within a tokio runtime.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
        let interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
        Ok(Self { terminate, interrupt })
    }

    /// Waits for the first that comes, and says which it was.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// A server that answers.
pub(crate) struct Server {
    pub(crate) addresses: Addresses,
    control: Running,
    state: Arc<api::State>,
    stop_dns: CancellationToken,
    /// Ends --admin and --metrics, which say until the end that we are not ready any more.
    stop_http: CancellationToken,
    doors: gateway::Serving,
    web: Option<web::Running>,
    /// For as long as anything is served.
    _overflow: overflow::Running,
    dns: Option<tokio::task::JoinHandle<()>>,
    drain: Duration,
    interfaces: Vec<std::thread::JoinHandle<()>>,
    ways: Ways,
    hand_over: Option<HandOver>,
    /// A controller's work on the hub.
    leading: Option<crate::leading::Running>,
    /// What answers the hub's API server.
    admission: Option<std::thread::JoinHandle<()>>,
    stop_admission: CancellationToken,
}

/// What a successor needs of us.
struct HandOver {
    successors: Receiver<Successor>,
    shared: Sockets,
    /// For the case that it ends before it serves.
    job: Job,
}

/// Everything that listens, before anybody is answered.
struct Listening {
    dns: Option<dns::Listeners>,
    apiserver: Option<Door>,
    sni: Option<Door>,
    http: Option<WebDoor>,
    https: Option<WebDoor>,
    /// Whether HTTPS comes through the door by server name.
    terminates: bool,
    agents: Option<Bound>,
    egress: Option<Bound>,
    interfaces: Vec<Listener>,
    reviews: Option<admission::Listener>,
    peers: Option<kubernetes::peers::Listener>,
    relay: Option<RelayListener>,
}

impl Listening {
    /// First of all: a port that is taken is known before anything else is done. Who comes early waits a moment.
    fn open(job: &Job, inheritance: &mut Inheritance) -> anyhow::Result<Self> {
        let interfaces = [(Interface::Admin, job.views.admin), (Interface::Metrics, job.views.metrics)];
        Ok(Self {
            dns: job.answers.dns.map(|at| open_dns(at, inheritance)).transpose()?,
            apiserver: job.doors.apiserver.map(|at| open_door(at, DoorKind::ClusterId, inheritance)).transpose()?,
            sni: job.doors.sni.map(|at| open_door(at, DoorKind::ServerName, inheritance)).transpose()?,
            http: job.doors.http.map(|at| WebDoor::open(at, web::DoorKind::Http, inheritance)).transpose()?,
            https: job
                .doors
                .https_apart()
                .map(|at| WebDoor::open(at, web::DoorKind::Https, inheritance))
                .transpose()?,
            terminates: job.doors.https.is_some() && job.doors.https_apart().is_none(),
            agents: job.agents.agents.map(|at| inheritance.bound("--agents", at)).transpose()?,
            egress: job.egress.egress.map(|at| inheritance.bound("--egress", at)).transpose()?,
            interfaces: interfaces
                .into_iter()
                .filter_map(|(interface, at)| Some(open_interface(interface, at?, inheritance)))
                .collect::<anyhow::Result<_>>()?,
            reviews: job.admission.admission.map(admission::Listener::bind).transpose()?,
            peers: job.peers.peers.map(kubernetes::peers::Listener::bind).transpose()?,
            relay: job.relay.relay.map(RelayListener::bind).transpose()?,
        })
    }

    fn addresses(&self) -> Addresses {
        let interface = |wanted: Interface| {
            self.interfaces.iter().find(|listener| listener.interface().flag() == wanted.flag()).map(Listener::address)
        };
        Addresses {
            dns: self.dns.as_ref().map(dns::Listeners::address),
            apiserver: self.apiserver.as_ref().map(Door::address),
            sni: self.sni.as_ref().map(Door::address),
            http: self.http.as_ref().map(|door| door.address),
            https: self
                .https
                .as_ref()
                .map(|door| door.address)
                .or_else(|| self.sni.as_ref().filter(|_| self.terminates).map(Door::address)),
            agents: self.agents.as_ref().map(Bound::address),
            egress: self.egress.as_ref().map(Bound::address),
            admission: self.reviews.as_ref().map(admission::Listener::address),
            peers: self.peers.as_ref().map(kubernetes::peers::Listener::address),
            relay: self.relay.as_ref().map(|listener| listener.address),
            admin: interface(Interface::Admin),
            metrics: interface(Interface::Metrics),
        }
    }

    /// Copies for whoever comes after us; the originals go to those who serve them.
    fn share(&self) -> anyhow::Result<Sockets> {
        let mut shared = Sockets::default();
        if let Some(dns) = &self.dns {
            let (udp, tcp) = dns.share().context("sharing DNS")?;
            for socket in udp {
                shared.add(DNS_UDP, dns.address(), socket);
            }
            shared.add(DNS_TCP, dns.address(), tcp);
        }
        for door in [&self.apiserver, &self.sni].into_iter().flatten() {
            shared.add(door.kind().flag(), door.address(), door.share().context("sharing a door")?);
        }
        for door in [&self.http, &self.https].into_iter().flatten() {
            let socket = door.listener.try_clone().with_context(|| format!("sharing {}", door.kind.flag()))?;
            shared.add(door.kind.flag(), door.address, socket.into());
        }
        for bound in [&self.agents, &self.egress].into_iter().flatten() {
            let socket = bound.share().with_context(|| format!("sharing {}", bound.flag()))?;
            shared.add(bound.flag(), bound.address(), socket);
        }
        for listener in &self.interfaces {
            let socket = listener.share().context("sharing --admin or --metrics")?;
            shared.add(listener.interface().flag(), listener.address(), socket);
        }
        Ok(shared)
    }
}

/// Where it listens, with the ports that were given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Addresses {
    pub(crate) dns: Option<SocketAddr>,
    pub(crate) apiserver: Option<SocketAddr>,
    pub(crate) sni: Option<SocketAddr>,
    pub(crate) http: Option<SocketAddr>,
    pub(crate) https: Option<SocketAddr>,
    pub(crate) agents: Option<SocketAddr>,
    pub(crate) egress: Option<SocketAddr>,
    pub(crate) admission: Option<SocketAddr>,
    pub(crate) peers: Option<SocketAddr>,
    pub(crate) relay: Option<SocketAddr>,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) metrics: Option<SocketAddr>,
}

impl Addresses {
    fn tell(&self) {
        tracing::info!(
            dns = self.dns.map(tracing::field::display),
            apiserver = self.apiserver.map(tracing::field::display),
            sni = self.sni.map(tracing::field::display),
            http = self.http.map(tracing::field::display),
            https = self.https.map(tracing::field::display),
            agents = self.agents.map(tracing::field::display),
            egress = self.egress.map(tracing::field::display),
            admission = self.admission.map(tracing::field::display),
            peers = self.peers.map(tracing::field::display),
            relay = self.relay.map(tracing::field::display),
            admin = self.admin.map(tracing::field::display),
            metrics = self.metrics.map(tracing::field::display),
            "ready"
        );
    }
}

impl Server {
    pub(crate) async fn start(job: &Job) -> anyhow::Result<Self> {
        warn_of_nothing_to_do(job);
        raise_descriptor_limit();
        let admin_credential = job.agents.admin_credential.as_deref().map(AdminCredential::read).transpose()?;

        let mut inheritance = inherit(job)?;
        let listening = Listening::open(job, &mut inheritance)?;
        let (addresses, shared) = (listening.addresses(), listening.share()?);
        let Listening {
            dns,
            apiserver,
            sni,
            http,
            https,
            terminates,
            agents,
            egress,
            interfaces,
            reviews,
            peers,
            relay,
        } = listening;

        let mut registry = Registry::default();
        let published = Published::default();
        let control_metrics = ControlMetrics::register(&mut registry);
        let HomeAndWork { opened, leading, hub, client, webhook } =
            open_home(job, inheritance.has_predecessor(), &published, &mut registry, &control_metrics).await?;
        let dns_metrics = dns::Metrics::register(&mut registry, &published.index);
        let gateway_metrics = gateway::Metrics::register(&mut registry);
        let web_metrics = web::Metrics::register(&mut registry);
        let ways = ways::Prepared::new(job, &edge_name(job), relay, &mut registry)?;

        let (snapshot, index) = (Arc::clone(&published.snapshot), Arc::clone(&published.index));
        let state = Arc::new(api::State::new(snapshot, index, Arc::clone(&opened.database), registry));
        let directory = leading.as_ref().map(Leading::directory);
        wiring::follow_pods(job, client.as_ref(), ways.resolver.as_ref(), &published.snapshot);
        introduce(&state, client, admin_credential, &ways, directory.clone());
        let _ = state.meters.set(api::Meters::new(&dns_metrics, &gateway_metrics, &web_metrics));
        let control = Control::start(opened, published.clone(), Arc::clone(&state), control_metrics)?;

        let guides = state.guides.clone();
        if let Some(file) = &job.members.geo {
            places::follow(file, Arc::clone(&guides.places))?;
        }
        let (stop_dns, stop_http) = (CancellationToken::new(), CancellationToken::new());
        let dns = dns.map(|listeners| {
            let index = Arc::clone(&published.index);
            listeners.start(index, dns_settings(job).with_guides(guides.clone()), dns_metrics, state.recent.clone())
        });
        let dns = dns.transpose().context("starting DNS")?.map(|serving| tokio::spawn(serving.run(stop_dns.clone())));
        let doors: Vec<Door> = [apiserver, sni].into_iter().flatten().collect();
        let overflow = Overflow::new(&edge_name(job), &state.tables, makes_tables(job));
        let ways_of_web = (&overflow, inward::of_web(&ways.links.hub, &ways.links.runtime));
        let web = web_doors::serve(http, https, job, &addresses, &published, &guides, ways_of_web, &web_metrics);
        let web = web.context("starting --http and --https")?;
        let turning = overflow.start(web.as_ref().map(web::Running::sights), &published.http, &state.reports)?;
        let terminate = web.as_ref().filter(|_| terminates).map(|web| web_doors::terminate(web.desk()));
        let settings = door_settings(job, terminate, &ways.links, &addresses);
        let doors =
            gateway::serve(doors, &published.snapshot, &gateway_metrics, &settings).context("starting the doors")?;
        show_doors(&state, &doors, web.as_ref(), &published, &addresses)?;
        let interfaces =
            interfaces.into_iter().map(|listener| serve_http(listener, Arc::clone(&state), stop_http.clone()));
        let interfaces = interfaces.collect::<anyhow::Result<Vec<_>>>()?;
        let control = control.spawn()?;
        let callers = Callers { agents, egress, peers };
        let ways = ways.serve(job, callers, OnHub { agents: hub, directory }, &state, &overflow).await?;
        let chair = ways.chair();
        let leading = leading.map(|leading| leading.with_chair(chair, overflow.failing.subscribe()).start());
        let stop_admission = CancellationToken::new();
        let admission = reviews.zip(webhook).map(|(listener, Webhook { admission, client })| {
            // Ends with the runtime.
            tokio::spawn(admission.clone().follow(client));
            serve_reviews(listener, admission, Arc::clone(&state), stop_admission.clone())
        });
        let admission = admission.transpose()?;

        let data = job.state.data.as_deref().filter(|_| matches!(job.home, JobHome::Folder(_)));
        let post = data.map(Post::open).transpose().context("waiting for a successor")?;
        inheritance.announce_ready().context("telling the predecessor that it may end")?;
        state.set_ready(true);
        addresses.tell();
        let successors = post.map(Post::watch).transpose().context("waiting for a successor")?;
        let hand_over = successors.map(|successors| HandOver { successors, shared, job: job.clone() });
        let drain = job.doors.end.drain;
        Ok(Self {
            addresses,
            control,
            state,
            stop_dns,
            stop_http,
            doors,
            web,
            _overflow: turning,
            dns,
            drain,
            interfaces,
            ways,
            hand_over,
            leading,
            admission,
            stop_admission,
        })
    }

    pub(crate) async fn until_told_to_stop(mut self, mut signals: Signals) -> anyhow::Result<()> {
        let handed_over = tokio::select! {
            signal = signals.next() => {
                tracing::info!("{signal}: draining");
                false
            }
            () = HandOver::done(self.hand_over.as_mut(), &self.control) => {
                tracing::info!("another process has taken over: draining");
                true
            }
        };
        // Ours no more, or nobody's: kept open, its listeners would take connections that nobody serves.
        drop(self.hand_over);
        if handed_over {
            // Their listeners are the other's now, which answers for both.
            self.stop_http.cancel();
            self.ways.give_up_ports();
        }
        // Not ready at once, so that nobody sends new work here while the rest of it ends.
        self.state.set_ready(false);
        // Before any connection: another controller can take over while they end here.
        if let Some(leading) = self.leading {
            leading.stop().await;
        }
        self.ways.leave();
        let (doors, web, egress, drain) = (self.doors, self.web, self.ways.take_egress(), self.drain);
        let doors = tokio::task::spawn_blocking(move || doors.drain(drain));
        let web = tokio::task::spawn_blocking(move || web.map(|web| web.drain(drain)));
        let egress = tokio::task::spawn_blocking(move || egress.map(egress::Running::drain));
        tokio::select! {
            _ = async { tokio::join!(doors, web, egress) } => {}
            signal = signals.next() => tracing::warn!("{signal} again: not waiting for connections"),
        }
        self.stop_admission.cancel();
        if let Some(admission) = self.admission
            && admission.join().is_err()
        {
            tracing::error!("the thread of --admission panicked");
        }
        self.ways.end_links(handed_over).await;
        // Names last: who still resolves them still finds the others that serve them.
        self.ways.end_resolver().await;
        self.stop_dns.cancel();
        if let Some(dns) = self.dns
            && dns.await.is_err()
        {
            tracing::error!("DNS panicked");
        }
        self.ways.end();
        self.control.stop();
        self.stop_http.cancel();
        for thread in self.interfaces {
            if thread.join().is_err() {
                tracing::error!("the thread of --admin or --metrics panicked");
            }
        }
        tracing::info!("stopped");
        Ok(())
    }
}

impl HandOver {
    /// Ends when another process serves from our sockets.
    async fn done(this: Option<&mut Self>, control: &Running) {
        let Some(Self { successors, shared, job }) = this else { return pending().await };
        while let Some(successor) = successors.recv().await {
            tracing::info!("another process wants to take over");
            let Some(paused) = control.pause() else { break };
            let taken = match successor.give(shared) {
                Ok(()) => tokio::task::spawn_blocking(move || successor.is_ready()).await.unwrap_or(false),
                Err(error) => {
                    tracing::error!(%error, "the sockets could not be given away");
                    false
                }
            };
            if taken {
                return;
            }
            tracing::warn!("the process that wanted to take over has ended; going on");
            let (home, data, resolver) = (job.home.clone(), job.state.data.clone(), job.resolver.of_folder());
            paused.resume(Box::new(move || match home {
                JobHome::Folder(fleet) => home::open_folder(&fleet, data.as_deref(), resolver, true),
                JobHome::Hub { .. } => anyhow::bail!("a hub is never handed over"),
            }));
        }
        // Nobody can take over any more, and the log says why.
        pending::<()>().await;
    }
}

fn inherit(job: &Job) -> anyhow::Result<Inheritance> {
    let Some(data) = job.state.data.as_deref().filter(|_| job.take_over) else { return Ok(Inheritance::default()) };
    let inheritance = Inheritance::ask(data).context("asking the running fleetgate for its sockets")?;
    if !inheritance.has_predecessor() {
        tracing::info!("nobody serves from {}: nothing to take over", data.display());
    }
    Ok(inheritance)
}

/// Within a tokio runtime.
fn door_settings(
    job: &Job,
    terminate: Option<gateway::Terminate>,
    links: &Links,
    addresses: &Addresses,
) -> gateway::Settings {
    gateway::Settings {
        terminate,
        cut_disallowed: !job.doors.keep_disallowed,
        trusted_proxies: job.doors.trusted_proxies.clone().into(),
        inward: Some(inward::of_gateway(&links.hub, &links.runtime)),
        agents: addresses.agents.map(reach),
        ..gateway::Settings::default()
    }
}

fn dns_settings(job: &Job) -> dns::Settings {
    let options = &job.answers;
    let per_second = options.rate_limit;
    let mut settings = dns::Settings::default().with_rate_limit(dns::RateLimit { per_second, ..Default::default() });
    if let Some(identity) = &options.identity {
        settings = settings.with_identity(identity);
    }
    if let Some(version) = &options.version {
        settings = settings.with_version(version);
    }
    settings
}

/// Within a tokio runtime.
fn open_dns(at: SocketAddr, inheritance: &mut Inheritance) -> anyhow::Result<dns::Listeners> {
    match (inheritance.take(DNS_UDP, at), inheritance.take(DNS_TCP, at).pop()) {
        (udp, Some(tcp)) if !udp.is_empty() => dns::Listeners::adopt(udp, tcp).context("taking over DNS"),
        _ => Ok(dns::Listeners::bind(at)?),
    }
}

fn open_door(at: SocketAddr, kind: DoorKind, inheritance: &mut Inheritance) -> anyhow::Result<Door> {
    match inheritance.take(kind.flag(), at).pop() {
        Some(listener) => Door::adopt(listener, kind).context("taking over a door"),
        None => Ok(Door::bind(at, kind)?),
    }
}

fn open_interface(interface: Interface, at: SocketAddr, inheritance: &mut Inheritance) -> anyhow::Result<Listener> {
    inheritance.bound(interface.flag(), at).map(|bound| Listener::new(interface, bound))
}

/// What it takes to answer the hub's API server.
struct Webhook {
    admission: Admission,
    client: kubernetes::Client,
}

/// Where this process reaches a listener of its own.
fn reach(listener: SocketAddr) -> SocketAddr {
    match listener.ip() {
        IpAddr::V4(any) if any.is_unspecified() => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), listener.port()),
        IpAddr::V6(any) if any.is_unspecified() => SocketAddr::new(Ipv6Addr::LOCALHOST.into(), listener.port()),
        _ => listener,
    }
}

/// A home, and what else this process does there.
struct HomeAndWork {
    opened: Opened,
    /// A controller's.
    leading: Option<Leading>,
    /// For the agents' door, where the home is a hub.
    hub: Option<Arc<kubernetes::agents::Agents>>,
    /// Of the hub.
    client: Option<kubernetes::Client>,
    /// What answers the hub's API server.
    webhook: Option<Webhook>,
}

/// Whom and what the interfaces show beside the fleet. Each is set once, here.
fn introduce(
    state: &api::State,
    client: Option<kubernetes::Client>,
    credential: Option<AdminCredential>,
    ways: &ways::Prepared,
    directory: Option<tenants::Directory>,
) {
    let orders: Arc<dyn Orders> = match client {
        Some(client) => Arc::new(agents::HubOrders(client)),
        None => Arc::new(FolderOrders(Arc::clone(&state.database))),
    };
    let _ = state.orders.set(orders);
    let _ = state.links.set(ways.links.hub.clone());
    if let Some(resolver) = &ways.resolver {
        resolver.look_in(directory);
        let _ = state.resolver.set(resolver.view());
    }
    if let Some(credential) = credential {
        let _ = state.admin_credential.set(credential);
    }
}

async fn open_home(
    job: &Job,
    from_another: bool,
    published: &Published,
    registry: &mut Registry,
    metrics: &ControlMetrics,
) -> anyhow::Result<HomeAndWork> {
    let (access, roles) = match &job.home {
        JobHome::Folder(fleet) => {
            let resolver = job.resolver.of_folder();
            // A large fleet takes its time. Lines for programs stay among themselves.
            let is_human = job.views.log.log_format == LogFormat::Human;
            let _waiting = is_human.then(|| Waiting::on(format!("reading {}", fleet.display())));
            let opened = home::open_folder(fleet, job.state.data.as_deref(), resolver, from_another)?;
            return Ok(HomeAndWork { opened, leading: None, hub: None, client: None, webhook: None });
        }
        JobHome::Hub { access, roles } => (access, *roles),
    };
    let client = kubernetes::client::connect(access.kubeconfig.as_deref()).await?;
    let namespace = access.namespace.clone();
    let sources = if access.sources.is_empty() { vec![namespace.clone()] } else { access.sources.clone() };
    let writing = Writing::default();
    let admission = job.admission.admission.filter(|_| roles.controller).map(|_| {
        let pods = job.wiring.pods(&job.hub_domain, &writing);
        let settings = admission::Settings { pods, ..admission_settings(&job.admission, &namespace) };
        Admission::new(settings, Arc::clone(&published.snapshot), registry)
    });
    let (desk, leading) = if roles.controller {
        let lease = lease::Settings::new(&namespace, host_name());
        let policy = kubernetes::kubeconfig::Policy { loopback: access.allow_loopback };
        let tenants = tenants::Settings { policy, ..tenants::Settings::default() };
        let snapshot = Arc::clone(&published.snapshot);
        let (desk, leading) =
            Desk::open(client.clone(), lease, tenants, snapshot, writing, admission.clone(), registry);
        let wiring = job.wiring.settings(&namespace)?;
        let wiring = wiring.map(|settings| Wiring::new(settings, resolvers::Metrics::register(registry)));
        (Some(desk), Some(leading.with_wiring(wiring)))
    } else {
        (None, None)
    };
    let hub = kubernetes::agents::Agents::new(client.clone(), namespace.clone());
    let settings = kubernetes::home::Settings { roles, namespace, sources, certificates: access.certificates.clone() };
    let opened = home::open_hub(&client, settings, &job.state, desk, metrics)?;
    let webhook = admission.map(|admission| Webhook { admission, client: client.clone() });
    Ok(HomeAndWork { opened, leading, hub: Some(Arc::new(hub)), client: Some(client), webhook })
}

fn admission_settings(options: &AdmissionOptions, namespace: &str) -> admission::Settings {
    let service = || admission::Place::Service(admission::SERVICE.to_owned());
    admission::Settings {
        namespace: namespace.to_owned(),
        place: options.admission_url.clone().unwrap_or_else(service),
        failure_policy: options.admission_failure_policy.into(),
        pods: None,
    }
}

/// Whoever does everything by itself. Roles of a hub have a leader.
fn makes_tables(job: &Job) -> bool {
    match &job.home {
        JobHome::Folder(_) => true,
        // With --peers it is for whoever leads to make them.
        JobHome::Hub { roles, .. } => roles.controller && (roles.gateway || roles.dns) && job.peers.peers.is_none(),
    }
}

/// What this process is called among the edges.
fn edge_name(job: &Job) -> String {
    match &job.home {
        JobHome::Hub { access, .. } => access.edge.clone().unwrap_or_else(host_name),
        JobHome::Folder(_) => host_name(),
    }
}

/// What the Lease shows to people: in a pod, its name.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// In a thread and runtime of its own: listing a whole fleet must not hold up a query or a connection.
pub(crate) fn serve_http(
    listener: Listener,
    state: Arc<api::State>,
    stop: CancellationToken,
) -> anyhow::Result<std::thread::JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let flag = listener.interface().flag();
    let thread = std::thread::Builder::new().name(flag.trim_start_matches('-').into());
    let spawned = thread.spawn(move || runtime.block_on(listener.serve(state, stop)));
    spawned.with_context(|| format!("starting the thread of {flag}"))
}

/// In a thread and runtime of its own: an object with thousands of records must not hold up the renewal of the Lease.
fn serve_reviews(
    listener: admission::Listener,
    admission: Admission,
    state: Arc<api::State>,
    stop: CancellationToken,
) -> anyhow::Result<std::thread::JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name("admission".into());
    let serve = admission.serve(listener, move || state.is_informed(), stop);
    thread.spawn(move || runtime.block_on(serve)).context("starting the thread of --admission")
}

/// To who asks what they would do.
fn show_doors(
    state: &api::State,
    doors: &gateway::Serving,
    web: Option<&web::Running>,
    published: &Published,
    addresses: &Addresses,
) -> anyhow::Result<()> {
    let requests = match web {
        Some(web) => web.insight(),
        None => Arc::new(web::Insight::without_doors(&published.http).context("preparing explanations")?),
    };
    // Set once, here.
    let _ = state.insight.set(doors.insight());
    let _ = state.web.set(requests);
    let _ = state.doors.set(api::Doors { sni: addresses.sni, http: addresses.http, https: addresses.https });
    Ok(())
}

/// Every connection takes two descriptors. Shells and systemd give 1,024 by default and allow far more to those who ask,
/// which is for programs that still use `select`.
pub(crate) fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => tracing::debug!(from = current, to = maximum, "more descriptors"),
        Err(error) => tracing::warn!(%error, limit = current, "the limit of descriptors stays as it is"),
    }
}

fn warn_of_nothing_to_do(Job { answers, doors, agents, resolver, views, .. }: &Job) {
    let doors = [doors.apiserver, doors.sni, doors.http, doors.https];
    let others = [answers.dns, agents.agents, views.admin, views.metrics];
    if doors.iter().chain(&others).all(Option::is_none) && !resolver.is_wanted() {
        tracing::warn!(
            "nothing to listen on: give --dns, --resolver, --apiserver, --sni, --http, --https, --agents, --admin or --metrics an address"
        );
    }
}
