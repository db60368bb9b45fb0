//! The `--admin` listener.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State as Shared;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::explain;
use crate::objects;
use crate::state::State;

/// OpenMetrics, which is what `prometheus-client` writes.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// How long answers that are being sent may take when the process ends.
const FAREWELL: Duration = Duration::from_secs(2);

/// A bound listener that has not met its runtime yet: the interface runs in a thread of its own.
pub struct Admin {
    listener: std::net::TcpListener,
    address: SocketAddr,
}

#[derive(Debug, thiserror::Error)]
#[error("binding --admin on {address}")]
pub struct BindError {
    address: SocketAddr,
    source: io::Error,
}

impl Admin {
    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let failed = |source| BindError { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// From a listener that another process had bound.
    pub fn adopt(listener: OwnedFd) -> io::Result<Self> {
        let listener = std::net::TcpListener::from(listener);
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// The listener for another process.
    pub fn share(&self) -> io::Result<OwnedFd> {
        Ok(self.listener.try_clone()?.into())
    }

    /// The address with the port that was given.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `shutdown`; probes see the change of readiness up to the end.
    pub async fn serve(self, state: Arc<State>, shutdown: CancellationToken) {
        let service = router(state).into_make_service_with_connect_info::<SocketAddr>();
        let listener = match TcpListener::from_std(self.listener) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!(%error, "the admin listener cannot be used"),
        };
        let server = axum::serve(listener, service).with_graceful_shutdown(shutdown.clone().cancelled_owned());
        let overdue = async {
            shutdown.cancelled().await;
            tokio::time::sleep(FAREWELL).await;
        };
        tokio::select! {
            ended = server.into_future() => if let Err(error) = ended {
                tracing::error!(%error, "the admin listener ended");
            },
            () = overdue => {}
        }
    }
}

fn router(state: Arc<State>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/v1/objects/{kind}", get(objects::list))
        .route("/v1/objects/{kind}/{name}", get(objects::get_one))
        .route("/v1/objects/{kind}/{namespace}/{name}", get(objects::get_namespaced))
        .route("/v1/refusals", get(objects::refusals))
        .route("/v1/explain", get(explain::explain))
        .fallback(objects::no_such_path)
        .layer(axum::middleware::from_fn(crate::access::guard))
        .with_state(state)
}

async fn readyz(Shared(state): Shared<Arc<State>>) -> impl IntoResponse {
    if state.is_ready() { (StatusCode::OK, "ready\n") } else { (StatusCode::SERVICE_UNAVAILABLE, "not ready\n") }
}

async fn metrics(Shared(state): Shared<Arc<State>>) -> impl IntoResponse {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &state.registry).expect("a String takes any text");
    ([(header::CONTENT_TYPE, METRICS_TYPE)], text)
}
