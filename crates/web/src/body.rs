//! Bodies on their way: counted, timed and given on piece by piece. Nothing is kept beyond the piece that is being sent.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http::HeaderMap;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::exchange::Exchange;
use crate::guard::Line;
use crate::headers::may_trail;
use crate::refusal::Refusal;
use crate::upstream::Lease;

/// Of what nobody wants, so long and so much is read: what is on its way when the answer is sent.
const UNREAD_TIME: Duration = Duration::from_secs(1);
const UNREAD_OCTETS: usize = 1 << 20;

/// A request's, on its way to a member.
pub(crate) enum RequestBody {
    Empty,
    Streamed(Box<Streamed>),
}

pub(crate) struct Streamed {
    incoming: Unread,
    progress: Arc<Progress>,
    line: Option<Arc<Line>>,
    terms: Terms,
    received: u64,
    /// How long the client kept us waiting, in all.
    waited: Duration,
    waiting: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Until when a member may take to say that it wants the body.
    hold: Option<Pin<Box<Sleep>>>,
}

/// What a client has to keep to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) limit: Option<u64>,
    /// Without an octet.
    pub(crate) idle: Duration,
    /// Octets a second, on average; a stream has its own pace.
    pub(crate) pace: Option<u64>,
    /// Once there is a response, this is a conversation.
    pub(crate) conversation: Duration,
}

/// What others know of a body that is being sent.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    said: Mutex<Said>,
    changed: tokio::sync::Notify,
}

// Four answers to four questions.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Default)]
struct Said {
    has_ended: bool,
    refusal: Option<Refusal>,
    is_wanted: bool,
    has_response: bool,
    is_abandoned: bool,
    received: u64,
    waiting: Option<Waker>,
}

impl Progress {
    /// Once all of the body is with the member.
    pub(crate) async fn ended(&self) {
        loop {
            let changed = self.changed.notified();
            if self.lock().has_ended {
                return;
            }
            changed.await;
        }
    }

    /// Why the body was not sent to its end.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        self.lock().refusal.clone()
    }

    /// The member wants the body.
    pub(crate) fn go_ahead(&self) {
        self.tell(|said| said.is_wanted = true);
    }

    /// The member has answered. A body that it has not asked for by then it does not want.
    pub(crate) fn responded(&self) {
        self.tell(|said| said.has_response = true);
    }

    /// The response is over: whatever is left of the request is sent in vain.
    pub(crate) fn abandon(&self) {
        self.tell(|said| said.is_abandoned = true);
    }

    fn tell(&self, what: impl FnOnce(&mut Said)) {
        let mut said = self.lock();
        what(&mut said);
        if let Some(waiting) = said.waiting.take() {
            waiting.wake();
        }
    }

    pub(crate) fn received(&self) -> u64 {
        self.lock().received
    }

    fn end(&self, refusal: Option<Refusal>) {
        let mut said = self.lock();
        said.has_ended = true;
        said.refusal = said.refusal.take().or(refusal);
        drop(said);
        self.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client's body, as far as nobody has read it. Clients of HTTP/2 take it for a fault of ours where it is cut off, and do not
/// look at the answer; so some of what nobody wants is read and thrown away. HTTP/1 has its own way, in `guard`: there,
/// reading would ask for what the client holds back.
pub(crate) struct Unread {
    /// Gone only with this.
    incoming: Option<Incoming>,
    is_http2: bool,
}

impl Unread {
    pub(crate) fn new(incoming: Incoming, is_http2: bool) -> Self {
        Self { incoming: Some(incoming), is_http2 }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(incoming) = &mut self.incoming else { return Poll::Ready(None) };
        Pin::new(incoming).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map(Incoming::size_hint).unwrap_or_default()
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let unread = self.incoming.take().filter(|incoming| self.is_http2 && !incoming.is_end_stream());
        let Some(mut incoming) = unread else { return };
        tokio::spawn(tokio::time::timeout(UNREAD_TIME, async move {
            let mut left = UNREAD_OCTETS;
            while let Some(Ok(frame)) = incoming.frame().await {
                left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
                if left == 0 {
                    return;
                }
            }
        }));
    }
}

impl RequestBody {
    /// `hold` is given where the client waits for a word from the member before it sends anything.
    pub(crate) fn new(
        incoming: Unread,
        terms: Terms,
        line: Option<Arc<Line>>,
        hold: Option<Duration>,
    ) -> (Self, Arc<Progress>) {
        let progress = Arc::new(Progress::default());
        if incoming.is_end_stream() {
            progress.end(None);
            return (Self::Empty, progress);
        }
        let streamed = Streamed {
            incoming,
            progress: Arc::clone(&progress),
            line,
            terms,
            received: 0,
            waited: Duration::ZERO,
            waiting: None,
            timer: None,
            hold: hold.map(|time| Box::pin(tokio::time::sleep(time))),
        };
        (Self::Streamed(Box::new(streamed)), progress)
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Refusal;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Refusal>>> {
        let Self::Streamed(body) = self.get_mut() else { return Poll::Ready(None) };
        let frame = ready!(body.poll(cx));
        match &frame {
            None => body.progress.end(None),
            Some(Err(refusal)) => body.progress.end(Some(refusal.clone())),
            Some(Ok(_)) if body.incoming.is_end_stream() => body.progress.end(None),
            Some(Ok(_)) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Streamed(body) => body.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Streamed(body) => body.incoming.size_hint(),
        }
    }
}

impl Streamed {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Refusal>>> {
        if !ready!(self.poll_wanted(cx)) {
            return Poll::Ready(Some(Err(Refusal::BodyCut)));
        }
        loop {
            let frame = match self.incoming.poll_frame(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending if self.is_late(cx) => return Poll::Ready(Some(Err(Refusal::SlowBody))),
                Poll::Pending => {
                    self.progress.lock().waiting = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            };
            self.waited += self.waiting.take().map(|since| since.elapsed()).unwrap_or_default();
            self.timer = None;
            let Some(frame) = frame else { return Poll::Ready(None) };
            let Ok(frame) = frame else {
                let fault = self.line.as_ref().and_then(|line| line.fault());
                return Poll::Ready(Some(Err(fault.unwrap_or(Refusal::BodyCut))));
            };
            if let Some(data) = frame.data_ref() {
                self.received += data.remaining() as u64;
                self.progress.lock().received = self.received;
                if let Some(limit) = self.terms.limit.filter(|limit| self.received > *limit) {
                    return Poll::Ready(Some(Err(Refusal::BodyTooLarge(limit))));
                }
                return Poll::Ready(Some(Ok(frame)));
            }
            if let Ok(trailers) = frame.into_trailers() {
                return Poll::Ready(Some(Ok(Frame::trailers(fit_to_trail(&trailers)))));
            }
        }
    }

    /// Whether anybody wants the body, or what is left of it.
    fn poll_wanted(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut said = self.progress.lock();
        if said.is_abandoned {
            return Poll::Ready(false);
        }
        if let Some(hold) = &mut self.hold
            && !said.is_wanted
        {
            if said.has_response {
                return Poll::Ready(false);
            }
            if hold.as_mut().poll(cx).is_pending() {
                said.waiting = Some(cx.waker().clone());
                return Poll::Pending;
            }
        }
        drop(said);
        self.hold = None;
        Poll::Ready(true)
    }

    /// Whether a client that we wait for takes too long. Time in which the member is slow does not count.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        let since = *self.waiting.get_or_insert_with(Instant::now);
        let has_response = self.progress.lock().has_response;
        let (terms, waited, received) = (self.terms, self.waited, self.received);
        let timer = self.timer.get_or_insert_with(|| {
            let grace = if has_response { terms.conversation } else { terms.idle };
            let owed = terms.pace.filter(|_| !has_response).map(|pace| {
                let earned = terms.idle + Duration::from_secs(received / pace.max(1));
                earned.saturating_sub(waited)
            });
            Box::pin(tokio::time::sleep_until(since + owed.unwrap_or(grace).min(grace)))
        });
        if timer.as_mut().poll(cx).is_pending() {
            return false;
        }
        // The answer came in the meantime, and it is a conversation since then.
        if !has_response || since.elapsed() >= terms.conversation {
            return true;
        }
        self.timer = None;
        self.is_late(cx)
    }
}

/// A response's.
pub(crate) enum ResponseBody {
    /// Ours, and short.
    Own(Option<Bytes>, Exchange),
    Carried(Box<Carried>),
}

/// A member's, on its way to a client.
pub(crate) struct Carried {
    incoming: Incoming,
    lease: Option<Lease>,
    exchange: Exchange,
    idle: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("the member's answer ended early")]
    Cut(#[source] hyper::Error),
    #[error("the member's answer stopped")]
    Stopped,
}

impl ResponseBody {
    pub(crate) fn own(text: Bytes, exchange: Exchange) -> Self {
        Self::Own(Some(text).filter(|text| !text.is_empty()), exchange)
    }

    pub(crate) fn carried(incoming: Incoming, lease: Lease, exchange: Exchange, idle: Duration) -> Self {
        Self::Carried(Box::new(Carried { incoming, lease: Some(lease), exchange, idle, timer: None }))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self.get_mut() {
            Self::Own(text, exchange) => {
                let text = text.take();
                exchange.sent(text.as_ref().map_or(0, Bytes::len));
                Poll::Ready(text.map(|text| Ok(Frame::data(text))))
            }
            Self::Carried(carried) => carried.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(text, _) => text.is_none(),
            Self::Carried(carried) => carried.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(text, _) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Self::Carried(carried) => carried.incoming.size_hint(),
        }
    }
}

impl Carried {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        // Whoever asks for more has taken what was there.
        self.exchange.hand(false);
        loop {
            let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) else {
                let idle = self.idle;
                let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(idle)));
                return timer.as_mut().poll(cx).map(|()| Some(Err(Broken::Stopped)));
            };
            self.timer = None;
            let Some(frame) = frame else {
                self.end();
                return Poll::Ready(None);
            };
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => {
                    self.exchange.broke();
                    return Poll::Ready(Some(Err(Broken::Cut(error))));
                }
            };
            if let Some(data) = frame.data_ref() {
                self.exchange.sent(data.len());
                self.exchange.hand(true);
                return Poll::Ready(Some(Ok(frame)));
            }
            if let Ok(trailers) = frame.into_trailers() {
                return Poll::Ready(Some(Ok(Frame::trailers(fit_to_trail(&trailers)))));
            }
        }
    }

    fn end(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.give_back(self.exchange.request_body());
        }
    }
}

/// A connection is used again only where its response was read to the end.
impl Drop for Carried {
    fn drop(&mut self) {
        if self.incoming.is_end_stream() {
            self.end();
        }
    }
}

fn fit_to_trail(trailers: &HeaderMap) -> HeaderMap {
    let mut fit = HeaderMap::with_capacity(trailers.len());
    for (name, value) in trailers {
        if may_trail(name.as_str()) {
            fit.append(name.clone(), value.clone());
        }
    }
    fit
}
