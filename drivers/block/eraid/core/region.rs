// SPDX-License-Identifier: GPL-2.0

//! State machine of one region of the region map: what must be durable before what.
//!
//! The rules, with the calls that keep them:
//!
//! * (a) `in_flight` (and `init` other than none) is durable on every live member before the first
//!   data write of the region is issued: [`RegionState::begin_write`] answers [`Admit::Wait`]
//!   until it is.
//! * (b) To clear `in_flight`: all writes done, then a flush of all members, then the map write. A
//!   write that begins meanwhile cancels it: [`RegionState::try_clear`] and
//!   [`RegionState::finish_clear`] around the flush.
//! * (c) A write that a member missed is acknowledged only when the stale bit of that member is
//!   durable on the others: [`RegionState::note_stale`] and [`RegionState::is_recorded`].
//!
//! A discard takes a region back to none: first on the disk ([`RegionState::begin_discard`], then
//! [`RegionState::discard_recorded`]), so that a crash leaves nothing to be resynced and nothing in
//! doubt however far the members are; then their own discards; only then writers are admitted
//! again ([`RegionState::end_discard`]).
//!
//! The map write itself is the caller's, one at a time for a map page:
//! [`RegionState::begin_persist`] for every region of the page, the write, then
//! [`RegionState::persisted`] with the same values. A write that failed on a member is repeated or
//! the member is failed; `persisted` is only for what every live member has.
//!
//! Calls are for one thread at a time (the caller's lock) and never wait.

use crate::geometry::{Geometry, Level};
use crate::regionmap::{Init, Region};
use crate::units::{Micros, Slot, SlotSet};

/// Whether a write may be issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Admit {
    /// Issue it; [`RegionState::end_write`] is owed.
    Go,
    /// Nothing is owed: ask again after the next [`RegionState::persisted`] or
    /// [`RegionState::end_discard`].
    Wait,
}

/// Permission to clear `in_flight` once the members are flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClearTicket {
    writes: u32,
}

/// One region in memory.
#[derive(Clone, Copy, Debug)]
pub struct RegionState {
    /// What the map of every live member is known to say at least; weaker while a map write is on
    /// its way.
    durable: Region,
    /// What holds now and the map is to say.
    wanted: Region,
    /// Writes admitted and not ended.
    writers: u32,
    /// Counts writes that asked to begin, so that a clearing notices them.
    writes: u32,
    /// When a write last asked to begin, or ended.
    last_write: Micros,
    /// Members that failed a write since their recovery of this region began.
    missed_again: SlotSet,
    /// A write was torn since the resync of this region began.
    torn_again: bool,
    /// A map write with this region is on its way.
    persisting: bool,
    /// The operation that discards the region: until it is through nobody writes here.
    discarding: Option<u32>,
}

impl RegionState {
    /// A region as the merged maps of the members give it at assembly.
    ///
    /// A write that was in flight then may be there in part: that becomes `need_sync`.
    #[inline]
    pub fn loaded(on_disk: Region) -> Self {
        Self {
            durable: on_disk,
            wanted: after_unclean(on_disk),
            writers: 0,
            writes: 0,
            last_write: Micros::ZERO,
            missed_again: SlotSet::EMPTY,
            torn_again: false,
            persisting: false,
            discarding: None,
        }
    }

    /// The state that planners are to use. A stale bit shows from the moment it is known.
    #[inline]
    pub fn view(&self) -> Region {
        self.wanted
    }

    /// Asks to issue a write which the members of `missed` will not get; they are stale from here
    /// on, whatever becomes of it, so it should be one that the array can do without them.
    #[inline]
    pub fn begin_write(&mut self, now: Micros, missed: SlotSet) -> Admit {
        if self.discarding.is_some() {
            return Admit::Wait;
        }
        self.last_write = now;
        self.writes = self.writes.wrapping_add(1);
        self.wanted.in_flight = true;
        if self.wanted.init == Init::None {
            self.wanted.init = Init::Partial;
        }
        let marked = self.durable.in_flight && self.durable.init != Init::None;
        self.note_stale(missed);
        if !self.is_recorded(missed) || !marked {
            return Admit::Wait;
        }
        self.writers = self.writers.saturating_add(1);
        Admit::Go
    }

    /// A write is likely: marks the region ahead of it, so that it need not wait for that. `false`
    /// when it is marked already, or cannot be.
    #[inline]
    pub fn expect_write(&mut self, now: Micros) -> bool {
        if self.wanted.in_flight || self.discarding.is_some() {
            return false;
        }
        self.last_write = now;
        self.wanted.in_flight = true;
        if self.wanted.init == Init::None {
            self.wanted.init = Init::Partial;
        }
        true
    }

    /// Whether a write waits for the region to be marked.
    #[inline]
    pub fn wants_mark(&self) -> bool {
        let marked = self.durable.in_flight && self.durable.init != Init::None;
        self.wanted.in_flight && !marked
    }

    /// An admitted write did not reach `slot`, which thereby is stale.
    #[inline]
    pub fn note_missed(&mut self, slot: Slot) {
        self.wanted.stale.insert(slot);
        self.missed_again.insert(slot);
    }

    /// `slot` failed, in an array that can do without `parity` members: what it acknowledged since
    /// the last flush may be lost, so it is stale wherever there may have been writes since.
    ///
    /// Where others are stale already and the rest would not suffice, what it has is the best there
    /// is: then it is in doubt, which the administrator can end, and not stale, which nobody could.
    #[inline]
    pub fn member_failed(&mut self, slot: Slot, parity: u8) {
        if !self.wanted.in_flight && !self.durable.in_flight {
            return;
        }
        match self.wanted.stale.with(slot).len() <= u32::from(parity) {
            true => self.note_missed(slot),
            false => self.note_torn(),
        }
    }

    /// Members of `slots` failed an admitted write that the others have, and stay in use. `true`: they
    /// are stale from here on, to be caught up later, and the write can be acknowledged as any that
    /// they missed.
    ///
    /// `false` where that is impossible: parity may not match, or with the members of `missing` and
    /// those that are stale already they are more than `geometry` can do without.
    #[inline]
    pub fn let_lag(&mut self, slots: SlotSet, missing: SlotSet, geometry: &Geometry) -> bool {
        let lacking = self.wanted.stale.union(missing).union(slots);
        let computable = !self.wanted.need_sync || geometry.level() == Level::Raid1;
        let possible = computable && lacking.len() <= u32::from(geometry.parity());
        if possible {
            slots.iter().for_each(|slot| self.note_missed(slot));
        }
        possible
    }

    /// The member of `slot` is to be replaced by one that holds nothing: it is stale wherever anything
    /// was ever written. Only while there is no member in that slot.
    #[inline]
    pub fn emptied(&mut self, slot: Slot) {
        if self.wanted.init != Init::None || self.durable.init != Init::None {
            self.note_missed(slot);
        }
    }

    /// Whether the maps say what [`emptied`](Self::emptied) is to make them say, so that a crash leaves
    /// nothing that vouches for the new member.
    #[inline]
    pub fn is_emptied(&self, slot: Slot) -> bool {
        let lacks = |region: &Region| region.init == Init::None || region.stale.contains(slot);
        lacks(&self.wanted) && lacks(&self.durable)
    }

    /// Whether the member of `slot` has all that was written here, and the maps say so.
    #[inline]
    pub fn is_caught_up(&self, slot: Slot) -> bool {
        let stale = self.wanted.stale.union(self.durable.stale);
        !self.persisting && !stale.contains(slot)
    }

    /// Whether stale bits are still to become durable.
    #[inline]
    pub fn owes_stale(&self) -> bool {
        !self.wanted.stale.is_subset(self.durable.stale)
    }

    /// Whether `needed` members of `all` have what was written here, and without `slot` fewer would.
    #[inline]
    pub fn needs(&self, slot: Slot, all: SlotSet, needed: u32) -> bool {
        let current = all.minus(self.wanted.stale);
        current.len() >= needed && current.without(slot).len() < needed
    }

    /// An admitted write was given up half way, so that parity or copies may not match. Reported
    /// before the write ends.
    #[inline]
    pub fn note_torn(&mut self) {
        self.wanted.need_sync = true;
        self.torn_again = true;
    }

    /// The members of `missed` do not have a write that is to be acknowledged.
    #[inline]
    pub fn note_stale(&mut self, missed: SlotSet) {
        self.wanted.stale = self.wanted.stale.union(missed);
    }

    /// Whether it is durable that the members of `missed`, which were noted as stale, are so, and thus
    /// a write that they did not get may be acknowledged; otherwise ask again after the next
    /// [`RegionState::persisted`]. One that is not stale any more was caught up since.
    #[inline]
    pub fn is_recorded(&self, missed: SlotSet) -> bool {
        let stale = missed.intersect(self.wanted.stale);
        stale.is_subset(self.durable.stale)
    }

    /// An admitted write is over: acknowledged, or failed with
    /// [`note_torn`](Self::note_torn) reported where it applies.
    #[inline]
    pub fn end_write(&mut self, now: Micros) {
        self.writers = self.writers.saturating_sub(1);
        self.last_write = now;
    }

    /// Writes admitted and not ended.
    #[inline]
    pub fn writers(&self) -> u32 {
        self.writers
    }

    /// Whether the map on the members has to be written for this region.
    #[inline]
    pub fn needs_persist(&self) -> bool {
        self.wanted != self.durable
    }

    /// Takes the state to write to the maps.
    ///
    /// From here until [`persisted`](Self::persisted) either the old or the new state may be what
    /// a crash leaves, so only what both say counts as durable.
    #[inline]
    pub fn begin_persist(&mut self) -> Region {
        self.durable = certain(self.durable, self.wanted);
        self.persisting = true;
        self.wanted
    }

    /// The maps of all live members say `written`, durably.
    #[inline]
    pub fn persisted(&mut self, written: Region) {
        self.durable = written;
        self.persisting = false;
    }

    /// Begins to clear `in_flight` when there was no write for `idle`.
    ///
    /// The caller then flushes all live members and calls [`finish_clear`](Self::finish_clear).
    #[inline]
    pub fn try_clear(&self, now: Micros, idle: Micros) -> Option<ClearTicket> {
        let quiet = self.writers == 0 && now.saturating_sub(self.last_write) >= idle;
        (quiet && self.wanted.in_flight).then_some(ClearTicket {
            writes: self.writes,
        })
    }

    /// The members are flushed: clears `in_flight` in what the map is to say. `false` when a write
    /// began meanwhile.
    #[inline]
    pub fn finish_clear(&mut self, ticket: ClearTicket) -> bool {
        if self.writes != ticket.writes {
            return false;
        }
        self.wanted.in_flight = false;
        true
    }

    /// Operation `op` discards the whole region: its content and its parity are undefined from
    /// here on. `false`, and nothing happens, while something is written or discarded here.
    ///
    /// A resync or recovery that is under way comes to nothing. Members that missed writes stay
    /// stale.
    #[inline]
    pub fn begin_discard(&mut self, op: u32) -> bool {
        if self.writers > 0 || self.discarding.is_some() {
            return false;
        }
        self.discarding = Some(op);
        self.wanted = Region {
            stale: self.wanted.stale,
            ..Region::NEW
        };
        self.torn_again = true;
        self.missed_again = self.missed_again.union(self.wanted.stale);
        true
    }

    /// Whether operation `op` discards the region.
    #[inline]
    pub fn is_discarding(&self, op: u32) -> bool {
        self.discarding == Some(op)
    }

    /// Whether the maps of all live members say that the region is discarded, so that the members
    /// may discard it; otherwise ask again after the next [`RegionState::persisted`].
    #[inline]
    pub fn discard_recorded(&self) -> bool {
        !self.persisting && self.wanted == self.durable
    }

    /// The members have discarded the region, or did not: it may be written again.
    #[inline]
    pub fn end_discard(&mut self) {
        self.discarding = None;
    }

    /// What the background has to do here, in an array of `level`.
    #[inline]
    pub fn work(&self, level: Level) -> Work {
        if self.discarding.is_some() {
            return Work::Nothing;
        }
        let region = self.wanted;
        // Copies can be made equal whichever of them are stale; parity cannot.
        let computable = region.stale.is_empty() || level == Level::Raid1;
        match region.need_sync {
            true if computable => Work::Resync,
            true => Work::Doubtful,
            false if !region.stale.is_empty() => Work::Recover(region.stale),
            false if region.init == Init::Partial => Work::Fill,
            false => Work::Nothing,
        }
    }

    /// A resync of the whole region begins.
    #[inline]
    pub fn begin_sync(&mut self) {
        self.torn_again = false;
    }

    /// The resync recomputed parity from the data in every stripe of the region, each time with all
    /// data members current (RAID-1: made all current copies equal), and the members are flushed.
    ///
    /// The members of `absent` took no part; what they hold may differ, so they are stale now.
    /// `false` when a write was torn meanwhile: to be done again.
    #[inline]
    pub fn synced(&mut self, absent: SlotSet) -> bool {
        if self.torn_again {
            return false;
        }
        self.wanted = self.wanted.resynced();
        self.wanted.stale = self.wanted.stale.union(absent);
        true
    }

    /// The recovery of `slot` in this region begins.
    #[inline]
    pub fn begin_recovery(&mut self, slot: Slot) {
        self.missed_again.remove(slot);
    }

    /// The whole region of `slot` was rewritten from the others, and the members that are not
    /// `absent` are flushed. `false` when it is not one of these, or failed a write meanwhile: to be
    /// done again.
    #[inline]
    pub fn recovered(&mut self, slot: Slot, absent: SlotSet) -> bool {
        let done = !self.missed_again.contains(slot) && !absent.contains(slot);
        if done {
            self.wanted.stale.remove(slot);
        }
        done
    }

    /// The administrator takes parity as it is (`force`): `true` when this was in doubt.
    ///
    /// The blocks of the members of `absent` are from now on what parity says they are, so these
    /// members are stale. About those of a single member the two parities of RAID-6 may say different
    /// things. Then the region counts as partly written, so that writes make them agree again.
    #[inline]
    pub fn accept_doubt(&mut self, absent: SlotSet, level: Level) -> bool {
        let doubtful = core::mem::replace(&mut self.wanted.need_sync, false);
        if doubtful {
            self.wanted.stale = self.wanted.stale.union(absent);
            if level == Level::Raid6 && absent.len() == 1 && self.wanted.init == Init::Full {
                self.wanted.init = Init::Partial;
            }
        }
        doubtful
    }
}

/// What the background has to do in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Nothing.
    Nothing,
    /// Recompute parity or copies from the data.
    Resync,
    /// Rewrite the blocks of these slots from the others.
    Recover(SlotSet),
    /// Compute parity of the stripes never written; a resync does that.
    Fill,
    /// Neither is possible: parity may not match, so the stale members cannot be computed, and
    /// parity cannot be recomputed without their data. Only the administrator can decide.
    Doubtful,
}

/// A region after a stop with writes in flight.
#[inline]
pub fn after_unclean(region: Region) -> Region {
    Region {
        in_flight: false,
        need_sync: region.need_sync || region.in_flight,
        ..region
    }
}

/// What holds whether a crash leaves `a` or `b`.
#[inline]
fn certain(a: Region, b: Region) -> Region {
    Region {
        init: match (a.init, b.init) {
            (Init::None, _) | (_, Init::None) => Init::None,
            (Init::Partial, _) | (_, Init::Partial) => Init::Partial,
            (Init::Full, Init::Full) => Init::Full,
        },
        in_flight: a.in_flight && b.in_flight,
        need_sync: a.need_sync && b.need_sync,
        stale: a.stale.intersect(b.stale),
    }
}
