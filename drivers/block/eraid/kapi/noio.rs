// SPDX-License-Identifier: GPL-2.0

//! A scope in which memory allocations cannot start I/O.
//!
//! C header: [`include/linux/sched/mm.h`](srctree/include/linux/sched/mm.h)

use super::sys;

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
