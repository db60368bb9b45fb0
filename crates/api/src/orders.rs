//! What an operator orders beside what manifests say, and where that is written down so that everybody who plans hears of it.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use axum::http::StatusCode;
use model::{ClusterName, ObjectRef, Timestamp};
use store::{Database, DatabaseError};

use crate::agents::{Answer, HomeError};
use crate::objects::Failure;
use crate::state::State;

pub trait Orders: Send + Sync {
    /// Lets go what was held of a Zone or a Tenant until then.
    fn release(&self, object: ObjectRef, until: Timestamp) -> Answer<'_, ()>;

    /// Has no federated traffic sent to a cluster since then, or sends it there again.
    fn drain(&self, cluster: ClusterName, since: Option<Timestamp>) -> Answer<'_, ()>;

    /// Whether orders are written into the objects themselves, so that nothing there stands beside them.
    fn are_in_objects(&self) -> bool;
}

/// The database of a folder; away while another process takes over.
pub struct FolderOrders(pub Arc<ArcSwapOption<Database>>);

impl FolderOrders {
    fn write(&self, order: impl FnOnce(&Database) -> Result<(), DatabaseError> + Send + 'static) -> Answer<'_, ()> {
        let database = self.0.load_full();
        Box::pin(async move {
            let database = database.ok_or(HomeError::HandingOver)?;
            let written = tokio::task::spawn_blocking(move || order(&database)).await;
            let written = written.map_err(|error| HomeError::Away(Box::new(error)))?;
            written.map_err(|error| HomeError::Away(Box::new(error)))
        })
    }
}

impl Orders for FolderOrders {
    fn release(&self, object: ObjectRef, until: Timestamp) -> Answer<'_, ()> {
        self.write(move |database| database.release(&object, until))
    }

    fn drain(&self, cluster: ClusterName, since: Option<Timestamp>) -> Answer<'_, ()> {
        self.write(move |database| database.drain(&cluster, since))
    }

    fn are_in_objects(&self) -> bool {
        false
    }
}

/// Where orders go to, of a process that may give them.
pub(crate) fn desk(state: &State) -> Result<&Arc<dyn Orders>, Failure> {
    state.orders.get().ok_or_else(|| {
        let reason = "this fleetgate only reads; ask one that runs as `controller` or `serve`";
        Failure::new(StatusCode::NOT_FOUND, "OnlyReads", reason)
    })
}

impl From<HomeError> for Failure {
    fn from(error: HomeError) -> Self {
        let code = if matches!(error, HomeError::HandingOver) {
            "HandingOver"
        } else {
            tracing::error!(error = &error as &dyn std::error::Error, "an order could not be written down");
            "Unavailable"
        };
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, "the order could not be written down; see the log")
    }
}
