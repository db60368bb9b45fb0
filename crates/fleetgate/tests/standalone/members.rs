//! One host, two clusters: requests and DNS go to the members that are well, nearest first.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::server::{BASE, Fleet, PATIENCE, Server, ask_over_tls, connect, nowhere, own_address, tls_client};

pub(crate) const HOST: &str = "www.c1.fleet.example";

/// An ingress controller: says which it is, and ends connections without a word while it is down.
pub(crate) struct Member {
    pub(crate) address: SocketAddr,
    pub(crate) is_down: Arc<AtomicBool>,
}

impl Member {
    fn start(name: &'static str, address: &str) -> Self {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let (address, is_down) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let down = Arc::clone(&is_down);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let down = Arc::clone(&down);
                std::thread::spawn(move || answer(stream.unwrap(), name, &down));
            }
        });
        Self { address, is_down }
    }
}

fn answer(mut stream: TcpStream, name: &str, is_down: &AtomicBool) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    loop {
        let mut is_request = false;
        loop {
            match lines.next() {
                Some(Ok(line)) if line.is_empty() => break,
                Some(Ok(_)) => is_request = true,
                _ => return,
            }
        }
        if !is_request || is_down.load(Ordering::SeqCst) {
            return;
        }
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
        if stream.write_all(head.as_bytes()).is_err() {
            return;
        }
    }
}

fn cluster(name: &str, member: &Member, latitude: f64, longitude: f64) -> String {
    format!(
        "\
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {{name: {name}}}
spec:
  tenant: acme
  zone: main
  location: {{latitude: {latitude}, longitude: {longitude}}}
  controlPlane: {{kubeApiserver: {{addresses: [\"{}\"]}}}}
  ingress: {{http: [\"{at}\"], https: [\"{at}\"]}}
",
        nowhere(),
        at = member.address,
    )
}

pub(crate) fn ingress(entry: &str, host: &str, more: &str) -> String {
    format!(
        "\
apiVersion: fleetgate.dev/v1alpha1
kind: FederationPolicy
metadata: {{name: {entry}}}
spec:
  entry: {entry}
  upstreamTLS: {{plainText: true}}
  health: {{interval: 1s, timeout: 1s, unhealthy: 1, healthy: 1}}
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {{name: {entry}}}
spec:
  controller: fleetgate.dev/ingress
  parameters: {{apiGroup: fleetgate.dev, kind: FederationPolicy, name: {entry}}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{name: {entry}, namespace: acme}}
spec:
  ingressClassName: {entry}
  rules:
  - host: {host}
    http: {{paths: [{{path: /, pathType: Prefix, backend: {{service: {{name: web, port: {{number: 80}}}}}}}}]}}
{more}"
    )
}

pub(crate) struct Fixture {
    pub(crate) server: Server,
    pub(crate) near: Member,
    pub(crate) far: Member,
    pub(crate) fleet: Fleet,
    command: Command,
}

impl Fixture {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// Clients of this machine and those of 203.0.113.0/24 are near the first member, those of 198.51.100.0/24 near the second.
    pub(crate) fn with(files: &[(&str, &str)]) -> Self {
        let (near, far) = (Member::start("near", "127.0.0.1"), Member::start("far", "127.0.0.2"));
        let made = rcgen::generate_simple_self_signed([HOST.to_owned()]).unwrap();
        let indented = |pem: &str| pem.trim().replace('\n', "\n    ");
        let secret = format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: web-tls, namespace: acme}}\ntype: kubernetes.io/tls\nstringData:\n  tls.crt: |\n    {}\n  tls.key: |\n    {}\n",
            indented(&made.cert.pem()),
            indented(&made.signing_key.serialize_pem())
        );
        let fleet = Fleet::new(&[
            ("base.yaml", BASE),
            ("c1.yaml", &cluster("c1", &near, 52.5, 13.4)),
            ("c2.yaml", &cluster("c2", &far, 35.7, 139.7)),
            ("vip.yaml", &ingress("vip", HOST, "  tls: [{secretName: web-tls}]\n")),
            ("dns.yaml", &ingress("dns", "dns.c1.fleet.example", "")),
            ("secret.yaml", &secret),
            ("places.txt", "127.0.0.0/8 48.8 2.3\n203.0.113.0/24 48.8 2.3 eu\n198.51.100.0/24 34.7 135.5 jp\n"),
        ]);
        for (file, text) in files {
            fleet.write(file, text);
        }
        std::fs::write(fleet.folder().join("ca.pem"), made.cert.pem()).unwrap();
        // One address for control planes and for HTTPS.
        let shared = own_address();
        let mut command = fleet.command("127.0.0.1:0".parse().unwrap(), "127.0.0.1:0".parse().unwrap());
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        command = crate::server::fleetgate();
        let sni = arguments.iter().position(|argument| argument == "--sni").unwrap();
        for (number, argument) in arguments.iter().enumerate() {
            if number == sni + 1 {
                command.arg(shared.to_string());
            } else {
                command.arg(argument);
            }
        }
        command.args(["--http", "127.0.0.1:0", "--https", &shared.to_string()]);
        command.arg("--geo").arg(fleet.folder().join("places.txt"));
        std::fs::write(fleet.root().join("admin"), "an-admin-credential-of-some-length").unwrap();
        command.arg("--admin-credential").arg(fleet.root().join("admin"));
        Self { server: Server::start(&command), near, far, fleet, command }
    }

    /// Another process in the place of one that is killed.
    pub(crate) fn restart(&mut self) {
        self.server.process.signal("KILL").unwrap();
        self.server.process.wait_for_exit(PATIENCE).unwrap();
        self.server = Server::start(&self.command);
    }

    fn curl(&self, scheme: &str, arguments: &[&str]) -> Output {
        let (address, port) = match scheme {
            "http" => (self.server.http.unwrap(), self.server.http.unwrap().port()),
            _ => (self.server.https.unwrap(), self.server.https.unwrap().port()),
        };
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--max-time", "20", "--cacert"]);
        curl.arg(self.fleet.folder().join("ca.pem"));
        curl.args(["--resolve", &format!("{HOST}:{port}:{}", address.ip())]).args(arguments);
        curl.arg(format!("{scheme}://{HOST}:{port}/cart")).output().unwrap()
    }

    pub(crate) fn asked(&self, scheme: &str) -> String {
        let output = self.curl(scheme, &[]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn requests_and_names_go_to_the_nearest_member_that_is_well() {
    let mut fixture = Fixture::start();
    assert_eq!(fixture.server.https, Some(fixture.server.sni));
    for scheme in ["http", "https"] {
        assert_eq!([fixture.asked(scheme), fixture.asked(scheme)], ["near", "near"], "{scheme}");
    }
    assert_eq!(fixture.server.resolve("dns.c1.fleet.example", "A"), ["127.0.0.1"]);

    // The nearest goes away under load: nobody notices, and DNS follows the check.
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (stop, address) = (Arc::clone(&stop), fixture.server.http.unwrap());
            std::thread::spawn(move || ask_all_the_while(address, &stop))
        })
        .collect();
    fixture.near.is_down.store(true, Ordering::SeqCst);
    fixture
        .server
        .until("DNS leaves the member out", |server| server.resolve("dns.c1.fleet.example", "A") == ["127.0.0.2"]);
    assert_eq!(fixture.asked("https"), "far");
    let metrics = fixture.server.http("/metrics", "127.0.0.1").1;
    let out = "fleetgate_web_members_out{ingress=\"acme/dns\",cluster=\"c1\",reason=\"failed checks\"} 1\n";
    assert!(metrics.contains(out), "{metrics}");
    fixture.server.until("the Ingress says which member fails", |server| {
        server.get_json(&["ingress", "vip", "-n", "acme"]).to_string().contains("FailedChecks")
    });
    stop.store(true, Ordering::SeqCst);
    let answered: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
    assert!(answered > 0);

    // It is back.
    fixture.near.is_down.store(false, Ordering::SeqCst);
    fixture
        .server
        .until("DNS has the member again", |server| server.resolve("dns.c1.fleet.example", "A") == ["127.0.0.1"]);
    let begun = Instant::now();
    while fixture.asked("http") != "near" {
        assert!(begun.elapsed() < PATIENCE, "requests stay away");
    }
    // Both are gone: all count as well, and whoever asks is told whose fault it is.
    for member in [&fixture.near, &fixture.far] {
        member.is_down.store(true, Ordering::SeqCst);
    }
    let output = fixture.curl("http", &["--include"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.starts_with("HTTP/1.1 502 ") && said.to_lowercase().contains("fleetgate-refusal:"), "{said}");
    fixture.server.terminate();
}

/// Requests one after the other on one connection; every one is answered with 200.
fn ask_all_the_while(address: SocketAddr, stop: &AtomicBool) -> usize {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut answered = 0;
    while !stop.load(Ordering::SeqCst) {
        write!(stream, "GET / HTTP/1.1\r\nhost: {HOST}\r\n\r\n").unwrap();
        let mut received = Vec::new();
        let mut piece = [0; 4096];
        while !(received.ends_with(b"near") || received.ends_with(b"far")) {
            let count = stream.read(&mut piece).unwrap();
            assert!(count > 0, "closed after {answered}: {}", String::from_utf8_lossy(&received));
            received.extend_from_slice(&piece[..count]);
        }
        assert!(received.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&received));
        answered += 1;
    }
    answered
}

/// Sends what it is given octet by octet, as slowly as the door reads.
struct Drip(TcpStream);

impl Write for Drip {
    fn write(&mut self, octets: &[u8]) -> std::io::Result<usize> {
        self.0.write(&octets[..octets.len().min(1)])
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Read for Drip {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Fixture {
    fn metric(&self, line_start: &str) -> Option<u64> {
        let metrics = self.server.http("/metrics", "127.0.0.1").1;
        metrics.lines().find_map(|line| line.strip_prefix(line_start))?.trim().parse().ok()
    }

    /// What the client sees comes first.
    fn until_counted(&self, line_start: &str) {
        let begun = Instant::now();
        while self.metric(line_start) != Some(1) {
            assert!(begun.elapsed() < PATIENCE, "never counted: {line_start}");
        }
    }

    /// A connection of which the door has seen the first octets.
    fn begin(&self, octets: &[u8]) -> TcpStream {
        let undecided = "fleetgate_gateway_undecided_connections{door=\"sni\"}";
        let before = self.metric(undecided).unwrap();
        let mut stream = connect(self.server.sni);
        stream.set_nodelay(true).unwrap();
        stream.write_all(octets).unwrap();
        let begun = Instant::now();
        while self.metric(undecided) != Some(before + 1) {
            assert!(begun.elapsed() < PATIENCE, "the door does not take the connection");
        }
        stream
    }
}

fn hello(fixture: &Fixture) -> Vec<u8> {
    let mut hello = Vec::new();
    tls_client(&fixture.fleet.folder().join("ca.pem"), HOST).write_tls(&mut hello).unwrap();
    hello
}

/// A hello in pieces is read by one door and answered by another, which must not lose an octet in between.
#[test]
fn a_hello_in_pieces_passes_the_address_that_two_doors_share() {
    let fixture = Fixture::start();
    let authority = fixture.fleet.folder().join("ca.pem");
    let stream = connect(fixture.server.https.unwrap());
    stream.set_nodelay(true).unwrap();
    let answer = ask_over_tls(Drip(stream), &authority, HOST).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("near"), "{answer}");
    fixture.server.terminate();
}

/// Who stalls is cut off by the door that has the connection then.
#[test]
fn a_hello_that_stalls_ends_in_the_time_of_the_door() {
    let fixture = Fixture::start();
    let hello = hello(&fixture);
    let begun = Instant::now();
    let mut stalled = fixture.begin(&hello[..hello.len() / 2]);
    // All of it, and then nothing: the handshake stalls at the other door.
    let mut silent = connect(fixture.server.sni);
    silent.write_all(&hello).unwrap();

    let mut received = Vec::new();
    // The door is not polite to who has said nothing yet: an end is an end.
    let _ = stalled.read_to_end(&mut received);
    let first = begun.elapsed();
    assert!(received.is_empty(), "{received:?}");
    assert!((Duration::from_secs(4)..PATIENCE).contains(&first), "after {first:?}");
    let timed_out = "fleetgate_gateway_connections_total{door=\"sni\",outcome=\"HelloTimeout\"}";
    fixture.until_counted(timed_out);

    let _ = silent.read_to_end(&mut received);
    let second = begun.elapsed();
    assert_eq!(received.first(), Some(&22), "the server's part of the handshake: {received:?}");
    assert!((Duration::from_secs(9)..PATIENCE).contains(&second), "after {second:?}");
    let refused = "fleetgate_web_refusals_total{door=\"https\",code=\"OpeningTimeout\"}";
    fixture.until_counted(refused);
    fixture.server.terminate();
}
