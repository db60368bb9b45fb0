//! What an accepted cluster is called, and what its names say.

use std::sync::Arc;

use super::fleet::Fleet;
use crate::Snapshot;
use crate::identity::Kind;
use crate::resource::Limits;
use crate::snapshot::{Condition, Detail, Status};

#[test]
fn the_names_of_a_cluster() {
    for (zone, cluster, expected) in [
        ("", "", vec!["api.c1.fleet.example 30 A 192.0.2.10"]),
        ("", "nodes=192.0.2.1", vec!["api.c1.fleet.example 30 A 192.0.2.10", "*.c1.fleet.example 30 A 192.0.2.1"]),
        (
            "ttl=5 api=kube-{cluster}.k8s apps=*.apps.{cluster}",
            "nodes=192.0.2.1",
            vec!["kube-c1.k8s.fleet.example 5 A 192.0.2.10", "*.apps.c1.fleet.example 5 A 192.0.2.1"],
        ),
        (
            "gateway=2001:db8::a+192.0.2.11+192.0.2.10",
            "hub nodes=192.0.2.1",
            vec![
                "api.c1.fleet.example 30 A 192.0.2.10 192.0.2.11",
                "api.c1.fleet.example 30 AAAA 2001:db8::a",
                "*.c1.fleet.example 30 A 192.0.2.10 192.0.2.11",
                "*.c1.fleet.example 30 AAAA 2001:db8::a",
            ],
        ),
        (
            "gateway=lb.example.net",
            "hub",
            vec!["api.c1.fleet.example 30 CNAME lb.example.net", "*.c1.fleet.example 30 CNAME lb.example.net"],
        ),
        // Sorted, each address once, an IPv4 address in IPv6 clothes as what it is, and only of the ready nodes.
        (
            "gateway=none",
            "nodes=192.0.2.2+2001:db8::2,192.0.2.1,!192.0.2.9,::ffff:192.0.2.1,2001:db8::2",
            vec!["*.c1.fleet.example 30 A 192.0.2.1 192.0.2.2", "*.c1.fleet.example 30 AAAA 2001:db8::2"],
        ),
        // A server name inside the zone is published beside the others, one outside is only routed.
        (
            "",
            "sni=konnectivity.c1.fleet.example,oauth.test",
            vec!["api.c1.fleet.example 30 A 192.0.2.10", "konnectivity.c1.fleet.example 30 A 192.0.2.10"],
        ),
        ("external", "nodes=192.0.2.1 sni=konnectivity.c1.fleet.example", vec![]),
        ("gateway=none", "hub", vec![]),
    ] {
        let fleet = Fleet::grounded(&format!("zone main fleet.example {zone}\n cluster c1 {cluster}"));
        assert_eq!(fleet.verdict(Kind::Cluster, "c1"), "Valid", "{zone} / {cluster}");
        assert_eq!(fleet.names("c1"), expected, "{zone} / {cluster}");
    }
}

/// Where others answer, no step towards the DNS index tells of it, nor does the status. Of one that is gone its tenant is told
/// that the subtree rests.
#[test]
fn a_node_in_place_of_another_changes_its_cluster_alone() {
    let zone = "zone main fleet.example external handout";
    let mut fleet = Fleet::grounded(&format!("{zone}\n cluster c1 nodes=192.0.2.1\n cluster c2"));
    for (facts, clusters, statuses) in
        [("cluster c1 nodes=192.0.2.1", 0, 0), ("cluster c1 nodes=192.0.2.2", 1, 0), ("gone cluster c1", 1, 2)]
    {
        let changes = &fleet.plan(1001, facts).changes;
        assert_eq!((changes.clusters.len(), changes.statuses.len()), (clusters, statuses), "{facts}");
        assert!(changes.names.is_empty(), "{facts}");
    }
}

#[test]
fn the_routes_of_a_cluster() {
    for zone in ["", "external", "gateway=none"] {
        let sni = "sni=konnectivity.c1.fleet.example,oauth.test";
        let fleet = Fleet::grounded(&format!("zone main fleet.example {zone}\n cluster c1 id=X1 {sni}"));
        for (id, expected) in [("X1", Some("c1 kube-apiserver")), ("x1", None), ("c1", None)] {
            assert_eq!(fleet.by_id(id).as_deref(), expected, "{id}");
        }
        for (name, expected) in [
            ("api.c1.fleet.example", Some("c1 kube-apiserver")),
            ("konnectivity.c1.fleet.example", Some("c1 service-0")),
            ("oauth.test", Some("c1 service-1")),
            ("any.c1.fleet.example", None),
            ("*.c1.fleet.example", None),
        ] {
            assert_eq!(fleet.by_server_name(name).as_deref(), expected, "{name}");
        }
        assert_eq!(fleet.planned.snapshot.route_by_id(b"\xff"), None);
    }
}

/// `connections/rate` of the cluster and of its tenant.
fn limits(fleet: &Fleet, name: &str) -> String {
    let shown = |limit: Option<u32>| limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string());
    let both = |limits: &Limits| format!("{}/{}", shown(limits.connections), shown(limits.new_connections_per_second));
    let route = fleet.planned.snapshot.route_by_server_name(&name.parse().unwrap()).unwrap();
    format!("{} {}", both(&route.limits), both(&route.tenant_limits))
}

#[test]
fn routes_carry_the_limits_of_their_cluster_and_tenant() {
    let mut fleet = Fleet::grounded("cluster c1 sni=s.test connections=7\n cluster c2 tenant=initech");
    for (facts, api, service, other) in [
        ("", "7/- -/-", "7/- -/-", "-/- -/-"),
        ("tenant acme connections=100 rate=9", "7/- 100/9", "7/- 100/9", "-/- -/-"),
        ("cluster c1 sni=s.test rate=0", "-/0 100/9", "-/0 100/9", "-/- -/-"),
        ("cluster c2 tenant=acme rate=3", "-/0 100/9", "-/0 100/9", "-/3 100/9"),
        ("tenant acme", "-/0 -/-", "-/0 -/-", "-/3 -/-"),
    ] {
        fleet.plan(1001, facts);
        assert_eq!(limits(&fleet, "api.c1.fleet.example"), api, "{facts}");
        assert_eq!(limits(&fleet, "s.test"), service, "{facts}");
        assert_eq!(limits(&fleet, "api.c2.fleet.example"), other, "{facts}");
    }
}

#[test]
fn a_tenants_new_limits_touch_no_name() {
    let mut fleet = Fleet::grounded("cluster c1 nodes=192.0.2.1\n cluster c2 tenant=initech");
    let before = Arc::clone(&fleet.planned.snapshot);
    let planned = fleet.plan(1001, "tenant acme connections=1");
    let its_cluster = crate::Changes { clusters: vec!["c1".parse().unwrap()], ..crate::Changes::default() };
    assert_eq!(planned.changes, its_cluster);
    assert_ne!(planned.snapshot.revision, before.revision);
    let part = |snapshot: &Snapshot, name: &str| Arc::clone(snapshot.cluster(&name.parse().unwrap()).unwrap());
    assert!(Arc::ptr_eq(&part(&planned.snapshot, "c2"), &part(&before, "c2")), "others stay as they are");
    let unchanged = Arc::clone(&planned.snapshot);
    assert!(Arc::ptr_eq(&fleet.plan(1002, "tenant acme connections=1").snapshot, &unchanged));
}

#[test]
fn every_server_name_leads_to_its_route() {
    let fleet = Fleet::grounded("cluster c1 sni=s.test\n cluster c2");
    let routes = fleet.planned.snapshot.routes();
    let mut routes: Vec<_> =
        routes.map(|(name, route)| format!("{name} {} {}", route.cluster, route.service)).collect();
    routes.sort();
    let expected =
        ["api.c1.fleet.example c1 kube-apiserver", "api.c2.fleet.example c2 kube-apiserver", "s.test c1 service-0"];
    assert_eq!(routes, expected);
}

#[test]
fn the_conditions_of_an_accepted_cluster() {
    use Condition as C;
    for (zone, cluster, condition, expected) in [
        ("", "nodes=192.0.2.1", C::PUBLISHED, "true Authoritative: "),
        ("external", "nodes=192.0.2.1", C::PUBLISHED, "false NotAuthoritative: Zone main does not publish it"),
        (
            "gateway=none",
            "nodes=192.0.2.1",
            C::PUBLISHED,
            "false NoGateway: Zone main has no gateway for api.c1.fleet.example to point at",
        ),
        ("", "nodes=192.0.2.1,!192.0.2.2", C::NODES_READY, "true Ready: 1 of 2 ready"),
        (
            "",
            "nodes=!192.0.2.2",
            C::NODES_READY,
            "false NoReadyNode: no node is ready; *.c1.fleet.example is withdrawn until that changes",
        ),
    ] {
        let fleet = Fleet::grounded(&format!("zone main fleet.example {zone}\n cluster c1 {cluster}"));
        let found = fleet.condition(Kind::Cluster, "c1", condition);
        assert_eq!(format!("{} {}: {}", found.holds, found.reason, found.message), expected);
    }
}

#[test]
fn the_status_tells_the_names() {
    let fleet = Fleet::grounded("cluster c1 nodes=192.0.2.1,!192.0.2.2");
    let object = "c1".parse().map(|name| crate::ObjectRef::cluster_scoped(Kind::Cluster, name)).unwrap();
    let Status { detail, .. } = &**fleet.planned.snapshot.status(&object).unwrap();
    let (api_name, apps_name) = ("api.c1.fleet.example".parse().unwrap(), "*.c1.fleet.example".parse().unwrap());
    let (state, kept, resolver) = ("Ready", None, None);
    assert_eq!(*detail, Detail::Cluster { api_name, apps_name, ready_nodes: 1, state, kept, resolver });
}
