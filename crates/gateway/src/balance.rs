//! Which address of a control plane a connection tries first.
//!
//! The one with the fewest connections, of those that nothing speaks against: HTTP/2 clients stay for hours where they
//! once went, so that counting what is open is what evens replicas out. Two things speak against an address: clients
//! that could not connect (`trouble`) and checks that failed ([`crate::health`]). Neither takes an address away, they
//! only put it behind the others: where all are bad, all are tried.
//!
//! One [`Upstreams`] for all doors and threads. It is keyed by address alone, so that a new snapshot, or another route
//! to the same address, finds what is known of it.

mod outlook;
#[cfg(test)]
mod tests;
mod trouble;

use std::net::SocketAddr;
use std::ops::Deref;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use model::snapshot::Route;
use rustix::io::Errno;

use crate::limits::shards::Shards;
pub use outlook::Prospect;
use trouble::{Standing, Trouble};

/// What is known of every address. Bounded by what is in use: an address without connections, trouble or checks is like
/// one never seen, and is forgotten when the table grows.
#[derive(Debug, Default)]
pub struct Upstreams {
    states: Shards<SocketAddr, Arc<UpstreamState>>,
}

/// What is known of one address.
#[derive(Debug)]
pub struct UpstreamState {
    address: SocketAddr,
    open: AtomicU32,
    health: AtomicU8,
    /// Counts the connections of routes whose first address this is: whose turn it is among equals.
    turns: AtomicUsize,
    /// Whether `trouble` is worth the lock; nearly always it is not.
    troubled: AtomicBool,
    trouble: Mutex<Trouble>,
}

/// What the checks say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Not checked, or not yet; as good as healthy.
    Unknown,
    Healthy,
    Unhealthy,
}

/// The addresses of a route, best first.
#[derive(Debug)]
pub enum Order {
    One(Arc<UpstreamState>),
    Several(Vec<Arc<UpstreamState>>),
}

/// A connection to an address, from the first attempt to its end; counted until it is dropped.
#[derive(Debug)]
#[must_use = "it counts until it is dropped"]
pub struct Load(Arc<UpstreamState>);

/// For metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Census {
    pub known: usize,
    pub unhealthy: usize,
    pub ejected: usize,
}

impl Upstreams {
    /// With one address there is nothing to choose, and nothing but the look at the table to pay.
    pub fn order(&self, route: &Route, now: Instant) -> Order {
        if let [address] = *route.upstreams {
            return Order::One(self.state(address, now));
        }
        let states: Vec<_> = route.upstreams.iter().map(|address| self.state(*address, now)).collect();
        let turn = states.first().map_or(0, |first| first.turns.fetch_add(1, Ordering::Relaxed));
        let mut trial_given = false;
        let mut ranked: Vec<_> = states
            .into_iter()
            .zip((0..route.upstreams.len()).map(|position| since_turn(position, turn, route.upstreams.len())))
            .map(|(state, wait)| ((state.rank(now, &mut trial_given), state.open(), wait), state))
            .collect();
        ranked.sort_unstable_by_key(|(key, _)| *key);
        Order::Several(ranked.into_iter().map(|(_, state)| state).collect())
    }

    pub fn state(&self, address: SocketAddr, now: Instant) -> Arc<UpstreamState> {
        let mut states = self.states.lock(&address);
        if let Some(state) = states.get(&address) {
            return Arc::clone(state);
        }
        let state = Arc::new(UpstreamState::new(address));
        states.insert(address, Arc::clone(&state), |state| is_spent(state, now));
        state
    }

    pub fn census(&self) -> Census {
        let mut census = Census::default();
        for shard in self.states.each() {
            for state in shard.values() {
                census.known += 1;
                census.unhealthy += usize::from(state.health() == Health::Unhealthy);
                census.ejected += usize::from(state.is_ejected());
            }
        }
        census
    }
}

/// The lower, the sooner it is tried. `standing` is asked once, with whether this client may be the one that finds out.
fn rank_of(health: Health, standing: impl FnOnce(bool) -> Standing, trial_given: &mut bool) -> u8 {
    let unhealthy = health == Health::Unhealthy;
    // One client at a time finds out, and none where the checks know already or it has another one to find out.
    match standing(!unhealthy && !*trial_given) {
        Standing::Trial => {
            *trial_given = true;
            0
        }
        Standing::Good => 1 + u8::from(unhealthy),
        Standing::Ejected => 2 + u8::from(unhealthy),
    }
}

/// How many come before this position when it begins with `turn`.
fn since_turn(position: usize, turn: usize, count: usize) -> usize {
    (position + count - turn % count) % count
}

/// Whether only the table knows it, and it is like a new one; asked under the lock that it takes to come to know it.
fn is_spent(state: &Arc<UpstreamState>, now: Instant) -> bool {
    Arc::strong_count(state) == 1 && state.health() == Health::Unknown && state.trouble().is_stale(now)
}

impl Deref for Order {
    type Target = [Arc<UpstreamState>];

    fn deref(&self) -> &Self::Target {
        match self {
            Self::One(state) => slice::from_ref(state),
            Self::Several(states) => states,
        }
    }
}

impl UpstreamState {
    fn new(address: SocketAddr) -> Self {
        Self {
            address,
            open: AtomicU32::new(0),
            health: AtomicU8::new(Health::Unknown as u8),
            turns: AtomicUsize::new(0),
            troubled: AtomicBool::new(false),
            trouble: Mutex::default(),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// To be asked for before connecting, not after: those that choose at the same time see each other.
    pub fn attempt(self: &Arc<Self>) -> Load {
        self.open.fetch_add(1, Ordering::Relaxed);
        Load(Arc::clone(self))
    }

    /// Connections that are open or being opened.
    pub fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    pub fn health(&self) -> Health {
        match self.health.load(Ordering::Relaxed) {
            value if value == Health::Healthy as u8 => Health::Healthy,
            value if value == Health::Unhealthy as u8 => Health::Unhealthy,
            _ => Health::Unknown,
        }
    }

    pub fn set_health(&self, health: Health) {
        self.health.store(health as u8, Ordering::Relaxed);
    }

    pub fn is_ejected(&self) -> bool {
        self.troubled.load(Ordering::Relaxed) && self.trouble().is_ejected()
    }

    fn rank(&self, now: Instant, trial_given: &mut bool) -> u8 {
        let standing = |may_try| {
            if self.troubled.load(Ordering::Relaxed) { self.trouble().standing(now, may_try) } else { Standing::Good }
        };
        rank_of(self.health(), standing, trial_given)
    }

    fn trouble(&self) -> MutexGuard<'_, Trouble> {
        // Every change to it is a single step.
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Load {
    pub fn state(&self) -> &Arc<UpstreamState> {
        &self.0
    }

    /// The address was reached: whatever spoke against it before is over.
    pub fn connected(&self) {
        if self.0.troubled.load(Ordering::Relaxed) {
            let mut trouble = self.0.trouble();
            *trouble = Trouble::default();
            self.0.troubled.store(false, Ordering::Relaxed);
        }
    }

    /// The address was not reached.
    pub fn failed(self, error: Errno, now: Instant) {
        if !is_ours(error) {
            let mut trouble = self.0.trouble();
            trouble.failed(now);
            self.0.troubled.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether a failure to connect says something about this machine and nothing about the address: descriptors, memory
/// or ports are short, or a rule here forbids it.
pub(crate) fn is_ours(error: Errno) -> bool {
    matches!(
        error,
        Errno::MFILE
            | Errno::NFILE
            | Errno::NOBUFS
            | Errno::NOMEM
            | Errno::ADDRNOTAVAIL
            | Errno::AGAIN
            | Errno::NOSPC
            | Errno::PERM
            | Errno::ACCESS
    )
}
