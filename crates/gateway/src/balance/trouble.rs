//! What failed connections say about an address: a pure state machine that is told the time.

use std::time::{Duration, Instant};

/// One lost handshake happens on a good network, and two in a row where a replica restarts behind its address.
const FAILURES: u32 = 3;
/// Shorter than what a client waits before it tries again.
const FIRST_EJECTION: Duration = Duration::from_secs(1);
/// A replica that is back is found within this time, and one that stays away costs a client now and then one attempt.
const LONGEST_EJECTION: Duration = Duration::from_secs(30);
/// How long the one client that finds out has for it: the time that one address has to connect.
const TRIAL: Duration = Duration::from_secs(3);
/// Twice the longest ejection: an address in use is tried again before that.
const MEMORY: Duration = Duration::from_mins(1);

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    /// In a row.
    failures: u32,
    /// In a row, too: each lasts twice as long as the one before it.
    ejections: u32,
    last_failure: Option<Instant>,
    stage: Stage,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    In,
    Out {
        until: Instant,
    },
    /// Somebody is finding out; whoever comes after `until` may do so as well, in case that nothing came of it.
    Trial {
        until: Instant,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Good,
    Ejected,
    /// Its time is over, and who asked is to find out whether it is back.
    Trial,
}

impl Trouble {
    pub(super) fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.last_failure = Some(now);
        match self.stage {
            Stage::In if self.failures < FAILURES => {}
            // Attempts that began before, or that had no better address left, say nothing new.
            Stage::Out { until } if now < until => {}
            Stage::In | Stage::Out { .. } | Stage::Trial { .. } => {
                self.stage = Stage::Out { until: now + ejection(self.ejections) };
                self.ejections = self.ejections.saturating_add(1);
            }
        }
    }

    pub(super) fn standing(&mut self, now: Instant, may_try: bool) -> Standing {
        match self.stage {
            Stage::In => Standing::Good,
            Stage::Out { until } | Stage::Trial { until } if now < until || !may_try => Standing::Ejected,
            Stage::Out { .. } | Stage::Trial { .. } => {
                self.stage = Stage::Trial { until: now + TRIAL };
                Standing::Trial
            }
        }
    }

    /// Out until somebody has found it back.
    pub(super) fn is_ejected(&self) -> bool {
        self.stage != Stage::In
    }

    /// Nobody has met it for so long that nobody seems to try.
    pub(super) fn is_stale(&self, now: Instant) -> bool {
        self.last_failure.is_none_or(|last| now.saturating_duration_since(last) > MEMORY)
    }
}

fn ejection(before: u32) -> Duration {
    // Six doublings are past the longest.
    (FIRST_EJECTION * (1 << before.min(6))).min(LONGEST_EJECTION)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of one address, each at its millisecond: a failure, a connection, or somebody asks and is told that it is
    /// good, ejected or his to try.
    #[test]
    fn the_timeline_of_an_address() {
        for (what, steps) in [
            ("fewer than three in a row", "0:fail 0:fail 0:good 1:connect 2:fail 2:fail 2:good"),
            (
                "three in a row, then one client at a time",
                "0:fail 0:fail 0:fail 0:ejected 999:ejected 1000:try 1000:ejected 1200:connect 1200:good",
            ),
            (
                "those that began before it add nothing",
                "0:fail 0:fail 0:fail 10:fail 20:fail 999:fail 999:ejected 1000:try",
            ),
            (
                "each ejection is twice as long, up to 30 s",
                "0:fail 0:fail 0:fail 1000:try 1000:fail 2999:ejected 3000:try 3000:fail 6999:ejected 7000:try \
                 7000:fail 14999:ejected 15000:try 15000:fail 30999:ejected 31000:try 31000:fail 60999:ejected \
                 61000:try 61000:fail 90999:ejected 91000:try",
            ),
            (
                "a success begins anew",
                "0:fail 0:fail 0:fail 1000:try 1000:fail 3000:try 3000:connect 3000:fail 3000:fail 3000:good \
                 3000:fail 3999:ejected 4000:try",
            ),
            ("a trial of which nothing came is given again", "0:fail 0:fail 0:fail 1000:try 3999:ejected 4000:try"),
            ("a last resort that fails later ejects again", "0:fail 0:fail 0:fail 5000:fail 6999:ejected 7000:try"),
        ] {
            let start = Instant::now();
            let mut trouble = Trouble::default();
            for step in steps.split_whitespace() {
                let (at, event) = step.split_once(':').unwrap();
                let now = start + Duration::from_millis(at.parse().unwrap());
                match event {
                    "fail" => trouble.failed(now),
                    "connect" => trouble = Trouble::default(),
                    told => {
                        let standing = match trouble.standing(now, true) {
                            Standing::Good => "good",
                            Standing::Ejected => "ejected",
                            Standing::Trial => "try",
                        };
                        assert_eq!(standing, told, "{what}: {step}");
                    }
                }
            }
        }
    }

    #[test]
    fn who_may_not_try_leaves_the_trial_to_others() {
        let now = Instant::now();
        let mut trouble = Trouble::default();
        (0..FAILURES).for_each(|_| trouble.failed(now));
        let later = now + FIRST_EJECTION;
        assert_eq!(trouble.standing(later, false), Standing::Ejected);
        assert_eq!(trouble.standing(later, true), Standing::Trial);
        assert!(trouble.is_ejected());
    }

    #[test]
    fn trouble_that_nobody_meets_any_more_is_stale() {
        let now = Instant::now();
        let mut trouble = Trouble::default();
        assert!(trouble.is_stale(now));
        trouble.failed(now);
        assert!(!trouble.is_stale(now + LONGEST_EJECTION + TRIAL));
        assert!(trouble.is_stale(now + MEMORY + TRIAL));
    }

    #[test]
    fn ejections_stay_within_their_bound() {
        assert_eq!(
            [0, 1, 4, 5, 6, 31, 32, u32::MAX].map(|before| ejection(before).as_secs()),
            [1, 2, 16, 30, 30, 30, 30, 30]
        );
    }
}
