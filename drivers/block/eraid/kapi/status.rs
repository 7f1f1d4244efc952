// SPDX-License-Identifier: GPL-2.0

//! The result of a block command or request.
//!
//! C header: [`include/linux/blk_types.h`](srctree/include/linux/blk_types.h)

use kernel::{
    bindings,
    prelude::*, //
};

use super::sys;

/// The result of a block command or request, a `blk_status_t`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub(crate) struct Status(bindings::blk_status_t);

impl Status {
    /// Success.
    pub(crate) const OK: Self = Self(bindings::BLK_STS_OK as bindings::blk_status_t);
    /// The device does not support the operation.
    pub(crate) const NOTSUPP: Self = Self(sys::ERAID_CONST_BLK_STS_NOTSUPP);
    /// The device did not answer in time.
    pub(crate) const TIMEOUT: Self = Self(sys::ERAID_CONST_BLK_STS_TIMEOUT);
    /// The device has no space left for the write.
    pub(crate) const NOSPC: Self = Self(sys::ERAID_CONST_BLK_STS_NOSPC);
    /// The link to the device failed.
    pub(crate) const TRANSPORT: Self = Self(sys::ERAID_CONST_BLK_STS_TRANSPORT);
    /// The device refuses the command for good.
    pub(crate) const TARGET: Self = Self(sys::ERAID_CONST_BLK_STS_TARGET);
    /// Another host holds a reservation.
    pub(crate) const RESV_CONFLICT: Self = Self(sys::ERAID_CONST_BLK_STS_RESV_CONFLICT);
    /// The medium is unreadable or unwritable in the range.
    pub(crate) const MEDIUM: Self = Self(sys::ERAID_CONST_BLK_STS_MEDIUM);
    /// The data failed its integrity check.
    pub(crate) const PROTECTION: Self = Self(sys::ERAID_CONST_BLK_STS_PROTECTION);
    /// A resource of the system was exhausted.
    pub(crate) const RESOURCE: Self = Self(sys::ERAID_CONST_BLK_STS_RESOURCE);
    /// Any other error.
    pub(crate) const IOERR: Self = Self(sys::ERAID_CONST_BLK_STS_IOERR);
    /// The command would have had to wait and was not allowed to.
    pub(crate) const AGAIN: Self = Self(sys::ERAID_CONST_BLK_STS_AGAIN);
    /// A resource of the device was exhausted.
    pub(crate) const DEV_RESOURCE: Self = Self(sys::ERAID_CONST_BLK_STS_DEV_RESOURCE);
    /// The device is offline or on its way there.
    pub(crate) const OFFLINE: Self = Self(sys::ERAID_CONST_BLK_STS_OFFLINE);
    /// The device gave up within its command duration limit.
    pub(crate) const DURATION_LIMIT: Self = Self(sys::ERAID_CONST_BLK_STS_DURATION_LIMIT);
    /// The command's size or alignment is wrong.
    pub(crate) const INVAL: Self = Self(sys::ERAID_CONST_BLK_STS_INVAL);

    pub(super) const fn from_raw(raw: bindings::blk_status_t) -> Self {
        Self(raw)
    }

    pub(crate) const fn as_raw(self) -> bindings::blk_status_t {
        self.0
    }

    /// Converts into the errno that user space would see.
    pub(crate) fn to_result(self) -> Result {
        // SAFETY: The function only looks its argument up in a table.
        kernel::error::to_result(unsafe { bindings::blk_status_to_errno(self.0) })
    }

    /// Whether this is [`Status::OK`].
    pub(crate) fn is_ok(self) -> bool {
        self == Self::OK
    }

    /// Whether it speaks of the range that was asked for, and not of the device as a whole.
    pub(crate) fn is_of_range(self) -> bool {
        matches!(
            self,
            Self::MEDIUM
                | Self::IOERR
                | Self::PROTECTION
                | Self::TARGET
                | Self::TIMEOUT
                | Self::DURATION_LIMIT
        )
    }

    /// The name of the status, for log lines and trace events.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::OK => "ok",
            Self::NOTSUPP => "notsupp",
            Self::TIMEOUT => "timeout",
            Self::NOSPC => "nospc",
            Self::TRANSPORT => "transport",
            Self::TARGET => "target",
            Self::RESV_CONFLICT => "resv_conflict",
            Self::MEDIUM => "medium",
            Self::PROTECTION => "protection",
            Self::RESOURCE => "resource",
            Self::IOERR => "ioerr",
            Self::AGAIN => "again",
            Self::DEV_RESOURCE => "dev_resource",
            Self::OFFLINE => "offline",
            Self::DURATION_LIMIT => "duration_limit",
            Self::INVAL => "inval",
            _ => "other",
        }
    }
}
