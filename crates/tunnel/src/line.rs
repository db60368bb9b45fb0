//! One link from the hub's end: the client of HTTP/2.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{self, SendRequest};
use h2::ext::Protocol;
use h2::{Reason, RecvStream, SendStream};
use http::{Method, Request, Response, Uri};
use model::ClusterName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, interval, timeout, timeout_at};

use crate::alive::{Heard, Watched, until_silent};
use crate::capsule::{self, Capsules};
use crate::metrics::Metrics;
use crate::refused::Refused;
use crate::stream::{Place, Stream, Streams};
use crate::target::{Host, Target};
use crate::wire::{
    CAPSULES, CLUSTER, Greeting, HELLO, Hello, LINK_WINDOW, MAX_FRAME, MAX_HEAD, REFUSAL, SEND_BUFFER, STREAM_WINDOW,
    UDP, WITHIN, read_text,
};

/// The first frames of HTTP/2, and a greeting.
const OPENING: Duration = Duration::from_secs(10);
/// How often streams that nobody reads are looked for.
const LOOK: Duration = Duration::from_millis(250);
/// The agent is given a little less than the asker waits, so that its reason arrives.
const MARGIN: Duration = Duration::from_millis(100);

/// Streams begin here.
#[derive(Debug)]
pub struct Line {
    sender: SendRequest<Bytes>,
    streams: Arc<Streams>,
    heard: Arc<Heard>,
    /// Once it takes no more streams: those that there are may go on.
    over: AtomicBool,
}

/// What keeps a line going.
pub struct Driver<S> {
    connection: client::Connection<Watched<S>, Bytes>,
    line: Arc<Line>,
}

impl Line {
    /// Does nothing by itself: [`Driver::run`] has to be polled.
    pub async fn open<S>(io: S, metrics: &Metrics) -> Result<(Arc<Self>, Driver<S>), Refused>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let heard = Heard::new();
        let handshake = client::Builder::new()
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(LINK_WINDOW)
            .max_frame_size(MAX_FRAME)
            .max_header_list_size(MAX_HEAD)
            .max_send_buffer_size(SEND_BUFFER)
            .enable_push(false)
            .handshake(Watched::new(io, Arc::clone(&heard)));
        let opened = timeout(OPENING, handshake).await.map_err(|_| Refused::TimedOut)?;
        let (sender, connection) = opened.map_err(|error| lost(&error))?;
        let line = Arc::new(Self { sender, streams: Streams::new(metrics), heard, over: AtomicBool::new(false) });
        Ok((Arc::clone(&line), Driver { connection, line }))
    }

    /// Streams that are open or asked for.
    pub fn busy(&self) -> usize {
        self.streams.busy()
    }

    /// Whether the other end has not answered for a while.
    pub fn is_suspect(&self) -> bool {
        self.heard.is_suspect()
    }

    /// Returns once the other end has not answered for a while.
    pub async fn until_suspect(&self) {
        self.heard.until_suspect().await;
    }

    /// Whether it takes no more streams.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// `cluster` is said between replicas alone: a link of an agent's has its own.
    pub async fn connect(
        &self,
        cluster: Option<&ClusterName>,
        target: &Target,
        within: Duration,
    ) -> Result<Stream, Refused> {
        let place = self.streams.place().ok_or(Refused::TooMany)?;
        let uri = Uri::builder().authority(target.to_string()).build().map_err(unsayable)?;
        let request = asking(Request::builder().method(Method::CONNECT).uri(uri), cluster, within);
        let asked = async {
            let (send, response) = self.send(request.body(()).map_err(unsayable)?, None).await?;
            Ok((send, accepted(response).await?))
        };
        let (send, receive) = timeout(within, asked).await.map_err(|_| Refused::TimedOut)??;
        Ok(Stream::new(place, send, receive))
    }

    /// One datagram, and the one that comes back.
    pub async fn exchange(
        &self,
        cluster: Option<&ClusterName>,
        target: &Target,
        datagram: &[u8],
        within: Duration,
    ) -> Result<Bytes, Refused> {
        let _place: Place = self.streams.place().ok_or(Refused::TooMany)?;
        // RFC 9298 3.4: the colons of an address would be something else in a path.
        let host = match &target.host {
            Host::Address(address) => address.to_string().replace(':', "%3A"),
            Host::Name(name) => name.to_string(),
        };
        let path = format!("{UDP}{host}/{}/", target.port);
        let uri = Uri::builder().scheme("https").authority("agent").path_and_query(path);
        let request =
            asking(Request::builder().method(Method::CONNECT).uri(uri.build().map_err(unsayable)?), cluster, within);
        let request = request.extension(Protocol::from_static("connect-udp")).header(CAPSULES, "?1");
        let request = request.body(()).map_err(unsayable)?;
        let asked = async {
            let (_send, response) = self.send(request, Some(capsule::of(datagram))).await?;
            let mut receive = accepted(response).await?;
            let mut capsules = Capsules::default();
            while let Some(piece) = receive.data().await {
                let piece = piece.map_err(|error| lost(&error))?;
                let _ = receive.flow_control().release_capacity(piece.len());
                capsules.push(&piece);
                let datagram = capsules.take().map_err(|error| Refused::Garbled(error.to_string()))?;
                if let Some(datagram) = datagram {
                    return Ok(datagram);
                }
            }
            Err(Refused::Garbled("it ended without a datagram".into()))
        };
        timeout(within, asked).await.map_err(|_| Refused::TimedOut)?
    }

    /// Who we are; who is there.
    pub async fn hello(&self, hello: &Hello) -> Result<Greeting, Refused> {
        let body = serde_json::to_vec(hello).map_err(unsayable)?;
        let uri = Uri::builder().scheme("https").authority("agent").path_and_query(HELLO).build().map_err(unsayable)?;
        let request = Request::builder().method(Method::POST).uri(uri).body(()).map_err(unsayable)?;
        let asked = async {
            let (_send, response) = self.send(request, Some(body.into())).await?;
            let mut receive = accepted(response).await?;
            let text = read_text(&mut receive).await.map_err(|error| lost(&error))?;
            serde_json::from_slice(&text).map_err(|_| Refused::Garbled("its greeting is no greeting".into()))
        };
        timeout(OPENING, asked).await.map_err(|_| Refused::TimedOut)?
    }

    /// With all that there is to say, or with nothing yet.
    async fn send(
        &self,
        request: Request<()>,
        whole: Option<Bytes>,
    ) -> Result<(SendStream<Bytes>, Response<RecvStream>), Refused> {
        let ready = self.sender.clone().ready().await;
        let mut sender = ready.map_err(|error| {
            self.over.store(true, Ordering::Relaxed);
            lost(&error)
        })?;
        let (response, mut send) = sender.send_request(request, false).map_err(|error| lost(&error))?;
        if let Some(whole) = whole {
            send.send_data(whole, true).map_err(|error| lost(&error))?;
        }
        Ok((send, response.await.map_err(|error| lost(&error))?))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Driver<S> {
    /// Until the connection ends, the other end is silent for too long, or `ends`; returns which. `links` says how many there
    /// are in the process.
    pub async fn run(self, ends: impl Future<Output = ()>, links: impl Fn() -> usize) -> &'static str {
        let Self { mut connection, line } = self;
        let pings = connection.ping_pong();
        let silent = async {
            match pings {
                Some(pings) => until_silent(pings, &line.heard).await,
                None => std::future::pending().await,
            }
        };
        let looking = async {
            let mut ticks = interval(LOOK);
            loop {
                ticks.tick().await;
                line.streams.relieve(links());
            }
        };
        tokio::select! {
            biased;
            ended = &mut connection => if ended.is_ok() { "Closed" } else { "Broken" },
            () = ends => "Ended",
            () = silent => "Silent",
            () = looking => "Ended",
        }
    }
}

fn asking(request: http::request::Builder, cluster: Option<&ClusterName>, within: Duration) -> http::request::Builder {
    let millis = within.saturating_sub(MARGIN.min(within / 10)).as_millis().max(1);
    let request = request.header(WITHIN, millis.to_string());
    match cluster {
        Some(cluster) => request.header(CLUSTER, cluster.as_str()),
        None => request,
    }
}

/// What follows a yes; or the no.
async fn accepted(response: Response<RecvStream>) -> Result<RecvStream, Refused> {
    let (head, mut body) = response.into_parts();
    if head.status.is_success() {
        return Ok(body);
    }
    let code = head.headers.get(REFUSAL).and_then(|code| code.to_str().ok());
    // A reason that does not come is not worth waiting for.
    let reason = timeout_at(Instant::now() + MARGIN, read_text(&mut body)).await;
    let reason = reason.ok().and_then(Result::ok).unwrap_or_default();
    Err(Refused::heard(head.status.as_u16(), code, &String::from_utf8_lossy(&reason)))
}

/// What ended a stream before there was an answer.
fn lost(error: &h2::Error) -> Refused {
    match error.reason() {
        Some(Reason::CONNECT_ERROR) if error.is_reset() => Refused::Unreachable("the connection was broken off".into()),
        _ => Refused::LinkLost,
    }
}

/// A target is strict, so that it fits.
fn unsayable(error: impl std::fmt::Display) -> Refused {
    Refused::Malformed(error.to_string())
}
