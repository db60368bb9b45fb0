//! Objects that the API server lets pass and that cannot be served: each says why, and nobody else is held up.

use crate::fixture::{
    Server, ZONE, eventually, field, given_cluster, hub, kubeconfig_secret, wait_for_answer, watched_cluster,
};

#[test]
fn what_cannot_be_read_says_why_and_holds_nobody_up() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let hub = hub(&kubernetes);
    hub.kubectl_apply(ZONE).unwrap();
    let exec = "apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: 'https://192.0.2.1:6443'}}]
users: [{name: a, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/hush-hush, interactiveMode: Never}}}]
";
    hub.kubectl_apply(&kubeconfig_secret("c1", exec)).unwrap();
    hub.kubectl_apply(&watched_cluster("c1")).unwrap();
    // No Secret at all.
    hub.kubectl_apply(&watched_cluster("c2")).unwrap();
    hub.kubectl_apply(&given_cluster("c3", 3)).unwrap();
    // Two with one id. Who of them was first is known to the second only, and then goes by the UID.
    for name in ["c4", "c5"] {
        hub.kubectl_apply(&given_cluster(name, 4).replace("  tenant:", "  clusterID: both\n  tenant:")).unwrap();
    }
    let server = Server::start_informed(hub.kubeconfig_path(), &["serve", "--hub", "--dns", "127.0.0.1:0"]);
    wait_for_answer(&server, "shop.c3.fleet.example", &["198.51.100.3"]);

    let condition = |cluster: &str, kind: &str, of: &str| {
        field(&hub, &["clusters.fleetgate.dev", cluster], &format!(".status.conditions[?(@.type==\"{kind}\")].{of}"))
    };
    for (cluster, reason) in [("c1", "BadKubeconfig"), ("c2", "NoKubeconfig")] {
        eventually(&format!("{cluster} says {reason}"), || {
            (condition(cluster, "Reachable", "reason") == reason).then_some(())
        });
    }
    eventually("one of the two has the id", || {
        let mut reasons = ["c4", "c5"].map(|cluster| condition(cluster, "Accepted", "reason"));
        reasons.sort();
        (reasons == ["ClusterIdTaken", "Valid"]).then_some(())
    });
    let message = condition("c1", "Reachable", "message");
    assert!(message.contains("fleetgate-system/c1") && message.contains("exec"), "{message}");
    assert!(!message.contains("hush") && !server.process.log().contains("hush"), "{message}");
    assert!(condition("c2", "Reachable", "message").contains("fleetgate-system/c2"));
}
