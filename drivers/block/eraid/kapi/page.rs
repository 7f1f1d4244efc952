// SPDX-License-Identifier: GPL-2.0

//! Data buffers made of single pages, and a pool of such pages.
//!
//! A [`PageBuf`] is what commands read into and write from, and what parity is computed over. The
//! I/O path must not allocate, so its buffers are filled from a [`PagePool`] that was filled when
//! the array was assembled.
//!
//! C header: [`include/linux/mm.h`](srctree/include/linux/mm.h)

use kernel::{
    error::code::*,
    new_spinlock_irq,
    page::{
        Page,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::SpinLockIrq, //
};

use super::sys;

/// The unit of positions on block devices, in bytes.
pub(crate) const SECTOR_SIZE: usize = 512;

/// The number of pages that `len` bytes starting at a page boundary touch.
pub(crate) const fn pages_for(len: usize) -> usize {
    len.div_ceil(PAGE_SIZE)
}

/// Bytes from `pos` to the end of its page.
pub(super) const fn rest_of_page(pos: usize) -> usize {
    PAGE_SIZE - pos % PAGE_SIZE
}

/// A buffer of whole pages, addressed by byte offset as if they were contiguous.
///
/// It can hold a number of pages that is fixed when it is made, and never allocates after that.
/// All methods but the constructors may be called from any context, including hard interrupts.
///
/// # Invariants
///
/// All bytes of `pages` are initialised, and nothing but this object accesses them.
pub(crate) struct PageBuf {
    pages: KVec<Page>,
}

impl PageBuf {
    /// Makes an empty buffer with room for `capacity` pages.
    pub(crate) fn new(capacity: usize) -> Result<Self> {
        // INVARIANT: There are no pages yet.
        Ok(Self {
            pages: KVec::with_capacity(capacity, GFP_KERNEL)?,
        })
    }

    /// Makes a buffer of `pages` zeroed pages, with no room for more.
    pub(crate) fn zeroed(pages: usize) -> Result<Self> {
        let mut buf = Self::new(pages)?;

        for _ in 0..pages {
            // INVARIANT: The new page is zeroed, and `buf` becomes its only owner.
            buf.pages
                .push(Page::alloc_page(GFP_KERNEL | __GFP_ZERO)?, GFP_KERNEL)?;
        }
        Ok(buf)
    }

    /// The number of pages in the buffer.
    pub(crate) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// The number of pages that the buffer can hold.
    pub(crate) fn capacity(&self) -> usize {
        self.pages.capacity()
    }

    /// The number of bytes in the buffer.
    pub(crate) fn len_bytes(&self) -> usize {
        self.pages.len() * PAGE_SIZE
    }

    /// Writes zeros to `len` bytes at `off`.
    ///
    /// # Errors
    ///
    /// [`ERANGE`] if the range is not inside the buffer; then nothing is written.
    pub(crate) fn zero(&mut self, off: usize, len: usize) -> Result {
        self.for_each_run(off, len, |ptr, n| {
            // SAFETY: `for_each_run()` gives runs inside the buffer's pages. We have exclusive
            // access to them by the type invariant and `&mut self`.
            unsafe { ptr.write_bytes(0, n) };
        })
    }

    /// Copies the bytes at `off` to `out`.
    ///
    /// # Errors
    ///
    /// [`ERANGE`] if the range is not inside the buffer; then nothing is copied.
    pub(crate) fn read(&self, off: usize, out: &mut [u8]) -> Result {
        let mut dst = out.as_mut_ptr();

        self.for_each_run(off, out.len(), |ptr, n| {
            // SAFETY: `for_each_run()` gives runs inside the buffer's pages, which are initialised
            // and not written to while we hold `&self`. The runs add up to `out.len()` bytes, so
            // `dst` stays inside of `out`, which does not overlap with our pages.
            unsafe { ptr.copy_to_nonoverlapping(dst, n) };
            // SAFETY: As above, the result is at most one past the end of `out`.
            dst = unsafe { dst.add(n) };
        })
    }

    /// Copies `data` to the bytes at `off`.
    ///
    /// # Errors
    ///
    /// [`ERANGE`] if the range is not inside the buffer; then nothing is copied.
    pub(crate) fn write(&mut self, off: usize, data: &[u8]) -> Result {
        let mut src = data.as_ptr();

        self.for_each_run(off, data.len(), |ptr, n| {
            // SAFETY: `for_each_run()` gives runs inside the buffer's pages, to which we have
            // exclusive access. The runs add up to `data.len()` bytes, so `src` stays inside of
            // `data`, which does not overlap with our pages.
            unsafe { ptr.copy_from_nonoverlapping(src, n) };
            // SAFETY: As above, the result is at most one past the end of `data`.
            src = unsafe { src.add(n) };
        })
    }

    /// Copies `len` bytes at `from_off` of `from` to `off` of this buffer.
    ///
    /// # Errors
    ///
    /// [`ERANGE`] if a range is not inside its buffer; then nothing is copied.
    pub(crate) fn copy_from_buf(
        &mut self,
        off: usize,
        from: &PageBuf,
        from_off: usize,
        len: usize,
    ) -> Result {
        self.check(off, len)?;
        from.check(from_off, len)?;

        let mut done = 0;
        while done < len {
            let (dst, dst_len) = self.run(off + done).ok_or(ERANGE)?;
            let (src, src_len) = from.run(from_off + done).ok_or(ERANGE)?;
            let n = dst_len.min(src_len).min(len - done);
            // SAFETY: Both runs are at least `n` bytes long and inside their buffers' pages.
            // Different buffers have different pages, `self` is borrowed exclusively, and the
            // source is initialised and not written to while we hold `from`.
            unsafe { dst.copy_from_nonoverlapping(src, n) };
            done += n;
        }
        Ok(())
    }

    /// Tests that the range is inside the buffer.
    pub(super) fn check(&self, off: usize, len: usize) -> Result {
        let end = off.checked_add(len).ok_or(ERANGE)?;

        if end > self.len_bytes() {
            return Err(ERANGE);
        }
        Ok(())
    }

    /// The address of byte `pos` and the number of bytes from there to the end of its page.
    ///
    /// The bytes may be read while the buffer is borrowed, and written to while it is borrowed
    /// exclusively.
    pub(super) fn run(&self, pos: usize) -> Option<(*mut u8, usize)> {
        let page = self.pages.get(pos / PAGE_SIZE)?;
        // SAFETY: `page` is a valid page, and all pages are in the linear mapping on the 64-bit
        // architectures that this driver is limited to.
        let addr = unsafe { sys::eraid_page_address(page.as_ptr()) };

        Some((
            addr.cast::<u8>().wrapping_add(pos % PAGE_SIZE),
            rest_of_page(pos),
        ))
    }

    /// Calls `f` for each piece of the range that is contiguous in memory, in order.
    fn for_each_run(&self, off: usize, len: usize, mut f: impl FnMut(*mut u8, usize)) -> Result {
        self.check(off, len)?;

        let mut done = 0;
        while done < len {
            let (ptr, room) = self.run(off + done).ok_or(ERANGE)?;
            let n = room.min(len - done);
            f(ptr, n);
            done += n;
        }
        Ok(())
    }

    /// The pages of the range, as `(page, offset in the page, length)`, in order.
    pub(super) fn for_each_page(
        &self,
        off: usize,
        len: usize,
        mut f: impl FnMut(&Page, usize, usize) -> Result,
    ) -> Result {
        self.check(off, len)?;

        let mut done = 0;
        while done < len {
            let pos = off + done;
            let page = self.pages.get(pos / PAGE_SIZE).ok_or(ERANGE)?;
            let n = rest_of_page(pos).min(len - done);
            f(page, pos % PAGE_SIZE, n)?;
            done += n;
        }
        Ok(())
    }

    /// Adds a page whose bytes are initialised. Without room the page is freed.
    fn push(&mut self, page: Page) {
        let _ = self.pages.push_within_capacity(page);
    }
}

/// Takes up to `n` pages from the end of a list.
fn move_last<A: kernel::alloc::Allocator>(
    from: &mut kernel::alloc::Vec<Page, A>,
    n: usize,
    mut to: impl FnMut(Page),
) {
    for _ in 0..n {
        match from.pop() {
            Some(page) => to(page),
            None => return,
        }
    }
}

/// A fixed number of pages for buffers of the I/O path.
///
/// Nothing is allocated after construction. All methods but the constructor may be called from any
/// context, including hard interrupts.
///
/// # Invariants
///
/// All bytes of the pages in `free` are initialised, and nothing else accesses them.
#[pin_data]
pub(crate) struct PagePool {
    #[pin]
    free: SpinLockIrq<KVVec<Page>>,
}

impl PagePool {
    /// Makes a pool of `pages` pages.
    ///
    /// # Errors
    ///
    /// [`ENOMEM`].
    pub(crate) fn new(pages: usize) -> impl PinInit<Self, Error> {
        pin_init::pin_init_scope(move || {
            let mut free = KVVec::with_capacity(pages, GFP_KERNEL)?;
            for _ in 0..pages {
                // Zeroed, so that no buffer ever shows what the memory held before.
                free.push(Page::alloc_page(GFP_KERNEL | __GFP_ZERO)?, GFP_KERNEL)?;
            }
            // INVARIANT: All pages are zeroed and owned by the list alone.
            Ok(try_pin_init!(Self {
                free <- new_spinlock_irq!(free, "eraid_page_pool"),
            }))
        })
    }

    /// The number of pages in the pool now.
    pub(crate) fn available(&self) -> usize {
        self.free.lock().len()
    }

    /// Adds `pages` pages to `buf`, or none if there are not enough or `buf` has too little room.
    ///
    /// The pages hold what their last user left in them.
    #[must_use]
    pub(crate) fn take(&self, pages: usize, buf: &mut PageBuf) -> bool {
        if buf.capacity() - buf.pages() < pages {
            return false;
        }
        let mut free = self.free.lock();
        if free.len() < pages {
            return false;
        }
        // INVARIANT: The pages change their owner only.
        move_last(&mut free, pages, |page| buf.push(page));
        true
    }

    /// Gives all pages of `buf` to the pool.
    ///
    /// Pages beyond the number that the pool was made for are freed.
    pub(crate) fn give(&self, buf: &mut PageBuf) {
        let mut free = self.free.lock();

        // INVARIANT: The pages change their owner only.
        let pages = buf.pages();
        move_last(&mut buf.pages, pages, |page| {
            let _ = free.push_within_capacity(page);
        });
    }
}
