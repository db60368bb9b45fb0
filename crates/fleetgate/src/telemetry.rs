//! Log lines, and what the control side counts.

use std::io::IsTerminal as _;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::Context as _;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tracing_subscriber::EnvFilter;

use crate::arguments::{LogFormat, LogOptions};

/// To standard error: standard output belongs to what a command prints.
pub(crate) fn start_log(options: &LogOptions) -> anyhow::Result<()> {
    // The client's own lines come first, so that --log can turn them on: each failed request would be told twice.
    // What is audited is told however little else is.
    let filter = EnvFilter::try_new(format!("audit=info,kube_client=off,kube_runtime=off,{}", options.log))
        .with_context(|| format!("reading --log {}", options.log))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match options.log_format {
        LogFormat::Human => builder.with_target(false).with_ansi(std::io::stderr().is_terminal()).init(),
        // Fields stand beside timestamp, level and target (docs/logs.md): none may be called so.
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}

/// From 50 microseconds, where one changed node is, to the seconds that a fleet's start may take.
const PLAN_BUCKETS: [f64; 9] = [0.000_05, 0.000_2, 0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0];

/// What the control side counts.
#[derive(Clone)]
pub(crate) struct ControlMetrics {
    pub(crate) clusters: Gauge,
    pub(crate) zones: Gauge,
    pub(crate) refused_objects: Gauge,
    pub(crate) refused_files: Gauge,
    pub(crate) revision: Counter<u64, AtomicU64>,
    pub(crate) unsaved: Counter,
    pub(crate) hub_away: Gauge,
    pub(crate) withdrawals_held: Gauge,
    plan_duration: Histogram,
}

impl ControlMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            clusters: Gauge::default(),
            zones: Gauge::default(),
            refused_objects: Gauge::default(),
            refused_files: Gauge::default(),
            revision: Counter::default(),
            unsaved: Counter::default(),
            hub_away: Gauge::default(),
            withdrawals_held: Gauge::default(),
            plan_duration: Histogram::new(PLAN_BUCKETS),
        };
        registry.register("fleetgate_clusters", "Clusters that are served", metrics.clusters.clone());
        registry.register("fleetgate_zones", "Zones that are served", metrics.zones.clone());
        registry.register(
            "fleetgate_refused_objects",
            "Objects that are refused; `fleetgate get refusals` says why",
            metrics.refused_objects.clone(),
        );
        registry.register(
            "fleetgate_refused_files",
            "Manifest files that are refused and whose last good state is served instead",
            metrics.refused_files.clone(),
        );
        registry.register("fleetgate_plans", "Plans that changed something", metrics.revision.clone());
        registry.register(
            "fleetgate_unsaved_updates",
            "Updates that are served but could not be written to the database",
            metrics.unsaved.clone(),
        );
        registry.register(
            "fleetgate_hub_away",
            "1 while something of the hub cannot be read and its last good state is served",
            metrics.hub_away.clone(),
        );
        registry.register(
            "fleetgate_withdrawals_held",
            "Names that nobody asks for any more and that are served on, as so many would go at once",
            metrics.withdrawals_held.clone(),
        );
        registry.register_with_unit(
            "fleetgate_plan_duration",
            "From changed facts to the published snapshot",
            Unit::Seconds,
            metrics.plan_duration.clone(),
        );
        metrics
    }

    pub(crate) fn planned(&self, took: Duration) {
        self.revision.inc();
        self.plan_duration.observe(took.as_secs_f64());
    }
}
