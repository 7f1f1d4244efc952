// SPDX-License-Identifier: GPL-2.0

//! In which context the current code runs.

use super::sys;

/// Whether this is neither an interrupt nor a softirq nor code with softirqs disabled.
///
/// It says nothing of spinlocks held: on kernels without `CONFIG_PREEMPT_COUNT` nobody knows.
#[inline]
pub(crate) fn in_task() -> bool {
    // SAFETY: Only reads the preemption count of the current CPU.
    unsafe { sys::eraid_in_task() }
}
