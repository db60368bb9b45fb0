//! What all connections of one door share, whichever thread has them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use model::{Cidr, Snapshot};

use crate::address::PeerAddr;
use crate::balance::Upstreams;
use crate::limits::Admissions;
use crate::listen::{DoorKind, Settings};
use crate::metrics::DoorMetrics;
use crate::proof::Replays;

pub(crate) struct Doorway {
    pub(crate) kind: DoorKind,
    pub(crate) snapshot: Arc<ArcSwap<Snapshot>>,
    pub(crate) metrics: DoorMetrics,
    pub(crate) max_connections: usize,
    trusted_proxies: Arc<[Cidr]>,
    /// What clusters and tenants may have; the same for all doors.
    pub(crate) admissions: Arc<Admissions>,
    /// What is known of control planes' addresses; the same for all doors.
    pub(crate) upstreams: Arc<Upstreams>,
    /// The proofs that were used; the same for all doors.
    pub(crate) replays: Replays,
    open: AtomicUsize,
}

impl Doorway {
    pub(crate) fn new(
        kind: DoorKind,
        snapshot: Arc<ArcSwap<Snapshot>>,
        metrics: DoorMetrics,
        settings: &Settings,
        admissions: &Arc<Admissions>,
        upstreams: &Arc<Upstreams>,
        replays: &Replays,
    ) -> Self {
        let (max_connections, trusted_proxies) = (settings.max_connections, Arc::clone(&settings.trusted_proxies));
        let (admissions, upstreams) = (Arc::clone(admissions), Arc::clone(upstreams));
        let (replays, open) = (replays.clone(), AtomicUsize::new(0));
        Self { kind, snapshot, metrics, max_connections, trusted_proxies, admissions, upstreams, replays, open }
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
