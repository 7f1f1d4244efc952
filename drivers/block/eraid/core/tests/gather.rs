// SPDX-License-Identifier: GPL-2.0

//! Gathered reads against members that fail, are late and vanish in any order.

mod common;

use common::Rng;
use eraid_core::gather::{Answer, Gather, Grains, Lane, Manner, Opening, Part, Window};
use eraid_core::geometry::{Geometry, Level, Piece};
use eraid_core::units::{Sector, Sectors, Slot, SlotSet};
use std::collections::{BTreeMap, BTreeSet};

/// Sectors of a physical block.
const BLOCK: u64 = 8;

fn slot(number: u8) -> Slot {
    Slot::new(number).unwrap()
}

/// Blocks of members that cannot be read without retries, and those that cannot at all.
#[derive(Default)]
struct Faults {
    fast: BTreeSet<(Slot, u64)>,
    slow: BTreeSet<(Slot, u64)>,
}

/// A read of an array in which things go wrong.
struct Rig {
    geometry: Geometry,
    window: Window,
    pieces: Vec<(Piece, Slot)>,
    lanes: Vec<Lane>,
    decodes: Grains,
    faults: Faults,
    usable: SlotSet,
    /// Sectors, from the window's beginning, that a member's buffer truly has.
    buffers: BTreeMap<Slot, BTreeSet<u32>>,
    in_flight: Vec<(Slot, Part, Manner)>,
    asked: Vec<(Slot, Part, Manner)>,
    prefixes: bool,
}

impl Rig {
    fn new(level: Level, members: u8, chunk: u64, start: u64, len: u64) -> Rig {
        let size = Sectors::new(chunk * 128);
        let geometry = Geometry::new(level, members, Sectors::new(chunk), size).unwrap();
        let (start, len) = (Sector::new(start), Sectors::new(len));
        let (window, taken) = Window::of_read(&geometry, start, len, 1024).unwrap();
        Rig {
            window,
            pieces: geometry.pieces(start, taken).map(|p| (p, p.slot)).collect(),
            lanes: vec![Lane::EMPTY; usize::from(members)],
            decodes: Grains::NONE,
            faults: Faults::default(),
            usable: geometry.all_slots(),
            buffers: BTreeMap::new(),
            in_flight: Vec::new(),
            asked: Vec::new(),
            prefixes: true,
            geometry,
        }
    }

    fn gather(&mut self) -> Gather<'_> {
        Gather {
            geometry: &self.geometry,
            window: &self.window,
            lanes: &mut self.lanes,
            decodes: &mut self.decodes,
        }
    }

    fn begin(&mut self, avoided: SlotSet, decodes: bool, opening: Opening) {
        let (usable, pieces) = (self.usable, self.pieces.clone());
        let stripes: Vec<_> = self.window.stripes(&self.geometry).collect();
        let mut gather = self.gather();
        gather.clear();
        for stripe in stripes {
            gather.set_place(stripe, usable, decodes);
        }
        gather.set_avoided(avoided);
        for (piece, slot) in &pieces {
            gather.want(piece, *slot);
        }
        gather.open(opening);
    }

    /// Sends what is to be sent; returns whether the read is complete, and whether it is lost.
    fn step(&mut self) -> (bool, bool) {
        let next = self.gather().decide();
        for slot in next.promote.iter() {
            for (_, _, manner) in self.in_flight.iter_mut().filter(|c| c.0 == slot) {
                manner.extra = false;
            }
        }
        self.gather().promoted(next.promote);
        for slot in next.ask.iter() {
            let (part, manner) = self.gather().take_request(slot).expect("asked for nothing");
            assert!(part.len > 0 && part.offset + part.len <= self.window.len);
            assert!(!self.in_flight.iter().any(|c| c.0 == slot), "one at a time");
            self.in_flight.push((slot, part, manner));
            self.asked.push((slot, part, manner));
        }
        assert!(next.lost || next.waits || next.is_complete());
        (next.is_complete(), next.lost)
    }

    fn block(&self, sector: u32) -> u64 {
        (self.window.at.get() + u64::from(sector)) / BLOCK
    }

    /// The drive ends the command number `index`.
    fn answer(&mut self, index: usize) {
        let (slot, part, manner) = self.in_flight.swap_remove(index);
        let faults = match manner.retries {
            true => &self.faults.slow,
            false => &self.faults.fast,
        };
        let sectors = part.offset..part.offset + part.len;
        let bad = sectors
            .clone()
            .find(|s| faults.contains(&(slot, self.block(*s))));
        let (good, answer) = match bad {
            None => (sectors.end, Answer::All),
            Some(bad) if self.prefixes => (bad, Answer::Prefix(bad - part.offset)),
            Some(_) => (part.offset, Answer::Error),
        };
        let buffer = self.buffers.entry(slot).or_default();
        // A device may have written anything to what it did not deliver, whatever was there before.
        buffer.retain(|sector| !sectors.contains(sector));
        buffer.extend(sectors.start..good);
        self.gather().came(slot, answer);
    }

    fn lose(&mut self, index: usize) {
        let (slot, _, _) = self.in_flight.swap_remove(index);
        self.buffers.remove(&slot);
        self.gather().came(slot, Answer::Lost);
    }

    /// Whether the members' buffers have all sectors of a part.
    fn holds(&self, slot: Slot, part: Part) -> bool {
        let buffer = self.buffers.get(&slot);
        (part.offset..part.offset + part.len).all(|s| buffer.is_some_and(|b| b.contains(&s)))
    }

    /// Takes what came, and checks that everything did.
    fn finish(&mut self) {
        let members = self.geometry.all_slots();
        for slot in members.iter() {
            let came = self.gather().deliver(slot);
            if !came.is_empty() {
                assert!(self.in_flight.iter().all(|c| c.0 != slot), "a busy buffer");
            }
        }
        for (piece, slot) in self.pieces.clone() {
            let part = Part {
                offset: (piece.at.get() - self.window.at.get()) as u32,
                len: piece.len,
            };
            let delivered = !self.gather().lacks(&piece, slot);
            assert!(!delivered || self.holds(slot, part), "{slot} has not all");
        }
        while let Some(decode) = self.gather().to_decode() {
            let part = self.window.part(decode.grains);
            let needed = u32::from(self.geometry.data_columns());
            assert!(decode.from.len() >= needed && decode.from.is_subset(self.usable));
            assert!(!decode.missing.is_empty());
            for slot in decode.from.iter() {
                assert!(self.holds(slot, part), "{slot} does not have {part:?}");
                assert!(self.in_flight.iter().all(|c| c.0 != slot), "a busy buffer");
            }
            if self.geometry.level() != Level::Raid1 {
                let data = self
                    .geometry
                    .data_slots(decode.stripe, 0, (needed - 1) as u8);
                assert_eq!(decode.missing, data.minus(decode.from));
                let parity = decode.from.minus(data).len();
                assert!(parity >= decode.missing.len());
            }
            let mut gather = self.gather();
            gather.decoded(&decode);
            for slot in decode.missing.iter() {
                gather.deliver(slot);
            }
        }
        for (piece, slot) in self.pieces.clone() {
            assert!(!self.gather().lacks(&piece, slot), "{piece:?} is missing");
        }
    }

    /// Whether nobody could have read all of the request.
    fn is_hopeless(&self, decodes: bool) -> bool {
        self.pieces.iter().any(|(piece, slot)| {
            let blocks =
                piece.at.get() / BLOCK..(piece.at.get() + u64::from(piece.len)).div_ceil(BLOCK);
            blocks.clone().any(|block| {
                let reads = |slot: &Slot| {
                    self.usable.contains(*slot) && !self.faults.slow.contains(&(*slot, block))
                };
                let others = self.geometry.all_slots().iter().filter(reads).count();
                let enough = decodes && others >= usize::from(self.geometry.data_columns());
                !reads(slot) && !enough
            })
        })
    }

    /// Lets everything be answered in order; returns whether the read was complete.
    fn run(&mut self) -> bool {
        loop {
            match self.step() {
                (true, _) => {
                    self.finish();
                    return true;
                }
                (_, true) if self.in_flight.is_empty() => return false,
                _ => self.answer(0),
            }
        }
    }

    fn commands(&self) -> usize {
        self.asked.len()
    }
}

/// RAID-5 of six with chunks of 8 KiB, as in the benchmarks.
fn six(start: u64, len: u64) -> Rig {
    Rig::new(Level::Raid5, 6, 16, start, len)
}

const WANTED: Opening = Opening::Wanted(Manner::FAST);

#[test]
fn a_healthy_read_asks_whom_it_wants() {
    let mut rig = six(0, 48);
    rig.begin(SlotSet::EMPTY, true, WANTED);
    assert!(rig.run());
    assert_eq!(rig.commands(), 3);
    assert!(rig
        .asked
        .iter()
        .all(|c| c.2 == Manner::FAST && c.1.len == 16));
}

#[test]
fn one_command_a_member_over_several_stripes() {
    let mut rig = six(16, 160);
    rig.begin(SlotSet::EMPTY, true, WANTED);
    assert!(rig.run());
    assert_eq!(rig.commands(), 6);
}

#[test]
fn an_error_asks_only_for_what_is_missing_of_the_others() {
    let mut rig = six(0, 48);
    // The second block of the second chunk.
    let (bad, _) = rig.pieces[1];
    rig.faults.fast.insert((bad.slot, bad.at.get() / BLOCK + 1));
    rig.begin(SlotSet::EMPTY, true, WANTED);
    assert!(rig.run());
    assert_eq!(rig.commands(), 3 + 3, "three others complete the row");
    assert!(rig.asked[3..]
        .iter()
        .all(|c| c.1 == Part { offset: 8, len: 8 }));
    // Without a known prefix both blocks are in doubt.
    let mut rig = six(0, 48);
    rig.prefixes = false;
    rig.faults.fast.insert((bad.slot, bad.at.get() / BLOCK + 1));
    rig.begin(SlotSet::EMPTY, true, WANTED);
    assert!(rig.run());
    assert!(rig.asked[3..]
        .iter()
        .all(|c| c.1 == Part { offset: 0, len: 16 }));
}

#[test]
fn the_drive_retries_when_the_others_fail_too() {
    let mut rig = six(0, 16);
    let (piece, own) = rig.pieces[0];
    let block = piece.at.get() / BLOCK;
    rig.faults.fast.insert((own, block));
    rig.faults.fast.insert((slot(3), block));
    rig.begin(SlotSet::EMPTY, true, WANTED);
    assert!(rig.run());
    let retried: Vec<_> = rig
        .asked
        .iter()
        .filter(|c| c.2 == Manner::PATIENT)
        .collect();
    assert_eq!(retried.len(), 1);
    assert_eq!(
        (retried[0].0, retried[0].1),
        (own, Part { offset: 0, len: 8 })
    );
}

#[test]
fn no_more_retries_than_needed() {
    // All six members want the whole of two stripes; two fail in the same row, and one of them
    // before that, so that the rest of it did not come.
    let mut rig = six(0, 160);
    let at = rig.window.at.get() / BLOCK;
    let (a, b) = (slot(1), slot(3));
    rig.faults
        .fast
        .extend([(a, at + 1), (a, at + 2), (b, at + 2)]);
    rig.begin(SlotSet::EMPTY, true, WANTED);
    assert!(rig.run());
    let retried: Vec<_> = rig
        .asked
        .iter()
        .filter(|c| c.2 == Manner::PATIENT)
        .collect();
    assert_eq!(
        retried.len(),
        1,
        "of two in one row one is enough: {:?}",
        rig.asked
    );
    assert_eq!(
        retried[0].1,
        Part { offset: 16, len: 8 },
        "and only what failed"
    );
}

#[test]
fn a_long_rest_is_read_again_from_its_member() {
    let mut rig = Rig::new(Level::Raid5, 6, 128, 0, 128);
    let (piece, own) = rig.pieces[0];
    rig.faults.fast.insert((own, piece.at.get() / BLOCK + 2));
    rig.begin(SlotSet::EMPTY, true, WANTED);
    assert!(rig.run());
    let again: Vec<_> = rig.asked[1..].iter().filter(|c| c.0 == own).collect();
    assert_eq!(again.len(), 1);
    assert_eq!(
        again[0].1,
        Part {
            offset: 24,
            len: 104
        }
    );
    let others: Vec<_> = rig.asked[1..].iter().filter(|c| c.0 != own).collect();
    assert_eq!(others.len(), 5);
    assert!(others.iter().all(|c| c.1 == Part { offset: 16, len: 8 }));
}

#[test]
fn without_redundancy_drives_may_retry() {
    let mut rig = six(0, 48);
    rig.usable.remove(rig.pieces[2].1);
    rig.begin(SlotSet::EMPTY, true, WANTED);
    assert!(rig.run());
    assert_eq!(rig.commands(), 5, "each of the others once");
    assert!(rig.asked.iter().all(|c| c.2 == Manner::PATIENT));
}

#[test]
fn extra_commands_are_promoted_when_the_others_do_not_suffice() {
    let mut rig = six(0, 48);
    let (bad, _) = rig.pieces[0];
    rig.faults.fast.insert((bad.slot, bad.at.get() / BLOCK));
    rig.begin(SlotSet::EMPTY, true, Opening::Everybody(Manner::EXTRA));
    assert_eq!(rig.step(), (false, false));
    assert_eq!(rig.in_flight.iter().filter(|c| c.2.extra).count(), 3);
    assert_eq!(rig.gather().quorum(), Some(5));
    let index = rig.in_flight.iter().position(|c| c.0 == bad.slot).unwrap();
    rig.answer(index);
    assert_eq!(rig.step(), (false, false));
    assert!(rig.in_flight.iter().all(|c| !c.2.extra), "promoted");
    assert!(rig.run());
    assert_eq!(rig.commands(), 6);
}

#[test]
fn any_five_of_six_are_enough() {
    let mut rig = six(0, 160);
    rig.begin(SlotSet::EMPTY, true, Opening::Everybody(Manner::EXTRA));
    rig.step();
    assert_eq!(rig.commands(), 6);
    for _ in 0..5 {
        assert!(!rig.step().0);
        rig.answer(0);
    }
    assert!(rig.step().0);
    assert_eq!(rig.gather().pending().len(), 1);
    rig.lose(0);
    assert!(rig.step().0, "nothing that is needed went with it");
    rig.finish();
}

#[test]
fn late_members_are_done_without() {
    let mut rig = six(0, 16);
    let (_, own) = rig.pieces[0];
    rig.begin(SlotSet::EMPTY, true, WANTED);
    rig.step();
    rig.gather().set_late();
    rig.step();
    assert_eq!(rig.commands(), 6);
    while rig.in_flight.len() > 1 {
        let other = rig.in_flight.iter().position(|c| c.0 != own).unwrap();
        assert!(!rig.step().0);
        rig.answer(other);
    }
    assert!(rig.step().0);
}

#[test]
fn a_member_left_out_helps_when_another_is_late() {
    let mut rig = six(0, 16);
    let left_out = slot(4);
    rig.begin(
        SlotSet::single(left_out),
        true,
        Opening::Everybody(Manner::FAST),
    );
    rig.step();
    assert!(rig.asked.iter().all(|c| c.0 != left_out));
    let late = rig.in_flight[0].0;
    while let Some(other) = rig.in_flight.iter().position(|c| c.0 != late) {
        rig.answer(other);
    }
    assert!(
        !rig.gather().can_do_without_pending(),
        "all others are needed"
    );
    rig.gather().set_avoided(SlotSet::EMPTY);
    assert!(rig.gather().can_do_without_pending());
    rig.gather().set_late();
    rig.step();
    assert_eq!(rig.asked.last().unwrap().0, left_out);
}

#[test]
fn avoided_members_are_the_last_ditch() {
    let mut rig = six(0, 16);
    let (piece, own) = rig.pieces[0];
    rig.faults.slow.insert((slot(3), piece.at.get() / BLOCK));
    rig.faults.fast.insert((slot(3), piece.at.get() / BLOCK));
    rig.begin(SlotSet::single(own), true, WANTED);
    assert!(rig.run());
    assert!(rig.asked[..5].iter().all(|c| c.0 != own));
    assert_eq!(rig.asked[5].0, own);
    assert_eq!(rig.commands(), 7, "and the third one's other block");
}

#[test]
fn without_a_spare_one_each_member_is_asked_once() {
    for (start, own) in (0..30).flat_map(|chunk| (0..6).map(move |n| (chunk * 16, slot(n)))) {
        // Its drives may retry, for nobody else could answer; the avoided one may be there or not.
        for there in [true, false] {
            let mut rig = six(start, 80);
            if !there {
                rig.usable.remove(own);
            }
            let patient = Opening::Wanted(Manner::PATIENT);
            rig.begin(SlotSet::single(own), true, patient);
            assert!(rig.run());
            let asked: SlotSet = rig.asked.iter().map(|c| c.0).collect();
            assert_eq!(rig.commands(), asked.len() as usize, "{:?}", rig.asked);
            assert!(!asked.contains(own) && rig.asked.iter().all(|c| c.2.retries));
        }
    }
}

#[test]
fn as_few_avoided_members_as_can_be() {
    let mut rig = Rig::new(Level::Raid6, 6, 16, 0, 16);
    let (_, own) = rig.pieces[0];
    rig.usable.remove(own);
    let others = rig.geometry.all_slots().without(own);
    let avoided: SlotSet = others.iter().take(2).collect();
    rig.begin(avoided, true, WANTED);
    assert!(rig.run());
    assert_eq!(rig.commands(), 4);
    assert_eq!(
        rig.asked.iter().filter(|c| avoided.contains(c.0)).count(),
        1
    );
}

#[test]
fn nothing_is_decoded_where_parity_may_be_wrong() {
    let mut rig = six(0, 16);
    let (piece, own) = rig.pieces[0];
    rig.faults.fast.insert((own, piece.at.get() / BLOCK));
    rig.faults.slow.insert((own, piece.at.get() / BLOCK));
    rig.begin(SlotSet::EMPTY, false, WANTED);
    assert!(!rig.run());
    assert!(rig.asked.iter().all(|c| c.0 == own));
}

#[test]
fn another_copy_answers() {
    let mut rig = Rig::new(Level::Raid1, 3, 16, 3, 20);
    rig.faults.fast.extend((0..4).map(|block| (slot(0), block)));
    rig.begin(SlotSet::EMPTY, true, WANTED);
    assert!(rig.run());
    assert_eq!(rig.commands(), 2);
    assert_eq!(rig.asked[1].1, Part { offset: 0, len: 20 });
}

#[test]
fn windows_fit_and_cover() {
    let mut rng = Rng::for_test("windows_fit_and_cover");
    for _ in 0..20_000 {
        let level = rng.pick(&[Level::Raid1, Level::Raid5, Level::Raid6]);
        let members = rng.between(4, 9) as u8;
        let chunk = 8 << rng.below(11);
        let geometry = Geometry::new(
            level,
            members,
            Sectors::new(chunk),
            Sectors::new(chunk * 99),
        )
        .unwrap();
        let capacity = geometry.capacity().get();
        let start = rng.below(capacity);
        let len = rng.between(1, (capacity - start).min(5000));
        let max = rng.between(8, 1024) as u32;
        let (start, len) = (Sector::new(start), Sectors::new(len));
        let (window, taken) = Window::of_read(&geometry, start, len, max).unwrap();
        assert!(taken.get() > 0 && taken <= len);
        assert!(window.len <= max);
        assert_eq!(
            window.part(window.all()),
            Part {
                offset: 0,
                len: window.len
            }
        );
        for piece in geometry.pieces(start, taken) {
            assert!(piece.at >= window.at);
            let end = piece.at.get() + u64::from(piece.len);
            assert!(end <= window.at.get() + u64::from(window.len));
        }
    }
}

#[test]
fn whatever_happens() {
    let mut rng = Rng::for_test("whatever_happens");
    let (mut complete, mut lost) = (0, 0);
    for round in 0..30_000 {
        let level = rng.pick(&[Level::Raid1, Level::Raid5, Level::Raid6]);
        let members = rng.between(4, 8) as u8;
        let chunk = 8 << rng.below(5);
        let start = rng.below(chunk * 20);
        let len = rng.between(1, 400);
        let mut rig = Rig::new(level, members, chunk, start, len);
        rig.prefixes = rng.once_in(2);
        let all = rig.geometry.all_slots();
        for slot in all.iter() {
            if rng.once_in(12) {
                rig.usable.remove(slot);
            }
        }
        if level == Level::Raid1 {
            let Some(copy) = rig.usable.first() else {
                continue;
            };
            rig.pieces.iter_mut().for_each(|(_, slot)| *slot = copy);
        }
        let (fast, slow) = (rng.pick(&[3, 10, 100]), rng.pick(&[2, 5, 50]));
        let blocks =
            rig.window.at.get() / BLOCK..=(rig.window.at.get() + u64::from(rig.window.len)) / BLOCK;
        for (block, slot) in blocks.flat_map(|block| all.iter().map(move |slot| (block, slot))) {
            if rng.once_in(fast) {
                rig.faults.fast.insert((slot, block));
                if rng.once_in(slow) {
                    rig.faults.slow.insert((slot, block));
                }
            }
        }
        let avoided: SlotSet = all.iter().filter(|_| rng.once_in(8)).collect();
        let decodes = !rng.once_in(8);
        let opening = rng.pick(&[
            WANTED,
            Opening::Wanted(Manner::PATIENT),
            Opening::Everybody(Manner::EXTRA),
            Opening::Everybody(Manner::FAST),
        ]);
        rig.begin(avoided, decodes, opening);
        let disturbed = rng.once_in(2);
        let mut losses = 0;
        let ended = (0..10_000).any(|_| {
            let (done, gone) = rig.step();
            if done {
                // What is still on its way is withdrawn.
                while !rig.in_flight.is_empty() {
                    rig.lose(0);
                }
                if rig.step().0 {
                    rig.finish();
                    complete += 1;
                    return true;
                }
                losses += 1;
            }
            if gone && rig.in_flight.is_empty() {
                // Without a prefix blocks that are read together fail together.
                let excused = losses > 0 || !rig.prefixes;
                assert!(
                    excused || rig.is_hopeless(decodes),
                    "round {round}: given up"
                );
                lost += 1;
                return true;
            }
            if disturbed && rng.once_in(6) {
                rig.gather().set_late();
                return false;
            }
            if rig.in_flight.is_empty() {
                return false;
            }
            let index = rng.below(rig.in_flight.len() as u64) as usize;
            if disturbed && rng.once_in(15) {
                losses += 1;
                rig.lose(index);
            } else {
                rig.answer(index);
            }
            false
        });
        assert!(ended, "round {round}: no end");
    }
    assert!(complete > 10_000 && lost > 500, "{complete} {lost}");
}
