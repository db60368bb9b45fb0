//! The way to a member: a connection that rests, or a new one, with the security that the policy asks for.

mod pool;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use model::ObjectName;
use model::inside::{Denied, Place as Where};
use model::routes::{Entry, Member};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::body::{Progress, RequestBody};
use crate::head::{MAX_FIELDS, MAX_HEAD};
use crate::inward::{Inward, Stream};
use crate::listen::prepare;
use crate::metrics::Metrics;
use crate::refusal::Refusal;
use crate::settings::{Limits, Settings};
use pool::{Place, Pool, Streams};
pub(crate) use tls::Trust;
use tls::{Offer, Security};

/// A member with many addresses is not tried at all of them: others wait.
pub(crate) const ADDRESSES: usize = 2;
/// An early answer can come while the rest of its request is still being sent: after this we do not wait for that.
const TAIL: Duration = Duration::from_secs(5);

/// What a request needs of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// HTTP/2 where the member offers it.
    Any,
    /// For another protocol, which HTTP/1 alone can change to.
    Http1,
    /// For gRPC, whose streams and trailers HTTP/1 does not have.
    Http2,
}

/// Whose connections may be used for what: never another tenant's, never another name's, never another cluster's that calls
/// something the same inside.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    place: Where,
    tenant: ObjectName,
    security: Security,
}

/// Of one thread.
pub(crate) struct Upstream {
    pool: Arc<Pool>,
    trust: Arc<Trust>,
    inward: Option<Inward>,
    connect: Duration,
    untaken: Duration,
    limits: Limits,
    metrics: Metrics,
}

enum Sender {
    Http1(http1::SendRequest<RequestBody>),
    /// With its share of the connection, which ends with it.
    Http2(http2::SendRequest<RequestBody>, #[allow(dead_code)] Streams),
}

/// A connection that is being used for one request.
pub(crate) struct Lease {
    sender: Sender,
    key: Key,
    pool: Arc<Pool>,
    is_pooled: bool,
}

/// A request that was not answered.
pub(crate) struct Unsent {
    pub(crate) error: hyper::Error,
    /// Given back where not an octet of it was sent.
    pub(crate) request: Option<Request<RequestBody>>,
}

impl Upstream {
    pub(crate) fn new(settings: &Settings, trust: &Arc<Trust>, metrics: &Metrics) -> Self {
        Self {
            pool: Arc::new(Pool::new(settings)),
            trust: Arc::clone(trust),
            inward: settings.inward.clone(),
            connect: settings.timeouts.connect,
            untaken: settings.timeouts.untaken,
            limits: settings.limits,
            metrics: metrics.clone(),
        }
    }

    /// A connection to the member. One that rests is taken only where `is_fresh` does not forbid it: a request that
    /// failed on one must not meet the next.
    pub(crate) async fn lease(
        &self,
        entry: &Entry,
        member: &Member,
        host: &str,
        need: Need,
        is_fresh: bool,
    ) -> Result<Lease, Refusal> {
        let places = member.places(&entry.policy.upstream);
        let security = if places.is_tls { self.trust.security(&entry.policy, host) } else { Security::Plain };
        let places = places.list;
        let start = fastrand::usize(..places.len().max(1));
        let mut last = Refusal::NoMember;
        for place in places.iter().cycle().skip(start).take(places.len().min(ADDRESSES)) {
            let key = Key { place: place.clone(), tenant: entry.tenant.clone(), security: security.clone() };
            if !is_fresh && let Some(sender) = self.pool.take(&key, need) {
                return Ok(Lease { sender, key, pool: Arc::clone(&self.pool), is_pooled: true });
            }
            match self.open(entry, member, &key, need).await {
                Ok(sender) => return Ok(Lease { sender, key, pool: Arc::clone(&self.pool), is_pooled: false }),
                Err(refusal) => last = refusal,
            }
        }
        Err(last)
    }

    async fn open(&self, entry: &Entry, member: &Member, key: &Key, need: Need) -> Result<Sender, Refusal> {
        let cluster = &member.cluster;
        let place = self.pool.place(key).ok_or_else(|| Refusal::UpstreamBusy { cluster: cluster.clone() })?;
        self.metrics.upstream_connects.inc();
        let place = (place, Counted::new(&self.metrics));
        let unreachable =
            |why: String| Refusal::Unreachable { cluster: cluster.clone(), why: format!("{}: {why}", key.place) };
        let connecting = async {
            let stream = self.reach(member, &key.place).await?;
            let is_plain = key.security == Security::Plain;
            let Some(config) = self.trust.config(&entry.policy, offer(need)).filter(|_| !is_plain) else {
                return self.speak(stream, need == Need::Http2, key, place).await.map_err(unreachable);
            };
            let name = key.security.server_name().and_then(|name| ServerName::try_from(name.to_owned()).ok());
            let name = name.ok_or_else(|| unreachable("no server name".into()))?;
            let untrusted = |error: std::io::Error| Refusal::Untrusted {
                cluster: cluster.clone(),
                why: format!("{}: {error}", key.place),
            };
            let stream = TlsConnector::from(config).connect(name, stream).await.map_err(untrusted)?;
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            if need == Need::Http2 && !is_http2 {
                return Err(Refusal::NoHttp2 { cluster: cluster.clone() });
            }
            self.speak(stream, is_http2, key, place).await.map_err(unreachable)
        };
        timeout(self.connect, connecting).await.unwrap_or_else(|_| Err(late(member, &key.place)))
    }

    /// A connection to a member, before anything is said on it.
    async fn reach(&self, member: &Member, place: &Where) -> Result<Stream, Refusal> {
        let cluster = || member.cluster.clone();
        match place {
            Where::Address(address) => {
                let unreachable =
                    |error| Refusal::Unreachable { cluster: cluster(), why: format!("{address}: {error}") };
                let stream = TcpStream::connect(address).await.map_err(unreachable)?;
                prepare(&stream, self.untaken);
                Ok(Stream::Direct(stream))
            }
            Where::Inside(inner) => {
                let connected = match &self.inward {
                    Some(inward) => inward.connect(inner, self.connect).await,
                    None => Err(Denied::NoTunnel),
                };
                connected.map_err(|source| Refusal::Inward { cluster: cluster(), why: place.to_string(), source })
            }
        }
    }

    /// Whether anything inside a cluster could be reached at all.
    pub(crate) fn has_tunnel(&self) -> bool {
        self.inward.is_some()
    }

    /// A connection of plain text to one of the member's places, without anybody who speaks on it.
    pub(crate) async fn connect(&self, entry: &Entry, member: &Member, place: &Where) -> Result<Plain, Refusal> {
        let key = Key { place: place.clone(), tenant: entry.tenant.clone(), security: Security::Plain };
        let cluster = || member.cluster.clone();
        let room = self.pool.place(&key).ok_or_else(|| Refusal::UpstreamBusy { cluster: cluster() })?;
        self.metrics.upstream_connects.inc();
        let held = (room, Counted::new(&self.metrics));
        let stream = timeout(self.connect, self.reach(member, place)).await;
        let stream = stream.unwrap_or_else(|_| Err(late(member, place)))?;
        Ok(Plain { stream, key: (key.place, key.tenant), _held: held })
    }

    /// The connection is driven by a task of its own, which holds its place until it ends.
    async fn speak<S>(&self, stream: S, is_http2: bool, key: &Key, place: impl Send + 'static) -> Result<Sender, String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = TokioIo::new(stream);
        if is_http2 {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder
                .timer(TokioTimer::new())
                .initial_stream_window_size(self.limits.stream_window)
                .initial_connection_window_size(self.limits.connection_window)
                .max_send_buf_size(64 << 10)
                .max_header_list_size(u32::try_from(MAX_HEAD).unwrap_or(u32::MAX))
                .keep_alive_interval(Duration::from_secs(30))
                .keep_alive_timeout(Duration::from_secs(10));
            let (sender, connection) = builder.handshake(stream).await.map_err(|error| error.to_string())?;
            tokio::spawn(async move {
                let _place = place;
                let _ = connection.await;
            });
            return Ok(Sender::Http2(sender.clone(), self.pool.share(key, sender)));
        }
        let mut builder = http1::Builder::new();
        builder.max_headers(MAX_FIELDS).max_header_size(MAX_HEAD).max_buf_size(MAX_BUFFER);
        let (sender, connection) = builder.handshake(stream).await.map_err(|error| error.to_string())?;
        tokio::spawn(async move {
            let _place = place;
            let _ = connection.with_upgrades().await;
        });
        Ok(Sender::Http1(sender))
    }

    /// Closes what has rested for too long.
    pub(crate) fn sweep(&self) {
        self.pool.sweep();
    }
}

/// There was no connection in time.
fn late(member: &Member, place: &Where) -> Refusal {
    let cluster = member.cluster.clone();
    match place {
        Where::Address(_) => Refusal::Unreachable { cluster, why: format!("{place}: no connection in time") },
        Where::Inside(_) => Refusal::Inward { cluster, why: place.to_string(), source: Denied::TimedOut },
    }
}

/// Of one connection, each way: a slow side is not read ahead of by more.
pub(crate) const MAX_BUFFER: usize = 128 << 10;

fn offer(need: Need) -> Offer {
    match need {
        Need::Any => Offer::Both,
        Need::Http1 => Offer::Http1,
        Need::Http2 => Offer::Http2,
    }
}

impl Lease {
    pub(crate) fn is_http2(&self) -> bool {
        matches!(self.sender, Sender::Http2(..))
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.key.security != Security::Plain
    }

    /// Whether it had rested before.
    pub(crate) fn is_pooled(&self) -> bool {
        self.is_pooled
    }

    pub(crate) async fn send(&mut self, request: Request<RequestBody>) -> Result<Response<Incoming>, Unsent> {
        let sent = match &mut self.sender {
            Sender::Http1(sender) => sender.try_send_request(request).await,
            Sender::Http2(sender, _) => sender.try_send_request(request).await,
        };
        sent.map_err(|mut failed| {
            let request = failed.take_message();
            Unsent { error: failed.into_error(), request }
        })
    }

    /// The response was read to its end. A connection of HTTP/1 rests once its request was sent to the end too; hyper
    /// says so. Where that takes too long, the request is ended, and the connection with it.
    pub(crate) fn give_back(self, request: Option<Arc<Progress>>) {
        if let Sender::Http1(mut sender) = self.sender {
            tokio::spawn(async move {
                match timeout(TAIL, sender.ready()).await {
                    Ok(Ok(())) => self.pool.put(self.key, sender),
                    Ok(Err(_)) => {}
                    Err(_) => request.iter().for_each(|request| request.abandon()),
                }
            });
        }
    }
}

/// A connection of plain text, which holds its place until it ends.
pub(crate) struct Plain {
    pub(crate) stream: Stream,
    /// Where to, and whose: never another tenant's.
    pub(crate) key: (Where, ObjectName),
    _held: (Place, Counted),
}

struct Counted(Metrics);

impl Counted {
    fn new(metrics: &Metrics) -> Self {
        metrics.upstream_open.inc();
        Self(metrics.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.upstream_open.dec();
    }
}
