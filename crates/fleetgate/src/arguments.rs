//! The command line.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use manifest::text::Span;
use model::Cidr;

use crate::admin::AdminOptions;
use crate::get::What;
use crate::paint::Colors;
use crate::replicas::{LinksOptions, RelayOptions};

/// Where `get` and `explain` ask and `demo` listens when nothing else is said.
pub(crate) const DEFAULT_ADMIN: &str = "127.0.0.1:9630";
/// Where Fleetgate is installed on a hub.
pub(crate) const DEFAULT_NAMESPACE: &str = "fleetgate-system";

const GET_EXAMPLES: &str = "\
Examples:
  fleetgate get clusters                       all clusters, with their state
  fleetgate get cluster c1 -o yaml             one of them, with everything that is said of it
  fleetgate get names c1.fleet.example         what is in DNS there and below
  fleetgate get routes c1                      every way into a cluster, and its limits
  fleetgate get dnsendpoints -n acme           a tenant's records
  fleetgate get refusals                       what is refused, and why";
const EXPLAIN_EXAMPLES: &str = "\
Examples:
  fleetgate explain api.c1.fleet.example                             a connection by server name, and DNS
  fleetgate explain --tlv c1 --from 192.0.2.7                        a connection by cluster id, of a client
  fleetgate explain https://www.shop.example/cart --from 203.0.113.7 a request";
const CHECK_EXAMPLES: &str = "\
Examples:
  fleetgate check --fleet fleet/                           what would be refused
  fleetgate check --fleet fleet/ --diff                    and what would resolve differently than now
  fleetgate check --fleet new/ --diff --against old/       of two folders";

/// The front door and the phone book of a fleet of Kubernetes clusters.
#[derive(Debug, Parser)]
#[command(version, about, propagate_version = true)]
pub(crate) struct Arguments {
    /// Whether what is printed has colours
    // Last, as it says nothing of what a command does.
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t, display_order = 900)]
    pub(crate) color: Colors,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a fleet from a folder of manifests: names and doors in one process, no Kubernetes needed. Or a hub's, all roles
    /// in one
    Serve(Box<ServeOptions>),
    /// On a hub: watch, plan, and write the plan back; several elect a leader
    Controller(Box<ControllerOptions>),
    /// On a hub: answer DNS, and resolve for control planes
    Dns(Box<DnsOptions>),
    /// On a hub: take connections for control planes
    Gateway(Box<GatewayOptions>),
    /// Check a folder of manifests without serving it; exits with 1 when something is wrong
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckOptions),
    /// Show what a running fleetgate has: objects with their status, names in DNS, routes, and what is refused
    #[command(after_help = GET_EXAMPLES)]
    Get(GetOptions),
    /// Say where a request, a connection or a DNS query would go, and which rule decides
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainOptions),
    /// Issue, list and revoke what agents are started with
    #[command(subcommand)]
    Credential(crate::credential::CredentialCommand),
    /// For control planes: how they reach what is inside their clusters
    #[command(subcommand)]
    Egress(crate::egress::EgressCommand),
    /// Let names go that are held because so many would go at once
    Release(crate::release::ReleaseOptions),
    /// Send federated traffic to other clusters while one is looked after, or have it back
    Drain(crate::drain::DrainOptions),
    /// Print the custom resource definitions for a hub, for `kubectl apply -f -`
    Crds,
    /// Print the description of what --admin answers, in OpenAPI 3.1
    Openapi,
    /// Write the reference pages of the documents
    #[command(hide = true)]
    Reference(crate::reference::ReferenceOptions),
    /// Print what a shell needs to complete commands and flags, such as for `source <(fleetgate completion bash)`
    Completion {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Start a small fleet on loopback to look at
    Demo(DemoOptions),
    /// What runs in a tenant cluster
    #[command(subcommand)]
    Agent(AgentCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Carry a node's connections to its API server through the hub's shared door
    NodeProxy(Box<NodeProxyOptions>),
    /// Publish the cluster's `DNSEndpoint`s through the hub, and write what became of each beside it
    Sync(Box<SyncOptions>),
    /// Be ExternalDNS' webhook provider: what it publishes goes to the hub
    ExternalDns(Box<ExternalDnsOptions>),
    /// Report to the hub, every second, what Services of the cluster serve and how busy their pods are
    Load(Box<LoadOptions>),
    /// Let the hub reach what is inside the cluster: links from here, over which it asks for connections
    Tunnel(Box<crate::tunnel_agent::TunnelOptions>),
}

/// How an agent meets the hub.
#[derive(Debug, Clone, Args)]
pub(crate) struct LinkOptions {
    /// The hub's --agents door; may be given several times, and is tried in this order
    #[arg(long, value_name = "HOST:PORT", required = true, value_delimiter = ',', env = "FLEETGATE_AGENTS")]
    pub(crate) hub: Vec<agent::Place>,
    /// The file that `fleetgate credential issue` printed; read again whenever the agent has to enrol
    #[arg(long, value_name = "FILE", env = "FLEETGATE_BOOTSTRAP")]
    pub(crate) bootstrap: PathBuf,
    /// Keep the agent's certificate here, so that a restart needs no enrolment; a token is good for that for some time only
    #[arg(long, value_name = "DIR", env = "FLEETGATE_STATE")]
    pub(crate) state: Option<PathBuf>,
}

impl LinkOptions {
    /// `name` is of the file in the state folder: several agents may share one.
    pub(crate) fn resolve(&self, name: &'static str) -> agent::LinkOptions {
        let state = self.state.clone().map(|folder| (folder, name));
        agent::LinkOptions { hubs: self.hub.clone(), bootstrap: self.bootstrap.clone(), state }
    }
}

#[derive(Debug, Args)]
pub(crate) struct SyncOptions {
    #[command(flatten)]
    pub(crate) link: LinkOptions,
    /// A kubeconfig for the tenant's cluster; without it the pod's service account, or else $KUBECONFIG or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Publish the `DNSEndpoint`s of this namespace; may be given several times. All namespaces by default
    #[arg(long, value_name = "NS", value_delimiter = ',', env = "FLEETGATE_NAMESPACES")]
    pub(crate) namespace: Vec<String>,
    /// Metrics, /healthz, /readyz, and /refused with the records that are not published
    #[arg(long, value_name = "ADDR", env = "FLEETGATE_HEALTH")]
    pub(crate) health: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) log: LogOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ExternalDnsOptions {
    #[command(flatten)]
    pub(crate) link: LinkOptions,
    /// Where ExternalDNS finds its provider (its --webhook-provider-url)
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8888", env = "FLEETGATE_LISTEN")]
    pub(crate) listen: SocketAddr,
    /// Metrics, /healthz, /readyz, and /refused with the records that are not published
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080", env = "FLEETGATE_HEALTH")]
    pub(crate) health: SocketAddr,
    #[command(flatten)]
    pub(crate) log: LogOptions,
}

#[derive(Debug, Args)]
pub(crate) struct LoadOptions {
    #[command(flatten)]
    pub(crate) link: LinkOptions,
    /// A kubeconfig for the tenant's cluster; without it the pod's service account, or else $KUBECONFIG or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// A Service to report; may be given several times. The port is where its pods have their metrics, by its name in the
    /// Service or by number; --metrics-port by default, or else the Service's first one
    #[arg(
        long,
        value_name = "NAMESPACE/NAME[:PORT]",
        required_unless_present = "all_of_ingress_class",
        value_delimiter = ',',
        env = "FLEETGATE_SERVICES"
    )]
    pub(crate) service: Vec<agent::load::Service>,
    /// Also report all Services that Ingresses of this class name, the first 1,000 of them
    #[arg(long, value_name = "NAME", env = "FLEETGATE_ALL_OF_INGRESS_CLASS")]
    pub(crate) all_of_ingress_class: Option<String>,
    #[command(flatten, next_help_heading = "The pods' metrics")]
    pub(crate) page: PageOptions,
    /// Metrics, /healthz, /readyz, and /refused with the pods whose metrics cannot be read
    #[arg(long, value_name = "ADDR", env = "FLEETGATE_HEALTH")]
    pub(crate) health: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) log: LogOptions,
}

/// How pods say how busy they are.
#[derive(Debug, Args)]
pub(crate) struct PageOptions {
    /// Where the metrics are, over HTTP
    #[arg(long, value_name = "PATH", default_value = "/metrics", env = "FLEETGATE_METRICS_PATH")]
    pub(crate) metrics_path: hyper::http::uri::PathAndQuery,
    /// Where they are by default: a port's number, or its name in the Service
    #[arg(long, value_name = "PORT", env = "FLEETGATE_METRICS_PORT")]
    pub(crate) metrics_port: Option<agent::load::Port>,
    /// A counter of the requests that were answered; summed over its labels
    #[arg(long, value_name = "NAME", default_value = "http_requests_total", env = "FLEETGATE_SERVED_METRIC")]
    pub(crate) served_metric: String,
    /// A gauge that is 1 when the pod is at its limit; of several labels the largest counts
    #[arg(long, value_name = "NAME", env = "FLEETGATE_UTILIZATION_METRIC")]
    pub(crate) utilization_metric: Option<String>,
    /// A gauge of the requests under way; summed over its labels
    #[arg(long, value_name = "NAME", requires = "limit", env = "FLEETGATE_IN_FLIGHT_METRIC")]
    pub(crate) in_flight_metric: Option<String>,
    /// How many requests a pod may have under way
    #[arg(long, value_name = "N", group = "limit", requires = "in_flight_metric", env = "FLEETGATE_IN_FLIGHT_LIMIT")]
    pub(crate) in_flight_limit: Option<u32>,
    /// The same, from a gauge
    #[arg(long, value_name = "NAME", group = "limit", requires = "in_flight_metric", env = "FLEETGATE_LIMIT_METRIC")]
    pub(crate) limit_metric: Option<String>,
    /// How many cores a pod may use, beside `process_cpu_seconds_total`
    #[arg(long, value_name = "CORES", env = "FLEETGATE_CPU_LIMIT", value_parser = parse_cores)]
    pub(crate) cpu_limit: Option<f64>,
}

impl PageOptions {
    pub(crate) fn wanted(&self) -> agent::load::Metrics {
        let number = self.in_flight_limit.map(|limit| agent::load::Limit::Number(f64::from(limit)));
        let limit = number.or_else(|| self.limit_metric.clone().map(agent::load::Limit::Metric));
        agent::load::Metrics {
            served: self.served_metric.clone(),
            utilization: self.utilization_metric.clone(),
            in_flight: self.in_flight_metric.clone().zip(limit),
            cores: self.cpu_limit,
        }
    }
}

fn parse_cores(text: &str) -> Result<f64, String> {
    let cores = text.parse().ok().filter(|cores: &f64| cores.is_finite() && *cores > 0.0);
    cores.ok_or_else(|| "a number of cores is above 0, such as 0.5 or 2".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct NodeProxyOptions {
    /// Where pods and kubelet of this node find their API server, such as 172.20.0.1:6443
    #[arg(long, value_name = "ADDR", env = "FLEETGATE_LISTEN")]
    pub(crate) listen: SocketAddr,
    /// The hub's --apiserver door; may be given several times. Names are looked up again while it runs
    #[arg(long, value_name = "HOST:PORT", required = true, value_delimiter = ',', env = "FLEETGATE_HUB")]
    pub(crate) hub: Vec<agent::Place>,
    /// What the hub knows this cluster by: its spec.clusterID, or its name
    #[arg(long, value_name = "ID", env = "FLEETGATE_CLUSTER_ID")]
    pub(crate) cluster_id: model::ClusterId,
    /// A file with a key of the cluster: every connection proves that it holds it
    #[arg(long, value_name = "FILE", env = "FLEETGATE_PROOF")]
    pub(crate) proof: Option<PathBuf>,
    /// Metrics, /healthz and /readyz; metrics for this machine alone
    #[arg(long, value_name = "ADDR", env = "FLEETGATE_NODE_ADMIN")]
    pub(crate) admin: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) end: EndOptions,
    #[command(flatten)]
    pub(crate) log: LogOptions,
}

#[derive(Debug, Clone, Args)]
// A folder has no API server that would ask.
#[command(mut_arg("admission", |admission| admission.conflicts_with("fleet")))]
#[command(mut_arg("peers", |peers| peers.conflicts_with("fleet")))]
#[command(mut_arg("relay", |relay| relay.conflicts_with("fleet").requires("agents")))]
#[command(mut_arg("resolver_service", |service| service.conflicts_with("fleet")))]
pub(crate) struct ServeOptions {
    /// The folder of manifests; watched, so that a saved file is live at once
    #[arg(long, value_name = "DIR", env = "FLEETGATE_FLEET", required_unless_present = "hub", conflicts_with = "hub")]
    pub(crate) fleet: Option<PathBuf>,
    /// Serve the fleet of a Kubernetes hub instead, all roles in this process
    #[arg(long)]
    pub(crate) hub: bool,
    #[command(flatten, next_help_heading = "With --hub")]
    pub(crate) access: HubOptions,
    #[command(flatten, next_help_heading = "With --hub")]
    pub(crate) admission: AdmissionOptions,
    #[command(flatten, next_help_heading = "With --hub")]
    pub(crate) peers: PeersOptions,
    #[command(flatten, next_help_heading = "With --hub")]
    pub(crate) relay: RelayOptions,
    #[command(flatten, next_help_heading = "With --hub")]
    pub(crate) wiring: crate::wiring::WiringOptions,
    #[command(flatten, next_help_heading = "Control planes' DNS")]
    pub(crate) hub_domain: crate::wiring::HubDomainOptions,
    #[command(flatten, next_help_heading = "Control planes' DNS")]
    pub(crate) resolver: crate::resolver::ResolverOptions,
    #[command(flatten, next_help_heading = "State")]
    pub(crate) state: StateOptions,
    /// Take the sockets over from the fleetgate that serves the same --data, which then drains and ends: no connection is
    /// refused in between
    #[arg(long, requires = "data", conflicts_with = "hub")]
    pub(crate) take_over: bool,
    #[command(flatten, next_help_heading = "DNS")]
    pub(crate) answers: AnswerOptions,
    #[command(flatten, next_help_heading = "Doors")]
    pub(crate) doors: DoorOptions,
    #[command(flatten, next_help_heading = "Doors")]
    pub(crate) agents: AgentsOptions,
    #[command(flatten, next_help_heading = "Doors")]
    pub(crate) egress: crate::egress::EgressOptions,
    #[command(flatten, next_help_heading = "Federated ingress")]
    pub(crate) members: MemberOptions,
    #[command(flatten, next_help_heading = "Watching it")]
    pub(crate) views: ViewOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ControllerOptions {
    #[command(flatten, next_help_heading = "The hub")]
    pub(crate) access: HubOptions,
    #[command(flatten, next_help_heading = "Doors")]
    pub(crate) agents: AgentsOptions,
    #[command(flatten, next_help_heading = "Admission")]
    pub(crate) admission: AdmissionOptions,
    #[command(flatten, next_help_heading = "Other processes of the hub")]
    pub(crate) peers: PeersOptions,
    #[command(flatten, next_help_heading = "Control planes' DNS")]
    pub(crate) wiring: crate::wiring::WiringOptions,
    #[command(flatten, next_help_heading = "Control planes' DNS")]
    pub(crate) hub_domain: crate::wiring::HubDomainOptions,
    #[command(flatten, next_help_heading = "Watching it")]
    pub(crate) views: ViewOptions,
}

#[derive(Debug, Args)]
// Without either, this role has nothing to do.
#[command(mut_arg("dns", |dns| dns.required_unless_present_any(["resolver", "resolver_shared"])))]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct DnsOptions {
    #[command(subcommand)]
    pub(crate) command: Option<crate::resolver::DnsCommand>,
    #[command(flatten, next_help_heading = "DNS")]
    pub(crate) answers: AnswerOptions,
    #[command(flatten, next_help_heading = "Control planes' DNS")]
    pub(crate) resolver: crate::resolver::ResolverOptions,
    #[command(flatten, next_help_heading = "Control planes' DNS")]
    pub(crate) hub_domain: crate::wiring::HubDomainOptions,
    #[command(flatten)]
    pub(crate) reader: ReaderOptions,
}

#[derive(Debug, Args)]
pub(crate) struct GatewayOptions {
    #[command(flatten, next_help_heading = "Doors")]
    pub(crate) doors: DoorOptions,
    #[command(flatten, next_help_heading = "Doors")]
    pub(crate) links: LinksOptions,
    #[command(flatten, next_help_heading = "Doors")]
    pub(crate) relay: RelayOptions,
    #[command(flatten, next_help_heading = "Doors")]
    pub(crate) egress: crate::egress::EgressOptions,
    #[command(flatten)]
    pub(crate) reader: ReaderOptions,
}

/// What the roles have in common that read a hub and write nothing to it.
#[derive(Debug, Args)]
pub(crate) struct ReaderOptions {
    #[command(flatten, next_help_heading = "The hub")]
    pub(crate) access: HubOptions,
    #[command(flatten, next_help_heading = "State")]
    pub(crate) state: StateOptions,
    #[command(flatten, next_help_heading = "Federated ingress")]
    pub(crate) members: MemberOptions,
    #[command(flatten, next_help_heading = "Watching it")]
    pub(crate) views: ViewOptions,
}

/// How the hub is reached, and what is read of it.
#[derive(Debug, Clone, Args)]
pub(crate) struct HubOptions {
    /// A kubeconfig for the hub; without it the pod's service account, or else $KUBECONFIG or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Where Fleetgate is installed: its Lease and the Service of its gateway are there
    #[arg(long, value_name = "NS", default_value = DEFAULT_NAMESPACE, env = "FLEETGATE_NAMESPACE")]
    pub(crate) namespace: String,
    /// The namespaces from which Secrets and `ConfigMap`s may be named; that of --namespace by default
    #[arg(long, value_name = "NS,...", value_delimiter = ',', env = "FLEETGATE_SOURCES")]
    pub(crate) sources: Vec<String>,
    /// The tenants' namespaces from which TLS Secrets of Ingresses are read, by the gateway and the controller; `*` is all of them
    #[arg(long, value_name = "NS,...", value_delimiter = ',', env = "FLEETGATE_CERTIFICATES")]
    pub(crate) certificates: Vec<String>,
    /// Follow tenant clusters whose kubeconfig names a loopback address: for a hub on one's own machine
    #[arg(long, env = "FLEETGATE_ALLOW_LOOPBACK")]
    pub(crate) allow_loopback: bool,
    /// What this process is called among the hub's: no other may have the same name. Its host name by default
    #[arg(long, value_name = "NAME", env = "FLEETGATE_EDGE")]
    pub(crate) edge: Option<String>,
}

/// How the hub's other processes tell the leader what they see, and what follows from it.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct PeersOptions {
    /// While this process leads, hear the hub's gateways, DNS servers and other controllers here: all gateways then share one table
    /// of who gets how much, and members are out when most of them say so
    #[arg(long, value_name = "ADDR")]
    pub(crate) peers: Option<SocketAddr>,
    /// Where the others reach --peers, as the Lease tells them; the address of --peers by default
    #[arg(long, value_name = "IP", env = "FLEETGATE_PEERS_ADDRESS")]
    pub(crate) peers_address: Option<IpAddr>,
    /// The service accounts in --namespace that are heard
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "fleetgate-controller,fleetgate-dns,fleetgate-gateway",
        env = "FLEETGATE_PEERS_ACCOUNTS"
    )]
    pub(crate) peers_accounts: Vec<String>,
    /// Those among them that may take links of agents, and have the certificates for that signed
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "fleetgate-gateway",
        env = "FLEETGATE_PEERS_LINK_ACCOUNTS"
    )]
    pub(crate) peers_link_accounts: Vec<String>,
}

/// How the hub's API server asks about tenants' objects.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct AdmissionOptions {
    /// Answer the hub's API server here, over HTTPS, whether a tenant's `DNSEndpoint` may be written
    #[arg(long, value_name = "ADDR")]
    pub(crate) admission: Option<SocketAddr>,
    /// Where the API server finds --admission, such as `https://192.0.2.7:9633`; by default by the Service
    /// `fleetgate-admission` in --namespace
    #[arg(long, value_name = "URL", requires = "admission", value_parser = kubernetes::admission::Place::url)]
    pub(crate) admission_url: Option<kubernetes::admission::Place>,
    /// What the API server does with tenants' objects while nobody answers
    #[arg(long, value_name = "WORD", value_enum, default_value_t, requires = "admission")]
    pub(crate) admission_failure_policy: FailurePolicy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum FailurePolicy {
    /// Refuse them
    #[default]
    Fail,
    /// Take them; what is not allowed is still not served
    Ignore,
}

impl From<FailurePolicy> for kubernetes::admission::FailurePolicy {
    fn from(policy: FailurePolicy) -> Self {
        match policy {
            FailurePolicy::Fail => Self::Fail,
            FailurePolicy::Ignore => Self::Ignore,
        }
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct StateOptions {
    /// Keep the last good state and who was first here; without it nothing survives a restart
    #[arg(long, value_name = "DIR", env = "FLEETGATE_DATA")]
    pub(crate) data: Option<PathBuf>,
    /// A file with the key (32 octets, or as many in hexadecimal digits) that Secrets of a hub are sealed with in --data;
    /// without it they are not kept there
    #[arg(long, value_name = "FILE", requires = "data", env = "FLEETGATE_DATA_KEY")]
    pub(crate) data_key: Option<PathBuf>,
}

/// How clients are sent to the members of federated ingress.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct MemberOptions {
    /// A file that says where clients are: a list of networks, or a database in MaxMind's format; read again when it changes
    #[arg(long, value_name = "FILE", env = "FLEETGATE_GEO")]
    pub(crate) geo: Option<PathBuf>,
    /// Check no members: only what becomes of requests tells whether they are well
    #[arg(long)]
    pub(crate) no_checks: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct AnswerOptions {
    /// Answer DNS on this address, UDP and TCP
    #[arg(long, value_name = "ADDR")]
    pub(crate) dns: Option<SocketAddr>,
    /// DNS answers per second of one kind to one network (IPv4 /24, IPv6 /56) over UDP without a cookie; 0 is no limit
    #[arg(id = "dns-rate-limit", long, value_name = "N", default_value_t = dns::RateLimit::default().per_second)]
    pub(crate) rate_limit: u32,
    /// What DNS tells of this server to who asks for it (NSID, id.server); nothing by default
    #[arg(id = "dns-identity", long, value_name = "TEXT")]
    pub(crate) identity: Option<String>,
    /// What DNS answers to version.bind; hidden by default
    #[arg(id = "dns-version", long, value_name = "TEXT")]
    pub(crate) version: Option<String>,
}

impl Default for AnswerOptions {
    fn default() -> Self {
        Self { dns: None, rate_limit: dns::RateLimit::default().per_second, identity: None, version: None }
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DoorOptions {
    /// Take connections with a PROXY v2 header that names the cluster by its id
    #[arg(long, value_name = "ADDR")]
    pub(crate) apiserver: Option<SocketAddr>,
    /// Take TLS connections and pass them through by their server name
    #[arg(long, value_name = "ADDR")]
    pub(crate) sni: Option<SocketAddr>,
    /// Federated ingress over HTTP
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<SocketAddr>,
    /// Federated ingress over HTTPS, with the certificates of the Ingresses; may be the address of --sni, where cluster names
    /// pass through and hosts of Ingresses end
    #[arg(long, value_name = "ADDR")]
    pub(crate) https: Option<SocketAddr>,
    /// The port by which clients reach --https, where a load balancer in front of it has another: redirects lead there
    #[arg(long, value_name = "PORT", requires = "https", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) https_port: Option<u16>,
    /// Load balancers in front of the doors: they must send a PROXY header (v1 or v2) of their own, which names the real
    /// client; anybody else must not
    #[arg(long, value_name = "CIDR,...", value_delimiter = ',')]
    pub(crate) trusted_proxies: Vec<Cidr>,
    /// Keep connections whose client is not among its cluster's allowedSources any more
    #[arg(long)]
    pub(crate) keep_disallowed: bool,
    #[command(flatten)]
    pub(crate) end: EndOptions,
}

impl DoorOptions {
    /// Where HTTPS has a listener of its own: not where it shares the one of --sni.
    pub(crate) fn https_apart(&self) -> Option<SocketAddr> {
        self.https.filter(|https| Some(*https) != self.sni || https.port() == 0)
    }
}

impl Default for DoorOptions {
    fn default() -> Self {
        Self {
            apiserver: None,
            sni: None,
            http: None,
            https: None,
            https_port: None,
            trusted_proxies: Vec::new(),
            keep_disallowed: false,
            end: EndOptions { drain: Duration::ZERO },
        }
    }
}

/// For those who change something.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct AgentsOptions {
    /// The agents' door: HTTPS for what runs in tenant clusters
    #[arg(long, value_name = "ADDR")]
    pub(crate) agents: Option<SocketAddr>,
    /// A file with a secret text of at least 32 characters: requests to --admin that carry it may change something, and come
    /// from other machines
    #[arg(long, value_name = "FILE", env = "FLEETGATE_ADMIN_CREDENTIAL")]
    pub(crate) admin_credential: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct EndOptions {
    /// How long established connections may go on after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_span)]
    pub(crate) drain: Duration,
}

/// What people and machines see of the process.
#[derive(Debug, Clone, Args)]
pub(crate) struct ViewOptions {
    /// API, metrics, /healthz and /readyz; all but the last two for this machine alone
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Option<SocketAddr>,
    /// Metrics, /healthz and /readyz for other machines too, and nothing else
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) log: LogOptions,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct LogOptions {
    /// How log lines look
    #[arg(long, value_name = "FORM", value_enum, default_value = "human", env = "FLEETGATE_LOG_FORMAT")]
    pub(crate) log_format: LogFormat,
    /// What is logged: error, warn, info, debug, trace, also per part (`info,gateway=debug`)
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "FLEETGATE_LOG")]
    pub(crate) log: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Human,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct CheckOptions {
    /// The folder of manifests
    #[arg(long, value_name = "DIR", env = "FLEETGATE_FLEET")]
    pub(crate) fleet: PathBuf,
    /// Also print what would resolve differently from what a running fleetgate serves, or another folder holds
    #[arg(long)]
    pub(crate) diff: bool,
    /// The folder to compare with, instead of a running fleetgate
    #[arg(long, value_name = "DIR", requires = "diff")]
    pub(crate) against: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) running: AdminOptions,
}

#[derive(Debug, Args)]
pub(crate) struct GetOptions {
    /// What to show; what there is when left out
    #[arg(value_name = "KIND", value_enum, ignore_case = true)]
    pub(crate) kind: Option<What>,
    /// One object; of names and routes those at this DNS name or below it, of routes also a cluster; all when left out
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The namespace, for kinds that have one
    #[arg(short, long, value_name = "NS")]
    pub(crate) namespace: Option<String>,
    /// How to print it
    #[arg(short, long, value_name = "FORM", value_enum, default_value = "table")]
    pub(crate) output: OutputFormat,
    #[command(flatten)]
    pub(crate) running: AdminOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainOptions {
    /// A URL, as a client asks for it (https:// or http://), or a name, as it resolves it and as TLS carries it to --sni
    #[arg(value_name = "URL|NAME", required_unless_present = "tlv", conflicts_with = "tlv")]
    pub(crate) name: Option<String>,
    /// A cluster id, as the PROXY header carries it to --apiserver
    #[arg(long, value_name = "ID")]
    pub(crate) tlv: Option<String>,
    /// The client's address, which allowedSources and steering go by: the peer's, or the one that a trusted proxy names. Without
    /// it any allowed one is meant, of a place that is not known
    #[arg(long, value_name = "IP")]
    pub(crate) from: Option<IpAddr>,
    /// What the TLS hello names, where that is another host than the URL's, as on a connection that is used again
    #[arg(long, value_name = "NAME", conflicts_with = "tlv")]
    pub(crate) server_name: Option<String>,
    /// A good proof comes with the id
    #[arg(long, conflicts_with = "name")]
    pub(crate) proof: bool,
    /// How to print it
    #[arg(short, long, value_name = "FORM", value_enum, default_value = "text")]
    pub(crate) output: ExplainFormat,
    #[command(flatten)]
    pub(crate) running: AdminOptions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExplainFormat {
    Text,
    Json,
    Yaml,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    Table,
    Json,
    Yaml,
}

#[derive(Debug, Args)]
pub(crate) struct DemoOptions {
    #[command(flatten)]
    pub(crate) log: LogOptions,
}

pub(crate) fn parse_span(text: &str) -> Result<Duration, String> {
    text.parse::<Span>().map(|span| span.0).map_err(|error| error.to_string())
}
