//! `--metrics`: what other machines may see, and no more.

use std::io::Read as _;
use std::net::TcpStream;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::server::{BASE, Fleet, PATIENCE, Server, connect, fleetgate};

#[test]
fn other_machines_see_metrics_and_probes_and_nothing_else() {
    let Some([ours, other]) = testbed::hosts([&["192.0.2.1/24"], &["192.0.2.2/24"]]) else { return };
    let fleet = Fleet::new(&[("base.yaml", BASE)]);
    let mut command = fleetgate();
    command.arg("serve").arg("--fleet").arg(fleet.folder()).args(["--log-format", "json"]);
    command.args(["--metrics", "192.0.2.1:9631", "--admin", "192.0.2.1:9630"]);
    let mut server = ours.start(&command).unwrap();
    let line = server.wait_for_line("\"message\":\"ready\"", PATIENCE).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["metrics"], "192.0.2.1:9631");

    for (port, path, status) in [
        (9631, "/metrics", "200"),
        (9631, "/healthz", "200"),
        (9631, "/readyz", "200"),
        (9631, "/v1/objects/zones", "404"),
        (9631, "/v1/refusals", "404"),
        (9631, "/v1/explain?name=api.c1.fleet.example", "404"),
        (9631, "/", "404"),
        (9630, "/healthz", "200"),
        (9630, "/metrics", "403"),
    ] {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--max-time", "60", "--noproxy", "*", "--output", "/dev/null"]);
        curl.args(["--write-out", "%{http_code}"]).arg(format!("http://192.0.2.1:{port}{path}"));
        let output = other.output(&curl).unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), status, "{path} on {port}: {output:?}");
    }
}

#[test]
fn metrics_survive_a_take_over_and_say_not_ready_to_the_end() {
    let fleet = Fleet::new(&[("base.yaml", BASE)]);
    let any = "127.0.0.1:0".parse().unwrap();
    let mut command = fleet.command(any, any);
    command.args(["--metrics", "127.0.0.1:0"]);
    let mut old = Server::start(&command);
    let metrics = old.metrics.unwrap();
    assert_ne!(metrics, old.admin);

    command.arg("--take-over");
    let mut new = Server::start(&command);
    assert_eq!(new.metrics, Some(metrics));
    assert!(old.process.wait_for_exit(PATIENCE).unwrap().success());
    assert_eq!(Server::http_at(metrics, "/readyz", "any.example").0, 200);

    // A connection holds the process up, which says so as long as it lasts.
    let _undecided = connect(new.apiserver);
    new.until("it is taken", |_| {
        Server::http_at(metrics, "/metrics", "x").1.contains("undecided_connections{door=\"apiserver\"} 1")
    });
    new.process.signal("TERM").unwrap();
    new.until("not ready", |_| Server::http_at(metrics, "/readyz", "x").0 == 503);
    new.process.signal("TERM").unwrap();
    assert!(new.process.wait_for_exit(PATIENCE).unwrap().success());
}

#[test]
fn who_says_nothing_gives_its_place_back() {
    let fleet = Fleet::new(&[("base.yaml", BASE)]);
    let any = "127.0.0.1:0".parse().unwrap();
    let mut command = fleet.command(any, any);
    command.args(["--metrics", "127.0.0.1:0"]);
    let server = Server::start(&command);
    let metrics = server.metrics.unwrap();
    // More than there are places; those that wait outside hold up whoever comes after them, for a while.
    let mut silent: Vec<TcpStream> = (0..300).map(|_| connect(metrics)).collect();
    let begun = Instant::now();
    assert_eq!(Server::http_at(metrics, "/healthz", "x").0, 200);
    assert!(begun.elapsed() < PATIENCE);
    assert_eq!(silent[0].read(&mut [0]).unwrap_or(0), 0, "the first was sent away");
    server.terminate();
}
