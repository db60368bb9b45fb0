//! * A pod that says it belongs to a control plane: it is made to ask that control plane's resolver, before it is written.
//!
//! Opt-in, by a label with the Cluster's name; the API server asks about no other pods. A resolver answers as its tenant's cluster, so
//! that a pod gets it in the namespace that the Cluster names as its control plane's and is refused everywhere else.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PodDNSConfig;
use manifest::pod_dns::{CONTROL_PLANE_LABEL, POLICY, PodDns};
use model::{ClusterName, DnsName};
use serde::Deserialize;
use serde_json::json;

use super::FailurePolicy;
use super::review::{Decision, Outcome, Request};
use crate::apply::Actual;
use crate::resolvers::ControlPlanes;

/// What the API server is told about pods.
#[derive(Debug, Clone)]
pub struct Pods {
    pub planes: Arc<ControlPlanes>,
    /// Says when all of them are known.
    pub hub: Arc<Actual>,
    /// What the hub's own Services are under.
    pub hub_domain: DnsName,
    /// What the API server does with such a pod while nobody of us answers.
    pub failure_policy: FailurePolicy,
}

/// A pod, as far as it is looked at.
#[derive(Deserialize)]
struct Pod {
    spec: PodSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    dns_policy: Option<String>,
    dns_config: Option<PodDNSConfig>,
}

impl Pods {
    /// `None` while not all control planes are known: what is not known yet looks like what there is not.
    pub(super) fn decide(&self, request: &Request<'_>) -> Option<Decision> {
        self.hub.is_whole().then(|| self.decide_known(request).unwrap_or_else(|reason| Decision::malformed(&reason)))
    }

    fn decide_known(&self, request: &Request<'_>) -> Result<Decision, String> {
        let Some(label) = request.label(CONTROL_PLANE_LABEL)? else { return Ok(Outcome::NotOurs.into()) };
        let cluster: ClusterName =
            label.parse().map_err(|error| format!("metadata.labels[{CONTROL_PLANE_LABEL}]: {error}"))?;
        let namespace = request.namespace();
        let plane = self.planes.of(&cluster);
        // Whether there is such a cluster somewhere else is nobody's business here.
        let Some(plane) = plane.filter(|plane| plane.namespace.as_ref().is_some_and(|of| of.as_str() == namespace))
        else {
            let why = format!(
                "NotItsControlPlane: no Cluster {cluster} has its control plane in this namespace; spec.controlPlane.namespace of \
                 a Cluster says where it is, and label {CONTROL_PLANE_LABEL} which one a pod belongs to"
            );
            return Ok(Outcome::Refused(why).into());
        };
        let Pod { spec: PodSpec { dns_policy, dns_config } } = request.object()?;
        let Some(address) = plane.place.and_then(|place| place.address) else {
            let warning = format!(
                "Cluster {cluster} has no resolver yet: this pod keeps its own DNS, and asks the resolver once it is made anew"
            );
            return Ok(Decision { outcome: Outcome::Allowed, warnings: vec![warning], patch: None });
        };
        let dns = PodDns {
            address,
            namespace: plane.namespace.as_ref(),
            hub_domain: &self.hub_domain,
            domain: &plane.domain,
        };
        // It says itself whom to ask, by `fleetgate dns config` or by somebody's hand.
        if dns_policy.as_deref() == Some(POLICY) {
            let asks_us = dns_config.is_some_and(|config| config.nameservers == dns.config().nameservers);
            let warning = format!(
                "dnsPolicy {POLICY}: this pod says itself whom to ask, and it is not Cluster {cluster}'s resolver"
            );
            let warnings = if asks_us { Vec::new() } else { vec![warning] };
            return Ok(Decision { outcome: Outcome::Allowed, warnings, patch: None });
        }
        let config = dns_config.map_or_else(|| dns.config(), |own| dns.beside(own));
        let patch = json!([
            { "op": "add", "path": "/spec/dnsPolicy", "value": POLICY },
            { "op": "add", "path": "/spec/dnsConfig", "value": config },
        ]);
        Ok(Decision { outcome: Outcome::Patched, warnings: Vec::new(), patch: Some(patch) })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use model::ObjectRef;
    use model::identity::Kind;
    use serde_json::Value;

    use super::*;

    fn pods() -> Pods {
        let planes = ControlPlanes::default();
        let meta = ObjectMeta::default();
        for (name, namespace, status) in [
            ("c1", json!("cluster-c1"), json!({ "resolver": { "port": 5401, "address": "10.96.0.7" } })),
            ("c2", json!("cluster-c2"), json!({ "resolver": { "port": 5402 } })),
            ("c3", json!(null), json!({ "resolver": { "port": 5403, "address": "10.96.0.9" } })),
        ] {
            let object = ObjectRef::cluster_scoped(Kind::Cluster, name.parse().unwrap());
            planes.see(&object, &meta, &json!({ "controlPlane": { "namespace": namespace } }), &status);
        }
        let hub = Arc::new(Actual::default());
        hub.set_whole();
        let hub_domain = "hub.local".parse().unwrap();
        Pods { planes: Arc::new(planes), hub, hub_domain, failure_policy: FailurePolicy::Fail }
    }

    fn review(namespace: &str, cluster: &str, spec: &Value) -> String {
        let mut labels = json!({ "app": "kube-apiserver" });
        if !cluster.is_empty() {
            labels[CONTROL_PLANE_LABEL] = cluster.into();
        }
        json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "u1",
                "kind": { "group": "", "version": "v1", "kind": "Pod" },
                "resource": { "group": "", "version": "v1", "resource": "pods" },
                "namespace": namespace,
                "operation": "CREATE",
                "object": { "metadata": { "labels": labels }, "spec": spec },
            },
        })
        .to_string()
    }

    fn decide(namespace: &str, cluster: &str, spec: &Value) -> Decision {
        let body = review(namespace, cluster, spec);
        pods().decide(&Request::read(body.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn a_pod_asks_the_resolver_of_its_own_control_plane_and_of_no_other() {
        let plain = json!({ "dnsPolicy": "ClusterFirst", "hostNetwork": true });
        let decision = decide("cluster-c1", "c1", &plain);
        assert_eq!((&decision.outcome, &decision.warnings), (&Outcome::Patched, &Vec::new()));
        let patch = decision.patch.unwrap();
        assert_eq!(patch[0], json!({ "op": "add", "path": "/spec/dnsPolicy", "value": "None" }));
        let config = &patch[1]["value"];
        assert_eq!(config["nameservers"], json!(["10.96.0.7"]));
        assert_eq!(config["searches"], json!(["cluster-c1.svc.hub.local", "svc.cluster.local", "cluster.local"]));
        assert_eq!(config["options"], json!([{ "name": "ndots", "value": "3" }]));

        assert_eq!(decide("cluster-c1", "", &plain).outcome, Outcome::NotOurs);
        // Another's, one that names no namespace, and one that is not there: all alike.
        let mut told = Vec::new();
        for (namespace, cluster) in [("cluster-c2", "c1"), ("fleetgate-system", "c3"), ("cluster-c1", "c9")] {
            let decision = decide(namespace, cluster, &plain);
            let Outcome::Refused(reason) = decision.outcome else { panic!("{decision:?}") };
            assert!(decision.patch.is_none() && !reason.contains("cluster-c"), "{reason}");
            told.push(reason.replace(cluster, "X"));
        }
        assert!(told.windows(2).all(|pair| pair[0] == pair[1]), "{told:?}");
        assert!(matches!(decide("cluster-c1", "C 1", &plain).outcome, Outcome::Malformed(_)));
        assert!(matches!(decide("cluster-c1", "c1", &json!({ "dnsConfig": 7 })).outcome, Outcome::Malformed(_)));
    }

    #[test]
    fn a_pod_is_never_kept_from_starting_because_there_is_no_resolver_yet() {
        let decision = decide("cluster-c2", "c2", &json!({}));
        assert_eq!((decision.outcome, decision.patch), (Outcome::Allowed, None));
        assert!(decision.warnings[0].contains("no resolver yet"), "{:?}", decision.warnings);
    }

    #[test]
    fn what_a_pod_says_itself_counts() {
        let own = json!({ "dnsPolicy": "Default", "dnsConfig": { "nameservers": ["10.9.9.9"], "searches": ["corp.example"], "options": [{ "name": "ndots", "value": "1" }] } });
        let patch = decide("cluster-c1", "c1", &own).patch.unwrap();
        let config = &patch[1]["value"];
        assert_eq!(config["nameservers"], json!(["10.96.0.7"]));
        assert_eq!(config["searches"][3], "corp.example");
        assert_eq!(config["options"], json!([{ "name": "ndots", "value": "1" }]));
        for (address, warned) in [("10.96.0.7", false), ("10.9.9.9", true)] {
            let own = json!({ "dnsPolicy": "None", "dnsConfig": { "nameservers": [address] } });
            let decision = decide("cluster-c1", "c1", &own);
            assert_eq!((decision.outcome, decision.patch), (Outcome::Allowed, None));
            assert_eq!(!decision.warnings.is_empty(), warned, "{address}");
        }
    }

    #[test]
    fn half_a_fleet_is_no_fleet() {
        let pods = Pods { hub: Arc::default(), ..pods() };
        let body = review("cluster-c1", "c1", &json!({}));
        assert!(pods.decide(&Request::read(body.as_bytes()).unwrap()).is_none());
    }
}
