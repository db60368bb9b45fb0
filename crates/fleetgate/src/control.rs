//! * One change: from the folder through the plan to what data planes read.
//!
//! One thread owns the home and the planner; everybody else reads what it publishes.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use api::FolderState;
use arc_swap::ArcSwap;
use model::serial::SerialFloor;
use model::{ClusterName, DnsName, FactChange, KeptSet, Planned, Planner, Snapshot, Timestamp};
use store::watch::Signal;
use store::{Database, Home, Memory, Update};

use crate::telemetry::ControlMetrics;

/// What the control side publishes: each a value that is replaced whole, and that nobody waits for.
#[derive(Clone, Default)]
pub(crate) struct Published {
    pub(crate) snapshot: Arc<ArcSwap<Snapshot>>,
    pub(crate) index: Arc<ArcSwap<dns::Index>>,
}

pub(crate) struct Control {
    home: Home,
    database: Arc<Database>,
    planner: Planner,
    published: Published,
    state: Arc<api::State>,
    metrics: ControlMetrics,
    wake: Option<Timestamp>,
}

/// The control thread, from outside.
pub(crate) struct Running {
    thread: JoinHandle<()>,
    /// Changes with the home.
    stop: Arc<Mutex<Sender<Signal>>>,
    pauses: Sender<Pause>,
}

/// A home, its database, and what it holds.
pub(crate) type Opened = (Home, Arc<Database>, Update);

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
        (home, database, first): Opened,
        published: Published,
        state: Arc<api::State>,
        metrics: ControlMetrics,
    ) -> anyhow::Result<Self> {
        let Memory { serials, kept } = database.recall()?;
        let mut planner = Planner::resume(serials);
        planner.recall(kept);
        let mut control = Self { home, database, planner, published, state, metrics, wake: None };
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

    fn run(mut self, pauses: &Receiver<Pause>, stopper: &Mutex<Sender<Signal>>) {
        loop {
            while self.step() {}
            self.rest();
            // Told to stop, either for good or for somebody who wants the home.
            let Ok(pause) = pauses.try_recv() else { return };
            let Some(control) = self.pause(&pause) else { return };
            self = control;
            *lock(stopper) = self.home.stopper();
        }
    }

    /// Closes the home and waits for the way back.
    fn pause(self, pause: &Pause) -> Option<Self> {
        let Self { home, database, planner, published, state, metrics, wake } = self;
        drop((home, database));
        state.database.store(None);
        // Who is gone meanwhile sends no way back either.
        let _ = pause.closed.send(());
        let reopen = pause.back.recv().ok()?;
        let (home, database, first) = reopen()
            .inspect_err(|error| tracing::error!("the folder is not read any more: {error:#}; restart this process"))
            .ok()?;
        state.database.store(Some(Arc::clone(&database)));
        let mut control = Self { home, database, planner, published, state, metrics, wake };
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
        self.metrics.refused_files.set(i64::try_from(update.refused.len()).unwrap_or(i64::MAX));
        self.state.folder.store(Arc::new(FolderState { refused: update.refused, error: update.folder }));
    }

    fn plan(&mut self, facts: Vec<FactChange>) {
        let begun = Instant::now();
        let before = Arc::clone(self.planner.snapshot());
        let count = facts.len();
        let planned = self.planner.apply(facts, now());
        self.wake = planned.wake;
        // A serial must not be served twice, so that it is reserved on disk before it is served once.
        self.remember(&planned.reserve, &planned.kept);
        if Arc::ptr_eq(&before, &planned.snapshot) {
            return;
        }
        // Doors first: a name must not lead to a door that does not know it yet.
        self.published.snapshot.store(Arc::clone(&planned.snapshot));
        self.published.index.store(Arc::new(self.published.index.load().apply(&planned.changes)));
        let took = begun.elapsed();
        self.metrics.planned(took);
        self.report(&before, &planned, count, took);
    }

    /// Writes down how far serials have come, so that the same content has the same one after a restart.
    fn rest(&mut self) {
        let serials = self.planner.rest();
        self.remember(&serials, &[]);
    }

    fn remember(&self, serials: &[(DnsName, SerialFloor)], kept: &[(ClusterName, Option<KeptSet>)]) {
        if serials.is_empty() && kept.is_empty() {
            return;
        }
        if let Err(error) = self.database.remember(serials, kept) {
            self.metrics.unsaved.inc();
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "what a restart has to know is not on disk: serials may go back after one");
        }
    }

    fn report(&self, before: &Snapshot, planned: &Planned, facts: usize, took: Duration) {
        let after = &planned.snapshot;
        for object in &planned.changes.statuses {
            let refusal = after.status(object).and_then(|status| status.refusal());
            if let Some(refusal) = refusal
                && before.status(object).and_then(|status| status.refusal()) != Some(refusal)
            {
                tracing::warn!(%object, code = refusal.reason, "refused: {}", refusal.message);
            }
        }
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
        lock(&self.stop).send(Signal::Stop).ok()?;
        is_closed.recv().ok()?;
        Some(Paused { back })
    }

    pub(crate) fn stop(self) {
        // A thread that is gone already needs no telling.
        let _ = lock(&self.stop).send(Signal::Stop);
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

fn lock(stop: &Mutex<Sender<Signal>>) -> MutexGuard<'_, Sender<Signal>> {
    stop.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now() -> Timestamp {
    Timestamp::from_unix(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}
