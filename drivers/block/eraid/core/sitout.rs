// SPDX-License-Identifier: GPL-2.0

//! Sit-out: reads avoid a member for a while, or until told otherwise.
//!
//! A member that sits out is not failed: writes reach it, and so do reads that nothing else can
//! answer.

use crate::refusal::{Errno, Refusal};
use crate::refuse;
use crate::units::Micros;
use crate::words::parse_number;

/// Longest time to sit out that can be asked for, in seconds: ten years.
pub const SECONDS_MAX: u64 = 315_360_000;

const MICROS_PER_SECOND: u64 = 1_000_000;

/// What was written to a member's `sit_out`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// 0: read it again.
    End,
    /// 1: sit out until cleared.
    UntilCleared,
    /// 2 or more: sit out for that time.
    For(Micros),
}

impl Request {
    /// Parses a line: 0, 1, or a number of seconds from 2 to [`SECONDS_MAX`].
    ///
    /// # Errors
    ///
    /// As [`parse_number`].
    pub fn parse(line: &[u8]) -> Result<Request, Refusal> {
        Ok(match parse_number("sit_out", line, 0..=SECONDS_MAX)? {
            0 => Request::End,
            1 => Request::UntilCleared,
            seconds => Request::For(Micros::new(seconds.saturating_mul(MICROS_PER_SECOND))),
        })
    }
}

/// Whether and how long a member sits out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SitOut {
    /// It is read as usual.
    #[default]
    Off,
    /// The administrator said so, until he says otherwise.
    UntilCleared,
    /// The administrator said so, until this time.
    Until(Micros),
}

impl SitOut {
    /// The state after `request` at time `now`.
    #[inline]
    pub fn after(request: Request, now: Micros) -> SitOut {
        match request {
            Request::End => SitOut::Off,
            Request::UntilCleared => SitOut::UntilCleared,
            Request::For(time) => SitOut::Until(now.saturating_add(time)),
        }
    }

    /// Whether reads avoid the member.
    #[inline]
    pub fn is_out(&self) -> bool {
        *self != SitOut::Off
    }

    /// Ends a sit-out whose time is over; `true` when this one just was.
    #[inline]
    pub fn expire(&mut self, now: Micros) -> bool {
        match *self {
            SitOut::Until(end) if end <= now => {
                *self = SitOut::Off;
                true
            }
            _ => false,
        }
    }

    /// What `sit_out` reads: 0, 1, or the seconds left, at least 2.
    #[inline]
    pub fn shown(&self, now: Micros) -> u64 {
        match *self {
            SitOut::Off => 0,
            SitOut::UntilCleared => 1,
            SitOut::Until(end) => {
                let left = end.saturating_sub(now).get();
                left.div_ceil(MICROS_PER_SECOND).max(2)
            }
        }
    }

    /// What `sit_out_reason` reads.
    #[inline]
    pub fn reason(&self) -> &'static str {
        match self {
            SitOut::Off => "none",
            SitOut::UntilCleared | SitOut::Until(_) => "manual",
        }
    }
}

/// How many members may sit out at a time: the parity that failed and recovering members leave.
#[inline]
pub fn cap(parity: u8, failed: u8, recovering: u8) -> u8 {
    parity.saturating_sub(failed).saturating_sub(recovering)
}

/// Checks that one more member may sit out beside the `sitting` ones.
///
/// # Errors
///
/// `EBUSY` when the cap is reached.
pub fn admit(parity: u8, failed: u8, recovering: u8, sitting: u8) -> Result<(), Refusal> {
    let cap = cap(parity, failed, recovering);
    if sitting < cap {
        return Ok(());
    }
    Err(refuse!(
        Errno::Busy,
        "sit_out: {sitting} members sit out already and at most {cap} may: parity {parity}, \
         {failed} failed, {recovering} recovering"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = MICROS_PER_SECOND;

    fn at(seconds: u64) -> Micros {
        Micros::new(seconds * SECOND)
    }

    #[test]
    fn requests() {
        assert_eq!(Request::parse(b"0\n"), Ok(Request::End));
        assert_eq!(Request::parse(b"1\n"), Ok(Request::UntilCleared));
        assert_eq!(Request::parse(b"2\n"), Ok(Request::For(at(2))));
        assert_eq!(Request::parse(b"600"), Ok(Request::For(at(600))));
        for bad in ["", "\n", "-1\n", "1.5\n", "on\n", "0x10\n", "1 2\n"] {
            assert_eq!(
                Request::parse(bad.as_bytes()).unwrap_err().errno,
                Errno::Inval,
                "{bad:?}"
            );
        }
        for huge in ["315360001\n", "100000000000000000000\n"] {
            let refusal = Request::parse(huge.as_bytes()).unwrap_err();
            assert_eq!(refusal.errno, Errno::Range);
            assert!(refusal.as_str().contains("0 to 315360000"), "{refusal}");
        }
    }

    #[test]
    fn timed_sit_out_ends_once() {
        let mut state = SitOut::after(Request::For(at(10)), at(100));
        assert!(state.is_out());
        assert_eq!(state.shown(at(100)), 10);
        assert_eq!(state.shown(Micros::new(100 * SECOND + 1)), 10);
        assert_eq!(state.shown(at(109)), 2, "1 means until cleared");
        assert!(!state.expire(Micros::new(110 * SECOND - 1)));
        assert!(state.expire(at(110)));
        assert!(!state.expire(at(110)));
        assert_eq!(
            (state.is_out(), state.shown(at(110)), state.reason()),
            (false, 0, "none")
        );
    }

    #[test]
    fn untimed_sit_out_stays() {
        let mut state = SitOut::after(Request::UntilCleared, at(1));
        assert!(!state.expire(Micros::new(u64::MAX)));
        assert_eq!((state.shown(at(5)), state.reason()), (1, "manual"));
        state = SitOut::after(Request::End, at(5));
        assert!(!state.is_out());
    }

    #[test]
    fn cap_shrinks_with_failures() {
        assert_eq!(cap(2, 0, 0), 2);
        assert_eq!(cap(2, 1, 0), 1);
        assert_eq!(cap(2, 1, 1), 0);
        assert_eq!(cap(1, 2, 1), 0);
        assert!(admit(2, 1, 0, 0).is_ok());
        let refusal = admit(1, 1, 0, 0).unwrap_err();
        assert_eq!(refusal.errno, Errno::Busy);
        assert!(refusal.as_str().contains("at most 0 may"), "{refusal}");
        assert!(
            admit(0, 0, 0, 0).is_err(),
            "RAID-0 has nothing to read instead"
        );
    }
}
