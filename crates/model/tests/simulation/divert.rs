//! What guards at the edges do to a tick: requests that are too many under way go on to the next region.

use super::policy::by_distance;
use super::{MOST_UTILIZATION, REGIONS, Split, takes};

/// The splits as they become. `limits` are the requests that may be under way from each edge to each region.
pub fn divert(
    edges: &[(usize, f64)],
    splits: &[Split],
    limits: &[[u32; REGIONS]],
    capacity: [f64; REGIONS],
) -> Vec<Split> {
    let mut rates: Vec<[f64; REGIONS]> =
        edges.iter().zip(splits).map(|((_, demand), split)| split.to.map(|share| share * demand)).collect();
    let mut refused = vec![[0.0; REGIONS]; edges.len()];
    // Each is sent on at most to all the others.
    for _ in 0..REGIONS {
        for ((home, _), (rates, refused)) in edges.iter().zip(rates.iter_mut().zip(&mut refused)) {
            let order = by_distance(*home);
            for (at, region) in order.into_iter().enumerate() {
                rates[order[(at + 1) % REGIONS]] += std::mem::take(&mut refused[region]);
            }
        }
        for region in 0..REGIONS {
            let utilization = settled(region, edges, &rates, limits, capacity[region]);
            for (number, (home, _)) in edges.iter().enumerate() {
                let taken = rates[number][region].min(most(*home, region, limits[number][region], utilization));
                refused[number][region] = rates[number][region] - taken;
                rates[number][region] = taken;
            }
        }
    }
    let mut diverted = Vec::with_capacity(edges.len());
    for (number, (_, demand)) in edges.iter().enumerate() {
        let refused = refused[number].iter().sum::<f64>() / demand;
        diverted.push(Split { to: rates[number].map(|rate| rate / demand), shed: splits[number].shed + refused });
    }
    diverted
}

/// The rate at which so many are under way (Little's law).
fn most(home: usize, region: usize, limit: u32, utilization: f64) -> f64 {
    f64::from(limit) / (takes(home, region, utilization) / 1000.0)
}

/// The utilisation at which as much comes as makes it: the busier a region, the longer requests are under way and the fewer come.
fn settled(
    region: usize,
    edges: &[(usize, f64)],
    rates: &[[f64; REGIONS]],
    limits: &[[u32; REGIONS]],
    capacity: f64,
) -> f64 {
    let comes = |utilization: f64| {
        let from = |(number, (home, _)): (usize, &(usize, f64))| {
            rates[number][region].min(most(*home, region, limits[number][region], utilization))
        };
        edges.iter().enumerate().map(from).sum::<f64>()
    };
    let (mut low, mut high) = (0.0, MOST_UTILIZATION);
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if comes(middle) > middle * capacity { low = middle } else { high = middle }
    }
    high
}
