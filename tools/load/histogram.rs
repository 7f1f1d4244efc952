// SPDX-License-Identifier: GPL-2.0

//! Counts of latencies in buckets whose width grows with the value.
//!
//! Log2-linear: each power of two is cut into [`SUB`] buckets of equal width, so a bucket is at
//! most 1/256 of its values wide, from one nanosecond to centuries, in constant memory.

use eraid_tools::time::Nanos;
use std::io::{self, Write};

/// Bits of a value that tell buckets apart.
const BITS: u32 = 8;

/// Buckets in a power of two.
const SUB: u64 = 1 << BITS;

/// Buckets in all: values below [`SUB`] have one each.
const BUCKETS: usize = ((64 - BITS as usize) + 1) << BITS;

/// The histogram.
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    max: Nanos,
}

impl Histogram {
    /// An empty one.
    pub fn new() -> Self {
        Histogram {
            buckets: vec![0; BUCKETS],
            count: 0,
            sum: 0,
            max: Nanos(0),
        }
    }

    /// Counts a value.
    pub fn add(&mut self, value: Nanos) {
        self.buckets[bucket(value.0)] += 1;
        self.count += 1;
        self.sum += u128::from(value.0);
        self.max = self.max.max(value);
    }

    /// Values counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The exact mean, to the nanosecond below; 0 without values.
    pub fn mean(&self) -> Nanos {
        // A mean of 64-bit values has 64 bits.
        Nanos((self.sum / u128::from(self.count.max(1))) as u64)
    }

    /// The exact maximum.
    pub fn max(&self) -> Nanos {
        self.max
    }

    /// The smallest value that at least `per_mille` of 1000 values do not exceed: never too
    /// small, and too large by less than 1/256 of it. 0 without values.
    pub fn percentile(&self, per_mille: u64) -> Nanos {
        let rank = (u128::from(self.count) * u128::from(per_mille)).div_ceil(1000);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += u128::from(*count);
            if seen >= rank.max(1) {
                return Nanos(bounds(index).1).min(self.max);
            }
        }
        Nanos(0)
    }

    /// Writes the buckets that are not empty as CSV; both bounds belong to the bucket.
    pub fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "from_ns,to_ns,count")?;
        for (index, count) in self.buckets.iter().enumerate() {
            if *count > 0 {
                let (from, to) = bounds(index);
                writeln!(out, "{from},{to},{count}")?;
            }
        }
        Ok(())
    }
}

/// The bucket of a value.
fn bucket(value: u64) -> usize {
    if value < SUB {
        return value as usize;
    }
    // The highest BITS + 1 bits, of which the first is always set.
    let shift = value.ilog2() - BITS;
    ((u64::from(shift) << BITS) + (value >> shift)) as usize
}

/// The smallest and largest value of a bucket.
fn bounds(index: usize) -> (u64, u64) {
    let index = index as u64;
    if index < SUB {
        return (index, index);
    }
    let shift = (index >> BITS) - 1;
    let first = (SUB + index % SUB) << shift;
    (first, first + ((1 << shift) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use eraid_tools::rng::Rng;

    #[test]
    fn buckets_join_without_gaps() {
        let mut next = 0u64;
        for index in 0..BUCKETS {
            let (from, to) = bounds(index);
            assert_eq!(from, next, "{index}");
            assert_eq!((bucket(from), bucket(to)), (index, index));
            assert!(to - from <= from / SUB, "{from} {to}");
            next = to.wrapping_add(1);
        }
        // The last one ends with the last value.
        assert_eq!(next, 0);
    }

    #[test]
    fn percentiles_against_exact_sort() {
        let mut rng = Rng::new(&[11]);
        // Small numbers, a narrow range, and values over many powers of two.
        for (bits, base) in [(7, 0), (20, 8_000_000), (40, 0), (63, 0)] {
            let mut histogram = Histogram::new();
            let mut values: Vec<u64> = (0..10_007)
                .map(|_| base + ((rng.next_u64() >> (64 - bits)) >> rng.below(bits)))
                .collect();
            values.iter().for_each(|&value| histogram.add(Nanos(value)));
            values.sort_unstable();
            for per_mille in [1, 10, 500, 900, 990, 999, 1000] {
                let rank = (values.len() as u64 * per_mille).div_ceil(1000);
                let exact = values[rank as usize - 1];
                let found = histogram.percentile(per_mille).0;
                assert!(found >= exact, "{per_mille}: {found} < {exact}");
                assert!(
                    found - exact <= exact / SUB,
                    "{per_mille}: {found} > {exact}"
                );
            }
            let sum: u128 = values.iter().map(|&value| u128::from(value)).sum();
            assert_eq!(u128::from(histogram.mean().0), sum / values.len() as u128);
            assert_eq!(Some(&histogram.max().0), values.last());
        }
    }

    #[test]
    fn an_empty_one_says_zero() {
        let histogram = Histogram::new();
        assert_eq!(histogram.percentile(990), Nanos(0));
        assert_eq!(histogram.mean(), Nanos(0));
        assert_eq!(histogram.count(), 0);
    }

    #[test]
    fn csv_holds_every_value() {
        let mut histogram = Histogram::new();
        for value in [3, 3, 1000, 1001] {
            histogram.add(Nanos(value));
        }
        let mut csv = Vec::new();
        histogram.write_csv(&mut csv).unwrap();
        let csv = String::from_utf8(csv).unwrap();
        assert_eq!(csv, "from_ns,to_ns,count\n3,3,2\n1000,1001,2\n");
    }
}
