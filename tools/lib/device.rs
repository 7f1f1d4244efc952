// SPDX-License-Identifier: GPL-2.0

//! A block device or file opened for direct I/O, and buffers fit for it.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Alignment of buffers: more than any device asks for.
const ALIGNMENT: usize = 4096;

/// Bytes whose first is aligned for direct I/O.
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// `len` zero bytes.
    pub fn new(len: usize) -> Self {
        let bytes = vec![0u8; len + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        Buffer { bytes, start, len }
    }

    /// The first `len` bytes (at most the buffer's length).
    pub fn get(&self, len: usize) -> &[u8] {
        &self.bytes[self.start..self.start + len.min(self.len)]
    }

    /// As [`Buffer::get`], to be changed.
    pub fn get_mut(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + len.min(self.len)]
    }
}

/// How a device is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Access {
    /// For writing too.
    pub write: bool,
    /// Every write durable when it returns: arrives as FUA, or as write and flush.
    pub dsync: bool,
    /// Through the page cache.
    pub buffered: bool,
}

/// An open device or file.
pub struct Device {
    file: File,
    path: PathBuf,
}

impl Device {
    /// Opens `path`. A missing file is never created: a wrong device name is an error.
    pub fn open(path: &Path, access: Access) -> io::Result<Self> {
        let direct = if access.buffered { 0 } else { libc::O_DIRECT };
        let dsync = if access.dsync { libc::O_DSYNC } else { 0 };
        let file = OpenOptions::new()
            .read(true)
            .write(access.write)
            .custom_flags(direct | dsync)
            .open(path)
            .map_err(|error| at(path, "open", error))?;
        let kind = file.metadata()?.file_type();
        if !kind.is_block_device() && !kind.is_file() {
            let error = io::Error::from(io::ErrorKind::InvalidInput);
            return Err(at(path, "neither a block device nor a file", error));
        }
        Ok(Device {
            file,
            path: path.into(),
        })
    }

    /// The size in bytes.
    pub fn size(&self) -> io::Result<u64> {
        (&self.file).seek(SeekFrom::End(0))
    }

    /// The logical block size in bytes; 4096 for a file.
    pub fn block_size(&self) -> io::Result<usize> {
        let meta = self.file.metadata()?;
        if !meta.file_type().is_block_device() {
            return Ok(4096);
        }
        let number = meta.rdev();
        let (major, minor) = (libc::major(number), libc::minor(number));
        // A partition has no queue of its own; its disk is the folder above.
        for folder in ["", "/.."] {
            let file = format!("/sys/dev/block/{major}:{minor}{folder}/queue/logical_block_size");
            if let Ok(text) = std::fs::read_to_string(file) {
                return text.trim().parse().map_err(io::Error::other);
            }
        }
        Err(io::Error::other(format!(
            "no logical_block_size of {major}:{minor} in sysfs"
        )))
    }

    /// Reads all of `bytes` at `offset`.
    pub fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    /// Writes all of `bytes` at `offset`.
    pub fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Makes what was written durable: a flush reaches the device.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// The open file, for system calls that the standard library lacks.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Adds the path and the action to an error.
pub fn at(path: &Path, action: &str, error: io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("{}: {action}: {error}", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned() {
        for len in [1, 512, 100_000] {
            let mut buffer = Buffer::new(len);
            assert_eq!(buffer.get(len).as_ptr() as usize % ALIGNMENT, 0);
            assert_eq!(buffer.get_mut(len + 1).len(), len);
        }
    }

    #[test]
    fn a_missing_device_is_not_made() {
        let path = std::env::temp_dir().join(format!("eraid-none-{}", std::process::id()));
        let access = Access {
            write: true,
            ..Access::default()
        };
        assert!(Device::open(&path, access).is_err());
        assert!(!path.exists());
    }
}
