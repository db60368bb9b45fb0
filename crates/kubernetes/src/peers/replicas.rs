//! Who of a hub's processes carries streams into which clusters: what each says of itself, and what the leader makes of it for all.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use model::ClusterName;
use tokio::time::Instant;

use super::{Fingerprint, Peer};

/// The clusters that one process may be linked to: a fleet of thousands, each of which is linked to two replicas.
pub const MAX_LINKED: usize = 16_384;
/// What one table may name in all: some 6 MiB of a line's 8.
pub(super) const MAX_NAMED: usize = 90_000;
/// How long one whose stream has ended is still told of: it is mostly back at once, and others would have no way meanwhile.
const LINGER: Duration = Duration::from_secs(5);

/// What a process says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// Where the others relay to; none where it only asks.
    pub address: Option<SocketAddr>,
    /// Of the certificate that it shows to them, at either end.
    pub certificate: Fingerprint,
    /// Whether agents may link to it.
    pub takes_links: bool,
    /// Those that are linked to it, in order.
    pub clusters: Vec<ClusterName>,
}

/// Of all processes that carry, or ask others to; in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replicas(pub Vec<(Peer, Arc<Replica>)>);

impl Replicas {
    /// How many there are that agents may link to.
    pub fn taking_links(&self) -> usize {
        self.0.iter().filter(|(_, replica)| replica.takes_links).count()
    }
}

/// What the leader has heard. No clock of its own.
#[derive(Debug, Default)]
pub(super) struct Roster {
    of: BTreeMap<Peer, Entry>,
    changed: bool,
}

#[derive(Debug)]
struct Entry {
    replica: Arc<Replica>,
    /// Since when its stream has ended.
    gone: Option<Instant>,
}

impl Roster {
    pub(super) fn say(&mut self, peer: &Peer, replica: Replica) {
        if let Some(entry) = self.of.get_mut(peer) {
            entry.gone = None;
            if *entry.replica == replica {
                return;
            }
            entry.replica = Arc::new(replica);
        } else {
            self.of.insert(peer.clone(), Entry { replica: Arc::new(replica), gone: None });
        }
        self.changed = true;
    }

    /// Its stream has ended.
    pub(super) fn leave(&mut self, peer: &Peer, now: Instant) {
        if let Some(entry) = self.of.get_mut(peer) {
            entry.gone = Some(now);
        }
    }

    /// It is none of us any more.
    pub(super) fn forget(&mut self, peer: &Peer) {
        self.changed |= self.of.remove(peer).is_some();
    }

    pub(super) fn clear(&mut self) {
        self.of.clear();
        self.changed = true;
    }

    /// Whether there is something else to tell than when this was last asked.
    pub(super) fn sweep(&mut self, now: Instant) -> bool {
        let before = self.of.len();
        self.of.retain(|_, entry| entry.gone.is_none_or(|gone| now < gone + LINGER));
        self.changed |= self.of.len() != before;
        std::mem::take(&mut self.changed)
    }

    /// For everybody. Clusters that have no room in it are left out, of those who have the most first.
    pub(super) fn table(&self) -> Replicas {
        let mut most = MAX_NAMED;
        let mut left = self.of.len();
        let mut by_size: Vec<(&Peer, &Entry)> = self.of.iter().collect();
        by_size.sort_by_key(|(_, entry)| entry.replica.clusters.len());
        let mut all: Vec<(Peer, Arc<Replica>)> = Vec::with_capacity(left);
        for (peer, Entry { replica, .. }) in by_size {
            let share = most / left.max(1);
            left -= 1;
            let replica = if replica.clusters.len() <= share {
                Arc::clone(replica)
            } else {
                tracing::warn!(replica = %peer.name, room = share, "more clusters are linked than others can be told of");
                Arc::new(Replica { clusters: replica.clusters[..share].to_vec(), ..Replica::clone(replica) })
            };
            most -= replica.clusters.len();
            all.push((peer.clone(), replica));
        }
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        Replicas(all)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::Role;
    use super::*;

    fn peer(number: usize) -> Peer {
        Peer { name: format!("gw-{number}").parse().unwrap(), role: Role::Gateway }
    }

    fn replica(clusters: usize) -> Replica {
        let clusters = (0..clusters).map(|number| format!("c{number:05}").parse().unwrap()).collect();
        let certificate = Fingerprint::of(b"x");
        Replica { address: "192.0.2.1:9636".parse().ok(), certificate, takes_links: true, clusters }
    }

    #[test]
    fn one_whose_stream_broke_off_is_told_of_for_a_while() {
        let (mut roster, start) = (Roster::default(), Instant::now());
        roster.say(&peer(1), replica(1));
        assert!(roster.sweep(start) && !roster.sweep(start), "told once");
        roster.say(&peer(1), replica(1));
        assert!(!roster.sweep(start), "the same again is no news");
        roster.leave(&peer(1), start);
        assert!(!roster.sweep(start + LINGER / 2));
        assert_eq!(roster.table().0.len(), 1);
        roster.say(&peer(1), replica(1));
        assert!(!roster.sweep(start + LINGER * 2), "it came back");
        roster.leave(&peer(1), start);
        assert!(roster.sweep(start + LINGER));
        assert_eq!(roster.table(), Replicas::default());

        roster.say(&peer(2), replica(1));
        roster.forget(&peer(2));
        assert_eq!((roster.sweep(start), roster.table()), (true, Replicas::default()), "at once");
    }

    #[test]
    fn a_table_has_a_bound_and_those_with_few_clusters_are_whole() {
        let mut roster = Roster::default();
        roster.say(&peer(0), replica(3));
        for number in 1..8 {
            roster.say(&peer(number), replica(MAX_LINKED));
        }
        let Replicas(all) = roster.table();
        assert_eq!((all.len(), all[0].1.clusters.len()), (8, 3));
        let named: usize = all.iter().map(|(_, replica)| replica.clusters.len()).sum();
        assert!(named <= MAX_NAMED && named > MAX_NAMED - 8, "{named}");
    }

    #[derive(Debug, Clone)]
    enum Step {
        Say(usize, usize),
        Leave(usize),
        Forget(usize),
        Wait(u64),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0_usize..4, 0_usize..4).prop_map(|(who, clusters)| Step::Say(who, clusters)),
            2 => (0_usize..4).prop_map(Step::Leave),
            1 => (0_usize..4).prop_map(Step::Forget),
            2 => (0_u64..4000).prop_map(Step::Wait),
        ]
    }

    proptest! {
        /// The table is what was said last by those that are there, or were a moment ago; and a change of it is always news.
        #[test]
        fn the_table_follows_what_is_said(steps in vec(any_step(), 0..60)) {
            let mut roster = Roster::default();
            let mut now = Instant::now();
            let mut expected: BTreeMap<usize, (usize, Option<Instant>)> = BTreeMap::new();
            let mut told = Replicas::default();
            for step in steps {
                match step {
                    Step::Say(who, clusters) => {
                        roster.say(&peer(who), replica(clusters));
                        expected.insert(who, (clusters, None));
                    }
                    Step::Leave(who) => {
                        roster.leave(&peer(who), now);
                        if let Some((_, gone)) = expected.get_mut(&who) {
                            *gone = Some(now);
                        }
                    }
                    Step::Forget(who) => {
                        roster.forget(&peer(who));
                        expected.remove(&who);
                    }
                    Step::Wait(millis) => now += Duration::from_millis(millis),
                }
                expected.retain(|_, (_, gone)| gone.is_none_or(|gone| now < gone + LINGER));
                if roster.sweep(now) {
                    told = roster.table();
                }
                let told: BTreeSet<(Peer, usize)> =
                    told.0.iter().map(|(peer, replica)| (peer.clone(), replica.clusters.len())).collect();
                let expected = expected.iter().map(|(who, (clusters, _))| (peer(*who), *clusters)).collect();
                prop_assert_eq!(told, expected);
            }
        }
    }
}
