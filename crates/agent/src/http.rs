//! A small HTTP server: a few connections of the same pod or node, each request within a bound of time.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Probes, scrapes and one ExternalDNS, with a few connections each; above, the next one waits.
const MAX_CONNECTIONS: usize = 32;
/// Of a request's head. A connection that is idle between requests stays.
const HEAD_WITHIN: Duration = Duration::from_secs(5);

/// Answers until `shutdown`.
pub(crate) async fn serve(listener: TcpListener, router: Router, shutdown: CancellationToken) {
    server::accept(listener, "the agent", MAX_CONNECTIONS, &shutdown, |stream, _| {
        let (service, end) = (TowerToHyperService::new(router.clone()), shutdown.clone().cancelled_owned());
        async move { server::converse(&server::http(HEAD_WITHIN), stream, service, end).await }
    })
    .await;
}

/// Bound before anything else is done, so that an address that is taken is told at once.
pub(crate) async fn bind(address: SocketAddr) -> std::io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}
