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
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    path: &'static str,
    outcome: &'static str,
}

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        // A family has no line before something was counted.
        let _ = metrics.requests.get_or_create(&RequestLabels { path: "/v1/enroll", outcome: "Ok" });
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
        metrics
    }

    pub(super) fn count(&self, path: &'static str, outcome: &'static str) {
        self.requests.get_or_create(&RequestLabels { path, outcome }).inc();
    }
}
