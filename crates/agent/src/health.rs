//! What people and machines see of an agent: probes, metrics, and what of it is refused.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use prometheus_client::registry::Registry;
use serde::Serialize;
use server::{BindError, Bound};
use tokio_util::sync::CancellationToken;

use crate::http;

/// OpenMetrics, which is what `prometheus-client` writes.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Shown at `/refused`: enough to see what is wrong.
pub(crate) const MOST_SHOWN: usize = 1000;

/// A record that is not published, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    /// The object that it comes from, where that is known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// Its name and type.
    pub record: String,
    pub code: String,
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// What is shown.
pub struct Health {
    registry: Registry,
    ready: AtomicBool,
    refused: Mutex<Refusals>,
}

#[derive(Debug, Clone, Default, Serialize)]
struct Refusals {
    /// Of all.
    count: usize,
    /// The first of them.
    records: Vec<Refused>,
}

impl Health {
    pub fn new(registry: Registry) -> Self {
        Self { registry, ready: AtomicBool::new(false), refused: Mutex::default() }
    }

    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Release);
    }

    /// Whether there has been something to say yet.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Replaces what was said before.
    pub(crate) fn set_refused(&self, count: usize, mut records: Vec<Refused>) {
        records.truncate(MOST_SHOWN);
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Refusals { count, records };
    }
}

/// It does not answer yet: an address that is taken is told before anything else is done.
pub struct HealthListener(Bound);

impl HealthListener {
    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        Bound::bind("--health", address).map(Self)
    }

    /// The address with the port that was given.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    pub async fn serve(self, health: Arc<Health>, shutdown: CancellationToken) {
        let router = Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .route("/refused", get(refused))
            .with_state(health);
        http::serve(self.0, router, shutdown).await;
    }
}

async fn readyz(State(health): State<Arc<Health>>) -> impl IntoResponse {
    if health.is_ready() { (StatusCode::OK, "ready\n") } else { (StatusCode::SERVICE_UNAVAILABLE, "not ready\n") }
}

async fn metrics(State(health): State<Arc<Health>>) -> impl IntoResponse {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &health.registry).expect("a String takes any text");
    ([(header::CONTENT_TYPE, METRICS_TYPE)], text)
}

async fn refused(State(health): State<Arc<Health>>) -> impl IntoResponse {
    Json(health.refused.lock().unwrap_or_else(PoisonError::into_inner).clone())
}
