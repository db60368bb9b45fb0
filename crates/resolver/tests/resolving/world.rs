//! A network of the test's own with the cluster's DNS at 10.10.10.10, real servers in it, and both ends of a real link.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use model::resolver::{ClusterDns, ResolverPart, ResolverPlace};
use prometheus_client::registry::Registry;
use resolver::{Metrics, Pods, Resolver, Settings, Wanted};
use testbed::ServingBind;
use tokio_util::sync::CancellationToken;
use tunnel::inside::{AllowList, Dialler, Names};
use tunnel::{Identity, Role};

/// Longer than anything takes; a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// What no hub lets anybody reach is this machine itself: its loopback. So the tests have an address of the cluster's.
pub(crate) const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 10, 10, 10);

/// A port that is free for UDP and TCP now; nobody else is in this network.
pub(crate) fn free_port(ip: IpAddr) -> u16 {
    loop {
        let udp = UdpSocket::bind((ip, 0)).unwrap();
        let port = udp.local_addr().unwrap().port();
        if std::net::TcpListener::bind((ip, port)).is_ok() {
            return port;
        }
    }
}

pub(crate) fn bind(ip: impl Into<IpAddr>, zones: &[(&str, &str)]) -> (SocketAddr, ServingBind) {
    let ip = ip.into();
    let address = SocketAddr::new(ip, free_port(ip));
    (address, testbed::Bind::find().unwrap().serve(address, zones).unwrap())
}

/// What a cluster is told to the resolver as.
pub(crate) fn wanted(cluster: &str, server: SocketAddr, port: u16) -> Wanted {
    let dns = ClusterDns { server, ..ClusterDns::default() };
    let place = Some(ResolverPlace { port, address: None });
    let told = ResolverPart { dns, namespace: Some(cluster.parse().unwrap()), place };
    Wanted { cluster: cluster.parse().unwrap(), uid: "1".into(), part: Arc::new(told) }
}

/// A resolver that listens.
pub(crate) struct World {
    pub(crate) resolver: Resolver,
    pub(crate) hub: tunnel::Hub,
    pub(crate) pods: Pods,
    registry: Registry,
    stop: CancellationToken,
}

impl World {
    pub(crate) fn new(change: impl FnOnce(&mut Settings)) -> Self {
        let mut registry = Registry::default();
        let hub = tunnel::Hub::new("test", tunnel::Metrics::register(&mut registry));
        let mut settings = Settings::new(vec![([127, 0, 0, 1], 9).into()], "hub.test".parse().unwrap());
        settings.listen = Some(([127, 0, 0, 53].into(), "1024-65535".parse().unwrap()));
        change(&mut settings);
        let pods: Pods = Arc::new(ArcSwap::default());
        let metrics = Metrics::register(&mut registry);
        let resolver = Resolver::new(settings, hub.clone(), Arc::clone(&pods), metrics).unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(resolver.clone().run(stop.clone()));
        Self { resolver, hub, pods, registry, stop }
    }

    pub(crate) async fn serve(&self, clusters: Vec<Wanted>) {
        let count = clusters.iter().filter(|wanted| wanted.part.place.is_some()).count();
        self.resolver.set_clusters(clusters);
        let is_bound = || self.resolver.view().iter().filter(|view| view.is_bound).count() == count;
        until("ports are bound", is_bound).await;
    }

    /// A link of the cluster's, until what is returned is dropped or cancelled.
    pub(crate) async fn link(&self, cluster: &str) -> Link {
        let (near, far) = tokio::io::duplex(1 << 16);
        let stop = CancellationToken::new();
        let identity = Identity {
            role: Role::Agent,
            cluster: cluster.parse().unwrap(),
            uid: "1".into(),
            credential: "test".into(),
        };
        let (hub, ends) = (self.hub.clone(), stop.clone());
        tokio::spawn(async move { hub.serve_link(near, identity, ends.cancelled_owned()).await });
        let domain: model::DnsName = "cluster.local".parse().unwrap();
        let dialler = Dialler::new("agent".into(), AllowList::new(Vec::new(), &domain), Names::new(None, domain));
        let ends = stop.clone();
        tokio::spawn(async move {
            let (inside, _hello) = dialler.on_link();
            let metrics = tunnel::Metrics::register(&mut Registry::default());
            let forever = std::future::pending();
            tunnel::server::serve(far, inside, &metrics, forever, ends.cancelled_owned()).await;
        });
        let name: model::ClusterName = cluster.parse().unwrap();
        until("the link is there", || self.hub.clusters().contains(&name)).await;
        Link(stop)
    }

    pub(crate) fn metric(&self, line: &str) -> f64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let found = text.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok());
        found.unwrap_or(0.0)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(crate) struct Link(CancellationToken);

impl Link {
    pub(crate) async fn cut(self, world: &World, cluster: &str) {
        self.0.cancel();
        let name: model::ClusterName = cluster.parse().unwrap();
        until("the link is gone", || !world.hub.clusters().contains(&name)).await;
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What dig shows.
pub(crate) struct Dug {
    pub(crate) text: String,
    pub(crate) took: Duration,
}

impl Dug {
    pub(crate) fn status(&self) -> &str {
        let after = self.text.split("status: ").nth(1).unwrap_or_else(|| panic!("no answer:\n{}", self.text));
        after.split(',').next().unwrap()
    }

    /// The answers: type and data, in order, with blanks between them.
    pub(crate) fn answers(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.records().map(|words| words[3..].join(" ")).collect();
        lines.sort();
        lines
    }

    pub(crate) fn ttls(&self) -> Vec<u32> {
        self.records().map(|words| words[1].parse().unwrap()).collect()
    }

    fn records(&self) -> impl Iterator<Item = Vec<&str>> {
        let section = self.text.split(";; ANSWER SECTION:\n").nth(1).unwrap_or_default();
        section.lines().take_while(|line| !line.is_empty()).map(|line| line.split_whitespace().collect())
    }

    pub(crate) fn has_flag(&self, flag: &str) -> bool {
        let flags = self.text.split("flags: ").nth(1).unwrap_or_default();
        flags.split(';').next().unwrap_or_default().split(' ').any(|found| found == flag)
    }
}

/// Asks at 127.0.0.53, once, and waits for as long as a control plane would.
pub(crate) async fn dig(port: u16, words: &str) -> Dug {
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    let begun = Instant::now();
    let output = tokio::task::spawn_blocking(move || run_dig(port, &words)).await.unwrap();
    Dug { text: String::from_utf8_lossy(&output.stdout).into_owned(), took: begun.elapsed() }
}

fn run_dig(port: u16, words: &[String]) -> Output {
    let mut dig = Command::new("dig");
    dig.args(["@127.0.0.53", "-p", &port.to_string(), "+tries=1", "+time=10", "+nocookie"]).args(words);
    dig.output().unwrap()
}
