//! Services of tenant clusters, looked up one by one: what the control planes' resolver answers with while a cluster's own DNS
//! cannot be asked, because there is no node yet or no way to it.
//!
//! One GET, or two where a Service is headless, at the tenant's API server, by the kubeconfig that its nodes are followed with. What
//! was found counts for five seconds, and whoever asks for the same meanwhile waits for the same answer. A cluster has one connection
//! for it and some places to wait: one that hangs slows no other.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use kube::api::{GetParams, ListParams};
use kube::core::request::Request;
use model::identity::is_label;
use model::{ClusterName, DnsName};
use serde::{Deserialize, Serialize};
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::{Instant, sleep, timeout};

use super::away::Away;
use super::link::{Answer, Link, whole};
use super::watch::fitting;
use super::{Access, CONNECTS, Wish};
use crate::kubeconfig::{self, Policy, Server};

/// Who asks the resolver waits for five seconds at most, and may ask another time.
const WITHIN: Duration = Duration::from_secs(2);
/// As long as the resolver's own answers are good for.
const FRESH: Duration = Duration::from_secs(5);
/// A server that is away is not asked again at once.
const FAILED_FOR: Duration = Duration::from_secs(1);
/// A connection that nobody has used for so long is closed.
const IDLE: Duration = Duration::from_secs(15);
/// Of one cluster: what was found or is being looked for. A control plane asks for some dozens.
const MOST_KNOWN: usize = 1024;
/// Of one cluster: who waits for its server.
const MOST_WAITING: usize = 64;
/// Slices with a hundred endpoints each have a fifth of it.
const MOST_OF_SLICES: usize = 1024 * 1024;
/// An answer with more is of no use to who asks DNS for one.
const MOST_ENDPOINTS: usize = 200;
const MOST_PORTS: usize = 100;
const MOST_ADDRESSES: usize = 8;
/// Slices of one Service that are looked at.
const MOST_SLICES: u32 = 20;

/// A Service, as far as DNS knows of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceView {
    /// None where it is headless.
    pub cluster_ips: Vec<IpAddr>,
    /// Of a Service of the type `ExternalName`.
    pub external_name: Option<String>,
    pub ports: Vec<PortView>,
    /// Of headless Services: those that are ready, or all where the Service wants them published before that.
    pub endpoints: Vec<EndpointView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PortView {
    /// Empty where it has no name.
    pub name: String,
    pub protocol: String,
    pub port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointView {
    pub address: IpAddr,
    pub hostname: Option<String>,
    pub ports: Vec<PortView>,
}

/// Why nobody can tell: for logs, and in words of ours alone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotKnown(pub String);

type Found = Result<Option<Arc<ServiceView>>, NotKnown>;

/// Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Directory(Arc<Shared>);

struct Shared {
    policy: Policy,
    clusters: Mutex<HashMap<ClusterName, Arc<Line>>>,
    connects: Semaphore,
}

impl Directory {
    pub fn new(policy: Policy) -> Self {
        let (clusters, connects) = (Mutex::default(), Semaphore::new(CONNECTS));
        Self(Arc::new(Shared { policy, clusters, connects }))
    }

    /// Hears how each cluster is read.
    pub fn take(&self, wish: &Wish) {
        let mut clusters = self.0.lock();
        match wish {
            Wish::Follow(cluster, subject) => {
                if clusters.get(cluster).is_none_or(|line| line.access != subject.access) {
                    clusters.insert(cluster.clone(), Arc::new(Line::new(subject.access.clone())));
                }
            }
            Wish::Clear(cluster, _) | Wish::Leave(cluster) => _ = clusters.remove(cluster),
        }
    }

    /// `Ok(None)` only where the API server said that there is none.
    pub async fn service(&self, cluster: &ClusterName, namespace: &str, name: &str) -> Found {
        let line = self.0.lock().get(cluster).cloned();
        let line = line.ok_or_else(|| NotKnown("the Cluster has no spec.access".into()))?;
        if !is_label(namespace) || !is_label(name) {
            return Ok(None);
        }
        let cell = line.known(namespace, name, Instant::now())?;
        let look = async {
            let Ok(_place) = line.waiting.try_acquire() else {
                return Err(NotKnown(format!("more than {MOST_WAITING} wait for its API server")));
            };
            let found = timeout(WITHIN, line.look_up(&self.0, namespace, name)).await;
            let found = found.unwrap_or(Err(Away::TimedOut));
            found.map(|view| view.map(Arc::new)).map_err(|away| NotKnown(away.to_string()))
        };
        let found = cell.get_or_init(|| look).await.clone();
        if found.is_err() {
            line.forget_failed(namespace, name, &cell);
        }
        found
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterName, Arc<Line>>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// By namespace and name.
type Table = HashMap<(Box<str>, Box<str>), Known>;

/// One cluster.
struct Line {
    access: Access,
    /// What its kubeconfig says, once somebody asked.
    server: OnceLock<Result<Arc<Server>, NotKnown>>,
    link: tokio::sync::Mutex<Option<Used>>,
    waiting: Semaphore,
    known: Mutex<Table>,
}

struct Used {
    link: Link,
    last: Instant,
}

#[derive(Clone)]
struct Known {
    until: Instant,
    found: Arc<OnceCell<Found>>,
}

impl Line {
    fn new(access: Access) -> Self {
        let (server, link) = (OnceLock::new(), tokio::sync::Mutex::new(None));
        Self { access, server, link, waiting: Semaphore::new(MOST_WAITING), known: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known, or is being looked for, or is to be.
    fn known(&self, namespace: &str, name: &str, now: Instant) -> Result<Arc<OnceCell<Found>>, NotKnown> {
        let mut known = self.lock();
        let place = (namespace.into(), name.into());
        if let Some(known) = known.get(&place).filter(|known| known.until > now) {
            return Ok(Arc::clone(&known.found));
        }
        if known.len() >= MOST_KNOWN {
            known.retain(|_, known| known.until > now);
        }
        if known.len() >= MOST_KNOWN {
            return Err(NotKnown(format!("more than {MOST_KNOWN} of its Services are asked for at once")));
        }
        let found = Arc::new(OnceCell::new());
        known.insert(place, Known { until: now + FRESH, found: Arc::clone(&found) });
        Ok(found)
    }

    fn forget_failed(&self, namespace: &str, name: &str, cell: &Arc<OnceCell<Found>>) {
        if let Some(known) = self.lock().get_mut(&(namespace.into(), name.into()))
            && Arc::ptr_eq(&known.found, cell)
        {
            known.until = known.until.min(Instant::now() + FAILED_FOR);
        }
    }

    async fn look_up(
        self: &Arc<Self>,
        shared: &Shared,
        namespace: &str,
        name: &str,
    ) -> Result<Option<ServiceView>, Away> {
        let server = self.server(shared)?;
        let mut used = self.link.lock().await;
        if let Some(Used { link, last }) = used.as_mut().filter(|used| used.last.elapsed() < IDLE) {
            match ask(link, namespace, name).await {
                // It was closed just now: that says nothing about the server.
                Err(Away::Broken) => {}
                found => {
                    *last = Instant::now();
                    if found.is_err() {
                        *used = None;
                    }
                    return found;
                }
            }
        }
        *used = None;
        // The semaphore is never closed; without it there would only be no bound.
        let place = shared.connects.acquire().await.ok();
        let mut link = Link::open(server, shared.policy).await?;
        drop(place);
        let found = ask(&mut link, namespace, name).await?;
        *used = Some(Used { link, last: Instant::now() });
        tokio::spawn(close_idle(Arc::downgrade(self)));
        Ok(found)
    }

    fn server(&self, shared: &Shared) -> Result<Arc<Server>, Away> {
        let read = || {
            let octets = self.access.kubeconfig.as_ref().map_err(|why| NotKnown(why.to_string()))?;
            let server = kubeconfig::read(&self.access.secret, octets, shared.policy);
            server.map(Arc::new).map_err(|refusal| NotKnown(refusal.to_string()))
        };
        // The status of the Cluster says what is wrong with it.
        self.server.get_or_init(read).clone().map_err(|_| Away::Malformed("its kubeconfig cannot be used"))
    }
}

async fn close_idle(line: Weak<Line>) {
    loop {
        sleep(IDLE).await;
        let Some(line) = line.upgrade() else { return };
        // Somebody is using it.
        let Ok(mut used) = line.link.try_lock() else { continue };
        if used.as_ref().is_none_or(|used| used.last.elapsed() >= IDLE) {
            *used = None;
            return;
        }
    }
}

async fn ask(link: &mut Link, namespace: &str, name: &str) -> Result<Option<ServiceView>, Away> {
    let path = format!("/api/v1/namespaces/{namespace}/services");
    let service = match link.send(fitting(Request::new(path).get(name, &GetParams::default()))?).await? {
        Answer::Done(octets) => service(&octets)?,
        Answer::NotDone(404, octets) if is_not_found(&octets) => return Ok(None),
        Answer::NotDone(status, _) => return Err(Away::of_status(status)),
    };
    let Described { mut view, is_headless, publishes_all } = service;
    if is_headless {
        let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
        let labels = format!("kubernetes.io/service-name={name}");
        let params = ListParams::default().labels(&labels).limit(MOST_SLICES);
        let answer = link.get(fitting(Request::new(path).list(&params))?).await?;
        let octets = whole(answer, MOST_OF_SLICES, "1 MiB of EndpointSlices for one Service").await?;
        view.endpoints = endpoints(&octets, publishes_all)?;
    }
    Ok(Some(view))
}

struct Described {
    view: ServiceView,
    is_headless: bool,
    publishes_all: bool,
}

/// The server itself must say so: what has no such path says 404 too.
fn is_not_found(octets: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Status {
        kind: String,
        reason: Option<String>,
    }
    let status: Result<Status, _> = serde_json::from_slice(octets);
    status.is_ok_and(|status| status.kind == "Status" && status.reason.as_deref() == Some("NotFound"))
}

fn service(octets: &[u8]) -> Result<Described, Away> {
    #[derive(Deserialize)]
    struct Service {
        spec: Spec,
    }
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Spec {
        #[serde(rename = "type")]
        kind: Option<String>,
        #[serde(rename = "clusterIP")]
        cluster_ip: Option<String>,
        #[serde(rename = "clusterIPs")]
        cluster_ips: Option<Vec<String>>,
        external_name: Option<String>,
        publish_not_ready_addresses: Option<bool>,
        ports: Option<Vec<Port>>,
    }

    let service: Service = serde_json::from_slice(octets).map_err(|_| Away::Malformed("it sends no Service"))?;
    let Spec { kind, cluster_ip, cluster_ips, external_name, publish_not_ready_addresses, ports } = service.spec;
    let addresses = cluster_ips.unwrap_or_else(|| cluster_ip.into_iter().collect());
    let is_external = kind.as_deref() == Some("ExternalName");
    let is_headless = !is_external && addresses.iter().any(|address| address == "None");
    let addresses = addresses.iter().filter_map(|address| address.parse().ok()).take(MOST_ADDRESSES);
    let view = ServiceView {
        cluster_ips: if is_external { Vec::new() } else { addresses.collect() },
        external_name: external_name.filter(|name| is_external && name.parse::<DnsName>().is_ok()),
        ports: Port::views(ports),
        endpoints: Vec::new(),
    };
    Ok(Described { view, is_headless, publishes_all: publish_not_ready_addresses.unwrap_or(false) })
}

fn endpoints(octets: &[u8], publishes_all: bool) -> Result<Vec<EndpointView>, Away> {
    #[derive(Deserialize)]
    struct List {
        items: Option<Vec<Slice>>,
    }
    #[derive(Deserialize)]
    struct Slice {
        ports: Option<Vec<Port>>,
        endpoints: Option<Vec<Endpoint>>,
    }
    #[derive(Deserialize)]
    struct Endpoint {
        addresses: Option<Vec<String>>,
        hostname: Option<String>,
        conditions: Option<Conditions>,
    }
    #[derive(Deserialize)]
    struct Conditions {
        ready: Option<bool>,
    }

    let list: List = serde_json::from_slice(octets).map_err(|_| Away::Malformed("it sends no list"))?;
    let mut views = Vec::new();
    for Slice { ports, endpoints } in list.items.into_iter().flatten() {
        let ports = Port::views(ports);
        for Endpoint { addresses, hostname, conditions } in endpoints.into_iter().flatten() {
            // Kubernetes: what says nothing of being ready is to be taken as ready.
            let is_ready = conditions.and_then(|conditions| conditions.ready).unwrap_or(true);
            // All addresses of an endpoint are the same: the first counts.
            let address = addresses.and_then(|addresses| addresses.first()?.parse().ok());
            if let Some(address) = address.filter(|_| is_ready || publishes_all) {
                let hostname = hostname.filter(|hostname| is_label(hostname));
                views.push(EndpointView { address, hostname, ports: ports.clone() });
            }
            if views.len() == MOST_ENDPOINTS {
                return Ok(views);
            }
        }
    }
    Ok(views)
}

#[derive(Deserialize)]
struct Port {
    name: Option<String>,
    protocol: Option<String>,
    #[serde(rename = "port")]
    number: Option<i64>,
}

impl Port {
    fn views(ports: Option<Vec<Self>>) -> Vec<PortView> {
        let view = |Self { name, protocol, number }| {
            let name = name.unwrap_or_default();
            let protocol = protocol.unwrap_or_else(|| "TCP".to_owned());
            let is_known = ["TCP", "UDP", "SCTP"].contains(&protocol.as_str());
            let port = number.and_then(|number| u16::try_from(number).ok())?;
            (is_known && (name.is_empty() || is_label(&name))).then_some(PortView { name, protocol, port })
        };
        ports.into_iter().flatten().filter_map(view).take(MOST_PORTS).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: &Value) -> (String, bool) {
        let Described { view, is_headless, .. } = service(json!({ "spec": spec }).to_string().as_bytes()).unwrap();
        let ips: Vec<_> = view.cluster_ips.iter().map(ToString::to_string).collect();
        let ports: Vec<_> =
            view.ports.iter().map(|port| format!("{}/{}/{}", port.name, port.protocol, port.port)).collect();
        (format!("{} {} {}", ips.join(","), view.external_name.unwrap_or_default(), ports.join(",")), is_headless)
    }

    #[test]
    fn services_are_read_and_nothing_else_of_them() {
        for (spec, expected, is_headless) in [
            (
                json!({ "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"], "ports": [{ "name": "https", "port": 443 }] }),
                "10.96.0.1,fd00::1  https/TCP/443",
                false,
            ),
            (
                json!({ "clusterIP": "10.96.0.10", "ports": [{ "name": "dns", "port": 53, "protocol": "UDP" }, { "port": 70_000 }, { "name": "No Name", "port": 1 }] }),
                "10.96.0.10  dns/UDP/53",
                false,
            ),
            (json!({ "clusterIP": "None", "clusterIPs": ["None"] }), "  ", true),
            (json!({ "type": "ExternalName", "externalName": "db.example.com" }), " db.example.com ", false),
            (json!({ "type": "ExternalName", "externalName": "not a name..", "clusterIP": "10.0.0.1" }), "  ", false),
            (json!({}), "  ", false),
        ] {
            assert_eq!(read(&spec), (expected.to_owned(), is_headless), "{spec}");
        }
        for bad in ["", "[]", "{}", r#"{"spec": 7}"#] {
            assert!(matches!(service(bad.as_bytes()), Err(Away::Malformed(_))), "{bad}");
        }
    }

    #[test]
    fn endpoints_of_headless_services_are_those_that_are_ready() {
        let endpoint = |address: &str, ready: Value| json!({ "addresses": [address], "hostname": "etcd-0", "conditions": { "ready": ready } });
        let list = json!({ "items": [
            { "ports": [{ "name": "client", "port": 2379 }], "endpoints": [endpoint("10.0.0.1", json!(true)), endpoint("10.0.0.2", json!(false))] },
            { "endpoints": [{ "addresses": ["10.0.0.3", "10.0.0.4"], "hostname": "Not.A.Label" }, { "addresses": ["nowhere"] }] },
        ]});
        let octets = list.to_string().into_bytes();
        let addresses = |all| -> Vec<String> {
            endpoints(&octets, all).unwrap().iter().map(|endpoint| endpoint.address.to_string()).collect()
        };
        assert_eq!(addresses(false), ["10.0.0.1", "10.0.0.3"]);
        assert_eq!(addresses(true), ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
        let views = endpoints(&octets, false).unwrap();
        assert_eq!((views[0].hostname.as_deref(), views[1].hostname.as_deref()), (Some("etcd-0"), None));
        assert_eq!(views[0].ports, [PortView { name: "client".into(), protocol: "TCP".into(), port: 2379 }]);
        let many: Vec<Value> = (0..1000).map(|_| endpoint("10.0.0.1", json!(true))).collect();
        let many = json!({ "items": [{ "endpoints": many }] }).to_string();
        assert_eq!(endpoints(many.as_bytes(), false).unwrap().len(), MOST_ENDPOINTS);
    }

    #[test]
    fn only_an_api_server_says_that_there_is_none() {
        for (body, is) in [
            (r#"{"kind":"Status","reason":"NotFound","code":404}"#, true),
            (r#"{"kind":"Status","reason":"Forbidden"}"#, false),
            ("404 page not found", false),
            ("", false),
        ] {
            assert_eq!(is_not_found(body.as_bytes()), is, "{body}");
        }
    }
}
