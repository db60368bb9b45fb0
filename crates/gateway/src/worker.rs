//! One thread per core: its share of the connections, and the loop that advances those whose sockets are ready.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use slab::Slab;

use crate::address::PeerAddr;
use crate::connection::{Connection, Expiry, Next};
use crate::deadlines::Deadlines;
use crate::doorway::{Doorway, Way};
use crate::limits::openings::{Entered, Openings, Undecided};
use crate::listen::Settings;
use crate::pipes::Pipes;
use crate::refusal::Refusal;
use crate::token::{Side, Token};

/// One read of this size empties a socket's usual receive window; one per thread, so that its size costs nothing.
const BUFFER: usize = 64 * 1024;
/// Enough to keep a busy thread from asking for each event by itself.
const EVENTS: usize = 256;
/// New connections per turn, before those that are there have theirs.
const ACCEPTS_PER_TURN: usize = 64;
/// While descriptors or memory are short, asking again at once would only burn the processor that could free some.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a client that was sent an alert has to close.
const FAREWELL: Duration = Duration::from_secs(1);
/// A connection that is older has more to come, and is given what short ones are spared.
const LASTING: Duration = Duration::from_secs(2);
/// How soon a thread with connections notices a snapshot that lets fewer clients in.
const PATROL: Duration = Duration::from_secs(1);

pub(crate) struct Worker {
    doors: Vec<OpenDoor>,
    connections: Slab<Connection>,
    generation: u32,
    opening: Deadlines,
    /// Those that used up their turn.
    busy: Vec<Token>,
    accept_again_at: Option<Instant>,
    accept_fails: bool,
    cut_disallowed: bool,
    /// When the snapshot was last compared, and which one it was.
    patrolled: Instant,
    revision: u64,
    shutdown: Arc<Shutdown>,
    tools: Tools,
}

struct OpenDoor {
    /// Gone once no more are taken.
    listener: Option<Arc<OwnedFd>>,
    doorway: Arc<Doorway>,
    /// This thread's share of those that have not said yet where they want to go.
    undecided: Undecided<Token>,
}

/// A door as all threads share it.
pub(crate) struct ServedDoor {
    pub(crate) listener: Arc<OwnedFd>,
    pub(crate) doorway: Arc<Doorway>,
    pub(crate) openings: Arc<Openings>,
}

/// What a thread lends to the connection at hand.
pub(crate) struct Tools {
    epoll: OwnedFd,
    pub(crate) buffer: Box<[u8]>,
    pub(crate) pipes: Pipes,
    pub(crate) connecting: Deadlines,
    pub(crate) farewell: Deadlines,
    pub(crate) lasting: Deadlines,
    pub(crate) idle: Deadlines,
    /// When this turn began.
    pub(crate) now: Instant,
    /// Per door; told to the metrics once a turn.
    pub(crate) carried: Vec<Carried>,
}

#[derive(Default)]
pub(crate) struct Carried {
    pub(crate) to_upstream: u64,
    pub(crate) to_client: u64,
}

/// How a thread learns that it is to end.
pub(crate) struct Shutdown {
    pub(crate) wake: OwnedFd,
    pub(crate) asked: AtomicBool,
    pub(crate) until: std::sync::OnceLock<Instant>,
}

/// What an event is about.
enum Target {
    Wake,
    Door(usize),
    Connection(Token, Side),
}

impl Tools {
    fn new(epoll: OwnedFd, settings: &Settings, doors: usize) -> Self {
        Self {
            epoll,
            buffer: vec![0; BUFFER].into(),
            pipes: Pipes::default(),
            connecting: Deadlines::new(settings.timeouts.connect),
            farewell: Deadlines::new(FAREWELL),
            lasting: Deadlines::new(LASTING),
            idle: Deadlines::new(settings.timeouts.idle),
            now: Instant::now(),
            carried: (0..doors).map(|_| Carried::default()).collect(),
        }
    }

    /// Edge-triggered and for everything at once: a socket is told of once, and never again.
    pub(crate) fn register(&self, socket: &OwnedFd, token: Token, side: Side) -> Result<(), Errno> {
        let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, socket, Target::Connection(token, side).encode(), interest)
    }

    /// Is told of no more, if it was.
    pub(crate) fn forget(&self, socket: &OwnedFd) {
        let _ = epoll::delete(&self.epoll, socket);
    }
}

impl Worker {
    pub(crate) fn new(doors: &[ServedDoor], settings: &Settings, shutdown: Arc<Shutdown>) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &shutdown.wake, Target::Wake.encode(), EventFlags::IN)?;
        let worker = Self {
            doors: doors
                .iter()
                .map(|door| OpenDoor {
                    listener: Some(Arc::clone(&door.listener)),
                    doorway: Arc::clone(&door.doorway),
                    undecided: Undecided::new(Arc::clone(&door.openings)),
                })
                .collect(),
            connections: Slab::new(),
            generation: 0,
            opening: Deadlines::new(settings.timeouts.opening),
            busy: Vec::new(),
            accept_again_at: None,
            accept_fails: false,
            cut_disallowed: settings.cut_disallowed,
            patrolled: Instant::now(),
            revision: 0,
            shutdown,
            tools: Tools::new(epoll, settings, doors.len()),
        };
        worker.watch_doors()?;
        Ok(worker)
    }

    pub(crate) fn run(mut self) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        while !self.is_done() {
            let timeout = self.time_to_wait();
            events.clear();
            match epoll::wait(&self.tools.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return tracing::error!(%error, "a thread of the doors ends: its events cannot be read"),
            }
            self.tools.now = Instant::now();
            for event in &events {
                let (data, flags) = (event.data, event.flags);
                match Target::decode(data) {
                    Target::Wake => self.close_doors(),
                    Target::Door(door) => self.accept(door),
                    Target::Connection(token, side) => self.on_event(token, side, flags),
                }
            }
            for token in std::mem::take(&mut self.busy) {
                self.advance(token);
            }
            self.expire();
            self.patrol();
            self.tell_metrics();
        }
        for (_, connection) in &self.connections {
            self.doors[usize::from(connection.door)].doorway.leave();
        }
    }

    fn on_event(&mut self, token: Token, side: Side, flags: EventFlags) {
        let place = self.connections.get_mut(token.index as usize);
        // An event of this very batch may have ended it, and another one may have taken its place.
        if let Some(connection) = place.filter(|connection| connection.token == token) {
            connection.note(side, flags, self.tools.now);
            self.advance(token);
        }
    }

    fn advance(&mut self, token: Token) {
        self.with(token, Connection::advance);
    }

    /// Lets a connection take a step, and does what follows from it.
    fn with(&mut self, token: Token, step: impl FnOnce(&mut Connection, &Doorway, &mut Tools) -> Next) {
        let place = self.connections.get_mut(token.index as usize);
        let Some(connection) = place.filter(|connection| connection.token == token) else { return };
        let OpenDoor { doorway, undecided, .. } = &mut self.doors[usize::from(connection.door)];
        let next = guarded(&mut self.tools, |tools| step(connection, doorway, tools));
        if next == Next::End || !connection.is_opening() {
            connection.opening_place.take().into_iter().for_each(|place| undecided.leave(place));
        }
        match next {
            Next::Wait => {}
            Next::Yield => self.busy.push(token),
            Next::End => {
                doorway.leave();
                self.connections.remove(token.index as usize);
            }
        }
    }

    fn accept(&mut self, door: usize) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = &self.doors[door].listener else { return };
            match acceptfrom_with(listener.as_fd(), SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok((client, peer)) => {
                    self.accept_fails = false;
                    // A TCP socket's peer has an address; one that is gone already has none, and no use either.
                    if let Some(peer) = peer.and_then(|peer| SocketAddr::try_from(peer).ok()) {
                        self.enter(client, PeerAddr(peer), door);
                    }
                }
                Err(Errno::AGAIN) => return,
                // That connection's own end; the next may be fine.
                Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO) => {}
                Err(error) => return self.pause_accepting(door, error),
            }
        }
    }

    fn enter(&mut self, client: OwnedFd, peer: PeerAddr, door: usize) {
        let place = self.connections.vacant_entry();
        // Both fit: doors are two, and the room of a door is far below 2^32.
        #[allow(clippy::cast_possible_truncation)]
        let (index, door_number) = (place.key() as u32, door as u8);
        self.generation = (self.generation + 1) & Token::GENERATIONS;
        let token = Token { index, generation: self.generation };
        let mut connection = Connection::new(token, door_number, client, peer, self.tools.now);

        let doorway = &self.doors[door].doorway;
        let next = guarded(&mut self.tools, |tools| {
            if doorway.enter() {
                return connection.advance(doorway, tools);
            }
            connection.refuse(&Refusal::TooManyConnections(doorway.max_connections), doorway, tools)
        });
        // Most that are refused, and the shortest, are never told to the kernel at all.
        if next == Next::End || self.tools.register(connection.client(), token, Side::Client).is_err() {
            doorway.leave();
            return;
        }
        if next == Next::Yield {
            self.busy.push(token);
        }
        let mut displaced = None;
        if connection.is_opening() {
            self.opening.add(token, self.tools.now);
            // Only who takes its time comes here: whose opening came along has been decided about already.
            let place = match self.doors[door].undecided.enter(token, peer.ip()) {
                Entered::Freely(place) => place,
                Entered::InsteadOf { place, oldest, refusal } => {
                    displaced = Some((oldest, refusal));
                    place
                }
            };
            connection.opening_place = Some(place);
        }
        place.insert(connection);
        if let Some((oldest, refusal)) = displaced {
            self.with(oldest, |connection, doorway, tools| connection.refuse(&refusal, doorway, tools));
        }
    }

    fn pause_accepting(&mut self, door: usize, error: Errno) {
        let doorway = &self.doors[door].doorway;
        doorway.metrics.accept_errors.inc();
        // Once for all tries until one succeeds: they come twenty times a second.
        if !std::mem::replace(&mut self.accept_fails, true) {
            tracing::warn!(door = %doorway.kind, %error, "no connection can be accepted for now");
        }
        for door in &self.doors {
            if let Some(listener) = &door.listener {
                let _ = epoll::delete(&self.tools.epoll, listener.as_fd());
            }
        }
        self.accept_again_at = Some(self.tools.now + ACCEPT_PAUSE);
    }

    /// One listener for all threads, of which the kernel wakes one: its queue has no owner that could take it along.
    fn watch_doors(&self) -> Result<(), Errno> {
        for (number, door) in self.doors.iter().enumerate() {
            if let Some(listener) = &door.listener {
                let interest = EventFlags::IN | EventFlags::EXCLUSIVE;
                epoll::add(&self.tools.epoll, listener.as_fd(), Target::Door(number).encode(), interest)?;
            }
        }
        Ok(())
    }

    fn expire(&mut self) {
        let now = self.tools.now;
        while let Some((at, token)) = self.opening.pop_due(now) {
            self.with(token, |connection, doorway, tools| connection.expire(Expiry::Opening, at, doorway, tools));
        }
        while let Some((at, token)) = self.tools.connecting.pop_due(now) {
            self.with(token, |connection, doorway, tools| connection.expire(Expiry::Connecting, at, doorway, tools));
        }
        while let Some((at, token)) = self.tools.farewell.pop_due(now) {
            self.with(token, |connection, doorway, tools| connection.expire(Expiry::Farewell, at, doorway, tools));
        }
        while let Some((at, token)) = self.tools.lasting.pop_due(now) {
            self.with(token, |connection, doorway, tools| connection.expire(Expiry::Lasting, at, doorway, tools));
        }
        while let Some((at, token)) = self.tools.idle.pop_due(now) {
            self.with(token, |connection, doorway, tools| connection.expire(Expiry::Idle, at, doorway, tools));
        }
        if self.accept_again_at.is_some_and(|at| at <= now) {
            self.accept_again_at = None;
            if let Err(error) = self.watch_doors() {
                self.pause_accepting(0, error);
            }
        }
    }

    /// Ends what a newer snapshot does not let in any more.
    fn patrol(&mut self) {
        let Some(door) = self.doors.first().filter(|_| self.cut_disallowed) else { return };
        if self.tools.now < self.patrolled + PATROL {
            return;
        }
        self.patrolled = self.tools.now;
        let Way::Asked(snapshot) = &door.doorway.way else { return };
        let snapshot = snapshot.load_full();
        if snapshot.revision == self.revision {
            return;
        }
        self.revision = snapshot.revision;
        let tokens: Vec<Token> = self.connections.iter().map(|(_, connection)| connection.token).collect();
        for token in tokens {
            self.with(token, |connection, doorway, _| connection.recheck(&snapshot, doorway));
        }
    }

    fn tell_metrics(&mut self) {
        for (door, carried) in self.doors.iter().zip(&mut self.tools.carried) {
            let Carried { to_upstream, to_client } = std::mem::take(carried);
            if to_upstream > 0 {
                door.doorway.metrics.to_upstream.inc_by(to_upstream);
            }
            if to_client > 0 {
                door.doorway.metrics.to_client.inc_by(to_client);
            }
        }
    }

    fn time_to_wait(&self) -> Option<Timespec> {
        if !self.busy.is_empty() {
            return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let tools = &self.tools;
        let patrol = (self.cut_disallowed && !self.connections.is_empty()).then(|| self.patrolled + PATROL);
        let deadlines = [&self.opening, &tools.connecting, &tools.farewell, &tools.lasting, &tools.idle];
        let ends = self.shutdown.until.get().copied();
        let next = deadlines.map(Deadlines::next).into_iter().chain([patrol, self.accept_again_at, ends]);
        let next = next.flatten().min()?;
        // A nanosecond late rather than a turn too early.
        let left = next.saturating_duration_since(Instant::now()) + Duration::from_nanos(1);
        Timespec::try_from(left).ok()
    }

    fn close_doors(&mut self) {
        for door in &mut self.doors {
            if let Some(listener) = door.listener.take() {
                let _ = epoll::delete(&self.tools.epoll, listener.as_fd());
            }
        }
        // Asked once; left readable it would wake this thread for ever.
        let _ = epoll::delete(&self.tools.epoll, &self.shutdown.wake);
    }

    fn is_done(&self) -> bool {
        let asked =
            self.shutdown.asked.load(Ordering::Acquire) && self.doors.iter().all(|door| door.listener.is_none());
        asked
            && (self.connections.is_empty() || self.shutdown.until.get().is_some_and(|until| *until <= Instant::now()))
    }
}

/// A mistake of ours that one connection brings to light ends that connection, not the thread with everybody else's.
fn guarded(tools: &mut Tools, step: impl FnOnce(&mut Tools) -> Next) -> Next {
    catch_unwind(AssertUnwindSafe(|| step(tools))).unwrap_or_else(|_| {
        tracing::error!("a connection was ended by a mistake in this program; please report it");
        // It may have been lent to the step that broke.
        if tools.buffer.is_empty() {
            tools.buffer = vec![0; BUFFER].into();
        }
        Next::End
    })
}

impl Target {
    const WAKE: u64 = u64::MAX;
    const DOOR: u64 = 1 << 63;

    fn encode(self) -> EventData {
        EventData::new_u64(match self {
            Self::Wake => Self::WAKE,
            Self::Door(number) => Self::DOOR | number as u64,
            Self::Connection(token, side) => {
                u64::from(token.generation) << 33 | u64::from(token.index) << 1 | u64::from(side == Side::Upstream)
            }
        })
    }

    fn decode(data: EventData) -> Self {
        let value = data.u64();
        if value == Self::WAKE {
            return Self::Wake;
        }
        // Each part was put there by `encode` and fits what it is cut to.
        #[allow(clippy::cast_possible_truncation)]
        if value & Self::DOOR != 0 {
            Self::Door((value & !Self::DOOR) as usize)
        } else {
            let side = if value & 1 == 0 { Side::Client } else { Side::Upstream };
            Self::Connection(Token { index: (value >> 1) as u32, generation: (value >> 33) as u32 }, side)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_panics_ends_its_connection_and_leaves_the_thread_its_buffer() {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let mut tools = Tools::new(epoll, &Settings::default(), 1);
        let next = guarded(&mut tools, |tools| {
            let _lent = std::mem::take(&mut tools.buffer);
            panic!("a mistake of ours");
        });
        assert_eq!(next, Next::End);
        assert_eq!(tools.buffer.len(), BUFFER);
        assert_eq!(guarded(&mut tools, |_| Next::Wait), Next::Wait);
    }
}
