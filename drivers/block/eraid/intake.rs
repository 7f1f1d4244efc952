// SPDX-License-Identifier: GPL-2.0

//! Requests: from the block layer to operations.
//!
//! A request takes operations from the array's table as long as there are any; what is left of it
//! waits. Writes join those to the same stripe that have not begun yet.
//!
//! When the writes to a stripe begin: at once when all of the stripe is written; else, with a level
//! that has parity, at the end of the batch in which the block layer hands over requests. While
//! another write has the stripe they wait for that, and more can join. While only the stripe before
//! is being written, which is what a sequential writer with several requests under way looks like,
//! they are *held* back: until the stripe is full, or nothing came for [`Intake::hold_us`].
//!
//! `pending` and `gathering` are leaf locks.

use core::num::NonZeroU32;

use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{
        atomic::{Acquire, Atomic, Full, Relaxed},
        Arc, ArcBorrow, SpinLockIrq,
    },
};

use crate::{
    array::Array,
    direct::Direct,
    discard::Discard,
    flush::{After, Flush},
    gather::GatherRead,
    kapi::{
        request::{self, Request},
        status::Status,
        tagset::Driver,
        time::now_us,
    },
    op::{Op, Work},
    read::StripeRead,
    ring::Ring,
    write::StripeWrite,
    writes::NewWrite,
};
use eraid_core::{
    geometry::Band,
    units::{Sector, Sectors, SlotSet, StripeNo},
};

/// Requests the disk can hold: so many that those stuck behind a hung member keep nobody from
/// submitting others.
pub(crate) const DEPTH: u32 = 1024;

/// log2 of the sectors that are one place to those who look for a free operation: a page.
const NEAR_SHIFT: u32 = 3;

/// How long writes are held for others at first.
const HOLD_US: u32 = 4_000;

/// Longest time for which writes can be held; see [`Intake::hold_us`].
pub(crate) const HOLD_MAX_US: u64 = 1_000_000;

/// Writes are never held back for more than so many times the hold time.
const HOLDS: u64 = 16;

/// What is left of a request.
struct Pending {
    request: Request,
    /// Sectors that have their operations.
    done: u64,
    /// Bands of the stripe behind `done` that have theirs.
    bands: usize,
    /// What was cut off already and has no operation yet.
    next: Option<Next>,
    /// It writes where another write ended.
    sequential: bool,
}

/// The next thing to do for a request.
enum Next {
    Work(Work),
    Write(Band),
}

/// Writes that are held back.
struct Held {
    op: u32,
    stripe: StripeNo,
    since_us: u64,
    /// When somebody last was seen to write there.
    seen_us: u64,
}

/// See the [module description](self).
#[pin_data]
pub(crate) struct Intake {
    #[pin]
    pending: SpinLockIrq<Ring<Pending>>,
    /// How many are in `pending`.
    waiting: Atomic<u32>,
    /// Operations that gather writes until the end of the present batch.
    #[pin]
    gathering: SpinLockIrq<Ring<u32>>,
    #[pin]
    held: SpinLockIrq<Ring<Held>>,
    /// How long writes are held for others, in µs; 0: not at all.
    pub(crate) hold_us: Atomic<u32>,
}

impl Intake {
    /// Makes the intake of an array with `ops` operations. May sleep.
    pub(crate) fn new(ops: usize) -> Result<impl PinInit<Self>> {
        let pending = Ring::new(DEPTH as usize + 1)?;
        let (gathering, held) = (Ring::new(ops)?, Ring::new(ops)?);
        Ok(pin_init!(Self {
            pending <- new_spinlock_irq!(pending, "eraid::pending"),
            waiting: Atomic::new(0),
            gathering <- new_spinlock_irq!(gathering, "eraid::gathering"),
            held <- new_spinlock_irq!(held, "eraid::held"),
            hold_us: Atomic::new(HOLD_US),
        }))
    }
}

impl Driver for Array {
    type Data = Array;

    fn queue_rq(array: ArcBorrow<'_, Array>, request: Request, last: bool) {
        let array: Arc<Array> = array.into();
        array.accept(request);
        if last {
            array.end_batch();
        }
    }

    fn commit_rqs(array: ArcBorrow<'_, Array>) {
        let array: Arc<Array> = array.into();
        array.end_batch();
    }
}

impl Pending {
    fn write(&self, band: Band) -> NewWrite<'_> {
        NewWrite {
            request: &self.request,
            band,
            sequential: self.sequential,
        }
    }

    /// Cuts off the next thing to do; `None` when there is nothing left.
    fn next(&mut self, array: &Array) -> Option<Next> {
        if let Some(next) = self.next.take() {
            return Some(next);
        }
        match self.request.op() {
            request::Op::Flush => {
                let first = self.done == 0 && !array.read_only;
                self.done = 1;
                first.then(|| Next::Work(Work::Flush(Flush::with(After::Request))))
            }
            request::Op::Read => self.next_of_data(array, true),
            request::Op::Write | request::Op::WriteZeroes => self.next_of_data(array, false),
            request::Op::Discard => {
                let len = self.request.len() as u64 / 512;
                let first = core::mem::replace(&mut self.done, len) == 0;
                first.then(|| {
                    let start = Sector::new(self.request.sector());
                    Next::Work(Work::Discard(Discard::new(start, Sectors::new(len))))
                })
            }
            request::Op::Other => None,
        }
    }

    fn next_of_data(&mut self, array: &Array, read: bool) -> Option<Next> {
        let geometry = &array.geometry;
        loop {
            let left = (self.request.len() as u64 / 512).checked_sub(self.done)?;
            if left == 0 {
                return None;
            }
            let at = Sector::new(self.request.sector() + self.done);
            if read && self.bands == 0 && array.reading.gathers(geometry) {
                if let Some(gather) = GatherRead::plan(array, at, Sectors::new(left)) {
                    self.done += gather.len().get();
                    return Some(Next::Work(Work::Gather(gather)));
                }
            } else if read && self.bands == 0 {
                if let Some(direct) = Direct::plan(array, at, Sectors::new(left)) {
                    self.done += direct.len().get();
                    return Some(Next::Work(Work::Direct(direct)));
                }
            }
            let Some(place) = geometry.locate(at) else {
                // Does not happen: the block layer knows the capacity. What has no place fails.
                self.request.fail(Status::IOERR);
                return None;
            };
            let stripe = place.stripe;
            let end = geometry.address(stripe.next(), 0, 0);
            let end = end.unwrap_or(Sector::new(geometry.capacity().get()));
            let len = left.min(end.get().saturating_sub(at.get()));
            let mut bands = geometry.bands(at, Sectors::new(len), array.max_rows);
            if let Some(band) = bands.nth(self.bands) {
                self.bands += 1;
                return Some(match read {
                    true => {
                        let read = StripeRead::new(band, array.max_rows, SlotSet::EMPTY);
                        Next::Work(Work::Read(read))
                    }
                    false => Next::Write(band),
                });
            }
            self.done += len;
            self.bands = 0;
        }
    }
}

impl Array {
    fn accept(self: &Arc<Self>, request: Request) {
        if let Some(status) = self.refusal(&request) {
            request.fail(status);
            return;
        }
        self.sync.note_request();
        if request.op() == request::Op::Read {
            self.reading.arrived();
        }
        let sequential = request.op() == request::Op::Write && self.goes_on(&request);
        let pending = Pending {
            request,
            done: 0,
            bands: 0,
            next: None,
            sequential,
        };
        let left = match self.requests_wait() {
            true => Some(pending),
            false => self.dispatch(pending),
        };
        if let Some(left) = left {
            self.postpone(left);
        }
    }

    /// Whether a request begins where another one ended.
    fn goes_on(&self, request: &Request) -> bool {
        let start = request.sector();
        let end = start.saturating_add(request.len() as u64 / 512);
        self.retained
            .is_sequential(Sector::new(start), Sector::new(end))
    }

    fn refusal(&self, request: &Request) -> Option<Status> {
        if self.is_stopping() {
            return Some(Status::IOERR);
        }
        match request.op() {
            request::Op::Read | request::Op::Flush => None,
            request::Op::Other => Some(Status::NOTSUPP),
            // What writes.
            _ if self.read_only || self.is_haunted() => Some(Status::IOERR),
            request::Op::Write | request::Op::WriteZeroes | request::Op::Discard => None,
        }
    }

    /// Starts operations for a request; what is left when there is none free is returned.
    fn dispatch(self: &Arc<Self>, mut pending: Pending) -> Option<Pending> {
        while let Some(next) = pending.next(self) {
            if let Next::Write(band) = next {
                if self.join_write(&pending.write(band)) {
                    continue;
                }
            }
            let Some(op) = self.take_op(pending.request.sector() >> NEAR_SHIFT) else {
                pending.next = Some(next);
                return Some(pending);
            };
            match next {
                Next::Work(work) => {
                    op.start(self.clone(), work, Some(pending.request.clone()));
                }
                Next::Write(band) => self.gather(op, &pending.write(band)),
            }
        }
        None
    }

    /// Lets the rest of a request wait for operations.
    fn postpone(self: &Arc<Self>, pending: Pending) {
        let mut waiting = self.intake.pending.lock();
        let refused = waiting.push_back(pending).err();
        // Before the look at free operations below, which others add before they look here.
        self.intake.waiting.xchg(waiting.len() as u32, Full);
        drop(waiting);
        if let Some(pending) = refused {
            // There is a place for every request of the disk.
            pending.request.fail(Status::IOERR);
        }
        if self.has_free_op() {
            self.kick_pump();
        }
    }

    fn next_pending(&self) -> Option<Pending> {
        let mut waiting = self.intake.pending.lock();
        let next = waiting.pop_front();
        self.intake.waiting.store(waiting.len() as u32, Relaxed);
        next
    }

    /// Whether requests wait for operations.
    pub(crate) fn requests_wait(&self) -> bool {
        self.intake.waiting.load(Acquire) > 0
    }

    /// Starts operations for requests that wait for them. Task context.
    pub(crate) fn pump(self: &Arc<Self>) {
        loop {
            let Some(pending) = self.next_pending() else {
                break;
            };
            if self.is_stopping() {
                pending.request.fail(Status::IOERR);
                continue;
            }
            if let Some(left) = self.dispatch(pending) {
                self.postpone(left);
                break;
            }
        }
        self.end_batch();
    }
}

/// Gathering writes.
impl Array {
    /// Lets a write join those to its stripe that have not begun yet; `false` when there are none
    /// that it fits.
    fn join_write(&self, write: &NewWrite<'_>) -> bool {
        let (mut urgent, mut joined) = (false, None);
        let found = self.find_open_write(write.band.stripe, &mut |op| {
            let fits = op.join(write, self.max_rows, &mut urgent);
            joined = fits.then(|| op.clone());
            fits
        });
        if let (true, Some(op)) = (urgent, joined) {
            op.run();
        }
        found
    }

    /// Makes `op` gather writes of a stripe, of which this is the first.
    fn gather(self: &Arc<Self>, op: &Arc<Op>, write: &NewWrite<'_>) {
        let stripe = write.band.stripe;
        let urgent = op.gather(write, self.max_rows);
        // The stripe first: an operation that is prepared may run at any time.
        self.gather_stripe(op, stripe);
        op.prepare(self.clone(), Work::Write(StripeWrite::new(stripe)), None);
        let begins = urgent || !self.geometry.level().has_parity();
        if begins || self.intake.gathering.lock().push_back(op.index).is_err() {
            op.run();
        }
    }

    /// The block layer hands over no more requests at the moment: begins with what was gathered,
    /// or holds it. Task context.
    fn end_batch(self: &Arc<Self>) {
        // What others add meanwhile they begin with themselves.
        let gathering = self.intake.gathering.lock().len();
        for _ in 0..gathering {
            let Some(index) = self.intake.gathering.lock().pop_front() else {
                return;
            };
            // It may have begun, or even ended, because the stripe was full: then running whatever
            // is there now does no harm.
            let Some(op) = self.op(index) else { continue };
            match op.gathers_stream() {
                true if self.hold(op) => {}
                // Soon: the next request of the stream may be on its way.
                true => op.wake(),
                false => op.run(),
            }
        }
    }

    /// Holds writes back for others, where that promises something.
    fn hold(self: &Arc<Self>, op: &Arc<Op>) -> bool {
        let hold_us = self.intake.hold_us.load(Relaxed);
        let Some(hold_us) = NonZeroU32::new(hold_us) else {
            return false;
        };
        let Some(stripe) = op.may_be_held() else {
            return false;
        };
        if !self.is_stream(op, stripe) {
            return false;
        }
        let now = now_us();
        let held = Held {
            op: op.index,
            stripe,
            since_us: now,
            seen_us: now,
        };
        let kept = self.intake.held.lock().push_back(held).is_ok();
        if kept {
            self.arm_hold(hold_us);
        }
        kept
    }

    /// Whether the stripe before this one is written, but not this one by anybody else.
    fn is_stream(&self, op: &Op, stripe: StripeNo) -> bool {
        let before = stripe.get().checked_sub(1).map(StripeNo::new);
        before.is_some_and(|before| self.is_written(before, None))
            && !self.is_written(stripe, Some(op.index))
    }

    /// Looks after held writes. Task context.
    pub(crate) fn look_at_held(self: &Arc<Self>) {
        let hold_us = self.intake.hold_us.load(Relaxed);
        let looks = self.intake.held.lock().len();
        for _ in 0..looks {
            let Some(mut held) = self.intake.held.lock().pop_front() else {
                break;
            };
            let Some(op) = self.op(held.op) else { continue };
            if op.may_be_held() != Some(held.stripe) {
                // It has begun, unless a write joined it that must not be held.
                op.run();
                continue;
            }
            let now = now_us();
            if self.is_stream(op, held.stripe) {
                held.seen_us = now;
            }
            let hold = u64::from(hold_us);
            let last = held.seen_us.max(op.joined_us());
            let over = now.saturating_sub(last) >= hold
                || now.saturating_sub(held.since_us) >= hold * HOLDS
                || self.is_stopping();
            if over || self.intake.held.lock().push_back(held).is_err() {
                op.run();
            }
        }
        if let (false, Some(hold_us)) =
            (self.intake.held.lock().is_empty(), NonZeroU32::new(hold_us))
        {
            self.arm_hold(hold_us);
        }
    }
}
