//! The Service and the `EndpointSlice`s of one Cluster: what they are to be, and what of those on the hub is looked at. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use model::identity::Kind;
use model::{ClusterName, ObjectName};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::apply::{MANAGED_BY, MANAGER};

/// On everything that is made: whose it is. What has it, and [`MANAGED_BY`], is ours.
pub const CLUSTER_LABEL: &str = "fleetgate.dev/resolver";
const PREFIX: &str = "fleetgate-resolver-";
/// The name of a Service is a DNS label.
const LONGEST_NAME: usize = 63;
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Kubernetes' own controllers leave slices alone that name another one here.
const SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const SLICE_MANAGER: &str = "fleetgate.dev";
/// Ports by their names, which is how a Service and its slices find each other; the number is the Service's.
const PORTS: [(&str, &str, i32); 2] = [("dns", "UDP", 53), ("dns-tcp", "TCP", 53)];
/// Pods of one family that are named in a slice; Kubernetes itself names no more. Nobody runs as many resolvers.
pub(super) const MOST_PODS: usize = 100;

/// Where something is: its namespace and its name.
pub(super) type Place = (String, String);

/// What is wanted for one Cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted<'a> {
    pub(super) cluster: &'a ClusterName,
    pub(super) uid: &'a str,
    pub(super) namespace: &'a ObjectName,
    pub(super) port: u16,
}

/// The resolver's pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pods(BTreeSet<IpAddr>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    V4,
    V6,
}

/// A Service of ours, as it is on the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeenService {
    pub(super) version: String,
    pub(super) uid: String,
    pub(super) address: Option<IpAddr>,
    /// All that we have a word in.
    said: Said,
}

/// An `EndpointSlice` of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeenSlice {
    pub(super) version: String,
    pub(super) uid: String,
    said: Said,
}

/// What of an object is ours, in a form that can be compared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Said {
    labels: BTreeMap<String, String>,
    owner: Option<String>,
    /// Type and selector of a Service; the family of a slice.
    kind: String,
    selects: bool,
    /// Name, protocol, port, target.
    ports: Vec<(String, String, i32, i32)>,
    addresses: Vec<String>,
}

impl Family {
    pub(super) const ALL: [Self; 2] = [Self::V4, Self::V6];

    fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

impl Pods {
    /// Those that are ready; where none is, those that still serve.
    pub(super) fn of<'a>(slices: &(impl Iterator<Item = &'a EndpointSlice> + Clone)) -> Self {
        let with = |is: fn(&k8s_openapi::api::discovery::v1::EndpointConditions) -> bool| {
            let endpoints = slices.clone().flat_map(|slice| slice.endpoints.iter().flatten());
            let endpoints = endpoints.filter(|endpoint| endpoint.conditions.as_ref().is_none_or(is));
            // Of one pod the first counts: all of them are the same.
            endpoints.filter_map(|endpoint| endpoint.addresses.first()?.parse().ok()).collect::<BTreeSet<IpAddr>>()
        };
        let ready = with(|conditions| conditions.ready.unwrap_or(true));
        if ready.is_empty() { Self(with(|conditions| conditions.serving.unwrap_or(false))) } else { Self(ready) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    fn of_family(&self, family: Family) -> impl Iterator<Item = &IpAddr> {
        self.0.iter().filter(move |address| Family::of(**address) == family).take(MOST_PODS)
    }

    pub(super) fn has(&self, family: Family) -> bool {
        self.of_family(family).next().is_some()
    }
}

impl Wanted<'_> {
    pub(super) fn service_place(&self) -> Place {
        (self.namespace.as_str().to_owned(), name(self.cluster))
    }

    pub(super) fn slice_place(&self, family: Family) -> Place {
        (self.namespace.as_str().to_owned(), format!("{}-{}", name(self.cluster), family.as_str().to_lowercase()))
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let labels = [(MANAGED_BY, MANAGER), (CLUSTER_LABEL, self.cluster.as_str())];
        labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    fn slice_labels(&self) -> BTreeMap<String, String> {
        let more = [(SERVICE_NAME.to_owned(), name(self.cluster)), (SLICE_MANAGED_BY.into(), SLICE_MANAGER.into())];
        self.labels().into_iter().chain(more).collect()
    }

    fn metadata(&self, place: &Place, labels: &BTreeMap<String, String>, version: Option<&str>) -> Value {
        let mut metadata = json!({
            "name": place.1,
            "namespace": place.0,
            "labels": labels,
            // Where a garbage collector runs, it goes with its Cluster even while nobody of us does.
            "ownerReferences": [{
                "apiVersion": Kind::Cluster.api_version(), "kind": Kind::Cluster.as_str(),
                "name": self.cluster.as_str(), "uid": self.uid,
            }],
        });
        if let Some(version) = version {
            metadata["resourceVersion"] = version.into();
        }
        metadata
    }

    /// A whole one, or what a patch makes of the one that has this version.
    pub(super) fn service(&self, version: Option<&str>) -> Value {
        let ports = PORTS.map(|(name, protocol, port)| {
            json!({ "name": name, "protocol": protocol, "port": port, "targetPort": self.port })
        });
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self.metadata(&self.service_place(), &self.labels(), version),
            // With a selector, other pods would be asked.
            "spec": { "type": "ClusterIP", "selector": null, "ports": ports },
        })
    }

    pub(super) fn slice(&self, family: Family, pods: &Pods, version: Option<&str>) -> Value {
        let ports = PORTS.map(|(name, protocol, _)| json!({ "name": name, "protocol": protocol, "port": self.port }));
        let endpoints = pods.of_family(family);
        let endpoints = endpoints
            .map(|address| json!({ "addresses": [address], "conditions": { "ready": true, "serving": true } }));
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": self.metadata(&self.slice_place(family), &self.slice_labels(), version),
            "addressType": family.as_str(),
            "ports": ports,
            "endpoints": endpoints.collect::<Vec<_>>(),
        })
    }

    pub(super) fn is_service(&self, seen: &SeenService) -> bool {
        let ports = PORTS.map(|(name, protocol, port)| (name.into(), protocol.into(), port, i32::from(self.port)));
        let said = Said {
            labels: self.labels(),
            owner: Some(self.uid.to_owned()),
            kind: "ClusterIP".into(),
            selects: false,
            ports: ports.into(),
            addresses: Vec::new(),
        };
        seen.said == said
    }

    pub(super) fn is_slice(&self, family: Family, pods: &Pods, seen: &SeenSlice) -> bool {
        let port = i32::from(self.port);
        let said = Said {
            labels: self.slice_labels(),
            owner: Some(self.uid.to_owned()),
            kind: family.as_str().into(),
            selects: false,
            ports: PORTS.map(|(name, protocol, _)| (name.into(), protocol.into(), port, port)).into(),
            addresses: pods.of_family(family).map(ToString::to_string).collect(),
        };
        seen.said == said
    }
}

impl SeenService {
    /// With the cluster that it says it is for. `None` if it is none of ours.
    pub(super) fn read(service: &Service) -> Option<(ClusterName, Place, Self)> {
        let meta = &service.metadata;
        let (cluster, place) = whose(meta)?;
        let spec = service.spec.clone().unwrap_or_default();
        let port = |port: &k8s_openapi::api::core::v1::ServicePort| {
            let target = match &port.target_port {
                Some(IntOrString::Int(target)) => *target,
                Some(IntOrString::String(_)) => -1,
                None => port.port,
            };
            (port.name.clone().unwrap_or_default(), port.protocol.clone().unwrap_or_default(), port.port, target)
        };
        let said = Said {
            labels: labels(meta, &[MANAGED_BY, CLUSTER_LABEL]),
            owner: owner(meta),
            kind: spec.type_.clone().unwrap_or_default(),
            selects: spec.selector.is_some_and(|selector| !selector.is_empty()),
            ports: spec.ports.iter().flatten().map(port).collect(),
            addresses: Vec::new(),
        };
        let address = spec.cluster_ip.and_then(|address| address.parse().ok());
        let (version, uid) = (meta.resource_version.clone()?, meta.uid.clone()?);
        Some((cluster, place, Self { version, uid, address, said }))
    }
}

impl SeenSlice {
    pub(super) fn read(slice: &EndpointSlice) -> Option<(ClusterName, Place, Self)> {
        let meta = &slice.metadata;
        let (cluster, place) = whose(meta)?;
        let port = |port: &k8s_openapi::api::discovery::v1::EndpointPort| {
            let number = port.port.unwrap_or_default();
            (port.name.clone().unwrap_or_default(), port.protocol.clone().unwrap_or_default(), number, number)
        };
        let endpoints = slice.endpoints.iter().flatten();
        let is_ready = |endpoint: &&k8s_openapi::api::discovery::v1::Endpoint| {
            endpoint.conditions.as_ref().is_some_and(|conditions| conditions.ready == Some(true))
        };
        let said = Said {
            labels: labels(meta, &[MANAGED_BY, CLUSTER_LABEL, SERVICE_NAME, SLICE_MANAGED_BY]),
            owner: owner(meta),
            kind: slice.address_type.clone(),
            selects: false,
            ports: slice.ports.iter().flatten().map(port).collect(),
            addresses: endpoints.filter(is_ready).flat_map(|endpoint| endpoint.addresses.clone()).collect(),
        };
        let (version, uid) = (meta.resource_version.clone()?, meta.uid.clone()?);
        Some((cluster, place, Self { version, uid, said }))
    }
}

/// What a Cluster's Service is called: as the Cluster, where that fits, and otherwise cut with a digest at its end.
fn name(cluster: &ClusterName) -> String {
    let whole = format!("{PREFIX}{cluster}");
    if whole.len() <= LONGEST_NAME {
        return whole;
    }
    let digest = digest(&SHA256, cluster.as_str().as_bytes());
    let digest = digest.as_ref().iter().take(6).fold(0_u64, |number, octet| number << 8 | u64::from(*octet));
    // A label of DNS has no characters of several octets.
    let cut = whole[..LONGEST_NAME - 13].trim_end_matches('-');
    format!("{cut}-{digest:012x}")
}

pub(super) fn whose(meta: &ObjectMeta) -> Option<(ClusterName, Place)> {
    let labels = meta.labels.as_ref()?;
    labels.get(MANAGED_BY).filter(|manager| *manager == MANAGER)?;
    let cluster = labels.get(CLUSTER_LABEL)?.parse().ok()?;
    Some((cluster, (meta.namespace.clone()?, meta.name.clone()?)))
}

fn labels(meta: &ObjectMeta, ours: &[&str]) -> BTreeMap<String, String> {
    let labels = meta.labels.iter().flatten().filter(|(key, _)| ours.contains(&key.as_str()));
    labels.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn owner(meta: &ObjectMeta) -> Option<String> {
    let mut owners = meta.owner_references.iter().flatten();
    owners.find(|owner| owner.kind == Kind::Cluster.as_str()).map(|owner| owner.uid.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(body: Value, change: impl FnOnce(&mut Value)) -> Option<SeenService> {
        let mut body = body;
        body["metadata"]["uid"] = "s1".into();
        body["metadata"]["resourceVersion"] = "7".into();
        body["spec"]["clusterIP"] = "10.96.0.7".into();
        change(&mut body);
        Some(SeenService::read(&serde_json::from_value(body).unwrap())?.2)
    }

    fn slice(body: Value, change: impl FnOnce(&mut Value)) -> Option<SeenSlice> {
        let mut body = body;
        body["metadata"]["uid"] = "s2".into();
        body["metadata"]["resourceVersion"] = "7".into();
        change(&mut body);
        Some(SeenSlice::read(&serde_json::from_value(body).unwrap())?.2)
    }

    fn pods(addresses: &[&str]) -> Pods {
        Pods(addresses.iter().map(|address| address.parse().unwrap()).collect())
    }

    #[test]
    fn what_is_made_is_right_and_what_somebody_changed_is_not() {
        let (cluster, namespace) = ("c1".parse().unwrap(), "cluster-c1".parse().unwrap());
        let wanted = Wanted { cluster: &cluster, uid: "u1", namespace: &namespace, port: 5401 };
        let made = service(wanted.service(None), |_| {}).unwrap();
        assert!(wanted.is_service(&made));
        assert_eq!(made.address, Some([10, 96, 0, 7].into()));
        assert!(!Wanted { port: 5402, ..wanted.clone() }.is_service(&made));
        assert!(!Wanted { uid: "u2", ..wanted.clone() }.is_service(&made));
        let spoils: [fn(&mut Value); 5] = [
            |body| body["spec"]["selector"] = json!({ "app": "evil" }),
            |body| body["spec"]["type"] = "LoadBalancer".into(),
            |body| body["spec"]["ports"][0]["targetPort"] = "dns".into(),
            |body| _ = body["spec"]["ports"].as_array_mut().unwrap().pop(),
            |body| _ = body["metadata"].as_object_mut().unwrap().remove("ownerReferences"),
        ];
        for spoil in spoils {
            assert!(!wanted.is_service(&service(wanted.service(None), spoil).unwrap()));
        }
        // What others add is theirs.
        let more = service(wanted.service(None), |body| body["metadata"]["labels"]["team"] = "a".into());
        assert!(wanted.is_service(&more.unwrap()));
        assert!(service(wanted.service(None), |body| body["metadata"]["labels"] = json!({})).is_none());

        let two = pods(&["10.1.0.2", "10.1.0.1", "2001:db8::1"]);
        let made = slice(wanted.slice(Family::V4, &two, None), |_| {}).unwrap();
        assert!(wanted.is_slice(Family::V4, &two, &made) && !wanted.is_slice(Family::V6, &two, &made));
        assert!(!wanted.is_slice(Family::V4, &pods(&["10.1.0.2"]), &made));
        let spoils: [fn(&mut Value); 3] = [
            |body| body["endpoints"][0]["addresses"][0] = "10.9.9.9".into(),
            |body| body["ports"][0]["port"] = 53.into(),
            |body| body["metadata"]["labels"][SERVICE_NAME] = "other".into(),
        ];
        for spoil in spoils {
            let wrong = slice(wanted.slice(Family::V4, &two, None), spoil).unwrap();
            assert!(!wanted.is_slice(Family::V4, &two, &wrong));
        }
        assert!(two.has(Family::V6) && !pods(&["10.1.0.2"]).has(Family::V6));
    }

    #[test]
    fn names_are_labels_and_never_two_clusters() {
        let of = |text: &str| name(&text.parse().unwrap());
        assert_eq!(of("c1"), "fleetgate-resolver-c1");
        assert_eq!(of("7"), "fleetgate-resolver-7");
        let long = ["x".repeat(62) + "a", "x".repeat(62) + "b", "y-".repeat(31) + "z"];
        for cluster in &long {
            let name = of(cluster);
            assert!(name.len() <= LONGEST_NAME && model::identity::is_label(&name), "{name}");
        }
        assert_ne!(of(&long[0]), of(&long[1]));
    }

    #[test]
    fn pods_that_are_ready_are_taken_or_else_those_that_serve() {
        let slices = |endpoints: Value| -> Vec<EndpointSlice> {
            let slice = json!({ "metadata": {}, "addressType": "IPv4", "endpoints": endpoints });
            vec![serde_json::from_value(slice).unwrap()]
        };
        let endpoint = |address: &str, ready: Value, serving: Value| json!({ "addresses": [address], "conditions": { "ready": ready, "serving": serving } });
        for (endpoints, taken) in [
            (json!([]), &[][..]),
            (json!([{ "addresses": ["10.0.0.1"] }, { "addresses": ["no address"] }]), &["10.0.0.1"]),
            (
                json!([
                    endpoint("10.0.0.1", json!(true), json!(true)),
                    endpoint("10.0.0.2", json!(false), json!(true)),
                    endpoint("10.0.0.3", json!(null), json!(null)),
                ]),
                &["10.0.0.1", "10.0.0.3"],
            ),
            (
                json!([
                    endpoint("10.0.0.1", json!(false), json!(true)),
                    endpoint("10.0.0.2", json!(false), json!(false)),
                ]),
                &["10.0.0.1"],
            ),
        ] {
            assert_eq!(Pods::of(&slices(endpoints.clone()).iter()), pods(taken), "{endpoints}");
        }
    }
}
