// SPDX-License-Identifier: GPL-2.0

//! Writes to one stripe, as many of them as came before it could be taken.
//!
//! A write is admitted to its region first (the map says so on every member before any data is
//! written), and asks for its stripe; until it has that, others join it. Then it plans, reserves
//! what the plan needs, reads old blocks (shared with reconstructing reads), takes the stripe
//! exclusively, computes, writes, and is acknowledged once whatever a member missed is recorded on
//! the others.
//!
//! A write waits for memory with its stripe held, but not exclusively: reads, which reserve before
//! they ask for the stripe, go on and give theirs back; other writes of the stripe hold none yet.

use kernel::prelude::*;

use crate::{
    kapi::{command::CommandOp, status::Status, xor::ByteRange},
    op::{Context, Issue, Step},
    parity,
    retained::Entry,
    writes::Writes,
};
use eraid_core::{
    geometry::Rows,
    plan_read::View,
    plan_write::{new_rows, old_rows, plan_write, Conditions, Lost, WriteKind, WritePlan},
    region::Admit,
    stripelock::{Grant, Mode},
    units::{Slot, SlotSet, StripeNo},
};

enum Phase {
    Admit,
    Lock,
    Close,
    Plan,
    Preread(WritePlan),
    Upgrade(WritePlan),
    Commit(WritePlan),
    Record(WriteKind),
}

/// See the [module description](self).
pub(crate) struct StripeWrite {
    stripe: StripeNo,
    phase: Phase,
    /// Members found unreadable in these rows.
    bad: SlotSet,
    /// Members that do not have this write and are to be recorded as stale.
    missed: SlotSet,
    /// Members that did not have current data when the write was planned.
    unusable: SlotSet,
    /// The region counts this write.
    admitted: bool,
    /// The members that old blocks were asked from.
    asked: SlotSet,
    /// The rows that the columns have room for.
    reach: Rows,
    /// How some of it was written.
    wrote: Option<WriteKind>,
}

impl StripeWrite {
    /// Writes what the operation has gathered for `stripe`.
    pub(crate) fn new(stripe: StripeNo) -> Self {
        Self {
            stripe,
            phase: Phase::Admit,
            bad: SlotSet::EMPTY,
            missed: SlotSet::EMPTY,
            unusable: SlotSet::EMPTY,
            admitted: false,
            asked: SlotSet::EMPTY,
            reach: Rows::NONE,
            wrote: None,
        }
    }

    #[inline(never)]
    pub(crate) fn advance(&mut self, cx: &mut Context<'_>) -> Step {
        loop {
            match self.phase {
                Phase::Admit => {
                    // In this order: whoever fails between the two counts in the second.
                    let missing = cx.array.missing();
                    if cx.array.is_lost(self.stripe) {
                        // Nobody is to become stale for a write that comes to nothing for sure.
                        return self.give_up(cx);
                    }
                    if cx.array.begin_write(cx.op, self.stripe, missing) == Admit::Wait {
                        return Step::Wait;
                    }
                    self.admitted = true;
                    cx.array.wrote(self.stripe);
                    self.phase = Phase::Lock;
                }
                Phase::Lock => {
                    match cx.array.lock_stripe(cx.op, self.stripe, Mode::Preread) {
                        Grant::Misuse => return self.give_up(cx),
                        grant => cx.granted = grant == Grant::Granted,
                    }
                    self.phase = Phase::Close;
                }
                Phase::Close if !cx.granted => return Step::Wait,
                Phase::Close => {
                    cx.columns.writes = cx.op.take_gathered();
                    if cx.array.is_haunted() {
                        // Whoever had the stripe may still write to it.
                        return self.give_up(cx);
                    }
                    cx.columns.kept = self.take_kept(cx);
                    self.phase = Phase::Plan;
                }
                Phase::Plan => match self.plan(cx) {
                    Ok(plan) => {
                        if !self.reserve(cx, &plan) {
                            return Step::Wait;
                        }
                        self.phase = Phase::Preread(plan);
                        self.preread(cx, &plan);
                        if !self.asked.is_empty() {
                            return Step::Wait;
                        }
                    }
                    Err(Lost) if self.goes_on(cx) => {}
                    Err(Lost) => {
                        cx.array.forget_wait(cx.op);
                        cx.array.unlock_stripe(cx.op, self.stripe);
                        match self.wrote {
                            Some(kind) => self.phase = Phase::Record(kind),
                            None => return self.end(cx),
                        }
                    }
                },
                Phase::Preread(_) if !self.asked.is_empty() && !cx.errors.is_empty() => {
                    self.found_bad(cx);
                    cx.give_back_all();
                    self.phase = Phase::Plan;
                }
                Phase::Preread(plan) => {
                    match cx.array.upgrade_stripe(cx.op, self.stripe) {
                        Grant::Misuse => return self.give_up(cx),
                        grant => cx.granted = grant == Grant::Granted,
                    }
                    self.phase = Phase::Upgrade(plan);
                }
                Phase::Upgrade(_) if !cx.granted => return Step::Wait,
                Phase::Upgrade(plan) => {
                    if self.commit(cx, &plan).is_ok() {
                        return Step::Wait;
                    }
                    return self.give_up(cx);
                }
                Phase::Commit(plan) => {
                    cx.columns.writes = cx.op.end_offer();
                    self.written(cx, &plan);
                    cx.give_back_all();
                    if self.next_alone(cx) {
                        cx.array.downgrade_stripe(cx.op, self.stripe);
                        continue;
                    }
                    if let Some(kept) = cx.columns.kept.take() {
                        cx.array.put_retained(kept);
                    }
                    cx.array.unlock_stripe(cx.op, self.stripe);
                    self.phase = Phase::Record(plan.kind);
                }
                Phase::Record(kind) => {
                    if !cx.array.recorded(cx.op, self.stripe, self.missed) {
                        return Step::Wait;
                    }
                    self.trace(cx, kind);
                    return self.end(cx);
                }
            }
        }
    }

    pub(crate) fn abort(&mut self, cx: &mut Context<'_>, status: Status) {
        cx.array.forget_wait(cx.op);
        if cx.columns.writes.is_none() {
            // From here on nobody joins.
            cx.columns.writes = cx.op.end_offer().or_else(|| cx.op.take_gathered());
        }
        if let Some(writes) = &cx.columns.writes {
            writes.fail_all(status);
        }
        if let Phase::Commit(plan) = self.phase {
            self.given_up(cx, &plan);
        }
        // Only now: whoever gets the stripe next is to see this.
        cx.array.unlock_stripe(cx.op, self.stripe);
        self.end(cx);
    }

    /// What is kept of the stripe, where more than one entry will be of use: a sequential writer
    /// begins one.
    fn take_kept(&self, cx: &Context<'_>) -> Option<Entry> {
        let writes = cx.columns.writes.as_ref()?;
        let window = cx.array.max_rows;
        let base = writes.batch.hull().lo / window.max(1) * window;
        let kept = cx.array.take_retained(self.stripe, base);
        if writes.batch.is_full(window) {
            // None of it is old data any more.
            kept.into_iter().for_each(|kept| cx.array.drop_entry(kept));
            return None;
        }
        let begins = writes.sequential && cx.array.geometry.level().has_parity();
        match kept {
            None if begins => cx.array.new_retained(self.stripe, base),
            kept => kept,
        }
    }

    /// Leaves the region. Unless it was put back, what was kept of the stripe is forgotten.
    fn end(&mut self, cx: &mut Context<'_>) -> Step {
        if let Some(kept) = cx.columns.kept.take() {
            cx.array.drop_entry(kept);
        }
        if core::mem::take(&mut self.admitted) {
            cx.array.end_write(self.stripe);
        }
        Step::Done
    }

    fn plan(&mut self, cx: &Context<'_>) -> Result<WritePlan, Lost> {
        let writes = cx.columns.writes.as_ref().ok_or(Lost)?;
        // Before the view, and with the stripe held: a recovery that passes it later sees this write.
        cx.array.meets_write(self.stripe);
        let view = cx.array.view(self.stripe);
        self.unusable = cx.array.geometry.all_slots().minus(view.usable);
        let given = Conditions {
            view: View {
                bad: view.bad.union(self.bad),
                ..view
            },
            at_hand: self.at_hand(cx, writes),
            can_modify: parity::can_modify(cx.array.geometry.level()),
        };
        plan_write(&cx.array.geometry, &writes.batch, &given)
    }

    /// The slots whose old blocks need not be read.
    fn at_hand(&self, cx: &Context<'_>, writes: &Writes) -> SlotSet {
        let kept = cx.columns.kept.as_ref();
        kept.map_or(SlotSet::EMPTY, |kept| kept.at_hand(writes.batch.hull()))
    }

    /// There is no way to write all of it as things are. Unless there was but one write, each is
    /// tried alone: a block that cannot be read may stand in the way of some of them only. `false`
    /// when there is nothing more to try.
    fn goes_on(&mut self, cx: &mut Context<'_>) -> bool {
        cx.give_back_all();
        let window = cx.array.max_rows;
        let writes = cx.columns.writes.as_mut();
        if writes.is_some_and(|writes| writes.begin_alone(window)) {
            self.bad = SlotSet::EMPTY;
            return true;
        }
        self.fail(cx);
        self.next_alone(cx)
    }

    /// Ends all of it with an error: for what does not happen.
    fn give_up(&mut self, cx: &mut Context<'_>) -> Step {
        if cx.columns.writes.is_none() {
            cx.columns.writes = cx.op.take_gathered();
        }
        if let Some(writes) = &cx.columns.writes {
            writes.fail_all(Status::IOERR);
        }
        cx.give_back_all();
        cx.array.unlock_stripe(cx.op, self.stripe);
        self.end(cx)
    }

    /// Old blocks could not be read. Where more were asked for than are needed, that may be nobody's
    /// concern: only those are asked for then.
    fn found_bad(&mut self, cx: &mut Context<'_>) {
        let hull = cx.columns.writes.as_ref().map(|writes| writes.batch.hull());
        if hull.is_some_and(|hull| self.reach.hi > hull.hi) {
            if let Some(kept) = cx.columns.kept.take() {
                cx.array.drop_entry(kept);
                return;
            }
        }
        self.bad = self.bad.union(cx.errors);
    }

    /// Goes on to the next write, when each is tried alone.
    fn next_alone(&mut self, cx: &mut Context<'_>) -> bool {
        let window = cx.array.max_rows;
        let writes = cx.columns.writes.as_mut();
        let more = writes.is_some_and(|writes| writes.next_alone(window));
        if more {
            self.bad = SlotSet::EMPTY;
            self.phase = Phase::Plan;
        }
        more
    }

    /// Makes the requests fail whose writes are in work.
    fn fail(&self, cx: &Context<'_>) {
        if let Some(writes) = &cx.columns.writes {
            writes.fail(Status::IOERR);
        }
    }

    /// Takes what the plan needs; `false` when that is to be waited for. The plan
    /// is made anew then, since things may have changed.
    fn reserve(&mut self, cx: &mut Context<'_>, plan: &WritePlan) -> bool {
        self.reach = self.rows_ahead(cx, plan);
        if cx.reserve(self.needs(cx, plan), self.reach.len()) {
            return true;
        }
        // Who waits for memory holds none.
        if let Some(kept) = cx.columns.kept.take() {
            cx.array.drop_entry(kept);
        }
        false
    }

    /// The slots of all columns that a plan reads, writes or computes with.
    fn needs(&self, cx: &Context<'_>, plan: &WritePlan) -> SlotSet {
        let geometry = &cx.array.geometry;
        let written = match (&cx.columns.writes, plan.kind) {
            (Some(writes), kind) if kind != WriteKind::Copies => {
                let columns = 0..geometry.data_columns();
                let columns = columns.filter(|column| !writes.batch.cover(*column).is_empty());
                let slots = columns.map(|column| geometry.slot_of_data(self.stripe, column));
                slots.collect()
            }
            _ => SlotSet::EMPTY,
        };
        let computed = plan.old.union(plan.decode);
        computed.union(plan.write).union(written)
    }

    /// Gets the old blocks that the plan needs; those in [`Self::asked`] are on their way then.
    fn preread(&mut self, cx: &mut Context<'_>, plan: &WritePlan) {
        self.asked = SlotSet::EMPTY;
        for slot in plan.old.iter() {
            if self.copy_kept(cx, plan, slot).is_err() {
                let rows = self.rows_to_read(cx, plan, slot);
                self.prepare(cx, slot, CommandOp::Read, rows);
                self.asked.insert(slot);
            }
        }
        if !self.asked.is_empty() {
            cx.op.clone().issue(cx, self.asked, Issue::default());
        }
    }

    /// Takes the old blocks of a slot from what is kept of the stripe, if they are there.
    fn copy_kept(&self, cx: &mut Context<'_>, plan: &WritePlan, slot: Slot) -> Result {
        let columns = &mut *cx.columns;
        let writes = columns.writes.as_ref().ok_or(EIO)?;
        let kept = columns.kept.as_ref().ok_or(EIO)?;
        let hull = writes.batch.hull();
        if !kept.at_hand(hull).contains(slot) {
            return Err(ENODATA);
        }
        let rows = old_rows(&cx.array.geometry, &writes.batch, plan.kind, slot);
        let cmd = columns.commands.get_mut(slot.index());
        let cmd = cmd.and_then(Option::as_mut).ok_or(EIO)?;
        kept.copy_to(slot, rows, &mut cmd.buf, hull.lo)
    }

    /// The rows of a slot to read: as many as there is room for.
    fn rows_to_read(&self, cx: &Context<'_>, plan: &WritePlan, slot: Slot) -> Rows {
        let Some(writes) = &cx.columns.writes else {
            return Rows::NONE;
        };
        let rows = old_rows(&cx.array.geometry, &writes.batch, plan.kind, slot);
        match rows.hi == writes.batch.hull().hi {
            true => Rows {
                hi: self.reach.hi,
                ..rows
            },
            false => rows,
        }
    }

    /// The rows to have room for: for a sequential writer those that come next as well.
    fn rows_ahead(&self, cx: &Context<'_>, plan: &WritePlan) -> Rows {
        let Some(writes) = &cx.columns.writes else {
            return Rows::NONE;
        };
        let (hull, window) = (writes.batch.hull(), cx.array.max_rows.max(1));
        let reads = !plan.old.is_subset(self.at_hand(cx, writes));
        let ahead = reads && cx.columns.kept.is_some() && writes.sequential;
        match ahead {
            true => Rows {
                hi: (hull.lo / window + 1) * window,
                ..hull
            },
            false => hull,
        }
    }

    /// Keeps the blocks of `slots`, in the rows that `rows` gives.
    fn keep(
        &self,
        cx: &mut Context<'_>,
        slots: SlotSet,
        rows: impl Fn(&Context<'_>, Slot) -> Rows,
    ) {
        let Some(mut kept) = cx.columns.kept.take() else {
            return;
        };
        let base = cx.columns.writes.as_ref().map_or(0, |w| w.batch.hull().lo);
        for slot in slots.iter() {
            let rows = rows(cx, slot);
            cx.array.retain(&mut kept, cx.columns, slot, rows, base);
        }
        cx.columns.kept = Some(kept);
    }

    /// Sets what the command of `slot` is to do with `rows` of its buffer.
    fn prepare(&self, cx: &mut Context<'_>, slot: Slot, op: CommandOp, rows: Rows) {
        let Some(writes) = &cx.columns.writes else {
            return;
        };
        let offset = rows.lo.saturating_sub(writes.batch.hull().lo);
        let at = cx.array.geometry.member_sector(self.stripe, rows.lo);
        cx.prepare(slot, op, at, rows.len());
        if let Some(cmd) = cx.columns.get_mut(slot) {
            cmd.ctx.io.buf_off = offset as usize * 512;
        }
    }

    /// Computes and issues the writes.
    fn commit(&mut self, cx: &mut Context<'_>, plan: &WritePlan) -> Result {
        self.keep(cx, self.asked, |cx, slot| self.rows_to_read(cx, plan, slot));
        let writes = cx.columns.writes.take().ok_or(EIO)?;
        let computed = self.compute(cx, &writes, plan);
        cx.columns.writes = Some(writes);
        computed?;
        for slot in plan.write.iter() {
            let Some(writes) = &cx.columns.writes else {
                continue;
            };
            let rows = new_rows(&cx.array.geometry, &writes.batch, plan, slot);
            self.prepare(cx, slot, CommandOp::Write, rows);
        }
        cx.keep_only(plan.write);
        self.wrote = Some(plan.kind);
        self.phase = Phase::Commit(*plan);
        cx.offer_commit();
        cx.op.clone().issue(cx, plan.write, Issue::default());
        Ok(())
    }

    /// Puts the new data and the new parity into the columns.
    fn compute(&self, cx: &mut Context<'_>, writes: &Writes, plan: &WritePlan) -> Result {
        let array = cx.array.clone();
        let parity = array.parity(self.stripe);
        let batch = &writes.batch;
        let all_parity = array
            .geometry
            .parity_slots(self.stripe)
            .intersect(plan.write);
        let range = |rows: Rows| {
            let base = batch.hull().lo;
            ByteRange::new(
                rows.lo.saturating_sub(base) as usize * 512,
                rows.len() as usize * 512,
            )
        };
        match plan.kind {
            WriteKind::Copies => self.fill_copies(cx, writes, plan.write),
            WriteKind::Plain | WriteKind::DataOnly => self.fill(cx, writes),
            WriteKind::Full | WriteKind::Reconstruct => {
                self.fill(cx, writes)?;
                parity.generate(cx.columns, all_parity, range(batch.hull())?)
            }
            WriteKind::Rebuild => {
                for rows in batch.ends().into_iter().filter(|rows| !rows.is_empty()) {
                    parity.recover(cx.columns, plan.decode, plan.old, range(rows)?)?;
                }
                self.fill(cx, writes)?;
                parity.generate(cx.columns, all_parity, range(batch.hull())?)
            }
            WriteKind::Modify => {
                self.each_written(cx, writes, |columns, slot, rows| {
                    parity.remove(columns, slot, all_parity, range(rows)?)
                })?;
                self.fill(cx, writes)?;
                self.each_written(cx, writes, |columns, slot, rows| {
                    parity.add(columns, slot, all_parity, range(rows)?)
                })?;
                match batch.core().is_empty() {
                    true => Ok(()),
                    false => parity.generate(cx.columns, all_parity, range(batch.core())?),
                }
            }
        }
    }

    /// Runs `change` on what is written of each column outside the core.
    fn each_written(
        &self,
        cx: &mut Context<'_>,
        writes: &Writes,
        mut change: impl FnMut(&mut crate::op::Columns, SlotSet, Rows) -> Result,
    ) -> Result {
        for column in 0..cx.array.geometry.data_columns() {
            let slot = cx.array.geometry.slot_of_data(self.stripe, column);
            for end in writes.batch.ends() {
                let rows = writes.batch.cover(column).common(end);
                if !rows.is_empty() {
                    change(cx.columns, SlotSet::single(slot), rows)?;
                }
            }
        }
        Ok(())
    }

    /// Copies the new data into the columns it is for.
    fn fill(&self, cx: &mut Context<'_>, writes: &Writes) -> Result {
        let geometry = cx.array.geometry;
        for column in 0..geometry.data_columns() {
            if !writes.batch.cover(column).is_empty() {
                let slot = geometry.slot_of_data(self.stripe, column);
                let cmd = cx.columns.get_mut(slot).ok_or(EIO)?;
                writes.fill(&geometry, column, &mut cmd.buf)?;
            }
        }
        Ok(())
    }

    /// Copies the new data into the columns of all copies; from the request only once, since its
    /// owner may change it meanwhile, and copies are to be equal.
    fn fill_copies(&self, cx: &mut Context<'_>, writes: &Writes, slots: SlotSet) -> Result {
        let first = slots.first().ok_or(EIO)?;
        let mut source = cx.columns.take(first).ok_or(EIO)?;
        let mut filled = writes.fill(&cx.array.geometry, 0, &mut source.buf);
        let len = writes.batch.hull().len() as usize * 512;
        for slot in slots.without(first).iter() {
            let cmd = cx.columns.get_mut(slot).ok_or(EIO);
            let copied = cmd.and_then(|cmd| cmd.buf.copy_from_buf(0, &source.buf, 0, len));
            filled = filled.and(copied);
        }
        cx.columns.put(first, source);
        filled
    }

    /// Looks at how the writes went.
    fn written(&mut self, cx: &mut Context<'_>, plan: &WritePlan) {
        let failed = cx.errors;
        if failed.is_empty() {
            self.keep(cx, plan.write, |cx, slot| {
                let writes = cx.columns.writes.as_ref();
                writes.map_or(Rows::NONE, |writes| {
                    new_rows(&cx.array.geometry, &writes.batch, plan, slot)
                })
            });
        } else if let Some(kept) = cx.columns.kept.take() {
            cx.array.drop_entry(kept);
        }
        let bearable =
            failed.is_empty() || !self.are_too_many(cx, plan) && self.goes_on_without(cx, failed);
        if !bearable {
            // No redundancy left to do without these members, whoever failed them. Nobody is stale
            // for it: what they have is as good as what the others have now.
            self.fail(cx);
            cx.array.note_torn(self.stripe);
            return;
        }
        self.leave_out(cx, plan);
    }

    /// Whether more members lack the write, or something else in the region, than redundancy can do
    /// without. Who could not be read before has to prove itself first.
    fn are_too_many(&self, cx: &Context<'_>, plan: &WritePlan) -> bool {
        let lacking = cx.array.lacking(self.stripe).union(self.unusable);
        let lacking = lacking.union(plan.repair).union(cx.errors);
        lacking.len() > u32::from(cx.array.geometry.parity())
    }

    /// Fails members that failed their part; one that is needed elsewhere just misses it.
    fn goes_on_without(&self, cx: &Context<'_>, failed: SlotSet) -> bool {
        let kept = cx.array.write_failed(failed);
        kept.is_empty() || cx.array.let_lag(self.stripe, kept)
    }

    /// Notes who does not have what was written, for whoever gets the stripe next to see.
    fn leave_out(&mut self, cx: &Context<'_>, plan: &WritePlan) {
        let missed = plan.missed.union(cx.errors);
        self.missed = self.missed.union(missed);
        cx.array.left_out(self.stripe, missed.minus(self.unusable));
        cx.array.note_stale(self.stripe, missed);
    }

    /// The commit was given up: whoever has not answered does not have it, or gets it late, when it
    /// must not land on what counts as current.
    fn given_up(&mut self, cx: &Context<'_>, plan: &WritePlan) {
        let gone = cx.array.gave_up(cx.left);
        if gone && !self.are_too_many(cx, plan) && cx.array.let_lag(self.stripe, cx.errors) {
            // All others have it.
            self.leave_out(cx, plan);
        } else {
            cx.array.note_torn(self.stripe);
        }
    }

    fn trace(&self, cx: &Context<'_>, kind: WriteKind) {
        let Some(writes) = &cx.columns.writes else {
            return;
        };
        for part in writes.all() {
            let sectors = part.band.rows.len() * u32::from(part.band.columns());
            cx.array
                .write_done(&part.request, kind.as_str(), self.stripe, sectors);
        }
    }
}
