//! The withdrawal brake: names that would go in a mass are held until somebody says that it is meant, or they are asked for
//! again. A source that lost its memory looks like one whose owner deleted everything.
//!
//! Of claims, what is gone is known only here, so that the brake keeps what it held back. Of clusters without a ready node
//! everything needed stands in their facts (`plan/cluster.rs`).

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use crate::fact::{Fact, Timestamp};
use crate::identity::{ObjectName, ObjectRef};
use crate::name::DnsName;
use crate::resource::{HeldClaims, RecordClaims};

/// Withdrawals of this long count together: whoever deletes by hand is slower, and a source that comes up empty is faster.
const WINDOW: Duration = Duration::from_mins(5);
/// As many names always go freely, so that small tenants can tidy up.
pub(super) const FREE_NAMES: usize = 10;

#[derive(Debug, Default)]
pub(super) struct Brake {
    recent: HashMap<Scope, VecDeque<(Timestamp, usize)>>,
    held: BTreeMap<ObjectRef, Held>,
    /// What a restart is to know of.
    changed: BTreeSet<ObjectRef>,
}

/// The names of one tenant in a zone, or of all.
pub(super) type Scope = (DnsName, Option<ObjectName>);

/// What an object claimed and does not any more.
#[derive(Debug)]
pub(super) struct Held {
    /// The object as it is now.
    pub(super) now: Option<Fact<RecordClaims>>,
    /// What is served on.
    pub(super) claims: HeldClaims,
    /// Somebody else held it back, and this plan has not seen it go.
    pub(super) is_recalled: bool,
}

impl Brake {
    /// Whether so many more may go: `names` is what the scope has, before they do.
    pub(super) fn lets_pass(&mut self, scope: &Scope, more: usize, names: usize, share: f64, now: Timestamp) -> bool {
        let gone = self.recent_in(scope, now);
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let allowed = (((names + gone) as f64) * share) as usize;
        gone + more <= allowed.max(FREE_NAMES)
    }

    /// Notes that so many went.
    pub(super) fn pass(&mut self, scope: Scope, count: usize, now: Timestamp) {
        self.recent.entry(scope).or_default().push_back((now, count));
    }

    fn recent_in(&mut self, scope: &Scope, now: Timestamp) -> usize {
        let Some(recent) = self.recent.get_mut(scope) else { return 0 };
        while recent.front().is_some_and(|(at, _)| at.saturating_add(WINDOW) <= now) {
            recent.pop_front();
        }
        let count = recent.iter().map(|(_, count)| count).sum();
        if count == 0 {
            self.recent.remove(scope);
        }
        count
    }

    pub(super) fn hold(&mut self, held: Held) {
        let object = held.claims.object.clone();
        self.changed.insert(object.clone());
        self.held.insert(object, held);
    }

    /// What is held of an object, which is no longer.
    pub(super) fn take(&mut self, object: &ObjectRef) -> Option<Held> {
        let held = self.held.remove(object)?;
        self.changed.insert(object.clone());
        Some(held)
    }

    pub(super) fn is_held(&self, object: &ObjectRef) -> bool {
        self.held.contains_key(object)
    }

    /// What is held of a tenant, the oldest first.
    pub(super) fn of_tenant(&self, tenant: &ObjectName) -> Vec<HeldClaims> {
        let held = self.held.values().filter(|held| held.claims.tenant == *tenant);
        let mut held: Vec<HeldClaims> = held.map(|held| held.claims.clone()).collect();
        held.sort_by(|one, other| (one.held_since, &one.object).cmp(&(other.held_since, &other.object)));
        held
    }

    /// How many names are held.
    pub(super) fn names(&self) -> usize {
        self.held.values().map(|held| held.claims.names().len()).sum()
    }

    pub(super) fn take_changed(&mut self) -> Vec<(ObjectRef, Option<HeldClaims>)> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        changed.map(|object| (object.clone(), self.held.get(&object).map(|held| held.claims.clone()))).collect()
    }

    /// Takes out everything that is let go.
    pub(super) fn release(&mut self, is_released: impl Fn(&Held) -> bool) -> Vec<(ObjectRef, Held)> {
        let released: Vec<_> = self.held.extract_if(.., |_, held| is_released(held)).collect();
        self.changed.extend(released.iter().map(|(object, _)| object.clone()));
        released
    }

    /// Whoever released something has seen how many there are.
    pub(super) fn forget_recent(&mut self) {
        self.recent.clear();
    }
}
