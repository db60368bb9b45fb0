//! Who was first, and what happens when that changes.

use super::fleet::Fleet;
use crate::identity::Kind;

#[test]
fn the_earlier_wins_and_ties_go_by_name() {
    for (first, second, winner) in [
        ("cluster b since=1 id=x", "cluster a since=2 id=x", "b"),
        ("cluster a since=1 id=x", "cluster b since=2 id=x", "a"),
        ("cluster a since=1 id=x", "cluster b since=1 id=x", "a"),
        ("cluster b since=1 sni=s.test", "cluster a since=3 sni=s.test", "b"),
    ] {
        for lines in [format!("{first}\n{second}"), format!("{second}\n{first}")] {
            assert_eq!(Fleet::grounded(&lines).accepted_clusters(), [winner], "{lines}");

            let mut one_by_one = Fleet::grounded("");
            for line in lines.lines() {
                one_by_one.plan(1000, line);
            }
            assert_eq!(one_by_one.accepted_clusters(), [winner], "{lines}");
        }
    }
}

/// Each row: a fleet, then plan by plan who is accepted afterwards.
#[test]
fn acceptance_follows_the_facts() {
    struct Row(&'static str, &'static [(&'static str, &'static [&'static str])]);
    for Row(start, plans) in [
        // The loser moves up when the winner goes, and stands back when it returns.
        Row(
            "cluster a since=1 id=x\n cluster b since=2 id=x",
            &[("", &["a"]), ("gone cluster a", &["b"]), ("cluster a since=1 id=x", &["a"])],
        ),
        // ... or claims something else, by an id or by a name.
        Row(
            "cluster a since=1 id=x sni=s.test\n cluster b since=2 id=x sni=s.test",
            &[
                ("cluster a since=1 id=y sni=s.test", &["a"]),
                ("cluster a since=1 id=y sni=t.test", &["a", "b"]),
                ("cluster a since=1 id=x sni=t.test", &["a"]),
            ],
        ),
        // ... or is refused for a reason of its own.
        Row(
            "cluster a since=1 id=x tenant=initech\n cluster b since=2 id=x",
            &[("gone tenant initech", &["b"]), ("tenant initech", &["a"])],
        ),
        // a refuses b, so that c has what b wanted; without a, b comes and c goes.
        Row(
            "cluster a since=1 id=x\n cluster b since=2 id=x sni=s.test\n cluster c since=3 id=y sni=s.test",
            &[("", &["a", "c"]), ("gone cluster a", &["b"]), ("cluster a since=1 id=x", &["a", "c"])],
        ),
        // The same over four.
        Row(
            "cluster a since=1 id=x
             cluster b since=2 id=x sni=s.test
             cluster c since=3 id=y sni=s.test,t.test
             cluster d since=4 id=z sni=t.test",
            &[("", &["a", "c"]), ("gone cluster a", &["b", "d"]), ("gone cluster b", &["c"])],
        ),
        // Several want what became free: the next in line has it.
        Row(
            "cluster a since=1 id=x\n cluster d since=2 id=x\n cluster c since=3 id=x",
            &[("gone cluster a", &["d"]), ("gone cluster d", &["c"])],
        ),
        // Seniority changes: an object that was deleted and made again is a newer one.
        Row(
            "cluster a since=1 id=x\n cluster b since=2 id=x",
            &[("cluster a since=3 id=x", &["b"]), ("cluster a since=1 id=x", &["a"])],
        ),
        Row(
            "cluster a since=1 id=x\n cluster b since=2 id=x",
            &[("gone cluster a\n cluster a since=3 id=x", &["b"]), ("gone cluster b\n cluster b since=4 id=x", &["a"])],
        ),
        // The last word on an object counts.
        Row(
            "cluster a since=1 id=x\n cluster b since=2 id=x",
            &[
                ("cluster a since=1 id=y\n cluster a since=1 id=x", &["a"]),
                ("cluster a since=1 id=x\n gone cluster a", &["b"]),
                ("gone cluster a\n cluster a since=1 id=y", &["a", "b"]),
                ("cluster a since=5 id=x\n cluster a since=0 id=x", &["a"]),
            ],
        ),
    ] {
        let mut fleet = Fleet::grounded(start);
        for (plan, accepted) in plans {
            fleet.plan(1001, plan);
            assert_eq!(fleet.accepted_clusters(), *accepted, "{plan} after\n{start}");
        }
    }
}

#[test]
fn what_changes_hands_leads_to_its_new_owner_at_once() {
    let mut fleet = Fleet::grounded("cluster a since=1 id=x sni=s.fleet.example\n cluster b since=2 id=x");
    fleet.plan(1001, "gone cluster a\n cluster b since=2 id=x sni=s.fleet.example");
    assert_eq!(fleet.by_id("x").as_deref(), Some("b kube-apiserver"));
    assert_eq!(fleet.by_server_name("s.fleet.example").as_deref(), Some("b service-0"));
    let told = fleet.planned.changes.names.iter().rfind(|change| change.name.to_string() == "s.fleet.example");
    assert!(told.is_some_and(|change| !change.records.is_empty()), "the name's last step sets it");
}

#[test]
fn a_cluster_may_change_its_tenant() {
    let mut fleet = Fleet::grounded("cluster c1 tenant=acme");
    fleet.plan(1001, "cluster c1 tenant=initech");
    assert_eq!(fleet.planned.snapshot.route_by_id(b"c1").unwrap().tenant.as_str(), "initech");
    fleet.plan(1002, "gone tenant acme");
    assert_eq!(fleet.accepted_clusters(), ["c1"]);
    fleet.plan(1003, "gone tenant initech");
    assert_eq!(fleet.verdict(Kind::Cluster, "c1"), "UnknownTenant: no Tenant is called initech");
    fleet.plan(1004, "cluster c1 tenant=acme\n tenant acme");
    assert_eq!(fleet.accepted_clusters(), ["c1"]);
    fleet.plan(1005, "tenant initech");
    fleet.plan(1006, "gone tenant acme");
    assert_eq!(fleet.accepted_clusters(), [""; 0]);
}

#[test]
fn a_cluster_that_was_promoted_is_not_refused_because_of_itself() {
    // a's going put b in the queue under its old seniority, under which it came after its own new claim.
    let mut fleet = Fleet::grounded("cluster a since=1 id=x\n cluster b since=5 id=x");
    fleet.plan(1001, "gone cluster a\n cluster b since=2 id=x");
    assert_eq!(fleet.verdict(Kind::Cluster, "b"), "Valid");
}

#[test]
fn a_deleted_object_has_no_status() {
    let mut fleet = Fleet::grounded("cluster a\n cluster b id=a\n zone twin fleet.example since=2");
    assert_eq!(fleet.planned.snapshot.statuses().count(), 6);
    fleet.plan(1001, "gone cluster a\n gone cluster b\n gone tenant acme\n gone tenant initech");
    fleet.plan(1001, "gone zone twin\n gone zone main");
    assert_eq!(fleet.planned.snapshot.statuses().count(), 0);
    let unknown = fleet.plan(1001, "gone cluster a\n gone tenant acme\n gone zone main\n gone policy p");
    assert_eq!(unknown.changes, crate::Changes::default());
}
