//! Gateways, DNS and controllers as processes of their own: one table for all gateways, and health by agreement.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use testbed::ApiServer;

use crate::agents::client::{Agent, Bootstrap};
use crate::agents::{admin_credential, issue};
use crate::fixture::{Server, ZONE, eventually, hub, wait_for_answer};

const ROLES: [&str; 3] = ["controller", "gateway", "dns"];
/// By requests, and by names alone.
const THROUGH_GATEWAYS: &str = "www.c1.fleet.example";
const DIRECT: &str = "direct.c1.fleet.example";
/// Two pods that serve 100 requests a second each, filled to 0.8.
const CAPACITY: f64 = 160.0;

/// An ingress controller that says which it is. To processes that it is told of it says nothing.
struct Member {
    address: SocketAddr,
    shuns: Arc<Mutex<BTreeSet<u32>>>,
}

impl Member {
    fn start(name: &'static str, address: &str) -> Self {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let (address, shuns) = (listener.local_addr().unwrap(), Arc::<Mutex<BTreeSet<u32>>>::default());
        let shunned = Arc::clone(&shuns);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, shunned) = (stream.unwrap(), Arc::clone(&shunned));
                std::thread::spawn(move || answer(stream, name, &shunned));
            }
        });
        Self { address, shuns }
    }

    fn shun(&self, servers: &[&Server]) {
        *self.shuns.lock().unwrap() = servers.iter().map(|server| server.process.id()).collect();
    }
}

fn answer(mut stream: TcpStream, name: &str, shuns: &Mutex<BTreeSet<u32>>) {
    let (Ok(peer), Ok(own)) = (stream.peer_addr(), stream.local_addr()) else { return };
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    loop {
        let mut is_request = false;
        loop {
            match lines.next() {
                Some(Ok(line)) if line.is_empty() => break,
                Some(Ok(_)) => is_request = true,
                _ => return,
            }
        }
        let is_shunned = || shuns.lock().unwrap().iter().any(|process| has_connection(*process, peer, own));
        if !is_request || is_shunned() {
            return;
        }
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
        if stream.write_all(head.as_bytes()).is_err() {
            return;
        }
    }
}

/// Whether the other end of a connection is this process, by what the kernel knows of both.
fn has_connection(process: u32, peer: SocketAddr, own: SocketAddr) -> bool {
    let ports = (format!(":{:04X}", peer.port()), format!(":{:04X}", own.port()));
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let inode = table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_it = fields.get(1)?.ends_with(&ports.0) && fields.get(2)?.ends_with(&ports.1);
        is_it.then(|| fields.get(9).map(|inode| format!("socket:[{inode}]")))?
    });
    let Some(inode) = inode else { return false };
    let open = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    open.filter_map(|file| fs::read_link(file.path()).ok()).any(|target| target.to_str() == Some(&inode))
}

fn fleet(near: &Member, far: &Member) -> String {
    let cluster = |name: &str, member: &Member| {
        format!(
            "\
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {{name: {name}}}
spec:
  tenant: acme
  zone: main
  controlPlane: {{kubeApiserver: {{addresses: [\"127.0.0.1:9\"]}}}}
  ingress: {{http: [\"{at}\"], https: [\"{at}\"]}}
---
",
            at = member.address
        )
    };
    let ingress = |name: &str, entry: &str, host: &str| {
        format!(
            "\
apiVersion: fleetgate.dev/v1alpha1
kind: FederationPolicy
metadata: {{name: {name}}}
spec:
  entry: {entry}
  steering: {{mode: failover, order: [c1, c2]}}
  overflow: {{utilization: 0.8, maxRatePerPod: 100}}
  upstreamTLS: {{plainText: true}}
  health: {{interval: 1s, timeout: 1s, unhealthy: 1, healthy: 1}}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {{name: {name}}}
spec:
  controller: fleetgate.dev/ingress
  parameters: {{apiGroup: fleetgate.dev, kind: FederationPolicy, name: {name}}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{name: {name}, namespace: acme}}
spec:
  ingressClassName: {name}
  rules:
  - host: {host}
    http: {{paths: [{{path: /, pathType: Prefix, backend: {{service: {{name: {name}, port: {{number: 80}}}}}}}}]}}
---
"
        )
    };
    let ingresses = ingress("through", "vip", THROUGH_GATEWAYS) + &ingress("direct", "dns", DIRECT);
    cluster("c1", near) + &cluster("c2", far) + &ingresses
}

/// Every role has an account of its own. What each may do is for the chart's tests.
pub(crate) fn accounts(hub: &ApiServer) -> [PathBuf; 3] {
    ROLES.map(|role| {
        let account = format!("fleetgate-{role}");
        hub.kubectl(&["create", "serviceaccount", &account, "--namespace=fleetgate-system"]).unwrap();
        let of = format!("--serviceaccount=fleetgate-system:{account}");
        hub.kubectl(&["create", "clusterrolebinding", &account, "--clusterrole=cluster-admin", &of]).unwrap();
        let path = hub.work_dir().join(format!("{account}.kubeconfig"));
        fs::write(&path, hub.kubeconfig_for_service_account("fleetgate-system", &account).unwrap()).unwrap();
        path
    })
}

pub(crate) fn shown(server: &Server, path: &str) -> Value {
    let answer = server.get(path);
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// The names of those that a process hears, if it leads.
fn heard(server: &Server) -> Vec<String> {
    let shown = shown(server, "/v1/peers");
    shown["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
}

/// What a process knows of the table of an Ingress, and of a cluster in it.
fn table(server: &Server, ingress: &str) -> Option<Value> {
    let tables = shown(server, "/v1/overflow");
    tables["items"].as_array()?.iter().find(|item| item["ingress"] == ingress).cloned()
}

fn out(table: &Value, cluster: &str) -> Value {
    let clusters = table["clusters"].as_array().unwrap();
    clusters.iter().find(|item| item["cluster"] == cluster).unwrap_or_else(|| panic!("{table}"))["out"].clone()
}

/// Who answers a request to this gateway.
fn asked(gateway: &Server) -> String {
    let mut stream = TcpStream::connect(gateway.address("http")).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nHost: {THROUGH_GATEWAYS}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    body.to_owned()
}

struct Hub {
    near: Member,
    controllers: [Server; 2],
    gateways: [Server; 2],
    dns: Server,
    admin: PathBuf,
    _far: Member,
    _folder: tempfile::TempDir,
    _server: ApiServer,
}

impl Hub {
    fn start() -> Option<Self> {
        let server = hub(&testbed::kubernetes()?);
        let (near, far) = (Member::start("near", "127.0.0.1"), Member::start("far", "127.0.0.2"));
        server.kubectl_apply(ZONE).unwrap();
        server.kubectl_apply(&fleet(&near, &far)).unwrap();
        let [controller, gateway, dns] = accounts(&server);
        let folder = tempfile::tempdir().unwrap();
        let admin = admin_credential(folder.path());
        let controllers = ["controller-a", "controller-b"].map(|name| {
            let doors = ["--peers", "127.0.0.1:0", "--agents", "127.0.0.1:0", "--edge", name];
            let arguments = [&["controller", "--admin-credential", admin.to_str().unwrap()], &doors[..]].concat();
            Server::start_informed(&controller, &arguments)
        });
        let gateways = ["gateway-a", "gateway-b"]
            .map(|name| Server::start_informed(&gateway, &["gateway", "--http", "127.0.0.1:0", "--edge", name]));
        let dns = Server::start_informed(&dns, &["dns", "--dns", "127.0.0.1:0", "--edge", "dns-a"]);
        Some(Self { near, controllers, gateways, dns, admin, _far: far, _folder: folder, _server: server })
    }

    /// The leader, and the one that follows.
    fn leader(&self) -> [&Server; 2] {
        let [one, other] = &self.controllers;
        eventually("everybody is heard by whoever leads", || {
            [(one, other, "controller-b"), (other, one, "controller-a")].into_iter().find_map(
                |(leads, follows, name)| {
                    (heard(leads) == [name, "dns-a", "gateway-a", "gateway-b"]).then_some([leads, follows])
                },
            )
        })
    }
}

#[test]
fn a_member_is_out_for_everybody_when_most_say_so_and_for_nobody_else_before() {
    let Some(hub) = Hub::start() else { return };
    let [leader, follower] = hub.leader();
    assert_eq!(heard(follower), [] as [String; 0]);
    assert_eq!(shown(follower, "/v1/peers")["linked"], true);
    let [one, other] = &hub.gateways;
    wait_for_answer(&hub.dns, DIRECT, &["127.0.0.1"]);
    for gateway in &hub.gateways {
        eventually("requests go to the first", || (asked(gateway) == "near").then_some(()));
    }

    // From one gateway alone: that one has no way there, and nobody else is told to keep away.
    hub.near.shun(&[one]);
    eventually("the gateway goes elsewhere", || (asked(one) == "far").then_some(()));
    let mut made = BTreeSet::new();
    eventually("some tables have come to everybody since one says that it fails", || {
        assert_eq!(hub.dns.resolve(DIRECT, "A"), ["127.0.0.1"], "it stays in DNS");
        assert_eq!(asked(other), "near");
        for server in [leader, one, other, &hub.dns] {
            let table = table(server, "direct")?;
            assert_eq!(out(&table, "c1"), Value::Null, "{table}");
            made.insert(table["made"].to_string());
        }
        (made.len() > 4).then_some(())
    });

    // From both, although DNS itself still reaches it.
    hub.near.shun(&[one, other]);
    wait_for_answer(&hub.dns, DIRECT, &["127.0.0.2"]);
    for server in [leader, one, other, &hub.dns] {
        eventually("all have heard of it", || {
            table(server, "direct").filter(|table| out(table, "c1") == "Unhealthy").map(drop)
        });
    }
    for gateway in &hub.gateways {
        eventually("no request goes there", || (asked(gateway) == "far").then_some(()));
    }

    hub.near.shun(&[]);
    wait_for_answer(&hub.dns, DIRECT, &["127.0.0.1"]);
    for gateway in &hub.gateways {
        eventually("requests are back", || (asked(gateway) == "near").then_some(()));
    }
}

/// A stream of load, a line a second, until it is told to stop.
fn report(bootstrap: &Bootstrap, door: SocketAddr, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let at_door = Bootstrap { door, ..bootstrap.clone() };
    let mut agent: Agent = at_door.agent();
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let stream = agent.stream.get_mut();
        stream.write_all(b"POST /v1/load HTTP/1.1\r\nhost: agents\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
        while !stop.load(Ordering::SeqCst) {
            let through =
                json!({ "namespace": "acme", "name": "through", "served": 5, "utilization": 0.05, "ready": 2 });
            let line = format!("{}\n", json!({ "services": [through] }));
            // The controller may have ended.
            if write!(stream, "{:x}\r\n{line}\r\n", line.len()).and_then(|()| stream.flush()).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    })
}

#[test]
fn gateways_share_what_a_cluster_can_take_also_past_the_end_of_a_leader() {
    let Some(mut hub) = Hub::start() else { return };
    let (leader_name, follower_agents) = {
        let [leader, follower] = hub.leader();
        (heard(leader)[0].clone(), follower.address("agents"))
    };
    // Its name is that of the one that follows.
    let (leads, follows) = if leader_name == "controller-b" { (0, 1) } else { (1, 0) };

    let stop = Arc::new(AtomicBool::new(false));
    let mut threads: Vec<_> = ["c1", "c2"]
        .iter()
        .map(|cluster| report(&issue(&hub.controllers[follows], &hub.admin, cluster), follower_agents, &stop))
        .collect();
    for gateway in &hub.gateways {
        let (address, stop) = (gateway.address("http"), Arc::clone(&stop));
        threads.push(std::thread::spawn(move || ask_all_the_while(address, &stop)));
    }
    eventually("the leader knows what agents said to the other", || {
        let items = shown(&hub.controllers[leads], "/v1/load")["items"].clone();
        (items.as_array().unwrap().len() == 2).then_some(())
    });
    shares_the_capacity(&hub);

    hub.controllers[leads].process.signal("TERM").unwrap();
    eventually("the other is told", || {
        (heard(&hub.controllers[follows]) == ["dns-a", "gateway-a", "gateway-b"]).then_some(())
    });
    let metrics = hub.gateways[0].get("/metrics");
    assert!(metrics.contains("fleetgate_peers_linked 1"), "{metrics}");
    // Its desk was empty: what it says now it has heard since.
    for gateway in &hub.gateways {
        let made = || Some(table(gateway, "through")?["made"].as_str()?.to_owned());
        let last = eventually("a table", made);
        eventually("a table of the new leader's", || made().filter(|made| *made > last));
    }
    shares_the_capacity(&hub);
    stop.store(true, Ordering::SeqCst);
    for thread in threads {
        thread.join().unwrap();
    }
}

/// What both gateways may send to a cluster is what it can take, and each has its part.
fn shares_the_capacity(hub: &Hub) {
    eventually("the quotas of both gateways are the capacity", || {
        let quota = |gateway: &Server, name: &str| {
            let table = table(gateway, "through")?;
            let room = table["clusters"].as_array()?.iter().find(|item| item["cluster"] == "c1")?.clone();
            if room["rate"].as_f64() != Some(CAPACITY) {
                return None;
            }
            let rows = table["rows"].as_array()?;
            assert!(rows.iter().all(|row| row["edge"] == name), "a gateway is told its own rows: {table}");
            let cells = rows.iter().flat_map(|row| row["shares"].as_array().unwrap());
            Some(cells.filter(|cell| cell["cluster"] == "c1").filter_map(|cell| cell["quota"].as_f64()).sum::<f64>())
        };
        let (one, other) = (quota(&hub.gateways[0], "gateway-a")?, quota(&hub.gateways[1], "gateway-b")?);
        let near = |sum: f64| (sum - CAPACITY).abs() < CAPACITY / 50.0;
        (one > 0.0 && other > 0.0 && near(one + other)).then_some(())
    });
}

/// Nobody is refused and nothing fails, whatever happens meanwhile.
fn ask_all_the_while(address: SocketAddr, stop: &AtomicBool) {
    while !stop.load(Ordering::SeqCst) {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET / HTTP/1.1\r\nHost: {THROUGH_GATEWAYS}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        std::thread::sleep(Duration::from_millis(200));
    }
}
