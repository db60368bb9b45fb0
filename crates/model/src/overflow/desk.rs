//! Where everything comes together once a second: what edges saw, what agents reported, and the tables that follow from both.
//!
//! A client belongs somewhere by the policy's mode and health alone: its *home* among the members. What edges count is counted by home, and a
//! table has a row for each home of each edge: home first, then the others by what the mode calls near, so that only what does not
//! fit leaves.
//!
//! Nothing but the estimates of capacities is remembered from turn to turn that sightings do not tell again: another desk that begins
//! where this one ended comes to the same tables within seconds.

mod direct;
mod rings;
mod services;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::fact::Timestamp;
use crate::identity::{ClusterName, ObjectName, ObjectRef};
use crate::ingress::{Backend, EntryMode};
use crate::overflow::capacity::Report;
use crate::overflow::table::{Basis, Origin, Out, Room, Table};
use crate::overflow::waterfall::{Edge, MAX_CLUSTERS, MAX_ORIGINS, pour};
use crate::overflow::{UNLIMITED, seconds_between};
use crate::routes::{Entry, HttpTable, Member};
use crate::steering::{Known, Unhealthy};
use direct::Direct;
use services::{ServiceKey, Services};

/// The edge of the rows that DNS answers by, where clients go straight to the members and no gateway sees them.
pub const DNS_EDGE: &str = "dns";
/// What is older does not count: sightings and tables come every second, and ten that are missing are no hiccup any more.
pub const FRESH: Duration = Duration::from_secs(10);
/// As many gateway and DNS processes as a fleet has in all of its places.
pub const MAX_EDGES: usize = 256;
/// Entries of one sighting. More than a gateway has requests for within a second; those that nobody asked for are left out.
pub const MAX_ENTRIES: usize = 16 << 10;

/// What a table is of: an Ingress, and one of the backends in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Destination {
    pub ingress: ObjectRef,
    pub backend: Backend,
}

impl From<&Entry> for Destination {
    fn from(entry: &Entry) -> Self {
        Self { ingress: entry.object.clone(), backend: entry.backend.clone() }
    }
}

/// What one edge says once a second. An edge is a gateway or DNS process, by its host name made a label.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sighting {
    /// Whether members are checked from here. What is missing below was found well then.
    pub checks: bool,
    /// At most [`MAX_ENTRIES`], each destination once. What is missing had no requests, and none of its members fails.
    pub entries: Vec<(Destination, Seen)>,
}

/// What an edge saw of an entry.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Seen {
    /// Requests per second that came, whatever became of them.
    pub came: f64,
    /// Each cluster once.
    pub members: Vec<(ClusterName, MemberSeen)>,
}

/// What an edge saw of a member of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MemberSeen {
    /// Of what came, the requests per second whose home it is. What belongs to no member in particular (where clients have no
    /// place, by `latency` and by `failover`) is in [`Seen::came`] alone.
    pub home_of: f64,
    /// Requests per second that it answered.
    pub answered: f64,
    pub round_trip: Option<Duration>,
    /// Its checks fail, from here.
    pub failing: bool,
    /// Its answers to real requests from here were errors: the edge sends nothing there for a while.
    pub ejected: bool,
}

/// The tables of one second, for everybody.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    /// When they were made, by the clock of whoever made them.
    pub at: Timestamp,
    /// Those that say something: a cluster's capacity is known, or one is out. Whoever holds an older table of a destination that is
    /// missing here goes by it until it is too old.
    pub by_destination: HashMap<Destination, Arc<Table>>,
}

/// The members that fail their checks for everybody, by the Ingresses that they serve.
pub type Failing = HashMap<ObjectRef, BTreeSet<ClusterName>>;

impl Tables {
    pub fn failing(&self) -> Failing {
        let mut failing = Failing::new();
        for (destination, table) in &self.by_destination {
            for (cluster, _) in table.clusters.iter().filter(|(_, room)| room.out == Some(Out::Unhealthy)) {
                failing.entry(destination.ingress.clone()).or_default().insert(cluster.clone());
            }
        }
        failing
    }

    pub fn of(&self, destination: &Destination) -> Option<&Arc<Table>> {
        self.by_destination.get(destination)
    }
}

/// Of all services. Whoever leads has one.
#[derive(Debug, Default)]
pub struct Desk {
    /// At most [`MAX_EDGES`].
    edges: BTreeMap<ObjectName, Heard>,
    /// Held, so that no other table is where this one was.
    http: Option<Arc<HttpTable>>,
    /// What that table has, each once.
    places: Vec<Place>,
    services: Services,
    /// Of entries that DNS sends clients to.
    direct: HashMap<Destination, Direct>,
    last: Arc<Tables>,
    /// When the first turn was.
    since: Option<Timestamp>,
}

/// A sighting has no place: this many others are heard already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_EDGES} edges are heard already")]
pub struct TooManyEdges;

/// What an edge last said.
#[derive(Debug)]
struct Heard {
    at: Timestamp,
    checks: bool,
    entries: HashMap<Destination, Seen>,
}

/// A destination, and what is looked up for it every second.
#[derive(Debug)]
struct Place {
    destination: Destination,
    entry: Arc<Entry>,
    /// In the order of the members.
    services: Vec<Option<ServiceKey>>,
}

impl Desk {
    /// Takes in what an edge says, in place of what it said before.
    pub fn see(&mut self, edge: ObjectName, sighting: Sighting, now: Timestamp) -> Result<(), TooManyEdges> {
        let before = self.edges.remove(&edge);
        if before.is_none() && self.edges.len() >= MAX_EDGES {
            self.forget(now);
            if self.edges.len() >= MAX_EDGES {
                return Err(TooManyEdges);
            }
        }
        let mut entries = HashMap::with_capacity(sighting.entries.len().min(MAX_ENTRIES));
        for (destination, mut seen) in sighting.entries.into_iter().take(MAX_ENTRIES) {
            seen.members.truncate(MAX_CLUSTERS);
            let known = before.as_ref().and_then(|before| before.entries.get(&destination));
            seen.average(known);
            entries.insert(destination, seen);
        }
        self.edges.insert(edge, Heard { at: now, checks: sighting.checks, entries });
        Ok(())
    }

    /// The tables of this second. `report` is what the agent of a member's cluster last said of a Service there, by its namespace and name, and when.
    pub fn turn<F>(&mut self, http: &Arc<HttpTable>, report: F, now: Timestamp) -> Arc<Tables>
    where
        F: Fn(&Member, &ObjectName, &ObjectName) -> Option<(Report, Timestamp)>,
    {
        let since = *self.since.get_or_insert(now);
        self.forget(now);
        self.follow(http);
        let fresh = |member: &Member, key: &ServiceKey| {
            report(member, &key.namespace, &key.name).filter(|(_, at)| is_fresh(*at, now))
        };
        let edges = std::mem::take(&mut self.edges);
        let told = Told::by(&edges);
        self.measure(&told, &fresh, now);
        let mut by_destination = HashMap::new();
        for place in &self.places {
            let Some(rooms) = self.rooms(place, &told, now) else { continue };
            // Whoever has just begun does not know yet what others knew: until then edges go by what they have.
            let begins = seconds_between(since, now) < SETTLED.as_secs_f64();
            if begins && rooms.values().any(|room| room.basis == Basis::Unknown && room.out.is_none()) {
                continue;
            }
            let origins = match (place.entry.policy.entry, self.direct.get(&place.destination)) {
                (EntryMode::Vip, _) => origins(place, &told, &rooms),
                (EntryMode::Dns, Some(direct)) => direct.origins(&place.entry, &rooms),
                (EntryMode::Dns, None) => continue,
            };
            if origins.is_empty() {
                continue;
            }
            let previous = self.last.of(&place.destination).filter(|table| is_fresh(table.at, now));
            // Neither is too large: see above.
            if let Ok(table) = pour(&origins, &rooms, previous.map(|table| &**table), now) {
                by_destination.insert(place.destination.clone(), Arc::new(table));
            }
        }
        for (destination, direct) in &mut self.direct {
            if let Some(table) = by_destination.get(destination) {
                direct.answer_by(table);
            }
        }
        self.edges = edges;
        self.last = Arc::new(Tables { at: now, by_destination });
        Arc::clone(&self.last)
    }

    /// The edges that are heard now.
    pub fn edges(&self) -> impl Iterator<Item = &ObjectName> {
        self.edges.keys()
    }

    fn forget(&mut self, now: Timestamp) {
        self.edges.retain(|_, heard| is_fresh(heard.at, now));
    }

    /// Looks for destinations where the table is another one.
    fn follow(&mut self, http: &Arc<HttpTable>) {
        if self.http.as_ref().is_some_and(|known| Arc::ptr_eq(known, http)) {
            return;
        }
        let mut there = HashSet::new();
        self.places.clear();
        for entry in http.entries().filter(|entry| (1..=MAX_CLUSTERS).contains(&entry.members.len())) {
            let destination = Destination::from(&**entry);
            if there.insert(destination.clone()) {
                let services = entry.members.iter().map(|member| ServiceKey::of(entry, member)).collect();
                self.places.push(Place { destination, entry: Arc::clone(entry), services });
            }
        }
        self.direct.retain(|destination, _| there.contains(destination));
        self.http = Some(Arc::clone(http));
    }

    /// What came, what was answered and what was reported, for the capacity of each service.
    fn measure(
        &mut self,
        told: &Told<'_>,
        report: &impl Fn(&Member, &ServiceKey) -> Option<(Report, Timestamp)>,
        now: Timestamp,
    ) {
        self.services.begin();
        for place in &self.places {
            let entry = &place.entry;
            let is_direct = entry.policy.entry == EntryMode::Dns;
            let seen = told.of(place);
            let mut demand: f64 = seen.iter().map(|(_, seen)| seen.came).sum();
            if is_direct {
                let served = entry.members.iter().zip(&place.services).filter_map(|(member, key)| {
                    Some((member.cluster.clone(), report(member, key.as_ref()?)?.0.served()))
                });
                let direct = self.direct.entry(place.destination.clone()).or_default();
                direct.serve(entry, &served.collect(), now);
                demand = direct.demand();
            }
            for (member, key) in entry.members.iter().zip(&place.services) {
                let Some(key) = key else { continue };
                let answered = seen.iter().filter_map(|(_, seen)| Some(seen.member(&member.cluster)?.answered));
                self.services.count(key, &entry.policy.overflow, answered.sum(), demand, is_direct);
                if let Some((said, at)) = report(member, key) {
                    self.services.report(key, said, at);
                }
            }
        }
        self.services.observe(now);
    }

    /// What each member can take of this destination; none where nothing is to be said about any.
    fn rooms(&self, place: &Place, told: &Told<'_>, now: Timestamp) -> Option<BTreeMap<ClusterName, Room>> {
        let demand = told.of(place).iter().map(|(_, seen)| seen.came).sum();
        let demand = self.direct.get(&place.destination).map_or(demand, Direct::demand);
        let mut says_something = false;
        let mut rooms = BTreeMap::new();
        for (member, key) in place.entry.members.iter().zip(&place.services) {
            let (out, is_seen_failing) = health(place, member, told);
            let limits = services::limits(&place.entry.policy.overflow);
            let unlimited = || Room { rate: UNLIMITED, most: UNLIMITED, basis: Basis::Unknown, out: None };
            let room = key.as_ref().and_then(|key| self.services.room(key, &limits, demand, out, now));
            let room = room.unwrap_or_else(|| match out {
                None => unlimited(),
                out => Room { rate: 0.0, most: 0.0, out, ..unlimited() },
            });
            says_something |= room.out.is_some() || room.rate < UNLIMITED || is_seen_failing;
            rooms.insert(member.cluster.clone(), room);
        }
        says_something.then_some(rooms)
    }
}

/// What edges said, by what they said it of: most destinations are spoken of by few.
struct Told<'a> {
    of: HashMap<&'a Destination, Vec<(&'a ObjectName, &'a Seen)>>,
    /// Those who check.
    who_checks: HashSet<&'a ObjectName>,
}

impl<'a> Told<'a> {
    fn by(edges: &'a BTreeMap<ObjectName, Heard>) -> Self {
        let mut of: HashMap<_, Vec<_>> = HashMap::new();
        for (edge, heard) in edges {
            for (destination, seen) in &heard.entries {
                of.entry(destination).or_default().push((edge, seen));
            }
        }
        let who_checks: HashSet<_> = edges.iter().filter(|(_, heard)| heard.checks).map(|(edge, _)| edge).collect();
        Self { of, who_checks }
    }

    fn of(&self, place: &Place) -> &[(&'a ObjectName, &'a Seen)] {
        self.of.get(&place.destination).map(Vec::as_slice).unwrap_or_default()
    }
}

/// Why a member is out for everybody: nothing is ready there, or more than half of those who check it say so; and whether any edge has
/// something against it.
fn health(place: &Place, member: &Member, told: &Told<'_>) -> (Option<Out>, bool) {
    let has_address = match (place.entry.policy.entry, &place.entry.policy.upstream) {
        // Or its nodes.
        (EntryMode::Dns, _) => true,
        (EntryMode::Vip, upstream) => !member.places(upstream).list.is_empty(),
    };
    let (mut failing, mut ejected) = (0, false);
    for (edge, seen) in told.of(place) {
        let seen = seen.member(&member.cluster);
        failing += usize::from(seen.is_some_and(|seen| seen.failing) && told.who_checks.contains(edge));
        ejected |= seen.is_some_and(|seen| seen.ejected);
    }
    let of_hub = place.entry.known(member, Known::default()).unhealthy;
    let out = if !has_address {
        Some(Out::Unreachable)
    } else if of_hub == Some(Unhealthy::Drained) {
        Some(Out::Drained)
    } else if of_hub.is_some() {
        Some(Out::NoReadyPods)
    } else if failing * 2 > told.who_checks.len() {
        Some(Out::Unhealthy)
    } else {
        None
    };
    (out, failing > 0 || ejected)
}

/// Every home of every edge that had something to say, or those with the most traffic where they are too many.
fn origins(place: &Place, told: &Told<'_>, rooms: &BTreeMap<ClusterName, Room>) -> BTreeMap<Origin, Edge> {
    let mut origins = Vec::new();
    for (edge, seen) in told.of(place) {
        for home in rings::homes(&place.entry) {
            let demand = match &home {
                Some(home) => seen.member(home).map_or(0.0, |member| member.home_of),
                None => seen.nobodys(),
            };
            let rings = rings::rings(&place.entry, home.as_ref(), seen, rooms);
            origins.push((Origin { edge: (*edge).clone(), home }, Edge { demand, rings }));
        }
    }
    if origins.len() > MAX_ORIGINS {
        origins.sort_by(|(_, one), (_, other)| other.demand.total_cmp(&one.demand));
        origins.truncate(MAX_ORIGINS);
    }
    origins.into_iter().collect()
}

/// Long enough that every agent has reported once to somebody who has just begun.
const SETTLED: Duration = Duration::from_secs(5);
/// How much of a difference that may be chance comes to count in a second.
const AVERAGED: f64 = 0.2;

impl Seen {
    fn member(&self, cluster: &ClusterName) -> Option<&MemberSeen> {
        self.members.iter().find_map(|(name, seen)| (name == cluster).then_some(seen))
    }

    /// Requests per second that belong to no member in particular.
    fn nobodys(&self) -> f64 {
        (self.came - self.members.iter().map(|(_, member)| member.home_of).sum::<f64>()).max(0.0)
    }

    /// Requests come by chance, a few more in one second than in the next: that is averaged. What is more than chance (three standard
    /// deviations) counts at once. What was answered is compared with reports of the same second and stays as it is.
    fn average(&mut self, before: Option<&Self>) {
        let sane = |rate: f64| if rate > 0.0 { rate.min(UNLIMITED) } else { 0.0 };
        let averaged = |now: f64, before: Option<f64>| match (sane(now), before) {
            (now, Some(before)) if (now - before).abs() <= 3.0 * now.max(before).sqrt() => {
                before + (now - before) * AVERAGED
            }
            (now, _) => now,
        };
        self.came = averaged(self.came, before.map(|before| before.came));
        for (cluster, member) in &mut self.members {
            let known = before.and_then(|before| before.member(cluster));
            member.home_of = averaged(member.home_of, known.map(|known| known.home_of));
            member.answered = sane(member.answered);
        }
    }
}

fn is_fresh(at: Timestamp, now: Timestamp) -> bool {
    now < at.saturating_add(FRESH)
}

#[cfg(test)]
mod tests;
