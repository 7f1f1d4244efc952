// SPDX-License-Identifier: GPL-2.0

//! The grid: one or two members become slow, in all ways, in all arrays. How soon are they found, and
//! who else is?

use crate::array::{run, Setup};
use crate::load::{Fault, Rig, Shape, SECOND};
use crate::service::Services;
use crate::{Common, Which};
use clap::Args;
use std::io::Write;
use std::path::PathBuf;

/// When members become slow: after all is known of them, and in a phase of full load.
const ONSET: u64 = 310 * SECOND;

/// Makes members slow and says how soon they are found.
#[derive(Args, Debug, Clone)]
pub struct Grid {
    #[command(flatten)]
    pub common: Common,
    /// How many times as long slow members take.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1.12,1.5,2,3,4,8,30,1000"
    )]
    pub factor: Vec<f64>,
    /// How they become slow; a hang has no factor.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "constant,duty,growing,hang"
    )]
    pub shape: Vec<Shape>,
    /// How many of them.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    pub slow: Vec<usize>,
    /// How long to wait for them to be found, in seconds.
    #[arg(long, default_value_t = 600)]
    pub wait: u64,
    /// Slow members get one read in so many.
    #[arg(long, default_value_t = 1)]
    pub left_out: u64,
    /// Where to write a line for each cell.
    #[arg(long)]
    pub csv: Option<PathBuf>,
    /// Says what was found where it should not have been, or not found where it should.
    #[arg(long)]
    pub misses: bool,
}

/// A cell of the grid.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    pub which: Which,
    pub rig: Rig,
    pub width: usize,
    pub slow: usize,
    pub shape: Shape,
    pub factor: f64,
    pub seed: u64,
}

/// What became of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Score {
    /// Slow members that were found.
    pub found: usize,
    /// When the last one was, in seconds of reads: the reads since it counts, of the array, over its
    /// usual rate. While nothing is read nobody waits, and nothing can be known.
    pub after: f64,
    /// Other members that were found.
    pub wrong: usize,
}

impl Cell {
    /// Whether a detector can know: the slow ones are fewer than half of the members they are
    /// compared with, or half at most of two or more.
    pub fn is_decidable(&self) -> bool {
        let peers = self.peers();
        peers >= 2 && self.slow * 2 <= peers
    }

    /// Members of the slow ones' class.
    fn peers(&self) -> usize {
        let media = self.rig.media(self.slots()[0], self.width);
        (0..self.width)
            .filter(|slot| self.rig.media(*slot, self.width) == media)
            .count()
    }

    /// The slow ones: hard drives with odd seeds, in mixed arrays flash with even ones.
    fn slots(&self) -> Vec<usize> {
        let from_end = self.rig == Rig::Mixed && self.seed % 2 == 0;
        let slot = |n| if from_end { self.width - 1 - n } else { n };
        (0..self.slow).map(slot).collect()
    }

    /// Seconds within which it has to be found.
    pub fn target(&self) -> Option<f64> {
        match (self.shape, self.factor) {
            (Shape::Hang, _) => Some(10.0),
            (Shape::Constant, factor) if factor >= 4.0 => Some(10.0),
            (Shape::Constant | Shape::Growing, factor) if factor >= 2.0 => Some(120.0),
            // 2.2 times as slow on average.
            (Shape::Duty, factor) if factor >= 4.0 => Some(120.0),
            _ => None,
        }
    }

    /// Whether it must not be found at all.
    pub fn is_harmless(&self) -> bool {
        self.shape != Shape::Hang && self.factor < 1.2
    }
}

impl Grid {
    /// Runs all cells and prints the tables.
    pub fn run(&self, services: &Services) {
        let mut csv = self.csv.as_ref().map(|path| {
            let file = std::fs::File::create(path).expect("a file to write to");
            let mut file = std::io::BufWriter::new(file);
            writeln!(
                file,
                "detector,rig,width,slow,shape,factor,seed,found,after_s,wrong"
            )
            .expect("room for a line");
            file
        });
        println!("seeds {:?}, {} reads/s", self.common.seed, self.common.rate);
        for &which in &self.common.detector {
            let cells = self.cells(which);
            let scores: Vec<(Cell, Score)> = cells
                .into_iter()
                .map(|cell| (cell, self.score(&cell, services)))
                .collect();
            for (cell, score) in &scores {
                if let Some(csv) = &mut csv {
                    writeln!(csv, "{}", line(cell, score)).expect("room for a line");
                }
                if self.misses && is_missed(cell, score) {
                    println!("missed: {}", line(cell, score));
                }
            }
            table(which, &scores);
        }
    }

    /// All cells that make sense.
    pub fn cells(&self, which: Which) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &rig in &self.common.rig {
            for &width in &self.common.width {
                for &slow in self.slow.iter().filter(|&&slow| slow < width) {
                    for &shape in &self.shape {
                        let hang = [f64::INFINITY];
                        let factors: &[f64] = match shape {
                            Shape::Hang => &hang,
                            _ => &self.factor,
                        };
                        for &factor in factors {
                            for &seed in &self.common.seed {
                                cells.push(Cell {
                                    which,
                                    rig,
                                    width,
                                    slow,
                                    shape,
                                    factor,
                                    seed,
                                });
                            }
                        }
                    }
                }
            }
        }
        cells
    }

    /// Runs a cell.
    pub fn score(&self, cell: &Cell, services: &Services) -> Score {
        let fault = Fault {
            from: ONSET,
            shape: cell.shape,
            factor: cell.factor,
        };
        let slots = cell.slots();
        let setup = Setup {
            rig: cell.rig,
            width: cell.width,
            rate: self.common.rate,
            faults: slots.iter().map(|slot| (*slot, fault)).collect(),
            until_found: true,
            allowed: 2,
            settings: self.common.settings(cell.which),
            check: self.common.check * 1000,
            length: fault.counts_from() + self.wait * SECOND,
            left_out: self.left_out,
            seed: cell.seed,
        };
        let outcome = run(&setup, services);
        let mut score = Score::default();
        for (n, verdict) in outcome.verdicts.iter().enumerate() {
            let again = outcome.verdicts[..n].iter().any(|v| v.slot == verdict.slot);
            match slots.contains(&verdict.slot) && verdict.at > fault.from {
                true if !again => {
                    score.found += 1;
                    score.after = verdict.reads as f64 / self.common.rate;
                }
                true => {}
                false => score.wrong += 1,
            }
        }
        score
    }
}

fn line(cell: &Cell, score: &Score) -> String {
    format!(
        "{},{:?},{},{},{:?},{},{},{},{:.2},{}",
        cell.which.name(),
        cell.rig,
        cell.width,
        cell.slow,
        cell.shape,
        cell.factor,
        cell.seed,
        score.found,
        score.after,
        score.wrong
    )
    .to_lowercase()
}

fn in_time(cell: &Cell, score: &Score) -> bool {
    let in_time = cell.target().is_none_or(|target| score.after <= target);
    score.found == cell.slow && in_time
}

/// Whether somebody was found who should not be, or not in time who should.
pub fn is_missed(cell: &Cell, score: &Score) -> bool {
    score.wrong > 0
        || cell.is_harmless() && score.found > 0
        || cell.is_decidable() && cell.target().is_some() && !in_time(cell, score)
}

/// For each way of being slow: which part was found in the end, which part in time, and how soon.
fn table(which: Which, scores: &[(Cell, Score)]) {
    println!("\n{}: cells that can be decided", which.name());
    println!("shape     factor  cells  found  in time  median s   90% s   max s  wrong");
    let mut done: Vec<(Shape, u64)> = Vec::new();
    for (cell, _) in scores {
        let key = (cell.shape, cell.factor.to_bits());
        if done.contains(&key) {
            continue;
        }
        done.push(key);
        let rows: Vec<_> = scores
            .iter()
            .filter(|(other, _)| (other.shape, other.factor.to_bits()) == key)
            .filter(|(other, _)| other.is_decidable())
            .collect();
        row(cell, &rows);
    }
    let decided: Vec<_> = scores.iter().filter(|(c, _)| c.is_decidable()).collect();
    let sum = |of: &dyn Fn(&Cell, &Score) -> usize| -> usize {
        decided.iter().map(|(cell, score)| of(cell, score)).sum()
    };
    let bad = |cell: &Cell| cell.target().is_some();
    let slow = sum(&|cell, _| if bad(cell) { cell.slow } else { 0 });
    let found = sum(&|cell, score| if bad(cell) { score.found } else { 0 });
    let harmless = sum(&|cell, score| if cell.is_harmless() { score.found } else { 0 });
    let wrong = sum(&|_, score| score.wrong) + harmless;
    let all = sum(&|_, score| score.found + score.wrong);
    println!(
        "recall (x2 and more) {:.4}, precision {:.4} ({wrong} wrong of {all})",
        found as f64 / slow.max(1) as f64,
        1.0 - wrong as f64 / all.max(1) as f64,
    );
    let undecided = scores.iter().filter(|(c, _)| !c.is_decidable());
    let undecided: Vec<_> = undecided.collect();
    println!(
        "cells that cannot be decided: {}, in which {} slow and {} other members were found",
        undecided.len(),
        undecided.iter().map(|(_, s)| s.found).sum::<usize>(),
        undecided.iter().map(|(_, s)| s.wrong).sum::<usize>()
    );
}

fn row(cell: &Cell, rows: &[&(Cell, Score)]) {
    let mut times: Vec<f64> = rows
        .iter()
        .filter(|(cell, score)| score.found == cell.slow)
        .map(|(_, score)| score.after)
        .collect();
    times.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let last = times.len().saturating_sub(1);
        times
            .get((last as f64 * share) as usize)
            .copied()
            .unwrap_or(f64::NAN)
    };
    let share = |n: usize| n as f64 / rows.len().max(1) as f64;
    println!(
        "{:<9} {:>6} {:>6} {:>6.3} {:>8.3} {:>9.2} {:>7.2} {:>7.2} {:>6}",
        format!("{:?}", cell.shape).to_lowercase(),
        cell.factor,
        rows.len(),
        share(times.len()),
        share(
            rows.iter()
                .filter(|(cell, score)| in_time(cell, score))
                .count()
        ),
        at(0.5),
        at(0.9),
        at(1.0),
        rows.iter().map(|(_, score)| score.wrong).sum::<usize>(),
    );
}
