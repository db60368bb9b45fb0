//! What a page hears after it was loaded: the regions that are otherwise now, as server-sent events.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State as Shared;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Frame;
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, timeout};

use super::view::View;
use super::{Board, MOST_STREAMS, Session, frame};
use crate::listen::{Life, Streaming};
use crate::objects::Failure;
use crate::state::State;

/// How soon a change is seen. Looking for one is reading two numbers.
const LOOK: Duration = Duration::from_millis(200);
/// Traffic is told so often at most, and changes of a fleet that never rests.
const TELL: Duration = Duration::from_secs(1);
/// So that both ends, and whatever is between them, know of each other.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// Browsers come again by themselves.
pub(crate) const MAX_LIFE: Duration = Duration::from_mins(10);

pub(super) async fn stream(
    Shared(state): Shared<Arc<State>>,
    Extension(board): Extension<Arc<Board>>,
    Extension(life): Extension<Life>,
    session: Option<Extension<Session>>,
    uri: Uri,
) -> Response {
    let session = session.map(|Extension(session)| session);
    let page = uri.path_and_query().map_or("", |page| page.as_str());
    let page = page.strip_prefix("/live").unwrap_or_default();
    let view = match page.parse().map_err(|_| no_such_page()).and_then(|uri| View::read(&uri)) {
        Ok(view) => view,
        Err(failure) => return failure.into_response(),
    };
    let Ok(place) = Arc::clone(&board.streams).try_acquire_owned() else {
        let reason = format!("{MOST_STREAMS} pages are kept up to date already; this one is, once another is closed");
        return Failure::new(StatusCode::SERVICE_UNAVAILABLE, "TooManyStreams", reason).into_response();
    };
    let (sender, receiver) = mpsc::channel(1);
    let teller = Teller { state, board, session, view, told: HashMap::new(), sender };
    tokio::spawn(teller.run());
    let fields = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    let events = Events { receiver, _place: place, _life: life.stream() };
    (fields, Body::new(events)).into_response()
}

fn no_such_page() -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "NoSuchPage", "no page is called so")
}

/// Makes what one viewer is told.
struct Teller {
    state: Arc<State>,
    board: Arc<Board>,
    session: Option<Session>,
    view: View,
    /// The digest of each region as it was told last.
    told: HashMap<&'static str, [u8; 32]>,
    sender: mpsc::Sender<Bytes>,
}

impl Teller {
    /// Until the viewer is gone, the process ends, or it is time to come again.
    async fn run(mut self) {
        let shutdown = self.board.shutdown.clone();
        let gone = self.sender.clone();
        let talking = async {
            tokio::select! {
                () = self.talk() => {}
                () = gone.closed() => {}
            }
        };
        let _ = timeout(MAX_LIFE, shutdown.run_until_cancelled(talking)).await;
    }

    async fn talk(&mut self) {
        let mut seen = None;
        let mut spoken = Instant::now();
        loop {
            if self.session.as_ref().is_some_and(|session| !self.board.sessions.is_open(session)) {
                return;
            }
            let begun = Instant::now();
            let now = self.moment();
            if seen.as_ref() != Some(&now) || self.view.has_traffic() {
                seen = Some(now);
                let Some(news) = self.news().await else { return };
                if !news.is_empty() {
                    spoken = Instant::now();
                    if self.sender.send(event(&news)).await.is_err() {
                        return;
                    }
                }
                tokio::time::sleep_until(begun + TELL).await;
            } else {
                tokio::time::sleep(LOOK).await;
            }
            if spoken.elapsed() >= SIGN_OF_LIFE {
                spoken = Instant::now();
                if self.sender.send(Bytes::from_static(b":\n\n")).await.is_err() {
                    return;
                }
            }
        }
    }

    /// What pages follow from, their traffic aside.
    fn moment(&self) -> (u64, usize) {
        (self.state.snapshot.load().revision, Arc::as_ptr(&self.state.folder.load()) as usize)
    }

    /// The regions that are otherwise than they were told; at first the page may be older than the stream, so that all are.
    async fn news(&mut self) -> Option<Map<String, Value>> {
        let (state, board) = (Arc::clone(&self.state), Arc::clone(&self.board));
        let page = super::render(state, board, self.session.clone(), self.view.clone()).await;
        // What the page was about is gone: whoever loads it again is told so.
        let page = page.ok()?;
        let mut news = Map::new();
        for frame::Region { id, body, .. } in page.regions {
            let is = digest(&SHA256, body.0.as_bytes()).as_ref().try_into().unwrap_or_default();
            if self.told.insert(id, is) != Some(is) {
                news.insert(id.into(), body.0.into());
            }
        }
        Some(news)
    }
}

fn event(news: &Map<String, Value>) -> Bytes {
    // JSON has no line breaks of its own.
    format!("event: regions\ndata: {}\n\n", serde_json::Value::Object(news.clone())).into()
}

/// A body that ends when the teller does, and gives the place back when it is dropped.
struct Events {
    receiver: mpsc::Receiver<Bytes>,
    _place: OwnedSemaphorePermit,
    _life: Streaming,
}

impl hyper::body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.receiver.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}
