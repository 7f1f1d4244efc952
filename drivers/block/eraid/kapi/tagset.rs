// SPDX-License-Identifier: GPL-2.0

//! The driver's side of blk-mq: its callbacks, and the tag set with its requests.
//!
//! C header: [`include/linux/blk-mq.h`](srctree/include/linux/blk-mq.h)

use core::{
    marker::PhantomData,
    pin::Pin,
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::{
    bindings,
    error::{
        code::*,
        to_result, //
    },
    ffi::{
        c_int,
        c_uint, //
    },
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
    types::Opaque, //
};

use super::{
    disk::Shared,
    guards::without_plug,
    request::{
        Pdu,
        Request, //
    }, //
};

/// A driver of block devices.
pub(crate) trait Driver: Sized + 'static {
    /// What the driver knows about a disk.
    type Data: Send + Sync + 'static;

    /// Takes a request.
    ///
    /// `last` is false if more requests follow at once, after which [`Self::commit_rqs`] is called
    /// or `last` is true.
    ///
    /// Called from task context. The task may be in the middle of a submission, in which case
    /// commands that are submitted here are sent only after this returns: never wait for them
    /// here.
    fn queue_rq(data: ArcBorrow<'_, Self::Data>, rq: Request, last: bool);

    /// No more requests follow at once, although the last one had `last` unset.
    fn commit_rqs(_data: ArcBorrow<'_, Self::Data>) {}
}

/// A set of requests, and the callbacks of their driver.
///
/// # Invariants
///
/// `set` is allocated, with a [`Pdu`] behind each request.
#[pin_data(PinnedDrop)]
pub(crate) struct TagSet<D: Driver> {
    #[pin]
    set: Opaque<bindings::blk_mq_tag_set>,
    _driver: PhantomData<D>,
}

// SAFETY: Tag sets may be used and freed by any thread.
unsafe impl<D: Driver> Send for TagSet<D> {}

// SAFETY: The block layer does its own locking.
unsafe impl<D: Driver> Sync for TagSet<D> {}

impl<D: Driver> TagSet<D> {
    /// Makes `depth` requests for each of `hw_queues` queues. Task context.
    ///
    /// # Errors
    ///
    /// [`ENOMEM`]; [`EINVAL`] if one of the numbers is 0.
    pub(crate) fn new(depth: u32, hw_queues: u32) -> Result<Arc<Self>> {
        if hw_queues == 0 {
            return Err(EINVAL);
        }
        let set = bindings::blk_mq_tag_set {
            ops: &raw const Callbacks::<D>::OPS.0,
            nr_hw_queues: hw_queues,
            nr_maps: 1,
            queue_depth: depth,
            numa_node: bindings::NUMA_NO_NODE,
            // CAST: A few words.
            cmd_size: core::mem::size_of::<Pdu>() as u32,
            // BLOCKING, since submitting to members may sleep. Without NO_SCHED_BY_DEFAULT, the
            // scheduler would take each request through a work item.
            flags: bindings::BLK_MQ_F_BLOCKING
                | bindings::BLK_MQ_F_STACKING
                | bindings::BLK_MQ_F_NO_SCHED_BY_DEFAULT,
            ..pin_init::zeroed()
        };
        let init = try_pin_init!(Self {
            set <- Opaque::try_ffi_init(|slot: *mut bindings::blk_mq_tag_set| {
                // SAFETY: `slot` is valid for writes.
                unsafe { slot.write(set) };
                // SAFETY: `slot` describes the tag set to allocate, and stays in place.
                to_result(unsafe { bindings::blk_mq_alloc_tag_set(slot) })
            }),
            _driver: PhantomData,
        });
        Arc::pin_init(init, GFP_KERNEL)
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::blk_mq_tag_set {
        self.set.get()
    }
}

#[pinned_drop]
impl<D: Driver> PinnedDrop for TagSet<D> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: The set was allocated by the type invariant. Disks that use it have a reference
        // to this object.
        unsafe { bindings::blk_mq_free_tag_set(self.set.get()) };
    }
}

/// A table for the block layer.
#[repr(transparent)]
struct Ops(bindings::blk_mq_ops);

// SAFETY: The table is never written to.
unsafe impl Sync for Ops {}

/// The callbacks of a driver in the form of the block layer.
struct Callbacks<D>(PhantomData<D>);

impl<D: Driver> Callbacks<D> {
    const OPS: &'static Ops = &Ops(bindings::blk_mq_ops {
        queue_rq: Some(Self::queue_rq),
        commit_rqs: Some(Self::commit_rqs),
        timeout: Some(Self::timeout),
        init_request: Some(Self::init_request),
        exit_request: Some(Self::exit_request),
        ..pin_init::zeroed()
    });

    /// The data of the disk that a queue belongs to.
    ///
    /// # Safety
    ///
    /// `hctx` is part of a queue of a [`Disk`](super::disk::Disk) of this driver. The result may
    /// be used as long as the queue is dispatched: whoever submits has the disk open, and deleting
    /// a disk waits for workers that dispatch, so the disk is not freed meanwhile.
    unsafe fn data<'a>(hctx: *mut bindings::blk_mq_hw_ctx) -> ArcBorrow<'a, D::Data> {
        // SAFETY: `Disk::add()` makes queues with a pointer to `Shared`, which exists until the
        // disk is freed; that does not happen meanwhile, by the requirements.
        let shared = unsafe { &*(*(*hctx).queue).queuedata.cast::<Shared<D>>() };
        shared.data()
    }

    /// # Safety
    ///
    /// To be called by the block layer only, for queues of disks of this driver.
    unsafe extern "C" fn queue_rq(
        hctx: *mut bindings::blk_mq_hw_ctx,
        bd: *const bindings::blk_mq_queue_data,
    ) -> bindings::blk_status_t {
        // SAFETY: The block layer passes valid pointers.
        let (rq, last) = unsafe { ((*bd).rq, (*bd).last) };
        let Some(rq) = NonNull::new(rq) else {
            return bindings::BLK_STS_OK as bindings::blk_status_t;
        };
        // SAFETY: The queue is being dispatched until we return.
        let data = unsafe { Self::data(hctx) };
        // SAFETY: The block layer hands the request to us.
        let rq = unsafe { Request::start(rq) };

        // Commands that go into a plug of the submitter are issued when that is finished, from
        // whatever context this is, instead of now from their own queue's.
        without_plug(|| D::queue_rq(data, rq, last));
        bindings::BLK_STS_OK as bindings::blk_status_t
    }

    /// # Safety
    ///
    /// To be called by the block layer only, for queues of disks of this driver.
    unsafe extern "C" fn commit_rqs(hctx: *mut bindings::blk_mq_hw_ctx) {
        // SAFETY: The queue is being dispatched until we return.
        let data = unsafe { Self::data(hctx) };

        without_plug(|| D::commit_rqs(data));
    }

    /// A request takes long. Members have timeouts of their own, and the request cannot be taken
    /// away from them, so the answer is to wait on.
    ///
    /// # Safety
    ///
    /// None.
    unsafe extern "C" fn timeout(_rq: *mut bindings::request) -> bindings::blk_eh_timer_return {
        bindings::blk_eh_timer_return_BLK_EH_RESET_TIMER
    }

    /// A request was allocated, also long after the tag set: a new scheduler makes its own.
    ///
    /// # Safety
    ///
    /// To be called by the block layer only: there is room for a [`Pdu`] behind `rq`.
    unsafe extern "C" fn init_request(
        _set: *mut bindings::blk_mq_tag_set,
        rq: *mut bindings::request,
        _hctx_idx: c_uint,
        _numa_node: c_int,
    ) -> c_int {
        // SAFETY: By the function's requirements.
        unsafe { ptr::write(Pdu::of(rq), Pdu::new()) };
        0
    }

    /// A request is about to be freed.
    ///
    /// # Safety
    ///
    /// To be called by the block layer only, after `init_request` for the same request.
    unsafe extern "C" fn exit_request(
        _set: *mut bindings::blk_mq_tag_set,
        rq: *mut bindings::request,
        _hctx_idx: c_uint,
    ) {
        // SAFETY: `init_request` made it, and a request that is freed is not started.
        unsafe { ptr::drop_in_place(Pdu::of(rq)) };
    }
}
