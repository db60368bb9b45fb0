//! Addresses from pools, their names in reverse zones, and what a restart remembers of them.

use serde_json::Value;

use crate::server::{BASE, Fleet, Server, cluster, nowhere};

/// 203.0.113.65 to 203.0.113.70 in a classless zone, and IPv6.
const POOL: &str = "\
apiVersion: fleetgate.dev/v1alpha1
kind: AddressPool
metadata: {name: public}
spec:
  cidrs: [203.0.113.64/29, \"2001:db8:1::/64\"]
  reverse: {nameservers: [ns1.fleet.example], domain: pool.fleet.example, ttl: 1}
  quarantine: 1s
";

fn claim(name: &str, more: &str) -> String {
    format!(
        "---\napiVersion: fleetgate.dev/v1alpha1\nkind: AddressClaim\nmetadata: {{name: {name}, namespace: acme}}\nspec: {{pool: public, {more}}}\n"
    )
}

fn record(name: &str, address: &str) -> String {
    format!(
        "apiVersion: externaldns.k8s.io/v1alpha1\nkind: DNSEndpoint\nmetadata: {{name: web, namespace: acme}}\nspec: {{endpoints: [{{dnsName: {name}, recordType: A, recordTTL: 5, targets: [{address}]}}]}}\n"
    )
}

/// Nothing while the server has not heard of the claim.
fn status(server: &Server, claim: &str) -> Value {
    let claims = server.get_json(&["addressclaims", "-n", "acme"]);
    let found = claims["items"].as_array().unwrap().iter().find(|found| found["metadata"]["name"] == claim);
    found.map(|found| found["status"].clone()).unwrap_or_default()
}

fn address(server: &Server, claim: &str) -> String {
    status(server, claim)["address"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_claimed_address_has_a_name_that_follows_the_tenants_records() {
    let claims = claim("web", "family: IPv4, ptr: www.c1.fleet.example") + &claim("six", "family: IPv6");
    let fleet = Fleet::new(&[
        ("base.yaml", BASE),
        ("c1.yaml", &cluster("c1", nowhere(), 1)),
        ("pool.yaml", POOL),
        ("claims.yaml", &claims),
    ]);
    let mut server = fleet.serve();
    assert_eq!(address(&server, "web"), "203.0.113.65");
    assert_eq!(address(&server, "six"), "2001:db8:1::1");
    let of_six = server.dig(&["+short", "-x", "2001:db8:1::1"]);
    assert_eq!(of_six.trim(), "2001-0db8-0001-0000-0000-0000-0000-0001.pool.fleet.example.");
    // In the zone above it there would be an alias; this is where that leads.
    let of_web = "65.64-29.113.0.203.in-addr.arpa";
    assert_eq!(server.resolve(of_web, "PTR"), ["203-0-113-65.pool.fleet.example."]);
    assert_eq!(server.resolve("64-29.113.0.203.in-addr.arpa", "NS"), ["ns1.fleet.example."]);
    assert_eq!(server.resolve("66.64-29.113.0.203.in-addr.arpa", "PTR"), [""; 0]);

    fleet.write("record.yaml", &record("www.c1.fleet.example", "203.0.113.65"));
    server.until("the address is called like the record", |server| {
        server.resolve(of_web, "PTR") == ["www.c1.fleet.example."]
    });
    assert_eq!(server.resolve("www.c1.fleet.example", "A"), ["203.0.113.65"]);
    // An address that nobody has is no target, and the name goes with the record.
    fleet.write("record.yaml", &record("www.c1.fleet.example", "203.0.113.66"));
    server.until("the address has its default name again", |server| {
        server.resolve(of_web, "PTR") == ["203-0-113-65.pool.fleet.example."]
    });
    assert_eq!(server.resolve("www.c1.fleet.example", "A"), ["198.51.100.1"]);
    let conditions = status(&server, "web")["conditions"].to_string();
    assert!(conditions.contains("\"reason\":\"PtrDoesNotResolve\""), "{conditions}");
    let pool = server.get_json(&["addresspools", "public"])["status"].clone();
    assert_eq!((&pool["given"], &pool["freeIPv4"]), (&2.into(), &5.into()), "{pool}");
    assert_eq!(pool["reverseZones"][0]["zone"], "64-29.113.0.203.in-addr.arpa", "{pool}");
    server.terminate();
}

#[test]
fn addresses_outlive_kill_9_and_rest_when_released() {
    let fleet = Fleet::new(&[("base.yaml", BASE), ("pool.yaml", &POOL.replace("quarantine: 1s", "quarantine: 1h"))]);
    let mut server = fleet.serve();
    // Claimed one after the other, so that a server that forgot would give them otherwise.
    for (name, expected) in [("zoe", "203.0.113.65"), ("mia", "203.0.113.66"), ("ada", "203.0.113.67")] {
        fleet.write(&format!("{name}.yaml"), &claim(name, "family: IPv4"));
        server.until("it has its address", |server| address(server, name) == expected);
    }
    server.process.signal("KILL").unwrap();
    drop(server);
    std::fs::remove_file(fleet.folder().join("mia.yaml")).unwrap();
    fleet.write("new.yaml", &claim("new", "family: IPv4, address: 203.0.113.66"));
    let mut server = fleet.serve();
    assert_eq!((address(&server, "zoe"), address(&server, "ada")), ("203.0.113.65".into(), "203.0.113.67".into()));
    server.until("the address rests", |server| status(server, "new").to_string().contains("Quarantined"));
    assert_eq!(server.resolve("66.64-29.113.0.203.in-addr.arpa", "PTR"), [""; 0]);
    server.process.signal("KILL").unwrap();
    drop(server);
    let mut server = fleet.serve();
    assert!(status(&server, "new").to_string().contains("Quarantined"), "{}", status(&server, "new"));
    // Whoever had it last gets it back.
    fleet.write("mia.yaml", &claim("mia", "family: IPv4"));
    server.until("it has its address back", |server| address(server, "mia") == "203.0.113.66");
    server.terminate();
}

#[test]
fn an_address_that_has_rested_goes_to_the_next() {
    let fleet = Fleet::new(&[
        ("base.yaml", BASE),
        ("pool.yaml", &POOL.replace("203.0.113.64/29", "203.0.113.64/32")),
        ("first.yaml", &claim("first", "family: IPv4")),
    ]);
    let mut server = fleet.serve();
    assert_eq!(address(&server, "first"), "203.0.113.64");
    fleet.write("next.yaml", &claim("next", "family: IPv4"));
    server.until("there is none left", |server| status(server, "next").to_string().contains("PoolExhausted"));
    std::fs::remove_file(fleet.folder().join("first.yaml")).unwrap();
    server.until("it goes to the next", |server| address(server, "next") == "203.0.113.64");
    server.terminate();
}
