//! Gateways as processes of their own that take links of agents and relay to each other: whichever a control plane comes to, it
//! reaches its cluster, also past the end of one of them, and of the leader.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{CertificateParams, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme, StreamOwned};
use serde_json::{Value, json};
use testbed::{ApiServer, Process};

use crate::agents::{admin_credential, credential, issue};
use crate::fixture::{PATIENCE, Server, ZONE, eventually, fleetgate, given_cluster, hub, wait_for_answer};
use crate::peers::{accounts, shown};

/// Within this a new stream works again, whatever has ended.
const SOON: Duration = Duration::from_secs(3);

/// Something inside a cluster: it says where it is, and echoes what comes. Its name is that of an application there, on a node that is
/// this machine.
struct Place {
    name: &'static str,
    port: u16,
}

fn cluster(name: &str) -> String {
    given_cluster(name, 1).replace("198.51.100.1", "127.0.0.1")
}

impl Place {
    fn start(name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    stream.write_all(name.as_bytes())?;
                    std::io::copy(&mut stream.try_clone()?, &mut stream)?;
                    stream.shutdown(std::net::Shutdown::Write)
                });
            }
        });
        Self { name, port }
    }

    fn target(&self) -> String {
        format!("web.{}.fleet.example:{}", self.name, self.port)
    }
}

/// A control plane on the hub's side.
struct ControlPlane {
    tls: Arc<ClientConfig>,
}

type Carried = StreamOwned<ClientConnection, TcpStream>;

impl ControlPlane {
    fn new(leader: &Server, admin: &Path, cluster: &str, folder: &Path) -> Self {
        let out = folder.join(format!("{cluster}-control-plane"));
        let mut command = fleetgate();
        command.args(["egress", "credential", cluster, "--out"]).arg(&out);
        command.args(["--admin", &leader.address("admin").to_string(), "--admin-credential"]).arg(admin);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let read = |name: &str| fs::read(out.join(name)).unwrap();
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(&read("ca.crt")) {
            roots.add(root.unwrap()).unwrap();
        }
        let chain = CertificateDer::pem_slice_iter(&read("tls.crt")).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(&read("tls.key")).unwrap();
        let config = client().with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap();
        Self { tls: Arc::new(config) }
    }

    /// A stream through a gateway; otherwise what was said instead.
    fn connect(&self, gateway: SocketAddr, target: &str) -> Result<Carried, String> {
        let text = |error: std::io::Error| error.to_string();
        let name = ServerName::try_from("egress.fleetgate").unwrap();
        let connection = ClientConnection::new(Arc::clone(&self.tls), name).unwrap();
        let stream = TcpStream::connect(gateway).map_err(text)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(text)?;
        let mut stream = StreamOwned::new(connection, stream);
        write!(stream, "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").map_err(text)?;
        let mut head = Vec::new();
        let mut octet = [0];
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut octet).map_err(text)?;
            head.extend_from_slice(&octet);
        }
        let head = String::from_utf8(head).unwrap();
        if head.starts_with("HTTP/1.1 200") { Ok(stream) } else { Err(head) }
    }

    /// Where a stream leads; and that what is sent comes back.
    fn reaches(&self, gateway: SocketAddr, target: &str) -> Result<String, String> {
        let mut stream = self.connect(gateway, target)?;
        let mut heard = [0; 2];
        let text = |error: std::io::Error| error.to_string();
        stream.write_all(b"!").and_then(|()| stream.read_exact(&mut heard)).map_err(text)?;
        assert_eq!(heard[1], b'!');
        Ok(char::from(heard[0]).to_string())
    }
}

fn client() -> rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap()
}

/// `fleetgate agent tunnel`, which may reach one place and no other. It knows the controller, to enrol, and some gateways.
fn agent(bootstrap: &Path, hubs: &[SocketAddr], place: &Place, dns: &Server, folder: &Path) -> Process {
    let hubs: Vec<String> = hubs.iter().map(ToString::to_string).collect();
    let mut command = fleetgate();
    command.args(["agent", "tunnel", "--hub", &hubs.join(","), "--bootstrap"]).arg(bootstrap);
    command.arg("--state").arg(folder).args(["--links", "1", "--log-format", "json"]);
    command.args(["--dns", &dns.address("dns").to_string()]);
    for allowed in ["fleet.example", "127.0.0.0/8"] {
        command.args(["--allow", &format!("{allowed}:{}", place.port)]);
    }
    Process::start(&command).unwrap()
}

struct Fleet {
    gateways: Vec<Server>,
    controller: Server,
    places: [Place; 2],
    control_planes: [ControlPlane; 2],
    /// The ids of the agents' credentials.
    credentials: [String; 2],
    agents: Vec<Process>,
    admin: PathBuf,
    account: PathBuf,
    _dns: Server,
    _folder: tempfile::TempDir,
    _server: ApiServer,
}

fn start_controller(account: &Path, admin: &Path, name: &str) -> Server {
    let doors = ["--peers", "127.0.0.1:0", "--agents", "127.0.0.1:0", "--edge", name];
    let arguments = [&["controller", "--admin-credential", admin.to_str().unwrap()], &doors[..]].concat();
    Server::start_informed(account, &arguments)
}

impl Fleet {
    /// The agent of `a` knows the first two gateways, that of `b` the last two.
    fn start() -> Option<Self> {
        let server = hub(&testbed::kubernetes()?);
        server.kubectl_apply(ZONE).unwrap();
        server.kubectl_apply(&cluster("a")).unwrap();
        server.kubectl_apply(&cluster("b")).unwrap();
        let [account, gateway, dns] = accounts(&server);
        let folder = tempfile::tempdir().unwrap();
        let admin = admin_credential(folder.path());
        let controller = start_controller(&account, &admin, "controller");
        let gateways: Vec<Server> = ["gateway-1", "gateway-2", "gateway-3"]
            .map(|name| {
                let any = "127.0.0.1:0";
                let doors = ["--agents", any, "--relay", any, "--egress", any, "--edge", name];
                Server::start_informed(&gateway, &[&["gateway"], &doors[..]].concat())
            })
            .into();
        let dns = Server::start_informed(&dns, &["dns", "--dns", "127.0.0.1:0", "--edge", "dns"]);
        wait_for_answer(&dns, "web.a.fleet.example", &["127.0.0.1"]);
        wait_for_answer(&dns, "web.b.fleet.example", &["127.0.0.1"]);
        let places = ["a", "b"].map(Place::start);
        let mut credentials = Vec::new();
        let mut agents = Vec::new();
        for (number, cluster) in ["a", "b"].into_iter().enumerate() {
            let bootstrap = issue(&controller, &admin, cluster);
            let path = folder.path().join(format!("{cluster}.json"));
            fs::write(&path, bootstrap.to_json()).unwrap();
            let state = folder.path().join(format!("{cluster}-agent"));
            fs::create_dir(&state).unwrap();
            let door = |server: &Server| server.address("agents");
            let hubs = [door(&controller), door(&gateways[number]), door(&gateways[number + 1])];
            agents.push(agent(&path, &hubs, &places[number], &dns, &state));
            credentials.push(bootstrap.id().to_owned());
        }
        let control_planes = ["a", "b"].map(|cluster| ControlPlane::new(&controller, &admin, cluster, folder.path()));
        let credentials = credentials.try_into().unwrap();
        Some(Self {
            gateways,
            controller,
            places,
            control_planes,
            credentials,
            agents,
            admin,
            account,
            _dns: dns,
            _folder: folder,
            _server: server,
        })
    }

    /// Where a stream of the cluster leads that comes to this gateway.
    fn reaches(&self, gateway: &Server, cluster: usize) -> Result<String, String> {
        self.control_planes[cluster].reaches(gateway.address("egress"), &self.places[cluster].target())
    }

    fn all_reach_all(&self) {
        for gateway in &self.gateways {
            for (number, name) in ["a", "b"].into_iter().enumerate() {
                assert_eq!(self.reaches(gateway, number).as_deref(), Ok(name), "{}", gateway.process.log_tail());
            }
        }
    }
}

/// The clusters whose agents are linked to this gateway.
fn linked(gateway: &Server) -> Vec<String> {
    let items = shown(gateway, "/v1/links")["items"].clone();
    let mut names: Vec<String> =
        items.as_array().unwrap().iter().map(|link| link["cluster"].as_str().unwrap().to_owned()).collect();
    names.dedup();
    names
}

/// What this gateway was told of who carries what.
fn told(gateway: &Server) -> Vec<(String, Value)> {
    let replicas = shown(gateway, "/v1/peers")["replicas"].clone();
    let of = |item: &Value| (item["name"].as_str().unwrap().to_owned(), item["clusters"].clone());
    replicas.as_array().unwrap().iter().map(of).collect()
}

#[test]
fn every_gateway_reaches_every_cluster_also_past_the_end_of_one_and_of_the_leader() {
    let Some(mut fleet) = Fleet::start() else { return };
    let expected: [&[&str]; 3] = [&["a"], &["a", "b"], &["b"]];
    for (gateway, expected) in fleet.gateways.iter().zip(expected) {
        eventually("agents are linked to two gateways each", || (linked(gateway) == expected).then_some(()));
    }
    for gateway in &fleet.gateways {
        eventually("all are told who has whom", || {
            let all = ["dns", "gateway-1", "gateway-2", "gateway-3"].map(str::to_owned);
            let clusters = [&[][..], expected[0], expected[1], expected[2]].map(|clusters| json!(clusters));
            (told(gateway) == all.into_iter().zip(clusters).collect::<Vec<_>>()).then_some(())
        });
    }
    // The first has no link to b, the last none to a: these are relayed.
    fleet.all_reach_all();

    // The same name is each tenant's own: an agent is asked by nobody but its own cluster's.
    for gateway in &fleet.gateways {
        let refused = fleet.control_planes[0].reaches(gateway.address("egress"), &fleet.places[1].target());
        let refused = refused.unwrap_err();
        assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    }

    foreign_relay_is_refused(&fleet.gateways[0]);
    // Through a link of its own, and through another's.
    let mut kept: Vec<Carried> = [(0, 0), (2, 1)]
        .map(|(gateway, cluster)| {
            let at = fleet.gateways[gateway].address("egress");
            fleet.control_planes[cluster].connect(at, &fleet.places[cluster].target()).unwrap()
        })
        .into();

    let killed = Instant::now();
    let mut gone = fleet.gateways.remove(1);
    gone.process.signal("KILL").unwrap();
    until_all_work(&fleet, killed, "one of three gateways was killed");
    for stream in &mut kept {
        let mut heard = [0; 2];
        stream.write_all(b"?").unwrap();
        stream.read_exact(&mut heard).unwrap();
        assert_eq!(heard[1], b'?', "what did not go through it goes on");
    }

    // Without a leader: links stay, relays go by the last table, and whoever was let in is.
    fleet.controller.process.signal("KILL").unwrap();
    for gateway in &fleet.gateways {
        eventually("the leader is away", || (shown(gateway, "/v1/peers")["linked"] == false).then_some(()));
    }
    let away = Instant::now();
    while away.elapsed() < Duration::from_secs(12) {
        fleet.all_reach_all();
        std::thread::sleep(Duration::from_millis(500));
    }
    assert_eq!([linked(&fleet.gateways[0]), linked(&fleet.gateways[1])], [["a"], ["b"]]);

    // A new leader, and what is revoked there.
    let next = start_controller(&fleet.account, &fleet.admin, "controller-2");
    for gateway in &fleet.gateways {
        eventually("a new leader is heard", || (shown(gateway, "/v1/peers")["linked"] == true).then_some(()));
    }
    let revoked = eventually("it revokes", || {
        credential(&next, &fleet.admin, &["revoke", &fleet.credentials[0]]).status.success().then(Instant::now)
    });
    eventually("its links end", || linked(&fleet.gateways[0]).is_empty().then_some(()));
    let out = revoked.elapsed();
    println!("links ended {out:?} after their credential was revoked");
    assert!(out < Duration::from_secs(15), "{out:?}");
    assert!(fleet.gateways[0].process.log().contains("\"code\":\"Revoked\""), "it is in the log");
    for gateway in &fleet.gateways {
        eventually("nobody reaches the cluster", || {
            fleet.reaches(gateway, 0).err().filter(|no| no.starts_with("HTTP/1.1 502"))
        });
        assert_eq!(fleet.reaches(gateway, 1).as_deref(), Ok("b"), "the other is untouched");
    }
    fleet.controller = next;
    for agent in &mut fleet.agents {
        agent.check_running().unwrap();
    }
}

/// Whoever leads is in its own table, and goes by it.
#[test]
fn processes_with_all_roles_relay_to_each_other() {
    let Some(kubernetes) = testbed::kubernetes() else { return };
    let server = hub(&kubernetes);
    server.kubectl_apply(ZONE).unwrap();
    server.kubectl_apply(&cluster("a")).unwrap();
    server.kubectl_apply(&cluster("b")).unwrap();
    let [account, ..] = accounts(&server);
    let folder = tempfile::tempdir().unwrap();
    let admin = admin_credential(folder.path());
    let processes = ["one", "two"].map(|name| {
        let mut arguments = vec!["serve", "--hub", "--edge", name, "--admin-credential", admin.to_str().unwrap()];
        for door in ["--dns", "--peers", "--agents", "--relay", "--egress"] {
            arguments.extend([door, "127.0.0.1:0"]);
        }
        Server::start_informed(&account, &arguments)
    });
    wait_for_answer(&processes[0], "web.b.fleet.example", &["127.0.0.1"]);
    let mut agents = Vec::new();
    let clusters = [("a", 0), ("b", 1)].map(|(name, number)| {
        let place = Place::start(name);
        let bootstrap = issue(&processes[number], &admin, name);
        let path = folder.path().join(format!("{name}.json"));
        fs::write(&path, bootstrap.to_json()).unwrap();
        let state = folder.path().join(format!("{name}-agent"));
        fs::create_dir(&state).unwrap();
        let door = processes[number].address("agents");
        agents.push(agent(&path, &[door], &place, &processes[0], &state));
        (name, place, ControlPlane::new(&processes[number], &admin, name, folder.path()))
    });
    for process in &processes {
        eventually("both know who has whom", || {
            let expected = [("one".to_owned(), json!(["a"])), ("two".to_owned(), json!(["b"]))];
            (told(process) == expected).then_some(())
        });
        for (name, place, control_plane) in &clusters {
            let reached = control_plane.reaches(process.address("egress"), &place.target());
            assert_eq!(reached.as_deref(), Ok(*name), "{}", process.process.log_tail());
        }
    }
}

/// Prints how long it took, and fails above 3 s.
fn until_all_work(fleet: &Fleet, since: Instant, what: &str) {
    let mut last_failure = Duration::ZERO;
    let mut tried = 0;
    // For longer than it may take: what has worked once must not fail again.
    while since.elapsed() < SOON + Duration::from_secs(4) {
        for gateway in &fleet.gateways {
            for (number, name) in ["a", "b"].into_iter().enumerate() {
                tried += 1;
                if fleet.reaches(gateway, number).as_deref() != Ok(name) {
                    last_failure = since.elapsed();
                }
            }
        }
    }
    println!("{what}: the last of {tried} new streams that failed did so {last_failure:?} later");
    assert!(last_failure < SOON, "{last_failure:?}");
}

/// A certificate of one's own making is nobody's that the leader has told of.
fn foreign_relay_is_refused(gateway: &Server) {
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(["fleetgate-relay".to_owned()]).unwrap().self_signed(&key).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let anybody = Arc::new(Anybody);
    let config = client().dangerous().with_custom_certificate_verifier(anybody);
    let mut config = config.with_client_auth_cert(vec![own.der().clone()], key).unwrap();
    config.alpn_protocols = vec![b"fleetgate-relay/1".to_vec()];
    let name = ServerName::try_from("fleetgate-relay").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(gateway.address("relay")).unwrap());
    // In TLS 1.3 the client is done first: the no comes to whoever reads.
    let begun = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").and_then(|()| stream.flush());
    let heard = begun.and_then(|()| stream.read(&mut [0; 64]));
    assert!(heard.is_err(), "{heard:?}");
    eventually("it is in the log", || gateway.process.log().contains("\"code\":\"Stranger\"").then_some(()));
}

/// Takes anybody for anybody.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
