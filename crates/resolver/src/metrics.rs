//! What is counted. Names begin with `fleetgate_resolver_`; no cluster is a label, as there may be thousands.

use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::failure::Failure;
use crate::listen::Transport;

/// Cheap to clone; all clones count together.
#[derive(Debug, Clone)]
pub struct Metrics {
    questions: Family<QuestionLabels, Counter>,
    failures: Family<FailureLabels, Counter>,
    asked: Family<AskedLabels, Histogram>,
    pub(crate) joined: Counter,
    pub(crate) truncated: Counter,
    pub(crate) connections_refused: Counter,
    pub(crate) clusters: Gauge,
    pub(crate) unbound: Gauge,
    pub(crate) cache_octets: Gauge,
    pub(crate) cache_entries: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QuestionLabels {
    transport: Transport,
    outcome: Outcome,
}

/// What became of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Outcome {
    Cached,
    Asked,
    Stale,
    Failed,
    Refused,
    Limited,
    Malformed,
    Ignored,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabels {
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AskedLabels {
    source: From,
    answered: bool,
}

/// Who was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum From {
    Tenant,
    Directory,
    Hub,
    Upstream,
    Own,
}

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        let seconds = || Histogram::new([0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0]);
        let metrics = Self {
            questions: Family::default(),
            failures: Family::default(),
            asked: Family::new_with_constructor(seconds as fn() -> Histogram),
            joined: Counter::default(),
            truncated: Counter::default(),
            connections_refused: Counter::default(),
            clusters: Gauge::default(),
            unbound: Gauge::default(),
            cache_octets: Gauge::default(),
            cache_entries: Gauge::default(),
        };
        let registry = registry.sub_registry_with_prefix("fleetgate_resolver");
        registry.register("questions", "Questions by what became of them", metrics.questions.clone());
        registry.register("failures", "Questions that failed, by the reason", metrics.failures.clone());
        registry.register("asked_seconds", "How long somebody took to answer, by who it was", metrics.asked.clone());
        registry.register("joined", "Questions that waited for the answer to an equal one", metrics.joined.clone());
        registry.register(
            "truncated",
            "UDP answers that did not fit and sent the client to TCP",
            metrics.truncated.clone(),
        );
        registry.register(
            "tcp_connections_refused",
            "TCP connections closed at once, because a cluster had too many",
            metrics.connections_refused.clone(),
        );
        registry.register("clusters", "Clusters that have a port here", metrics.clusters.clone());
        registry.register(
            "ports_not_bound",
            "Ports of clusters that cannot be listened on; the log says why",
            metrics.unbound.clone(),
        );
        registry.register("cache_octets", "Room that kept answers take", metrics.cache_octets.clone());
        registry.register("cache_entries", "Answers that are kept", metrics.cache_entries.clone());
        metrics
    }

    pub(crate) fn count(&self, transport: Transport, outcome: Outcome) {
        self.questions.get_or_create(&QuestionLabels { transport, outcome }).inc();
    }

    pub(crate) fn fail(&self, failure: Failure) {
        self.failures.get_or_create(&FailureLabels { code: failure.code() }).inc();
    }

    pub(crate) fn asked(&self, source: From, answered: bool, took: Duration) {
        self.asked.get_or_create(&AskedLabels { source, answered }).observe(took.as_secs_f64());
    }
}
