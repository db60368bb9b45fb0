//! How long to wait before the next dial.

use std::time::Duration;

use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(200);
/// A link that was cut and is there again is used within a second.
const SHORT: Duration = Duration::from_secs(1);
const SHORT_FOR: Duration = Duration::from_mins(1);
/// A hub that is away for long, or a load balancer that never leads to a second process of it.
const LONG: Duration = Duration::from_secs(10);

/// Each pause is cut short by up to a half at random, so that the agents of a fleet do not all come back at once.
#[derive(Debug, Default)]
pub(super) struct Redial {
    since: Option<Instant>,
    dials: u32,
}

impl Redial {
    pub(super) fn next(&mut self, now: Instant) -> Duration {
        let since = *self.since.get_or_insert(now);
        let longest = if now.saturating_duration_since(since) < SHORT_FOR { SHORT } else { LONG };
        let whole = FIRST.saturating_mul(1 << self.dials.min(16)).min(longest);
        self.dials = self.dials.saturating_add(1);
        whole.mul_f64(1.0 - fastrand::f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_short_for_a_minute() {
        let start = Instant::now();
        let mut redial = Redial::default();
        for (after, whole) in [(0, 200), (0, 400), (1, 800), (2, 1000), (59, 1000), (60, 6400), (3600, 10_000)] {
            let next = redial.next(start + Duration::from_secs(after));
            let whole = Duration::from_millis(whole);
            assert!(next <= whole && next >= whole / 2, "{next:?} of {whole:?}");
        }
    }
}
