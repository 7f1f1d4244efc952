// SPDX-License-Identifier: GPL-2.0

//! Writes of a band of one stripe.
//!
//! A write is admitted to its region first (the map says so on every member before any data is
//! written), reserves all it may need, takes its stripe, plans, reads what the plan asks for
//! (shared with reconstructing reads), takes the stripe exclusively, computes, writes, and is
//! acknowledged once whatever a member missed is recorded on the others.

use kernel::prelude::*;

use crate::{
    kapi::{command::CommandOp, request::Request, status::Status, xor::ByteRange},
    op::{Context, Issue, Step},
    parity::can_modify,
};
use eraid_core::{
    geometry::{Band, Level},
    plan_read::View,
    plan_write::{plan_write, Lost, WriteKind, WritePlan},
    region::Admit,
    stripelock::{Grant, Mode},
    units::{Sector, Slot, SlotSet},
};

enum Phase {
    Admit,
    Reserve,
    Lock,
    Plan,
    Preread,
    Upgrade,
    Commit,
    Record,
}

/// See the [module description](self).
pub(crate) struct StripeWrite {
    band: Band,
    phase: Phase,
    plan: Option<WritePlan>,
    /// Members found unreadable in these rows.
    bad: SlotSet,
    /// Members that do not have this write and are to be recorded as stale.
    missed: SlotSet,
    /// Members that did not have current data when the write was planned.
    unusable: SlotSet,
    /// A recovery may have had the stripe in work when the write was planned.
    in_work: bool,
    /// The region counts this write.
    admitted: bool,
    /// Commands are reserved for all members.
    wide: bool,
}

impl StripeWrite {
    /// Writes `band`, every column of which the request covers.
    pub(crate) fn new(band: Band) -> Self {
        Self {
            band,
            phase: Phase::Admit,
            plan: None,
            bad: SlotSet::EMPTY,
            missed: SlotSet::EMPTY,
            unusable: SlotSet::EMPTY,
            in_work: false,
            admitted: false,
            wide: false,
        }
    }

    pub(crate) fn advance(&mut self, cx: &mut Context<'_>) -> Step {
        let Some(request) = cx.request.cloned() else {
            return Step::Done;
        };
        loop {
            match self.phase {
                Phase::Admit => {
                    let missing = cx.array.missing();
                    if cx.array.begin_write(cx.op, self.band.stripe, missing) == Admit::Wait {
                        return Step::Wait;
                    }
                    self.admitted = true;
                    self.phase = Phase::Reserve;
                }
                Phase::Reserve => {
                    let (slots, rows) = (self.likely(cx), self.band.rows.len());
                    if !cx.reserve_and_lock(slots, rows, self.band.stripe, Mode::Preread) {
                        return Step::Wait;
                    }
                    self.phase = Phase::Lock;
                }
                Phase::Lock if !cx.granted => return Step::Wait,
                Phase::Lock => self.phase = Phase::Plan,
                Phase::Plan => match self.plan(cx) {
                    Ok(plan) if !self.needs(cx, &plan).is_subset(cx.reserved()) => {
                        self.wide = true;
                        self.release(cx);
                        self.phase = Phase::Reserve;
                    }
                    Ok(plan) => {
                        cx.keep_only(self.needs(cx, &plan));
                        self.plan = Some(plan);
                        self.missed = plan.missed;
                        self.phase = Phase::Preread;
                        if !plan.preread.is_empty() {
                            self.preread(cx, plan.preread);
                            return Step::Wait;
                        }
                    }
                    Err(Lost) => {
                        request.fail(Status::IOERR);
                        self.release(cx);
                        return self.end(cx);
                    }
                },
                Phase::Preread if !cx.errors.is_empty() && self.prereads() => {
                    self.bad = self.bad.union(cx.errors);
                    self.release(cx);
                    self.phase = Phase::Reserve;
                }
                Phase::Preread => {
                    self.phase = Phase::Upgrade;
                    if cx.array.upgrade_stripe(cx.op) == Grant::Granted {
                        if self.commit(cx, &request) {
                            return Step::Wait;
                        }
                        return self.end(cx);
                    }
                    return Step::Wait;
                }
                Phase::Upgrade if !cx.granted => return Step::Wait,
                Phase::Upgrade => {
                    if self.commit(cx, &request) {
                        return Step::Wait;
                    }
                    return self.end(cx);
                }
                Phase::Commit => {
                    cx.op.end_offer();
                    self.written(cx, &request);
                    self.release(cx);
                    self.phase = Phase::Record;
                }
                Phase::Record => {
                    if !cx.array.recorded(cx.op, self.band.stripe, self.missed) {
                        return Step::Wait;
                    }
                    self.trace(cx, &request);
                    return self.end(cx);
                }
            }
        }
    }

    pub(crate) fn abort(&mut self, cx: &mut Context<'_>) {
        cx.array.forget_wait(cx.op);
        cx.op.end_offer();
        cx.array.unlock_stripe(cx.op);
        if matches!(self.phase, Phase::Commit) {
            // A write that lands late must not land on what counts as current.
            cx.array.write_failed(cx.left);
            cx.array.note_torn(self.band.stripe);
        }
        self.end(cx);
    }

    /// Leaves the region.
    fn end(&mut self, cx: &mut Context<'_>) -> Step {
        if core::mem::take(&mut self.admitted) {
            cx.array.end_write(self.band.stripe);
        }
        Step::Done
    }

    /// Whether the plan reads anything first.
    fn prereads(&self) -> bool {
        self.plan.is_some_and(|plan| !plan.preread.is_empty())
    }

    /// The members to reserve commands for. Only those that the plan of this moment needs: writes
    /// have nothing to do with a member that hangs elsewhere. The plan made under the lock may
    /// need others; then all are reserved.
    fn likely(&self, cx: &Context<'_>) -> SlotSet {
        let plan = self.decide(cx, &self.view(cx));
        match plan {
            Ok(plan) if !self.wide => self.needs(cx, &plan),
            _ if cx.array.geometry.level() == Level::Raid0 => self.touched(cx),
            _ => cx.array.geometry.all_slots(),
        }
    }

    fn plan(&mut self, cx: &Context<'_>) -> Result<WritePlan, Lost> {
        // Before the view, and with the stripe held: a recovery that passes it later sees this write.
        self.in_work = cx.array.in_work(self.band.stripe);
        let view = self.view(cx);
        self.unusable = cx.array.geometry.all_slots().minus(view.usable);
        self.decide(cx, &view)
    }

    fn view(&self, cx: &Context<'_>) -> View {
        let mut view = cx.array.view(self.band.stripe);
        view.bad = view.bad.union(self.bad);
        view
    }

    fn decide(&self, cx: &Context<'_>, view: &View) -> Result<WritePlan, Lost> {
        let Band {
            stripe,
            first,
            last,
            ..
        } = self.band;
        let geometry = &cx.array.geometry;
        let can_modify = can_modify(geometry.level());
        plan_write(geometry, stripe, first, last, view, can_modify)
    }

    /// The slots of all columns that a plan reads, writes or computes with.
    fn needs(&self, cx: &Context<'_>, plan: &WritePlan) -> SlotSet {
        plan.preread.union(plan.write).union(self.touched(cx))
    }

    /// The slots of the data columns the request writes; of RAID-1 all copies.
    fn touched(&self, cx: &Context<'_>) -> SlotSet {
        let Band {
            stripe,
            first,
            last,
            ..
        } = self.band;
        cx.array.geometry.data_slots(stripe, first, last)
    }

    fn preread(&self, cx: &mut Context<'_>, slots: SlotSet) {
        let at = self.at(cx);
        for slot in slots.iter() {
            cx.prepare(slot, CommandOp::Read, at, self.band.rows.len());
        }
        let how = Issue {
            ends_anywhere: false,
            rescuable: false,
        };
        cx.op.clone().issue(cx, slots, how);
    }

    fn at(&self, cx: &Context<'_>) -> Sector {
        cx.array
            .geometry
            .member_sector(self.band.stripe, self.band.rows.lo)
    }

    /// Computes and issues the writes; `false` when that failed.
    fn commit(&mut self, cx: &mut Context<'_>, request: &Request) -> bool {
        let Some(plan) = self.plan else { return false };
        if self.compute(cx, request, &plan).is_err() {
            request.fail(Status::IOERR);
            self.release(cx);
            return false;
        }
        let at = self.at(cx);
        for slot in plan.write.iter() {
            cx.prepare(slot, CommandOp::Write, at, self.band.rows.len());
        }
        cx.keep_only(plan.write);
        self.phase = Phase::Commit;
        cx.array.offer_commit(cx.op, request, self.band);
        let how = Issue {
            ends_anywhere: false,
            rescuable: false,
        };
        cx.op.clone().issue(cx, plan.write, how);
        true
    }

    /// Puts the new data and the new parity into the columns.
    fn compute(&self, cx: &mut Context<'_>, request: &Request, plan: &WritePlan) -> Result {
        let len = self.band.rows.len() as usize * 512;
        let range = ByteRange::new(0, len)?;
        let (array, touched) = (cx.array, self.touched(cx));
        let parity = array.parity(self.band.stripe);
        match plan.kind {
            WriteKind::Copies => self.fill_copies(cx, request, plan.write, len),
            WriteKind::Plain | WriteKind::DataOnly => self.fill(cx, request, len),
            WriteKind::Full | WriteKind::Reconstruct => {
                self.fill(cx, request, len)?;
                parity.generate(cx.columns, plan.write, range)
            }
            WriteKind::Modify => {
                parity.remove(cx.columns, touched, plan.write, range)?;
                self.fill(cx, request, len)?;
                parity.add(cx.columns, touched, plan.write, range)
            }
        }
    }

    /// Copies the request's data into the columns it writes.
    ///
    /// Once, and members are written from the copy: users change pages under direct I/O, and
    /// parity has to match what is written.
    fn fill(&self, cx: &mut Context<'_>, request: &Request, len: usize) -> Result {
        for column in self.band.first..=self.band.last {
            let slot = cx.array.geometry.slot_of_data(self.band.stripe, column);
            self.fill_one(cx, request, column, slot, len)?;
        }
        Ok(())
    }

    fn fill_copies(
        &self,
        cx: &mut Context<'_>,
        request: &Request,
        slots: SlotSet,
        len: usize,
    ) -> Result {
        for slot in slots.iter() {
            self.fill_one(cx, request, 0, slot, len)?;
        }
        Ok(())
    }

    fn fill_one(
        &self,
        cx: &mut Context<'_>,
        request: &Request,
        column: u8,
        slot: Slot,
        len: usize,
    ) -> Result {
        let start = Sector::new(request.sector());
        let offset = self.band.request_offset(&cx.array.geometry, start, column);
        let offset = offset.ok_or(EIO)?.get() as usize * 512;
        let cmd = cx.columns.get_mut(slot).ok_or(EIO)?;
        request.copy_to_buf(offset, &mut cmd.buf, 0, len)
    }

    /// Looks at how the writes went.
    fn written(&mut self, cx: &mut Context<'_>, request: &Request) {
        let failed = cx.errors;
        let kept = cx.array.write_failed(failed);
        let without = self.unusable.union(failed).len();
        let too_many = !failed.is_empty() && without > u32::from(cx.array.geometry.parity());
        if !kept.is_empty() || too_many {
            // No redundancy left to do without these members, whoever failed them.
            request.fail(Status::IOERR);
            cx.array.note_torn(self.band.stripe);
        }
        let mut news = failed.minus(kept);
        self.missed = self.missed.union(news);
        if self.in_work || cx.array.in_work(self.band.stripe) {
            news = self.missed;
        }
        cx.array.note_missed(self.band.stripe, news);
    }

    fn release(&self, cx: &mut Context<'_>) {
        cx.give_back_all();
        cx.array.unlock_stripe(cx.op);
    }

    fn trace(&self, cx: &Context<'_>, request: &Request) {
        let sectors = self.band.rows.len() * u32::from(self.band.columns());
        let kind = self.plan.map_or("none", |plan| plan.kind.as_str());
        cx.array
            .write_done(request, kind, self.band.stripe, sectors);
    }
}
