//! A cluster that is looked after: federated traffic goes to others, past kill -9, until somebody wants it back.

use std::process::Output;

use crate::members::Fixture;
use crate::server::fleetgate;

fn drain(fixture: &Fixture, what: &[&str], with_credential: bool) -> Output {
    let mut command = fleetgate();
    command.arg("drain").args(what).args(["--admin", &fixture.server.admin.to_string()]);
    if with_credential {
        command.arg("--admin-credential").arg(fixture.fleet.root().join("admin"));
    }
    command.output().unwrap()
}

/// Who serves requests, and to whom DNS leads.
fn serves(fixture: &mut Fixture, who: &str, address: &str) {
    fixture.server.until("DNS follows", |server| server.resolve("dns.c1.fleet.example", "A") == [address]);
    assert_eq!([fixture.asked("http"), fixture.asked("https")], [who, who]);
}

#[test]
fn federated_traffic_leaves_a_drained_cluster_and_comes_back() {
    let mut fixture = Fixture::start();
    serves(&mut fixture, "near", "127.0.0.1");
    let refused = drain(&fixture, &["c1"], false);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("admin credential"), "{refused:?}");
    let refused = drain(&fixture, &["c9"], true);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no Cluster is called c9"), "{refused:?}");
    serves(&mut fixture, "near", "127.0.0.1");

    let drained = drain(&fixture, &["c1"], true);
    let since = String::from_utf8(drained.stdout).unwrap();
    assert!(since.starts_with("Cluster c1 is drained since 20"), "{since}");
    serves(&mut fixture, "far", "127.0.0.2");
    // Whoever says so again is told since when.
    assert_eq!(String::from_utf8(drain(&fixture, &["c1"], true).stdout).unwrap(), since);
    fixture.restart();
    serves(&mut fixture, "far", "127.0.0.2");
    let told = fixture.server.get_json(&["cluster", "c1"]);
    assert_eq!(told["status"]["state"], "Drained", "{told}");
    let remarks = String::from_utf8(fixture.server.get(&["clusters"]).stdout).unwrap();
    assert!(remarks.contains("`fleetgate drain c1 --undo` lets it come back"), "{remarks}");
    let parts = fixture.server.get_json(&["ingress", "vip", "-n", "acme"]).to_string();
    assert!(parts.contains("\"code\":\"Drained\""), "{parts}");
    let why = fixture.server.explain(&["https://www.c1.fleet.example/", "--from", "203.0.113.7"]);
    assert!(String::from_utf8_lossy(&why.stdout).contains("c1: unhealthy: drained"), "{why:?}");

    // Nobody serves any more but who is drained: rather there than nowhere.
    assert!(drain(&fixture, &["c2"], true).status.success());
    serves(&mut fixture, "near", "127.0.0.1");
    for cluster in ["c1", "c2"] {
        let back = drain(&fixture, &[cluster, "--undo"], true);
        assert!(String::from_utf8_lossy(&back.stdout).contains("is not drained"), "{back:?}");
    }
    serves(&mut fixture, "near", "127.0.0.1");
    let (_, history) = fixture.server.http("/v1/history?kind=clusters&name=c1", "localhost");
    let history: serde_json::Value = serde_json::from_str(&history).unwrap();
    let told: Vec<&str> =
        history["items"].as_array().unwrap().iter().filter_map(|item| item["what"].as_str()).collect();
    assert_eq!(told, ["Drained is over"], "the process that drained it is another");
    fixture.restart();
    serves(&mut fixture, "near", "127.0.0.1");
    fixture.server.terminate();
}

#[test]
fn what_a_manifest_says_is_taken_back_there() {
    let mut fixture = Fixture::start();
    let manifest = std::fs::read_to_string(fixture.fleet.folder().join("c1.yaml")).unwrap();
    let annotated = "metadata: {name: c1, annotations: {fleetgate.dev/drained: \"2026-01-02T03:04:05Z\"}}";
    fixture.fleet.write("c1.yaml", &manifest.replace("metadata: {name: c1}", annotated));
    serves(&mut fixture, "far", "127.0.0.2");
    let refused = drain(&fixture, &["c1", "--undo"], true);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("take its annotation"), "{refused:?}");
    fixture.fleet.write("c1.yaml", &manifest);
    serves(&mut fixture, "near", "127.0.0.1");

    fixture.fleet.write("c1.yaml", &manifest.replace("metadata: {name: c1}", &annotated.replace("2026", "soon")));
    fixture.server.until("it is refused", |server| {
        String::from_utf8_lossy(&server.get(&["refusals"]).stdout).contains("fleetgate.dev/drained")
    });
    serves(&mut fixture, "near", "127.0.0.1");
    fixture.server.terminate();
}
