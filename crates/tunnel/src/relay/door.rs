//! The relay door: what others ask for goes to links of this process, or nowhere.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::tls::fingerprint;
use super::{Fingerprint, Keys, KeysError, Known};
use crate::hub::Hub;
use crate::metrics::Metrics;
use crate::refused::Refused;
use crate::server::{Asked, Inside, serve};
use crate::stream::Stream;
use crate::wire::{Greeting, Hello, tune};

/// All processes of a hub with both of their connections, and some that shake hands. Above, the next one waits.
const MAX_CONNECTIONS: usize = 640;
/// Within a cluster.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// What somebody has under way who is not among the known any more. It begins nothing new.
const UNKNOWN: Duration = Duration::from_mins(1);

/// A door that does not answer yet.
pub struct Door {
    hub: Hub,
    tls: TlsAcceptor,
    known: Known,
    metrics: Metrics,
}

impl Door {
    pub fn new(hub: Hub, keys: &Keys, known: Known, metrics: Metrics) -> Result<Self, KeysError> {
        let tls = TlsAcceptor::from(Arc::new(keys.server(known.clone())?));
        Ok(Self { hub, tls, known, metrics })
    }

    /// Takes no more from `stop` on; what is carried goes on until its end, or `ends`.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken, ends: CancellationToken) {
        let door = Arc::new(self);
        ::server::accept(listener, "--relay", MAX_CONNECTIONS, &stop, |stream, from| {
            let (door, stop, ends) = (Arc::clone(&door), stop.clone(), ends.clone());
            async move { door.answer(stream, from, &stop, &ends).await }
        })
        .await;
    }

    async fn answer(&self, stream: TcpStream, from: SocketAddr, stop: &CancellationToken, ends: &CancellationToken) {
        tune(&stream);
        let handshake = stop.run_until_cancelled(timeout(HANDSHAKE, self.tls.accept(stream)));
        let stream = match handshake.await {
            None => return,
            Some(Ok(Ok(stream))) => stream,
            Some(Err(_)) => return refused(from, "NoHandshake"),
            Some(Ok(Err(error))) => {
                let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
                let is_stranger =
                    matches!(tls, Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented));
                return refused(from, if is_stranger { "Stranger" } else { "NoHandshake" });
            }
        };
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).map(|shown| fingerprint(shown));
        let Some(shown) = shown else { return refused(from, "Stranger") };
        let unknown = CancellationToken::new();
        let drain = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.until_unknown(shown) => unknown.cancel(),
            }
        };
        let end = async {
            tokio::select! {
                () = ends.cancelled() => {}
                () = async { unknown.cancelled().await; sleep(UNKNOWN).await } => {}
            }
        };
        let onward = Arc::new(Onward { hub: self.hub.clone() });
        serve(stream, onward, &self.metrics, drain, end).await;
    }

    async fn until_unknown(&self, shown: Fingerprint) {
        let mut known = self.known.clone();
        if known.wait_for(|known| !known.contains(&shown)).await.is_err() {
            // Nobody tells us any more: what was known stays.
            std::future::pending::<()>().await;
        }
    }
}

fn refused(peer: SocketAddr, code: &'static str) {
    tracing::info!(target: "audit", event = "relay", %peer, code, "refused");
}

/// Into links of this process.
struct Onward {
    hub: Hub,
}

impl Inside for Onward {
    type Socket = Stream;

    async fn dial(&self, asked: &Asked) -> Result<Stream, Refused> {
        let cluster = asked.cluster.as_ref().ok_or_else(no_cluster)?;
        self.hub.connect_here(cluster, &asked.target, asked.within).await
    }

    async fn exchange(&self, asked: &Asked, datagram: Bytes) -> Result<Bytes, Refused> {
        let cluster = asked.cluster.as_ref().ok_or_else(no_cluster)?;
        self.hub.exchange_here(cluster, &asked.target, &datagram, asked.within).await
    }

    fn hello(&self, _: Hello) -> Greeting {
        Greeting { agent: self.hub.replica().to_owned() }
    }

    fn abort(&self, socket: &Stream) {
        socket.reset(Reason::CONNECT_ERROR);
    }
}

fn no_cluster() -> Refused {
    Refused::Malformed("no cluster is named".into())
}
