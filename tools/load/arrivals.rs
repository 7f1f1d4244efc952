// SPDX-License-Identifier: GPL-2.0

//! When the requests of an open loop are due.

use eraid_tools::rng::Rng;
use eraid_tools::time::Nanos;

/// A Poisson process: independent gaps, exponentially distributed. It never ends.
pub struct Poisson {
    rng: Rng,
    mean: f64,
    due: Nanos,
}

/// Sets the arrivals' random numbers apart from those of the places.
const STREAM: u64 = 1;

impl Poisson {
    /// Arrivals `mean` apart; the same seed makes the same arrivals, whatever the requests are.
    pub fn new(seed: u64, mean: Nanos) -> Self {
        Poisson {
            rng: Rng::new(&[seed, STREAM]),
            mean: mean.0 as f64,
            due: Nanos(0),
        }
    }

    /// The next gap, by inversion of the distribution function.
    fn gap(&mut self) -> Nanos {
        // In (0, 1]: 53 random bits, all that a float holds.
        let uniform = ((self.rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        Nanos((-libm::log(uniform) * self.mean).round() as u64)
    }
}

impl Iterator for Poisson {
    type Item = Nanos;

    fn next(&mut self) -> Option<Nanos> {
        self.due = Nanos(self.due.0.saturating_add(self.gap().0));
        Some(self.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEAN: Nanos = Nanos(8_000_000);

    fn gaps(seed: u64, count: usize) -> Vec<f64> {
        let due: Vec<_> = Poisson::new(seed, MEAN).take(count).collect();
        let mut before = Nanos(0);
        due.iter()
            .map(|&due| {
                let gap = due - before;
                before = due;
                gap.0 as f64
            })
            .collect()
    }

    #[test]
    fn the_gaps_are_exponential() {
        for seed in 1..=5 {
            let gaps = gaps(seed, 200_000);
            let count = gaps.len() as f64;
            let mean = gaps.iter().sum::<f64>() / count;
            // The mean of n gaps has a standard deviation of 1/sqrt(n): 0.22%.
            assert!((mean / MEAN.0 as f64 - 1.0).abs() < 0.01, "{seed}: {mean}");
            let square = gaps.iter().map(|gap| gap * gap).sum::<f64>() / count;
            let deviation = (square - mean * mean).sqrt();
            assert!((deviation / mean - 1.0).abs() < 0.02, "{seed}: {deviation}");
            // P(gap > x) = exp(-x/mean), in the middle and in the tail.
            for (times, expected) in [(0.5, 0.606_5), (1.0, 0.367_9), (3.0, 0.049_8)] {
                let longer = gaps.iter().filter(|&&gap| gap > times * MEAN.0 as f64);
                let share = longer.count() as f64 / count;
                assert!((share - expected).abs() < 0.005, "{seed}: {times}: {share}");
            }
        }
    }

    #[test]
    fn the_gaps_are_independent() {
        let gaps = gaps(7, 200_000);
        let mean = MEAN.0 as f64;
        let products = gaps.windows(2).map(|two| (two[0] - mean) * (two[1] - mean));
        let correlation = products.sum::<f64>() / gaps.len() as f64 / (mean * mean);
        assert!(correlation.abs() < 0.01, "{correlation}");
    }

    #[test]
    fn a_seed_repeats_them() {
        let due = |seed| Poisson::new(seed, MEAN).take(1000).collect::<Vec<_>>();
        assert_eq!(due(3), due(3));
        assert_ne!(due(3), due(4));
        // These never change: results name nothing but the seed.
        assert_eq!(due(1)[..3], FIRST_OF_SEED_1);
    }

    const FIRST_OF_SEED_1: [Nanos; 3] = [Nanos(14_322_278), Nanos(14_351_020), Nanos(31_382_288)];
}
