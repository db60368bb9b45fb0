//! Who decides where traffic goes: we, and others beside us.

use std::collections::BTreeMap;
use std::time::Duration;

use model::overflow::{Capacity, Choice, Edge, Guard, Limits, Origin, Report, Room, Row, Table, pour, ring};
use model::{ClusterName, Timestamp};

use super::{REGIONS, RTT, Scenario, Seen, Split, Tick, takes};

/// Envoy fails over between priorities by health, with this factor of reserve.
const OVERPROVISIONING: f64 = 1.4;

pub enum Policy {
    /// Envoy's priority levels: home, then the next nearest, by the share of healthy pods.
    Priority,
    /// Envoy's `load_aware_locality` with its defaults, as documented.
    LoadAware { utilization: Option<[f64; REGIONS]> },
    /// The waterfall by declared rates alone.
    Declared,
    /// The product's code.
    Ours(Box<Ours>),
    /// The same with a table for each edge, which knows of the others only what the reports tell.
    Alone(Box<Alone>),
}

/// A name and how one begins.
type Peer = (&'static str, fn() -> Policy);

/// All who are compared.
pub const POLICIES: [Peer; 5] = [
    ("Envoy priority levels", || Policy::Priority),
    ("Envoy load_aware_locality", Policy::load_aware),
    ("declared-rate waterfall", || Policy::Declared),
    ("ours, table alone", Policy::ours),
    ("ours", Policy::ours_guarded),
];

#[derive(Default)]
pub struct Ours {
    capacities: [Capacity; REGIONS],
    pub table: Option<Table>,
    /// One for each edge, where edges have them.
    guards: Option<Vec<Guard>>,
}

#[derive(Default)]
pub struct Alone {
    capacities: [Capacity; REGIONS],
    tables: Vec<Table>,
    /// What each edge sent where, by the second.
    sent: Vec<Vec<[f64; REGIONS]>>,
}

impl Policy {
    pub fn alone() -> Self {
        Self::Alone(Box::default())
    }

    pub fn ours() -> Self {
        Self::Ours(Box::default())
    }

    pub fn ours_guarded() -> Self {
        Self::Ours(Box::new(Ours { guards: Some(Vec::new()), ..Ours::default() }))
    }

    pub fn load_aware() -> Self {
        Self::LoadAware { utilization: None }
    }

    /// The split of each edge. `pods` are those of the start, which are known before the first report.
    pub fn decide(
        &mut self,
        scenario: &Scenario,
        second: u32,
        edges: &[(usize, f64)],
        pods: [u32; REGIONS],
        report: Option<&[Seen; REGIONS]>,
    ) -> Vec<Split> {
        let ready = report.map_or(pods, |seen| seen.map(|seen| seen.ready));
        match self {
            Self::Priority => edges.iter().map(|&(home, _)| priority(home, ready, scenario)).collect(),
            Self::LoadAware { utilization } => {
                smooth(utilization, report);
                let utilization = utilization.unwrap_or_default();
                edges.iter().map(|&(home, _)| load_aware(home, ready, utilization)).collect()
            }
            Self::Declared => declared(scenario, edges, ready),
            Self::Ours(ours) => ours.decide(scenario, second, edges, pods, report),
            Self::Alone(alone) => alone.decide(scenario, second, edges, pods, report),
        }
    }
}

impl Policy {
    /// How many requests each edge lets be under way to each region.
    pub fn limits(&self) -> Option<Vec<[u32; REGIONS]>> {
        let Self::Ours(ours) = self else { return None };
        let limit = |guard: &Guard, region| guard.under_way(&cluster(region)).map_or(0, |(_, limit)| limit);
        let limits = |guard| std::array::from_fn(|region| limit(guard, region));
        Some(ours.guards.as_ref()?.iter().map(limits).collect())
    }

    /// Tells the edges how long answers took.
    pub fn answered(&mut self, edges: &[(usize, f64)], tick: &Tick) {
        let Self::Ours(ours) = self else { return };
        for (guard, (home, _)) in ours.guards.iter().flatten().zip(edges) {
            // A request here and there; what it takes is the same for all of a tick.
            for point in (0..20).map(|twentieth| f64::from(twentieth) / 20.0) {
                if let Choice::Send(permit) = guard.choose(point) {
                    let region = (0..REGIONS).find(|region| cluster(*region) == *permit.cluster()).unwrap();
                    permit.answered(Duration::from_secs_f64(takes(*home, region, tick.utilization[region]) / 1000.0));
                }
            }
        }
    }
}

/// The regions, nearest first.
pub fn by_distance(home: usize) -> [usize; REGIONS] {
    let mut regions = std::array::from_fn(|region| region);
    regions.sort_by(|a, b| RTT[home][*a].total_cmp(&RTT[home][*b]));
    regions
}

fn priority(home: usize, ready: [u32; REGIONS], scenario: &Scenario) -> Split {
    let mut split = Split::default();
    let mut rest = 1.0;
    for region in by_distance(home) {
        // Pods that are not ready are hosts still, as many as there will be.
        let all = (scenario.pods)(scenario.seconds, region).max((scenario.pods)(0, region));
        let health = OVERPROVISIONING * f64::from(ready[region]) / f64::from(all);
        split.to[region] = health.min(rest);
        rest -= split.to[region];
    }
    split.to[home] += rest;
    split
}

fn smooth(utilization: &mut Option<[f64; REGIONS]>, report: Option<&[Seen; REGIONS]>) {
    let Some(seen) = report else { return };
    let weight = (-1.0_f64 / 5.0).exp();
    *utilization = Some(std::array::from_fn(|region| {
        let new = seen[region].utilization;
        utilization.map_or(new, |old| new + (old[region] - new) * weight)
    }));
}

/// Weights are pods times what they have to spare; all goes home while home is at most a tenth busier than the others. Three percent
/// always go elsewhere, to see what is there.
fn load_aware(home: usize, ready: [u32; REGIONS], utilization: [f64; REGIONS]) -> Split {
    let pods = ready.map(f64::from);
    let mut weights: [f64; REGIONS] = std::array::from_fn(|region| pods[region] * (1.0 - utilization[region]).max(0.0));
    let total: f64 = weights.iter().sum();
    if total <= 0.0 {
        weights = pods;
    } else {
        let others = || (0..REGIONS).filter(|region| *region != home);
        let remote_pods: f64 = others().map(|region| pods[region]).sum();
        let remote = others().map(|region| pods[region] * utilization[region]).sum::<f64>() / remote_pods;
        if pods[home] > 0.0 && utilization[home] <= remote + 0.1 {
            weights = [0.0; REGIONS];
            weights[home] = total;
        }
        let away: f64 = others().map(|region| weights[region]).sum();
        let taken = (0.03 * total - away).clamp(0.0, weights[home]);
        weights[home] -= taken;
        for region in others() {
            weights[region] += taken * pods[region] / remote_pods;
        }
    }
    let total: f64 = weights.iter().sum();
    Split { to: weights.map(|weight| if total > 0.0 { weight / total } else { 0.0 }), shed: 0.0 }
}

fn declared(scenario: &Scenario, edges: &[(usize, f64)], ready: [u32; REGIONS]) -> Vec<Split> {
    let limits = Limits::new(0.8, scenario.declared);
    let rooms = std::array::from_fn(|region| {
        let mut capacity = Capacity::default();
        capacity.ready(ready[region], Timestamp(0));
        capacity.room(&limits, None, Timestamp(0))
    });
    splits(&pour(&demands(edges), &named(rooms), None, Timestamp(0)).unwrap())
}

impl Ours {
    fn decide(
        &mut self,
        scenario: &Scenario,
        second: u32,
        edges: &[(usize, f64)],
        pods: [u32; REGIONS],
        report: Option<&[Seen; REGIONS]>,
    ) -> Vec<Split> {
        let now = moment(second);
        let rooms = observe(&mut self.capacities, scenario, now, pods, report);
        let table = pour(&demands(edges), &named(rooms), self.table.as_ref(), now).unwrap();
        if let Some(guards) = &mut self.guards {
            let renewed = |(number, row): (usize, &Row)| Guard::new(&table, &row.origin, guards.get(number)).unwrap();
            *guards = table.rows.iter().enumerate().map(renewed).collect();
        }
        let splits = splits(&table);
        self.table = Some(table);
        splits
    }
}

impl Alone {
    fn decide(
        &mut self,
        scenario: &Scenario,
        second: u32,
        edges: &[(usize, f64)],
        pods: [u32; REGIONS],
        report: Option<&[Seen; REGIONS]>,
    ) -> Vec<Split> {
        let now = moment(second);
        let rooms = observe(&mut self.capacities, scenario, now, pods, report);
        let reported = self.sent.len().checked_sub(scenario.report_age).and_then(|at| self.sent.get(at));
        let mut tables = Vec::with_capacity(edges.len());
        for (number, edge) in edges.iter().enumerate() {
            let mut rooms = rooms;
            for (region, room) in rooms.iter_mut().enumerate() {
                let mine = reported.map_or(0.0, |sent| sent[number][region]);
                let others = report.map_or(0.0, |seen| (seen[region].served - mine).max(0.0));
                *room = Room { rate: (room.rate - others).max(0.0), most: (room.most - others).max(0.0), ..*room };
            }
            tables.push(pour(&demands(&[*edge]), &named(rooms), self.tables.get(number), now).unwrap());
        }
        let splits: Vec<Split> = tables.iter().flat_map(splits).collect();
        let sent = |((_, demand), split): (&(usize, f64), &Split)| split.to.map(|share| share * demand);
        self.sent.push(edges.iter().zip(&splits).map(sent).collect());
        self.tables = tables;
        splits
    }
}

fn moment(second: u32) -> Timestamp {
    Timestamp((1_000_000 + u64::from(second)) * 1_000_000_000)
}

/// What each region can take, after a report.
fn observe(
    capacities: &mut [Capacity; REGIONS],
    scenario: &Scenario,
    now: Timestamp,
    pods: [u32; REGIONS],
    report: Option<&[Seen; REGIONS]>,
) -> [Room; REGIONS] {
    let limits = Limits::new(0.8, scenario.declared);
    for (region, capacity) in capacities.iter_mut().enumerate() {
        match report.map(|seen| seen[region]) {
            Some(Seen { served, utilization, ready, counted }) => {
                capacity.observe(Report::check(served, utilization, ready).unwrap(), counted, &limits, now);
            }
            None => capacity.ready(pods[region], now),
        }
    }
    std::array::from_fn(|region| capacities[region].room(&limits, None, now))
}

fn demands(edges: &[(usize, f64)]) -> BTreeMap<Origin, Edge> {
    let edge = |(number, &(home, demand)): (usize, &(usize, f64))| {
        let ring = |region: usize| ring(Duration::from_secs_f64(RTT[home][region] / 1000.0));
        let rings = (0..REGIONS).map(|region| (cluster(region), ring(region))).collect();
        let edge = format!("edge-{number:02}").parse().unwrap();
        (Origin { edge, home: None }, Edge { demand, rings })
    };
    edges.iter().enumerate().map(edge).collect()
}

fn named(rooms: [Room; REGIONS]) -> BTreeMap<ClusterName, Room> {
    rooms.into_iter().enumerate().map(|(region, room)| (cluster(region), room)).collect()
}

fn cluster(region: usize) -> ClusterName {
    ["a", "b", "c"][region].parse().unwrap()
}

fn splits(table: &Table) -> Vec<Split> {
    let split = |row: &Row| Split { to: std::array::from_fn(|region| row.cells[region].share), shed: row.shed };
    table.rows.iter().map(split).collect()
}
