// SPDX-License-Identifier: GPL-2.0

//! Logged writes: the whole device in order (`fill`) or seeded random ones (`write`).

use crate::content::{self, Stamp};
use crate::device::{Access, Buffer, Device};
use crate::log::{self, Header, Log, Record};
use crate::model::Model;
use crate::rng::Rng;
use crate::size::{parse, Part};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Writes all of a device, in order, through the log.
#[derive(clap::Args, Debug)]
pub struct FillArgs {
    /// The device.
    pub device: PathBuf,
    /// The log, made when missing.
    #[arg(long)]
    pub log: PathBuf,
    /// Makes the contents.
    #[arg(long)]
    pub seed: u64,
    /// Bytes in a write.
    #[arg(long, default_value = "1M", value_parser = parse)]
    pub size: u64,
    /// What to write.
    #[command(flatten)]
    pub part: Part,
    /// Go on after an I/O error; the blocks are then in doubt.
    #[arg(long)]
    pub tolerate_errors: bool,
}

/// Seeded random writes through the log.
#[derive(clap::Args, Debug)]
pub struct WriteArgs {
    /// The device.
    pub device: PathBuf,
    /// The log, made when missing.
    #[arg(long)]
    pub log: PathBuf,
    /// Makes every choice and, in a new log, the contents.
    #[arg(long)]
    pub seed: u64,
    /// Writes in all.
    #[arg(long)]
    pub count: u64,
    /// Threads writing at once.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub threads: u8,
    /// The smallest write in bytes; a block unless given.
    #[arg(long, value_parser = parse)]
    pub min_size: Option<u64>,
    /// The largest write in bytes.
    #[arg(long, default_value = "256K", value_parser = parse)]
    pub max_size: u64,
    /// Threads own alternating units of this many bytes, and no write leaves its unit. A unit
    /// below the stripe size makes threads meet in stripes, never in blocks.
    #[arg(long, default_value = "256K", value_parser = parse)]
    pub unit: u64,
    /// Let threads write the same blocks at once instead; either may then be the last.
    #[arg(long)]
    pub overlap: bool,
    /// Per cent of the writes that ask to be durable when they return (FUA).
    #[arg(long, default_value_t = 0)]
    pub dsync_pct: u32,
    /// Flush after every so many writes of a thread; 0 is never.
    #[arg(long, default_value_t = 0)]
    pub sync_every: u64,
    /// Per cent of the writes that are read back and compared at once.
    #[arg(long, default_value_t = 0, conflicts_with = "overlap")]
    pub read_back_pct: u32,
    /// Where to write.
    #[command(flatten)]
    pub part: Part,
    /// Go on after an I/O error; the blocks are then in doubt.
    #[arg(long)]
    pub tolerate_errors: bool,
}

/// What the threads of a run share.
struct Session<'a> {
    device: Device,
    durable: Device,
    log: Mutex<Log>,
    header: Header,
    run: u16,
    tolerate_errors: bool,
    args: Option<&'a WriteArgs>,
}

/// What a thread did.
#[derive(Clone, Copy, Default)]
struct Tally {
    writes: u64,
    bytes: u64,
    errors: u64,
    syncs: u64,
    read_back: u64,
    /// What the longest write or reading back took.
    longest: Duration,
}

impl Tally {
    fn add(self, other: Tally) -> Tally {
        Tally {
            writes: self.writes + other.writes,
            bytes: self.bytes + other.bytes,
            errors: self.errors + other.errors,
            syncs: self.syncs + other.syncs,
            read_back: self.read_back + other.read_back,
            longest: self.longest.max(other.longest),
        }
    }

    fn print(&self, what: &str, seed: u64) {
        println!(
            "{what}=ok seed={seed} writes={} bytes={} errors={} syncs={} read_back={} longest_us={}",
            self.writes,
            self.bytes,
            self.errors,
            self.syncs,
            self.read_back,
            self.longest.as_micros()
        );
    }
}

/// Runs `fill`.
pub fn fill(args: &FillArgs) -> io::Result<()> {
    let (session, region) = Session::start(
        &args.device,
        &args.log,
        args.seed,
        args.part,
        args.tolerate_errors,
        None,
    )?;
    let step = session.blocks(args.size)?;
    let mut thread = Thread::new(&session, 0, args.seed, step);
    let (mut block, end) = (region.0, region.0 + region.1);
    while block < end {
        let count = step.min(end - block);
        thread.write(block, count, false)?;
        block += count;
    }
    thread.sync()?;
    thread.tally.print("fill", args.seed);
    Ok(())
}

/// Runs `write`.
pub fn random(args: &WriteArgs) -> io::Result<()> {
    let (session, region) = Session::start(
        &args.device,
        &args.log,
        args.seed,
        args.part,
        args.tolerate_errors,
        Some(args),
    )?;
    let plan = Plan::new(&session, args, region)?;
    let threads = u64::from(args.threads);
    let tallies: Vec<io::Result<Tally>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..args.threads)
            .map(|number| {
                let count =
                    args.count / threads + u64::from(u64::from(number) < args.count % threads);
                let (session, plan) = (&session, &plan);
                scope.spawn(move || {
                    Thread::new(session, number, args.seed, plan.max).run(plan, count)
                })
            })
            .collect();
        let gone = |_| Err(io::Error::other("a thread panicked"));
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(gone))
            .collect()
    });
    let mut sum = Tally::default();
    for tally in tallies {
        sum = sum.add(tally?);
    }
    sum.print("write", args.seed);
    Ok(())
}

impl<'a> Session<'a> {
    /// Opens device and log; gives the region in blocks too.
    fn start(
        path: &Path,
        log_path: &Path,
        seed: u64,
        part: Part,
        tolerate_errors: bool,
        args: Option<&'a WriteArgs>,
    ) -> io::Result<(Self, (u64, u64))> {
        let access = Access {
            write: true,
            ..Access::default()
        };
        let device = Device::open(path, access)?;
        let durable = Device::open(
            path,
            Access {
                dsync: true,
                ..access
            },
        )?;
        let block_size = device.block_size()? as u64;
        let size = device.size()?;
        let mut header = Header {
            block_size,
            blocks: size / block_size,
            key: seed,
        };
        let mut run = 1;
        if log_path.metadata().is_ok_and(|meta| meta.len() > 0) {
            let (old, records) = log::read(log_path)?;
            header.key = old.key;
            if old != header {
                return Err(io::Error::other(format!(
                    "the log is of a device of {} blocks of {} bytes, this one has {} of {}",
                    old.blocks, old.block_size, header.blocks, header.block_size
                )));
            }
            run = 1 + Model::replay(old, &records)
                .map_err(io::Error::other)?
                .runs();
        }
        let (start, length) = part.on(size, block_size)?;
        let mut log = Log::append(log_path, header)?;
        log.write(Record::Run { run, seed })?;
        let log = Mutex::new(log);
        let session = Session {
            device,
            durable,
            log,
            header,
            run,
            tolerate_errors,
            args,
        };
        Ok((session, (start / block_size, length / block_size)))
    }

    fn record(&self, record: Record) -> io::Result<()> {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write(record)
    }

    /// A size on the command line in blocks, at least one.
    fn blocks(&self, bytes: u64) -> io::Result<u64> {
        let block_size = self.header.block_size;
        if bytes == 0 || bytes % block_size != 0 {
            let what = format!("{bytes} bytes are not whole blocks of {block_size}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(bytes / block_size)
    }
}

/// Where the threads of a run write. All in blocks.
struct Plan {
    start: u64,
    blocks: u64,
    min: u64,
    max: u64,
    /// Size of an owned unit; `None` when every thread may write anywhere.
    unit: Option<u64>,
    threads: u64,
}

impl Plan {
    fn new(session: &Session<'_>, args: &WriteArgs, region: (u64, u64)) -> io::Result<Self> {
        let (start, blocks) = region;
        let threads = u64::from(args.threads);
        let unit = match args.overlap || threads == 1 {
            true => None,
            false => Some(session.blocks(args.unit)?),
        };
        let room = unit.unwrap_or(blocks).min(blocks);
        let min = session.blocks(args.min_size.unwrap_or(session.header.block_size))?;
        let max = session.blocks(args.max_size)?.min(room);
        let bad = |what: &str| {
            Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                what.to_string(),
            ))
        };
        if min > max {
            return bad("min-size is above max-size, the unit or the region");
        }
        if unit.is_some_and(|unit| blocks / unit < threads) {
            return bad("the region has fewer units than threads");
        }
        Ok(Plan {
            start,
            blocks,
            min,
            max,
            unit,
            threads,
        })
    }

    /// First block and length of a thread's next write.
    fn choose(&self, thread: u8, rng: &mut Rng) -> (u64, u64) {
        let count = self.min + rng.log_uniform(self.max - self.min + 1) - 1;
        let (base, room) = match self.unit {
            None => (0, self.blocks),
            Some(unit) => {
                // Whole units only: a cut one at the end belongs to nobody.
                let mine = u64::from(thread);
                let owned = (self.blocks / unit - mine).div_ceil(self.threads);
                ((rng.below(owned) * self.threads + mine) * unit, unit)
            }
        };
        (self.start + base + rng.below(room - count + 1), count)
    }
}

/// One writer.
struct Thread<'a> {
    session: &'a Session<'a>,
    number: u8,
    rng: Rng,
    buffer: Buffer,
    back: Buffer,
    tally: Tally,
}

impl<'a> Thread<'a> {
    fn new(session: &'a Session<'a>, number: u8, seed: u64, max_blocks: u64) -> Self {
        let bytes = (max_blocks * session.header.block_size) as usize;
        let rng = Rng::new(&[seed, u64::from(session.run), u64::from(number)]);
        let (buffer, back) = (Buffer::new(bytes), Buffer::new(bytes));
        Thread {
            session,
            number,
            rng,
            buffer,
            back,
            tally: Tally::default(),
        }
    }

    fn run(mut self, plan: &Plan, count: u64) -> io::Result<Tally> {
        let Some(args) = self.session.args else {
            return Ok(self.tally);
        };
        for done in 1..=count {
            let (first, blocks) = plan.choose(self.number, &mut self.rng);
            // Drawn always, so that one option does not shift the choices of another.
            let durable = self.rng.percent(args.dsync_pct);
            let check = self.rng.percent(args.read_back_pct);
            let written = self.write(first, blocks, durable)?;
            if check && written {
                self.read_back(first, blocks)?;
            }
            if args.sync_every > 0 && done % args.sync_every == 0 {
                self.sync()?;
            }
        }
        self.sync()?;
        Ok(self.tally)
    }

    /// One logged write; false when it failed and errors are tolerated.
    fn write(&mut self, first: u64, count: u64, durable: bool) -> io::Result<bool> {
        let session = self.session;
        let block_size = session.header.block_size;
        let stamp = Stamp::new(session.run, self.number, self.tally.writes);
        let bytes = self.buffer.get_mut((count * block_size) as usize);
        content::fill_blocks(session.header.key, first, stamp, block_size as usize, bytes);
        self.tally.writes += 1;
        session.record(Record::Issued {
            stamp,
            first,
            count,
        })?;
        let device = if durable {
            &session.durable
        } else {
            &session.device
        };
        let begun = Instant::now();
        let result = device.write(bytes, first * block_size);
        self.tally.longest = self.tally.longest.max(begun.elapsed());
        session.record(Record::Done {
            stamp,
            ok: result.is_ok(),
        })?;
        match result {
            Ok(()) => {
                self.tally.bytes += count * block_size;
                Ok(true)
            }
            Err(_) if session.tolerate_errors => {
                self.tally.errors += 1;
                Ok(false)
            }
            Err(error) => Err(self.failed("write", first, count, &error)),
        }
    }

    /// Reads what was just written (and nobody else writes) and compares it.
    fn read_back(&mut self, first: u64, count: u64) -> io::Result<()> {
        let block_size = self.session.header.block_size;
        let len = (count * block_size) as usize;
        let begun = Instant::now();
        let read = self
            .session
            .device
            .read(self.back.get_mut(len), first * block_size);
        self.tally.longest = self.tally.longest.max(begun.elapsed());
        match read {
            Ok(()) => {}
            Err(_) if self.session.tolerate_errors => {
                self.tally.errors += 1;
                return Ok(());
            }
            Err(error) => return Err(self.failed("read back", first, count, &error)),
        }
        self.tally.read_back += 1;
        let (want, got) = (self.buffer.get(len), self.back.get(len));
        let Some(at) = content::first_difference(want, got) else {
            return Ok(());
        };
        let size = block_size as usize;
        let block = at / size;
        let wrong = &got[block * size..(block + 1) * size];
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!(
                "block {} just written reads as {}",
                first + block as u64,
                content::describe(wrong)
            ),
        ))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.tally.syncs += 1;
        match self.session.device.sync() {
            Err(_) if self.session.tolerate_errors => {
                self.tally.errors += 1;
                Ok(())
            }
            other => other,
        }
    }

    fn failed(&self, what: &str, first: u64, count: u64, error: &io::Error) -> io::Error {
        let path = self.session.device.path().display();
        io::Error::other(format!(
            "{path}: {what} of block {first} + {count}: {error}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(unit: Option<u64>, threads: u64) -> Plan {
        Plan {
            start: 10,
            blocks: 103,
            min: 1,
            max: 8,
            unit,
            threads,
        }
    }

    #[test]
    fn writes_stay_inside_the_region() {
        let mut rng = Rng::new(&[1]);
        let mut seen = [false; 200];
        for _ in 0..20_000 {
            let (first, count) = plan(None, 1).choose(0, &mut rng);
            assert!(first >= 10 && first + count <= 113 && (1..=8).contains(&count));
            seen[first as usize..(first + count) as usize].fill(true);
        }
        assert!(seen[10..113].iter().all(|&block| block));
    }

    #[test]
    fn threads_own_their_units() {
        let plan = plan(Some(10), 3);
        let mut owner = [None; 200];
        for thread in 0..3u8 {
            let mut rng = Rng::new(&[u64::from(thread)]);
            for _ in 0..20_000 {
                let (first, count) = plan.choose(thread, &mut rng);
                for block in first..first + count {
                    let block = &mut owner[block as usize];
                    assert!(block.is_none_or(|other| other == thread));
                    *block = Some(thread);
                }
            }
        }
        assert!(owner[10..110].iter().all(Option::is_some));
        assert!(owner[110..].iter().all(Option::is_none));
    }
}
