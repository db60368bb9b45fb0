//! Where the facts come from: a folder with its database, or a hub.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use model::gate::Gate;
use store::watch::Signal;
use store::{Database, DatabaseError, SealKey};
use tokio_util::sync::CancellationToken;

use crate::advice::{self, Advise as _};
use crate::arguments::StateOptions;
use crate::keeper::{self, Keeper};
use crate::leading::Desk;
use crate::telemetry::ControlMetrics;

/// An answer that is being read from the database keeps it open for milliseconds, a large listing for a second.
const GIVING_UP: Duration = Duration::from_secs(10);

pub(crate) enum Home {
    Folder { home: Box<store::Home>, database: Arc<Database> },
    Hub(Box<Hub>),
}

pub(crate) struct Hub {
    home: kubernetes::Home,
    keeper: Keeper,
    /// Holds names back until the hub has numbered them.
    pub(crate) gate: Gate,
    /// For a controller.
    desk: Option<Desk>,
}

pub(crate) enum Update {
    Folder(store::Update),
    Hub(kubernetes::Update),
}

/// A home, what it holds, and its objects for those who show them.
pub(crate) struct Opened {
    pub(crate) home: Home,
    pub(crate) database: Arc<Database>,
    pub(crate) first: Update,
}

/// Ends the waiting for a home's next change.
pub(crate) enum Stopper {
    Folder(Sender<Signal>),
    Hub(CancellationToken),
}

/// With `from_another`, a process that is just giving the database up is waited for.
pub(crate) fn open_folder(
    fleet: &Path,
    data: Option<&Path>,
    resolver: Option<store::Resolver>,
    from_another: bool,
) -> anyhow::Result<Opened> {
    let begun = Instant::now();
    let database = loop {
        match open_database(data) {
            Err(DatabaseError::InUse { .. }) if from_another && begun.elapsed() < GIVING_UP => {
                std::thread::sleep(Duration::from_millis(5));
            }
            opened => break Arc::new(opened?),
        }
    };
    let opened = store::Home::open(fleet, Arc::clone(&database), resolver);
    let (home, first) = match opened {
        Err(store::home::OpenError::Folder(error)) => Err(error).advise(|| advice::of_folder(fleet))?,
        opened => opened?,
    };
    let home = Home::Folder { home: Box::new(home), database: Arc::clone(&database) };
    Ok(Opened { home, database, first: Update::Folder(first) })
}

/// Within a tokio runtime. `desk` is where a controller's work is brought to.
pub(crate) fn open_hub(
    client: &kubernetes::Client,
    settings: kubernetes::home::Settings,
    state: &StateOptions,
    desk: Option<Desk>,
    metrics: &ControlMetrics,
) -> anyhow::Result<Opened> {
    let seal = state.data_key.as_deref().map(SealKey::read).transpose()?;
    let database = Arc::new(match &state.data {
        Some(folder) => Database::open(folder)?,
        None => Database::in_memory()?,
    });
    let known = keeper::recall(&database, seal.as_ref()).context("reading the last good state")?;
    if state.data.is_some() && seal.is_none() && settings.roles.gateway {
        tracing::warn!("no --data-key: the keys of clusters that demand a proof are not kept in --data");
    }
    let keeper = Keeper::start(Arc::clone(&database), seal, metrics.clone())?;
    let runtime = tokio::runtime::Handle::current();
    let writing = desk.as_ref().map(|desk| desk.writing.clone());
    let (home, first) = kubernetes::Home::open(client, settings, known, writing, runtime);
    let hub = Hub { home, keeper, gate: Gate::default(), desk };
    Ok(Opened { home: Home::Hub(Box::new(hub)), database, first: Update::Hub(first) })
}

fn open_database(data: Option<&Path>) -> Result<Database, DatabaseError> {
    if let Some(folder) = data {
        return Database::open(folder);
    }
    tracing::warn!("no --data: the last good state and who was first are lost with this process");
    Database::in_memory()
}

impl Home {
    pub(crate) fn stopper(&self) -> Stopper {
        match self {
            Self::Folder { home, .. } => Stopper::Folder(home.stopper()),
            Self::Hub(hub) => Stopper::Hub(hub.home.stopper()),
        }
    }

    /// Waits for the next change, or until `deadline`; `None` means stop.
    pub(crate) fn next(&mut self, deadline: Option<Instant>) -> Option<Update> {
        match self {
            Self::Folder { home, .. } => home.next(deadline).map(Update::Folder),
            Self::Hub(hub) => hub.home.next(deadline).map(Update::Hub),
        }
    }
}

impl Hub {
    /// Has what is known be kept, and the controller's work be done.
    pub(crate) fn pass_on(&self, update: &mut kubernetes::Update) {
        self.keeper.keep(std::mem::take(&mut update.saves));
        if let Some(desk) = &self.desk {
            desk.take(std::mem::take(&mut update.wishes), update.complete);
        }
    }

    /// Has what these changes concern be looked at.
    pub(crate) fn write_back(&self, changes: &model::Changes) {
        if let Some(desk) = &self.desk {
            desk.writing.mark_planned(changes);
        }
    }

    pub(crate) fn close(self) {
        self.keeper.stop();
    }
}

impl Stopper {
    pub(crate) fn stop(&self) {
        match self {
            // A thread that is gone already needs no telling.
            Self::Folder(signals) => _ = signals.send(Signal::Stop),
            Self::Hub(token) => token.cancel(),
        }
    }
}
