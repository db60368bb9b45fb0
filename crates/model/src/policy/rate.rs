//! How fast a tenant may change what it asks for: a bucket of tokens each, at every door.
//!
//! Without, one tenant that changes its claims as fast as it can would keep the plan and the hub busy for all.

use std::collections::HashMap;
use std::time::Duration;

use crate::identity::ObjectName;
use crate::refusal::Refusal;

/// What an honest tenant never reaches: a whole fleet's rollout at once, and then a change every 20 ms.
pub const CHANGES: Rate = Rate { per_second: 50, burst: 1000 };
/// Tenants that are remembered. One whose bucket is full is as good as forgotten, so that these are as many as changed
/// something within the last 20 s.
const MOST: usize = 16_384;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Not zero.
    pub per_second: u32,
    /// How many may come at once; not zero.
    pub burst: u32,
}

/// One bucket for each tenant.
#[derive(Debug)]
pub struct Rates {
    rate: Rate,
    most: usize,
    /// The moment from which on each is full again.
    full_at: HashMap<ObjectName, Duration>,
}

impl Rates {
    pub fn new(rate: Rate) -> Self {
        Self { rate, most: MOST, full_at: HashMap::new() }
    }

    /// Counts one change, or refuses it. `now` is counted from any start, and never goes back.
    pub fn take(&mut self, tenant: &ObjectName, now: Duration) -> Result<(), Refusal> {
        let spacing = Duration::from_secs(1) / self.rate.per_second.max(1);
        let full_at = self.full_at.get(tenant).copied().unwrap_or_default().max(now);
        // With all tokens but the last one gone, it is this far from full.
        let furthest = spacing * self.rate.burst.saturating_sub(1);
        let wait = full_at.saturating_sub(now).saturating_sub(furthest);
        if !wait.is_zero() {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            return Err(Refusal::TooFast { per_second: self.rate.per_second, seconds });
        }
        if self.full_at.len() >= self.most && !self.full_at.contains_key(tenant) {
            self.make_room(now);
        }
        self.full_at.insert(tenant.clone(), full_at + spacing);
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(number: usize) -> ObjectName {
        format!("t{number}").parse().unwrap()
    }

    fn taken(rates: &mut Rates, tenant: &ObjectName, at: u64, tries: usize) -> usize {
        (0..tries).filter(|_| rates.take(tenant, Duration::from_millis(at)).is_ok()).count()
    }

    #[test]
    fn changes_come_through_at_their_rate_after_a_burst() {
        let mut rates = Rates::new(Rate { per_second: 10, burst: 5 });
        for (at, tries, through) in
            [(0, 9, 5), (0, 3, 0), (99, 2, 0), (100, 2, 1), (350, 5, 2), (10_000, 20, 5), (10_100, 9, 1)]
        {
            assert_eq!(taken(&mut rates, &tenant(1), at, tries), through, "at {at}");
        }
    }

    #[test]
    fn one_tenants_haste_costs_another_nothing() {
        let mut rates = Rates::new(CHANGES);
        assert_eq!(taken(&mut rates, &tenant(1), 0, 5000), 1000);
        assert_eq!(taken(&mut rates, &tenant(2), 0, 1000), 1000);
    }

    #[test]
    fn a_refusal_says_when_to_come_again() {
        let mut rates = Rates::new(Rate { per_second: 1, burst: 3 });
        assert_eq!(taken(&mut rates, &tenant(1), 500, 4), 3);
        let again = |at| Err(Refusal::TooFast { per_second: 1, seconds: at });
        assert_eq!(rates.take(&tenant(1), Duration::from_millis(500)), again(1));
        assert_eq!(rates.take(&tenant(1), Duration::from_millis(1499)), again(1));
        assert_eq!(rates.take(&tenant(1), Duration::from_millis(1500)), Ok(()));
    }

    #[test]
    fn the_table_is_bounded_and_keeps_who_is_in_haste() {
        let mut rates = Rates { most: 10, ..Rates::new(Rate { per_second: 1, burst: 100 }) };
        assert_eq!(taken(&mut rates, &tenant(0), 0, 200), 100);
        for other in 1..1000 {
            assert_eq!(taken(&mut rates, &tenant(other), 0, 1), 1);
            assert!(rates.full_at.len() <= 10);
        }
        assert_eq!(taken(&mut rates, &tenant(0), 0, 1), 0);
        // Whose bucket is full is forgotten.
        assert_eq!(taken(&mut rates, &tenant(5000), 200_000, 1), 1);
        assert_eq!(rates.full_at.len(), 1);
    }
}
