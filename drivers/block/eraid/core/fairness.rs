// SPDX-License-Identifier: GPL-2.0

//! When a disk has to be kept from overtaking a command again and again.
//!
//! A disk takes the nearest of the commands that it has, so one that lies apart may be overtaken for as
//! long as others come: under load a second, until the disk looks at ages, which is a hundred times what
//! a command takes. A request is as late as the last of its commands. So once a command has been
//! overtaken for too long no others enter the disk, until it is answered or alone.
//!
//! A device that answers in the order of arrival, however slow, or not at all, overtakes nothing, and
//! is let alone.
//!
//! All calls are for one thread at a time (the caller's spinlock).

use crate::units::Micros;

/// Being overtaken for longer is too long. A shorter bound costs throughput, a longer one lets the
/// longest waits grow; Documentation/design/overview.rst has numbers.
const TOO_LONG: Micros = Micros(500_000);

/// After this time a command is forgotten: a disk that lost one is not to be slow for ever.
const HOPELESS: Micros = Micros(1_000_000);

/// Commands that are looked at; of more in a device the others enter unseen.
const SEEN: usize = 32;

/// Where a command in the device is noted; none for one that entered unseen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Note(Option<u8>);

/// See the [module description](self).
#[derive(Clone, Debug, Default)]
pub struct Fairness {
    /// When commands entered the device that are still there.
    since: [Option<Micros>; SEEN],
    /// When the youngest entered of those that have left.
    left: Micros,
}

impl Fairness {
    /// A command enters the device.
    #[inline]
    pub fn entered(&mut self, now: Micros) -> Note {
        let free = self.since.iter().position(Option::is_none);
        if let Some(place) = free.and_then(|free| self.since.get_mut(free)) {
            *place = Some(now);
        }
        // CAST: Less than `SEEN`.
        Note(free.map(|free| free as u8))
    }

    /// The command of `note`, which entered the device at `since`, has left it.
    #[inline]
    pub fn left(&mut self, note: Note, since: Micros) {
        let place = note.0.and_then(|at| self.since.get_mut(usize::from(at)));
        // Not if it was forgotten, and its place is another's.
        if let Some(place) = place.filter(|place| **place == Some(since)) {
            *place = None;
        }
        self.left = self.left.max(since);
    }

    /// Whether no command is to enter the device until one has left it.
    #[inline]
    pub fn holds_back(&mut self, now: Micros) -> bool {
        let (mut oldest, mut count) = (now, 0);
        for place in &mut self.since {
            let Some(since) = *place else { continue };
            if now.saturating_sub(since) > HOPELESS {
                *place = None;
                continue;
            }
            oldest = oldest.min(since);
            count += 1;
        }
        count > 1 && now.saturating_sub(oldest) > TOO_LONG && self.left > oldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1000;

    fn at(ms: u64) -> Micros {
        Micros::new(ms * MS)
    }

    /// One command that lies apart, and others that come every 10 ms and take 50.
    struct Device {
        fairness: Fairness,
        apart: Note,
        others: Vec<(Note, Micros)>,
    }

    impl Device {
        fn new() -> Self {
            let mut fairness = Fairness::default();
            let apart = fairness.entered(at(1));
            Self {
                fairness,
                apart,
                others: Vec::new(),
            }
        }

        /// Runs until others are held back, at most until `end`.
        fn run(&mut self, from: u64, end: u64) -> Option<u64> {
            for ms in (from..end).step_by(10) {
                if self.fairness.holds_back(at(ms)) {
                    return Some(ms);
                }
                self.others.push((self.fairness.entered(at(ms)), at(ms)));
                if self.others.len() > 5 {
                    let (note, since) = self.others.remove(0);
                    self.fairness.left(note, since);
                }
            }
            None
        }
    }

    #[test]
    fn who_is_overtaken_for_too_long_comes_next() {
        let mut device = Device::new();
        let held = device.run(10, 2000);
        assert_eq!(held, Some(510));
        device.fairness.left(device.apart, at(1));
        assert!(!device.fairness.holds_back(at(520)));
        assert_eq!(device.run(520, 5000), None, "nobody else is overtaken");
    }

    #[test]
    fn one_that_is_alone_holds_nobody_back() {
        let mut device = Device::new();
        device.run(10, 2000);
        while device.others.len() > 1 {
            let (note, since) = device.others.remove(0);
            device.fairness.left(note, since);
            assert!(!device.others.is_empty() && device.fairness.holds_back(at(520)));
        }
        let (note, since) = device.others.remove(0);
        device.fairness.left(note, since);
        assert!(!device.fairness.holds_back(at(530)));
        device.fairness.entered(at(530));
        assert!(device.fairness.holds_back(at(540)), "one at a time");
    }

    #[test]
    fn one_that_never_comes_is_forgotten() {
        let mut device = Device::new();
        assert_eq!(device.run(10, 2000), Some(510));
        assert!(device.fairness.holds_back(at(1000)));
        assert!(!device.fairness.holds_back(at(1002)));
        assert_eq!(device.run(1010, 9000), None);
        // Its place may be another's: that one is still seen.
        device.fairness.left(device.apart, at(1));
        let seen = device.fairness.since.iter().flatten().count();
        assert_eq!(seen, device.others.len());
    }

    #[test]
    fn slow_devices_and_such_that_hang_are_let_alone() {
        let mut fairness = Fairness::default();
        let mut held = std::collections::VecDeque::new();
        for ms in (0..20_000).step_by(100) {
            assert!(!fairness.holds_back(at(ms)), "in the order of arrival");
            held.push_back((fairness.entered(at(ms)), at(ms)));
            if held.len() == 20 {
                let (note, since) = held.pop_front().unwrap();
                fairness.left(note, since);
            }
        }
        assert!(!fairness.holds_back(at(20_600)), "nothing comes");
    }

    #[test]
    fn of_very_many_commands_some_are_not_seen() {
        let mut fairness = Fairness::default();
        let notes: Vec<_> = (0..100).map(|n| fairness.entered(at(n))).collect();
        assert_eq!(notes.iter().filter(|note| note.0.is_some()).count(), SEEN);
        for (n, note) in notes.into_iter().enumerate() {
            fairness.left(note, at(n as u64));
        }
        assert!(fairness.since.iter().all(Option::is_none));
    }
}
