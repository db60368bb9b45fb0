//! `kind: FederationPolicy`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::CustomResource;
use model::ClusterName;
use model::ingress::{EntryMode, HealthCheck, Overflow, Steering, UpstreamTls};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounded::{Line, List};
use crate::certificate;
use crate::labels::LabelValue;
use crate::status::ObjectStatus;
use crate::text::{Check, Span, Text, checked, plain, within};

/// How the Ingresses of a class are placed and steered; named by `IngressClass.spec.parameters`.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "fleetgate.dev",
    version = "v1alpha1",
    kind = "FederationPolicy",
    plural = "federationpolicies",
    category = "fleetgate",
    doc = "How the Ingresses of a class are placed and steered; named by `IngressClass.spec.parameters`.",
    status = "ObjectStatus",
    printcolumn(name = "Entry", type_ = "string", json_path = ".spec.entry"),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.steering.mode"),
    printcolumn(name = "Accepted", type_ = "string", json_path = ".status.conditions[?(@.type==\"Accepted\")].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FederationPolicySpec {
    /// Which clusters serve; always only those of the tenant that owns the Ingress' namespace.
    #[serde(default)]
    pub placement: PlacementSpec,
    /// How clients come in: `vip`, they meet our gateways; `dns`, DNS sends them straight to the members.
    #[serde(default)]
    pub entry: Entry,
    /// Which cluster a client is sent to.
    #[serde(default, deserialize_with = "checked")]
    pub steering: SteeringSpec,
    /// When traffic leaves its first choice.
    #[serde(default, deserialize_with = "checked")]
    pub overflow: OverflowSpec,
    /// How members are checked.
    #[serde(default)]
    pub health: HealthSpec,
    /// TLS from our gateway to a member.
    #[serde(default, rename = "upstreamTLS", deserialize_with = "checked")]
    pub upstream_tls: UpstreamTlsSpec,
}

/// Which clusters; always only those of the tenant that owns the Ingress' namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlacementSpec {
    /// By their labels; every cluster when it is left out.
    #[serde(default)]
    pub cluster_selector: LabelSelectorSpec,
}

/// Chooses clusters by their labels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelSelectorSpec {
    /// All of these labels must be there, with these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, Text<LabelValue>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Entry {
    /// Clients meet our gateways.
    #[default]
    Vip,
    /// DNS sends clients straight to the members.
    Dns,
}

/// Which cluster a client is sent to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SteeringSpec {
    /// By distance, by measured latency, by `weights`, by `order`, or to each in turn.
    #[serde(default)]
    pub mode: SteeringMode,
    /// For `weighted`: the share of each cluster; one that is not listed gets nothing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "plain")]
    #[schemars(extend("maxProperties" = 1000, "x-kubernetes-validations" = [
        { "rule": "self.all(name, name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$'))", "message": "weights are by names of clusters" },
    ]))]
    pub weights: BTreeMap<String, u32>,
    /// For `failover`: who comes first; those that are not listed come last, by name.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    pub order: List<Text<ClusterName>, 1000>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SteeringMode {
    #[default]
    Geo,
    Latency,
    Weighted,
    Failover,
    RoundRobin,
}

/// When traffic leaves its nearest cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OverflowSpec {
    /// The utilisation that a cluster is filled to.
    #[serde(default = "default_utilization", deserialize_with = "plain")]
    // A rule, because the API server rounds a bound of 0.05 to 0 when it meets a whole number.
    #[schemars(range(min = 0.05, max = 1), extend("x-kubernetes-validations" = [
        { "rule": "self >= 0.05", "message": "must be at least 0.05" },
    ]))]
    pub utilization: f64,
    /// What one pod serves in requests per second, as declared; measured values take over.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "plain")]
    pub max_rate_per_pod: Option<u32>,
}

/// How members are checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthSpec {
    /// The path that is asked for.
    #[serde(default = "default_path")]
    pub path: Text<Line<1024>>,
    /// How often each member is asked.
    #[serde(default = "default_interval")]
    pub interval: Text<Span>,
    /// How long an answer may take.
    #[serde(default = "default_timeout")]
    pub timeout: Text<Span>,
    /// This many failures in a row make a member unhealthy.
    #[serde(default = "default_unhealthy", deserialize_with = "within::<_, 1, 100>")]
    #[schemars(range(min = 1, max = 100))]
    pub unhealthy: u32,
    /// This many successes in a row make it healthy again.
    #[serde(default = "default_healthy", deserialize_with = "within::<_, 1, 100>")]
    #[schemars(range(min = 1, max = 100))]
    pub healthy: u32,
}

/// From our gateway to a member: verified TLS or the tunnel; plain text only where asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpstreamTlsSpec {
    /// Verify the certificates of members, for the host that the client asked for.
    #[serde(default = "default_verify", deserialize_with = "plain")]
    pub verify: bool,
    /// The certificate authorities that members' certificates come from, in PEM form; those that the machine trusts when it
    /// is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<Text<Line<65536>>>,
    /// Speak plain HTTP to members, at `spec.ingress.http` of their Clusters. Anybody in between can read along.
    #[serde(default, deserialize_with = "plain")]
    pub plain_text: bool,
}

fn default_utilization() -> f64 {
    0.8
}

fn default_path() -> Text<Line<1024>> {
    Text(Line("/healthz".into()))
}

fn default_interval() -> Text<Span> {
    Text(Span(Duration::from_secs(5)))
}

fn default_timeout() -> Text<Span> {
    Text(Span(Duration::from_secs(2)))
}

fn default_unhealthy() -> u32 {
    3
}

fn default_healthy() -> u32 {
    2
}

fn default_verify() -> bool {
    true
}

impl Default for OverflowSpec {
    fn default() -> Self {
        Self { utilization: default_utilization(), max_rate_per_pod: None }
    }
}

impl Default for HealthSpec {
    fn default() -> Self {
        Self {
            path: default_path(),
            interval: default_interval(),
            timeout: default_timeout(),
            unhealthy: default_unhealthy(),
            healthy: default_healthy(),
        }
    }
}

impl Default for UpstreamTlsSpec {
    fn default() -> Self {
        Self { verify: default_verify(), ca: None, plain_text: false }
    }
}

impl Check for OverflowSpec {
    fn check(&self) -> Result<(), String> {
        if (0.05..=1.0).contains(&self.utilization) {
            Ok(())
        } else {
            Err(format!("overflow.utilization {} is not between 0.05 and 1", self.utilization))
        }
    }
}

impl Check for SteeringSpec {
    fn check(&self) -> Result<(), String> {
        self.weights().map(drop)
    }
}

impl Check for UpstreamTlsSpec {
    fn check(&self) -> Result<(), String> {
        self.authorities().map(drop)
    }
}

impl Check for FederationPolicySpec {
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

impl SteeringSpec {
    fn weights(&self) -> Result<BTreeMap<ClusterName, u32>, String> {
        let weight = |(name, weight): (&String, &u32)| Ok((name.parse::<ClusterName>()?, *weight));
        let weights = self.weights.iter().map(weight).collect::<Result<_, model::identity::IdentityError>>();
        weights.map_err(|error| format!("steering.weights: {error}"))
    }
}

impl UpstreamTlsSpec {
    fn authorities(&self) -> Result<Arc<[Vec<u8>]>, String> {
        let Some(ca) = &self.ca else { return Ok(Arc::new([])) };
        let authorities = certificate::chain(ca.0.0.as_bytes()).map_err(|error| format!("upstreamTLS.ca: {error}"))?;
        Ok(authorities.into())
    }
}

impl FederationPolicySpec {
    /// Of one that has been checked.
    pub(crate) fn into_model(self) -> model::ingress::FederationPolicy {
        let upstream = match &self.upstream_tls {
            tls if tls.plain_text => UpstreamTls::Plain,
            tls if !tls.verify => UpstreamTls::Unverified,
            tls => UpstreamTls::Verified { authorities: tls.authorities().unwrap_or_default() },
        };
        let steering = match self.steering.mode {
            SteeringMode::Geo => Steering::Geo,
            SteeringMode::Latency => Steering::Latency,
            SteeringMode::Weighted => Steering::Weighted(self.steering.weights().unwrap_or_default()),
            SteeringMode::Failover => Steering::Failover(Text::list(&self.steering.order)),
            SteeringMode::RoundRobin => Steering::RoundRobin,
        };
        let labels = self.placement.cluster_selector.match_labels.into_iter();
        model::ingress::FederationPolicy {
            selector: labels.map(|(key, value)| (key, value.0.0)).collect(),
            entry: match self.entry {
                Entry::Vip => EntryMode::Vip,
                Entry::Dns => EntryMode::Dns,
            },
            steering,
            overflow: Overflow {
                utilization: self.overflow.utilization,
                max_rate_per_pod: self.overflow.max_rate_per_pod,
            },
            health: HealthCheck {
                path: self.health.path.0.0.into(),
                interval: self.health.interval.0.0,
                timeout: self.health.timeout.0.0,
                unhealthy: self.health.unhealthy,
                healthy: self.health.healthy,
            },
            upstream,
        }
    }
}
