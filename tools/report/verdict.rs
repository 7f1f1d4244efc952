// SPDX-License-Identifier: GPL-2.0

//! Whether md shows what it must.

use crate::cells::{Cell, Measure};
use crate::outcome::Outcome;

/// The verdict on a cell that has a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is within the limit, and no request failed.
    Met,
    /// It is not, or it was not measured.
    NotMet,
}

impl Verdict {
    /// The verdict; none for a cell without a limit.
    pub fn of(cell: &Cell, md: Option<&Outcome>) -> Option<Self> {
        let within = cell.within?;
        let met = md.is_some_and(|md| {
            let errors = md.number("errors");
            errors == 0.0 && deviation(cell, md).is_some_and(|off| off.abs() <= within)
        });
        Some(if met { Verdict::Met } else { Verdict::NotMet })
    }

    /// In words.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::NotMet => "NOT MET",
        }
    }
}

/// A cell's number on an array, in its measure.
pub fn measured(cell: &Cell, outcome: &Outcome) -> f64 {
    match cell.measure() {
        Measure::Latency => outcome.ms("mean"),
        Measure::Rate => outcome.number("rate"),
        Measure::Megabytes => outcome.number("MBps"),
    }
}

/// How far that is from what is wanted, in percent.
pub fn deviation(cell: &Cell, outcome: &Outcome) -> Option<f64> {
    let want = cell.want?;
    Some((measured(cell, outcome) / want - 1.0) * 100.0)
}
