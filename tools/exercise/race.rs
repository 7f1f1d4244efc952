// SPDX-License-Identifier: GPL-2.0

//! Readers and writers on the same stripes at the same time.
//!
//! Each write of a block has the next number of that block. A block that was read must hold a
//! number that was current at some moment between the beginning and the end of the read: not older
//! than the last write that was acknowledged before, not newer than the last one begun since, and
//! nothing mixed of two.
//!
//! A buffer belongs to its reader alone once the read has ended. So it is filled with a pattern at
//! once, rests while others are read into, and must still hold the pattern when its turn comes again:
//! nothing may be written there by whatever the read has left behind in the array.

use crate::content::{self, Stamp};
use crate::device::{Access, Buffer, Device};
use crate::rng::{mix, Rng};
use crate::size::{parse, Part};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// How many wrong blocks are described.
const SHOWN: u64 = 8;

/// Bytes in a write of the first round, which puts something into each block.
const FILL: u64 = 1 << 20;

/// Reads and writes the same blocks, and checks each block that is read.
#[derive(clap::Args, Debug)]
pub struct RaceArgs {
    /// The device. What is on it is overwritten.
    pub device: PathBuf,
    /// Makes every choice and the contents.
    #[arg(long)]
    pub seed: u64,
    /// Reads in all, after which it ends.
    #[arg(long)]
    pub reads: u64,
    /// After so many seconds it ends, too.
    #[arg(long, default_value_t = 3600)]
    pub seconds: u64,
    /// Threads that read.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub readers: u8,
    /// Threads that write, as long as others read.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=64))]
    pub writers: u8,
    /// Milliseconds that a writer waits after each write.
    #[arg(long, default_value_t = 0)]
    pub write_pause: u64,
    /// The largest read in bytes.
    #[arg(long, default_value = "64K", value_parser = parse)]
    pub max_size: u64,
    /// The largest write in bytes.
    #[arg(long, default_value = "16K", value_parser = parse)]
    pub max_write: u64,
    /// Writers own alternating units of this many bytes: they meet in stripes, never in blocks.
    #[arg(long, default_value = "16K", value_parser = parse)]
    pub unit: u64,
    /// Buffers of each reader, all but one of which rest.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..))]
    pub buffers: u8,
    /// Seconds that all buffers rest at the end.
    #[arg(long, default_value_t = 0)]
    pub rest: u64,
    /// Where.
    #[command(flatten)]
    pub part: Part,
}

/// The numbers of a block's writes.
#[derive(Default)]
struct Numbers {
    /// The last one that was acknowledged.
    done: AtomicU64,
    /// The last one that was begun.
    begun: AtomicU64,
}

/// What the threads share. Blocks count from the beginning of the device.
struct Race<'a> {
    args: &'a RaceArgs,
    device: Device,
    block_size: usize,
    first: u64,
    numbers: Vec<Numbers>,
    /// The reads are over.
    over: AtomicBool,
    deadline: Instant,
    wrong: AtomicU64,
}

/// What was done and seen.
#[derive(Clone, Copy, Default)]
struct Tally {
    reads: u64,
    blocks: u64,
    /// Blocks that were written while they were read.
    overlapped: u64,
    writes: u64,
    longest: Duration,
}

impl Tally {
    fn add(self, other: Tally) -> Tally {
        Tally {
            reads: self.reads + other.reads,
            blocks: self.blocks + other.blocks,
            overlapped: self.overlapped + other.overlapped,
            writes: self.writes + other.writes,
            longest: self.longest.max(other.longest),
        }
    }
}

/// Runs `race`; false when a block was wrong or a buffer has changed.
pub fn race(args: &RaceArgs) -> io::Result<bool> {
    let mut race = Race::new(args)?;
    race.fill()?;
    race.deadline = Instant::now() + Duration::from_secs(args.seconds);
    let sum = race.run()?;
    let wrong = race.wrong.load(SeqCst);
    println!(
        "race={} seed={} reads={} blocks={} overlapped={} writes={} wrong={wrong} longest_us={}",
        if wrong == 0 { "ok" } else { "bad" },
        args.seed,
        sum.reads,
        sum.blocks,
        sum.overlapped,
        sum.writes,
        sum.longest.as_micros()
    );
    Ok(wrong == 0)
}

impl<'a> Race<'a> {
    fn new(args: &'a RaceArgs) -> io::Result<Self> {
        let access = Access {
            write: true,
            ..Access::default()
        };
        let device = Device::open(&args.device, access)?;
        let block_size = device.block_size()?;
        let block = block_size as u64;
        let (start, length) = args.part.on(device.size()?, block)?;
        let sizes = [args.max_size, args.max_write, args.unit];
        let whole = |size: u64| size > 0 && size % block == 0 && size <= length;
        let fits = args.max_write <= args.unit
            && length / args.unit.max(1) >= u64::from(args.writers.max(1));
        if !sizes.into_iter().all(whole) || !fits {
            let what = "sizes must be whole blocks, writes fit into units, and writers have some";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let count = length / block;
        Ok(Race {
            args,
            device,
            block_size,
            first: start / block,
            numbers: (0..count).map(|_| Numbers::default()).collect(),
            over: AtomicBool::new(false),
            deadline: Instant::now() + Duration::from_secs(args.seconds),
            wrong: AtomicU64::new(0),
        })
    }

    /// A size on the command line in blocks.
    fn blocks(&self, bytes: u64) -> u64 {
        bytes / self.block_size as u64
    }

    /// The first write of each block.
    fn fill(&self) -> io::Result<()> {
        let step = self.blocks(FILL).max(1) as usize;
        let mut buffer = Buffer::new(step * self.block_size);
        for at in (0..self.numbers.len()).step_by(step) {
            let end = self.numbers.len().min(at + step);
            self.write(at, end - at, &mut buffer)?;
        }
        Ok(())
    }

    /// Runs all threads to their end.
    fn run(&self) -> io::Result<Tally> {
        let gone = |_| Err(io::Error::other("a thread panicked"));
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..self.args.readers)
                .map(|number| scope.spawn(move || self.reader(number)))
                .collect();
            let writers: Vec<_> = (0..self.args.writers)
                .map(|number| scope.spawn(move || self.writer(number)))
                .collect();
            let mut tallies: Vec<_> = readers
                .into_iter()
                .map(|reader| reader.join().unwrap_or_else(gone))
                .collect();
            self.over.store(true, SeqCst);
            let writers = writers.into_iter();
            tallies.extend(writers.map(|writer| writer.join().unwrap_or_else(gone)));
            let sum = tallies.into_iter().collect::<io::Result<Vec<_>>>()?;
            Ok(sum.into_iter().fold(Tally::default(), Tally::add))
        })
    }

    fn is_over(&self) -> bool {
        self.over.load(SeqCst) || Instant::now() >= self.deadline
    }

    fn writer(&self, number: u8) -> io::Result<Tally> {
        let (unit, most) = (
            self.blocks(self.args.unit),
            self.blocks(self.args.max_write),
        );
        let writers = u64::from(self.args.writers);
        let mine = u64::from(number);
        // Whole units only: a cut one at the end belongs to nobody.
        let owned = (self.numbers.len() as u64 / unit - mine).div_ceil(writers);
        let mut rng = Rng::new(&[self.args.seed, 1, mine]);
        let mut buffer = Buffer::new(self.args.max_write as usize);
        let mut tally = Tally::default();
        while !self.is_over() {
            let count = rng.log_uniform(most);
            let at = (rng.below(owned) * writers + mine) * unit + rng.below(unit - count + 1);
            self.write(at as usize, count as usize, &mut buffer)?;
            tally.writes += 1;
            std::thread::sleep(Duration::from_millis(self.args.write_pause));
        }
        Ok(tally)
    }

    /// The next write of these blocks, which nobody else writes.
    fn write(&self, at: usize, count: usize, buffer: &mut Buffer) -> io::Result<()> {
        let numbers = &self.numbers[at..at + count];
        let bytes = buffer.get_mut(count * self.block_size);
        for ((index, numbers), bytes) in (at..)
            .zip(numbers)
            .zip(bytes.chunks_exact_mut(self.block_size))
        {
            let next = numbers.begun.load(SeqCst) + 1;
            numbers.begun.store(next, SeqCst);
            let block = self.first + index as u64;
            content::fill(self.args.seed, block, Stamp::from_bits(next), bytes);
        }
        let at = (self.first + at as u64) * self.block_size as u64;
        self.device.write(bytes, at).map_err(|error| {
            let path = self.device.path().display();
            io::Error::other(format!("{path}: write at byte {at}: {error}"))
        })?;
        for numbers in numbers {
            numbers.done.store(numbers.begun.load(SeqCst), SeqCst);
        }
        Ok(())
    }

    fn reader(&self, number: u8) -> io::Result<Tally> {
        let most = self.blocks(self.args.max_size);
        let share = self.args.reads.div_ceil(u64::from(self.args.readers));
        let mut rng = Rng::new(&[self.args.seed, 2, u64::from(number)]);
        let pattern = |index: usize| mix(self.args.seed ^ u64::from(number) << 32 ^ index as u64);
        let mut buffers: Vec<_> = (0..usize::from(self.args.buffers))
            .map(|index| Resting::new(self.args.max_size as usize, pattern(index)))
            .collect();
        let mut block = vec![0; self.block_size];
        let mut tally = Tally::default();
        for turn in 0..share {
            if self.is_over() {
                break;
            }
            let index = turn as usize % buffers.len();
            let count = rng.log_uniform(most);
            let at = rng.below(self.numbers.len() as u64 - count + 1);
            let buffer = &mut buffers[index];
            self.check_rest(buffer);
            self.read(at as usize, count as usize, buffer, &mut block, &mut tally)?;
            buffer.lay_down(count as usize * self.block_size);
        }
        std::thread::sleep(Duration::from_secs(self.args.rest));
        buffers.iter().for_each(|buffer| self.check_rest(buffer));
        Ok(tally)
    }

    /// Reads blocks and compares them with what may be there.
    fn read(
        &self,
        at: usize,
        count: usize,
        buffer: &mut Resting,
        scratch: &mut [u8],
        tally: &mut Tally,
    ) -> io::Result<()> {
        let numbers = &self.numbers[at..at + count];
        let oldest: Vec<_> = numbers.iter().map(|n| n.done.load(SeqCst)).collect();
        let byte = (self.first + at as u64) * self.block_size as u64;
        let bytes = buffer.bytes.get_mut(count * self.block_size);
        let begun = Instant::now();
        self.device.read(bytes, byte).map_err(|error| {
            let path = self.device.path().display();
            io::Error::other(format!("{path}: read at byte {byte}: {error}"))
        })?;
        tally.longest = tally.longest.max(begun.elapsed());
        tally.reads += 1;
        tally.blocks += count as u64;
        for (index, bytes) in bytes.chunks_exact(self.block_size).enumerate() {
            let range = oldest[index]..=numbers[index].begun.load(SeqCst);
            tally.overlapped += u64::from(range.start() < range.end());
            let block = self.first + (at + index) as u64;
            let is_one = content::stamp_of(bytes).is_some_and(|stamp| {
                content::fill(self.args.seed, block, stamp, scratch);
                range.contains(&stamp.bits()) && bytes == scratch
            });
            if !is_one {
                self.report(&format!(
                    "block {block} holds {}, must hold number {} to {}",
                    content::describe(bytes),
                    range.start(),
                    range.end()
                ));
            }
        }
        Ok(())
    }

    /// Nobody has written into a buffer that rests.
    fn check_rest(&self, buffer: &Resting) {
        if let Some(at) = buffer.changed_at() {
            let bytes = buffer.bytes.get(buffer.len);
            let from = at / self.block_size * self.block_size;
            let to = bytes.len().min(from + self.block_size);
            self.report(&format!(
                "a buffer of a read that had ended was changed from byte {at} on: {}",
                content::describe(&bytes[from..to])
            ));
        }
    }

    fn report(&self, what: &str) {
        if self.wrong.fetch_add(1, SeqCst) < SHOWN {
            println!("wrong: {what}");
        }
    }
}

/// A buffer that holds a pattern while nobody reads into it.
struct Resting {
    bytes: Buffer,
    len: usize,
    pattern: [u8; 8],
}

impl Resting {
    /// A buffer of `len` bytes, a multiple of 8, that rests.
    fn new(len: usize, pattern: u64) -> Self {
        let mut resting = Resting {
            bytes: Buffer::new(len),
            len,
            pattern: pattern.to_le_bytes(),
        };
        resting.lay_down(len);
        resting
    }

    /// Puts the pattern back where it was read into.
    fn lay_down(&mut self, len: usize) {
        for word in self.bytes.get_mut(len).chunks_exact_mut(8) {
            word.copy_from_slice(&self.pattern);
        }
    }

    /// Where it does not hold the pattern.
    fn changed_at(&self) -> Option<usize> {
        let mut words = self.bytes.get(self.len).chunks_exact(8);
        words
            .position(|word| word != self.pattern)
            .map(|word| word * 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A race without any thread yet, on a file that goes at once.
    fn race<R>(name: &str, of: impl FnOnce(&Race<'_>) -> R) -> R {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
        let path = path.join(format!("target/race-{name}-{}", std::process::id()));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, vec![0; 1 << 20]).unwrap();
        let args = RaceArgs {
            device: path.clone(),
            seed: 3,
            reads: 400,
            seconds: 60,
            readers: 3,
            writers: 2,
            write_pause: 0,
            max_size: 64 << 10,
            max_write: 16 << 10,
            unit: 16 << 10,
            buffers: 4,
            rest: 0,
            part: Part::default(),
        };
        let race = Race::new(&args);
        fs::remove_file(&path).unwrap();
        let race = race.unwrap();
        race.fill().unwrap();
        of(&race)
    }

    /// Reads all, and says how many blocks were wrong.
    fn wrong_of_all(race: &Race<'_>) -> u64 {
        let mut buffer = Resting::new(1 << 20, 1);
        let (mut block, mut tally) = (vec![0; race.block_size], Tally::default());
        race.read(0, race.numbers.len(), &mut buffer, &mut block, &mut tally)
            .unwrap();
        race.wrong.swap(0, SeqCst)
    }

    #[test]
    fn what_was_current_is_right_and_nothing_else() {
        race("numbers", |race| {
            let mut buffer = Buffer::new(race.block_size);
            assert_eq!(wrong_of_all(race), 0);
            race.write(7, 1, &mut buffer).unwrap();
            assert_eq!(wrong_of_all(race), 0);
            let numbers = &race.numbers[7];
            assert_eq!(numbers.done.load(SeqCst), 2);
            // Acknowledged, and not there.
            numbers.begun.store(3, SeqCst);
            numbers.done.store(3, SeqCst);
            assert_eq!(wrong_of_all(race), 1);
            // Under way: the old one is right.
            numbers.done.store(2, SeqCst);
            assert_eq!(wrong_of_all(race), 0);
            // There, and not even begun.
            numbers.begun.store(1, SeqCst);
            numbers.done.store(1, SeqCst);
            assert_eq!(wrong_of_all(race), 1);
        });
    }

    #[test]
    fn a_mix_of_two_is_wrong() {
        race("mixed", |race| {
            let (mut old, mut new) = (vec![0; race.block_size], vec![0; race.block_size]);
            content::fill(race.args.seed, 5, Stamp::from_bits(1), &mut old);
            content::fill(race.args.seed, 5, Stamp::from_bits(2), &mut new);
            race.numbers[5].begun.store(2, SeqCst);
            let mut buffer = Buffer::new(race.block_size);
            let half = race.block_size / 2;
            for (bytes, wrong) in [
                (new.clone(), 0),
                ([&new[..half], &old[half..]].concat(), 1),
                ([&old[..half], &new[half..]].concat(), 1),
                (old.iter().zip(&new).map(|(a, b)| a ^ b).collect(), 1),
            ] {
                buffer.get_mut(race.block_size).copy_from_slice(&bytes);
                let at = 5 * race.block_size as u64;
                race.device.write(buffer.get(race.block_size), at).unwrap();
                assert_eq!(wrong_of_all(race), wrong);
            }
        });
    }

    #[test]
    fn a_buffer_that_changes_is_noticed() {
        let mut resting = Resting::new(4096, 77);
        assert_eq!(resting.changed_at(), None);
        resting.bytes.get_mut(4096)[1500] ^= 1;
        assert_eq!(resting.changed_at(), Some(1496));
        resting.lay_down(1496);
        assert_eq!(resting.changed_at(), Some(1496));
        resting.lay_down(1504);
        assert_eq!(resting.changed_at(), None);
    }

    #[test]
    fn threads_meet_and_nothing_is_wrong() {
        race("threads", |race| {
            let sum = race.run().unwrap();
            assert_eq!(race.wrong.load(SeqCst), 0);
            assert!((400..=402).contains(&sum.reads), "{}", sum.reads);
            assert!(sum.blocks >= sum.reads);
        });
    }
}
