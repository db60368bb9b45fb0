//! * One change: from the home through the plan to what data planes read.
//!
//! One thread owns the home and the planner; everybody else reads what it publishes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use api::FolderState;
use arc_swap::ArcSwap;
use model::address::Allocation;
use model::identity::Kind;
use model::resource::{HeldClaims, Place, Resting};
use model::routes::HttpTable;
use model::serial::SerialFloor;
use model::snapshot::Condition;
use model::{ClusterName, DnsName, FactChange, KeptSet, ObjectRef, Planned, Planner, Snapshot, Timestamp};
use store::Memory;

use crate::home::{Home, Opened, Stopper, Update};
use crate::telemetry::ControlMetrics;

/// Until what could not be written to the database is tried again.
const NEXT_ATTEMPT: Duration = Duration::from_secs(1);

/// What the control side publishes: each a value that is replaced whole, and that nobody waits for.
#[derive(Clone, Default)]
pub(crate) struct Published {
    pub(crate) snapshot: Arc<ArcSwap<Snapshot>>,
    pub(crate) index: Arc<ArcSwap<dns::Index>>,
    /// Apart from the snapshot, as threads keep what they looked up until it is another one.
    pub(crate) http: Arc<ArcSwap<HttpTable>>,
}

pub(crate) struct Control {
    home: Home,
    planner: Planner,
    published: Published,
    state: Arc<api::State>,
    metrics: ControlMetrics,
    wake: Option<Timestamp>,
    /// Why the hub cannot be read, as it was last told.
    away: Option<String>,
    /// What of addresses could not be written down yet.
    unwritten: BTreeMap<IpAddr, Option<Allocation>>,
    unremembered: Unremembered,
}

/// What is held and what rests, as far as it could not be written down yet.
#[derive(Default)]
struct Unremembered {
    held: BTreeMap<ObjectRef, Option<HeldClaims>>,
    resting: BTreeMap<Place, Option<Resting>>,
}

/// The control thread, from outside.
pub(crate) struct Running {
    thread: JoinHandle<()>,
    /// Changes with the home.
    stop: Arc<Mutex<Stopper>>,
    pauses: Sender<Pause>,
}

/// Reads the home anew, after another process had it.
pub(crate) type Reopen = Box<dyn FnOnce() -> anyhow::Result<Opened> + Send>;

/// A wish to have the home for a while, or for good.
struct Pause {
    /// Told once the home and its database are closed.
    closed: Sender<()>,
    /// The way back; without one it is for good.
    back: Receiver<Reopen>,
}

/// The home is closed, and nobody reads it, until it is taken back or the thread is stopped.
pub(crate) struct Paused {
    back: Sender<Reopen>,
}

impl Control {
    /// Publishes what the home holds at the start.
    pub(crate) fn start(
        Opened { home, mut first, .. }: Opened,
        published: Published,
        state: Arc<api::State>,
        metrics: ControlMetrics,
    ) -> anyhow::Result<Self> {
        // On a hub, both stand in the status of its objects.
        let Memory { serials, kept } = match &home {
            Home::Folder { database, .. } => database.recall()?,
            Home::Hub(_) => Memory::default(),
        };
        let mut planner = Planner::resume(serials);
        planner.recall(kept);
        recall_addresses(&home, &planner, &mut first)?;
        let (unwritten, unremembered) = (BTreeMap::new(), Unremembered::default());
        let mut control =
            Self { home, planner, published, state, metrics, wake: None, away: None, unwritten, unremembered };
        control.take(first);
        Ok(control)
    }

    pub(crate) fn spawn(self) -> anyhow::Result<Running> {
        let stop = Arc::new(Mutex::new(self.home.stopper()));
        let (pauses, wishes) = mpsc::channel();
        let thread = std::thread::Builder::new().name("control".into());
        let stopper = Arc::clone(&stop);
        let thread = thread.spawn(move || self.run(&wishes, &stopper)).context("starting the control thread")?;
        Ok(Running { thread, stop, pauses })
    }

    fn run(mut self, pauses: &Receiver<Pause>, stopper: &Mutex<Stopper>) {
        loop {
            while self.step() {}
            self.rest();
            // Told to stop, either for good or for somebody who wants the home.
            let Ok(pause) = pauses.try_recv() else { break };
            let Some(control) = self.pause(&pause) else { return };
            self = control;
            *lock(stopper) = self.home.stopper();
        }
        if let Home::Hub(hub) = self.home {
            hub.close();
        }
    }

    /// Closes the home and waits for the way back.
    fn pause(self, pause: &Pause) -> Option<Self> {
        let Self { home, planner, published, state, metrics, wake, away, unwritten, unremembered } = self;
        drop(home);
        state.database.store(None);
        // Who is gone meanwhile sends no way back either.
        let _ = pause.closed.send(());
        let reopen = pause.back.recv().ok()?;
        let reopened = reopen().and_then(|mut opened| {
            recall_addresses(&opened.home, &planner, &mut opened.first)?;
            Ok(opened)
        });
        let Opened { home, database, first } = reopened
            .inspect_err(|error| tracing::error!("the folder is not read any more: {error:#}; restart this process"))
            .ok()?;
        state.database.store(Some(database));
        let mut control = Self { home, planner, published, state, metrics, wake, away, unwritten, unremembered };
        control.take(first);
        Some(control)
    }

    /// Waits for one change and takes it; `false` means stop.
    fn step(&mut self) -> bool {
        let deadline = self.wake.map(|at| Instant::now() + at.as_unix().saturating_sub(now().as_unix()));
        match self.home.next(deadline) {
            Some(update) => {
                self.take(update);
                true
            }
            None => false,
        }
    }

    fn take(&mut self, update: Update) {
        match update {
            Update::Folder(update) => self.take_folder(update),
            Update::Hub(update) => self.take_hub(update),
        }
    }

    fn take_folder(&mut self, update: store::Update) {
        if let Some(error) = update.unsaved {
            self.metrics.unsaved.inc();
            tracing::error!(error = &error as &dyn std::error::Error, "the new state is served but is not on disk");
        }
        if let Some(error) = &update.folder {
            tracing::error!(%error, "the last good state keeps serving");
        }
        if !update.recalled.is_empty() {
            self.plan(update.recalled);
        }
        self.plan(update.facts);
        self.settle_home();
        self.metrics.refused_files.set(i64::try_from(update.refused.len()).unwrap_or(i64::MAX));
        self.state.folder.store(Arc::new(FolderState { refused: update.refused, error: update.folder }));
        self.state.set_informed();
        self.state.set_whole();
    }

    fn take_hub(&mut self, mut update: kubernetes::Update) {
        let known = update.complete || !update.facts.is_empty();
        if update.away != self.away {
            match (&self.away, &update.away) {
                (None, Some(reason)) => {
                    tracing::error!("the hub cannot be read: {reason}; the last good state keeps serving");
                }
                // Each of its kinds has a reason of its own, time and again.
                (Some(_), Some(reason)) => tracing::debug!("the hub still cannot be read: {reason}"),
                (_, None) => tracing::info!("the hub is read again"),
            }
            self.away.clone_from(&update.away);
            self.metrics.hub_away.set(i64::from(update.away.is_some()));
        }
        // Planned even without facts: what was held back may have waited long enough.
        self.plan(std::mem::take(&mut update.facts));
        if let Home::Hub(hub) = &self.home {
            hub.pass_on(&mut update);
        }
        if known {
            self.state.set_informed();
        }
        if update.complete {
            self.state.set_whole();
        }
    }

    fn plan(&mut self, facts: Vec<FactChange>) {
        let begun = Instant::now();
        let before = Arc::clone(self.planner.snapshot());
        let count = facts.len();
        let planned = self.planner.apply(facts, now());
        self.wake = planned.wake;
        // A serial must not be served twice, so that it is reserved on disk before it is served once.
        self.remember(&planned.reserve, &planned.kept);
        self.remember_held(&planned);
        self.metrics.withdrawals_held.set(i64::try_from(planned.held_names).unwrap_or(i64::MAX));
        let changed = !Arc::ptr_eq(&before, &planned.snapshot);
        if changed {
            // Doors first: a name must not lead to a door that does not know it yet.
            self.published.snapshot.store(Arc::clone(&planned.snapshot));
            if !planned.changes.hosts.is_empty() {
                self.published.http.store(Arc::new(planned.snapshot.http().clone()));
            }
        }
        self.publish_names(&planned);
        if changed {
            self.state.verdicts.publish(&planned.snapshot, &planned.changes.statuses);
            let took = begun.elapsed();
            self.metrics.planned(took);
            self.report(&before, &planned, count, took);
            self.state.history.record(&before, &planned.snapshot, &planned.changes, now());
            if let Home::Hub(hub) = &self.home {
                hub.write_back(&planned.changes);
            }
        }
        self.allocate(planned.addresses);
    }

    /// Writes down who has which address, and plans with that: nobody has one before it is on disk. On a hub the leader
    /// does so.
    fn allocate(&mut self, wanted: Vec<(IpAddr, Option<Allocation>)>) {
        let Home::Folder { database, .. } = &self.home else { return };
        self.unwritten.extend(wanted);
        if self.unwritten.is_empty() {
            return;
        }
        let written: Vec<_> = self.unwritten.clone().into_iter().collect();
        if let Err(error) = database.allocate(&written) {
            self.metrics.unsaved.inc();
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "addresses cannot be written down, and are not given; it is tried again");
            let again = now().saturating_add(NEXT_ATTEMPT);
            self.wake = Some(self.wake.map_or(again, |wake| wake.min(again)));
            return;
        }
        self.unwritten.clear();
        self.plan(written.into_iter().map(|(address, allocation)| FactChange::Address(address, allocation)).collect());
    }

    /// In a folder at once; on a hub once they have their number.
    fn publish_names(&mut self, planned: &Planned) {
        let mut released = None;
        let changes = match &mut self.home {
            Home::Folder { .. } => &planned.changes,
            Home::Hub(hub) => {
                let changes = hub.gate.pass(planned, now());
                self.wake = [self.wake, hub.gate.wake()].into_iter().flatten().min();
                &*released.insert(changes)
            }
        };
        if !changes.zones.is_empty() || !changes.names.is_empty() {
            self.published.index.store(Arc::new(self.published.index.load().apply(changes)));
        }
    }

    /// Writes down how far serials have come, so that the same content has the same one after a restart.
    fn rest(&mut self) {
        let serials = self.planner.rest();
        self.remember(&serials, &[]);
    }

    fn remember(&self, serials: &[(DnsName, SerialFloor)], kept: &[(ClusterName, Option<KeptSet>)]) {
        // On a hub, both go into the status of its objects.
        let Home::Folder { database, .. } = &self.home else { return };
        if serials.is_empty() && kept.is_empty() {
            return;
        }
        if let Err(error) = database.remember(serials, kept) {
            self.metrics.unsaved.inc();
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "what a restart has to know is not on disk: serials may go back after one");
        }
    }

    /// What a restart has to hold on, and to keep from others. On a hub, the former stands in the status of its Tenants.
    fn remember_held(&mut self, planned: &Planned) {
        let Home::Folder { database, .. } = &self.home else { return };
        self.unremembered.held.extend(planned.held.iter().cloned());
        self.unremembered.resting.extend(planned.resting.iter().cloned());
        let Unremembered { held, resting } = std::mem::take(&mut self.unremembered);
        if held.is_empty() && resting.is_empty() {
            return;
        }
        let (held, resting): (Vec<_>, Vec<_>) = (held.into_iter().collect(), resting.into_iter().collect());
        if let Err(error) = database.remember_held(&held, &resting) {
            self.metrics.unsaved.inc();
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "what is held is not on disk, and would go with a restart; it is tried again");
            let again = now().saturating_add(NEXT_ATTEMPT);
            self.wake = Some(self.wake.map_or(again, |wake| wake.min(again)));
            self.unremembered =
                Unremembered { held: held.into_iter().collect(), resting: resting.into_iter().collect() };
        }
    }

    /// Claims that are gone are forgotten once it is on disk what of them is held: until then a restart would recall them.
    fn settle_home(&mut self) {
        let Home::Folder { home, .. } = &mut self.home else { return };
        if self.unremembered.held.is_empty()
            && let Some(error) = home.settle()
        {
            self.metrics.unsaved.inc();
            tracing::error!(error = &error as &dyn std::error::Error, "the new state is served but is not on disk");
        }
    }

    fn report(&self, before: &Snapshot, planned: &Planned, facts: usize, took: Duration) {
        let after = &planned.snapshot;
        for object in &planned.changes.statuses {
            let refusal = after.status(object).and_then(|status| status.refusal());
            if let Some(refusal) = refusal
                && before.status(object).and_then(|status| status.refusal()) != Some(refusal)
            {
                tracing::warn!(%object, code = refusal.reason, reason = refusal.message, "refused");
            }
        }
        report_held(before, planned);
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.refused_objects.set(count(after.refused_count()));
        self.metrics.clusters.set(count(after.cluster_count()));
        self.metrics.zones.set(count(after.zone_count()));
        tracing::info!(
            revision = after.revision,
            facts,
            clusters = after.cluster_count(),
            refused = after.refused_count(),
            micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            "published"
        );
    }
}

impl Running {
    /// Has the home closed, so that another process can open it; what was published stays.
    pub(crate) fn pause(&self) -> Option<Paused> {
        let ((closed, is_closed), (back, way_back)) = (mpsc::channel(), mpsc::channel());
        self.pauses.send(Pause { closed, back: way_back }).ok()?;
        lock(&self.stop).stop();
        is_closed.recv().ok()?;
        Some(Paused { back })
    }

    pub(crate) fn stop(self) {
        lock(&self.stop).stop();
        if self.thread.join().is_err() {
            tracing::error!("the control thread panicked");
        }
    }
}

impl Paused {
    /// Goes on with a home that is opened anew, and with what was planned before.
    pub(crate) fn resume(self, reopen: Reopen) {
        // A thread that is gone has said why.
        let _ = self.back.send(reopen);
    }
}

/// Has the first facts of a folder begin with who has which address; planned later, they would come too late for claims.
fn recall_addresses(home: &Home, planner: &Planner, first: &mut Update) -> anyhow::Result<()> {
    let (Home::Folder { database, .. }, Update::Folder(update)) = (home, first) else { return Ok(()) };
    let known: BTreeMap<IpAddr, Allocation> = database.allocations()?.into_iter().collect();
    let snapshot = planner.snapshot();
    let gone = snapshot.addresses().map(|(address, _)| address).filter(|address| !known.contains_key(address));
    let gone: Vec<_> = gone.map(|address| FactChange::Address(address, None)).collect();
    let known = known.into_iter().map(|(address, allocation)| FactChange::Address(address, Some(allocation)));
    let facts = if update.recalled.is_empty() { &mut update.facts } else { &mut update.recalled };
    facts.splice(0..0, gone.into_iter().chain(known));
    Ok(())
}

/// Says once that names are held, and once that they are not any more.
fn report_held(before: &Snapshot, planned: &Planned) {
    let held = |snapshot: &Snapshot, object: &ObjectRef| {
        let conditions = snapshot.status(object).map(|status| status.conditions.clone()).unwrap_or_default();
        conditions.into_iter().find(|condition| condition.kind == Condition::WITHDRAWALS_HELD)
    };
    for object in planned.changes.statuses.iter().filter(|object| object.kind == Kind::Tenant) {
        match (held(before, object), held(&planned.snapshot, object)) {
            (None, Some(condition)) => tracing::warn!(%object, "{}", condition.message),
            (Some(_), None) => tracing::info!(%object, "nothing of it is held any more"),
            _ => {}
        }
    }
    let is_held = |snapshot: &Snapshot, name: &ClusterName| snapshot.cluster(name).is_some_and(|part| part.held);
    let clusters = planned.changes.clusters.iter();
    let news = clusters.filter(|name| is_held(&planned.snapshot, name) && !is_held(before, name));
    let news: Vec<&ClusterName> = news.collect();
    if let Some(example) = news.first() {
        let clusters = news.len();
        tracing::warn!(
            clusters,
            %example,
            "clusters have no ready node, and so many others neither that their last addresses are held; `fleetgate release zone NAME` lets them go"
        );
    }
}

fn lock(stop: &Mutex<Stopper>) -> MutexGuard<'_, Stopper> {
    stop.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn now() -> Timestamp {
    Timestamp::from_unix(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}
