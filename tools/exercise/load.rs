// SPDX-License-Identifier: GPL-2.0

//! Bounded read load with its latencies and throughput.

use crate::device::{Access, Buffer, Device};
use crate::rng::Rng;
use crate::size::{parse, Part};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Reads so many times and prints latency and throughput.
#[derive(clap::Args, Debug)]
pub struct LoadArgs {
    /// The device or file.
    pub device: PathBuf,
    /// Reads in all.
    #[arg(long)]
    pub count: u64,
    /// Bytes in a read.
    #[arg(long, default_value = "4K", value_parser = parse)]
    pub size: u64,
    /// Reads under way at once, a thread each.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub threads: u8,
    /// Makes the positions.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// One after the other from the start instead of anywhere.
    #[arg(long)]
    pub sequential: bool,
    /// Where to read.
    #[command(flatten)]
    pub part: Part,
    /// Count I/O errors instead of stopping at the first.
    #[arg(long)]
    pub tolerate_errors: bool,
    /// Read through the page cache.
    #[arg(long)]
    pub buffered: bool,
}

/// What a thread saw.
#[derive(Default)]
struct Seen {
    latencies: Vec<Duration>,
    errors: u64,
}

/// Runs `read-load`.
pub fn load(args: &LoadArgs) -> io::Result<()> {
    let access = Access {
        buffered: args.buffered,
        ..Access::default()
    };
    let device = Device::open(&args.device, access)?;
    let (start, length) = args.part.on(device.size()?, device.block_size()? as u64)?;
    if args.size == 0 || args.size > length {
        let what = format!("no room for reads of {} bytes", args.size);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let slots = length / args.size;
    let begun = Instant::now();
    let seen = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..u64::from(args.threads))
            .map(|thread| {
                let device = &device;
                scope.spawn(move || worker(args, device, thread, start, slots))
            })
            .collect();
        let gone = |_| Err(io::Error::other("a thread panicked"));
        let join = workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(gone));
        join.collect::<io::Result<Vec<Seen>>>()
    })?;
    report(args, seen, begun.elapsed());
    Ok(())
}

fn worker(
    args: &LoadArgs,
    device: &Device,
    thread: u64,
    start: u64,
    slots: u64,
) -> io::Result<Seen> {
    let threads = u64::from(args.threads);
    let mut rng = Rng::new(&[args.seed, thread]);
    let mut buffer = Buffer::new(args.size as usize);
    let mut seen = Seen::default();
    let mut number = thread;
    while number < args.count {
        let slot = if args.sequential {
            number % slots
        } else {
            rng.below(slots)
        };
        let begun = Instant::now();
        let result = device.read(buffer.get_mut(args.size as usize), start + slot * args.size);
        match result {
            Ok(()) => seen.latencies.push(begun.elapsed()),
            Err(_) if args.tolerate_errors => seen.errors += 1,
            Err(error) => {
                let path = device.path().display();
                let at = start + slot * args.size;
                return Err(io::Error::other(format!(
                    "{path}: read at byte {at}: {error}"
                )));
            }
        }
        number += threads;
    }
    Ok(seen)
}

fn report(args: &LoadArgs, seen: Vec<Seen>, took: Duration) {
    let errors: u64 = seen.iter().map(|seen| seen.errors).sum();
    let mut all: Vec<Duration> = seen.into_iter().flat_map(|seen| seen.latencies).collect();
    all.sort_unstable();
    let micros = |per_mille| percentile(&all, per_mille).as_micros();
    let mean = all.iter().sum::<Duration>().as_micros() / (all.len() as u128).max(1);
    let bytes = all.len() as u64 * args.size;
    let micros_taken = took.as_micros().max(1) as u64;
    println!(
        "reads={} errors={errors} size={} threads={} seed={} seconds={:.3} MBps={:.2} iops={:.0} \
         mean_us={mean} p50_us={} p90_us={} p99_us={} max_us={}",
        all.len(),
        args.size,
        args.threads,
        args.seed,
        took.as_secs_f64(),
        bytes as f64 / micros_taken as f64,
        all.len() as f64 * 1e6 / micros_taken as f64,
        micros(500),
        micros(900),
        micros(990),
        micros(1000),
    );
}

/// The smallest value that at least `per_mille` of 1000 do not exceed.
fn percentile(sorted: &[Duration], per_mille: usize) -> Duration {
    let rank = (sorted.len() * per_mille).div_ceil(1000).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let hundred: Vec<_> = (1..=100).map(Duration::from_micros).collect();
        assert_eq!(percentile(&hundred, 500).as_micros(), 50);
        assert_eq!(percentile(&hundred, 990).as_micros(), 99);
        assert_eq!(percentile(&hundred, 1000).as_micros(), 100);
        assert_eq!(percentile(&hundred[..1], 1).as_micros(), 1);
        assert_eq!(percentile(&[], 500), Duration::ZERO);
    }
}
