// SPDX-License-Identifier: GPL-2.0

//! Scopes that change how the current task submits I/O and allocates memory.
//!
//! They are functions taking a closure, not guard objects: the task's plug is a pointer into some
//! stack frame, so it has to be put back in exactly the reverse order, which a guard that can be
//! moved or leaked does not ensure.
//!
//! C headers: [`include/linux/blkdev.h`](srctree/include/linux/blkdev.h),
//! [`include/linux/sched/mm.h`](srctree/include/linux/sched/mm.h)

use kernel::{
    bindings,
    types::Opaque, //
};

use super::sys;

/// Runs `f` while commands to devices are collected, sorted and merged; they are issued at the
/// end, or when the task sleeps.
///
/// To be called from task context. Within another such scope it has no effect, as in C.
pub(crate) fn with_plug<R>(f: impl FnOnce() -> R) -> R {
    let plug = Opaque::<bindings::blk_plug>::uninit();

    // SAFETY: `plug` is valid for writes. It stays in place until `blk_finish_plug()` below.
    unsafe { bindings::blk_start_plug(plug.get()) };
    let ret = f();
    // SAFETY: `plug` was initialised by `blk_start_plug()` above, on this task, and `f` cannot have
    // left another plug in its place: all functions of this module restore what they found.
    unsafe { bindings::blk_finish_plug(plug.get()) };
    ret
}

/// Runs `f` while commands go to their devices at once, even if a caller further up collects
/// commands.
///
/// To be called from task context.
pub(crate) fn without_plug<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: This only replaces a pointer in the current task; NULL means "no plug".
    let plug = unsafe { sys::eraid_plug_detach() };
    let ret = f();
    // SAFETY: `plug` was the current task's plug when this function was entered. Its owner is a
    // stack frame above us, so it still exists.
    unsafe { sys::eraid_plug_attach(plug) };
    ret
}

/// Runs `f` while memory allocations of the current task cannot start I/O, as if with `GFP_NOIO`.
///
/// To be called from task context.
pub(crate) fn without_io<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: This only sets a flag of the current task.
    let flags = unsafe { sys::eraid_noio_save() };
    let ret = f();
    // SAFETY: `flags` is what the matching `eraid_noio_save()` of this task returned.
    unsafe { sys::eraid_noio_restore(flags) };
    ret
}
