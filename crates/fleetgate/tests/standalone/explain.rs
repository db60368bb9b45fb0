//! `fleetgate explain`: what is told of a connection and of a name before anybody comes.

use serde_json::{Value, json};

use crate::server::{BASE, Fleet, Server, cluster, echo_backend, nowhere, read_line};

/// Beside an open cluster: one that few may reach, one with two services, one without ready nodes, and two that are
/// refused.
fn fleet() -> Fleet {
    let closed = cluster("closed", nowhere(), 12).replace(
        "  zone:",
        "  allowedSources: [192.0.2.0/24]\n  limits: {connections: 7, newConnectionsPerSecond: 3}\n  zone:",
    );
    let service = "{services: [{name: konnectivity, sni: tunnel.example.test, addresses: [\"127.0.0.1:9\"]}], kube";
    let served = cluster("served", nowhere(), 13).replacen("{kube", service, 1);
    let resting =
        cluster("resting", nowhere(), 14).replace("addresses: [198.51.100.14]", "addresses: [], ready: false");
    let thief = cluster("thief", nowhere(), 15).replace("  zone:", "  clusterID: open\n  zone:");
    let lost = cluster("lost", nowhere(), 16).replace("tenant: acme", "tenant: nobody");
    Fleet::new(&[
        ("base.yaml", BASE),
        ("a.yaml", &cluster("open", echo_backend("open"), 11)),
        ("b.yaml", &closed),
        ("c.yaml", &served),
        ("d.yaml", &resting),
        // Of two that come at once the name decides.
        ("e.yaml", &thief),
        ("f.yaml", &lost),
    ])
}

fn explain(server: &Server, arguments: &[&str]) -> Value {
    let output = server.explain(&[arguments, &["-o", "json"]].concat());
    assert!(output.status.success(), "explain {arguments:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn connections_are_told_with_the_rule_that_decides() {
    let fleet = fleet();
    let server = fleet.serve();
    for (arguments, code, blame, rule) in [
        (["--tlv", "open"].as_slice(), "Established", json!(null), "clusterID of Cluster open"),
        (&["--tlv", "nobody"], "UnknownClusterId", json!("client"), "no Cluster that is served has this clusterID"),
        (
            &["--tlv", "a\n\u{1b}[2J&name=x"],
            "UnknownClusterId",
            json!("client"),
            "no Cluster that is served has this clusterID",
        ),
        (
            &["--tlv", "closed", "--from", "198.51.100.7"],
            "SourceNotAllowed",
            json!("client"),
            "allowedSources of Cluster closed",
        ),
        (&["--tlv", "closed", "--from", "192.0.2.7"], "Established", json!(null), "clusterID of Cluster closed"),
        (&["--tlv", "closed", "--proof"], "Established", json!(null), "clusterID of Cluster closed"),
        (&["API.open.fleet.example."], "Established", json!(null), "the API name of Cluster open"),
        (&["tunnel.example.test"], "Established", json!(null), "sni of service konnectivity of Cluster served"),
        (
            &["api.lost.fleet.example"],
            "UnknownServerName",
            json!("client"),
            "no Cluster that is served has this API name or services.sni, or an apps wildcard for it",
        ),
    ] {
        let connection = &explain(&server, arguments)["connection"];
        assert_eq!(connection["code"], code, "{arguments:?}: {connection}");
        assert_eq!((&connection["blame"], &connection["rule"]), (&blame, &json!(rule)), "{arguments:?}");
        assert_eq!(connection["served"], true);
    }

    let closed = &explain(&server, &["--tlv", "closed", "--from", "198.51.100.7"])["connection"];
    assert_eq!(closed["source"], json!({ "allowed": false, "allowedBy": null, "allowedSources": ["192.0.2.0/24"] }));
    let limits = json!({ "open": 0, "connections": 7, "newLeft": 3, "newConnectionsPerSecond": 3 });
    assert_eq!(closed["limits"]["cluster"], limits);
    assert_eq!(closed["proof"], json!({ "required": false, "keys": 0, "checked": false }));
    let upstream = json!({ "address": "127.0.0.1:9", "health": "Unknown", "ejected": false, "open": 0 });
    assert_eq!(closed["upstreams"], json!([upstream]));

    let mut connection = server.by_id("open");
    assert_eq!(read_line(&mut connection).unwrap(), "open");
    let open = &explain(&server, &["--tlv", "open"])["connection"];
    assert_eq!((&open["limits"]["tenant"]["open"], &open["upstreams"][0]["open"]), (&json!(1), &json!(1)));
    drop(connection);
    server.terminate();
}

#[test]
fn names_are_told_with_the_object_that_each_record_comes_from() {
    let fleet = fleet();
    let server = fleet.serve();
    let record = |name: &str, data: &str, from: &str| json!({ "name": name, "ttl": 30, "type": "A", "data": data, "from": from });
    for (name, rcode, zone, records) in [
        (
            "api.open.fleet.example",
            "NOERROR",
            json!("main"),
            vec![record("api.open.fleet.example", "192.0.2.10", "Cluster open")],
        ),
        (
            "a.b.open.fleet.example",
            "NOERROR",
            json!("main"),
            vec![record("a.b.open.fleet.example", "198.51.100.11", "Cluster open")],
        ),
        ("ns1.fleet.example", "NOERROR", json!("main"), vec![record("ns1.fleet.example", "127.0.0.1", "Zone main")]),
        ("fleet.example", "NOERROR", json!("main"), vec![]),
        ("api.lost.fleet.example", "NXDOMAIN", json!("main"), vec![]),
        ("tunnel.example.test", "REFUSED", json!(null), vec![]),
    ] {
        let dns = &explain(&server, &[name])["dns"];
        assert_eq!((&dns["rcode"], &dns["zone"]), (&json!(rcode), &zone), "{name}: {dns}");
        assert_eq!(dns["records"], json!(records), "{name}");
    }
    let dns = &explain(&server, &["shop.resting.fleet.example"])["dns"];
    let remark =
        "Cluster resting: NoReadyNode: no node is ready; *.resting.fleet.example is withdrawn until that changes";
    assert_eq!((&dns["rcode"], &dns["remarks"]), (&json!("NXDOMAIN"), &json!([remark])));

    // Who asked of late, and what they were told.
    server.dig(&["shop.resting.fleet.example", "TXT"]);
    let recent = &explain(&server, &["shop.resting.fleet.example"])["dns"]["recent"][0];
    let told = ["client", "transport", "type", "rcode", "reason"].map(|field| recent[field].clone());
    assert_eq!(json!(told), json!(["127.0.0.1", "udp", "TXT", "NXDOMAIN", "there is no such name"]));
    server.terminate();
}

#[test]
fn who_is_refused_and_wants_the_same_is_told_too() {
    let fleet = fleet();
    let server = fleet.serve();
    let lost =
        json!({ "kind": "Cluster", "name": "lost", "code": "UnknownTenant", "message": "no Tenant is called nobody" });
    for (arguments, refused) in [
        (["--tlv", "lost"].as_slice(), json!([lost])),
        (&["api.lost.fleet.example"], json!([lost])),
        (&["shop.lost.fleet.example"], json!([lost])),
        (&["lost.example.test"], json!([])),
        (&["--tlv", "served"], json!([])),
    ] {
        assert_eq!(explain(&server, arguments)["refused"], refused, "{arguments:?}");
    }
    let refused = &explain(&server, &["--tlv", "open"])["refused"];
    assert_eq!((&refused[0]["name"], &refused[0]["code"]), (&json!("thief"), &json!("ClusterIdTaken")), "{refused}");
    server.terminate();
}

#[test]
fn people_are_told_in_words() {
    let fleet = fleet();
    let server = fleet.serve();
    let output = server.explain(&["api.open.fleet.example", "--from", "192.0.2.7"]);
    let told = String::from_utf8(output.stdout).unwrap();
    let upstream = told.lines().find(|line| line.starts_with("upstreams")).unwrap().to_owned();
    let rest: Vec<&str> = told.lines().filter(|line| *line != upstream).collect();
    assert_eq!(
        rest,
        [
            "connection  by server name api.open.fleet.example from 192.0.2.7 through --sni",
            "verdict     Established",
            "            it is carried to kube-apiserver of Cluster open",
            "rule        the API name of Cluster open",
            "cluster     open of Tenant acme, kube-apiserver",
            "source      allowed by 0.0.0.0/0",
            "limits      Cluster open: 0 open, no limits",
            "            Tenant acme: 0 open, no limits",
            "DNS         NOERROR from Zone main",
            "            api.open.fleet.example 30 A 192.0.2.10 (Cluster open)",
        ]
    );
    assert!(upstream.starts_with("upstreams   1. 127.0.0.1:") && upstream.ends_with(": not checked, 0 open"));

    let output = server.explain(&["--tlv", "\u{1b}[2J"]);
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        told,
        "connection  by cluster id \"\\u{1b}[2J\" through --apiserver\n\
         verdict     refused with UnknownClusterId, blame: client\n            \
         no cluster has the id \"\\x1b[2J\"\n\
         rule        no Cluster that is served has this clusterID\n"
    );
    server.terminate();
}

#[test]
fn questions_that_make_no_sense_are_told_so() {
    let fleet = fleet();
    let server = fleet.serve();
    let long = "x".repeat(129);
    let long_name = "a.".repeat(128);
    for (arguments, expected) in [
        ([].as_slice(), "required arguments were not provided"),
        (&["api.open.fleet.example", "--tlv", "open"], "cannot be used with"),
        (&["api.open.fleet.example", "--proof"], "cannot be used with"),
        (&["--tlv", "open", "--from", "300.1.1.1"], "invalid value '300.1.1.1' for '--from <IP>'"),
        (&["--tlv", ""], "a cluster id has 1 to 128 bytes, not 0"),
        (&["--tlv", &long], "a cluster id has 1 to 128 bytes, not 129"),
        (&[""], "name: a DNS name must not be empty"),
        (&["a..b"], "name: the name has an empty label"),
        (&[&long_name], "name: the name is longer than 255 octets"),
        (&["api.open.fleet.example/"], "give the host name alone, or a whole URL"),
    ] {
        let output = server.explain(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    for (query, code) in [
        ("", "NothingAsked"),
        ("?name=a&tlv=b", "AskedTwice"),
        ("?name=a&name=b", "BadQuery"),
        ("?nmae=a", "BadQuery"),
        ("?name=a&from=nowhere", "BadAddress"),
        ("?name=a&proof=true", "ProofWithName"),
        ("?tlv=a&proof=maybe", "BadQuery"),
        ("?tlv=", "BadClusterId"),
        ("?name=%00", "BadName"),
    ] {
        let (status, body) = server.http(&format!("/v1/explain{query}"), "localhost");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &body["error"]["code"]), (400, &json!(code)), "{query}: {body}");
    }
    assert_eq!(server.http("/v1/explain?tlv=%ff", "localhost").0, 200, "no id, and nobody's");
    server.terminate();
}
