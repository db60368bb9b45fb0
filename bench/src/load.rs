//! Clients and control planes for a proxy to stand between, made to cost as little as they can: what is measured is the
//! proxy. Both run in threads of this process, pinned to the core that the proxy does not have.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use gateway::proxy_header::{Encoder, TLV_HYPERSHIFT_CLUSTER_ID};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, sockopt};
use slab::Slab;

/// What a client sends behind the header; the control plane sends the same number of bytes back and closes.
const REQUEST: [u8; 64] = [b'q'; 64];
/// A request that begins like this asks for a flood of bytes until the client has had enough.
const FLOOD: [u8; 64] = [b'f'; 64];
/// A request that begins like this is never answered: the connection rests.
const REST: [u8; 64] = [b'r'; 64];
/// One send of the flood.
const CHUNK: usize = 256 * 1024;
const PATIENCE: Duration = Duration::from_secs(30);

/// A control plane that does what the first byte of a request asks for, until it is dropped.
pub struct Backend {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Backend {
    pub fn start() -> anyhow::Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").context("binding a backend")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        // The standard library listens with a queue of 128, which bursts of connections overflow.
        rustix::net::listen(&listener, 4096)?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            if let Err(error) = answer(&OwnedFd::from(listener), &told) {
                eprintln!("a backend ended: {error}");
            }
        });
        Ok(Self { address, stop, thread: Some(thread) })
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(listener: &OwnedFd, stop: &AtomicBool) -> io::Result<()> {
    const LISTENER: u64 = u64::MAX;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let mut connections: Slab<(OwnedFd, bool)> = Slab::new();
    let mut events = Vec::with_capacity(256);
    let flood = vec![0; CHUNK];
    while !stop.load(Ordering::Acquire) {
        events.clear();
        wait(&epoll, &mut events, Duration::from_millis(100))?;
        for event in &events {
            let data = event.data.u64();
            if data == LISTENER {
                while let Ok(client) = rustix::net::accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)
                {
                    let place = connections.vacant_entry();
                    let interest = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
                    epoll::add(&epoll, &client, EventData::new_u64(place.key() as u64), interest)?;
                    place.insert((client, false));
                }
                continue;
            }
            let Some((client, flooding)) = usize::try_from(data).ok().and_then(|key| connections.get_mut(key)) else {
                continue;
            };
            if !respond(client, flooding, &flood) {
                connections.remove(usize::try_from(data).unwrap_or_default());
            }
        }
    }
    Ok(())
}

/// Whether the connection goes on.
fn respond(client: &OwnedFd, flooding: &mut bool, flood: &[u8]) -> bool {
    let mut request = [0; 256];
    if !*flooding {
        match rustix::net::recv(client, &mut request, RecvFlags::empty()) {
            Ok((0, _)) => return false,
            Ok((count, _)) => match request[0] {
                b'r' => return true,
                b'f' => *flooding = true,
                _ => {
                    let _ = rustix::net::send(client, &request[..count], SendFlags::NOSIGNAL);
                    return false;
                }
            },
            Err(Errno::AGAIN) => return true,
            Err(_) => return false,
        }
    }
    loop {
        match rustix::net::send(client, flood, SendFlags::NOSIGNAL) {
            Ok(_) => {}
            Err(Errno::AGAIN) => return true,
            Err(_) => return false,
        }
    }
}

/// A header for every cluster, so that nothing is encoded while the clock runs.
pub struct Headers(Vec<Vec<u8>>);

impl Headers {
    pub fn new(ids: impl IntoIterator<Item = String>, door: SocketAddr) -> anyhow::Result<Self> {
        let client = "127.0.0.1:40000".parse()?;
        let encode = |id: String| Encoder::proxy(client, door).tlv(TLV_HYPERSHIFT_CLUSTER_ID, id.as_bytes()).finish();
        Ok(Self(ids.into_iter().map(encode).collect::<Result<_, _>>()?))
    }

    /// For every cluster what a client sends that wants an answer.
    pub(crate) fn openings(&self) -> Vec<Vec<u8>> {
        (0..self.0.len()).map(|number| self.opening(number, &REQUEST)).collect()
    }

    fn opening(&self, number: usize, request: &[u8]) -> Vec<u8> {
        [&self.0[number % self.0.len()], request].concat()
    }
}

/// New connections through a door, `concurrent` at a time, for as long as `time`; how many were answered in full.
pub fn connections(door: SocketAddr, headers: &Headers, concurrent: usize, time: Duration) -> anyhow::Result<u64> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let openings = headers.openings();
    let mut clients: Vec<Client> = Vec::with_capacity(concurrent);
    let mut begun = 0;
    for slot in 0..concurrent {
        clients.push(Client::begin(door, &openings[begun % openings.len()], &epoll, slot)?);
        begun += 1;
    }
    let mut answered = 0;
    let mut events = Vec::with_capacity(256);
    let deadline = Instant::now() + time;
    while Instant::now() < deadline {
        events.clear();
        wait(&epoll, &mut events, PATIENCE)?;
        ensure!(!events.is_empty(), "the proxy at {door} does not answer any more");
        for event in &events {
            let slot = usize::try_from(event.data.u64())?;
            match clients[slot].proceed() {
                Progress::Waits => {}
                Progress::Answered => {
                    answered += 1;
                    clients[slot] = Client::begin(door, &openings[begun % openings.len()], &epoll, slot)?;
                    begun += 1;
                }
                Progress::Refused => bail!("the proxy at {door} closed a connection without an answer"),
            }
        }
    }
    Ok(answered)
}

/// One connection, from its beginning to the end of its answer.
pub(crate) struct Client {
    socket: OwnedFd,
    /// What could not be sent at once.
    unsent: Vec<u8>,
    received: usize,
}

pub(crate) enum Progress {
    Waits,
    Answered,
    /// Closed, reset, or never let in: whatever it was, there is no answer.
    Refused,
}

impl Client {
    pub(crate) fn begin(door: SocketAddr, opening: &[u8], epoll: &OwnedFd, slot: usize) -> anyhow::Result<Self> {
        let socket = connect(door)?;
        // On loopback the connection is there already; what is wrong with it comes up again when it proceeds.
        let sent = rustix::net::send(&socket, opening, SendFlags::NOSIGNAL).unwrap_or(0);
        let interest = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
        epoll::add(epoll, &socket, EventData::new_u64(slot as u64), interest)?;
        Ok(Self { socket, unsent: opening[sent..].to_vec(), received: 0 })
    }

    pub(crate) fn proceed(&mut self) -> Progress {
        if !self.unsent.is_empty() {
            match rustix::net::send(&self.socket, &self.unsent, SendFlags::NOSIGNAL) {
                Ok(count) => _ = self.unsent.drain(..count),
                Err(Errno::AGAIN) => return Progress::Waits,
                Err(_) => return Progress::Refused,
            }
        }
        let mut response = [0; 256];
        loop {
            match rustix::net::recv(&self.socket, &mut response, RecvFlags::empty()) {
                Ok((0, _)) if self.received == REQUEST.len() => return Progress::Answered,
                Ok((0, _)) => return Progress::Refused,
                Ok((count, _)) => self.received += count,
                Err(Errno::AGAIN) => return Progress::Waits,
                Err(_) => return Progress::Refused,
            }
        }
    }
}

/// Takes so many bytes through one connection, and throws them away.
pub fn flood(door: SocketAddr, headers: &Headers, bytes: u64) -> anyhow::Result<()> {
    let mut stream = std::net::TcpStream::connect(door)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    io::Write::write_all(&mut stream, &headers.opening(0, &FLOOD))?;
    let mut taken = 0;
    let mut nowhere = vec![0; CHUNK];
    while taken < bytes {
        // MSG_TRUNC: the kernel drops the bytes without copying them.
        let (_, count) = rustix::net::recv(&stream, &mut *nowhere, RecvFlags::TRUNC)?;
        ensure!(count > 0, "the proxy closed the connection after {taken} bytes");
        taken += count as u64;
    }
    Ok(())
}

/// Opens so many connections that reach their control planes and then rest.
pub fn resting(door: SocketAddr, headers: &Headers, count: usize) -> anyhow::Result<Vec<std::net::TcpStream>> {
    let open = |number| {
        let mut stream = std::net::TcpStream::connect(door)?;
        io::Write::write_all(&mut stream, &headers.opening(number, &REST))?;
        Ok(stream)
    };
    (0..count).map(open).collect()
}

/// Whether the door leads to the first of these clusters.
pub fn is_answered(door: SocketAddr, headers: &Headers) -> bool {
    let ask = || {
        let mut stream = std::net::TcpStream::connect(door)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        io::Write::write_all(&mut stream, &headers.opening(0, &REQUEST))?;
        let mut response = Vec::new();
        io::Read::read_to_end(&mut stream, &mut response)
    };
    ask().is_ok_and(|count: usize| count == REQUEST.len())
}

/// Whether a connection that rests has neither ended nor been answered.
pub fn is_resting(connection: &std::net::TcpStream) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    rustix::net::recv(connection, &mut [0; 1], flags).is_err_and(|error| error == Errno::AGAIN)
}

fn connect(address: SocketAddr) -> anyhow::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => bail!("connecting to {address}: {error}"),
    }
}

pub(crate) fn wait(epoll: &OwnedFd, events: &mut Vec<epoll::Event>, time: Duration) -> io::Result<()> {
    let timeout = Timespec::try_from(time).map_err(io::Error::other)?;
    match epoll::wait(epoll, spare_capacity(events), Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
