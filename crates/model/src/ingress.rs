//! Federated ingress as plain values: what an Ingress says, and how its class is placed and steered.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::digest::Digest;
use crate::identity::{ClusterName, ObjectName};
use crate::name::DnsName;
use crate::policy::Refused;
use crate::refusal::Refusal;

/// The class that is ours also where no `IngressClass` says so.
pub const OUR_CLASS: &str = "fleetgate";
/// Before the name of a cluster: the annotation that says what is otherwise there.
pub const OVERRIDE: &str = "override.fleetgate.dev/";

/// What one Ingress asks for, read piece by piece: one bad path does not spoil its neighbours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ingress {
    /// Whose it is to serve; nobody's of ours without one.
    pub class: Option<ObjectName>,
    pub default_backend: Option<Result<Backend, Refused>>,
    pub rules: Vec<Rule>,
    pub tls: Vec<Tls>,
    pub options: Arc<RouteOptions>,
    /// Annotations of ours that cannot be used, and why; the defaults count in their place.
    pub wrong_annotations: Vec<(Arc<str>, Refused)>,
    /// What is otherwise in single clusters.
    pub overrides: BTreeMap<ClusterName, Arc<Override>>,
    /// Why nothing of it can be served, known to whoever read it.
    pub hindrance: Option<Refusal>,
}

impl Ingress {
    /// The hosts that its rules name, each once.
    pub fn hosts(&self) -> BTreeSet<&DnsName> {
        self.rules.iter().filter_map(|rule| rule.host.as_ref().ok()?.as_ref()).collect()
    }

    /// The backends that can be used, each once.
    pub(crate) fn backends(&self) -> BTreeSet<&Backend> {
        let parts = self.rules.iter().flat_map(|rule| &rule.paths);
        let of_paths = parts.filter_map(|part| Some(&part.rule.as_ref().ok()?.backend));
        of_paths.chain(self.default_backend.iter().filter_map(|backend| backend.as_ref().ok())).collect()
    }

    /// Whether it serves hosts that it does not name.
    pub(crate) fn is_everywhere(&self) -> bool {
        let without_host = self.rules.iter().any(|rule| rule.host == Ok(None));
        without_host || (self.rules.is_empty() && self.default_backend.is_some())
    }
}

/// What an Ingress has otherwise in one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Override {
    /// Instead of the cluster's own.
    pub class: Option<ObjectName>,
    /// Beside those of the Ingress, or instead.
    pub annotations: BTreeMap<String, String>,
}

/// Who serves the Ingresses of a class, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngressClass {
    /// Whether its controller is us.
    pub ours: bool,
    /// The `FederationPolicy` that it names; the built-in one where it names none.
    pub policy: Option<ObjectName>,
    /// Why it cannot be used, known to whoever read it.
    pub hindrance: Option<Refusal>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Where it stands, such as `rules[2]`.
    pub field: Arc<str>,
    /// A name, or a wildcard that stands for exactly one label. None is every host of the tenant's.
    pub host: Result<Option<DnsName>, Refused>,
    /// Without any, the whole host is the default backend's.
    pub paths: Vec<PathPart>,
}

/// One path of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPart {
    /// As it was written, for those who are told about it.
    pub written: Arc<str>,
    pub rule: Result<PathRule, Refused>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRule {
    pub path: PathMatch,
    pub backend: Backend,
}

/// Which paths; compared octet by octet, as they were sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PathMatch {
    Exact(Arc<str>),
    /// Element by element, as `/` separates them.
    Prefix(Arc<str>),
}

/// A Service in the members, and one of its ports.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backend {
    pub service: ObjectName,
    pub port: Port,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Port {
    Number(u16),
    Name(Arc<str>),
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// Where it stands, such as `tls[0]`.
    pub field: Arc<str>,
    /// All hosts of the rules, if it names none. A wildcard is for the hosts that it stands for, too.
    pub hosts: Vec<DnsName>,
    /// Beside the Ingress; refused where the entry cannot be used.
    pub secret: Result<ObjectName, Refused>,
}

impl Tls {
    pub(crate) fn covers(&self, host: &DnsName) -> bool {
        let stands_for = |pattern: &DnsName| pattern.is_wildcard() && pattern.parent() == host.parent();
        self.hosts.is_empty() || self.hosts.iter().any(|pattern| pattern == host || stands_for(pattern))
    }
}

/// What annotations of an Ingress ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteOptions {
    /// Answer plain HTTP with the way to HTTPS.
    pub redirect_to_https: bool,
    /// From the last octet of a request to the first of its response.
    pub request_timeout: Duration,
    /// Octets of a request's body.
    pub max_body: Option<u64>,
}

impl Default for RouteOptions {
    fn default() -> Self {
        Self { redirect_to_https: false, request_timeout: Duration::from_mins(1), max_body: None }
    }
}

/// A chain and its key, in DER form.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The server's own first.
    pub chain: Vec<Vec<u8>>,
    pub key: Vec<u8>,
    /// Of both, so that holders tell whether it is another.
    pub digest: Digest,
}

/// Never the key.
impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("digest", &self.digest).finish_non_exhaustive()
    }
}

/// How the Ingresses of a class are placed and steered.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FederationPolicy {
    /// All of these labels a member must have.
    pub selector: BTreeMap<String, String>,
    pub entry: EntryMode,
    pub steering: Steering,
    pub overflow: Overflow,
    pub health: HealthCheck,
    pub upstream: UpstreamTls,
}

impl FederationPolicy {
    pub(crate) fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EntryMode {
    /// Clients meet our gateways.
    #[default]
    Vip,
    /// DNS sends clients straight to the members.
    Dns,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Steering {
    #[default]
    Geo,
    Latency,
    /// A member without a weight gets nothing.
    Weighted(BTreeMap<ClusterName, u32>),
    /// Those that are not listed come after those that are, by name.
    Failover(Vec<ClusterName>),
    RoundRobin,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overflow {
    /// What a member is filled to.
    pub utilization: f64,
    /// What a pod is said to serve in a second.
    pub max_rate_per_pod: Option<u32>,
}

impl Default for Overflow {
    fn default() -> Self {
        Self { utilization: 0.8, max_rate_per_pod: None }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HealthCheck {
    pub path: Arc<str>,
    pub interval: Duration,
    pub timeout: Duration,
    /// So many failures in a row.
    pub unhealthy: u32,
    /// So many successes in a row.
    pub healthy: u32,
}

impl Default for HealthCheck {
    fn default() -> Self {
        Self {
            path: "/healthz".into(),
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            unhealthy: 3,
            healthy: 2,
        }
    }
}

/// How our gateways speak to members.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum UpstreamTls {
    /// The certificate is checked for the host that the client asked for, against these authorities (DER), or against those
    /// that the machine trusts where there are none.
    Verified { authorities: Arc<[Vec<u8>]> },
    /// TLS that anybody in between can open. Only where asked for.
    Unverified,
    /// No TLS at all. Only where asked for.
    Plain,
}

impl Default for UpstreamTls {
    fn default() -> Self {
        Self::Verified { authorities: Arc::new([]) }
    }
}
