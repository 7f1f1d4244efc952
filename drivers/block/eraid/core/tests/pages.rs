// SPDX-License-Identifier: GPL-2.0

//! Codecs of the region map, the bad-block list and the checkpoint: round trips, torn writes, and
//! pages that are wrong in every field.

mod common;

use common::{images, is_sealed, is_zero, number, reseal, torn, Fields, Rng, Tally};
use eraid_core::badblocks::{self, BadBlocks, BadPage, BadRange, RANGES_MAX, RANGES_PER_PAGE};
use eraid_core::checkpoint::{Checkpoint, Rebuild, Scrub, ScrubKind};
use eraid_core::crc32c::reference;
use eraid_core::geometry::{Geometry, Level, Rows};
use eraid_core::layout::{Area, FrontLayout};
use eraid_core::metapage::{Page, PageError, PageId, Side, PAGE_SIZE};
use eraid_core::ppl::{Entry, Header, LogId, LogLayout, Record, Stamp, COLUMNS_MAX};
use eraid_core::regionmap::{self, Init, MapPage, Region, Regions, REGIONS_PER_PAGE};
use eraid_core::units::{
    Generation, RegionNo, Sector, Sectors, Sequence, Slot, SlotSet, StripeNo, Uuid,
};

/// Mutated images of each kind of page.
const MUTATIONS: usize = 40_000;

const ARRAY: Uuid = Uuid::new(*b"the array itself");

/// An array whose map has three pages, the last of which is not full.
struct Rig {
    geometry: Geometry,
    regions: Regions,
    per_slot: u32,
}

impl Rig {
    fn new() -> Rig {
        let front = FrontLayout::standard();
        let component = Sectors::new((2 * REGIONS_PER_PAGE as u64 + 100) << 15);
        let geometry = Geometry::new(Level::Raid5, 5, Sectors::new(128), component).unwrap();
        Rig {
            geometry,
            regions: Regions::smallest(&geometry, front.map, front.map.pages()).unwrap(),
            per_slot: badblocks::pages_per_slot(front.bad_blocks, 5),
        }
    }

    fn component(&self) -> u64 {
        self.geometry.component().get()
    }
}

/// A kind of page under test.
trait Codec {
    /// What the page holds.
    type Value: Clone + PartialEq + std::fmt::Debug;
    const NAME: &'static str;
    const MAGIC: &'static [u8; 8];

    fn random(rig: &Rig, rng: &mut Rng) -> Self::Value;
    /// Number of the page that a value belongs to.
    fn number(value: &Self::Value) -> u32;
    fn encode(value: &Self::Value, generation: Generation, page: &mut Page);
    fn decode(rig: &Rig, page: &Page, number: u32) -> Result<(Generation, Self::Value), PageError>;
    fn fields() -> Fields;
    /// An independent opinion on everything behind the header.
    fn sane_body(rig: &Rig, page: &Page, number: u32) -> bool;
}

fn encoded<C: Codec>(value: &C::Value, generation: u64) -> Box<Page> {
    let mut page = Box::new([0x55; PAGE_SIZE]);
    C::encode(value, Generation::new(generation), &mut page);
    page
}

/// The header's fields.
fn header_fields() -> Fields {
    let mut fields = Fields::new();
    fields.add(&[
        ("magic", 8),
        ("crc", 4),
        ("reserved", 4),
        ("array", 16),
        ("generation", 8),
        ("number", 4),
        ("count", 4),
        ("reserved2", 16),
    ]);
    fields
}

fn sane<C: Codec>(rig: &Rig, page: &Page, expected: u32) -> bool {
    &page[..8] == C::MAGIC
        && is_sealed(page)
        && is_zero(page, 12, 16)
        && &page[16..32] == ARRAY.bytes()
        && (1..1 << 63).contains(&number(page, 32, 8))
        && number(page, 40, 4) == u64::from(expected)
        && is_zero(page, 48, 64)
        && C::sane_body(rig, page, expected)
}

fn round_trip<C: Codec>() {
    let rig = Rig::new();
    let mut rng = Rng::for_test(C::NAME);
    for generation in 1..1000 {
        let value = C::random(&rig, &mut rng);
        let page = encoded::<C>(&value, generation);
        let read = C::decode(&rig, &page, C::number(&value));
        assert!(sane::<C>(&rig, &page, C::number(&value)));
        assert_eq!(read, Ok((Generation::new(generation), value)));
    }
}

/// A torn write of one place leaves the version in the other, or is complete.
fn tearing<C: Codec>() {
    let rig = Rig::new();
    let mut rng = Rng::for_test(C::NAME);
    for generation in 3..43 {
        let kept = C::random(&rig, &mut rng);
        let of_page = |rng: &mut Rng| loop {
            let value = C::random(&rig, rng);
            if C::number(&value) == C::number(&kept) {
                return value;
            }
        };
        let (older, newer) = (of_page(&mut rng), of_page(&mut rng));
        let decode = |page: &Page| C::decode(&rig, page, C::number(&kept)).ok();
        let other = decode(&encoded::<C>(&kept, generation)).unwrap();
        let old = match generation % 3 {
            0 => Box::new([0; PAGE_SIZE]),
            _ => encoded::<C>(&older, generation - 1),
        };
        let written = Side::of(Generation::new(generation + 1));
        for mix in torn(&old, &encoded::<C>(&newer, generation + 1)) {
            let read = decode(&mix);
            let mut sides = [Some(other.0), read.as_ref().map(|(g, _)| *g)];
            if written == Side::A {
                sides.reverse();
            }
            let believed = match Side::newest(sides[0], sides[1]).unwrap() {
                side if side == written => read.unwrap(),
                _ => other.clone(),
            };
            let complete = (Generation::new(generation + 1), newer.clone());
            assert!(believed == other || believed == complete);
            assert_eq!(believed == complete, decode(&mix) == Some(complete));
        }
    }
}

/// Whatever is changed: no panic, and exactly what the oracle calls sane is accepted.
fn mutating<C: Codec>() {
    let rig = Rig::new();
    let mut rng = Rng::for_test(C::NAME);
    let mut fields = C::fields();
    let mut tally = Tally::default();
    let mut base = (Box::new([0; PAGE_SIZE]), 0);
    for turn in 0..images(MUTATIONS) {
        if turn % 20 == 0 {
            let value = C::random(&rig, &mut rng);
            base = (
                encoded::<C>(&value, 1 + rng.below(1 << 40)),
                C::number(&value),
            );
        }
        let (mut page, expected) = base.clone();
        let names = fields.mutate(&mut page, &mut rng, turn);
        if !rng.once_in(8) {
            reseal(&mut page);
        }
        let read = C::decode(&rig, &page, expected);
        tally.images += 1;
        if !matches!(read, Err(PageError::NotOurs | PageError::Crc)) {
            tally.past_crc += 1;
        }
        let sane = sane::<C>(&rig, &page, expected);
        assert_eq!(read.is_ok(), sane, "{names:?}: {read:?}");
        if let Ok((generation, value)) = read {
            tally.accepted += 1;
            assert_eq!(encoded::<C>(&value, generation.get()), page);
        }
    }
    fields.assert_all_mutated(20);
    tally.assert_deep();
}

struct Map;

impl Codec for Map {
    type Value = (u32, Vec<Region>);
    const NAME: &'static str = "region map";
    const MAGIC: &'static [u8; 8] = b"eRAIDmp1";

    fn random(rig: &Rig, rng: &mut Rng) -> Self::Value {
        let number = rng.below(u64::from(rig.regions.pages())) as u32;
        let (_, count) = rig.regions.regions_of(number);
        let region = |rng: &mut Rng| Region {
            init: rng.pick(&[Init::None, Init::Partial, Init::Full]),
            in_flight: rng.once_in(2),
            need_sync: rng.once_in(2),
            stale: SlotSet::from_bits(rng.below(32)),
        };
        (number, (0..count).map(|_| region(rng)).collect())
    }

    fn number(value: &Self::Value) -> u32 {
        value.0
    }

    fn encode((number, regions): &Self::Value, generation: Generation, page: &mut Page) {
        let id = PageId {
            array: ARRAY,
            number: *number,
        };
        regionmap::encode(page, reference, id, generation, regions.iter().copied());
    }

    fn decode(rig: &Rig, page: &Page, number: u32) -> Result<(Generation, Self::Value), PageError> {
        let array = ARRAY;
        let id = PageId { array, number };
        let slots = rig.geometry.all_slots();
        let map = MapPage::decode(page, reference, id, &rig.regions, slots)?;
        let (_, count) = rig.regions.regions_of(number);
        let regions = (0..count).map(|entry| map.get(entry)).collect();
        Ok((map.generation(), (number, regions)))
    }

    fn fields() -> Fields {
        let mut fields = header_fields();
        for entry in 0..REGIONS_PER_PAGE {
            fields.add(&[(&format!("stale[{entry}]"), 8)]);
        }
        for entry in 0..REGIONS_PER_PAGE {
            fields.add(&[(&format!("flags[{entry}]"), 1)]);
        }
        fields
    }

    fn sane_body(rig: &Rig, page: &Page, expected: u32) -> bool {
        let regions = rig.component().div_ceil(1 << 15);
        let count = (regions - u64::from(expected) * 448).min(448) as usize;
        number(page, 44, 4) as usize == count
            && (0..448).all(|i| {
                let (stale, flags) = (number(page, 64 + 8 * i, 8), page[3648 + i]);
                if i < count {
                    stale < 32 && flags < 16 && flags % 4 != 3
                } else {
                    stale == 0 && flags == 0
                }
            })
    }
}

struct Bad;

impl Codec for Bad {
    type Value = (u32, Vec<BadRange>);
    const NAME: &'static str = "bad blocks";
    const MAGIC: &'static [u8; 8] = b"eRAIDbb1";

    fn random(rig: &Rig, rng: &mut Rng) -> Self::Value {
        let slot = Slot::new(rng.below(5) as u8).unwrap();
        let index = rng.below(u64::from(rig.per_slot)) as u32;
        let count = rng.pick(&[0, 1, 2, 100, RANGES_PER_PAGE as u64]);
        let mut next = rng.below(100);
        let mut range = || {
            let start = next + 1 + rng.below(50_000);
            let len = 1 + rng.below(1000);
            next = start + len;
            BadRange {
                start: Sector::new(start),
                len: Sectors::new(len),
            }
        };
        let ranges = (0..count).map(|_| range()).collect();
        assert!(next <= rig.component());
        (badblocks::page_number(slot, index, rig.per_slot), ranges)
    }

    fn number(value: &Self::Value) -> u32 {
        value.0
    }

    fn encode((number, ranges): &Self::Value, generation: Generation, page: &mut Page) {
        let id = PageId {
            array: ARRAY,
            number: *number,
        };
        badblocks::encode(page, reference, id, generation, ranges);
    }

    fn decode(rig: &Rig, page: &Page, number: u32) -> Result<(Generation, Self::Value), PageError> {
        let array = ARRAY;
        let component = rig.geometry.component();
        let bad = BadPage::decode(page, reference, PageId { array, number }, component)?;
        Ok((bad.generation(), (number, bad.ranges().collect())))
    }

    fn fields() -> Fields {
        let mut fields = header_fields();
        for entry in 0..RANGES_PER_PAGE {
            fields.add(&[
                (&format!("start[{entry}]"), 8),
                (&format!("len[{entry}]"), 8),
            ]);
        }
        fields
    }

    fn sane_body(rig: &Rig, page: &Page, _: u32) -> bool {
        let count = number(page, 44, 4) as usize;
        if count > 252 {
            return false;
        }
        let entry = |i: usize| {
            let at = 64 + 16 * i;
            (
                u128::from(number(page, at, 8)),
                u128::from(number(page, at + 8, 8)),
            )
        };
        let ranges: Vec<_> = (0..count).map(entry).collect();
        is_zero(page, 64 + 16 * count, PAGE_SIZE)
            && ranges
                .iter()
                .all(|(start, len)| *len > 0 && start + len <= u128::from(rig.component()))
            && ranges.windows(2).all(|w| w[0].0 + w[0].1 < w[1].0)
    }
}

struct Progress;

impl Codec for Progress {
    type Value = Checkpoint;
    const NAME: &'static str = "checkpoint";
    const MAGIC: &'static [u8; 8] = b"eRAIDcp1";

    fn random(rig: &Rig, rng: &mut Rng) -> Checkpoint {
        let done = |rng: &mut Rng| Sectors::new(rng.between(0, rig.component()));
        let rebuild = Rebuild {
            slot: Slot::new(rng.below(5) as u8).unwrap(),
            member: rng.uuid(),
            done: done(rng),
        };
        let scrub = Scrub {
            kind: rng.pick(&[ScrubKind::Check, ScrubKind::Repair]),
            done: done(rng),
            mismatches: rng.below(1000),
        };
        Checkpoint {
            rebuild: rng.once_in(2).then_some(rebuild),
            scrub: rng.once_in(2).then_some(scrub),
        }
    }

    fn number(_: &Checkpoint) -> u32 {
        0
    }

    fn encode(value: &Checkpoint, generation: Generation, page: &mut Page) {
        value.encode(page, reference, ARRAY, generation);
    }

    fn decode(rig: &Rig, page: &Page, _: u32) -> Result<(Generation, Checkpoint), PageError> {
        Checkpoint::decode(page, reference, ARRAY, 5, rig.geometry.component())
    }

    fn fields() -> Fields {
        let mut fields = header_fields();
        fields.add(&[
            ("rebuild", 4),
            ("slot", 4),
            ("member", 16),
            ("rebuild_done", 8),
            ("scrub", 4),
            ("reserved3", 4),
            ("scrub_done", 8),
            ("mismatches", 8),
            ("reserved4", 3976),
        ]);
        fields
    }

    fn sane_body(rig: &Rig, page: &Page, _: u32) -> bool {
        let component = rig.component();
        let rebuild = match number(page, 64, 4) {
            0 => is_zero(page, 64, 96),
            1 => {
                number(page, 68, 4) < 5
                    && !is_zero(page, 72, 88)
                    && number(page, 88, 8) <= component
            }
            _ => false,
        };
        let scrub = match number(page, 96, 4) {
            0 => is_zero(page, 96, 120),
            1 | 2 => is_zero(page, 100, 104) && number(page, 104, 8) <= component,
            _ => false,
        };
        number(page, 44, 4) == 0 && rebuild && scrub && is_zero(page, 120, PAGE_SIZE)
    }
}

struct Log;

impl Log {
    /// A layout with a log that is small, so that all of it is met.
    fn id(rig: &Rig, cell: u32) -> LogId<'_> {
        let area = FrontLayout::for_member(Sectors::new(64 << 11)).unwrap().ppl;
        let layout = LogLayout::new(&rig.geometry, area).unwrap();
        // A value carries no slot: that of its cell.
        let holder = Slot::new((cell % 5) as u8).unwrap();
        LogId {
            array: ARRAY,
            geometry: &rig.geometry,
            layout,
            holder,
        }
    }
}

impl Codec for Log {
    type Value = (u32, Header);
    const NAME: &'static str = "log record";
    const MAGIC: &'static [u8; 8] = b"eRAIDpl1";

    fn random(rig: &Rig, rng: &mut Rng) -> Self::Value {
        let sequence = rng.between(1, 1 << 40);
        let stamp = Stamp {
            generation: Generation::new(1),
            sequence: Sequence::new(sequence),
            oldest: Sequence::new(rng.between(1, sequence)),
            durable: Sequence::new(rng.below(sequence)),
        };
        let cell = Log::id(rig, 0).layout.cell_of(stamp.sequence);
        let holder = Log::id(rig, cell).holder;
        let lo = rng.below(128) as u32;
        let rows = Rows {
            lo,
            hi: rng.between(u64::from(lo) + 1, 128) as u32,
        };
        let mut covers = [Rows::NONE; COLUMNS_MAX];
        let whole = rng.once_in(4);
        for cover in covers.iter_mut().take(4) {
            let lo = rng.between(u64::from(rows.lo), u64::from(rows.hi) - 1) as u32;
            let hi = rng.between(u64::from(lo) + 1, u64::from(rows.hi)) as u32;
            *cover = match rng.below(4) {
                _ if whole => rows,
                0 => Rows::NONE,
                1 => rows,
                _ => Rows { lo, hi },
            };
        }
        let stripes = (rng.below(rig.geometry.stripes() - 5)..).map(StripeNo::new);
        let mut of_holder = stripes.filter(|s| rig.geometry.p_slot(*s) == Some(holder));
        let record = Record {
            stripe: of_holder.next().unwrap(),
            rows,
            covers,
            doubtful: rng.once_in(4),
        };
        let payload = record.partial_rows(&rig.geometry) > 0;
        let header = Header {
            stamp,
            entry: Entry::Write(record),
            payload_crc: if payload { rng.next() as u32 } else { 0 },
        };
        let mark = Header {
            entry: Entry::Mark,
            payload_crc: 0,
            ..header
        };
        (cell, if rng.once_in(5) { mark } else { header })
    }

    fn number(value: &Self::Value) -> u32 {
        value.0
    }

    fn encode((cell, header): &Self::Value, generation: Generation, page: &mut Page) {
        let rig = Rig::new();
        let mut header = *header;
        header.stamp.generation = generation;
        header.encode(page, reference, &Log::id(&rig, *cell));
    }

    fn decode(rig: &Rig, page: &Page, number: u32) -> Result<(Generation, Self::Value), PageError> {
        let mut header = Header::decode(page, reference, &Log::id(rig, number), number)?;
        let generation = header.stamp.generation;
        header.stamp.generation = Generation::new(1);
        Ok((generation, (number, header)))
    }

    fn fields() -> Fields {
        let mut fields = header_fields();
        fields.add(&[
            ("sequence", 8),
            ("oldest", 8),
            ("durable", 8),
            ("stripe", 8),
            ("kind", 4),
            ("payload_crc", 4),
            ("rows.lo", 4),
            ("rows.hi", 4),
        ]);
        for column in 0..63 {
            fields.add(&[
                (&format!("covers[{column}].lo"), 4),
                (&format!("covers[{column}].hi"), 4),
            ]);
        }
        fields.add(&[("reserved3", 3480)]);
        fields
    }

    fn sane_body(rig: &Rig, page: &Page, expected: u32) -> bool {
        let n32 = |at| number(page, at, 4);
        let [sequence, oldest, durable, stripe] = [64, 72, 80, 88].map(|at| number(page, at, 8));
        let rows = |at| (n32(at), n32(at + 4));
        let (lo, hi) = rows(104);
        let cells = 2 * 1024 * 2 / 136;
        let place = (1..1 << 63).contains(&sequence)
            && sequence % cells == u64::from(expected)
            && (1..=sequence).contains(&oldest)
            && durable < sequence;
        if !place || !is_zero(page, 616, PAGE_SIZE) {
            return false;
        }
        if n32(96) == 0 {
            return is_zero(page, 44, 48) && is_zero(page, 88, 616);
        }
        let covers: Vec<_> = (0..63).map(|column| rows(112 + 8 * column)).collect();
        let inside = |(from, to): &(u64, u64)| {
            (*from, *to) == (0, 0) || (*from < *to && *from >= lo && *to <= hi)
        };
        let complete = |row: u64| covers[..4].iter().all(|c| c.0 <= row && row < c.1);
        let partial = || (lo..hi).filter(|row| !complete(*row)).count() as u64;
        // md's left-symmetric layout: P of stripe 0 is on the last member.
        let holder = u64::from(expected % 5);
        (1..=2).contains(&n32(96))
            && stripe < rig.component() / 128
            && 4 - stripe % 5 == holder
            && lo < hi
            && hi <= 128
            && covers.iter().all(inside)
            && covers[4..].iter().all(|cover| *cover == (0, 0))
            && n32(44) == if n32(96) == 1 { partial() } else { 0 }
            && (n32(44) > 0 || n32(100) == 0)
    }
}

#[test]
fn log_record_round_trip() {
    round_trip::<Log>();
}

#[test]
fn log_record_torn() {
    tearing::<Log>();
}

#[test]
fn log_record_mutations() {
    mutating::<Log>();
}

#[test]
fn map_round_trip() {
    round_trip::<Map>();
}

#[test]
fn map_torn() {
    tearing::<Map>();
}

#[test]
fn map_mutations() {
    mutating::<Map>();
}

#[test]
fn bad_blocks_round_trip() {
    round_trip::<Bad>();
}

#[test]
fn bad_blocks_torn() {
    tearing::<Bad>();
}

#[test]
fn bad_blocks_mutations() {
    mutating::<Bad>();
}

#[test]
fn checkpoint_round_trip() {
    round_trip::<Progress>();
}

#[test]
fn checkpoint_torn() {
    tearing::<Progress>();
}

#[test]
fn checkpoint_mutations() {
    mutating::<Progress>();
}

/// A list over several pages comes back as it was, and only in the right order.
#[test]
fn bad_block_list_over_pages() {
    let mut list = BadBlocks::new(vec![BadRange::default(); RANGES_MAX]);
    for i in 0..600 {
        list.add(Sector::new(i * 10), Sectors::new(1 + i % 9))
            .unwrap();
    }
    let pages: Vec<Box<Page>> = (0..4)
        .map(|index| {
            let id = PageId {
                array: ARRAY,
                number: index,
            };
            let mut page = Box::new([0; PAGE_SIZE]);
            let generation = Generation::new(1);
            badblocks::encode(&mut page, reference, id, generation, list.page(index));
            page
        })
        .collect();
    let decode = |index: usize| {
        let id = PageId {
            array: ARRAY,
            number: index as u32,
        };
        BadPage::decode(&pages[index], reference, id, Sectors::new(6000)).unwrap()
    };
    let counts: Vec<usize> = (0..4).map(|i| decode(i).ranges().count()).collect();
    assert_eq!(counts, [252, 252, 96, 0]);
    let mut again = BadBlocks::new(vec![BadRange::default(); RANGES_MAX]);
    (0..4).for_each(|index| again.append(&decode(index)).unwrap());
    assert_eq!(again.ranges(), list.ranges());
    let mut twisted = BadBlocks::new(vec![BadRange::default(); RANGES_MAX]);
    twisted.append(&decode(1)).unwrap();
    assert!(twisted.append(&decode(0)).is_err());
}

/// Pages of the lists of all slots are apart and within their area, for every number of members.
#[test]
fn bad_block_pages_have_their_places() {
    for mib in [16, 1024, 1 << 20] {
        let front = FrontLayout::for_member(Sectors::new(mib << 11)).unwrap();
        for members in 2..=64u8 {
            let per_slot = badblocks::pages_per_slot(front.bad_blocks, members);
            assert!((1..=4).contains(&per_slot), "{members} members");
            let last = Slot::new(members - 1).unwrap();
            let number = badblocks::page_number(last, per_slot - 1, per_slot);
            assert_eq!(number, u32::from(members) * per_slot - 1);
            assert!(front.bad_blocks.page(Side::B, number).is_some());
        }
    }
}

#[test]
fn merging_is_pessimistic() {
    let mut rng = Rng::for_test("merge");
    let rig = Rig::new();
    let of_map = |rng: &mut Rng| Map::random(&rig, rng).1[0];
    for _ in 0..10_000 {
        let (a, b, c) = (of_map(&mut rng), of_map(&mut rng), of_map(&mut rng));
        let merged = a.merge(b);
        assert_eq!(merged, b.merge(a));
        assert_eq!(a.merge(a), a);
        assert_eq!(merged.merge(c), a.merge(b.merge(c)));
        assert_eq!(merged.need_sync, a.need_sync || b.need_sync);
        assert_eq!(merged.in_flight, a.in_flight || b.in_flight);
        assert!(a.stale.is_subset(merged.stale) && b.stale.is_subset(merged.stale));
        // Nothing that was written is forgotten, nothing is taken for right that may not be.
        if a.init != b.init {
            assert_eq!(merged.init, Init::Partial);
        }
        assert!(a.merge(Region::UNKNOWN).need_sync);
    }
}

/// Every stripe lies in exactly one region, every region in exactly one entry of one page.
#[test]
fn regions_cover_the_array() {
    let mut rng = Rng::for_test("regions");
    for _ in 0..2000 {
        let most = 1 << rng.between(16, 40);
        let size = Sectors::new(rng.between(1 << 15, most));
        let front = FrontLayout::for_member(size).unwrap();
        let chunk = Sectors::new(1 << rng.between(3, 13));
        let geometry = Geometry::new(Level::Raid1, 2, chunk, front.component(size)).unwrap();
        let regions = Regions::smallest(&geometry, front.map, front.map.pages()).unwrap();
        check_regions(&mut rng, &geometry, &regions, front.map);
        // In fewer pages: the next size with which they suffice, and no smaller one.
        let pages = rng.between(1, u64::from(front.map.pages())) as u32;
        let few = Regions::smallest(&geometry, front.map, pages).unwrap();
        assert!(few.pages() <= pages && few.shift() >= regions.shift());
        let smaller = Regions::new(&geometry, few.shift().wrapping_sub(1), front.map);
        assert!(smaller.is_none_or(|smaller| smaller.pages() > pages));
    }
}

/// The map at its full size: regions of 16 MiB as long as they fit the area, doubled from there on;
/// and of so many pages each is found where it belongs.
#[test]
fn a_map_of_all_pages() {
    let front = FrontLayout::standard();
    assert_eq!(front.map.pages(), 1024);
    let of = |mib: u64, pages| {
        let component = Sectors::new(mib << 11);
        let geometry = Geometry::new(Level::Raid6, 8, Sectors::new(128), component).unwrap();
        Regions::smallest(&geometry, front.map, pages).unwrap()
    };
    let fits = 1024 * REGIONS_PER_PAGE as u64 * 16;
    for (mib, pages, shift, used) in [
        (16, 1024, 15, 1),
        (fits, 1024, 15, 1024),
        (fits + 1, 1024, 16, 513),
        (4 * fits, 1024, 17, 1024),
        (20_000_000, 1, 27, 1),
        (20_000_000, 16, 23, 11),
        (20_000_000, 1024, 17, 698),
    ] {
        let regions = of(mib, pages);
        assert_eq!(
            (regions.shift(), regions.pages()),
            (shift, used),
            "{mib} MiB"
        );
    }
    let regions = of(fits, 1024);
    let slots = SlotSet::first_n(8);
    let mut page = Box::new([0; PAGE_SIZE]);
    for number in [0, 1, 700, 1023] {
        let array = ARRAY;
        let id = PageId { array, number };
        let (_, count) = regions.regions_of(number);
        let all = std::iter::repeat_n(Region::CLEAN, count);
        regionmap::encode(&mut page, reference, id, Generation::new(1), all);
        assert!(MapPage::decode(&page, reference, id, &regions, slots).is_ok());
        let number = number ^ 1;
        let other = PageId { array, number };
        let misplaced = MapPage::decode(&page, reference, other, &regions, slots);
        assert_eq!(misplaced.err(), Some(PageError::Misplaced));
    }
}

fn check_regions(rng: &mut Rng, geometry: &Geometry, regions: &Regions, map: Area) {
    let shift = regions.shift();
    assert!(regions.pages() <= map.pages());
    // The smallest that fits.
    assert!(shift == 15 || Regions::new(geometry, shift - 1, map).is_none());
    let last = region_no(regions.count() - 1);
    assert_eq!(regions.stripes_of(last).1.get(), geometry.stripes());
    assert_eq!(regions.page_of(last).0 + 1, regions.pages());
    for _ in 0..20 {
        let region = region_no(rng.below(regions.count()));
        let (from, to) = regions.stripes_of(region);
        assert!(from < to);
        assert_eq!(regions.region_of(from), region);
        assert_eq!(regions.region_of(stripe(to.get() - 1)), region);
        if region != last {
            assert_eq!(regions.region_of(to).get(), region.get() + 1);
            let rows = (to.get() - from.get()) * u64::from(geometry.chunk());
            assert_eq!(rows, 1 << shift);
        }
        let (page, entry) = regions.page_of(region);
        let (first, count) = regions.regions_of(page);
        assert_eq!(first.get() + entry as u64, region.get());
        assert!(entry < count);
    }
    let behind = regions.stripes_of(region_no(regions.count()));
    assert_eq!(behind.0, behind.1);
    assert_eq!(regions.regions_of(regions.pages()).1, 0);
}

fn region_no(number: u64) -> RegionNo {
    RegionNo::new(number)
}

fn stripe(number: u64) -> StripeNo {
    StripeNo::new(number)
}

#[test]
fn pages_of_the_map_take_turns() {
    let regions = Rig::new().regions;
    assert_eq!(regions.pages(), 3);
    let page = |region: RegionNo| regions.page_of(region).0;
    // Pages 0 and 2 are always behind.
    let behind = |region: RegionNo| page(region) != 1 && region.get() % 100 == 7;
    assert_eq!(regions.page_in_turn(0, behind), Some(2));
    assert_eq!(regions.page_in_turn(2, behind), Some(0));
    assert_eq!(regions.page_in_turn(1, behind), Some(2));
    // The last region of the last page is looked at, and nothing behind it.
    let last = regions.count() - 1;
    assert_eq!(
        regions.page_in_turn(2, |region| region.get() == last),
        Some(2)
    );
    assert_eq!(regions.page_in_turn(2, |region| region.get() > last), None);
    assert_eq!(regions.page_in_turn(7, |region| page(region) == 1), Some(1));
}
