// SPDX-License-Identifier: GPL-2.0

//! What the rule has to achieve on the drive model, in a few cells; and that requests go on as they
//! should.

use crate::array::{run, Report, Setup};
use crate::request::{span, Ask, Next, Request};
use crate::{Cell, Cli, Way};
use clap::Parser;
use eraid_core::estimate::Retries;
use eraid_core::geometry::{Geometry, Level};
use eraid_core::policy::ReadMode;
use eraid_core::queue::Class;
use eraid_core::units::{Sector, Sectors};

fn setup(args: &str, every: u64, size: u64, percent: u64, way: Way) -> Setup {
    let cli = Cli::parse_from(format!("sim --requests 4000 {args}").split_whitespace());
    let cell = Cell {
        every,
        size,
        percent,
        turns: cli.turns[cli.turns.len() - 1],
        bad: cli.bad[0],
    };
    crate::setup(&cli, &cell, way)
}

fn mean(args: &str, every: u64, size: u64, percent: u64, way: Way) -> f64 {
    let report = run(&setup(args, every, size, percent, way));
    assert!(!report.unstable);
    report.mean
}

/// `auto` against the best of the fixed policies.
fn auto_is_best(args: &str, every: u64, size: u64, percent: u64, tolerance: f64) -> Report {
    let fixed = [Way::N, Way::F, Way::L, Way::P].map(|way| {
        let report = run(&setup(args, every, size, percent, way));
        if report.unstable {
            f64::INFINITY
        } else {
            report.mean
        }
    });
    let auto = run(&setup(args, every, size, percent, Way::Auto));
    let best = fixed.into_iter().fold(f64::INFINITY, f64::min);
    let what = format!("{args} every {every} ms {size} KiB {percent}%");
    assert!(
        auto.mean <= best * tolerance,
        "{what}: auto {:.1}, fixed {fixed:.1?}, {:.2?}",
        auto.mean,
        auto.modes
    );
    auto
}

#[test]
fn auto_is_as_good_as_the_best_of_all_or_better() {
    const STAY: &str = "--set fail_mode=persistent";
    // Each of the four is best somewhere: a rule that knows fewer fails.
    let normal = auto_is_best(&format!("{STAY} --turns 3"), 24, 8, 10, 1.05);
    assert!(normal.modes[0] > 0.9, "{:.2?}", normal.modes);
    let failfast = auto_is_best(STAY, 8, 24, 2, 1.05);
    assert!(failfast.modes[1] > 0.9, "{:.2?}", failfast.modes);
    let low = auto_is_best(STAY, 24, 80, 2, 1.05);
    assert!(low.modes[2] > 0.9, "{:.2?}", low.modes);
    let all = auto_is_best("", 24, 40, 2, 1.05);
    assert!(all.modes[3] > 0.8, "{:.2?}", all.modes);
    // One bad drive, and a drive that does not say where it failed.
    auto_is_best("--bad one", 8, 24, 10, 1.07);
    auto_is_best("--set fail_mode=persistent,sense_info=0", 24, 40, 2, 1.05);
}

#[test]
fn without_errors_auto_costs_nothing_and_gains_at_full_width() {
    auto_is_best("", 8, 8, 0, 1.02);
    auto_is_best("", 8, 24, 0, 1.02);
    let normal = mean("", 8, 80, 0, Way::N);
    let auto = mean("", 8, 80, 0, Way::Auto);
    assert!(auto < normal * 0.85, "{auto:.1} and {normal:.1}");
}

#[test]
fn a_slow_member_costs_no_more_than_one_that_has_failed() {
    for (every, size) in [(8, 8), (8, 24), (24, 40)] {
        let removed = mean("--removed", every, size, 0, Way::N);
        let slow = mean("--slow 1000", every, size, 0, Way::Auto);
        assert!(slow <= removed * 1.1, "{size}: {slow:.1}, not {removed:.1}");
        // One that is a little slow still does a part of the work.
        let mild = mean("--slow 150", every, size, 0, Way::Auto);
        assert!(mild < removed, "{size}: {mild:.1}, not {removed:.1}");
    }
}

#[test]
fn a_member_that_hangs_is_left_out_and_taken_back() {
    let args = "--stall-ms 10000 --every 8";
    let failfast = run(&setup(args, 8, 8, 0, Way::F));
    let auto = run(&setup(args, 8, 8, 0, Way::Auto));
    // The one read that waits in the drive is for hedging; no other one may.
    assert!(
        failfast.p99 > 2000.0 && auto.p99 < 100.0,
        "{failfast:?} {auto:?}"
    );
    assert!(auto.modes[4] < 0.2, "{auto:?}");
}

#[test]
fn one_seed_gives_the_same_latencies_twice() {
    let report = |seed| format!("{:?}", run(&setup(seed, 8, 24, 2, Way::Auto)));
    assert_eq!(report("--seed 3"), report("--seed 3"));
    assert_ne!(report("--seed 3"), report("--seed 4"));
}

#[test]
fn extra_reads_are_taken_back_and_promoted() {
    let report = run(&setup("", 8, 24, 2, Way::L));
    assert!(report.removed > 0.3 && report.promoted > 0.02, "{report:?}");
    let ordinary = mean("", 8, 24, 2, Way::P);
    assert!(
        report.mean * 2.0 < ordinary,
        "priority is what makes it pay"
    );
}

/// 24 KiB of an array of six: two rows of members 0 to 2, parity on member 5.
fn request() -> Request {
    let geometry = Geometry::new(Level::Raid5, 6, Sectors::new(16), Sectors::new(1 << 20)).unwrap();
    Request::new(&geometry, 0, Sector::new(0), Sectors::new(48))
}

fn deliver(request: &mut Request, ask: &Ask) {
    request.parts[ask.member].have |= span(ask.from, ask.to);
}

fn asked(next: Next) -> Vec<Ask> {
    match next {
        Next::Ask(asks) => asks,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_bad_block_is_computed_from_the_others_and_last_read_with_retries() {
    let mut request = request();
    let asks = request.begin(ReadMode::Failfast, None);
    let members: Vec<usize> = asks.iter().map(|ask| ask.member).collect();
    assert_eq!(members, [0, 1, 2]);
    deliver(&mut request, &asks[0]);
    deliver(&mut request, &asks[2]);
    // Member 1 delivers its first block; the other one is bad.
    request.parts[1].have |= span(0, 1);
    request.lose(&asks[1], 1, true);
    let peers = asked(request.next());
    let members: Vec<usize> = peers.iter().map(|ask| ask.member).collect();
    assert_eq!(members, [3, 4, 5]);
    assert!(peers.iter().all(|ask| (ask.from, ask.to) == (1, 2)));
    assert!(peers.iter().all(|ask| ask.retries == Retries::Off));
    peers[..2].iter().for_each(|ask| deliver(&mut request, ask));
    request.lose(&peers[2], 0, true);
    let last = asked(request.next());
    assert_eq!(last.len(), 1);
    assert_eq!((last[0].member, last[0].retries), (1, Retries::LastResort));
    deliver(&mut request, &last[0]);
    assert!(matches!(request.next(), Next::Done));
}

#[test]
fn what_is_under_way_is_waited_for_and_what_waits_is_promoted() {
    let mut request = request();
    let asks = request.begin(ReadMode::Proactive(Class::Extra), None);
    assert_eq!(asks.len(), 6);
    for ask in &asks {
        let rows = span(ask.from, ask.to);
        let part = &mut request.parts[ask.member];
        match ask.class {
            Class::Ordinary => part.coming |= rows,
            Class::Extra => part.waiting |= rows,
        }
    }
    assert!(matches!(request.next(), Next::Wait));
    request.parts[1].coming = 0;
    request.lose(&asks[1], 0, true);
    assert!(matches!(request.next(), Next::Promote(0b11)));
    for part in &mut request.parts {
        part.coming |= std::mem::take(&mut part.waiting);
    }
    assert!(matches!(request.next(), Next::Wait));
    let rest = asks.iter().filter(|ask| ask.member != 1);
    rest.for_each(|ask| deliver(&mut request, ask));
    assert!(matches!(request.next(), Next::Done));
}

#[test]
fn a_member_left_out_is_asked_only_to_probe() {
    let slot = eraid_core::units::Slot::new(1).unwrap();
    for probe in [false, true] {
        let asks = request().begin(ReadMode::LeaveOut { slot, probe }, None);
        let own: Vec<&Ask> = asks.iter().filter(|ask| ask.member == 1).collect();
        assert_eq!(own.len(), usize::from(probe));
        assert!(own.iter().all(|ask| ask.class == Class::Extra));
        assert_eq!(asks.len(), 5 + usize::from(probe));
    }
}
