//! A small HTTP server: a few connections of the same pod or node, each request within a bound of time.

use std::time::Duration;

use axum::Router;
use hyper_util::service::TowerToHyperService;
use server::Bound;
use tokio_util::sync::CancellationToken;

/// Probes, scrapes and one ExternalDNS, with a few connections each; above, the next one waits.
const MAX_CONNECTIONS: usize = 32;
/// Of a request's head. A connection that is idle between requests stays.
const HEAD_WITHIN: Duration = Duration::from_secs(5);

/// Answers until `shutdown`.
pub(crate) async fn serve(bound: Bound, router: Router, shutdown: CancellationToken) {
    let Some(listener) = bound.listen() else { return };
    server::accept(listener, "the agent", MAX_CONNECTIONS, &shutdown, |stream, _| {
        let (service, end) = (TowerToHyperService::new(router.clone()), shutdown.clone().cancelled_owned());
        async move { server::converse(&server::http(HEAD_WITHIN), stream, service, end).await }
    })
    .await;
}
