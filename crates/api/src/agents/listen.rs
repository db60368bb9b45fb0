//! The listener of the agents' door.

use std::sync::Arc;
use std::time::Duration;

use server::Bound;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Door;
use super::connection::{self, Places};

/// Connections of agents: a fleet of thousands of clusters, each of which waits for verdicts. Some 40 KiB each.
const MAX_CONNECTIONS: usize = 4096;
/// Those among them that have shown no certificate yet: they have 10 s for it, so that this many take 25 a second.
const MAX_STRANGERS: usize = 256;
/// Accepting fails when descriptors are used up, and would fail again at once.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// Answers until `shutdown`. Nobody is answered before there is an authority: who comes early waits.
pub async fn serve(bound: Bound, door: Arc<Door>, shutdown: CancellationToken) {
    let Some(listener) = bound.listen() else { return };
    let connections = TaskTracker::new();
    tokio::select! {
        () = accept(&listener, &door, &connections, &shutdown) => {}
        () = door.keep_keys() => {}
        () = door.sweep_reports() => {}
        () = shutdown.cancelled() => {}
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn accept(listener: &TcpListener, door: &Arc<Door>, connections: &TaskTracker, shutdown: &CancellationToken) {
    loop {
        // Registered before the look, so that nothing is missed.
        let notified = door.has_keys.notified();
        if door.keys.load().is_some() {
            break;
        }
        notified.await;
    }
    let all = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let strangers = Arc::new(Semaphore::new(MAX_STRANGERS));
    loop {
        let Ok(stranger) = Arc::clone(&strangers).acquire_owned().await else { return };
        let Ok(place) = Arc::clone(&all).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, address)) => {
                let places = Places { stranger: Some(stranger), _place: place };
                connections.spawn(connection::serve(Arc::clone(door), stream, address, places, shutdown.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "--agents could not accept a connection");
                tokio::time::sleep(AFTER_FAILURE).await;
            }
        }
    }
}
