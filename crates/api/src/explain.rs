//! Where a connection, a query or a request would go, and why: `GET /v1/explain?tlv=ID`, `?name=NAME` or `?url=URL`, with
//! `from=IP` and, beside an id, `proof=true`, beside a URL `serverName=NAME`.
//!
//! What would become of it is asked of those who would decide: the doors (`connection`), the HTTP doors (`request`) and DNS
//! (`names`). `refused` adds who wants the same id or name and may not have it.

mod connection;
mod members;
mod names;
mod refused;
mod request;
pub mod told;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use gateway::explain::{Question, Wanted};
use model::DnsName;
use model::identity::MAX_CLUSTER_ID;
use serde::Deserialize;
use serde_json::{Value, json};
use web::explain::Url;

use crate::extract::Query;
use crate::objects::{Failure, database};
use crate::state::State;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    pub(crate) name: Option<String>,
    pub(crate) tlv: Option<String>,
    pub(crate) url: Option<String>,
    #[serde(rename = "serverName")]
    pub(crate) server_name: Option<String>,
    pub(crate) from: Option<String>,
    #[serde(default)]
    pub(crate) proof: bool,
}

pub(crate) async fn explain(
    Shared(state): Shared<Arc<State>>,
    Query(asked): Query<Asked>,
) -> Result<Json<Value>, Failure> {
    answer(&state, &asked).map(Json)
}

/// The same for the dashboard.
pub(crate) fn answer(state: &State, asked: &Asked) -> Result<Value, Failure> {
    let from = read_address(asked)?;
    if let Some(url) = &asked.url {
        return request::explain(state, &read_request(asked, url, from)?, url);
    }
    let question = Question { wants: read(asked)?, from };
    let connection = doors(state)?.explain(&question, Instant::now());
    let snapshot = state.snapshot.load();
    let from = from.map(|from| from.to_string());
    let mut answer = match &question.wants {
        Wanted::ClusterId { proof, .. } => {
            json!({ "asked": { "clusterId": asked.tlv, "proof": proof, "from": from } })
        }
        Wanted::ServerName(name) => {
            let told = names::resolve(name, question.from, state);
            json!({
                "asked": { "name": name.to_string(), "from": from },
                "dns": names::to_json(name, told, &state.guides, &snapshot, &state.recent),
            })
        }
    };
    answer["connection"] = connection::to_json(&connection, &question);
    answer["refused"] = refused::who_wants(&question.wants, &snapshot, &*database(state)?)?;
    Ok(answer)
}

fn doors(state: &State) -> Result<&gateway::Insight, Failure> {
    state.insight.get().map(|insight| &**insight).ok_or_else(not_ready)
}

fn not_ready() -> Failure {
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, "NotReady", "the doors are not open yet")
}

fn read_address(asked: &Asked) -> Result<Option<IpAddr>, Failure> {
    let read = |from: &str| from.parse().map_err(|_| bad("BadAddress", format!("from: {from:?} is no IP address")));
    asked.from.as_deref().map(read).transpose()
}

fn read_request(asked: &Asked, url: &str, from: Option<IpAddr>) -> Result<web::explain::Question, Failure> {
    if asked.name.is_some() || asked.tlv.is_some() {
        return Err(bad("AskedTwice", "ask for a URL, a name or a tlv, not for several"));
    }
    if asked.proof {
        return Err(bad("ProofWithName", "a proof comes beside a tlv only"));
    }
    let url = Url::parse(url).map_err(|error| bad("BadUrl", format!("url: {error}")))?;
    if asked.server_name.is_some() && !url.is_https {
        return Err(bad(
            "ServerNameWithoutTls",
            "serverName: only https:// has a TLS hello that could name another host",
        ));
    }
    let server_name = asked.server_name.as_deref().map(|name| read_name("serverName", name)).transpose()?;
    Ok(web::explain::Question { url, server_name, from })
}

fn read(asked: &Asked) -> Result<Wanted, Failure> {
    if asked.server_name.is_some() {
        return Err(bad("ServerNameWithoutUrl", "serverName: it comes beside a URL only"));
    }
    match (&asked.tlv, &asked.name) {
        (Some(_), Some(_)) => Err(bad("AskedTwice", "ask for a URL, a name or a tlv, not for several")),
        (None, None) => Err(bad("NothingAsked", "ask for a URL, a name or a tlv")),
        (None, Some(_)) if asked.proof => Err(bad("ProofWithName", "a proof comes beside a tlv only")),
        (Some(id), None) if (1..=MAX_CLUSTER_ID).contains(&id.len()) => {
            Ok(Wanted::ClusterId { id: id.as_bytes().to_vec(), proof: asked.proof })
        }
        (Some(id), None) => {
            let reason = format!("tlv: a cluster id has 1 to {MAX_CLUSTER_ID} bytes, not {}", id.len());
            Err(bad("BadClusterId", reason))
        }
        (None, Some(name)) => Ok(Wanted::ServerName(read_name("name", name)?)),
    }
}

/// Both would pass as octets of a label.
fn read_name(field: &str, text: &str) -> Result<DnsName, Failure> {
    if text.contains([':', '/']) {
        let reason = format!("{field}: give the host name alone, or a whole URL that begins with https:// or http://");
        return Err(bad("BadName", reason));
    }
    DnsName::parse(text).map_err(|error| bad("BadName", format!("{field}: {error}")))
}

fn bad(code: &'static str, reason: impl Into<String>) -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, code, reason)
}
