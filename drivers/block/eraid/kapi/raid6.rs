// SPDX-License-Identifier: GPL-2.0

//! P and Q, the two parities of RAID-6, over page buffers.
//!
//! The data columns come as a slice in the order of their coefficients: column `i` counts `2^i` in
//! Q. All functions work on the same bytes of each buffer, one page after the other, and are to be
//! called from task context with interrupts and soft interrupts enabled, since the library uses
//! vector registers.
//!
//! All of them fail, and then write nothing, with
//!
//! - [`EINVAL`] for fewer than 2 or more than [`MAX_DATA`] data columns, and where a column is
//!   given or left out that must not be,
//! - [`ERANGE`] if the range is not inside one of the buffers,
//! - [`EDEADLK`] if the context is not the one described above.
//!
//! C header: [`include/linux/raid/pq.h`](srctree/include/linux/raid/pq.h)

use kernel::{
    error::code::*,
    ffi::{
        c_int,
        c_void, //
    },
    page::Page,
    prelude::*, //
};

use super::{
    page::PageBuf,
    sys,
    xor::{
        check_context,
        ByteRange, //
    }, //
};

/// Most columns of a stripe, P and Q included.
const MAX_COLUMNS: usize = 64;

/// Most data columns.
pub(crate) const MAX_DATA: usize = MAX_COLUMNS - 2;

/// A page for a P that nobody wants: the library computes P whenever it computes Q.
///
/// Any number of tasks may use the same one at the same time, as all do with `pq_scribble_page` in
/// crypto/async_tx/async_pq.c.
///
/// # Invariants
///
/// Only the library accesses the bytes of `page`, and nothing depends on what they are.
pub(crate) struct Scratch {
    page: Page,
}

impl Scratch {
    /// Allocates the page. May sleep.
    ///
    /// # Errors
    ///
    /// [`ENOMEM`].
    pub(crate) fn new() -> Result<Self> {
        // INVARIANT: Nothing else knows the new page. It is zeroed so that the library never reads
        // uninitialised bytes.
        Ok(Self {
            page: Page::alloc_page(GFP_KERNEL | __GFP_ZERO)?,
        })
    }

    /// The address of the page.
    fn address(&self) -> *mut c_void {
        // SAFETY: It is a valid page, and all pages are in the linear mapping on the 64-bit
        // architectures that this driver is limited to.
        unsafe { sys::eraid_page_address(self.page.as_ptr()) }
    }
}

/// Where P goes.
pub(crate) enum TargetP<'a> {
    /// To this buffer.
    Buf(&'a mut PageBuf),
    /// Nowhere: only Q is wanted.
    Scratch(&'a Scratch),
}

impl<'a> TargetP<'a> {
    /// `buf` if there is one, else `scratch`.
    pub(crate) fn or_scratch(buf: Option<&'a mut PageBuf>, scratch: &'a Scratch) -> Self {
        match buf {
            Some(buf) => TargetP::Buf(buf),
            None => TargetP::Scratch(scratch),
        }
    }

    fn check(&self, range: ByteRange) -> Result {
        match self {
            TargetP::Buf(buf) => range.check(buf),
            TargetP::Scratch(_) => Ok(()),
        }
    }

    /// Where to write the P of what is at `pos`, to the end of its page at most.
    fn at(&self, pos: usize) -> Result<*mut c_void> {
        match self {
            TargetP::Buf(buf) => address(buf, pos),
            TargetP::Scratch(scratch) => Ok(scratch.address()),
        }
    }
}

/// The data columns; `None` where one is missing.
pub(crate) type Data<'a> = [Option<&'a PageBuf>];

/// Sets `p` and `q` to the parities of `data`, of which none may be missing.
pub(crate) fn gen_syndrome(
    data: &Data<'_>,
    p: TargetP<'_>,
    q: &mut PageBuf,
    range: ByteRange,
) -> Result {
    check(data, range)?;
    p.check(range)?;
    range.check(q)?;
    if data.iter().any(Option::is_none) {
        return Err(EINVAL);
    }
    for (pos, len) in range.pages() {
        let mut ptrs = Pointers::new(data, pos)?;
        ptrs.set_parity(p.at(pos)?, address(q, pos)?)?;
        // SAFETY: All `disks()` pointers are valid for `len` bytes, which is a positive multiple of
        // 512, and aligned to 512: they are inside pages, at offsets that are multiples of it, and
        // `check()` saw the range inside of all buffers. There are at least 4. P and Q are borrowed
        // exclusively, or a scratch page. `check()` has checked the context.
        unsafe { sys::raid6_gen_syndrome(ptrs.disks(), len, ptrs.as_mut_ptr()) };
    }
    Ok(())
}

/// Whether [`xor_syndrome`] works with the algorithm that the library chose for this machine.
pub(crate) fn can_xor_syndrome() -> bool {
    // SAFETY: Only asks what was chosen when the library was initialised.
    unsafe { sys::raid6_can_xor_syndrome() }
}

/// Adds the parities of the columns of `data` that are given to `p` and `q`; the others count as
/// zeros.
///
/// A column that is in the parities already is taken out of them.
///
/// # Errors
///
/// [`EOPNOTSUPP`] unless [`can_xor_syndrome`].
pub(crate) fn xor_syndrome(
    data: &Data<'_>,
    p: TargetP<'_>,
    q: &mut PageBuf,
    range: ByteRange,
) -> Result {
    check(data, range)?;
    p.check(range)?;
    range.check(q)?;
    if !can_xor_syndrome() {
        return Err(EOPNOTSUPP);
    }
    for (pos, len) in range.pages() {
        let mut ptrs = Pointers::new(data, pos)?;
        ptrs.set_parity(p.at(pos)?, address(q, pos)?)?;
        let mut from = 0;
        // The library reads all columns from the first to the last of a call.
        while let Some((first, last)) = next_run(data, from) {
            // SAFETY: The pointers from `first` to `last` and those of P and Q are valid for `len`
            // bytes and aligned as in `gen_syndrome()`; the library reads no others. There are at
            // least 4, `first` is not above `last`, and both are data columns. P and Q are borrowed
            // exclusively, or P is a scratch page. `check()` has checked the context, and the
            // algorithm can do this.
            unsafe {
                sys::raid6_xor_syndrome(
                    ptrs.disks(),
                    first as c_int,
                    last as c_int,
                    len,
                    ptrs.as_mut_ptr(),
                )
            };
            from = last + 1;
        }
    }
    Ok(())
}

/// The first and the last of the first columns from `from` on that are given and adjacent.
fn next_run(data: &Data<'_>, from: usize) -> Option<(usize, usize)> {
    let rest = data.get(from..)?;
    let skip = rest.iter().position(Option::is_some)?;
    let given = rest.iter().skip(skip).take_while(|column| column.is_some());
    Some((from + skip, from + skip + given.count() - 1))
}

/// Computes the data columns `a.0` and `b.0`, the only ones missing in `data`, from the others, `p`
/// and `q`. `a.0` is the lower one.
///
/// The library's description wants page alignment. What its algorithms need is what is true here,
/// and what `async_raid6_2data_recov()` gives them on kernels whose pages are larger than a stripe's:
/// the alignment of the other functions, and at most a page at a time, since they read the zero
/// page in place of what is missing.
pub(crate) fn recov_2data(
    data: &Data<'_>,
    a: (usize, &mut PageBuf),
    b: (usize, &mut PageBuf),
    p: &PageBuf,
    q: &PageBuf,
    range: ByteRange,
) -> Result {
    check(data, range)?;
    for buf in [&*a.1, &*b.1, p, q] {
        range.check(buf)?;
    }
    if a.0 >= b.0 || missing(data) != (Some(a.0), Some(b.0), 2) {
        return Err(EINVAL);
    }
    for (pos, len) in range.pages() {
        let mut ptrs = Pointers::new(data, pos)?;
        ptrs.set(a.0, address(a.1, pos)?)?;
        ptrs.set(b.0, address(b.1, pos)?)?;
        ptrs.set_parity(address(p, pos)?, address(q, pos)?)?;
        // SAFETY: All `disks()` pointers are valid for `len` bytes and aligned as in
        // `gen_syndrome()`; `len` is at most a page. Only `a` and `b` are written to, which are
        // borrowed exclusively; they are two data columns, `a` the lower one. `check()` has checked
        // the context.
        unsafe {
            sys::raid6_recov_2data(
                ptrs.disks(),
                len,
                a.0 as c_int,
                b.0 as c_int,
                ptrs.as_mut_ptr(),
            )
        };
    }
    Ok(())
}

/// Computes the data column `a.0`, the only one missing in `data`, and P from the others and `q`.
///
/// About alignment see [`recov_2data`].
pub(crate) fn recov_datap(
    data: &Data<'_>,
    a: (usize, &mut PageBuf),
    p: TargetP<'_>,
    q: &PageBuf,
    range: ByteRange,
) -> Result {
    check(data, range)?;
    p.check(range)?;
    range.check(a.1)?;
    range.check(q)?;
    if missing(data) != (Some(a.0), Some(a.0), 1) {
        return Err(EINVAL);
    }
    for (pos, len) in range.pages() {
        let mut ptrs = Pointers::new(data, pos)?;
        ptrs.set(a.0, address(a.1, pos)?)?;
        ptrs.set_parity(p.at(pos)?, address(q, pos)?)?;
        // SAFETY: All `disks()` pointers are valid for `len` bytes and aligned as in
        // `gen_syndrome()`; `len` is at most a page. Only `a` and P are written to, which are
        // borrowed exclusively, or P is a scratch page: `a` is computed from Q and the other data.
        // `check()` has checked the context.
        unsafe { sys::raid6_recov_datap(ptrs.disks(), len, a.0 as c_int, ptrs.as_mut_ptr()) };
    }
    Ok(())
}

/// The first and the last missing column, and how many are missing.
fn missing(data: &Data<'_>) -> (Option<usize>, Option<usize>, usize) {
    let count = data.iter().filter(|column| column.is_none()).count();
    (
        data.iter().position(Option::is_none),
        data.iter().rposition(Option::is_none),
        count,
    )
}

/// Tests what all functions ask for.
fn check(data: &Data<'_>, range: ByteRange) -> Result {
    if !(2..=MAX_DATA).contains(&data.len()) {
        return Err(EINVAL);
    }
    for buf in data.iter().flatten() {
        range.check(buf)?;
    }
    check_context()
}

/// The address of byte `pos` of a buffer.
fn address(buf: &PageBuf, pos: usize) -> Result<*mut c_void> {
    Ok(buf.run(pos).ok_or(ERANGE)?.0.cast())
}

/// The library's argument: a pointer for each data column, then those of P and Q.
struct Pointers {
    ptrs: [*mut c_void; MAX_COLUMNS],
    data: usize,
}

impl Pointers {
    /// Byte `pos` of each data column; null where one is missing.
    fn new(data: &Data<'_>, pos: usize) -> Result<Self> {
        let mut all = Self {
            ptrs: [core::ptr::null_mut(); MAX_COLUMNS],
            data: data.len(),
        };
        for (place, buf) in all.ptrs.iter_mut().zip(data) {
            if let Some(buf) = buf {
                *place = address(buf, pos)?;
            }
        }
        Ok(all)
    }

    fn set(&mut self, column: usize, ptr: *mut c_void) -> Result {
        *self.ptrs.get_mut(column).ok_or(EINVAL)? = ptr;
        Ok(())
    }

    fn set_parity(&mut self, p: *mut c_void, q: *mut c_void) -> Result {
        self.set(self.data, p)?;
        self.set(self.data + 1, q)
    }

    /// The number of columns.
    fn disks(&self) -> c_int {
        // At most `MAX_COLUMNS`.
        self.data as c_int + 2
    }

    fn as_mut_ptr(&mut self) -> *mut *mut c_void {
        self.ptrs.as_mut_ptr()
    }
}
