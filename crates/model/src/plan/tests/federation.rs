//! Federated ingress: who serves which host, by which clusters, and what everybody is told.

use super::fleet::{Fleet, at, facts};
use crate::fact::FactChange;
use crate::identity::Kind;
use crate::ingress::Steering;
use crate::snapshot::{Condition, Detail, EntryPoint};
use crate::steering::Unhealthy;

/// Two tenants, who share a domain; one has two clusters, and each serves by its ingress controller.
const FLEET: &str = "
    zone main fleet.example
    zone shop acme.test ns=ns1.fleet.example gateway=192.0.2.20
    zone shared shared.test ns=ns1.fleet.example
    tenant acme domains=acme.test,shared.test,outside.example
    tenant initech domains=shared.test,deep.acme.test
    cluster a1 tenant=acme labels=env:prod https=192.0.2.11:443 nodes=192.0.2.101
    cluster a2 tenant=acme labels=env:test https=192.0.2.12:443 http=192.0.2.12:80
    cluster i1 tenant=initech labels=env:prod https=192.0.2.31:443
";

fn planned(lines: &str) -> Fleet {
    let mut fleet = Fleet::new();
    fleet.plan(1000, FLEET);
    fleet.plan(1001, lines);
    fleet
}

#[track_caller]
fn assert_parts(lines: &str, object: &str, expected: &[&str]) {
    assert_eq!(planned(lines).ingress(object), expected, "{lines}");
}

/// Whatever selectors and labels say: a tenant's Ingress is served by its own clusters, and gets its own visitors.
#[test]
fn members_are_only_ever_the_tenants_own() {
    for (policy, members) in [
        ("policy p", "a1,a2"),
        ("policy p labels=env:prod", "a1"),
        ("policy p labels=env:test", "a2"),
        ("policy p labels=env:prod,missing:label", ""),
        ("policy p plain", "a2"),
    ] {
        let fleet = planned(&format!("{policy}\n class mine policy=p\n ingress acme/web class=mine www.acme.test/"));
        assert_eq!(fleet.request("www.acme.test/").as_deref(), Some(format!("web web {members}").as_str()), "{policy}");
    }
    // The other tenant tries to draw the traffic: by the host, by a cluster's label, and by the name of a cluster.
    let fleet = planned(
        "
        policy all
        class all policy=all
        ingress acme/web class=all since=5 www.acme.test/ a.a1.fleet.example/
        ingress initech/web class=all since=1 www.acme.test/ a.a1.fleet.example/ *.acme.test/ /
        ",
    );
    assert_eq!(fleet.request("www.acme.test/").as_deref(), Some("web web a1,a2"));
    assert_eq!(fleet.request("a.a1.fleet.example/").as_deref(), Some("web web a1,a2"));
    assert_eq!(fleet.request("other.acme.test/"), None);
    assert_eq!(fleet.request("a.i1.fleet.example/").as_deref(), Some("web web i1"));
    assert_eq!(
        fleet.ingress("initech/web"),
        [
            "www.acme.test/: NotYours rules[0].host",
            "a.a1.fleet.example/: NotYours rules[1].host",
            "*.acme.test/: NotYours rules[2].host",
            "*/",
            "i1",
        ]
    );
}

/// Whose a name would be, for operators.
#[test]
fn a_name_has_owners_before_anybody_has_it() {
    let fleet = planned("");
    for (name, suffix, tenants, cluster, other) in [
        ("www.acme.test", "acme.test", "acme", "", ""),
        ("www.shared.test", "shared.test", "acme initech", "", ""),
        ("a.deep.acme.test", "deep.acme.test", "initech", "", ""),
        ("www.a1.fleet.example", "a1.fleet.example", "acme", "a1", ""),
        ("api.i1.fleet.example", "i1.fleet.example", "initech", "i1", "control plane of initech"),
        ("ns1.fleet.example", "", "", "", "reserved by main"),
        ("www.nobody.example", "", "", "", ""),
    ] {
        let name = name.parse().unwrap();
        let owners = fleet.planned.snapshot.ground().owners(&name);
        let found = owners.suffix.map(|suffix| suffix.to_string()).unwrap_or_default();
        let whose: Vec<_> = owners.tenants.iter().map(ToString::to_string).collect();
        let of_cluster = owners.cluster.map(ToString::to_string).unwrap_or_default();
        assert_eq!(
            (found.as_str(), whose.join(" ").as_str(), of_cluster.as_str()),
            (suffix, tenants, cluster),
            "{name}"
        );
        let control = owners.control.map(|tenant| format!("control plane of {tenant}"));
        let reserved = owners.reserved_by.map(|zone| format!("reserved by {zone}"));
        assert_eq!(control.or(reserved).unwrap_or_default(), other, "{name}");
    }
}

#[test]
fn hosts_are_judged_as_record_names_are() {
    for (host, expected) in [
        ("www.acme.test", ""),
        ("*.www.acme.test", ""),
        ("a.shared.test", ""),
        ("www.a1.fleet.example", ""),
        ("deep.outside.example", ""),
        ("outside.example", ""),
        ("acme.test", ": Reserved rules[0].host"),
        ("agents.acme.test", ": Reserved rules[0].host"),
        ("*.acme.test", ": WildcardOverOthers rules[0].host"),
        ("*.shared.test", ": WildcardOverOthers rules[0].host"),
        ("www.deep.acme.test", ": NotYours rules[0].host"),
        ("www.i1.fleet.example", ": NotYours rules[0].host"),
        ("www.example.com", ": NotYours rules[0].host"),
        ("api.a1.fleet.example", ": ControlPlaneName rules[0].host"),
        ("*.a1.fleet.example", ": ControlPlaneName rules[0].host"),
        ("wpad.acme.test", ": ReservedLabel rules[0].host"),
        ("a*.acme.test", ": BadName rules[0].host"),
    ] {
        let part = format!("{host}/{expected}");
        assert_parts(&format!("ingress acme/web {host}/"), "acme/web", &[&part, "a1", "a2"]);
    }
}

#[test]
fn an_ingress_is_ours_by_its_class_and_its_tenants_by_its_namespace() {
    for (lines, object, expected) in [
        ("ingress acme/web class=nginx www.acme.test/", "acme/web", &[][..]),
        ("class nginx foreign\n ingress acme/web class=nginx www.acme.test/", "acme/web", &[]),
        ("class fleetgate foreign\n ingress acme/web www.acme.test/", "acme/web", &[]),
        ("class mine\n ingress acme/web class=mine www.acme.test/", "acme/web", &["www.acme.test/", "a1", "a2"]),
        (
            "class mine policy=lost\n ingress acme/web class=mine www.acme.test/",
            "acme/web",
            &["UnknownPolicy: no FederationPolicy is called lost, which its class names"],
        ),
        ("ingress nobody/web www.acme.test/", "nobody/web", &["NoTenant: namespace nobody is no tenant's"]),
        ("ingress acme/web nothing", "acme/web", &["NothingToServe: it has neither rules nor a default backend"]),
        (
            "ingress acme/web wrong-annotation www.acme.test/ www.acme.test/bad?",
            "acme/web",
            &["a/b: BadAnnotation annotations", "www.acme.test/", "www.acme.test/bad: BadPath path", "a1", "a2"],
        ),
    ] {
        assert_parts(lines, object, expected);
    }
    let mut fleet = planned("class mine policy=p\n ingress acme/web class=mine www.acme.test/");
    assert_eq!(fleet.request("www.acme.test/"), None);
    assert_eq!(
        fleet.verdict(Kind::IngressClass, "mine"),
        "UnknownPolicy: no FederationPolicy is called p, which its class names"
    );
    fleet.plan(1002, "policy p");
    assert_eq!(fleet.request("www.acme.test/").as_deref(), Some("web web a1,a2"));
    assert_eq!(fleet.verdict(Kind::FederationPolicy, "p"), "Valid");
    assert_eq!(fleet.verdict(Kind::IngressClass, "mine"), "Valid");
    fleet.plan(1003, "class mine foreign");
    assert_eq!((fleet.request("www.acme.test/"), fleet.ingress("acme/web").len()), (None, 0));
    let web = fleet.planned.changes.statuses.iter().find(|object| object.kind == Kind::Ingress).unwrap();
    assert!(fleet.planned.snapshot.is_foreign(web));
    assert_eq!(fleet.claimed("www.acme.test"), [""; 0]);
}

/// Of two tenants the first has a shared host, and neither is told of the other.
#[test]
fn a_host_has_one_tenant() {
    let clash = "
        ingress acme/web since=5 a.shared.test/ b.shared.test/x
        ingress initech/web since=4 a.shared.test/ c.shared.test/
        ingress initech/late since=6 b.shared.test/ c.shared.test/more
    ";
    let mut fleet = planned(clash);
    assert_eq!(fleet.ingress("acme/web"), ["a.shared.test/: NameTaken rules[0].host", "b.shared.test/x", "a1", "a2"]);
    assert_eq!(fleet.ingress("initech/late"), ["b.shared.test/: NameTaken rules[0].host", "c.shared.test/more", "i1"]);
    for (url, expected) in [
        ("a.shared.test/", Some("web web i1")),
        ("b.shared.test/x", Some("web web a1,a2")),
        ("b.shared.test/y", None),
        ("c.shared.test/more", Some("late web i1")),
    ] {
        assert_eq!(fleet.request(url).as_deref(), expected, "{url}");
    }
    let acme = "Ingress acme/web".to_owned();
    let told: Vec<_> =
        fleet.planned.snapshot.statuses().map(|(object, status)| (object, format!("{status:?}"))).collect();
    for (object, told) in told.iter().filter(|(object, _)| object.kind == Kind::Ingress) {
        let other = if object.to_string() == acme { "initech" } else { "acme" };
        assert!(!told.contains(other), "{object} is told of another tenant: {told}");
    }
    // What the first gives up rests, as caches still know it.
    fleet.plan(1002, "gone ingress initech/web");
    assert_eq!(fleet.ingress("acme/web")[0], "a.shared.test/: Quarantined rules[0].host");
    fleet.plan(1100, "");
    assert_eq!(fleet.request("a.shared.test/").as_deref(), Some("web web a1,a2"));
}

#[test]
fn ingresses_of_one_tenant_share_a_host() {
    let shared = "
        secret acme/one
        secret acme/other
        ingress acme/first since=5 default=fallback tls=one www.acme.test/a@one www.acme.test/a/b!@exact www.acme.test/a@again
        ingress acme/second since=6 default=late tls=other www.acme.test/a@two www.acme.test/c@three
    ";
    let mut fleet = planned(shared);
    for (path, expected) in [
        ("a", "first one a1,a2"),
        ("a/b", "first exact a1,a2"),
        ("c", "second three a1,a2"),
        ("else", "first fallback a1,a2"),
    ] {
        assert_eq!(fleet.request(&format!("www.acme.test/{path}")).as_deref(), Some(expected), "{path}");
    }
    assert_eq!(
        fleet.ingress("acme/first"),
        [
            "www.acme.test/a",
            "www.acme.test/a/b",
            "www.acme.test/a: RouteTaken rules[2].http.paths[0].path",
            "defaultBackend",
            "tls[0]",
            "a1",
            "a2",
        ]
    );
    assert_eq!(
        fleet.ingress("acme/second"),
        [
            "www.acme.test/a: RouteTaken rules[0].http.paths[0].path",
            "www.acme.test/c",
            "defaultBackend: RouteTaken defaultBackend",
            "tls[0]: CertificateTaken tls[0].secretName",
            "a1",
            "a2",
        ]
    );
    fleet.plan(1002, "gone ingress acme/first");
    assert_eq!(fleet.request("www.acme.test/a").as_deref(), Some("second two a1,a2"));
    assert_eq!(fleet.ingress("acme/second")[..4], ["www.acme.test/a", "www.acme.test/c", "defaultBackend", "tls[0]"]);
}

#[test]
fn rules_without_a_host_serve_what_is_the_tenants_alone() {
    let everywhere = "
        tenant solo domains=solo.test,shared.test
        cluster s1 tenant=solo https=192.0.2.41:443
        ingress solo/web /@all named.solo.test/@named
        ingress initech/web default=rest
    ";
    let mut fleet = planned(everywhere);
    for (url, expected) in [
        ("solo.test/", Some("web all s1")),
        ("a.b.solo.test/", Some("web all s1")),
        ("named.solo.test/", Some("web named s1")),
        ("a.s1.fleet.example/", Some("web all s1")),
        ("a.shared.test/", None),
        ("a.deep.acme.test/", Some("web rest i1")),
        ("a.acme.test/", None),
        ("fleet.example/", None),
    ] {
        assert_eq!(fleet.request(url).as_deref(), expected, "{url}");
    }
    assert_eq!(fleet.ingress("solo/web"), ["*/", "named.solo.test/", "s1"]);
    // Somebody gets a domain within, and another cluster comes.
    fleet.plan(1002, "tenant initech domains=shared.test,in.solo.test\n cluster s2 tenant=solo");
    assert_eq!(fleet.request("a.solo.test/"), None);
    assert_eq!(fleet.request("a.s2.fleet.example/").as_deref(), Some("web all s1"));
    fleet.plan(1003, "gone cluster s1\n gone cluster s2");
    assert_eq!(fleet.ingress("solo/web"), ["*/: NoHostOfYourOwn rules[0].host", "named.solo.test/"]);
    fleet.plan(1004, "gone ingress solo/web\n gone ingress initech/web");
    assert!(fleet.planned.snapshot.http().is_empty());
}

#[test]
fn names_lead_to_the_gateway_or_to_the_members() {
    let hosts = "www.acme.test/ www.a1.fleet.example/ a.outside.example/";
    let mut fleet = planned(&format!("class mine policy=p\n policy p\n ingress acme/web class=mine {hosts}"));
    assert_eq!(fleet.claimed("www.acme.test"), ["www.acme.test 30 A 192.0.2.20"]);
    assert_eq!(fleet.claimed("www.a1.fleet.example"), ["www.a1.fleet.example 30 A 192.0.2.10"]);
    assert_eq!(fleet.claimed("a.outside.example"), [""; 0]);
    assert_eq!(fleet.request("a.outside.example/").as_deref(), Some("web web a1,a2"));
    let www = "www.acme.test".parse().unwrap();
    let steered = |fleet: &Fleet| fleet.planned.snapshot.tenant_name(&www).unwrap().records.steered.clone();
    assert_eq!(steered(&fleet), None);

    fleet.plan(1002, "policy p dns");
    assert_eq!(fleet.claimed("www.acme.test"), ["www.acme.test 30 A 192.0.2.11 192.0.2.12"]);
    let chosen = steered(&fleet).unwrap();
    let members: Vec<_> =
        chosen.members.iter().map(|member| (member.cluster.as_str(), member.addresses.len())).collect();
    assert_eq!((members, &chosen.steering), (vec![("a1", 1), ("a2", 1)], &Steering::Geo));
    // Without the controller's addresses the ready nodes take clients, and follow at once.
    let bare = "cluster a1 tenant=acme labels=env:prod nodes=192.0.2.101,!192.0.2.102";
    fleet.plan(1003, bare);
    assert_eq!(fleet.claimed("www.acme.test"), ["www.acme.test 30 A 192.0.2.12 192.0.2.101"]);
    fleet.plan(1004, &bare.replace('!', ""));
    assert_eq!(fleet.claimed("www.acme.test"), ["www.acme.test 30 A 192.0.2.12 192.0.2.101 192.0.2.102"]);

    fleet.plan(1005, "policy p\n zone shop acme.test ns=ns1.fleet.example gateway=lb.example.net");
    assert_eq!(fleet.claimed("www.acme.test"), ["www.acme.test 30 CNAME lb.example.net"]);
    assert_eq!(
        fleet.ingress("acme/web"),
        ["www.acme.test/", "www.a1.fleet.example/", "a.outside.example/", "a1: NoIngressAddress", "a2"]
    );
    fleet.plan(1006, "zone shop acme.test ns=ns1.fleet.example gateway=none");
    assert_eq!(fleet.claimed("www.acme.test"), [""; 0]);
    assert_eq!(fleet.request("www.acme.test/").as_deref(), Some("web web a2"));
    let web = crate::ObjectRef {
        kind: Kind::Ingress,
        namespace: Some("acme".parse().unwrap()),
        name: "web".parse().unwrap(),
    };
    let status = fleet.planned.snapshot.status(&web).unwrap();
    let published = status.conditions.iter().find(|condition| condition.kind == Condition::PUBLISHED).unwrap();
    assert_eq!((published.holds, published.reason), (false, "NoGateway"));
}

/// Claims of records and hosts stand in one line.
#[test]
fn a_name_is_a_records_or_a_hosts() {
    let both = "
        tenant acme domains=acme.test,shared.test allow=192.0.2.0/24 records=6
        tenant initech domains=shared.test allow=192.0.2.0/24
        records acme/early since=1 a.acme.test/A/192.0.2.1 b.shared.test/A/192.0.2.1
        ingress acme/web since=5 a.acme.test/ c.acme.test/ d.shared.test/
        ingress initech/web since=5 b.shared.test/
        records acme/late since=9 c.acme.test/A/192.0.2.1 c.acme.test/AAAA/2001:db8::1 c.acme.test/TXT/x c.acme.test/CNAME/x.test
        records initech/late since=9 d.shared.test/TXT/x
    ";
    let mut fleet = planned(both);
    assert_eq!(
        fleet.ingress("acme/web"),
        ["a.acme.test/: NameTaken rules[0].host", "c.acme.test/", "d.shared.test/", "a1", "a2"]
    );
    assert_eq!(fleet.ingress("initech/web"), ["b.shared.test/: NameTaken rules[0].host", "i1"]);
    assert_eq!(fleet.parts("acme/early"), ["published", "published"]);
    assert_eq!(fleet.parts("initech/late"), ["NameTaken dnsName"]);
    let late = fleet.parts("acme/late");
    assert_eq!((late[0].as_str(), late[3].as_str()), ("NameTaken dnsName", "QuotaExceeded dnsName"), "{late:?}");
    fleet.plan(1002, "tenant acme domains=acme.test,shared.test allow=192.0.2.0/24,2001:db8::/32 records=9");
    assert_eq!(fleet.parts("acme/late"), ["NameTaken dnsName", "NameTaken dnsName", "published", "NameTaken dnsName"]);
    assert_eq!(fleet.claimed("c.acme.test"), ["c.acme.test 30 A 192.0.2.20", "c.acme.test 30 TXT \"x\""]);
    // Hosts count as the records that they are.
    fleet.plan(1003, "tenant acme domains=acme.test,shared.test allow=192.0.2.0/24 records=4");
    assert_eq!(fleet.ingress("acme/web")[1..3], ["c.acme.test/", "d.shared.test/: QuotaExceeded rules[2].host"]);
    assert_eq!(fleet.request("d.shared.test/"), None);
}

#[test]
fn zone_files_come_first_and_others_are_handed_out() {
    let lines = "
        zone shop acme.test ns=ns1.fleet.example file=www/A/192.0.2.9,cut/NS/ns.test external handout
        ingress acme/web www.acme.test/ a.cut.acme.test/ good.acme.test/
    ";
    let fleet = planned(lines);
    assert_eq!(
        fleet.ingress("acme/web")[..3],
        [
            "www.acme.test/: InZoneFile rules[0].host",
            "a.cut.acme.test/: HiddenByZoneFile rules[1].host",
            "good.acme.test/"
        ]
    );
    let name = fleet.planned.snapshot.tenant_name(&"good.acme.test".parse().unwrap()).unwrap();
    assert!(name.hand_out && !name.authoritative);
    assert!(!fleet.planned.changes.names.iter().any(|change| change.name == name.records.name));
}

#[test]
fn certificates_are_found_beside_the_ingress() {
    for (lines, tls, has) in [
        ("ingress acme/web tls=tls www.acme.test/", "tls[0]: UnknownSecret tls[0].secretName", false),
        (
            "secret acme/tls bad\n ingress acme/web tls=tls www.acme.test/",
            "tls[0]: BadCertificate tls[0].secretName",
            false,
        ),
        (
            "secret initech/tls\n ingress acme/web tls=tls www.acme.test/",
            "tls[0]: UnknownSecret tls[0].secretName",
            false,
        ),
        ("secret acme/tls\n ingress acme/web tls=tls www.acme.test/", "tls[0]", true),
        ("secret acme/tls\n ingress acme/web tls=tls:www.acme.test www.acme.test/", "tls[0]", true),
        ("secret acme/tls\n ingress acme/web tls=tls:*.acme.test www.acme.test/", "tls[0]", true),
        (
            "secret acme/tls\n ingress acme/web tls=tls:other.acme.test www.acme.test/",
            "tls[0]: HostNotInRules tls[0].hosts",
            false,
        ),
    ] {
        let fleet = planned(lines);
        assert_eq!(fleet.ingress("acme/web"), ["www.acme.test/", tls, "a1", "a2"], "{lines}");
        let host = fleet.planned.snapshot.http().host(&"www.acme.test".parse().unwrap()).unwrap();
        assert_eq!((host.certificate.is_some(), host.secret.is_some()), (has, has), "{lines}");
        assert_eq!(fleet.claimed("www.acme.test").len(), 1, "the name does not follow from Secrets: {lines}");
    }
    let mut fleet = planned("ingress acme/web tls=tls www.acme.test/");
    let names = |fleet: &Fleet| fleet.planned.changes.names.len();
    for (seconds, lines) in [(1002, "secret acme/tls"), (1003, "gone secret acme/tls")] {
        fleet.plan(seconds, lines);
        assert_eq!((names(&fleet), fleet.planned.changes.hosts.len()), (0, 1), "{lines}");
    }
}

/// What is said of one Ingress does not depend on which others were looked at in the same plan.
#[test]
fn an_entry_for_no_host_is_refused_whatever_else_is_planned() {
    let lone = "ingress acme/lone tls=tls";
    let expected = ["tls[0]: HostNotInRules tls[0].hosts", "a1", "a2"];
    let mut fleet = planned("ingress acme/web /");
    fleet.plan(1002, lone);
    assert_eq!(fleet.ingress("acme/lone"), expected);
    assert_parts(&format!("ingress acme/web /\n {lone}"), "acme/lone", &expected);
}

#[test]
fn clusters_join_and_leave() {
    let mut fleet =
        planned("class mine policy=p\n policy p labels=env:prod\n ingress acme/web class=mine www.acme.test/");
    let a3 = "cluster a3 tenant=acme labels=env:prod https=192.0.2.13:443";
    for (lines, members) in [
        (a3, "a1,a3"),
        ("cluster a1 tenant=acme labels=env:test https=192.0.2.11:443", "a3"),
        ("cluster a3 tenant=initech labels=env:prod https=192.0.2.13:443", ""),
        (a3, "a3"),
        ("cluster a3 tenant=acme labels=env:prod https=192.0.2.13:443 proof", ""),
        (a3, "a3"),
        ("gone cluster a3", ""),
    ] {
        fleet.plan(1002, lines);
        assert_eq!(fleet.request("www.acme.test/").as_deref(), Some(format!("web web {members}").as_str()), "{lines}");
    }
    assert_eq!(fleet.ingress("acme/web"), ["www.acme.test/"]);
    fleet.plan(1003, "gone tenant acme");
    assert_eq!(fleet.request("www.acme.test/"), None);
    assert_eq!(fleet.ingress("acme/web"), ["NoTenant: namespace acme is no tenant's"]);
    fleet.plan(1004, "gone ingress acme/web");
    assert_eq!((fleet.ingress("acme/web").len(), fleet.planned.snapshot.http().is_empty()), (0, true));
}

/// A node that comes or goes touches no Ingress whose clients meet the gateway.
#[test]
fn what_makes_no_difference_changes_nothing() {
    let mut fleet = planned("ingress acme/web www.acme.test/");
    fleet.plan(1002, "cluster a1 tenant=acme labels=env:prod https=192.0.2.11:443 nodes=192.0.2.101,192.0.2.102");
    assert_eq!(fleet.planned.changes.hosts, []);
    let again: Vec<FactChange> = facts("ingress acme/web www.acme.test/");
    let before = std::sync::Arc::clone(&fleet.planned.snapshot);
    let planned = fleet.planner.apply(again, super::fleet::at(1003));
    assert!(std::sync::Arc::ptr_eq(&before, &planned.snapshot));
}

/// Whether its object says so, or somebody ordered it beside that; a later cluster of the name is not meant.
#[test]
fn nobody_is_sent_to_a_drained_member_while_there_is_another() {
    let a1 =
        |more: &str| format!("cluster a1 tenant=acme labels=env:prod https=192.0.2.11:443 nodes=192.0.2.101 {more}");
    let drained = |since: Option<u64>| FactChange::Drained("a1".parse().unwrap(), since.map(at));
    let told = |fleet: &Fleet| (fleet.ingress("acme/web")[1].clone(), fleet.request("www.acme.test/").unwrap());
    let (in_use, out) =
        (("a1".to_owned(), "web web a1,a2".to_owned()), ("a1: Drained".to_owned(), "web web !a1,a2".to_owned()));

    let mut fleet = planned("ingress acme/web www.acme.test/");
    assert_eq!(told(&fleet), in_use);
    fleet.plan(1002, &a1("drained=1001"));
    assert_eq!(told(&fleet), out);
    let condition = fleet.condition(Kind::Cluster, "a1", Condition::DRAINED);
    assert!(condition.holds && condition.message.contains("`fleetgate drain a1 --undo`"), "{condition:?}");
    // What an object says, no order takes back.
    fleet.planned = fleet.planner.apply([drained(None)], at(1003));
    assert_eq!(told(&fleet), out);
    fleet.plan(1004, &a1(""));
    assert_eq!(told(&fleet), in_use);

    fleet.planned = fleet.planner.apply([drained(Some(1005))], at(1005));
    assert_eq!(told(&fleet), out);
    assert_eq!(fleet.planned.snapshot.cluster(&"a1".parse().unwrap()).unwrap().drained, Some(at(1005)));
    // New facts of the same cluster leave the order alone; another cluster of the name is not meant by it.
    fleet.plan(1006, &a1("class=nginx"));
    assert_eq!(told(&fleet), out);
    fleet.plan(1007, &format!("gone cluster a1\n{}", a1("since=1006")));
    assert_eq!(told(&fleet), in_use);
    fleet.planned = fleet.planner.apply([drained(Some(1008))], at(1008));
    assert_eq!(told(&fleet), out);
    fleet.planned = fleet.planner.apply([drained(None)], at(1009));
    assert_eq!(told(&fleet), in_use);
}

/// What was seen in a member: what is told of it, and whether requests go there.
#[test]
fn a_member_that_does_not_serve_is_told_and_left_out() {
    for (seen, told, chosen) in [
        ("", "a1", "a1,a2"),
        ("access=unseen", "a1: NotPlaced", "a1,a2"),
        ("access=reachable", "a1: NotPlaced", "!a1,a2"),
        ("access=reachable cut", "a1", "a1,a2"),
        ("access=reachable placed=acme/web:ready", "a1", "a1,a2"),
        ("access=reachable placed=acme/web:unready", "a1: NoReadyEndpoints", "!a1,a2"),
        ("access=reachable placed=acme/web:missing", "a1: NoService", "!a1,a2"),
        ("access=reachable placed=acme/web:pending", "a1: NotPlaced", "!a1,a2"),
        ("access=reachable placed=acme/web:foreign", "a1: AlreadyThere", "a1,a2"),
        ("access=unreachable placed=acme/web:unready", "a1: ClusterAway", "!a1,a2"),
        ("access=unreachable placed=acme/web:ready", "a1: ClusterAway", "a1,a2"),
    ] {
        // Both ways: seen before the Ingress was there, and after.
        let a1 = format!("cluster a1 tenant=acme labels=env:prod https=192.0.2.11:443 nodes=192.0.2.101 {seen}");
        let web = "policy p dns\n class dns policy=p\n ingress acme/web www.acme.test/\n ingress acme/x class=dns x.acme.test/";
        let mut late = planned(web);
        late.plan(1002, &a1);
        let early = planned(&format!("{a1}\n{web}"));
        for fleet in [&early, &late] {
            assert_eq!(fleet.ingress("acme/web"), ["www.acme.test/", told, "a2"], "{seen}");
            assert_eq!(fleet.request("www.acme.test/"), Some(format!("web web {chosen}")), "{seen}");
        }
    }
}

#[test]
fn dns_and_the_status_leave_out_who_does_not_serve_unless_nobody_does() {
    let lines = |a1: &str, a2: &str| {
        format!(
            "
            policy p dns
            class dns policy=p
            ingress acme/web class=dns www.acme.test/
            cluster a1 tenant=acme https=192.0.2.11:443 access=reachable placed=acme/web:{a1}
            cluster a2 tenant=acme https=192.0.2.12:443 access=reachable placed=acme/web:{a2}
            "
        )
    };
    let www = "www.acme.test".parse().unwrap();
    for (a1, a2, out, live) in [
        ("ready", "ready", vec![], "192.0.2.11 192.0.2.12"),
        ("unready", "ready", vec!["a1"], "192.0.2.12"),
        ("unready", "missing", vec!["a1", "a2"], "192.0.2.11 192.0.2.12"),
    ] {
        let fleet = planned(&lines(a1, a2));
        let name = fleet.planned.snapshot.tenant_name(&www).unwrap();
        assert_eq!(super::fleet::lines(&name.records), ["www.acme.test 30 A 192.0.2.11 192.0.2.12"]);
        let members = &name.records.steered.as_ref().unwrap().members;
        let unready = members.iter().filter(|member| member.unready == Some(Unhealthy::NoReadyEndpoints));
        assert_eq!(unready.map(|member| member.cluster.as_str()).collect::<Vec<_>>(), out);
        assert_eq!(entry_points(&fleet, "web"), live);
    }
}

#[test]
fn clients_meet_an_ingress_at_the_gateway_of_its_zones() {
    for (lines, expected) in [
        ("ingress acme/web www.acme.test/", "192.0.2.20"),
        ("ingress acme/web www.acme.test/ www.a1.fleet.example/", "192.0.2.10 192.0.2.20"),
        // Two share a host: both are met there.
        ("ingress acme/first since=1 www.acme.test/\n ingress acme/web since=2 www.acme.test/x", "192.0.2.20"),
        ("ingress acme/web outside.example/", ""),
        ("ingress acme/web www.i1.fleet.example/", ""),
    ] {
        assert_eq!(entry_points(&planned(lines), "web"), expected, "{lines}");
    }
}

fn entry_points(fleet: &Fleet, name: &str) -> String {
    let object = super::fleet::object(Kind::Ingress, &format!("acme/{name}"));
    let status = fleet.planned.snapshot.status(&object).unwrap();
    let Detail::Ingress { entry_points, .. } = &status.detail else { panic!("{status:?}") };
    let point = |point: &EntryPoint| match point {
        EntryPoint::Address(address) => address.to_string(),
        EntryPoint::Name(name) => name.to_string(),
    };
    entry_points.iter().map(point).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_copy_has_the_class_of_its_cluster_unless_the_ingress_says_otherwise() {
    let fleet = planned(
        "
        cluster a1 tenant=acme https=192.0.2.11:443 class=nginx
        ingress acme/web overrides=a2:traefik,i1:own,zz:own www.acme.test/
        ",
    );
    let object = super::fleet::object(Kind::Ingress, "acme/web");
    let Detail::Ingress { copies, .. } = &fleet.planned.snapshot.status(&object).unwrap().detail else { panic!() };
    let copies: Vec<_> =
        copies.iter().map(|copy| (copy.cluster.as_str(), copy.class.as_deref(), copy.annotations.len())).collect();
    assert_eq!(copies, [("a1", Some("nginx"), 0), ("a2", Some("traefik"), 1)]);
    // Another tenant's cluster is as unknown as one that nobody has.
    assert_eq!(
        fleet.ingress("acme/web"),
        [
            "override.fleetgate.dev/i1: NotYourCluster metadata.annotations[override.fleetgate.dev/i1]",
            "override.fleetgate.dev/zz: NotYourCluster metadata.annotations[override.fleetgate.dev/zz]",
            "www.acme.test/",
            "a1",
            "a2",
        ]
    );
}

#[test]
fn nothing_is_placed_in_namespaces_of_kubernetes_itself() {
    let fleet = planned("tenant acme namespace=kube-system domains=acme.test\n ingress kube-system/web www.acme.test/");
    assert_eq!(fleet.ingress("kube-system/web"), ["www.acme.test/", "a1: SystemNamespace", "a2: SystemNamespace"]);
    assert_eq!(fleet.request("www.acme.test/").as_deref(), Some("web web "));
}
