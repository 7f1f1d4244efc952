// SPDX-License-Identifier: GPL-2.0

//! What is learnt of members and of the load: the numbers that the choice of a way to read rests on.
//!
//! A [`MemberEstimate`] is told of each command of its member, an [`ArrayEstimate`] of each request.
//! Each keeps smoothed values only, so every call takes the same short time, and needs a lock of the
//! caller's around it. What a choice needs is copied out as a [`Snapshot`] and a [`Load`], plain
//! numbers that can be published for readers without the lock.
//!
//! Blocks are the 4 KiB that a drive reads or fails as a whole.
//! Documentation/design/read-policy.rst says where the constants come from.

use crate::queue::Class;
use crate::units::Micros;

/// Load is measured in windows of this length; a new one counts half.
pub const WINDOW: Micros = Micros(250_000);

/// No time counts for more than this, 67 s: a product of two and a fraction fits 64 bits.
const TIME_MAX: i64 = 1 << 26;

/// What a member is expected to take for a command before it has done one: a random read of a
/// 7200 rpm drive.
const SERVICE_START: i64 = 12_000;

/// What a block that needs the drive's retries is expected to take: three or four turns.
const RETRY_START: i64 = 30_000;

/// The time between requests before there were any.
const GAP_START: i64 = 8_000;

/// Longest time between requests that is told apart from none.
const GAP_MAX: i64 = 1_000_000;

/// One turn at 7200 rpm. A drive that retries takes whole turns, several; without retries a command
/// hardly ever takes two turns longer than usual.
const TURN: i64 = 8_333;

/// Half blocks after which what was counted of failures is halved: 2048 blocks.
const FAILURES_HALVED_AT: u32 = 4096;

/// Half blocks below which nothing is known of failures: 64 blocks.
const FAILURES_KNOWN_FROM: u32 = 128;

/// A time in µs as it is calculated with.
#[inline]
fn limited(time: Micros) -> i64 {
    i64::try_from(time.get()).map_or(TIME_MAX, |us| us.min(TIME_MAX))
}

/// A quotient; 0 where there is none.
#[inline]
pub(crate) fn quotient(a: i64, b: i64) -> i64 {
    a.checked_div(b).unwrap_or(0)
}

/// A smoothed time in µs, never negative; a sample counts one of 2^`SHIFT`.
#[derive(Clone, Copy, Debug)]
struct Smooth<const SHIFT: u32>(i64);

impl<const SHIFT: u32> Smooth<SHIFT> {
    const fn starting_at(us: i64) -> Self {
        Self(us << SHIFT)
    }

    #[inline]
    const fn get(self) -> i64 {
        self.0 >> SHIFT
    }

    /// With another sample, which may be negative.
    #[inline]
    fn add(&mut self, us: i64) {
        let us = us.clamp(-TIME_MAX, TIME_MAX);
        self.0 = (self.0 - (self.0 >> SHIFT) + us).max(0);
    }
}

/// Whether the drive may try a block again that it could not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retries {
    /// It tries as often as it wants.
    On,
    /// It is to fail the command instead.
    Off,
    /// It tries as often as it wants to read what it failed to read without: the last resort.
    LastResort,
}

/// How a read command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All blocks came.
    Good,
    /// A block could not be read.
    Bad {
        /// The blocks before it, as far as it shows: 0 also if the whole command failed with no
        /// word of where.
        good: u32,
    },
}

/// A read command that has ended.
#[derive(Clone, Copy, Debug)]
pub struct ReadDone {
    /// Its importance in the end: ordinary once it was promoted.
    pub class: Class,
    /// Whether the drive was allowed to retry.
    pub retries: Retries,
    /// Its length.
    pub blocks: u32,
    /// When it was given to the member's queue.
    pub queued: Micros,
    /// When it entered the device.
    pub dispatched: Micros,
    /// How it ended.
    pub end: End,
}

/// What a read command says about all members of the array; see [`ArrayEstimate::learn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lesson {
    /// Nothing.
    Nothing,
    /// The drive's retries of one block took so many µs.
    Retry(i64),
    /// A last resort took so many µs more than a command that needs no retries; may be negative.
    LastResort(i64),
    /// A command that failed took so many µs more than one that does not; may be negative.
    Error(i64),
}

/// What is known of a member, for a choice. Smoothed; zero is a legal value of every field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Time that its device works on a read without retries, in µs.
    pub service_us: u32,
    /// Time from when the member is given an ordinary read to its end, in µs.
    pub latency_us: u32,
    /// Probability that a block cannot be read without retries, in parts of 2^20.
    pub fail_q20: u32,
    /// Its drive says where a command failed: see [`MemberEstimate::tells_place`].
    pub tells_place: bool,
    /// Share of time in which the device works on ordinary commands, in parts of 1024, as of
    /// `measured`.
    pub busy_q10: u32,
    /// The end of the last window that `busy_q10` was measured in.
    pub measured: Micros,
    /// Commands in the device, and ordinary ones that wait for it.
    pub in_hand: u32,
    /// Since when its device, having commands, has finished none; zero while it has none.
    pub silent_since: Micros,
}

impl Snapshot {
    /// The busy share in parts of 1024 at `now`: half for each window in which nothing was measured.
    #[inline]
    pub fn busy_at(&self, now: Micros) -> u32 {
        let windows = now.saturating_sub(self.measured).get() / WINDOW.get();
        match u32::try_from(windows.saturating_sub(1)) {
            Ok(halves @ 0..=31) => self.busy_q10 >> halves,
            _ => 0,
        }
    }

    /// What the next command is expected to take in the device, in µs: as usual, or, if the device
    /// has commands and has been silent for much longer than retries explain, as long as that.
    #[inline]
    pub fn expected_us(&self, retry_us: u32, now: Micros) -> u32 {
        let silent = match self.silent_since {
            Micros::ZERO => 0,
            since => limited(now.saturating_sub(since)) as u32,
        };
        let usual = self.service_us;
        let suspicious = usual
            .saturating_mul(4)
            .max(usual.saturating_add(retry_us.saturating_mul(2)));
        match silent > suspicious {
            true => silent,
            false => usual,
        }
    }

    /// Whether the member is suspected of hanging; see [`Snapshot::expected_us`].
    #[inline]
    pub fn is_suspect(&self, retry_us: u32, now: Micros) -> bool {
        self.expected_us(retry_us, now) > self.service_us
    }
}

/// What is learnt of one member.
#[derive(Clone, Debug)]
pub struct MemberEstimate {
    service: Smooth<5>,
    latency: Smooth<6>,
    /// Blocks that could not be read without retries, of those counted in `half_blocks`.
    failures: u32,
    /// Twice the blocks known to have been tried.
    half_blocks: u32,
    /// Its drive says where a command failed.
    tells_place: bool,
    in_device: u32,
    /// When the device last finished a command, or got one while it had none.
    last_done: Micros,
    window: Micros,
    /// Time for ordinary commands in the window that began at `window`.
    busy_us: i64,
    /// Of the windows before.
    busy_q10: i64,
}

impl MemberEstimate {
    /// Nothing is known yet, at `now`.
    pub const fn new(now: Micros) -> Self {
        Self {
            service: Smooth::starting_at(SERVICE_START),
            latency: Smooth::starting_at(SERVICE_START),
            failures: 0,
            half_blocks: 0,
            tells_place: false,
            in_device: 0,
            last_done: now,
            window: now,
            busy_us: 0,
            busy_q10: 0,
        }
    }

    /// A command, of whatever kind, enters the device.
    #[inline]
    pub fn dispatched(&mut self, now: Micros) {
        if self.in_device == 0 {
            self.last_done = now;
        }
        self.in_device = self.in_device.saturating_add(1);
    }

    /// A command that is no read has ended, `dispatched` being when it entered the device. The
    /// device was busy for others meanwhile.
    #[inline]
    pub fn other_done(&mut self, dispatched: Micros, now: Micros) {
        self.finished(Class::Ordinary, dispatched, now);
    }

    /// A read has ended. `retry_us` is [`Load::retry_us`].
    pub fn read_done(&mut self, read: &ReadDone, retry_us: u32, now: Micros) -> Lesson {
        let time = self.finished(read.class, read.dispatched, now);
        let usual = self.service.get();
        match (read.retries, read.end) {
            (Retries::Off, End::Good) => {
                self.count(0, read.blocks.saturating_mul(2));
                // One command that hung says no more than one that was slow.
                let most = usual * 8 + i64::from(retry_us) * 2;
                self.service.add(time.min(most));
                self.waited(read, now);
                Lesson::Nothing
            }
            (Retries::Off, End::Bad { good }) => {
                let tried = self.tried_in_vain(read.blocks, good);
                self.count(1, tried);
                Lesson::Error(time - usual)
            }
            (Retries::On, End::Good) if time > usual + 2 * TURN => {
                let over = time - usual;
                let retry = i64::from(retry_us);
                let blocks = i64::from(read.blocks).max(1);
                let retried = quotient(over + retry / 2, retry).clamp(1, blocks);
                self.count(retried as u32, read.blocks.saturating_mul(2));
                Lesson::Retry(quotient(over, retried))
            }
            (Retries::On, End::Good) => {
                self.count(0, read.blocks.saturating_mul(2));
                self.service.add(time);
                self.waited(read, now);
                Lesson::Nothing
            }
            // Not counted: it was asked for because it had failed.
            (Retries::LastResort, _) => Lesson::LastResort(time - usual),
            (Retries::On, End::Bad { good }) => {
                let tried = self.tried_in_vain(read.blocks, good);
                self.count(1, tried);
                Lesson::Nothing
            }
        }
    }

    /// Whether its drive says where a command failed: it did so once. Until then a command that
    /// failed as a whole may have any of its blocks bad.
    #[inline]
    pub fn tells_place(&self) -> bool {
        self.tells_place
    }

    /// What to publish, with `in_hand` commands as [`Snapshot::in_hand`] says.
    #[inline]
    pub fn snapshot(&self, in_hand: u32) -> Snapshot {
        Snapshot {
            service_us: self.service.get() as u32,
            latency_us: self.latency.get() as u32,
            fail_q20: self.fail_q20(),
            tells_place: self.tells_place,
            busy_q10: self.busy_q10 as u32,
            measured: self.window,
            in_hand,
            silent_since: match self.in_device {
                0 => Micros::ZERO,
                _ => self.last_done,
            },
        }
    }

    #[inline]
    fn fail_q20(&self) -> u32 {
        if self.half_blocks < FAILURES_KNOWN_FROM {
            return 0;
        }
        let rate = quotient(i64::from(self.failures) << 21, i64::from(self.half_blocks));
        rate.min(1 << 20) as u32
    }

    /// A command has ended; returns for how long the device worked on it, in µs. That is from when
    /// it had it, but not before it had finished the previous one.
    #[inline]
    fn finished(&mut self, class: Class, dispatched: Micros, now: Micros) -> i64 {
        let time = limited(now.saturating_sub(dispatched.max(self.last_done)));
        self.in_device = self.in_device.saturating_sub(1);
        self.last_done = now;
        if class == Class::Ordinary {
            self.busy_us = self.busy_us.saturating_add(time);
        }
        self.end_windows(now);
        time
    }

    /// Measures the busy share if at least one window is over.
    #[inline]
    fn end_windows(&mut self, now: Micros) {
        let length = now.saturating_sub(self.window);
        if length < WINDOW {
            return;
        }
        let share = quotient(self.busy_us << 10, limited(length)).min(1 << 10);
        let halves = (length.get() / WINDOW.get()).min(31);
        self.busy_q10 = share + ((self.busy_q10 - share) >> halves);
        self.busy_us = 0;
        self.window = now;
    }

    /// An ordinary read ended well.
    #[inline]
    fn waited(&mut self, read: &ReadDone, now: Micros) {
        if read.class == Class::Ordinary {
            self.latency.add(limited(now.saturating_sub(read.queued)));
        }
    }

    /// The half blocks of a failed command that were tried: to the bad one, and if nobody knows
    /// where that is, to the middle, where it is on average.
    #[inline]
    fn tried_in_vain(&mut self, blocks: u32, good: u32) -> u32 {
        self.tells_place |= good > 0;
        match self.tells_place {
            true => good.min(blocks).saturating_add(1).saturating_mul(2),
            false => blocks.saturating_add(1),
        }
    }

    #[inline]
    fn count(&mut self, failures: u32, half_blocks: u32) {
        self.failures = self.failures.saturating_add(failures);
        self.half_blocks = self.half_blocks.saturating_add(half_blocks);
        if self.half_blocks >= FAILURES_HALVED_AT {
            self.failures /= 2;
            self.half_blocks /= 2;
        }
    }
}

/// What is known of an array as a whole, for a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// What the drive's retries of one block take, in µs.
    pub retry_us: u32,
    /// What a last resort takes more than a command that needs no retries, in µs: as long as retries
    /// if bad blocks stay bad, next to nothing if most can be read the next time.
    pub last_resort_us: u32,
    /// What a command that fails takes more than one that does not, in µs.
    pub error_us: u32,
    /// How long requests wait for others, in µs.
    pub queueing_us: u32,
    /// Time of members that there is for each request, in µs: their number times the mean time
    /// between requests.
    pub share_us: u32,
}

/// What is learnt of an array as a whole.
#[derive(Clone, Debug)]
pub struct ArrayEstimate {
    members: u8,
    retry: Smooth<4>,
    last_resort: Smooth<4>,
    error: Smooth<4>,
    queueing: Smooth<6>,
    gap_us: i64,
    window: Micros,
    /// Requests in the window that began at `window`.
    arrivals: u32,
}

impl ArrayEstimate {
    /// Nothing is known yet of an array of `members`, at `now`.
    pub const fn new(members: u8, now: Micros) -> Self {
        Self {
            members,
            retry: Smooth::starting_at(RETRY_START),
            last_resort: Smooth::starting_at(RETRY_START),
            error: Smooth::starting_at(0),
            queueing: Smooth::starting_at(0),
            gap_us: GAP_START,
            window: now,
            arrivals: 0,
        }
    }

    /// A request has arrived.
    #[inline]
    pub fn arrived(&mut self, now: Micros) {
        let length = now.saturating_sub(self.window);
        if length >= WINDOW {
            let gap = quotient(limited(length), i64::from(self.arrivals.max(1)));
            self.gap_us = (self.gap_us + gap.min(GAP_MAX)) / 2;
            self.window = now;
            self.arrivals = 0;
        }
        self.arrivals = self.arrivals.saturating_add(1);
    }

    /// A read request was answered after `latency` without any failure or hedge; `alone` is
    /// [`Choice::alone`](crate::policy::Choice::alone).
    #[inline]
    pub fn answered(&mut self, latency: Micros, alone: Micros) {
        self.queueing.add(limited(latency) - limited(alone));
    }

    /// What a command of one of its members has shown.
    #[inline]
    pub fn learn(&mut self, lesson: Lesson) {
        match lesson {
            Lesson::Nothing => {}
            Lesson::Retry(us) => self.retry.add(us),
            Lesson::LastResort(us) => {
                self.last_resort.add(us);
                if us > 2 * TURN {
                    self.retry.add(us);
                }
            }
            Lesson::Error(us) => self.error.add(us),
        }
    }

    /// What to publish.
    #[inline]
    pub fn load(&self) -> Load {
        Load {
            retry_us: self.retry.get() as u32,
            last_resort_us: self.last_resort.get() as u32,
            error_us: self.error.get() as u32,
            queueing_us: self.queueing.get() as u32,
            share_us: (i64::from(self.members) * self.gap_us).clamp(1, TIME_MAX) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1000;

    /// A member that is told of reads one after the other.
    struct Told {
        estimate: MemberEstimate,
        now: u64,
        retry_us: u32,
    }

    impl Told {
        fn new() -> Self {
            Told {
                estimate: MemberEstimate::new(Micros::ZERO),
                now: 0,
                retry_us: 42_000,
            }
        }

        /// A read of `blocks` that takes `us` in the idle device, and then a pause of `pause` µs.
        fn read(&mut self, retries: Retries, blocks: u32, end: End, us: u64, pause: u64) -> Lesson {
            let dispatched = Micros::new(self.now);
            self.estimate.dispatched(dispatched);
            self.now += us;
            let read = ReadDone {
                class: Class::Ordinary,
                retries,
                blocks,
                queued: dispatched,
                dispatched,
                end,
            };
            let now = Micros::new(self.now);
            let lesson = self.estimate.read_done(&read, self.retry_us, now);
            self.now += pause;
            lesson
        }

        fn snapshot(&self) -> Snapshot {
            self.estimate.snapshot(0)
        }
    }

    fn near(got: u32, expected: u32, percent: u32) {
        let off = got.abs_diff(expected) * 100;
        assert!(off <= expected * percent, "{got} is not {expected}");
    }

    #[test]
    fn service_is_the_time_in_the_device_and_latency_all_of_it() {
        let mut estimate = MemberEstimate::new(Micros::ZERO);
        // Always four commands; each takes 6 ms when its turn comes, and waits 10 ms before.
        let at = |n: u64| Micros::new(n * 6 * MS);
        (0..4).for_each(|n| estimate.dispatched(at(n)));
        for n in 4..1000 {
            let read = ReadDone {
                class: Class::Ordinary,
                retries: Retries::Off,
                blocks: 2,
                queued: at(n - 4).saturating_sub(Micros::new(10 * MS)),
                dispatched: at(n - 4),
                end: End::Good,
            };
            assert_eq!(estimate.read_done(&read, 30_000, at(n)), Lesson::Nothing);
            estimate.dispatched(at(n));
        }
        let snapshot = estimate.snapshot(7);
        near(snapshot.service_us, 6_000, 1);
        near(snapshot.latency_us, 34_000, 1);
        near(snapshot.busy_q10, 1024, 1);
        assert_eq!(snapshot.in_hand, 7);
    }

    #[test]
    fn one_hung_command_is_not_a_slow_member() {
        let mut told = Told::new();
        for _ in 0..200 {
            told.read(Retries::Off, 2, End::Good, 8 * MS, 0);
        }
        near(told.snapshot().service_us, 8_000, 1);
        told.read(Retries::Off, 2, End::Good, 30_000 * MS, 0);
        near(told.snapshot().service_us, 12_400, 2);
        for _ in 0..200 {
            told.read(Retries::Off, 2, End::Good, 80 * MS, 0);
        }
        near(told.snapshot().service_us, 80_000, 2);
    }

    #[test]
    fn failures_are_counted_to_the_first_bad_block() {
        // Every tenth block is bad: of commands of four blocks, 34% fail, at a known place or not.
        for known in [true, false] {
            let (mut told, mut block) = (Told::new(), 0u32);
            for _ in 0..20_000 {
                let draw = |n: u32| n.wrapping_mul(2_654_435_761) >> 8;
                let good = (0..4).take_while(|i| draw(block + i) % 10 != 0).count() as u32;
                block += 4;
                let end = match (good, known) {
                    (4, _) => End::Good,
                    (_, true) => End::Bad { good },
                    (_, false) => End::Bad { good: 0 },
                };
                told.read(Retries::Off, 4, end, 8 * MS, 0);
            }
            assert_eq!(told.estimate.tells_place(), known);
            near(told.snapshot().fail_q20, (1 << 20) / 10, 20);
        }
    }

    #[test]
    fn nothing_is_known_of_failures_at_first_and_they_are_forgotten() {
        let mut told = Told::new();
        for _ in 0..31 {
            told.read(Retries::Off, 2, End::Bad { good: 1 }, 8 * MS, 0);
        }
        assert_eq!(told.snapshot().fail_q20, 0);
        for _ in 0..1000 {
            told.read(Retries::Off, 2, End::Bad { good: 1 }, 8 * MS, 0);
        }
        near(told.snapshot().fail_q20, 1 << 19, 1);
        for _ in 0..20_000 {
            told.read(Retries::Off, 2, End::Good, 8 * MS, 0);
        }
        assert!(told.snapshot().fail_q20 < 1 << 12);
    }

    #[test]
    fn retries_are_seen_by_their_time() {
        let mut told = Told::new();
        for _ in 0..300 {
            told.read(Retries::Off, 4, End::Good, 12 * MS, 0);
        }
        assert_eq!(told.snapshot().fail_q20, 0);
        let lesson = told.read(Retries::On, 4, End::Good, 12 * MS + 84 * MS, 0);
        let Lesson::Retry(us) = lesson else {
            panic!("{lesson:?}")
        };
        assert!((41_500..42_500).contains(&us), "two blocks: {us}");
        assert_eq!(told.estimate.failures, 2);
        let usual = told.read(Retries::On, 4, End::Good, 12 * MS + 16 * MS, 0);
        assert_eq!(usual, Lesson::Nothing, "less than two turns");
        let before = told.estimate.half_blocks;
        // What it took longer than a usual one, which counts as one itself.
        let expected = 54_000 - told.estimate.service.get();
        let lesson = told.read(Retries::LastResort, 1, End::Good, 12 * MS + 42 * MS, 0);
        assert!(matches!(lesson, Lesson::LastResort(us) if us == expected));
        assert_eq!(told.estimate.half_blocks, before, "it had failed before");
    }

    #[test]
    fn errors_cost_what_they_take_longer() {
        let mut array = ArrayEstimate::new(6, Micros::ZERO);
        assert_eq!(array.load().error_us, 0);
        for _ in 0..200 {
            let mut told = Told::new();
            let end = End::Bad { good: 0 };
            array.learn(told.read(Retries::Off, 2, end, 62 * MS, 0));
            array.learn(Lesson::Retry(25_000));
            array.learn(Lesson::LastResort(300));
        }
        near(array.load().error_us, 50_000, 1);
        near(array.load().retry_us, 25_000, 1);
        near(array.load().last_resort_us, 300, 10);
        (0..200).for_each(|_| array.learn(Lesson::Error(-3_000)));
        assert_eq!(array.load().error_us, 0, "never negative");
        (0..200).for_each(|_| array.learn(Lesson::LastResort(41_000)));
        near(array.load().retry_us, 41_000, 1);
    }

    #[test]
    fn busy_is_the_share_of_time_and_ages() {
        let mut told = Told::new();
        for _ in 0..1000 {
            told.read(Retries::Off, 2, End::Good, 6 * MS, 18 * MS);
        }
        let snapshot = told.snapshot();
        near(snapshot.busy_q10, 256, 5);
        let after = |ms| snapshot.busy_at(snapshot.measured.saturating_add(Micros::new(ms * MS)));
        assert_eq!(after(0), snapshot.busy_q10);
        assert_eq!(after(499), snapshot.busy_q10);
        assert_eq!(after(1000), snapshot.busy_q10 >> 3);
        assert_eq!(after(3_600_000), 0);
        // The next read ends the pause: nothing was done in it.
        told.now += 60_000 * MS;
        told.read(Retries::Off, 2, End::Good, 6 * MS, 0);
        assert!(told.snapshot().busy_q10 <= 1);
        // Extra reads hold up nobody.
        let before = told.estimate.busy_us;
        told.estimate
            .finished(Class::Extra, Micros::ZERO, Micros::new(told.now + 5 * MS));
        assert_eq!(told.estimate.busy_us, before);
    }

    #[test]
    fn silence_counts_only_with_commands_and_only_when_long() {
        let mut told = Told::new();
        for _ in 0..300 {
            told.read(Retries::Off, 2, End::Good, 8 * MS, 0);
        }
        let idle = told.snapshot();
        let far = Micros::new(told.now + 60_000 * MS);
        assert_eq!(idle.expected_us(42_000, far), idle.service_us);
        told.estimate.dispatched(Micros::new(told.now));
        let held = told.snapshot();
        let after = |ms| held.expected_us(42_000, Micros::new(told.now + ms * MS));
        assert_eq!(after(90), held.service_us, "two retries");
        assert_eq!(after(100), 100_000);
        assert!(held.is_suspect(42_000, Micros::new(told.now + 100 * MS)));
        told.estimate
            .other_done(Micros::new(told.now), Micros::new(told.now + 500 * MS));
        assert!(!told.snapshot().is_suspect(42_000, far), "it came");
    }

    #[test]
    fn load_follows_arrivals_in_half_a_second() {
        let mut array = ArrayEstimate::new(6, Micros::ZERO);
        assert_eq!(array.load().share_us, 48_000);
        let mut now = 0;
        let mut run = |array: &mut ArrayEstimate, gap: u64, time: u64| {
            let end = now + time;
            while now < end {
                array.arrived(Micros::new(now));
                now += gap;
            }
            array.load().share_us
        };
        near(run(&mut array, 2 * MS, 3_000 * MS), 12_000, 2);
        let half = run(&mut array, 20 * MS, 600 * MS);
        assert!(half > 60_000, "{half}");
        near(run(&mut array, 20 * MS, 5_000 * MS), 120_000, 2);
        for _ in 0..1000 {
            array.answered(Micros::new(30 * MS), Micros::new(13 * MS));
        }
        near(array.load().queueing_us, 17_000, 1);
        for _ in 0..1000 {
            array.answered(Micros::new(3 * MS), Micros::new(13 * MS));
        }
        assert_eq!(array.load().queueing_us, 0, "never negative");
    }

    #[test]
    fn absurd_times_do_no_harm() {
        let mut told = Told::new();
        told.retry_us = u32::MAX;
        for us in [0, 1, u64::MAX / 4, 1 << 40] {
            for retries in [Retries::On, Retries::Off, Retries::LastResort] {
                for end in [End::Good, End::Bad { good: u32::MAX }] {
                    for blocks in [0, 1, u32::MAX] {
                        told.now %= 1 << 62;
                        told.read(retries, blocks, end, us, 0);
                    }
                }
            }
        }
        let snapshot = told.snapshot();
        assert!(snapshot.fail_q20 <= 1 << 20 && snapshot.busy_q10 <= 1 << 10);
        let late = Snapshot {
            service_us: u32::MAX,
            silent_since: Micros::new(1),
            ..snapshot
        };
        assert_eq!(late.expected_us(u32::MAX, Micros::new(u64::MAX)), u32::MAX);
    }
}
