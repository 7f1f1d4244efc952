// SPDX-License-Identifier: GPL-2.0

//! What a guest printed about one cell on one array.

use std::collections::BTreeMap;

/// The software under the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Array {
    /// Linux md.
    Md,
    /// This driver.
    Eraid,
}

/// Both, in the order of the tables.
pub const ARRAYS: [Array; 2] = [Array::Md, Array::Eraid];

impl Array {
    /// Its word in file names.
    pub fn word(self) -> &'static str {
        match self {
            Array::Md => "md",
            Array::Eraid => "eraid",
        }
    }

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Array::Md => "md",
            Array::Eraid => "eRAID",
        }
    }
}

/// Requests that took between `from_ms` and `to_ms`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// The bucket's smallest latency in milliseconds.
    pub from_ms: f64,
    /// Its largest one.
    pub to_ms: f64,
    /// Requests in it.
    pub count: u64,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// All KEY=VALUE words of the output.
    words: BTreeMap<String, String>,
    /// The histogram of latencies, smallest first.
    pub histogram: Vec<Bucket>,
}

/// What is measured of each load, all of it numbers; columns of the CSV files, in their order.
pub const MEASURES: [&str; 15] = [
    "seed",
    "requests",
    "errors",
    "mean_us",
    "p50_us",
    "p99_us",
    "p999_us",
    "max_us",
    "first_half_mean_us",
    "second_half_mean_us",
    "lag_mean_us",
    "lag_max_us",
    "in_flight_max",
    "seconds",
    "rate",
];

/// How much slower the second half of a run is than the first in an array that keeps up, at
/// most; more means that requests pile up and the numbers grow with the length of the run.
const STEADY: f64 = 1.3;

/// Whether an array kept up with its load, from the means of the halves of the run.
pub fn keeps_up(first_half: f64, second_half: f64) -> bool {
    second_half <= STEADY * first_half
}

impl Outcome {
    /// Reads a guest's output.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut words = BTreeMap::new();
        let mut histogram = Vec::new();
        let mut in_histogram = false;
        for line in text.lines() {
            if line == "from_ns,to_ns,count" {
                in_histogram = true;
            } else if in_histogram {
                histogram.push(bucket(line).ok_or_else(|| format!("bad bucket '{line}'"))?);
            } else if !line.starts_with('#') {
                let pairs = line.split_whitespace().filter_map(|w| w.split_once('='));
                words.extend(pairs.map(|(key, value)| (key.into(), value.into())));
            }
        }
        let outcome = Outcome { words, histogram };
        for key in MEASURES.into_iter().chain(["MBps"]) {
            let number = outcome.word(key).parse::<f64>();
            if !number.is_ok_and(f64::is_finite) {
                return Err(format!("no number {key}="));
            }
        }
        if !in_histogram {
            return Err("no histogram".into());
        }
        Ok(outcome)
    }

    /// A word's value; empty when there is none.
    pub fn word(&self, key: &str) -> &str {
        self.words.get(key).map_or("", String::as_str)
    }

    /// A word's value as a number; `parse` has seen to those that are needed.
    pub fn number(&self, key: &str) -> f64 {
        self.word(key).parse().unwrap_or(f64::NAN)
    }

    /// A counter, summed up over all drives: of the words h0, h1, ..., which are lists of
    /// COUNTER=NUMBER.
    pub fn drives(&self, counter: &str) -> f64 {
        let drive = |key: &str| {
            key.strip_prefix('h')
                .is_some_and(|n| n.parse::<u8>().is_ok())
        };
        let of_drives = self.words.iter().filter(|(key, _)| drive(key));
        let counters = of_drives.flat_map(|(_, value)| value.split(','));
        let pairs = counters.filter_map(|pair| pair.split_once('='));
        pairs
            .filter(|(name, _)| *name == counter)
            .filter_map(|(_, number)| number.parse::<f64>().ok())
            .sum()
    }

    /// A time in milliseconds; `key` without its unit.
    pub fn ms(&self, key: &str) -> f64 {
        self.number(&format!("{key}_us")) / 1e3
    }

    /// Whether the array kept up with the load.
    pub fn is_steady(&self) -> bool {
        keeps_up(self.ms("first_half_mean"), self.ms("second_half_mean"))
    }
}

fn bucket(line: &str) -> Option<Bucket> {
    let mut fields = line.split(',');
    let mut ns = || fields.next()?.parse::<u64>().ok();
    let (from, to, count) = (ns()?, ns()?, ns()?);
    Some(Bucket {
        from_ms: from as f64 / 1e6,
        to_ms: to as f64 / 1e6,
        count,
    })
}
