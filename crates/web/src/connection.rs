//! One connection of a client's: TLS, the protocol, and then its requests.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use model::{DnsName, ObjectName};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::LazyConfigAcceptor;

use crate::body::ResponseBody;
use crate::decision;
use crate::guard::{Guard, Line, Patience};
use crate::head::{MAX_FIELDS, MAX_HEAD};
use crate::lean::{self, Handed};
use crate::listen::{DoorKind, Place, Worker};
use crate::metrics::Protocol;
use crate::openings::Opening;
use crate::prefixed::Prefixed;
use crate::refusal::Refusal;
use crate::request;
use crate::settings::{Outer, Timeouts};
use crate::upstream::MAX_BUFFER;

/// The longest that the PROXY protocol's second version is read up to, in our other doors too.
const MAX_OUTER: usize = 2 << 10;
/// What clients of HTTP/2 begin with (RFC 9113 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A fatal alert, `unrecognized_name` (RFC 8446 6.2), before any version was agreed upon.
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// What the requests of a connection have in common.
pub(crate) struct Link {
    pub(crate) door: DoorKind,
    /// Who is at the other end of the socket, or whom a trusted proxy there names.
    pub(crate) client: SocketAddr,
    /// Whether its word about others counts.
    pub(crate) is_trusted: bool,
    /// Whose certificate was shown.
    pub(crate) tenant: Option<ObjectName>,
    pub(crate) protocol: Protocol,
    /// Of HTTP/1 alone.
    pub(crate) line: Option<Arc<Line>>,
    /// Requests that are being answered.
    pub(crate) active: AtomicUsize,
    /// All that there were.
    pub(crate) requests: AtomicU64,
    /// Held by every request and tunnel, until the last is over.
    place: Arc<Place>,
    /// Left with the first request.
    opening: Mutex<Option<Opening>>,
    /// Since when responses wait for the client to take more of them.
    untaken: Mutex<HashMap<u64, Instant>>,
}

impl Link {
    /// The same connection, whose requests are read by another.
    fn with_line(&self, line: Arc<Line>) -> Self {
        Self {
            door: self.door,
            client: self.client,
            is_trusted: self.is_trusted,
            tenant: self.tenant.clone(),
            protocol: self.protocol,
            line: Some(line),
            active: AtomicUsize::new(0),
            requests: AtomicU64::new(0),
            place: Arc::clone(&self.place),
            opening: Mutex::new(self.opening.lock().unwrap_or_else(PoisonError::into_inner).take()),
            untaken: Mutex::default(),
        }
    }

    /// A request is about to be answered; with a refusal, if it stands for one.
    pub(crate) fn begin(&self) -> Option<Refusal> {
        drop(self.opening.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.line.as_ref().and_then(|line| line.begin())
    }

    pub(crate) fn ended(&self) {
        if let Some(line) = &self.line {
            line.end();
        }
    }

    /// Whether another protocol was granted.
    pub(crate) fn decide(&self, granted: bool) {
        if let Some(line) = &self.line {
            line.decide(granted);
        }
    }

    /// A piece of a response waits for the client, or does not any more. HTTP/1 has the kernel watch that.
    pub(crate) fn hand(&self, response: u64, is_waiting: bool) {
        if self.protocol == Protocol::Http2 {
            let mut untaken = self.untaken.lock().unwrap_or_else(PoisonError::into_inner);
            // As many as there are streams.
            if is_waiting {
                untaken.insert(response, Instant::now());
            } else {
                untaken.remove(&response);
            }
        }
    }

    fn oldest_untaken(&self) -> Option<Instant> {
        self.untaken.lock().unwrap_or_else(PoisonError::into_inner).values().min().copied()
    }

    fn has_begun(&self) -> bool {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

/// What a connection is made of before anything was said.
pub(crate) struct Arrival {
    pub(crate) door: DoorKind,
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    /// What was read already, by somebody who knows who the client is.
    pub(crate) begun: Option<(Vec<u8>, SocketAddr)>,
    pub(crate) opening: Opening,
    pub(crate) place: Place,
}

pub(crate) async fn serve(worker: Arc<Worker>, arrival: Arrival) {
    let until = Instant::now() + worker.settings.timeouts.opening;
    let door = arrival.door;
    if let Err(refusal) = open(&worker, arrival, until).await {
        refused(&worker, door, &refusal);
    }
}

pub(crate) fn refused(worker: &Worker, door: DoorKind, refusal: &Refusal) {
    worker.metrics_of(door).refused(refusal);
    tracing::debug!(%door, code = refusal.code(), blame = refusal.blame().as_str(), reason = %refusal, "connection refused");
}

async fn open(worker: &Arc<Worker>, arrival: Arrival, until: Instant) -> Result<(), Refusal> {
    let Arrival { door, mut stream, peer, begun, opening, place } = arrival;
    let (received, client) = if let Some((received, client)) = begun {
        (BytesMut::from(&received[..]), client)
    } else {
        let mut received = BytesMut::with_capacity(1024);
        let client = outer_header(worker, peer, &mut stream, &mut received, until).await?;
        (received, client)
    };
    let link = Link {
        door,
        client,
        // One that names its client by such a header does not see what that client says in its own.
        is_trusted: worker.is_trusted(client.ip()),
        tenant: None,
        protocol: Protocol::Http1,
        line: None,
        active: AtomicUsize::new(0),
        requests: AtomicU64::new(0),
        place: Arc::new(place),
        opening: Mutex::new(Some(opening)),
        untaken: Mutex::default(),
    };
    // Boxed, here and below: what a connection does not become takes up no room in it.
    match door {
        DoorKind::Http => Box::pin(plain(worker, stream, received, link, until)).await,
        DoorKind::Https => Box::pin(secure(worker, stream, received, link, until)).await,
    }
}

/// Who the client is: the peer, unless that is a trusted proxy, which has to say so first.
async fn outer_header(
    worker: &Worker,
    peer: SocketAddr,
    stream: &mut TcpStream,
    received: &mut BytesMut,
    until: Instant,
) -> Result<SocketAddr, Refusal> {
    let Some(read) = worker.settings.outer_header.filter(|_| worker.is_trusted(peer.ip())) else { return Ok(peer) };
    while received.len() < MAX_OUTER {
        if !receive(stream, received, until).await? {
            return Err(Refusal::BadOuterHeader);
        }
        match read(received) {
            Outer::Incomplete => {}
            Outer::Malformed => return Err(Refusal::BadOuterHeader),
            Outer::Complete { client, length } => {
                received.advance(length.min(received.len()));
                return Ok(client.unwrap_or(peer));
            }
        }
    }
    Err(Refusal::BadOuterHeader)
}

/// Whether more came, rather than the end.
async fn receive(stream: &mut TcpStream, received: &mut BytesMut, until: Instant) -> Result<bool, Refusal> {
    let count = timeout_at(until, stream.read_buf(received)).await.map_err(|_| Refusal::OpeningTimeout)?;
    Ok(count.unwrap_or(0) > 0)
}

async fn plain(
    worker: &Arc<Worker>,
    mut stream: TcpStream,
    mut received: BytesMut,
    mut link: Link,
    until: Instant,
) -> Result<(), Refusal> {
    while received.len() < PREFACE.len() && PREFACE.starts_with(&received) {
        if !receive(&mut stream, &mut received, until).await? {
            return Ok(());
        }
    }
    if received.starts_with(PREFACE) {
        link.protocol = Protocol::Http2;
        return Box::pin(speak_http2(worker, Prefixed::new(received.freeze(), stream), link, until)).await;
    }
    speak_http1(worker, stream, received, link, until).await;
    Ok(())
}

async fn secure(
    worker: &Arc<Worker>,
    stream: TcpStream,
    received: BytesMut,
    mut link: Link,
    until: Instant,
) -> Result<(), Refusal> {
    let stream = Prefixed::new(received.freeze(), stream);
    let acceptor = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream);
    let hello = match timeout_at(until, acceptor).await {
        Err(_) => return Err(Refusal::OpeningTimeout),
        Ok(Err(_)) => return Err(Refusal::HandshakeFailed),
        Ok(Ok(hello)) => hello,
    };
    let name = hello.client_hello().server_name().and_then(|name| DnsName::parse(name).ok());
    let secured = {
        let table = worker.table.load();
        let secured = decision::secure(&table, &worker.certificates, name.as_ref());
        secured.map(|(host, config)| (host.tenant.clone(), config))
    };
    let (tenant, config) = match secured {
        Ok(secured) => secured,
        Err(refusal) => {
            let mut stream = hello.io;
            let _ = timeout_at(until, stream.write_all(&UNRECOGNIZED_NAME)).await;
            let _ = stream.shutdown().await;
            return Err(refusal);
        }
    };
    link.tenant = Some(tenant);
    let stream = match timeout_at(until, hello.into_stream(config)).await {
        Err(_) => return Err(Refusal::OpeningTimeout),
        Ok(Err(_)) => return Err(Refusal::HandshakeFailed),
        Ok(Ok(stream)) => stream,
    };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        link.protocol = Protocol::Http2;
        return Box::pin(speak_http2(worker, stream, link, until)).await;
    }
    Box::pin(speak_http1(worker, stream, BytesMut::new(), link, until)).await;
    Ok(())
}

async fn speak_http1<S>(worker: &Arc<Worker>, stream: S, received: BytesMut, link: Link, until: Instant)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let link = Arc::new(link);
    let handed = if worker.settings.is_lean {
        lean::serve(worker, &link, stream, received, until).await
    } else {
        Some(Handed { stream, received, until, refusal: None })
    };
    let Some(handed) = handed else { return };
    if worker.settings.is_lean {
        worker.metrics_of(link.door).handovers.inc();
    }
    Box::pin(speak_with_hyper(worker, &link, handed)).await;
}

async fn speak_with_hyper<S>(worker: &Arc<Worker>, link: &Link, handed: Handed<S>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Handed { stream, received, until, refusal } = handed;
    let said = Arc::new(Line::refusing(refusal));
    let timeouts = &worker.settings.timeouts;
    let patience = Patience { opening: until, head: timeouts.head, idle: timeouts.idle };
    let guard = Guard::new(stream, received, patience, Arc::clone(&said));
    let link = Arc::new(link.with_line(said));
    let mut http = http1::Builder::new();
    // The guard has read every head by then, and keeps the time.
    http.timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_headers(MAX_FIELDS)
        .max_buf_size(MAX_BUFFER.max(2 * MAX_HEAD));
    let service = service_fn(|request| answer(worker, &link, request));
    let mut connection = pin!(http.serve_connection(TokioIo::new(guard), service).with_upgrades());
    tokio::select! {
        _ = connection.as_mut() => return,
        () = worker.drain.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

async fn speak_http2<S>(worker: &Arc<Worker>, stream: S, link: Link, until: Instant) -> Result<(), Refusal>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let link = Arc::new(link);
    let limits = &worker.settings.limits;
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_pending_accept_reset_streams(limits.resets)
        .max_local_error_reset_streams(limits.resets)
        .initial_stream_window_size(limits.stream_window)
        .initial_connection_window_size(limits.connection_window)
        .max_send_buf_size(64 << 10)
        .max_header_list_size(u32::try_from(MAX_HEAD).unwrap_or(u32::MAX))
        // A client that is gone without a word is noticed.
        .keep_alive_interval(Duration::from_mins(1))
        .keep_alive_timeout(Duration::from_secs(20));
    let service = {
        let (worker, link) = (Arc::clone(worker), Arc::clone(&link));
        service_fn(move |request| {
            let (worker, link) = (Arc::clone(&worker), Arc::clone(&link));
            async move { answer(&worker, &link, request).await }
        })
    };
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let watching = watch(&link, &worker.settings.timeouts, until);
    tokio::pin!(watching);
    let over = tokio::select! {
        _ = connection.as_mut() => return Ok(()),
        () = worker.drain.cancelled() => None,
        over = &mut watching => Some(over),
    };
    connection.as_mut().graceful_shutdown();
    match over {
        // It was told; there is nothing left to wait for.
        Some(Over::Unopened | Over::Untaken) => {
            let _ = tokio::time::timeout(FAREWELL, connection).await;
        }
        Some(Over::Idle) | None => _ = connection.await,
    }
    match over {
        Some(Over::Unopened) => Err(Refusal::OpeningTimeout),
        Some(Over::Untaken) => Err(Refusal::Untaken),
        Some(Over::Idle) | None => Ok(()),
    }
}

/// How long the last words of a connection may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// Why a connection of HTTP/2 has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    /// Nothing was ever asked.
    Unopened,
    /// Nothing has been asked for a while.
    Idle,
    /// A response has been waiting for the client to take it.
    Untaken,
}

async fn watch(link: &Link, timeouts: &Timeouts, until: Instant) -> Over {
    tokio::time::sleep_until(until).await;
    if !link.has_begun() {
        return Over::Unopened;
    }
    // Twice in a row, so that it was at rest for at least that long, unless it is asked just between.
    let mut was_idle = false;
    loop {
        tokio::time::sleep(timeouts.idle / 2).await;
        if link.oldest_untaken().is_some_and(|since| since.elapsed() >= timeouts.untaken) {
            return Over::Untaken;
        }
        let is_idle = link.active.load(Ordering::Relaxed) == 0;
        if is_idle && was_idle {
            return Over::Idle;
        }
        was_idle = is_idle;
    }
}

fn answer(
    worker: &Arc<Worker>,
    link: &Arc<Link>,
    request: Request<Incoming>,
) -> Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Infallible>> + Send>> {
    let (worker, link) = (Arc::clone(worker), Arc::clone(link));
    Box::pin(async move { Ok(request::answer(worker, link, request).await) })
}
