use std::collections::BTreeMap;

use super::*;
use crate::overflow::table::{Basis, Out, Room};
use crate::overflow::waterfall::{Edge, pour};

fn cluster(name: &str) -> ClusterName {
    name.parse().unwrap()
}

fn edge() -> Origin {
    Origin { edge: "edge".parse().unwrap(), home: None }
}

fn at(seconds: u64) -> Timestamp {
    Timestamp(seconds * 1_000_000_000)
}

/// A table for one edge: clusters by their ring and rate, nothing being out unless its rate is 0.
fn table(demand: f64, clusters: &[(&str, u32, f64)], previous: Option<&Table>, now: u64) -> Table {
    let rings = clusters.iter().map(|(name, ring, _)| (cluster(name), *ring)).collect();
    let room = |rate: f64| Room {
        rate,
        most: rate * 1.25,
        basis: Basis::Measured,
        out: (rate <= 0.0).then_some(Out::Drained),
    };
    let rooms = clusters.iter().map(|(name, _, rate)| (cluster(name), room(*rate))).collect();
    pour(&BTreeMap::from([(edge(), Edge { demand, rings })]), &rooms, previous, at(now)).unwrap()
}

fn guard(table: &Table, previous: Option<&Guard>) -> Guard {
    Guard::new(table, &edge(), previous).unwrap()
}

fn sent(choice: Choice) -> Permit {
    match choice {
        Choice::Send(permit) => permit,
        Choice::Shed(why) => panic!("shed: {why:?}"),
    }
}

/// One that knows that answers take 100 ms everywhere.
fn settled(table: &Table) -> Guard {
    let fresh = guard(table, None);
    for way in &fresh.ways {
        fresh
            .from(0, 1)
            .find(|permit| permit.load.cluster == way.load.cluster)
            .unwrap()
            .answered(Duration::from_millis(100));
    }
    guard(table, Some(&fresh))
}

#[test]
fn requests_go_by_the_shares() {
    let table = table(1000.0, &[("a", 0, 600.0), ("b", 1, 300.0), ("c", 2, 900.0)], None, 0);
    let guard = guard(&table, None);
    for (point, wanted) in
        [(0.0, "a"), (0.59, "a"), (0.61, "b"), (0.89, "b"), (0.91, "c"), (0.999_999, "c"), (1.0, "c")]
    {
        let permit = sent(guard.choose(point));
        assert_eq!(permit.cluster().as_str(), wanted, "{point}");
        assert!(!permit.diverted());
    }
}

#[test]
fn what_the_table_sheds_is_shed() {
    let full = table(2000.0, &[("a", 0, 800.0)], None, 0);
    let full = guard(&full, None);
    assert!(matches!(full.choose(0.49), Choice::Send(_)));
    assert!(matches!(full.choose(0.51), Choice::Shed(Shed::AllFull)));
    let drained = table(100.0, &[("a", 0, 0.0)], None, 0);
    let drained = guard(&drained, None);
    assert!(matches!(drained.choose(0.0), Choice::Shed(Shed::AllOut)));
    assert!(matches!(drained.choose_after(&[cluster("a")]), Choice::Shed(_)));
}

#[test]
fn an_edge_that_the_table_does_not_know_has_no_guard() {
    let table = table(1000.0, &[("a", 0, 800.0)], None, 0);
    assert!(Guard::new(&table, &Origin { edge: "other".parse().unwrap(), home: None }, None).is_none());
}

#[test]
fn what_piles_up_goes_to_the_next_ring() {
    // Home is full at 800 requests/s of 100 ms each: 80 under way, and half as many more.
    let table = table(1000.0, &[("a", 0, 800.0), ("b", 1, 800.0)], None, 0);
    let guard = settled(&table);
    assert_eq!(guard.under_way(&cluster("a")), Some((0, 120)));
    let held: Vec<Permit> = (0..120).map(|_| sent(guard.choose(0.0))).collect();
    assert!(held.iter().all(|permit| permit.cluster().as_str() == "a" && !permit.diverted()));
    let next = sent(guard.choose(0.0));
    assert_eq!((next.cluster().as_str(), next.diverted()), ("b", true));
    assert_eq!(guard.under_way(&cluster("a")), Some((120, 120)), "one that was turned away is not under way");
    drop(held);
    assert_eq!(sent(guard.choose(0.0)).cluster().as_str(), "a");
}

#[test]
fn what_piles_up_everywhere_is_shed() {
    // 800 and 800 requests/s are all given to the only edge, and what each takes above that where all are full: 200 and 200. Where the table
    // has room for everybody, all being slow is nobody's fault.
    for (demand, wanted) in [(1000.0, 4 * 240), (2400.0, 300)] {
        let table = table(demand, &[("a", 0, 800.0), ("b", 1, 800.0)], None, 0);
        let guard = settled(&table);
        let mut held = Vec::new();
        while let Choice::Send(permit) = guard.choose(0.5) {
            held.push(permit);
            assert!(held.len() < 10_000, "there is no end to it");
        }
        assert!(matches!(guard.choose(0.4), Choice::Shed(Shed::AllFull)));
        assert_eq!(held.len(), wanted, "{demand}");
    }
}

#[test]
fn few_requests_may_come_in_lumps() {
    for (quota, wait, wanted) in [
        (0.0, Some(0.1), 0),
        (0.0, None, 0),
        (10.0, None, u32::MAX),
        (1.0, Some(0.01), 4),
        (10.0, Some(0.1), 9),
        (100.0, Some(0.1), 26),
        (800.0, Some(0.1), 120),
        (1e9, Some(1e6), u32::MAX),
    ] {
        assert_eq!(limit(quota, wait), wanted, "{quota} {wait:?}");
    }
}

#[test]
fn what_is_under_way_is_remembered_from_table_to_table() {
    let first = table(1000.0, &[("a", 0, 800.0), ("b", 1, 800.0)], None, 0);
    let one = settled(&first);
    let held: Vec<Permit> = (0..30).map(|_| sent(one.choose(0.0))).collect();
    let second = table(1000.0, &[("a", 0, 800.0), ("b", 1, 800.0), ("c", 2, 10.0)], Some(&first), 1);
    let two = guard(&second, Some(&one));
    assert_eq!(two.under_way(&cluster("a")), Some((30, 120)));
    drop(held);
    assert_eq!(two.under_way(&cluster("a")), Some((0, 120)));
    // A cluster that is out has no way, and its requests end wherever they are.
    let third = table(1000.0, &[("a", 0, 0.0), ("b", 1, 800.0)], Some(&second), 2);
    let permit = sent(two.choose(0.0));
    let three = guard(&third, Some(&two));
    assert_eq!(three.under_way(&cluster("a")), None);
    permit.answered(Duration::from_millis(5));
    assert_eq!(sent(three.choose(0.0)).cluster().as_str(), "b");
}

#[test]
fn slowness_becomes_usual_only_after_a_while() {
    let table = table(1000.0, &[("a", 0, 800.0), ("b", 1, 800.0)], None, 0);
    let mut last = settled(&table);
    let limit_after = |seconds: u64, last: &mut Guard| {
        for _ in 0..seconds {
            sent(last.choose(0.0)).answered(Duration::from_secs(1));
            let mut later = table.clone();
            later.at = last.made.saturating_add(Duration::from_secs(1));
            *last = guard(&later, Some(last));
        }
        last.under_way(&cluster("a")).unwrap().1
    };
    let soon = limit_after(1, &mut last);
    assert!((120..160).contains(&soon), "{soon}");
    let late = limit_after(150, &mut last);
    assert!((1150..=1200).contains(&late), "{late}");
}

#[test]
fn what_failed_goes_elsewhere() {
    let table = table(300.0, &[("a", 0, 800.0), ("b", 1, 800.0), ("c", 2, 800.0)], None, 0);
    let guard = guard(&table, None);
    for (failed, wanted) in [("a", "b"), ("b", "c"), ("c", "a")] {
        assert_eq!(sent(guard.choose_after(&[cluster(failed)])).cluster().as_str(), wanted, "after {failed}");
        assert_eq!(guard.under_way(&cluster(failed)), Some((0, u32::MAX)));
    }
}

#[test]
fn retries_are_a_fifth_of_the_requests() {
    let budget = RetryBudget::default();
    let first = (0..1000).filter(|_| budget.spend()).count();
    assert_eq!(first, 100, "somebody who has just begun");
    let mut retried = 0;
    for _ in 0..1000 {
        budget.save();
        retried += usize::from(budget.spend());
    }
    assert_eq!(retried, 200);
    (0..1_000_000).for_each(|_| budget.save());
    assert_eq!((0..1_000_000).filter(|_| budget.spend()).count(), 1_000, "no more are saved");
}

#[test]
fn threads_share_a_guard() {
    let table = table(1000.0, &[("a", 0, 800.0), ("b", 1, 800.0)], None, 0);
    let guard = settled(&table);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for number in 0..10_000 {
                    if let Choice::Send(permit) = guard.choose(f64::from(number) / 10_000.0) {
                        permit.answered(Duration::from_millis(100));
                    }
                }
            });
        }
    });
    for name in ["a", "b"] {
        assert_eq!(guard.under_way(&cluster(name)).unwrap().0, 0, "{name}");
    }
}
