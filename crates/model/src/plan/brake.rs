//! The withdrawal brake: names that would go in a mass are held until somebody says that it is meant, or they are asked for
//! again. A source that lost its memory looks like one whose owner deleted everything.
//!
//! Of claims, what is gone is known only here, so that the brake keeps what it held back. Of clusters without a ready node
//! everything needed stands in their facts (`plan/cluster.rs`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::fact::{Fact, Timestamp};
use crate::identity::{ObjectName, ObjectRef};
use crate::name::DnsName;
use crate::resource::{HeldClaims, RecordClaims};

/// Withdrawals of this long count together: whoever deletes by hand is slower, and a source that comes up empty is faster.
const WINDOW: Duration = Duration::from_mins(5);
/// What goes within this long is one number, so that a window has some 300 of them.
const STEP: Duration = Duration::from_secs(1);
/// As many names of a tenant always go freely, so that small tenants can tidy up.
pub(super) const FREE_NAMES: usize = 10;
/// Of a zone's: more than one tenant alone can take, so that none keeps its neighbours from giving up names.
const FREE_IN_ZONE: usize = 2 * FREE_NAMES;

#[derive(Debug, Default)]
pub(super) struct Brake {
    recent: BTreeMap<Scope, VecDeque<(Timestamp, usize)>>,
    names: Names,
    held: BTreeMap<ObjectRef, Held>,
    /// What a restart is to know of.
    changed: BTreeSet<ObjectRef>,
}

/// The names of one tenant in a zone.
pub(super) type Scope = (DnsName, ObjectName);

/// How many names there are.
#[derive(Debug, Default)]
struct Names {
    of_tenants: BTreeMap<Scope, usize>,
    in_zones: BTreeMap<DnsName, usize>,
}

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
    /// Notes that a tenant has a name more, or less.
    pub(super) fn count(&mut self, scope: &Scope, is_more: bool) {
        let Names { of_tenants, in_zones } = &mut self.names;
        count(of_tenants, scope, is_more);
        count(in_zones, &scope.0, is_more);
    }

    /// Of tenants that would lose so many names, those that keep them. The others' go, and count from now on.
    ///
    /// A tenant may lose a share of its own. In the zone everybody together may lose a share too, which is for sources that
    /// lose many small tenants at once; whoever has more has been looked at already and counts for [`FREE_NAMES`] there.
    pub(super) fn hold_back(
        &mut self,
        losing: &BTreeMap<Scope, usize>,
        share: impl Fn(&DnsName) -> f64,
        now: Timestamp,
    ) -> BTreeSet<Scope> {
        self.forget_before(now);
        let mut held = BTreeSet::new();
        for (scope, more) in losing {
            let (has, gone) = (self.names.of_tenants.get(scope).copied().unwrap_or_default(), self.gone(scope));
            if gone + more > part(has + gone, share(&scope.0)).max(FREE_NAMES) {
                held.insert(scope.clone());
            }
        }
        let zones: BTreeSet<&DnsName> = losing.keys().map(|(apex, _)| apex).collect();
        for apex in zones {
            let passing = |scope: &Scope| losing.get(scope).filter(|_| !held.contains(scope)).copied().unwrap_or(0);
            let known = self.recent.keys().chain(losing.keys());
            let tenants: BTreeSet<&Scope> = known.filter(|(of, _)| of == apex).collect();
            let lost: usize = tenants.iter().map(|scope| (self.gone(scope) + passing(scope)).min(FREE_NAMES)).sum();
            let gone: usize = tenants.iter().map(|scope| self.gone(scope)).sum();
            let has = self.names.in_zones.get(apex).copied().unwrap_or_default();
            if lost > part(has + gone, share(apex)).max(FREE_IN_ZONE) {
                held.extend(losing.keys().filter(|(of, _)| of == apex).cloned());
            }
        }
        for (scope, more) in losing.iter().filter(|(scope, _)| !held.contains(*scope)) {
            let recent = self.recent.entry(scope.clone()).or_default();
            match recent.back_mut() {
                Some((at, count)) if now < at.saturating_add(STEP) => *count += more,
                _ => recent.push_back((now, *more)),
            }
        }
        held
    }

    fn gone(&self, scope: &Scope) -> usize {
        self.recent.get(scope).into_iter().flatten().map(|(_, count)| count).sum()
    }

    fn forget_before(&mut self, now: Timestamp) {
        self.recent.retain(|_, recent| {
            while recent.front().is_some_and(|(at, _)| at.saturating_add(WINDOW) <= now) {
                recent.pop_front();
            }
            !recent.is_empty()
        });
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

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn part(of: usize, share: f64) -> usize {
    (of as f64 * share) as usize
}

fn count<K: Ord + Clone>(counts: &mut BTreeMap<K, usize>, of: &K, is_more: bool) {
    let count = counts.entry(of.clone()).or_default();
    *count = if is_more { *count + 1 } else { count.saturating_sub(1) };
    if *count == 0 {
        counts.remove(of);
    }
}
