//! The listener of the agents' door.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use server::{BindError, Bound};
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

/// It does not answer yet.
pub struct Listener(Bound);

impl Listener {
    pub const FLAG: &'static str = "--agents";

    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        Bound::bind(Self::FLAG, address).map(Self)
    }

    /// From a listener that another process had bound.
    pub fn adopt(socket: OwnedFd) -> io::Result<Self> {
        Bound::adopt(Self::FLAG, socket).map(Self)
    }

    /// The listener for another process.
    pub fn share(&self) -> io::Result<OwnedFd> {
        self.0.share()
    }

    /// The address with the port that was given.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Answers until `shutdown`. Nobody is answered before there is an authority: who comes early waits.
    pub async fn serve(self, door: Arc<Door>, shutdown: CancellationToken) {
        let Some(listener) = self.0.listen() else { return };
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
