// SPDX-License-Identifier: GPL-2.0

//! Requests to the array's disk.
//!
//! C header: [`include/linux/blk-mq.h`](srctree/include/linux/blk-mq.h)

use core::{
    ffi::c_void,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    error::code::*,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Refcount, //
    }, //
};

use super::{
    command::CommandFlags,
    page::PageBuf,
    status::Status,
    sys, //
};

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    /// Read data.
    Read,
    /// Write data.
    Write,
    /// Make everything durable that was written and acknowledged before.
    Flush,
    /// The data is not needed any more.
    Discard,
    /// Write zeros.
    WriteZeroes,
    /// Something that the driver did not offer.
    Other,
}

/// What blk-mq keeps for us behind each `struct request`.
///
/// The life of a request: it is made with zero shares. When it is started it gets one, for the
/// driver's `queue_rq`. Each clone of [`Request`] adds one. When the last goes, the request is
/// ended, and the block layer may start it again as another request.
pub(super) struct Pdu {
    /// Number of [`Request`] objects.
    shares: Refcount,
    /// The first error, or `BLK_STS_OK`.
    status: Atomic<i32>,
    /// The bytes that failed, see [`BadRange`].
    bad: Atomic<u64>,
    /// When the request was started, in nanoseconds of the monotonic clock.
    started_ns: Atomic<i64>,
}

impl Pdu {
    /// The data of a request that is not started.
    pub(super) fn new() -> Self {
        Self {
            shares: Refcount::new(0),
            status: Atomic::new(0),
            bad: Atomic::new(BadRange::EMPTY.to_raw()),
            started_ns: Atomic::new(0),
        }
    }

    /// The place behind `rq`.
    pub(super) fn of(rq: *mut bindings::request) -> *mut Self {
        // As `blk_mq_rq_to_pdu()`.
        rq.wrapping_add(1).cast()
    }
}

/// The bytes of a request from the first to the last that failed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct BadRange {
    start: u32,
    end: u32,
}

impl BadRange {
    /// No byte: the neutral element of [`Self::hull`].
    const EMPTY: Self = Self {
        start: u32::MAX,
        end: 0,
    };

    fn from_raw(raw: u64) -> Self {
        Self {
            // CAST: The two halves.
            start: (raw >> 32) as u32,
            end: raw as u32,
        }
    }

    const fn to_raw(self) -> u64 {
        // CAST: Lossless; `From` is not for constants.
        (self.start as u64) << 32 | self.end as u64
    }

    /// The smallest range that contains both.
    fn hull(self, other: Self) -> Self {
        Self {
            start: self.start.min(other.start),
            end: self.end.max(other.end),
        }
    }
}

/// A share of a started request.
///
/// The request exists, with its data, as long as there is a share of it. When the last share is
/// dropped, in whatever context, the request ends: successfully, or with the first error that was
/// given to [`Request::fail`] or [`Request::fail_range`].
///
/// # Invariants
///
/// `rq` is a started request of a [`TagSet`](super::tagset::TagSet), and its [`Pdu`] counts this
/// object.
pub(crate) struct Request {
    pub(super) rq: NonNull<bindings::request>,
}

// SAFETY: Requests may be used and ended by any thread.
unsafe impl Send for Request {}

// SAFETY: The methods read constant fields, use atomics, or copy data, where concurrent accesses
// to the same bytes give any of the values, as everywhere in the block layer.
unsafe impl Sync for Request {}

impl Request {
    /// Starts a request and makes its first share.
    ///
    /// # Safety
    ///
    /// `rq` was handed to the driver by blk-mq, to be started, and comes from a
    /// [`TagSet`](super::tagset::TagSet).
    pub(super) unsafe fn start(rq: NonNull<bindings::request>) -> Self {
        // SAFETY: By the requirements `rq` is ours to start.
        unsafe { bindings::blk_mq_start_request(rq.as_ptr()) };
        // SAFETY: The tag set initialised the place when it made the request.
        let pdu = unsafe { &*Pdu::of(rq.as_ptr()) };

        pdu.status.store(i32::from(Status::OK.as_raw()), Relaxed);
        pdu.bad.store(BadRange::EMPTY.to_raw(), Relaxed);
        // SAFETY: Reading the clock has no requirements.
        let now = unsafe { bindings::ktime_get() };
        pdu.started_ns.store(now, Relaxed);
        // INVARIANT: The request was started above, and the share counted is ours.
        pdu.shares.set(1);
        Self { rq }
    }

    fn pdu(&self) -> &Pdu {
        // SAFETY: By the type invariant the request is one of a tag set, which initialised the
        // place when it made the request, and keeps it while the request is started.
        unsafe { &*Pdu::of(self.rq.as_ptr()) }
    }

    pub(super) fn cmd_flags(&self) -> bindings::blk_opf_t {
        // SAFETY: `rq` is valid by the type invariant; the field is constant while it is started.
        unsafe { (*self.rq.as_ptr()).cmd_flags }
    }

    /// Whether both are shares of one request.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.rq == other.rq
    }

    /// What the request asks for.
    pub(crate) fn op(&self) -> Op {
        match self.cmd_flags() & sys::ERAID_CONST_REQ_OP_MASK {
            bindings::req_op_REQ_OP_READ => Op::Read,
            bindings::req_op_REQ_OP_WRITE => Op::Write,
            bindings::req_op_REQ_OP_FLUSH => Op::Flush,
            bindings::req_op_REQ_OP_DISCARD => Op::Discard,
            bindings::req_op_REQ_OP_WRITE_ZEROES => Op::WriteZeroes,
            _ => Op::Other,
        }
    }

    /// The properties that the request's commands to members take over.
    pub(crate) fn command_flags(&self) -> CommandFlags {
        CommandFlags::from_request(self.cmd_flags())
    }

    /// The first 512-byte sector; 0 for a flush, which has none.
    pub(crate) fn sector(&self) -> u64 {
        if self.op() == Op::Flush {
            return 0;
        }
        // SAFETY: `rq` is valid by the type invariant; the field is constant while it is started.
        unsafe { (*self.rq.as_ptr()).__sector }
    }

    /// The length in bytes; 0 for a flush.
    pub(crate) fn len(&self) -> usize {
        // SAFETY: `rq` is valid by the type invariant; the field is constant while it is started,
        // since requests are always ended as a whole.
        unsafe { (*self.rq.as_ptr()).__data_len as usize }
    }

    /// The logical block size of the disk, in bytes.
    pub(super) fn block_size(&self) -> usize {
        // SAFETY: `rq` is valid by the type invariant, and its queue lives as long as it does.
        unsafe { (*(*self.rq.as_ptr()).q).limits.logical_block_size as usize }
    }

    /// When the request was started, in nanoseconds of the monotonic clock (`ktime_get()`).
    pub(crate) fn started_ns(&self) -> i64 {
        self.pdu().started_ns.load(Relaxed)
    }

    /// Makes the whole request end with an error.
    ///
    /// The first error is kept; [`Status::OK`] does nothing.
    pub(crate) fn fail(&self, status: Status) {
        self.fail_range(0, self.len(), status);
    }

    /// Makes `len` bytes at `off` of the request end with an error.
    ///
    /// A read may have been merged from several; those outside of the range still succeed. All that
    /// is between ranges that fail does, too, and the first error is kept for all. Other requests
    /// fail as a whole. [`Status::OK`] does nothing.
    pub(crate) fn fail_range(&self, off: usize, len: usize, status: Status) {
        if status.is_ok() {
            return;
        }
        let end = off.saturating_add(len).min(self.len());
        let range = BadRange {
            // CAST: At most the length of the request, which is a `u32`.
            start: off.min(end) as u32,
            end: end as u32,
        };

        // Whoever ends the request sees both by the ordering of the share count.
        let pdu = self.pdu();
        let _ = pdu.status.cmpxchg(
            i32::from(Status::OK.as_raw()),
            i32::from(status.as_raw()),
            Relaxed,
        );
        let mut old = pdu.bad.load(Relaxed);
        while let Err(now) =
            pdu.bad
                .cmpxchg(old, BadRange::from_raw(old).hull(range).to_raw(), Relaxed)
        {
            old = now;
        }
    }

    /// Ends the request.
    ///
    /// # Safety
    ///
    /// This is the last share, and the request is not used afterwards.
    unsafe fn end(&self) {
        let rq = self.rq.as_ptr();
        // CAST: Only values of `blk_status_t` are stored.
        let status = self.pdu().status.load(Relaxed) as bindings::blk_status_t;
        let bad = BadRange::from_raw(self.pdu().bad.load(Relaxed));
        let partial = bad.start < bad.end && ((bad.end - bad.start) as usize) < self.len();

        if self.op() != Op::Read || !partial {
            // SAFETY: The request is started by the type invariant, and is ours to end.
            unsafe { bindings::blk_mq_end_request(rq, status) };
            return;
        }
        let ok = Status::OK.as_raw();
        if bad.start > 0 {
            // SAFETY: As above. This ends bytes from the front, with more to come.
            unsafe { bindings::blk_update_request(rq, ok, bad.start) };
        }
        // SAFETY: As above. The result says whether there are bytes left.
        if unsafe { bindings::blk_update_request(rq, status, bad.end - bad.start) } {
            // SAFETY: As above, for the rest of the bytes.
            unsafe { bindings::blk_mq_end_request(rq, ok) };
        } else {
            // SAFETY: As above; all bytes have ended.
            unsafe { bindings::__blk_mq_end_request(rq, status) };
        }
    }

    /// Copies `len` bytes at `off` of the request's data to `buf` at `buf_off`.
    ///
    /// To be used for writes; the data of [`Op::WriteZeroes`] is zeros. User space may change the data at the same time; the copy then holds
    /// any mix.
    ///
    /// # Errors
    ///
    /// [`ERANGE`] if a range is not inside the request or buffer; then nothing is copied.
    pub(crate) fn copy_to_buf(
        &self,
        off: usize,
        buf: &mut PageBuf,
        buf_off: usize,
        len: usize,
    ) -> Result {
        buf.check(buf_off, len)?;
        if self.op() == Op::WriteZeroes {
            let end = off.checked_add(len).filter(|end| *end <= self.len());
            end.ok_or(ERANGE)?;
            return buf.zero(buf_off, len);
        }
        self.for_each_piece(off, len, buf, buf_off, |data, ptr, n| {
            // SAFETY: `for_each_piece()` gives memory of the request and of `buf`, valid for `n`
            // bytes each. `buf` is borrowed exclusively. C's function is called since the data may
            // change while it is read.
            unsafe { bindings::memcpy(ptr.cast(), data.cast(), n) };
        })
    }

    /// Copies `len` bytes of `buf` at `buf_off` to the request's data at `off`.
    ///
    /// To be used for reads.
    ///
    /// # Errors
    ///
    /// [`ERANGE`] if a range is not inside the request or buffer; then nothing is copied.
    /// [`EINVAL`] if the request is not a read.
    pub(crate) fn copy_from_buf(
        &self,
        off: usize,
        buf: &PageBuf,
        buf_off: usize,
        len: usize,
    ) -> Result {
        self.check_read()?;
        buf.check(buf_off, len)?;
        self.for_each_piece(off, len, buf, buf_off, |data, ptr, n| {
            // SAFETY: `for_each_piece()` gives memory of the request and of `buf`, valid for `n`
            // bytes each. The request is a read, so its memory is for us to write to; that someone
            // else may do so at the same time is why C's function is called.
            unsafe { bindings::memcpy(data.cast(), ptr.cast(), n) };
        })
    }

    pub(super) fn check_read(&self) -> Result {
        if self.op() == Op::Read {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }

    /// Calls `f` with each piece of the request's data and of `buf` that is contiguous in both.
    fn for_each_piece(
        &self,
        off: usize,
        len: usize,
        buf: &PageBuf,
        buf_off: usize,
        mut f: impl FnMut(*mut u8, *mut u8, usize),
    ) -> Result {
        let mut pos = buf_off;

        self.for_each_run(off, len, |data, n| {
            let mut done = 0;

            while done < n {
                let (ptr, room) = buf.run(pos).ok_or(ERANGE)?;
                let part = room.min(n - done);
                f(data.wrapping_add(done), ptr, part);
                done += part;
                pos += part;
            }
            Ok(())
        })
    }

    /// Calls `f` with each piece of the request's data that is contiguous in memory, in order.
    pub(super) fn for_each_run(
        &self,
        off: usize,
        len: usize,
        mut f: impl FnMut(*mut u8, usize) -> Result,
    ) -> Result {
        let end = off.checked_add(len).ok_or(ERANGE)?;
        if end > self.len() || !matches!(self.op(), Op::Read | Op::Write) {
            return Err(ERANGE);
        }
        let mut walk = Walk {
            skip: off,
            left: len,
            result: Ok(()),
            f: &mut f,
        };
        if len > 0 {
            // SAFETY: `rq` is valid by the type invariant and has data, which stays as it is while
            // there is a share. `visit` gets the `Walk` that it expects.
            unsafe {
                sys::eraid_rq_for_each_bvec(
                    self.rq.as_ptr(),
                    Some(Walk::visit),
                    (&raw mut walk).cast(),
                )
            };
        }
        walk.result?;
        if walk.left > 0 {
            return Err(ERANGE);
        }
        Ok(())
    }
}

impl Clone for Request {
    fn clone(&self) -> Self {
        self.pdu().shares.inc();
        // INVARIANT: The share was counted above.
        Self { rq: self.rq }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if self.pdu().shares.dec_and_test() {
            // SAFETY: This was the last share.
            unsafe { self.end() };
        }
    }
}

/// A walk over a part of a request's data.
struct Walk<'a> {
    /// Bytes before the part that are still to come.
    skip: usize,
    /// Bytes of the part that are still to come.
    left: usize,
    result: Result,
    f: &'a mut dyn FnMut(*mut u8, usize) -> Result,
}

impl Walk<'_> {
    /// Handles the next piece of the request's data; returns whether more is wanted.
    ///
    /// # Safety
    ///
    /// `ctx` points to a [`Walk`] to which there is no other reference, and `addr` to `len` bytes
    /// of the request's data.
    unsafe extern "C" fn visit(ctx: *mut c_void, addr: *mut c_void, len: u32) -> bool {
        // SAFETY: By the function's requirements.
        let walk = unsafe { &mut *ctx.cast::<Walk<'_>>() };
        let len = len as usize;

        if walk.skip >= len {
            walk.skip -= len;
            return true;
        }
        let n = walk.left.min(len - walk.skip);
        walk.result = (walk.f)(addr.cast::<u8>().wrapping_add(walk.skip), n);
        walk.skip = 0;
        walk.left -= n;
        walk.left > 0 && walk.result.is_ok()
    }
}
