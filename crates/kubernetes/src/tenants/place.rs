//! * The federated Ingresses of one tenant cluster: what is to be there is written, and what is not is removed.
//!
//! Level-triggered, as the hub's own side is: whatever changed, what is wanted or what is there, both are compared and the
//! difference is written, server-side, by our field manager. Three watches are held, each with a connection of its own,
//! while anything is to be there: of all Ingresses that say that they are ours, and of the Services and `EndpointSlice`s of
//! the namespaces in question. Where nothing is to be there, it is looked once whether something of ours was left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::api::{DeleteParams, GetParams, Patch, PatchParams, Preconditions};
use kube::core::Request;
use model::ObjectName;
use model::placement::{IngressPlace, Placement, PlacementFault};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::away::Away;
use super::copy::{Copy, Found, FoundSet, Observed};
use super::link::{Answer, Link};
use super::observe::connect;
use super::pace::Backoff;
use super::placed::{Lack, Placed};
use super::report::{Contact, Seen};
use super::services::{Services, Slices, state};
use super::wanted::{Copies, Wish};
use super::watch::{Kept, Query, Watched, fitting, list};
use super::{Shared, Subject};
use crate::apply::{MANAGED_BY, MANAGER};
use crate::kubeconfig::{self, Server};

/// A tenant has one namespace, and a cluster one tenant; while one follows the other there may be two.
const MOST_NAMESPACES: usize = 2;
/// A watch that lasted this long was a good one.
const GOOD: Duration = Duration::from_secs(4);
/// So long an answer to a write counts in the place of what the watch has not shown yet.
const AHEAD: Duration = Duration::from_secs(10);
/// When it is looked again at what somebody has to mend in the cluster, and no watch tells of.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// So often what others change is put back at once; then ever later, as two of them would never end.
const REPAIRS: u32 = 3;
/// But not later than this.
const LATEST: Duration = Duration::from_mins(1);
/// After so long without one, they count anew.
const PEACE: Duration = Duration::from_mins(5);
/// After so many in a row it is left for later.
const MOST_FAILURES: u32 = 3;
/// All of it is looked at again at the latest now.
const ANEW: Duration = Duration::from_mins(5);
/// What a cluster that leaves the fleet is given.
const FAREWELL: Duration = Duration::from_secs(5);

pub(super) struct Placer<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) cluster: &'a model::ClusterName,
    pub(super) subject: Arc<Subject>,
    pub(super) seen: &'a watch::Sender<Option<Seen>>,
    pub(super) server: Arc<Server>,
    /// Whether something of ours may be there.
    pub(super) has_copies: &'a AtomicBool,
}

impl Placer<'_> {
    /// Lasts for ever.
    pub(super) async fn run(self) {
        let mut wishes = self.shared.wanted.of(self.cluster);
        let mut backoff = Backoff::default();
        loop {
            // Its senders last as long as the table of all.
            let Ok(wish) = wishes.wait_for(|wish| wish.is_whole).await.map(|wish| Arc::clone(&wish)) else { return };
            // A cluster that cannot be reached is not tried a second time beside its nodes.
            self.until_seen(|contact| matches!(contact, Contact::Watching { .. })).await;
            if !wish.copies.is_empty() {
                self.keep(&mut wishes).await;
                continue;
            }
            if let Err(away) = self.sweep().await {
                tracing::debug!(cluster = %self.cluster, %away, "it could not be looked whether an Ingress was left behind");
                sleep(backoff.next()).await;
                continue;
            }
            backoff.reset();
            self.tell(Placed::default());
            if wishes.wait_for(|wish| !wish.copies.is_empty()).await.is_err() {
                return;
            }
        }
    }

    async fn until_seen(&self, holds: fn(&Contact) -> bool) {
        let is_seen = |seen: &Option<Seen>| seen.as_ref().is_some_and(|seen| holds(&seen.contact));
        // The sender is borrowed here.
        let _ = self.seen.subscribe().wait_for(is_seen).await;
    }

    /// Removes what is ours and not wanted any more; all of it, where nothing is.
    async fn sweep(&self) -> Result<(), Away> {
        let mut link = connect(self.shared, &self.server).await?;
        let left = remove_all(self.shared, &mut link).await;
        match left {
            // Who may not see any may not have written any.
            Ok(()) | Err(Away::Forbidden) => {
                self.has_copies.store(false, Ordering::Relaxed);
                Ok(())
            }
            Err(away) => Err(away),
        }
    }

    /// Keeps what is wanted until nothing is, or it is wanted in other namespaces.
    async fn keep(&self, wishes: &mut watch::Receiver<Arc<Wish>>) {
        self.has_copies.store(true, Ordering::Relaxed);
        let namespaces = namespaces(&wishes.borrow().copies);
        let mut views = Views::follow(self.shared, &self.server, &namespaces);
        let mut work = Work { placer: self, hand: None, places: BTreeMap::new() };
        loop {
            let copies = wishes.borrow_and_update().copies.clone();
            if self::namespaces(&copies) != namespaces {
                return;
            }
            let again = work.pass(&copies, views.ours()).await;
            // Until everything has been looked at, what was last told stays.
            if views.are_known() {
                self.tell(work.placed(&copies, &views));
            }
            tokio::select! {
                changed = wishes.changed() => if changed.is_err() { return },
                () = views.changed() => {}
                // What is there is listed anew when it is back.
                () = self.until_seen(|contact| matches!(contact, Contact::Lost { .. })) => return,
                () = sleep_until(again) => {}
            }
        }
    }

    fn tell(&self, placed: Placed) {
        self.seen.send_if_modified(|seen| match seen {
            Some(seen) if seen.subject.access.uid == self.subject.access.uid && seen.placed != placed => {
                seen.placed = placed;
                true
            }
            _ => false,
        });
    }
}

/// Removes what is ours in a cluster that is not followed any more, if that can be done at once.
pub(super) async fn say_farewell(shared: Arc<Shared>, subject: Arc<Subject>) {
    let access = &subject.access;
    let Ok(octets) = &access.kubeconfig else { return };
    let Ok(server) = kubeconfig::read(&access.secret, octets, shared.settings.policy) else { return };
    let removing = async {
        let mut link = connect(&shared, &Arc::new(server)).await?;
        remove_all(&shared, &mut link).await
    };
    match timeout(FAREWELL, removing).await {
        Ok(Ok(())) => {}
        Ok(Err(away)) => tracing::info!(%away, "federated Ingresses stay in a cluster that left the fleet"),
        Err(_) => tracing::info!("federated Ingresses stay in a cluster that left the fleet, as it does not answer"),
    }
}

async fn remove_all(shared: &Shared, link: &mut Link) -> Result<(), Away> {
    let (FoundSet { found, .. }, _) = list(link, &of_ours()).await?;
    for (place, found) in found.iter().filter(|(_, found)| found.is_ours) {
        if shared.stop.is_cancelled() {
            return Err(Away::Broken);
        }
        if let Answer::NotDone(status, _) = remove(link, place, found).await?
            && !is_gone(status)
        {
            return Err(Away::of_status(status));
        }
    }
    Ok(())
}

/// How an Ingress came back when it was written.
struct Written {
    found: Found,
    /// The version that it was written upon.
    onto: Option<String>,
    at: Instant,
    digest: String,
}

/// What is done in a cluster, from one look to the next.
struct Work<'a> {
    placer: &'a Placer<'a>,
    /// For writes. Closed while there are none.
    hand: Option<Link>,
    places: BTreeMap<IngressPlace, Progress>,
}

/// What came of writing one Ingress.
#[derive(Default)]
struct Progress {
    /// What was last written or tried.
    digest: String,
    fault: Option<PlacementFault>,
    /// One of ours is there, whatever it is like.
    is_there: bool,
    /// Not before then is it tried again.
    next: Option<Instant>,
    written: Option<Written>,
    /// How often the same was written again of late, when it last was, and when it may be.
    repairs: u32,
    repaired: Option<Instant>,
    repair: Option<Instant>,
    failures: Backoff,
}

impl Work<'_> {
    /// Compares and writes. Returns when to look again if nothing happens before.
    async fn pass(&mut self, copies: &Copies, ours: Result<Option<Arc<FoundSet>>, Away>) -> Instant {
        let begun = Instant::now();
        self.places.retain(|place, _| copies.contains_key(place));
        let ours = match ours {
            Ok(Some(ours)) => ours,
            Ok(None) => return begun + LOOK_AGAIN,
            Err(away) => {
                let fault = if away.is_refused() { PlacementFault::Forbidden } else { PlacementFault::Pending };
                for place in copies.keys() {
                    self.places.entry(place.clone()).or_default().fault = Some(fault);
                }
                return begun + LOOK_AGAIN;
            }
        };
        let (mut has_written, mut failures) = (false, 0);
        for (place, copy) in copies {
            match self.attend(place, copy, ours.found.get(place)).await {
                Ok(written) => has_written |= written,
                Err(away) => {
                    tracing::debug!(cluster = %self.placer.cluster, %away, "an Ingress could not be written");
                    self.hand = None;
                    self.places.entry(place.clone()).or_default().failed(PlacementFault::Pending, Instant::now());
                    failures += 1;
                    // The others would fare no better.
                    if failures == MOST_FAILURES {
                        break;
                    }
                }
            }
        }
        let mut is_left = false;
        let unwanted = |(place, found): &(&IngressPlace, &Found)| found.is_ours && !copies.contains_key(*place);
        for (place, found) in ours.found.iter().filter(unwanted) {
            if failures == MOST_FAILURES {
                break;
            }
            has_written = true;
            let removed = match self.hand().await {
                Ok(hand) => remove(hand, place, found).await,
                Err(away) => Err(away),
            };
            let is_removed = matches!(removed, Ok(Answer::Done(_)));
            is_left |= !is_removed && !matches!(removed, Ok(Answer::NotDone(status, _)) if is_gone(status));
            if removed.is_err() {
                self.hand = None;
                failures += 1;
            }
        }
        if !has_written {
            self.hand = None;
        }
        let next = self.places.values().filter_map(|progress| progress.next);
        let next = next.chain(is_left.then(|| begun + LOOK_AGAIN)).min();
        next.unwrap_or_else(|| begun + ANEW).max(begun + Duration::from_millis(100))
    }

    /// One Ingress: whether there was something to do.
    async fn attend(&mut self, place: &IngressPlace, copy: &Copy, shown: Option<&Found>) -> Result<bool, Away> {
        let now = Instant::now();
        let progress = self.places.entry(place.clone()).or_default();
        if progress.digest != copy.digest {
            // Another wish is a new beginning.
            let (written, is_there) = (progress.written.take(), progress.is_there);
            *progress = Progress { digest: copy.digest.clone(), written, is_there, ..Progress::default() };
        }
        let there = progress.there(shown, now).cloned();
        progress.is_there = there.as_ref().is_some_and(|found| found.is_ours);
        match &there {
            Some(found) if !found.is_ours => {
                progress.failed(PlacementFault::AlreadyThere, now);
                return Ok(false);
            }
            Some(found) if copy.is(found) || progress.is_settled(found, copy) => {
                progress.succeed();
                return Ok(false);
            }
            _ if progress.must_wait(now) => return Ok(false),
            _ => {}
        }
        let outcome = self.write(copy, there).await?;
        let now = Instant::now();
        let Some(progress) = self.places.get_mut(place) else { return Ok(true) };
        match outcome {
            Ok((found, onto)) => progress.wrote(found, onto, now),
            Err(fault) => {
                if progress.fault != Some(fault) {
                    let (namespace, name) = place;
                    tracing::info!(cluster = %self.placer.cluster, %namespace, %name, fault = fault.as_str(), "not placed");
                }
                progress.failed(fault, now);
            }
        }
        Ok(true)
    }

    /// Writes one Ingress where none is, or onto one of ours.
    async fn write(
        &mut self,
        copy: &Copy,
        there: Option<Found>,
    ) -> Result<Result<(Found, Option<String>), PlacementFault>, Away> {
        let there = match there {
            Some(found) => Some(found),
            None => match self.look(&copy.place).await? {
                Ok(found) => found,
                Err(fault) => return Ok(Err(fault)),
            },
        };
        if there.as_ref().is_some_and(|found| !found.is_ours) {
            return Ok(Err(PlacementFault::AlreadyThere));
        }
        if self.placer.shared.stop.is_cancelled() {
            return Ok(Err(PlacementFault::Pending));
        }
        // Where none was just now, somebody else's that came in between is not overwritten.
        let params = PatchParams { force: there.is_some(), ..PatchParams::apply(MANAGER) };
        let patch = Patch::Apply(copy.patch(there.as_ref()));
        let (namespace, name) = &copy.place;
        let request = fitting(Request::new(path(namespace)).patch(name.as_str(), &params, &patch))?;
        let answer = self.hand().await?.send(request).await?;
        self.placer.shared.metrics.placed(matches!(answer, Answer::Done(_)));
        Ok(match answer {
            Answer::Done(octets) => match Observed::read(&octets) {
                Some(observed) => Ok((observed.found(), there.map(|found| found.version))),
                None => Err(PlacementFault::Pending),
            },
            Answer::NotDone(status, said) => Err(fault_of(status, &said)),
        })
    }

    /// What stands at a place where nothing says that it is ours.
    async fn look(&mut self, place: &IngressPlace) -> Result<Result<Option<Found>, PlacementFault>, Away> {
        let (namespace, name) = place;
        let request = fitting(Request::new(path(namespace)).get(name.as_str(), &GetParams::default()))?;
        Ok(match self.hand().await?.send(request).await? {
            Answer::Done(octets) => {
                Observed::read(&octets).map(|seen| Some(seen.found())).ok_or(PlacementFault::Pending)
            }
            Answer::NotDone(404, _) => Ok(None),
            Answer::NotDone(status, said) => Err(fault_of(status, &said)),
        })
    }

    async fn hand(&mut self) -> Result<&mut Link, Away> {
        let hand = match self.hand.take() {
            Some(hand) => hand,
            None => connect(self.placer.shared, &self.placer.server).await?,
        };
        Ok(self.hand.insert(hand))
    }

    /// What is to be told.
    fn placed(&self, copies: &Copies, views: &Views) -> Placed {
        let lacks = views.lacks();
        let placement = |(place, copy): (&IngressPlace, &Arc<Copy>)| {
            let progress = self.places.get(place);
            let (services, slices) = views.of(&place.0);
            let backends =
                copy.backends.iter().map(|at| (at.clone(), state(at, services.as_deref(), slices.as_deref())));
            let placement = Placement {
                is_there: progress.is_some_and(|progress| progress.is_there),
                fault: progress.map_or(Some(PlacementFault::Pending), |progress| progress.fault),
                backends: backends.collect(),
            };
            (place.clone(), placement)
        };
        Placed::of(copies.iter().map(placement), &lacks)
    }
}

impl Progress {
    /// What is there: as the watch shows it, or as it was written upon that very version.
    fn there<'a>(&'a self, shown: Option<&'a Found>, now: Instant) -> Option<&'a Found> {
        match &self.written {
            Some(Written { found, onto, at, .. }) => {
                let is_ahead = shown.map(|shown| &shown.version) == onto.as_ref() && now < *at + AHEAD;
                if is_ahead { Some(found) } else { shown }
            }
            None => shown,
        }
    }

    /// Whether it is as it came back when it was written: what the cluster itself makes of it is no drift.
    fn is_settled(&self, found: &Found, copy: &Copy) -> bool {
        let is_written = |written: &Written| written.digest == copy.digest && written.found.is_as(found);
        self.written.as_ref().is_some_and(is_written)
    }

    /// Whether it is to be written later.
    fn must_wait(&mut self, now: Instant) -> bool {
        if let Some(at) = self.repair.filter(|at| now < *at) {
            self.fault = Some(PlacementFault::Pending);
            self.next = Some(at);
        }
        self.next.is_some_and(|next| now < next)
    }

    fn succeed(&mut self) {
        self.fault = None;
        self.next = None;
        self.failures.reset();
    }

    fn failed(&mut self, fault: PlacementFault, now: Instant) {
        self.fault = Some(fault);
        let wait = self.failures.next();
        self.next = Some(now + if fault == PlacementFault::Pending { wait } else { wait.min(LOOK_AGAIN) });
    }

    fn wrote(&mut self, found: Found, onto: Option<String>, now: Instant) {
        self.succeed();
        self.is_there = true;
        let written = Written { found, onto, at: now, digest: self.digest.clone() };
        let before = self.written.replace(written);
        if before.is_none_or(|before| before.digest != self.digest) {
            return;
        }
        if self.repaired.is_some_and(|at| now > at + PEACE) {
            self.repairs = 0;
        }
        self.repaired = Some(now);
        self.repairs += 1;
        let late = (self.repairs + 1).saturating_sub(REPAIRS).min(6);
        self.repair = (late > 0).then(|| now + Duration::from_secs(1 << late).min(LATEST));
    }
}

/// What is watched in a cluster.
struct Views {
    ours: View<FoundSet>,
    namespaces: BTreeMap<ObjectName, (View<Services>, View<Slices>)>,
    changed: watch::Receiver<()>,
}

/// Objects of one kind, followed by a task that ends with it.
struct View<K> {
    seen: watch::Receiver<Result<Option<Arc<K>>, Away>>,
    _task: AbortOnDropHandle<()>,
}

impl Views {
    fn follow(shared: &Arc<Shared>, server: &Arc<Server>, namespaces: &BTreeSet<ObjectName>) -> Self {
        let (news, changed) = watch::channel(());
        let view = |namespace: &ObjectName| {
            let services = Query { path: format!("/api/v1/namespaces/{namespace}/services"), labels: None };
            let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
            let slices = Query { path: slices, labels: None };
            let views = (View::start(shared, server, services, &news), View::start(shared, server, slices, &news));
            (namespace.clone(), views)
        };
        let ours = View::start(shared, server, of_ours(), &news);
        Self { ours, namespaces: namespaces.iter().take(MOST_NAMESPACES).map(view).collect(), changed }
    }

    async fn changed(&mut self) {
        // The tasks that tell of changes live as long as this.
        let _ = self.changed.changed().await;
    }

    fn ours(&self) -> Result<Option<Arc<FoundSet>>, Away> {
        self.ours.seen.borrow().clone()
    }

    /// Whether everything has been listed, as far as it may be.
    fn are_known(&self) -> bool {
        let of_namespaces =
            |(services, slices): &(View<Services>, View<Slices>)| services.is_known() && slices.is_known();
        self.ours.is_known() && self.namespaces.values().all(of_namespaces)
    }

    fn of(&self, namespace: &ObjectName) -> (Option<Arc<Services>>, Option<Arc<Slices>>) {
        let Some((services, slices)) = self.namespaces.get(namespace) else { return (None, None) };
        (services.known(), slices.known())
    }

    /// What may not be looked at.
    fn lacks(&self) -> Vec<Lack> {
        let of = |lacks: bool, lack: Lack| lacks.then_some(lack);
        let namespaces = self.namespaces.values().flat_map(|(services, slices)| {
            [of(services.is_refused(), Lack::Services), of(slices.is_refused(), Lack::EndpointSlices)]
        });
        [of(self.ours.is_refused(), Lack::Ingresses)].into_iter().chain(namespaces).flatten().collect()
    }
}

impl<K: Kept + Clone + Send + Sync + 'static> View<K>
where
    K::Object: Send,
{
    fn start(shared: &Arc<Shared>, server: &Arc<Server>, query: Query, news: &watch::Sender<()>) -> Self {
        let (sender, seen) = watch::channel(Ok(None));
        let task = follow(Arc::clone(shared), Arc::clone(server), query, sender, news.clone());
        Self { seen, _task: AbortOnDropHandle::new(tokio::spawn(task)) }
    }

    fn is_known(&self) -> bool {
        match &*self.seen.borrow() {
            Ok(known) => known.is_some(),
            Err(away) => away.is_refused(),
        }
    }

    fn known(&self) -> Option<Arc<K>> {
        self.seen.borrow().as_ref().ok().and_then(Clone::clone)
    }

    fn is_refused(&self) -> bool {
        self.seen.borrow().as_ref().is_err_and(|away| away.is_refused())
    }
}

/// Follows objects of one kind. What was seen stays while the server is away; not where it says no.
async fn follow<K: Kept + Clone>(
    shared: Arc<Shared>,
    server: Arc<Server>,
    query: Query,
    seen: watch::Sender<Result<Option<Arc<K>>, Away>>,
    news: watch::Sender<()>,
) {
    let mut watched = Watched::<K>::default();
    let mut backoff = Backoff::default();
    let mut link = None;
    loop {
        let mut since = None;
        let watching = async {
            let link = match &mut link {
                Some(link) => link,
                none => none.insert(connect(&shared, &server).await?),
            };
            let tell = |kept: &K| {
                since.get_or_insert_with(Instant::now);
                let _ = seen.send_replace(Ok(Some(Arc::new(kept.clone()))));
                news.send_replace(());
            };
            watched.follow(link, &query, shared.settings.watch_seconds(), tell).await
        };
        let ended = watching.await;
        if let Err(away) = ended {
            link = None;
            watched.list_anew();
            let is_known = matches!(*seen.borrow(), Ok(Some(_)));
            if away.is_refused() || !is_known {
                let _ = seen.send_replace(Err(away));
                news.send_replace(());
            }
        }
        let is_good = since.is_some_and(|since| since.elapsed() >= GOOD);
        if is_good {
            backoff.reset();
        }
        if !is_good || ended.is_err() {
            sleep(backoff.next()).await;
        }
    }
}

fn of_ours() -> Query {
    let labels = Some(format!("{MANAGED_BY}={MANAGER}"));
    Query { path: "/apis/networking.k8s.io/v1/ingresses".into(), labels }
}

fn path(namespace: &ObjectName) -> String {
    format!("/apis/networking.k8s.io/v1/namespaces/{namespace}/ingresses")
}

/// That very one; who took its place in between stays.
async fn remove(link: &mut Link, (namespace, name): &IngressPlace, found: &Found) -> Result<Answer, Away> {
    let only = Preconditions { uid: Some(found.uid.clone()), resource_version: None };
    let params = DeleteParams::default().preconditions(only);
    link.send(fitting(Request::new(path(namespace)).delete(name.as_str(), &params))?).await
}

/// Why an Ingress was not written.
fn fault_of(status: u16, said: &[u8]) -> PlacementFault {
    let says = |text: &str| said.windows(text.len()).any(|part| part == text.as_bytes());
    match status {
        404 => PlacementFault::NoNamespace,
        // What a policy of the cluster denies has the status of a right that lacks.
        403 if says("admission webhook") || says("ValidatingAdmissionPolicy") => PlacementFault::Rejected,
        403 if says("being terminated") => PlacementFault::NoNamespace,
        401 | 403 => PlacementFault::Forbidden,
        400 | 413 | 422 => PlacementFault::Rejected,
        _ => PlacementFault::Pending,
    }
}

/// It is not there any more, or another one is.
fn is_gone(status: u16) -> bool {
    matches!(status, 404 | 409)
}

fn namespaces(copies: &Copies) -> BTreeSet<ObjectName> {
    copies.keys().map(|(namespace, _)| namespace.clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(version: u32, annotation: &str) -> Found {
        let metadata = json!({
            "name": "shop", "namespace": "acme", "uid": "u", "resourceVersion": version.to_string(),
            "annotations": {crate::tenants::ORIGIN: "o", "a": annotation},
        });
        Observed::read(json!({"metadata": metadata}).to_string().as_bytes()).unwrap().found()
    }

    /// Until the watch shows it, what was written is what is there.
    #[test]
    fn an_answer_counts_until_the_watch_shows_more() {
        let now = Instant::now();
        let mut progress = Progress::default();
        assert_eq!(progress.there(None, now), None);
        progress.wrote(found(5, "x"), None, now);
        assert_eq!(progress.there(None, now), Some(&found(5, "x")));
        assert_eq!(progress.there(None, now + AHEAD), None, "somebody deleted it");
        assert_eq!(progress.there(Some(&found(6, "y")), now), Some(&found(6, "y")));
        progress.wrote(found(7, "x"), Some("6".into()), now);
        assert_eq!(progress.there(Some(&found(6, "y")), now), Some(&found(7, "x")), "not written twice");
        assert_eq!(progress.there(Some(&found(8, "z")), now), Some(&found(8, "z")));
    }

    #[test]
    fn what_others_change_all_the_time_is_put_back_ever_later() {
        let mut now = Instant::now();
        let mut progress = Progress::default();
        let mut waits = Vec::new();
        for version in 0..13 {
            // Between two of them everything is in order for a moment.
            progress.succeed();
            let begun = now;
            while progress.must_wait(now) {
                now += Duration::from_millis(500);
            }
            waits.push((now - begun).as_secs());
            progress.wrote(found(version, "x"), Some(version.to_string()), now);
        }
        assert_eq!(waits, [0, 0, 0, 0, 2, 4, 8, 16, 32, 60, 60, 60, 60]);
        // In peace it begins anew, and so it does with another wish.
        now += PEACE + Duration::from_secs(1);
        progress.wrote(found(20, "x"), Some("19".into()), now);
        assert!(!progress.must_wait(now));
    }

    #[test]
    fn why_an_ingress_was_not_written() {
        for (status, said, fault) in [
            (404, "namespaces \"acme\" not found", PlacementFault::NoNamespace),
            (403, "User \"nodes\" cannot patch resource", PlacementFault::Forbidden),
            (403, "admission webhook \"policy.example\" denied the request", PlacementFault::Rejected),
            (
                403,
                "unable to create new content in namespace acme because it is being terminated",
                PlacementFault::NoNamespace,
            ),
            (401, "", PlacementFault::Forbidden),
            (422, "", PlacementFault::Rejected),
            (409, "", PlacementFault::Pending),
            (500, "", PlacementFault::Pending),
        ] {
            assert_eq!(fault_of(status, said.as_bytes()), fault, "{status} {said}");
        }
    }
}
