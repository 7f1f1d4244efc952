// SPDX-License-Identifier: GPL-2.0

//! Waiting for an event, with a timeout and more than once.
//!
//! The kernel crate's `Completion` has neither timeouts nor `complete` nor re-initialisation.
//!
//! C header: [`include/linux/completion.h`](srctree/include/linux/completion.h)

use kernel::{
    bindings,
    error::code::EINTR,
    prelude::*,
    time::msecs_to_jiffies,
    types::Opaque, //
};

/// An event that tasks wait for.
///
/// Wraps the kernel's C `struct completion`.
#[pin_data]
pub(crate) struct Completion {
    #[pin]
    inner: Opaque<bindings::completion>,
}

// SAFETY: A `struct completion` may be used from any thread.
unsafe impl Send for Completion {}
// SAFETY: A `struct completion` is made for concurrent use.
unsafe impl Sync for Completion {}

impl Completion {
    /// An initialiser for an event that has not happened yet.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            inner <- Opaque::ffi_init(|slot: *mut bindings::completion| {
                // SAFETY: `slot` is valid for writes.
                unsafe { bindings::init_completion(slot) }
            }),
        })
    }

    /// The event happened: lets one waiter, or the next one to come, continue. Any context.
    pub(crate) fn complete(&self) {
        // SAFETY: `inner` is initialised and pinned.
        unsafe { bindings::complete(self.inner.get()) };
    }

    /// The event happened for good: lets all waiters, present and future, continue, until
    /// [`Self::reinit`]. Any context.
    pub(crate) fn complete_all(&self) {
        // SAFETY: `inner` is initialised and pinned.
        unsafe { bindings::complete_all(self.inner.get()) };
    }

    /// Waits for the event until the task is killed. Task context.
    ///
    /// # Errors
    ///
    /// [`EINTR`] if the task was killed first.
    pub(crate) fn wait_killable(&self) -> Result {
        // SAFETY: `inner` is initialised and pinned.
        match unsafe { bindings::wait_for_completion_killable(self.inner.get()) } {
            0 => Ok(()),
            _ => Err(EINTR),
        }
    }

    /// Waits at most `timeout_ms` milliseconds; returns whether the event happened. Task context.
    #[must_use]
    pub(crate) fn wait_timeout(&self, timeout_ms: u32) -> bool {
        let jiffies = msecs_to_jiffies(timeout_ms);
        // SAFETY: `inner` is initialised and pinned.
        unsafe { bindings::wait_for_completion_timeout(self.inner.get(), jiffies) != 0 }
    }

    /// Forgets that the event happened. Any context.
    ///
    /// Meant for when nobody waits or completes; an event at the same time is kept or lost.
    pub(crate) fn reinit(&self) {
        let inner = self.inner.get();
        // SAFETY: `inner` is initialised and pinned, so the field is valid for writes. As C's
        // `reinit_completion` does, this writes a machine word without the lock; volatile stands
        // for `WRITE_ONCE` in the kernel's memory model.
        unsafe { (&raw mut (*inner).done).write_volatile(0) };
    }
}
