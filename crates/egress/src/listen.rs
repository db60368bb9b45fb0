//! The door's listener.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use server::Bound;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tunnel::{Hub, Identity};

use crate::connection;
use crate::guests::Guests;
use crate::metrics::Metrics;
use crate::{Gate, NotAdmitted};

/// Connections that have shown no certificate yet: they have 10 s for it, and honest ones take milliseconds.
const MAX_STRANGERS: usize = 512;
/// Accepting fails when descriptors are used up, and would fail again at once.
const AFTER_FAILURE: Duration = Duration::from_millis(100);
/// Until there is an authority: who comes early waits.
const LOOK_FOR_KEYS: Duration = Duration::from_millis(100);
/// How often those who are in are looked at again: a revocation ends what is open within this.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Of all who are in: where each answer comes from another machine, thousands are through in a second.
const LOOKS_AT_ONCE: usize = 64;
/// For each of them.
const LOOK_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct Settings {
    /// How long a target may take to answer the agent; an admission webhook is waited for for 10 s by default.
    pub dial_within: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { dial_within: Duration::from_secs(5) }
    }
}

/// What all connections share.
pub(crate) struct Door {
    pub(crate) gate: Arc<dyn Gate>,
    pub(crate) hub: Hub,
    pub(crate) guests: Arc<Guests>,
    pub(crate) metrics: Metrics,
    pub(crate) settings: Settings,
    /// Ends what is still carried.
    pub(crate) end: CancellationToken,
}

/// Carries until `stop`; what is open then has `drain` to end.
pub async fn serve(
    bound: Bound,
    gate: Arc<dyn Gate>,
    hub: Hub,
    (settings, metrics): (Settings, Metrics),
    stop: CancellationToken,
    drain: Duration,
) {
    let Some(listener) = bound.listen() else { return };
    let (guests, end) = (Arc::new(Guests::new()), CancellationToken::new());
    let door = Arc::new(Door { gate, hub, guests, metrics, settings, end });
    let connections = TaskTracker::new();
    tokio::select! {
        () = accept(&listener, &door, &connections) => {}
        () = look_again(&door) => {}
        () = stop.cancelled() => {}
    }
    drop(listener);
    connections.close();
    tokio::select! {
        () = connections.wait() => return,
        () = look_again(&door) => {}
        () = sleep(drain) => {}
    }
    door.end.cancel();
    connections.wait().await;
}

async fn accept(listener: &TcpListener, door: &Arc<Door>, connections: &TaskTracker) {
    while door.gate.tls().is_none() {
        sleep(LOOK_FOR_KEYS).await;
    }
    let strangers = Arc::new(Semaphore::new(MAX_STRANGERS));
    loop {
        let Ok(stranger) = Arc::clone(&strangers).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, from)) => {
                connections.spawn(connection::serve(Arc::clone(door), stream, from, stranger));
            }
            Err(error) => {
                tracing::warn!(%error, "--egress could not accept a connection");
                sleep(AFTER_FAILURE).await;
            }
        }
    }
}

/// Has the connections end of those who are not let in any more.
async fn look_again(door: &Door) {
    loop {
        sleep(LOOK_AGAIN).await;
        let looks = door.guests.identities().into_iter().map(|(identity, expires)| look_at(door, identity, expires));
        stream::iter(looks).buffer_unordered(LOOKS_AT_ONCE).for_each(|()| std::future::ready(())).await;
    }
}

async fn look_at(door: &Door, identity: Identity, expires: u64) {
    let Ok(Err(NotAdmitted::Out { code, reason })) = timeout(LOOK_WITHIN, door.gate.admit(&identity, expires)).await
    else {
        return;
    };
    let connections = door.guests.cut(&identity);
    door.metrics.cut.inc_by(connections as u64);
    tracing::warn!(
        target: "audit",
        event = "egress-cut",
        cluster = %identity.cluster,
        identity = %identity,
        code,
        %reason,
        connections,
        "cut"
    );
}
