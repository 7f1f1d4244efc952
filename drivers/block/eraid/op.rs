// SPDX-License-Identifier: GPL-2.0

//! Operations: the driver's unit of work, and the rule that one context at a time runs one.
//!
//! A request is cut into operations that need nothing of each other. Each has a slot in a table
//! made at assembly, runs as a small state machine ([`Work`]), and is parked whenever it waits: for
//! commands, for memory, for its stripe, for the region map. Whoever ends a wait wakes it; a wake
//! that comes while it runs makes it look again, so none is lost.
//!
//! Commands know their operation only by a [`Ticket`]: its number and the round in which they were
//! issued. A command of an earlier round, or one the operation no longer expects, is an orphan: it
//! finds no parent and goes back to the pool, with the pages it owned all along.
//!
//! An operation may run in the context of whoever submits it, and of a completion on top of that, so
//! what each kind of work needs is not inlined: stacks are short.
//!
//! `inner` and `gathered` are leaf locks but for the workqueue's: nothing else is taken under them.

use kernel::{
    impl_has_work, new_spinlock_irq, new_work,
    page::PAGE_SIZE,
    prelude::*,
    sync::{Arc, SpinLockIrq},
    workqueue::{Work as WorkItemField, WorkItem},
};

use crate::{
    array::Array,
    direct::Direct,
    discard::Discard,
    flush::Flush,
    gather::GatherRead,
    kapi::{request::Request, status::Status, time::now_us},
    pool::Need,
    read::StripeRead,
    reading::Count,
    repair::Repair,
    resync::StripeSync,
    retained::Entry,
    sub::Cmd,
    write::StripeWrite,
    writes::{NewWrite, Writes},
};
use eraid_core::{
    gather::Lane,
    geometry::Band,
    spans::Span,
    stripelock::{Grant, Mode},
    units::{Slot, SlotSet, StripeNo},
};

/// How a command finds its operation.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// Number of the operation.
    pub(crate) op: u32,
    /// Its round when the command was issued.
    pub(crate) round: u32,
}

/// What an operation does.
pub(crate) enum Work {
    /// Reads blocks as they lie, over any number of stripes.
    Direct(Direct),
    /// Reads blocks from whoever has them first.
    Gather(GatherRead),
    /// Reads a band of one stripe, decoding where it has to.
    Read(StripeRead),
    /// Writes a band of one stripe.
    Write(StripeWrite),
    /// Flushes the caches of all members.
    Flush(Flush),
    /// Discards regions.
    Discard(Discard),
    /// Recomputes parity or copies, one slice of a stripe after the other.
    Sync(StripeSync),
    /// Rewrites what members cannot read.
    Repair(Repair),
}

/// What a step of an operation came to.
#[derive(PartialEq, Eq)]
pub(crate) enum Step {
    /// It waits for what will wake it.
    Wait,
    /// It ended; everything it held is given back.
    Done,
}

/// The commands of an operation, one for each slot at most, and its ranges on the members.
pub(crate) struct Columns {
    pub(crate) commands: KVec<Option<Cmd>>,
    /// What a direct read wants of each member.
    pub(crate) spans: KVec<Span>,
    /// What a write writes, once that is settled.
    pub(crate) writes: Option<Writes>,
    /// What is known of the old blocks of the stripe it writes to.
    pub(crate) kept: Option<Entry>,
    /// What a gathered read knows of each member.
    pub(crate) lanes: KVec<Lane>,
}

impl Columns {
    fn new(members: usize) -> Result<Self> {
        let mut columns = Self {
            commands: KVec::with_capacity(members, GFP_KERNEL)?,
            spans: KVec::with_capacity(members, GFP_KERNEL)?,
            writes: None,
            kept: None,
            lanes: KVec::with_capacity(members, GFP_KERNEL)?,
        };
        for _ in 0..members {
            columns.commands.push(None, GFP_KERNEL)?;
            columns.spans.push(Span::EMPTY, GFP_KERNEL)?;
            columns.lanes.push(Lane::EMPTY, GFP_KERNEL)?;
        }
        Ok(columns)
    }

    /// The command of a slot.
    pub(crate) fn get(&self, slot: Slot) -> Option<&Cmd> {
        self.commands.get(slot.index())?.as_ref()
    }

    /// The command of a slot.
    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut Cmd> {
        self.commands.get_mut(slot.index())?.as_mut()
    }

    /// Takes the command of a slot out.
    pub(crate) fn take(&mut self, slot: Slot) -> Option<Cmd> {
        self.commands.get_mut(slot.index())?.take()
    }

    /// Puts a command in its slot, which is empty.
    pub(crate) fn put(&mut self, slot: Slot, cmd: Cmd) {
        if let Some(place) = self.commands.get_mut(slot.index()) {
            *place = Some(cmd);
        }
    }
}

/// What an operation may use while it runs.
pub(crate) struct Context<'a> {
    /// Its array.
    pub(crate) array: &'a Arc<Array>,
    /// Itself.
    pub(crate) op: &'a Arc<Op>,
    /// Its share of the request, if it has one; writes have theirs in [`Columns::writes`].
    pub(crate) request: Option<&'a Request>,
    /// Its commands.
    pub(crate) columns: &'a mut Columns,
    /// Slots whose command of the last round failed, or was overtaken.
    pub(crate) errors: SlotSet,
    /// The stripe lock asked for last has been granted.
    pub(crate) granted: bool,
    /// Members whose device still has a command of the last round.
    pub(crate) left: SlotSet,
    /// Those of `errors` whose command was withdrawn.
    pub(crate) overtaken: SlotSet,
    /// What is on its way takes longer than it should.
    pub(crate) late: bool,
}

/// What a write that is in commit lets others read.
pub(crate) struct Offer {
    /// Its request, which stays while this does.
    pub(crate) request: Request,
    /// The blocks of the stripe it writes.
    pub(crate) band: Band,
}

struct Body {
    work: Work,
    request: Option<Request>,
}

/// What an operation works with: handed on as a whole, and in a box, because stacks are short.
struct Frame {
    /// None in a free slot.
    body: Option<Body>,
    columns: Columns,
}

/// What an operation that runs is told.
struct Seen {
    errors: SlotSet,
    granted: bool,
    aborted: Option<Status>,
    left: SlotSet,
    overtaken: SlotSet,
    late: bool,
}

/// What a context needs to run an operation.
struct Taken {
    array: Arc<Array>,
    frame: KBox<Frame>,
    seen: Seen,
}

/// What [`Op::inner`] covers.
struct Inner {
    array: Option<Arc<Array>>,
    /// None while it runs.
    frame: Option<KBox<Frame>>,
    running: bool,
    woken: bool,
    round: u32,
    /// Slots whose command is in flight and still wanted.
    expected: SlotSet,
    /// Those of them that somebody is about to stop waiting for.
    leaving: SlotSet,
    errors: SlotSet,
    /// Slots whose command came back well.
    arrived: SlotSet,
    /// Slots whose command was withdrawn.
    overtaken: SlotSet,
    /// When it goes on.
    until: Until,
    /// It is to look at what came before all has.
    attention: bool,
    /// When what is in flight is late; 0: never.
    late_at_us: u64,
    late: bool,
    /// Commands that came back.
    returned: KVec<Option<Cmd>>,
    granted: bool,
    /// Only failed commands need more than the copy to the request: may end in any context.
    ends_anywhere: bool,
    /// Others could answer what is in flight.
    rescuable: bool,
    /// What is in flight goes into the request's memory.
    borrows: bool,
    issued_us: u64,
    parked_us: u64,
    aborted: Option<Status>,
    /// What it writes, while it is in commit: others may read that.
    offer: Option<Writes>,
    /// Members whose device still has a command of this round that nobody waits for.
    left: SlotSet,
}

/// A slot of the table of operations.
#[pin_data]
pub(crate) struct Op {
    /// Its number in the table.
    pub(crate) index: u32,
    #[pin]
    inner: SpinLockIrq<Inner>,
    /// What it is to write, as long as others may join; empty for other work.
    #[pin]
    gathered: SpinLockIrq<Option<Writes>>,
    #[pin]
    job: WorkItemField<Op, 0>,
}

impl_has_work! {
    impl HasWork<Self, 0> for Op { self.job }
}

impl WorkItem<0> for Op {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.run();
    }
}

/// When an operation goes on that waits for commands.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Until {
    /// When all have come back.
    #[default]
    All,
    /// When those of `wanted` have come back well, or so many, whichever they are: the others are
    /// withdrawn. Once one has failed, whenever one comes back: what is enough is not so simple then.
    Enough {
        /// Empty: these are not among those issued.
        wanted: SlotSet,
        /// More than there are: only `wanted` will do.
        quorum: u32,
    },
    /// When one has come back.
    Any,
}

/// What the return of a command means.
#[derive(PartialEq, Eq)]
enum Verdict {
    Wait,
    Look,
    Enough,
}

impl Until {
    fn verdict(self, inner: &Inner) -> Verdict {
        match self {
            _ if inner.expected.is_empty() => Verdict::Look,
            Until::All => Verdict::Wait,
            Until::Any => Verdict::Look,
            Until::Enough { .. } if !inner.errors.is_empty() => Verdict::Look,
            Until::Enough { wanted, quorum } => {
                let own = !wanted.is_empty() && wanted.is_subset(inner.arrived);
                match own || inner.arrived.len() >= quorum {
                    true => Verdict::Enough,
                    false => Verdict::Wait,
                }
            }
        }
    }
}

/// How commands are issued; see [`Op::issue`].
#[derive(Clone, Copy, Default)]
pub(crate) struct Issue {
    /// When the operation goes on.
    pub(crate) until: Until,
    /// They are in addition to those that are in flight: no new round begins.
    pub(crate) more: bool,
    /// After so many microseconds the operation is told that they are late; 0: it is not.
    pub(crate) patience_us: u64,
    /// When all goes well the operation can end in the context of the last completion.
    pub(crate) ends_anywhere: bool,
    /// The commands may be overtaken, because others can answer.
    pub(crate) rescuable: bool,
    /// The commands write into the request's memory: nobody else may until they are back.
    pub(crate) borrows: bool,
}

impl Op {
    /// Makes slot `index` of the table of an array with `members` members, `columns` of which hold
    /// the data of a stripe. May sleep.
    pub(crate) fn new(index: u32, members: usize, columns: usize) -> Result<Arc<Self>> {
        let writes = Writes::new(columns)?;
        let frame = Frame {
            body: None,
            columns: Columns::new(members)?,
        };
        let mut returned = KVec::with_capacity(members, GFP_KERNEL)?;
        for _ in 0..members {
            returned.push(None, GFP_KERNEL)?;
        }
        let inner = Inner {
            array: None,
            frame: Some(KBox::new(frame, GFP_KERNEL)?),
            running: false,
            woken: false,
            round: 0,
            expected: SlotSet::EMPTY,
            leaving: SlotSet::EMPTY,
            errors: SlotSet::EMPTY,
            arrived: SlotSet::EMPTY,
            overtaken: SlotSet::EMPTY,
            until: Until::All,
            attention: false,
            late_at_us: 0,
            late: false,
            returned,
            granted: false,
            ends_anywhere: false,
            rescuable: false,
            borrows: false,
            issued_us: 0,
            parked_us: 0,
            aborted: None,
            offer: None,
            left: SlotSet::EMPTY,
        };
        Arc::pin_init(
            pin_init!(Self {
                index,
                inner <- new_spinlock_irq!(inner, "eraid::op"),
                gathered <- new_spinlock_irq!(Some(writes), "eraid::gathered"),
                job <- new_work!("eraid::op"),
            }),
            GFP_KERNEL,
        )
    }

    /// Puts work into this free slot, for [`Self::run`] to begin with. Any context.
    pub(crate) fn prepare(&self, array: Arc<Array>, work: Work, request: Option<Request>) {
        Self::prepare_locked(&mut self.inner.lock(), array, work, request);
    }

    /// Puts work into this free slot and runs it until it waits or ends. Task context.
    pub(crate) fn start(self: &Arc<Self>, array: Arc<Array>, work: Work, request: Option<Request>) {
        let taken = {
            let mut inner = self.inner.lock();
            Self::prepare_locked(&mut inner, array, work, request);
            Self::take_locked(&mut inner)
        };
        if let Some(taken) = taken {
            self.run_taken(taken);
        }
    }

    fn prepare_locked(inner: &mut Inner, array: Arc<Array>, work: Work, request: Option<Request>) {
        inner.array = Some(array);
        if let Some(frame) = &mut inner.frame {
            frame.body = Some(Body { work, request });
        }
        inner.errors = SlotSet::EMPTY;
        inner.granted = false;
        inner.aborted = None;
        inner.parked_us = now_us();
    }

    /// Adds a write to those gathered here, if it fits; `true` when it did. `urgent` tells whether
    /// it was the last one to fit, or must not be held back.
    ///
    /// Only for an operation that gathers writes of the stripe, which the stripe table knows.
    pub(crate) fn join(&self, write: &NewWrite<'_>, window: u32, urgent: &mut bool) -> bool {
        let mut gathered = self.gathered.lock();
        let writes = Option::as_mut(&mut gathered);
        let Some(writes) = writes.filter(|writes| !writes.batch.is_empty()) else {
            return false;
        };
        let joined = writes.join(write, window);
        *urgent = joined && writes.are_urgent(window);
        joined
    }

    /// Begins to gather writes with this one; whether it has to begin at once.
    pub(crate) fn gather(&self, write: &NewWrite<'_>, window: u32) -> bool {
        let mut gathered = self.gathered.lock();
        let writes = Option::as_mut(&mut gathered);
        let writes = writes.and_then(|writes| writes.join(write, window).then_some(writes));
        match writes {
            Some(writes) => writes.are_urgent(window),
            None => {
                // Does not happen: there is always room for the first one.
                write.request.fail(Status::IOERR);
                true
            }
        }
    }

    /// The stripe that writes are gathered for, if they may be held back for more of them.
    pub(crate) fn may_be_held(&self) -> Option<StripeNo> {
        let gathered = self.gathered.lock();
        let writes = gathered.as_ref()?;
        (!writes.are_fua() && !writes.batch.is_empty()).then_some(writes.batch.stripe())
    }

    /// Whether one of the gathered writes goes on where another one ended.
    pub(crate) fn gathers_stream(&self) -> bool {
        let gathered = self.gathered.lock();
        gathered.as_ref().is_some_and(|writes| writes.sequential)
    }

    /// When a write was gathered last, in µs.
    pub(crate) fn joined_us(&self) -> u64 {
        let gathered = self.gathered.lock();
        gathered.as_ref().map_or(0, |writes| writes.joined_us)
    }

    /// Nothing joins any more: what was gathered, until it is given back.
    pub(crate) fn take_gathered(&self) -> Option<Writes> {
        self.gathered.lock().take()
    }

    /// Ends a wait. Any context.
    pub(crate) fn wake(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        self.wake_locked(&mut inner);
    }

    fn wake_locked(self: &Arc<Self>, inner: &mut Inner) {
        if inner.running {
            inner.woken = true;
        } else if let Some(array) = &inner.array {
            array.queues.complete.kick::<Op, 0>(self);
        }
    }

    /// The stripe lock was granted. Any context.
    pub(crate) fn grant(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        inner.granted = true;
        self.wake_locked(&mut inner);
    }

    /// Forgets an earlier grant, before a lock is asked for.
    pub(crate) fn expect_grant(&self) {
        self.inner.lock().granted = false;
    }

    /// Lets others read what this writes, until [`Self::end_offer`].
    pub(crate) fn offer(&self, writes: Writes) {
        self.inner.lock().offer = Some(writes);
    }

    /// Nothing can be read from this operation any more.
    pub(crate) fn end_offer(&self) -> Option<Writes> {
        self.inner.lock().offer.take()
    }

    /// What this writes, if all blocks of `wanted` are among it.
    pub(crate) fn offered(&self, wanted: &Band) -> Option<Offer> {
        let inner = self.inner.lock();
        let part = inner.offer.as_ref()?.newest(wanted)?;
        Some(Offer {
            request: part.request.clone(),
            band: part.band,
        })
    }

    /// Issues the commands of `slots`, in a new round unless they are in addition to others: then not
    /// those whose member still has one of this round that was withdrawn. The operation is running.
    pub(crate) fn issue(&self, cx: &mut Context<'_>, slots: SlotSet, how: Issue) {
        let mut slots = slots;
        let round = {
            let mut inner = self.inner.lock();
            if !how.more {
                inner.round = inner.round.wrapping_add(1);
                inner.leaving = SlotSet::EMPTY;
                inner.expected = SlotSet::EMPTY;
                inner.errors = SlotSet::EMPTY;
                inner.arrived = SlotSet::EMPTY;
                inner.overtaken = SlotSet::EMPTY;
                inner.left = SlotSet::EMPTY;
            }
            if inner.aborted.is_some() {
                // Nothing is to be on its way when it is ended.
                inner.errors = inner.errors.union(slots);
                return;
            }
            // A late answer to what was withdrawn in this round would be taken for the one to this.
            let barred = slots.intersect(inner.left);
            inner.attention |= !barred.is_empty();
            slots = slots.minus(barred);
            inner.leaving = inner.leaving.minus(slots);
            inner.expected = inner.expected.union(slots);
            inner.errors = inner.errors.minus(slots);
            inner.arrived = inner.arrived.minus(slots);
            inner.overtaken = inner.overtaken.minus(slots);
            inner.ends_anywhere = how.ends_anywhere;
            inner.rescuable = how.rescuable;
            inner.borrows = how.borrows;
            inner.until = how.until;
            inner.issued_us = now_us();
            inner.late_at_us = match how.patience_us {
                0 => 0,
                us => inner.issued_us.saturating_add(us),
            };
            inner.round
        };
        let mut missing = SlotSet::EMPTY;
        for slot in slots.iter() {
            match cx.columns.take(slot) {
                Some(mut cmd) => {
                    cmd.ctx.target = crate::sub::Target::Op(Ticket {
                        op: self.index,
                        round,
                    });
                    cx.array.submit(cmd);
                }
                None => missing.insert(slot),
            }
        }
        if slots.is_empty() || !missing.is_empty() {
            // Nothing was reserved for them: as if the members were not there. The commands that
            // came back have woken the operation, but perhaps there were none.
            let mut inner = self.inner.lock();
            inner.expected = inner.expected.minus(missing);
            inner.errors = inner.errors.union(missing);
            inner.woken |= inner.expected.is_empty();
            inner.attention |= inner.until != Until::All;
        }
    }

    /// A command came back. Any context. An orphan is given back to the caller.
    pub(crate) fn deposit(
        self: &Arc<Self>,
        array: &Arc<Array>,
        round: u32,
        slot: Slot,
        cmd: Cmd,
        ok: bool,
    ) -> Result<(), Cmd> {
        let mut inner = self.inner.lock();
        if inner.round != round || !inner.expected.contains(slot) {
            return Err(cmd);
        }
        inner.expected.remove(slot);
        match ok {
            true => inner.arrived.insert(slot),
            false => inner.errors.insert(slot),
        }
        if let Some(place) = inner.returned.get_mut(slot.index()) {
            *place = Some(cmd);
        }
        let verdict = inner.until.verdict(&inner);
        if verdict == Verdict::Wait {
            return Ok(());
        }
        inner.attention = inner.until != Until::All;
        let rest = inner.expected;
        if verdict == Verdict::Enough && !rest.is_empty() {
            // Here and now: what still waits in its member's queue never enters the device.
            drop(inner);
            self.drop_expected(array, Some(round), rest);
            inner = self.inner.lock();
            if inner.round != round {
                return Ok(());
            }
        }
        let failed = inner.errors.minus(inner.overtaken);
        if inner.ends_anywhere && failed.is_empty() && inner.has_own() {
            // Taken under this hold: whatever comes into the slot later is not for this context.
            let taken = Self::take_locked(&mut inner);
            drop(inner);
            if let Some(taken) = taken {
                self.run_taken(taken);
            }
        } else {
            self.wake_locked(&mut inner);
        }
        Ok(())
    }

    /// Stops waiting for `slots` and goes on without. What waits in the members' queues is taken
    /// out, what the devices have becomes orphans. Any context.
    ///
    /// Only while the operation is in the round `of`, where one is given: later ones are none of the
    /// caller's business. What goes into the request's memory is waited for, unless the operation
    /// is aborted: then nothing else is written there, and the request ends when it is back.
    pub(crate) fn withdraw(self: &Arc<Self>, array: &Arc<Array>, of: Option<u32>, slots: SlotSet) {
        let Some(round) = self.drop_expected(array, of, slots) else {
            return;
        };
        let mut inner = self.inner.lock();
        if inner.round == round {
            inner.attention |= inner.until != Until::All;
        }
        if inner.expected.is_empty() || inner.attention {
            self.wake_locked(&mut inner);
        }
    }

    /// As [`Self::withdraw`], but wakes nobody. The round in which that was, if there was anything.
    fn drop_expected(
        self: &Arc<Self>,
        array: &Arc<Array>,
        of: Option<u32>,
        slots: SlotSet,
    ) -> Option<u32> {
        let (round, late) = {
            let mut inner = self.inner.lock();
            if of.is_some_and(|round| round != inner.round) {
                return None;
            }
            if inner.borrows && inner.aborted.is_none() {
                return None;
            }
            // What somebody else is at is his: only one finds a command in the queue, and the other
            // would take it for one that the device has.
            let late = inner.expected.intersect(slots).minus(inner.leaving);
            inner.leaving = inner.leaving.union(late);
            (inner.round, late)
        };
        for slot in late.iter() {
            let ticket = Ticket {
                op: self.index,
                round,
            };
            // A member that has left its slot has no books any more.
            let member = array.member(slot);
            let counted = member.as_ref().is_some_and(|m| m.withdraw(array, ticket));
            let mut inner = self.inner.lock();
            let expected = inner.round == round && inner.expected.contains(slot);
            if expected {
                inner.expected.remove(slot);
                inner.errors.insert(slot);
                inner.overtaken.insert(slot);
                if counted {
                    inner.left.insert(slot);
                }
            }
            drop(inner);
            if expected && !counted {
                array.reading.counts.add(Count::Removed);
            }
            if let (true, false, Some(member)) = (counted, expected, member) {
                member.keep(array);
            }
        }
        (!late.is_empty()).then_some(round)
    }

    /// Waits for nothing any more, and takes in what came. The operation is running.
    pub(crate) fn settle(self: &Arc<Self>, cx: &mut Context<'_>) {
        self.drop_expected(cx.array, None, cx.array.geometry.all_slots());
        let mut inner = self.inner.lock();
        // Somebody else is about to stop waiting for these: what comes now finds nobody any more.
        let rest = core::mem::take(&mut inner.expected);
        inner.errors = inner.errors.union(rest);
        inner.overtaken = inner.overtaken.union(rest);
        let seen = Self::collect(&mut inner, cx.columns);
        inner.attention = false;
        (cx.errors, cx.overtaken, cx.left) = (seen.errors, seen.overtaken, seen.left);
    }

    /// Makes the commands of `slots` ordinary ones. The operation is running.
    pub(crate) fn promote(&self, array: &Array, slots: SlotSet) {
        let round = self.inner.lock().round;
        let ticket = Ticket {
            op: self.index,
            round,
        };
        for slot in slots.iter() {
            if let Some(member) = array.member(slot) {
                member.promote(array, ticket);
            }
        }
    }

    /// What is on its way is late at this time. The operation is running.
    pub(crate) fn set_late_at(&self, at_us: u64) {
        self.inner.lock().late_at_us = at_us;
    }

    /// Tells it when what it waits for is late at `now`; else returns when that will be.
    pub(crate) fn check_late(self: &Arc<Self>, now: u64) -> Option<u64> {
        let mut inner = self.inner.lock();
        if inner.late_at_us == 0 || inner.expected.is_empty() {
            return None;
        }
        if inner.late_at_us > now {
            return Some(inner.late_at_us);
        }
        inner.late_at_us = 0;
        inner.late = true;
        inner.attention = true;
        self.wake_locked(&mut inner);
        None
    }

    /// Slots that have kept a read waiting since before `since_us` and that others can answer for,
    /// and the round in which they do.
    pub(crate) fn stalled(&self, since_us: u64) -> (u32, SlotSet) {
        let inner = self.inner.lock();
        let stalled = inner.rescuable && !inner.running && inner.issued_us < since_us;
        match stalled {
            true => (inner.round, inner.expected),
            false => (inner.round, SlotSet::EMPTY),
        }
    }

    /// Whether it waits since before `since_us`.
    pub(crate) fn waits_since(&self, since_us: u64) -> bool {
        let inner = self.inner.lock();
        inner.has_body() && inner.parked_us < since_us
    }

    /// Ends the operation with an error if it waits since before `since_us`; what is in flight becomes
    /// orphans. Without a time also if it runs, as soon as it does not.
    pub(crate) fn abort(
        self: &Arc<Self>,
        array: &Arc<Array>,
        status: Status,
        since_us: Option<u64>,
    ) {
        let round = {
            let mut inner = self.inner.lock();
            let meant = match since_us {
                Some(since) => inner.has_body() && inner.parked_us < since,
                None => inner.has_body() || inner.running,
            };
            if !meant {
                return;
            }
            inner.aborted = Some(status);
            inner.round
        };
        self.withdraw(array, Some(round), array.geometry.all_slots());
        let mut inner = self.inner.lock();
        // Unless it ended meanwhile, and the slot is another's.
        if inner.aborted.is_some() {
            self.wake_locked(&mut inner);
        }
    }

    /// Runs the operation until it waits or ends. Task context.
    pub(crate) fn run(self: &Arc<Self>) {
        let taken = Self::take_locked(&mut self.inner.lock());
        if let Some(taken) = taken {
            self.run_taken(taken);
        }
    }

    fn run_taken(self: &Arc<Self>, mut taken: Taken) {
        loop {
            let Taken {
                array,
                mut frame,
                seen,
            } = taken;
            let Frame { body, columns } = &mut *frame;
            let step = match body {
                Some(body) => self.step(&array, body, columns, &seen),
                None => Step::Done,
            };
            if step == Step::Done {
                self.finish(&array, frame);
                return;
            }
            match self.park(array, frame) {
                Some(again) => taken = again,
                None => return,
            }
        }
    }

    fn step(
        self: &Arc<Self>,
        array: &Arc<Array>,
        body: &mut Body,
        columns: &mut Columns,
        seen: &Seen,
    ) -> Step {
        let mut cx = Context {
            array,
            op: self,
            request: body.request.as_ref(),
            columns,
            errors: seen.errors,
            granted: seen.granted,
            left: seen.left,
            overtaken: seen.overtaken,
            late: seen.late,
        };
        match seen.aborted {
            Some(status) => body.work.abort(&mut cx, status),
            None => body.work.advance(&mut cx),
        }
    }

    /// Takes the frame to run it; `None` when somebody else does, or there is nothing to do yet.
    fn take_locked(inner: &mut Inner) -> Option<Taken> {
        if inner.running {
            inner.woken = true;
            return None;
        }
        if !inner.may_run() || !inner.has_body() {
            return None;
        }
        let array = inner.array.clone()?;
        let mut frame = inner.frame.take()?;
        inner.running = true;
        let seen = Self::collect(inner, &mut frame.columns);
        Some(Taken { array, frame, seen })
    }

    /// Moves what came back into the columns.
    fn collect(inner: &mut Inner, columns: &mut Columns) -> Seen {
        for (place, cmd) in columns.commands.iter_mut().zip(inner.returned.iter_mut()) {
            if let Some(cmd) = cmd.take() {
                *place = Some(cmd);
            }
        }
        inner.woken = false;
        inner.attention = false;
        Seen {
            errors: inner.errors,
            granted: inner.granted,
            aborted: inner.aborted,
            left: inner.left,
            overtaken: inner.overtaken,
            late: core::mem::take(&mut inner.late),
        }
    }

    /// Puts the frame back, unless there is something to do already.
    fn park(self: &Arc<Self>, array: Arc<Array>, mut frame: KBox<Frame>) -> Option<Taken> {
        let mut inner = self.inner.lock();
        let aborted = inner.aborted.is_some();
        if (aborted || inner.woken || inner.attention) && inner.may_run() {
            let seen = Self::collect(&mut inner, &mut frame.columns);
            return Some(Taken { array, frame, seen });
        }
        inner.running = false;
        inner.parked_us = now_us();
        inner.frame = Some(frame);
        let round = inner.round;
        drop(inner);
        if aborted {
            // It was aborted while it issued these.
            self.withdraw(&array, Some(round), array.geometry.all_slots());
        }
        None
    }

    fn finish(&self, array: &Arc<Array>, mut frame: KBox<Frame>) {
        // The requests may end here; the slot is free only afterwards, so that a stop that sees
        // no operation sees no request either.
        frame.body = None;
        if let Some(mut writes) = frame.columns.writes.take() {
            writes.clear();
            *self.gathered.lock() = Some(writes);
        }
        let mut inner = self.inner.lock();
        inner.round = inner.round.wrapping_add(1);
        inner.expected = SlotSet::EMPTY;
        inner.until = Until::All;
        (inner.attention, inner.late, inner.late_at_us) = (false, false, 0);
        inner.aborted = None;
        inner.frame = Some(frame);
        inner.running = false;
        let held = inner.array.take();
        drop(inner);
        array.op_done(self.index);
        drop(held);
    }
}

impl Inner {
    /// Whether there is work, and nobody at it.
    fn has_body(&self) -> bool {
        self.frame
            .as_ref()
            .is_some_and(|frame| frame.body.is_some())
    }

    /// Whether nothing has to be waited for, or what came before the rest is to be looked at. An abort
    /// withdraws the rest first.
    fn may_run(&self) -> bool {
        self.expected.is_empty() || self.attention && self.aborted.is_none()
    }

    /// Whether what came is what was wanted, and not what it can be computed from.
    fn has_own(&self) -> bool {
        match self.until {
            Until::All => true,
            Until::Any => false,
            Until::Enough { wanted, .. } => !wanted.is_empty() && wanted.is_subset(self.arrived),
        }
    }
}

impl Work {
    fn advance(&mut self, cx: &mut Context<'_>) -> Step {
        match self {
            Work::Direct(work) => work.advance(cx),
            Work::Gather(work) => work.advance(cx),
            Work::Read(work) => work.advance(cx),
            Work::Write(work) => work.advance(cx),
            Work::Flush(work) => work.advance(cx),
            Work::Discard(work) => work.advance(cx),
            Work::Sync(work) => work.advance(cx),
            Work::Repair(work) => work.advance(cx),
        }
    }

    fn abort(&mut self, cx: &mut Context<'_>, status: Status) -> Step {
        if let Some(request) = cx.request {
            request.fail(status);
        }
        match self {
            Work::Direct(work) => work.abort(cx),
            Work::Gather(work) => work.abort(cx),
            Work::Read(work) => work.abort(cx),
            Work::Write(work) => work.abort(cx, status),
            Work::Flush(work) => work.abort(cx),
            Work::Discard(work) => work.abort(cx),
            Work::Sync(work) => work.abort(cx),
            Work::Repair(work) => work.abort(cx),
        }
        cx.give_back_all();
        Step::Done
    }
}

impl Context<'_> {
    /// Takes a command for each of `slots`, with pages for so many sectors; `false` when the
    /// operation has to wait for them. The columns are empty.
    pub(crate) fn reserve(&mut self, slots: SlotSet, sectors: u32) -> bool {
        let need = Need {
            slots,
            pages: (sectors as usize * 512).div_ceil(PAGE_SIZE),
        };
        self.array.reserve(self.op, need, self.columns)
    }

    /// As [`Self::reserve`], and then asks for a stripe: `granted` tells whether the operation has
    /// it. Memory comes first, so that whoever holds a stripe has what it needs and goes on.
    pub(crate) fn reserve_and_lock(
        &mut self,
        slots: SlotSet,
        sectors: u32,
        stripe: StripeNo,
        mode: Mode,
    ) -> bool {
        if !self.reserve(slots, sectors) {
            return false;
        }
        self.granted = self.array.lock_stripe(self.op, stripe, mode) == Grant::Granted;
        true
    }

    /// The slots for which the operation has a command.
    pub(crate) fn reserved(&self) -> SlotSet {
        let slots = self.array.geometry.all_slots().iter();
        slots
            .filter(|slot| self.columns.get(*slot).is_some())
            .collect()
    }

    /// Gives all commands back but those of `keep`.
    pub(crate) fn keep_only(&mut self, keep: SlotSet) {
        let slots = self.array.geometry.all_slots().minus(keep);
        let columns = &mut *self.columns;
        for slot in slots.iter() {
            if let Some(cmd) = columns.get_mut(slot) {
                cmd.end_loan();
            }
        }
        self.array
            .give_all(slots.iter().filter_map(|slot| columns.take(slot)));
    }

    /// Gives all commands back.
    pub(crate) fn give_back_all(&mut self) {
        self.keep_only(SlotSet::EMPTY);
    }
}
