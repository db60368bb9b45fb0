//! Who is heard by whom, among the processes of a hub.

use std::sync::Arc;

use axum::Json;
use axum::extract::State as Shared;
use serde_json::{Value, json};

use crate::extract::{Nothing, Query};
use crate::state::State;

/// What this process knows of it.
pub type View = Arc<dyn Fn() -> Value + Send + Sync>;

/// Nothing but an empty list where there is no hub.
pub(crate) async fn show(Shared(state): Shared<Arc<State>>, _: Query<Nothing>) -> Json<Value> {
    Json(state.peers.get().map_or_else(|| json!({ "items": [] }), |view| view()))
}
