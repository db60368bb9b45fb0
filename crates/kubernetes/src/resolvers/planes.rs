//! What the hub says of each control plane, as far as its DNS goes. Kept by whoever watches the hub; read by the leader, and by
//! every controller that is asked about a pod.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use model::identity::Kind;
use model::resolver::{ClusterDns, ResolverPlace};
use model::{Changes, ClusterName, DnsName, ObjectName, ObjectRef, Since, Timestamp};
use serde_json::{Value, json};

use crate::apply::Dirty;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlPlane {
    /// With the UID of the Cluster.
    pub since: Since,
    /// Where on the hub it runs.
    pub namespace: Option<ObjectName>,
    /// What the cluster's Services are under.
    pub domain: DnsName,
    /// What the Cluster's status says.
    pub place: Option<ResolverPlace>,
}

impl ControlPlane {
    fn read(meta: &ObjectMeta, spec: &Value, status: &Value) -> Self {
        let created = meta.creation_timestamp.as_ref().and_then(|created| u64::try_from(created.0.as_second()).ok());
        let moment = Timestamp::from_unix(std::time::Duration::from_secs(created.unwrap_or_default()));
        let place = &status["resolver"];
        let port = place["port"].as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0);
        let domain = spec["dns"]["domain"].as_str().and_then(|domain| domain.parse().ok());
        Self {
            since: Since { moment, tie: meta.uid.as_deref().map(Arc::from) },
            namespace: spec["controlPlane"]["namespace"].as_str().and_then(|namespace| namespace.parse().ok()),
            domain: domain.unwrap_or_else(|| ClusterDns::default().domain),
            place: port.map(|port| ResolverPlace {
                port,
                address: place["address"].as_str().and_then(|address| address.parse().ok()),
            }),
        }
    }

    pub(super) fn uid(&self) -> &str {
        self.since.tie.as_deref().unwrap_or_default()
    }
}

/// As much of a Cluster's spec as is looked at.
pub(crate) fn slim(spec: &Value) -> Value {
    json!({ "controlPlane": { "namespace": spec["controlPlane"]["namespace"] }, "dns": spec["dns"] })
}

/// One for each Cluster of the hub, accepted or not: a Cluster that is refused has pods all the same.
#[derive(Debug, Default)]
pub struct ControlPlanes {
    clusters: Mutex<HashMap<ClusterName, Arc<ControlPlane>>>,
    /// Those that are to be looked at again.
    pub(super) dirty: Dirty,
}

impl ControlPlanes {
    pub(crate) fn see(&self, object: &ObjectRef, meta: &ObjectMeta, spec: &Value, status: &Value) {
        let Some(name) = cluster(object) else { return };
        let plane = ControlPlane::read(meta, spec, status);
        let mut clusters = self.lock();
        if clusters.get(&name).is_none_or(|known| **known != plane) {
            clusters.insert(name, Arc::new(plane));
            self.dirty.mark(object.clone());
        }
    }

    pub(crate) fn gone(&self, object: &ObjectRef) {
        let Some(name) = cluster(object) else { return };
        if self.lock().remove(&name).is_some() {
            self.dirty.mark(object.clone());
        }
    }

    /// What a plan made another of: one that is accepted now, for example.
    pub(crate) fn mark_planned(&self, changes: &Changes) {
        self.dirty.mark_all(changes.statuses.iter().filter(|object| object.kind == Kind::Cluster).cloned());
    }

    pub fn of(&self, name: &ClusterName) -> Option<Arc<ControlPlane>> {
        self.lock().get(name).map(Arc::clone)
    }

    pub(super) fn all(&self) -> Vec<(ClusterName, Arc<ControlPlane>)> {
        self.lock().iter().map(|(name, plane)| (name.clone(), Arc::clone(plane))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterName, Arc<ControlPlane>>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn cluster(object: &ObjectRef) -> Option<ClusterName> {
    (object.kind == Kind::Cluster).then(|| object.name.as_str().parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_says_where_its_control_plane_is_and_what_it_asks() {
        let object = ObjectRef::cluster_scoped(Kind::Cluster, "c1".parse().unwrap());
        let name: ClusterName = "c1".parse().unwrap();
        let meta = ObjectMeta { uid: Some("u1".into()), ..ObjectMeta::default() };
        let planes = ControlPlanes::default();
        for (spec, status, namespace, domain, told) in [
            (json!({}), json!({}), None, "cluster.local", None),
            (
                json!({ "controlPlane": { "namespace": "cluster-c1" }, "dns": { "domain": "tenant.internal" }, "nodes": [] }),
                json!({ "resolver": { "port": 5401, "address": "10.96.0.7" } }),
                Some("cluster-c1"),
                "tenant.internal",
                Some((5401, Some("10.96.0.7"))),
            ),
            // By somebody's hand.
            (
                json!({ "controlPlane": { "namespace": "No Namespace" }, "dns": { "domain": 7 } }),
                json!({ "resolver": { "port": 70_000, "address": "nowhere" } }),
                None,
                "cluster.local",
                None,
            ),
            (json!(7), json!({ "resolver": { "port": 5401 } }), None, "cluster.local", Some((5401, None))),
        ] {
            planes.see(&object, &meta, &slim(&spec), &status);
            let plane = planes.of(&name).unwrap();
            assert_eq!(plane.namespace.as_ref().map(ObjectName::as_str), namespace, "{spec}");
            assert_eq!(plane.domain.to_string(), domain, "{spec}");
            let expected = told.map(|(port, address)| ResolverPlace {
                port,
                address: address.map(|address: &str| address.parse().unwrap()),
            });
            assert_eq!((plane.place, plane.uid()), (expected, "u1"), "{status}");
            assert_eq!(planes.dirty.take(), std::slice::from_ref(&object));
            planes.see(&object, &meta, &slim(&spec), &status);
            assert!(planes.dirty.is_empty(), "it is the same");
        }
        planes.gone(&object);
        assert!(planes.of(&name).is_none() && planes.dirty.take() == std::slice::from_ref(&object));
    }
}
