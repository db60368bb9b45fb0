//! Names that would go in a mass.

use super::fleet::{Fleet, at};
use crate::identity::Kind;
use crate::snapshot::Condition;

fn claims(object: &str, numbers: impl Iterator<Item = usize>) -> String {
    let endpoints = numbers.map(|number| format!("n{number}.c1.fleet.example/A/192.0.2.1"));
    format!("records {object} {}", endpoints.collect::<Vec<_>>().join(" "))
}

/// Thirty names of acme's in two objects, and one of initech's.
fn fleet() -> Fleet {
    let mut fleet = Fleet::new();
    fleet.plan(
        1000,
        "
        zone main fleet.example share=0.4
        tenant acme allow=192.0.2.0/24
        tenant initech allow=192.0.2.0/24
        cluster c1 tenant=acme nodes=192.0.2.1
        cluster c2 tenant=initech nodes=192.0.2.2
        records initech/web www.c2.fleet.example/A/192.0.2.2
    ",
    );
    fleet.plan(1001, &format!("{}\n{}", claims("acme/one", 0..20), claims("acme/two", 20..30)));
    fleet
}

fn served(fleet: &Fleet) -> usize {
    (0..30).filter(|number| !fleet.claimed(&format!("n{number}.c1.fleet.example")).is_empty()).count()
}

fn held(fleet: &Fleet) -> Option<String> {
    let object = crate::ObjectRef::cluster_scoped(Kind::Tenant, "acme".parse().unwrap());
    let status = fleet.planned.snapshot.status(&object).unwrap();
    status.conditions.iter().find(|found| found.kind == Condition::WITHDRAWALS_HELD).map(|found| found.message.clone())
}

#[test]
fn a_source_that_shows_nothing_is_not_believed() {
    let mut fleet = fleet();
    fleet.plan(1002, "gone records acme/one\n gone records acme/two");
    assert_eq!(served(&fleet), 30);
    let told = "30 records of acme would go at once and are held since 1970-01-01T00:16:42Z; `fleetgate release tenant acme` lets them go";
    assert_eq!(held(&fleet).as_deref(), Some(told));
    // Others come and go as they like.
    fleet.plan(1003, "gone records initech/web");
    assert_eq!(fleet.claimed("www.c2.fleet.example"), [""; 0]);

    // The source recovers, object by object.
    fleet.plan(1004, &claims("acme/one", 0..20));
    assert!(held(&fleet).unwrap().starts_with("10 records"));
    fleet.plan(1005, &claims("acme/two", 20..29));
    assert_eq!((served(&fleet), held(&fleet)), (29, None));
}

#[test]
fn somebody_can_let_them_go() {
    for release in ["tenant acme allow=192.0.2.0/24 released=1010", "zone main fleet.example share=0.4 released=1010"] {
        let mut fleet = fleet();
        fleet.plan(1002, "gone records acme/one\n gone records acme/two");
        fleet.plan(1010, release);
        assert_eq!((served(&fleet), held(&fleet)), (0, None), "{release}");
    }
    // What was released before was other names.
    let mut fleet = fleet();
    fleet.plan(1002, "tenant acme allow=192.0.2.0/24 released=1002");
    fleet.plan(1003, "gone records acme/one\n gone records acme/two");
    assert_eq!(served(&fleet), 30);
}

#[test]
fn a_share_may_go_and_no_more_within_five_minutes() {
    let mut fleet = fleet();
    fleet.plan(1002, &claims("acme/one", 0..8));
    assert_eq!((served(&fleet), held(&fleet)), (18, None));
    // What is added goes live, what is taken away stays.
    fleet.plan(1003, &format!("{} new.c1.fleet.example/A/192.0.2.1", claims("acme/one", 0..7)));
    assert_eq!(served(&fleet), 18);
    assert_eq!(fleet.claimed("new.c1.fleet.example").len(), 1);
    assert!(held(&fleet).unwrap().starts_with("1 records"));
    fleet.plan(1003 + 301, &claims("acme/one", 0..7));
    assert_eq!((served(&fleet), held(&fleet)), (17, None));
}

#[test]
fn policy_is_stronger_than_the_brake() {
    let mut fleet = fleet();
    fleet.plan(1002, "gone records acme/one\n gone records acme/two");
    assert_eq!(served(&fleet), 30);
    fleet.plan(1003, "gone cluster c1");
    assert_eq!(served(&fleet), 0);
}

/// Ten clusters, each with a node.
fn clusters(ready: impl Fn(usize) -> bool) -> String {
    let cluster = |number: usize| {
        let mark = if ready(number) { "" } else { "!" };
        format!("cluster d{number} tenant=acme nodes={mark}192.0.2.{number}")
    };
    (1..=10).map(cluster).collect::<Vec<_>>().join("\n")
}

fn lit(fleet: &Fleet) -> usize {
    (1..=10).filter(|number| fleet.names(&format!("d{number}")).len() == 2).count()
}

#[test]
fn wildcards_that_would_go_in_a_mass_are_held() {
    let mut fleet = Fleet::new();
    fleet.plan(1000, &format!("zone main fleet.example share=0.3\n tenant acme\n{}", clusters(|_| true)));
    fleet.plan(1001, &clusters(|number| number > 4));
    fleet.plan(1061, "");
    assert_eq!(lit(&fleet), 10);
    let told = fleet.condition(Kind::Cluster, "d1", Condition::NODES_READY);
    assert_eq!((told.reason, told.holds), ("Held", false));
    assert_eq!(fleet.planned.wake, Some(at(1066)));
    // One of the four is back: the others are few enough to be meant.
    fleet.plan(1062, "cluster d4 tenant=acme nodes=192.0.2.4");
    assert_eq!(lit(&fleet), 10);
    fleet.plan(1066, "");
    assert_eq!(lit(&fleet), 7);
}

#[test]
fn held_wildcards_can_be_let_go() {
    let mut fleet = Fleet::new();
    fleet.plan(1000, &format!("zone main fleet.example share=0.3\n tenant acme\n{}", clusters(|_| true)));
    fleet.plan(1001, &clusters(|_| false));
    fleet.plan(1061, "");
    assert_eq!(lit(&fleet), 10);
    fleet.plan(1070, "zone main fleet.example share=0.3 released=1070");
    assert_eq!(lit(&fleet), 0);
}
