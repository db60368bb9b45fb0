//! Connections that have not said yet where they want to go: bounded per door and per source.
//!
//! Peers that connect and send nothing must not keep others out, and nobody can tell them from an honest client on a
//! slow path. So nobody new is refused: where a bound is met, the one that had the most time to speak goes. An honest
//! client is cut off only where a whole bound's worth of others comes between its connecting and its first bytes.
//!
//! The counts are shared by all threads of a door ([`Openings`]); who came when is known to the thread that has the
//! connection ([`Undecided`]), which can only let its own go. A thread that has none to let go keeps the new one, so
//! that a bound may be passed by one per thread.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use model::Cidr;

use super::shards::Shards;
use crate::refusal::Refusal;

/// A quarter of a door's room, so that the undecided never crowd out those that are carried; with a hello of 64 KiB
/// from each it is 256 MiB. At ten thousand silent peers a second an honest one still has 0.4 s.
const TOTAL: u32 = 4096;
/// A quarter of those: many clients may share one address (NAT), and one address must not be able to take the place
/// of all others.
const PER_SOURCE: u32 = 1024;

#[derive(Debug, Clone)]
pub struct OpeningLimits {
    /// Per door.
    pub total: u32,
    /// Per door and IPv4 address or IPv6 /64, which is what one customer of a provider commonly has.
    pub per_source: u32,
    /// Load balancers stand for all of their clients; they count towards the total only.
    pub exempt: Vec<Cidr>,
}

impl Default for OpeningLimits {
    fn default() -> Self {
        Self { total: TOTAL, per_source: PER_SOURCE, exempt: Vec::new() }
    }
}

/// What all threads know of a door's undecided connections. A source is in it while it has one, so that the table is
/// no larger than the total.
#[derive(Debug)]
pub struct Openings {
    limits: OpeningLimits,
    open: AtomicU32,
    by_source: Shards<Source, u32>,
}

/// One thread's undecided connections of one door, in the order in which they came; `T` is how the thread knows them.
#[derive(Debug)]
pub struct Undecided<T> {
    openings: Arc<Openings>,
    arrivals: BTreeMap<u64, (T, Option<Source>)>,
    by_source: BTreeSet<(Source, u64)>,
    next: u64,
}

/// To be given back with [`Undecided::leave`] as soon as the connection is decided or gone.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "whoever has a place has to leave it"]
pub struct OpeningPlace(u64);

#[derive(Debug)]
#[must_use = "somebody may have to go"]
pub enum Entered<T> {
    Freely(OpeningPlace),
    /// The oldest has to be refused, and leaves its own place by that.
    InsteadOf {
        place: OpeningPlace,
        oldest: T,
        refusal: Refusal,
    },
}

impl Openings {
    pub fn new(limits: OpeningLimits) -> Self {
        Self { limits, open: AtomicU32::new(0), by_source: Shards::default() }
    }

    /// How many are undecided now.
    pub fn count(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    fn source_of(&self, peer: IpAddr) -> Option<Source> {
        let is_exempt = self.limits.exempt.iter().any(|range| range.contains(peer));
        (!is_exempt).then(|| Source::of(peer))
    }

    /// Counts one in and returns how many there were: in all, and of its source.
    fn count_in(&self, source: Option<Source>) -> (u32, u32) {
        let of_source = source.map_or(0, |source| {
            let mut shard = self.by_source.lock(&source);
            let before = shard.get(&source).copied().unwrap_or(0);
            // None of them is spent: who counts zero is taken out.
            shard.insert(source, before + 1, |_| false);
            before
        });
        (self.open.fetch_add(1, Ordering::Relaxed), of_source)
    }

    fn count_out(&self, source: Option<Source>) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        let Some(source) = source else { return };
        let mut shard = self.by_source.lock(&source);
        match shard.get(&source).copied() {
            Some(more @ 2..) => shard.insert(source, more - 1, |_| false),
            _ => shard.remove(&source),
        }
    }
}

impl<T: Copy> Undecided<T> {
    pub fn new(openings: Arc<Openings>) -> Self {
        Self { openings, arrivals: BTreeMap::new(), by_source: BTreeSet::new(), next: 0 }
    }

    pub fn enter(&mut self, who: T, peer: IpAddr) -> Entered<T> {
        let source = self.openings.source_of(peer);
        let (in_all, of_source) = self.openings.count_in(source);
        let displaced = self.to_displace(in_all, source, of_source);

        let number = self.next;
        self.next += 1;
        self.arrivals.insert(number, (who, source));
        self.by_source.extend(source.map(|source| (source, number)));
        let place = OpeningPlace(number);
        match displaced {
            Some((oldest, refusal)) => Entered::InsteadOf { place, oldest, refusal },
            None => Entered::Freely(place),
        }
    }

    // By value: a place is left once.
    #[allow(clippy::needless_pass_by_value)]
    pub fn leave(&mut self, place: OpeningPlace) {
        let OpeningPlace(number) = place;
        let Some((_, source)) = self.arrivals.remove(&number) else { return };
        if let Some(source) = source {
            self.by_source.remove(&(source, number));
        }
        self.openings.count_out(source);
    }

    /// A source that has too many pays for it itself, whatever the total is.
    fn to_displace(&self, in_all: u32, source: Option<Source>, of_source: u32) -> Option<(T, Refusal)> {
        let OpeningLimits { total, per_source: limit, .. } = self.openings.limits;
        if let Some(from) = source.filter(|_| of_source >= limit)
            && let Some((_, number)) = self.by_source.range((from, 0)..=(from, u64::MAX)).next()
            && let Some((who, _)) = self.arrivals.get(number)
        {
            return Some((*who, Refusal::TooManyOpeningsOfSource { from, limit }));
        }
        let (_, (who, _)) = self.arrivals.first_key_value().filter(|_| in_all >= total)?;
        Some((*who, Refusal::TooManyOpenings(total)))
    }
}

/// A thread that ends, even by a panic, takes its own along.
impl<T> Drop for Undecided<T> {
    fn drop(&mut self) {
        for (_, source) in self.arrivals.values() {
            self.openings.count_out(*source);
        }
    }
}

/// Whom peers are counted by: an IPv4 address, or the first half of an IPv6 address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source(u64);

impl Source {
    /// Half an IPv6 address that is a multicast one and so is nobody's (RFC 4291 2.7): IPv4 addresses stand behind it.
    const IPV4: u64 = 0xffff_ffff << 32;

    fn of(peer: IpAddr) -> Self {
        match peer.to_canonical() {
            IpAddr::V4(address) => Self(Self::IPV4 | u64::from(address.to_bits())),
            // The upper half fits.
            #[allow(clippy::cast_possible_truncation)]
            IpAddr::V6(address) => Self((address.to_bits() >> 64) as u64),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The lower half.
        #[allow(clippy::cast_possible_truncation)]
        if self.0 & Self::IPV4 == Self::IPV4 {
            Ipv4Addr::from_bits(self.0 as u32).fmt(f)
        } else {
            write!(f, "{}/64", Ipv6Addr::from_bits(u128::from(self.0) << 64))
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
