// SPDX-License-Identifier: GPL-2.0

//! XOR parity over page buffers.
//!
//! C header: [`include/linux/raid/xor.h`](srctree/include/linux/raid/xor.h)

use kernel::{
    error::code::*,
    ffi::c_void,
    prelude::*, //
};

use super::{
    page::PageBuf,
    sys, //
};

/// `xor_gen()` works on multiples of this many bytes.
const XOR_UNIT: usize = 512;

/// Sources handed to one `xor_gen()` call; more are done in several passes.
const MAX_SOURCES: usize = 8;

/// Computes `dst ^= src` for each source, over `len` bytes at `dst_off` and at each source's own
/// offset.
///
/// To be called from task context with interrupts and soft interrupts enabled, since `xor_gen()`
/// uses vector registers.
///
/// # Errors
///
/// - [`EINVAL`] if an offset or the length is not a multiple of 512.
/// - [`ERANGE`] if a range is not inside its buffer.
/// - [`EDEADLK`] if the context is not the one described above.
///
/// Nothing is written when there is an error.
pub(crate) fn xor_into(
    dst: &mut PageBuf,
    dst_off: usize,
    srcs: &[(&PageBuf, usize)],
    len: usize,
) -> Result {
    dst.check(dst_off, len)?;
    for (src, off) in srcs {
        src.check(*off, len)?;
    }
    if srcs.iter().any(|(_, off)| off % XOR_UNIT != 0)
        || dst_off % XOR_UNIT != 0
        || len % XOR_UNIT != 0
    {
        return Err(EINVAL);
    }
    // SAFETY: This only reads the state of the current CPU and task.
    if !unsafe { sys::eraid_xor_allowed() } {
        return Err(EDEADLK);
    }

    for srcs in srcs.chunks(MAX_SOURCES) {
        xor_chunk(dst, dst_off, srcs, len)?;
    }
    Ok(())
}

/// [`xor_into`] for at most [`MAX_SOURCES`] sources, with all arguments and the context checked.
fn xor_chunk(dst: &mut PageBuf, dst_off: usize, srcs: &[(&PageBuf, usize)], len: usize) -> Result {
    let mut done = 0;

    while done < len {
        let (ptr, room) = dst.run(dst_off + done).ok_or(ERANGE)?;
        let mut n = room.min(len - done);
        let mut ptrs = [core::ptr::null_mut::<c_void>(); MAX_SOURCES];
        let mut count = 0;

        for (slot, (src, off)) in ptrs.iter_mut().zip(srcs) {
            let (src, room) = src.run(off + done).ok_or(ERANGE)?;
            *slot = src.cast();
            n = n.min(room);
            count += 1;
        }
        // SAFETY: `dst` and the first `count` sources are valid for `n` bytes: each run is inside
        // the pages of its buffer. `dst` is borrowed exclusively, the sources are only read. All
        // pointers and `n` are multiples of 512, since pages, offsets and `len` are; `n` and
        // `count` are not zero. The caller has checked the context.
        unsafe { sys::xor_gen(ptr.cast(), ptrs.as_mut_ptr(), count, n as u32) };
        done += n;
    }
    Ok(())
}
