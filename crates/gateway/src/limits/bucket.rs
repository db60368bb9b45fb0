//! A token bucket in one word.
//!
//! It holds one second's worth of tokens: a cluster whose nodes all come back at once is let in as far as its rate
//! goes, and the average over any longer time is the rate. A larger bucket would let bursts through that the control
//! plane was to be spared; a smaller one would refuse clients that come in step.

use std::sync::atomic::{AtomicU64, Ordering};

const SECOND: u64 = 1_000_000_000;

/// Only the moment from which on it is full again, in nanoseconds from a start that its owner keeps. The rate is told
/// with every call: a new one applies at once, and at most a second of what was taken under the old one still counts.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    full_at: AtomicU64,
}

impl Bucket {
    /// Whether there was a token.
    pub(super) fn take(&self, rate: u32, now: u64) -> bool {
        let Some(spacing) = spacing(rate) else { return false };
        // With all tokens but the last one gone, it is this far from full.
        let furthest = u64::from(rate - 1) * spacing;
        let taken = self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
            let from = full_at.max(now);
            (from - now <= furthest).then_some(from + spacing)
        });
        taken.is_ok()
    }

    /// A token that was taken at this rate and not used.
    pub(super) fn give_back(&self, rate: u32) {
        // Never below zero: what is given back was added before, and a full bucket only moves the moment up.
        self.full_at.fetch_sub(spacing(rate).unwrap_or(0), Ordering::Relaxed);
    }

    /// How many tokens there are now at this rate.
    pub(super) fn left(&self, rate: u32, now: u64) -> u32 {
        let Some(spacing) = spacing(rate) else { return 0 };
        let missing = self.full_at.load(Ordering::Relaxed).saturating_sub(now).div_ceil(spacing);
        rate.saturating_sub(u32::try_from(missing).unwrap_or(u32::MAX))
    }

    pub(super) fn is_full(&self, now: u64) -> bool {
        self.full_at.load(Ordering::Relaxed) <= now
    }
}

/// Rounded up, so that never more than the rate comes through; `None` for a rate at which no token ever comes.
fn spacing(rate: u32) -> Option<u64> {
    (rate > 0).then(|| SECOND.div_ceil(u64::from(rate)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn taken(bucket: &Bucket, rate: u32, now: u64, tries: u32) -> u32 {
        (0..tries).map(|_| u32::from(bucket.take(rate, now))).sum()
    }

    #[test]
    fn tokens_come_at_their_rate_up_to_a_seconds_worth() {
        struct Row(u32, &'static [(u64, u32)]);
        for Row(rate, takes) in [
            Row(0, &[(0, 0), (5_000, 0)]),
            Row(1, &[(0, 1), (999, 0), (1_000, 1), (60_000, 1)]),
            Row(3, &[(0, 3), (0, 0), (333, 0), (334, 1), (666, 0), (667, 1), (10_000, 3)]),
            Row(1000, &[(0, 1000), (1, 1), (2, 1), (502, 500), (503, 1), (9_999, 1000)]),
            Row(u32::MAX, &[(0, 2000), (0, 2000)]),
        ] {
            let bucket = Bucket::default();
            for (at, expected) in takes {
                let told = bucket.left(rate, at * MS).min(2000);
                assert_eq!(taken(&bucket, rate, at * MS, 2000), *expected, "{rate}/s at {at} ms");
                assert_eq!(told, *expected, "{rate}/s at {at} ms, as told beforehand");
            }
        }
    }

    #[test]
    fn a_token_given_back_is_there_again() {
        let bucket = Bucket::default();
        assert_eq!(taken(&bucket, 5, 7 * MS, 9), 5);
        bucket.give_back(5);
        bucket.give_back(5);
        assert_eq!(taken(&bucket, 5, 7 * MS, 9), 2);
        let fresh = Bucket::default();
        assert!(fresh.take(5, 0));
        fresh.give_back(5);
        assert!(fresh.is_full(0));
        assert_eq!(taken(&fresh, 5, 0, 9), 5, "and no more than there ever were");
    }

    #[test]
    fn a_new_rate_applies_within_a_second() {
        let bucket = Bucket::default();
        assert_eq!(taken(&bucket, 1000, 0, 2000), 1000);
        assert!(!bucket.take(1, 999 * MS));
        assert!(bucket.take(1, 1_000 * MS));
        assert_eq!(taken(&bucket, 1000, 1_000 * MS, 2000), 0, "that one token was a second's worth");
        assert!(bucket.take(1000, 1_001 * MS));
    }

    #[test]
    fn a_clock_that_steps_back_gives_no_tokens_away() {
        let bucket = Bucket::default();
        assert_eq!(taken(&bucket, 10, 1_000 * MS, 20), 10);
        assert_eq!(taken(&bucket, 10, 500 * MS, 20), 0);
    }
}
