//! `fleetgate agent sync`: a tenant cluster's `DNSEndpoint`s through the hub.

use std::process::ExitCode;

use agent::sync::{Sync, SyncMetrics};
use kubernetes::sources::Cluster;

use crate::agent_process::{self, AgentProcess, Tools};
use crate::arguments::SyncOptions;
use crate::telemetry;

pub(crate) fn run(options: &SyncOptions) -> anyhow::Result<ExitCode> {
    telemetry::start_log(&options.log)?;
    agent_process::block_on(async {
        let mut process = AgentProcess::open(options.link.resolve("sync"), options.health)?;
        let metrics = SyncMetrics::register(&mut process.registry);
        let cluster = Cluster::new(kubernetes::client::connect(options.kubeconfig.as_deref()).await?);
        let namespaces = match options.namespace.as_slice() {
            [] => vec![None],
            some => some.iter().cloned().map(Some).collect(),
        };
        let work = |Tools { link, health, stop }| Sync { link, cluster, namespaces, health, metrics }.run(stop);
        process.run(None, work).await;
        Ok(())
    })
}
