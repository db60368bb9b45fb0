//! Where the pods of a Service are, and which Services Ingresses name.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::{IngressBackend, IngressSpec};
use kube::core::DynamicObject;

use super::Place;

/// What an `EndpointSlice` says whose it is by.
const SERVICE: &str = "kubernetes.io/service-name";
/// What an Ingress said its class by before there was a field for it.
const CLASS: &str = "kubernetes.io/ingress.class";
/// A selector is part of a URL: with more names, all slices of the namespace are followed.
const MOST_NAMED: usize = 50;

/// An `EndpointSlice`; of addresses of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    pub place: Place,
    pub service: String,
    pub ready: Vec<IpAddr>,
    /// By name, which may be empty.
    pub ports: Vec<(String, u16)>,
}

/// The Services that an Ingress sends requests to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backends {
    pub place: Place,
    pub class: Option<String>,
    /// In the namespace of the Ingress; each once.
    pub services: BTreeSet<String>,
}

/// Of the slices of these Services.
pub(super) fn selector(services: &[String]) -> Option<String> {
    (services.len() <= MOST_NAMED).then(|| format!("{SERVICE} in ({})", services.join(",")))
}

/// `None` for a slice of no Service.
pub(super) fn slice(object: DynamicObject) -> Option<Slice> {
    let service = object.metadata.labels.as_ref()?.get(SERVICE)?.clone();
    let place = Place { namespace: object.metadata.namespace?, name: object.metadata.name? };
    let EndpointSlice { endpoints, ports, .. } = serde_json::from_value(object.data).ok()?;
    // Kubernetes: what says nothing of being ready is to be taken as ready.
    let ready = endpoints.unwrap_or_default().into_iter();
    let ready = ready.filter(|of| of.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true));
    // The others are alternatives, which nobody has ever used.
    let ready = ready.filter_map(|endpoint| endpoint.addresses.first()?.parse().ok()).collect();
    let ports = ports.unwrap_or_default().into_iter();
    let ports = ports.filter_map(|port| Some((port.name.unwrap_or_default(), u16::try_from(port.port?).ok()?)));
    Some(Slice { place, service, ready, ports: ports.filter(|(_, port)| *port != 0).collect() })
}

pub(super) fn backends(object: DynamicObject) -> Option<Backends> {
    let DynamicObject { metadata, mut data, .. } = object;
    let spec = data.get_mut("spec").map(serde_json::Value::take).unwrap_or_default();
    let spec: IngressSpec = serde_json::from_value(spec).unwrap_or_default();
    let annotated = metadata.annotations.and_then(|mut annotations| annotations.remove(CLASS));
    let paths = spec.rules.unwrap_or_default().into_iter().filter_map(|rule| rule.http).flat_map(|http| http.paths);
    let all = spec.default_backend.into_iter().chain(paths.map(|path| path.backend));
    let service = |backend: IngressBackend| backend.service.map(|service| service.name);
    Some(Backends {
        place: Place { namespace: metadata.namespace?, name: metadata.name? },
        class: spec.ingress_class_name.or(annotated),
        services: all.filter_map(service).collect(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_slice_is_its_ready_addresses_and_its_ports() {
        let object = |labels| {
            json!({
                "metadata": { "name": "web-1", "namespace": "shop", "labels": labels },
                "addressType": "IPv4",
                "ports": [{ "name": "http", "port": 8080 }, { "name": "any" }, { "port": 9090 }],
                "endpoints": [
                    { "addresses": ["10.0.0.1"], "conditions": { "ready": true } },
                    { "addresses": ["10.0.0.2"], "conditions": { "ready": false, "serving": true } },
                    { "addresses": ["10.0.0.3", "10.0.0.4"] },
                    { "addresses": ["no.address.example"] },
                    { "addresses": [] },
                ],
            })
        };
        let read = |labels| slice(serde_json::from_value(object(labels)).unwrap());
        assert_eq!(
            read(json!({ SERVICE: "web" })),
            Some(Slice {
                place: Place { namespace: "shop".into(), name: "web-1".into() },
                service: "web".into(),
                ready: vec!["10.0.0.1".parse().unwrap(), "10.0.0.3".parse().unwrap()],
                ports: vec![("http".into(), 8080), (String::new(), 9090)],
            })
        );
        assert_eq!(read(json!({})), None);
        let names = |count| (0..count).map(|number: usize| number.to_string()).collect::<Vec<_>>();
        assert_eq!(selector(&names(2)).as_deref(), Some("kubernetes.io/service-name in (0,1)"));
        assert_eq!(selector(&names(51)), None);
    }
    #[test]
    fn an_ingress_names_services_by_its_rules_and_its_default() {
        let backend = |name: &str| json!({ "service": { "name": name, "port": { "number": 80 } } });
        let path = |name| json!({ "path": "/", "pathType": "Prefix", "backend": backend(name) });
        let ingress = json!({
            "metadata": { "name": "i", "namespace": "shop", "annotations": { CLASS: "old" } },
            "spec": {
                "ingressClassName": "nginx",
                "defaultBackend": backend("rest"),
                "rules": [
                    { "host": "a.example", "http": { "paths": [path("web"), path("api")] } },
                    { "host": "b.example", "http": { "paths": [path("web"), { "pathType": "Prefix", "backend": { "resource": { "kind": "Bucket", "name": "b" } } }] } },
                    { "host": "c.example" },
                ],
            },
        });
        let read = backends(serde_json::from_value(ingress).unwrap()).unwrap();
        assert_eq!(read.class.as_deref(), Some("nginx"));
        assert_eq!(read.services.into_iter().collect::<Vec<_>>(), ["api", "rest", "web"]);
        let bare = json!({ "metadata": { "name": "i", "namespace": "shop", "annotations": { CLASS: "old" } } });
        let read = backends(serde_json::from_value(bare).unwrap()).unwrap();
        assert_eq!((read.class.as_deref(), read.services.len()), (Some("old"), 0));
    }
}
