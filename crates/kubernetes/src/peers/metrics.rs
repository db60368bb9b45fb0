//! What is counted of the stream between processes. Names begin with `fleetgate_peers_`.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

use super::Role;

/// Cheap to clone; all clones count together.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    connected: Family<RoleLabels, Gauge>,
    refused: Family<CodeLabels, Counter>,
    pub(super) lines: Counter,
    pub(super) linked: Gauge,
    failures: Family<CodeLabels, Counter>,
    age: Age,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RoleLabels {
    role: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    code: &'static str,
}

/// When tables last came; counted when somebody looks.
#[derive(Debug, Clone, Default)]
struct Age(Arc<Mutex<Option<Instant>>>);

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("fleetgate_peers");
        registry.register_collector(Box::new(metrics.age.clone()));
        let help = "Processes of the hub that are heard here, as this one leads";
        registry.register("connected", help, metrics.connected.clone());
        let help = "Streams of other processes that were refused or ended here, by why";
        registry.register("refused", help, metrics.refused.clone());
        registry.register("lines", "Lines that were heard here", metrics.lines.clone());
        registry.register("linked", "1 while the leader hears this process", metrics.linked.clone());
        let help = "Times that there was no stream to the leader, or not any more, by why";
        registry.register("failures", help, metrics.failures.clone());
        metrics
    }

    pub(super) fn connected(&self, role: Role, more: i64) {
        self.connected.get_or_create(&RoleLabels { role: role.as_str() }).inc_by(more);
    }

    pub(super) fn refused(&self, code: &'static str) {
        self.refused.get_or_create(&CodeLabels { code }).inc();
    }

    pub(super) fn failed(&self, code: &'static str) {
        self.failures.get_or_create(&CodeLabels { code }).inc();
    }

    pub(super) fn tables_came(&self) {
        *self.age.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    pub fn is_linked(&self) -> bool {
        self.linked.get() == 1
    }

    /// Since tables last came.
    pub fn age(&self) -> Option<std::time::Duration> {
        self.age.0.lock().unwrap_or_else(PoisonError::into_inner).map(|at| at.elapsed())
    }
}

impl Collector for Age {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(at) = *self.0.lock().unwrap_or_else(PoisonError::into_inner) else { return Ok(()) };
        let gauge = ConstGauge::new(at.elapsed().as_secs_f64());
        let help = "Seconds since tables last came from the leader";
        gauge.encode(encoder.encode_descriptor("tables_age_seconds", help, None, gauge.metric_type())?)
    }
}
