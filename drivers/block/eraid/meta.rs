// SPDX-License-Identifier: GPL-2.0

//! The array's metadata in memory and its way to the members: superblock and region map.
//!
//! Nothing here waits. Who needs something durable leaves its operation's number and is woken; the
//! job of the `meta` queue starts whatever can be started, completions call it again. So a member
//! that does not answer holds nothing but its own copy, until it answers or is failed.
//!
//! * At most one command is in flight for each member and kind: a hung one means that this copy is
//!   behind, never a second write over it. Both sides of a slot are written in turn.
//! * The superblock: every member gets the newest state as soon as its last write is done. A
//!   failure counts as recorded when parity + 1 members, or all that are left, say so.
//! * The map is written in rounds, a page at a time, and a round ends when every live member has
//!   it: only then may data of the region be written.
//!
//! `inner` is taken before the array's `table`, the locks of `regions` and that of the resync's state,
//! never the other way round, and never with an operation's lock held.

use core::{cmp::min, ops::Range};

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
    kapi::{
        command::{Command, CommandFlags, CommandIo, CommandOp},
        crc::crc32c,
        page::PageBuf,
        time::now_us,
    },
    newdev::Place,
    op::Op,
    regions::RegionTable,
    ring::Ring,
    sub::{Cmd, Sub, Target},
};
use eraid_core::{
    discard::Discards,
    geometry::Level,
    metapage::{Page, PageId, Side, PAGE_SIZE},
    refusal::{Errno, Refusal},
    refuse,
    region::{Admit, ClearTicket, RegionState, Work},
    regionmap::{self, Region, REGIONS_PER_PAGE},
    resync::Goal,
    superblock::{SlotState, Superblock},
    units::{Generation, Micros, RegionNo, Sector, Sectors, Slot, SlotSet, StripeNo, Uuid},
};

/// A region without writes for so long is marked as such. Writes all over the array, 25 a second of
/// them, come back to each of 256 regions every 10 s; marking it anew each time would cost them as
/// much as they do themselves.
const CLEAR_AFTER: Micros = Micros::new(30_000_000);

/// Regions marked within this time of each other are taken for writes all over the array.
const STORM: Micros = Micros::new(2_000_000);

/// log4 of the most regions that are marked ahead at once. All of them are resynced after a crash.
const STORM_MAX: u32 = 3;

/// A write of a page of the region map to all live members.
struct Round {
    page: u32,
    generation: Generation,
    /// Members that do not have it yet.
    pending: SlotSet,
    /// Members it is still to be sent to.
    unsent: SlotSet,
}

/// One member's copies.
struct Copy {
    superblock: Option<Cmd>,
    map: Option<Cmd>,
    /// Generation of the superblock it has.
    written: Generation,
    /// Generation of the one on its way.
    writing: Generation,
    superblock_side: Side,
}

/// What [`Meta::inner`] covers.
struct Inner {
    superblock: KBox<Superblock>,
    /// Generation that first recorded the latest failure.
    failure: Generation,
    /// Generation of each page of the map.
    map_generations: KVec<Generation>,
    round: Option<Round>,
    /// Page of the last round.
    last_page: u32,
    /// The next page to be written whatever it says, because a member came that has none of the map;
    /// behind the last one there is none.
    resend: u32,
    /// When a region was marked last, and how many times in a row that was soon after the time
    /// before.
    last_mark: Micros,
    storm: u32,
    /// The region that was marked last.
    marked: RegionNo,
    /// What the round writes.
    snapshot: KVec<Region>,
    copies: KVec<Copy>,
    /// Operations to wake when something became durable.
    waiting: Ring<u32>,
    /// Something did since they were woken last.
    progress: bool,
    /// The live members when the job ran last.
    live: SlotSet,
    /// Discards of parts of a region.
    discards: Discards,
    /// Regions to clear once the members are flushed.
    clearing: KVec<(RegionNo, ClearTicket)>,
    /// Members whose metadata write failed.
    broken: SlotSet,
    /// Those of them that cannot be failed, because nothing would be left.
    tolerated: SlotSet,
    scratch: KBox<Page>,
}

/// See the [module description](self).
#[pin_data]
pub(crate) struct Meta {
    /// State of every region; none for RAID-0, which has no map.
    pub(crate) regions: RegionTable,
    /// A failure is not recorded on as many members as it takes, or what the member lacks is not.
    /// Set under `inner`.
    owing: Atomic<bool>,
    /// The region that was discarded in part, as [`begun`] has it; changes under `inner`.
    discarding: Atomic<u64>,
    #[pin]
    inner: SpinLockIrq<Inner>,
}

impl Copy {
    fn new(generation: Generation, side: Side) -> Result<Self> {
        let command = || -> Result<Cmd> {
            let mut cmd = Command::new(1, Sub::idle())?;
            cmd.buf = PageBuf::zeroed(1)?;
            Ok(cmd)
        };
        Ok(Self {
            superblock: Some(command()?),
            map: Some(command()?),
            written: generation,
            writing: generation,
            superblock_side: side,
        })
    }
}

impl Meta {
    /// Takes the superblock that all live members have, and the merged map. May sleep.
    pub(crate) fn new(
        superblock: KBox<Superblock>,
        regions: KVec<RegionState>,
        map_generations: KVec<Generation>,
        sides: &[Side],
        ops: usize,
    ) -> Result<impl PinInit<Self>> {
        let members = usize::from(superblock.geometry.members());
        let mut copies = KVec::with_capacity(members, GFP_KERNEL)?;
        for side in sides.iter().take(members) {
            copies.push(Copy::new(superblock.generation, *side)?, GFP_KERNEL)?;
        }
        let clearing = KVec::with_capacity(regions.len(), GFP_KERNEL)?;
        let regions = RegionTable::new(superblock.regions, regions)?;
        let inner = Inner {
            failure: superblock.generation,
            superblock,
            discards: Discards::default(),
            clearing,
            map_generations,
            round: None,
            last_page: 0,
            resend: u32::MAX,
            last_mark: Micros::ZERO,
            storm: 0,
            marked: RegionNo::ZERO,
            snapshot: KVec::with_capacity(REGIONS_PER_PAGE, GFP_KERNEL)?,
            copies,
            waiting: Ring::new(ops)?,
            progress: false,
            live: SlotSet::EMPTY,
            broken: SlotSet::EMPTY,
            tolerated: SlotSet::EMPTY,
            scratch: KBox::init(pin_init::init_zeroed(), GFP_KERNEL)?,
        };
        Ok(pin_init!(Self {
            regions,
            owing: Atomic::new(false),
            discarding: Atomic::new(begun(None)),
            inner <- new_spinlock_irq!(inner, "eraid::meta"),
        }))
    }
}

impl Inner {
    fn wait(&mut self, op: u32) {
        if !self.waiting.iter().any(|waiting| *waiting == op) {
            // There is a place for every operation.
            let _ = self.waiting.push_back(op);
        }
    }

    fn failures_recorded(&self, live: SlotSet) -> bool {
        let has = |slot: &Slot| {
            let copy = self.copies.get(slot.index());
            copy.is_some_and(|copy| copy.written >= self.failure)
        };
        let recorded = live.iter().filter(has).count();
        let wanted = usize::from(self.superblock.geometry.parity()) + 1;
        recorded >= min(wanted, live.iter().count())
    }

    /// Begins a round when a page of the map is behind.
    fn begin_round(&mut self, regions: &RegionTable, live: SlotSet) {
        if self.round.is_some() {
            return;
        }
        let behind = |number| regions.with(number, |region| region.needs_persist()) == Some(true);
        let page = match self.is_resent(regions) {
            false => self.resend,
            true => match regions.layout.page_in_turn(self.last_page, behind) {
                Some(page) => page,
                None => return,
            },
        };
        if page == self.resend {
            self.resend += 1;
        }
        self.last_page = page;
        let (start, count) = regions.layout.regions_of(page);
        // Degraded, a region in doubt is one whose missing blocks cannot be had.
        if live == self.superblock.geometry.all_slots() {
            self.mark_ahead(regions, start, count as u64);
        }
        self.snapshot.clear();
        for number in numbers(start, count) {
            // A page's regions fit: see the capacity.
            regions.with(number, |region| {
                let _ = self.snapshot.push_within_capacity(region.begin_persist());
            });
        }
        let Some(generation) = self.map_generations.get_mut(page as usize) else {
            return;
        };
        *generation = generation.next();
        self.round = Some(Round {
            page,
            generation: *generation,
            pending: live,
            unsent: live,
        });
    }

    /// Whether no page is to be written for a new member.
    fn is_resent(&self, regions: &RegionTable) -> bool {
        self.resend >= regions.layout.pages()
    }

    /// When one region after the other has to be marked, marks others of the page along with it,
    /// four times as many each time: writes go all over the array, and each would wait for a write of
    /// the map otherwise.
    fn mark_ahead(&mut self, regions: &RegionTable, start: RegionNo, count: u64) {
        let number = |index| RegionNo::new(start.get() + index);
        let waits = |index: &u64| {
            let waits = regions.with(number(*index), |region| region.wants_mark());
            waits == Some(true)
        };
        let Some(first) = (0..count).find(waits) else {
            return;
        };
        let now = now();
        let (region, soon) = (number(first), now.saturating_sub(self.last_mark) < STORM);
        // The next region is where a sequential writer comes to.
        let next = region.get() == self.marked.get() + 1;
        self.storm = match soon && !next {
            true => (self.storm + 1).min(STORM_MAX),
            false => 0,
        };
        (self.last_mark, self.marked) = (now, region);
        let ahead = (1 << (2 * self.storm)) - 1;
        // From the first one on, all around.
        Iterator::chain(first..count, 0..first)
            .filter(|index| {
                let marked = regions.with(number(*index), |region| region.expect_write(now));
                marked == Some(true)
            })
            .take(ahead)
            .for_each(drop);
    }

    /// Ends the round when every live member has it; `true` when it did.
    fn end_round(&mut self, regions: &RegionTable, live: SlotSet) -> bool {
        let Some(round) = &mut self.round else {
            return false;
        };
        round.pending = round.pending.intersect(live);
        round.unsent = round.unsent.intersect(live);
        if !round.pending.is_empty() {
            return false;
        }
        let (start, count) = regions.layout.regions_of(round.page);
        for (number, written) in numbers(start, count).zip(self.snapshot.iter()) {
            regions.with(number, |region| region.persisted(*written));
        }
        self.round = None;
        true
    }

    /// The next map command that can be sent.
    fn next_map(&mut self) -> Option<Cmd> {
        let round = self.round.as_mut()?;
        let mut ready = round.unsent.iter();
        let slot = ready.find(|slot| {
            let copy = self.copies.get(slot.index());
            copy.is_some_and(|copy| copy.map.is_some())
        })?;
        round.unsent.remove(slot);
        let id = PageId {
            array: self.superblock.array,
            number: round.page,
        };
        let snapshot = self.snapshot.iter().copied();
        regionmap::encode(&mut self.scratch, crc32c, id, round.generation, snapshot);
        let side = Side::of(round.generation);
        let sector = self.superblock.front.map.page(side, round.page)?;
        let copy = self.copies.get_mut(slot.index())?;
        let mut cmd = copy.map.take()?;
        prepare(&mut cmd, slot, Target::Map, sector.get(), &self.scratch[..]);
        Some(cmd)
    }

    /// The next superblock command that can be sent.
    fn next_superblock(&mut self, live: SlotSet) -> Option<Cmd> {
        let newest = self.superblock.generation;
        let slot = live.iter().find(|slot| {
            let copy = self.copies.get(slot.index());
            copy.is_some_and(|copy| copy.superblock.is_some() && copy.written < newest)
        })?;
        self.superblock.slot = slot;
        self.superblock.encode(crc32c, &mut self.scratch);
        let copy = self.copies.get_mut(slot.index())?;
        copy.superblock_side = copy.superblock_side.other();
        copy.writing = newest;
        let sector = eraid_core::layout::superblock(copy.superblock_side);
        let mut cmd = copy.superblock.take()?;
        prepare(
            &mut cmd,
            slot,
            Target::Superblock,
            sector.get(),
            &self.scratch[..],
        );
        Some(cmd)
    }
}

/// Makes `cmd` a durable write of `page`.
fn prepare(cmd: &mut Cmd, slot: Slot, target: Target, sector: u64, page: &[u8]) {
    cmd.ctx.slot = slot;
    cmd.ctx.target = target;
    // The buffer is a page.
    let _ = cmd.buf.write(0, page);
    cmd.ctx.io = CommandIo {
        op: CommandOp::Write,
        flags: CommandFlags::FUA | CommandFlags::META | CommandFlags::SYNC,
        sector,
        buf_off: 0,
        len: PAGE_SIZE,
        origin: None,
    };
}

/// So many regions from `start` on.
fn numbers(start: RegionNo, count: usize) -> impl Iterator<Item = RegionNo> {
    let end = start.get().saturating_add(count as u64);
    (start.get()..end).map(RegionNo::new)
}

/// What is to be recomputed in a region. Members that are not there are caught up when they are back.
fn goal_of(region: &RegionState, level: Level, live: SlotSet) -> Option<Goal> {
    match region.work(level) {
        Work::Resync => Some(Goal::Parity),
        Work::Recover(stale) => stale.intersect(live).first().map(Goal::Member),
        Work::Fill | Work::Doubtful | Work::Nothing => None,
    }
}

/// A region or none, for an atomic.
fn begun(region: Option<RegionNo>) -> u64 {
    region.map_or(0, |region| region.get().saturating_add(1))
}

fn now() -> Micros {
    Micros::new(now_us())
}

/// Regions.
impl Array {
    /// State of the region of `stripe` as planners are to see it.
    pub(crate) fn region(&self, stripe: StripeNo) -> Region {
        let view = self
            .meta
            .regions
            .with_stripe(stripe, |region| region.view());
        view.unwrap_or(Region::CLEAN)
    }

    /// Asks to write to the region of `stripe`; operation `op` is woken when it may ask again.
    pub(crate) fn begin_write(
        self: &Arc<Self>,
        op: &Op,
        stripe: StripeNo,
        missing: SlotSet,
    ) -> Admit {
        let regions = &self.meta.regions;
        let ask = || {
            let admit = regions.with_stripe(stripe, |region| region.begin_write(now(), missing));
            admit.unwrap_or(Admit::Go)
        };
        if ask() == Admit::Wait {
            let mut inner = self.meta.inner.lock();
            inner.wait(op.index);
            // What it waits for may just have come; whoever is woken for nothing asks again.
            let admit = ask();
            drop(inner);
            if admit == Admit::Wait {
                self.kick_meta();
                return Admit::Wait;
            }
        }
        Admit::Go
    }

    /// A write to `stripe` was admitted: it comes after the discards so far.
    pub(crate) fn wrote(&self, stripe: StripeNo) {
        let region = self.region_of(stripe);
        if self.meta.discarding.load(Relaxed) == begun(Some(region)) {
            let mut inner = self.meta.inner.lock();
            inner.discards.wrote(region);
            let part = begun(inner.discards.begun());
            self.meta.discarding.store(part, Relaxed);
        }
    }

    /// A write to the region of `stripe` is over.
    pub(crate) fn end_write(&self, stripe: StripeNo) {
        let regions = &self.meta.regions;
        regions.with_stripe(stripe, |region| region.end_write(now()));
    }

    /// A write to `stripe` plans; see [`Sync::meets_write`](crate::resync::Sync::meets_write).
    pub(crate) fn meets_write(&self, stripe: StripeNo) {
        self.sync.meets_write(stripe, self.region_of(stripe));
    }

    /// Members of `missed`, which had all of `stripe`, lack a write to it.
    pub(crate) fn left_out(&self, stripe: StripeNo, missed: SlotSet) {
        if missed.is_empty() {
            return;
        }
        self.sync.left_out(self.region_of(stripe), missed);
        self.meta.regions.with_stripe(stripe, |region| {
            for slot in missed.iter() {
                region.note_missed(slot);
            }
        });
    }

    /// Members of `stale` are not to be read in the region of `stripe` any more.
    pub(crate) fn note_stale(&self, stripe: StripeNo, stale: SlotSet) {
        if !stale.is_empty() {
            let regions = &self.meta.regions;
            regions.with_stripe(stripe, |region| region.note_stale(stale));
        }
    }

    /// Whether members of `slots`, which failed a write to `stripe` and stay in use, can be caught up
    /// later with what they miss: see [`RegionState::let_lag`].
    pub(crate) fn let_lag(&self, stripe: StripeNo, slots: SlotSet) -> bool {
        // Members fail under this lock.
        let inner = self.meta.inner.lock();
        let missing = self.missing();
        let regions = &self.meta.regions;
        let lags = regions.with_stripe(stripe, |region| {
            region.let_lag(slots, missing, &self.geometry)
        });
        drop(inner);
        lags == Some(true)
    }

    /// A write in the region of `stripe` was given up half way.
    pub(crate) fn note_torn(&self, stripe: StripeNo) {
        let regions = &self.meta.regions;
        regions.with_stripe(stripe, |region| region.note_torn());
        // A resync that passed the stripe proves nothing about it any more.
        self.sync.begin_again_in(self.region_of(stripe));
    }

    /// Whether it is durable that `missed` lack writes in the region of `stripe`, and that failed
    /// members failed; else operation `op` is woken when it may ask again.
    pub(crate) fn recorded(self: &Arc<Self>, op: &Op, stripe: StripeNo, missed: SlotSet) -> bool {
        if missed.is_empty() && !self.meta.owing.load(Acquire) {
            return true;
        }
        let live = self.live();
        let mut inner = self.meta.inner.lock();
        let regions = &self.meta.regions;
        let marked = regions.with_stripe(stripe, |region| region.is_recorded(missed));
        let recorded = marked != Some(false) && inner.failures_recorded(live);
        if !recorded {
            inner.wait(op.index);
            drop(inner);
            self.kick_meta();
        }
        recorded
    }

    /// Whether it is durable that failed members failed and what they lack; else operation `op` is
    /// woken when it may ask again.
    pub(crate) fn failures_recorded(self: &Arc<Self>, op: &Op) -> bool {
        let live = self.live();
        // Members fail under this lock: who was seen to be gone is owed.
        let mut inner = self.meta.inner.lock();
        let recorded = !self.meta.owing.load(Acquire) || self.is_paid(&inner, live);
        if !recorded {
            inner.wait(op.index);
            drop(inner);
            self.kick_meta();
        }
        recorded
    }

    /// Whether all failures are recorded, and what those members lack.
    fn is_paid(&self, inner: &Inner, live: SlotSet) -> bool {
        inner.failures_recorded(live) && !self.meta.regions.any(RegionState::owes_stale)
    }

    /// Collects the regions that had no write for a while; `true` when a flush is to be started
    /// for them.
    pub(crate) fn begin_clear(&self) -> bool {
        self.begin_clear_idle(CLEAR_AFTER)
    }

    /// As [`Self::begin_clear`], for regions without a write since `idle`.
    pub(crate) fn begin_clear_idle(&self, idle: Micros) -> bool {
        let mut guard = self.meta.inner.lock();
        let inner = &mut *guard;
        if !inner.clearing.is_empty() {
            return false;
        }
        let (regions, now) = (&self.meta.regions, now());
        for number in numbers(RegionNo::ZERO, regions.count()) {
            let ticket = regions.with(number, |region| region.try_clear(now, idle));
            if let Some(ticket) = ticket.flatten() {
                // There is a place for every region.
                let _ = inner.clearing.push_within_capacity((number, ticket));
            }
        }
        !inner.clearing.is_empty()
    }

    /// The members were flushed since [`Self::begin_clear`], or (`false`) could not be.
    pub(crate) fn end_clear(self: &Arc<Self>, flushed: bool) {
        let mut guard = self.meta.inner.lock();
        let inner = &mut *guard;
        while let Some((number, ticket)) = inner.clearing.pop() {
            if flushed {
                let regions = &self.meta.regions;
                regions.with(number, |region| region.finish_clear(ticket));
            }
        }
        drop(guard);
        self.kick_meta();
    }

    /// Whether there is a region with something to recompute.
    pub(crate) fn has_work(&self) -> bool {
        let (level, live) = (self.geometry.level(), self.live());
        let regions = &self.meta.regions;
        regions.any(|region| goal_of(region, level, live).is_some())
    }

    /// The first region from number `from` on with something to recompute, and what.
    pub(crate) fn next_work(&self, from: u64) -> Option<(RegionNo, Goal)> {
        let live = self.live();
        let level = self.geometry.level();
        let regions = &self.meta.regions;
        let mut from = from..regions.count() as u64;
        from.find_map(|number| {
            let number = RegionNo::new(number);
            let goal = regions.with(number, |region| {
                let goal = goal_of(region, level, live)?;
                match goal {
                    Goal::Member(slot) => region.begin_recovery(slot),
                    Goal::Parity => region.begin_sync(),
                }
                Some(goal)
            });
            Some((number, goal.flatten()?))
        })
    }

    /// Whether there are regions whose data is there with a live member, and would not be without,
    /// because others are still to be caught up there. Not when the array as a whole cannot do without
    /// it.
    pub(crate) fn is_needed_to_catch_up(&self, slot: Slot) -> bool {
        let (all, needed) = (self.live(), self.needed());
        let needs = |region: &RegionState| region.needs(slot, all, needed);
        all.without(slot).len() >= needed && self.meta.regions.any(needs)
    }

    /// Whether every member is needed somewhere, because nothing can be computed there before a
    /// resync.
    pub(crate) fn has_undecodable(&self) -> bool {
        let level = self.geometry.level();
        let undecodable = |region: &RegionState| region.work(level) == Work::Resync;
        level.has_parity() && self.meta.regions.any(undecodable)
    }

    /// Whether the map of the members says that writes may be in flight.
    pub(crate) fn is_marked(&self) -> bool {
        self.meta.regions.any(|region| region.view().in_flight)
    }

    /// Regions in which parity may not match the data, or live members are still to be caught up.
    pub(crate) fn unsynced_regions(&self) -> u64 {
        let live = self.live();
        let mut unsynced = 0;
        self.meta.regions.for_each(|region| {
            let region = region.view();
            let behind = !region.stale.intersect(live).is_empty();
            unsynced += u64::from(region.need_sync || behind);
        });
        unsynced
    }

    /// The goal was reached in the whole region, and the members are flushed.
    pub(crate) fn synced(self: &Arc<Self>, number: RegionNo, goal: Goal) {
        // Members fail under this lock: one that did before the flush, or in it, may have lost what
        // was written to it last.
        let inner = self.meta.inner.lock();
        let absent = self.missing();
        // Where something came in between, the region is found again.
        self.meta.regions.with(number, |region| match goal {
            Goal::Parity => region.synced(absent),
            Goal::Member(slot) => region.recovered(slot, absent),
        });
        drop(inner);
        self.kick_meta();
    }
}

/// Discards.
impl Array {
    /// Where a region starts on each member, from the start of its data on.
    pub(crate) fn region_start(&self, region: RegionNo) -> Sector {
        let (first, _) = self.meta.regions.layout.stripes_of(region);
        self.geometry.member_sector(first, 0)
    }

    /// What a region takes of each member.
    pub(crate) fn region_len(&self, region: RegionNo) -> Sectors {
        let (first, behind) = self.meta.regions.layout.stripes_of(region);
        let stripes = behind.get().saturating_sub(first.get());
        Sectors::new(stripes * u64::from(self.geometry.chunk()))
    }

    /// Takes the regions that are discarded as a whole with `len` sectors from `start` on back to
    /// "never written", for operation `op`: those of the regions returned that nobody writes to or
    /// discards.
    ///
    /// In one step: a write that is admitted before counts, one that comes later waits.
    pub(crate) fn begin_discard(
        self: &Arc<Self>,
        op: &Op,
        start: Sector,
        len: Sectors,
    ) -> Range<u64> {
        let regions = &self.meta.regions;
        let mut inner = self.meta.inner.lock();
        let discards = &mut inner.discards;
        let whole = discards.add(&regions.layout, &self.geometry, start, len);
        let part = begun(discards.begun());
        self.meta.discarding.store(part, Relaxed);
        for number in whole.clone().map(RegionNo::new) {
            let begun = regions.with(number, |region| region.begin_discard(op.index));
            if begun == Some(true) {
                // What a resync computed there proves nothing any more.
                self.sync.begin_again_in(number);
            }
        }
        drop(inner);
        self.kick_meta();
        whole
    }

    /// Whether operation `op` discards a region.
    pub(crate) fn is_discarding(&self, op: &Op, region: u64) -> bool {
        let number = RegionNo::new(region);
        let regions = &self.meta.regions;
        regions.with(number, |region| region.is_discarding(op.index)) == Some(true)
    }

    /// Whether the map of the members says that the regions `op` discards were never written; else
    /// `op` is woken when it may ask again.
    pub(crate) fn discard_recorded(self: &Arc<Self>, op: &Op, regions: Range<u64>) -> bool {
        let mut inner = self.meta.inner.lock();
        let recorded = regions.map(RegionNo::new).all(|number| {
            let recorded = self.meta.regions.with(number, |region| {
                !region.is_discarding(op.index) || region.discard_recorded()
            });
            recorded != Some(false)
        });
        if !recorded {
            inner.wait(op.index);
            drop(inner);
            self.kick_meta();
        }
        recorded
    }

    /// The regions that `op` discards may be written again.
    pub(crate) fn end_discard(self: &Arc<Self>, op: &Op, regions: Range<u64>) {
        let mut inner = self.meta.inner.lock();
        for number in regions.map(RegionNo::new) {
            self.meta.regions.with(number, |region| {
                if region.is_discarding(op.index) {
                    region.end_discard();
                }
            });
        }
        // Writers wait among those for whom something became durable.
        inner.progress = true;
        drop(inner);
        self.kick_meta();
    }
}

/// The superblock.
impl Array {
    /// Fails a member in the table and in the superblock in one step, so that nobody sees a member
    /// gone whose failure is not yet to be recorded. `change`
    /// returns the state to record, or `None` when there is nothing to change.
    pub(crate) fn record_change(
        self: &Arc<Self>,
        slot: Slot,
        change: impl FnOnce() -> Option<SlotState>,
    ) {
        let mut inner = self.meta.inner.lock();
        if let Some(state) = change() {
            inner.superblock.set_state(slot, state);
            inner.superblock.generation = inner.superblock.generation.next();
            inner.failure = inner.superblock.generation;
            self.meta.owing.store(true, Release);
            let regions = &self.meta.regions;
            let parity = self.geometry.parity();
            regions.for_each(|region| region.member_failed(slot, parity));
        }
        drop(inner);
        self.kick_meta();
    }

    /// Marks all that was ever written as missing on the member of a slot without one.
    pub(crate) fn begin_empty(self: &Arc<Self>, slot: Slot) {
        self.meta.regions.for_each(|region| region.emptied(slot));
        self.kick_meta();
    }

    /// Whether the map of all live members says what [`Self::begin_empty`] is to make it say.
    pub(crate) fn is_emptied(&self, slot: Slot) -> bool {
        !self.meta.regions.any(|region| !region.is_emptied(slot))
    }

    /// Records that a device is a spare, and returns its slot; `None` when there is none left.
    pub(crate) fn record_spare(self: &Arc<Self>, uuid: Uuid) -> Option<Slot> {
        let mut inner = self.meta.inner.lock();
        let slot = inner.superblock.spare_slot()?;
        inner.superblock.set_member(slot, uuid, SlotState::Spare);
        inner.superblock.generation = inner.superblock.generation.next();
        drop(inner);
        self.kick_meta();
        Some(slot)
    }

    /// Records that a spare left.
    pub(crate) fn record_spare_gone(self: &Arc<Self>, slot: Slot) {
        let mut inner = self.meta.inner.lock();
        inner.superblock.forget_spare(slot);
        inner.superblock.generation = inner.superblock.generation.next();
        drop(inner);
        self.kick_meta();
    }

    /// Takes a member in to be rebuilt, in the table (`enter`) and in the superblock in one step. What
    /// the map says that it lacks has to be right already.
    ///
    /// No write that it got a part of is acknowledged before it is recorded that it is there. So whoever
    /// was in the slot before can never be taken for it.
    ///
    /// # Errors
    ///
    /// `EBUSY`: metadata writes to the member that was in the slot before are still under way, or there
    /// was a write meanwhile that the map does not know of yet.
    pub(crate) fn record_joined(
        self: &Arc<Self>,
        place: &Place,
        enter: impl FnOnce() -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let slot = place.slot;
        let mut guard = self.meta.inner.lock();
        let inner = &mut *guard;
        let copy = inner.copies.get_mut(slot.index());
        let copy = copy.filter(|copy| copy.superblock.is_some() && copy.map.is_some());
        let copy = copy.ok_or_else(|| {
            refuse!(
                Errno::Busy,
                "metadata is still being written to the device that was in slot {slot} before"
            )
        })?;
        if place.blank && !self.is_emptied(slot) {
            return Err(refuse!(
                Errno::Busy,
                "the region map is being written; try again"
            ));
        }
        enter()?;
        copy.written = Generation::ZERO;
        copy.writing = Generation::ZERO;
        copy.superblock_side = place.side;
        inner.broken.remove(slot);
        inner.tolerated.remove(slot);
        inner.resend = 0;
        let recovering = SlotState::Recovering(Sectors::ZERO);
        if let Some(spare) = place.spare {
            inner.superblock.forget_spare(spare);
        }
        inner.superblock.set_member(slot, place.uuid, recovering);
        inner.superblock.generation = inner.superblock.generation.next();
        inner.failure = inner.superblock.generation;
        self.meta.owing.store(true, Release);
        drop(guard);
        self.kick_meta();
        Ok(())
    }

    /// Takes a member that was being rebuilt for one in sync, in the table (`enter`) and in the
    /// superblock, if it has everything and the maps say so, its own among them.
    pub(crate) fn record_rebuilt(
        self: &Arc<Self>,
        slot: Slot,
        enter: impl FnOnce() -> bool,
    ) -> bool {
        let mut inner = self.meta.inner.lock();
        let regions = &self.meta.regions;
        let rebuilt = inner.round.is_none()
            && inner.is_resent(regions)
            && !regions.any(|region| !region.is_caught_up(slot))
            && enter();
        if rebuilt {
            inner.superblock.set_state(slot, SlotState::InSync);
            inner.superblock.generation = inner.superblock.generation.next();
            drop(inner);
            self.kick_meta();
        }
        rebuilt
    }

    /// Where the first region starts that a member lacks something in, and how many sectors of each
    /// member all of these are.
    pub(crate) fn lacked_by(&self, slot: Slot) -> Option<(Sector, Sectors)> {
        let regions = &self.meta.regions;
        let lacks = |number: &RegionNo| {
            let stale = regions.with(*number, |region| region.view().stale.contains(slot));
            stale == Some(true)
        };
        let mut lacking = numbers(RegionNo::ZERO, regions.count()).filter(lacks);
        let first = lacking.next()?;
        let len = |number| self.region_len(number).get();
        let sectors = len(first) + lacking.map(len).sum::<u64>();
        Some((self.region_start(first), Sectors::new(sectors)))
    }

    /// Records that the array is stopped.
    pub(crate) fn record_stop(self: &Arc<Self>) {
        let mut inner = self.meta.inner.lock();
        inner.superblock.active = false;
        inner.superblock.generation = inner.superblock.generation.next();
        drop(inner);
        self.kick_meta();
    }

    /// Whether all there is to record is durable on all live members.
    pub(crate) fn settled(&self) -> bool {
        let live = self.live();
        let inner = self.meta.inner.lock();
        let newest = inner.superblock.generation;
        let behind = |slot: Slot| {
            let copy = inner.copies.get(slot.index());
            copy.is_some_and(|copy| copy.written < newest)
        };
        inner.round.is_none()
            && !self.meta.regions.any(RegionState::needs_persist)
            && !live.iter().any(behind)
    }

    /// Runs `read` on the superblock in memory.
    pub(crate) fn with_superblock<R>(&self, read: impl FnOnce(&Superblock) -> R) -> R {
        read(&self.meta.inner.lock().superblock)
    }
}

/// Writing.
impl Array {
    /// A metadata command came back. Any context.
    pub(crate) fn meta_returned(self: &Arc<Self>, cmd: Cmd, ok: bool) {
        let slot = cmd.ctx.slot;
        let mut guard = self.meta.inner.lock();
        let inner = &mut *guard;
        inner.progress = true;
        if !ok {
            inner.broken.insert(slot);
        }
        let settles = ok || inner.tolerated.contains(slot);
        let Some(copy) = inner.copies.get_mut(slot.index()) else {
            return;
        };
        match cmd.ctx.target {
            Target::Superblock => {
                copy.superblock = Some(cmd);
                if settles {
                    copy.written = copy.writing;
                }
            }
            Target::Map => {
                copy.map = Some(cmd);
                if let (true, Some(round)) = (settles, &mut inner.round) {
                    if !round.unsent.contains(slot) {
                        round.pending.remove(slot);
                    }
                }
            }
            Target::Op(_) => {}
        }
        drop(guard);
        self.kick_meta();
    }

    /// Starts what can be started and wakes who may go on. The job of the `meta` queue.
    pub(crate) fn run_meta(self: &Arc<Self>) {
        if self.read_only || self.has_ended() {
            return;
        }
        self.fail_broken();
        let live = self.live();
        let mut inner = self.meta.inner.lock();
        inner.progress |= core::mem::replace(&mut inner.live, live) != live;
        loop {
            if inner.end_round(&self.meta.regions, live) {
                inner.progress = true;
                self.note_change();
            }
            inner.begin_round(&self.meta.regions, live);
            let next = inner.next_superblock(live);
            let Some(cmd) = next.or_else(|| inner.next_map()) else {
                break;
            };
            drop(inner);
            self.submit(cmd);
            inner = self.meta.inner.lock();
        }
        if self.meta.owing.load(Relaxed) && self.is_paid(&inner, live) {
            self.meta.owing.store(false, Release);
        }
        // Whoever finds that its condition is still not met waits again, at the end.
        let woken = match core::mem::take(&mut inner.progress) {
            true => inner.waiting.len(),
            false => 0,
        };
        for _ in 0..woken {
            let next = inner.waiting.pop_front();
            drop(inner);
            self.wake(next);
            inner = self.meta.inner.lock();
        }
    }

    /// Fails the members whose metadata could not be written.
    fn fail_broken(self: &Arc<Self>) {
        let broken = core::mem::take(&mut self.meta.inner.lock().broken);
        if broken.is_empty() {
            return;
        }
        let kept = self.write_failed(broken);
        if kept.is_empty() {
            return;
        }
        // Nothing would be left without them. The copy stays behind, and who waits goes on: there
        // is no other member that could be trusted more.
        let mut inner = self.meta.inner.lock();
        inner.progress = true;
        inner.tolerated = inner.tolerated.union(kept);
        let newest = inner.superblock.generation;
        for slot in kept.iter() {
            if let Some(copy) = inner.copies.get_mut(slot.index()) {
                copy.written = newest;
            }
            if let Some(round) = &mut inner.round {
                if !round.unsent.contains(slot) {
                    round.pending.remove(slot);
                }
            }
        }
    }
}
