//! `fleetgate agent load`: what a tenant cluster's Services serve, and how busy they are.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;

use agent::health::{Health, HealthListener};
use agent::load::{Load, LoadMetrics, Service, Wanted};
use agent::{Link, LinkMetrics};
use anyhow::Context as _;
use kubernetes::sources::Cluster;
use manifest::agents::MAX_SERVICES;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::arguments::LoadOptions;
use crate::serve::Signals;
use crate::telemetry;

pub(crate) fn run(options: &LoadOptions) -> anyhow::Result<ExitCode> {
    telemetry::start_log(&options.log)?;
    check(&options.service)?;
    if options.page.wanted().says_nothing_of_limits() {
        tracing::warn!(
            "nothing says how busy a pod is: only declared rates will count. Give --utilization-metric, --in-flight-metric or --cpu-limit"
        );
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let listener = match options.health {
            Some(at) => Some(HealthListener::bind(at).await.with_context(|| format!("binding --health on {at}"))?),
            None => None,
        };
        let health_address = listener.as_ref().map(HealthListener::address);
        let mut registry = Registry::default();
        let link = Link::open(options.link.resolve("load"), LinkMetrics::register(&mut registry))?;
        let (link, metrics) = (Arc::new(link), LoadMetrics::register(&mut registry));
        let health = Arc::new(Health::new(registry));
        let cluster = Cluster::new(kubernetes::client::connect(options.kubeconfig.as_deref()).await?);
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        if let Some(listener) = listener {
            tasks.spawn(listener.serve(Arc::clone(&health), stop.clone()));
        }
        let keeping = (Arc::clone(&link), stop.clone());
        tasks.spawn(async move { keeping.0.keep(keeping.1).await });
        let (path, page) = (options.page.metrics_path.to_string(), options.page.wanted());
        let wanted = Wanted {
            services: options.service.clone(),
            class: options.all_of_ingress_class.clone(),
            port: options.page.metrics_port.clone(),
        };
        let load = Load { link, cluster, wanted, path, page, health: Arc::clone(&health), metrics };
        tasks.spawn(load.run(stop.clone()));
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

/// Each once, and not more than a line has room for.
fn check(services: &[Service]) -> anyhow::Result<()> {
    anyhow::ensure!(services.len() <= MAX_SERVICES, "at most {MAX_SERVICES} Services can be reported");
    let mut seen = BTreeSet::new();
    for service in services {
        anyhow::ensure!(seen.insert(service.to_string()), "the Service {service} is given twice");
    }
    Ok(())
}
