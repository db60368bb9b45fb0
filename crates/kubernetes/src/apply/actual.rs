//! What the hub has now, as far as it is ours: kept by the hub's watch, read by the leader.

use std::collections::{BTreeMap, HashMap};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use model::identity::Kind;
use model::{ObjectName, ObjectRef};
use serde_json::Value;
use tokio::sync::watch;

use super::address::SeenAddress;
use super::publish::{NAMESPACE, Published};
use super::status::OwnStatus;
use super::verdict::{Place, SeenVerdict, sharing};
use crate::seen::is_our_status;

/// Whoever watches the hub tells it of every object that the planner is told of, and of what we wrote beside them. Each
/// call returns the object that has to be looked at again, if our part of it is another than before: for [`Dirty::mark_all`].
///
/// [`Dirty::mark_all`]: super::Dirty::mark_all
#[derive(Debug)]
pub struct Actual {
    state: RwLock<State>,
    whole: watch::Sender<bool>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    objects: HashMap<ObjectRef, Seen>,
    /// By their name in [`NAMESPACE`].
    published: HashMap<ObjectName, Published>,
    verdicts: HashMap<Place, SeenVerdict>,
    addresses: HashMap<ObjectName, SeenAddress>,
    /// Conditions that others wrote and that people are to hear of; one for each object.
    news: BTreeMap<ObjectRef, Condition>,
}

#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) uid: String,
    /// Of the whole object: it changes with what is not ours too, and is no news by itself.
    pub(super) version: String,
    pub(super) generation: i64,
    pub(super) status: Option<OwnStatus>,
    /// Whether something in its status is ours; known of Ingresses alone.
    pub(super) is_told: bool,
}

impl Seen {
    /// Whether our part of it is the same.
    fn is_as(&self, other: &Self) -> bool {
        let Self { uid, version: _, generation, status, is_told } = self;
        (uid, generation, status, is_told) == (&other.uid, &other.generation, &other.status, &other.is_told)
    }
}

impl Default for Actual {
    fn default() -> Self {
        Self { state: RwLock::default(), whole: watch::channel(false).0 }
    }
}

impl Actual {
    /// An object is there. Its `status` is what [`OwnStatus`] is made from; of kinds that have a [`Verdict`], an Ingress has
    /// one all the same, where clients meet it.
    ///
    /// [`Verdict`]: manifest::verdict::Verdict
    pub fn see(&self, object: ObjectRef, meta: &ObjectMeta, status: Option<OwnStatus>) -> Option<ObjectRef> {
        let uid = meta.uid.clone().unwrap_or_default();
        let version = meta.resource_version.clone().unwrap_or_default();
        let is_told = object.kind == Kind::Ingress && meta.managed_fields.iter().flatten().any(is_our_status);
        let seen = Seen { uid, version, generation: meta.generation.unwrap_or_default(), status, is_told };
        let mut state = self.write();
        let before = state.objects.insert(object.clone(), seen.clone());
        if let Some(condition) = before.as_ref().and_then(|before| news(before, &seen)) {
            state.news.insert(object.clone(), condition.clone());
        }
        (!before.is_some_and(|before| before.is_as(&seen))).then_some(object)
    }

    pub fn gone(&self, object: &ObjectRef) -> Option<ObjectRef> {
        let mut state = self.write();
        state.news.remove(object);
        state.objects.remove(object).map(|_| object.clone())
    }

    /// A `DNSEndpoint` in the namespace [`NAMESPACE`] is there; those in others are tenants'.
    pub fn see_published(&self, meta: &ObjectMeta, spec: &Value) -> Option<ObjectRef> {
        let name = place(meta).filter(|(namespace, _)| namespace.as_str() == NAMESPACE)?.1;
        let seen = Published::read(meta, spec);
        let before = self.write().published.insert(name.clone(), seen.clone());
        (before.as_ref() != Some(&seen)).then(|| seen.source(&name))
    }

    pub fn gone_published(&self, meta: &ObjectMeta) -> Option<ObjectRef> {
        let name = place(meta).filter(|(namespace, _)| namespace.as_str() == NAMESPACE)?.1;
        let gone = self.write().published.remove(&name)?;
        Some(gone.source(&name))
    }

    pub fn see_verdict(&self, meta: &ObjectMeta, spec: &Value) -> Option<ObjectRef> {
        let place = place(meta)?;
        let seen = SeenVerdict::read(meta, spec);
        let before = self.write().verdicts.insert(place.clone(), seen.clone());
        (before.as_ref() != Some(&seen)).then(|| judged(&place))
    }

    pub fn gone_verdict(&self, meta: &ObjectMeta) -> Option<ObjectRef> {
        let place = place(meta)?;
        self.write().verdicts.remove(&place)?;
        Some(judged(&place))
    }

    pub fn see_address(&self, meta: &ObjectMeta, spec: &Value) -> Option<ObjectRef> {
        let name: ObjectName = meta.name.as_ref()?.parse().ok()?;
        let seen = SeenAddress::read(meta, spec);
        let before = self.write().addresses.insert(name.clone(), seen.clone());
        (before.as_ref() != Some(&seen)).then(|| ObjectRef::cluster_scoped(Kind::Address, name))
    }

    pub fn gone_address(&self, meta: &ObjectMeta) -> Option<ObjectRef> {
        let name: ObjectName = meta.name.as_ref()?.parse().ok()?;
        self.write().addresses.remove(&name)?;
        Some(ObjectRef::cluster_scoped(Kind::Address, name))
    }

    /// Says that everything that was on the hub has been seen, and planned. Nothing is written before that: what is not
    /// known yet looks like what is gone.
    pub fn set_whole(&self) {
        self.whole.send_replace(true);
    }

    pub(crate) fn is_whole(&self) -> bool {
        *self.whole.borrow()
    }

    pub(crate) async fn until_whole(&self) {
        // Its sender is ours, so that the channel cannot close.
        let _ = self.whole.subscribe().wait_for(|whole| *whole).await;
    }

    /// Every object that anything is known of.
    pub(super) fn everything(&self) -> Vec<ObjectRef> {
        let state = self.read();
        let objects = state.objects.keys().cloned();
        let published = state.published.iter().map(|(name, published)| published.source(name));
        let addresses = state.addresses.keys().map(|name| ObjectRef::cluster_scoped(Kind::Address, name.clone()));
        objects.chain(published).chain(state.verdicts.keys().map(judged)).chain(addresses).collect()
    }

    pub(super) fn take_news(&self) -> BTreeMap<ObjectRef, Condition> {
        std::mem::take(&mut self.write().news)
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    pub(super) fn object(&self, object: &ObjectRef) -> Option<&Seen> {
        self.objects.get(object)
    }

    pub(super) fn published(&self, name: &ObjectName) -> Option<&Published> {
        self.published.get(name)
    }

    pub(super) fn verdict(&self, place: &Place) -> Option<&SeenVerdict> {
        self.verdicts.get(place)
    }

    pub(super) fn address(&self, name: &ObjectName) -> Option<&SeenAddress> {
        self.addresses.get(name)
    }

    pub(super) fn forget_address(&mut self, name: &ObjectName) {
        self.addresses.remove(name);
    }

    pub(super) fn forget_published(&mut self, name: &ObjectName) {
        self.published.remove(name);
    }

    pub(super) fn forget_verdict(&mut self, place: &Place) {
        self.verdicts.remove(place);
    }
}

/// A cluster that cannot be reached any more, or can again.
fn news<'a>(before: &Seen, now: &'a Seen) -> Option<&'a Condition> {
    let holds = |condition: &Condition| condition.status == "True";
    let reachable = now.status.as_ref()?.reachable()?;
    let before = before.status.as_ref().and_then(OwnStatus::reachable).is_none_or(holds);
    (before != holds(reachable)).then_some(reachable)
}

fn place(meta: &ObjectMeta) -> Option<Place> {
    Some((meta.namespace.as_ref()?.parse().ok()?, meta.name.as_ref()?.parse().ok()?))
}

/// Whoever looks at one of those that share a verdict looks at both.
fn judged(place: &Place) -> ObjectRef {
    let [first, _] = sharing(place);
    first
}
