//! Serials rise with every change of a zone's content and rest otherwise.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fleet::{Fleet, GROUND};
use crate::identity::{Kind, ObjectRef};
use crate::plan::Planner;
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
        let part = fleet.planned.snapshot.zone(&zone.parse().unwrap()).unwrap();
        let (apex, digest) = (&part.apex, part.digest);
        assert_eq!(fleet.planned.snapshot.status(&object).unwrap().detail, Detail::Zone { serial, digest });
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
    assert_eq!((fleet.serial("main"), fleet.serial("other")), (1001, 1001));
    fleet.plan(1003, "zone other other.test external");
    assert_eq!((fleet.serial("main"), fleet.serial("other")), (1001, 1002));
}

#[test]
fn the_serial_of_a_domain_goes_on_when_another_zone_takes_it_over() {
    let mut fleet = Fleet::grounded("zone twin fleet.example since=2 ttl=31");
    for nodes in 1..9 {
        fleet.plan(1000, &format!("cluster c1 nodes=192.0.2.{nodes}"));
    }
    assert_eq!(fleet.serial("main"), 1008);
    fleet.plan(1001, "gone zone main");
    assert_eq!(fleet.serial("twin"), 1009);
}

/// The same content has the same serial; whatever differs has a later one.
#[test]
fn the_serial_of_a_domain_goes_on_when_it_comes_back() {
    let mut fleet = Fleet::grounded("cluster c1");
    fleet.plan(1000, "cluster c2");
    assert_eq!(fleet.serial("main"), 1001);
    for (away, back, rise) in [
        ("gone zone main", "zone main fleet.example", 0),
        ("zone main fleet.example dnssec", "zone main fleet.example", 0),
        ("zone main elsewhere.test", "zone main fleet.example", 0),
        ("gone zone main", "zone main fleet.example\n gone cluster c2", 1),
        // Nothing is in the zone while others publish it.
        ("zone main fleet.example external", "zone main fleet.example", 2),
    ] {
        let before = fleet.serial("main");
        fleet.plan(1000, away);
        fleet.plan(1000, back);
        assert_eq!(fleet.serial("main"), before + rise, "{away}");
    }
}

#[test]
fn what_changes_hands_unchanged_keeps_the_serial() {
    let mut fleet = Fleet::grounded("cluster a since=1 sni=s.fleet.example\n cluster b since=2");
    fleet.plan(1001, "cluster a since=1\n cluster b since=2 sni=s.fleet.example");
    assert_eq!(fleet.by_server_name("s.fleet.example").as_deref(), Some("b service-0"));
    assert_eq!(fleet.serial("main"), 1000);
    assert_eq!(fleet.planned.changes.zones, []);
}

/// Each row: a zone at 1000 seconds, after the row before; its serial, and whether it had to be reserved.
#[test]
fn the_serial_of_a_zone_file_counts_until_something_of_ours_is_in_the_zone() {
    const FILE: &str = "zone main fleet.example file=@/NS/ns.test";
    let mut fleet = Fleet::new();
    for (facts, serial, reserved) in [
        (format!("{FILE},soa/7"), 7, Some((7, true))),
        (format!("{FILE},soa/7 gateway=192.0.2.11"), 7, None),
        (format!("{FILE},soa/8,www/A/192.0.2.1"), 8, Some((8, true))),
        (format!("{FILE},soa/9,www/A/192.0.2.1"), 9, Some((9, true))),
        // From here on the serial is ours, whatever the file's.
        ("tenant acme\n cluster c1".to_owned(), 1000, Some((1999, false))),
        (format!("{FILE},soa/10,www/A/192.0.2.1"), 1001, None),
        ("cluster c2".to_owned(), 1002, None),
        (format!("{FILE},soa/3000,www/A/192.0.2.1"), 3001, Some((4000, false))),
        // The file stands alone again, but nobody has to go back.
        ("gone cluster c1\n gone cluster c2".to_owned(), 3002, Some((3002, true))),
        (format!("{FILE},soa/3002,www/A/192.0.2.1"), 3003, Some((3003, true))),
        (format!("{FILE},soa/3004,www/A/192.0.2.1"), 3004, Some((3004, true))),
        (format!("{FILE},soa/3004"), 3005, Some((3005, true))),
        // An apex or a name server that we have to add to is ours too.
        ("zone main fleet.example file=@/TXT/x,soa/5000".to_owned(), 5001, Some((6000, false))),
        ("zone main fleet.example file=@/NS/ns1.fleet.example,soa/7000".to_owned(), 7001, Some((8000, false))),
        ("zone main fleet.example file=@/NS/ns.test".to_owned(), 7002, None),
    ] {
        fleet.plan(1000, &facts);
        let floors: Vec<_> =
            fleet.planned.reserve.iter().map(|(_, floor)| (floor.serial, floor.digest.is_some())).collect();
        assert_eq!((fleet.serial("main"), floors), (serial, reserved.into_iter().collect()), "{facts}");
    }
}

/// Each row: how the process ends, what is there after the restart, and its serial.
#[test]
fn serials_survive_restarts() {
    let facts = format!("{GROUND}\n cluster c1 nodes=192.0.2.1");
    for (clean, more, now, serial) in [
        (true, "", 1000, 1002),
        (true, "", 5000, 1002),
        (true, "cluster c2", 500, 1003),
        (true, "cluster c2", 5000, 5000),
        // Killed: somewhere in the block, and nobody knows where.
        (false, "", 500, 2000),
        (false, "", 1500, 2000),
        (false, "", 5000, 5000),
    ] {
        let mut disk = BTreeMap::new();
        let mut fleet = Fleet::grounded("");
        disk.extend(fleet.planned.reserve.clone());
        for step in ["cluster c1", "cluster c1 nodes=192.0.2.1"] {
            fleet.plan(1000, step);
            assert_eq!(fleet.planned.reserve, [], "{step}");
        }
        assert_eq!(fleet.serial("main"), 1002);
        if clean {
            disk.extend(fleet.planner.rest());
        }

        fleet.planner = Planner::resume(disk);
        fleet.plan(now, &format!("{facts}\n{more}"));
        assert_eq!(fleet.serial("main"), serial, "{clean} {more} {now}");
        assert_eq!(fleet.planned.reserve.is_empty(), serial == 1002, "{clean} {more} {now}");
    }
}
