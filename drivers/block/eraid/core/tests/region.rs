// SPDX-License-Identifier: GPL-2.0

//! The state machine of a region against a simulated array that can crash at any step.

mod support;

use eraid_core::geometry::{Geometry, Level};
use eraid_core::region::{Admit, ClearTicket, RegionState, Work};
use eraid_core::regionmap::{Init, Region};
use eraid_core::units::{Micros, Sectors, Slot, SlotSet};
use proptest::prelude::*;

/// Members that hold a copy of the map.
const COPIES: usize = 3;

const IDLE: Micros = Micros::new(10);

fn slot(number: u8) -> Slot {
    Slot::new(number).unwrap()
}

/// A write between begin_write and end_write.
#[derive(Clone, Copy, Debug)]
struct Write {
    missed: SlotSet,
    acknowledged: bool,
}

/// What a crash must not lose, and the devices.
struct Sim {
    state: RegionState,
    now: u64,
    /// What each copy of the map says.
    disk: [Region; COPIES],
    /// A map write on its way, and which copies have it already.
    persisting: Option<(Region, [bool; COPIES])>,
    writes: Vec<Write>,
    waiting: Option<SlotSet>,
    /// Writes that have ended, those of them when the last flush of all members began, and those
    /// that a flush has made durable.
    ended: usize,
    flushing: usize,
    flushed: usize,
    clearing: Option<ClearTicket>,
    /// Slots that acknowledged writes have missed.
    missed: SlotSet,
    written: bool,
    /// An ended write was torn and no resync has ended since it began after that.
    torn: bool,
    torn_again: bool,
    syncing: bool,
    /// A discard is under way; whether the members have got theirs.
    discarding: Option<bool>,
}

/// The operation that discards.
const DISCARDER: u32 = 7;

impl Sim {
    fn new(region: Region) -> Self {
        Sim {
            state: RegionState::loaded(region),
            now: 1000,
            disk: [region; COPIES],
            persisting: None,
            writes: Vec::new(),
            waiting: None,
            ended: 0,
            flushing: 0,
            flushed: 0,
            clearing: None,
            missed: SlotSet::EMPTY,
            written: false,
            torn: false,
            torn_again: false,
            syncing: false,
            discarding: None,
        }
    }

    fn begin(&mut self, missed: SlotSet) {
        match self.state.begin_write(Micros::new(self.now), missed) {
            Admit::Go => {
                assert_eq!(self.discarding, None, "a write into a discard");
                self.waiting = None;
                self.written = true;
                self.writes.push(Write {
                    missed,
                    acknowledged: false,
                });
            }
            Admit::Wait => {
                let map_write = self.state.needs_persist() || self.persisting.is_some();
                assert!(map_write || self.discarding.is_some());
                self.waiting = Some(missed);
            }
        }
    }

    /// Acknowledges the oldest write that may be.
    fn acknowledge(&mut self) {
        for write in &mut self.writes {
            if write.acknowledged {
                continue;
            }
            self.state.note_stale(write.missed);
            if self.state.is_recorded(write.missed) {
                write.acknowledged = true;
                self.missed = self.missed.union(write.missed);
                return;
            }
        }
    }

    fn end(&mut self, torn: bool) {
        let Some(index) = self.writes.iter().position(|w| w.acknowledged || torn) else {
            return;
        };
        let write = self.writes.remove(index);
        if torn && !write.acknowledged {
            self.state.note_torn();
            self.torn = true;
            self.torn_again = true;
        }
        self.state.end_write(Micros::new(self.now));
        self.ended += 1;
    }

    /// Begins a map write, or brings it forward by one copy.
    fn persist(&mut self, copy: usize) {
        match &mut self.persisting {
            None if self.state.needs_persist() => {
                self.persisting = Some((self.state.begin_persist(), [false; COPIES]));
            }
            None => {}
            Some((region, done)) => {
                self.disk[copy] = *region;
                done[copy] = true;
                if done.iter().all(|d| *d) {
                    self.state.persisted(*region);
                    self.persisting = None;
                    if let Some(missed) = self.waiting {
                        self.begin(missed);
                    }
                }
            }
        }
    }

    /// Begins to clear, which flushes, or finishes it.
    fn clear(&mut self) {
        match self.clearing.take() {
            None => {
                self.clearing = self.state.try_clear(Micros::new(self.now), IDLE);
                if self.clearing.is_some() {
                    self.flushing = self.ended;
                }
            }
            Some(ticket) => {
                self.flushed = self.flushing;
                let cleared = self.state.finish_clear(ticket);
                assert!(!cleared || (self.writes.is_empty() && self.flushed == self.ended));
            }
        }
    }

    fn sync(&mut self) {
        if !self.syncing {
            self.state.begin_sync();
            self.syncing = true;
            self.torn_again = false;
        } else {
            self.syncing = false;
            let done = self.state.synced(SlotSet::EMPTY);
            assert_eq!(done, !self.torn_again);
            self.torn &= !done;
        }
    }

    /// Brings a discard forward: begins it, lets the members discard, ends it.
    fn discard(&mut self) {
        match self.discarding {
            None => {
                let begun = self.state.begin_discard(DISCARDER);
                assert_eq!(begun, self.writes.is_empty());
                assert_eq!(self.state.is_discarding(DISCARDER), begun);
                if begun {
                    self.discarding = Some(false);
                    assert!(!self.state.begin_discard(DISCARDER + 1), "one at a time");
                    // What was written there is of no interest any more.
                    (self.written, self.torn, self.torn_again) = (false, false, true);
                    (self.flushed, self.flushing) = (self.ended, self.ended);
                }
            }
            Some(false) if self.state.discard_recorded() => self.discarding = Some(true),
            Some(false) => assert!(self.state.needs_persist() || self.persisting.is_some()),
            Some(true) => {
                self.state.end_discard();
                self.discarding = None;
                if let Some(missed) = self.waiting {
                    self.begin(missed);
                }
            }
        }
    }

    /// What assembly makes of the copies, each of which has the map write or not.
    fn after_crash(&self) -> Region {
        let on_disk = self.disk.iter().copied().reduce(Region::merge).unwrap();
        RegionState::loaded(on_disk).view()
    }

    fn check(&self) {
        let after = self.after_crash();
        if !self.writes.is_empty() || self.flushed < self.ended {
            assert!(
                after.need_sync,
                "a write in flight or in a cache is forgotten"
            );
        }
        if self.torn {
            assert!(after.need_sync, "a torn write is forgotten");
            assert!(self.state.view().need_sync);
        }
        if self.written {
            assert_ne!(after.init, Init::None);
        }
        if self.discarding == Some(true) {
            assert_eq!(after.init, Init::None, "the members disagree");
            assert!(!after.need_sync, "nothing is left to be resynced");
        }
        let forgotten = self.missed.minus(after.stale);
        assert!(
            forgotten.is_empty(),
            "missed writes of {forgotten:?} are forgotten"
        );
        for write in &self.writes {
            assert!(write.missed.is_subset(self.state.view().stale));
        }
    }

    fn act(&mut self, action: u8, slot_bits: u64, copy: usize) {
        let missed = SlotSet::from_bits(slot_bits);
        match action {
            0 | 1 => {
                let missed = self.waiting.unwrap_or(missed);
                self.begin(missed);
            }
            2 => {
                // A device fails under a write that is out.
                if let Some(write) = self.writes.iter_mut().find(|w| !w.acknowledged) {
                    write.missed = write.missed.union(missed);
                    for slot in missed {
                        self.state.note_missed(slot);
                    }
                }
            }
            3 => self.acknowledge(),
            4 => self.end(false),
            5 => self.end(true),
            6..=9 => self.persist(copy),
            10 | 11 => self.clear(),
            12 => self.sync(),
            13 | 14 => self.discard(),
            15 => {
                let marked = self.state.view().in_flight;
                assert!(!(self.state.expect_write(Micros::new(self.now)) && marked));
            }
            _ => self.now += 7,
        }
    }
}

proptest! {
    #![proptest_config(support::config(4000))]

    #[test]
    fn a_crash_at_any_step_forgets_nothing(
        init in 0u8..3,
        actions in prop::collection::vec((0u8..18, 0u64..8, 0..COPIES), 1..200),
    ) {
        let init = [Init::None, Init::Partial, Init::Full][usize::from(init)];
        let mut sim = Sim::new(Region { init, ..Region::NEW });
        for (action, slots, copy) in actions {
            // Mostly healthy, so that few slots pile up.
            let slots = if slots > 3 { 0 } else { slots };
            sim.act(action, slots, copy);
            sim.check();
        }
    }

    #[test]
    fn a_write_is_admitted_after_two_map_writes_and_cleared_when_idle(
        init in 0u8..3,
        actions in prop::collection::vec((0u8..18, 0u64..4, 0..COPIES), 0..100),
        missed in 0u64..8,
    ) {
        let init = [Init::None, Init::Partial, Init::Full][usize::from(init)];
        let mut sim = Sim::new(Region { init, ..Region::NEW });
        for (action, slots, copy) in actions {
            sim.act(action, slots, copy);
        }
        sim.waiting = None;
        // A discard that is under way ends: its map write, and its steps.
        for step in 0..4 * (COPIES + 1) {
            sim.persist(step % COPIES);
            if sim.discarding.is_some() && step % (COPIES + 1) == COPIES {
                sim.discard();
            }
        }
        assert_eq!(sim.discarding, None);
        let open = sim.writes.len();
        sim.begin(SlotSet::from_bits(missed));
        // The rest of the map write under way, and one of its own.
        for step in 0..2 * (COPIES + 1) {
            sim.persist(step % COPIES);
        }
        for copy in 0..COPIES {
            sim.persist(copy);
        }
        assert_eq!(sim.writes.len(), open + 1);

        while !sim.writes.is_empty() {
            for copy in (0..=COPIES).map(|c| c % COPIES) {
                sim.persist(copy);
            }
            sim.acknowledge();
            sim.end(false);
        }
        sim.now += IDLE.get();
        sim.clearing = None;
        sim.clear();
        sim.clear();
        assert!(!sim.state.view().in_flight);
        for copy in (0..4 * (COPIES + 1)).map(|c| c % COPIES) {
            sim.persist(copy);
        }
        assert!(!sim.state.needs_persist());
        assert_eq!(sim.after_crash(), sim.state.view(), "nothing is left to be redone");
        sim.check();
    }
}

fn persist(state: &mut RegionState) {
    let written = state.begin_persist();
    state.persisted(written);
}

#[test]
fn an_expected_write_waits_for_nothing() {
    let mut state = RegionState::loaded(Region::NEW);
    assert!(!state.wants_mark());
    assert!(state.expect_write(Micros::new(5)));
    assert!(!state.expect_write(Micros::new(5)));
    assert!(state.wants_mark() && state.needs_persist());
    assert!(state.try_clear(Micros::new(14), IDLE).is_none());
    persist(&mut state);
    assert!(!state.wants_mark());
    assert_eq!(
        state.begin_write(Micros::new(20), SlotSet::EMPTY),
        Admit::Go
    );
    state.end_write(Micros::new(21));
    // One that never comes does not keep the region marked.
    let mut state = RegionState::loaded(Region::CLEAN);
    assert!(state.expect_write(Micros::new(5)));
    persist(&mut state);
    let ticket = state.try_clear(Micros::new(15), IDLE).unwrap();
    assert!(state.finish_clear(ticket));
    persist(&mut state);
    assert_eq!(state.view(), Region::CLEAN);
}

#[test]
fn first_write_waits_for_one_map_write() {
    let mut state = RegionState::loaded(Region::NEW);
    assert!(!state.needs_persist());
    assert_eq!(state.begin_write(Micros::ZERO, SlotSet::EMPTY), Admit::Wait);
    assert_eq!(state.begin_write(Micros::ZERO, SlotSet::EMPTY), Admit::Wait);
    assert_eq!(state.view().init, Init::Partial);
    persist(&mut state);
    assert_eq!(state.begin_write(Micros::ZERO, SlotSet::EMPTY), Admit::Go);
    assert_eq!(state.begin_write(Micros::ZERO, SlotSet::EMPTY), Admit::Go);
    assert_eq!(state.writers(), 2);
}

#[test]
fn a_write_waits_for_the_stale_bits_of_those_it_leaves_out() {
    let mut state = RegionState::loaded(Region::CLEAN);
    let missed = SlotSet::single(slot(1));
    let _ = state.begin_write(Micros::ZERO, SlotSet::EMPTY);
    persist(&mut state);
    assert_eq!(state.begin_write(Micros::ZERO, SlotSet::EMPTY), Admit::Go);
    assert_eq!(state.begin_write(Micros::ZERO, missed), Admit::Wait);
    assert_eq!(state.view().stale, missed, "seen at once");
    assert!(!state.is_recorded(missed));
    persist(&mut state);
    assert!(state.is_recorded(missed));
    assert_eq!(state.begin_write(Micros::ZERO, missed), Admit::Go);
}

#[test]
fn in_flight_alone_admits_no_write() {
    let odd = Region {
        in_flight: true,
        ..Region::NEW
    };
    let mut state = RegionState::loaded(odd);
    assert_eq!(state.begin_write(Micros::ZERO, SlotSet::EMPTY), Admit::Wait);
    persist(&mut state);
    assert_eq!(state.begin_write(Micros::ZERO, SlotSet::EMPTY), Admit::Go);
}

#[test]
fn a_write_during_the_clearing_map_write_waits() {
    let mut state = RegionState::loaded(Region::CLEAN);
    let _ = state.begin_write(Micros::ZERO, SlotSet::EMPTY);
    persist(&mut state);
    assert_eq!(state.begin_write(Micros::ZERO, SlotSet::EMPTY), Admit::Go);
    state.end_write(Micros::ZERO);
    assert_eq!(
        state.try_clear(Micros::new(9), IDLE),
        None,
        "not idle long enough"
    );
    let ticket = state.try_clear(IDLE, IDLE).unwrap();
    assert!(state.finish_clear(ticket));
    let cleared = state.begin_persist();
    assert!(!cleared.in_flight);
    // It may be on the disk already.
    assert_eq!(state.begin_write(IDLE, SlotSet::EMPTY), Admit::Wait);
    assert_eq!(state.begin_write(IDLE, SlotSet::EMPTY), Admit::Wait);
    state.persisted(cleared);
    assert!(state.needs_persist());
    persist(&mut state);
    assert_eq!(state.begin_write(IDLE, SlotSet::EMPTY), Admit::Go);
}

#[test]
fn a_write_cancels_a_clearing_that_is_not_on_its_way() {
    let mut state = RegionState::loaded(Region::CLEAN);
    let _ = state.begin_write(Micros::ZERO, SlotSet::EMPTY);
    persist(&mut state);
    let ticket = state.try_clear(IDLE, IDLE).unwrap();
    assert_eq!(state.begin_write(IDLE, SlotSet::EMPTY), Admit::Go);
    assert!(!state.finish_clear(ticket), "during the flush");
    state.end_write(IDLE);
    assert!(
        !state.finish_clear(ticket),
        "what was written is not flushed"
    );

    let later = Micros::new(100);
    let ticket = state.try_clear(later, IDLE).unwrap();
    assert!(state.finish_clear(ticket));
    assert_eq!(
        state.begin_write(later, SlotSet::EMPTY),
        Admit::Go,
        "after the flush"
    );
    assert!(!state.needs_persist());
}

#[test]
fn recovery_is_repeated_after_a_failed_write() {
    let mut state = RegionState::loaded(Region {
        stale: SlotSet::single(slot(2)),
        ..Region::CLEAN
    });
    assert_eq!(
        state.work(Level::Raid5),
        Work::Recover(SlotSet::single(slot(2)))
    );
    state.begin_recovery(slot(2));
    // A write of a stripe the recovery has not reached leaves the slot out: no reason to repeat.
    let _ = state.begin_write(Micros::ZERO, SlotSet::single(slot(2)));
    state.note_missed(slot(2));
    assert!(!state.recovered(slot(2), SlotSet::EMPTY));
    state.begin_recovery(slot(2));
    let _ = state.begin_write(Micros::ZERO, SlotSet::single(slot(2)));
    assert!(state.recovered(slot(2), SlotSet::EMPTY));
    assert!(state.view().stale.is_empty());
    assert!(state.needs_persist());
}

#[test]
fn a_recovery_between_miss_and_map_write_leaves_no_write_waiting() {
    let mut state = RegionState::loaded(Region::CLEAN);
    let missed = SlotSet::single(slot(1));
    let _ = state.begin_write(Micros::ZERO, SlotSet::EMPTY);
    persist(&mut state);
    assert_eq!(state.begin_write(Micros::ZERO, SlotSet::EMPTY), Admit::Go);
    state.note_missed(slot(1));
    state.begin_recovery(slot(1));
    assert!(
        !state.recovered(slot(1), missed),
        "it failed before it was flushed"
    );
    assert!(state.recovered(slot(1), SlotSet::EMPTY));
    state.note_stale(missed);
    assert!(!state.is_recorded(missed));
    assert!(state.needs_persist());
    persist(&mut state);
    assert!(state.is_recorded(missed));
}

#[test]
fn a_discard_is_recorded_before_the_members_get_it_and_keeps_writers_out() {
    let stale = SlotSet::single(slot(2));
    let mut state = RegionState::loaded(Region {
        stale,
        ..Region::CLEAN
    });
    let _ = state.begin_write(Micros::ZERO, stale);
    persist(&mut state);
    assert_eq!(state.begin_write(Micros::ZERO, stale), Admit::Go);
    assert!(!state.begin_discard(1), "while it is written");
    state.end_write(Micros::ZERO);
    state.begin_recovery(slot(2));
    state.begin_sync();
    // A map write that says otherwise is on its way.
    state.note_torn();
    let old = state.begin_persist();
    assert!(state.begin_discard(1));
    assert!(!state.discard_recorded());
    state.persisted(old);
    assert!(!state.discard_recorded());
    assert_eq!(state.begin_write(Micros::ZERO, stale), Admit::Wait);
    assert_eq!(
        state.view(),
        Region {
            stale,
            ..Region::NEW
        }
    );
    assert_eq!(state.work(Level::Raid5), Work::Nothing);
    persist(&mut state);
    assert!(state.discard_recorded());
    assert_eq!(state.begin_write(Micros::ZERO, stale), Admit::Wait);
    state.end_discard();
    // As the first write of a new array.
    assert_eq!(state.begin_write(Micros::ZERO, stale), Admit::Wait);
    persist(&mut state);
    assert_eq!(state.begin_write(Micros::ZERO, stale), Admit::Go);
    assert_eq!(state.view().init, Init::Partial);
    // What was recomputed before the discard proves nothing.
    assert!(!state.synced(SlotSet::EMPTY));
    assert!(!state.recovered(slot(2), SlotSet::EMPTY));
}

#[test]
fn work_of_a_region() {
    let stale = SlotSet::single(slot(1));
    let need_sync = Region {
        need_sync: true,
        ..Region::CLEAN
    };
    let both = Region { stale, ..need_sync };
    let work = |region, level| RegionState::loaded(region).work(level);
    assert_eq!(work(Region::CLEAN, Level::Raid5), Work::Nothing);
    assert_eq!(work(Region::NEW, Level::Raid5), Work::Nothing);
    assert_eq!(
        work(
            Region {
                init: Init::Partial,
                ..Region::NEW
            },
            Level::Raid5
        ),
        Work::Fill
    );
    assert_eq!(work(need_sync, Level::Raid5), Work::Resync);
    assert_eq!(work(both, Level::Raid5), Work::Doubtful);
    assert_eq!(work(both, Level::Raid1), Work::Resync);
    let unclean = Region {
        in_flight: true,
        ..Region::CLEAN
    };
    assert_eq!(work(unclean, Level::Raid5), Work::Resync, "after a crash");
}

#[test]
fn absent_members_are_stale_after_a_resync_and_after_force() {
    let need_sync = Region {
        need_sync: true,
        ..Region::CLEAN
    };
    let absent = SlotSet::single(slot(3));
    let mut state = RegionState::loaded(need_sync);
    state.begin_sync();
    assert!(state.synced(absent));
    assert_eq!(
        (state.view().need_sync, state.view().stale),
        (false, absent)
    );
    let two = absent.with(slot(0));
    for (level, absent, init) in [
        (Level::Raid5, absent, Init::Full),
        // P and Q may not agree on one member's blocks, and always do on two members'.
        (Level::Raid6, absent, Init::Partial),
        (Level::Raid6, two, Init::Full),
    ] {
        let mut state = RegionState::loaded(need_sync);
        assert!(state.accept_doubt(absent, level));
        let view = state.view();
        assert_eq!((view.need_sync, view.stale), (false, absent));
        assert_eq!(view.init, init);
        assert!(!RegionState::loaded(Region::CLEAN).accept_doubt(absent, level));
    }
}

#[test]
fn resync_fills() {
    let mut state = RegionState::loaded(Region {
        init: Init::Partial,
        ..Region::NEW
    });
    state.begin_sync();
    assert!(state.synced(SlotSet::EMPTY));
    assert_eq!(state.view(), Region::CLEAN);
    assert_eq!(state.work(Level::Raid5), Work::Nothing);
}

/// A region of an array, written to, with these members stale.
fn in_flight(stale: &[u8], need_sync: bool) -> RegionState {
    let mut state = RegionState::loaded(Region {
        stale: stale.iter().map(|number| slot(*number)).collect(),
        need_sync,
        ..Region::CLEAN
    });
    let _ = state.begin_write(Micros::ZERO, SlotSet::EMPTY);
    state
}

#[test]
fn who_fails_is_stale_unless_the_rest_would_not_do() {
    let after = |stale: &[u8], parity| {
        let mut state = in_flight(stale, false);
        state.member_failed(slot(1), parity);
        (state.view().stale, state.view().need_sync)
    };
    let (one, two) = (SlotSet::single(slot(1)), SlotSet::single(slot(2)));
    assert_eq!(after(&[], 1), (one, false));
    assert_eq!(after(&[1], 1), (one, false), "again");
    assert_eq!(after(&[2], 2), (one.union(two), false));
    // Were it stale, too, nobody could ever tell what the two hold.
    assert_eq!(after(&[2], 1), (two, true));
    let mut idle = RegionState::loaded(Region::CLEAN);
    idle.member_failed(slot(1), 1);
    assert_eq!(idle.view(), Region::CLEAN);
}

#[test]
fn who_missed_a_write_lags_where_it_can_be_caught_up() {
    let lags = |level, stale: &[u8], need_sync, missing: &[u8]| {
        let geometry = Geometry::new(level, 4, Sectors::new(8), Sectors::new(80)).unwrap();
        let mut state = in_flight(stale, need_sync);
        let before = state.view();
        let missing = missing.iter().map(|number| slot(*number)).collect();
        let lags = state.let_lag(SlotSet::single(slot(1)), missing, &geometry);
        let stale = match lags {
            true => before.stale.with(slot(1)),
            false => before.stale,
        };
        assert_eq!(state.view(), Region { stale, ..before });
        lags
    };
    use Level::{Raid1, Raid5, Raid6};
    assert!(lags(Raid5, &[], false, &[]));
    assert!(lags(Raid5, &[1], false, &[]), "it lags already");
    assert!(!lags(Raid5, &[2], false, &[]), "another one lags");
    assert!(!lags(Raid5, &[], false, &[2]), "another one is missing");
    assert!(lags(Raid6, &[2], false, &[2]));
    assert!(!lags(Raid6, &[2], false, &[3]));
    assert!(!lags(Raid5, &[], true, &[]), "parity may not match");
    assert!(lags(Raid1, &[2], true, &[3]), "copies can be made equal");
    assert!(!lags(Raid1, &[2, 3], true, &[0]), "of the last copy");
}

#[test]
fn a_recovery_of_who_lags_begins_anew() {
    let geometry = Geometry::new(Level::Raid5, 4, Sectors::new(8), Sectors::new(80)).unwrap();
    let mut state = in_flight(&[1], false);
    state.begin_recovery(slot(1));
    assert!(state.let_lag(SlotSet::single(slot(1)), SlotSet::EMPTY, &geometry));
    assert!(!state.recovered(slot(1), SlotSet::EMPTY));
}

#[test]
fn who_has_what_others_lack_is_needed() {
    let needs = |stale: &[u8], members, number| {
        in_flight(stale, false).needs(slot(number), SlotSet::first_n(members), 3)
    };
    assert!(!needs(&[], 4, 1), "the others suffice");
    assert!(needs(&[2], 4, 1), "another one lacks something");
    assert!(!needs(&[2], 4, 2), "it is that one");
    assert!(needs(&[], 3, 1), "another one is missing");
    assert!(!needs(&[2], 3, 1), "too few have it anyway");
}

#[test]
fn a_new_member_lacks_what_was_ever_written() {
    let mut written = RegionState::loaded(Region {
        init: Init::Full,
        ..Region::NEW
    });
    assert!(!written.is_emptied(slot(1)), "somebody has to say so");
    written.emptied(slot(1));
    assert!(!written.is_emptied(slot(1)), "the maps do not say so yet");
    let on_its_way = written.begin_persist();
    assert!(
        !written.is_emptied(slot(1)),
        "a crash may leave the old map"
    );
    written.persisted(on_its_way);
    assert!(written.is_emptied(slot(1)));
    assert_eq!(
        written.work(Level::Raid5),
        Work::Recover(SlotSet::single(slot(1)))
    );
    assert!(!written.is_caught_up(slot(1)));
    written.begin_recovery(slot(1));
    assert!(written.recovered(slot(1), SlotSet::EMPTY));
    assert!(!written.is_caught_up(slot(1)), "a crash forgets that it is");
    persist(&mut written);
    assert!(written.is_caught_up(slot(1)));

    let mut never = RegionState::loaded(Region::NEW);
    never.emptied(slot(1));
    assert!(never.is_emptied(slot(1)), "there is nothing to lack");
    assert!(never.is_caught_up(slot(1)));
    // A write that began while nobody was in the slot comes after the look at the region.
    let missed = SlotSet::single(slot(1));
    assert_eq!(never.begin_write(Micros::new(1), missed), Admit::Wait);
    assert!(!never.is_caught_up(slot(1)));
    assert!(never.is_emptied(slot(1)), "the write has seen to that");
    persist(&mut never);
    assert!(never.is_emptied(slot(1)));
}
