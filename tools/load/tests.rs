// SPDX-License-Identifier: GPL-2.0

//! The loops on a device whose times are known, and the system calls on a real file.

use crate::engine::{closed_loop, open_loop, Completion, Queue};
use crate::linux::Aio;
use crate::pattern::{Pattern, PatternArgs};
use crate::recorder::{Outputs, Recorder, Summary};
use crate::request::{Op, Request};
use eraid_tools::device::{Access, Device};
use eraid_tools::size::Part;
use eraid_tools::time::Nanos;
use std::collections::VecDeque;
use std::io;

/// A device that serves one request after the other, each for `service`; its clock moves only
/// while somebody waits.
struct Server {
    depth: usize,
    /// Submitting sleeps while so many are under way, as on a device without a free tag.
    tags: usize,
    service: Nanos,
    clock: Nanos,
    /// What it has, with the times of their ends.
    queue: VecDeque<(usize, Nanos, i64)>,
    free_at: Nanos,
    /// Fails requests to this offset.
    bad: Option<u64>,
    waits: usize,
    syncs: usize,
    /// Fails every fsync.
    bad_sync: bool,
}

/// What an fsync takes.
const SYNC: Nanos = Nanos(1000);

impl Server {
    fn new(depth: usize, service: u64) -> Self {
        Server {
            depth,
            tags: usize::MAX,
            service: Nanos(service),
            clock: Nanos(0),
            queue: VecDeque::new(),
            free_at: Nanos(0),
            bad: None,
            waits: 0,
            syncs: 0,
            bad_sync: false,
        }
    }
}

impl Queue for Server {
    fn depth(&self) -> usize {
        self.depth
    }

    fn now(&self) -> Nanos {
        self.clock
    }

    fn submit(&mut self, tag: usize, request: &Request) -> io::Result<()> {
        assert!(self.queue.len() < self.depth);
        let under_way = |server: &Server| {
            let ends = server.queue.iter().map(|&(_, ends, _)| ends);
            ends.filter(|&ends| ends > server.clock).collect::<Vec<_>>()
        };
        while under_way(self).len() >= self.tags {
            self.clock = under_way(self)[0];
        }
        self.free_at = self.free_at.max(self.clock) + self.service;
        let failed = self.bad == Some(request.offset);
        let result = if failed { -5 } else { request.length.into() };
        self.queue.push_back((tag, self.free_at, result));
        Ok(())
    }

    fn sync(&mut self, tag: usize) -> io::Result<()> {
        self.free_at = self.free_at.max(self.clock) + SYNC;
        self.syncs += 1;
        let result = if self.bad_sync { -5 } else { 0 };
        self.queue.push_back((tag, self.free_at, result));
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Nanos>, done: &mut Vec<Completion>) -> io::Result<()> {
        self.waits += 1;
        assert_ne!(timeout, Some(Nanos(0)), "that would be polling");
        let end = timeout.map(|timeout| self.clock + timeout);
        let next = self.queue.front().map(|&(_, ends, _)| ends);
        self.clock = match (next, end) {
            (Some(next), Some(end)) => self.clock.max(next.min(end)),
            (Some(next), None) => self.clock.max(next),
            (None, Some(end)) => end,
            (None, None) => panic!("waits for nothing"),
        };
        while let Some(&(tag, ends, result)) = self.queue.front() {
            if ends > self.clock {
                break;
            }
            self.queue.pop_front();
            let at = ends;
            done.push(Completion { tag, at, result });
        }
        Ok(())
    }
}

fn read_at(due: u64) -> Request {
    Request {
        due: Nanos(due),
        op: Op::Read,
        offset: due,
        length: 4096,
    }
}

fn run_open(server: &mut Server, due: &[u64], warm_up: u64) -> Summary {
    let mut recorder = Recorder::new(due.len() as u64, warm_up, &Outputs::default()).unwrap();
    open_loop(server, due.iter().map(|&due| read_at(due)), &mut recorder).unwrap();
    recorder.finish().unwrap()
}

#[test]
fn latency_counts_from_when_a_request_was_due() {
    let mut server = Server::new(8, 100);
    // The second and third wait for the first; the last finds the device idle.
    let summary = run_open(&mut server, &[1000, 1010, 1020, 5000], 0);
    assert_eq!(summary.latency.count(), 4);
    assert_eq!(summary.latency.max(), Nanos(280));
    assert_eq!(summary.latency.mean(), Nanos((100 + 190 + 280 + 100) / 4));
    assert_eq!(summary.lag.max(), Nanos(0));
    assert_eq!(summary.in_flight_max, 3);
    assert_eq!(summary.halves[0].mean(), Nanos((100 + 190) / 2));
    assert_eq!(summary.issuing, Nanos(4000));
}

#[test]
fn a_full_device_shows_as_lag_and_in_the_latency() {
    let mut server = Server::new(1, 100);
    let summary = run_open(&mut server, &[0, 10, 20], 0);
    // Submitted at 0, 100, 200, so 0, 90 and 180 late; complete at 100, 200, 300.
    assert_eq!(summary.lag.max(), Nanos(180));
    assert_eq!(summary.lag.mean(), Nanos(90));
    assert_eq!(summary.latency.max(), Nanos(280));
    assert_eq!(summary.latency.mean(), Nanos((100 + 190 + 280) / 3));
    assert_eq!(summary.in_flight_max, 1);
}

#[test]
fn a_submission_that_sleeps_hides_no_completion() {
    let mut server = Server::new(8, 100);
    server.tags = 1;
    let summary = run_open(&mut server, &[0, 10, 20], 0);
    // Taken at 0, 100, 200 as above; the first two complete while others are submitted.
    assert_eq!(summary.lag.max(), Nanos(180));
    assert_eq!(summary.latency.mean(), Nanos((100 + 190 + 280) / 3));
    assert_eq!(summary.latency.max(), Nanos(280));
}

#[test]
fn the_warm_up_does_not_count() {
    let mut server = Server::new(8, 100);
    let summary = run_open(&mut server, &[0, 0, 0, 0, 1000, 2000], 4);
    assert_eq!(summary.latency.count(), 2);
    assert_eq!(summary.latency.max(), Nanos(100));
    assert!(Recorder::new(4, 4, &Outputs::default()).is_err());
}

#[test]
fn waiting_is_sleeping() {
    let mut server = Server::new(8, 100);
    let due: Vec<u64> = (1..=1000).map(|n| n * 1000).collect();
    run_open(&mut server, &due, 0);
    // Once until it is due, once until it is done.
    assert_eq!(server.waits, 2000);
}

#[test]
fn errors_are_counted_and_have_no_latency() {
    let mut server = Server::new(8, 100);
    server.bad = Some(20);
    let summary = run_open(&mut server, &[10, 20, 1000], 0);
    assert_eq!((summary.errors, summary.latency.count()), (1, 2));
    assert_eq!(summary.latency.max(), Nanos(100));
}

#[test]
fn the_digest_sees_one_nanosecond() {
    let digest = |due: &[u64]| run_open(&mut Server::new(8, 100), due, 0).digest;
    assert_eq!(digest(&[0, 50, 1000]), digest(&[0, 50, 1000]));
    assert_ne!(digest(&[0, 50, 1000]), digest(&[0, 51, 1000]));
}

#[test]
fn a_closed_loop_keeps_its_depth() {
    let mut server = Server::new(4, 100);
    let mut recorder = Recorder::new(100, 20, &Outputs::default()).unwrap();
    let requests = (0..100).map(read_at);
    closed_loop(&mut server, requests, &mut recorder).unwrap();
    let summary = recorder.finish().unwrap();
    assert_eq!(summary.in_flight_max, 4);
    // Each waits for the three before it.
    assert_eq!(summary.latency.mean(), Nanos(400));
    assert_eq!(summary.latency.count(), 80);
    // One completes in 100 ns; the last four go out while the device is full.
    assert_eq!(summary.rate, 1e7);
    assert_eq!(server.clock, Nanos(100 * 100));
}

fn run_synced(server: &mut Server, op: Op) -> Summary {
    let mut recorder = Recorder::new(10, 0, &Outputs::default()).unwrap();
    let requests = (0..10).map(|n| Request { op, ..read_at(n) });
    closed_loop(server, requests, &mut recorder).unwrap();
    recorder.finish().unwrap()
}

#[test]
fn a_synced_write_is_done_when_its_fsync_is() {
    let mut server = Server::new(1, 100);
    let summary = run_synced(&mut server, Op::SyncedWrite);
    assert_eq!((summary.errors, summary.latency.count()), (0, 10));
    assert_eq!(summary.latency.mean(), Nanos(1100));
    assert_eq!((server.syncs, server.clock), (10, Nanos(11_000)));

    // A write that failed has no fsync.
    let mut server = Server::new(1, 100);
    server.bad = Some(3);
    assert_eq!(run_synced(&mut server, Op::SyncedWrite).errors, 1);
    assert_eq!(server.syncs, 9);

    // One whose fsync failed is not done.
    let mut server = Server::new(1, 100);
    server.bad_sync = true;
    let summary = run_synced(&mut server, Op::SyncedWrite);
    assert_eq!((summary.errors, summary.latency.count()), (10, 0));

    let mut server = Server::new(1, 100);
    run_synced(&mut server, Op::Write);
    assert_eq!(server.syncs, 0);
}

/// A file to read and write for real.
struct Temporary(std::path::PathBuf);

impl Temporary {
    fn new(name: &str, size: u64) -> Self {
        let path = std::env::temp_dir().join(format!("eraid-load-{}-{name}", std::process::id()));
        std::fs::File::create(&path).unwrap().set_len(size).unwrap();
        Temporary(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn system_calls_read_and_write_a_file() {
    const SIZE: u64 = 1 << 20;
    let file = Temporary::new("file", SIZE);
    let write = Access {
        write: true,
        // Not every temporary directory can do direct I/O.
        buffered: true,
        ..Access::default()
    };
    let device = Device::open(&file.0, write).unwrap();
    let args = PatternArgs {
        size: 8192,
        up_to: None,
        align: Some(4096),
        sequential: false,
        write_percent: 50,
        fsync: true,
        seed: 1,
        part: Part::default(),
    };
    let mut pattern = Pattern::on(&args, SIZE, 4096).unwrap();
    let mut queue = Aio::new(&device, 16, 8192).unwrap();
    let log = Temporary::new("log", 0);
    let outputs = Outputs {
        histogram: None,
        requests: Some(log.0.clone()),
    };
    let mut recorder = Recorder::new(500, 0, &outputs).unwrap();
    let requests = (0..500).map(|n| pattern.next(Nanos(n * 10_000)));
    open_loop(&mut queue, requests, &mut recorder).unwrap();
    let summary = recorder.finish().unwrap();
    assert_eq!((summary.errors, summary.latency.count()), (0, 500));
    // 500 requests take at least as long as the last one waits for its time.
    assert!(summary.issuing >= Nanos(499 * 10_000 - 1_000_000));
    let lines = std::fs::read_to_string(&log.0).unwrap();
    assert_eq!(lines.lines().count(), 501);
    assert!(lines.lines().skip(1).all(|line| line.ends_with(",8192")));

    // Past the end: an error for each, not of the program.
    let past = Request {
        due: Nanos(0),
        op: Op::Read,
        offset: SIZE,
        length: 4096,
    };
    let mut recorder = Recorder::new(3, 0, &Outputs::default()).unwrap();
    closed_loop(&mut queue, std::iter::repeat_n(past, 3), &mut recorder).unwrap();
    assert_eq!(recorder.finish().unwrap().errors, 3);
}
