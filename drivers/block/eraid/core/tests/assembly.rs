// SPDX-License-Identifier: GPL-2.0

//! Assembly: each refusal with its words, and random histories of an array.

// As in the crate: a refusal carries its text.
#![allow(clippy::result_large_err)]

mod support;

use eraid_core::assembly::*;
use eraid_core::geometry::{Geometry, Level};
use eraid_core::layout::FrontLayout;
use eraid_core::refusal::{Errno, Refusal};
use eraid_core::regionmap::Regions;
use eraid_core::superblock::{ArrayName, Policy, SbError, SlotRecord, SlotState, Superblock};
use eraid_core::units::{Generation, Sectors, Slot, SlotSet, Uuid};
use proptest::prelude::*;

const SIZE: Sectors = Sectors::new(64 << 11);

const NAMES: [&str; 8] = ["sda", "sdb", "sdc", "sdd", "sde", "sdf", "sdg", "sdh"];

const PLAIN: Options = Options {
    force: false,
    readonly: false,
    degraded: false,
};
const FORCE: Options = Options {
    force: true,
    ..PLAIN
};
const DEGRADED: Options = Options {
    degraded: true,
    ..PLAIN
};
const READONLY: Options = Options {
    readonly: true,
    ..PLAIN
};

fn slot(number: usize) -> Slot {
    Slot::new(number as u8).unwrap()
}

fn set(slots: &[usize]) -> SlotSet {
    slots.iter().map(|n| slot(*n)).collect()
}

fn uuid(number: u8) -> Uuid {
    Uuid::new([number; 16])
}

/// The superblocks of the members of an array, one for each slot, as they are on the disks.
struct Array(Vec<Superblock>);

impl Array {
    /// A new array, which is running.
    fn new(level: Level, members: usize) -> Array {
        let front = FrontLayout::for_member(SIZE).unwrap();
        let chunk = Sectors::new(128);
        let geometry = Geometry::new(level, members as u8, chunk, front.component(SIZE)).unwrap();
        let mut superblock = Superblock {
            array: uuid(0xaa),
            name: ArrayName::new("tank").unwrap(),
            generation: Generation::new(2),
            geometry,
            policy: Policy::of(level),
            active: true,
            front,
            regions: Regions::smallest(&geometry, front.map, front.map.pages()).unwrap(),
            ..Superblock::BLANK
        };
        for number in 0..members {
            superblock.slots[number] = SlotRecord {
                uuid: uuid(number as u8 + 1),
                state: SlotState::InSync,
                generation: Generation::new(1),
            };
        }
        let mut array = Array(Vec::new());
        for number in 0..members {
            superblock.slot = slot(number);
            array.0.push(superblock.clone());
        }
        array
    }

    /// The next superblock of the array whose newest is that of `from`, written to `to`.
    fn write(&mut self, from: usize, to: &[usize], change: impl FnOnce(&mut Superblock)) {
        let mut next = self.0[from].clone();
        change(&mut next);
        next.generation = next.generation.next();
        for member in to {
            next.slot = slot(*member);
            self.0[*member] = next.clone();
        }
    }

    /// A clean stop of all.
    fn stop(&mut self) {
        let all: Vec<usize> = (0..self.0.len()).collect();
        self.write(0, &all, |sb| sb.active = false);
    }

    /// A start of `members`, the others being away.
    fn start(&mut self, members: &[usize]) {
        let all = 0..self.0.len();
        self.write(members[0], members, |sb| {
            for absent in all.filter(|m| !members.contains(m)) {
                if sb.record(slot(absent)).state == SlotState::InSync {
                    sb.set_state(slot(absent), SlotState::Missing);
                }
            }
            sb.active = true;
        });
    }

    fn candidates(&self, members: &[usize]) -> Vec<Candidate<'_>> {
        let of = |m: &usize| Candidate {
            name: NAMES[*m],
            superblock: &self.0[*m],
            size: SIZE,
            read_only: false,
        };
        members.iter().map(of).collect()
    }

    fn decide(&self, members: &[usize], options: Options) -> Result<Decision, Refusal> {
        decide(&self.candidates(members), options)
    }

    fn assembly(&self, members: &[usize], options: Options) -> Assembly {
        match self.decide(members, options) {
            Ok(Decision::Start(assembly)) => assembly,
            other => panic!("{other:?}"),
        }
    }
}

fn check(result: Result<Decision, Refusal>, errno: Errno, words: &[&str]) {
    let refusal = match result {
        Err(refusal) => refusal,
        Ok(decision) => panic!("{decision:?}"),
    };
    assert_eq!(refusal.errno, errno, "{refusal}");
    for word in words {
        assert!(
            refusal.as_str().contains(word),
            "{word:?} not in: {refusal}"
        );
    }
    assert!(!refusal.text.is_truncated(), "{refusal}");
}

#[test]
fn a_complete_set_starts_in_any_order() {
    let mut array = Array::new(Level::Raid5, 4);
    array.stop();
    let orders = [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]];
    for order in orders {
        let assembly = array.assembly(&order, PLAIN);
        assert_eq!(assembly.in_sync, set(&[0, 1, 2, 3]));
        assert!(assembly.caught_up.is_empty() && assembly.recovering.is_empty());
        assert!(!assembly.unclean);
        for (index, member) in order.into_iter().enumerate() {
            assert_eq!(assembly.members[member], Some(index as u8));
        }
        assert!(assembly.members[4..].iter().all(Option::is_none));
        assert!(assembly.absent(&array.0[0]).is_empty());
    }
}

#[test]
fn a_crash_shows() {
    let array = Array::new(Level::Raid1, 2);
    assert!(array.assembly(&[0, 1], PLAIN).unclean);
}

#[test]
fn an_incomplete_set_waits_and_says_for_whom() {
    let array = Array::new(Level::Raid5, 4);
    let decision = array.decide(&[3, 0], PLAIN).unwrap();
    let Decision::Incomplete(incomplete) = decision else {
        panic!("{decision:?}");
    };
    assert_eq!(
        (incomplete.present, incomplete.expected),
        (set(&[0, 3]), set(&[1, 2]))
    );
    assert_eq!(incomplete.to_string(), "2 members, waits for slot 1, 2");
    // Forced is not degraded.
    assert!(matches!(
        array.decide(&[3, 0, 1], FORCE),
        Ok(Decision::Incomplete(_))
    ));
}

#[test]
fn a_degraded_start_is_asked_for_or_recorded() {
    let mut array = Array::new(Level::Raid5, 3);
    array.stop();
    let assembly = array.assembly(&[2, 0], DEGRADED);
    assert_eq!(assembly.in_sync, set(&[0, 2]));
    assert_eq!(assembly.absent(&array.0[0]), set(&[1]));
    assert_eq!(assembly.members[1], None);
    array.start(&[0, 2]);
    assert_eq!(
        array.assembly(&[2, 0], PLAIN).in_sync,
        set(&[0, 2]),
        "recorded by now"
    );
    // The one that was away, or an older superblock on its own, does not know that.
    assert!(matches!(
        array.decide(&[1], PLAIN),
        Ok(Decision::Incomplete(_))
    ));
}

#[test]
fn too_few_members() {
    let array = Array::new(Level::Raid5, 4);
    let words = ["tank: 2 of 4 members in sync, 3 are needed", "slot 0, 2"];
    check(array.decide(&[1, 3], DEGRADED), Errno::NoDev, &words);
    let array = Array::new(Level::Raid0, 2);
    check(
        array.decide(&[1], DEGRADED),
        Errno::NoDev,
        &["2 are needed", "slot 0"],
    );
    check(decide(&[], PLAIN), Errno::Inval, &["no members"]);
    assert!(Array::new(Level::Raid1, 4).decide(&[2], DEGRADED).is_ok());
}

#[test]
fn generations_do_not_run_out() {
    const MAX: u64 = i64::MAX as u64;
    let left = |generations: u64| {
        let mut array = Array::new(Level::Raid5, 3);
        for superblock in &mut array.0 {
            superblock.generation = Generation::new(MAX - generations);
        }
        array
    };
    let words = ["tank: no generations are left behind 9223372036854775807"];
    check(left(0).decide(&[0, 1, 2], PLAIN), Errno::Range, &words);
    for options in [PLAIN, FORCE, DEGRADED] {
        let decision = left((1 << 32) - 1).decide(&[0, 1, 2], options);
        check(decision, Errno::Range, &["readonly=1"]);
    }
    // Nothing is written: it can be read.
    left(0).assembly(&[0, 1, 2], READONLY);
    // What starts can be written down to the last change, and be believed.
    let mut array = left(1 << 32);
    array.assembly(&[0, 1, 2], PLAIN);
    array.start(&[0, 1, 2]);
    array.stop();
    let next = &array.0[0];
    let mut page = [0; 4096];
    next.encode(eraid_core::crc32c::reference, &mut page);
    let decoded = Superblock::decode(&page, eraid_core::crc32c::reference);
    assert_eq!(decoded.as_ref(), Ok(next));
}

#[test]
fn foreign_members_are_named() {
    let mut array = Array::new(Level::Raid1, 2);
    array.0[1].array = uuid(0xbb);
    array.0[1].name = ArrayName::new("other").unwrap();
    let words = [
        "sdb belongs to array other (bbbbbbbb-",
        "sda to tank (aaaaaaaa-",
    ];
    check(array.decide(&[0, 1], PLAIN), Errno::Inval, &words);
}

#[test]
fn copies_of_a_member_are_named() {
    let mut array = Array::new(Level::Raid1, 2);
    let copy = array.0[0].clone();
    array.0.push(copy);
    let words = ["sda and sdc are the same member (slot 0)"];
    check(array.decide(&[0, 1, 2], PLAIN), Errno::Exist, &words);
    // An older copy is no better.
    array.stop();
    array.0[2] = array.0[0].clone();
    array.start(&[0, 1]);
    check(
        array.decide(&[2, 0, 1], FORCE),
        Errno::Exist,
        &["sdc and sda are the same"],
    );
}

#[test]
fn replaced_members_are_named() {
    let mut array = Array::new(Level::Raid5, 3);
    let old = array.0[1].clone();
    array.write(0, &[0, 1, 2], |sb| {
        sb.slots[1].uuid = uuid(9);
        sb.set_state(slot(1), SlotState::InSync);
    });
    array.0.push(old);
    let words = [
        "sdd was replaced: slot 1 of tank belongs to another member",
        "leave it out",
    ];
    check(array.decide(&[0, 1, 2, 3], PLAIN), Errno::Inval, &words);
    check(array.decide(&[0, 3, 2], FORCE), Errno::Inval, &words);
}

#[test]
fn members_that_describe_another_array_are_named() {
    let mut array = Array::new(Level::Raid1, 2);
    array.0[1].logical_block_size = 4096;
    check(
        array.decide(&[0, 1], PLAIN),
        Errno::Inval,
        &["sda and sdb describe tank differently"],
    );
}

#[test]
fn devices_are_checked() {
    let mut array = Array::new(Level::Raid1, 2);
    let needed = array.0[0].front.size_for(array.0[0].geometry.component());
    let mut candidates = array.candidates(&[0, 1]);
    candidates[1].size = needed;
    assert!(
        decide(&candidates, PLAIN).is_ok(),
        "the tail may be missing"
    );
    candidates[1].size = Sectors::new(needed.get() - 1);
    let words = format!(
        "sdb has {} sectors, a member of tank needs {needed}",
        needed.get() - 1
    );
    check(decide(&candidates, PLAIN), Errno::Inval, &[&words]);

    let mut candidates = array.candidates(&[0, 1]);
    candidates[0].read_only = true;
    check(
        decide(&candidates, PLAIN),
        Errno::RoFs,
        &["sda is read-only", "readonly=1"],
    );
    assert!(decide(&candidates, READONLY).is_ok());

    array.0[1].read_only_features = 4;
    let words = ["sdb uses features 0x4", "readonly=1"];
    check(array.decide(&[0, 1], PLAIN), Errno::RoFs, &words);
    assert!(array.decide(&[0, 1], READONLY).is_ok());
}

#[test]
fn a_failed_member_that_comes_back_catches_up() {
    let mut array = Array::new(Level::Raid5, 5);
    // Three of five vanish under load: the first is recorded, then too few are left to go on.
    array.write(1, &[1, 2, 3, 4], |sb| {
        sb.set_state(slot(0), SlotState::Faulty)
    });
    for stopped in [false, true] {
        if stopped {
            array.write(4, &[3, 4], |sb| sb.active = false);
        }
        let assembly = array.assembly(&[0, 1, 2, 3, 4], PLAIN);
        assert_eq!(assembly.in_sync, set(&[0, 1, 2, 3, 4]));
        assert_eq!(assembly.caught_up, set(&[0]));
    }
    // The same when the failure did not reach two of those that vanished.
    let mut array = Array::new(Level::Raid5, 5);
    array.write(3, &[3, 4], |sb| sb.set_state(slot(0), SlotState::Faulty));
    array.write(3, &[3, 4], |sb| sb.active = false);
    let assembly = array.assembly(&[4, 3, 2, 1, 0], PLAIN);
    assert_eq!((assembly.in_sync.len(), assembly.caught_up), (5, set(&[0])));
}

#[test]
fn a_member_taken_back_stays_behind_until_it_is_told() {
    let mut array = Array::new(Level::Raid5, 3);
    array.write(0, &[0, 1], |sb| sb.set_state(slot(2), SlotState::Faulty));
    for _ in 0..5 {
        array.start(&[0, 1]);
    }
    assert_eq!(array.assembly(&[0, 1, 2], PLAIN).caught_up, set(&[2]));
    // The power fails before its superblock says so.
    array.write(0, &[0, 1], |sb| sb.set_state(slot(2), SlotState::InSync));
    assert_eq!(array.assembly(&[0, 1, 2], PLAIN).caught_up, set(&[2]));
    array.start(&[0, 1, 2]);
    assert!(array.assembly(&[0, 1, 2], PLAIN).caught_up.is_empty());
}

#[test]
fn members_that_missed_writes_do_not_carry_the_array_unless_forced() {
    let mut array = Array::new(Level::Raid5, 3);
    array.write(1, &[1, 2], |sb| sb.set_state(slot(0), SlotState::Faulty));
    let words = ["members that missed writes to start: slot 0", "force=1"];
    check(array.decide(&[0, 1], DEGRADED), Errno::Uclean, &words);
    let forced = Options {
        force: true,
        ..DEGRADED
    };
    assert_eq!(array.assembly(&[0, 1], forced).caught_up, set(&[0]));
}

#[test]
fn halves_that_ran_apart_are_refused() {
    for (first, second) in [(1, 1), (3, 1), (1, 3)] {
        let mut array = Array::new(Level::Raid1, 2);
        array.stop();
        for _ in 0..first {
            array.start(&[0]);
        }
        for _ in 0..second {
            array.start(&[1]);
        }
        for order in [[0, 1], [1, 0]] {
            let words = [
                "sda",
                "sdb",
                "ran without each other",
                "leave one out",
                "force=1",
            ];
            check(array.decide(&order, PLAIN), Errno::Uclean, &words);
            check(array.decide(&order, DEGRADED), Errno::Uclean, &words);
            let forced = array.assembly(&order, FORCE);
            assert_eq!(forced.in_sync.len(), 1, "one half, never a mix");
            let taken = forced.in_sync.first().unwrap();
            if first != second {
                assert_eq!(taken, slot(usize::from(second > first)), "the newer one");
            }
            assert_eq!(forced.members.iter().flatten().count(), 1);
        }
        assert!(array.decide(&[0], PLAIN).is_ok(), "each on its own starts");
    }
}

#[test]
fn an_old_image_is_refused_and_used_only_by_force() {
    let mut array = Array::new(Level::Raid5, 3);
    array.stop();
    let image = array.0[1].clone();
    array.start(&[0, 1, 2]);
    array.stop();
    array.0[1] = image;
    let words = [
        "sdb is out of date (generation 3, sda has 5)",
        "leave it out",
    ];
    check(array.decide(&[0, 1, 2], PLAIN), Errno::Inval, &words);
    // Left out while the others make up for it, taken when they do not.
    assert_eq!(array.assembly(&[0, 1, 2], FORCE).in_sync, set(&[0, 2]));
    assert_eq!(array.assembly(&[0, 2], DEGRADED).in_sync, set(&[0, 2]));
    let forced = Options {
        force: true,
        ..DEGRADED
    };
    assert_eq!(array.assembly(&[0, 1], forced).in_sync, set(&[0, 1]));
}

#[test]
fn an_old_image_of_a_failed_member_is_refused() {
    let mut array = Array::new(Level::Raid5, 3);
    let image = array.0[1].clone();
    array.stop();
    array.start(&[0, 1, 2]);
    array.stop();
    array.start(&[0, 2]);
    let current = array.0[1].clone();
    array.0[1] = image;
    check(
        array.decide(&[0, 1, 2], PLAIN),
        Errno::Inval,
        &["sdb is out of date"],
    );
    assert_eq!(array.assembly(&[0, 2], PLAIN).in_sync, set(&[0, 2]));
    // The member itself is taken back.
    array.0[1] = current;
    assert_eq!(array.assembly(&[0, 1, 2], PLAIN).caught_up, set(&[1]));
}

#[test]
fn a_member_being_rebuilt_is_no_redundancy() {
    let mut array = Array::new(Level::Raid5, 3);
    let offset = Sectors::new(128);
    array.write(0, &[0, 1, 2], |sb| {
        sb.set_state(slot(2), SlotState::Recovering(offset))
    });
    let assembly = array.assembly(&[0, 1, 2], PLAIN);
    assert_eq!(
        (assembly.in_sync, assembly.recovering),
        (set(&[0, 1]), set(&[2]))
    );
    assert_eq!(assembly.members[2], Some(2));
    assert!(
        matches!(array.decide(&[0, 1], PLAIN), Ok(Decision::Incomplete(_))),
        "waited for"
    );
    check(
        array.decide(&[0, 2], DEGRADED),
        Errno::NoDev,
        &["1 of 3 members in sync"],
    );

    // It fails before it is complete, and comes back: the map says what it lacks.
    array.write(0, &[0, 1], |sb| sb.set_state(slot(2), SlotState::Faulty));
    assert_eq!(standing(&array.0[0], &array.0[2]), Standing::Recovering);
    let assembly = array.assembly(&[0, 1, 2], PLAIN);
    assert_eq!(
        (assembly.in_sync, assembly.recovering, assembly.members[2]),
        (set(&[0, 1]), set(&[2]), Some(2))
    );
    assert!(assembly.absent(&array.0[0]).is_empty());
    assert!(
        matches!(array.decide(&[0, 1], PLAIN), Ok(Decision::Start(_))),
        "not waited for any more"
    );

    // An image of it, from before the array went through more than a crash explains.
    for _ in 0..3 {
        array.write(0, &[0, 1], |_| {});
    }
    array.write(0, &[0, 1], |sb| sb.set_state(slot(2), SlotState::Missing));
    assert_eq!(standing(&array.0[0], &array.0[2]), Standing::Outdated);
    // The slot was given to another one.
    array.write(0, &[0, 1], |sb| sb.slots[2].uuid = uuid(0x77));
    assert_eq!(standing(&array.0[0], &array.0[2]), Standing::Replaced);
}

#[test]
fn a_member_is_taken_back_while_the_array_runs() {
    let mut array = Array::new(Level::Raid5, 3);
    let rejoin_of = |array: &Array, member: usize, size| {
        let candidate = Candidate {
            name: "sdx",
            superblock: &array.0[member],
            size,
            read_only: false,
        };
        rejoin(&array.0[0], &candidate)
    };
    let busy = rejoin_of(&array, 2, SIZE).unwrap_err();
    assert_eq!(busy.errno, Errno::Busy);
    assert!(busy.as_str().contains("counts on slot 2"), "{busy}");
    array.write(0, &[0, 1], |sb| sb.set_state(slot(2), SlotState::Faulty));
    assert_eq!(
        rejoin_of(&array, 2, SIZE).ok(),
        Some(slot(2)),
        "it missed writes"
    );
    let small = rejoin_of(&array, 2, Sectors::new(4096)).unwrap_err();
    assert_eq!(small.errno, Errno::Inval, "{small}");

    // It is in, but fails before it has all.
    array.write(0, &[0, 1, 2], |sb| {
        sb.set_state(slot(2), SlotState::Recovering(Sectors::ZERO))
    });
    array.write(0, &[0, 1], |sb| sb.set_state(slot(2), SlotState::Faulty));
    assert!(rejoin_of(&array, 2, SIZE).is_ok(), "it goes on from there");

    // It ran on its own.
    let mut alone = Array::new(Level::Raid1, 2);
    alone.write(0, &[0], |sb| sb.set_state(slot(1), SlotState::Faulty));
    alone.write(1, &[1], |sb| sb.set_state(slot(0), SlotState::Faulty));
    assert_eq!(rejoin_of(&alone, 1, SIZE).unwrap_err().errno, Errno::Uclean);

    // Its slot was given to another one.
    array.write(0, &[0, 1], |sb| {
        sb.set_member(slot(2), uuid(0x77), SlotState::Recovering(Sectors::ZERO))
    });
    let replaced = rejoin_of(&array, 2, SIZE).unwrap_err();
    assert_eq!(replaced.errno, Errno::Inval);
    assert!(
        replaced.as_str().contains("belongs to another member"),
        "{replaced}"
    );
}

#[test]
fn spares_are_kept_and_take_over() {
    let mut array = Array::new(Level::Raid5, 3);
    let free = array.0[0].spare_slot().unwrap();
    assert_eq!(free, slot(3));
    array.write(0, &[0, 1, 2], |sb| {
        sb.set_member(slot(3), uuid(0x55), SlotState::Spare)
    });
    let mut spare = array.0[0].clone();
    spare.slot = slot(3);
    array.0.push(spare);
    assert_eq!(standing(&array.0[0], &array.0[3]), Standing::Spare);
    let assembly = array.assembly(&[0, 1, 2, 3], PLAIN);
    assert_eq!(
        (assembly.in_sync, assembly.spares, assembly.members[3]),
        (set(&[0, 1, 2]), set(&[3]), Some(3))
    );
    // Nobody waits for it.
    let assembly = array.assembly(&[0, 1, 2], PLAIN);
    assert!(assembly.spares.is_empty());

    // A member fails, and the spare takes over; the power fails before it knows.
    array.write(0, &[0, 1], |sb| sb.set_state(slot(2), SlotState::Faulty));
    array.write(0, &[0, 1], |sb| {
        sb.forget_spare(slot(3));
        sb.set_member(slot(2), uuid(0x55), SlotState::Recovering(Sectors::ZERO));
    });
    assert_eq!(array.0[0].spare_slot(), Some(slot(3)), "free again");
    assert_eq!(home_of(&array.0[0], &array.0[3]), slot(2));
    let assembly = array.assembly(&[0, 1, 3], PLAIN);
    assert_eq!(
        (assembly.in_sync, assembly.recovering, assembly.spares),
        (set(&[0, 1]), set(&[2]), SlotSet::EMPTY)
    );
    assert_eq!(assembly.members[2], Some(2), "the third candidate");
    check(
        array.decide(&[0, 1, 2, 3], PLAIN),
        Errno::Inval,
        &["was replaced"],
    );
}

#[test]
fn doubtful_regions_need_force() {
    let array = Array::new(Level::Raid5, 3);
    let assembly = array.assembly(&[0, 1], DEGRADED);
    let superblock = &array.0[0];
    assert!(assembly.check_doubt(superblock, 0, PLAIN).is_ok());
    assert!(assembly.check_doubt(superblock, 7, FORCE).is_ok());
    let refusal = assembly.check_doubt(superblock, 7, DEGRADED).unwrap_err();
    assert_eq!(refusal.errno, Errno::Uclean);
    assert!(
        refusal.as_str().contains("7 regions cannot be vouched for"),
        "{refusal}"
    );
    assert!(refusal.as_str().contains("force=1"), "{refusal}");
    let mirror = Array::new(Level::Raid1, 2);
    let assembly = mirror.assembly(&[0], DEGRADED);
    assert!(
        assembly.check_doubt(&mirror.0[0], 7, PLAIN).is_ok(),
        "a copy is a copy"
    );
}

#[test]
fn unreadable_superblocks() {
    for (error, errno) in [
        (SbError::NotOurs, Errno::Inval),
        (SbError::Crc, Errno::Inval),
        (SbError::Nonsense("has a funny superblock"), Errno::Inval),
        (SbError::Version, Errno::OpNotSupp),
        (SbError::UnknownFeature, Errno::OpNotSupp),
    ] {
        let refusal = unreadable("sdx", error);
        assert_eq!(refusal.errno, errno);
        assert_eq!(refusal.as_str(), format!("sdx {}", error.as_str()));
    }
}

/// An array with a history: which acknowledged writes each member holds.
struct World {
    array: Array,
    writes: Vec<Vec<u32>>,
    next: u32,
    /// Members of the running array.
    live: Vec<usize>,
    /// Superblock writes in a row that did not reach a member because the power failed.
    cut: Vec<usize>,
    /// An array was started without a member that knew more.
    forked: bool,
    /// The members that lack writes, which the map says.
    stale: SlotSet,
}

impl World {
    fn new(level: Level, members: usize) -> World {
        World {
            array: Array::new(level, members),
            writes: vec![Vec::new(); members],
            next: 0,
            live: (0..members).collect(),
            cut: vec![0; members],
            forked: false,
            stale: SlotSet::EMPTY,
        }
    }

    fn needed(&self) -> usize {
        let geometry = &self.array.0[0].geometry;
        usize::from(geometry.members() - geometry.parity())
    }

    /// Whether no two members hold acknowledged writes which the other lacks.
    fn one_history(&self) -> bool {
        self.writes.iter().all(|a| {
            self.writes
                .iter()
                .all(|b| a.starts_with(b) || b.starts_with(a))
        })
    }

    fn write(&mut self) {
        for member in &self.live {
            self.writes[*member].push(self.next);
        }
        self.next += 1;
    }

    /// Writes the superblock to the live members; after `reach` of them the power fails.
    fn record(&mut self, reach: usize, change: impl FnOnce(&mut Superblock)) {
        let from = self.live[0];
        let (reached, cut) = self.live.split_at(reach.min(self.live.len()));
        self.array.write(from, reached, change);
        for member in reached {
            self.cut[*member] = 0;
        }
        for member in cut.iter().filter(|_| !reached.is_empty()) {
            self.cut[*member] += 1;
        }
        if !cut.is_empty() {
            self.live.clear();
        }
    }

    /// A member fails, if that can be borne.
    fn fail(&mut self, index: usize, reach: usize) {
        if self.live.len() > self.needed() {
            let member = self.live.remove(index % self.live.len());
            self.record(reach, |sb| sb.set_state(slot(member), SlotState::Faulty));
        }
    }

    fn stop(&mut self, reach: usize) {
        self.record(reach, |sb| sb.active = false);
        self.live.clear();
    }

    /// Tries to start with some members, and checks that what starts may.
    fn start(&mut self, members: &[usize], options: Options, reach: usize) {
        let decided = self.array.decide(members, options);
        // Power that fails twice in a row during a superblock write looks like an old image.
        let expected = self.one_history() && !self.forked && self.cut.iter().all(|c| *c < 2);
        if members.len() == self.writes.len() && expected {
            let started = matches!(decided, Ok(Decision::Start(_)));
            assert!(started, "all are there and none ran apart: {decided:?}");
        }
        let Ok(Decision::Start(assembly)) = decided else {
            return;
        };
        let base = members[assembly.base];
        if self.stale.contains(slot(base)) {
            // It knows that it lacks something and answers no read of that.
            return;
        }
        let newest = self.array.0[base].generation;
        self.forked |= self.array.0.iter().any(|sb| sb.generation > newest);
        let history = self.writes[base].clone();
        let behind = self.stale.union(assembly.caught_up);
        for slot in assembly.in_sync {
            let held = &self.writes[slot.index()];
            if behind.contains(slot) {
                assert!(
                    history.starts_with(held),
                    "slot {slot} holds what the array lacks"
                );
            } else {
                assert_eq!(
                    *held, history,
                    "slot {slot} is behind or ahead of slot {base}"
                );
            }
        }
        self.stale = behind;
        // Those that knew of every write learn first who is taken back.
        let current = assembly
            .in_sync
            .minus(assembly.caught_up)
            .without(slot(base));
        let order = [SlotSet::single(slot(base)), current, assembly.caught_up];
        self.live = order.into_iter().flatten().map(Slot::index).collect();
        // Taken in again but not told so, a member is as old as it was before it left.
        for slot in assembly.caught_up {
            self.cut[slot.index()] += 1;
        }
        let absent = assembly.absent(&self.array.0[self.live[0]]);
        self.record(reach, |sb| {
            for slot in absent
                .iter()
                .filter(|s| sb.record(*s).state == SlotState::InSync)
                .collect::<SlotSet>()
            {
                sb.set_state(slot, SlotState::Missing);
            }
            for slot in assembly.caught_up {
                sb.set_state(slot, SlotState::InSync);
            }
            sb.active = true;
        });
        for member in &self.live {
            self.writes[*member] = history.clone();
            self.stale.remove(slot(*member));
        }
    }
}

proptest! {
    #![proptest_config(support::config(5000))]

    /// Whatever happens, and with whichever members: an array that starts has every write that was
    /// acknowledged by the members it believes, and no other; and one that never ran apart starts
    /// when all of its members are there.
    #[test]
    fn random_histories(
        shape in prop::sample::select(vec![
            (Level::Raid1, 2), (Level::Raid1, 3), (Level::Raid5, 3), (Level::Raid5, 5),
            (Level::Raid6, 5), (Level::Raid0, 2),
        ]),
        actions in prop::collection::vec((0u8..10, any::<u32>(), 0usize..12), 1..60),
    ) {
        let (level, members) = shape;
        let mut world = World::new(level, members);
        for (action, random, reach) in actions {
            // Mostly the power stays.
            let reach = if reach > 5 { usize::MAX } else { reach };
            let running = !world.live.is_empty();
            match action {
                0..=3 if running => world.write(),
                4 if running => world.fail(random as usize, reach),
                5 if running => world.stop(reach),
                6 if running => world.live.clear(),
                7..=9 if !running => {
                    let options = Options { degraded: random & 1 == 1, ..PLAIN };
                    let all = action == 9 || random & 6 == 0;
                    let mut there: Vec<usize> =
                        (0..members).filter(|m| all || random >> (m + 8) & 1 == 1).collect();
                    let turn = random as usize % there.len().max(1);
                    there.rotate_left(turn);
                    world.start(&there, options, reach);
                }
                _ => {}
            }
        }
    }
}
