//! A fluid simulation of three regions, in ticks of a second: what an overflow policy does, ours with the very code of the product.
//!
//! Each region has a cluster and gateways, ten pods of 100 requests/s. An answer takes the way there and back and `S / (1 - u)`. What comes
//! to a cluster beyond what it serves is an error. Agents report what they saw; that is noisy and arrives seconds later.
#![allow(clippy::unwrap_used, unreachable_pub, dead_code, unused_imports)] // Both the tests and the example use it, each a part.

mod divert;
mod policy;
mod scenario;

pub use policy::{POLICIES, Policy};
pub use scenario::{DROP, Scenario, Signal, WARM, all, named};

/// A, B and C.
pub const REGIONS: usize = 3;
/// The way there and back in milliseconds.
pub const RTT: [[f64; REGIONS]; REGIONS] = [[1.0, 20.0, 70.0], [20.0, 1.0, 80.0], [70.0, 80.0, 1.0]];
/// How long a request takes in milliseconds where nothing else runs.
const SERVICE_TIME: f64 = 10.0;
/// Queues end somewhere.
const MOST_UTILIZATION: f64 = 0.98;
/// The standard deviation of a reported number, relative to it.
const NOISE: f64 = 0.03;

/// Where the traffic of one edge goes, and the share that it refuses.
#[derive(Debug, Clone, Copy, Default)]
pub struct Split {
    pub to: [f64; REGIONS],
    pub shed: f64,
}

/// What an agent reports of a tick.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    pub served: f64,
    pub utilization: f64,
    pub ready: u32,
    /// By the edges, of the same tick.
    pub counted: f64,
}

/// What happened in one tick.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tick {
    pub second: u32,
    pub offered: f64,
    /// What failed, and what was refused at once.
    pub lost: f64,
    pub shed: f64,
    pub remote: f64,
    /// Over all that were sent somewhere.
    pub mean_ms: f64,
    /// Real ones, without noise.
    pub utilization: [f64; REGIONS],
    /// The share of each region's traffic that stays at home.
    pub home: [f64; REGIONS],
}

/// A run of a scenario under a policy.
#[derive(Debug, Clone)]
pub struct Run {
    pub ticks: Vec<Tick>,
    measured_from: u32,
}

pub fn run(scenario: &Scenario, policy: Policy) -> Run {
    run_with(scenario, policy, 0)
}

/// With the noise of this number.
pub fn run_with(scenario: &Scenario, mut policy: Policy, seed: u64) -> Run {
    let mut noise = Noise(seed);
    let mut reports: Vec<[Seen; REGIONS]> = Vec::new();
    let mut ticks = Vec::new();
    let per_region = scenario.edges_per_region;
    for second in 0..scenario.seconds {
        // Edges know their demand of a second ago, and reports come late.
        let known = (scenario.demand)(second.saturating_sub(1));
        let report = usize::try_from(second).unwrap().checked_sub(scenario.report_age).map(|at| reports[at]);
        let pods = std::array::from_fn(|region| (scenario.pods)(0, region));
        let planned = policy.decide(scenario, second, &edges(known, per_region), pods, report.as_ref());
        let edges = edges((scenario.demand)(second), per_region);
        let splits = match policy.limits() {
            Some(limits) => divert::divert(&edges, &planned, &limits, capacities(scenario, second)),
            None => planned,
        };
        let (tick, reported) = serve(scenario, second, &edges, &splits, &mut noise);
        policy.answered(&edges, &tick);
        ticks.push(tick);
        reports.push(reported);
    }
    Run { ticks, measured_from: scenario.measured_from }
}

/// The demand of each edge, region by region.
fn edges(demand: [f64; REGIONS], per_region: u32) -> Vec<(usize, f64)> {
    let edge = |region: usize| (0..per_region).map(move |_| (region, demand[region] / f64::from(per_region)));
    (0..REGIONS).flat_map(edge).collect()
}

/// What each region really serves.
fn capacities(scenario: &Scenario, second: u32) -> [f64; REGIONS] {
    std::array::from_fn(|region| f64::from((scenario.pods)(second, region)) * (scenario.strength)(second, region))
}

/// How long a request from one region to another takes there, in milliseconds.
pub fn takes(from: usize, to: usize, utilization: f64) -> f64 {
    RTT[from][to] + SERVICE_TIME / (1.0 - utilization.min(MOST_UTILIZATION))
}

fn serve(
    scenario: &Scenario,
    second: u32,
    edges: &[(usize, f64)],
    splits: &[Split],
    noise: &mut Noise,
) -> (Tick, [Seen; REGIONS]) {
    let mut tick = Tick { second, ..Tick::default() };
    let mut load = [0.0; REGIONS];
    for ((home, demand), split) in edges.iter().zip(splits) {
        tick.offered += demand;
        tick.shed += demand * split.shed;
        for (region, share) in split.to.iter().enumerate() {
            load[region] += demand * share;
            tick.remote += if region == *home { 0.0 } else { demand * share };
        }
        tick.home[*home] += split.to[*home] / f64::from(scenario.edges_per_region);
    }
    let capacity = capacities(scenario, second);
    let served: [f64; REGIONS] = std::array::from_fn(|region| load[region].min(capacity[region]));
    tick.lost = tick.shed + (0..REGIONS).map(|region| load[region] - served[region]).sum::<f64>();
    for region in 0..REGIONS {
        let full = if load[region] > 0.0 { 1.0 } else { 0.0 };
        tick.utilization[region] = if capacity[region] > 0.0 { served[region] / capacity[region] } else { full };
    }
    let mut weighted = 0.0;
    for ((home, demand), split) in edges.iter().zip(splits) {
        for (region, share) in split.to.iter().enumerate() {
            weighted += demand * share * takes(*home, region, tick.utilization[region]);
        }
    }
    let sent = tick.offered - tick.shed;
    tick.mean_ms = if sent > 0.0 { weighted / sent } else { 0.0 };
    let seen = std::array::from_fn(|region| {
        let utilization = match scenario.signal {
            Signal::Destination => tick.utilization[region],
            Signal::FirstHop => 0.3 * load[region] / 1000.0,
        };
        Seen {
            served: served[region] * noise.factor(),
            utilization: utilization * noise.factor(),
            ready: (scenario.pods)(second, region),
            counted: served[region],
        }
    });
    (tick, seen)
}

impl Run {
    /// From a second on.
    pub fn since(&self, second: u32) -> &[Tick] {
        let from = self.ticks.partition_point(|tick| tick.second < second);
        &self.ticks[from..]
    }

    /// Of all traffic: lost, served remotely, and the mean time in milliseconds.
    pub fn cells(&self) -> (f64, f64, f64) {
        let sum = |of: fn(&Tick) -> f64| self.since(self.measured_from).iter().map(of).sum::<f64>();
        let offered = sum(|tick| tick.offered);
        let mean = sum(|tick| tick.mean_ms * (tick.offered - tick.shed)) / sum(|tick| tick.offered - tick.shed);
        (100.0 * sum(|tick| tick.lost) / offered, 100.0 * sum(|tick| tick.remote) / offered, mean)
    }

    /// The last second in which something was lost.
    pub fn last_loss(&self) -> Option<u32> {
        self.ticks.iter().rev().find(|tick| tick.lost > 1e-6).map(|tick| tick.second)
    }
}

/// A scenario's line of the table in `docs/overflow.md`: lost % / served remotely % / mean ms for each policy.
pub fn line(scenario: &Scenario) -> String {
    let cells = POLICIES.map(|(_, policy)| {
        let (lost, remote, mean) = run(scenario, policy()).cells();
        format!("{lost:.1} / {remote:.0} / {mean:.0}")
    });
    format!("| {} {} | {} |", scenario.name, scenario.what, cells.join(" | "))
}

/// The highest utilisation of any region.
pub fn highest(ticks: &[Tick]) -> f64 {
    ticks.iter().flat_map(|tick| tick.utilization).fold(0.0, f64::max)
}

/// The standard deviation of the share that stays at home in A, in points.
pub fn deviation(ticks: &[Tick]) -> f64 {
    let count = f64::from(u32::try_from(ticks.len()).unwrap());
    let mean = ticks.iter().map(|tick| tick.home[0]).sum::<f64>() / count;
    100.0 * (ticks.iter().map(|tick| (tick.home[0] - mean).powi(2)).sum::<f64>() / count).sqrt()
}

/// The same numbers in every run of a seed.
struct Noise(u64);

impl Noise {
    /// Normal around 1: the sum of twelve even ones has a standard deviation of 1.
    fn factor(&mut self) -> f64 {
        let sum: f64 = (0..12).map(|_| self.even()).sum();
        1.0 + NOISE * (sum - 6.0)
    }

    /// Between 0 and 1, by splitmix64.
    fn even(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let high = u32::try_from((mixed ^ (mixed >> 31)) >> 32).unwrap();
        f64::from(high) / (f64::from(u32::MAX) + 1.0)
    }
}
