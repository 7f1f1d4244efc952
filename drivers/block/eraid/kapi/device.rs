// SPDX-License-Identifier: GPL-2.0

//! Block devices as members of an array.
//!
//! C headers: [`include/linux/blkdev.h`](srctree/include/linux/blkdev.h),
//! [`include/linux/blk_types.h`](srctree/include/linux/blk_types.h)

use core::{
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
        from_err_ptr,
        to_result, //
    },
    new_mutex,
    new_work,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
    workqueue::{
        impl_has_work,
        Work,
        WorkItem, //
    }, //
};

use super::{
    module::ModuleRef,
    runtime::{
        self,
        Count,
        CLOSING,
        DEVICES, //
    },
    sys, //
};

/// Room for the name of a disk or partition, with its NUL.
const NAME_SIZE: usize = bindings::DISK_NAME_LEN as usize + 8;

/// What a device tells its user.
pub(crate) trait DeviceEvents: Send + Sync {
    /// The device was removed, or is about to be when `surprise` is false.
    ///
    /// Called at most once, from task context. Commands in flight end with an error by themselves.
    fn device_dead(&self, surprise: bool);
}

/// Waits until no device is being closed, for at most `timeout_ms` milliseconds; returns whether
/// that is so. Task context.
///
/// After the last references to some devices are gone, this makes sure that others can open them.
pub(crate) fn wait_closed(timeout_ms: u32) -> bool {
    CLOSING.wait_zero_timeout(timeout_ms)
}

/// The device number of the block device at `path`. Task context.
///
/// # Errors
///
/// [`ENOENT`], [`ENOTBLK`] and the like.
pub(crate) fn lookup(path: &CStr) -> Result<u32> {
    let mut dev = 0;
    // SAFETY: The path is a C string, and `dev` is valid for writes.
    to_result(unsafe { bindings::lookup_bdev(path.as_char_ptr(), &raw mut dev) })?;
    Ok(dev)
}

/// What is known about the removal of a device.
enum Removal {
    No,
    Untold { surprise: bool },
    Told,
}

/// The receiver of a device's events, and what it was told.
struct Events {
    receiver: Option<Arc<dyn DeviceEvents>>,
    removal: Removal,
}

impl Events {
    /// The receiver and what to tell it, if there is something that it was not told yet.
    fn take_untold(&mut self) -> Option<(Arc<dyn DeviceEvents>, bool)> {
        let Removal::Untold { surprise } = self.removal else {
            return None;
        };
        let receiver = self.receiver.clone()?;
        self.removal = Removal::Told;
        Some((receiver, surprise))
    }
}

/// The part of an open device that outlives its last reference, until the device is closed.
///
/// Its address is the "holder" of the device.
#[pin_data]
struct Handle {
    /// The open file; null before the device is open.
    file: Atomic<*mut bindings::file>,
    dead: Atomic<bool>,
    /// Keeps the module for as long as the device is open; see [`MemberDevice::keep_module`]. The
    /// last to go is the work item that closes the device, for which unloading waits.
    #[pin]
    module: Mutex<Option<ModuleRef>>,
    #[pin]
    events: Mutex<Events>,
    #[pin]
    close: Work<Handle>,
    _count: Count,
}

impl_has_work! {
    impl HasWork<Handle> for Handle { self.close }
}

impl WorkItem for Handle {
    type Pointer = Pin<KBox<Self>>;

    /// Closes the device.
    fn run(this: Pin<KBox<Self>>) {
        let file = this.file.load(Relaxed);

        // SAFETY: `MemberDevice` queues this after it put its file here, and gives it up with that.
        // From here on `mark_dead()` is not called any more: giving up the claim takes the lock
        // under which it looks for the holder.
        unsafe { bindings::bdev_yield_claim(file) };
        // SAFETY: As above, this is the file's last use. A worker is a kernel thread, so the file
        // may be closed synchronously.
        unsafe { bindings::__fput_sync(file) };
        // This frees the receiver of events, too, if no one else has it.
        drop(this);
        CLOSING.dec();
    }
}

impl Handle {
    fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            file: Atomic::new(ptr::null_mut()),
            dead: Atomic::new(false),
            module <- new_mutex!(None, "eraid_device_module"),
            events <- new_mutex!(
                Events { receiver: None, removal: Removal::No },
                "eraid_device_events"
            ),
            close <- new_work!("eraid_device_close"),
            _count: DEVICES.count()?,
        })
    }
}

/// A table for the block layer.
struct HolderOps(bindings::blk_holder_ops);

// SAFETY: The table is never written to.
unsafe impl Sync for HolderOps {}

static HOLDER_OPS: HolderOps = HolderOps(bindings::blk_holder_ops {
    mark_dead: Some(mark_dead),
    sync: None,
    freeze: None,
    thaw: None,
});

/// The device was or will be removed.
///
/// # Safety
///
/// To be called by the block layer only: `bdev` is valid and claimed with [`HOLDER_OPS`], and
/// its `bd_holder_lock` is held; it is released here.
unsafe extern "C" fn mark_dead(bdev: *mut bindings::block_device, surprise: bool) {
    let told = {
        // SAFETY: `MemberDevice::open()` claims with `HOLDER_OPS` and the address of a `Handle`.
        // That is freed after the claim is given up, for which the lock is needed that we hold.
        let handle = unsafe { &*(*bdev).bd_holder.cast::<Handle>() };
        handle.dead.store(true, Relaxed);

        let mut events = handle.events.lock();
        if let Removal::No = events.removal {
            events.removal = Removal::Untold { surprise };
        }
        // Module exit waits for us: the device may be closed as soon as the lock is released.
        DEVICES.inc();
        events.take_untold()
    };
    // SAFETY: The caller holds the lock and hands it to us.
    unsafe { bindings::mutex_unlock(&raw mut (*bdev).bd_holder_lock) };

    // Not under the lock, so that the receiver may do what it likes.
    if let Some((receiver, surprise)) = told {
        receiver.device_dead(surprise);
    }
    DEVICES.dec();
}

/// An open block device that no one else can claim.
///
/// The last reference may be dropped in any context; the device is closed a little later, see
/// [`wait_closed`].
///
/// # Invariants
///
/// - `handle` is `Some` until the object is dropped, is the holder of the device and owns its file.
/// - `bdev` is the device of that file.
pub(crate) struct MemberDevice {
    handle: Option<Pin<KBox<Handle>>>,
    bdev: NonNull<bindings::block_device>,
    name: [u8; NAME_SIZE],
}

// SAFETY: Open files and block devices can be used from any thread. `Handle` is `Send`.
unsafe impl Send for MemberDevice {}

// SAFETY: All methods taking `&self` call functions of the block layer, which do their own locking,
// or read single values. `Handle` is `Sync`.
unsafe impl Sync for MemberDevice {}

impl MemberDevice {
    /// Opens and claims the block device at `path`, as seen by the current task. Task context.
    ///
    /// What others have written to the device through its page cache is on the device afterwards,
    /// and the cache is empty.
    ///
    /// # Errors
    ///
    /// - [`EBUSY`] if someone else has claimed the device or, for a whole disk, a partition of it.
    /// - [`ENOTBLK`] if it is not a block device; [`ENOENT`] and others from the path lookup.
    /// - [`EROFS`] if it is read-only and `read_only` is not set.
    /// - [`EOPNOTSUPP`] for zoned devices.
    /// - [`ENXIO`] without a [`Runtime`](super::runtime::Runtime), and others from the device.
    /// - [`ENOMEM`].
    pub(crate) fn open(path: &CStr, read_only: bool) -> Result<Arc<Self>> {
        let mut mode = sys::ERAID_CONST_BLK_OPEN_READ;
        if !read_only {
            mode |= sys::ERAID_CONST_BLK_OPEN_WRITE;
        }
        let handle = KBox::pin_init(Handle::new(), GFP_KERNEL)?;

        // SAFETY: `path` is a C string. The handle stays where it is until the claim is given up.
        let file = from_err_ptr(unsafe {
            bindings::bdev_file_open_by_path(
                path.as_char_ptr(),
                mode,
                ptr::from_ref::<Handle>(&handle).cast_mut().cast(),
                &raw const HOLDER_OPS.0,
            )
        })?;
        let file = NonNull::new(file).ok_or(ENXIO)?;
        // SAFETY: `file` is an open block device file.
        let bdev = NonNull::new(unsafe { bindings::file_bdev(file.as_ptr()) }).ok_or(ENXIO)?;
        handle.file.store(file.as_ptr(), Relaxed);

        // INVARIANT: All as opened above.
        let mut device = Self {
            handle: Some(handle),
            bdev,
            name: [0; NAME_SIZE],
        };
        // SAFETY: `bdev` is valid, and the buffer is valid for writes of its length.
        unsafe {
            sys::eraid_bdev_name(bdev.as_ptr(), device.name.as_mut_ptr().cast(), NAME_SIZE);
        }
        device.check_usable(read_only)?;
        // SAFETY: `bdev` is valid.
        to_result(unsafe { bindings::sync_blockdev(bdev.as_ptr()) })?;
        // SAFETY: `bdev` is valid.
        unsafe { bindings::invalidate_bdev(bdev.as_ptr()) };

        Ok(Arc::new(device, GFP_KERNEL)?)
    }

    fn check_usable(&self, read_only: bool) -> Result {
        if self.features() & sys::ERAID_CONST_BLK_FEAT_ZONED != 0 {
            return Err(EOPNOTSUPP);
        }
        if !read_only && self.is_read_only() {
            return Err(EROFS);
        }
        Ok(())
    }

    /// Sends events to `receiver`, at once if the device is dead already and no one was told.
    ///
    /// The device keeps the receiver alive; if that owns the device in turn,
    /// [`Self::disconnect`] breaks the cycle.
    pub(crate) fn connect(&self, receiver: Arc<dyn DeviceEvents>) {
        let Some(handle) = &self.handle else {
            return;
        };
        let (old, told) = {
            let mut events = handle.events.lock();
            (events.receiver.replace(receiver), events.take_untold())
        };
        drop(old);
        if let Some((receiver, surprise)) = told {
            receiver.device_dead(surprise);
        }
    }

    /// Sends no more events. One that is under way may still arrive.
    pub(crate) fn disconnect(&self) {
        if let Some(handle) = &self.handle {
            let old = handle.events.lock().receiver.take();
            drop(old);
        }
    }

    /// Lets unloading the module be refused until the device is closed. Task context.
    ///
    /// Without this, unloading waits until it is.
    pub(crate) fn keep_module(&self) {
        if let Some(handle) = &self.handle {
            let mut module = handle.module.lock();
            if module.is_none() {
                // While the module is being unloaded there is none to be had.
                *module = ModuleRef::get();
            }
        }
    }

    /// The size in 512-byte sectors; 0 after removal. Any context.
    pub(crate) fn size_sectors(&self) -> u64 {
        // SAFETY: `bdev` is valid by the type invariant. The field may change at any time.
        unsafe { (&raw const (*self.bdev.as_ptr()).bd_nr_sectors).read_volatile() }
    }

    /// The unit that the device can address, in bytes: a power of two from 512 on. Any context.
    pub(crate) fn logical_block_size(&self) -> u32 {
        // SAFETY: `limit()` gives valid limits.
        self.limit(|limits| unsafe { &raw const (*limits).logical_block_size })
    }

    /// Whether the device is made of rotating disks. Any context.
    pub(crate) fn is_rotational(&self) -> bool {
        self.features() & sys::ERAID_CONST_BLK_FEAT_ROTATIONAL != 0
    }

    /// The longest read with [`CommandFlags::NOWAIT`](super::command::CommandFlags::NOWAIT) that
    /// the device takes as it is, in sectors; 0 if handing it a command may sleep whatever its
    /// flags. Any context.
    ///
    /// Only drivers whose `queue_rq` may not sleep qualify. Those that submit to other devices
    /// (device mapper, MD) or send from there (NBD) may sleep there. The device's limits may change
    /// later; longer reads end with [`Status::AGAIN`] then.
    pub(crate) fn nowait_sectors(&self) -> u32 {
        // SAFETY: `bdev` and with it its queue are valid by the type invariant. The fields are
        // constant once the device can be opened.
        let (ops, set) = unsafe {
            let queue = (*self.bdev.as_ptr()).bd_queue;
            ((*queue).mq_ops, (*queue).tag_set)
        };
        if ops.is_null() || self.features() & sys::ERAID_CONST_BLK_FEAT_NOWAIT == 0 {
            return 0;
        }
        // SAFETY: A queue with `mq_ops` has a tag set for as long as it exists, with constant flags.
        if unsafe { (*set).flags } & bindings::BLK_MQ_F_BLOCKING != 0 {
            return 0;
        }
        // SAFETY: `limit()` gives valid limits.
        self.limit(|limits| unsafe { &raw const (*limits).max_sectors })
    }

    /// Whether commands for neighbouring sectors that are submitted together reach the device as
    /// one, as far as its limits allow. Any context.
    ///
    /// Not if `nomerges` in sysfs says so, nor for drivers without requests.
    pub(crate) fn merges(&self) -> bool {
        // SAFETY: `bdev` and with it its queue are valid by the type invariant. `mq_ops` is constant
        // once the device can be opened; the flags may change at any time.
        let (ops, flags) = unsafe {
            let queue = (*self.bdev.as_ptr()).bd_queue;
            (
                (*queue).mq_ops,
                (&raw const (*queue).queue_flags).read_volatile(),
            )
        };
        !ops.is_null() && flags & (1 << bindings::QUEUE_FLAG_NOMERGES) == 0
    }

    /// Whether the device takes [`CommandOp::Discard`](super::command::CommandOp::Discard). Any
    /// context.
    pub(crate) fn can_discard(&self) -> bool {
        // SAFETY: `limit()` gives valid limits.
        self.limit(|limits| unsafe { &raw const (*limits).max_discard_sectors }) > 0
    }

    /// Whether the device refuses writes now. Any context.
    pub(crate) fn is_read_only(&self) -> bool {
        // SAFETY: `bdev` is valid by the type invariant.
        unsafe { sys::eraid_bdev_read_only(self.bdev.as_ptr()) }
    }

    /// The kernel's name of the device, such as `sda1` or `dm-3`. Any context.
    pub(crate) fn name(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.name).unwrap_or(c"")
    }

    /// The device number (`dev_t`). Any context.
    pub(crate) fn dev(&self) -> u32 {
        // SAFETY: `bdev` is valid by the type invariant; the field is constant.
        unsafe { (*self.bdev.as_ptr()).bd_dev }
    }

    /// One of the values that `field` points to in the device's limits.
    fn limit<T: Copy>(&self, field: impl FnOnce(*const bindings::queue_limits) -> *const T) -> T {
        // SAFETY: `bdev` and with it its queue are valid by the type invariant.
        let limits = unsafe { &raw const (*(*self.bdev.as_ptr()).bd_queue).limits };
        // SAFETY: The callers point to a field of valid limits. It may change at any time; as all
        // readers of single limits, we get the old or the new value.
        unsafe { field(limits).read_volatile() }
    }

    fn features(&self) -> bindings::blk_features_t {
        // SAFETY: `limit()` gives valid limits.
        self.limit(|limits| unsafe { &raw const (*limits).features })
    }

    /// The block device, valid as long as `self`.
    pub(super) fn bdev(&self) -> *mut bindings::block_device {
        self.bdev.as_ptr()
    }

    /// The directory of the block device in sysfs, valid as long as `self`.
    pub(super) fn kobj(&self) -> *mut bindings::kobject {
        // SAFETY: `bdev` is valid by the type invariant.
        unsafe { &raw mut (*self.bdev.as_ptr()).bd_device.kobj }
    }
}

impl Drop for MemberDevice {
    fn drop(&mut self) {
        let (Some(handle), Some(queue)) = (self.handle.take(), runtime::close_queue()) else {
            // Cannot happen by the type invariant: a device that counts keeps the queue alive.
            return;
        };
        CLOSING.inc();
        queue.enqueue(handle);
    }
}
