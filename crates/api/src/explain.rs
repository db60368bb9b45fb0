//! Where a connection or a query would go, and why: `GET /v1/explain?tlv=ID` or `?name=NAME`, with `from=IP` and, beside an
//! id, `proof=true`.
//!
//! What would become of it is asked of those who would decide: the doors (`connection`) and DNS (`names`). `refused`
//! adds who wants the same id or name and may not have it.

mod connection;
mod names;
mod refused;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State as Shared};
use axum::http::StatusCode;
use gateway::explain::{Question, Wanted};
use model::DnsName;
use model::identity::MAX_CLUSTER_ID;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::objects::{Failure, database};
use crate::state::State;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    name: Option<String>,
    tlv: Option<String>,
    from: Option<String>,
    #[serde(default)]
    proof: bool,
}

pub(crate) async fn explain(
    Shared(state): Shared<Arc<State>>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Json<Value>, Failure> {
    let Query(asked) = asked.map_err(|rejection| bad("BadQuery", rejection.body_text()))?;
    let question = read(&asked)?;
    let Some(insight) = state.insight.get() else {
        return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "NotReady", "the doors are not open yet"));
    };
    let connection = insight.explain(&question, Instant::now());
    let snapshot = state.snapshot.load();
    let from = question.from.map(|from| from.to_string());
    let mut answer = match &question.wants {
        Wanted::ClusterId { proof, .. } => {
            json!({ "asked": { "clusterId": asked.tlv, "proof": proof, "from": from } })
        }
        Wanted::ServerName(name) => json!({
            "asked": { "name": name.to_string(), "from": from },
            "dns": names::to_json(name, &state.index.load(), &snapshot, &state.recent),
        }),
    };
    answer["connection"] = connection::to_json(&connection, &question);
    answer["refused"] = refused::who_wants(&question.wants, &snapshot, &*database(&state)?)?;
    Ok(Json(answer))
}

fn read(asked: &Asked) -> Result<Question, Failure> {
    let from = asked
        .from
        .as_deref()
        .map(|from| from.parse::<IpAddr>().map_err(|_| bad("BadAddress", format!("from: {from:?} is no IP address"))));
    let from = from.transpose()?;
    let wants = match (&asked.tlv, &asked.name) {
        (Some(_), Some(_)) => return Err(bad("AskedTwice", "ask for a name or for a tlv, not for both")),
        (None, None) => return Err(bad("NothingAsked", "ask for a name or for a tlv")),
        (None, Some(_)) if asked.proof => return Err(bad("ProofWithName", "a proof comes beside a tlv only")),
        (Some(id), None) if (1..=MAX_CLUSTER_ID).contains(&id.len()) => {
            Wanted::ClusterId { id: id.as_bytes().to_vec(), proof: asked.proof }
        }
        (Some(id), None) => {
            let reason = format!("tlv: a cluster id has 1 to {MAX_CLUSTER_ID} bytes, not {}", id.len());
            return Err(bad("BadClusterId", reason));
        }
        (None, Some(name)) => Wanted::ServerName(read_name(name)?),
    };
    Ok(Question { wants, from })
}

/// Both would pass as octets of a label.
fn read_name(text: &str) -> Result<DnsName, Failure> {
    if text.contains([':', '/']) {
        return Err(bad("BadName", "name: give the host name alone, without scheme, port and path"));
    }
    DnsName::parse(text).map_err(|error| bad("BadName", format!("name: {error}")))
}

fn bad(code: &'static str, reason: impl Into<String>) -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, code, reason)
}
