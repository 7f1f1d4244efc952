// SPDX-License-Identifier: GPL-2.0

//! The tables of writes: throughput of both arrays, and what their drives had to do for it.

use crate::cells::{Measure, State};
use crate::outcome::{Array, Outcome, ARRAYS};
use crate::table::{dash, short, Table};
use crate::verdict::measured;
use crate::Row;

/// What the numbers are.
pub const NUMBERS: &str =
    "MB/s of sequential loads but those of 4 KiB, else requests per second; latencies are in \
     simulated milliseconds, mean / 99%. *r + w + f* are the reads, writes and flushes that all \
     drives together got for one request of the load, *reads* the share of reads among reads and \
     writes. Where the parity is not right everywhere md's initial resync has not begun, so that it \
     has to compute parity from all data as well; *: in sync* compares with md after its resync.";

/// Sequential writes of 64 KiB may need so many reads at most, in percent of all commands.
const READS_MAX: f64 = 1.0;

/// Commands to all drives during a load.
struct Members {
    reads: f64,
    writes: f64,
    flushes: f64,
}

impl Members {
    /// The drives' counters, summed up.
    fn of(outcome: &Outcome) -> Self {
        Members {
            reads: outcome.drives("reads"),
            writes: outcome.drives("writes"),
            flushes: outcome.drives("flushes"),
        }
    }

    /// Reads among reads and writes, in percent.
    fn reads_percent(&self) -> f64 {
        100.0 * self.reads / (self.reads + self.writes).max(1.0)
    }
}

/// `eRAID : md` with its mark, rounded before it is compared.
fn ratio(row: &Row, md: Option<&Outcome>, marked: bool) -> String {
    dash(md.zip(row.eraid.as_ref()).map(|(md, eraid)| {
        let ratio = measured(&row.cell, eraid) / measured(&row.cell, md);
        let mark = if marked && is_below(ratio) {
            " BELOW"
        } else {
            ""
        };
        format!("{ratio:.3}{mark}")
    }))
}

fn is_below(ratio: f64) -> bool {
    (ratio * 1000.0).round() < 1000.0
}

fn speed(row: &Row, outcome: &Outcome) -> String {
    let mut text = short(measured(&row.cell, outcome));
    text += match row.cell.measure() {
        Measure::Megabytes => " MB/s",
        _ => " /s",
    };
    if outcome.number("errors") > 0.0 {
        text += &format!(", {} failed", outcome.word("errors"));
    }
    text
}

fn latency(outcome: &Outcome) -> String {
    format!(
        "{} / {}",
        short(outcome.ms("mean")),
        short(outcome.ms("p99"))
    )
}

fn commands(row: &Row, members: &Members) -> String {
    let count = row.cell.count.unwrap_or(1) as f64;
    let each = |commands: f64| format!("{:.2}", commands / count);
    let Members {
        reads,
        writes,
        flushes,
    } = *members;
    [reads, writes, flushes].map(each).join(" + ")
}

fn reads(row: &Row, array: Array, members: &Members) -> String {
    let percent = members.reads_percent();
    let held = array == Array::Eraid && row.cell.sequential && row.cell.size == "64K";
    let mark = if held && percent > READS_MAX {
        " ABOVE"
    } else {
        ""
    };
    format!("{percent:.1}%{mark}")
}

/// The same load on md when its parity is right.
fn in_sync<'a>(rows: &[&'a Row], row: &Row) -> Option<&'a Outcome> {
    let same =
        |other: &&&Row| other.cell.label == row.cell.label && other.cell.state == Some(State::Full);
    rows.iter().find(same)?.md.as_ref()
}

/// The table of one group.
pub fn table(rows: &[&Row]) -> Table {
    let mut table = Table::new(&[
        "load, under way",
        "parity",
        "md",
        "eRAID",
        "eRAID : md",
        ": in sync",
        "md, ms",
        "eRAID, ms",
        "md, r + w + f",
        "eRAID, r + w + f",
        "md, reads",
        "eRAID, reads",
    ]);
    for row in rows {
        let state = row.cell.state;
        let each = |text: &dyn Fn(Array, &Outcome) -> String| {
            ARRAYS.map(|array| dash(row.on(array).map(|outcome| text(array, outcome))))
        };
        let synced = in_sync(rows, row).filter(|_| state != Some(State::Full));
        let mut line = vec![row.cell.label.clone(), state.map_or("", State::word).into()];
        line.extend(each(&|_, outcome| speed(row, outcome)));
        line.push(ratio(row, row.md.as_ref(), true));
        line.push(ratio(row, synced, false));
        line.extend(each(&|_, outcome| latency(outcome)));
        line.extend(each(&|_, outcome| commands(row, &Members::of(outcome))));
        line.extend(each(&|array, outcome| {
            reads(row, array, &Members::of(outcome))
        }));
        table.0.push(line);
    }
    table
}
