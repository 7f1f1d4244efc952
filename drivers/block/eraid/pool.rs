// SPDX-License-Identifier: GPL-2.0

//! The commands and pages of one array, and their reservation in one step.
//!
//! Everything an operation needs is taken at once or not at all, so that no operation waits for
//! memory while it holds some: reserving piecemeal is what deadlocks under memory reclaim. Who
//! does not get it waits in line ([`eraid_core::line`]), where members that hang hold up only who
//! wants them.
//!
//! Lock order: `inner`, then the array's `table`, the page pool's own lock, an operation's.

use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        SpinLockIrq,
    },
};

use crate::{
    kapi::{command::Command, page::PagePool},
    op::Columns,
    storage::Storage,
    sub::{Cmd, Sub},
};
use eraid_core::{
    line::{Amount, Line, Waiter},
    units::{Slot, SlotSet},
};

/// Pages a single command can carry: 512 KiB, so that a chunk of that size needs but one.
pub(crate) const COMMAND_PAGES: usize = 128;

/// One part in so many of a pool is kept for operations that have begun and need more, because
/// somebody failed or is late: they end, and give back what they have, the sooner for it.
const KEPT_PART: usize = 8;

/// What an operation needs.
#[derive(Clone, Copy)]
pub(crate) struct Need {
    /// One command for each of these slots.
    pub(crate) slots: SlotSet,
    /// Pages for each command, at most [`COMMAND_PAGES`].
    pub(crate) pages: usize,
}

impl Need {
    /// For one member.
    pub(crate) fn of_member(self) -> Amount {
        Amount {
            commands: 1,
            pages: self.pages,
        }
    }

    /// For all members.
    pub(crate) fn total(self) -> Amount {
        let commands = self.slots.len() as usize;
        Amount {
            commands,
            pages: commands * self.pages,
        }
    }
}

struct Inner {
    commands: KVec<Cmd>,
    line: Line<Storage<Waiter>>,
}

/// See the [module description](self).
#[pin_data]
pub(crate) struct Pool {
    /// Commands there are in all.
    pub(crate) commands: usize,
    /// Pages there are in all.
    pub(crate) pages: usize,
    /// Somebody waits.
    crowded: Atomic<bool>,
    #[pin]
    free_pages: PagePool,
    #[pin]
    inner: SpinLockIrq<Inner>,
}

impl Pool {
    /// Allocates a pool of `count` commands and `size` pages for an array with `ops` operations.
    /// May sleep.
    pub(crate) fn new(count: usize, size: usize, ops: usize) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            commands: count,
            pages: size,
            crowded: Atomic::new(false),
            free_pages <- PagePool::new(size),
            inner <- new_spinlock_irq!(Inner {
                commands: Self::make_commands(count)?,
                line: Line::new(Storage::new(Waiter::NONE, ops)?),
            }, "eraid::pool"),
        }? Error)
    }

    fn make_commands(count: usize) -> Result<KVec<Cmd>> {
        let mut all = KVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            all.push(Command::new(COMMAND_PAGES, Sub::idle())?, GFP_KERNEL)?;
        }
        Ok(all)
    }

    /// Takes what operation `op` needs into `columns`, which hold nothing for these slots; `false`
    /// when it waits.
    ///
    /// `over` says which of its members would have too much ([`Amount::exceeds_share`]) when so
    /// much is free; it may take the `table` lock. `wake` is told who is to try again.
    pub(crate) fn reserve(
        &self,
        op: u32,
        need: Need,
        over: impl FnOnce(Amount) -> SlotSet,
        columns: &mut Columns,
        wake: &mut dyn FnMut(u32),
    ) -> bool {
        let mut inner = self.inner.lock();
        let free = self.free_to_begin(&inner);
        let over = match self.is_roomy(need, free) {
            true => SlotSet::EMPTY,
            false => over(free),
        };
        if let Err(released) = inner.line.ask(op, need.slots, need.total(), free, over) {
            self.crowded.store(true, Relaxed);
            inner.line.next(free, released, wake);
            return false;
        }
        for slot in need.slots.iter() {
            let Some(mut cmd) = inner.commands.pop() else {
                break;
            };
            // They are there: they are taken under the lock only.
            let _ = self.free_pages.take(need.pages, &mut cmd.buf);
            cmd.ctx.slot = slot;
            columns.put(slot, cmd);
        }
        self.next(&inner, need.slots, wake);
        true
    }

    /// Takes a command for `slot` with so many pages, if nobody waits and half of everything stays
    /// free: for what is good to have.
    pub(crate) fn take_spare(&self, slot: Slot, pages: usize) -> Option<Cmd> {
        let mut inner = self.inner.lock();
        let free = self.free(&inner);
        let plenty = free.commands > self.commands / 2 && free.pages >= self.pages / 2 + pages;
        if !plenty || inner.line.get(0).is_some() {
            return None;
        }
        self.take(&mut inner, slot, pages)
    }

    /// Takes a command for `slot` with so many pages if there is any: for an operation that has
    /// begun and would rather go on than begin anew. What is [kept](KEPT_PART) is for that.
    pub(crate) fn take_more(&self, slot: Slot, pages: usize) -> Option<Cmd> {
        self.take(&mut self.inner.lock(), slot, pages)
    }

    fn take(&self, inner: &mut Inner, slot: Slot, pages: usize) -> Option<Cmd> {
        let mut cmd = inner.commands.pop()?;
        cmd.ctx.slot = slot;
        if self.free_pages.take(pages, &mut cmd.buf) {
            return Some(cmd);
        }
        let _ = inner.commands.push_within_capacity(cmd);
        None
    }

    /// Takes a command back, with its pages. Any context. `wake` is told who is to try again.
    pub(crate) fn give(&self, cmd: Cmd, wake: &mut dyn FnMut(u32)) {
        self.give_all(core::iter::once(cmd), wake);
    }

    /// Takes commands back, with their pages. Any context. `wake` is told who is to try again.
    pub(crate) fn give_all(&self, cmds: impl Iterator<Item = Cmd>, wake: &mut dyn FnMut(u32)) {
        let mut slots = SlotSet::EMPTY;
        let mut inner = self.inner.lock();
        for mut cmd in cmds {
            slots.insert(cmd.ctx.slot);
            self.free_pages.give(&mut cmd.buf);
            // The vector was made to hold all commands.
            let _ = inner.commands.push_within_capacity(cmd);
        }
        if !slots.is_empty() {
            self.next(&inner, slots, wake);
        }
    }

    /// The member of `slot` has less in hand. Any context. `wake` is told who is to try again.
    ///
    /// Who joins the line at this very moment may be missed; see [`Self::waiter`].
    pub(crate) fn eased(&self, slot: Slot, wake: &mut dyn FnMut(u32)) {
        if self.crowded.load(Relaxed) {
            self.next(&self.inner.lock(), SlotSet::single(slot), wake);
        }
    }

    /// Operation `op` does not wait any more. `wake` is told who is to try again.
    pub(crate) fn forget(&self, op: u32, wake: &mut dyn FnMut(u32)) {
        let mut inner = self.inner.lock();
        let slots = inner.line.leave(op);
        self.next(&inner, slots, wake);
    }

    /// The operation in place `index` of the line.
    pub(crate) fn waiter(&self, index: usize) -> Option<u32> {
        self.inner.lock().line.get(index)
    }

    /// Whether somebody waits.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded.load(Relaxed)
    }

    /// Commands and pages that are free.
    pub(crate) fn available(&self) -> Amount {
        self.free(&self.inner.lock())
    }

    fn free(&self, inner: &Inner) -> Amount {
        Amount {
            commands: inner.commands.len(),
            pages: self.free_pages.available(),
        }
    }

    /// Commands and pages that are free for operations that begin.
    fn free_to_begin(&self, inner: &Inner) -> Amount {
        let free = self.free(inner);
        Amount {
            commands: free.commands.saturating_sub(self.commands / KEPT_PART),
            pages: free.pages.saturating_sub(self.pages / KEPT_PART),
        }
    }

    /// Whether so much is free that no member can have its share, even if one has all that is not.
    fn is_roomy(&self, need: Need, free: Amount) -> bool {
        let (more, total) = (need.of_member(), need.total());
        let used = |all: usize, free| all.saturating_sub(free);
        used(self.commands, free.commands) + more.commands + total.commands <= free.commands
            && used(self.pages, free.pages) + more.pages + total.pages <= free.pages
    }

    fn next(&self, inner: &Inner, changed: SlotSet, wake: &mut dyn FnMut(u32)) {
        if inner.line.get(0).is_none() {
            self.crowded.store(false, Relaxed);
            return;
        }
        inner.line.next(self.free_to_begin(inner), changed, wake);
    }
}
