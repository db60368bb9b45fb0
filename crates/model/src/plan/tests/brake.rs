//! Names that would go in a mass.

use super::fleet::{Fleet, at, facts};
use crate::fact::FactChange;
use crate::identity::Kind;
use crate::resource::HeldClaims;
use crate::snapshot::{Condition, Detail};

fn claims(object: &str, numbers: impl Iterator<Item = usize>) -> String {
    let endpoints = numbers.map(|number| format!("n{number}.c1.fleet.example/A/192.0.2.1"));
    format!("records {object} {}", endpoints.collect::<Vec<_>>().join(" "))
}

const GROUND: &str = "
    zone main fleet.example share=0.4
    tenant acme allow=192.0.2.0/24
    tenant initech allow=192.0.2.0/24
    cluster c1 tenant=acme nodes=192.0.2.1
    cluster c2 tenant=initech nodes=192.0.2.2
    records initech/web www.c2.fleet.example/A/192.0.2.2
";

/// Thirty names of acme's in two objects, and one of initech's.
fn fleet() -> Fleet {
    let mut fleet = Fleet::new();
    fleet.plan(1000, GROUND);
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

/// What the status of acme says is held.
fn told(fleet: &Fleet) -> Vec<HeldClaims> {
    let object = crate::ObjectRef::cluster_scoped(Kind::Tenant, "acme".parse().unwrap());
    match &fleet.planned.snapshot.status(&object).unwrap().detail {
        Detail::Tenant { held, .. } => held.clone(),
        _ => Vec::new(),
    }
}

/// A process that begins with what another one wrote down.
fn restarted(held: Vec<HeldClaims>, claims: &str) -> Fleet {
    let mut fleet = Fleet::new();
    let known = facts(&format!("{GROUND}\n{claims}"));
    let known = known.into_iter().chain([FactChange::Held("acme".parse().unwrap(), held)]);
    fleet.planned = fleet.planner.apply(known, at(2000));
    fleet
}

#[test]
fn what_is_held_outlives_a_restart() {
    let mut fleet = fleet();
    fleet.plan(1002, &format!("{}\n gone records acme/two", claims("acme/one", 0..5)));
    let kept = told(&fleet);
    assert_eq!(kept.iter().map(|claims| claims.endpoints.len()).collect::<Vec<_>>(), [15, 10]);
    let written: Vec<_> = fleet.planned.held.iter().filter_map(|(_, held)| held.clone()).collect();
    assert_eq!((written, fleet.planned.held_names), (kept.clone(), 25));

    let mut next = restarted(kept.clone(), &claims("acme/one", 0..5));
    assert_eq!((served(&next), told(&next)), (30, kept.clone()));
    assert!(held(&next).unwrap().contains("since 1970-01-01T00:16:42Z"));
    // Told again, by its own words, it knows better.
    next.plan(2001, &format!("{}\n{}", claims("acme/one", 0..20), claims("acme/two", 20..30)));
    assert_eq!(held(&next), None);
    assert!(next.planned.held.iter().all(|(_, held)| held.is_none()) && next.planned.held.len() == 2);
    let echo = FactChange::Held("acme".parse().unwrap(), kept.clone());
    next.planned = next.planner.apply([echo], at(2002));
    assert_eq!(held(&next), None);

    // Let go meanwhile, and let go later.
    let released = "tenant acme allow=192.0.2.0/24 released=1500";
    let next = restarted(kept.clone(), &format!("{released}\n{}", claims("acme/one", 0..5)));
    assert_eq!((served(&next), held(&next)), (5, None));
    let mut next = restarted(kept.clone(), &claims("acme/one", 0..5));
    next.plan(2001, "tenant acme allow=192.0.2.0/24 released=2001");
    assert_eq!((served(&next), held(&next)), (5, None));
    // Whoever held them does not any more.
    let mut next = restarted(kept.clone(), &claims("acme/one", 0..5));
    next.planned = next.planner.apply([FactChange::Held("acme".parse().unwrap(), vec![])], at(2001));
    assert_eq!((served(&next), held(&next)), (5, None));
    // Its tenant is gone.
    let mut next = restarted(kept, "");
    next.plan(2001, "gone tenant acme");
    assert_eq!((served(&next), next.planned.held_names), (0, 0));
}

#[test]
fn what_is_held_stays_while_its_object_comes_and_goes() {
    let mut fleet = fleet();
    fleet.plan(1002, "gone records acme/one\n gone records acme/two");
    let mut next = restarted(told(&fleet), "");
    assert_eq!(served(&next), 30);
    next.plan(2001, &claims("acme/one", 0..1));
    assert_eq!((served(&next), held(&next).unwrap().starts_with("29 records")), (30, true));
    next.plan(2002, "gone records acme/one");
    assert_eq!(served(&next), 30);
}

#[test]
fn somebody_can_let_them_go() {
    for release in ["tenant acme allow=192.0.2.0/24 released=1010", "zone main fleet.example share=0.4 released=1010"] {
        let mut fleet = fleet();
        fleet.plan(1002, "gone records acme/one\n gone records acme/two");
        fleet.plan(1010, release);
        assert_eq!((served(&fleet), held(&fleet)), (0, None), "{release}");
    }
    // By somebody who cannot write the object.
    let object = crate::ObjectRef::cluster_scoped(Kind::Tenant, "acme".parse().unwrap());
    let mut fleet = fleet();
    fleet.plan(1002, "gone records acme/one\n gone records acme/two");
    fleet.planned = fleet.planner.apply([FactChange::Released(object.clone(), at(1001))], at(1003));
    assert_eq!(served(&fleet), 30);
    fleet.planned = fleet.planner.apply([FactChange::Released(object, at(1004))], at(1004));
    assert_eq!(served(&fleet), 0);
    // What was released before was other names.
    let mut fleet = self::fleet();
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

/// Whoever gives up and takes back its names all the time, or has a mass of them held, stops nobody else from giving up a few.
#[test]
fn a_tenant_alone_does_not_hold_its_neighbours_names() {
    let mut fleet = fleet();
    let neighbours = (0..10).map(|number| format!("w{number}.c2.fleet.example/A/192.0.2.2")).collect::<Vec<_>>();
    fleet.plan(1001, &format!("records initech/more {}", neighbours.join(" ")));
    for second in 1002..1100 {
        fleet.plan(second, "gone records acme/one\n gone records acme/two");
        fleet.plan(second, &format!("{}\n{}", claims("acme/one", 0..20), claims("acme/two", 20..30)));
        fleet.plan(second, &claims("acme/one", 0..12));
        fleet.plan(second, &claims("acme/one", 0..20));
    }
    fleet.plan(1100, "gone records initech/more");
    let served = (0..10).filter(|number| !fleet.claimed(&format!("w{number}.c2.fleet.example")).is_empty());
    assert_eq!(served.count(), 0);
}

/// Each of them has few names, which it could give up by itself.
#[test]
fn many_small_tenants_that_lose_everything_at_once_are_not_believed() {
    let mut fleet = Fleet::new();
    let of_each = |line: &dyn Fn(usize) -> String| (1..=20).map(line).collect::<Vec<_>>().join("\n");
    fleet.plan(1000, "zone main fleet.example share=0.4");
    fleet.plan(
        1000,
        &of_each(&|n| format!("tenant t{n} allow=192.0.2.0/24\n cluster d{n} tenant=t{n} nodes=192.0.2.{n}")),
    );
    let named =
        |n: usize| (0..3).map(|m| format!("n{m}.d{n}.fleet.example/A/192.0.2.{n}")).collect::<Vec<_>>().join(" ");
    fleet.plan(1001, &of_each(&|n| format!("records t{n}/web {}", named(n))));
    fleet.plan(1002, &of_each(&|n| format!("gone records t{n}/web")));
    let served = (1..=20).filter(|n| !fleet.claimed(&format!("n0.d{n}.fleet.example")).is_empty()).count();
    assert_eq!((served, fleet.planned.held_names), (20, 60));
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
