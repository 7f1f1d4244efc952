// SPDX-License-Identifier: GPL-2.0

//! Latency statistics of a member: how long its device takes for commands of each kind.
//!
//! A time is from dispatch to the device to its completion; the driver's own queue does not count,
//! the device's does. [`Times`] only ever count up, so parts that CPUs keep for themselves are merged
//! by adding them, and what came in between two looks is their difference.

use crate::units::Micros;

/// Reads up to this many bytes are small: seek and rotation dominate them.
pub const SMALL_MAX: u32 = 64 << 10;

/// Buckets of a [`Histogram`]. Bucket 0 holds times below 2 µs, bucket *n* those from 2^n µs on, the
/// last one all from 2^31 µs (36 minutes) on.
pub const BUCKETS: usize = 32;

/// Kinds of commands whose times are compared only with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A read of at most [`SMALL_MAX`] bytes.
    SmallRead,
    /// A longer read.
    LargeRead,
    /// A write.
    Write,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 3] = [Kind::SmallRead, Kind::LargeRead, Kind::Write];

    /// The kind of a read of `bytes`.
    #[inline]
    pub const fn of_read(bytes: u32) -> Kind {
        if bytes <= SMALL_MAX {
            Kind::SmallRead
        } else {
            Kind::LargeRead
        }
    }
}

/// The bucket that a time is counted in, below [`BUCKETS`].
#[inline]
pub const fn bucket_of(time: Micros) -> usize {
    match time.get() {
        0 => 0,
        us if us >> (BUCKETS - 1) != 0 => BUCKETS - 1,
        us => us.ilog2() as usize,
    }
}

/// The shortest time of a bucket, in µs.
#[inline]
const fn border(bucket: usize) -> u64 {
    match bucket {
        0 => 0,
        // No histogram has more buckets than a u64 has bits.
        n => 1 << (n & 63),
    }
}

/// A number of commands and the time they took together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many.
    pub count: u64,
    /// Their times added up, in µs.
    pub us: u64,
}

impl Sum {
    /// What came since `earlier`, a former value of the same sum.
    #[inline]
    #[must_use]
    pub const fn since(self, earlier: Sum) -> Sum {
        Sum {
            count: self.count.saturating_sub(earlier.count),
            us: self.us.saturating_sub(earlier.us),
        }
    }

    /// Both together.
    #[inline]
    #[must_use]
    pub const fn plus(self, other: Sum) -> Sum {
        Sum {
            count: self.count.saturating_add(other.count),
            us: self.us.saturating_add(other.us),
        }
    }

    /// The mean time; `None` if there was no command.
    #[inline]
    pub const fn mean(self) -> Option<Micros> {
        match self.us.checked_div(self.count) {
            Some(us) => Some(Micros::new(us)),
            None => None,
        }
    }
}

/// How many commands took how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BUCKETS],
    us: u64,
}

impl Histogram {
    /// No command yet.
    pub const EMPTY: Self = Self {
        counts: [0; BUCKETS],
        us: 0,
    };

    /// Counts a command.
    #[inline]
    pub fn add(&mut self, time: Micros) {
        if let Some(count) = self.counts.get_mut(bucket_of(time)) {
            *count = count.saturating_add(1);
        }
        self.us = self.us.saturating_add(time.get());
    }

    /// Adds what another CPU counted.
    #[inline]
    pub fn merge(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
        self.us = self.us.saturating_add(other.us);
    }

    /// What came since `earlier`, a former value of this histogram.
    #[must_use]
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let mut difference = self.clone();
        for (count, less) in difference.counts.iter_mut().zip(&earlier.counts) {
            *count = count.saturating_sub(*less);
        }
        difference.us = difference.us.saturating_sub(earlier.us);
        difference
    }

    /// Commands in each bucket.
    #[inline]
    pub fn counts(&self) -> &[u64; BUCKETS] {
        &self.counts
    }

    /// All commands, and their time, which is exact.
    #[inline]
    pub fn sum(&self) -> Sum {
        let count = self
            .counts
            .iter()
            .fold(0u64, |sum, count| sum.saturating_add(*count));
        Sum { count, us: self.us }
    }

    /// The time that `permille` of a thousand commands do not exceed, assuming that the times within
    /// a bucket are spread evenly: never off by more than the bucket, a factor of two. `None` if there
    /// was no command. More than 1000 counts as 1000.
    pub fn quantile(&self, permille: u32) -> Option<Micros> {
        let all = self.sum().count;
        if all == 0 {
            return None;
        }
        // The rank from 1 on, without a product that could overflow.
        let permille = u64::from(permille.min(1000));
        let rank = (all / 1000 * permille + (all % 1000 * permille).div_ceil(1000)).max(1);
        let mut below = 0u64;
        for (bucket, &count) in self.counts.iter().enumerate() {
            if below.saturating_add(count) >= rank && count > 0 {
                let width = border(bucket + 1) - border(bucket);
                // In 1/1024 of the bucket; counts below 2^54 do not overflow, larger ones saturate.
                let part = (rank - below).saturating_mul(1024) / count;
                return Some(Micros(border(bucket) + width * part.min(1024) / 1024));
            }
            below = below.saturating_add(count);
        }
        Some(Micros(border(BUCKETS)))
    }
}

/// Histograms of a member, or the part of one CPU: one for each kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Times {
    small: Histogram,
    large: Histogram,
    write: Histogram,
}

impl Times {
    /// No command yet.
    pub const EMPTY: Self = Self {
        small: Histogram::EMPTY,
        large: Histogram::EMPTY,
        write: Histogram::EMPTY,
    };

    /// Counts a command that ended well. Not one of a scrub, a resync or a rebuild.
    #[inline]
    pub fn add(&mut self, kind: Kind, time: Micros) {
        match kind {
            Kind::SmallRead => self.small.add(time),
            Kind::LargeRead => self.large.add(time),
            Kind::Write => self.write.add(time),
        }
    }

    /// Adds what another CPU counted.
    #[inline]
    pub fn merge(&mut self, other: &Times) {
        self.small.merge(&other.small);
        self.large.merge(&other.large);
        self.write.merge(&other.write);
    }

    /// The histogram of a kind.
    #[inline]
    pub fn of(&self, kind: Kind) -> &Histogram {
        match kind {
            Kind::SmallRead => &self.small,
            Kind::LargeRead => &self.large,
            Kind::Write => &self.write,
        }
    }

    /// All reads: what detectors look at.
    #[inline]
    pub fn reads(&self) -> Reads {
        Reads {
            small: self.small.sum(),
            large: self.large.sum(),
        }
    }
}

/// The reads of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// [`Kind::SmallRead`].
    pub small: Sum,
    /// [`Kind::LargeRead`].
    pub large: Sum,
}

impl Reads {
    /// Both kinds together.
    #[inline]
    pub const fn all(self) -> Sum {
        self.small.plus(self.large)
    }
}

/// Smoothed time: the exponentially weighted moving average in which a command counts a quarter.
///
/// Commands come in groups, those since the last look, of which the mean is known; all of a group
/// count as if each had taken that. The expectation is that of the average over single commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ewma {
    /// In 1/256 µs; 0 while there was no command.
    value: u64,
}

impl Ewma {
    /// No command yet.
    pub const EMPTY: Self = Self { value: 0 };

    /// After so many commands nothing is left of the past.
    const COMMANDS_MAX: u64 = 40;

    /// Adds the commands of a group.
    #[inline]
    pub fn add(&mut self, group: Sum) {
        let Some(mean) = group.mean() else { return };
        // 2^32 µs are more than an hour; so nothing overflows below.
        let mean = mean.get().min(u64::from(u32::MAX)).max(1) << 8;
        if self.value == 0 {
            self.value = mean;
            return;
        }
        // What remains of the past, in 2^-16: 3/4 for each command.
        let commands = group.count.min(Self::COMMANDS_MAX);
        let past = (0..commands).fold(1u64 << 16, |past, _| past * 3 / 4);
        self.value = ((self.value * past + mean * ((1 << 16) - past)) >> 16).max(1);
    }

    /// The value; `None` while there was no command.
    #[inline]
    pub fn get(self) -> Option<Micros> {
        match self.value {
            0 => None,
            value => Some(Micros(value >> 8)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(time: u64) -> Micros {
        Micros::new(time)
    }

    #[test]
    fn buckets_are_powers_of_two() {
        let of = |time| bucket_of(us(time));
        assert_eq!((of(0), of(1), of(2), of(3), of(4)), (0, 0, 1, 1, 2));
        for bucket in 1..BUCKETS {
            assert_eq!(of(border(bucket)), bucket);
            assert_eq!(of(border(bucket) - 1), bucket - 1);
        }
        assert_eq!(of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn small_reads_end_at_64_kib() {
        assert_eq!(Kind::of_read(65536), Kind::SmallRead);
        assert_eq!(Kind::of_read(65537), Kind::LargeRead);
    }

    #[test]
    fn parts_of_cpus_add_up_and_looks_subtract() {
        let (mut whole, mut parts) = (Times::EMPTY, [Times::EMPTY, Times::EMPTY]);
        for n in 0..1000u64 {
            let kind = Kind::ALL[n as usize % 3];
            whole.add(kind, us(n * n));
            parts[n as usize % 2].add(kind, us(n * n));
        }
        let [mut merged, other] = parts;
        merged.merge(&other);
        assert_eq!(merged, whole);
        assert_eq!(
            whole.reads().all().count,
            667,
            "writes are no part of the reads"
        );
        let before = whole.clone();
        whole.add(Kind::SmallRead, us(70));
        let new = whole.of(Kind::SmallRead).since(before.of(Kind::SmallRead));
        assert_eq!(new.sum(), Sum { count: 1, us: 70 });
        assert_eq!(new.counts()[6], 1);
        let none = whole.of(Kind::Write).since(before.of(Kind::Write));
        assert_eq!(none, Histogram::EMPTY);
        assert_eq!((none.sum().mean(), none.quantile(500)), (None, None));
    }

    #[test]
    fn quantiles_are_within_their_bucket() {
        let mut histogram = Histogram::EMPTY;
        (1..=10_000).for_each(|n| histogram.add(us(n)));
        for (permille, exact) in [(10, 100), (250, 2500), (500, 5000), (990, 9900)] {
            let got = histogram.quantile(permille).unwrap().get();
            assert!(
                (exact / 2..=exact * 2).contains(&got),
                "{permille}: {got} for {exact}"
            );
        }
        // The times are spread evenly up to the last bucket, 8192 µs on.
        let median = histogram.quantile(500).unwrap().get();
        assert!((4950..=5050).contains(&median), "{median}");
        assert!(histogram.quantile(0).unwrap() <= us(2));
        assert_eq!(histogram.quantile(1000), Some(us(16384)));
        assert_eq!(histogram.quantile(5000), Some(us(16384)));
        assert_eq!(histogram.sum().mean(), Some(us(5000)));
    }

    #[test]
    fn absurd_times_do_no_harm() {
        let mut histogram = Histogram::EMPTY;
        (0..3).for_each(|_| histogram.add(us(u64::MAX)));
        assert_eq!(
            histogram.sum(),
            Sum {
                count: 3,
                us: u64::MAX
            }
        );
        assert_eq!(histogram.quantile(1000), Some(us(1 << 32)));
        histogram.counts = [u64::MAX; BUCKETS];
        assert!(histogram.quantile(999).is_some());
        let mut ewma = Ewma::EMPTY;
        for count in [1, u64::MAX] {
            ewma.add(Sum {
                count,
                us: u64::MAX,
            });
        }
        assert!(ewma.get().is_some());
    }

    #[test]
    fn a_command_counts_a_quarter() {
        let mut ewma = Ewma::EMPTY;
        assert_eq!(ewma.get(), None);
        let one = |time| Sum { count: 1, us: time };
        ewma.add(one(1000));
        assert_eq!(ewma.get(), Some(us(1000)), "the first one is all there is");
        ewma.add(one(2000));
        assert_eq!(ewma.get(), Some(us(1250)));
        ewma.add(Sum::default());
        assert_eq!(ewma.get(), Some(us(1250)));
        // Three at once, or one after the other.
        let mut single = ewma;
        (0..3).for_each(|_| single.add(one(8000)));
        ewma.add(Sum {
            count: 3,
            us: 24000,
        });
        let (group, single) = (ewma.get().unwrap().get(), single.get().unwrap().get());
        assert!(group.abs_diff(single) <= 2, "{group} and {single}");
        ewma.add(Sum {
            count: 1000,
            us: 5_000_000,
        });
        assert_eq!(ewma.get(), Some(us(5000)), "nothing is left of the past");
        ewma.add(one(0));
        assert!(
            ewma.get().is_some(),
            "no time is not the same as no command"
        );
    }
}
