// SPDX-License-Identifier: GPL-2.0

//! Log lines that name the array and the member, and their rate limit.
//!
//! `array_*!(array, "text {}", value)` prints `eraid: ARRAY: text ...`, `member_*!(array, member,
//! "text {}", value)` prints `eraid: ARRAY: MEMBER: text ...`. Names are anything that implements
//! the kernel's `Display`. The newline is added.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

use super::time::now_us;

/// How many lines of one call site pass within [`WINDOW_US`].
const BURST: u32 = 10;

/// The length of a rate limit window: 5 s, as `DEFAULT_RATELIMIT_INTERVAL`.
const WINDOW_US: u64 = 5_000_000;

/// The rate limit of one call site; any context.
///
/// Two CPUs opening a window at once may let a few lines more through.
pub(crate) struct RateLimit {
    window_start_us: Atomic<u64>,
    lines: Atomic<u32>,
    suppressed: Atomic<u32>,
}

impl RateLimit {
    /// A limit that nothing has used yet.
    pub(crate) const fn new() -> Self {
        Self {
            window_start_us: Atomic::new(0),
            lines: Atomic::new(0),
            suppressed: Atomic::new(0),
        }
    }

    /// Asks to print one line: `None` is no, `Some(n)` is yes, and `n` lines were suppressed since
    /// the last yes.
    pub(crate) fn admit(&self) -> Option<u32> {
        let now = now_us();
        let start = self.window_start_us.load(Relaxed);
        if now.saturating_sub(start) >= WINDOW_US
            && self.window_start_us.cmpxchg(start, now, Relaxed).is_ok()
        {
            self.lines.store(0, Relaxed);
        }
        if self.lines.load(Relaxed) < BURST {
            self.lines.add(1, Relaxed);
            Some(self.suppressed.xchg(0, Relaxed))
        } else {
            self.suppressed.add(1, Relaxed);
            None
        }
    }
}

macro_rules! array_info {
    ($array:expr, $($arg:tt)*) => {
        ::kernel::pr_info!("{}: {}\n", $array, ::kernel::prelude::fmt!($($arg)*))
    };
}

macro_rules! array_warn {
    ($array:expr, $($arg:tt)*) => {
        ::kernel::pr_warn!("{}: {}\n", $array, ::kernel::prelude::fmt!($($arg)*))
    };
}

macro_rules! array_err {
    ($array:expr, $($arg:tt)*) => {
        ::kernel::pr_err!("{}: {}\n", $array, ::kernel::prelude::fmt!($($arg)*))
    };
}

macro_rules! member_warn {
    ($array:expr, $member:expr, $($arg:tt)*) => {
        ::kernel::pr_warn!("{}: {}: {}\n", $array, $member, ::kernel::prelude::fmt!($($arg)*))
    };
}

/// Runs a `pr_*!`-like macro at most [`BURST`] times per [`WINDOW_US`] at this place.
macro_rules! ratelimited {
    ($print:ident, $array:expr, $($arg:tt)*) => {{
        static LIMIT: $crate::kapi::log::RateLimit = $crate::kapi::log::RateLimit::new();
        if let Some(suppressed) = LIMIT.admit() {
            if suppressed > 0 {
                $print!($array, "{} similar messages suppressed", suppressed);
            }
            $print!($array, $($arg)*);
        }
    }};
}

macro_rules! array_warn_ratelimited {
    ($array:expr, $($arg:tt)*) => { ratelimited!(array_warn, $array, $($arg)*) };
}

macro_rules! array_err_ratelimited {
    ($array:expr, $($arg:tt)*) => { ratelimited!(array_err, $array, $($arg)*) };
}

macro_rules! member_warn_ratelimited {
    ($array:expr, $member:expr, $($arg:tt)*) => {
        ratelimited!(array_warn, $array, "{}: {}", $member, ::kernel::prelude::fmt!($($arg)*))
    };
}
