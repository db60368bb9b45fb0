//! What is kept of a member's Services and `EndpointSlice`s: as much as tells whether a backend is there and ready. Pure.
//!
//! A slice changes with every pod. What is kept of it changes only when its first endpoint gets ready or its last one does
//! not any more, so that pods that come and go are no news.

use std::collections::BTreeMap;

use model::ingress::{Backend, Port};
use model::placement::BackendState;
use serde::Deserialize;

use super::watch::Kept;

/// Of one namespace; as many as Kubernetes is built for.
const MOST_SERVICES: usize = 5000;
const MOST_SLICES: usize = 10_000;
/// Of one Service or slice; few have more than three.
const MOST_PORTS: usize = 100;
/// Names of Kubernetes are no longer.
const LONGEST: usize = 253;

/// Which Services there are, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Services(BTreeMap<Box<str>, Service>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Service {
    /// Another name, which nobody looks behind.
    is_external: bool,
    /// By name, which may be empty.
    ports: Vec<(Box<str>, u16)>,
}

/// The slices that have a ready endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Slices(BTreeMap<Box<str>, Slice>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Slice {
    service: Box<str>,
    /// The names of its ports.
    ports: Vec<Box<str>>,
}

/// What is known of a backend. `None` is what could not be looked at.
pub(super) fn state(backend: &Backend, services: Option<&Services>, slices: Option<&Slices>) -> BackendState {
    let Some(Services(services)) = services else { return BackendState::default() };
    let service = services.get(backend.service.as_str());
    let port = service.and_then(|service| {
        let is_meant = |(name, number): &&(Box<str>, u16)| match &backend.port {
            Port::Number(wanted) => number == wanted,
            Port::Name(wanted) => **name == **wanted,
        };
        Some((service, &service.ports.iter().find(is_meant)?.0))
    });
    let is_ready = port.and_then(|(service, port)| {
        let is_meant = |slice: &Slice| *slice.service == *backend.service.as_str() && slice.ports.contains(port);
        if service.is_external { None } else { slices.map(|Slices(slices)| slices.values().any(is_meant)) }
    });
    BackendState { is_found: Some(port.is_some()), is_ready }
}

/// As much of a Service as is looked at.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ObservedService {
    metadata: Metadata,
    spec: ServiceSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    resource_version: String,
    labels: Option<Labels>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Labels {
    #[serde(rename = "kubernetes.io/service-name")]
    service: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ServiceSpec {
    #[serde(rename = "type")]
    kind: String,
    ports: Option<Vec<PortSpec>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PortSpec {
    name: Option<String>,
    port: Option<i64>,
}

/// As much of an `EndpointSlice` as is looked at.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ObservedSlice {
    metadata: Metadata,
    ports: Option<Vec<PortSpec>>,
    endpoints: Option<Vec<Endpoint>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Endpoint {
    conditions: Option<Conditions>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Conditions {
    ready: Option<bool>,
}

impl Endpoint {
    /// Kubernetes: what says nothing of being ready is to be taken as ready.
    fn is_ready(&self) -> bool {
        self.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
    }
}

impl Kept for Services {
    type Object = ObservedService;

    fn version(object: &ObservedService) -> &str {
        &object.metadata.resource_version
    }

    fn apply(&mut self, object: &ObservedService) -> bool {
        let port = |port: &PortSpec| {
            let number = port.port.and_then(|number| u16::try_from(number).ok())?;
            Some((fitting(port.name.as_deref().unwrap_or_default())?, number))
        };
        let ports = object.spec.ports.iter().flatten().filter_map(port).take(MOST_PORTS).collect();
        let service = Service { is_external: object.spec.kind == "ExternalName", ports };
        insert(&mut self.0, &object.metadata.name, service, MOST_SERVICES)
    }

    fn remove(&mut self, object: &ObservedService) -> bool {
        self.0.remove(object.metadata.name.as_str()).is_some()
    }
}

impl Kept for Slices {
    type Object = ObservedSlice;

    fn version(object: &ObservedSlice) -> &str {
        &object.metadata.resource_version
    }

    fn apply(&mut self, object: &ObservedSlice) -> bool {
        let service = object.metadata.labels.as_ref().and_then(|labels| labels.service.as_deref()).and_then(fitting);
        let is_ready = object.endpoints.iter().flatten().any(Endpoint::is_ready);
        let Some(service) = service.filter(|_| is_ready) else { return self.remove(object) };
        let ports = object.ports.iter().flatten().filter_map(|port| fitting(port.name.as_deref().unwrap_or_default()));
        let slice = Slice { service, ports: ports.take(MOST_PORTS).collect() };
        insert(&mut self.0, &object.metadata.name, slice, MOST_SLICES)
    }

    fn remove(&mut self, object: &ObservedSlice) -> bool {
        self.0.remove(object.metadata.name.as_str()).is_some()
    }
}

/// Whether something is another now. Where there are too many, those that came first stay.
fn insert<T: PartialEq>(map: &mut BTreeMap<Box<str>, T>, name: &str, value: T, most: usize) -> bool {
    let Some(name) = fitting(name) else { return false };
    if map.get(&name) == Some(&value) || (map.len() >= most && !map.contains_key(&name)) {
        return false;
    }
    map.insert(name, value);
    true
}

fn fitting(text: &str) -> Option<Box<str>> {
    (text.len() <= LONGEST).then(|| text.into())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(name: &str, kind: &str, ports: &Value) -> ObservedService {
        let object =
            json!({"metadata": {"name": name, "resourceVersion": "1"}, "spec": {"type": kind, "ports": ports}});
        serde_json::from_value(object).unwrap()
    }

    fn slice(service: &str, ports: &Value, ready: &Value) -> ObservedSlice {
        let object = json!({
            "metadata": {"name": format!("{service}-1"), "resourceVersion": "1", "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4", "ports": ports,
            "endpoints": ready.as_array().unwrap().iter().map(|ready| json!({"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}))
                .collect::<Vec<_>>(),
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_backend_is_there_with_its_port_and_ready_with_one_endpoint() {
        let mut services = Services::default();
        services.apply(&service(
            "web",
            "ClusterIP",
            &json!([{"name": "http", "port": 80}, {"name": "admin", "port": 81}]),
        ));
        services.apply(&service("plain", "ClusterIP", &json!([{"port": 80, "targetPort": "http"}])));
        services.apply(&service("outside", "ExternalName", &json!([{"port": 80}])));
        let mut slices = Slices::default();
        slices.apply(&slice("web", &json!([{"name": "http", "port": 8080}]), &json!([false, true])));
        slices.apply(&slice("plain", &json!([{"name": "", "port": 8080}]), &json!([false])));
        let (yes, no) = (Some(true), Some(false));
        for (service, port, found, ready) in [
            ("web", "80", yes, yes),
            ("web", "http", yes, yes),
            ("web", "81", yes, no),
            ("web", "82", no, None),
            ("web", "none", no, None),
            ("plain", "80", yes, no),
            ("outside", "80", yes, None),
            ("missing", "80", no, None),
        ] {
            let port = port.parse().map_or_else(|_| Port::Name(port.into()), Port::Number);
            let backend = Backend { service: service.parse().unwrap(), port };
            let seen = state(&backend, Some(&services), Some(&slices));
            assert_eq!(seen, BackendState { is_found: found, is_ready: ready }, "{backend:?}");
            assert_eq!(state(&backend, Some(&services), None).is_ready, None);
            assert_eq!(state(&backend, None, Some(&slices)), BackendState::default());
        }
    }

    #[test]
    fn only_the_first_and_the_last_ready_endpoint_are_news() {
        let ports = || json!([{"name": "http", "port": 8080}]);
        let mut slices = Slices::default();
        for (ready, is_news) in [
            (json!([false]), false),
            (json!([false, true]), true),
            (json!([true, true, true]), false),
            (json!([null]), false),
            (json!([]), true),
            (json!([false]), false),
        ] {
            assert_eq!(slices.apply(&slice("web", &ports(), &ready)), is_news, "{ready}");
        }
        slices.apply(&slice("web", &ports(), &json!([true])));
        assert!(slices.remove(&slice("web", &ports(), &json!([true]))));
        assert_eq!(slices, Slices::default());
    }

    #[test]
    fn what_is_kept_has_bounds() {
        let mut services = Services::default();
        for number in 0..MOST_SERVICES + 5 {
            services.apply(&service(&format!("s{number}"), "ClusterIP", &json!([])));
        }
        assert_eq!(services.0.len(), MOST_SERVICES);
        assert!(!services.apply(&service(&"x".repeat(300), "ClusterIP", &json!([]))));
        let many: Vec<Value> = (1..1000).map(|port| json!({"port": port})).collect();
        services.apply(&service("s0", "ClusterIP", &many.into()));
        assert_eq!(services.0["s0"].ports.len(), MOST_PORTS);
    }
}
