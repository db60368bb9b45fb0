//! How fast somebody may change what it asks for: a bucket of tokens each, at every door.
//!
//! Without, one tenant that changes its claims as fast as it can would keep the plan and the hub busy for all.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use crate::refusal::Refusal;

/// What an honest tenant never reaches: a whole fleet's rollout at once, and then a change every 20 ms.
pub const CHANGES: Rate = Rate { spacing: Duration::from_millis(20), burst: 1000 };
/// So many endpoints of one change are cheap, and so many more take as long as another change.
pub const ENDPOINTS_PER_TOKEN: usize = 50;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How long a token takes to come; not zero.
    pub spacing: Duration,
    /// How many may be taken at once; not zero.
    pub burst: u32,
}

/// One bucket for each of those who have used theirs of late.
#[derive(Debug)]
pub struct Buckets<K> {
    rate: Rate,
    /// How many are kept. One that is full is as good as forgotten.
    most: usize,
    /// The moment from which on each is full again.
    full_at: HashMap<K, Duration>,
}

impl<K: Eq + Hash + Clone> Buckets<K> {
    pub fn new(rate: Rate, most: usize) -> Self {
        Self { rate, most, full_at: HashMap::new() }
    }

    /// How long until there is a token again, where there is none. `now` is counted from any start, and never goes back.
    pub fn check(&self, who: &K, now: Duration) -> Result<(), Duration> {
        // With all tokens but the last one gone, it is this far from full.
        let furthest = self.rate.spacing.saturating_mul(self.rate.burst.saturating_sub(1));
        let full_at = self.full_at.get(who).copied().unwrap_or_default();
        let wait = full_at.saturating_sub(now).saturating_sub(furthest);
        if wait.is_zero() { Ok(()) } else { Err(wait) }
    }

    /// Takes so many, also such as are still to come: what is large takes longer to be forgotten.
    pub fn spend(&mut self, who: &K, much: u32, now: Duration) {
        if self.full_at.len() >= self.most && !self.full_at.contains_key(who) {
            self.make_room(now);
        }
        let full_at = self.full_at.get(who).copied().unwrap_or_default().max(now);
        self.full_at.insert(who.clone(), full_at.saturating_add(self.rate.spacing.saturating_mul(much)));
    }

    /// Takes so many if there is one.
    pub fn take(&mut self, who: &K, much: u32, now: Duration) -> Result<(), Duration> {
        self.check(who, now)?;
        self.spend(who, much, now);
        Ok(())
    }

    /// What to say to somebody who has to wait.
    pub fn too_fast(&self, wait: Duration) -> Refusal {
        let per_second = Duration::from_secs(1).as_nanos() / self.rate.spacing.as_nanos().max(1);
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Refusal::TooFast { per_second: u32::try_from(per_second).unwrap_or(u32::MAX), seconds }
    }

    /// Forgets those that are full, or else the one that is nearest to it.
    fn make_room(&mut self, now: Duration) {
        self.full_at.retain(|_, full_at| *full_at > now);
        if self.full_at.len() >= self.most
            && let Some(nearest) = self.full_at.iter().min_by_key(|(_, full_at)| **full_at)
        {
            let nearest = nearest.0.clone();
            self.full_at.remove(&nearest);
        }
    }
}

/// The tokens that a change costs.
pub fn cost(endpoints: usize) -> u32 {
    u32::try_from(1 + endpoints / ENDPOINTS_PER_TOKEN).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(spacing: u64, burst: u32) -> Buckets<usize> {
        Buckets::new(Rate { spacing: Duration::from_millis(spacing), burst }, 10)
    }

    fn taken(buckets: &mut Buckets<usize>, who: usize, at: u64, tries: usize) -> usize {
        (0..tries).filter(|_| buckets.take(&who, 1, Duration::from_millis(at)).is_ok()).count()
    }

    #[test]
    fn changes_come_through_at_their_rate_after_a_burst() {
        let mut buckets = buckets(100, 5);
        for (at, tries, through) in
            [(0, 9, 5), (0, 3, 0), (99, 2, 0), (100, 2, 1), (350, 5, 2), (10_000, 20, 5), (10_100, 9, 1)]
        {
            assert_eq!(taken(&mut buckets, 1, at, tries), through, "at {at}");
        }
    }

    #[test]
    fn ones_haste_costs_another_nothing() {
        let mut buckets = Buckets::new(CHANGES, 10);
        assert_eq!(taken(&mut buckets, 1, 0, 5000), 1000);
        assert_eq!(taken(&mut buckets, 2, 0, 1000), 1000);
    }

    #[test]
    fn whoever_has_to_wait_is_told_how_long() {
        let mut buckets = buckets(1000, 3);
        assert_eq!(taken(&mut buckets, 1, 500, 4), 3);
        for (at, wait) in [(500, 1000), (1499, 1)] {
            assert_eq!(buckets.check(&1, Duration::from_millis(at)), Err(Duration::from_millis(wait)));
        }
        assert_eq!(
            buckets.too_fast(Duration::from_millis(1)),
            Refusal::TooFast { per_second: 1, seconds: 1 },
            "whole seconds"
        );
        assert_eq!(buckets.take(&1, 1, Duration::from_millis(1500)), Ok(()));
    }

    #[test]
    fn what_is_large_takes_longer() {
        let mut buckets = buckets(1000, 2);
        assert_eq!(buckets.take(&1, 5, Duration::ZERO), Ok(()));
        assert_eq!(buckets.check(&1, Duration::ZERO), Err(Duration::from_secs(4)));
        assert_eq!([cost(0), cost(49), cost(50), cost(5000), cost(usize::MAX)], [1, 1, 2, 101, u32::MAX]);
        buckets.spend(&1, u32::MAX, Duration::MAX);
    }

    #[test]
    fn the_table_is_bounded_and_keeps_who_is_in_haste() {
        let mut buckets = buckets(1000, 100);
        assert_eq!(taken(&mut buckets, 0, 0, 200), 100);
        for other in 1..1000 {
            assert_eq!(taken(&mut buckets, other, 0, 1), 1);
            assert!(buckets.full_at.len() <= 10);
        }
        assert_eq!(taken(&mut buckets, 0, 0, 1), 0);
        // Whose bucket is full is forgotten.
        assert_eq!(taken(&mut buckets, 5000, 200_000, 1), 1);
        assert_eq!(buckets.full_at.len(), 1);
    }
}
