// SPDX-License-Identifier: GPL-2.0

//! Metadata pages: what the pages of the region map, bad-block list and checkpoint share.
//!
//! A page is 4 KiB with a header of 64 bytes. Every page has two places on a member, one in each
//! half of its area, and is written to them in turn, so that a torn write leaves the version
//! before it intact. The generation of the page says which place it belongs to.

use crate::crc32c::{checksum_around, Crc32c};
use crate::units::{Generation, Uuid};
use core::mem::offset_of;
use zerocopy::little_endian::{U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes in a metadata page, and in a superblock.
pub const PAGE_SIZE: usize = 4096;

/// Bytes of a page behind its header.
pub(crate) const BODY_SIZE: usize = PAGE_SIZE - size_of::<RawHeader>();

/// A page as it lies on the disk.
pub type Page = [u8; PAGE_SIZE];

/// Greatest generation that is believed. No array lives long enough to reach it, and none starts close
/// to it; see [`check_generation`](crate::assembly::check_generation).
pub(crate) const GENERATION_MAX: u64 = i64::MAX as u64;

/// One of the two places of a superblock or of a metadata page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first place.
    A,
    /// The second place.
    B,
}

impl Side {
    /// Both places.
    pub const BOTH: [Side; 2] = [Side::A, Side::B];

    /// The other place.
    #[inline]
    #[must_use]
    pub const fn other(self) -> Side {
        match self {
            Side::A => Side::B,
            Side::B => Side::A,
        }
    }

    /// Where the version `generation` of a metadata page belongs.
    ///
    /// Not for superblocks: these go where the newer one of the member is not.
    #[inline]
    pub const fn of(generation: Generation) -> Side {
        if generation.get() % 2 == 0 {
            Side::A
        } else {
            Side::B
        }
    }

    /// Which of two copies to believe, given the generation of those that are valid.
    #[inline]
    pub fn newest(a: Option<Generation>, b: Option<Generation>) -> Option<Side> {
        match (a, b) {
            (None, None) => None,
            (a, b) if a >= b => Some(Side::A),
            _ => Some(Side::B),
        }
    }
}

/// The kinds of metadata pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    BadBlocks,
    RegionMap,
    Checkpoint,
    LogRecord,
}

impl Kind {
    /// First bytes of a page of this kind.
    const fn magic(self) -> [u8; 8] {
        match self {
            Kind::BadBlocks => *b"eRAIDbb1",
            Kind::RegionMap => *b"eRAIDmp1",
            Kind::Checkpoint => *b"eRAIDcp1",
            Kind::LogRecord => *b"eRAIDpl1",
        }
    }
}

/// Why a metadata page is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageError {
    /// No page of the expected kind is there.
    NotOurs,
    /// The checksum is wrong: torn or rotten.
    Crc,
    /// It belongs to another array.
    Foreign,
    /// It belongs to another place.
    Misplaced,
    /// A field has a value which is never written.
    Nonsense(&'static str),
}

impl PageError {
    /// What is wrong, to go behind the name of the page.
    pub const fn as_str(self) -> &'static str {
        match self {
            PageError::NotOurs => "was never written",
            PageError::Crc => "has a wrong checksum",
            PageError::Foreign => "belongs to another array",
            PageError::Misplaced => "belongs to another place",
            PageError::Nonsense(what) => what,
        }
    }
}

/// Identity of a metadata page: what its header has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageId {
    /// The array.
    pub array: Uuid,
    /// Number of the page within its half of the area.
    pub number: u32,
}

/// The header on the disk.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawHeader {
    magic: [u8; 8],
    crc: U32,
    reserved: U32,
    array: [u8; 16],
    generation: U64,
    number: U32,
    count: U32,
    reserved2: [u8; 16],
}

const _: () = assert!(size_of::<RawHeader>() == 64);

/// Offset of the checksum in a page.
const CRC_AT: usize = offset_of!(RawHeader, crc);

impl RawHeader {
    /// The header of a page that is not sealed yet.
    pub(crate) fn new(kind: Kind, id: PageId, generation: Generation, count: u32) -> RawHeader {
        RawHeader {
            magic: kind.magic(),
            crc: U32::ZERO,
            reserved: U32::ZERO,
            array: *id.array.bytes(),
            generation: U64::new(generation.get()),
            number: U32::new(id.number),
            count: U32::new(count),
            reserved2: [0; 16],
        }
    }

    /// Checks everything but `count` and returns the generation.
    pub(crate) fn check(
        &self,
        kind: Kind,
        id: PageId,
        page: &Page,
        crc: Crc32c,
    ) -> Result<Generation, PageError> {
        if self.magic != kind.magic() {
            return Err(PageError::NotOurs);
        }
        if self.crc.get() != checksum_around(crc, page, CRC_AT) {
            return Err(PageError::Crc);
        }
        if self.array != *id.array.bytes() {
            return Err(PageError::Foreign);
        }
        if self.number.get() != id.number {
            return Err(PageError::Misplaced);
        }
        if self.reserved.get() != 0 || self.reserved2 != [0; 16] {
            return Err(PageError::Nonsense("has reserved fields in use"));
        }
        match self.generation.get() {
            generation @ 1..=GENERATION_MAX => Ok(Generation::new(generation)),
            _ => Err(PageError::Nonsense("has an impossible generation")),
        }
    }

    /// Entries in use, in pages that have such.
    pub(crate) fn count(&self) -> u32 {
        self.count.get()
    }
}

/// Puts the checksum into a complete page.
pub(crate) fn seal(page: &mut Page, crc: Crc32c) {
    let sum = checksum_around(crc, page, CRC_AT);
    if let Some(field) = page.get_mut(CRC_AT..CRC_AT + size_of::<u32>()) {
        field.copy_from_slice(&sum.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_side() {
        let g = |n| Some(Generation::new(n));
        assert_eq!(Side::newest(None, None), None);
        assert_eq!(Side::newest(g(1), None), Some(Side::A));
        assert_eq!(Side::newest(None, g(1)), Some(Side::B));
        assert_eq!(Side::newest(g(2), g(3)), Some(Side::B));
        assert_eq!(Side::newest(g(4), g(3)), Some(Side::A));
        assert_eq!(
            Side::of(Generation::new(4)),
            Side::of(Generation::new(5)).other()
        );
    }
}
