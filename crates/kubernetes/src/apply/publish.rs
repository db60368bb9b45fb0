//! What ExternalDNS is handed: the names of a cluster, and the records that a tenant claimed and has, as `DNSEndpoint`s in a
//! namespace of ours. It never reads a tenant's own.
//!
//! A cluster's object is owned by its Cluster, which an object in a namespace may be by one without; so that it goes with the
//! Cluster even when nobody of ours is there, and no finalizer has to hold a Cluster up. What a tenant claimed lives in another
//! namespace and cannot own anything here. We delete both ourselves as soon as the plan has no use for them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use manifest::dns_endpoint::{CLUSTER_LABEL, DnsEndpointSpec, EndpointSpec};
use model::identity::Kind;
use model::snapshot::{NameRecords, PublishedSet, RecordSet};
use model::{DnsName, ObjectName, ObjectRef};
use serde_json::{Value, json};

use super::{MANAGED_BY, MANAGER};

/// The only namespace that ExternalDNS is to read; tenants' own objects are elsewhere.
pub const NAMESPACE: &str = "fleetgate-publish";

/// From which object it was made, `namespace/name`; of a cluster's, its label says so.
const SOURCE: &str = "fleetgate.dev/source";
/// Before the place of an Ingress there, and behind a dot at the end of what is handed out of it.
const INGRESS: &str = "ingress";
/// Kubernetes' bound for names.
const MOST_NAME: usize = 253;

/// A `DNSEndpoint` in [`NAMESPACE`], as the hub has it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Published {
    pub(super) uid: String,
    /// Whether it says that it is ours. No other is ever deleted.
    pub(super) ours: bool,
    cluster_label: Option<String>,
    source: Option<String>,
    /// The UIDs of the Clusters that it belongs to.
    owners: Vec<String>,
    /// `None` if they are of a form that we would not write.
    endpoints: Option<Vec<EndpointSpec>>,
}

impl Published {
    pub(super) fn read(meta: &ObjectMeta, spec: &Value) -> Self {
        let label = |name: &str| meta.labels.as_ref().and_then(|labels| labels.get(name)).cloned();
        let owners = meta.owner_references.iter().flatten();
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            ours: label(MANAGED_BY).as_deref() == Some(MANAGER),
            cluster_label: label(CLUSTER_LABEL),
            source: meta.annotations.as_ref().and_then(|annotations| annotations.get(SOURCE)).cloned(),
            owners: owners
                .filter(|owner| owner.kind == Kind::Cluster.as_str())
                .map(|owner| owner.uid.clone())
                .collect(),
            endpoints: serde_json::from_value(spec.clone()).ok().map(|spec: DnsEndpointSpec| spec.endpoints),
        }
    }

    /// Whose names it holds: it has the name of a cluster, or says which claims it was made from.
    pub(super) fn source(&self, name: &ObjectName) -> ObjectRef {
        let claims = self.source.as_deref().and_then(|source| {
            let (kind, (namespace, name)) = match source.split_once('/')? {
                (INGRESS, place) if place.contains('/') => (Kind::Ingress, place.split_once('/')?),
                place => (Kind::DnsEndpoint, place),
            };
            Some(ObjectRef { kind, namespace: Some(namespace.parse().ok()?), name: name.parse().ok()? })
        });
        claims.unwrap_or_else(|| ObjectRef::cluster_scoped(Kind::Cluster, name.clone()))
    }

    pub(super) fn is(&self, wanted: &WantedEndpoint) -> bool {
        let (cluster, source, owners) = match &wanted.owner {
            Some(uid) => (Some(wanted.name.as_str()), None, vec![uid.clone()]),
            None => (None, wanted.source.as_deref(), Vec::new()),
        };
        self.ours
            && self.cluster_label.as_deref() == cluster
            && self.source.as_deref() == source
            && self.owners == owners
            && self.endpoints.as_ref() == Some(&wanted.endpoints)
    }
}

/// A `DNSEndpoint` in [`NAMESPACE`], as it should be.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WantedEndpoint {
    pub(super) name: ObjectName,
    /// The UID of the Cluster whose names they are.
    owner: Option<String>,
    /// Or the claims that they were made from.
    source: Option<String>,
    endpoints: Vec<EndpointSpec>,
}

/// What a cluster's names become.
pub(super) fn of_cluster(cluster: &ObjectName, uid: &str, names: &[NameRecords]) -> WantedEndpoint {
    let sets = names.iter().flat_map(|name| name.records.iter().map(move |set| (&name.name, set)));
    WantedEndpoint {
        name: cluster.clone(),
        owner: Some(uid.to_owned()),
        source: None,
        endpoints: sets.map(|(name, set)| endpoint(name, set)).collect(),
    }
}

/// What becomes of claims that are handed out; `None` if there are none.
pub(super) fn of_claims<'a>(
    object: &ObjectRef,
    sets: impl IntoIterator<Item = &'a PublishedSet>,
) -> Option<WantedEndpoint> {
    let sets = sets.into_iter().filter(|set| set.hand_out);
    let endpoints: Vec<_> = sets.map(|set| endpoint(&set.name, &set.set)).collect();
    let source = match object.kind {
        Kind::Ingress => format!("{INGRESS}/{}/{}", object.namespace.as_ref()?, object.name),
        _ => format!("{}/{}", object.namespace.as_ref()?, object.name),
    };
    (!endpoints.is_empty()).then(|| WantedEndpoint { name: name(object), owner: None, source: Some(source), endpoints })
}

/// What the object is called that is handed out: a cluster's name has no dot, that of claims has, and that of an Ingress' hosts
/// ends in a word that no other does.
pub(super) fn name(object: &ObjectRef) -> ObjectName {
    let Some(namespace) = &object.namespace else { return object.name.clone() };
    let end = if object.kind == Kind::Ingress { format!(".{INGRESS}") } else { String::new() };
    let is_alike = object.kind != Kind::Ingress && object.name.as_str().ends_with(&format!(".{INGRESS}"));
    let name = format!("{namespace}.{}{end}", object.name);
    let is_plain = name.len() <= MOST_NAME && !is_alike && object.name.as_str() != INGRESS;
    let name = if is_plain { name } else { format!("{namespace}.{:016x}{end}", fingerprint(&object.name)) };
    name.parse().unwrap_or_else(|_| object.name.clone())
}

/// FNV-1a: the same in every release, for names that are too long to be told whole.
fn fingerprint(name: &ObjectName) -> u64 {
    let step = |hash: u64, octet: u8| (hash ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3);
    name.as_str().bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

fn endpoint(name: &DnsName, set: &RecordSet) -> EndpointSpec {
    EndpointSpec {
        dns_name: name.to_string(),
        record_type: set.data.type_name().into(),
        targets: set.data.to_text(),
        record_ttl: set.ttl.into(),
        ..EndpointSpec::default()
    }
}

/// What is applied: nothing else in the object is ours.
pub(super) fn body(wanted: &WantedEndpoint) -> Value {
    let mut metadata = json!({
        "name": wanted.name.as_str(),
        "namespace": NAMESPACE,
        "labels": { MANAGED_BY: MANAGER },
    });
    if let Some(uid) = &wanted.owner {
        let object = ObjectRef::cluster_scoped(Kind::Cluster, wanted.name.clone());
        metadata["labels"][CLUSTER_LABEL] = wanted.name.as_str().into();
        metadata["ownerReferences"] = json!([owner(&object, uid)]);
    }
    if let Some(source) = &wanted.source {
        metadata["annotations"] = json!({ SOURCE: source });
    }
    json!({
        "apiVersion": Kind::DnsEndpoint.api_version(),
        "kind": Kind::DnsEndpoint.as_str(),
        "metadata": metadata,
        "spec": { "endpoints": wanted.endpoints },
    })
}

/// Neither `controller`, as nobody is to adopt it, nor in the way of the owner's deletion.
pub(super) fn owner(object: &ObjectRef, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: object.kind.api_version().into(),
        kind: object.kind.as_str().into(),
        name: object.name.to_string(),
        uid: uid.into(),
        ..OwnerReference::default()
    }
}

#[cfg(test)]
mod tests {
    use model::snapshot::RecordData;

    use super::*;

    fn named(name: &str, records: Vec<RecordData>) -> NameRecords {
        let records: Vec<_> = records.into_iter().map(|data| RecordSet { ttl: 30, data }).collect();
        NameRecords::plain(name.parse().unwrap(), records.into())
    }

    #[test]
    fn every_record_set_becomes_an_endpoint() {
        let cluster: ObjectName = "c1".parse().unwrap();
        let lb: DnsName = "lb.example.net".parse().unwrap();
        let v4 = |addresses: &[&str]| RecordData::A(addresses.iter().map(|at| at.parse().unwrap()).collect());
        let v6 = |addresses: &[&str]| RecordData::Aaaa(addresses.iter().map(|at| at.parse().unwrap()).collect());
        for (records, expected) in [
            (vec![], vec![]),
            (vec![v4(&["192.0.2.1", "192.0.2.2"])], vec![("A", vec!["192.0.2.1", "192.0.2.2"])]),
            (
                vec![v4(&["192.0.2.1"]), v6(&["2001:db8::1"])],
                vec![("A", vec!["192.0.2.1"]), ("AAAA", vec!["2001:db8::1"])],
            ),
            // No dot at the end: ExternalDNS takes such a target for a mistake.
            (vec![RecordData::Cname(lb)], vec![("CNAME", vec!["lb.example.net"])]),
        ] {
            let written = of_cluster(&cluster, "u1", &[named("*.c1.fleet.example", records)]).endpoints;
            let targets = |at: &'_ EndpointSpec| at.targets.join(" ");
            let written: Vec<_> = written.iter().map(|at| (at.record_type.clone(), targets(at))).collect();
            let expected: Vec<_> = expected.into_iter().map(|(kind, to)| (kind.to_owned(), to.join(" "))).collect();
            assert_eq!(written, expected);
        }
        let written = of_cluster(&cluster, "u1", &[named("*.c1.fleet.example", vec![v4(&["192.0.2.1"])])]).endpoints;
        assert_eq!((&*written[0].dns_name, written[0].record_ttl), ("*.c1.fleet.example", 30));
    }

    #[test]
    fn what_is_written_is_recognised_and_what_differs_is_not() {
        let cluster: ObjectName = "c1".parse().unwrap();
        let names = [named("api.c1.test", vec![RecordData::A(vec!["192.0.2.1".parse().unwrap()])])];
        let wanted = of_cluster(&cluster, "u1", &names);
        let good = body(&wanted);
        let read = |body: &Value| {
            let meta: ObjectMeta = serde_json::from_value(body["metadata"].clone()).unwrap();
            Published::read(&meta, &body["spec"])
        };
        assert!(read(&good).is(&wanted));
        assert!(!read(&good).is(&of_cluster(&cluster, "u2", &names)), "the Cluster was made anew");
        assert_eq!(read(&good).source(&cluster), ObjectRef::cluster_scoped(Kind::Cluster, cluster.clone()));
        for (path, value) in [
            ("/metadata/labels", json!({})),
            ("/metadata/labels/fleetgate.dev~1cluster", json!("c2")),
            ("/metadata/ownerReferences", json!([])),
            ("/spec/endpoints", json!([])),
            ("/spec/endpoints/0/targets/0", json!("192.0.2.9")),
            ("/spec/endpoints/0/recordTTL", json!(60)),
            ("/spec/endpoints/0/labels", json!({"strange": "label"})),
        ] {
            let mut changed = good.clone();
            match changed.pointer_mut(path) {
                Some(place) => *place = value,
                None => changed["spec"]["endpoints"][0]["labels"] = value,
            }
            assert!(!read(&changed).is(&wanted), "{path}");
        }
        let mut labelled = good.clone();
        labelled["metadata"]["labels"]["team"] = "edge".into();
        assert!(read(&labelled).is(&wanted), "another's label is another's");
    }

    #[test]
    fn claims_are_handed_out_under_a_name_of_their_own() {
        let object = |name: &str| ObjectRef {
            kind: Kind::DnsEndpoint,
            namespace: Some("acme".parse().unwrap()),
            name: name.parse().unwrap(),
        };
        let part = |hand_out| PublishedSet {
            name: "www.c1.test".parse().unwrap(),
            set: RecordSet { ttl: 30, data: RecordData::A(vec!["192.0.2.1".parse().unwrap()]) },
            hand_out,
        };
        assert_eq!(of_claims(&object("web"), &[part(false)]), None);
        let wanted = of_claims(&object("web"), &[part(false), part(true)]).unwrap();
        assert_eq!((wanted.name.as_str(), wanted.endpoints.len()), ("acme.web", 1));
        let body = body(&wanted);
        let meta: ObjectMeta = serde_json::from_value(body["metadata"].clone()).unwrap();
        let seen = Published::read(&meta, &body["spec"]);
        assert!(seen.is(&wanted) && seen.source(&wanted.name) == object("web"));
        assert!(name(&object(&"x".repeat(253))).as_str().len() <= MOST_NAME);

        let ingress = |name: &str| ObjectRef { kind: Kind::Ingress, ..object(name) };
        let wanted = of_claims(&ingress("web"), &[part(true)]).unwrap();
        assert_eq!(wanted.name.as_str(), "acme.web.ingress");
        let meta: ObjectMeta = serde_json::from_value(super::body(&wanted)["metadata"].clone()).unwrap();
        let seen = Published::read(&meta, &super::body(&wanted)["spec"]);
        assert!(seen.is(&wanted) && seen.source(&wanted.name) == ingress("web"));
        // Nobody's claims have the name of an Ingress' hosts.
        for claims in ["web.ingress", "ingress", &"x".repeat(253)] {
            assert!(!name(&object(claims)).as_str().ends_with(".ingress"), "{claims}");
            assert!(name(&ingress(claims)).as_str().ends_with(".ingress"), "{claims}");
        }
    }
}
