//! What is counted. Names begin with `fleetgate_tenants_`; no label is made from what tenants say.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::report::Report;

/// Cheap to clone; all clones count together.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    followed: Gauge,
    away: Gauge,
    restarts: Family<RestartLabels, Counter>,
    writes: Counter,
    write_errors: Counter,
    placed: Family<PlacedLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RestartLabels {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PlacedLabels {
    outcome: &'static str,
}

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("fleetgate_tenants");
        registry.register("clusters_followed", "Tenant clusters whose nodes are followed", metrics.followed.clone());
        registry.register("clusters_away", "Followed clusters that cannot be read", metrics.away.clone());
        registry.register("watch_restarts", "Watches of nodes that ended, and why", metrics.restarts.clone());
        registry.register("writes", "Statuses of clusters written to the hub", metrics.writes.clone());
        registry.register(
            "write_errors",
            "Statuses of clusters that the hub did not take; each is tried again",
            metrics.write_errors.clone(),
        );
        registry.register(
            "ingresses_written",
            "Federated Ingresses written into tenant clusters, by outcome",
            metrics.placed.clone(),
        );
        // Shown before anything is counted.
        for outcome in ["ok", "refused"] {
            drop(metrics.placed.get_or_create(&PlacedLabels { outcome }));
        }
        metrics
    }

    pub(super) fn followed(&self, clusters: usize) {
        self.followed.set(i64::try_from(clusters).unwrap_or(i64::MAX));
    }

    pub(super) fn restarted(&self, reason: &'static str) {
        self.restarts.get_or_create(&RestartLabels { reason }).inc();
    }

    pub(super) fn wrote(&self, taken: bool) {
        if taken {
            self.writes.inc()
        } else {
            self.write_errors.inc()
        };
    }

    pub(super) fn placed(&self, taken: bool) {
        self.placed.get_or_create(&PlacedLabels { outcome: if taken { "ok" } else { "refused" } }).inc();
    }

    /// One cluster's part in the number of those that are away.
    pub(super) fn away(&self) -> AwayMark {
        AwayMark { gauge: self.away.clone(), set: false }
    }
}

pub(super) struct AwayMark {
    gauge: Gauge,
    set: bool,
}

impl AwayMark {
    pub(super) fn set(&mut self, report: &Report) {
        self.turn(report.reachable.as_ref().is_some_and(|reachable| !reachable.holds));
    }

    fn turn(&mut self, away: bool) {
        if away && !self.set {
            self.gauge.inc();
        } else if !away && self.set {
            self.gauge.dec();
        }
        self.set = away;
    }
}

impl Drop for AwayMark {
    fn drop(&mut self) {
        self.turn(false);
    }
}
