//! What the door for control planes counts. Codes are fixed: nothing that a peer sends becomes a label.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::carry::Carried;

#[derive(Debug, Clone, Default)]
pub struct Metrics {
    requests: Family<Outcome, Counter>,
    connections: Gauge,
    pub(crate) handshake_failures: Counter,
    pub(crate) cut: Counter,
    octets: Family<Direction, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Direction {
    direction: &'static str,
}

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        // A family has no line before something was counted.
        let _ = metrics.requests.get_or_create(&Outcome { outcome: "Ok" });
        metrics.carried(&Carried::default());
        let registry = registry.sub_registry_with_prefix("fleetgate_egress");
        registry.register(
            "requests",
            "Connections that control planes asked for, by what became of them: Ok, or the code of the refusal",
            metrics.requests.clone(),
        );
        registry.register(
            "open_connections",
            "Connections of control planes that are open now",
            metrics.connections.clone(),
        );
        registry.register(
            "handshake_failures",
            "Connections whose TLS came to nothing, or whose certificate is none of ours",
            metrics.handshake_failures.clone(),
        );
        registry.register(
            "cut_connections",
            "Connections that ended because their credential was revoked or expired, or their cluster went",
            metrics.cut.clone(),
        );
        registry.register("octets", "Octets that were carried, by direction", metrics.octets.clone());
        metrics
    }

    /// One that is open as long as the value is there.
    pub(crate) fn connection(&self) -> Open {
        self.connections.inc();
        Open(self.connections.clone())
    }

    pub(crate) fn count(&self, outcome: &'static str) {
        self.requests.get_or_create(&Outcome { outcome }).inc();
    }

    pub(crate) fn carried(&self, Carried { up, down }: &Carried) {
        use std::sync::atomic::Ordering::Relaxed;
        for (direction, octets) in [("into", up), ("back", down)] {
            self.octets.get_or_create(&Direction { direction }).inc_by(octets.load(Relaxed));
        }
    }
}

pub(crate) struct Open(Gauge);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}
