// SPDX-License-Identifier: GPL-2.0

//! Blocks of the stripes that sequential writers wrote last, so that their next write to the same
//! stripe need not read them: small writes would read parity once for each instead of once in all.
//!
//! An entry is in the table or with the operation that has the stripe for writing; whoever gets a
//! stripe takes its entry out, so no two know different blocks of it. It goes back only when all
//! went well. Its memory comes from the array's pool while that has plenty, and is given up when
//! anybody waits for memory, and when a member fails.
//!
//! `inner` is a leaf lock.

use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        SpinLockIrq,
    },
};

use crate::{array::Array, kapi::page::PageBuf, op::Columns, sub::Cmd};
use eraid_core::{
    geometry::Rows,
    units::{Sector, Slot, SlotSet, StripeNo},
};

/// Stripes of an array: as many sequential writers do not disturb each other.
const ENTRIES: usize = 8;

/// Places for ends of writes, see [`Streams`].
const ENDS: usize = 64;

/// Blocks of one column.
struct Kept {
    /// Its buffer begins with the first row of the window.
    cmd: Cmd,
    rows: Rows,
}

/// Blocks of one stripe, in one window of rows.
pub(crate) struct Entry {
    stripe: StripeNo,
    /// The first row of the window.
    base: u32,
    /// The array's [`Retained::epoch`] when the blocks were read or written.
    epoch: u32,
    columns: KVec<Option<Kept>>,
}

/// See the [module description](self).
#[pin_data]
pub(crate) struct Retained {
    /// Entries that hold blocks, oldest first, and those that hold none.
    #[pin]
    inner: SpinLockIrq<(KVec<Entry>, KVec<Entry>)>,
    /// Counts what makes all blocks doubtful.
    epoch: Atomic<u32>,
    /// Where writes ended, by the hash of that.
    ends: [Atomic<u64>; ENDS],
}

impl Entry {
    fn new(members: usize) -> Result<Self> {
        let mut columns = KVec::with_capacity(members, GFP_KERNEL)?;
        for _ in 0..members {
            columns.push(None, GFP_KERNEL)?;
        }
        Ok(Self {
            stripe: StripeNo::ZERO,
            base: 0,
            epoch: 0,
            columns,
        })
    }

    fn kept(&self, slot: Slot) -> Option<&Kept> {
        self.columns.get(slot.index())?.as_ref()
    }

    /// The slots of which all of `rows` is here.
    pub(crate) fn at_hand(&self, rows: Rows) -> SlotSet {
        let slots = SlotSet::first_n(self.columns.len() as u8).iter();
        slots
            .filter(|slot| {
                self.kept(*slot)
                    .is_some_and(|kept| kept.rows.contains(rows))
            })
            .collect()
    }

    /// Copies `rows` of a slot to a buffer that begins with row `base`.
    pub(crate) fn copy_to(&self, slot: Slot, rows: Rows, buf: &mut PageBuf, base: u32) -> Result {
        let kept = self.kept(slot).ok_or(EIO)?;
        buf.copy_from_buf(
            bytes(rows.lo.saturating_sub(base)),
            &kept.cmd.buf,
            bytes(rows.lo.saturating_sub(self.base)),
            bytes(rows.len()),
        )
    }

    /// Keeps `rows` of a slot, of a buffer that begins with row `base`.
    fn copy_from(&mut self, slot: Slot, rows: Rows, buf: &PageBuf, base: u32) -> Result {
        let own = self.base;
        let kept = self.columns.get_mut(slot.index()).ok_or(EIO)?;
        let kept = kept.as_mut().ok_or(EIO)?;
        let from = bytes(rows.lo.saturating_sub(base));
        let to = bytes(rows.lo.saturating_sub(own));
        kept.cmd
            .buf
            .copy_from_buf(to, buf, from, bytes(rows.len()))?;
        kept.rows = match !kept.rows.is_empty() && kept.rows.touches(rows) {
            true => kept.rows.hull(rows),
            false => rows,
        };
        Ok(())
    }
}

fn bytes(rows: u32) -> usize {
    rows as usize * 512
}

impl Retained {
    /// Makes the table of an array with `members` members. May sleep.
    pub(crate) fn new(members: usize) -> Result<impl PinInit<Self>> {
        let live = KVec::with_capacity(ENTRIES, GFP_KERNEL)?;
        let mut idle = KVec::with_capacity(ENTRIES, GFP_KERNEL)?;
        for _ in 0..ENTRIES {
            idle.push(Entry::new(members)?, GFP_KERNEL)?;
        }
        Ok(pin_init!(Self {
            inner <- new_spinlock_irq!((live, idle), "eraid::retained"),
            epoch: Atomic::new(0),
            ends: [const { Atomic::new(0) }; ENDS],
        }))
    }

    /// Notes a write, and tells whether it goes on where one of the last ones ended.
    ///
    /// A hint: two streams whose ends have the same hash disturb each other.
    pub(crate) fn is_sequential(&self, start: Sector, end: Sector) -> bool {
        let place = |at: Sector| self.ends.get(hash(at));
        let goes_on = place(start).is_some_and(|place| place.load(Relaxed) == start.get());
        if let Some(place) = place(end) {
            place.store(end.get(), Relaxed);
        }
        goes_on && start.get() > 0
    }
}

/// Fibonacci hashing.
fn hash(at: Sector) -> usize {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    (at.get().wrapping_mul(GOLDEN) >> 32) as usize % ENDS
}

impl Array {
    /// Takes what is known of the window of a stripe that begins with row `base`. The caller has
    /// the stripe for writing.
    pub(crate) fn take_retained(&self, stripe: StripeNo, base: u32) -> Option<Entry> {
        let mut inner = self.retained.inner.lock();
        let (live, _) = &mut *inner;
        let at = live
            .iter()
            .position(|entry| entry.stripe == stripe && entry.base == base)?;
        let entry = live.remove(at).ok()?;
        drop(inner);
        if entry.epoch == self.retained.epoch.load(Relaxed) {
            return Some(entry);
        }
        self.drop_entry(entry);
        None
    }

    /// An entry for the window of a stripe that begins with row `base`: an unused one, or the
    /// oldest.
    pub(crate) fn new_retained(&self, stripe: StripeNo, base: u32) -> Option<Entry> {
        let mut inner = self.retained.inner.lock();
        let (live, idle) = &mut *inner;
        let entry = idle.pop().or_else(|| live.remove(0).ok());
        drop(inner);
        let mut entry = entry?;
        self.empty_entry(&mut entry);
        entry.stripe = stripe;
        entry.base = base;
        entry.epoch = self.retained.epoch.load(Relaxed);
        Some(entry)
    }

    /// Keeps `rows` of a column, whose buffer begins with row `base`, if there is memory.
    pub(crate) fn retain(
        &self,
        entry: &mut Entry,
        columns: &Columns,
        slot: Slot,
        rows: Rows,
        base: u32,
    ) {
        let Some(cmd) = columns.get(slot).filter(|_| !rows.is_empty()) else {
            return;
        };
        if entry.kept(slot).is_none() {
            let spare = self.pool.take_spare(slot, self.window_pages());
            if let (Some(place), Some(cmd)) = (entry.columns.get_mut(slot.index()), spare) {
                let rows = Rows::NONE;
                *place = Some(Kept { cmd, rows });
            }
        }
        if entry.copy_from(slot, rows, &cmd.buf, base).is_err() {
            // Rather none than old blocks.
            self.forget_column(entry, slot);
        }
    }

    fn forget_column(&self, entry: &mut Entry, slot: Slot) {
        let kept = entry.columns.get_mut(slot.index()).and_then(Option::take);
        if let Some(kept) = kept {
            self.give(kept.cmd);
        }
    }

    /// Puts an entry back: all its blocks are what the members have.
    pub(crate) fn put_retained(&self, entry: Entry) {
        if self.pool.is_crowded() {
            self.drop_entry(entry);
            return;
        }
        let mut inner = self.retained.inner.lock();
        // There is a place for each.
        let _ = inner.0.push_within_capacity(entry);
    }

    /// Gives the memory of an entry back.
    pub(crate) fn drop_entry(&self, mut entry: Entry) {
        self.empty_entry(&mut entry);
        let mut inner = self.retained.inner.lock();
        // There is a place for each.
        let _ = inner.1.push_within_capacity(entry);
    }

    fn empty_entry(&self, entry: &mut Entry) {
        for kept in entry.columns.iter_mut().filter_map(Option::take) {
            self.give(kept.cmd);
        }
    }

    /// Forgets all of a stripe: its blocks are about to change by other ways than a write. The
    /// caller has the stripe for writing.
    pub(crate) fn forget_retained(&self, stripe: StripeNo) {
        loop {
            let mut inner = self.retained.inner.lock();
            let (live, _) = &mut *inner;
            let at = live.iter().position(|entry| entry.stripe == stripe);
            let entry = at.and_then(|at| live.remove(at).ok());
            drop(inner);
            let Some(entry) = entry else { return };
            self.drop_entry(entry);
        }
    }

    /// Gives all memory back. Any context.
    pub(crate) fn drop_retained(&self) {
        loop {
            let entry = self.retained.inner.lock().0.pop();
            let Some(entry) = entry else { return };
            self.drop_entry(entry);
        }
    }

    /// A member changed: what was read before may not be what is there.
    pub(crate) fn distrust_retained(&self) {
        self.retained.epoch.fetch_add(1, Relaxed);
        self.drop_retained();
    }

    /// Pages of a column in a window.
    fn window_pages(&self) -> usize {
        bytes(self.max_rows).div_ceil(kernel::page::PAGE_SIZE)
    }
}
