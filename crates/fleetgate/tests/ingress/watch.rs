//! A watch outlives whatever happens to the routes around it, and to its own.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use testbed::{ApiServer, Kubernetes, Process};

use crate::fixture::{api_name, cluster_with_id};
use crate::server::{BASE, Fleet, PATIENCE, Server, cluster, nowhere};

const CHANGES: usize = 1000;

#[test]
fn a_watch_survives_a_thousand_route_changes() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let c1 = ApiServer::start_named(&kubernetes, &[&api_name("c1")]).unwrap();
    // Without a grace, so that nothing is published later that no save of ours asked for.
    let base = BASE.replace("spec:\n", "spec:\n  withdrawal: {grace: 0s}\n");
    let fleet = Fleet::new(&[("base.yaml", &base), ("c1.yaml", &cluster("c1", c1.address(), 1))]);
    let mut server = fleet.serve();

    let mut watch = start_watch(&kubernetes, &c1, server.sni);
    c1.kubectl(&["create", "configmap", "before"]).unwrap();
    watch.wait_for_line("configmap/before", PATIENCE).unwrap();
    let sockets = client_sockets(server.sni);
    assert_eq!(sockets.len(), 1, "kubectl needs one connection: {sockets:?}");
    let met = server.met("sni");

    let revision = |server: &Server| server.metric("fleetgate_plans_total", "");
    let begun = revision(&server);
    for change in 0..CHANGES {
        let last = revision(&server);
        make_change(&fleet, change, c1.address());
        // Saves that come faster than they are read make one revision; each of these is to be one.
        let clusters = if change % 5 < 3 { 2 } else { 1 };
        server.until("the change is published", |server| {
            revision(server) > last && server.metric("fleetgate_clusters", "") == clusters
        });
    }
    let published = revision(&server) - begun;
    assert!(published >= CHANGES as u64, "{published}");

    c1.kubectl(&["create", "configmap", "after"]).unwrap();
    watch.wait_for_line("configmap/after", PATIENCE).unwrap();
    watch.check_running().unwrap();
    assert_eq!(client_sockets(server.sni), sockets, "the very same connection");
    assert_eq!(server.met("sni"), met, "and no attempt at another");
    drop(watch);
    server.terminate();
}

/// Prints the name of every config map that there is and that comes, as it comes.
fn start_watch(kubernetes: &Kubernetes, whose: &ApiServer, address: SocketAddr) -> Process {
    let mut kubectl = Command::new(kubernetes.kubectl());
    kubectl
        .arg("--kubeconfig")
        .arg(whose.kubeconfig_path())
        .arg("--cache-dir")
        .arg(whose.work_dir().join("cache-of-the-watch"))
        .args([format!("--server=https://{address}"), format!("--tls-server-name={}", api_name("c1"))])
        .args(["get", "configmaps", "--watch", "--output=name"])
        .env("KUBERC", "off");
    Process::start(&kubectl).unwrap()
}

/// Other clusters come, move, change their id and go; the watched one gains and loses an address.
fn make_change(fleet: &Fleet, change: usize, watched: SocketAddr) {
    let moved = SocketAddr::from(([127, 0, 0, 1], 10_000 + u16::try_from(change).unwrap()));
    let name = format!("other-{}", change / 5);
    let file = format!("{name}.yaml");
    match change % 5 {
        0 => fleet.write(&file, &cluster(&name, nowhere(), 2)),
        1 => fleet.write(&file, &cluster(&name, moved, 2)),
        2 => fleet.write(&file, &cluster_with_id(&name, "another-id", moved)),
        // A file that is gone might be about to come back, which is waited for; an empty one says what it means.
        3 => fleet.write(&file, ""),
        _ => {
            let text = cluster("c1", watched, 1);
            let watched = format!("\"{watched}\"");
            let addresses = if change.is_multiple_of(2) { format!("\"{moved}\", {watched}") } else { watched.clone() };
            fleet.write("c1.yaml", &text.replace(&watched, &addresses));
        }
    }
}

/// The established connections to `server`, each by the client's address and the number of its socket, which no other
/// socket ever had.
fn client_sockets(server: SocketAddr) -> Vec<(String, String)> {
    let SocketAddr::V4(server) = server else { panic!("{server}: the tests listen on 127.0.0.1") };
    // As proc(5) has it: the address as the machine holds it in memory, and 01 for established.
    let remote = format!("{:08X}:{:04X}", u32::from_ne_bytes(server.ip().octets()), server.port());
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[2] == remote && row[3] == "01").map(|row| (row[1].to_owned(), row[9].to_owned())).collect()
}
