//! The credentials of agents, for whoever runs the fleet.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use manifest::agents::Bootstrap;
use manifest::kept::Credential;
use model::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::agents::{CredentialError, Door, HomeError};
use crate::extract::{Body, Nothing, Path, Query};
use crate::objects::Failure;
use crate::state::State;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Wish {
    cluster: String,
    valid_seconds: u64,
}

#[derive(Serialize)]
pub(crate) struct Issued {
    id: String,
    bootstrap: Bootstrap,
}

pub(crate) async fn issue(
    Shared(state): Shared<Arc<State>>,
    _: Query<Nothing>,
    Body(Wish { cluster, valid_seconds }): Body<Wish>,
) -> Result<Json<Issued>, Failure> {
    let (credential, bootstrap) = door(&state)?.issue(&cluster, Duration::from_secs(valid_seconds)).await?;
    Ok(Json(Issued { id: credential.id, bootstrap }))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ControlPlaneWish {
    cluster: String,
    valid_seconds: u64,
    csr: String,
}

/// For a control plane, whose key was made where it stays.
pub(crate) async fn issue_to_control_plane(
    Shared(state): Shared<Arc<State>>,
    _: Query<Nothing>,
    Body(ControlPlaneWish { cluster, valid_seconds, csr }): Body<ControlPlaneWish>,
) -> Result<Json<Value>, Failure> {
    let valid = Duration::from_secs(valid_seconds);
    let (credential, signed) = door(&state)?.issue_to_control_plane(&cluster, &csr, valid).await?;
    Ok(Json(json!({
        "id": credential.id,
        "certificate": signed.certificate,
        "ca": signed.ca,
        "expires": moment(signed.expires),
    })))
}

pub(crate) async fn list(Shared(state): Shared<Arc<State>>, _: Query<Nothing>) -> Result<Json<Value>, Failure> {
    let credentials = door(&state)?.credentials().await.map_err(CredentialError::from)?;
    let items: Vec<Value> = credentials.iter().map(show).collect();
    Ok(Json(json!({ "items": items })))
}

pub(crate) async fn revoke(
    Shared(state): Shared<Arc<State>>,
    Path(id): Path<String>,
    _: Query<Nothing>,
) -> Result<Json<Value>, Failure> {
    door(&state)?.revoke(&id).await?;
    Ok(Json(json!({ "revoked": id })))
}

fn door(state: &State) -> Result<&Arc<Door>, Failure> {
    let reason = "this fleetgate has no agents' door; start it with --agents ADDR";
    state.agents.get().ok_or_else(|| Failure::new(StatusCode::NOT_FOUND, "NoAgentsDoor", reason))
}

/// Without the digest: it is of no use to anybody who asks here.
fn show(credential: &Credential) -> Value {
    json!({
        "id": credential.id,
        "cluster": credential.cluster,
        "uid": credential.uid,
        "holder": credential.holder.as_str(),
        "issued": moment(credential.issued),
        "expires": moment(credential.expires),
    })
}

fn moment(seconds: u64) -> String {
    Timestamp::from_unix(Duration::from_secs(seconds)).to_string()
}

impl From<CredentialError> for Failure {
    fn from(error: CredentialError) -> Self {
        let (status, code) = match &error {
            CredentialError::NoSuchCluster(_) => (StatusCode::NOT_FOUND, "NoSuchCluster"),
            CredentialError::NoSuchCredential(_) => (StatusCode::NOT_FOUND, "NoSuchCredential"),
            CredentialError::TooMany(_) => (StatusCode::CONFLICT, "TooManyCredentials"),
            CredentialError::Valid | CredentialError::Request(_) => (StatusCode::BAD_REQUEST, "Malformed"),
            CredentialError::NoAuthority => (StatusCode::SERVICE_UNAVAILABLE, "NoAuthority"),
            CredentialError::Home(HomeError::HandingOver) => (StatusCode::SERVICE_UNAVAILABLE, "HandingOver"),
            CredentialError::Home(_) => {
                tracing::error!(error = &error as &dyn std::error::Error, "credentials could not be read or written");
                (StatusCode::SERVICE_UNAVAILABLE, "Unavailable")
            }
        };
        Self::new(status, code, error.to_string())
    }
}
