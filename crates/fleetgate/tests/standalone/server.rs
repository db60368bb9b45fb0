//! A running `fleetgate`, the manifests it is given, and clients to meet it with.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use gateway::proxy_header::{Encoder, TLV_HYPERSHIFT_CLUSTER_ID};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;
use tempfile::TempDir;
use testbed::Process;

/// Long enough for the slowest machine: reached only by a test that fails.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) const BASE: &str = "\
apiVersion: fleetgate.dev/v1alpha1
kind: Zone
metadata: {name: main}
spec:
  domain: fleet.example
  nameservers: [{name: ns1.fleet.example, addresses: [127.0.0.1]}]
  gateway: {addresses: [192.0.2.10]}
---
apiVersion: fleetgate.dev/v1alpha1
kind: Tenant
metadata: {name: acme}
spec: {}
";

/// A cluster with one ready node, 198.51.100.`node`.
pub(crate) fn cluster(name: &str, api_server: SocketAddr, node: u8) -> String {
    format!(
        "\
apiVersion: fleetgate.dev/v1alpha1
kind: Cluster
metadata: {{name: {name}}}
spec:
  tenant: acme
  zone: main
  controlPlane: {{kubeApiserver: {{addresses: [\"{api_server}\"]}}}}
  nodes: [{{name: n1, addresses: [198.51.100.{node}]}}]
"
    )
}

/// Where nobody listens and nobody needs to.
pub(crate) fn nowhere() -> SocketAddr {
    "127.0.0.1:9".parse().unwrap()
}

/// An address that only this call gives, where several flags must have the same port and so none can be left to the system.
pub(crate) fn own_address() -> SocketAddr {
    static COUNT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    // Nobody else is at this process' part of loopback.
    let host = [127, high | 0x80, low, COUNT.fetch_add(1, Ordering::Relaxed)];
    TcpListener::bind((std::net::Ipv4Addr::from(host), 0)).unwrap().local_addr().unwrap()
}

pub(crate) fn fleetgate() -> Command {
    Command::new(env!("CARGO_BIN_EXE_fleetgate"))
}

/// A folder of manifests and a data folder, which outlive the servers that are started on them.
pub(crate) struct Fleet {
    root: TempDir,
}

impl Fleet {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let fleet = Self { root: tempfile::tempdir().unwrap() };
        fs::create_dir(fleet.folder()).unwrap();
        for (file, text) in files {
            fleet.write(file, text);
        }
        fleet
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.root.path().join("fleet")
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        fs::write(self.folder().join(file), text).unwrap();
    }

    pub(crate) fn serve(&self) -> Server {
        self.serve_at("127.0.0.1:0".parse().unwrap())
    }

    /// With the door by cluster id at a certain address.
    pub(crate) fn serve_at(&self, apiserver: SocketAddr) -> Server {
        Server::start(&self.command(apiserver, "127.0.0.1:0".parse().unwrap()))
    }

    pub(crate) fn command(&self, apiserver: SocketAddr, others: SocketAddr) -> Command {
        let mut command = fleetgate();
        command.arg("serve").arg("--fleet").arg(self.folder()).arg("--data").arg(self.root.path().join("data"));
        command.args(["--apiserver", &apiserver.to_string(), "--log-format", "json"]);
        for door in ["--dns", "--sni", "--admin"] {
            command.args([door, &others.to_string()]);
        }
        command
    }

    pub(crate) fn check(&self) -> Output {
        fleetgate().arg("check").arg("--fleet").arg(self.folder()).output().unwrap()
    }
}

pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) dns: SocketAddr,
    pub(crate) apiserver: SocketAddr,
    pub(crate) sni: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) http: Option<SocketAddr>,
    pub(crate) https: Option<SocketAddr>,
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) agents: Option<SocketAddr>,
    pub(crate) egress: Option<SocketAddr>,
}

impl Server {
    /// Waits until it says that it is ready, and where.
    pub(crate) fn start(command: &Command) -> Self {
        let mut process = Process::start(command).unwrap();
        let line = process.wait_for_line("\"message\":\"ready\"", PATIENCE).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let address = |field: &str| ready[field].as_str().expect(field).parse().unwrap();
        Self {
            dns: address("dns"),
            apiserver: address("apiserver"),
            sni: address("sni"),
            admin: address("admin"),
            metrics: ready["metrics"].as_str().map(|address| address.parse().unwrap()),
            http: ready["http"].as_str().map(|address| address.parse().unwrap()),
            https: ready["https"].as_str().map(|address| address.parse().unwrap()),
            agents: ready["agents"].as_str().map(|address| address.parse().unwrap()),
            egress: ready["egress"].as_str().map(|address| address.parse().unwrap()),
            process,
        }
    }

    /// What `dig +short` prints, line by line.
    pub(crate) fn resolve(&self, name: &str, kind: &str) -> Vec<String> {
        let answer = self.dig(&["+short", name, kind]);
        answer.lines().map(str::to_owned).collect()
    }

    pub(crate) fn dig(&self, arguments: &[&str]) -> String {
        let server = format!("@{}", self.dns.ip());
        let port = self.dns.port().to_string();
        let mut dig = Command::new("dig");
        let output = testbed::dig(dig.args([&server, "-p", &port, "+time=30", "+tries=1"]).args(arguments));
        let output = output.expect("dig is there: testbed/install installs it");
        assert!(output.status.success(), "dig {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The output of `fleetgate get`.
    pub(crate) fn get(&self, arguments: &[&str]) -> Output {
        fleetgate().arg("get").args(arguments).args(["--admin", &self.admin.to_string()]).output().unwrap()
    }

    pub(crate) fn get_json(&self, arguments: &[&str]) -> Value {
        let output = self.get(&[arguments, &["-o", "json"]].concat());
        assert!(output.status.success(), "get {arguments:?}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The output of `fleetgate explain`.
    pub(crate) fn explain(&self, arguments: &[&str]) -> Output {
        fleetgate().arg("explain").args(arguments).args(["--admin", &self.admin.to_string()]).output().unwrap()
    }

    /// The status line and body that the admin interface answers with.
    pub(crate) fn http(&self, path: &str, host: &str) -> (u16, String) {
        Self::http_at(self.admin, path, host)
    }

    pub(crate) fn http_at(address: SocketAddr, path: &str, host: &str) -> (u16, String) {
        let mut stream = connect(address);
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// A connection through the door that goes by cluster id, with its header sent.
    pub(crate) fn by_id(&self, id: &str) -> TcpStream {
        let mut stream = connect(self.apiserver);
        let header = Encoder::proxy("192.0.2.1:1".parse().unwrap(), "192.0.2.2:6443".parse().unwrap());
        let header = header.tlv(TLV_HYPERSHIFT_CLUSTER_ID, id.as_bytes()).finish().unwrap();
        stream.write_all(&header).unwrap();
        stream
    }

    pub(crate) fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) -> Duration {
        let begun = Instant::now();
        while !holds(self) {
            assert!(begun.elapsed() < PATIENCE, "never: {what}\n{}", self.process.log_tail());
            self.process.check_running().unwrap();
        }
        begun.elapsed()
    }

    pub(crate) fn terminate(mut self) {
        self.process.signal("TERM").unwrap();
        let status = self.process.wait_for_exit(PATIENCE).unwrap();
        assert!(status.success(), "{status}\n{}", self.process.log_tail());
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// What a server answers to a plain request, over TLS that is verified against `authority` for `name`.
pub(crate) fn ask_over_tls<S>(stream: S, authority: &Path, name: &str) -> Result<String, std::io::Error>
where
    S: Read + Write,
{
    let mut stream = StreamOwned::new(tls_client(authority, name), stream);
    write!(stream, "GET / HTTP/1.1\r\nhost: {name}\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// TLS that is verified against `authority` for `name`.
pub(crate) fn tls_client(authority: &Path, name: &str) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    ClientConnection::new(config, ServerName::try_from(name.to_owned()).unwrap()).unwrap()
}

/// A backend that greets with `name` and echoes whatever comes, until the test ends.
pub(crate) fn echo_backend(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let mut stream = stream?;
                writeln!(stream, "{name}")?;
                let mut reader = stream.try_clone()?;
                std::io::copy(&mut reader, &mut stream)
            });
        }
    });
    address
}

/// One line, without its end.
pub(crate) fn read_line(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut line = Vec::new();
    let mut octet = [0];
    loop {
        stream.read_exact(&mut octet)?;
        match octet[0] {
            b'\n' => return Ok(String::from_utf8_lossy(&line).into_owned()),
            octet => line.push(octet),
        }
    }
}
