//! Carries bytes between two sockets until both directions have ended.
//!
//! A side that ends its stream has that end passed on, and goes on receiving: `kubectl exec` and the like depend on it.
//! A connection at rest holds no buffer: bytes pass through the thread's own, and only what the other side does not
//! take at once is kept. Long transfers go through a pipe and never enter our memory.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::pipes::{Pipe, Pipes};
use crate::readiness::Readiness;

/// So many full buffers in a row make a transfer a long one.
const FULL_READS: u8 = 4;
/// A long transfer that brings less than this at a time is none any more: copying costs less than the calls of a pipe.
const WORTH_A_PIPE: usize = 16 * 1024;
/// So many steps, of up to a buffer or a pipe each, before others have their turn.
const STEPS_PER_TURN: usize = 16;

/// One way of a connection.
#[derive(Default)]
pub(crate) struct Direction {
    full_reads: u8,
    state: State,
    /// What has been read and not been taken yet.
    held: Option<Box<Held>>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    /// The source has ended; what is held is still to be sent.
    Ending,
    Ended,
}

enum Held {
    Bytes { bytes: Vec<u8>, sent: usize },
    Pipe(Pipe),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Until one of the sockets is ready again.
    Waits,
    /// There is more to do, but it is others' turn.
    Yields,
    Ended,
}

/// One socket of a connection and what is known of it.
pub(crate) struct Socket<'a> {
    pub(crate) fd: &'a OwnedFd,
    pub(crate) readiness: &'a mut Readiness,
}

/// What a thread lends to the connection at hand.
pub(crate) struct Lent<'a> {
    pub(crate) buffer: &'a mut [u8],
    pub(crate) pipes: &'a mut Pipes,
    /// Counts what was read.
    pub(crate) carried: &'a mut u64,
}

impl Direction {
    /// With bytes that were read before the other side was there.
    pub(crate) fn holding(bytes: Vec<u8>) -> Self {
        let held = (!bytes.is_empty()).then(|| Box::new(Held::Bytes { bytes, sent: 0 }));
        Self { held, ..Self::default() }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Carries on until a socket is not ready. An error means that the connection is broken for good.
    pub(crate) fn pump(
        &mut self,
        mut from: Socket<'_>,
        mut to: Socket<'_>,
        lent: &mut Lent<'_>,
    ) -> Result<Flow, Errno> {
        for _ in 0..STEPS_PER_TURN {
            if self.state == State::Ended {
                return Ok(Flow::Ended);
            }
            if !self.send_held(&mut to)? {
                return Ok(Flow::Waits);
            }
            if self.state == State::Ending {
                self.release_pipe(lent);
                self.state = State::Ended;
                return Ok(Flow::Ended);
            }
            if !from.readiness.readable() {
                self.release_pipe(lent);
                return Ok(Flow::Waits);
            }
            self.start_pipe(lent);
            let read = match self.held.as_deref_mut() {
                Some(Held::Pipe(pipe)) => {
                    let moved = pipe.fill(from.fd);
                    if moved.is_ok_and(|moved| moved < WORTH_A_PIPE) {
                        self.full_reads = 0;
                    }
                    moved
                }
                Some(Held::Bytes { .. }) | None => self.copy(&mut from, &mut to, lent),
            };
            match read {
                Ok(0) => self.state = State::Ending,
                Ok(count) => *lent.carried += count as u64,
                Err(Errno::AGAIN) => from.readiness.clear_readable(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Flow::Yields)
    }

    /// Tells the other side that no more comes.
    pub(crate) fn pass_on_end(to: &OwnedFd) {
        // A socket that is gone already needs no telling.
        let _ = shutdown(to, Shutdown::Write);
    }

    /// Whether nothing is held any more.
    fn send_held(&mut self, to: &mut Socket<'_>) -> Result<bool, Errno> {
        loop {
            let (empty, sent) = match self.held.as_deref_mut() {
                None => return Ok(true),
                Some(Held::Pipe(pipe)) if pipe.is_empty() => return Ok(true),
                Some(_) if !to.readiness.writable() => return Ok(false),
                Some(Held::Pipe(pipe)) => {
                    let sent = pipe.empty_into(to.fd);
                    (pipe.is_empty(), sent)
                }
                Some(Held::Bytes { bytes, sent }) => {
                    let now = send(to.fd, &bytes[*sent..], SendFlags::NOSIGNAL);
                    *sent += now.unwrap_or(0);
                    (*sent == bytes.len(), now)
                }
            };
            match sent {
                Ok(_) if empty => {
                    if let Some(Held::Bytes { .. }) = self.held.as_deref() {
                        self.held = None;
                    }
                    return Ok(true);
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    to.readiness.clear_writable();
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// One read into the thread's buffer, and on.
    fn copy(&mut self, from: &mut Socket<'_>, to: &mut Socket<'_>, lent: &mut Lent<'_>) -> Result<usize, Errno> {
        let (count, _) = recv(from.fd, &mut *lent.buffer, RecvFlags::empty())?;
        if count == 0 {
            return Ok(0);
        }
        if count < lent.buffer.len() {
            self.full_reads = 0;
            // epoll(7): less than was asked for means that there is no more, unless the end is near.
            from.readiness.clear_readable_unless_ending();
        } else {
            self.full_reads = self.full_reads.saturating_add(1);
        }
        let bytes = &lent.buffer[..count];
        let sent = if to.readiness.writable() { send(to.fd, bytes, SendFlags::NOSIGNAL) } else { Err(Errno::AGAIN) };
        match sent {
            Ok(sent) if sent == count => {}
            Ok(sent) => self.held = Some(Box::new(Held::Bytes { bytes: bytes[sent..].to_vec(), sent: 0 })),
            Err(Errno::AGAIN | Errno::INTR) => {
                to.readiness.clear_writable();
                self.held = Some(Box::new(Held::Bytes { bytes: bytes.to_vec(), sent: 0 }));
            }
            Err(error) => return Err(error),
        }
        Ok(count)
    }

    /// A long transfer goes on through a pipe, also after it has paused.
    fn start_pipe(&mut self, lent: &mut Lent<'_>) {
        if self.full_reads >= FULL_READS && self.held.is_none() {
            self.held = lent.pipes.take().map(|pipe| Box::new(Held::Pipe(pipe)));
        }
    }

    /// At rest nothing is held: a pipe is two descriptors and up to a megabyte.
    fn release_pipe(&mut self, lent: &mut Lent<'_>) {
        if let Some(Held::Pipe(_)) = self.held.as_deref()
            && let Some(held) = self.held.take()
            && let Held::Pipe(pipe) = *held
        {
            lent.pipes.give_back(pipe);
        }
    }
}
