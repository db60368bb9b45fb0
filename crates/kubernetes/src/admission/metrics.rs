//! What the webhook counts. Names begin with `fleetgate_admission_`.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// From 50 microseconds, where a few endpoints are, to the seconds after which the API server has given up.
const BUCKETS: [f64; 8] = [0.000_05, 0.000_2, 0.001, 0.005, 0.02, 0.1, 0.5, 5.0];

/// Cheap to clone; all clones count together.
#[derive(Debug, Clone)]
pub(super) struct Metrics {
    reviews: Family<OutcomeLabels, Counter>,
    duration: Histogram,
    pub(super) certificates: Counter,
    pub(super) registered: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

impl Metrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            reviews: Family::default(),
            duration: Histogram::new(BUCKETS),
            certificates: Counter::default(),
            registered: Gauge::default(),
        };
        let registry = registry.sub_registry_with_prefix("fleetgate_admission");
        registry.register("reviews", "Reviews of the API server's, by what became of them", metrics.reviews.clone());
        let help = "From a whole review to its answer";
        registry.register_with_unit("duration", help, Unit::Seconds, metrics.duration.clone());
        registry.register("certificates", "Certificates that it has begun to serve", metrics.certificates.clone());
        let help = "1 while this process leads and the API server's configuration is as it should be";
        registry.register("registered", help, metrics.registered.clone());
        metrics
    }

    pub(super) fn count(&self, outcome: &'static str, took: Duration) {
        self.reviews.get_or_create(&OutcomeLabels { outcome }).inc();
        self.duration.observe(took.as_secs_f64());
    }
}
