//! The sockets: UDP and TCP on one address (RFC 7766 5: a server must have both).

mod batch;
mod tcp;
mod udp;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::available_parallelism;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::index::Index;
use crate::limit::RateLimiter;
use crate::metrics::Metrics;
use crate::query::{self, Client, Outcome};
use crate::recent::Recent;
use crate::settings::Settings;

/// Port 0: how often another free port is tried when TCP cannot have the one that UDP got. With half of all ports
/// taken, all of these fail once in 65,000 times.
const PORT_ATTEMPTS: usize = 16;

/// All sockets of one address, bound but not yet answering.
#[derive(Debug)]
pub struct Listeners {
    udp: Vec<UdpSocket>,
    tcp: TcpListener,
    address: SocketAddr,
}

/// All of these are for who runs the server to mend.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("binding DNS on {address}: the {protocol} port is in use by another process")]
    InUse { address: SocketAddr, protocol: &'static str },
    #[error("binding DNS on {address}: not permitted; ports below 1024 need CAP_NET_BIND_SERVICE")]
    NotPermitted { address: SocketAddr },
    #[error("binding DNS on {address}: this machine does not have that address")]
    NotOurs { address: SocketAddr },
    #[error("binding DNS on {address}: the {protocol} socket failed: {source}")]
    Failed { address: SocketAddr, protocol: &'static str, source: io::Error },
}

impl Listeners {
    /// Must be called within a tokio runtime. With port 0 both get the same free port. On a wildcard address (`0.0.0.0`,
    /// `::`) every answer comes from the address that was asked.
    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let mut attempts = if address.port() == 0 { PORT_ATTEMPTS } else { 1 };
        loop {
            attempts -= 1;
            match Self::bind_both(address) {
                Err(BindError::InUse { .. }) if attempts > 0 => {}
                result => return result,
            }
        }
    }

    /// From sockets that another process had bound and set up; within a tokio runtime. There must be one for UDP.
    pub fn adopt(udp: Vec<OwnedFd>, tcp: OwnedFd) -> io::Result<Self> {
        let udp: Vec<UdpSocket> = udp.into_iter().map(UdpSocket::from).collect();
        let address = udp.first().ok_or(io::ErrorKind::InvalidInput)?.local_addr()?;
        Ok(Self { udp, tcp: TcpListener::from_std(tcp.into())?, address })
    }

    /// The sockets for another process, for UDP and for TCP. While both have them, each query is answered by one.
    pub fn share(&self) -> io::Result<(Vec<OwnedFd>, OwnedFd)> {
        let udp = self.udp.iter().map(|socket| socket.as_fd().try_clone_to_owned()).collect::<io::Result<_>>()?;
        Ok((udp, self.tcp.as_fd().try_clone_to_owned()?))
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Begins to answer over UDP, in threads of its own.
    pub fn start(
        self,
        index: Arc<ArcSwap<Index>>,
        settings: Settings,
        metrics: Metrics,
        recent: Recent,
    ) -> io::Result<Serving> {
        let limiter = Arc::new(RateLimiter::new(settings.rate_limit));
        let shared = Shared { index, settings: Arc::new(settings), limiter, metrics, recent };
        let workers = udp::Workers::start(self.udp, &shared)?;
        Ok(Serving { workers, tcp: self.tcp, shared })
    }

    fn bind_both(address: SocketAddr) -> Result<Self, BindError> {
        let failed = |protocol| move |error| BindError::from_io(address, protocol, error);
        // As many as may run: `taskset` and cgroups count.
        let threads = available_parallelism().map_or(1, usize::from);
        let udp = udp::bind(address, threads).map_err(failed("UDP"))?;
        let address = udp[0].local_addr().map_err(failed("UDP"))?;
        let tcp = tcp::bind(address).map_err(failed("TCP"))?;
        Ok(Self { udp, tcp, address })
    }
}

/// A server that answers over UDP until it is dropped.
#[derive(Debug)]
pub struct Serving {
    workers: udp::Workers,
    tcp: TcpListener,
    shared: Shared,
}

impl Serving {
    /// Answers over TCP, too, until `shutdown`; then lets every connection and thread finish the answers it is writing.
    pub async fn run(self, shutdown: CancellationToken) {
        let Self { workers, tcp, shared } = self;
        tcp::Server::new(shared, shutdown, tcp::LIMITS).serve(tcp).await;
        // Waits for threads, which a task must not.
        let _ = tokio::task::spawn_blocking(|| drop(workers)).await;
    }
}

impl BindError {
    fn from_io(address: SocketAddr, protocol: &'static str, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AddrInUse => Self::InUse { address, protocol },
            io::ErrorKind::PermissionDenied => Self::NotPermitted { address },
            io::ErrorKind::AddrNotAvailable => Self::NotOurs { address },
            _ => Self::Failed { address, protocol, source: error },
        }
    }
}

/// What everybody has who answers.
#[derive(Debug, Clone)]
struct Shared {
    index: Arc<ArcSwap<Index>>,
    settings: Arc<Settings>,
    limiter: Arc<RateLimiter>,
    metrics: Metrics,
    recent: Recent,
}

/// A mistake of ours that one query brings to light costs that query its answer, not everybody theirs.
fn answer_one<'a>(
    index: &'a Index,
    settings: &Settings,
    client: &Client,
    request: &[u8],
    response: &mut [u8],
) -> Option<(usize, Outcome<'a>)> {
    let answered = catch_unwind(AssertUnwindSafe(|| query::answer_into(index, settings, client, request, response)));
    answered.unwrap_or_else(|_| {
        tracing::error!("a query was not answered because of a mistake in this program; please report it");
        None
    })
}
