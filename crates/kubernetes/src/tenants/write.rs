//! Writes what is known of one cluster to the hub: one write at a time, always the latest.

use std::time::Duration;

use kube::Resource as _;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use manifest::cluster::Cluster;
use model::ClusterName;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Shared;
use super::pace::{Backoff, Bucket};
use super::report::{Due, Report, Seen};

/// The owner of `.status.nodes` and of the condition `Reachable`, and of nothing else.
pub const FIELD_MANAGER: &str = "fleetgate-nodes";
/// A write that was begun by a leader is over before another one leads.
const DEADLINE: Duration = Duration::from_secs(5);
/// What somebody else did to our fields is mended at the latest now. A write that changes nothing stores nothing.
const ANEW: Duration = Duration::from_mins(10);

/// Returns once nobody observes the cluster any more, or nothing may be written any more.
pub(super) async fn write(shared: &Shared, name: &ClusterName, mut view: watch::Receiver<Option<Seen>>) {
    let mut on_hub: Option<OnHub> = None;
    let mut backoff = Backoff::default();
    let mut bucket = Bucket::new(Instant::now());
    let mut away = shared.metrics.away();
    loop {
        let Some(seen) = view.borrow_and_update().clone() else {
            match view.changed().await {
                Ok(()) => continue,
                Err(_) => return,
            }
        };
        let known = OnHub::of(&mut on_hub, &seen);
        let report = match known.due(&seen, shared.settings.patience, Instant::now()) {
            Due::Now(report) => report,
            Due::At(at) => {
                tokio::select! {
                    changed = view.changed() => if changed.is_err() { return },
                    () = sleep_until(at) => {}
                }
                continue;
            }
            Due::Never => continue,
        };
        if let Err(free_at) = bucket.take(Instant::now()) {
            sleep_until(free_at).await;
            continue;
        }
        away.set(&report);
        match put(shared, name, &report).await {
            Ok(()) => {
                tell(name, &known.report, &report);
                known.wrote(report);
                backoff.reset();
            }
            Err(NotWritten::Stopped) => return,
            Err(NotWritten::Failed(reason)) => {
                tracing::warn!(cluster = %name, reason, "the status of a cluster could not be written; trying again");
                known.anew = Instant::now();
                sleep(backoff.next()).await;
            }
        }
    }
}

/// What the status of the Cluster says, as far as is known.
struct OnHub {
    report: Report,
    /// From when on it is written again, whether it changed or not.
    anew: Instant,
}

impl OnHub {
    /// Starts anew where the Cluster is another one than before.
    fn of<'a>(known: &'a mut Option<Self>, seen: &Seen) -> &'a mut Self {
        if known.as_ref().is_some_and(|known| known.report.uid != seen.subject.access.uid) {
            *known = None;
        }
        known.get_or_insert_with(|| Self { report: Report::before(&seen.subject), anew: next_time() })
    }

    fn due(&self, seen: &Seen, patience: Duration, now: Instant) -> Due {
        match self.report.due(seen, patience, now) {
            Due::Never if self.anew <= now => Due::Now(self.report.clone()),
            Due::Never => Due::At(self.anew),
            due => due,
        }
    }

    fn wrote(&mut self, report: Report) {
        *self = Self { report, anew: next_time() };
    }
}

/// Spread, so that clusters that were written together are not written together for ever.
fn next_time() -> Instant {
    Instant::now() + ANEW.mul_f64(0.75 + fastrand::f64() / 2.0)
}

enum NotWritten {
    /// This process does not lead any more.
    Stopped,
    Failed(String),
}

async fn put(shared: &Shared, name: &ClusterName, report: &Report) -> Result<(), NotWritten> {
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let patch = Patch::Apply(report.patch(name.as_str()));
    let clusters = Request::new(Cluster::url_path(&(), None));
    let request = clusters.patch_subresource("status", name.as_str(), &params, &patch);
    let request = request.map_err(|error| NotWritten::Failed(error.to_string()))?;

    let _place = shared.writes.acquire().await.map_err(|_| NotWritten::Stopped)?;
    if shared.stop.is_cancelled() {
        return Err(NotWritten::Stopped);
    }
    // What comes back is the whole Cluster, which nobody reads here.
    let writing = timeout(DEADLINE, shared.hub.request_text(request));
    let written = tokio::select! {
        biased;
        () = shared.stop.cancelled() => return Err(NotWritten::Stopped),
        written = writing => written,
    };
    let failed = match written {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some("the hub did not answer in time".to_owned()),
    };
    shared.metrics.wrote(failed.is_none());
    failed.map_or(Ok(()), |reason| Err(NotWritten::Failed(reason)))
}

/// Only what people want to know of: a cluster that goes or comes back.
fn tell(name: &ClusterName, before: &Report, after: &Report) {
    let Some(now) = &after.reachable else { return };
    match before.reachable.as_ref().map(|before| before.holds) {
        was if was == Some(now.holds) => {}
        _ if now.holds => tracing::info!(cluster = %name, nodes = after.nodes.len(), "{}", now.message),
        _ => tracing::warn!(cluster = %name, reason = now.reason, "{}", now.message),
    }
}
