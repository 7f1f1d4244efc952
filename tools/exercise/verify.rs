// SPDX-License-Identifier: GPL-2.0

//! Compares every byte of a device with what the log says must be there.

use crate::content::{self, Stamp};
use crate::device::{Access, Buffer, Device};
use crate::log;
use crate::model::Model;
use crate::rng::Rng;
use crate::size::{parse, Part};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many wrong blocks are described.
const SHOWN: u64 = 8;

/// Compares a device with the log.
#[derive(clap::Args, Debug)]
pub struct VerifyArgs {
    /// The device.
    pub device: PathBuf,
    /// The log of all writes to it.
    #[arg(long)]
    pub log: PathBuf,
    /// What blocks must hold that no write touched: `any`, `zero`, `pattern`, or a file (or
    /// device) with the device's earlier contents.
    #[arg(long, default_value = "any")]
    pub unwritten: String,
    /// The largest read; sizes are random below it.
    #[arg(long, default_value = "1M", value_parser = parse)]
    pub max_size: u64,
    /// Makes the sizes of the reads.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Threads reading at once.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub threads: u8,
    /// What to compare.
    #[command(flatten)]
    pub part: Part,
    /// Count I/O errors instead of stopping at the first.
    #[arg(long)]
    pub tolerate_errors: bool,
    /// Read through the page cache.
    #[arg(long)]
    pub buffered: bool,
    /// Do not read where nothing was ever written.
    #[arg(long, conflicts_with = "unwritten")]
    pub written_only: bool,
}

/// What untouched blocks must hold.
enum Unwritten {
    Any,
    Zero,
    Pattern(u64),
    Earlier(Device),
}

impl Unwritten {
    fn parse(text: &str, key: u64) -> io::Result<Self> {
        Ok(match text {
            "any" => Unwritten::Any,
            "zero" => Unwritten::Zero,
            "pattern" => Unwritten::Pattern(key),
            path => {
                let access = Access {
                    buffered: true,
                    ..Access::default()
                };
                Unwritten::Earlier(Device::open(path.as_ref(), access)?)
            }
        })
    }

    /// Whether `bytes` of `block` are right; `scratch` is one block long.
    fn holds(&self, block: u64, bytes: &[u8], scratch: &mut [u8]) -> io::Result<bool> {
        match self {
            Unwritten::Any => return Ok(true),
            Unwritten::Zero => scratch.fill(0),
            Unwritten::Pattern(key) => content::fill(*key, block, Stamp::PATTERN, scratch),
            Unwritten::Earlier(device) => device.read(scratch, block * bytes.len() as u64)?,
        }
        Ok(bytes == scratch)
    }
}

/// What the threads share.
struct Check<'a> {
    args: &'a VerifyArgs,
    device: Device,
    model: Model,
    unwritten: Unwritten,
    wrong: AtomicU64,
    errors: AtomicU64,
}

/// Runs `verify`; false when a block is wrong.
pub fn verify(args: &VerifyArgs) -> io::Result<bool> {
    let (header, records) = log::read(&args.log)?;
    let model = Model::replay(header, &records).map_err(io::Error::other)?;
    let access = Access {
        buffered: args.buffered,
        ..Access::default()
    };
    let device = Device::open(&args.device, access)?;
    let size = device.size()?;
    if size / header.block_size != header.blocks {
        return Err(io::Error::other(format!(
            "the device has {size} bytes, the log is of one with {} blocks of {}",
            header.blocks, header.block_size
        )));
    }
    let (start, length) = args.part.on(size, header.block_size)?;
    let region = (start / header.block_size, length / header.block_size);
    let unwritten = Unwritten::parse(&args.unwritten, header.key)?;
    let (wrong, errors) = (AtomicU64::new(0), AtomicU64::new(0));
    let (written, doubtful) = model.counts();
    let check = Check {
        args,
        device,
        model,
        unwritten,
        wrong,
        errors,
    };
    check.run(region)?;
    let (wrong, errors) = (check.wrong.into_inner(), check.errors.into_inner());
    let good = wrong == 0 && errors == 0;
    println!(
        "verify={} blocks={} block_size={} written={written} doubtful={doubtful} wrong={wrong} \
         errors={errors}",
        if good { "ok" } else { "bad" },
        region.1,
        header.block_size,
    );
    Ok(good)
}

impl Check<'_> {
    /// Compares `region` (first block, blocks), a share of it in each thread.
    fn run(&self, region: (u64, u64)) -> io::Result<()> {
        let threads = u64::from(self.args.threads);
        let share = region.1.div_ceil(threads);
        let end = region.0 + region.1;
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|number| {
                    let first = (region.0 + number * share).min(end);
                    let last = (first + share).min(end);
                    scope.spawn(move || self.range(number, first, last))
                })
                .collect();
            let gone = |_| Err(io::Error::other("a thread panicked"));
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().unwrap_or_else(gone))
        })
    }

    fn range(&self, thread: u64, mut first: u64, last: u64) -> io::Result<()> {
        let block_size = self.model.header().block_size;
        let max = (self.args.max_size / block_size).max(1);
        let mut rng = Rng::new(&[self.args.seed, thread]);
        let mut buffer = Buffer::new((max * block_size) as usize);
        let mut scratch = vec![0; block_size as usize];
        while first < last {
            let count = rng.log_uniform(max).min(last - first);
            if self.args.written_only && !self.any_written(first, count) {
                first += count;
                continue;
            }
            let bytes = buffer.get_mut((count * block_size) as usize);
            match self.device.read(bytes, first * block_size) {
                Ok(()) => self.compare(first, bytes, &mut scratch)?,
                Err(error) => self.unreadable(first, count, error)?,
            }
            first += count;
        }
        Ok(())
    }

    fn any_written(&self, first: u64, count: u64) -> bool {
        let mut stamps = (first..first + count).flat_map(|block| self.model.allowed(block));
        stamps.any(|stamp| stamp != Stamp::NEVER)
    }

    fn compare(&self, first: u64, bytes: &[u8], scratch: &mut [u8]) -> io::Result<()> {
        for (block, bytes) in (first..).zip(bytes.chunks_exact(scratch.len())) {
            if !self.holds(block, bytes, scratch)? {
                self.report(block, bytes);
            }
        }
        Ok(())
    }

    fn holds(&self, block: u64, bytes: &[u8], scratch: &mut [u8]) -> io::Result<bool> {
        for stamp in self.model.allowed(block) {
            let good = if stamp == Stamp::NEVER {
                self.unwritten.holds(block, bytes, scratch)?
            } else {
                content::fill(self.model.header().key, block, stamp, scratch);
                bytes == scratch
            };
            if good {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn report(&self, block: u64, bytes: &[u8]) {
        if self.wrong.fetch_add(1, Ordering::Relaxed) >= SHOWN {
            return;
        }
        let want: Vec<_> = self
            .model
            .allowed(block)
            .map(|stamp| stamp.to_string())
            .collect();
        println!(
            "wrong block {block} (byte {}): holds {}, must hold {}",
            block * bytes.len() as u64,
            content::describe(bytes),
            want.join(" or ")
        );
    }

    fn unreadable(&self, first: u64, count: u64, error: io::Error) -> io::Result<()> {
        if self.args.tolerate_errors {
            self.errors.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let path = self.device.path().display();
        Err(io::Error::other(format!(
            "{path}: read of block {first} + {count}: {error}"
        )))
    }
}
