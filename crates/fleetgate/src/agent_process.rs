//! What all agents in tenant clusters have in common: a link to the hub, probes, and an end that waits for the work.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use agent::health::{Health, HealthListener};
use agent::{Link, LinkMetrics, LinkOptions};
use anyhow::Context as _;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::serve::Signals;

/// A process that has not begun with its work yet.
pub(crate) struct AgentProcess {
    pub(crate) registry: Registry,
    link: Arc<Link>,
    probes: Option<HealthListener>,
    signals: Signals,
}

/// What an agent does its work with.
pub(crate) struct Tools {
    pub(crate) link: Arc<Link>,
    pub(crate) health: Arc<Health>,
    pub(crate) stop: CancellationToken,
}

/// In one thread: agents wait most of the time.
pub(crate) fn block_on(process: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<ExitCode> {
    run_in(tokio::runtime::Builder::new_current_thread(), process)
}

/// With a thread for each processor: for those that carry what others send.
pub(crate) fn block_on_threads(process: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<ExitCode> {
    run_in(tokio::runtime::Builder::new_multi_thread(), process)
}

fn run_in(
    mut runtime: tokio::runtime::Builder,
    process: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<ExitCode> {
    let runtime = runtime.enable_all().build().context("starting the runtime")?;
    runtime.block_on(process)?;
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

impl AgentProcess {
    pub(crate) fn open(link: LinkOptions, health: Option<SocketAddr>) -> anyhow::Result<Self> {
        let signals = Signals::listen()?;
        let probes = health.map(HealthListener::bind).transpose()?;
        let mut registry = Registry::default();
        let link = Arc::new(Link::open(link, LinkMetrics::register(&mut registry))?);
        Ok(Self { registry, link, probes, signals })
    }

    /// Until a signal comes and the work has ended. `listen` is told to people: where the agent itself is asked.
    pub(crate) async fn run<W>(mut self, listen: Option<SocketAddr>, work: impl FnOnce(Tools) -> W)
    where
        W: Future<Output = ()> + Send + 'static,
    {
        let health = Arc::new(Health::new(self.registry));
        let (stop, stop_probes) = (CancellationToken::new(), CancellationToken::new());
        let (tasks, probes) = (TaskTracker::new(), TaskTracker::new());
        let address = self.probes.as_ref().map(HealthListener::address);
        if let Some(listener) = self.probes {
            probes.spawn(listener.serve(Arc::clone(&health), stop_probes.clone()));
        }
        probes.close();
        let keeping = (Arc::clone(&self.link), stop.clone());
        tasks.spawn(async move { keeping.0.keep(keeping.1).await });
        tasks.spawn(work(Tools { link: self.link, health: Arc::clone(&health), stop: stop.clone() }));
        tasks.close();
        let (listen, address) = (listen.map(tracing::field::display), address.map(tracing::field::display));
        tracing::info!(listen, health = address, "started");

        tracing::info!("{}: stopping", self.signals.next().await);
        health.set_ready(false);
        stop.cancel();
        tokio::select! {
            () = tasks.wait() => {}
            signal = self.signals.next() => tracing::warn!("{signal} again: not waiting"),
        }
        // Until here probes see that we are not ready any more.
        stop_probes.cancel();
        probes.wait().await;
        tracing::info!("stopped");
    }
}
