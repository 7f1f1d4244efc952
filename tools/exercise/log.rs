// SPDX-License-Identifier: GPL-2.0

//! The log of a test: every write before it is issued and after it has returned.
//!
//! A file of 40-byte records, five little-endian words: kind, three operands, checksum. It is
//! appended to by every run on the same device, so that what must be there can be recomputed
//! after several rounds of writing, also when the writer was killed half-way.

use crate::content::Stamp;
use crate::device::at;
use crate::rng::mix;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

const RECORD: usize = 40;
const CHECK_SEED: u64 = u64::from_le_bytes(*b"eRAIDlog");

/// What one log belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes in a block.
    pub block_size: u64,
    /// Blocks on the device.
    pub blocks: u64,
    /// The key of all contents ([`crate::content`]).
    pub key: u64,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// The first of every log.
    Header(Header),
    /// A run of the writer begins. Whatever was outstanding will never be answered.
    Run {
        /// The run's number, from 1.
        run: u16,
        /// The seed of its choices.
        seed: u64,
    },
    /// A write is about to be issued.
    Issued {
        /// Its stamp.
        stamp: Stamp,
        /// Its first block.
        first: u64,
        /// Its length in blocks.
        count: u64,
    },
    /// A write has returned.
    Done {
        /// Its stamp.
        stamp: Stamp,
        /// False when it returned an error: each of its blocks is then old or new.
        ok: bool,
    },
}

impl Record {
    fn encode(&self) -> [u8; RECORD] {
        let words = match *self {
            Record::Header(h) => [1, h.block_size, h.blocks, h.key],
            Record::Run { run, seed } => [2, u64::from(run), seed, 0],
            Record::Issued {
                stamp,
                first,
                count,
            } => [3, stamp.bits(), first, count],
            Record::Done { stamp, ok } => [4, stamp.bits(), u64::from(ok), 0],
        };
        let mut bytes = [0; RECORD];
        for (out, word) in bytes
            .chunks_exact_mut(8)
            .zip(words.into_iter().chain([check(&words)]))
        {
            out.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Record> {
        let mut words = [0u64; RECORD / 8];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().ok()?);
        }
        let [kind, a, b, c, sum] = words;
        if sum != check(&[kind, a, b, c]) {
            return None;
        }
        Some(match kind {
            1 => Record::Header(Header {
                block_size: a,
                blocks: b,
                key: c,
            }),
            2 => Record::Run {
                run: u16::try_from(a).ok()?,
                seed: b,
            },
            3 => Record::Issued {
                stamp: Stamp::from_bits(a),
                first: b,
                count: c,
            },
            4 => Record::Done {
                stamp: Stamp::from_bits(a),
                ok: b != 0,
            },
            _ => return None,
        })
    }
}

fn check(words: &[u64; 4]) -> u64 {
    words
        .iter()
        .fold(CHECK_SEED, |sum, &word| mix(sum ^ word).wrapping_add(word))
}

/// A log open for appending.
pub struct Log {
    file: File,
    path: PathBuf,
}

impl Log {
    /// Opens or makes the log at `path`; a new one starts with `header`.
    pub fn append(path: &Path, header: Header) -> io::Result<Self> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .map_err(|error| at(path, "open the log", error))?;
        let mut log = Log {
            file,
            path: path.into(),
        };
        if log.file.metadata()?.len() == 0 {
            log.write(Record::Header(header))?;
        }
        Ok(log)
    }

    /// Appends one record with one system call: it survives the death of this process.
    pub fn write(&mut self, record: Record) -> io::Result<()> {
        let done = self.file.write(&record.encode())?;
        if done != RECORD {
            return Err(at(
                &self.path,
                "write the log",
                io::ErrorKind::WriteZero.into(),
            ));
        }
        Ok(())
    }
}

/// Reads a log: its header and the records after it, in order.
///
/// # Errors
///
/// For anything but whole, intact records: a test must not go on with a log that lost some of
/// what it promised.
pub fn read(path: &Path) -> io::Result<(Header, Vec<Record>)> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .map_err(|error| at(path, "read the log", error))?;
    let damaged = |what: &str| io::Error::other(format!("{}: {what}", path.display()));
    if bytes.len() % RECORD != 0 {
        return Err(damaged("the log ends in half a record"));
    }
    let mut records = Vec::with_capacity(bytes.len() / RECORD);
    for bytes in bytes.chunks_exact(RECORD) {
        records.push(Record::decode(bytes).ok_or_else(|| damaged("damaged log record"))?);
    }
    match records.first() {
        Some(&Record::Header(header)) if header.block_size >= 64 => {
            records.remove(0);
            Ok((header, records))
        }
        _ => Err(damaged("the log has no header")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        block_size: 512,
        blocks: 100,
        key: 5,
    };

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("eraid-log-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn round_trip_over_two_runs() {
        let path = scratch("trip");
        let stamp = Stamp::new(1, 0, 7);
        let records = [
            Record::Run { run: 1, seed: 3 },
            Record::Issued {
                stamp,
                first: 10,
                count: 4,
            },
            Record::Done { stamp, ok: true },
            Record::Done { stamp, ok: false },
        ];
        for record in records {
            Log::append(&path, HEADER).unwrap().write(record).unwrap();
        }
        assert_eq!(read(&path).unwrap(), (HEADER, records.to_vec()));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn damage_is_noticed() {
        let path = scratch("damage");
        Log::append(&path, HEADER)
            .unwrap()
            .write(Record::Run { run: 1, seed: 3 })
            .unwrap();
        let good = std::fs::read(&path).unwrap();
        for index in 0..good.len() {
            let mut bad = good.clone();
            bad[index] ^= 0x10;
            std::fs::write(&path, &bad).unwrap();
            assert!(read(&path).is_err(), "byte {index}");
        }
        std::fs::write(&path, &good[..good.len() - 1]).unwrap();
        assert!(read(&path).is_err());
        std::fs::write(&path, b"").unwrap();
        assert!(read(&path).is_err());
        std::fs::remove_file(path).unwrap();
    }
}
