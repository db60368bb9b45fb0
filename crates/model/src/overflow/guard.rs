//! What an edge does by itself between two tables: requests that pile up at a cluster go to the next one instead.
//!
//! At a rate `x` and `W` seconds each there are `x W` requests under way (Little's law). More than that by half says that the cluster has
//! become slower or the demand higher than the table knows, and that long before the next report.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::fact::Timestamp;
use crate::identity::ClusterName;
use crate::overflow::seconds_between;
use crate::overflow::table::{Origin, Shed, Table};

/// How many times as much as planned may be under way.
const TOLERANCE: f64 = 1.5;
/// The same where it is everywhere so, and the table has found room for all: then it is no cluster that has become slow, but the way there, or we
/// ourselves, and refusing helps nobody.
const EVERYWHERE: u32 = 4;
/// How long answers take is averaged over longer than capacities are: a cluster that is overrun gets less before its slowness counts
/// as usual.
const AVERAGED_OVER: f64 = 30.0;
/// Retries may be a fifth of the requests: a lost pod's are repeated, and a cluster that fails is not asked twice for everything.
const PER_REQUEST: u32 = 20;
const PER_RETRY: u32 = 100;
/// Requests that are under way to a cluster fail all at once when it is lost. Some thousand requests per second have fewer of them.
const MOST_RETRIES: u32 = 1_000;
/// Somebody who has just begun may lose a cluster, too, with as much under way as comes at once.
const FIRST_RETRIES: u32 = 100;

/// One edge's way through its row of a table. It is made anew with every table and takes on from the one before what is under way.
#[derive(Debug)]
pub struct Guard {
    made: Timestamp,
    /// Those that take requests, nearest first.
    ways: Vec<Way>,
    /// Why requests are refused that belong to no way.
    shed: Shed,
    /// The table refuses nobody.
    has_room: bool,
}

#[derive(Debug)]
struct Way {
    /// The shares of this and all nearer ones.
    up_to: f64,
    /// How long an answer takes, in seconds; none before the first.
    wait: Option<f64>,
    /// Requests that may be under way.
    limit: u32,
    load: Arc<Load>,
}

/// What happens at one cluster, across tables.
#[derive(Debug)]
struct Load {
    cluster: ClusterName,
    under_way: AtomicU32,
    /// Since the last table: how many were answered, and the microseconds that they took together.
    answered: AtomicU64,
    took: AtomicU64,
}

/// What to do with a request.
#[derive(Debug)]
pub enum Choice {
    Send(Permit),
    /// Refuse it, and say when to come again.
    Shed(Shed),
}

/// A request that is under way to a cluster, until this is dropped. A connection that has become something else (a WebSocket) is no
/// request any more and gives it back.
#[derive(Debug)]
pub struct Permit {
    diverted: bool,
    load: Arc<Load>,
}

impl Guard {
    /// For a row of an edge; none where the table has none. Edges that answer from several threads share one.
    pub fn new(table: &Table, origin: &Origin, previous: Option<&Self>) -> Option<Self> {
        let row = table.row(origin)?;
        let passed = previous.map_or(0.0, |guard| seconds_between(guard.made, table.at));
        let mut places: Vec<(u32, usize)> = Vec::new();
        for (place, (cell, (_, room))) in row.cells.iter().zip(&table.clusters).enumerate() {
            if let (Some(ring), None) = (cell.ring, room.out) {
                places.push((ring, place));
            }
        }
        places.sort_unstable();
        let mut up_to = 0.0;
        let mut ways = Vec::with_capacity(places.len());
        for (_, place) in places {
            let ((cluster, _), cell) = (&table.clusters[place], &row.cells[place]);
            let known = previous.and_then(|guard| guard.way(cluster));
            let load = known.map_or_else(|| Arc::new(Load::new(cluster)), |way| Arc::clone(&way.load));
            let wait = load.wait(known.and_then(|way| way.wait), passed);
            up_to += cell.share;
            ways.push(Way { up_to, wait, limit: limit(cell.quota, wait), load });
        }
        Some(Self { made: table.at, ways, shed: row.why_shed.unwrap_or(Shed::AllFull), has_room: row.shed <= 0.0 })
    }

    /// Where a request goes; `point` is drawn evenly from 0 to 1. Where too much is under way already the next one gets it, outwards
    /// first; where that is so everywhere it is refused, a good deal later if the table says that there is room. Nothing is allocated and nothing waits.
    pub fn choose(&self, point: f64) -> Choice {
        // Shares are 1 together but for rounding, which must not refuse anybody.
        let Some(first) = self.ways.iter().position(|way| point < way.up_to || way.up_to > 1.0 - 1e-9) else {
            return Choice::Shed(self.shed);
        };
        let everywhere = || self.has_room.then(|| self.from(first, EVERYWHERE).next()).flatten();
        self.from(first, 1).next().or_else(everywhere).map_or(Choice::Shed(Shed::AllFull), Choice::Send)
    }

    /// Where a request goes that failed at some clusters, or must not go there: to another one, outwards of the last first.
    pub fn choose_after(&self, failed: &[ClusterName]) -> Choice {
        let is_last = |way: &Way| failed.last() == Some(&way.load.cluster);
        let first = self.ways.iter().position(is_last).unwrap_or(0);
        let find = |times: u32| self.from(first, times).find(|permit| !failed.contains(permit.cluster()));
        let elsewhere = find(1).or_else(|| self.has_room.then(|| find(EVERYWHERE)).flatten());
        elsewhere.map_or(Choice::Shed(Shed::AllFull), Choice::Send)
    }

    /// Requests under way to a cluster, and how many may be.
    pub fn under_way(&self, cluster: &ClusterName) -> Option<(u32, u32)> {
        let way = self.way(cluster)?;
        Some((way.load.under_way.load(Ordering::Relaxed), way.limit))
    }

    fn way(&self, cluster: &ClusterName) -> Option<&Way> {
        self.ways.iter().find(|way| way.load.cluster == *cluster)
    }

    /// Whoever takes a request, from one way outwards and then the nearer ones.
    fn from(&self, first: usize, times: u32) -> impl Iterator<Item = Permit> {
        let (before, from) = self.ways.split_at(first.min(self.ways.len()));
        let ways = from.iter().chain(before).enumerate();
        ways.filter(move |(_, way)| way.load.enter(way.limit.saturating_mul(times)))
            .map(|(number, way)| Permit { diverted: number > 0, load: Arc::clone(&way.load) })
    }
}

/// How many requests may be under way at a quota. Few requests come in lumps: four times their standard deviation is chance, and no
/// sign of anything.
fn limit(quota: f64, wait: Option<f64>) -> u32 {
    let Some(wait) = wait else { return if quota > 0.0 { u32::MAX } else { 0 } };
    if quota <= 0.0 {
        return 0;
    }
    let planned = quota * wait;
    whole((planned * TOLERANCE).max(planned + 4.0 * planned.sqrt() + 4.0))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Clamped to what a u32 holds.
fn whole(number: f64) -> u32 {
    number.clamp(0.0, f64::from(u32::MAX)) as u32
}

impl Load {
    fn new(cluster: &ClusterName) -> Self {
        Self {
            cluster: cluster.clone(),
            under_way: AtomicU32::new(0),
            answered: AtomicU64::new(0),
            took: AtomicU64::new(0),
        }
    }

    fn enter(&self, limit: u32) -> bool {
        let entered = self.under_way.fetch_add(1, Ordering::Relaxed) < limit;
        if !entered {
            self.under_way.fetch_sub(1, Ordering::Relaxed);
        }
        entered
    }

    /// The average time of an answer, with those since the last table.
    fn wait(&self, before: Option<f64>, passed: f64) -> Option<f64> {
        let answered = self.answered.swap(0, Ordering::Relaxed);
        let took = self.took.swap(0, Ordering::Relaxed);
        if answered == 0 {
            return before;
        }
        let mean = Duration::from_micros(took / answered).as_secs_f64();
        let weight = (-passed / AVERAGED_OVER).exp();
        Some(before.map_or(mean, |before| mean + (before - mean) * weight))
    }
}

impl Permit {
    pub fn cluster(&self) -> &ClusterName {
        &self.load.cluster
    }

    /// Whether it goes elsewhere than the table says, as too much was under way there.
    pub fn diverted(&self) -> bool {
        self.diverted
    }

    /// It was answered, after this long.
    pub fn answered(self, took: Duration) {
        // More than a day is no time to plan with.
        let took = u64::try_from(took.min(Duration::from_hours(24)).as_micros()).unwrap_or(0);
        self.load.answered.fetch_add(1, Ordering::Relaxed);
        self.load.took.fetch_add(took, Ordering::Relaxed);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.load.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many requests may be tried again: one for every five, so that retries do not finish off what is failing.
#[derive(Debug)]
pub struct RetryBudget {
    /// In hundredths of a retry.
    saved: AtomicU32,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self { saved: AtomicU32::new(FIRST_RETRIES * PER_RETRY) }
    }
}

impl RetryBudget {
    /// A request came.
    pub fn save(&self) {
        // Two threads may both add the last bit; that is a retry more or less.
        if self.saved.load(Ordering::Relaxed) < MOST_RETRIES * PER_RETRY {
            self.saved.fetch_add(PER_REQUEST, Ordering::Relaxed);
        }
    }

    /// Whether one that failed may be tried again.
    pub fn spend(&self) -> bool {
        let spend = |saved: u32| saved.checked_sub(PER_RETRY);
        self.saved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).is_ok()
    }
}

#[cfg(test)]
mod tests;
