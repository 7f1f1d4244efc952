// SPDX-License-Identifier: GPL-2.0

//! All numbers of a benchmark, one line for each cell and array.

use crate::cells::Cell;
use crate::outcome::{Array, Outcome, ARRAYS, MEASURES};
use crate::verdict::{deviation, Verdict};
use crate::Row;

/// Words of the guests' output that become columns as they are.
fn columns() -> impl Iterator<Item = &'static str> {
    let first = ["kernel", "drive_seed", "drives"].into_iter();
    first.chain(MEASURES).chain(["MBps", "digest", "mode"])
}

/// The file's text. `drives` is a hash over all parameters and seeds of all drives, `digest` one
/// over every request's latency and result.
pub fn all(rows: &[Row]) -> String {
    let mut text = String::from("cell,array");
    for column in columns() {
        text += ",";
        text += column;
    }
    let of_writes = rows.iter().any(|row| row.cell.group.is_of_writes());
    text += match of_writes {
        true => ",member_reads,member_writes,member_flushes\n",
        false => ",want,within_percent,deviation_percent,verdict\n",
    };
    for row in rows {
        for array in ARRAYS {
            let Some(outcome) = row.on(array) else {
                continue;
            };
            text += &row.cell.name;
            text += ",";
            text += array.word();
            for column in columns() {
                text += ",";
                text += outcome.word(column);
            }
            text += &match of_writes {
                true => members(outcome),
                false => against(&row.cell, array, outcome),
            };
            text += "\n";
        }
    }
    text
}

fn members(outcome: &Outcome) -> String {
    let [reads, writes, flushes] =
        ["reads", "writes", "flushes"].map(|counter| outcome.drives(counter));
    format!(",{reads},{writes},{flushes}")
}

/// What is wanted of md, and whether it is so; eRAID is not held to the numbers.
fn against(cell: &Cell, array: Array, outcome: &Outcome) -> String {
    let verdict = match array {
        Array::Md => Verdict::of(cell, Some(outcome)),
        Array::Eraid => None,
    };
    let number = |number: Option<f64>| number.map(|n| n.to_string()).unwrap_or_default();
    let off = deviation(cell, outcome).map(|off| format!("{off:.2}"));
    format!(
        ",{},{},{},{}",
        number(cell.want),
        number(cell.within),
        off.unwrap_or_default(),
        verdict.map_or("", Verdict::word)
    )
}
