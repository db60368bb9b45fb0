//! What the leader counts of it. Names begin with `fleetgate_wiring_`.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Cheap to clone; all clones count together.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    writes: Family<WriteLabels, Counter>,
    pods: Gauge,
    without_port: Gauge,
    waiting: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    kind: &'static str,
    outcome: &'static str,
}

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("fleetgate_wiring");
        let help = "Requests that write what leads control planes to the resolver, by kind and outcome";
        registry.register("writes", help, metrics.writes.clone());
        registry.register("pods", "Pods of the resolver that control planes are led to", metrics.pods.clone());
        let help = "Clusters for which no port of the resolver is free";
        registry.register("without_port", help, metrics.without_port.clone());
        registry.register("waiting", "Clusters that wait to be looked at", metrics.waiting.clone());
        metrics
    }

    pub(super) fn count(&self, kind: &'static str, outcome: &'static str) {
        self.writes.get_or_create(&WriteLabels { kind, outcome }).inc();
    }

    /// How many writes had this outcome.
    pub fn written(&self, kind: &'static str, outcome: &'static str) -> u64 {
        self.writes.get(&WriteLabels { kind, outcome }).map_or(0, |counter| counter.get())
    }

    pub(super) fn set(&self, pods: usize, without_port: usize, waiting: usize) {
        let set = |gauge: &Gauge, count: usize| _ = gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        set(&self.pods, pods);
        set(&self.without_port, without_port);
        set(&self.waiting, waiting);
    }
}
