//! What is counted of record sync.

use manifest::agents::ClaimChanges;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, Default)]
pub struct SyncMetrics {
    objects: Gauge,
    published: Gauge,
    refused: Gauge,
    set: Counter,
    deleted: Counter,
    pub(super) doubted: Gauge,
    pub(super) written: Counter,
    pub(super) cluster_away: Counter,
}

impl SyncMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let gauges = [
            ("objects", "DNSEndpoints that are followed", &metrics.objects),
            ("published", "Endpoints of theirs that are published", &metrics.published),
            ("refused", "Endpoints of theirs that are refused; /refused says why", &metrics.refused),
            ("doubted", "Claims that stay although the cluster suddenly lists nothing", &metrics.doubted),
        ];
        for (name, help, gauge) in gauges {
            registry.register(format!("fleetgate_agent_sync_{name}"), help, gauge.clone());
        }
        let counters = [
            ("set", "Keys that were sent to the hub", &metrics.set),
            ("deleted", "Keys that were deleted at the hub", &metrics.deleted),
            ("written", "Verdicts or Events that were written", &metrics.written),
            ("cluster_failures", "Times that the cluster could not be read", &metrics.cluster_away),
        ];
        for (name, help, counter) in counters {
            registry.register(format!("fleetgate_agent_sync_{name}"), help, counter.clone());
        }
        metrics
    }

    pub(super) fn sent(&self, changes: &ClaimChanges) {
        self.set.inc_by(changes.set.len() as u64);
        self.deleted.inc_by(changes.delete.len() as u64);
    }

    pub(super) fn show(&self, objects: usize, published: usize, refused: usize) {
        for (gauge, number) in [(&self.objects, objects), (&self.published, published), (&self.refused, refused)] {
            gauge.set(i64::try_from(number).unwrap_or(i64::MAX));
        }
    }
}
