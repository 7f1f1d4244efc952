// SPDX-License-Identifier: GPL-2.0

//! Directories with files in sysfs.
//!
//! A [`Kobject`] is a directory whose files show and store parts of one object. The C kobject in it
//! is a plain one of the kernel's own type: its release function is not part of this module, so a
//! late reference to it does no harm. The file attributes are allocated with the [`Kobject`] and
//! freed after the directory has been removed, which waits for the handlers that run.
//!
//! C headers: [`include/linux/kobject.h`](srctree/include/linux/kobject.h),
//! [`include/linux/sysfs.h`](srctree/include/linux/sysfs.h)

use core::{
    fmt::Write,
    marker::PhantomData,
    ptr,
    ptr::NonNull, //
};

use kernel::{
    bindings,
    error::to_result,
    ffi::c_char,
    fmt,
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

use super::{
    device::MemberDevice,
    disk::Disk,
    runtime::{
        Count,
        REGISTERED, //
    },
    tagset::Driver, //
};

/// The longest text of a file: sysfs keeps one byte of the page for itself.
const TEXT_MAX: usize = PAGE_SIZE - 1;

/// The text that a file shows, at most 4095 bytes.
///
/// What does not fit makes the read fail with `E2BIG`, whatever the handler returns.
pub(crate) struct SysfsText<'a> {
    buf: &'a mut [u8],
    len: usize,
    overflowed: bool,
}

impl SysfsText<'_> {
    /// Bytes that still fit.
    pub(crate) fn remaining(&self) -> usize {
        self.buf.len().saturating_sub(self.len)
    }

    /// Lets `show` write to `page`; returns the length of the text.
    ///
    /// # Safety
    ///
    /// `page` must be valid for writes of `PAGE_SIZE` initialised bytes, and nobody else may use
    /// them during the call.
    pub(super) unsafe fn fill(
        page: *mut c_char,
        show: impl FnOnce(&mut SysfsText<'_>) -> Result,
    ) -> Result<usize> {
        let mut text = SysfsText {
            // SAFETY: By the function's requirements.
            buf: unsafe { core::slice::from_raw_parts_mut(page.cast::<u8>(), TEXT_MAX) },
            len: 0,
            overflowed: false,
        };
        let result = show(&mut text);
        if text.overflowed {
            return Err(E2BIG);
        }
        result.map(|()| text.len)
    }

    /// Appends formatted text: `text.put(fmt!("{}\n", x))?`. `E2BIG` if it does not fit.
    pub(crate) fn put(&mut self, args: fmt::Arguments<'_>) -> Result {
        self.write_fmt(args).map_err(|_| E2BIG)
    }
}

impl Write for SysfsText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let bytes = text.as_bytes();
        let end = self.len.saturating_add(bytes.len());
        match self.buf.get_mut(self.len..end) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.len = end;
                Ok(())
            }
            None => {
                self.overflowed = true;
                Err(fmt::Error)
            }
        }
    }
}

/// Writes what a file shows. Task context, may sleep; the directory's removal waits for it.
pub(crate) type Show<T> = fn(&T, &mut SysfsText<'_>) -> Result;

/// Takes what was written to a file: 1 to 4096 raw bytes, the newline included.
///
/// The writer has `CAP_SYS_ADMIN`. One `write(2)` of more than 4096 bytes arrives as several
/// calls. Task context, may sleep; the directory's removal waits for it, so it must not remove the
/// directory itself.
pub(crate) type Store<T> = fn(&Arc<T>, &[u8]) -> Result;

/// One file of a directory: its name, mode and handlers.
pub(crate) struct Attr<T> {
    name: &'static CStr,
    mode: u16,
    show: Option<Show<T>>,
    store: Option<Store<T>>,
    /// The lock class of this file's active references, common to all directories that have it.
    #[cfg(CONFIG_DEBUG_LOCK_ALLOC)]
    key: kernel::sync::LockClassKey,
}

impl<T> Attr<T> {
    const fn new(
        name: &'static CStr,
        mode: u16,
        show: Option<Show<T>>,
        store: Option<Store<T>>,
    ) -> Self {
        Self {
            name,
            mode,
            show,
            store,
            #[cfg(CONFIG_DEBUG_LOCK_ALLOC)]
            // SAFETY: The key is used only through `&'static Attr`, so it neither moves nor is
            // dropped any more.
            key: unsafe { kernel::sync::LockClassKey::new_static() },
        }
    }

    /// A file that everybody may read (mode 0444).
    pub(crate) const fn ro(name: &'static CStr, show: Show<T>) -> Self {
        Self::new(name, 0o444, Some(show), None)
    }

    /// A file that everybody may read and root may write (mode 0644).
    pub(crate) const fn rw(name: &'static CStr, show: Show<T>, store: Store<T>) -> Self {
        Self::new(name, 0o644, Some(show), Some(store))
    }

    /// A file that root may write (mode 0200).
    pub(crate) const fn wo(name: &'static CStr, store: Store<T>) -> Self {
        Self::new(name, 0o200, None, Some(store))
    }

    /// The attribute for the C side.
    #[allow(clippy::needless_update)] // There are more fields with lockdep.
    pub(super) fn attribute(&'static self) -> bindings::attribute {
        bindings::attribute {
            name: self.name.as_char_ptr(),
            mode: self.mode,
            #[cfg(CONFIG_DEBUG_LOCK_ALLOC)]
            key: self.key.as_ptr(),
            ..pin_init::zeroed()
        }
    }
}

/// An object that has files.
pub(crate) trait Attributes: Sized + Send + Sync + 'static {
    /// The files; a `static` table inside the function.
    fn files() -> &'static [Attr<Self>];
}

/// One file of one directory, as registered with the C side.
///
/// # Invariants
///
/// Does not move and is not written while registered.
#[repr(C)]
pub(super) struct FileEntry<T: 'static, A> {
    /// First, so that a pointer to the attribute is one to the entry.
    attr: Opaque<A>,
    file: &'static Attr<T>,
    data: Arc<T>,
}

// SAFETY: The attribute is not written after construction, and the rest is `Send` if `T` is both.
unsafe impl<T: Send + Sync, A> Send for FileEntry<T, A> {}
// SAFETY: As above.
unsafe impl<T: Send + Sync, A> Sync for FileEntry<T, A> {}

impl<T: Attributes, A> FileEntry<T, A> {
    /// Allocates an entry for each file of `data`; `attr` makes the C attribute.
    pub(super) fn table(
        data: &Arc<T>,
        attr: impl Fn(bindings::attribute) -> A,
    ) -> Result<KVec<Self>> {
        let files = T::files();
        let mut table = KVec::with_capacity(files.len(), GFP_KERNEL)?;
        for file in files {
            let entry = Self {
                attr: Opaque::new(attr(file.attribute())),
                file,
                data: data.clone(),
            };
            table.push(entry, GFP_KERNEL)?;
        }
        Ok(table)
    }

    /// The pointer to register; handlers turn it back with [`Self::from_attr`].
    pub(super) fn attr_ptr(&self) -> *mut A {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// The entry whose attribute the C side passed to a handler.
    ///
    /// # Safety
    ///
    /// `attr` must come from [`Self::attr_ptr`] of an entry of this type that stays registered for
    /// `'a`.
    pub(super) unsafe fn from_attr<'a>(attr: *const A) -> &'a Self {
        // SAFETY: By the function's requirements, and since the attribute is the first field.
        unsafe { &*attr.cast::<Self>() }
    }

    /// Shows the file; returns the length of the text or a negative errno.
    ///
    /// # Safety
    ///
    /// `page` must be valid for writes of `PAGE_SIZE` initialised bytes, and nobody else may use
    /// them during the call.
    pub(super) unsafe fn show(&self, page: *mut c_char) -> isize {
        let Some(show) = self.file.show else {
            return errno(EIO);
        };
        // SAFETY: By the function's requirements.
        match unsafe { SysfsText::fill(page, |text| show(&self.data, text)) } {
            // CAST: At most `TEXT_MAX`.
            Ok(len) => len as isize,
            Err(error) => errno(error),
        }
    }

    /// Stores to the file; returns the number of bytes taken (all) or a negative errno.
    ///
    /// # Safety
    ///
    /// `buf` must be valid for reads of `len` bytes, at most `PAGE_SIZE`, that nobody writes during
    /// the call.
    pub(super) unsafe fn store(&self, buf: *const c_char, len: usize) -> isize {
        let Some(store) = self.file.store else {
            return errno(EIO);
        };
        // SAFETY: Called by a `write(2)`, so there is a current task.
        if !unsafe { bindings::capable(CAP_SYS_ADMIN) } {
            return errno(EPERM);
        }
        // SAFETY: By the function's requirements.
        let bytes = unsafe { core::slice::from_raw_parts(buf.cast::<u8>(), len) };
        match store(&self.data, bytes) {
            // CAST: At most `PAGE_SIZE`.
            Ok(()) => len as isize,
            Err(error) => errno(error),
        }
    }
}

// CAST: A small constant.
const CAP_SYS_ADMIN: kernel::ffi::c_int = bindings::CAP_SYS_ADMIN as kernel::ffi::c_int;

/// The `ssize_t` form of an error.
fn errno(error: Error) -> isize {
    // CAST: `isize` is at least as wide as `int` on every architecture.
    error.to_errno() as isize
}

/// A borrowed kobject: a parent for directories or a target of links.
///
/// # Invariants
///
/// The pointer is to an initialised `struct kobject` that stays valid for `'a`.
#[derive(Clone, Copy)]
pub(crate) struct KobjectRef<'a>(NonNull<bindings::kobject>, PhantomData<&'a ()>);

impl KobjectRef<'_> {
    /// Borrows a kobject.
    ///
    /// # Safety
    ///
    /// `kobj` must be a valid pointer to an initialised kobject that stays valid for the lifetime
    /// of the result.
    pub(super) unsafe fn from_raw(kobj: NonNull<bindings::kobject>) -> Self {
        // INVARIANT: By the function's requirements.
        Self(kobj, PhantomData)
    }

    pub(super) fn as_ptr(self) -> *mut bindings::kobject {
        self.0.as_ptr()
    }

    /// Makes a symbolic link called `name` in this directory. Task context; `EEXIST`, `ENOMEM`,
    /// `ENOENT` when the target has been removed, `EFAULT` when the directory has.
    pub(super) fn link(self, name: &CStr, target: KobjectRef<'_>) -> Result {
        // SAFETY: Both kobjects are valid by their type invariants, and the name is a string. A
        // removed kobject is detected under the symlink lock of sysfs.
        to_result(unsafe {
            bindings::sysfs_create_link_nowarn(self.as_ptr(), target.as_ptr(), name.as_char_ptr())
        })
    }

    /// Whether there is something called `name` in this directory. Task context.
    fn contains(self, name: &CStr) -> bool {
        // SAFETY: The kobject is valid by the type invariant. Whoever lends it out removes its
        // directory only afterwards, so the node stays as it is.
        let directory = unsafe { (*self.as_ptr()).sd };
        if directory.is_null() {
            return false;
        }
        // SAFETY: The node is valid, see above, and the name is a string.
        let node =
            unsafe { bindings::kernfs_find_and_get_ns(directory, name.as_char_ptr(), ptr::null()) };
        if node.is_null() {
            return false;
        }
        // SAFETY: Puts the reference that was got above.
        unsafe { bindings::kernfs_put(node) };
        true
    }

    /// Removes the link called `name`, if it is there. Task context.
    pub(super) fn unlink(self, name: &CStr) {
        // SAFETY: The kobject is valid by the type invariant, and the name is a string.
        unsafe { bindings::sysfs_remove_link(self.as_ptr(), name.as_char_ptr()) };
    }
}

impl<D: Driver> Disk<D> {
    /// The disk's directory.
    pub(crate) fn kobject(&self) -> KobjectRef<'_> {
        // SAFETY: The kobject is part of the disk's device, which lives as long as `self`.
        unsafe { KobjectRef::from_raw(NonNull::new_unchecked(self.kobj())) }
    }
}

impl MemberDevice {
    /// The block device's directory.
    pub(crate) fn kobject(&self) -> KobjectRef<'_> {
        // SAFETY: The kobject is part of the block device, which lives as long as `self`.
        unsafe { KobjectRef::from_raw(NonNull::new_unchecked(self.kobj())) }
    }
}

/// A directory in sysfs whose files show and store parts of a `T`.
///
/// Holds an [`Arc`] of the `T` (one a file). If the `T` keeps its own directory, say in a
/// `Mutex<Option<Kobject<Self>>>`, it must be taken out at tear-down, or the cycle leaks.
///
/// Dropping it removes the directory with its files and links, and waits for the handlers that
/// run; none runs afterwards. Task context, without locks that handlers take, and never in a handler
/// of this directory or of one above that is being removed: that is for a work item to do. Parents may
/// be removed before their children.
///
/// # Invariants
///
/// `kobj` is a kobject made by `kobject_create_and_add`, whose only other users may be the
/// registered `files`, which are entries for `kobj_attribute`s.
pub(crate) struct Kobject<T: Attributes> {
    kobj: NonNull<bindings::kobject>,
    files: KVec<FileEntry<T, bindings::kobj_attribute>>,
    /// Given back after the files have been removed.
    _count: Count,
}

// SAFETY: A kobject may be used and removed by any thread; the entries are `Send` as `T` is both.
unsafe impl<T: Attributes> Send for Kobject<T> {}
// SAFETY: What is done through a shared reference is allowed concurrently; sysfs has its own locks.
unsafe impl<T: Attributes> Sync for Kobject<T> {}

impl<T: Attributes> Drop for Kobject<T> {
    fn drop(&mut self) {
        let kobj = self.kobj.as_ptr();
        // SAFETY: The kobject is valid, and removed only here. This waits for the handlers, so that
        // `files` can be freed afterwards.
        unsafe { bindings::kobject_del(kobj) };
        // SAFETY: Puts the reference that `kobject_create_and_add` returned.
        unsafe { bindings::kobject_put(kobj) };
    }
}

impl<T: Attributes> Kobject<T> {
    /// Makes the directory `name` (with `!` for `/`) in `parent`, with the files of `data`.
    ///
    /// The files can be used before this returns. Task context. `EEXIST` if the name exists,
    /// `ENOMEM` (also if the name came into being at the same moment), `ENXIO` without a
    /// [`Runtime`](super::runtime::Runtime).
    pub(crate) fn add(parent: KobjectRef<'_>, name: &CStr, data: Arc<T>) -> Result<Self> {
        let count = REGISTERED.count()?;
        let files = FileEntry::table(&data, |attr| bindings::kobj_attribute {
            attr,
            __bindgen_anon_1: bindings::kobj_attribute__bindgen_ty_1 {
                show: Some(show_callback::<T>),
            },
            __bindgen_anon_2: bindings::kobj_attribute__bindgen_ty_2 {
                store: Some(store_callback::<T>),
            },
        })?;
        if parent.contains(name) {
            return Err(EEXIST);
        }
        // SAFETY: The parent is valid by its type invariant (the new kobject takes a reference to
        // it), and the name is a string, which is copied.
        let kobj = unsafe { bindings::kobject_create_and_add(name.as_char_ptr(), parent.as_ptr()) };
        // It does not say why; the name was free.
        let kobj = NonNull::new(kobj).ok_or(ENOMEM)?;
        // INVARIANT: The kobject is new, and the files are only known to this value.
        let this = Self {
            kobj,
            files,
            _count: count,
        };
        // From here on dropping it removes the directory with the files made so far.
        for file in this.files.iter() {
            // SAFETY: The entry stays where it is until `kobject_del` has removed the file: moving
            // the vector does not move its elements.
            to_result(unsafe {
                bindings::sysfs_create_file_ns(kobj.as_ptr(), file.attr_ptr().cast(), ptr::null())
            })?;
        }
        Ok(this)
    }

    /// This directory, as a parent or a target of links.
    pub(crate) fn kobject(&self) -> KobjectRef<'_> {
        // SAFETY: The kobject is valid for as long as `self` is.
        unsafe { KobjectRef::from_raw(self.kobj) }
    }

    /// Wakes the tasks that `poll()` the file called `file`. Task context.
    pub(crate) fn notify(&self, file: &CStr) {
        // SAFETY: The kobject is valid, and the name is a string.
        unsafe {
            bindings::sysfs_notify(self.kobj.as_ptr(), ptr::null(), file.as_char_ptr());
        }
    }

    /// Makes a symbolic link called `name` to `target` in this directory. Task context.
    ///
    /// # Errors
    ///
    /// `EEXIST`, `ENOMEM`, and `ENOENT` when the target has been removed meanwhile.
    pub(crate) fn link(&self, name: &CStr, target: KobjectRef<'_>) -> Result {
        self.kobject().link(name, target)
    }

    /// Removes the link called `name`, if it is there. Task context.
    pub(crate) fn unlink(&self, name: &CStr) {
        self.kobject().unlink(name);
    }
}

/// # Safety
///
/// Called by sysfs: `attr` is one that [`Kobject::add`] registered for a `T`, whose removal waits
/// for the call to return, and `buf` is a zeroed page.
unsafe extern "C" fn show_callback<T: Attributes>(
    _kobj: *mut bindings::kobject,
    attr: *mut bindings::kobj_attribute,
    buf: *mut c_char,
) -> isize {
    // SAFETY: By the function's requirements.
    let entry = unsafe { FileEntry::<T, _>::from_attr(attr.cast_const()) };
    // SAFETY: By the function's requirements.
    unsafe { entry.show(buf) }
}

/// # Safety
///
/// Called by sysfs: `attr` is one that [`Kobject::add`] registered for a `T`, whose removal waits
/// for the call to return, and `buf` holds `len` bytes, at most a page.
unsafe extern "C" fn store_callback<T: Attributes>(
    _kobj: *mut bindings::kobject,
    attr: *mut bindings::kobj_attribute,
    buf: *const c_char,
    len: usize,
) -> isize {
    // SAFETY: By the function's requirements.
    let entry = unsafe { FileEntry::<T, _>::from_attr(attr.cast_const()) };
    // SAFETY: By the function's requirements.
    unsafe { entry.store(buf, len) }
}
