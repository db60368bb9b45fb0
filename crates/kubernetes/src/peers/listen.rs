//! The leader's door for the other processes of its hub.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use kube::Client;
use server::{BindError, Bound};
use tokio::net::TcpStream;
use tokio::sync::{OnceCell, Semaphore, mpsc, watch};
use tokio::time::{Instant, interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::desk::{AT_ONCE, Call, Desk};
use super::lines::Lines;
use super::refusal::Refusal;
use super::replicas::{Replica, Replicas, Roster};
use super::review::Reviews;
use super::stream::Stream;
use super::{EDGE, Fingerprint, Hears, Identity, MAX_PEERS, Metrics, Peer, ROLE, Role, bearer};
use crate::lease::Term;

const FLAG: &str = "--peers";
/// Beside those that are heard: who is on the way in, or is told no. Above, the next one waits.
const STRANGERS: usize = 64;
/// For TLS, and again for the head of the request.
const WITHIN: Duration = Duration::from_secs(5);
/// A token and some names.
const MAX_HEAD: usize = 16 << 10;
/// When leadership ends, for the last words. A term has more than that left.
const FAREWELL: Duration = Duration::from_millis(500);
/// Long lines that are held at once: 128 MiB at the very most.
const MAX_LONG_LINES: usize = 16;

/// A new leader says nothing of who carries what before the others have said it: what they were told last counts on.
const QUIET: Duration = Duration::from_secs(3);
/// How often it is looked whether that has changed.
const LOOK: Duration = Duration::from_millis(250);
/// As often it is told in any case.
const TELL_AGAIN: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct Settings {
    /// Where Fleetgate is installed: accounts of other namespaces are nobody.
    pub namespace: String,
    /// The names of those that are heard.
    pub accounts: Vec<String>,
    /// Those among them that may take links of agents: they are believed what they carry, and have their certificates signed.
    pub link_accounts: Vec<String>,
}

/// It does not answer yet.
pub struct Listener(Bound);

impl Listener {
    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        Bound::bind(FLAG, address).map(Self)
    }

    /// The address with the port that was given.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

/// Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Door(Arc<Inner>);

pub(super) struct Inner {
    identity: Identity,
    pub(super) reviews: Reviews,
    /// The account that controllers have, ours among them.
    own_account: OnceCell<Option<String>>,
    pub(super) hears: Arc<dyn Hears>,
    pub(super) metrics: Metrics,
    pub(super) long_lines: Semaphore,
    pub(super) questions: Semaphore,
    /// What is answered to others, where there is somebody who can.
    pub(super) desk: Option<Arc<dyn Desk>>,
    link_accounts: Vec<String>,
    roster: Mutex<Roster>,
    /// None before there is something to tell.
    pub(super) replicas: watch::Sender<Option<Arc<Replicas>>>,
    /// There while we lead.
    reign: Mutex<Option<Reign>>,
    heard: Mutex<BTreeMap<Peer, Heard>>,
}

/// One term.
#[derive(Clone)]
struct Reign {
    over: CancellationToken,
    streams: TaskTracker,
}

/// One that is heard.
struct Heard {
    account: Arc<str>,
    from: SocketAddr,
    since: Instant,
    /// Ends its stream.
    replaced: CancellationToken,
}

/// For people.
#[derive(Debug, Clone)]
pub struct PeerView {
    pub peer: Peer,
    pub account: Arc<str>,
    pub from: SocketAddr,
    pub since: Duration,
}

/// The place of one that is heard; given back with the value.
pub(super) struct Seat {
    door: Arc<Inner>,
    pub(super) peer: Peer,
    pub(super) replaced: CancellationToken,
    pub(super) over: CancellationToken,
    /// Whether what agents told it is taken from it.
    pub(super) reports: bool,
    /// Whether it is believed what it carries.
    pub(super) links: bool,
}

impl Door {
    pub fn new(
        settings: Settings,
        identity: Identity,
        client: Client,
        (hears, desk): (Arc<dyn Hears>, Option<Arc<dyn Desk>>),
        metrics: Metrics,
    ) -> Self {
        Self(Arc::new(Inner {
            identity,
            desk,
            questions: Semaphore::new(AT_ONCE),
            link_accounts: settings.link_accounts,
            roster: Mutex::default(),
            replicas: watch::channel(None).0,
            reviews: Reviews::new(client, settings.namespace, settings.accounts),
            own_account: OnceCell::new(),
            hears,
            metrics,
            long_lines: Semaphore::new(MAX_LONG_LINES),
            reign: Mutex::default(),
            heard: Mutex::default(),
        }))
    }

    pub fn fingerprint(&self) -> Fingerprint {
        self.0.identity.fingerprint
    }

    /// Those that are heard now.
    pub fn peers(&self) -> Vec<PeerView> {
        let heard = lock(&self.0.heard);
        let view = |(peer, heard): (&Peer, &Heard)| PeerView {
            peer: peer.clone(),
            account: Arc::clone(&heard.account),
            from: heard.from,
            since: heard.since.elapsed(),
        };
        heard.iter().map(view).collect()
    }

    /// What this process itself carries, while it leads.
    pub fn carry(&self, me: &Peer, replica: Option<Replica>) {
        match replica {
            Some(replica) => self.0.roster().say(me, replica),
            None => self.0.roster().forget(me),
        }
    }

    /// Who carries what, as everybody is told; none while somebody else leads, or nobody has been told yet.
    pub fn replicas(&self) -> watch::Receiver<Option<Arc<Replicas>>> {
        self.0.replicas.subscribe()
    }

    /// Hears others until the term is lost. Returns when all streams have ended: the Lease is not given up before.
    pub async fn lead(&self, term: Term) {
        let reign = Reign { over: CancellationToken::new(), streams: TaskTracker::new() };
        self.0.roster().clear();
        *lock(&self.0.reign) = Some(reign.clone());
        term.lost().run_until_cancelled(self.0.tell_replicas()).await;
        *lock(&self.0.reign) = None;
        self.0.replicas.send_replace(None);
        reign.over.cancel();
        reign.streams.close();
        let _ = timeout(FAREWELL, reign.streams.wait()).await;
    }

    /// Answers until `stop`, within a tokio runtime.
    pub async fn serve(self, listener: Listener, stop: CancellationToken) {
        let Some(listener) = listener.0.listen() else { return };
        let tls = TlsAcceptor::from(Arc::clone(&self.0.identity.tls));
        server::accept(listener, FLAG, MAX_PEERS + STRANGERS, &stop, |stream, from| {
            answer(Arc::clone(&self.0), tls.clone(), stream, from, stop.clone())
        })
        .await;
    }
}

type Answer = Response<Either<Lines, Full<Bytes>>>;

/// One connection.
async fn answer(door: Arc<Inner>, tls: TlsAcceptor, stream: TcpStream, from: SocketAddr, stop: CancellationToken) {
    let handshake = stop.run_until_cancelled(timeout(WITHIN, tls.accept(stream)));
    let Some(Ok(Ok(stream))) = handshake.await else {
        return door.metrics.refused("NoHandshake");
    };
    let service = service_fn(|request| async {
        let answer = door.begin(request, from).await.unwrap_or_else(|no| {
            door.metrics.refused(no.code());
            tracing::info!(peer = %from, code = no.code(), reason = %no, "a process is not heard");
            refuse(no)
        });
        Ok::<_, Infallible>(answer)
    });
    let mut http = server::http(WITHIN);
    http.max_header_size(MAX_HEAD);
    server::converse(&http, stream, service, stop.cancelled()).await;
}

impl Inner {
    /// From a request to a stream that goes on by itself.
    async fn begin(self: &Arc<Self>, request: Request<Incoming>, from: SocketAddr) -> Result<Answer, Refusal> {
        let call = Call::of(&request)?;
        // Before anybody is asked about it.
        let reign = lock(&self.reign).clone().ok_or(Refusal::NotLeading)?;
        if let Some(call) = call {
            return Ok(plain(self.answer(call, request, from).await?));
        }
        let token = bearer::token(request.headers().get(header::AUTHORIZATION)).ok_or(Refusal::NoToken)?.to_owned();
        let account = self.reviews.admit(&token, from.ip()).await?;
        let peer = named(&request).ok_or(Refusal::Unnamed)?;
        let is_controller = self.own_account().await.is_some_and(|own| own == &*account);
        let may = (is_controller, self.may_link(&account).await);
        let place = self.seat(peer, account, from, &reign, may)?;
        let (lines, sent) = mpsc::channel(1);
        let stream = Stream::new(Arc::clone(self), place, (token, from.ip()), lines);
        // The reign may have ended meanwhile; then the stream ends at once.
        reign.streams.spawn(stream.run(request.into_body()));
        let mut answer = Response::new(Either::Left(Lines(sent)));
        answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(answer)
    }

    /// Asked for until it is known: it does not change.
    async fn own_account(&self) -> Option<&str> {
        let known = self.own_account.get_or_try_init(|| self.reviews.own_account()).await;
        known.inspect_err(|error| tracing::warn!(%error, "our own account is not known")).ok()?.as_deref()
    }

    /// Whether an account may take links of agents. Controllers have the authority itself.
    pub(super) async fn may_link(&self, account: &str) -> bool {
        self.link_accounts.iter().any(|link| link == account)
            || self.own_account().await.is_some_and(|own| own == account)
    }

    pub(super) fn roster(&self) -> MutexGuard<'_, Roster> {
        lock(&self.roster)
    }

    /// Never ends by itself.
    async fn tell_replicas(&self) {
        sleep(QUIET).await;
        let mut looks = interval(LOOK);
        let mut told: Option<Instant> = None;
        loop {
            let now = looks.tick().await;
            let mut roster = self.roster();
            if roster.sweep(now) || told.is_none_or(|told| told + TELL_AGAIN <= now) {
                let table = Arc::new(roster.table());
                drop(roster);
                self.replicas.send_replace(Some(table));
                told = Some(now);
            }
        }
    }

    fn seat(
        self: &Arc<Self>,
        peer: Peer,
        account: Arc<str>,
        from: SocketAddr,
        reign: &Reign,
        (reports, links): (bool, bool),
    ) -> Result<Seat, Refusal> {
        let replaced = CancellationToken::new();
        let mut all = lock(&self.heard);
        if all.len() >= MAX_PEERS && !all.contains_key(&peer) {
            return Err(Refusal::TooManyPeers);
        }
        let heard = Heard { account, from, since: Instant::now(), replaced: replaced.clone() };
        match all.insert(peer.clone(), heard) {
            Some(before) => before.replaced.cancel(),
            None => self.metrics.connected(peer.role, 1),
        }
        let (door, over) = (Arc::clone(self), reign.over.clone());
        Ok(Seat { door, peer, replaced, over, reports, links })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut heard = lock(&self.door.heard);
        // Whoever took its place keeps it.
        if self.replaced.is_cancelled() {
            return;
        }
        heard.remove(&self.peer);
        drop(heard);
        self.door.roster().leave(&self.peer, Instant::now());
        self.door.metrics.connected(self.peer.role, -1);
    }
}

fn named(request: &Request<Incoming>) -> Option<Peer> {
    let text = |name: &str| request.headers().get(name)?.to_str().ok();
    Some(Peer { name: text(EDGE)?.parse().ok()?, role: text(ROLE)?.parse::<Role>().ok()? })
}

/// One answer, and the end of the connection.
fn plain(body: Bytes) -> Answer {
    let mut response = Response::new(Either::Right(Full::from(body)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Whoever is refused does not keep its place.
fn refuse(no: Refusal) -> Answer {
    let body = super::wire::no(no.code(), &no.to_string());
    let mut response = plain(body);
    *response.status_mut() = no.status();
    response
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
