//! The folder changes while it is served.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use crate::server::{BASE, Fleet, cluster, echo_backend, nowhere, read_line};

/// An order of magnitude above the bar of the benchmark, which prints the figure.
const AT_ONCE: Duration = Duration::from_millis(500);

fn is_alive(stream: &mut TcpStream) -> bool {
    stream.write_all(b"still there?\n").is_ok() && read_line(stream).is_ok_and(|line| line == "still there?")
}

#[test]
fn a_new_cluster_answers_at_once_and_drops_nobody() {
    let fleet = Fleet::new(&[("base.yaml", BASE), ("c1.yaml", &cluster("c1", echo_backend("one"), 11))]);
    let mut server = fleet.serve();
    let mut connections: Vec<TcpStream> = (0..100).map(|_| server.by_id("c1")).collect();
    for connection in &mut connections {
        assert_eq!(read_line(connection).unwrap(), "one");
    }

    fleet.write("c2.yaml", &cluster("c2", echo_backend("two"), 22));
    let took = server.until("c2 has a name", |server| server.resolve("x.c2.fleet.example", "A") == ["198.51.100.22"]);
    assert!(took < AT_ONCE, "{took:?}");
    assert_eq!(server.resolve("api.c2.fleet.example", "A"), ["192.0.2.10"]);
    assert_eq!(read_line(&mut server.by_id("c2")).unwrap(), "two");

    // The cluster of the open connections moves away altogether: they stay where they are, new ones are refused.
    std::fs::remove_file(fleet.folder().join("c1.yaml")).unwrap();
    server.until("c1 is gone", |server| read_line(&mut server.by_id("c1")).is_err());
    assert!(server.dig(&["api.c1.fleet.example"]).contains("NXDOMAIN"));
    assert_eq!(connections.iter_mut().filter_map(|stream| is_alive(stream).then_some(())).count(), 100);
    drop(connections);
    server.terminate();
}

#[test]
fn records_follow_the_ready_nodes() {
    let text = cluster("c1", nowhere(), 11);
    let fleet = Fleet::new(&[
        ("base.yaml", &BASE.replace("spec:\n", "spec:\n  withdrawal: {grace: 0s}\n")),
        ("c1.yaml", &text),
    ]);
    let mut server = fleet.serve();
    assert_eq!(server.resolve("a.c1.fleet.example", "A"), ["198.51.100.11"]);
    let two = text.replace("nodes: [", "nodes: [{name: n2, addresses: [198.51.100.12, \"2001:db8::12\"]}, ");
    fleet.write("c1.yaml", &two);
    server.until("the second node", |server| server.resolve("a.c1.fleet.example", "AAAA") == ["2001:db8::12"]);
    assert_eq!(server.resolve("a.c1.fleet.example", "A"), ["198.51.100.11", "198.51.100.12"]);
    fleet.write("c1.yaml", &text.replace("11]", "11], ready: false"));
    server.until("no address", |server| server.dig(&["a.c1.fleet.example"]).contains("NXDOMAIN"));
    server.terminate();
}

#[test]
fn the_serial_rises_with_every_change() {
    let fleet = Fleet::new(&[("base.yaml", BASE)]);
    let mut server = fleet.serve();
    let serial = |answer: &[String]| answer[0].split(' ').nth(2).unwrap().parse::<u32>().unwrap();
    let mut last = serial(&server.resolve("fleet.example", "SOA"));
    for node in 1..=3 {
        fleet.write("c1.yaml", &cluster("c1", nowhere(), node));
        let address = format!("198.51.100.{node}");
        server.until("the new node", |server| server.resolve("a.c1.fleet.example", "A") == [address.as_str()]);
        let next = serial(&server.resolve("fleet.example", "SOA"));
        assert!(next.wrapping_sub(last).cast_signed() > 0, "{last} to {next}");
        last = next;
    }
    server.terminate();
}
