//! One connection to the agents' door: TLS, and then its requests one after the other.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::service::service_fn;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tunnel::{Identity, Role};

use super::problem::No;
use super::{Door, Slot, link, request, unix_now};

/// Honest handshakes take three ways across the world.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Who has shown no certificate enrols and goes.
const STRANGER_LIFE: Duration = Duration::from_secs(30);
/// From one request to the next, and for each head.
const IDLE: Duration = Duration::from_mins(2);
/// An agent has one for its changes and one that waits for verdicts, or one for its load, and new ones while it renews its certificate.
const PER_CLUSTER: usize = 8;
/// A token or a certificate is no header; agents send a few hundred octets.
const MAX_HEAD: usize = 16 << 10;

/// Who is at the other end.
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    /// What a verified certificate says, and its end in Unix seconds.
    pub(super) identity: Option<(Identity, u64)>,
}

/// What a connection takes up.
pub(super) struct Places {
    /// Given back by who shows a certificate.
    pub(super) stranger: Option<OwnedSemaphorePermit>,
    /// Links have places of their own, and give it back.
    pub(super) _place: OwnedSemaphorePermit,
}

pub(super) async fn serve(
    door: Arc<Door>,
    stream: TcpStream,
    address: SocketAddr,
    mut places: Places,
    shutdown: CancellationToken,
) {
    door.metrics.connections.inc();
    let _counted = Counted(&door);
    let Some(keys) = door.keys.load_full() else { return };
    // Answers are small, and each is awaited.
    let _ = stream.set_nodelay(true);
    let handshake = timeout(HANDSHAKE, TlsAcceptor::from(Arc::clone(&keys.config)).accept(stream));
    let stream = tokio::select! {
        stream = handshake => stream,
        () = shutdown.cancelled() => return,
    };
    let Ok(Ok(stream)) = stream else {
        _ = door.metrics.handshake_failures.inc();
        return;
    };
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    // Who speaks for a control plane has nothing to say here.
    let identity = match certificate.map(Identity::of) {
        Some(Some((identity, _))) if identity.role != Role::Agent => {
            _ = door.metrics.handshake_failures.inc();
            return link::refused(address, Some(&identity), &No::not_an_agent());
        }
        Some(None) => {
            _ = door.metrics.handshake_failures.inc();
            return;
        }
        identity => identity.flatten(),
    };
    if stream.get_ref().1.alpn_protocol() == Some(tunnel::ALPN) {
        drop(places);
        return link::serve(&door, stream, address, identity).await;
    }
    let mut life = STRANGER_LIFE;
    let mut seat = None;
    if let Some((identity, expires)) = &identity {
        places.stranger = None;
        life = Duration::from_secs(expires.saturating_sub(unix_now()));
        seat = Seat::take(door.slot(&identity.cluster));
        if seat.is_none() {
            return tracing::warn!(cluster = %identity.cluster, "more than {PER_CLUSTER} connections of its agents at once");
        }
    }
    let peer = Arc::new(Peer { address, identity });
    let service = service_fn(|request| {
        let (door, peer) = (Arc::clone(&door), Arc::clone(&peer));
        async move { Ok::<_, Infallible>(request::answer(&door, &peer, request).await) }
    });
    let mut http = server::http(IDLE);
    http.max_header_size(MAX_HEAD);
    let end = async { _ = timeout(life, shutdown.cancelled()).await };
    server::converse(&http, stream, service, end).await;
    drop(seat);
}

struct Counted<'a>(&'a Door);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.metrics.connections.dec();
    }
}

/// One of a cluster's connections.
struct Seat(Arc<Slot>);

impl Seat {
    fn take(slot: Arc<Slot>) -> Option<Self> {
        let seat = Self(slot);
        // Counted in any case, and given back with the value.
        (seat.0.connections.fetch_add(1, Ordering::AcqRel) < PER_CLUSTER).then_some(seat)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}
