//! A federated Ingress, from the hub into the members, and back from their endpoints to the answers of DNS.

use serde_json::json;
use testbed::ApiServer;

use crate::fixture::{Server, ZONE, eventually, field, hub, kubeconfig_secret, wait_for_answer, watched_cluster};

pub(crate) const SHOP: &str = "\
apiVersion: fleetgate.dev/v1alpha1
kind: FederationPolicy
metadata: {name: straight}
spec: {entry: dns, steering: {mode: roundRobin}}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: straight}
spec: {controller: fleetgate.dev/ingress, parameters: {apiGroup: fleetgate.dev, kind: FederationPolicy, name: straight}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop, namespace: acme}
spec:
  ingressClassName: straight
  rules:
  - host: shop.c0.fleet.example
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: shop, port: {number: 80}}}}]}
";

#[test]
fn an_ingress_is_placed_and_dns_leaves_out_members_without_ready_endpoints() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let hub = hub(&kubernetes);
    hub.kubectl_apply(ZONE).unwrap();
    let members: Vec<ApiServer> = (0..2).map(|_| ApiServer::start(&kubernetes).unwrap()).collect();
    for (number, member) in members.iter().enumerate() {
        let name = format!("c{number}");
        member.kubectl(&["create", "namespace", "acme"]).unwrap();
        hub.kubectl_apply(&kubeconfig_secret(&name, member.kubeconfig())).unwrap();
        let controller = format!("  ingress: {{className: own-{number}, https: ['198.51.100.{number}:443']}}\n");
        hub.kubectl_apply(&format!("{}{controller}", watched_cluster(&name))).unwrap();
    }
    hub.kubectl_apply(SHOP).unwrap();
    // Nobody is at the members' addresses: checks would find that out in time, and where all fail, all count as well.
    let arguments = ["serve", "--hub", "--dns", "127.0.0.1:0", "--no-checks"];
    let server = Server::start_informed(hub.kubeconfig_path(), &arguments);

    let ingress = ["ingress", "--namespace=acme", "shop", "--ignore-not-found"];
    for (number, member) in members.iter().enumerate() {
        eventually("the Ingress is there", || {
            (field(member, &ingress, ".spec.ingressClassName") == format!("own-{number}")).then_some(())
        });
    }
    let part = |cluster: &str| {
        let of_part = format!(".spec.parts[?(@.part==\"{cluster}\")].code");
        field(&hub, &["verdict", "--namespace=acme", "shop", "--ignore-not-found"], &of_part)
    };
    eventually("the missing Service is told", || {
        (part("c0") == "NoService" && part("c1") == "NoService").then_some(())
    });
    // Where none serves, all are tried.
    wait_for_answer(&server, "shop.c0.fleet.example", &["198.51.100.0", "198.51.100.1"]);

    serve(&members[0], true);
    wait_for_answer(&server, "shop.c0.fleet.example", &["198.51.100.0"]);
    serve(&members[1], false);
    eventually("nothing is ready there", || (part("c1") == "NoReadyEndpoints").then_some(()));
    serve(&members[1], true);
    wait_for_answer(&server, "shop.c0.fleet.example", &["198.51.100.0", "198.51.100.1"]);
    serve(&members[0], false);
    wait_for_answer(&server, "shop.c0.fleet.example", &["198.51.100.1"]);
    let entry = ".status.loadBalancer.ingress[*].ip";
    eventually("the status has who serves", || {
        (field(&hub, &["ingress", "--namespace=acme", "shop"], entry) == "198.51.100.1").then_some(())
    });

    hub.kubectl(&["delete", "ingress", "--namespace=acme", "shop"]).unwrap();
    for member in &members {
        eventually("the Ingress is gone", || {
            member.kubectl(&["get", "ingress", "-A", "--output=name"]).unwrap().is_empty().then_some(())
        });
    }
    assert!(server.get("/metrics").contains("fleetgate_tenants_ingresses_written_total{outcome=\"ok\"} 2"));
}

/// A Service with one endpoint, ready or not.
fn serve(member: &ApiServer, ready: bool) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop", "namespace": "acme"},
        "spec": {"ports": [{"port": 80}]},
    });
    let labels = json!({"kubernetes.io/service-name": "shop"});
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "shop-1", "namespace": "acme", "labels": labels}, "addressType": "IPv4",
        "ports": [{"name": "", "port": 8080}],
        "endpoints": [{"addresses": ["10.1.0.1"], "conditions": {"ready": ready}}],
    });
    member.kubectl_apply(&format!("{service}\n---\n{slice}")).unwrap();
}
