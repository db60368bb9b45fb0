//! Serials rise with every change of a zone's content and rest otherwise.

use std::sync::Arc;

use super::fleet::Fleet;
use crate::identity::{Kind, ObjectRef};
use crate::snapshot::{Detail, ZoneChange};

const TWO_ZONES: &str = "
    zone other other.test
    cluster c1 nodes=192.0.2.1
    cluster o1 zone=other
";

/// Each row: a change, and by how much it lifts the serials of `main` and `other` within one second.
#[test]
fn serials_rise_where_something_changed() {
    for (facts, main, other) in [
        ("", 0, 0),
        (TWO_ZONES, 0, 0),
        ("gone cluster c1\n cluster c1 nodes=192.0.2.1", 0, 0),
        ("gone zone other\n zone other other.test", 0, 0),
        ("cluster c1 nodes=192.0.2.1,192.0.2.2", 1, 0),
        ("cluster c1 nodes=192.0.2.1,!192.0.2.2", 0, 0),
        ("cluster c2", 1, 0),
        ("cluster c2 id=c1", 0, 0),
        ("gone cluster o1", 0, 1),
        ("cluster c1 zone=other nodes=192.0.2.1", 1, 1),
        ("zone main fleet.example ttl=31", 1, 0),
        ("zone main fleet.example gateway=192.0.2.11", 1, 0),
        ("zone main fleet.example gateway=192.0.2.11 ns=ns1.fleet.example/192.0.2.54\n gone cluster o1", 1, 1),
        // What is not in DNS does not count.
        ("zone main fleet.example grace=5", 0, 0),
        ("cluster c1 nodes=192.0.2.1 id=new sni=a.test", 0, 0),
        ("gone tenant initech", 0, 0),
    ] {
        let mut fleet = Fleet::grounded(TWO_ZONES);
        let before = (fleet.serial("main"), fleet.serial("other"));
        assert_eq!(before, (1000, 1000));
        fleet.plan(1000, facts);
        assert_eq!((fleet.serial("main"), fleet.serial("other")), (1000 + main, 1000 + other), "{facts}");
        assert_told(&fleet, &[("main", main), ("other", other)]);
    }
}

/// The status tells the serial; a new one is served, an old one is not.
#[track_caller]
fn assert_told(fleet: &Fleet, rises: &[(&str, u32)]) {
    for (zone, rise) in rises {
        let serial = fleet.serial(zone);
        let object = ObjectRef::cluster_scoped(Kind::Zone, zone.parse().unwrap());
        assert_eq!(fleet.planned.snapshot.status(&object).unwrap().detail, Detail::Zone { serial });
        let apex = &fleet.planned.snapshot.zone(&zone.parse().unwrap()).unwrap().apex;
        let mut steps = fleet.planned.changes.zones.iter();
        let served = steps.any(
            |change| matches!(change, ZoneChange::Serve { apex: told, soa, .. } if told == apex && soa.serial == serial),
        );
        assert_eq!(served, *rise > 0, "{zone}");
    }
}

#[test]
fn planning_the_same_again_is_the_very_same_snapshot() {
    let mut fleet = Fleet::grounded(TWO_ZONES);
    let before = Arc::clone(&fleet.planned.snapshot);
    fleet.plan(2000, TWO_ZONES);
    assert!(Arc::ptr_eq(&before, &fleet.planned.snapshot));
    assert!(Arc::ptr_eq(&before, fleet.planner.snapshot()));
    assert_eq!(fleet.planned.changes, crate::Changes::default());
}

#[test]
fn a_zone_that_others_publish_keeps_its_serial_when_another_zone_changes() {
    let mut fleet = Fleet::grounded("zone other other.test external");
    fleet.plan(1001, "zone main fleet.example ttl=31");
    assert_eq!((fleet.serial("main"), fleet.serial("other")), (1001, 1000));
    fleet.plan(1002, "zone other other.test");
    assert_eq!((fleet.serial("main"), fleet.serial("other")), (1001, 1002));
    fleet.plan(1003, "zone other other.test external");
    assert_eq!((fleet.serial("main"), fleet.serial("other")), (1001, 1003));
}

#[test]
fn the_serial_of_a_domain_goes_on_when_another_zone_takes_it_over() {
    let mut fleet = Fleet::grounded("zone twin fleet.example since=2");
    for nodes in 1..9 {
        fleet.plan(1000, &format!("cluster c1 nodes=192.0.2.{nodes}"));
    }
    assert_eq!(fleet.serial("main"), 1008);
    fleet.plan(1001, "gone zone main");
    assert_eq!(fleet.serial("twin"), 1009);
}

#[test]
fn the_serial_of_a_domain_goes_on_when_it_comes_back() {
    let mut fleet = Fleet::grounded("cluster c1");
    fleet.plan(1000, "cluster c2");
    assert_eq!(fleet.serial("main"), 1001);
    for (away, back) in [
        ("gone zone main", "zone main fleet.example"),
        ("zone main fleet.example dnssec", "zone main fleet.example"),
        ("zone main elsewhere.test", "zone main fleet.example"),
        ("zone main fleet.example external", "zone main fleet.example"),
    ] {
        let before = fleet.serial("main");
        fleet.plan(1000, away);
        fleet.plan(1000, back);
        assert!(fleet.serial("main") > before, "{away}");
    }
}
