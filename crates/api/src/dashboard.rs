//! The dashboard: pages for people on `--admin`, rendered here and kept up to date by a stream of server-sent events.
//!
//! A page is made of regions. The very function that makes a page makes what its stream tells: regions whose markup is another
//! than the one that was sent last. Nothing runs while nobody looks, and what is worked out of a fleet is shared by all who do
//! ([`summary`]). Nothing is inline and nothing comes from elsewhere, so that the policy of a page can forbid both.

mod actions;
mod assets;
mod frame;
mod health;
mod live;
mod login;
mod map;
mod pages;
mod sessions;
mod summary;
mod table;
#[cfg(test)]
mod tests;
mod traffic;
mod view;

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use maud::Markup;
use model::Snapshot;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::objects::Failure;
use crate::state::State;
use actions::Deed;
pub(crate) use live::MAX_LIFE as MAX_STREAM_LIFE;
pub(crate) use sessions::Session;
use sessions::Sessions;
use summary::{Summaries, Summary};
use traffic::Traffic;
use view::View;

/// Each costs a connection, and a page of a few kilobytes a second at most. Tabs that nobody sees have none.
const MOST_STREAMS: usize = 32;

/// What people look at and log in by. Everything else on `--admin` is for programs.
const PLACES: [&str; 11] = [
    "assets",
    "clusters",
    "explain",
    "ingresses",
    "live",
    "login",
    "logout",
    "records",
    "refusals",
    "tenants",
    "zones",
];

/// What all viewers share.
pub(crate) struct Board {
    sessions: Sessions,
    summaries: Summaries,
    traffic: Traffic,
    streams: Arc<Semaphore>,
    /// Ends the streams.
    shutdown: CancellationToken,
}

impl Board {
    pub(crate) fn new(shutdown: CancellationToken) -> Self {
        Self {
            sessions: Sessions::default(),
            summaries: Summaries::default(),
            traffic: Traffic::default(),
            streams: Arc::new(Semaphore::new(MOST_STREAMS)),
            shutdown,
        }
    }

    /// Whose cookie a request shows.
    pub(crate) fn session(&self, headers: &HeaderMap) -> Option<Session> {
        self.sessions.find(headers)
    }
}

/// Whether a path is the dashboard's.
pub(crate) fn has(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    path == "/" || PLACES.contains(&first)
}

/// What somebody must reach who has yet to log in.
pub(crate) fn is_for_strangers(path: &str) -> bool {
    path == "/login" || path.starts_with("/assets/")
}

pub(crate) fn routes() -> Router<Arc<State>> {
    let pages = [
        "/",
        "/clusters",
        "/clusters/{name}",
        "/zones",
        "/zones/{name}",
        "/records",
        "/tenants",
        "/tenants/{name}",
        "/ingresses",
        "/ingresses/{namespace}/{name}",
        "/refusals",
        "/explain",
    ];
    let routes = pages.into_iter().fold(Router::new(), |routes, path| routes.route(path, get(page)));
    routes
        .route("/live/", get(live::stream))
        .route("/live/{*page}", get(live::stream))
        .route("/assets/{file}", get(assets::send))
        .route("/login", get(login::form).post(login::log_in))
        .route("/logout", post(login::log_out))
        .route("/clusters/{name}/drain", actions::take(Deed::Drain))
        .route("/clusters/{name}/undrain", actions::take(Deed::Undrain))
        .route("/zones/{name}/release", actions::take(Deed::ReleaseZone))
        .route("/tenants/{name}/release", actions::take(Deed::ReleaseTenant))
}

/// What a page is made from: all of it of one moment.
pub(crate) struct Look {
    state: Arc<State>,
    board: Arc<Board>,
    session: Option<Session>,
    snapshot: Arc<Snapshot>,
    summary: Arc<Summary>,
}

impl Look {
    fn new(state: &Arc<State>, board: &Arc<Board>, session: Option<Session>) -> Self {
        let snapshot = state.snapshot.load_full();
        let summary = board.summaries.of(&snapshot);
        Self { state: Arc::clone(state), board: Arc::clone(board), session, snapshot, summary }
    }
}

async fn page(
    Shared(state): Shared<Arc<State>>,
    Extension(board): Extension<Arc<Board>>,
    session: Option<Extension<Session>>,
    uri: Uri,
) -> Response {
    let session = session.map(|Extension(session)| session);
    let here = uri.path_and_query().map_or("/", |here| here.as_str()).to_owned();
    let page = match View::read(&uri) {
        Ok(view) => render(state, board, session.clone(), view).await,
        Err(failure) => Err(failure),
    };
    match page {
        Ok(page) => html(StatusCode::OK, &frame::whole(&page, session.as_ref(), &here)),
        Err(failure) => refusal(session.as_ref(), &failure),
    }
}

/// Beside the thread that answers probes: a large fleet takes some milliseconds.
async fn render(
    state: Arc<State>,
    board: Arc<Board>,
    session: Option<Session>,
    view: View,
) -> Result<frame::Page, Failure> {
    let rendered = tokio::task::spawn_blocking(move || view.render(&Look::new(&state, &board, session))).await;
    rendered.unwrap_or_else(|_| {
        let reason = "the page could not be made; see the log";
        Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "Panicked", reason))
    })
}

/// A no for people.
pub(crate) fn refusal(session: Option<&Session>, failure: &Failure) -> Response {
    html(failure.status(), &frame::refusal(session, failure))
}

/// A page, with what browsers must not do with it. Referrers stay for our own pages: without them a form's Origin would be null.
pub(crate) fn html(status: StatusCode, markup: &Markup) -> Response {
    const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
        form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (status, headers, markup.0.clone()).into_response()
}
