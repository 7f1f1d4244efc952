// SPDX-License-Identifier: GPL-2.0

//! What reading must reach, and whether it does.

use crate::failslow::cells::{self, fails, well, Cell, Drives, Set, Trouble, SIZES, TURNS};
use crate::failslow::results::Results;
use crate::failslow::stacks::Stack;
use crate::failslow::summary::{best_fixed, has_fixed, per_request, ratio, Summary};
use crate::table::{short, Table};

/// Fewer requests say too little about a mean; such results are left out.
const REQUESTS: f64 = 20_000.0;

/// A requirement.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its number in the list of requirements.
    pub number: u32,
    /// What is looked at.
    pub what: String,
    /// The limit.
    pub limit: String,
    /// What was measured.
    pub is: String,
    /// Whether it is reached; nothing if not all of it was measured.
    pub met: Option<bool>,
}

/// How far `auto` may be from the best fixed policy in a cell of the grid, held out on average,
/// and held out in a cell.
const OF_BEST: f64 = 1.05;
const HELD_OUT_MEAN: f64 = 1.10;
const HELD_OUT_WORST: f64 = 1.25;

/// A submission that takes longer than this, in ms, was held up.
const BLOCKED_MS: f64 = 1.0;

/// All requirements.
pub fn lines(results: &Results) -> Vec<Line> {
    let results = &results.with_requests(REQUESTS);
    let mut lines = Vec::new();
    for kib in SIZES {
        let limit = if kib == 80 { 0.95 } else { 1.01 };
        lines.push(against_base(results, 1, well(kib), limit));
    }
    for (kib, limit) in [(24, 1.40), (40, 1.50), (80, 1.60)] {
        let trouble = fails(5, 2, Drives::All);
        let cell = Cell {
            trouble,
            ..well(kib)
        };
        lines.push(against_base(results, 2, cell, limit));
    }
    for turns in TURNS {
        for kib in SIZES {
            let trouble = fails(turns, 10, Drives::One);
            let cell = Cell {
                trouble,
                ..well(kib)
            };
            lines.push(against_base(results, 3, cell, 1.25));
        }
    }
    lines.push(of_grid(results));
    lines.extend(held_out(results));
    for times in [10, 100] {
        lines.push(slow(results, times));
    }
    for (kib, limit) in SIZES.into_iter().zip([700.0, 900.0, 1200.0, 1400.0]) {
        lines.push(hung(results, kib, limit));
    }
    lines.push(blocked(results));
    lines.push(errors(results));
    lines.push(hedges(results));
    lines
}

fn times(ratio: f64) -> String {
    format!("{ratio:.3} x")
}

/// auto against md on drives that do not retry.
fn against_base(results: &Results, number: u32, cell: Cell, limit: f64) -> Line {
    let ratio = ratio(results, (cell, Stack::Auto), (well(cell.kib), Stack::Md));
    let auto = Summary::of(results, cell, Stack::Auto);
    let steady = auto.is_some_and(|auto| auto.is_steady);
    let drives = match cell.trouble {
        Trouble::Fails {
            drives: Drives::One,
            ..
        } => ", one drive",
        _ => "",
    };
    Line {
        number,
        what: format!("{}, {}{drives}", cell.size(), cell.trouble.label()),
        limit: format!("{limit:.2} x md without retries"),
        is: match ratio {
            Some(ratio) if steady => times(ratio),
            Some(ratio) => format!("{}, not steady", times(ratio)),
            None => "-".into(),
        },
        met: ratio.map(|ratio| steady && rounded(ratio) <= limit),
    }
}

/// As it is printed: what looks like the limit is within it.
fn rounded(ratio: f64) -> f64 {
    (ratio * 1000.0).round() / 1000.0
}

/// auto against the best fixed policy: cells where one of them keeps up.
struct AgainstBest {
    /// Each cell with its ratio; infinite where auto does not keep up.
    ratios: Vec<(Cell, f64)>,
    /// Cells that were not measured, or not with everything.
    missing: usize,
}

impl AgainstBest {
    fn of(results: &Results, wanted: impl Fn(&Cell) -> bool) -> Self {
        let (mut ratios, mut missing) = (Vec::new(), 0);
        for cell in cells::all().into_iter().filter(wanted) {
            let auto = Summary::of(results, cell, Stack::Auto);
            let Some(auto) = auto.filter(|_| has_fixed(results, cell)) else {
                missing += 1;
                continue;
            };
            let Some(best) = best_fixed(results, cell) else {
                continue;
            };
            let ratio = ratio(results, (cell, Stack::Auto), (cell, best));
            match ratio.filter(|_| auto.is_steady) {
                Some(ratio) => ratios.push((cell, ratio)),
                None => ratios.push((cell, f64::INFINITY)),
            }
        }
        AgainstBest { ratios, missing }
    }

    fn worst(&self) -> Option<(Cell, f64)> {
        let all = self.ratios.iter().copied();
        all.max_by(|one, other| one.1.total_cmp(&other.1))
    }

    /// Whether something holds, if all was measured.
    fn verdict(&self, met: bool) -> Option<bool> {
        (self.missing == 0 && !self.ratios.is_empty()).then_some(met)
    }

    fn worst_line(&self, what: &str, limit: f64) -> Line {
        let above = self.ratios.iter().filter(|of| rounded(of.1) > limit);
        let above = above.count();
        let measured = match self.worst() {
            Some((cell, worst)) => format!(
                "{above} of {} above, worst {} in {}",
                self.ratios.len(),
                times(worst),
                cell.name()
            ),
            None => "-".into(),
        };
        let missing = match self.missing {
            0 => String::new(),
            missing => format!(", {missing} not measured"),
        };
        Line {
            number: 4,
            what: what.into(),
            limit: format!("{limit:.2} x the best fixed policy, in every cell"),
            is: measured + &missing,
            met: self.verdict(above == 0),
        }
    }
}

fn of_grid(results: &Results) -> Line {
    AgainstBest::of(results, |cell| cell.set == Set::Grid).worst_line("grid", OF_BEST)
}

fn held_out(results: &Results) -> [Line; 2] {
    let cells = AgainstBest::of(results, |cell| cell.set.is_held_out());
    let sum: f64 = cells.ratios.iter().map(|of| of.1).sum();
    let mean = sum / cells.ratios.len() as f64;
    let of_mean = Line {
        number: 4,
        what: "held out, on average".into(),
        limit: format!("{HELD_OUT_MEAN:.2} x the best fixed policy"),
        is: match cells.ratios.is_empty() {
            true => "-".into(),
            false => times(mean),
        },
        met: cells.verdict(rounded(mean) <= HELD_OUT_MEAN),
    };
    [of_mean, cells.worst_line("held out", HELD_OUT_WORST)]
}

fn slow(results: &Results, factor: u32) -> Line {
    let trouble = Trouble::Slow(factor);
    let cell = Cell {
        set: Set::Slow,
        trouble,
        ..well(8)
    };
    let ratio = ratio(results, (cell, Stack::Auto), (well(8), Stack::MdFailed));
    Line {
        number: 5,
        what: format!("{}, {}", cell.size(), trouble.label()),
        limit: "1.10 x md with that member failed".into(),
        is: ratio.map_or("-".into(), times),
        met: ratio.map(|ratio| rounded(ratio) <= 1.1),
    }
}

fn of_hung(kib: u32) -> Cell {
    Cell {
        set: Set::Hung,
        trouble: Trouble::Hung,
        ..well(kib)
    }
}

fn hung(results: &Results, kib: u32, limit: f64) -> Line {
    let cell = of_hung(kib);
    let max = Summary::of(results, cell, Stack::Auto).map(|auto| auto.max);
    Line {
        number: 6,
        what: format!("{}, {}", cell.size(), cell.trouble.label()),
        limit: format!("longest {} ms", short(limit)),
        is: max.map_or("-".into(), |max| format!("{} ms", short(max))),
        met: max.map(|max| max <= limit),
    }
}

fn blocked(results: &Results) -> Line {
    let rows = || {
        let cells = SIZES.into_iter().map(of_hung);
        cells.flat_map(|cell| results.of(cell, Stack::Auto))
    };
    let lags = rows().map(|row| row.number("lag_max_us") / 1e3);
    let lag = lags.max_by(f64::total_cmp);
    Line {
        number: 6,
        what: "one hangs: the longest that a request waited to be taken".into(),
        limit: format!("{} ms", short(BLOCKED_MS)),
        is: lag.map_or("-".into(), |lag| format!("{lag:.3} ms")),
        met: lag.map(|lag| lag <= BLOCKED_MS),
    }
}

fn errors(results: &Results) -> Line {
    let of_eraid = results.iter().filter(|(key, _)| key.stack.is_eraid());
    let (mut runs, mut errors) = (0, 0.0);
    for (_, row) in of_eraid {
        runs += 1;
        errors += row.number("errors");
    }
    Line {
        number: 6,
        what: "failed requests, all of eRAID's runs".into(),
        limit: "0".into(),
        is: format!("{errors} in {runs} runs"),
        met: (runs > 0).then_some(errors == 0.0),
    }
}

fn hedges(results: &Results) -> Line {
    let well = cells::all()
        .into_iter()
        .filter(|cell| cell.trouble == Trouble::Well);
    let shares = well.filter_map(|cell| {
        let rows = results.of(cell, Stack::Auto);
        (!rows.is_empty()).then(|| (cell, per_request(&rows, "reads_hedged")))
    });
    let most = shares.max_by(|one, other| one.1.total_cmp(&other.1));
    Line {
        number: 6,
        what: "hedged reads where nothing is the matter".into(),
        limit: "1% of the requests".into(),
        is: match most {
            Some((cell, share)) => format!("{:.2}% in {}", share * 100.0, cell.name()),
            None => "-".into(),
        },
        met: most.map(|(_, share)| share <= 0.01),
    }
}

/// The requirements as a table.
pub fn table(results: &Results) -> Table {
    let mut table = Table::new(&["no.", "what", "limit", "measured", "met"]);
    for line in lines(results) {
        let met = match line.met {
            Some(true) => "met",
            Some(false) => "NOT MET",
            None => "-",
        };
        table.0.push(vec![
            line.number.to_string(),
            line.what,
            line.limit,
            line.is,
            met.into(),
        ]);
    }
    table
}
