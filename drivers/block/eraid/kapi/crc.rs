// SPDX-License-Identifier: GPL-2.0

//! CRC-32C.
//!
//! C header: [`include/linux/crc32c.h`](srctree/include/linux/crc32c.h)

use super::sys;

/// Continues a CRC-32C over `data`.
///
/// Neither the seed nor the result is inverted: the checksum in its usual form is
/// `!crc32c(!0, data)`.
pub(crate) fn crc32c(seed: u32, data: &[u8]) -> u32 {
    // SAFETY: The pointer and the length describe `data`, which is only read.
    unsafe { sys::crc32c(seed, data.as_ptr().cast(), data.len()) }
}
