//! DNS servers that are asked over the network, in their order.
//!
//! Never at random and never several at once: where servers know different things, whoever is asked by chance gives answers
//! that come and go.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use domain::base::iana::Rcode;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout_at};

use crate::failure::Failure;
use crate::message::{Key, Mark, Query, Response};

/// Until a server is taken for one that does not answer; others answer in milliseconds, and cold caches in a second.
const ATTEMPT: Duration = Duration::from_millis(1500);
/// Of all servers together: clients wait for 5 s.
const WITHIN: Duration = Duration::from_millis(4500);
/// For how long a server that did not answer is asked after the others.
const SET_BACK: Duration = Duration::from_secs(10);
/// We say that we take 1,232; more comes from servers that know no EDNS or do not care.
const LARGEST_DATAGRAM: usize = 4096;

#[derive(Debug)]
pub(crate) struct Servers {
    servers: Vec<Server>,
    started: Instant,
}

#[derive(Debug)]
struct Server {
    address: SocketAddr,
    /// In milliseconds since the start.
    set_back_until: AtomicU64,
}

impl Servers {
    pub(crate) fn new(addresses: &[SocketAddr]) -> Self {
        let server = |address: &SocketAddr| Server { address: *address, set_back_until: AtomicU64::new(0) };
        Self { servers: addresses.iter().map(server).collect(), started: Instant::now() }
    }

    /// The first answer of a server that can tell.
    pub(crate) async fn ask(&self, key: &Key, mark: Mark) -> Result<Response, Failure> {
        let deadline = Instant::now() + WITHIN;
        let mut last = Failure::Network;
        for server in self.in_order() {
            let until = deadline.min(Instant::now() + ATTEMPT);
            match ask_one(server.address, key, mark, until).await {
                Ok(response) => return Ok(response),
                Err(failure) => last = failure,
            }
            if last == Failure::NoAnswer {
                let at = self.started.elapsed() + SET_BACK;
                server.set_back_until.store(u64::try_from(at.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        Err(last)
    }

    /// First those that are known to answer, then all once more: a datagram may have been lost.
    fn in_order(&self) -> impl Iterator<Item = &Server> {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let is_good = move |server: &&Server| server.set_back_until.load(Ordering::Relaxed) <= now;
        self.servers.iter().filter(is_good).chain(&self.servers)
    }
}

async fn ask_one(server: SocketAddr, key: &Key, mark: Mark, until: Instant) -> Result<Response, Failure> {
    let query = Query::new(key, Some(mark));
    match judge(&exchange(server, &query, until).await?, key)? {
        Judged::Answer(response) => Ok(response),
        // RFC 6891 7: it does not know EDNS.
        Judged::Malformed => {
            let query = Query::new(key, None);
            match judge(&exchange(server, &query, until).await?, key)? {
                Judged::Answer(response) => Ok(response),
                Judged::Malformed => Err(Failure::Server),
            }
        }
    }
}

pub(crate) enum Judged {
    Answer(Response),
    /// The server could not read the question.
    Malformed,
}

/// Whether a server could tell.
pub(crate) fn judge(octets: &[u8], key: &Key) -> Result<Judged, Failure> {
    let response = Response::read(octets, key).map_err(|_| Failure::Garbled)?;
    match response.rcode {
        Rcode::NOERROR | Rcode::NXDOMAIN | Rcode::YXDOMAIN => Ok(Judged::Answer(response)),
        Rcode::FORMERR => Ok(Judged::Malformed),
        _ => Err(Failure::Server),
    }
}

/// By a port of its own for every question; connected, so that nobody else's answer is taken.
async fn exchange(server: SocketAddr, query: &Query, until: Instant) -> Result<Vec<u8>, Failure> {
    let exchanged = async {
        let socket = match server {
            SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?,
            SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).await?,
        };
        socket.connect(server).await?;
        socket.send(query.as_octets()).await?;
        let mut answer = vec![0; LARGEST_DATAGRAM];
        loop {
            let length = socket.recv(&mut answer).await?;
            if query.is_answered_by(&answer[..length]) {
                answer.truncate(length);
                return Ok::<_, io::Error>(answer);
            }
        }
    };
    let answer = timeout_at(until, exchanged).await.map_err(|_| Failure::NoAnswer)?.map_err(|_| Failure::Network)?;
    if !Query::is_truncated(&answer) {
        return Ok(answer);
    }
    let stream = timeout_at(until, TcpStream::connect(server)).await;
    let stream = stream.map_err(|_| Failure::NoAnswer)?.map_err(|_| Failure::Network)?;
    over_stream(stream, query, until).await
}

/// RFC 1035 4.2.2, whatever carries it.
pub(crate) async fn over_stream(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    query: &Query,
    until: Instant,
) -> Result<Vec<u8>, Failure> {
    let exchanged = async {
        let octets = query.as_octets();
        let length = u16::try_from(octets.len()).unwrap_or(u16::MAX);
        stream.write_all(&[&length.to_be_bytes(), octets].concat()).await?;
        stream.flush().await?;
        let mut answer = vec![0; stream.read_u16().await?.into()];
        stream.read_exact(&mut answer).await?;
        Ok::<_, io::Error>(answer)
    };
    let answer = timeout_at(until, exchanged).await.map_err(|_| Failure::NoAnswer)?.map_err(|_| Failure::Network)?;
    if query.is_answered_by(&answer) { Ok(answer) } else { Err(Failure::Garbled) }
}
