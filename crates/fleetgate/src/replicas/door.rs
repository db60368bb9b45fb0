//! The agents' door of a gateway: links, and nothing else. Who may link is for the leader to say.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use egress::NotAdmitted;
use model::ClusterName;
use model::policy::rate::{Buckets, Rate};
use server::Bound;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tunnel::{Hub, Identity, Role};

use super::Leave;

/// Honest handshakes take three ways across the world.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Links of all clusters' agents: a few of each of thousands of clusters. Some 100 KiB each while nothing is carried.
const MAX_LINKS: usize = 16_384;
/// Those that shake hands.
const MAX_STRANGERS: usize = 256;
/// How soon somebody whose credential was revoked is out.
const LOOK: Duration = Duration::from_secs(5);
/// Links that one cluster's agents begin: some at a start, and one now and then.
const BEGUN: Rate = Rate { burst: 64, spacing: Duration::from_millis(100) };
/// Fleets have thousands.
const MAX_CLUSTERS: usize = 65_536;

pub(crate) struct LinkDoor {
    pub(crate) listener: Bound,
    pub(crate) leave: Leave,
}

/// What connections share.
struct Inner {
    leave: Leave,
    hub: Hub,
    begun: Mutex<Buckets<ClusterName>>,
    start: Instant,
    links: Semaphore,
}

impl LinkDoor {
    /// Takes no more from `stop` on; links go on until `ends`. Nobody is answered before there are keys: who comes early waits.
    pub(crate) async fn serve(self, hub: Hub, stop: CancellationToken, ends: CancellationToken) {
        let Self { listener, leave } = self;
        let Some(listener) = listener.listen() else { return };
        if stop.run_until_cancelled(leave.keyring.ready()).await.is_none() {
            return;
        }
        let inner = Arc::new(Inner {
            leave,
            hub,
            begun: Mutex::new(Buckets::new(BEGUN, MAX_CLUSTERS)),
            start: Instant::now(),
            links: Semaphore::new(MAX_LINKS),
        });
        let strangers = Arc::new(Semaphore::new(MAX_STRANGERS));
        server::accept(listener, "--agents", MAX_LINKS + MAX_STRANGERS, &stop, |stream, from| {
            let (inner, strangers, stop, ends) =
                (Arc::clone(&inner), Arc::clone(&strangers), stop.clone(), ends.clone());
            async move {
                let Some(Ok(place)) = stop.run_until_cancelled(strangers.acquire_owned()).await else { return };
                if let Some(Some(shaken)) = stop.run_until_cancelled(inner.shake_hands(stream, from, place)).await {
                    inner.link(shaken, from, &ends).await;
                }
            }
        })
        .await;
    }
}

/// Somebody with a certificate of our authority.
struct Shaken {
    stream: tokio_rustls::server::TlsStream<TcpStream>,
    identity: Identity,
    expires: u64,
}

impl Inner {
    async fn shake_hands(&self, stream: TcpStream, from: SocketAddr, _place: OwnedSemaphorePermit) -> Option<Shaken> {
        tunnel::tune(&stream);
        let tls = TlsAcceptor::from(Arc::clone(&self.leave.keyring.keys()?.links));
        let Ok(Ok(stream)) = timeout(HANDSHAKE, tls.accept(stream)).await else {
            refused(from, None, "NoHandshake");
            return None;
        };
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let Some((identity, expires)) = certificate.and_then(Identity::of) else {
            refused(from, None, "NoCertificate");
            return None;
        };
        if identity.role != Role::Agent || stream.get_ref().1.alpn_protocol() != Some(tunnel::ALPN) {
            refused(from, Some(&identity), "NoLink");
            return None;
        }
        Some(Shaken { stream, identity, expires })
    }

    async fn link(&self, Shaken { stream, identity, expires }: Shaken, from: SocketAddr, ends: &CancellationToken) {
        let now = self.start.elapsed();
        if self.begun.lock().unwrap_or_else(PoisonError::into_inner).take(&identity.cluster, 1, now).is_err() {
            return refused(from, Some(&identity), "TooFast");
        }
        match timeout(LOOK, self.leave.admissions.admit(&identity, expires)).await {
            Ok(Ok(())) => {}
            Ok(Err(NotAdmitted::Out { code, .. })) => return refused(from, Some(&identity), code),
            // What nobody knows is not let in: it comes again.
            Ok(Err(NotAdmitted::Unavailable)) | Err(_) => return refused(from, Some(&identity), "Unavailable"),
        }
        let Ok(_place) = self.links.try_acquire() else { return refused(from, Some(&identity), "Busy") };
        let out = async {
            tokio::select! {
                code = self.until_out(&identity, expires) => refused(from, Some(&identity), code),
                () = ends.cancelled() => {}
            }
        };
        self.hub.serve_link(stream, identity.clone(), out).await;
    }

    /// While no leader answers, what was admitted stays: at most until its certificate ends.
    async fn until_out(&self, identity: &Identity, expires: u64) -> &'static str {
        loop {
            tokio::time::sleep(LOOK).await;
            if let Ok(Err(NotAdmitted::Out { code, .. })) =
                timeout(LOOK, self.leave.admissions.admit(identity, expires)).await
            {
                return code;
            }
        }
    }
}

fn refused(peer: SocketAddr, identity: Option<&Identity>, code: &'static str) {
    let cluster = identity.map(|identity| tracing::field::display(&identity.cluster));
    let credential = identity.map(|identity| &*identity.credential);
    tracing::info!(target: "audit", event = "link", cluster, credential, %peer, code, "refused");
}
