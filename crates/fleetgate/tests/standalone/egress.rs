//! Control planes reach into their clusters: the door, the proxy beside an API server, and who does not get through.
//!
//! What is inside a cluster is on loopback here, under names that only the cluster's own resolver knows: the door lets no address of
//! this machine through, and the agent only where it is told to.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use testbed::Process;

use crate::agents::client::{Agent, Bootstrap, Shown};
use crate::agents::{credential, fleet, issue};
use crate::server::{BASE, Fleet, PATIENCE, Server, connect, fleetgate};

/// Nothing of the hub's, and nothing that anybody else knows.
const INSIDE: &str = "hook.inside.test";

struct Hub {
    fleet: Fleet,
    server: Server,
}

/// A cluster's inside: its resolver, and its agent, which may reach one address of this machine.
struct Inside {
    _names: (Fleet, Server),
    agent: Process,
}

impl Hub {
    fn start() -> Self {
        let fleet = fleet();
        let mut command = fleet.command(any(), any());
        command.args(["--agents", "127.0.0.1:0", "--egress", "127.0.0.1:0", "--admin-credential"]);
        let server = Server::start(command.arg(fleet.root().join("admin")));
        Self { fleet, server }
    }

    fn egress(&self) -> SocketAddr {
        self.server.egress.unwrap()
    }

    /// Links a cluster whose inside is at `address`.
    fn link(&mut self, cluster: &str, address: &str) -> Inside {
        let Bootstrap { token, server_name, ca, .. } = issue(&self.fleet, &self.server, cluster, &[]);
        let bootstrap = json!({ "token": token, "serverName": server_name, "ca": ca });
        fs::write(self.path(cluster), bootstrap.to_string()).unwrap();
        let names = names(address);
        let mut command = fleetgate();
        command.args(["agent", "tunnel", "--log-format", "json"]);
        command.args(["--hub", &self.server.agents.unwrap().to_string()]).arg("--bootstrap").arg(self.path(cluster));
        command.args(["--allow", &format!("{address}/32,inside.test"), "--dns", &names.1.dns.to_string()]);
        let agent = Process::start(&command).unwrap();
        self.server.until("the cluster is linked", |server| {
            let (_, links) = server.http("/v1/links", "localhost");
            let links: Value = serde_json::from_str(&links).unwrap();
            links["items"].as_array().unwrap().iter().any(|link| link["cluster"] == cluster)
        });
        Inside { _names: names, agent }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.fleet.root().join(name)
    }

    /// A folder as `fleetgate egress credential` writes it.
    fn credential(&self, cluster: &str, folder: &str) -> PathBuf {
        let out = self.path(folder);
        let output = self.make_credential(cluster, &out, &[]);
        assert!(output.status.success(), "{output:?}");
        out
    }

    fn make_credential(&self, cluster: &str, out: &Path, more: &[&str]) -> Output {
        let make = || {
            let mut command = fleetgate();
            command.args(["egress", "credential", cluster, "--admin", &self.server.admin.to_string()]).args(more);
            command.arg("--out").arg(out).arg("--admin-credential").arg(self.path("admin")).output().unwrap()
        };
        // The authority is made just after the process is ready.
        let begun = Instant::now();
        loop {
            let output = make();
            if !String::from_utf8_lossy(&output.stderr).contains("no authority yet") {
                return output;
            }
            assert!(begun.elapsed() < PATIENCE);
        }
    }

    /// The ids of credentials that control planes have.
    fn credentials(&self, cluster: &str) -> Vec<String> {
        let output = credential(&self.fleet, &self.server, &["list", "-o", "json"]);
        let list: Value = serde_json::from_slice(&output.stdout).unwrap();
        let of_it = |item: &&Value| item["cluster"] == cluster && item["holder"] == "control-plane";
        let items = list["items"].as_array().unwrap().iter().filter(of_it);
        items.map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    }

    fn revoke(&self, id: &str) {
        let output = credential(&self.fleet, &self.server, &["revoke", id]);
        assert!(output.status.success(), "{output:?}");
    }

    /// TLS with the door, as who holds the credential.
    fn meet(&self, credential: &Path) -> Agent {
        try_meet(self.egress(), credential).unwrap()
    }

    fn audited(&mut self, wanted: &[&str]) {
        self.server.until(&format!("audited: {wanted:?}"), |server| {
            let log = server.process.log();
            log.lines().any(|line| wanted.iter().all(|wanted| line.contains(wanted)))
        });
    }
}

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// A resolver that knows the one name.
fn names(address: &str) -> (Fleet, Server) {
    let zone = "---\napiVersion: fleetgate.dev/v1alpha1\nkind: Zone\nmetadata: {name: inside}\n\
                spec: {domain: inside.test, zoneFile: {file: inside.zone}}\n";
    let fleet = Fleet::new(&[("base.yaml", &format!("{BASE}{zone}"))]);
    let records = format!(
        "$TTL 5\n@ SOA ns.inside.test. h.inside.test. 1 3600 600 86400 5\n@ NS ns\nns A 127.0.0.1\nhook A {address}\n\
         sly A 169.254.169.254\n"
    );
    fleet.write("inside.zone", &records);
    let server = fleet.serve();
    assert_eq!(server.resolve(INSIDE, "A"), [address]);
    (fleet, server)
}

fn try_meet(door: SocketAddr, credential: &Path) -> std::io::Result<Agent> {
    let read = |file: &str| fs::read_to_string(credential.join(file)).unwrap();
    let key = PrivateKeyDer::from_pem_slice(read("tls.key").as_bytes()).unwrap();
    let shown = Shown { certificate: read("tls.crt"), key: key.secret_der().to_vec() };
    let (token, server_name) = (String::new(), "egress.fleetgate".to_owned());
    Bootstrap { door, token, server_name, ca: read("ca.crt") }.connect(Some(&shown))
}

/// The status line and the rest of the answer's head; nothing behind it is read.
fn ask(stream: &mut (impl Read + Write), question: &str) -> (String, String) {
    stream.write_all(question.as_bytes()).unwrap();
    stream.flush().unwrap();
    read_head(stream)
}

fn read_head(stream: &mut impl Read) -> (String, String) {
    let mut head = Vec::new();
    let mut octet = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut octet).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&head)));
        head.push(octet[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let (first, rest) = head.split_once("\r\n").unwrap();
    (first.to_owned(), rest.to_owned())
}

fn connect_to(target: &str) -> String {
    format!("CONNECT {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
}

/// Greets with a name before it reads anything, and then echoes.
fn greeter(address: &str, port: u16, name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((address, port)).unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let mut stream = stream?;
                // In one write: somebody counts reads.
                stream.write_all(format!("{name}\n").as_bytes())?;
                let mut reader = stream.try_clone()?;
                std::io::copy(&mut reader, &mut stream)
            });
        }
    });
    at
}

/// Reads to the end, and only then says how much it was; then ends too.
fn counter() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream?;
            let read = std::io::copy(&mut stream, &mut std::io::sink())?;
            write!(stream, "{read} octets")?;
        }
        std::io::Result::Ok(())
    });
    at
}

/// HTTPS as a webhook has it, which answers anything; with the file of who vouches for it.
fn https(folder: &Path) -> (SocketAddr, PathBuf) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![INSIDE.to_owned()]).unwrap().self_signed(&key).unwrap();
    let authority = folder.join("inside.crt");
    fs::write(&authority, certificate.pem()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
    let config = std::sync::Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let config = std::sync::Arc::clone(&config);
            std::thread::spawn(move || {
                let connection = rustls::ServerConnection::new(config).map_err(std::io::Error::other)?;
                let mut stream = rustls::StreamOwned::new(connection, stream?);
                let mut octets = [0; 4096];
                let read = stream.read(&mut octets)?;
                assert!(octets[..read].starts_with(b"GET /"), "{}", String::from_utf8_lossy(&octets[..read]));
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\ninside")?;
                stream.flush()?;
                stream.conn.send_close_notify();
                stream.flush()
            });
        }
    });
    (at, authority)
}

#[test]
fn a_control_plane_reaches_its_own_cluster_and_no_other() {
    let mut hub = Hub::start();
    let port = greeter("127.0.0.1", 0, "of c1").port();
    greeter("127.0.0.2", port, "of c2");
    let insides = [hub.link("c1", "127.0.0.1"), hub.link("c2", "127.0.0.2")];
    let target = format!("{INSIDE}:{port}");
    for (cluster, greeting) in [("c1", "of c1\n"), ("c2", "of c2\n")] {
        let folder = hub.credential(cluster, &format!("{cluster}-plane"));
        for more in ["", "Fleetgate-Cluster: c1\r\n", "Fleetgate-Cluster: c2\r\n"] {
            let mut client = hub.meet(&folder).stream.into_inner();
            let question = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{more}\r\n");
            // What follows the head at once goes through too.
            let (line, _) = ask(&mut client, &format!("{question}first"));
            assert_eq!(line, "HTTP/1.1 200 Connection established");
            let mut read = [0; 11];
            client.read_exact(&mut read).unwrap();
            assert_eq!(String::from_utf8_lossy(&read), format!("{greeting}first"), "{more}");
            client.write_all(b" and more").unwrap();
            let mut read = [0; 9];
            client.read_exact(&mut read).unwrap();
            assert_eq!(&read, b" and more");
        }
    }

    // An agent's certificate is none of a control plane, and the other way round.
    let bootstrap = Bootstrap::read(&fs::read(hub.path("c1")).unwrap(), hub.server.agents.unwrap());
    let shown = bootstrap.enrolled();
    let at_egress = Bootstrap { door: hub.egress(), server_name: "egress.fleetgate".to_owned(), ..bootstrap.clone() };
    let (line, head) = ask(&mut at_egress.connect(Some(&shown)).unwrap().stream.into_inner(), &connect_to(&target));
    assert!(line.starts_with("HTTP/1.1 403 NotAControlPlane: "), "{line}");
    assert!(head.contains("Fleetgate-Refusal: NotAControlPlane\r\n"), "{head}");
    hub.audited(&["egress-refused", "NotAControlPlane", "\"cluster\":\"c1\"", "fleetgate://cluster/c1/"]);
    let folder = hub.path("c1-plane");
    let read = |file: &str| fs::read(folder.join(file)).unwrap();
    let key = PrivateKeyDer::from_pem_slice(&read("tls.key")).unwrap().secret_der().to_vec();
    let shown = Shown { certificate: String::from_utf8(read("tls.crt")).unwrap(), key };
    let refused = bootstrap.connect(Some(&shown)).and_then(|mut agent| agent.try_send("GET", "/v1/cluster", b""));
    assert!(refused.is_err(), "the agents' door ends it");
    assert!(at_egress.connect(None).and_then(|mut agent| agent.try_send("GET", "/", b"")).is_err(), "without any");
    drop(insides);
    hub.server.terminate();
}

#[test]
fn what_is_forbidden_or_garbled_is_refused_with_the_reason() {
    let mut hub = Hub::start();
    let inside = hub.link("c1", "127.0.0.1");
    let folder = hub.credential("c1", "plane");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let long = format!("CONNECT {INSIDE}:1 HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "x".repeat(9000));
    // Begun first, as it takes its time.
    let slow = {
        let mut client = hub.meet(&folder).stream.into_inner();
        std::thread::spawn(move || {
            let begun = Instant::now();
            let (line, _) = ask(&mut client, "CONNECT never");
            (line, begun.elapsed())
        })
    };
    for (question, status, code) in [
        (connect_to("169.254.169.254:80"), 403, "TargetForbidden"),
        (connect_to("[::ffff:169.254.169.254]:80"), 403, "TargetForbidden"),
        (connect_to("[fd00:ec2::254]:80"), 403, "TargetForbidden"),
        (connect_to("127.0.0.1:443"), 403, "TargetForbidden"),
        (connect_to("0.0.0.0:443"), 403, "TargetForbidden"),
        (connect_to("224.0.0.1:443"), 403, "TargetForbidden"),
        (connect_to("localhost:443"), 403, "TargetForbidden"),
        (connect_to("metadata.google.internal:80"), 403, "TargetForbidden"),
        // By the agent: the name is inside, what it leads to is not.
        (connect_to("sly.inside.test:80"), 403, "TargetForbidden"),
        (connect_to("203.0.113.5:80"), 403, "TargetForbidden"),
        (connect_to("nobody.inside.test:80"), 502, "UnknownName"),
        (connect_to(&format!("{INSIDE}:{nobody}")), 502, "Unreachable"),
        (connect_to("127.1:80"), 400, "BadTarget"),
        (connect_to("inside.test"), 400, "BadTarget"),
        ("GET http://inside.test/ HTTP/1.1\r\nHost: inside.test\r\n\r\n".to_owned(), 405, "MethodNotCarried"),
        ("CONNECT a:1 HTTP/3.0\r\nHost: a\r\n\r\n".to_owned(), 505, "BadVersion"),
        ("\x16\x03\x01\x00\x05hello".to_owned(), 400, "MalformedRequest"),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc".to_owned(), 400, "MalformedRequest"),
        (long, 431, "HeadTooLarge"),
    ] {
        let mut client = hub.meet(&folder).stream.into_inner();
        let (line, head) = ask(&mut client, &question);
        assert!(line.starts_with(&format!("HTTP/1.1 {status} {code}: ")), "{question:.80}: {line}");
        assert!(head.contains(&format!("Fleetgate-Refusal: {code}\r\n")), "{head}");
        assert!(!line.contains("rival") && !line.contains(" c2"), "{line}");
        let mut body = String::new();
        client.read_to_string(&mut body).unwrap();
        assert!(line.contains(body.trim_end()), "{line}: {body}");
    }
    hub.audited(&[
        "egress-refused",
        "\"code\":\"TargetForbidden\"",
        "169.254.169.254:80",
        "fleetgate://control-plane/c1/",
    ]);
    hub.audited(&["egress-refused", "MethodNotCarried"]);
    let (line, after) = slow.join().unwrap();
    assert!(line.starts_with("HTTP/1.1 408 HeadTimeout: "), "{line}");
    assert!((10..15).contains(&after.as_secs()), "{after:?}");

    // Who has no agent is told so, and it is nothing that another cluster's credential would change.
    let other = hub.credential("c2", "other");
    let (line, _) = ask(&mut hub.meet(&other).stream.into_inner(), &connect_to(&format!("{INSIDE}:443")));
    assert!(line.starts_with("HTTP/1.1 502 NoLink: "), "{line}");
    let (_, metrics) = hub.server.http("/metrics", "localhost");
    assert!(metrics.contains("fleetgate_egress_requests_total{outcome=\"NoLink\"} 1"), "{metrics}");
    assert!(metrics.contains("fleetgate_egress_requests_total{outcome=\"HeadTooLarge\"} 1"), "{metrics}");
    drop(inside);
    hub.server.terminate();
}

#[test]
fn a_revocation_ends_what_is_open_and_nothing_else() {
    let mut hub = Hub::start();
    let inside = hub.link("c1", "127.0.0.1");
    let target = connect_to(&format!("{INSIDE}:{}", greeter("127.0.0.1", 0, "hello").port()));
    let stolen = hub.credential("c1", "stolen");
    let known = hub.credentials("c1");
    let kept = hub.credential("c1", "kept");
    assert_eq!((known.len(), hub.credentials("c1").len()), (1, 2));
    let mode = fs::metadata(stolen.join("tls.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the key is for its owner");

    let open = |folder: &Path| {
        let mut client = hub.meet(folder).stream.into_inner();
        assert_eq!(ask(&mut client, &target).0, "HTTP/1.1 200 Connection established");
        let mut greeting = [0; 6];
        client.read_exact(&mut greeting).unwrap();
        client
    };
    let (mut out, mut stays) = (open(&stolen), open(&kept));
    hub.revoke(&known[0]);
    let (line, _) = ask(&mut hub.meet(&stolen).stream.into_inner(), &target);
    assert!(line.starts_with("HTTP/1.1 403 Revoked: "), "at once on a new connection: {line}");
    let begun = Instant::now();
    let read = out.read(&mut [0; 16]);
    let ended = begun.elapsed();
    assert!(!matches!(&read, Ok(1..)), "{read:?}");
    assert!(ended < Duration::from_secs(8), "{ended:?}");
    stays.write_all(b"still").unwrap();
    let mut echoed = [0; 5];
    stays.read_exact(&mut echoed).unwrap();
    assert_eq!(&echoed, b"still", "another credential of the same cluster goes on");
    hub.audited(&["egress-cut", "\"code\":\"Revoked\"", &known[0]]);
    hub.audited(&["egress-refused", "\"code\":\"Revoked\"", &known[0]]);

    // A cluster that is made anew is another one.
    let at = hub.fleet.folder().join("c1.yaml");
    let manifest = fs::read_to_string(&at).unwrap();
    fs::remove_file(&at).unwrap();
    let begun = Instant::now();
    while stays.write_all(b"x").and_then(|()| stays.read(&mut [0; 16])).is_ok_and(|read| read > 0) {
        assert!(begun.elapsed() < PATIENCE, "its connections end");
    }
    let (line, _) = ask(&mut hub.meet(&kept).stream.into_inner(), &target);
    assert!(line.starts_with("HTTP/1.1 403 "), "its credentials went with it: {line}");
    hub.fleet.write("c1.yaml", &manifest);
    hub.server.until("the cluster is back", |server| server.get(&["clusters", "c1"]).status.success());
    let (line, _) = ask(&mut hub.meet(&kept).stream.into_inner(), &target);
    assert!(line.starts_with("HTTP/1.1 403 "), "{line}");
    drop(inside);
    hub.server.terminate();
}

#[test]
fn either_end_may_close_its_half() {
    let mut hub = Hub::start();
    let inside = hub.link("c1", "127.0.0.1");
    let folder = hub.credential("c1", "plane");
    let target = connect_to(&format!("{INSIDE}:{}", counter().port()));
    let mut client = hub.meet(&folder).stream.into_inner();
    assert_eq!(ask(&mut client, &target).0, "HTTP/1.1 200 Connection established");
    let octets = vec![7; 3 << 20];
    client.write_all(&octets).unwrap();
    client.conn.send_close_notify();
    client.flush().unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, format!("{} octets", 3 << 20));
    drop(inside);
    hub.server.terminate();
}

struct Proxy {
    process: Process,
    socket: PathBuf,
    listen: SocketAddr,
}

fn proxy(hub: &Hub, credential: &Path, gateways: &str) -> Proxy {
    let socket = hub.path("egress.sock");
    let mut command = fleetgate();
    command.args(["egress", "proxy", "--log-format", "json", "--listen", "127.0.0.1:0", "--gateway", gateways]);
    command.arg("--socket").arg(&socket).arg("--credential").arg(credential);
    let mut process = Process::start(&command).unwrap();
    let line = process.wait_for_line("\"message\":\"ready\"", PATIENCE).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    let listen = ready["listen"].as_str().unwrap().parse().unwrap();
    Proxy { process, socket, listen }
}

fn meet_socket(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn a_proxy_in_the_pod_serves_api_servers_and_curl() {
    let mut hub = Hub::start();
    let inside = hub.link("c1", "127.0.0.1");
    let folder = hub.credential("c1", "plane");
    let (webhook, authority) = https(hub.fleet.root());
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    // One where nobody is, one that never answers, and the one that does.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gateways = format!("{nobody},{},{}", silent.local_addr().unwrap(), hub.egress());
    // Left by one that was killed.
    drop(std::os::unix::net::UnixListener::bind(hub.path("egress.sock")).unwrap());
    let mut proxy = proxy(&hub, &folder, &gateways);
    let mode = fs::metadata(&proxy.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    // kube-apiserver reads once, and fails if anything is there behind the head.
    let greeting = connect_to(&format!("{INSIDE}:{}", greeter("127.0.0.1", 0, "early bird").port()));
    let mut times = Vec::new();
    for _ in 0..5 {
        let mut client = meet_socket(&proxy.socket);
        let begun = Instant::now();
        client.write_all(greeting.as_bytes()).unwrap();
        let mut once = [0; 4096];
        let read = client.read(&mut once).unwrap();
        times.push(begun.elapsed());
        assert_eq!(&once[..read], b"HTTP/1.1 200 Connection established\r\n\r\n");
        let read = client.read(&mut once).unwrap();
        assert_eq!(&once[..read], b"early bird\n", "a server that speaks first is heard too");
    }
    assert!(times[0] >= Duration::from_secs(1), "the first finds out which gateway answers: {times:?}");
    assert!(times[1..].iter().all(|time| *time < Duration::from_secs(1)), "the others know: {times:?}");

    let curl = |proxy: &[&str], more: &[&str]| {
        let url = format!("https://{INSIDE}:{}/", webhook.port());
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "30", "--cacert", authority.to_str().unwrap()]).args(proxy).args(more);
        curl.arg(url).output().unwrap()
    };
    let output = curl(&["--proxy", &format!("http://{}", proxy.listen)], &[]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "inside", "{output:?}");
    // At the door itself, by TLS 1.3 and 1.2.
    let door = format!("https://egress.fleetgate:{}", hub.egress().port());
    let resolve = format!("egress.fleetgate:{}:127.0.0.1", hub.egress().port());
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (ca, certificate, key) = (file("ca.crt"), file("tls.crt"), file("tls.key"));
    let mutual = ["--proxy", &door, "--resolve", &resolve, "--proxy-cacert", &ca, "--proxy-cert", &certificate];
    for tls in ["1.3", "1.2"] {
        let output = curl(&mutual, &["--proxy-key", &key, "--proxy-tlsv1", "--tls-max", tls]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "inside", "{tls}: {output:?}");
    }
    let output = curl(&["--proxy", &door, "--resolve", &resolve, "--proxy-cacert", &ca], &[]);
    assert!(!output.status.success(), "without a certificate: {output:?}");
    let mut plain = Command::new("curl");
    plain.args(["-sS", "-i", "--proxy", &format!("http://{}", proxy.listen), "http://hook.inside.test/"]);
    let plain = String::from_utf8(plain.output().unwrap().stdout).unwrap();
    assert!(plain.starts_with("HTTP/1.1 405 MethodNotCarried: only CONNECT"), "{plain}");

    // What the gateway refuses is told in its own words, and written down there.
    let (line, head) = ask(&mut meet_socket(&proxy.socket), &connect_to("169.254.169.254:80"));
    assert!(line.starts_with("HTTP/1.1 403 TargetForbidden: ") && line.contains("169.254.169.254"), "{line}");
    assert!(head.contains("Fleetgate-Refusal: TargetForbidden\r\n"), "{head}");
    hub.audited(&["egress-refused", "TargetForbidden", "169.254.169.254:80"]);

    // A second one would take the socket away from the first.
    let mut second = fleetgate();
    second.args(["egress", "proxy", "--gateway", "127.0.0.1:9", "--socket"]).arg(&proxy.socket);
    let second = second.arg("--credential").arg(&folder).output().unwrap();
    assert!(String::from_utf8_lossy(&second.stderr).contains("another process serves"), "{second:?}");

    // A new credential in the folder counts without a restart, a second later at most.
    hub.revoke(&hub.credentials("c1")[0]);
    let (line, _) = ask(&mut meet_socket(&proxy.socket), &greeting);
    assert!(line.starts_with("HTTP/1.1 403 Revoked: "), "{line}");
    hub.credential("c1", "plane");
    let renewed = Instant::now();
    loop {
        let (line, _) = ask(&mut meet_socket(&proxy.socket), &greeting);
        if line == "HTTP/1.1 200 Connection established" {
            break;
        }
        assert!(line.starts_with("HTTP/1.1 403 Revoked: ") && renewed.elapsed() < PATIENCE, "{line}");
    }

    // Nobody is left: the reason names the last one that was tried.
    hub.server.terminate();
    let (line, _) = ask(&mut meet_socket(&proxy.socket), &greeting);
    assert!(line.starts_with("HTTP/1.1 503 NoGateway: "), "{line}");
    proxy.process.signal("TERM").unwrap();
    assert!(proxy.process.wait_for_exit(PATIENCE).unwrap().success());
    assert!(!proxy.socket.exists(), "it takes its socket along");
    drop(inside);
}

#[test]
fn a_restart_and_a_drain_keep_promises() {
    let mut hub = Hub::start();
    let mut inside = hub.link("c1", "127.0.0.1");
    let folder = hub.credential("c1", "plane");
    let target = connect_to(&format!("{INSIDE}:{}", greeter("127.0.0.1", 0, "hello").port()));
    let mut client = hub.meet(&folder).stream.into_inner();
    assert_eq!(ask(&mut client, &target).0, "HTTP/1.1 200 Connection established");
    let mut greeting = [0; 6];
    client.read_exact(&mut greeting).unwrap();
    hub.server.process.signal("TERM").unwrap();
    hub.server.process.wait_for_line("draining", PATIENCE).unwrap();
    client.write_all(b"still").unwrap();
    let mut echoed = [0; 5];
    client.read_exact(&mut echoed).unwrap();
    assert_eq!(&echoed, b"still", "what is open has its time");
    assert!(TcpStream::connect(hub.egress()).is_err() || try_meet(hub.egress(), &folder).is_err());
    drop(client);
    let status = hub.server.process.wait_for_exit(PATIENCE).unwrap();
    assert!(status.success(), "{status}");
    inside.agent.check_running().unwrap();
}

#[test]
fn credentials_are_made_for_clusters_that_are_there() {
    let hub = Hub::start();
    let out = hub.path("out");
    for (cluster, more, reason) in [
        ("c9", &[][..], "no cluster that is accepted is called c9"),
        ("c1", &["--valid", "400d"][..], "at most 365 days"),
    ] {
        let output = hub.make_credential(cluster, &out, more);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(reason), "{output:?}");
        assert!(!out.join("tls.crt").exists());
    }
    // Without the admin's credential nobody is given anything.
    let mut command = fleetgate();
    command.args(["egress", "credential", "c1", "--admin", &hub.server.admin.to_string(), "--out"]);
    let output = command.arg(&out).env_remove("FLEETGATE_ADMIN_CREDENTIAL").output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    let mut command = fleetgate();
    command.args(["egress", "proxy", "--gateway", "127.0.0.1:9", "--listen", "127.0.0.1:0", "--credential"]);
    let output = command.arg(&out).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("ca.crt"), "{output:?}");
    let mut command = fleetgate();
    command.args(["egress", "proxy", "--gateway", "127.0.0.1:9", "--listen", "0.0.0.0:0", "--credential"]);
    let output = command.arg(hub.credential("c1", "good")).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("no loopback address"), "{output:?}");
    hub.server.terminate();
}

#[test]
fn a_sidecar_takes_only_what_was_redirected() {
    let hub = Hub::start();
    let folder = hub.credential("c1", "plane");
    let mut command = fleetgate();
    command.args(["egress", "sidecar", "--log-format", "json", "--listen", "127.0.0.1:0"]);
    command.args(["--gateway", &hub.egress().to_string(), "--credential"]).arg(folder);
    let mut process = Process::start(&command).unwrap();
    let line = process.wait_for_line("\"message\":\"ready\"", PATIENCE).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    let mut client = connect(ready["listen"].as_str().unwrap().parse().unwrap());
    let error = client.read(&mut [0; 16]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "never an orderly end");
    process.wait_for_line("NotRedirected", PATIENCE).unwrap();

    let mut rules = fleetgate();
    rules.args(["egress", "sidecar", "--print-rules", "--cidr", "10.10.0.0/16,fd00:10::/64", "--uid", "1234"]);
    let rules = String::from_utf8(rules.args(["--except", "10.10.0.53/32"]).output().unwrap().stdout).unwrap();
    for line in [
        "meta skuid 1234 accept",
        "meta l4proto tcp ip daddr { 10.10.0.53/32 } accept",
        "meta l4proto tcp ip daddr { 10.10.0.0/16 } redirect to :8453",
        "meta l4proto tcp ip6 daddr { fd00:10::/64 } redirect to :8453",
    ] {
        assert!(rules.contains(line), "{rules}");
    }
    hub.server.terminate();
}

/// Where a connection wanted to go is asked of the gateway, by both families; and what would lead back to the side-car ends there.
#[test]
fn a_sidecar_asks_for_what_was_wanted_and_never_for_itself() {
    let Some(network) = testbed::network() else { return };
    let host = &network.hub;
    // Everything leads somewhere, as in a pod; the packet filter turns it round.
    host.ip("route add default dev lo\nroute add ::/0 dev lo\naddress add 10.10.0.9/32 dev lo\n").unwrap();
    let fleet = fleet();
    let mut command = fleet.command(any(), any());
    command.args(["--agents", "127.0.0.1:0", "--egress", "127.0.0.1:8445", "--admin-credential"]);
    let mut serve = host.start(command.arg(fleet.root().join("admin"))).unwrap();
    let ready: Value = serde_json::from_str(&serve.wait_for_line("\"message\":\"ready\"", PATIENCE).unwrap()).unwrap();
    let (folder, admin) = (fleet.root().join("plane"), ready["admin"].as_str().unwrap());
    let mut command = fleetgate();
    command.args(["egress", "credential", "c1", "--admin", admin, "--out"]).arg(&folder);
    command.arg("--admin-credential").arg(fleet.root().join("admin"));
    let begun = Instant::now();
    while !host.output(&command).unwrap().status.success() {
        assert!(begun.elapsed() < PATIENCE, "{:?}", host.output(&command));
    }
    let mut rules = fleetgate();
    // Everything here is one user: the side-car is told from others by where it goes.
    rules.args(["egress", "sidecar", "--print-rules", "--cidr", "10.10.0.0/16,fd00:10::/64", "--uid", "1"]);
    let rules = String::from_utf8(rules.output().unwrap().stdout).unwrap();
    for _ in 0..2 {
        host.nft(&rules).unwrap();
    }
    let sidecar = |gateway: &str| {
        let mut command = fleetgate();
        command.args(["egress", "sidecar", "--log-format", "json", "--listen", "127.0.0.1:8453,[::1]:8453"]);
        command.args(["--gateway", gateway, "--credential"]).arg(&folder);
        let mut process = host.start(&command).unwrap();
        process.wait_for_line("\"message\":\"ready\"", PATIENCE).unwrap();
        process
    };
    let ask = |url: &str| {
        let mut curl = Command::new("curl");
        // With all that it tells: a reset that comes while it still connects is named nowhere else.
        let output = host.output(curl.args(["-sSv", "--noproxy", "*", "--max-time", "60", url])).unwrap();
        String::from_utf8(output.stderr).unwrap()
    };

    let mut asking = sidecar("127.0.0.1:8445");
    for (url, target) in
        [("http://10.10.0.7:8080/", "10.10.0.7:8080"), ("http://[fd00:10::7]:443/", "[fd00:10::7]:443")]
    {
        let error = ask(url);
        assert!(error.contains("reset by peer"), "never an orderly end: {error}");
        let line = serve.wait_for_line(&format!("\"destination\":\"{target}\""), PATIENCE).unwrap();
        assert!(line.contains("NoLink"), "{line}");
        asking.wait_for_line("\"code\":\"NoLink\"", PATIENCE).unwrap();
    }
    asking.end();

    let mut looping = sidecar("10.10.0.9:8445");
    let error = ask("http://10.10.0.7:8080/");
    assert!(error.contains("reset by peer"), "{error}");
    looping.wait_for_line("\"code\":\"NoGateway\"", PATIENCE).unwrap();
    let log = looping.log();
    assert_eq!(log.matches("\"code\":\"Loop\"").count(), 1, "{log}");
}
