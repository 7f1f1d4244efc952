// SPDX-License-Identifier: GPL-2.0

//! Reads of a band of one stripe, which decode what cannot be read.
//!
//! All blocks of a decode are issued under one shared hold of the stripe: no write changes any of
//! them meanwhile. Memory is reserved before the lock is asked for, so that whoever holds a lock
//! has what it needs and goes on.
//!
//! A write of the stripe that is in commit keeps reads out, and lasts as long as the slowest member it
//! writes to. Blocks that it writes are taken from its request meanwhile, as they will be on the
//! members: who reads while somebody writes may see the old or the new data.
//!
//! The fallback order is own block, peers, own block again in single blocks and with all the time
//! the drive wants, error. Every step tests the members anew.

use kernel::prelude::*;

use crate::{
    array::plan_read,
    kapi::{command::CommandOp, request::Request, status::Status, trace, xor::ByteRange},
    op::{Context, Issue, Offer, Step},
};
use eraid_core::{
    geometry::{Band, Rows},
    plan_read::ReadPlan,
    stripelock::Mode,
    units::{Sector, Sectors, SlotSet},
};

/// Sectors of the blocks that are tried one by one before anything is given up: 4 KiB.
const SINGLE_BLOCK: u32 = 8;

enum Phase {
    Reserve,
    Lock,
    Plan,
    Reading { fetch: SlotSet, missing: SlotSet },
}

/// See the [module description](self).
pub(crate) struct StripeRead {
    band: Band,
    /// The rows being read; a part of the band's when single blocks are tried.
    rows: Rows,
    /// Rows read at a time.
    step: u32,
    /// Single blocks, and nothing overtakes a read any more.
    last_ditch: bool,
    /// Members found unreadable in these rows.
    bad: SlotSet,
    /// Members that were late with these rows just now.
    late: SlotSet,
    /// Commands are reserved for all members.
    wide: bool,
    phase: Phase,
}

impl StripeRead {
    /// Reads `band`, at most `max_rows` at a time, when the members of `bad` were just found
    /// unreadable.
    pub(crate) fn new(band: Band, max_rows: u32, bad: SlotSet) -> Self {
        let mut read = Self {
            band,
            rows: band.rows,
            step: max_rows,
            last_ditch: false,
            bad,
            late: SlotSet::EMPTY,
            wide: false,
            phase: Phase::Reserve,
        };
        read.rows = read.step_from(band.rows.lo);
        read
    }

    /// Rather from others than from members that were late just now.
    pub(crate) fn after(self, late: SlotSet) -> Self {
        Self { late, ..self }
    }

    #[inline(never)]
    pub(crate) fn advance(&mut self, cx: &mut Context<'_>) -> Step {
        loop {
            match self.phase {
                Phase::Reserve => {
                    let (slots, rows) = (self.likely(cx), self.rows.len());
                    if !cx.reserve_and_lock(slots, rows, self.band.stripe, Mode::Shared) {
                        return Step::Wait;
                    }
                    self.phase = Phase::Lock;
                }
                Phase::Lock if !cx.granted => {
                    if !self.take_offer(cx) {
                        return Step::Wait;
                    }
                    if !self.next_rows() {
                        self.trace(cx, "commit");
                        return Step::Done;
                    }
                }
                Phase::Lock => self.phase = Phase::Plan,
                Phase::Plan => match self.plan(cx) {
                    Some((fetch, missing)) if fetch.union(missing).is_subset(cx.reserved()) => {
                        self.issue(cx, fetch, missing);
                        self.phase = Phase::Reading { fetch, missing };
                        return Step::Wait;
                    }
                    Some(_) => {
                        self.wide = true;
                        self.release(cx);
                    }
                    None => {
                        self.release(cx);
                        if self.retry_single_blocks(cx) {
                            continue;
                        }
                        cx.array.read_lost(self.band.stripe, self.rows);
                        self.fail_rows(cx);
                        if !self.next_rows() {
                            return Step::Done;
                        }
                    }
                },
                Phase::Reading { .. } if !cx.errors.is_empty() => {
                    self.bad = self.bad.union(cx.errors);
                    self.release(cx);
                }
                Phase::Reading { fetch, missing } => {
                    if self.deliver(cx, fetch, missing).is_err() {
                        self.fail_rows(cx);
                    }
                    self.release(cx);
                    if !self.next_rows() {
                        self.trace(cx, self.mode(missing));
                        return Step::Done;
                    }
                }
            }
        }
    }

    pub(crate) fn abort(&mut self, cx: &mut Context<'_>) {
        cx.array.forget_wait(cx.op);
        cx.array.unlock_stripe(cx.op, self.band.stripe);
    }

    /// The members to ask and those to compute, as things are now; `None` when there is no way to
    /// the data.
    fn plan(&self, cx: &Context<'_>) -> Option<(SlotSet, SlotSet)> {
        let hanging = match cx.array.reading.overtakes() {
            true => cx.array.suspects(cx.array.live()),
            false => SlotSet::EMPTY,
        };
        let plan = self.plan_without(cx, hanging.union(self.late));
        match plan {
            // One that was late is better than one that hangs.
            Some((fetch, _)) if !fetch.intersect(hanging).is_empty() => {
                self.plan_without(cx, hanging)
            }
            _ => plan,
        }
    }

    /// The same, if possible without the members of `avoid`.
    fn plan_without(&self, cx: &Context<'_>, avoid: SlotSet) -> Option<(SlotSet, SlotSet)> {
        let mut view = cx.array.view(self.band.stripe);
        view.bad = view.bad.union(self.bad);
        view.avoid = view.avoid.union(avoid);
        let (first, last) = (self.band.first, self.band.last);
        match plan_read(cx.array, self.band.stripe, first, last, &view, None) {
            ReadPlan::Direct(slots) => Some((slots, SlotSet::EMPTY)),
            ReadPlan::Decode { fetch, missing } => Some((fetch, missing)),
            ReadPlan::Lost => None,
        }
    }

    /// The members to reserve commands for. Only those that the plan of this moment needs: reads
    /// have nothing to do with a member that hangs elsewhere. The plan made under the lock may
    /// need others; then all are reserved.
    fn likely(&self, cx: &Context<'_>) -> SlotSet {
        let plan = self.plan(cx).filter(|_| !self.wide);
        plan.map_or(cx.array.geometry.all_slots(), |(fetch, missing)| {
            fetch.union(missing)
        })
    }

    fn issue(&self, cx: &mut Context<'_>, fetch: SlotSet, missing: SlotSet) {
        cx.keep_only(fetch.union(missing));
        let at = cx
            .array
            .geometry
            .member_sector(self.band.stripe, self.rows.lo);
        for slot in fetch.iter() {
            cx.prepare(slot, CommandOp::Read, at, self.rows.len());
        }
        let how = Issue {
            ends_anywhere: false,
            rescuable: !self.last_ditch && cx.array.geometry.parity() > 0,
            ..Issue::default()
        };
        cx.op.clone().issue(cx, fetch, how);
    }

    /// Gives everything back, to begin again.
    fn release(&mut self, cx: &mut Context<'_>) {
        cx.give_back_all();
        cx.array.unlock_stripe(cx.op, self.band.stripe);
        self.phase = Phase::Reserve;
    }

    /// Turns to single blocks when the rows as a whole could not be read; `false` when that was
    /// tried already.
    fn retry_single_blocks(&mut self, cx: &Context<'_>) -> bool {
        if self.last_ditch {
            return false;
        }
        // Without an unreadable block a second attempt has no other answer.
        let view = cx.array.view(self.band.stripe);
        if self.bad.intersect(view.usable).is_empty() {
            return false;
        }
        self.last_ditch = true;
        self.step = SINGLE_BLOCK;
        self.rows = self.step_from(self.rows.lo);
        self.bad = SlotSet::EMPTY;
        true
    }

    /// Goes on to the next rows; `false` at the end of the band.
    fn next_rows(&mut self) -> bool {
        if self.rows.hi >= self.band.rows.hi {
            return false;
        }
        self.rows = self.step_from(self.rows.hi);
        if self.last_ditch {
            // Each block has its own chance.
            self.bad = SlotSet::EMPTY;
        }
        true
    }

    /// The rows from `lo` to the next multiple of the step.
    fn step_from(&self, lo: u32) -> Rows {
        let end = lo
            .checked_div(self.step)
            .map_or(self.band.rows.hi, |steps| (steps + 1) * self.step);
        Rows {
            lo,
            hi: end.min(self.band.rows.hi),
        }
    }

    /// Fails what the present rows are of the request, and only that.
    fn fail_rows(&self, cx: &Context<'_>) {
        let Some(request) = cx.request else { return };
        let start = Sector::new(request.sector());
        let skip = u64::from(self.rows.lo - self.band.rows.lo);
        for column in self.band.first..=self.band.last {
            let geometry = &cx.array.geometry;
            if let Some(offset) = self.band.request_offset(geometry, start, column) {
                let at = (offset.get() + skip) as usize * 512;
                request.fail_range(at, self.rows.len() as usize * 512, Status::IOERR);
            }
        }
    }

    /// Decodes what is missing and copies the wanted columns to the request.
    fn deliver(&self, cx: &mut Context<'_>, fetch: SlotSet, missing: SlotSet) -> Result {
        let len = self.rows.len() as usize * 512;
        if !missing.is_empty() {
            let range = ByteRange::new(0, len)?;
            let parity = cx.array.parity(self.band.stripe);
            parity.recover(cx.columns, missing, fetch, range)?;
            let rows = self.rows;
            trace::trace_reconstruct(
                cx.array.name(),
                self.band.stripe.get(),
                rows.lo,
                rows.hi,
                missing.bits(),
            );
        }
        let Some(request) = cx.request else {
            return Ok(());
        };
        let start = Sector::new(request.sector());
        let skip = u64::from(self.rows.lo - self.band.rows.lo);
        for column in self.band.first..=self.band.last {
            let slot = match missing.is_empty() && fetch.len() == 1 {
                // The only block read: of RAID-1 whichever copy it was.
                true => fetch.first().ok_or(EIO)?,
                false => cx.array.geometry.slot_of_data(self.band.stripe, column),
            };
            let offset = self
                .band
                .request_offset(&cx.array.geometry, start, column)
                .ok_or(EIO)?;
            let cmd = cx.columns.get(slot).ok_or(EIO)?;
            request.copy_from_buf((offset.get() + skip) as usize * 512, &cmd.buf, 0, len)?;
        }
        Ok(())
    }

    /// Takes the present rows from a write that is in commit and has all of them; `false` when
    /// there is none. The stripe is not waited for then any more.
    fn take_offer(&mut self, cx: &mut Context<'_>) -> bool {
        let wanted = Band {
            rows: self.rows,
            ..self.band
        };
        let Some(offer) = cx.array.offered(&wanted) else {
            return false;
        };
        let taken = self.copy_offer(cx, &wanted, &offer).is_ok();
        if taken {
            self.release(cx);
        }
        taken
    }

    /// Copies the blocks of `wanted` from a write's request to this one, by way of a column.
    fn copy_offer(&self, cx: &mut Context<'_>, wanted: &Band, offer: &Offer) -> Result {
        let Some(request) = cx.request else {
            return Ok(());
        };
        let geometry = &cx.array.geometry;
        let column = cx.reserved().first();
        let column = column
            .and_then(|slot| cx.columns.get_mut(slot))
            .ok_or(EIO)?;
        let skip_from = u64::from(wanted.rows.lo - offer.band.rows.lo);
        let len = wanted.rows.len() as usize * 512;
        for number in wanted.first..=wanted.last {
            let at = |band: &Band, request: &Request| {
                band.request_offset(geometry, Sector::new(request.sector()), number)
            };
            let from = at(&offer.band, &offer.request).ok_or(EIO)?.get() + skip_from;
            let to = at(wanted, request).ok_or(EIO)?.get();
            offer
                .request
                .copy_to_buf(from as usize * 512, &mut column.buf, 0, len)?;
            request.copy_from_buf(to as usize * 512, &column.buf, 0, len)?;
        }
        Ok(())
    }

    fn mode(&self, missing: SlotSet) -> &'static str {
        match (self.last_ditch, missing.is_empty()) {
            (true, _) => "last-ditch",
            (false, true) => "normal",
            (false, false) => "avoid",
        }
    }

    fn trace(&self, cx: &Context<'_>, mode: &str) {
        let start = cx
            .array
            .geometry
            .address(self.band.stripe, self.band.first, self.band.rows.lo);
        let sectors =
            Sectors::new(u64::from(self.band.rows.len()) * u64::from(self.band.columns()));
        if let Some(start) = start {
            cx.array.read_done(cx.request, mode, start, sectors);
        }
    }
}
