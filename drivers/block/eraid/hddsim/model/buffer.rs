// SPDX-License-Identifier: GPL-2.0

//! The track buffer: what the drive has read, and reads on, around the last read.
//!
//! There is one run of blocks. It grows while the head stays on its track and reads on, up to a
//! limit; any other use of the mechanics ends it.

use crate::geometry::Geometry;
use crate::units::{Block, Nanos};

/// A run of blocks in the buffer that still grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The first block.
    pub start: Block,
    /// What lies before this was delivered, and so is known to be good.
    pub delivered: Block,
    /// The head stops before this one.
    pub limit: Block,
    /// At this time ...
    pub anchor: Nanos,
    /// ... this had passed, in media time.
    pub media: Nanos,
}

impl Buffer {
    /// The first block that is not in the buffer yet.
    pub fn reached(&self, geometry: &Geometry, now: Nanos) -> Block {
        let media = self.media + now.since(self.anchor);
        geometry.block_at(media).clamp(self.start, self.limit)
    }

    /// When what lies before media time `end` has been read.
    #[inline]
    pub fn passed(&self, end: Nanos) -> Nanos {
        self.anchor + end.since(self.media)
    }

    /// Whether the blocks from `first` up to `end` are in the buffer, or will be without a movement.
    #[inline]
    pub fn holds(&self, first: Block, end: Block) -> bool {
        self.start <= first && end <= self.limit
    }

    /// Blocks up to `end` were delivered, so the drive reads on up to `limit`.
    ///
    /// A head that had stopped starts again when its place comes round.
    pub fn extend(&mut self, geometry: &Geometry, now: Nanos, end: Block, limit: Block) {
        self.delivered = self.delivered.max(end);
        if self.reached(geometry, now) == self.limit && limit > self.limit {
            self.media = geometry.place(self.limit).media;
            self.anchor = now + geometry.wait(now, self.media);
        }
        self.limit = self.limit.max(limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Params;

    #[test]
    fn buffer_grows_with_the_spindle_and_stops() {
        let geometry = Geometry::new(&Params::DEFAULT);
        let place = geometry.place(Block(5000));
        let mut buffer = Buffer {
            start: Block(4990),
            delivered: Block(5000),
            limit: Block(5500),
            anchor: Nanos(1_000_000_000),
            media: place.media,
        };
        let at = |ms: u64| Nanos(1_000_000_000 + ms * 1_000_000);
        assert_eq!(buffer.reached(&geometry, at(0)), Block(5000));
        // 35.2 blocks a millisecond.
        assert!((5034..=5036).contains(&buffer.reached(&geometry, at(1)).0));
        assert_eq!(buffer.reached(&geometry, at(100)), Block(5500));
        assert!(buffer.holds(Block(4990), Block(5500)) && !buffer.holds(Block(4990), Block(5501)));
        assert!(!buffer.holds(Block(4989), Block(4991)));
        assert_eq!(
            buffer.passed(geometry.media_end(Block(5000), 1)),
            at(0) + place.length
        );
        buffer.extend(&geometry, at(100), Block(5100), Block(6000));
        assert_eq!((buffer.delivered, buffer.limit), (Block(5100), Block(6000)));
        // It had stopped, and goes on within a turn.
        let reached = buffer.reached(&geometry, at(109));
        assert!(
            Block(5500) < reached && reached < Block(5900),
            "{reached:?}"
        );
    }
}
