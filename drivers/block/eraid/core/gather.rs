// SPDX-License-Identifier: GPL-2.0

//! Gathering the blocks of a read from several members: what is there, what is on its way, and what
//! to ask whom for next.
//!
//! A read covers a [`Window`]: the same range of every member, cut into at most 64 *grains*. Each
//! member has a [`Lane`] that says which grains are wanted of it, which came, and which it could
//! not read. The read is complete when each wanted grain came or can be decoded from what came of
//! the other members at the same place.
//!
//! What to do next is decided anew whenever something came or is late, so that first answers,
//! errors, late members and failures of several members at a time are one case. The order in which
//! help is called is that of the design: the block itself, the other members without retries, the
//! drive's own retries, the others with theirs.
//!
//! Whether blocks may be decoded at all is the caller's to know: see [`Gather::set_place`] and
//! [`Gather::forbid_decoding`].

use core::ops::{BitAnd, BitOr, BitOrAssign, Not};

use crate::geometry::{Geometry, Level, Piece};
use crate::units::{Sector, Sectors, Slot, SlotSet, StripeNo};

/// Grains in a window at most: the bits of a [`Grains`].
const GRAINS_MAX: u64 = 64;
/// Sectors in the smallest grain: a physical block of 4 KiB.
const GRAIN_MIN: u64 = 8;
/// From so many undelivered grains behind a bad one on they are read again from their own member, and
/// only the bad one is decoded.
const OWN_AGAIN: u32 = 4;

/// A set of the grains of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grains(u64);

impl Grains {
    /// No grain.
    pub const NONE: Grains = Grains(0);

    /// The `count` grains from `first` on.
    #[inline]
    fn run(first: u64, count: u64) -> Grains {
        let ones = match count {
            0..64 => (1 << count) - 1,
            _ => u64::MAX,
        };
        Grains(if first < 64 { ones << first } else { 0 })
    }

    #[inline]
    fn one(grain: u32) -> Grains {
        Grains::run(u64::from(grain), 1)
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many there are.
    #[inline]
    pub fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether all of these are in `other`.
    #[inline]
    pub fn is_subset(self, other: Grains) -> bool {
        (self & !other).is_empty()
    }

    /// All from the first to the last one.
    #[inline]
    fn hull(self) -> Grains {
        match self.0 {
            0 => self,
            bits => Grains(u64::MAX >> bits.leading_zeros() & u64::MAX << bits.trailing_zeros()),
        }
    }

    #[inline]
    fn iter(self) -> impl Iterator<Item = u32> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            let grain = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            (grain < 64).then_some(grain)
        })
    }
}

impl BitAnd for Grains {
    type Output = Grains;
    #[inline]
    fn bitand(self, other: Grains) -> Grains {
        Grains(self.0 & other.0)
    }
}

impl BitOr for Grains {
    type Output = Grains;
    #[inline]
    fn bitor(self, other: Grains) -> Grains {
        Grains(self.0 | other.0)
    }
}

impl BitOrAssign for Grains {
    #[inline]
    fn bitor_assign(&mut self, other: Grains) {
        self.0 |= other.0;
    }
}

impl Not for Grains {
    type Output = Grains;
    #[inline]
    fn not(self) -> Grains {
        Grains(!self.0)
    }
}

/// The same range of every member, in grains whose borders are those of 4 KiB blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First sector, counted from where the data of a member starts.
    pub at: Sector,
    /// Length in sectors.
    pub len: u32,
    /// log2 of the sectors in a grain.
    shift: u32,
}

/// A part of a window, in sectors from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first sector.
    pub offset: u32,
    /// How many.
    pub len: u32,
}

impl Window {
    /// The window of the longest read from `start` on, of at most `len`, for which no member is read
    /// over more than `max` sectors; and the length of that read. `None` when there is nothing to
    /// read there.
    pub fn of_read(
        geometry: &Geometry,
        start: Sector,
        len: Sectors,
        max: u32,
    ) -> Option<(Window, Sectors)> {
        // A grain must not be in two stripes.
        let max = u64::from(max).min((GRAINS_MAX - 2) * u64::from(geometry.chunk()));
        let (mut lo, mut hi, mut taken) = (u64::MAX, 0u64, 0);
        for piece in geometry.pieces(start, len) {
            let from = lo.min(piece.at.get());
            let room = from.saturating_add(max).saturating_sub(piece.at.get());
            let part = u64::from(piece.len).min(room);
            // The piece may also begin before all others.
            if part == 0 || hi.saturating_sub(from) > max {
                break;
            }
            lo = from;
            hi = hi.max(piece.at.get().saturating_add(part));
            taken += part;
            if part < u64::from(piece.len) {
                break;
            }
        }
        let len = hi.checked_sub(lo).filter(|len| *len > 0)?;
        let mut shift = GRAIN_MIN.trailing_zeros();
        // The first and the last one may be partly outside.
        while (len >> shift) + 2 > GRAINS_MAX {
            shift += 1;
        }
        let window = Window {
            at: Sector::new(lo),
            // At most `max`, which is a u32.
            len: len as u32,
            shift,
        };
        Some((window, Sectors::new(taken)))
    }

    /// The number of the grain of a sector of the members.
    #[inline]
    fn number(&self, at: u64) -> u64 {
        (at >> self.shift).saturating_sub(self.at.get() >> self.shift)
    }

    /// The grains that `len` sectors from `at` on have a part of.
    #[inline]
    fn touched(&self, at: Sector, len: u64) -> Grains {
        let end = at.get().saturating_add(len).min(self.end());
        match end.checked_sub(1) {
            Some(last) if at.get() < end => {
                let first = self.number(at.get());
                Grains::run(first, self.number(last) + 1 - first)
            }
            _ => Grains::NONE,
        }
    }

    /// All of them.
    #[inline]
    pub fn all(&self) -> Grains {
        self.touched(self.at, u64::from(self.len))
    }

    #[inline]
    fn end(&self) -> u64 {
        self.at.get().saturating_add(u64::from(self.len))
    }

    /// The stripe that a grain is of.
    #[inline]
    fn stripe(&self, geometry: &Geometry, grain: u32) -> StripeNo {
        let at = ((self.at.get() >> self.shift) + u64::from(grain)) << self.shift;
        geometry.stripe_at(Sector::new(at.max(self.at.get())))
    }

    /// The stripes in it.
    pub fn stripes(&self, geometry: &Geometry) -> impl Iterator<Item = StripeNo> {
        let first = geometry.stripe_at(self.at).get();
        let last = geometry.stripe_at(Sector::new(self.end().saturating_sub(1)));
        (first..=last.get()).map(StripeNo::new)
    }

    /// Where the grains lie, from the first to the last one.
    #[inline]
    pub fn part(&self, grains: Grains) -> Part {
        if grains.is_empty() {
            return Part { offset: 0, len: 0 };
        }
        let base = self.at.get() >> self.shift;
        let first = u64::from(grains.0.trailing_zeros());
        let behind = u64::from(64 - grains.0.leading_zeros());
        let from = ((base + first) << self.shift).max(self.at.get());
        let to = ((base + behind) << self.shift).min(self.end());
        // Both lie in the window, whose length is a u32.
        Part {
            offset: (from - self.at.get()) as u32,
            len: to.saturating_sub(from) as u32,
        }
    }
}

impl Window {
    /// The runs of adjacent grains among `grains`.
    pub fn runs(&self, grains: Grains) -> impl Iterator<Item = Part> {
        let (window, mut left) = (*self, grains.0);
        core::iter::from_fn(move || {
            let first = left.trailing_zeros();
            let count = left.checked_shr(first)?.trailing_ones();
            let run = Grains::run(u64::from(first), u64::from(count));
            left &= !run.0;
            Some(window.part(run))
        })
    }
}

/// How a member is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// The drive may take the time it wants.
    pub retries: bool,
    /// At low priority: it may turn out not to be needed.
    pub extra: bool,
}

impl Manner {
    /// Somebody waits for it, but not for retries.
    pub const FAST: Manner = Manner {
        retries: false,
        extra: false,
    };
    /// Somebody waits for it, whatever it takes.
    pub const PATIENT: Manner = Manner {
        retries: true,
        extra: false,
    };
    /// It helps if it is cheap.
    pub const EXTRA: Manner = Manner {
        retries: false,
        extra: true,
    };
}

/// What came of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All that was asked for.
    All,
    /// The first so many sectors; the one behind them is bad, and nothing is known of the rest.
    Prefix(u32),
    /// An error, somewhere.
    Error,
    /// Nobody waits for it any more, and its memory is gone.
    Lost,
}

/// One member's part in a read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lane {
    /// What the reader wants of it and does not have yet.
    wanted: Grains,
    /// Where its blocks are current and may be read.
    usable: Grains,
    /// What is in its buffer.
    have: Grains,
    /// What failed without retries, or was found so.
    failed_fast: Grains,
    /// What failed with retries.
    failed_slow: Grains,
    /// What a command on its way reads.
    asked: Grains,
    /// That command's manner, and whether it is not counted on any more.
    retries: bool,
    extra: bool,
    late: bool,
    /// What is to be asked for next.
    next: Grains,
    next_retries: bool,
    next_extra: bool,
    /// To be asked only when all else failed.
    avoided: bool,
}

impl Lane {
    /// A member that nothing is known of.
    pub const EMPTY: Lane = Lane {
        wanted: Grains::NONE,
        usable: Grains::NONE,
        have: Grains::NONE,
        failed_fast: Grains::NONE,
        failed_slow: Grains::NONE,
        asked: Grains::NONE,
        retries: false,
        extra: false,
        late: false,
        next: Grains::NONE,
        next_retries: false,
        next_extra: false,
        avoided: false,
    };

    /// Whether it may be read at `grain` without retries, and has not been.
    #[inline]
    fn is_fresh(&self, grain: Grains) -> bool {
        self.is_unasked(grain) && !self.avoided && (grain & self.failed_fast).is_empty()
    }

    /// Whether it may be read at `grain` with retries, and has not been.
    #[inline]
    fn is_unasked(&self, grain: Grains) -> bool {
        let known = self.have | self.asked | self.next | self.failed_slow;
        grain.is_subset(self.usable) && (grain & known).is_empty()
    }

    /// A member has one command of a read at a time.
    #[inline]
    fn is_free(&self) -> bool {
        self.asked.is_empty()
    }

    /// Adds to what is asked for next. What needs retries waits for what does not: perhaps it can be
    /// computed then.
    #[inline]
    fn ask(&mut self, grains: Grains, manner: Manner) {
        if grains.is_empty() {
            return;
        }
        let first = self.next.is_empty();
        if first || self.next_retries && !manner.retries {
            self.next = grains;
            (self.next_retries, self.next_extra) = (manner.retries, manner.extra);
        } else if self.next_retries == manner.retries {
            self.next |= grains;
            self.next_extra &= manner.extra;
        }
    }
}

/// What members have at one grain.
#[derive(Clone, Copy, Default)]
struct Look {
    /// Those that have it.
    have: SlotSet,
    /// It comes from them, and they are not late.
    coming: SlotSet,
    /// It would come from them if they were promoted.
    extra: SlotSet,
    /// It is wanted of them and not there.
    missing: SlotSet,
    /// They could be asked without retries.
    fresh: SlotSet,
    /// They could be asked with retries.
    unasked: SlotSet,
    /// They could be asked once they have answered something else.
    busy: SlotSet,
    /// Those with current blocks that are not avoided.
    willing: SlotSet,
    /// Something is on its way, late or not.
    pending: bool,
}

/// What to do next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Next {
    /// Members to ask: [`Gather::take_request`] says for what.
    pub ask: SlotSet,
    /// Members whose commands are not extra any more.
    pub promote: SlotSet,
    /// Something has to be waited for.
    pub waits: bool,
    /// Some grains cannot be had in this way.
    pub lost: bool,
}

impl Next {
    /// Whether everything wanted is there or can be decoded.
    pub fn is_complete(&self) -> bool {
        !self.waits && !self.lost && self.ask.is_empty()
    }
}

/// A run of grains to be decoded alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decode {
    /// Their stripe.
    pub stripe: StripeNo,
    /// Which grains.
    pub grains: Grains,
    /// Members whose blocks are used.
    pub from: SlotSet,
    /// Members whose blocks are computed: all data columns that did not come.
    pub missing: SlotSet,
}

/// How a read begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// The wanted members are asked for what is wanted of them.
    Wanted(Manner),
    /// All members are asked for the whole window, without retries: those that nothing is wanted of in
    /// this manner.
    Everybody(Manner),
}

/// A read that is being gathered; see the [module description](self).
#[derive(Debug)]
pub struct Gather<'a> {
    /// Shape of the array.
    pub geometry: &'a Geometry,
    /// What is read of the members.
    pub window: &'a Window,
    /// The lanes, by slot.
    pub lanes: &'a mut [Lane],
    /// Where blocks may be decoded.
    pub decodes: &'a mut Grains,
}

impl Gather<'_> {
    /// Forgets everything.
    pub fn clear(&mut self) {
        self.lanes.fill(Lane::EMPTY);
        *self.decodes = Grains::NONE;
    }

    /// Says of the blocks of a stripe which members have current ones, and whether they fit together.
    pub fn set_place(&mut self, stripe: StripeNo, usable: SlotSet, decodes: bool) {
        let (at, chunk) = (
            self.geometry.member_sector(stripe, 0),
            u64::from(self.geometry.chunk()),
        );
        let from = Sector::new(at.get().max(self.window.at.get()));
        let len = at.get().saturating_add(chunk).saturating_sub(from.get());
        let grains = self.window.touched(from, len);
        for (slot, lane) in slots().zip(self.lanes.iter_mut()) {
            match usable.contains(slot) {
                true => lane.usable |= grains,
                false => {
                    lane.usable = lane.usable & !grains;
                    lane.have = lane.have & !grains;
                }
            }
        }
        match decodes {
            true => *self.decodes |= grains,
            false => *self.decodes = *self.decodes & !grains,
        }
    }

    /// Notes that a piece of the read is wanted, of RAID-1 from the copy `slot`.
    pub fn want(&mut self, piece: &Piece, slot: Slot) {
        let grains = self.window.touched(piece.at, u64::from(piece.len));
        if let Some(lane) = self.lanes.get_mut(slot.index()) {
            lane.wanted |= grains;
        }
    }

    /// Says which members, and no others, are asked only when all else failed, from here on.
    pub fn set_avoided(&mut self, members: SlotSet) {
        for (slot, lane) in slots().zip(self.lanes.iter_mut()) {
            lane.avoided = members.contains(slot);
        }
    }

    /// Nothing is decoded any more: blocks that came do not fit together, or may not.
    pub fn forbid_decoding(&mut self) {
        *self.decodes = Grains::NONE;
    }

    /// The members that something is wanted of and did not come.
    pub fn wanted(&self) -> SlotSet {
        self.slots_with(|lane| !(lane.wanted & !lane.have).is_empty())
    }

    /// How many blocks are wanted of a member, and how many of them a command for it reads.
    pub fn blocks(&self, slot: Slot) -> (u32, u32) {
        self.lanes
            .get(slot.index())
            .map_or((0, 0), |lane| (lane.wanted.len(), lane.wanted.hull().len()))
    }

    /// Chooses whom to ask first, and for what.
    ///
    /// What can be had neither from its own member nor, in the chosen way, from the others is seen to
    /// by [`Self::decide`], which is to be called in any case.
    pub fn open(&mut self, opening: Opening) {
        let all = self.window.all();
        let redundant = self.is_redundant();
        for lane in self.lanes.iter_mut().filter(|lane| !lane.avoided) {
            let mine = (lane.wanted & lane.usable).hull();
            match opening {
                Opening::Wanted(manner) if redundant => lane.ask(mine, manner),
                Opening::Everybody(manner) if redundant && !lane.usable.is_empty() => {
                    lane.ask(
                        all,
                        if mine.is_empty() {
                            manner
                        } else {
                            Manner::FAST
                        },
                    );
                }
                Opening::Wanted(_) | Opening::Everybody(_) => lane.ask(mine, Manner::PATIENT),
            }
        }
    }

    /// Whether any member could be done without.
    pub fn is_redundant(&self) -> bool {
        let all = self.window.all();
        let whole = self.slots_with(|lane| all.is_subset(lane.usable));
        all.is_subset(*self.decodes) && whole.len() > u32::from(self.geometry.data_columns())
    }

    /// Asks a member that is avoided for what is wanted of it, in case that it has recovered.
    pub fn probe(&mut self, slot: Slot) {
        if let Some(lane) = self.lanes.get_mut(slot.index()) {
            let wanted = (lane.wanted & lane.usable).hull();
            if lane.next.is_empty() && lane.is_free() {
                lane.ask(wanted, Manner::EXTRA);
            }
        }
    }

    /// The members to be asked.
    pub fn to_ask(&self) -> SlotSet {
        self.slots_with(|lane| !lane.next.is_empty())
    }

    /// Takes what `slot` is to be asked for next: from here on that is on its way.
    pub fn take_request(&mut self, slot: Slot) -> Option<(Part, Manner)> {
        let lane = self.lanes.get_mut(slot.index())?;
        let grains = core::mem::take(&mut lane.next).hull();
        if grains.is_empty() || !lane.is_free() {
            return None;
        }
        lane.asked = grains;
        (lane.retries, lane.extra, lane.late) = (lane.next_retries, lane.next_extra, false);
        let manner = Manner {
            retries: lane.retries,
            extra: lane.extra,
        };
        Some((self.window.part(grains), manner))
    }

    /// The members with a command on its way.
    pub fn pending(&self) -> SlotSet {
        self.slots_with(|lane| !lane.asked.is_empty())
    }

    /// The members that have all of the window on its way or in their buffers.
    fn whole(&self) -> SlotSet {
        let all = self.window.all();
        self.slots_with(|lane| all.is_subset((lane.asked | lane.have) & lane.usable))
    }

    /// So many answers of members are enough, whichever they are; `None` when that is not so simple.
    pub fn quorum(&self) -> Option<u32> {
        let needed = u32::from(self.geometry.data_columns());
        let pending = self.pending();
        let simple = self.window.all().is_subset(*self.decodes)
            && pending.is_subset(self.whole())
            && pending.len() > needed;
        simple.then_some(needed)
    }

    /// Whether all that is missing could be computed without those who are on their way, and without
    /// those who are avoided, if parity and data fit together.
    pub fn can_do_without_pending(&self) -> bool {
        let needed = u32::from(self.geometry.data_columns());
        let mut missing = self.missing().iter();
        missing.all(|number| {
            let grain = Grains::one(number);
            let others = self.slots_with(|lane| {
                let unread = (grain & (lane.failed_fast | lane.failed_slow)).is_empty();
                !lane.avoided && lane.is_free() && grain.is_subset(lane.usable) && unread
            });
            others.len() >= needed
        })
    }

    /// Those who are on their way are not counted on any more.
    pub fn set_late(&mut self) {
        for lane in self.lanes.iter_mut() {
            lane.late = !lane.asked.is_empty();
        }
    }

    /// The command of `slot` came back.
    pub fn came(&mut self, slot: Slot, answer: Answer) {
        let Some(lane) = self.lanes.get_mut(slot.index()) else {
            return;
        };
        let asked = core::mem::take(&mut lane.asked);
        // What lay between what was asked for was read again, or was to be.
        lane.have = lane.have & !asked;
        let failed = match answer {
            Answer::All => {
                lane.have |= asked & lane.usable;
                return;
            }
            Answer::Lost => {
                lane.have = Grains::NONE;
                asked
            }
            Answer::Error => asked,
            Answer::Prefix(sectors) => {
                let part = self.window.part(asked);
                let first = self.window.at.get() + u64::from(part.offset);
                let bad = self.window.number(first + u64::from(sectors.min(part.len)));
                let before = Grains::run(0, bad);
                lane.have |= asked & before & lane.usable;
                asked & Grains::run(bad, 1)
            }
        };
        lane.failed_fast |= failed;
        if lane.retries {
            lane.failed_slow |= failed;
        }
    }

    /// Decides what to do next, as things are now.
    pub fn decide(&mut self) -> Next {
        let mut next = Next::default();
        for grain in self.missing().iter() {
            self.look_after(grain, &mut next);
        }
        next.ask = self.to_ask();
        next.waits |= !next.ask.is_empty();
        next
    }

    /// Sees to it that what is wanted at one grain comes.
    fn look_after(&mut self, number: u32, next: &mut Next) {
        let grain = Grains::one(number);
        let look = self.look(grain);
        let needed = match grain.is_subset(*self.decodes) {
            true => u32::from(self.geometry.data_columns()),
            false => u32::MAX,
        };
        let enough = |set: SlotSet| look.missing.is_subset(set) || set.len() >= needed;
        if look.have.len() >= needed {
            return;
        }
        let (counted, all) = (
            look.have.union(look.coming),
            look.have.union(look.coming).union(look.extra),
        );
        if !enough(counted) {
            next.promote = next.promote.union(look.extra);
        }
        if enough(all) {
            next.waits = true;
            return;
        }
        let own = look.missing.minus(all);
        let lack = needed.saturating_sub(all.len());
        // Without a spare one nobody can be done without.
        let fast = match look.willing.len() > needed {
            true => Manner::FAST,
            false => Manner::PATIENT,
        };
        // Where blocks can be computed, some of several that are missing may be enough.
        let some: SlotSet = own.iter().take(lack as usize).collect();
        if own.is_subset(look.fresh) && (needed == u32::MAX || self.is_long(own)) {
            self.ask(some, grain, fast);
        } else if look.fresh.len() >= lack {
            let chosen = self.choose(number, &look, look.fresh, lack);
            self.ask(chosen, grain, fast);
        } else if look.fresh.union(look.busy).len() >= lack {
            // Without those that did not deliver, if the others will do.
            let others = look.fresh.minus(look.missing);
            let chosen = match others.union(look.busy).len() >= lack {
                true => others,
                false => look.fresh,
            };
            self.ask(chosen, grain, fast);
            next.waits = true;
        } else if own.is_subset(look.unasked) {
            self.ask(some, grain, Manner::PATIENT);
        } else if look.unasked.len() >= lack {
            let chosen = self.choose(number, &look, look.unasked, lack);
            self.ask(chosen, grain, Manner::PATIENT);
        } else if look.pending {
            next.waits = true;
        } else {
            next.lost = true;
        }
    }

    /// Whether so much of these members was not delivered because of something before it that they
    /// are better asked again.
    fn is_long(&self, own: SlotSet) -> bool {
        own.iter().all(|slot| {
            self.lanes.get(slot.index()).is_some_and(|lane| {
                let known = lane.have | lane.failed_fast;
                (lane.wanted & !known).len() >= OWN_AGAIN
            })
        })
    }

    fn ask(&mut self, members: SlotSet, grain: Grains, manner: Manner) {
        for slot in members.iter() {
            if let Some(lane) = self.lanes.get_mut(slot.index()) {
                lane.ask(grain, manner);
            }
        }
    }

    /// Takes so many of `among`: first those that nothing speaks against, a second parity late, and last
    /// those that have not delivered what is missing.
    fn choose(&self, grain: u32, look: &Look, among: SlotSet, count: u32) -> SlotSet {
        let q = self
            .geometry
            .q_slot(self.window.stripe(self.geometry, grain));
        let q = q.map_or(SlotSet::EMPTY, SlotSet::single);
        let mut chosen = SlotSet::EMPTY;
        let others = among.minus(look.missing);
        for group in [
            look.fresh.minus(q),
            look.fresh,
            SlotSet::first_n(64).minus(q),
            q,
        ] {
            for slot in others.intersect(group).iter() {
                if chosen.len() < count {
                    chosen.insert(slot);
                }
            }
        }
        let own = among.intersect(look.missing);
        let more = count.saturating_sub(chosen.len());
        own.iter()
            .take(more as usize)
            .collect::<SlotSet>()
            .union(chosen)
    }

    fn look(&self, grain: Grains) -> Look {
        let mut look = Look::default();
        for (slot, lane) in slots().zip(self.lanes.iter()) {
            if !grain.is_subset(lane.usable) {
                if grain.is_subset(lane.wanted) {
                    look.missing.insert(slot);
                }
                continue;
            }
            if !lane.avoided {
                look.willing.insert(slot);
            }
            // While a command has the buffer nobody else does.
            let (has, free) = (grain.is_subset(lane.have), lane.is_free());
            if grain.is_subset(lane.wanted) && !has {
                look.missing.insert(slot);
            }
            look.pending |= !free;
            if has && free {
                look.have.insert(slot);
            } else if has || grain.is_subset(lane.asked) {
                match (lane.late, lane.extra) {
                    (true, _) => {}
                    (false, false) => look.coming.insert(slot),
                    (false, true) => look.extra.insert(slot),
                }
            } else if grain.is_subset(lane.next) {
                look.coming.insert(slot);
            } else if free {
                if lane.is_fresh(grain) {
                    look.fresh.insert(slot);
                }
                if lane.is_unasked(grain) {
                    look.unasked.insert(slot);
                }
            } else if !lane.late && lane.is_fresh(grain) {
                look.busy.insert(slot);
            }
        }
        look
    }

    /// The commands of `slots` are not extra any more.
    pub fn promoted(&mut self, members: SlotSet) {
        for slot in members.iter() {
            if let Some(lane) = self.lanes.get_mut(slot.index()) {
                lane.extra = false;
            }
        }
    }

    /// What came of what is wanted of `slot`, to be handed to the reader: it is not wanted any more.
    pub fn deliver(&mut self, slot: Slot) -> Grains {
        let Some(lane) = self.lanes.get_mut(slot.index()) else {
            return Grains::NONE;
        };
        let came = lane.wanted & lane.have;
        lane.wanted = lane.wanted & !came;
        came
    }

    /// The next run of wanted grains that can be decoded; [`Self::decoded`] is to be told of it.
    pub fn to_decode(&self) -> Option<Decode> {
        let missing = self.missing();
        let mut run: Option<Decode> = None;
        for number in missing.iter() {
            let found = self.decode_of(number);
            match (&mut run, found) {
                (None, found) => run = found,
                (Some(run), Some(found)) if run.fits(&found) => run.grains |= found.grains,
                (Some(_), _) => break,
            }
        }
        run
    }

    fn decode_of(&self, number: u32) -> Option<Decode> {
        let grain = Grains::one(number);
        let look = self.look(grain);
        let needed = u32::from(self.geometry.data_columns());
        if !grain.is_subset(*self.decodes) || look.have.len() < needed {
            return None;
        }
        let stripe = self.window.stripe(self.geometry, number);
        let last = self.geometry.data_columns().saturating_sub(1);
        let data = self.geometry.data_slots(stripe, 0, last);
        let missing = match self.geometry.level() {
            Level::Raid1 => look.missing,
            _ => data.minus(look.have),
        };
        Some(Decode {
            stripe,
            grains: grain,
            from: look.have,
            missing,
        })
    }

    /// The blocks of a run were decoded: the missing members' buffers have them.
    pub fn decoded(&mut self, decode: &Decode) {
        for slot in decode.missing.iter() {
            if let Some(lane) = self.lanes.get_mut(slot.index()) {
                lane.have |= decode.grains;
            }
        }
    }

    /// Whether something of a piece is still wanted.
    pub fn lacks(&self, piece: &Piece, slot: Slot) -> bool {
        let grains = self.window.touched(piece.at, u64::from(piece.len));
        self.lanes
            .get(slot.index())
            .is_some_and(|lane| !(lane.wanted & grains).is_empty())
    }

    /// The members that failed with retries.
    pub fn unreadable(&self) -> SlotSet {
        self.slots_with(|lane| !lane.failed_slow.is_empty())
    }

    /// The grains at which something that is wanted did not come.
    fn missing(&self) -> Grains {
        let lanes = self.lanes.iter();
        lanes.fold(Grains::NONE, |all, lane| all | (lane.wanted & !lane.have))
    }

    fn slots_with(&self, is: impl Fn(&Lane) -> bool) -> SlotSet {
        slots()
            .zip(self.lanes.iter())
            .filter(|(_, lane)| is(lane))
            .map(|(slot, _)| slot)
            .collect()
    }
}

impl Decode {
    /// Whether `other` continues this and is decoded alike.
    fn fits(&self, other: &Decode) -> bool {
        let adjacent = self.grains.0.leading_zeros() == other.grains.0.leading_zeros() + 1;
        adjacent
            && (self.stripe, self.from, self.missing) == (other.stripe, other.from, other.missing)
    }
}

fn slots() -> impl Iterator<Item = Slot> {
    (0..=u8::MAX).map_while(Slot::new)
}
