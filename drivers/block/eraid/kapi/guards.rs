// SPDX-License-Identifier: GPL-2.0

//! Scopes that change how the current task submits I/O.
//!
//! They are functions taking a closure, not guard objects: the task's plug is a pointer into some
//! stack frame, so it has to be put back in exactly the reverse order, which a guard that can be
//! moved or leaked does not ensure.
//!
//! C header: [`include/linux/blkdev.h`](srctree/include/linux/blkdev.h)

use core::mem::MaybeUninit;
use kernel::bindings;

use super::sys;

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

/// Runs `f` while commands are collected, to be merged, and go to their devices when it returns or
/// sleeps. A plug of a caller further up, which might be held for long, has no part in it.
///
/// To be called from task context.
pub(super) fn with_own_plug<R>(f: impl FnOnce() -> R) -> R {
    without_plug(|| {
        let mut plug = MaybeUninit::<bindings::blk_plug>::uninit();
        let plug = plug.as_mut_ptr();
        // SAFETY: `plug` is valid for writes, and does not move before `blk_finish_plug()`, which
        // follows in this function.
        unsafe { bindings::blk_start_plug(plug) };
        let ret = f();
        // SAFETY: The counterpart of the call above.
        unsafe { bindings::blk_finish_plug(plug) };
        ret
    })
}
