// SPDX-License-Identifier: GPL-2.0

//! What the results of a cell on a stack come to, over all seeds.

use crate::failslow::cells::Cell;
use crate::failslow::results::{Results, Row};
use crate::failslow::stacks::{Stack, FIXED};

/// Means over seeds; milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The mean latency.
    pub mean: f64,
    /// Percentiles of each seed, averaged.
    pub p50: f64,
    /// See `p50`.
    pub p99: f64,
    /// See `p50`.
    pub p999: f64,
    /// The longest of all.
    pub max: f64,
    /// Requests that failed, in all.
    pub errors: f64,
    /// Whether the array kept up, with every seed.
    pub is_steady: bool,
}

impl Summary {
    /// Of a cell on a stack, if that was run.
    pub fn of(results: &Results, cell: Cell, stack: Stack) -> Option<Self> {
        let rows = results.of(cell, stack);
        if rows.is_empty() {
            return None;
        }
        let sum = |column: &str| rows.iter().map(|row| row.number(column)).sum::<f64>();
        let mean = |column: &str| sum(column) / rows.len() as f64 / 1e3;
        let max = rows.iter().map(|row| row.number("max_us") / 1e3);
        Some(Summary {
            mean: mean("mean_us"),
            p50: mean("p50_us"),
            p99: mean("p99_us"),
            p999: mean("p999_us"),
            max: max.fold(0.0, f64::max),
            errors: sum("errors"),
            is_steady: rows.iter().all(|row| row.is_steady()),
        })
    }
}

/// A column for each request, the warm-up included: of a cell on a stack, over all seeds.
pub fn per_request(rows: &[&Row], column: &str) -> f64 {
    let counted: f64 = rows.iter().map(|row| row.number(column)).sum();
    let requests: f64 = rows.iter().map(|row| row.all_requests()).sum();
    counted / requests.max(1.0)
}

/// The ratio of two means, over the seeds that both have.
pub fn ratio(results: &Results, one: (Cell, Stack), base: (Cell, Stack)) -> Option<f64> {
    let others = results.of(base.0, base.1);
    let (mut sum, mut base_sum) = (0.0, 0.0);
    for row in results.of(one.0, one.1) {
        let other = others.iter().find(|other| other.seed() == row.seed());
        if let Some(other) = other {
            sum += row.number("mean_us");
            base_sum += other.number("mean_us");
        }
    }
    (base_sum > 0.0).then(|| sum / base_sum)
}

/// The fixed policy of eRAID that has the smallest mean of those that keep up.
pub fn best_fixed(results: &Results, cell: Cell) -> Option<Stack> {
    let steady = FIXED.into_iter().filter_map(|stack| {
        let summary = Summary::of(results, cell, stack)?;
        summary.is_steady.then_some((stack, summary.mean))
    });
    let best = steady.min_by(|one, other| one.1.total_cmp(&other.1))?;
    Some(best.0)
}

/// Whether the cell was run with all fixed policies.
pub fn has_fixed(results: &Results, cell: Cell) -> bool {
    let runs = |stack| !results.of(cell, stack).is_empty();
    FIXED.into_iter().all(runs)
}
