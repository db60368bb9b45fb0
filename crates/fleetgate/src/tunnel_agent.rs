//! `fleetgate agent tunnel`: the hub's way into a tenant cluster.

use std::net::SocketAddr;
use std::process::ExitCode;

use agent::tunnel::Tunnel;
use clap::Args;
use model::DnsName;
use tunnel::Metrics;
use tunnel::inside::{Allow, AllowList, Dialler, Names};

use crate::agent_process::{self, AgentProcess, Tools};
use crate::arguments::{LinkOptions, LogOptions};
use crate::serve::{host_name, raise_descriptor_limit};
use crate::telemetry;

#[derive(Debug, Args)]
pub(crate) struct TunnelOptions {
    #[command(flatten)]
    pub(crate) link: LinkOptions,
    /// What may be reached: CIDR[:PORT[-PORT]], or NAME[:PORT[-PORT]] for a name and all below it; may be given several times.
    /// By default private addresses and names in the cluster's domain
    #[arg(long, value_name = "WHAT", value_delimiter = ',', env = "FLEETGATE_ALLOW")]
    pub(crate) allow: Vec<Allow>,
    /// The cluster's DNS server; without it the system's resolver is asked
    #[arg(long, value_name = "ADDR", env = "FLEETGATE_DNS")]
    pub(crate) dns: Option<SocketAddr>,
    /// What the names of the cluster's Services end in
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local", value_parser = parse_name, env = "FLEETGATE_CLUSTER_DOMAIN")]
    pub(crate) cluster_domain: DnsName,
    /// Connections to each of the hub's processes that there are links to
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=8), env = "FLEETGATE_LINKS")]
    pub(crate) links: u8,
    /// Metrics, /healthz and /readyz; ready is who has a link
    #[arg(long, value_name = "ADDR", env = "FLEETGATE_HEALTH")]
    pub(crate) health: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) log: LogOptions,
}

fn parse_name(text: &str) -> Result<DnsName, model::name::NameError> {
    DnsName::parse(text)
}

pub(crate) fn run(options: &TunnelOptions) -> anyhow::Result<ExitCode> {
    telemetry::start_log(&options.log)?;
    raise_descriptor_limit();
    agent_process::block_on_threads(async {
        let mut process = AgentProcess::open(options.link.resolve("tunnel"), options.health)?;
        let metrics = Metrics::register(&mut process.registry);
        let domain = &options.cluster_domain;
        let allow = AllowList::new(options.allow.clone(), domain);
        let dialler = Dialler::new(host_name(), allow, Names::new(options.dns, domain.clone()));
        let links = usize::from(options.links);
        let work = move |Tools { link, health, stop }| Tunnel { link, dialler, links, health, metrics }.run(stop);
        process.run(None, work).await;
        Ok(())
    })
}
