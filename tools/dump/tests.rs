// SPDX-License-Identifier: GPL-2.0

//! Images of a member, right and wrong, and what is said of them.

use crate::member::examine;
use crate::open;
use crate::report::Report;
use eraid_core::badblocks::{self, BadRange};
use eraid_core::checkpoint::{Checkpoint, Rebuild, Scrub, ScrubKind};
use eraid_core::crc32c::reference;
use eraid_core::geometry::{Geometry, Level};
use eraid_core::layout::{superblock, FrontLayout};
use eraid_core::metapage::{Page, PageId, Side, PAGE_SIZE};
use eraid_core::regionmap::{self, Init, Region, Regions, REGIONS_PER_PAGE};
use eraid_core::superblock::{ArrayName, Policy, SlotRecord, SlotState, Superblock};
use eraid_core::units::{Generation, Sector, Sectors, Slot, SlotSet, Uuid};
use eraid_tools::rng::Rng;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const SIZE: Sectors = Sectors::new(20 << 30 >> 9);

/// Where the pages of the image lie.
#[derive(Clone, Copy, Debug)]
enum Area {
    Map,
    BadBlocks,
    Checkpoint,
}

/// An image of member 1 of a RAID-5 of three, just as `create` leaves it; the file is sparse.
struct Image {
    path: PathBuf,
    superblock: Superblock,
}

impl Image {
    fn new(name: &str) -> Image {
        let path = std::env::temp_dir().join(format!("eraid-dump-{name}-{}", std::process::id()));
        File::create(&path)
            .unwrap()
            .set_len(SIZE.get() << 9)
            .unwrap();
        let front = FrontLayout::for_member(SIZE).unwrap();
        let chunk = Sectors::new(128);
        let geometry = Geometry::new(Level::Raid5, 3, chunk, front.component(SIZE)).unwrap();
        let mut image = Image {
            path,
            superblock: Superblock {
                array: Uuid::new(*b"the array itself"),
                name: ArrayName::new("tank").unwrap(),
                generation: Generation::new(1),
                geometry,
                policy: Policy::of(Level::Raid5),
                active: true,
                front,
                regions: Regions::smallest(&geometry, front.map, front.map.pages()).unwrap(),
                slot: Slot::new(1).unwrap(),
                ..Superblock::BLANK
            },
        };
        for (record, byte) in image.superblock.slots.iter_mut().zip(1..4) {
            record.uuid = Uuid::new([byte; 16]);
            record.state = SlotState::InSync;
            record.generation = Generation::new(1);
        }
        image.format();
        image
    }

    fn format(&mut self) {
        let sb = self.superblock.clone();
        self.write_superblock(Side::B, &sb);
        self.superblock.generation = Generation::new(2);
        self.write_superblock(Side::A, &self.superblock.clone());
        let per_slot = badblocks::pages_per_slot(self.superblock.front.bad_blocks, 3);
        for number in 0..3 * per_slot {
            self.write_bad(number, 1, &[]);
        }
        for number in 0..self.superblock.regions.pages() {
            self.write_map(number, 1, Region::NEW);
        }
    }

    fn put(&self, at: Sector, page: &Page) {
        let file = OpenOptions::new().write(true).open(&self.path).unwrap();
        file.write_all_at(page, at.get() << 9).unwrap();
    }

    fn get(&self, at: Sector) -> Page {
        let mut page = [0; PAGE_SIZE];
        let file = File::open(&self.path).unwrap();
        file.read_exact_at(&mut page, at.get() << 9).unwrap();
        page
    }

    /// Changes a byte and, if asked, makes the checksum right again.
    fn damage(&self, at: Sector, byte: usize, value: u8, reseal: bool) {
        let mut page = self.get(at);
        page[byte] = value;
        if reseal {
            let sum = eraid_core::crc32c::checksum_around(reference, &page, 8);
            page[8..12].copy_from_slice(&sum.to_le_bytes());
        }
        self.put(at, &page);
    }

    fn write_superblock(&self, side: Side, sb: &Superblock) {
        let mut page = [0; PAGE_SIZE];
        sb.encode(reference, &mut page);
        self.put(superblock(side), &page);
    }

    fn place(&self, area: Area, side: Side, number: u32) -> Sector {
        let front = &self.superblock.front;
        let area = match area {
            Area::Map => front.map,
            Area::BadBlocks => front.bad_blocks,
            Area::Checkpoint => front.checkpoint,
        };
        area.page(side, number).unwrap()
    }

    fn id(&self, number: u32) -> PageId {
        let array = self.superblock.array;
        PageId { array, number }
    }

    fn write_map(&self, number: u32, generation: u64, region: Region) {
        let mut page = [0; PAGE_SIZE];
        let (_, count) = self.superblock.regions.regions_of(number);
        let generation = Generation::new(generation);
        let regions = std::iter::repeat_n(region, count);
        regionmap::encode(&mut page, reference, self.id(number), generation, regions);
        self.put(self.place(Area::Map, Side::of(generation), number), &page);
    }

    fn write_bad(&self, number: u32, generation: u64, ranges: &[(u64, u64)]) {
        let mut page = [0; PAGE_SIZE];
        let generation = Generation::new(generation);
        let range = |(start, len): &(u64, u64)| BadRange {
            start: Sector::new(*start),
            len: Sectors::new(*len),
        };
        let ranges: Vec<BadRange> = ranges.iter().map(range).collect();
        badblocks::encode(&mut page, reference, self.id(number), generation, &ranges);
        self.put(
            self.place(Area::BadBlocks, Side::of(generation), number),
            &page,
        );
    }

    fn report(&self) -> Report {
        examine(&open(&self.path).unwrap(), true).unwrap()
    }

    /// Asserts that there is exactly one problem, with these words, or none.
    fn assert_problem(&self, words: Option<&str>) -> Report {
        let report = self.report();
        let found = report.values("problem");
        assert_eq!(found.len(), usize::from(words.is_some()), "{found:?}");
        let said = words.is_none_or(|words| found[0].contains(words));
        assert!(said, "{found:?} instead of {words:?}");
        assert_eq!(report.is_ok(), words.is_none());
        report
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[test]
fn a_new_member_is_right() {
    let report = Image::new("new").assert_problem(None);
    assert!(report.values("note").is_empty());
    let expected = [
        ("superblock_a", "valid"),
        ("superblock_b_generation", "1"),
        ("superblock", "a"),
        ("array", "74686520-6172-7261-7920-697473656c66"),
        ("name", "tank"),
        ("generation", "2"),
        ("level", "5"),
        ("raid_disks", "3"),
        ("chunk", "128"),
        ("active", "1"),
        ("region", "32768"),
        ("slot", "1"),
        ("slot_2", "in_sync"),
        ("map_0_a", "was never written"),
        ("map_0_b", "valid"),
        ("map_0", "b"),
        ("map_generation", "1"),
        ("regions_in_flight", "0"),
        ("bad_blocks_2", "0"),
        ("checkpoint", "none"),
    ];
    for (key, value) in expected {
        assert_eq!(report.values(key), [value], "{key}");
    }
    assert_eq!(report.values("regions"), report.values("regions_none"));
    assert!(report.to_string().ends_with("result=ok\n"));
}

#[test]
fn of_two_superblocks_one_may_be_torn() {
    let image = Image::new("torn");
    image.damage(superblock(Side::A), 700, 1, false);
    let report = image.assert_problem(None);
    assert_eq!(report.values("superblock"), ["b"]);
    assert_eq!(report.values("generation"), ["1"]);
    assert_eq!(report.values("note"), ["one superblock is torn"]);
    image.damage(superblock(Side::B), 700, 1, false);
    let report = image.assert_problem(Some("wrong checksum"));
    assert_eq!(report.values("superblock"), ["none"]);
    assert!(report.to_string().ends_with("result=wrong\n"));
}

#[test]
fn superblocks_that_contradict_are_found() {
    let image = Image::new("contradict");
    image.damage(superblock(Side::B), 12, 2, true);
    image.assert_problem(Some("later version"));
    let mut other = image.superblock.clone();
    other.slot = Slot::new(2).unwrap();
    other.generation = Generation::new(3);
    image.write_superblock(Side::B, &other);
    image.assert_problem(Some("two members"));
    other.slot = Slot::new(1).unwrap();
    other.array = Uuid::new([9; 16]);
    image.write_superblock(Side::B, &other);
    image.assert_problem(Some("two different arrays"));
    other = image.superblock.clone();
    other.active = false;
    image.write_superblock(Side::B, &other);
    image.assert_problem(Some("same generation"));
}

#[test]
fn a_member_that_became_smaller_is_found() {
    let image = Image::new("smaller");
    let file = OpenOptions::new().write(true).open(&image.path).unwrap();
    file.set_len(256 << 20).unwrap();
    image.assert_problem(Some("the array uses"));
    file.set_len(5 << 20).unwrap();
    let report = image.report();
    assert_eq!(report.values("bad_blocks_0"), ["0"]);
    assert!(report
        .values("problem")
        .iter()
        .any(|p| p.contains("region map")));
    file.set_len(64 << 10).unwrap();
    assert!(examine(&open(&image.path).unwrap(), false).is_err());
}

#[test]
fn regions_are_counted() {
    let image = Image::new("regions");
    assert!(image.superblock.regions.pages() > 1);
    let region = Region {
        init: Init::Partial,
        in_flight: true,
        need_sync: true,
        stale: SlotSet::single(Slot::FIRST).with(Slot::new(2).unwrap()),
    };
    image.write_map(0, 2, region);
    let report = image.assert_problem(None);
    let entries = REGIONS_PER_PAGE.to_string();
    for key in ["regions_partial", "regions_in_flight", "regions_stale_2"] {
        assert_eq!(report.values(key), [&entries], "{key}");
    }
    assert_eq!(report.values("regions_stale_1"), ["0"]);
    assert_eq!(report.values("map_0"), ["a"]);
    assert_eq!(report.values("map_generation"), ["2"]);
    let words = "partial in_flight need_sync stale 0,2";
    assert_eq!(report.values("region_17"), [words]);
}

#[test]
fn copies_of_map_pages_are_judged() {
    let image = Image::new("copies");
    image.write_map(1, 2, Region::CLEAN);
    let newer = image.place(Area::Map, Side::A, 1);
    let older = image.place(Area::Map, Side::B, 1);
    image.damage(newer, 4000, 1, false);
    let report = image.assert_problem(None);
    assert_eq!(report.values("note"), ["map_1, copy a is torn"]);
    assert_eq!(report.values("map_1"), ["b"]);
    image.damage(newer, 4000, 3, true);
    image.assert_problem(Some("impossible state of a region"));
    image.put(newer, &image.get(older));
    image.assert_problem(Some("belongs to the other place"));
    image.put(newer, &image.get(image.place(Area::Map, Side::B, 0)));
    image.assert_problem(Some("map_1, copy a belongs to another place"));
    // What was there before the array does not count.
    let mut foreign = image.get(older);
    foreign[20] ^= 1;
    image.put(newer, &foreign);
    image.damage(newer, 0, b'e', true);
    assert!(image.assert_problem(None).values("note").is_empty());
    image.damage(older, 4000, 1, false);
    image.assert_problem(Some("page 1 of the region map has no valid copy"));
}

#[test]
fn bad_blocks_are_listed() {
    let image = Image::new("bad");
    // Lists have four pages each here: 4 is where that of slot 1 starts.
    let full: Vec<(u64, u64)> = (0..252).map(|i| (i * 10, 3)).collect();
    image.write_bad(4, 2, &full);
    image.write_bad(5, 2, &[(2513, 1), (9000, 8)]);
    image.assert_problem(Some("do not follow"));
    image.write_bad(5, 2, &[(2514, 1), (9000, 8)]);
    let report = image.assert_problem(None);
    assert_eq!(report.values("bad_blocks_1"), ["254"]);
    assert_eq!(report.values("bad_blocks_0"), ["0"]);
    assert_eq!(report.values("bad_block_1").last(), Some(&"9000 8"));
    image.damage(image.place(Area::BadBlocks, Side::B, 11), 100, 1, false);
    image.assert_problem(Some("part 3 of the bad-block list of slot 2"));
}

#[test]
fn the_checkpoint_is_shown() {
    let image = Image::new("checkpoint");
    let checkpoint = Checkpoint {
        rebuild: Some(Rebuild {
            slot: Slot::new(2).unwrap(),
            member: Uuid::new([3; 16]),
            done: Sectors::new(4096),
        }),
        scrub: Some(Scrub {
            kind: ScrubKind::Check,
            done: Sectors::new(77),
            mismatches: 5,
        }),
    };
    let mut page = [0; PAGE_SIZE];
    let array = image.superblock.array;
    checkpoint.encode(&mut page, reference, array, Generation::new(8));
    let place = image.place(Area::Checkpoint, Side::A, 0);
    image.put(place, &page);
    let report = image.assert_problem(None);
    for (key, value) in [
        ("checkpoint_a_generation", "8"),
        ("rebuild_slot", "2"),
        ("rebuild_done", "4096"),
        ("scrub", "check"),
        ("scrub_mismatches", "5"),
    ] {
        assert_eq!(report.values(key), [value], "{key}");
    }
    image.damage(place, 68, 3, true);
    image.assert_problem(Some("impossible rebuild"));
}

#[test]
fn states_of_slots_are_shown() {
    let mut image = Image::new("states");
    let offset = Sectors::new(1024);
    image.superblock.slots[2].state = SlotState::Recovering(offset);
    image.superblock.slots[0] = SlotRecord {
        uuid: Uuid::NIL,
        state: SlotState::Missing,
        generation: Generation::new(2),
    };
    image.write_superblock(Side::A, &image.superblock);
    let report = image.assert_problem(None);
    assert_eq!(report.values("slot_0"), ["missing"]);
    assert_eq!(report.values("slot_2"), ["recovering"]);
    assert_eq!(report.values("slot_2_recovered"), ["1024"]);
    assert!(report.values("slot_3").is_empty());
}

/// Whatever stands there: a verdict, and no panic.
#[test]
fn garbage_is_judged() {
    let seed = 20_240_229;
    println!("seed={seed}");
    let mut rng = Rng::new(&[seed]);
    let image = Image::new("garbage");
    let mut wrong = 0;
    for turn in 0..300 {
        let at = match turn % 4 {
            0 => superblock(Side::A),
            1 => image.place(Area::Map, Side::B, rng.below(2) as u32),
            2 => image.place(Area::BadBlocks, Side::B, rng.below(12) as u32),
            _ => image.place(Area::Checkpoint, Side::A, 0),
        };
        let before = image.get(at);
        for _ in 0..1 + rng.below(3) {
            let byte = 12 + rng.below(4084) as usize;
            image.damage(at, byte, rng.next_u64() as u8, rng.percent(90));
        }
        let report = image.report();
        wrong += u32::from(!report.is_ok());
        image.put(at, &before);
    }
    assert!(wrong > 100, "{wrong} of 300 found wrong");
    image.assert_problem(None);
}
