//! Which member a request goes to, and what is known of members.
//!
//! The policy's mode and health say where a request belongs: its home. Where there is a table of the overflow, it says how much of that fits
//! there, and where the rest goes (`overflow.rs`).
//!
//! What is known belongs to an entry, not to a cluster: one bad service of a cluster says nothing about its others.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use model::ClusterName;
use model::ingress::Steering;
use model::inside::Place;
use model::overflow::{self, Destination, Permit, RetryBudget, Shed};
use model::routes::{Entry, HttpTable, Member};
use model::steering::{self, Asked, Candidate, Known, Ranking, Situation, Unhealthy, Whereabouts};

use crate::metrics::RouteCounts;
use crate::overflow::{Plan, Plans, Ways};

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

/// What to do with a request.
#[derive(Debug)]
pub enum Choice<'a> {
    /// Ask this one, and hold what is given with it until it has answered.
    Ask(&'a Arc<Member>, Option<Permit>),
    /// All are full: refuse it.
    Shed,
    /// There is nobody left to ask.
    Nobody,
}

/// The member to try next, of those that were not tried yet, as the policy steers and the measured load allows.
pub fn choose<'a>(
    entry: &'a Entry,
    outlook: &EntryOutlook,
    tried: &[ClusterName],
    client: &Visitor<'_>,
    now: Instant,
) -> Choice<'a> {
    let is_left = |member: &&Arc<Member>| !tried.contains(&member.cluster) && !places(entry, member).is_empty();
    let is_first = tried.is_empty();
    if is_first {
        outlook.came.fetch_add(1, Ordering::Relaxed);
    }
    let plan = outlook.plans.fresh(now);
    if let ([only], None) = (&*entry.members, &plan) {
        return Some(only).filter(is_left).map_or(Choice::Nobody, |member| Choice::Ask(member, None));
    }
    let plan = plan.as_deref();
    // Another try is nobody's turn.
    let turn = outlook.turn.fetch_add(usize::from(is_first), Ordering::Relaxed);
    let known = |member: &Member| entry.known(member, outlook.expected(member, plan, now));
    let Preferred { ranking, home } = rank(entry, known, Some(client), turn);
    let ranked = |ranking: &Ranking| {
        let best = ranking.members().filter_map(|number| entry.members.get(number)).find(is_left);
        best.map_or(Choice::Nobody, |member| Choice::Ask(member, None))
    };
    if let (true, Some(home)) = (is_first, home) {
        outlook.is_home(home);
    }
    let Some(ways) = ways(plan, &ranking, home) else { return ranked(&ranking) };
    let guard = &ways.guard;
    let find = |permit: &Permit| entry.members.iter().find(|member| member.cluster == *permit.cluster());
    let mut choice = if is_first { guard.choose(ways.point()) } else { guard.choose_after(tried) };
    if let overflow::Choice::Send(permit) = &choice
        && find(permit).is_none_or(|member| !is_left(&member) || known(member).unhealthy.is_some())
    {
        // Something is known here that the table does not know yet.
        let avoided = entry.members.iter().filter(|member| !is_left(member) || known(member).unhealthy.is_some());
        let mut avoided: Vec<ClusterName> = avoided.map(|member| member.cluster.clone()).collect();
        avoided.push(permit.cluster().clone());
        choice = guard.choose_after(&avoided);
    }
    match choice {
        overflow::Choice::Send(permit) => match find(&permit) {
            Some(member) => Choice::Ask(member, Some(permit)),
            None => ranked(&ranking),
        },
        overflow::Choice::Shed(Shed::AllOut) if is_first => ranked(&ranking),
        overflow::Choice::Shed(_) if is_first => Choice::Shed,
        overflow::Choice::Shed(_) => Choice::Nobody,
    }
}

/// Where a request belongs by the policy's mode and by health.
pub(crate) struct Preferred<'a> {
    pub(crate) ranking: Ranking,
    /// None where it belongs to nobody in particular.
    pub(crate) home: Option<&'a Arc<Member>>,
}

/// Without a client nothing is known of its place.
pub(crate) fn rank<'a>(
    entry: &'a Entry,
    known: impl Fn(&Member) -> Known + Copy,
    client: Option<&Visitor<'_>>,
    turn: usize,
) -> Preferred<'a> {
    let steering = &entry.policy.steering;
    let client = client.filter(|_| matches!(steering, Steering::Geo));
    let places = client.map(|client| client.places.load());
    let located =
        places.as_ref().zip(client).and_then(|(places, client)| Some(places.as_ref()?.locate(client.address)));
    let place = located.and_then(|located| located.place);
    let client = place.map(Whereabouts::from).unwrap_or_default();
    let asked = Asked { steering, client, turn: turn as u64, random: fastrand::u64(..) };
    let members = entry.members.iter().map(|member| Candidate {
        cluster: &member.cluster,
        location: &member.location,
        known: known(member),
    });
    let ranking = steering::order(&asked, members);
    let has_home = match steering {
        Steering::Geo => place.is_some(),
        Steering::Weighted(_) | Steering::RoundRobin => true,
        Steering::Latency | Steering::Failover(_) => false,
    };
    let home = ranking.members().next().filter(|_| has_home).and_then(|number| entry.members.get(number));
    Preferred { ranking, home }
}

/// What the measured load says of such requests, where it has a say: where nobody is well it may be the checks that fail, and what
/// follows from them.
pub(crate) fn ways<'p>(plan: Option<&'p Plan>, ranking: &Ranking, home: Option<&Arc<Member>>) -> Option<&'p Ways> {
    let plan = plan.filter(|_| ranking.situation != Situation::Panic)?;
    plan.ways(home.map(|home| &home.cluster))
}

/// Where a member takes what the policy asks for.
pub fn places<'a>(entry: &Entry, member: &'a Member) -> &'a [Place] {
    member.places(&entry.policy.upstream).list
}

/// What is known of all members, by the entries that they serve. No larger than the table, give or take what is gone.
#[derive(Debug)]
pub struct Members {
    since: Instant,
    entries: RwLock<HashMap<Destination, Arc<EntryOutlook>>>,
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
    /// Requests since somebody last asked.
    pub(crate) came: AtomicU64,
    /// What the overflow's table says.
    pub(crate) plans: Plans,
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
    /// Since somebody last asked: requests whose home it is, those that it answered, and the microseconds of the quickest.
    pub(crate) home_of: AtomicU64,
    pub(crate) answers: AtomicU64,
    pub(crate) quickest: AtomicU64,
    /// How far away it is in time, in microseconds; 0 is not known. What an answer took at least, so that it does not rise with the load.
    pub(crate) round_trip: AtomicU64,
}

impl Members {
    pub fn new(now: Instant) -> Self {
        Self { since: now, entries: RwLock::default(), swept: AtomicUsize::new(0) }
    }

    /// Of an entry that is being asked for; it is in the table now.
    pub fn of(&self, entry: &Entry, table: &HttpTable, now: Instant) -> Arc<EntryOutlook> {
        let key = Destination::from(entry);
        let outlook = self.find(&key).unwrap_or_else(|| self.insert(key, entry, table, now));
        outlook.last_asked.store(self.moment(now), Ordering::Relaxed);
        outlook
    }

    fn insert(&self, key: Destination, entry: &Entry, table: &HttpTable, now: Instant) -> Arc<EntryOutlook> {
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

    /// Gives back what plans took that are too old to go by.
    pub(crate) fn forget_plans(&self, now: Instant) {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        for outlook in entries.values() {
            outlook.plans.forget(now);
        }
    }

    pub(crate) fn find(&self, key: &Destination) -> Option<Arc<EntryOutlook>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).get(key).map(Arc::clone)
    }

    fn retain(&self, entries: &mut HashMap<Destination, Arc<EntryOutlook>>, table: &HttpTable, now: Instant) {
        let mut there = HashSet::new();
        for (_, host) in table.hosts() {
            there.extend(host.routes().iter().map(|route| &route.entry.object));
            there.extend(host.entry("").map(|entry| &entry.object));
        }
        there.extend(table.apps().filter_map(|(_, host)| host.default()).map(|entry| &entry.object));
        // Rules without a host are in no list of hosts: for them what was asked of late is kept.
        let late = self.moment(now).saturating_sub(KEPT.as_secs());
        entries.retain(|key, known| there.contains(&key.ingress) || known.last_asked.load(Ordering::Relaxed) >= late);
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
            came: AtomicU64::new(0),
            plans: Plans::default(),
        }
    }

    /// A request came whose home this member is.
    fn is_home(&self, member: &Member) {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, outlook)) = members.iter().find(|(uid, _)| *uid == member.uid) {
            outlook.home_of.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The members that were ever asked, by their UIDs.
    pub(crate) fn members(&self) -> Vec<(Arc<str>, Arc<Outlook>)> {
        self.members.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What requests go by: a member that the table takes out is out, whatever is seen from here.
    pub(crate) fn expected(&self, member: &Member, plan: Option<&Plan>, now: Instant) -> Known {
        let (known, agreed) = (self.known(member, now), plan.and_then(|plan| plan.out(&member.cluster)));
        Known { unhealthy: agreed.or(known.unhealthy), ..known }
    }

    /// What everybody goes by: what the edges agree upon, or as it is seen from here where nobody has said so.
    pub(crate) fn agreed(&self, member: &Member, now: Instant) -> Known {
        let known = self.known(member, now);
        match self.plans.fresh(now).as_deref() {
            Some(plan) => Known { unhealthy: plan.out(&member.cluster), ..known },
            None => known,
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
            home_of: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            quickest: AtomicU64::new(u64::MAX),
            round_trip: AtomicU64::new(0),
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

    pub(crate) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::Relaxed)
    }

    /// A check was answered after this long.
    pub(crate) fn checked(&self, after: Duration) {
        self.quickest.fetch_min(u64::try_from(after.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// What a choice goes by.
    fn known(&self, now: Instant) -> Known {
        let unhealthy = if self.is_failing() {
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
        if micros < self.quickest.load(Ordering::Relaxed) {
            self.quickest.fetch_min(micros, Ordering::Relaxed);
        }
        if is_well {
            self.answers.fetch_add(1, Ordering::Relaxed);
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
pub struct InFlight {
    outlook: Arc<Outlook>,
    /// The table's leave to send it, and since when.
    permit: Option<(Permit, Instant)>,
}

impl InFlight {
    pub fn new(outlook: &Arc<Outlook>, permit: Option<Permit>, now: Instant) -> Self {
        outlook.in_flight.fetch_add(1, Ordering::Relaxed);
        Self { outlook: Arc::clone(outlook), permit: permit.map(|permit| (permit, now)) }
    }

    /// It was answered to the end, or has become something else than a request.
    pub(crate) fn answered(&mut self) {
        if let Some((permit, since)) = self.permit.take() {
            permit.answered(since.elapsed());
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.outlook.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
