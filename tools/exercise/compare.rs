// SPDX-License-Identifier: GPL-2.0

//! Byte for byte comparison of two devices, and the pattern to lay down before a test.

use crate::content::{self, Stamp};
use crate::device::{Access, Buffer, Device};
use crate::size::{parse, Part};
use std::io;
use std::path::PathBuf;

/// Bytes compared or written at a time.
const STEP: u64 = 1 << 20;

/// Compares two devices byte for byte.
#[derive(clap::Args, Debug)]
pub struct CompareArgs {
    /// One device or file.
    pub a: PathBuf,
    /// The other.
    pub b: PathBuf,
    /// Where to start in B; as in A unless given.
    #[arg(long, value_parser = parse)]
    pub offset_b: Option<u64>,
    /// What of A to compare.
    #[command(flatten)]
    pub part: Part,
    /// Through the page cache.
    #[arg(long)]
    pub buffered: bool,
}

/// Runs `compare`; false when the devices differ.
///
/// Without a length both must be of one size.
pub fn compare(args: &CompareArgs) -> io::Result<bool> {
    let access = Access {
        buffered: args.buffered,
        ..Access::default()
    };
    let (a, b) = (
        Device::open(&args.a, access)?,
        Device::open(&args.b, access)?,
    );
    let block_size = a.block_size()?.max(b.block_size()?) as u64;
    let (size_a, size_b) = (a.size()?, b.size()?);
    let offset_b = args.offset_b.unwrap_or(args.part.offset);
    if args.part.length.is_none()
        && size_a - args.part.offset.min(size_a) != size_b - offset_b.min(size_b)
    {
        println!("compare=bad sizes {size_a} and {size_b}");
        return Ok(false);
    }
    let (start, length) = args.part.on(size_a, block_size)?;
    let mut buffers = (Buffer::new(STEP as usize), Buffer::new(STEP as usize));
    let (mut first, mut blocks) = (None, 0u64);
    let mut done = 0;
    while done < length {
        let len = STEP.min(length - done) as usize;
        let (x, y) = (buffers.0.get_mut(len), buffers.1.get_mut(len));
        a.read(x, start + done)?;
        b.read(y, offset_b + done)?;
        if let Some(at) = content::first_difference(x, y) {
            first.get_or_insert((done + at as u64, x[at], y[at]));
            blocks += differing(x, y);
        }
        done += len as u64;
    }
    match first {
        None => println!("compare=ok bytes={length}"),
        Some((at, x, y)) => println!(
            "compare=bad bytes={length} first_difference={} a={x:#04x} b={y:#04x} \
             differing_sectors={blocks}",
            start + at
        ),
    }
    Ok(first.is_none())
}

/// How many 512-byte sectors differ.
fn differing(a: &[u8], b: &[u8]) -> u64 {
    a.chunks(512)
        .zip(b.chunks(512))
        .filter(|(a, b)| a != b)
        .count() as u64
}

/// Lays down or checks a pattern without a log.
#[derive(clap::Args, Debug)]
pub struct PatternArgs {
    /// The device.
    pub device: PathBuf,
    /// Makes the pattern.
    #[arg(long)]
    pub seed: u64,
    /// Compare instead of writing.
    #[arg(long)]
    pub check: bool,
    /// Where.
    #[command(flatten)]
    pub part: Part,
}

/// Runs `pattern`; false when a check finds another block.
pub fn pattern(args: &PatternArgs) -> io::Result<bool> {
    let access = Access {
        write: !args.check,
        ..Access::default()
    };
    let device = Device::open(&args.device, access)?;
    let block_size = device.block_size()?;
    let (start, length) = args.part.on(device.size()?, block_size as u64)?;
    let mut want = Buffer::new(STEP as usize);
    let mut got = Buffer::new(STEP as usize);
    let mut done = 0;
    while done < length {
        let len = STEP.min(length - done) as usize;
        let at = start + done;
        let first = at / block_size as u64;
        content::fill_blocks(
            args.seed,
            first,
            Stamp::PATTERN,
            block_size,
            want.get_mut(len),
        );
        if args.check {
            device.read(got.get_mut(len), at)?;
            if let Some(byte) = content::first_difference(want.get(len), got.get(len)) {
                println!(
                    "pattern=bad seed={} first_difference={}",
                    args.seed,
                    at + byte as u64
                );
                return Ok(false);
            }
        } else {
            device.write(want.get(len), at)?;
        }
        done += len as u64;
    }
    if !args.check {
        device.sync()?;
    }
    println!("pattern=ok seed={} bytes={length}", args.seed);
    Ok(true)
}
