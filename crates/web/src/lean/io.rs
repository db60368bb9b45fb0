//! What connections share with the others of their thread, so that one that rests has nothing of its own.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Instant, Sleep};

/// One read: as much as a socket holds on most machines, in no more calls than needed.
const PIECE: usize = 64 << 10;
/// Buffers that wait for the next request. More are busy only where more requests are.
const MAX_SPARE: usize = 128;
/// A buffer that grew beyond is not kept.
const MAX_KEPT: usize = 32 << 10;

thread_local! {
    static PIECES: RefCell<Box<[u8]>> = RefCell::new(vec![0; PIECE].into());
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Adds what there is to `into`; 0 is the end.
pub(super) fn poll_receive<S: AsyncRead + Unpin>(
    stream: &mut S,
    cx: &mut Context<'_>,
    into: &mut Vec<u8>,
) -> Poll<io::Result<usize>> {
    PIECES.with_borrow_mut(|piece| {
        let mut piece = ReadBuf::new(piece);
        ready!(Pin::new(stream).poll_read(cx, &mut piece))?;
        if into.capacity() == 0 {
            *into = take_buffer();
        }
        into.extend_from_slice(piece.filled());
        Poll::Ready(Ok(piece.filled().len()))
    })
}

/// An empty buffer.
pub(super) fn take_buffer() -> Vec<u8> {
    SPARE.with_borrow_mut(Vec::pop).unwrap_or_default()
}

pub(super) fn give_buffer(buffer: &mut Vec<u8>) {
    let mut buffer = std::mem::take(buffer);
    buffer.clear();
    SPARE.with_borrow_mut(|spare| {
        if (1..=MAX_KEPT).contains(&buffer.capacity()) && spare.len() < MAX_SPARE {
            spare.push(buffer);
        }
    });
}

/// A time-out that is set with every step and rarely met: the timer is left alone where the new one is later.
pub(super) struct Clock {
    sleep: Pin<Box<Sleep>>,
    deadline: Instant,
}

impl Clock {
    pub(super) fn new(deadline: Instant) -> Self {
        Self { sleep: Box::pin(tokio::time::sleep_until(deadline)), deadline }
    }

    pub(super) fn set(&mut self, deadline: Instant) {
        self.deadline = deadline;
        if deadline < self.sleep.deadline() {
            self.sleep.as_mut().reset(deadline);
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(super) fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.sleep.as_mut().poll(cx));
            if self.sleep.deadline() >= self.deadline {
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(self.deadline);
        }
    }
}
