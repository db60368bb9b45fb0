//! * What every Cluster needs to be led to the resolver, kept on the hub while we lead.
//!
//! Level-triggered: whatever made a Cluster be looked at, what is wanted is compared with what is there, and the difference is
//! written. What is made is created, so that what somebody else has in that place is never touched; what is ours is put right by
//! a patch over the version that was seen, which also takes away what was added, as a Service with a selector would lead to other
//! pods. A round costs what is dirty, and there are so many writes per second: one pod of the resolver that goes is a write for every
//! Cluster.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::StreamExt as _;
use futures_util::stream;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::request::{Error as RequestError, Request};
use model::identity::Kind;
use model::{ClusterName, Snapshot};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::metrics::Metrics;
use super::objects::{Family, Place, Pods, SeenService, SeenSlice, Wanted, whose};
use super::planes::{ControlPlane, ControlPlanes, cluster};
use super::ports::{Holder, Ledger};
use super::watch::{self, Change, Heard};
use super::{FIELD_MANAGER, Settings};
use crate::apply::{Actual, Failure, MANAGER, send_within};
use crate::lease::Term;

/// Between the watches and the keeper; a watch waits while it is full.
const WAITING: usize = 256;
/// Clusters that are looked at in one round; between two rounds the keeper hears what has changed.
const BATCH: usize = 100;
/// As many writes are under way at once.
const AT_ONCE: usize = 8;
/// A hundred writes a second: a thousand Clusters are through in ten, and a hub has some tenths of its strength left.
const PER_WRITE: Duration = Duration::from_millis(10);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// What is known of the hub.
#[derive(Debug, Clone)]
pub struct Sides {
    pub plan: Arc<ArcSwap<Snapshot>>,
    pub hub: Arc<Actual>,
    pub planes: Arc<ControlPlanes>,
}

/// Goes on until the term is lost, and what was begun has ended.
pub async fn keep(client: Client, sides: Sides, term: Term, settings: Settings, metrics: Metrics) {
    if term.lost().run_until_cancelled(sides.hub.until_whole()).await.is_none() {
        return;
    }
    let (sender, heard) = mpsc::channel(WAITING);
    let following = watch::follow(client.clone(), &settings, sender);
    let keeper = Keeper {
        client,
        term,
        sides,
        settings: &settings,
        metrics: metrics.clone(),
        there: There::default(),
        ledger: None,
        dirty: BTreeSet::new(),
        retries: BTreeMap::new(),
        not_before: Instant::now(),
    };
    tokio::select! {
        () = following => {}
        () = keeper.run(heard) => {}
    }
    metrics.set(0, 0, 0);
}

struct Keeper<'a> {
    client: Client,
    term: Term,
    sides: Sides,
    settings: &'a Settings,
    metrics: Metrics,
    there: There,
    /// Once everything has been listed.
    ledger: Option<Ledger>,
    dirty: BTreeSet<ClusterName>,
    retries: BTreeMap<ClusterName, Retry>,
    /// So that there are not too many writes in a second.
    not_before: Instant,
}

/// What has been tried and is not to be tried again before its time: what failed, and what may not last, as somebody undoes it.
struct Retry {
    at: Instant,
    times: u32,
    what: BTreeSet<String>,
}

impl Keeper<'_> {
    async fn run(mut self, mut heard: mpsc::Receiver<Heard>) {
        while self.wait(&mut heard).await {
            if self.ledger.is_none() && self.there.is_listed() {
                self.begin();
            }
            if self.ledger.is_some() && Instant::now() >= self.not_before {
                self.round().await;
            }
            let without_port = self.ledger.as_ref().map_or(0, Ledger::waiting);
            self.metrics.set(self.there.pods.len(), without_port, self.dirty.len() + self.retries.len());
        }
    }

    /// Until something is to be done; `false` means that the term is over.
    async fn wait(&mut self, heard: &mut mpsc::Receiver<Heard>) -> bool {
        let retry = self.retries.values().map(|retry| retry.at).min();
        let rested = self.ledger.as_ref().and_then(Ledger::wake);
        let (pace, ready) = (self.not_before, !self.dirty.is_empty() && self.ledger.is_some());
        let due = async {
            match [retry, rested].into_iter().flatten().min() {
                _ if ready => sleep_until(pace).await,
                Some(at) => sleep_until(at.max(pace)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.term.lost().cancelled() => return false,
            change = heard.recv() => match change {
                Some(change) => {
                    self.dirty.extend(self.there.take(change));
                    // What comes together is looked at together.
                    while let Ok(change) = heard.try_recv() {
                        self.dirty.extend(self.there.take(change));
                    }
                }
                None => return false,
            },
            marked = self.sides.planes.dirty.next() => self.dirty.extend(marked.iter().filter_map(cluster)),
            () = due => {}
        }
        let now = Instant::now();
        let due: Vec<_> =
            self.retries.iter().filter(|(_, retry)| retry.at <= now).map(|(name, _)| name.clone()).collect();
        self.dirty.extend(due);
        if let Some(ledger) = &mut self.ledger {
            self.dirty.extend(ledger.wake_up(now));
        }
        true
    }

    /// Nobody has looked at anything since we lead.
    fn begin(&mut self) {
        let planes = self.sides.planes.all();
        let holder =
            |(name, plane): &(ClusterName, Arc<ControlPlane>)| self.is_wanted(name, plane).then(|| holder(plane));
        let holders = planes.iter().filter_map(|of| Some((of.0.clone(), holder(of)?))).collect();
        self.ledger = Some(Ledger::new(self.settings.ports.clone(), holders, Instant::now()));
        self.dirty.extend(planes.into_iter().map(|(name, _)| name));
        self.dirty.extend(self.there.clusters());
    }

    async fn round(&mut self) {
        let begun = Instant::now();
        let mut names = std::mem::take(&mut self.dirty);
        if let Some(next) = names.iter().nth(BATCH).cloned() {
            self.dirty = names.split_off(&next);
        }
        let mut writes = Vec::new();
        for name in names {
            let mut wanted = self.look(&name, begun);
            if wanted.is_empty() {
                self.retries.remove(&name);
            }
            if let Some(retry) = self.retries.get(&name).filter(|retry| retry.at > begun) {
                wanted.retain(|write| !retry.what.contains(&write.to_string()));
            }
            writes.extend(wanted.into_iter().map(|write| (name.clone(), write)));
        }
        let count = u32::try_from(writes.len()).unwrap_or(u32::MAX);
        let (client, term) = (self.client.clone(), self.term.clone());
        let outcomes = stream::iter(writes).map(|(name, write)| {
            let (client, term) = (client.clone(), term.clone());
            async move {
                let outcome = send_within(&client, &term, || write.request()).await;
                (name, write, outcome)
            }
        });
        let outcomes: Vec<_> = outcomes.buffer_unordered(AT_ONCE).collect().await;
        for (name, write, outcome) in outcomes {
            self.note(name, &write, outcome);
        }
        self.not_before = begun + PER_WRITE * count;
    }

    /// What is to be written for one Cluster; nothing, if all is as it should be.
    fn look(&mut self, name: &ClusterName, now: Instant) -> Vec<Write> {
        let Some(plane) = self.sides.planes.of(name) else {
            let removals = self.there.removals(name, |_| true);
            if removals.is_empty()
                && let Some(ledger) = &mut self.ledger
            {
                ledger.gone(name, now);
            }
            return removals;
        };
        if !self.is_wanted(name, &plane) {
            return Vec::new();
        }
        let Some(ledger) = &mut self.ledger else { return Vec::new() };
        self.dirty.extend(ledger.see(name, &holder(&plane), now).into_iter().filter(|changed| changed != name));
        let Some(port) = ledger.port(name) else {
            tracing::warn!(cluster = %name, ports = %self.settings.ports, "no port of the resolver is free for it");
            return Vec::new();
        };
        let namespace = plane.namespace.as_ref().unwrap_or(&self.settings.namespace);
        let wanted = Wanted { cluster: name, uid: plane.uid(), namespace, port };
        self.there.difference(&wanted, &plane)
    }

    /// It is accepted, or was once.
    fn is_wanted(&self, name: &ClusterName, plane: &ControlPlane) -> bool {
        plane.place.is_some() || self.sides.plan.load().cluster(name).is_some()
    }

    /// Remembers what the hub has now, or tries again later.
    fn note(&mut self, name: ClusterName, write: &Write, outcome: Result<Value, Failure>) {
        self.metrics.count(write.kind(), outcome.as_ref().map_or_else(Failure::outcome, |_| "ok"));
        match outcome {
            Ok(written) => {
                self.there.wrote(write, written);
                // There may be more to do, now that this is. Of a status the hub's watch tells.
                match write {
                    Write::Create { .. } | Write::Remove { .. } => _ = self.dirty.insert(name),
                    Write::Mend { .. } | Write::Status { .. } => self.try_later(name, write),
                }
            }
            Err(Failure::NotFound(_)) if matches!(write, Write::Remove { .. }) => {
                self.there.wrote(write, Value::Null);
                self.dirty.insert(name);
            }
            // Whoever leads next has it to do.
            Err(Failure::NotLeading) => {}
            Err(failure) => {
                let what = write.to_string();
                let before = self.retries.get(&name).filter(|retry| retry.what.contains(&what));
                if before.is_none_or(|before| before.times.is_power_of_two()) {
                    tracing::warn!(cluster = %name, what, "the way to the resolver is not as it should be: {failure}");
                }
                self.try_later(name, write);
            }
        }
    }

    fn try_later(&mut self, name: ClusterName, write: &Write) {
        let now = Instant::now();
        let retry = self.retries.entry(name).or_insert(Retry { at: now, times: 0, what: BTreeSet::new() });
        if retry.at <= now {
            retry.times += 1;
            retry.what.clear();
            let pause = (FIRST_PAUSE * 2_u32.saturating_pow(retry.times.min(16) - 1)).min(LONGEST_PAUSE);
            retry.at = now + pause.mul_f64(1.0 - fastrand::f64() / 2.0);
        }
        retry.what.insert(write.to_string());
    }
}

fn holder(plane: &ControlPlane) -> Holder {
    Holder { since: plane.since.clone(), port: plane.place.map(|place| place.port) }
}

/// What is on the hub.
#[derive(Default)]
struct There {
    services: Kept<SeenService>,
    slices: Kept<SeenSlice>,
    /// By name.
    of_pods: BTreeMap<String, EndpointSlice>,
    /// Those last seen: a resolver that is suddenly nowhere is led to where it was.
    pods: Pods,
    listed: [bool; 3],
}

impl There {
    fn is_listed(&self) -> bool {
        self.listed.iter().all(|listed| *listed)
    }

    fn clusters(&self) -> BTreeSet<ClusterName> {
        self.services.by_cluster.keys().chain(self.slices.by_cluster.keys()).cloned().collect()
    }

    /// Returns the Clusters that are to be looked at again.
    fn take(&mut self, heard: Heard) -> BTreeSet<ClusterName> {
        match heard {
            Heard::Service(change) => {
                self.listed[0] = true;
                self.services.take(*change, SeenService::read, |service| &service.metadata)
            }
            Heard::Slice(change) => {
                self.listed[1] = true;
                self.slices.take(change, SeenSlice::read, |slice| &slice.metadata)
            }
            Heard::Pods(change) => {
                self.listed[2] = true;
                self.take_pods(change)
            }
        }
    }

    fn take_pods(&mut self, change: Change<EndpointSlice>) -> BTreeSet<ClusterName> {
        let named = |slice: EndpointSlice| Some((slice.metadata.name.clone()?, slice));
        match change {
            Change::Listed(slices) => self.of_pods = slices.into_iter().filter_map(named).collect(),
            Change::Changed(slice) => self.of_pods.extend(named(slice)),
            Change::Gone(slice) => _ = slice.metadata.name.and_then(|name| self.of_pods.remove(&name)),
        }
        let pods = Pods::of(&self.of_pods.values());
        if pods.is_empty() && !self.pods.is_empty() {
            tracing::warn!("the resolver has no pods any more: control planes are still led to those that there were");
        }
        if pods.is_empty() || pods == self.pods {
            return BTreeSet::new();
        }
        self.pods = pods;
        self.clusters()
    }

    fn difference(&self, wanted: &Wanted<'_>, of: &ControlPlane) -> Vec<Write> {
        let place = wanted.service_place();
        let service = self.services.get(wanted.cluster, &place);
        let address = service.and_then(|service| service.address);
        // Before anything leads there: whoever leads next must not give it to another.
        if of.place.is_none_or(|place| place.port != wanted.port) {
            return vec![Write::status(wanted, address)];
        }
        let mut writes = Vec::new();
        match service {
            None => writes.push(Write::create(Object::Service, place.clone(), wanted.service(None))),
            Some(seen) if !wanted.is_service(seen) => {
                writes.push(Write::mend(Object::Service, place.clone(), wanted.service(Some(&seen.version))));
            }
            Some(_) => {}
        }
        let mut slices = BTreeSet::new();
        for family in Family::ALL.into_iter().filter(|family| self.pods.has(*family)) {
            let place = wanted.slice_place(family);
            slices.insert(place.clone());
            match self.slices.get(wanted.cluster, &place) {
                None => writes.push(Write::create(Object::Slice, place, wanted.slice(family, &self.pods, None))),
                Some(seen) if !wanted.is_slice(family, &self.pods, seen) => {
                    let body = wanted.slice(family, &self.pods, Some(&seen.version));
                    writes.push(Write::mend(Object::Slice, place, body));
                }
                Some(_) => {}
            }
        }
        if let Some(address) = address.filter(|address| of.place.and_then(|place| place.address) != Some(*address)) {
            writes.push(Write::status(wanted, Some(address)));
        } else if address.is_some() {
            // Nothing leads elsewhere any more, once everybody has been told.
            let is_elsewhere = |other: &Place| *other != place && !slices.contains(other);
            let keeps_slices = self.pods.is_empty();
            let removals = self.removals(wanted.cluster, is_elsewhere);
            writes.extend(removals.into_iter().filter(|write| !keeps_slices || write.kind() == "Service"));
        }
        writes
    }

    fn removals(&self, cluster: &ClusterName, is_meant: impl Fn(&Place) -> bool) -> Vec<Write> {
        let remove = |object, place: &Place, uid: &str| Write::Remove { object, place: place.clone(), uid: uid.into() };
        let services = self.services.of(cluster).filter(|(place, _)| is_meant(place));
        let slices = self.slices.of(cluster).filter(|(place, _)| is_meant(place));
        let services = services.map(|(place, seen)| remove(Object::Service, place, &seen.uid));
        services.chain(slices.map(|(place, seen)| remove(Object::Slice, place, &seen.uid))).collect()
    }

    /// So that nothing is written twice until its watch says the same.
    fn wrote(&mut self, write: &Write, written: Value) {
        match write {
            Write::Status { .. } => {}
            Write::Create { object: Object::Service, .. } | Write::Mend { object: Object::Service, .. } => {
                let seen = serde_json::from_value(written).ok();
                self.services.put(seen.as_ref().and_then(SeenService::read));
            }
            Write::Create { object: Object::Slice, .. } | Write::Mend { object: Object::Slice, .. } => {
                let seen = serde_json::from_value(written).ok();
                self.slices.put(seen.as_ref().and_then(SeenSlice::read));
            }
            Write::Remove { object: Object::Service, place, .. } => _ = self.services.remove(place),
            Write::Remove { object: Object::Slice, place, .. } => _ = self.slices.remove(place),
        }
    }
}

/// The objects of one kind, by the Cluster that they are for.
struct Kept<T> {
    by_cluster: HashMap<ClusterName, BTreeMap<Place, T>>,
    clusters: HashMap<Place, ClusterName>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { by_cluster: HashMap::new(), clusters: HashMap::new() }
    }
}

impl<T> Kept<T> {
    fn of(&self, cluster: &ClusterName) -> impl Iterator<Item = (&Place, &T)> {
        self.by_cluster.get(cluster).into_iter().flatten()
    }

    fn get(&self, cluster: &ClusterName, place: &Place) -> Option<&T> {
        self.by_cluster.get(cluster)?.get(place)
    }

    fn take<K>(
        &mut self,
        change: Change<K>,
        read: fn(&K) -> Option<(ClusterName, Place, T)>,
        meta: fn(&K) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    ) -> BTreeSet<ClusterName> {
        match change {
            Change::Listed(objects) => {
                let before = std::mem::take(self);
                let touched: BTreeSet<ClusterName> = before.by_cluster.into_keys().collect();
                touched.into_iter().chain(objects.iter().flat_map(|object| self.put(read(object)))).collect()
            }
            Change::Changed(object) => self.put(read(&object)),
            Change::Gone(object) => {
                whose(meta(&object)).and_then(|(_, place)| self.remove(&place)).into_iter().collect()
            }
        }
    }

    fn put(&mut self, seen: Option<(ClusterName, Place, T)>) -> BTreeSet<ClusterName> {
        let Some((cluster, place, seen)) = seen else { return BTreeSet::new() };
        // One that says now that it is another's.
        let before = self.clusters.get(&place).filter(|before| **before != cluster).cloned();
        let before = before.and_then(|_| self.remove(&place));
        self.clusters.insert(place.clone(), cluster.clone());
        self.by_cluster.entry(cluster.clone()).or_default().insert(place, seen);
        before.into_iter().chain([cluster]).collect()
    }

    fn remove(&mut self, place: &Place) -> Option<ClusterName> {
        let cluster = self.clusters.remove(place)?;
        if let Some(objects) = self.by_cluster.get_mut(&cluster) {
            objects.remove(place);
            if objects.is_empty() {
                self.by_cluster.remove(&cluster);
            }
        }
        Some(cluster)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Object {
    Service,
    Slice,
}

/// One request to the hub.
#[derive(Debug, Clone, PartialEq)]
enum Write {
    /// Where there is nothing: what somebody else has there is not touched.
    Create {
        object: Object,
        place: Place,
        body: Value,
    },
    /// Over the version that was seen.
    Mend {
        object: Object,
        place: Place,
        body: Value,
    },
    /// That very one.
    Remove {
        object: Object,
        place: Place,
        uid: String,
    },
    Status {
        cluster: ClusterName,
        body: Value,
    },
}

impl Write {
    fn create(object: Object, place: Place, body: Value) -> Self {
        Self::Create { object, place, body }
    }

    fn mend(object: Object, place: Place, body: Value) -> Self {
        Self::Mend { object, place, body }
    }

    fn status(wanted: &Wanted<'_>, address: Option<IpAddr>) -> Self {
        let mut resolver = json!({ "port": wanted.port });
        if let Some(address) = address {
            resolver["address"] = address.to_string().into();
        }
        let body = json!({
            "apiVersion": Kind::Cluster.api_version(),
            "kind": Kind::Cluster.as_str(),
            // Of this very Cluster.
            "metadata": { "name": wanted.cluster.as_str(), "uid": wanted.uid },
            "status": { "resolver": resolver },
        });
        Self::Status { cluster: wanted.cluster.clone(), body }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Create { object, .. } | Self::Mend { object, .. } | Self::Remove { object, .. } => object.as_str(),
            Self::Status { .. } => Kind::Cluster.as_str(),
        }
    }

    fn request(&self) -> Result<http::Request<Vec<u8>>, RequestError> {
        let manager = Some(MANAGER.to_owned());
        match self {
            Self::Create { object, place, body } => {
                let post = PostParams { dry_run: false, field_manager: manager };
                object.path(place).create(&post, body.to_string().into_bytes())
            }
            Self::Mend { object, place, body } => {
                let patch = PatchParams { field_manager: manager, ..PatchParams::default() };
                object.path(place).patch(&place.1, &patch, &Patch::Merge(body))
            }
            Self::Remove { object, place, uid } => {
                let only = Preconditions { uid: Some(uid.clone()), resource_version: None };
                object.path(place).delete(&place.1, &DeleteParams::default().preconditions(only))
            }
            Self::Status { cluster, body } => {
                let path = format!("/apis/{}/{}", Kind::Cluster.api_version(), Kind::Cluster.plural());
                let apply = PatchParams::apply(FIELD_MANAGER).force();
                Request::new(path).patch_subresource("status", cluster.as_str(), &apply, &Patch::Apply(body))
            }
        }
    }
}

impl std::fmt::Display for Write {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (verb, place) = match self {
            Self::Create { place, .. } => ("creating", place),
            Self::Mend { place, .. } => ("mending", place),
            Self::Remove { place, .. } => ("removing", place),
            Self::Status { cluster, .. } => return write!(f, "writing the status of Cluster {cluster}"),
        };
        write!(f, "{verb} {} {}/{}", self.kind(), place.0, place.1)
    }
}

impl Object {
    fn as_str(self) -> &'static str {
        match self {
            Self::Service => "Service",
            Self::Slice => "EndpointSlice",
        }
    }

    fn path(self, (namespace, _): &Place) -> Request {
        match self {
            Self::Service => Request::new(format!("/api/v1/namespaces/{namespace}/services")),
            Self::Slice => Request::new(format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices")),
        }
    }
}
