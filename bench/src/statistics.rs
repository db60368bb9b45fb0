//! Median, 99th percentile and maximum of a sample, always together with its size.

/// From this size on the 99th percentile is another value than the maximum.
const PERCENTILE_FROM: usize = 100;

/// What a sample comes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    pub n: usize,
    pub median: f64,
    /// By nearest rank; `None` where the sample is so small that it is the maximum.
    pub p99: Option<f64>,
    pub max: f64,
}

impl Summary {
    /// `None` for an empty sample.
    pub fn of(sample: &[f64]) -> Option<Self> {
        let mut sorted = sample.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let n = sorted.len();
        let max = *sorted.last()?;
        let median = f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]);
        let p99 = (n >= PERCENTILE_FROM).then(|| sorted[(n * 99).div_ceil(100) - 1]);
        Some(Self { n, median, p99, max })
    }

    /// A figure that is not a sample, such as a ratio.
    pub fn single(value: f64) -> Self {
        Self { n: 1, median: value, p99: None, max: value }
    }

    /// What is held against a bar: the 99th percentile, of small samples the maximum.
    pub fn judged(&self) -> f64 {
        self.p99.unwrap_or(self.max)
    }
}

/// How many times theirs mine was, round by round: the machine is not the same from one to the next.
pub fn ratios(mine: &[f64], theirs: &[f64]) -> Vec<f64> {
    mine.iter().zip(theirs).map(|(mine, theirs)| mine / theirs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up_to(n: u32) -> Vec<f64> {
        // Backwards: the order of a sample does not matter.
        (1..=n).rev().map(f64::from).collect()
    }

    #[test]
    fn summaries() {
        for (sample, median, p99, max) in [
            (vec![7.0], 7.0, None, 7.0),
            (vec![4.0, 1.0], 2.5, None, 4.0),
            (vec![9.0, 1.0, 5.0], 5.0, None, 9.0),
            (up_to(99), 50.0, None, 99.0),
            (up_to(100), 50.5, Some(99.0), 100.0),
            (up_to(101), 51.0, Some(100.0), 101.0),
            (up_to(1000), 500.5, Some(990.0), 1000.0),
            (up_to(2001), 1001.0, Some(1981.0), 2001.0),
        ] {
            let expected = Summary { n: sample.len(), median, p99, max };
            assert_eq!(Summary::of(&sample), Some(expected), "of {} values", sample.len());
        }
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn a_small_sample_is_judged_by_its_worst() {
        assert!((Summary::of(&up_to(5)).unwrap().judged() - 5.0).abs() < f64::EPSILON);
        assert!((Summary::of(&up_to(1000)).unwrap().judged() - 990.0).abs() < f64::EPSILON);
    }
}
