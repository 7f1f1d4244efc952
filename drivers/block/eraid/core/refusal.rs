// SPDX-License-Identifier: GPL-2.0

//! Refusals: an error code together with one line an administrator can act on.

use crate::text::TextBuf;
use core::fmt;

/// The error codes a refusal can carry, named as in `errno(3)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errno {
    /// The request itself is malformed or contradicts itself.
    Inval,
    /// The request is understood, but this version cannot do it.
    OpNotSupp,
    /// Something is in use.
    Busy,
    /// No such device.
    NoDev,
    /// No such array, file or member.
    NoEnt,
    /// The name or the member is taken already.
    Exist,
    /// Not enough room.
    NoSpc,
    /// A device answered with an error.
    Io,
    /// Not allowed.
    Perm,
    /// A device or the array is read-only.
    RoFs,
    /// Larger than can be handled.
    FBig,
    /// A number is out of its range.
    Range,
    /// Data may be inconsistent; the administrator has to decide.
    Uclean,
    /// Memory is short.
    NoMem,
    /// Too many members or arrays.
    TooMany,
    /// The process was killed while it waited.
    Intr,
}

impl Errno {
    /// The name in `errno(3)`, such as `EINVAL`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Errno::Inval => "EINVAL",
            Errno::OpNotSupp => "EOPNOTSUPP",
            Errno::Busy => "EBUSY",
            Errno::NoDev => "ENODEV",
            Errno::NoEnt => "ENOENT",
            Errno::Exist => "EEXIST",
            Errno::NoSpc => "ENOSPC",
            Errno::Io => "EIO",
            Errno::Perm => "EPERM",
            Errno::RoFs => "EROFS",
            Errno::FBig => "EFBIG",
            Errno::Range => "ERANGE",
            Errno::Uclean => "EUCLEAN",
            Errno::NoMem => "ENOMEM",
            Errno::TooMany => "E2BIG",
            Errno::Intr => "EINTR",
        }
    }
}

/// Why something was refused.
///
/// The text is what an administrator reads in `last_error`: what is wrong, with the name and the
/// numbers, and what to do about it. Nothing was changed when a refusal is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The code the write fails with.
    pub errno: Errno,
    /// The line for the administrator.
    pub text: TextBuf<200>,
}

impl Refusal {
    /// A refusal with a formatted text; [`refuse!`](crate::refuse) is the short form.
    pub fn new(errno: Errno, args: fmt::Arguments<'_>) -> Refusal {
        Refusal {
            errno,
            text: TextBuf::format(args),
        }
    }

    /// The line for the administrator.
    #[inline]
    pub fn as_str(&self) -> &str {
        self.text.as_str()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.errno.as_str(), self.as_str())
    }
}

/// Makes a [`Refusal`]: `refuse!(Errno::Inval, "level {n} is not known")`.
#[macro_export]
macro_rules! refuse {
    ($errno:expr, $($arg:tt)+) => {
        $crate::refusal::Refusal::new($errno, ::core::format_args!($($arg)+))
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macro_formats() {
        let level = 7;
        let refusal = refuse!(Errno::OpNotSupp, "level {level}, {}", "chunk");
        assert_eq!(refusal.to_string(), "EOPNOTSUPP: level 7, chunk");
        assert!(refuse!(Errno::Inval, "{}", "x".repeat(300))
            .as_str()
            .ends_with("..."));
    }
}
