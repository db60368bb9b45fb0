use std::time::Duration;

use gateway::{DoorKind, Timeouts};
use model::Snapshot;
use tokio::net::TcpStream;

use crate::fleet::{Fleet, Member, Settings, backend, echo, expect, expect_closed, snapshot, soon};

const OPEN: &str = r#"fleetgate_gateway_open_connections{door="apiserver"}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_new_snapshot_drops_no_connection() {
    let c1 = backend("c1").await;
    let settings = Settings { cut_disallowed: false, ..Settings::default() };
    let fleet = Fleet::start_with(DoorKind::ClusterId, snapshot([Member::new("c1", c1)]), &settings);
    let mut clients = Vec::new();
    for _ in 0..100 {
        let mut client = fleet.select("id-c1").await;
        expect(&mut client, "c1").await;
        clients.push(client);
    }
    let forbidding = Member { allowed: &["192.0.2.0/24"], ..Member::new("c1", c1) };
    let moved = Member::new("c1", backend("c2").await);
    for next in [snapshot([forbidding]), snapshot([moved]), Snapshot::default()] {
        fleet.snapshot.store(next.into());
        for client in &mut clients {
            echo(client, "still there").await;
        }
    }
    assert_eq!(fleet.metric(OPEN), Some(100));
    // New connections go by the new snapshot.
    expect_closed(&mut fleet.select("id-c1").await).await;
    assert_eq!(fleet.outcomes("apiserver", "UnknownClusterId"), 1);
}

#[tokio::test]
async fn clients_that_are_not_allowed_any_more_are_cut() {
    let (c1, c2) = (backend("c1").await, backend("c2").await);
    let fleet = Fleet::start(DoorKind::ClusterId, snapshot([Member::new("c1", c1), Member::new("c2", c2)]));
    let mut cut = fleet.select("id-c1").await;
    expect(&mut cut, "c1").await;
    let mut kept = fleet.select("id-c2").await;
    expect(&mut kept, "c2").await;
    let shrunk = Member { allowed: &["192.0.2.0/24"], ..Member::new("c1", c1) };
    let mut next = snapshot([shrunk, Member::new("c2", c2)]);
    next.revision += 1;
    fleet.snapshot.store(next.into());
    expect_closed(&mut cut).await;
    echo(&mut kept, "still there").await;
    assert_eq!(fleet.metric(r#"fleetgate_gateway_cut_total{door="apiserver"}"#), Some(1));
}

#[tokio::test]
async fn what_carries_nothing_for_too_long_is_closed() {
    let timeouts = Timeouts { idle: Duration::from_millis(100), ..Settings::default().timeouts };
    let settings = Settings { timeouts, ..Settings::default() };
    let fleet = Fleet::start_with(DoorKind::ClusterId, snapshot([Member::new("c1", backend("c1").await)]), &settings);
    let mut client = fleet.select("id-c1").await;
    expect(&mut client, "c1").await;
    expect_closed(&mut client).await;
}

#[tokio::test]
async fn connections_beyond_the_bound_are_refused_until_one_ends() {
    let settings = Settings { max_connections: 1, ..Settings::default() };
    let fleet = Fleet::start_with(DoorKind::ClusterId, snapshot([Member::new("c1", backend("c1").await)]), &settings);
    let mut first = fleet.select("id-c1").await;
    expect(&mut first, "c1").await;
    expect_closed(&mut fleet.connect().await).await;
    assert_eq!(fleet.outcomes("apiserver", "TooManyConnections"), 1);
    drop(first);
    soon(async {
        while fleet.metric(OPEN) != Some(0) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    expect(&mut fleet.select("id-c1").await, "c1").await;
}

#[tokio::test]
async fn shutdown_lets_open_connections_end() {
    let mut fleet = Fleet::start(DoorKind::ClusterId, snapshot([Member::new("c1", backend("c1").await)]));
    let mut client = fleet.select("id-c1").await;
    expect(&mut client, "c1").await;
    let ended = fleet.shut_down();
    soon(async { while TcpStream::connect(fleet.address).await.is_ok() {} }).await;
    echo(&mut client, "still there").await;
    assert!(!ended.is_finished());
    drop(client);
    soon(ended).await.unwrap();
}

#[tokio::test]
async fn shutdown_closes_what_outstays_the_drain_time() {
    let settings = Settings { drain: Duration::from_millis(50), ..Settings::default() };
    let mut fleet =
        Fleet::start_with(DoorKind::ClusterId, snapshot([Member::new("c1", backend("c1").await)]), &settings);
    let mut established = fleet.select("id-c1").await;
    expect(&mut established, "c1").await;
    let mut undecided = fleet.connect().await;
    soon(async {
        while fleet.metric(OPEN) != Some(2) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let ended = fleet.shut_down();
    expect_closed(&mut established).await;
    expect_closed(&mut undecided).await;
    soon(ended).await.unwrap();
}
