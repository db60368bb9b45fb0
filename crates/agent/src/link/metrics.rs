//! What is counted of the link to the hub.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::identity::Identity;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Debug, Clone, Default)]
pub struct LinkMetrics {
    requests: Family<Outcome, Counter>,
    expires: Gauge,
}

impl LinkMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "fleetgate_agent_requests",
            "Requests to the hub, by what became of them",
            metrics.requests.clone(),
        );
        registry.register(
            "fleetgate_agent_certificate_expires",
            "When our certificate ends, in Unix seconds",
            metrics.expires.clone(),
        );
        metrics
    }

    pub(super) fn asked(&self, outcome: &'static str) {
        self.requests.get_or_create(&Outcome { outcome }).inc();
    }

    pub(super) fn certified(&self, identity: &Identity) {
        self.expires.set(i64::try_from(identity.expires()).unwrap_or(i64::MAX));
    }
}
