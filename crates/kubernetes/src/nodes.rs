//! What counts of a tenant cluster's Nodes. Pure: everything here comes from an API server that may be hostile.
//!
//! | the Node | becomes |
//! |---|---|
//! | Ready is True, and nothing below holds | a ready node |
//! | Ready is False, Unknown or missing | not ready |
//! | cordoned (`spec.unschedulable`) | not ready: somebody is about to take it away |
//! | being deleted (`metadata.deletionTimestamp`) | not ready, though its kubelet may still say otherwise |
//! | tainted `node.kubernetes.io/out-of-service` or `ToBeDeletedByClusterAutoscaler` | not ready: it is off, or soon will be |
//! | labelled `node.kubernetes.io/exclude-from-external-load-balancers` | left out: it never takes traffic, so it is no node that is missing |
//! | a name that Kubernetes would not allow | left out |
//!
//! Nodes that are not ready stay in the list, so that people see why a name has fewer addresses than they expect.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use model::ObjectName;
use model::resource::Node;
use serde::Deserialize;

use model::reach::Reach;

/// What Kubernetes itself supports in one cluster.
pub const MOST_NODES: usize = 5000;
/// What the manifest of a Cluster allows too; nodes have one or two per family.
pub const MOST_ADDRESSES: usize = 8;
/// etcd takes objects of 1.5 MiB. This leaves room for the rest of a Cluster; 5,000 ordinary nodes need half of it.
const MOST_OCTETS: usize = 1_000_000;

const LEAVING: [&str; 2] = ["node.kubernetes.io/out-of-service", "ToBeDeletedByClusterAutoscaler"];

/// As much of a Node as is looked at. Images, annotations and managed fields are most of one, and are skipped unread.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Observed {
    pub metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    pub resource_version: String,
    deletion_timestamp: Option<serde::de::IgnoredAny>,
    labels: Option<Labels>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Labels {
    #[serde(rename = "node.kubernetes.io/exclude-from-external-load-balancers")]
    excluded: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Spec {
    unschedulable: Option<bool>,
    taints: Option<Vec<Taint>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Taint {
    key: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Option<Vec<Condition>>,
    addresses: Option<Vec<Address>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Address {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

impl Observed {
    /// `None` for a node that does not count at all.
    pub fn entry(&self) -> Option<Node> {
        let excluded = self.metadata.labels.as_ref().is_some_and(|labels| labels.excluded.is_some());
        if excluded || self.metadata.name.parse::<ObjectName>().is_err() {
            return None;
        }
        Some(Node { name: self.metadata.name.clone(), addresses: self.addresses(), ready: self.is_ready() })
    }

    fn is_ready(&self) -> bool {
        let conditions = self.status.conditions.as_deref().unwrap_or_default();
        let ready = conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == "True");
        let taints = self.spec.taints.as_deref().unwrap_or_default();
        let leaving = self.spec.unschedulable == Some(true)
            || self.metadata.deletion_timestamp.is_some()
            || taints.iter().any(|taint| LEAVING.contains(&taint.key.as_str()));
        ready && !leaving
    }

    /// External before internal, for each family by itself: a node with a public IPv6 and a translated private IPv4
    /// address is reached by both. Sorted, so that the same facts make the same list.
    fn addresses(&self) -> Vec<IpAddr> {
        let of = |kind: &str, is_v4: bool| -> Vec<IpAddr> {
            let given = self.status.addresses.iter().flatten().filter(|address| address.kind == kind);
            given
                .filter_map(|address| address.address.parse::<IpAddr>().ok())
                .map(|address| address.to_canonical())
                .filter(|address| address.is_ipv4() == is_v4 && Reach::of(*address) == Reach::Ordinary)
                .collect()
        };
        let best = |is_v4| {
            let external = of("ExternalIP", is_v4);
            if external.is_empty() { of("InternalIP", is_v4) } else { external }
        };
        let mut addresses = [best(true), best(false)].concat();
        addresses.sort_unstable();
        addresses.dedup();
        addresses.truncate(MOST_ADDRESSES);
        addresses
    }
}

/// The nodes of one cluster, by name.
#[derive(Debug, Clone, Default)]
pub struct NodeSet {
    nodes: BTreeMap<Arc<str>, Arc<Node>>,
    octets: usize,
    /// Whether some did not fit; they are looked at again when the cluster is listed anew.
    cut: bool,
}

impl NodeSet {
    /// Whether the list is another one now.
    pub fn apply(&mut self, seen: &Observed) -> bool {
        let Some(entry) = seen.entry() else { return self.remove(&seen.metadata.name) };
        match self.nodes.get(entry.name.as_str()) {
            Some(known) if **known == entry => false,
            _ => {
                self.insert(entry);
                true
            }
        }
    }

    pub fn remove(&mut self, name: &str) -> bool {
        let removed = self.nodes.remove(name);
        self.octets -= removed.as_deref().map_or(0, octets);
        removed.is_some()
    }

    /// Where there are too many, the first by name are kept: every reader of the same cluster keeps the same ones.
    fn insert(&mut self, entry: Node) {
        self.remove(&entry.name);
        self.octets += octets(&entry);
        self.nodes.insert(entry.name.as_str().into(), Arc::new(entry));
        while self.nodes.len() > MOST_NODES || self.octets > MOST_OCTETS {
            let last = self.nodes.pop_last();
            self.octets -= last.as_ref().map_or(0, |(_, node)| octets(node));
            self.cut = true;
        }
    }

    pub fn is_cut(&self) -> bool {
        self.cut
    }

    pub fn to_list(&self) -> Arc<[Arc<Node>]> {
        self.nodes.values().map(Arc::clone).collect()
    }
}

impl FromIterator<Node> for NodeSet {
    fn from_iter<T: IntoIterator<Item = Node>>(nodes: T) -> Self {
        let mut set = Self::default();
        nodes.into_iter().for_each(|node| set.insert(node));
        set
    }
}

/// About what it takes in the Cluster's status: names, quotes and the longest form of its addresses.
fn octets(node: &Node) -> usize {
    48 + node.name.len() + node.addresses.iter().map(|address| if address.is_ipv4() { 18 } else { 42 }).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

    fn observed(change: &serde_json::Value) -> Observed {
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n1", "resourceVersion": "7", "managedFields": [{"manager": "kubelet"}]},
            "spec": {"podCIDR": "10.244.0.0/24"},
            "status": {
                "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
                "addresses": [{"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "10.1.0.1"}],
                "images": [{"names": ["registry.example/app@sha256:0"], "sizeBytes": 1}],
            },
        });
        merge(&mut node, change);
        serde_json::from_value(node).unwrap()
    }

    fn merge(into: &mut serde_json::Value, change: &serde_json::Value) {
        match (into.as_object_mut(), change.as_object()) {
            (Some(into), Some(change)) => {
                for (key, value) in change {
                    merge(into.entry(key).or_insert(serde_json::Value::Null), value);
                }
            }
            _ => *into = change.clone(),
        }
    }

    #[test]
    fn who_is_ready() {
        let ready = |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        let taint = |key: &str| json!({"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}});
        for (change, expected) in [
            (json!({}), Some(true)),
            (ready("False"), Some(false)),
            (ready("Unknown"), Some(false)),
            (ready("true"), Some(false)),
            (json!({"status": {"conditions": []}}), Some(false)),
            (json!({"status": {"conditions": null}}), Some(false)),
            (json!({"spec": {"unschedulable": true}}), Some(false)),
            (json!({"spec": {"unschedulable": false}}), Some(true)),
            (json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), Some(false)),
            (taint("node.kubernetes.io/out-of-service"), Some(false)),
            (taint("ToBeDeletedByClusterAutoscaler"), Some(false)),
            (taint("node-role.kubernetes.io/control-plane"), Some(true)),
            (json!({"metadata": {"labels": {EXCLUDED: ""}}}), None),
            (json!({"metadata": {"labels": {EXCLUDED: "false"}}}), None),
            (json!({"metadata": {"labels": {"env": "prod"}}}), Some(true)),
            (json!({"metadata": {"name": ""}}), None),
            (json!({"metadata": {"name": "No\nName"}}), None),
        ] {
            assert_eq!(observed(&change).entry().map(|node| node.ready), expected, "{change}");
        }
    }

    #[test]
    fn which_addresses_count() {
        type Case = (&'static [(&'static str, &'static str)], &'static [&'static str]);
        let cases: [Case; 9] = [
            (&[("InternalIP", "10.1.0.1")], &["10.1.0.1"]),
            (&[("InternalIP", "10.1.0.1"), ("ExternalIP", "192.0.2.1")], &["192.0.2.1"]),
            (&[("ExternalIP", "192.0.2.9"), ("ExternalIP", "192.0.2.1")], &["192.0.2.1", "192.0.2.9"]),
            // Each family by itself.
            (&[("InternalIP", "10.1.0.1"), ("ExternalIP", "2001:db8::1")], &["10.1.0.1", "2001:db8::1"]),
            (
                &[("InternalIP", "fd00::1"), ("InternalIP", "10.1.0.1"), ("ExternalIP", "192.0.2.1")],
                &["192.0.2.1", "fd00::1"],
            ),
            // An external address that is no use does not hide an internal one.
            (&[("ExternalIP", "127.0.0.1"), ("InternalIP", "10.1.0.1")], &["10.1.0.1"]),
            (&[("InternalIP", "169.254.169.254"), ("InternalIP", "fe80::1"), ("InternalIP", "::ffff:127.0.0.1")], &[]),
            (&[("InternalIP", "10.1.0.1"), ("InternalIP", "::ffff:10.1.0.1")], &["10.1.0.1"]),
            (&[("InternalIP", "not-an-address"), ("InternalDNS", "10.1.0.1"), ("Hostname", "10.1.0.2")], &[]),
        ];
        for (given, expected) in cases {
            let addresses: Vec<_> =
                given.iter().map(|(kind, address)| json!({"type": kind, "address": address})).collect();
            let node = observed(&json!({"status": {"addresses": addresses}})).entry().unwrap();
            let expected: Vec<IpAddr> = expected.iter().map(|address| address.parse().unwrap()).collect();
            assert_eq!(node.addresses, expected, "{given:?}");
        }
    }

    #[test]
    fn a_node_has_no_more_addresses_than_fit() {
        let many: Vec<_> = (0..100).map(|i| json!({"type": "InternalIP", "address": format!("10.0.1.{i}")})).collect();
        let node = observed(&json!({"status": {"addresses": many}})).entry().unwrap();
        assert_eq!(node.addresses.len(), MOST_ADDRESSES);
        assert_eq!(node.addresses[0], "10.0.1.0".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn only_what_counts_is_a_change() {
        let mut set = NodeSet::default();
        assert!(set.apply(&observed(&json!({}))));
        assert!(!set.apply(&observed(&json!({"metadata": {"resourceVersion": "8"}, "status": {"images": []}}))));
        assert!(set.apply(&observed(&json!({"spec": {"unschedulable": true}}))));
        assert!(set.apply(&observed(&json!({"metadata": {"labels": {EXCLUDED: ""}}}))));
        assert!(set.to_list().is_empty());
        assert!(!set.remove("n1"));
    }

    #[test]
    fn the_first_nodes_by_name_are_kept_in_whatever_order_they_come() {
        let names: Vec<String> = (0..MOST_NODES + 7).map(|i| format!("n{i:05}")).collect();
        let mut set = NodeSet::default();
        for name in names.iter().rev() {
            set.apply(&observed(&json!({"metadata": {"name": name}})));
        }
        let list = set.to_list();
        assert!(list.iter().map(|node| &node.name).eq(&names[..MOST_NODES]));
        assert!(set.is_cut());
    }

    #[test]
    fn long_names_are_cut_before_etcd_refuses_them() {
        let many: Vec<_> =
            (0..8).map(|i| json!({"type": "InternalIP", "address": format!("2001:db8:ffff::{i}")})).collect();
        let mut set = NodeSet::default();
        for i in 0..MOST_NODES {
            let name = format!("n{i:05}-{}", "x".repeat(200));
            set.apply(&observed(&json!({"metadata": {"name": name}, "status": {"addresses": many}})));
        }
        assert!(set.is_cut() && set.octets <= MOST_OCTETS);
        assert_eq!(set.octets, set.to_list().iter().map(|node| octets(node)).sum::<usize>());
    }
}
