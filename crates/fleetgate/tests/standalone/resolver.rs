//! The control planes' resolver of the real binary: real servers inside, real links, and dig.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::Value;
use testbed::{Process, ServingBind};

use crate::agents::{credential, secret};
use crate::server::{BASE, Fleet, PATIENCE, Server, cluster, fleetgate, nowhere};

/// The cluster's DNS is here: what no hub lets anybody reach is this machine itself.
const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 10, 10, 10);
const LISTEN: &str = "127.0.0.53:20000-20009";

/// In a network of its own, where nobody else has any port.
fn enter(test: &str) -> bool {
    testbed::bind().is_some() && testbed::own_network(&format!("resolver::{test}"), &["10.10.10.10/32"])
}

fn bind(ip: Ipv4Addr, zones: &[(&str, &str)]) -> (SocketAddr, ServingBind) {
    let port = UdpSocket::bind((ip, 0)).unwrap().local_addr().unwrap().port();
    let address = SocketAddr::from((ip, port));
    (address, testbed::Bind::find().unwrap().serve(address, zones).unwrap())
}

fn with_dns(name: &str, dns: &str) -> String {
    let text = cluster(name, nowhere(), 11);
    let text = text.replace("kubeApiserver:", &format!("namespace: cluster-{name}, kubeApiserver:"));
    format!("{text}  dns: {dns}\n")
}

fn serve(fleet: &Fleet, upstream: SocketAddr, more: &[&str]) -> Server {
    let any = "127.0.0.1:0".parse().unwrap();
    let mut command = fleet.command(any, any);
    command.args(["--agents", "127.0.0.1:0", "--resolver", LISTEN, "--resolver-hub-domain", "hub.test"]);
    command.args(["--resolver-upstream", &upstream.to_string()]).args(more);
    Server::start(command.arg("--admin-credential").arg(fleet.root().join("admin")))
}

/// `fleetgate agent tunnel` of a cluster.
fn agent(fleet: &Fleet, server: &Server, cluster: &str) -> Process {
    let begun = Instant::now();
    let issued = loop {
        let output = credential(fleet, server, &["issue", cluster]);
        if output.status.success() {
            break output.stdout;
        }
        // The authority is made just after the process is ready.
        assert!(begun.elapsed() < PATIENCE, "{output:?}");
    };
    let bootstrap: PathBuf = fleet.root().join(format!("bootstrap-{cluster}"));
    std::fs::write(&bootstrap, issued).unwrap();
    let mut command = fleetgate();
    command.args(["agent", "tunnel", "--hub", &server.agents.unwrap().to_string(), "--bootstrap"]).arg(bootstrap);
    Process::start(&command).unwrap()
}

struct Dug(String);

impl Dug {
    fn status(&self) -> &str {
        self.0.split("status: ").nth(1).and_then(|after| after.split(',').next()).unwrap_or("none")
    }

    fn answers(&self) -> Vec<String> {
        let section = self.0.split(";; ANSWER SECTION:\n").nth(1).unwrap_or_default();
        let lines = section.lines().take_while(|line| !line.is_empty());
        lines.map(|line| line.split_whitespace().skip(3).collect::<Vec<_>>().join(" ")).collect()
    }
}

fn dig(port: u64, words: &str) -> Dug {
    let mut dig = Command::new("dig");
    dig.args(["@127.0.0.53", "-p", &port.to_string(), "+tries=1", "+time=10"]).args(words.split_whitespace());
    Dug(String::from_utf8(dig.output().unwrap().stdout).unwrap())
}

fn port_of(server: &Server, cluster: &str) -> Option<u64> {
    server.get_json(&["clusters", cluster])["status"]["resolver"]["port"].as_u64()
}

fn config(server: &Server, arguments: &[&str]) -> Output {
    let mut command = fleetgate();
    command.args(["dns", "config"]).args(arguments).args(["--admin", &server.admin.to_string()]).output().unwrap()
}

#[test]
fn control_planes_resolve_through_their_own_clusters() {
    if !enter("control_planes_resolve_through_their_own_clusters") {
        return;
    }
    let outside = [("example.org", "@ 300 A 192.0.2.80"), ("hub.test", "etcd.cluster-c1.svc 60 A 192.0.2.11")];
    let (upstream, _outside) = bind(Ipv4Addr::LOCALHOST, &outside);
    let (first, mut one) = bind(INSIDE, &[("cluster.local", "web.shop.svc 1 A 10.0.0.1")]);
    let (second, _two) = bind(INSIDE, &[("cluster.local", "web.shop.svc 1 A 10.0.0.2")]);
    let fleet = Fleet::new(&[
        ("base.yaml", BASE),
        ("c1.yaml", &with_dns("c1", &format!("{{server: \"{first}\", serviceCIDRs: [10.10.0.0/16]}}"))),
        ("c2.yaml", &with_dns("c2", &format!("{{server: \"{second}\"}}"))),
    ]);
    secret(&fleet);
    let mut server = serve(&fleet, upstream, &[]);
    // The file that is read first is the earlier cluster.
    let (c1, c2) = (port_of(&server, "c1").unwrap(), port_of(&server, "c2").unwrap());
    assert_eq!((c1, c2), (20000, 20001));
    server.until("it listens", |_| dig(c1, "localhost").status() == "NOERROR");

    // Before the first node, which is before the first agent.
    let early = dig(c1, "kubernetes.default.svc.cluster.local");
    assert_eq!(early.answers(), ["A 10.10.0.1"], "{}", early.0);
    let early = dig(c1, "web.shop.svc.cluster.local");
    assert!(early.status() == "SERVFAIL" && early.0.contains("EDE: 22 "), "{}", early.0);

    let mut agents = [agent(&fleet, &server, "c1"), agent(&fleet, &server, "c2")];
    let name = "web.shop.svc.cluster.local";
    for (port, address) in [(c1, "A 10.0.0.1"), (c2, "A 10.0.0.2")] {
        server.until("the cluster's DNS answers", |_| dig(port, name).answers() == [address]);
        assert_eq!(dig(port, &format!("+tcp {name}")).answers(), [address]);
    }
    assert_eq!(dig(c1, "example.org").answers(), ["A 192.0.2.80"]);
    assert_eq!(dig(c1, "etcd.cluster-c1.svc.hub.test").answers(), ["A 192.0.2.11"]);
    assert_eq!(dig(c2, "etcd.cluster-c1.svc.hub.test").status(), "NXDOMAIN");
    assert_eq!(dig(c1, "none.shop.svc.cluster.local").status(), "NXDOMAIN");
    let nobody = dig(20005, name);
    assert!(nobody.0.contains("connection refused") || nobody.0.contains("no servers"), "{}", nobody.0);

    // The server inside hangs: what was true is told, and what was not there is not.
    one.process().signal("STOP").unwrap();
    std::thread::sleep(Duration::from_millis(1200));
    let stale = dig(c1, name);
    assert!(stale.answers() == ["A 10.0.0.1"] && stale.0.contains("EDE: 3 "), "{}", stale.0);
    assert_eq!(dig(c1, "none.shop.svc.cluster.local").status(), "SERVFAIL");
    assert_eq!(dig(c2, name).answers(), ["A 10.0.0.2"], "the other cluster hears nothing of it");
    one.process().signal("CONT").unwrap();
    server.until("it is fresh again", |_| !dig(c1, name).0.contains("EDE: 3 "));

    // The link is cut.
    agents[0].signal("KILL").unwrap();
    server.until("the link is gone", |server| {
        let (_, links) = server.http("/v1/links", "localhost");
        !links.contains("\"c1\"")
    });
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(dig(c1, name).answers(), ["A 10.0.0.1"]);
    let never = dig(c1, "never.shop.svc.cluster.local");
    assert!(never.status() == "SERVFAIL" && never.0.contains("no agent of the cluster is linked"), "{}", never.0);

    let (status, shown) = server.http("/v1/resolver", "localhost");
    assert_eq!(status, 200, "{shown}");
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let items = shown["items"].as_array().unwrap();
    assert_eq!(
        (items.len(), &items[0]["cluster"], items[0]["listening"].as_bool()),
        (2, &Value::from("c1"), Some(true))
    );
    assert!(items[0]["stale"].as_u64() > Some(0) && items[0]["failed"].as_u64() > Some(0), "{shown:#}");
    // The page says what there is.
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let page = std::fs::read_to_string(page).unwrap();
    let documented = page.lines().filter_map(|line| line.strip_prefix("| `fleetgate_resolver_")?.split('`').next());
    let documented: BTreeSet<&str> = documented.collect();
    let (_, metrics) = server.http("/metrics", "localhost");
    let exposed = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE fleetgate_resolver_")?.split(' ').next());
    assert_eq!(exposed.collect::<BTreeSet<_>>(), documented);
    assert!(metrics.contains("fleetgate_resolver_questions_total{transport=\"Udp\",outcome=\"Stale\"}"), "{metrics}");
    server.terminate();
}

#[test]
fn ports_stay_and_go_with_their_clusters() {
    if !enter("ports_stay_and_go_with_their_clusters") {
        return;
    }
    let (upstream, _outside) = bind(Ipv4Addr::LOCALHOST, &[("example.org", "@ 300 A 192.0.2.80")]);
    let fleet = Fleet::new(&[("base.yaml", BASE), ("c2.yaml", &with_dns("c2", "{}"))]);
    secret(&fleet);
    let mut server = serve(&fleet, upstream, &[]);
    assert_eq!(port_of(&server, "c2"), Some(20000));
    fleet.write("c1.yaml", &with_dns("c1", "{domain: tenant.example}"));
    server.until("c1 has a port", |server| server.get(&["clusters", "c1"]).status.success());
    server.until("c1 has a port", |server| port_of(server, "c1") == Some(20001));
    server.until("it listens there", |_| dig(20001, "example.org").answers() == ["A 192.0.2.80"]);

    let printed = config(&server, &["c1"]);
    assert!(printed.status.success(), "{printed:?}");
    let text = String::from_utf8(printed.stdout).unwrap();
    let expected = "\
# Of Cluster c1. Port 53 of 127.0.0.53 has to lead to the resolver's port 20001, UDP and TCP.
dnsPolicy: \"None\"
dnsConfig:
  nameservers:
    - \"127.0.0.53\"
  searches:
    - \"cluster-c1.svc.hub.test\"
    - \"svc.tenant.example\"
    - \"tenant.example\"
  options:
    - name: \"ndots\"
      value: \"3\"
";
    assert_eq!(text, expected);
    let printed = config(&server, &["c1", "-o", "json", "--hub-domain", "other.test"]);
    let json: Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!(json["dnsConfig"]["searches"][0], "cluster-c1.svc.other.test");
    let printed = config(&server, &["c9"]);
    assert!(!printed.status.success() && String::from_utf8_lossy(&printed.stderr).contains("c9"), "{printed:?}");

    server.terminate();
    let mut server = serve(&fleet, upstream, &[]);
    assert_eq!((port_of(&server, "c1"), port_of(&server, "c2")), (Some(20001), Some(20000)), "a restart moved them");
    std::fs::remove_file(fleet.folder().join("c2.yaml")).unwrap();
    server.until("c2 is gone", |server| !server.get(&["clusters", "c2"]).status.success());
    server.until("nobody listens there", |_| UdpSocket::bind(("127.0.0.53", 20000)).is_ok());
    server.until("c1 is answered on", |_| dig(20001, "example.org").answers() == ["A 192.0.2.80"]);
    server.terminate();
}

#[test]
fn what_cannot_be_started_with_is_said() {
    if !enter("what_cannot_be_started_with_is_said") {
        return;
    }
    let fleet = Fleet::new(&[("base.yaml", BASE)]);
    let start = |arguments: &[&str]| {
        let mut command = fleetgate();
        command.arg("serve").arg("--fleet").arg(fleet.folder()).args(arguments);
        let mut process = Process::start(&command).unwrap();
        let status = process.wait_for_exit(PATIENCE).unwrap();
        assert!(!status.success());
        process.log()
    };
    let itself = start(&["--resolver", LISTEN, "--resolver-upstream", "127.0.0.53:20003"]);
    assert!(itself.contains("127.0.0.53:20003 is asked for names, and is the resolver itself"), "{itself}");
    let no_range = start(&["--resolver", "127.0.0.53:53"]);
    assert!(no_range.contains("the first and the last"), "{no_range}");
    let none = fleetgate().args(["dns", "--kubeconfig", "/none"]).output().unwrap();
    assert!(String::from_utf8_lossy(&none.stderr).contains("--dns <ADDR>"), "{none:?}");
}
