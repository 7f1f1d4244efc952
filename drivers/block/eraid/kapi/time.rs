// SPDX-License-Identifier: GPL-2.0

//! The monotonic clock.

use kernel::bindings;

/// Nanoseconds of `CLOCK_MONOTONIC`; any context but NMI.
#[inline]
pub(crate) fn now_ns() -> u64 {
    // SAFETY: Always safe to call once timekeeping runs, which is before any module is loaded.
    let ns = unsafe { bindings::ktime_get() };
    // The clock starts at zero and never goes back.
    ns.unsigned_abs()
}

/// Microseconds of `CLOCK_MONOTONIC`; any context but NMI.
#[inline]
pub(crate) fn now_us() -> u64 {
    now_ns() / 1000
}
