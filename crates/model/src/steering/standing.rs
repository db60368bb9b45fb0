//! What is known of all members now, beside the snapshot: it changes by the second, and is no content of anything.

use std::collections::HashMap;

use super::Known;
use crate::digest::Digest;
use crate::identity::ObjectRef;

/// Tells a member of an entry from all others, in every process alike. A number, so that a query finds what is known of a
/// member without touching texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberKey(u64);

impl MemberKey {
    /// Of the Ingress, and of the cluster by its UID: a later cluster of the same name is another member.
    pub fn of(object: &ObjectRef, uid: &str) -> Self {
        let Digest(digest) = Digest::of_text(format!("{object} {uid}").as_bytes());
        // Any half is as good as the other.
        #[allow(clippy::cast_possible_truncation)]
        let half = digest as u64;
        Self(half)
    }
}

/// Where the clients go that belong to a member, and what part of them.
pub type Shares = Box<[(MemberKey, f64)]>;

/// A new one is made and published whenever something changed; whoever reads has the last one.
#[derive(Debug, Clone, Default)]
pub struct Standings {
    known: HashMap<MemberKey, Known>,
    /// By the member that comes first by the mode and health alone; where the overflow's table says so.
    shares: HashMap<MemberKey, Shares>,
}

impl Standings {
    /// Of whom nothing was said counts as healthy: those who check may have to begin yet.
    pub fn of(&self, member: MemberKey) -> Known {
        self.known.get(&member).copied().unwrap_or_default()
    }

    /// Of somebody whose first choice this member is: what part of them goes to each.
    pub fn shares(&self, first: MemberKey) -> Option<&[(MemberKey, f64)]> {
        self.shares.get(&first).map(|shares| &**shares)
    }

    /// Both parts.
    pub fn of_all(known: impl IntoIterator<Item = (MemberKey, Known)>, shares: HashMap<MemberKey, Shares>) -> Self {
        Self { shares, ..known.into_iter().collect() }
    }
}

impl FromIterator<(MemberKey, Known)> for Standings {
    fn from_iter<I: IntoIterator<Item = (MemberKey, Known)>>(known: I) -> Self {
        Self { known: known.into_iter().collect(), shares: HashMap::new() }
    }
}
