// SPDX-License-Identifier: GPL-2.0

//! When writes are answered, and when they are on the medium.

mod rig;

use eraid_hddsim_model::drive::{Op, Outcome};
use eraid_hddsim_model::params::Key;
use eraid_hddsim_model::units::Extent;
use rig::{random_block, Rig};

const WRITE: Op = Op::Write { durable: false };
const FUA: Op = Op::Write { durable: true };

#[test]
fn cached_writes_are_answered_at_once_and_written_later() {
    let mut rig = Rig::new(&[]);
    rig.submit(WRITE, 1000, 8);
    let done = rig.done();
    assert_eq!(done.ms(), 0.05);
    assert!(rig.durable.is_empty());
    rig.drain();
    let extent = Extent {
        sector: 8000,
        sectors: 64,
    };
    assert_eq!(
        rig.durable.iter().map(|(_, e)| *e).collect::<Vec<_>>(),
        [extent]
    );
    assert_eq!(rig.drive.counters().destages, 1);
}

#[test]
fn durable_writes_and_uncached_ones_wait_for_the_medium() {
    for (op, cache) in [(FUA, 1), (WRITE, 0), (FUA, 0)] {
        let mut rig = Rig::new(&[(Key::WriteCache, cache)]);
        rig.submit(op, 200_000_000, 8);
        let done = rig.done();
        assert!(done.ms() > 2.0);
        assert_eq!(rig.durable.len(), 1);
        assert_eq!(rig.durable[0].0, done.answered);
    }
}

#[test]
fn a_flush_waits_for_all_writes_before_it_and_no_others() {
    let mut rig = Rig::new(&[]);
    for n in 0..40 {
        let block = random_block(&rig, n, 8);
        rig.submit(WRITE, block, 8);
    }
    assert_eq!(rig.pass(0.1).len(), 40);
    rig.submit(Op::Flush, 0, 0);
    // Reads and later writes do not hold it up for ever, nor does it wait for the latter.
    let mut flushed = None;
    for n in 100..400 {
        let (block, other) = (random_block(&rig, n, 8), random_block(&rig, n + 1000, 8));
        rig.submit(WRITE, block, 8);
        rig.read(other, 2);
        for done in rig.pass(20.0) {
            if done.id == 40 {
                flushed = Some((done, rig.durable.len()));
            }
        }
    }
    let (flush, durable) = flushed.expect("the flush is answered");
    assert!(
        durable >= 40 && flush.ms() > 100.0,
        "{durable} {}",
        flush.ms()
    );
    let before: Vec<_> = rig
        .durable
        .iter()
        .filter(|(at, _)| *at <= flush.answered)
        .collect();
    for n in 0..40 {
        let sector = random_block(&rig, n, 8) * 8;
        assert!(
            before.iter().any(|(_, extent)| extent.sector == sector),
            "write {n}"
        );
    }
    rig.drain();
    rig.submit(Op::Flush, 0, 0);
    assert_eq!(rig.done().ms(), 0.15);
}

#[test]
fn a_full_cache_does_not_answer_early() {
    let mut rig = Rig::new(&[(Key::WriteCacheKib, 64)]);
    for n in 0..20 {
        let block = random_block(&rig, n, 1);
        rig.submit(WRITE, block, 1);
    }
    let early = rig.pass(0.1).len();
    assert_eq!(early, 16);
    assert_eq!(rig.drain().len(), 4);
    assert_eq!(rig.durable.len(), 20);
}

#[test]
fn cached_writes_in_a_row_reach_the_medium_at_its_rate() {
    let mut rig = Rig::new(&[]);
    for n in 0..32 {
        rig.submit(WRITE, 5000 + n, 1);
    }
    let start = rig.now;
    rig.drain();
    let ms = rig.now.since(start).0 as f64 / 1e6;
    // One access and a tenth of a turn.
    assert!(ms < 12.0, "{ms}");
}

#[test]
fn parts_of_blocks_cost_a_turn() {
    let time = |sector, sectors| {
        let mut rig = Rig::new(&[]);
        rig.submit_extent(FUA, Extent { sector, sectors }, false);
        rig.done().ms()
    };
    let turn = 8.33;
    assert!((time(800_003, 1) - time(800_000, 8) - turn).abs() < 0.05);
}

#[test]
fn cached_data_is_read_from_the_cache() {
    let mut rig = Rig::new(&[(Key::FailPpm, 1_000_000), (Key::RetryOff, 2)]);
    rig.submit(WRITE, 300_000_000, 8);
    rig.done();
    rig.read(300_000_002, 4);
    let done = rig.done();
    assert_eq!((done.ms(), done.outcome), (0.05, Outcome::Good));
    assert_eq!(rig.drive.counters().cache_hits, 1);
}

#[test]
fn without_power_everything_fails_and_nothing_is_written() {
    let mut rig = Rig::new(&[]);
    for n in 0..10 {
        let block = random_block(&rig, n, 8);
        rig.submit(WRITE, block, 8);
    }
    assert_eq!(rig.pass(0.06).len(), 10);
    rig.submit(FUA, 5, 1);
    rig.read(50_000, 1);
    rig.drive.power_off();
    let lost = rig.drain();
    assert_eq!(lost.len(), 2);
    rig.submit(WRITE, 1, 1);
    rig.submit(Op::Flush, 0, 0);
    let refused = rig.drain();
    let all = lost.iter().chain(&refused);
    assert!(all.clone().count() == 4 && all.clone().all(|done| done.outcome == Outcome::PowerLost));
    assert!(rig.durable.is_empty() && rig.drive.cached() == 0);
    rig.drive.power_on();
    rig.submit(FUA, 5, 1);
    assert_eq!(rig.done().outcome, Outcome::Good);
    assert_eq!(rig.durable.len(), 1);
}

#[test]
fn reset_is_refused_while_there_is_something_to_do() {
    let mut rig = Rig::new(&[]);
    rig.submit(WRITE, 5, 1);
    assert!(!rig.drive.reset());
    rig.done();
    assert!(!rig.drive.reset(), "the write is cached only");
    rig.drain();
    assert!(rig.drive.reset());
    assert_eq!(rig.drive.number(), 0);
}
