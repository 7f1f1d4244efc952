// SPDX-License-Identifier: GPL-2.0

//! Region map: what is known of each region of the array, and its pages on the disk.
//!
//! A region is a range of stripes, the same rows on every member. Its size is a power of two.
//! Each member holds the whole map.

use crate::crc32c::Crc32c;
use crate::geometry::Geometry;
use crate::layout::Area;
use crate::metapage::{seal, Kind, Page, PageError, PageId, RawHeader, BODY_SIZE};
use crate::units::{Generation, RegionNo, SlotSet, StripeNo};
use zerocopy::little_endian::U64;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// log2 of the smallest region in sectors of a member: 16 MiB. More than any chunk.
pub const REGION_SHIFT_MIN: u8 = 15;

/// log2 of the largest region in sectors that is believed: 4 TiB.
pub const REGION_SHIFT_MAX: u8 = 33;

/// Regions in a page of the map.
pub const REGIONS_PER_PAGE: usize = 448;

/// What of a region was ever written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Init {
    /// Nothing: its content and its parity are undefined.
    #[default]
    None,
    /// Some stripes: these have right parity, the others undefined one.
    Partial,
    /// Everything: all parity is right.
    Full,
}

/// What is known of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// What was ever written.
    pub init: Init,
    /// Writes may be on their way, so that members may disagree after a crash.
    pub in_flight: bool,
    /// Members may disagree: nothing may be computed from others until the resync was here.
    pub need_sync: bool,
    /// The slots that missed writes to it.
    pub stale: SlotSet,
}

impl Region {
    /// A region of a new array.
    pub const NEW: Region = Region::of(Init::None, false);

    /// A region of an array whose parity the administrator vouches for.
    pub const CLEAN: Region = Region::of(Init::Full, false);

    /// What is assumed where every copy of the map is unreadable.
    pub const UNKNOWN: Region = Region::of(Init::Partial, true);

    /// A region that nobody missed writes to.
    const fn of(init: Init, need_sync: bool) -> Region {
        Region {
            init,
            in_flight: false,
            need_sync,
            stale: SlotSet::EMPTY,
        }
    }

    /// What holds where a resync has computed parity from the data, or made the copies equal.
    #[inline]
    #[must_use]
    pub const fn resynced(self) -> Region {
        Region {
            init: match self.init {
                Init::Partial => Init::Full,
                init => init,
            },
            need_sync: false,
            ..self
        }
    }

    /// The most pessimistic of what two copies of the map say.
    ///
    /// Where they differ in what was written, some was and some may not have been.
    #[inline]
    #[must_use]
    pub fn merge(self, other: Region) -> Region {
        Region {
            init: if self.init == other.init {
                self.init
            } else {
                Init::Partial
            },
            in_flight: self.in_flight || other.in_flight,
            need_sync: self.need_sync || other.need_sync,
            stale: self.stale.union(other.stale),
        }
    }

    /// The byte of flags on the disk.
    #[inline]
    const fn flags(self) -> u8 {
        let init = match self.init {
            Init::None => 0,
            Init::Partial => 1,
            Init::Full => 2,
        };
        init | ((self.in_flight as u8) << 2) | ((self.need_sync as u8) << 3)
    }

    /// The region of what is on the disk, if that can ever have been written.
    #[inline]
    const fn from_disk(flags: u8, stale: u64) -> Option<Region> {
        let init = match flags & 3 {
            0 => Init::None,
            1 => Init::Partial,
            2 => Init::Full,
            _ => return None,
        };
        let region = Region {
            init,
            in_flight: flags & (1 << 2) != 0,
            need_sync: flags & (1 << 3) != 0,
            stale: SlotSet::from_bits(stale),
        };
        // Also catches the four unused bits.
        if region.flags() == flags {
            Some(region)
        } else {
            None
        }
    }
}

/// How an array is divided into regions. Every value of this type is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regions {
    /// log2 of a region in sectors of a member.
    shift: u8,
    /// log2 of a region in stripes.
    stripe_shift: u32,
    /// Stripes of the array.
    stripes: u64,
    /// Regions of the array, at least 1.
    count: u64,
}

impl Regions {
    /// The region of an array of one stripe.
    pub(crate) const ONE: Regions = Regions {
        shift: REGION_SHIFT_MIN,
        stripe_shift: 12,
        stripes: 1,
        count: 1,
    };

    /// Regions of 2^`shift` sectors of each member; `None` where that is no valid size or the
    /// map has no room for so many.
    pub fn new(geometry: &Geometry, shift: u8, map: Area) -> Option<Regions> {
        if !(REGION_SHIFT_MIN..=REGION_SHIFT_MAX).contains(&shift) {
            return None;
        }
        let chunk_shift = geometry.chunk().trailing_zeros();
        let stripe_shift = u32::from(shift).checked_sub(chunk_shift)?;
        let stripes = geometry.stripes();
        let count = (stripes.checked_sub(1)? >> stripe_shift).checked_add(1)?;
        let room = u64::from(map.pages()).checked_mul(REGIONS_PER_PAGE as u64)?;
        (count <= room).then_some(Regions {
            shift,
            stripe_shift,
            stripes,
            count,
        })
    }

    /// The smallest regions that the map has room for in its first `pages` pages.
    ///
    /// More pages mean smaller regions: less to resync after a crash, and more writes that have to
    /// wait until their region is marked; Documentation/design/metadata.rst has the numbers.
    pub fn smallest(geometry: &Geometry, map: Area, pages: u32) -> Option<Regions> {
        (REGION_SHIFT_MIN..=REGION_SHIFT_MAX)
            .filter_map(|shift| Regions::new(geometry, shift, map))
            .find(|regions| regions.pages() <= pages)
    }

    /// log2 of the size of a region in sectors of a member.
    #[inline]
    pub const fn shift(&self) -> u8 {
        self.shift
    }

    /// How many regions there are, at least 1.
    #[inline]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The region of a stripe.
    #[inline]
    pub const fn region_of(&self, stripe: StripeNo) -> RegionNo {
        RegionNo(stripe.0 >> self.stripe_shift)
    }

    /// The first stripe of a region and the one behind its last; none behind the last region.
    #[inline]
    pub fn stripes_of(&self, region: RegionNo) -> (StripeNo, StripeNo) {
        if region.0 >= self.count {
            return (StripeNo(self.stripes), StripeNo(self.stripes));
        }
        let first = region.0 << self.stripe_shift;
        let behind = first.saturating_add(1 << self.stripe_shift);
        (StripeNo(first), StripeNo(behind.min(self.stripes)))
    }

    /// How many pages of the map are in use, at least 1.
    #[inline]
    pub const fn pages(&self) -> u32 {
        // At most the pages of the area, which are counted in 32 bits.
        ((self.count.saturating_sub(1)) / REGIONS_PER_PAGE as u64 + 1) as u32
    }

    /// Number of the page that holds a region, and its entry there.
    #[inline]
    pub const fn page_of(&self, region: RegionNo) -> (u32, usize) {
        let per_page = REGIONS_PER_PAGE as u64;
        // As in `pages`; the entry is less than REGIONS_PER_PAGE.
        ((region.0 / per_page) as u32, (region.0 % per_page) as usize)
    }

    /// The first region of a page and how many the page holds; none behind the last page.
    #[inline]
    pub fn regions_of(&self, page: u32) -> (RegionNo, usize) {
        let first = u64::from(page) * REGIONS_PER_PAGE as u64;
        let left = self.count.saturating_sub(first);
        // Bounded by what a page holds.
        let held = left.min(REGIONS_PER_PAGE as u64) as usize;
        (RegionNo(first), held)
    }

    /// The next page in turn after page `last` that has a region for which `behind` says so.
    ///
    /// Pages take turns, so that one which is always behind keeps no other from being written.
    pub fn page_in_turn(&self, last: u32, behind: impl Fn(RegionNo) -> bool) -> Option<u32> {
        let pages = self.pages();
        let first = last.saturating_add(1).min(pages);
        let mut turn = (first..pages).chain(0..first);
        turn.find(|page| {
            let (start, count) = self.regions_of(*page);
            (0..count as u64).any(|entry| behind(RegionNo(start.0 + entry)))
        })
    }
}

/// A page of the map on the disk.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawMapPage {
    header: RawHeader,
    stale: [U64; REGIONS_PER_PAGE],
    flags: [u8; REGIONS_PER_PAGE],
}

const _: () = assert!(REGIONS_PER_PAGE * 9 == BODY_SIZE);

/// Writes a page of the map.
///
/// `regions` are those of this page from the first on, see [`Regions::regions_of`]; more than
/// [`REGIONS_PER_PAGE`] are ignored.
pub fn encode(
    page: &mut Page,
    crc: Crc32c,
    id: PageId,
    generation: Generation,
    regions: impl IntoIterator<Item = Region>,
) {
    page.fill(0);
    let raw: &mut RawMapPage = zerocopy::transmute_mut!(page);
    let entries = raw.stale.iter_mut().zip(raw.flags.iter_mut());
    let mut count = 0;
    for ((stale, flags), region) in entries.zip(regions) {
        *stale = U64::new(region.stale.bits());
        *flags = region.flags();
        count += 1;
    }
    raw.header = RawHeader::new(Kind::RegionMap, id, generation, count);
    seal(page, crc);
}

/// A valid page of the map.
#[derive(Clone, Copy)]
pub struct MapPage<'a> {
    raw: &'a RawMapPage,
    generation: Generation,
}

impl<'a> MapPage<'a> {
    /// Checks a page of the map of an array with `regions` and these slots.
    ///
    /// # Errors
    ///
    /// Why the page is not believed; [`Region::UNKNOWN`] holds for its regions then, unless another
    /// copy is valid.
    pub fn decode(
        page: &'a Page,
        crc: Crc32c,
        id: PageId,
        regions: &Regions,
        slots: SlotSet,
    ) -> Result<MapPage<'a>, PageError> {
        let raw: &RawMapPage = zerocopy::transmute_ref!(page);
        let generation = raw.header.check(Kind::RegionMap, id, page, crc)?;
        let map = MapPage { raw, generation };
        let (_, count) = regions.regions_of(id.number);
        if usize::try_from(raw.header.count()) != Ok(count) || count == 0 {
            return Err(PageError::Nonsense("has a wrong number of regions"));
        }
        for entry in 0..REGIONS_PER_PAGE {
            let region = map
                .entry(entry)
                .filter(|r| r.stale.is_subset(slots))
                .ok_or(PageError::Nonsense("has an impossible state of a region"))?;
            if entry >= count && region != Region::NEW {
                return Err(PageError::Nonsense("has regions behind the last one"));
            }
        }
        Ok(map)
    }

    /// Which version of the page this is.
    #[inline]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// The region of an entry, or [`Region::UNKNOWN`] behind the last entry of a page.
    #[inline]
    pub fn get(&self, entry: usize) -> Region {
        self.entry(entry).unwrap_or(Region::UNKNOWN)
    }

    /// The region of an entry, if there is one and it is possible.
    #[inline]
    fn entry(&self, entry: usize) -> Option<Region> {
        let flags = self.raw.flags.get(entry)?;
        let stale = self.raw.stale.get(entry)?;
        Region::from_disk(*flags, stale.get())
    }
}
