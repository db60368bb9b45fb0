//! Sending federated traffic elsewhere while a cluster is looked after: `POST /v1/drain/CLUSTER`, and `DELETE` to have it back.

use std::sync::Arc;

use axum::Json;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use manifest::labels::DRAINED;
use model::identity::Kind;
use model::{ClusterName, ObjectRef};
use serde_json::{Value, json};

use crate::agents::load::now;
use crate::extract::{Nothing, Path, Query};
use crate::objects::{self, Failure};
use crate::orders;
use crate::state::State;

pub(crate) async fn drain(
    Shared(state): Shared<Arc<State>>,
    Path(name): Path<String>,
    _: Query<Nothing>,
) -> Result<Json<Value>, Failure> {
    set(&state, &name, true).await.map(Json)
}

pub(crate) async fn undo(
    Shared(state): Shared<Arc<State>>,
    Path(name): Path<String>,
    _: Query<Nothing>,
) -> Result<Json<Value>, Failure> {
    set(&state, &name, false).await.map(Json)
}

/// Whoever wants a cluster drained again is told since when it is.
pub(crate) async fn set(state: &State, name: &str, drained: bool) -> Result<Value, Failure> {
    let missing = || Failure::new(StatusCode::NOT_FOUND, "NoSuchObject", format!("no Cluster is called {name}"));
    let cluster: ClusterName = name.parse().map_err(|_| missing())?;
    let object = ObjectRef::cluster_scoped(Kind::Cluster, (&cluster).into());
    let snapshot = state.snapshot.load_full();
    if snapshot.status(&object).is_none() {
        return Err(missing());
    }
    let since = snapshot.cluster(&cluster).and_then(|part| part.drained);
    let orders = orders::desk(state)?;
    if !drained && !orders.are_in_objects() && is_in_manifest(state, &object)? {
        let reason = format!("the manifest of {name} says so itself: take its annotation {DRAINED} away");
        return Err(Failure::new(StatusCode::CONFLICT, "DrainedByManifest", reason));
    }
    let since = match (drained, since) {
        (true, Some(since)) => Some(since),
        (true, None) => Some(now()),
        (false, _) => None,
    };
    orders.drain(cluster.clone(), since).await?;
    if let Some(since) = since {
        tracing::warn!(target: "audit", event = "drain", %object, %since, "drained: somebody with the admin credential said so");
    } else {
        tracing::warn!(target: "audit", event = "undrain", %object, "not drained any more: somebody with the admin credential said so");
    }
    Ok(json!({ "cluster": cluster.as_str(), "drained": since.map(|since| since.to_string()) }))
}

/// Whether what was written in a folder says so, which an order does not change.
fn is_in_manifest(state: &State, object: &ObjectRef) -> Result<bool, Failure> {
    let record = objects::database(state)?.get(object)?;
    let written = record.and_then(|record| manifest::document::to_json(&record.text).ok());
    Ok(written.is_some_and(|written| !written["metadata"]["annotations"][DRAINED].is_null()))
}
