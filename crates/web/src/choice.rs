//! Which member a request goes to, and what is known of members.
//!
//! What is known belongs to an entry, not to a cluster: one bad service of a cluster says nothing about its others.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use model::ingress::{Backend, Steering, UpstreamTls};
use model::overflow::RetryBudget;
use model::routes::{Entry, HttpTable, Member};
use model::steering::{self, Asked, Candidate, Known, Ranking, Unhealthy, Whereabouts};
use model::{ClusterName, ObjectRef};

use crate::metrics::RouteCounts;

/// So many failures in a row put a member aside; a restart of an ingress controller has a few.
const FAILURES: u32 = 5;
/// For so long, times how often it was of late, up to the bound: it comes back soon, or rarely.
const EJECTED: Duration = Duration::from_secs(10);
const EJECTED_AT_MOST: Duration = Duration::from_mins(5);
/// What is not in the table any more is remembered for so long.
const KEPT: Duration = Duration::from_mins(10);

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub struct Visitor<'a> {
    pub address: IpAddr,
    /// Where everybody is, as far as is known.
    pub places: &'a ArcSwapOption<geo::Map>,
}

/// The member to try next, of those that were not tried yet, as the policy steers.
pub fn choose<'a>(
    entry: &'a Entry,
    outlook: &EntryOutlook,
    tried: &[ClusterName],
    client: &Visitor<'_>,
    now: Instant,
) -> Option<&'a Arc<Member>> {
    let is_left = |member: &&Arc<Member>| !tried.contains(&member.cluster) && !addresses(entry, member).is_empty();
    if let [only] = &*entry.members {
        return Some(only).filter(is_left);
    }
    // Another try is nobody's turn.
    let turn = outlook.turn.fetch_add(usize::from(tried.is_empty()), Ordering::Relaxed);
    let ranking = rank(entry, Some(outlook), Some(client), turn, now);
    ranking.members().filter_map(|number| entry.members.get(number)).find(is_left)
}

/// All members in the order in which they are to be tried. Without an outlook nothing is known of any, without a client nothing of
/// its place.
pub fn rank(
    entry: &Entry,
    outlook: Option<&EntryOutlook>,
    client: Option<&Visitor<'_>>,
    turn: usize,
    now: Instant,
) -> Ranking {
    let steering = &entry.policy.steering;
    let client = client.filter(|_| matches!(steering, Steering::Geo));
    let places = client.map(|client| client.places.load());
    let located =
        places.as_ref().zip(client).and_then(|(places, client)| Some(places.as_ref()?.locate(client.address)));
    let client = located.and_then(|located| located.place).map(Whereabouts::from).unwrap_or_default();
    let asked = Asked { steering, client, turn: turn as u64, random: fastrand::u64(..) };
    let members = entry.members.iter().map(|member| Candidate {
        cluster: &member.cluster,
        location: &member.location,
        known: outlook.map(|outlook| outlook.known(member, now)).unwrap_or_default(),
    });
    steering::order(&asked, members)
}

/// Where a member takes what the policy asks for.
pub fn addresses<'a>(entry: &Entry, member: &'a Member) -> &'a [SocketAddr] {
    match entry.policy.upstream {
        UpstreamTls::Plain => &member.http,
        UpstreamTls::Verified { .. } | UpstreamTls::Unverified => &member.https,
    }
}

/// What is known of all members, by the entries that they serve. No larger than the table, give or take what is gone.
#[derive(Debug)]
pub struct Members {
    since: Instant,
    entries: RwLock<HashMap<(ObjectRef, Backend), Arc<EntryOutlook>>>,
    /// How many there were after those that are gone were last taken out.
    swept: AtomicUsize,
}

/// What is known of an entry.
#[derive(Debug)]
pub struct EntryOutlook {
    pub(crate) ingress: String,
    turn: AtomicUsize,
    members: RwLock<Vec<(Arc<str>, Arc<Outlook>)>>,
    /// Seconds after the doors were opened.
    last_asked: AtomicU64,
    retries: RetryBudget,
    pub(crate) counts: RouteCounts,
}

/// What is known of a member of an entry.
#[derive(Debug)]
pub struct Outlook {
    since: Instant,
    in_flight: AtomicU32,
    /// In a row.
    failures: AtomicU32,
    /// In a row, too: a success forgets them.
    ejections: AtomicU32,
    /// Milliseconds from `since`; 0 is not at all.
    ejected_until: AtomicU64,
    /// From a request to the first octet of its response, in microseconds, the older the less.
    latency: AtomicU64,
    has_answered: AtomicBool,
    /// Its checks say that it is not well.
    is_failing: AtomicBool,
}

impl Members {
    pub fn new(now: Instant) -> Self {
        Self { since: now, entries: RwLock::default(), swept: AtomicUsize::new(0) }
    }

    /// Of an entry that is being asked for; it is in the table now.
    pub fn of(&self, entry: &Entry, table: &HttpTable, now: Instant) -> Arc<EntryOutlook> {
        let key = || (entry.object.clone(), entry.backend.clone());
        let outlook = self.peek(entry).unwrap_or_else(|| self.insert(key(), entry, table, now));
        outlook.last_asked.store(self.moment(now), Ordering::Relaxed);
        outlook
    }

    /// The same for who only looks; none before anybody asked for it.
    pub fn peek(&self, entry: &Entry) -> Option<Arc<EntryOutlook>> {
        let key = (entry.object.clone(), entry.backend.clone());
        self.entries.read().unwrap_or_else(PoisonError::into_inner).get(&key).map(Arc::clone)
    }

    fn insert(&self, key: (ObjectRef, Backend), entry: &Entry, table: &HttpTable, now: Instant) -> Arc<EntryOutlook> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        // Doubling pays for looking at all of them.
        if entries.len() > 64 + 2 * self.swept.load(Ordering::Relaxed) {
            self.retain(&mut entries, table, now);
            self.swept.store(entries.len(), Ordering::Relaxed);
        }
        Arc::clone(entries.entry(key).or_insert_with(|| Arc::new(EntryOutlook::new(entry))))
    }

    /// All that the table still has, by the names of their Ingresses.
    pub fn each(&self, table: &HttpTable, now: Instant) -> Vec<Arc<EntryOutlook>> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        self.retain(&mut entries, table, now);
        let mut all: Vec<_> = entries.values().map(Arc::clone).collect();
        all.sort_unstable_by(|a, b| a.ingress.cmp(&b.ingress));
        all
    }

    fn retain(&self, entries: &mut HashMap<(ObjectRef, Backend), Arc<EntryOutlook>>, table: &HttpTable, now: Instant) {
        let mut there = HashSet::new();
        for (_, host) in table.hosts() {
            there.extend(host.routes().iter().map(|route| &route.entry.object));
            there.extend(host.entry("").map(|entry| &entry.object));
        }
        // Rules without a host are in no list of hosts: for them what was asked of late is kept.
        let late = self.moment(now).saturating_sub(KEPT.as_secs());
        entries.retain(|(object, _), known| there.contains(object) || known.last_asked.load(Ordering::Relaxed) >= late);
    }

    fn moment(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.since).as_secs()
    }
}

impl EntryOutlook {
    pub fn new(entry: &Entry) -> Self {
        let namespace = entry.object.namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
        Self {
            ingress: format!("{namespace}{}", entry.object.name),
            turn: AtomicUsize::new(fastrand::usize(..1024)),
            members: RwLock::default(),
            last_asked: AtomicU64::new(0),
            retries: RetryBudget::default(),
            counts: RouteCounts::default(),
        }
    }

    /// None before it was ever asked.
    pub fn of(&self, member: &Member) -> Option<Arc<Outlook>> {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        members.iter().find(|(uid, _)| *uid == member.uid).map(|(_, outlook)| Arc::clone(outlook))
    }

    /// What a choice goes by. Of whom nothing is known counts as healthy.
    pub fn known(&self, member: &Member, now: Instant) -> Known {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        let outlook = members.iter().find(|(uid, _)| *uid == member.uid);
        outlook.map(|(_, outlook)| outlook.known(now)).unwrap_or_default()
    }

    /// A member that is about to be asked. Those that the entry has no more are forgotten.
    pub fn asked(&self, entry: &Entry, member: &Member, now: Instant) -> Arc<Outlook> {
        if let Some(known) = self.of(member) {
            return known;
        }
        let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
        members.retain(|(uid, _)| entry.members.iter().any(|member| member.uid == *uid));
        if let Some((_, known)) = members.iter().find(|(uid, _)| *uid == member.uid) {
            return Arc::clone(known);
        }
        let new = Arc::new(Outlook::new(now));
        members.push((Arc::clone(&member.uid), Arc::clone(&new)));
        new
    }

    /// Whose turn is next, for who only looks.
    pub fn turn(&self) -> usize {
        self.turn.load(Ordering::Relaxed)
    }

    /// What may be tried again; every request adds to it.
    pub fn retries(&self) -> &RetryBudget {
        &self.retries
    }
}

impl Outlook {
    pub fn new(now: Instant) -> Self {
        Self {
            since: now,
            in_flight: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            ejections: AtomicU32::new(0),
            ejected_until: AtomicU64::new(0),
            latency: AtomicU64::new(0),
            has_answered: AtomicBool::new(false),
            is_failing: AtomicBool::new(false),
        }
    }

    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub fn latency(&self) -> Option<Duration> {
        self.has_answered.load(Ordering::Relaxed).then(|| Duration::from_micros(self.latency.load(Ordering::Relaxed)))
    }

    pub(crate) fn set_failing(&self, is_failing: bool) {
        self.is_failing.store(is_failing, Ordering::Relaxed);
    }

    /// What a choice goes by.
    fn known(&self, now: Instant) -> Known {
        let unhealthy = if self.is_failing.load(Ordering::Relaxed) {
            Some(Unhealthy::FailedChecks)
        } else {
            self.is_ejected(now).then_some(Unhealthy::Ejected)
        };
        Known { unhealthy, round_trip: self.latency(), ..Known::default() }
    }

    pub fn is_ejected(&self, now: Instant) -> bool {
        self.ejected_until.load(Ordering::Relaxed) > self.moment(now)
    }

    /// It answered, well or not.
    pub fn answered(&self, after: Duration, is_well: bool, now: Instant) {
        let micros = u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
        if self.has_answered.swap(true, Ordering::Relaxed) {
            let old = self.latency.load(Ordering::Relaxed);
            self.latency.store(old - old / 8 + micros / 8, Ordering::Relaxed);
        } else {
            self.latency.store(micros, Ordering::Relaxed);
        }
        if is_well {
            self.failures.store(0, Ordering::Relaxed);
            self.ejections.store(0, Ordering::Relaxed);
        } else {
            self.failed(now);
        }
    }

    /// It could not be reached, or did not answer.
    pub fn failed(&self, now: Instant) {
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 < FAILURES || self.is_ejected(now) {
            return;
        }
        let times = self.ejections.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let until = self.moment(now + EJECTED.saturating_mul(times).min(EJECTED_AT_MOST));
        self.ejected_until.store(until, Ordering::Relaxed);
        self.failures.store(0, Ordering::Relaxed);
    }

    fn moment(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.since).as_millis()).unwrap_or(u64::MAX)
    }
}

/// A request that a member has, until it is dropped.
#[derive(Debug)]
pub struct InFlight(pub(crate) Arc<Outlook>);

impl InFlight {
    pub fn new(outlook: &Arc<Outlook>) -> Self {
        outlook.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(outlook))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
