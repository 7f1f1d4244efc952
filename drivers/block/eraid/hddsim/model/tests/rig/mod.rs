// SPDX-License-Identifier: GPL-2.0

//! A drive with a clock and a host, for tests.

#![allow(dead_code, unreachable_pub)] // Each test file uses a part.

use eraid_hddsim_model::cache::CachedWrite;
use eraid_hddsim_model::drive::{Command, Drive, Event, Op, Outcome, Slot, TAGS};
use eraid_hddsim_model::hash::hash;
use eraid_hddsim_model::params::{Key, Params};
use eraid_hddsim_model::units::{Block, Extent, Nanos};

/// An answer, with the times of its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub id: u64,
    pub arrived: Nanos,
    pub answered: Nanos,
    pub outcome: Outcome,
}

impl Done {
    pub fn ms(&self) -> f64 {
        self.answered.since(self.arrived).0 as f64 / 1e6
    }
}

pub struct Rig {
    pub drive: Drive<Vec<Slot>, Vec<Option<CachedWrite>>>,
    pub now: Nanos,
    /// Command and time of arrival, by slot.
    held: [Option<(u64, Nanos)>; TAGS],
    pub durable: Vec<(Nanos, Extent)>,
    next: u64,
    pub rewritten: Vec<u64>,
}

impl Rig {
    pub fn new(changes: &[(Key, u64)]) -> Self {
        let mut params = Params::DEFAULT;
        for (key, value) in changes {
            params.set(*key, *value).unwrap();
        }
        Rig {
            drive: Drive::new(params, vec![Slot::FREE; TAGS], vec![None; 256]),
            now: Nanos(1_000_000_000),
            held: [None; TAGS],
            durable: Vec::new(),
            next: 0,
            rewritten: Vec::new(),
        }
    }

    pub fn blocks(&self) -> u64 {
        self.drive.params().get(Key::Size) / 4096
    }

    pub fn set(&mut self, key: Key, value: u64) {
        let mut params = *self.drive.params();
        params.set(key, value).unwrap();
        self.drive.set_params(params);
    }

    /// Submits a command now; returns its number.
    pub fn submit_extent(&mut self, op: Op, extent: Extent, hint: bool) -> u64 {
        let seq = self.drive.number();
        let law = self.drive.params().failures();
        let blocks = extent.blocks() as u32;
        let healed = |block: Block| self.rewritten.contains(&block.0);
        let command = Command {
            op,
            extent,
            seq,
            hint,
            bad: law.of_read(seq, extent.first_block(), blocks, healed),
        };
        let slot = self.drive.submit(self.now, command).expect("a free slot");
        let id = self.next;
        self.next += 1;
        assert!(self.held[slot].replace((id, self.now)).is_none());
        id
    }

    pub fn submit(&mut self, op: Op, block: u64, blocks: u64) -> u64 {
        let extent = Extent {
            sector: block * 8,
            sectors: blocks as u32 * 8,
        };
        self.submit_extent(op, extent, false)
    }

    pub fn read(&mut self, block: u64, blocks: u64) -> u64 {
        self.submit(Op::Read, block, blocks)
    }

    /// All answers due by `until`, in order; the clock is then there.
    pub fn run_until(&mut self, until: Nanos) -> Vec<Done> {
        let mut all = Vec::new();
        while let Some(done) = self.next_done(until) {
            all.push(done);
        }
        self.now = self.now.max(until);
        all
    }

    /// The next answer, if there is one by `until`; the clock stands at it.
    pub fn next_done(&mut self, until: Nanos) -> Option<Done> {
        loop {
            while let Some(event) = self.drive.event(self.now) {
                match event {
                    Event::Durable(extent) => self.durable.push((self.now, extent)),
                    Event::Done { slot, outcome } => {
                        let (id, arrived) = self.held[slot].take().expect("a held command");
                        let answered = self.now;
                        return Some(Done {
                            id,
                            arrived,
                            answered,
                            outcome,
                        });
                    }
                }
            }
            let wake = self.drive.wake_at().filter(|wake| *wake <= until)?;
            assert!(wake > self.now, "the drive wants to be asked for ever");
            self.now = wake;
        }
    }

    /// The answer to the only command.
    pub fn done(&mut self) -> Done {
        self.next_done(Nanos(u64::MAX)).expect("an answer")
    }

    /// Runs until nothing is left to do.
    pub fn drain(&mut self) -> Vec<Done> {
        let mut all = Vec::new();
        while let Some(done) = self.next_done(Nanos(u64::MAX)) {
            all.push(done);
        }
        all
    }

    pub fn pass(&mut self, ms: f64) -> Vec<Done> {
        self.run_until(self.now + Nanos((ms * 1e6) as u64))
    }
}

/// A random block at which `blocks` fit.
pub fn random_block(rig: &Rig, n: u64, blocks: u64) -> u64 {
    hash(&[4711, n]) % (rig.blocks() - blocks)
}

/// Mean time in ms of `count` reads of `blocks` blocks at random places, one at a time, with pauses.
pub fn mean_alone(rig: &mut Rig, count: u64, blocks: u64) -> f64 {
    let mut sum = 0.0;
    for n in 0..count {
        // No rhythm with the spindle.
        rig.pass(80.0 + (hash(&[n, 5]) % 1_000_000) as f64 / 50_000.0);
        rig.read(random_block(rig, n, blocks), blocks);
        sum += rig.done().ms();
    }
    sum / count as f64
}
