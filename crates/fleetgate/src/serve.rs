//! `fleetgate serve`: everything in one process.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use gateway::{Door, DoorKind};
use prometheus_client::registry::Registry;
use store::{Database, Home};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::arguments::ServeOptions;
use crate::control::{Control, Published};
use crate::telemetry::{self, ControlMetrics};

pub(crate) fn run(options: &ServeOptions) -> anyhow::Result<ExitCode> {
    telemetry::start_log(&options.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(async {
        let signals = Signals::listen()?;
        let server = Server::start(options)?;
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
}

/// A server that answers.
pub(crate) struct Server {
    pub(crate) addresses: Addresses,
    control: crate::control::Running,
    state: Arc<api::State>,
    stop_dns: CancellationToken,
    /// Ends the admin interface, which says until the end that we are not ready any more.
    stop_admin: CancellationToken,
    doors: gateway::Serving,
    dns: Option<tokio::task::JoinHandle<()>>,
    drain: Duration,
    admin: Option<std::thread::JoinHandle<()>>,
}

/// Where it listens, with the ports that were given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Addresses {
    pub(crate) dns: Option<SocketAddr>,
    pub(crate) apiserver: Option<SocketAddr>,
    pub(crate) sni: Option<SocketAddr>,
    pub(crate) admin: Option<SocketAddr>,
}

impl Server {
    pub(crate) fn start(options: &ServeOptions) -> anyhow::Result<Self> {
        say_what_is_not_there_yet(options);

        // Listeners first: a port that is taken is known before anything else is done. Who comes early waits a moment.
        let dns = options.dns.map(dns::Listeners::bind).transpose()?;
        let apiserver = options.apiserver.map(|at| Door::bind(at, DoorKind::ClusterId)).transpose()?;
        let sni = options.sni.map(|at| Door::bind(at, DoorKind::ServerName)).transpose()?;
        let admin = options.admin.map(api::Admin::bind).transpose()?;
        let addresses = Addresses {
            dns: dns.as_ref().map(dns::Listeners::address),
            apiserver: apiserver.as_ref().map(Door::address),
            sni: sni.as_ref().map(Door::address),
            admin: admin.as_ref().map(api::Admin::address),
        };

        let database = Arc::new(open_database(options.data.as_deref())?);
        let (home, first) = Home::open(&options.fleet, Arc::clone(&database))?;

        let mut registry = Registry::default();
        let control_metrics = ControlMetrics::register(&mut registry);
        let dns_metrics = dns::Metrics::register(&mut registry);
        let gateway_metrics = gateway::Metrics::register(&mut registry);

        let published = Published::default();
        let (snapshot, index) = (Arc::clone(&published.snapshot), Arc::clone(&published.index));
        let state = Arc::new(api::State::new(snapshot, index, database, registry));
        let control = Control::start(home, first, published.clone(), Arc::clone(&state), control_metrics);

        let (stop_dns, stop_admin) = (CancellationToken::new(), CancellationToken::new());
        let dns = dns.map(|listeners| {
            tokio::spawn(listeners.serve(Arc::clone(&published.index), dns_metrics, stop_dns.clone()))
        });
        let doors: Vec<Door> = [apiserver, sni].into_iter().flatten().collect();
        let settings = gateway::Settings {
            cut_disallowed: !options.keep_disallowed,
            trusted_proxies: options.trusted_proxies.clone().into(),
            ..gateway::Settings::default()
        };
        let doors =
            gateway::serve(doors, &published.snapshot, &gateway_metrics, &settings).context("starting the doors")?;
        // Set once, here.
        let _ = state.insight.set(doors.insight());
        let admin = admin.map(|admin| serve_admin(admin, Arc::clone(&state), stop_admin.clone())).transpose()?;
        let control = control.spawn()?;

        state.set_ready(true);
        tracing::info!(
            dns = addresses.dns.map(tracing::field::display),
            apiserver = addresses.apiserver.map(tracing::field::display),
            sni = addresses.sni.map(tracing::field::display),
            admin = addresses.admin.map(tracing::field::display),
            "ready"
        );
        let drain = options.drain;
        Ok(Self { addresses, control, state, stop_dns, stop_admin, doors, dns, drain, admin })
    }

    pub(crate) async fn until_told_to_stop(self, signals: Signals) -> anyhow::Result<()> {
        let Signals { mut terminate, mut interrupt } = signals;
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: draining"),
            _ = interrupt.recv() => tracing::info!("SIGINT: draining"),
        }
        // Not ready at once, so that nobody sends new work here while the rest of it ends.
        self.state.set_ready(false);
        let (doors, drain) = (self.doors, self.drain);
        let drained = tokio::task::spawn_blocking(move || doors.drain(drain));
        tokio::select! {
            _ = drained => {}
            _ = terminate.recv() => tracing::warn!("SIGTERM again: not waiting for connections"),
            _ = interrupt.recv() => tracing::warn!("SIGINT again: not waiting for connections"),
        }
        // Names last: who still resolves them still finds the others that serve them.
        self.stop_dns.cancel();
        if let Some(dns) = self.dns
            && dns.await.is_err()
        {
            tracing::error!("DNS panicked");
        }
        self.control.stop();
        self.stop_admin.cancel();
        if let Some(thread) = self.admin
            && thread.join().is_err()
        {
            tracing::error!("the admin thread panicked");
        }
        tracing::info!("stopped");
        Ok(())
    }
}

fn open_database(data: Option<&Path>) -> anyhow::Result<Database> {
    if let Some(folder) = data {
        return Ok(Database::open(folder)?);
    }
    tracing::warn!("no --data: the last good state and who was first are lost with this process");
    Ok(Database::in_memory()?)
}

/// In a thread and runtime of its own: listing a whole fleet must not hold up a query or a connection.
fn serve_admin(
    admin: api::Admin,
    state: Arc<api::State>,
    stop: CancellationToken,
) -> anyhow::Result<std::thread::JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name("admin".into());
    thread.spawn(move || runtime.block_on(admin.serve(state, stop))).context("starting the admin thread")
}

fn say_what_is_not_there_yet(options: &ServeOptions) {
    let later = [("--http", options.http), ("--https", options.https), ("--agents", options.agents)];
    for (flag, address) in later {
        if address.is_some() {
            tracing::warn!("{flag} is not supported yet and listens on nothing");
        }
    }
    if [options.dns, options.apiserver, options.sni, options.admin].iter().all(Option::is_none) {
        tracing::warn!("nothing to listen on: give --dns, --apiserver, --sni or --admin an address");
    }
}
