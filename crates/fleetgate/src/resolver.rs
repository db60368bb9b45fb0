//! The control planes' resolver in a process, and `fleetgate dns config`.

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use arc_swap::ArcSwap;
use clap::{Args, Subcommand, ValueEnum};
use kubernetes::tenants;
use manifest::pod_dns::{POLICY, PodDns};
use manifest::text::DnsServer;
use model::resolver::{ClusterDns, Ports};
use model::{ClusterName, DnsName, Snapshot};
use prometheus_client::registry::Registry;
use resolver::{ClusterView, Directory, DirectoryError, Looked, Pods, Resolver, Settings, Wanted};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::admin::{self, AdminOptions};
use crate::job::Job;

/// Where a system says which servers it asks.
const SYSTEM: &str = "/etc/resolv.conf";
/// More name servers than this no system asks either (resolv.conf(5)).
const MOST_SYSTEM_SERVERS: usize = 3;
/// How often it is looked whether there is another plan: a cluster waits no longer for its port.
const LOOK: Duration = Duration::from_millis(200);
const MIB: usize = 1 << 20;

/// The control planes' resolver.
#[derive(Debug, Clone, Args)]
pub(crate) struct ResolverOptions {
    /// Resolve names for control planes: every cluster has a port of its own on this address, UDP and TCP
    #[arg(long, value_name = "IP:FIRST-LAST", env = "FLEETGATE_RESOLVER")]
    pub(crate) resolver: Option<Listen>,
    /// One address for all control planes beside that, where the cluster follows from the pod that asks; pods in the host's
    /// network and strangers are refused
    #[arg(long, value_name = "ADDR", env = "FLEETGATE_RESOLVER_SHARED")]
    pub(crate) resolver_shared: Option<SocketAddr>,
    /// Who is asked for names outside, one after the other; those of the system by default
    #[arg(long, value_name = "ADDR,...", value_delimiter = ',', env = "FLEETGATE_RESOLVER_UPSTREAM")]
    pub(crate) resolver_upstream: Vec<DnsServer>,
    /// Who is asked for names of the hub's own Services, one after the other; the same by default
    #[arg(long, value_name = "ADDR,...", value_delimiter = ',', env = "FLEETGATE_RESOLVER_HUB_SERVER")]
    pub(crate) resolver_hub_server: Vec<DnsServer>,
    /// How many questions a second a cluster may ask; what is above gets no answer
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5000,
        value_parser = clap::value_parser!(u32).range(1..),
        env = "FLEETGATE_RESOLVER_RATE"
    )]
    pub(crate) resolver_rate: u32,
    /// How much room the answers of all clusters may take together, in MiB; each cluster has an equal part
    #[arg(
        long,
        value_name = "MIB",
        default_value_t = 128,
        value_parser = clap::value_parser!(u32).range(1..=65_536),
        env = "FLEETGATE_RESOLVER_CACHE"
    )]
    pub(crate) resolver_cache: u32,
}

impl Default for ResolverOptions {
    fn default() -> Self {
        Self {
            resolver: None,
            resolver_shared: None,
            resolver_upstream: Vec::new(),
            resolver_hub_server: Vec::new(),
            resolver_rate: 5000,
            resolver_cache: 128,
        }
    }
}

/// `IP:FIRST-LAST`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listen {
    ip: IpAddr,
    ports: Ports,
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || "write an address and its first and last port, such as 127.0.0.1:20000-29999".to_owned();
        let (ip, ports) = text.rsplit_once(':').ok_or_else(form)?;
        let bracketed = ip.strip_prefix('[').and_then(|ip| ip.strip_suffix(']'));
        let ip = match bracketed {
            Some(v6) => IpAddr::V6(v6.parse().map_err(|_| form())?),
            None => IpAddr::V4(ip.parse().map_err(|_| form())?),
        };
        Ok(Self { ip, ports: ports.parse().map_err(|error: model::resolver::PortsError| error.to_string())? })
    }
}

impl ResolverOptions {
    pub(crate) fn is_wanted(&self) -> bool {
        self.resolver.is_some() || self.resolver_shared.is_some()
    }

    /// For a folder, whose database keeps the ports.
    pub(crate) fn of_folder(&self) -> Option<store::Resolver> {
        let listen = self.resolver.clone()?;
        Some(store::Resolver { address: Some(listen.ip).filter(|ip| !ip.is_unspecified()), ports: listen.ports })
    }

    fn settings(&self, hub_domain: DnsName) -> anyhow::Result<Settings> {
        let upstreams = match self.resolver_upstream.as_slice() {
            [] => system_servers().context("finding out whom this system asks; give --resolver-upstream instead")?,
            given => given.iter().map(|server| server.0).collect(),
        };
        let mut settings = Settings::new(upstreams, hub_domain);
        if !self.resolver_hub_server.is_empty() {
            settings.hub_servers = self.resolver_hub_server.iter().map(|server| server.0).collect();
        }
        settings.listen = self.resolver.clone().map(|listen| (listen.ip, listen.ports));
        settings.shared = self.resolver_shared;
        settings.rate = self.resolver_rate;
        settings.cache = usize::try_from(self.resolver_cache).unwrap_or(usize::MAX).saturating_mul(MIB);
        Ok(settings)
    }
}

fn system_servers() -> anyhow::Result<Vec<SocketAddr>> {
    let text = std::fs::read_to_string(SYSTEM).with_context(|| format!("reading {SYSTEM}"))?;
    let servers = name_servers(&text);
    if servers.is_empty() {
        bail!("{SYSTEM} names no server");
    }
    Ok(servers)
}

fn name_servers(text: &str) -> Vec<SocketAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()?.parse::<DnsServer>().ok()).flatten()
    };
    text.lines().filter_map(server).map(|server| server.0).take(MOST_SYSTEM_SERVERS).collect()
}

/// A resolver that does not answer yet.
pub(crate) fn prepare(job: &Job, hub: &tunnel::Hub, registry: &mut Registry) -> anyhow::Result<Option<Prepared>> {
    if !job.resolver.is_wanted() {
        return Ok(None);
    }
    let domain = job.hub_domain.resolver_hub_domain.clone();
    let settings = job.resolver.settings(domain.unwrap_or_else(|| ClusterDns::default().domain))?;
    let metrics = resolver::Metrics::register(registry);
    let pods: Pods = Arc::new(ArcSwap::default());
    let resolver = Resolver::new(settings, hub.clone(), Arc::clone(&pods), metrics).context("starting --resolver")?;
    Ok(Some(Prepared { resolver, pods }))
}

pub(crate) struct Prepared {
    pub(crate) resolver: Resolver,
    /// Which pod is of which cluster's control plane, for --resolver-shared.
    pub(crate) pods: Pods,
}

impl Prepared {
    /// Who knows Services where a cluster's DNS cannot be asked.
    pub(crate) fn look_in(&self, directory: Option<tenants::Directory>) {
        if let Some(directory) = directory {
            self.resolver.set_directory(Arc::new(Known(directory)));
        }
    }

    /// Answers for the clusters of every plan, until `stop`; within a tokio runtime.
    pub(crate) fn start(
        self,
        snapshot: Arc<ArcSwap<Snapshot>>,
        stop: CancellationToken,
    ) -> tokio::task::JoinHandle<()> {
        let resolver = self.resolver;
        tokio::spawn(async move {
            let follow = follow(resolver.clone(), snapshot);
            let serve = resolver.run(stop.clone());
            tokio::select! {
                () = follow => {}
                () = serve => {}
            }
        })
    }

    /// For people.
    pub(crate) fn view(&self) -> api::peers::View {
        let resolver = self.resolver.clone();
        Arc::new(move || show(&resolver))
    }
}

async fn follow(resolver: Resolver, snapshot: Arc<ArcSwap<Snapshot>>) {
    let mut known = None;
    let mut ticks = tokio::time::interval(LOOK);
    loop {
        ticks.tick().await;
        let plan = snapshot.load_full();
        if known.replace(plan.revision) != Some(plan.revision) {
            resolver.set_clusters(plan.clusters().map(|(cluster, part)| Wanted {
                cluster: cluster.clone(),
                uid: Arc::clone(&part.holding.uid),
                part: Arc::clone(&part.resolver),
            }));
        }
    }
}

fn show(resolver: &Resolver) -> Value {
    let settings = resolver.settings();
    let cluster = |view: ClusterView| {
        json!({
            "cluster": view.cluster.to_string(),
            "port": view.port,
            "listening": view.is_bound,
            "questions": view.questions,
            "cached": view.cached,
            "stale": view.stale,
            "failed": view.failed,
            "limited": view.limited,
            "underWay": view.under_way,
            "cacheEntries": view.entries,
            "cacheOctets": view.octets,
        })
    };
    let texts = |servers: &[SocketAddr]| servers.iter().map(ToString::to_string).collect::<Vec<_>>();
    json!({
        "hubDomain": settings.hub_domain.to_string(),
        "upstreams": texts(&settings.upstreams),
        "hubServers": texts(&settings.hub_servers),
        "items": resolver.view().into_iter().map(cluster).collect::<Vec<_>>(),
    })
}

/// The hub's own way to tenants' API servers.
struct Known(tenants::Directory);

impl Directory for Known {
    fn service<'a>(&'a self, cluster: &'a ClusterName, namespace: &'a str, name: &'a str) -> Looked<'a> {
        Box::pin(async move {
            let found = self.0.service(cluster, namespace, name).await;
            let found = found.map_err(|error| DirectoryError(error.to_string()))?;
            Ok(found.map(|view| Arc::new(of_tenant(&view))))
        })
    }
}

/// The same Service in the resolver's own words: neither crate knows the other.
pub(crate) fn of_tenant(view: &tenants::ServiceView) -> resolver::ServiceView {
    let port = |port: &tenants::PortView| resolver::PortView {
        name: port.name.clone(),
        protocol: port.protocol.clone(),
        port: port.port,
    };
    let endpoint = |endpoint: &tenants::EndpointView| resolver::EndpointView {
        address: endpoint.address,
        hostname: endpoint.hostname.clone(),
        ports: endpoint.ports.iter().map(port).collect(),
    };
    resolver::ServiceView {
        cluster_ips: view.cluster_ips.clone(),
        external_name: view.external_name.as_deref().and_then(|name| name.parse().ok()),
        ports: view.ports.iter().map(port).collect(),
        endpoints: view.endpoints.iter().map(endpoint).collect(),
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum DnsCommand {
    /// Print what makes the pods of a cluster's control plane ask the resolver: dnsPolicy and dnsConfig, for templates
    Config(ConfigOptions),
}

#[derive(Debug, Args)]
pub(crate) struct ConfigOptions {
    /// The Cluster
    #[arg(value_name = "CLUSTER")]
    cluster: ClusterName,
    /// The form
    #[arg(short, long, value_enum, default_value_t)]
    output: ConfigFormat,
    /// The domain of the hub's own Services; what the running fleetgate says by default, or else cluster.local
    #[arg(long, value_name = "DOMAIN")]
    hub_domain: Option<DnsName>,
    #[command(flatten)]
    running: AdminOptions,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum ConfigFormat {
    #[default]
    Yaml,
    Json,
}

/// `fleetgate dns config`.
pub(crate) fn config(options: &ConfigOptions) -> anyhow::Result<ExitCode> {
    let (cluster, running) = (&options.cluster, &options.running);
    let object = admin::advise_missing(running.ask(&format!("/v1/objects/clusters/{cluster}")), "clusters")?;
    let place = &object["status"]["resolver"];
    let Some(port) = place["port"].as_u64() else {
        bail!(
            "Cluster {cluster} has no port of the resolver yet: start fleetgate with --resolver, or on a hub the controller with \
             --resolver-service; `fleetgate get clusters {cluster} -o json` shows it as status.resolver"
        );
    };
    let Some(address) = place["address"].as_str().and_then(|address| address.parse().ok()) else {
        bail!(
            "Cluster {cluster} has port {port} of the resolver, but nobody knows its address yet: status.resolver.address"
        );
    };
    let hub_domain = match &options.hub_domain {
        Some(domain) => domain.clone(),
        None => hub_domain(running),
    };
    let domain = object["spec"]["dns"]["domain"].as_str().and_then(|domain| domain.parse().ok());
    let domain = domain.unwrap_or_else(|| ClusterDns::default().domain);
    let namespace = object["spec"]["controlPlane"]["namespace"].as_str().and_then(|name| name.parse().ok());
    let dns = PodDns { address, namespace: namespace.as_ref(), hub_domain: &hub_domain, domain: &domain };
    let spec = json!({ "dnsPolicy": POLICY, "dnsConfig": dns.config() });
    match options.output {
        ConfigFormat::Json => println!("{spec:#}"),
        ConfigFormat::Yaml => {
            println!(
                "# Of Cluster {cluster}. Port 53 of {address} has to lead to the resolver's port {port}, UDP and TCP."
            );
            if namespace.is_none() {
                println!("# It has no spec.controlPlane.namespace: no Service of the hub can be looked up.");
            }
            print!("{}", to_yaml(&spec));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// As the running fleetgate was told, where it has a resolver.
fn hub_domain(running: &AdminOptions) -> DnsName {
    let told = running.ask("/v1/resolver").ok();
    let told = told.and_then(|view| view["hubDomain"].as_str().and_then(|domain| domain.parse().ok()));
    told.unwrap_or_else(|| ClusterDns::default().domain)
}

/// Of what is printed here: texts that need no more than quotes, in lists and maps of two levels.
fn to_yaml(spec: &Value) -> String {
    let list = |name: &str| {
        let items = spec["dnsConfig"][name].as_array().into_iter().flatten();
        let items = items.filter_map(Value::as_str).map(|item| format!("    - {item:?}\n"));
        format!("  {name}:\n{}", items.collect::<String>())
    };
    let options = spec["dnsConfig"]["options"].as_array().into_iter().flatten();
    let options = options.map(|option| format!("    - name: {}\n      value: {}\n", option["name"], option["value"]));
    format!(
        "dnsPolicy: {}\ndnsConfig:\n{}{}  options:\n{}",
        spec["dnsPolicy"],
        list("nameservers"),
        list("searches"),
        options.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_read() {
        for (text, ip) in
            [("127.0.0.1:20000-29999", "127.0.0.1"), ("[::1]:5400-5400", "::1"), ("0.0.0.0:1-2", "0.0.0.0")]
        {
            assert_eq!(text.parse::<Listen>().unwrap().ip, ip.parse::<IpAddr>().unwrap(), "{text}");
        }
        for bad in ["", "127.0.0.1", "127.0.0.1:53", "::1:5400-5401", "127.0.0.1:9-8", "[127.0.0.1]:1-2", "host:1-2"] {
            assert!(bad.parse::<Listen>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_system_says_whom_it_asks() {
        let text = "# a comment\nsearch example.org\nnameserver 192.0.2.1\nnameserver fe80::1%eth0\n nameserver\t2001:db8::1\n\
                    nameserver 192.0.2.2 # second\nnameserver 192.0.2.3\noptions ndots:5\n";
        let servers = name_servers(text).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(servers, ["192.0.2.1:53", "[2001:db8::1]:53", "192.0.2.2:53"]);
    }
}
