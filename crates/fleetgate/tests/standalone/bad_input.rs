//! What is wrong is refused with file, line and reason, and nothing that served stops.

use std::fs;
use std::process::Output;

use serde_json::Value;

use crate::server::{BASE, Fleet, PATIENCE, Server, cluster, fleetgate, nowhere};

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Each row: what is wrong, the file's text, the line it is on, and a word of the reason.
fn wrong_files() -> Vec<(&'static str, String, usize, &'static str)> {
    let good = cluster("c1", nowhere(), 11);
    vec![
        ("an unknown field", good.replace("  zone: main", "  zone: main\n  colour: red"), 7, "unknown field `colour`"),
        ("a wrong type", good.replace("zone: main", "zone: [main]"), 6, "expected a text"),
        ("no DNS label", good.replace("{name: c1}", "{name: c_1}"), 3, "is no DNS label"),
        ("no CIDR", good.replace("  zone: main", "  zone: main\n  allowedSources: [10.0.0.0/33]"), 7, "is no CIDR"),
        ("no YAML", good.replace("spec:", "spec: {{"), 4, "unclosed bracket"),
        ("an unknown kind", good.replace("kind: Cluster", "kind: Kluster"), 1, "no kind is called \"Kluster\""),
    ]
}

#[test]
fn a_broken_file_is_refused_and_the_old_state_keeps_serving() {
    let fleet = Fleet::new(&[("base.yaml", BASE), ("c1.yaml", &cluster("c1", nowhere(), 11))]);
    let mut server = fleet.serve();
    for (what, broken, line, reason) in wrong_files() {
        fleet.write("c1.yaml", &broken);
        server.until(what, |server| {
            let refusals = server.get_json(&["refusals"]);
            let file = &refusals["files"][0];
            file["file"] == "c1.yaml" && file["line"] == line && file["message"].as_str().unwrap().contains(reason)
        });
        assert_eq!(server.resolve("x.c1.fleet.example", "A"), ["198.51.100.11"], "{what}");

        let checked = fleet.check();
        assert_eq!(checked.status.code(), Some(1), "{what}: {checked:?}");
        let said = text(&checked);
        assert!(said.contains(&format!("c1.yaml:{line}:")) && said.contains(reason), "{what}: {said}");
    }
    let log = server.process.log();
    assert!(log.contains("c1.yaml:7:3: unknown field `colour`"), "{log}");
    assert_eq!(
        server.http("/metrics", "localhost").1.lines().find(|line| line.starts_with("fleetgate_refused_files ")),
        Some("fleetgate_refused_files 1")
    );

    fleet.write("c1.yaml", &cluster("c1", nowhere(), 12));
    server.until("mended", |server| server.resolve("x.c1.fleet.example", "A") == ["198.51.100.12"]);
    assert_eq!(server.get_json(&["refusals"])["files"], Value::Array(vec![]));
    assert!(fleet.check().status.success());
    server.terminate();
}

#[test]
fn an_overlong_file_is_refused() {
    let fleet = Fleet::new(&[("base.yaml", BASE), ("c1.yaml", &cluster("c1", nowhere(), 11))]);
    let mut server = fleet.serve();
    fleet.write("c1.yaml", &format!("{}# {}\n", cluster("c1", nowhere(), 12), "x".repeat(33 << 20)));
    server.until("refused", |server| {
        let refusals = server.get_json(&["refusals"]);
        refusals["files"][0]["message"].as_str().is_some_and(|message| message.contains("longer than 32 MiB"))
    });
    assert_eq!(server.resolve("x.c1.fleet.example", "A"), ["198.51.100.11"]);
    assert!(text(&fleet.check()).contains("c1.yaml:1:1: the file is longer than 32 MiB"));
    server.terminate();
}

#[test]
fn a_folder_that_vanishes_stops_nothing() {
    let fleet = Fleet::new(&[("base.yaml", BASE), ("c1.yaml", &cluster("c1", nowhere(), 11))]);
    let mut server = fleet.serve();
    fs::remove_dir_all(fleet.folder()).unwrap();
    server.until("missed", |server| {
        let folder = &server.get_json(&["refusals"])["folder"];
        folder.as_str().is_some_and(|error| error.contains("there is no folder"))
    });
    assert_eq!(server.resolve("x.c1.fleet.example", "A"), ["198.51.100.11"]);
    fs::create_dir(fleet.folder()).unwrap();
    fleet.write("base.yaml", BASE);
    fleet.write("c2.yaml", &cluster("c2", nowhere(), 22));
    server.until("back", |server| server.resolve("x.c2.fleet.example", "A") == ["198.51.100.22"]);
    server.terminate();
}

/// Each row: what clashes, and the second cluster's manifest with the code and message of its refusal.
#[test]
fn who_comes_second_is_told_who_was_first() {
    let plain = |name: &str| cluster(name, nowhere(), 22);
    let service = |name: &str, sni: &str| {
        let services = format!("services: [{{name: konnectivity, sni: {sni}, addresses: [\"127.0.0.1:9\"]}}], kube");
        plain(name).replacen("{kube", &format!("{{{services}"), 1)
    };
    let first = service("first", "tunnel.fleet.example").replace("  zone:", "  clusterID: shared\n  zone:");
    let fleet = Fleet::new(&[("base.yaml", BASE), ("first.yaml", &first)]);
    let mut server = fleet.serve();
    for (what, second, code, message) in [
        (
            "cluster id",
            plain("a-second").replace("  zone:", "  clusterID: shared\n  zone:"),
            "ClusterIdTaken",
            "cluster id shared belongs to Cluster first, which was first",
        ),
        (
            "server name",
            service("a-second", "Tunnel.Fleet.Example."),
            "NameTaken",
            "name tunnel.fleet.example belongs to Cluster first, which was first",
        ),
        (
            "API name",
            service("a-second", "api.first.fleet.example"),
            "NameTaken",
            "name api.first.fleet.example belongs to Cluster first, which was first",
        ),
        (
            "reserved name",
            service("a-second", "ns1.fleet.example"),
            "Reserved",
            "ns1.fleet.example is reserved by Zone main",
        ),
    ] {
        fleet.write("second.yaml", &second);
        server.until(what, |server| {
            let output = server.get(&["cluster", "a-second", "-o", "json"]);
            let Ok(object) = serde_json::from_slice::<Value>(&output.stdout) else { return false };
            let condition = &object["status"]["conditions"][0];
            condition["reason"] == code && condition["message"] == message
        });
        assert!(server.dig(&["api.a-second.fleet.example"]).contains("NXDOMAIN"), "{what}");
        assert_eq!(server.resolve("api.first.fleet.example", "A"), ["192.0.2.10"], "{what}");

        // Without a database nobody can tell who was first: both are named.
        let checked = fleet.check();
        let said = text(&checked);
        assert_eq!(checked.status.code(), Some(1), "{said}");
        assert!(said.contains("second.yaml:1"), "{said}");
        assert!(code == "Reserved" || said.contains("first.yaml:1") && !said.contains("which was first"), "{said}");
    }
    server.terminate();
}

#[test]
fn mistakes_on_the_command_line_are_explained() {
    let fleet = Fleet::new(&[("base.yaml", BASE)]);
    let server = fleet.serve();
    let busy = server.dns.to_string();
    let folder = fleet.folder();
    let folder = folder.to_str().unwrap();
    for (arguments, expected) in [
        (vec!["serve", "--fleet", "/nowhere/at/all"], "there is no folder /nowhere/at/all"),
        (vec!["serve", "--fleet", folder, "--dns", &busy], "in use"),
        (
            vec!["serve", "--fleet", folder, "--admin", &busy],
            "help: something else listens there: `ss -lntup` shows what",
        ),
        (
            vec!["serve", "--fleet", folder, "--sni", "192.0.2.1:1"],
            "help: no interface of this machine has that address",
        ),
        (vec!["serve", "--fleet", folder, "--dns", "nonsense"], "invalid value 'nonsense' for '--dns <ADDR>'"),
        (vec!["serve", "--fleet", folder, "--trusted-proxies", "10.0.0.1/8"], "write 10.0.0.0/8"),
        (vec!["check", "--fleet", "/nowhere/at/all"], "there is no folder /nowhere/at/all"),
        (vec!["get", "pods"], "invalid value 'pods' for '[KIND]'"),
        (vec!["get", "cluster", "../../etc"], "is no name of an object"),
        (
            vec!["get", "clusters", "--admin", "127.0.0.1:9"],
            "start one with `fleetgate serve --fleet DIR --admin 127.0.0.1:9`",
        ),
    ] {
        let output = fleetgate().args(&arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        assert!(text(&output).contains(expected), "{arguments:?}: {}", text(&output));
    }
    server.terminate();
}

#[test]
fn a_data_folder_that_is_in_use_is_refused() {
    let fleet = Fleet::new(&[("base.yaml", BASE)]);
    let server = fleet.serve();
    let data = fleet.folder().parent().unwrap().join("data");
    let mut command = fleetgate();
    command.arg("serve").arg("--fleet").arg(fleet.folder()).arg("--data").arg(data);
    let mut second = testbed::Process::start(&command).unwrap();
    assert!(!second.wait_for_exit(PATIENCE).unwrap().success());
    assert!(second.log().contains("is in use by another fleetgate"), "{}", second.log());
    Server::terminate(server);
}
