// SPDX-License-Identifier: GPL-2.0

//! Bad blocks: ranges of a member that hold nothing of use, in memory and on the disk.
//!
//! Every member carries the lists of all slots, because a member that fails writes cannot record
//! its own.

use crate::crc32c::Crc32c;
use crate::layout::Area;
use crate::metapage::{seal, Kind, Page, PageError, PageId, RawHeader, BODY_SIZE};
use crate::units::{Generation, Sector, Sectors, Slot};
use zerocopy::little_endian::U64;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Ranges in a page of the list.
pub const RANGES_PER_PAGE: usize = 252;

/// Most pages that the list of a slot has.
pub const PAGES_PER_SLOT_MAX: u32 = 4;

/// Most ranges of a slot.
pub const RANGES_MAX: usize = RANGES_PER_PAGE * PAGES_PER_SLOT_MAX as usize;

/// A range of bad sectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BadRange {
    /// The first sector, counted from where the data of the member starts.
    pub start: Sector,
    /// How many sectors, at least 1.
    pub len: Sectors,
}

impl BadRange {
    /// The sector behind the last one.
    #[inline]
    pub const fn end(&self) -> Sector {
        Sector(self.start.0.saturating_add(self.len.0))
    }
}

/// The list is full, so the member cannot stay in the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListFull;

/// The bad blocks of a slot, sorted and apart, in storage of the caller.
#[derive(Clone, Debug, Default)]
pub struct BadBlocks<S> {
    ranges: S,
    len: usize,
}

impl<S: AsRef<[BadRange]> + AsMut<[BadRange]>> BadBlocks<S> {
    /// An empty list with room for as many ranges as `storage` has.
    pub fn new(storage: S) -> BadBlocks<S> {
        BadBlocks {
            ranges: storage,
            len: 0,
        }
    }

    /// The ranges, lowest first; no two touch.
    #[inline]
    pub fn ranges(&self) -> &[BadRange] {
        self.ranges.as_ref().get(..self.len).unwrap_or(&[])
    }

    /// Whether any of `len` sectors from `start` on is bad.
    #[inline]
    pub fn overlaps(&self, start: Sector, len: Sectors) -> bool {
        if len == Sectors::ZERO {
            return false;
        }
        let end = Sector(start.0.saturating_add(len.0));
        let first = self.ranges().partition_point(|range| range.end() <= start);
        self.ranges()
            .get(first)
            .is_some_and(|range| range.start < end)
    }

    /// Adds `len` sectors from `start` on.
    ///
    /// # Errors
    ///
    /// [`ListFull`], with the list as it was.
    pub fn add(&mut self, start: Sector, len: Sectors) -> Result<(), ListFull> {
        if len == Sectors::ZERO {
            return Ok(());
        }
        // The ranges that overlap or touch the new one become one with it.
        let end = Sector(start.0.saturating_add(len.0));
        let first = self.ranges().partition_point(|range| range.end() < start);
        let behind = self.ranges().partition_point(|range| range.start <= end);
        let mut merged = BadRange { start, len };
        if let Some(touched) = self.ranges().get(first..behind) {
            let lo = touched
                .first()
                .map_or(start, |range| range.start.min(start));
            let hi = touched.last().map_or(end, |range| range.end().max(end));
            merged = BadRange {
                start: lo,
                len: Sectors(hi.0.saturating_sub(lo.0)),
            };
        }
        self.replace(first, behind, &[merged])
    }

    /// Takes out `len` sectors from `start` on: they were rewritten.
    ///
    /// # Errors
    ///
    /// [`ListFull`], with the list as it was, where a range would be cut in two.
    pub fn remove(&mut self, start: Sector, len: Sectors) -> Result<(), ListFull> {
        if len == Sectors::ZERO {
            return Ok(());
        }
        let end = Sector(start.0.saturating_add(len.0));
        let first = self.ranges().partition_point(|range| range.end() <= start);
        let behind = self.ranges().partition_point(|range| range.start < end);
        let Some(cut) = self
            .ranges()
            .get(first..behind)
            .filter(|cut| !cut.is_empty())
        else {
            return Ok(());
        };
        let between = |start: Sector, end: Sector| BadRange {
            start,
            len: Sectors(end.0.saturating_sub(start.0)),
        };
        let head = cut.first().map(|range| between(range.start, start));
        let tail = cut.last().map(|range| between(end, range.end()));
        let kept = [head, tail].map(|range| range.filter(|range| range.len > Sectors::ZERO));
        match kept {
            [Some(head), Some(tail)] => self.replace(first, behind, &[head, tail]),
            [Some(one), None] | [None, Some(one)] => self.replace(first, behind, &[one]),
            [None, None] => self.replace(first, behind, &[]),
        }
    }

    /// Puts `new` in the place of the ranges from `first` to before `behind`.
    fn replace(&mut self, first: usize, behind: usize, new: &[BadRange]) -> Result<(), ListFull> {
        let removed = behind.saturating_sub(first);
        let len = self.len.saturating_sub(removed).saturating_add(new.len());
        let old_len = self.len;
        let storage = self.ranges.as_mut();
        if len > storage.len() {
            return Err(ListFull);
        }
        let used = storage.get_mut(..len.max(old_len)).ok_or(ListFull)?;
        let moved = used.get_mut(first..).ok_or(ListFull)?;
        // Rotation moves the tail within what is used, in either direction.
        if new.len() >= removed {
            moved.rotate_right(new.len() - removed);
        } else {
            moved.rotate_left(removed - new.len());
        }
        for (to, from) in moved.iter_mut().zip(new) {
            *to = *from;
        }
        self.len = len;
        Ok(())
    }

    /// Appends the ranges of a page that was read, in the order of the pages.
    ///
    /// # Errors
    ///
    /// `Nonsense` where they do not follow what is there already or do not fit.
    pub fn append(&mut self, page: &BadPage<'_>) -> Result<(), PageError> {
        for range in page.ranges() {
            let apart = self
                .ranges()
                .last()
                .is_none_or(|last| last.end() < range.start);
            if !apart || self.add(range.start, range.len).is_err() {
                return Err(PageError::Nonsense("has ranges that do not follow"));
            }
        }
        Ok(())
    }

    /// The ranges that go into page `index` of the list, 0 being the first one.
    pub fn page(&self, index: u32) -> &[BadRange] {
        let pages = self.ranges().chunks(RANGES_PER_PAGE);
        usize::try_from(index)
            .ok()
            .and_then(|index| pages.clone().nth(index))
            .unwrap_or(&[])
    }
}

/// How many pages the list of each slot has, of an array with so many members: at most
/// [`PAGES_PER_SLOT_MAX`].
pub const fn pages_per_slot(area: Area, members: u8) -> u32 {
    // Members are never 0; the division has to be told.
    let members = if members == 0 { 1 } else { members as u32 };
    let pages = area.pages() / members;
    if pages > PAGES_PER_SLOT_MAX {
        PAGES_PER_SLOT_MAX
    } else {
        pages
    }
}

/// Number of the page with part `index` of the list of `slot`, where lists have `per_slot` pages.
#[inline]
pub const fn page_number(slot: Slot, index: u32, per_slot: u32) -> u32 {
    (slot.get() as u32)
        .saturating_mul(per_slot)
        .saturating_add(index)
}

/// A range on the disk.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRange {
    start: U64,
    len: U64,
}

/// A page of the list on the disk.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawBadPage {
    header: RawHeader,
    ranges: [RawRange; RANGES_PER_PAGE],
}

const _: () = assert!(RANGES_PER_PAGE * size_of::<RawRange>() == BODY_SIZE);

impl RawRange {
    fn get(&self) -> BadRange {
        BadRange {
            start: Sector(self.start.get()),
            len: Sectors(self.len.get()),
        }
    }
}

/// Writes a page of the list: `ranges` are those of [`BadBlocks::page`], more than
/// [`RANGES_PER_PAGE`] are ignored.
pub fn encode(
    page: &mut Page,
    crc: Crc32c,
    id: PageId,
    generation: Generation,
    ranges: &[BadRange],
) {
    page.fill(0);
    let raw: &mut RawBadPage = zerocopy::transmute_mut!(page);
    let mut count = 0;
    for (to, from) in raw.ranges.iter_mut().zip(ranges) {
        to.start.set(from.start.get());
        to.len.set(from.len.get());
        count += 1;
    }
    raw.header = RawHeader::new(Kind::BadBlocks, id, generation, count);
    seal(page, crc);
}

/// A valid page of the list.
#[derive(Clone, Copy)]
pub struct BadPage<'a> {
    raw: &'a RawBadPage,
    generation: Generation,
}

impl<'a> BadPage<'a> {
    /// Checks a page of the list of a member with `component` of data.
    ///
    /// # Errors
    ///
    /// Why the page is not believed.
    pub fn decode(
        page: &'a Page,
        crc: Crc32c,
        id: PageId,
        component: Sectors,
    ) -> Result<BadPage<'a>, PageError> {
        let raw: &RawBadPage = zerocopy::transmute_ref!(page);
        let generation = raw.header.check(Kind::BadBlocks, id, page, crc)?;
        let count = usize::try_from(raw.header.count())
            .ok()
            .filter(|count| *count <= RANGES_PER_PAGE)
            .ok_or(PageError::Nonsense("has too many ranges"))?;
        let mut behind = None;
        for (i, range) in raw.ranges.iter().map(RawRange::get).enumerate() {
            if i >= count {
                if range != BadRange::default() {
                    return Err(PageError::Nonsense("has ranges behind the last one"));
                }
                continue;
            }
            let end = range.start.checked_add(range.len);
            if range.len == Sectors::ZERO || end.is_none_or(|end| end.get() > component.get()) {
                return Err(PageError::Nonsense("has an impossible range"));
            }
            if behind.is_some_and(|behind| range.start <= behind) {
                return Err(PageError::Nonsense("has ranges that do not follow"));
            }
            behind = end;
        }
        Ok(BadPage { raw, generation })
    }

    /// Which version of the page this is.
    #[inline]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// The ranges, lowest first; no two touch.
    pub fn ranges(&self) -> impl Iterator<Item = BadRange> + 'a {
        let raw = self.raw;
        // Decoding has checked that these are the first ones of the page.
        let count = usize::try_from(raw.header.count()).unwrap_or(0);
        raw.ranges.iter().take(count).map(RawRange::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type List = BadBlocks<[BadRange; 8]>;

    fn list() -> List {
        List::new([BadRange::default(); 8])
    }

    fn pairs(list: &List) -> Vec<(u64, u64)> {
        let pair = |range: &BadRange| (range.start.0, range.end().0);
        list.ranges().iter().map(pair).collect()
    }

    #[test]
    fn touching_ranges_become_one() {
        let mut list = list();
        for (start, len) in [(10, 5), (30, 5), (20, 5), (15, 5), (100, 1), (36, 1)] {
            list.add(Sector(start), Sectors(len)).unwrap();
        }
        assert_eq!(pairs(&list), [(10, 25), (30, 35), (36, 37), (100, 101)]);
        list.add(Sector(0), Sectors(40)).unwrap();
        assert_eq!(pairs(&list), [(0, 40), (100, 101)]);
    }

    #[test]
    fn a_full_list_stays_as_it_is() {
        let mut list = list();
        for i in 0..8 {
            list.add(Sector(i * 10), Sectors(5)).unwrap();
        }
        let before = pairs(&list);
        assert_eq!(list.add(Sector(1000), Sectors(1)), Err(ListFull));
        assert_eq!(list.remove(Sector(12), Sectors(1)), Err(ListFull));
        assert_eq!(pairs(&list), before);
        // Joining two makes room.
        list.add(Sector(5), Sectors(5)).unwrap();
        list.add(Sector(1000), Sectors(1)).unwrap();
        assert_eq!(list.ranges().len(), 8);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        /// Against a plain array of flags.
        #[test]
        fn as_a_set_of_sectors(
            ops in prop::collection::vec((any::<bool>(), 0u64..60, 0u64..12), 1..40),
        ) {
            let mut list = list();
            let mut model = [false; 80];
            for (add, start, len) in ops {
                let (at, sectors) = (Sector(start), Sectors(len));
                let done = if add { list.add(at, sectors) } else { list.remove(at, sectors) };
                if done.is_ok() {
                    model[start as usize..(start + len) as usize].fill(add);
                }
                let expected: Vec<u64> = (0..80).filter(|i| model[*i as usize]).collect();
                let held: Vec<u64> = pairs(&list).iter().flat_map(|(lo, hi)| *lo..*hi).collect();
                prop_assert_eq!(held, expected);
                prop_assert!(pairs(&list).windows(2).all(|w| w[0].1 < w[1].0));
                for start in 0..70 {
                    let touched = (start..start + 3).any(|i| model[i as usize]);
                    prop_assert_eq!(list.overlaps(Sector(start), Sectors(3)), touched);
                }
                prop_assert!(!list.overlaps(Sector(start), Sectors(0)));
            }
        }
    }
}
