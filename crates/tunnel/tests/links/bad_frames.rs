//! Octets that are no HTTP/2, from either end: they cost their own link and nothing else.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tunnel::{Identity, Metrics, Role};

use crate::both_ends::{Agent, Door, SOON, cluster, dialler, echo, inside};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// An empty SETTINGS.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes()[..], payload].concat()
}

/// The head of a frame whose payload would be longer than anybody said it may be.
fn oversized() -> Vec<u8> {
    [&[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1][..], &vec![0; 100 << 10]].concat()
}

/// A head that never ends.
fn continuations(stream: u32) -> Vec<u8> {
    // `x: y` again and again, each a literal without indexing.
    let fields = b"\x00\x01x\x01y".repeat(2000);
    let mut octets = frame(1, 0, stream, &fields);
    for _ in 0..200 {
        octets.extend(frame(9, 0, stream, &fields));
    }
    octets
}

async fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let (one, other) = tokio::join!(TcpStream::connect(address), listener.accept());
    (one.unwrap(), other.unwrap().0)
}

/// Sends it all, and reads until the other end has had enough. It may have by the middle.
async fn send(mut stream: TcpStream, octets: Vec<u8>) {
    let (mut from, mut to) = stream.split();
    let sending = async {
        let _ = to.write_all(&octets).await;
    };
    let reading = async {
        let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    };
    timeout(SOON, async { tokio::join!(sending, reading) }).await.expect("the link was not ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_sends_wrong_ends_its_link_alone() {
    let door = Door::open().await;
    let _good = Agent::link("c1", door.address).await;
    door.has_links(1).await;
    let target = inside(echo().await);
    let answer_to_nothing = frame(1, 4, 7, &[0x88]);
    for (what, octets) in [
        ("a request of HTTP/1.1", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".repeat(10)),
        ("garbage", (0..4096_u32).map(|number| number.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()),
        ("a frame that is too long", [SETTINGS.to_vec(), oversized()].concat()),
        ("garbage behind the settings", [SETTINGS.to_vec(), b"\xff".repeat(1000)].concat()),
        ("settings of a wrong length", frame(4, 0, 0, &[1, 2, 3])),
        ("a head without end", [SETTINGS.to_vec(), continuations(1)].concat()),
        ("an answer to no question", [SETTINGS.to_vec(), answer_to_nothing].concat()),
        ("a window that overflows", [SETTINGS.to_vec(), frame(8, 0, 0, &[0x7f, 0xff, 0xff, 0xff])].concat()),
        ("nothing at all", Vec::new()),
    ] {
        let (bad, ours) = connected().await;
        let identity = Identity { role: Role::Agent, cluster: cluster("c1"), uid: "u".into(), credential: "c".into() };
        let hub = door.hub.clone();
        let serving: JoinHandle<()> =
            tokio::spawn(async move { hub.serve_link(ours, identity, std::future::pending()).await });
        if octets.is_empty() {
            drop(bad);
        } else {
            send(bad, octets).await;
        }
        timeout(SOON, serving).await.unwrap_or_else(|_| panic!("{what}: still served")).expect(what);
        assert_eq!(door.hub.links().len(), 1, "{what}");
        let mut stream = door.hub.connect(&cluster("c1"), &target, SOON).await.expect(what);
        stream.write_all(b"x").await.unwrap();
        assert_eq!(timeout(SOON, stream.read_u8()).await.unwrap().unwrap(), b'x', "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_hub_sends_wrong_ends_the_link_and_not_the_agent() {
    let dialler = dialler("agent", &["inside.test", "127.0.0.0/8"]).await;
    let opening = [PREFACE, SETTINGS].concat();
    for (what, octets, mut ends) in [
        ("another protocol", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".repeat(10), vec!["Unopened"]),
        ("garbage behind the preface", [PREFACE, &b"\xff".repeat(1000)].concat(), vec!["Broken", "Unopened"]),
        ("a frame that is too long", [opening.clone(), oversized()].concat(), vec!["Broken"]),
        ("a head without end", [opening.clone(), continuations(1)].concat(), vec!["Broken"]),
        ("an even stream", [opening.clone(), frame(1, 5, 2, &[0x82])].concat(), vec!["Broken"]),
        ("data of no stream", [opening.clone(), frame(0, 0, 9, &[1])].concat(), vec!["Broken"]),
        ("a head that cannot be read", [opening.clone(), frame(1, 5, 1, &[0xff; 40])].concat(), vec!["Broken"]),
    ] {
        let (bad, ours) = connected().await;
        let (inside, _) = dialler.on_link();
        let metrics = Metrics::register(&mut Registry::default());
        let serving = tokio::spawn(async move {
            tunnel::server::serve(ours, inside, &metrics, std::future::pending(), std::future::pending()).await
        });
        send(bad, octets).await;
        let end = timeout(SOON, serving).await.unwrap_or_else(|_| panic!("{what}: still served")).expect(what);
        // Where both ends hang up at once, either may be first.
        ends.push("Closed");
        assert!(ends.contains(&end), "{what}: {end}");
    }
}

/// CVE-2023-44487: streams that are given up as soon as they are asked for.
#[tokio::test(flavor = "multi_thread")]
async fn streams_that_are_given_up_at_once_do_not_pile_up() {
    let dialler = dialler("agent", &["inside.test", "127.0.0.0/8"]).await;
    let (mut bad, ours) = connected().await;
    let (inside, _) = dialler.on_link();
    let metrics = Metrics::register(&mut Registry::default());
    let serving = tokio::spawn(async move {
        tunnel::server::serve(ours, inside, &metrics, std::future::pending(), std::future::pending()).await
    });
    bad.write_all(&[PREFACE, SETTINGS].concat()).await.unwrap();
    // `:method CONNECT` and `:authority target.inside.test:9`, both literal without indexing.
    let mut head = b"\x02\x07CONNECT\x01".to_vec();
    let authority = b"target.inside.test:9";
    head.push(u8::try_from(authority.len()).unwrap());
    head.extend_from_slice(authority);
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let (mut from, mut to) = bad.split();
    let sending = async {
        for number in 0..50_000_u32 {
            let stream = number * 2 + 1;
            let pair = [frame(1, 4, stream, &head), frame(3, 0, stream, &[0, 0, 0, 8])].concat();
            if to.write_all(&pair).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    let reading = async {
        let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    };
    timeout(Duration::from_mins(1), async { tokio::join!(sending, reading) }).await.expect("it hangs");
    let end = timeout(SOON, serving).await.unwrap().unwrap();
    println!("50,000 streams that were given up: {end}");
    crate::both_ends::eventually(|| descriptors() <= before + 16).await;
}
