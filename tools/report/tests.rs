// SPDX-License-Identifier: GPL-2.0

//! The tables from cells and outputs that are known, and the table of cells that is in use.

use crate::cells::{self, Group};
use crate::outcome::Outcome;
use crate::verdict::{deviation, Verdict};
use crate::{csv, plots, tables, Row};

const LINE: &str = "normal-0-8k group=normal label=no_retries size=8K every=8ms count=40000 \
                    all.fail_ppm=1 want=15.7 want_p99=39 within=5 authors=16/43";

fn output(mean_us: f64) -> String {
    format!(
        "cell=normal-0-8k array=md drives=00ff drive_seed=1\n# a note with a=b\n\
         mode=poisson seed=1 requests=4 errors=0 mean_us={mean_us:.3} p50_us=15000.000 \
         p99_us=39000.000 p999_us=59000.000 max_us=96000.500 first_half_mean_us=15000.0 \
         second_half_mean_us=16000.0 lag_mean_us=0.1 lag_max_us=0.256 in_flight_max=12 \
         seconds=320.5 rate=125.0 MBps=1.024 digest=0123456789abcdef\n\
         from_ns,to_ns,count\n1000000,1999999,3\n90000000,99999999,1\n"
    )
}

fn row(md: Option<f64>, eraid: Option<f64>) -> Row {
    let parse = |mean| Outcome::parse(&output(mean)).unwrap();
    Row {
        cell: cells::parse(LINE).unwrap().remove(0).1,
        md: md.map(parse),
        eraid: eraid.map(parse),
    }
}

#[test]
fn a_line_is_a_cell() {
    let cell = row(None, None).cell;
    assert_eq!(
        (cell.group, cell.label.as_str()),
        (Group::Normal, "no retries")
    );
    assert_eq!((cell.want, cell.within), (Some(15.7), Some(5.0)));
    assert_eq!(cell.authors.unwrap().p99, 43.0);
}

#[test]
fn bad_lines_are_named() {
    for (line, words) in [
        ("A group=normal", "is not a name"),
        ("a group=none", "no group 'none'"),
        ("a group=normal label=x size=8K", "no want="),
        ("a group=raid5-64k label=x size=4K count=1", "no state="),
        ("a group=raid5-64k state=half", "no state 'half'"),
        ("a group=normal size", "is not KEY=VALUE"),
        ("a group=normal wamt=1", "unknown key 'wamt'"),
        ("a group=normal want=x", "want=x is not a number"),
        ("a group=normal authors=1", "is not MEAN/P99"),
    ] {
        let error = cells::parse(&format!("# first\n{line}\n")).unwrap_err();
        assert!(
            error.starts_with("line 2: ") && error.contains(words),
            "{error}"
        );
    }
    assert!(cells::parse(&format!("{LINE}\n{LINE}\n")).is_err());
}

#[test]
fn outputs_without_numbers_are_refused() {
    let text = output(1.0);
    assert!(Outcome::parse(&text).is_ok());
    assert!(Outcome::parse("failed: insmod\n").is_err());
    assert!(Outcome::parse(&text.replace("mean_us=1.000", "mean_us=NaN")).is_err());
    assert!(Outcome::parse(&text.replace("from_ns", "to_ns")).is_err());
    assert!(Outcome::parse(&text.replace("1999999,3", "1999999")).is_err());
}

#[test]
fn five_percent_is_a_limit_on_both_sides() {
    for (mean, expected) in [
        (15_700.0, Verdict::Met),
        (16_480.0, Verdict::Met),
        (16_490.0, Verdict::NotMet),
        (14_920.0, Verdict::Met),
        (14_910.0, Verdict::NotMet),
    ] {
        let row = row(Some(mean), None);
        assert_eq!(
            Verdict::of(&row.cell, row.md.as_ref()),
            Some(expected),
            "{mean}"
        );
    }
    let mut row = row(None, None);
    assert_eq!(Verdict::of(&row.cell, None), Some(Verdict::NotMet));
    let failed = output(15_700.0).replace("errors=0", "errors=1");
    let failed = Outcome::parse(&failed).unwrap();
    assert_eq!(deviation(&row.cell, &failed), Some(0.0));
    assert_eq!(Verdict::of(&row.cell, Some(&failed)), Some(Verdict::NotMet));
    row.cell.within = None;
    assert_eq!(Verdict::of(&row.cell, None), None);
}

#[test]
fn tables_say_it() {
    let text = tables::all(&[row(Some(15_700.0), Some(31_400.0))]);
    let line = text.lines().find(|line| line.starts_with("| no retries"));
    let cells: Vec<_> = line.unwrap().split('|').map(str::trim).collect();
    assert_eq!(
        cells[1..9],
        [
            "no retries",
            "8 KiB",
            "16.0 / 43.0",
            "15.7 / 39.0",
            "15.7 / 39.0 / 59.0 / 96.0",
            "+0.0%, met",
            "31.4 / 39.0 / 59.0 / 96.0",
            "2.000"
        ]
    );
    assert!(!text.contains("not steady"));
    // What was not run is not there.
    assert_eq!(tables::all(&[row(None, None)]), "");
}

#[test]
fn a_load_that_piles_up_is_marked() {
    let text = output(15_700.0).replace("half_mean_us=16000.0", "half_mean_us=20000.0");
    let mut row = row(None, None);
    row.md = Some(Outcome::parse(&text).unwrap());
    assert!(tables::all(&[row]).contains("not steady"));
}

#[test]
fn csv_has_a_line_for_each_array() {
    let text = csv::all(&[row(Some(15_700.0), Some(31_400.0))]);
    let lines: Vec<Vec<_>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 3);
    assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    let at = |line: usize, column: &str| {
        let index = lines[0].iter().position(|name| *name == column);
        lines[line][index.unwrap()]
    };
    assert_eq!((at(1, "array"), at(1, "verdict")), ("md", "met"));
    assert_eq!((at(2, "array"), at(2, "verdict")), ("eraid", ""));
    assert_eq!((at(1, "drives"), at(2, "mean_us")), ("00ff", "31400.000"));
}

#[test]
fn plots_are_drawn() {
    let out = std::env::temp_dir().join(format!("eraid-report-{}", std::process::id()));
    std::fs::create_dir_all(&out).unwrap();
    let rows = [row(Some(15_700.0), Some(31_400.0)), row(None, None)];
    let plots = plots::write(&rows, &out, "x").unwrap();
    let files: Vec<_> = plots.iter().map(|plot| plot.file.as_str()).collect();
    assert_eq!(files, ["x-normal-8k.svg"]);
    let svg = std::fs::read_to_string(out.join(files[0])).unwrap();
    assert!(svg.contains("<polyline") && svg.contains("no retries, eRAID"));
    let document = tables::document("x", &rows, "", &plots);
    assert!(document.contains("(x-normal-8k.svg)"));
    std::fs::remove_dir_all(&out).unwrap();
}

#[test]
fn the_cells_in_use_are_right() {
    let text = include_str!("../../scripts/bench/baseline.cells");
    let cells = cells::parse(text).unwrap();
    // The numbers that decide: no retries and (5 turns, 2%) at 8, 24 and 40 KiB.
    let held: Vec<_> = cells
        .iter()
        .filter(|(_, cell)| cell.group == Group::Same && cell.within == Some(5.0))
        .filter(|(line, _)| line.contains(" every=8ms "))
        .map(|(_, cell)| (cell.size.as_str(), cell.want))
        .collect();
    assert_eq!(
        held,
        [
            ("8K", Some(15.7)),
            ("24K", Some(36.8)),
            ("40K", Some(108.0)),
            ("8K", Some(19.0)),
            ("24K", Some(66.7)),
            ("40K", Some(302.0))
        ]
    );
}

const WRITES: &str = "\
    a group=raid5-64k label=sequential_64_KiB,_64 size=64K sequential=1 count=100 state=full\n\
    b group=raid5-64k label=sequential_64_KiB,_64 size=64K sequential=1 count=100 state=partial\n";

/// Writes at so many MB/s, with so many reads of the first of two drives.
fn writes(megabytes: f64, reads: u32) -> Outcome {
    let text = output(1000.0).replace("MBps=1.024", &format!("MBps={megabytes}"));
    let drives = format!(
        "h0=reads={reads},writes=50,flushes=2,\nh1=reads=0,writes=50,flushes=0,\nhz=reads=9\n"
    );
    Outcome::parse(&text.replace("# a note", &format!("{drives}# a note"))).unwrap()
}

fn rows_of_writes(eraid: [Outcome; 2]) -> Vec<Row> {
    let cells = cells::parse(WRITES).unwrap();
    let md = [writes(200.0, 100), writes(100.0, 0)];
    let rows = cells.into_iter().zip(md).zip(eraid);
    rows.map(|(((_, cell), md), eraid)| Row {
        cell,
        md: Some(md),
        eraid: Some(eraid),
    })
    .collect()
}

#[test]
fn tables_of_writes_compare_and_count() {
    let text = tables::all(&rows_of_writes([writes(199.0, 2), writes(100.0, 1)]));
    let lines = text.lines().filter(|line| line.starts_with("| sequential"));
    let lines: Vec<Vec<_>> = lines
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    let full = [
        "sequential 64 KiB, 64",
        "full",
        "200 MB/s",
        "199 MB/s",
        "0.995 BELOW",
        "-",
        "1.0 / 39.0",
        "1.0 / 39.0",
        "1.00 + 1.00 + 0.02",
        "0.02 + 1.00 + 0.02",
        "50.0%",
        "2.0% ABOVE",
    ];
    assert_eq!(lines[0][1..13], full);
    assert_eq!(lines[1][5..7], ["1.000", "0.500"]);
    assert_eq!(lines[1][12], "1.0%");
}

#[test]
fn a_ratio_is_rounded_before_it_is_judged() {
    let text = tables::all(&rows_of_writes([writes(199.95, 0), writes(99.9, 0)]));
    assert_eq!(text.matches("BELOW").count(), 1);
}

#[test]
fn csv_of_writes_counts_commands() {
    let text = csv::all(&rows_of_writes([writes(1.0, 2), writes(1.0, 0)]));
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].ends_with(",member_reads,member_writes,member_flushes"));
    assert!(lines[1].starts_with("a,md,") && lines[1].ends_with(",100,100,2"));
    assert!(lines[2].starts_with("a,eraid,") && lines[2].ends_with(",2,100,2"));
}

#[test]
fn the_cells_of_writes_are_right() {
    let text = include_str!("../../scripts/bench/writes.cells");
    let cells = cells::parse(text).unwrap();
    for (line, cell) in &cells {
        assert!(cell.group.is_of_writes(), "{line}");
        // The name says what the cell is.
        let level = line.contains(" level=6 ");
        let chunk = line.contains(" chunk=512K ");
        let name = format!(
            "r{}-{}-{}-",
            if level { 6 } else { 5 },
            if chunk { "512k" } else { "64k" },
            cell.state.unwrap().word()
        );
        assert!(cell.name.starts_with(&name), "{line}");
    }
    assert_eq!(cells.len(), 82);
}
