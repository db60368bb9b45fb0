//! What becomes of a cluster's addresses when no node is ready.

use super::fleet::{Fleet, at};
use crate::identity::Kind;
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
        assert_eq!(fleet.planned.wake, None, "{ending}");
        let revision = fleet.planned.snapshot.revision;
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
