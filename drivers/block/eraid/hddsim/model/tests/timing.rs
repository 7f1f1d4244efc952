// SPDX-License-Identifier: GPL-2.0

//! Times of commands against closed forms and against what was measured before.

mod rig;

use eraid_hddsim_model::drive::{Command, Event, Op, Outcome};
use eraid_hddsim_model::failure::Bad;
use eraid_hddsim_model::hash::hash;
use eraid_hddsim_model::params::Key;
use eraid_hddsim_model::units::{Block, Extent, Nanos};
use proptest::prelude::*;
use rig::{mean_alone, random_block, Rig};

/// One turn at 7200 rpm, in ms.
const TURN: f64 = 8.3333;

fn close(what: &str, is: f64, expected: f64, tolerance: f64) {
    let off = (is - expected).abs();
    assert!(
        off <= tolerance,
        "{what}: {is:.4}, expected {expected:.4} +- {tolerance:.4}"
    );
}

#[test]
fn random_4k_reads_take_overhead_seek_half_a_turn_and_transfer() {
    // 0.15 + 2 + 13 * 8/15 + 8.333 / 2 + 8.333 / 293.
    let expected = 0.15 + 2.0 + 13.0 * 8.0 / 15.0 + TURN / 2.0 + TURN / 293.0;
    close("expected", expected, 13.28, 0.01);
    let mean = mean_alone(&mut Rig::new(&[]), 40_000, 1);
    close("4 KiB", mean, expected, 0.06);
    // 20 sectors, and a crossing of a cylinder in one of 130.
    let mean = mean_alone(&mut Rig::new(&[]), 40_000, 20);
    close(
        "80 KiB",
        mean,
        expected + 19.0 * TURN / 293.0 + 2.03 * 19.0 / 2344.0,
        0.06,
    );
}

#[test]
fn zones_change_the_transfer_only() {
    let changes = [
        (Key::Zones, 16),
        (Key::SectorsPerTrack, 400),
        (Key::SectorsPerTrackInner, 200),
    ];
    let mut rig = Rig::new(&changes);
    let length = |rig: &Rig, block| rig.drive.geometry().place(Block(block)).length.0 as f64 / 1e6;
    close("outer", length(&rig, 10), TURN / 400.0, 0.001);
    let last = rig.blocks() - 10;
    close("inner", length(&rig, last), TURN / 200.0, 0.001);
    rig.read(last, 1);
    assert_eq!(rig.done().outcome, Outcome::Good);
    // A third of a turn of 400, in the same track.
    rig.pass(100.0);
    rig.read(0, 100);
    let start = rig.now;
    let long = rig.done();
    let seek = rig.drive.geometry().place(Block(0));
    assert!(long.answered.since(start) > seek.length.times(99));
}

#[test]
fn sequential_reads_run_at_the_media_rate() {
    // As a reader with four commands of 1 MiB in flight.
    let mut rig = Rig::new(&[(Key::SpeedSpreadPpm, 0)]);
    let total = 2000;
    rig.read(0, 256);
    rig.done();
    let start = rig.now;
    for n in 1..5 {
        rig.read(n * 256, 256);
    }
    for n in 5..=total {
        rig.done();
        rig.read(n * 256, 256);
    }
    rig.drain();
    let seconds = rig.now.since(start).0 as f64 / 1e9;
    let rate = (total * 256 * 4096) as f64 / 1e6 / seconds;
    // A cylinder of 8 * 293 blocks takes eight turns and one seek.
    let expected =
        8.0 * 293.0 * 4096.0 / 1e3 / (8.0 * TURN + 2.0 + 13.0 * (1.0f64 / 208_317.0).sqrt());
    close("expected", expected, 139.7, 0.2);
    close("MB/s", rate, expected, 0.5);
}

#[test]
fn without_lookahead_sequential_reads_lose_turns() {
    let mut rig = Rig::new(&[(Key::LookaheadKib, 0), (Key::SpeedSpreadPpm, 0)]);
    rig.read(0, 2);
    rig.done();
    rig.read(2, 2);
    close(
        "next in row",
        rig.done().ms(),
        TURN + 2.0 * TURN / 293.0,
        0.02,
    );
    let mut rig = Rig::new(&[(Key::SpeedSpreadPpm, 0)]);
    rig.read(0, 2);
    rig.done();
    rig.read(2, 2);
    close(
        "next in row, read on",
        rig.done().ms(),
        2.0 * TURN / 293.0,
        0.001,
    );
    // Read on meanwhile: only the answer takes time.
    rig.pass(20.0);
    rig.read(4, 256);
    close("buffered", rig.done().ms(), 0.05, 0.0001);
    assert_eq!(rig.drive.counters().buffer_hits, 2);
}

#[test]
fn track_buffer_keeps_what_passed_before() {
    for on in [0, 1] {
        let mut rig = Rig::new(&[(Key::TrackBuffer, on)]);
        let mut hits = 0;
        for n in 0..200 {
            rig.pass(100.0);
            let block = random_block(&rig, n, 300) / 293 * 293 + 200;
            rig.read(block, 1);
            rig.done();
            rig.read(block - 10, 2);
            hits += u32::from(rig.done().ms() < 0.06);
        }
        // Ten blocks of a turn of 293 are rarely missed; with one zone, tracks start at multiples.
        assert!(if on == 1 { hits > 170 } else { hits == 0 }, "{on}: {hits}");
    }
}

#[test]
fn retries_take_their_turns() {
    let mut rig = Rig::new(&[(Key::FailPpm, 20_000), (Key::RetryTurns, 5), (Key::Seed, 7)]);
    let count = 40_000;
    let mean = mean_alone(&mut rig, count, 1);
    let c = *rig.drive.counters();
    assert_eq!(c.retry_turns, c.recovered_sectors * 5);
    let part = c.recovered_sectors as f64 / count as f64;
    close("bad part", part, 0.02, 0.003);
    // Measured with an independent model: 14.26 for 80 KiB reads less their transfer is not this; the
    // formula is 13.28 plus five turns in one of fifty.
    close("mean", mean, 13.28 + part * 5.0 * TURN, 0.06);
}

#[test]
fn without_retries_an_error_comes_as_the_sector_passes() {
    let slow = [
        (Key::FailPpm, 20_000),
        (Key::RetryOff, 2),
        (Key::FailMode, 1),
        (Key::SpeedSpreadPpm, 0),
    ];
    let mut rig = Rig::new(&slow);
    let mut unread = 0;
    for n in 0..500 {
        let block = random_block(&rig, n, 40);
        rig.pass(100.0);
        rig.read(block, 40);
        let done = rig.done();
        if let Outcome::Unread { good: sectors } = done.outcome {
            unread += 1;
            assert_eq!(sectors % 8, 0);
            let law = rig.drive.params().failures();
            let first = u64::from(sectors / 8);
            let at = |index| {
                let block = Block(block + index);
                law.of_read(0, block, 1, |_| false).count
            };
            assert!((0..first).all(|index| at(index) == 0) && at(first) == 1);
            // Its place passes exactly now.
            let geometry = rig.drive.geometry();
            let end = geometry.media_end(Block(block + first), 1);
            assert_eq!(geometry.wait(done.answered, end), Nanos::ZERO);
        }
    }
    // 1 - 0.98^40 of 500 is 277.
    assert!((240..320).contains(&unread), "{unread}");
    let c = rig.drive.counters();
    assert_eq!(
        (c.unrecovered_reads, c.retry_turns, c.recovered_sectors),
        (unread, 0, 0)
    );
}

#[test]
fn hints_turn_retries_off_only_where_they_count() {
    for (retry_off, hint, error) in [
        (0, true, false),
        (1, true, true),
        (1, false, false),
        (2, false, true),
    ] {
        let mut rig = Rig::new(&[(Key::FailPpm, 1_000_000), (Key::RetryOff, retry_off)]);
        let extent = Extent {
            sector: 800,
            sectors: 16,
        };
        rig.submit_extent(Op::Read, extent, hint);
        let outcome = rig.done().outcome;
        assert_eq!(
            outcome == Outcome::Unread { good: 0 },
            error,
            "{retry_off} {hint}"
        );
    }
}

#[test]
fn a_failed_sector_is_not_in_the_buffer_but_what_follows_may_be() {
    for (ahead, hit) in [(0, false), (5, true)] {
        let mut rig = Rig::new(&[
            (Key::RetryOff, 2),
            (Key::ErrorLookahead, ahead),
            (Key::FailPpm, 1_000_000),
        ]);
        rig.read(1000, 4);
        assert_eq!(rig.done().outcome, Outcome::Unread { good: 0 });
        rig.set(Key::FailPpm, 0);
        rig.read(1000, 1);
        rig.read(1001, 5);
        let answers = rig.drain();
        let behind = answers.iter().find(|done| done.id == 2).unwrap();
        let again = answers.iter().find(|done| done.id == 1).unwrap();
        assert_eq!(behind.ms() < 0.3, hit, "{ahead}: {}", behind.ms());
        assert!(again.ms() > 7.0, "{ahead}: {}", again.ms());
    }
}

#[test]
fn an_error_may_hold_up_the_drive() {
    let run = |stall| {
        let mut rig = Rig::new(&[
            (Key::RetryOff, 2),
            (Key::FailPpm, 1_000_000),
            (Key::ErrorStallMs, stall),
        ]);
        rig.read(1000, 1);
        rig.pass(0.01);
        rig.set(Key::FailPpm, 0);
        rig.read(1_000_000, 1);
        let answers = rig.drain();
        assert_eq!(answers[0].outcome, Outcome::Unread { good: 0 });
        assert_eq!(answers[1].outcome, Outcome::Good);
        (answers[0].ms(), answers[1].ms())
    };
    let (free, held) = (run(0), run(50));
    close("the error", held.0 - free.0, 50.0, 0.001);
    close("the next", held.1 - free.1, 50.0, TURN);
}

#[test]
fn errors_tell_the_place_only_with_sense_information() {
    for (info, good) in [(1, 24), (0, 0)] {
        let mut rig = Rig::new(&[(Key::RetryOff, 2), (Key::SenseInfo, info)]);
        let seq = rig.drive.number();
        let extent = Extent {
            sector: 8000,
            sectors: 80,
        };
        let bad = Bad { count: 2, first: 3 };
        let op = Op::Read;
        let command = Command {
            op,
            extent,
            seq,
            hint: false,
            bad,
        };
        let slot = rig.drive.submit(rig.now, command).unwrap();
        let now = rig.now;
        assert!(rig.drive.event(now).is_none());
        let end = rig.drive.wake_at().unwrap();
        let event = rig.drive.event(end).unwrap();
        let outcome = Outcome::Unread { good };
        assert_eq!(event, Event::Done { slot, outcome });
    }
}

#[test]
fn slow_delayed_and_stalled_drives_are_late_as_told() {
    let time = |changes: &[(Key, u64)]| {
        let mut rig = Rig::new(changes);
        rig.read(100_000_000, 1);
        rig.done().ms()
    };
    let normal = time(&[]);
    close(
        "x10",
        time(&[(Key::SlowPercent, 1000)]),
        normal * 10.0,
        0.001,
    );
    close(
        "delay",
        time(&[(Key::DelayMs, 30_000)]),
        normal + 30_000.0,
        0.001,
    );
    close(
        "latency",
        time(&[(Key::LatencyMs, 30_000)]),
        normal + 30_000.0,
        0.001,
    );
    // One after the other, or all at once.
    for (key, expected) in [(Key::DelayMs, 8.0 * 30.0), (Key::LatencyMs, 30.0)] {
        let mut rig = Rig::new(&[(key, 30_000)]);
        let start = rig.now;
        for n in 0..8 {
            rig.read(n * 1_000_000, 1);
        }
        assert_eq!(rig.drain().len(), 8);
        close("eight", rig.now.since(start).0 as f64 / 1e9, expected, 0.2);
    }
    let mut rig = Rig::new(&[]);
    rig.read(100_000_000, 1);
    assert!(rig.pass(1.0).is_empty());
    let end = rig.now + Nanos::from_millis(30_000);
    rig.drive.stall(end);
    assert_eq!(rig.done().answered, end);
    rig.drive.hang(true);
    rig.read(5, 1);
    assert!(rig.pass(1e6).is_empty());
    rig.drive.hang(false);
    assert_eq!(rig.drain().len(), 1);
}

#[test]
fn sequential_reads_of_a_slow_drive_are_as_slow() {
    let mut rig = Rig::new(&[(Key::SlowPercent, 1000)]);
    rig.read(0, 256);
    rig.done();
    let start = rig.now;
    for n in 1..=100 {
        rig.read(n * 256, 256);
        rig.done();
    }
    let rate = (100 * 256 * 4096) as f64 / 1e3 / (rig.now.since(start).0 as f64 / 1e6);
    close("MB/s", rate, 13.97, 0.15);
}

/// Reads at random with `depth` commands held; mean time of service, longest time.
fn closed_loop(rig: &mut Rig, depth: u64, count: u64) -> (f64, f64) {
    let start = rig.now;
    for n in 0..depth {
        rig.read(random_block(rig, n, 1), 1);
    }
    let mut longest = 0.0f64;
    for n in depth..count {
        longest = longest.max(rig.done().ms());
        rig.read(random_block(rig, n, 1), 1);
    }
    longest = rig
        .drain()
        .iter()
        .map(|done| done.ms())
        .fold(longest, f64::max);
    (rig.now.since(start).0 as f64 / 1e6 / count as f64, longest)
}

#[test]
fn deeper_queues_are_faster() {
    let service = |depth| closed_loop(&mut Rig::new(&[]), depth, 20_000).0;
    let (one, four, all) = (service(1), service(4), service(32));
    close("depth 1", one, 13.3, 0.2);
    assert!(four < 0.75 * one && all < 0.7 * four, "{one} {four} {all}");
    // The number of candidates counts, not that of commands.
    let few = closed_loop(&mut Rig::new(&[(Key::QueueDepth, 4)]), 32, 20_000).0;
    close("32 commands, 4 candidates", few, four, 0.4);
}

#[test]
fn nearest_first_is_what_it_says() {
    let mut rig = Rig::new(&[]);
    for n in 0..32 {
        rig.read(random_block(&rig, n, 1), 1);
    }
    let nearest = rig.done();
    // No other would have been reached sooner: each alone, from the same start.
    for n in 0..32 {
        let mut other = Rig::new(&[]);
        other.read(random_block(&other, n, 1), 1);
        assert!(other.done().answered >= nearest.answered);
    }
}

#[test]
fn ageing_bounds_waiting_and_little_else() {
    let run = |age| closed_loop(&mut Rig::new(&[(Key::AgeMs, age)]), 32, 60_000);
    let (pure, pure_max) = run(0);
    let (aged, aged_max) = run(1000);
    close("mean service", aged, pure, 0.05 * pure);
    assert!(
        aged_max < pure_max && aged_max < 3_000.0,
        "{aged_max} {pure_max}"
    );
    // Two readers: nearest first serves only the one that reads on.
    let mut rig = Rig::new(&[(Key::AgeMs, 500)]);
    rig.read(0, 256);
    let far = rig.read(300_000_000, 256);
    let mut served = false;
    for n in 1..200 {
        rig.read(n * 256, 256);
        served |= rig.done().id == far;
    }
    assert!(served);
}

#[test]
fn one_seed_gives_the_same_times_twice() {
    let run = |seed| {
        let mut rig = Rig::new(&[(Key::Seed, seed), (Key::FailPpm, 20_000)]);
        closed_loop(&mut rig, 16, 3_000);
        (rig.now, *rig.drive.counters())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

proptest! {
    /// Whatever the parameters and commands, every command is answered once, and in finite time.
    #[test]
    fn every_command_is_answered(
        seed: u64, size in prop::sample::select(vec![1u64 << 20, 1 << 40, 64 << 40]), wide in prop::collection::vec((0..Key::COUNT, any::<u64>()), 0..12),
        commands in prop::collection::vec((0u8..4, any::<u64>(), 1u32..2000, 0u64..50_000_000), 1..200),
    ) {
        let mut rig = Rig::new(&[(Key::Seed, seed), (Key::Size, size)]);
        for (index, value) in wide {
            let key = Key::ALL[index];
            let spec = key.spec();
            if key != Key::Size {
                let span = (spec.max - spec.min).saturating_add(1).max(1);
                rig.set(key, spec.min + value % span);
            }
        }
        let mut answered = 0;
        let count = commands.len();
        for (n, (kind, at, sectors, pause)) in commands.into_iter().enumerate() {
            if rig.drive.queued() == 64 {
                answered += usize::from(rig.next_done(Nanos(u64::MAX)).is_some());
            }
            let sector = at % (rig.blocks() * 8 - u64::from(sectors));
            let extent = Extent { sector, sectors };
            match kind {
                0 | 1 => rig.submit_extent(Op::Read, extent, hash(&[at]) % 2 == 0),
                2 => rig.submit_extent(Op::Write { durable: n % 3 == 0 }, extent, false),
                _ => rig.submit_extent(Op::Flush, Extent::default(), false),
            };
            answered += rig.run_until(rig.now + Nanos(pause)).len();
        }
        answered += rig.drain().len();
        prop_assert_eq!(answered, count);
        prop_assert_eq!(rig.drive.cached(), 0);
        prop_assert!(rig.drive.reset());
    }
}
