//! A front with a table of a test's own, and plain clients for it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use model::identity::Kind;
use model::ingress::{Backend, Certificate, FederationPolicy, PathMatch, Port, RouteOptions, Steering, UpstreamTls};
use model::inside::Place;
use model::routes::{Entry, Host, HttpRoute, HttpTable, Member};
use model::{Digest, DnsName, Location, ObjectRef};
use prometheus_client::registry::Registry;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use web::{Doors, Running, Settings};

/// Longer than anything that a test waits for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Front {
    pub(crate) running: Option<Running>,
    pub(crate) http: SocketAddr,
    pub(crate) https: SocketAddr,
    pub(crate) table: Arc<ArcSwap<HttpTable>>,
    registry: Registry,
}

impl Front {
    pub(crate) fn start(table: HttpTable) -> Self {
        Self::with(table, &Settings { threads: 2, ..Settings::default() })
    }

    pub(crate) fn with(table: HttpTable, settings: &Settings) -> Self {
        let any = "127.0.0.1:0".parse().unwrap();
        let (http, https) = (web::bind(any).unwrap(), web::bind(any).unwrap());
        let addresses = (http.local_addr().unwrap(), https.local_addr().unwrap());
        let table = Arc::new(ArcSwap::from_pointee(table));
        let mut registry = Registry::default();
        let doors = Doors { http: vec![http], https: vec![https] };
        // They would ask members for more than a test does.
        let settings = Settings { checks: false, ..settings.clone() };
        let running = web::start(settings.clone(), doors, &table, &web::Metrics::register(&mut registry)).unwrap();
        Self { running: Some(running), http: addresses.0, https: addresses.1, table, registry }
    }

    pub(crate) fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }

    /// The value of a line of the metrics; 0 while there is none.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = self.metrics();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().unwrap())
    }

    pub(crate) fn wait_for_metric(&self, name: &str, value: u64) {
        wait_for(&format!("{name} {value}"), || self.metric(name) == value);
    }

    pub(crate) fn connect(&self) -> Client {
        Client::to(self.http)
    }
}

pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// An Ingress with one rule for every path of a host.
pub(crate) struct Site {
    pub(crate) host: &'static str,
    pub(crate) tenant: &'static str,
    pub(crate) upstream: UpstreamTls,
    pub(crate) options: RouteOptions,
    pub(crate) members: Vec<SocketAddr>,
    pub(crate) certificate: Option<Arc<Certificate>>,
}

impl Site {
    pub(crate) fn new(host: &'static str, members: &[SocketAddr]) -> Self {
        Self {
            host,
            tenant: "acme",
            upstream: UpstreamTls::Plain,
            options: RouteOptions::default(),
            members: members.to_vec(),
            certificate: None,
        }
    }

    pub(crate) fn table(self) -> HttpTable {
        table([self])
    }

    fn entry(&self) -> Arc<Entry> {
        let members = self.members.iter().enumerate().map(|(number, address)| {
            let cluster = format!("c{number}");
            let (http, https) = (vec![Place::from(*address)], vec![Place::from(*address)]);
            let location = Location::default();
            Arc::new(Member { cluster: cluster.parse().unwrap(), uid: cluster.into(), location, http, https })
        });
        Arc::new(Entry {
            object: ObjectRef {
                kind: Kind::Ingress,
                namespace: Some(self.tenant.parse().unwrap()),
                name: "web".parse().unwrap(),
            },
            tenant: self.tenant.parse().unwrap(),
            backend: Backend { service: "web".parse().unwrap(), port: Port::Number(80) },
            options: Arc::new(self.options.clone()),
            policy: Arc::new(FederationPolicy {
                upstream: self.upstream.clone(),
                steering: Steering::RoundRobin,
                ..FederationPolicy::default()
            }),
            members: members.collect(),
            unready: Arc::new([]),
        })
    }
}

pub(crate) fn table(sites: impl IntoIterator<Item = Site>) -> HttpTable {
    HttpTable::of(sites.into_iter().map(|site| {
        let route = HttpRoute { path: PathMatch::Prefix("/".into()), entry: site.entry() };
        let host = Host::new(site.tenant.parse().unwrap(), vec![route], None, site.certificate.clone());
        (DnsName::parse(site.host).unwrap(), host)
    }))
}

/// An authority of a test's own.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn issue(&self, name: &str) -> Arc<Certificate> {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.serial_number = Some(fastrand::u64(1..).into());
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let (chain, key) = (vec![certificate.der().to_vec()], key.serialize_der());
        let digest = Digest::of_text(&[chain[0].as_slice(), &key].concat());
        Arc::new(Certificate { chain, key, digest })
    }

    /// A key and its certificate in one file, as HAProxy reads them.
    pub(crate) fn issue_pem(&self, name: &str) -> String {
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        certificate.pem() + &key.serialize_pem()
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn der(&self) -> Vec<u8> {
        self.0.der().to_vec()
    }
}

/// A client that says exactly what it is told.
pub(crate) struct Client(pub(crate) TcpStream, Vec<u8>);

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn code(&self) -> Option<&str> {
        self.header("fleetgate-refusal")
    }
}

impl Client {
    pub(crate) fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream, Vec::new())
    }

    pub(crate) fn say(&mut self, octets: impl AsRef<[u8]>) {
        self.0.write_all(octets.as_ref()).unwrap();
    }

    /// To a door that may have closed the connection already.
    pub(crate) fn say_if_open(&mut self, octets: impl AsRef<[u8]>) {
        let _ = self.0.write_all(octets.as_ref());
    }

    /// The next answer; none where the connection ends instead.
    pub(crate) fn hear(&mut self) -> Option<Answer> {
        let end = loop {
            if let Some(at) = self.1.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if self.more() == 0 {
                assert!(self.1.is_empty(), "half an answer: {:?}", String::from_utf8_lossy(&self.1));
                return None;
            }
        };
        let head = String::from_utf8(self.1.drain(..end).collect()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = Answer { status, head, body: String::new() };
        let body = match (answer.header("content-length"), answer.header("transfer-encoding")) {
            _ if status == 101 || status == 304 || status < 200 => Vec::new(),
            (Some(length), _) => self.exactly(length.parse().unwrap()),
            (None, Some(_)) => self.chunks(),
            (None, None) => self.rest(),
        };
        answer.body = String::from_utf8_lossy(&body).into_owned();
        Some(answer)
    }

    pub(crate) fn exactly(&mut self, length: usize) -> Vec<u8> {
        while self.1.len() < length {
            assert!(self.more() > 0, "the body is cut: {:?}", String::from_utf8_lossy(&self.1));
        }
        self.1.drain(..length).collect()
    }

    /// Everything up to the text, which has to come.
    pub(crate) fn until(&mut self, text: &str) {
        while !self.1.windows(text.len()).any(|part| part == text.as_bytes()) {
            assert!(self.more() > 0, "no {text:?} in {:?}", String::from_utf8_lossy(&self.1));
        }
    }

    fn line(&mut self) -> String {
        loop {
            if let Some(at) = self.1.windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = self.1.drain(..at + 2).collect();
                return String::from_utf8_lossy(&line[..at]).into_owned();
            }
            assert!(self.more() > 0, "the body is cut");
        }
    }

    fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let size = usize::from_str_radix(&self.line(), 16).unwrap();
            body.extend(self.exactly(size));
            if size == 0 {
                while !self.line().is_empty() {}
                return body;
            }
            assert_eq!(self.line(), "");
        }
    }

    /// Everything until the connection ends.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.more() > 0 {}
        std::mem::take(&mut self.1)
    }

    fn more(&mut self) -> usize {
        let mut buffer = [0; 16 << 10];
        match self.0.read(&mut buffer) {
            Ok(count) => {
                self.1.extend_from_slice(&buffer[..count]);
                count
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&self.1)),
        }
    }
}

/// What curl prints, and whether it was content.
pub(crate) fn curl(arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "60", "--noproxy", "*"]).args(arguments);
    let output = command.output().expect("curl is installed");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}
