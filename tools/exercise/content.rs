// SPDX-License-Identifier: GPL-2.0

//! What a block holds: bytes that follow from a key, the block's number and the write's stamp.
//!
//! Each block starts with these three in clear, so that a wrong block says where it came from.

use crate::rng::mix;
use std::fmt;

const MAGIC: u64 = u64::from_le_bytes(*b"eRAIDblk");
const HEADER_WORDS: usize = 4;

/// Which write a block's bytes come from. Never repeated within one log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(u64);

impl Stamp {
    /// The stamp of blocks that no logged write has touched.
    pub const NEVER: Stamp = Stamp(0);
    /// The stamp of blocks laid down by `pattern`.
    pub const PATTERN: Stamp = Stamp(u64::MAX);

    /// The stamp of a thread's `op`-th write in run `run` (runs count from 1).
    pub fn new(run: u16, thread: u8, op: u64) -> Self {
        Stamp(u64::from(run) << 48 | u64::from(thread) << 40 | (op & ((1 << 40) - 1)))
    }

    /// The stamp from its stored form.
    pub fn from_bits(bits: u64) -> Self {
        Stamp(bits)
    }

    /// The stored form.
    pub fn bits(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Stamp::NEVER => f.write_str("no write"),
            Stamp::PATTERN => f.write_str("the pattern"),
            Stamp(bits) => write!(
                f,
                "run {} thread {} write {}",
                bits >> 48,
                (bits >> 40) & 0xff,
                bits & ((1 << 40) - 1)
            ),
        }
    }
}

/// Fills `out`, one block (a multiple of 8 bytes, at least 64), with the bytes of
/// (`key`, `block`, `stamp`).
pub fn fill(key: u64, block: u64, stamp: Stamp, out: &mut [u8]) {
    let header = [MAGIC, block, stamp.bits(), key];
    // The same walk as `Rng`, spelled out: this is the hot loop of every verification.
    let mut state = mix(mix(mix(key ^ MAGIC) ^ block) ^ stamp.bits());
    for (index, word) in out.chunks_exact_mut(8).enumerate() {
        let value = match header.get(index) {
            Some(&value) => value,
            None => {
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                mix(state)
            }
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// Fills `out`, whole blocks of `block_size` from `first` on, with the bytes of one write.
pub fn fill_blocks(key: u64, first: u64, stamp: Stamp, block_size: usize, out: &mut [u8]) {
    for (index, bytes) in out.chunks_exact_mut(block_size).enumerate() {
        fill(key, first + index as u64, stamp, bytes);
    }
}

/// The stamp that `bytes`, read from a block, bear; `None` when they look like no block.
pub fn stamp_of(bytes: &[u8]) -> Option<Stamp> {
    let mut words = bytes.chunks_exact(8).take(HEADER_WORDS).map(word);
    match (words.next(), words.next(), words.next()) {
        (Some(MAGIC), Some(_), Some(stamp)) => Some(Stamp::from_bits(stamp)),
        _ => None,
    }
}

/// Says in words what `bytes`, read from a block, look like.
pub fn describe(bytes: &[u8]) -> String {
    if bytes.iter().all(|&byte| byte == 0) {
        return "zeros".into();
    }
    let mut words = bytes.chunks_exact(8).take(HEADER_WORDS).map(word);
    let (Some(MAGIC), Some(block), Some(stamp), Some(key)) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return format!("unknown bytes {:02x?}...", &bytes[..bytes.len().min(16)]);
    };
    let mut whole = vec![0; bytes.len()];
    fill(key, block, Stamp::from_bits(stamp), &mut whole);
    let what = format!(
        "block {block} of {} (key {key:#x})",
        Stamp::from_bits(stamp)
    );
    match first_difference(bytes, &whole) {
        None => what,
        Some(at) => format!("{what}, torn or damaged from byte {at}"),
    }
}

/// Where two slices of one length first differ.
pub fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    if a == b {
        return None;
    }
    a.iter().zip(b).position(|(x, y)| x != y)
}

fn word(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |value, &byte| value << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(key: u64, number: u64, stamp: Stamp) -> Vec<u8> {
        let mut bytes = vec![0; 512];
        fill(key, number, stamp, &mut bytes);
        bytes
    }

    #[test]
    fn every_part_of_the_name_changes_the_bytes() {
        let stamp = Stamp::new(1, 2, 3);
        let one = block(1, 1, stamp);
        for other in [
            block(2, 1, stamp),
            block(1, 2, stamp),
            block(1, 1, Stamp::new(1, 2, 4)),
        ] {
            let same = one[32..]
                .iter()
                .zip(&other[32..])
                .filter(|(a, b)| a == b)
                .count();
            assert!(same < 20, "{same} bytes in common");
        }
        assert_eq!(one, block(1, 1, stamp));
    }

    #[test]
    fn xor_of_blocks_is_no_block() {
        // Else a missing parity update could go unseen.
        let stamp = Stamp::new(1, 0, 0);
        let sum: Vec<u8> = block(1, 1, stamp)
            .iter()
            .zip(block(1, 2, stamp))
            .zip(block(1, 3, stamp))
            .map(|((a, b), c)| a ^ b ^ c)
            .collect();
        assert_ne!(sum, block(1, 0, stamp));
    }

    #[test]
    fn blocks_describe_themselves() {
        let mut bytes = block(9, 77, Stamp::new(3, 1, 5));
        assert_eq!(
            describe(&bytes),
            "block 77 of run 3 thread 1 write 5 (key 0x9)"
        );
        bytes[400] ^= 1;
        assert!(describe(&bytes).ends_with("torn or damaged from byte 400"));
        assert_eq!(describe(&[0; 512]), "zeros");
        assert!(describe(&[1; 512]).starts_with("unknown bytes"));
    }
}
