//! A cluster that is drained by the command line and had back by `kubectl`: both are the same annotation.

use crate::fixture::{Server, ZONE, eventually, field, fleetgate, given_cluster, hub, wait_for_answer};
use crate::placing::SHOP;

const CLUSTER: [&str; 2] = ["clusters.fleetgate.dev", "c0"];

#[test]
fn a_drained_cluster_is_left_out_until_its_annotation_is_gone() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let hub = hub(&kubernetes);
    hub.kubectl_apply(ZONE).unwrap();
    for number in 0..2 {
        let controller = format!("  ingress: {{https: ['198.51.100.{number}:443']}}\n");
        hub.kubectl_apply(&format!("{}{controller}", given_cluster(&format!("c{number}"), number))).unwrap();
    }
    hub.kubectl_apply(SHOP).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let admin = folder.path().join("admin");
    std::fs::write(&admin, "a-secret-of-at-least-32-characters").unwrap();
    let arguments =
        ["serve", "--hub", "--dns", "127.0.0.1:0", "--no-checks", "--admin-credential", admin.to_str().unwrap()];
    let server = Server::start_informed(hub.kubeconfig_path(), &arguments);
    let shop = "shop.c0.fleet.example";
    wait_for_answer(&server, shop, &["198.51.100.0", "198.51.100.1"]);

    let mut command = fleetgate();
    command.args(["drain", "c0", "--admin", &server.address("admin").to_string(), "--admin-credential"]).arg(&admin);
    let drained = command.output().unwrap();
    assert!(drained.status.success(), "{drained:?}");
    wait_for_answer(&server, shop, &["198.51.100.1"]);
    let since = field(&hub, &CLUSTER, ".metadata.annotations.fleetgate\\.dev/drained");
    let (second, _) = since.split_once('.').expect("a moment with a part of a second");
    assert!(String::from_utf8_lossy(&drained.stdout).contains(second), "{drained:?}: {since}");
    eventually("the Cluster says so", || {
        let reason = field(&hub, &CLUSTER, ".status.conditions[?(@.type==\"Drained\")].reason");
        (reason == "Drained" && field(&hub, &CLUSTER, ".status.state") == "Drained").then_some(())
    });

    hub.kubectl(&["annotate", "clusters.fleetgate.dev", "c0", "fleetgate.dev/drained-"]).unwrap();
    wait_for_answer(&server, shop, &["198.51.100.0", "198.51.100.1"]);
    eventually("the Cluster says nothing of it", || {
        field(&hub, &CLUSTER, ".status.conditions[?(@.type==\"Drained\")].reason").is_empty().then_some(())
    });
    // Whatever stands there: it is what somebody wants.
    hub.kubectl(&["annotate", "clusters.fleetgate.dev", "c0", "fleetgate.dev/drained=yes"]).unwrap();
    wait_for_answer(&server, shop, &["198.51.100.1"]);
    // And nothing is taken away by what is no moment where one should be.
    hub.kubectl(&["annotate", "zones.fleetgate.dev", "main", "fleetgate.dev/released=now"]).unwrap();
    eventually("the log says that it does not count", || {
        server.process.log_tail().contains("nothing is let go: fleetgate.dev/released").then_some(())
    });
    wait_for_answer(&server, shop, &["198.51.100.1"]);
}
