// SPDX-License-Identifier: GPL-2.0

//! `eraid-report`: turns what benchmark guests measured into tables, a CSV file and plots.
//!
//! `cells` checks a table of cells and prints those that are asked for; `write` reads the guests'
//! output and writes NAME.md, NAME.csv and the plots.
//!
//! Exit status: 0, or 1 when md does not show what the table of cells wants of it, or 2 when the
//! work could not be done.

mod cells;
mod csv;
mod outcome;
mod plots;
mod table;
mod tables;
#[cfg(test)]
mod tests;
mod verdict;
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
}

/// Prints the lines of a table's cells, comments left out.
#[derive(Args, Debug)]
struct CellsArgs {
    /// The table.
    table: PathBuf,
    /// Only cells whose names begin so; all unless given.
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

fn read_table(path: &Path) -> io::Result<Vec<(String, Cell)>> {
    let text = fs::read_to_string(path).map_err(|error| say(path, error))?;
    cells::parse(&text).map_err(|error| say(path, error))
}

fn print_cells(args: &CellsArgs) -> io::Result<bool> {
    let mut found = false;
    for (line, cell) in read_table(&args.table)? {
        let begins = |begin: &String| cell.name.starts_with(begin.as_str());
        if args.begins.is_empty() || args.begins.iter().any(begins) {
            println!("{line}");
            found = true;
        }
    }
    if !found {
        return Err(say(&args.table, "no cell's name begins so"));
    }
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
    for (_, cell) in read_table(&args.table)? {
        let md = read_outcome(&args.raw, &cell, Array::Md)?;
        let eraid = read_outcome(&args.raw, &cell, Array::Eraid)?;
        rows.push(Row { cell, md, eraid });
    }
    let file = |extension: &str| args.out.join(format!("{}.{extension}", args.name));
    let save = |path: PathBuf, text: String| fs::write(&path, text).map_err(|e| say(&path, e));
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
