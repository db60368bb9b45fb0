//! The objects with their status, and everything that is refused.

use std::sync::Arc;

use axum::Json;
use axum::extract::State as Shared;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use manifest::text::Text;
use model::identity::Kind;
use model::listing;
use model::overflow::Failing;
use model::policy::Refused;
use model::{DnsName, ObjectName, ObjectRef, Snapshot};
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Database, DatabaseError, Record};

use crate::extract::{Nothing, Path, Query};
use crate::state::State;

/// A no over HTTP: a fixed word and a sentence.
pub(crate) struct Failure {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn code(&self) -> &'static str {
        self.code
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = json!({ "error": { "code": self.code, "message": self.message } });
        (self.status, Json(body)).into_response()
    }
}

impl From<DatabaseError> for Failure {
    fn from(error: DatabaseError) -> Self {
        tracing::error!(error = &error as &dyn std::error::Error, "an object could not be read");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Database", "the database could not be read; see the log")
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    namespace: Option<Text<ObjectName>>,
}

pub(crate) async fn list(
    Shared(state): Shared<Arc<State>>,
    Path(kind): Path<String>,
    Query(filter): Query<Filter>,
) -> Result<Json<Value>, Failure> {
    let kind = find_kind(&kind)?;
    let (snapshot, failing) = (state.snapshot.load(), state.failing());
    let records = database(&state)?.list(kind)?.into_iter();
    let wanted = |object: &ObjectRef| {
        filter.namespace.is_none() || filter.namespace.as_ref().map(|wanted| &wanted.0) == object.namespace.as_ref()
    };
    let records = records.filter(|(object, _)| wanted(object));
    let items: Vec<Value> = records.map(|(object, record)| show(&object, &record, &snapshot, &failing)).collect();
    Ok(Json(json!({ "apiVersion": "v1", "kind": "List", "items": items })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Below {
    under: Option<String>,
}

/// What is in DNS now, set by set: everything, or what is at a name or below it (`?under=NAME`).
pub(crate) async fn records(
    Shared(state): Shared<Arc<State>>,
    Query(below): Query<Below>,
) -> Result<Json<Value>, Failure> {
    let bad = |error| Failure::new(StatusCode::BAD_REQUEST, "BadName", format!("under: {error}"));
    let apex = match &below.under {
        Some(name) => DnsName::parse(name).map_err(bad)?,
        None => DnsName::root(),
    };
    let listing = state.snapshot.load().listing_under(&apex);
    let sets = listing.into_iter().map(|((name, rtype), set)| {
        json!({ "name": name.to_string(), "type": listing::type_name(rtype), "ttl": set.ttl, "records": set.records })
    });
    Ok(Json(json!({ "sets": sets.collect::<Vec<_>>() })))
}

pub(crate) async fn get_one(
    Shared(state): Shared<Arc<State>>,
    Path((kind, name)): Path<(String, String)>,
    _: Query<Nothing>,
) -> Result<Json<Value>, Failure> {
    let kind = find_kind(&kind)?;
    if kind.is_namespaced() {
        let reason = format!("{kind} objects have a namespace: ask for {}/NAMESPACE/NAME", kind.plural());
        return Err(Failure::new(StatusCode::BAD_REQUEST, "NamespaceMissing", reason));
    }
    one(&state, kind, None, &name)
}

pub(crate) async fn get_namespaced(
    Shared(state): Shared<Arc<State>>,
    Path((kind, namespace, name)): Path<(String, String, String)>,
    _: Query<Nothing>,
) -> Result<Json<Value>, Failure> {
    let kind = find_kind(&kind)?;
    if !kind.is_namespaced() {
        let reason = format!("{kind} objects have no namespace: ask for {}/NAME", kind.plural());
        return Err(Failure::new(StatusCode::BAD_REQUEST, "NoNamespace", reason));
    }
    one(&state, kind, Some(&namespace), &name)
}

pub(crate) async fn refusals(Shared(state): Shared<Arc<State>>, _: Query<Nothing>) -> Json<Value> {
    let folder = state.folder.load();
    let files: Vec<Value> = folder
        .refused
        .iter()
        .flat_map(|refused| refused.mistakes.iter().map(|mistake| (&refused.file, mistake)))
        .map(|(file, mistake)| {
            json!({ "file": file, "line": mistake.line, "column": mistake.column, "message": mistake.reason })
        })
        .collect();
    let snapshot = state.snapshot.load();
    let mut refused: Vec<_> =
        snapshot.statuses().filter_map(|(object, status)| Some((object, status.refusal()?))).collect();
    refused.sort_by_key(|(object, _)| *object);
    let parts = refused_parts(&snapshot);
    let objects: Vec<Value> = refused
        .into_iter()
        .map(|(object, refusal)| refused_part(object, None, refusal.reason, &refusal.message))
        .chain(parts)
        .collect();
    Json(json!({ "folder": folder.error.as_ref().map(ToString::to_string), "files": files, "objects": objects }))
}

fn refused_part(object: &ObjectRef, part: Option<&str>, code: &str, message: &str) -> Value {
    let mut told = json!({
        "kind": object.kind.as_str(),
        "namespace": object.namespace.as_ref().map(ObjectName::as_str),
        "name": object.name.as_str(),
        "code": code,
        "message": message,
    });
    if let Some(part) = part {
        told["part"] = part.into();
    }
    told
}

/// The endpoints, paths and so on that are refused while their object is not.
fn refused_parts(snapshot: &Snapshot) -> Vec<Value> {
    let mut refused = Vec::new();
    for (object, status) in snapshot.statuses().filter(|(_, status)| status.refusal().is_none()) {
        for (part, outcome) in status.detail.parts() {
            refused.extend(outcome.err().map(|why| (object, part, why)));
        }
    }
    // Those of one object stay in their order.
    refused.sort_by_key(|(object, ..)| *object);
    let told = |(object, part, why): (&ObjectRef, &str, &Refused)| {
        let message = match why.field.as_str() {
            "" => why.refusal.to_string(),
            field => format!("{field}: {}", why.refusal),
        };
        refused_part(object, Some(part), why.refusal.code(), &message)
    };
    refused.into_iter().map(told).collect()
}

pub(crate) async fn no_such_path(uri: Uri) -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "NoSuchPath", format!("nothing is at {}", uri.path()))
}

/// The header `Allow` says which it does take.
pub(crate) async fn wrong_method(method: Method, uri: Uri) -> Failure {
    let reason = format!("{} does not take {method}", uri.path());
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "WrongMethod", reason)
}

fn one(state: &State, kind: Kind, namespace: Option<&str>, name: &str) -> Result<Json<Value>, Failure> {
    let missing = || {
        let place = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
        Failure::new(StatusCode::NOT_FOUND, "NoSuchObject", format!("no {kind} is called {place}{name}"))
    };
    let namespace = namespace.map(str::parse).transpose().map_err(|_| missing())?;
    let object = ObjectRef { kind, namespace, name: name.parse().map_err(|_| missing())? };
    let record = database(state)?.get(&object)?.ok_or_else(missing)?;
    Ok(Json(show(&object, &record, &state.snapshot.load(), &state.failing())))
}

pub(crate) fn database(state: &State) -> Result<Arc<Database>, Failure> {
    let away = || Failure::new(StatusCode::SERVICE_UNAVAILABLE, "HandingOver", "another process is taking over");
    state.database.load_full().ok_or_else(away)
}

/// The manifest as it was written, with what we say of it.
fn show(object: &ObjectRef, record: &Record, snapshot: &Snapshot, failing: &Failing) -> Value {
    let mut shown = manifest::document::to_json(&record.text).unwrap_or_else(|_| {
        json!({ "apiVersion": object.kind.api_version(), "kind": object.kind.as_str(), "metadata": { "name": object.name.as_str() } })
    });
    shown["metadata"]["creationTimestamp"] = record.since().to_string().into();
    if let Some(status) = snapshot.status(object) {
        shown["status"] = manifest::status::to_json(object.kind, &status.with_failing(failing.get(object)));
    }
    shown
}

pub(crate) fn find_kind(text: &str) -> Result<Kind, Failure> {
    Kind::find(text).ok_or_else(|| {
        let known = Kind::ALL.map(Kind::plural).join(", ");
        Failure::new(StatusCode::NOT_FOUND, "NoSuchKind", format!("no kind is called {text}; there are {known}"))
    })
}
