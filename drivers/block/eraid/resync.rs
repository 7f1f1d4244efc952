// SPDX-License-Identifier: GPL-2.0

//! Resync and recovery: recomputing blocks of a region from others.
//!
//! After an unclean stop that is parity, or the copies of RAID-1; for a member that missed writes
//! it is whatever it holds: a member that is being rebuilt missed all of them. Of several such members
//! one is done after the other. A few workers, each
//! an operation, go through the region stripe by stripe; [`eraid_core::resync`] says what writes have
//! to do with that, and how fast they may go.
//!
//! `state` is a leaf lock.

use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{
        atomic::{Acquire, Atomic, Relaxed, Release},
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
    resync::{Goal, Locked, Next, Outcome, Pace, Run, WORKERS},
    stripelock::{Grant, Mode},
    units::{Micros, RegionNo, Sector, Sectors, SlotSet, StripeNo},
};

/// When no request came for so long nobody has to be let go first.
const LULL_US: u64 = 500_000;

/// Time between two rounds over regions that could not be done.
const PAUSE_US: u64 = 60_000_000;

/// What `state` covers.
struct State {
    run: Option<Run>,
    stopped: bool,
    /// Regions below this one were tried and could not be done.
    from: u64,
    /// All were tried: not again before then, or before the members change.
    pause_until_us: u64,
    last: &'static str,
    pace: Pace,
    /// There was work when it was last looked for: the pace is kept from region to region.
    moving: bool,
    /// Operations of workers that may not go on before the next second.
    held: [Option<u32>; WORKERS],
}

/// See the [module description](self).
#[pin_data]
pub(crate) struct Sync {
    /// There is a run. Set before any of its stripes is locked, so that whoever has one of them
    /// later sees it.
    running: Atomic<bool>,
    /// When a request came last, during runs.
    asked_us: Atomic<u64>,
    #[pin]
    state: SpinLockIrq<State>,
}

/// How far it is, for sysfs.
pub(crate) struct Progress {
    /// "resync", "recover" or "idle".
    pub(crate) action: &'static str,
    /// The action before.
    pub(crate) last: &'static str,
    /// The goal, and stripes done and in all, of the region in work.
    pub(crate) run: Option<(Goal, u64, u64)>,
    /// How fast it goes, and may.
    pub(crate) pace: Pace,
}

impl Sync {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            running: Atomic::new(false),
            asked_us: Atomic::new(0),
            state <- new_spinlock_irq!(State {
                run: None,
                stopped: false,
                from: 0,
                pause_until_us: 0,
                last: "none",
                pace: Pace::NEW,
                moving: false,
                held: [None; WORKERS],
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
    pub(crate) fn progress(&self) -> Progress {
        let state = self.state.lock();
        Progress {
            action: state.run.map_or("idle", |run| run.goal.action()),
            last: state.last,
            run: state.run.map(|run| {
                let (done, all) = run.progress();
                (run.goal, done, all)
            }),
            pace: state.pace,
        }
    }

    /// Changes the limits of its speed.
    pub(crate) fn set_pace(&self, set: impl FnOnce(&mut Pace)) {
        set(&mut self.state.lock().pace);
    }

    /// Whether worker `index`, which is operation `op`, may take up a stripe; it is woken later if not.
    fn may_go(&self, index: usize, op: u32) -> bool {
        let mut state = self.state.lock();
        if state.pace.may_go() || state.stopped {
            return true;
        }
        if let Some(place) = state.held.get_mut(index) {
            *place = Some(op);
        }
        false
    }

    /// A stripe of so many sectors of each member is taken up.
    fn took(&self, sectors: u32) {
        let sectors = Sectors::new(u64::from(sectors));
        self.state.lock().pace.took(sectors);
    }

    /// A request came. Any context.
    pub(crate) fn note_request(&self) {
        if self.running.load(Relaxed) {
            self.asked_us.store(now_us(), Relaxed);
        }
    }

    /// Whether it is to let others go first: there are any, and it is not too slow for that.
    fn gives_way(&self) -> bool {
        let since = now_us().saturating_sub(self.asked_us.load(Relaxed));
        since < LULL_US && !self.state.lock().pace.is_slow()
    }

    /// Another second: returns the operations that may go on.
    fn next_second(&self) -> [Option<u32>; WORKERS] {
        let mut state = self.state.lock();
        if state.moving {
            state.pace.tick(Micros::new(now_us()));
        }
        core::mem::take(&mut state.held)
    }

    /// Whether the goal of the run is reached for `stripe` already, and what it is.
    pub(crate) fn reached(&self, stripe: StripeNo, region: RegionNo) -> Option<Goal> {
        if !self.running.load(Acquire) {
            return None;
        }
        let run = self.state.lock().run?;
        (run.region == region && run.reached(stripe)).then_some(run.goal)
    }

    /// A write to `stripe` plans, before it looks at the members and with the stripe held: a worker
    /// that gets the stripe later sees the write.
    pub(crate) fn meets_write(&self, stripe: StripeNo, region: RegionNo) {
        if self.running.load(Acquire) {
            self.with_run(region, |run| run.meets_write(stripe));
        }
    }

    /// A write in `region` left out members that had all of its stripe.
    pub(crate) fn left_out(&self, region: RegionNo, slots: SlotSet) {
        self.with_run(region, |run| run.left_out(slots));
    }

    /// What a run in `region` has done proves nothing any more.
    pub(crate) fn begin_again_in(&self, region: RegionNo) {
        self.with_run(region, Run::begin_again);
    }

    /// The run cannot be finished.
    fn give_up(&self) {
        if let Some(run) = &mut self.state.lock().run {
            run.give_up();
        }
    }

    fn with_run(&self, region: RegionNo, act: impl FnOnce(&mut Run)) {
        let mut state = self.state.lock();
        if let Some(run) = state.run.as_mut().filter(|run| run.region == region) {
            act(run);
        }
    }

    /// What worker `index` is to do next, and for which goal.
    fn next(&self, index: usize) -> (Next, Goal) {
        let mut state = self.state.lock();
        let stopped = state.stopped;
        match &mut state.run {
            Some(run) => (run.next(index, stopped), run.goal),
            None => (Next::Through { last: false }, Goal::Parity),
        }
    }

    /// Worker `index` has its stripe: how it goes on.
    fn locked(&self, index: usize, begun: bool) -> Locked {
        let mut state = self.state.lock();
        let run = state.run.as_mut();
        run.map_or(Locked::InVain, |run| run.locked(index, begun))
    }

    /// A worker could not even be started; `true` when it was the last.
    fn not_started(&self) -> bool {
        let mut state = self.state.lock();
        state.run.as_mut().is_some_and(Run::not_started)
    }

    /// All workers are through: what came of it. When all of it was done the run goes on counting
    /// as in work until [`Self::close`], so that writes reach the member meanwhile.
    fn end(&self) -> Option<(Outcome, RegionNo, Goal)> {
        let mut state = self.state.lock();
        let run = state.run?;
        let outcome = run.outcome();
        if outcome != Outcome::Done {
            state.run = None;
            self.running.store(false, Release);
        }
        if outcome == Outcome::Impossible {
            state.from = run.region.get() + 1;
        }
        Some((outcome, run.region, run.goal))
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
    /// It keeps the stripe from the first rows to the last, because a write had come in between.
    keeps: bool,
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
            keeps: false,
            phase: Phase::Next,
        }
    }

    #[inline(never)]
    pub(crate) fn advance(&mut self, cx: &mut Context<'_>) -> Step {
        loop {
            match self.phase {
                Phase::Next if !cx.array.sync.may_go(self.index, cx.op.index) => return Step::Wait,
                Phase::Next => match cx.array.sync.next(self.index) {
                    (Next::Stripe(stripe), goal) => {
                        cx.array.sync.took(cx.array.geometry.chunk());
                        (self.stripe, self.goal) = (stripe, goal);
                        self.keeps = false;
                        self.go_to(cx, 0);
                        self.phase = Phase::Lock;
                    }
                    (Next::Through { last }, _) => {
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
                    match cx.array.sync.locked(self.index, self.rows.lo > 0) {
                        Locked::GoOn => {}
                        Locked::Anew => {
                            self.keeps = true;
                            self.go_to(cx, 0);
                        }
                        Locked::InVain => {
                            self.release(cx);
                            self.phase = Phase::Next;
                            continue;
                        }
                    }
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
                    self.go_to(cx, self.rows.hi);
                    if self.keeps && !self.rows.is_empty() {
                        cx.give_back_all();
                        cx.array.downgrade_stripe(cx.op, self.stripe);
                        self.phase = Phase::Reserve;
                        continue;
                    }
                    self.release(cx);
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
            cx.array.gave_up(cx.left);
        }
        cx.array.forget_wait(cx.op);
        cx.array.unlock_stripe(cx.op, self.stripe);
        if let (Next::Through { last: true }, _) = cx.array.sync.next(self.index) {
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
        work.targets.is_subset(cx.array.live()).then_some(work)
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
        // Reads let others go first, unless somebody waits for the stripe; writes hold it exclusively.
        let patient = op == CommandOp::Read
            && cx.array.sync.gives_way()
            && !cx.array.is_written(self.stripe, Some(cx.op.index));
        for slot in slots.iter() {
            cx.prepare(slot, op, at, self.rows.len());
            if let (true, Some(cmd)) = (patient, cx.columns.get_mut(slot)) {
                cmd.ctx.class = Class::Extra;
            }
        }
        cx.op.clone().issue(cx, slots, Issue::default());
    }

    /// Computes the targets and writes them; `false` when that failed.
    fn write(&mut self, cx: &mut Context<'_>, work: &Recompute) -> bool {
        if compute(cx, self.stripe, &work.plan, self.rows.len()).is_err() {
            self.fail(cx);
            return false;
        }
        cx.keep_only(work.targets);
        self.phase = Phase::Writing;
        self.issue(cx, CommandOp::Write, work.targets);
        true
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

/// Computes what `plan` says of so many rows of a stripe, in the columns of an operation; of RAID-1
/// copies it. Task context.
pub(crate) fn compute(cx: &mut Context<'_>, stripe: StripeNo, plan: &Rebuild, rows: u32) -> Result {
    let len = rows as usize * 512;
    if cx.array.geometry.level() != Level::Raid1 {
        let parity = cx.array.parity(stripe);
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

impl Array {
    /// Lets workers go on that were held back for their speed. Task context, once a second, and when
    /// nothing is to be taken up any more.
    pub(crate) fn resync_goes_on(&self) {
        for op in self.sync.next_second() {
            self.wake(op);
        }
    }

    /// Takes up the next region that needs it, if nothing is in work. Task context.
    pub(crate) fn resync_begins(self: &Arc<Self>) {
        let now = now_us();
        let from = {
            let mut state = self.sync.state.lock();
            if state.run.is_some() || state.stopped {
                return;
            }
            if now < state.pause_until_us {
                state.moving = false;
                return;
            }
            state.from
        };
        let Some((region, goal)) = self.next_work(from) else {
            let mut state = self.sync.state.lock();
            state.moving = false;
            if from > 0 {
                state.from = 0;
                state.pause_until_us = now + PAUSE_US;
            }
            return;
        };
        let (first, end) = self.meta.regions.layout.stripes_of(region);
        {
            let mut state = self.sync.state.lock();
            if state.run.is_some() {
                return;
            }
            self.sync.running.store(true, Release);
            state.run = Some(Run::new(region, goal, first, end));
            if !core::mem::replace(&mut state.moving, true) {
                state.pace.begin(Micros::new(now));
            }
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
        let (region, goal) = match self.sync.end() {
            Some((Outcome::Done, region, goal)) => (region, goal),
            Some((Outcome::Impossible, region, _)) => {
                array_warn!(
                    self.name(),
                    "region {} could not be done: a member is missing or unreadable",
                    region.get()
                );
                return;
            }
            // The next look at the array takes it up again.
            Some((Outcome::Again, ..)) | None => return,
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
