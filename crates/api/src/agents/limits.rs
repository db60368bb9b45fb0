//! How fast anybody may go: buckets that fill again with time.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One bucket for each of those who have used theirs of late.
pub(super) struct Buckets<K> {
    /// What a full one holds.
    burst: f64,
    per_second: f64,
    /// How many are kept: those that have filled again are let go of first, then all.
    most: usize,
    used: Mutex<HashMap<K, Bucket>>,
}

#[derive(Clone, Copy)]
struct Bucket {
    /// Below nothing after a large withdrawal.
    level: f64,
    at: Instant,
}

impl<K: Eq + Hash> Buckets<K> {
    pub(super) fn new(burst: u32, per_second: f64, most: usize) -> Self {
        Self { burst: f64::from(burst), per_second, most, used: Mutex::default() }
    }

    /// How long until it holds something again, where it is empty.
    pub(super) fn check(&self, who: &K, now: Instant) -> Result<(), Duration> {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let level = used.get(who).map_or(self.burst, |bucket| self.level(bucket, now));
        if level >= 1.0 { Ok(()) } else { Err(Duration::from_secs_f64((1.0 - level) / self.per_second)) }
    }

    pub(super) fn take(&self, who: K, much: u32, now: Instant) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.len() >= self.most && !used.contains_key(&who) {
            used.retain(|_, bucket| self.level(bucket, now) < self.burst);
            if used.len() >= self.most {
                used.clear();
            }
        }
        let bucket = used.entry(who).or_insert(Bucket { level: self.burst, at: now });
        *bucket = Bucket { level: self.level(bucket, now) - f64::from(much), at: now };
    }

    fn level(&self, bucket: &Bucket, now: Instant) -> f64 {
        let since = now.saturating_duration_since(bucket.at).as_secs_f64();
        (bucket.level + since * self.per_second).min(self.burst)
    }
}

/// One client, as far as an address tells: whoever has one IPv6 address has the other 2^64 of its network too.
pub(super) fn source(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_fills_again_with_time() {
        let (buckets, begin) = (Buckets::new(2, 0.5, 10), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        for _ in 0..2 {
            assert_eq!(buckets.check(&"a", begin), Ok(()));
            buckets.take("a", 1, begin);
        }
        assert_eq!(buckets.check(&"a", begin), Err(Duration::from_secs(2)));
        assert_eq!(buckets.check(&"b", begin), Ok(()), "everybody has one");
        assert_eq!(buckets.check(&"a", at(1)), Err(Duration::from_secs(1)));
        assert_eq!(buckets.check(&"a", at(2)), Ok(()));
        buckets.take("a", 5, at(100));
        assert_eq!(buckets.check(&"a", at(100)), Err(Duration::from_secs(8)), "what is large takes longer");
    }

    #[test]
    fn there_are_never_more_than_so_many() {
        let (buckets, now) = (Buckets::new(1, 1.0, 3), Instant::now());
        for number in 0..100 {
            buckets.take(number, 1, now);
            assert!(buckets.used.lock().unwrap().len() <= 3);
        }
    }

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
