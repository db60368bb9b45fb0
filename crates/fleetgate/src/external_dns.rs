//! `fleetgate agent external-dns`: ExternalDNS' provider.

use std::process::ExitCode;
use std::sync::Arc;

use agent::external_dns::{Provider, ProviderListener, ProviderMetrics};
use agent::health::{Health, HealthListener};
use agent::{Link, LinkMetrics};
use anyhow::Context as _;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::arguments::ExternalDnsOptions;
use crate::serve::Signals;
use crate::telemetry;

pub(crate) fn run(options: &ExternalDnsOptions) -> anyhow::Result<ExitCode> {
    telemetry::start_log(&options.log)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let (listen, at) = (options.listen, options.health);
        let listener = ProviderListener::bind(listen).await.with_context(|| format!("binding --listen on {listen}"))?;
        let health_listener = HealthListener::bind(at).await.with_context(|| format!("binding --health on {at}"))?;
        let (address, health_address) = (listener.address(), health_listener.address());
        let mut registry = Registry::default();
        let link = Link::open(options.link.resolve("external-dns"), LinkMetrics::register(&mut registry))?;
        let (link, metrics) = (Arc::new(link), ProviderMetrics::register(&mut registry));
        let health = Arc::new(Health::new(registry));
        let provider = Arc::new(Provider::new(Arc::clone(&link), Arc::clone(&health), metrics));

        let (stop, stop_health) = (CancellationToken::new(), CancellationToken::new());
        let (tasks, probes) = (TaskTracker::new(), TaskTracker::new());
        // Probes see until the end that we are not ready any more.
        probes.spawn(health_listener.serve(Arc::clone(&health), stop_health.clone()));
        probes.close();
        let keeping = (link, stop.clone());
        tasks.spawn(async move { keeping.0.keep(keeping.1).await });
        tasks.spawn(listener.serve(provider, stop.clone()));
        tasks.close();
        tracing::info!(listen = %address, health = %health_address, "started");

        tracing::info!("{}: stopping", signals.next().await);
        health.set_ready(false);
        stop.cancel();
        tokio::select! {
            () = tasks.wait() => {}
            signal = signals.next() => tracing::warn!("{signal} again: not waiting"),
        }
        stop_health.cancel();
        probes.wait().await;
        tracing::info!("stopped");
        anyhow::Ok(())
    })?;
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}
