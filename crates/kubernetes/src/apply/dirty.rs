//! What has to be looked at again.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use model::identity::Kind;
use model::{Changes, ClusterName, ObjectRef};
use tokio::sync::Notify;

use super::address;

/// The objects whose state on the hub may not be the planned one. Bounded by being a set: an object that changes a
/// thousand times before somebody looks is looked at once.
#[derive(Debug, Default)]
pub struct Dirty {
    objects: Mutex<BTreeSet<ObjectRef>>,
    marked: Notify,
}

impl Dirty {
    pub fn mark(&self, object: ObjectRef) {
        self.mark_all([object]);
    }

    pub fn mark_all(&self, objects: impl IntoIterator<Item = ObjectRef>) {
        let mut marked = self.lock();
        let before = marked.len();
        marked.extend(objects);
        if marked.len() > before {
            drop(marked);
            self.marked.notify_one();
        }
    }

    /// What a plan made another of.
    pub fn mark_planned(&self, changes: &Changes) {
        let cluster = |name: &ClusterName| ObjectRef::cluster_scoped(Kind::Cluster, name.into());
        let addresses = changes.addresses.iter().copied().map(address::object);
        self.mark_all(changes.statuses.iter().cloned().chain(changes.clusters.iter().map(cluster)).chain(addresses));
    }

    /// Everything that was marked, perhaps nothing.
    pub(crate) fn take(&self) -> Vec<ObjectRef> {
        std::mem::take(&mut *self.lock()).into_iter().collect()
    }

    /// Everything that was marked, once there is something. There is one who asks, the leader.
    pub async fn next(&self) -> Vec<ObjectRef> {
        loop {
            let marked = self.take();
            if !marked.is_empty() {
                return marked;
            }
            self.marked.notified().await;
        }
    }

    pub fn len(&self) -> usize {
        self.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<ObjectRef>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> ObjectRef {
        ObjectRef::cluster_scoped(Kind::Tenant, name.parse().unwrap())
    }

    #[tokio::test]
    async fn what_is_marked_is_returned_once() {
        let dirty = Dirty::default();
        for name in ["b", "a", "b"] {
            dirty.mark(tenant(name));
        }
        assert_eq!(dirty.next().await, [tenant("a"), tenant("b")]);
        assert!(dirty.is_empty());
        let (marked, ()) = tokio::join!(dirty.next(), async { dirty.mark(tenant("c")) });
        assert_eq!(marked, [tenant("c")]);
    }
}
