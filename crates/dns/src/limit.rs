//! Response rate limiting: a forged source address must not make us flood who owns it.
//!
//! Responses are counted by the network of the client and by their kind, in a table of a fixed size. Who is limited
//! gets every second response as a short "ask again over TCP", which a forger's victim ignores and an honest resolver
//! follows; a valid cookie or TCP show that the address is no forgery, and are not limited.

use std::hash::{BuildHasher as _, Hasher as _};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use foldhash::quality::RandomState;

use crate::query::Kind;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// Responses of one kind per second to one network (an IPv4 /24, an IPv6 /56); 0 is no limit.
    pub per_second: u32,
    /// Of the responses above the limit every so-manieth is sent as a short one; 0 sends none.
    pub slip: u32,
}

/// The resolvers of a large provider ask some hundred names a second from one network, and go on over TCP above it. A
/// victim of forgers gets at most 1,000 answers of some 150 octets of each kind: about a megabit per second.
impl Default for RateLimit {
    fn default() -> Self {
        Self { per_second: 1000, slip: 2 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Send,
    Drop,
    /// Send the short one.
    Slip,
}

/// Who paused may catch up on as much.
const BURST: Duration = Duration::from_secs(2);
/// Entries that share a cache line; a new one takes the place of the one that was idle for longest.
const WAYS: usize = 8;
/// 512 KiB: 65,536 networks and kinds, more than a reflection attack uses at a time.
const SETS: usize = 8192;

/// Each entry holds until when its network has used its share up, in [`Tick`]s since the start, and 16 bits that tell
/// networks apart (the generic cell rate algorithm; one word, so that no lock is needed).
#[derive(Debug)]
pub(crate) struct RateLimiter {
    sets: Box<[Set]>,
    hasher: RandomState,
    /// What one response uses up; 0 is no limit.
    cost: u64,
    burst: u64,
    slip: u32,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Set([AtomicU64; WAYS]);

/// 256 ns: 48 bits of them are two years, and they still resolve a million responses per second.
const TICK: u64 = 256;
const TIME: u64 = (1 << 48) - 1;

impl RateLimiter {
    pub(crate) fn new(limit: RateLimit) -> Self {
        let sets = if limit.per_second == 0 { 0 } else { SETS };
        Self {
            sets: (0..sets).map(|_| Set::default()).collect(),
            hasher: RandomState::default(),
            cost: 1_000_000_000_u64.checked_div(limit.per_second.into()).unwrap_or_default() / TICK,
            burst: ticks(BURST),
            slip: limit.slip,
        }
    }

    /// `now` is the time since some moment that stays the same; `slips` is the caller's own.
    pub(crate) fn check(&self, client: IpAddr, kind: Kind, now: Duration, slips: &mut u32) -> Verdict {
        if self.cost == 0 || self.take(client, kind, ticks(now)) {
            return Verdict::Send;
        }
        *slips = slips.wrapping_add(1);
        if self.slip > 0 && slips.is_multiple_of(self.slip) { Verdict::Slip } else { Verdict::Drop }
    }

    /// Two threads that take at the same moment may take one share for two: the limit need not be that exact.
    fn take(&self, client: IpAddr, kind: Kind, now: u64) -> bool {
        let mut hasher = self.hasher.build_hasher();
        match client {
            IpAddr::V4(address) => hasher.write_u32(u32::from(address) >> 8),
            IpAddr::V6(address) => hasher.write_u128(u128::from(address) >> 72),
        }
        hasher.write_u8(kind as u8);
        let hash = hasher.finish();
        // Any bits are as good as others.
        #[allow(clippy::cast_possible_truncation)]
        let Set(entries) = &self.sets[hash as usize % SETS];
        let tag = hash >> 48 << 48;
        let mut oldest = &entries[0];
        let mut oldest_time = u64::MAX;
        for entry in entries {
            let found = entry.load(Ordering::Relaxed);
            if found & !TIME == tag && found != 0 {
                let next = (found & TIME).max(now) + self.cost;
                if next > now + self.burst {
                    return false;
                }
                entry.store(tag | next & TIME, Ordering::Relaxed);
                return true;
            }
            if found & TIME < oldest_time {
                (oldest, oldest_time) = (entry, found & TIME);
            }
        }
        oldest.store(tag | (now + self.cost) & TIME, Ordering::Relaxed);
        true
    }
}

fn ticks(time: Duration) -> u64 {
    // Enough for five centuries.
    #[allow(clippy::cast_possible_truncation)]
    let nanoseconds = time.as_nanos() as u64;
    nanoseconds / TICK
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(limiter: &RateLimiter, client: &str, kind: Kind, at: Duration, queries: u32) -> [u32; 3] {
        let mut verdicts = [0; 3];
        let mut slips = 0;
        for _ in 0..queries {
            verdicts[limiter.check(client.parse().unwrap(), kind, at, &mut slips) as usize] += 1;
        }
        verdicts
    }

    #[test]
    fn a_network_has_its_share_of_each_kind() {
        let limiter = RateLimiter::new(RateLimit { per_second: 100, slip: 2 });
        let at = |seconds| Duration::from_secs(seconds);
        // Twice a second's share at once, then every second one of the rest as a slip.
        assert_eq!(count(&limiter, "192.0.2.1", Kind::Answer, at(9), 300), [200, 50, 50]);
        assert_eq!(count(&limiter, "192.0.2.200", Kind::Answer, at(9), 10), [0, 5, 5], "the same network");
        assert_eq!(count(&limiter, "192.0.2.1", Kind::NoName, at(9), 10), [10, 0, 0], "another kind");
        assert_eq!(count(&limiter, "192.0.3.1", Kind::Answer, at(9), 10), [10, 0, 0], "another network");
        assert_eq!(count(&limiter, "2001:db8::1", Kind::Answer, at(9), 300)[0], 200);
        assert_eq!(count(&limiter, "2001:db8:0:ff::1", Kind::Answer, at(9), 10)[0], 0, "the same /56");
        assert_eq!(count(&limiter, "2001:db8:0:100::1", Kind::Answer, at(9), 10)[0], 10, "another /56");
        assert_eq!(count(&limiter, "192.0.2.1", Kind::Answer, at(10), 300)[0], 100, "a second later");
    }

    #[test]
    fn no_limit_and_no_slip() {
        let off = RateLimiter::new(RateLimit { per_second: 0, slip: 2 });
        assert_eq!(count(&off, "192.0.2.1", Kind::Answer, Duration::ZERO, 10_000), [10_000, 0, 0]);
        let silent = RateLimiter::new(RateLimit { per_second: 1, slip: 0 });
        assert_eq!(count(&silent, "192.0.2.1", Kind::Answer, Duration::ZERO, 100), [2, 98, 0]);
    }

    #[test]
    fn many_networks_do_not_wash_a_limited_one_out() {
        let limiter = RateLimiter::new(RateLimit { per_second: 10, slip: 0 });
        assert_eq!(count(&limiter, "192.0.2.1", Kind::Answer, Duration::ZERO, 100)[0], 20);
        for network in 0..20_000_u32 {
            let client = IpAddr::from((10 << 24 | network << 8).to_be_bytes());
            limiter.take(client, Kind::Answer, 0);
        }
        assert_eq!(count(&limiter, "192.0.2.1", Kind::Answer, Duration::ZERO, 100)[0], 0);
    }
}
