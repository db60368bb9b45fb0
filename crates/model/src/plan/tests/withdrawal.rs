//! What becomes of a cluster's addresses when no node is ready.

use std::collections::BTreeMap;

use super::fleet::{Fleet, GROUND, at};
use crate::identity::Kind;
use crate::plan::Planner;
use crate::snapshot::Condition;

const ONE_READY: &str = "cluster c1 nodes=192.0.2.1,!192.0.2.2";
const NONE_READY: &str = "cluster c1 nodes=!192.0.2.1,!192.0.2.2";
const APPS: &str = "*.c1.fleet.example 30 A 192.0.2.1";

fn apps(fleet: &Fleet) -> Vec<String> {
    fleet.names("c1").into_iter().filter(|line| line.starts_with('*')).collect()
}

#[test]
fn the_last_addresses_stay_for_the_grace_time() {
    let mut fleet = Fleet::grounded(ONE_READY);
    assert_eq!(fleet.planned.wake, None);

    // Neither planning again nor another change of the nodes begins the time anew.
    for (now, facts) in [(1001, NONE_READY), (1030, NONE_READY), (1050, "cluster c1"), (1060, "")] {
        fleet.plan(now, facts);
        assert_eq!(apps(&fleet), [APPS], "at {now}");
        assert_eq!(fleet.planned.wake, Some(at(1061)), "at {now}");
        let nodes = fleet.condition(Kind::Cluster, "c1", Condition::NODES_READY);
        assert_eq!((nodes.holds, nodes.reason), (false, "Grace"), "at {now}");
        assert!(nodes.message.ends_with("keeps its last addresses until 1970-01-01T00:17:41Z"), "{}", nodes.message);
    }

    fleet.plan(1061, "");
    assert_eq!(apps(&fleet), [""; 0]);
    assert_eq!(fleet.planned.wake, None);
    assert_eq!(fleet.condition(Kind::Cluster, "c1", Condition::NODES_READY).reason, "NoReadyNode");
    assert_eq!(fleet.accepted_clusters(), ["c1"]);
    let gone: Vec<_> = fleet.planned.changes.names.iter().map(|change| change.name.to_string()).collect();
    assert_eq!(gone, ["*.c1.fleet.example"]);

    fleet.plan(1062, ONE_READY);
    assert_eq!(apps(&fleet), [APPS]);
}

#[test]
fn what_ends_a_withdrawal_before_its_time() {
    for (ending, addresses) in [
        (ONE_READY, vec![APPS]),
        ("cluster c1 nodes=!192.0.2.1,192.0.2.2", vec!["*.c1.fleet.example 30 A 192.0.2.2"]),
        ("cluster c1 hub", vec!["*.c1.fleet.example 30 A 192.0.2.10"]),
        ("gone cluster c1", vec![]),
        ("gone tenant acme", vec![]),
        ("gone zone main", vec![]),
        ("zone main fleet.example external", vec![]),
        ("zone main fleet.example apps=*.apps.{cluster}", vec![]),
        ("cluster a since=0 id=c1", vec![]),
    ] {
        let mut fleet = Fleet::grounded(ONE_READY);
        fleet.plan(1001, NONE_READY);
        assert_eq!(fleet.planned.wake, Some(at(1061)));
        fleet.plan(1002, ending);
        assert_eq!(apps(&fleet), addresses, "{ending}");
        assert!(fleet.planner.withdrawals.is_empty(), "{ending}");
        // What rested because of it does not any more.
        let revision = fleet.plan(1040, "").snapshot.revision;
        assert_eq!(fleet.plan(1061, "").snapshot.revision, revision, "{ending}");
    }
}

#[test]
fn a_zone_that_others_publish_has_nothing_to_withdraw() {
    // The flip used to begin a withdrawal of names that were no longer there, which the next plan took back.
    let mut fleet = Fleet::grounded(ONE_READY);
    fleet.plan(1001, &format!("zone main fleet.example external\n {NONE_READY}"));
    assert_eq!(fleet.planned.wake, None);
    assert_eq!(fleet.condition(Kind::Cluster, "c1", Condition::NODES_READY).reason, "NoReadyNode");
    let revision = fleet.planned.snapshot.revision;
    assert_eq!(fleet.plan(1002, NONE_READY).snapshot.revision, revision);
}

#[test]
fn without_grace_addresses_go_at_once() {
    let mut fleet = Fleet::grounded(&format!("zone main fleet.example grace=0\n {ONE_READY}"));
    fleet.plan(1001, NONE_READY);
    assert_eq!(apps(&fleet), [""; 0]);
    assert_eq!(fleet.planned.wake, None);
}

#[test]
fn a_cluster_that_never_had_a_ready_node_has_nothing_to_keep() {
    let fleet = Fleet::grounded(NONE_READY);
    assert_eq!(apps(&fleet), [""; 0]);
    assert_eq!(fleet.planned.wake, None);
}

#[test]
fn wake_is_the_first_of_all_withdrawals() {
    let other = "cluster c2 nodes=192.0.2.7";
    let mut fleet = Fleet::grounded(&format!("{ONE_READY}\n {other}"));
    fleet.plan(1001, NONE_READY);
    fleet.plan(1021, "cluster c2 nodes=!192.0.2.7");
    assert_eq!(fleet.planned.wake, Some(at(1061)));
    assert_eq!(fleet.plan(1061, "").wake, Some(at(1081)));
    assert_eq!(apps(&fleet), [""; 0]);
    assert_eq!(fleet.names("c2").len(), 2);
    // Whoever asks late gets what is due.
    assert_eq!(fleet.plan(5000, "").wake, None);
    assert_eq!(fleet.names("c2").len(), 1);
}

#[test]
fn conditions_count_from_when_they_flipped() {
    let mut fleet = Fleet::grounded(ONE_READY);
    for (now, facts, accepted, nodes_ready) in [
        (1001, "cluster c1 nodes=192.0.2.1,192.0.2.2", 1000, 1000),
        (1002, NONE_READY, 1000, 1002),
        (1010, "cluster c1", 1000, 1002),
        (1062, "", 1000, 1002),
        (1070, ONE_READY, 1000, 1070),
        (1080, "cluster c1 nodes=192.0.2.1 tenant=nobody", 1080, 0),
        (1090, "cluster c1 nodes=192.0.2.1 tenant=initech zone=nowhere", 1080, 0),
        (1100, ONE_READY, 1100, 1100),
    ] {
        fleet.plan(now, facts);
        assert_eq!(fleet.condition(Kind::Cluster, "c1", Condition::ACCEPTED).since, at(accepted), "{facts} at {now}");
        if nodes_ready != 0 {
            let nodes = fleet.condition(Kind::Cluster, "c1", Condition::NODES_READY);
            assert_eq!(nodes.since, at(nodes_ready), "{facts} at {now}");
        }
    }
}

/// Each row: facts, and the whole condition that they lead to.
#[test]
fn the_condition_tells_what_becomes_of_the_addresses() {
    let mut fleet = Fleet::grounded("");
    for (now, facts, told) in [
        (
            1000,
            "cluster c1",
            "False NoReadyNode 1000 no node is ready; *.c1.fleet.example is withdrawn until that changes",
        ),
        (1001, "cluster c1 nodes=192.0.2.1,!192.0.2.2", "True Ready 1001 1 of 2 ready"),
        (
            1002,
            NONE_READY,
            "False Grace 1002 no node is ready; *.c1.fleet.example keeps its last addresses until 1970-01-01T00:17:42Z",
        ),
        (
            // Ready, but nobody can reach it.
            1003,
            "cluster c1 nodes=",
            "False Grace 1002 no ready node has an address; *.c1.fleet.example keeps its last addresses until \
             1970-01-01T00:17:42Z",
        ),
        (
            1062,
            "",
            "False NoReadyNode 1002 no ready node has an address; *.c1.fleet.example is withdrawn until that changes",
        ),
        (1063, "cluster c1 hub nodes=!192.0.2.1", "False NoReadyNode 1002 no node is ready"),
        (1064, "zone main fleet.example external\n cluster c1", "False NoReadyNode 1002 no node is ready"),
        (1065, "zone main fleet.example\n cluster c1 nodes=2001:db8::1", "True Ready 1065 1 of 1 ready"),
    ] {
        fleet.plan(now, facts);
        let Condition { holds, reason, message, since, .. } =
            fleet.condition(Kind::Cluster, "c1", Condition::NODES_READY);
        let (holds, since) = (if holds { "True" } else { "False" }, since.as_unix().as_secs());
        assert_eq!(format!("{holds} {reason} {since} {message}"), told, "{facts} at {now}");
    }
}

#[test]
fn both_families_are_kept_and_go_together() {
    const BOTH: [&str; 2] = ["*.c1.fleet.example 30 A 192.0.2.1", "*.c1.fleet.example 30 AAAA 2001:db8::1"];
    let mut fleet = Fleet::grounded("cluster c1 nodes=192.0.2.1+2001:db8::1,!2001:db8::2");
    for (now, facts, expected) in [
        (1001, "cluster c1 nodes=!192.0.2.1+2001:db8::1", BOTH.to_vec()),
        (1060, "", BOTH.to_vec()),
        (1061, "", vec![]),
        // A family without a ready node goes at once: the other one still leads somewhere.
        (1062, "cluster c1 nodes=192.0.2.1,2001:db8::1", BOTH.to_vec()),
        (1063, "cluster c1 nodes=192.0.2.1,!2001:db8::1", BOTH[..1].to_vec()),
    ] {
        fleet.plan(now, facts);
        assert_eq!(apps(&fleet), expected, "{facts} at {now}");
    }
}

/// Each row: what is there after a restart at some moment, and what the name then leads to until when.
#[test]
fn the_last_addresses_survive_a_restart() {
    let kept = [APPS.to_owned()];
    for (now, more, expected, until) in [
        (1020, NONE_READY, &kept[..], Some(1061)),
        (1020, "cluster c1", &kept, Some(1061)),
        (1061, NONE_READY, &[], None),
        // A clock that went back keeps nothing for longer than the grace time.
        (500, NONE_READY, &kept, Some(560)),
        (1020, ONE_READY, &kept, None),
        (1020, "cluster c1 hub", &["*.c1.fleet.example 30 A 192.0.2.10".to_owned()], None),
        (1020, "zone main fleet.example external\n cluster c1", &[], None),
        (1020, "zone main fleet.example apps=*.x.{cluster}\n cluster c1", &[], None),
    ] {
        let mut disk = BTreeMap::new();
        let mut fleet = Fleet::grounded(ONE_READY);
        assert_eq!(fleet.planned.kept, []);
        fleet.plan(1001, NONE_READY);
        disk.extend(fleet.planned.kept.clone());
        assert_eq!(disk.len(), 1);
        fleet.plan(1002, NONE_READY);
        assert_eq!(fleet.planned.kept, []);

        fleet.planner = Planner::default();
        fleet.planner.recall(disk.clone().into_iter().filter_map(|(name, kept)| Some((name, kept?))));
        fleet.plan(now, &format!("{GROUND}\n {more}"));
        assert_eq!(apps(&fleet), expected, "{more} at {now}");
        assert_eq!(fleet.planned.wake, until.map(at), "{more} at {now}");
        disk.extend(fleet.planned.kept.clone());
        assert_eq!(disk.into_values().flatten().map(|kept| kept.until).next(), until.map(at), "{more} at {now}");
    }
}

/// What is on disk does not outlive its time, also where its cluster never comes back.
#[test]
fn kept_addresses_are_forgotten() {
    let (name, until) = ("c1".parse::<crate::ClusterName>().unwrap(), at(1061));
    let set = crate::KeptSet { name: "*.c1.fleet.example".parse().unwrap(), addresses: Vec::new(), until };
    let mut fleet = Fleet::new();
    fleet.planner.recall([(name.clone(), set)]);
    fleet.plan(1060, GROUND);
    assert_eq!(fleet.planned.kept, []);
    fleet.plan(1061, "");
    assert_eq!(fleet.planned.kept, [(name, None)]);

    let mut fleet = Fleet::grounded(ONE_READY);
    for (now, facts, over) in
        [(1001, NONE_READY, false), (1030, ONE_READY, true), (1031, NONE_READY, false), (1091, "", true)]
    {
        fleet.plan(now, facts);
        let [(_, kept)] = fleet.planned.kept.as_slice() else { panic!("{:?} at {now}", fleet.planned.kept) };
        assert_eq!(kept.is_none(), over, "at {now}");
    }
}
