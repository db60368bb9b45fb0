//! What we say of our own objects, in the form of Kubernetes' status.

use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use model::identity::Kind;
use model::reach::Reach;
use model::resolver::ResolverPlace;
use model::resource::{Endpoint, HeldClaims, Node, Place, Resting};
use model::snapshot::{Detail, EntryPoint, KeptSet, ReverseZone, Status};
use model::{ClusterName, DnsName, ObjectName, ObjectRef, Since};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounded::List;
use crate::dns_endpoint::EndpointSpec;
use crate::placed::{MOST_PLACED, PlacedStatus};
use crate::text::{Moment, Text};
use crate::verdict::{self, PartVerdict};

/// The state of a Cluster that is not accepted.
const REFUSED: &str = "Refused";
/// Objects and record sets that are held: an object of a hub holds 1.5 MiB.
const MOST_HELD: usize = 1000;
/// Of the values of what is held.
const MOST_HELD_OCTETS: usize = 512 << 10;

/// What Fleetgate says of the object.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectStatus {
    /// Whether it is accepted, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// What Fleetgate says of the tenant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantStatus {
    /// Whether it is accepted, and whether names of its are held that would go in a mass (`WithdrawalsHeld`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// What is held, so that a process that starts anew holds it on; as much as there is room for.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub held: List<HeldStatus, MOST_HELD>,
    /// What the tenant had until just now: nobody else can have it yet, as caches still know it.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub resting: List<RestingStatus, 1000>,
}

/// A name that rests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestingStatus {
    /// The name that nobody else can have yet.
    pub name: Text<DnsName>,
    /// Where it is the subtree of a Cluster: the UID of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_uid: Option<String>,
    /// Until when.
    pub until: Text<Moment>,
}

impl RestingStatus {
    fn of((place, resting): &(Place, Resting)) -> Self {
        let (Place::Name(name) | Place::Subtree(name)) = place;
        let cluster_uid = resting.cluster.as_ref().map(ToString::to_string);
        Self { name: Text(name.clone()), cluster_uid, until: Text(Moment(resting.until)) }
    }

    pub(crate) fn into_model(self, tenant: &ObjectName) -> (Place, Resting) {
        let (name, cluster) = (self.name.0, self.cluster_uid.map(Into::into));
        let place = if cluster.is_some() { Place::Subtree(name) } else { Place::Name(name) };
        (place, Resting { tenant: tenant.clone(), cluster, until: self.until.0.0 })
    }
}

/// What is held of a `DNSEndpoint`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldStatus {
    /// The namespace of the object.
    pub namespace: Text<ObjectName>,
    /// The name of the object.
    pub name: Text<ObjectName>,
    /// The UID that it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Since when it was there.
    pub since: Text<Moment>,
    /// Since when this is held.
    pub held_since: Text<Moment>,
    /// The cluster for which an agent asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Text<ClusterName>>,
    /// What is served on.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub endpoints: List<HeldEndpoint, MOST_HELD>,
}

/// One record set that is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldEndpoint {
    /// The name of the records.
    pub dns_name: String,
    /// Their type, such as `A`.
    pub record_type: String,
    /// Their values.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub targets: List<String, 64>,
    /// Their TTL, where one was asked for.
    #[serde(default, rename = "recordTTL", skip_serializing_if = "Option::is_none")]
    pub record_ttl: Option<u32>,
    /// Since when it was asked for, where that is later than the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Text<Moment>>,
}

impl HeldStatus {
    /// The oldest, as many as there is room for.
    fn list(held: &[HeldClaims]) -> List<Self, MOST_HELD> {
        let (mut endpoints, mut octets) = (0, 0);
        let has_room = |held: &Self| {
            let targets = held.endpoints.iter().flat_map(|endpoint| endpoint.targets.iter());
            octets += targets.map(String::len).sum::<usize>();
            endpoints += held.endpoints.len();
            endpoints <= MOST_HELD && octets <= MOST_HELD_OCTETS
        };
        List(held.iter().filter_map(Self::of).take_while(has_room).collect())
    }

    fn of(claims: &HeldClaims) -> Option<Self> {
        let endpoint = |endpoint: &Endpoint| {
            let spec = EndpointSpec::from(endpoint.claim.as_ref().ok()?);
            Some(HeldEndpoint {
                dns_name: spec.dns_name,
                record_type: spec.record_type,
                targets: List(spec.targets),
                record_ttl: u32::try_from(spec.record_ttl).ok().filter(|ttl| *ttl != 0),
                since: endpoint.since.map(|since| Text(Moment(since))),
            })
        };
        Some(Self {
            namespace: Text(claims.object.namespace.clone()?),
            name: Text(claims.object.name.clone()),
            uid: claims.since.tie.as_ref().map(ToString::to_string),
            since: Text(Moment(claims.since.moment)),
            held_since: Text(Moment(claims.held_since)),
            cluster: claims.cluster.clone().map(Text),
            endpoints: List(claims.endpoints.iter().filter_map(endpoint).collect()),
        })
    }

    pub(crate) fn into_model(self, tenant: &ObjectName) -> HeldClaims {
        let endpoint = |held: HeldEndpoint| {
            let spec = EndpointSpec {
                dns_name: held.dns_name,
                record_type: held.record_type,
                targets: held.targets.0,
                record_ttl: held.record_ttl.unwrap_or_default().into(),
                ..EndpointSpec::default()
            };
            Endpoint { since: held.since.map(|since| since.0.0), ..spec.to_model() }
        };
        HeldClaims {
            object: ObjectRef { kind: Kind::DnsEndpoint, namespace: Some(self.namespace.0), name: self.name.0 },
            tenant: tenant.clone(),
            since: Since { moment: self.since.0.0, tie: self.uid.map(Into::into) },
            held_since: self.held_since.0.0,
            cluster: self.cluster.map(|cluster| cluster.0),
            endpoints: self.endpoints.0.into_iter().map(endpoint).filter(|at| at.claim.is_ok()).collect(),
        }
    }
}

/// What Fleetgate says of the zone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ZoneStatus {
    /// Whether it is accepted, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The serial under which all name servers serve what has the digest. Only the leader writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<u32>,
    /// Of everything in the zone but the serial: what has the same digest has the same records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// What Fleetgate says of the cluster, and what it saw of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Whether it is `Accepted` and `Published`, has `NodesReady` and, where `spec.access` is set, is `Reachable` and has
    /// federated Ingresses as they should be (`IngressesPlaced`); and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The name under which the API server is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_name: Option<String>,
    /// The wildcard under which the applications are reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apps_name: Option<String>,
    /// How many of its nodes are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_nodes: Option<u32>,
    /// What the conditions come to, in one word: `Ready`, `NoReadyNodes`, `NotPublished`, `Pending` (nobody has seen its
    /// nodes yet), `Unreachable` (its nodes are those last seen) or `Refused`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Where `spec.access` is set: its nodes as they were last seen. They count instead of `spec.nodes`.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub nodes: List<NodeStatus, 5000>,
    /// Where `spec.access` is set: the federated Ingresses that are to be in the cluster, as they were last seen there.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub ingresses: List<PlacedStatus, MOST_PLACED>,
    /// There are more of them than fit here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more_ingresses: bool,
    /// While no node is ready: the last addresses of the `apps` name, which stay for the Zone's grace time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptStatus>,
    /// Where its control plane meets the resolver: what `dnsConfig` of its pods has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolver: Option<ResolverStatus>,
}

impl ClusterStatus {
    /// The condition of whoever watches the nodes.
    pub const REACHABLE: &'static str = "Reachable";
    /// The condition of whoever keeps federated Ingresses there.
    pub const INGRESSES_PLACED: &'static str = "IngressesPlaced";

    /// `None` where nobody knows.
    pub(crate) fn is_reachable(&self) -> Option<bool> {
        let condition = self.conditions.iter().find(|condition| condition.type_ == Self::REACHABLE)?;
        match condition.status.as_str() {
            "True" => Some(true),
            "False" => Some(false),
            _ => None,
        }
    }
}

/// One node, as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// The name of the node.
    pub name: String,
    /// The addresses at which it takes traffic, IPv4 and IPv6.
    #[serde(default, skip_serializing_if = "List::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub addresses: List<Text<IpAddr>, 8>,
    /// Whether it is ready, and neither cordoned nor terminating.
    pub ready: bool,
}

/// Where a cluster's control plane meets the resolver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResolverStatus {
    /// The resolver's port that is this cluster's own: whoever asks there is answered as its control plane.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// The name server for its pods: an address whose port 53 leads to the port above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Text<IpAddr>>,
}

impl ResolverStatus {
    pub(crate) fn into_model(self) -> Option<ResolverPlace> {
        (self.port != 0).then_some(ResolverPlace { port: self.port, address: self.address.map(|address| address.0) })
    }
}

impl From<ResolverPlace> for ResolverStatus {
    fn from(ResolverPlace { port, address }: ResolverPlace) -> Self {
        Self { port, address: address.map(Text) }
    }
}

/// Addresses that stay although no node is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeptStatus {
    /// The name that they stand under.
    pub name: Text<DnsName>,
    /// The addresses that stay.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub addresses: List<Text<IpAddr>, 40000>,
    /// When they go.
    pub until: Text<Moment>,
}

impl NodeStatus {
    pub fn into_model(self) -> Node {
        Node { name: self.name, addresses: Text::list(&self.addresses), ready: self.ready }
    }
}

impl KeptStatus {
    pub(crate) fn into_model(self) -> KeptSet {
        KeptSet { name: self.name.0, addresses: Text::list(&self.addresses), until: self.until.0.0 }
    }
}

impl From<&KeptSet> for KeptStatus {
    fn from(kept: &KeptSet) -> Self {
        let addresses = kept.addresses.iter().copied().map(Text).collect();
        Self { name: Text(kept.name.clone()), addresses: List(addresses), until: Text(Moment(kept.until)) }
    }
}

/// What Fleetgate says of the pool, and how much of it is left.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressPoolStatus {
    /// Whether it is `Accepted`, and whether its reverse zones are served (`ReverseServed`); and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// How many of its addresses have been given to claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<u32>,
    /// How many of its addresses rest until they can be given again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resting: Option<u32>,
    /// How many IPv4 addresses are free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "freeIPv4")]
    pub free_ipv4: Option<u32>,
    /// How many IPv6 addresses are free; 4294967295 stands for as many or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "freeIPv6")]
    pub free_ipv6: Option<u32>,
    /// The reverse zones that are to be delegated to the name servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"), length(max = 256))]
    pub reverse_zones: Vec<ReverseZoneStatus>,
}

/// One reverse zone of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReverseZoneStatus {
    /// Its apex.
    pub zone: String,
    /// The serial under which all name servers serve what has the digest. Only the leader writes it.
    pub serial: u32,
    /// Of everything in the zone but the serial: what has the same digest has the same records.
    pub digest: String,
}

/// What became of the claim.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressClaimStatus {
    /// Whether it is `Accepted`, has an address (`Allocated`) and the PTR record that it asks for (`PtrPublished`); and why
    /// not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The address that was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The name that the address resolves to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ptr: Option<String>,
}

/// What became of a `DNSEndpoint`'s endpoints.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordsStatus {
    /// Whether it is accepted, and why not.
    conditions: Vec<Condition>,
    /// One by one.
    parts: Vec<PartVerdict>,
}

/// What became of an Ingress' paths, certificates and members.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IngressStatus {
    /// Whether it is accepted, and why not.
    conditions: Vec<Condition>,
    /// The clusters that serve it.
    members: Vec<String>,
    /// Hosts and paths, certificates, and members, one by one.
    parts: Vec<PartVerdict>,
    /// Where clients meet it.
    load_balancer: LoadBalancerStatus,
}

/// What stands in the status of an Ingress itself: where clients meet it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressEntry {
    #[serde(skip_serializing_if = "LoadBalancerStatus::is_empty")]
    pub load_balancer: LoadBalancerStatus,
    /// An Ingress has none.
    #[serde(skip)]
    pub conditions: Vec<Condition>,
}

/// Where clients meet an Ingress.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LoadBalancerStatus {
    /// Point by point.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ingress: Vec<EntryPointStatus>,
}

/// One point at which clients meet an Ingress.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EntryPointStatus {
    /// An address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// Or a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
}

impl LoadBalancerStatus {
    fn is_empty(&self) -> bool {
        self.ingress.is_empty()
    }

    /// One that Kubernetes would not take keeps no other from being told.
    fn of(points: &[EntryPoint]) -> Self {
        let point = |point: &EntryPoint| match point {
            EntryPoint::Address(address) => {
                let is_usable = !matches!(Reach::of(*address), Reach::Unspecified | Reach::Multicast);
                is_usable.then(|| EntryPointStatus { ip: Some(address.to_string()), hostname: None })
            }
            EntryPoint::Name(name) => {
                let hostname = name.to_string().parse::<ObjectName>().ok()?.to_string();
                Some(EntryPointStatus { ip: None, hostname: Some(hostname) })
            }
        };
        Self { ingress: points.iter().filter_map(point).collect() }
    }
}

/// What the plan says of an object of this kind, as it stands in the object; what others say there is not its to write.
pub fn to_json(kind: Kind, status: &Status) -> serde_json::Value {
    let conditions: Vec<Condition> = status.conditions.iter().map(|told| condition(told, status.generation)).collect();
    let written = match (kind, &status.detail) {
        (_, Detail::Zone { serial, digest }) => {
            serde_json::to_value(ZoneStatus { conditions, serial: Some(*serial), digest: Some(digest.to_string()) })
        }
        (_, Detail::Cluster { api_name, apps_name, ready_nodes, state, kept, resolver }) => {
            let state = if status.refusal().is_some() { REFUSED } else { state };
            serde_json::to_value(ClusterStatus {
                conditions,
                api_name: Some(api_name.to_string()),
                apps_name: Some(apps_name.to_string()),
                ready_nodes: Some(u32::try_from(*ready_nodes).unwrap_or(u32::MAX)),
                state: Some(state.into()),
                kept: kept.as_ref().map(KeptStatus::from),
                resolver: resolver.map(ResolverStatus::from),
                nodes: List::default(),
                ingresses: List::default(),
                more_ingresses: false,
            })
        }
        (Kind::Cluster, Detail::None) => {
            serde_json::to_value(ClusterStatus { conditions, state: Some(REFUSED.into()), ..ClusterStatus::default() })
        }
        (_, Detail::AddressPool { given, resting, free_v4, free_v6, zones }) => {
            let zone = |zone: &ReverseZone| ReverseZoneStatus {
                zone: zone.apex.to_string(),
                serial: zone.serial,
                digest: zone.digest.to_string(),
            };
            serde_json::to_value(AddressPoolStatus {
                conditions,
                given: Some(u32::try_from(*given).unwrap_or(u32::MAX)),
                resting: Some(u32::try_from(*resting).unwrap_or(u32::MAX)),
                free_ipv4: Some(u32::try_from(*free_v4).unwrap_or(u32::MAX)),
                free_ipv6: Some(u32::try_from(*free_v6).unwrap_or(u32::MAX)),
                reverse_zones: zones.iter().map(zone).collect(),
            })
        }
        (_, Detail::AddressClaim { address, name }) => serde_json::to_value(AddressClaimStatus {
            conditions,
            address: address.map(|address| address.to_string()),
            ptr: name.as_ref().map(ToString::to_string),
        }),
        // Only shown by `get`: on a hub it goes into a Verdict, as a DNSEndpoint has no room for it.
        (_, Detail::Records { .. }) => {
            serde_json::to_value(RecordsStatus { conditions, parts: verdict::parts(status) })
        }
        (_, Detail::Ingress { members, entry_points, .. }) => {
            let members = members.iter().map(ToString::to_string).collect();
            let load_balancer = LoadBalancerStatus::of(entry_points);
            serde_json::to_value(IngressStatus { conditions, members, parts: verdict::parts(status), load_balancer })
        }
        (_, Detail::Tenant { held, resting }) => {
            let resting = List(resting.iter().map(RestingStatus::of).collect());
            serde_json::to_value(TenantStatus { conditions, held: HeldStatus::list(held), resting })
        }
        (_, Detail::None) => serde_json::to_value(ObjectStatus { conditions }),
    };
    written.expect("a status is made of texts and numbers")
}

fn condition(condition: &model::snapshot::Condition, generation: Option<i64>) -> Condition {
    let seconds = i64::try_from(condition.since.as_unix().as_secs()).unwrap_or(i64::MAX);
    Condition {
        type_: condition.kind.into(),
        status: if condition.holds { "True" } else { "False" }.into(),
        reason: condition.reason.into(),
        message: condition.message.clone(),
        last_transition_time: Time(Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)),
        observed_generation: generation,
    }
}
