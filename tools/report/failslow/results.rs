// SPDX-License-Identifier: GPL-2.0

//! All results: a CSV file, to which every run adds its lines.

use crate::failslow::cells::{Cell, WARM_UP};
use crate::failslow::stacks::Stack;
use crate::outcome::{keeps_up, Outcome, MEASURES};
use std::collections::BTreeMap;

/// What tells results apart; a new one replaces that of the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The cell.
    pub cell: Cell,
    /// What it ran on.
    pub stack: Stack,
    /// Of drives, arrivals and places.
    pub seed: u64,
}

/// Columns of eRAID's own counters, by the names of their files; 0 on md.
pub const COUNTERS: [&str; 11] = [
    "reads_normal",
    "reads_failfast",
    "reads_proactive",
    "reads_avoided",
    "reads_left_out",
    "reads_hedged",
    "reads_removed",
    "reads_promoted",
    "reads_fallback",
    "reads_repaired",
    "reads_extra",
];

/// Columns that are sums over all drives, with the drives' names for them.
const OF_DRIVES: [(&str, &str); 5] = [
    ("member_reads", "reads"),
    ("member_writes", "writes"),
    ("unrecovered_reads", "unrecovered_reads"),
    ("recovered_sectors", "recovered_sectors"),
    ("busy_us", "busy_us"),
];

/// Columns that are words of the guest's output, besides what is measured of each load: a number,
/// and texts.
const DEGRADED: &str = "degraded";
const WORDS_TEXT: [&str; 3] = ["kernel", "drives", "digest"];

/// Numbers that the guest's output has as they are.
fn words() -> impl Iterator<Item = &'static str> {
    MEASURES.into_iter().chain([DEGRADED])
}

/// Columns whose values are numbers.
fn numbers() -> impl Iterator<Item = &'static str> {
    let of_drives = OF_DRIVES.iter().map(|(column, _)| *column);
    words().chain(of_drives).chain(COUNTERS)
}

/// All columns but those of the key's cell and stack, in their order.
fn columns() -> impl Iterator<Item = &'static str> {
    ["commit"].into_iter().chain(WORDS_TEXT).chain(numbers())
}

/// One result: a value for each column.
#[derive(Clone, Debug)]
pub struct Row(BTreeMap<&'static str, String>);

impl Row {
    /// From what a guest printed.
    pub fn measured(outcome: &Outcome, commit: &str) -> Result<Self, String> {
        let mut values = BTreeMap::from([("commit", commit.to_string())]);
        for column in words().chain(WORDS_TEXT) {
            values.insert(column, outcome.word(column).to_string());
        }
        for (column, counter) in OF_DRIVES {
            values.insert(column, format!("{}", outcome.drives(counter)));
        }
        for column in COUNTERS {
            let counted = outcome.word(column);
            let counted = if counted.is_empty() { "0" } else { counted };
            values.insert(column, counted.to_string());
        }
        Self::checked(values)
    }

    /// If all numbers are there, and none of the texts would break the file.
    fn checked(values: BTreeMap<&'static str, String>) -> Result<Self, String> {
        let row = Row(values);
        for column in numbers() {
            if !row.number(column).is_finite() {
                return Err(format!("no number {column}="));
            }
        }
        if row.0.values().any(|text| text.contains([',', '\n'])) {
            return Err("a comma in a value".into());
        }
        Ok(row)
    }

    /// A column's text.
    pub fn text(&self, column: &str) -> &str {
        self.0.get(column).map_or("", String::as_str)
    }

    /// A column's number, one of those that every row has.
    pub fn number(&self, column: &str) -> f64 {
        self.text(column).parse().unwrap_or(f64::NAN)
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.number("seed") as u64
    }

    /// Requests that count, with those that failed.
    pub fn requests(&self) -> f64 {
        self.number("requests") + self.number("errors")
    }

    /// The same with those of the warm-up, as drives and counters have seen them.
    pub fn all_requests(&self) -> f64 {
        self.requests() + f64::from(WARM_UP)
    }

    /// Whether the array kept up with the load.
    pub fn is_steady(&self) -> bool {
        let half = |half: &str| self.number(&format!("{half}_half_mean_us"));
        keeps_up(half("first"), half("second"))
    }
}

/// All results, in the order of the report.
#[derive(Clone, Debug, Default)]
pub struct Results(BTreeMap<Key, Row>);

impl Results {
    /// Adds a result, or replaces it.
    pub fn add(&mut self, key: Key, row: Row) {
        self.0.insert(key, row);
    }

    /// Adds all of `others`.
    pub fn merge(&mut self, others: Results) {
        self.0.extend(others.0);
    }

    /// All results with their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Row)> {
        self.0.iter()
    }

    /// The results of a cell on a stack, one for each seed.
    pub fn of(&self, cell: Cell, stack: Stack) -> Vec<&Row> {
        let of_it = |(key, _): &(&Key, &Row)| key.cell == cell && key.stack == stack;
        self.iter().filter(of_it).map(|(_, row)| row).collect()
    }

    /// Those of at least so many requests.
    pub fn with_requests(&self, least: f64) -> Self {
        let mut results = self.clone();
        results.0.retain(|_, row| row.requests() >= least);
        results
    }

    /// All values of a column.
    pub fn texts(&self, column: &str) -> Vec<String> {
        let mut texts: Vec<_> = self.0.values().map(|row| row.text(column).into()).collect();
        texts.sort();
        texts.dedup();
        texts
    }

    /// As CSV.
    pub fn csv(&self) -> String {
        let mut text = head() + "\n";
        for (key, row) in &self.0 {
            text += &format!("{},{}", key.cell.name(), key.stack.word());
            for column in columns() {
                text += ",";
                text += row.text(column);
            }
            text += "\n";
        }
        text
    }

    /// Reads what [`Self::csv`] wrote.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines();
        if lines.next() != Some(&head()) {
            return Err("these are other columns than those of this version".into());
        }
        let mut results = Results::default();
        for (index, line) in lines.enumerate() {
            let (key, row) =
                parse_line(line).map_err(|what| format!("line {}: {what}", index + 2))?;
            results.add(key, row);
        }
        Ok(results)
    }
}

fn head() -> String {
    columns().fold("cell,stack".into(), |head, column| head + "," + column)
}

fn parse_line(line: &str) -> Result<(Key, Row), String> {
    let mut fields = line.split(',');
    let mut next = || fields.next().ok_or("a field is missing");
    let (cell, stack) = (Cell::named(next()?)?, Stack::named(next()?)?);
    let mut values = BTreeMap::new();
    for column in columns() {
        values.insert(column, next()?.to_string());
    }
    if next().is_ok() {
        return Err("too many fields".into());
    }
    let row = Row::checked(values)?;
    let seed = row.seed();
    Ok((Key { cell, stack, seed }, row))
}
