//! Which control plane a pod of the hub is of, by its address: for a resolver that has one address for all of them.
//!
//! A pod says by its label which Cluster it belongs to, and counts in the namespace that the Cluster names as its control plane's
//! alone. Pods in the network of their node are never told apart by address, and neither is an address that two of them have.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use manifest::pod_dns::CONTROL_PLANE_LABEL;
use model::{ClusterName, ObjectName, Snapshot};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use super::objects::Place;
use super::watch::{Change, tell};

/// How often what was heard is put together: pods come and go by the dozen.
const TICK: Duration = Duration::from_millis(250);
const WAITING: usize = 256;
/// Pods that are kept: a dozen for each of 8,000 clusters. Those above are not known by their address.
const MOST: usize = 100_000;
/// A pod has one of each family.
const MOST_ADDRESSES: usize = 4;

pub type ByAddress = HashMap<IpAddr, ClusterName>;

/// Never ends by itself.
pub async fn follow_pods(client: Client, plan: Arc<ArcSwap<Snapshot>>, publish: impl Fn(ByAddress) + Send) {
    let (sender, mut heard) = mpsc::channel(WAITING);
    let following = tell(Api::<Pod>::all(client), CONTROL_PLANE_LABEL.to_owned(), &sender, |change| change);
    let keeping = async {
        let mut pods = Pods::default();
        let (mut changed, mut planned) = (false, None);
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                change = heard.recv() => match change {
                    Some(change) => changed |= pods.take(change),
                    None => return,
                },
                _ = ticks.tick() => {
                    let plan = plan.load_full();
                    if changed || planned != Some(plan.revision) {
                        (changed, planned) = (false, Some(plan.revision));
                        publish(pods.by_address(|name| plan.cluster(name)?.resolver.namespace.clone()));
                    }
                }
            }
        }
    };
    tokio::join!(following, keeping);
}

/// Those that have an address of their own.
#[derive(Default)]
struct Pods(BTreeMap<Place, Seen>);

#[derive(Debug, PartialEq, Eq)]
struct Seen {
    cluster: ClusterName,
    addresses: Vec<IpAddr>,
}

impl Pods {
    /// Whether something is another now.
    fn take(&mut self, change: Change<Pod>) -> bool {
        match change {
            Change::Listed(pods) => {
                self.0.clear();
                for pod in pods {
                    self.put(&pod);
                }
                true
            }
            Change::Changed(pod) => self.put(&pod),
            Change::Gone(pod) => place(&pod).is_some_and(|place| self.0.remove(&place).is_some()),
        }
    }

    fn put(&mut self, pod: &Pod) -> bool {
        let Some(place) = place(pod) else { return false };
        let Some(seen) = read(pod) else { return self.0.remove(&place).is_some() };
        if self.0.get(&place) == Some(&seen) || (self.0.len() >= MOST && !self.0.contains_key(&place)) {
            return false;
        }
        self.0.insert(place, seen);
        true
    }

    fn by_address(&self, namespace: impl Fn(&ClusterName) -> Option<ObjectName>) -> ByAddress {
        let mut found: HashMap<IpAddr, Option<&ClusterName>> = HashMap::new();
        for ((within, _), Seen { cluster, addresses }) in &self.0 {
            if namespace(cluster).is_none_or(|namespace| namespace.as_str() != within) {
                continue;
            }
            for address in addresses {
                let known = found.entry(*address).or_insert(Some(cluster));
                // Of two clusters at one address, nobody knows which asks.
                if known.is_some_and(|known| known != cluster) {
                    *known = None;
                }
            }
        }
        found.into_iter().filter_map(|(address, cluster)| Some((address, cluster?.clone()))).collect()
    }
}

fn place(pod: &Pod) -> Option<Place> {
    Some((pod.metadata.namespace.clone()?, pod.metadata.name.clone()?))
}

/// `None` for one that has no address of its own, or none any more.
fn read(pod: &Pod) -> Option<Seen> {
    let cluster = pod.metadata.labels.as_ref()?.get(CONTROL_PLANE_LABEL)?.parse().ok()?;
    if pod.spec.as_ref()?.host_network == Some(true) {
        return None;
    }
    let status = pod.status.as_ref()?;
    // Its address may be another's by now.
    if ["Succeeded", "Failed"].contains(&status.phase.as_deref().unwrap_or_default()) {
        return None;
    }
    let addresses = status.pod_ips.iter().flatten().filter_map(|address| address.ip.parse().ok());
    let addresses: Vec<IpAddr> = addresses.take(MOST_ADDRESSES).collect();
    (!addresses.is_empty()).then_some(Seen { cluster, addresses })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(namespace: &str, name: &str, cluster: &str, addresses: &[&str], more: &Value) -> Pod {
        let addresses: Vec<Value> = addresses.iter().map(|address| json!({ "ip": address })).collect();
        serde_json::from_value(json!({
            "metadata": { "namespace": namespace, "name": name, "labels": { CONTROL_PLANE_LABEL: cluster } },
            "spec": { "containers": [], "hostNetwork": more["hostNetwork"] },
            "status": { "phase": more["phase"], "podIPs": addresses },
        }))
        .unwrap()
    }

    #[test]
    fn a_pod_is_known_by_its_own_address_in_its_own_namespace() {
        let mut pods = Pods::default();
        let plain = json!({ "phase": "Running" });
        for (namespace, name, cluster, addresses, more) in [
            ("cluster-c1", "a", "c1", &["10.0.0.1", "fd00::1"][..], &plain),
            ("cluster-c2", "a", "c2", &["10.0.0.2"], &plain),
            // A tenant's that says it is another's.
            ("acme", "thief", "c1", &["10.0.0.3"], &plain),
            ("cluster-c1", "host", "c1", &["10.0.0.4"], &json!({ "hostNetwork": true })),
            ("cluster-c1", "done", "c1", &["10.0.0.5"], &json!({ "phase": "Failed" })),
            ("cluster-c1", "new", "c1", &[], &json!({ "phase": "Pending" })),
            // Two at one address.
            ("cluster-c1", "b", "c1", &["10.0.0.6"], &plain),
            ("cluster-c2", "b", "c2", &["10.0.0.6"], &plain),
        ] {
            pods.take(Change::Changed(pod(namespace, name, cluster, addresses, more)));
        }
        let namespace = |name: &ClusterName| format!("cluster-{name}").parse().ok();
        let show = |pods: &Pods| {
            let mut shown: Vec<_> =
                pods.by_address(namespace).into_iter().map(|(at, of)| format!("{at} {of}")).collect();
            shown.sort();
            shown
        };
        assert_eq!(show(&pods), ["10.0.0.1 c1", "10.0.0.2 c2", "fd00::1 c1"]);
        assert!(!pods.take(Change::Changed(pod("cluster-c1", "a", "c1", &["10.0.0.1", "fd00::1"], &plain))));
        assert!(pods.take(Change::Gone(pod("cluster-c2", "b", "c2", &["10.0.0.6"], &plain))));
        assert!(pods.take(Change::Changed(pod(
            "cluster-c1",
            "a",
            "c1",
            &["10.0.0.1"],
            &json!({ "phase": "Succeeded" })
        ))));
        assert_eq!(show(&pods), ["10.0.0.2 c2", "10.0.0.6 c1"]);
        assert_eq!(pods.by_address(|_| None), ByAddress::new());
    }

    #[test]
    fn what_is_kept_has_a_bound() {
        let mut pods = Pods::default();
        for number in 0..MOST + 5 {
            pods.take(Change::Changed(pod("n", &format!("p{number}"), "c1", &["10.0.0.1"], &json!({}))));
        }
        assert_eq!(pods.0.len(), MOST);
    }
}
