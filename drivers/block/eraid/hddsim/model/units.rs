// SPDX-License-Identifier: GPL-2.0

//! Units of the model: nanoseconds, 512-byte sectors, and 4 KiB blocks of the medium.

use core::ops::{Add, AddAssign};

/// Bytes in a sector of the interface; the block layer counts in these.
pub const SECTOR_SIZE: u32 = 512;

/// Bytes in a block, the drive's physical sector: what it reads, writes and fails as a whole.
pub const BLOCK_SIZE: u32 = 4096;

/// Sectors in a block.
pub const SECTORS_PER_BLOCK: u32 = BLOCK_SIZE / SECTOR_SIZE;

/// A point in time, of the monotonic clock, or a duration. Saturates instead of overflowing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time, or the start of the clock.
    pub const ZERO: Self = Self(0);

    /// So many microseconds.
    #[inline]
    pub const fn from_micros(us: u64) -> Self {
        Self(us.saturating_mul(1000))
    }

    /// So many milliseconds.
    #[inline]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// The time from `earlier` to this; nothing if it is not earlier.
    #[inline]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// `percent` hundredths of this duration.
    #[inline]
    pub const fn percent(self, percent: u64) -> Self {
        Self(self.0.saturating_mul(percent) / 100)
    }

    /// `n` times this duration.
    #[inline]
    pub const fn times(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
}

impl Add for Nanos {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Number of a block of the medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Block(pub u64);

impl Block {
    /// The block `n` further on.
    #[inline]
    pub const fn plus(self, n: u64) -> Self {
        Self(self.0.saturating_add(n))
    }

    /// The block `n` before, or the first one.
    #[inline]
    pub const fn minus(self, n: u64) -> Self {
        Self(self.0.saturating_sub(n))
    }
}

/// Some sectors in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// The first sector.
    pub sector: u64,
    /// How many.
    pub sectors: u32,
}

impl Extent {
    /// The block that the first sector lies in.
    #[inline]
    pub const fn first_block(self) -> Block {
        Block(self.sector / SECTORS_PER_BLOCK as u64)
    }

    /// The block behind the last one that has sectors of the extent.
    #[inline]
    pub const fn end_block(self) -> Block {
        Block(self.end().div_ceil(SECTORS_PER_BLOCK as u64))
    }

    /// The number of blocks that have sectors of the extent.
    #[inline]
    pub const fn blocks(self) -> u64 {
        self.end_block().0.saturating_sub(self.first_block().0)
    }

    /// The sector behind the last one.
    #[inline]
    pub const fn end(self) -> u64 {
        self.sector.saturating_add(self.sectors as u64)
    }

    /// Whether it starts and ends at boundaries of blocks.
    #[inline]
    pub const fn is_whole_blocks(self) -> bool {
        self.sector % SECTORS_PER_BLOCK as u64 == 0 && self.sectors % SECTORS_PER_BLOCK == 0
    }

    /// Whether all of `other` lies in this extent.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.sector <= other.sector && other.end() <= self.end()
    }
}
