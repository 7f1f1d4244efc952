// SPDX-License-Identifier: GPL-2.0

//! Layout of a member's front: where its metadata lies and where its data starts.

use crate::geometry::CAPACITY_MAX;
use crate::metapage::{Side, PAGE_SIZE};
use crate::refusal::{Errno, Refusal};
use crate::refuse;
use crate::units::{Sector, Sectors, SECTOR_SHIFT};

/// Sectors in a KiB.
const KIB: u64 = 1024 >> SECTOR_SHIFT;

/// Sectors in a MiB.
const MIB: u64 = 1024 * KIB;

/// Sectors in a GiB.
const GIB: u64 = 1024 * MIB;

/// Sectors in a metadata page and in a superblock.
pub const PAGE_SECTORS: Sectors = Sectors((PAGE_SIZE >> SECTOR_SHIFT) as u64);

/// Where data may start, and what a component is rounded down to.
pub const DATA_ALIGN: Sectors = Sectors(MIB);

/// What is left free at the end of a member at least, so that a slightly smaller spare fits.
pub const TAIL_MIN: Sectors = Sectors(MIB);

/// Smallest member.
pub const MEMBER_MIN: Sectors = Sectors(16 * MIB);

/// Farthest start of the data that is believed.
const FRONT_MAX: Sector = Sector(64 * GIB);

/// Where the superblocks lie: fixed, because all else is found through them.
///
/// The boot sectors before A are left alone. The two are far enough apart that one torn physical
/// sector, or one bad track, cannot hit both.
pub const fn superblock(side: Side) -> Sector {
    match side {
        Side::A => Sector(64 * KIB),
        Side::B => Sector(MIB),
    }
}

/// A part of the front, in two halves: one for each [`Side`] of its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Where it starts.
    pub start: Sector,
    /// How long it is, both halves together.
    pub len: Sectors,
}

impl Area {
    /// The area of `len` KiB from `start` KiB on.
    const fn kib(start: u64, len: u64) -> Area {
        Area {
            start: Sector(start * KIB),
            len: Sectors(len * KIB),
        }
    }

    /// Where the area ends; what overflows ends nowhere that is valid.
    const fn end(&self) -> Sector {
        Sector(self.start.0.saturating_add(self.len.0))
    }

    /// Pages in each half. Fits, for the areas of a valid layout.
    #[inline]
    pub const fn pages(&self) -> u32 {
        let pages = self.len.0 / (2 * PAGE_SECTORS.0);
        if pages > u32::MAX as u64 {
            u32::MAX
        } else {
            pages as u32
        }
    }

    /// Where the page of this number lies on one of its sides, or `None` behind the last page.
    #[inline]
    pub fn page(&self, side: Side, number: u32) -> Option<Sector> {
        if number >= self.pages() {
            return None;
        }
        let half = match side {
            Side::A => 0,
            Side::B => self.len.0 / 2,
        };
        let offset = half.checked_add(u64::from(number).checked_mul(PAGE_SECTORS.0)?)?;
        self.start.checked_add(Sectors(offset))
    }
}

/// Where everything lies on a member; the same on all members of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrontLayout {
    /// Bad-block lists of all slots.
    pub bad_blocks: Area,
    /// Region map.
    pub map: Area,
    /// Progress of recovery and scrub.
    pub checkpoint: Area,
    /// Partial parity log; not in halves, see [`ppl`](crate::ppl). Not written by the driver yet.
    pub ppl: Area,
    /// Where the data starts.
    pub data: Sector,
}

impl FrontLayout {
    /// The layout for members of 4 GiB and more: data from 128 MiB on.
    pub const fn standard() -> FrontLayout {
        FrontLayout {
            bad_blocks: Area::kib(2 * 1024, 2 * 1024),
            map: Area::kib(4 * 1024, 8 * 1024),
            checkpoint: Area::kib(12 * 1024, 4 * 1024),
            ppl: Area::kib(16 * 1024, 64 * 1024),
            data: Sector(128 * MIB),
        }
    }

    /// A layout for small members: data from `data` KiB on.
    const fn small(data: u64) -> FrontLayout {
        FrontLayout {
            bad_blocks: Area::kib(1088, 512),
            map: Area::kib(1600, 256),
            checkpoint: Area::kib(1856, 192),
            ppl: Area::kib(2048, data - 2048),
            data: Sector(data * KIB),
        }
    }

    /// The layout for an array whose smallest member has `size`.
    ///
    /// # Errors
    ///
    /// `ENOSPC` below [`MEMBER_MIN`], `EFBIG` above [`CAPACITY_MAX`].
    pub fn for_member(size: Sectors) -> Result<FrontLayout, Refusal> {
        if size < MEMBER_MIN {
            return Err(refuse!(
                Errno::NoSpc,
                "a member has {size} sectors, it needs at least {MEMBER_MIN} (16 MiB)"
            ));
        }
        if size > CAPACITY_MAX {
            return Err(refuse!(
                Errno::FBig,
                "a member has {size} sectors, more than {CAPACITY_MAX}"
            ));
        }
        Ok(if size.0 < 256 * MIB {
            FrontLayout::small(4 * 1024)
        } else if size.0 < 4 * GIB {
            FrontLayout::small(16 * 1024)
        } else {
            FrontLayout::standard()
        })
    }

    /// What a member of `size` has for data; nothing where it is too small.
    ///
    /// At least [`TAIL_MIN`] stays free and the rest is rounded down to [`DATA_ALIGN`].
    pub const fn component(&self, size: Sectors) -> Sectors {
        let room = size
            .saturating_sub(Sectors(self.data.0))
            .saturating_sub(TAIL_MIN);
        Sectors(room.0 - room.0 % DATA_ALIGN.0)
    }

    /// How large a member has to be for `component` of data; the tail may be missing on a spare.
    pub const fn size_for(&self, component: Sectors) -> Sectors {
        Sectors(self.data.0.saturating_add(component.0))
    }

    /// Checks a layout that was read: everything in its order, aligned, apart, of some use.
    ///
    /// # Errors
    ///
    /// What is wrong, in words.
    pub fn validate(&self) -> Result<(), &'static str> {
        let paged = [self.bad_blocks, self.map, self.checkpoint];
        let halves = 2 * PAGE_SECTORS.0;
        if paged.iter().any(|a| a.len.0 == 0 || a.len.0 % halves != 0) {
            return Err("a metadata area is not two halves of whole pages");
        }
        let starts = [self.bad_blocks, self.map, self.checkpoint, self.ppl];
        if starts.iter().any(|a| a.start.0 % PAGE_SECTORS.0 != 0) || self.ppl.len.0 % halves != 0 {
            return Err("a metadata area is not aligned");
        }
        let mut behind = Sector(superblock(Side::B).0 + PAGE_SECTORS.0);
        for area in &starts {
            if area.start < behind {
                return Err("metadata areas overlap");
            }
            behind = area.end();
        }
        if self.data < behind {
            return Err("metadata overlaps the data");
        }
        if self.data > FRONT_MAX || self.data.0 % DATA_ALIGN.0 != 0 {
            return Err("the data starts at an impossible place");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layouts() -> Vec<(FrontLayout, Sectors)> {
        [16, 17, 64, 255, 256, 512, 1024, 4095, 4096, 8192, 16 << 20]
            .map(|mib| Sectors(mib * MIB))
            .map(|size| (FrontLayout::for_member(size).unwrap(), size))
            .to_vec()
    }

    #[test]
    fn own_layouts_are_valid() {
        for (layout, size) in layouts() {
            assert_eq!(layout.validate(), Ok(()), "{size}");
            let component = layout.component(size);
            assert!(component.0 >= 2 * MIB && component.0 % MIB == 0);
            assert!(layout.size_for(component).0 + TAIL_MIN.0 <= size.0);
            // One page of bad blocks for each slot at least.
            assert!(layout.bad_blocks.pages() >= 64);
        }
        assert_eq!(
            FrontLayout::standard().component(Sectors(MIB)),
            Sectors::ZERO
        );
    }

    #[test]
    fn small_members_keep_most_of_their_room() {
        for (layout, size) in layouts() {
            assert!(layout.data.0 * 4 <= size.0, "{size}");
        }
    }

    #[test]
    fn sizes_are_bounded() {
        let errno = |size| FrontLayout::for_member(Sectors(size)).map_err(|e| e.errno);
        assert_eq!(errno(16 * MIB - 1), Err(Errno::NoSpc));
        assert_eq!(errno(u64::MAX), Err(Errno::FBig));
    }

    #[test]
    fn pages_lie_within_their_area_and_apart() {
        for (layout, _) in layouts() {
            for area in [layout.bad_blocks, layout.map, layout.checkpoint] {
                let mut places: Vec<u64> = Side::BOTH
                    .iter()
                    .flat_map(|side| (0..area.pages()).map(|n| area.page(*side, n).unwrap().0))
                    .collect();
                places.sort_unstable();
                assert!(places.windows(2).all(|w| w[1] - w[0] >= 8));
                assert!(places[0] >= area.start.0);
                assert!(places.last().unwrap() + 8 <= area.end().0);
                assert_eq!(area.page(Side::A, area.pages()), None);
            }
        }
    }

    #[test]
    fn nonsense_is_found() {
        type Change = fn(&mut FrontLayout);
        let changes: [Change; 9] = [
            |l| l.bad_blocks.start = superblock(Side::B),
            |l| l.bad_blocks.len = Sectors(u64::MAX - 15),
            |l| l.map.start.0 += 1,
            |l| l.map.len = Sectors::ZERO,
            |l| l.map.start = l.checkpoint.start,
            |l| l.checkpoint.len.0 += 8,
            |l| l.ppl.len = Sectors(1 << 63),
            |l| l.data.0 += 8,
            |l| l.data = Sector(!(MIB - 1)),
        ];
        for (i, change) in changes.iter().enumerate() {
            let mut layout = FrontLayout::standard();
            change(&mut layout);
            assert!(layout.validate().is_err(), "change {i}");
        }
    }
}
