// SPDX-License-Identifier: GPL-2.0

//! Ranges on the members for a read that spans several stripes: one command for each member.

use crate::geometry::Piece;
use crate::units::Sector;

/// A contiguous range of one member, counted from where its data starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First sector.
    pub at: Sector,
    /// Length in sectors; 0 for a member that is not read.
    pub len: u32,
}

impl Span {
    /// A member that is not read.
    pub const EMPTY: Span = Span {
        at: Sector::new(0),
        len: 0,
    };

    /// Extends the range so that it covers sectors `at` to before `at + len`, which lie behind all
    /// it covers; the gap between is read too.
    ///
    /// `false`, and no change, when the gap would exceed `gap_max` sectors or the whole `len_max`.
    /// The gap of one parity chunk costs less than a second command: the head passes it anyway.
    #[inline]
    #[must_use]
    pub fn extend(&mut self, at: Sector, len: u32, gap_max: u32, len_max: u32) -> bool {
        if self.len == 0 {
            if len > len_max {
                return false;
            }
            *self = Span { at, len };
            return true;
        }
        let end = self.at.get().saturating_add(u64::from(self.len));
        let Some(gap) = at.get().checked_sub(end) else {
            return false;
        };
        let total = u64::from(self.len)
            .saturating_add(gap)
            .saturating_add(u64::from(len));
        if gap > u64::from(gap_max) || total > u64::from(len_max) {
            return false;
        }
        // At most len_max, which is a u32.
        self.len = total as u32;
        true
    }

    /// Where `piece` starts within the range, in sectors; `None` when it does not lie within.
    #[inline]
    pub fn offset_of(&self, piece: &Piece) -> Option<u32> {
        let offset = piece.at.get().checked_sub(self.at.get())?;
        let end = offset.checked_add(u64::from(piece.len))?;
        // At most the length, which is a u32.
        (end <= u64::from(self.len)).then_some(offset as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{Geometry, Level};
    use crate::units::Sectors;

    #[test]
    fn reads_through_a_parity_chunk_and_no_further() {
        let mut span = Span::EMPTY;
        assert!(span.extend(Sector::new(16), 16, 16, 512));
        assert!(
            span.extend(Sector::new(48), 16, 16, 512),
            "one chunk of gap"
        );
        assert_eq!(
            span,
            Span {
                at: Sector::new(16),
                len: 48
            }
        );
        assert!(
            !span.extend(Sector::new(96), 16, 16, 512),
            "two chunks of gap"
        );
        assert!(!span.extend(Sector::new(64), 512, 16, 512), "too long");
        assert!(!span.extend(Sector::new(20), 16, 16, 512), "backwards");
        assert_eq!(span.len, 48);
    }

    #[test]
    fn one_command_for_each_member_of_ten_chunks_on_six() {
        // 80 KiB of 8 KiB chunks: five data columns in two rows, one command a member.
        let geometry =
            Geometry::new(Level::Raid5, 6, Sectors::new(16), Sectors::new(1 << 16)).expect("valid");
        for first in 0..30u64 {
            let mut spans = [Span::EMPTY; 6];
            let start = Sector::new(first * 16);
            for piece in geometry.pieces(start, Sectors::new(160)) {
                let span = &mut spans[piece.slot.index()];
                assert!(span.extend(piece.at, piece.len, 16, 512));
                let at = span.offset_of(&piece).expect("just added");
                assert_eq!(span.at.get() + u64::from(at), piece.at.get());
            }
            let read: u32 = spans.iter().map(|span| span.len).sum();
            assert!(spans.iter().all(|span| span.len <= 48));
            assert!((160..=192).contains(&read), "start {first}: {read} sectors");
        }
    }
}
