//! The listeners: `--admin`, which shows everything to this machine, and `--metrics`, which shows little to any.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, State as Shared};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::credentials;
use crate::explain;
use crate::objects;
use crate::release;
use crate::state::State;

/// OpenMetrics, which is what `prometheus-client` writes.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// How long answers that are being sent may take when their connection or the process ends.
const FAREWELL: Duration = Duration::from_secs(2);
/// Probes and scrapes are a few. Each connection is a descriptor that a door could use; above, the next one waits.
const MAX_CONNECTIONS: usize = 256;
/// Who is slow, or says nothing, gives its place back after this; an answer takes a second at most.
const MAX_LIFE: Duration = Duration::from_secs(10);
/// Accepting fails when descriptors are used up, and would fail again at once.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

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

    fn router(self, state: Arc<State>) -> Router {
        let routes = Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics));
        let routes = match self {
            Self::Metrics => routes.fallback(objects::no_such_path),
            Self::Admin => routes
                .route("/v1/objects/{kind}", get(objects::list))
                .route("/v1/objects/{kind}/{name}", get(objects::get_one))
                .route("/v1/objects/{kind}/{namespace}/{name}", get(objects::get_namespaced))
                .route("/v1/refusals", get(objects::refusals))
                .route("/v1/records", get(objects::records))
                .route("/v1/explain", get(explain::explain))
                .route("/v1/credentials", get(credentials::list).post(credentials::issue))
                .route("/v1/credentials/{id}", delete(credentials::revoke))
                .route("/v1/release/{kind}/{name}", post(release::release))
                .fallback(objects::no_such_path)
                .layer(axum::middleware::from_fn_with_state(Arc::clone(&state), crate::access::guard)),
        };
        routes.with_state(state)
    }
}

/// A bound listener that has not met its runtime yet: each runs in a thread of its own.
pub struct Listener {
    interface: Interface,
    socket: std::net::TcpListener,
    address: SocketAddr,
}

#[derive(Debug, thiserror::Error)]
#[error("binding {} on {address}", .interface.flag())]
pub struct BindError {
    interface: Interface,
    address: SocketAddr,
    source: io::Error,
}

impl Listener {
    pub fn bind(interface: Interface, address: SocketAddr) -> Result<Self, BindError> {
        let socket = std::net::TcpListener::bind(address);
        let adopted = socket.and_then(|socket| Self::adopt(interface, socket.into()));
        adopted.map_err(|source| BindError { interface, address, source })
    }

    /// From a listener that another process had bound.
    pub fn adopt(interface: Interface, socket: OwnedFd) -> io::Result<Self> {
        let socket = std::net::TcpListener::from(socket);
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        Ok(Self { interface, socket, address })
    }

    /// The listener for another process.
    pub fn share(&self) -> io::Result<OwnedFd> {
        Ok(self.socket.try_clone()?.into())
    }

    pub fn interface(&self) -> Interface {
        self.interface
    }

    /// The address with the port that was given.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `shutdown`; probes see the change of readiness up to the end.
    pub async fn serve(self, state: Arc<State>, shutdown: CancellationToken) {
        let flag = self.interface.flag();
        let router = self.interface.router(state);
        let listener = match TcpListener::from_std(self.socket) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "the listener of {flag} cannot be used"),
        };
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let connections = TaskTracker::new();
        let accept = async {
            loop {
                let place = Arc::clone(&places).acquire_owned().await;
                match listener.accept().await {
                    Ok((stream, peer)) => {
                        let answered = answer(stream, peer, router.clone(), shutdown.clone());
                        connections.spawn(async move {
                            answered.await;
                            drop(place);
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "{flag} could not accept a connection");
                        tokio::time::sleep(AFTER_FAILURE).await;
                    }
                }
            }
        };
        tokio::select! {
            () = accept => {}
            () = shutdown.cancelled() => {}
        }
        // Each has its own end, set by `answer`.
        drop(listener);
        connections.close();
        connections.wait().await;
    }
}

/// All requests of one connection. A client that goes away, or sends what is no HTTP, is nothing to speak of.
async fn answer(stream: TcpStream, peer: SocketAddr, router: Router, shutdown: CancellationToken) {
    let service = TowerToHyperService::new(router.layer(Extension(ConnectInfo(peer))));
    let mut connection = pin!(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = connection.as_mut() => return,
        () = shutdown.cancelled() => {}
        () = tokio::time::sleep(MAX_LIFE) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(FAREWELL, connection).await;
}

async fn readyz(Shared(state): Shared<Arc<State>>) -> impl IntoResponse {
    if state.is_ready() { (StatusCode::OK, "ready\n") } else { (StatusCode::SERVICE_UNAVAILABLE, "not ready\n") }
}

async fn metrics(Shared(state): Shared<Arc<State>>) -> impl IntoResponse {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &state.registry).expect("a String takes any text");
    ([(header::CONTENT_TYPE, METRICS_TYPE)], text)
}
