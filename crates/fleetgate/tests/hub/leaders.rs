//! Several controllers: one writes, and another goes on when it is gone.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::Value;

use crate::fixture::{Server, ZONE, eventually, field, given_cluster, hub, wait_for_answer};

const CHANGES: usize = 500;
const CLUSTERS: usize = 50;

/// Every cluster changes its node ten times; the leader is killed half way.
#[test]
fn a_leader_that_is_killed_in_a_storm_of_changes_is_followed_without_a_loss() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let hub = hub(&kubernetes);
    hub.kubectl_apply(ZONE).unwrap();
    let node = |change: usize| u8::try_from(change % 250 + 1).unwrap();
    let fleet = |change: usize| {
        let clusters = (0..CLUSTERS).map(|cluster| given_cluster(&format!("c{cluster}"), node(change + cluster)));
        clusters.collect::<Vec<_>>().join("---\n")
    };
    hub.kubectl_apply(&fleet(0)).unwrap();
    let config = hub.kubeconfig_path();
    let dns = Server::start_informed(config, &["dns", "--dns", "127.0.0.1:0"]);
    let mut controllers = [(); 2].map(|()| Server::start_informed(config, &["controller"]));
    let holder = || field(&hub, &["-n", "fleetgate-system", "lease", "fleetgate-controller"], ".spec.holderIdentity");
    let first = eventually("somebody leads", || Some(holder()).filter(|holder| !holder.is_empty()));

    let mut serials = vec![dns.serial("fleet.example")];
    let mut killed = None;
    for round in 1..=CHANGES / CLUSTERS {
        hub.kubectl_apply(&fleet(round)).unwrap();
        serials.push(dns.serial("fleet.example"));
        if round == CHANGES / CLUSTERS / 2 {
            let leader = controllers.iter_mut().find(|server| server.process.log().contains("\"leading"));
            leader.expect("one of them leads").process.signal("KILL").unwrap();
            killed = Some(Instant::now());
        }
    }
    eventually("another one leads", || Some(holder()).filter(|holder| !holder.is_empty() && *holder != first));
    // The Lease itself is timed in the lease's own tests; kubectl takes its time here.
    assert!(killed.is_some_and(|at| at.elapsed().as_secs() < 60));

    let last = CHANGES / CLUSTERS;
    for cluster in 0..CLUSTERS {
        let address = format!("198.51.100.{}", node(last + cluster));
        wait_for_answer(&dns, &format!("shop.c{cluster}.fleet.example"), &[&address]);
    }
    let published = eventually("every DNSEndpoint follows", || {
        let answer = hub.kubectl(&["-n", "fleetgate-publish", "get", "dnsendpoints", "-o", "json"]).unwrap();
        let found: Value = serde_json::from_str(&answer).unwrap();
        let items = found["items"].as_array().cloned().unwrap_or_default();
        let is_current = |item: &Value| {
            let name = item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let cluster: usize = name.trim_start_matches('c').parse().unwrap_or_default();
            item.to_string().contains(&format!("\"198.51.100.{}\"", node(last + cluster)))
        };
        (items.len() == CLUSTERS && items.iter().all(is_current)).then_some(items)
    });
    // Nothing doubled: one object per cluster, one manager of the fields that are ours.
    let names: BTreeSet<String> = published.iter().map(|item| item["metadata"]["name"].to_string()).collect();
    assert_eq!(names.len(), CLUSTERS);
    for item in &published {
        let managers = hub
            .kubectl(&[
                "-n",
                "fleetgate-publish",
                "get",
                "dnsendpoint",
                item["metadata"]["name"].as_str().unwrap(),
                "--show-managed-fields",
                "-o",
                "jsonpath={.metadata.managedFields[*].manager}",
            ])
            .unwrap();
        assert_eq!(managers, "fleetgate");
    }
    // RFC 1982: none of these serials is near the wrap.
    assert!(serials.is_sorted(), "{serials:?}");
    eventually("all replicas and the status agree", || {
        (field(&hub, &["zones.fleetgate.dev", "main"], ".status.serial") == dns.serial("fleet.example").to_string())
            .then_some(())
    });
}
