// SPDX-License-Identifier: GPL-2.0

//! Tracepoints of system `eraid`.
//!
//! They are declared in shim/eraid_trace.h. All functions may be called in any context; while a
//! tracepoint is off, a call is a patched jump over its body. The kernel crate's `declare_trace!`
//! looks its symbols up in the kernel's own bindings and so cannot be used.
//!
//! C header: [`include/linux/tracepoint.h`](srctree/include/linux/tracepoint.h)

use core::marker::PhantomData;

use kernel::{
    bindings,
    ffi::c_int, //
};

/// A string for the C side; `struct eraid_str` of shim/eraid_trace.h.
///
/// # Invariants
///
/// `ptr` is valid for reads of `len` bytes for `'a`.
#[repr(C)]
struct Str<'a> {
    ptr: *const u8,
    len: usize,
    text: PhantomData<&'a str>,
}

impl<'a> From<&'a str> for Str<'a> {
    #[inline]
    fn from(text: &'a str) -> Self {
        // INVARIANT: A `str` is valid for its lifetime.
        Self {
            ptr: text.as_ptr(),
            len: text.len(),
            text: PhantomData,
        }
    }
}

/// Defines a function that fires a tracepoint of shim/eraid_trace.h.
macro_rules! tracepoint {
    ($name:ident($($arg:ident: $ty:ty),* $(,)?)) => {
        #[allow(clippy::too_many_arguments)]
        #[inline(always)]
        fn $name($($arg: $ty),*) {
            #[cfg(CONFIG_TRACEPOINTS)]
            ::kernel::macros::paste! {
                // The lock class in `struct tracepoint` is empty without lockdep.
                #[allow(improper_ctypes)]
                extern "C" {
                    static [<__tracepoint_ $name>]: bindings::tracepoint;
                    fn [<rust_do_trace_ $name>]($($arg: $ty),*);
                }
                // SAFETY: The key is that of a tracepoint defined by C.
                let enabled = unsafe {
                    ::kernel::jump_label::static_branch_unlikely!(
                        [<__tracepoint_ $name>],
                        bindings::tracepoint,
                        key
                    )
                };
                if enabled {
                    // SAFETY: The prototype is that of shim/eraid_trace.h, and the strings are valid
                    // for the call by the type invariant of `Str`.
                    unsafe { [<rust_do_trace_ $name>]($($arg),*) };
                }
            }
            #[cfg(not(CONFIG_TRACEPOINTS))]
            {
                $(let _ = $arg;)*
            }
        }
    };
}

tracepoint!(eraid_ereport(
    class: &Str<'_>,
    array: &Str<'_>,
    member: &Str<'_>,
    slot: c_int,
    reason: &Str<'_>,
    value: u64,
    peer: u64,
    fence: u64,
    windows: u32,
    duration_us: u64,
));
tracepoint!(eraid_read(
    array: &Str<'_>,
    mode: &Str<'_>,
    stripe: u64,
    sectors: u32,
    latency_us: u64,
));
tracepoint!(eraid_write(
    array: &Str<'_>,
    kind: &Str<'_>,
    stripe: u64,
    sectors: u32,
    latency_us: u64,
));
tracepoint!(eraid_reconstruct(
    array: &Str<'_>,
    stripe: u64,
    lo: u32,
    hi: u32,
    missing: u64,
));
tracepoint!(eraid_sync(
    array: &Str<'_>,
    action: &Str<'_>,
    done: u64,
    total: u64,
));

/// Something an administrator may want to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ereport<'a> {
    /// What happened, such as `ereport.block.eraid.delay`.
    pub(crate) class: &'a str,
    /// The array's name.
    pub(crate) array: &'a str,
    /// The member's device name, or nothing.
    pub(crate) member: &'a str,
    /// The member's slot, or -1.
    pub(crate) slot: i32,
    /// Why, in a word.
    pub(crate) reason: &'a str,
    /// What was measured; the unit follows from the class.
    pub(crate) value: u64,
    /// The same of the member's peers.
    pub(crate) peer: u64,
    /// The limit that `value` exceeded.
    pub(crate) fence: u64,
    /// The number of measurement windows in which it did.
    pub(crate) windows: u32,
    /// How long it lasted or will last, in microseconds.
    pub(crate) duration_us: u64,
}

/// Fires `eraid_ereport`.
#[inline]
pub(crate) fn trace_ereport(report: &Ereport<'_>) {
    eraid_ereport(
        &report.class.into(),
        &report.array.into(),
        &report.member.into(),
        report.slot,
        &report.reason.into(),
        report.value,
        report.peer,
        report.fence,
        report.windows,
        report.duration_us,
    );
}

/// Fires `eraid_read`: a read of `sectors` in `stripe` of the array ended after `latency_us`, served
/// in `mode`.
#[inline]
pub(crate) fn trace_read(array: &str, mode: &str, stripe: u64, sectors: u32, latency_us: u64) {
    eraid_read(&array.into(), &mode.into(), stripe, sectors, latency_us);
}

/// Fires `eraid_write`: a write of `sectors` in `stripe` of the array ended after `latency_us`; `kind`
/// says how parity was made.
#[inline]
pub(crate) fn trace_write(array: &str, kind: &str, stripe: u64, sectors: u32, latency_us: u64) {
    eraid_write(&array.into(), &kind.into(), stripe, sectors, latency_us);
}

/// A command to one member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SubReq<'a> {
    /// The array's name.
    pub(crate) array: &'a str,
    /// The member's slot.
    pub(crate) slot: u32,
    /// What is done: `read`, `write`, `flush`.
    pub(crate) op: &'a str,
    /// Where on the member, in 512-byte sectors.
    pub(crate) sector: u64,
    /// How much, in 512-byte sectors.
    pub(crate) sectors: u32,
    /// `ordinary` or `extra`.
    pub(crate) class: &'a str,
}

/// Defines a tracepoint of a [`SubReq`] with a `status`, and a function that fires it.
macro_rules! subreq_tracepoint {
    ($event:ident, $(#[$doc:meta])* $fire:ident) => {
        tracepoint!($event(
            array: &Str<'_>,
            slot: u32,
            op: &Str<'_>,
            sector: u64,
            sectors: u32,
            class: &Str<'_>,
            status: u8,
        ));

        $(#[$doc])*
        #[inline]
        pub(crate) fn $fire(sub: &SubReq<'_>, status: u8) {
            $event(
                &sub.array.into(),
                sub.slot,
                &sub.op.into(),
                sub.sector,
                sub.sectors,
                &sub.class.into(),
                status,
            );
        }
    };
}

subreq_tracepoint!(
    eraid_subreq_issue,
    /// Fires `eraid_subreq_issue`: the command was sent to the member; `status` is 0.
    trace_subreq_issue
);
subreq_tracepoint!(
    eraid_subreq_done,
    /// Fires `eraid_subreq_done`: the member ended the command with `status` (a `blk_status_t`).
    trace_subreq_done
);
subreq_tracepoint!(
    eraid_subreq_remove,
    /// Fires `eraid_subreq_remove`: the command was taken back before it was sent; `status` is 0.
    trace_subreq_remove
);

/// Fires `eraid_reconstruct`: rows `lo..hi` (sectors in the chunk) of `stripe` were computed for the
/// slots whose bits are set in `missing`.
#[inline]
pub(crate) fn trace_reconstruct(array: &str, stripe: u64, lo: u32, hi: u32, missing: u64) {
    eraid_reconstruct(&array.into(), stripe, lo, hi, missing);
}

/// Fires `eraid_sync`: `action` has done `done` of `total` sectors of a member.
#[inline]
pub(crate) fn trace_sync(array: &str, action: &str, done: u64, total: u64) {
    eraid_sync(&array.into(), &action.into(), done, total);
}
