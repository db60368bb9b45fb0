//! Tenants' claims: what may be had, who was first, and what is served of it.

use super::fleet::{Fleet, at, facts};
use crate::fact::FactChange;
use crate::identity::Kind;

/// Two tenants with a cluster each and domains; those of initech lie below one of acme's.
const TENANTS: &str = "
    zone main fleet.example file=www/A/192.0.2.80,cut/NS/ns.test,*.wild/A/192.0.2.81
    zone shop acme.test ns=ns1.fleet.example
    tenant acme domains=acme.test,x.y.c2.fleet.example,deep.under.wild.fleet.example allow=203.0.113.0/24,10.1.0.0/16
    tenant initech domains=shop.acme.test allow=0.0.0.0/0
    cluster c1 tenant=acme nodes=192.0.2.11,!192.0.2.12 sni=konnectivity.c1.fleet.example
    cluster c2 tenant=initech nodes=192.0.2.21
    cluster c3 tenant=acme nodes=192.0.2.31
";

#[track_caller]
fn assert_parts(claims: &str, expected: &[&str]) {
    let mut fleet = Fleet::new();
    fleet.plan(1000, TENANTS);
    fleet.plan(1001, claims);
    let object = claims.split_whitespace().nth(1).unwrap();
    assert_eq!(fleet.parts(object), expected, "{claims}");
}

#[test]
fn tenants_have_their_clusters_subtrees_and_their_domains() {
    for (endpoint, expected) in [
        ("www.c1.fleet.example/A/192.0.2.11", "published"),
        ("c1.fleet.example/A/192.0.2.12", "published"),
        ("a.b.c1.fleet.example/A/192.0.2.31", "published"),
        ("*.dev.c1.fleet.example/A/192.0.2.11", "published"),
        ("WWW.C1.Fleet.Example./A/192.0.2.11", "published"),
        ("acme.test/TXT/v=spf1:-all", "Reserved dnsName"),
        ("mail.acme.test/MX/10:mail.acme.test", "BadTarget targets[0]"),
        ("acme.test/MX/10:mail.acme.test", "Reserved dnsName"),
        ("a.acme.test/MX/10:mail.acme.test", "published"),
        ("_sip._tcp.acme.test/SRV/1:2:443:a.acme.test", "published"),
        ("_dmarc.a.acme.test/TXT/x", "published"),
        // Another's, whether it is there or not.
        ("www.c2.fleet.example/A/192.0.2.11", "NotYours dnsName"),
        ("api.c2.fleet.example/A/192.0.2.11", "NotYours dnsName"),
        ("www.c9.fleet.example/A/192.0.2.11", "NotYours dnsName"),
        ("a.shop.acme.test/A/192.0.2.11", "NotYours dnsName"),
        ("evilc1.fleet.example/A/192.0.2.11", "NotYours dnsName"),
        ("fleet.example/A/192.0.2.11", "NotYours dnsName"),
        ("www.fleet.example/A/192.0.2.11", "NotYours dnsName"),
        ("_acme-challenge.c2.fleet.example/TXT/x", "NotYours dnsName"),
        (r"a\.c1.fleet.example/A/192.0.2.11", "BadName dnsName"),
        // The platform's within one's own.
        ("api.c1.fleet.example/A/192.0.2.11", "ControlPlaneName dnsName"),
        ("x.api.c1.fleet.example/A/192.0.2.11", "ControlPlaneName dnsName"),
        ("_acme-challenge.api.c1.fleet.example/TXT/x", "ControlPlaneName dnsName"),
        ("*.c1.fleet.example/A/192.0.2.11", "ControlPlaneName dnsName"),
        ("konnectivity.c1.fleet.example/A/192.0.2.11", "ControlPlaneName dnsName"),
        ("a-api.c1.fleet.example/TXT/heritage=external-dns", "ControlPlaneName dnsName"),
        ("cname-api.c1.fleet.example/TXT/heritage=external-dns", "ControlPlaneName dnsName"),
        ("a-apis.c1.fleet.example/TXT/heritage=external-dns", "published"),
        ("wpad.c1.fleet.example/A/192.0.2.11", "ReservedLabel dnsName"),
        ("*.autodiscover.c1.fleet.example/A/192.0.2.11", "ReservedLabel dnsName"),
        ("_dmarc.c1.fleet.example/TXT/x", "ReservedLabel dnsName"),
        ("a.*.c1.fleet.example/A/192.0.2.11", "BadName dnsName"),
        ("a*.c1.fleet.example/A/192.0.2.11", "BadName dnsName"),
        (r"a\.b.c1.fleet.example/A/192.0.2.11", "BadName dnsName"),
        (r"a\000.c1.fleet.example/A/192.0.2.11", "BadName dnsName"),
        // A wildcard over a neighbour's domain, and names that would switch a neighbour's off.
        ("*.acme.test/A/192.0.2.11", "WildcardOverOthers dnsName"),
        ("*.a.acme.test/A/192.0.2.11", "published"),
        ("x.y.c2.fleet.example/A/192.0.2.11", "DisablesWildcard dnsName"),
        ("deep.under.wild.fleet.example/A/192.0.2.11", "DisablesWildcard dnsName"),
    ] {
        assert_parts(&format!("records acme/web {endpoint}"), &[expected]);
    }
}

#[test]
fn an_agent_speaks_for_its_own_cluster_and_its_tenants_domains() {
    for (endpoint, expected) in [
        ("www.c1.fleet.example/A/192.0.2.31", "published"),
        ("www.acme.test/A/192.0.2.11", "published"),
        ("www.c3.fleet.example/A/192.0.2.11", "OtherCluster dnsName"),
        ("www.c2.fleet.example/A/192.0.2.11", "NotYours dnsName"),
    ] {
        assert_parts(&format!("records acme/web cluster=c1 {endpoint}"), &[expected]);
    }
    assert_parts("records nobody/web www.c1.fleet.example/A/192.0.2.11", &["NoTenant metadata.namespace"]);
}

#[test]
fn targets_are_ones_own() {
    for (data, expected) in [
        ("A/192.0.2.11+192.0.2.12", "published"),
        ("A/203.0.113.7", "published"),
        ("A/10.1.2.3", "published"),
        ("A/192.0.2.11+198.51.100.1", "TargetNotAllowed targets[1]"),
        ("A/10.2.0.1", "TargetNotAllowed targets[0]"),
        ("A/192.0.2.21", "TargetNotAllowed targets[0]"),
        ("A/127.0.0.1", "TargetForbidden targets[0]"),
        ("A/0.0.0.0", "TargetForbidden targets[0]"),
        ("A/169.254.169.254", "TargetForbidden targets[0]"),
        ("A/224.0.0.1", "TargetForbidden targets[0]"),
        ("A/255.255.255.255", "TargetForbidden targets[0]"),
        ("AAAA/::1", "TargetForbidden targets[0]"),
        ("AAAA/::ffff:192.0.2.11", "TargetForbidden targets[0]"),
        ("AAAA/64:ff9b::c000:20b", "TargetForbidden targets[0]"),
        ("AAAA/fe80::1", "TargetForbidden targets[0]"),
        ("AAAA/fd00::1", "TargetNotAllowed targets[0]"),
        ("CNAME/lb.example.net", "published"),
        ("CNAME/www.c3.fleet.example", "published"),
        ("CNAME/api.c1.fleet.example", "published"),
        ("CNAME/www.c2.fleet.example", "TargetNotYours targets[0]"),
        ("CNAME/www.fleet.example", "TargetNotYours targets[0]"),
        ("CNAME/a.shop.acme.test", "TargetNotYours targets[0]"),
        ("CNAME/app.c1.fleet.example", "BadTarget targets[0]"),
        ("CNAME/localhost", "BadTarget targets[0]"),
        ("CNAME/metadata.google.internal", "BadTarget targets[0]"),
        ("CNAME/10.0.0.1", "BadTarget targets[0]"),
        ("CNAME/.", "BadTarget targets[0]"),
        ("CNAME/*.example.net", "BadTarget targets[0]"),
        ("MX/0:.", "published"),
        ("SRV/1:1:1:www.c2.fleet.example", "TargetNotYours targets[0]"),
        ("NS/ns.example.net", "TypeNotAllowed recordType"),
        ("PTR/a.example.net", "TypeNotAllowed recordType"),
        ("A/192.0.2.11/4", "BadTTL recordTTL"),
        ("A/192.0.2.11/2147483648", "BadTTL recordTTL"),
        ("A/192.0.2.11/604800", "published"),
        ("TXT/a␊b", "BadTarget targets[0]"),
        ("TXT/a␀b", "BadTarget targets[0]"),
    ] {
        assert_parts(&format!("records acme/web app.c1.fleet.example/{data}"), &[expected]);
    }
    let many: Vec<_> = (0..65).map(|number| format!("203.0.113.{number}")).collect();
    assert_parts(&format!("records acme/web app.c1.fleet.example/A/{}", many.join("+")), &["SetTooLarge targets"]);
    let long = "x".repeat(4097);
    assert_parts(&format!("records acme/web app.c1.fleet.example/TXT/{long}"), &["SetTooLarge targets"]);
    // Everything is a range too, but no way inside.
    for (address, expected) in [
        ("198.51.100.1", "published"),
        ("10.0.0.1", "TargetNotAllowed targets[0]"),
        ("192.0.2.11", "TargetNotAllowed targets[0]"),
    ] {
        assert_parts(&format!("records initech/web app.c2.fleet.example/A/{address}"), &[expected]);
    }
}

#[test]
fn one_bad_record_leaves_the_others_alone() {
    let mut fleet = Fleet::new();
    fleet.plan(1000, TENANTS);
    fleet.plan(1001, "records acme/web a.c1.fleet.example/A/127.0.0.1 b.c1.fleet.example/A/192.0.2.12+192.0.2.11/60 b.c1.fleet.example/TXT/hello");
    assert_eq!(fleet.parts("acme/web"), ["TargetForbidden targets[0]", "published", "published"]);
    assert_eq!(
        fleet.claimed("b.c1.fleet.example"),
        ["b.c1.fleet.example 60 A 192.0.2.11 192.0.2.12", "b.c1.fleet.example 30 TXT \"hello\""]
    );
    fleet.plan(1002, "gone records acme/web");
    assert_eq!(fleet.claimed("b.c1.fleet.example"), [""; 0]);
}

#[test]
fn of_two_the_first_has_the_name_and_only_its_owner_is_told() {
    let shared = "
        zone main fleet.example
        zone shared shared.test ns=ns1.fleet.example
        tenant acme domains=shared.test allow=192.0.2.0/24
        tenant initech domains=shared.test allow=192.0.2.0/24
        records acme/web since=5 a.shared.test/A/192.0.2.1 b.shared.test/A/192.0.2.1
        records acme/late since=6 a.shared.test/A/192.0.2.2 a.shared.test/TXT/x a.shared.test/TXT/y b.shared.test/CNAME/x.example.net
        records initech/web since=4 b.shared.test/A/192.0.2.3
        records initech/late since=6 a.shared.test/TXT/mine
    ";
    let mut fleet = Fleet::new();
    fleet.plan(1000, shared);
    assert_eq!(fleet.parts("acme/web"), ["published", "NameTaken dnsName"]);
    assert_eq!(
        fleet.parts("acme/late"),
        ["NameTaken dnsName", "published", "ClaimedTwice dnsName", "NameTaken dnsName"]
    );
    assert_eq!(fleet.reason("acme/late"), "a.shared.test is held by DNSEndpoint acme/web, which was first");
    assert_eq!(fleet.parts("initech/late"), ["NameTaken dnsName"]);
    assert_eq!(fleet.reason("initech/late"), "a.shared.test is held by somebody else, which was first");

    // Given up, it rests for everybody else until no cache knows it.
    fleet.plan(1010, "gone records acme/web\n gone records acme/late");
    assert_eq!(fleet.parts("initech/late"), ["Quarantined dnsName"]);
    assert_eq!(fleet.planned.wake, Some(super::fleet::at(1040)));
    fleet.plan(1020, "records acme/again since=1020 a.shared.test/A/192.0.2.9");
    assert_eq!(fleet.parts("acme/again"), ["published"]);
    fleet.plan(1021, "gone records acme/again");
    fleet.plan(1050, "");
    assert_eq!(fleet.parts("initech/late"), ["Quarantined dnsName"]);
    fleet.plan(1051, "");
    assert_eq!(fleet.parts("initech/late"), ["published"]);
}

#[test]
fn what_rests_outlives_a_restart() {
    let ground = "
        zone main fleet.example
        zone shared shared.test ns=ns1.fleet.example
        tenant acme domains=shared.test allow=192.0.2.0/24
        tenant initech domains=shared.test allow=192.0.2.0/24
        cluster c1 tenant=acme
    ";
    let mut fleet = Fleet::new();
    fleet.plan(1000, &format!("{ground}\n records acme/web a.shared.test/A/192.0.2.1"));
    fleet.plan(1010, "gone records acme/web\n gone cluster c1");
    let resting: Vec<_> =
        fleet.planned.resting.iter().map(|(place, resting)| (place.clone(), resting.clone().unwrap())).collect();
    assert_eq!(resting.len(), 2);

    let mut next = Fleet::new();
    let others = format!(
        "{}\n cluster c1 tenant=initech since=1015\n records initech/web a.shared.test/A/192.0.2.2",
        ground.replace("cluster c1 tenant=acme", "")
    );
    let known = facts(&others).into_iter().chain([FactChange::Resting(resting)]);
    next.planned = next.planner.apply(known, at(1020));
    assert_eq!(next.parts("initech/web"), ["Quarantined dnsName"]);
    assert!(next.verdict(Kind::Cluster, "c1").starts_with("Quarantined: c1.fleet.example was somebody else's"));
    assert_eq!(next.planned.wake, Some(at(1040)));
    next.plan(1040, "");
    assert_eq!(next.parts("initech/web"), ["published"]);
    assert_eq!(next.verdict(Kind::Cluster, "c1"), "Valid");
    assert_eq!(next.planned.resting.iter().map(|(_, resting)| resting.clone()).collect::<Vec<_>>(), [None, None]);
}

#[test]
fn the_subtree_of_a_deleted_cluster_rests() {
    let ground = "
        zone main fleet.example ttl=120
        tenant acme
        tenant initech
        cluster c1 tenant=acme since=5 nodes=192.0.2.1
    ";
    for (next, expected) in [
        // Another one, of another tenant.
        ("gone cluster c1\n cluster c1 tenant=initech since=1010", "Quarantined"),
        // Another one of the same tenant, and the same one, which was passed on.
        ("gone cluster c1\n cluster c1 tenant=acme since=1010", "Valid"),
        ("gone cluster c1\n cluster c1 tenant=initech since=5", "Valid"),
        ("cluster c1 tenant=initech since=5", "Valid"),
        ("gone cluster c1\n cluster c2 tenant=initech since=1010\n cluster c1 tenant=acme since=5", "Valid"),
    ] {
        let mut fleet = Fleet::new();
        fleet.plan(1000, ground);
        fleet.plan(1010, next);
        let verdict = fleet.verdict(Kind::Cluster, "c1");
        assert_eq!(verdict.split(':').next(), Some(expected), "{next}");
        if expected == "Quarantined" {
            assert_eq!(fleet.planned.wake, Some(at(1130)));
            assert!(!verdict.contains("acme"), "{verdict}");
            fleet.plan(1129, "");
            assert!(fleet.names("c1").is_empty());
            fleet.plan(1130, "");
            assert_eq!(fleet.verdict(Kind::Cluster, "c1"), "Valid");
        }
    }
    // Refused before it was deleted: caches know it all the same.
    let mut fleet = Fleet::new();
    fleet.plan(1000, ground);
    fleet.plan(1005, "gone tenant acme");
    fleet.plan(1010, "gone cluster c1\n cluster c1 tenant=initech since=1010");
    assert!(fleet.verdict(Kind::Cluster, "c1").starts_with("Quarantined"));
}

#[test]
fn aliases_lead_to_no_aliases() {
    let mut fleet = Fleet::new();
    fleet.plan(1000, TENANTS);
    fleet.plan(1001, "records acme/one a.c1.fleet.example/CNAME/b.c1.fleet.example");
    assert_eq!(fleet.parts("acme/one"), ["published"]);
    fleet.plan(1002, "records acme/two b.c1.fleet.example/CNAME/a.c1.fleet.example");
    assert_eq!(
        [fleet.parts("acme/one"), fleet.parts("acme/two")],
        [["AliasOfAlias dnsName"], ["AliasOfAlias dnsName"]]
    );
    fleet.plan(1003, "records acme/two b.c1.fleet.example/A/192.0.2.11");
    assert_eq!([fleet.parts("acme/one"), fleet.parts("acme/two")], [["published"], ["published"]]);
}

#[test]
fn a_quota_goes_to_the_most_senior() {
    let mut fleet = Fleet::new();
    fleet.plan(1000, TENANTS);
    fleet.plan(
        1001,
        "
        tenant acme records=3
        records acme/b since=2 b.c1.fleet.example/A/192.0.2.11+192.0.2.12 c.c1.fleet.example/A/192.0.2.11
        records acme/c since=3 d.c1.fleet.example/A/192.0.2.11
    ",
    );
    assert_eq!(
        [fleet.parts("acme/b"), fleet.parts("acme/c")].concat(),
        ["published", "published", "QuotaExceeded dnsName"]
    );
    fleet.plan(1002, "records acme/a since=1 a.c1.fleet.example/A/192.0.2.11");
    assert_eq!(fleet.parts("acme/a"), ["published"]);
    assert_eq!(fleet.parts("acme/b"), ["published", "QuotaExceeded dnsName"]);
    fleet.plan(1003, "gone records acme/b");
    assert_eq!([fleet.parts("acme/a"), fleet.parts("acme/c")].concat(), ["published", "published"]);
    fleet.plan(1004, "tenant acme");
    fleet.plan(
        1005,
        "records acme/b since=2 b.c1.fleet.example/A/192.0.2.11+192.0.2.12 c.c1.fleet.example/A/192.0.2.11",
    );
    assert_eq!(fleet.parts("acme/b"), ["published", "published"]);
}

/// What an agent is told beforehand is what becomes of it.
#[test]
fn a_judgement_knows_the_quota() {
    let mut fleet = Fleet::new();
    fleet.plan(1000, TENANTS);
    fleet.plan(
        1001,
        "
        tenant acme records=3
        records acme/a a.c1.fleet.example/A/192.0.2.11+192.0.2.12
    ",
    );
    let (one, two) = ("192.0.2.11", "192.0.2.11+192.0.2.12");
    for (wished, expected) in [
        (vec![("b", one)], vec![true]),
        (vec![("b", two)], vec![false]),
        (vec![("b", one), ("c", one)], vec![true, false]),
        (vec![("b", two), ("c", one)], vec![false, true]),
        // What is there is replaced, and counts once.
        (vec![("a", two), ("b", one)], vec![true, true]),
        (vec![("a", one), ("b", two)], vec![true, false]),
    ] {
        let words = wished.iter().map(|(name, targets)| format!("{name}.c1.fleet.example/A/{targets}"));
        let judged = fleet.judge("acme", &words.collect::<Vec<_>>());
        let codes: Vec<bool> = judged.iter().map(Result::is_ok).collect();
        assert_eq!(codes, expected, "{wished:?}");
        assert!(
            judged.iter().filter_map(|judged| judged.as_ref().err()).all(|no| no.refusal.code() == "QuotaExceeded"),
            "{wished:?}"
        );
    }
    fleet.plan(1002, "gone records acme/a");
    assert_eq!(fleet.judge("acme", &[format!("b.c1.fleet.example/A/{two}")]), [Ok(())], "there is room again");
}

#[test]
fn claims_follow_what_they_stand_upon() {
    let mut fleet = Fleet::new();
    fleet.plan(1000, TENANTS);
    fleet.plan(1001, "
        records acme/web a.c1.fleet.example/A/192.0.2.31 b.c3.fleet.example/A/192.0.2.11 c.c1.fleet.example/CNAME/x.c3.fleet.example
        records acme/domain d.acme.test/A/203.0.113.1
        records initech/web a.shop.acme.test/A/198.51.100.1
    ");
    let all =
        |fleet: &Fleet| [fleet.parts("acme/web"), fleet.parts("acme/domain"), fleet.parts("initech/web")].concat();
    assert_eq!(all(&fleet), ["published"; 5]);
    let step = |fleet: &mut Fleet, seconds, line: &str, expected: [&str; 5]| {
        fleet.plan(seconds, line);
        assert_eq!(all(fleet), expected, "{line}");
    };
    let yes = "published";
    // A node that is gone, a cluster that is gone, and back.
    step(
        &mut fleet,
        1002,
        "cluster c3 tenant=acme nodes=192.0.2.32",
        ["TargetNotAllowed targets[0]", yes, yes, yes, yes],
    );
    step(
        &mut fleet,
        1003,
        "gone cluster c3",
        ["TargetNotAllowed targets[0]", "NotYours dnsName", "TargetNotYours targets[0]", yes, yes],
    );
    step(&mut fleet, 1004, "cluster c3 tenant=acme nodes=192.0.2.31", [yes; 5]);
    // A new control-plane name, a new domain of somebody else's, a zone that is gone, ranges that are not allowed any more.
    step(
        &mut fleet,
        1005,
        "cluster c2 tenant=initech nodes=192.0.2.21 sni=d.acme.test",
        [yes, yes, yes, "ControlPlaneName dnsName", yes],
    );
    step(&mut fleet, 1006, "cluster c2 tenant=initech nodes=192.0.2.21", [yes; 5]);
    step(
        &mut fleet,
        1007,
        "tenant initech domains=d.acme.test,shop.acme.test allow=0.0.0.0/0",
        [yes, yes, yes, "NotYours dnsName", yes],
    );
    step(
        &mut fleet,
        1008,
        "tenant initech domains=shop.acme.test",
        [yes, yes, yes, yes, "TargetNotAllowed targets[0]"],
    );
    step(&mut fleet, 1009, "gone zone shop", [yes, yes, yes, "OutsideZones dnsName", "OutsideZones dnsName"]);
    step(
        &mut fleet,
        1010,
        "gone tenant acme",
        [
            "NoTenant metadata.namespace",
            "NoTenant metadata.namespace",
            "NoTenant metadata.namespace",
            "NoTenant metadata.namespace",
            "OutsideZones dnsName",
        ],
    );
}
