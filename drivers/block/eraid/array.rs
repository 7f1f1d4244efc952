// SPDX-License-Identifier: GPL-2.0

//! A running array: what its parts share, and how requests become operations.
//!
//! Lock order: `meta.inner`, `table`, a seat's. The locks of the pool and of the stripe table are taken
//! with none of these held, and are followed at most by an operation's.

use core::{num::NonZeroU32, pin::Pin};

use kernel::{
    impl_has_delayed_work, impl_has_work, new_delayed_work, new_spinlock_irq, new_work,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, SpinLockIrq,
    },
    workqueue::{DelayedWork, Work, WorkItem},
};

use crate::{
    direct::COMMAND_SECTORS,
    events::Event,
    flush::{After, Flush},
    free::FreeNumbers,
    intake::Intake,
    kapi::{
        command::{CommandFlags, CommandIo, CommandOp, Origin},
        device::MemberDevice,
        module::ModuleRef,
        params::default_read_policy,
        raid6::Scratch,
        request::Request,
        status::Status,
        time::now_us,
        trace, workqueue,
    },
    member::Member,
    meta::Meta,
    newdev::Place,
    op::{self, Columns, Context, Offer, Op},
    pool::{Need, Pool},
    queues::Queues,
    reading::Reading,
    repair::Repairs,
    resync::Sync,
    retained::Retained,
    ring::Ring,
    spares::{Spare, Spares},
    stripes::StripeTable,
    sub::{Cmd, Target, Transport},
};
use eraid_core::{
    balance,
    estimate::Retries,
    geometry::{Band, Geometry, Level, Rows},
    line::Amount,
    member::{Event as MemberEvent, MemberState},
    metapage::Side,
    plan_read::{self, ReadPlan, View},
    queue::Class,
    refusal::{Errno, Refusal},
    refuse,
    region::RegionState,
    resync::Goal,
    sitout::{self, SitOut},
    stripelock::{Grant, Mode},
    superblock::{ArrayName, SlotState, Superblock},
    units::{Generation, Micros, RegionNo, Sector, Sectors, Slot, SlotSet, StripeNo, Uuid},
};

/// Operations of an array.
const OPS: usize = 1024;
/// Commands of an array, at least.
const COMMANDS: usize = 2048;
/// Pages of an array, at least: 16 MiB.
const PAGES: usize = 4096;
/// Rows of one operation over all members, in sectors: 4 MiB.
const OP_SECTORS: u32 = 8192;
/// log2 of the number of stripes that prefer the same copy.
const NEIGHBOURS_SHIFT: u32 = 4;
/// Time between two looks at what needs looking after.
const TICK_MS: u32 = 1000;
/// Reads of a member that finished nothing for so long are answered by the others.
const STALL_US: u64 = 2_000_000;

/// One slot of the array.
pub(crate) struct SlotEntry {
    /// What it is to the array.
    pub(crate) state: MemberState,
    /// Whether reads avoid it.
    pub(crate) sit_out: SitOut,
}

/// The member of a slot. Each has a lock of its own: every command asks for its member.
#[pin_data]
struct Seat {
    #[pin]
    member: SpinLockIrq<Option<Arc<Member>>>,
}

/// Why a member is to be failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A write or flush failed.
    Error,
    /// The administrator says so. He may do so before a resync, too: a member that hangs hangs it.
    Asked,
    /// There is no device any more.
    Gone,
}

/// What user space is told, and of which member.
pub(crate) type Uevent = (&'static CStr, Option<Arc<Member>>);

/// Who runs an array, and is to be told of its changes.
pub(crate) trait Owner: Send + core::marker::Sync {
    /// Adds a device to the array, as a line to `new_dev` says. Task context; waits for devices.
    fn add_device(&self, array: &Arc<Array>, line: &[u8]) -> Result<(), Refusal>;

    /// Something changed that user space may wait for. Task context.
    fn attend(&self, array: &Arc<Array>);

    /// A line written to a file of the array or of a member was refused.
    fn refused(&self, line: &[u8], refusal: &Refusal);
}

/// What an array is made of.
pub(crate) struct Parts {
    /// The superblock all members have.
    pub(crate) superblock: KBox<Superblock>,
    /// Members, by slot.
    pub(crate) members: KVec<Option<Arc<Member>>>,
    /// Regions, as merged from the members' maps; none for RAID-0.
    pub(crate) regions: KVec<RegionState>,
    /// Newest generation of each page of the map.
    pub(crate) map_generations: KVec<Generation>,
    /// Devices that wait to take a slot.
    pub(crate) spares: KVec<Arc<Spare>>,
    /// Nothing may be written.
    pub(crate) read_only: bool,
    /// Where the newest superblock of each member lies.
    pub(crate) sides: [Side; 64],
    /// Who runs it.
    pub(crate) owner: Arc<dyn Owner>,
    /// N of `eraidN`, for the names of its work queues.
    pub(crate) number: u32,
}

/// See the [module description](self).
#[pin_data]
pub(crate) struct Array {
    /// Identity.
    pub(crate) uuid: Uuid,
    /// Name as the superblock has it.
    array_name: ArrayName,
    /// Shape.
    pub(crate) geometry: Geometry,
    /// Largest number of rows of one operation.
    pub(crate) max_rows: u32,
    /// Nothing may be written.
    pub(crate) read_only: bool,
    /// Largest part of each member that one gathered read has memory for, in sectors.
    pub(crate) window_max: u32,
    /// How it reads.
    #[pin]
    pub(crate) reading: Reading,
    /// Its work queues.
    pub(crate) queues: Queues,
    /// Commands in flight at all members, orphans and metadata included.
    pub(crate) in_flight: Atomic<u32>,
    /// Device number of the disk, for `block_bio_remap`.
    pub(crate) dev: Atomic<u32>,
    /// Members that take commands; changes under `table`.
    live: Atomic<u64>,
    /// Those of them that are being rebuilt; changes under `table`.
    rebuilding: Atomic<u64>,
    /// Members that sit out; changes under `table`.
    avoid: Atomic<u64>,
    /// Members with so many commands without an answer that they get no more.
    shunned: Atomic<u64>,
    stopping: Atomic<bool>,
    /// A write that was given up may still land on a member that counts as current.
    haunted: Atomic<bool>,
    /// The members are let go of: nothing is written or recorded any more.
    ended: Atomic<bool>,
    /// Operations that are not free.
    active: Atomic<u32>,
    /// First sector of the data of every member.
    data_start: u64,
    /// Members by slot, until they are removed.
    seats: KVec<Pin<KBox<Seat>>>,
    #[pin]
    table: SpinLockIrq<KVec<SlotEntry>>,
    #[pin]
    pub(crate) meta: Meta,
    #[pin]
    pub(crate) sync: Sync,
    #[pin]
    pub(crate) pool: Pool,
    /// Takes a P that nobody wants.
    pub(crate) scratch: Scratch,
    stripes: StripeTable,
    ops: KVec<Arc<Op>>,
    free_ops: FreeNumbers,
    #[pin]
    pub(crate) intake: Intake,
    #[pin]
    pub(crate) retained: Retained,
    #[pin]
    pub(crate) repairs: Repairs,
    #[pin]
    pub(crate) spares: Spares,
    /// Events that are still to be sent to user space.
    #[pin]
    uevents: SpinLockIrq<Ring<Uevent>>,
    /// Slots whose device is gone.
    gone: Atomic<u64>,
    /// Something changed that user space may poll for.
    changed: Atomic<bool>,
    /// Who runs it.
    pub(crate) owner: Arc<dyn Owner>,
    #[pin]
    meta_job: Work<Array, 0>,
    #[pin]
    pump_job: Work<Array, 1>,
    #[pin]
    notify_job: Work<Array, 2>,
    #[pin]
    repair_job: Work<Array, 6>,
    #[pin]
    tick: DelayedWork<Array, 3>,
    #[pin]
    hold: DelayedWork<Array, 4>,
    #[pin]
    late: DelayedWork<Array, 5>,
    /// Dropped last: the module stays while anything of the array does.
    _module: ModuleRef,
}

impl_has_work! {
    impl HasWork<Self, 0> for Array { self.meta_job }
    impl HasWork<Self, 1> for Array { self.pump_job }
    impl HasWork<Self, 2> for Array { self.notify_job }
    impl HasWork<Self, 6> for Array { self.repair_job }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, 3> for Array { self.tick }
    impl HasDelayedWork<Self, 4> for Array { self.hold }
    impl HasDelayedWork<Self, 5> for Array { self.late }
}

impl WorkItem<0> for Array {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.run_meta();
    }
}

impl WorkItem<1> for Array {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.pump();
    }
}

impl WorkItem<2> for Array {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let gone = SlotSet::from_bits(this.gone.load(Relaxed));
        for slot in gone.intersect(this.live()).iter() {
            this.fail_member(slot, "the device is gone", Cause::Gone);
        }
        this.owner.attend(&this);
    }
}

impl WorkItem<3> for Array {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.tick();
    }
}

impl WorkItem<4> for Array {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.look_at_held();
    }
}

impl WorkItem<6> for Array {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.repair_begins();
    }
}

impl WorkItem<5> for Array {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.look_for_late();
    }
}

/// Making and looking at an array.
impl Array {
    /// Makes an array that is not connected to anything yet. May sleep.
    ///
    /// Here and in what prepares a start: not inlined, since adding the disk reads from it (partition
    /// tables), and the stack has to be free of all this by then.
    #[inline(never)]
    pub(crate) fn new(parts: KBox<Parts>) -> Result<Arc<Self>> {
        let parts = KBox::into_inner(parts);
        let superblock = &parts.superblock;
        let (uuid, array_name) = (superblock.array, superblock.name);
        let geometry = superblock.geometry;
        let members = usize::from(geometry.members());
        let max_rows = rows_for(geometry.members()).min(geometry.chunk());
        let commands = commands_for(geometry.members());
        let pages = PAGES.max(4 * members * (max_rows as usize).div_ceil(PAGE_SIZE / 512));
        let data_start = superblock.front.data.get();
        let mut table = KVec::with_capacity(members, GFP_KERNEL)?;
        let mut seats = KVec::with_capacity(members, GFP_KERNEL)?;
        let (mut live, mut rebuilding) = (SlotSet::EMPTY, SlotSet::EMPTY);
        let mut rotates = false;
        for slot in geometry.all_slots().iter() {
            let member = parts.members.get(slot.index()).cloned().flatten();
            let state = match (&member, superblock.record(slot).state) {
                (Some(_), SlotState::InSync) => MemberState::InSync,
                (Some(_), SlotState::Recovering(_)) => MemberState::Recovering,
                (_, SlotState::Faulty) => MemberState::Faulty,
                _ => MemberState::Missing,
            };
            match state {
                MemberState::InSync => live.insert(slot),
                MemberState::Recovering => {
                    live.insert(slot);
                    rebuilding.insert(slot);
                }
                MemberState::Spare | MemberState::Faulty | MemberState::Missing => {}
            }
            rotates |= member.as_ref().is_some_and(|m| m.device.is_rotational());
            let sit_out = SitOut::Off;
            table.push(SlotEntry { state, sit_out }, GFP_KERNEL)?;
            let seat = pin_init!(Seat {
                member <- new_spinlock_irq!(member, "eraid::seat"),
            });
            seats.push(KBox::pin_init(seat, GFP_KERNEL)?, GFP_KERNEL)?;
        }
        let ops = make_ops(members, usize::from(geometry.data_columns()))?;
        let stripes = StripeTable::new(OPS)?;
        let meta = Meta::new(
            parts.superblock,
            parts.regions,
            parts.map_generations,
            &parts.sides,
            OPS,
        )?;
        let module = ModuleRef::get().ok_or(ENODEV)?;
        let scratch = Scratch::new()?;
        let intake = Intake::new(OPS)?;
        let retained = Retained::new(members)?;
        let repairs = Repairs::new()?;
        let uevents = Ring::new(64)?;
        let (read_only, owner, spares) = (parts.read_only, parts.owner, parts.spares);
        let queues = Queues::new(parts.number)?;
        Arc::pin_init(
            try_pin_init!(Self {
                uuid,
                array_name,
                geometry,
                max_rows,
                read_only,
                window_max: rows_for(geometry.members()),
                reading <- Reading::new(geometry.members(), rotates, default_read_policy()),
                queues,
                in_flight: Atomic::new(0),
                dev: Atomic::new(0),
                live: Atomic::new(live.bits()),
                rebuilding: Atomic::new(rebuilding.bits()),
                avoid: Atomic::new(0),
                shunned: Atomic::new(0),
                stopping: Atomic::new(false),
                haunted: Atomic::new(false),
                ended: Atomic::new(false),
                active: Atomic::new(0),
                data_start,
                seats,
                table <- new_spinlock_irq!(table, "eraid::table"),
                meta <- meta,
                sync <- Sync::new(),
                pool <- Pool::new(commands, pages, OPS),
                scratch,
                stripes,
                ops,
                free_ops: FreeNumbers::new(OPS as u32)?,
                intake <- intake,
                retained <- retained,
                repairs <- repairs,
                spares <- Spares::new(spares),
                uevents <- new_spinlock_irq!(uevents, "eraid::uevents"),
                gone: Atomic::new(0),
                changed: Atomic::new(false),
                owner,
                meta_job <- new_work!("eraid::meta"),
                pump_job <- new_work!("eraid::pump"),
                notify_job <- new_work!("eraid::notify"),
                repair_job <- new_work!("eraid::repair"),
                tick <- new_delayed_work!("eraid::tick"),
                hold <- new_delayed_work!("eraid::hold"),
                late <- new_delayed_work!("eraid::late"),
                _module: module,
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Name of the array.
    pub(crate) fn name(&self) -> &str {
        self.array_name.as_str()
    }

    /// Members that take commands. They have what was written, but in the regions in which they are
    /// stale: of one that is being rebuilt, all that it does not have yet.
    pub(crate) fn live(&self) -> SlotSet {
        SlotSet::from_bits(self.live.load(Relaxed))
    }

    /// Live members that are being rebuilt: the array does not count on them.
    pub(crate) fn rebuilding(&self) -> SlotSet {
        SlotSet::from_bits(self.rebuilding.load(Relaxed))
    }

    /// Live members that the array counts on.
    pub(crate) fn in_sync(&self) -> SlotSet {
        self.live().minus(self.rebuilding())
    }

    /// Members that reads avoid.
    pub(crate) fn avoid(&self) -> SlotSet {
        SlotSet::from_bits(self.avoid.load(Relaxed))
    }

    /// Notes whether a member is to be left alone. Any context.
    pub(crate) fn set_shunned(&self, slot: Slot, shunned: bool) {
        set_bit(&self.shunned, slot, shunned);
    }

    /// Members the data cannot do without.
    pub(crate) fn needed(&self) -> u32 {
        u32::from(self.geometry.members() - self.geometry.parity())
    }

    /// Whether there are fewer members than the data needs.
    pub(crate) fn is_broken(&self) -> bool {
        self.in_sync().len() < self.needed()
    }

    /// Slots without a live member.
    pub(crate) fn missing(&self) -> SlotSet {
        self.geometry.all_slots().minus(self.live())
    }

    /// Tells the array the device number of its disk.
    pub(crate) fn set_dev(&self, dev: u32) {
        self.dev.store(dev, Relaxed);
    }

    /// Something changed that user space may poll for. Any context.
    pub(crate) fn note_change(self: &Arc<Self>) {
        self.changed.store(true, Relaxed);
        self.queues.notify.kick::<Array, 2>(self);
    }

    /// Whether something changed since this was asked last.
    pub(crate) fn take_changed(&self) -> bool {
        self.changed.xchg(false, Relaxed)
    }

    /// The region of a stripe.
    pub(crate) fn region_of(&self, stripe: StripeNo) -> RegionNo {
        self.meta.regions.layout.region_of(stripe)
    }

    /// Runs `look` on the entry of a slot.
    pub(crate) fn with_slot<R>(&self, slot: Slot, look: impl FnOnce(&SlotEntry) -> R) -> Option<R> {
        self.table.lock().get(slot.index()).map(look)
    }

    /// The member of a slot, until it is removed.
    pub(crate) fn member(&self, slot: Slot) -> Option<Arc<Member>> {
        self.seats.get(slot.index())?.member.lock().clone()
    }

    /// Whether discards come to anything: the map forgets what was written, or members discard.
    pub(crate) fn can_discard(&self) -> bool {
        let can = |slot| self.member(slot).is_some_and(|m| m.device.can_discard());
        self.geometry.parity() > 0 || self.geometry.all_slots().iter().any(can)
    }

    /// Runs `look` on the member of a slot, under the lock of its seat.
    fn with_member<R>(&self, slot: Slot, look: impl FnOnce(&Member) -> R) -> Option<R> {
        let seat = self.seats.get(slot.index())?.member.lock();
        seat.as_deref().map(look)
    }

    /// Operations that are not free.
    pub(crate) fn active(&self) -> u32 {
        self.active.load(Relaxed)
    }

    /// What is known about the members in a stripe.
    pub(crate) fn view(&self, stripe: StripeNo) -> View {
        let mut region = self.region(stripe);
        let live = self.live();
        let mut recovered = SlotSet::EMPTY;
        match self.sync.reached(stripe, self.region_of(stripe)) {
            Some(Goal::Parity) => region = region.resynced(),
            Some(Goal::Member(slot)) if live.contains(slot) => recovered.insert(slot),
            Some(Goal::Member(_)) | None => {}
        }
        View {
            usable: View::usable(live, region.stale, recovered),
            avoid: self
                .avoid()
                .union(SlotSet::from_bits(self.shunned.load(Relaxed))),
            bad: SlotSet::EMPTY,
            region,
        }
    }

    /// Members that have no current data somewhere in the region of a stripe, or are not there.
    pub(crate) fn lacking(&self, stripe: StripeNo) -> SlotSet {
        self.region(stripe).stale.union(self.missing())
    }

    /// Whether nothing may be written to the region of a stripe, because more members lack something
    /// there than redundancy can do without: those that are missing would be stale there from the
    /// write on. Never for RAID-0, where it depends on what is written.
    pub(crate) fn is_lost(&self, stripe: StripeNo) -> bool {
        let parity = u32::from(self.geometry.parity());
        parity > 0 && self.lacking(stripe).len() > parity
    }
}

/// Sets or clears the bit of a slot.
fn set_bit(bits: &Atomic<u64>, slot: Slot, on: bool) {
    let bit = SlotSet::single(slot).bits();
    let mut old = bits.load(Relaxed);
    loop {
        let new = if on { old | bit } else { old & !bit };
        match bits.cmpxchg(old, new, Relaxed) {
            Ok(_) => return,
            Err(now) => old = now,
        }
    }
}

/// Commands in the pool of an array with so many members.
pub(crate) fn commands_for(members: u8) -> usize {
    COMMANDS.max(8 * usize::from(members))
}

/// Largest number of rows of one operation on so many members: a power of two, so that operations
/// end where pages do.
fn rows_for(members: u8) -> u32 {
    let rows = OP_SECTORS.checked_div(u32::from(members)).unwrap_or(0);
    let power = rows.checked_ilog2().map_or(0, |log| 1 << log);
    power.clamp(16, COMMAND_SECTORS)
}

fn make_ops(members: usize, columns: usize) -> Result<KVec<Arc<Op>>> {
    let mut ops = KVec::with_capacity(OPS, GFP_KERNEL)?;
    for index in 0..OPS as u32 {
        ops.push(Op::new(index, members, columns)?, GFP_KERNEL)?;
    }
    Ok(ops)
}

/// Plans a read; of RAID-1 from the copy `prefer`, or from the one that is expected to answer first.
pub(crate) fn plan_read(
    array: &Array,
    stripe: StripeNo,
    first: u8,
    last: u8,
    view: &View,
    prefer: Option<Slot>,
) -> ReadPlan {
    let prefer = match array.geometry.level() {
        Level::Raid1 => prefer.or_else(|| array.best_copy(view, stripe)),
        _ => None,
    };
    plan_read::plan_read(&array.geometry, stripe, first, last, view, prefer)
}

impl Array {
    /// The copy that is expected to answer first, of members that are not avoided if there are any.
    fn best_copy(&self, view: &View, stripe: StripeNo) -> Option<Slot> {
        let favoured = view.readable().minus(view.avoid);
        let among = match favoured.is_empty() {
            true => view.readable(),
            false => favoured,
        };
        let now = Micros::new(now_us());
        let copy = |slot: Slot| self.with_member(slot, |member| member.as_copy(now));
        let copies = among.iter().filter_map(copy);
        let turn = stripe.get() >> NEIGHBOURS_SHIFT;
        balance::choose(copies, turn, self.geometry.members())
    }
}

/// Operations.
impl Array {
    /// Starts an operation that no request asked for; `false` when none is free.
    pub(crate) fn start_work(self: &Arc<Self>, work: op::Work) -> bool {
        match self.take_op(0) {
            Some(op) => {
                op.start(self.clone(), work, None);
                true
            }
            None => false,
        }
    }

    /// Takes a free operation; [`Self::op_done`] gives it back. Whoever works elsewhere should give
    /// another `hint`.
    pub(crate) fn take_op(&self, hint: u64) -> Option<&Arc<Op>> {
        let index = self.free_ops.take(hint)?;
        self.active.fetch_add(1, Relaxed);
        self.ops.get(index as usize)
    }

    /// An operation ended. Any context.
    pub(crate) fn op_done(self: &Arc<Self>, index: u32) {
        // Before the look at requests below, which others add before they look for operations.
        self.free_ops.give(index);
        self.active.fetch_sub(1, Relaxed);
        if self.requests_wait() {
            self.kick_pump();
        }
    }

    /// The operation of this number.
    pub(crate) fn op(&self, index: u32) -> Option<&Arc<Op>> {
        self.ops.get(index as usize)
    }

    /// All operations, free ones too.
    pub(crate) fn ops(&self) -> impl Iterator<Item = &Arc<Op>> {
        self.ops.iter()
    }

    /// Whether an operation is free.
    pub(crate) fn has_free_op(&self) -> bool {
        self.free_ops.any()
    }

    /// Starts operations for requests that wait. Any context.
    pub(crate) fn kick_pump(self: &Arc<Self>) {
        self.queues.submit.kick::<Array, 1>(self);
    }

    /// Looks after held writes in `us` microseconds, or when that was asked before.
    pub(crate) fn arm_hold(self: &Arc<Self>, us: NonZeroU32) {
        let ms = us.get().div_ceil(1000);
        self.queues.submit.arm_if_idle::<Array, 4>(self, ms);
    }

    /// Whether requests are refused, because the array is being stopped.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }
}

/// What operations ask of their array.
impl Array {
    /// Wakes an operation.
    pub(crate) fn wake(&self, op: Option<u32>) {
        if let Some(op) = op.and_then(|op| self.ops.get(op as usize)) {
            op.wake();
        }
    }

    /// Takes what `op` needs into `columns`, which are empty; `false` when it waits for that.
    pub(crate) fn reserve(&self, op: &Op, need: Need, columns: &mut Columns) -> bool {
        let over = |free| self.over_share(need, free);
        let has_it = self
            .pool
            .reserve(op.index, need, over, columns, &mut |op| self.wake(Some(op)));
        if !has_it {
            // Its turn comes, the sooner the more there is.
            self.drop_retained();
        }
        has_it
    }

    /// Those members of `need` that would have more in hand than is left of `free`.
    fn over_share(&self, need: Need, free: Amount) -> SlotSet {
        let exceeds = |slot: &Slot| {
            let load = self.with_member(*slot, |member| member.load());
            let load = load.unwrap_or_default();
            load.exceeds_share(need.of_member(), need.total(), free)
        };
        need.slots.iter().filter(exceeds).collect()
    }

    /// Takes a command back into the pool. Any context.
    pub(crate) fn give(&self, mut cmd: Cmd) {
        cmd.end_loan();
        self.pool.give(cmd, &mut |op| self.wake(Some(op)));
    }

    /// Takes commands that borrow nothing back into the pool. Any context.
    pub(crate) fn give_all(&self, cmds: impl Iterator<Item = Cmd>) {
        self.pool.give_all(cmds, &mut |op| self.wake(Some(op)));
    }

    /// Operation `op` does not wait for memory any more.
    pub(crate) fn forget_wait(&self, op: &Op) {
        self.pool.forget(op.index, &mut |op| self.wake(Some(op)));
    }

    /// Lets all who wait for memory look again.
    fn wake_waiters(&self) {
        for index in 0..OPS {
            let Some(op) = self.pool.waiter(index) else {
                return;
            };
            self.wake(Some(op));
        }
    }

    /// Notes that `op` gathers writes to a stripe, which it will ask for.
    pub(crate) fn gather_stripe(&self, op: &Op, stripe: StripeNo) {
        self.stripes
            .with(stripe, |table| table.gather(op.index, stripe));
    }

    /// Calls `join` with operations that wait for a stripe to write to it, until it returns true,
    /// and returns whether it did. Under the lock of the stripe table.
    pub(crate) fn find_open_write(
        &self,
        stripe: StripeNo,
        join: &mut dyn FnMut(&Arc<Op>) -> bool,
    ) -> bool {
        let join = &mut |index| self.op(index).is_some_and(&mut *join);
        let found = self
            .stripes
            .with(stripe, |table| table.find_open(stripe, join));
        found == Some(true)
    }

    /// Whether anybody but operation `op` writes to a stripe, or is about to.
    pub(crate) fn is_written(&self, stripe: StripeNo, op: Option<u32>) -> bool {
        let written = self
            .stripes
            .with(stripe, |table| table.is_written(stripe, op));
        written == Some(true)
    }

    /// The number of commits so far to a stripe, or to others like it; `None` during one. Blocks that
    /// were read without a lock fit together if it is what it was before.
    pub(crate) fn writes_to_stripe(&self, stripe: StripeNo) -> Option<u64> {
        self.stripes.with(stripe, |table| table.sequence(stripe))?
    }

    /// Asks for the lock of a stripe; operation `op` is granted it later when queued.
    pub(crate) fn lock_stripe(&self, op: &Op, stripe: StripeNo, mode: Mode) -> Grant {
        op.expect_grant();
        let grant = self
            .stripes
            .with(stripe, |table| table.lock(op.index, stripe, mode));
        grant.unwrap_or(Grant::Misuse)
    }

    /// Asks for the commit phase of the stripe that `op` holds.
    pub(crate) fn upgrade_stripe(&self, op: &Op, stripe: StripeNo) -> Grant {
        op.expect_grant();
        let grant = self.stripes.with(stripe, |table| table.upgrade(op.index));
        grant.unwrap_or(Grant::Misuse)
    }

    /// What a write in commit has, if all blocks of `wanted` are among it.
    pub(crate) fn offered(&self, wanted: &Band) -> Option<Offer> {
        let stripe = wanted.stripe;
        let op = self.stripes.with(stripe, |table| table.offered(stripe))??;
        // It may have ended meanwhile, and another one taken its place: that is asked for its own
        // band, and its data is as good.
        self.ops.get(op as usize)?.offered(wanted)
    }

    /// Takes `op` from the commit phase of its stripe back to the one before.
    pub(crate) fn downgrade_stripe(&self, op: &Op, stripe: StripeNo) {
        self.stripes.with(stripe, |table| {
            table.downgrade(op.index, &mut |granted| self.granted(granted));
        });
    }

    /// Gives up the stripe that `op` holds or waits for, if any.
    pub(crate) fn unlock_stripe(&self, op: &Op, stripe: StripeNo) {
        self.stripes.with(stripe, |table| {
            table.unlock(op.index, &mut |granted| self.granted(granted));
        });
    }

    fn granted(&self, op: u32) {
        if let Some(op) = self.op(op) {
            op.grant();
        }
    }

    /// Sends a command to the member of its slot. Task context.
    pub(crate) fn submit(self: &Arc<Self>, cmd: Cmd) {
        let member = self.member(cmd.ctx.slot);
        let refused = match member {
            Some(member) => member.submit(self, cmd),
            None => Err(cmd),
        };
        if let Err(cmd) = refused {
            let _ = self.returned(cmd, Status::OFFLINE);
        }
    }

    /// A command ended; `true` when nobody waited for it. Any context.
    pub(crate) fn returned(self: &Arc<Self>, mut cmd: Cmd, status: Status) -> bool {
        let ticket = match cmd.ctx.target {
            Target::Op(ticket) => ticket,
            Target::Superblock | Target::Map => {
                self.meta_returned(cmd, status.is_ok());
                return false;
            }
        };
        cmd.ctx.class = Class::Ordinary;
        let slot = cmd.ctx.slot;
        let orphan = match self.ops.get(ticket.op as usize) {
            Some(op) => op.deposit(self, ticket.round, slot, cmd, status.is_ok()),
            None => Err(cmd),
        };
        match orphan {
            Ok(()) => {
                self.pool.eased(slot, &mut |op| self.wake(Some(op)));
                false
            }
            Err(cmd) => {
                self.give(cmd);
                true
            }
        }
    }

    /// Nothing of a member, or of the array, is in flight any more. Any context.
    pub(crate) fn member_idle(self: &Arc<Self>) {
        if self.stopping.load(Relaxed) {
            self.queues.notify.kick::<Array, 2>(self);
        }
    }

    /// Has what members could not read looked at. Any context.
    pub(crate) fn kick_repair(self: &Arc<Self>) {
        self.queues.submit.kick::<Array, 6>(self);
    }

    /// Starts the `meta` job. Any context.
    pub(crate) fn kick_meta(self: &Arc<Self>) {
        self.queues.meta.kick::<Array, 0>(self);
    }

    /// A request was read in part or in whole.
    pub(crate) fn read_done(
        &self,
        request: Option<&Request>,
        mode: &str,
        start: Sector,
        len: Sectors,
    ) {
        let Some(request) = request else { return };
        let stripe = self.geometry.locate(start).map_or(0, |at| at.stripe.get());
        let latency = latency_us(request);
        trace::trace_read(self.name(), mode, stripe, len.get() as u32, latency);
    }

    /// A band of a request was written.
    pub(crate) fn write_done(&self, request: &Request, kind: &str, stripe: StripeNo, sectors: u32) {
        trace::trace_write(
            self.name(),
            kind,
            stripe.get(),
            sectors,
            latency_us(request),
        );
    }

    /// Nothing had the data of these rows.
    pub(crate) fn read_lost(&self, stripe: StripeNo, rows: Rows) {
        array_err_ratelimited!(
            self.name(),
            "cannot read rows {} to {} of stripe {}: no member has them",
            rows.lo,
            rows.hi,
            stripe.get()
        );
    }
}

pub(crate) fn latency_us(request: &Request) -> u64 {
    now_us().saturating_sub((request.started_ns() / 1000) as u64)
}

impl Context<'_> {
    /// Lets reads that wait for the commit of the operation take what it writes from its requests.
    pub(crate) fn offer_commit(&mut self) {
        let Some(writes) = self.columns.writes.take() else {
            return;
        };
        let stripe = writes.batch.stripe();
        self.op.offer(writes);
        let wake = &mut |waiting| self.array.wake(Some(waiting));
        let stripes = &self.array.stripes;
        stripes.with(stripe, |table| table.offer(self.op.index, wake));
    }

    /// Sets what the command of `slot` is to do: `len` sectors from `at` on, counted from where
    /// the member's data starts.
    pub(crate) fn prepare(&mut self, slot: Slot, op: CommandOp, at: Sector, len: u32) {
        let start = self.array.data_start;
        let writes = self.columns.writes.as_ref();
        let asked = match (self.request, writes) {
            (Some(request), _) => request.command_flags(),
            (None, Some(writes)) => writes.command_flags(),
            (None, None) => CommandFlags::NONE,
        };
        let flags = match op {
            // Readahead may be dropped; commands of an array may not.
            CommandOp::Write => asked.without(CommandFlags::RAHEAD),
            _ => asked.without(CommandFlags::RAHEAD | CommandFlags::FUA),
        };
        let first = writes.and_then(|writes| writes.all().first());
        let request = self.request.or(first.map(|part| &part.request));
        let origin = request.map(|request| Origin {
            dev: self.array.dev.load(Relaxed),
            sector: request.sector(),
        });
        if let Some(cmd) = self.columns.get_mut(slot) {
            cmd.ctx.class = Class::Ordinary;
            cmd.ctx.transport = Transport::Bio;
            cmd.ctx.retries = Retries::On;
            cmd.ctx.repairs = false;
            cmd.ctx.io = CommandIo {
                op,
                flags,
                sector: start + at.get(),
                buf_off: 0,
                len: len as usize * 512,
                origin,
            };
        }
    }
}

/// Members that fail, sit out and leave.
impl Array {
    /// Writes to these members failed: those that the array can do without are failed. The others
    /// are returned.
    pub(crate) fn write_failed(self: &Arc<Self>, slots: SlotSet) -> SlotSet {
        let mut kept = SlotSet::EMPTY;
        if self.has_ended() {
            return kept;
        }
        for slot in slots.iter() {
            let live = self.live().contains(slot);
            if live && !self.fail_member(slot, "a write failed", Cause::Error) {
                kept.insert(slot);
            }
        }
        kept.intersect(self.live())
    }

    /// What these members' devices still have of a write was given up, and may land at any time: they
    /// are failed. `false` where the array cannot do without: then nothing is written any more that it
    /// could land on.
    pub(crate) fn gave_up(self: &Arc<Self>, slots: SlotSet) -> bool {
        let kept = self.write_failed(slots);
        if !kept.is_empty() && !self.haunted.xchg(true, Relaxed) {
            array_err!(
                self.name(),
                "takes no writes until it is stopped: what was given up may still be written"
            );
        }
        kept.is_empty()
    }

    /// Whether nothing may be written because of [`Self::gave_up`].
    pub(crate) fn is_haunted(&self) -> bool {
        self.haunted.load(Relaxed)
    }

    /// Fails a live member: nothing is asked of it any more, who waits for it goes on without.
    /// `false` when the data cannot do without it, because others are missing or still being caught
    /// up, unless it is gone. Task context.
    pub(crate) fn fail_member(self: &Arc<Self>, slot: Slot, reason: &str, cause: Cause) -> bool {
        let mut failed = None;
        self.record_change(slot, || {
            let needed = match cause {
                Cause::Gone => false,
                Cause::Asked => self.is_needed_to_catch_up(slot),
                Cause::Error => self.is_needed_to_catch_up(slot) || self.has_undecodable(),
            };
            if needed {
                return None;
            }
            let mut table = self.table.lock();
            let rebuilding = self.rebuilding();
            let left = self.in_sync().without(slot);
            let dispensable = rebuilding.contains(slot) || left.len() >= self.needed();
            let entry = table.get_mut(slot.index())?;
            if cause != Cause::Gone && !dispensable {
                return None;
            }
            entry.state = entry.state.after(MemberEvent::Fail)?;
            entry.sit_out = SitOut::Off;
            failed = self.member(slot);
            self.live.store(self.live().without(slot).bits(), Relaxed);
            self.rebuilding
                .store(rebuilding.without(slot).bits(), Relaxed);
            self.avoid.store(self.avoid().without(slot).bits(), Relaxed);
            // Without it nothing can be written any more, so it misses nothing: the members may come
            // back together as they are.
            dispensable.then_some(SlotState::Faulty)
        });
        let Some(member) = failed else { return false };
        self.distrust_retained();
        member.close(self);
        for op in self.ops.iter() {
            op.withdraw(self, None, SlotSet::single(slot));
        }
        self.sync.retry();
        self.report(&Event::failed(&member, reason));
        self.queue_uevent(c"ERAID_EVENT=degraded", None);
        self.note_change();
        true
    }

    /// The first slot that nobody is in.
    pub(crate) fn vacancy(&self) -> Option<Slot> {
        let free = |slot: &Slot| self.member(*slot).is_none();
        self.missing().iter().find(free)
    }

    /// Makes a member of the array of a device, for a slot. May sleep.
    pub(crate) fn new_member(
        &self,
        slot: Slot,
        uuid: Uuid,
        device: Arc<MemberDevice>,
    ) -> Result<Arc<Member>> {
        let commands = commands_for(self.geometry.members());
        Member::new(slot, uuid, device, self.data_start, commands)
    }

    /// Forgets what was noted of the device that was in a slot without a member.
    pub(crate) fn forget_device(&self, slot: Slot) {
        set_bit(&self.gone, slot, false);
        set_bit(&self.shunned, slot, false);
    }

    /// Takes a member into its slot, to be rebuilt; see [`Self::record_joined`]. Task context.
    ///
    /// # Errors
    ///
    /// `EBUSY` when the slot is taken, or as [`Self::record_joined`].
    pub(crate) fn join(
        self: &Arc<Self>,
        member: &Arc<Member>,
        place: &Place,
    ) -> Result<(), Refusal> {
        let slot = place.slot;
        let taken = || refuse!(Errno::Busy, "slot {slot} is taken");
        self.record_joined(place, || {
            let mut table = self.table.lock();
            let entry = table.get_mut(slot.index()).ok_or_else(taken)?;
            let mut seat = self
                .seats
                .get(slot.index())
                .ok_or_else(taken)?
                .member
                .lock();
            if seat.is_some() || self.live().contains(slot) {
                return Err(taken());
            }
            *seat = Some(member.clone());
            // Whatever was recorded of the member before.
            entry.state = MemberState::Recovering;
            entry.sit_out = SitOut::Off;
            set_bit(&self.rebuilding, slot, true);
            set_bit(&self.live, slot, true);
            Ok(())
        })?;
        // What is retained was computed for an array without it.
        self.distrust_retained();
        self.sync.retry();
        self.tick_soon();
        Ok(())
    }

    /// Counts on members from here on whose rebuild is complete. Task context.
    fn take_in_rebuilt(self: &Arc<Self>) {
        for slot in self.rebuilding().iter() {
            let rebuilt = self.record_rebuilt(slot, || {
                let mut table = self.table.lock();
                let entry = table.get_mut(slot.index());
                let next = entry
                    .as_ref()
                    .and_then(|entry| entry.state.after(MemberEvent::Recovered));
                let (Some(entry), Some(next)) = (entry, next) else {
                    return false;
                };
                entry.state = next;
                set_bit(&self.rebuilding, slot, false);
                true
            });
            if let (true, Some(member)) = (rebuilt, self.member(slot)) {
                self.report(&Event::rebuilt(&member));
                self.note_change();
            }
        }
    }

    /// Takes a failed member out of its slot.
    pub(crate) fn take_failed(&self, slot: Slot) -> Option<Arc<Member>> {
        let mut table = self.table.lock();
        let entry = table.get_mut(slot.index())?;
        entry.state = entry.state.after(MemberEvent::Remove)?;
        drop(table);
        self.release(slot)
    }

    /// Changes whether a member in sync sits out. `reason` is for the event.
    pub(crate) fn set_sit_out(
        self: &Arc<Self>,
        slot: Slot,
        sit_out: SitOut,
        reason: &str,
    ) -> Result<(), Refusal> {
        let (was, member) = {
            let mut table = self.table.lock();
            let sitting = self.avoid().without(slot).len() as u8;
            let failed = self.missing().len() as u8;
            let rebuilding = self.rebuilding().len() as u8;
            let entry = table
                .get_mut(slot.index())
                .filter(|entry| entry.state == MemberState::InSync)
                .ok_or_else(|| refuse!(Errno::Inval, "sit_out: the member is not in sync"))?;
            if sit_out.is_out() {
                sitout::admit(self.geometry.parity(), failed, rebuilding, sitting)?;
            }
            let was = core::mem::replace(&mut entry.sit_out, sit_out);
            let avoid = match sit_out.is_out() {
                true => self.avoid().with(slot),
                false => self.avoid().without(slot),
            };
            self.avoid.store(avoid.bits(), Relaxed);
            (was, self.member(slot))
        };
        let Some(member) = member else { return Ok(()) };
        match (was.is_out(), sit_out.is_out()) {
            (false, true) => {
                // Who waits for it now is answered by the others.
                self.rescue(now_us(), SlotSet::single(slot));
                self.report(&Event::sit_out(&member, reason));
            }
            (true, false) => self.report(&Event::sit_out_end(&member, reason)),
            _ => {}
        }
        self.note_change();
        Ok(())
    }

    /// Lets reads issued before `since_us` go on without `slots`, where others can answer.
    fn rescue(self: &Arc<Self>, since_us: u64, slots: SlotSet) -> [u64; 64] {
        let mut rescued = [0; 64];
        for op in self.ops.iter() {
            let (round, stalled) = op.stalled(since_us);
            let late = stalled.intersect(slots);
            op.withdraw(self, Some(round), late);
            for slot in late.iter() {
                if let Some(count) = rescued.get_mut(slot.index()) {
                    *count += 1;
                }
            }
        }
        rescued
    }

    /// A member's device is gone. Task context, under the device's holder lock.
    pub(crate) fn device_gone(self: &Arc<Self>, slot: Slot) {
        set_bit(&self.gone, slot, true);
        self.queues.notify.kick::<Array, 2>(self);
    }

    /// Remembers a uevent to be sent from task context. Any context.
    pub(crate) fn queue_uevent(&self, text: &'static CStr, member: Option<Arc<Member>>) {
        // When user space does not follow, the newest are dropped: the state files tell the rest.
        let dropped = self.uevents.lock().push_back((text, member));
        drop(dropped);
    }

    /// The oldest uevent not yet sent.
    pub(crate) fn next_uevent(&self) -> Option<Uevent> {
        self.uevents.lock().pop_front()
    }
}

/// The life of an array.
impl Array {
    /// Starts looking after the array once a second.
    pub(crate) fn begin(self: &Arc<Self>) {
        self.queues.submit.arm::<Array, 3>(self, 0);
    }

    /// Looks after the array soon.
    pub(crate) fn tick_soon(self: &Arc<Self>) {
        self.queues.submit.arm::<Array, 3>(self, 0);
    }

    fn tick(self: &Arc<Self>) {
        if self.stopping.load(Relaxed) {
            return;
        }
        self.queues.submit.arm_if_idle::<Array, 3>(self, TICK_MS);
        let now = now_us();
        self.end_sit_outs(now);
        self.rescue_stalled(now);
        self.wake_waiters();
        self.learn_patience();
        self.repair_begins();
        for slot in self.live().iter() {
            if let Some(member) = self.member(slot) {
                member.promote_extras(self);
            }
        }
        if !self.read_only {
            self.resync_goes_on();
            self.take_in_rebuilt();
            if !self.is_haunted() {
                self.resync_begins();
            }
            if self.begin_clear() && !self.start_work(op::Work::Flush(Flush::with(After::Clear))) {
                self.end_clear(false);
            }
        }
        self.queues.notify.kick::<Array, 2>(self);
    }

    fn end_sit_outs(self: &Arc<Self>, now: u64) {
        for slot in self.avoid().iter() {
            let over = self.with_slot(slot, |entry| {
                let mut sit_out = entry.sit_out;
                sit_out.expire(Micros::new(now))
            });
            if over == Some(true) {
                // It may have failed meanwhile.
                let _ = self.set_sit_out(slot, SitOut::Off, "the time is over");
            }
        }
    }

    /// Members whose device has had commands since before `since_us` and finished none.
    fn silent(&self, since_us: u64) -> SlotSet {
        let silent = |slot: &Slot| self.member(*slot).is_some_and(|m| m.is_silent(since_us));
        self.live().iter().filter(silent).collect()
    }

    /// Answers reads of members that do not answer, unless that is true of so many that it says
    /// nothing about any of them.
    fn rescue_stalled(self: &Arc<Self>, now: u64) {
        let since = now.saturating_sub(STALL_US);
        let silent = self.silent(since);
        if silent.is_empty() || silent.len() > u32::from(self.geometry.parity()) {
            return;
        }
        let rescued = self.rescue(since, silent);
        for slot in self.geometry.all_slots().iter() {
            let count = rescued.get(slot.index()).copied().unwrap_or(0);
            if let (true, Some(member)) = (count > 0, self.member(slot)) {
                self.report(&Event::stalled(&member, count));
            }
        }
    }

    /// Refuses requests from here on, and lets the background end.
    pub(crate) fn close(self: &Arc<Self>) {
        self.stopping.store(true, Relaxed);
        self.sync.stop();
        self.resync_goes_on();
        self.pump();
        self.look_at_held();
    }

    /// Looks after nothing any more. Task context, not from a job of the array.
    pub(crate) fn end_tick(self: &Arc<Self>) {
        workqueue::disable_delayed_sync::<Array, 3>(self);
        workqueue::disable_delayed_sync::<Array, 4>(self);
        workqueue::disable_delayed_sync::<Array, 5>(self);
    }

    /// Records nothing any more: the members are let go of.
    pub(crate) fn end(&self) {
        self.ended.store(true, Relaxed);
    }

    /// Whether [`Self::end`] was called.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    /// Takes a member out of its slot, at the end.
    pub(crate) fn release(&self, slot: Slot) -> Option<Arc<Member>> {
        self.seats.get(slot.index())?.member.lock().take()
    }

    /// Whether a member has not answered since before `since_us`, and requests wait as long.
    pub(crate) fn is_stuck(&self, since_us: u64) -> bool {
        !self.silent(since_us).is_empty() && self.ops.iter().any(|op| op.waits_since(since_us))
    }

    /// Ends operations that commands issued before `since_us` keep waiting, with errors.
    pub(crate) fn abort_stuck(self: &Arc<Self>, since_us: u64) {
        for op in self.ops.iter() {
            op.abort(self, Status::IOERR, Some(since_us));
        }
    }

    /// Ends all operations with errors.
    pub(crate) fn abort_all(self: &Arc<Self>) {
        for op in self.ops.iter() {
            op.abort(self, Status::IOERR, None);
        }
    }
}
