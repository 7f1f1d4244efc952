// SPDX-License-Identifier: GPL-2.0

//! One request to the device.

use eraid_tools::time::Nanos;
use std::io;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads into memory that nobody looks at.
    Read,
    /// Writes bytes without meaning.
    Write,
    /// The same with an fsync behind it; only then is it done.
    SyncedWrite,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When it is due, since the start of the run.
    pub due: Nanos,
    /// What it does.
    pub op: Op,
    /// Its first byte on the device.
    pub offset: u64,
    /// Its bytes, at least one and at most [`crate::MAX_SIZE`].
    pub length: u32,
}

impl Request {
    /// Whether it changes the device.
    pub fn is_write(&self) -> bool {
        self.op != Op::Read
    }

    /// Whether a device of `size` bytes in blocks of `block` can do it.
    pub fn check(&self, size: u64, block: u64) -> io::Result<()> {
        let end = self.offset.checked_add(self.length.into());
        let what = if end.is_none_or(|end| end > size) {
            format!("reaches past the device's end at {size}")
        } else if self.offset % block != 0 || u64::from(self.length) % block != 0 {
            format!("is not in whole blocks of {block} bytes")
        } else {
            return Ok(());
        };
        let what = format!("request at {}, length {}, {what}", self.offset, self.length);
        Err(io::Error::new(io::ErrorKind::InvalidInput, what))
    }
}
