//! The roles as processes of their own: one writes, the others only read and come to the same.

use testbed::ApiServer;

use crate::fixture::{Server, ZONE, eventually, field, given_cluster, hub, wait_for_answer};

/// A control plane behind a Service of the hub, with its endpoints as the controller manager would write them.
fn control_plane(namespace: &str, address: &str, port: u16) -> String {
    format!(
        "\
apiVersion: v1
kind: Service
metadata: {{name: kube-apiserver, namespace: {namespace}}}
spec: {{clusterIP: None, ports: [{{name: https, port: 443, targetPort: {port}}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: kube-apiserver-1, namespace: {namespace}, labels: {{kubernetes.io/service-name: kube-apiserver}}}}
addressType: IPv4
ports: [{{name: https, port: {port}, protocol: TCP}}]
endpoints: [{{addresses: [{address}], conditions: {{ready: true}}}}]
"
    )
}

fn cluster_behind_service(name: &str, namespace: &str) -> String {
    given_cluster(name, 1).replace(
        "{addresses: [\"127.0.0.1:9\"]}",
        &format!("{{service: {{namespace: {namespace}, name: kube-apiserver, port: 443}}}}"),
    )
}

fn number(hub: &ApiServer) -> String {
    field(hub, &["zones.fleetgate.dev", "main"], ".status.serial")
}

#[test]
fn replicas_serve_the_number_that_the_leader_gives() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let hub = hub(&kubernetes);
    hub.kubectl_apply(ZONE).unwrap();
    hub.kubectl_apply(&given_cluster("c1", 1)).unwrap();
    let config = hub.kubeconfig_path();
    let _controller = Server::start_informed(config, &["controller"]);
    let replicas = [(); 2].map(|()| Server::start_informed(config, &["dns", "--dns", "127.0.0.1:0"]));
    let agree = || {
        let number = number(&hub);
        let serials = replicas.each_ref().map(|replica| replica.serial("fleet.example").to_string());
        (serials == [number.clone(), number]).then_some(())
    };
    for replica in &replicas {
        wait_for_answer(replica, "shop.c1.fleet.example", &["198.51.100.1"]);
    }
    eventually("the leader numbers the zone", agree);
    // As in a folder: the objects and what became of them, from any process.
    eventually("the object is shown", || {
        let shown = replicas[0].get("/v1/objects/clusters/c1");
        (shown.contains("\"tenant\":\"acme\"") && shown.contains("api.c1.fleet.example")).then_some(())
    });
    let explained = replicas[0].get("/v1/explain?name=shop.c1.fleet.example");
    assert!(explained.contains("198.51.100.1"), "{explained}");
    for node in 2..12 {
        hub.kubectl_apply(&given_cluster("c1", node)).unwrap();
        let address = format!("198.51.100.{node}");
        for replica in &replicas {
            wait_for_answer(replica, "shop.c1.fleet.example", &[&address]);
        }
        // At once where the leader took less than a second; this machine may be busy.
        eventually("all show the leader's number", agree);
    }
}

#[test]
fn a_gateway_follows_the_endpoints_of_a_service() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let hub = hub(&kubernetes);
    hub.kubectl_apply(ZONE).unwrap();
    hub.kubectl_apply(&cluster_behind_service("c1", "acme")).unwrap();
    let _controller = Server::start_informed(hub.kubeconfig_path(), &["controller"]);
    let gateway = Server::start_informed(hub.kubeconfig_path(), &["gateway", "--apiserver", "127.0.0.1:0"]);
    // Asked, not connected to: an endpoint of a Service is never on loopback.
    let leads_to = |place: &str| gateway.get("/v1/explain?tlv=c1").contains(place);
    assert!(!leads_to("kube-apiserver"), "there is no endpoint yet");
    let condition = ".status.conditions[?(@.type==\"DoorOpen\")].reason";
    eventually("the cluster says why its door is closed", || {
        (field(&hub, &["clusters.fleetgate.dev", "c1"], condition) == "NoEndpoints").then_some(())
    });

    for (address, port) in [("192.0.2.7", 6443), ("192.0.2.8", 6444)] {
        hub.kubectl_apply(&control_plane("acme", address, port)).unwrap();
        eventually("the door leads to the Service's endpoint", || leads_to(&format!("{address}:{port}")).then_some(()));
    }
    eventually("the door is said to be open", || {
        (field(&hub, &["clusters.fleetgate.dev", "c1"], condition) == "Open").then_some(())
    });
}
