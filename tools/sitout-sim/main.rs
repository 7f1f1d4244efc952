// SPDX-License-Identifier: GPL-2.0

//! `eraid-sitout-sim`: simulates arrays with slow members, on samples of the drive model, with the
//! driver's detectors and sit-outs; see Documentation/design/slow-members.rst.
//!
//! `grid` makes members slow in all ways and says how soon each detector finds them, `soak` runs
//! arrays without slow members for days and counts who sat out all the same.

mod array;
mod grid;
mod load;
mod service;
mod soak;
#[cfg(test)]
mod tests;

use clap::{Args, Parser, Subcommand, ValueEnum};
use eraid_core::outlier::Tuning;
use eraid_core::sitout::{Mode, Rules};
use eraid_core::units::Micros;
use eraid_core::watch::{Choice, Settings};
use load::{Rig, SECOND};
use service::Services;

/// Detectors of slow members, scored on simulated arrays.
#[derive(Parser, Debug)]
#[command(name = "eraid-sitout-sim", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Grid(grid::Grid),
    Soak(soak::Soak),
}

/// What both have.
#[derive(Args, Debug, Clone)]
struct Common {
    /// Detectors.
    #[arg(long, value_delimiter = ',', default_value = "peer,tukey")]
    detector: Vec<Which>,
    /// Numbers of members.
    #[arg(long, value_delimiter = ',', default_value = "2,3,4,5,6,8,12,24")]
    width: Vec<usize>,
    /// Arrays and loads.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "hdd,mixed,flash,bursts,idle,scrub,all-slow,hot,retries"
    )]
    rig: Vec<Rig>,
    /// Reads per second of an array.
    #[arg(long, default_value_t = 100.0)]
    rate: f64,
    /// Seeds of reads and times.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    seed: Vec<u64>,
    /// Time between checks in ms.
    #[arg(long, default_value_t = 20)]
    check: u64,
    /// `peer_ratio_tenths`.
    #[arg(long, default_value_t = Tuning::DEFAULT.ratio_tenths)]
    ratio: u32,
    /// `peer_floor_us`.
    #[arg(long, default_value_t = Tuning::DEFAULT.floor.get())]
    floor: u64,
    /// `peer_min_reads`.
    #[arg(long, default_value_t = Tuning::DEFAULT.min_reads)]
    min_reads: u32,
    /// Evidence that `peer` wants, in 1/256 octaves.
    #[arg(long, default_value_t = Tuning::DEFAULT.evidence)]
    evidence: u32,
    /// `outlier_fence_k`.
    #[arg(long, default_value_t = Tuning::DEFAULT.fence_k)]
    fence_k: u32,
    /// `outlier_detections`.
    #[arg(long, default_value_t = Tuning::DEFAULT.detections)]
    detections: u32,
}

/// A detector; stalls are looked for beside either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// The published fence.
    Tukey,
    /// Each member against the others.
    Peer,
}

impl Which {
    fn name(self) -> &'static str {
        match self {
            Which::Tukey => "tukey",
            Which::Peer => "peer",
        }
    }
}

impl Common {
    fn settings(&self, which: Which) -> Settings {
        Settings {
            detector: match which {
                Which::Tukey => Choice::Tukey,
                Which::Peer => Choice::Peer,
            },
            tuning: Tuning {
                fence_k: self.fence_k,
                detections: self.detections,
                ratio_tenths: self.ratio,
                floor: Micros::new(self.floor),
                min_reads: self.min_reads,
                evidence: self.evidence,
                ..Tuning::DEFAULT
            },
            rules: Rules {
                mode: Mode::On,
                first: Micros::new(600 * SECOND),
                most: u8::MAX,
                ratio_tenths: self.ratio,
            },
        }
    }
}

fn main() {
    let services = Services::new();
    match Cli::parse().command {
        Command::Grid(grid) => grid.run(&services),
        Command::Soak(soak) => soak.run(&services),
    }
}
