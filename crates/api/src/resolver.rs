//! Who asks the control planes' resolver, and what becomes of it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use serde_json::Value;

use crate::extract::{Nothing, Query};
use crate::objects::Failure;
use crate::state::State;

pub(crate) async fn show(Shared(state): Shared<Arc<State>>, _: Query<Nothing>) -> Result<Json<Value>, Failure> {
    let missing = || Failure::new(StatusCode::NOT_FOUND, "NoResolver", "this process has no --resolver");
    state.resolver.get().map(|view| Json(view())).ok_or_else(missing)
}
