//! `kind: Cluster`.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use kube::CustomResource;
use model::inside::{InnerHost, InnerTarget, Inside};
use model::network::Coordinates;
use model::resolver::{ClusterDns, ResolverPart};
use model::resource::{
    Access, Cluster as ModelCluster, ControlPlaneService, IngressController, IngressMode, Node, Upstream,
};
use model::{Cidr, ClusterId, ClusterName, DnsName, Location, ObjectName, Proof, ProofKey, Refusal};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounded::{Line, List};
use crate::named::{Home, Lookup, Source, WrongFile, or_hindrance, unusable};
use crate::placed;
use crate::status::{ClusterStatus, KeptStatus, NodeStatus, ResolverStatus};
use crate::tenant::LimitsSpec;
use crate::text::{Check, DnsServer, Namespace, Text, checked, plain};

/// A tenant cluster whose control plane lives on the hub. Its name is a DNS label, because names are made from it.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "fleetgate.dev",
    version = "v1alpha1",
    kind = "Cluster",
    plural = "clusters",
    category = "fleetgate",
    doc = "A tenant cluster whose control plane lives on the hub. Its name is a DNS label, because names are made from it.",
    status = "ClusterStatus",
    validation = Rule::new("size(self.metadata.name) <= 63 && !self.metadata.name.contains('.')")
        .message("the name of a Cluster is a DNS label: at most 63 characters and no dot"),
    printcolumn(name = "Tenant", type_ = "string", json_path = ".spec.tenant"),
    printcolumn(name = "API", type_ = "string", json_path = ".status.apiName"),
    printcolumn(name = "Ready-Nodes", type_ = "integer", json_path = ".status.readyNodes"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
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
    /// Where it runs, for steering clients to the nearest cluster.
    #[serde(default, deserialize_with = "checked")]
    pub location: LocationSpec,
    /// Where its control plane answers.
    pub control_plane: ControlPlaneSpec,
    /// Its nodes, where they are given; where `access` is set on a hub, those in `status.nodes` count instead.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    pub nodes: List<NodeSpec, 5000>,
    /// How the controller watches its nodes and keeps federated Ingresses there. Without effect in a folder so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessSpec>,
    /// How traffic for its applications reaches it.
    #[serde(default, deserialize_with = "checked")]
    pub ingress: IngressSpec,
    /// Who may connect to its control plane: the real peer, or the client that a trusted proxy names. Everybody by
    /// default; an empty list lets nobody in.
    #[serde(default = "default_sources")]
    pub allowed_sources: List<Text<Cidr>, 500>,
    /// The keyed selector: connections prove that they may name this cluster.
    #[serde(default, deserialize_with = "checked")]
    pub proof: ProofSpec,
    /// How much traffic is let in to its control plane.
    #[serde(default)]
    pub limits: LimitsSpec,
    /// Its own DNS: where the control planes' resolver sends what is in the cluster's domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<ClusterDnsSpec>,
}

/// Where a cluster runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "has(self.latitude) == has(self.longitude)", "message": "give latitude and longitude together or not at all" },
]))]
pub struct LocationSpec {
    /// The region, in the words of the fleet, such as `eu-west`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<Text<Line<63>>>,
    /// Who runs the machines, such as `gcp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Text<Line<63>>>,
    /// Degrees north; with `longitude` or not at all.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "plain")]
    #[schemars(range(min = -90, max = 90))]
    pub latitude: Option<f64>,
    /// Degrees east; with `latitude` or not at all.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "plain")]
    #[schemars(range(min = -180, max = 180))]
    pub longitude: Option<f64>,
}

/// Where the control plane answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ControlPlaneSpec {
    /// Where its API server answers.
    #[serde(deserialize_with = "checked")]
    pub kube_apiserver: UpstreamSpec,
    /// Control-plane services beside the API server, each with a server name of its own.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    pub services: List<ServiceSpec, 16>,
    /// The namespace on the hub in which it runs. The control planes' resolver answers for Services of this namespace and of
    /// no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Text<Namespace>>,
}

/// Either addresses or, on a hub, a Service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "(has(self.addresses) && size(self.addresses) > 0) != has(self.service)", "message": "give either addresses or a service" },
]))]
pub struct UpstreamSpec {
    /// Addresses with their port, as the gateways reach them; a connection goes to one that answers.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    pub addresses: List<Text<SocketAddr>, 16>,
    /// A Service of the hub, whose ready endpoints are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceRef>,
}

/// A Service on a hub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceRef {
    /// The namespace that the Service is in.
    pub namespace: Text<Namespace>,
    /// The name of the Service.
    pub name: Text<ObjectName>,
    /// The port of the Service.
    #[schemars(range(min = 1, max = 65535))]
    #[serde(deserialize_with = "plain")]
    pub port: u16,
}

/// A control-plane service with a server name of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceSpec {
    /// What it is called in logs, metrics and `explain`.
    pub name: Text<Line<63>>,
    /// The server name that leads to it.
    pub sni: Text<DnsName>,
    /// Where it answers: addresses with their port.
    pub addresses: List<Text<SocketAddr>, 16, 1>,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeSpec {
    /// The name of the node.
    pub name: Text<Line<253>>,
    /// The addresses at which it takes traffic, IPv4 and IPv6.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    pub addresses: List<Text<IpAddr>, 8>,
    /// Only the addresses of ready nodes are published.
    #[serde(default = "default_ready", deserialize_with = "plain")]
    pub ready: bool,
}

/// How the controller watches a cluster's nodes, and keeps federated Ingresses there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccessSpec {
    /// A kubeconfig with which the controller may list and watch nodes and, for federated Ingresses, keep Ingresses and list
    /// and watch Services and `EndpointSlice`s; in a Secret it stands under `kubeconfig`. It must hold its credentials itself:
    /// programs, plug-ins, paths and unverified TLS are refused.
    #[serde(deserialize_with = "checked")]
    pub kubeconfig: SecretSource,
}

/// Either a Secret on a hub, or a file beside the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "has(self.secret) != has(self.file)", "message": "give either a secret or a file" },
]))]
pub struct SecretSource {
    /// A Secret (on a hub).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretRef>,
    /// A path beside the manifest (in a folder).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<Text<Line<4096>>>,
}

/// A Secret on a hub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretRef {
    /// The namespace that the Secret is in.
    pub namespace: Text<Namespace>,
    /// The name of the Secret.
    pub name: Text<ObjectName>,
}

/// How traffic for the cluster's applications reaches it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!has(self.service) || self.mode == 'hub'", "message": "a service is for mode hub, where the cluster's agent reaches it" },
    {
        "rule": "!has(self.service) || ((!has(self.http) || size(self.http) == 0) && (!has(self.https) || size(self.https) == 0))",
        "message": "give either a service or http and https",
    },
    {
        "rule": "self.mode == 'hub' || ((!has(self.http) || self.http.all(at, at.matches('^([0-9.]+|[[].*):[0-9]+$'))) && (!has(self.https) || self.https.all(at, at.matches('^([0-9.]+|[[].*):[0-9]+$'))))",
        "message": "names are for mode hub, where the cluster's agent looks them up",
    },
]))]
pub struct IngressSpec {
    /// `nodes`: the `apps` name points at the ready nodes. `hub`: at our gateway, which passes what comes by that name through the
    /// tunnel to the cluster's own ingress controller: TLS by its server name, without a key here, and HTTP by its host.
    #[serde(default)]
    pub mode: IngressModeSpec,
    /// The class of the ingress controller inside the cluster: what federated Ingresses have there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_name: Option<Text<Line<253>>>,
    /// With mode `hub`: the Service of the ingress controller inside the cluster, instead of `http` and `https`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "checked")]
    pub service: Option<InnerServiceSpec>,
    /// Where the cluster's ingress controller takes HTTP: for policies that ask for plain text. With mode `hub`, addresses or
    /// names inside the cluster, each with its port, which its agent connects to.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    pub http: List<Text<InnerTarget>, 64>,
    /// Where the cluster's ingress controller takes HTTPS: our gateways send it the requests for federated Ingresses, and DNS
    /// their clients, where the policy says so. With mode `hub`, addresses or names inside the cluster, each with its port,
    /// which its agent connects to.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    pub https: List<Text<InnerTarget>, 64>,
    /// With mode `hub`: who may come by the `apps` name: the real peer, or the client that a trusted proxy names. Everybody by
    /// default; an empty list lets nobody in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_sources: Option<List<Text<Cidr>, 500>>,
    /// With mode `hub`: how many connections by the `apps` name are let in at the door by server name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsSpec>,
}

/// A Service inside the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InnerServiceSpec {
    /// The namespace that the Service is in.
    pub namespace: Text<Namespace>,
    /// The name of the Service.
    pub name: Text<Namespace>,
    /// The port that takes HTTP.
    #[serde(default = "default_http_port", deserialize_with = "plain")]
    #[schemars(range(min = 1, max = 65535))]
    pub http_port: u16,
    /// The port that takes TLS.
    #[serde(default = "default_https_port", deserialize_with = "plain")]
    #[schemars(range(min = 1, max = 65535))]
    pub https_port: u16,
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
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.required) || !self.required || (has(self.keys) && size(self.keys) > 0)",
        "message": "a proof that is required needs a key",
    },
]))]
pub struct ProofSpec {
    /// Refuse connections that select the cluster by its id without a proof. A proof that comes is checked in any case.
    #[serde(default, deserialize_with = "plain")]
    pub required: bool,
    /// Each is valid by itself; two are there during a rotation. In a Secret it stands under `key`, or alone.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    pub keys: List<SecretSource, 2>,
}

/// The DNS inside a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterDnsSpec {
    /// The domain of its Services.
    #[serde(default = "default_domain")]
    pub domain: Text<DnsName>,
    /// The address at which its DNS answers inside the cluster, with its port where that is not 53.
    #[serde(default = "default_server")]
    pub server: Text<DnsServer>,
    /// The networks of its Services, in the order in which its API server has them: the names of their addresses are asked of
    /// its DNS, and the first address of each is what `kubernetes.default.svc` leads to while nobody else can be asked.
    #[serde(default, rename = "serviceCIDRs", skip_serializing_if = "List::is_empty")]
    pub service_cidrs: List<Text<Cidr>, 4>,
    /// The networks of its pods: the names of their addresses are asked of its DNS.
    #[serde(default, rename = "podCIDRs", skip_serializing_if = "List::is_empty")]
    pub pod_cidrs: List<Text<Cidr>, 16>,
}

fn default_domain() -> Text<DnsName> {
    Text(ClusterDns::default().domain)
}

fn default_server() -> Text<DnsServer> {
    Text(DnsServer(ClusterDns::default().server))
}

fn default_sources() -> List<Text<Cidr>, 500> {
    List(["0.0.0.0/0", "::/0"].map(|text| Text(text.parse().expect("the default is a CIDR"))).into())
}

fn default_ready() -> bool {
    true
}

fn default_http_port() -> u16 {
    80
}

fn default_https_port() -> u16 {
    443
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

impl Check for SecretSource {
    fn check(&self) -> Result<(), String> {
        if self.secret.is_some() == self.file.is_some() { Err("give either a secret or a file".into()) } else { Ok(()) }
    }
}

impl Check for UpstreamSpec {
    fn check(&self) -> Result<(), String> {
        if self.service.as_ref().is_some_and(|service| service.port == 0) {
            return Err("the port of a service is 1 to 65535".into());
        }
        match (self.addresses.is_empty(), &self.service) {
            (false, None) | (true, Some(_)) => Ok(()),
            _ => Err("kubeApiserver takes either addresses or a service".into()),
        }
    }
}

impl Check for Option<InnerServiceSpec> {
    fn check(&self) -> Result<(), String> {
        let ports = self.iter().flat_map(|service| [service.http_port, service.https_port]);
        if ports.into_iter().any(|port| port == 0) {
            return Err("the port of a service is 1 to 65535".into());
        }
        Ok(())
    }
}

impl Check for IngressSpec {
    fn check(&self) -> Result<(), String> {
        let is_hub = self.mode == IngressModeSpec::Hub;
        if self.service.is_some() && !is_hub {
            return Err("a service is for mode hub, where the cluster's agent reaches it".into());
        }
        if self.service.is_some() && !(self.http.is_empty() && self.https.is_empty()) {
            return Err("give either a service or http and https".into());
        }
        let is_name = |target: &&Text<InnerTarget>| matches!(target.0.host, InnerHost::Name(_));
        match self.http.iter().chain(self.https.iter()).find(is_name) {
            Some(Text(target)) if !is_hub => {
                Err(format!("{target} is a name; those are for mode hub, where the cluster's agent looks them up"))
            }
            _ => Ok(()),
        }
    }
}

impl IngressSpec {
    fn mode(&self) -> IngressMode {
        match self.mode {
            IngressModeSpec::Nodes => IngressMode::Nodes,
            IngressModeSpec::Hub => IngressMode::Hub,
        }
    }

    /// What is inside where the mode says so, and outside where it does not: never one for the other.
    fn into_model(self) -> IngressController {
        let class = self.class_name.map(|class| class.0.0.into());
        if self.mode == IngressModeSpec::Nodes {
            let outside = |targets: &[Text<InnerTarget>]| {
                let addresses = targets.iter().filter_map(|Text(target)| match target.host {
                    InnerHost::Address(address) => Some(SocketAddr::new(address, target.port)),
                    InnerHost::Name(_) => None,
                });
                addresses.collect()
            };
            let (http, https) = (outside(&self.http), outside(&self.https));
            return IngressController { class, http, https, inside: Arc::default() };
        }
        let (http, https) = match self.service {
            Some(service) => {
                let (name, namespace) = (service.name.0.0, service.namespace.0.0);
                let at = |port| vec![InnerTarget::service(name.as_str(), namespace.as_str(), port)];
                (at(service.http_port), at(service.https_port))
            }
            None => (Text::list(&self.http), Text::list(&self.https)),
        };
        let allowed_sources = Arc::from(Text::list(&self.allowed_sources.unwrap_or_else(default_sources)));
        let limits = self.limits.unwrap_or_default().into_model();
        let inside = Arc::new(Inside { http, https, allowed_sources, limits });
        IngressController { class, http: Vec::new(), https: Vec::new(), inside }
    }
}

impl Check for ProofSpec {
    fn check(&self) -> Result<(), String> {
        if self.required && self.keys.is_empty() {
            return Err("a proof that is required needs a key".into());
        }
        self.keys.iter().try_for_each(Check::check)
    }
}

impl Check for ClusterSpec {
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

impl ProofSpec {
    fn read(&self, lookup: &mut Lookup<'_>, hindrance: &mut Option<Refusal>) -> Result<Proof, WrongFile> {
        let mut keys = Vec::with_capacity(self.keys.len());
        for key in &self.keys.0 {
            let (source, field) = match (&key.secret, &key.file) {
                (Some(secret), _) => (secret.source(), "spec.proof.keys.secret"),
                (None, file) => (Source::File(file.as_ref().map_or("", |path| &path.0.0)), "spec.proof.keys.file"),
            };
            let key = lookup.get(source, field);
            // The error tells of its form, never what is in it.
            let key =
                key.and_then(|octets| ProofKey::parse(&octets).map_err(|error| unusable(source, error.to_string())));
            keys.extend(or_hindrance(key, hindrance)?);
        }
        Ok(Proof { required: self.required, keys })
    }
}

impl SecretRef {
    fn source(&self) -> Source<'_> {
        Source::Secret { namespace: &self.namespace.0.0, name: &self.name.0 }
    }
}

impl ClusterSpec {
    /// `status` is what a hub's object has, where it is of a hub.
    pub(crate) fn into_model(
        self,
        name: ClusterName,
        labels: BTreeMap<String, String>,
        status: Option<ClusterStatus>,
        lookup: &mut Lookup<'_>,
    ) -> Result<ModelCluster, WrongFile> {
        let mut hindrance = None;
        let status = status.unwrap_or_default();
        if lookup.home == Home::Folder && self.control_plane.kube_apiserver.service.is_some() {
            hindrance = Some(Refusal::NeedsHub("spec.controlPlane.kubeApiserver.service"));
        }
        let mut closed = None;
        let proof = match lookup.home {
            Home::Folder => self.proof.read(lookup, &mut hindrance)?,
            // A file is a mistake of the object's; a Secret is not for everybody to see.
            Home::Hub if self.proof.keys.iter().any(|key| key.file.is_some()) => {
                self.proof.read(lookup, &mut hindrance)?
            }
            Home::Hub => self.proof.read(lookup, &mut closed)?,
        };
        let access = match (lookup.home, self.access.map(|access| access.kubeconfig.secret)) {
            // Nobody watches from a folder: the nodes are those that are given.
            (Home::Folder, _) | (Home::Hub, None) => None,
            (Home::Hub, Some(Some(SecretRef { namespace, name }))) => {
                let reachable = status.is_reachable();
                let placements = placed::into_model(status.ingresses, status.more_ingresses);
                Some(Access { namespace: namespace.0.0, name: name.0, reachable, placements })
            }
            (Home::Hub, Some(None)) => {
                hindrance.get_or_insert(Refusal::NeedsFolder("spec.access.kubeconfig.file"));
                None
            }
        };
        let nodes = match &access {
            Some(_) => status.nodes.0.into_iter().map(NodeStatus::into_model).collect(),
            None => self.nodes.0.into_iter().map(NodeSpec::into_model).collect(),
        };
        let coordinates = self.location.coordinates().unwrap_or_default();
        let services = self.control_plane.services.0.into_iter();
        Ok(ModelCluster {
            id: self.cluster_id.map_or_else(|| ClusterId::from(&name), |id| id.0),
            name,
            labels,
            tenant: self.tenant.0,
            zone: self.zone.0,
            location: Location {
                region: self.location.region.map(|region| region.0.0),
                provider: self.location.provider.map(|provider| provider.0.0),
                coordinates,
            },
            api_server: self.control_plane.kube_apiserver.into_model(),
            services: services
                .map(|service| ControlPlaneService {
                    name: service.name.0.0.into(),
                    sni: service.sni.0,
                    addresses: Text::list(&service.addresses),
                })
                .collect(),
            nodes,
            access,
            ingress: self.ingress.mode(),
            controller: self.ingress.into_model(),
            allowed_sources: Arc::from(Text::list(&self.allowed_sources)),
            proof: Arc::new(proof),
            limits: self.limits.into_model(),
            resolver: ResolverPart {
                dns: self.dns.map_or_else(ClusterDns::default, ClusterDnsSpec::into_model),
                namespace: self.control_plane.namespace.map(|namespace| namespace.0.0),
                place: status.resolver.and_then(ResolverStatus::into_model),
            },
            kept: status.kept.map(KeptStatus::into_model),
            // An annotation says so, not the spec.
            drained: None,
            hindrance,
            closed,
        })
    }
}

impl ClusterDnsSpec {
    fn into_model(self) -> ClusterDns {
        let (services, pods) = (Text::list(&self.service_cidrs), Text::list(&self.pod_cidrs));
        ClusterDns { domain: self.domain.0, server: self.server.0.0, services, pods }
    }
}

impl NodeSpec {
    fn into_model(self) -> Node {
        Node { name: self.name.0.0, addresses: Text::list(&self.addresses), ready: self.ready }
    }
}

impl UpstreamSpec {
    fn into_model(self) -> Upstream {
        match self.service {
            Some(service) => {
                Upstream::Service { namespace: service.namespace.0.0, name: service.name.0, port: service.port }
            }
            None => Upstream::Addresses(Text::list(&self.addresses)),
        }
    }
}
