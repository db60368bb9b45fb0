//! Between the socket and hyper on HTTP/1: only octets that mean one thing reach hyper.
//!
//! It follows the requests of a connection, heads by [`head::read`] and bodies by their length, and times them. A head that
//! is refused is replaced by a request that says nothing, which is answered with the refusal: so that all refusals look
//! the same, and pipelined requests before it are answered first. Behind a request for another protocol it holds back
//! whatever follows until a member granted it: those octets are no requests and must not become any.

pub(crate) mod chunks;
#[cfg(test)]
mod tests;

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::head::{self, Framing};
use crate::refusal::Refusal;
use chunks::Chunks;

/// As much as hyper reads at once.
const PIECE: usize = 8 << 10;
/// Clients that were refused need to hear it, and to stop: a way across the world and back, and what is in flight then.
const FAREWELL: Duration = Duration::from_secs(1);
const FAREWELL_OCTETS: usize = 1 << 20;
/// What stands for a head that was refused.
const STAND_IN: &[u8] = b"GET / HTTP/1.0\r\n\r\n";

/// How long a client may take for its heads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// Until when the first has to be there.
    pub(crate) opening: Instant,
    /// From the first octet of a later one to its last.
    pub(crate) head: Duration,
    /// From an answer to the next request.
    pub(crate) idle: Duration,
}

/// What the reader of a connection and those who answer its requests tell each other.
#[derive(Debug, Default)]
pub(crate) struct Line(Mutex<Said>);

#[derive(Debug, Default)]
struct Said {
    /// Heads that were given to hyper.
    heads: u64,
    /// Requests that were begun to be answered, and those that were.
    begun: u64,
    answered: u64,
    /// The number of the head that was refused.
    refused: Option<(u64, Refusal)>,
    /// Of the body that is being read.
    fault: Option<Refusal>,
    granted: Option<bool>,
    waiting: Option<Waker>,
}

impl Line {
    /// Whose next request is refused, whatever it says.
    pub(crate) fn refusing(refusal: Option<Refusal>) -> Self {
        Self(Mutex::new(Said { refused: refusal.map(|refusal| (1, refusal)), ..Said::default() }))
    }

    /// The next request is about to be answered; with a refusal, if it stands for one.
    pub(crate) fn begin(&self) -> Option<Refusal> {
        let mut said = self.lock();
        said.begun += 1;
        let number = said.begun;
        said.refused.take_if(|(refused, _)| *refused == number).map(|(_, refusal)| refusal)
    }

    /// It was answered; the reader counts how long the client rests from here on.
    pub(crate) fn end(&self) {
        let mut said = self.lock();
        said.answered += 1;
        if let Some(waiting) = said.waiting.take() {
            waiting.wake();
        }
    }

    /// Whether the protocol that was asked for was granted.
    pub(crate) fn decide(&self, granted: bool) {
        let mut said = self.lock();
        said.granted = Some(granted);
        if let Some(waiting) = said.waiting.take() {
            waiting.wake();
        }
    }

    /// What was wrong with a body that ended early.
    pub(crate) fn fault(&self) -> Option<Refusal> {
        self.lock().fault.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Guard<S> {
    io: S,
    line: Arc<Line>,
    patience: Patience,
    /// Octets that were received and not given on yet, of which the first `ready` may be.
    received: BytesMut,
    ready: usize,
    /// Of a head that is not complete: how much of it was looked at.
    looked: usize,
    state: State,
    timer: Option<(Wait, Pin<Box<Sleep>>)>,
    /// Since our side was ended while the client may still be sending, and how much it may.
    farewell: Option<(Pin<Box<Sleep>>, usize)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    Sized(u64),
    Chunked(Chunks),
    /// Another protocol was asked for.
    Held,
    /// It was granted: this is no HTTP any more.
    Through,
    /// Nothing is read any more; the refusal is being answered.
    Refused,
    /// The client has ended it, or is taken to have.
    Ended,
}

/// What the timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Opening,
    Head,
    Idle,
}

impl<S> Guard<S> {
    /// `received` was read before it was known that this is HTTP/1.
    pub(crate) fn new(io: S, received: BytesMut, patience: Patience, line: Arc<Line>) -> Self {
        Self { io, line, patience, received, ready: 0, looked: 0, state: State::Head, timer: None, farewell: None }
    }

    fn refuse(&mut self, refusal: Refusal) {
        let mut said = self.line.lock();
        said.heads += 1;
        said.refused = Some((said.heads, refusal));
        drop(said);
        self.received = BytesMut::from(STAND_IN);
        self.ready = STAND_IN.len();
        self.state = State::Refused;
    }

    /// Whether there is something to give on, or the state changed; else more has to be received.
    fn advance(&mut self) -> io::Result<bool> {
        match self.state {
            State::Head => {
                // RFC 9112 2.2: some clients send an empty line behind a body.
                while self.received.starts_with(b"\r\n") {
                    self.received.advance(2);
                }
                if self.received.is_empty() || *self.received == *b"\r" {
                    return Ok(false);
                }
                // Nobody has a head read again with each octet of it.
                let news = &self.received[self.looked.min(self.received.len())..];
                if !news.contains(&b'\n') && self.received.len() < head::MAX_HEAD {
                    return Ok(false);
                }
                self.looked = self.received.len();
                match head::read(&self.received) {
                    Ok(None) => return Ok(false),
                    Err(refusal) => self.refuse(refusal),
                    Ok(Some(head)) => {
                        let mut said = self.line.lock();
                        said.heads += 1;
                        (said.fault, said.granted) = (None, None);
                        drop(said);
                        self.timer = None;
                        self.looked = 0;
                        self.ready = head.length;
                        self.state = match head.framing {
                            _ if head.upgrade => State::Held,
                            Framing::None | Framing::Sized(0) => State::Head,
                            Framing::Sized(length) => State::Sized(length),
                            Framing::Chunked => State::Chunked(Chunks::START),
                        };
                    }
                }
                Ok(true)
            }
            State::Chunked(mut chunks) => {
                if self.received.is_empty() {
                    return Ok(false);
                }
                match chunks.advance(&self.received) {
                    Ok(taken) => self.ready = taken,
                    Err(malformed) => {
                        self.line.lock().fault = Some(malformed.into());
                        self.state = State::Refused;
                        return Err(io::Error::new(io::ErrorKind::InvalidData, malformed));
                    }
                }
                self.state = if chunks == Chunks::End { State::Head } else { State::Chunked(chunks) };
                Ok(true)
            }
            State::Sized(left) => {
                self.ready = usize::try_from(left).unwrap_or(usize::MAX).min(self.received.len());
                self.body_advanced(left, self.ready);
                Ok(self.ready > 0)
            }
            State::Through => {
                self.ready = self.received.len();
                Ok(self.ready > 0)
            }
            State::Held | State::Refused | State::Ended => Ok(false),
        }
    }

    fn body_advanced(&mut self, left: u64, by: usize) {
        let left = left - by as u64;
        self.state = if left == 0 { State::Head } else { State::Sized(left) };
    }

    /// Nothing has come. A connection at rest holds no buffer.
    fn wait(&mut self, cx: &mut Context<'_>) -> Option<Wait> {
        if self.received.is_empty() {
            self.received = BytesMut::new();
        }
        self.is_late(cx)
    }

    /// Whether the client took too long for what comes next.
    fn is_late(&mut self, cx: &mut Context<'_>) -> Option<Wait> {
        let (is_first, is_busy) = {
            let mut said = self.line.lock();
            said.waiting = Some(cx.waker().clone());
            (said.heads == 0, said.answered < said.heads)
        };
        let wait = match self.state {
            State::Head if is_first => Wait::Opening,
            State::Head if !self.received.is_empty() => Wait::Head,
            State::Head if !is_busy => Wait::Idle,
            _ => {
                self.timer = None;
                return None;
            }
        };
        let until = || match wait {
            Wait::Opening => self.patience.opening,
            Wait::Head => Instant::now() + self.patience.head,
            Wait::Idle => Instant::now() + self.patience.idle,
        };
        let (_, sleep) = match &mut self.timer {
            Some(timer) if timer.0 == wait => timer,
            timer => timer.insert((wait, Box::pin(tokio::time::sleep_until(until())))),
        };
        sleep.as_mut().poll(cx).is_ready().then_some(wait)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guard<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let guard = self.get_mut();
        loop {
            if guard.ready > 0 {
                let given = guard.ready.min(buf.remaining());
                buf.put_slice(&guard.received[..given]);
                guard.received.advance(given);
                guard.ready -= given;
                return Poll::Ready(Ok(()));
            }
            if guard.advance()? {
                continue;
            }
            match guard.state {
                State::Ended => return Poll::Ready(Ok(())),
                // An end would be taken for the client's, and the answer not be sent. hyper ends it after that.
                State::Refused => return Poll::Pending,
                State::Held => {
                    let mut said = guard.line.lock();
                    let Some(granted) = said.granted else {
                        said.waiting = Some(cx.waker().clone());
                        return Poll::Pending;
                    };
                    guard.state = if granted { State::Through } else { State::Head };
                }
                State::Through => return Pin::new(&mut guard.io).poll_read(cx, buf),
                State::Sized(left) => {
                    // Straight to where hyper wants it.
                    let most = usize::try_from(left).unwrap_or(usize::MAX).min(buf.remaining());
                    let mut part = ReadBuf::new(buf.initialize_unfilled_to(most));
                    ready!(Pin::new(&mut guard.io).poll_read(cx, &mut part))?;
                    let filled = part.filled().len();
                    buf.advance(filled);
                    guard.body_advanced(left, filled);
                    return Poll::Ready(Ok(()));
                }
                State::Head | State::Chunked(_) => {
                    let received = match poll_receive(&mut guard.io, cx, &mut guard.received) {
                        Poll::Ready(received) => received?,
                        Poll::Pending => match guard.wait(cx) {
                            None => return Poll::Pending,
                            Some(Wait::Idle) => 0,
                            Some(Wait::Opening) if guard.received.is_empty() => 0,
                            Some(Wait::Opening | Wait::Head) => {
                                guard.refuse(Refusal::HeadTimeout);
                                continue;
                            }
                        },
                    };
                    if received == 0 {
                        guard.state = State::Ended;
                    }
                }
            }
        }
    }
}

fn poll_receive<S: AsyncRead + Unpin>(
    io: &mut S,
    cx: &mut Context<'_>,
    into: &mut BytesMut,
) -> Poll<io::Result<usize>> {
    into.reserve(PIECE);
    tokio_util::io::poll_read_buf(Pin::new(io), cx, into)
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, octets)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    /// What a client is still sending is thrown away for a moment: a socket that is closed over it takes back the answer.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let guard = self.get_mut();
        if guard.farewell.is_none() {
            ready!(Pin::new(&mut guard.io).poll_shutdown(cx))?;
        }
        if !matches!(guard.state, State::Refused | State::Sized(_) | State::Chunked(_)) {
            return Poll::Ready(Ok(()));
        }
        let (timer, left) =
            guard.farewell.get_or_insert_with(|| (Box::pin(tokio::time::sleep(FAREWELL)), FAREWELL_OCTETS));
        loop {
            guard.received.clear();
            match poll_receive(&mut guard.io, cx, &mut guard.received) {
                Poll::Ready(Ok(1..)) if *left > PIECE => *left -= guard.received.len().min(*left),
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return timer.as_mut().poll(cx).map(Ok),
            }
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        octets: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, octets)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
