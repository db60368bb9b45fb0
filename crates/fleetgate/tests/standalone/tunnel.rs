//! Links of the real agent at the real binary: who gets one, who loses it, and how soon it is there again.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testbed::Process;

use crate::agents::client::Bootstrap;
use crate::agents::{credential, fleet, issue, serve};
use crate::server::{Fleet, PATIENCE, Server, fleetgate};

/// What a machine with much else to do may add to the times that are promised.
const MARGIN: Duration = Duration::from_secs(5);

/// `fleetgate agent tunnel` for a cluster, with its bootstrap file.
fn agent(fleet: &Fleet, name: &str, bootstrap: &Bootstrap, hub: SocketAddr) -> Process {
    let file = fleet.root().join(format!("{name}.json"));
    let content =
        json!({ "token": bootstrap.token, "serverName": bootstrap.server_name, "ca": bootstrap.ca }).to_string();
    std::fs::write(&file, content).unwrap();
    let mut command = fleetgate();
    command.args(["agent", "tunnel", "--hub", &hub.to_string(), "--links", "2"]).arg("--bootstrap").arg(file);
    command.arg("--state").arg(fleet.root().join(format!("{name}.state")));
    command.args(["--health", "127.0.0.1:0", "--log-format", "json"]);
    Process::start(&command).unwrap()
}

fn health(agent: &mut Process) -> SocketAddr {
    let line = agent.wait_for_line("\"message\":\"started\"", PATIENCE).unwrap();
    serde_json::from_str::<Value>(&line).unwrap()["health"].as_str().unwrap().parse().unwrap()
}

fn links(server: &Server, cluster: &str) -> usize {
    let (status, text) = server.http("/v1/links", "localhost");
    assert_eq!(status, 200, "{text}");
    let all: Value = serde_json::from_str(&text).unwrap();
    all["items"].as_array().unwrap().iter().filter(|link| link["cluster"] == cluster).count()
}

#[test]
fn a_revoked_agent_loses_its_links_within_seconds_and_the_others_keep_theirs() {
    let fleet = fleet();
    let mut server = serve(&fleet);
    let (mine, theirs) = (issue(&fleet, &server, "c1", &[]), issue(&fleet, &server, "c2", &[]));
    let mut revoked = agent(&fleet, "c1", &mine, server.agents.unwrap());
    // The other one comes by server name, through the shared door.
    let mut other = agent(&fleet, "c2", &theirs, server.sni);
    server.until("both are linked", |server| links(server, "c1") == 2 && links(server, "c2") == 2);
    let (probe, other_probe) = (health(&mut revoked), health(&mut other));
    assert_eq!(Server::http_at(probe, "/readyz", "localhost").0, 200);
    let (_, metrics) = server.http("/metrics", "localhost");
    assert!(metrics.contains("fleetgate_tunnel_links 4"), "{metrics}");

    assert!(credential(&fleet, &server, &["revoke", mine.id()]).status.success());
    let took = server.until("the revoked one is out", |server| links(server, "c1") == 0);
    println!("a revoked credential lost its links after {took:?}");
    assert!(took < Duration::from_secs(5) + MARGIN, "{took:?}");
    assert_eq!(links(&server, "c2"), 2);
    let audited = server.process.wait_for_line("\"event\":\"link\"", PATIENCE).unwrap();
    for part in ["\"code\":\"Revoked\"", "\"cluster\":\"c1\"", mine.id(), "\"peer\":\"127.0.0.1:"] {
        assert!(audited.contains(part), "{audited}");
    }
    // It goes on trying, says why, and is not ready.
    revoked.wait_for_line("\"level\":\"WARN\"", PATIENCE).unwrap();
    server.until("it is not ready", |_| Server::http_at(probe, "/readyz", "localhost").0 == 503);
    assert_eq!(Server::http_at(other_probe, "/readyz", "localhost").0, 200);
    assert_eq!(links(&server, "c1"), 0);

    // A new token in the same file is found.
    let again = issue(&fleet, &server, "c1", &[]);
    let content = json!({ "token": again.token, "serverName": again.server_name, "ca": again.ca }).to_string();
    std::fs::write(fleet.root().join("c1.json"), content).unwrap();
    server.until("it is linked again", |server| links(server, "c1") == 2);
    for agent in [&mut revoked, &mut other] {
        agent.signal("TERM").unwrap();
        assert!(agent.wait_for_exit(PATIENCE).unwrap().success(), "{}", agent.log_tail());
    }
    server.until("their links end with them", |server| links(server, "c1") + links(server, "c2") == 0);
    server.terminate();
}

#[test]
fn an_agent_that_stands_still_is_noticed_and_comes_back() {
    let fleet = fleet();
    let mut server = serve(&fleet);
    let bootstrap = issue(&fleet, &server, "c1", &[]);
    let mut agent = agent(&fleet, "c1", &bootstrap, server.agents.unwrap());
    server.until("it is linked", |server| links(server, "c1") == 2);
    agent.signal("STOP").unwrap();
    let noticed = server.until("it is noticed", |server| links(server, "c1") == 0);
    agent.signal("CONT").unwrap();
    let back = server.until("it is back", |server| links(server, "c1") == 2);
    println!("noticed after {noticed:?}, back after {back:?}");
    assert!(noticed < Duration::from_secs(3) + MARGIN, "{noticed:?}");
    assert!(back < Duration::from_secs(3) + MARGIN, "{back:?}");
    // And an agent whose hub is killed finds the next one.
    drop(server);
    let mut next = fleet.command("127.0.0.1:0".parse().unwrap(), "127.0.0.1:0".parse().unwrap());
    next.args(["--agents", &bootstrap.door.to_string(), "--admin-credential"]).arg(fleet.root().join("admin"));
    let mut server = Server::start(&next);
    let back = server.until("it is linked to the next process", |server| links(server, "c1") == 2);
    println!("linked to the next process after {back:?}");
    assert!(back < Duration::from_secs(3) + MARGIN, "{back:?}");
    agent.signal("TERM").unwrap();
    assert!(agent.wait_for_exit(PATIENCE).unwrap().success(), "{}", agent.log_tail());
    server.terminate();
}

#[test]
fn a_process_that_takes_over_is_linked_before_the_old_one_ends() {
    let fleet = fleet();
    let mut old = serve(&fleet);
    let bootstrap = issue(&fleet, &old, "c1", &[]);
    let mut agent = agent(&fleet, "c1", &bootstrap, old.agents.unwrap());
    old.until("it is linked", |server| links(server, "c1") == 2);
    let mut command = fleet.command("127.0.0.1:0".parse().unwrap(), "127.0.0.1:0".parse().unwrap());
    command.args(["--agents", "127.0.0.1:0", "--take-over", "--admin-credential"]).arg(fleet.root().join("admin"));
    let next = Server::start(&command);
    let begun = Instant::now();
    assert!(old.process.wait_for_exit(PATIENCE).unwrap().success(), "{}", old.process.log_tail());
    println!("the old process ended {:?} after the next one was ready", begun.elapsed());
    // Until now both would have answered.
    assert_eq!(links(&next, "c1"), 2);
    agent.signal("TERM").unwrap();
    assert!(agent.wait_for_exit(PATIENCE).unwrap().success(), "{}", agent.log_tail());
    next.terminate();
}
