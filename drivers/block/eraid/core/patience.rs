// SPDX-License-Identifier: GPL-2.0

//! Patience: how long a read waits for its member before it is answered from the others, and how
//! often that may happen.
//!
//! A member that is late is compared with the others, queues included: they are about as busy.
//! What is rare among them is no reason yet, since reading from all of them costs each a command.

use crate::units::Micros;

/// log2 of the buckets in each power of two.
const PARTS_SHIFT: u32 = 2;

/// log2 of the shortest time told apart, in µs.
const SHORTEST_SHIFT: u32 = 7;

/// Powers of two that are told apart: up to 8.4 s.
const POWERS: u32 = 16;

/// Buckets of a histogram.
const BUCKETS: usize = (POWERS << PARTS_SHIFT) as usize;

/// Times after which all counts are halved.
const HALVED_AT: u32 = 8192;

/// Fewer times than this say nothing about the rarest of them.
const KNOWN_FROM: u32 = 100;

/// What is rare among the reads of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The time that 1% of them exceed.
    pub p99: Micros,
    /// The time that 0.1% of them exceed.
    pub p999: Micros,
}

/// The times that reads of a member took lately: counts in buckets, a quarter of a power of two wide.
#[derive(Clone, Debug)]
pub struct ReadTimes {
    counts: [u16; BUCKETS],
    total: u32,
}

impl ReadTimes {
    /// None yet.
    pub const EMPTY: Self = Self {
        counts: [0; BUCKETS],
        total: 0,
    };

    /// Adds the time of a read, waiting in queues included. Not of one that was hedged, or whose
    /// member hung: patience would grow with what it is to end.
    #[inline]
    pub fn add(&mut self, time: Micros) {
        if self.total >= HALVED_AT {
            self.halve();
        }
        if let Some(count) = self.counts.get_mut(bucket_of(time)) {
            *count = count.saturating_add(1);
            self.total = self.total.saturating_add(1);
        }
    }

    /// What is rare among them; `None` while there are fewer than a hundred.
    pub fn tail(&self) -> Option<Tail> {
        if self.total < KNOWN_FROM {
            return None;
        }
        Some(Tail {
            p99: self.exceeded_by(self.total / 100),
            p999: self.exceeded_by(self.total / 1000),
        })
    }

    /// The upper border of the bucket above which there are at most `count` times.
    fn exceeded_by(&self, count: u32) -> Micros {
        let mut above = 0;
        for (bucket, &n) in self.counts.iter().enumerate().rev() {
            above += u32::from(n);
            if above > count {
                return border(bucket + 1);
            }
        }
        border(0)
    }

    fn halve(&mut self) {
        self.counts.iter_mut().for_each(|count| *count /= 2);
        self.total = self.counts.iter().map(|&count| u32::from(count)).sum();
    }
}

/// The bucket of a time; times beyond the range are in the first and last one.
#[inline]
fn bucket_of(time: Micros) -> usize {
    let us = time.get().max(1 << SHORTEST_SHIFT);
    let power = us.ilog2();
    let part = (us >> (power - PARTS_SHIFT)) & ((1 << PARTS_SHIFT) - 1);
    let bucket = (u64::from(power - SHORTEST_SHIFT) << PARTS_SHIFT) + part;
    (bucket as usize).min(BUCKETS - 1)
}

/// The time at which a bucket begins.
#[inline]
const fn border(bucket: usize) -> Micros {
    let power = SHORTEST_SHIFT as usize + (bucket >> PARTS_SHIFT);
    let part = bucket & ((1 << PARTS_SHIFT) - 1);
    Micros((((1 << PARTS_SHIFT) + part) as u64) << (power - PARTS_SHIFT as usize))
}

/// Limits of patience.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The shortest patience.
    pub min: Micros,
    /// The longest one.
    pub max: Longest,
}

/// The longest patience.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Longest {
    /// This, or four times what 0.1% of the reads exceed if that is more: in overload a bound that
    /// many reads exceed makes it worse.
    Auto(Micros),
    /// This, whatever it does.
    Fixed(Micros),
}

impl Limits {
    /// Without other wishes: 5 to 500 ms.
    pub const DEFAULT: Self = Self {
        min: Micros(5_000),
        max: Longest::Auto(Micros(500_000)),
    };
}

impl Limits {
    /// The longest patience that was set.
    pub const fn longest(&self) -> Micros {
        match self.max {
            Longest::Auto(max) | Longest::Fixed(max) => max,
        }
    }
}

/// How long to wait for a member, given the tails of the *other* members: twice the time that 1% of
/// their reads exceed, the mean of theirs, within limits. As long as allowed while none is known.
pub fn patience(others: impl Iterator<Item = Option<Tail>>, limits: &Limits) -> Micros {
    let (mut p99, mut p999, mut known) = (0u64, 0u64, 0u64);
    for tail in others.flatten() {
        p99 = p99.saturating_add(tail.p99.get());
        p999 = p999.saturating_add(tail.p999.get());
        known += 1;
    }
    let mean = |sum: u64| sum.checked_div(known);
    let longest = match limits.max {
        Longest::Fixed(max) => max.get(),
        Longest::Auto(max) => max.get().max(mean(p999).unwrap_or(0).saturating_mul(4)),
    };
    let patience = mean(p99).map_or(longest, |p99| p99.saturating_mul(2));
    // Of contradicting limits the upper one counts.
    Micros(patience.max(limits.min.get()).min(longest))
}

/// Reads that hedges may cost, as a share of all reads: what was saved up is spent in bursts.
#[derive(Clone, Debug)]
pub struct Budget {
    percent: u32,
    /// Hundredths of reads that are left.
    hundredths: u32,
}

impl Budget {
    /// Default share.
    pub const PERCENT: u32 = 5;

    /// Most that can be saved up, in reads.
    pub const CAP: u32 = 20;

    /// A full one that gets `percent` of all reads.
    pub const fn new(percent: u32) -> Self {
        Self {
            percent,
            hundredths: Self::CAP * 100,
        }
    }

    /// The share.
    pub const fn percent(&self) -> u32 {
        self.percent
    }

    /// Changes the share.
    pub fn set_percent(&mut self, percent: u32) {
        self.percent = percent;
    }

    /// So many reads of members were sent that are no hedges.
    #[inline]
    pub fn earn(&mut self, reads: u32) {
        let more = self.percent.saturating_mul(reads);
        let more = self.hundredths.saturating_add(more);
        self.hundredths = more.min(Self::CAP * 100);
    }

    /// Takes `reads` if they are there; a hedge of more than can be saved up takes all. One against
    /// a member that is [suspect](crate::estimate::Snapshot::is_suspect) need not ask.
    #[inline]
    #[must_use]
    pub fn spend(&mut self, reads: u32) -> bool {
        match self.hundredths.checked_sub(reads.min(Self::CAP) * 100) {
            Some(left) => {
                self.hundredths = left;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1000;

    fn at_least(time: Micros, us: u64) {
        let got = time.get();
        assert!((us..=us + us / 4).contains(&got), "{got} µs for {us} µs");
    }

    #[test]
    fn buckets_cover_times_without_gaps() {
        assert_eq!(bucket_of(Micros::ZERO), 0);
        assert_eq!(bucket_of(Micros::new(u64::MAX)), BUCKETS - 1);
        for bucket in 0..BUCKETS {
            let (from, to) = (border(bucket), border(bucket + 1));
            assert!(from < to && to.get() * 4 <= from.get() * 5);
            assert_eq!(bucket_of(from), bucket);
            assert_eq!(bucket_of(Micros(to.get() - 1)), bucket);
        }
        assert_eq!(border(BUCKETS), Micros(1 << (SHORTEST_SHIFT + POWERS)));
    }

    #[test]
    fn tails_are_what_few_exceed() {
        let mut times = ReadTimes::EMPTY;
        for n in 0..99 {
            times.add(Micros::new(n * 100));
        }
        assert_eq!(times.tail(), None, "too few");
        // 1 to 1000 ms, each as often.
        for n in 0..8000 {
            times.add(Micros::new((n % 1000 + 1) * MS));
        }
        let tail = times.tail().unwrap();
        at_least(tail.p99, 990 * MS);
        at_least(tail.p999, 999 * MS);
        // One in 200 is late.
        let mut times = ReadTimes::EMPTY;
        for n in 0..4000 {
            times.add(Micros::new(if n % 200 == 0 { 400 } else { 20 } * MS));
        }
        let tail = times.tail().unwrap();
        at_least(tail.p99, 20 * MS);
        at_least(tail.p999, 400 * MS);
    }

    #[test]
    fn old_times_fade() {
        let mut times = ReadTimes::EMPTY;
        (0..HALVED_AT).for_each(|_| times.add(Micros::new(200 * MS)));
        at_least(times.tail().unwrap().p99, 200 * MS);
        // Halved seven times until they are less than a hundredth.
        (0..HALVED_AT * 4).for_each(|_| times.add(Micros::new(10 * MS)));
        at_least(times.tail().unwrap().p99, 10 * MS);
        assert!(times.total <= HALVED_AT);
    }

    fn tail(p99: u64, p999: u64) -> Option<Tail> {
        Some(Tail {
            p99: Micros::new(p99 * MS),
            p999: Micros::new(p999 * MS),
        })
    }

    #[test]
    fn patience_is_twice_what_one_in_a_hundred_of_the_others_takes() {
        let of =
            |tails: &[Option<Tail>]| patience(tails.iter().copied(), &Limits::DEFAULT).get() / MS;
        assert_eq!(of(&[tail(40, 60), tail(60, 90), None]), 100);
        assert_eq!(of(&[tail(1, 2)]), 5, "not less than the minimum");
        assert_eq!(of(&[tail(400, 100)]), 500, "nor more than the maximum");
        assert_eq!(of(&[tail(400, 200)]), 800, "but for loaded members");
        assert_eq!(of(&[tail(600, 200)]), 800);
        assert_eq!(of(&[None, None]), 500, "nothing is known");
        assert_eq!(of(&[]), 500);
        let fixed = Limits {
            min: Micros::new(5 * MS),
            max: Longest::Fixed(Micros::new(100 * MS)),
        };
        assert_eq!(
            patience([tail(400, 900)].into_iter(), &fixed).get(),
            100 * MS
        );
        let least = Limits {
            min: Micros::new(200 * MS),
            ..fixed
        };
        assert_eq!(patience([tail(1, 1)].into_iter(), &least).get(), 100 * MS);
    }

    #[test]
    fn hedges_are_a_share_of_all_reads() {
        let mut budget = Budget::new(Budget::PERCENT);
        let mut spent = 0;
        for _ in 0..10_000 {
            budget.earn(1);
            spent += if budget.spend(3) { 3 } else { 0 };
        }
        assert!((500..=520).contains(&spent), "{spent}");
        assert!(!budget.spend(3));
        budget.earn(100_000);
        assert!(budget.spend(60), "no hedge costs more than can be saved up");
        assert!(!budget.spend(1));
        budget.set_percent(0);
        budget.earn(1000);
        assert!(!budget.spend(1));
    }
}
