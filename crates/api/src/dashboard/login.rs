//! Logging in with the admin credential, and out again.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{ConnectInfo, Form, Query, State as Shared};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::{Board, Session, actions, frame};
use crate::objects::Failure;
use crate::state::State;

#[derive(Deserialize, Default)]
pub(super) struct Back {
    #[serde(default)]
    next: String,
}

#[derive(Deserialize)]
pub(super) struct Shown {
    credential: String,
    #[serde(default)]
    next: String,
}

#[derive(Deserialize)]
pub(super) struct Word {
    word: String,
}

pub(super) async fn form(
    Shared(state): Shared<Arc<State>>,
    session: Option<Extension<Session>>,
    Query(Back { next }): Query<Back>,
) -> Response {
    if session.is_some() {
        return Redirect::to("/").into_response();
    }
    super::html(StatusCode::OK, &ask(state.admin_credential.get().is_some(), &next, None))
}

pub(super) async fn log_in(
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Shared(state): Shared<Arc<State>>,
    Extension(board): Extension<Arc<Board>>,
    headers: HeaderMap,
    Form(shown): Form<Shown>,
) -> Response {
    if let Err(failure) = actions::check_origin(&headers) {
        return super::refusal(None, &failure);
    }
    let Some(credential) = state.admin_credential.get() else {
        return super::html(StatusCode::FORBIDDEN, &ask(false, "", None));
    };
    if let Err(wait) = board.sessions.may_try(peer.ip()) {
        let reason = format!("too many wrong credentials came from your address: wait {} s", wait.as_secs() + 1);
        let failure = Failure::new(StatusCode::TOO_MANY_REQUESTS, "TooManyAttempts", reason);
        return super::refusal(None, &failure);
    }
    if !credential.is(shown.credential.trim_ascii()) {
        board.sessions.failed(peer.ip());
        tracing::warn!(target: "audit", event = "login-refused", %peer, "a wrong admin credential was shown to the dashboard");
        let wrong = "That is not the admin credential.";
        return super::html(StatusCode::FORBIDDEN, &ask(true, &shown.next, Some(wrong)));
    }
    let session = board.sessions.open();
    tracing::info!(target: "audit", event = "login", %peer, "somebody logged in to the dashboard");
    with_cookie(Redirect::to(own_path(&shown.next)), &session.set_cookie())
}

pub(super) async fn log_out(
    Extension(board): Extension<Arc<Board>>,
    session: Option<Extension<Session>>,
    headers: HeaderMap,
    Form(word): Form<Word>,
) -> Response {
    let Some(Extension(session)) = session else { return Redirect::to("/").into_response() };
    if let Err(failure) = actions::check_form(&session, &headers, &word.word) {
        return super::refusal(Some(&session), &failure);
    }
    board.sessions.close(&session);
    with_cookie(Redirect::to("/"), &Session::clear_cookie())
}

fn with_cookie(redirect: Redirect, cookie: &str) -> Response {
    let mut response = redirect.into_response();
    let cookie = HeaderValue::from_str(cookie).expect("a cookie of ours is visible ASCII");
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    response
}

/// A path here, and never another site: `//elsewhere.example` would be one, and browsers take `\` for `/`.
fn own_path(next: &str) -> &str {
    let is_own = next.starts_with('/')
        && !next.starts_with("//")
        && next.bytes().all(|octet| octet.is_ascii_graphic() && octet != b'\\');
    if is_own { next } else { "/" }
}

fn ask(has_credential: bool, next: &str, wrong: Option<&str>) -> Markup {
    let body = html! {
        section.card.narrow {
            h1 { "Log in" }
            @if has_credential {
                p { "Actions, and looking from another machine, need the admin credential: the text in the file that "
                    code { "--admin-credential" } " names." }
                @if let Some(wrong) = wrong { p.error role="alert" { (wrong) } }
                form method="post" action="/login" {
                    input type="hidden" name="next" value=(own_path(next));
                    label for="credential" { "Admin credential" }
                    input #credential type="password" name="credential" required autocomplete="current-password" autofocus;
                    button.primary type="submit" { "Log in" }
                }
            } @else {
                p { "This fleetgate runs without an admin credential: everything is read-only, and for this machine alone." }
                p { "To log in here, write a secret of at least 32 characters to a file and start fleetgate with "
                    code { "--admin-credential FILE" } "." }
            }
        }
    };
    frame::plain("Log in", None, &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_pages_of_ours_alone() {
        for own in ["/", "/clusters/c1", "/clusters?q=a&page=2"] {
            assert_eq!(own_path(own), own);
        }
        for foreign in ["", "//evil.example", "https://evil.example/", "/\\evil.example", "/a\r\nset-cookie: b", "x"] {
            assert_eq!(own_path(foreign), "/", "{foreign}");
        }
    }
}
