// SPDX-License-Identifier: GPL-2.0

//! `eraid-report`: turns what benchmark guests measured into tables, a CSV file and plots.
//!
//! `cells` checks a table of cells and prints those that are asked for; `write` reads the guests'
//! output and writes NAME.md, NAME.csv and the plots. `loads` and `overhead` do the same for the
//! benchmark of what work costs, `failslow-boots` and `failslow` for that of drives that fail slowly.
//!
//! Exit status: 0, or 1 when md does not show what the table of cells wants of it, or when reads
//! failed in `failslow`, or 2 when the work could not be done.

mod cells;
mod csv;
mod curves;
mod failslow;
mod outcome;
mod overhead;
mod plots;
mod table;
mod tables;
#[cfg(test)]
mod tests;
mod verdict;
mod words;
mod writes;

use crate::cells::Cell;
use crate::outcome::{Array, Outcome};
use crate::verdict::Verdict;
use clap::{Args, Parser, Subcommand};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Tables and plots of a benchmark.
#[derive(Parser, Debug)]
#[command(name = "eraid-report", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Cells(CellsArgs),
    Write(WriteArgs),
    Loads(CellsArgs),
    Overhead(OverheadArgs),
    FailslowBoots(failslow::BootsArgs),
    Failslow(failslow::WriteArgs),
}

/// Prints the lines of a table's cells or loads, comments left out.
#[derive(Args, Debug)]
struct CellsArgs {
    /// The table.
    table: PathBuf,
    /// Only those whose names begin so; all unless given.
    begins: Vec<String>,
}

/// Writes the report.
#[derive(Args, Debug)]
struct WriteArgs {
    /// The table.
    table: PathBuf,
    /// Where the guests' output is: a file CELL.ARRAY for each.
    raw: PathBuf,
    /// Where the report goes.
    out: PathBuf,
    /// The benchmark's name.
    #[arg(long)]
    name: String,
}

/// Writes the report of what work costs.
#[derive(Args, Debug)]
struct OverheadArgs {
    /// The table of loads.
    table: PathBuf,
    /// The guest's output.
    runs: PathBuf,
    /// Where the report goes.
    out: PathBuf,
    /// Of the bootstrap.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// One cell with what was measured in it.
pub struct Row {
    /// The cell.
    pub cell: Cell,
    /// On md, if it was run.
    pub md: Option<Outcome>,
    /// On eRAID, if it was run.
    pub eraid: Option<Outcome>,
}

impl Row {
    /// What was measured on an array.
    pub fn on(&self, array: Array) -> Option<&Outcome> {
        match array {
            Array::Md => self.md.as_ref(),
            Array::Eraid => self.eraid.as_ref(),
        }
    }
}

fn say(path: &Path, error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {error}", path.display()))
}

/// Reads a file as `parse` does.
fn read<T>(path: &Path, parse: impl Fn(&str) -> Result<T, String>) -> io::Result<T> {
    let text = fs::read_to_string(path).map_err(|error| say(path, error))?;
    parse(&text).map_err(|error| say(path, error))
}

fn save(path: PathBuf, text: String) -> io::Result<()> {
    fs::write(&path, text).map_err(|error| say(&path, error))
}

/// Prints the lines that are asked for; each begins with its name.
fn print_lines(args: &CellsArgs, lines: impl Iterator<Item = String>) -> io::Result<bool> {
    let mut found = false;
    for line in lines {
        let begins = |begin: &String| line.starts_with(begin.as_str());
        if args.begins.is_empty() || args.begins.iter().any(begins) {
            println!("{line}");
            found = true;
        }
    }
    if !found {
        return Err(say(&args.table, "no name in it begins so"));
    }
    Ok(true)
}

fn print_cells(args: &CellsArgs) -> io::Result<bool> {
    let cells = read(&args.table, cells::parse)?;
    print_lines(args, cells.into_iter().map(|(line, _)| line))
}

fn print_loads(args: &CellsArgs) -> io::Result<bool> {
    let loads = read(&args.table, overhead::parse_loads)?;
    print_lines(args, loads.into_iter().map(|(line, _)| line))
}

fn write_overhead(args: &OverheadArgs) -> io::Result<bool> {
    let loads = read(&args.table, overhead::parse_loads)?;
    let loads: Vec<_> = loads.into_iter().map(|(_, load)| load).collect();
    let runs = read(&args.runs, overhead::Runs::parse)?;
    let table = overhead::table(&loads, &runs, args.seed).text();
    print!("\n{table}");
    save(args.out.join("overhead.csv"), overhead::csv(&runs))?;
    let document = overhead::document(&table, &runs, args.seed);
    save(args.out.join("overhead.md"), document)?;
    Ok(true)
}

fn read_outcome(raw: &Path, cell: &Cell, array: Array) -> io::Result<Option<Outcome>> {
    let path = raw.join(format!("{}.{}", cell.name, array.word()));
    match fs::read_to_string(&path) {
        Ok(text) => Outcome::parse(&text)
            .map(Some)
            .map_err(|error| say(&path, error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(say(&path, error)),
    }
}

fn write(args: &WriteArgs) -> io::Result<bool> {
    let mut rows = Vec::new();
    for (_, cell) in read(&args.table, cells::parse)? {
        let md = read_outcome(&args.raw, &cell, Array::Md)?;
        let eraid = read_outcome(&args.raw, &cell, Array::Eraid)?;
        rows.push(Row { cell, md, eraid });
    }
    let file = |extension: &str| args.out.join(format!("{}.{extension}", args.name));
    save(file("csv"), csv::all(&rows))?;
    let plots = plots::write(&rows, &args.out, &args.name)?;
    let tables = tables::all(&rows);
    print!("{tables}");
    save(
        file("md"),
        tables::document(&args.name, &rows, &tables, &plots),
    )?;
    let missed = |row: &&Row| Verdict::of(&row.cell, row.md.as_ref()) == Some(Verdict::NotMet);
    Ok(rows.iter().filter(missed).count() == 0)
}

fn main() -> ExitCode {
    let result = match &Cli::parse().command {
        Command::Cells(args) => print_cells(args),
        Command::Write(args) => write(args),
        Command::Loads(args) => print_loads(args),
        Command::Overhead(args) => write_overhead(args),
        Command::FailslowBoots(args) => failslow::print_boots(args),
        Command::Failslow(args) => failslow::write(args),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("eraid-report: {error}");
            ExitCode::from(2)
        }
    }
}
