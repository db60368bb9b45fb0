//! From demand and capacities to the table.
//!
//! The demand of all edges is poured into the clusters ring by ring, nearest first, up to the wanted utilisation; within a ring in
//! proportion to what is free. What is left then fills everybody alike up to what they take at all, and what is left after that is
//! shed. Shares move from the table before towards that: fast off what is full, slowly where it is only nearer.
//!
//! Nothing depends on names or on the order of anything: edges in the same place get the same shares.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::fact::Timestamp;
use crate::identity::ClusterName;
use crate::overflow::table::{Cell, Origin, Reason, Room, Row, Shed, Table};
use crate::overflow::{UNLIMITED, seconds_between};

/// A tenant's clusters that serve one service. A table of this size is made within its second.
pub const MAX_CLUSTERS: usize = 256;
/// Rows of a table: 256 edges, as gateways in one place can be one and no cloud has more places in the world, with four homes each; or fewer
/// with more.
pub const MAX_ORIGINS: usize = 1024;

/// How much of the way a share goes in a second when it leaves a cluster that is full: half, so that reports which are seconds old do
/// not make it go too far.
const LEAVING: f64 = 0.5;
/// The same when there is only something nearer: nothing is lost meanwhile, and what comes back too fast leaves again.
const RETURNING: f64 = 0.1;
/// Shares that are this close to where they belong stay: capacities are noisy.
const DEAD_BAND: f64 = 0.01;
/// Edges without traffic have shares too, for the first request: those of somebody with next to none.
const LEAST_DEMAND: f64 = 1e-3;
/// Parts of a demand that are smaller were left by rounding.
const ROUNDING: f64 = 1e-9;

/// A gateway, or all gateways in one place; or that part of it that has one home.
#[derive(Debug, Clone, Default)]
pub struct Edge {
    /// Requests per second that come to it, whatever becomes of them.
    pub demand: f64,
    /// How far each cluster is that it can send to: a smaller ring is nearer. From measured times or from distances, whichever way the
    /// policy steers.
    pub rings: BTreeMap<ClusterName, u32>,
}

/// The ring of a measured round trip: about a zone, a city, a country, a continent, an ocean. Within a ring nothing is nearer, so that a few
/// milliseconds more or less move no traffic.
pub fn ring(round_trip: Duration) -> u32 {
    [5, 15, 30, 60, 100, 160, 250].into_iter().map(|limit| u32::from(round_trip >= Duration::from_millis(limit))).sum()
}

/// More than a table has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    #[error("{0} clusters serve one service; a table has room for {MAX_CLUSTERS}")]
    Clusters(usize),
    #[error("{0} origins of one service's traffic; a table has room for {MAX_ORIGINS}")]
    Origins(usize),
}

/// The table that follows from what the edges see and what the clusters can take, on from the table before.
pub fn pour(
    edges: &BTreeMap<Origin, Edge>,
    rooms: &BTreeMap<ClusterName, Room>,
    previous: Option<&Table>,
    now: Timestamp,
) -> Result<Table, TooLarge> {
    if rooms.len() > MAX_CLUSTERS {
        return Err(TooLarge::Clusters(rooms.len()));
    }
    if edges.len() > MAX_ORIGINS {
        return Err(TooLarge::Origins(edges.len()));
    }
    let clusters: Vec<(ClusterName, Room)> = rooms.iter().map(|(name, room)| (name.clone(), sane(room))).collect();
    let mut waterfall = Waterfall::new(edges, &clusters);
    waterfall.fill_by_ring();
    waterfall.fill_alike();

    let passed = previous.map_or(0.0, |table| seconds_between(table.at, now));
    let pace = Pace::after(passed);
    let before: Vec<Option<Shares>> = edges
        .keys()
        .enumerate()
        .map(|(number, edge)| Shares::of(previous?, edge, &clusters, |place| waterfall.takes(number, place)))
        .collect();
    let arrivals = waterfall.arrivals();
    let crowded = waterfall.crowded(&before, &arrivals);
    let mut rows = Vec::with_capacity(edges.len());
    for (number, (edge, before)) in edges.keys().zip(before).enumerate() {
        let target = waterfall.target(number);
        let shares = match before {
            Some(before) => before.towards(&target, &crowded, pace),
            // Nothing to go on from.
            None => target.clone(),
        };
        rows.push(waterfall.row(number, edge, &shares, &target, &arrivals));
    }
    Ok(Table { at: now, clusters, rows })
}

/// Rooms are computed by us; what cannot be computed with takes nothing rather than everything.
fn sane(room: &Room) -> Room {
    let sane = |rate: f64| if rate > 0.0 && room.out.is_none() { rate.min(UNLIMITED) } else { 0.0 };
    let rate = sane(room.rate);
    Room { rate, most: sane(room.most).max(rate), ..*room }
}

/// The state of the pouring. Cells are numbered edge by edge.
struct Waterfall<'a> {
    clusters: &'a [(ClusterName, Room)],
    demand: Vec<f64>,
    rings: Vec<Option<u32>>,
    /// What each edge still has to place.
    need: Vec<f64>,
    /// What each cluster still takes.
    free: Vec<f64>,
    /// Requests per second from each edge to each cluster.
    rates: Vec<f64>,
    /// What each cluster had left when all rings were filled.
    left: Vec<f64>,
    /// Whether an edge had something left then.
    spilled: Vec<bool>,
}

impl<'a> Waterfall<'a> {
    fn new(edges: &BTreeMap<Origin, Edge>, clusters: &'a [(ClusterName, Room)]) -> Self {
        let demand: Vec<f64> = edges
            .values()
            .map(|edge| if edge.demand > LEAST_DEMAND { edge.demand.min(UNLIMITED) } else { LEAST_DEMAND })
            .collect();
        let rings: Vec<Option<u32>> =
            edges.values().flat_map(|edge| clusters.iter().map(|(name, _)| edge.rings.get(name).copied())).collect();
        let free: Vec<f64> = clusters.iter().map(|(_, room)| room.rate).collect();
        Self {
            clusters,
            need: demand.clone(),
            spilled: vec![false; demand.len()],
            demand,
            rates: vec![0.0; rings.len()],
            rings,
            left: free.clone(),
            free,
        }
    }

    fn fill_by_ring(&mut self) {
        let mut rings: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (cell, ring) in self.rings.iter().enumerate() {
            if let Some(ring) = ring {
                rings.entry(*ring).or_default().push(cell);
            }
        }
        for cells in rings.values() {
            self.fill(cells);
        }
        self.left.clone_from(&self.free);
        self.spilled = self.need.iter().map(|&need| need > 0.0).collect();
    }

    /// Spreads what is left over, up to what clusters take at all, wherever it comes from.
    fn fill_alike(&mut self) {
        for (free, (_, room)) in self.free.iter_mut().zip(self.clusters) {
            *free += room.most - room.rate;
        }
        let cells: Vec<usize> = (0..self.rings.len()).filter(|cell| self.rings[*cell].is_some()).collect();
        self.fill(&cells);
    }

    /// Places what the edges need, within these cells. Each edge asks every cluster in proportion to what that has free; one that is asked for
    /// more than that gives everybody the same part of it and is full, and the rest asks again. So there are at most as many rounds as
    /// clusters.
    fn fill(&mut self, cells: &[usize]) {
        let count = self.clusters.len();
        let mut rest = true;
        while rest {
            let mut open = vec![0.0; self.need.len()];
            for cell in cells {
                open[cell / count] += self.free[cell % count];
            }
            let wanted = |cell: usize, need: &[f64], free: &[f64]| match open[cell / count] {
                open if open > 0.0 => need[cell / count] * (free[cell % count] / open),
                _ => 0.0,
            };
            let mut asked = vec![0.0; count];
            for cell in cells {
                asked[cell % count] += wanted(*cell, &self.need, &self.free);
            }
            let part = |(asked, free): (&f64, &f64)| if asked > free { free / asked } else { 1.0 };
            let granted: Vec<f64> = asked.iter().zip(&self.free).map(part).collect();
            let mut missing = vec![0.0; self.need.len()];
            for cell in cells {
                let wanted = wanted(*cell, &self.need, &self.free);
                self.rates[*cell] += wanted * granted[cell % count];
                missing[cell / count] += wanted * (1.0 - granted[cell % count]);
            }
            rest = false;
            for (edge, missing) in missing.into_iter().enumerate().filter(|(edge, _)| open[*edge] > 0.0) {
                let real = missing > ROUNDING * self.demand[edge];
                self.need[edge] = if real { missing } else { 0.0 };
                rest |= real;
            }
            for ((free, asked), granted) in self.free.iter_mut().zip(asked).zip(granted) {
                *free = if granted < 1.0 { 0.0 } else { (*free - asked).max(0.0) };
            }
        }
    }

    fn target(&self, edge: usize) -> Shares {
        let count = self.clusters.len();
        let demand = self.demand[edge];
        let rates = &self.rates[edge * count..(edge + 1) * count];
        Shares { to: rates.iter().map(|rate| rate / demand).collect(), shed: self.need[edge] / demand, adrift: 0.0 }
            .normal()
    }

    /// Whether an edge can send anything to a cluster.
    fn takes(&self, edge: usize, place: usize) -> bool {
        let count = self.clusters.len();
        self.clusters[place].1.most > 0.0 && self.rings[edge * count + place].is_some()
    }

    /// The clusters that get more than they can take if shares stay as they were.
    fn crowded(&self, before: &[Option<Shares>], arrivals: &[Arrivals]) -> Vec<bool> {
        let crowded = |place: usize| {
            let coming: f64 = before
                .iter()
                .zip(&self.demand)
                .filter_map(|(shares, demand)| Some(shares.as_ref()?.to[place] * demand))
                .sum();
            coming > arrivals[place].rate.max(self.clusters[place].1.rate)
        };
        (0..self.clusters.len()).map(crowded).collect()
    }

    fn row(&self, edge: usize, origin: &Origin, shares: &Shares, target: &Shares, arrivals: &[Arrivals]) -> Row {
        let count = self.clusters.len();
        let view = self.view(edge);
        let cells = (0..count)
            .map(|place| Cell {
                ring: self.rings[edge * count + place],
                share: shares.to[place],
                target: target.to[place],
                quota: self.quota(edge, place, &arrivals[place]),
                reason: self.reason(place, &view, shares.to[place], target.to[place]),
            })
            .collect();
        let why_shed = (shares.shed > 0.0).then(|| {
            let somebody = (0..count).any(|place| self.takes(edge, place));
            if somebody { Shed::AllFull } else { Shed::AllOut }
        });
        Row { origin: origin.clone(), demand: self.demand[edge], cells, shed: shares.shed, why_shed }
    }

    /// What comes to each cluster, and from whom it could come.
    fn arrivals(&self) -> Vec<Arrivals> {
        let count = self.clusters.len();
        let mut arrivals = vec![Arrivals::default(); count];
        for cell in (0..self.rings.len()).filter(|cell| self.rings[*cell].is_some()) {
            let of = &mut arrivals[cell % count];
            of.rate += self.rates[cell];
            of.demand += self.demand[cell / count];
            of.edges += 1.0;
        }
        arrivals
    }

    /// What an edge is meant to send, and its part of what is free after that: a third by what each sends there, a third by what comes to each,
    /// and a third for everybody alike. So there is room for one that grows, for one that has to turn elsewhere, and for one
    /// that begins.
    fn quota(&self, edge: usize, place: usize, arrivals: &Arrivals) -> f64 {
        let cell = edge * self.clusters.len() + place;
        let meant = self.rates[cell];
        if self.rings[cell].is_none() || self.left[place] <= 0.0 {
            return meant;
        }
        let by_demand = self.demand[edge] / arrivals.demand;
        let by_rate = if arrivals.rate > 0.0 { meant / arrivals.rate } else { by_demand };
        meant + self.left[place] * (by_rate + by_demand + 1.0 / arrivals.edges) / 3.0
    }

    fn view(&self, edge: usize) -> View<'_> {
        let count = self.clusters.len();
        let rings = &self.rings[edge * count..(edge + 1) * count];
        let rates = &self.rates[edge * count..(edge + 1) * count];
        let reached = rings.iter().enumerate().filter_map(|(place, ring)| Some((*ring.as_ref()?, place)));
        // Of several the largest: that is the one that somebody looks for.
        let size = |place: usize| self.clusters[place].1.rate;
        let nearest = reached.min_by(|(ring, place), (other_ring, other)| {
            ring.cmp(other_ring).then(size(*other).total_cmp(&size(*place)))
        });
        let used = rings.iter().zip(rates).filter(|(_, rate)| **rate > 0.0);
        View { rings, nearest, farthest: used.filter_map(|(ring, _)| *ring).max(), spilled: self.spilled[edge] }
    }

    fn reason(&self, place: usize, view: &View<'_>, share: f64, target: f64) -> Reason {
        let room = &self.clusters[place].1;
        let (Some(ring), Some((nearest_ring, nearest))) = (view.rings[place], view.nearest) else {
            return Reason::NoWay;
        };
        if let Some(out) = room.out {
            return Reason::Out(out);
        }
        if share <= 0.0 && target <= 0.0 {
            let passed = view.spilled || view.farthest > Some(ring);
            return if passed { Reason::Full { rate: room.rate } } else { Reason::NotNeeded };
        }
        if ring == nearest_ring {
            return Reason::Nearest;
        }
        if target <= 0.0 {
            return Reason::Returning;
        }
        if view.spilled {
            return Reason::AllFull;
        }
        match self.clusters[nearest].1 {
            Room { out: Some(out), .. } => Reason::InPlaceOf { lost: nearest, out },
            Room { rate, .. } => Reason::Overflow { full: nearest, rate },
        }
    }
}

/// What an edge has before it.
struct View<'a> {
    rings: &'a [Option<u32>],
    nearest: Option<(u32, usize)>,
    /// The ring of the farthest that it is meant to send to.
    farthest: Option<u32>,
    /// Whether the rings could not take all of it.
    spilled: bool,
}

/// Of one cluster, from all edges that can send there.
#[derive(Debug, Clone, Default)]
struct Arrivals {
    /// What is meant to come.
    rate: f64,
    /// What comes to those edges, wherever it goes.
    demand: f64,
    edges: f64,
}

/// How much of the way shares go.
#[derive(Clone, Copy)]
struct Pace {
    leaving: f64,
    returning: f64,
}

impl Pace {
    fn after(seconds: f64) -> Self {
        Self { leaving: 1.0 - (1.0 - LEAVING).powf(seconds), returning: 1.0 - (1.0 - RETURNING).powf(seconds) }
    }
}

/// What becomes of an edge's traffic; together 1.
#[derive(Debug, Clone)]
struct Shares {
    to: Vec<f64>,
    shed: f64,
    /// What went to clusters that take nothing any more.
    adrift: f64,
}

impl Shares {
    /// As they stand in a table, for the clusters that take something today. None where that table says nothing about the edge, or nothing of
    /// it is left.
    fn of(
        table: &Table,
        origin: &Origin,
        clusters: &[(ClusterName, Room)],
        takes: impl Fn(usize) -> bool,
    ) -> Option<Self> {
        let row = table.row(origin)?;
        let share = |name: &ClusterName| Some(row.cells.get(table.place(name)?)?.share);
        let to: Vec<f64> = clusters
            .iter()
            .enumerate()
            .map(|(place, (name, _))| share(name).filter(|_| takes(place)).unwrap_or(0.0))
            .collect();
        let sent: f64 = to.iter().sum();
        (sent > 0.0).then(|| Self { to, shed: row.shed, adrift: (1.0 - sent - row.shed).max(0.0) })
    }

    /// One step. What leaves its place goes to those that get too little, in proportion to what they are missing.
    fn towards(&self, target: &Self, crowded: &[bool], pace: Pace) -> Self {
        let differs = |(is, aim): (&f64, &f64)| (is - aim).abs() >= DEAD_BAND;
        let moves = self.to.iter().zip(&target.to).any(differs) || differs((&self.shed, &target.shed));
        let leaves = |place: usize| {
            let (is, aim) = (self.to[place], target.to[place]);
            let excess = (is - aim).max(0.0);
            if aim <= 0.0 && is < DEAD_BAND {
                excess
            } else if !moves {
                0.0
            } else if crowded[place] {
                excess * pace.leaving
            } else {
                excess * pace.returning
            }
        };
        let leaving: Vec<f64> = (0..self.to.len()).map(leaves).collect();
        // Whoever is refused is not kept waiting where there is room.
        let admitted = if moves { (self.shed - target.shed).max(0.0) * pace.leaving } else { 0.0 };
        let moving = leaving.iter().sum::<f64>() + admitted + self.adrift;
        let missing = |is: f64, aim: f64| (aim - is).max(0.0);
        let all_missing = self.to.iter().zip(&target.to).map(|(&is, &aim)| missing(is, aim)).sum::<f64>()
            + missing(self.shed, target.shed);
        if moving <= 0.0 || all_missing <= 0.0 {
            return self.clone();
        }
        let part = (moving / all_missing).min(1.0);
        let step = |is: f64, aim: f64, leaving: f64| is - leaving + missing(is, aim) * part;
        let to = (0..self.to.len()).map(|place| step(self.to[place], target.to[place], leaving[place])).collect();
        Self { to, shed: step(self.shed, target.shed, admitted), adrift: 0.0 }.normal()
    }

    /// Without what rounding leaves.
    fn normal(mut self) -> Self {
        let sum = self.to.iter().sum::<f64>() + self.shed;
        if sum > 0.0 {
            self.to.iter_mut().for_each(|share| *share /= sum);
            self.shed /= sum;
        } else {
            self.shed = 1.0;
        }
        self
    }
}

#[cfg(test)]
mod tests;
