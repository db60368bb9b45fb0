//! Where DNS sends clients straight to the members (`entry: dns`), nobody but the members sees them: what comes, and from where, follows from what
//! each of them says that it serves, and from what DNS has been answering.
//!
//! Of the clients whose home is `h` the part `a[h][d]` is sent to `d`; what `d` serves is the sum of these. So what comes of each home is found step
//! by step, each time by how much more or less is served than it would make (Richardson and Lucy's way, which neither makes nor loses
//! anything, and cannot go below zero).

use std::collections::BTreeMap;

use super::{DNS_EDGE, Seen, rings};
use crate::fact::Timestamp;
use crate::identity::{ClusterName, ObjectName};
use crate::overflow::seconds_between;
use crate::overflow::table::{Origin, Room, Table};
use crate::overflow::waterfall::Edge;
use crate::routes::Entry;

/// How long resolvers and clients go by an old answer, in seconds: as long as answers may be kept.
const KEPT: f64 = 10.0;

#[derive(Debug, Default)]
pub(super) struct Direct {
    homes: BTreeMap<Option<ClusterName>, Home>,
    /// When it was last looked at.
    at: Option<Timestamp>,
}

#[derive(Debug, Clone, Default)]
struct Home {
    /// Requests per second.
    demand: f64,
    /// What is answered now; together 1.
    answered: BTreeMap<ClusterName, f64>,
    /// What clients go by, as answers grow old.
    followed: BTreeMap<ClusterName, f64>,
}

impl Direct {
    /// Requests per second in all.
    pub(super) fn demand(&self) -> f64 {
        self.homes.values().map(|home| home.demand).sum()
    }

    /// Takes in what the members serve now, in requests per second.
    pub(super) fn serve(&mut self, entry: &Entry, served: &BTreeMap<ClusterName, f64>, now: Timestamp) {
        let passed = self.at.map_or(0.0, |at| seconds_between(at, now));
        self.at = Some(now);
        let homes = rings::homes(entry);
        self.homes.retain(|home, _| homes.contains(home));
        if let [None] = &homes[..] {
            self.homes.entry(None).or_default().demand = served.values().sum();
            return;
        }
        for home in homes.into_iter().flatten() {
            self.homes.entry(Some(home)).or_default();
        }
        let kept = (-passed / KEPT).exp();
        for (name, home) in &mut self.homes {
            home.follow(name.as_ref(), kept);
        }
        let mut expected: BTreeMap<&ClusterName, f64> = BTreeMap::new();
        for home in self.homes.values() {
            for cluster in served.keys() {
                *expected.entry(cluster).or_default() += home.demand * home.share(cluster);
            }
        }
        for (name, home) in &mut self.homes {
            let mut demand = 0.0;
            for (cluster, rate) in served {
                let share = home.share(cluster);
                let expected = expected.get(cluster).copied().unwrap_or_default();
                if expected > rate * 1e-3 {
                    demand += home.demand * share * rate / expected;
                } else if name.as_ref() == Some(cluster) {
                    // Nobody was known to come here: they are at home.
                    demand += rate;
                }
            }
            home.demand = demand;
        }
    }

    /// What comes to DNS, in the form of edges.
    pub(super) fn origins(&self, entry: &Entry, rooms: &BTreeMap<ClusterName, Room>) -> BTreeMap<Origin, Edge> {
        let Ok(edge) = DNS_EDGE.parse::<ObjectName>() else { return BTreeMap::new() };
        let origin = |(name, home): (&Option<ClusterName>, &Home)| {
            let rings = rings::rings(entry, name.as_ref(), &Seen::default(), rooms);
            (Origin { edge: edge.clone(), home: name.clone() }, Edge { demand: home.demand, rings })
        };
        self.homes.iter().map(origin).collect()
    }

    /// What DNS answers from now on. It refuses nobody.
    pub(super) fn answer_by(&mut self, table: &Table) {
        for row in &table.rows {
            let Some(home) = self.homes.get_mut(&row.origin.home) else { continue };
            let sum: f64 = row.cells.iter().map(|cell| cell.share).sum();
            if sum > 0.0 {
                let shares = table.clusters.iter().zip(&row.cells);
                home.answered = shares.map(|((name, _), cell)| (name.clone(), cell.share / sum)).collect();
            }
        }
    }
}

impl Home {
    fn follow(&mut self, name: Option<&ClusterName>, kept: f64) {
        if self.answered.is_empty() {
            self.answered = name.map(|name| (name.clone(), 1.0)).into_iter().collect();
        }
        if self.followed.is_empty() {
            self.followed.clone_from(&self.answered);
        }
        for share in self.followed.values_mut() {
            *share *= kept;
        }
        for (cluster, share) in &self.answered {
            *self.followed.entry(cluster.clone()).or_default() += share * (1.0 - kept);
        }
        self.followed.retain(|_, share| *share > 1e-6);
    }

    fn share(&self, cluster: &ClusterName) -> f64 {
        self.followed.get(cluster).copied().unwrap_or_default()
    }
}
