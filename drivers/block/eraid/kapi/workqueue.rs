// SPDX-License-Identifier: GPL-2.0

//! Own work queues, and arming and cancelling work items held by an [`Arc`].
//!
//! Work items are the kernel crate's [`Work`] and [`DelayedWork`]; this file adds what
//! `kernel::workqueue` lacks: creating and destroying a queue, re-arming, cancelling for good.
//!
//! A queued item owns one [`Arc`] of the object it is part of. Queueing a queued item changes
//! nothing, queueing a running one makes it run once more, and an item never runs twice at once.
//! The [`Arc`] given to `run` may be the last one, so the object is then dropped by the worker.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

use core::{
    ptr,
    ptr::NonNull, //
};

use kernel::{
    bindings,
    container_of,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    },
    time::msecs_to_jiffies,
    workqueue::{
        HasDelayedWork,
        HasWork,
        Queue,
        Work,
        WorkItem, //
    }, //
};

use super::{
    context::in_task,
    runtime::{
        Count,
        REGISTERED, //
    }, //
};

/// Where the items of a [`WorkQueue`] run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Concurrency {
    /// On the CPU that queued them (`WQ_PERCPU`): short work that wants warm caches.
    PerCpu,
    /// On any CPU (`WQ_UNBOUND`): work that sleeps or computes for long.
    Unbound,
}

impl Concurrency {
    fn flags(self) -> u32 {
        match self {
            Self::PerCpu => bindings::wq_flags_WQ_PERCPU,
            Self::Unbound => bindings::wq_flags_WQ_UNBOUND,
        }
    }
}

/// An own work queue with a rescuer (`WQ_MEM_RECLAIM`).
///
/// Wraps the kernel's C `struct workqueue_struct`. May be dropped in any context without a lock
/// held: where a queue cannot be destroyed, it is left to module exit. So queues had better live as
/// long as the module.
///
/// # Invariants
///
/// `inner` comes from `KBox::into_raw` and is owned by this value.
pub(crate) struct WorkQueue {
    inner: NonNull<Inner>,
    /// Given back when the queue has been destroyed, or is in [`ORPHANS`].
    _count: Count,
}

/// # Invariants
///
/// `wq` is a work queue made by `alloc_workqueue`, owned by this value.
struct Inner {
    wq: NonNull<bindings::workqueue_struct>,
    /// The next one in [`ORPHANS`].
    next: *mut Inner,
}

/// The queues that were dropped where they could not be destroyed; a linked list.
static ORPHANS: Atomic<*mut Inner> = Atomic::new(ptr::null_mut());

// SAFETY: A work queue may be used and destroyed by any thread.
unsafe impl Send for WorkQueue {}
// SAFETY: All C functions called through a shared reference may be called concurrently.
unsafe impl Sync for WorkQueue {}

impl WorkQueue {
    /// Creates a work queue whose rescuer thread is called `name`.
    ///
    /// At most `max_active` of its items run at once (per CPU for [`Concurrency::PerCpu`]); 0 is
    /// the kernel's default. Task context; `ENOMEM`.
    pub(crate) fn new(name: &CStr, concurrency: Concurrency, max_active: i32) -> Result<Self> {
        let count = REGISTERED.count()?;
        let flags = bindings::wq_flags_WQ_MEM_RECLAIM | concurrency.flags();
        // SAFETY: Format and argument are NUL-terminated strings and fit each other; the name is
        // copied.
        let wq = unsafe {
            bindings::alloc_workqueue_noprof(
                c"%s".as_char_ptr(),
                flags,
                max_active,
                name.as_char_ptr(),
            )
        };
        let wq = NonNull::new(wq).ok_or(ENOMEM)?;
        // INVARIANT: `alloc_workqueue` returned a queue that nobody else knows.
        let inner = KBox::new(
            Inner {
                wq,
                next: ptr::null_mut(),
            },
            GFP_KERNEL,
        )
        .inspect_err(|_| {
            // SAFETY: Nobody uses the queue.
            unsafe { bindings::destroy_workqueue(wq.as_ptr()) }
        })?;
        // INVARIANT: The box is turned into a pointer right here.
        Ok(Self {
            inner: NonNull::from(KBox::leak(inner)),
            _count: count,
        })
    }

    fn as_ptr(&self) -> *mut bindings::workqueue_struct {
        // SAFETY: By the type invariant `inner` is valid, and only a drop writes to it.
        unsafe { self.inner.as_ref() }.wq.as_ptr()
    }

    fn queue(&self) -> &Queue {
        // SAFETY: By the invariants the queue is valid for as long as `self` is.
        unsafe { Queue::from_raw(self.as_ptr()) }
    }

    /// Queues the work item `ID` of `item`; any context.
    ///
    /// Returns `false` if it was queued already, and so will still run after this call (unless it
    /// was disabled).
    #[inline]
    pub(crate) fn kick<T, const ID: u64>(&self, item: &Arc<T>) -> bool
    where
        T: WorkItem<ID, Pointer = Arc<T>> + HasWork<T, ID> + Send + Sync + 'static,
    {
        self.queue().enqueue(item.clone()).is_ok()
    }

    /// Makes the delayed item `ID` of `item` run in `delay_ms` milliseconds; any context.
    ///
    /// An earlier delay is replaced. Does nothing if the item was disabled.
    pub(crate) fn arm<T, const ID: u64>(&self, item: &Arc<T>, delay_ms: u32)
    where
        T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID> + Send + Sync + 'static,
    {
        // Not `mod_delayed_work`, whose result does not tell a disabled item from a queued one,
        // so that the owner of the reference would be unknown.
        // SAFETY: The pointer is to a valid `delayed_work`, kept alive by `item`.
        if unsafe { bindings::cancel_delayed_work(delayed_ptr::<T, ID>(item)) } {
            // SAFETY: The item was queued and now is not.
            unsafe { take_back(item) };
        }
        self.arm_if_idle::<T, ID>(item, delay_ms);
    }

    /// Like [`Self::arm`], but keeps an earlier delay; returns `false` if there was one (or the
    /// item was disabled).
    pub(crate) fn arm_if_idle<T, const ID: u64>(&self, item: &Arc<T>, delay_ms: u32) -> bool
    where
        T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID> + Send + Sync + 'static,
    {
        self.queue()
            .enqueue_delayed(item.clone(), msecs_to_jiffies(delay_ms))
            .is_ok()
    }
}

impl Drop for WorkQueue {
    /// Runs what is queued, then destroys the queue.
    ///
    /// That waits, and a work item that did it to its own queue would wait for itself. So in
    /// workers and outside of task context the queue is left to [`destroy_orphans`].
    fn drop(&mut self) {
        // SAFETY: Only reads `current`.
        let in_worker = !unsafe { bindings::current_work() }.is_null();
        if !in_worker && in_task() {
            // SAFETY: By the type invariant `inner` is ours, and it is not used any more.
            unsafe { Inner::destroy(self.inner) };
            return;
        }
        let mut head = ORPHANS.load(Relaxed);
        loop {
            // SAFETY: By the type invariant `inner` is ours, and not in the list yet.
            unsafe { (*self.inner.as_ptr()).next = head };
            match ORPHANS.cmpxchg(head, self.inner.as_ptr(), Full) {
                Ok(_) => return,
                Err(current) => head = current,
            }
        }
    }
}

impl Inner {
    /// Runs what is queued, then destroys the queue. Task context, not in a worker.
    ///
    /// # Safety
    ///
    /// `this` must come from `KBox::into_raw`, be owned by the caller, and not be used afterwards.
    unsafe fn destroy(this: NonNull<Self>) {
        // SAFETY: By the function's requirements.
        let this = unsafe { KBox::from_raw(this.as_ptr()) };
        // SAFETY: By the type invariant the queue is valid and ours.
        unsafe { bindings::destroy_workqueue(this.wq.as_ptr()) };
    }
}

/// Destroys the queues that were dropped where it was not possible. Task context, not in a worker.
pub(super) fn destroy_orphans() {
    let mut next = ORPHANS.xchg(ptr::null_mut(), Full);
    while let Some(inner) = NonNull::new(next) {
        // SAFETY: What is in the list is valid, and the exchange made it ours.
        next = unsafe { inner.as_ref() }.next;
        // SAFETY: As above; it was put there by a `WorkQueue`, whose `inner` comes from
        // `KBox::into_raw`.
        unsafe { Inner::destroy(inner) };
    }
}

/// Cancels the delayed work item `ID` of `item`, for good: later attempts to arm it do nothing.
///
/// Waits for a running `run` to end. Task context, never from its own `run`, nor with a lock held
/// that `run` takes.
pub(crate) fn disable_delayed_sync<T, const ID: u64>(item: &Arc<T>)
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID>,
{
    // SAFETY: The pointer is to a valid `delayed_work`, kept alive by `item`.
    if unsafe { bindings::disable_delayed_work_sync(delayed_ptr::<T, ID>(item)) } {
        // SAFETY: The item was queued and now is not.
        unsafe { take_back(item) };
    }
}

/// The `work_struct` of the work item `ID`; valid while `item` is.
fn work_ptr<T, const ID: u64>(item: &Arc<T>) -> *mut bindings::work_struct
where
    T: HasWork<T, ID>,
{
    // SAFETY: An `Arc` points at a valid object.
    let work = unsafe { T::raw_get_work(Arc::as_ptr(item).cast_mut()) };
    // SAFETY: `raw_get_work` returns a pointer to a field of that object.
    unsafe { Work::raw_get(work) }
}

/// The `delayed_work` of the delayed work item `ID`; valid while `item` is.
fn delayed_ptr<T, const ID: u64>(item: &Arc<T>) -> *mut bindings::delayed_work
where
    T: HasDelayedWork<T, ID>,
{
    let work = work_ptr::<T, ID>(item);
    // SAFETY: `HasDelayedWork` promises that the `work_struct` is part of a `delayed_work`.
    unsafe { container_of!(work, bindings::delayed_work, work) }
}

/// Drops the reference that a queued work item of `item` owned.
///
/// # Safety
///
/// The caller took a queued item of this very object out of its queue, which owned an [`Arc`]
/// (`WorkItem::Pointer` is `Arc<T>`), and calls this once for it.
unsafe fn take_back<T>(item: &Arc<T>) {
    // SAFETY: Queueing called `Arc::into_raw` on a reference to the same object, and by the
    // function's requirements nothing else will turn that one back.
    drop(unsafe { Arc::from_raw(Arc::as_ptr(item)) });
}
