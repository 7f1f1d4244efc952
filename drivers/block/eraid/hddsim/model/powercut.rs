// SPDX-License-Identifier: GPL-2.0

//! What a loss of power leaves of the writes that were not durable yet.

use crate::hash::{below, hash};

/// One loss of power of one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerCut {
    /// The seed that the user gave for this one.
    pub seed: u64,
    /// The drive's seed, so that drives that lose power together keep different writes.
    pub drive: u64,
}

/// What becomes of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// All of it is on the medium.
    Kept,
    /// Nothing of it is.
    Lost,
    /// Some of its sectors are.
    Torn,
}

impl PowerCut {
    /// The fate of the write number `write`: 3 of 8 are kept, 3 lost, 2 torn.
    pub fn fate(&self, write: u64) -> Fate {
        match below(hash(&[self.seed, self.drive, CUT, write]), 8) {
            0..=2 => Fate::Kept,
            3..=5 => Fate::Lost,
            _ => Fate::Torn,
        }
    }

    /// Whether a sector last written by the write number `write` has what that wrote.
    pub fn keeps(&self, write: u64, sector: u64) -> bool {
        match self.fate(write) {
            Fate::Kept => true,
            Fate::Lost => false,
            Fate::Torn => hash(&[self.seed, self.drive, CUT, write, sector]) & 1 == 1,
        }
    }
}

/// Keeps these hashes apart from others of the same seed.
const CUT: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_fates_happen_and_torn_writes_are_torn() {
        let cut = PowerCut { seed: 3, drive: 4 };
        let mut counts = [0; 3];
        for write in 0..8000 {
            let kept = (0..64).filter(|sector| cut.keeps(write, *sector)).count();
            let (index, range) = match cut.fate(write) {
                Fate::Kept => (0, 64..=64),
                Fate::Lost => (1, 0..=0),
                Fate::Torn => (2, 1..=63),
            };
            counts[index] += 1;
            assert!(range.contains(&kept), "{kept}");
        }
        assert!(
            (2800..3200).contains(&counts[0]) && (2800..3200).contains(&counts[1]),
            "{counts:?}"
        );
    }

    #[test]
    fn another_cut_or_drive_has_other_fates() {
        let fates = |seed, drive| -> Vec<Fate> {
            (0..64)
                .map(|write| PowerCut { seed, drive }.fate(write))
                .collect()
        };
        assert_eq!(fates(1, 2), fates(1, 2));
        assert_ne!(fates(1, 2), fates(2, 2));
        assert_ne!(fates(1, 2), fates(1, 3));
    }
}
