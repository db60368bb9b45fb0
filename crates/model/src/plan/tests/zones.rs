//! Which zones are accepted, what they contribute, and what becomes of the clusters in them.

use super::fleet::{Fleet, lines};
use crate::identity::Kind;
use crate::snapshot::ZoneChange;

#[test]
fn the_verdicts_of_a_zone() {
    for (zone, expected) in [
        ("", "Valid"),
        ("ns=ns.elsewhere.test", "Valid"),
        ("dnssec", "NotYet: spec.dnssec is not supported yet; leave it out"),
        (
            "ns=none",
            "NoNameservers: the Zone has no name servers; give `nameservers`, or NS records at the apex of its zone file",
        ),
        (
            "ns=ns.elsewhere.test,ns2.fleet.example",
            "NameserverWithoutAddress: name server ns2.fleet.example lies inside the Zone and needs an address",
        ),
    ] {
        let fleet = Fleet::grounded(&format!("zone main fleet.example {zone}"));
        assert_eq!(fleet.verdict(Kind::Zone, "main"), expected, "{zone}");
    }
}

#[test]
fn the_names_of_a_zone() {
    for (nameservers, expected) in [
        ("ns.elsewhere.test/192.0.2.1", vec!["fleet.example 30 NS ns.elsewhere.test"]),
        (
            "b.fleet.example/192.0.2.1+2001:db8::1,a.fleet.example/192.0.2.2",
            vec![
                "fleet.example 30 NS b.fleet.example a.fleet.example",
                "b.fleet.example 30 A 192.0.2.1",
                "b.fleet.example 30 AAAA 2001:db8::1",
                "a.fleet.example 30 A 192.0.2.2",
            ],
        ),
        // The apex may serve itself.
        ("fleet.example/192.0.2.1", vec!["fleet.example 30 NS fleet.example", "fleet.example 30 A 192.0.2.1"]),
    ] {
        let fleet = Fleet::grounded(&format!("zone main fleet.example ns={nameservers}"));
        let part = fleet.planned.snapshot.zone(&"main".parse().unwrap()).unwrap();
        let names: Vec<_> = part.names.iter().flat_map(lines).collect();
        assert_eq!(names, expected, "{nameservers}");
    }
}

#[test]
fn a_name_server_given_twice_has_one_set_per_type() {
    let servers = "ns.fleet.example/192.0.2.2,ns.fleet.example/192.0.2.1+2001:db8::1";
    let fleet = Fleet::grounded(&format!("zone main fleet.example ns={servers}"));
    let part = fleet.planned.snapshot.zone(&"main".parse().unwrap()).unwrap();
    let names: Vec<_> = part.names.iter().flat_map(lines).collect();
    assert_eq!(
        names,
        [
            "fleet.example 30 NS ns.fleet.example",
            "ns.fleet.example 30 A 192.0.2.1 192.0.2.2",
            "ns.fleet.example 30 AAAA 2001:db8::1",
        ]
    );
}

#[test]
fn a_domain_belongs_to_the_zone_that_was_first() {
    let taken = "DomainTaken: domain fleet.example belongs to Zone main, which was first";
    let mut fleet = Fleet::grounded("zone twin fleet.example since=2\n cluster c1\n cluster c2 zone=twin");
    assert_eq!(fleet.verdict(Kind::Zone, "twin"), taken);
    assert_eq!(fleet.verdict(Kind::Cluster, "c2"), "RefusedZone: Zone twin is refused itself");

    fleet.plan(1001, "gone zone main");
    assert_eq!(fleet.verdict(Kind::Zone, "twin"), "Valid");
    assert_eq!(fleet.verdict(Kind::Cluster, "c1"), "UnknownZone: no Zone is called main");
    assert_eq!(fleet.accepted_clusters(), ["c2"]);

    fleet.plan(1002, "zone main fleet.example since=1");
    assert_eq!(fleet.verdict(Kind::Zone, "twin"), taken);
    assert_eq!(fleet.accepted_clusters(), ["c1"]);

    fleet.plan(1003, "zone main other.test since=1");
    assert_eq!(fleet.accepted_clusters(), ["c1", "c2"]);
}

#[test]
fn a_domain_that_passes_to_another_zone_stays_in_service() {
    // The cluster's records are the same in both, so that its names take no step: withdrawing the zone would lose them.
    let mut fleet = Fleet::grounded("zone twin fleet.example since=2\n cluster c1 nodes=192.0.2.1");
    fleet.plan(1001, "gone zone main\n cluster c1 zone=twin nodes=192.0.2.1");
    let [ZoneChange::Serve { apex, .. }] = fleet.planned.changes.zones.as_slice() else {
        panic!("{:?}", fleet.planned.changes.zones)
    };
    assert_eq!(apex.to_string(), "fleet.example");
    assert_eq!(fleet.names("c1").len(), 2);
}

#[test]
fn clusters_follow_their_zone_to_another_domain() {
    let mut fleet = Fleet::grounded("cluster c1 nodes=192.0.2.1");
    fleet.plan(1001, "zone main moved.test");
    assert_eq!(fleet.names("c1"), ["api.c1.moved.test 30 A 192.0.2.10", "*.c1.moved.test 30 A 192.0.2.1"]);
    assert_eq!(fleet.by_server_name("api.c1.fleet.example"), None);
    assert_eq!(fleet.by_server_name("api.c1.moved.test").as_deref(), Some("c1 kube-apiserver"));
    let steps: Vec<_> = fleet.planned.changes.zones.iter().map(step).collect();
    assert_eq!(steps, ["withdraw fleet.example", "serve moved.test"]);
}

#[test]
fn a_zone_that_others_publish_is_not_served() {
    let mut fleet = Fleet::grounded("cluster c1 nodes=192.0.2.1");
    for (zone, names, expected) in [
        ("zone main fleet.example external", 0, vec!["withdraw fleet.example"]),
        ("zone main fleet.example external ttl=5", 0, vec![]),
        ("zone main fleet.example", 2, vec!["serve fleet.example"]),
        ("zone main fleet.example", 2, vec![]),
    ] {
        let planned = fleet.plan(1001, zone);
        assert_eq!(planned.changes.zones.iter().map(step).collect::<Vec<_>>(), expected, "{zone}");
        assert_eq!(fleet.names("c1").len(), names, "{zone}");
        assert_eq!(fleet.by_id("c1").as_deref(), Some("c1 kube-apiserver"), "{zone}");
    }
}

#[test]
fn a_child_zone_hides_what_lies_in_it_while_it_is_there() {
    let mut fleet = Fleet::grounded("cluster c1\n cluster c2");
    fleet.plan(1001, "zone child c1.fleet.example since=9");
    assert_eq!(fleet.accepted_clusters(), ["c2"]);
    assert_eq!(
        fleet.verdict(Kind::Cluster, "c1"),
        "HiddenByZone: api.c1.fleet.example lies inside the domain of Zone child, which would hide it"
    );
    for unhide in ["gone zone child", "zone child c1.other.test", "zone child c1.fleet.example dnssec"] {
        fleet.plan(1002, unhide);
        assert_eq!(fleet.accepted_clusters(), ["c1", "c2"], "{unhide}");
        fleet.plan(1003, "zone child c1.fleet.example since=9");
        assert_eq!(fleet.accepted_clusters(), ["c2"], "{unhide}");
    }
}

#[test]
fn reserved_names_are_free_again_without_their_zone() {
    let mut fleet = Fleet::grounded("zone other other.test\n cluster c1 sni=agents.other.test");
    assert_eq!(fleet.accepted_clusters(), [""; 0]);
    fleet.plan(1001, "gone zone other");
    assert_eq!(fleet.by_server_name("agents.other.test").as_deref(), Some("c1 service-0"));
}

fn step(change: &ZoneChange) -> String {
    match change {
        ZoneChange::Withdraw { apex } => format!("withdraw {apex}"),
        ZoneChange::Serve { apex, .. } => format!("serve {apex}"),
    }
}
