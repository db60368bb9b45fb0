//! `kind: Cluster`.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use kube::CustomResource;
use model::network::Coordinates;
use model::resource::{Cluster as ModelCluster, ControlPlaneService, IngressMode, Node, Upstream};
use model::{Cidr, ClusterId, ClusterName, DnsName, Location, ObjectName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::status::ClusterStatus;
use crate::tenant::LimitsSpec;
use crate::text::{Check, Text, checked, plain};

/// A tenant cluster whose control plane lives on the hub. Its name is a DNS label, because names are made from it.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "fleetgate.dev",
    version = "v1alpha1",
    kind = "Cluster",
    plural = "clusters",
    status = "ClusterStatus",
    validation = Rule::new("size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')")
        .message("the name of a Cluster is a DNS label: at most 63 characters and no dot"),
    printcolumn(name = "Tenant", type_ = "string", json_path = ".spec.tenant"),
    printcolumn(name = "API", type_ = "string", json_path = ".status.apiName"),
    printcolumn(name = "Ready-Nodes", type_ = "integer", json_path = ".status.readyNodes"),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Accepted\")].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterSpec {
    /// The Tenant that owns it.
    pub tenant: Text<ObjectName>,
    /// The Zone that its names are in.
    pub zone: Text<ObjectName>,
    /// What connections carry to select this cluster (the PROXY protocol's TLV); unique in the fleet, compared octet by
    /// octet. The cluster's name by default.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<Text<ClusterId>>,
    /// Where it runs.
    #[serde(default, deserialize_with = "checked")]
    pub location: LocationSpec,
    pub control_plane: ControlPlaneSpec,
    /// Its nodes, where they are given; where `access` is set, the watched nodes count instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5000))]
    pub nodes: Vec<NodeSpec>,
    /// How the controller reads the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessSpec>,
    #[serde(default)]
    pub ingress: IngressSpec,
    /// Who may connect to its control plane: the real peer, or the client that a trusted proxy names.
    #[serde(default = "default_sources")]
    #[schemars(length(max = 500))]
    pub allowed_sources: Vec<Text<Cidr>>,
    /// The keyed selector.
    #[serde(default)]
    pub proof: ProofSpec,
    #[serde(default)]
    pub limits: LimitsSpec,
    /// Its own DNS, for its control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<ClusterDnsSpec>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "has(self.latitude) == has(self.longitude)", "message": "give latitude and longitude together or not at all" },
]))]
pub struct LocationSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub region: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub provider: Option<String>,
    /// Degrees north.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "plain")]
    #[schemars(range(min = -90, max = 90))]
    pub latitude: Option<f64>,
    /// Degrees east.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "plain")]
    #[schemars(range(min = -180, max = 180))]
    pub longitude: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ControlPlaneSpec {
    #[serde(deserialize_with = "checked")]
    pub kube_apiserver: UpstreamSpec,
    /// Control-plane services beside the API server, each with a server name of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub services: Vec<ServiceSpec>,
}

/// Either addresses or, on a hub, a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "(has(self.addresses) && size(self.addresses) > 0) != has(self.service)", "message": "give either addresses or a service" },
]))]
pub struct UpstreamSpec {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub addresses: Vec<Text<SocketAddr>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceRef>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceRef {
    pub namespace: Text<ObjectName>,
    pub name: Text<ObjectName>,
    #[schemars(range(min = 1, max = 65535))]
    #[serde(deserialize_with = "plain")]
    pub port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceSpec {
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The server name that leads to it.
    pub sni: Text<DnsName>,
    #[schemars(length(min = 1, max = 16))]
    pub addresses: Vec<Text<SocketAddr>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeSpec {
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub addresses: Vec<Text<IpAddr>>,
    #[serde(default = "default_ready", deserialize_with = "plain")]
    pub ready: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccessSpec {
    pub kubeconfig: SecretSource,
}

/// A Secret on a hub, or a file beside the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretSource {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub file: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretRef {
    pub namespace: Text<ObjectName>,
    pub name: Text<ObjectName>,
}

/// How traffic for the cluster's applications reaches it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IngressSpec {
    /// `nodes`: the `apps` name points at the ready nodes. `hub`: at our gateway, which goes through the tunnel.
    #[serde(default)]
    pub mode: IngressModeSpec,
    /// The class of the ingress controller inside the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub class_name: Option<String>,
    /// Where the cluster's ingress controller takes HTTP.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub http: Vec<Text<SocketAddr>>,
    /// Where the cluster's ingress controller takes HTTPS.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub https: Vec<Text<SocketAddr>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum IngressModeSpec {
    #[default]
    Nodes,
    Hub,
}

/// The keyed selector: connections prove that they may name this cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProofSpec {
    /// Refuse connections without a proof.
    #[serde(default, deserialize_with = "plain")]
    pub required: bool,
    /// Two keys are valid during a rotation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    pub keys: Vec<SecretSource>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterDnsSpec {
    pub domain: Text<DnsName>,
    pub server: Text<IpAddr>,
}

fn default_sources() -> Vec<Text<Cidr>> {
    ["0.0.0.0/0", "::/0"].map(|text| Text(text.parse().expect("the default is a CIDR"))).into()
}

fn default_ready() -> bool {
    true
}

impl LocationSpec {
    fn coordinates(&self) -> Result<Option<Coordinates>, String> {
        match (self.latitude, self.longitude) {
            (Some(latitude), Some(longitude)) => {
                Coordinates::new(latitude, longitude).map(Some).map_err(|error| error.to_string())
            }
            (None, None) => Ok(None),
            _ => Err(model::network::CoordinatesError::Half.to_string()),
        }
    }
}

impl Check for LocationSpec {
    fn check(&self) -> Result<(), String> {
        self.coordinates().map(drop)
    }
}

impl Check for UpstreamSpec {
    fn check(&self) -> Result<(), String> {
        match (self.addresses.is_empty(), &self.service) {
            (false, None) | (true, Some(_)) => Ok(()),
            _ => Err("kubeApiserver takes either addresses or a service".into()),
        }
    }
}

impl Check for ClusterSpec {
    fn check(&self) -> Result<(), String> {
        if let Some(service) = self.control_plane.services.iter().find(|service| service.addresses.is_empty()) {
            return Err(format!("controlPlane.services {:?} has no addresses", service.name));
        }
        if self.allowed_sources.len() > 500 {
            return Err("allowedSources has more than 500 ranges".into());
        }
        Ok(())
    }
}

impl ClusterSpec {
    pub fn into_model(self, name: ClusterName, labels: BTreeMap<String, String>) -> ModelCluster {
        // A proof that is demanded and not checked would be a lock that does not lock.
        let not_yet = self.proof.required.then_some("spec.proof.required");
        let coordinates = self.location.coordinates().unwrap_or_default();
        let services = self.control_plane.services.into_iter();
        ModelCluster {
            id: self.cluster_id.map_or_else(|| ClusterId::from(&name), |id| id.0),
            name,
            labels,
            tenant: self.tenant.0,
            zone: self.zone.0,
            location: Location { region: self.location.region, provider: self.location.provider, coordinates },
            api_server: self.control_plane.kube_apiserver.into_model(),
            services: services
                .map(|service| ControlPlaneService {
                    name: service.name.into(),
                    sni: service.sni.0,
                    addresses: Text::list(&service.addresses),
                })
                .collect(),
            nodes: self
                .nodes
                .into_iter()
                .map(|node| Node { name: node.name, addresses: Text::list(&node.addresses), ready: node.ready })
                .collect(),
            ingress: match self.ingress.mode {
                IngressModeSpec::Nodes => IngressMode::Nodes,
                IngressModeSpec::Hub => IngressMode::Hub,
            },
            allowed_sources: Arc::from(Text::list(&self.allowed_sources)),
            limits: self.limits.into_model(),
            not_yet,
        }
    }
}

impl UpstreamSpec {
    fn into_model(self) -> Upstream {
        match self.service {
            Some(service) => {
                Upstream::Service { namespace: service.namespace.0, name: service.name.0, port: service.port }
            }
            None => Upstream::Addresses(Text::list(&self.addresses)),
        }
    }
}
