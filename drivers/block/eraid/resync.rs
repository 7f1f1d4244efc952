// SPDX-License-Identifier: GPL-2.0

//! Resync and recovery: recomputing blocks of a region from others.
//!
//! After an unclean stop that is parity, or the copies of RAID-1; for a member that missed writes
//! it is whatever it holds. Of several such members one is done after the other. A few workers, each
//! an operation, go through the region stripe by stripe. Below the lowest stripe in work everything
//! is right, above the next one nothing was touched; a write in between that skips the member makes
//! the region be done again.
//!
//! `state` is a leaf lock.

use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{
        atomic::{Acquire, Atomic, Release},
        Arc, SpinLockIrq,
    },
};

use crate::{
    array::Array,
    flush::{After, Flush},
    kapi::{command::CommandOp, time::now_us, trace, xor::ByteRange},
    op::{Context, Issue, Step, Work},
};
use eraid_core::{
    geometry::{Geometry, Level, Rows},
    plan_read::{plan_rebuild, Rebuild, View},
    queue::Class,
    stripelock::{Grant, Mode},
    units::{RegionNo, Sector, Slot, SlotSet, StripeNo},
};

/// Workers of one array.
const WORKERS: usize = 4;

/// Time between two rounds over regions that could not be done.
const PAUSE_US: u64 = 60_000_000;

/// What is recomputed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Parity, or all copies but one.
    Parity,
    /// The blocks of one member.
    Member(Slot),
}

/// A region in work.
#[derive(Clone, Copy)]
struct Run {
    region: RegionNo,
    goal: Goal,
    next: StripeNo,
    end: StripeNo,
    /// Stripes in work, one for each worker.
    busy: [Option<StripeNo>; WORKERS],
    workers: u8,
    failed: bool,
    /// A write left the member out that is being caught up: nothing of it is to be relied on before
    /// the region was done anew.
    passed_by: bool,
}

impl Run {
    /// Below this stripe all is done.
    fn done(&self) -> StripeNo {
        let lowest = self.busy.iter().flatten().min();
        lowest.copied().map_or(self.next, |low| low.min(self.next))
    }
}

impl Run {
    /// A worker is through; `true` when it was the last.
    fn leave(&mut self) -> bool {
        self.workers = self.workers.saturating_sub(1);
        self.workers == 0
    }
}

/// What `state` covers.
struct State {
    run: Option<Run>,
    stopped: bool,
    /// Regions below this one were tried and could not be done.
    from: u64,
    /// All were tried: not again before then, or before the members change.
    pause_until_us: u64,
    last: &'static str,
}

/// See the [module description](self).
#[pin_data]
pub(crate) struct Sync {
    /// There is a run. Set before any of its stripes is locked, so that whoever has one of them
    /// later sees it.
    running: Atomic<bool>,
    #[pin]
    state: SpinLockIrq<State>,
}

/// How far it is, for sysfs.
pub(crate) struct Progress {
    /// "resync", "recover" or "idle".
    pub(crate) action: &'static str,
    /// The action before.
    pub(crate) last: &'static str,
    /// Stripes done and in all, of the region in work.
    pub(crate) stripes: Option<(u64, u64)>,
}

impl Goal {
    fn action(self) -> &'static str {
        match self {
            Goal::Parity => "resync",
            Goal::Member(_) => "recover",
        }
    }
}

impl Sync {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            running: Atomic::new(false),
            state <- new_spinlock_irq!(State {
                run: None,
                stopped: false,
                from: 0,
                pause_until_us: 0,
                last: "none",
            }, "eraid::sync"),
        })
    }

    /// Takes nothing up any more.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
    }

    /// The members changed: what could not be done may be possible now.
    pub(crate) fn retry(&self) {
        let mut state = self.state.lock();
        state.from = 0;
        state.pause_until_us = 0;
    }

    /// How far it is.
    pub(crate) fn progress(&self, first: impl Fn(RegionNo) -> StripeNo) -> Progress {
        let (run, last) = {
            let state = self.state.lock();
            (state.run, state.last)
        };
        let stripes = run.map(|run| {
            let first = first(run.region).get();
            let done = run.done().get().saturating_sub(first);
            (done, run.end.get().saturating_sub(first))
        });
        Progress {
            action: run.map_or("idle", |run| run.goal.action()),
            last,
            stripes,
        }
    }

    /// Whether the goal of the run is reached for `stripe` already, and what it is.
    pub(crate) fn reached(&self, stripe: StripeNo, region: RegionNo) -> Option<Goal> {
        if !self.running.load(Acquire) {
            return None;
        }
        let run = self.state.lock().run?;
        let reached = !run.failed && !run.passed_by && stripe < run.done();
        (run.region == region && reached).then_some(run.goal)
    }

    /// Whether `stripe` may be in work at the moment.
    pub(crate) fn in_work(&self, stripe: StripeNo, region: RegionNo) -> bool {
        if !self.running.load(Acquire) {
            return false;
        }
        let run = self.state.lock().run;
        run.is_some_and(|run| run.region == region && stripe >= run.done() && stripe < run.next)
    }

    /// The next stripe for worker `index`; `None` when there is none, and whether it was the last
    /// worker that asked.
    fn next(&self, index: usize) -> Result<(StripeNo, Goal), bool> {
        let mut state = self.state.lock();
        let stopped = state.stopped;
        let Some(run) = &mut state.run else {
            return Err(false);
        };
        if let Some(busy) = run.busy.get_mut(index) {
            *busy = None;
            if !run.failed && !stopped && run.next < run.end {
                let stripe = run.next;
                *busy = Some(stripe);
                run.next = stripe.next();
                return Ok((stripe, run.goal));
            }
        }
        run.failed |= stopped;
        Err(run.leave())
    }

    /// A worker could not even be started; `true` when it was the last.
    fn not_started(&self) -> bool {
        let mut state = self.state.lock();
        state.run.as_mut().is_some_and(Run::leave)
    }

    /// The run cannot be finished.
    fn give_up(&self) {
        if let Some(run) = &mut self.state.lock().run {
            run.failed = true;
        }
    }

    /// A write in `region` left out a member that is being caught up there, if one is: it goes on
    /// counting as stale, and the region is done anew after this run.
    pub(crate) fn pass_by(&self, region: RegionNo) {
        if let Some(run) = &mut self.state.lock().run {
            run.passed_by |= run.region == region;
        }
    }

    /// The run cannot be finished, if it is in `region`.
    pub(crate) fn give_up_in(&self, region: RegionNo) {
        if let Some(run) = &mut self.state.lock().run {
            run.failed |= run.region == region;
        }
    }

    /// All workers are through: the region and goal, when all of it was done. The run goes on
    /// counting as in work until [`Self::close`], so that writes reach the member meanwhile.
    fn end(&self) -> Option<(RegionNo, Goal)> {
        let mut state = self.state.lock();
        let run = state.run?;
        if run.failed {
            state.run = None;
            self.running.store(false, Release);
            state.from = run.region.get() + 1;
            return None;
        }
        Some((run.region, run.goal))
    }

    /// The goal was reached and noted, or (`false`) the members could not be flushed.
    pub(crate) fn close(&self, flushed: bool) {
        let mut state = self.state.lock();
        if let Some(run) = state.run.take() {
            self.running.store(false, Release);
            state.last = run.goal.action();
            if !flushed {
                state.from = run.region.get() + 1;
            }
        }
    }
}

/// A worker.
pub(crate) struct StripeSync {
    index: usize,
    stripe: StripeNo,
    goal: Goal,
    rows: Rows,
    /// Members found unreadable in these rows.
    bad: SlotSet,
    phase: Phase,
}

/// What is done to some rows.
#[derive(Clone, Copy)]
struct Recompute {
    /// Slots to write.
    targets: SlotSet,
    /// What to read and to compute for that.
    plan: Rebuild,
}

enum Phase {
    Next,
    Lock,
    Locked,
    Reserve,
    Read,
    Reading(Recompute),
    Upgrade(Recompute),
    Writing,
}

impl StripeSync {
    fn new(index: usize) -> Self {
        Self {
            index,
            stripe: StripeNo::ZERO,
            goal: Goal::Parity,
            rows: Rows { lo: 0, hi: 0 },
            bad: SlotSet::EMPTY,
            phase: Phase::Next,
        }
    }

    pub(crate) fn advance(&mut self, cx: &mut Context<'_>) -> Step {
        loop {
            match self.phase {
                Phase::Next => match cx.array.sync.next(self.index) {
                    Ok((stripe, goal)) => {
                        (self.stripe, self.goal) = (stripe, goal);
                        self.go_to(cx, 0);
                        self.phase = Phase::Lock;
                    }
                    Err(last) => {
                        if last {
                            cx.array.resync_ends();
                        }
                        return Step::Done;
                    }
                },
                // The stripe first and memory then, as writes do, who would otherwise wait with the
                // stripe for memory that waits for the stripe.
                Phase::Lock => {
                    let grant = cx.array.lock_stripe(cx.op, self.stripe, Mode::Preread);
                    cx.granted = grant == Grant::Granted;
                    self.phase = Phase::Locked;
                }
                Phase::Locked if !cx.granted => return Step::Wait,
                Phase::Locked => {
                    cx.array.forget_retained(self.stripe);
                    self.phase = Phase::Reserve;
                }
                Phase::Reserve => {
                    let slots = cx.array.geometry.all_slots();
                    if !cx.reserve(slots, self.rows.len()) {
                        return Step::Wait;
                    }
                    self.phase = Phase::Read;
                }
                Phase::Read => {
                    let Some(work) = self.plan(cx) else {
                        self.fail(cx);
                        continue;
                    };
                    self.phase = Phase::Reading(work);
                    self.issue(cx, CommandOp::Read, work.plan.fetch);
                    return Step::Wait;
                }
                Phase::Reading(_) if !cx.errors.is_empty() => {
                    // Two parities may do without another member.
                    self.bad = self.bad.union(cx.errors);
                    self.release(cx);
                    self.phase = Phase::Lock;
                }
                Phase::Reading(work) => {
                    self.phase = Phase::Upgrade(work);
                    match cx.array.upgrade_stripe(cx.op, self.stripe) {
                        Grant::Queued => return Step::Wait,
                        Grant::Granted => cx.granted = true,
                        Grant::Misuse => self.fail(cx),
                    }
                }
                Phase::Upgrade(_) if !cx.granted => return Step::Wait,
                Phase::Upgrade(work) => {
                    if self.write(cx, &work) {
                        return Step::Wait;
                    }
                }
                Phase::Writing if !cx.errors.is_empty() => {
                    cx.array.write_failed(cx.errors);
                    self.fail(cx);
                }
                Phase::Writing => {
                    self.release(cx);
                    self.go_to(cx, self.rows.hi);
                    self.phase = match self.rows.is_empty() {
                        true => Phase::Next,
                        false => Phase::Lock,
                    };
                }
            }
        }
    }

    pub(crate) fn abort(&mut self, cx: &mut Context<'_>) {
        cx.array.sync.give_up();
        if matches!(self.phase, Phase::Writing) {
            cx.array.write_failed(cx.left);
        }
        cx.array.forget_wait(cx.op);
        cx.array.unlock_stripe(cx.op, self.stripe);
        if let Err(true) = cx.array.sync.next(self.index) {
            cx.array.resync_ends();
        }
    }

    /// Goes to the next rows from `lo` on; none at the end of the chunk.
    fn go_to(&mut self, cx: &Context<'_>, lo: u32) {
        let hi = (lo + cx.array.max_rows).min(cx.array.geometry.chunk());
        self.rows = Rows { lo, hi };
        self.bad = SlotSet::EMPTY;
    }

    /// Which blocks to recompute, and from which; `None` when that is impossible.
    fn plan(&self, cx: &Context<'_>) -> Option<Recompute> {
        let mut view = cx.array.view(self.stripe);
        view.bad = view.bad.union(self.bad);
        if view.region.need_sync && self.goal != Goal::Parity {
            return None;
        }
        let work = match cx.array.geometry.level() {
            Level::Raid1 => self.plan_copies(&view),
            _ => self.plan_parity(&cx.array.geometry, &view),
        }?;
        work.targets.is_subset(cx.array.in_sync()).then_some(work)
    }

    /// For RAID-1: one copy goes to the others, also where they cannot be read.
    fn plan_copies(&self, view: &View) -> Option<Recompute> {
        let source = SlotSet::single(view.readable().first()?);
        let targets = match self.goal {
            Goal::Parity => view.usable.minus(source),
            Goal::Member(slot) => SlotSet::single(slot),
        };
        let plan = Rebuild {
            fetch: source,
            compute: targets,
        };
        Some(Recompute { targets, plan })
    }

    /// For the levels with parity.
    fn plan_parity(&self, geometry: &Geometry, view: &View) -> Option<Recompute> {
        let parity = [geometry.p_slot(self.stripe), geometry.q_slot(self.stripe)];
        let targets = match self.goal {
            Goal::Parity => parity.into_iter().flatten().collect(),
            Goal::Member(slot) => SlotSet::single(slot),
        };
        let plan = plan_rebuild(geometry, self.stripe, targets, view)?;
        Some(Recompute { targets, plan })
    }

    fn issue(&self, cx: &mut Context<'_>, op: CommandOp, slots: SlotSet) {
        let at: Sector = cx.array.geometry.member_sector(self.stripe, self.rows.lo);
        for slot in slots.iter() {
            cx.prepare(slot, op, at, self.rows.len());
            // Reads let others go first; writes hold the stripe exclusively and do not.
            if let (CommandOp::Read, Some(cmd)) = (op, cx.columns.get_mut(slot)) {
                cmd.ctx.class = Class::Extra;
            }
        }
        cx.op.clone().issue(cx, slots, Issue::default());
    }

    /// Computes the targets and writes them; `false` when that failed.
    fn write(&mut self, cx: &mut Context<'_>, work: &Recompute) -> bool {
        if self.compute(cx, &work.plan).is_err() {
            self.fail(cx);
            return false;
        }
        cx.keep_only(work.targets);
        self.phase = Phase::Writing;
        self.issue(cx, CommandOp::Write, work.targets);
        true
    }

    fn compute(&self, cx: &mut Context<'_>, plan: &Rebuild) -> Result {
        let len = self.rows.len() as usize * 512;
        if cx.array.geometry.level() != Level::Raid1 {
            let parity = cx.array.parity(self.stripe);
            return parity.recover(
                cx.columns,
                plan.compute,
                plan.fetch,
                ByteRange::new(0, len)?,
            );
        }
        let source = plan.fetch.first().ok_or(EIO)?;
        let from = cx.columns.take(source).ok_or(EIO)?;
        let mut copied = Ok(());
        for slot in plan.compute.iter() {
            let to = cx.columns.get_mut(slot).ok_or(EIO);
            copied = copied.and(to.and_then(|to| to.buf.copy_from_buf(0, &from.buf, 0, len)));
        }
        cx.columns.put(source, from);
        copied
    }

    fn fail(&mut self, cx: &mut Context<'_>) {
        self.release(cx);
        cx.array.sync.give_up();
        self.phase = Phase::Next;
    }

    fn release(&self, cx: &mut Context<'_>) {
        cx.give_back_all();
        cx.array.unlock_stripe(cx.op, self.stripe);
    }
}

impl Array {
    /// Takes up the next region that needs it, if nothing is in work. Task context.
    pub(crate) fn resync_begins(self: &Arc<Self>) {
        let now = now_us();
        let from = {
            let state = self.sync.state.lock();
            if state.run.is_some() || state.stopped || now < state.pause_until_us {
                return;
            }
            state.from
        };
        let Some((region, goal)) = self.next_work(from) else {
            if from > 0 {
                let mut state = self.sync.state.lock();
                state.from = 0;
                state.pause_until_us = now + PAUSE_US;
            }
            return;
        };
        let (next, end) = self.meta.regions.layout.stripes_of(region);
        {
            let mut state = self.sync.state.lock();
            if state.run.is_some() {
                return;
            }
            self.sync.running.store(true, Release);
            state.run = Some(Run {
                region,
                goal,
                next,
                end,
                busy: [None; WORKERS],
                workers: WORKERS as u8,
                failed: false,
                passed_by: false,
            });
        }
        array_info!(
            self.name(),
            "{} of region {} begins",
            goal.action(),
            region.get()
        );
        self.note_change();
        for index in 0..WORKERS {
            let started = self.start_work(Work::Sync(StripeSync::new(index)));
            if !started && self.sync.not_started() {
                self.resync_ends();
            }
        }
    }

    /// The last worker is through.
    fn resync_ends(self: &Arc<Self>) {
        self.note_change();
        let Some((region, goal)) = self.sync.end() else {
            array_warn!(
                self.name(),
                "a region could not be done: a member is missing or unreadable"
            );
            return;
        };
        let (first, end) = self.meta.regions.layout.stripes_of(region);
        let total = end.get().saturating_sub(first.get());
        let sectors = total * u64::from(self.geometry.chunk());
        trace::trace_sync(self.name(), goal.action(), sectors, sectors);
        if !self.start_work(Work::Flush(Flush::with(After::Synced(region, goal)))) {
            self.sync.close(false);
        }
    }
}
