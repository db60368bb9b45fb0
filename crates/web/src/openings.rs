//! Connections without a request yet: bounded per door and per source.
//!
//! Peers that connect and say nothing must not keep others out, and nobody can tell them from an honest client on a slow
//! path: where a bound is met, the one that had the most time goes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::refusal::Refusal;

/// Of one thread and one door, which has its share of both bounds.
#[derive(Debug)]
pub(crate) struct Openings {
    total: usize,
    per_source: usize,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    /// In the order in which they came.
    arrivals: BTreeMap<u64, (Option<IpAddr>, oneshot::Sender<Refusal>)>,
    by_source: BTreeSet<(IpAddr, u64)>,
}

/// Left as soon as there is a request.
#[derive(Debug)]
pub(crate) struct Opening {
    openings: Arc<Openings>,
    number: u64,
}

impl Openings {
    pub(crate) fn new(total: usize, per_source: usize) -> Self {
        Self { total: total.max(1), per_source: per_source.max(1), waiting: Mutex::default() }
    }

    /// What comes out of the receiver is why it has to go. A load balancer stands for many and counts towards the total alone.
    pub(crate) fn enter(self: &Arc<Self>, peer: IpAddr, is_trusted: bool) -> (Opening, oneshot::Receiver<Refusal>) {
        let source = (!is_trusted).then(|| source(peer));
        let (displace, displaced) = oneshot::channel();
        let mut waiting = self.lock();
        self.make_room(&mut waiting, source);
        let number = waiting.next;
        waiting.next += 1;
        waiting.arrivals.insert(number, (source, displace));
        waiting.by_source.extend(source.map(|source| (source, number)));
        (Opening { openings: Arc::clone(self), number }, displaced)
    }

    /// A source that has too many pays for it itself, whatever the total is.
    fn make_room(&self, waiting: &mut Waiting, source: Option<IpAddr>) {
        let of_source = source.map(|from| (from, waiting.by_source.range((from, 0)..=(from, u64::MAX))));
        let crowded = of_source.and_then(|(from, mut those)| {
            let oldest = those.next()?.1;
            (those.count() + 1 >= self.per_source).then_some((from, oldest))
        });
        let (number, refusal) = match crowded {
            Some((from, oldest)) => (oldest, Refusal::TooManyOpeningsOfSource { from, limit: self.per_source }),
            None if waiting.arrivals.len() >= self.total => match waiting.arrivals.first_key_value() {
                Some((oldest, _)) => (*oldest, Refusal::TooManyOpenings(self.total)),
                None => return,
            },
            None => return,
        };
        if let Some(displace) = waiting.remove(number) {
            // It may be about to leave by itself.
            let _ = displace.send(refusal);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn remove(&mut self, number: u64) -> Option<oneshot::Sender<Refusal>> {
        let (source, displace) = self.arrivals.remove(&number)?;
        if let Some(source) = source {
            self.by_source.remove(&(source, number));
        }
        Some(displace)
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.openings.lock().remove(self.number);
    }
}

/// An IPv4 address, or the network that one customer of a provider commonly has.
fn source(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_and_a_crowd_pays_for_itself() {
        let openings = Arc::new(Openings::new(4, 2));
        let enter = |peer: &str| openings.enter(peer.parse().unwrap(), false);
        let (_a, mut first) = enter("2001:db8::1");
        let (_b, mut second) = enter("2001:db8::2");
        let (_c, mut third) = enter("2001:db8::3");
        let from = "2001:db8::".parse().unwrap();
        assert_eq!(first.try_recv(), Ok(Refusal::TooManyOpeningsOfSource { from, limit: 2 }));
        let (d, _) = enter("192.0.2.1");
        let (_e, _) = enter("192.0.2.2");
        assert!(second.try_recv().is_err() && third.try_recv().is_err());
        let (_f, _) = enter("192.0.2.3");
        assert_eq!(second.try_recv(), Ok(Refusal::TooManyOpenings(4)));
        drop(d);
        let (_g, _) = enter("192.0.2.4");
        assert!(third.try_recv().is_err());
        let (_h, _) = openings.enter("192.0.2.4".parse().unwrap(), true);
        assert_eq!(third.try_recv(), Ok(Refusal::TooManyOpenings(4)));
    }

    #[test]
    fn who_left_leaves_nothing_behind() {
        let openings = Arc::new(Openings::new(4, 2));
        for _ in 0..10 {
            drop(openings.enter("192.0.2.1".parse().unwrap(), false));
        }
        let waiting = openings.lock();
        assert!(waiting.arrivals.is_empty() && waiting.by_source.is_empty());
    }
}
