//! A proof beside the cluster's id: who demands it, and what is wrong with those that are refused.

use std::time::{Duration, SystemTime};

use gateway::DoorKind;
use gateway::proof::{self, NONCE};
use gateway::proxy_header::{Encoder, TLV_CLUSTER_ID};
use model::resource::Limits;
use model::{Proof, ProofKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fleet::{Fleet, Member, backend, expect, expect_closed, snapshot, soon};

const ID: &str = "id-c1";

fn key(fill: u8) -> ProofKey {
    ProofKey::parse(&[fill; 32]).unwrap()
}

async fn fleet(required: bool, keys: &[ProofKey]) -> Fleet {
    let proof = Proof { required, keys: keys.to_vec() };
    let member = Member { proof, ..Member::new("c1", backend("c1").await) };
    Fleet::start(DoorKind::ClusterId, snapshot([member]))
}

fn signed(key: &ProofKey, id: &str, age: Duration, nonce: u8) -> Vec<u8> {
    proof::sign(key, id.as_bytes(), SystemTime::now() - age, &[nonce; NONCE]).to_vec()
}

fn header(proof: Option<&[u8]>) -> Vec<u8> {
    let encoder = Encoder::proxy("192.0.2.7:40000".parse().unwrap(), "172.20.0.1:6443".parse().unwrap());
    let encoder = encoder.tlv(TLV_CLUSTER_ID, ID.as_bytes());
    let encoder = proof.into_iter().fold(encoder, |encoder, octets| encoder.tlv(0xE1, octets));
    encoder.finish().unwrap()
}

/// Sends a header, and says whether it led to the control plane.
async fn passes(fleet: &Fleet, proof: Option<&[u8]>) -> bool {
    let before = fleet.outcomes("apiserver", "Established");
    let mut client = fleet.connect().await;
    client.write_all(&header(proof)).await.unwrap();
    let greeted = soon(client.read_exact(&mut [0; 2])).await.is_ok();
    assert_eq!(greeted, fleet.outcomes("apiserver", "Established") > before);
    greeted
}

#[tokio::test]
async fn a_cluster_that_demands_proofs_takes_only_good_ones() {
    let fleet = fleet(true, &[key(1)]).await;
    let now = Duration::ZERO;
    assert!(passes(&fleet, Some(&signed(&key(1), ID, now, 1))).await);
    let good = signed(&key(1), ID, now, 2);
    let long_ago = Duration::from_secs(90);
    for (what, proof, code) in [
        ("none", None, "ProofMissing"),
        ("a short one", Some(good[..56].to_vec()), "ProofMalformed"),
        ("of a later version", Some([&[2], &good[1..]].concat()), "ProofMalformed"),
        ("by another key", Some(signed(&key(2), ID, now, 3)), "ProofWrongKey"),
        ("for another cluster", Some(signed(&key(1), "id-c2", now, 4)), "ProofWrongKey"),
        ("an old one", Some(signed(&key(1), ID, long_ago, 5)), "ProofExpired"),
        ("one that was used", Some(signed(&key(1), ID, now, 1)), "ProofReplayed"),
    ] {
        let before = fleet.outcomes("apiserver", code);
        assert!(!passes(&fleet, proof.as_deref()).await, "{what}");
        assert_eq!(fleet.outcomes("apiserver", code), before + 1, "{what}");
    }
    assert!(passes(&fleet, Some(&good)).await, "what was refused spoils nothing");
}

#[tokio::test]
async fn both_keys_are_good_while_one_replaces_the_other() {
    let fleet = fleet(true, &[key(1), key(2)]).await;
    for (number, key) in [(1, key(1)), (2, key(2))] {
        assert!(passes(&fleet, Some(&signed(&key, ID, Duration::ZERO, number))).await);
    }
}

#[tokio::test]
async fn where_no_proof_is_demanded_the_id_is_enough_and_a_wrong_proof_is_still_wrong() {
    let fleet = fleet(false, &[key(1)]).await;
    assert!(passes(&fleet, None).await);
    assert!(passes(&fleet, Some(&signed(&key(1), ID, Duration::ZERO, 1))).await);
    assert!(!passes(&fleet, Some(&signed(&key(2), ID, Duration::ZERO, 2))).await);
    let without_keys = self::fleet(false, &[]).await;
    assert!(passes(&without_keys, Some(b"nobody can tell")).await);
}

#[tokio::test]
async fn a_connection_over_a_limit_does_not_spend_its_proof() {
    let proof = Proof { required: true, keys: vec![key(1)] };
    let limits = Limits { connections: Some(1), ..Limits::default() };
    let member = Member { proof, limits, ..Member::new("c1", backend("c1").await) };
    let fleet = Fleet::start(DoorKind::ClusterId, snapshot([member]));
    let mut first = fleet.connect().await;
    first.write_all(&header(Some(&signed(&key(1), ID, Duration::ZERO, 1)))).await.unwrap();
    expect(&mut first, "c1").await;

    let second = signed(&key(1), ID, Duration::ZERO, 2);
    let mut refused = fleet.connect().await;
    refused.write_all(&header(Some(&second))).await.unwrap();
    expect_closed(&mut refused).await;
    assert_eq!(fleet.outcomes("apiserver", "ClusterConnections"), 1);
    drop(first);
    // Its place is free once the door has seen it go.
    while !passes(&fleet, Some(&second)).await {
        assert_eq!(fleet.outcomes("apiserver", "ProofReplayed"), 0);
    }
}
