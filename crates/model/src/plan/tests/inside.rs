//! What is reached through the tunnel: `apps` wildcards of clusters with `ingress.mode: hub`, and such clusters as members.

use super::fleet::Fleet;
use crate::identity::Kind;
use crate::ingress::UpstreamTls;
use crate::inside::Place;
use crate::routes::HostRule;
use crate::snapshot::Condition;

/// Of two tenants, each with a cluster that is reached through the tunnel; one has another beside it.
const FLEET: &str = "
    zone main fleet.example
    tenant acme domains=acme.test
    tenant initech
    cluster c1 tenant=acme hub inner-http=ingress.web.svc:80 inner-https=ingress.web.svc:443,10.0.0.9:443
    cluster c2 tenant=initech hub inner-http=ingress.web.svc:80 inner-https=ingress.web.svc:443
    cluster c3 tenant=acme https=192.0.2.13:443 nodes=192.0.2.103
";

fn planned(lines: &str) -> Fleet {
    let mut fleet = Fleet::new();
    fleet.plan(1000, FLEET);
    fleet.plan(1001, lines);
    fleet
}

#[test]
fn the_wildcard_leads_inside_at_any_depth() {
    let fleet = planned("cluster c1 tenant=acme hub inner-https=ingress.web.svc:443 sni=s.c1.fleet.example");
    for (name, expected) in [
        ("a.c1.fleet.example", Some("c1 ingress ingress.web.svc:443")),
        ("A.B.c1.fleet.example", Some("c1 ingress ingress.web.svc:443")),
        ("a.c2.fleet.example", Some("c2 ingress ingress.web.svc:443")),
        // RFC 4592: what the wildcard stands under is not its own.
        ("c1.fleet.example", None),
        ("*.c1.fleet.example", None),
        ("a.c3.fleet.example", None),
        ("a.evilc1.fleet.example", None),
        ("a.fleet.example", None),
        ("c1.fleet.example.evil", None),
    ] {
        assert_eq!(fleet.by_apps(name).as_deref(), expected, "{name}");
    }
    // Those have names of their own.
    assert_eq!(fleet.by_server_name("api.c1.fleet.example").as_deref(), Some("c1 kube-apiserver"));
    assert_eq!(fleet.by_server_name("s.c1.fleet.example").as_deref(), Some("c1 service-0"));
    assert_eq!(fleet.by_id("c1").as_deref(), Some("c1 kube-apiserver"));
    assert_eq!(fleet.request("a.c1.fleet.example/"), None);
    assert_eq!(fleet.request("a.b.c2.fleet.example/x").as_deref(), Some("c2 ingress c2"));
}

#[test]
fn what_somebody_has_is_no_wildcards() {
    let fleet = planned(
        "
        ingress acme/web www.c1.fleet.example/ *.dev.c1.fleet.example/
        ingress acme/all /any
        ",
    );
    for (name, tls, http) in [
        ("www.c1.fleet.example", None, Some("web web c1,c3")),
        ("a.dev.c1.fleet.example", None, Some("web web c1,c3")),
        ("a.b.dev.c1.fleet.example", Some("c1 ingress ingress.web.svc:443,10.0.0.9:443"), Some("c1 ingress c1")),
        ("a.c1.fleet.example", Some("c1 ingress ingress.web.svc:443,10.0.0.9:443"), Some("c1 ingress c1")),
        ("x.www.c1.fleet.example", Some("c1 ingress ingress.web.svc:443,10.0.0.9:443"), Some("c1 ingress c1")),
    ] {
        assert_eq!(fleet.by_apps(name).as_deref(), tls, "{name}");
        assert_eq!(fleet.request(&format!("{name}/any")).as_deref(), http, "{name}");
    }
    // Rules without a host have what the wildcard does not stand for.
    assert_eq!(fleet.request("c1.fleet.example/any").as_deref(), Some("all web c1,c3"));
    assert_eq!(fleet.request("a.c3.fleet.example/any").as_deref(), Some("all web c1,c3"));
    let found = fleet.planned.snapshot.http().find(&"a.c1.fleet.example".parse().unwrap()).unwrap().by;
    assert_eq!(found, HostRule::Apps);
}

/// Neither by an Ingress nor by records, whoever was first.
#[test]
fn nobody_else_has_a_name_under_the_wildcard() {
    let fleet = planned(
        "
        ingress initech/web since=0 www.c1.fleet.example/ *.c1.fleet.example/ /
        records initech/web since=0 www.c1.fleet.example/A/192.0.2.1
        cluster c4 since=9 tenant=initech hub inner-https=evil.svc:443 sni=api.c1.fleet.example
        cluster c5 since=9 tenant=initech id=c1 hub inner-https=evil.svc:443
        ",
    );
    let told = fleet.ingress("initech/web");
    assert_eq!(
        told[..2],
        ["www.c1.fleet.example/: NotYours rules[0].host", "*.c1.fleet.example/: NotYours rules[1].host"]
    );
    assert_eq!(fleet.parts("initech/web"), ["NotYours dnsName"]);
    assert_eq!(fleet.accepted_clusters(), ["c1", "c2", "c3"]);
    for name in ["www.c1.fleet.example", "a.c1.fleet.example"] {
        assert_eq!(fleet.by_apps(name).as_deref(), Some("c1 ingress ingress.web.svc:443,10.0.0.9:443"), "{name}");
        assert_eq!(fleet.request(&format!("{name}/")).as_deref(), Some("c1 ingress c1"), "{name}");
    }
}

#[test]
fn it_is_said_where_the_tunnel_leads() {
    for (settings, holds, reason, tls, http) in [
        ("hub inner-http=i.w.svc:80 inner-https=i.w.svc:443", true, "Tunnel", true, true),
        ("hub inner-https=i.w.svc:443", true, "OnlyTLS", true, false),
        ("hub inner-http=i.w.svc:80", true, "OnlyHTTP", false, true),
        ("hub", false, "NoTarget", false, false),
    ] {
        let fleet = planned(&format!("cluster c1 {settings}"));
        let condition = fleet.condition(Kind::Cluster, "c1", Condition::INGRESS_ROUTED);
        assert_eq!((condition.holds, condition.reason), (holds, reason), "{settings}");
        assert_eq!(fleet.by_apps("a.c1.fleet.example").is_some(), tls, "{settings}");
        assert_eq!(fleet.request("a.c1.fleet.example/").is_some(), http, "{settings}");
        // DNS leads to the gateway either way, which says what is missing.
        assert!(fleet.names("c1").contains(&"*.c1.fleet.example 30 A 192.0.2.10".to_owned()), "{settings}");
    }
    let fleet = planned("cluster c1 inner-http=i.w.svc:80 nodes=192.0.2.1");
    assert_eq!(fleet.by_apps("a.c1.fleet.example"), None);
    assert_eq!(fleet.request("a.c1.fleet.example/"), None);
}

#[test]
fn one_change_touches_one_wildcard() {
    let mut fleet = planned("");
    let route = |fleet: &Fleet, name: &str| {
        std::sync::Arc::clone(fleet.planned.snapshot.route_by_apps(&name.parse().unwrap()).unwrap())
    };
    let (c1, c2) = (route(&fleet, "a.c1.fleet.example"), route(&fleet, "a.c2.fleet.example"));
    let changes = &fleet.plan(1002, "cluster c1 tenant=acme hub inner-http=i.w.svc:81 inner-https=i.w.svc:443").changes;
    assert_eq!(changes.hosts, ["c1.fleet.example".parse().unwrap()]);
    assert_eq!(changes.clusters, ["c1".parse().unwrap()]);
    assert!(!std::sync::Arc::ptr_eq(&c1, &route(&fleet, "a.c1.fleet.example")));
    assert!(std::sync::Arc::ptr_eq(&c2, &route(&fleet, "a.c2.fleet.example")));
    // Nodes are not on the way.
    let changes = &fleet
        .plan(1003, "cluster c1 tenant=acme hub inner-http=i.w.svc:81 inner-https=i.w.svc:443 nodes=192.0.2.9")
        .changes;
    assert_eq!((changes.clusters.len(), changes.hosts.len()), (1, 0));
    let changes = &fleet.plan(1004, "gone cluster c1").changes;
    assert_eq!(changes.hosts, ["c1.fleet.example".parse().unwrap()]);
    assert_eq!((fleet.by_apps("a.c1.fleet.example"), fleet.request("a.c1.fleet.example/")), (None, None));
    assert!(fleet.by_apps("a.c2.fleet.example").is_some());
}

#[test]
fn the_wildcard_has_sources_of_its_own() {
    let fleet = planned("cluster c1 hub inner-http=i.w.svc:80 inner-https=i.w.svc:443 from=192.0.2.0/24");
    let snapshot = &fleet.planned.snapshot;
    let (name, inside, outside) = ("a.c1.fleet.example".parse().unwrap(), "192.0.2.7", "198.51.100.7");
    for (client, expected) in [(inside, true), (outside, false)] {
        let client = client.parse().unwrap();
        assert_eq!(snapshot.route_by_apps(&name).unwrap().admits(client), expected);
        assert_eq!(snapshot.http().host(&name).unwrap().admits(client), expected);
        // The control plane's are others.
        assert!(snapshot.route_by_server_name(&"api.c1.fleet.example".parse().unwrap()).unwrap().admits(client));
    }
}

/// Over the tunnel plain text needs no asking for; what a policy says of TLS beyond the default is done in it.
#[test]
fn members_are_reached_through_the_tunnel() {
    let fleet = planned("ingress acme/web www.acme.test/");
    let host = fleet.planned.snapshot.http().host(&"www.acme.test".parse().unwrap()).unwrap();
    let entry = host.entry("/").unwrap();
    let authorities = UpstreamTls::Verified { authorities: [vec![1]].into() };
    for (upstream, c1, c3) in [
        (UpstreamTls::default(), "ingress.web.svc:80 inside c1", "192.0.2.13:443"),
        (authorities, "ingress.web.svc:443 inside c1", "192.0.2.13:443"),
        (UpstreamTls::Unverified, "ingress.web.svc:443 inside c1", "192.0.2.13:443"),
        (UpstreamTls::Plain, "ingress.web.svc:80 inside c1", ""),
    ] {
        for (member, expected) in entry.members.iter().zip([c1, c3]) {
            let places = member.places(&upstream);
            assert_eq!(places.list.first().map(Place::to_string).unwrap_or_default(), expected, "{upstream:?}");
            assert_eq!(places.is_tls, !places.list.is_empty() && expected.contains("443"), "{upstream:?}");
        }
    }
    for (policy, cluster, expected) in [
        ("", "hub inner-https=i.w.svc:443", "c1"),
        ("", "hub inner-http=i.w.svc:80", "c1"),
        ("plain", "hub inner-https=i.w.svc:443", "c1: NoIngressAddress"),
        ("", "hub", "c1: NoIngressAddress"),
        // What is inside is no address of clients.
        ("dns", "hub inner-https=10.0.0.1:443 nodes=192.0.2.1", "c1: BehindTunnel"),
        ("dns", "https=192.0.2.11:443", "c1"),
    ] {
        let lines = format!(
            "policy p {policy}\n class p policy=p\n cluster c1 {cluster}\n ingress acme/web class=p www.acme.test/"
        );
        assert_eq!(planned(&lines).ingress("acme/web")[1], expected, "{policy} / {cluster}");
    }
}
