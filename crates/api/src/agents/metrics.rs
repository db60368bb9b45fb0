//! What the agents' door counts. Paths and codes are fixed: nothing that a peer sends becomes a label.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, Default)]
pub struct Metrics {
    requests: Family<RequestLabels, Counter>,
    pub(super) connections: Gauge,
    pub(super) handshake_failures: Counter,
    pub(super) load_streams: Gauge,
    load_lines: Family<LoadLabels, Counter>,
    load_reports: Family<LoadLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    path: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LoadLabels {
    outcome: &'static str,
}

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        // A family has no line before something was counted.
        let _ = metrics.requests.get_or_create(&RequestLabels { path: "/v1/enroll", outcome: "Ok" });
        let _ = metrics.load_lines.get_or_create(&LoadLabels { outcome: "Ok" });
        let _ = metrics.load_reports.get_or_create(&LoadLabels { outcome: "Ok" });
        let registry = registry.sub_registry_with_prefix("fleetgate_agents");
        registry.register(
            "requests",
            "Requests of agents by what became of them: Ok, or the code of the problem",
            metrics.requests.clone(),
        );
        registry.register("open_connections", "Connections of agents that are open now", metrics.connections.clone());
        registry.register(
            "handshake_failures",
            "Connections whose TLS came to nothing, or whose certificate is none of ours",
            metrics.handshake_failures.clone(),
        );
        registry.register("load_streams", "Streams of load reports that are open now", metrics.load_streams.clone());
        registry.register("load_lines", "Lines of load reports by what became of them", metrics.load_lines.clone());
        registry.register(
            "load_reports",
            "Reports of a service's load by what became of them: Ok, or why they are not taken",
            metrics.load_reports.clone(),
        );
        metrics
    }

    pub(super) fn count(&self, path: &'static str, outcome: &'static str) {
        self.requests.get_or_create(&RequestLabels { path, outcome }).inc();
    }
    pub(super) fn line(&self, outcome: &'static str) {
        self.load_lines.get_or_create(&LoadLabels { outcome }).inc();
    }

    pub(super) fn reports(&self, outcome: &'static str, many: usize) {
        self.load_reports.get_or_create(&LoadLabels { outcome }).inc_by(many as u64);
    }
}
