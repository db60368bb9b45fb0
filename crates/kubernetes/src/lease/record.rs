//! What a contender makes of the Lease that it sees. Pure: the time is passed in.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

/// However long a Lease says that it is good for, somebody follows within a minute: it may have been written by hand.
const LONGEST: Duration = Duration::from_mins(1);

/// What to do about a Lease that is not known to be ours.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    /// Nothing, unless it changes, until then.
    Wait(Instant),
    /// Try for it. Without a resource version it is to be created.
    Write(Box<Lease>),
}

/// What one contender has seen, and since when by its own clock.
#[derive(Debug)]
pub(super) struct Observer {
    identity: Arc<str>,
    duration: Duration,
    seen: Option<(Sight, Instant)>,
}

/// The UID and the content of the Lease; `None` if there was none.
type Sight = Option<(Option<String>, Option<LeaseSpec>)>;

impl Observer {
    pub(super) fn new(identity: Arc<str>, duration: Duration) -> Self {
        Self { identity, duration, seen: None }
    }

    /// `now` is after the hub answered.
    pub(super) fn observe(&mut self, lease: Option<&Lease>, now: Instant) -> Action {
        let sight: Sight = lease.map(|lease| (lease.metadata.uid.clone(), lease.spec.clone()));
        let since = match &self.seen {
            Some((seen, since)) if *seen == sight => *since,
            _ => {
                self.seen = Some((sight, now));
                now
            }
        };
        let Some(lease) = lease else {
            // It may have been deleted under a leader, who does not know yet.
            return act(Lease::default(), &self.identity, self.duration, since + self.duration, now);
        };
        match holder(lease) {
            // A request of ours succeeded without our hearing of it. Its time has begun in the past: ask anew.
            Some(holder) if holder == &*self.identity => Action::Write(Box::new(renewed(lease))),
            Some(_) => act(lease.clone(), &self.identity, self.duration, since + self.stated(lease), now),
            None => act(lease.clone(), &self.identity, self.duration, now, now),
        }
    }

    /// How long the holder counts on, in case that its settings are others than ours.
    fn stated(&self, lease: &Lease) -> Duration {
        let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
        Duration::from_secs(u64::try_from(seconds).unwrap_or_default()).min(LONGEST).max(self.duration)
    }
}

fn act(lease: Lease, identity: &str, duration: Duration, free_at: Instant, now: Instant) -> Action {
    if now < free_at { Action::Wait(free_at) } else { Action::Write(Box::new(taken(lease, identity, duration))) }
}

/// Whose it is; a Lease that was given back is nobody's.
pub(crate) fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// How often it has changed hands.
pub(super) fn transitions(lease: &Lease) -> i32 {
    lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default()
}

fn taken(mut lease: Lease, identity: &str, duration: Duration) -> Lease {
    let now = MicroTime(Timestamp::now());
    let is_new = lease.metadata.resource_version.is_none();
    let transitions = if is_new { 0 } else { transitions(&lease).saturating_add(1) };
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(identity.into()),
        lease_duration_seconds: Some(i32::try_from(duration.as_secs().max(1)).unwrap_or(i32::MAX)),
        acquire_time: Some(now.clone()),
        renew_time: Some(now),
        lease_transitions: Some(transitions),
        ..lease.spec.unwrap_or_default()
    });
    lease
}

/// The times in it are for people; nobody decides by them.
pub(super) fn renewed(lease: &Lease) -> Lease {
    let mut lease = lease.clone();
    lease.spec.get_or_insert_default().renew_time = Some(MicroTime(Timestamp::now()));
    lease
}

pub(super) fn released(lease: &Lease) -> Lease {
    let mut lease = renewed(lease);
    lease.spec.get_or_insert_default().holder_identity = Some(String::new());
    lease
}

#[cfg(test)]
mod tests {
    use super::*;

    const DURATION: Duration = Duration::from_secs(3);

    fn lease(version: &str, holder: &str, renewed: i64) -> Lease {
        let mut lease = Lease::default();
        lease.metadata.uid = Some("1".into());
        lease.metadata.resource_version = Some(version.into());
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_duration_seconds: Some(3),
            renew_time: Some(MicroTime(Timestamp::from_second(renewed).unwrap())),
            lease_transitions: Some(7),
            ..LeaseSpec::default()
        });
        lease
    }

    /// What is seen at each moment, in milliseconds, and until when to wait then; `None` is to write.
    fn assert_actions(steps: &[(u64, Option<Lease>, Option<u64>)]) {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut observer = Observer::new("me".into(), DURATION);
        for (now, lease, expected) in steps {
            let action = observer.observe(lease.as_ref(), at(*now));
            match (action, expected) {
                (Action::Wait(until), Some(expected)) => assert_eq!(until, at(*expected), "at {now}"),
                (Action::Write(written), None) => {
                    assert_eq!(holder(&written), Some("me"), "at {now}");
                    let version = lease.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
                    assert_eq!(written.metadata.resource_version, version, "at {now}");
                }
                (action, expected) => panic!("at {now}: {action:?} instead of {expected:?}"),
            }
        }
    }

    #[test]
    fn a_lease_is_free_a_whole_duration_after_it_was_last_seen_to_change() {
        assert_actions(&[
            (0, Some(lease("1", "other", 10)), Some(3000)),
            (500, Some(lease("1", "other", 10)), Some(3000)),
            // Renewed, whatever its clock says: it is the change that counts.
            (1000, Some(lease("2", "other", 5)), Some(4000)),
            (3999, Some(lease("2", "other", 5)), Some(4000)),
            (4000, Some(lease("2", "other", 5)), None),
        ]);
    }

    #[test]
    fn a_label_on_the_lease_is_no_renewal() {
        assert_actions(&[
            (0, Some(lease("1", "other", 10)), Some(3000)),
            (2000, Some(lease("2", "other", 10)), Some(3000)),
            (3000, Some(lease("2", "other", 10)), None),
        ]);
    }

    #[test]
    fn a_lease_that_was_given_back_is_free_at_once() {
        assert_actions(&[(0, Some(lease("1", "other", 10)), Some(3000)), (1, Some(lease("2", "", 11)), None)]);
    }

    #[test]
    fn a_lease_that_is_away_may_have_been_deleted_under_a_leader() {
        assert_actions(&[
            (0, None, Some(3000)),
            (2999, None, Some(3000)),
            (3000, None, None),
            (3001, Some(lease("1", "other", 10)), Some(6001)),
            (5000, None, Some(8000)),
        ]);
    }

    #[test]
    fn a_lease_of_ours_that_we_did_not_hear_of_is_asked_for_anew() {
        assert_actions(&[(0, Some(lease("1", "other", 10)), Some(3000)), (3000, Some(lease("2", "me", 11)), None)]);
    }

    #[test]
    fn a_holder_with_a_longer_duration_has_it_within_bounds() {
        for (stated, until) in [(1, 3000), (3, 3000), (15, 15_000), (100_000, 60_000), (-5, 3000)] {
            let mut held = lease("1", "other", 10);
            held.spec.as_mut().unwrap().lease_duration_seconds = Some(stated);
            assert_actions(&[(0, Some(held), Some(until))]);
        }
    }

    #[test]
    fn each_change_of_hands_is_counted() {
        let taken = taken(lease("1", "", 10), "me", DURATION);
        assert_eq!(transitions(&taken), 8);
        assert_eq!(transitions(&renewed(&taken)), 8);
        assert_eq!(holder(&released(&taken)), None);
        assert_eq!(transitions(&released(&taken)), 8);
    }
}
