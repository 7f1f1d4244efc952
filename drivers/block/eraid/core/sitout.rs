// SPDX-License-Identifier: GPL-2.0

//! Sit-out: reads avoid a member for a while, or until told otherwise.
//!
//! A member that sits out is not failed: writes reach it, and so do reads that nothing else can
//! answer. [`Request`] and [`SitOut`] are what an administrator says and what a member is;
//! [`SitOuts`] are the members of an array, and what is decided when one is found to be slow:
//!
//! * It sits out for a term. At the end it is probed: reads that others answer are sent to it as well.
//!   If it is as fast as they are it comes back, else it sits for twice as long.
//! * A member that is found again soon after it came back sits for twice as long as the last time.
//!   Once a term has reached two hours it should be replaced.
//! * Never more members sit out than the redundancy allows.

use crate::outlier::{Finding, Reason};
use crate::refusal::{Errno, Refusal};
use crate::refuse;
use crate::units::{Micros, Slot, SlotSet, MAX_SLOTS};
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
    /// It was found to be slow.
    Slow(Term),
    /// Its term is over: probes tell whether it is still slow. Reads avoid it as before.
    Probed(Term, Probes),
}

/// For how long a slow member sits out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// Why.
    pub reason: Reason,
    /// How long; never more than [`TERM_MAX`] or what was asked for.
    pub length: Micros,
    /// When that is over.
    pub end: Micros,
    /// How slow it was: tenths of what its peers took.
    pub slowness: u32,
}

/// Reads that were sent to a member besides those that answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probes {
    count: u32,
    /// What they took, and what its peers took for the same reads, in µs.
    own: u64,
    peers: u64,
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
            SitOut::Probed(..) => 2,
            SitOut::Until(end) | SitOut::Slow(Term { end, .. }) => {
                let left = end.saturating_sub(now).get();
                left.div_ceil(MICROS_PER_SECOND).max(2)
            }
        }
    }

    /// The term of one that was found to be slow.
    #[inline]
    pub fn term(&self) -> Option<&Term> {
        match self {
            SitOut::Slow(term) | SitOut::Probed(term, _) => Some(term),
            _ => None,
        }
    }

    /// What `sit_out_reason` reads.
    #[inline]
    pub fn reason(&self) -> &'static str {
        match self {
            SitOut::Off => "none",
            SitOut::UntilCleared | SitOut::Until(_) => "manual",
            SitOut::Slow(term) | SitOut::Probed(term, _) => term.reason.as_str(),
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

/// The longest term: two hours. When a slow member has reached it, it should be replaced.
pub const TERM_MAX: Micros = Micros(7_200 * MICROS_PER_SECOND);

/// The first term after a stall: it may be over as soon as it came.
pub const TERM_STALL: Micros = Micros(30 * MICROS_PER_SECOND);

/// After so long in service one former sit-out is forgiven.
pub const FORGIVEN_AFTER: Micros = Micros(24 * 3_600 * MICROS_PER_SECOND);

/// Probes that decide.
pub const PROBES: u32 = 16;

/// Whether members sit out because they are slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Never.
    #[default]
    Off,
    /// It is only reported.
    Observe,
    /// They do.
    On,
}

/// Parameters; may be other ones at each call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `autosit`.
    pub mode: Mode,
    /// `raid_read_sit_out_secs`: the first term. Zero is as [`Mode::Off`].
    pub first: Micros,
    /// `sitout_max`: most members that sit out because they are slow, if the redundancy allows.
    pub most: u8,
    /// `peer_ratio_tenths`: how many times as long as its peers a member may take that comes back.
    pub ratio_tenths: u32,
}

impl Rules {
    /// Whether slow members are looked for.
    pub const fn is_on(&self) -> bool {
        !matches!(self.mode, Mode::Off) && self.first.get() > 0
    }

    /// Whether slow members sit out.
    const fn sits(&self) -> bool {
        matches!(self.mode, Mode::On) && self.is_on()
    }
}

/// What is to be done; the caller reports it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Reads avoid the member from now on, and those it has in hand are rescued. The finding is that
    /// of a slow one.
    Begin {
        /// The member.
        slot: Slot,
        /// What it was found for; `None` if the administrator said so.
        found: Option<Finding>,
        /// For how long; `None` until it is cleared.
        length: Option<Micros>,
    },
    /// The member is slow, but may only be watched.
    Observed(Finding),
    /// The term is over: some reads that avoid the member are also sent to it, at low priority, and
    /// [`SitOuts::probed`] is told of each.
    Probe {
        /// The member.
        slot: Slot,
    },
    /// It is still slow, and sits out for another term.
    Extended {
        /// The member.
        slot: Slot,
        /// For how long.
        length: Micros,
    },
    /// It is read again.
    End {
        /// The member.
        slot: Slot,
        /// Why.
        cause: Cause,
        /// How long it sat out.
        lasted: Micros,
    },
    /// It keeps being slow: the administrator should replace it.
    Replace {
        /// The member.
        slot: Slot,
        /// How often it was slow.
        offences: u8,
    },
}

/// Why a sit-out ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The probes were fast.
    Recovered,
    /// The time that the administrator gave is over.
    TimeOver,
    /// The administrator said so.
    Cleared,
    /// Members do not sit out any more for being slow.
    Disabled,
    /// Others have failed or recover, and it is needed.
    Needed,
    /// It has left the array, or has failed.
    Gone,
}

/// What is known of a member.
#[derive(Clone, Copy, Debug)]
struct Record {
    state: SitOut,
    /// Since when it sits out or is in service.
    since: Micros,
    /// How often it was slow, less what was forgiven.
    offences: u8,
    replace: Replace,
    /// Until when nothing more is said of it.
    observed: Micros,
}

/// Whether the administrator was told to replace a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replace {
    No,
    ToBeSaid,
    Said,
}

impl Record {
    const NEW: Self = Self {
        state: SitOut::Off,
        since: Micros::ZERO,
        offences: 0,
        replace: Replace::No,
        observed: Micros::ZERO,
    };

    fn enter(&mut self, state: SitOut, now: Micros) {
        self.state = state;
        self.since = now;
    }

    /// Ends a sit-out.
    fn end(&mut self, slot: Slot, cause: Cause, now: Micros) -> Action {
        let lasted = now.saturating_sub(self.since);
        self.enter(SitOut::Off, now);
        Action::End {
            slot,
            cause,
            lasted,
        }
    }

    /// Forgives what is long ago.
    fn forgive(&mut self, now: Micros) {
        let days = now.saturating_sub(self.since).get() / FORGIVEN_AFTER.get();
        self.offences = self
            .offences
            .saturating_sub(u8::try_from(days).unwrap_or(u8::MAX));
        if self.offences == 0 {
            self.replace = Replace::No;
        }
    }

    /// The next term, and one more offence.
    fn next_term(&mut self, reason: Reason, slowness: u32, rules: &Rules, now: Micros) -> Term {
        let first = match reason {
            Reason::Outlier => rules.first,
            Reason::Stall => rules.first.min(TERM_STALL),
        };
        let max = rules.first.max(TERM_MAX);
        let factor = 1u64.checked_shl(self.offences.into()).unwrap_or(u64::MAX);
        let length = Micros(first.get().saturating_mul(factor)).min(max);
        self.offences = self.offences.saturating_add(1);
        if length >= TERM_MAX && self.replace == Replace::No && self.offences > 1 {
            self.replace = Replace::ToBeSaid;
        }
        Term {
            reason,
            length,
            end: now.saturating_add(length),
            slowness,
        }
    }
}

/// The members of an array that sit out, and those that did.
///
/// Calls return what is to be done; [`Self::due`] has more of it until it returns nothing, also after
/// time has passed. Times are of a clock that never goes back.
#[derive(Clone, Debug)]
pub struct SitOuts {
    members: [Record; MAX_SLOTS],
}

impl SitOuts {
    /// All are read.
    pub const fn new() -> Self {
        Self {
            members: [Record::NEW; MAX_SLOTS],
        }
    }

    fn iter(&self) -> impl Iterator<Item = (Slot, &Record)> {
        (0..MAX_SLOTS as u8)
            .filter_map(Slot::new)
            .zip(&self.members)
    }

    fn set_of(&self, which: impl Fn(&SitOut) -> bool) -> SlotSet {
        let found = self.iter().filter(|(_, record)| which(&record.state));
        found.map(|(slot, _)| slot).collect()
    }

    /// The state of a member.
    pub fn state(&self, slot: Slot) -> SitOut {
        let record = self.members.get(slot.index());
        record.map_or(SitOut::Off, |record| record.state)
    }

    /// Members that sit out.
    pub fn sitting(&self) -> SlotSet {
        self.set_of(SitOut::is_out)
    }

    /// Members that are to be probed.
    pub fn probed_ones(&self) -> SlotSet {
        self.set_of(|state| matches!(state, SitOut::Probed(..)))
    }

    /// The members that reads of a stripe avoid, of which `spare` more may be missing: those that sit
    /// out, if there are too many only the slowest. What the administrator said counts most.
    pub fn avoided(&self, spare: u8) -> SlotSet {
        let mut left = self.sitting();
        let mut avoided = SlotSet::EMPTY;
        for _ in 0..spare {
            match self.by_slowness(left).max_by_key(|(slowness, _)| *slowness) {
                Some((_, slot)) => {
                    avoided.insert(slot);
                    left.remove(slot);
                }
                None => break,
            }
        }
        avoided
    }

    fn by_slowness(&self, among: SlotSet) -> impl Iterator<Item = (u32, Slot)> + '_ {
        let slowness = |state: &SitOut| state.term().map_or(u32::MAX, |term| term.slowness);
        self.iter()
            .filter(move |(slot, _)| among.contains(*slot))
            .map(move |(slot, record)| (slowness(&record.state), slot))
    }

    /// The administrator says something about a member. `allowed` is [`cap`].
    ///
    /// # Errors
    ///
    /// `EBUSY` when that would be more than may sit out.
    pub fn request(
        &mut self,
        slot: Slot,
        request: Request,
        allowed: u8,
        now: Micros,
    ) -> Result<Option<Action>, Refusal> {
        let sitting = self.sitting().without(slot).len() as u8;
        let Some(record) = self.members.get_mut(slot.index()) else {
            return Ok(None);
        };
        let length = match request {
            Request::End if record.state.is_out() => {
                return Ok(Some(record.end(slot, Cause::Cleared, now)))
            }
            Request::End => return Ok(None),
            Request::UntilCleared => None,
            Request::For(time) => Some(time),
        };
        if sitting >= allowed {
            return Err(too_many(sitting, allowed));
        }
        let since = match record.state.is_out() {
            true => record.since,
            false => now,
        };
        record.enter(SitOut::after(request, now), since);
        Ok(Some(Action::Begin {
            slot,
            found: None,
            length,
        }))
    }

    /// A member was found to be slow. `allowed` is [`cap`].
    pub fn found(
        &mut self,
        found: &Finding,
        rules: &Rules,
        allowed: u8,
        now: Micros,
    ) -> Option<Action> {
        let sitting = self.sitting();
        let slow = self.set_of(|state| state.term().is_some());
        let slot = found.slot;
        let record = self.members.get_mut(slot.index())?;
        if record.state.is_out() || !rules.is_on() {
            return None;
        }
        if !rules.sits() {
            if now < record.observed {
                return None;
            }
            record.observed = now.saturating_add(rules.first);
            return Some(Action::Observed(*found));
        }
        if sitting.len() >= u32::from(allowed) || slow.len() >= u32::from(rules.most) {
            return None;
        }
        record.forgive(now);
        let slowness = match found.reason {
            Reason::Outlier => tenths(found.value.get(), found.peer.get()),
            Reason::Stall => u32::MAX - 1,
        };
        let term = record.next_term(found.reason, slowness, rules, now);
        record.enter(SitOut::Slow(term), now);
        Some(Action::Begin {
            slot,
            found: Some(*found),
            length: Some(term.length),
        })
    }

    /// A probe took `own`, and the peers took `peers` for the same read. One that does not return is
    /// told as if it had, once it is older than any read should be.
    pub fn probed(
        &mut self,
        slot: Slot,
        own: Micros,
        peers: Micros,
        rules: &Rules,
        now: Micros,
    ) -> Option<Action> {
        let record = self.members.get_mut(slot.index())?;
        let SitOut::Probed(term, probes) = &mut record.state else {
            return None;
        };
        probes.count += 1;
        probes.own = probes.own.saturating_add(own.get());
        probes.peers = probes.peers.saturating_add(peers.get());
        if probes.count < PROBES {
            return None;
        }
        let (reason, slowness) = (term.reason, tenths(probes.own, probes.peers));
        if slowness <= rules.ratio_tenths {
            return Some(record.end(slot, Cause::Recovered, now));
        }
        let term = record.next_term(reason, slowness, rules, now);
        record.state = SitOut::Slow(term);
        Some(Action::Extended {
            slot,
            length: term.length,
        })
    }

    /// A member has failed, was removed or replaced: nothing is known of what is there next.
    pub fn gone(&mut self, slot: Slot, now: Micros) -> Option<Action> {
        let record = self.members.get_mut(slot.index())?;
        let sat = record.state.is_out();
        let action = record.end(slot, Cause::Gone, now);
        *record = Record {
            since: now,
            ..Record::NEW
        };
        sat.then_some(action)
    }

    /// What time, parameters or the redundancy make necessary; to be called until there is nothing.
    pub fn due(&mut self, rules: &Rules, allowed: u8, now: Micros) -> Option<Action> {
        if let Some(slot) = self.needed(rules, allowed) {
            let record = self.members.get_mut(slot.index())?;
            let cause = match rules.sits() {
                true => Cause::Needed,
                false => Cause::Disabled,
            };
            return Some(record.end(slot, cause, now));
        }
        for (number, record) in (0u8..).zip(&mut self.members) {
            let slot = Slot::masked(number.into());
            if record.replace == Replace::ToBeSaid {
                record.replace = Replace::Said;
                return Some(Action::Replace {
                    slot,
                    offences: record.offences,
                });
            }
            match record.state {
                SitOut::Until(end) if end <= now => {
                    return Some(record.end(slot, Cause::TimeOver, now));
                }
                SitOut::Slow(term) if term.end <= now => {
                    record.state = SitOut::Probed(term, Probes::default());
                    return Some(Action::Probe { slot });
                }
                _ => {}
            }
        }
        None
    }

    /// The least slow of the slow ones that sit out, if that are too many.
    fn needed(&self, rules: &Rules, allowed: u8) -> Option<Slot> {
        let slow = self.set_of(|state| state.term().is_some());
        let others = self.sitting().minus(slow).len();
        let most = match rules.sits() {
            true => u32::from(allowed)
                .saturating_sub(others)
                .min(rules.most.into()),
            false => 0,
        };
        if slow.len() <= most {
            return None;
        }
        let least = self.by_slowness(slow).min_by_key(|(slowness, _)| *slowness);
        least.map(|(_, slot)| slot)
    }
}

impl Default for SitOuts {
    fn default() -> Self {
        Self::new()
    }
}

/// A ratio in tenths, rounded up, less than what manual sit-outs count as.
fn tenths(own: u64, peers: u64) -> u32 {
    let ratio = own.saturating_mul(10).div_ceil(peers.max(1));
    u32::try_from(ratio).unwrap_or(u32::MAX).min(u32::MAX - 2)
}

fn too_many(sitting: u8, allowed: u8) -> Refusal {
    refuse!(
        Errno::Busy,
        "sit_out: {sitting} members sit out already and at most {allowed} may"
    )
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
