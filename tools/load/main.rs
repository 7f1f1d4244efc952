// SPDX-License-Identifier: GPL-2.0

//! `eraid-load`: puts a load on a block device and measures each request.
//!
//! `poisson` and `replay` are open loops: requests are due at times of their own, whatever the
//! device does, and a latency counts from the time when the request was due. `closed` keeps so
//! many requests under way. The program sleeps until the next thing happens and never polls the
//! clock, so it is exact where idle time is simulated (UML time travel).
//!
//! It prints one line of KEY=VALUE, times in microseconds: the mean and the maximum are exact,
//! percentiles are at most 0.4% too large. `digest` differs when any request's latency or result
//! does.
//!
//! Exit status: 0, or 1 when requests failed, or 2 when the work could not be done.

mod arrivals;
mod engine;
mod histogram;
mod linux;
mod pattern;
mod recorder;
mod request;
#[cfg(test)]
mod tests;
mod trace;

use crate::arrivals::{Arrivals, Shape};
use crate::pattern::{Pattern, PatternArgs};
use crate::recorder::{Outputs, Recorder};
use crate::request::Request;
use clap::{Args, Parser, Subcommand};
use eraid_tools::device::{at, Access, Device};
use eraid_tools::time::Nanos;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// Requests that an open loop has under way at most; more wait, which the submit lag shows. Half
/// of what Linux allows all programs together by default (fs.aio-max-nr).
const MAX_IN_FLIGHT: u32 = 32_768;

/// Requests that a closed loop may keep under way.
const MAX_CLOSED: i64 = 4096;

/// Bytes in the largest request.
const MAX_SIZE: u64 = 16 << 20;

/// Exact latencies of a block device under a seeded load.
#[derive(Parser, Debug)]
#[command(name = "eraid-load", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Poisson(PoissonArgs),
    Closed(ClosedArgs),
    Replay(ReplayArgs),
}

/// Requests with exponentially distributed gaps: many users who know nothing of each other.
#[derive(Args, Debug)]
struct PoissonArgs {
    /// Mean time between two requests: 8ms, 100us, 400s.
    #[arg(long, value_parser = Nanos::parse)]
    every: Nanos,
    /// How the rate of arrivals changes around its mean.
    #[arg(long, value_enum, default_value_t)]
    shape: Shape,
    /// Requests in all.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    #[command(flatten)]
    pattern: PatternArgs,
    #[command(flatten)]
    common: Common,
}

/// So many requests under way: each one that completes is followed by the next.
#[derive(Args, Debug)]
struct ClosedArgs {
    /// Requests under way.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=MAX_CLOSED))]
    in_flight: u32,
    /// Requests in all.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    #[command(flatten)]
    pattern: PatternArgs,
    #[command(flatten)]
    common: Common,
}

/// The requests of a file, each at its time.
///
/// A line is `time_us,op,offset,length`: microseconds since the start, not decreasing; R or W;
/// bytes, whole blocks of the device. Empty lines and lines that start with # are skipped.
#[derive(Args, Debug)]
struct ReplayArgs {
    /// The trace.
    trace: PathBuf,
    #[command(flatten)]
    common: Common,
}

/// What all kinds of load have.
#[derive(Args, Debug)]
struct Common {
    /// The device or file; direct I/O.
    device: PathBuf,
    /// The first requests, which are not counted.
    #[arg(long, default_value_t = 0)]
    warm_up: u64,
    #[command(flatten)]
    outputs: Outputs,
}

impl Common {
    fn open(&self, write: bool) -> io::Result<Device> {
        let access = Access {
            write,
            ..Access::default()
        };
        Device::open(&self.device, access)
    }

    fn recorder(&self, count: u64) -> io::Result<Recorder> {
        Recorder::new(count, self.warm_up, &self.outputs)
    }
}

fn poisson(args: &PoissonArgs) -> io::Result<bool> {
    let device = args.common.open(args.pattern.writes())?;
    let mut pattern = Pattern::new(&args.pattern, &device)?;
    let mut recorder = args.common.recorder(args.count)?;
    let depth = args.count.min(MAX_IN_FLIGHT.into()) as u32;
    let mut queue = linux::Aio::new(&device, depth, pattern.longest())?;
    let arrivals = Arrivals::new(args.pattern.seed, args.every, args.shape);
    let requests = arrivals
        .take(args.count as usize)
        .map(|due| pattern.next(due));
    engine::open_loop(&mut queue, requests, &mut recorder)?;
    finish(recorder, "poisson", args.pattern.seed)
}

fn closed(args: &ClosedArgs) -> io::Result<bool> {
    let device = args.common.open(args.pattern.writes())?;
    let mut pattern = Pattern::new(&args.pattern, &device)?;
    let mut recorder = args.common.recorder(args.count)?;
    let mut queue = linux::Aio::new(&device, args.in_flight, pattern.longest())?;
    let requests = (0..args.count).map(|_| pattern.next(Nanos(0)));
    engine::closed_loop(&mut queue, requests, &mut recorder)?;
    finish(recorder, "closed", args.pattern.seed)
}

fn replay(args: &ReplayArgs) -> io::Result<bool> {
    let file = File::open(&args.trace).map_err(|error| at(&args.trace, "open", error))?;
    let requests = trace::parse(io::BufReader::new(file));
    let requests = requests.map_err(|error| at(&args.trace, "read", error))?;
    let writes = requests.iter().any(Request::is_write);
    let device = args.common.open(writes)?;
    let (size, block) = (device.size()?, device.block_size()? as u64);
    for request in &requests {
        request.check(size, block)?;
    }
    let mut recorder = args.common.recorder(requests.len() as u64)?;
    let longest = requests.iter().map(|request| request.length).max();
    let depth = (requests.len() as u64).min(MAX_IN_FLIGHT.into()) as u32;
    let mut queue = linux::Aio::new(&device, depth, longest.unwrap_or(0))?;
    engine::open_loop(&mut queue, requests.into_iter(), &mut recorder)?;
    finish(recorder, "replay", 0)
}

/// Prints what was measured; false when requests failed.
fn finish(recorder: Recorder, mode: &str, seed: u64) -> io::Result<bool> {
    let summary = recorder.finish()?;
    println!("mode={mode} seed={seed} {summary}");
    Ok(summary.errors == 0)
}

fn main() -> ExitCode {
    linux::exact_sleeps();
    let result = match &Cli::parse().command {
        Command::Poisson(args) => poisson(args),
        Command::Closed(args) => closed(args),
        Command::Replay(args) => replay(args),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("eraid-load: {error}");
            ExitCode::from(2)
        }
    }
}
