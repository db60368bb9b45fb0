//! The free addresses of a pool.
//!
//! Free addresses are kept as intervals, so that a /64 costs as much as a /29: what an address costs grows with the
//! logarithm of how many have been taken, never with how many there are. Which one is next depends on what is taken and on
//! nothing else, so that whoever knows the same allocations proposes the same.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::network::Cidr;

/// IPv4 or IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

/// What of some ranges is free, and what is taken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pool {
    v4: Space,
    v6: Space,
}

impl Pool {
    /// Everything in the ranges that can be given, all of it free. Ranges may overlap.
    pub fn new(ranges: &[Cidr]) -> Self {
        let mut pool = Self::default();
        for range in ranges {
            let (family, first, last) = bounds(range);
            pool.space_mut(family).add(first, last);
        }
        for range in ranges {
            let (family, first, last) = bounds(range);
            for address in withheld(range).map(|end| if end == End::First { first } else { last }) {
                pool.space_mut(family).cut(address);
            }
        }
        for space in [&mut pool.v4, &mut pool.v6] {
            space.all.clone_from(&space.free);
        }
        pool
    }

    /// Whether it is one of those that can be given, taken or not.
    pub fn has(&self, address: IpAddr) -> bool {
        interval_at(&self.space(Family::of(address)).all, number(address)).is_some()
    }

    pub fn is_free(&self, address: IpAddr) -> bool {
        interval_at(&self.space(Family::of(address)).free, number(address)).is_some()
    }

    /// The address to give next: the first free one above all that are taken, else the lowest free one. So an address that
    /// was given back rests until the pool has been gone through.
    pub fn next(&self, family: Family) -> Option<IpAddr> {
        let Space { free, taken, .. } = self.space(family);
        let above = taken.last().and_then(|highest| free.range(*highest..).next());
        above.or_else(|| free.first_key_value()).map(|(first, _)| address(family, *first))
    }

    /// Takes this very address; `false` if it is taken already or is none of the pool's.
    pub fn take(&mut self, address: IpAddr) -> bool {
        let (space, address) = (self.space_mut(Family::of(address)), number(address));
        space.cut(address) && space.taken.insert(address)
    }

    /// Takes an address back; `false` if it was not taken.
    pub fn give_back(&mut self, address: IpAddr) -> bool {
        let (space, address) = (self.space_mut(Family::of(address)), number(address));
        let taken = space.taken.remove(&address);
        if taken {
            space.add(address, address);
        }
        taken
    }

    pub fn taken(&self, family: Family) -> usize {
        self.space(family).taken.len()
    }

    /// How many are free; more than 2^64 - 1 count as that many.
    pub fn free(&self, family: Family) -> u64 {
        let Space { all, taken, .. } = self.space(family);
        let size = |(first, last): (&u128, &u128)| (last - first).saturating_add(1);
        let all = all.iter().map(size).fold(0, u128::saturating_add);
        let taken = u128::try_from(taken.len()).unwrap_or(u128::MAX);
        u64::try_from(all.saturating_sub(taken)).unwrap_or(u64::MAX)
    }

    fn space(&self, family: Family) -> &Space {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    fn space_mut(&mut self, family: Family) -> &mut Space {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }
}

/// The addresses of one family, as numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Space {
    /// First to last address of each interval; neighbours are always one.
    free: BTreeMap<u128, u128>,
    taken: BTreeSet<u128>,
    /// What was free at first.
    all: BTreeMap<u128, u128>,
}

impl Space {
    /// Makes `first..=last` free and joins it with what it touches.
    fn add(&mut self, mut first: u128, mut last: u128) {
        // Whatever begins up to right behind it and does not end before it; intervals do not touch each other, so that
        // only the last of those that begin earlier can reach it.
        while let Some((start, end)) = self.free.range(..=last.saturating_add(1)).next_back() {
            let (start, end) = (*start, *end);
            if end.saturating_add(1) < first {
                break;
            }
            self.free.remove(&start);
            (first, last) = (first.min(start), last.max(end));
        }
        self.free.insert(first, last);
    }

    /// Takes one address out of what is free; `false` if it was not.
    fn cut(&mut self, address: u128) -> bool {
        let Some((first, last)) = interval_at(&self.free, address) else { return false };
        self.free.remove(&first);
        if first < address {
            self.free.insert(first, address - 1);
        }
        if address < last {
            self.free.insert(address + 1, last);
        }
        true
    }
}

fn interval_at(intervals: &BTreeMap<u128, u128>, address: u128) -> Option<(u128, u128)> {
    let (first, last) = intervals.range(..=address).next_back()?;
    (address <= *last).then_some((*first, *last))
}

fn bounds(range: &Cidr) -> (Family, u128, u128) {
    let first = range.network();
    (Family::of(first), number(first), number(range.last()))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    First,
    Last,
}

/// The addresses of a range that no machine can have. RFC 1122 3.2.1.3: the first of an IPv4 network is the network itself,
/// the last one its broadcast; RFC 3021 makes an exception for /31. RFC 4291 2.6.1: the first of an IPv6 network is any of
/// its routers; RFC 6164 makes an exception for /127.
fn withheld(range: &Cidr) -> impl Iterator<Item = End> + use<> {
    let ends: &[End] = match (Family::of(range.network()), range.prefix_len()) {
        (Family::V4, ..=30) => &[End::First, End::Last],
        (Family::V6, ..=126) => &[End::First],
        _ => &[],
    };
    ends.iter().copied()
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn address(family: Family, number: u128) -> IpAddr {
    match family {
        Family::V4 => {
            Ipv4Addr::from_bits(u32::try_from(number).expect("what came from an IPv4 address has 32 bits")).into()
        }
        Family::V6 => Ipv6Addr::from_bits(number).into(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn pool(ranges: &[&str]) -> Pool {
        let ranges: Vec<Cidr> = ranges.iter().map(|range| range.parse().unwrap()).collect();
        Pool::new(&ranges)
    }

    /// Everything that can be had of a family, in the order in which it is given.
    fn drain(pool: &mut Pool, family: Family) -> Vec<String> {
        std::iter::from_fn(|| {
            let next = pool.next(family)?;
            assert!(pool.take(next), "{next} was said to be next");
            Some(next.to_string())
        })
        .collect()
    }

    /// Ranges, and everything that they give.
    #[test]
    fn ranges_give_what_machines_can_have() {
        for (ranges, expected) in [
            (&["192.0.2.0/30"][..], "192.0.2.1 192.0.2.2"),
            (&["192.0.2.8/31"], "192.0.2.8 192.0.2.9"),
            (&["192.0.2.7/32"], "192.0.2.7"),
            (&["255.255.255.252/30"], "255.255.255.253 255.255.255.254"),
            (&["0.0.0.0/30"], "0.0.0.1 0.0.0.2"),
            // Two networks side by side have two ends each.
            (&["192.0.2.0/30", "192.0.2.4/30"], "192.0.2.1 192.0.2.2 192.0.2.5 192.0.2.6"),
            // One in another adds nothing, and its own ends stay withheld.
            (&["192.0.2.0/29", "192.0.2.4/30"], "192.0.2.1 192.0.2.2 192.0.2.3 192.0.2.5 192.0.2.6"),
            (&["192.0.2.4/32", "192.0.2.4/32", "192.0.2.5/32"], "192.0.2.4 192.0.2.5"),
            (&["2001:db8::/126"], "2001:db8::1 2001:db8::2 2001:db8::3"),
            (&["2001:db8::/127"], "2001:db8:: 2001:db8::1"),
            (&["2001:db8::5/128"], "2001:db8::5"),
            (
                &["ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127"],
                "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            ),
        ] {
            let mut pool = pool(ranges);
            let given = [drain(&mut pool, Family::V4), drain(&mut pool, Family::V6)].concat();
            assert_eq!(given.join(" "), expected, "{ranges:?}");
        }
    }

    #[test]
    fn an_address_given_back_rests_while_others_were_never_used() {
        let mut pool = pool(&["192.0.2.0/29"]);
        let (first, second) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        assert!(pool.take(first) && pool.take(second));
        assert!(pool.give_back(first));
        assert_eq!(drain(&mut pool, Family::V4).join(" "), "192.0.2.3 192.0.2.4 192.0.2.5 192.0.2.6 192.0.2.1");
    }

    #[test]
    fn what_is_not_the_pools_is_neither_taken_nor_given_back() {
        let mut pool = pool(&["192.0.2.0/29", "2001:db8::/64"]);
        for outside in ["192.0.2.0", "192.0.2.7", "192.0.2.8", "2001:db8::", "2001:db8:0:1::1", "::192.0.2.1"] {
            let outside = outside.parse().unwrap();
            assert!(!pool.has(outside) && !pool.take(outside) && !pool.give_back(outside), "{outside}");
        }
        let inside = "2001:db8::ffff".parse().unwrap();
        assert!(pool.has(inside) && pool.take(inside) && !pool.take(inside));
        assert!(pool.has(inside) && !pool.is_free(inside));
        assert!(pool.give_back(inside) && !pool.give_back(inside));
    }

    #[test]
    fn counts_of_the_largest_ranges_do_not_overflow() {
        let mut pool = pool(&["0.0.0.0/0", "::/0"]);
        assert_eq!((pool.free(Family::V4), pool.free(Family::V6)), ((1 << 32) - 2, u64::MAX));
        assert!(pool.take("::1".parse().unwrap()) && pool.take("10.0.0.1".parse().unwrap()));
        assert_eq!((pool.taken(Family::V6), pool.free(Family::V4)), (1, (1 << 32) - 3));
        assert_eq!(pool.next(Family::V6), Some("::2".parse().unwrap()));
    }

    #[derive(Debug, Clone)]
    enum Act {
        Next,
        Take(u8),
        GiveBack(u8),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![Just(Act::Next), any::<u8>().prop_map(Act::Take), any::<u8>().prop_map(Act::GiveBack)]
    }

    /// A range of at most 32 addresses in 192.0.2.0/24.
    fn small_range() -> impl Strategy<Value = Cidr> {
        (any::<u8>(), 27u8..=32).prop_map(|(octet, prefix)| {
            let first = u32::from(octet) >> (32 - prefix) << (32 - prefix);
            format!("192.0.2.{first}/{prefix}").parse().unwrap()
        })
    }

    fn in_test_net(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    /// What the ranges give, address by address.
    fn naively(ranges: &[Cidr]) -> BTreeSet<IpAddr> {
        let is_end =
            |range: &Cidr, address| range.prefix_len() < 31 && (address == range.network() || address == range.last());
        (0..=255)
            .map(in_test_net)
            .filter(|address| ranges.iter().any(|range| range.contains(*address)))
            .filter(|address| !ranges.iter().any(|range| is_end(range, *address)))
            .collect()
    }

    proptest! {
        #[test]
        fn a_pool_does_as_a_set_of_addresses_does(
            ranges in prop::collection::vec(small_range(), 1..6),
            acts in prop::collection::vec(act(), 0..300),
        ) {
            let all = naively(&ranges);
            let (mut pool, mut taken) = (Pool::new(&ranges), BTreeSet::new());
            for act in acts {
                match act {
                    Act::Next => {
                        let next = pool.next(Family::V4);
                        let above = all.difference(&taken).find(|free| taken.last().is_some_and(|last| *free > last));
                        prop_assert_eq!(next, above.or_else(|| all.difference(&taken).next()).copied());
                        if let Some(next) = next {
                            prop_assert!(pool.take(next) && taken.insert(next));
                        }
                    }
                    Act::Take(last) => {
                        let address = in_test_net(last);
                        let expected = all.contains(&address) && taken.insert(address);
                        prop_assert_eq!(pool.take(address), expected);
                    }
                    Act::GiveBack(last) => {
                        let address = in_test_net(last);
                        prop_assert_eq!(pool.give_back(address), taken.remove(&address));
                    }
                }
                prop_assert_eq!(pool.taken(Family::V4), taken.len());
                prop_assert_eq!(usize::try_from(pool.free(Family::V4)).unwrap(), all.len() - taken.len());
            }
            for address in (0..=255).map(in_test_net) {
                prop_assert_eq!(pool.is_free(address), all.contains(&address) && !taken.contains(&address));
                prop_assert_eq!(pool.has(address), all.contains(&address));
            }
            // Whoever takes the same addresses in another order has the same pool.
            let mut anew = Pool::new(&ranges);
            prop_assert!(taken.iter().rev().all(|address| anew.take(*address)));
            prop_assert_eq!(&anew, &pool);
            // All that is left can be had, each once.
            let rest = drain(&mut pool, Family::V4).len();
            prop_assert_eq!(rest, all.len() - taken.len());
        }
    }
}
