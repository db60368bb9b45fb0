//! The links of clusters' agents that this process has.

use std::sync::Arc;

use axum::Json;
use axum::extract::State as Shared;
use serde_json::{Value, json};

use crate::extract::{Nothing, Query};
use crate::state::State;

pub(crate) async fn list(Shared(state): Shared<Arc<State>>, _: Query<Nothing>) -> Json<Value> {
    let items = state.links.get().map(tunnel::Hub::links).unwrap_or_default();
    Json(json!({ "items": items }))
}
