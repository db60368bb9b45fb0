//! One connection to one API server, and requests on it, one after the other.
//!
//! This is not `kube`'s client: that one keeps a pool and a task per cluster, looks names up by itself, and reads
//! answers of any length. A tenant's server gets one connection, to an address that the policy allows, and bounds on
//! everything it sends. Redirects are answers like any other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use super::away::Away;
use crate::kubeconfig::{Host, Policy, Server};

/// Name, TCP and TLS together. A server in the same building takes milliseconds, across the world less than a second.
pub(super) const CONNECT: Duration = Duration::from_secs(10);
/// So that of two addresses a dead first one leaves time for the second.
const CONNECT_ADDRESS: Duration = Duration::from_secs(4);
/// Until an answer begins, or all of a page is there.
pub(super) const ANSWER: Duration = Duration::from_secs(20);
/// API servers have one or two; more than this is not tried.
const ADDRESSES: usize = 4;
/// A peer that is gone without a word is noticed after about 30 s, by the kernel alone.
const IDLE: Duration = Duration::from_secs(15);
const PROBE: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;
/// What of an answer is held before it is asked for, and the longest head of one.
const READ: usize = 16 * 1024;

pub(super) struct Link {
    server: Arc<Server>,
    sender: SendRequest<Full<Bytes>>,
    /// Drives the connection, and ends with it.
    _connection: AbortOnDropHandle<()>,
}

impl Link {
    pub(super) async fn open(server: Arc<Server>, policy: Policy) -> Result<Self, Away> {
        let stream = connect(&server, policy).await?;
        let connector = TlsConnector::from(Arc::clone(&server.tls));
        let stream = connector.connect(server.name.clone(), stream).await;
        let stream = stream.map_err(|error| Away::of_handshake(&error))?;
        let mut http = http1::Builder::new();
        http.read_buf_exact_size(Some(READ));
        let (sender, connection) = http.handshake(TokioIo::new(stream)).await.map_err(|_| Away::Broken)?;
        // How it ends shows in the request that it breaks.
        let connection = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { server, sender, _connection: AbortOnDropHandle::new(connection) })
    }

    /// Only an answer with status 200 is one.
    pub(super) async fn get(&mut self, request: Request<Vec<u8>>) -> Result<Incoming, Away> {
        let answer = self.ask(request).await?;
        match answer.status() {
            StatusCode::OK => Ok(answer.into_body()),
            status => Err(Away::of_status(status.as_u16())),
        }
    }

    /// Writes, or looks at what may not be there. What is not done is told by its status.
    pub(super) async fn send(&mut self, request: Request<Vec<u8>>) -> Result<Answer, Away> {
        let answer = self.ask(request).await?;
        let status = answer.status().as_u16();
        let octets = whole(answer.into_body(), LONGEST_LINE, "2 MiB for one object").await?;
        Ok(if (200..300).contains(&status) { Answer::Done(octets) } else { Answer::NotDone(status, octets) })
    }

    async fn ask(&mut self, request: Request<Vec<u8>>) -> Result<Response<Incoming>, Away> {
        let (given, body) = request.into_parts();
        let mut request = Request::builder()
            .method(given.method)
            .uri(format!("{}{}", self.server.prefix, given.uri))
            .header(HOST, &self.server.authority)
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("fleetgate/", env!("CARGO_PKG_VERSION")));
        if let Some(authorization) = &self.server.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        if let Some(content) = given.headers.get(CONTENT_TYPE) {
            request = request.header(CONTENT_TYPE, content);
        }
        let body = Full::new(Bytes::from(body));
        let request = request.body(body).map_err(|_| Away::Malformed("it gave what does not fit a request"))?;
        let answer = async {
            self.sender.ready().await?;
            self.sender.send_request(request).await
        };
        match timeout(ANSWER, answer).await {
            Err(_) => Err(Away::TimedOut),
            Ok(Err(error)) if error.is_parse() => Err(Away::Malformed("it speaks no HTTP")),
            Ok(Err(_)) => Err(Away::Broken),
            Ok(Ok(answer)) => Ok(answer),
        }
    }
}

/// What came of a request.
pub(super) enum Answer {
    Done(Vec<u8>),
    /// The status, and what is said about it: to be looked at, and not to be repeated.
    NotDone(u16, Vec<u8>),
}

async fn connect(server: &Server, policy: Policy) -> Result<TcpStream, Away> {
    let addresses: Vec<SocketAddr> = match &server.host {
        Host::Address(address) => vec![(*address, server.port).into()],
        Host::Name(name) => {
            let found = tokio::net::lookup_host((name.as_str(), server.port)).await;
            found.map_err(|_| Away::NoAddress)?.take(ADDRESSES).collect()
        }
    };
    let mut away = Away::NoAddress;
    for address in addresses {
        // The very address that is checked is connected to: a name cannot mean another one in between.
        if let Err(reach) = policy.check(address.ip()) {
            away = Away::Destination(reach);
            continue;
        }
        match timeout(CONNECT_ADDRESS, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                notice_a_dead_peer(&stream);
                return Ok(stream);
            }
            Ok(Err(error)) => away = Away::of_connect(&error),
            Err(_) => away = Away::TimedOut,
        }
    }
    Err(away)
}

/// Where the kernel cannot do this, the end of the watch notices.
fn notice_a_dead_peer(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(IDLE).with_interval(PROBE).with_retries(PROBES);
    let _ = socket.set_tcp_keepalive(&keepalive);
    let _ = socket.set_tcp_user_timeout(Some(IDLE + PROBE * PROBES));
    let _ = socket.set_tcp_nodelay(true);
}

/// All of an answer that is no longer than `most`.
pub(super) async fn whole(mut answer: Incoming, most: usize, named: &'static str) -> Result<Vec<u8>, Away> {
    let read = async {
        let mut octets = Vec::new();
        while let Some(frame) = answer.frame().await {
            let Ok(data) = frame.map_err(|_| Away::Broken)?.into_data() else { continue };
            if octets.len() + data.len() > most {
                return Err(Away::TooMuch(named));
            }
            octets.extend_from_slice(&data);
        }
        Ok(octets)
    };
    timeout(ANSWER, read).await.unwrap_or(Err(Away::TimedOut))
}

/// An answer as lines, as they come.
pub(super) struct Lines {
    answer: Incoming,
    unread: Vec<u8>,
    /// How far there is known to be no line break.
    looked: usize,
    /// How many octets may still come.
    left: usize,
}

/// etcd takes objects of 1.5 MiB.
const LONGEST_LINE: usize = 2 * 1024 * 1024;
/// 5,000 nodes that all report in every five minutes send a third of it in one watch.
const MOST_OF_A_WATCH: usize = 256 * 1024 * 1024;

impl Lines {
    pub(super) fn new(answer: Incoming) -> Self {
        Self { answer, unread: Vec::new(), looked: 0, left: MOST_OF_A_WATCH }
    }

    /// Whether [`Lines::next`] has one without waiting.
    pub(super) fn has_next(&mut self) -> bool {
        self.end().is_some()
    }

    /// `None` once the answer has ended as it should. May be dropped while it waits; nothing is lost.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, Away> {
        loop {
            if let Some(end) = self.end() {
                let rest = self.unread.split_off(end + 1);
                self.looked = 0;
                return Ok(Some(std::mem::replace(&mut self.unread, rest)));
            }
            let Some(frame) = self.answer.frame().await else { return Ok(None) };
            let Ok(data) = frame.map_err(|_| Away::Broken)?.into_data() else { continue };
            self.left = self.left.checked_sub(data.len()).ok_or(Away::TooMuch("256 MiB in one watch"))?;
            if self.unread.len() + data.len() > LONGEST_LINE {
                return Err(Away::TooMuch("2 MiB for one object"));
            }
            self.unread.extend_from_slice(&data);
        }
    }

    fn end(&mut self) -> Option<usize> {
        let found = self.unread[self.looked..].iter().position(|octet| *octet == b'\n');
        if found.is_none() {
            self.looked = self.unread.len();
        }
        found.map(|at| self.looked + at)
    }
}
