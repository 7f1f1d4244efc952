// SPDX-License-Identifier: GPL-2.0

//! An array of members that are read, and the driver's watch over them.
//!
//! Each member gets reads of its own at random times, which it serves one after the other (flash: all
//! at once). It counts them as the driver would; detectors see the counts at each check, and nothing
//! else. Single reads are simulated, but not where their data lies: hence no seeks that depend on each
//! other, and no choice among the reads that a drive holds, which shortens queues of real ones.

use crate::load::{Fault, Rig, SECOND};
use crate::service::{uniform, Service, Services};
use eraid_core::latency::{Kind, Reads, Sum};
use eraid_core::outlier::{Media, Observation, Reason};
use eraid_core::sitout::Action;
use eraid_core::units::{Micros, Slot, SlotSet};
use eraid_core::watch::{Settings, Standing, Watch};
use eraid_tools::rng::Rng;
use std::collections::VecDeque;

/// Reads that a hard drive holds at a time.
const DEPTH: usize = 32;

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Setup {
    pub rig: Rig,
    pub width: usize,
    /// Of the array, in reads per second.
    pub rate: f64,
    /// Members that become slow, by slot.
    pub faults: Vec<(usize, Fault)>,
    /// Whether it ends as soon as they sit out.
    pub until_found: bool,
    /// How many members may sit out.
    pub allowed: u8,
    pub settings: Settings,
    /// Time between checks.
    pub check: u64,
    pub length: u64,
    /// Only one read in so many of a slow member is sent to it: it is left out of the others.
    pub left_out: u64,
    pub seed: u64,
}

/// A member that began to sit out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub slot: usize,
    pub at: u64,
    /// Reads that the array had got since the faults count.
    pub reads: u64,
    pub reason: Reason,
    /// How slow the finding said it was, in tenths.
    pub tenths: u64,
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub verdicts: Vec<Verdict>,
    pub ends: u64,
    pub replace: u64,
    pub reads: u64,
    /// Those before the faults counted.
    before: u64,
}

/// A read that a member has in hand.
#[derive(Clone, Copy)]
struct Held {
    kind: Kind,
    /// When its drive gets it, begins to work on it, and is done.
    sent: u64,
    start: u64,
    end: u64,
}

struct Member<'a> {
    media: Media,
    service: &'a Service,
    fault: Option<Fault>,
    rng: Rng,
    /// When the next read arrives.
    next: u64,
    /// When its drive is free.
    free: u64,
    /// When the last reads it was given are done.
    done: [u64; DEPTH],
    given: usize,
    held: VecDeque<Held>,
    reads: Reads,
    work: Reads,
    last_done: u64,
    next_scrub: u64,
}

/// Runs an array for its time, or until all its faulty members sit out.
pub fn run(setup: &Setup, services: &Services) -> Outcome {
    let mut array = Array::new(setup, services);
    let faulty: SlotSet = setup.faults.iter().map(|(slot, _)| number(*slot)).collect();
    let counts_from = setup.faults.iter().map(|(_, fault)| fault.counts_from());
    let counts_from = counts_from.min().unwrap_or(0);
    let mut now = 0;
    while now < setup.length {
        now += setup.check;
        array.serve(now);
        if now <= counts_from {
            array.outcome.before = array.outcome.reads;
        }
        array.check(now);
        let found: SlotSet = array
            .outcome
            .verdicts
            .iter()
            .map(|v| number(v.slot))
            .collect();
        if setup.until_found && faulty.is_subset(found) {
            break;
        }
    }
    array.outcome
}

fn number(slot: usize) -> Slot {
    Slot::new(slot as u8).expect("at most 64 members")
}

struct Array<'a> {
    setup: &'a Setup,
    members: Vec<Member<'a>>,
    watch: Watch,
    seen: Vec<Observation>,
    outcome: Outcome,
    rng: Rng,
}

impl<'a> Array<'a> {
    fn new(setup: &'a Setup, services: &'a Services) -> Self {
        let member = |slot: usize| {
            let media = setup.rig.media(slot, setup.width);
            let fault = setup.faults.iter().find(|(faulty, _)| *faulty == slot);
            Member {
                media,
                service: services.of(media),
                fault: fault.map(|(_, fault)| *fault),
                rng: Rng::new(&[setup.seed, slot as u64]),
                next: 0,
                free: 0,
                done: [0; DEPTH],
                given: 0,
                held: VecDeque::new(),
                reads: Reads::default(),
                work: Reads::default(),
                last_done: 0,
                next_scrub: 0,
            }
        };
        let members: Vec<_> = (0..setup.width).map(member).collect();
        Array {
            setup,
            seen: members
                .iter()
                .map(|member| Observation::new(member.media))
                .collect(),
            members,
            watch: Watch::new(),
            outcome: Outcome::default(),
            rng: Rng::new(&[setup.seed, 99]),
        }
    }

    /// Lets reads arrive and end up to a time.
    fn serve(&mut self, now: u64) {
        let setup = self.setup;
        let shares: f64 = (0..setup.width).map(|slot| setup.rig.share(slot)).sum();
        for (slot, member) in self.members.iter_mut().enumerate() {
            let state = self.watch.state(number(slot));
            let rate = setup.rate * setup.rig.share(slot) / shares;
            while member.next <= now {
                let at = member.next;
                if member.arrives(setup.rig, rate) {
                    self.outcome.reads += 1;
                    let kind = match member.rng.below(10) {
                        0 => Kind::LargeRead,
                        _ => Kind::SmallRead,
                    };
                    let left_out = member.fault.is_some_and(|fault| fault.from <= at)
                        && member.rng.below(setup.left_out) != 0;
                    match state.is_out() {
                        false if !left_out => member.read(setup.rig, at, kind),
                        _ => {}
                    }
                }
            }
            member.finish(now);
        }
    }

    fn check(&mut self, now: u64) {
        for (seen, member) in self.seen.iter_mut().zip(&self.members) {
            seen.reads = member.reads;
            seen.work = member.work;
            seen.last_done = Micros::new(member.last_done);
            let oldest = member.held.front().filter(|held| held.sent <= now);
            seen.oldest = oldest.map(|held| Micros::new(held.sent));
        }
        let standing = Standing {
            in_sync: SlotSet::first_n(self.setup.width as u8),
            allowed: self.setup.allowed,
        };
        let settings = &self.setup.settings;
        let time = Micros::new(now);
        while let Some(action) = self.watch.check(&self.seen, standing, settings, time) {
            self.note(action, now);
        }
        self.probe(now);
    }

    fn note(&mut self, action: Action, now: u64) {
        match action {
            Action::Begin {
                slot,
                found: Some(found),
                ..
            } => self.outcome.verdicts.push(Verdict {
                slot: slot.index(),
                at: now,
                reads: self.outcome.reads - self.outcome.before,
                reason: found.reason,
                tenths: found.value.get() * 10 / found.peer.get().max(1),
            }),
            Action::End { .. } => self.outcome.ends += 1,
            Action::Replace { .. } => self.outcome.replace += 1,
            _ => {}
        }
    }

    /// Sends a probe, alone on the member, to each that is to be probed.
    fn probe(&mut self, now: u64) {
        for slot in self.watch.sit_outs().probed_ones() {
            let member = &self.members[slot.index()];
            let peers = member.service.draw(Kind::SmallRead, &mut self.rng);
            let alone = member.service.draw(Kind::SmallRead, &mut self.rng);
            let factor = member.fault.map_or(Some(1.0), |fault| fault.factor(now));
            let own = factor.map_or(10 * SECOND, |factor| (alone as f64 * factor) as u64);
            let rules = &self.setup.settings.rules;
            let (own, peers) = (Micros::new(own), Micros::new(peers));
            let action = self.watch.probed(slot, own, peers, rules, Micros::new(now));
            if let Some(action) = action {
                self.note(action, now);
            }
        }
    }
}

impl Member<'_> {
    /// Sets the time of the next arrival; false if there is none now, only another load.
    fn arrives(&mut self, rig: Rig, rate: f64) -> bool {
        let (load, until) = rig.load(self.next);
        let gap = -(1.0 - uniform(&mut self.rng)).ln() / (rate * load) * SECOND as f64;
        let next = self.next + gap as u64 + 1;
        // A Poisson process has no memory: where the load changes it is drawn anew.
        let arrives = next < until;
        self.next = next.min(until);
        arrives
    }

    fn slowness(&self, rig: Rig, now: u64) -> Option<f64> {
        let own = self.fault.map_or(Some(1.0), |fault| fault.factor(now));
        own.map(|own| own * rig.slowdown(now))
    }

    fn read(&mut self, rig: Rig, now: u64, kind: Kind) {
        self.scrub(rig, now);
        let extra = rig.extra(self.rng.next_u64());
        let work = self.service.draw(kind, &mut self.rng) + extra;
        let last = self.given % DEPTH;
        let (sent, start) = match self.media {
            Media::Rotational => {
                let sent = now.max(self.done[last]);
                (sent, sent.max(self.free))
            }
            Media::Solid => (now, now),
        };
        let took = self.slowness(rig, start);
        let end = took.map_or(u64::MAX, |slowness| {
            start.saturating_add((work as f64 * slowness) as u64)
        });
        // They are taken to end in the order they came; among flash's that costs little.
        let end = end.max(self.held.back().map_or(0, |held| held.end));
        self.free = end;
        self.done[last] = end;
        self.given += 1;
        self.held.push_back(Held {
            kind,
            sent,
            start,
            end,
        });
    }

    /// Other work for the drive until a time, of which nothing is counted.
    fn scrub(&mut self, rig: Rig, now: u64) {
        if rig != Rig::Scrub {
            return;
        }
        while self.next_scrub <= now {
            let work = self.service.draw(Kind::LargeRead, &mut self.rng);
            let start = self.free.max(self.next_scrub);
            let took = self.slowness(rig, start);
            let work = took.map_or(u64::MAX, |slowness| (work as f64 * slowness) as u64);
            // One at a time: a busy drive gets none.
            if self.free <= self.next_scrub {
                self.free = start.saturating_add(work);
            }
            self.next_scrub += SECOND / 20 + self.rng.below(SECOND / 10);
        }
    }

    fn finish(&mut self, now: u64) {
        while let Some(held) = self.held.front().copied() {
            if held.end > now {
                return;
            }
            self.held.pop_front();
            add(&mut self.reads, held.kind, held.end - held.sent);
            add(&mut self.work, held.kind, held.end - held.start);
            self.last_done = held.end;
        }
    }
}

/// Counts a read.
fn add(reads: &mut Reads, kind: Kind, us: u64) {
    let sum = match kind {
        Kind::LargeRead => &mut reads.large,
        _ => &mut reads.small,
    };
    *sum = sum.plus(Sum { count: 1, us });
}
