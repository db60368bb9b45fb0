//! Which port every Cluster has. Pure: `now` is passed in.
//!
//! What stands in a Cluster's status stays. A port that has become free rests before another Cluster gets it: for a while the
//! hub's nodes still carry to it what comes from pods of the Cluster that is gone, and nobody is answered as another.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::resolver::{Ports, assign};
use model::{ClusterName, Since};
use tokio::time::Instant;

/// Longer than a node remembers where a stream of datagrams leads (two to three minutes).
pub(super) const REST: Duration = Duration::from_mins(5);

/// What of a Cluster is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) since: Since,
    /// What its status says.
    pub(super) port: Option<u16>,
}

#[derive(Debug)]
pub(super) struct Ledger {
    range: Ports,
    holders: BTreeMap<ClusterName, Holder>,
    /// Who is to have which; more than stands in statuses for a moment.
    given: BTreeMap<ClusterName, u16>,
    /// Until when nobody gets it.
    resting: BTreeMap<u16, Instant>,
}

impl Ledger {
    /// Nobody knows what was free for how long: at first everything below the highest port rests.
    pub(super) fn new(range: Ports, holders: BTreeMap<ClusterName, Holder>, now: Instant) -> Self {
        let used: Vec<u16> = holders.values().filter_map(|holder| holder.port).collect();
        let highest = used.iter().copied().filter(|port| range.contains(*port)).max();
        let below = highest.map_or(0..0, |highest| range.first()..highest);
        let resting = below.filter(|port| !used.contains(port)).map(|port| (port, now + REST)).collect();
        let mut ledger = Self { range, holders, given: BTreeMap::new(), resting };
        ledger.give(now);
        ledger
    }

    /// A Cluster is there. Returns those that are to have another port than before.
    pub(super) fn see(&mut self, name: &ClusterName, holder: &Holder, now: Instant) -> Vec<ClusterName> {
        let before = self.holders.insert(name.clone(), holder.clone());
        // Another one of the same name begins anew.
        if before.is_some_and(|before| before.since != holder.since) {
            self.free(name, now);
        }
        let is_settled = |given: &u16| holder.port.is_none_or(|port| port == *given);
        if self.given.get(name).is_some_and(is_settled) { Vec::new() } else { self.give(now) }
    }

    /// It is gone, and so is everything that led to its port.
    pub(super) fn gone(&mut self, name: &ClusterName, now: Instant) {
        self.holders.remove(name);
        self.free(name, now);
    }

    pub(super) fn port(&self, name: &ClusterName) -> Option<u16> {
        self.given.get(name).copied()
    }

    /// Those that go without.
    pub(super) fn waiting(&self) -> usize {
        self.holders.len().saturating_sub(self.given.len())
    }

    /// When something that rests can be given to somebody who waits.
    pub(super) fn wake(&self) -> Option<Instant> {
        self.resting.values().min().copied().filter(|_| self.waiting() > 0)
    }

    /// Gives what has rested. Returns those that have a port now.
    pub(super) fn wake_up(&mut self, now: Instant) -> Vec<ClusterName> {
        if self.wake().is_some_and(|at| at <= now) { self.give(now) } else { Vec::new() }
    }

    fn free(&mut self, name: &ClusterName, now: Instant) {
        if let Some(port) = self.given.remove(name) {
            self.resting.insert(port, now + REST);
        }
    }

    fn give(&mut self, now: Instant) -> Vec<ClusterName> {
        self.resting.retain(|_, until| *until > now);
        let kept = |(name, holder): (&ClusterName, &Holder)| {
            // What stands in a status counts more than what was to stand there.
            let port = holder.port.or_else(|| self.given.get(name).copied())?;
            Some((name.clone(), port))
        };
        let mut kept: BTreeMap<ClusterName, u16> = self.holders.iter().filter_map(kept).collect();
        // Others hold what rests, and have done so for ever.
        let (others, ever) = (self.others(), Since::default());
        kept.extend(others.iter().cloned());
        let holders = self.holders.iter().map(|(name, holder)| (&holder.since, name));
        let mut given = assign(&self.range, &kept, others.iter().map(|(name, _)| (&ever, name)).chain(holders));
        for (name, _) in &others {
            given.remove(name);
        }
        let before = std::mem::replace(&mut self.given, given);
        let is_new = |(name, port): &(&ClusterName, &u16)| before.get(*name) != Some(*port);
        self.given.iter().filter(is_new).map(|(name, _)| name.clone()).collect()
    }

    /// One for each port that rests, with a name that no Cluster has.
    fn others(&self) -> Vec<(ClusterName, u16)> {
        let other = |port: &u16| {
            let mut text = format!("resting-{port}");
            let mut name: ClusterName = text.parse().ok()?;
            while self.holders.contains_key(&name) {
                text.push('0');
                name = text.parse().ok()?;
            }
            Some((name, *port))
        };
        // A port that stands in a status is in use, whatever was known of it.
        let used: BTreeSet<u16> = self.holders.values().filter_map(|holder| holder.port).collect();
        self.resting.keys().filter(|port| !used.contains(port)).filter_map(other).collect()
    }
}

#[cfg(test)]
mod tests {
    use model::Timestamp;

    use super::*;

    fn name(text: &str) -> ClusterName {
        text.parse().unwrap()
    }

    fn holder(since: u64, port: Option<u16>) -> Holder {
        Holder { since: Since { moment: Timestamp(since), tie: Some(format!("u{since}").into()) }, port }
    }

    fn ledger(range: &str, holders: &[(&str, u64, Option<u16>)], now: Instant) -> Ledger {
        let holders = holders.iter().map(|(cluster, since, port)| (name(cluster), holder(*since, *port))).collect();
        Ledger::new(range.parse().unwrap(), holders, now)
    }

    fn ports(ledger: &Ledger) -> String {
        let ports: Vec<String> = ledger.given.iter().map(|(name, port)| format!("{name}={port}")).collect();
        ports.join(" ")
    }

    #[test]
    fn whoever_leads_next_changes_nothing_and_gives_no_gap_away_at_once() {
        let now = Instant::now();
        let mut ledger = ledger("5400-5409", &[("a", 1, Some(5402)), ("b", 2, Some(5404))], now);
        assert_eq!(ports(&ledger), "a=5402 b=5404");
        assert_eq!(ledger.see(&name("c"), &holder(3, None), now), [name("c")]);
        assert_eq!(ports(&ledger), "a=5402 b=5404 c=5405");
        // Seen again with what it was given, and again.
        assert!(ledger.see(&name("c"), &holder(3, Some(5405)), now).is_empty());
        assert_eq!(ledger.see(&name("d"), &holder(4, None), now + REST), [name("d")]);
        assert_eq!(ports(&ledger), "a=5402 b=5404 c=5405 d=5400");
    }

    #[test]
    fn a_port_rests_before_another_cluster_has_it() {
        let now = Instant::now();
        let mut ledger = ledger("5400-5401", &[("a", 1, Some(5400)), ("b", 2, Some(5401))], now);
        assert!(ledger.see(&name("c"), &holder(3, None), now).is_empty());
        assert_eq!((ledger.waiting(), ledger.wake()), (1, None));
        ledger.gone(&name("a"), now);
        assert_eq!((ledger.port(&name("a")), ledger.waiting(), ledger.wake()), (None, 1, Some(now + REST)));
        assert!(ledger.wake_up(now).is_empty());
        assert_eq!(ledger.wake_up(now + REST), [name("c")]);
        assert_eq!((ports(&ledger).as_str(), ledger.wake()), ("b=5401 c=5400", None));
        // One that is made anew under the same name is another cluster.
        assert_eq!(ledger.see(&name("b"), &holder(9, None), now + REST), []);
        assert_eq!(ledger.port(&name("b")), None);
        assert_eq!(ledger.wake_up(now + 2 * REST), [name("b")]);
    }

    #[test]
    fn of_two_with_one_port_the_earlier_keeps_it_whatever_they_are_called() {
        let now = Instant::now();
        let mut ledger = ledger("5400-5409", &[("a", 2, Some(5400)), ("b", 1, Some(5400))], now);
        assert_eq!(ports(&ledger), "a=5401 b=5400");
        // The status of one is changed by somebody's hand, to a port of another's and to one outside.
        assert_eq!(ledger.see(&name("a"), &holder(2, Some(5400)), now), []);
        assert_eq!(ports(&ledger), "a=5401 b=5400");
        assert_eq!(ledger.see(&name("b"), &holder(1, Some(80)), now), [name("a"), name("b")]);
        assert_eq!(ports(&ledger), "a=5400 b=5401");
        ledger.see(&name("resting-5400"), &holder(3, None), now);
        ledger.gone(&name("a"), now);
        ledger.see(&name("z"), &holder(4, None), now);
        assert_eq!(ports(&ledger), "b=5401 resting-5400=5402 z=5403");
    }
}
