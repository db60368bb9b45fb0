//! * What was planned, onto the hub: statuses, the `DNSEndpoint` objects that ExternalDNS reads, Verdicts and Events.
//!
//! Level-triggered. Whatever made an object dirty, a change of the plan or of the hub, a round compares what is planned
//! with what is there ([`wanted`]) and writes the difference, server-side, by a field manager of our own; what others wrote
//! stays. A round costs what is dirty, and where nothing differs nothing is written: a leader that finds everything in
//! order says nothing.

mod actual;
mod address;
mod back_off;
mod dirty;
mod events;
mod metrics;
mod publish;
mod status;
#[cfg(test)]
mod tests;
mod verdict;
mod wanted;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arc_swap::ArcSwap;
use futures_util::StreamExt as _;
use futures_util::stream;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use model::overflow::Failing;
use model::{ObjectRef, Snapshot};
use serde::Deserialize as _;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

pub use actual::Actual;
use back_off::BackOff;
pub use dirty::Dirty;
use events::{Events, Notice};
pub use metrics::Metrics;
pub use publish::NAMESPACE as PUBLISH_NAMESPACE;
pub use status::OwnStatus;
use wanted::{Phase, Write, wanted};
pub(crate) use write::{Failure, send_within};

use crate::lease::Term;

/// The field manager of everything that is planned.
pub const MANAGER: &str = "fleetgate";
/// The label that says whose an object is, and its value is [`MANAGER`].
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// Writes under way at once: enough to keep a hub busy, few enough for its fair queues.
const AT_ONCE: usize = 16;

#[derive(Debug, Clone)]
pub struct Settings {
    /// Who we are, for Events.
    pub identity: String,
}

/// Where the plan comes from, and what is known of the hub.
#[derive(Debug, Clone)]
pub struct Sides {
    pub plan: Arc<ArcSwap<Snapshot>>,
    pub hub: Arc<Actual>,
    /// Whoever changes one of them marks what is to be compared.
    pub dirty: Arc<Dirty>,
    /// What those who check members agree upon.
    pub failing: watch::Receiver<Arc<Failing>>,
}

/// Keeps the hub at what is planned until the term is lost, and what was begun has ended.
pub async fn run(client: Client, sides: Sides, term: Term, settings: Settings, metrics: Metrics) {
    if term.lost().run_until_cancelled(sides.hub.until_whole()).await.is_none() {
        return;
    }
    // Nobody has looked at anything since we lead.
    sides.hub.take_news();
    sides.dirty.mark_all(sides.hub.everything());
    sides.dirty.mark_all(sides.plan.load().addresses().map(|(address, _)| address::object(address)));
    let (events, telling) = Events::start(client.clone(), term.clone(), settings.identity, metrics.clone());
    let pen = Pen { client, term, hub: Arc::clone(&sides.hub), metrics: metrics.clone() };
    let failing = Arc::clone(&sides.failing.borrow());
    let mut leader = Leader { pen, sides, failing, back_off: BackOff::default(), events };
    while let Some(objects) = leader.next().await {
        leader.round(objects).await;
    }
    // Whoever leads next has it to do.
    metrics.set_waiting(0);
    drop(leader);
    // A panic there has been told of.
    let _ = telling.await;
}

struct Leader {
    pen: Pen,
    sides: Sides,
    /// What was looked at last.
    failing: Arc<Failing>,
    back_off: BackOff,
    events: Events,
}

/// What is to be written of one object, and what came of it.
struct Task {
    object: ObjectRef,
    writes: Vec<Write>,
    failure: Option<Failure>,
}

impl Leader {
    /// What to look at, as soon as there is something; `None` when the term is over.
    async fn next(&mut self) -> Option<BTreeSet<ObjectRef>> {
        let due = async {
            match self.back_off.next() {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let marked = tokio::select! {
            biased;
            () = self.pen.term.lost().cancelled() => return None,
            marked = self.sides.dirty.next() => marked,
            Ok(()) = self.sides.failing.changed() => Vec::new(),
            () = due => Vec::new(),
        };
        let marked = marked.into_iter().chain(self.take_failing());
        let due = self.back_off.take_due(Instant::now());
        Some(marked.chain(due).collect())
    }

    /// Those of whose members something else is known now.
    fn take_failing(&mut self) -> Vec<ObjectRef> {
        let now = Arc::clone(&self.sides.failing.borrow_and_update());
        let before = std::mem::replace(&mut self.failing, Arc::clone(&now));
        let objects = before.keys().chain(now.keys());
        objects.filter(|object| before.get(object) != now.get(object)).cloned().collect()
    }

    /// Reads all, then writes all that differs, the zones' numbers last.
    async fn round(&mut self, objects: BTreeSet<ObjectRef>) {
        self.pen.metrics.rounds.inc();
        self.pen.metrics.set_waiting(objects.len() + self.back_off.len());
        let mut tasks = self.compare(objects);
        for phase in [Phase::Statuses, Phase::Beside, Phase::Zones] {
            self.write(&mut tasks, phase).await;
        }
        self.settle(tasks);
        for (object, condition) in self.sides.hub.take_news() {
            self.tell(&object, &events::reachability(&condition));
        }
        self.pen.metrics.set_waiting(self.sides.dirty.len() + self.back_off.len());
    }

    fn compare(&mut self, objects: BTreeSet<ObjectRef>) -> Vec<Task> {
        let plan = self.sides.plan.load_full();
        let (hub, now) = (self.sides.hub.read(), Instant::now());
        let mut tasks = Vec::new();
        for object in objects {
            let writes = wanted(&object, &plan, &hub, &self.failing);
            if writes.is_empty() {
                self.back_off.succeeded(&object);
            } else if !self.back_off.holds(&object, &writes, now) {
                tasks.push(Task { object, writes, failure: None });
            }
        }
        tasks
    }

    /// The writes of one phase, several at once. One that fails keeps no other from being tried.
    async fn write(&mut self, tasks: &mut [Task], phase: Phase) {
        let pen = self.pen.clone();
        let mut outcomes = stream::iter(of_phase(tasks, phase))
            .map(move |(place, write)| {
                let pen = pen.clone();
                async move { (place, pen.write(&write).await) }
            })
            .buffer_unordered(AT_ONCE);
        while let Some((place, outcome)) = outcomes.next().await {
            let task = &mut tasks[place];
            match outcome {
                Ok(notices) => notices.iter().for_each(|notice| self.tell(&task.object, notice)),
                Err(failure) => task.failure = Some(failure),
            }
        }
    }

    /// Puts back what failed, and says so once for each way of failing.
    fn settle(&mut self, tasks: Vec<Task>) {
        // What was not begun any more is for whoever leads next.
        if self.pen.term.lost().is_cancelled() {
            return;
        }
        let mut failures: BTreeMap<&'static str, (usize, String)> = BTreeMap::new();
        for Task { object, writes, failure } in tasks {
            let Some(failure) = failure else {
                self.back_off.succeeded(&object);
                continue;
            };
            let told = failures.entry(failure.outcome()).or_insert_with(|| (0, format!("{object}: {failure}")));
            told.0 += 1;
            if let Some(notice) = complaint(&writes, &failure) {
                self.tell(&object, &notice);
            }
            let rejected = failure.is_rejected();
            self.back_off.failed(object, writes, rejected, Instant::now(), fastrand::f64());
        }
        for (outcome, (count, example)) in failures {
            tracing::warn!(outcome, count, example, "not written; it is tried again");
        }
    }

    fn tell(&mut self, object: &ObjectRef, notice: &Notice) {
        let uid = self.sides.hub.read().object(object).map(|seen| seen.uid.clone());
        if let Some(uid) = uid {
            self.events.tell(object, &uid, notice);
        }
    }
}

/// Every write of a phase, with its task's place: an object may have several, its names and its Verdict for example.
fn of_phase(tasks: &[Task], phase: Phase) -> Vec<(usize, Write)> {
    let writes = tasks.iter().enumerate().flat_map(|(place, task)| task.writes.iter().map(move |write| (place, write)));
    writes.filter(|(_, write)| write.phase() == phase).map(|(place, write)| (place, write.clone())).collect()
}

/// What it takes to write.
#[derive(Clone)]
struct Pen {
    client: Client,
    term: Term,
    hub: Arc<Actual>,
    metrics: Metrics,
}

impl Pen {
    /// Returns what people should hear of it.
    async fn write(&self, write: &Write) -> Result<Vec<Notice>, Failure> {
        // The watch may be faster than the answer.
        let before = match write {
            Write::Status { object, .. } => self.hub.read().object(object).and_then(|seen| seen.status.clone()),
            _ => None,
        };
        let outcome = write.send(&self.client, &self.term).await;
        self.metrics.count(write.kind(), outcome.as_ref().map_or_else(Failure::outcome, |_| "ok"));
        match outcome {
            Ok(written) => Ok(self.take_note(write, before.as_ref(), &written)),
            // Somebody was faster.
            Err(Failure::NotFound(_)) if write.is_removal() => Ok(self.take_note(write, None, &Value::Null)),
            Err(failure) => Err(failure),
        }
    }

    /// Remembers what the hub has now, so that nothing is written twice until its watch says the same.
    fn take_note(&self, write: &Write, before: Option<&OwnStatus>, written: &Value) -> Vec<Notice> {
        let hub = &self.hub;
        let meta = ObjectMeta::deserialize(&written["metadata"]).unwrap_or_default();
        match write {
            Write::Status { object, status, .. } => {
                hub.see(object.clone(), &meta, OwnStatus::read(object.kind, &written["status"]));
                return events::notices(object.kind, before, status);
            }
            Write::Publish { .. } => _ = hub.see_published(&meta, &written["spec"]),
            Write::Judge { .. } => _ = hub.see_verdict(&meta, &written["spec"]),
            Write::Withdraw { name, .. } => hub.write().forget_published(name),
            Write::DropVerdict { place, .. } => hub.write().forget_verdict(place),
            Write::Allocate { .. } | Write::Reallocate { .. } => _ = hub.see_address(&meta, &written["spec"]),
            Write::Free { name, .. } => hub.write().forget_address(name),
        }
        Vec::new()
    }
}

/// What somebody has to mend before a write can succeed.
fn complaint(writes: &[Write], failure: &Failure) -> Option<Notice> {
    let publishes = writes.iter().any(|write| matches!(write, Write::Publish { .. }));
    let (reason, message) = match failure {
        Failure::NotFound(message) if publishes => {
            let needs = format!(
                "publishing needs the namespace {PUBLISH_NAMESPACE} and ExternalDNS' definition of DNSEndpoint"
            );
            ("PublishingNotPossible", format!("{needs}: {message}"))
        }
        Failure::Rejected(_) | Failure::Forbidden(_) => ("NotWritten", failure.to_string()),
        _ => return None,
    };
    Some(Notice { is_warning: true, reason: reason.into(), message })
}
