// SPDX-License-Identifier: GPL-2.0

//! The array's disk.
//!
//! A [`Disk`] is made and shown to user space in one step, and deleted when it is dropped. The
//! block layer keeps it until its last user is gone, and with it the driver's data, which is let
//! go of in the `free_disk` callback; module exit waits for that, see
//! [`Runtime`](super::runtime::Runtime).
//!
//! C headers: [`include/linux/blkdev.h`](srctree/include/linux/blkdev.h),
//! [`include/linux/blk-mq.h`](srctree/include/linux/blk-mq.h)

use core::{
    ffi::c_int,
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
        from_err_ptr,
        to_result, //
    },
    ffi::c_char,
    module::this_module,
    new_mutex,
    prelude::*,
    static_lock_class,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        ArcBorrow,
        Mutex, //
    },
    types::ScopeGuard, //
};

use super::{
    device::MemberDevice,
    limits::Limits,
    runtime::{
        Count,
        DISKS, //
    },
    sys,
    tagset::{
        Driver,
        TagSet, //
    }, //
};

/// The largest capacity of a block device in sectors (`BLK_DEV_MAX_SECTORS`).
const MAX_SECTORS: u64 = i64::MAX as u64 / 512;

/// Strings that one [`Disk::uevent`] can carry.
const MAX_UEVENT_STRINGS: usize = 8;

/// What a new disk is like.
pub(crate) struct DiskConfig<'a> {
    /// Its name, such as `eraid0`; at most 31 bytes.
    pub(crate) name: &'a CStr,
    /// Its limits.
    pub(crate) limits: &'a Limits,
    /// Its capacity in 512-byte sectors.
    pub(crate) capacity: u64,
    /// Whether it refuses writes.
    pub(crate) read_only: bool,
}

/// What belongs to a disk as long as the block layer keeps it.
pub(super) struct Shared<D: Driver> {
    data: Arc<D::Data>,
    /// Whether the disk may not be opened any more. Changes under the disk's `open_mutex`.
    stopping: Atomic<bool>,
    /// Counts the disk, until its data is gone.
    _count: Count,
}

impl<D: Driver> Shared<D> {
    pub(super) fn data(&self) -> ArcBorrow<'_, D::Data> {
        self.data.as_arc_borrow()
    }
}

/// A disk of a driver.
///
/// To be used and dropped in task context. Dropping it deletes the disk, which waits until all its
/// requests have ended, and until all accesses to files below its directory in sysfs have; so it
/// must not be dropped from such a file. Whoever has it open keeps it, without being able to use
/// it.
///
/// # Invariants
///
/// - `disk` was added, is not deleted, and we own a reference to it.
/// - Its `private_data` and its queue's `queuedata` point to a `Shared<D>`.
/// - Exactly the devices in `members` are linked to it.
pub(crate) struct Disk<D: Driver> {
    disk: NonNull<bindings::gendisk>,
    members: Pin<KBox<Mutex<KVec<Arc<MemberDevice>>>>>,
    /// Freed after the disk that uses it.
    _tags: Arc<TagSet<D>>,
}

// SAFETY: Disks may be used and deleted by any thread. `Driver::Data` is `Send` and `Sync`.
unsafe impl<D: Driver> Send for Disk<D> {}

// SAFETY: All methods taking `&self` call functions that do their own locking.
unsafe impl<D: Driver> Sync for Disk<D> {}

impl<D: Driver> Disk<D> {
    /// Makes a disk and shows it to user space. Task context.
    ///
    /// Requests arrive before this returns, since the block layer looks for partitions; the data
    /// has to be ready for them, and the caller must not hold locks that they need.
    ///
    /// # Errors
    ///
    /// - [`EINVAL`] for names, capacities or limits that are not possible.
    /// - [`EEXIST`] if there is a disk of that name.
    /// - [`ENXIO`] without a [`Runtime`](super::runtime::Runtime), [`ENOMEM`] and others.
    pub(crate) fn add(
        config: DiskConfig<'_>,
        tags: Arc<TagSet<D>>,
        data: Arc<D::Data>,
    ) -> Result<Self> {
        config.limits.check()?;
        if config.capacity > MAX_SECTORS {
            return Err(EINVAL);
        }
        let members = KBox::pin_init(new_mutex!(KVec::new(), "eraid_disk_members"), GFP_KERNEL)?;
        let shared = KBox::new(
            Shared::<D> {
                data,
                stopping: Atomic::new(false),
                _count: DISKS.count()?,
            },
            GFP_KERNEL,
        )?;
        let shared = ScopeGuard::new_with_data(KBox::into_raw(shared), |shared| {
            // SAFETY: A disk that was not added does not free its data, so it is still ours.
            drop(unsafe { KBox::from_raw(shared) });
        });

        let mut limits = config.limits.to_raw();
        // SAFETY: `tags` is a valid tag set, and is kept as long as the disk. The data is a pointer
        // for our own use, and the lock class is static.
        let disk = from_err_ptr(unsafe {
            bindings::__blk_mq_alloc_disk(
                tags.as_ptr(),
                &mut limits,
                (*shared).cast(),
                static_lock_class!().as_ptr(),
            )
        })?;
        let disk = NonNull::new(disk).ok_or(ENOMEM)?;
        let unadded = ScopeGuard::new_with_data(disk, |disk| {
            // SAFETY: The disk was allocated above, and we own the only reference.
            unsafe { bindings::put_disk(disk.as_ptr()) };
        });

        // SAFETY: The disk is valid, and no one else knows it yet.
        unsafe {
            (*disk.as_ptr()).fops = &raw const Callbacks::<D>::OPS.0;
            (*disk.as_ptr()).private_data = (*shared).cast();
        }
        // SAFETY: As above.
        Self::set_name(unsafe { &mut (*disk.as_ptr()).disk_name }, config.name)?;
        // SAFETY: As above.
        unsafe { bindings::set_capacity(disk.as_ptr(), config.capacity) };
        // SAFETY: As above.
        unsafe { bindings::set_disk_ro(disk.as_ptr(), config.read_only) };
        // SAFETY: The disk is complete and was not added yet.
        to_result(unsafe {
            bindings::device_add_disk(ptr::null_mut(), disk.as_ptr(), ptr::null_mut())
        })?;

        // An added disk frees the data by itself.
        shared.dismiss();
        // INVARIANT: The disk was added above, with the data in both places. No device is linked.
        Ok(Self {
            disk: unadded.dismiss(),
            members,
            _tags: tags,
        })
    }

    fn set_name(field: &mut [c_char], name: &CStr) -> Result {
        let name = name.to_bytes_with_nul();

        if name.len() < 2 || name.len() > field.len() {
            return Err(EINVAL);
        }
        for (to, from) in field.iter_mut().zip(name) {
            *to = *from;
        }
        Ok(())
    }

    fn shared(&self) -> &Shared<D> {
        // SAFETY: By the type invariant the pointer is to a `Shared<D>`, which is freed with the
        // disk, to which we own a reference.
        unsafe { &*(*self.disk.as_ptr()).private_data.cast() }
    }

    fn part0(&self) -> *mut bindings::block_device {
        // SAFETY: The disk is valid by the type invariant; the field is constant.
        unsafe { (*self.disk.as_ptr()).part0 }
    }

    /// The device number (`dev_t`).
    pub(crate) fn dev(&self) -> u32 {
        // SAFETY: `part0` belongs to the disk; the field is constant once the disk is added.
        unsafe { (*self.part0()).bd_dev }
    }

    /// The number of times that the disk and its partitions are open.
    pub(crate) fn openers(&self) -> u32 {
        // SAFETY: The disk is valid by the type invariant.
        unsafe { sys::eraid_disk_openers(self.disk.as_ptr()) }
    }

    /// Whether the disk or a partition of it is claimed: mounted, or a member of something.
    ///
    /// A hint: it may change any time.
    pub(crate) fn is_claimed(&self) -> bool {
        // SAFETY: The disk is valid by the type invariant, and its first block device lives as long
        // as it does. The pointer is only compared.
        unsafe {
            !ptr::read_volatile(&raw const (*(*self.disk.as_ptr()).part0).bd_holder).is_null()
        }
    }

    /// Refuses to be opened from now on.
    ///
    /// # Errors
    ///
    /// [`EBUSY`] if the disk or a partition of it is open, or is being opened or closed at the
    /// moment, which may take as long as its requests do; then nothing is changed.
    pub(crate) fn begin_stop(&self) -> Result {
        // SAFETY: The disk is valid by the type invariant.
        let mutex = unsafe { &raw mut (*self.disk.as_ptr()).open_mutex };
        // SAFETY: The mutex belongs to the disk.
        if unsafe { bindings::mutex_trylock(mutex) } == 0 {
            return Err(EBUSY);
        }
        let closed = self.openers() == 0;
        if closed {
            self.shared().stopping.store(true, Relaxed);
        }
        // SAFETY: The mutex was locked above.
        unsafe { bindings::mutex_unlock(mutex) };
        match closed {
            true => Ok(()),
            false => Err(EBUSY),
        }
    }

    /// Whether memory that is aligned well enough for the disk is so for a device.
    pub(crate) fn is_aligned_for(&self, dev: &MemberDevice) -> bool {
        // SAFETY: The block device belongs to the disk, and its queue is valid as long as it is; the
        // limit is a plain number.
        let own = unsafe { (*(*self.part0()).bd_queue).limits.dma_alignment };
        // SAFETY: As above, for an open device.
        let other = unsafe { (*(*dev.bdev()).bd_queue).limits.dma_alignment };
        own & other == other
    }

    /// Sends a `KOBJ_CHANGE` event with up to 8 strings of the form `KEY=value`.
    ///
    /// # Errors
    ///
    /// [`E2BIG`] for more strings, [`ENOMEM`] and others.
    pub(crate) fn uevent(&self, strings: &[&CStr]) -> Result {
        // The last one stays null and ends the list.
        let mut env = [ptr::null_mut::<c_char>(); MAX_UEVENT_STRINGS + 1];

        if strings.len() > MAX_UEVENT_STRINGS {
            return Err(E2BIG);
        }
        for (to, from) in env.iter_mut().zip(strings) {
            *to = from.as_char_ptr().cast_mut();
        }
        // SAFETY: The object belongs to the disk. The list ends with null, and the strings are only
        // read.
        to_result(unsafe {
            bindings::kobject_uevent_env(
                self.kobj(),
                bindings::kobject_action_KOBJ_CHANGE,
                env.as_mut_ptr(),
            )
        })
    }

    /// Shows that the device is part of the disk, by links in `slaves/` and `holders/`.
    ///
    /// # Errors
    ///
    /// [`EEXIST`] if it is linked already, [`ENODEV`] if it was removed, [`ENOMEM`] and others.
    pub(crate) fn link_member(&self, dev: Arc<MemberDevice>) -> Result {
        let mut members = self.members.lock();

        if members.iter().any(|other| other.bdev() == dev.bdev()) {
            return Err(EEXIST);
        }
        members.reserve(1, GFP_KERNEL)?;
        holder::link(&dev, self.disk.as_ptr())?;
        // INVARIANT: The device was linked above.
        members.push(dev, GFP_KERNEL)?;
        Ok(())
    }

    /// Takes the links of [`Self::link_member`] away, if there are any.
    pub(crate) fn unlink_member(&self, dev: &MemberDevice) {
        let mut members = self.members.lock();

        if let Some(index) = members.iter().position(|other| other.bdev() == dev.bdev()) {
            holder::unlink(dev, self.disk.as_ptr());
            // INVARIANT: The device was unlinked above.
            let _ = members.remove(index);
        }
    }

    /// The directory of the disk in sysfs, valid as long as `self`.
    pub(super) fn kobj(&self) -> *mut bindings::kobject {
        // SAFETY: `part0` belongs to the disk.
        unsafe { &raw mut (*self.part0()).bd_device.kobj }
    }
}

impl<D: Driver> Drop for Disk<D> {
    fn drop(&mut self) {
        // The links need the directories that deleting the disk removes.
        while let Some(dev) = self.members.lock().pop() {
            holder::unlink(&dev, self.disk.as_ptr());
        }
        // SAFETY: The disk was added by the type invariant, and is not deleted yet.
        unsafe { bindings::del_gendisk(self.disk.as_ptr()) };
        // SAFETY: We own a reference, which is not used any more.
        unsafe { bindings::put_disk(self.disk.as_ptr()) };
    }
}

/// Links between disks and the devices they are made of.
#[cfg(CONFIG_BLOCK_HOLDER_DEPRECATED)]
mod holder {
    use super::*;

    pub(super) fn link(dev: &MemberDevice, disk: *mut bindings::gendisk) -> Result {
        // SAFETY: The device is open and claimed, and the disk is added.
        to_result(unsafe { bindings::bd_link_disk_holder(dev.bdev(), disk) })
    }

    pub(super) fn unlink(dev: &MemberDevice, disk: *mut bindings::gendisk) {
        // SAFETY: The device was linked to the disk, which is not deleted yet.
        unsafe { bindings::bd_unlink_disk_holder(dev.bdev(), disk) };
    }
}

/// There are no links without the block layer's support.
#[cfg(not(CONFIG_BLOCK_HOLDER_DEPRECATED))]
mod holder {
    use super::*;

    pub(super) fn link(_dev: &MemberDevice, _disk: *mut bindings::gendisk) -> Result {
        Ok(())
    }

    pub(super) fn unlink(_dev: &MemberDevice, _disk: *mut bindings::gendisk) {}
}

/// A table for the block layer.
#[repr(transparent)]
struct Ops(bindings::block_device_operations);

// SAFETY: The table is never written to.
unsafe impl Sync for Ops {}

/// The callbacks of a disk in the form of the block layer.
struct Callbacks<D>(PhantomData<D>);

impl<D: Driver> Callbacks<D> {
    const OPS: &'static Ops = &Ops(bindings::block_device_operations {
        owner: this_module::<crate::LocalModule>().as_ptr(),
        open: Some(Self::open),
        free_disk: Some(Self::free_disk),
        ..pin_init::zeroed()
    });

    /// # Safety
    ///
    /// To be called by the block layer only, for disks of this driver, under `open_mutex`.
    unsafe extern "C" fn open(disk: *mut bindings::gendisk, _mode: bindings::blk_mode_t) -> c_int {
        // SAFETY: `Disk::add()` put a `Shared<D>` there, which lives as long as the disk.
        let shared = unsafe { &*(*disk).private_data.cast::<Shared<D>>() };

        if shared.stopping.load(Relaxed) {
            ENXIO.to_errno()
        } else {
            0
        }
    }

    /// # Safety
    ///
    /// To be called by the block layer only, once, for disks of this driver that were added.
    unsafe extern "C" fn free_disk(disk: *mut bindings::gendisk) {
        // SAFETY: `Disk::add()` put a boxed `Shared<D>` there, and gave it up when the disk was
        // added. No one uses the disk any more.
        drop(unsafe { KBox::from_raw((*disk).private_data.cast::<Shared<D>>()) });
    }
}
