// SPDX-License-Identifier: GPL-2.0

//! How an array reads: the policy, patience with members that are late, and what is counted.
//!
//! `estimate` and `budget` are leaf locks.

use kernel::{
    new_spinlock_irq,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, SpinLockIrq,
    },
};

use crate::{
    array::Array,
    kapi::{params::ReadPolicy, time::now_us},
};
use eraid_core::{
    estimate::{ArrayEstimate, Lesson},
    geometry::Geometry,
    patience::{self, Budget, Limits, Longest},
    units::{Micros, Slot, SlotSet},
};

/// Longest patience that can be set, in ms.
pub(crate) const HEDGE_MAX_MS: u64 = 600_000;

/// Longest patience at first.
const HEDGE_MAX_DEFAULT_MS: u32 = 500;
/// Shortest patience at first.
const HEDGE_MIN_DEFAULT_MS: u32 = 5;
/// A look for late reads that is planned for so little later is as good: a tick of the slowest clock.
const LOOK_SLACK_US: u64 = 4000;

/// What is counted of reads, each since the array was started.
#[derive(Clone, Copy)]
pub(crate) enum Count {
    /// Read from the wanted members, whose drives might retry.
    Normal,
    /// Read from the wanted members, whose drives were not to retry.
    Failfast,
    /// All members were asked.
    Proactive,
    /// Members were known not to answer, or not to have the data.
    Avoided,
    /// A member was left out because it is late.
    LeftOut,
    /// Others were asked because a member was late.
    Hedged,
    /// Commands that left a member's queue because nobody needed them any more.
    Removed,
    /// Commands that were extra and became ordinary.
    Promoted,
    /// A first answer was an error, and others were asked.
    Fallback,
    /// Commands to members that nothing was wanted of.
    Extra,
    /// Blocks that were rewritten because they could not be read.
    Repaired,
}

/// Number of [`Count`]s.
const COUNTS: usize = Count::Repaired as usize + 1;

/// The counters of [`Count`].
pub(crate) struct Counts([Atomic<u64>; COUNTS]);

impl Counts {
    /// Counts one more. Any context.
    pub(crate) fn add(&self, what: Count) {
        self.add_many(what, 1);
    }

    /// Counts `more`. Any context.
    pub(crate) fn add_many(&self, what: Count, more: u64) {
        if let Some(counter) = self.0.get(what as usize) {
            counter.fetch_add(more, Relaxed);
        }
    }

    /// How many there were.
    pub(crate) fn get(&self, what: Count) -> u64 {
        self.0.get(what as usize).map_or(0, |c| c.load(Relaxed))
    }
}

/// See the [module description](self).
#[pin_data]
pub(crate) struct Reading {
    /// What the administrator wants.
    policy: Atomic<u32>,
    /// What was counted.
    pub(crate) counts: Counts,
    /// Shortest patience, in ms.
    hedge_min_ms: Atomic<u32>,
    /// Longest patience, in ms; 0: no read is hedged.
    hedge_max_ms: Atomic<u32>,
    /// That maximum holds whatever reads usually take.
    hedge_max_fixed: Atomic<bool>,
    /// Requests so far.
    requests: Atomic<u64>,
    /// When somebody will look for late reads; 0: not planned.
    look_at_us: Atomic<u64>,
    /// What the drive's retries of one block take.
    retry_us: Atomic<u32>,
    #[pin]
    pub(crate) estimate: SpinLockIrq<ArrayEstimate>,
    #[pin]
    pub(crate) budget: SpinLockIrq<Budget>,
}

impl Reading {
    /// The reading of an array of so many members, one of which `rotates` or none.
    pub(crate) fn new(members: u8, rotates: bool, policy: ReadPolicy) -> impl PinInit<Self> {
        let estimate = ArrayEstimate::new(members, Micros::new(now_us()));
        let hedge_max_ms = if rotates { HEDGE_MAX_DEFAULT_MS } else { 0 };
        pin_init!(Self {
            policy: Atomic::new(policy as u32),
            counts: Counts([const { Atomic::new(0) }; COUNTS]),
            hedge_min_ms: Atomic::new(HEDGE_MIN_DEFAULT_MS),
            hedge_max_ms: Atomic::new(hedge_max_ms),
            hedge_max_fixed: Atomic::new(false),
            requests: Atomic::new(0),
            look_at_us: Atomic::new(0),
            retry_us: Atomic::new(estimate.load().retry_us),
            estimate <- new_spinlock_irq!(estimate, "eraid::estimate"),
            budget <- new_spinlock_irq!(Budget::new(Budget::PERCENT), "eraid::budget"),
        })
    }

    /// The policy.
    pub(crate) fn policy(&self) -> ReadPolicy {
        ReadPolicy::from_number(self.policy.load(Relaxed))
    }

    /// Changes the policy.
    pub(crate) fn set_policy(&self, policy: ReadPolicy) {
        self.policy.store(policy as u32, Relaxed);
    }

    /// Shortest patience in ms.
    pub(crate) fn hedge_min_ms(&self) -> u32 {
        self.hedge_min_ms.load(Relaxed)
    }

    /// Sets the shortest patience; the longest one goes before it.
    pub(crate) fn set_hedge_min_ms(&self, ms: u32) {
        self.hedge_min_ms.store(ms, Relaxed);
    }

    /// Longest patience in ms; 0 when no read is hedged.
    pub(crate) fn hedge_max_ms(&self) -> u32 {
        self.hedge_max_ms.load(Relaxed)
    }

    /// Sets the longest patience, from here on a hard bound.
    pub(crate) fn set_hedge_max_ms(&self, ms: u32) {
        self.hedge_max_fixed.store(true, Relaxed);
        self.hedge_max_ms.store(ms, Relaxed);
    }

    /// Whether commands of reads may be overtaken by others; else they read right into the request.
    pub(crate) fn overtakes(&self) -> bool {
        let asks_others = matches!(self.policy(), ReadPolicy::Failfast | ReadPolicy::Proactive);
        asks_others || self.hedge_max_ms() > 0
    }

    /// Whether reads of an array of this shape are gathered: others could answer them, and may.
    pub(crate) fn gathers(&self, geometry: &Geometry) -> bool {
        geometry.parity() > 0 && self.overtakes()
    }

    /// The limits of patience.
    pub(crate) fn limits(&self) -> Limits {
        let ms = |ms: u32| Micros::new(u64::from(ms) * 1000);
        let max = ms(self.hedge_max_ms());
        Limits {
            min: ms(self.hedge_min_ms()),
            max: match self.hedge_max_fixed.load(Relaxed) {
                true => Longest::Fixed(max),
                false => Longest::Auto(max),
            },
        }
    }

    /// A read request arrived; its number. Any context.
    pub(crate) fn arrived(&self) {
        self.requests.fetch_add(1, Relaxed);
        self.estimate.lock().arrived(Micros::new(now_us()));
    }

    /// What the drive's retries of one block take, in µs. Any context.
    pub(crate) fn retry_us(&self) -> u32 {
        self.retry_us.load(Relaxed)
    }

    /// Takes in what a command has shown. Any context.
    pub(crate) fn learn(&self, lesson: Lesson) {
        if lesson == Lesson::Nothing {
            return;
        }
        let mut estimate = self.estimate.lock();
        estimate.learn(lesson);
        self.retry_us.store(estimate.load().retry_us, Relaxed);
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }
}

/// Patience and lateness.
impl Array {
    /// How long a read waits for these members before others are asked, in µs; 0: for ever.
    pub(crate) fn patience_us(&self, members: SlotSet) -> u64 {
        if self.reading.hedge_max_ms() == 0 {
            return 0;
        }
        let each = members.iter().filter_map(|slot| self.member(slot));
        let shortest = each.map(|member| member.patience_us()).min();
        shortest.unwrap_or(0)
    }

    /// Whether a member is suspected of hanging.
    pub(crate) fn is_suspect(&self, slot: Slot) -> bool {
        let (retry_us, now) = (self.reading.retry_us(), Micros::new(now_us()));
        self.member(slot)
            .is_some_and(|member| member.snapshot().is_suspect(retry_us, now))
    }

    /// The members of `slots` that are suspected of hanging.
    pub(crate) fn suspects(&self, slots: SlotSet) -> SlotSet {
        slots.iter().filter(|slot| self.is_suspect(*slot)).collect()
    }

    /// Learns anew how patient to be with each member. Task context, once a second.
    pub(crate) fn learn_patience(&self) {
        let limits = self.reading.limits();
        let tail = |slot: Slot| self.member(slot).and_then(|member| member.tail());
        let mut tails = [None; 64];
        for slot in self.live().iter() {
            if let Some(place) = tails.get_mut(slot.index()) {
                *place = tail(slot);
            }
        }
        for slot in self.live().iter() {
            let others = tails.iter().enumerate().filter(|(n, _)| *n != slot.index());
            let patience = patience::patience(others.map(|(_, tail)| *tail), &limits);
            if let Some(member) = self.member(slot) {
                member.set_patience_us(patience.get());
            }
        }
    }

    /// Sees to it that somebody looks for late reads at `at_us`. Any context.
    pub(crate) fn expect_late(self: &Arc<Self>, at_us: u64) {
        let planned = self.reading.look_at_us.load(Relaxed);
        if planned != 0 && planned <= at_us.saturating_add(LOOK_SLACK_US) {
            return;
        }
        self.reading.look_at_us.store(at_us, Relaxed);
        let ms = at_us.saturating_sub(now_us()).div_ceil(1000);
        let ms = u32::try_from(ms.min(HEDGE_MAX_MS)).unwrap_or(u32::MAX);
        self.queues.submit.arm::<Array, 5>(self, ms);
    }

    /// Tells reads that are late that they are. Task context.
    pub(crate) fn look_for_late(self: &Arc<Self>) {
        self.reading.look_at_us.store(0, Relaxed);
        let now = now_us();
        let late = self.ops().filter_map(|op| op.check_late(now)).min();
        if let (Some(late), false) = (late, self.is_stopping()) {
            self.expect_late(late);
        }
    }
}
