// SPDX-License-Identifier: GPL-2.0

//! XOR over the columns of an operation. Task context only: see `lib/raid/xor`.

use kernel::prelude::*;

use crate::{
    kapi::{page::PageBuf, xor::xor_into},
    op::Columns,
};
use eraid_core::units::SlotSet;

/// Sets the first `len` bytes of `dst` to the XOR of those of all `sources`.
pub(crate) fn xor_all(
    dst: &mut PageBuf,
    columns: &Columns,
    sources: SlotSet,
    len: usize,
) -> Result {
    let mut rest = sources;
    let Some(first) = rest.first() else {
        return dst.zero(0, len);
    };
    rest.remove(first);
    let from = columns.get(first).ok_or(EIO)?;
    dst.copy_from_buf(0, &from.buf, 0, len)?;
    xor_more(dst, columns, rest, len)
}

/// Adds the first `len` bytes of all `sources` to those of `dst`.
pub(crate) fn xor_more(
    dst: &mut PageBuf,
    columns: &Columns,
    sources: SlotSet,
    len: usize,
) -> Result {
    for slot in sources.iter() {
        let from = columns.get(slot).ok_or(EIO)?;
        xor_into(dst, 0, &[(&from.buf, 0)], len)?;
    }
    Ok(())
}
