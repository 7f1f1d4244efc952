// SPDX-License-Identifier: GPL-2.0

//! Read balancing: which of several copies a read is sent to.
//!
//! The copy with the smallest *expected wait* is asked: the commands its member has in hand and the
//! new one, times what the member takes for a command. Copies that differ little count as equal;
//! among those, neighbouring stripes prefer the same one, so that a sequential stream stays on one
//! member and all members are used.

use crate::units::{Micros, Slot};

/// log2 of the weight of the past in a smoothed time: a sample counts an eighth.
const SMOOTH_SHIFT: u32 = 3;

/// Expected waits count as equal up to half of the smallest above that: more than the noise of a
/// smoothed time, less than what one command makes of an idle member, which is twice as much.
const NEAR_SHIFT: u32 = 1;

/// What is known of an idle member becomes less certain: its time counts half after so many times
/// that time, a quarter after twice as long, and so on. So a member that seemed slow is tried again
/// at a cost of some percent of its time at most.
const HALF_LIFE_TIMES: u64 = 32;

/// The same for members that took very long.
const HALF_LIFE_MAX: u64 = 8_000_000;

/// Smoothed time that a member takes for a command: the mean of the last eight or so, in eighths of
/// a microsecond. 0 means that none was measured yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceTime(u64);

impl ServiceTime {
    /// Nothing was measured yet.
    pub const UNKNOWN: Self = Self(0);

    /// The time of [`Self::to_raw`].
    #[inline]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// A number to be kept where this type cannot be.
    #[inline]
    pub const fn to_raw(self) -> u64 {
        self.0
    }

    /// With one more command, which ended at `now`: a device works on a command from when it has
    /// it, but not before it has finished the previous one.
    #[inline]
    #[must_use]
    pub fn after(self, dispatched: Micros, previous_end: Micros, now: Micros) -> Self {
        let sample = now
            .saturating_sub(dispatched.max(previous_end))
            .get()
            .max(1);
        if self.0 == 0 {
            return Self(sample.saturating_mul(1 << SMOOTH_SHIFT));
        }
        // Never 0, since a sample is 1 at least.
        Self((self.0 - (self.0 >> SMOOTH_SHIFT)).saturating_add(sample))
    }

    /// What it counts for when the member has had nothing to do for `idle`: also what the next
    /// sample is added to, or a member that is well again would have to prove it many times.
    #[inline]
    #[must_use]
    pub fn aged(self, idle: Micros) -> Self {
        let time = self.0 >> SMOOTH_SHIFT;
        let half_life = time.saturating_mul(HALF_LIFE_TIMES).min(HALF_LIFE_MAX);
        let halves = idle.get() / half_life.max(1);
        match u32::try_from(halves) {
            Ok(halves @ 0..=63) if self.0 != 0 => Self((self.0 >> halves).max(1)),
            _ if self.0 != 0 => Self(1),
            _ => self,
        }
    }
}

/// A member that has a copy.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Its slot.
    pub slot: Slot,
    /// Commands it has in hand: in its device or waiting for it.
    pub in_hand: u32,
    /// What it takes for one.
    pub time: ServiceTime,
    /// How long it has had nothing to do; 0 while it has commands.
    pub idle: Micros,
}

impl Candidate {
    fn time(&self) -> ServiceTime {
        self.time.aged(self.idle)
    }

    /// The expected wait, where what is unknown counts as `unknown`.
    fn wait(&self, unknown: ServiceTime) -> u64 {
        let time = match self.time() {
            ServiceTime::UNKNOWN => unknown,
            time => time,
        };
        time.0.saturating_mul(u64::from(self.in_hand) + 1)
    }
}

/// The copy to read; `None` when there is none.
///
/// A member never measured counts as as fast as the fastest one, so that it gets reads and is. Of
/// copies with about the same expected wait that comes first whose slot is the next from `turn` on,
/// in an array of `members`. Neighbouring stripes have the same turn.
pub fn choose(
    copies: impl Iterator<Item = Candidate> + Clone,
    turn: u64,
    members: u8,
) -> Option<Slot> {
    let known = copies.clone().map(|copy| copy.time());
    let known = known.filter(|time| *time != ServiceTime::UNKNOWN);
    let fastest = known.min_by_key(|time| time.0).unwrap_or(ServiceTime(1));
    let best = copies.clone().map(|copy| copy.wait(fastest)).min()?;
    let limit = best.saturating_add(best >> NEAR_SHIFT);
    let near = copies.filter(|copy| copy.wait(fastest) <= limit);
    let place = |copy: &Candidate| {
        let behind = u64::from(copy.slot.get()).wrapping_add(turn);
        behind.checked_rem(u64::from(members))
    };
    near.min_by_key(place).map(|copy| copy.slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1000;

    fn slot(number: u8) -> Slot {
        Slot::new(number).unwrap()
    }

    /// The time of a member that took `us` for each of many commands.
    fn time(us: u64) -> ServiceTime {
        let mut time = ServiceTime::UNKNOWN;
        for i in 0..100 {
            time = time.after(Micros::ZERO, Micros::new(i * us), Micros::new((i + 1) * us));
        }
        time
    }

    /// Members with so many commands in hand and such times in µs (0: never measured).
    fn copies(of: &[(u32, u64)]) -> impl Iterator<Item = Candidate> + Clone + '_ {
        of.iter()
            .zip(0u8..)
            .map(|(&(in_hand, us), number)| Candidate {
                slot: slot(number),
                in_hand,
                time: if us == 0 {
                    ServiceTime::UNKNOWN
                } else {
                    time(us)
                },
                idle: Micros::ZERO,
            })
    }

    fn chosen(of: &[(u32, u64)], turn: u64) -> u8 {
        choose(copies(of), turn, of.len() as u8).unwrap().get()
    }

    #[test]
    fn a_sample_is_the_time_the_device_worked_on_it() {
        let at = Micros::new;
        let first = ServiceTime::UNKNOWN.after(at(100), at(40), at(180));
        assert_eq!(first, ServiceTime(80 << SMOOTH_SHIFT), "an idle device");
        let queued = ServiceTime::UNKNOWN.after(at(100), at(150), at(180));
        assert_eq!(queued, ServiceTime(30 << SMOOTH_SHIFT), "a busy device");
        let backwards = ServiceTime::UNKNOWN.after(at(100), at(200), at(180));
        assert_ne!(backwards, ServiceTime::UNKNOWN, "measured all the same");
    }

    #[test]
    fn times_follow_the_member() {
        let near = |time: ServiceTime, us: u64| {
            let got = time.to_raw() >> SMOOTH_SHIFT;
            assert!(got.abs_diff(us) * 100 <= us, "{got} µs are not {us}");
        };
        near(time(8 * MS), 8 * MS);
        let mut slower = time(8 * MS);
        for _ in 0..50 {
            slower = slower.after(Micros::ZERO, Micros::ZERO, Micros::new(80 * MS));
        }
        near(slower, 80 * MS);
        assert_eq!(ServiceTime::from_raw(slower.to_raw()), slower);
        let longest =
            ServiceTime(u64::MAX).after(Micros::ZERO, Micros::ZERO, Micros::new(u64::MAX));
        assert_ne!(longest, ServiceTime::UNKNOWN);
    }

    #[test]
    fn fewest_commands_among_equals() {
        assert_eq!(chosen(&[(3, 8 * MS), (1, 8 * MS), (5, 8 * MS)], 0), 1);
        assert_eq!(
            chosen(&[(1, 8 * MS), (0, 8 * MS)], 0),
            1,
            "an idle one first"
        );
        assert_eq!(choose(copies(&[]), 0, 2), None);
    }

    #[test]
    fn an_idle_slow_member_waits_until_the_others_are_as_late() {
        for depth in 0..6 {
            assert_eq!(chosen(&[(0, 80 * MS), (depth, 8 * MS)], 0), 1, "{depth}");
        }
        assert_eq!(chosen(&[(0, 80 * MS), (20, 8 * MS)], 1), 0);
    }

    #[test]
    fn streams_stay_on_one_member_and_all_are_used() {
        // As noisy as smoothed times of equal members are.
        let members = [(1, 8 * MS), (1, 9 * MS), (1, 7 * MS), (1, 10 * MS)];
        let mut used = [0; 4];
        for stripe in 0..4096u64 {
            let turn = stripe >> 4;
            let slot = chosen(&members, turn);
            assert_eq!(slot, chosen(&members, (stripe | 15) >> 4), "a neighbour");
            used[usize::from(slot)] += 1;
        }
        assert_eq!(used, [1024; 4]);
        // A stream does not move for one command more or less in a queue.
        assert_eq!(chosen(&[(5, 8 * MS), (4, 8 * MS)], 0), 0);
        assert_eq!(chosen(&[(4, 8 * MS), (5, 8 * MS)], 0), 0);
    }

    #[test]
    fn a_member_never_measured_is_tried() {
        assert_eq!(chosen(&[(0, 0), (0, 8 * MS)], 0), 0);
        assert_eq!(chosen(&[(0, 80 * MS), (0, 0), (0, 80 * MS)], 0), 0);
        assert_eq!(chosen(&[(1, 80 * MS), (0, 0), (1, 80 * MS)], 0), 1);
        assert_eq!(
            chosen(&[(3, 0), (0, 8 * MS)], 0),
            1,
            "not with more in hand"
        );
        assert_eq!(chosen(&[(0, 0), (0, 0)], 0), 0);
        assert_eq!(chosen(&[(0, 0), (0, 0)], 1), 1);
    }

    #[test]
    fn an_idle_member_is_tried_again_after_a_while() {
        let with_idle = |seconds: u64| {
            let [slow, fast] = [0, 1].map(slot);
            let copy = |slot, us, idle| Candidate {
                slot,
                in_hand: 0,
                time: time(us),
                idle,
            };
            let idle = Micros::new(seconds * 1000 * MS);
            let copies = [copy(slow, 80 * MS, idle), copy(fast, 8 * MS, Micros::ZERO)];
            choose(copies.into_iter(), 0, 2).unwrap()
        };
        assert_eq!(with_idle(0), slot(1));
        let back = time(80 * MS).aged(Micros::new(12_000 * MS));
        let back = back.after(Micros::ZERO, Micros::ZERO, Micros::new(8 * MS));
        assert!(
            back.to_raw() >> SMOOTH_SHIFT <= 12 * MS,
            "one sample is enough"
        );
        assert_eq!(with_idle(6), slot(1));
        assert_eq!(with_idle(9), slot(0));
        assert_eq!(with_idle(1 << 40), slot(0));
    }

    #[test]
    fn nothing_overflows() {
        let huge = Candidate {
            slot: slot(1),
            in_hand: u32::MAX,
            time: ServiceTime(u64::MAX),
            idle: Micros::ZERO,
        };
        assert_eq!(choose([huge].into_iter(), u64::MAX, 2), Some(slot(1)));
        assert_eq!(choose([huge].into_iter(), u64::MAX, 0), Some(slot(1)));
    }
}
