//! The overflow: once a second, what was seen and reported becomes the tables that requests and names go by.
//!
//! Where one process does everything, all of it happens here. Where a hub's roles are processes of their own, what each of them saw is brought to
//! the leader's [`Overflow::see`], and the leader's tables are stored where the others have theirs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use api::agents::Reports;
use arc_swap::ArcSwap;
use model::ObjectName;
use model::overflow::{Desk, Failing, Sighting, Tables};
use model::routes::HttpTable;
use tokio::sync::watch;

use crate::control::now;

/// How often tables are made: as often as agents report.
const TURN: Duration = Duration::from_secs(1);
/// Others are heard within this when somebody begins to lead. Until then tables would follow from those who came first; edges have the last
/// leader's for longer.
const GATHERING: Duration = Duration::from_secs(3);
/// How often people are told who fails: on a hub that is written down, and a member can come and go every second.
const TELL: Duration = Duration::from_secs(5);
/// Kubernetes names objects by labels of at most 63 octets (RFC 1123).
const MAX_LABEL: usize = 63;

/// Both ends of it: sightings come in, tables go out.
#[derive(Clone)]
pub(crate) struct Overflow {
    /// What this process is called among the edges.
    pub(crate) edge: ObjectName,
    /// What everybody here goes by.
    pub(crate) tables: Arc<ArcSwap<Tables>>,
    /// The same, for whoever waits for the next ones.
    news: Arc<watch::Sender<Arc<Tables>>>,
    /// What was last seen from here, for whoever carries it to the leader.
    pub(crate) seen: Arc<ArcSwap<Sighting>>,
    /// What people are told of members that fail; kept by whoever makes the tables.
    pub(crate) failing: Arc<watch::Sender<Arc<Failing>>>,
    desk: Arc<Mutex<Desk>>,
    /// Whether tables are made here.
    leads: Arc<AtomicBool>,
    /// From when on they count, where others have to be heard first.
    gathered: Arc<Mutex<Option<Instant>>>,
}

impl Overflow {
    pub(crate) fn new(host_name: &str, tables: &Arc<ArcSwap<Tables>>, leads: bool) -> Self {
        Self {
            edge: edge_name(host_name),
            tables: Arc::clone(tables),
            news: Arc::default(),
            seen: Arc::default(),
            failing: Arc::default(),
            desk: Arc::default(),
            leads: Arc::new(AtomicBool::new(leads)),
            gathered: Arc::default(),
        }
    }

    /// Whether this process makes the tables from now on, for others too. It begins with an empty desk.
    pub(crate) fn lead(&self, leads: bool) {
        *self.desk() = Desk::default();
        self.failing.send_replace(Arc::default());
        *self.gathered() = leads.then(|| Instant::now() + GATHERING);
        self.leads.store(leads, Ordering::Release);
    }

    fn gathered(&self) -> MutexGuard<'_, Option<Instant>> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What another edge saw.
    pub(crate) fn see(&self, edge: ObjectName, sighting: Sighting) {
        let name = edge.clone();
        if let Err(error) = self.desk().see(edge, sighting, now()) {
            tracing::warn!(edge = %name, %error, "what an edge saw does not count");
        }
    }

    /// What everybody here goes by from now on, made here or by the leader.
    pub(crate) fn publish(&self, tables: Arc<Tables>) {
        self.tables.store(Arc::clone(&tables));
        self.news.send_replace(tables);
    }

    /// Tables as they are published.
    pub(crate) fn news(&self) -> watch::Receiver<Arc<Tables>> {
        self.news.subscribe()
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks and turns once a second, in a thread of its own, until what is returned is dropped.
    pub(crate) fn start(
        &self,
        sights: Option<web::Sights>,
        http: &Arc<ArcSwap<HttpTable>>,
        reports: &Arc<Reports>,
    ) -> anyhow::Result<Running> {
        let (stop, stopped) = channel();
        let (this, http, reports) = (self.clone(), Arc::clone(http), Arc::clone(reports));
        let run = move || this.run(&stopped, sights.as_ref(), &http, &reports);
        let thread = std::thread::Builder::new().name("overflow".into()).spawn(run);
        Ok(Running { stop: Some(stop), thread: Some(thread.context("starting the thread of the overflow")?) })
    }

    fn run(&self, stopped: &Receiver<()>, sights: Option<&web::Sights>, http: &ArcSwap<HttpTable>, reports: &Reports) {
        let mut due = Instant::now() + TURN;
        let mut told = Instant::now();
        while stopped.recv_timeout(due.saturating_duration_since(Instant::now())) == Err(RecvTimeoutError::Timeout) {
            // Not several at once after a pause: what is counted is divided by the time that has passed.
            due = (due + TURN).max(Instant::now() + TURN / 2);
            let sighting = sights.map(web::Sights::take);
            if !self.leads.load(Ordering::Acquire) {
                self.seen.store(Arc::new(sighting.unwrap_or_default()));
                continue;
            }
            if let Some(sighting) = sighting {
                self.see(self.edge.clone(), sighting);
            }
            let report = |member: &model::routes::Member, namespace: &ObjectName, name: &ObjectName| {
                reports.of(&member.cluster, &member.uid, namespace, name)
            };
            let tables = self.desk().turn(&http.load_full(), report, now());
            if self.gathered().is_none_or(|gathered| gathered <= Instant::now()) {
                if told.elapsed() >= TELL {
                    told = Instant::now();
                    let failing = Arc::new(tables.failing());
                    self.failing.send_if_modified(|known| std::mem::replace(known, Arc::clone(&failing)) != failing);
                }
                self.publish(tables);
            }
        }
    }
}

/// Ends with this.
pub(crate) struct Running {
    stop: Option<Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the overflow panicked");
        }
    }
}

/// A host name as a label: what it may have and Kubernetes may not becomes a hyphen.
fn edge_name(host_name: &str) -> ObjectName {
    let plain = |octet: char| if octet.is_ascii_alphanumeric() { octet.to_ascii_lowercase() } else { '-' };
    let label: String = host_name.chars().map(plain).take(MAX_LABEL).collect();
    let trimmed = label.trim_matches('-').parse();
    trimmed.or_else(|_| "gateway".parse()).expect("a word is a name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_host_name_names_an_edge() {
        let long = "a".repeat(70);
        for (host, edge) in [
            ("gateway-7d9f", "gateway-7d9f"),
            ("Host_1.example.org", "host-1-example-org"),
            ("-", "gateway"),
            ("", "gateway"),
            ("ü", "gateway"),
            (&long, &long[..63]),
        ] {
            assert_eq!(edge_name(host).as_str(), edge, "{host:?}");
        }
    }
}
