// SPDX-License-Identifier: GPL-2.0

//! Refusals as the kernel's errors.

use kernel::{error::code, prelude::*};

use eraid_core::{
    refusal::{Errno, Refusal},
    refuse,
};

/// The error code of a refusal.
pub(crate) fn code_of(errno: Errno) -> Error {
    match errno {
        Errno::Inval => code::EINVAL,
        Errno::OpNotSupp => code::EOPNOTSUPP,
        Errno::Busy => code::EBUSY,
        Errno::NoDev => code::ENODEV,
        Errno::NoEnt => code::ENOENT,
        Errno::Exist => code::EEXIST,
        Errno::NoSpc => code::ENOSPC,
        Errno::Io => code::EIO,
        Errno::Perm => code::EPERM,
        Errno::RoFs => code::EROFS,
        Errno::FBig => code::EFBIG,
        Errno::Range => code::ERANGE,
        Errno::Uclean => code::EUCLEAN,
        Errno::NoMem => code::ENOMEM,
        Errno::TooMany => code::E2BIG,
        Errno::Intr => code::EINTR,
    }
}

/// A refusal for an error of the kernel, while doing `what` with `subject`.
pub(crate) fn refused(error: Error, what: &str, subject: &str) -> Refusal {
    let known = [
        (code::ENOMEM, Errno::NoMem, "out of memory"),
        (code::EBUSY, Errno::Busy, "in use"),
        (code::ENOENT, Errno::NoEnt, "no such file"),
        (code::ENOTBLK, Errno::Inval, "not a block device"),
        (code::ENXIO, Errno::NoDev, "no such device"),
        (code::ENODEV, Errno::NoDev, "no such device"),
        (code::EROFS, Errno::RoFs, "read-only"),
        (code::EACCES, Errno::RoFs, "read-only"),
        (code::EPERM, Errno::Perm, "not allowed"),
        (code::EEXIST, Errno::Exist, "exists already"),
        (code::EOPNOTSUPP, Errno::OpNotSupp, "not supported"),
        (code::EINVAL, Errno::Inval, "invalid"),
        (code::ENOSPC, Errno::NoSpc, "no space"),
        (code::EINTR, Errno::Intr, "interrupted"),
    ];
    let found = known.iter().find(|(code, _, _)| *code == error);
    let (errno, words) = found.map_or((Errno::Io, "input/output error"), |known| {
        (known.1, known.2)
    });
    refuse!(
        errno,
        "{what} {subject}: {words} (error {})",
        error.to_errno()
    )
}
