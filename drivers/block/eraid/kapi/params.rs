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
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

use super::{
    sys,
    sysfs::SysfsText, //
};

/// How an array reads when nothing is known to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum ReadPolicy {
    /// Each request in the way that is expected to be best.
    Auto,
    /// The wanted members only, with their own retries.
    Normal,
    /// The wanted members without retries; others are asked after an error.
    Failfast,
    /// All members without retries, those that are not wanted at low priority.
    Proactive,
}

impl ReadPolicy {
    const ALL: [Self; 4] = [Self::Auto, Self::Normal, Self::Failfast, Self::Proactive];

    /// Parses a written policy; one trailing newline is allowed.
    ///
    /// # Errors
    ///
    /// `EINVAL` for anything that is none.
    pub(crate) fn parse(text: &[u8]) -> Result<Self> {
        let name = text.strip_suffix(b"\n").unwrap_or(text);
        let mut all = Self::ALL.into_iter();
        all.find(|policy| policy.as_str().as_bytes() == name)
            .ok_or(EINVAL)
    }

    /// The policy of this number, as `as u32` gives it; the first one for any other.
    pub(crate) fn from_number(number: u32) -> Self {
        let mut all = Self::ALL.into_iter();
        all.find(|policy| *policy as u32 == number)
            .unwrap_or(Self::Auto)
    }

    /// The policy as it is written.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Normal => "normal",
            Self::Failfast => "failfast",
            Self::Proactive => "proactive",
        }
    }
}

/// The value of the module parameter `read_policy`.
static READ_POLICY: Atomic<u32> = Atomic::new(ReadPolicy::Auto as u32);

/// Module parameter `devices_handle_discard_safely`: whether what members return for discarded blocks
/// is the same each time. Any context.
pub(crate) fn discards_are_safe() -> bool {
    // SAFETY: Reading a parameter has no requirements.
    unsafe { sys::eraid_discards_are_safe() }
}

/// The read policy of new arrays: module parameter `read_policy`.
pub(crate) fn default_read_policy() -> ReadPolicy {
    ReadPolicy::from_number(READ_POLICY.load(Relaxed))
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
        let policy = ReadPolicy::parse(text.to_bytes())?;
        READ_POLICY.store(policy as u32, Relaxed);
        Ok(0)
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
