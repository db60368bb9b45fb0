//! `fleetgate get routes`: every way in, and where it leads.

use serde_json::Value;

use crate::server::{BASE, Fleet, Server, cluster, fleetgate, nowhere};

/// Two hosts of a tenant's, one with paths of three kinds.
const INGRESSES: &str = "\
{apiVersion: fleetgate.dev/v1alpha1, kind: FederationPolicy, metadata: {name: plain}, spec: {upstreamTLS: {plainText: true}}}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: fleetgate}
spec: {controller: fleetgate.dev/ingress, parameters: {apiGroup: fleetgate.dev, kind: FederationPolicy, name: plain}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop, namespace: acme}
spec:
  ingressClassName: fleetgate
  rules:
  - host: www.c1.fleet.example
    http:
      paths:
      - {path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}
      - {path: /pay, pathType: Exact, backend: {service: {name: pay, port: {name: https}}}}
";

/// A cluster whose applications are reached through the tunnel, with limits.
const INSIDE: &str = "\
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {name: edge}
spec:
  tenant: acme
  zone: main
  clusterID: 3f2b9c1e
  controlPlane: {kubeApiserver: {addresses: ['127.0.0.1:9']}}
  ingress: {mode: hub, service: {namespace: web, name: traefik}}
  allowedSources: [192.0.2.0/24]
  limits: {connections: 50, newConnectionsPerSecond: 5}
";

fn fleet() -> Fleet {
    let plain = cluster("c1", nowhere(), 11) + "  ingress: {http: ['192.0.2.11:80']}\n";
    Fleet::new(&[("base.yaml", BASE), ("c1.yaml", &plain), ("edge.yaml", INSIDE), ("shop.yaml", INGRESSES)])
}

/// How each is found: by what, and what that is.
fn found(answer: &Value) -> Vec<String> {
    let text = |item: &Value, field: &str| item[field].as_str().unwrap_or_default().to_owned();
    let way = |item: &Value| {
        let (by, place, path) = (text(item, "by"), text(item, "match"), text(item, "path"));
        format!("{by} {place}{}", if path.is_empty() { path } else { format!(" {path}") })
    };
    answer["items"].as_array().unwrap().iter().map(way).collect()
}

const ALL: [&str; 8] = [
    "ClusterId 3f2b9c1e",
    "ClusterId c1",
    "ServerName api.c1.fleet.example",
    "ServerName api.edge.fleet.example",
    "AppsTls *.edge.fleet.example",
    "AppsHttp *.edge.fleet.example",
    "Host www.c1.fleet.example /pay",
    "Host www.c1.fleet.example /",
];

#[test]
fn every_way_in_is_listed_with_where_it_leads() {
    let fleet = fleet();
    let server = fleet.serve();
    let all = server.get_json(&["routes"]);
    assert_eq!(found(&all), ALL);
    let by_id = &all["items"][0];
    assert_eq!(
        (&by_id["cluster"], &by_id["tenant"], &by_id["service"]),
        (&"edge".into(), &"acme".into(), &"kube-apiserver".into())
    );
    assert_eq!(by_id["upstreams"], serde_json::json!(["127.0.0.1:9"]));
    assert_eq!(by_id["limits"]["cluster"]["connections"], 50);
    assert_eq!(by_id["allowedSources"], serde_json::json!(["192.0.2.0/24"]));
    assert_eq!(all["items"][4]["inside"], serde_json::json!(["traefik.web.svc:443"]));
    assert_eq!(all["items"][5]["members"][0]["inside"], serde_json::json!(["traefik.web.svc:80"]));
    let exact = &all["items"][6];
    assert_eq!(
        (&exact["pathType"], &exact["service"], &exact["doors"]),
        (&"Exact".into(), &"pay:https".into(), &serde_json::json!(["http"]))
    );
    // All clusters of the tenant serve it.
    assert_eq!(exact["members"].as_array().unwrap().len(), 2);

    let of = |name: &str| found(&server.get_json(&["routes", name]));
    assert_eq!(of("c1.fleet.example"), [ALL[1], ALL[2], ALL[6], ALL[7]], "below a name");
    assert_eq!(of("edge"), [ALL[0], ALL[3], ALL[4], ALL[5], ALL[6], ALL[7]], "to a cluster");
    assert_eq!(of("3f2b9c1e"), [ALL[0]], "by an id");
    assert_eq!(of("nowhere.example"), [""; 0]);

    let table = String::from_utf8(server.get(&["routes"]).stdout).unwrap();
    let line = |start: &str| table.lines().find(|line| line.contains(start)).unwrap_or_default().to_owned();
    assert!(table.starts_with("BY  "), "{table}");
    assert!(line("3f2b9c1e").ends_with("cluster 50 open, 5/s; from 192.0.2.0/24"), "{table}");
    assert!(line("AppsTls").contains("tunnel: traefik.web.svc:443"), "{table}");
    assert!(line("=/pay").contains("pay:https"), "{table}");
    let yaml = String::from_utf8(server.get(&["routes", "-o", "yaml"]).stdout).unwrap();
    assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), all);
    server.terminate();
}

/// One page after the other gives the same as all at once, however small they are.
#[test]
fn pages_follow_each_other() {
    let fleet = fleet();
    let server = fleet.serve();
    for limit in 1..=9 {
        let mut seen = Vec::new();
        let mut path = format!("/v1/routes?limit={limit}");
        for page in 0.. {
            assert!(page <= ALL.len(), "there is no end: {seen:?}");
            let (status, body) = server.http(&path, "localhost");
            assert_eq!(status, 200, "{body}");
            let answer: Value = serde_json::from_str(&body).unwrap();
            seen.extend(found(&answer));
            assert_eq!(answer["remaining"], ALL.len() - seen.len());
            let Some(mark) = answer["continue"].as_str() else { break };
            path = format!("/v1/routes?limit={limit}&continue={}", mark.replace(' ', "+"));
        }
        assert_eq!(seen, ALL, "pages of {limit}");
    }
    for (query, code) in [
        ("limit=0", "BadLimit"),
        ("limit=1001", "BadLimit"),
        ("limit=many", "BadQuery"),
        ("under=a..b", "BadName"),
        ("continue=somewhere", "BadContinue"),
        ("other=1", "BadQuery"),
    ] {
        let (status, body) = server.http(&format!("/v1/routes?{query}"), "localhost");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &body["error"]["code"]), (400, &code.into()), "{query}: {body}");
    }
    for (query, code) in [("under=a..b", "BadName"), ("below=a", "BadQuery")] {
        let (status, body) = server.http(&format!("/v1/records?{query}"), "localhost");
        assert!(status == 400 && body.contains(code), "{query}: {body}");
    }
    server.terminate();
}

/// Ten thousand clusters are some thirty pages, which `get` puts together.
#[test]
fn a_large_fleet_is_fetched_page_by_page() {
    const COUNT: usize = 1_200;
    let clusters: Vec<String> = (0..COUNT).map(|number| cluster(&format!("c{number:05}"), nowhere(), 11)).collect();
    let fleet = Fleet::new(&[("base.yaml", BASE), ("clusters.yaml", &clusters.join("---\n"))]);
    let server = fleet.serve();
    let all = found(&server.get_json(&["routes"]));
    assert_eq!(all.len(), 2 * COUNT, "an id and a server name each");
    assert_eq!(all[0], "ClusterId c00000");
    assert_eq!(all[2 * COUNT - 1], format!("ServerName api.c{:05}.fleet.example", COUNT - 1));
    assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
    server.terminate();
}

/// The door of agents is a way in, too, and nobody's.
#[test]
fn the_agents_door_is_among_them_where_there_is_one() {
    let fleet = Fleet::new(&[("base.yaml", BASE)]);
    let mut command = fleetgate();
    command.arg("serve").arg("--fleet").arg(fleet.folder()).args(["--log-format", "json"]);
    for door in ["--dns", "--apiserver", "--sni", "--admin", "--agents"] {
        command.args([door, "127.0.0.1:0"]);
    }
    let server = Server::start(&command);
    let all = server.get_json(&["routes"]);
    assert_eq!(found(&all), ["ServerName agents.fleet.example"]);
    assert_eq!((&all["items"][0]["service"], &all["items"][0]["tenant"]), (&"agents".into(), &Value::Null));
    server.terminate();
}
