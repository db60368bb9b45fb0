//! A transparent side-car: connections that the pod's own packet filter redirects here go to where they wanted to go, inside the cluster.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustix::io::Errno;
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tunnel::{Host, Target};

use crate::carry::{Carried, carry};
use crate::client::Gateways;
use crate::metrics::Metrics;
use crate::proxy::{self, MAX_CONNECTIONS};
use crate::refusal::Refusal;
use crate::socket;

#[derive(Debug, thiserror::Error)]
#[error("listening on {address}")]
pub struct OpenError {
    address: SocketAddr,
    source: io::Error,
}

/// Where the packet filter redirects to: an address of each family.
pub struct Listeners(Vec<TcpListener>);

impl Listeners {
    /// Within a tokio runtime.
    pub fn open(addresses: &[SocketAddr]) -> Result<Self, OpenError> {
        let open =
            |address: &SocketAddr| proxy::bind(*address).map_err(|source| OpenError { address: *address, source });
        addresses.iter().map(open).collect::<Result<_, _>>().map(Self)
    }

    /// With the ports that were given.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Carries until `stop`; what is open then has `drain` to end.
    pub async fn serve(self, gateways: Arc<Gateways>, metrics: Metrics, stop: CancellationToken, drain: Duration) {
        let (connections, end) = (TaskTracker::new(), CancellationToken::new());
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let accepting = self.0.iter().map(|listener| {
            let go = |(stream, from): (TcpStream, SocketAddr), place| {
                let (gateways, metrics, end) = (Arc::clone(&gateways), metrics.clone(), end.clone());
                connections.spawn(async move {
                    let _counted = metrics.connection();
                    end.run_until_cancelled(serve(stream, from, &gateways, &metrics)).await;
                    drop(place);
                });
            };
            proxy::accept(&places, || listener.accept(), go)
        });
        tokio::select! {
            _ = futures_util::future::join_all(accepting) => {}
            () = stop.cancelled() => {}
        }
        drop(self);
        connections.close();
        tokio::select! {
            () = connections.wait() => return,
            () = sleep(drain) => end.cancel(),
        }
        connections.wait().await;
    }
}

async fn serve(mut client: TcpStream, from: SocketAddr, gateways: &Gateways, metrics: &Metrics) {
    socket::prepare(&client);
    let opened = async {
        let target = wanted(&client, gateways)?;
        let (stream, answered) = gateways.connect(&target).await?;
        Ok((target, stream, answered))
    };
    let opened: Result<_, Refusal> = opened.await;
    match opened {
        Ok((target, stream, answered)) => {
            metrics.count("Ok");
            tracing::debug!(destination = %target, peer = %from, "connected");
            let carried = Carried::default();
            // Nothing was said to the client yet that the target's octets could come together with.
            let ended = carry(&mut client, stream, (Bytes::new(), answered), Duration::ZERO, &carried).await;
            metrics.carried(&carried);
            if ended.is_err() {
                socket::reset(&client);
            }
        }
        Err(refusal) => {
            metrics.count(refusal.label());
            tracing::warn!(peer = %from, code = refusal.code(), reason = %refusal, "connection refused");
            socket::reset(&client);
        }
    }
}

/// Where the client wanted to go before it was redirected.
fn wanted(client: &TcpStream, gateways: &Gateways) -> Result<Target, Refusal> {
    let gone = |error: io::Error| Refusal::Gone(error.to_string());
    let here = plain(client.local_addr().map_err(gone)?);
    let wanted = original(client, here).map_err(|error| gone(error.into()))?;
    match wanted.map(plain) {
        Some(wanted) if wanted == here => Err(Refusal::NotRedirected),
        None => Err(Refusal::NotRedirected),
        Some(wanted) if gateways.is_one(wanted) => Err(Refusal::Loop),
        Some(wanted) => Ok(Target { host: Host::Address(wanted.ip()), port: wanted.port() }),
    }
}

/// None where no packet filter has touched the connection.
fn original(client: &TcpStream, here: SocketAddr) -> Result<Option<SocketAddr>, Errno> {
    let found = match here.ip() {
        IpAddr::V4(_) => sockopt::ip_original_dst(client).map(SocketAddr::V4),
        IpAddr::V6(_) => sockopt::ipv6_original_dst(client).map(SocketAddr::V6),
    };
    match found {
        Ok(address) => Ok(Some(address)),
        // The kernel tracks no such connection, or no connections at all.
        Err(Errno::NOENT | Errno::NOPROTOOPT | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error),
    }
}

/// An IPv4 connection to a listener of both families is one of IPv4 to the packet filter.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
