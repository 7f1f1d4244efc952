// SPDX-License-Identifier: GPL-2.0

//! Gathered reads: the wanted blocks from whoever has them first, over any number of stripes and
//! without a lock.
//!
//! Which members are asked first is the [policy's](eraid_core::policy) choice; what happens when one
//! of them fails or is late, and when enough has come, is [`Gather`]'s. What still waits in the
//! queue of a member when enough has come leaves it in the context of that completion.
//!
//! Blocks are decoded only from members that are current, and only if no write of their stripe came
//! between the first read and now: else that piece is read anew by [`StripeRead`], which keeps writes
//! out meanwhile. That is also the last resort for pieces that nobody could read.
//!
//! Each member's command has memory for the whole window, and a block lies in it where it lies in
//! the window, so that a member can be asked again for something else.

use kernel::{page::PAGE_SIZE, prelude::*};

use crate::{
    array::Array,
    direct::{band_of, COPY_ANYWHERE},
    kapi::{
        command::{CommandFlags, CommandOp},
        params::ReadPolicy,
        status::Status,
        time::now_us,
        trace,
        xor::ByteRange,
    },
    op::{Context, Issue, Step, Until},
    read::StripeRead,
    reading::Count,
};
use eraid_core::{
    estimate::Retries,
    gather::{Answer, Decode, Gather, Grains, Manner, Opening, Part, Window},
    geometry::{Level, Piece},
    plan_read::{ReadPlan, View},
    policy::{self, Demand, Policy, ReadMode},
    queue::Class,
    units::{Micros, Sector, Sectors, Slot, SlotSet, StripeNo},
};

/// Stripes of a window in which blocks are decoded without a lock.
const STRIPES_MAX: usize = 16;

enum Phase {
    Begin,
    Gathering,
    /// Pieces that did not come are read one by one; `done` of them are settled.
    Pieces {
        done: usize,
        current: Option<StripeRead>,
    },
}

/// See the [module description](self).
pub(crate) struct GatherRead {
    start: Sector,
    len: Sectors,
    window: Window,
    /// Where blocks may be decoded.
    decodes: Grains,
    /// For RAID-1 the copy that is wanted.
    copy: Option<Slot>,
    /// Writes to the stripes before the first command was issued; `None` while there is one.
    writes: Option<u64>,
    mode: ReadMode,
    /// What it would take if nothing went wrong and it were alone.
    alone: Micros,
    /// Nothing failed and nothing was late.
    smooth: bool,
    hedged: bool,
    /// Parity is right as far as the map knows.
    synced: bool,
    /// Members that were late.
    late: SlotSet,
    /// Something had to be computed from the beginning.
    computed: bool,
    issued_us: u64,
    phase: Phase,
}

impl Array {
    /// The number of writes so far to the stripes of a window, or to others like them; `None` when
    /// one is under way, or when there are too many stripes.
    fn writes_to(&self, window: &Window) -> Option<u64> {
        let mut sum = 0u64;
        for (count, stripe) in window.stripes(&self.geometry).enumerate() {
            if count >= STRIPES_MAX {
                return None;
            }
            sum = sum.wrapping_add(self.writes_to_stripe(stripe)?);
        }
        Some(sum)
    }
}

impl GatherRead {
    /// The longest gathered read from `start` on, of at most `len`; `None` when there is nothing.
    pub(crate) fn plan(array: &Array, start: Sector, len: Sectors) -> Option<Self> {
        let (window, len) = Window::of_read(&array.geometry, start, len, array.window_max)?;
        Some(Self {
            start,
            len,
            window,
            decodes: Grains::NONE,
            copy: None,
            writes: None,
            mode: ReadMode::Normal,
            alone: Micros::ZERO,
            smooth: true,
            hedged: false,
            synced: false,
            late: SlotSet::EMPTY,
            computed: false,
            issued_us: 0,
            phase: Phase::Begin,
        })
    }

    /// Sectors of the request this reads.
    pub(crate) fn len(&self) -> Sectors {
        self.len
    }

    #[inline(never)]
    pub(crate) fn advance(&mut self, cx: &mut Context<'_>) -> Step {
        loop {
            match &mut self.phase {
                Phase::Begin => {
                    if !self.begin(cx) {
                        return Step::Wait;
                    }
                }
                Phase::Gathering => match self.go_on(cx) {
                    Some(step) => return step,
                    None => self.give_up(cx),
                },
                Phase::Pieces { done, current } => {
                    if let Some(read) = current {
                        if read.advance(cx) == Step::Wait {
                            return Step::Wait;
                        }
                        *done += 1;
                    }
                    let done = *done;
                    let (bad, late) = (self.gather(cx).unreadable(), self.late);
                    let Some(piece) = self.lacking(cx, done) else {
                        return Step::Done;
                    };
                    if let Phase::Pieces { current, .. } = &mut self.phase {
                        let read = StripeRead::new(band_of(&piece), cx.array.max_rows, bad);
                        *current = Some(read.after(late));
                    }
                }
            }
        }
    }

    pub(crate) fn abort(&mut self, cx: &mut Context<'_>) {
        match &mut self.phase {
            Phase::Begin => cx.array.forget_wait(cx.op),
            Phase::Pieces {
                current: Some(read),
                ..
            } => read.abort(cx),
            Phase::Gathering | Phase::Pieces { .. } => {}
        }
    }

    fn gather<'a>(&'a mut self, cx: &'a mut Context<'_>) -> Gather<'a> {
        Gather {
            geometry: &cx.array.geometry,
            window: &self.window,
            lanes: &mut cx.columns.lanes,
            decodes: &mut self.decodes,
        }
    }

    fn pieces(&self, array: &Array) -> impl Iterator<Item = Piece> {
        let copy = self.copy;
        let pieces = array.geometry.pieces(self.start, self.len);
        pieces.map(move |piece| Piece {
            slot: copy.unwrap_or(piece.slot),
            ..piece
        })
    }

    /// The piece number `index` among those that did not come.
    fn lacking(&mut self, cx: &mut Context<'_>, index: usize) -> Option<Piece> {
        let pieces = self.pieces(cx.array);
        let gather = self.gather(cx);
        let mut lacking = pieces.filter(|piece| gather.lacks(piece, piece.slot));
        lacking.nth(index)
    }

    /// Asks the first members; `false` to wait for memory.
    #[inline(never)]
    fn begin(&mut self, cx: &mut Context<'_>) -> bool {
        self.look(cx);
        let next = self.gather(cx).decide();
        if next.lost || next.ask.is_empty() {
            cx.array.forget_wait(cx.op);
            self.phase = Phase::Pieces {
                done: 0,
                current: None,
            };
            return true;
        }
        // Who cannot be asked for what is wanted of him gets it computed.
        let computes = !self.gather(cx).wanted().is_subset(next.ask);
        let slots = match computes {
            true => cx.array.geometry.all_slots(),
            false => next.ask,
        };
        if !cx.reserve(slots, self.window.len) {
            return false;
        }
        self.writes = cx.array.writes_to(&self.window);
        if self.writes.is_none() && computes {
            // A write has the stripe: what it writes can be had from it.
            cx.give_back_all();
            self.phase = Phase::Pieces {
                done: 0,
                current: None,
            };
            return true;
        }
        self.computed = computes;
        self.count(cx, next.ask);
        self.phase = Phase::Gathering;
        self.ask(cx, next.ask, false);
        false
    }

    /// Takes stock of the members and chooses whom to ask.
    #[inline(never)]
    fn look(&mut self, cx: &mut Context<'_>) {
        self.gather(cx).clear();
        self.copy = None;
        let mut avoided = SlotSet::EMPTY;
        self.synced = self.place(cx, true, &mut avoided);
        if cx.array.geometry.level() == Level::Raid1 {
            let stripe = cx.array.geometry.stripe_at(self.window.at);
            self.copy = self.first_copy(cx.array, stripe);
        }
        for piece in self.pieces(cx.array) {
            self.gather(cx).want(&piece, piece.slot);
        }
        self.gather(cx).set_avoided(avoided);
        let choice = self.choose(cx.array, avoided);
        (self.mode, self.alone) = (choice.mode, choice.alone);
        let opening = match self.mode {
            ReadMode::Normal => Opening::Wanted(Manner::PATIENT),
            ReadMode::Failfast => Opening::Wanted(Manner::FAST),
            ReadMode::Proactive(Class::Extra) => Opening::Everybody(Manner::EXTRA),
            ReadMode::Proactive(Class::Ordinary) => Opening::Everybody(Manner::FAST),
            ReadMode::LeaveOut { slot, .. } => {
                // Only now: see `place_anew`.
                let all = avoided.union(SlotSet::single(slot));
                self.gather(cx).set_avoided(all);
                Opening::Everybody(Manner::FAST)
            }
        };
        self.gather(cx).open(opening);
        if let ReadMode::LeaveOut { slot, probe: true } = self.mode {
            self.gather(cx).probe(slot);
        }
    }

    /// The copy that is to answer; where copies may differ the one that all reads go to.
    fn first_copy(&self, array: &Array, stripe: StripeNo) -> Option<Slot> {
        let view = array.view(stripe);
        match crate::array::plan_read(array, stripe, 0, 0, &view, None) {
            ReadPlan::Direct(slots) => slots.first(),
            ReadPlan::Decode { .. } | ReadPlan::Lost => None,
        }
    }

    /// Tells what members have current blocks, and where blocks fit together. Whether parity is right
    /// everywhere.
    #[inline(never)]
    fn place(&mut self, cx: &mut Context<'_>, fit: bool, avoided: &mut SlotSet) -> bool {
        let (array, mut synced) = (cx.array, true);
        for stripe in self.window.stripes(&array.geometry) {
            let view = array.view(stripe);
            *avoided = avoided.union(view.avoid);
            let usable = self.usable(&view);
            self.gather(cx)
                .set_place(stripe, usable, fit && !view.region.need_sync);
            synced &= !view.region.need_sync;
        }
        synced
    }

    /// The members whose blocks may be used. While copies may differ only the one that all read.
    fn usable(&self, view: &View) -> SlotSet {
        match self.copy {
            Some(copy) if view.region.need_sync => view.readable().intersect(SlotSet::single(copy)),
            _ => view.readable(),
        }
    }

    /// The policy's choice.
    #[inline(never)]
    fn choose(&self, array: &Array, avoided: SlotSet) -> policy::Choice {
        let geometry = &array.geometry;
        let policy = match array.reading.policy() {
            // The copy was chosen by the same times already.
            ReadPolicy::Auto if geometry.level() == Level::Raid1 => {
                Policy::Fixed(ReadMode::Failfast)
            }
            ReadPolicy::Auto => Policy::Auto,
            ReadPolicy::Normal => Policy::Fixed(ReadMode::Normal),
            ReadPolicy::Failfast => Policy::Fixed(ReadMode::Failfast),
            ReadPolicy::Proactive => Policy::Fixed(ReadMode::Proactive(Class::Extra)),
        };
        let demand = Demand::new(geometry, geometry.bands(self.start, self.len, u32::MAX));
        let readable = array.live().minus(avoided);
        let snapshot = |slot: Slot| Some((slot, array.member(slot)?.snapshot()));
        let members = readable.iter().filter_map(snapshot);
        let load = array.reading.estimate.lock().load();
        let number = array.reading.requests();
        let now = Micros::new(now_us());
        policy::choose(policy, &demand, members, &load, now, number)
    }

    fn count(&self, cx: &Context<'_>, asked: SlotSet) {
        let counts = &cx.array.reading.counts;
        let mode = match self.mode {
            ReadMode::LeaveOut { .. } => Count::LeftOut,
            _ if self.computed => Count::Avoided,
            ReadMode::Normal => Count::Normal,
            ReadMode::Failfast => Count::Failfast,
            ReadMode::Proactive(_) => Count::Proactive,
        };
        counts.add(mode);
        self.count_extra(cx, asked);
    }

    fn count_extra(&self, cx: &Context<'_>, asked: SlotSet) {
        let wanted: SlotSet = self.pieces(cx.array).map(|piece| piece.slot).collect();
        let extra = asked.minus(wanted).len();
        cx.array
            .reading
            .counts
            .add_many(Count::Extra, u64::from(extra));
    }

    /// Asks members for what is to be asked of them next, all of which have a command.
    #[inline(never)]
    fn ask(&mut self, cx: &mut Context<'_>, slots: SlotSet, more: bool) {
        let mut asked = SlotSet::EMPTY;
        for slot in slots.iter() {
            let Some((part, manner)) = self.gather(cx).take_request(slot) else {
                continue;
            };
            self.prepare(cx, slot, part, manner, more);
            asked.insert(slot);
        }
        let (quorum, wanted) = {
            let gather = self.gather(cx);
            (gather.quorum(), gather.wanted())
        };
        let until = match more {
            true => Until::Any,
            false => Until::Enough {
                wanted: match wanted.is_subset(asked) {
                    true => wanted,
                    false => SlotSet::EMPTY,
                },
                quorum: quorum.unwrap_or(u32::MAX),
            },
        };
        let how = Issue {
            until,
            more,
            patience_us: cx.array.patience_us(asked),
            ends_anywhere: self.len.get() <= COPY_ANYWHERE,
            rescuable: cx.array.geometry.parity() > 0,
            borrows: false,
        };
        if !more {
            self.issued_us = now_us();
            cx.array.reading.budget.lock().earn(asked.len());
        }
        if how.patience_us > 0 {
            cx.array.expect_late(now_us() + how.patience_us);
        }
        cx.op.clone().issue(cx, asked, how);
    }

    fn prepare(&self, cx: &mut Context<'_>, slot: Slot, part: Part, manner: Manner, more: bool) {
        let at = self.window.at.get() + u64::from(part.offset);
        cx.prepare(slot, CommandOp::Read, Sector::new(at), part.len);
        let Some(cmd) = cx.columns.get_mut(slot) else {
            return;
        };
        cmd.ctx.io.buf_off = part.offset as usize * 512;
        if manner.extra {
            cmd.ctx.class = Class::Extra;
        }
        cmd.ctx.retries = match manner.retries {
            false => Retries::Off,
            true if more => Retries::LastResort,
            true => Retries::On,
        };
        if !manner.retries {
            cmd.ctx.io.flags = cmd.ctx.io.flags | CommandFlags::FAILFAST | CommandFlags::NOMERGE;
        }
    }

    /// Sees what came, and what is to be done next; `None` when it cannot go on in this way.
    #[inline(never)]
    fn go_on(&mut self, cx: &mut Context<'_>) -> Option<Step> {
        self.take_in(cx);
        if self.gather(cx).wanted().is_empty() {
            // As it is nearly always. Any context.
            self.settle(cx);
            return self.end(cx);
        }
        let known = self.place_anew(cx);
        if cx.late && self.hedge(cx) && !known {
            // Others can answer only when it is known that nobody writes there.
            return None;
        }
        let next = self.gather(cx).decide();
        if !next.promote.is_empty() {
            self.gather(cx).promoted(next.promote);
            cx.op.promote(cx.array, next.promote);
        }
        if next.is_complete() {
            self.settle(cx);
            // More may have come just now, and fits the rest only if nobody wrote until now.
            self.place_anew(cx);
            return self.end(cx);
        }
        if next.lost {
            return None;
        }
        if next.ask.is_empty() {
            return Some(Step::Wait);
        }
        self.deliver(cx);
        // A member that hangs must not get hold of what is kept for reads that have begun.
        let hangs = |slot: &Slot| cx.columns.get(*slot).is_none() && cx.array.is_suspect(*slot);
        if next.ask.iter().any(|slot| hangs(&slot)) || !self.get_commands(cx, next.ask) {
            return None;
        }
        self.count_extra(cx, next.ask);
        self.ask(cx, next.ask, true);
        Some(Step::Wait)
    }

    /// Notes what came.
    #[inline(never)]
    fn take_in(&mut self, cx: &mut Context<'_>) {
        for slot in self.gather(cx).pending().iter() {
            let answer = if cx.overtaken.contains(slot) {
                Answer::Lost
            } else if cx.columns.get(slot).is_none() {
                continue;
            } else if cx.errors.contains(slot) {
                self.fell_back(cx);
                match cx.columns.get(slot).and_then(|cmd| cmd.ctx.good) {
                    Some(good) => Answer::Prefix(good),
                    None => Answer::Error,
                }
            } else {
                Answer::All
            };
            self.gather(cx).came(slot, answer);
        }
    }

    fn fell_back(&mut self, cx: &Context<'_>) {
        if core::mem::replace(&mut self.smooth, false) {
            cx.array.reading.counts.add(Count::Fallback);
        }
    }

    /// Looks at the members again: what came is used only if it still may be. Whether it is known that
    /// nobody wrote.
    fn place_anew(&mut self, cx: &mut Context<'_>) -> bool {
        let writes = self.writes.zip(cx.array.writes_to(&self.window));
        let fit = matches!(writes, Some((before, now)) if before == now);
        // One that was left out was merely busy, and may have to help now; one that hangs is no help,
        // whether it was left out or nothing is wanted of it.
        let mut avoided = cx.array.suspects(cx.array.live());
        self.synced = self.place(cx, fit, &mut avoided);
        self.gather(cx).set_avoided(avoided);
        fit
    }

    /// What is on its way is late: others are to be asked, if that is in the budget. Whether they are.
    #[inline(never)]
    fn hedge(&mut self, cx: &mut Context<'_>) -> bool {
        let pending = self.gather(cx).pending();
        let members = u32::from(cx.array.geometry.data_columns());
        let waited = now_us().saturating_sub(self.issued_us);
        let bound = cx.array.reading.limits().longest().get();
        let suspect = || pending.iter().any(|slot| cx.array.is_suspect(slot));
        let helps = self.synced && self.gather(cx).can_do_without_pending();
        let allowed = helps
            && (waited >= bound || suspect() || cx.array.reading.budget.lock().spend(members));
        if !allowed {
            // Perhaps when it has waited as long as is allowed at most, and so on.
            let at = self
                .issued_us
                .saturating_add(bound)
                .max(now_us() + bound / 2);
            cx.op.set_late_at(at);
            cx.array.expect_late(at);
            return false;
        }
        self.gather(cx).set_late();
        self.late = self.late.union(pending);
        self.smooth = false;
        if !core::mem::replace(&mut self.hedged, true) {
            cx.array.reading.counts.add(Count::Hedged);
        }
        true
    }

    /// Gets commands for those of `slots` that have none; `false` when there are not enough.
    fn get_commands(&self, cx: &mut Context<'_>, slots: SlotSet) -> bool {
        let pages = (self.window.len as usize * 512).div_ceil(PAGE_SIZE);
        slots.iter().all(|slot| {
            if cx.columns.get(slot).is_some() {
                return true;
            }
            match cx.array.pool.take_more(slot, pages) {
                Some(cmd) => {
                    cx.columns.put(slot, cmd);
                    true
                }
                None => false,
            }
        })
    }

    /// Waits for nothing any more.
    fn settle(&mut self, cx: &mut Context<'_>) {
        if self.gather(cx).pending().is_empty() {
            return;
        }
        cx.op.clone().settle(cx);
        self.take_in(cx);
    }

    /// Hands over what came and what can be computed; `None` when that is not all.
    #[inline(never)]
    fn end(&mut self, cx: &mut Context<'_>) -> Option<Step> {
        self.deliver(cx);
        while let Some(decode) = self.gather(cx).to_decode() {
            let done = match cx.array.geometry.level() {
                Level::Raid1 => self.take_copy(cx, &decode),
                _ => self.compute(cx, &decode),
            };
            done.ok()?;
        }
        if !self.gather(cx).wanted().is_empty() {
            return None;
        }
        cx.give_back_all();
        self.tell(cx);
        Some(Step::Done)
    }

    /// Computes blocks and hands them over.
    #[inline(never)]
    fn compute(&mut self, cx: &mut Context<'_>, decode: &Decode) -> Result {
        if !self.get_commands(cx, decode.missing) {
            return Err(EAGAIN);
        }
        let part = self.window.part(decode.grains);
        let range = ByteRange::new(part.offset as usize * 512, part.len as usize * 512)?;
        let parity = cx.array.parity(decode.stripe);
        parity.recover(cx.columns, decode.missing, decode.from, range)?;
        let first = cx.array.geometry.member_sector(decode.stripe, 0).get();
        let row = self.window.at.get() + u64::from(part.offset) - first;
        trace::trace_reconstruct(
            cx.array.name(),
            decode.stripe.get(),
            // CAST: A row of a chunk.
            row as u32,
            row as u32 + part.len,
            decode.missing.bits(),
        );
        self.gather(cx).decoded(decode);
        self.deliver(cx);
        Ok(())
    }

    /// Hands over blocks of another copy.
    fn take_copy(&mut self, cx: &mut Context<'_>, decode: &Decode) -> Result {
        let from = decode.from.first().ok_or(EIO)?;
        for slot in decode.missing.iter() {
            self.hand_over(cx, from, slot, decode.grains)?;
        }
        let mut gather = self.gather(cx);
        gather.decoded(decode);
        for slot in decode.missing.iter() {
            gather.deliver(slot);
        }
        Ok(())
    }

    /// Hands over what came.
    fn deliver(&mut self, cx: &mut Context<'_>) {
        for slot in cx.array.geometry.all_slots().iter() {
            let came = self.gather(cx).deliver(slot);
            if came.is_empty() || self.hand_over(cx, slot, slot, came).is_ok() {
                continue;
            }
            if let Some(request) = cx.request {
                request.fail(Status::IOERR);
            }
        }
    }

    /// Copies grains of what is wanted of `slot` from the command of `from` to the request.
    fn hand_over(&self, cx: &Context<'_>, from: Slot, slot: Slot, grains: Grains) -> Result {
        let request = cx.request.ok_or(EIO)?;
        let base = self.start.get().saturating_sub(request.sector());
        for piece in self.pieces(cx.array).filter(|piece| piece.slot == slot) {
            let at = piece.at.get().saturating_sub(self.window.at.get());
            for part in self.window.runs(grains) {
                let lo = at.max(u64::from(part.offset));
                let end = u64::from(part.offset + part.len);
                let hi = (at + u64::from(piece.len)).min(end);
                if lo >= hi {
                    continue;
                }
                let to = base + piece.offset.get() + (lo - at);
                let buf = &cx.columns.get(from).ok_or(EIO)?.buf;
                let (from, len) = (lo as usize * 512, (hi - lo) as usize * 512);
                request.copy_from_buf(to as usize * 512, buf, from, len)?;
            }
        }
        Ok(())
    }

    /// Goes on with single pieces.
    #[inline(never)]
    fn give_up(&mut self, cx: &mut Context<'_>) {
        self.settle(cx);
        self.deliver(cx);
        cx.give_back_all();
        self.phase = Phase::Pieces {
            done: 0,
            current: None,
        };
    }

    /// Tells who wants to know that this is done.
    fn tell(&self, cx: &Context<'_>) {
        let mode = match self.mode {
            _ if self.hedged => "hedged",
            _ if self.computed => "avoid",
            ReadMode::Normal => "normal",
            ReadMode::Failfast => "failfast",
            ReadMode::Proactive(_) => "proactive",
            ReadMode::LeaveOut { .. } => "left-out",
        };
        cx.array.read_done(cx.request, mode, self.start, self.len);
        if let (true, Some(request)) = (self.smooth, cx.request) {
            let latency = Micros::new(crate::array::latency_us(request));
            let mut estimate = cx.array.reading.estimate.lock();
            estimate.answered(latency, self.alone);
        }
    }
}
