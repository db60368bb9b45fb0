//! Which Ingresses each cluster is to have: from what the hub shows and what is planned, to the tasks of the clusters.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use model::identity::Kind;
use model::placement::IngressPlace;
use model::snapshot::Detail;
use model::{Changes, ClusterName, ObjectRef, Snapshot};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::copy::{Copy, Original};
use crate::apply::{Actual, Dirty};

/// The hub's Ingresses as they are written, and those that are to be looked at again. Kept by whoever watches the hub.
#[derive(Debug, Default)]
pub struct Originals {
    objects: Mutex<HashMap<ObjectRef, Arc<Original>>>,
    dirty: Dirty,
}

impl Originals {
    pub fn see(&self, object: ObjectRef, meta: &ObjectMeta, spec: &Value) {
        let original = Original::read(meta, spec);
        let mut objects = lock(&self.objects);
        if objects.get(&object).is_none_or(|known| **known != original) {
            objects.insert(object.clone(), Arc::new(original));
            self.dirty.mark(object);
        }
    }

    pub fn gone(&self, object: &ObjectRef) {
        if lock(&self.objects).remove(object).is_some() {
            self.dirty.mark(object.clone());
        }
    }

    /// What a plan made another of.
    pub fn mark_planned(&self, changes: &Changes) {
        self.dirty.mark_all(changes.statuses.iter().filter(|object| object.kind == Kind::Ingress).cloned());
    }

    fn of(&self, object: &ObjectRef) -> Option<Arc<Original>> {
        lock(&self.objects).get(object).map(Arc::clone)
    }

    fn everything(&self) -> Vec<ObjectRef> {
        lock(&self.objects).keys().cloned().collect()
    }
}

/// What one cluster is to have.
pub(super) type Copies = BTreeMap<IngressPlace, Arc<Copy>>;

/// What every cluster is to have, of one term.
#[derive(Debug, Default)]
pub struct Wanted(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// Whether everything has been looked at: what is not known yet looks like what is gone.
    is_whole: bool,
    clusters: HashMap<ClusterName, watch::Sender<Arc<Wish>>>,
    /// Where each one is to be.
    members: HashMap<ObjectRef, BTreeSet<ClusterName>>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Wish {
    pub(super) is_whole: bool,
    pub(super) copies: Copies,
}

impl Wanted {
    pub(super) fn of(&self, cluster: &ClusterName) -> watch::Receiver<Arc<Wish>> {
        lock(&self.0).sender(cluster).subscribe()
    }

    fn put(&self, object: &ObjectRef, copies: Vec<(ClusterName, Copy)>) {
        let Some(namespace) = object.namespace.clone() else { return };
        let place = (namespace, object.name.clone());
        let mut table = lock(&self.0);
        let members: BTreeSet<ClusterName> = copies.iter().map(|(cluster, _)| cluster.clone()).collect();
        let before = if members.is_empty() {
            table.members.remove(object)
        } else {
            table.members.insert(object.clone(), members.clone())
        };
        let before = before.unwrap_or_default();
        for cluster in before.difference(&members) {
            table.sender(cluster).send_modify(|wish| _ = Arc::make_mut(wish).copies.remove(&place));
            table.forget_idle(cluster);
        }
        for (cluster, copy) in copies {
            table.sender(&cluster).send_if_modified(|wish| {
                let is_same = wish.copies.get(&place).is_some_and(|known| **known == copy);
                if !is_same {
                    Arc::make_mut(wish).copies.insert(place.clone(), Arc::new(copy));
                }
                !is_same
            });
        }
    }

    fn set_whole(&self) {
        let mut table = lock(&self.0);
        table.is_whole = true;
        for sender in table.clusters.values() {
            sender.send_modify(|wish| Arc::make_mut(wish).is_whole = true);
        }
    }
}

impl Table {
    /// Of a cluster that nobody follows and that is to have nothing.
    fn forget_idle(&mut self, cluster: &ClusterName) {
        let is_idle =
            |sender: &watch::Sender<Arc<Wish>>| sender.receiver_count() == 0 && sender.borrow().copies.is_empty();
        if self.clusters.get(cluster).is_some_and(is_idle) {
            self.clusters.remove(cluster);
        }
    }

    fn sender(&mut self, cluster: &ClusterName) -> &watch::Sender<Arc<Wish>> {
        let is_whole = self.is_whole;
        let new = || watch::channel(Arc::new(Wish { is_whole, copies: Copies::default() })).0;
        self.clusters.entry(cluster.clone()).or_insert_with(new)
    }
}

/// Where it is known what Ingresses are like and where they are to be.
#[derive(Debug, Clone)]
pub struct Sides {
    pub plan: Arc<ArcSwap<Snapshot>>,
    pub hub: Arc<Actual>,
    pub originals: Arc<Originals>,
}

/// Keeps what is wanted at what is planned, until `stop`.
pub async fn keep(sides: Sides, wanted: Arc<Wanted>, stop: CancellationToken) {
    let keeping = async {
        sides.hub.until_whole().await;
        sides.originals.dirty.mark_all(sides.originals.everything());
        // What comes now comes after all of these.
        for object in sides.originals.dirty.take() {
            look(&sides, &wanted, &object);
        }
        wanted.set_whole();
        loop {
            for object in sides.originals.dirty.next().await {
                look(&sides, &wanted, &object);
            }
        }
    };
    let _: Option<()> = stop.run_until_cancelled(keeping).await;
}

fn look(sides: &Sides, wanted: &Wanted, object: &ObjectRef) {
    let plan = sides.plan.load();
    let original = sides.originals.of(object);
    let detail = plan.status(object).map(|status| &status.detail);
    // Until the plan has come to it, nothing is taken away.
    if original.is_some() && detail.is_none() && !plan.is_foreign(object) {
        return;
    }
    let copies = match (original, detail, &object.namespace) {
        (Some(original), Some(Detail::Ingress { copies, .. }), Some(namespace)) => {
            let place = (namespace.clone(), object.name.clone());
            let copy = |of: &model::snapshot::IngressCopy| Some((of.cluster.clone(), Copy::of(&place, &original, of)?));
            copies.iter().filter_map(copy).collect()
        }
        _ => Vec::new(),
    };
    wanted.put(object, copies);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use model::snapshot::IngressCopy;
    use serde_json::json;

    use super::*;

    fn object(name: &str) -> ObjectRef {
        ObjectRef { kind: Kind::Ingress, namespace: Some("acme".parse().unwrap()), name: name.parse().unwrap() }
    }

    fn copies(name: &str, clusters: &[&str], annotation: &str) -> Vec<(ClusterName, Copy)> {
        let meta = ObjectMeta { annotations: Some([("a".into(), annotation.into())].into()), ..ObjectMeta::default() };
        let original = Original::read(&meta, &json!({}));
        let copy = |cluster: &&str| {
            let cluster: ClusterName = cluster.parse().unwrap();
            let of = IngressCopy { cluster: cluster.clone(), class: None, annotations: BTreeMap::new() };
            let place = ("acme".parse().unwrap(), name.parse().unwrap());
            (cluster, Copy::of(&place, &original, &of).unwrap())
        };
        clusters.iter().map(copy).collect()
    }

    #[test]
    fn a_cluster_hears_of_what_comes_changes_and_goes() {
        let wanted = Wanted::default();
        let mut east = wanted.of(&"east".parse().unwrap());
        let mut heard = || {
            let changed = east.has_changed().unwrap();
            let wish = east.borrow_and_update().clone();
            (changed, wish.is_whole, wish.copies.keys().map(|(_, name)| name.to_string()).collect::<Vec<_>>().join(" "))
        };
        wanted.put(&object("a"), copies("a", &["east", "west"], "1"));
        assert_eq!(heard(), (true, false, "a".into()));
        wanted.set_whole();
        assert_eq!(heard(), (true, true, "a".into()));
        wanted.put(&object("a"), copies("a", &["east"], "1"));
        assert_eq!(heard(), (false, true, "a".into()), "nothing is another one here");
        wanted.put(&object("a"), copies("a", &["east"], "2"));
        assert_eq!(heard(), (true, true, "a".into()));
        wanted.put(&object("b"), copies("b", &["east"], "1"));
        assert_eq!(heard(), (true, true, "a b".into()));
        wanted.put(&object("a"), copies("a", &["west"], "2"));
        assert_eq!(heard(), (true, true, "b".into()));
        wanted.put(&object("b"), Vec::new());
        assert_eq!(heard(), (true, true, String::new()));
        // Who comes later hears all of it at once.
        let west = wanted.of(&"west".parse().unwrap());
        assert!(west.borrow().is_whole && west.borrow().copies.len() == 1);
        assert!(wanted.of(&"new".parse().unwrap()).borrow().is_whole);
    }
}
