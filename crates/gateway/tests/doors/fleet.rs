//! A small fleet: control planes that say who they are, the snapshot that leads to them, and a door that is served.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use gateway::explain::{Explanation, Question, Wanted};
use gateway::limits::openings::OpeningLimits;
use gateway::proxy_header::{Encoder, TLV_HYPERSHIFT_CLUSTER_ID};
use gateway::{Door, DoorKind, Inward, Metrics, Serving, Timeouts};
use model::inside::Inside;
use model::resource::{Cluster, IngressController, IngressMode, Limits, Nameserver, Quota, Tenant, Upstream, Zone};
use model::{Fact, FactChange, Location, Planner, Proof, Since, Snapshot, Timestamp};
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;

/// Long enough for the slowest machine: reached only by a test that fails.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it should not take this long")
}

pub(crate) struct Fleet {
    pub(crate) address: SocketAddr,
    pub(crate) snapshot: Arc<ArcSwap<Snapshot>>,
    serving: Option<Serving>,
    drain: Duration,
    registry: Registry,
}

/// What a test may want otherwise.
pub(crate) struct Settings {
    pub(crate) timeouts: Timeouts,
    pub(crate) max_connections: usize,
    pub(crate) cut_disallowed: bool,
    pub(crate) trusted_proxies: &'static [&'static str],
    pub(crate) openings: OpeningLimits,
    pub(crate) drain: Duration,
    pub(crate) inward: Option<Inward>,
}

impl Default for Settings {
    fn default() -> Self {
        let timeouts = Timeouts { opening: PATIENCE, connect: PATIENCE, ..Timeouts::default() };
        Self {
            timeouts,
            max_connections: 1000,
            cut_disallowed: true,
            trusted_proxies: &[],
            openings: OpeningLimits::default(),
            drain: PATIENCE,
            inward: None,
        }
    }
}

impl Fleet {
    pub(crate) fn start(kind: DoorKind, snapshot: Snapshot) -> Self {
        Self::start_with(kind, snapshot, &Settings::default())
    }

    pub(crate) fn start_with(kind: DoorKind, snapshot: Snapshot, settings: &Settings) -> Self {
        let door = Door::bind("127.0.0.1:0".parse().unwrap(), kind).unwrap();
        let address = door.address();
        let snapshot = Arc::new(ArcSwap::from_pointee(snapshot));
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let Settings { timeouts, max_connections, cut_disallowed, trusted_proxies, drain, .. } = *settings;
        let trusted_proxies = trusted_proxies.iter().map(|range| range.parse().unwrap()).collect();
        let settings = gateway::Settings {
            timeouts,
            max_connections,
            cut_disallowed,
            trusted_proxies,
            openings: settings.openings.clone(),
            inward: settings.inward.clone(),
            threads: 2,
            ..gateway::Settings::default()
        };
        let serving = Some(gateway::serve(vec![door], &snapshot, &metrics, &settings).unwrap());
        Self { address, snapshot, serving, drain, registry }
    }

    /// Begins to end; what it returns is finished when the doors are.
    pub(crate) fn shut_down(&mut self) -> JoinHandle<()> {
        let (serving, drain) = (self.serving.take().unwrap(), self.drain);
        tokio::task::spawn_blocking(move || serving.drain(drain))
    }

    pub(crate) fn explain(&self, wants: Wanted, from: Option<&str>) -> Explanation {
        let from = from.map(|from| from.parse().unwrap());
        self.serving.as_ref().unwrap().insight().explain(&Question { wants, from }, Instant::now())
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        soon(TcpStream::connect(self.address)).await.unwrap()
    }

    /// A connection that has sent a header which selects `id`.
    pub(crate) async fn select(&self, id: &str) -> TcpStream {
        let mut client = self.connect().await;
        client.write_all(&header(id)).await.unwrap();
        client
    }

    /// What `/metrics` would show.
    pub(crate) fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }

    /// The value of the metric whose line begins with this.
    pub(crate) fn metric(&self, line_start: &str) -> Option<u64> {
        let text = self.metrics();
        let line = text.lines().find_map(|line| line.strip_prefix(line_start))?;
        Some(line.trim().parse().unwrap())
    }

    /// How many connections ended with this outcome.
    pub(crate) fn outcomes(&self, door: &str, outcome: &str) -> u64 {
        let line = format!("fleetgate_gateway_connections_total{{door=\"{door}\",outcome=\"{outcome}\"}}");
        self.metric(&line).unwrap_or(0)
    }
}

pub(crate) fn header(id: &str) -> Vec<u8> {
    let client = "192.0.2.7:40000".parse().unwrap();
    let destination = "172.20.0.1:6443".parse().unwrap();
    Encoder::proxy(client, destination).tlv(TLV_HYPERSHIFT_CLUSTER_ID, id.as_bytes()).finish().unwrap()
}

/// A control plane that greets with its name and then sends back what it receives.
pub(crate) async fn backend(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                stream.write_all(name.as_bytes()).await.unwrap();
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    address
}

/// An address where nobody listens, nor ever will: it stays bound until the tests end.
pub(crate) fn nobody() -> SocketAddr {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    std::mem::forget(socket);
    address
}

/// Sends `text` and wants it back.
pub(crate) async fn echo(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
    expect(stream, text).await;
}

/// Wants exactly these bytes next.
pub(crate) async fn expect(stream: &mut TcpStream, text: &str) {
    let mut buffer = vec![0; text.len()];
    soon(stream.read_exact(&mut buffer)).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&buffer), text);
}

/// Wants the connection closed without a byte; a reset is a close too.
pub(crate) async fn expect_closed(stream: &mut TcpStream) {
    let mut buffer = [0; 64];
    match soon(stream.read(&mut buffer)).await {
        Ok(0) => {}
        Ok(length) => panic!("received {:?}", &buffer[..length]),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
}

pub(crate) struct Member {
    pub(crate) name: &'static str,
    pub(crate) upstreams: Vec<SocketAddr>,
    pub(crate) allowed: &'static [&'static str],
    pub(crate) proof: Proof,
    pub(crate) limits: Limits,
    /// Where its ingress controller is, if that is reached through the tunnel.
    pub(crate) inside: Option<Inside>,
}

impl Member {
    pub(crate) fn new(name: &'static str, upstream: SocketAddr) -> Self {
        let (allowed, proof, limits) = (&["0.0.0.0/0", "::/0"][..], Proof::default(), Limits::default());
        Self { name, upstreams: vec![upstream], allowed, proof, limits, inside: None }
    }
}

/// What a planner makes of these clusters; the id of `c1` is `id-c1`, its API server `api.c1.fleet.example`.
pub(crate) fn snapshot(members: impl IntoIterator<Item = Member>) -> Snapshot {
    let zone = Zone {
        name: "main".parse().unwrap(),
        domain: "fleet.example".parse().unwrap(),
        nameservers: vec![Nameserver {
            name: "ns1.fleet.example".parse().unwrap(),
            addresses: vec!["192.0.2.53".parse().unwrap()],
        }],
        ttl: 30,
        api: "api.{cluster}".parse().unwrap(),
        apps: "*.{cluster}".parse().unwrap(),
        gateway: None,
        authoritative: true,
        zone_file: None,
        grace: Duration::from_mins(1),
        max_share: 1.0,
        released: None,
        hand_out: false,
        hindrance: None,
    };
    let tenant = Tenant {
        name: "acme".parse().unwrap(),
        namespace: "acme".parse().unwrap(),
        domains: Vec::new(),
        released: None,
        allowed_names: None,
        allowed_targets: Vec::new(),
        quota: Quota::default(),
        limits: Limits::default(),
    };
    let common = [
        FactChange::Zone(zone.name.clone(), Some(fact(zone))),
        FactChange::Tenant(tenant.name.clone(), Some(fact(tenant))),
    ];
    let clusters = members.into_iter().map(|member| {
        let cluster = cluster(member);
        FactChange::Cluster(cluster.name.clone(), Some(fact(cluster)))
    });
    let planned = Planner::default().apply(common.into_iter().chain(clusters), Timestamp(1));
    Snapshot::clone(&planned.snapshot)
}

fn cluster(member: Member) -> Cluster {
    Cluster {
        name: member.name.parse().unwrap(),
        labels: std::collections::BTreeMap::default(),
        tenant: "acme".parse().unwrap(),
        zone: "main".parse().unwrap(),
        id: format!("id-{}", member.name).parse().unwrap(),
        location: Location::default(),
        api_server: Upstream::Addresses(member.upstreams),
        services: Vec::new(),
        nodes: Arc::default(),
        ingress: if member.inside.is_some() { IngressMode::Hub } else { IngressMode::Nodes },
        controller: IngressController {
            inside: Arc::new(member.inside.unwrap_or_default()),
            ..IngressController::default()
        },
        allowed_sources: member.allowed.iter().map(|range| range.parse().unwrap()).collect(),
        proof: Arc::new(member.proof),
        limits: member.limits,
        access: None,
        resolver: model::resolver::ResolverPart::default(),
        kept: None,
        drained: None,
        hindrance: None,
        closed: None,
    }
}

fn fact<T>(value: T) -> Fact<T> {
    Fact::new(Since::at(Timestamp(1)), value)
}
