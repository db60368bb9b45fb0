//! Between the doors and the desk that makes the tables of the overflow (`model::overflow`): what is counted here for it, and what its tables
//! say to this edge.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use model::overflow::desk::{DNS_EDGE, FRESH, MAX_ENTRIES};
use model::overflow::{
    Destination, Guard, MemberSeen, Origin, Out, Room, Row, Seen, Sighting, Table, Tables, UNLIMITED,
};
use model::routes::{Entry, HttpTable, Member};
use model::steering::{MemberKey, Shares, Unhealthy};
use model::{ClusterName, ObjectName};

use crate::choice::{EntryOutlook, Members, Outlook};

/// How often it is looked whether there are new tables, which come every second.
const LOOK: Duration = Duration::from_millis(100);
/// A way that became longer is believed by this part of the difference a second: what rises with the load is no way.
const LONGER: u64 = 16;

/// What the last table of an entry says to this edge.
#[derive(Debug, Default)]
pub(crate) struct Plans {
    /// Whether there is any: most entries have none, and requests look no further.
    is_any: AtomicBool,
    plan: ArcSwapOption<Plan>,
}

#[derive(Debug)]
pub(crate) struct Plan {
    table: Arc<Table>,
    edge: ObjectName,
    /// One for each home that has a row. Where nobody's capacity is known there are none, and the mode decides alone.
    ways: Vec<Ways>,
    /// When it is too old.
    until: Instant,
}

/// Of one home.
#[derive(Debug)]
pub(crate) struct Ways {
    home: Option<ClusterName>,
    pub(crate) guard: Guard,
    /// Requests so far.
    drawn: AtomicU64,
}

impl Ways {
    /// A number from 0 to 1. Not by chance: multiples of the golden ratio are spread so evenly that also a few requests are shared as is planned.
    pub(crate) fn point(&self) -> f64 {
        let drawn = self.drawn.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The upper half is all that matters.
        f64::from(u32::try_from(drawn >> 32).unwrap_or_default()) / f64::from(u32::MAX)
    }
}

impl Plans {
    pub(crate) fn fresh(&self, now: Instant) -> Option<Arc<Plan>> {
        if !self.is_any.load(Ordering::Relaxed) {
            return None;
        }
        self.plan.load_full().filter(|plan| now < plan.until)
    }

    /// On from the one before, as requests are under way by that.
    pub(crate) fn follow(&self, table: &Arc<Table>, edge: &ObjectName, now: Instant) {
        // One that has had its time says nothing of now.
        let before = self.plan.load_full().filter(|plan| now < plan.until);
        let known = |row: &Row| before.as_ref()?.ways(row.origin.home.as_ref());
        let is_limited = table.clusters.iter().any(|(_, room)| room.out.is_none() && room.rate < UNLIMITED);
        let rows = table.rows_of(edge).filter(|_| is_limited);
        let ways = |row: &Row| {
            let known = known(row);
            let drawn = known.map_or_else(|| fastrand::u64(..), |known| known.drawn.load(Ordering::Relaxed));
            let guard = Guard::new(table, &row.origin, known.map(|known| &known.guard))?;
            Some(Ways { home: row.origin.home.clone(), guard, drawn: AtomicU64::new(drawn) })
        };
        let ways = rows.filter_map(ways).collect();
        self.plan.store(Some(Arc::new(Plan {
            table: Arc::clone(table),
            edge: edge.clone(),
            ways,
            until: now + FRESH,
        })));
        self.is_any.store(true, Ordering::Relaxed);
    }

    pub(crate) fn forget(&self, now: Instant) {
        if self.is_any.load(Ordering::Relaxed) && self.plan.load().as_ref().is_some_and(|plan| plan.until <= now) {
            self.is_any.store(false, Ordering::Relaxed);
            self.plan.store(None);
        }
    }
}

impl Plan {
    pub(crate) fn ways(&self, home: Option<&ClusterName>) -> Option<&Ways> {
        self.ways.iter().find(|ways| ways.home.as_ref() == home)
    }

    /// Why a member is out for everybody.
    pub(crate) fn out(&self, cluster: &ClusterName) -> Option<Unhealthy> {
        let (_, room) = self.table.clusters.get(self.table.place(cluster)?)?;
        room.out.map(|out| match out {
            Out::Drained => Unhealthy::Drained,
            Out::Unhealthy | Out::Unreachable => Unhealthy::FailedChecks,
            Out::NoReadyPods => Unhealthy::NoReadyEndpoints,
        })
    }

    /// What becomes of requests of a home, and the table that says so.
    pub(crate) fn row(&self, home: Option<&ClusterName>) -> Option<(&Table, &Row)> {
        let row = self.table.row(&Origin { edge: self.edge.clone(), home: home.cloned() })?;
        Some((&self.table, row))
    }

    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.table.rows_of(&self.edge)
    }

    /// Requests per second that come here.
    pub(crate) fn demand(&self) -> f64 {
        self.rows().map(|row| row.demand).sum()
    }

    pub(crate) fn shown(&self) -> Vec<Shown> {
        let demand = self.demand();
        let shown = |(place, (cluster, room)): (usize, &(ClusterName, Room))| {
            let sent = self.rows().filter_map(|row| Some(row.demand * row.cells.get(place)?.share));
            Shown {
                cluster: cluster.clone(),
                share: if demand > 0.0 { sent.sum::<f64>() / demand } else { 0.0 },
                capacity: (room.out.is_none() && room.rate < UNLIMITED).then_some(room.rate),
                basis: room.basis.code(),
            }
        };
        self.table.clusters.iter().enumerate().map(shown).collect()
    }

    /// Where DNS sends the clients of a home, and what part of them; of those without a home, under no key. A member at a time.
    pub(crate) fn dns_shares(&self, entry: &Entry, home: &Member) -> Option<(MemberKey, Shares)> {
        let key = |cluster: &ClusterName| {
            let member = entry.members.iter().find(|member| member.cluster == *cluster)?;
            Some(MemberKey::of(&entry.object, &member.uid))
        };
        let edge: ObjectName = DNS_EDGE.parse().ok()?;
        let row = |home: Option<ClusterName>| self.table.row(&Origin { edge: edge.clone(), home });
        let row = row(Some(home.cluster.clone())).or_else(|| row(None))?;
        let cells = self.table.clusters.iter().zip(&row.cells);
        let shares = cells.filter_map(|((cluster, _), cell)| Some((key(cluster)?, cell.share))).collect();
        Some((MemberKey::of(&entry.object, &home.uid), shares))
    }
}

/// A member, for the metrics.
pub(crate) struct Shown {
    pub(crate) cluster: ClusterName,
    pub(crate) share: f64,
    /// None where it is not known, or out.
    pub(crate) capacity: Option<f64>,
    pub(crate) basis: &'static str,
}

/// Has tables come into force as they are published. Never ends by itself.
pub(crate) async fn follow(members: Arc<Members>, edge: ObjectName, tables: Arc<ArcSwap<Tables>>) {
    let mut last = tables.load_full();
    let mut look_for_old = Instant::now();
    loop {
        tokio::time::sleep(LOOK).await;
        let published = tables.load_full();
        let now = Instant::now();
        if Arc::ptr_eq(&last, &published) {
            if now >= look_for_old {
                members.forget_plans(now);
                look_for_old = now + FRESH;
            }
        } else {
            for (destination, table) in &published.by_destination {
                if let Some(outlook) = members.find(destination) {
                    outlook.plans.follow(table, &edge, now);
                }
            }
            last = published;
        }
    }
}

/// What is seen from here, for the desk to ask once a second.
#[derive(Debug, Clone)]
pub struct Sights {
    members: Arc<Members>,
    table: Arc<ArcSwap<HttpTable>>,
    checks: bool,
    /// When it was last asked.
    last: Arc<Mutex<Instant>>,
}

impl Sights {
    pub(crate) fn new(members: &Arc<Members>, table: &Arc<ArcSwap<HttpTable>>, checks: bool) -> Self {
        let last = Arc::new(Mutex::new(Instant::now()));
        Self { members: Arc::clone(members), table: Arc::clone(table), checks, last }
    }

    /// What happened since this was last asked; one asks, and about once a second.
    pub fn take(&self) -> Sighting {
        let now = Instant::now();
        let passed = {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            now.saturating_duration_since(std::mem::replace(&mut last, now)).as_secs_f64().max(1e-3)
        };
        let table = self.table.load();
        let (mut entries, mut there) = (Vec::new(), HashSet::new());
        for entry in table.entries() {
            let destination = Destination::from(&**entry);
            let Some(outlook) = self.members.find(&destination) else { continue };
            if !there.insert(destination.clone()) {
                continue;
            }
            if let Some(seen) = saw(entry, &outlook, passed, now) {
                entries.push((destination, seen));
            }
        }
        if entries.len() > MAX_ENTRIES {
            let matters = |seen: &Seen| seen.members.iter().any(|(_, member)| member.failing || member.ejected);
            entries.sort_by(|(_, one), (_, other)| {
                matters(other).cmp(&matters(one)).then(other.came.total_cmp(&one.came))
            });
            entries.truncate(MAX_ENTRIES);
        }
        Sighting { checks: self.checks, entries }
    }
}

/// None where there is nothing to tell.
fn saw(entry: &Entry, outlook: &EntryOutlook, passed: f64, now: Instant) -> Option<Seen> {
    let came = outlook.came.swap(0, Ordering::Relaxed);
    let known = outlook.members();
    let mut is_worth_telling = came > 0;
    let mut members = Vec::with_capacity(known.len());
    for member in entry.members.iter() {
        let Some((_, outlook)) = known.iter().find(|(uid, _)| *uid == member.uid) else { continue };
        let seen = saw_member(outlook, passed, now);
        is_worth_telling |= seen.answered > 0.0 || seen.failing || seen.ejected;
        members.push((member.cluster.clone(), seen));
    }
    is_worth_telling.then(|| Seen { came: per_second(came, passed), members })
}

fn saw_member(outlook: &Outlook, passed: f64, now: Instant) -> MemberSeen {
    let quickest = outlook.quickest.swap(u64::MAX, Ordering::Relaxed);
    let before = outlook.round_trip.load(Ordering::Relaxed);
    let round_trip = match (quickest, before) {
        (u64::MAX, before) => before,
        (quickest, 0) => quickest.max(1),
        (quickest, before) if quickest > before => before + (quickest - before) / LONGER,
        (quickest, _) => quickest.max(1),
    };
    outlook.round_trip.store(round_trip, Ordering::Relaxed);
    MemberSeen {
        home_of: per_second(outlook.home_of.swap(0, Ordering::Relaxed), passed),
        answered: per_second(outlook.answers.swap(0, Ordering::Relaxed), passed),
        round_trip: (round_trip > 0).then(|| Duration::from_micros(round_trip)),
        failing: outlook.is_failing(),
        ejected: outlook.is_ejected(now),
    }
}

fn per_second(count: u64, passed: f64) -> f64 {
    // No door takes four thousand million requests in a second or two.
    f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / passed
}

#[cfg(test)]
mod tests;
