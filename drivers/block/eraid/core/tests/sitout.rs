// SPDX-License-Identifier: GPL-2.0

//! Sit-outs: each transition, random events against what must always hold, and the watch as a whole.

mod support;

use eraid_core::latency::Sum;
use eraid_core::outlier::{Finding, Media, Observation, Reason, Tuning};
use eraid_core::refusal::Errno;
use eraid_core::sitout::{
    Action, Cause, Mode, Request, Rules, SitOut, SitOuts, FORGIVEN_AFTER, PROBES, TERM_MAX,
    TERM_STALL,
};
use eraid_core::units::{Micros, Slot, SlotSet};
use eraid_core::watch::{Choice, Settings, Standing, Watch};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SECOND: u64 = 1_000_000;

fn at(seconds: u64) -> Micros {
    Micros::new(seconds * SECOND)
}

fn slot(number: u8) -> Slot {
    Slot::new(number).unwrap()
}

const RULES: Rules = Rules {
    mode: Mode::On,
    first: Micros::new(600 * SECOND),
    most: u8::MAX,
    ratio_tenths: 15,
};

fn finding(number: u8, reason: Reason, ratio: u64) -> Finding {
    Finding {
        slot: slot(number),
        reason,
        value: Micros::new(10_000 * ratio),
        peer: Micros::new(10_000),
        fence: Micros::new(15_000),
        windows: 4,
    }
}

fn found(outs: &mut SitOuts, number: u8, now: u64) -> Option<Action> {
    outs.found(&finding(number, Reason::Outlier, 4), &RULES, 2, at(now))
}

/// Answers all probes of a member with `percent` of what the peers take.
fn probe(outs: &mut SitOuts, number: u8, percent: u64, now: u64) -> Option<Action> {
    let mut action = None;
    for _ in 0..PROBES {
        assert_eq!(action, None, "only the last one decides");
        let own = Micros::new(100 * percent);
        action = outs.probed(slot(number), own, Micros::new(10_000), &RULES, at(now));
    }
    action
}

fn length_of(action: Option<Action>) -> u64 {
    match action {
        Some(Action::Begin {
            length: Some(length),
            ..
        })
        | Some(Action::Extended { length, .. }) => length.get() / SECOND,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_slow_member_sits_for_a_term_and_comes_back_when_probes_are_fast() {
    let mut outs = SitOuts::new();
    let action = found(&mut outs, 3, 1000);
    assert_eq!(
        action,
        Some(Action::Begin {
            slot: slot(3),
            found: Some(finding(3, Reason::Outlier, 4)),
            length: Some(at(600)),
        })
    );
    assert_eq!(outs.sitting(), SlotSet::single(slot(3)));
    let state = outs.state(slot(3));
    assert_eq!((state.reason(), state.shown(at(1000))), ("outlier", 600));
    assert_eq!(outs.due(&RULES, 2, at(1599)), None);
    assert_eq!(
        outs.due(&RULES, 2, at(1600)),
        Some(Action::Probe { slot: slot(3) })
    );
    assert_eq!(outs.due(&RULES, 2, at(1600)), None);
    assert!(outs.state(slot(3)).is_out(), "reads avoid it as before");
    assert_eq!(outs.probed_ones(), SlotSet::single(slot(3)));
    assert_eq!(
        probe(&mut outs, 3, 150, 1605),
        Some(Action::End {
            slot: slot(3),
            cause: Cause::Recovered,
            lasted: at(605),
        })
    );
    assert_eq!(outs.state(slot(3)), SitOut::Off);
    assert_eq!(probe(&mut outs, 3, 100, 1606), None, "late probes");
}

#[test]
fn terms_double_up_to_two_hours_and_then_it_should_be_replaced() {
    let mut outs = SitOuts::new();
    let mut now = 1000;
    let mut length = length_of(found(&mut outs, 0, now));
    for next in [1200, 2400, 4800] {
        now += length;
        assert!(outs.due(&RULES, 1, at(now)).is_some());
        length = length_of(probe(&mut outs, 0, 151, now));
        assert_eq!(length, next, "still slow");
        assert_eq!(outs.due(&RULES, 1, at(now)), None);
    }
    // It recovers, and is found again soon.
    now += length;
    assert!(outs.due(&RULES, 1, at(now)).is_some());
    assert!(probe(&mut outs, 0, 100, now).is_some());
    length = length_of(found(&mut outs, 0, now + 60));
    assert_eq!(at(length), TERM_MAX);
    let replace = Action::Replace {
        slot: slot(0),
        offences: 5,
    };
    assert_eq!(outs.due(&RULES, 1, at(now + 60)), Some(replace));
    assert_eq!(outs.due(&RULES, 1, at(now + 60)), None);
    now += 60 + length;
    assert!(outs.due(&RULES, 1, at(now)).is_some());
    assert_eq!(at(length_of(probe(&mut outs, 0, 300, now))), TERM_MAX);
    assert_eq!(outs.due(&RULES, 1, at(now)), None, "it was said once");
}

#[test]
fn former_sit_outs_are_forgiven_one_a_day() {
    let mut outs = SitOuts::new();
    let mut now = 0;
    for expected in [600, 1200, 2400] {
        assert_eq!(length_of(found(&mut outs, 0, now)), expected);
        now += expected;
        assert!(outs.due(&RULES, 1, at(now)).is_some());
        assert!(probe(&mut outs, 0, 100, now).is_some());
    }
    now += FORGIVEN_AFTER.get() / SECOND * 2;
    assert_eq!(length_of(found(&mut outs, 0, now)), 1200);
}

#[test]
fn a_stall_is_short_at_first() {
    let mut outs = SitOuts::new();
    let stall = finding(0, Reason::Stall, 500);
    let action = outs.found(&stall, &RULES, 1, at(5));
    assert_eq!(at(length_of(action)), TERM_STALL);
    assert_eq!(outs.state(slot(0)).reason(), "stall");
    let (mut now, mut length, mut replaced) = (5, 30, 0);
    for offence in 2..=12u32 {
        now += length;
        assert!(outs.due(&RULES, 1, at(now)).is_some());
        // What does not return is as old as it is.
        length = length_of(probe(&mut outs, 0, 100_000, now));
        assert_eq!(length, (30 << (offence - 1)).min(7200));
        while let Some(action) = outs.due(&RULES, 1, at(now)) {
            assert!(matches!(action, Action::Replace { .. }));
            replaced += 1;
        }
    }
    assert_eq!(replaced, 1);
}

#[test]
fn observing_only_reports_and_not_too_often() {
    let mut outs = SitOuts::new();
    let rules = Rules {
        mode: Mode::Observe,
        ..RULES
    };
    let slow = finding(2, Reason::Outlier, 4);
    let mut report = |now| outs.found(&slow, &rules, 1, at(now));
    assert_eq!(report(100), Some(Action::Observed(slow)));
    assert_eq!(report(699), None);
    assert_eq!(report(700), Some(Action::Observed(slow)));
    assert!(outs.sitting().is_empty());
}

#[test]
fn off_means_off_and_ends_what_is_not_manual() {
    for rules in [
        Rules {
            mode: Mode::Off,
            ..RULES
        },
        Rules {
            first: Micros::ZERO,
            ..RULES
        },
        Rules {
            mode: Mode::Observe,
            ..RULES
        },
    ] {
        let mut outs = SitOuts::new();
        found(&mut outs, 0, 0).unwrap();
        outs.request(slot(1), Request::UntilCleared, 2, at(0))
            .unwrap();
        assert_eq!(
            outs.due(&rules, 2, at(9)),
            Some(Action::End {
                slot: slot(0),
                cause: Cause::Disabled,
                lasted: at(9),
            })
        );
        assert_eq!(outs.due(&rules, 2, at(9)), None);
        assert_eq!(outs.sitting(), SlotSet::single(slot(1)));
        let action = outs.found(&finding(0, Reason::Outlier, 9), &rules, 2, at(9));
        assert!(!matches!(action, Some(Action::Begin { .. })));
    }
}

#[test]
fn the_administrator_has_the_last_word() {
    let mut outs = SitOuts::new();
    let begin = outs.request(slot(0), Request::For(at(100)), 1, at(10));
    assert_eq!(
        begin,
        Ok(Some(Action::Begin {
            slot: slot(0),
            found: None,
            length: Some(at(100)),
        }))
    );
    assert_eq!(found(&mut outs, 0, 11), None, "it sits already");
    let refusal = outs.request(slot(1), Request::UntilCleared, 1, at(12));
    assert_eq!(refusal.unwrap_err().errno, Errno::Busy);
    assert_eq!(outs.due(&RULES, 1, at(109)), None);
    let end = outs.due(&RULES, 1, at(110)).unwrap();
    assert!(matches!(
        end,
        Action::End {
            cause: Cause::TimeOver,
            ..
        }
    ));
    // A slow one is taken over, and taken back.
    found(&mut outs, 0, 200).unwrap();
    outs.request(slot(0), Request::UntilCleared, 1, at(300))
        .unwrap();
    assert_eq!(outs.state(slot(0)), SitOut::UntilCleared);
    assert_eq!(outs.due(&RULES, 1, at(100_000)), None);
    let end = outs.request(slot(0), Request::End, 1, at(100_000));
    assert_eq!(
        end,
        Ok(Some(Action::End {
            slot: slot(0),
            cause: Cause::Cleared,
            lasted: at(99_800),
        }))
    );
    assert_eq!(
        outs.request(slot(0), Request::End, 1, at(100_000)),
        Ok(None)
    );
}

#[test]
fn no_more_sit_than_the_redundancy_allows() {
    let mut outs = SitOuts::new();
    for (number, ratio) in [(0, 9), (1, 4)] {
        let slow = finding(number, Reason::Outlier, ratio);
        assert!(outs.found(&slow, &RULES, 2, at(0)).is_some());
    }
    assert_eq!(found(&mut outs, 2, 1), None);
    // In a stripe that has lost one, the slower one is avoided.
    assert_eq!(outs.avoided(2), SlotSet::first_n(2));
    assert_eq!(outs.avoided(1), SlotSet::single(slot(0)));
    assert_eq!(outs.avoided(0), SlotSet::EMPTY);
    // Another member fails: the less slow one is needed.
    let end = outs.due(&RULES, 1, at(2)).unwrap();
    assert_eq!(
        end,
        Action::End {
            slot: slot(1),
            cause: Cause::Needed,
            lasted: at(2),
        }
    );
    assert_eq!(outs.due(&RULES, 1, at(2)), None);
    let limited = Rules { most: 1, ..RULES };
    let slow = finding(1, Reason::Outlier, 4);
    assert_eq!(outs.found(&slow, &limited, 2, at(3)), None);
}

#[test]
fn what_is_replaced_starts_afresh() {
    let mut outs = SitOuts::new();
    found(&mut outs, 0, 0).unwrap();
    let end = outs.gone(slot(0), at(7)).unwrap();
    assert!(matches!(
        end,
        Action::End {
            cause: Cause::Gone,
            ..
        }
    ));
    assert_eq!(outs.gone(slot(0), at(8)), None);
    assert_eq!(length_of(found(&mut outs, 0, 9)), 600);
}

/// Something that happens.
#[derive(Clone, Copy, Debug)]
enum Event {
    Found(u8, bool, u64),
    Request(u8, u64),
    Probed(u8, u64),
    Gone(u8),
    Rules(u8, u64, u8),
    Allowed(u8),
    Time(u64),
}

fn events() -> impl Strategy<Value = Event> {
    let member = || 0u8..5;
    prop_oneof![
        4 => (member(), any::<bool>(), 1u64..2000).prop_map(|(m, s, r)| Event::Found(m, s, r)),
        1 => (member(), prop_oneof![0u64..4, Just(600)]).prop_map(|(m, r)| Event::Request(m, r)),
        8 => (member(), 50u64..300).prop_map(|(m, p)| Event::Probed(m, p)),
        1 => member().prop_map(Event::Gone),
        1 => (0u8..5, prop_oneof![Just(0u64), Just(600), 1u64..20_000], 0u8..4)
            .prop_map(|(mode, first, most)| Event::Rules(mode, first, most)),
        1 => (0u8..4).prop_map(Event::Allowed),
        6 => prop_oneof![0u64..10, 0u64..2000, 0u64..200_000].prop_map(Event::Time),
    ]
}

/// Who sits out as the actions told it.
#[derive(Default)]
struct Told {
    /// Since when, and whether the administrator said so.
    sitting: BTreeMap<Slot, bool>,
    begins: u32,
}

impl Told {
    fn take(&mut self, action: Action, rules: &Rules) {
        match action {
            Action::Begin {
                slot,
                found,
                length,
            } => {
                let was = self.sitting.insert(slot, found.is_none());
                assert!(was.is_none() || found.is_none(), "only taken over by hand");
                self.begins += 1;
                if found.is_some() {
                    assert_eq!(rules.mode, Mode::On);
                    let length = length.expect("a term");
                    assert!(length <= TERM_MAX.max(rules.first) && length > Micros::ZERO);
                }
            }
            Action::End { slot, .. } => {
                assert!(self.sitting.remove(&slot).is_some(), "it did not sit");
            }
            Action::Extended { slot, .. } | Action::Probe { slot } => {
                assert_eq!(self.sitting.get(&slot), Some(&false));
            }
            Action::Observed(found) => {
                assert_eq!(rules.mode, Mode::Observe);
                assert!(!self.sitting.contains_key(&found.slot));
            }
            Action::Replace { offences, .. } => assert!(offences > 1),
        }
    }

    fn agrees(&self, outs: &SitOuts, rules: &Rules, allowed: u8) {
        let told: SlotSet = self.sitting.keys().copied().collect();
        assert_eq!(outs.sitting(), told);
        let slow = self.sitting.values().filter(|manual| !**manual).count();
        let manual = self.sitting.len() - slow;
        assert!(slow <= usize::from(allowed).saturating_sub(manual));
        assert!(slow <= rules.most.into());
        assert!(slow == 0 || rules.mode == Mode::On && rules.first > Micros::ZERO);
        for spare in 0..4 {
            let avoided = outs.avoided(spare);
            assert!(avoided.is_subset(told));
            assert_eq!(avoided.len(), told.len().min(spare.into()));
        }
    }
}

proptest! {
    #![proptest_config(support::config(400))]

    /// Whatever happens in whatever order: what was told is what is, limits hold, and in the end all
    /// come back.
    #[test]
    fn random_events(events in proptest::collection::vec(events(), 1..200)) {
        let mut outs = SitOuts::new();
        let mut told = Told::default();
        let (mut rules, mut allowed, mut now) = (RULES, 2u8, 0);
        for event in events {
            let action = match event {
                Event::Found(member, stall, ratio) => {
                    let reason = if stall { Reason::Stall } else { Reason::Outlier };
                    outs.found(&finding(member, reason, ratio), &rules, allowed, at(now))
                }
                Event::Request(member, line) => {
                    let request = Request::parse(line.to_string().as_bytes()).unwrap();
                    outs.request(slot(member), request, allowed, at(now)).unwrap_or(None)
                }
                Event::Probed(member, percent) => {
                    (0..PROBES).find_map(|_| {
                        let own = Micros::new(100 * percent);
                        outs.probed(slot(member), own, Micros::new(10_000), &rules, at(now))
                    })
                }
                Event::Gone(member) => outs.gone(slot(member), at(now)),
                Event::Rules(mode, first, most) => {
                    let mode = match mode { 0 => Mode::Off, 1 => Mode::Observe, _ => Mode::On };
                    rules = Rules { mode, first: at(first), most, ..RULES };
                    None
                }
                Event::Allowed(number) => {
                    allowed = number;
                    None
                }
                Event::Time(seconds) => {
                    now += seconds;
                    None
                }
            };
            action.into_iter().for_each(|action| told.take(action, &rules));
            for round in 0.. {
                let Some(action) = outs.due(&rules, allowed, at(now)) else { break };
                told.take(action, &rules);
                assert!(round < 20, "it does not end");
            }
            told.agrees(&outs, &rules, allowed);
        }
        // The administrator takes his word back, and all others prove to be fast.
        for member in 0..5 {
            let by_hand = matches!(outs.state(slot(member)), SitOut::UntilCleared | SitOut::Until(_));
            if by_hand {
                outs.request(slot(member), Request::End, allowed, at(now)).unwrap();
            }
        }
        now += 24 * 3600;
        while outs.due(&rules, allowed, at(now)).is_some() {}
        for member in 0..5 {
            probe(&mut outs, member, 100, now);
        }
        assert!(outs.sitting().is_empty());
    }
}

/// A watch over an array whose members take so many ms for a read, looked at every 20 ms.
struct Watched {
    watch: Watch,
    seen: Vec<Observation>,
    settings: Settings,
    allowed: u8,
    now: u64,
}

impl Watched {
    fn new(width: usize, detector: Choice) -> Self {
        Watched {
            watch: Watch::new(),
            seen: vec![Observation::new(Media::Rotational); width],
            settings: Settings {
                detector,
                tuning: Tuning::DEFAULT,
                rules: RULES,
            },
            allowed: 2,
            now: 0,
        }
    }

    fn turn(&mut self, times: &[u64]) -> Vec<Action> {
        self.now += 20_000;
        for (seen, ms) in self.seen.iter_mut().zip(times) {
            if *ms > 0 {
                let us = ms * 1000;
                seen.reads.small = seen.reads.small.plus(Sum { count: 1, us });
                seen.work = seen.reads;
                seen.last_done = Micros::new(self.now);
            }
        }
        let standing = Standing {
            in_sync: SlotSet::first_n(self.seen.len() as u8),
            allowed: self.allowed,
        };
        let mut actions = Vec::new();
        while let Some(action) =
            self.watch
                .check(&self.seen, standing, &self.settings, Micros::new(self.now))
        {
            actions.push(action);
            assert!(actions.len() < 10, "it does not end: {actions:?}");
        }
        actions
    }
}

fn begun(actions: &[Action]) -> Vec<(u8, Reason)> {
    actions
        .iter()
        .filter_map(|action| match action {
            Action::Begin {
                found: Some(found), ..
            } => Some((found.slot.get(), found.reason)),
            _ => None,
        })
        .collect()
}

#[test]
fn a_watch_finds_slow_and_stalled_members_with_either_detector() {
    for detector in [Choice::Peer, Choice::Tukey] {
        let mut array = Watched::new(8, detector);
        let mut times = [10; 8];
        (0..100).for_each(|_| assert_eq!(array.turn(&times), []));
        times[5] = 80;
        let turn = (0..60).find(|_| !begun(&array.turn(&times)).is_empty());
        assert!(turn.is_some(), "{detector:?}");
        let sitting = array.watch.sit_outs().sitting();
        assert_eq!(sitting, SlotSet::single(slot(5)));
        assert_eq!(array.watch.slow_score(slot(5), &array.settings), 0);
        // Another one hangs beside it.
        times[2] = 0;
        array.seen[2].oldest = Some(Micros::new(array.now));
        let turns = (0..200).find(|_| begun(&array.turn(&times)) == [(2, Reason::Stall)]);
        assert_eq!(turns, Some(175), "3.5 s");
        assert_eq!(array.watch.sit_outs().sitting().len(), 2);
        // A third one may not.
        times[0] = 80;
        (0..200).for_each(|_| assert_eq!(begun(&array.turn(&times)), []));
        assert!(array.watch.slow_score(slot(0), &array.settings) > 0);
    }
}

#[test]
fn a_watch_that_is_off_looks_at_nothing() {
    let mut array = Watched::new(4, Choice::Peer);
    array.settings.rules.mode = Mode::Off;
    (0..1000).for_each(|_| assert_eq!(array.turn(&[10, 800, 10, 10]), []));
    assert_eq!(array.watch.slow_score(slot(1), &array.settings), 0);
    // Switched on, it needs as long as ever.
    array.settings.rules.mode = Mode::On;
    let turn = (1..100).find(|_| !array.turn(&[10, 800, 10, 10]).is_empty());
    assert!((12..=16).contains(&turn.unwrap()), "{turn:?}");
}

#[test]
fn parameters_change_while_a_member_is_suspect() {
    let mut array = Watched::new(4, Choice::Peer);
    let times = [10, 30, 10, 10];
    (0..12).for_each(|_| assert_eq!(array.turn(&times), []));
    assert!(array.watch.slow_score(slot(1), &array.settings) > 50);
    array.settings.tuning.ratio_tenths = 40;
    (0..1000).for_each(|_| assert_eq!(array.turn(&times), []));
    array.settings.tuning.ratio_tenths = 15;
    assert!((0..40).any(|_| !array.turn(&times).is_empty()));
}

#[test]
fn a_watch_is_as_large_as_it_says() {
    let size = std::mem::size_of::<Watch>();
    assert!((10 << 10..12 << 10).contains(&size), "{size}");
}

/// What a check costs; a report, not a test: it depends on the machine.
#[test]
fn print_the_cost_of_a_check() {
    for width in [8, 64] {
        for detector in [Choice::Peer, Choice::Tukey] {
            let mut array = Watched::new(width, detector);
            let times: Vec<u64> = (0..width as u64).map(|n| 10 + n % 3).collect();
            let mut costs: Vec<u128> = (0..20_000)
                .map(|_| {
                    let start = std::time::Instant::now();
                    array.turn(&times);
                    start.elapsed().as_nanos()
                })
                .collect();
            costs.sort_unstable();
            println!(
                "{detector:?}, {width} members: median {} ns, 99% {} ns",
                costs[costs.len() / 2],
                costs[costs.len() * 99 / 100]
            );
        }
    }
}
