//! What can be done from a page: forms that work without a script, for those who have logged in.
//!
//! A form counts where the browser shows a session, the form has the word that only pages of that session know, and the browser
//! says that it is one of our pages that sends it.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Form, Path, State as Shared};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{MethodRouter, post};
use serde::Deserialize;

use super::Session;
use crate::objects::Failure;
use crate::state::State;

#[derive(Deserialize)]
pub(super) struct Order {
    #[serde(default)]
    word: String,
}

type Asker = Option<Extension<Session>>;

#[derive(Debug, Clone, Copy)]
pub(super) enum Deed {
    Drain,
    Undrain,
    ReleaseZone,
    ReleaseTenant,
}

/// What takes the form of a deed, of the object that the path names.
pub(super) fn take(deed: Deed) -> MethodRouter<Arc<State>> {
    post(
        move |Shared(state): Shared<Arc<State>>,
              Path(name): Path<String>,
              session: Asker,
              headers: HeaderMap,
              Form(order): Form<Order>| async move { act(&state, deed, &name, session, &headers, &order).await },
    )
}

/// Does it for whoever may, and shows the page that says so.
async fn act(state: &State, deed: Deed, name: &str, session: Asker, headers: &HeaderMap, order: &Order) -> Response {
    let Some(Extension(session)) = session else {
        let reason = "this changes something: log in with the admin credential first, then do it again";
        return super::refusal(None, &Failure::new(StatusCode::FORBIDDEN, "NoSession", reason));
    };
    if let Err(failure) = check_form(&session, headers, &order.word) {
        return super::refusal(Some(&session), &failure);
    }
    let (done, place, word) = match deed {
        Deed::Drain => (crate::drain::set(state, name, true).await, "clusters", "drained"),
        Deed::Undrain => (crate::drain::set(state, name, false).await, "clusters", "undrained"),
        Deed::ReleaseZone => (crate::release::let_go(state, "zone", name).await, "zones", "released"),
        Deed::ReleaseTenant => (crate::release::let_go(state, "tenant", name).await, "tenants", "released"),
    };
    match done {
        Ok(_) => Redirect::to(&format!("/{place}/{name}?done={word}")).into_response(),
        Err(failure) => super::refusal(Some(&session), &failure),
    }
}

pub(super) fn check_form(session: &Session, headers: &HeaderMap, word: &str) -> Result<(), Failure> {
    check_origin(headers)?;
    if session.wrote(word) {
        return Ok(());
    }
    let reason = "this form is not one of your session: go back, load the page again, and send it from there";
    Err(Failure::new(StatusCode::FORBIDDEN, "ForeignForm", reason))
}

/// What browsers say of the page that sends a form: all that they say must be that it is ours, and they say something.
pub(super) fn check_origin(headers: &HeaderMap) -> Result<(), Failure> {
    let field = |name| headers.get(name).map(|value: &axum::http::HeaderValue| value.to_str().unwrap_or_default());
    let host = field(header::HOST).unwrap_or_default();
    let is_own = |origin: &str| {
        let name = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        name.is_some_and(|name| !name.is_empty() && name.eq_ignore_ascii_case(host))
    };
    let said = [
        field(header::ORIGIN).map(is_own),
        field(header::HeaderName::from_static("sec-fetch-site")).map(|site| site == "same-origin"),
    ];
    let mut said = said.into_iter().flatten().peekable();
    if said.peek().is_some() && said.all(|is_own| is_own) {
        return Ok(());
    }
    let reason = "the form was not sent by a page of this dashboard";
    Err(Failure::new(StatusCode::FORBIDDEN, "ForeignOrigin", reason))
}
