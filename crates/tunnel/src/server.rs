//! * One link from the agent's end: the server of HTTP/2. What is asked for is done by an [`Inside`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::server::{self, SendResponse};
use h2::{Reason, RecvStream, ext::Protocol};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use model::ClusterName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{interval, timeout};

use crate::alive::{Heard, Watched, until_silent};
use crate::capsule::{self, Capsules};
use crate::carry::carry;
use crate::metrics::Metrics;
use crate::refused::Refused;
use crate::stream::{Place, Stream, Streams};
use crate::target::{Host, Target};
use crate::wire::{
    CAPSULES, CLUSTER, DIAL_WITHIN, Greeting, HELLO, Hello, LINK_WINDOW, MAX_FRAME, MAX_HEAD, MAX_STREAMS, REFUSAL,
    SEND_BUFFER, STREAM_WINDOW, UDP, WITHIN, read_text,
};

/// The first frames of HTTP/2.
const OPENING: Duration = Duration::from_secs(10);
/// How often streams that nobody reads are looked for.
const LOOK: Duration = Duration::from_millis(250);
/// No asker waits longer.
const LONGEST: Duration = Duration::from_mins(1);
/// Streams that the hub gives up before we have looked at them: all that it may have. More is no hub's doing.
const MAX_GIVEN_UP: usize = 4096;

/// Who does what is asked for.
pub trait Inside: Send + Sync + 'static {
    type Socket: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// A connection to the target; it has to come within the time that is asked for.
    fn dial(&self, asked: &Asked) -> impl Future<Output = Result<Self::Socket, Refused>> + Send;
    /// A datagram to the target, and what comes back.
    fn exchange(&self, asked: &Asked, datagram: Bytes) -> impl Future<Output = Result<Bytes, Refused>> + Send;
    /// Who we are, to who says who it is.
    fn hello(&self, hello: Hello) -> Greeting;
    /// The connection is given up, not closed: where it is TCP, its other end should see that.
    fn abort(&self, _socket: &Self::Socket) {}
}

/// What somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub target: Target,
    /// Said between replicas alone.
    pub cluster: Option<ClusterName>,
    pub within: Duration,
}

/// Until the connection ends, the other end is silent for too long, or `ends`; returns which. From `drain` on no more streams
/// are taken, and it ends with the last one.
pub async fn serve<S, I>(
    io: S,
    inside: Arc<I>,
    metrics: &Metrics,
    drain: impl Future<Output = ()>,
    ends: impl Future<Output = ()>,
) -> &'static str
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    I: Inside,
{
    let heard = Heard::new();
    let handshake = server::Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(LINK_WINDOW)
        .max_frame_size(MAX_FRAME)
        .max_header_list_size(MAX_HEAD)
        .max_send_buffer_size(SEND_BUFFER)
        .max_concurrent_streams(MAX_STREAMS)
        .max_pending_accept_reset_streams(MAX_GIVEN_UP)
        .enable_connect_protocol()
        .handshake::<_, Bytes>(Watched::new(io, Arc::clone(&heard)));
    let Ok(Ok(mut connection)) = timeout(OPENING, handshake).await else { return "Unopened" };
    let streams = Streams::new(metrics);
    let pings = connection.ping_pong();
    let silent = async {
        match pings {
            Some(pings) => until_silent(pings, &heard).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(silent, ends);
    let mut drain = std::pin::pin!(drain);
    let mut draining = false;
    let mut looks = interval(LOOK);
    metrics.links.inc();
    let _counted = Counted(metrics);
    loop {
        tokio::select! {
            biased;
            accepted = connection.accept() => match accepted {
                Some(Ok((request, respond))) => begin(&inside, &streams, metrics, request, respond),
                Some(Err(_)) => return "Broken",
                None => return "Closed",
            },
            () = &mut ends => return "Ended",
            () = &mut silent => return "Silent",
            () = &mut drain, if !draining => {
                draining = true;
                connection.graceful_shutdown();
            }
            _ = looks.tick() => streams.relieve(usize::try_from(metrics.links.get()).unwrap_or(1)),
        }
    }
}

struct Counted<'a>(&'a Metrics);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.links.dec();
    }
}

/// One stream, in a task of its own: as many as there are places.
fn begin<I: Inside>(
    inside: &Arc<I>,
    streams: &Arc<Streams>,
    metrics: &Metrics,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) {
    let Some(place) = streams.place() else { return respond.send_reset(Reason::REFUSED_STREAM) };
    let (inside, metrics) = (Arc::clone(inside), metrics.clone());
    tokio::spawn(async move { answer(&*inside, place, &metrics, request, respond).await });
}

async fn answer<I: Inside>(
    inside: &I,
    place: Place,
    metrics: &Metrics,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) {
    let (head, mut body) = request.into_parts();
    let protocol = head.extensions.get::<Protocol>().map(Protocol::as_str);
    match (&head.method, protocol, head.uri.path()) {
        (&Method::CONNECT, None, _) => {
            let target = head.uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
            let target = target.parse().map_err(|error: crate::TargetError| Refused::Malformed(error.to_string()));
            let dialled = match target.and_then(|target| asked(target, &head.headers)) {
                // Who gave it up waits for nothing any more.
                Ok(asked) => tokio::select! {
                    biased;
                    _ = std::future::poll_fn(|context| respond.poll_reset(context)) => return,
                    dialled = dial(inside, &asked) => dialled,
                },
                Err(refused) => Err(refused),
            };
            metrics.dialled("tcp", &dialled);
            match dialled {
                Ok(socket) => serve_stream(inside, place, socket, body, respond).await,
                Err(refused) => refuse(&mut respond, &refused),
            }
        }
        (&Method::CONNECT, Some("connect-udp"), path) => {
            let answered = match udp_target(path).and_then(|target| asked(target, &head.headers)) {
                Ok(asked) => tokio::select! {
                    biased;
                    _ = std::future::poll_fn(|context| respond.poll_reset(context)) => return,
                    answered = exchange(inside, &asked, &mut body) => answered,
                },
                Err(refused) => Err(refused),
            };
            metrics.dialled("udp", &answered);
            match answered {
                Ok(datagram) => {
                    let head = Response::builder().status(StatusCode::OK).header(CAPSULES, "?1");
                    say(&mut respond, head, capsule::of(&datagram));
                }
                Err(refused) => refuse(&mut respond, &refused),
            }
        }
        (&Method::POST, None, HELLO) => {
            let Ok(Ok(text)) = timeout(OPENING, read_text(&mut body)).await else { return };
            match serde_json::from_slice(&text) {
                Ok(hello) => {
                    let greeting = serde_json::to_vec(&inside.hello(hello)).unwrap_or_default();
                    say(&mut respond, Response::builder().status(StatusCode::OK), greeting.into());
                }
                Err(_) => refuse(&mut respond, &Refused::Malformed("it is no hello".into())),
            }
        }
        _ => say(&mut respond, Response::builder().status(StatusCode::NOT_FOUND), Bytes::new()),
    }
}

async fn dial<I: Inside>(inside: &I, asked: &Asked) -> Result<I::Socket, Refused> {
    timeout(asked.within, inside.dial(asked)).await.map_err(|_| Refused::TimedOut)?
}

async fn serve_stream<I: Inside>(
    inside: &I,
    place: Place,
    mut socket: I::Socket,
    body: RecvStream,
    mut respond: SendResponse<Bytes>,
) {
    let head = Response::new(());
    let Ok(send) = respond.send_response(head, false) else { return inside.abort(&socket) };
    let stream = Stream::new(place, send, body);
    if carry(&stream, &mut socket).await.is_err() {
        inside.abort(&socket);
    }
}

/// The datagram comes with the question, and the answer ends it: so each has a status of its own.
async fn exchange<I: Inside>(inside: &I, asked: &Asked, body: &mut RecvStream) -> Result<Bytes, Refused> {
    let exchanged = async {
        let mut capsules = Capsules::default();
        loop {
            let datagram = capsules.take().map_err(|error| Refused::Malformed(error.to_string()))?;
            if let Some(datagram) = datagram {
                return inside.exchange(asked, datagram).await;
            }
            match body.data().await {
                Some(Ok(piece)) => {
                    let _ = body.flow_control().release_capacity(piece.len());
                    capsules.push(&piece);
                }
                Some(Err(_)) => return Err(Refused::LinkLost),
                None => return Err(Refused::Malformed("there is no datagram".into())),
            }
        }
    };
    timeout(asked.within, exchanged).await.map_err(|_| Refused::TimedOut)?
}

fn asked(target: Target, headers: &HeaderMap) -> Result<Asked, Refused> {
    let text = |name| headers.get(name).map(|value: &http::HeaderValue| value.to_str().unwrap_or_default());
    let within = match text(WITHIN).map(str::parse).transpose() {
        Ok(millis) => millis.map_or(DIAL_WITHIN, Duration::from_millis).min(LONGEST),
        Err(_) => return Err(Refused::Malformed(format!("{WITHIN} is no number of milliseconds"))),
    };
    let cluster = text(CLUSTER).map(str::parse).transpose();
    let cluster = cluster.map_err(|_| Refused::Malformed(format!("{CLUSTER} is no cluster's name")))?;
    Ok(Asked { target, cluster, within })
}

/// RFC 9298 3: `HOST/PORT/`, in which the colons of an address are escaped.
fn udp_target(path: &str) -> Result<Target, Refused> {
    let parse = || {
        let (host, port) = path.strip_prefix(UDP)?.strip_suffix('/')?.split_once('/')?;
        let host = host.replace("%3A", ":").replace("%3a", ":");
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let target: Target = format!("{}:{port}", Host::parse(&host).ok()?).parse().ok()?;
        Some(target)
    };
    parse().ok_or_else(|| Refused::Malformed("the path names no target".into()))
}

fn refuse(respond: &mut SendResponse<Bytes>, refused: &Refused) {
    let status = StatusCode::from_u16(refused.status()).unwrap_or(StatusCode::BAD_GATEWAY);
    let head = Response::builder().status(status).header(REFUSAL, refused.code());
    say(respond, head, Bytes::copy_from_slice(refused.detail().as_bytes()));
}

/// All of it. Whoever asked may be gone.
fn say(respond: &mut SendResponse<Bytes>, head: http::response::Builder, body: Bytes) {
    let Ok(head) = head.body(()) else { return };
    if let Ok(mut send) = respond.send_response(head, body.is_empty())
        && !body.is_empty()
    {
        let _ = send.send_data(body, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_datagram_names_its_target() {
        for (path, expected) in [
            ("/.well-known/masque/udp/10.10.10.10/53/", Some("10.10.10.10:53")),
            ("/.well-known/masque/udp/2001%3Adb8%3A%3a1/53/", Some("[2001:db8::1]:53")),
            ("/.well-known/masque/udp/kube-dns.kube-system.svc/53/", Some("kube-dns.kube-system.svc:53")),
            ("/.well-known/masque/udp/10.10.10.10/53", None),
            ("/.well-known/masque/udp/10.10.10.10/53/x/", None),
            ("/.well-known/masque/udp//53/", None),
            ("/.well-known/masque/udp/10.10.10.10:1/53/", None),
            ("/x", None),
        ] {
            let target = udp_target(path).ok().map(|target| target.to_string());
            assert_eq!(target.as_deref(), expected, "{path}");
        }
    }
}
