//! What is kept of an object that the hub showed: as much as a plan can depend on, as text, so that an event that changes
//! nothing is known by comparing, and the last good state can be written to disk as it is.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::core::{DynamicObject, ObjectMeta};
use manifest::labels::{DRAINED, RELEASED};
use manifest::status::ClusterStatus;
use model::ingress::OVERRIDE;
use model::{ObjectName, ObjectRef, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::apply::{MANAGER, PUBLISH_NAMESPACE};
use crate::resolvers::slim;
use crate::resource::Resource;

/// Where an object stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub resource: Resource,
    pub namespace: Option<String>,
    pub name: String,
}

impl Key {
    pub(crate) fn new(resource: Resource, namespace: Option<&str>, name: &str) -> Self {
        Self { resource, namespace: namespace.map(str::to_owned), name: name.to_owned() }
    }

    /// The place of an object of the plan's; `None` for kinds that a hub has none of.
    pub fn of(object: &ObjectRef) -> Option<Self> {
        let resource = Resource::of(object.kind)?;
        Some(Self::new(resource, object.namespace.as_ref().map(ObjectName::as_str), object.name.as_str()))
    }

    /// As the plan knows it; `None` for what only says more about other objects, and for names that it has no use for.
    pub fn object(&self) -> Option<ObjectRef> {
        let namespace = self.namespace.as_deref().map(str::parse).transpose().ok()?;
        Some(ObjectRef { kind: self.resource.kind()?, namespace, name: self.name.parse().ok()? })
    }

    /// Whether we wrote it: what is planned does not depend on it.
    pub(crate) fn is_ours(&self) -> bool {
        match self.resource {
            Resource::Verdict => true,
            Resource::DnsEndpoint => self.namespace.as_deref() == Some(PUBLISH_NAMESPACE),
            _ => false,
        }
    }

    /// As [`Key`]'s text says it.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let resource = Resource::parse(parts.next()?)?;
        let (namespace, name) = match (parts.next()?, parts.next(), parts.next()) {
            (name, None, None) => (None, name),
            (namespace, Some(name), None) => (Some(namespace), name),
            _ => return None,
        };
        Some(Self::new(resource, namespace, name))
    }
}

/// When an object was created, from its text.
pub fn created(text: &str) -> Timestamp {
    let object: Value = serde_json::from_str(text).unwrap_or_default();
    creation(&object)
}

/// Whole seconds; the beginning of time for what does not say.
pub(crate) fn creation(object: &Value) -> Timestamp {
    let written = object["metadata"]["creationTimestamp"].as_str();
    let created: Option<k8s_openapi::jiff::Timestamp> = written.and_then(|text| text.parse().ok());
    let seconds = created.and_then(|created| u64::try_from(created.as_second()).ok());
    Timestamp::from_unix(Duration::from_secs(seconds.unwrap_or_default()))
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{}/{namespace}/{}", self.resource.as_str(), self.name),
            None => write!(f, "{}/{}", self.resource.as_str(), self.name),
        }
    }
}

/// One object as the hub showed it.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    pub key: Key,
    /// What a plan can depend on, as JSON.
    pub text: String,
    /// Who it is, what is wanted of it and what is said of it: for those who write back.
    pub meta: ObjectMeta,
    pub spec: Value,
    pub status: Value,
}

/// What a plan needs to know of a Service.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SlimService {
    pub(crate) ports: Vec<SlimPort>,
    /// Addresses and host names of its load balancer.
    pub(crate) addresses: Vec<String>,
    pub(crate) hostnames: Vec<String>,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SlimPort {
    pub(crate) name: String,
    pub(crate) port: u16,
}

/// What a plan needs to know of an `EndpointSlice`.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SlimSlice {
    pub(crate) service: String,
    pub(crate) ports: Vec<SlimPort>,
    pub(crate) ready: Vec<String>,
    /// The others: better than nothing where none is ready.
    pub(crate) unready: Vec<String>,
}

impl Seen {
    /// `None` for an object that the API should not have given us, or that nobody asks for.
    pub(crate) fn of(resource: Resource, object: DynamicObject) -> Option<Self> {
        let DynamicObject { mut metadata, mut data, .. } = object;
        let managed_fields = metadata.managed_fields.take();
        if resource == Resource::Ingress {
            // Its status is everybody's: whether something in it is ours stands here alone.
            metadata.managed_fields = managed_fields.map(|fields| fields.into_iter().filter(is_our_status).collect());
        }
        let key = Key { resource, namespace: metadata.namespace.clone(), name: metadata.name.clone()? };
        let status = data.get_mut("status").map(Value::take).unwrap_or_default();
        if key.is_ours() {
            let spec = data.get_mut("spec").map(Value::take).unwrap_or_default();
            return Some(Self { key, text: String::new(), meta: metadata, spec, status });
        }
        // What we wrote, or copy, and what is planned depends on all the same.
        let spec = match resource {
            Resource::Address | Resource::Ingress => data.get("spec").cloned().unwrap_or_default(),
            Resource::Cluster => slim(data.get("spec").unwrap_or(&Value::Null)),
            _ => Value::Null,
        };
        let text = match resource {
            Resource::Service => serde_json::to_string(&slim_service(&status, data)?),
            Resource::EndpointSlice => {
                let service = metadata.labels.as_ref().and_then(|labels| labels.get("kubernetes.io/service-name"))?;
                serde_json::to_string(&slim_slice(service, data)?)
            }
            Resource::Secret => {
                let Secret { data, type_, .. } = serde_json::from_value(data).ok()?;
                serde_json::to_string(&json!({ "data": data, "type": type_ }))
            }
            Resource::ConfigMap => {
                let ConfigMap { data, binary_data, .. } = serde_json::from_value(data).ok()?;
                serde_json::to_string(&json!({ "data": data, "binaryData": binary_data }))
            }
            _ => {
                let api = resource.api();
                let mut kept = Map::new();
                kept.insert("apiVersion".into(), api.api_version.into());
                kept.insert("kind".into(), api.kind.into());
                kept.insert("metadata".into(), slim_metadata(resource, &metadata));
                if let Value::Object(fields) = data {
                    kept.extend(fields.into_iter().filter(|(field, _)| field != "apiVersion" && field != "kind"));
                }
                if let Some(status) = planned_from(resource, &status) {
                    kept.insert("status".into(), status);
                }
                serde_json::to_string(&Value::Object(kept))
            }
        };
        let text = text.expect("JSON values and texts have a JSON form");
        Some(Self { key, text, meta: metadata, spec, status })
    }
}

/// Whether we said something in an object's status.
pub(crate) fn is_our_status(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(MANAGER) && entry.subresource.as_deref() == Some("status")
}

fn slim_metadata(resource: Resource, metadata: &ObjectMeta) -> Value {
    let mut kept = json!({
        "name": metadata.name,
        "uid": metadata.uid,
        "creationTimestamp": metadata.creation_timestamp,
        "generation": metadata.generation,
    });
    if let Some(namespace) = &metadata.namespace {
        kept["namespace"] = namespace.as_str().into();
    }
    if let Some(labels) = metadata.labels.as_ref().filter(|labels| !labels.is_empty()) {
        kept["labels"] = json!(labels);
    }
    // Of annotations, which others fill with whole objects, nothing but our own words.
    let is_ours = |name: &str| match resource {
        Resource::Ingress => name.starts_with("fleetgate.dev/") || name.starts_with(OVERRIDE),
        _ => name == RELEASED || name == DRAINED,
    };
    let ours = metadata.annotations.iter().flatten().filter(|(name, _)| is_ours(name));
    let ours: Map<String, Value> = ours.map(|(name, value)| (name.clone(), value.as_str().into())).collect();
    if !ours.is_empty() {
        kept["annotations"] = ours.into();
    }
    kept
}

/// The parts of a status that the plan of everybody follows: what the leading controller saw, kept and numbered.
fn planned_from(resource: Resource, status: &Value) -> Option<Value> {
    let fields: &[&str] = match resource {
        Resource::Zone => &["serial", "digest"],
        Resource::Cluster => &["nodes", "kept", "ingresses", "moreIngresses", "resolver"],
        Resource::Tenant => &["held", "resting"],
        Resource::AddressPool => &["reverseZones"],
        _ => return None,
    };
    let kept = fields.iter().filter_map(|field| Some(((*field).to_owned(), status.get(field)?.clone())));
    let mut kept: Map<String, Value> = kept.collect();
    let conditions = status.get("conditions").and_then(Value::as_array).into_iter().flatten();
    let reachable: Vec<Value> =
        conditions.filter(|condition| condition["type"] == ClusterStatus::REACHABLE).cloned().collect();
    if resource == Resource::Cluster && !reachable.is_empty() {
        kept.insert("conditions".into(), reachable.into());
    }
    (!kept.is_empty()).then_some(Value::Object(kept))
}

fn slim_service(status: &Value, data: Value) -> Option<SlimService> {
    let mut data = data;
    data["status"] = status.clone();
    let Service { spec, status, .. } = serde_json::from_value(data).ok()?;
    let ports = spec.and_then(|spec| spec.ports).unwrap_or_default();
    let ports = ports.into_iter().filter_map(|port| slim_port(port.name, port.port)).collect();
    let ingress = status.and_then(|status| status.load_balancer).and_then(|balancer| balancer.ingress);
    let (mut addresses, mut hostnames) = (Vec::new(), Vec::new());
    for entry in ingress.unwrap_or_default() {
        addresses.extend(entry.ip);
        hostnames.extend(entry.hostname);
    }
    Some(SlimService { ports, addresses, hostnames })
}

fn slim_slice(service: &str, data: Value) -> Option<SlimSlice> {
    let EndpointSlice { endpoints, ports, .. } = serde_json::from_value(data).ok()?;
    let ports = ports.unwrap_or_default().into_iter();
    let ports = ports.filter_map(|port| slim_port(port.name, port.port?)).collect();
    let mut slice = SlimSlice { service: service.to_owned(), ports, ..SlimSlice::default() };
    for endpoint in endpoints.unwrap_or_default() {
        // Kubernetes: what says nothing of being ready is to be taken as ready.
        let ready = endpoint.conditions.and_then(|conditions| conditions.ready).unwrap_or(true);
        let list = if ready { &mut slice.ready } else { &mut slice.unready };
        list.extend(endpoint.addresses);
    }
    slice.ready.sort_unstable();
    slice.unready.sort_unstable();
    Some(slice)
}

fn slim_port(name: Option<String>, port: i32) -> Option<SlimPort> {
    Some(SlimPort { name: name.unwrap_or_default(), port: u16::try_from(port).ok().filter(|port| *port != 0)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(resource: Resource, object: Value) -> Seen {
        Seen::of(resource, serde_json::from_value(object).unwrap()).unwrap()
    }

    #[test]
    fn a_key_is_read_back_from_its_text() {
        for text in ["zones/main", "secrets/fleetgate-system/c1", "endpointslices/acme/kube-apiserver-x7"] {
            assert_eq!(Key::parse(text).map(|key| key.to_string()).as_deref(), Some(text));
        }
        for text in ["", "zones", "pods/a/b", "secrets/a/b/c"] {
            assert_eq!(Key::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_no_plan_depends_on_makes_no_difference() {
        let cluster = |resource_version: &str, message: &str, nodes: Value| {
            seen(
                Resource::Cluster,
                json!({
                    "apiVersion": "fleetgate.dev/v1alpha1", "kind": "Cluster",
                    "metadata": {
                        "name": "c1", "uid": "u", "resourceVersion": resource_version, "generation": 1,
                        "managedFields": [{ "manager": message }],
                    },
                    "spec": { "tenant": "acme" },
                    "status": { "conditions": [{ "message": message }], "nodes": nodes },
                }),
            )
        };
        let first = cluster("1", "a", json!([{ "name": "n1" }]));
        assert_eq!(first.text, cluster("2", "b", json!([{ "name": "n1" }])).text);
        assert_ne!(first.text, cluster("1", "a", json!([])).text);
    }

    #[test]
    fn a_slice_is_its_service_ports_and_addresses() {
        let slice = seen(
            Resource::EndpointSlice,
            json!({
                "metadata": { "name": "k-1", "namespace": "acme", "labels": { "kubernetes.io/service-name": "k" } },
                "addressType": "IPv4",
                "ports": [{ "name": "https", "port": 6443, "protocol": "TCP" }],
                "endpoints": [
                    { "addresses": ["10.0.0.2"], "conditions": { "ready": false, "serving": true } },
                    { "addresses": ["10.0.0.1"] },
                ],
            }),
        );
        let ports = vec![SlimPort { name: "https".into(), port: 6443 }];
        let (ready, unready) = (vec!["10.0.0.1".to_owned()], vec!["10.0.0.2".to_owned()]);
        let expected = SlimSlice { service: "k".into(), ports, ready, unready };
        assert_eq!(serde_json::from_str::<SlimSlice>(&slice.text).unwrap(), expected);
    }
}
