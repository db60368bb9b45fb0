//! Writes what is known of one cluster to the hub: one write at a time, always the latest.

use std::sync::Arc;
use std::time::Duration;

use kube::Resource as _;
use kube::api::{GetParams, Patch, PatchParams};
use kube::core::{PartialObjectMeta, Request};
use manifest::cluster::Cluster;
use model::ClusterName;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Shared;
use super::pace::{Backoff, Bucket};
use super::report::{Due, Report, Seen};

/// The owner of `.status.nodes`, of `.status.ingresses` and of the conditions `Reachable` and `IngressesPlaced`, and of
/// nothing else.
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
            Err(NotWritten::Gone) => {
                tracing::debug!(cluster = %name, "there is no such Cluster any more, or another one of its name");
                if view.changed().await.is_err() {
                    return;
                }
            }
            Err(NotWritten::Failed(reason)) => {
                tracing::warn!(cluster = %name, reason, "the status of a cluster could not be written; trying again");
                known.anew = Instant::now();
                sleep(backoff.next()).await;
            }
        }
    }
}

/// Takes back what was said of a cluster.
pub(super) async fn clear(shared: Arc<Shared>, name: ClusterName, uid: Arc<str>) {
    let nothing = Report::nothing(uid);
    let mut backoff = Backoff::default();
    while let Err(NotWritten::Failed(reason)) = put(&shared, &name, &nothing).await {
        tracing::warn!(cluster = %name, reason, "the status of a cluster could not be cleared; trying again");
        sleep(backoff.next()).await;
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
    /// There is no such Cluster, or another one of its name.
    Gone,
    Failed(String),
}

impl From<kube::Error> for NotWritten {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 404 => Self::Gone,
            error => Self::Failed(error.to_string()),
        }
    }
}

async fn put(shared: &Shared, name: &ClusterName, report: &Report) -> Result<(), NotWritten> {
    let _place = shared.writes.acquire().await.map_err(|_| NotWritten::Stopped)?;
    if shared.stop.is_cancelled() {
        return Err(NotWritten::Stopped);
    }
    let writing = timeout(DEADLINE, check_and_apply(&shared.hub, name.as_str(), report));
    let written = tokio::select! {
        biased;
        () = shared.stop.cancelled() => return Err(NotWritten::Stopped),
        written = writing => written,
    };
    let written = written.unwrap_or_else(|_| Err(NotWritten::Failed("the hub did not answer in time".to_owned())));
    shared.metrics.wrote(written.is_ok());
    written
}

/// A Cluster that was made anew must not get the nodes of its namesake. A hub does not compare uids where a status is
/// applied, but it does compare versions.
async fn check_and_apply(hub: &kube::Client, name: &str, report: &Report) -> Result<(), NotWritten> {
    let clusters = Request::new(Cluster::url_path(&(), None));
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let fits = |error: kube::core::request::Error| NotWritten::Failed(error.to_string());
    for last_try in [false, false, true] {
        let get = clusters.get_metadata(name, &GetParams::default()).map_err(fits)?;
        let found: PartialObjectMeta = hub.request(get).await?;
        if found.metadata.uid.as_deref() != Some(&*report.uid) {
            return Err(NotWritten::Gone);
        }
        let version = found.metadata.resource_version.unwrap_or_default();
        let patch = Patch::Apply(report.patch(name, &version));
        let apply = clusters.patch_subresource("status", name, &params, &patch).map_err(fits)?;
        // What comes back is the whole Cluster, which nobody reads here.
        match hub.request_text(apply).await {
            Ok(_) => return Ok(()),
            // Somebody wrote in between; most likely our own plan.
            Err(kube::Error::Api(status)) if status.code == 409 && !last_try => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(NotWritten::Failed("the Cluster changes all the time".to_owned()))
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
