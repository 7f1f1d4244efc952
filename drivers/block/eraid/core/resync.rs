// SPDX-License-Identifier: GPL-2.0

//! A resync or recovery of one region: which stripes are done, in work, or still to come.
//!
//! A few workers take the stripes in their order. For a write, which holds its stripe from before it
//! plans until it is through, and for a member that is being caught up, a stripe is
//!
//! * *still to come*: the write leaves the member out; the worker gets the stripe after it;
//! * *in work*: the write leaves the member out, too. What the worker did before is void then, and it
//!   begins the stripe anew ([`Run::meets_write`]);
//! * *done*: the member has it all, and gets the write like any other ([`Run::reached`]).
//!
//! Calls are for one thread at a time (the caller's lock) and never wait.

use crate::units::{Micros, RegionNo, Sectors, Slot, SlotSet, StripeNo};

/// Workers of one array.
pub const WORKERS: usize = 4;

/// What is recomputed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Parity, or all copies but one.
    Parity,
    /// The blocks of one member.
    Member(Slot),
}

impl Goal {
    /// As `sync_action` has it.
    pub fn action(self) -> &'static str {
        match self {
            Goal::Parity => "resync",
            Goal::Member(_) => "recover",
        }
    }
}

/// How a run ended, or would if it ended now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// The goal is reached in every stripe.
    Done,
    /// Not in every stripe, but nothing is in the way of another attempt.
    Again,
    /// It cannot be reached at the moment.
    Impossible,
}

/// What a worker is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// This stripe, from its first row on.
    Stripe(StripeNo),
    /// Nothing more.
    Through {
        /// No other worker is at work any more.
        last: bool,
    },
}

/// How a worker goes on that has its stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Locked {
    /// With the next rows.
    GoOn,
    /// With the first rows: what it did was void.
    Anew,
    /// Not at all: the run has ended.
    InVain,
}

/// A stripe in work.
#[derive(Clone, Copy, Debug)]
struct Job {
    stripe: StripeNo,
    /// It is to be begun anew.
    again: bool,
}

/// A region in work.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The region.
    pub region: RegionNo,
    /// What is recomputed.
    pub goal: Goal,
    first: StripeNo,
    next: StripeNo,
    end: StripeNo,
    jobs: [Option<Job>; WORKERS],
    /// Workers that are not through.
    workers: usize,
    /// Not [`Outcome::Done`]: no stripe is taken up any more, and none counts as done.
    ended: Option<Outcome>,
}

impl Run {
    /// A run over the stripes from `first` to before `end`, for [`WORKERS`] workers.
    pub fn new(region: RegionNo, goal: Goal, first: StripeNo, end: StripeNo) -> Self {
        Self {
            region,
            goal,
            first,
            next: first,
            end,
            jobs: [None; WORKERS],
            workers: WORKERS,
            ended: None,
        }
    }

    /// Whether the goal is reached in `stripe`.
    pub fn reached(&self, stripe: StripeNo) -> bool {
        let mut busy = self.jobs.iter().flatten();
        self.ended.is_none()
            && (self.first..self.next).contains(&stripe)
            && !busy.any(|job| job.stripe == stripe)
    }

    /// A write to `stripe` plans: if a member is being caught up there at this moment, which thus is
    /// left out, the worker begins anew when it has the stripe again.
    pub fn meets_write(&mut self, stripe: StripeNo) {
        if self.goal == Goal::Parity {
            return;
        }
        for job in self.jobs.iter_mut().flatten() {
            job.again |= job.stripe == stripe;
        }
    }

    /// A write left out members that had all of the stripe: if one of them is being caught up,
    /// nothing of it is to be relied on, and the region is to be done again.
    pub fn left_out(&mut self, slots: SlotSet) {
        if matches!(self.goal, Goal::Member(slot) if slots.contains(slot)) {
            self.begin_again();
        }
    }

    /// It cannot be done.
    pub fn give_up(&mut self) {
        self.ended = Some(Outcome::Impossible);
    }

    /// What was done proves nothing any more: the region is to be looked at anew.
    pub fn begin_again(&mut self) {
        self.ended.get_or_insert(Outcome::Again);
    }

    /// Worker `index` is through with its stripe, if it had one; `stopped` when no more stripes are
    /// to be taken up.
    pub fn next(&mut self, index: usize, stopped: bool) -> Next {
        let going = self.ended.is_none() && !stopped;
        if let (true, Some(job)) = (going, self.jobs.get_mut(index)) {
            if let Some(job) = job.as_mut().filter(|job| job.again) {
                return Next::Stripe(job.stripe);
            }
            *job = None;
            if self.next < self.end {
                let stripe = self.next;
                self.next = stripe.next();
                *job = Some(Job {
                    stripe,
                    again: false,
                });
                return Next::Stripe(stripe);
            }
        }
        if let Some(job) = self.jobs.get_mut(index) {
            if job.take().is_some() {
                // Not all of it was done.
                self.begin_again();
            }
        }
        Next::Through { last: self.leave() }
    }

    /// Worker `index` has the lock of its stripe, to go on behind the first rows (`begun`) or to
    /// begin.
    pub fn locked(&mut self, index: usize, begun: bool) -> Locked {
        let job = self.jobs.get_mut(index).and_then(Option::as_mut);
        let again = job.is_some_and(|job| core::mem::replace(&mut job.again, false));
        match self.ended {
            Some(_) => Locked::InVain,
            None if again && begun => Locked::Anew,
            None => Locked::GoOn,
        }
    }

    /// A worker could not even be started; `true` when no other is at work.
    pub fn not_started(&mut self) -> bool {
        self.leave()
    }

    fn leave(&mut self) -> bool {
        self.workers = self.workers.saturating_sub(1);
        self.workers == 0
    }

    /// What it came to, once no worker is at work.
    pub fn outcome(&self) -> Outcome {
        match self.ended {
            Some(outcome) => outcome,
            None if self.next < self.end => Outcome::Again,
            None => Outcome::Done,
        }
    }

    /// Stripes done, and in all.
    pub fn progress(&self) -> (u64, u64) {
        let taken = self.next.0.saturating_sub(self.first.0);
        let busy = self.jobs.iter().flatten().count() as u64;
        let all = self.end.0.saturating_sub(self.first.0);
        (taken.saturating_sub(busy), all)
    }
}

/// Slowest speed that is aimed at under load, in KiB/s of each member, when none is set: md's.
pub const SPEED_MIN: u32 = 1000;

/// Highest speed in KiB/s of each member, when none is set: md's.
pub const SPEED_MAX: u32 = 200_000;

/// Sectors of a KiB.
const SECTORS_PER_KIB: u64 = 2;

/// Microseconds of a second.
const SECOND: u64 = 1_000_000;

/// Shortest time over which a speed is measured: looks in between do not count.
const MEASURED: Micros = Micros::new(SECOND * 9 / 10);

/// How fast resyncs and recoveries go, and how fast they may.
///
/// What may be taken up is granted once a second ([`Pace::tick`]), for the time since then, so the
/// speed is kept on average over a few seconds.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// In KiB/s of each member, as `max`.
    min: u32,
    max: u32,
    /// Sectors that may still be taken up; below 0 after a stripe larger than what was left.
    left: i64,
    /// Sectors taken up since `since`.
    taken: u64,
    since: Micros,
    /// Measured, in KiB/s; `None` before the first time.
    speed: Option<u64>,
}

impl Pace {
    /// md's limits; nothing is granted yet.
    pub const NEW: Pace = Pace {
        min: SPEED_MIN,
        max: SPEED_MAX,
        left: 0,
        taken: 0,
        since: Micros::ZERO,
        speed: None,
    };

    /// The lower limit, in KiB/s.
    pub fn min(&self) -> u32 {
        self.min
    }

    /// The upper limit, in KiB/s.
    pub fn max(&self) -> u32 {
        self.max
    }

    /// Sets the lower limit.
    pub fn set_min(&mut self, min: u32) {
        self.min = min;
    }

    /// Sets the upper limit; it holds from the next tick on.
    pub fn set_max(&mut self, max: u32) {
        self.max = max;
    }

    /// The speed of late, in KiB/s of each member; 0 before it was measured.
    pub fn speed(&self) -> u64 {
        self.speed.unwrap_or(0)
    }

    /// A run begins at `now` after nothing was in work: it may go on for a second.
    pub fn begin(&mut self, now: Micros) {
        self.speed = None;
        (self.taken, self.since) = (0, now);
        self.left = self.granted(SECOND);
    }

    /// Measures, and grants what may be taken up from `now` on. About once a second.
    pub fn tick(&mut self, now: Micros) {
        let elapsed = now.saturating_sub(self.since);
        if elapsed < MEASURED {
            return;
        }
        let kib = self.taken / SECTORS_PER_KIB;
        let speed = kib.saturating_mul(SECOND).checked_div(elapsed.get());
        let speed = speed.unwrap_or(0);
        // A time constant of four seconds.
        self.speed = Some(self.speed.map_or(speed, |old| (old * 3 + speed) / 4));
        (self.taken, self.since) = (0, now);
        let most = self.granted(SECOND);
        let more = self.granted(elapsed.get().min(4 * SECOND));
        self.left = self.left.saturating_add(more).min(most.max(more));
    }

    /// Whether another stripe may be taken up now.
    pub fn may_go(&self) -> bool {
        self.left > 0
    }

    /// So much of each member is taken up.
    pub fn took(&mut self, sectors: Sectors) {
        self.taken = self.taken.saturating_add(sectors.get());
        let sectors = i64::try_from(sectors.get()).unwrap_or(i64::MAX);
        self.left = self.left.saturating_sub(sectors);
    }

    /// Whether it is slower than the lower limit, so that it is not to let others go first.
    pub fn is_slow(&self) -> bool {
        self.speed.is_some_and(|speed| speed < u64::from(self.min))
    }

    /// Seconds that `sectors` take at the speed of late; `None` when nothing moves.
    pub fn seconds_for(&self, sectors: Sectors) -> Option<u64> {
        (sectors.get() / SECTORS_PER_KIB).checked_div(self.speed())
    }

    /// Sectors granted for so many microseconds.
    fn granted(&self, us: u64) -> i64 {
        // At most 4 s of 2^33 sectors.
        let sectors = u64::from(self.max) * SECTORS_PER_KIB * us / SECOND;
        i64::try_from(sectors).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(number: u64) -> Micros {
        Micros::new(number * SECOND)
    }

    #[test]
    fn no_faster_than_the_upper_limit_on_average() {
        let mut pace = Pace::NEW;
        assert!(!pace.may_go(), "nothing has begun");
        pace.set_max(1000);
        pace.begin(seconds(5));
        let stripe = Sectors::new(1024);
        let mut taken = 0;
        for second in 5..25 {
            while pace.may_go() {
                pace.took(stripe);
                taken += 512;
            }
            pace.tick(seconds(second + 1));
        }
        // 20 s of 1000 KiB; what is taken beyond in one is lacking in the next.
        assert!((20_000..20_512).contains(&taken), "{taken}");
        assert!((900..=1100).contains(&pace.speed()), "{}", pace.speed());
        assert_eq!(
            pace.seconds_for(Sectors::new(2 * 1000 * 60)),
            Some(60_000 / pace.speed())
        );
    }

    #[test]
    fn what_was_not_used_is_not_saved_up() {
        let mut pace = Pace::NEW;
        pace.set_max(1000);
        pace.begin(seconds(0));
        for second in 1..100 {
            pace.tick(seconds(second));
        }
        let mut taken = 0;
        while pace.may_go() {
            pace.took(Sectors::new(2));
            taken += 1;
        }
        assert_eq!(taken, 1000);
        assert_eq!(pace.seconds_for(Sectors::new(2)), None, "nothing moved");
    }

    #[test]
    fn slow_is_what_was_measured_to_be() {
        let mut pace = Pace::NEW;
        pace.begin(seconds(0));
        assert!(!pace.is_slow(), "nobody knows yet");
        pace.took(Sectors::new(2 * 500));
        pace.tick(Micros::new(1));
        assert!(!pace.is_slow(), "too early to tell");
        pace.tick(seconds(1));
        assert_eq!(pace.speed(), 500);
        assert!(pace.is_slow());
        pace.set_min(400);
        assert!(!pace.is_slow());
        pace.set_min(0);
        pace.begin(seconds(9));
        pace.tick(seconds(10));
        assert!(!pace.is_slow(), "0 turns it off");
    }

    #[test]
    fn a_limit_of_nothing_stops() {
        let mut pace = Pace::NEW;
        pace.set_max(0);
        pace.begin(seconds(0));
        pace.tick(seconds(1));
        assert!(!pace.may_go());
        pace.set_max(u32::MAX);
        pace.tick(seconds(1000));
        assert!(pace.may_go());
    }

    fn run(goal: Goal, stripes: u64) -> Run {
        Run::new(RegionNo(3), goal, StripeNo(100), StripeNo(100 + stripes))
    }

    fn slot(number: u8) -> Slot {
        Slot::new(number).unwrap()
    }

    const THROUGH: Next = Next::Through { last: false };
    const LAST: Next = Next::Through { last: true };

    fn stripe(number: u64) -> Next {
        Next::Stripe(StripeNo(number))
    }

    #[test]
    fn a_stripe_is_reached_when_its_worker_is_through() {
        let mut run = run(Goal::Parity, 3);
        assert_eq!(run.next(0, false), stripe(100));
        assert_eq!(run.next(1, false), stripe(101));
        assert!(!run.reached(StripeNo(100)));
        assert_eq!(run.next(1, false), stripe(102));
        assert!(run.reached(StripeNo(101)), "above one in work");
        assert!(!run.reached(StripeNo(100)));
        assert!(!run.reached(StripeNo(99)), "of the region before");
        assert_eq!(run.progress(), (1, 3));
        assert_eq!(run.next(0, false), THROUGH);
        assert_eq!(run.next(1, false), THROUGH);
        assert!(!run.not_started());
        assert!(run.not_started(), "the last one");
        assert_eq!(run.outcome(), Outcome::Done);
        assert!(run.reached(StripeNo(102)));
    }

    #[test]
    fn without_workers_nothing_is_done() {
        let mut run = run(Goal::Parity, 3);
        let left: [bool; WORKERS] = core::array::from_fn(|_| run.not_started());
        assert_eq!(left, [false, false, false, true]);
        assert_eq!(run.outcome(), Outcome::Again);
        assert!(!run.reached(StripeNo(100)));
    }

    #[test]
    fn a_write_in_between_makes_the_stripe_begin_anew() {
        let mut run = run(Goal::Member(slot(1)), 1);
        assert_eq!(run.next(0, false), stripe(100));
        // Before it has the lock: it comes after the write anyway.
        run.meets_write(StripeNo(100));
        assert_eq!(run.locked(0, false), Locked::GoOn);
        // Between two parts of the stripe.
        run.meets_write(StripeNo(100));
        assert_eq!(run.locked(0, true), Locked::Anew);
        assert_eq!(run.locked(0, true), Locked::GoOn);
        // After the last part.
        run.meets_write(StripeNo(100));
        assert_eq!(run.next(0, false), stripe(100));
        assert!(!run.reached(StripeNo(100)));
        assert_eq!(run.locked(0, false), Locked::GoOn);
        assert_eq!(run.next(0, false), THROUGH);
        run.meets_write(StripeNo(100));
        assert!(run.reached(StripeNo(100)));
        assert_eq!(run.outcome(), Outcome::Done);
    }

    #[test]
    fn parity_is_right_after_any_write() {
        let mut run = run(Goal::Parity, 1);
        assert_eq!(run.next(0, false), stripe(100));
        run.meets_write(StripeNo(100));
        assert_eq!(run.locked(0, true), Locked::GoOn);
        assert_eq!(run.next(0, false), THROUGH);
    }

    #[test]
    fn who_is_left_out_of_a_done_stripe_is_not_relied_on() {
        let mut run = run(Goal::Member(slot(1)), 2);
        assert_eq!(run.next(0, false), stripe(100));
        assert_eq!(run.next(0, false), stripe(101));
        run.left_out(SlotSet::single(slot(2)));
        assert!(run.reached(StripeNo(100)), "another one was left out");
        run.left_out(SlotSet::single(slot(1)));
        assert!(!run.reached(StripeNo(100)));
        assert_eq!(run.locked(0, true), Locked::InVain);
        assert_eq!(run.next(0, false), THROUGH);
        assert_eq!(run.outcome(), Outcome::Again);
        run.give_up();
        run.left_out(SlotSet::single(slot(1)));
        assert_eq!(run.outcome(), Outcome::Impossible);
    }

    #[test]
    fn stopped_is_not_done() {
        let mut run = run(Goal::Parity, 1);
        assert_eq!(run.next(0, false), stripe(100));
        for index in 1..WORKERS {
            assert_eq!(run.next(index, true), THROUGH);
        }
        assert_eq!(run.next(0, true), LAST);
        assert_eq!(run.outcome(), Outcome::Again);
    }
}
