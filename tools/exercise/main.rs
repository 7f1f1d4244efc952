// SPDX-License-Identifier: GPL-2.0

//! `eraid-exercise`: writes a block device in a seeded, logged way and proves that what must be
//! there is there.
//!
//! `fill` and `write` record every write in a log; `verify` recomputes from the log what each
//! block must hold and compares every byte. `race` reads what it writes at the same time.
//! `read-load` measures reads, `compare` compares two devices, `pattern` makes a device hold
//! something known (or something wrong) beforehand.
//!
//! Exit status: 0 all is right, 1 some bytes are wrong, 2 the work could not be done.

mod compare;
mod content;
mod load;
mod log;
mod model;
mod race;
#[cfg(test)]
mod tests;
mod verify;
mod write;

use clap::{Parser, Subcommand};
use eraid_tools::{device, rng, size};
use std::io;
use std::process::ExitCode;

/// Seeded block device exerciser.
#[derive(Parser, Debug)]
#[command(name = "eraid-exercise", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Fill(write::FillArgs),
    Write(write::WriteArgs),
    Verify(verify::VerifyArgs),
    ReadLoad(load::LoadArgs),
    Compare(compare::CompareArgs),
    Pattern(compare::PatternArgs),
    Race(race::RaceArgs),
}

/// Runs a command; false when bytes are wrong.
fn run(command: &Command) -> io::Result<bool> {
    match command {
        Command::Fill(args) => write::fill(args).map(|()| true),
        Command::Write(args) => write::random(args).map(|()| true),
        Command::Verify(args) => verify::verify(args),
        Command::ReadLoad(args) => load::load(args).map(|()| true),
        Command::Compare(args) => compare::compare(args),
        Command::Pattern(args) => compare::pattern(args),
        Command::Race(args) => race::race(args),
    }
}

fn main() -> ExitCode {
    match run(&Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            println!("wrong data: {error}");
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("eraid-exercise: {error}");
            ExitCode::from(2)
        }
    }
}
