//! One stream over a link, and who holds up the others of it.
//!
//! HTTP/2 lets each stream's sender go on until its window is used up, so that a receiver that does not read stops nobody but
//! itself. What it has not read takes up memory, though, and the window that all streams share. Where that gets short, streams
//! whose receiver holds much and takes nothing are ended, the largest first.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use h2::{Reason, RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::metrics::{Metrics, Octets};
use crate::wire::MAX_STREAMS;

/// Of a link, in octets that were received and not read: above, it is short. A hundred streams that are not read at all
/// stay some time below twice of it, and the hard bound is `wire::LINK_WINDOW`.
const BUDGET: usize = 64 << 20;
/// Of all links of a process together; where there are many, each has its part.
const ALL_LINKS: usize = 1 << 30;
/// Who has taken nothing for so long does not read: a slow reader takes something every now and then.
const STALLED: Duration = Duration::from_secs(1);
/// The most that is handed to HTTP/2 at once.
const PIECE: usize = 64 << 10;

/// A connection to something inside a cluster, or from the agent's end, what the hub sends there.
///
/// Ending the writing half is a half-close, as with TCP. Dropping it before both halves have ended breaks it off.
#[derive(Debug)]
pub struct Stream {
    core: Arc<Core>,
    streams: Arc<Streams>,
    key: u64,
}

/// All streams of a link.
#[derive(Debug)]
pub(crate) struct Streams {
    open: Mutex<HashMap<u64, Arc<Core>>>,
    next: AtomicU64,
    /// Those that are asked for, too.
    busy: AtomicUsize,
    metrics: Metrics,
    octets: Octets,
}

/// One of the places that a link has for streams.
#[derive(Debug)]
pub(crate) struct Place(Arc<Streams>);

#[derive(Debug)]
struct Core {
    halves: Mutex<Halves>,
    _place: Place,
}

#[derive(Debug)]
struct Halves {
    receive: Option<RecvStream>,
    send: Option<SendStream<Bytes>>,
    /// Received, and read in part.
    rest: Bytes,
    /// Of `rest` as it came: given back when all of it has been read.
    owed: usize,
    ended: bool,
    stalled: bool,
    read_waker: Option<Waker>,
    write_waker: Option<Waker>,
    /// When the receiver last took something, or found that there was nothing.
    moved: Instant,
}

impl Streams {
    pub(crate) fn new(metrics: &Metrics) -> Arc<Self> {
        Arc::new(Self {
            open: Mutex::default(),
            next: AtomicU64::new(0),
            busy: AtomicUsize::new(0),
            octets: metrics.octets(),
            metrics: metrics.clone(),
        })
    }

    pub(crate) fn busy(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }

    pub(crate) fn place(self: &Arc<Self>) -> Option<Place> {
        let most = usize::try_from(MAX_STREAMS).unwrap_or(usize::MAX);
        // Counted in any case, and given back with the value.
        let place = Place(Arc::clone(self));
        (self.busy.fetch_add(1, Ordering::AcqRel) < most).then_some(place)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Arc<Core>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends those who hold up the others. Looked at every now and then, with how many links there are.
    pub(crate) fn relieve(&self, links: usize) {
        let budget = BUDGET.min(ALL_LINKS / links.max(1));
        let now = Instant::now();
        let all: Vec<Arc<Core>> = self.open().values().cloned().collect();
        let held: Vec<(usize, Duration)> = all.iter().map(|core| core.lock().held(now)).collect();
        let ended = to_end(&held, budget);
        for &number in &ended {
            all[number].lock().stall();
            self.metrics.stalled.inc();
        }
        if !ended.is_empty() {
            tracing::warn!(streams = ended.len(), "ended, because nobody read them while the link was short of room");
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Which of the streams are to be ended, each with what it holds and for how long it has not moved: those that hold more than
/// an equal share and do not move, the largest first, until the others have room.
fn to_end(held: &[(usize, Duration)], budget: usize) -> Vec<usize> {
    let mut total: usize = held.iter().map(|(held, _)| held).sum();
    if total <= budget {
        return Vec::new();
    }
    let share = budget / held.len().max(1);
    let stalled = |number: &usize| held[*number].0 > share && held[*number].1 >= STALLED;
    let mut stalled: Vec<usize> = (0..held.len()).filter(stalled).collect();
    stalled.sort_by_key(|&number| std::cmp::Reverse(held[number]));
    let mut ended = Vec::new();
    for number in stalled {
        if total <= budget / 2 {
            break;
        }
        total -= held[number].0;
        ended.push(number);
    }
    ended
}

impl Core {
    fn lock(&self) -> MutexGuard<'_, Halves> {
        self.halves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Halves {
    fn held(&mut self, now: Instant) -> (usize, Duration) {
        let used = self.receive.as_mut().map_or(0, |receive| receive.flow_control().used_capacity());
        (used, now.saturating_duration_since(self.moved))
    }

    /// Its receiver may never be polled again: what it holds is given back here.
    fn stall(&mut self) {
        self.stalled = true;
        self.reset(Reason::ENHANCE_YOUR_CALM);
        for waker in [self.read_waker.take(), self.write_waker.take()].into_iter().flatten() {
            waker.wake();
        }
    }

    fn reset(&mut self, reason: Reason) {
        if let Some(mut send) = self.send.take() {
            send.send_reset(reason);
        }
        self.receive = None;
        self.rest = Bytes::new();
    }

    fn gone(&self) -> io::Error {
        if self.stalled {
            stalled()
        } else {
            io::Error::new(io::ErrorKind::ConnectionReset, "the stream was broken off")
        }
    }

    /// Something that was received, or `None` at the end.
    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Ok(Some(std::mem::take(&mut self.rest))));
        }
        self.settle();
        if self.ended {
            return Poll::Ready(Ok(None));
        }
        let Some(receive) = &mut self.receive else { return Poll::Ready(Err(self.gone())) };
        self.moved = Instant::now();
        loop {
            match receive.poll_data(context) {
                Poll::Ready(Some(Ok(chunk))) if chunk.is_empty() => {}
                Poll::Ready(Some(Ok(chunk))) => {
                    self.owed = chunk.len();
                    return Poll::Ready(Ok(Some(chunk)));
                }
                Poll::Ready(Some(Err(error))) => {
                    self.reset(Reason::CANCEL);
                    return Poll::Ready(Err(broken(&error)));
                }
                Poll::Ready(None) => {
                    self.ended = true;
                    return Poll::Ready(Ok(None));
                }
                Poll::Pending => {
                    self.read_waker = Some(context.waker().clone());
                    return Poll::Pending;
                }
            }
        }
    }

    /// What was taken has been read.
    fn settle(&mut self) {
        let owed = std::mem::take(&mut self.owed);
        if owed > 0
            && let Some(receive) = &mut self.receive
        {
            // Only more than there was could be refused.
            let _ = receive.flow_control().release_capacity(owed);
        }
    }

    fn poll_room(&mut self, most: usize, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Some(send) = &mut self.send else { return Poll::Ready(Err(self.gone())) };
        send.reserve_capacity(most.min(PIECE));
        loop {
            let room = send.capacity();
            if room > 0 {
                return Poll::Ready(Ok(room.min(most)));
            }
            match send.poll_capacity(context) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(broken(&error))),
                // The other end wants no more of it; why, it may say.
                Poll::Ready(None) => {
                    let error = match send.poll_reset(context) {
                        Poll::Ready(Ok(Reason::NO_ERROR)) | Poll::Pending => io::ErrorKind::BrokenPipe.into(),
                        Poll::Ready(Ok(reason)) => broken_off(reason),
                        Poll::Ready(Err(error)) => broken(&error),
                    };
                    return Poll::Ready(Err(error));
                }
                Poll::Pending => {
                    self.write_waker = Some(context.waker().clone());
                    return Poll::Pending;
                }
            }
        }
    }

    fn send(&mut self, piece: Bytes) -> io::Result<()> {
        let Some(send) = &mut self.send else { return Err(self.gone()) };
        let taken = send.send_data(piece, false).map_err(|error| broken(&error));
        // Room that is not used would be kept from others.
        send.reserve_capacity(0);
        taken
    }

    fn end(&mut self) -> io::Result<()> {
        match &mut self.send {
            // Kept while something may still be received: without it the stream could not be broken off.
            Some(send) => send.send_data(Bytes::new(), true).map_err(|error| broken(&error)),
            None => Err(self.gone()),
        }
    }
}

impl Stream {
    pub(crate) fn new(place: Place, send: SendStream<Bytes>, receive: RecvStream) -> Self {
        let streams = Arc::clone(&place.0);
        let halves = Halves {
            receive: Some(receive),
            send: Some(send),
            rest: Bytes::new(),
            owed: 0,
            ended: false,
            stalled: false,
            read_waker: None,
            write_waker: None,
            moved: Instant::now(),
        };
        let core = Arc::new(Core { halves: Mutex::new(halves), _place: place });
        let key = streams.next.fetch_add(1, Ordering::Relaxed);
        streams.open().insert(key, Arc::clone(&core));
        streams.metrics.streams.inc();
        Self { core, streams, key }
    }

    /// Something that was received, without a copy, or `None` once the other end has sent all. What was given before counts
    /// as read.
    pub(crate) fn poll_chunk(&self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let chunk = ready!(self.core.lock().poll_chunk(context))?;
        self.streams.octets.received.inc_by(chunk.as_ref().map_or(0, |chunk| chunk.len() as u64));
        Poll::Ready(Ok(chunk))
    }

    /// Sends the beginning of it, as much as there is room for.
    pub(crate) fn poll_send(&self, data: &mut Bytes, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut halves = self.core.lock();
        let room = ready!(halves.poll_room(data.len(), context))?;
        self.streams.octets.sent.inc_by(room as u64);
        Poll::Ready(halves.send(data.split_to(room)))
    }

    /// Nothing more will be sent.
    pub(crate) fn end(&self) -> io::Result<()> {
        self.core.lock().end()
    }

    /// Breaks it off, for a reason.
    pub(crate) fn reset(&self, reason: Reason) {
        self.core.lock().reset(reason);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.streams.open().remove(&self.key);
        self.streams.metrics.streams.dec();
        let mut halves = self.core.lock();
        let (send, receive) = (halves.send.take(), halves.receive.take());
        drop(halves);
        // HTTP/2 breaks off what has not ended.
        drop((send, receive));
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if into.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let mut halves = self.core.lock();
        let is_rest = !halves.rest.is_empty();
        let Some(mut chunk) = ready!(halves.poll_chunk(context))? else { return Poll::Ready(Ok(())) };
        if !is_rest {
            self.streams.octets.received.inc_by(chunk.len() as u64);
        }
        let taken = chunk.len().min(into.remaining());
        into.put_slice(&chunk[..taken]);
        chunk.advance(taken);
        halves.moved = Instant::now();
        halves.rest = chunk;
        if halves.rest.is_empty() {
            halves.settle();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        // An empty frame says nothing, and the other end takes only so many.
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let mut halves = self.core.lock();
        let room = ready!(halves.poll_room(data.len(), context))?;
        halves.send(Bytes::copy_from_slice(&data[..room]))?;
        self.streams.octets.sent.inc_by(room as u64);
        Poll::Ready(Ok(room))
    }

    /// The link sends by itself, as soon as it can.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.end())
    }
}

fn stalled() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        "the stream was ended: its receiver took nothing while others needed the room",
    )
}

/// What ended a stream.
fn broken(error: &h2::Error) -> io::Error {
    match error.reason().filter(|_| error.is_reset()) {
        Some(reason) => broken_off(reason),
        None => io::Error::new(io::ErrorKind::ConnectionAborted, "the link was lost"),
    }
}

fn broken_off(reason: Reason) -> io::Error {
    if reason == Reason::ENHANCE_YOUR_CALM {
        return stalled();
    }
    io::Error::new(io::ErrorKind::ConnectionReset, "the other end broke the stream off")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_nothing_loses_its_stream_when_room_is_short() {
        let (still, moving) = (STALLED, Duration::ZERO);
        for (held, budget, expected) in [
            // Enough room: nobody is disturbed.
            (vec![(40, still), (40, still)], 100, vec![]),
            // The largest first, until half is free.
            (vec![(40, still), (60, still), (20, still)], 100, vec![1, 0]),
            // Who moves stays, and who holds no more than its share.
            (vec![(90, moving), (10, still), (20, moving)], 100, vec![]),
            (vec![(90, moving), (50, still), (20, still)], 100, vec![1]),
            (vec![], 0, vec![]),
        ] {
            assert_eq!(to_end(&held, budget), expected, "{held:?}");
        }
    }
}
