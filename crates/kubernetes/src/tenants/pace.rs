//! How often: waits that grow after failures, and a bound on what one cluster may ask of the hub.

use std::time::Duration;

use tokio::time::Instant;

const FIRST: Duration = Duration::from_secs(1);
/// A cluster that comes back is noticed within a minute; a thousand that are away are some 20 attempts a second.
const LONGEST: Duration = Duration::from_mins(1);

/// Doubles from half a second to a minute, each wait shortened by chance, so that clusters that were lost together do
/// not come back together.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    pub(super) fn next(&mut self) -> Duration {
        let longest = FIRST.saturating_mul(1 << self.failures.min(6)).min(LONGEST);
        self.failures += 1;
        longest.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// A tenant whose nodes flap all the time costs the hub no more than this. Honest changes come in bursts, when a rack
/// or a roll-out goes by, and do not wait.
const BURST: u32 = 50;
const INTERVAL: Duration = Duration::from_millis(100);

/// Writes for one cluster, as the moment at which the bucket would be full again.
#[derive(Debug)]
pub(super) struct Bucket {
    full_at: Instant,
}

impl Bucket {
    pub(super) fn new(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// Takes one, or says from when on there is one.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Instant> {
        let after = self.full_at.max(now) + INTERVAL;
        let free_at = after.checked_sub(INTERVAL * BURST).unwrap_or(now);
        if free_at > now {
            return Err(free_at);
        }
        self.full_at = after;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_minute_and_start_anew() {
        let mut backoff = Backoff::default();
        for longest in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
            let wait = backoff.next().as_secs_f64();
            let longest = f64::from(longest);
            assert!((longest / 2.0..=longest).contains(&wait), "{wait} of {longest}");
        }
        for _ in 0..100 {
            backoff.next();
        }
        backoff.reset();
        assert!(backoff.next() <= FIRST);
    }

    #[test]
    fn a_burst_does_not_wait_and_what_follows_is_paced() {
        let start = Instant::now();
        let mut bucket = Bucket::new(start);
        for _ in 0..BURST {
            assert_eq!(bucket.take(start), Ok(()));
        }
        let free_at = bucket.take(start).unwrap_err();
        assert_eq!(free_at, start + INTERVAL);
        assert_eq!(bucket.take(free_at), Ok(()));
        assert!(bucket.take(free_at).is_err());
        assert_eq!(bucket.take(start + Duration::from_mins(1)), Ok(()));
    }
}
