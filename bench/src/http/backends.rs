//! Servers that answer every request with the same few octets, on the loop of whoever measures.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use anyhow::Context as _;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, sockopt};
use slab::Slab;

/// Asked for this, a backend answers with the head of the request as it came.
pub(super) const MIRROR: &str = "/mirror";
pub(super) const BODY: usize = 128;

pub(super) struct Backends {
    listeners: Vec<OwnedFd>,
    pub(super) addresses: Vec<SocketAddr>,
    responses: Vec<Vec<u8>>,
    connections: Slab<Connection>,
}

struct Connection {
    socket: OwnedFd,
    backend: usize,
    /// Of a head that is not complete.
    received: Vec<u8>,
}

impl Backends {
    pub(super) fn start(count: usize) -> anyhow::Result<Self> {
        let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let listener = TcpListener::bind("127.0.0.1:0").context("binding a backend")?;
            listener.set_nonblocking(true)?;
            rustix::net::listen(&listener, 4096)?;
            addresses.push(listener.local_addr()?);
            listeners.push(OwnedFd::from(listener));
        }
        Ok(Self { listeners, addresses, responses: (0..count).map(response).collect(), connections: Slab::new() })
    }

    /// Events carry these marks: of a listener, or of a connection.
    pub(super) fn watch(&self, epoll: &OwnedFd, mark: impl Fn(usize) -> u64) -> anyhow::Result<()> {
        for (number, listener) in self.listeners.iter().enumerate() {
            epoll::add(epoll, listener, EventData::new_u64(mark(number)), EventFlags::IN)?;
        }
        Ok(())
    }

    pub(super) fn accept(
        &mut self,
        backend: usize,
        epoll: &OwnedFd,
        mark: impl Fn(usize) -> u64,
    ) -> anyhow::Result<()> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        while let Ok(socket) = rustix::net::accept_with(&self.listeners[backend], flags) {
            sockopt::set_tcp_nodelay(&socket, true)?;
            let place = self.connections.vacant_entry();
            epoll::add(epoll, &socket, EventData::new_u64(mark(place.key())), EventFlags::IN)?;
            place.insert(Connection { socket, backend, received: Vec::new() });
        }
        Ok(())
    }

    /// Something came on a connection, or it ended.
    pub(super) fn answer(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if !connection.answer(&self.responses) {
            self.connections.remove(key);
        }
    }
}

impl Connection {
    /// Whether it goes on.
    fn answer(&mut self, responses: &[Vec<u8>]) -> bool {
        let mut buffer = [0; 8192];
        let count = match rustix::net::recv(&self.socket, &mut buffer, RecvFlags::empty()) {
            Ok((0, _)) => return false,
            Ok((count, _)) => count,
            Err(error) => return error == Errno::AGAIN,
        };
        let response = &responses[self.backend];
        // The usual: one request, and all of it.
        if self.received.is_empty() && ends(&buffer[..count]) == Some(count) && !asks_for_mirror(&buffer) {
            return rustix::net::send(&self.socket, response, SendFlags::NOSIGNAL) == Ok(response.len());
        }
        self.received.extend_from_slice(&buffer[..count]);
        while let Some(end) = ends(&self.received) {
            let head: Vec<u8> = self.received.drain(..end).collect();
            let mirrored = asks_for_mirror(&head).then(|| mirror(&head));
            let response = mirrored.as_ref().unwrap_or(response);
            if rustix::net::send(&self.socket, response, SendFlags::NOSIGNAL) != Ok(response.len()) {
                return false;
            }
        }
        true
    }
}

/// Where the first head ends. Requests have no bodies here.
pub(super) fn ends(octets: &[u8]) -> Option<usize> {
    octets.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

fn asks_for_mirror(head: &[u8]) -> bool {
    head.get(4..).is_some_and(|rest| rest.starts_with(MIRROR.as_bytes()))
}

fn response(backend: usize) -> Vec<u8> {
    let body = format!("{backend:<BODY$}");
    let head = "HTTP/1.1 200 OK\r\nserver: backend\r\ndate: Mon, 01 Jan 2024 00:00:00 GMT\r\ncontent-type: text/plain";
    format!("{head}\r\ncache-control: no-store\r\ncontent-length: {BODY}\r\n\r\n{body}").into_bytes()
}

fn mirror(head: &[u8]) -> Vec<u8> {
    let mut response = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", head.len()).into_bytes();
    response.extend_from_slice(head);
    response
}
