//! Federated ingress from a folder: names, who serves what, and what is refused.

use serde_json::Value;

use crate::server::{BASE, Fleet, Server, nowhere};

/// A second tenant, and a domain that both share.
const TENANTS: &str = "\
apiVersion: fleetgate.dev/v1alpha1
kind: Tenant
metadata: {name: acme}
spec: {domains: [shop.test, shared.test]}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Tenant
metadata: {name: initech}
spec: {domains: [shared.test]}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {name: shop}
spec:
  domain: shop.test
  nameservers: [{name: ns1.fleet.example}]
  gateway: {addresses: [192.0.2.20]}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {name: shared}
spec:
  domain: shared.test
  nameservers: [{name: ns1.fleet.example}]
  gateway: {addresses: [192.0.2.30]}
";

/// Of all classes but `fleetgate`, which needs none.
const POLICIES: &str = "\
apiVersion: fleetgate.dev/v1alpha1
kind: FederationPolicy
metadata: {name: straight}
spec:
  entry: dns
  placement: {clusterSelector: {matchLabels: {env: prod}}}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: straight}
spec:
  controller: fleetgate.dev/ingress
  parameters: {apiGroup: fleetgate.dev, kind: FederationPolicy, name: straight}
";

fn member(name: &str, tenant: &str, env: &str, ingress: &str) -> String {
    let api_server = nowhere();
    format!(
        "apiVersion: fleetgate.dev/v1alpha1\nkind: Cluster\nmetadata: {{name: {name}, labels: {{env: {env}}}}}\nspec:\n  tenant: {tenant}\n  zone: main\n  controlPlane: {{kubeApiserver: {{addresses: [\"{api_server}\"]}}}}\n  ingress: {{https: [\"{ingress}:443\"]}}\n"
    )
}

fn ingress(namespace: &str, name: &str, class: &str, host: &str, path: &str, more: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  ingressClassName: {class}\n  rules:\n  - host: {host}\n    http:\n      paths:\n      - {{path: {path}, pathType: Prefix, backend: {{service: {{name: web, port: {{number: 80}}}}}}}}\n{more}"
    )
}

fn shown(server: &Server, arguments: &[&str]) -> String {
    String::from_utf8(server.get(arguments).stdout).unwrap()
}

/// Its members are nowhere, and nobody asks them how they are.
fn serve(fleet: &Fleet) -> Server {
    let any = "127.0.0.1:0".parse().unwrap();
    let mut command = fleet.command(any, any);
    command.arg("--no-checks");
    Server::start(&command)
}

/// Nothing while the server has not heard of it.
fn status(server: &Server, namespace: &str, name: &str) -> Value {
    let all = server.get_json(&["ingress", "-n", namespace]);
    let found = all["items"].as_array().unwrap().iter().find(|found| found["metadata"]["name"] == name);
    found.map(|found| found["status"].clone()).unwrap_or_default()
}

/// Each part with its code, or `published`.
fn parts(server: &Server, namespace: &str, name: &str) -> Vec<String> {
    let status = status(server, namespace, name);
    let told =
        |part: &Value| format!("{} {}", part["part"].as_str().unwrap(), part["code"].as_str().unwrap_or("published"));
    status["parts"].as_array().into_iter().flatten().map(told).collect()
}

#[test]
fn a_federated_host_leads_to_the_gateway_and_each_part_is_told() {
    let tls = "  tls: [{hosts: [www.shop.test], secretName: web-tls}]\n";
    let fleet = Fleet::new(&[
        ("base.yaml", BASE.split("---").next().unwrap()),
        ("tenants.yaml", TENANTS),
        ("policies.yaml", POLICIES),
        ("a1.yaml", &member("a1", "acme", "prod", "198.51.100.1")),
        ("a2.yaml", &member("a2", "acme", "test", "198.51.100.2")),
        ("i1.yaml", &member("i1", "initech", "prod", "198.51.100.9")),
        ("web.yaml", &ingress("acme", "web", "fleetgate", "www.shop.test", "/", tls)),
        ("straight.yaml", &ingress("acme", "straight", "straight", "api.shop.test", "/", "")),
        ("others.yaml", &ingress("acme", "others", "nginx", "others.shop.test", "/", "")),
    ]);
    let mut server = serve(&fleet);
    // The zone's gateway, or straight to the members that the policy selects; what others serve is not ours to name.
    assert_eq!(server.resolve("www.shop.test", "A"), ["192.0.2.20"]);
    assert_eq!(server.resolve("api.shop.test", "A"), ["198.51.100.1"]);
    assert_eq!(server.resolve("others.shop.test", "A"), [""; 0]);
    let published = ["www.shop.test/ published", "tls[0] UnknownSecret", "a1 published", "a2 published"];
    assert_eq!(parts(&server, "acme", "web"), published);
    assert_eq!(parts(&server, "acme", "straight"), ["api.shop.test/ published", "a1 published"]);
    assert_eq!(status(&server, "acme", "others"), Value::Null);
    let table = shown(&server, &["ingress"]);
    assert!(
        table.contains("www.shop.test") && table.contains("a1,a2") && table.contains("tls[0]: UnknownSecret"),
        "{table}"
    );

    // The certificate comes, and with it the last part; nobody is shown what is in it.
    let made = rcgen::generate_simple_self_signed(["www.shop.test".to_owned()]).unwrap();
    let indented = |pem: &str| pem.trim().replace('\n', "\n    ");
    let (certificate, key) = (indented(&made.cert.pem()), indented(&made.signing_key.serialize_pem()));
    let secret = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: web-tls, namespace: acme}}\ntype: kubernetes.io/tls\nstringData:\n  tls.crt: |\n    {certificate}\n  tls.key: |\n    {key}\n"
    );
    fleet.write("tls.yaml", &secret);
    server.until("the certificate is there", |server| parts(server, "acme", "web")[1] == "tls[0] published");
    let secret = shown(&server, &["secret", "web-tls", "-n", "acme", "-o", "json"]);
    assert!(secret.contains("(hidden)") && !secret.contains("BEGIN"), "{secret}");

    // A bad path takes nothing from its neighbours, nor from the name.
    let both = "      - {path: /a//b, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}\n";
    fleet.write("web.yaml", &ingress("acme", "web", "fleetgate", "www.shop.test", "/", both));
    let wanted = ["www.shop.test/ published", "www.shop.test/a//b BadPath", "a1 published", "a2 published"];
    server.until("the bad path is told", |server| parts(server, "acme", "web") == wanted);
    assert_eq!(server.resolve("www.shop.test", "A"), ["192.0.2.20"]);
    let check = fleet.check();
    let said = String::from_utf8_lossy(&check.stdout).into_owned() + &String::from_utf8_lossy(&check.stderr);
    assert!(said.contains("spec.rules[0].http.paths[1].path"), "{said}");

    // A member leaves, and then all of it.
    std::fs::remove_file(fleet.folder().join("a1.yaml")).unwrap();
    server.until("the member is gone", |server| server.resolve("api.shop.test", "A").is_empty());
    assert_eq!(status(&server, "acme", "straight")["conditions"][2]["reason"], "NoMember");
    std::fs::remove_file(fleet.folder().join("web.yaml")).unwrap();
    server.until("the name is gone", |server| server.resolve("www.shop.test", "A").is_empty());
    server.terminate();
}

/// Of two tenants the first has the host, also after a restart, and the other is told nothing of it.
#[test]
fn a_clash_of_hosts_between_tenants_is_refused() {
    let fleet = Fleet::new(&[
        ("base.yaml", BASE.split("---").next().unwrap()),
        ("tenants.yaml", TENANTS),
        ("a1.yaml", &member("a1", "acme", "prod", "198.51.100.1")),
        ("i1.yaml", &member("i1", "initech", "prod", "198.51.100.9")),
        ("second.yaml", &ingress("initech", "web", "fleetgate", "www.shared.test", "/", "")),
    ]);
    let mut server = serve(&fleet);
    assert_eq!(server.resolve("www.shared.test", "A"), ["192.0.2.30"]);
    fleet.write("first.yaml", &ingress("acme", "web", "fleetgate", "www.shared.test", "/", ""));
    server.until("the clash is told", |server| {
        parts(server, "acme", "web") == ["www.shared.test/ NameTaken", "a1 published"]
    });
    let told = status(&server, "acme", "web").to_string();
    assert!(!told.contains("initech") && !told.contains("i1"), "{told}");
    assert_eq!(parts(&server, "initech", "web"), ["www.shared.test/ published", "i1 published"]);
    server.terminate();
    let server = serve(&fleet);
    assert_eq!(parts(&server, "acme", "web"), ["www.shared.test/ NameTaken", "a1 published"]);
    server.terminate();
}
