//! One host, two clusters: requests and DNS go to the members that are well, nearest first.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::server::{BASE, Fleet, PATIENCE, Server, nowhere};

const HOST: &str = "www.c1.fleet.example";

/// An ingress controller: says which it is, and ends connections without a word while it is down.
struct Member {
    address: SocketAddr,
    is_down: Arc<AtomicBool>,
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

fn ingress(entry: &str, host: &str, more: &str) -> String {
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

struct Fixture {
    server: Server,
    near: Member,
    far: Member,
    fleet: Fleet,
}

impl Fixture {
    /// Clients of this machine are near the first member.
    fn start() -> Self {
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
            ("places.txt", "127.0.0.0/8 48.8 2.3\n"),
        ]);
        std::fs::write(fleet.folder().join("ca.pem"), made.cert.pem()).unwrap();
        // One address for control planes and for HTTPS.
        let shared = nowhere();
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
        Self { server: Server::start(&command), near, far, fleet }
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

    fn asked(&self, scheme: &str) -> String {
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
