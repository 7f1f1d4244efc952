// SPDX-License-Identifier: GPL-2.0

//! Linux system calls that the standard library lacks: asynchronous I/O and exact sleeps.
//!
//! Asynchronous I/O is the old kind (io_submit, include/uapi/linux/aio_abi.h) on purpose: io_uring
//! marks the bios of its first try REQ_NOWAIT, which md and eRAID handle in another way than the
//! reads of ordinary programs.
#![allow(unsafe_code)]

use crate::engine::{Completion, Queue};
use crate::request::{Op, Request};
use eraid_tools::device::Device;
use eraid_tools::time::Nanos;
use std::alloc::{alloc_zeroed, dealloc, handle_alloc_error, Layout};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::time::Instant;

/// More than any device asks of buffers.
const ALIGNMENT: usize = 4096;

/// Completions taken in one call.
const BATCH: usize = 128;

const IOCB_CMD_PREAD: u16 = 0;
const IOCB_CMD_PWRITE: u16 = 1;

/// `struct io_event` of aio_abi.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct IoEvent {
    data: u64,
    obj: u64,
    res: i64,
    res2: i64,
}

/// Makes this program's sleeps end on time; by default they may be 50 us late.
pub fn exact_sleeps() {
    // SAFETY: PR_SET_TIMERSLACK takes a number of nanoseconds and touches no memory of ours.
    // It cannot fail for an ordinary thread, and if it did, the reported lag would show it.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1u64, 0u64, 0u64, 0u64) };
}

/// Memory for direct I/O that the kernel reads or writes at any time. The program itself never
/// looks at it, so all requests may share it.
struct Scratch {
    start: NonNull<u8>,
    layout: Layout,
}

impl Scratch {
    fn new(len: usize) -> io::Result<Self> {
        let layout = Layout::from_size_align(len.max(1), ALIGNMENT).map_err(io::Error::other)?;
        // SAFETY: The layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Ok(Scratch { start, layout })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: It was allocated with this layout; `Aio` drops its context before its scratch,
        // and with the context gone no request uses the memory.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// The kernel's context of asynchronous requests.
struct Context(libc::c_ulong);

impl Context {
    fn new(depth: u32) -> io::Result<Self> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: The kernel writes the context's number to the variable, which is zero before,
        // as it demands.
        let result = unsafe { libc::syscall(libc::SYS_io_setup, depth, &mut context) };
        if result != 0 {
            let error = io::Error::last_os_error();
            let what = format!("io_setup for {depth} requests: {error} (see fs.aio-max-nr)");
            return Err(io::Error::new(error.kind(), what));
        }
        Ok(Context(context))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: The context is ours. The call waits for the requests under way.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

/// A device's asynchronous requests. The fields' order matters: the context goes first, and with
/// it all requests that use the memory.
pub struct Aio<'a> {
    context: Context,
    reads: Scratch,
    writes: Scratch,
    longest: u32,
    device: &'a Device,
    depth: u32,
    start: Instant,
}

impl<'a> Aio<'a> {
    /// Up to `depth` requests of up to `longest` bytes; the clock starts.
    pub fn new(device: &'a Device, depth: u32, longest: u32) -> io::Result<Self> {
        Ok(Aio {
            context: Context::new(depth)?,
            reads: Scratch::new(longest as usize)?,
            writes: Scratch::new(longest as usize)?,
            longest,
            device,
            depth,
            start: Instant::now(),
        })
    }

    fn control_block(&self, tag: usize, request: &Request) -> libc::iocb {
        // SAFETY: It is plain numbers, of which zero is valid.
        let mut block: libc::iocb = unsafe { std::mem::zeroed() };
        let (command, memory) = match request.op {
            Op::Read => (IOCB_CMD_PREAD, &self.reads),
            Op::Write => (IOCB_CMD_PWRITE, &self.writes),
        };
        block.aio_data = tag as u64;
        block.aio_lio_opcode = command;
        block.aio_fildes = self.device.file().as_raw_fd() as u32;
        block.aio_buf = memory.start.as_ptr() as u64;
        block.aio_nbytes = u64::from(request.length.min(self.longest));
        block.aio_offset = request.offset as i64;
        block
    }
}

impl Queue for Aio<'_> {
    fn depth(&self) -> usize {
        self.depth as usize
    }

    fn now(&self) -> Nanos {
        // A run of 500 years is not foreseen.
        Nanos(self.start.elapsed().as_nanos() as u64)
    }

    fn submit(&mut self, tag: usize, request: &Request) -> io::Result<()> {
        let mut block = self.control_block(tag, request);
        let mut list = [&raw mut block];
        // SAFETY: The kernel reads one pointer and the control block behind it, and keeps
        // neither. The memory that the block names is as long as it says, and lives until the
        // context is gone, and with it all requests.
        let taken =
            unsafe { libc::syscall(libc::SYS_io_submit, self.context.0, 1i64, list.as_mut_ptr()) };
        match taken {
            1 => Ok(()),
            0 => Err(io::Error::other("io_submit took nothing")),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn wait(&mut self, timeout: Option<Nanos>, done: &mut Vec<Completion>) -> io::Result<()> {
        let mut events = [IoEvent::default(); BATCH];
        let time = timeout.map(|time| libc::timespec {
            tv_sec: (time.0 / 1_000_000_000) as i64,
            tv_nsec: (time.0 % 1_000_000_000) as i64,
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: The kernel writes at most BATCH events, of the layout that it defines, and
        // reads the time, if there is one.
        let count = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context.0,
                1i64,
                BATCH as i64,
                events.as_mut_ptr(),
                time,
            )
        };
        let Ok(count) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::Interrupted => Ok(()),
                _ => Err(error),
            };
        };
        done.extend(events.iter().take(count).map(|event| Completion {
            tag: event.data as usize,
            result: event.res,
        }));
        Ok(())
    }
}
