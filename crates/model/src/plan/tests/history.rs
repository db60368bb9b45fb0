//! What a plan changed, as people are told.

use std::sync::Arc;

use super::fleet::Fleet;
use crate::history::differences;

const FLEET: &str = "
    zone main fleet.example
    tenant acme
    cluster c1 nodes=192.0.2.1,192.0.2.2,192.0.2.3
    cluster c2 nodes=192.0.2.9
";

/// What the next plan is said to change, most of it of `c1`.
#[track_caller]
fn assert_told(lines: &str, expected: &[&str]) {
    let mut fleet = Fleet::new();
    fleet.plan(1000, FLEET);
    let before = Arc::clone(&fleet.planned.snapshot);
    fleet.plan(1001, lines);
    let (told, more) = differences(&before, &fleet.planned.snapshot, &fleet.planned.changes, 100);
    let told: Vec<String> = told.into_iter().map(|(object, what)| format!("{object}: {what}")).collect();
    assert_eq!((told, more), (expected.iter().map(ToString::to_string).collect(), 0), "{lines}");
}

#[test]
fn changes_are_told_with_what_follows_from_them() {
    assert_told(FLEET, &[]);
    assert_told(
        "cluster c1 nodes=192.0.2.1,!192.0.2.2,192.0.2.3",
        &[
            "Cluster c1: node n1 is not ready any more",
            "Cluster c1: *.c1.fleet.example leads to 2 addresses, without 192.0.2.2",
        ],
    );
    assert_told(
        "cluster c1 nodes=192.0.2.1,192.0.2.2,192.0.2.3,192.0.2.4",
        &["Cluster c1: node n3 is new", "Cluster c1: *.c1.fleet.example leads to 4 addresses, with 192.0.2.4"],
    );
    assert_told(
        "cluster c1 nodes=!192.0.2.1,!192.0.2.2,!192.0.2.3",
        &[
            "Cluster c1: nodes n0, n1, n2 are not ready any more",
            "Cluster c1: not NodesReady (Grace): no node is ready; *.c1.fleet.example keeps its last addresses until 1970-01-01T00:17:41Z",
        ],
    );
    assert_told(
        "cluster c1 connections=5 nodes=192.0.2.1,192.0.2.2,192.0.2.3",
        &["Cluster c1: the limits of kube-apiserver are others"],
    );
    assert_told(
        "cluster c1 drained=1001 nodes=192.0.2.1,192.0.2.2,192.0.2.3",
        &[
            "Cluster c1: Drained (Drained): federated traffic goes to other clusters since 1970-01-01T00:16:41Z; `fleetgate drain c1 --undo` lets it come back",
        ],
    );
    assert_told("gone cluster c1", &["Cluster c1: it is gone"]);
    assert_told("cluster c3 nodes=192.0.2.7", &["Cluster c3: it is there"]);
    assert_told(
        "cluster c3 id=c1 nodes=192.0.2.7",
        &["Cluster c3: not Accepted (ClusterIdTaken): cluster id c1 belongs to Cluster c1, which was first"],
    );
}

#[test]
fn a_plan_that_changes_everything_is_told_in_part() {
    let mut fleet = Fleet::new();
    let clusters: Vec<String> = (0..20).map(|number| format!("cluster c{number} nodes=192.0.2.{number}")).collect();
    let clusters = clusters.join("\n");
    fleet.plan(1000, &format!("zone main fleet.example\n tenant acme\n{clusters}"));
    let before = Arc::clone(&fleet.planned.snapshot);
    fleet.plan(1001, "zone main fleet.example gateway=192.0.2.77");
    let (told, more) = differences(&before, &fleet.planned.snapshot, &fleet.planned.changes, 5);
    // The Zone itself is first, and has nothing to tell but its serial.
    assert_eq!((told.len(), more), (4, 16), "{told:?}");
    assert!(told[0].1.ends_with("leads to 1 address, with 192.0.2.77, without 192.0.2.10"), "{told:?}");
}
