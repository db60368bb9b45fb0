//! What is refused is counted for the cluster that it was meant for.

use std::sync::Arc;

use gateway::DoorKind;
use model::resource::Limits;
use model::{Proof, ProofKey};

use crate::fleet::{Fleet, Member, backend, expect_closed, nobody, snapshot};

const START: &str = "fleetgate_gateway_refusals_total";

/// The lines of the metric without its name, in the order in which they stand.
fn counted(fleet: &Fleet) -> Vec<String> {
    let text = fleet.metrics();
    assert!(text.contains("# TYPE fleetgate_gateway_refusals counter"), "{text}");
    text.lines().filter_map(|line| line.strip_prefix(START)).map(str::to_owned).collect()
}

fn line(cluster: &str, code: &str, count: u64) -> String {
    format!("{{door=\"apiserver\",cluster=\"{cluster}\",code=\"{code}\"}} {count}")
}

async fn refuse(fleet: &Fleet, id: &str, times: usize) {
    for _ in 0..times {
        expect_closed(&mut fleet.select(id).await).await;
    }
}

#[tokio::test]
async fn each_cluster_counts_its_own_by_code_and_one_that_is_gone_counts_no_more() {
    let key = ProofKey::parse(&[7; 32]).unwrap();
    let members = || {
        let limits = Limits { connections: Some(0), ..Limits::default() };
        let proof = Proof { required: true, keys: vec![key.clone()] };
        [
            Member { allowed: &["192.0.2.0/24"], ..Member::new("c1", nobody()) },
            Member { proof, ..Member::new("c2", nobody()) },
            Member { limits, ..Member::new("c3", nobody()) },
            Member::new("c4", nobody()),
            Member::new("c5", nobody()),
        ]
    };
    let fleet = Fleet::start(DoorKind::ClusterId, snapshot(members()));
    assert_eq!(counted(&fleet), [""; 0], "nobody has been refused, nobody shows");

    refuse(&fleet, "id-c1", 2).await;
    refuse(&fleet, "id-c2", 1).await;
    refuse(&fleet, "id-c3", 1).await;
    refuse(&fleet, "id-c4", 3).await;
    // No cluster's business.
    refuse(&fleet, "id-c9", 1).await;
    let c1_to_c4 = [
        line("c1", "SourceNotAllowed", 2),
        line("c2", "ProofMissing", 1),
        line("c3", "ClusterConnections", 1),
        line("c4", "Unreachable", 3),
    ];
    assert_eq!(counted(&fleet), c1_to_c4);
    assert_eq!(fleet.outcomes("apiserver", "Unreachable"), 3, "and by door, as ever");
    assert_eq!(fleet.outcomes("apiserver", "UnknownClusterId"), 1);

    let [c1, _, _, c4, _] = members();
    fleet.snapshot.store(Arc::new(snapshot([c1, c4])));
    assert_eq!(counted(&fleet), [line("c1", "SourceNotAllowed", 2), line("c4", "Unreachable", 3)]);
    fleet.snapshot.store(Arc::new(snapshot(members())));
    refuse(&fleet, "id-c2", 1).await;
    assert_eq!(
        counted(&fleet),
        [line("c1", "SourceNotAllowed", 2), line("c2", "ProofMissing", 1), line("c4", "Unreachable", 3)],
        "one that comes back begins anew"
    );
}

#[tokio::test]
async fn a_large_fleet_shows_only_those_that_were_refused() {
    let names: Vec<&'static str> = (0..10_000).map(|number| &*format!("n{number}").leak()).collect();
    let target = backend("any").await;
    let members = names.iter().map(|name| Member { allowed: &["192.0.2.0/24"], ..Member::new(name, target) });
    let fleet = Fleet::start(DoorKind::ClusterId, snapshot(members));
    let before = fleet.metrics().len();
    for name in ["n17", "n9999"] {
        refuse(&fleet, &format!("id-{name}"), 5).await;
    }
    assert_eq!(counted(&fleet), [line("n17", "SourceNotAllowed", 5), line("n9999", "SourceNotAllowed", 5)]);
    assert!(fleet.metrics().len() < before + 1000);
}
