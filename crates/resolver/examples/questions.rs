//! How many questions a second one cluster's port answers from what it knows, and how long each takes: over loopback, asked by
//! as many sockets as there are cores, each with some questions on the way. Clients share the cores with the resolver.
//!
//! ```text
//! cargo run --release --package fleetgate-resolver --example questions
//! ```
#![allow(clippy::unwrap_used)] // What cannot go on panics.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use model::resolver::{ResolverPart, ResolverPlace};
use prometheus_client::registry::Registry;
use resolver::{Metrics, Resolver, Settings, Wanted};
use tokio_util::sync::CancellationToken;

const FOR: Duration = Duration::from_secs(5);
/// Of each socket: enough that the resolver never waits for a client.
const ON_THE_WAY: u16 = 32;
/// `localhost A`, which is known without a server.
const QUESTION: &[u8] = b"\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x09localhost\x00\x00\x01\x00\x01";

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let port = UdpSocket::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let at = SocketAddr::from(([127, 0, 0, 1], port));
    let resolver = runtime.block_on(async {
        let mut registry = Registry::default();
        let hub = tunnel::Hub::new("example", tunnel::Metrics::register(&mut registry));
        let mut settings = Settings::new(vec![([127, 0, 0, 1], 9).into()], "hub.test".parse().unwrap());
        settings.listen = Some((at.ip(), model::resolver::Ports::new(port, port).unwrap()));
        settings.rate = u32::MAX;
        let resolver = Resolver::new(settings, hub, Arc::default(), Metrics::register(&mut registry)).unwrap();
        tokio::spawn(resolver.clone().run(CancellationToken::new()));
        let place = Some(ResolverPlace { port, address: None });
        let told = Arc::new(ResolverPart { place, ..ResolverPart::default() });
        resolver.set_clusters([Wanted { cluster: "c1".parse().unwrap(), uid: "1".into(), part: told }]);
        resolver
    });
    while !resolver.view()[0].is_bound {
        thread::sleep(Duration::from_millis(1));
    }
    let clients = thread::available_parallelism().unwrap().get();
    let counts: Vec<_> = (0..clients).map(|_| thread::spawn(move || load(at))).collect();
    let counts: Vec<(u64, Vec<Duration>)> = counts.into_iter().map(|client| client.join().unwrap()).collect();
    let total: u64 = counts.iter().map(|(count, _)| count).sum();
    let mut times: Vec<Duration> = counts.into_iter().flat_map(|(_, times)| times).collect();
    times.sort_unstable();
    println!("{} questions a second", total / FOR.as_secs());
    println!("median {:?}, 99th percentile {:?}", times[times.len() / 2], times[times.len() * 99 / 100]);
    println!("{:?}", resolver.view()[0]);
}

/// How many were answered, and how long a sample of them took.
fn load(resolver: SocketAddr) -> (u64, Vec<Duration>) {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    socket.connect(resolver).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut sent = vec![Instant::now(); ON_THE_WAY.into()];
    let ask = |id: u16| socket.send(&[&id.to_be_bytes(), QUESTION].concat()).unwrap();
    let begun = Instant::now();
    for id in 0..ON_THE_WAY {
        sent[usize::from(id)] = Instant::now();
        ask(id);
    }
    let (mut count, mut times, mut answer) = (0, Vec::new(), [0; 512]);
    while begun.elapsed() < FOR {
        let length = socket.recv(&mut answer).unwrap();
        let id = u16::from_be_bytes([answer[0], answer[1]]);
        assert_eq!(answer[length - 4..length], [127, 0, 0, 1], "no answer: {:?}", &answer[..length]);
        if count % 16 == 0 {
            times.push(sent[usize::from(id)].elapsed());
        }
        count += 1;
        sent[usize::from(id)] = Instant::now();
        ask(id);
    }
    (count, times)
}
