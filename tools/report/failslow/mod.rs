// SPDX-License-Identifier: GPL-2.0

//! The benchmark "failslow": reads from drives that retry, are slow or hang.
//!
//! Its cells are made from a few lists ([`cells`]); each runs on md and eRAID, as they are and
//! with the ways to read that they have been told to use ([`stacks`]). Results are kept in one CSV
//! file ([`results`]), to which runs of a part of the cells, or with other seeds, add theirs; tables
//! ([`tables`]), plots ([`plots`]) and the score ([`score`]) are made from that file alone.

pub mod cells;
pub mod plots;
pub mod results;
pub mod score;
pub mod stacks;
pub mod summary;
pub mod tables;
#[cfg(test)]
mod tests;

use crate::failslow::cells::Cell;
use crate::failslow::results::{Key, Results, Row};
use crate::failslow::stacks::{Stack, STACKS};
use crate::outcome::Outcome;
use crate::{read, save, say};
use clap::Args;
use eraid_tools::rng::Rng;
use std::fs;
use std::io;
use std::path::PathBuf;

/// Prints what there is to run, a boot each: the name of its file, the array, the guest's line.
#[derive(Args, Debug)]
pub struct BootsArgs {
    /// So many cells, drawn by the seed, on md as it is and eRAID as it is.
    #[arg(long)]
    subset: Option<usize>,
    /// Draws the subset.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only cells whose names begin so, or with .STACK behind it only that one; all unless given.
    begins: Vec<String>,
}

/// Adds results to OUT/failslow.csv, and makes the report of all that is in there.
#[derive(Args, Debug)]
pub struct WriteArgs {
    /// The boots that were to be done, as printed.
    boots: PathBuf,
    /// Where the guests' output is: a file CELL.STACK for each.
    raw: PathBuf,
    /// Where the report goes.
    out: PathBuf,
    /// The commit that was measured.
    #[arg(long)]
    commit: String,
    /// Other files of results to add.
    #[arg(long)]
    add: Vec<PathBuf>,
}

/// One run: a cell on a stack.
pub struct Boot {
    /// The cell.
    pub cell: Cell,
    /// What it runs on.
    pub stack: Stack,
}

impl Boot {
    /// `CELL.STACK`, the name of its output.
    pub fn name(&self) -> String {
        format!("{}.{}", self.cell.name(), self.stack.word())
    }

    /// What the lab needs to know: file, array, and the line for the guest.
    fn line(&self) -> String {
        format!(
            "{} {} {} {}",
            self.name(),
            self.stack.array(),
            self.cell.line(),
            self.stack.words()
        )
    }

    /// Whether it is one of those that `begin` asks for.
    fn is_asked_for(&self, begin: &str) -> bool {
        let (cell, stack) = begin.split_once('.').unwrap_or((begin, ""));
        self.cell.name().starts_with(cell) && (stack.is_empty() || stack == self.stack.word())
    }
}

/// All of them, in the order of the report.
pub fn all_boots() -> Vec<Boot> {
    let of_cell = |cell: Cell| {
        let stacks = STACKS.into_iter().filter(move |stack| stack.runs(&cell));
        stacks.map(move |stack| Boot { cell, stack })
    };
    cells::all().into_iter().flat_map(of_cell).collect()
}

/// `count` cells on md and eRAID as they are, drawn by `seed`.
fn subset(count: usize, seed: u64) -> Vec<Boot> {
    let mut left = cells::all();
    let mut rng = Rng::new(&[seed]);
    let mut drawn = Vec::new();
    while drawn.len() < count && !left.is_empty() {
        drawn.push(left.swap_remove(rng.below(left.len() as u64) as usize));
    }
    let of_cell = |cell| [Stack::Md, Stack::Auto].map(|stack| Boot { cell, stack });
    drawn.into_iter().flat_map(of_cell).collect()
}

/// Prints the boots that are asked for.
pub fn print_boots(args: &BootsArgs) -> io::Result<bool> {
    let mut boots = match args.subset {
        Some(count) => subset(count, args.seed),
        None => all_boots(),
    };
    if !args.begins.is_empty() {
        boots.retain(|boot| args.begins.iter().any(|begin| boot.is_asked_for(begin)));
    }
    if boots.is_empty() {
        return Err(io::Error::other("no cell's name begins so"));
    }
    for boot in boots {
        println!("{}", boot.line());
    }
    Ok(true)
}

/// The cell and stack of a line that [`print_boots`] has printed.
fn parse_boot(line: &str) -> Result<(Cell, Stack), String> {
    let name = line.split_whitespace().next().unwrap_or_default();
    let (cell, stack) = name
        .split_once('.')
        .ok_or_else(|| format!("'{name}' is not CELL.STACK"))?;
    Ok((Cell::named(cell)?, Stack::named(stack)?))
}

fn parse_boots(text: &str) -> Result<Vec<(Cell, Stack)>, String> {
    text.lines().map(parse_boot).collect()
}

/// What the guests measured. A boot without an output is left out.
fn measured(args: &WriteArgs) -> io::Result<Results> {
    let mut results = Results::default();
    for (cell, stack) in read(&args.boots, parse_boots)? {
        let path = args.raw.join(format!("{}.{}", cell.name(), stack.word()));
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other.map_err(|error| say(&path, error))?,
        };
        let outcome = Outcome::parse(&text).map_err(|error| say(&path, error))?;
        let row = Row::measured(&outcome, &args.commit).map_err(|error| say(&path, error))?;
        let seed = row.seed();
        results.add(Key { cell, stack, seed }, row);
    }
    Ok(results)
}

/// Writes the report; false when a read failed on eRAID in what was measured now.
pub fn write(args: &WriteArgs) -> io::Result<bool> {
    let new = measured(args)?;
    let good = !new
        .iter()
        .any(|(key, row)| key.stack.is_eraid() && row.number("errors") > 0.0);
    let file = args.out.join("failslow.csv");
    let mut results = match file.exists() {
        true => read(&file, Results::parse)?,
        false => Results::default(),
    };
    for path in &args.add {
        results.merge(read(path, Results::parse)?);
    }
    results.merge(new);
    save(file, results.csv())?;
    let tables = tables::all(&results);
    print!("\n{}", score::table(&results).text());
    let plots = plots::write(&results, &args.out)?;
    save(
        args.out.join("failslow.md"),
        tables::document(&results, &tables, &plots),
    )?;
    Ok(good)
}
