// SPDX-License-Identifier: GPL-2.0

//! crc32c (Castagnoli) of metadata: how the caller's implementation is used, and a reference one.

use core::mem::size_of;

/// An implementation of crc32c: takes the running remainder and more bytes, returns the new one.
///
/// As `crc32c()` in include/linux/crc32c.h it neither inverts before nor after.
pub type Crc32c = fn(u32, &[u8]) -> u32;

/// Checksum of `bytes`, where the four bytes from `at` count as zero: they hold the checksum.
///
/// The usual form of crc32c: it starts from all ones and the result is inverted.
pub fn checksum_around(crc: Crc32c, bytes: &[u8], at: usize) -> u32 {
    let head = bytes.get(..at).unwrap_or(bytes);
    let tail = bytes.get(at + size_of::<u32>()..).unwrap_or(&[]);
    let zeros = [0; size_of::<u32>()];
    !crc(crc(crc(!0, head), &zeros), tail)
}

/// Reference implementation of [`Crc32c`] for the host; the kernel has a faster one.
#[cfg(not(CONFIG_RUST))]
pub fn reference(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |crc, byte| {
        let [low, ..] = crc.to_le_bytes();
        (crc >> 8) ^ table_entry(low ^ byte)
    })
}

/// Remainder of one byte.
#[cfg(not(CONFIG_RUST))]
fn table_entry(byte: u8) -> u32 {
    const TABLE: [u32; 256] = table();
    TABLE.get(usize::from(byte)).copied().unwrap_or(0)
}

/// Remainders of all bytes by the polynomial 0x1edc6f41, lowest bit first.
#[cfg(not(CONFIG_RUST))]
#[allow(clippy::indexing_slicing)] // Evaluated at compile time.
const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 != 0 {
                (crc >> 1) ^ 0x82f6_3b78
            } else {
                crc >> 1
            };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vectors of RFC 3720, B.4, and the check value of the algorithm's catalogue entry.
    #[test]
    fn known_values() {
        let crc = |bytes: &[u8]| !reference(!0, bytes);
        assert_eq!(crc(b"123456789"), 0xe306_9283);
        assert_eq!(crc(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc(&[0xff; 32]), 0x62a8_ab43);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(crc(&rising), 0x46dd_794e);
    }

    #[test]
    fn parts_make_the_whole() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut zeroed = bytes.clone();
        zeroed[8..12].fill(0);
        assert_eq!(
            checksum_around(reference, &bytes, 8),
            !reference(!0, &zeroed)
        );
    }
}
