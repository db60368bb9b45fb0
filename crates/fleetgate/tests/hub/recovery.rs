//! What happens to a hub over the years, without a restart of ours.

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
