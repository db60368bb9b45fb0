//! `fleetgate agent load`: what a tenant cluster's Services serve, and how busy they are.

use std::collections::BTreeSet;
use std::process::ExitCode;

use agent::load::{Load, LoadMetrics, Service, Wanted};
use kubernetes::sources::Cluster;
use manifest::agents::MAX_SERVICES;

use crate::agent_process::{self, AgentProcess, Tools};
use crate::arguments::LoadOptions;
use crate::telemetry;

pub(crate) fn run(options: &LoadOptions) -> anyhow::Result<ExitCode> {
    telemetry::start_log(&options.log)?;
    check(&options.service)?;
    if options.page.wanted().says_nothing_of_limits() {
        tracing::warn!(
            "nothing says how busy a pod is: only declared rates will count. Give --utilization-metric, --in-flight-metric or --cpu-limit"
        );
    }
    agent_process::block_on(async {
        let mut process = AgentProcess::open(options.link.resolve("load"), options.health)?;
        let metrics = LoadMetrics::register(&mut process.registry);
        let cluster = Cluster::new(kubernetes::client::connect(options.kubeconfig.as_deref()).await?);
        let (path, page) = (options.page.metrics_path.to_string(), options.page.wanted());
        let wanted = Wanted {
            services: options.service.clone(),
            class: options.all_of_ingress_class.clone(),
            port: options.page.metrics_port.clone(),
        };
        let work = |Tools { link, health, stop }| Load { link, cluster, wanted, path, page, health, metrics }.run(stop);
        process.run(None, work).await;
        Ok(())
    })
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
