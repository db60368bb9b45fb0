//! What all connections of one door share, whichever thread has them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use model::Snapshot;

use crate::listen::DoorKind;
use crate::metrics::DoorMetrics;

pub(crate) struct Doorway {
    pub(crate) kind: DoorKind,
    pub(crate) snapshot: Arc<ArcSwap<Snapshot>>,
    pub(crate) metrics: DoorMetrics,
    pub(crate) max_connections: usize,
    open: AtomicUsize,
}

impl Doorway {
    pub(crate) fn new(
        kind: DoorKind,
        snapshot: Arc<ArcSwap<Snapshot>>,
        metrics: DoorMetrics,
        max_connections: usize,
    ) -> Self {
        Self { kind, snapshot, metrics, max_connections, open: AtomicUsize::new(0) }
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
