//! What the doors count. Every label has a bounded set of values, of which clusters are the largest: nothing that a peer
//! sends becomes one.

mod by_cluster;
mod observed;

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use model::{ClusterName, Snapshot};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::insight::Insight;
use crate::listen::DoorKind;
use crate::refusal::Refusal;
use by_cluster::RefusalsByCluster;
use observed::Observed;

/// The outcome of a connection that was carried; all others are codes of refusals.
pub(crate) const ESTABLISHED: &str = "Established";

#[derive(Debug, Clone, Default)]
pub struct Metrics {
    connections: Family<OutcomeLabels, Counter>,
    open: Family<DoorLabels, Gauge>,
    bytes: Family<DirectionLabels, Counter>,
    accept_errors: Family<DoorLabels, Counter>,
    cut: Family<DoorLabels, Counter>,
    /// Of all doors and codes; what `connections` has one by one.
    established: Counter,
    refused: Counter,
    refusals: Arc<RefusalsByCluster>,
    /// What is read when somebody asks; there once doors are served.
    insight: Arc<ArcSwapOption<Insight>>,
}

/// What all doors have counted since the process began, for those who show how much there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    pub established: u64,
    pub refused: u64,
    /// Open now.
    pub open: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DoorLabels {
    door: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    door: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabels {
    door: &'static str,
    direction: &'static str,
}

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("fleetgate_gateway");
        registry.register(
            "connections",
            "Connections by what became of them: Established, or the code of the refusal",
            metrics.connections.clone(),
        );
        registry.register("open_connections", "Connections that are open now", metrics.open.clone());
        registry.register("bytes", "Bytes carried, by direction", metrics.bytes.clone());
        registry.register(
            "accept_errors",
            "Times that taking a connection from the kernel failed",
            metrics.accept_errors.clone(),
        );
        registry.register(
            "cut",
            "Connections ended because their client is not among the allowed sources any more",
            metrics.cut.clone(),
        );
        let observed = Observed { refusals: Arc::clone(&metrics.refusals), insight: Arc::clone(&metrics.insight) };
        registry.register_collector(Box::new(observed));
        metrics
    }

    pub fn totals(&self) -> Totals {
        let open = |kind: DoorKind| self.open.get(&DoorLabels { door: kind.label() }).map_or(0, |open| open.get());
        let open = open(DoorKind::ClusterId) + open(DoorKind::ServerName);
        let (established, refused) = (self.established.get(), self.refused.get());
        Totals { established, refused, open: u64::try_from(open).unwrap_or_default() }
    }

    /// How often connections to one cluster were refused: door, code and times.
    pub fn refusals_of(&self, cluster: &ClusterName) -> Vec<(&'static str, &'static str, u64)> {
        self.refusals.of(cluster)
    }

    /// Shows from now on what these doors know.
    pub(crate) fn watch(&self, insight: &Arc<Insight>) {
        self.insight.store(Some(Arc::clone(insight)));
    }

    pub(crate) fn of(&self, kind: DoorKind) -> DoorMetrics {
        let door = kind.label();
        let labels = DoorLabels { door };
        let bytes = |direction| self.bytes.get_or_create_owned(&DirectionLabels { door, direction });
        DoorMetrics {
            door,
            connections: self.connections.clone(),
            established: self.established.clone(),
            refused: self.refused.clone(),
            refusals: Arc::clone(&self.refusals),
            open: self.open.get_or_create_owned(&labels),
            accept_errors: self.accept_errors.get_or_create_owned(&labels),
            cut: self.cut.get_or_create_owned(&labels),
            to_upstream: bytes("to_upstream"),
            to_client: bytes("to_client"),
        }
    }
}

/// The metrics of one door, looked up once.
#[derive(Debug, Clone)]
pub(crate) struct DoorMetrics {
    door: &'static str,
    connections: Family<OutcomeLabels, Counter>,
    established: Counter,
    refused: Counter,
    refusals: Arc<RefusalsByCluster>,
    pub(crate) open: Gauge,
    pub(crate) accept_errors: Counter,
    pub(crate) cut: Counter,
    pub(crate) to_upstream: Counter,
    pub(crate) to_client: Counter,
}

impl DoorMetrics {
    pub(crate) fn established(&self) {
        self.established.inc();
        self.count(ESTABLISHED);
    }

    /// By door and code always, and by cluster where it got that far.
    /// The snapshot says which clusters there are; a node knows none.
    pub(crate) fn refused(&self, refusal: &Refusal, snapshot: Option<&ArcSwap<Snapshot>>) {
        self.refused.inc();
        self.count(refusal.code());
        if let (Some(cluster), Some(snapshot)) = (refusal.cluster(), snapshot) {
            self.refusals.count(cluster, self.door, refusal.code(), snapshot);
        }
    }

    fn count(&self, outcome: &'static str) {
        self.connections.get_or_create(&OutcomeLabels { door: self.door, outcome }).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_read_as_documented() {
        let mut registry = Registry::default();
        let all = Metrics::register(&mut registry);
        let metrics = all.of(DoorKind::ClusterId);
        metrics.established();
        metrics.refused(&Refusal::NoHeader, Some(&ArcSwap::default()));
        metrics.to_upstream.inc_by(7);
        metrics.open.inc();
        assert_eq!(all.totals(), Totals { established: 1, refused: 1, open: 1 });

        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"fleetgate_gateway_connections_total{door="apiserver",outcome="Established"} 1"#,
            r#"fleetgate_gateway_connections_total{door="apiserver",outcome="NoHeader"} 1"#,
            r#"fleetgate_gateway_open_connections{door="apiserver"} 1"#,
            r#"fleetgate_gateway_bytes_total{door="apiserver",direction="to_upstream"} 7"#,
            r#"fleetgate_gateway_bytes_total{door="apiserver",direction="to_client"} 0"#,
            r#"fleetgate_gateway_accept_errors_total{door="apiserver"} 0"#,
        ] {
            assert!(text.lines().any(|have| have == line), "{line} in\n{text}");
        }
    }
}
