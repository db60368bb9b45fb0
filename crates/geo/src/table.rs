//! All addresses of a family as stretches, in their order: nested networks are resolved when the table is made.

use std::ops::BitXor;

/// An address as a number.
pub(crate) trait Bits: Copy + Ord + BitXor<Output = Self> {
    const FIRST: Self;
    const LAST: Self;
    fn next(self) -> Self;
    fn before(self) -> Self;
    /// How many leading bits are zero.
    fn zeros(self) -> u32;
    /// The last one that has these leading bits.
    fn last(self, prefix_len: u8) -> Self;
}

macro_rules! bits {
    ($($number:ty),*) => {$(
        impl Bits for $number {
            const FIRST: Self = 0;
            const LAST: Self = Self::MAX;

            fn next(self) -> Self {
                self.saturating_add(1)
            }

            fn before(self) -> Self {
                self.saturating_sub(1)
            }

            fn zeros(self) -> u32 {
                self.leading_zeros()
            }

            fn last(self, prefix_len: u8) -> Self {
                self | Self::MAX.checked_shr(prefix_len.into()).unwrap_or_default()
            }
        }
    )*};
}

bits!(u32, u128);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Network<T> {
    pub(crate) first: T,
    pub(crate) prefix_len: u8,
    pub(crate) place: u32,
}

/// Where each stretch begins, and the number of its place. The first begins at the first address, so that every address
/// is in one.
#[derive(Debug)]
pub(crate) struct Table<T> {
    firsts: Vec<T>,
    places: Vec<u32>,
}

/// Nothing is known.
const UNKNOWN: u32 = u32::MAX;

impl<T: Bits> Table<T> {
    /// No network comes twice.
    pub(crate) fn of(mut networks: Vec<Network<T>>) -> Self {
        // Each right before those inside it.
        networks.sort_unstable_by_key(|network| (network.first, network.prefix_len));
        let mut table = Self { firsts: vec![T::FIRST], places: vec![UNKNOWN] };
        // The networks that the last one is in: their last addresses and places.
        let mut around: Vec<(T, u32)> = Vec::new();
        for network in networks {
            table.leave(&mut around, Some(network.first));
            table.begin(network.first, network.place);
            around.push((network.first.last(network.prefix_len), network.place));
        }
        table.leave(&mut around, None);
        table.firsts.shrink_to_fit();
        table.places.shrink_to_fit();
        table
    }

    /// Ends the networks that end before `next`.
    fn leave(&mut self, around: &mut Vec<(T, u32)>, next: Option<T>) {
        while let Some((last, _)) = around.last().copied()
            && next.is_none_or(|next| last < next)
        {
            around.pop();
            if last < T::LAST {
                self.begin(last.next(), around.last().map_or(UNKNOWN, |(_, place)| *place));
            }
        }
    }

    fn begin(&mut self, first: T, place: u32) {
        // Nothing is left of the stretch that began here too.
        if self.firsts.last() == Some(&first) {
            self.firsts.pop();
            self.places.pop();
        }
        // Neighbours at one place are one stretch.
        if self.places.last() != Some(&place) {
            self.firsts.push(first);
            self.places.push(place);
        }
    }

    /// The number of the place, and how many leading bits an address must share to be in the same stretch.
    pub(crate) fn find(&self, address: T) -> (Option<u32>, u8) {
        let behind = self.firsts.partition_point(|first| *first <= address);
        let at = behind.saturating_sub(1);
        // The first bit in which the addresses around the stretch differ from this one must be among them.
        let apart = |other: T| (address ^ other).zeros() + 1;
        let lower = self.firsts.get(at).filter(|first| **first > T::FIRST).map_or(0, |first| apart(first.before()));
        let upper = self.firsts.get(behind).map_or(0, |next| apart(*next));
        let place = self.places.get(at).copied().filter(|place| *place != UNKNOWN);
        // 128 at most.
        (place, u8::try_from(lower.max(upper)).unwrap_or(u8::MAX))
    }

    pub(crate) fn stretches(&self) -> usize {
        self.firsts.len()
    }
}
