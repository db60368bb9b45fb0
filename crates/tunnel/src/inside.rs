//! What an agent does inside its cluster with what the hub asks for: whether that is allowed, which addresses a name has
//! there, and the dial itself.

mod allow;
mod names;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout_at};

pub use allow::{Allow, AllowError, AllowList};
pub use names::Names;

use crate::refused::Refused;
use crate::server::{Asked, Inside};
use crate::target::Host;
use crate::wire::{Greeting, Hello};

/// Each holds a descriptor and waits for a few seconds; above, others of the cluster's agents are asked.
const MAX_DIALS: usize = 1024;
/// A target that does not answer any more is known after two minutes, as with Go's dialler, which Kubernetes uses.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(30)).with_interval(Duration::from_secs(15)).with_retries(6);
/// The longest payload of UDP.
const MAX_DATAGRAM: usize = 65_507;

/// What may be reached, and how names are looked up.
#[derive(Debug)]
pub struct Dialler {
    agent: String,
    allow: AllowList,
    names: Names,
    dials: Arc<Semaphore>,
}

impl Dialler {
    /// `agent` is what we call ourselves.
    pub fn new(agent: String, allow: AllowList, names: Names) -> Arc<Self> {
        Arc::new(Self { agent, allow, names, dials: Arc::new(Semaphore::new(MAX_DIALS)) })
    }

    /// For one link: who is at its other end is told to `heard`.
    pub fn on_link(self: &Arc<Self>) -> (Arc<OnLink>, watch::Receiver<Option<Hello>>) {
        let (heard, hello) = watch::channel(None);
        (Arc::new(OnLink { dialler: Arc::clone(self), heard }), hello)
    }

    /// Every address that it may be dialled at: each of them was looked at.
    async fn addresses(&self, asked: &Asked) -> Result<Vec<SocketAddr>, Refused> {
        let port = asked.target.port;
        let addresses = match &asked.target.host {
            Host::Address(address) => {
                self.allow.check_address(*address, port)?;
                vec![*address]
            }
            Host::Name(name) => {
                let name = self.names.full(name);
                self.allow.check_name(&name, port)?;
                let found = self.names.look_up(&name).await?;
                for address in &found {
                    self.allow.check_address_of_name(*address, port)?;
                }
                found
            }
        };
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }

    async fn dial(&self, asked: &Asked) -> Result<TcpStream, Refused> {
        let _dialling = self.dials.try_acquire().map_err(|_| Refused::TooMany)?;
        let deadline = Instant::now() + asked.within;
        let addresses = self.addresses(asked).await?;
        let mut last = Refused::Unreachable("the name has no address".into());
        for (number, address) in addresses.iter().enumerate() {
            // Each of those that are left gets an equal part of the time.
            let left = deadline.saturating_duration_since(Instant::now());
            let others = u32::try_from(addresses.len() - number).unwrap_or(u32::MAX);
            match timeout_at(Instant::now() + left / others, TcpStream::connect(address)).await {
                Ok(Ok(socket)) => {
                    let _ = socket.set_nodelay(true);
                    // A target that is gone would keep its stream for ever.
                    let _ = SockRef::from(&socket).set_tcp_keepalive(&KEEPALIVE);
                    return Ok(socket);
                }
                Ok(Err(error)) => last = unreachable(&error),
                Err(_) => last = Refused::TimedOut,
            }
        }
        Err(last)
    }

    async fn exchange(&self, asked: &Asked, datagram: &[u8]) -> Result<Bytes, Refused> {
        let _dialling = self.dials.try_acquire().map_err(|_| Refused::TooMany)?;
        let addresses = self.addresses(asked).await?;
        let address = addresses.first().ok_or_else(|| Refused::Unreachable("the name has no address".into()))?;
        let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        // A port of its own for every question; connected, so that nobody else's answer is taken.
        let exchanged = async {
            let socket = UdpSocket::bind((any, 0)).await?;
            socket.connect(address).await?;
            socket.send(datagram).await?;
            let mut answer = vec![0; MAX_DATAGRAM];
            let length = socket.recv(&mut answer).await?;
            Ok(Bytes::copy_from_slice(&answer[..length]))
        };
        exchanged.await.map_err(|error: io::Error| unreachable(&error))
    }
}

/// Without what the system says beside it: numbers of errors are nothing to whoever asked.
fn unreachable(error: &io::Error) -> Refused {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Refused::Unreachable("the connection was refused".into()),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            Refused::Unreachable("there is no way there".into())
        }
        io::ErrorKind::TimedOut => Refused::TimedOut,
        // Descriptors and ports: another agent may have some.
        _ if matches!(error.raw_os_error(), Some(EMFILE | ENFILE | EADDRNOTAVAIL)) => Refused::TooMany,
        _ => Refused::Unreachable("the connection failed".into()),
    }
}

const EMFILE: i32 = rustix::io::Errno::MFILE.raw_os_error();
const ENFILE: i32 = rustix::io::Errno::NFILE.raw_os_error();
const EADDRNOTAVAIL: i32 = rustix::io::Errno::ADDRNOTAVAIL.raw_os_error();

/// A dialler as one link has it.
pub struct OnLink {
    dialler: Arc<Dialler>,
    heard: watch::Sender<Option<Hello>>,
}

impl Inside for OnLink {
    type Socket = TcpStream;

    async fn dial(&self, asked: &Asked) -> Result<TcpStream, Refused> {
        let dialled = self.dialler.dial(asked).await;
        audit("dial", asked, &dialled);
        dialled
    }

    async fn exchange(&self, asked: &Asked, datagram: Bytes) -> Result<Bytes, Refused> {
        let exchanged = self.dialler.exchange(asked, &datagram).await;
        audit("exchange", asked, &exchanged);
        exchanged
    }

    fn hello(&self, hello: Hello) -> Greeting {
        self.heard.send_replace(Some(hello));
        Greeting { agent: self.dialler.agent.clone() }
    }

    fn abort(&self, socket: &TcpStream) {
        // Its end is a reset then, and not an end that looks like any other.
        let _ = socket.set_zero_linger();
    }
}

/// What is forbidden here; the rest is in the hub's log.
fn audit<T>(event: &'static str, asked: &Asked, answer: &Result<T, Refused>) {
    if let Err(refused @ Refused::Forbidden(_)) = answer {
        tracing::info!(target: "audit", event, destination = %asked.target, code = refused.code(), reason = %refused, "refused");
    }
}
