//! The resources as plain values: what a manifest means once it has been read and checked.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::digest::Digest;
use crate::fact::{Since, Timestamp};
use crate::identity::{ClusterId, ClusterName, ObjectName, ObjectRef};
use crate::inside::Inside;
use crate::name::{DnsName, NameTemplate};
use crate::network::{Cidr, Location};
use crate::placement::Placements;
use crate::policy::{RecordClaim, Refused};
use crate::proof::Proof;
use crate::refusal::Refusal;
use crate::resolver::ResolverPart;
use crate::snapshot::KeptSet;
use crate::zone_file::ZoneFile;

/// A delegated DNS zone and how its clusters are named.
#[derive(Debug, Clone, PartialEq)]
pub struct Zone {
    pub name: ObjectName,
    pub domain: DnsName,
    pub nameservers: Vec<Nameserver>,
    pub ttl: u32,
    pub api: NameTemplate,
    pub apps: NameTemplate,
    /// Whoever reads it from a hub fills in the gateway's own load balancer where none is given.
    pub gateway: Option<FrontDoor>,
    /// The operator's own records, read for this very domain.
    pub zone_file: Option<Arc<ZoneFile>>,
    /// Whether we answer for the zone ourselves.
    pub authoritative: bool,
    /// Whether its clusters' records are handed to others, as `DNSEndpoint` objects.
    pub hand_out: bool,
    /// How long the last addresses of a cluster stay when no node is ready any more.
    pub grace: Duration,
    /// The share of names above which withdrawals are held.
    pub max_share: f64,
    /// Until when whatever was held has been let go by somebody.
    pub released: Option<Timestamp>,
    /// Why it cannot be served, known to whoever read it.
    pub hindrance: Option<Refusal>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nameserver {
    pub name: DnsName,
    pub addresses: Vec<IpAddr>,
}

/// What the `api` names of a zone point at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrontDoor {
    Addresses(Vec<IpAddr>),
    Hostname(DnsName),
}

/// Who owns clusters; untrusted.
#[derive(Debug, Clone, PartialEq)]
pub struct Tenant {
    pub name: ObjectName,
    /// Where its namespaced objects live.
    pub namespace: ObjectName,
    pub domains: Vec<DnsName>,
    pub allowed_targets: Vec<Cidr>,
    /// The suffixes outside the fleet that its aliases may lead to; any if there is no list.
    pub allowed_names: Option<Vec<DnsName>>,
    pub quota: Quota,
    pub limits: Limits,
    /// Until when whatever was held of it has been let go by somebody.
    pub released: Option<Timestamp>,
}

/// `None` is no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quota {
    pub clusters: Option<u32>,
    pub records: Option<u32>,
    pub addresses: Option<u32>,
}

/// `None` is no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    pub connections: Option<u32>,
    pub new_connections_per_second: Option<u32>,
}

/// A tenant cluster whose control plane lives on the hub.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    pub name: ClusterName,
    pub labels: BTreeMap<String, String>,
    pub tenant: ObjectName,
    pub zone: ObjectName,
    pub id: ClusterId,
    pub location: Location,
    pub api_server: Upstream,
    pub services: Vec<ControlPlaneService>,
    pub nodes: Arc<[Node]>,
    /// Where it is there, `nodes` are those that somebody saw.
    pub access: Option<Access>,
    pub ingress: IngressMode,
    pub controller: IngressController,
    pub allowed_sources: Arc<[Cidr]>,
    pub proof: Arc<Proof>,
    pub limits: Limits,
    /// What the control planes' resolver knows of it.
    pub resolver: ResolverPart,
    /// What whoever plans for the others has kept while no node is ready; it counts where the last addresses are not
    /// known first-hand.
    pub kept: Option<KeptSet>,
    /// Since when somebody wants no federated traffic to be sent there.
    pub drained: Option<Timestamp>,
    /// Why it cannot be served, known to whoever read it.
    pub hindrance: Option<Refusal>,
    /// Why nobody can be let through to it, while its names stand: names do not follow from what only the doors may see.
    pub closed: Option<Refusal>,
}

impl Cluster {
    /// Puts the endpoints of the Service in its place. None at all closes the door: somebody who once knew one keeps it.
    pub fn resolve(&mut self, endpoints: Vec<SocketAddr>) {
        let Upstream::Service { namespace, name, port } = &self.api_server else { return };
        if endpoints.is_empty() {
            let service = format!("{namespace}/{name}:{port}");
            self.closed.get_or_insert(Refusal::NoEndpoints { service });
        }
        self.api_server = Upstream::Addresses(endpoints);
    }
}

/// A kubeconfig with which a cluster's nodes are watched, and federated Ingresses kept there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Where the Secret that holds it is.
    pub namespace: ObjectName,
    /// The name of the Secret.
    pub name: ObjectName,
    /// Whether whoever watches gets through; `None` before the first attempt. Its condition `Reachable` says so, which
    /// is never the plan's to write.
    pub reachable: Option<bool>,
    /// What became of the Ingresses that are to be there.
    pub placements: Arc<Placements>,
}

/// What a `DNSEndpoint` asks for, endpoint by endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordClaims {
    /// The cluster for which an agent asks; else the whole tenant does.
    pub cluster: Option<ClusterName>,
    /// Of the endpoints as they were written.
    pub digest: Digest,
    pub endpoints: Vec<Endpoint>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// As it was written, for those who are told about it: name and type.
    pub part: Arc<str>,
    /// Since when it has been asked for; `None` is as long as the object is there.
    pub since: Option<Timestamp>,
    /// Refused right here if it cannot be read.
    pub claim: Result<RecordClaim, Refused>,
}

/// What a `DNSEndpoint` asked for and does not any more, and what is served on until somebody lets it go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldClaims {
    pub object: ObjectRef,
    pub tenant: ObjectName,
    /// Since when the object was there.
    pub since: Since,
    pub held_since: Timestamp,
    /// The cluster for which an agent asked.
    pub cluster: Option<ClusterName>,
    /// Of which all could be read.
    pub endpoints: Vec<Endpoint>,
}

impl HeldClaims {
    /// The names that it has, each once.
    pub fn names(&self) -> BTreeSet<&DnsName> {
        self.endpoints.iter().filter_map(|endpoint| Some(&endpoint.claim.as_ref().ok()?.name)).collect()
    }
}

/// What rests after its tenant gave it up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    Name(DnsName),
    /// A cluster's.
    Subtree(DnsName),
}

/// Nobody but the tenant that had it, or the very cluster, can have it before then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resting {
    pub tenant: ObjectName,
    /// The UID of the cluster that had a subtree.
    pub cluster: Option<Arc<str>>,
    pub until: Timestamp,
}

impl Resting {
    /// Whether a tenant's cluster cannot have the subtree.
    pub(crate) fn keeps_out(&self, tenant: &ObjectName, uid: &str) -> bool {
        self.tenant != *tenant && self.cluster.as_deref() != Some(uid)
    }
}

/// Where a part of a control plane listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upstream {
    Addresses(Vec<SocketAddr>),
    /// A Service on the hub; a folder has none.
    Service {
        namespace: ObjectName,
        name: ObjectName,
        port: u16,
    },
}

/// A control-plane service beside the API server, reached by its own server name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlPlaneService {
    pub name: Arc<str>,
    pub sni: DnsName,
    pub addresses: Vec<SocketAddr>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub addresses: Vec<IpAddr>,
    pub ready: bool,
}

/// The ingress controller inside a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IngressController {
    /// The class of the Ingresses that it serves.
    pub class: Option<Arc<str>>,
    /// Where it takes plain HTTP.
    pub http: Vec<SocketAddr>,
    /// Where it takes HTTPS.
    pub https: Vec<SocketAddr>,
    /// Where it is inside the cluster, of one that is reached through the tunnel; it has no addresses outside then.
    pub inside: Arc<Inside>,
}

/// What the `apps` name of a cluster points at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IngressMode {
    #[default]
    Nodes,
    Hub,
}
