//! The admin interface, and the end of a process.

use std::io::Read as _;

use crate::server::{BASE, Fleet, PATIENCE, cluster, echo_backend, fleetgate, nowhere, read_line};

#[test]
fn objects_come_with_their_status() {
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: tls, namespace: acme}\nstringData: {key: hush}\n";
    let fleet = Fleet::new(&[("base.yaml", BASE), ("c1.yaml", &cluster("c1", nowhere(), 11)), ("s.yaml", secret)]);
    let server = fleet.serve();
    let c1 = server.get_json(&["clusters", "c1"]);
    assert_eq!(c1["spec"]["tenant"], "acme");
    assert_eq!(c1["status"]["apiName"], "api.c1.fleet.example");
    assert_eq!(c1["status"]["readyNodes"], 1);
    assert_eq!(server.get_json(&["zones"])["items"][0]["spec"]["domain"], "fleet.example");
    assert_eq!(server.get_json(&["tenants", "acme"])["status"]["conditions"][0]["status"], "True");

    let found = server.get_json(&["secret", "tls", "-n", "acme"]);
    assert!(!found.to_string().contains("hush"), "{found}");
    assert_eq!(server.get_json(&["secrets", "-n", "other"])["items"].as_array().unwrap().len(), 0);

    let table = String::from_utf8(server.get(&["clusters"]).stdout).unwrap();
    assert!(table.starts_with("NAME   TENANT   API"), "{table}");
    for (arguments, expected) in [
        (["cluster", "c9"].as_slice(), "no Cluster is called c9"),
        (&["secret", "tls"], "give it with -n"),
        (&["cluster", "c1", "-n", "acme"], "Cluster objects have no namespace"),
    ] {
        let output = server.get(arguments);
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains(expected), "{output:?}");
    }
    server.terminate();
}

#[test]
fn names_are_listed_below_a_name_and_everything_has_a_form_for_programs() {
    let clusters = format!("{}---\n{}", cluster("c1", nowhere(), 11), cluster("c2", nowhere(), 12));
    let fleet = Fleet::new(&[("base.yaml", BASE), ("clusters.yaml", &clusters)]);
    let server = fleet.serve();
    let text = |arguments: &[&str]| String::from_utf8(server.get(arguments).stdout).unwrap();

    let all = text(&["names"]);
    assert!(
        all.starts_with("NAME ") && all.contains("*.c1.fleet.example") && all.contains("api.c2.fleet.example"),
        "{all}"
    );
    let below = text(&["names", "C1.fleet.example."]);
    assert!(below.contains("api.c1.fleet.example") && !below.contains("c2"), "{below}");
    assert_eq!(text(&["names", "nowhere.example"]), "nothing found\n");
    assert!(!server.get(&["names", "a..b"]).status.success());
    let sets = server.get_json(&["names", "api.c1.fleet.example"]);
    assert_eq!(sets["sets"][0]["name"], "api.c1.fleet.example");

    let yaml: serde_json::Value = serde_saphyr::from_str(&text(&["clusters", "c1", "-o", "yaml"])).unwrap();
    assert_eq!(yaml, server.get_json(&["clusters", "c1"]));
    // Colours are for terminals.
    assert!(!text(&["clusters"]).contains('\x1b'));
    server.terminate();
}

#[test]
fn shells_complete_the_commands() {
    for (shell, sign) in
        [("bash", "complete -F _fleetgate"), ("zsh", "#compdef fleetgate"), ("fish", "complete -c fleetgate")]
    {
        let output = fleetgate().args(["completion", shell]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains(sign) && text.contains("node-proxy"), "{shell}");
    }
}

/// As bash does it when somebody presses the tabulator.
#[test]
fn bash_completes_what_can_be_asked_for() {
    let script = "source <(\"$1\" completion bash); COMP_WORDS=(fleetgate get \"$2\"); COMP_CWORD=2; \
                  _fleetgate fleetgate \"$2\" get; echo \"${COMPREPLY[@]}\"";
    for (begun, expected) in
        [("rou", "routes"), ("clu", "clusters"), ("address", "addresspools addressclaims addresses")]
    {
        let mut command = std::process::Command::new("bash");
        let output = command.args(["-c", script, "bash", env!("CARGO_BIN_EXE_fleetgate"), begun]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected, "{output:?}");
    }
}

#[test]
fn pages_of_strangers_are_refused() {
    let fleet = Fleet::new(&[("base.yaml", BASE)]);
    let server = fleet.serve();
    for (path, host, status) in [
        ("/healthz", "localhost", 200),
        ("/readyz", "10.0.0.1:80", 200),
        ("/metrics", "127.0.0.1:1", 200),
        ("/v1/objects/zones", "[::1]:1", 200),
        ("/v1/objects/zones", "rebound.example", 403),
        ("/metrics", "localhost.evil.example", 403),
        ("/v1/objects/pods", "localhost", 404),
        ("/v1/objects/zones/none", "localhost", 404),
        ("/v1/objects/zones/a/b", "localhost", 400),
        ("/v1/objects/zones/%2e%2e", "localhost", 404),
        ("/nothing", "localhost", 404),
    ] {
        let (found, body) = server.http(path, host);
        assert_eq!(found, status, "{path} for {host}: {body}");
    }
    server.terminate();
}

#[test]
fn sigterm_drains_connections_and_then_ends_the_rest() {
    let fleet = Fleet::new(&[("base.yaml", BASE), ("c1.yaml", &cluster("c1", echo_backend("one"), 11))]);
    let mut server = fleet.serve();
    let mut connection = server.by_id("c1");
    assert_eq!(read_line(&mut connection).unwrap(), "one");
    server.process.signal("TERM").unwrap();
    server.until("not ready", |server| server.http("/readyz", "localhost").0 == 503);
    server.until("no new connections", |server| std::net::TcpStream::connect(server.apiserver).is_err());
    server.process.check_running().expect("it waits for the open connection");
    drop(connection);
    assert!(server.process.wait_for_exit(PATIENCE).unwrap().success());

    let mut command = fleetgate();
    command.arg("serve").arg("--fleet").arg(fleet.folder()).args(["--log-format", "json", "--drain", "100ms"]);
    for door in ["--dns", "--apiserver", "--sni", "--admin"] {
        command.args([door, "127.0.0.1:0"]);
    }
    let server = crate::server::Server::start(&command);
    let mut connection = server.by_id("c1");
    assert_eq!(read_line(&mut connection).unwrap(), "one");
    server.terminate();
    assert_eq!(connection.read(&mut [0]).unwrap_or(0), 0, "cut after the drain time");
}

#[test]
fn http_doors_know_no_host_that_no_ingress_has() {
    let fleet = Fleet::new(&[("base.yaml", BASE)]);
    let mut command = fleetgate();
    command.arg("serve").arg("--fleet").arg(fleet.folder()).args(["--log-format", "json"]);
    for door in ["--dns", "--apiserver", "--sni", "--admin", "--http", "--https"] {
        command.args([door, "127.0.0.1:0"]);
    }
    let server = crate::server::Server::start(&command);
    let (status, _) = crate::server::Server::http_at(server.http.unwrap(), "/", "shop.example");
    assert_eq!(status, 404);
    // Without a certificate there is no handshake.
    let url = format!("https://{}/", server.https.unwrap());
    let output = std::process::Command::new("curl").args(["-sk", "--max-time", "10", &url]).output().unwrap();
    assert_eq!(output.status.code(), Some(35), "{output:?}");
    server.terminate();
}
