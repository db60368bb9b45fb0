//! Outposts of a hub reach it and nobody else, whatever addresses they have inside, and resolve as they are told.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

use std::net::SocketAddr;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use testbed::{ApiServer, Certificate, ExtensionServer, Host, Network, Outpost};

/// Far more than any of these needs, so that a busy machine fails none of them.
const PATIENCE: Duration = Duration::from_mins(1);

const DNS: &str = "10.10.10.10";

fn shell(host: &Host, script: &str) -> Output {
    host.output(Command::new("sh").args(["-c", script])).unwrap()
}

fn printed(host: &Host, script: &str) -> String {
    let output = shell(host, script);
    assert!(output.status.success(), "{script}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn two_tenants() -> Option<(Network, [Outpost; 2])> {
    let mut network = testbed::network()?;
    let resolv_conf = format!("nameserver {DNS}\n");
    let tenants = [1, 2].map(|number| {
        let cable = [format!("198.18.{number}.1/24"), format!("198.18.{number}.2/24")];
        network.join([&cable[0], &cable[1]], &["10.10.10.10/32", "10.10.0.50/32"], &resolv_conf).unwrap()
    });
    Some((network, tenants))
}

#[test]
fn two_tenants_have_the_same_addresses_and_none_is_reached_from_elsewhere() {
    let Some((network, [a, b])) = two_tenants() else { return };
    for (tenant, own, other) in [(&a, "198.18.1.1", "198.18.2.1"), (&b, "198.18.2.1", "198.18.1.1")] {
        assert!(printed(&tenant.host, &format!("ip route get {own}")).contains("dev cable"));
        assert!(printed(&tenant.host, &format!("ip route get {DNS}")).contains("dev lo"));
        assert!(!shell(&tenant.host, &format!("ip route get {other}")).status.success());
    }
    assert!(!shell(&network.hub, &format!("ip route get {DNS}")).status.success());
}

#[test]
fn names_are_resolved_by_the_file_of_the_host() {
    let (Some(coredns), Some((network, [a, b]))) = (testbed::coredns(), two_tenants()) else { return };
    let address = SocketAddr::new(DNS.parse().unwrap(), 53);
    let servers = [(&a, "10.10.0.50"), (&b, "10.10.0.51")].map(|(tenant, answer)| {
        let records = format!("webhook.default.svc A {answer}\n");
        coredns.start_on_host(&tenant.host, address, "cluster.local", &records).unwrap()
    });
    let name = "webhook.default.svc.cluster.local";
    let lookup = format!("getent ahostsv4 {name}");
    assert!(printed(&a.host, &lookup).starts_with("10.10.0.50 "));
    assert!(printed(&b.host, &lookup).starts_with("10.10.0.51 "));
    assert!(servers.iter().all(|server| server.asked(name) > 0));

    a.resolve_by("nameserver 127.0.0.1\noptions attempts:1 timeout:1\n").unwrap();
    assert!(!shell(&a.host, &lookup).status.success());
    assert!(!shell(&network.hub, &lookup).status.success());
}

#[test]
fn a_cable_is_cut_and_mended() {
    let (Some(haproxy), Some((network, [a, b]))) = (testbed::haproxy(), two_tenants()) else { return };
    let answer = "defaults\n mode http\n timeout client 1m\nlisten all\n bind 198.18.1.1:80\n bind 198.18.2.1:80\n \
                  http-request return status 200 content-type text/plain string here\n";
    let _server = haproxy.start_on_host(&network.hub, answer).unwrap();
    let ask = |tenant: &Outpost, address: &str| {
        shell(&tenant.host, &format!("curl --silent --show-error --max-time 1 http://{address}/")).stdout == b"here"
    };
    assert!(ask(&a, "198.18.1.1") && ask(&b, "198.18.2.1"));
    a.cut().unwrap();
    assert!(!ask(&a, "198.18.1.1") && ask(&b, "198.18.2.1"));
    a.mend().unwrap();
    let mended = Instant::now();
    while !ask(&a, "198.18.1.1") {
        assert!(mended.elapsed() < PATIENCE, "the cable carries nothing");
    }
}

#[test]
fn an_extension_server_serves_kinds_of_an_api_server_on_a_host() {
    let (Some(kubernetes), Some(program)) = (testbed::kubernetes(), testbed::extension_server()) else { return };
    let Some((_network, [a, _])) = two_tenants() else { return };
    let server = ApiServer::start_on_host(&kubernetes, &a.host, &["api.a.example"], &[]).unwrap();
    let kubeconfig = server.kubeconfig_at("198.18.1.2:6443".parse().unwrap(), "api.a.example");
    let certificate = Certificate::for_server(&["wardle.default.svc"]).unwrap();
    let address = "10.10.0.50:443".parse().unwrap();
    let _extension = program.start_on_host(&kubernetes, &a.host, address, &certificate, &kubeconfig).unwrap();

    server.kubectl_apply(&ExtensionServer::registration("10.10.0.50", &certificate)).unwrap();
    server.kubectl(&["wait", "--for=condition=Available", "--timeout=120s", "apiservice", "--all"]).unwrap();
    let flunder = "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: f1, namespace: default}\n";
    server.kubectl_with_input(&["create", "-f", "-"], flunder).unwrap();
    assert_eq!(server.kubectl(&["get", "flunders", "-o", "name"]).unwrap(), "flunder.wardle.example.com/f1\n");
}
