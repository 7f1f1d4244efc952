// SPDX-License-Identifier: GPL-2.0

//! The seek curve: how long the arm takes over how many cylinders.

use crate::units::Nanos;
use core::num::NonZeroU64;

/// `min + sqrt * (distance / cylinders)^(1/2)`, and nothing within a cylinder.
///
/// The square root is the time of an arm that accelerates half of the way and brakes the other half;
/// the constant is settling. (Ruemmler and Wilkes, "An introduction to disk drive modeling", 1994,
/// have it for short seeks, and a straight line for long ones.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeekCurve {
    /// Time of the shortest seek, without the way.
    pub min: Nanos,
    /// What the way from the first to the last cylinder adds.
    pub sqrt: Nanos,
    /// All cylinders; at most 2^31.
    pub cylinders: NonZeroU64,
}

impl SeekCurve {
    /// The time from one cylinder to another.
    #[inline]
    pub fn time(&self, from: u64, to: u64) -> Nanos {
        let distance = from.abs_diff(to).min(self.cylinders.get());
        if distance == 0 {
            return Nanos::ZERO;
        }
        // 32 binary digits of the fraction, and so 16 of its root.
        let root = ((distance << 32) / self.cylinders).isqrt();
        self.min + Nanos(self.sqrt.0.saturating_mul(root) >> 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CURVE: SeekCurve = SeekCurve {
        min: Nanos(2_000_000),
        sqrt: Nanos(13_000_000),
        cylinders: NonZeroU64::new(200_000).unwrap(),
    };

    #[test]
    fn curve_is_the_formula() {
        assert_eq!(CURVE.time(5, 5), Nanos(0));
        for (distance, ms) in [(200_000, 15.0), (50_000, 8.5), (2_000, 3.3), (20, 2.13)] {
            let time = CURVE.time(0, distance).0 as f64 / 1e6;
            assert!((time - ms).abs() < 0.001, "{distance}: {time} ms, not {ms}");
            assert_eq!(CURVE.time(0, distance), CURVE.time(distance, 0));
        }
    }

    #[test]
    fn mean_of_random_seeks_is_the_integral() {
        // The mean root of the distance of two random points is 8/15.
        let (mut sum, mut n) = (0.0, 0.0);
        for from in (0..200_000).step_by(997) {
            for to in (0..200_000).step_by(991) {
                sum += CURVE.time(from, to).0 as f64 / 1e6;
                n += 1.0;
            }
        }
        let mean = sum / n;
        assert!((mean - (2.0 + 13.0 * 8.0 / 15.0)).abs() < 0.02, "{mean} ms");
    }
}
