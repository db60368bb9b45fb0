//! Pipes that carry bytes from socket to socket without bringing them into our memory.

use std::io;
use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with};

/// As much as an unprivileged process may ask for by default; the larger, the fewer calls per gigabyte.
const PIPE_SIZE: usize = 1 << 20;
/// Pipes at rest that are kept for the next transfer. More transfers than this at once make and drop their own.
const KEPT: usize = 16;

pub(crate) struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    size: usize,
    /// How many bytes are in it.
    filled: usize,
}

#[derive(Default)]
pub(crate) struct Pipes {
    at_rest: Vec<Pipe>,
}

impl Pipes {
    /// `None` where descriptors or memory for pipes are short: bytes can always be copied instead.
    pub(crate) fn take(&mut self) -> Option<Pipe> {
        self.at_rest.pop().or_else(|| Pipe::new().ok())
    }

    /// Only empty pipes come back; one with bytes of a connection that ended is dropped with them.
    pub(crate) fn give_back(&mut self, pipe: Pipe) {
        if pipe.filled == 0 && self.at_rest.len() < KEPT {
            self.at_rest.push(pipe);
        }
    }
}

impl Pipe {
    fn new() -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // Where the system allows less, the pipe keeps the size it was born with.
        let size = fcntl_setpipe_size(&write, PIPE_SIZE).unwrap_or(1 << 16);
        Ok(Self { read, write, size, filled: 0 })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Moves what `from` has into the pipe; zero means that `from` has ended. The pipe must be empty.
    pub(crate) fn fill(&mut self, from: &OwnedFd) -> rustix::io::Result<usize> {
        let moved = splice(from, &self.write, self.size)?;
        self.filled += moved;
        Ok(moved)
    }

    /// Moves what the pipe has on to `to`, as much as it takes.
    pub(crate) fn empty_into(&mut self, to: &OwnedFd) -> rustix::io::Result<usize> {
        let moved = splice(&self.read, to, self.filled)?;
        self.filled -= moved;
        Ok(moved)
    }
}

fn splice(from: &OwnedFd, to: &OwnedFd, length: usize) -> rustix::io::Result<usize> {
    rustix::pipe::splice(from, None, to, None, length, SpliceFlags::MOVE | SpliceFlags::NONBLOCK)
}
