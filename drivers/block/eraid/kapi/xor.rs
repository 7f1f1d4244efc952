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
    page::{
        rest_of_page,
        PageBuf, //
    },
    sys, //
};

/// The parity libraries work on multiples of this many bytes.
const PARITY_UNIT: usize = 512;

/// Sources handed to one `xor_gen()` call; more are done in several passes.
const MAX_SOURCES: usize = 8;

/// Bytes of buffers that parity is computed over: the same of each buffer.
///
/// # Invariants
///
/// `start` and `len` are multiples of [`PARITY_UNIT`], and their sum is a `usize`.
#[derive(Clone, Copy)]
pub(crate) struct ByteRange {
    start: usize,
    len: usize,
}

impl ByteRange {
    /// The `len` bytes from `start` on.
    ///
    /// # Errors
    ///
    /// [`EINVAL`] unless both are multiples of 512, [`ERANGE`] when their sum is too large.
    pub(crate) fn new(start: usize, len: usize) -> Result<Self> {
        if start % PARITY_UNIT != 0 || len % PARITY_UNIT != 0 {
            return Err(EINVAL);
        }
        start.checked_add(len).ok_or(ERANGE)?;
        // INVARIANT: Just checked.
        Ok(Self { start, len })
    }

    /// The first byte.
    pub(crate) fn start(self) -> usize {
        self.start
    }

    /// The number of bytes.
    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// Tests that the range is inside `buf`.
    pub(super) fn check(self, buf: &PageBuf) -> Result {
        buf.check(self.start, self.len)
    }

    /// Its parts in single pages, as `(position, length)`: multiples of 512, no length being 0.
    pub(super) fn pages(self) -> impl Iterator<Item = (usize, usize)> {
        let end = self.start + self.len;
        let part = move |pos: usize| (pos < end).then(|| (pos, rest_of_page(pos).min(end - pos)));
        core::iter::successors(part(self.start), move |(pos, len)| part(pos + len))
    }
}

/// Tests that vector registers may be used here: in task context, with interrupts and soft
/// interrupts enabled.
///
/// # Errors
///
/// [`EDEADLK`].
pub(super) fn check_context() -> Result {
    // SAFETY: This only reads the state of the current CPU and task.
    match unsafe { sys::eraid_xor_allowed() } {
        true => Ok(()),
        false => Err(EDEADLK),
    }
}

/// Computes `dst ^= src` for each source that is not `None`, over the bytes of `range`.
///
/// To be called from task context with interrupts and soft interrupts enabled, since `xor_gen()`
/// uses vector registers.
///
/// # Errors
///
/// - [`ERANGE`] if the range is not inside one of the buffers.
/// - [`EDEADLK`] if the context is not the one described above.
///
/// Nothing is written when there is an error.
pub(crate) fn xor_into(dst: &mut PageBuf, srcs: &[Option<&PageBuf>], range: ByteRange) -> Result {
    range.check(dst)?;
    for src in srcs.iter().flatten() {
        range.check(src)?;
    }
    check_context()?;
    for (pos, len) in range.pages() {
        xor_page(dst, srcs, pos, len)?;
    }
    Ok(())
}

/// [`xor_into`] for `len` bytes in one page, with all arguments and the context checked.
fn xor_page(dst: &mut PageBuf, srcs: &[Option<&PageBuf>], pos: usize, len: usize) -> Result {
    let (to, _) = dst.run(pos).ok_or(ERANGE)?;
    let mut srcs = srcs.iter().flatten();
    loop {
        let mut ptrs = [core::ptr::null_mut::<c_void>(); MAX_SOURCES];
        let mut count = 0;
        for (place, src) in ptrs.iter_mut().zip(srcs.by_ref()) {
            *place = src.run(pos).ok_or(ERANGE)?.0.cast();
            count += 1;
        }
        if count == 0 {
            return Ok(());
        }
        // SAFETY: `to` and the first `count` sources are valid for `len` bytes: `pos` and `len` are
        // inside one page of each buffer. `dst` is borrowed exclusively, the sources are only read.
        // All pointers and `len` are multiples of 512, since pages, `pos` and `len` are; `len` and
        // `count` are not zero. The caller has checked the context.
        unsafe { sys::xor_gen(to.cast(), ptrs.as_mut_ptr(), count, len as u32) };
    }
}
