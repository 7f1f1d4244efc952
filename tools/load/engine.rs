// SPDX-License-Identifier: GPL-2.0

//! The loops: when requests go out, and how their times are taken.
//!
//! The clock is read once after each submission and once after each sleep: a look at it is a
//! system call where time is simulated.

use crate::recorder::{Outcome, Recorder};
use crate::request::{Op, Request};
use eraid_tools::time::Nanos;
use std::io;

/// What carries out requests, with its clock.
pub trait Queue {
    /// Requests it takes at once.
    fn depth(&self) -> usize;
    /// Time since the start of the run.
    fn now(&self) -> Nanos;
    /// Hands over a request, known by `tag` from now on. Returns when it was taken, which may
    /// be late when the device is full; other requests complete meanwhile.
    fn submit(&mut self, tag: usize, request: &Request) -> io::Result<()>;
    /// Hands over an fsync in the place of the request of `tag`, which has completed. It completes
    /// as a request does, with 0 for success.
    fn sync(&mut self, tag: usize) -> io::Result<()>;
    /// Sleeps until a request completes or `timeout` is over (never, without one; never zero);
    /// adds what completed to `done`.
    fn wait(&mut self, timeout: Option<Nanos>, done: &mut Vec<Completion>) -> io::Result<()>;
}

/// A request that ended.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// The tag it was submitted by.
    pub tag: usize,
    /// When it ended.
    pub at: Nanos,
    /// Bytes carried, or the negative error number.
    pub result: i64,
}

/// A request that the queue has.
#[derive(Clone, Copy)]
struct Pending {
    number: u64,
    request: Request,
    lag: Nanos,
    /// Bytes that it carried; the fsync behind it is under way.
    carried: Option<i64>,
}

impl Pending {
    /// Whether what has ended with `result` was the write, and its fsync is to follow.
    fn wants_sync(&self, result: i64) -> bool {
        self.request.op == Op::SyncedWrite && self.carried.is_none() && result >= 0
    }
}

/// The requests under way.
struct InFlight<'a, Q> {
    queue: &'a mut Q,
    recorder: &'a mut Recorder,
    pending: Vec<Option<Pending>>,
    free: Vec<usize>,
    done: Vec<Completion>,
    next_number: u64,
}

impl<'a, Q: Queue> InFlight<'a, Q> {
    fn new(queue: &'a mut Q, recorder: &'a mut Recorder) -> Self {
        let depth = queue.depth();
        InFlight {
            queue,
            recorder,
            pending: vec![None; depth],
            free: (0..depth).rev().collect(),
            done: Vec::new(),
            next_number: 0,
        }
    }

    fn count(&self) -> usize {
        self.pending.len() - self.free.len()
    }

    fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Submits the next request, for which there must be room; returns the time after that.
    fn submit(&mut self, request: Request) -> io::Result<Nanos> {
        let Some(tag) = self.free.pop() else {
            return Err(io::Error::other("no room for a request"));
        };
        self.queue.submit(tag, &request)?;
        let now = self.queue.now();
        self.pending[tag] = Some(Pending {
            number: self.next_number,
            request,
            lag: now.since(request.due),
            carried: None,
        });
        self.recorder.submitted(self.next_number, now, self.count());
        self.next_number += 1;
        Ok(now)
    }

    /// Sleeps until something completes or `timeout` is over; returns the time after that.
    fn wait(&mut self, timeout: Option<Nanos>) -> io::Result<Nanos> {
        self.done.clear();
        self.queue.wait(timeout, &mut self.done)?;
        for done in &self.done {
            let place = self.pending.get_mut(done.tag);
            let mut pending = place
                .and_then(Option::take)
                .ok_or_else(|| io::Error::other("an unknown completion"))?;
            if pending.wants_sync(done.result) {
                pending.carried = Some(done.result);
                self.queue.sync(done.tag)?;
                self.pending[done.tag] = Some(pending);
                continue;
            }
            self.free.push(done.tag);
            self.recorder.completed(&Outcome {
                number: pending.number,
                request: pending.request,
                lag: pending.lag,
                latency: done.at.since(pending.request.due),
                result: match pending.carried {
                    Some(carried) if done.result == 0 => carried,
                    _ => done.result,
                },
            })?;
        }
        Ok(self.queue.now())
    }
}

/// Submits each request when it is due; ends when all have completed. `requests` are in the
/// order of their times.
pub fn open_loop<Q: Queue>(
    queue: &mut Q,
    requests: impl Iterator<Item = Request>,
    recorder: &mut Recorder,
) -> io::Result<()> {
    let mut flight = InFlight::new(queue, recorder);
    let mut now = flight.queue.now();
    for request in requests {
        while now < request.due || flight.is_full() {
            let early = (now < request.due).then(|| request.due - now);
            now = flight.wait(early)?;
        }
        now = flight.submit(request)?;
    }
    while flight.count() > 0 {
        flight.wait(None)?;
    }
    Ok(())
}

/// Keeps the queue full until there are no more requests; ends when all have completed. The
/// requests' times are those when their turn came.
pub fn closed_loop<Q: Queue>(
    queue: &mut Q,
    mut requests: impl Iterator<Item = Request>,
    recorder: &mut Recorder,
) -> io::Result<()> {
    let mut flight = InFlight::new(queue, recorder);
    let mut now = flight.queue.now();
    loop {
        while !flight.is_full() {
            let Some(request) = requests.next() else {
                break;
            };
            now = flight.submit(Request {
                due: now,
                ..request
            })?;
        }
        if flight.count() == 0 {
            return Ok(());
        }
        now = flight.wait(None)?;
    }
}
