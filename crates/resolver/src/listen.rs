//! UDP and TCP of a cluster's port, and of the address that all may share.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use prometheus_client::encoding::EncodeLabelValue;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::question::Step;
use crate::resolver::Shared;
use crate::tenancy::Tenancy;

/// Until a port that is taken is tried again: another process may be handing it over.
const AGAIN: Duration = Duration::from_millis(200);
/// The longest question that anybody asks is far shorter.
const LARGEST_QUESTION: usize = 4096;
/// RFC 7766 6.2.3: a client that has nothing to ask comes again.
const IDLE: Duration = Duration::from_secs(10);
/// Until a client that does not read is given up.
const WRITING: Duration = Duration::from_secs(5);
/// Questions of one connection that wait at once; the next is read when one is answered.
const PIPELINED: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Transport {
    Udp,
    Tcp,
}

/// Whose questions come to a socket.
#[derive(Clone)]
enum Owner {
    One(Arc<ArcSwap<Tenancy>>),
    /// It follows from who asks.
    ByAddress,
}

impl Owner {
    fn of(&self, shared: &Shared, peer: SocketAddr) -> Option<Arc<Tenancy>> {
        match self {
            Self::One(tenancy) => Some(tenancy.load_full()),
            Self::ByAddress => {
                let pods = shared.pods.load();
                let cluster = pods.get(&peer.ip().to_canonical())?;
                shared.tenancies.load().get(cluster).cloned()
            }
        }
    }
}

/// Until `stop`.
pub(crate) async fn serve_port(
    shared: Arc<Shared>,
    at: SocketAddr,
    tenancy: Arc<ArcSwap<Tenancy>>,
    is_bound: Arc<AtomicBool>,
    stop: CancellationToken,
) {
    serve(shared, at, Owner::One(tenancy), is_bound, stop).await;
}

/// The same for an address that all share.
pub(crate) async fn serve_shared(
    shared: Arc<Shared>,
    at: SocketAddr,
    is_bound: Arc<AtomicBool>,
    stop: CancellationToken,
) {
    serve(shared, at, Owner::ByAddress, is_bound, stop).await;
}

async fn serve(shared: Arc<Shared>, at: SocketAddr, owner: Owner, is_bound: Arc<AtomicBool>, stop: CancellationToken) {
    let Some((udp, tcp)) = stop.run_until_cancelled(bind(at)).await else { return };
    is_bound.store(true, Ordering::Release);
    tracing::debug!(%at, "the resolver listens");
    let udp = Arc::new(udp);
    let serving = async {
        tokio::join!(serve_udp(&shared, &udp, &owner), serve_tcp(&shared, &tcp, &owner, &stop));
    };
    stop.run_until_cancelled(serving).await;
}

/// Tries until it has both.
async fn bind(at: SocketAddr) -> (UdpSocket, TcpListener) {
    let mut told = false;
    loop {
        match open(at) {
            Ok(sockets) => return sockets,
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(%at, %error, "the resolver cannot listen there yet; it tries again");
                }
            }
        }
        sleep(AGAIN).await;
    }
}

fn open(at: SocketAddr) -> io::Result<(UdpSocket, TcpListener)> {
    let domain = Domain::for_address(at);
    let udp = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    let tcp = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    for socket in [&udp, &tcp] {
        if at.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_nonblocking(true)?;
    }
    // Connections of an earlier process that still end are no reason to wait.
    tcp.set_reuse_address(true)?;
    udp.bind(&at.into())?;
    tcp.bind(&at.into())?;
    tcp.listen(128)?;
    Ok((UdpSocket::from_std(udp.into())?, TcpListener::from_std(tcp.into())?))
}

async fn serve_udp(shared: &Arc<Shared>, socket: &Arc<UdpSocket>, owner: &Owner) {
    let mut buffer = vec![0; LARGEST_QUESTION];
    loop {
        let (length, peer) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            // What came back for an earlier answer, such as a port that is closed.
            Err(error) => {
                tracing::debug!(%error, "receiving a question");
                // An error that stays must not keep a core busy.
                sleep(Duration::from_millis(1)).await;
                continue;
            }
        };
        let octets = &buffer[..length];
        let Some(tenancy) = owner.of(shared, peer) else {
            if let Some(reply) = shared.refuse(octets, Transport::Udp) {
                send(socket, &reply, peer).await;
            }
            continue;
        };
        match shared.begin(&tenancy, octets, Transport::Udp) {
            Step::Nothing => {}
            Step::Reply(reply) => send(socket, &reply, peer).await,
            Step::Wait(wait) => {
                let (shared, socket, octets) = (Arc::clone(shared), Arc::clone(socket), octets.to_vec());
                tokio::spawn(async move {
                    let reply = shared.finish(&tenancy, &octets, wait, Transport::Udp).await;
                    send(&socket, &reply, peer).await;
                });
            }
        }
    }
}

/// A client that cannot be reached asks again, or does not.
async fn send(socket: &UdpSocket, reply: &[u8], peer: SocketAddr) {
    if let Err(error) = socket.send_to(reply, peer).await {
        tracing::debug!(%error, "sending an answer");
    }
}

async fn serve_tcp(shared: &Arc<Shared>, listener: &TcpListener, owner: &Owner, stop: &CancellationToken) {
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "taking a connection");
                // Descriptors may be short; who waits is taken then.
                sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let tenancy = owner.of(shared, peer);
        let permit = tenancy.as_ref().map(|tenancy| Arc::clone(&tenancy.connections).try_acquire_owned());
        let Ok(permit) = permit.transpose() else {
            shared.metrics.connections_refused.inc();
            continue;
        };
        let (shared, stop) = (Arc::clone(shared), stop.clone());
        tokio::spawn(async move {
            stop.run_until_cancelled(serve_connection(&shared, stream, tenancy)).await;
            drop(permit);
        });
    }
}

/// RFC 7766: questions come one after the other, and answers as they are there.
async fn serve_connection(shared: &Arc<Shared>, stream: TcpStream, tenancy: Option<Arc<Tenancy>>) {
    let _ = stream.set_nodelay(true);
    let (mut reader, mut writer) = stream.into_split();
    let (replies, mut to_write) = mpsc::channel::<Vec<u8>>(PIPELINED);
    let write = async move {
        while let Some(reply) = to_write.recv().await {
            let length = u16::try_from(reply.len()).unwrap_or_default().to_be_bytes();
            match timeout(WRITING, writer.write_all(&[&length, &*reply].concat())).await {
                Ok(Ok(())) => {}
                _ => return,
            }
        }
    };
    let read = async move {
        let waiting = Arc::new(Semaphore::new(PIPELINED));
        loop {
            let Ok(Ok(length)) = timeout(IDLE, reader.read_u16()).await else { return };
            let mut octets = vec![0; length.into()];
            // No question is longer; whoever sends it wants something else.
            if octets.len() > LARGEST_QUESTION {
                return;
            }
            let Ok(Ok(_)) = timeout(IDLE, reader.read_exact(&mut octets)).await else { return };
            let Some(tenancy) = &tenancy else {
                let Some(reply) = shared.refuse(&octets, Transport::Tcp) else { return };
                if replies.send(reply).await.is_err() {
                    return;
                }
                continue;
            };
            match shared.begin(tenancy, &octets, Transport::Tcp) {
                Step::Nothing => return,
                Step::Reply(reply) => {
                    if replies.send(reply).await.is_err() {
                        return;
                    }
                }
                Step::Wait(wait) => {
                    let Ok(permit) = Arc::clone(&waiting).acquire_owned().await else { return };
                    let (shared, tenancy, replies) = (Arc::clone(shared), Arc::clone(tenancy), replies.clone());
                    tokio::spawn(async move {
                        let reply = shared.finish(&tenancy, &octets, wait, Transport::Tcp).await;
                        // The client may be gone.
                        let _ = replies.send(reply).await;
                        drop(permit);
                    });
                }
            }
        }
    };
    // Also after the client said that it asks no more, all is written that it waits for.
    tokio::join!(read, write);
}
