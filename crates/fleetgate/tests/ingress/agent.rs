//! Our own node proxy: into our door, into a real HAProxy, past hubs that are lost, and to names that move.

use std::fs;
use std::io::Read as _;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use testbed::{ApiServer, Process};

use crate::fixture::{IN_CLUSTER_NAME, api_name, cluster_with_id};
use crate::kubectl::kubectl_at;
use crate::server::{BASE, Fleet, PATIENCE, cluster, connect, echo_backend, fleetgate, nowhere, read_line};

const EAST: &str = "4c5d6e7f-0a1b-4c2d-8e3f-5a6b7c8d9e0f";
const KEY: &str = "0123456789abcdef0123456789abcdef";

/// A running `fleetgate agent node-proxy`.
struct NodeProxy {
    process: Process,
    address: SocketAddr,
}

impl NodeProxy {
    fn start(hubs: &[&str], id: &str, others: &[&str]) -> Self {
        let mut command = fleetgate();
        command.args(arguments(hubs, id, others));
        Self::started(&command)
    }

    fn started(command: &Command) -> Self {
        let mut process = Process::start(command).unwrap();
        let line = process.wait_for_line("\"message\":\"ready\"", PATIENCE).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        Self { address: ready["listen"].as_str().unwrap().parse().unwrap(), process }
    }

    /// What the control plane at the other end calls itself; `None` where the connection was not let through.
    fn greeting(&self) -> Option<String> {
        read_line(&mut connect(self.address)).ok()
    }

    fn terminate(mut self) {
        self.process.signal("TERM").unwrap();
        let status = self.process.wait_for_exit(PATIENCE).unwrap();
        assert!(status.success(), "{status}\n{}", self.process.log_tail());
    }
}

fn arguments(hubs: &[&str], id: &str, others: &[&str]) -> Vec<String> {
    let mut arguments: Vec<&str> = vec!["agent", "node-proxy", "--listen", "127.0.0.1:0", "--cluster-id", id];
    arguments.extend(hubs.iter().flat_map(|hub| ["--hub", *hub]));
    arguments.extend(["--log-format", "json", "--log", "debug"]);
    arguments.iter().chain(others).map(|argument| (*argument).to_owned()).collect()
}

#[test]
fn haproxy_routes_by_the_id_that_our_node_proxy_sends() {
    let Some(haproxy) = testbed::haproxy() else { return };
    let (east, west) = (echo_backend("east"), echo_backend("west"));
    let hub = haproxy
        .start(|[address]: [SocketAddr; 1]| {
            format!(
                "defaults\n mode tcp\n timeout connect 1m\n timeout client 1h\n timeout server 1h\n\
                 frontend hub\n bind {address} accept-proxy\n use_backend east if {{ fc_pp_tlv(0x20) -m str {EAST} }}\n\
                 backend east\n server s {east}\nbackend west\n server s {west}\n"
            )
        })
        .unwrap();
    let [address] = hub.addresses();
    let proxy = NodeProxy::start(&[&address.to_string()], EAST, &[]);
    for _ in 0..10 {
        assert_eq!(proxy.greeting().as_deref(), Some("east"));
    }
    let other = NodeProxy::start(&[&address.to_string()], "nobody", &[]);
    assert_eq!(other.greeting(), None, "HAProxy knows no such cluster");
    proxy.terminate();
    other.terminate();
}

#[test]
fn kubectl_works_through_our_node_proxy() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let c1 = ApiServer::start_named(&kubernetes, &[&api_name("c1"), IN_CLUSTER_NAME]).unwrap();
    let fleet = Fleet::new(&[("base.yaml", BASE), ("c1.yaml", &cluster_with_id("c1", EAST, c1.address()))]);
    let server = fleet.serve();
    let proxy = NodeProxy::start(&[&server.apiserver.to_string()], EAST, &[]);
    kubectl_at(&c1, proxy.address, IN_CLUSTER_NAME, &["create", "configmap", "from-node"]).unwrap();
    c1.kubectl(&["get", "configmap", "from-node"]).unwrap();
    assert!(server.established("apiserver") >= 1);
    proxy.terminate();
    server.terminate();
}

#[test]
fn a_demanded_proof_refuses_who_only_knows_the_id() {
    let (fleet, keys) = (Fleet::new(&[("base.yaml", BASE)]), tempfile::tempdir().unwrap());
    fs::write(fleet.folder().join("c1.key"), KEY).unwrap();
    let demanding = cluster("c1", echo_backend("c1"), 1) + "  proof: {required: true, keys: [{file: c1.key}]}\n";
    fleet.write("c1.yaml", &demanding);
    fleet.write("c2.yaml", &cluster("c2", echo_backend("c2"), 2));
    let server = fleet.serve();
    let hub = server.apiserver.to_string();
    let key = |name: &str, text: &str| {
        let path = keys.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (right, wrong) = (key("right", KEY), key("wrong", &KEY.replace('0', "f")));

    let with_key = NodeProxy::start(&[&hub], "c1", &["--proof", &right]);
    for _ in 0..3 {
        assert_eq!(with_key.greeting().as_deref(), Some("c1"));
    }
    // Of another cluster's node, which knows the id and nothing else.
    for (others, code) in [(&[][..], "ProofMissing"), (&["--proof", &wrong], "ProofWrongKey")] {
        let stranger = NodeProxy::start(&[&hub], "c1", others);
        assert_eq!(stranger.greeting(), None);
        assert_eq!(server.outcomes("apiserver", code), 1);
        stranger.terminate();
    }
    assert_eq!(server.established("apiserver"), 3, "nobody else came as far as a control plane");
    let undemanding = NodeProxy::start(&[&hub], "c2", &[]);
    assert_eq!(undemanding.greeting().as_deref(), Some("c2"));
    undemanding.terminate();
    with_key.terminate();
    server.terminate();
}

/// An address that answers nothing at all, like a machine that is gone: a listener whose queue is full.
struct Silence {
    _listener: TcpListener,
    _waiting: Vec<TcpStream>,
    address: SocketAddr,
}

fn silence() -> Silence {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    // More than any queue holds by default (4,096).
    while waiting.len() < 10_000 {
        match TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
            Ok(stream) => waiting.push(stream),
            Err(_) => return Silence { _listener: listener, _waiting: waiting, address },
        }
    }
    panic!("the queue of {address} never fills");
}

#[test]
fn a_hub_that_is_lost_costs_less_than_a_moment() {
    let fleet = Fleet::new(&[("base.yaml", BASE), ("c1.yaml", &cluster("c1", echo_backend("c1"), 1))]);
    let server = fleet.serve();
    let silence = silence();
    let (lost, refusing, good) = (silence.address.to_string(), nowhere().to_string(), server.apiserver.to_string());
    let proxy = NodeProxy::start(&[&lost, &refusing, &good], "c1", &[]);
    let mut slowest = Duration::ZERO;
    for _ in 0..12 {
        let begun = Instant::now();
        assert_eq!(proxy.greeting().as_deref(), Some("c1"));
        slowest = slowest.max(begun.elapsed());
    }
    println!("the slowest connection past a silent and a refusing hub took {slowest:?}");
    // Half a second by design; an order of magnitude for slow machines.
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    proxy.terminate();
    server.terminate();
}

#[test]
fn the_hub_may_restart() {
    let fleet = Fleet::new(&[("base.yaml", BASE), ("c1.yaml", &cluster("c1", echo_backend("c1"), 1))]);
    let server = fleet.serve();
    let address = server.apiserver;
    let proxy = NodeProxy::start(&[&address.to_string()], "c1", &[]);
    assert_eq!(proxy.greeting().as_deref(), Some("c1"));
    server.terminate();
    assert_eq!(proxy.greeting(), None, "there is no hub");
    let server = fleet.serve_at(address);
    assert_eq!(proxy.greeting().as_deref(), Some("c1"));
    // Half-closed streams end in order, through both.
    let mut stream = connect(proxy.address);
    read_line(&mut stream).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
    proxy.terminate();
    server.terminate();
}

/// Runs the proxy with an `/etc/hosts` of its own.
fn start_with_hosts(hosts: &Path, hub: &str) -> NodeProxy {
    let mut command = Command::new("unshare");
    let script = "mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"";
    command.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]).arg(hosts);
    command.arg(env!("CARGO_BIN_EXE_fleetgate")).args(arguments(&[hub], "c1", &[]));
    NodeProxy::started(&command)
}

#[test]
fn a_hub_that_moves_is_found_by_its_name() {
    let fleet = Fleet::new(&[("base.yaml", BASE), ("c1.yaml", &cluster("c1", echo_backend("c1"), 1))]);
    let server = fleet.serve_at("127.0.0.2:0".parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let hosts = folder.path().join("hosts");
    // Nobody listens there.
    fs::write(&hosts, "127.0.0.3 hub.fleet.test\n").unwrap();
    let proxy = start_with_hosts(&hosts, &format!("hub.fleet.test:{}", server.apiserver.port()));
    assert_eq!(proxy.greeting(), None);
    // In place: the file itself is what is mounted.
    fs::write(&hosts, "127.0.0.2 hub.fleet.test\n").unwrap();
    let begun = Instant::now();
    while proxy.greeting().is_none() {
        assert!(begun.elapsed() < PATIENCE, "the hub is never found at its new address");
    }
    println!("a hub that moved was found again after {:?}", begun.elapsed());
    proxy.terminate();
    server.terminate();
}
