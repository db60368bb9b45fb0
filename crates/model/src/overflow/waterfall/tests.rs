#![allow(clippy::float_cmp)] // What is computed exactly, or rounded before.

use proptest::prelude::*;

use super::*;
use crate::overflow::table::{Basis, Out};

fn edge_name(name: &str) -> Origin {
    Origin { edge: name.parse().unwrap(), home: None }
}

fn cluster(name: &str) -> ClusterName {
    name.parse().unwrap()
}

fn at(seconds: u64) -> Timestamp {
    Timestamp(seconds * 1_000_000_000)
}

fn room(rate: f64) -> Room {
    Room { rate, most: rate * 1.25, basis: Basis::Measured, out: None }
}

fn out(why: Out) -> Room {
    Room { rate: 0.0, most: 0.0, basis: Basis::Measured, out: Some(why) }
}

fn rooms(rooms: &[(&str, Room)]) -> BTreeMap<ClusterName, Room> {
    rooms.iter().map(|(name, room)| (cluster(name), *room)).collect()
}

/// Edges by their demand and the rings of the clusters a, b, c and so on.
fn edges(edges: &[(&str, f64, &[u32])]) -> BTreeMap<Origin, Edge> {
    let edge = |(name, demand, rings): &(&str, f64, &[u32])| {
        let rings = rings.iter().zip(["a", "b", "c", "d"]).map(|(ring, name)| (cluster(name), *ring)).collect();
        (edge_name(name), Edge { demand: *demand, rings })
    };
    edges.iter().map(edge).collect()
}

fn row<'a>(table: &'a Table, edge: &str) -> &'a Row {
    table.row(&edge_name(edge)).unwrap()
}

/// Shares in percent, what is shed last.
fn percents(row: &Row) -> Vec<f64> {
    let shares = row.cells.iter().map(|cell| cell.share).chain([row.shed]);
    shares.map(|share| (share * 1000.0).round() / 10.0).collect()
}

#[test]
fn home_fills_first_then_the_next_nearest() {
    let three: &[(&str, Room)] = &[("a", room(800.0)), ("b", room(800.0)), ("c", room(800.0))];
    for (what, demands, at_a, at_b) in [
        ("all have room", [500.0, 200.0, 200.0], [100.0, 0.0, 0.0, 0.0], [0.0, 100.0, 0.0, 0.0]),
        ("a is full", [1000.0, 200.0, 200.0], [80.0, 20.0, 0.0, 0.0], [0.0, 100.0, 0.0, 0.0]),
        ("a and b are full", [1600.0, 400.0, 0.0], [50.0, 25.0, 25.0, 0.0], [0.0, 100.0, 0.0, 0.0]),
        ("nobody comes", [0.0, 0.0, 0.0], [100.0, 0.0, 0.0, 0.0], [0.0, 100.0, 0.0, 0.0]),
        ("all are as full as wanted", [800.0, 800.0, 800.0], [100.0, 0.0, 0.0, 0.0], [0.0, 100.0, 0.0, 0.0]),
        // Of the 900 that are left over each takes 200.
        ("everything is full", [1700.0, 800.0, 800.0], [58.8, 11.8, 11.8, 17.6], [0.0, 100.0, 0.0, 0.0]),
    ] {
        let edges =
            edges(&[("ea", demands[0], &[0, 1, 2]), ("eb", demands[1], &[1, 0, 3]), ("ec", demands[2], &[2, 3, 0])]);
        let table = pour(&edges, &rooms(three), None, at(0)).unwrap();
        assert_eq!(percents(row(&table, "ea")), at_a, "{what}");
        assert_eq!(percents(row(&table, "eb")), at_b, "{what}");
    }
}

#[test]
fn what_is_left_over_fills_all_alike_and_then_is_shed() {
    let rooms = rooms(&[("a", room(800.0)), ("b", room(400.0))]);
    // 1200 fit as wanted and 1500 at all.
    for (demand, wanted) in [
        (1200.0, vec![66.7, 33.3, 0.0]),
        (1350.0, vec![66.7, 33.3, 0.0]),
        (1500.0, vec![66.7, 33.3, 0.0]),
        (3000.0, vec![33.3, 16.7, 50.0]),
    ] {
        let table = pour(&edges(&[("e", demand, &[0, 1])]), &rooms, None, at(0)).unwrap();
        let row = row(&table, "e");
        assert_eq!(percents(row), wanted, "{demand}");
        assert_eq!(row.why_shed, (demand > 1500.0).then_some(Shed::AllFull), "{demand}");
    }
}

#[test]
fn clusters_in_one_ring_share_by_what_they_have_free() {
    let rooms = rooms(&[("a", room(600.0)), ("b", room(300.0)), ("c", room(100.0))]);
    let table = pour(&edges(&[("e", 300.0, &[0, 0, 1])]), &rooms, None, at(0)).unwrap();
    assert_eq!(percents(row(&table, "e")), [66.7, 33.3, 0.0, 0.0]);
}

#[test]
fn edges_that_want_the_same_get_the_same_part() {
    let rooms = rooms(&[("a", room(300.0)), ("b", room(1000.0))]);
    let table = pour(&edges(&[("e1", 400.0, &[0, 1]), ("e2", 200.0, &[0, 1])]), &rooms, None, at(0)).unwrap();
    assert_eq!(percents(row(&table, "e1")), [50.0, 50.0, 0.0]);
    assert_eq!(percents(row(&table, "e2")), [50.0, 50.0, 0.0]);
}

#[test]
fn rounding_fills_nothing() {
    // A hundred parts of 800 are a little more than 800 when they are added.
    let all: Vec<String> = (0..100).map(|number| format!("e{number}")).collect();
    let all: Vec<(&str, f64, &[u32])> =
        all.iter().map(|name| (name.as_str(), 800.0 / 100.0 * 1.000_000_000_000_1, &[0, 1][..])).collect();
    let table = pour(
        &edges(&all),
        &rooms(&[("a", Room { most: 800.0, ..room(800.0) }), ("b", out(Out::Drained))]),
        None,
        at(0),
    )
    .unwrap();
    assert!(table.rows.iter().all(|row| row.shed <= 0.0 && row.why_shed.is_none() && row.cells[0].share == 1.0));
}

#[test]
fn what_is_missing_is_no_trouble() {
    let nobody = pour(&BTreeMap::new(), &BTreeMap::new(), None, at(0)).unwrap();
    assert!(nobody.rows.is_empty() && nobody.clusters.is_empty());
    let no_clusters = pour(&edges(&[("e", 100.0, &[])]), &BTreeMap::new(), None, at(0)).unwrap();
    assert_eq!((percents(row(&no_clusters, "e")), row(&no_clusters, "e").why_shed), (vec![100.0], Some(Shed::AllOut)));
    let no_way = pour(&edges(&[("e", 100.0, &[])]), &rooms(&[("a", room(1.0))]), None, at(0)).unwrap();
    assert_eq!(row(&no_way, "e").cells[0].reason, Reason::NoWay);
    assert_eq!(percents(row(&no_way, "e")), [0.0, 100.0]);
    let drained = rooms(&[("a", out(Out::Drained)), ("b", out(Out::Unhealthy))]);
    let drained = pour(&edges(&[("e", 100.0, &[0, 1])]), &drained, None, at(0)).unwrap();
    assert_eq!(
        (percents(row(&drained, "e")), row(&drained, "e").why_shed),
        (vec![0.0, 0.0, 100.0], Some(Shed::AllOut))
    );
    // A ring to a cluster that serves nothing of this.
    let one = pour(&edges(&[("e", 100.0, &[0, 1])]), &rooms(&[("b", room(1000.0))]), None, at(0)).unwrap();
    assert_eq!(percents(row(&one, "e")), [100.0, 0.0]);
}

#[test]
fn numbers_that_are_none_take_and_give_nothing() {
    for bad in [f64::NAN, f64::NEG_INFINITY, -1.0] {
        let rooms = rooms(&[("a", Room { rate: bad, most: bad, ..room(0.0) }), ("b", room(800.0))]);
        let table = pour(&edges(&[("e", bad, &[0, 1])]), &rooms, None, at(0)).unwrap();
        assert_eq!(percents(row(&table, "e")), [0.0, 100.0, 0.0], "{bad}");
    }
    let rooms = rooms(&[("a", Room { rate: f64::INFINITY, most: f64::INFINITY, ..room(0.0) }), ("b", room(800.0))]);
    let table = pour(&edges(&[("e", f64::INFINITY, &[0, 1])]), &rooms, None, at(0)).unwrap();
    assert_eq!(percents(row(&table, "e")), [100.0, 0.0, 0.0]);
}

#[test]
fn tables_have_a_largest_size() {
    let many: BTreeMap<_, _> = (0..=MAX_CLUSTERS).map(|n| (cluster(&format!("c{n}")), room(1.0))).collect();
    assert_eq!(pour(&BTreeMap::new(), &many, None, at(0)).unwrap_err(), TooLarge::Clusters(MAX_CLUSTERS + 1));
    let many: BTreeMap<_, _> = (0..=MAX_ORIGINS).map(|n| (edge_name(&format!("e{n}")), Edge::default())).collect();
    assert_eq!(pour(&many, &BTreeMap::new(), None, at(0)).unwrap_err(), TooLarge::Origins(MAX_ORIGINS + 1));
}

/// Each edge has an order of its own, as far as it can be from any other's, and everything is full.
#[test]
fn the_largest_table_can_be_made() {
    let names: Vec<ClusterName> = (0..MAX_CLUSTERS).map(|number| cluster(&format!("c{number}"))).collect();
    let rooms: BTreeMap<_, _> = names.iter().map(|name| (name.clone(), room(100.0))).collect();
    let edge = |number: usize| {
        let ring = |place: usize| u32::try_from((place + number) % MAX_CLUSTERS).unwrap();
        let rings = names.iter().enumerate().map(|(place, name)| (name.clone(), ring(place))).collect();
        // Four of them want half as much again as a cluster has at the wanted utilisation.
        (edge_name(&format!("e{number}")), Edge { demand: 37.5, rings })
    };
    let table = pour(&(0..MAX_ORIGINS).map(edge).collect(), &rooms, None, at(0)).unwrap();
    assert!(table.rows.iter().all(|row| (row.shed - 25.0 / 150.0).abs() < 1e-6), "all of them are in the same place");
}

#[test]
fn every_share_has_a_reason() {
    let full = room(800.0);
    for (what, at_a, at_b, demands, wanted) in [
        (
            "room everywhere",
            full,
            full,
            [500.0, 500.0],
            ["nearest", "not needed: there is room nearer", "not needed: there is room nearer"],
        ),
        (
            "a is full",
            full,
            full,
            [1000.0, 500.0],
            ["nearest", "overflow: a is full at 800 requests/s", "not needed: there is room nearer"],
        ),
        (
            "a is full, and b by itself",
            full,
            full,
            [1000.0, 800.0],
            ["nearest", "full at 800 requests/s", "overflow: a is full at 800 requests/s"],
        ),
        (
            "a is drained",
            out(Out::Drained),
            full,
            [1000.0, 500.0],
            ["is drained", "in place of a, which is drained", "in place of a, which is drained"],
        ),
        (
            "b is unhealthy",
            full,
            out(Out::Unhealthy),
            [1000.0, 500.0],
            ["nearest", "is unhealthy", "overflow: a is full at 800 requests/s"],
        ),
        (
            "more than there is",
            full,
            full,
            [2000.0, 800.0],
            [
                "nearest",
                "all clusters are full: filled above the wanted utilization",
                "all clusters are full: filled above the wanted utilization",
            ],
        ),
    ] {
        let edges = edges(&[("ea", demands[0], &[0, 1, 2]), ("eb", demands[1], &[1, 0, 2])]);
        let table = pour(&edges, &rooms(&[("a", at_a), ("b", at_b), ("c", full)]), None, at(0)).unwrap();
        let said: Vec<String> = row(&table, "ea").cells.iter().map(|cell| table.explain(cell)).collect();
        assert_eq!(said, wanted, "{what}");
    }
}

/// A table a second later.
fn next(edges: &BTreeMap<Origin, Edge>, rooms: &BTreeMap<ClusterName, Room>, table: &Table) -> Table {
    pour(edges, rooms, Some(table), table.at.saturating_add(Duration::from_secs(1))).unwrap()
}

#[test]
fn traffic_leaves_fast_and_comes_back_slowly() {
    let rooms = rooms(&[("a", room(800.0)), ("b", room(800.0))]);
    let (calm, hot) = (edges(&[("e", 500.0, &[0, 1])]), edges(&[("e", 1600.0, &[0, 1])]));
    let mut table = pour(&calm, &rooms, None, at(0)).unwrap();
    let mut home = Vec::new();
    for demand in [&hot, &hot, &hot, &calm, &calm, &calm] {
        table = next(demand, &rooms, &table);
        home.push(percents(row(&table, "e"))[0]);
    }
    assert_eq!(home, [75.0, 62.5, 56.3, 60.6, 64.6, 68.1]);
    assert_eq!(row(&table, "e").cells[1].reason, Reason::Returning);
    // Two seconds at once are two steps.
    let once = pour(&hot, &rooms, Some(&pour(&calm, &rooms, None, at(0)).unwrap()), at(2)).unwrap();
    assert_eq!(percents(row(&once, "e"))[0], 62.5);
}

#[test]
fn all_of_it_comes_home_in_the_end() {
    let rooms = rooms(&[("a", room(800.0)), ("b", room(800.0))]);
    let mut table = pour(&edges(&[("e", 1600.0, &[0, 1])]), &rooms, None, at(0)).unwrap();
    for _ in 0..60 {
        table = next(&edges(&[("e", 500.0, &[0, 1])]), &rooms, &table);
    }
    assert_eq!(percents(row(&table, "e")), [100.0, 0.0, 0.0]);
    assert_eq!(row(&table, "e").cells[1].reason, Reason::NotNeeded);
}

#[test]
fn a_point_more_or_less_moves_nothing() {
    let demand = edges(&[("e", 1000.0, &[0, 1])]);
    let before = pour(&demand, &rooms(&[("a", room(800.0)), ("b", room(800.0))]), None, at(0)).unwrap();
    for (rate, wanted) in [(809.0, 80.0), (791.0, 80.0), (820.0, 80.2), (780.0, 79.0)] {
        let after = next(&demand, &rooms(&[("a", room(rate)), ("b", room(800.0))]), &before);
        assert_eq!(percents(row(&after, "e"))[0], wanted, "{rate}");
    }
}

#[test]
fn what_is_lost_is_left_at_once() {
    let demand = edges(&[("e", 1000.0, &[0, 1, 2])]);
    let before = rooms(&[("a", room(600.0)), ("b", room(400.0)), ("c", room(800.0))]);
    let table = pour(&demand, &before, None, at(0)).unwrap();
    assert_eq!(percents(row(&table, "e")), [60.0, 40.0, 0.0, 0.0]);
    let drained = rooms(&[("a", room(600.0)), ("b", out(Out::Drained)), ("c", room(800.0))]);
    assert_eq!(percents(row(&next(&demand, &drained, &table), "e")), [60.0, 0.0, 40.0, 0.0]);
    // One that has left the fleet.
    let gone = rooms(&[("a", room(600.0)), ("c", room(800.0))]);
    assert_eq!(percents(row(&next(&demand, &gone, &table), "e")), [60.0, 40.0, 0.0]);
}

#[test]
fn an_edge_that_could_send_nowhere_begins_anew() {
    let demand = edges(&[("e", 500.0, &[0])]);
    let table = pour(&demand, &rooms(&[("a", out(Out::Unreachable))]), None, at(0)).unwrap();
    assert_eq!(percents(row(&next(&demand, &rooms(&[("a", room(800.0))]), &table), "e")), [100.0, 0.0]);
}

#[test]
fn rings_of_round_trips() {
    for (milliseconds, wanted) in [(0, 0), (1, 0), (5, 1), (20, 2), (70, 4), (80, 4), (300, 7), (u64::MAX, 7)] {
        assert_eq!(ring(Duration::from_millis(milliseconds)), wanted, "{milliseconds}");
    }
}

/// What edges see and clusters can take, by number.
#[derive(Debug, Clone)]
struct Moment {
    edges: Vec<(f64, Vec<Option<u32>>)>,
    rooms: Vec<Room>,
}

fn moment(edge_count: usize, cluster_count: usize) -> impl Strategy<Value = Moment> {
    let demand = prop_oneof![Just(0.0), 0.0..3000.0_f64, Just(800.0)];
    let rings = prop::collection::vec(prop::option::weighted(0.9, 0_u32..4), cluster_count);
    let rate = prop_oneof![4 => 1.0..2000.0_f64, 2 => Just(800.0), 1 => Just(UNLIMITED), 1 => Just(0.0)];
    let room = (rate, 1.0..2.0_f64, any::<bool>()).prop_map(|(rate, reserve, drained)| {
        let out = (drained || rate <= 0.0).then_some(Out::Drained);
        Room { rate, most: rate * reserve, basis: Basis::Measured, out }
    });
    let edges = prop::collection::vec((demand, rings), edge_count);
    (edges, prop::collection::vec(room, cluster_count)).prop_map(|(edges, rooms)| Moment { edges, rooms })
}

/// Some moments of the same edges and clusters, one after another.
fn moments() -> impl Strategy<Value = Vec<Moment>> {
    (0_usize..5, 0_usize..5)
        .prop_flat_map(|(edge_count, cluster_count)| prop::collection::vec(moment(edge_count, cluster_count), 1..5))
}

/// The tables of these moments, where edges and clusters are named by these numbers.
fn tables(moments: &[Moment], name: impl Fn(usize) -> usize) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    for (second, moment) in moments.iter().enumerate() {
        let cluster = |number| cluster(&format!("c{}", name(number)));
        let edges = moment.edges.iter().enumerate().map(|(number, (demand, rings))| {
            let rings = rings.iter().enumerate().filter_map(|(number, ring)| Some((cluster(number), (*ring)?)));
            (edge_name(&format!("e{}", name(number))), Edge { demand: *demand, rings: rings.collect() })
        });
        let rooms = moment.rooms.iter().enumerate().map(|(number, room)| (cluster(number), *room)).collect();
        let now = at(u64::try_from(second).unwrap());
        tables.push(pour(&edges.collect(), &rooms, tables.last(), now).unwrap());
    }
    tables
}

/// What is meant to come to each cluster.
fn meant(table: &Table, place: usize) -> f64 {
    table.rows.iter().map(|row| row.cells[place].target * row.demand).sum()
}

proptest! {
    #[test]
    fn shares_are_one_together_and_none_goes_to_what_is_out(moments in moments()) {
        for table in tables(&moments, |number| number) {
            for row in &table.rows {
                let sum: f64 = row.cells.iter().map(|cell| cell.share).sum::<f64>() + row.shed;
                prop_assert!((sum - 1.0).abs() < 1e-9, "{row:?}");
                prop_assert!(row.shed >= 0.0 && row.cells.iter().all(|cell| cell.share >= 0.0), "{row:?}");
                for (cell, (_, room)) in row.cells.iter().zip(&table.clusters) {
                    let takes = room.rate > 0.0 && cell.ring.is_some();
                    prop_assert!(takes || cell.share <= 0.0, "{row:?}");
                    prop_assert!(takes || cell.quota <= 0.0, "{row:?}");
                }
            }
        }
    }

    #[test]
    fn nobody_is_meant_to_get_more_than_it_takes(moments in moments()) {
        for table in tables(&moments, |number| number) {
            for (place, (_, room)) in table.clusters.iter().enumerate() {
                prop_assert!(meant(&table, place) <= room.most * (1.0 + 1e-9) + 1e-9, "{table:?}");
                let quota: f64 = table.rows.iter().map(|row| row.cells[place].quota).sum();
                prop_assert!(quota <= room.most * (1.0 + 1e-9) + 1e-9, "{table:?}");
            }
        }
    }

    #[test]
    fn nothing_goes_farther_or_is_shed_while_there_is_room_nearer(moments in moments()) {
        for table in tables(&moments, |number| number) {
            for (place, (_, room)) in table.clusters.iter().enumerate() {
                let has_room = meant(&table, place) < room.rate * (1.0 - 1e-6) - 1e-6;
                for row in table.rows.iter().filter(|_| has_room) {
                    let Some(ring) = row.cells[place].ring else { continue };
                    let farther = row.cells.iter().filter(|cell| cell.ring.is_some_and(|other| other > ring));
                    prop_assert!(farther.map(|cell| cell.target).sum::<f64>() < 1e-9, "{table:?}");
                    let targets: f64 = row.cells.iter().map(|cell| cell.target).sum();
                    prop_assert!((targets - 1.0).abs() < 1e-9, "{table:?}");
                }
            }
        }
    }

    #[test]
    fn names_and_their_order_do_not_matter(moments in moments()) {
        let (plain, reversed) = (tables(&moments, |number| number), tables(&moments, |number| 9 - number));
        for (plain, reversed) in plain.iter().zip(&reversed) {
            for (row, mirrored) in plain.rows.iter().zip(reversed.rows.iter().rev()) {
                prop_assert!((row.shed - mirrored.shed).abs() < 1e-9, "{row:?} {mirrored:?}");
                for (cell, mirrored) in row.cells.iter().zip(mirrored.cells.iter().rev()) {
                    prop_assert!((cell.share - mirrored.share).abs() < 1e-9, "{cell:?} {mirrored:?}");
                    prop_assert!((cell.quota - mirrored.quota).abs() <= 1e-9 * cell.quota.max(1.0), "{cell:?} {mirrored:?}");
                }
            }
        }
    }

    /// Nothing swings: under the same conditions shares settle at what is meant, but for the dead band.
    #[test]
    fn shares_settle(first in moments()) {
        let last = first.last().unwrap();
        let moments: Vec<Moment> = first.iter().cloned().chain(std::iter::repeat_n(last.clone(), 100)).collect();
        for row in &tables(&moments, |number| number).last().unwrap().rows {
            for cell in &row.cells {
                prop_assert!((cell.share - cell.target).abs() < DEAD_BAND, "{row:?}");
            }
        }
    }
}
