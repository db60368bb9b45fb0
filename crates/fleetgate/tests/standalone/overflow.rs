//! DNS goes by the measured load: clients of a full member are told of another one, as far as they do not fit.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::agents::{issue, secret};
use crate::load::Stream;
use crate::server::{BASE, Fleet, PATIENCE, Server, nowhere};

const HOST: &str = "shop.c1.fleet.example";

/// Nobody is checked within a test; pods are said to serve 10 requests/s.
const POLICY: &str = "\
apiVersion: fleetgate.dev/v1alpha1
kind: FederationPolicy
metadata: {name: straight}
spec:
  entry: dns
  overflow: {maxRatePerPod: 10}
  health: {interval: 300s, timeout: 1s, unhealthy: 10, healthy: 1}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: straight}
spec:
  controller: fleetgate.dev/ingress
  parameters: {apiGroup: fleetgate.dev, kind: FederationPolicy, name: straight}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop, namespace: acme}
spec:
  ingressClassName: straight
  rules:
  - host: shop.c1.fleet.example
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
";

fn cluster(name: &str, ingress: &str, latitude: f64, longitude: f64) -> String {
    format!(
        "apiVersion: fleetgate.dev/v1alpha1\nkind: Cluster\nmetadata: {{name: {name}}}\nspec:\n  tenant: acme\n  zone: main\n  \
         location: {{latitude: {latitude}, longitude: {longitude}}}\n  \
         controlPlane: {{kubeApiserver: {{addresses: [\"{}\"]}}}}\n  ingress: {{https: [\"{ingress}:9\"]}}\n",
        nowhere()
    )
}

/// What is planned for the clients whose home is c1: the shares of both clusters, and the reason of the second's.
fn planned(server: &Server) -> Option<(f64, f64, String)> {
    let (status, text) = server.http("/v1/overflow?namespace=acme", "localhost");
    assert_eq!(status, 200, "{text}");
    let all: Value = serde_json::from_str(&text).unwrap();
    let rows = all["items"][0]["rows"].as_array()?;
    let row = rows.iter().find(|row| row["edge"] == "dns" && row["home"] == "c1")?;
    let share = |number: usize| row["shares"][number]["share"].as_f64().unwrap();
    Some((share(0), share(1), row["shares"][1]["reason"].as_str().unwrap().to_owned()))
}

#[test]
fn names_lead_elsewhere_as_far_as_a_member_is_full() {
    let fleet = Fleet::new(&[
        ("base.yaml", BASE),
        ("c1.yaml", &cluster("c1", "127.0.0.1", 52.5, 13.4)),
        ("c2.yaml", &cluster("c2", "127.0.0.2", 48.8, 2.3)),
        ("policy.yaml", POLICY),
        ("places.txt", "127.0.0.0/8 52.5 13.4\n"),
    ]);
    secret(&fleet);
    let any = "127.0.0.1:0".parse().unwrap();
    let mut command = fleet.command(any, any);
    command.args(["--agents", "127.0.0.1:0", "--admin-credential"]).arg(fleet.root().join("admin"));
    command.arg("--geo").arg(fleet.folder().join("places.txt"));
    let server = Server::start(&command);
    for _ in 0..20 {
        assert_eq!(server.resolve(HOST, "A"), ["127.0.0.1"], "the nearest");
    }

    let streams = ["c1", "c2"].map(|name| {
        let issued = issue(&fleet, &server, name, &[]);
        Stream::begin(&issued, &issued.enrolled())
    });
    let [mut first, mut second] = streams;
    let mut report = |served: f64| {
        let line = |served: f64| json!([{ "namespace": "acme", "name": "web", "served": served, "utilization": served / 100.0, "ready": 10 }]);
        first.line(&line(served));
        second.line(&line(5.0));
        std::thread::sleep(Duration::from_millis(500));
    };
    // With room for all of them they stay.
    let begun = Instant::now();
    while planned(&server).is_none() {
        report(60.0);
        assert!(begun.elapsed() < PATIENCE, "there is no table");
    }
    let (home, away, reason) = planned(&server).unwrap();
    assert!(home > 0.99 && away < 0.01 && reason == "NotNeeded", "{home} {away} {reason}");
    // With more than it is to be filled to, which is 80, some are told of the other: both are, and the plan says why.
    let (mut told, begun) = (Vec::new(), Instant::now());
    while !["127.0.0.1", "127.0.0.2"].iter().all(|address| told.contains(&(*address).to_owned())) {
        report(95.0);
        told.extend(if planned(&server).is_some_and(|(_, away, _)| away > 0.05) {
            (0..10).flat_map(|_| server.resolve(HOST, "A")).collect()
        } else {
            Vec::new()
        });
        assert!(begun.elapsed() < PATIENCE, "{told:?}: {:?}", planned(&server));
    }
    let (home, away, reason) = planned(&server).unwrap();
    assert!(home > 0.1 && away > 0.05 && reason == "Overflow", "{home} {away} {reason}");
    server.terminate();
}
