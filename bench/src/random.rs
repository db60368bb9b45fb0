//! Numbers that look random and are the same in every run, so that two runs do the same work.

/// `SplitMix64` (Steele, Lea, Flood 2014): no state to warm up, and more than even enough to pick clusters by.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Below `bound`, which is small beside 2^64, so that the bias of a remainder does not show.
    pub fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(self.draw() % u64::from(bound)).expect("a remainder is less than what divided")
    }

    /// Gaps of this length, one on average, lie between events that do not know of each other.
    pub fn exponential(&mut self) -> f64 {
        // The 52 upper bits, which are those of a fraction, and never zero: that one has no logarithm.
        #[allow(clippy::cast_precision_loss)]
        let fraction = ((self.draw() >> 12) + 1) as f64 / (1_u64 << 52) as f64;
        -fraction.ln()
    }

    /// `count` different numbers below `bound`; at most `bound` of them.
    pub fn distinct(&mut self, count: usize, bound: u32) -> Vec<u32> {
        let mut seen = std::collections::HashSet::new();
        let count = count.min(bound as usize);
        let mut picked = Vec::with_capacity(count);
        while picked.len() < count {
            let number = self.below(bound);
            if seen.insert(number) {
                picked.push(number);
            }
        }
        picked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_one_on_average_and_often_short() {
        let mut random = Random::seeded(1);
        let gaps: Vec<f64> = (0..10_000).map(|_| random.exponential()).collect();
        let mean = gaps.iter().sum::<f64>() / 10_000.0;
        assert!((0.97..1.03).contains(&mean), "{mean}");
        assert!(gaps.iter().all(|gap| (0.0..40.0).contains(gap)));
        // 1 - 1/e of them are shorter than their mean.
        let short = gaps.iter().filter(|gap| **gap < 1.0).count();
        assert!((6_100..6_550).contains(&short), "{short}");
    }
}
