use model::zone_file::Builder;

use super::*;
use crate::records::{changes, name, soa};

const FLEET: &str = "
    example             30 SOA 1
    c1.example          30 A 192.0.2.1
    fleet.example       30 SOA 1
    a.b.fleet.example   30 A 192.0.2.2
";

#[test]
fn the_deepest_zone_answers_for_a_name() {
    let index = Index::default().apply(&changes(FLEET));
    for (asked, apex) in [
        ("example", Some("example")),
        ("fleet.example", Some("fleet.example")),
        ("x.y.fleet.example", Some("fleet.example")),
        ("evilfleet.example", Some("example")),
        ("test", None),
        (".", None),
    ] {
        assert_eq!(zone_of(&index, asked).map(|zone| zone.apex.clone()), apex.map(name), "{asked}");
    }
}

#[test]
fn a_change_leaves_other_zones_and_the_index_before_as_they_were() {
    let before = Index::default().apply(&changes(FLEET));
    let after = before.apply(&Changes {
        names: changes("fleet.example 30 SOA 1\nc2.fleet.example 30 A 192.0.2.3").names,
        ..Changes::default()
    });
    let zone = |index: &Index, apex| Arc::clone(zone_of(index, apex).unwrap());
    assert!(Arc::ptr_eq(&zone(&before, "example"), &zone(&after, "example")));
    assert!(!has(&before, "c2.fleet.example"));
    assert!(has(&after, "c2.fleet.example"));
}

#[test]
fn steps_for_a_withdrawn_zone_are_void() {
    let apex = name("fleet.example");
    let mut steps = changes("fleet.example 30 SOA 1\nc2.fleet.example 30 A 192.0.2.3");
    steps.zones = vec![ZoneChange::Withdraw { apex: apex.clone() }];
    let index = Index::default().apply(&changes(FLEET)).apply(&steps);
    assert_eq!(zone_of(&index, "fleet.example").map(|zone| zone.apex.clone()), Some(name("example")));
    assert!(!has(&index, "c2.fleet.example"));
}

#[test]
fn a_new_soa_keeps_the_names() {
    let index = Index::default().apply(&changes(FLEET)).apply(&changes("fleet.example 30 SOA 2"));
    let zone = zone_of(&index, "fleet.example").unwrap();
    assert_eq!(zone.soa.numbers[..4], [0, 0, 0, 2]);
    assert!(has(&index, "a.b.fleet.example"));
}

#[test]
fn a_new_file_keeps_the_plan_s_names_and_drops_the_old_file_s() {
    let serve = |names: &[&str]| {
        let mut builder = Builder::new(name("fleet.example"));
        for owner in names {
            builder.at(name(owner).as_wire()).unwrap();
            builder.push(1, 30, &[192, 0, 2, 9], 0).unwrap();
        }
        let apex = name("fleet.example");
        let file = Some(Arc::new(builder.finish().unwrap()));
        let zones = vec![ZoneChange::Serve { soa: soa(&apex, 30, 3, 30), apex, file }];
        Changes { zones, ..Changes::default() }
    };
    let first = Index::default().apply(&changes(FLEET)).apply(&serve(&["old.fleet.example", "both.fleet.example"]));
    let second = first.apply(&serve(&["new.fleet.example", "both.fleet.example"]));
    let third = second.apply(&changes("fleet.example 30 SOA 4"));
    for (asked, expected) in [
        ("old.fleet.example", [true, false, false]),
        ("new.fleet.example", [false, true, false]),
        ("both.fleet.example", [true, true, false]),
        ("a.b.fleet.example", [true, true, true]),
    ] {
        assert_eq!([&first, &second, &third].map(|index| has(index, asked)), expected, "{asked}");
    }
}

fn query_name(text: &str) -> QueryName {
    QueryName::read(name(text).as_wire()).unwrap()
}

fn zone_of<'a>(index: &'a Index, asked: &str) -> Option<&'a Arc<Zone>> {
    index.zone_of(&query_name(asked)).map(|(zone, _)| zone)
}

fn has(index: &Index, asked: &str) -> bool {
    zone_of(index, asked).unwrap().place(&query_name(asked)).is_some()
}
