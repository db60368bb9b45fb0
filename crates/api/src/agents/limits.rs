//! How fast anybody may go: buckets that fill again with time.

use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use model::policy::rate::{self, Rate};

/// Those of the policy, by the clock.
pub(crate) struct Buckets<K> {
    start: Instant,
    buckets: Mutex<rate::Buckets<K>>,
}

impl<K: Eq + Hash + Clone> Buckets<K> {
    pub(crate) fn new(rate: Rate, most: usize) -> Self {
        Self { start: Instant::now(), buckets: Mutex::new(rate::Buckets::new(rate, most)) }
    }

    /// How long until it holds something again, where it is empty.
    pub(crate) fn check(&self, who: &K) -> Result<(), Duration> {
        self.lock().check(who, self.start.elapsed())
    }

    pub(crate) fn spend(&self, who: &K, much: u32) {
        self.lock().spend(who, much, self.start.elapsed());
    }

    pub(crate) fn take(&self, who: &K) -> Result<(), Duration> {
        self.lock().take(who, 1, self.start.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, rate::Buckets<K>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One client, as far as an address tells: whoever has one IPv6 address has the other 2^64 of its network too.
pub(crate) fn source(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        for (one, other, same) in [
            ("2001:db8::1", "2001:db8::ffff:1", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
        ] {
            assert_eq!(source(one.parse().unwrap()) == source(other.parse().unwrap()), same, "{one} {other}");
        }
    }
}
