//! Links that die without a word, and what becomes of streams then.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::both_ends::{Agent, Door, SOON, cluster, echo, eventually, inside};

/// A dead link is known to be dead within 3 s; the rest is for a machine that has much else to do.
const NOTICED: Duration = Duration::from_millis(3000 + 1500);

/// A network in between, which can be cut: nothing is carried any more, and nobody is told.
struct Network {
    address: SocketAddr,
    cut: watch::Sender<bool>,
}

impl Network {
    async fn to(door: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let cut = watch::Sender::new(false);
        let is_cut = cut.subscribe();
        tokio::spawn(async move {
            while let Ok((mut one, _)) = listener.accept().await {
                let mut is_cut = is_cut.clone();
                tokio::spawn(async move {
                    let mut other = TcpStream::connect(door).await.unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut one, &mut other) => {}
                        () = async { _ = is_cut.wait_for(|cut| *cut).await } => {}
                    }
                    // Whatever is on its way stays there, and so do both connections.
                    let is_cut = *is_cut.borrow();
                    if is_cut {
                        sleep(SOON).await;
                    }
                });
            }
        });
        Self { address, cut }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_ends_notice_a_link_that_was_cut() {
    let door = Door::open().await;
    let network = Network::to(door.address).await;
    let agent = Agent::link("c1", network.address).await;
    door.has_links(1).await;
    let target = inside(echo().await);
    let mut stream = door.hub.connect(&cluster("c1"), &target, SOON).await.unwrap();
    network.cut.send_replace(true);
    let began = Instant::now();
    stream.write_all(b"x").await.unwrap();
    let read = timeout(SOON, stream.read_u8()).await.unwrap();
    assert_eq!(read.map_err(|error| error.kind()), Err(ErrorKind::ConnectionAborted));
    let at_hub = began.elapsed();
    assert_eq!(timeout(SOON, agent.serving).await.unwrap().unwrap(), "Silent");
    let at_agent = began.elapsed();
    println!("noticed after {at_hub:?} by the hub, {at_agent:?} by the agent");
    assert!(at_hub < NOTICED && at_agent < NOTICED, "{at_hub:?} {at_agent:?}");
    eventually(|| door.hub.links().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_link_is_used_while_one_is_silent() {
    let door = Door::open().await;
    let network = Network::to(door.address).await;
    let _silent = Agent::link("c1", network.address).await;
    door.has_links(1).await;
    let _other = Agent::link("c1", door.address).await;
    door.has_links(2).await;
    network.cut.send_replace(true);
    let target = inside(echo().await);
    let began = Instant::now();
    // Some are asked for on the silent one, and go to the other when it is given up.
    let dials = (0..20).map(|_| {
        let (hub, target) = (door.hub.clone(), target.clone());
        tokio::spawn(async move { hub.connect(&cluster("c1"), &target, Duration::from_secs(5)).await.map(drop) })
    });
    for dial in dials.collect::<Vec<_>>() {
        assert_eq!(dial.await.unwrap(), Ok(()));
    }
    assert!(began.elapsed() < NOTICED, "{:?}", began.elapsed());
    // From then on it is known.
    door.has_links(1).await;
    let began = Instant::now();
    door.hub.connect(&cluster("c1"), &target, SOON).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

/// A link that carries as much as it can is not taken for a dead one.
#[tokio::test(flavor = "multi_thread")]
async fn a_busy_link_lives() {
    let door = Door::open().await;
    let _agent = Agent::link("c1", door.address).await;
    door.has_links(1).await;
    let target = inside(echo().await);
    let busy = (0..8).map(|_| {
        let (hub, target) = (door.hub.clone(), target.clone());
        tokio::spawn(async move {
            let stream = hub.connect(&cluster("c1"), &target, SOON).await.unwrap();
            let (mut from, mut to) = tokio::io::split(stream);
            let until = Instant::now() + Duration::from_secs(5);
            let sending = async move {
                while Instant::now() < until {
                    to.write_all(&vec![7; 32 << 10]).await?;
                }
                to.shutdown().await
            };
            let mut nowhere = tokio::io::sink();
            let (sent, read) = tokio::join!(sending, tokio::io::copy(&mut from, &mut nowhere));
            (sent.is_ok(), read.unwrap() > 0)
        })
    });
    for stream in busy.collect::<Vec<_>>() {
        assert_eq!(stream.await.unwrap(), (true, true));
    }
    assert_eq!(door.hub.links().len(), 1);
}
