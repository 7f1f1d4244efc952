// SPDX-License-Identifier: GPL-2.0

//! Repair of blocks that a member could not read: they are computed anew, written, and read again.
//!
//! A block that failed without retries is first read with them, when the member has nothing else to
//! do: most can be read then, and nothing is written. That keeps a drive for several turns, which
//! others wait for, so it is done seldom, and the more so the longer it takes. A block that failed with
//! retries is locked
//! exclusively, computed from the others as they are then, rewritten and read back. A rewrite that
//! fails costs the member nothing but the repair of other blocks for a while: what is lost was lost
//! before.
//!
//! `list` is a leaf lock.

use core::num::NonZeroU64;

use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, SpinLockIrq,
    },
};

use crate::{
    array::Array,
    events::Event,
    kapi::{command::CommandOp, time::now_us},
    op::{Context, Issue, Step, Work},
    reading::Count,
    resync::compute,
    ring::Ring,
};
use eraid_core::{
    geometry::{Level, Rows},
    plan_read::{plan_rebuild, Rebuild, View},
    queue::Class,
    stripelock::{Grant, Mode},
    units::{Sector, Slot, SlotSet, StripeNo},
};

/// Ranges that wait for repair at most; what fails while so many wait fails again when it is read.
const WAITING: usize = 64;
/// Sectors that are repaired at a time: a physical block.
const BLOCK: u64 = 8;
/// Sectors that are checked at a time: as many as can tell which of them failed.
const PART: u64 = 128;
/// Between two looks at what a drive might read with retries there are so many times what the last one
/// took: less than 1% of a drive's time. But at least, and at most, these times.
const LOOK_PAUSE: u64 = 128;
const LOOK_PAUSE_MIN_US: u64 = 1_000_000;
const LOOK_PAUSE_MAX_US: u64 = 60_000_000;
/// After a failed repair a member is left alone for so long.
const PAUSE_US: u64 = 60_000_000;

/// Sectors of a member that it could not read, counted from where its data starts.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Suspect {
    slot: Slot,
    at: u64,
    end: u64,
    /// The drive has tried again and again already.
    certain: bool,
}

struct List {
    waiting: Ring<Suspect>,
    /// When a block may be looked at that is not certain to be bad.
    look_at_us: u64,
    /// Members that are left alone, and until when.
    paused: [Option<NonZeroU64>; 64],
}

/// See the [module description](self).
#[pin_data]
pub(crate) struct Repairs {
    /// An operation works on the list.
    running: Atomic<bool>,
    #[pin]
    list: SpinLockIrq<List>,
}

impl Repairs {
    /// Nothing to repair. May sleep.
    pub(crate) fn new() -> Result<impl PinInit<Self>> {
        let list = List {
            waiting: Ring::new(WAITING)?,
            look_at_us: 0,
            paused: [None; 64],
        };
        Ok(pin_init!(Self {
            running: Atomic::new(false),
            list <- new_spinlock_irq!(list, "eraid::repairs"),
        }))
    }

    fn next(&self) -> Option<Suspect> {
        let mut list = self.list.lock();
        let now = now_us();
        let look = now >= list.look_at_us;
        let due = |suspect: &&Suspect| suspect.certain || look;
        let next = *list.waiting.iter().find(due)?;
        if !next.certain {
            list.look_at_us = now.saturating_add(LOOK_PAUSE_MIN_US);
        }
        list.waiting.remove_first(|suspect| *suspect == next)
    }

    /// Whether there is something to do now.
    fn any(&self) -> bool {
        let list = self.list.lock();
        let look = now_us() >= list.look_at_us;
        let any = list.waiting.iter().any(|suspect| suspect.certain || look);
        any
    }

    /// A look with retries took so long.
    fn looked(&self, took_us: u64) {
        let pause = took_us
            .saturating_mul(LOOK_PAUSE)
            .clamp(LOOK_PAUSE_MIN_US, LOOK_PAUSE_MAX_US);
        self.list.lock().look_at_us = now_us().saturating_add(pause);
    }

    fn pause(&self, slot: Slot) {
        let until = NonZeroU64::new(now_us().saturating_add(PAUSE_US));
        if let Some(place) = self.list.lock().paused.get_mut(slot.index()) {
            *place = until;
        }
    }
}

impl List {
    fn is_paused(&self, slot: Slot, now: u64) -> bool {
        let until = self.paused.get(slot.index()).copied().flatten();
        until.is_some_and(|until| now < until.get())
    }
}

impl Array {
    /// Notes that a member could not read `len` sectors from `at` on, counted from where its data
    /// starts; `certain` if it was free to retry. Any context.
    pub(crate) fn suspect(self: &Arc<Self>, slot: Slot, at: Sector, len: u32, certain: bool) {
        if self.read_only || self.geometry.parity() == 0 || self.is_stopping() {
            return;
        }
        let suspect = Suspect {
            slot,
            at: at.get(),
            end: at.get().saturating_add(u64::from(len)),
            certain,
        };
        let mut list = self.repairs.list.lock();
        let known = list.waiting.iter().any(|known| *known == suspect);
        if known || list.is_paused(slot, now_us()) || list.waiting.push_back(suspect).is_err() {
            return;
        }
        drop(list);
        self.kick_repair();
    }

    /// Begins to repair, unless somebody is at it. Task context.
    pub(crate) fn repair_begins(self: &Arc<Self>) {
        if !self.repairs.any()
            || self.is_haunted()
            || self.is_stopping()
            || self.repairs.running.xchg(true, Relaxed)
        {
            return;
        }
        if !self.start_work(Work::Repair(Repair::new())) {
            // The next look at the array begins anew.
            self.repairs.running.store(false, Relaxed);
        }
    }
}

enum Phase {
    Next,
    /// A part is read with retries; what can be read is not in question any more.
    CheckPart,
    CheckingPart,
    /// A block is.
    Check,
    Checking,
    Lock,
    Locked,
    Reserve,
    Reading(Rebuild),
    Upgrade(Rebuild),
    Writing,
    ReadingBack,
}

/// The operation that works on the list. See the [module description](self).
pub(crate) struct Repair {
    suspect: Option<Suspect>,
    /// What lies before this of it is settled.
    at: u64,
    /// Up to here blocks are checked one by one, for lack of a place.
    single_until: u64,
    /// The block in work.
    stripe: StripeNo,
    rows: Rows,
    phase: Phase,
}

impl Repair {
    fn new() -> Self {
        Self {
            suspect: None,
            at: 0,
            single_until: 0,
            stripe: StripeNo::ZERO,
            rows: Rows { lo: 0, hi: 0 },
            phase: Phase::Next,
        }
    }

    #[inline(never)]
    pub(crate) fn advance(&mut self, cx: &mut Context<'_>) -> Step {
        loop {
            let Some(suspect) = self.suspect.or_else(|| self.take(cx)) else {
                cx.array.repairs.running.store(false, Relaxed);
                // Something may have come since.
                cx.array.kick_repair();
                return Step::Done;
            };
            let (slot, stripe) = (suspect.slot, self.stripe);
            let own = SlotSet::single(slot);
            match self.phase {
                Phase::Next if self.at >= suspect.end => self.suspect = None,
                Phase::Next => {
                    self.set_block(cx, suspect.end);
                    self.phase = match suspect.end - suspect.at <= BLOCK {
                        true if suspect.certain => Phase::Lock,
                        false if self.at >= self.single_until => Phase::CheckPart,
                        _ => Phase::Check,
                    };
                }
                Phase::CheckPart | Phase::Check if !cx.array.live().contains(slot) => {
                    self.suspect = None;
                }
                Phase::CheckPart => {
                    let len = part(self.at, suspect.end);
                    if !cx.reserve(own, len) {
                        return Step::Wait;
                    }
                    self.phase = Phase::CheckingPart;
                    self.issue(cx, CommandOp::Read, Sector::new(self.at), len, own);
                    return Step::Wait;
                }
                Phase::CheckingPart => {
                    self.looked(cx, slot);
                    let good = cx.columns.get(slot).and_then(|cmd| cmd.ctx.good);
                    cx.give_back_all();
                    let end = self.at + u64::from(part(self.at, suspect.end));
                    self.phase = Phase::Next;
                    match good {
                        _ if cx.errors.is_empty() => self.at = end,
                        None => self.single_until = end,
                        Some(good) => {
                            self.at += u64::from(good);
                            self.set_block(cx, suspect.end);
                            self.phase = Phase::Lock;
                        }
                    }
                }
                Phase::Check => {
                    if !cx.reserve(own, self.rows.len()) {
                        return Step::Wait;
                    }
                    self.phase = Phase::Checking;
                    self.issue_block(cx, CommandOp::Read, own);
                    return Step::Wait;
                }
                Phase::Checking => {
                    self.looked(cx, slot);
                    cx.give_back_all();
                    match cx.errors.is_empty() {
                        true => self.go_on(cx),
                        false => self.phase = Phase::Lock,
                    }
                }
                // As a resync does it: the stripe first, memory then.
                Phase::Lock => {
                    let grant = cx.array.lock_stripe(cx.op, stripe, Mode::Preread);
                    cx.granted = grant == Grant::Granted;
                    self.phase = Phase::Locked;
                }
                Phase::Locked if !cx.granted => return Step::Wait,
                Phase::Locked => {
                    cx.array.forget_retained(stripe);
                    self.phase = Phase::Reserve;
                }
                Phase::Reserve => {
                    if !cx.reserve(cx.array.geometry.all_slots(), self.rows.len()) {
                        return Step::Wait;
                    }
                    let Some(plan) = plan(cx.array, slot, stripe) else {
                        self.fail(cx, suspect, "the others do not suffice");
                        continue;
                    };
                    self.phase = Phase::Reading(plan);
                    self.issue_block(cx, CommandOp::Read, plan.fetch);
                    return Step::Wait;
                }
                Phase::Reading(_) if !cx.errors.is_empty() => {
                    self.fail(cx, suspect, "another member fails as well");
                }
                Phase::Reading(plan) => {
                    self.phase = Phase::Upgrade(plan);
                    match cx.array.upgrade_stripe(cx.op, stripe) {
                        Grant::Queued => return Step::Wait,
                        Grant::Granted => cx.granted = true,
                        Grant::Misuse => self.fail(cx, suspect, "no lock"),
                    }
                }
                Phase::Upgrade(_) if !cx.granted => return Step::Wait,
                Phase::Upgrade(plan) => {
                    if compute(cx, stripe, &plan, self.rows.len()).is_err() {
                        self.fail(cx, suspect, "it cannot be computed");
                        continue;
                    }
                    cx.keep_only(own);
                    self.phase = Phase::Writing;
                    self.issue_block(cx, CommandOp::Write, own);
                    return Step::Wait;
                }
                Phase::Writing if !cx.errors.is_empty() => {
                    self.fail(cx, suspect, "it cannot be written");
                }
                Phase::Writing => {
                    self.phase = Phase::ReadingBack;
                    self.issue_block(cx, CommandOp::Read, own);
                    return Step::Wait;
                }
                Phase::ReadingBack if !cx.errors.is_empty() => {
                    self.fail(cx, suspect, "it cannot be read back");
                }
                Phase::ReadingBack => {
                    cx.array.reading.counts.add(Count::Repaired);
                    self.tell(cx, suspect, "a block was rewritten, and can be read");
                    self.release(cx, stripe);
                    self.go_on(cx);
                }
            }
        }
    }

    pub(crate) fn abort(&mut self, cx: &mut Context<'_>) {
        cx.array.repairs.running.store(false, Relaxed);
        if self.suspect.is_none() {
            return;
        }
        if matches!(self.phase, Phase::Writing) {
            cx.array.gave_up(cx.left);
        }
        cx.array.forget_wait(cx.op);
        cx.array.unlock_stripe(cx.op, self.stripe);
    }

    /// Takes the next one from the list.
    fn take(&mut self, cx: &Context<'_>) -> Option<Suspect> {
        if cx.array.is_stopping() || cx.array.is_haunted() {
            return None;
        }
        let suspect = cx.array.repairs.next()?;
        self.suspect = Some(suspect);
        (self.at, self.single_until) = (suspect.at, suspect.at);
        self.phase = Phase::Next;
        Some(suspect)
    }

    /// The check of a block, or of several, came back.
    fn looked(&self, cx: &Context<'_>, slot: Slot) {
        if let Some(cmd) = cx.columns.get(slot) {
            let took = now_us().saturating_sub(cmd.ctx.dispatched_us);
            cx.array.repairs.looked(took);
        }
    }

    /// Goes on behind the block.
    fn go_on(&mut self, cx: &Context<'_>) {
        let next = cx.array.geometry.member_sector(self.stripe, self.rows.hi);
        self.at = next.get();
        self.phase = Phase::Next;
    }

    /// Takes the physical block that begins at `at` or has it, up to `end`.
    fn set_block(&mut self, cx: &Context<'_>, end: u64) {
        let geometry = &cx.array.geometry;
        self.stripe = geometry.stripe_at(Sector::new(self.at));
        let first = geometry.member_sector(self.stripe, 0).get();
        let hi = ((self.at / BLOCK + 1) * BLOCK).min(end);
        // CAST: Rows of a chunk, which is whole blocks.
        self.rows = Rows {
            lo: self.at.saturating_sub(first) as u32,
            hi: hi.saturating_sub(first) as u32,
        };
    }

    fn issue_block(&self, cx: &mut Context<'_>, op: CommandOp, slots: SlotSet) {
        let at = cx.array.geometry.member_sector(self.stripe, self.rows.lo);
        self.issue(cx, op, at, self.rows.len(), slots);
    }

    /// Nobody waits for a check; what is done with the stripe locked is done soon.
    fn issue(&self, cx: &mut Context<'_>, op: CommandOp, at: Sector, len: u32, slots: SlotSet) {
        let class = match self.phase {
            Phase::Checking | Phase::CheckingPart => Class::Extra,
            _ => Class::Ordinary,
        };
        for slot in slots.iter() {
            cx.prepare(slot, op, at, len);
            if let Some(cmd) = cx.columns.get_mut(slot) {
                cmd.ctx.class = class;
                cmd.ctx.repairs = true;
            }
        }
        cx.op.clone().issue(cx, slots, Issue::default());
    }

    fn fail(&mut self, cx: &mut Context<'_>, suspect: Suspect, why: &str) {
        cx.array.repairs.pause(suspect.slot);
        self.tell(cx, suspect, why);
        self.release(cx, self.stripe);
        self.suspect = None;
    }

    fn tell(&self, cx: &Context<'_>, suspect: Suspect, what: &str) {
        let Some(member) = cx.array.member(suspect.slot) else {
            return;
        };
        let at = cx.array.geometry.member_sector(self.stripe, self.rows.lo);
        let sector = member.data_start + at.get();
        cx.array.report(&Event::repair(&member, sector, what));
    }

    fn release(&self, cx: &mut Context<'_>, stripe: StripeNo) {
        cx.give_back_all();
        cx.array.unlock_stripe(cx.op, stripe);
    }
}

/// Sectors of the part from `at` on, up to `end`.
fn part(at: u64, end: u64) -> u32 {
    // CAST: Limited to `PART`.
    end.saturating_sub(at).min(PART) as u32
}

/// From which blocks the member's is computed; `None` when that is impossible.
fn plan(array: &Array, slot: Slot, stripe: StripeNo) -> Option<Rebuild> {
    let view = array.view(stripe);
    if view.region.need_sync || !view.usable.contains(slot) {
        return None;
    }
    let own = SlotSet::single(slot);
    match array.geometry.level() {
        Level::Raid1 => plan_copy(&view, own),
        _ => plan_rebuild(&array.geometry, stripe, own, &view),
    }
}

fn plan_copy(view: &View, own: SlotSet) -> Option<Rebuild> {
    let others = view.readable().minus(own);
    let source = others.minus(view.avoid).first().or(others.first())?;
    Some(Rebuild {
        fetch: SlotSet::single(source),
        compute: own,
    })
}
