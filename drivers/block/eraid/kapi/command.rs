// SPDX-License-Identifier: GPL-2.0

//! Commands to members.
//!
//! A [`Command`] is a bio with everything it needs, allocated beforehand, so that the I/O path
//! does not allocate. It owns the memory that it transfers, or a share of the request whose memory
//! that is, and a reference to its device while it is in flight; so whatever becomes of the request
//! that it is part of, a command that completes late finds what it needs.
//!
//! C header: [`include/linux/bio.h`](srctree/include/linux/bio.h)

use core::{
    ffi::c_void,
    ops::BitOr,
    ptr, //
};
use kernel::{
    bindings,
    error::code::*,
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

use super::{
    blocks::{
        Blocks,
        Template, //
    },
    device::MemberDevice,
    guards::with_own_plug,
    page::{
        pages_for,
        PageBuf,
        SECTOR_SIZE, //
    },
    request::Request,
    status::Status,
    sys, //
};

/// The largest number of pages of one command, as for bios from user space (`UIO_MAXIOV`).
const MAX_PAGES: usize = 1024;

/// What a command does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CommandOp {
    /// Reads from the device into the command's buffer.
    Read,
    /// Writes the command's buffer to the device.
    Write,
    /// Makes everything durable that was written and acknowledged before.
    Flush,
    /// Tells the device that a range is not needed any more; transfers nothing.
    Discard,
}

/// Properties of a command. These are the only ones that a request may hand down to a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CommandFlags(bindings::blk_opf_t);

impl CommandFlags {
    /// No property.
    pub(crate) const NONE: Self = Self(0);
    /// A write is durable when it completes.
    pub(crate) const FUA: Self = Self(sys::ERAID_CONST_REQ_FUA);
    /// What was written and acknowledged before is durable before this write starts.
    pub(crate) const PREFLUSH: Self = Self(sys::ERAID_CONST_REQ_PREFLUSH);
    /// Someone waits for it.
    pub(crate) const SYNC: Self = Self(sys::ERAID_CONST_REQ_SYNC);
    /// It is metadata of a file system or array.
    pub(crate) const META: Self = Self(sys::ERAID_CONST_REQ_META);
    /// It goes before others.
    pub(crate) const PRIO: Self = Self(sys::ERAID_CONST_REQ_PRIO);
    /// More follows soon.
    pub(crate) const IDLE: Self = Self(sys::ERAID_CONST_REQ_IDLE);
    /// It is readahead and may fail at any time.
    pub(crate) const RAHEAD: Self = Self(sys::ERAID_CONST_REQ_RAHEAD);
    /// It is background work.
    pub(crate) const BACKGROUND: Self = Self(sys::ERAID_CONST_REQ_BACKGROUND);

    /// The device is to fail rather than to retry, and nobody repeats it on another path of the
    /// device: whoever asks has other ways to the data.
    pub(crate) const FAILFAST: Self =
        Self(sys::ERAID_CONST_REQ_FAILFAST_DEV | sys::ERAID_CONST_REQ_FAILFAST_TRANSPORT);
    /// It is not merged with others: they would fail with it.
    pub(crate) const NOMERGE: Self = Self(sys::ERAID_CONST_REQ_NOMERGE);

    /// It ends with [`Status::AGAIN`] instead of waiting for anything before the device has it, or
    /// with [`Status::NOTSUPP`] if the device cannot promise that; see
    /// [`MemberDevice::nowait_sectors`].
    pub(crate) const NOWAIT: Self = Self(sys::ERAID_CONST_REQ_NOWAIT);

    /// The flags of a request that its commands take over.
    const FROM_REQUEST: Self = Self(
        Self::FUA.0
            | Self::SYNC.0
            | Self::META.0
            | Self::PRIO.0
            | Self::IDLE.0
            | Self::RAHEAD.0
            | Self::BACKGROUND.0,
    );

    /// Whether all flags of `other` are set.
    pub(crate) fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// All flags that are set in one of the two.
    pub(crate) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What a command has that does the work of two: it is as urgent as the more urgent one.
    pub(crate) const fn joined(self, other: Self) -> Self {
        let patient = Self::BACKGROUND.0 | Self::IDLE.0 | Self::RAHEAD.0;
        Self((self.0 | other.0) & !patient | self.0 & other.0)
    }

    /// The flags that are not set in `other`.
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Keeps of a request's flags what may be handed to other devices.
    ///
    /// Flags such as `REQ_ALLOC_CACHE` or `REQ_NOWAIT` are about the request itself: a bio that
    /// has them without being made for it corrupts memory, or fails instead of waiting.
    pub(super) fn from_request(opf: bindings::blk_opf_t) -> Self {
        Self(opf & Self::FROM_REQUEST.0)
    }
}

impl BitOr for CommandFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

/// The place in an array that a command is for, for the `block_bio_remap` trace event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    /// The device number of the array's disk.
    pub(crate) dev: u32,
    /// The 512-byte sector of the disk.
    pub(crate) sector: u64,
}

/// The description of one command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CommandIo {
    /// What to do. A flush has no use for `sector`, `buf_off` and `len`.
    pub(crate) op: CommandOp,
    /// How to do it.
    pub(crate) flags: CommandFlags,
    /// The first 512-byte sector on the device.
    pub(crate) sector: u64,
    /// Where in the command's buffer the data is or goes, in bytes; whole sectors.
    pub(crate) buf_off: usize,
    /// The length in bytes; whole logical blocks of the device, less than 4 GiB.
    pub(crate) len: usize,
    /// What the command is for.
    pub(crate) origin: Option<Origin>,
}

impl CommandIo {
    /// The operation and flags in the form of the block layer.
    fn opf(&self) -> bindings::blk_opf_t {
        match self.op {
            CommandOp::Read => {
                bindings::req_op_REQ_OP_READ | self.flags.without(CommandFlags::FUA).0
            }
            CommandOp::Write => bindings::req_op_REQ_OP_WRITE | self.flags.0,
            // As `blkdev_issue_flush()` does it.
            CommandOp::Flush => bindings::req_op_REQ_OP_WRITE | sys::ERAID_CONST_REQ_PREFLUSH,
            CommandOp::Discard => bindings::req_op_REQ_OP_DISCARD,
        }
    }

    /// The part of the buffer that is transferred.
    fn buf_range(&self) -> (usize, usize) {
        match self.op {
            CommandOp::Read | CommandOp::Write => (self.buf_off, self.len),
            CommandOp::Flush | CommandOp::Discard => (0, 0),
        }
    }

    /// Whether the memory of `loan`, or else `buf` with `vecs` segments, can be used for this.
    fn is_valid(&self, loan: Option<&Loan>, buf: &PageBuf, vecs: usize) -> bool {
        let (off, len) = self.buf_range();

        if let Some(loan) = loan {
            return self.op == CommandOp::Read && len == loan.len;
        }
        match self.op {
            CommandOp::Flush => true,
            CommandOp::Discard => self.len > 0 && u32::try_from(self.len).is_ok(),
            CommandOp::Read | CommandOp::Write => {
                len > 0
                    && (off | len) % SECTOR_SIZE == 0
                    && buf.check(off, len).is_ok()
                    && pages_for(off % PAGE_SIZE + len) <= vecs
            }
        }
    }
}

/// What the user of a [`Command`] keeps in it.
pub(crate) trait CommandContext: Sized + Send + 'static {
    /// Takes a command back that was submitted.
    ///
    /// Called exactly once for each [`Command::submit`], from any context: a hard interrupt, with
    /// locks of others held, or on the submitter's stack before `submit` returns. It must not
    /// sleep, and must not submit: that belongs into a work item.
    fn done(cmd: KBox<Command<Self>>, status: Status);
}

/// Memory of a request that a command transfers to.
///
/// # Invariants
///
/// The first `vecs` segments of the command are `len` bytes of the data of `request`, which is a
/// read.
struct Loan {
    request: Request,
    vecs: u16,
    len: usize,
}

/// One command to a member device.
///
/// Idle commands are ordinary owned values. [`Command::submit`] gives ownership to the block layer,
/// [`CommandContext::done`] gives it back.
pub(crate) struct Command<C: CommandContext> {
    /// Initialised from `submit` to the end of the bio, garbage otherwise.
    bio: Opaque<bindings::bio>,
    /// The bio's segments. While the command is idle only those of a loan have a meaning.
    vecs: KVec<bindings::bio_vec>,
    /// The device, while the command is in flight.
    dev: Option<Arc<MemberDevice>>,
    /// The memory to transfer, unless there is a loan.
    pub(crate) buf: PageBuf,
    /// Memory of a request, to be used instead.
    loan: Option<Loan>,
    /// The bios of a read that is sent page by page.
    blocks: Option<KBox<Blocks>>,
    /// The user's part.
    pub(crate) ctx: C,
}

// SAFETY: `bio` and `vecs` contain pointers that are used only while the command is in flight, by
// the block layer, which does not care about threads. All other parts are `Send`.
unsafe impl<C: CommandContext> Send for Command<C> {}

impl<C: CommandContext> Command<C> {
    /// Makes a command for up to `max_pages` pages, with an empty buffer of that capacity.
    ///
    /// Task context.
    ///
    /// # Errors
    ///
    /// [`ENOMEM`]; [`EINVAL`] for more than 1024 pages.
    pub(crate) fn new(max_pages: usize, ctx: C) -> Result<KBox<Self>> {
        if max_pages > MAX_PAGES {
            return Err(EINVAL);
        }
        Ok(KBox::new(
            Self {
                bio: Opaque::uninit(),
                vecs: KVec::zeroed(max_pages, GFP_KERNEL)?,
                dev: None,
                buf: PageBuf::new(max_pages)?,
                loan: None,
                blocks: None,
                ctx,
            },
            GFP_KERNEL,
        )?)
    }

    /// Makes the command read into `len` bytes of `request` at `off`, behind what it borrowed
    /// already, instead of into its own buffer.
    ///
    /// It holds a share of the request until [`Self::end_loan`]: the request does not end before,
    /// so the device never writes to memory that the request's owner has back. Any context.
    ///
    /// # Errors
    ///
    /// Nothing more is borrowed then. [`E2BIG`] if the memory has more segments than the command
    /// can have, or some that are no whole blocks, which a device's queue might not be able to split;
    /// [`ERANGE`] if the range is not inside the request; [`EINVAL`] if the request is not a read, or
    /// not the one that the command borrowed from already.
    pub(crate) fn borrow_from(&mut self, request: &Request, off: usize, len: usize) -> Result {
        request.check_read()?;
        let old = match &self.loan {
            Some(loan) if !loan.request.is_same(request) => return Err(EINVAL),
            Some(loan) => (loan.vecs, loan.len),
            None => (0, 0),
        };
        let (mut used, block) = (old.0, request.block_size());
        request.for_each_run(off, len, |addr, run| {
            if run % block != 0 {
                return Err(E2BIG);
            }
            let vec = self.vecs.get_mut(usize::from(used)).ok_or(E2BIG)?;
            // SAFETY: `vec` is valid for writes, and `addr` is memory of a request, which the
            // linear mapping has. CAST: The length of a request is a `u32`.
            unsafe { sys::eraid_bvec_set_virt(vec, addr.cast(), run as u32) };
            used += 1;
            Ok(())
        })?;
        // INVARIANT: The old segments are as they were, and the new ones were set above.
        self.loan = Some(Loan {
            request: request.clone(),
            vecs: used,
            len: old.1 + len,
        });
        Ok(())
    }

    /// Gives back what was borrowed, if anything was. Any context, without locks: the request may
    /// end.
    pub(crate) fn end_loan(&mut self) {
        self.loan = None;
    }

    /// Hands the command to `dev`.
    ///
    /// Task context, without spinlocks: unless it is a [`CommandFlags::NOWAIT`] one, it may sleep
    /// until the device takes more commands. A task that is in `queue_rq` or itself in the middle
    /// of a submission only collects the command, and the device gets it when that returns.
    ///
    /// A command that does not fit its buffer ends with [`Status::INVAL`].
    pub(crate) fn submit(mut cmd: KBox<Self>, dev: Arc<MemberDevice>, io: CommandIo) {
        if !io.is_valid(cmd.loan.as_ref(), &cmd.buf, cmd.vecs.len()) {
            C::done(cmd, Status::INVAL);
            return;
        }
        let bdev = dev.bdev();
        let bio = cmd.bio.get();
        let vecs = cmd.vecs.as_mut_ptr();
        // CAST: At most `MAX_PAGES`.
        let nr_vecs = cmd.vecs.len() as u16;
        cmd.dev = Some(dev);

        // SAFETY: `bio` is valid for writes and not in use, `bdev` is kept valid by `cmd.dev`, and
        // `vecs` has room for `nr_vecs` segments. They stay in place until the bio is done.
        unsafe {
            bindings::bio_init(bio, ptr::null_mut(), vecs, nr_vecs, io.opf());
            (*bio).bi_bdev = bdev;
        }
        // Whoever happens to send it does not pay: users are charged, and made to wait, for their
        // requests to the array.
        // SAFETY: `bio` was initialised above and has a device.
        unsafe { sys::eraid_bio_root_cgroup(bio) };
        if let Some(loan) = &cmd.loan {
            // SAFETY: `bio` was initialised above; by the invariant of `Loan` so many of its
            // segments are valid, and stay so while the loan does. CAST: The length of a request
            // is a `u32`.
            unsafe {
                (*bio).bi_vcnt = loan.vecs;
                (*bio).bi_iter.bi_size = loan.len as u32;
            }
        } else if Self::add_pages(bio, &cmd.buf, &io).is_err() {
            // SAFETY: `bio` was initialised above and is not in use.
            unsafe { bindings::bio_uninit(bio) };
            cmd.dev = None;
            C::done(cmd, Status::INVAL);
            return;
        }

        let cmd = KBox::into_raw(cmd);
        // SAFETY: `cmd` is what was boxed a line above, and nothing else uses it yet.
        let bio = unsafe { (*cmd).bio.get() };
        // SAFETY: `bio` was initialised above. `end_io` gets back the box that we just gave up.
        unsafe {
            (*bio).bi_private = cmd.cast();
            (*bio).bi_end_io = Some(Self::end_io);
        }
        if io.op != CommandOp::Flush {
            // SAFETY: `bio` was initialised above.
            unsafe { (*bio).bi_iter.bi_sector = io.sector };
        }
        if io.op == CommandOp::Discard {
            // SAFETY: As above. CAST: `is_valid()` has checked it.
            unsafe { (*bio).bi_iter.bi_size = io.len as u32 };
        }
        if let Some(origin) = io.origin {
            // SAFETY: `bio` is complete.
            unsafe { sys::eraid_trace_bio_remap(bio, origin.dev, origin.sector) };
        }
        // SAFETY: `bio` is complete, with an end function, and its memory stays in place until that
        // is called. It may be called before this returns, so nothing is touched afterwards.
        unsafe { bindings::submit_bio_noacct(bio) };
    }

    /// Whether [`Self::submit_in_blocks`] would send `io` page by page.
    pub(crate) fn has_blocks(&self, io: &CommandIo) -> bool {
        io.op == CommandOp::Read && self.loan.is_none() && Blocks::fit(io.buf_off, io.len)
    }

    /// Hands a read to `dev` page by page, so that [`Self::good_len`] knows afterwards how far it
    /// came; or as [`Self::submit`] does, if [`Self::has_blocks`] does not hold.
    ///
    /// The device gets one command, of which its driver may tell where it failed, if it merges; see
    /// [`MemberDevice::merges`]. [`CommandFlags::NOMERGE`] has no effect. The command ends once, with
    /// the status of the first page that failed, if one did. Contexts are those of [`Self::submit`];
    /// in the middle of another submission nothing is merged. Not for [`CommandFlags::NOWAIT`].
    pub(crate) fn submit_in_blocks(
        mut cmd: KBox<Self>,
        dev: Arc<MemberDevice>,
        io: CommandIo,
        mut blocks: KBox<Blocks>,
    ) {
        blocks.reset();
        if !cmd.has_blocks(&io) {
            cmd.blocks = Some(blocks);
            Self::submit(cmd, dev, io);
            return;
        }
        if cmd.buf.check(io.buf_off, io.len).is_err() {
            cmd.blocks = Some(blocks);
            C::done(cmd, Status::INVAL);
            return;
        }
        let template = Template {
            bdev: dev.bdev(),
            opf: io.opf() & !CommandFlags::NOMERGE.0,
            sector: io.sector,
            origin: io.origin.map(|origin| (origin.dev, origin.sector)),
        };
        cmd.dev = Some(dev);
        let added = cmd.buf.for_each_page(io.buf_off, io.len, |page, _, _| {
            // SAFETY: The blocks are owned here, so they are not in flight. The command keeps the
            // device and its pages until the last bio has ended.
            unsafe { blocks.add(page, &template) }
        });
        let this = ptr::from_mut::<Blocks>(&mut blocks);
        cmd.blocks = Some(blocks);
        if added.is_err() {
            // Cannot happen: `has_blocks()` has checked the number of pages.
            cmd.dev = None;
            C::done(cmd, Status::INVAL);
            return;
        }
        let cmd = KBox::into_raw(cmd);
        // SAFETY: The blocks were filled above, and stay where they are, in their box, which belongs
        // to the command until `blocks_ended()` is called.
        with_own_plug(|| unsafe { Blocks::submit(this, cmd.cast(), Self::blocks_ended) });
    }

    /// How many bytes of a read that has ended came for certain, from its start on; `None` if it was
    /// not sent page by page. Any context.
    pub(crate) fn good_len(&self) -> Option<usize> {
        self.blocks.as_ref()?.good_len()
    }

    /// Gives back what [`Self::submit_in_blocks`] got. Any context.
    pub(crate) fn take_blocks(&mut self) -> Option<KBox<Blocks>> {
        self.blocks.take()
    }

    /// The end of all bios that [`Self::submit_in_blocks`] submitted.
    ///
    /// # Safety
    ///
    /// To be called once, with the raw form of the box that it gave up.
    unsafe fn blocks_ended(cmd: *mut c_void) {
        // SAFETY: The caller gives what was a box, which is used nowhere else any more.
        let mut cmd = unsafe { KBox::from_raw(cmd.cast::<Self>()) };
        let status = cmd
            .blocks
            .as_ref()
            .map_or(Status::INVAL, |blocks| blocks.status());
        // First, as in `end_io()`.
        cmd.dev = None;
        C::done(cmd, status);
    }

    /// Adds the part of `buf` that `io` names to an initialised bio.
    fn add_pages(bio: *mut bindings::bio, buf: &PageBuf, io: &CommandIo) -> Result {
        let (off, len) = io.buf_range();

        buf.for_each_page(off, len, |page, off, len| {
            // Not `__bio_add_page()`: pages that happen to be neighbours become one segment, so
            // that devices that take few segments need fewer commands.
            // SAFETY: The caller gives an initialised bio. `page` belongs to the command's buffer
            // and is kept until the bio is done.
            let added =
                unsafe { bindings::bio_add_page(bio, page.as_ptr(), len as u32, off as u32) };
            if added as usize == len {
                Ok(())
            } else {
                Err(EINVAL)
            }
        })
    }

    /// The end of a bio that [`Self::submit`] submitted.
    ///
    /// # Safety
    ///
    /// To be called by the block layer only, once for each bio.
    unsafe extern "C" fn end_io(bio: *mut bindings::bio) {
        // SAFETY: The block layer calls this with a bio that it is done with.
        let status = Status::from_raw(unsafe { (*bio).bi_status });
        // SAFETY: As above; this is the counterpart of `bio_init()`.
        unsafe { bindings::bio_uninit(bio) };
        // SAFETY: `submit()` put the raw form of a box there, which it did not use afterwards.
        let mut cmd = unsafe { KBox::from_raw((*bio).bi_private.cast::<Self>()) };

        // First, so that who waits for its commands and drops its own references knows that the
        // device is on its way to be closed.
        cmd.dev = None;
        C::done(cmd, status);
    }
}
