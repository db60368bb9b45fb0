//! The server on real sockets, asked by a real client.

// The lint knows test functions, but not what they call.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use dns::{BindError, Index, Listeners, Metrics, Recent, Settings};
use prometheus_client::registry::Registry;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

mod records;

/// So long that only a hang exceeds it.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn dig_gets_the_answers_of_every_transport() {
    let server = Server::start(&fleet());
    for (arguments, expected) in [
        ("+short api.c1.fleet.example A", &["192.0.2.10"][..]),
        ("+short +tcp api.c1.fleet.example A", &["192.0.2.10"]),
        ("+short +noedns any.apps.c1.fleet.example AAAA", &["2001:db8::11"]),
        ("+short fleet.example SOA", &["ns1.fleet.example. hostmaster.fleet.example. 7 3600 600 86400 30"]),
        ("api.c1.fleet.example A", &["status: NOERROR", "flags: qr aa rd;", "EDNS: version: 0, flags:; udp: 1232"]),
        ("+dnssec +norec api.c1.fleet.example A", &["flags: qr aa;", "flags: do; udp: 1232"]),
        ("nothing.fleet.example A", &["status: NXDOMAIN", "ANSWER: 0, AUTHORITY: 1", "fleet.example.\t\t30\tIN\tSOA"]),
        ("fleet.test A", &["status: REFUSED", "flags: qr rd;"]),
        ("version.bind TXT CH", &["status: REFUSED"]),
        ("+edns=1 +noednsnegotiation api.c1.fleet.example A", &["status: BADVERS"]),
        ("+opcode=notify fleet.example SOA", &["status: NOTIMP"]),
        ("+ednsopt=65001:cafe +short api.c1.fleet.example A", &["192.0.2.10"]),
    ] {
        let told = server.dig(arguments);
        for part in expected {
            assert!(told.contains(part), "dig {arguments} lacks {part:?}:\n{told}");
        }
        assert!(!told.contains("WARNING: Message") && !told.contains("malformed"), "dig {arguments}:\n{told}");
    }
    assert_eq!(server.dig("+short fleet.test A"), "");
}

#[test]
fn dig_retries_truncated_answers_over_tcp() {
    let server = Server::start(&fleet());
    for (arguments, transport, answers) in [
        ("+noedns", "TCP", 100),
        ("+bufsize=4096", "TCP", 100),
        ("+ignore +noedns", "UDP", 0),
        ("+ignore +bufsize=512", "UDP", 0),
        ("+tcp", "TCP", 100),
    ] {
        let told = server.dig(&format!("{arguments} many.fleet.example A"));
        assert!(told.contains(&format!("({transport})")), "dig {arguments}:\n{told}");
        assert!(told.contains(&format!("ANSWER: {answers},")), "dig {arguments}:\n{told}");
        assert_eq!(told.contains("qr aa tc"), transport == "UDP", "dig {arguments}:\n{told}");
    }
    // 40 addresses are too large for 512 octets and small enough for 1232.
    let told = server.dig("+bufsize=1232 some.fleet.example A");
    assert!(told.contains("(UDP)") && told.contains("ANSWER: 40,"), "{told}");
}

#[test]
fn a_published_index_answers_the_next_query() {
    let server = Server::start(&fleet());
    assert_eq!(server.dig("+short new.fleet.example A"), "");
    let next =
        server.index.load().apply(&records::changes("fleet.example 30 SOA 8\nnew.fleet.example 30 A 192.0.2.77"));
    server.index.store(Arc::new(next));
    assert_eq!(server.dig("+short new.fleet.example A"), "192.0.2.77\n");
}

#[test]
fn one_connection_takes_many_queries_at_once_and_answers_in_order() {
    let server = Server::start(&fleet());
    let mut stream = server.connect();
    let pipelined: Vec<u8> = (0..50).flat_map(|id| framed(&question(id, "api.c1.fleet.example"))).collect();
    stream.write_all(&pipelined).unwrap();
    for id in 0..50 {
        assert_eq!(read_framed(&mut stream)[..2], [0, id]);
    }
}

#[test]
fn slow_clients_do_not_stop_others() {
    let server = Server::start(&fleet());
    // Half a message each, and one that never reads its large answers.
    let halves: Vec<TcpStream> = (0..20)
        .map(|id| {
            let mut stream = server.connect();
            stream.write_all(&framed(&question(id, "api.c1.fleet.example"))[..9]).unwrap();
            stream
        })
        .collect();
    let mut deaf = server.connect();
    deaf.set_nonblocking(true).unwrap();
    let asks = framed(&question(0, "many.fleet.example"));
    while deaf.write_all(&asks).is_ok() {}
    assert_eq!(server.dig("+short +tcp api.c1.fleet.example A"), "192.0.2.10\n");
    assert_eq!(server.dig("+short api.c1.fleet.example A"), "192.0.2.10\n");
    drop(halves);
}

#[test]
fn silence_and_nonsense_do_not_end_the_server() {
    let server = Server::start(&fleet());
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut response = question(7, "api.c1.fleet.example");
    response[2] |= 0x80;
    for packet in [&b""[..], b"x", &[0xff; 500], &[0; 12], &response] {
        client.send_to(packet, server.address).unwrap();
        // Nobody listens for this answer any more: the kernel tells the server by ICMP.
        let gone = UdpSocket::bind("127.0.0.1:0").unwrap();
        gone.send_to(&question(8, "api.c1.fleet.example"), server.address).unwrap();
    }
    let mut stream = server.connect();
    stream.write_all(&framed(&response)).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "who sends responses is hung up on");
    assert_eq!(server.dig("+short api.c1.fleet.example A"), "192.0.2.10\n");
}

#[test]
fn shutdown_ends_idle_connections_and_frees_the_port() {
    let mut server = Server::start(&fleet());
    let mut idle = server.connect();
    idle.write_all(&framed(&question(1, "api.c1.fleet.example"))).unwrap();
    read_framed(&mut idle);
    server.stop();
    assert_eq!(idle.read(&mut [0; 1]).unwrap(), 0);
    let again = server.runtime.block_on(async { Listeners::bind(server.address) }).unwrap();
    assert_eq!(again.address(), server.address);
}

#[test]
fn a_taken_port_is_named() {
    let runtime = Runtime::new().unwrap();
    let bind = |address| runtime.block_on(async move { Listeners::bind(address) });
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let error = bind(address).unwrap_err();
    assert_eq!(error.to_string(), format!("binding DNS on {address}: the TCP port is in use by another process"));

    let first = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let error = bind(first.address()).unwrap_err();
    assert!(matches!(error, BindError::InUse { protocol: "UDP", .. }), "{error}");

    let error = bind("192.0.2.1:0".parse().unwrap()).unwrap_err();
    assert!(matches!(error, BindError::NotOurs { .. }), "{error}");
}

#[test]
fn queries_are_counted() {
    let server = Server::start(&fleet());
    server.dig("api.c1.fleet.example A");
    server.dig("+tcp nothing.fleet.example A");
    server.dig("fleet.test A");
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &server.registry).unwrap();
    for line in [
        r#"fleetgate_dns_queries_total{transport="udp",rcode="NOERROR",zone="fleet.example"} 1"#,
        r#"fleetgate_dns_queries_total{transport="tcp",rcode="NXDOMAIN",zone="fleet.example"} 1"#,
        r#"fleetgate_dns_queries_total{transport="udp",rcode="REFUSED",zone="none"} 1"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

fn fleet() -> String {
    let mut text = String::from(
        "fleet.example 30 SOA 7
        fleet.example 30 NS ns1.fleet.example
        ns1.fleet.example 30 A 192.0.2.53
        api.c1.fleet.example 30 A 192.0.2.10
        *.apps.c1.fleet.example 30 AAAA 2001:db8::11\n",
    );
    for address in 0..100 {
        writeln!(text, "many.fleet.example 30 A 198.51.100.{address}").unwrap();
    }
    for address in 0..40 {
        writeln!(text, "some.fleet.example 30 A 198.51.100.{address}").unwrap();
    }
    text
}

struct Server {
    runtime: Runtime,
    index: Arc<ArcSwap<Index>>,
    address: SocketAddr,
    registry: Registry,
    shutdown: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Server {
    fn start(zones: &str) -> Self {
        let runtime = Runtime::new().unwrap();
        let index = Arc::new(ArcSwap::from_pointee(Index::default().apply(&records::changes(zones))));
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry, &index);
        let shutdown = CancellationToken::new();
        let listeners = runtime.block_on(async { Listeners::bind("127.0.0.1:0".parse().unwrap()) }).unwrap();
        let address = listeners.address();
        let serving = listeners.start(Arc::clone(&index), Settings::default(), metrics, Recent::default()).unwrap();
        let task = Some(runtime.spawn(serving.run(shutdown.clone())));
        Self { runtime, index, address, registry, shutdown, task }
    }

    fn stop(&mut self) {
        self.shutdown.cancel();
        let task = self.task.take().expect("stopped once");
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, task).await }).unwrap().unwrap();
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn dig(&self, arguments: &str) -> String {
        let SocketAddr::V4(address) = self.address else { panic!("tests listen on 127.0.0.1") };
        let mut dig = Command::new("dig");
        dig.args(["-r", &format!("@{}", address.ip()), "-p", &address.port().to_string(), "+tries=1", "+nocookie"]);
        let output = testbed::dig(dig.args(arguments.split_whitespace()))
            .expect("these tests ask with `dig`, which must be installed (Debian: bind9-dnsutils)");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "dig {arguments} failed:\n{told}{}", String::from_utf8_lossy(&output.stderr));
        told
    }
}

/// A query for A records.
fn question(id: u8, name: &str) -> Vec<u8> {
    let name = records::name(name);
    let mut message = vec![0, id, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    message.extend_from_slice(name.as_wire());
    message.extend_from_slice(&[0, 1, 0, 1]);
    message
}

fn framed(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap();
    [&length.to_be_bytes(), message].concat()
}

fn read_framed(stream: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).unwrap();
    let mut message = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut message).unwrap();
    message
}
