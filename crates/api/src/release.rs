//! Letting go what is held.

use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use axum::Json;
use axum::extract::{Path, State as Shared};
use axum::http::StatusCode;
use model::identity::Kind;
use model::{ObjectRef, Timestamp};
use serde_json::{Value, json};
use store::Database;

use crate::agents::{Answer, HomeError};
use crate::objects::Failure;
use crate::state::State;

/// Where it is written down that somebody has let go what was held of a Zone or a Tenant until then, and everybody who plans
/// hears of it.
pub trait Releases: Send + Sync {
    fn release(&self, object: ObjectRef, until: Timestamp) -> Answer<'_, ()>;
}

/// The database of a folder; away while another process takes over.
pub struct FolderReleases(pub Arc<ArcSwapOption<Database>>);

impl Releases for FolderReleases {
    fn release(&self, object: ObjectRef, until: Timestamp) -> Answer<'_, ()> {
        let database = self.0.load_full();
        Box::pin(async move {
            let database = database.ok_or(HomeError::HandingOver)?;
            let written = tokio::task::spawn_blocking(move || database.release(&object, until)).await;
            let written = written.map_err(|error| HomeError::Away(Box::new(error)))?;
            written.map_err(|error| HomeError::Away(Box::new(error)))
        })
    }
}

pub(crate) async fn release(
    Shared(state): Shared<Arc<State>>,
    Path((kind, name)): Path<(String, String)>,
) -> Result<Json<Value>, Failure> {
    let kind = Kind::find(&kind).filter(|kind| matches!(kind, Kind::Zone | Kind::Tenant)).ok_or_else(|| {
        let reason = format!("what is held is let go of a zone or a tenant, not of {kind:?}");
        Failure::new(StatusCode::BAD_REQUEST, "NotReleasable", reason)
    })?;
    let missing = || Failure::new(StatusCode::NOT_FOUND, "NoSuchObject", format!("no {kind} is called {name}"));
    let object = ObjectRef::cluster_scoped(kind, name.parse().map_err(|_| missing())?);
    let snapshot = state.snapshot.load_full();
    if snapshot.status(&object).is_none() {
        return Err(missing());
    }
    let releases = state.releases.get().ok_or_else(|| {
        let reason = "this fleetgate only reads; ask one that runs as `controller` or `serve`";
        Failure::new(StatusCode::NOT_FOUND, "OnlyReads", reason)
    })?;
    let names = snapshot.held_names(&object);
    let until = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let until = Timestamp::from_unix(until);
    releases.release(object.clone(), until).await?;
    tracing::warn!(%object, names, "what was held is let go: somebody with the admin credential said so");
    Ok(Json(
        json!({ "kind": kind.as_str(), "name": object.name.as_str(), "released": until.to_string(), "names": names }),
    ))
}

impl From<HomeError> for Failure {
    fn from(error: HomeError) -> Self {
        let code = if matches!(error, HomeError::HandingOver) {
            "HandingOver"
        } else {
            tracing::error!(error = &error as &dyn std::error::Error, "what is to be let go could not be written down");
            "Unavailable"
        };
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            code,
            "it could not be written down that this is let go; see the log",
        )
    }
}
