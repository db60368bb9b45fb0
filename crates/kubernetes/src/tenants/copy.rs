//! What a federated Ingress is like in a member cluster, and what differs from that there. Pure.
//!
//! | of the hub's Ingress | in a member |
//! |---|---|
//! | namespace, name | the same |
//! | `spec.rules`, `defaultBackend`, `tls` | as they are written; Secrets are never copied |
//! | `spec.ingressClassName` | the cluster's own, or the one of an override; left to the cluster's default where there is none |
//! | annotations | the same, but for ours, for what kubectl remembers and for the older way to name a class; those of an override count first |
//! | labels | none but [`MANAGED_BY`](crate::apply::MANAGED_BY) |
//!
//! Whatever else stands in the member's object is somebody else's, and stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::networking::v1::{IngressBackend, IngressSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manifest::ingress::is_kept_back;
use model::Digest;
use model::ingress::{Backend, Port};
use model::placement::{IngressPlace, SYSTEM_NAMESPACES};
use model::snapshot::IngressCopy;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::watch::Kept;
use crate::apply::{MANAGED_BY, MANAGER};

/// The UID of the hub's Ingress that a copy is of. What has none is not ours.
pub const ORIGIN: &str = "fleetgate.dev/origin";
/// Of all that we wrote, so that what we do not want any more is noticed.
const DIGEST: &str = "fleetgate.dev/digest";
/// Before there was a field for it.
const CLASS: &str = "kubernetes.io/ingress.class";
/// What an Ingress of the hub has that is written into members; a class is each one's own.
const COPIED: [&str; 3] = ["defaultBackend", "rules", "tls"];
/// Objects of ours that are kept in mind of one cluster; twice what can be told of.
const MOST_FOUND: usize = 2000;
/// And octets of them: an Ingress has some 2 KiB. Of those beyond, nothing is compared.
const MOST_OCTETS: usize = 4 << 20;

/// A hub's Ingress, as far as copies are made of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Original {
    uid: String,
    spec: Map<String, Value>,
    annotations: BTreeMap<String, String>,
}

impl Original {
    pub(super) fn read(meta: &ObjectMeta, spec: &Value) -> Self {
        let of_spec = COPIED.iter().filter_map(|field| Some(((*field).to_owned(), spec.get(field)?.clone())));
        let annotations = meta.annotations.iter().flatten().filter(|(name, _)| !is_kept_back(name) && *name != CLASS);
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            spec: of_spec.collect(),
            annotations: annotations.map(|(name, value)| (name.clone(), value.clone())).collect(),
        }
    }
}

/// An Ingress as it is to be in one cluster.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Copy {
    pub(super) place: IngressPlace,
    /// What is applied.
    body: Value,
    pub(super) digest: String,
    /// What has to be in the cluster, each once.
    pub(super) backends: BTreeSet<Backend>,
}

impl Copy {
    /// `None` where nothing is ever written.
    pub(super) fn of(place: &IngressPlace, original: &Original, of_cluster: &IngressCopy) -> Option<Self> {
        let (namespace, name) = place;
        if SYSTEM_NAMESPACES.contains(&namespace.as_str()) {
            return None;
        }
        let mut spec = original.spec.clone();
        if let Some(class) = &of_cluster.class {
            spec.insert("ingressClassName".into(), class.as_ref().into());
        }
        let mut annotations = original.annotations.clone();
        annotations.extend(of_cluster.annotations.clone());
        if of_cluster.class.is_some() {
            // Kubernetes takes no Ingress that has both.
            annotations.remove(CLASS);
        }
        annotations.insert(ORIGIN.into(), original.uid.clone());
        let backends = backends(&spec);
        let mut body = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": {
                "name": name.as_str(),
                "namespace": namespace.as_str(),
                "labels": { MANAGED_BY: MANAGER },
                "annotations": annotations,
            },
            "spec": spec,
        });
        let digest = Digest::of_text(body.to_string().as_bytes()).to_string();
        body["metadata"]["annotations"][DIGEST] = digest.as_str().into();
        Some(Self { place: place.clone(), body, digest, backends })
    }

    /// For server-side apply: onto this very version of the object, or where there is none.
    pub(super) fn patch(&self, onto: Option<&Found>) -> Value {
        let mut body = self.body.clone();
        if let Some(found) = onto {
            body["metadata"]["resourceVersion"] = found.version.as_str().into();
        }
        body
    }

    /// Whether all that we want is there.
    pub(super) fn is(&self, found: &Found) -> bool {
        let Some(content) = &found.content else { return false };
        let wanted = |part: &str| self.body["metadata"][part].as_object().into_iter().flatten();
        let has = |there: &BTreeMap<String, String>, part: &str| {
            wanted(part).all(|(name, value)| there.get(name).map(String::as_str) == value.as_str())
        };
        let spec = self.body["spec"].as_object().into_iter().flatten();
        has(&content.labels, "labels")
            && has(&content.annotations, "annotations")
            && spec.into_iter().all(|(field, value)| content.spec.get(field) == Some(value))
    }
}

/// Those that can be used, as the plan reads them.
fn backends(spec: &Map<String, Value>) -> BTreeSet<Backend> {
    let spec: IngressSpec = serde_json::from_value(Value::Object(spec.clone())).unwrap_or_default();
    let paths = spec.rules.unwrap_or_default().into_iter().filter_map(|rule| rule.http).flat_map(|http| http.paths);
    let all = spec.default_backend.into_iter().chain(paths.map(|path| path.backend));
    let backend = |backend: IngressBackend| {
        let service = backend.service?;
        let port = service.port?;
        let name = port.name.filter(|name| !name.is_empty()).map(|name| Port::Name(name.into()));
        let number = port.number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number != 0);
        Some(Backend { service: service.name.parse().ok()?, port: name.or(number.map(Port::Number))? })
    };
    all.filter_map(backend).collect()
}

/// An Ingress of a member that says that it is managed by us, or that stands where one of ours is to be.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    pub(super) uid: String,
    pub(super) version: String,
    pub(super) is_ours: bool,
    /// `None` where there was no room for it.
    content: Option<Arc<Content>>,
}

#[derive(Debug, PartialEq)]
struct Content {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    spec: Map<String, Value>,
    octets: usize,
}

/// As much of an Ingress as is looked at.
#[derive(Debug, Deserialize)]
pub(super) struct Observed {
    metadata: Metadata,
    #[serde(default)]
    spec: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

impl Observed {
    pub(super) fn read(octets: &[u8]) -> Option<Self> {
        serde_json::from_slice(octets).ok()
    }

    /// `None` for a name that Kubernetes would not allow.
    fn place(&self) -> Option<IngressPlace> {
        Some((self.metadata.namespace.parse().ok()?, self.metadata.name.parse().ok()?))
    }

    pub(super) fn found(&self) -> Found {
        let annotations = self.metadata.annotations.clone().unwrap_or_default();
        let labels = self.metadata.labels.clone().unwrap_or_default();
        let spec = self.spec.clone();
        let texts = labels.iter().chain(&annotations).map(|(name, value)| name.len() + value.len()).sum::<usize>();
        let octets = 256 + texts + Value::Object(spec.clone()).to_string().len();
        Found {
            uid: self.metadata.uid.clone(),
            version: self.metadata.resource_version.clone(),
            is_ours: annotations.contains_key(ORIGIN),
            content: Some(Arc::new(Content { labels, annotations, spec, octets })),
        }
    }
}

impl Found {
    /// Whether it is the same but for its version.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        (&self.uid, &self.content) == (&other.uid, &other.content)
    }

    fn octets(&self) -> usize {
        self.content.as_ref().map_or(0, |content| content.octets)
    }
}

/// What says in a cluster that it is ours.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct FoundSet {
    pub(super) found: BTreeMap<IngressPlace, Found>,
    octets: usize,
}

impl FoundSet {
    fn forget(&mut self, place: &IngressPlace) -> bool {
        let gone = self.found.remove(place);
        self.octets -= gone.as_ref().map_or(0, Found::octets);
        gone.is_some()
    }
}

impl Kept for FoundSet {
    type Object = Observed;

    fn version(object: &Observed) -> &str {
        &object.metadata.resource_version
    }

    fn apply(&mut self, object: &Observed) -> bool {
        let Some(place) = object.place() else { return false };
        let mut found = object.found();
        if self.found.get(&place) == Some(&found) {
            return false;
        }
        self.forget(&place);
        if self.found.len() == MOST_FOUND {
            return true;
        }
        if self.octets + found.octets() > MOST_OCTETS {
            found.content = None;
        }
        self.octets += found.octets();
        self.found.insert(place, found);
        true
    }

    fn remove(&mut self, object: &Observed) -> bool {
        object.place().is_some_and(|place| self.forget(&place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(namespace: &str) -> IngressPlace {
        (namespace.parse().unwrap(), "shop".parse().unwrap())
    }

    fn original() -> Original {
        let meta = json!({
            "name": "shop", "namespace": "acme", "uid": "u1", "labels": {"app": "shop"},
            "annotations": {
                "nginx.ingress.kubernetes.io/rewrite-target": "/",
                "team": "web",
                "fleetgate.dev/redirect-to-https": "true",
                "override.fleetgate.dev/c2": "{}",
                "kubernetes.io/ingress.class": "fleetgate",
                "kubectl.kubernetes.io/last-applied-configuration": "{}",
            },
        });
        let path = |service: &str, port: Value| {
            let backend = json!({"service": {"name": service, "port": port}});
            json!({"path": "/", "pathType": "Prefix", "backend": backend})
        };
        let spec = json!({
            "ingressClassName": "fleetgate",
            "defaultBackend": {"service": {"name": "rest", "port": {"number": 80}}},
            "tls": [{"hosts": ["shop.test"], "secretName": "shop-tls"}],
            "rules": [{"host": "shop.test", "http": {"paths": [
                path("shop", json!({"number": 80})), path("shop", json!({"name": "http"})), path("shop", json!({"number": 80})),
                path("bad", json!({})),
            ]}}],
        });
        Original::read(&serde_json::from_value(meta).unwrap(), &spec)
    }

    fn of_cluster(class: Option<&str>, annotations: &[(&str, &str)]) -> IngressCopy {
        let annotations = annotations.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        IngressCopy { cluster: "c1".parse().unwrap(), class: class.map(Into::into), annotations }
    }

    fn copy(class: Option<&str>, annotations: &[(&str, &str)]) -> Copy {
        Copy::of(&place("acme"), &original(), &of_cluster(class, annotations)).unwrap()
    }

    /// As a cluster would have it.
    fn there(copy: &Copy, change: impl FnOnce(&mut Value)) -> Found {
        let mut object = copy.patch(None);
        object["metadata"]["uid"] = "there".into();
        object["metadata"]["resourceVersion"] = "7".into();
        change(&mut object);
        Observed::read(object.to_string().as_bytes()).unwrap().found()
    }

    #[test]
    fn a_copy_is_the_ingress_with_the_class_of_its_cluster() {
        let copy = copy(Some("nginx"), &[("team", "edge"), ("more", "x")]);
        let body = copy.patch(None);
        assert_eq!(body["metadata"]["labels"], json!({MANAGED_BY: MANAGER}));
        assert_eq!(
            body["metadata"]["annotations"],
            json!({
                "nginx.ingress.kubernetes.io/rewrite-target": "/", "team": "edge", "more": "x",
                ORIGIN: "u1", DIGEST: copy.digest,
            })
        );
        assert_eq!(body["spec"]["ingressClassName"], "nginx");
        assert_eq!(body["spec"]["rules"], original().spec["rules"]);
        assert_eq!(body["spec"]["tls"], json!([{"hosts": ["shop.test"], "secretName": "shop-tls"}]));
        let backends: Vec<_> = copy.backends.iter().map(|at| format!("{}:{}", at.service, at.port)).collect();
        assert_eq!(backends, ["rest:80", "shop:80", "shop:http"]);
    }

    #[test]
    fn without_a_class_the_clusters_default_takes_it() {
        let copy = copy(None, &[(CLASS, "old")]);
        let body = copy.patch(None);
        assert_eq!(body["spec"].get("ingressClassName"), None);
        assert_eq!(body["metadata"]["annotations"][CLASS], "old");
        // What the default is then is the cluster's to say.
        assert!(copy.is(&there(&copy, |object| object["spec"]["ingressClassName"] = "default".into())));
        let with_class = super::Copy::of(&place("acme"), &original(), &of_cluster(Some("nginx"), &[(CLASS, "old")]));
        assert_eq!(with_class.unwrap().patch(None)["metadata"]["annotations"].get(CLASS), None);
    }

    #[test]
    fn nothing_is_made_for_kubernetes_own_namespaces() {
        for namespace in SYSTEM_NAMESPACES {
            assert_eq!(Copy::of(&place(namespace), &original(), &of_cluster(None, &[])), None);
        }
    }

    /// What somebody changed, and whether it is ours to put back.
    #[test]
    fn what_differs_is_noticed_and_what_is_others_is_not() {
        let wanted = copy(Some("nginx"), &[]);
        for (pointer, value, is_same) in [
            ("", Value::Null, true),
            ("/metadata/labels/team", "x".into(), true),
            ("/metadata/annotations/others", "x".into(), true),
            ("/metadata/annotations/team", "x".into(), false),
            ("/metadata/annotations/fleetgate.dev~1origin", "u2".into(), false),
            ("/metadata/annotations/fleetgate.dev~1digest", "x".into(), false),
            ("/metadata/labels/app.kubernetes.io~1managed-by", "Helm".into(), false),
            ("/spec/ingressClassName", "other".into(), false),
            ("/spec/rules/0/host", "other.test".into(), false),
            ("/spec/rules", json!([]), false),
            ("/spec/tls/0/secretName", "other".into(), false),
            ("/spec/defaultBackend/service/name", "other".into(), false),
        ] {
            let found = there(&wanted, |object| {
                if let Some((parent, field)) = pointer.rsplit_once('/') {
                    let field = field.replace("~1", "/");
                    match object.pointer_mut(parent).unwrap() {
                        Value::Array(list) => list[field.parse::<usize>().unwrap()] = value,
                        parent => parent[&field] = value,
                    }
                }
            });
            assert_eq!(wanted.is(&found), is_same, "{pointer}");
        }
        // Another wish is another digest, also where it only wants less.
        assert!(!copy(None, &[]).is(&there(&wanted, |_| ())));
        assert!(!wanted.is(&there(&copy(Some("nginx"), &[("more", "x")]), |_| ())));
        assert_eq!(wanted.patch(Some(&there(&wanted, |_| ())))["metadata"]["resourceVersion"], "7");
    }

    #[test]
    fn what_is_kept_of_a_cluster_has_bounds() {
        let object = |number: usize, padding: usize| -> Observed {
            let metadata = json!({
                "name": format!("i{number}"), "namespace": "acme", "uid": "u", "resourceVersion": "1",
                "annotations": {ORIGIN: "u", "padding": "x".repeat(padding)},
            });
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        let mut set = FoundSet::default();
        for number in 0..MOST_FOUND + 10 {
            set.apply(&object(number, 3000));
        }
        assert_eq!(set.found.len(), MOST_FOUND);
        assert!(set.octets <= MOST_OCTETS && set.found.values().any(|found| found.content.is_none()));
        assert!(!set.apply(&object(0, 3000)) && set.apply(&object(0, 0)), "only what changed is news");
        for number in 0..MOST_FOUND + 10 {
            set.remove(&object(number, 3000));
        }
        assert_eq!((set.found.len(), set.octets), (0, 0));
    }
}
