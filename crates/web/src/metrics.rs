//! What the HTTP doors count. Labels are doors, codes and the Ingresses of the table: nothing that a peer sends becomes one.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use http::StatusCode;
use model::routes::HttpTable;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::choice::{EntryOutlook, Members};
use crate::listen::DoorKind;
use crate::overflow::Shown;
use crate::refusal::Refusal;

/// Seconds, from a local answer to the time after which nobody waits any more.
const BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

#[derive(Debug, Clone, Default)]
pub struct Metrics {
    refusals: Family<RefusalLabels, Counter>,
    /// Of all doors and codes.
    refused: Counter,
    open: Family<DoorLabels, Gauge>,
    accept_errors: Family<DoorLabels, Counter>,
    handovers: Family<DoorLabels, Counter>,
    pub(crate) upstream_open: Gauge,
    pub(crate) upstream_connects: Counter,
    members_out: Family<OutLabels, Gauge>,
    /// Those of them that were last shown.
    shown_out: Arc<Mutex<BTreeSet<Out>>>,
    /// What is read when somebody asks; there once doors are served.
    routes: Arc<ArcSwapOption<Routes>>,
}

/// What all HTTP doors have counted, for those who show how much there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    pub requests: u64,
    pub refused: u64,
    /// Connections that are open now.
    pub open: u64,
}

#[derive(Debug)]
pub(crate) struct Routes {
    pub(crate) members: Arc<Members>,
    pub(crate) table: Arc<ArcSwap<HttpTable>>,
}

/// Of which Ingress, which cluster, and why.
type Out = (String, String, &'static str);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutLabels {
    ingress: String,
    cluster: String,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DoorLabels {
    door: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    door: &'static str,
    code: &'static str,
}

impl Metrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("fleetgate_web");
        registry.register("refusals", "Refused requests and connections, by code", metrics.refusals.clone());
        registry.register("open_connections", "Connections of clients that are open now", metrics.open.clone());
        registry.register(
            "accept_errors",
            "Times that taking a connection from the kernel failed",
            metrics.accept_errors.clone(),
        );
        registry.register(
            "handovers",
            "Connections of HTTP/1 with a request that is not of the usual kind, which takes longer",
            metrics.handovers.clone(),
        );
        registry.register(
            "upstream_connections",
            "Connections to members that are open now",
            metrics.upstream_open.clone(),
        );
        registry.register(
            "upstream_connects",
            "Times that a connection to a member was tried",
            metrics.upstream_connects.clone(),
        );
        registry.register(
            "members_out",
            "Members that no request is sent to, and why: 1 for each",
            metrics.members_out.clone(),
        );
        registry.register_collector(Box::new(Observed(Arc::clone(&metrics.routes))));
        metrics
    }

    /// Requests that were answered by members, and what was refused, since the process began; of the Ingresses there are now.
    pub fn totals(&self) -> Totals {
        let routes = self.routes.load();
        let entries = routes.as_deref().map(|routes| routes.members.each(&routes.table.load(), Instant::now()));
        let requests = entries.iter().flatten().map(|entry| entry.counts.total()).sum();
        let open = |door: DoorKind| self.open.get(&DoorLabels { door: door.label() }).map_or(0, |open| open.get());
        let open = open(DoorKind::Http) + open(DoorKind::Https);
        Totals { requests, refused: self.refused.get(), open: u64::try_from(open).unwrap_or_default() }
    }

    /// Shows from now on what these know.
    pub(crate) fn watch(&self, members: &Arc<Members>, table: &Arc<ArcSwap<HttpTable>>) {
        self.routes.store(Some(Arc::new(Routes { members: Arc::clone(members), table: Arc::clone(table) })));
    }

    /// Shows these, and no others: whoever reads meanwhile sees all that stay.
    pub(crate) fn show_out(&self, out: BTreeSet<Out>) {
        let labels =
            |(ingress, cluster, reason): &Out| OutLabels { ingress: ingress.clone(), cluster: cluster.clone(), reason };
        let mut shown = self.shown_out.lock().unwrap_or_else(PoisonError::into_inner);
        for back in shown.difference(&out) {
            self.members_out.remove(&labels(back));
        }
        for gone in out.difference(&shown) {
            self.members_out.get_or_create(&labels(gone)).set(1);
        }
        *shown = out;
    }

    pub(crate) fn of(&self, door: DoorKind) -> DoorMetrics {
        let labels = DoorLabels { door: door.label() };
        DoorMetrics {
            door: door.label(),
            refusals: self.refusals.clone(),
            refused: self.refused.clone(),
            open: self.open.get_or_create_owned(&labels),
            accept_errors: self.accept_errors.get_or_create_owned(&labels),
            handovers: self.handovers.get_or_create_owned(&labels),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct DoorMetrics {
    door: &'static str,
    refusals: Family<RefusalLabels, Counter>,
    refused: Counter,
    pub(crate) open: Gauge,
    pub(crate) accept_errors: Counter,
    pub(crate) handovers: Counter,
}

impl DoorMetrics {
    pub(crate) fn refused(&self, refusal: &Refusal) {
        let labels = RefusalLabels { door: self.door, code: refusal.code() };
        self.refusals.get_or_create(&labels).inc();
        self.refused.inc();
    }
}

/// How requests came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    pub(crate) const ALL: [Self; 2] = [Self::Http1, Self::Http2];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Http1 => "http/1",
            Self::Http2 => "http/2",
        }
    }
}

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Of one entry.
#[derive(Debug, Default)]
pub(crate) struct RouteCounts {
    requests: [[AtomicU64; 5]; 2],
    buckets: [AtomicU64; BUCKETS.len() + 1],
    /// Microseconds in all.
    sum: AtomicU64,
    retries: AtomicU64,
    shed: AtomicU64,
}

impl RouteCounts {
    pub(crate) fn count(&self, protocol: Protocol, status: StatusCode, took: Duration) {
        let class = usize::from(status.as_u16() / 100).clamp(1, CLASSES.len()) - 1;
        let row = usize::from(protocol == Protocol::Http2);
        self.requests[row][class].fetch_add(1, Ordering::Relaxed);
        let seconds = took.as_secs_f64();
        let bucket = BUCKETS.iter().position(|bound| seconds <= *bound).unwrap_or(BUCKETS.len());
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn total(&self) -> u64 {
        self.requests.iter().flatten().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn retried(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn shed(&self) {
        self.shed.fetch_add(1, Ordering::Relaxed);
    }
}

struct Observed(Arc<ArcSwapOption<Routes>>);

impl Collector for Observed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let routes = self.0.load();
        let Some(routes) = routes.as_deref() else { return Ok(()) };
        let entries = routes.members.each(&routes.table.load(), Instant::now());
        encode_requests(&entries, &mut encoder)?;
        encode_durations(&entries, &mut encoder)?;
        let help = "Requests that were sent to another member because the first could not be reached";
        encode_count(&entries, &mut encoder, "retries", help, |of| &of.retries)?;
        let help = "Requests that were refused with 503 because all members were full";
        encode_count(&entries, &mut encoder, "shed", help, |of| &of.shed)?;
        encode_plans(&entries, &mut encoder)
    }
}

fn encode_count(
    entries: &[Arc<EntryOutlook>],
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    count: fn(&RouteCounts) -> &AtomicU64,
) -> fmt::Result {
    let mut counter = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (ingress, of_it) in grouped(entries) {
        let total: u64 = of_it.iter().map(|entry| count(&entry.counts).load(Ordering::Relaxed)).sum();
        counter.encode_family(&[("ingress", ingress)])?.encode_counter::<NoLabelSet, _, u64>(&total, None)?;
    }
    Ok(())
}

/// What the overflow's tables say, of the Ingresses that have one. Of several backends the one with the most traffic, as these are no sums.
fn encode_plans(entries: &[Arc<EntryOutlook>], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let now = Instant::now();
    let mut plans: Vec<(&str, Shown)> = Vec::new();
    for (ingress, of_it) in grouped(entries) {
        let plan = of_it
            .iter()
            .filter_map(|entry| entry.plans.fresh(now))
            .max_by(|one, other| one.demand().total_cmp(&other.demand()));
        if let Some(plan) = plan {
            plans.extend(plan.shown().into_iter().map(|shown| (ingress, shown)));
        }
    }
    let help = "The part of the requests that come here that the measured load sends to a member";
    let mut shares = encoder.encode_descriptor("member_share", help, None, MetricType::Gauge)?;
    for (ingress, shown) in &plans {
        let labels = [("ingress", *ingress), ("cluster", shown.cluster.as_str())];
        shares.encode_family(&labels)?.encode_gauge(&shown.share)?;
    }
    let help = "Requests per second that a member can take of all gateways, and what that follows from";
    let mut capacities = encoder.encode_descriptor("member_capacity", help, None, MetricType::Gauge)?;
    for (ingress, shown) in &plans {
        if let Some(capacity) = shown.capacity {
            let labels = [("ingress", *ingress), ("cluster", shown.cluster.as_str()), ("basis", shown.basis)];
            capacities.encode_family(&labels)?.encode_gauge(&capacity)?;
        }
    }
    Ok(())
}

/// Entries of one Ingress are counted together. They are in the order of their names.
fn grouped(entries: &[Arc<EntryOutlook>]) -> impl Iterator<Item = (&str, &[Arc<EntryOutlook>])> {
    entries.chunk_by(|a, b| a.ingress == b.ingress).map(|of_it| (of_it[0].ingress.as_str(), of_it))
}

fn encode_requests(entries: &[Arc<EntryOutlook>], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Requests by the Ingress that they were for, of the Ingresses there are now";
    let mut requests = encoder.encode_descriptor("requests", help, None, MetricType::Counter)?;
    for (ingress, of_it) in grouped(entries) {
        for (row, protocol) in Protocol::ALL.into_iter().enumerate() {
            for (class, code) in CLASSES.into_iter().enumerate() {
                let each = of_it.iter().map(|entry| entry.counts.requests[row][class].load(Ordering::Relaxed));
                let total: u64 = each.sum();
                if total > 0 {
                    let labels = [("ingress", ingress), ("code", code), ("protocol", protocol.label())];
                    requests.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&total, None)?;
                }
            }
        }
    }
    Ok(())
}

fn encode_durations(entries: &[Arc<EntryOutlook>], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "From a request's head to the last octet of its response";
    let unit = Unit::Seconds;
    let mut durations = encoder.encode_descriptor("request_duration", help, Some(&unit), MetricType::Histogram)?;
    for (ingress, of_it) in grouped(entries) {
        let total = |count: &dyn Fn(&EntryOutlook) -> u64| of_it.iter().map(|entry| count(entry)).sum::<u64>();
        let bounds = BUCKETS.into_iter().chain([f64::MAX]);
        let buckets: Vec<(f64, u64)> = bounds
            .enumerate()
            .map(|(at, bound)| (bound, total(&|entry| entry.counts.buckets[at].load(Ordering::Relaxed))))
            .collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let micros = total(&|entry| entry.counts.sum.load(Ordering::Relaxed));
        let sum = Duration::from_micros(micros).as_secs_f64();
        durations.encode_family(&[("ingress", ingress)])?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
    }
    Ok(())
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed").finish_non_exhaustive()
    }
}
