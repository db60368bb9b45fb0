//! `kind: FederationPolicy`.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::CustomResource;
use model::ClusterName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::status::ObjectStatus;
use crate::text::{Check, Span, Text, plain};

/// How the Ingresses of a class are placed and steered; named by `IngressClass.spec.parameters`.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "fleetgate.dev",
    version = "v1alpha1",
    kind = "FederationPolicy",
    plural = "federationpolicies",
    status = "ObjectStatus",
    printcolumn(name = "Entry", type_ = "string", json_path = ".spec.entry"),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.steering.mode"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FederationPolicySpec {
    #[serde(default)]
    pub placement: PlacementSpec,
    #[serde(default)]
    pub entry: Entry,
    #[serde(default)]
    pub steering: SteeringSpec,
    #[serde(default)]
    pub overflow: OverflowSpec,
    #[serde(default)]
    pub health: HealthSpec,
    #[serde(default, rename = "upstreamTLS")]
    pub upstream_tls: UpstreamTlsSpec,
}

/// Which clusters; always only those of the tenant that owns the Ingress' namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlacementSpec {
    #[serde(default)]
    pub cluster_selector: LabelSelectorSpec,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LabelSelectorSpec {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
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

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SteeringSpec {
    #[serde(default)]
    pub mode: SteeringMode,
    /// For `weighted`: the share of each cluster.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "plain")]
    pub weights: BTreeMap<String, u32>,
    /// For `failover`: who comes first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub order: Vec<Text<ClusterName>>,
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
    #[schemars(range(min = 0.05, max = 1))]
    pub utilization: f64,
    /// What one pod serves in requests per second, as declared; measured values take over.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "plain")]
    pub max_rate_per_pod: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthSpec {
    #[serde(default = "default_path")]
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
    #[serde(default = "default_interval")]
    pub interval: Text<Span>,
    #[serde(default = "default_timeout")]
    pub timeout: Text<Span>,
    /// This many failures in a row make a member unhealthy.
    #[serde(default = "default_unhealthy", deserialize_with = "plain")]
    #[schemars(range(min = 1, max = 100))]
    pub unhealthy: u32,
    /// This many successes in a row make it healthy again.
    #[serde(default = "default_healthy", deserialize_with = "plain")]
    #[schemars(range(min = 1, max = 100))]
    pub healthy: u32,
}

/// From our gateway to a member: verified TLS or the tunnel; plain text only where asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpstreamTlsSpec {
    #[serde(default = "default_verify", deserialize_with = "plain")]
    pub verify: bool,
    /// The certificate authorities that members' certificates come from, in PEM form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub ca: Option<String>,
}

fn default_utilization() -> f64 {
    0.8
}

fn default_path() -> String {
    "/healthz".into()
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
        Self { verify: default_verify(), ca: None }
    }
}

impl Check for FederationPolicySpec {
    fn check(&self) -> Result<(), String> {
        if !(0.05..=1.0).contains(&self.overflow.utilization) {
            return Err(format!("overflow.utilization {} is not between 0.05 and 1", self.overflow.utilization));
        }
        if self.health.unhealthy == 0 || self.health.healthy == 0 {
            return Err("health.unhealthy and health.healthy count from 1".into());
        }
        Ok(())
    }
}
