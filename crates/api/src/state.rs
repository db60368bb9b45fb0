//! What the interface shows: published by the control side, only read here.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};
use model::Snapshot;
use model::overflow::desk::FRESH;
use model::overflow::{Failing, Tables};
use prometheus_client::registry::Registry;
use store::{Database, FolderError, RefusedFile};

use crate::access::AdminCredential;
use crate::agents::{Door, Reports, Verdicts};
use crate::history::History;
use crate::orders::Orders;

pub struct State {
    pub snapshot: Arc<ArcSwap<Snapshot>>,
    pub index: Arc<ArcSwap<dns::Index>>,
    /// The last DNS queries, as they were answered.
    pub recent: dns::Recent,
    /// What the doors know; there once they are open.
    pub insight: OnceLock<Arc<gateway::Insight>>,
    /// The same of the HTTP doors.
    pub web: OnceLock<Arc<web::Insight>>,
    /// What doors and DNS count; there once they are open.
    pub meters: OnceLock<Meters>,
    /// Where they listen.
    pub doors: OnceLock<Doors>,
    /// What DNS chooses by.
    pub guides: dns::Guides,
    /// Away while another process takes over.
    pub database: Arc<ArcSwapOption<Database>>,
    pub folder: ArcSwap<FolderState>,
    pub registry: Registry,
    /// There once it is open, where it was asked for.
    pub agents: OnceLock<Arc<Door>>,
    /// For the agents that wait for them.
    pub verdicts: Arc<Verdicts>,
    /// What agents say of the load of their clusters.
    pub reports: Arc<Reports>,
    /// What follows from that, and from what edges count.
    pub tables: Arc<ArcSwap<Tables>>,
    /// Set once.
    pub links: OnceLock<tunnel::Hub>,
    /// Set once, on a hub.
    pub peers: OnceLock<crate::peers::View>,
    /// Set once, where this process resolves for control planes.
    pub resolver: OnceLock<crate::peers::View>,
    /// Set once, where this process may write down what an operator orders.
    pub orders: OnceLock<Arc<dyn Orders>>,
    /// What has changed of late.
    pub history: Arc<History>,
    /// Set once, where there is one.
    pub admin_credential: OnceLock<AdminCredential>,
    ready: AtomicBool,
    informed: AtomicBool,
    whole: Arc<AtomicBool>,
}

/// Where doors listen, of those that this process has.
#[derive(Debug, Clone, Copy, Default)]
pub struct Doors {
    pub sni: Option<SocketAddr>,
    pub http: Option<SocketAddr>,
    /// The same as `sni` where both share an address.
    pub https: Option<SocketAddr>,
}

/// What is counted, for those who show how much there is.
#[derive(Debug, Clone)]
pub struct Meters {
    pub(crate) dns: dns::Metrics,
    pub(crate) gateway: gateway::Metrics,
    pub(crate) web: web::Metrics,
}

impl Meters {
    pub fn new(dns: &dns::Metrics, gateway: &gateway::Metrics, web: &web::Metrics) -> Self {
        Self { dns: dns.clone(), gateway: gateway.clone(), web: web.clone() }
    }
}

/// What is wrong with the folder.
#[derive(Debug, Clone, Default)]
pub struct FolderState {
    pub refused: Vec<RefusedFile>,
    pub error: Option<FolderError>,
}

impl State {
    pub fn new(
        snapshot: Arc<ArcSwap<Snapshot>>,
        index: Arc<ArcSwap<dns::Index>>,
        database: Arc<Database>,
        registry: Registry,
    ) -> Self {
        let database = Arc::new(ArcSwapOption::new(Some(database)));
        let (insight, folder) = (OnceLock::new(), ArcSwap::default());
        let (ready, informed, whole) = (AtomicBool::new(false), AtomicBool::new(false), Arc::default());
        let recent = dns::Recent::default();
        let (agents, verdicts, admin_credential) = (OnceLock::new(), Arc::default(), OnceLock::new());
        Self {
            snapshot,
            index,
            recent,
            insight,
            web: OnceLock::new(),
            meters: OnceLock::new(),
            doors: OnceLock::new(),
            guides: dns::Guides::default(),
            database,
            folder,
            registry,
            agents,
            verdicts,
            reports: Arc::default(),
            tables: Arc::default(),
            links: OnceLock::new(),
            peers: OnceLock::new(),
            resolver: OnceLock::new(),
            orders: OnceLock::new(),
            history: Arc::default(),
            admin_credential,
            ready,
            informed,
            whole,
        }
    }

    /// The members that fail their checks, as far as that was agreed upon of late.
    pub(crate) fn failing(&self) -> Failing {
        let tables = self.tables.load();
        let now = crate::agents::load::now();
        if now < tables.at.saturating_add(FRESH) { tables.failing() } else { Failing::new() }
    }

    /// Whether new work may be sent here: set once everything listens, taken back first when the process ends.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Release);
    }

    /// Something is known of the fleet, be it from an earlier process: without, every answer would be a wrong no.
    pub fn set_informed(&self) {
        self.informed.store(true, Ordering::Release);
    }

    pub fn is_informed(&self) -> bool {
        self.informed.load(Ordering::Acquire)
    }

    /// All of the fleet has been read: who is not in it is gone.
    pub fn set_whole(&self) {
        self.whole.store(true, Ordering::Release);
    }

    /// Whether that was said.
    pub fn whole(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.whole)
    }

    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire) && self.is_informed()
    }
}
