// SPDX-License-Identifier: GPL-2.0

//! The line for memory, against members that answer in any order or not at all.

mod support;

use eraid_core::line::{Amount, Line, Waiter};
use eraid_core::units::{Slot, SlotSet};
use proptest::prelude::*;

const MEMBERS: u8 = 4;
const FREE: Amount = Amount {
    commands: 40,
    pages: 64,
};

fn amount(commands: usize, pages: usize) -> Amount {
    Amount { commands, pages }
}

fn slots(bits: u64) -> SlotSet {
    SlotSet::from_bits(bits)
}

/// An operation with one command, of so many pages, for each of its slots.
#[derive(Clone, Copy, Debug)]
struct Op {
    slots: SlotSet,
    pages: usize,
    /// Slots whose command has not come back.
    out: SlotSet,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waits,
    Runs,
    Done,
}

struct World {
    line: Line<Vec<Waiter>>,
    free: Amount,
    load: Vec<Amount>,
    ops: Vec<Op>,
    /// Operations that were woken and did not ask yet.
    woken: Vec<usize>,
}

impl World {
    fn new(ops: usize) -> World {
        World {
            line: Line::new(vec![Waiter::NONE; ops]),
            free: FREE,
            load: vec![Amount::default(); usize::from(MEMBERS)],
            ops: Vec::new(),
            woken: Vec::new(),
        }
    }

    fn next(&mut self, changed: SlotSet) {
        let woken = &mut self.woken;
        self.line
            .next(self.free, changed, &mut |op| woken.push(op as usize));
    }

    fn arrive(&mut self, slots: SlotSet, pages: usize) {
        self.ops.push(Op {
            slots,
            pages,
            out: SlotSet::EMPTY,
            state: State::Waits,
        });
        self.ask(self.ops.len() - 1);
    }

    fn ask(&mut self, index: usize) {
        let Op {
            slots,
            pages,
            state,
            ..
        } = self.ops[index];
        if state != State::Waits {
            return;
        }
        let count = slots.len() as usize;
        let need = amount(count, count * pages);
        let more = amount(1, pages);
        let over = slots
            .iter()
            .filter(|s| self.load[s.index()].exceeds_share(more, need, self.free));
        let over = over.collect();
        match self.line.ask(index as u32, slots, need, self.free, over) {
            Err(released) => self.next(released),
            Ok(()) => {
                self.free.commands -= need.commands;
                self.free.pages -= need.pages;
                for slot in slots.iter() {
                    self.load[slot.index()].commands += 1;
                    self.load[slot.index()].pages += pages;
                }
                (self.ops[index].out, self.ops[index].state) = (slots, State::Runs);
                self.next(slots);
            }
        }
    }

    /// A command comes back; the operation ends with the last one, and gives all back.
    fn answer(&mut self, index: usize, slot: Slot) {
        let op = &mut self.ops[index];
        op.out.remove(slot);
        self.load[slot.index()].commands -= 1;
        self.load[slot.index()].pages -= op.pages;
        self.next(SlotSet::single(slot));
        let op = &mut self.ops[index];
        let Op {
            slots, pages, out, ..
        } = *op;
        if !out.is_empty() {
            return;
        }
        op.state = State::Done;
        for slot in slots.iter() {
            self.free.commands += 1;
            self.free.pages += pages;
            self.next(SlotSet::single(slot));
        }
    }

    /// Lets things happen, in an order that `choices` makes, until nothing does.
    fn settle(&mut self, hung: SlotSet, choices: &mut impl Iterator<Item = usize>) {
        loop {
            let answers: Vec<_> = (self.ops.iter().enumerate())
                .flat_map(|(i, op)| op.out.minus(hung).iter().map(move |slot| (i, slot)))
                .collect();
            let events = self.woken.len() + answers.len();
            if events == 0 {
                return;
            }
            let event = choices.next().unwrap() % events;
            if event < self.woken.len() {
                let op = self.woken.swap_remove(event);
                self.ask(op);
            } else {
                let (op, slot) = answers[event - self.woken.len()];
                self.answer(op, slot);
            }
        }
    }

    fn left(&self, hung: SlotSet) -> Vec<Op> {
        let ops = self.ops.iter().copied();
        let free = |op: &Op| op.slots.intersect(hung).is_empty();
        ops.filter(|op| op.state != State::Done && free(op))
            .collect()
    }
}

/// Numbers that look random, from a seed.
fn numbers(seed: u64) -> impl Iterator<Item = usize> {
    let mut state = seed | 1;
    std::iter::repeat_with(move || {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as usize
    })
}

proptest! {
    #![proptest_config(support::config(1500))]

    /// Nobody is forgotten: as long as members answer, no other wake is needed.
    #[test]
    fn all_are_served(
        ops in prop::collection::vec((1u64..1 << MEMBERS, 0usize..9), 1..120),
        seed in any::<u64>(),
    ) {
        let mut world = World::new(ops.len());
        let mut choices = numbers(seed);
        for (bits, pages) in ops {
            world.arrive(slots(bits), pages);
            if choices.next().unwrap() % 8 == 0 {
                world.settle(SlotSet::EMPTY, &mut choices);
            }
        }
        world.settle(SlotSet::EMPTY, &mut choices);
        prop_assert!(world.left(SlotSet::EMPTY).is_empty());
        prop_assert_eq!(world.free, FREE);
        prop_assert_eq!(world.line.get(0), None);
    }

    /// Whatever wants members that hang, what does not want them is served.
    #[test]
    fn hung_members_keep_their_share(
        hung in 1u64..(1 << MEMBERS) - 1,
        ops in prop::collection::vec((1u64..1 << MEMBERS, 0usize..5), 1..200),
        seed in any::<u64>(),
    ) {
        let hung = slots(hung);
        let mut world = World::new(ops.len() + 50);
        let mut choices = numbers(seed);
        for (bits, pages) in ops {
            world.arrive(slots(bits), pages);
            if choices.next().unwrap() % 4 == 0 {
                world.settle(hung, &mut choices);
            }
        }
        let healthy = slots((1 << MEMBERS) - 1).minus(hung);
        for _ in 0..50 {
            let turn = choices.next().unwrap() % healthy.len() as usize;
            world.arrive(SlotSet::single(healthy.iter().nth(turn).unwrap()), 1);
            world.settle(hung, &mut choices);
        }
        prop_assert!(world.left(hung).is_empty(), "{:?}", world.left(hung));
    }
}

/// Whom the line wakes.
fn next(line: &Line<Vec<Waiter>>, free: Amount, changed: u64) -> Vec<u32> {
    let mut woken = Vec::new();
    line.next(free, slots(changed), &mut |op| woken.push(op));
    woken
}

#[test]
fn only_who_wants_the_member_waits_for_it() {
    let mut line = Line::new(vec![Waiter::NONE; 4]);
    let free = amount(8, 8);
    let ask = |line: &mut Line<_>, op, bits, over| {
        line.ask(op, slots(bits), amount(1, 1), free, slots(over))
    };
    assert_eq!(ask(&mut line, 0, 0b011, 0b001), Err(SlotSet::EMPTY));
    assert_eq!(
        ask(&mut line, 1, 0b001, 0),
        Err(SlotSet::EMPTY),
        "behind the other"
    );
    assert_eq!(
        ask(&mut line, 2, 0b010, 0),
        Ok(()),
        "has nothing to do with it"
    );
    assert_eq!(next(&line, free, 0b110), []);
    assert_eq!(next(&line, free, 0b001), [0]);
    // Now it waits for another member, and lets the next one go on.
    assert_eq!(ask(&mut line, 0, 0b011, 0b010), Err(slots(0b001)));
    assert_eq!(next(&line, free, 0b001), [1]);
    assert_eq!(next(&line, free, 0b011), [0, 1], "one for each member");
    assert_eq!(ask(&mut line, 1, 0b001, 0), Ok(()));
    assert_eq!(line.leave(0), slots(0b011));
    assert_eq!(line.leave(0), SlotSet::EMPTY);
}

#[test]
fn the_order_is_that_of_arrival() {
    let mut line = Line::new(vec![Waiter::NONE; 3]);
    let few = amount(2, 2);
    for op in 0..3 {
        let need = amount(1, if op == 0 { 4 } else { 1 });
        let asked = line.ask(op, slots(1 << op), need, few, SlotSet::EMPTY);
        assert_eq!(asked, Err(SlotSet::EMPTY), "nobody passes the first");
    }
    assert_eq!(next(&line, few, 0), []);
    assert_eq!(next(&line, FREE, 0), [0]);
    // With a smaller need, in the same place.
    let asked = line.ask(0, slots(1), amount(1, 3), few, SlotSet::EMPTY);
    assert_eq!(asked, Err(SlotSet::EMPTY));
    assert_eq!(next(&line, amount(2, 3), 0), [0]);
    assert_eq!(
        (line.get(0), line.get(2), line.get(3)),
        (Some(0), Some(2), None)
    );
}

#[test]
fn a_member_gets_no_more_than_is_left() {
    let exceeds = |load: (usize, usize), more, need| {
        let free = amount(10, 20);
        amount(load.0, load.1).exceeds_share(amount(1, more), amount(2, need), free)
    };
    assert!(!exceeds((3, 8), 4, 8), "12 of 12 pages, 4 of 8 commands");
    assert!(exceeds((3, 9), 4, 8));
    assert!(exceeds((3, 8), 4, 9));
    assert!(!exceeds((7, 8), 4, 8));
    assert!(exceeds((8, 8), 4, 8));
    assert!(
        !exceeds((0, 0), 20, 40),
        "who has nothing gets what there is"
    );
    assert!(!exceeds((3, 100), 0, 0), "a flush wants no pages");
}
