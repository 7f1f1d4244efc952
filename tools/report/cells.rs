// SPDX-License-Identifier: GPL-2.0

//! The table of cells: what is run, and what md must show.

use crate::words::{named, number, pairs};

/// What a group of cells is about; decides its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Drives of exactly the same speed, as those of the reference.
    Same,
    /// All drives alike, with and without retries.
    Normal,
    /// The same at half the load.
    Calm,
    /// One member failed.
    Degraded,
    /// One drive is bad.
    One,
    /// One drive is bad, and the load is more than it can do.
    Burst,
    /// Throughput at a fixed number of requests under way.
    Closed,
    /// Throughput of large sequential reads.
    Stream,
    /// Writes to RAID-5 of six drives, chunk 64K.
    Raid5Chunk64,
    /// The same with chunk 512K.
    Raid5Chunk512,
    /// Writes to RAID-6 of eight drives, chunk 64K.
    Raid6Chunk64,
    /// The same with chunk 512K.
    Raid6Chunk512,
}

/// All groups in the order of the report, with the words of the cells' table.
pub const GROUPS: [(&str, Group); 12] = [
    ("same", Group::Same),
    ("normal", Group::Normal),
    ("calm", Group::Calm),
    ("degraded", Group::Degraded),
    ("one", Group::One),
    ("burst", Group::Burst),
    ("closed", Group::Closed),
    ("stream", Group::Stream),
    ("raid5-64k", Group::Raid5Chunk64),
    ("raid5-512k", Group::Raid5Chunk512),
    ("raid6-64k", Group::Raid6Chunk64),
    ("raid6-512k", Group::Raid6Chunk512),
];

/// What a group's numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Latency in milliseconds; less is better.
    Latency,
    /// Requests in a second.
    Rate,
    /// 10^6 bytes in a second.
    Megabytes,
}

/// What the parity of an array is when writes to it are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Right everywhere.
    Full,
    /// Not right everywhere, though every region has been written to.
    Partial,
    /// Of an array nobody has written to.
    Cold,
}

/// All states with their words.
const STATES: [(&str, State); 3] = [
    ("full", State::Full),
    ("partial", State::Partial),
    ("cold", State::Cold),
];

impl State {
    /// In words.
    pub fn word(self) -> &'static str {
        STATES
            .iter()
            .find(|(_, state)| *state == self)
            .map_or("", |(word, _)| word)
    }
}

impl Group {
    /// Whether it is about writes, which have tables of their own.
    pub fn is_of_writes(self) -> bool {
        matches!(
            self,
            Group::Raid5Chunk64 | Group::Raid5Chunk512 | Group::Raid6Chunk64 | Group::Raid6Chunk512
        )
    }

    /// What its numbers are; those of writes depend on the cell.
    pub fn measure(self) -> Measure {
        match self {
            Group::Closed => Measure::Rate,
            Group::Stream => Measure::Megabytes,
            _ if self.is_of_writes() => Measure::Rate,
            _ => Measure::Latency,
        }
    }
}

/// A mean and a 99th percentile in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanAndTail {
    /// The mean.
    pub mean: f64,
    /// The 99th percentile.
    pub p99: f64,
}

/// One cell.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Its name.
    pub name: String,
    /// The table it belongs to.
    pub group: Group,
    /// What is the matter with the drives, in words.
    pub label: String,
    /// The size of a request as written: 8K.
    pub size: String,
    /// Requests under way, in a closed loop.
    pub in_flight: Option<u32>,
    /// What the parity is, where writes are measured.
    pub state: Option<State>,
    /// One request behind the other instead of anywhere.
    pub sequential: bool,
    /// Requests in all, those of the warm-up included.
    pub count: Option<u64>,
    /// What md must show, in the group's measure.
    pub want: Option<f64>,
    /// What md shows at the 99th percentile in the reference, milliseconds.
    pub want_p99: Option<f64>,
    /// How far md may be from `want`, in percent.
    pub within: Option<f64>,
    /// What the eRAID authors' real drives showed.
    pub authors: Option<MeanAndTail>,
}

impl Cell {
    /// What its number is.
    pub fn measure(&self) -> Measure {
        match self.group.measure() {
            Measure::Rate if self.sequential && self.size != "4K" => Measure::Megabytes,
            measure => measure,
        }
    }
}

/// Keys that others look at.
const GUEST_KEYS: [&str; 14] = [
    "every",
    "warm_up",
    "align",
    "fail",
    "stall",
    "repeat",
    "only",
    "level",
    "chunk",
    "bitmap",
    "bitmap_chunk",
    "write_percent",
    "fsync",
    "memory",
];

/// Reads the table: each cell with its line.
pub fn parse(text: &str) -> Result<Vec<(String, Cell)>, String> {
    let mut cells: Vec<(String, Cell)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let cell = parse_line(line).map_err(|what| format!("line {}: {what}", index + 1))?;
        if cells.iter().any(|(_, other)| other.name == cell.name) {
            return Err(format!("line {}: a second '{}'", index + 1, cell.name));
        }
        cells.push((line.into(), cell));
    }
    Ok(cells)
}

fn pair(key: &str, text: &str) -> Result<MeanAndTail, String> {
    let (mean, p99) = text
        .split_once('/')
        .ok_or_else(|| format!("{key}={text} is not MEAN/P99"))?;
    Ok(MeanAndTail {
        mean: number(key, mean)?,
        p99: number(key, p99)?,
    })
}

fn parse_line(line: &str) -> Result<Cell, String> {
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !name.chars().all(allowed) {
        return Err(format!("'{name}' is not a name"));
    }
    let (mut group, mut label, mut size) = (None, None, None);
    let (mut in_flight, mut want, mut want_p99) = (None, None, None);
    let (mut within, mut authors) = (None, None);
    let (mut state, mut sequential, mut count) = (None, false, None);
    for word in pairs(rest) {
        let (key, value) = word?;
        match key {
            "group" => group = Some(named(key, value, &GROUPS)?),
            "state" => state = Some(named(key, value, &STATES)?),
            "sequential" => sequential = true,
            "count" => count = Some(number(key, value)?),
            "label" => label = Some(value.replace('_', " ")),
            "size" => size = Some(value.to_string()),
            "in_flight" => in_flight = Some(number(key, value)?),
            "want" => want = Some(number(key, value)?),
            "want_p99" => want_p99 = Some(number(key, value)?),
            "within" => within = Some(number(key, value)?),
            "authors" => authors = Some(pair(key, value)?),
            _ if key.starts_with("all.") || key.starts_with("one.") => (),
            _ if GUEST_KEYS.contains(&key) => (),
            _ => return Err(format!("unknown key '{key}'")),
        }
    }
    let group: Group = group.ok_or("no group=")?;
    if group.is_of_writes() {
        state.ok_or("no state=")?;
        count.ok_or("no count=")?;
    } else {
        want.ok_or("no want=")?;
    }
    Ok(Cell {
        name: name.into(),
        group,
        label: label.ok_or("no label=")?,
        size: size.ok_or("no size=")?,
        in_flight,
        state,
        sequential,
        count,
        want,
        want_p99,
        within,
        authors,
    })
}
