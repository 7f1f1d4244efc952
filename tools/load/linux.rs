// SPDX-License-Identifier: GPL-2.0

//! Linux system calls that the standard library lacks: asynchronous I/O and exact sleeps.
//!
//! Asynchronous I/O is the old kind (io_submit, include/uapi/linux/aio_abi.h) on purpose: io_uring
//! marks the bios of its first try REQ_NOWAIT, which md and eRAID handle in another way than the
//! reads of ordinary programs. io_submit may sleep, when a device is full; so a thread of its own
//! looks at what completes, and completions have their right times all the same.
#![allow(unsafe_code)]

use crate::engine::{Completion, Queue};
use crate::request::{Op, Request};
use eraid_tools::device::Device;
use eraid_tools::time::Nanos;
use std::alloc::{alloc_zeroed, dealloc, handle_alloc_error, Layout};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// More than any device asks of buffers.
const ALIGNMENT: usize = 4096;

/// Completions taken in one call.
const BATCH: usize = 128;

const IOCB_CMD_PREAD: u16 = 0;
const IOCB_CMD_PWRITE: u16 = 1;
const IOCB_CMD_FDSYNC: u16 = 3;

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
        // SAFETY: It was allocated with this layout. `Aio` ends its context before its fields are
        // dropped, and with the context gone no request uses the memory.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// The kernel's context of asynchronous requests.
#[derive(Clone, Copy)]
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

    /// Sleeps until a request completes; returns how many `events` were filled in, none when it
    /// was interrupted.
    fn events(self, events: &mut [IoEvent; BATCH]) -> io::Result<usize> {
        let no_timeout = std::ptr::null::<libc::timespec>();
        // SAFETY: The kernel writes at most BATCH events, of the layout that it defines.
        let count = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.0,
                1i64,
                BATCH as i64,
                events.as_mut_ptr(),
                no_timeout,
            )
        };
        usize::try_from(count).or_else(|_| {
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::Interrupted => Ok(0),
                _ => Err(error),
            }
        })
    }

    /// Ends the context once the requests under way are over. Its number is not valid any more.
    fn destroy(self) {
        // SAFETY: The call touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

/// What has completed and was not asked for yet.
#[derive(Default)]
struct Completed {
    list: Vec<Completion>,
    /// Why there will be no more.
    ended: Option<io::Error>,
}

/// Where the thread puts what completes.
#[derive(Default)]
struct Mailbox {
    completed: Mutex<Completed>,
    arrived: Condvar,
}

impl Mailbox {
    /// A thread that panicked with the lock has left nothing half done.
    fn lock(&self) -> MutexGuard<'_, Completed> {
        self.completed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Collects completions until the context ends.
fn collect(context: Context, start: Instant, mailbox: &Mailbox) {
    let mut events = [IoEvent::default(); BATCH];
    loop {
        let result = context.events(&mut events);
        let at = since(start);
        let mut completed = mailbox.lock();
        match result {
            Ok(count) => completed
                .list
                .extend(events.iter().take(count).map(|event| Completion {
                    tag: event.data as usize,
                    at,
                    result: event.res,
                })),
            Err(error) => completed.ended = Some(error),
        }
        let ended = completed.ended.is_some();
        drop(completed);
        mailbox.arrived.notify_one();
        if ended {
            return;
        }
    }
}

/// A run of 500 years is not foreseen.
fn since(start: Instant) -> Nanos {
    Nanos(start.elapsed().as_nanos() as u64)
}

/// A device's asynchronous requests.
pub struct Aio<'a> {
    context: Context,
    collector: Option<JoinHandle<()>>,
    mailbox: Arc<Mailbox>,
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
        let mut aio = Aio {
            context: Context::new(depth)?,
            collector: None,
            mailbox: Arc::default(),
            reads: Scratch::new(longest as usize)?,
            writes: Scratch::new(longest as usize)?,
            longest,
            device,
            depth,
            start: Instant::now(),
        };
        let (context, start, mailbox) = (aio.context, aio.start, Arc::clone(&aio.mailbox));
        let collector = thread::Builder::new().spawn(move || collect(context, start, &mailbox));
        aio.collector = Some(collector?);
        Ok(aio)
    }

    /// A control block without memory or place.
    fn blank(&self, tag: usize, command: u16) -> libc::iocb {
        // SAFETY: It is plain numbers, of which zero is valid.
        let mut block: libc::iocb = unsafe { std::mem::zeroed() };
        block.aio_data = tag as u64;
        block.aio_lio_opcode = command;
        block.aio_fildes = self.device.file().as_raw_fd() as u32;
        block
    }

    fn control_block(&self, tag: usize, request: &Request) -> libc::iocb {
        let (command, memory) = match request.op {
            Op::Read => (IOCB_CMD_PREAD, &self.reads),
            Op::Write | Op::SyncedWrite => (IOCB_CMD_PWRITE, &self.writes),
        };
        let mut block = self.blank(tag, command);
        block.aio_buf = memory.start.as_ptr() as u64;
        block.aio_nbytes = u64::from(request.length.min(self.longest));
        block.aio_offset = request.offset as i64;
        block
    }

    /// Submits one of the control blocks that are made here.
    fn hand_over(&self, block: &mut libc::iocb) -> io::Result<()> {
        let mut list = [&raw mut *block];
        // SAFETY: The kernel reads one pointer and the control block behind it, and keeps
        // neither. The memory that the block names, if any, is as long as it says, and lives until
        // the context is gone, and with it all requests.
        let taken =
            unsafe { libc::syscall(libc::SYS_io_submit, self.context.0, 1i64, list.as_mut_ptr()) };
        match taken {
            1 => Ok(()),
            0 => Err(io::Error::other("io_submit took nothing")),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Aio<'_> {
    fn drop(&mut self) {
        // With the context gone no request uses the scratch memory, and the thread ends.
        self.context.destroy();
        if let Some(collector) = self.collector.take() {
            // It has no result, and if it panicked it has said so.
            let _ = collector.join();
        }
    }
}

impl Queue for Aio<'_> {
    fn depth(&self) -> usize {
        self.depth as usize
    }

    fn now(&self) -> Nanos {
        since(self.start)
    }

    fn submit(&mut self, tag: usize, request: &Request) -> io::Result<()> {
        let mut block = self.control_block(tag, request);
        self.hand_over(&mut block)
    }

    fn sync(&mut self, tag: usize) -> io::Result<()> {
        let mut block = self.blank(tag, IOCB_CMD_FDSYNC);
        self.hand_over(&mut block)
    }

    fn wait(&mut self, timeout: Option<Nanos>, done: &mut Vec<Completion>) -> io::Result<()> {
        let mut completed = self.mailbox.lock();
        if completed.list.is_empty() && completed.ended.is_none() {
            let arrived = &self.mailbox.arrived;
            completed = match timeout {
                Some(time) => arrived
                    .wait_timeout(completed, Duration::from_nanos(time.0))
                    .map(|(completed, _)| completed)
                    .unwrap_or_else(|poisoned| poisoned.into_inner().0),
                None => arrived
                    .wait(completed)
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
        done.append(&mut completed.list);
        match completed.ended.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}
