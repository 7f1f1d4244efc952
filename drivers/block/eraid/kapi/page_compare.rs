// SPDX-License-Identifier: GPL-2.0

//! Comparing data buffers.

use kernel::{
    error::code::*,
    prelude::*, //
};

use super::page::PageBuf;

impl PageBuf {
    /// Whether `len` bytes at `off` equal those at `other_off` of `other`.
    ///
    /// # Errors
    ///
    /// [`ERANGE`] if a range is not inside its buffer.
    pub(crate) fn equals(
        &self,
        off: usize,
        other: &PageBuf,
        other_off: usize,
        len: usize,
    ) -> Result<bool> {
        self.check(off, len)?;
        other.check(other_off, len)?;

        let mut done = 0;
        while done < len {
            let (a, a_len) = self.run(off + done).ok_or(ERANGE)?;
            let (b, b_len) = other.run(other_off + done).ok_or(ERANGE)?;
            let n = a_len.min(b_len).min(len - done);
            // SAFETY: The run is at least `n` bytes long and inside the buffer's pages, which are
            // initialised and not written to while we hold `&self`.
            let a = unsafe { core::slice::from_raw_parts(a, n) };
            // SAFETY: As above, for `other`.
            let b = unsafe { core::slice::from_raw_parts(b, n) };
            if a != b {
                return Ok(false);
            }
            done += n;
        }
        Ok(true)
    }
}
