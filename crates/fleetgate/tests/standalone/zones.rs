//! Zones with files: served beside the clusters' names, forward and reverse.

use crate::server::{BASE, Fleet, cluster, nowhere};

fn zone(name: &str, domain: &str, file: &str) -> String {
    format!(
        "apiVersion: fleetgate.dev/v1alpha1\nkind: Zone\nmetadata: {{name: {name}}}\nspec: {{domain: \"{domain}\", zoneFile: {{file: {file}}}}}\n"
    )
}

const STATIC: &str = "\
$TTL 1h
@   SOA ns.other.test. admin.other.test. 7 3h 1h 2w 5m
    NS  ns.other.test.
www A   192.0.2.80
    AAAA 2001:db8::80
txt TXT \"a text; with a semicolon\" ( more
        of it )
odd TYPE65400 \\# 4 0a0b0c0d
old DNAME new
sub NS ns.sub
ns.sub A 192.0.2.99
";

#[test]
fn a_zone_file_is_served_verbatim_until_a_cluster_joins() {
    let fleet = Fleet::new(&[
        ("tenant.yaml", BASE.split_once("---\n").unwrap().1),
        ("zone.yaml", &zone("main", "fleet.example", "extra.zone")),
        ("extra.zone", STATIC),
    ]);
    let mut server = fleet.serve();
    let soa = |server: &crate::server::Server| server.resolve("fleet.example", "SOA")[0].clone();
    assert_eq!(soa(&server), "ns.other.test. admin.other.test. 7 10800 3600 1209600 300");
    for (name, kind, expected) in [
        ("fleet.example", "NS", &["ns.other.test."][..]),
        ("www.fleet.example", "A", &["192.0.2.80"]),
        ("WWW.Fleet.Example", "AAAA", &["2001:db8::80"]),
        ("txt.fleet.example", "TXT", &["\"a text; with a semicolon\" \"more\" \"of\" \"it\""]),
        ("odd.fleet.example", "TYPE65400", &["\\# 4 0A0B0C0D"]),
        ("a.old.fleet.example", "A", &["new.fleet.example.", "a.new.fleet.example."]),
        ("www.fleet.example", "MX", &[]),
        ("www.fleet.example", "ANY", &["192.0.2.80"]),
    ] {
        assert_eq!(server.resolve(name, kind), expected, "{name} {kind}");
    }
    let referral = server.dig(&["+norecurse", "x.sub.fleet.example", "A"]);
    assert!(referral.contains("ns.sub.fleet.example.") && referral.contains("192.0.2.99"), "{referral}");

    fleet.write("c1.yaml", &cluster("c1", nowhere(), 1));
    server.until("c1 has its name", |server| server.resolve("x.c1.fleet.example", "A") == ["198.51.100.1"]);
    let serial: u32 = soa(&server).split(' ').nth(2).unwrap().parse().unwrap();
    assert!(serial > 7, "something of ours is in it: {serial}");
    assert_eq!(server.resolve("www.fleet.example", "A"), ["192.0.2.80"]);

    // A cluster whose name the file has, and one below what the file delegates.
    fleet.write("www.yaml", &cluster("sub", nowhere(), 2));
    server.until("it is refused", |server| {
        server.get_json(&["refusals"])["objects"].as_array().is_some_and(|refused| !refused.is_empty())
    });
    let refused = server.get_json(&["refusals"])["objects"].to_string();
    assert!(refused.contains("HiddenByZoneFile"), "{refused}");
    server.terminate();
}

#[test]
fn reverse_zones_are_zones_like_any_other() {
    let soa = "@ 300 SOA ns.other.test. admin.other.test. 1 3600 600 86400 300\n@ 300 NS ns.other.test.\n";
    let v6 = "0.0.8.b.d.0.1.0.0.2.ip6.arpa";
    let fleet = Fleet::new(&[
        ("v4.yaml", &zone("v4", "2.0.192.in-addr.arpa", "v4.zone")),
        // RFC 2317: the parent's aliases lead into a zone for half of the range.
        (
            "v4.zone",
            &format!("{soa}1 300 PTR host1.fleet.example.\n10 300 CNAME 10.0/25\n0/25 300 NS ns.other.test.\n"),
        ),
        ("half.yaml", &zone("half", "0/25.2.0.192.in-addr.arpa", "half.zone")),
        ("half.zone", &format!("{soa}10 300 PTR host10.fleet.example.\n")),
        ("v6.yaml", &zone("v6", v6, "v6.zone")),
        ("v6.zone", &format!("{soa}1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0 300 PTR host6.fleet.example.\n")),
    ]);
    let server = fleet.serve();
    assert_eq!(server.get_json(&["refusals"])["objects"], serde_json::json!([]));
    assert_eq!(server.resolve("1.2.0.192.in-addr.arpa", "PTR"), ["host1.fleet.example."]);
    assert_eq!(server.resolve("10.2.0.192.in-addr.arpa", "PTR"), ["10.0/25.2.0.192.in-addr.arpa."]);
    assert_eq!(server.resolve("10.0/25.2.0.192.in-addr.arpa", "PTR"), ["host10.fleet.example."]);
    let address = server.dig(&["+short", "-x", "2001:db8::1"]);
    assert_eq!(address.trim(), "host6.fleet.example.");
    server.terminate();
}
