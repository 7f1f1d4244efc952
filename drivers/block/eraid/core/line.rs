// SPDX-License-Identifier: GPL-2.0

//! The line of operations that wait for the memory of an array, and whom they let pass.
//!
//! An operation takes all it needs in one step. Who does not get it waits, and is served in the
//! order of arrival, but for one thing: a member must not take hold of all memory, however many
//! operations want it to. So an operation waits as well while one of its members would get more in
//! hand than is left free. Then it lets pass who has nothing to do with that member, and only those.
//!
//! Whatever number of members hang, each keeps a part at most, and as much as the largest of these
//! parts stays free. While none does, whoever waits for a member's share is served when that gives
//! something back, before all others that want that member.
//!
//! The line owns no memory: the caller gives a place for every operation that can exist at a time.
//! All calls are for one thread at a time, take no lock, never wait. Cost: one walk over the line.

use crate::units::SlotSet;

/// Commands and pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Commands.
    pub commands: usize,
    /// Pages, of all these commands.
    pub pages: usize,
}

impl Amount {
    /// Whether `self` is at least `other`, in both.
    #[inline]
    pub const fn covers(self, other: Amount) -> bool {
        self.commands >= other.commands && self.pages >= other.pages
    }

    /// Whether a member that has `self` in hand, in its device and in its queue, must not get `more`
    /// in an operation that takes `need` of what is `free`, because it would have more than is left.
    ///
    /// A member that has nothing gets what there is.
    #[inline]
    pub const fn exceeds_share(self, more: Amount, need: Amount, free: Amount) -> bool {
        const fn exceeds(has: usize, more: usize, need: usize, free: usize) -> bool {
            has.saturating_add(more) > free.saturating_sub(need)
        }
        self.commands > 0
            && (exceeds(self.commands, more.commands, need.commands, free.commands)
                || (more.pages > 0 && exceeds(self.pages, more.pages, need.pages, free.pages)))
    }
}

/// A place in the line.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    op: u32,
    need: Amount,
    slots: SlotSet,
    /// Its members that had their share when it asked last; it lets pass who wants none of them.
    over: SlotSet,
}

impl Waiter {
    /// A place that is not taken: what the caller fills its storage with.
    pub const NONE: Waiter = Waiter {
        op: 0,
        need: Amount {
            commands: 0,
            pages: 0,
        },
        slots: SlotSet::EMPTY,
        over: SlotSet::EMPTY,
    };
}

/// The line of one array.
#[derive(Debug)]
pub struct Line<S> {
    places: S,
    len: usize,
}

impl<S> Line<S>
where
    S: AsRef<[Waiter]> + AsMut<[Waiter]>,
{
    /// An empty line with these places.
    pub fn new(places: S) -> Self {
        Self { places, len: 0 }
    }

    /// Operation `op` asks for `need`, for commands to `slots`, while `free` is left. `over` are
    /// those of `slots` that would have too much ([`Amount::exceeds_share`]).
    ///
    /// # Errors
    ///
    /// `Ok`: it may take it, and does not wait any more. Else it waits, in the place that it has if
    /// it waited already, and asks again when [`next`](Self::next) names it. The members in the
    /// error are those that others need not wait for any more because of it: they are for `next`.
    pub fn ask(
        &mut self,
        op: u32,
        slots: SlotSet,
        need: Amount,
        free: Amount,
        over: SlotSet,
    ) -> Result<(), SlotSet> {
        let mut over = over;
        let mut turn = true;
        for before in self.waiting().iter().take_while(|waiter| waiter.op != op) {
            turn &= !before.over.is_empty();
            over = over.union(before.over.intersect(slots));
        }
        if turn && over.is_empty() && free.covers(need) {
            self.leave(op);
            return Ok(());
        }
        let waiter = Waiter {
            op,
            need,
            slots,
            over,
        };
        let place = match self.place_of(op) {
            Some(place) => place,
            None => self.append(),
        };
        let Some(place) = self.places.as_mut().get_mut(place) else {
            return Err(SlotSet::EMPTY);
        };
        Err(core::mem::replace(place, waiter).over.minus(over))
    }

    /// Takes the place behind the last; returns its index.
    fn append(&mut self) -> usize {
        let place = self.len;
        if let Some(free) = self.places.as_mut().get_mut(place) {
            *free = Waiter::NONE;
            self.len += 1;
        }
        place
    }

    /// Operation `op` does not wait any more. Returns the members that others may have waited for
    /// because of it.
    pub fn leave(&mut self, op: u32) -> SlotSet {
        let Some(place) = self.place_of(op) else {
            return SlotSet::EMPTY;
        };
        let Some(waiting) = self.places.as_mut().get_mut(place..self.len) else {
            return SlotSet::EMPTY;
        };
        let slots = waiting
            .first()
            .map_or(SlotSet::EMPTY, |waiter| waiter.slots);
        waiting.rotate_left(1);
        self.len -= 1;
        slots
    }

    /// Tells `wake` who is to ask again now that `free` is left, and that members of `changed` have
    /// less in hand or are waited for by fewer: the first in line, if there is enough for it, and
    /// the first that waits for the share of each of these members.
    pub fn next(&self, free: Amount, changed: SlotSet, wake: &mut dyn FnMut(u32)) {
        let mut left = changed;
        let mut first = true;
        for waiter in self.waiting() {
            if waiter.over.is_empty() {
                if core::mem::take(&mut first) && free.covers(waiter.need) {
                    wake(waiter.op);
                }
            } else if !waiter.over.intersect(left).is_empty() {
                left = left.minus(waiter.over);
                wake(waiter.op);
            }
            if !first && left.is_empty() {
                return;
            }
        }
    }

    /// The operation in place `index` of the line, from 0 on.
    #[inline]
    pub fn get(&self, index: usize) -> Option<u32> {
        self.waiting().get(index).map(|waiter| waiter.op)
    }

    #[inline]
    fn waiting(&self) -> &[Waiter] {
        self.places.as_ref().get(..self.len).unwrap_or(&[])
    }

    #[inline]
    fn place_of(&self, op: u32) -> Option<usize> {
        self.waiting().iter().position(|waiter| waiter.op == op)
    }
}
