//! What happens to a hub over the years, without a restart of ours.

use std::fs;
use std::time::Duration;

use crate::fixture::{Server, ZONE, eventually, field, given_cluster, hub, wait_for_answer};

#[test]
fn a_deleted_crd_and_conflicting_edits_are_survived() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let hub = hub(&kubernetes);
    hub.kubectl_apply(ZONE).unwrap();
    hub.kubectl_apply(&given_cluster("c1", 1)).unwrap();
    let server = Server::start_informed(hub.kubeconfig_path(), &["serve", "--hub", "--dns", "127.0.0.1:0"]);
    wait_for_answer(&server, "shop.c1.fleet.example", &["198.51.100.1"]);

    // Somebody takes our fields over; they come back.
    let endpoint = ["-n", "fleetgate-publish", "dnsendpoint", "c1"];
    let targets = ".spec.endpoints[?(@.dnsName==\"*.c1.fleet.example\")].targets";
    eventually("the DNSEndpoint is there", || (field(&hub, &endpoint, targets) == r#"["198.51.100.1"]"#).then_some(()));
    hub.kubectl_with_input(
        &["apply", "--server-side", "--force-conflicts", "--field-manager=somebody", "-f", "-"],
        "\
apiVersion: externaldns.k8s.io/v1alpha1
kind: DNSEndpoint
metadata: {name: c1, namespace: fleetgate-publish, annotations: {somebody: here}}
spec: {endpoints: [{dnsName: evil.example, recordType: A, targets: [203.0.113.66]}]}
",
    )
    .unwrap();
    eventually("our fields are back", || (field(&hub, &endpoint, targets) == r#"["198.51.100.1"]"#).then_some(()));
    assert_eq!(field(&hub, &endpoint, ".metadata.annotations.somebody"), "here");
    hub.kubectl(&["-n", "fleetgate-publish", "delete", "dnsendpoint", "c1"]).unwrap();
    eventually("it is made again", || (field(&hub, &endpoint, targets) == r#"["198.51.100.1"]"#).then_some(()));

    hub.kubectl(&["delete", "crd", "clusters.fleetgate.dev"]).unwrap();
    wait_for_answer(&server, "shop.c1.fleet.example", &[]);
    hub.kubectl_apply(&manifest::crds::to_yaml()).unwrap();
    hub.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]).unwrap();
    hub.kubectl_apply(&given_cluster("c1", 2)).unwrap();
    wait_for_answer(&server, "shop.c1.fleet.example", &["198.51.100.2"]);
}

/// The process sleeps, the hub goes on, forgets how and restarts: the watch that wakes up gets `410 Gone`.
#[test]
fn what_changed_while_the_watch_was_gone_is_found() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let mut hub = hub(&kubernetes);
    hub.kubectl_apply(ZONE).unwrap();
    hub.kubectl_apply(&given_cluster("c1", 1)).unwrap();
    hub.kubectl_apply(&given_cluster("c2", 2)).unwrap();
    let mut dns = Server::start_informed(hub.kubeconfig_path(), &["dns", "--dns", "127.0.0.1:0"]);
    wait_for_answer(&dns, "shop.c1.fleet.example", &["198.51.100.1"]);

    dns.process.signal("STOP").unwrap();
    hub.kubectl_apply(&given_cluster("c1", 11)).unwrap();
    hub.kubectl(&["delete", "clusters.fleetgate.dev", "c2"]).unwrap();
    hub.kubectl_apply(&given_cluster("c3", 3)).unwrap();
    hub.compact().unwrap();
    hub.stop().unwrap();
    hub.start_again().unwrap();
    dns.process.signal("CONT").unwrap();
    wait_for_answer(&dns, "shop.c1.fleet.example", &["198.51.100.11"]);
    wait_for_answer(&dns, "shop.c2.fleet.example", &[]);
    wait_for_answer(&dns, "shop.c3.fleet.example", &["198.51.100.3"]);
}

/// As a pod's token does, which the kubelet replaces in its file.
#[test]
fn a_token_that_has_expired_is_read_again() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let hub = hub(&kubernetes);
    hub.kubectl_apply(ZONE).unwrap();
    hub.kubectl_apply(&given_cluster("c1", 1)).unwrap();
    hub.kubectl(&["-n", "fleetgate-system", "create", "serviceaccount", "dns"]).unwrap();
    hub.kubectl(&[
        "create",
        "clusterrolebinding",
        "dns",
        "--clusterrole=cluster-admin",
        "--serviceaccount=fleetgate-system:dns",
    ])
    .unwrap();
    let token = hub.work_dir().join("token");
    let expiring = hub.expiring_token("fleetgate-system", "dns", Duration::from_secs(15)).unwrap();
    fs::write(&token, expiring).unwrap();
    let config = hub.work_dir().join("with-token-file");
    let by_file = format!("tokenFile: {}", token.display());
    let placeholder = hub.kubeconfig_with_token("PLACEHOLDER");
    assert!(placeholder.contains("token: PLACEHOLDER"), "{placeholder}");
    fs::write(&config, placeholder.replace("token: PLACEHOLDER", &by_file)).unwrap();
    let dns = Server::start_informed(&config, &["dns", "--dns", "127.0.0.1:0"]);
    wait_for_answer(&dns, "shop.c1.fleet.example", &["198.51.100.1"]);

    // A watch that is open stays open; nobody else is let in.
    eventually("the token is not taken any more", || {
        let config = config.to_str().unwrap();
        hub.kubectl(&["--kubeconfig", config, "get", "namespaces"]).is_err().then_some(())
    });
    // The watch has to be begun again, with the token as it is now.
    hub.kubectl(&["delete", "crd", "clusters.fleetgate.dev"]).unwrap();
    hub.kubectl_apply(&manifest::crds::to_yaml()).unwrap();
    hub.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]).unwrap();
    eventually("it is noticed", || dns.get("/metrics").contains("fleetgate_hub_away 1").then_some(()));
    fs::write(&token, hub.service_account_token("fleetgate-system", "dns", Duration::from_hours(1)).unwrap()).unwrap();
    hub.kubectl_apply(&given_cluster("c1", 2)).unwrap();
    wait_for_answer(&dns, "shop.c1.fleet.example", &["198.51.100.2"]);
}
