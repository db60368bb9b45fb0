//! Datagrams, and names as the cluster knows them.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::net::UdpSocket;
use tunnel::Refused;

use crate::both_ends::{Agent, Door, SOON, cluster, inside};

#[tokio::test(flavor = "multi_thread")]
async fn a_datagram_goes_in_and_its_answer_comes_out() {
    let door = Door::open().await;
    let _agent = Agent::link("c1", door.address).await;
    door.has_links(1).await;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let target = inside(socket.local_addr().unwrap());
    tokio::spawn(async move {
        let mut octets = vec![0; 65_507];
        while let Ok((length, from)) = socket.recv_from(&mut octets).await {
            octets[..length].reverse();
            let _ = socket.send_to(&octets[..length], from).await;
        }
    });
    for length in [0, 1, 512, 4096, 60_000] {
        let datagram: Bytes = (0..length).map(|number: u32| number.to_be_bytes()[3]).collect();
        let answer = door.hub.exchange(&cluster("c1"), &target, datagram.clone(), SOON).await.unwrap();
        assert!(answer.iter().rev().eq(datagram.iter()), "{length}");
    }
    let asked = (0..200_u32).map(|number| {
        let (hub, target) = (door.hub.clone(), target.clone());
        tokio::spawn(async move {
            let datagram = Bytes::copy_from_slice(&number.to_be_bytes());
            let answer = hub.exchange(&cluster("c1"), &target, datagram, SOON).await.unwrap();
            assert!(answer.iter().rev().eq(number.to_be_bytes().iter()));
        })
    });
    for asked in asked.collect::<Vec<_>>() {
        asked.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_datagram_without_an_answer_costs_no_more_than_the_deadline() {
    let door = Door::open().await;
    let _agent = Agent::link("c1", door.address).await;
    door.has_links(1).await;
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (target, within) = (inside(silent.local_addr().unwrap()), Duration::from_millis(500));
    let began = Instant::now();
    let answer = door.hub.exchange(&cluster("c1"), &target, "x".into(), within).await;
    assert_eq!(answer, Err(Refused::TimedOut));
    assert!(began.elapsed() < within * 3, "{:?}", began.elapsed());
}
