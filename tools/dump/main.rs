// SPDX-License-Identifier: GPL-2.0

//! Prints and checks the metadata of one member of an array, without the driver and without writing.
//!
//! It says what it finds, both copies of everything, and which one counts by
//! Documentation/on-disk-format.rst. Lines are `KEY=VALUE`, in sectors of 512 bytes where lengths
//! and positions are meant. `note=` is what a crash may leave: a copy that is torn beside one that
//! is right. `problem=` is what never should be. The last line is `result=ok` or `result=wrong`; the
//! exit status 0 or 1 says the same, 2 means that there was nothing to judge.

mod member;
mod report;
#[cfg(test)]
mod tests;

use clap::Parser;
use eraid_tools::device::{Access, Device};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Prints and checks the metadata of a member of an eRAID array; writes nothing.
#[derive(Parser)]
struct Args {
    /// The member: a block device, or a file that holds an image of one.
    member: PathBuf,
    /// Also print every page, and every region that is not as in a new array.
    #[arg(long)]
    all: bool,
}

/// Opens a member for reading: a device past the page cache, which the driver does not fill.
fn open(path: &Path) -> io::Result<Device> {
    let is_device = std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device());
    let access = Access {
        buffered: !is_device,
        ..Access::default()
    };
    Device::open(path, access)
}

fn main() -> ExitCode {
    let args = Args::parse();
    let examined = open(&args.member).and_then(|device| member::examine(&device, args.all));
    match examined {
        Ok(report) => {
            print!("{report}");
            match report.is_ok() {
                true => ExitCode::SUCCESS,
                false => ExitCode::from(1),
            }
        }
        Err(error) => {
            eprintln!("eraid-dump: {error}");
            ExitCode::from(2)
        }
    }
}
