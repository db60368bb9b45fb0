//! A small HTTP server: a few connections of the same pod or node, each request within a bound of time.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Probes, scrapes and one ExternalDNS, with a few connections each; above, the next one waits.
const MAX_CONNECTIONS: usize = 32;
/// Of a request's head. A connection that is idle between requests stays.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// How long answers that are being sent may take when the process ends.
const FAREWELL: Duration = Duration::from_secs(2);
/// Accepting fails when descriptors are used up, and would fail again at once.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// Answers until `shutdown`.
pub(crate) async fn serve(listener: TcpListener, router: Router, shutdown: CancellationToken) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let connections = TaskTracker::new();
    let accept = async {
        loop {
            let place = Arc::clone(&places).acquire_owned().await;
            match listener.accept().await {
                Ok((stream, _)) => {
                    let answered = answer(stream, router.clone(), shutdown.clone());
                    connections.spawn(async move {
                        answered.await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            }
        }
    };
    shutdown.run_until_cancelled(accept).await;
    drop(listener);
    connections.close();
    connections.wait().await;
}

/// Bound before anything else is done, so that an address that is taken is told at once.
pub(crate) async fn bind(address: SocketAddr) -> std::io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// All requests of one connection. A client that goes away, or sends what is no HTTP, is nothing to speak of.
async fn answer(stream: TcpStream, router: Router, shutdown: CancellationToken) {
    let service = TowerToHyperService::new(router);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = connection.as_mut() => return,
        () = shutdown.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(FAREWELL, connection).await;
}
