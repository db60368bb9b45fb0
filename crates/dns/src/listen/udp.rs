//! UDP: a thread and a socket of its own for each core; the kernel spreads clients over them.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::Shared;
use super::batch::{self, Batch, Exchange};
use crate::limit::Verdict;
use crate::metrics::{Limited, Tally};
use crate::query::{self, Client, Transport};
use crate::recent::{Ring, unix_time};

/// What the kernel holds for us while all are answered that came before: some ten thousand queries, 40 ms at full
/// speed. It grants what `net.core.rmem_max` allows.
const RECEIVE_BUFFER: usize = 8 * 1024 * 1024;
/// How soon a thread without queries notices that it is to end. A socket that another process takes over cannot be shut
/// down to wake it: it would be shut down for both.
const LOOK_UP: Duration = Duration::from_millis(200);
/// Errors of a socket that do not come from one packet or client (no memory) pass by themselves; until then the loop
/// must not spin.
const AFTER_ERROR: Duration = Duration::from_millis(20);
/// How many queries of one batch go into the ring of recent ones: all of them as long as there are few, and so few of
/// many that the ring still holds a while.
const RECENT_PER_BATCH: usize = 4;

/// The sockets of one address.
pub(super) fn bind(address: SocketAddr, count: usize) -> io::Result<Vec<UdpSocket>> {
    // The first binds without sharing the port, so that another server on it is an error; only then it lets ours join.
    let first = open(address)?;
    first.bind(&address.into())?;
    let first: UdpSocket = first.into();
    let address = first.local_addr()?;
    SockRef::from(&first).set_reuse_port(count > 1)?;
    let mut sockets = vec![first];
    for _ in 1..count {
        let socket = open(address)?;
        socket.set_reuse_port(true)?;
        socket.bind(&address.into())?;
        sockets.push(socket.into());
    }
    if address.ip().is_unspecified() {
        sockets.iter().try_for_each(|socket| batch::ask_for_addresses(socket, address.is_ipv6()))?;
    }
    Ok(sockets)
}

fn open(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    // Less is slower under bursts, but works.
    let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
    socket.set_read_timeout(Some(LOOK_UP))?;
    Ok(socket)
}

/// The threads that answer. Dropped, they end; every query that was received before is answered.
#[derive(Debug)]
pub(super) struct Workers {
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    pub(super) fn start(sockets: Vec<UdpSocket>, shared: &Shared) -> io::Result<Self> {
        let mut workers = Self { stopping: Arc::default(), threads: Vec::new() };
        for (number, socket) in sockets.into_iter().enumerate() {
            let wildcard = socket.local_addr()?.ip().is_unspecified();
            let worker = Worker {
                socket,
                stopping: Arc::clone(&workers.stopping),
                shared: shared.clone(),
                ring: shared.recent.ring(),
                begun: Instant::now(),
                slips: 0,
            };
            let thread = std::thread::Builder::new().name(format!("dns-udp-{number}"));
            workers.threads.push(thread.spawn(move || worker.run(Batch::new(wildcard)))?);
        }
        Ok(workers)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a DNS thread panicked");
            }
        }
    }
}

struct Worker {
    socket: UdpSocket,
    stopping: Arc<AtomicBool>,
    shared: Shared,
    ring: Ring,
    begun: Instant,
    /// Counts answers that were held back.
    slips: u32,
}

impl Worker {
    fn run(mut self, mut batch: Batch) {
        // What was received is answered, also by one that is to end.
        while !self.stopping.load(Ordering::Acquire) {
            match batch.receive(&self.socket) {
                Ok(received) => {
                    self.answer(&mut batch, received);
                    let failed = batch.send(&self.socket);
                    if failed > 0 {
                        tracing::debug!(failed, "UDP answers were not sent");
                    }
                }
                Err(error) => pause_after(&error),
            }
        }
    }

    fn answer(&mut self, batch: &mut Batch, received: usize) {
        let shared = &self.shared;
        let index = shared.index.load();
        let mut ring = self.ring.open();
        let mut tally = Tally::new(&shared.metrics, Transport::Udp);
        let now = unix_time();
        let elapsed = self.begun.elapsed();
        for number in 0..received {
            let Some(Exchange { peer, request, response }) = batch.exchange(number) else { continue };
            // RFC 9018 4.3: cookies count in 32 bits that wrap.
            #[allow(clippy::cast_possible_truncation)]
            let client = Client { address: peer, transport: Transport::Udp, now: now.as_secs() as u32 };
            let answered = super::answer_one(&index, &shared.settings, &client, request, response);
            tally.count(answered.as_ref().map(|(_, outcome)| outcome));
            let Some((length, outcome)) = answered else { continue };
            if number < RECENT_PER_BATCH {
                ring.push(now, &client, request, &outcome);
            }
            if outcome.proven {
                batch.queue(number, length);
                continue;
            }
            match shared.limiter.check(peer, outcome.kind, elapsed, &mut self.slips) {
                Verdict::Send => batch.queue(number, length),
                Verdict::Drop => shared.metrics.limited(Limited::Dropped),
                Verdict::Slip => {
                    shared.metrics.limited(Limited::PutOff);
                    let length = query::put_off(&shared.settings, &client, request, response);
                    batch.queue(number, length);
                }
            }
        }
    }
}

/// No error ends the loop: what one packet caused is forgotten at once, anything else after a moment.
fn pause_after(error: &io::Error) {
    use io::ErrorKind::{ConnectionRefused, Interrupted, WouldBlock};
    if matches!(error.kind(), ConnectionRefused | Interrupted | WouldBlock) {
        return;
    }
    tracing::warn!(%error, "receiving DNS queries");
    std::thread::sleep(AFTER_ERROR);
}
