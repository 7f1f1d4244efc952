// SPDX-License-Identifier: GPL-2.0

//! All numbers of a benchmark, one line for each cell and array.

use crate::outcome::ARRAYS;
use crate::verdict::{deviation, Verdict};
use crate::Row;
use std::fmt::Write;

/// Words of the guests' output that become columns as they are.
const COLUMNS: [&str; 21] = [
    "kernel",
    "drive_seed",
    "drives",
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
    "MBps",
    "digest",
    "mode",
];

/// The file's text. `drives` is a hash over all parameters and seeds of all drives, `digest` one
/// over every request's latency and result.
pub fn all(rows: &[Row]) -> String {
    let mut text = String::from("cell,array");
    for column in COLUMNS {
        text += ",";
        text += column;
    }
    text += ",want,within_percent,deviation_percent,verdict\n";
    for row in rows {
        for array in ARRAYS {
            let Some(outcome) = row.on(array) else {
                continue;
            };
            text += &row.cell.name;
            text += ",";
            text += array.word();
            for column in COLUMNS {
                text += ",";
                text += outcome.word(column);
            }
            let cell = &row.cell;
            let within = cell.within.map(|within| within.to_string());
            // Only md is held to the numbers.
            let verdict = match array {
                crate::Array::Md => Verdict::of(cell, Some(outcome)),
                crate::Array::Eraid => None,
            };
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                ",{},{},{:.2},{}",
                cell.want,
                within.unwrap_or_default(),
                deviation(cell, outcome),
                verdict.map_or("", Verdict::word)
            );
        }
    }
    text
}
