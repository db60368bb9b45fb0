//! Tells those who wait for verdicts that there are others.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use model::identity::Kind;
use model::{ClusterName, ObjectRef, Snapshot};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::standing;

/// Written by the thread that plans, which never waits here.
pub struct Verdicts {
    /// What a cluster without any change has: another in every process.
    start: u64,
    /// When a verdict of a cluster last changed; of clusters that are there.
    last: Mutex<HashMap<ClusterName, u64>>,
    news: watch::Sender<u64>,
}

impl Default for Verdicts {
    fn default() -> Self {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // Numbers that JSON readers of all languages take as they are are below 2^53.
        let start = u64::try_from(since_epoch.as_millis()).unwrap_or_default();
        Self { start, last: Mutex::default(), news: watch::Sender::new(start) }
    }
}

impl Verdicts {
    /// To be called once a snapshot is published, with the objects whose status changed.
    pub fn publish(&self, snapshot: &Snapshot, changed: &[ObjectRef]) {
        let mut changed = changed.iter().filter(|object| object.kind == Kind::DnsEndpoint).peekable();
        if changed.peek().is_none() {
            return;
        }
        self.news.send_modify(|news| {
            *news += 1;
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            for cluster in changed.filter_map(|object| standing::cluster_of(&object.name)) {
                // Anybody can call an object like this.
                if snapshot.cluster(&cluster).is_some() {
                    last.insert(cluster, *news);
                }
            }
            if last.len() > 2 * snapshot.cluster_count() {
                last.retain(|cluster, _| snapshot.cluster(cluster).is_some());
            }
        });
    }

    pub(super) fn revision(&self, cluster: &ClusterName) -> u64 {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).get(cluster).copied().unwrap_or(self.start)
    }

    /// Waits until `holds`, which is asked again whenever a verdict changed; whether it came to that in time.
    pub(super) async fn until(&self, within: Duration, mut holds: impl FnMut() -> bool) -> bool {
        let deadline = Instant::now() + within;
        let mut news = self.news.subscribe();
        loop {
            news.borrow_and_update();
            if holds() {
                return true;
            }
            if !matches!(timeout_at(deadline, news.changed()).await, Ok(Ok(()))) {
                return false;
            }
        }
    }
}
