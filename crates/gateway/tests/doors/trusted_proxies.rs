//! A load balancer in front of the doors: it says first whom it speaks for, and nobody else may.

use gateway::DoorKind;
use gateway::proxy_header::Encoder;
use tokio::io::AsyncWriteExt;

use crate::fleet::{Fleet, Member, Settings, backend, expect, expect_closed, header, snapshot};

fn outer(client: &str) -> Vec<u8> {
    Encoder::proxy(client.parse().unwrap(), "198.51.100.1:443".parse().unwrap()).finish().unwrap()
}

/// Everybody on this machine is a trusted proxy; only 192.0.2.0/24 may connect.
async fn fleet() -> Fleet {
    let settings = Settings { trusted_proxies: &["127.0.0.0/8"], ..Settings::default() };
    let member = Member { allowed: &["192.0.2.0/24"], ..Member::new("c1", backend("c1").await) };
    Fleet::start_with(DoorKind::ClusterId, snapshot([member]), &settings)
}

#[tokio::test]
async fn the_outer_header_names_the_client_and_the_inner_one_the_cluster() {
    let fleet = fleet().await;
    let version1 = b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 443\r\n".to_vec();
    for outer in [outer("192.0.2.7:40000"), version1] {
        let opening = [outer, header("id-c1"), b"hello".to_vec()].concat();
        let mut client = fleet.connect().await;
        client.write_all(&opening).await.unwrap();
        expect(&mut client, "c1hello").await;
        // In pieces of one byte it is the same.
        let mut client = fleet.connect().await;
        client.set_nodelay(true).unwrap();
        for octet in opening {
            client.write_all(&[octet]).await.unwrap();
        }
        expect(&mut client, "c1hello").await;
    }
    assert_eq!(fleet.outcomes("apiserver", "Established"), 4);
}

#[tokio::test]
async fn the_client_that_is_named_is_the_one_that_must_be_allowed() {
    let fleet = fleet().await;
    let mut client = fleet.connect().await;
    client.write_all(&[outer("203.0.113.7:40000"), header("id-c1")].concat()).await.unwrap();
    expect_closed(&mut client).await;
    assert_eq!(fleet.outcomes("apiserver", "SourceNotAllowed"), 1);
}

#[tokio::test]
async fn a_trusted_proxy_without_a_header_of_its_own_is_refused() {
    let fleet = fleet().await;
    let mut client = fleet.connect().await;
    // Only the node's header: it is taken for the outer one, and none is left to select the cluster.
    client.write_all(&header("id-c1")).await.unwrap();
    client.shutdown().await.unwrap();
    expect_closed(&mut client).await;
    let mut client = fleet.connect().await;
    client.write_all(b"\x16\x03\x01").await.unwrap();
    expect_closed(&mut client).await;
    assert_eq!(fleet.outcomes("apiserver", "OuterHeaderMissing"), 1);
}

#[tokio::test]
async fn anybody_else_must_not_send_one() {
    let fleet = Fleet::start(DoorKind::ClusterId, snapshot([Member::new("c1", backend("c1").await)]));
    for outer in [outer("192.0.2.7:40000"), b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 443\r\n".to_vec()] {
        let mut client = fleet.connect().await;
        client.write_all(&[outer, header("id-c1")].concat()).await.unwrap();
        expect_closed(&mut client).await;
    }
    assert_eq!(fleet.outcomes("apiserver", "NoClusterId"), 1);
    assert_eq!(fleet.outcomes("apiserver", "NoHeader"), 1);
}
