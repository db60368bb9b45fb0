//! The thread that makes the checks: non-blocking sockets, spread over the interval, a bounded number at once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use model::{DnsName, Snapshot};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use slab::Slab;

use super::hello::{client_hello, is_answer};
use super::{CheckKind, CheckSettings, Pace, Record, Stop};
use crate::balance::{Health, UpstreamState, Upstreams, is_ours};
use crate::upstream;

/// How often a new snapshot is looked for. One is gone through as a whole, which takes milliseconds for 10,000
/// clusters; a fleet may publish many a second.
const FOLLOW: Duration = Duration::from_secs(1);
/// Enough to keep a busy thread from asking for each event by itself.
const EVENTS: usize = 64;
/// No attempt has it: they are bounded.
const WAKE: u64 = u64::MAX;

pub(super) struct Runner {
    snapshot: Arc<ArcSwap<Snapshot>>,
    upstreams: Arc<Upstreams>,
    settings: CheckSettings,
    stop: Arc<Stop>,
    epoll: OwnedFd,
    pace: Pace,
    /// The snapshot that `targets` are of.
    followed: Option<Arc<Snapshot>>,
    follow_at: Instant,
    targets: HashMap<SocketAddr, Target>,
    /// Whose check is next, and when.
    due: BTreeSet<(Instant, SocketAddr)>,
    attempts: Slab<Attempt>,
    /// Whose time is over next, and when.
    expiring: BTreeSet<(Instant, usize)>,
}

struct Target {
    /// What a hello asks for: of several names that lead to the address, the first.
    name: DnsName,
    state: Arc<UpstreamState>,
    record: Record,
    /// `None` while it is being checked.
    due: Option<Instant>,
}

struct Attempt {
    address: SocketAddr,
    socket: OwnedFd,
    begun: Instant,
    deadline: Instant,
    /// What is still to be sent; `None` where connecting is all.
    hello: Option<Vec<u8>>,
}

impl Runner {
    pub(super) fn new(
        snapshot: Arc<ArcSwap<Snapshot>>,
        upstreams: Arc<Upstreams>,
        settings: CheckSettings,
        stop: Arc<Stop>,
    ) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &stop.wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        // The standard library's hashers are seeded by the system.
        let seed = RandomState::new().build_hasher().finish();
        Ok(Self {
            snapshot,
            upstreams,
            stop,
            epoll,
            pace: Pace::new(settings.interval, seed),
            settings,
            followed: None,
            follow_at: Instant::now(),
            targets: HashMap::new(),
            due: BTreeSet::new(),
            attempts: Slab::new(),
            expiring: BTreeSet::new(),
        })
    }

    pub(super) fn run(mut self) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        while !self.stop.asked.load(Ordering::Acquire) {
            let now = Instant::now();
            if self.follow_at <= now {
                self.follow(now);
            }
            self.begin_what_is_due(now);
            let timeout = self.time_to_wait();
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return tracing::error!(%error, "the checks end: their events cannot be read"),
            }
            let now = Instant::now();
            for event in &events {
                let data = event.data;
                if data.u64() != WAKE {
                    self.advance(usize::try_from(data.u64()).unwrap_or(usize::MAX), now);
                }
            }
            self.expire(now);
        }
    }

    /// Takes over from the snapshot which addresses are to be checked.
    fn follow(&mut self, now: Instant) {
        self.follow_at = now + FOLLOW;
        let snapshot = self.snapshot.load_full();
        if self.followed.as_ref().is_some_and(|followed| Arc::ptr_eq(followed, &snapshot)) {
            return;
        }
        let wanted = addresses_to_check(&snapshot);
        let gone: Vec<_> = self.targets.keys().filter(|address| !wanted.contains_key(*address)).copied().collect();
        for address in gone {
            self.forget(address);
        }
        for (address, name) in wanted {
            if let Some(target) = self.targets.get_mut(&address) {
                if target.name != *name {
                    target.name = name.clone();
                }
                continue;
            }
            let due = now + self.pace.first();
            let state = self.upstreams.state(address, now);
            self.targets.insert(address, Target { name: name.clone(), state, record: Record::new(), due: Some(due) });
            self.due.insert((due, address));
        }
        self.followed = Some(snapshot);
    }

    fn forget(&mut self, address: SocketAddr) {
        let Some(target) = self.targets.remove(&address) else { return };
        // Nobody keeps it up to date any more.
        target.state.set_health(Health::Unknown);
        if let Some(due) = target.due {
            self.due.remove(&(due, address));
        }
    }

    fn begin_what_is_due(&mut self, now: Instant) {
        while self.attempts.len() < self.settings.max_in_flight
            && let Some(next) = self.due.first().copied().filter(|(due, _)| *due <= now)
        {
            self.due.remove(&next);
            let (_, address) = next;
            let Some(target) = self.targets.get_mut(&address) else { continue };
            target.due = None;
            let hello = match self.settings.kind {
                CheckKind::Tls => Some(client_hello(&target.name)),
                CheckKind::Tcp => None,
            };
            if let Err(error) = self.begin(address, hello, now) {
                self.conclude(address, Err(error), now, now);
            }
        }
    }

    fn begin(&mut self, address: SocketAddr, hello: Option<Vec<u8>>, now: Instant) -> Result<(), Errno> {
        let socket = upstream::begin_connect(address)?;
        // Checks end on our side: without a reset, each would leave its port in TIME-WAIT for a minute.
        sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
        let place = self.attempts.vacant_entry();
        let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, &socket, EventData::new_u64(place.key() as u64), interest)?;
        let deadline = now + self.settings.timeout;
        self.expiring.insert((deadline, place.key()));
        place.insert(Attempt { address, socket, begun: now, deadline, hello });
        Ok(())
    }

    fn advance(&mut self, key: usize, now: Instant) {
        // An earlier event of this batch may have ended it; new ones begin only between batches.
        let Some(attempt) = self.attempts.get_mut(key) else { return };
        match attempt.advance() {
            Err(Errno::AGAIN | Errno::INTR | Errno::NOTCONN) => {}
            outcome => self.end(key, outcome, now),
        }
    }

    fn expire(&mut self, now: Instant) {
        while let Some((_, key)) = self.expiring.first().copied().filter(|(deadline, _)| *deadline <= now) {
            self.end(key, Err(Errno::TIMEDOUT), now);
        }
    }

    fn end(&mut self, key: usize, outcome: Result<(), Errno>, now: Instant) {
        let attempt = self.attempts.remove(key);
        self.expiring.remove(&(attempt.deadline, key));
        self.conclude(attempt.address, outcome, attempt.begun, now);
    }

    fn conclude(&mut self, address: SocketAddr, outcome: Result<(), Errno>, begun: Instant, now: Instant) {
        // It may be gone from the snapshot meanwhile, or even be back and have its next check.
        let Some(target) = self.targets.get_mut(&address).filter(|target| target.due.is_none()) else { return };
        let due = now.max(begun + self.pace.next());
        target.due = Some(due);
        self.due.insert((due, address));
        // What is short here says nothing about the address.
        if outcome.is_err_and(is_ours) {
            return;
        }
        if let Some(health) = target.record.note(outcome.is_ok(), self.settings.thresholds) {
            target.state.set_health(health);
            let name = &target.name;
            match outcome {
                Ok(()) => tracing::info!(%address, %name, "upstream is healthy"),
                Err(error) => tracing::info!(%address, %name, %error, "upstream is unhealthy"),
            }
        }
    }

    fn time_to_wait(&self) -> Option<Timespec> {
        let room = self.attempts.len() < self.settings.max_in_flight;
        let due = self.due.first().filter(|_| room).map(|(at, _)| *at);
        let expires = self.expiring.first().map(|(at, _)| *at);
        let next = [due, expires, Some(self.follow_at)].into_iter().flatten().min()?;
        // A nanosecond late rather than a turn too early.
        let left = next.saturating_duration_since(Instant::now()) + Duration::from_nanos(1);
        Timespec::try_from(left).ok()
    }
}

impl Attempt {
    /// As far as it goes now: `AGAIN` and its like where it has to wait, anything else is the outcome.
    fn advance(&mut self) -> Result<(), Errno> {
        sockopt::socket_error(&self.socket)??;
        match &mut self.hello {
            // The first event of a socket without an error is that it is connected.
            None => return Ok(()),
            Some(hello) if !hello.is_empty() => {
                let sent = send(&self.socket, hello, SendFlags::NOSIGNAL)?;
                hello.drain(..sent);
                if !hello.is_empty() {
                    return Err(Errno::AGAIN);
                }
            }
            Some(_) => {}
        }
        let mut first = [0];
        match recv(&self.socket, &mut first, RecvFlags::empty())? {
            (1.., _) if is_answer(first[0]) => Ok(()),
            (1.., _) => Err(Errno::PROTO),
            _ => Err(Errno::CONNRESET),
        }
    }
}

/// The addresses of all routes that have several, each with the first of the names that lead there.
pub(super) fn addresses_to_check(snapshot: &Snapshot) -> BTreeMap<SocketAddr, &DnsName> {
    let mut wanted: BTreeMap<SocketAddr, &DnsName> = BTreeMap::new();
    for (name, route) in snapshot.routes().filter(|(_, route)| route.upstreams.len() > 1) {
        for address in &route.upstreams {
            let known = wanted.entry(*address).or_insert(name);
            if name < *known {
                *known = name;
            }
        }
    }
    wanted
}
