//! Refused connections by cluster.
//!
//! A cluster costs nothing, here and in `/metrics`, before a connection of its was refused, and nothing again once it is
//! gone: only clusters of the snapshot are taken in, and those that left it are taken out whenever somebody asks for the
//! counts or the table grows.

use arc_swap::ArcSwap;
use model::{ClusterName, Snapshot};

use crate::limits::shards::Shards;

/// In parts with a lock each, of which a thread that refuses somebody takes one; nobody else takes any.
#[derive(Debug, Default)]
pub(super) struct RefusalsByCluster {
    clusters: Shards<ClusterName, OfCluster>,
}

#[derive(Debug)]
struct OfCluster {
    cluster: ClusterName,
    /// By door and code: at most as many as there are doors times codes, usually one or two.
    counts: Vec<(&'static str, &'static str, u64)>,
}

/// How often one cluster's connections were refused at one door for one reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Count {
    pub(super) cluster: ClusterName,
    pub(super) door: &'static str,
    pub(super) code: &'static str,
    pub(super) times: u64,
}

impl RefusalsByCluster {
    pub(super) fn count(
        &self,
        cluster: &ClusterName,
        door: &'static str,
        code: &'static str,
        snapshot: &ArcSwap<Snapshot>,
    ) {
        let mut shard = self.clusters.lock(cluster);
        if let Some(known) = shard.get_mut(cluster) {
            return known.add(door, code);
        }
        let snapshot = snapshot.load();
        // A connection may outlive its cluster and be refused afterwards.
        if snapshot.cluster(cluster).is_some() {
            let new = OfCluster { cluster: cluster.clone(), counts: vec![(door, code, 1)] };
            shard.insert(cluster.clone(), new, |known| known.is_gone(&snapshot));
        }
    }

    /// Those of one cluster, by door and code.
    pub(super) fn of(&self, cluster: &ClusterName) -> Vec<(&'static str, &'static str, u64)> {
        let mut counts = self.clusters.lock(cluster).get(cluster).map_or_else(Vec::new, |known| known.counts.clone());
        counts.sort_unstable();
        counts
    }

    /// In order, and without the clusters that are gone.
    pub(super) fn counts(&self, snapshot: &Snapshot) -> Vec<Count> {
        let mut all = Vec::new();
        for mut shard in self.clusters.each() {
            shard.retain(|known| !known.is_gone(snapshot));
            all.extend(shard.values().flat_map(OfCluster::counts));
        }
        all.sort_unstable();
        all
    }
}

impl OfCluster {
    fn add(&mut self, door: &'static str, code: &'static str) {
        match self.counts.iter_mut().find(|known| (known.0, known.1) == (door, code)) {
            Some((.., times)) => *times += 1,
            None => self.counts.push((door, code, 1)),
        }
    }

    fn counts(&self) -> impl Iterator<Item = Count> {
        self.counts.iter().map(|&(door, code, times)| Count { cluster: self.cluster.clone(), door, code, times })
    }

    fn is_gone(&self, snapshot: &Snapshot) -> bool {
        snapshot.cluster(&self.cluster).is_none()
    }
}
