// SPDX-License-Identifier: GPL-2.0

//! What an array is made of, what it is asked for, and what goes wrong with members.

use clap::ValueEnum;
use eraid_core::outlier::Media;

/// One second in µs.
pub const SECOND: u64 = 1_000_000;

/// An array and its load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Rig {
    /// Hard drives, a steady load.
    Hdd,
    /// The first half hard drives, the others flash.
    Mixed,
    /// 2 s of four times the load, 8 s of a quarter of it.
    Bursts,
    /// A minute of load, four minutes with one read in two seconds.
    Idle,
    /// Scrub reads of 256 KiB besides, ten in a second on each member.
    Scrub,
    /// For half a minute of every five all members take four times as long.
    AllSlow,
    /// Flash only.
    Flash,
    /// Member 1 gets three times as many reads as each other one.
    Hot,
    /// One read in fifty of every member needs five more turns of the disc.
    Retries,
}

impl Rig {
    /// The medium of a member, of `width`.
    pub fn media(self, member: usize, width: usize) -> Media {
        match self {
            Rig::Flash => Media::Solid,
            Rig::Mixed if member >= width / 2 => Media::Solid,
            _ => Media::Rotational,
        }
    }

    /// The load at a time relative to the usual one, and until when it stays so.
    pub fn load(self, now: u64) -> (f64, u64) {
        let phase = |lengths: [(u64, f64); 2]| {
            let cycle = (lengths[0].0 + lengths[1].0) * SECOND;
            let (start, at) = (now / cycle * cycle, now % cycle);
            match at < lengths[0].0 * SECOND {
                true => (lengths[0].1, start + lengths[0].0 * SECOND),
                false => (lengths[1].1, start + cycle),
            }
        };
        match self {
            Rig::Bursts => phase([(2, 4.0), (8, 0.25)]),
            Rig::Idle => phase([(60, 1.0), (240, 0.005)]),
            _ => (1.0, u64::MAX),
        }
    }

    /// The share of a member's reads, of 1 usually.
    pub fn share(self, member: usize) -> f64 {
        match self {
            Rig::Hot if member == 1 => 3.0,
            _ => 1.0,
        }
    }

    /// What a read takes besides, in µs; `draw` is any number.
    pub fn extra(self, draw: u64) -> u64 {
        match self {
            Rig::Retries if draw % 50 == 0 => 5 * 8_333,
            _ => 0,
        }
    }

    /// By how much all members are slower at a time.
    pub fn slowdown(self, now: u64) -> f64 {
        match self {
            Rig::AllSlow if now / SECOND % 300 >= 270 => 4.0,
            _ => 1.0,
        }
    }
}

/// How a member becomes slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// For good.
    Constant,
    /// 4 s of every 10.
    Duty,
    /// Evenly within 5 minutes.
    Growing,
    /// It answers nothing any more.
    Hang,
}

/// What goes wrong with a member.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// From when on, in µs.
    pub from: u64,
    /// How.
    pub shape: Shape,
    /// How many times as long it takes in the end.
    pub factor: f64,
}

/// Time in which a growing fault grows.
pub const GROWTH: u64 = 300 * SECOND;

impl Fault {
    /// How many times as long it takes at a time; `None` if it hangs.
    pub fn factor(&self, now: u64) -> Option<f64> {
        let Some(age) = now.checked_sub(self.from) else {
            return Some(1.0);
        };
        match self.shape {
            Shape::Constant => Some(self.factor),
            Shape::Duty if age / SECOND % 10 < 4 => Some(self.factor),
            Shape::Duty => Some(1.0),
            Shape::Growing => {
                let grown = (age as f64 / GROWTH as f64).min(1.0);
                Some(1.0 + (self.factor - 1.0) * grown)
            }
            Shape::Hang => None,
        }
    }

    /// From when on it counts: a growing one from when the member is twice as slow, or as slow as it
    /// gets.
    pub fn counts_from(&self) -> u64 {
        match self.shape {
            Shape::Growing if self.factor > 2.0 => {
                self.from + (GROWTH as f64 / (self.factor - 1.0)) as u64
            }
            Shape::Growing => self.from + GROWTH,
            _ => self.from,
        }
    }
}
