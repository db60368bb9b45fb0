//! What the log and `/metrics` say of connections that are refused.

use serde_json::Value;

use crate::server::{BASE, Fleet, PATIENCE, cluster, nowhere};

#[test]
fn a_refused_connection_is_logged_with_who_and_why_and_counted_for_its_cluster() {
    let fleet = Fleet::new(&[("base.yaml", BASE), ("c1.yaml", &cluster("c1", nowhere(), 11))]);
    let mut server = fleet.serve();
    let connection = server.by_id("c1");
    let peer = connection.local_addr().unwrap().to_string();
    let line = server.process.wait_for_line("\"code\":\"Unreachable\"", PATIENCE).unwrap();
    let line: Value = serde_json::from_str(&line).unwrap();
    for (field, expected) in [
        ("message", "connection refused"),
        ("door", "apiserver"),
        ("peer", &peer),
        // As the header has it.
        ("client", "192.0.2.1:1"),
        ("blame", "backend"),
    ] {
        assert_eq!(line[field], expected, "{line}");
    }
    let reason = line["reason"].as_str().unwrap();
    assert!(reason.starts_with("no address of kube-apiserver of Cluster c1 could be reached"), "{line}");

    let metrics = server.http("/metrics", "localhost").1;
    let counted = r#"fleetgate_gateway_refusals_total{door="apiserver",cluster="c1",code="Unreachable"} 1"#;
    assert!(metrics.lines().any(|line| line == counted), "{metrics}");
    server.terminate();
}
