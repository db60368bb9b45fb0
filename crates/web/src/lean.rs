//! The short way: HTTP/1.1 requests of the usual kind, from a client's socket to a member's and back, without hyper in
//! between. This file holds all the branching; it reads from top to bottom.
//!
//! Whatever is not usual is handed on to hyper's path with the octets as they came, before anything was sent to the client:
//! heads and hosts that [`request::read`] does not take, and routes that do not simply forward. So are refusals, for that path to
//! tell them.

mod io;
mod pool;
pub mod request;
pub mod response;
mod sites;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use http::{Method, StatusCode};
use model::ingress::UpstreamTls;
use model::routes::Member;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time::Instant;
use tokio_util::sync::WaitForCancellationFuture;

use crate::choice::{Choice, InFlight, Outlook, Visitor, choose, places};
use crate::connection::Link;
use crate::decision;
use crate::exchange::Exchange;
use crate::head::{self, MAX_HEAD};
use crate::listen::{DoorKind, Worker};
use crate::refusal::Refusal;
use crate::request::RETRIES;
use crate::settings::Settings;
use crate::upstream::{ADDRESSES, Plain};
use io::{Clock, give_buffer, poll_receive, take_buffer};
use pool::Pool;
use request::{Read, Told};
use response::Body;
use sites::{Found, Sites};

/// Pieces in which a request may come: who needs more has a slow line, or means no good.
const MAX_PIECES: usize = 8;
/// What a client may send ahead while it is being answered.
const MAX_AHEAD: usize = MAX_HEAD;
/// Words before an answer; more than a few say nothing.
const MAX_INTERIM: usize = 8;

/// What a thread has for all of its connections.
pub(crate) struct Lean {
    sites: Sites,
    pool: Pool,
}

impl Lean {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self { sites: Sites::default(), pool: Pool::new(settings.timeouts.pooled) }
    }

    /// Closes what has rested for too long.
    pub(crate) fn sweep(&self) {
        self.pool.sweep();
    }

    /// A connection to the member, and whether it had rested before, which `is_fresh` forbids: a request that failed on one must
    /// not meet the next.
    async fn lease(
        &self,
        worker: &Worker,
        asked: &Asked,
        member: &Member,
        is_fresh: bool,
    ) -> Result<(Plain, bool), Refusal> {
        let entry = &asked.found.entry;
        let places = places(entry, member);
        let start = fastrand::usize(..places.len().max(1));
        let mut last = Refusal::NoMember;
        for place in places.iter().cycle().skip(start).take(places.len().min(ADDRESSES)) {
            let key = (place.clone(), entry.tenant.clone());
            let resting = if is_fresh { None } else { self.pool.take(&key, asked.start) };
            if let Some(resting) = resting {
                return Ok((resting, true));
            }
            match worker.upstream.connect(entry, member, place).await {
                Ok(upstream) => return Ok((upstream, false)),
                Err(refusal) => last = refusal,
            }
        }
        Err(last)
    }
}

/// A connection for hyper's path to go on with.
pub(crate) struct Handed<S> {
    pub(crate) stream: S,
    /// All of the request that is next, or what there is of it.
    pub(crate) received: BytesMut,
    /// By when its head has to be there.
    pub(crate) until: Instant,
    /// What the next request is to be answered with: it has been tried already.
    pub(crate) refusal: Option<Refusal>,
}

/// Answers the requests of a connection until it ends, or until one is not of the usual kind.
pub(crate) async fn serve<S>(
    worker: &Worker,
    link: &Arc<Link>,
    stream: S,
    received: BytesMut,
    until: Instant,
) -> Option<Handed<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let told = Told::new(link.client.ip(), link.door == DoorKind::Https);
    let mut client =
        Client { stream, received: received.into(), out: Vec::new(), back: Vec::new(), clock: Clock::new(until) };
    let mut drain = pin!(worker.drain.cancelled());
    let mut is_first = true;
    loop {
        let asked = match client.request(worker, link, &told, drain.as_mut(), is_first).await {
            Came::Request(asked) => asked,
            Came::Unusual => return Some(client.hand_over(None)),
            Came::Nothing => return client.close().await,
        };
        is_first = false;
        match client.answer(worker, link, asked).await {
            After::Next => {}
            After::Close => return client.close().await,
            After::HandOver(refusal) => return Some(client.hand_over(refusal)),
        }
    }
}

struct Client<S> {
    stream: S,
    /// Octets of the client's, from the request on that is being answered.
    received: Vec<u8>,
    /// The request as members get it, for as long as it may have to be sent again.
    out: Vec<u8>,
    /// Some of the response as the client gets it.
    back: Vec<u8>,
    clock: Clock,
}

enum Came {
    Request(Asked),
    Unusual,
    /// The client is gone, or has nothing to say.
    Nothing,
}

enum After {
    Next,
    Close,
    HandOver(Option<Refusal>),
}

/// A request whose head is in `out`, as its member gets it.
struct Asked {
    found: Found,
    /// Octets that it has in `received`.
    head: usize,
    body: usize,
    is_to_head: bool,
    is_last: bool,
    /// It may be sent once more if there is no answer.
    can_repeat: bool,
    start: std::time::Instant,
    /// Method and path, where somebody wants the log.
    logged: Option<(Method, String)>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    async fn request(
        &mut self,
        worker: &Worker,
        link: &Link,
        told: &Told,
        mut drain: Pin<&mut WaitForCancellationFuture<'_>>,
        is_first: bool,
    ) -> Came {
        let timeouts = &worker.settings.timeouts;
        if !is_first && self.received.is_empty() {
            self.clock.set(Instant::now() + timeouts.idle);
        }
        let mut is_timed = is_first;
        for _ in 0..MAX_PIECES {
            if !self.received.is_empty() {
                match prepare(worker, link, told, &self.received, &mut self.out) {
                    Prepared::Ready(asked) => return Came::Request(asked),
                    Prepared::Unusual => return Came::Unusual,
                    // From its first octet on.
                    Prepared::Part if !std::mem::replace(&mut is_timed, true) => {
                        self.clock.set(Instant::now() + timeouts.head);
                    }
                    Prepared::Part => {}
                }
            }
            let came = poll_fn(|cx| {
                if let Poll::Ready(came) = poll_receive(&mut self.stream, cx, &mut self.received) {
                    return Poll::Ready(Some(came));
                }
                if self.received.is_empty() {
                    give_buffer(&mut self.received);
                    give_buffer(&mut self.out);
                    give_buffer(&mut self.back);
                    if drain.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(Some(Ok(0)));
                    }
                }
                self.clock.poll_late(cx).map(|()| None)
            });
            match came.await {
                Some(Ok(1..)) => {}
                Some(Ok(0) | Err(_)) => return Came::Nothing,
                None if self.received.is_empty() && !is_first => return Came::Nothing,
                // What is too late is told there.
                None => return Came::Unusual,
            }
        }
        Came::Unusual
    }

    /// Tries members until one answers, or none is left that may be tried.
    async fn answer(&mut self, worker: &Worker, link: &Arc<Link>, asked: Asked) -> After {
        link.begin();
        let Found { entry, outlook, .. } = &asked.found;
        self.out.extend_from_slice(&self.received[asked.head..asked.head + asked.body]);
        outlook.retries().save();
        let mut response = take_buffer();
        let mut tried = Vec::new();
        let mut last = None;
        let visitor = Visitor { address: link.client.ip(), places: &worker.settings.places };
        let mut now = asked.start;
        loop {
            let (member, permit) = match choose(entry, outlook, &tried, &visitor, now) {
                Choice::Ask(member, permit) => (member, permit),
                Choice::Shed => {
                    outlook.counts.shed();
                    asked.begun(link).refused(Refusal::AllFull.status(), Refusal::AllFull.code());
                    return After::HandOver(Some(Refusal::AllFull));
                }
                Choice::Nobody => break,
            };
            let is_fresh = !tried.is_empty();
            let known = outlook.asked(entry, member, now);
            let in_flight = InFlight::new(&known, permit, now);
            let failed = match self.attempt(worker, &asked, member, &known, is_fresh, &mut response).await {
                Ok(Answered { upstream, head }) => {
                    let mut exchange = asked.exchange(link, member, in_flight);
                    exchange.answered(StatusCode::from_u16(head.status).unwrap_or_default());
                    return self.finish(worker, &asked, upstream, head, response, exchange).await;
                }
                Err(failed) => failed,
            };
            let Failed { refusal: Some(refusal), can_repeat } = failed else {
                asked.exchange(link, member, in_flight).broke();
                return After::Close;
            };
            last = Some((member, refusal));
            // Nothing was sent that a member could have acted upon: another may be asked, if that is affordable.
            tried.push(member.cluster.clone());
            if !can_repeat || tried.len() > RETRIES || !outlook.retries().spend() {
                break;
            }
            outlook.counts.retried();
            now = std::time::Instant::now();
        }
        // Nobody to ask is nothing usual.
        let Some((member, refusal)) = last else { return After::HandOver(None) };
        let in_flight = InFlight::new(&outlook.asked(entry, member, asked.start), None, asked.start);
        asked.exchange(link, member, in_flight).refused(refusal.status(), refusal.code());
        After::HandOver(Some(refusal))
    }

    /// From a connection to the head of a response, which is in `back` then as clients get it.
    async fn attempt(
        &mut self,
        worker: &Worker,
        asked: &Asked,
        member: &Member,
        known: &Outlook,
        mut is_fresh: bool,
        response: &mut Vec<u8>,
    ) -> Result<Answered, Failed> {
        let entry = &asked.found.entry;
        let cluster = || member.cluster.clone();
        loop {
            let (mut upstream, is_pooled) = match worker.lean.lease(worker, asked, member, is_fresh).await {
                Ok(leased) => leased,
                Err(refusal) => {
                    // That we are busy says nothing about it.
                    if !matches!(refusal, Refusal::UpstreamBusy { .. }) {
                        known.failed(std::time::Instant::now());
                    }
                    return Err(Failed { refusal: Some(refusal), can_repeat: true });
                }
            };
            let asking = if is_pooled { asked.start } else { std::time::Instant::now() };
            self.clock.set(Instant::from_std(asking) + entry.options.request_timeout);
            let came = match send(&mut upstream.stream, &self.out, &mut self.clock).await {
                Ok(()) => self.head(worker, &mut upstream, asked, response).await,
                Err(_) => Heard::End,
            };
            let (refusal, can_repeat) = match came {
                Heard::Head(head) => {
                    let now = std::time::Instant::now();
                    let is_well = !matches!(head.status, 502..=504);
                    known.answered(now.saturating_duration_since(asking), is_well, now);
                    return Ok(Answered { upstream, head });
                }
                // One that rested may end just as it is used, which says nothing about the member: once more, on a new one.
                Heard::End if asked.can_repeat && is_pooled => {
                    is_fresh = true;
                    continue;
                }
                Heard::End => {
                    let why = "it closed the connection".to_owned();
                    (Refusal::NoAnswer { cluster: cluster(), why }, asked.can_repeat)
                }
                Heard::Malformed(why) => {
                    (Refusal::NoAnswer { cluster: cluster(), why: why.to_owned() }, asked.can_repeat)
                }
                Heard::Late => (Refusal::AnswerTimeout { cluster: cluster() }, false),
                Heard::ClientGone => return Err(Failed { refusal: None, can_repeat: false }),
            };
            known.failed(std::time::Instant::now());
            return Err(Failed { refusal: Some(refusal), can_repeat });
        }
    }

    /// The response to its end, and both connections to their next use.
    async fn finish(
        &mut self,
        worker: &Worker,
        asked: &Asked,
        mut upstream: Plain,
        head: response::Head,
        mut response: Vec<u8>,
        mut exchange: Exchange,
    ) -> After {
        let ended = self.carry(worker, &mut upstream, head, &mut response, &mut exchange).await;
        give_buffer(&mut response);
        let Some(is_free) = ended else {
            exchange.broke();
            return After::Close;
        };
        drop(exchange);
        if is_free {
            worker.lean.pool.put(upstream, std::time::Instant::now());
        }
        self.received.drain(..asked.head + asked.body);
        if asked.is_last || worker.drain.is_cancelled() { After::Close } else { After::Next }
    }

    /// Waits for the head of a response. What clients get of it is in `back` then, and what there is of it in `response`.
    async fn head(&mut self, worker: &Worker, upstream: &mut Plain, asked: &Asked, response: &mut Vec<u8>) -> Heard {
        let mut interim = 0;
        response.clear();
        if self.back.capacity() == 0 {
            self.back = take_buffer();
        }
        self.back.clear();
        loop {
            let is_last = asked.is_last || worker.drain.is_cancelled();
            match response::read(response, asked.is_to_head, is_last, &mut self.back) {
                Ok(Some(head)) if head.status >= 200 => return Heard::Head(head),
                Ok(Some(head)) if interim < MAX_INTERIM => {
                    response.drain(..head.length);
                    interim += 1;
                    continue;
                }
                Ok(Some(_)) => return Heard::Malformed("it says again and again that its answer is to come"),
                Ok(None) => {}
                Err(why) => return Heard::Malformed(why),
            }
            let heard = poll_fn(|cx| {
                if let Poll::Ready(came) = poll_receive(&mut upstream.stream, cx, response) {
                    return Poll::Ready(if matches!(came, Ok(1..)) { None } else { Some(Heard::End) });
                }
                if self.poll_gone(cx).is_ready() {
                    return Poll::Ready(Some(Heard::ClientGone));
                }
                self.clock.poll_late(cx).map(|()| Some(Heard::Late))
            });
            if let Some(heard) = heard.await {
                return heard;
            }
        }
    }

    /// The head and the body, to the client. Whether the member's connection is free again; none where one of the two broke.
    async fn carry(
        &mut self,
        worker: &Worker,
        upstream: &mut Plain,
        head: response::Head,
        response: &mut Vec<u8>,
        exchange: &mut Exchange,
    ) -> Option<bool> {
        let idle = worker.settings.timeouts.stream;
        let mut body = head.body;
        let mut come = head.length;
        loop {
            let (taken, carried) = body.carry(&response[come..], &mut self.back).ok()?;
            exchange.sent(carried);
            if !self.back.is_empty() {
                self.clock.set(Instant::now() + idle);
                send(&mut self.stream, &self.back, &mut self.clock).await.ok()?;
            }
            if body == Body::Ended {
                // What comes unasked behind an answer could be taken for the next one.
                return Some(head.is_kept && come + taken == response.len());
            }
            response.clear();
            self.back.clear();
            come = 0;
            self.clock.set(Instant::now() + idle);
            let received = poll_fn(|cx| {
                if let Poll::Ready(came) = poll_receive(&mut upstream.stream, cx, response) {
                    return Poll::Ready(came.ok());
                }
                if self.poll_gone(cx).is_ready() {
                    return Poll::Ready(None);
                }
                self.clock.poll_late(cx).map(|()| None)
            });
            if received.await? == 0 && !body.close(&mut self.back) {
                return None;
            }
        }
    }

    /// A client that is gone needs no answer; what one that is ahead says is next.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.received.len() < MAX_AHEAD {
            match ready!(poll_receive(&mut self.stream, cx, &mut self.received)) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Poll::Ready(()),
            }
        }
        Poll::Pending
    }

    fn hand_over(mut self, refusal: Option<Refusal>) -> Handed<S> {
        let received = BytesMut::from(&self.received[..]);
        give_buffer(&mut self.received);
        give_buffer(&mut self.out);
        give_buffer(&mut self.back);
        Handed { stream: self.stream, received, until: self.clock.deadline(), refusal }
    }

    async fn close<T>(mut self) -> Option<T> {
        let _ = self.stream.shutdown().await;
        None
    }
}

/// A member that answers.
struct Answered {
    upstream: Plain,
    head: response::Head,
}

struct Failed {
    /// None where there is nobody to be told.
    refusal: Option<Refusal>,
    can_repeat: bool,
}

/// What became of a request that was sent to a member.
enum Heard {
    Head(response::Head),
    /// The connection ended before.
    End,
    Malformed(&'static str),
    Late,
    ClientGone,
}

enum Prepared {
    Part,
    Unusual,
    Ready(Asked),
}

/// Where a request goes, and its head as the member gets it. Without I/O.
fn prepare(worker: &Worker, link: &Link, told: &Told, received: &[u8], out: &mut Vec<u8>) -> Prepared {
    let mut fields = head::no_fields();
    let usual = match request::read(received, &mut fields) {
        Read::Part => return Prepared::Part,
        Read::Unusual => return Prepared::Unusual,
        Read::Usual(usual) => usual,
    };
    if usual.vouches() && link.is_trusted {
        return Prepared::Unusual;
    }
    let start = std::time::Instant::now();
    let table = worker.table.load();
    let who = (link.tenant.as_ref(), link.client.ip());
    let found = worker.lean.sites.find(usual.host, usual.path(), who, &table, &worker.members, start);
    let Some(found) = found else { return Prepared::Unusual };
    let options = &found.entry.options;
    let is_redirected = decision::is_redirected(&found.entry, link.door == DoorKind::Https);
    let is_too_long = options.max_body.is_some_and(|limit| usual.body as u64 > limit);
    if is_redirected || is_too_long || found.entry.policy.upstream != UpstreamTls::Plain {
        return Prepared::Unusual;
    }
    if out.capacity() == 0 {
        *out = take_buffer();
    }
    out.clear();
    usual.write(&found.text, told, out);
    let logged = Exchange::is_logged().then(|| (usual.method.parse().unwrap_or_default(), usual.path().to_owned()));
    Prepared::Ready(Asked {
        head: usual.head,
        body: usual.body,
        is_to_head: usual.is_head(),
        is_last: usual.is_last,
        can_repeat: usual.is_idempotent && usual.body == 0,
        start,
        logged,
        found,
    })
}

impl Asked {
    fn exchange(&self, link: &Arc<Link>, member: &Member, in_flight: InFlight) -> Exchange {
        let mut exchange = self.begun(link);
        exchange.member(&member.cluster, in_flight);
        exchange
    }

    /// Before a member has it.
    fn begun(&self, link: &Arc<Link>) -> Exchange {
        let mut exchange = Exchange::begun_at(link, self.start);
        if let Some((method, path)) = &self.logged {
            exchange.log(link.client.ip(), method, &self.found.text, path);
        }
        exchange.route(&self.found.outlook);
        exchange.received(self.body);
        exchange
    }
}

async fn send<S: AsyncWrite + Unpin>(stream: &mut S, octets: &[u8], clock: &mut Clock) -> std::io::Result<()> {
    let mut sent = 0;
    poll_fn(|cx| {
        while sent < octets.len() {
            match Pin::new(&mut *stream).poll_write(cx, &octets[sent..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => sent += count,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return clock.poll_late(cx).map(|()| Err(std::io::ErrorKind::TimedOut.into())),
            }
        }
        // TLS may hold some of it back.
        Pin::new(&mut *stream).poll_flush(cx)
    })
    .await
}
