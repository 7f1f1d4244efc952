// SPDX-License-Identifier: GPL-2.0

//! Refusals as the kernel's errors.

use kernel::{error::code, prelude::*};

use eraid_hddsim_model::{
    refusal::{Errno, Refusal},
    refuse,
};

/// The error code of a refusal.
pub(crate) fn code_of(errno: Errno) -> Error {
    match errno {
        Errno::Range => code::ERANGE,
        Errno::Busy => code::EBUSY,
        Errno::Exist => code::EEXIST,
        Errno::NoDev => code::ENODEV,
        Errno::NoMem => code::ENOMEM,
        Errno::Perm => code::EPERM,
        Errno::Io => code::EIO,
        _ => code::EINVAL,
    }
}

/// A refusal for an error of the kernel while doing `what` with the drive `name`.
pub(crate) fn refused(error: Error, what: &str, name: &str) -> Refusal {
    let errno = match error {
        code::ENOMEM => Errno::NoMem,
        code::EBUSY => Errno::Busy,
        code::EEXIST => Errno::Exist,
        code::EINVAL => Errno::Inval,
        _ => Errno::Io,
    };
    refuse!(errno, "{what} {name}: error {}", error.to_errno())
}
