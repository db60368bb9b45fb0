//! Which proofs have been used already.
//!
//! The memory is one replica's: another replica would take the same proof once more, and so would this one after a
//! restart, each within the proof's minute. When it is full it refuses: to forget a nonce early would let whoever can
//! fill it use a proof twice, and those who can fill it are tenants.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::{NONCE, Nonce, VALID_FOR, unix_seconds};

/// How many nonces are remembered. Each stays for two to three minutes after the time in its proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// 131,072, so that no cluster takes the room of others: 728 connections per second without an end, or all nodes
    /// of the largest clusters at once after an outage.
    pub per_cluster: usize,
    /// 2,097,152, so that memory has a bound: 11,650 connections per second without an end. A nonce takes 20 to 40
    /// bytes in its set, all of them at most 80 MiB, beside about 1 KiB for each cluster that sends proofs. Nothing is
    /// held in advance.
    pub total: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_cluster: 1 << 17, total: 1 << 21 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    #[error("the proof has been used already")]
    Replayed,
    #[error("too many proofs were used of late to remember this one")]
    Full,
}

/// The nonces that were taken; clones share them.
#[derive(Clone)]
pub struct Replays(Arc<Memory>);

struct Memory {
    limits: Limits,
    /// In all shards.
    held: AtomicUsize,
    /// The oldest generation that was kept when old ones were last dropped.
    oldest: AtomicU64,
    shards: [Mutex<Shard>; SHARDS],
    /// Seeded, so that nobody can choose ids that meet in one shard.
    hasher: RandomState,
}

/// More than there are threads on most machines, which then seldom wait for each other.
const SHARDS: usize = 16;

/// By cluster id: two clusters may use the same nonce, and none can spend another's.
type Shard = HashMap<Box<[u8]>, Generations>;

/// A cluster's nonces by the time in their proofs, counted in units of [`VALID_FOR`]: a generation is dropped whole.
#[derive(Default)]
struct Generations(BTreeMap<u64, HashSet<[u8; NONCE]>>);

/// A proof may be of the generation before the present one, no older. One more is kept for threads that looked at the
/// clock before another one dropped a generation, and for clocks that are set back a little.
const KEPT_BEHIND: u64 = 2;

impl Replays {
    pub fn new(limits: Limits) -> Self {
        Self(Arc::new(Memory {
            limits,
            held: AtomicUsize::new(0),
            oldest: AtomicU64::new(0),
            shards: Default::default(),
            hasher: RandomState::new(),
        }))
    }

    /// Takes a nonce, which nobody can do twice. `now` is that of the check.
    // By value, so that who has taken it has it no more.
    #[allow(clippy::needless_pass_by_value)]
    pub fn take(&self, nonce: Nonce<'_>, now: SystemTime) -> Result<(), ReplayError> {
        let memory = &*self.0;
        memory.forget_before((unix_seconds(now) / VALID_FOR).saturating_sub(KEPT_BEHIND));

        let Nonce { cluster_id, octets, signed_at } = nonce;
        let mut shard = lock(memory.shard_of(cluster_id));
        let generations = shard.entry(cluster_id.into()).or_default();
        // In any of them: a sender that dates one nonce twice has not made two.
        if generations.contain(&octets) {
            return Err(ReplayError::Replayed);
        }
        if generations.len() >= memory.limits.per_cluster || !memory.reserve() {
            return Err(ReplayError::Full);
        }
        generations.0.entry(signed_at / VALID_FOR).or_default().insert(octets);
        Ok(())
    }

    /// How many nonces are remembered now.
    pub fn held(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }
}

impl Default for Replays {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Memory {
    fn shard_of(&self, cluster_id: &[u8]) -> &Mutex<Shard> {
        // Below SHARDS, and so the same on every width of usize.
        #[allow(clippy::cast_possible_truncation)]
        let number = (self.hasher.hash_one(cluster_id) % SHARDS as u64) as usize;
        &self.shards[number]
    }

    /// Room for one more, if there is any.
    fn reserve(&self) -> bool {
        let more = |held| (held < self.limits.total).then_some(held + 1);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Once a minute, by the first who comes: what nobody can replay any more goes, of clusters that are gone too.
    fn forget_before(&self, oldest: u64) {
        let before = self.oldest.load(Ordering::Relaxed);
        let is_first = || self.oldest.compare_exchange(before, oldest, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if before == oldest || !is_first() {
            return;
        }
        for shard in &self.shards {
            let mut forgotten = 0;
            lock(shard).retain(|_, generations| {
                forgotten += generations.forget_before(oldest);
                !generations.0.is_empty()
            });
            self.held.fetch_sub(forgotten, Ordering::Relaxed);
        }
    }
}

impl Generations {
    fn contain(&self, nonce: &[u8; NONCE]) -> bool {
        self.0.values().any(|nonces| nonces.contains(nonce))
    }

    fn len(&self) -> usize {
        self.0.values().map(HashSet::len).sum()
    }

    fn forget_before(&mut self, oldest: u64) -> usize {
        let kept = self.0.split_off(&oldest);
        std::mem::replace(&mut self.0, kept).values().map(HashSet::len).sum()
    }
}

/// Nobody panics with the lock held and a change half made.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
