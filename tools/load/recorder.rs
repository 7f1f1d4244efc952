// SPDX-License-Identifier: GPL-2.0

//! What is kept of a run: the histogram, sums, a digest, and each request if a file is wanted.

use crate::histogram::Histogram;
use crate::request::{Op, Request};
use eraid_tools::device::at;
use eraid_tools::rng::mix;
use eraid_tools::time::Nanos;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Files to be written.
#[derive(clap::Args, Debug, Default)]
pub struct Outputs {
    /// Writes the histogram of latencies here, as CSV.
    #[arg(long)]
    pub histogram: Option<PathBuf>,
    /// Writes a line for each request here, as CSV, in the order of completion.
    #[arg(long)]
    pub requests: Option<PathBuf>,
}

/// One request's end.
#[derive(Debug)]
pub struct Outcome {
    /// Its place in the order of submission, from 0.
    pub number: u64,
    /// The request.
    pub request: Request,
    /// From when it was due until the device had taken it.
    pub lag: Nanos,
    /// From when it was due until it completed.
    pub latency: Nanos,
    /// Bytes carried, or the negative error number.
    pub result: i64,
}

impl Outcome {
    /// Errors count by number; a short transfer is one as well.
    fn error(&self) -> Option<i64> {
        let whole = i64::from(self.request.length);
        (self.result != whole).then_some(self.result.min(0))
    }
}

/// Collects outcomes.
pub struct Recorder {
    count: u64,
    warm_up: u64,
    latency: Histogram,
    lag: Histogram,
    /// Latencies of the first and of the second half: an overloaded device gets slower.
    halves: [Histogram; 2],
    errors: BTreeMap<i64, u64>,
    bytes: u64,
    in_flight_max: usize,
    /// When the first and the last counted request went out.
    began: Option<Nanos>,
    ended: Nanos,
    digest: u64,
    histogram_file: Option<(PathBuf, BufWriter<File>)>,
    requests_file: Option<(PathBuf, BufWriter<File>)>,
}

impl Recorder {
    /// For `count` requests, of which the first `warm_up` do not count. Files are made at once,
    /// so that a bad path costs no run.
    pub fn new(count: u64, warm_up: u64, outputs: &Outputs) -> io::Result<Self> {
        if warm_up >= count {
            let what = format!("a warm-up of {warm_up} leaves nothing of {count} requests");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let mut recorder = Recorder {
            count,
            warm_up,
            latency: Histogram::new(),
            lag: Histogram::new(),
            halves: [Histogram::new(), Histogram::new()],
            errors: BTreeMap::new(),
            bytes: 0,
            in_flight_max: 0,
            began: None,
            ended: Nanos(0),
            digest: 0,
            histogram_file: outputs.histogram.as_deref().map(create).transpose()?,
            requests_file: outputs.requests.as_deref().map(create).transpose()?,
        };
        if let Some((path, file)) = &mut recorder.requests_file {
            writeln!(
                file,
                "number,due_ns,op,offset,length,lag_ns,latency_ns,result"
            )
            .map_err(|error| at(path, "write", error))?;
        }
        Ok(recorder)
    }

    /// A request went out at `now`; `in_flight` are under way with it.
    pub fn submitted(&mut self, number: u64, now: Nanos, in_flight: usize) {
        self.in_flight_max = self.in_flight_max.max(in_flight);
        if number >= self.warm_up {
            self.began.get_or_insert(now);
            self.ended = now;
        }
    }

    /// A request ended.
    pub fn completed(&mut self, outcome: &Outcome) -> io::Result<()> {
        for part in [outcome.number, outcome.latency.0, outcome.result as u64] {
            self.digest = mix(self.digest.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ part);
        }
        if let Some((path, file)) = &mut self.requests_file {
            write_request(file, outcome).map_err(|error| at(path, "write", error))?;
        }
        let Some(number) = outcome.number.checked_sub(self.warm_up) else {
            return Ok(());
        };
        self.lag.add(outcome.lag);
        if let Some(error) = outcome.error() {
            *self.errors.entry(error).or_default() += 1;
            return Ok(());
        }
        self.bytes += u64::from(outcome.request.length);
        self.latency.add(outcome.latency);
        let late = number >= (self.count - self.warm_up) / 2;
        self.halves[usize::from(late)].add(outcome.latency);
        Ok(())
    }

    /// Writes the files and sums up.
    pub fn finish(mut self) -> io::Result<Summary> {
        if let Some((path, file)) = &mut self.requests_file {
            file.flush().map_err(|error| at(path, "write", error))?;
        }
        if let Some((path, file)) = &mut self.histogram_file {
            let written = self.latency.write_csv(file).and_then(|()| file.flush());
            written.map_err(|error| at(path, "write", error))?;
        }
        let errors: u64 = self.errors.values().sum();
        for (number, count) in &self.errors {
            match number {
                0 => eprintln!("eraid-load: {count} short transfers"),
                _ => {
                    let error = io::Error::from_raw_os_error(-*number as i32);
                    eprintln!("eraid-load: {count} times {error}");
                }
            }
        }
        let issuing = self.ended.since(self.began.unwrap_or_default());
        // The first counted request opens the time, the others fill it.
        let others = (self.latency.count() + errors).saturating_sub(1);
        let rate = others as f64 / issuing.seconds().max(1e-9);
        let size = self.bytes as f64 / self.latency.count().max(1) as f64;
        Ok(Summary {
            errors,
            rate,
            megabytes_per_second: rate * size / 1e6,
            issuing,
            latency: self.latency,
            lag: self.lag,
            halves: self.halves,
            in_flight_max: self.in_flight_max,
            digest: self.digest,
        })
    }
}

fn create(path: &Path) -> io::Result<(PathBuf, BufWriter<File>)> {
    let file = File::create(path).map_err(|error| at(path, "create", error))?;
    Ok((path.into(), BufWriter::new(file)))
}

fn write_request(out: &mut dyn Write, outcome: &Outcome) -> io::Result<()> {
    let op = match outcome.request.op {
        Op::Read => 'R',
        Op::Write | Op::SyncedWrite => 'W',
    };
    writeln!(
        out,
        "{},{},{op},{},{},{},{},{}",
        outcome.number,
        outcome.request.due.0,
        outcome.request.offset,
        outcome.request.length,
        outcome.lag.0,
        outcome.latency.0,
        outcome.result
    )
}

/// What was measured; printed as KEY=VALUE.
pub struct Summary {
    /// Requests that failed, which no latency counts.
    pub errors: u64,
    /// Requests that went out in a second; in a closed loop, that many completed.
    pub rate: f64,
    /// The same in 10^6 bytes.
    pub megabytes_per_second: f64,
    /// From the first counted request's submission to the last one's.
    pub issuing: Nanos,
    /// From due to complete.
    pub latency: Histogram,
    /// From due to taken by the device.
    pub lag: Histogram,
    /// Latencies by halves.
    pub halves: [Histogram; 2],
    /// Most requests under way at once.
    pub in_flight_max: usize,
    /// Of every request's number, latency and result.
    pub digest: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let latency = &self.latency;
        write!(f, "requests={} errors={} ", latency.count(), self.errors)?;
        for (name, value) in [
            ("mean_us", latency.mean()),
            ("p50_us", latency.percentile(500)),
            ("p99_us", latency.percentile(990)),
            ("p999_us", latency.percentile(999)),
            ("max_us", latency.max()),
            ("first_half_mean_us", self.halves[0].mean()),
            ("second_half_mean_us", self.halves[1].mean()),
            ("lag_mean_us", self.lag.mean()),
            ("lag_max_us", self.lag.max()),
        ] {
            write!(f, "{name}={:.3} ", value.micros())?;
        }
        write!(
            f,
            "in_flight_max={} seconds={:.6} rate={:.3} MBps={:.3} digest={:016x}",
            self.in_flight_max,
            self.issuing.seconds(),
            self.rate,
            self.megabytes_per_second,
            self.digest
        )
    }
}
