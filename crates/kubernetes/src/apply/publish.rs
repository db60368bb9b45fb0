//! What ExternalDNS is handed of a cluster: its names, as a `DNSEndpoint` in a namespace of ours.
//!
//! The object is owned by its Cluster, which an object in a namespace may be by one without; so that it goes with the
//! Cluster even when nobody of ours is there, and no finalizer has to hold a Cluster up. We delete it ourselves as soon as
//! the plan has no use for it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use manifest::dns_endpoint::{DnsEndpointSpec, EndpointSpec};
use model::identity::Kind;
use model::snapshot::NameRecords;
use model::{ObjectName, ObjectRef};
use serde_json::{Value, json};

use super::{MANAGED_BY, MANAGER};

/// The only namespace that ExternalDNS is to read; tenants' own objects are elsewhere.
pub const NAMESPACE: &str = "fleetgate-publish";

const CLUSTER_LABEL: &str = "fleetgate.dev/cluster";

/// A `DNSEndpoint` in [`NAMESPACE`], as the hub has it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Published {
    pub(super) uid: String,
    /// Whether it says that it is ours. No other is ever deleted.
    pub(super) ours: bool,
    cluster_label: Option<String>,
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
            owners: owners
                .filter(|owner| owner.kind == Kind::Cluster.as_str())
                .map(|owner| owner.uid.clone())
                .collect(),
            endpoints: serde_json::from_value(spec.clone()).ok().map(|spec: DnsEndpointSpec| spec.endpoints),
        }
    }

    pub(super) fn is(&self, cluster: &ObjectName, uid: &str, endpoints: &[EndpointSpec]) -> bool {
        self.ours
            && self.cluster_label.as_deref() == Some(cluster.as_str())
            && self.owners == [uid]
            && self.endpoints.as_deref() == Some(endpoints)
    }
}

/// One endpoint for each type of each name, in the plan's order.
pub(super) fn endpoints(names: &[NameRecords]) -> Vec<EndpointSpec> {
    let sets = names.iter().flat_map(|name| name.records.iter().map(move |set| (&name.name, set)));
    sets.map(|(name, set)| EndpointSpec {
        dns_name: name.to_string(),
        record_type: set.data.type_name().into(),
        targets: set.data.to_text(),
        record_ttl: set.ttl.into(),
        ..EndpointSpec::default()
    })
    .collect()
}

/// What is applied: nothing else in the object is ours.
pub(super) fn body(cluster: &ObjectName, uid: &str, endpoints: &[EndpointSpec]) -> Value {
    let object = ObjectRef::cluster_scoped(Kind::Cluster, cluster.clone());
    json!({
        "apiVersion": Kind::DnsEndpoint.api_version(),
        "kind": Kind::DnsEndpoint.as_str(),
        "metadata": {
            "name": cluster.as_str(),
            "namespace": NAMESPACE,
            "labels": { MANAGED_BY: MANAGER, CLUSTER_LABEL: cluster.as_str() },
            "ownerReferences": [owner(&object, uid)],
        },
        "spec": { "endpoints": endpoints },
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
    use model::DnsName;
    use model::snapshot::{RecordData, RecordSet};

    use super::*;

    fn name(name: &str, records: Vec<RecordData>) -> NameRecords {
        let records: Vec<_> = records.into_iter().map(|data| RecordSet { ttl: 30, data }).collect();
        NameRecords { name: name.parse().unwrap(), records: records.into() }
    }

    #[test]
    fn every_record_set_becomes_an_endpoint() {
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
            let written = endpoints(&[name("*.c1.fleet.example", records)]);
            let targets = |at: &'_ EndpointSpec| at.targets.join(" ");
            let written: Vec<_> = written.iter().map(|at| (at.record_type.clone(), targets(at))).collect();
            let expected: Vec<_> = expected.into_iter().map(|(kind, to)| (kind.to_owned(), to.join(" "))).collect();
            assert_eq!(written, expected);
        }
        let written = endpoints(&[name("*.c1.fleet.example", vec![v4(&["192.0.2.1"])])]);
        assert_eq!((&*written[0].dns_name, written[0].record_ttl), ("*.c1.fleet.example", 30));
    }

    #[test]
    fn what_is_written_is_recognised_and_what_differs_is_not() {
        let cluster: ObjectName = "c1".parse().unwrap();
        let wanted = endpoints(&[name("api.c1.test", vec![RecordData::A(vec!["192.0.2.1".parse().unwrap()])])]);
        let good = body(&cluster, "u1", &wanted);
        let read = |body: &Value| {
            let meta: ObjectMeta = serde_json::from_value(body["metadata"].clone()).unwrap();
            Published::read(&meta, &body["spec"])
        };
        assert!(read(&good).is(&cluster, "u1", &wanted));
        assert!(!read(&good).is(&cluster, "u2", &wanted), "the Cluster was made anew");
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
            assert!(!read(&changed).is(&cluster, "u1", &wanted), "{path}");
        }
        let mut labelled = good.clone();
        labelled["metadata"]["labels"]["team"] = "edge".into();
        assert!(read(&labelled).is(&cluster, "u1", &wanted), "another's label is another's");
    }
}
