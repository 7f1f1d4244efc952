// SPDX-License-Identifier: GPL-2.0

//! Detectors: which member is slow among its peers.
//!
//! All look at the same [`Observation`]s whenever the caller wants, with a time that never goes back,
//! and remember what they need of former looks. Members are compared within one [`Media`] class. What
//! slows down all of them, a controller or the load, moves the peers as well and is nobody's fault.
//!
//! Documentation/design/slow-members.rst says how they compare and where the defaults come from.

use core::num::NonZeroU64;

use crate::latency::{Ewma, Kind, Reads, Sum};
use crate::units::{Micros, Slot, SlotSet, MAX_SLOTS};

/// What a member is made of: only equal ones are peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// Discs that rotate.
    Rotational,
    /// Flash and the like.
    Solid,
}

impl Media {
    /// All of them.
    pub const ALL: [Media; 2] = [Media::Rotational, Media::Solid];
}

/// What there is to see of a member.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    /// What it is made of.
    pub media: Media,
    /// Its reads since the array was assembled, never fewer than at an earlier look, with the times
    /// from dispatch to completion.
    pub reads: Reads,
    /// The same reads, with what the device worked on each: from when it had the read, but not before
    /// it had finished the previous command.
    pub work: Reads,
    /// When the oldest read that its device holds was dispatched.
    pub oldest: Option<Micros>,
    /// When a read of it was last completed; zero if none was.
    pub last_done: Micros,
}

impl Observation {
    /// What there is to see of a member that was never read.
    pub const fn new(media: Media) -> Self {
        let none = Reads {
            small: Sum { count: 0, us: 0 },
            large: Sum { count: 0, us: 0 },
        };
        Self {
            media,
            reads: none,
            work: none,
            oldest: None,
            last_done: Micros::ZERO,
        }
    }

    /// What is compared with peers. Discs do one thing at a time, and how long their queues are
    /// says more about the load than about them; flash does many.
    fn comparable(&self, kind: Kind) -> Sum {
        let reads = match self.media {
            Media::Rotational => &self.work,
            Media::Solid => &self.reads,
        };
        match kind {
            Kind::LargeRead => reads.large,
            _ => reads.small,
        }
    }
}

/// The members of an array, by slot, and which of them are compared: those that are read as usual.
#[derive(Clone, Copy, Debug)]
pub struct Members<'a> {
    seen: &'a [Observation],
    compared: SlotSet,
}

impl<'a> Members<'a> {
    /// `seen` has an entry for each slot; beyond [`MAX_SLOTS`] there are none.
    pub fn new(seen: &'a [Observation], compared: SlotSet) -> Self {
        Self { seen, compared }
    }

    /// Those that are compared.
    fn iter(self) -> impl Iterator<Item = (Slot, &'a Observation)> + Clone {
        self.all()
            .filter(move |(slot, _)| self.compared.contains(*slot))
    }

    fn all(self) -> impl Iterator<Item = (Slot, &'a Observation)> + Clone {
        (0..MAX_SLOTS as u8)
            .filter_map(Slot::new)
            .zip(self.seen.iter())
    }
}

/// What is wrong with a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its reads take longer than those of its peers.
    Outlier,
    /// It answers nothing while its peers do.
    Stall,
}

impl Reason {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::Outlier => "outlier",
            Reason::Stall => "stall",
        }
    }
}

/// A member that was found to be slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The member.
    pub slot: Slot,
    /// What is wrong with it.
    pub reason: Reason,
    /// What its reads took lately, or how old its oldest one is.
    pub value: Micros,
    /// The same of its peers.
    pub peer: Micros,
    /// What would have been acceptable.
    pub fence: Micros,
    /// Windows, or hits, that led to this.
    pub windows: u32,
}

/// Parameters; may be other ones at each look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// [`Tukey`]: K of the fence Q3 + K * IQR.
    pub fence_k: u32,
    /// [`Tukey`]: hits that are still accepted.
    pub detections: u32,
    /// [`Peer`]: how many times as long as its peers a member may take, in tenths.
    pub ratio_tenths: u32,
    /// [`Peer`]: what takes no longer than this is never slow.
    pub floor: Micros,
    /// [`Peer`]: reads of a member that close its window.
    pub min_reads: u32,
    /// [`Peer`]: the evidence that is enough, in 1/256 octaves beyond the accepted ratio.
    pub evidence: u32,
    /// [`Stall`]: oldest acceptable read of a rotational member.
    pub stall_rotational: Micros,
    /// [`Stall`]: the same of others.
    pub stall_solid: Micros,
}

impl Tuning {
    /// The published values for [`Tukey`], measured ones for [`Peer`].
    pub const DEFAULT: Self = Self {
        fence_k: 2,
        detections: 50,
        ratio_tenths: 15,
        floor: Micros(100),
        min_reads: 3,
        evidence: 5 << 8,
        stall_rotational: Micros(3_500_000),
        stall_solid: Micros(1_000_000),
    };
}

/// A way to find slow members.
pub trait Detector {
    /// Looks at the members, and says which one is slow. What led to a finding is used up by it, but
    /// for a stall, which is found again until it ends.
    fn look(&mut self, members: Members<'_>, tuning: &Tuning, now: Micros) -> Option<Finding>;

    /// How close a member is to being found, 0 to 100: the `slow_score`.
    fn score(&self, slot: Slot, tuning: &Tuning) -> u32;

    /// A member sits out or comes back: what is known of it does not count any more.
    fn forget(&mut self, slot: Slot);
}

/// A share in percent, at most 100.
fn percent(part: u64, whole: u64) -> u32 {
    let percent = part.saturating_mul(100).checked_div(whole).unwrap_or(100);
    percent.min(100) as u32
}

/// A few numbers that are sorted, without an allocation.
struct Sorted {
    values: [u32; MAX_SLOTS],
    len: usize,
}

impl Sorted {
    fn new(values: impl Iterator<Item = u32>) -> Self {
        let mut sorted = Self {
            values: [0; MAX_SLOTS],
            len: 0,
        };
        values
            .take(MAX_SLOTS)
            .for_each(|value| sorted.insert(value));
        sorted
    }

    /// Adds a number, for which there is a place. (The library's sorting panics where an order is not
    /// one, in a way that objtool does not know.)
    fn insert(&mut self, value: u32) {
        let at = self.get().partition_point(|other| *other <= value);
        if let Some(rest) = self.values.get_mut(at..=self.len) {
            rest.rotate_right(1);
            if let Some(first) = rest.first_mut() {
                *first = value;
            }
            self.len += 1;
        }
    }

    fn get(&self) -> &[u32] {
        self.values.get(..self.len).unwrap_or(&[])
    }

    /// The median of all but one of the numbers, of which `value` is one.
    fn median_without(&self, value: u32) -> Option<u32> {
        let own = self.get().binary_search(&value).ok()?;
        let left = self.len.checked_sub(2)?;
        let at = |rank: usize| self.get().get(rank + usize::from(rank >= own)).copied();
        mean_of(at(left / 2)?, at(left.div_ceil(2))?)
    }
}

/// The mean of two numbers.
fn mean_of(a: u32, b: u32) -> Option<u32> {
    u32::try_from((u64::from(a) + u64::from(b)) / 2).ok()
}

/// The median of sorted numbers.
fn median(sorted: &[u32]) -> Option<u32> {
    let last = sorted.len().checked_sub(1)?;
    mean_of(*sorted.get(last / 2)?, *sorted.get(last.div_ceil(2))?)
}

/// A time as it is compared: 71 minutes and longer are equal.
fn limited(time: Micros) -> u32 {
    u32::try_from(time.get()).unwrap_or(u32::MAX)
}

/// Tukey's fence, as it was published for OpenZFS: a member whose smoothed read latency lies beyond
/// Q3 + K * IQR has a hit; with more than so many hits it is slow, and all hits are forgotten.
///
/// The IQR is at least Q1 / 4. In a look only the slowest member can have a hit, and a look since
/// which nobody has completed a read is none. With fewer than six members it never fires: the outlier
/// itself moves Q3.
#[derive(Clone, Debug)]
pub struct Tukey {
    members: [TukeyMember; MAX_SLOTS],
}

#[derive(Clone, Copy, Debug)]
struct TukeyMember {
    latency: Ewma,
    /// Reads up to the last look.
    seen: Sum,
    hits: u32,
}

impl Tukey {
    /// Nothing is known yet.
    pub const fn new() -> Self {
        let none = TukeyMember {
            latency: Ewma::EMPTY,
            seen: Sum { count: 0, us: 0 },
            hits: 0,
        };
        Self {
            members: [none; MAX_SLOTS],
        }
    }

    /// Takes in the reads since the last look; false if there were none.
    fn take_in(&mut self, members: Members<'_>) -> bool {
        let mut any = false;
        for ((slot, seen), own) in members.all().zip(&mut self.members) {
            let all = seen.reads.all();
            let new = all.since(own.seen);
            own.seen = all;
            if members.compared.contains(slot) {
                own.latency.add(new);
                any |= new.count > 0;
            }
        }
        any
    }

    /// The slowest member of a class if it is beyond the fence, with the median and the fence.
    fn beyond(&self, members: Members<'_>, media: Media, k: u32) -> Option<(Slot, [u32; 3])> {
        let latencies = members.all().zip(&self.members);
        let latencies = latencies.filter_map(|((slot, seen), own)| {
            let counts = members.compared.contains(slot) && seen.media == media;
            Some((slot, limited(own.latency.get().filter(|_| counts)?)))
        });
        let (slot, slowest) = latencies.clone().max_by_key(|(_, latency)| *latency)?;
        let sorted = Sorted::new(latencies.map(|(_, latency)| latency));
        let sorted = sorted.get();
        let half = sorted.len() / 2;
        let q1 = median(sorted.get(..half)?)?;
        let q3 = median(sorted.get(sorted.len() - half..)?)?;
        let iqr = q3.saturating_sub(q1).max(q1 / 4);
        let fence = q3.saturating_add(iqr.saturating_mul(k));
        (slowest > fence).then_some((slot, [slowest, median(sorted)?, fence]))
    }
}

impl Default for Tukey {
    fn default() -> Self {
        Self::new()
    }
}

impl Detector for Tukey {
    fn look(&mut self, members: Members<'_>, tuning: &Tuning, _now: Micros) -> Option<Finding> {
        if !self.take_in(members) {
            return None;
        }
        for media in Media::ALL {
            let Some((slot, values)) = self.beyond(members, media, tuning.fence_k) else {
                continue;
            };
            let [value, peer, fence] = values.map(|us| Micros(us.into()));
            let Some(own) = self.members.get_mut(slot.index()) else {
                continue;
            };
            own.hits = own.hits.saturating_add(1);
            let windows = own.hits;
            if windows > tuning.detections {
                self.members.iter_mut().for_each(|member| member.hits = 0);
                return Some(Finding {
                    slot,
                    reason: Reason::Outlier,
                    value,
                    peer,
                    fence,
                    windows,
                });
            }
        }
        None
    }

    fn score(&self, slot: Slot, tuning: &Tuning) -> u32 {
        let hits = self.members.get(slot.index()).map_or(0, |own| own.hits);
        percent(hits.into(), u64::from(tuning.detections) + 1)
    }

    fn forget(&mut self, slot: Slot) {
        if let Some(own) = self.members.get_mut(slot.index()) {
            own.hits = 0;
            own.latency = Ewma::EMPTY;
        }
    }
}

/// Each member against the median of the others, from two members on.
///
/// A member's window closes when it and at least half of its class have completed
/// [`Tuning::min_reads`] reads of one kind; however long that takes, its mean is then compared with
/// the median of the others' means. By how many octaves the ratio exceeds the accepted one is
/// evidence for it, and below that against it. Evidence is added up, never below nothing: Page's
/// cumulative sum (CUSUM), which finds a given change soonest for a given rate of false alarms. So a
/// much slower member is found within few windows, a little slower one within many, and a single bad
/// window counts for at most a fifth of what it takes.
///
/// E. S. Page, "Continuous inspection schemes", Biometrika 41 (1954).
#[derive(Clone, Debug)]
pub struct Peer {
    members: [PeerMember; MAX_SLOTS],
}

#[derive(Clone, Copy, Debug)]
struct PeerMember {
    small: Window,
    large: Window,
    /// Evidence in 1/256 octaves.
    evidence: u32,
    /// Windows since there was none.
    windows: u32,
    /// When a window was closed last, or the evidence halved.
    weighed: Micros,
}

/// The window of a member and a kind of reads.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// Reads before it.
    before: Sum,
    since: Micros,
}

/// A window that takes longer than this is dropped, since what is in it does not belong together; and
/// while none was closed for so long, evidence halves.
const WINDOW_MAX: Micros = Micros(600_000_000);

/// Windows that it takes at least: reads of flash that one in a thousand times wait behind an erase
/// would now and then add up to four.
const WINDOWS_MIN: u32 = 5;

/// Kinds that are compared.
const READS: [Kind; 2] = [Kind::SmallRead, Kind::LargeRead];

impl Peer {
    /// Nothing is known yet.
    pub const fn new() -> Self {
        let window = Window {
            before: Sum { count: 0, us: 0 },
            since: Micros::ZERO,
        };
        let none = PeerMember {
            small: window,
            large: window,
            evidence: 0,
            windows: 0,
            weighed: Micros::ZERO,
        };
        Self {
            members: [none; MAX_SLOTS],
        }
    }

    /// Opens the windows of those anew that are not compared, and those that are too old.
    fn open(&mut self, members: Members<'_>, now: Micros) {
        for ((slot, seen), own) in members.all().zip(&mut self.members) {
            if !members.compared.contains(slot) {
                *own = PeerMember {
                    small: Window::new(seen.comparable(Kind::SmallRead), now),
                    large: Window::new(seen.comparable(Kind::LargeRead), now),
                    evidence: 0,
                    windows: 0,
                    weighed: now,
                };
                continue;
            }
            for kind in READS {
                own.window(kind).drop_old(seen.comparable(kind), now);
            }
            if now.saturating_sub(own.weighed) > WINDOW_MAX {
                own.evidence /= 2;
                own.weighed = now;
            }
        }
    }

    /// Compares a class by one kind of reads, if enough of its windows can be closed.
    fn close(
        &mut self,
        members: Members<'_>,
        media: Media,
        kind: Kind,
        tuning: &Tuning,
        now: Micros,
    ) -> Option<Finding> {
        let compared = members.iter().filter(|(_, seen)| seen.media == media);
        let peers = compared.clone().count();
        let own = &self.members;
        let closing = compared.filter_map(|(slot, seen)| {
            let new = own.get(slot.index())?.gathered(seen, kind);
            let full = new.count >= u64::from(tuning.min_reads.max(1));
            Some((slot, limited(new.mean().filter(|_| full)?).max(1)))
        });
        let count = closing.clone().count();
        if count < peers.div_ceil(2).max(2) {
            return None;
        }
        let means = Sorted::new(closing.clone().map(|(_, mean)| mean));
        let slots: SlotSet = closing.map(|(slot, _)| slot).collect();
        let mut worst: Option<Finding> = None;
        for ((slot, seen), own) in members.all().zip(&mut self.members) {
            if !slots.contains(slot) {
                continue;
            }
            let Some(mean) = own.gathered(seen, kind).mean() else {
                continue;
            };
            own.restart(seen, kind, now);
            let mean = limited(mean).max(1);
            let Some(peer) = means.median_without(mean) else {
                continue;
            };
            own.weigh(mean, peer, tuning, now);
            let found = own.finding(slot, mean, peer, tuning);
            worst = found
                .filter(|found| worst.is_none_or(|other| found.value > other.value))
                .or(worst);
        }
        if let Some(found) = worst {
            self.forget(found.slot);
        }
        worst
    }
}

impl Window {
    const fn new(before: Sum, since: Micros) -> Self {
        Self { before, since }
    }

    /// Opens it anew if it is too old.
    fn drop_old(&mut self, reads: Sum, now: Micros) {
        if now.saturating_sub(self.since) > WINDOW_MAX {
            *self = Self::new(reads, now);
        }
    }
}

impl PeerMember {
    fn window(&mut self, kind: Kind) -> &mut Window {
        match kind {
            Kind::LargeRead => &mut self.large,
            _ => &mut self.small,
        }
    }

    /// Reads in the window of a kind.
    fn gathered(&self, seen: &Observation, kind: Kind) -> Sum {
        let window = match kind {
            Kind::LargeRead => &self.large,
            _ => &self.small,
        };
        seen.comparable(kind).since(window.before)
    }

    fn restart(&mut self, seen: &Observation, kind: Kind, now: Micros) {
        *self.window(kind) = Window::new(seen.comparable(kind), now);
    }

    /// Adds what a closed window says.
    fn weigh(&mut self, mean: u32, peer: u32, tuning: &Tuning, now: Micros) {
        self.weighed = now;
        let accepted = u64::from(tuning.ratio_tenths.max(10));
        // In 1/256; the numerator stays below 2^45.
        let least = NonZeroU64::new(u64::from(peer) * accepted).unwrap_or(NonZeroU64::MIN);
        let ratio = u64::from(mean) * 2560 / least;
        let mut octaves = log2_q8(ratio) - log2_q8(256);
        if Micros(mean.into()) <= tuning.floor {
            octaves =
                octaves.min(log2_q8(2560u64.checked_div(accepted).unwrap_or(0)) - log2_q8(256));
        }
        let most = tuning.evidence.div_ceil(WINDOWS_MIN);
        // No more than what it takes, or one that may not sit out would stay suspect for long.
        let evidence = match u32::try_from(octaves) {
            Ok(more) => self.evidence.saturating_add(more.min(most)),
            Err(_) => self.evidence.saturating_sub(octaves.unsigned_abs()),
        };
        self.evidence = evidence.min(tuning.evidence);
        self.windows = match self.evidence {
            0 => 0,
            _ => self.windows.saturating_add(1),
        };
    }

    /// The finding if there is enough evidence.
    fn finding(&self, slot: Slot, mean: u32, peer: u32, tuning: &Tuning) -> Option<Finding> {
        if self.evidence < tuning.evidence.max(1) {
            return None;
        }
        let accepted = u64::from(peer) * u64::from(tuning.ratio_tenths.max(10)) / 10;
        Some(Finding {
            slot,
            reason: Reason::Outlier,
            value: Micros(mean.into()),
            peer: Micros(peer.into()),
            fence: Micros(accepted).max(tuning.floor),
            windows: self.windows,
        })
    }
}

/// The binary logarithm in 1/256, the fraction linearly interpolated: at most 0.09 too small, exact
/// at powers of two, and never falling. That of 0 is that of 1.
fn log2_q8(n: u64) -> i32 {
    let n = n.max(1);
    let power = n.ilog2();
    let mantissa = match power.checked_sub(8) {
        Some(excess) => n >> excess,
        None => n << (8 - power),
    };
    (power << 8) as i32 + (mantissa & 0xff) as i32
}

impl Default for Peer {
    fn default() -> Self {
        Self::new()
    }
}

impl Detector for Peer {
    fn look(&mut self, members: Members<'_>, tuning: &Tuning, now: Micros) -> Option<Finding> {
        self.open(members, now);
        for media in Media::ALL {
            for kind in READS {
                if let Some(found) = self.close(members, media, kind, tuning, now) {
                    return Some(found);
                }
            }
        }
        None
    }

    fn score(&self, slot: Slot, tuning: &Tuning) -> u32 {
        let evidence = self.members.get(slot.index()).map_or(0, |own| own.evidence);
        percent(evidence.into(), tuning.evidence.into())
    }

    fn forget(&mut self, slot: Slot) {
        if let Some(own) = self.members.get_mut(slot.index()) {
            (own.evidence, own.windows) = (0, 0);
        }
    }
}

/// A member that answers nothing while its peers do: its oldest read is older than any should be.
#[derive(Clone, Debug, Default)]
pub struct Stall {
    /// The member that was found last, and how old its read was in percent of what is acceptable.
    oldest: Option<(Slot, u32)>,
}

impl Stall {
    /// Nothing is known yet.
    pub const fn new() -> Self {
        Self { oldest: None }
    }
}

impl Detector for Stall {
    fn look(&mut self, members: Members<'_>, tuning: &Tuning, now: Micros) -> Option<Finding> {
        let limit = |media| match media {
            Media::Rotational => tuning.stall_rotational,
            Media::Solid => tuning.stall_solid,
        };
        let age = |seen: &Observation| {
            let oldest = seen.oldest.unwrap_or(now);
            now.saturating_sub(oldest)
        };
        let (slot, seen) = members.iter().max_by_key(|(_, seen)| age(seen))?;
        let (value, fence) = (age(seen), limit(seen.media));
        self.oldest = Some((slot, percent(value.get(), fence.get())));
        if value <= fence {
            return None;
        }
        let stalled = |(_, seen): &(Slot, &Observation)| age(seen) > limit(seen.media);
        let fine = members.iter().filter(|member| !stalled(member));
        // Somebody goes on, and not just a few of many: else it is not the member.
        let alive = fine.clone().any(|(_, other)| {
            now.saturating_sub(other.last_done) < fence && other.last_done > Micros::ZERO
        });
        let stalled = members.iter().filter(stalled).count();
        if !alive || stalled > fine.clone().count() {
            return None;
        }
        Some(Finding {
            slot,
            reason: Reason::Stall,
            value,
            peer: fine.map(|(_, other)| age(other)).max().unwrap_or_default(),
            fence,
            windows: 1,
        })
    }

    fn score(&self, slot: Slot, _tuning: &Tuning) -> u32 {
        let own = self.oldest.filter(|(oldest, _)| *oldest == slot);
        own.map_or(0, |(_, percent)| percent)
    }

    fn forget(&mut self, slot: Slot) {
        self.oldest = self.oldest.filter(|(oldest, _)| *oldest != slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1000;

    /// Members that take so long for each read, one after the other.
    struct Array {
        seen: Vec<Observation>,
        compared: SlotSet,
        now: u64,
    }

    impl Array {
        fn new(width: u8, media: Media) -> Self {
            Array {
                seen: vec![Observation::new(media); width.into()],
                compared: SlotSet::first_n(width),
                now: 1,
            }
        }

        fn read(&mut self, slot: usize, us: u64) {
            let one = Sum { count: 1, us };
            let seen = &mut self.seen[slot];
            seen.reads.small = seen.reads.small.plus(one);
            seen.work.small = seen.work.small.plus(one);
            seen.last_done = Micros(self.now);
        }

        /// Each is read once, then there is a look after 20 ms.
        fn turn(&mut self, times: &[u64], detector: &mut impl Detector) -> Option<Finding> {
            for (slot, us) in times.iter().enumerate() {
                self.read(slot, *us);
            }
            self.look(detector)
        }

        fn look(&mut self, detector: &mut impl Detector) -> Option<Finding> {
            self.now += 20 * MS;
            let members = Members::new(&self.seen, self.compared);
            detector.look(members, &Tuning::DEFAULT, Micros(self.now))
        }

        /// The first finding of some turns, and in which it was.
        fn first(
            &mut self,
            turns: u32,
            times: &[u64],
            detector: &mut impl Detector,
        ) -> Option<(u32, Finding)> {
            (1..=turns).find_map(|turn| Some((turn, self.turn(times, detector)?)))
        }
    }

    /// `width` members that take 10 ms, but for one that takes `percent` of that.
    fn one_slow(width: usize, percent: u64) -> Vec<u64> {
        let mut times = vec![10 * MS; width];
        times[width / 2] = percent * MS / 10;
        times
    }

    #[test]
    fn medians_leave_one_out() {
        let sorted = Sorted::new([5, 1, 9, 3].into_iter());
        for (own, median) in [(1, 5), (3, 5), (5, 3), (9, 3)] {
            assert_eq!(sorted.median_without(own), Some(median), "without {own}");
        }
        let sorted = Sorted::new([5, 1, 9].into_iter());
        assert_eq!(sorted.median_without(9), Some(3));
        assert_eq!(sorted.median_without(1), Some(7));
        assert_eq!(Sorted::new([4, 4].into_iter()).median_without(4), Some(4));
        assert_eq!(
            Sorted::new([4].into_iter()).median_without(4),
            None,
            "alone"
        );
        // Against the definition, with ties.
        let mut draw = 7u64;
        for len in 2..MAX_SLOTS {
            let values: Vec<u32> = (0..len)
                .map(|_| {
                    draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (draw >> 60) as u32
                })
                .collect();
            let sorted = Sorted::new(values.iter().copied());
            for out in 0..len {
                let mut others = values.clone();
                let own = others.remove(out);
                others.sort_unstable();
                assert_eq!(sorted.median_without(own), median(&others));
            }
        }
    }

    #[test]
    fn logarithm_is_monotonic_and_near() {
        assert_eq!((log2_q8(0), log2_q8(1), log2_q8(1024)), (0, 0, 2560));
        for n in 1..100_000u64 {
            let exact = (n as f64).log2() * 256.0;
            let got = f64::from(log2_q8(n));
            assert!(got <= exact + 0.01 && got > exact - 24.0, "{n}");
            assert!(log2_q8(n + 1) >= log2_q8(n));
        }
    }

    #[test]
    fn fence_is_the_published_one() {
        // Equal peers a: Q3 = a, IQR = a/4, so the fence is 1.5 a.
        let mut array = Array::new(8, Media::Rotational);
        let (turn, found) = array
            .first(1000, &one_slow(8, 160), &mut Tukey::new())
            .expect("beyond the fence");
        assert_eq!(turn, 51, "more than 50 hits");
        assert_eq!(found.slot, Slot::masked(4));
        let us = [found.value, found.peer, found.fence].map(Micros::get);
        assert_eq!(us, [16 * MS, 10 * MS, 15 * MS]);
        assert_eq!((found.windows, found.reason), (51, Reason::Outlier));
        let mut array = Array::new(8, Media::Rotational);
        assert_eq!(
            array.first(1000, &one_slow(8, 149), &mut Tukey::new()),
            None
        );
    }

    #[test]
    fn fence_is_blind_below_six() {
        for width in 2..=5 {
            let mut array = Array::new(width, Media::Rotational);
            let times = one_slow(width.into(), 100_000);
            assert_eq!(
                array.first(1000, &times, &mut Tukey::new()),
                None,
                "{width}"
            );
        }
        let mut array = Array::new(6, Media::Rotational);
        assert!(array
            .first(51, &one_slow(6, 1000), &mut Tukey::new())
            .is_some());
    }

    #[test]
    fn fence_counts_only_looks_with_reads_and_forgets_all() {
        let mut array = Array::new(8, Media::Rotational);
        let mut tukey = Tukey::new();
        let times = one_slow(8, 1000);
        (0..50).for_each(|_| assert_eq!(array.turn(&times, &mut tukey), None));
        (0..1000).for_each(|_| assert_eq!(array.look(&mut tukey), None, "no reads"));
        let score = |tukey: &Tukey| tukey.score(Slot::masked(4), &Tuning::DEFAULT);
        assert_eq!(score(&tukey), 98);
        assert!(array.turn(&times, &mut tukey).is_some());
        assert_eq!(score(&tukey), 0);
        assert_eq!(array.first(50, &times, &mut tukey), None, "all over again");
        assert!(array.turn(&times, &mut tukey).is_some());
    }

    #[test]
    fn peers_find_an_outlier_at_every_width() {
        for width in [2u8, 3, 4, 5, 6, 8, 12, 24, 64] {
            for (percent, most) in [(200, 64), (400, 20), (800, 16), (100_000, 16)] {
                let mut array = Array::new(width, Media::Rotational);
                let times = one_slow(width.into(), percent);
                let (turn, found) = array
                    .first(100, &times, &mut Peer::new())
                    .unwrap_or_else(|| panic!("{percent}% of {width}"));
                assert_eq!(found.slot.index(), usize::from(width / 2));
                assert!(turn <= most, "{percent}% of {width}: {turn} reads");
                assert_eq!(found.peer, Micros(10 * MS));
                assert_eq!(found.fence, Micros(15 * MS));
                assert_eq!(found.windows, turn / 3);
            }
            let mut array = Array::new(width, Media::Rotational);
            let times = one_slow(width.into(), 150);
            assert_eq!(array.first(10_000, &times, &mut Peer::new()), None);
        }
    }

    #[test]
    fn peers_find_two_of_four() {
        let mut array = Array::new(4, Media::Rotational);
        let mut peer = Peer::new();
        let times = [40 * MS, 10 * MS, 11 * MS, 44 * MS];
        let (_, found) = array.first(20, &times, &mut peer).expect("the slowest");
        assert_eq!(found.slot, Slot::masked(3));
        array.compared.remove(found.slot);
        let (turn, found) = array.first(20, &times, &mut peer).expect("the other one");
        assert_eq!((found.slot, turn), (Slot::FIRST, 3), "it was as clear");
    }

    #[test]
    fn all_slower_is_nobody() {
        let mut array = Array::new(8, Media::Rotational);
        let mut peer = Peer::new();
        for turn in 0..1000 {
            let times = [if turn < 500 { 10 * MS } else { 80 * MS }; 8];
            assert_eq!(array.turn(&times, &mut peer), None);
        }
        // Nor in an array of two that both are slow.
        let mut array = Array::new(2, Media::Rotational);
        assert_eq!(array.first(1000, &[800 * MS; 2], &mut Peer::new()), None);
    }

    #[test]
    fn media_are_apart() {
        // One disc beside three of flash has no peer; two have each other.
        let mut array = Array::new(4, Media::Solid);
        array.seen[0].media = Media::Rotational;
        let times = [10 * MS, 100, 100, 100];
        assert_eq!(array.first(1000, &times, &mut Peer::new()), None);
        let times = [10 * MS, 100, 400, 100];
        let (_, found) = array.first(100, &times, &mut Peer::new()).unwrap();
        assert_eq!((found.slot.get(), found.peer), (2, Micros(100)));
    }

    #[test]
    fn below_the_floor_nobody_is_slow() {
        let mut array = Array::new(4, Media::Solid);
        assert_eq!(
            array.first(1000, &[30, 30, 100, 30], &mut Peer::new()),
            None
        );
        assert!(array
            .first(1000, &[30, 30, 101, 30], &mut Peer::new())
            .is_some());
    }

    #[test]
    fn kinds_are_apart() {
        // Only member 0 has large reads, which take longer for everybody.
        let mut array = Array::new(4, Media::Rotational);
        let mut peer = Peer::new();
        for _ in 0..1000 {
            let large = Sum {
                count: 1,
                us: 100 * MS,
            };
            array.seen[0].work.large = array.seen[0].work.large.plus(large);
            assert_eq!(array.turn(&[10 * MS; 4], &mut peer), None);
        }
    }

    #[test]
    fn windows_wait_for_reads_but_not_for_ever() {
        let mut array = Array::new(3, Media::Rotational);
        let mut peer = Peer::new();
        let times = [10 * MS, 80 * MS, 10 * MS];
        (0..12).for_each(|_| assert_eq!(array.turn(&times, &mut peer), None));
        let score = |peer: &Peer| peer.score(Slot::masked(1), &Tuning::DEFAULT);
        assert_eq!(score(&peer), 80);
        // A few minutes without reads change nothing.
        (0..100 * 50).for_each(|_| assert_eq!(array.look(&mut peer), None));
        assert_eq!(score(&peer), 80);
        // After ten there is half of it, and so on.
        (0..650 * 50).for_each(|_| assert_eq!(array.look(&mut peer), None));
        assert_eq!(score(&peer), 40);
        (0..2600 * 50).for_each(|_| assert_eq!(array.look(&mut peer), None));
        assert!(score(&peer) <= 5);
    }

    #[test]
    fn who_comes_back_starts_afresh() {
        let mut array = Array::new(3, Media::Rotational);
        let mut peer = Peer::new();
        let slow = [10 * MS, 80 * MS, 10 * MS];
        array.compared.remove(Slot::masked(1));
        assert_eq!(array.first(100, &slow, &mut peer), None);
        array.compared.insert(Slot::masked(1));
        assert_eq!(array.first(100, &[10 * MS; 3], &mut peer), None);
    }

    fn stalled(array: &mut Array, slot: usize, ms: u64) {
        array.seen[slot].oldest = Some(Micros(array.now - ms * MS));
    }

    #[test]
    fn stall_is_the_age_of_a_read_while_others_answer() {
        for (media, limit) in [(Media::Rotational, 3500), (Media::Solid, 1000)] {
            let mut array = Array::new(2, media);
            array.now = 100_000 * MS;
            array.read(1, 10 * MS);
            stalled(&mut array, 0, limit - 20);
            let mut stall = Stall::new();
            assert_eq!(array.look(&mut stall), None);
            assert_eq!(stall.score(Slot::FIRST, &Tuning::DEFAULT), 100);
            let found = array.look(&mut stall).expect("older than that");
            assert_eq!((found.slot, found.reason), (Slot::FIRST, Reason::Stall));
            assert_eq!(found.value, Micros((limit + 20) * MS));
            assert!(array.look(&mut stall).is_some(), "until it ends");
            array.seen[0].oldest = None;
            assert_eq!(array.look(&mut stall), None);
        }
    }

    #[test]
    fn nobody_stalls_alone() {
        let mut array = Array::new(4, Media::Rotational);
        array.now = 100_000 * MS;
        let mut stall = Stall::new();
        stalled(&mut array, 0, 9000);
        assert_eq!(array.look(&mut stall), None, "nobody has answered for long");
        (1..4).for_each(|slot| array.read(slot, 10 * MS));
        assert!(array.look(&mut stall).is_some());
        stalled(&mut array, 1, 8000);
        assert!(array.look(&mut stall).is_some(), "two of four");
        stalled(&mut array, 2, 8000);
        assert_eq!(array.look(&mut stall), None, "three: a common cause");
    }

    #[test]
    fn absurd_numbers_do_no_harm() {
        let mut array = Array::new(64, Media::Rotational);
        array.now = u64::MAX / 2;
        for (slot, seen) in array.seen.iter_mut().enumerate() {
            let sum = Sum {
                count: 1 << slot,
                us: u64::MAX >> slot,
            };
            seen.reads.small = sum;
            seen.work = seen.reads;
            seen.oldest = Some(Micros(u64::MAX));
        }
        for tuning in [0, u32::MAX] {
            let tuning = Tuning {
                fence_k: tuning,
                detections: tuning,
                ratio_tenths: tuning,
                floor: Micros(tuning.into()),
                min_reads: tuning,
                evidence: tuning,
                stall_rotational: Micros(tuning.into()),
                stall_solid: Micros(tuning.into()),
            };
            let members = Members::new(&array.seen, SlotSet::first_n(64));
            Tukey::new().look(members, &tuning, Micros(1));
            let mut peer = Peer::new();
            for now in [0, 1, u64::MAX] {
                peer.look(members, &tuning, Micros(now));
                peer.score(Slot::FIRST, &tuning);
            }
            Stall::new().look(members, &tuning, Micros(u64::MAX));
        }
        let none = Members::new(&[], SlotSet::first_n(64));
        assert_eq!(Peer::new().look(none, &Tuning::DEFAULT, Micros::ZERO), None);
    }
}
