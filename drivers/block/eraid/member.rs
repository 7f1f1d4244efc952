// SPDX-License-Identifier: GPL-2.0

//! A member: its device, its queue of two classes, and what was seen of it.
//!
//! Commands go to the device up to its depth, the others wait here. Extra commands enter only when
//! the device holds nothing. `queue` is a leaf lock; commands are never submitted under it.
//!
//! Sending a command may wait for a tag of the device, so a job of the member does it: a member that
//! does not answer keeps nobody waiting but itself. Reads that may enter at once go straight to
//! devices that promise not to wait, and to the job only when the device would have had to.

use core::mem;

use kernel::{
    impl_has_work, new_spinlock_irq, new_work,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, SpinLockIrq,
    },
    workqueue::{Work, WorkItem},
};

use crate::{
    array::Array,
    events::Event,
    kapi::{
        blocks::Blocks,
        command::{CommandFlags, CommandOp},
        device::MemberDevice,
        status::Status,
        time::now_us,
        trace,
    },
    op::Ticket,
    reading::Count,
    ring::Ring,
    sub::{self, Cmd, Ended, Target, SECTORS_PER_BLOCK},
};
use eraid_core::{
    balance::{Candidate, ServiceTime},
    estimate::{End, Lesson, MemberEstimate, Snapshot},
    fairness::{Fairness, Note},
    line::Amount,
    patience::{ReadTimes, Tail},
    queue::{Class, Classes, Sweep, Waiting},
    units::{Micros, Sector, Slot, Uuid},
};

/// Commands a rotational member gets at a time, as many as its NCQ or TCQ queue holds.
const DEPTH_ROTATIONAL: u32 = 32;
/// Orphans at which a member is left alone. Each holds up to 512 KiB of the array's pool; that no
/// member has more of it than is left free (`core/line.rs`) bounds them, too.
const ORPHAN_CAP: u32 = 32;

/// What decides which command enters a disk, and when.
#[derive(Default)]
struct Disk {
    sweep: Sweep,
    fairness: Fairness,
}

/// What `queue` covers.
struct Queue {
    classes: Classes,
    ordinary: Ring<Cmd>,
    extra: Ring<Cmd>,
    /// What is the matter with disks, where places matter.
    disk: Option<Disk>,
    /// For reads whose failure is to have a place, as many as there are commands in the device.
    blocks: KVec<KBox<Blocks>>,
    /// Failed or being stopped: takes no command any more.
    closed: bool,
    /// What is learnt of it, for the choice of a way to read.
    estimate: MemberEstimate,
    /// What its reads took, queues included.
    times: ReadTimes,
}

impl Queue {
    fn list(&mut self, class: Class) -> &mut Ring<Cmd> {
        match class {
            Class::Ordinary => &mut self.ordinary,
            Class::Extra => &mut self.extra,
        }
    }

    /// Whether no command is to enter the device for now, so that it gets to one that it has.
    fn holds_back(&mut self) -> bool {
        let disk = self.disk.as_mut();
        disk.is_some_and(|disk| disk.fairness.holds_back(Micros::new(now_us())))
    }

    /// A command that had entered the device has left it.
    fn left(&mut self, note: Note, dispatched: Micros) {
        if let Some(disk) = &mut self.disk {
            disk.fairness.left(note, dispatched);
        }
    }

    /// Takes the waiting command of a class that enters the device next.
    fn take_next(&mut self, class: Class) -> Option<Cmd> {
        match (&mut self.disk, class) {
            (Some(disk), Class::Ordinary) => {
                let waiting = self.ordinary.iter().map(as_waiting);
                let next = disk.sweep.next(waiting, Micros::new(now_us()))?;
                self.ordinary.remove(next)
            }
            _ => self.list(class).pop_front(),
        }
    }

    /// Learns from a command that ended at `now`.
    fn learn(&mut self, ended: &Ended, orphan: bool, retry_us: u32, now: Micros) -> Lesson {
        let read = &ended.read;
        if ended.op != CommandOp::Read {
            self.estimate.other_done(read.dispatched, now);
            return Lesson::Nothing;
        }
        // Patience must not grow with what it is to end.
        if !orphan && read.class == Class::Ordinary && read.end == End::Good {
            self.times.add(now.saturating_sub(read.queued));
        }
        self.estimate.read_done(read, retry_us, now)
    }
}

/// Counters of a member, all of them since assembly.
pub(crate) struct Counters {
    /// Reads that failed although the drive might retry.
    pub(crate) read_errors: Atomic<u64>,
    /// Reads that failed, and were to.
    pub(crate) fast_failures: Atomic<u64>,
    /// Writes and flushes that failed.
    pub(crate) write_errors: Atomic<u64>,
    /// Commands that ended without a parent.
    pub(crate) orphans: Atomic<u64>,
    /// Smoothed time of a read in the device, in µs.
    pub(crate) read_us: Atomic<u64>,
}

impl Counters {
    fn new() -> Self {
        Self {
            read_errors: Atomic::new(0),
            fast_failures: Atomic::new(0),
            write_errors: Atomic::new(0),
            orphans: Atomic::new(0),
            read_us: Atomic::new(0),
        }
    }
}

/// See the [module description](self).
#[pin_data]
pub(crate) struct Member {
    /// Its slot.
    pub(crate) place: Slot,
    /// Its identity, as the superblock has it.
    pub(crate) uuid: Uuid,
    /// First sector of its data.
    pub(crate) data_start: u64,
    /// The block device.
    pub(crate) device: Arc<MemberDevice>,
    /// What was counted.
    pub(crate) counters: Counters,
    /// Its device is made of rotating disks.
    rotational: bool,
    /// Longest read that goes straight to the device, in sectors; 0 for none.
    straight: u32,
    /// Commands in the device or waiting here, orphans included.
    in_flight: Atomic<u32>,
    /// As `in_flight`, but taken off before a command is given back; see [`Self::load`].
    held: Atomic<u32>,
    /// Their pages.
    held_pages: Atomic<u32>,
    /// When the device last finished a command, or got one while it held none.
    last_done_us: Atomic<u64>,
    /// Its [`ServiceTime`].
    service: Atomic<u64>,
    /// How long a read waits for it before others are asked; 0: for ever.
    patience_us: Atomic<u64>,
    #[pin]
    queue: SpinLockIrq<Queue>,
    #[pin]
    dispatch: Work<Member, 0>,
}

impl_has_work! {
    impl HasWork<Self, 0> for Member { self.dispatch }
}

impl WorkItem<0> for Member {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.pump();
    }
}

impl Member {
    /// Makes a member of an array whose pool has `commands` commands. May sleep.
    pub(crate) fn new(
        place: Slot,
        uuid: Uuid,
        device: Arc<MemberDevice>,
        data_start: u64,
        commands: usize,
    ) -> Result<Arc<Self>> {
        let rotational = device.is_rotational();
        let depth = if rotational { DEPTH_ROTATIONAL } else { 0 };
        let queue = Queue {
            classes: Classes::new(depth, ORPHAN_CAP),
            // Besides the pool's commands there are two for metadata.
            ordinary: Ring::new(commands + 2)?,
            extra: Ring::new(commands)?,
            disk: rotational.then(Disk::default),
            blocks: blocks(depth)?,
            closed: false,
            estimate: MemberEstimate::new(Micros::new(now_us())),
            times: ReadTimes::EMPTY,
        };
        Arc::pin_init(
            pin_init!(Self {
                place,
                uuid,
                data_start,
                rotational,
                straight: device.nowait_sectors(),
                device,
                counters: Counters::new(),
                in_flight: Atomic::new(0),
                held: Atomic::new(0),
                held_pages: Atomic::new(0),
                last_done_us: Atomic::new(0),
                service: Atomic::new(ServiceTime::UNKNOWN.to_raw()),
                patience_us: Atomic::new(0),
                queue <- new_spinlock_irq!(queue, "eraid::member"),
                dispatch <- new_work!("eraid::member"),
            }),
            GFP_KERNEL,
        )
    }

    /// Name of the device, such as `sda`.
    pub(crate) fn name(&self) -> &str {
        self.device.name().to_str().unwrap_or("?")
    }

    /// Commands in the device or waiting here, orphans included.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    /// What it has in hand: commands in the device or waiting here, orphans included, which were
    /// not given back yet. So whoever waits for less of it finds less when he is told.
    pub(crate) fn load(&self) -> Amount {
        Amount {
            commands: self.held.load(Relaxed) as usize,
            pages: self.held_pages.load(Relaxed) as usize,
        }
    }

    /// What speaks for reading its copy of something at `now`. Any context.
    pub(crate) fn as_copy(&self, now: Micros) -> Candidate {
        let in_hand = self.in_flight();
        let idle = match in_hand {
            0 => now.saturating_sub(Micros::new(self.last_done_us.load(Relaxed))),
            _ => Micros::ZERO,
        };
        Candidate {
            slot: self.place,
            in_hand,
            time: ServiceTime::from_raw(self.service.load(Relaxed)),
            idle,
        }
    }

    fn takes(&self, cmd: &Cmd) {
        self.held.fetch_add(1, Relaxed);
        self.held_pages.fetch_add(cmd.buf.pages() as u32, Relaxed);
    }

    fn lets_go(&self, cmd: &Cmd) {
        self.held.fetch_sub(1, Relaxed);
        self.held_pages.fetch_sub(cmd.buf.pages() as u32, Relaxed);
    }

    /// Commands in the device, and waiting here.
    pub(crate) fn queued(&self) -> (u32, u32) {
        let queue = self.queue.lock();
        let waiting = queue.ordinary.len() + queue.extra.len();
        (queue.classes.in_device(), waiting as u32)
    }

    /// What is known of it for the choice of a way to read. Any context.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let queue = self.queue.lock();
        let waiting = queue.classes.waiting(Class::Ordinary);
        queue.estimate.snapshot(queue.classes.in_device() + waiting)
    }

    /// What is rare among the times that its reads took; `None` while too few are known.
    pub(crate) fn tail(&self) -> Option<Tail> {
        self.queue.lock().times.tail()
    }

    /// How long a read waits for it before others are asked, in µs; 0: for ever.
    pub(crate) fn patience_us(&self) -> u64 {
        self.patience_us.load(Relaxed)
    }

    /// Sets [`Self::patience_us`].
    pub(crate) fn set_patience_us(&self, us: u64) {
        self.patience_us.store(us, Relaxed);
    }

    /// Commands it gets at a time; 0 for no limit.
    pub(crate) fn depth(&self) -> u32 {
        match self.queue.lock().classes.depth() {
            u32::MAX => 0,
            depth => depth,
        }
    }

    /// Changes the number of commands it gets at a time; 0 for no limit.
    pub(crate) fn set_depth(self: &Arc<Self>, array: &Array, depth: u32) {
        self.queue.lock().classes.set_depth(depth);
        array.queues.submit.kick::<Member, 0>(self);
    }

    /// Whether the device has commands and has finished none since before `since_us`.
    pub(crate) fn is_silent(&self, since_us: u64) -> bool {
        let queue = self.queue.lock();
        queue.classes.in_device() > 0 && self.last_done_us.load(Relaxed) < since_us
    }

    /// Takes a command; one that it does not take any more is returned. Task context; waits for
    /// nothing.
    pub(crate) fn submit(self: &Arc<Self>, array: &Arc<Array>, mut cmd: Cmd) -> Result<(), Cmd> {
        let class = cmd.ctx.class;
        let mut queue = self.queue.lock();
        if queue.closed {
            return Err(cmd);
        }
        cmd.ctx.array = Some(array.clone());
        cmd.ctx.member = Some(self.clone());
        cmd.ctx.queued_us = now_us();
        cmd.ctx.good = None;
        self.in_flight.fetch_add(1, Relaxed);
        self.takes(&cmd);
        array.in_flight.fetch_add(1, Relaxed);
        queue.classes.enqueued(class);
        if self.goes_straight(&mut queue, &cmd) && queue.classes.dispatch() == Some(class) {
            self.enters(&mut queue, &mut cmd);
            drop(queue);
            cmd.ctx.io.flags = cmd.ctx.io.flags | CommandFlags::NOWAIT;
            self.send(cmd, None);
            return Ok(());
        }
        let list = queue.list(class);
        let queued = match cmd.ctx.target {
            Target::Op(_) => list.push_back(cmd),
            // Every write of a region may wait for it.
            Target::Superblock | Target::Map => list.push_front(cmd),
        };
        if let Err(cmd) = queued {
            // There is a place for every command of the pool, and for the metadata ones.
            queue.classes.removed(class);
            drop(queue);
            return Err(self.unwind(array, cmd));
        }
        drop(queue);
        array.queues.submit.kick::<Member, 0>(self);
        Ok(())
    }

    /// Whether a command needs no job to send it: nothing is before it, and the device neither
    /// waits nor lets wait.
    fn goes_straight(&self, queue: &mut Queue, cmd: &Cmd) -> bool {
        cmd.ctx.io.op == CommandOp::Read
            && cmd.ctx.class == Class::Ordinary
            && cmd.ctx.io.len / 512 <= self.straight as usize
            && queue.ordinary.is_empty()
            && queue.classes.may_dispatch(Class::Ordinary)
            && !self.wants_place(cmd)
            && !queue.holds_back()
    }

    /// A command was counted as in the device.
    fn enters(&self, queue: &mut Queue, cmd: &mut Cmd) {
        cmd.ctx.dispatched_us = now_us();
        queue
            .estimate
            .dispatched(Micros::new(cmd.ctx.dispatched_us));
        // A flush takes long, and is overtaken by all.
        cmd.ctx.note = match &mut queue.disk {
            Some(disk) if cmd.ctx.io.op != CommandOp::Flush => {
                disk.fairness.entered(Micros::new(cmd.ctx.dispatched_us))
            }
            _ => Note::default(),
        };
        if queue.classes.in_device() == 1 {
            let idle = cmd
                .ctx
                .dispatched_us
                .saturating_sub(self.last_done_us.load(Relaxed));
            let old = ServiceTime::from_raw(self.service.load(Relaxed));
            self.service
                .store(old.aged(Micros::new(idle)).to_raw(), Relaxed);
            self.last_done_us.store(cmd.ctx.dispatched_us, Relaxed);
        }
    }

    fn send(self: &Arc<Self>, cmd: Cmd, blocks: Option<KBox<Blocks>>) {
        if let Some(array) = &cmd.ctx.array {
            trace::trace_subreq_issue(&self.describe(array, &cmd), 0);
        }
        sub::send(cmd, self.device.clone(), blocks);
    }

    /// Whether the end of a command is to tell where it failed: a read of several blocks that its
    /// drive is not to retry, by a drive that gets one command for all of them.
    fn wants_place(&self, cmd: &Cmd) -> bool {
        self.rotational
            && (cmd.ctx.repairs || cmd.ctx.io.flags.contains(CommandFlags::FAILFAST))
            && cmd.has_blocks(&cmd.ctx.io)
            && self.device.merges()
    }

    /// Takes back what a read got that was to tell where it failed. Any context.
    pub(crate) fn keep_blocks(&self, blocks: KBox<Blocks>) {
        // There is a place for each of them.
        let _ = self.queue.lock().blocks.push_within_capacity(blocks);
    }

    /// Where the first bad block of a read is that failed with `status` after `good` sectors: that
    /// nothing came says so only of drives that have told a place before, and only if it is the data
    /// that is bad, not the drive that is silent or gone. Any context.
    pub(crate) fn bad_place(&self, status: Status, good: Option<u32>) -> Option<u32> {
        let of_data = matches!(status, Status::MEDIUM | Status::PROTECTION | Status::IOERR);
        let good = good.filter(|_| of_data)?;
        (good > 0 || self.queue.lock().estimate.tells_place()).then_some(good)
    }

    /// Lets the job send a command that the device ended with `status` because it would have had
    /// to wait; `Err` when the member takes none any more. Any context.
    ///
    /// If its operation has stopped waiting for it meanwhile it is sent all the same, as the orphan
    /// that it is counted as.
    pub(crate) fn refused(
        self: &Arc<Self>,
        array: &Arc<Array>,
        mut cmd: Cmd,
        status: Status,
    ) -> Result<(), Cmd> {
        let (class, note) = (cmd.ctx.class, cmd.ctx.note);
        let dispatched = Micros::new(cmd.ctx.dispatched_us);
        trace::trace_subreq_done(&self.describe(array, &cmd), status.as_raw());
        cmd.ctx.io.flags = cmd.ctx.io.flags.without(CommandFlags::NOWAIT);
        let mut queue = self.queue.lock();
        if queue.closed {
            return Err(cmd);
        }
        cmd.ctx.array = Some(array.clone());
        cmd.ctx.member = Some(self.clone());
        if let Err(mut cmd) = queue.list(class).push_front(cmd) {
            // There is a place for every command of the pool.
            (cmd.ctx.array, cmd.ctx.member) = (None, None);
            return Err(cmd);
        }
        queue.classes.refused(class);
        queue.left(note, dispatched);
        drop(queue);
        array.queues.submit.kick::<Member, 0>(self);
        Ok(())
    }

    /// Sends to the device what may enter it. Task context.
    fn pump(self: &Arc<Self>) {
        loop {
            let mut queue = self.queue.lock();
            if queue.holds_back() {
                return;
            }
            let Some(class) = queue.classes.dispatch() else {
                return;
            };
            let Some(mut cmd) = queue.take_next(class) else {
                return;
            };
            self.enters(&mut queue, &mut cmd);
            let blocks = match self.wants_place(&cmd) {
                true => queue.blocks.pop(),
                false => None,
            };
            drop(queue);
            self.send(cmd, blocks);
        }
    }

    /// Moves the oldest waiting extra command among the ordinary ones: called once a second, so
    /// that they are late but never starved.
    pub(crate) fn promote_extras(self: &Arc<Self>, array: &Array) {
        let mut queue = self.queue.lock();
        if let Some(mut cmd) = queue.extra.pop_front() {
            queue.classes.promoted();
            cmd.ctx.class = Class::Ordinary;
            // There is a place for every command of the pool.
            let _ = queue.ordinary.push_back(cmd);
            drop(queue);
            array.queues.submit.kick::<Member, 0>(self);
        }
    }

    /// Moves the command of `ticket` among the ordinary ones if it waits as an extra one. Any context.
    pub(crate) fn promote(self: &Arc<Self>, array: &Array, ticket: Ticket) {
        let wanted = |cmd: &Cmd| matches!(cmd.ctx.target, Target::Op(own) if own == ticket);
        let mut queue = self.queue.lock();
        let Some(mut cmd) = queue.extra.remove_first(wanted) else {
            return;
        };
        queue.classes.promoted();
        cmd.ctx.class = Class::Ordinary;
        // There is a place for every command of the pool.
        let _ = queue.ordinary.push_back(cmd);
        drop(queue);
        array.reading.counts.add(Count::Promoted);
        array.queues.submit.kick::<Member, 0>(self);
    }

    /// Nobody waits any more for the command of `ticket`: takes it out of the queue, or, when the
    /// device has it, counts it as an orphan and returns `true`. Any context.
    ///
    /// To be called before the operation stops expecting it; see [`Self::keep`].
    pub(crate) fn withdraw(self: &Arc<Self>, array: &Arc<Array>, ticket: Ticket) -> bool {
        let wanted = |cmd: &Cmd| matches!(cmd.ctx.target, Target::Op(own) if own == ticket);
        let mut queue = self.queue.lock();
        for class in [Class::Ordinary, Class::Extra] {
            if let Some(cmd) = queue.list(class).remove_first(wanted) {
                queue.classes.removed(class);
                drop(queue);
                trace::trace_subreq_remove(&self.describe(array, &cmd), 0);
                array.give(self.unwind(array, cmd));
                return false;
            }
        }
        queue.classes.orphaned();
        array.set_shunned(self.place, queue.classes.only_probes());
        true
    }

    /// The command counted by [`Self::withdraw`] came back to its operation after all.
    pub(crate) fn keep(&self, array: &Array) {
        let mut queue = self.queue.lock();
        queue.classes.adopted();
        array.set_shunned(self.place, queue.classes.only_probes());
    }

    /// A command left the device; `orphan` when nobody waited for it. Any context.
    pub(crate) fn left_device(self: &Arc<Self>, array: &Arc<Array>, ended: &Ended, orphan: bool) {
        let now = Micros::new(now_us());
        let retry_us = array.reading.retry_us();
        let mut queue = self.queue.lock();
        queue.classes.completed(orphan);
        queue.left(ended.note, ended.read.dispatched);
        let more = !queue.ordinary.is_empty() || !queue.extra.is_empty();
        self.last_done_us.store(now.get(), Relaxed);
        let lesson = queue.learn(ended, orphan, retry_us, now);
        if orphan {
            self.counters.orphans.fetch_add(1, Relaxed);
            array.set_shunned(self.place, queue.classes.only_probes());
        }
        drop(queue);
        array.reading.learn(lesson);
        if more {
            array.queues.submit.kick::<Member, 0>(self);
        }
    }

    /// Looks at a command the device finished. Any context.
    pub(crate) fn completed(self: &Arc<Self>, array: &Arc<Array>, cmd: &Cmd, status: Status) {
        let elapsed = now_us().saturating_sub(cmd.ctx.dispatched_us);
        trace::trace_subreq_done(&self.describe(array, cmd), status.as_raw());
        self.lets_go(cmd);
        if status.is_ok() && matches!(cmd.ctx.io.op, CommandOp::Read | CommandOp::Write) {
            self.measure(cmd.ctx.dispatched_us);
        }
        if !status.is_ok() {
            self.count_error(array, cmd, status);
            self.suspect(array, cmd, status);
        } else if cmd.ctx.io.op == CommandOp::Read && matches!(cmd.ctx.target, Target::Op(_)) {
            let old = self.counters.read_us.load(Relaxed);
            let smoothed = if old == 0 {
                elapsed
            } else {
                (old * 7 + elapsed) / 8
            };
            self.counters.read_us.store(smoothed, Relaxed);
        }
    }

    /// A command that the device got at `dispatched_us` has just ended.
    ///
    /// Of two that end at the same moment one may be lost: the mean of the others is as good.
    fn measure(&self, dispatched_us: u64) {
        let previous = Micros::new(self.last_done_us.load(Relaxed));
        let old = ServiceTime::from_raw(self.service.load(Relaxed));
        let new = old.after(Micros::new(dispatched_us), previous, Micros::new(now_us()));
        self.service.store(new.to_raw(), Relaxed);
    }

    /// The command that [`Self::completed`] was told of is dealt with. Any context.
    pub(crate) fn leave(self: Arc<Self>, array: &Arc<Array>) {
        let last_of_member = self.in_flight.fetch_sub(1, Relaxed) == 1;
        let last_of_array = array.in_flight.fetch_sub(1, Relaxed) == 1;
        if last_of_member || last_of_array {
            array.member_idle();
        }
    }

    /// Takes no commands from here on; those that waited are given back to the pool.
    pub(crate) fn close(self: &Arc<Self>, array: &Arc<Array>) {
        loop {
            let mut queue = self.queue.lock();
            queue.closed = true;
            let waiting = queue.ordinary.pop_front().map(|cmd| (cmd, Class::Ordinary));
            let waiting =
                waiting.or_else(|| queue.extra.pop_front().map(|cmd| (cmd, Class::Extra)));
            let Some((cmd, class)) = waiting else { return };
            queue.classes.removed(class);
            drop(queue);
            let cmd = self.unwind(array, cmd);
            let _ = array.returned(cmd, Status::OFFLINE);
        }
    }

    /// Takes back what [`Self::submit`] entered into the books.
    fn unwind(&self, array: &Array, mut cmd: Cmd) -> Cmd {
        self.in_flight.fetch_sub(1, Relaxed);
        self.lets_go(&cmd);
        array.in_flight.fetch_sub(1, Relaxed);
        mem::take(&mut cmd.ctx.member);
        mem::take(&mut cmd.ctx.array);
        cmd
    }

    /// What could not be read is looked at again, and repaired.
    fn suspect(&self, array: &Arc<Array>, cmd: &Cmd, status: Status) {
        let io = &cmd.ctx.io;
        let read = io.op == CommandOp::Read && matches!(cmd.ctx.target, Target::Op(_));
        let at = io.sector.checked_sub(self.data_start);
        if let (true, false, true, Some(at)) = (read, cmd.ctx.repairs, status.is_of_range(), at) {
            let certain = !io.flags.contains(CommandFlags::FAILFAST);
            // CAST: A command is shorter than 4 GiB.
            let len = (io.len / 512) as u32;
            let (skip, len) = match cmd.ctx.good {
                Some(good) => (good, (len - good.min(len)).min(SECTORS_PER_BLOCK)),
                None => (0, len),
            };
            let at = Sector::new(at + u64::from(skip));
            array.suspect(self.place, at, len, certain);
        }
    }

    fn count_error(self: &Arc<Self>, array: &Array, cmd: &Cmd, status: Status) {
        let counter = match cmd.ctx.io.op {
            CommandOp::Read if cmd.ctx.io.flags.contains(CommandFlags::FAILFAST) => {
                self.counters.fast_failures.fetch_add(1, Relaxed);
                return;
            }
            CommandOp::Read => &self.counters.read_errors,
            CommandOp::Write | CommandOp::Flush => &self.counters.write_errors,
            // A device may refuse a hint.
            CommandOp::Discard => return,
        };
        counter.fetch_add(1, Relaxed);
        array.report(&Event::io(
            self,
            op_name(cmd.ctx.io.op),
            cmd.ctx.io.sector,
            status,
        ));
    }

    fn describe<'a>(&self, array: &'a Array, cmd: &Cmd) -> trace::SubReq<'a> {
        trace::SubReq {
            array: array.name(),
            slot: u32::from(self.place.get()),
            op: op_name(cmd.ctx.io.op),
            sector: cmd.ctx.io.sector,
            sectors: (cmd.ctx.io.len / 512) as u32,
            class: match cmd.ctx.class {
                Class::Ordinary => "ordinary",
                Class::Extra => "extra",
            },
        }
    }
}

/// Memory for `count` reads whose failure is to have a place. May sleep.
fn blocks(count: u32) -> Result<KVec<KBox<Blocks>>> {
    let mut blocks = KVec::with_capacity(count as usize, GFP_KERNEL)?;
    for _ in 0..count {
        blocks.push(Blocks::new()?, GFP_KERNEL)?;
    }
    Ok(blocks)
}

/// What the order of commands depends on. Every write of a region may wait for metadata, and a flush
/// has no place.
fn as_waiting(cmd: &Cmd) -> Waiting {
    let placed = matches!(cmd.ctx.target, Target::Op(_)) && cmd.ctx.io.op != CommandOp::Flush;
    Waiting {
        at: placed.then_some(Sector::new(cmd.ctx.io.sector)),
        since: Micros::new(cmd.ctx.queued_us),
    }
}

fn op_name(op: CommandOp) -> &'static str {
    match op {
        CommandOp::Read => "read",
        CommandOp::Write => "write",
        CommandOp::Flush => "flush",
        CommandOp::Discard => "discard",
    }
}
