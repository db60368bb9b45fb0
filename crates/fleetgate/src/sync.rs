//! `fleetgate agent sync`: a tenant cluster's `DNSEndpoint`s through the hub.

use std::process::ExitCode;
use std::sync::Arc;

use agent::health::{Health, HealthListener};
use agent::sync::{Sync, SyncMetrics};
use agent::{Link, LinkMetrics};
use anyhow::Context as _;
use kubernetes::sources::Cluster;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::arguments::SyncOptions;
use crate::serve::Signals;
use crate::telemetry;

pub(crate) fn run(options: &SyncOptions) -> anyhow::Result<ExitCode> {
    telemetry::start_log(&options.log)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let listener = match options.health {
            Some(at) => Some(HealthListener::bind(at).await.with_context(|| format!("binding --health on {at}"))?),
            None => None,
        };
        let health_address = listener.as_ref().map(HealthListener::address);
        let mut registry = Registry::default();
        let link = Link::open(options.link.resolve("sync"), LinkMetrics::register(&mut registry))?;
        let (link, metrics) = (Arc::new(link), SyncMetrics::register(&mut registry));
        let health = Arc::new(Health::new(registry));
        let cluster = Cluster::new(kubernetes::client::connect(options.kubeconfig.as_deref()).await?);
        let namespaces = match options.namespace.as_slice() {
            [] => vec![None],
            some => some.iter().cloned().map(Some).collect(),
        };

        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        if let Some(listener) = listener {
            tasks.spawn(listener.serve(Arc::clone(&health), stop.clone()));
        }
        let keeping = (Arc::clone(&link), stop.clone());
        tasks.spawn(async move { keeping.0.keep(keeping.1).await });
        let sync = Sync { link, cluster, namespaces, health: Arc::clone(&health), metrics };
        tasks.spawn(sync.run(stop.clone()));
        tasks.close();
        tracing::info!(health = health_address.map(tracing::field::display), "started");

        tracing::info!("{}: stopping", signals.next().await);
        health.set_ready(false);
        stop.cancel();
        tokio::select! {
            () = tasks.wait() => {}
            signal = signals.next() => tracing::warn!("{signal} again: not waiting"),
        }
        tracing::info!("stopped");
        anyhow::Ok(())
    })?;
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}
