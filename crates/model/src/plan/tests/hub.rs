//! What only a hub brings: objects that cannot be read, nodes that others saw, names that others publish, and numbers
//! that the leader gave.

use std::collections::VecDeque;

use proptest::prelude::*;
use proptest::sample::select;

use super::super::*;
use super::fleet::{Fleet, GROUND, at, facts};
use crate::serial::is_newer;
use crate::snapshot::{Condition, NameRecords};

const MALFORMED: &str = "Malformed: it cannot be read: a test says so";

/// Each row: facts after a good cluster and its zone, what is said of all three, and whether the cluster is served.
#[test]
fn what_cannot_be_read_is_refused_until_it_can() {
    let good = "Valid";
    let mut fleet = Fleet::grounded("cluster c1 nodes=192.0.2.1");
    for (facts, zone, tenant, cluster, served) in [
        // The last good one serves on, unless whoever feeds facts takes it away.
        ("broken cluster c1", good, good, MALFORMED, true),
        ("cluster c1 nodes=192.0.2.1", good, good, good, true),
        ("broken zone main", MALFORMED, good, good, true),
        ("cluster c1 nodes=192.0.2.1,192.0.2.2", MALFORMED, good, good, true),
        ("zone other other.test", MALFORMED, good, good, true),
        ("zone main fleet.example", good, good, good, true),
        ("broken tenant acme", good, MALFORMED, good, true),
        ("tenant acme", good, good, good, true),
        ("gone zone main\n broken zone main", MALFORMED, good, "RefusedZone: Zone main is refused itself", false),
        ("zone main fleet.example", good, good, good, true),
        (
            "gone tenant acme\n broken tenant acme",
            good,
            MALFORMED,
            "RefusedTenant: Tenant acme is refused itself",
            false,
        ),
        ("tenant acme", good, good, good, true),
        ("gone cluster c1\n broken cluster c1", good, good, MALFORMED, false),
        ("broken cluster c1\n cluster c1", good, good, good, true),
        ("cluster c1\n broken cluster c1", good, good, MALFORMED, true),
    ] {
        fleet.plan(1001, facts);
        let told = [Kind::Zone, Kind::Tenant].map(|kind| {
            let name = if kind == Kind::Zone { "main" } else { "acme" };
            fleet.verdict(kind, name)
        });
        assert_eq!(told, [zone, tenant], "{facts}");
        assert_eq!(fleet.verdict(Kind::Cluster, "c1"), cluster, "{facts}");
        assert_eq!(fleet.accepted_clusters().len(), usize::from(served), "{facts}");
        let refused = [zone, tenant, cluster].iter().filter(|told| **told != good).count();
        assert_eq!(fleet.planned.snapshot.refused_count(), refused, "{facts}");
    }
}

#[test]
fn what_cannot_be_read_is_forgotten_when_it_is_gone() {
    let mut fleet = Fleet::grounded("");
    let before = fleet.planned.snapshot.statuses().count();
    for (kind, name) in [("zone", "z"), ("tenant", "t"), ("cluster", "c"), ("policy", "p")] {
        let broken = if kind == "policy" { "federationpolicy" } else { kind };
        fleet.plan(1001, &format!("broken {broken} {name}"));
        assert_eq!(fleet.planned.snapshot.statuses().count(), before + 1, "{kind}");
        let snapshot = Arc::clone(&fleet.planned.snapshot);
        assert!(Arc::ptr_eq(&fleet.plan(1002, &format!("broken {broken} {name}")).snapshot, &snapshot), "{kind}");
        fleet.plan(1003, &format!("gone {kind} {name}"));
        assert_eq!(fleet.planned.snapshot.statuses().count(), before, "{kind}");
        assert!(fleet.planner.broken.is_empty());
    }
}

#[test]
fn the_rest_of_what_is_said_stays_while_the_last_good_one_serves() {
    let mut fleet = Fleet::grounded("cluster c1 nodes=192.0.2.1");
    fleet.plan(1001, "broken cluster c1");
    assert_eq!(fleet.condition(Kind::Cluster, "c1", Condition::ACCEPTED).since, at(1001));
    assert_eq!(fleet.condition(Kind::Cluster, "c1", Condition::NODES_READY).since, at(1000));
    assert!(matches!(&status(&fleet, "c1").detail, Detail::Cluster { ready_nodes: 1, .. }));
}

fn status<'a>(fleet: &'a Fleet, cluster: &str) -> &'a Status {
    fleet.planned.snapshot.status(&cluster_object(&cluster.parse().unwrap())).unwrap()
}

#[test]
fn a_status_tells_which_generation_it_speaks_of() {
    let mut fleet = Fleet::grounded("cluster c1 nodes=192.0.2.1 generation=1");
    for (facts, generation) in [
        ("", Some(1)),
        ("cluster c1 nodes=192.0.2.1 generation=2", Some(2)),
        ("cluster c1 tenant=nobody generation=3", Some(3)),
        ("broken cluster c1", None),
        ("cluster c1 generation=4", Some(4)),
        ("cluster c1", None),
    ] {
        fleet.plan(1001, facts);
        assert_eq!(status(&fleet, "c1").generation, generation, "{facts}");
    }
    for (kind, name, facts) in [
        (Kind::Zone, "main", "zone main fleet.example generation=7"),
        (Kind::Tenant, "acme", "tenant acme generation=7"),
    ] {
        fleet.plan(1002, facts);
        let object = ObjectRef::cluster_scoped(kind, name.parse().unwrap());
        assert_eq!(fleet.planned.snapshot.status(&object).unwrap().generation, Some(7), "{facts}");
        assert!(fleet.planned.changes.statuses.contains(&object));
    }
}

/// Each row: a zone, a cluster in it, and what a table says of the cluster in one word.
#[test]
fn the_state_of_a_cluster_is_one_word() {
    for (zone, cluster, expected) in [
        ("", "nodes=192.0.2.1", "Ready"),
        ("", "nodes=!192.0.2.1", "NoReadyNodes"),
        ("", "", "NoReadyNodes"),
        ("", "hub", "Ready"),
        ("gateway=none", "nodes=192.0.2.1", "NotPublished"),
        ("external", "nodes=192.0.2.1", "NotPublished"),
        ("external handout", "nodes=192.0.2.1", "Ready"),
        ("", "access=unseen", "Pending"),
        ("", "access=reachable", "NoReadyNodes"),
        ("", "access=reachable nodes=192.0.2.1", "Ready"),
        ("", "access=unseen nodes=192.0.2.1", "Ready"),
        ("", "access=unreachable nodes=192.0.2.1", "Unreachable"),
        ("", "access=unreachable hub", "Unreachable"),
    ] {
        let fleet = Fleet::grounded(&format!("zone main fleet.example {zone}\n cluster c1 {cluster}"));
        let Detail::Cluster { state, .. } = &status(&fleet, "c1").detail else { panic!("{cluster} is refused") };
        assert_eq!(*state, expected, "{zone} {cluster}");
        let kinds = status(&fleet, "c1").conditions.iter().map(|condition| condition.kind);
        assert!(!kinds.collect::<Vec<_>>().contains(&"Reachable"), "that condition is somebody else's");
    }
    let fleet = Fleet::grounded("cluster c1 access=unseen");
    let nodes = fleet.condition(Kind::Cluster, "c1", Condition::NODES_READY);
    assert!(nodes.message.starts_with("nobody has seen its nodes yet"), "{}", nodes.message);
}

/// One saw the nodes go, the other was started afterwards and knows what the first has kept: both say the same until the
/// addresses go, and then too.
#[test]
fn a_replica_that_starts_anew_keeps_what_the_others_keep() {
    for nodes in ["192.0.2.1", "192.0.2.1+2001:db8::1", "2001:db8::1,192.0.2.2"] {
        let mut seasoned = Fleet::grounded(&format!("cluster c1 access=reachable nodes={nodes}"));
        let gone = "cluster c1 access=reachable nodes=!192.0.2.1";
        seasoned.plan(1001, gone);
        let Detail::Cluster { kept: Some(kept), .. } = &status(&seasoned, "c1").detail else { panic!("nothing kept") };
        assert_eq!(kept.until, at(1061));
        let addresses: Vec<_> = kept.addresses.iter().map(ToString::to_string).collect();
        let told = format!("{gone} kept={}/1061", addresses.join("+"));

        let mut fresh = Fleet::new();
        fresh.plan(1020, &format!("{GROUND}\n {told}"));
        seasoned.plan(1020, &told);
        for now in [1020, 1021, 1060, 1061, 1062] {
            for fleet in [&mut seasoned, &mut fresh] {
                fleet.plan(now, if now == 1021 { "zone main fleet.example ttl=40" } else { "" });
            }
            assert_eq!(seasoned.names("c1"), fresh.names("c1"), "{nodes} at {now}");
            assert_eq!(seasoned.names("c1").len() > 1, now < 1061, "{nodes} at {now}");
            assert_eq!(seasoned.planned.wake, fresh.planned.wake, "{nodes} at {now}");
            let digest = |fleet: &Fleet| fleet.planned.snapshot.zone(&"main".parse().unwrap()).unwrap().digest;
            assert_eq!(digest(&seasoned), digest(&fresh), "{nodes} at {now}");
            let Detail::Cluster { kept, .. } = &status(&fresh, "c1").detail else { panic!("refused") };
            assert_eq!(kept.is_some(), now < 1061, "{nodes} at {now}");
        }
    }
}

/// Each row: a cluster with something kept until 1061 at some moment, and whether that counts.
#[test]
fn what_others_kept_counts_where_nothing_better_is_known() {
    for (now, first, cluster, counts) in [
        (1020, "", "kept=192.0.2.9/1061", true),
        (1061, "", "kept=192.0.2.9/1061", false),
        (1020, "", "nodes=192.0.2.1 kept=192.0.2.9/1061", false),
        (1020, "", "hub kept=192.0.2.9/1061", false),
        (1020, "zone main fleet.example apps=*.x.{cluster}", "kept=192.0.2.9/1061", false),
        // Told only after it was seen without any node.
        (1020, "cluster c1", "kept=192.0.2.9/1061", true),
        // Seen with a node of its own, whatever somebody kept once.
        (1020, "cluster c1 nodes=192.0.2.1", "kept=192.0.2.9/1061", false),
    ] {
        let mut fleet = Fleet::grounded(first);
        fleet.plan(now, &format!("cluster c1 {cluster}"));
        let kept = fleet.names("c1").iter().any(|name| name.ends_with("A 192.0.2.9"));
        assert_eq!(kept, counts, "{first}, {cluster} at {now}");
    }
}

/// Each row: how a zone is published, what we answer, what is handed to others, and how the condition calls it.
#[test]
fn names_are_published_by_whom_the_zone_says() {
    const NAMES: [&str; 2] = ["api.c1.fleet.example", "*.c1.fleet.example"];
    for (zone, answered, handed_out, reason) in [
        ("", &NAMES[..], &[][..], "Authoritative"),
        ("handout", &NAMES, &NAMES, "AuthoritativeAndDNSEndpoint"),
        ("external handout", &[], &NAMES, "DNSEndpoint"),
        ("external handout ns=none", &[], &NAMES, "DNSEndpoint"),
        ("external handout gateway=none", &[], &NAMES[1..], "NoGateway"),
        ("external", &[], &[], "NotAuthoritative"),
    ] {
        let mut fleet = Fleet::grounded("cluster c1 nodes=192.0.2.1");
        fleet.plan(1001, &format!("zone main fleet.example {zone}"));
        let part = fleet.planned.snapshot.cluster(&"c1".parse().unwrap()).unwrap();
        let names = |names: &[NameRecords]| names.iter().map(|name| name.name.to_string()).collect::<Vec<_>>();
        assert_eq!(
            (names(part.answered()), names(part.handed_out())),
            (to_owned(answered), to_owned(handed_out)),
            "{zone}"
        );
        assert_eq!(fleet.condition(Kind::Cluster, "c1", Condition::PUBLISHED).reason, reason, "{zone}");
        assert_eq!(fleet.verdict(Kind::Zone, "main"), "Valid", "{zone}");
    }
}

fn to_owned(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

#[test]
fn names_that_others_publish_are_kept_and_withdrawn_too() {
    let mut fleet = Fleet::grounded("zone main fleet.example external handout\n cluster c1 nodes=192.0.2.1");
    for (now, facts, count) in [(1001, "cluster c1 nodes=!192.0.2.1", 2), (1060, "", 2), (1061, "", 1)] {
        fleet.plan(now, facts);
        let part = fleet.planned.snapshot.cluster(&"c1".parse().unwrap()).unwrap();
        assert_eq!(part.handed_out().len(), count, "at {now}");
        assert_eq!(fleet.planned.changes.names, [], "none of it is answered here");
    }
}

/// Each row: what the hub says of the zone, given its digest; the serial then, and that of the next change.
#[test]
fn the_hub_s_numbers_count() {
    const OTHER: &str = "00000000000000000000000000000001";
    for (serial, agrees, expected, next) in [
        // The very same.
        (1000, true, 1000, 1001),
        (990, true, 990, 991),
        (5000, true, 5000, 5001),
        (u32::MAX, true, u32::MAX, 0),
        // Of other content: ours comes after it.
        (1000, false, 1001, 1002),
        (990, false, 991, 992),
        (5000, false, 5001, 5002),
    ] {
        let mut fleet = Fleet::grounded("cluster c1 nodes=192.0.2.1");
        let before = Arc::clone(&fleet.planned.snapshot);
        let digest = before.zone(&"main".parse().unwrap()).unwrap().digest.to_string();
        let line = format!("number main {serial} {}", if agrees { &digest } else { OTHER });
        fleet.plan(9000, &line);
        assert_eq!(fleet.serial("main"), expected, "{line}");
        assert_eq!(fleet.planned.reserve, [], "{line}");
        let part = |snapshot: &Snapshot| Arc::clone(snapshot.cluster(&"c1".parse().unwrap()).unwrap());
        assert!(Arc::ptr_eq(&part(&fleet.planned.snapshot), &part(&before)), "{line}");
        assert_eq!(fleet.planned.changes.names, [], "{line}");
        assert_eq!(Arc::ptr_eq(&fleet.planned.snapshot, &before), expected == 1000, "{line}");
        assert_eq!(fleet.planned.changes.statuses.len(), usize::from(expected != 1000), "{line}");

        let same = Arc::clone(&fleet.planned.snapshot);
        assert!(Arc::ptr_eq(&fleet.plan(9001, &line).snapshot, &same), "{line} again");
        fleet.plan(9002, "cluster c2");
        assert_eq!(fleet.serial("main"), next, "{line}");
    }
}

#[test]
fn a_number_waits_for_its_zone() {
    let digest = {
        let fleet = Fleet::grounded("");
        fleet.planned.snapshot.zone(&"main".parse().unwrap()).unwrap().digest
    };
    let line = format!("number main 77 {digest}");
    for plans in
        [vec![line.clone(), GROUND.into()], vec![format!("{line}\n{GROUND}")], vec![GROUND.into(), line.clone()]]
    {
        let mut fleet = Fleet::new();
        for facts in &plans {
            fleet.plan(1000, facts);
        }
        assert_eq!(fleet.serial("main"), 77, "{plans:?}");
        assert!(fleet.planner.numbers.is_empty());
    }
    let mut fleet = Fleet::new();
    fleet.plan(1000, &format!("{line}\n gone zone main"));
    assert!(fleet.planner.numbers.is_empty());
}

/// What the leader numbered comes back from the hub late, and must not lead it astray.
#[test]
fn an_echo_changes_nothing() {
    let mut fleet = Fleet::grounded("");
    let mut given = Vec::new();
    for count in 1..5 {
        fleet.plan(1000, &format!("cluster c{count}"));
        let part = fleet.planned.snapshot.zone(&"main".parse().unwrap()).unwrap();
        given.push(format!("number main {} {}", part.soa.serial, part.digest));
    }
    let before = Arc::clone(&fleet.planned.snapshot);
    for echo in given {
        assert!(Arc::ptr_eq(&fleet.plan(1001, &echo).snapshot, &before), "{echo}");
    }
    assert_eq!(fleet.serial("main"), 1004);
}

proptest! {
    /// A leader hears of its own numbers at any later time; its serials only rise.
    #[test]
    fn echoes_never_make_a_leader_go_back(
        turns in prop::collection::vec((select(vec!["c1", "c2", "c3"]), 0..4u8, 0..4usize), 1..40),
    ) {
        let mut planner = Planner::default();
        planner.apply(facts(GROUND), at(1000));
        let mut on_the_way = VecDeque::new();
        let mut last = None;
        let main: ObjectName = "main".parse().unwrap();
        for (cluster, node, arrivals) in turns {
            let change = format!("cluster {cluster} nodes=192.0.2.{node}");
            let mut changes = facts(&change);
            for _ in 0..arrivals {
                changes.extend(on_the_way.pop_front());
            }
            let planned = planner.apply(changes, at(1000));
            let part = planned.snapshot.zone(&main).unwrap();
            let number = Number { serial: part.soa.serial, digest: part.digest };
            if let Some(last) = last.replace(number) {
                prop_assert!(number == last || is_newer(number.serial, last.serial), "{:?} after {:?}", number, last);
            }
            on_the_way.push_back(FactChange::Number(main.clone(), Some(number)));
        }
    }

    /// Who follows comes to the leader's serial, however the same changes came to it.
    #[test]
    fn followers_come_to_the_number_of_the_leader(
        nodes in prop::collection::vec(1..200u8, 1..20),
        cuts in prop::collection::vec(any::<bool>(), 20),
        clock in 900..1100u64,
    ) {
        let lines: Vec<String> =
            (0..).zip(&nodes).map(|(count, node)| format!("cluster c{count} nodes=192.0.2.{node}")).collect();
        let main: ObjectName = "main".parse().unwrap();
        let run = |cuts: &mut dyn FnMut() -> bool, seconds: u64| {
            let mut planner = Planner::default();
            let mut batch = facts(GROUND);
            for line in &lines {
                if cuts() {
                    planner.apply(std::mem::take(&mut batch), at(seconds));
                }
                batch.extend(facts(line));
            }
            planner.apply(batch, at(seconds));
            planner
        };
        let leader = run(&mut || true, 1000);
        let mut cuts = cuts.into_iter();
        let mut follower = run(&mut || cuts.next().unwrap_or_default(), clock);
        let part = Arc::clone(leader.snapshot().zone(&main).unwrap());
        let number = Number { serial: part.soa.serial, digest: part.digest };
        let planned = follower.apply([FactChange::Number(main.clone(), Some(number))], at(clock));
        prop_assert_eq!(planned.snapshot.zone(&main), Some(&part));
    }
}
