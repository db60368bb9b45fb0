//! What a newcomer does: `make run`, and then what it prints.

use std::path::PathBuf;
use std::process::Command;

use crate::server::{PATIENCE, Server, ask_over_tls, connect, fleetgate};

/// Starts the demo, and finds what it printed: the server, its commands, and its folder.
fn start() -> (Server, Vec<String>, PathBuf) {
    let mut command = fleetgate();
    command.args(["demo", "--log-format", "json"]);
    let mut server = Server::start(&command);
    let line = server.process.wait_for_line("Ctrl-C ends the demo", PATIENCE).unwrap();
    assert!(line.contains("Ctrl-C"));
    let log = server.process.log();
    let commands: Vec<String> =
        log.lines().filter(|line| line.starts_with("  ")).map(|line| line.trim().into()).collect();
    let folder = commands.iter().find_map(|command| {
        let words: Vec<&str> = command.split(' ').collect();
        let authority = words.iter().position(|word| *word == "--cacert")? + 1;
        Some(PathBuf::from(words[authority]).parent()?.to_owned())
    });
    assert!(log.contains("This is a demo"), "{log}");
    (server, commands, folder.unwrap())
}

#[test]
fn the_printed_commands_work() {
    let (server, commands, folder) = start();
    let outputs: Vec<String> = commands
        .iter()
        .map(|command| {
            let output = Command::new("sh").args(["-c", command]).output().unwrap();
            assert!(output.status.success(), "{command}: {output:?}");
            String::from_utf8(output.stdout).unwrap()
        })
        .collect();
    assert_eq!(outputs.len(), 5, "{commands:?}");
    assert_eq!(outputs[0], "127.0.0.1\n");
    assert_eq!(outputs[1], "2001:db8:2::21\n");
    assert!(outputs[2].contains("API server of c3"), "{}", outputs[2]);
    assert!(outputs[3].contains("api.c1.fleet.example"), "{}", outputs[3]);
    assert!(outputs[4].contains("it is carried to kube-apiserver of Cluster c1"), "{}", outputs[4]);
    assert!(folder.join("fleet/zone.yaml").exists());
    server.terminate();
    assert!(!folder.exists(), "the demo leaves nothing behind");
}

#[test]
fn every_cluster_has_its_names_and_its_door() {
    let (server, _, folder) = start();
    let authority = folder.join("ca.pem");
    for (cluster, node) in [("c1", "192.0.2.11"), ("c2", "198.51.100.21"), ("c3", "203.0.113.31")] {
        let api = format!("api.{cluster}.fleet.example");
        assert_eq!(server.resolve(&api, "A"), ["127.0.0.1"]);
        assert_eq!(server.resolve(&format!("any.thing.{cluster}.fleet.example"), "A"), [node]);
        // By server name: the certificate is checked for this very name, so that no other cluster can answer.
        let answer = ask_over_tls(connect(server.sni), &authority, &api).unwrap();
        assert!(answer.contains(&format!("API server of {cluster},")), "{answer}");
        // By cluster id in a PROXY v2 header.
        let answer = ask_over_tls(server.by_id(cluster), &authority, &api).unwrap();
        assert!(answer.contains(&format!("API server of {cluster},")), "{answer}");
    }
    // The header decides, not the server name: c2's id leads to c2, whatever the hello says.
    let error = ask_over_tls(server.by_id("c2"), &authority, "api.c1.fleet.example").unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    let error = ask_over_tls(connect(server.sni), &authority, "api.c9.fleet.example").unwrap_err();
    assert!(error.to_string().contains("UnrecognisedName"), "{error}");
    server.terminate();
}
