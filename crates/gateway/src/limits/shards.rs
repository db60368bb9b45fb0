//! A table that all threads share, in parts of which each has a lock of its own.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So many that two threads at different keys hardly ever meet, on any machine of today.
const SHARDS: usize = 64;
/// A shard is not worth a look for spent entries below this; it keeps an idle table at about a thousand of them.
const FIRST_SWEEP: usize = 16;

#[derive(Debug)]
pub(crate) struct Shards<K, V> {
    hasher: RandomState,
    shards: [Mutex<Shard<K, V>>; SHARDS],
}

#[derive(Debug)]
pub(crate) struct Shard<K, V> {
    entries: HashMap<K, V>,
    sweep_at: usize,
}

impl<K: Hash + Eq, V> Shards<K, V> {
    /// The part in which `key` is, if anywhere.
    pub(crate) fn lock(&self, key: &K) -> MutexGuard<'_, Shard<K, V>> {
        // The remainder fits.
        #[allow(clippy::cast_possible_truncation)]
        let number = self.hasher.hash_one(key) as usize % SHARDS;
        lock(&self.shards[number])
    }

    /// Every part, one after the other.
    pub(crate) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Shard<K, V>>> {
        self.shards.iter().map(lock)
    }
}

/// No entry is ever half written, so that a thread which panicked leaves a good table behind.
fn lock<T>(shard: &Mutex<T>) -> MutexGuard<'_, T> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: Hash + Eq, V> Shard<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.values()
    }

    /// Puts an entry in. Whenever the part has doubled since the last time, those that are spent are taken out first:
    /// it stays within twice of what is in use, at a constant cost per entry, and nobody has to call for it.
    pub(crate) fn insert(&mut self, key: K, value: V, is_spent: impl Fn(&V) -> bool) {
        if self.entries.len() >= self.sweep_at {
            self.entries.retain(|_, value| !is_spent(value));
            self.sweep_at = (2 * self.entries.len()).max(FIRST_SWEEP);
        }
        self.entries.insert(key, value);
    }

    pub(crate) fn remove(&mut self, key: &K) {
        self.entries.remove(key);
    }

    pub(crate) fn retain(&mut self, is_kept: impl Fn(&V) -> bool) {
        self.entries.retain(|_, value| is_kept(value));
    }
}

impl<K, V> Default for Shards<K, V> {
    fn default() -> Self {
        let empty = |_| Mutex::new(Shard { entries: HashMap::new(), sweep_at: FIRST_SWEEP });
        Self { hasher: RandomState::new(), shards: std::array::from_fn(empty) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(shards: &Shards<u32, bool>) -> usize {
        shards.each().map(|shard| shard.values().count()).sum()
    }

    #[test]
    fn spent_entries_do_not_pile_up_and_others_stay() {
        let shards = Shards::default();
        for key in 0..100_000 {
            let in_use = key % 1000 == 0;
            shards.lock(&key).insert(key, in_use, |in_use| !*in_use);
        }
        assert!(count(&shards) <= SHARDS * FIRST_SWEEP, "{}", count(&shards));
        for key in (0..100_000).step_by(1000) {
            assert_eq!(shards.lock(&key).get(&key), Some(&true));
        }
        for key in 0..10_000 {
            shards.lock(&key).insert(key, true, |in_use| !*in_use);
        }
        assert!(count(&shards) >= 10_000);
    }
}
