// SPDX-License-Identifier: GPL-2.0

//! Discards of whole regions.
//!
//! The regions go back to "never written" on the members first, so that a crash at any moment leaves
//! neither anything to resync nor any doubt; then the members discard their parts of them, those that
//! can; then the regions may be written again. Members that fail a discard are not failed: what they
//! hold there is undefined anyway. Reads are not kept out: what they return is undefined.
//!
//! RAID-0 has no map, and its discards go to the members right away, in whole stripes.

use core::ops::Range;

use crate::{
    kapi::{command::CommandOp, params, status::Status},
    op::{Context, Issue, Step},
};
use eraid_core::{
    discard,
    geometry::Level,
    units::{RegionNo, Sector, Sectors, SlotSet},
};

/// Sectors of a member in one command: 1 GiB. A command is less than 4 GiB.
const COMMAND_SECTORS: u64 = 1 << 21;

enum Phase {
    Begin,
    Record,
    Reserve,
    /// The members discard what is between `done` and `upto`, in sectors of the region `at`.
    Discarding {
        upto: u64,
    },
}

/// See the [module description](self).
pub(crate) struct Discard {
    start: Sector,
    len: Sectors,
    /// The regions that are discarded as a whole.
    regions: Range<u64>,
    /// Of RAID-0: the sectors of each member, from the start of its data on.
    plain: Range<u64>,
    /// The region in work.
    at: u64,
    /// Sectors of it that are done, on each member.
    done: u64,
    phase: Phase,
}

impl Discard {
    /// Discards so much from `start` on.
    pub(crate) fn new(start: Sector, len: Sectors) -> Self {
        Self {
            start,
            len,
            regions: 0..0,
            plain: 0..0,
            at: 0,
            done: 0,
            phase: Phase::Begin,
        }
    }

    #[inline(never)]
    pub(crate) fn advance(&mut self, cx: &mut Context<'_>) -> Step {
        loop {
            match self.phase {
                Phase::Begin => {
                    if cx.array.is_broken() {
                        if let Some(request) = cx.request {
                            request.fail(Status::IOERR);
                        }
                        return Step::Done;
                    }
                    if cx.array.geometry.level() == Level::Raid0 {
                        self.plain = self.of_members(cx);
                        self.phase = Phase::Reserve;
                        continue;
                    }
                    self.regions = cx.array.begin_discard(cx.op, self.start, self.len);
                    self.at = self.regions.start;
                    if self.regions.is_empty() {
                        return Step::Done;
                    }
                    // Nobody writes there now, so nothing is retained anew before the end.
                    cx.array.distrust_retained();
                    self.phase = Phase::Record;
                }
                Phase::Record => {
                    if !cx.array.discard_recorded(cx.op, self.regions.clone()) {
                        return Step::Wait;
                    }
                    self.phase = Phase::Reserve;
                }
                Phase::Reserve => {
                    let slots = self.slots(cx);
                    let Some((at, upto)) = self.next(cx).filter(|_| !slots.is_empty()) else {
                        cx.array.forget_wait(cx.op);
                        cx.array.end_discard(cx.op, self.regions.clone());
                        return Step::Done;
                    };
                    if !cx.reserve(slots, 0) {
                        return Step::Wait;
                    }
                    self.phase = Phase::Discarding { upto };
                    // CAST: At most `COMMAND_SECTORS`.
                    let len = (upto - self.done) as u32;
                    for slot in slots.iter() {
                        cx.prepare(slot, CommandOp::Discard, at, len);
                    }
                    cx.op.clone().issue(cx, slots, Issue::default());
                    return Step::Wait;
                }
                Phase::Discarding { upto } => {
                    cx.give_back_all();
                    self.done = upto;
                    self.phase = Phase::Reserve;
                }
            }
        }
    }

    pub(crate) fn abort(&mut self, cx: &mut Context<'_>) {
        cx.array.forget_wait(cx.op);
        if matches!(self.phase, Phase::Discarding { .. }) {
            // A discard that comes late must not hit what is written from now on.
            cx.array.gave_up(cx.left);
        }
        cx.array.end_discard(cx.op, self.regions.clone());
    }

    /// Live members that are to discard. What a member returns for discarded blocks may be anything,
    /// each time anew, and parity of stripes written later is computed from that: so with parity
    /// only those that the administrator vouches for, as with md.
    fn slots(&self, cx: &Context<'_>) -> SlotSet {
        if cx.array.geometry.level().has_parity() && !params::discards_are_safe() {
            return SlotSet::EMPTY;
        }
        let can = |slot: &_| {
            let member = cx.array.member(*slot);
            member.is_some_and(|member| member.device.can_discard())
        };
        cx.array.live().iter().filter(can).collect()
    }

    /// What the stripes within it take of each member.
    fn of_members(&self, cx: &Context<'_>) -> Range<u64> {
        let geometry = &cx.array.geometry;
        let stripes = discard::whole_stripes(geometry, self.start, self.len);
        let at = |stripe| geometry.member_sector(stripe, 0).get();
        at(stripes.start)..at(stripes.end)
    }

    /// Where to go on on each member, and up to which sector of the region, or of `plain`; `None`
    /// when all is done.
    fn next(&mut self, cx: &Context<'_>) -> Option<(Sector, u64)> {
        let plain = self.plain.end.saturating_sub(self.plain.start);
        if self.done < plain {
            let at = Sector::new(self.plain.start + self.done);
            return Some((at, plain.min(self.done + COMMAND_SECTORS)));
        }
        while self.at < self.regions.end {
            let len = cx.array.region_len(RegionNo::new(self.at)).get();
            if self.done < len && cx.array.is_discarding(cx.op, self.at) {
                let start = cx.array.region_start(RegionNo::new(self.at));
                let at = start.checked_add(Sectors::new(self.done))?;
                return Some((at, len.min(self.done + COMMAND_SECTORS)));
            }
            self.at += 1;
            self.done = 0;
        }
        None
    }
}
