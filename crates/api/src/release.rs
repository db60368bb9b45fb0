//! Letting go what is held: `POST /v1/release/KIND/NAME`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use model::ObjectRef;
use model::identity::Kind;
use serde_json::{Value, json};

use crate::agents::load::now;
use crate::extract::{Nothing, Path, Query};
use crate::objects::Failure;
use crate::orders;
use crate::state::State;

pub(crate) async fn release(
    Shared(state): Shared<Arc<State>>,
    Path((kind, name)): Path<(String, String)>,
    _: Query<Nothing>,
) -> Result<Json<Value>, Failure> {
    let_go(&state, &kind, &name).await.map(Json)
}

pub(crate) async fn let_go(state: &State, kind: &str, name: &str) -> Result<Value, Failure> {
    let kind = Kind::find(kind).filter(|kind| matches!(kind, Kind::Zone | Kind::Tenant)).ok_or_else(|| {
        let reason = format!("what is held is let go of a zone or a tenant, not of {kind:?}");
        Failure::new(StatusCode::BAD_REQUEST, "NotReleasable", reason)
    })?;
    let missing = || Failure::new(StatusCode::NOT_FOUND, "NoSuchObject", format!("no {kind} is called {name}"));
    let object = ObjectRef::cluster_scoped(kind, name.parse().map_err(|_| missing())?);
    let snapshot = state.snapshot.load_full();
    if snapshot.status(&object).is_none() {
        return Err(missing());
    }
    let names = snapshot.held_names(&object);
    let until = now();
    orders::desk(state)?.release(object.clone(), until).await?;
    tracing::warn!(target: "audit", event = "release", %object, names, "what was held is let go: somebody with the admin credential said so");
    Ok(json!({ "kind": kind.as_str(), "name": object.name.as_str(), "released": until.to_string(), "names": names }))
}
