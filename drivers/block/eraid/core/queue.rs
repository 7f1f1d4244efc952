// SPDX-License-Identifier: GPL-2.0

//! The dispatch rule of a member's queue: which command may enter the device.
//!
//! Commands inside a drive cannot be taken back, commands that wait in the
//! driver can. So *extra* reads (those that only help when an ordinary one is
//! late) enter a device only when it holds nothing and nothing ordinary waits,
//! and ordinary commands enter it up to a depth.
//!
//! This counts; the commands themselves are the caller's, in one list a class.
//! All calls are for one thread at a time (the caller's spinlock).
//!
//! What waits for a disk is sorted by place ([`Sweep`]): a disk reaches the next
//! place sooner the more of them it can choose from, and its own queue is short.

use crate::units::{Micros, Sector};

/// Importance of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Somebody waits for it.
    Ordinary,
    /// It may turn out not to be needed.
    Extra,
}

/// Counts of one member's queue.
#[derive(Clone, Copy, Debug)]
pub struct Classes {
    /// Commands the device may hold; `u32::MAX` for no limit.
    depth: u32,
    /// Orphans at which the member is left alone.
    orphan_cap: u32,
    ordinary: u32,
    extra: u32,
    /// Commands in the device, orphans included.
    in_device: u32,
    /// Commands in the device whose parent has ended without them.
    orphans: u32,
}

impl Classes {
    /// An empty queue of a device that may hold `depth` commands (0: any
    /// number), left alone from `orphan_cap` orphans on.
    #[inline]
    pub const fn new(depth: u32, orphan_cap: u32) -> Self {
        Self {
            depth: no_limit_if_zero(depth),
            orphan_cap,
            ordinary: 0,
            extra: 0,
            in_device: 0,
            orphans: 0,
        }
    }

    /// Commands the device may hold; `u32::MAX` for no limit.
    #[inline]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Changes the depth (0: no limit). What the device holds stays in it.
    #[inline]
    pub fn set_depth(&mut self, depth: u32) {
        self.depth = no_limit_if_zero(depth);
    }

    /// A command of `class` was put at the end of its list.
    #[inline]
    pub fn enqueued(&mut self, class: Class) {
        let waiting = self.waiting_mut(class);
        *waiting = waiting.saturating_add(1);
    }

    /// A waiting command was taken from its list for good: nobody needs it any
    /// more.
    #[inline]
    pub fn removed(&mut self, class: Class) {
        let waiting = self.waiting_mut(class);
        *waiting = waiting.saturating_sub(1);
    }

    /// A waiting extra command was moved to the ordinary list.
    #[inline]
    pub fn promoted(&mut self) {
        self.removed(Class::Extra);
        self.enqueued(Class::Ordinary);
    }

    /// Whether a waiting command of `class` may enter the device now.
    #[inline]
    pub fn may_dispatch(&self, class: Class) -> bool {
        match class {
            Class::Ordinary => self.in_device < self.depth,
            Class::Extra => self.in_device == 0 && self.ordinary == 0,
        }
    }

    /// Takes the next command to enter the device: the class whose list to take
    /// the first of, counted as in the device from here on; `None` when
    /// nothing may enter.
    #[inline]
    pub fn dispatch(&mut self) -> Option<Class> {
        let class = if self.ordinary > 0 {
            Class::Ordinary
        } else if self.extra > 0 {
            Class::Extra
        } else {
            return None;
        };
        if !self.may_dispatch(class) {
            return None;
        }
        self.removed(class);
        self.in_device = self.in_device.saturating_add(1);
        Some(class)
    }

    /// The device finished a command; `orphan` as it was reported by
    /// [`orphaned`](Self::orphaned).
    #[inline]
    pub fn completed(&mut self, orphan: bool) {
        self.in_device = self.in_device.saturating_sub(1);
        if orphan {
            self.orphans = self.orphans.saturating_sub(1);
        }
    }

    /// The device did not take a command of `class` counted by
    /// [`dispatch`](Self::dispatch): it waits again, first of its list.
    #[inline]
    pub fn refused(&mut self, class: Class) {
        self.in_device = self.in_device.saturating_sub(1);
        self.enqueued(class);
    }

    /// The parent of a command in the device has ended without it.
    #[inline]
    pub fn orphaned(&mut self) {
        self.orphans = self.orphans.saturating_add(1);
    }

    /// A command reported by [`orphaned`](Self::orphaned) found its parent after all.
    #[inline]
    pub fn adopted(&mut self) {
        self.orphans = self.orphans.saturating_sub(1);
    }

    /// Whether so many commands never came back that the member gets only
    /// probes until some do.
    #[inline]
    pub fn only_probes(&self) -> bool {
        self.orphans >= self.orphan_cap
    }

    /// Commands of `class` that wait in the driver.
    #[inline]
    pub fn waiting(&self, class: Class) -> u32 {
        match class {
            Class::Ordinary => self.ordinary,
            Class::Extra => self.extra,
        }
    }

    /// Commands in the device, orphans included.
    #[inline]
    pub fn in_device(&self) -> u32 {
        self.in_device
    }

    /// Orphans in the device.
    #[inline]
    pub fn orphans(&self) -> u32 {
        self.orphans
    }

    #[inline]
    fn waiting_mut(&mut self, class: Class) -> &mut u32 {
        match class {
            Class::Ordinary => &mut self.ordinary,
            Class::Extra => &mut self.extra,
        }
    }
}

/// A command that waits to enter a device.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// Where it begins on the device; `None` for one that is not to wait for the
    /// others.
    pub at: Option<Sector>,
    /// When it began to wait.
    pub since: Micros,
}

/// Waiting for longer is overdue.
const OVERDUE: Micros = Micros(2_000_000);

/// One command in so many may be an overdue one. Serving these first would turn
/// overload into first come, first served, from which no disk recovers.
const OVERDUE_EVERY: u32 = 16;

/// The order in which commands enter a disk: upwards from place to place, and
/// from the lowest one again (C-LOOK); overdue ones in between.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sweep {
    /// Where the last one began.
    head: Sector,
    /// Commands since the last one that was overdue.
    in_order: u32,
}

impl Sweep {
    /// Chooses the next of `waiting`: its index. Cost: one walk over them.
    pub fn next(&mut self, waiting: impl Iterator<Item = Waiting>, now: Micros) -> Option<usize> {
        let mut oldest: Option<(usize, Micros)> = None;
        let mut ahead: Option<(usize, Sector)> = None;
        let mut lowest: Option<(usize, Sector)> = None;
        for (index, command) in waiting.enumerate() {
            let Some(at) = command.at else {
                return Some(index);
            };
            let before = |best: Option<(usize, Sector)>| best.is_none_or(|(_, other)| at < other);
            if before(lowest) {
                lowest = Some((index, at));
            }
            if at >= self.head && before(ahead) {
                ahead = Some((index, at));
            }
            if oldest.is_none_or(|(_, since)| command.since < since) {
                oldest = Some((index, command.since));
            }
        }
        let (index, since) = oldest?;
        self.in_order = self.in_order.saturating_add(1);
        if self.in_order >= OVERDUE_EVERY && now.saturating_sub(since) > OVERDUE {
            self.in_order = 0;
            // The sweep goes on where it was.
            return Some(index);
        }
        let (index, at) = ahead.or(lowest)?;
        self.head = at;
        Some(index)
    }
}

#[inline]
const fn no_limit_if_zero(depth: u32) -> u32 {
    if depth == 0 {
        u32::MAX
    } else {
        depth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_up_to_depth() {
        let mut queue = Classes::new(2, 8);
        for _ in 0..3 {
            queue.enqueued(Class::Ordinary);
        }
        assert_eq!(queue.dispatch(), Some(Class::Ordinary));
        assert_eq!(queue.dispatch(), Some(Class::Ordinary));
        assert_eq!(queue.dispatch(), None);
        queue.completed(false);
        assert_eq!(queue.dispatch(), Some(Class::Ordinary));
        assert_eq!(queue.waiting(Class::Ordinary), 0);
        assert_eq!(queue.in_device(), 2);
    }

    #[test]
    fn zero_depth_is_unlimited_and_can_be_lowered() {
        let mut queue = Classes::new(0, 8);
        for _ in 0..1000 {
            queue.enqueued(Class::Ordinary);
            assert_eq!(queue.dispatch(), Some(Class::Ordinary));
        }
        queue.set_depth(1);
        queue.enqueued(Class::Ordinary);
        assert_eq!(queue.dispatch(), None);
        for _ in 0..1000 {
            queue.completed(false);
        }
        assert_eq!(queue.dispatch(), Some(Class::Ordinary));
    }

    #[test]
    fn extra_only_into_an_empty_device() {
        let mut queue = Classes::new(32, 8);
        queue.enqueued(Class::Extra);
        queue.enqueued(Class::Extra);
        queue.enqueued(Class::Ordinary);
        assert!(!queue.may_dispatch(Class::Extra));
        assert_eq!(queue.dispatch(), Some(Class::Ordinary));
        assert_eq!(queue.dispatch(), None, "the device holds a command");
        queue.completed(false);
        assert_eq!(queue.dispatch(), Some(Class::Extra));
        assert_eq!(queue.dispatch(), None, "one extra at a time");
    }

    #[test]
    fn promotion_enters_a_busy_device() {
        let mut queue = Classes::new(32, 8);
        queue.enqueued(Class::Ordinary);
        queue.enqueued(Class::Extra);
        assert_eq!(queue.dispatch(), Some(Class::Ordinary));
        assert_eq!(queue.dispatch(), None);
        queue.promoted();
        assert_eq!(queue.dispatch(), Some(Class::Ordinary));
        assert_eq!(queue.waiting(Class::Extra), 0);
    }

    #[test]
    fn removed_commands_never_enter() {
        let mut queue = Classes::new(1, 8);
        queue.enqueued(Class::Ordinary);
        queue.enqueued(Class::Ordinary);
        assert_eq!(queue.dispatch(), Some(Class::Ordinary));
        queue.removed(Class::Ordinary);
        queue.completed(false);
        assert_eq!(queue.dispatch(), None);
    }

    #[test]
    fn refused_commands_wait_again() {
        let mut queue = Classes::new(1, 8);
        queue.enqueued(Class::Ordinary);
        assert_eq!(queue.dispatch(), Some(Class::Ordinary));
        queue.enqueued(Class::Extra);
        queue.refused(Class::Ordinary);
        assert_eq!(queue.in_device(), 0);
        assert_eq!(queue.waiting(Class::Ordinary), 1);
        assert_eq!(queue.dispatch(), Some(Class::Ordinary), "before the extra");
        assert_eq!(queue.dispatch(), None);
    }

    #[test]
    fn orphans_hold_their_place_and_stop_the_member_at_the_cap() {
        let mut queue = Classes::new(2, 2);
        queue.enqueued(Class::Ordinary);
        queue.enqueued(Class::Ordinary);
        queue.enqueued(Class::Ordinary);
        assert!(queue.dispatch().is_some() && queue.dispatch().is_some());
        queue.orphaned();
        assert!(!queue.only_probes());
        queue.orphaned();
        assert!(queue.only_probes());
        assert_eq!(queue.dispatch(), None, "orphans fill the device");
        queue.completed(true);
        assert!(!queue.only_probes());
        assert_eq!(queue.orphans(), 1);
        assert_eq!(queue.dispatch(), Some(Class::Ordinary));
    }

    fn waiting(commands: &[(u64, u64)]) -> Vec<Waiting> {
        let waiting = |&(at, since)| Waiting {
            at: Some(Sector::new(at)),
            since: Micros::new(since),
        };
        commands.iter().map(waiting).collect()
    }

    /// The places in the order in which they are taken at `now`.
    fn order(sweep: &mut Sweep, mut commands: Vec<Waiting>, now: u64) -> Vec<u64> {
        let mut order = Vec::new();
        while let Some(index) = sweep.next(commands.iter().copied(), Micros::new(now)) {
            order.push(commands.remove(index).at.map_or(u64::MAX, Sector::get));
        }
        order
    }

    #[test]
    fn a_sweep_goes_up_and_begins_again_below() {
        let mut sweep = Sweep::default();
        let commands = waiting(&[(50, 0), (10, 1), (70, 2)]);
        assert_eq!(order(&mut sweep, commands, 3), [10, 50, 70]);
        // The head is at 70.
        let commands = waiting(&[(80, 4), (60, 5), (70, 6), (90, 7)]);
        assert_eq!(order(&mut sweep, commands, 8), [70, 80, 90, 60]);
        assert_eq!(sweep.next([].into_iter(), Micros::new(9)), None);
    }

    #[test]
    fn commands_without_a_place_go_first_and_leave_the_head() {
        let mut sweep = Sweep::default();
        assert_eq!(order(&mut sweep, waiting(&[(40, 0)]), 1), [40]);
        let mut commands = waiting(&[(30, 2), (50, 3)]);
        commands.push(Waiting {
            at: None,
            since: Micros::new(4),
        });
        assert_eq!(order(&mut sweep, commands, 5), [u64::MAX, 50, 30]);
    }

    #[test]
    fn one_in_sixteen_may_be_overdue() {
        let mut sweep = Sweep::default();
        let mut commands = waiting(&[(1, 0), (2, 10)]);
        // Two at the end of the way, and many that came later but lie before.
        commands.extend(waiting(
            &(0..40).map(|n| (100 + n, 1_000_000)).collect::<Vec<_>>(),
        ));
        assert_eq!(order(&mut sweep, waiting(&[(50, 0)]), 0), [50]);
        let order = order(&mut sweep, commands, OVERDUE.get() + 5);
        // Only the first has waited for longer than that; its turn is the 15th after the one above.
        assert_eq!(order.iter().position(|&at| at == 1), Some(14));
        assert_eq!(order.iter().position(|&at| at == 2), Some(41));
        assert!(order[..14].iter().eq((100..114).collect::<Vec<_>>().iter()));
    }
}
