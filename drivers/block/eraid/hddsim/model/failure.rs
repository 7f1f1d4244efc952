// SPDX-License-Identifier: GPL-2.0

//! Which sectors of a read fail, from a seed.

use crate::hash::{below, hash};
use crate::units::Block;
use core::num::{NonZeroU32, NonZeroU64};

/// Denominator of the probability.
pub const PPM: u32 = 1_000_000;

/// How failures of one block at different times are related.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailMode {
    /// Each read draws anew, as with vibration.
    Independent,
    /// A bad block stays bad until it is written, as with a bad spot or a bad write.
    Persistent,
}

/// The law by which blocks fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failures {
    /// The drive's seed.
    pub seed: u64,
    /// Probability that a block fails, in millionths.
    pub ppm: u32,
    /// See [`FailMode`].
    pub mode: FailMode,
    /// So many blocks in a row, from a multiple of that number on, share a draw.
    pub burst: NonZeroU32,
}

/// The blocks of a read that fail at the first attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bad {
    /// How many.
    pub count: u32,
    /// The first one, counted from the start of the read; nothing if there is none.
    pub first: u32,
}

impl Failures {
    /// Whether a block fails; `read` numbers the reads of the drive.
    #[inline]
    fn fails(&self, read: u64, block: u64) -> bool {
        let read = match self.mode {
            FailMode::Independent => read,
            FailMode::Persistent => 0,
        };
        let draw = hash(&[
            self.seed,
            FAILURE,
            read,
            block / NonZeroU64::from(self.burst),
        ]);
        below(draw, PPM) < self.ppm
    }

    /// What fails of `blocks` blocks from `first` on in the read number `read`.
    ///
    /// `rewritten` tells whether a block was written since these failures are in force.
    pub fn of_read(
        &self,
        read: u64,
        first: Block,
        blocks: u32,
        mut rewritten: impl FnMut(Block) -> bool,
    ) -> Bad {
        let mut bad = Bad::default();
        if self.ppm == 0 {
            return bad;
        }
        for index in 0..blocks {
            let block = first.plus(u64::from(index));
            if !self.fails(read, block.0) {
                continue;
            }
            if self.mode == FailMode::Independent || !rewritten(block) {
                if bad.count == 0 {
                    bad.first = index;
                }
                bad.count += 1;
            }
        }
        bad
    }
}

/// Keeps these hashes apart from others of the same seed.
const FAILURE: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn law(mode: FailMode, burst: u32) -> Failures {
        Failures {
            seed: 11,
            ppm: 20_000,
            mode,
            burst: NonZeroU32::new(burst).unwrap(),
        }
    }

    fn bad_blocks(law: &Failures, read: u64) -> Vec<u64> {
        let one = |block: &u64| law.of_read(read, Block(*block), 1, |_| false).count == 1;
        (0..100_000).filter(one).collect()
    }

    #[test]
    fn as_many_fail_as_asked_for() {
        for burst in [1, 4, 16] {
            for mode in [FailMode::Independent, FailMode::Persistent] {
                let count = bad_blocks(&law(mode, burst), 3).len();
                // 2000; the standard deviation is 44 * sqrt(burst).
                assert!(
                    (1_300..=2_700).contains(&count),
                    "{mode:?} {burst}: {count}"
                );
            }
        }
    }

    #[test]
    fn modes_differ_in_the_next_read() {
        let independent = law(FailMode::Independent, 1);
        assert_eq!(bad_blocks(&independent, 1), bad_blocks(&independent, 1));
        let both = bad_blocks(&independent, 2);
        let again = bad_blocks(&independent, 1)
            .iter()
            .filter(|b| both.contains(b))
            .count();
        assert!(
            (10..=80).contains(&again),
            "2% of 2% of 100,000 is 40, not {again}"
        );
        let persistent = law(FailMode::Persistent, 1);
        assert_eq!(bad_blocks(&persistent, 1), bad_blocks(&persistent, 2));
    }

    #[test]
    fn bursts_are_whole() {
        let bad = bad_blocks(&law(FailMode::Persistent, 4), 0);
        assert!(bad
            .chunks(4)
            .all(|run| run[0] % 4 == 0 && run[3] == run[0] + 3));
    }

    #[test]
    fn first_and_count_are_of_the_read() {
        let law = law(FailMode::Persistent, 1);
        let bad = bad_blocks(&law, 0);
        let (a, b) = (bad[10], bad[11]);
        let blocks = (b - a + 6) as u32;
        let found = law.of_read(0, Block(a - 3), blocks, |_| false);
        assert_eq!(found, Bad { count: 2, first: 3 });
        let found = law.of_read(0, Block(a - 3), blocks, |block| block.0 == a);
        let first = (b - a + 3) as u32;
        assert_eq!(found, Bad { count: 1, first });
    }
}
