//! One tenant's connections do not cost another tenant its own.

use gateway::DoorKind;
use gateway::limits::openings::OpeningLimits;
use model::resource::Limits;

use crate::fleet::{Fleet, Member, Settings, backend, echo, expect, expect_closed, nobody, snapshot, soon};

#[tokio::test]
async fn a_cluster_has_as_many_connections_as_its_limit_and_others_are_not_touched() {
    let limits = Limits { connections: Some(2), ..Limits::default() };
    let limited = Member { limits, ..Member::new("c1", backend("c1").await) };
    let fleet = Fleet::start(DoorKind::ClusterId, snapshot([limited, Member::new("c2", backend("c2").await)]));
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut client = fleet.select("id-c1").await;
        expect(&mut client, "c1").await;
        open.push(client);
    }
    expect_closed(&mut fleet.select("id-c1").await).await;
    assert_eq!(fleet.outcomes("apiserver", "ClusterConnections"), 1);
    expect(&mut fleet.select("id-c2").await, "c2").await;

    // A place comes back when its connection ends.
    open.pop();
    soon(async {
        loop {
            let mut client = fleet.select("id-c1").await;
            let mut greeting = [0; 2];
            if tokio::io::AsyncReadExt::read_exact(&mut client, &mut greeting).await.is_ok() {
                return;
            }
        }
    })
    .await;
    echo(&mut open[0], "still there").await;
}

#[tokio::test]
async fn a_cluster_gets_new_connections_at_its_rate_only() {
    let limits = Limits { new_connections_per_second: Some(5), ..Limits::default() };
    let limited = Member { limits, ..Member::new("c1", backend("c1").await) };
    let fleet = Fleet::start(DoorKind::ClusterId, snapshot([limited, Member::new("c2", backend("c2").await)]));
    for _ in 0..50 {
        let _ = fleet.select("id-c1").await;
        expect(&mut fleet.select("id-c2").await, "c2").await;
    }
    soon(async {
        while fleet.outcomes("apiserver", "ClusterRate") == 0 {
            drop(fleet.select("id-c1").await);
        }
    })
    .await;
}

#[tokio::test]
async fn silent_peers_make_room_for_honest_ones() {
    let openings = OpeningLimits { total: 20, per_source: 20, ..OpeningLimits::default() };
    let settings = Settings { openings, ..Settings::default() };
    let fleet = Fleet::start_with(DoorKind::ClusterId, snapshot([Member::new("c1", backend("c1").await)]), &settings);
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(fleet.connect().await);
    }
    for _ in 0..20 {
        expect(&mut fleet.select("id-c1").await, "c1").await;
    }
    // Those that waited longest are gone; the door says why.
    expect_closed(&mut silent[0]).await;
    assert!(
        fleet.outcomes("apiserver", "TooManyOpeningsOfSource") + fleet.outcomes("apiserver", "TooManyOpenings") > 0
    );
}

#[tokio::test]
async fn an_address_that_does_not_answer_is_passed_over() {
    let (dead, alive) = (nobody(), backend("c1").await);
    let member = Member { upstreams: vec![dead, alive], ..Member::new("c1", alive) };
    let fleet = Fleet::start(DoorKind::ClusterId, snapshot([member]));
    for _ in 0..20 {
        expect(&mut fleet.select("id-c1").await, "c1").await;
    }
    assert_eq!(fleet.outcomes("apiserver", "Established"), 20);
}
