//! When to try again what failed: each object for itself, so that none holds up another.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use model::ObjectRef;
use tokio::time::Instant;

use super::wanted::Write;

/// A hub that is overloaded for a moment is not hit at once again.
const FIRST: Duration = Duration::from_millis(200);
/// What is mended by hand, a missing namespace for example, takes effect that much later at most.
const LONGEST: Duration = Duration::from_secs(30);
/// The hub will not take it as long as it is the same: it is tried again for the case that its definition changes.
const REJECTED: Duration = Duration::from_mins(5);

#[derive(Debug, Default)]
pub(super) struct BackOff {
    failed: HashMap<ObjectRef, Failed>,
    due: BTreeSet<(Instant, ObjectRef)>,
}

#[derive(Debug)]
struct Failed {
    attempts: u32,
    until: Instant,
    /// What was to be written. Something else need not wait.
    writes: Vec<Write>,
}

impl BackOff {
    /// `spread` between 0 and 1 keeps those that failed together from coming back together.
    pub(super) fn failed(
        &mut self,
        object: ObjectRef,
        writes: Vec<Write>,
        is_rejected: bool,
        now: Instant,
        spread: f64,
    ) {
        let attempts = self.succeeded(&object).saturating_add(1);
        let pause = if is_rejected { REJECTED } else { (FIRST * 2u32.pow((attempts - 1).min(10))).min(LONGEST) };
        let until = now + pause.mul_f64(0.5 + spread / 2.0);
        self.due.insert((until, object.clone()));
        self.failed.insert(object, Failed { attempts, until, writes });
    }

    /// Returns how often it had failed.
    pub(super) fn succeeded(&mut self, object: &ObjectRef) -> u32 {
        let Some(failed) = self.failed.remove(object) else { return 0 };
        self.due.remove(&(failed.until, object.clone()));
        failed.attempts
    }

    /// Whether these very writes failed and are not due yet.
    pub(super) fn holds(&self, object: &ObjectRef, writes: &[Write], now: Instant) -> bool {
        self.failed.get(object).is_some_and(|failed| now < failed.until && failed.writes == writes)
    }

    /// What may be tried again.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<ObjectRef> {
        let mut due = Vec::new();
        while self.due.first().is_some_and(|(until, _)| *until <= now) {
            due.extend(self.due.pop_first().map(|(_, object)| object));
        }
        due
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first().map(|(until, _)| *until)
    }

    pub(super) fn len(&self) -> usize {
        self.failed.len()
    }
}

#[cfg(test)]
mod tests {
    use model::identity::Kind;

    use super::*;

    fn withdraw(uid: &str) -> Vec<Write> {
        vec![Write::Withdraw { name: "c1".parse().unwrap(), uid: uid.into() }]
    }

    #[test]
    fn each_failure_waits_longer_than_the_one_before() {
        let object = ObjectRef::cluster_scoped(Kind::Cluster, "c1".parse().unwrap());
        let (mut back_off, mut now, mut pauses) = (BackOff::default(), Instant::now(), Vec::new());
        for _ in 0..10 {
            back_off.failed(object.clone(), withdraw("1"), false, now, 1.0);
            let next = back_off.next().unwrap();
            assert!(back_off.take_due(next - Duration::from_millis(1)).is_empty());
            assert_eq!(back_off.take_due(next), std::slice::from_ref(&object));
            pauses.push((next - now).as_millis());
            now = next;
        }
        assert_eq!(pauses, [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
        back_off.failed(object.clone(), withdraw("1"), true, now, 0.0);
        assert_eq!(back_off.next(), Some(now + REJECTED / 2));
        assert_eq!(back_off.succeeded(&object), 11);
        assert_eq!((back_off.next(), back_off.len()), (None, 0));
    }

    #[test]
    fn something_else_need_not_wait() {
        let object = ObjectRef::cluster_scoped(Kind::Cluster, "c1".parse().unwrap());
        let (mut back_off, now) = (BackOff::default(), Instant::now());
        back_off.failed(object.clone(), withdraw("1"), true, now, 0.5);
        assert!(back_off.holds(&object, &withdraw("1"), now));
        assert!(!back_off.holds(&object, &withdraw("2"), now));
        assert!(!back_off.holds(&object, &withdraw("1"), now + REJECTED));
    }
}
