// SPDX-License-Identifier: GPL-2.0

//! Where generated requests go and what they do.

use crate::request::{Op, Request};
use crate::MAX_SIZE;
use eraid_tools::device::Device;
use eraid_tools::rng::Rng;
use eraid_tools::size::{parse, Part};
use eraid_tools::time::Nanos;
use std::io;

/// Sets the places' random numbers apart from those of the arrivals.
const STREAM: u64 = 2;

/// The pattern as asked for.
#[derive(clap::Args, Debug)]
pub struct PatternArgs {
    /// Bytes in a request.
    #[arg(long, default_value = "4K", value_parser = parse)]
    pub size: u64,
    /// Requests of different sizes: of 1, 2, ... times `size` up to this, all equally likely.
    #[arg(long, value_parser = parse)]
    pub up_to: Option<u64>,
    /// Requests begin at multiples of this many bytes; the size unless given.
    #[arg(long, value_parser = parse)]
    pub align: Option<u64>,
    /// One right behind the other from the start, and again, instead of anywhere.
    #[arg(long, conflicts_with_all = ["align", "up_to"])]
    pub sequential: bool,
    /// Writes among 100 requests; they destroy what the device holds.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub write_percent: u32,
    /// An fsync behind each write, which is done only then.
    #[arg(long, requires = "write_percent")]
    pub fsync: bool,
    /// Makes arrivals, places and kinds.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub part: Part,
}

impl PatternArgs {
    /// Whether some requests are writes.
    pub fn writes(&self) -> bool {
        self.write_percent > 0
    }
}

/// Makes requests.
pub struct Pattern {
    rng: Rng,
    start: u64,
    places: u64,
    align: u64,
    /// Bytes in the shortest request; the others are multiples of it.
    length: u32,
    /// How many lengths there are.
    lengths: u32,
    write_percent: u32,
    /// What writes are.
    write: Op,
    /// The next place of a sequential pattern.
    next: Option<u64>,
}

impl Pattern {
    /// The pattern on `device`.
    pub fn new(args: &PatternArgs, device: &Device) -> io::Result<Self> {
        let block = device.block_size()? as u64;
        Self::on(args, device.size()?, block)
    }

    /// The pattern on a device of `size` bytes in blocks of `block`.
    pub fn on(args: &PatternArgs, size: u64, block: u64) -> io::Result<Self> {
        let bad = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        let (start, length) = args.part.on(size, block)?;
        let align = args.align.unwrap_or(args.size);
        let longest = args.up_to.unwrap_or(args.size);
        for size in [args.size, longest] {
            let most = length.min(MAX_SIZE);
            if size == 0 || size > most {
                return bad(format!("size {size} is not between 1 and {most}"));
            }
        }
        if longest % args.size != 0 {
            return bad(format!(
                "{longest} is not a multiple of the size {}",
                args.size
            ));
        }
        if args.size % block != 0 || align % block != 0 || align == 0 {
            return bad(format!(
                "size {} and alignment {align} are not whole blocks of {block}",
                args.size
            ));
        }
        Ok(Pattern {
            rng: Rng::new(&[args.seed, STREAM]),
            start,
            places: (length - longest) / align + 1,
            align,
            // At most MAX_SIZE.
            length: args.size as u32,
            lengths: (longest / args.size) as u32,
            write_percent: args.write_percent,
            write: if args.fsync {
                Op::SyncedWrite
            } else {
                Op::Write
            },
            next: args.sequential.then_some(0),
        })
    }

    /// Bytes in the longest request.
    pub fn longest(&self) -> u32 {
        self.length * self.lengths
    }

    /// The next request.
    pub fn next(&mut self, due: Nanos) -> Request {
        let place = match &mut self.next {
            Some(next) => {
                let place = *next;
                *next = (place + 1) % self.places;
                place
            }
            None => self.rng.below(self.places),
        };
        let op = if self.write_percent > 0 && self.rng.percent(self.write_percent) {
            self.write
        } else {
            Op::Read
        };
        let times = match self.lengths {
            1 => 1,
            // Below `lengths`.
            lengths => self.rng.below(lengths.into()) as u32 + 1,
        };
        Request {
            due,
            op,
            offset: self.start + place * self.align,
            length: self.length * times,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1 << 20;

    fn args(size: u64, align: u64) -> PatternArgs {
        PatternArgs {
            size,
            up_to: None,
            align: Some(align),
            sequential: false,
            write_percent: 0,
            fsync: false,
            seed: 5,
            part: Part::default(),
        }
    }

    #[test]
    fn places_are_aligned_and_reach_both_ends() {
        let mut pattern = Pattern::on(&args(24 << 10, 8 << 10), SIZE, 4096).unwrap();
        let mut seen = vec![0; 128];
        for _ in 0..20_000 {
            let request = pattern.next(Nanos(0));
            assert!(request.check(SIZE, 8 << 10).is_ok(), "{request:?}");
            seen[(request.offset >> 13) as usize] += 1;
        }
        assert_eq!(seen[126..], [0, 0]);
        // 20,000 over 126 places: 159 each, standard deviation 12.6.
        assert!(
            seen[..126].iter().all(|&n| (90..230).contains(&n)),
            "{seen:?}"
        );
    }

    #[test]
    fn sequential_goes_round() {
        let mut args = args(256 << 10, 4096);
        args.align = None;
        args.sequential = true;
        args.part.offset = 256 << 10;
        let mut pattern = Pattern::on(&args, SIZE, 4096).unwrap();
        let offsets: Vec<_> = (0..4)
            .map(|_| pattern.next(Nanos(0)).offset >> 18)
            .collect();
        assert_eq!(offsets, [1, 2, 3, 1]);
    }

    #[test]
    fn writes_are_as_many_as_asked_for() {
        let mut args = args(4096, 4096);
        args.write_percent = 30;
        let mut pattern = Pattern::on(&args, SIZE, 4096).unwrap();
        let writes = (0..10_000)
            .filter(|_| pattern.next(Nanos(0)).is_write())
            .count();
        assert!((2_800..3_200).contains(&writes), "{writes}");
        args.fsync = true;
        args.write_percent = 100;
        let mut pattern = Pattern::on(&args, SIZE, 4096).unwrap();
        assert_eq!(pattern.next(Nanos(0)).op, Op::SyncedWrite);
    }

    #[test]
    fn all_sizes_are_equally_likely() {
        let mut args = args(8 << 10, 4 << 10);
        args.up_to = Some(80 << 10);
        let mut pattern = Pattern::on(&args, SIZE, 4096).unwrap();
        assert_eq!(pattern.longest(), 80 << 10);
        let mut seen = [0; 11];
        for _ in 0..20_000 {
            let request = pattern.next(Nanos(0));
            assert!(request.check(SIZE, 4096).is_ok(), "{request:?}");
            seen[request.length as usize >> 13] += 1;
        }
        // 2000 each, standard deviation 42.
        assert!(
            seen[1..].iter().all(|n| (1_800..2_200).contains(n)),
            "{seen:?}"
        );
        for bad in [0, 12 << 10, 2 << 20] {
            args.up_to = Some(bad);
            assert!(Pattern::on(&args, SIZE, 4096).is_err(), "{bad}");
        }
    }

    #[test]
    fn bad_patterns_are_refused() {
        for (size, align) in [
            (0, 4096),
            (4096, 0),
            (2048, 4096),
            (4096, 2048),
            (2 << 20, 4096),
        ] {
            assert!(
                Pattern::on(&args(size, align), SIZE, 4096).is_err(),
                "{size} {align}"
            );
        }
    }
}
