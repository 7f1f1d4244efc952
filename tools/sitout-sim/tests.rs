// SPDX-License-Identifier: GPL-2.0

//! What the default detector has to achieve, in a small part of the grid; and that the simulation
//! does what it says. The seeds are none of those that the defaults were chosen on.

use crate::array::{run, Setup};
use crate::grid::{is_missed, Cell, Grid, Score};
use crate::load::{Fault, Rig, Shape, SECOND};
use crate::service::Services;
use crate::{Cli, Command, Which};
use clap::Parser;
use eraid_core::latency::Kind;
use eraid_core::outlier::Media;
use eraid_tools::rng::Rng;

fn grid(args: &str) -> Grid {
    let line = format!("sim grid {args}");
    match Cli::parse_from(line.split_whitespace()).command {
        Command::Grid(grid) => grid,
        Command::Soak(_) => unreachable!("that is another word"),
    }
}

fn scores(grid: &Grid, which: Which, services: &Services) -> Vec<(Cell, Score)> {
    let cells = grid.cells(which).into_iter();
    cells
        .map(|cell| (cell, grid.score(&cell, services)))
        .collect()
}

fn nothing_is_missed(args: &str) {
    let grid = grid(args);
    let scores = scores(&grid, Which::Peer, &Services::new());
    assert!(!scores.is_empty());
    let missed: Vec<_> = scores
        .iter()
        .filter(|(cell, score)| is_missed(cell, score))
        .collect();
    assert!(missed.is_empty(), "{args}: {missed:#?}");
}

#[test]
fn slow_members_are_found_in_time_and_nobody_else() {
    nothing_is_missed("--seed 41,42 --width 2,8,24 --rig hdd,mixed --factor 1.12,2,4,1000");
    nothing_is_missed(
        "--seed 43 --width 3,6 --rig flash,bursts,scrub,all-slow,hot,retries --factor 1.12,4,30 \
         --shape constant,hang",
    );
}

#[test]
fn the_fence_is_blind_below_six_and_sees_much_slower_ones_from_there() {
    let services = Services::new();
    let grid = grid(
        "--seed 44 --rate 40 --width 4,5,6,8 --rig hdd --factor 6 --slow 1 --shape constant,hang",
    );
    for (cell, score) in scores(&grid, Which::Tukey, &services) {
        let seen = cell.width >= 6 || cell.shape == Shape::Hang;
        assert_eq!(score.found, usize::from(seen), "{cell:?}");
    }
}

fn setup(rig: Rig, width: usize, days: u64, factor: f64) -> Setup {
    let common = grid("").common;
    Setup {
        rig,
        width,
        rate: common.rate,
        faults: vec![(
            0,
            Fault {
                from: 0,
                shape: Shape::Constant,
                factor,
            },
        )],
        until_found: false,
        allowed: 2,
        settings: common.settings(Which::Peer),
        check: SECOND,
        length: days * 86400 * SECOND,
        left_out: 1,
        seed: 45,
    }
}

#[test]
fn nobody_sits_out_in_a_day_who_is_well() {
    let services = Services::new();
    for (rig, width, factor) in [
        (Rig::Hdd, 2, 1.0),
        (Rig::Hdd, 8, 1.12),
        (Rig::Flash, 8, 1.0),
        (Rig::Bursts, 4, 1.0),
        (Rig::AllSlow, 6, 1.0),
        (Rig::Retries, 3, 1.12),
    ] {
        let outcome = run(&setup(rig, width, 1, factor), &services);
        assert!(outcome.reads > 8_000_000, "{rig:?}");
        assert_eq!(outcome.verdicts, [], "{rig:?}, {width}");
    }
}

#[test]
fn a_member_that_stays_slow_is_to_be_replaced() {
    let outcome = run(&setup(Rig::Hdd, 6, 1, 3.0), &Services::new());
    assert_eq!(outcome.verdicts.len(), 1, "it never comes back");
    assert_eq!((outcome.ends, outcome.replace), (0, 1), "{outcome:?}");
}

#[test]
fn one_seed_gives_the_same_twice() {
    let services = Services::new();
    let outcome = |seed| {
        let setup = Setup {
            seed,
            length: 1000 * SECOND,
            ..setup(Rig::Bursts, 5, 1, 4.0)
        };
        format!("{:?}", run(&setup, &services))
    };
    assert_eq!(outcome(1), outcome(1));
    assert_ne!(outcome(1), outcome(2));
}

#[test]
fn services_are_those_of_the_drive_model() {
    let services = Services::new();
    let mut rng = Rng::new(&[1]);
    let mut mean = |media, kind| {
        let service = services.of(media);
        (0..10_000)
            .map(|_| service.draw(kind, &mut rng))
            .sum::<u64>()
            / 10_000
    };
    // Overhead, a mean seek, half a turn and the data: 0.15 + 8.9 + 4.17 + 0.06 ms.
    let small = mean(Media::Rotational, Kind::SmallRead);
    assert!((12_500..14_000).contains(&small), "{small}");
    // 62 blocks more of 28 µs.
    let large = mean(Media::Rotational, Kind::LargeRead);
    assert!((1_500..2_400).contains(&(large - small)), "{large}");
    let flash = mean(Media::Solid, Kind::SmallRead);
    assert!((82..92).contains(&flash), "{flash}");
}
