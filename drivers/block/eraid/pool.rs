// SPDX-License-Identifier: GPL-2.0

//! The commands and pages of one array, and their reservation in one step.
//!
//! Everything an operation needs is taken at once or not at all, so that no operation waits for
//! memory while it holds some: reserving piecemeal is what deadlocks under memory reclaim. Who
//! does not get it waits in arrival order and is woken by what is given back.
//!
//! Lock order: `inner`, then the page pool's own lock.

use kernel::{new_spinlock_irq, prelude::*, sync::SpinLockIrq};

use crate::{
    kapi::{command::Command, page::PagePool},
    op::Columns,
    ring::Ring,
    sub::{Cmd, Sub},
};
use eraid_core::units::SlotSet;

/// Pages a single command can carry: 256 KiB.
pub(crate) const COMMAND_PAGES: usize = 64;

/// What an operation needs.
#[derive(Clone, Copy)]
pub(crate) struct Need {
    /// One command for each of these slots.
    pub(crate) slots: SlotSet,
    /// Pages for each command, at most [`COMMAND_PAGES`].
    pub(crate) pages: usize,
}

struct Waiter {
    op: u32,
    commands: usize,
    pages: usize,
}

struct Inner {
    commands: KVec<Cmd>,
    waiting: Ring<Waiter>,
}

/// See the [module description](self).
#[pin_data]
pub(crate) struct Pool {
    /// Commands there are in all.
    pub(crate) commands: usize,
    /// Pages there are in all.
    pub(crate) pages: usize,
    #[pin]
    free_pages: PagePool,
    #[pin]
    inner: SpinLockIrq<Inner>,
}

/// Answer to a reservation.
pub(crate) enum Reserved {
    /// The columns hold what was asked for. The operation named, if any, may try next.
    Yes(Option<u32>),
    /// The operation waits and will be woken.
    No,
}

impl Pool {
    /// Allocates a pool of `count` commands and `size` pages for an array with `ops` operations.
    /// May sleep.
    pub(crate) fn new(count: usize, size: usize, ops: usize) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            commands: count,
            pages: size,
            free_pages <- PagePool::new(size),
            inner <- new_spinlock_irq!(Inner {
                commands: Self::make_commands(count)?,
                waiting: Ring::new(ops)?,
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

    /// Takes what operation `op` needs into `columns`, which hold nothing for these slots.
    pub(crate) fn reserve(&self, op: u32, need: Need, columns: &mut Columns) -> Reserved {
        let count = need.slots.iter().count();
        let pages = count * need.pages;
        let mut inner = self.inner.lock();
        let first = inner.waiting.front().map(|waiter| waiter.op);
        let my_turn = first.is_none() || first == Some(op);
        if !my_turn || !self.has(&inner, count, pages) {
            inner.wait(Waiter {
                op,
                commands: count,
                pages,
            });
            return Reserved::No;
        }
        for slot in need.slots.iter() {
            let Some(mut cmd) = inner.commands.pop() else {
                break;
            };
            // They are there: only this takes any, and under the lock.
            let _ = self.free_pages.take(need.pages, &mut cmd.buf);
            cmd.ctx.slot = slot;
            columns.put(slot, cmd);
        }
        if first == Some(op) {
            inner.waiting.pop_front();
        }
        Reserved::Yes(self.next(&inner))
    }

    /// Takes a command back, with its pages. Any context. Returns an operation to wake.
    pub(crate) fn give(&self, mut cmd: Cmd) -> Option<u32> {
        self.free_pages.give(&mut cmd.buf);
        let mut inner = self.inner.lock();
        // The vector was made to hold all commands.
        let _ = inner.commands.push_within_capacity(cmd);
        self.next(&inner)
    }

    /// Operation `op` does not wait any more. Returns an operation to wake.
    pub(crate) fn forget(&self, op: u32) -> Option<u32> {
        let mut inner = self.inner.lock();
        inner.waiting.remove_first(|waiter| waiter.op == op);
        self.next(&inner)
    }

    /// Commands and pages that are free.
    pub(crate) fn available(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        (inner.commands.len(), self.free_pages.available())
    }

    fn has(&self, inner: &Inner, commands: usize, pages: usize) -> bool {
        inner.commands.len() >= commands && self.free_pages.available() >= pages
    }

    /// The first waiter, if it can be served now.
    fn next(&self, inner: &Inner) -> Option<u32> {
        let first = inner.waiting.front()?;
        self.has(inner, first.commands, first.pages)
            .then_some(first.op)
    }
}

impl Inner {
    /// Queues a waiter unless it waits already; its need may have changed.
    fn wait(&mut self, waiter: Waiter) {
        if self.waiting.iter().any(|w| w.op == waiter.op) {
            return;
        }
        // There is a place for every operation of the array.
        let _ = self.waiting.push_back(waiter);
    }
}
