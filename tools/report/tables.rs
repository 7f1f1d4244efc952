// SPDX-License-Identifier: GPL-2.0

//! The tables, which people read on a terminal and in the report alike.

use crate::cells::{Cell, Group, Measure, GROUPS};
use crate::curves::Plot;
use crate::outcome::{Outcome, ARRAYS};
use crate::table::{dash, short, Table};
use crate::verdict::{deviation, measured, Verdict};
use crate::{writes, Row};

/// What stands above a group's table.
fn title(group: Group) -> (&'static str, &'static str) {
    match group {
        Group::Same => (
            "Is the instrument right? Drives of exactly the same speed, as those of the reference",
            "A request every 8 ms.",
        ),
        Group::Normal => (
            "All six drives retry alike, a request every 8 ms",
            "A sector of 4 KiB fails with the given probability, and the drive takes so many more \
             turns to read it. \"Authors\" are the real drives of the eRAID paper (MSST 2019).",
        ),
        Group::Calm => ("Half the load: a request every 16 ms", ""),
        Group::Degraded => (
            "One member failed",
            "Its chunks are computed from the others.",
        ),
        Group::One => ("One bad drive of six", ""),
        Group::Burst => (
            "One bad drive of six, and more requests than it can answer",
            "All requests of a burst are answered, so these times grow with its length and can \
             only be compared with each other.",
        ),
        Group::Closed => ("Throughput: random reads of 8 KiB, requests per second", ""),
        Group::Stream => (
            "Throughput: 1 GiB in sequence, 1 MiB at a time, four under way, MB/s",
            "",
        ),
        Group::Raid5Chunk64 => ("RAID-5 of six drives, chunk 64 KiB", ""),
        Group::Raid5Chunk512 => ("RAID-5 of six drives, chunk 512 KiB", ""),
        Group::Raid6Chunk64 => ("RAID-6 of eight drives, chunk 64 KiB", ""),
        Group::Raid6Chunk512 => ("RAID-6 of eight drives, chunk 512 KiB", ""),
    }
}

/// `mean / 99% / 99.9% / longest` in milliseconds.
fn latencies(outcome: Option<&Outcome>) -> String {
    dash(outcome.map(|outcome| {
        let parts = ["mean", "p99", "p999", "max"].map(|key| short(outcome.ms(key)));
        let mut text = parts.join(" / ");
        if outcome.number("errors") > 0.0 {
            text += &format!(", {} failed", outcome.word("errors"));
        }
        if !outcome.is_steady() {
            text += " *";
        }
        text
    }))
}

fn ratio(row: &Row) -> String {
    let both = row.md.as_ref().zip(row.eraid.as_ref());
    dash(both.map(|(md, eraid)| {
        let ratio = measured(&row.cell, eraid) / measured(&row.cell, md);
        format!("{ratio:.3}")
    }))
}

fn verdict(row: &Row) -> String {
    let cell = &row.cell;
    let off = row.md.as_ref().and_then(|md| deviation(cell, md));
    let off = off.map(|off| format!("{off:+.1}%"));
    let verdict = Verdict::of(cell, row.md.as_ref());
    let word = verdict.map(|verdict| format!(", {}", verdict.word()));
    dash(off) + &word.unwrap_or_default()
}

fn want(cell: &Cell) -> String {
    let p99 = cell.want_p99.map(|p99| format!(" / {}", short(p99)));
    dash(cell.want.map(short)) + &p99.unwrap_or_default()
}

fn table_of(group: Group, rows: &[&Row]) -> Table {
    let latency = group.measure() == Measure::Latency;
    let authors = rows.iter().any(|row| row.cell.authors.is_some());
    let mut head = vec!["case", if latency { "size" } else { "under way" }];
    if authors {
        head.push("authors");
    }
    head.extend(["wanted of md", "md", "off"]);
    let eraid_too = rows.iter().any(|row| row.eraid.is_some());
    if eraid_too {
        head.extend(["eRAID", "eRAID : md"]);
    }
    let mut table = Table::new(&head);
    for row in rows {
        let cell = &row.cell;
        let in_flight = cell.in_flight.map(|n| n.to_string());
        let size = cell.size.replace('K', " KiB").replace('M', " MiB");
        let mut line = vec![
            cell.label.clone(),
            if latency { size } else { dash(in_flight) },
        ];
        if authors {
            let pair = cell
                .authors
                .map(|a| format!("{} / {}", short(a.mean), short(a.p99)));
            line.push(dash(pair));
        }
        let [md, eraid] = ARRAYS.map(|array| match group.measure() {
            Measure::Latency => latencies(row.on(array)),
            _ => dash(row.on(array).map(|outcome| short(measured(cell, outcome)))),
        });
        line.extend([want(cell), md, verdict(row)]);
        if eraid_too {
            line.extend([eraid, ratio(row)]);
        }
        table.0.push(line);
    }
    table
}

/// Whether one of its latencies has a star.
fn is_marked(row: &Row) -> bool {
    let outcomes = ARRAYS.iter().filter_map(|&array| row.on(array));
    outcomes.into_iter().any(|outcome| !outcome.is_steady())
}

/// All tables, groups without a single measured cell left out.
pub fn all(rows: &[Row]) -> String {
    let mut text = String::new();
    for (_, group) in GROUPS {
        let rows: Vec<&Row> = rows
            .iter()
            .filter(|row| row.cell.group == group && (row.md.is_some() || row.eraid.is_some()))
            .collect();
        if rows.is_empty() {
            continue;
        }
        let (title, words) = title(group);
        text += &format!("\n## {title}\n\n");
        if !words.is_empty() {
            text += &format!("{words}\n\n");
        }
        let table = match group.is_of_writes() {
            true => writes::table(&rows),
            false => table_of(group, &rows),
        };
        text += &table.text();
        if group.measure() == Measure::Latency && rows.iter().any(|row| is_marked(row)) {
            text += "\n\\* not steady: the second half of the run was over 1.3 times as slow as the first.\n";
        }
    }
    text
}

/// What the numbers of a report are.
fn numbers(of_writes: bool) -> &'static str {
    match of_writes {
        true => writes::NUMBERS,
        false => {
            "Latencies are in simulated milliseconds: mean / 99% / 99.9% / longest; what is wanted \
             of md and what the authors had are mean / 99%."
        }
    }
}

/// The report as a document.
pub fn document(name: &str, rows: &[Row], tables: &str, plots: &[Plot]) -> String {
    let of_writes = rows.iter().any(|row| row.cell.group.is_of_writes());
    let mut text = format!(
        "<!-- SPDX-License-Identifier: GPL-2.0 -->\n\n# Benchmark: {name}\n\n\
         Written by `scripts/lab bench {name}`; [README.md](README.md) says how it is measured and \
         what the columns mean. All numbers of every cell, with seeds and a hash of the drives' \
         parameters, are in [{name}.csv]({name}.csv).\n\n{}\n",
        numbers(of_writes)
    );
    text += tables;
    if !plots.is_empty() {
        text += "\n## Plots\n\nThe share of requests that took longer than so many milliseconds.\n";
    }
    for plot in plots {
        text += &format!("\n![{}]({})\n", plot.title, plot.file);
    }
    text
}
