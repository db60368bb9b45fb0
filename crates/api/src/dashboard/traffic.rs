//! How much there is to do now: counts are read when somebody looks, and what lies between two looks is a rate.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::state::State;

/// Rates are of so long: less would jump, more would lag.
const WINDOW: Duration = Duration::from_secs(5);
/// Looks that follow each other sooner are one.
const LEAST: Duration = Duration::from_millis(900);

#[derive(Default)]
pub(super) struct Traffic(Mutex<VecDeque<Sample>>);

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    counts: Counts,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    connections: u64,
    queries: u64,
    requests: u64,
    refused: u64,
    open: u64,
}

/// Per second; none of which a first look can know.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rates {
    pub(super) connections: f64,
    pub(super) queries: f64,
    pub(super) requests: f64,
    pub(super) refused: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Now {
    /// Connections of all doors.
    pub(super) open: u64,
    pub(super) rates: Option<Rates>,
}

impl Traffic {
    pub(super) fn now(&self, state: &State) -> Now {
        self.look(Instant::now(), || counts(state))
    }

    fn look(&self, now: Instant, counts: impl FnOnce() -> Counts) -> Now {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody has looked for a while: what lies before is no rate of now.
        if samples.back().is_some_and(|last| now - last.at > WINDOW) {
            samples.clear();
        }
        if samples.back().is_none_or(|last| now - last.at >= LEAST) {
            samples.push_back(Sample { at: now, counts: counts() });
        }
        while samples.len() > 2 && samples.front().is_some_and(|first| now - first.at > WINDOW) {
            samples.pop_front();
        }
        let (Some(first), Some(last)) = (samples.front(), samples.back()) else { return Now { open: 0, rates: None } };
        let seconds = (last.at - first.at).as_secs_f64();
        #[allow(clippy::cast_precision_loss)] // Of some seconds.
        let rate =
            |count: fn(&Counts) -> u64| count(&last.counts).saturating_sub(count(&first.counts)) as f64 / seconds;
        let rates = (seconds > 0.0).then(|| Rates {
            connections: rate(|counts| counts.connections),
            queries: rate(|counts| counts.queries),
            requests: rate(|counts| counts.requests),
            refused: rate(|counts| counts.refused),
        });
        Now { open: last.counts.open, rates }
    }
}

fn counts(state: &State) -> Counts {
    let Some(meters) = state.meters.get() else { return Counts::default() };
    let (doors, web) = (meters.gateway.totals(), meters.web.totals());
    Counts {
        connections: doors.established,
        queries: meters.dns.queries(&state.index.load()),
        requests: web.requests,
        refused: doors.refused + web.refused,
        open: doors.open + web.open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_of_the_last_seconds_and_never_of_a_pause() {
        let (traffic, start) = (Traffic::default(), Instant::now());
        let look = |seconds: f64, queries: u64| {
            let counts = || Counts { queries, ..Counts::default() };
            traffic.look(start + Duration::from_secs_f64(seconds), counts).rates.map(|rates| rates.queries.round())
        };
        assert_eq!(look(0.0, 1000), None);
        assert_eq!(look(0.1, 5000), None, "too soon to count");
        assert_eq!(look(1.0, 1100), Some(100.0));
        assert_eq!(look(2.0, 1300), Some(150.0));
        assert_eq!(look(60.0, 90_000), None, "after a pause it begins anew");
        assert_eq!(look(61.0, 90_007), Some(7.0));
        // A zone that went took its count along.
        assert_eq!(look(62.0, 5), Some(0.0));
    }
}
