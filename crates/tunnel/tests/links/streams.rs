//! What streams keep of TCP: their halves, their ends, and why there is none.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tunnel::Refused;

use crate::both_ends::{Agent, Door, SOON, cluster, dialler, echo, inside, listen};

#[tokio::test(flavor = "multi_thread")]
async fn each_half_ends_by_itself() {
    let door = Door::open().await;
    let _agent = Agent::link("c1", door.address).await;
    door.has_links(1).await;
    // The target reads to the end before it says anything.
    let after = listen(|mut stream| async move {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await?;
        stream.write_all(&[b"heard ", &all[..]].concat()).await
    })
    .await;
    let mut stream = door.hub.connect(&cluster("c1"), &inside(after), SOON).await.unwrap();
    stream.write_all(b"this").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    timeout(SOON, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert_eq!(answer, "heard this");
    // The target ends its half first, and reads on.
    let (tell, mut told) = mpsc::channel(1);
    let before = listen(move |mut stream| {
        let tell = tell.clone();
        async move {
            stream.write_all(b"bye").await?;
            stream.shutdown().await?;
            let mut all = String::new();
            stream.read_to_string(&mut all).await?;
            tell.send(all).await.unwrap();
            Ok(())
        }
    })
    .await;
    let mut stream = door.hub.connect(&cluster("c1"), &inside(before), SOON).await.unwrap();
    let mut answer = String::new();
    timeout(SOON, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert_eq!(answer, "bye");
    stream.write_all(b"still here").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(timeout(SOON, told.recv()).await.unwrap().as_deref(), Some("still here"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_is_refused_with_a_code() {
    let door = Door::open().await;
    let _agent = Agent::link("c1", door.address).await;
    door.has_links(1).await;
    // Nobody listens where somebody did.
    let closed = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    for (of, target, code) in [
        ("c1", format!("target.inside.test:{closed}"), "Unreachable"),
        ("c1", "unknown.inside.test:80".into(), "UnknownName"),
        // The hub does not even ask for these.
        ("c1", "127.0.0.1:80".into(), "TargetForbidden"),
        ("c1", "169.254.169.254:80".into(), "TargetForbidden"),
        ("c1", "[::ffff:169.254.169.254]:80".into(), "TargetForbidden"),
        // And the agent looks at what a name leads to.
        ("c1", "metadata.inside.test:80".into(), "TargetForbidden"),
        ("c1", "10.0.0.7:80".into(), "TargetForbidden"),
        ("c1", "elsewhere.test:80".into(), "TargetForbidden"),
        ("c2", "target.inside.test:80".into(), "NoLink"),
    ] {
        let answer = door.hub.connect(&cluster(of), &target.parse().unwrap(), SOON).await;
        assert_eq!(answer.map(drop).map_err(|refused| refused.code()), Err(code), "{of} {target}");
        let answer = door.hub.exchange(&cluster(of), &target.parse().unwrap(), "x".into(), SOON).await;
        assert_eq!(answer.map(drop).map_err(|refused| refused.code()), Err(code), "{of} {target} by UDP");
    }
}

/// A listener whose queue is full: who connects to it hears nothing.
fn silent() -> (Socket, Vec<Socket>, u16) {
    let any: SockAddr = std::net::SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into();
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&any).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let waiting = (0..4).map(|_| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        let _ = socket.connect(&address);
        socket
    });
    let waiting = waiting.collect();
    (listener, waiting, address.as_socket().unwrap().port())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_does_not_answer_costs_no_more_than_the_deadline() {
    let door = Door::open().await;
    let _agent = Agent::link("c1", door.address).await;
    door.has_links(1).await;
    let (_listener, _waiting, port) = silent();
    let target = format!("target.inside.test:{port}").parse().unwrap();
    let within = Duration::from_millis(800);
    let began = Instant::now();
    let answer = door.hub.connect(&cluster("c1"), &target, within).await;
    assert_eq!(answer.map(drop), Err(Refused::TimedOut));
    assert!(began.elapsed() >= within / 2 && began.elapsed() < within * 3, "{:?}", began.elapsed());
    // The link is none the worse for it.
    let target = inside(echo().await);
    assert!(door.hub.connect(&cluster("c1"), &target, SOON).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_broken_off_at_one_end_is_broken_off_at_the_other() {
    let door = Door::open().await;
    let _agent = Agent::link("c1", door.address).await;
    door.has_links(1).await;
    let (ended, mut ends) = mpsc::channel(1);
    let reading = listen(move |mut stream| {
        let ended = ended.clone();
        async move {
            let read = stream.read_to_end(&mut Vec::new()).await;
            ended.send(read.map_err(|error| error.kind())).await.unwrap();
            Ok(())
        }
    })
    .await;
    let mut stream = door.hub.connect(&cluster("c1"), &inside(reading), SOON).await.unwrap();
    stream.write_all(b"half of it").await.unwrap();
    drop(stream);
    assert_eq!(timeout(SOON, ends.recv()).await.unwrap(), Some(Err(ErrorKind::ConnectionReset)));
    let breaking = listen(|mut stream: TcpStream| async move {
        stream.read_u8().await?;
        stream.set_zero_linger()
    })
    .await;
    let mut stream = door.hub.connect(&cluster("c1"), &inside(breaking), SOON).await.unwrap();
    stream.write_all(b"x").await.unwrap();
    let read = timeout(SOON, stream.read_u8()).await.unwrap();
    assert_eq!(read.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_is_for_the_cluster_of_its_certificate_alone() {
    let door = Door::open().await;
    let word = |word: &'static str| listen(move |mut stream| async move { stream.write_all(word.as_bytes()).await });
    // The same name and port in both, as tenants have it: here two servers stand in for it.
    let (of_a, of_b) = (word("of a").await, word("of b").await);
    let may = |port: u16| vec!["inside.test".to_owned(), format!("127.0.0.1:{port}")];
    let rules = may(of_a.port());
    let a = dialler("a", &rules.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let _a = Agent::link_with("a", door.address, a).await;
    door.has_links(1).await;
    let answer = door.hub.connect(&cluster("b"), &inside(of_a), SOON).await;
    assert_eq!(answer.map(drop), Err(Refused::NoLink));
    let rules = may(of_b.port());
    let b = dialler("b", &rules.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let _b = Agent::link_with("b", door.address, b).await;
    door.has_links(2).await;
    for _ in 0..20 {
        for (of, own, other) in [("a", of_a, of_b), ("b", of_b, of_a)] {
            let mut stream = door.hub.connect(&cluster(of), &inside(own), SOON).await.unwrap();
            let mut said = String::new();
            timeout(SOON, stream.read_to_string(&mut said)).await.unwrap().unwrap();
            assert_eq!(said, format!("of {of}"));
            let answer = door.hub.connect(&cluster(of), &inside(other), SOON).await;
            assert_eq!(answer.map(drop).map_err(|refused| refused.code()), Err("TargetForbidden"));
        }
    }
    assert_eq!(door.hub.clusters(), [cluster("a"), cluster("b")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_drains_keeps_its_streams_and_takes_no_more() {
    let door = Door::open().await;
    let old = Agent::link("c1", door.address).await;
    door.has_links(1).await;
    let target = inside(echo().await);
    let mut stream = door.hub.connect(&cluster("c1"), &target, SOON).await.unwrap();
    let _new = Agent::link("c1", door.address).await;
    door.has_links(2).await;
    old.drain.cancel();
    let mut octet = [0];
    for _ in 0..10 {
        let mut other = door.hub.connect(&cluster("c1"), &target, SOON).await.unwrap();
        for stream in [&mut stream, &mut other] {
            stream.write_all(b"x").await.unwrap();
            timeout(SOON, stream.read_exact(&mut octet)).await.unwrap().unwrap();
        }
    }
    stream.shutdown().await.unwrap();
    assert_eq!(timeout(SOON, stream.read(&mut octet)).await.unwrap().unwrap(), 0);
    drop(stream);
    assert_eq!(timeout(SOON, old.serving).await.unwrap().unwrap(), "Closed");
    door.has_links(1).await;
}
