// SPDX-License-Identifier: GPL-2.0

//! Members with mutated and re-sealed metadata at assembly: no panic, and nothing is started that
//! makes no sense. What each accepted thing has to satisfy is one function here.

// As in the crate: a refusal carries its text.
#![allow(clippy::result_large_err)]

mod common;

use common::{images, reseal, superblock_fields, Fields, Rng};
use eraid_core::assembly::{decide, standing, Assembly, Candidate, Decision, Options, Standing};
use eraid_core::crc32c::reference;
use eraid_core::geometry::{Geometry, Level};
use eraid_core::layout::FrontLayout;
use eraid_core::metapage::{Page, PageId, Side, PAGE_SIZE};
use eraid_core::region::{RegionState, Work};
use eraid_core::regionmap::{self, Init, MapPage, Region, Regions};
use eraid_core::superblock::{choose, ArrayName, Policy, SlotRecord, SlotState, Superblock};
use eraid_core::units::{Generation, Sectors, Slot, SlotSet};

/// Sets of members with hostile superblocks. Each is several images.
const SETS: usize = 30_000;

/// Sets of copies of a page of the region map.
const MAPS: usize = 15_000;

/// Name of a device; nothing depends on it.
const NAME: &str = "sdx";

/// An array after a few changes of its members: superblocks that were written at various times.
fn array(rng: &mut Rng) -> Vec<Superblock> {
    let (level, members) = rng.pick(&[
        (Level::Raid0, 2),
        (Level::Raid1, 3),
        (Level::Raid5, 3),
        (Level::Raid5, 4),
        (Level::Raid6, 5),
    ]);
    let size = Sectors::new(rng.pick(&[64 << 11, 8 << 21]));
    let front = FrontLayout::for_member(size).unwrap();
    let chunk = Sectors::new(128);
    let geometry = Geometry::new(level, members, chunk, front.component(size)).unwrap();
    let mut newest = Superblock {
        array: rng.uuid(),
        name: ArrayName::new("tank").unwrap(),
        generation: Generation::new(2),
        geometry,
        policy: Policy::of(level),
        active: true,
        front,
        regions: Regions::smallest(&geometry, front.map, front.map.pages()).unwrap(),
        ..Superblock::BLANK
    };
    for record in newest.slots.iter_mut().take(usize::from(members)) {
        *record = SlotRecord {
            uuid: rng.uuid(),
            state: SlotState::InSync,
            generation: Generation::new(1),
        };
    }
    let slots = geometry.all_slots();
    let mut superblocks: Vec<Superblock> = slots.iter().map(|_| newest.clone()).collect();
    for _ in 0..rng.below(4) {
        let slot = Slot::new(rng.below(u64::from(members)) as u8).unwrap();
        let recovering = SlotState::Recovering(Sectors::new(rng.below(1000)));
        let states = [
            SlotState::InSync,
            SlotState::Faulty,
            SlotState::Missing,
            recovering,
        ];
        let state = rng.pick(&states);
        if level != Level::Raid0 || state == SlotState::InSync {
            newest.set_state(slot, state);
        }
        newest.active = rng.once_in(2);
        newest.generation = newest.generation.next();
        for own in &mut superblocks {
            if !rng.once_in(3) {
                *own = newest.clone();
            }
        }
    }
    for (slot, own) in slots.iter().zip(&mut superblocks) {
        own.slot = slot;
    }
    superblocks
}

/// The superblock that a member with these two pages is taken for.
fn believed(pages: &[Box<Page>; 2]) -> Option<Superblock> {
    let [a, b] = pages
        .each_ref()
        .map(|page| Superblock::decode(page, reference));
    let side = choose(a.as_ref().map_err(|e| *e), b.as_ref().map_err(|e| *e)).ok()?;
    match side {
        Side::A => a.ok(),
        Side::B => b.ok(),
    }
}

/// The two pages of a member: the version before, and `superblock`.
fn pages(superblock: &Superblock) -> [Box<Page>; 2] {
    let mut pages = [Box::new([0; PAGE_SIZE]), Box::new([0; PAGE_SIZE])];
    superblock.encode(reference, &mut pages[0]);
    let mut before = superblock.clone();
    before.generation = Generation::new(superblock.generation.get() - 1);
    for record in &mut before.slots {
        record.generation = record.generation.min(before.generation);
    }
    before.encode(reference, &mut pages[1]);
    pages
}

/// What every array that starts satisfies.
fn assert_sane_start(candidates: &[Candidate<'_>], start: &Assembly, options: Options) {
    let base = candidates[start.base].superblock;
    let geometry = &base.geometry;
    let needed = u32::from(geometry.members() - geometry.parity());
    let newest = candidates.iter().map(|c| c.superblock.generation).max();
    assert_eq!(newest, Some(base.generation));
    // Slots: each has one place, and what is in it carries its number and its name.
    let mut placed = SlotSet::EMPTY;
    let mut taken = Vec::new();
    for (number, member) in (0..).zip(&start.members) {
        let Some(index) = member else { continue };
        let slot = Slot::new(number).unwrap();
        let candidate = &candidates[usize::from(*index)];
        let own = candidate.superblock;
        placed.insert(slot);
        assert!(!taken.contains(index), "a device in two slots");
        taken.push(*index);
        let was_spare = own.record(own.slot).state == SlotState::Spare;
        assert!(own.slot == slot || was_spare, "moved from {}", own.slot);
        assert_eq!(own.member(), base.record(slot).uuid);
        assert_eq!((own.array, own.geometry), (base.array, base.geometry));
        assert_eq!((own.front, own.regions), (base.front, base.regions));
        assert!(candidate.size >= base.front.size_for(geometry.component()));
        if !options.readonly {
            assert!(!candidate.read_only && own.read_only_features == 0);
        }
        let old = [Standing::Outdated, Standing::Diverged];
        assert!(options.force || !old.contains(&standing(base, own)));
    }
    assert_eq!(start.present().union(start.spares), placed);
    assert!(start.in_sync.intersect(start.recovering).is_empty());
    assert!(start.present().is_subset(geometry.all_slots()));
    assert!(start.spares.intersect(geometry.all_slots()).is_empty());
    for slot in start.spares {
        assert_eq!(base.record(slot).state, SlotState::Spare);
    }
    assert!(start.caught_up.is_subset(start.in_sync));
    // Members: enough of them, and enough that missed nothing.
    assert!(start.in_sync.len() >= needed);
    let current = start.in_sync.minus(start.caught_up);
    assert!(current.len() >= needed || options.force);
    for slot in start.recovering {
        // As the array has it, or it failed or went and was being rebuilt before.
        let index = start.members[slot.index()].unwrap();
        let own = candidates[usize::from(index)].superblock;
        match base.record(slot).state {
            SlotState::Recovering(done) => assert!(done <= geometry.component()),
            SlotState::Faulty | SlotState::Missing => {
                let state = own.record(own.slot).state;
                assert!(matches!(state, SlotState::Recovering(_)), "{state:?}");
            }
            state => panic!("{state:?} is recovering"),
        }
    }
    // The generation never runs out while it runs.
    assert!(options.readonly || base.generation.get() <= (1 << 63) - 1 - (1 << 32));
}

#[test]
fn hostile_superblocks_start_nothing_that_makes_no_sense() {
    let mut rng = Rng::for_test("hostile superblocks");
    let mut fields = superblock_fields();
    let (mut turns, mut started, mut mutated) = (0, 0, 0);
    while turns < images(SETS) {
        let superblocks = array(&mut rng);
        let mut read = Vec::new();
        for superblock in &superblocks {
            let mut pages = pages(superblock);
            for page in &mut pages {
                if rng.once_in(4) {
                    fields.mutate(page, &mut rng, turns);
                    reseal(page);
                    mutated += 1;
                }
                turns += 1;
            }
            read.extend(believed(&pages));
        }
        // A copy of a member beside it, and others away.
        if let Some(copy) = read.first().filter(|_| rng.once_in(16)).cloned() {
            read.push(copy);
        }
        read.retain(|_| !rng.once_in(10));
        let candidates: Vec<Candidate<'_>> = read
            .iter()
            .map(|superblock| Candidate {
                name: NAME,
                superblock,
                size: match rng.below(40) {
                    0 => Sectors::new(rng.next() >> rng.below(64)),
                    _ => Sectors::new(u64::MAX),
                },
                read_only: rng.once_in(40),
            })
            .collect();
        let options = Options {
            force: rng.once_in(2),
            readonly: rng.once_in(4),
            degraded: rng.once_in(2),
        };
        if let Ok(Decision::Start(start)) = decide(&candidates, options) {
            assert_sane_start(&candidates, &start, options);
            started += 1;
        }
    }
    println!("{turns} superblocks, {mutated} of them mutated; {started} arrays started");
    assert!(started * 40 > turns && mutated * 5 > turns);
}

/// What every region satisfies that starts from copies of the map.
fn assert_sane_region(merged: Region, copies: &[Region], slots: SlotSet, level: Level) {
    assert!(merged.stale.is_subset(slots));
    for copy in copies {
        // Nothing that one copy is afraid of is forgotten.
        assert!(merged.need_sync || !copy.need_sync);
        assert!(merged.in_flight || !copy.in_flight);
        assert!(copy.stale.is_subset(merged.stale));
        assert!(merged.init == copy.init || merged.init == Init::Partial);
    }
    let state = RegionState::loaded(merged);
    let doubtful = merged.need_sync || merged.in_flight;
    if doubtful && state.view().init != Init::None {
        assert!(state.view().need_sync);
        assert!(matches!(state.work(level), Work::Resync | Work::Doubtful));
    }
}

#[test]
fn hostile_maps_hide_nothing() {
    let mut rng = Rng::for_test("hostile maps");
    let mut header = Fields::new();
    header.add(&[
        ("magic", 8),
        ("crc", 4),
        ("reserved", 4),
        ("array", 16),
        ("generation", 8),
        ("number", 4),
        ("count", 4),
        ("reserved2", 16),
    ]);
    header.add(&[("body", PAGE_SIZE - 64)]);
    let (mut turns, mut accepted) = (0, 0);
    while turns < images(MAPS) {
        let superblocks = array(&mut rng);
        let base = &superblocks[0];
        let (regions, slots) = (base.regions, base.geometry.all_slots());
        let number = rng.below(u64::from(regions.pages())) as u32;
        let (_, count) = regions.regions_of(number);
        let array = base.array;
        let id = PageId { array, number };
        let mut copies: Vec<Box<Page>> = Vec::new();
        for _ in &superblocks {
            let region = Region {
                init: rng.pick(&[Init::None, Init::Partial, Init::Full]),
                in_flight: rng.once_in(2),
                need_sync: rng.once_in(4),
                stale: SlotSet::from_bits(rng.next() & slots.bits()),
            };
            let mut page = Box::new([0; PAGE_SIZE]);
            let all = std::iter::repeat_n(region, count);
            let generation = Generation::new(1 + rng.below(9));
            regionmap::encode(&mut page, reference, id, generation, all);
            for _ in 0..rng.below(3) {
                header.mutate(&mut page, &mut rng, turns);
                // Any byte of the body, which is most of the page.
                let at = rng.between(64, PAGE_SIZE as u64 - 1) as usize;
                page[at] = rng.next() as u8 & 15;
            }
            reseal(&mut page);
            turns += 1;
            copies.push(page);
        }
        let decode = |page| MapPage::decode(page, reference, id, &regions, slots).ok();
        let valid: Vec<MapPage<'_>> = copies.iter().filter_map(|page| decode(page)).collect();
        accepted += valid.len();
        for entry in 0..count {
            let own: Vec<Region> = valid.iter().map(|page| page.get(entry)).collect();
            let merged = own.iter().copied().reduce(Region::merge);
            let merged = merged.unwrap_or(Region::UNKNOWN);
            assert_sane_region(merged, &own, slots, base.geometry.level());
        }
    }
    println!("{turns} pages, {accepted} accepted");
    assert!(accepted * 4 > turns && accepted < turns);
}
