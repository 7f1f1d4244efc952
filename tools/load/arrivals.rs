// SPDX-License-Identifier: GPL-2.0

//! When the requests of an open loop are due.
//!
//! All kinds of arrivals are Poisson processes, whose rate may change with time. One of changing rate
//! is made from one of the highest rate by leaving requests out ("thinning", Lewis and Shedler,
//! "Simulation of nonhomogeneous Poisson processes by thinning", 1979).

use eraid_tools::rng::Rng;
use eraid_tools::time::Nanos;

/// Sets the arrivals' random numbers apart from those of the places.
const STREAM: u64 = 1;
/// The same for what is left out.
const THINNING: u64 = 3;
/// The same for the lengths of bursts.
const BURSTS: u64 = 4;

/// How the rate of arrivals changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Shape {
    /// Not at all.
    #[default]
    Steady,
    /// Bursts of 2 s on average with four times the mean rate, in 10% of the time; two thirds of it
    /// between them. The lengths of both are exponentially distributed.
    Bursty,
    /// A day of 600 s: a sine from 40% of the mean rate to 160%, which starts at the mean and rises.
    Day,
}

/// Mean length of a burst, and of the time between two, in seconds.
const BURST: f64 = 2.0;
const BETWEEN: f64 = 18.0;
/// Rates in and between bursts: 10% of 4 and 90% of 2/3 make 1.
const BURST_RATE: f64 = 4.0;
const BETWEEN_RATE: f64 = 2.0 / 3.0;
/// Seconds of a day, and how far its rate is from the mean at most.
const DAY: f64 = 600.0;
const DAY_SWING: f64 = 0.6;

impl Shape {
    /// The highest rate, with 1 as the mean one.
    fn peak(self) -> f64 {
        match self {
            Shape::Steady => 1.0,
            Shape::Bursty => BURST_RATE,
            Shape::Day => 1.0 + DAY_SWING,
        }
    }
}

/// A Poisson process of changing rate. It never ends.
pub struct Arrivals {
    candidates: Poisson,
    shape: Shape,
    thinning: Rng,
    bursts: Bursts,
}

impl Arrivals {
    /// Arrivals `mean` apart; the same seed makes the same arrivals, whatever the requests are.
    pub fn new(seed: u64, mean: Nanos, shape: Shape) -> Self {
        Arrivals {
            candidates: Poisson::new(seed, mean.0 as f64 / shape.peak()),
            shape,
            thinning: Rng::new(&[seed, THINNING]),
            bursts: Bursts {
                rng: Rng::new(&[seed, BURSTS]),
                within: true,
                until: 0.0,
            },
        }
    }

    /// The rate at a time, which never goes back.
    fn rate(&mut self, at: Nanos) -> f64 {
        match self.shape {
            Shape::Steady => 1.0,
            Shape::Bursty if self.bursts.is_within(at.seconds()) => BURST_RATE,
            Shape::Bursty => BETWEEN_RATE,
            Shape::Day => 1.0 + DAY_SWING * libm::sin(std::f64::consts::TAU * at.seconds() / DAY),
        }
    }
}

impl Iterator for Arrivals {
    type Item = Nanos;

    fn next(&mut self) -> Option<Nanos> {
        loop {
            let due = self.candidates.next()?;
            let share = self.rate(due) / self.shape.peak();
            if share >= 1.0 || uniform(&mut self.thinning) <= share {
                return Some(due);
            }
        }
    }
}

/// When there are bursts.
struct Bursts {
    rng: Rng,
    within: bool,
    /// When that changes, in seconds.
    until: f64,
}

impl Bursts {
    /// Whether there is one at a time, which never goes back. The run starts between two.
    fn is_within(&mut self, seconds: f64) -> bool {
        while self.until <= seconds {
            self.within = !self.within;
            let mean = if self.within { BURST } else { BETWEEN };
            self.until += exponential(&mut self.rng, mean);
        }
        self.within
    }
}

/// A number in (0, 1]: 53 random bits, all that a float holds.
fn uniform(rng: &mut Rng) -> f64 {
    ((rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// An exponentially distributed number, by inversion of the distribution function.
fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -libm::log(uniform(rng)) * mean
}

/// A Poisson process: independent gaps, exponentially distributed. It never ends.
struct Poisson {
    rng: Rng,
    /// Nanoseconds.
    mean: f64,
    due: Nanos,
}

impl Poisson {
    fn new(seed: u64, mean: f64) -> Self {
        Poisson {
            rng: Rng::new(&[seed, STREAM]),
            mean,
            due: Nanos(0),
        }
    }

    fn gap(&mut self) -> Nanos {
        Nanos(exponential(&mut self.rng, self.mean).round() as u64)
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
        let arrivals = Arrivals::new(seed, MEAN, Shape::Steady);
        let due: Vec<_> = arrivals.take(count).collect();
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
        for shape in [Shape::Steady, Shape::Bursty, Shape::Day] {
            let due = |seed| {
                let arrivals = Arrivals::new(seed, MEAN, shape);
                arrivals.take(1000).collect::<Vec<_>>()
            };
            assert_eq!(due(3), due(3));
            assert_ne!(due(3), due(4));
        }
        // These never change: results name nothing but the seed.
        let steady = Arrivals::new(1, MEAN, Shape::Steady);
        assert_eq!(steady.take(3).collect::<Vec<_>>(), FIRST_OF_SEED_1);
    }

    /// Arrivals in each second of `seconds`.
    fn in_seconds(seed: u64, shape: Shape, seconds: usize) -> Vec<u32> {
        let mut counts = vec![0; seconds];
        for due in Arrivals::new(seed, MEAN, shape) {
            match counts.get_mut(due.seconds() as usize) {
                Some(count) => *count += 1,
                None => break,
            }
        }
        counts
    }

    #[test]
    fn a_day_rises_and_falls() {
        for seed in 1..=3 {
            let counts = in_seconds(seed, Shape::Day, 1200);
            let sum = |from: usize, to: usize| counts[from..to].iter().sum::<u32>() as f64;
            // 125 a second: 150,000 in all, standard deviation 0.26%.
            assert!((sum(0, 1200) / 150_000.0 - 1.0).abs() < 0.015);
            // A minute around the peak and the trough, whose means are 1 +- 0.6 * 0.984.
            for (from, factor) in [(120, 1.590), (420, 0.410), (720, 1.590), (1020, 0.410)] {
                let share = sum(from, from + 60) / (60.0 * 125.0);
                assert!(
                    (share - factor).abs() < 0.07,
                    "{seed}: from {from} s: {share}"
                );
            }
        }
    }

    #[test]
    fn bursts_come_and_go() {
        for seed in 1..=3 {
            let counts = in_seconds(seed, Shape::Bursty, 20_000);
            let mean = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
            // A thousand bursts, whose number and lengths vary: 4 to 5% of their time.
            assert!((mean / 125.0 - 1.0).abs() < 0.06, "{seed}: {mean}");
            // Twice the mean is far from 83 and from 500 a second: those above are seconds in bursts.
            let busy = counts.iter().filter(|&&count| count > 250).count() as f64;
            let share = busy / counts.len() as f64;
            assert!((0.07..0.13).contains(&share), "{seed}: {share}");
        }
    }

    const FIRST_OF_SEED_1: [Nanos; 3] = [Nanos(14_322_278), Nanos(14_351_020), Nanos(31_382_288)];
}
