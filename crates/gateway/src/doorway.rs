//! What all connections of one door share, whichever thread has them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use model::snapshot::Route;
use model::{Cidr, Snapshot};

use crate::address::PeerAddr;
use crate::balance::Upstreams;
use crate::hub::Hub;
use crate::inward::Inward;
use crate::limits::Admissions;
use crate::listen::{DoorKind, Settings, Terminate};
use crate::metrics::DoorMetrics;
use crate::proof::Replays;

pub(crate) struct Doorway {
    pub(crate) kind: DoorKind,
    pub(crate) way: Way,
    pub(crate) metrics: DoorMetrics,
    pub(crate) max_connections: usize,
    /// How often all addresses of a control plane are tried.
    pub(crate) rounds: usize,
    trusted_proxies: Arc<[Cidr]>,
    /// The way to the agents' door, where this process has one.
    pub(crate) agents: Option<Arc<Route>>,
    /// Who takes connections that are not passed through, where somebody does.
    pub(crate) terminate: Option<Terminate>,
    /// The way into clusters, where this process has one.
    pub(crate) inward: Option<Inward>,
    /// What clusters and tenants may have; the same for all doors.
    pub(crate) admissions: Arc<Admissions>,
    /// What is known of control planes' addresses; the same for all doors.
    pub(crate) upstreams: Arc<Upstreams>,
    /// The proofs that were used; the same for all doors.
    pub(crate) replays: Replays,
    open: AtomicUsize,
}

/// How connections find where they go.
#[derive(Clone)]
pub(crate) enum Way {
    /// They say it, and the snapshot knows the route.
    Asked(Arc<ArcSwap<Snapshot>>),
    /// To the hub, all of them.
    ToHub(Arc<Hub>),
}

/// What all doors of a process share.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) admissions: Arc<Admissions>,
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) replays: Replays,
    pub(crate) agents: Option<Arc<Route>>,
    pub(crate) terminate: Option<Terminate>,
    pub(crate) inward: Option<Inward>,
}

impl Doorway {
    pub(crate) fn new(kind: DoorKind, way: Way, metrics: DoorMetrics, settings: &Settings, common: &Common) -> Self {
        let Settings { max_connections, rounds, .. } = *settings;
        let trusted_proxies = Arc::clone(&settings.trusted_proxies);
        let Common { admissions, upstreams, replays, agents, terminate, inward } = common.clone();
        let open = AtomicUsize::new(0);
        Self {
            kind,
            way,
            metrics,
            max_connections,
            rounds,
            trusted_proxies,
            agents,
            terminate,
            inward,
            admissions,
            upstreams,
            replays,
            open,
        }
    }

    /// Where connections may say where they go.
    pub(crate) fn snapshot(&self) -> Option<&ArcSwap<Snapshot>> {
        match &self.way {
            Way::Asked(snapshot) => Some(snapshot),
            Way::ToHub(_) => None,
        }
    }

    /// Whether a peer has to say first whom it speaks for, and is believed.
    pub(crate) fn trusts(&self, peer: PeerAddr) -> bool {
        self.trusted_proxies.iter().any(|range| range.contains(peer.ip()))
    }

    /// Counts a connection in, and says whether there was room. It has to leave either way.
    pub(crate) fn enter(&self) -> bool {
        self.metrics.open.inc();
        self.open.fetch_add(1, Ordering::Relaxed) < self.max_connections
    }

    pub(crate) fn leave(&self) {
        self.metrics.open.dec();
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}
