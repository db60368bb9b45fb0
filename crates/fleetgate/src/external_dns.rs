//! `fleetgate agent external-dns`: ExternalDNS' provider.

use std::process::ExitCode;
use std::sync::Arc;

use agent::external_dns::{Provider, ProviderListener, ProviderMetrics};

use crate::agent_process::{self, AgentProcess, Tools};
use crate::arguments::ExternalDnsOptions;
use crate::telemetry;

pub(crate) fn run(options: &ExternalDnsOptions) -> anyhow::Result<ExitCode> {
    telemetry::start_log(&options.log)?;
    agent_process::block_on(async {
        let listener = ProviderListener::bind(options.listen)?;
        let mut process = AgentProcess::open(options.link.resolve("external-dns"), Some(options.health))?;
        let metrics = ProviderMetrics::register(&mut process.registry);
        let address = listener.address();
        let work = |Tools { link, health, stop }| listener.serve(Arc::new(Provider::new(link, health, metrics)), stop);
        process.run(Some(address), work).await;
        Ok(())
    })
}
