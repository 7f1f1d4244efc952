// SPDX-License-Identifier: GPL-2.0

//! A device class whose own files are the driver's control files.
//!
//! It gives `/sys/class/CLASS/` with files, and in it a directory for links, which is a device of
//! the class without a driver.
//!
//! C header: [`include/linux/device/class.h`](srctree/include/linux/device/class.h)

use core::{
    ptr,
    ptr::NonNull, //
};

use kernel::{
    bindings,
    error::{
        from_err_ptr,
        to_result, //
    },
    ffi::c_char,
    prelude::*,
    sync::Arc, //
};

use super::{
    runtime::{
        Count,
        REGISTERED, //
    },
    sysfs::{
        Attributes,
        FileEntry,
        KobjectRef, //
    }, //
};

/// A class with a directory for links, and as yet no files (see [`ControlFiles`]).
///
/// # Invariants
///
/// `class` was made by `class_create` and `directory` by `device_create`, and both are owned by this
/// value.
pub(crate) struct ControlClass {
    class: NonNull<bindings::class>,
    directory: NonNull<bindings::device>,
}

// SAFETY: Classes and devices may be used and removed by any thread.
unsafe impl Send for ControlClass {}
// SAFETY: What is done through a shared reference is allowed concurrently; sysfs has its own locks.
unsafe impl Sync for ControlClass {}

impl ControlClass {
    /// Makes `/sys/class/NAME/DIRECTORY`. Task context; `EEXIST`, `ENOMEM`.
    pub(crate) fn new(name: &'static CStr, directory: &CStr) -> Result<Self> {
        // SAFETY: The name is a string that outlives the class.
        let class = from_err_ptr(unsafe { bindings::class_create(name.as_char_ptr()) })?;
        // SAFETY: The class is valid; format and argument are strings and fit each other. No
        // parent, no device number, no driver data.
        let device = from_err_ptr(unsafe {
            bindings::device_create(
                class,
                ptr::null_mut(),
                0,
                ptr::null_mut(),
                c"%s".as_char_ptr(),
                directory.as_char_ptr(),
            )
        })
        .inspect_err(|_| {
            // SAFETY: The class was made above and nobody uses it.
            unsafe { bindings::class_destroy(class) }
        })?;
        // INVARIANT: Both were just made, and neither pointer is NULL: `from_err_ptr` leaves only
        // what the two functions return on success.
        Ok(Self {
            class: NonNull::new(class).ok_or(ENOMEM)?,
            directory: NonNull::new(device).ok_or(ENOMEM)?,
        })
    }

    fn links(&self) -> KobjectRef<'_> {
        // SAFETY: By the type invariant the device is valid.
        let kobj = unsafe { &raw mut (*self.directory.as_ptr()).kobj };
        // SAFETY: The kobject is part of the device and so as valid, and its address is not NULL.
        unsafe { KobjectRef::from_raw(NonNull::new_unchecked(kobj)) }
    }

    /// Makes a link called `name` to `target` in the directory. Task context.
    ///
    /// # Errors
    ///
    /// `EEXIST`, also for what every device has (`power`, `subsystem`, `uevent`); `ENOMEM`;
    /// `ENOENT` when the target has been removed meanwhile.
    pub(crate) fn link(&self, name: &CStr, target: KobjectRef<'_>) -> Result {
        self.links().link(name, target)
    }

    /// Removes the link called `name`. Task context.
    ///
    /// Only for names that [`Self::link`] made.
    pub(crate) fn unlink(&self, name: &CStr) {
        self.links().unlink(name);
    }
}

impl Drop for ControlClass {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the device is ours.
        unsafe { bindings::device_unregister(self.directory.as_ptr()) };
        // SAFETY: By the type invariant the class is ours, and its device is gone. Files hold a
        // reference to `self`, so there are none.
        unsafe { bindings::class_destroy(self.class.as_ptr()) };
    }
}

/// The files of a [`ControlClass`], which show and store parts of a `T`.
///
/// Dropping it removes the files and waits for the handlers that run. Task context, never in one of
/// the handlers. Open files do not pin the module; using them after the removal fails.
///
/// # Invariants
///
/// The entries are for `class_attribute`s and registered with `class` (all of them once
/// [`Self::add`] has returned).
pub(crate) struct ControlFiles<T: Attributes> {
    class: Arc<ControlClass>,
    files: KVec<FileEntry<T, bindings::class_attribute>>,
    /// Given back after the files have been removed.
    _count: Count,
}

impl<T: Attributes> ControlFiles<T> {
    /// Adds the files of `data` to the class. They can be used before this returns. Task context;
    /// `EEXIST`, `ENOMEM`, `ENXIO` without a [`Runtime`](super::runtime::Runtime).
    pub(crate) fn add(class: Arc<ControlClass>, data: Arc<T>) -> Result<Self> {
        let count = REGISTERED.count()?;
        let files = FileEntry::table(&data, |attr| bindings::class_attribute {
            attr,
            show: Some(show_callback::<T>),
            store: Some(store_callback::<T>),
        })?;
        // Dropping this removes the files made so far: removing one that was not made is harmless.
        let this = Self {
            class,
            files,
            _count: count,
        };
        for file in this.files.iter() {
            // SAFETY: The class is valid, and the entry stays where it is until `drop` has removed
            // the file.
            to_result(unsafe {
                bindings::class_create_file_ns(
                    this.class.class.as_ptr(),
                    file.attr_ptr(),
                    ptr::null(),
                )
            })?;
        }
        Ok(this)
    }
}

impl<T: Attributes> Drop for ControlFiles<T> {
    fn drop(&mut self) {
        for file in self.files.iter() {
            // SAFETY: The class is valid. This waits for the handlers of the file, so that the entry
            // can be freed afterwards.
            unsafe {
                bindings::class_remove_file_ns(
                    self.class.class.as_ptr(),
                    file.attr_ptr(),
                    ptr::null(),
                );
            }
        }
    }
}

/// # Safety
///
/// Called by sysfs: `attr` is one that [`ControlFiles::add`] registered for a `T`, whose removal
/// waits for the call to return, and `buf` is a zeroed page.
unsafe extern "C" fn show_callback<T: Attributes>(
    _class: *const bindings::class,
    attr: *const bindings::class_attribute,
    buf: *mut c_char,
) -> isize {
    // SAFETY: By the function's requirements.
    let entry = unsafe { FileEntry::<T, _>::from_attr(attr) };
    // SAFETY: By the function's requirements.
    unsafe { entry.show(buf) }
}

/// # Safety
///
/// Called by sysfs: `attr` is one that [`ControlFiles::add`] registered for a `T`, whose removal
/// waits for the call to return, and `buf` holds `len` bytes, at most a page.
unsafe extern "C" fn store_callback<T: Attributes>(
    _class: *const bindings::class,
    attr: *const bindings::class_attribute,
    buf: *const c_char,
    len: usize,
) -> isize {
    // SAFETY: By the function's requirements.
    let entry = unsafe { FileEntry::<T, _>::from_attr(attr) };
    // SAFETY: By the function's requirements.
    unsafe { entry.store(buf, len) }
}
