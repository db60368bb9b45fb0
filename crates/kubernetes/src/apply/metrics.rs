//! What the leader counts. Names begin with `fleetgate_apply_`.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;
use tokio::time::Instant;

/// Cheap to clone; all clones count together.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    pub(super) rounds: Counter,
    writes: Family<WriteLabels, Counter>,
    dirty: Gauge,
    behind: Behind,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    kind: &'static str,
    outcome: &'static str,
}

/// Since when the hub has not had all that was planned.
#[derive(Debug, Clone, Default)]
struct Behind(Arc<Mutex<Option<Instant>>>);

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("fleetgate_apply");
        registry.register("rounds", "Rounds of comparing the plan with the hub", metrics.rounds.clone());
        registry.register("writes", "Requests that write to the hub, by kind and outcome", metrics.writes.clone());
        registry.register("dirty", "Objects that wait to be written", metrics.dirty.clone());
        registry.register_collector(Box::new(metrics.behind.clone()));
        metrics
    }

    pub fn rounds(&self) -> u64 {
        self.rounds.get()
    }

    /// How many writes had this outcome.
    pub fn written(&self, kind: &'static str, outcome: &'static str) -> u64 {
        self.writes.get(&WriteLabels { kind, outcome }).map_or(0, |counter| counter.get())
    }

    /// How many requests there were at all.
    pub fn requests(&self) -> u64 {
        let outcomes = super::write::OUTCOMES;
        let kinds = super::write::KINDS;
        kinds.iter().flat_map(|kind| outcomes.iter().map(|outcome| self.written(kind, outcome))).sum()
    }

    pub(super) fn count(&self, kind: &'static str, outcome: &'static str) {
        self.writes.get_or_create(&WriteLabels { kind, outcome }).inc();
    }

    /// `waiting` objects are still to be written.
    pub(super) fn set_waiting(&self, waiting: usize) {
        self.dirty.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        let mut since = self.behind.0.lock().unwrap_or_else(PoisonError::into_inner);
        *since = if waiting == 0 { None } else { since.or_else(|| Some(Instant::now())) };
    }
}

impl Collector for Behind {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let since = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let gauge = ConstGauge::new(since.map_or(0.0, |since| since.elapsed().as_secs_f64()));
        let help = "Seconds since the hub last had all that was planned; 0 while it has";
        gauge.encode(encoder.encode_descriptor("behind_seconds", help, None, gauge.metric_type())?)
    }
}
