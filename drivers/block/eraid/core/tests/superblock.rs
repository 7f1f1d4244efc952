// SPDX-License-Identifier: GPL-2.0

//! Superblock codec: round trips, torn writes, and images that are wrong in every field.

mod common;

use common::{images, is_sealed, is_zero, number, reseal, superblock_fields, torn, Rng, Tally};
use eraid_core::crc32c::reference;
use eraid_core::geometry::{Geometry, Level};
use eraid_core::layout::FrontLayout;
use eraid_core::metapage::{Page, Side, PAGE_SIZE};
use eraid_core::regionmap::{Regions, REGION_SHIFT_MAX, REGION_SHIFT_MIN};
use eraid_core::superblock::{
    choose, ArrayName, Policy, SbError, SlotRecord, SlotState, Superblock,
};
use eraid_core::units::{Generation, Sectors, Slot, Uuid};

const MUTATIONS: usize = 100_000;

fn slot(number: u64) -> Slot {
    Slot::new(number as u8).unwrap()
}

/// A state that a member of the array can have.
fn random_state(rng: &mut Rng, geometry: &Geometry) -> SlotState {
    match rng.below(8) {
        0 => SlotState::Faulty,
        1 => SlotState::Missing,
        2 if geometry.parity() > 0 => {
            SlotState::Recovering(Sectors::new(rng.between(0, geometry.component().get())))
        }
        _ => SlotState::InSync,
    }
}

/// A superblock as the driver could write it.
fn random_superblock(rng: &mut Rng) -> Superblock {
    let level = rng.pick(&[Level::Raid0, Level::Raid1, Level::Raid5, Level::Raid6]);
    let members = rng.between(u64::from(level.members_min()), 64) as u8;
    let most = 1 << rng.between(16, 38);
    let size = Sectors::new(rng.between(1 << 15, most));
    let front = FrontLayout::for_member(size).unwrap();
    let chunk = Sectors::new(1 << rng.between(4, 11));
    let geometry = Geometry::new(level, members, chunk, front.component(size)).unwrap();
    let regions = match rng.below(2) {
        0 => Regions::smallest(&geometry, front.map, front.map.pages()),
        _ => (REGION_SHIFT_MIN..=REGION_SHIFT_MAX)
            .rev()
            .find_map(|shift| Regions::new(&geometry, shift, front.map)),
    };
    let mut superblock = Superblock {
        array: rng.uuid(),
        name: ArrayName::new(rng.pick(&["a", "tank-0", "A.b_c", &"x".repeat(32)])).unwrap(),
        generation: Generation::new(rng.between(1, 1 << 40)),
        geometry,
        logical_block_size: rng.pick(&[512, 1024, 2048, 4096]),
        policy: Policy::of(level),
        active: rng.once_in(2),
        front,
        regions: regions.unwrap(),
        slot: slot(rng.below(u64::from(members))),
        ..Superblock::BLANK
    };
    for number in 0..64 {
        let state = match number {
            _ if number == u64::from(superblock.slot.get()) => SlotState::InSync,
            _ if number < u64::from(members) => random_state(rng, &geometry),
            _ if rng.once_in(10) => SlotState::Spare,
            // A spare was there.
            _ if rng.once_in(10) => SlotState::Missing,
            _ => continue,
        };
        superblock.slots[number as usize] = SlotRecord {
            // What is not there can be known or not.
            uuid: if state == SlotState::Missing && (number >= u64::from(members) || rng.once_in(2))
            {
                Uuid::NIL
            } else {
                rng.uuid()
            },
            state,
            generation: Generation::new(rng.between(0, superblock.generation.get())),
        };
    }
    superblock
}

fn encoded(superblock: &Superblock) -> Box<Page> {
    let mut page = Box::new([0xaa; PAGE_SIZE]);
    superblock.encode(reference, &mut page);
    page
}

fn decoded(page: &Page) -> Result<Superblock, SbError> {
    Superblock::decode(page, reference)
}

#[test]
fn what_is_written_is_read() {
    let mut rng = Rng::for_test("superblock round trip");
    for _ in 0..2000 {
        let superblock = random_superblock(&mut rng);
        let page = encoded(&superblock);
        assert_eq!(decoded(&page), Ok(superblock));
        assert!(sane(&page));
    }
}

/// The format is what the documentation says: offsets and numbers, by hand.
#[test]
fn fields_lie_where_they_are_documented() {
    let mut rng = Rng::for_test("superblock fields");
    let mut superblock = random_superblock(&mut rng);
    superblock.geometry =
        Geometry::new(Level::Raid5, 3, Sectors::new(128), Sectors::new(1 << 20)).unwrap();
    superblock.front = FrontLayout::standard();
    superblock.regions = Regions::smallest(&superblock.geometry, superblock.front.map, 1).unwrap();
    superblock.slots = [SlotRecord::EMPTY; 64];
    superblock.slot = slot(2);
    superblock.slots[2] = SlotRecord {
        uuid: Uuid::new([7; 16]),
        state: SlotState::Recovering(Sectors::new(0x1234)),
        generation: Generation::new(1),
    };
    let page = encoded(&superblock);
    assert_eq!(&page[..8], b"eRAIDsb1");
    assert_eq!(&page[16..32], superblock.array.bytes());
    let expected = [
        (12, 4, 1),
        (96, 4, 5),
        (100, 4, 2),
        (104, 4, 3),
        (108, 4, 128),
        (112, 8, 1 << 20),
        (124, 4, 1),
        (144, 4, 15),
        (160, 8, 128),
        (168, 8, 2048),
        (176, 8, 4096),
        (192, 8, 8192),
        (240, 8, 262_144),
        (256, 4, 2),
        (264, 8, 0x0707_0707_0707_0707),
        (512 + 80 + 16, 4, 4),
        (512 + 80 + 32, 8, 0x1234),
    ];
    for (at, size, value) in expected {
        assert_eq!(number(&page, at, size), value, "offset {at}");
    }
}

/// A write of one superblock that is torn anywhere leaves the other one, or is complete.
#[test]
fn a_torn_write_never_loses_the_other() {
    let mut rng = Rng::for_test("superblock torn");
    for round in 0..40 {
        let kept = random_superblock(&mut rng);
        let mut older = kept.clone();
        older.generation = Generation::new(kept.generation.get() - 1);
        for record in &mut older.slots {
            record.generation = record.generation.min(older.generation);
        }
        let mut newer = kept.clone();
        newer.set_state(kept.slot, SlotState::Faulty);
        newer.active = !kept.active;
        newer.generation = kept.generation.next();
        // The place that is written to held the version before, or nothing.
        let old = match round % 3 {
            0 => Box::new([0; PAGE_SIZE]),
            _ => encoded(&older),
        };
        for mix in torn(&old, &encoded(&newer)) {
            let read = decoded(&mix);
            let place = choose(Ok(&kept), read.as_ref().map_err(|e| *e));
            match place {
                Ok(Side::A) => assert_ne!(read.as_ref(), Ok(&newer)),
                Ok(Side::B) => assert_eq!(read.as_ref(), Ok(&newer)),
                Err(error) => panic!("{}", error.as_str()),
            }
            // The same with the places the other way round.
            let mirrored = choose(read.as_ref().map_err(|e| *e), Ok(&kept));
            assert_eq!(mirrored, place.map(Side::other));
        }
    }
}

#[test]
fn choosing_between_two() {
    let mut rng = Rng::for_test("superblock choose");
    let one = random_superblock(&mut rng);
    let other = random_superblock(&mut rng);
    assert!(choose(Ok(&one), Ok(&other)).is_err());
    assert_eq!(choose(Ok(&one), Ok(&one)), Ok(Side::A));
    assert_eq!(choose(Ok(&one), Err(SbError::NotOurs)), Ok(Side::A));
    assert_eq!(choose(Err(SbError::Crc), Ok(&one)), Ok(Side::B));
    // What was meant and is not understood may be newer.
    for error in [
        SbError::Version,
        SbError::UnknownFeature,
        SbError::Nonsense(""),
    ] {
        assert_eq!(choose(Ok(&one), Err(error)), Err(error));
        assert_eq!(choose(Err(error), Ok(&one)), Err(error));
        assert_eq!(choose(Err(SbError::NotOurs), Err(error)), Err(error));
        assert_eq!(choose(Err(error), Err(SbError::Crc)), Err(error));
    }
    let torn = choose(Err(SbError::NotOurs), Err(SbError::Crc));
    assert_eq!(torn, Err(SbError::Crc));
    let torn = choose(Err(SbError::Crc), Err(SbError::NotOurs));
    assert_eq!(torn, Err(SbError::Crc));
}

#[test]
fn names() {
    for good in ["a", "0", "_x", "-", "a.b", &"n".repeat(32)] {
        assert_eq!(
            ArrayName::new(good).map(|n| n.as_str().to_string()),
            Some(good.into())
        );
    }
    for bad in [
        "",
        ".",
        ".a",
        "a b",
        "a/b",
        "\u{e9}",
        "a\0",
        "a\0b",
        &"n".repeat(33),
    ] {
        assert_eq!(ArrayName::new(bad), None, "{bad:?}");
    }
}

#[test]
fn unknown_features() {
    let mut rng = Rng::for_test("superblock features");
    let superblock = random_superblock(&mut rng);
    let change = |at: usize, reserved: u8| {
        let mut page = encoded(&superblock);
        page[at] = 4;
        page[4000] = reserved;
        reseal(&mut page);
        decoded(&page)
    };
    assert_eq!(change(72, 0), Err(SbError::UnknownFeature));
    assert_eq!(change(80, 1).map(|sb| sb.read_only_features), Ok(4));
    assert_eq!(change(88, 1), Ok(superblock.clone()));
    assert_eq!(change(12, 0), Err(SbError::Version));
}

/// Whatever is changed: no panic, and exactly what the oracle calls sane is accepted.
#[test]
fn mutations() {
    let mut rng = Rng::for_test("superblock mutations");
    let mut fields = superblock_fields();
    let mut tally = Tally::default();
    let mut base = encoded(&random_superblock(&mut rng));
    for turn in 0..images(MUTATIONS) {
        if turn % 20 == 0 {
            base = encoded(&random_superblock(&mut rng));
        }
        let mut page = base.clone();
        let names = fields.mutate(&mut page, &mut rng, turn);
        if !rng.once_in(8) {
            reseal(&mut page);
        }
        let read = decoded(&page);
        tally.images += 1;
        if !matches!(read, Err(SbError::NotOurs | SbError::Crc)) {
            tally.past_crc += 1;
        }
        assert_eq!(read.is_ok(), sane(&page), "{names:?}: {read:?}");
        if let Ok(superblock) = read {
            tally.accepted += 1;
            assert_reencodes(&superblock, &page);
        }
    }
    fields.assert_all_mutated(50);
    tally.assert_deep();
}

/// What was accepted is what stands there: it encodes to the same bytes, but for what this
/// version does not know.
fn assert_reencodes(superblock: &Superblock, page: &Page) {
    let mut again = encoded(superblock);
    let mut page = *page;
    if number(&page, 80, 8) != 0 || number(&page, 88, 8) != 0 {
        for (from, to) in [
            (88, 96),
            (152, 160),
            (248, 256),
            (260, 264),
            (280, 512),
            (3072, 4096),
        ] {
            page[from..to].fill(0);
        }
        reseal(&mut page);
        reseal(&mut again);
    }
    assert_eq!(*again, page);
}

/// An independent opinion on whether a page is a valid superblock, from the documentation.
fn sane(page: &Page) -> bool {
    let n32 = |at| u128::from(number(page, at, 4));
    let n64 = |at| u128::from(number(page, at, 8));
    let extensible = n64(80) != 0 || n64(88) != 0;
    let reserved = [(152, 160), (248, 256), (260, 264), (280, 512), (3072, 4096)];
    let checks = [
        &page[..8] == b"eRAIDsb1" && is_sealed(page),
        n32(12) == 1,
        !is_zero(page, 16, 32),
        sane_name(&page[32..64]),
        n64(64) >= 1 && n64(64) < 1 << 63,
        n64(72) == 0,
        sane_shape(n32(96), n32(100), n32(104), n32(108), n64(112)),
        [512, 1024, 2048, 4096].contains(&n32(120)),
        n32(124) == u128::from(n32(96) != 0),
        is_zero(page, 128, 144),
        n32(148) < 2,
        extensible || reserved.iter().all(|(from, to)| is_zero(page, *from, *to)),
        sane_front(page),
        sane_regions(n32(144), n64(112), n64(200)),
        n32(256) < 64,
    ];
    checks.iter().all(|check| *check) && sane_slots(page)
}

fn sane_name(name: &[u8]) -> bool {
    let text = String::from_utf8_lossy(name);
    let trimmed = text.trim_end_matches('\0');
    let allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    !trimmed.is_empty() && !trimmed.starts_with('.') && trimmed.chars().all(|c| allowed.contains(c))
}

fn sane_shape(level: u128, layout: u128, members: u128, chunk: u128, component: u128) -> bool {
    let (least, columns) = match level {
        0 => (2, members),
        1 => (2, 1),
        5 => (3, members.saturating_sub(1)),
        6 => (4, members.saturating_sub(2)),
        _ => return false,
    };
    let limit = ((1u128 << 63) - 1) / 512;
    (least..=64).contains(&members)
        && layout == if level >= 5 { 2 } else { 0 }
        && (3..=13).any(|shift| chunk == 1 << shift)
        && component > 0
        && component % chunk == 0
        && component * columns <= limit
}

fn sane_front(page: &Page) -> bool {
    let n64 = |at| u128::from(number(page, at, 8));
    let parts = [
        (n64(160), 8),
        (n64(168), 8),
        (n64(176), n64(184)),
        (n64(192), n64(200)),
        (n64(208), n64(216)),
        (n64(224), n64(232)),
        (n64(240), 0),
    ];
    let apart = parts.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0);
    let aligned = parts.iter().all(|(start, _)| start % 8 == 0);
    let halves = parts[2..6].iter().all(|(_, len)| len % 16 == 0);
    let used = parts[2..5].iter().all(|(_, len)| *len > 0);
    let data = n64(240);
    (n64(160), n64(168)) == (128, 2048)
        && apart
        && aligned
        && halves
        && used
        && parts[2].1 / 16 >= u128::from(number(page, 104, 4))
        && data % 2048 == 0
        && data <= 1 << 27
}

fn sane_regions(shift: u128, component: u128, map_len: u128) -> bool {
    (15..=33).contains(&shift) && component.div_ceil(1 << shift) <= map_len / 16 * 448
}

fn sane_slots(page: &Page) -> bool {
    let members = number(page, 104, 4) as usize;
    let mut uuids = Vec::new();
    for slot in 0..64 {
        let at = 512 + slot * 40;
        let uuid = &page[at..at + 16];
        let nil = uuid.iter().all(|b| *b == 0);
        let (state, reserved) = (number(page, at + 16, 4), number(page, at + 20, 4));
        let (generation, offset) = (number(page, at + 24, 8), number(page, at + 32, 8));
        let inside = slot < members;
        let possible = match state {
            0 => !inside && nil && generation == 0 && offset == 0,
            1 => inside && !nil && offset == 0,
            2 => inside && offset == 0,
            5 => (inside || nil) && offset == 0,
            3 => !inside && !nil && offset == 0,
            4 => inside && !nil && number(page, 96, 4) != 0 && offset <= number(page, 112, 8),
            _ => false,
        };
        if !possible || reserved != 0 || generation > number(page, 64, 8) {
            return false;
        }
        if !nil {
            uuids.push(uuid);
        }
    }
    let count = uuids.len();
    uuids.sort_unstable();
    uuids.dedup();
    let own = 512 + number(page, 256, 4) as usize * 40;
    uuids.len() == count
        && page[own..own + 16] == page[264..280]
        && (1..=4).contains(&number(page, own + 16, 4))
}
