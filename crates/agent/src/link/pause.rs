//! How long to wait before something that failed is tried again.

use std::time::Duration;

use super::LinkError;

/// Doubled with each further failure.
const FIRST: Duration = Duration::from_millis(500);
/// A hub that is back is noticed within this.
const LONGEST: Duration = Duration::from_secs(30);

/// Each pause is cut short by up to a half at random, so that the agents of a fleet do not all come back at once.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    failures: u32,
}

impl Pause {
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    pub(crate) fn next(&mut self) -> Duration {
        let whole = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        whole.mul_f64(1.0 - fastrand::f64() / 2.0)
    }

    /// At least as long as the hub asks for, and then not all at the same moment, either.
    pub(crate) fn after(&mut self, error: &LinkError) -> Duration {
        let own = self.next();
        match error.retry_after() {
            Some(asked) if asked > own => asked.mul_f64(1.0 + fastrand::f64() / 4.0),
            _ => own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_begin_anew() {
        let mut pause = Pause::default();
        for whole in [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000] {
            let whole = Duration::from_millis(whole);
            let next = pause.next();
            assert!(next <= whole && next >= whole / 2, "{next:?} of {whole:?}");
        }
        for _ in 0..100 {
            pause.next();
        }
        assert!(pause.next() >= LONGEST / 2);
        pause.reset();
        assert!(pause.next() <= FIRST);
    }

    #[test]
    fn what_the_hub_asks_for_is_waited_for() {
        let asked = Duration::from_mins(1);
        let error = LinkError::Busy { code: String::new(), reason: String::new(), retry_after: Some(asked) };
        assert!(Pause::default().after(&error) >= asked);
        assert!(Pause::default().after(&LinkError::Away(String::new())) <= FIRST);
    }
}
