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
    pin::Pin,
    ptr::NonNull, //
};

use kernel::{
    bindings,
    container_of,
    new_work,
    prelude::*,
    sync::Arc,
    time::msecs_to_jiffies,
    workqueue::{
        impl_has_work,
        HasDelayedWork,
        HasWork,
        Queue,
        Work,
        WorkItem, //
    }, //
};

use super::runtime::{
    close_queue,
    Count,
    REGISTERED, //
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
/// Wraps the kernel's C `struct workqueue_struct`. May be dropped in any context: the queue runs
/// what is queued and is destroyed a little later, by another worker; module exit waits for that.
///
/// # Invariants
///
/// `inner` is `Some` until the object is dropped, and `wq` is its queue.
pub(crate) struct WorkQueue {
    inner: Option<Pin<KBox<Inner>>>,
    wq: NonNull<bindings::workqueue_struct>,
}

/// The part that outlives a [`WorkQueue`] until the queue is destroyed.
///
/// # Invariants
///
/// `wq` is a work queue made by `alloc_workqueue`, owned by this value.
#[pin_data(PinnedDrop)]
struct Inner {
    wq: NonNull<bindings::workqueue_struct>,
    #[pin]
    destroy: Work<Inner>,
    _count: Count,
}

impl_has_work! {
    impl HasWork<Inner> for Inner { self.destroy }
}

impl WorkItem for Inner {
    type Pointer = Pin<KBox<Self>>;

    /// Destroys the queue.
    fn run(this: Pin<KBox<Self>>) {
        drop(this);
    }
}

#[pinned_drop]
impl PinnedDrop for Inner {
    fn drop(self: Pin<&mut Self>) {
        // Runs what is queued first, so this is not for the queue's own workers: see
        // `WorkQueue::drop()`.
        // SAFETY: By the type invariant the queue is valid and ours, and it is not used any more.
        unsafe { bindings::destroy_workqueue(self.wq.as_ptr()) };
    }
}

// SAFETY: A work queue may be used and destroyed by any thread.
unsafe impl Send for Inner {}

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
        let inner = KBox::pin_init(
            pin_init!(Inner {
                wq,
                destroy <- new_work!("eraid_destroy_queue"),
                _count: count,
            }),
            GFP_KERNEL,
        )
        .inspect_err(|_| {
            // SAFETY: Nobody uses the queue.
            unsafe { bindings::destroy_workqueue(wq.as_ptr()) }
        })?;
        // INVARIANT: As made above.
        Ok(Self {
            inner: Some(inner),
            wq,
        })
    }

    fn as_ptr(&self) -> *mut bindings::workqueue_struct {
        self.wq.as_ptr()
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
    fn drop(&mut self) {
        // The last reference may go in an interrupt, with locks held, or in one of the queue's own
        // workers, for which destroying it waits.
        let (Some(inner), Some(queue)) = (self.inner.take(), close_queue()) else {
            // Cannot happen by the type invariant: a queue that counts keeps the other one alive.
            return;
        };
        queue.enqueue(inner);
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
