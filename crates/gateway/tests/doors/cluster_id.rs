use std::time::Duration;

use gateway::proxy_header::{Encoder, TLV_CLUSTER_ID};
use gateway::{DoorKind, Timeouts};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fleet::{Fleet, Member, Settings, backend, echo, expect, expect_closed, header, nobody, snapshot, soon};

async fn two_clusters() -> Fleet {
    let members = [Member::new("c1", backend("c1").await), Member::new("c2", backend("c2").await)];
    Fleet::start(DoorKind::ClusterId, snapshot(members))
}

#[tokio::test]
async fn an_id_leads_to_its_cluster_and_no_other() {
    let fleet = two_clusters().await;
    for name in ["c1", "c2", "c1"] {
        let mut client = fleet.select(&format!("id-{name}")).await;
        expect(&mut client, name).await;
        // The header is not passed on: what comes back first is what was sent behind it.
        echo(&mut client, "hello").await;
    }
    assert_eq!(fleet.outcomes("apiserver", "Established"), 3);
}

#[tokio::test]
async fn our_own_tlv_and_a_checksum_work_too() {
    let fleet = two_clusters().await;
    let (client, destination) = ("[2001:db8::7]:40000".parse().unwrap(), "[fd00::1]:6443".parse().unwrap());
    let header = Encoder::proxy(client, destination).tlv(TLV_CLUSTER_ID, b"id-c2").finish_with_checksum().unwrap();
    let mut client = fleet.connect().await;
    client.write_all(&header).await.unwrap();
    expect(&mut client, "c2").await;
}

#[tokio::test]
async fn a_header_may_come_byte_by_byte() {
    let fleet = two_clusters().await;
    let mut client = fleet.connect().await;
    client.set_nodelay(true).unwrap();
    for byte in [header("id-c1").as_slice(), b"hello"].concat() {
        client.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    expect(&mut client, "c1hello").await;
}

#[tokio::test]
async fn bytes_behind_the_header_belong_to_the_stream() {
    let fleet = two_clusters().await;
    let mut client = fleet.connect().await;
    // More than the door reads at first.
    let text = "0123456789".repeat(10_000);
    let (mut read, mut write) = client.split();
    let sent = [header("id-c1").as_slice(), text.as_bytes()].concat();
    let mut received = vec![0; 2 + text.len()];
    let (written, read) = tokio::join!(soon(write.write_all(&sent)), soon(read.read_exact(&mut received)));
    written.unwrap();
    read.unwrap();
    assert!(received == [b"c1", text.as_bytes()].concat());
    let carried = |direction| {
        fleet.metric(&format!("fleetgate_gateway_bytes_total{{door=\"apiserver\",direction=\"{direction}\"}}"))
    };
    // Told once a turn of the thread, which may be a moment after the bytes.
    soon(async {
        while (carried("to_upstream"), carried("to_client")) != (Some(100_000), Some(100_002)) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_routed_is_closed() {
    let fleet = two_clusters().await;
    let without_id = Encoder::proxy("192.0.2.7:1".parse().unwrap(), "192.0.2.8:2".parse().unwrap()).finish().unwrap();
    let mut broken = header("id-c1");
    broken[13] = 0x41;
    for (bytes, outcome) in [
        (b"\x16\x03\x01\x02\x00\x01".to_vec(), "NoHeader"),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "NoHeader"),
        (header("id-c3"), "UnknownClusterId"),
        (header("ID-C1"), "UnknownClusterId"),
        (header(""), "UnknownClusterId"),
        (without_id, "NoClusterId"),
        (Encoder::local().tlv(TLV_CLUSTER_ID, b"id-c1").finish().unwrap(), "NoClusterId"),
        (broken, "BadHeader"),
    ] {
        let before = fleet.outcomes("apiserver", outcome);
        let mut client = fleet.connect().await;
        client.write_all(&bytes).await.unwrap();
        expect_closed(&mut client).await;
        assert_eq!(fleet.outcomes("apiserver", outcome), before + 1, "{outcome}: {bytes:?}");
    }
    assert_eq!(fleet.outcomes("apiserver", "Established"), 0);
}

#[tokio::test]
async fn a_client_that_leaves_early_is_counted_as_such() {
    let fleet = two_clusters().await;
    let mut client = fleet.connect().await;
    client.write_all(&header("id-c1")[..20]).await.unwrap();
    client.shutdown().await.unwrap();
    expect_closed(&mut client).await;
    assert_eq!(fleet.outcomes("apiserver", "HungUp"), 1);
}

#[tokio::test]
async fn a_header_must_come_in_time() {
    let timeouts = Timeouts { opening: Duration::from_millis(100), ..Timeouts::default() };
    let settings = Settings { timeouts, ..Settings::default() };
    let fleet = Fleet::start_with(DoorKind::ClusterId, snapshot([Member::new("c1", backend("c1").await)]), &settings);
    let mut silent = fleet.connect().await;
    expect_closed(&mut silent).await;
    let mut half = fleet.connect().await;
    half.write_all(&header("id-c1")[..30]).await.unwrap();
    expect_closed(&mut half).await;
    assert_eq!(fleet.outcomes("apiserver", "HeaderTimeout"), 2);
}

#[tokio::test]
async fn the_deadline_is_one_for_all_pieces() {
    let timeouts = Timeouts { opening: Duration::from_millis(100), ..Timeouts::default() };
    let settings = Settings { timeouts, ..Settings::default() };
    let fleet = Fleet::start_with(DoorKind::ClusterId, snapshot([Member::new("c1", backend("c1").await)]), &settings);
    let mut client = fleet.connect().await;
    // A byte every 20 ms: no single wait is long, together they are.
    let mut pace = tokio::time::interval(Duration::from_millis(20));
    for byte in header("id-c1") {
        pace.tick().await;
        if client.write_all(&[byte]).await.is_err() {
            break;
        }
    }
    expect_closed(&mut client).await;
    assert_eq!(fleet.outcomes("apiserver", "HeaderTimeout"), 1);
}

#[tokio::test]
async fn only_allowed_sources_pass() {
    let [c1, c2] = [backend("c1").await, backend("c2").await];
    let outside = Member { allowed: &["192.0.2.0/24"], ..Member::new("c1", c1) };
    let inside = Member { allowed: &["192.0.2.0/24", "127.0.0.0/8"], ..Member::new("c2", c2) };
    let fleet = Fleet::start(DoorKind::ClusterId, snapshot([outside, inside]));
    // The header says 192.0.2.7, which would be allowed: it is the real peer that counts.
    expect_closed(&mut fleet.select("id-c1").await).await;
    assert_eq!(fleet.outcomes("apiserver", "SourceNotAllowed"), 1);
    expect(&mut fleet.select("id-c2").await, "c2").await;
}

#[tokio::test]
async fn the_next_address_is_tried_when_one_is_unreachable() {
    let spare = Member { upstreams: vec![nobody(), backend("c1").await], ..Member::new("c1", nobody()) };
    let gone = Member { upstreams: vec![nobody(), nobody()], ..Member::new("c2", nobody()) };
    let fleet = Fleet::start(DoorKind::ClusterId, snapshot([spare, gone]));
    expect(&mut fleet.select("id-c1").await, "c1").await;
    expect_closed(&mut fleet.select("id-c2").await).await;
    assert_eq!(fleet.outcomes("apiserver", "Unreachable"), 1);
}

#[tokio::test]
async fn a_client_that_has_sent_all_still_receives_the_answer() {
    let fleet = two_clusters().await;
    let mut client = fleet.select("id-c1").await;
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    let mut answer = String::new();
    soon(client.read_to_string(&mut answer)).await.unwrap();
    assert_eq!(answer, "c1question");
}
