// SPDX-License-Identifier: GPL-2.0

//! `eraid-policy-sim`: simulates RAID-5 arrays that read in different ways, on the drive model, with
//! the driver's rules for geometry, queues and choice; see Documentation/design/read-policy.rst.
//!
//! One line for each cell of a grid: mean and 99th percentile of latencies in ms for each policy.
//! Behind `auto` the ratio to the best of the others, and how it read.

mod array;
mod request;
#[cfg(test)]
mod tests;

use array::{run, Report, Setup};
use clap::{Parser, ValueEnum};
use eraid_core::policy::{Policy, ReadMode};
use eraid_core::queue::Class;
use eraid_hddsim_model::params::Key;

/// Latencies of a grid of arrays and loads, for each way to read.
#[derive(Parser, Debug)]
#[command(name = "eraid-policy-sim", version)]
struct Cli {
    /// Sizes of requests in KiB.
    #[arg(long, value_delimiter = ',', default_value = "8,24,40,80")]
    size: Vec<u64>,
    /// Mean times between requests in ms.
    #[arg(long, value_delimiter = ',', default_value = "8,24")]
    every: Vec<u64>,
    /// How many of a hundred blocks cannot be read at once.
    #[arg(long, value_delimiter = ',', default_value = "0,2,10")]
    percent: Vec<u64>,
    /// Turns that retries take.
    #[arg(long, value_delimiter = ',', default_value = "3,5")]
    turns: Vec<u64>,
    /// Which drives have such blocks.
    #[arg(long, value_delimiter = ',', default_value = "all,one")]
    bad: Vec<Bad>,
    /// Ways to read.
    #[arg(long, value_delimiter = ',', default_value = "n,f,l,p,auto")]
    policy: Vec<Way>,
    /// Requests of each cell, of which the first tenth does not count.
    #[arg(long, default_value_t = 20_000)]
    requests: u64,
    /// Seed of arrivals, places and drives.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Chunk in KiB.
    #[arg(long, default_value_t = 8)]
    chunk: u64,
    /// Members.
    #[arg(long, default_value_t = 6)]
    members: u8,
    /// Commands that a drive gets at a time.
    #[arg(long, default_value_t = 32)]
    depth: u32,
    /// Times of drive 0, in percent.
    #[arg(long, default_value_t = 100)]
    slow: u64,
    /// Drive 0 has failed.
    #[arg(long)]
    removed: bool,
    /// From the middle on drive 0 stands still for this time, in ms.
    #[arg(long, default_value_t = 0)]
    stall_ms: u64,
    /// A parameter of all drives, such as `fail_mode=persistent`; see Documentation/hddsim.rst.
    #[arg(long, value_delimiter = ',', value_parser = parameter)]
    set: Vec<(Key, u64)>,
}

/// Which drives have bad blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Bad {
    All,
    One,
}

/// A policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    /// Normal.
    N,
    /// Without retries.
    F,
    /// All members, extra reads at low priority.
    L,
    /// All members, all at once.
    P,
    /// The rule.
    Auto,
}

impl Way {
    fn policy(self) -> Policy {
        match self {
            Way::N => Policy::Fixed(ReadMode::Normal),
            Way::F => Policy::Fixed(ReadMode::Failfast),
            Way::L => Policy::Fixed(ReadMode::Proactive(Class::Extra)),
            Way::P => Policy::Fixed(ReadMode::Proactive(Class::Ordinary)),
            Way::Auto => Policy::Auto,
        }
    }
}

fn parameter(text: &str) -> Result<(Key, u64), String> {
    let (name, value) = text.split_once('=').ok_or("not of the form name=value")?;
    let key = Key::named(name).ok_or("no parameter of drives")?;
    let value = key
        .parse("--set", value)
        .map_err(|refusal| refusal.to_string())?;
    Ok((key, value))
}

/// What is different from cell to cell.
#[derive(Clone, Copy, Debug)]
struct Cell {
    every: u64,
    size: u64,
    percent: u64,
    turns: u64,
    bad: Bad,
}

fn main() {
    let cli = Cli::parse();
    for cell in cells(&cli) {
        print_cell(&cli, &cell);
    }
}

/// The cells of the grid; without bad blocks turns and drives do not count.
fn cells(cli: &Cli) -> Vec<Cell> {
    let mut cells = Vec::new();
    for &every in &cli.every {
        for &size in &cli.size {
            for &percent in &cli.percent {
                for (n, &turns) in cli.turns.iter().enumerate() {
                    for (m, &bad) in cli.bad.iter().enumerate() {
                        if percent > 0 || n + m == 0 {
                            cells.push(Cell {
                                every,
                                size,
                                percent,
                                turns,
                                bad,
                            });
                        }
                    }
                }
            }
        }
    }
    cells
}

fn setup(cli: &Cli, cell: &Cell, way: Way) -> Setup {
    let fail = (Key::FailPpm, cell.percent * 10_000);
    let mut all = vec![(Key::RetryTurns, cell.turns)];
    let mut one = vec![(Key::SlowPercent, cli.slow)];
    match cell.bad {
        Bad::All => all.push(fail),
        Bad::One => one.push(fail),
    }
    all.extend(&cli.set);
    Setup {
        members: cli.members,
        chunk_kib: cli.chunk,
        size_kib: cell.size,
        every_us: cell.every * 1000,
        all,
        one,
        policy: way.policy(),
        depth: cli.depth,
        removed: cli.removed,
        stall_ms: cli.stall_ms,
        requests: cli.requests,
        seed: cli.seed,
    }
}

fn print_cell(cli: &Cli, cell: &Cell) {
    let Cell {
        every,
        size,
        percent,
        turns,
        bad,
    } = cell;
    print!("{every:2} ms {size:3} KiB {turns} x {percent:2}% {bad:?}:");
    let mut best: Option<f64> = None;
    for &way in &cli.policy {
        let report = run(&setup(cli, cell, way));
        print_report(way, &report);
        match (way, best) {
            (_, _) if report.unstable => {}
            (Way::Auto, Some(best)) => print!(" = {:.3} x best", report.mean / best),
            (Way::Auto, None) => {}
            _ => best = Some(best.map_or(report.mean, |best| best.min(report.mean))),
        }
    }
    println!();
}

fn print_report(way: Way, report: &Report) {
    match report.unstable {
        true => print!(" {way:?} unstable"),
        false => print!(" {way:?} {:.1}/{:.0}", report.mean, report.p99),
    }
    if way == Way::Auto {
        let [n, f, l, p, out] = report.modes.map(|share| share * 100.0);
        print!(" (N {n:.0} F {f:.0} L {l:.0} P {p:.0} left out {out:.0}%,");
        print!(" {:.2} reads, {:.2} removed,", report.reads, report.removed);
        print!(" {:.2} promoted, max {:.0})", report.promoted, report.max);
    }
}
