//! All clusters that have a control plane here, and their ports.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use model::ClusterName;
use model::resolver::ResolverPart;
use tokio_util::sync::CancellationToken;

use crate::directory::Directory;
use crate::listen;
use crate::metrics::Metrics;
use crate::route::Routes;
use crate::servers::Servers;
use crate::settings::{Settings, SettingsError};
use crate::tenancy::Tenancy;

/// What one cluster's answers may take, however few clusters there are: some thousand.
const MOST_OF_ONE: usize = 4 << 20;
/// How often the gauges of the caches are brought up to date.
const COUNT: Duration = Duration::from_secs(5);

/// Which cluster's control plane a pod of the hub is of, by its address. Pods in the host's network have none of their own, and
/// are never in it.
pub type Pods = Arc<ArcSwap<HashMap<IpAddr, ClusterName>>>;

/// A cluster as the resolver is told of it.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub cluster: ClusterName,
    /// Tells it from a later one of the same name.
    pub uid: Arc<str>,
    pub part: Arc<ResolverPart>,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Resolver(Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) settings: Settings,
    /// By which we know our own questions again.
    pub(crate) process: [u8; 8],
    pub(crate) tunnel: tunnel::Hub,
    pub(crate) directory: ArcSwapOption<Known>,
    pub(crate) upstreams: Servers,
    pub(crate) hub_servers: Servers,
    pub(crate) metrics: Metrics,
    /// Questions under way, of all clusters.
    pub(crate) flights: AtomicUsize,
    pub(crate) pods: Pods,
    /// By name, for who comes to the address that all share.
    pub(crate) tenancies: ArcSwap<HashMap<ClusterName, Arc<Tenancy>>>,
    ports: Mutex<BTreeMap<u16, Port>>,
    /// Clusters with a port outside of our range, as it was last told.
    elsewhere: AtomicUsize,
    stop: CancellationToken,
}

/// A trait object, as the swap wants it.
pub(crate) struct Known(pub(crate) Arc<dyn Directory>);

/// A port that a cluster has.
struct Port {
    /// Whoever has it now.
    tenancy: Arc<ArcSwap<Tenancy>>,
    is_bound: Arc<AtomicBool>,
    stop: CancellationToken,
}

/// A cluster, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterView {
    pub cluster: ClusterName,
    pub port: Option<u16>,
    /// Whether the port is listened on.
    pub is_bound: bool,
    pub questions: u64,
    pub cached: u64,
    pub stale: u64,
    pub failed: u64,
    pub limited: u64,
    pub under_way: usize,
    pub entries: usize,
    pub octets: usize,
}

impl Resolver {
    /// Nothing is listened on before it is told of clusters.
    pub fn new(settings: Settings, tunnel: tunnel::Hub, pods: Pods, metrics: Metrics) -> Result<Self, SettingsError> {
        settings.check()?;
        let mut process = [0; 8];
        fastrand::fill(&mut process);
        Ok(Self(Arc::new(Shared {
            process,
            tunnel,
            directory: ArcSwapOption::empty(),
            upstreams: Servers::new(&settings.upstreams),
            hub_servers: Servers::new(&settings.hub_servers),
            settings,
            metrics,
            flights: AtomicUsize::new(0),
            pods,
            tenancies: ArcSwap::default(),
            ports: Mutex::default(),
            elsewhere: AtomicUsize::new(0),
            stop: CancellationToken::new(),
        })))
    }

    /// Who knows the Services of clusters whose DNS cannot be asked.
    pub fn set_directory(&self, directory: Arc<dyn Directory>) {
        self.0.directory.store(Some(Arc::new(Known(directory))));
    }

    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Opens and closes ports, within a tokio runtime. A cluster that is as it was keeps all it has; one that is another, or
    /// has another DNS, begins with nothing.
    pub fn set_clusters(&self, wanted: impl IntoIterator<Item = Wanted>) {
        let shared = &self.0;
        let wanted: Vec<Wanted> = wanted.into_iter().collect();
        let room = (shared.settings.cache / wanted.len().max(1)).min(MOST_OF_ONE);
        let before = shared.tenancies.load_full();
        let tenancy = |Wanted { cluster, uid, part }: Wanted| {
            let is_same = |known: &&Arc<Tenancy>| {
                known.uid == uid && known.part.dns == part.dns && known.part.namespace == part.namespace
            };
            let place = part.place;
            let known = before.get(&cluster).filter(is_same).cloned();
            let tenancy = known.unwrap_or_else(|| {
                let routes = Routes::new(&part, &shared.settings.hub_domain);
                Arc::new(Tenancy::new(cluster, uid, part, routes, room))
            });
            tenancy.set_room(room);
            (place, tenancy)
        };
        let tenancies: Vec<_> = wanted.into_iter().map(tenancy).collect();
        shared.listen_for(&tenancies);
        let by_name = tenancies.into_iter().map(|(_, tenancy)| (tenancy.cluster.clone(), tenancy));
        shared.tenancies.store(Arc::new(by_name.collect()));
    }

    /// Serves the address that all share, where there is one, and ends with `stop`, as all ports do.
    pub async fn run(self, stop: CancellationToken) {
        let shared = self.0;
        if let Some(address) = shared.settings.shared {
            let is_bound = Arc::new(AtomicBool::new(false));
            tokio::spawn(listen::serve_shared(Arc::clone(&shared), address, is_bound, shared.stop.child_token()));
        }
        let mut ticks = tokio::time::interval(COUNT);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = ticks.tick() => shared.count(),
            }
        }
        shared.stop.cancel();
    }

    /// All clusters, by name.
    pub fn view(&self) -> Vec<ClusterView> {
        let ports = self.0.ports.lock().unwrap_or_else(PoisonError::into_inner);
        let by_cluster: HashMap<ClusterName, (u16, bool)> = ports
            .iter()
            .map(|(number, port)| {
                (port.tenancy.load().cluster.clone(), (*number, port.is_bound.load(Ordering::Acquire)))
            })
            .collect();
        drop(ports);
        let view = |tenancy: &Arc<Tenancy>| {
            let (entries, octets, under_way) = tenancy.load();
            let port = by_cluster.get(&tenancy.cluster);
            let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
            let counts = &tenancy.counts;
            ClusterView {
                cluster: tenancy.cluster.clone(),
                port: port.map(|(number, _)| *number),
                is_bound: port.is_some_and(|(_, is_bound)| *is_bound),
                questions: count(&counts.questions),
                cached: count(&counts.cached),
                stale: count(&counts.stale),
                failed: count(&counts.failed),
                limited: count(&counts.limited),
                under_way,
                entries,
                octets,
            }
        };
        let mut views: Vec<_> = self.0.tenancies.load().values().map(view).collect();
        views.sort_by(|one, other| one.cluster.cmp(&other.cluster));
        views
    }
}

impl Shared {
    fn listen_for(self: &Arc<Self>, tenancies: &[(Option<model::resolver::ResolverPlace>, Arc<Tenancy>)]) {
        let Some((address, range)) = &self.settings.listen else { return };
        let in_range = |place: &model::resolver::ResolverPlace| range.contains(place.port);
        let elsewhere =
            tenancies.iter().filter(|(place, _)| place.as_ref().is_some_and(|place| !in_range(place))).count();
        if self.elsewhere.swap(elsewhere, Ordering::Relaxed) != elsewhere && elsewhere > 0 {
            tracing::warn!(clusters = elsewhere, %range, "clusters have ports outside of --resolver: nobody answers there");
        }
        let wanted: BTreeMap<u16, &Arc<Tenancy>> =
            tenancies.iter().filter_map(|(place, tenancy)| Some(((*place).filter(in_range)?.port, tenancy))).collect();
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        ports.retain(|number, port| {
            let stays = wanted.contains_key(number);
            if !stays {
                port.stop.cancel();
            }
            stays
        });
        for (number, tenancy) in wanted {
            if let Some(port) = ports.get(&number) {
                port.tenancy.store(Arc::clone(tenancy));
                continue;
            }
            let port = Port {
                tenancy: Arc::new(ArcSwap::new(Arc::clone(tenancy))),
                is_bound: Arc::new(AtomicBool::new(false)),
                stop: self.stop.child_token(),
            };
            let at = SocketAddr::new(*address, number);
            let (holder, is_bound, stop) = (Arc::clone(&port.tenancy), Arc::clone(&port.is_bound), port.stop.clone());
            tokio::spawn(listen::serve_port(Arc::clone(self), at, holder, is_bound, stop));
            ports.insert(number, port);
        }
        self.metrics.clusters.set(i64::try_from(ports.len()).unwrap_or(i64::MAX));
    }

    fn count(&self) {
        let (mut entries, mut octets) = (0, 0);
        for tenancy in self.tenancies.load().values() {
            let load = tenancy.load();
            entries += load.0;
            octets += load.1;
        }
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.cache_entries.set(number(entries));
        self.metrics.cache_octets.set(number(octets));
        let ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        let unbound = ports.values().filter(|port| !port.is_bound.load(Ordering::Acquire)).count();
        self.metrics.unbound.set(number(unbound));
    }
}
