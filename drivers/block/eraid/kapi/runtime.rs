// SPDX-License-Identifier: GPL-2.0

//! What has to be gone before the module's code may be: open devices and disks.
//!
//! Closing a device sleeps, but the last reference to it may go in an interrupt, so it is done by
//! a work item. The block layer may keep a deleted disk until its last user is gone. In both cases
//! code of this module runs some time after the driver let go of the object; [`Runtime`] makes
//! module exit wait for it.

use kernel::{
    bindings,
    error::code::*,
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Full,
        Relaxed,
        Release, //
    },
    workqueue::Queue, //
};

use super::sys;

/// Disks from their creation to the end of their `free_disk` callback.
pub(super) static DISKS: Counter = Counter::new();

/// Devices from being opened to being closed completely.
pub(super) static DEVICES: Counter = Counter::new();

/// Devices whose last reference is gone and that are being closed.
pub(super) static CLOSING: Counter = Counter::new();

/// Work queues until they are destroyed, and directories and files in sysfs: all of these call code
/// of this module.
pub(super) static REGISTERED: Counter = Counter::new();

/// Whether objects may be made, that is, whether there is a [`Runtime`] that is not being dropped.
static ACTIVE: Atomic<bool> = Atomic::new(false);

/// The queue that closes devices and destroys work queues; null while there is no [`Runtime`].
static CLOSE_QUEUE: Atomic<*mut bindings::workqueue_struct> = Atomic::new(core::ptr::null_mut());

/// The queue that closes devices and destroys work queues.
///
/// The reference is valid as long as the caller holds a count of [`DEVICES`] or [`REGISTERED`].
pub(super) fn close_queue() -> Option<&'static Queue> {
    let queue = CLOSE_QUEUE.load(Relaxed);

    if queue.is_null() {
        return None;
    }
    // SAFETY: A queue that is not null was allocated by `Runtime::init()`. It is destroyed only
    // when both are zero, and by the requirement above it is not until the caller is done.
    Some(unsafe { Queue::from_raw(queue) })
}

/// A number of objects, and a way to wait until it is zero.
pub(super) struct Counter(Atomic<i32>);

impl Counter {
    const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Adds one. Any context.
    pub(super) fn inc(&self) {
        self.0.fetch_add(1, Full);
    }

    /// Takes away one that was added by [`Self::inc`]. Any context.
    pub(super) fn dec(&self) {
        if self.0.fetch_sub(1, Full) == 1 {
            // SAFETY: The address is only used as a key to find waiters.
            unsafe { bindings::wake_up_var(self.0.as_ptr().cast()) };
        }
    }

    /// Adds one until the returned object is dropped. Any context.
    ///
    /// # Errors
    ///
    /// [`ENXIO`] if there is no [`Runtime`].
    pub(super) fn count(&'static self) -> Result<Count> {
        self.inc();
        // INVARIANT: One was added above.
        let count = Count(self);

        // The addition above and this test are ordered, and so are their counterparts in the
        // runtime's drop: either that sees our count, or we see that it has begun.
        if ACTIVE.load(Acquire) {
            Ok(count)
        } else {
            Err(ENXIO)
        }
    }

    /// Waits until the number is zero, for at most `timeout_ms` milliseconds; returns whether it
    /// is. Task context.
    pub(super) fn wait_zero_timeout(&self, timeout_ms: u32) -> bool {
        // SAFETY: The pointer is to an atomic in a static.
        unsafe { sys::eraid_wait_zero(self.0.as_ptr(), timeout_ms) }
    }

    /// Waits until the number is zero. Task context.
    fn wait_zero(&self) {
        // SAFETY: The pointer is to an atomic in a static.
        unsafe { sys::eraid_wait_zero_forever(self.0.as_ptr()) };
    }
}

/// One object of a [`Counter`]. May be dropped in any context.
///
/// # Invariants
///
/// The counter contains one for this object.
pub(super) struct Count(&'static Counter);

impl Drop for Count {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The part of kapi that lives as long as the module.
///
/// To be made first in module initialisation and dropped last: devices can be opened only while it
/// exists, and dropping it waits until all devices are closed and all disks are freed.
///
/// # Invariants
///
/// There is at most one, and `CLOSE_QUEUE` is the queue that it allocated.
pub(crate) struct Runtime(());

impl Runtime {
    /// Makes the runtime. Task context.
    ///
    /// # Errors
    ///
    /// [`ENOMEM`]; [`EBUSY`] if there is one already.
    pub(crate) fn init() -> Result<Self> {
        // Not for reclaim: closing a device may wait for queues that are not either. Neither
        // the number of devices nor their speed is known, so as many may close at once as the
        // default allows.
        // SAFETY: The format string takes no arguments.
        let queue = unsafe {
            bindings::alloc_workqueue_noprof(
                c"eraid_close".as_char_ptr(),
                bindings::wq_flags_WQ_UNBOUND,
                0,
            )
        };
        if queue.is_null() {
            return Err(ENOMEM);
        }
        // INVARIANT: The exchange succeeds only if there is no other queue and thus no `Runtime`.
        if CLOSE_QUEUE
            .cmpxchg(core::ptr::null_mut(), queue, Full)
            .is_err()
        {
            // SAFETY: The queue was just allocated, and nothing uses it.
            unsafe { bindings::destroy_workqueue(queue) };
            return Err(EBUSY);
        }
        ACTIVE.xchg(true, Full);
        Ok(Self(()))
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        ACTIVE.xchg(false, Full);
        // Dropped by now, unless the driver leaked one: then this waits for ever, which is better
        // than calls of code that is gone.
        REGISTERED.wait_zero();
        DISKS.wait_zero();
        DEVICES.wait_zero();

        let queue = CLOSE_QUEUE.load(Relaxed);
        CLOSE_QUEUE.store(core::ptr::null_mut(), Release);
        // SAFETY: By the type invariant the queue was allocated by `Self::init()`. No device is
        // open, so nothing is queued any more; this waits for the last item to return.
        unsafe { bindings::destroy_workqueue(queue) };
    }
}
