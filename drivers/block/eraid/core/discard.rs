// SPDX-License-Identifier: GPL-2.0

//! Which regions a discard gives back.
//!
//! Only a region as a whole can go back to [`Init::None`](crate::regionmap::Init::None). Regions may
//! be larger than the largest request, and requests need not end where regions do, so a region of
//! which the requests in a row discarded all counts, too: the part of it that was discarded so far
//! is remembered, for one region at a time, until something is written there.
//!
//! RAID-0 has no map: of it whole stripes are discarded ([`whole_stripes`]).

use core::ops::Range;

use crate::geometry::{Geometry, Level};
use crate::regionmap::Regions;
use crate::units::{RegionNo, Sector, Sectors, StripeNo};

/// The largest granularity that limits can express and the block layer rounds right: 2 GiB.
const GRANULARITY_MAX: u32 = 1 << 31;

/// The beginning of a region that was discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Begun {
    region: RegionNo,
    /// Where the discarded part ends.
    end: Sector,
}

/// Discards of an array so far, as far as they matter for the next one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Discards {
    begun: Option<Begun>,
}

impl Discards {
    /// A discard of `len` sectors from `start` on: the regions, by number, that are now discarded
    /// as a whole.
    pub fn add(
        &mut self,
        regions: &Regions,
        geometry: &Geometry,
        start: Sector,
        len: Sectors,
    ) -> Range<u64> {
        let end = start.0.saturating_add(len.0).min(geometry.capacity().0);
        let from = match self.begun {
            Some(begun) if begun.end == start => data_of(regions, geometry, begun.region).start,
            _ => start.0,
        };
        let first = region_at(regions, geometry, from);
        let first = match data_of(regions, geometry, RegionNo(first)).start < from {
            true => first.saturating_add(1),
            false => first,
        };
        let behind = match end >= geometry.capacity().0 {
            true => regions.count(),
            false => region_at(regions, geometry, end),
        };
        let rest = data_of(regions, geometry, RegionNo(behind));
        let begins = first <= behind && rest.start < end;
        self.begun = begins.then_some(Begun {
            region: RegionNo(behind),
            end: Sector(end),
        });
        first..behind.max(first)
    }

    /// The region that was discarded in part.
    #[inline]
    pub fn begun(&self) -> Option<RegionNo> {
        self.begun.map(|begun| begun.region)
    }

    /// Something is written to a region.
    #[inline]
    pub fn wrote(&mut self, region: RegionNo) {
        if self.begun.is_some_and(|begun| begun.region == region) {
            self.begun = None;
        }
    }
}

/// The region of a sector; the number of regions behind the end.
fn region_at(regions: &Regions, geometry: &Geometry, at: u64) -> u64 {
    geometry
        .locate(Sector(at))
        .map_or(regions.count(), |at| regions.region_of(at.stripe).0)
}

/// The sectors of the array that a region holds; none behind the last region.
fn data_of(regions: &Regions, geometry: &Geometry, region: RegionNo) -> Range<u64> {
    let (first, behind) = regions.stripes_of(region);
    let at = |stripe: u64| stripe.saturating_mul(geometry.stripe_data().0);
    at(first.0)..at(behind.0)
}

/// The stripes that lie wholly within `len` sectors from `start` on.
pub fn whole_stripes(geometry: &Geometry, start: Sector, len: Sectors) -> Range<StripeNo> {
    let data = geometry.stripe_data().0.max(1);
    let end = start.0.saturating_add(len.0).min(geometry.capacity().0) / data;
    let first = start.0.div_ceil(data);
    StripeNo(first)..StripeNo(end.max(first))
}

/// The unit in which discards take effect, in bytes: the data of a region (RAID-0: of a stripe),
/// rounded up to a power of two and to what limits can express.
pub fn granularity(regions: &Regions, geometry: &Geometry) -> u32 {
    let data = match geometry.level() {
        Level::Raid0 => 0..geometry.stripe_data().0,
        _ => data_of(regions, geometry, RegionNo::ZERO),
    };
    let bytes = data.end.saturating_sub(data.start).saturating_mul(512);
    let rounded = u32::try_from(bytes)
        .ok()
        .and_then(u32::checked_next_power_of_two);
    rounded.map_or(GRANULARITY_MAX, |bytes| bytes.min(GRANULARITY_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::FrontLayout;
    use crate::regionmap::REGION_SHIFT_MIN;

    const MIB: u64 = 2048;
    /// Data of a region: 16 MiB of each of three members.
    const REGION: u64 = 48 * MIB;

    /// A RAID-5 of four members with `component` MiB each, in regions of 16 MiB.
    fn array(component: u64) -> (Regions, Geometry) {
        let component = Sectors(component * MIB);
        let geometry = Geometry::new(Level::Raid5, 4, Sectors(128), component).unwrap();
        let map = FrontLayout::standard().map;
        let regions = Regions::new(&geometry, REGION_SHIFT_MIN, map).unwrap();
        (regions, geometry)
    }

    #[test]
    fn whole_regions_only() {
        let (regions, geometry) = array(4 * 16);
        let add = |start, len| {
            let mut discards = Discards::default();
            discards.add(&regions, &geometry, Sector(start), Sectors(len))
        };
        assert_eq!(add(0, 4 * REGION), 0..4);
        assert_eq!(add(0, REGION), 0..1);
        assert_eq!(add(REGION, 2 * REGION), 1..3);
        assert!(add(0, REGION - 1).is_empty());
        assert!(add(1, REGION).is_empty());
        assert_eq!(add(1, 2 * REGION), 1..2);
        assert_eq!(add(1, 4 * REGION - 1), 1..4);
        assert!(add(REGION + 1, 2).is_empty());
        assert!(add(0, 0).is_empty());
        assert_eq!(add(0, u64::MAX), 0..4);
    }

    #[test]
    fn whole_stripes_of_raid0() {
        let geometry = Geometry::new(Level::Raid0, 3, Sectors(128), Sectors(1280)).unwrap();
        let whole = |start, len| {
            let stripes = whole_stripes(&geometry, Sector(start), Sectors(len));
            (stripes.start.0, stripes.end.0)
        };
        assert_eq!(whole(0, 3840), (0, 10));
        assert_eq!(whole(0, u64::MAX), (0, 10));
        assert_eq!(whole(1, 3839), (1, 10));
        assert_eq!(whole(384, 384), (1, 2));
        assert_eq!(whole(384, 383), (1, 1));
        assert_eq!(whole(385, 700), (2, 2));
    }

    #[test]
    fn the_last_region_may_be_shorter() {
        let (regions, geometry) = array(20);
        let mut discards = Discards::default();
        assert_eq!(geometry.capacity().0, 60 * MIB);
        let got = discards.add(&regions, &geometry, Sector(REGION), Sectors(12 * MIB));
        assert_eq!(got, 1..2);
        let got = discards.add(&regions, &geometry, Sector(REGION), Sectors(12 * MIB - 1));
        assert!(got.is_empty());
    }

    #[test]
    fn requests_in_a_row_add_up() {
        let (regions, geometry) = array(4 * 16);
        for step in [7 * MIB, 48 * MIB, 50 * MIB, 100 * MIB] {
            let (mut discards, mut at, mut next) = (Discards::default(), 0, 0);
            while at < 4 * REGION {
                let got = discards.add(&regions, &geometry, Sector(at), Sectors(step));
                if !got.is_empty() {
                    assert_eq!(got.start, next, "each region once, step {step}");
                    next = got.end;
                }
                at += step;
                assert_eq!(next, (at / REGION).min(4), "as soon as it is whole");
            }
        }
    }

    #[test]
    fn a_gap_or_a_write_in_between_counts() {
        let (regions, geometry) = array(4 * 16);
        let half = Sectors(REGION / 2);
        let mut discards = Discards::default();
        let add = |discards: &mut Discards, at| discards.add(&regions, &geometry, Sector(at), half);
        assert!(add(&mut discards, 0).is_empty());
        assert!(add(&mut discards, REGION / 2 + 1).is_empty(), "a gap");
        assert!(add(&mut discards, 0).is_empty());
        discards.wrote(RegionNo(1));
        assert_eq!(add(&mut discards, REGION / 2), 0..1, "written elsewhere");
        assert!(add(&mut discards, 0).is_empty());
        discards.wrote(RegionNo(0));
        assert!(add(&mut discards, REGION / 2).is_empty(), "written there");
        // What begins in the middle of a region is not its beginning.
        assert!(add(&mut discards, REGION + REGION / 4).is_empty());
        assert!(add(&mut discards, REGION + 3 * REGION / 4).is_empty());
    }

    #[test]
    fn granularity_is_a_power_of_two_not_below_a_region() {
        let (regions, geometry) = array(64);
        assert_eq!(granularity(&regions, &geometry), 64 << 20);
        let component = Sectors(1 << 36);
        let geometry = Geometry::new(Level::Raid5, 4, Sectors(128), component).unwrap();
        let regions = Regions::new(&geometry, 33, FrontLayout::standard().map).unwrap();
        assert_eq!(granularity(&regions, &geometry), GRANULARITY_MAX);
    }
}
