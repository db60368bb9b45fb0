//! What is refused is counted for the cluster that it was meant for.

use std::sync::Arc;
use std::time::SystemTime;

use gateway::DoorKind;
use gateway::proof;
use gateway::proxy_header::{Encoder, TLV_CLUSTER_ID, TLV_PROOF};
use model::resource::Limits;
use model::{Proof, ProofKey};
use tokio::io::AsyncWriteExt;

use crate::fleet::{Fleet, Member, backend, expect, expect_closed, nobody, snapshot, soon};

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
async fn gauges_follow_what_the_doors_hold() {
    let key = ProofKey::parse(&[7; 32]).unwrap();
    let proof = Proof { required: true, keys: vec![key.clone()] };
    let proven = Member { proof, ..Member::new("c1", backend("c1").await) };
    let gone = Member { upstreams: vec![nobody(), nobody()], ..Member::new("c2", nobody()) };
    let fleet = Fleet::start(DoorKind::ClusterId, snapshot([proven, gone]));
    let gauge = |name: &str| fleet.metric(&format!("fleetgate_gateway_{name} ")).unwrap();
    let undecided = || fleet.metric("fleetgate_gateway_undecided_connections{door=\"apiserver\"}").unwrap();
    assert_eq!((undecided(), gauge("upstream_addresses_ejected"), gauge("remembered_proofs")), (0, 0, 0));

    let silent = [fleet.connect().await, fleet.connect().await];
    until(|| undecided() == 2).await;
    drop(silent);
    until(|| undecided() == 0).await;

    // Three failures in a row eject an address.
    refuse(&fleet, "id-c2", 3).await;
    assert_eq!((gauge("upstream_addresses"), gauge("upstream_addresses_ejected")), (2, 2));
    // Of two addresses that nobody answers at, the checks come to know in their own time.
    assert!(gauge("upstream_addresses_unhealthy") <= 2);

    let proof = proof::sign(&key, b"id-c1", SystemTime::now(), &[1; proof::NONCE]);
    let header = Encoder::proxy("192.0.2.7:1".parse().unwrap(), "192.0.2.8:2".parse().unwrap());
    let header = header.tlv(TLV_CLUSTER_ID, b"id-c1").tlv(TLV_PROOF, &proof).finish().unwrap();
    let mut client = fleet.connect().await;
    client.write_all(&header).await.unwrap();
    expect(&mut client, "c1").await;
    assert_eq!((gauge("upstream_addresses"), gauge("remembered_proofs")), (3, 1));
}

async fn until(holds: impl Fn() -> bool) {
    soon(async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    })
    .await;
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
