// SPDX-License-Identifier: GPL-2.0

//! Reads that tell where they failed.
//!
//! A bio has one status for all of its data. A driver that knows where a request failed completes
//! the part before that, and `blk_update_request()` ends the bios of that part well. So a read that
//! is sent as one bio a page, to be merged into one request on the way, shows how far it came.
//! [`Blocks`] is the memory for that, allocated beforehand.
//!
//! C headers: [`include/linux/bio.h`](srctree/include/linux/bio.h),
//! [`include/linux/blk_plug.h`](srctree/include/linux/blk_plug.h)

use core::{
    ffi::c_void,
    ptr, //
};
use kernel::{
    bindings,
    page::{
        Page,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    },
    types::Opaque, //
};

use super::{
    page::SECTOR_SIZE,
    status::Status,
    sys, //
};

/// The largest number of pages of one such read: 64 KiB with pages of 4 KiB.
pub(super) const MAX_BLOCKS: usize = 16;

/// One page's part of a read.
struct Block {
    /// Initialised from `prepare` to its end; `bi_status` is valid for as long as `used` has it.
    bio: Opaque<bindings::bio>,
    vec: Opaque<bindings::bio_vec>,
}

/// Memory for the bios of a read of up to 16 pages that is sent page by page; about 2.5 KiB.
///
/// # Invariants
///
/// The bios of the first `used` blocks were initialised, and those that were submitted and have
/// ended hold their status.
pub(crate) struct Blocks {
    blocks: [Block; MAX_BLOCKS],
    used: usize,
    /// Bios that have not ended.
    pending: Atomic<u32>,
    /// Called with `owner` when the last bio has ended.
    end: Option<unsafe fn(*mut c_void)>,
    owner: *mut c_void,
}

// SAFETY: The bios belong to the block layer while they are in flight, which does not care about
// threads, and so does `end`, which is called by whoever ends the last one. Idle, they are memory.
unsafe impl Send for Blocks {}

/// What the bios of a read have in common.
pub(super) struct Template {
    /// The device.
    pub(super) bdev: *mut bindings::block_device,
    /// Operation and flags.
    pub(super) opf: bindings::blk_opf_t,
    /// First sector.
    pub(super) sector: u64,
    /// Device number and first sector of what it is for; see `block_bio_remap`.
    pub(super) origin: Option<(u32, u64)>,
}

impl Blocks {
    /// Allocates memory for one read. Task context.
    ///
    /// # Errors
    ///
    /// [`ENOMEM`].
    pub(crate) fn new() -> Result<KBox<Self>> {
        let mut new = KBox::<Self>::new_uninit(GFP_KERNEL)?;
        let this = new.as_mut_ptr();
        // SAFETY: `this` is valid for writes. The blocks need no initialisation, and all other
        // fields get it here. INVARIANT: No block is used.
        unsafe {
            (&raw mut (*this).used).write(0);
            (&raw mut (*this).pending).write(Atomic::new(0));
            (&raw mut (*this).end).write(None);
            (&raw mut (*this).owner).write(ptr::null_mut());
            Ok(new.assume_init())
        }
    }

    /// Whether a read of `len` bytes to `off` of a buffer can be sent page by page, and is more
    /// than one of them.
    pub(super) fn fit(off: usize, len: usize) -> bool {
        (off | len) % PAGE_SIZE == 0 && (2..=MAX_BLOCKS).contains(&(len / PAGE_SIZE))
    }

    /// Forgets the last read.
    pub(super) fn reset(&mut self) {
        // INVARIANT: No block is used.
        self.used = 0;
    }

    /// Adds a bio that reads into `page`.
    ///
    /// # Errors
    ///
    /// [`E2BIG`] when there are 16.
    ///
    /// # Safety
    ///
    /// What was submitted of this has ended. `template.bdev` is valid, and stays so, as the page
    /// does, until all bios have ended.
    pub(super) unsafe fn add(&mut self, page: &Page, template: &Template) -> Result {
        let index = self.used;
        let block = self.blocks.get(index).ok_or(E2BIG)?;
        let (bio, vec) = (block.bio.get(), block.vec.get());
        let done = (index * (PAGE_SIZE / SECTOR_SIZE)) as u64;
        // SAFETY: `bio` and `vec` are valid for writes and in use nowhere, as the caller says. They
        // stay in place until the bio has ended: they are in a box, and whoever submits them does
        // not free that before. The segment has room for one page.
        unsafe {
            bindings::bio_init(bio, template.bdev, vec, 1, template.opf);
            bindings::__bio_add_page(bio, page.as_ptr(), PAGE_SIZE as u32, 0);
            sys::eraid_bio_root_cgroup(bio);
            (*bio).bi_iter.bi_sector = template.sector + done;
            (*bio).bi_end_io = Some(Self::end_io);
            if let Some((dev, sector)) = template.origin {
                sys::eraid_trace_bio_remap(bio, dev, sector + done);
            }
        }
        // INVARIANT: This one was initialised above.
        self.used = index + 1;
        Ok(())
    }

    /// Hands all bios to their device, and calls `end` with `owner` when the last one has ended:
    /// in any context, also before this returns.
    ///
    /// Task context, with a plug; may sleep.
    ///
    /// # Safety
    ///
    /// `this` has at least one bio that was added and not submitted, and is valid until `end` is
    /// called, which may be called from any thread and which then owns it.
    pub(super) unsafe fn submit(this: *mut Self, owner: *mut c_void, end: unsafe fn(*mut c_void)) {
        // SAFETY: No bio was submitted, so nothing else uses `this` yet. CAST: At most 16.
        let used = unsafe {
            (*this).owner = owner;
            (*this).end = Some(end);
            (*this).pending.store((*this).used as u32, Relaxed);
            (*this).used
        };
        // SAFETY: As above.
        let first = unsafe { &raw const (*this).blocks }.cast::<Block>();
        for index in 0..used {
            // SAFETY: There are `used` blocks. As long as a bio is left to submit not all have
            // ended, so `this` exists; there are no references to the bios in flight.
            unsafe {
                let bio = Opaque::cast_into(&raw const (*first.add(index)).bio);
                (*bio).bi_private = this.cast();
                // `bio` is complete. With the last one `this` may be gone; nothing is touched
                // afterwards.
                bindings::submit_bio_noacct(bio);
            }
        }
    }

    /// The end of one bio.
    ///
    /// # Safety
    ///
    /// To be called by the block layer only, once for each bio that [`Self::submit`] submitted.
    unsafe extern "C" fn end_io(bio: *mut bindings::bio) {
        // SAFETY: The block layer is done with the bio, which keeps its status. `submit()` put a
        // pointer there that is valid until all bios have ended, which this one has not before it
        // is counted.
        let (last, end, owner) = unsafe {
            let this = (*bio).bi_private.cast::<Self>().cast_const();
            bindings::bio_uninit(bio);
            let (end, owner) = ((*this).end, (*this).owner);
            // Whoever is last sees what all others have written: statuses and data.
            ((*this).pending.fetch_sub(1, Full) == 1, end, owner)
        };
        if let (true, Some(end)) = (last, end) {
            // SAFETY: All bios have ended; this is the one call.
            unsafe { end(owner) };
        }
    }

    fn statuses(&self) -> impl Iterator<Item = Status> + '_ {
        self.blocks.iter().take(self.used).map(|block| {
            // SAFETY: By the type invariant the bio was initialised and holds its status; it is not
            // in flight while there is a reference to `self`.
            Status::from_raw(unsafe { (*block.bio.get()).bi_status })
        })
    }

    /// The result of the whole read: that of the first page that failed, if one did.
    pub(super) fn status(&self) -> Status {
        self.statuses()
            .find(|status| !status.is_ok())
            .unwrap_or(Status::OK)
    }

    /// How many bytes are good before the first page that failed, or in all; `None` if the last
    /// read was not sent page by page.
    pub(super) fn good_len(&self) -> Option<usize> {
        let pages = self.statuses().take_while(|status| status.is_ok()).count();
        (self.used > 0).then_some(pages * PAGE_SIZE)
    }
}
