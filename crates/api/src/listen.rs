//! The listeners: `--admin`, which shows everything to this machine, and `--metrics`, which shows little to any.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, State as Shared};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use hyper_util::service::TowerToHyperService;
use server::{BindError, Bound};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::credentials;
use crate::dashboard::{self, Board};
use crate::drain;
use crate::explain;
use crate::history;
use crate::links;
use crate::load;
use crate::objects;
use crate::openapi;
use crate::overflow;
use crate::peers;
use crate::release;
use crate::resolver;
use crate::routes;
use crate::state::State;

/// OpenMetrics, which is what `prometheus-client` writes.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Probes and scrapes are a few. Each connection is a descriptor that a door could use; above, the next one waits.
const MAX_CONNECTIONS: usize = 256;
/// Who is slow, or says nothing, gives its place back after this; an answer takes a second at most.
const MAX_LIFE: Duration = Duration::from_secs(10);

/// What a listener answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interface {
    /// Everything, to this machine; the probes to any.
    Admin,
    /// The metrics and the probes, to any machine.
    Metrics,
}

impl Interface {
    pub fn flag(self) -> &'static str {
        match self {
            Self::Admin => "--admin",
            Self::Metrics => "--metrics",
        }
    }

    pub(crate) fn router(self, state: Arc<State>, shutdown: &CancellationToken) -> Router {
        let routes = Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics));
        let routes = match self {
            Self::Metrics => routes.fallback(objects::no_such_path).method_not_allowed_fallback(objects::wrong_method),
            Self::Admin => {
                let board = Arc::new(Board::new(shutdown.clone()));
                routes
                    .route("/v1/objects/{kind}", get(objects::list))
                    .route("/v1/objects/{kind}/{name}", get(objects::get_one))
                    .route("/v1/objects/{kind}/{namespace}/{name}", get(objects::get_namespaced))
                    .route("/v1/refusals", get(objects::refusals))
                    .route("/v1/records", get(objects::records))
                    .route("/v1/history", get(history::list))
                    .route("/v1/routes", get(routes::list))
                    .route("/v1/explain", get(explain::explain))
                    .route("/v1/load", get(load::list))
                    .route("/v1/links", get(links::list))
                    .route("/v1/peers", get(peers::show))
                    .route("/v1/overflow", get(overflow::list))
                    .route("/v1/resolver", get(resolver::show))
                    .route("/v1/credentials", get(credentials::list).post(credentials::issue))
                    .route("/v1/credentials/control-plane", post(credentials::issue_to_control_plane))
                    .route("/v1/credentials/{id}", delete(credentials::revoke))
                    .route("/v1/release/{kind}/{name}", post(release::release))
                    .route("/v1/drain/{cluster}", post(drain::drain).delete(drain::undo))
                    .route("/openapi.json", get(openapi::show))
                    .merge(dashboard::routes())
                    .fallback(objects::no_such_path)
                    .method_not_allowed_fallback(objects::wrong_method)
                    // Outermost, so that it stands before a no as well.
                    .layer(axum::middleware::from_fn_with_state(
                        (Arc::clone(&state), Arc::clone(&board)),
                        crate::access::guard,
                    ))
                    .layer(Extension(board))
            }
        };
        routes.with_state(state)
    }
}

/// It does not answer yet: each runs in a thread of its own.
pub struct Listener {
    interface: Interface,
    bound: Bound,
}

impl Listener {
    pub fn bind(interface: Interface, address: SocketAddr) -> Result<Self, BindError> {
        Bound::bind(interface.flag(), address).map(|bound| Self { interface, bound })
    }

    /// `bound` may be one that another process had bound.
    pub fn new(interface: Interface, bound: Bound) -> Self {
        Self { interface, bound }
    }

    /// The listener for another process.
    pub fn share(&self) -> io::Result<OwnedFd> {
        self.bound.share()
    }

    pub fn interface(&self) -> Interface {
        self.interface
    }

    /// The address with the port that was given.
    pub fn address(&self) -> SocketAddr {
        self.bound.address()
    }

    /// Answers until `shutdown`; probes see the change of readiness up to the end.
    pub async fn serve(self, state: Arc<State>, shutdown: CancellationToken) {
        let flag = self.interface.flag();
        let router = self.interface.router(state, &shutdown);
        let Some(listener) = self.bound.listen() else { return };
        server::accept(listener, flag, MAX_CONNECTIONS, &shutdown, |stream, peer| {
            let life = Life::default();
            let router = router.clone().layer(Extension(ConnectInfo(peer))).layer(Extension(life.clone()));
            let service = TowerToHyperService::new(router);
            let shutdown = shutdown.clone();
            let end = async move { _ = shutdown.run_until_cancelled(life.over()).await };
            async move { server::converse(&server::http(MAX_LIFE), stream, service, end).await }
        })
        .await;
    }
}

/// How long a connection lasts: so long for requests, and for as long as a stream may that it carries then.
#[derive(Debug, Clone, Default)]
pub(crate) struct Life(watch::Sender<usize>);

/// A stream that a connection carries, until it is dropped.
#[derive(Debug)]
pub(crate) struct Streaming(watch::Sender<usize>);

impl Life {
    pub(crate) fn stream(&self) -> Streaming {
        self.0.send_modify(|streams| *streams += 1);
        Streaming(self.0.clone())
    }

    async fn over(&self) {
        tokio::time::sleep(MAX_LIFE).await;
        let mut streams = self.0.subscribe();
        // A stream ends by itself, but where nobody reads it it would not be asked to.
        let _ = timeout(dashboard::MAX_STREAM_LIFE, streams.wait_for(|streams| *streams == 0)).await;
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        self.0.send_modify(|streams| *streams -= 1);
    }
}

async fn readyz(Shared(state): Shared<Arc<State>>) -> impl IntoResponse {
    if state.is_ready() { (StatusCode::OK, "ready\n") } else { (StatusCode::SERVICE_UNAVAILABLE, "not ready\n") }
}

async fn metrics(Shared(state): Shared<Arc<State>>) -> impl IntoResponse {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &state.registry).expect("a String takes any text");
    ([(header::CONTENT_TYPE, METRICS_TYPE)], text)
}
