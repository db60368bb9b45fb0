//! What is counted of load reports.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Debug, Clone, Default)]
pub struct LoadMetrics {
    services: Gauge,
    ready: Gauge,
    pages: Family<Outcome, Counter>,
    pub(super) lines: Counter,
    pub(super) cluster_away: Counter,
}

impl LoadMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let gauges = [
            ("services", "Services that are reported", &metrics.services),
            ("ready", "Ready pods of theirs", &metrics.ready),
        ];
        for (name, help, gauge) in gauges {
            registry.register(format!("fleetgate_agent_load_{name}"), help, gauge.clone());
        }
        registry.register(
            "fleetgate_agent_load_pages",
            "Pages of metrics that were asked for, by what became of it",
            metrics.pages.clone(),
        );
        let counters = [
            ("lines", "Lines that were sent to the hub", &metrics.lines),
            ("cluster_failures", "Times that the cluster could not be read", &metrics.cluster_away),
        ];
        for (name, help, counter) in counters {
            registry.register(format!("fleetgate_agent_load_{name}"), help, counter.clone());
        }
        metrics
    }

    pub(super) fn page(&self, outcome: &'static str) {
        self.pages.get_or_create(&Outcome { outcome }).inc();
    }

    pub(super) fn show(&self, services: usize, ready: usize) {
        for (gauge, number) in [(&self.services, services), (&self.ready, ready)] {
            gauge.set(i64::try_from(number).unwrap_or(i64::MAX));
        }
    }
}
