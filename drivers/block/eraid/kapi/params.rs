// SPDX-License-Identifier: GPL-2.0

//! Module parameters that can be changed at run time.
//!
//! The kernel crate's parameters are set once, when the module is loaded. Those here are declared
//! in shim/params.c (mode 0644) and read and written by the functions of this file.

use kernel::{
    bindings,
    error::from_result,
    ffi::{
        c_char,
        c_int, //
    },
    prelude::*, //
};

use super::{
    sys,
    sysfs::SysfsText, //
};

/// How an array reads when nothing is known to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadPolicy {
    /// The wanted members only, with their own retries.
    Normal,
}

impl ReadPolicy {
    /// Parses a written policy; one trailing newline is allowed.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for a policy that this version lacks, `EINVAL` for anything else.
    pub(crate) fn parse(text: &[u8]) -> Result<Self> {
        match text.strip_suffix(b"\n").unwrap_or(text) {
            b"normal" => Ok(Self::Normal),
            b"auto" | b"failfast" | b"proactive" => Err(EOPNOTSUPP),
            _ => Err(EINVAL),
        }
    }

    /// The policy as it is written.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
        }
    }
}

/// Module parameter `devices_handle_discard_safely`: whether what members return for discarded blocks
/// is the same each time. Any context.
pub(crate) fn discards_are_safe() -> bool {
    // SAFETY: Reading a parameter has no requirements.
    unsafe { sys::eraid_discards_are_safe() }
}

/// The read policy of new arrays: module parameter `read_policy`.
pub(crate) fn default_read_policy() -> ReadPolicy {
    ReadPolicy::Normal
}

/// Sets `read_policy`.
///
/// # Safety
///
/// Called by the kernel: `val` is NULL or a NUL-terminated string.
#[no_mangle]
unsafe extern "C" fn eraid_read_policy_set(
    val: *const c_char,
    _param: *const bindings::kernel_param,
) -> c_int {
    from_result(|| {
        if val.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: By the function's requirements.
        let text = unsafe { CStr::from_char_ptr(val) };
        // There is nothing to remember while there is but one policy.
        ReadPolicy::parse(text.to_bytes()).map(|_| 0)
    })
}

/// Shows `read_policy`.
///
/// # Safety
///
/// Called by the kernel: `buffer` is a page of initialised bytes that nobody else uses.
#[no_mangle]
unsafe extern "C" fn eraid_read_policy_get(
    buffer: *mut c_char,
    _param: *const bindings::kernel_param,
) -> c_int {
    from_result(|| {
        // SAFETY: By the function's requirements.
        let len = unsafe {
            SysfsText::fill(buffer, |text| {
                text.put(fmt!("{}\n", default_read_policy().as_str()))
            })
        }?;
        Ok(c_int::try_from(len)?)
    })
}
