//! Who is refused whatever anybody else does, and that a refused cluster has nothing.

use super::fleet::Fleet;
use crate::identity::Kind;

#[test]
fn the_refusals_of_a_cluster() {
    let long = "l".repeat(63);
    let deep = format!("{long}.{long}.{long}.example");
    let too_long = format!("zone main {deep}\n cluster {long} zone=main");
    for (facts, name, expected) in [
        ("cluster c1 zone=other", "c1", "UnknownZone: no Zone is called other"),
        ("cluster c1 tenant=nobody", "c1", "UnknownTenant: no Tenant is called nobody"),
        ("zone main fleet.example dnssec\n cluster c1", "c1", "RefusedZone: Zone main is refused itself"),
        ("cluster c1 proof", "c1", "NotYet: spec.proof is not supported yet; leave it out"),
        (
            "cluster c1 service",
            "c1",
            "NeedsHub: spec.controlPlane.kubeApiserver.service needs a Kubernetes hub; a folder has no such thing",
        ),
        ("cluster c1 sni=fleet.example", "c1", "Reserved: fleet.example is reserved by Zone main"),
        ("cluster c1 sni=ns1.fleet.example", "c1", "Reserved: ns1.fleet.example is reserved by Zone main"),
        ("cluster c1 sni=agents.fleet.example", "c1", "Reserved: agents.fleet.example is reserved by Zone main"),
        (
            "zone main fleet.example api={cluster}\n cluster agents",
            "agents",
            "Reserved: agents.fleet.example is reserved by Zone main",
        ),
        (
            "zone main fleet.example ns=ns.c1.fleet.example/192.0.2.53\n cluster c1 sni=ns.c1.fleet.example",
            "c1",
            "Reserved: ns.c1.fleet.example is reserved by Zone main",
        ),
        (
            "zone other other.test\n cluster c1 sni=agents.other.test",
            "c1",
            "Reserved: agents.other.test is reserved by Zone other",
        ),
        (
            "zone deep k8s.fleet.example\n cluster c1 sni=c1.k8s.fleet.example",
            "c1",
            "HiddenByZone: c1.k8s.fleet.example lies inside the domain of Zone deep, which would hide it",
        ),
        (
            "zone deep c1.fleet.example\n cluster c1",
            "c1",
            "HiddenByZone: api.c1.fleet.example lies inside the domain of Zone deep, which would hide it",
        ),
        ("cluster c1 sni=a.test,A.TEST", "c1", "ClaimedTwice: name a.test is claimed twice by this very Cluster"),
        (
            "cluster c1 sni=api.c1.fleet.example",
            "c1",
            "ClaimedTwice: name api.c1.fleet.example is claimed twice by this very Cluster",
        ),
        (
            "cluster c1 sni=*.c1.fleet.example",
            "c1",
            "ClaimedTwice: name *.c1.fleet.example is claimed twice by this very Cluster",
        ),
        (
            &too_long,
            &long,
            "NameTooLong: the name made from template `api.{cluster}` does not fit: the name is longer than 255 octets",
        ),
    ] {
        let fleet = Fleet::grounded(facts);
        assert_eq!(fleet.verdict(Kind::Cluster, name), expected, "{facts}");
        assert_has_nothing(&fleet, name);
    }
}

#[test]
fn a_server_name_in_another_zone_is_routed_but_not_published() {
    let fleet = Fleet::grounded("zone other other.test\n cluster c1 sni=x.other.test");
    assert_eq!(fleet.verdict(Kind::Cluster, "c1"), "Valid");
    assert_eq!(fleet.by_server_name("x.other.test").as_deref(), Some("c1 service-0"));
    assert_eq!(fleet.names("c1"), ["api.c1.fleet.example 30 A 192.0.2.10"]);
}

#[test]
fn the_clashes_of_two_clusters() {
    for (second, expected) in [
        ("cluster c2 id=c1", "ClusterIdTaken: cluster id c1 belongs to Cluster c1, which was first"),
        ("cluster c2 sni=a.test", "NameTaken: name a.test belongs to Cluster c1, which was first"),
        (
            "cluster c2 sni=api.c1.fleet.example",
            "NameTaken: name api.c1.fleet.example belongs to Cluster c1, which was first",
        ),
        (
            "cluster c2 sni=*.c1.fleet.example",
            "NameTaken: name *.c1.fleet.example belongs to Cluster c1, which was first",
        ),
        ("cluster c2 tenant=initech id=C1", "Valid"),
        ("cluster c2 sni=b.test", "Valid"),
    ] {
        let fleet = Fleet::grounded(&format!("cluster c1 sni=a.test nodes=192.0.2.1\n {second} nodes=192.0.2.2"));
        assert_eq!(fleet.verdict(Kind::Cluster, "c1"), "Valid", "{second}");
        assert_eq!(fleet.verdict(Kind::Cluster, "c2"), expected, "{second}");
        if expected != "Valid" {
            assert_has_nothing(&fleet, "c2");
            assert_eq!(fleet.by_id("c1").as_deref(), Some("c1 kube-apiserver"), "{second}");
            assert_eq!(fleet.by_server_name("a.test").as_deref(), Some("c1 service-0"), "{second}");
        }
    }
}

#[test]
fn names_clash_across_zones_too() {
    let fleet = Fleet::grounded("zone other other.test\n cluster c1 sni=api.o1.other.test\n cluster o1 zone=other");
    assert_eq!(
        fleet.verdict(Kind::Cluster, "o1"),
        "NameTaken: name api.o1.other.test belongs to Cluster c1, which was first"
    );
}

#[track_caller]
fn assert_has_nothing(fleet: &Fleet, cluster: &str) {
    let snapshot = &fleet.planned.snapshot;
    assert!(snapshot.cluster(&cluster.parse().unwrap()).is_none(), "{cluster} contributes something");
    let mut routes = snapshot.routes_by_id.values().chain(snapshot.routes_by_server_name.values());
    assert!(routes.all(|route| route.cluster.as_str() != cluster), "{cluster} is routed to");
    let api_name = format!("api.{cluster}.fleet.example").parse().unwrap();
    let mut told = fleet.planned.changes.names.iter();
    assert!(!told.any(|change| change.name == api_name && !change.records.is_empty()), "{cluster} is in DNS");
}
