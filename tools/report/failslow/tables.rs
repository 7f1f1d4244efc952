// SPDX-License-Identifier: GPL-2.0

//! The report as a document.

use crate::curves::Plot;
use crate::failslow::cells::{self, Cell, Drives, Set, Trouble, EVERY};
use crate::failslow::results::Results;
use crate::failslow::score;
use crate::failslow::stacks::{Stack, STACKS};
use crate::failslow::summary::{best_fixed, per_request, ratio, Summary};
use crate::table::{dash, short, Table};

/// The measurements of six real drives by the authors of eRAID (Hao, Li, Chen, Zhang, MSST 2019),
/// a request every 8 ms, all drives alike: turns, percent, KiB, mean and 99th percentile in ms.
const AUTHORS: [(u32, u32, u32, u32, u32); 15] = [
    (0, 0, 8, 16, 43),
    (0, 0, 24, 41, 169),
    (0, 0, 40, 107, 832),
    (3, 1, 8, 18, 63),
    (3, 1, 24, 48, 236),
    (3, 1, 40, 221, 1712),
    (3, 2, 8, 19, 68),
    (3, 2, 24, 64, 512),
    (3, 2, 40, 269, 2190),
    (5, 1, 8, 18, 81),
    (5, 1, 24, 56, 243),
    (5, 1, 40, 284, 2513),
    (5, 2, 8, 22, 98),
    (5, 2, 24, 90, 530),
    (5, 2, 40, 553, 3336),
];

/// What the authors measured in a cell.
fn authors(cell: Cell) -> Option<String> {
    let (turns, percent) = match cell.trouble {
        Trouble::Well => (0, 0),
        Trouble::Fails { turns, percent, .. } => (turns, percent),
        _ => return None,
    };
    let same =
        |row: &&(u32, u32, u32, u32, u32)| (row.0, row.1, row.2) == (turns, percent, cell.kib);
    let (_, _, _, mean, p99) = AUTHORS.iter().find(same)?;
    Some(format!("{mean} / {p99}"))
}

/// Times in milliseconds with what is wrong about them.
fn times(results: &Results, cell: Cell, stack: Stack, parts: fn(&Summary) -> Vec<f64>) -> String {
    dash(Summary::of(results, cell, stack).map(|summary| {
        let parts: Vec<_> = parts(&summary).into_iter().map(short).collect();
        let mut text = parts.join(" / ");
        if summary.errors > 0.0 {
            text += &format!(", {} failed", summary.errors);
        }
        if !summary.is_steady {
            text += " *";
        }
        text
    }))
}

/// One table's cells with how they are told apart.
struct Section {
    title: String,
    cells: Vec<Cell>,
    /// Times that are shown.
    parts: fn(&Summary) -> Vec<f64>,
    authors: bool,
}

/// Mean and tail.
fn usual(summary: &Summary) -> Vec<f64> {
    vec![summary.mean, summary.p99]
}

fn sections() -> Vec<Section> {
    let of = |wanted: &dyn Fn(&Cell) -> bool| -> Vec<Cell> {
        cells::all().into_iter().filter(wanted).collect()
    };
    let mut sections = Vec::new();
    for every in EVERY {
        for (drives, words) in [
            (Drives::All, "all drives alike"),
            (Drives::One, "one drive"),
        ] {
            let cells = of(&|cell| {
                let its = match cell.trouble {
                    Trouble::Fails { drives: its, .. } => its == drives,
                    _ => true,
                };
                cell.set == Set::Grid && cell.every_ms == every && its
            });
            sections.push(Section {
                title: format!("Grid: {words}, a request every {every} ms"),
                cells,
                parts: usual,
                authors: every == 8 && drives == Drives::All,
            });
        }
    }
    for (set, title) in [
        (Set::Chunk64, "Held out: chunk 64 KiB"),
        (Set::Nine, "Held out: nine drives"),
        (Set::Mixed, "Held out: 20% writes"),
        (Set::Bursty, "Held out: bursts"),
        (Set::Day, "Held out: a day"),
    ] {
        sections.push(Section {
            title: title.into(),
            cells: of(&|cell| cell.set == set),
            parts: usual,
            authors: false,
        });
    }
    sections.push(Section {
        title: "One drive is slow or hangs".into(),
        cells: of(&|cell| matches!(cell.set, Set::Slow | Set::Hung)),
        parts: |summary| vec![summary.mean, summary.p99, summary.max],
        authors: false,
    });
    sections
}

/// Stacks of which some of the cells have results.
fn stacks_of(results: &Results, cells: &[Cell]) -> Vec<Stack> {
    let some = |stack: &Stack| {
        let has = |cell: &Cell| !results.of(*cell, *stack).is_empty();
        cells.iter().any(has)
    };
    STACKS.into_iter().filter(some).collect()
}

fn label(cell: Cell) -> [String; 2] {
    [
        format!("{}, {} ms", cell.trouble.label(), cell.every_ms),
        cell.size(),
    ]
}

fn table_of(results: &Results, section: &Section) -> Table {
    let stacks = stacks_of(results, &section.cells);
    let mut head = vec!["case", "size"];
    if section.authors {
        head.push("authors");
    }
    head.extend(stacks.iter().map(|stack| stack.title()));
    head.extend(["auto : md", "auto : best fixed"]);
    let mut table = Table::new(&head);
    for &cell in &section.cells {
        if stacks_of(results, &[cell]).is_empty() {
            continue;
        }
        let mut line = Vec::from(label(cell));
        if section.authors {
            line.push(dash(authors(cell)));
        }
        let of = |&stack: &Stack| times(results, cell, stack, section.parts);
        line.extend(stacks.iter().map(of));
        let auto = (cell, Stack::Auto);
        let best = best_fixed(results, cell).and_then(|best| ratio(results, auto, (cell, best)));
        for ratio in [ratio(results, auto, (cell, Stack::Md)), best] {
            line.push(dash(ratio.map(|ratio| format!("{ratio:.3}"))));
        }
        table.0.push(line);
    }
    table
}

/// What eRAID did for its requests, as it is.
fn details(results: &Results) -> Table {
    const COUNTED: [(&str, &str); 8] = [
        ("member reads", "member_reads"),
        ("extra", "reads_extra"),
        ("left out", "reads_left_out"),
        ("hedged", "reads_hedged"),
        ("removed", "reads_removed"),
        ("promoted", "reads_promoted"),
        ("fallbacks", "reads_fallback"),
        ("repaired", "reads_repaired"),
    ];
    let mut head = vec!["cell", "mean", "50%", "99%", "99.9%", "longest", "failed"];
    head.extend(COUNTED.map(|(title, _)| title));
    let mut table = Table::new(&head);
    for cell in cells::all() {
        let rows = results.of(cell, Stack::Auto);
        let Some(of) = Summary::of(results, cell, Stack::Auto) else {
            continue;
        };
        let mut line = vec![cell.name()];
        line.extend([of.mean, of.p50, of.p99, of.p999, of.max].map(short));
        line.push(of.errors.to_string());
        line.extend(COUNTED.map(|(_, column)| format!("{:.3}", per_request(&rows, column))));
        table.0.push(line);
    }
    table
}

/// All tables, those without a single result left out.
pub fn all(results: &Results) -> String {
    let mut text = format!(
        "\n## What must be reached\n\n{}",
        score::table(results).text()
    );
    for section in sections() {
        let table = table_of(results, &section);
        if table.0.len() > 1 {
            text += &format!("\n## {}\n\n{}", section.title, table.text());
        }
    }
    if results.iter().any(|(_, row)| !row.is_steady()) {
        text += "\n\\* not steady: the second half of the run was over 1.3 times as slow as the first.\n";
    }
    let details = details(results);
    if details.0.len() > 1 {
        text += &format!(
            "\n## What eRAID auto did, for each request\n\n{}",
            details.text()
        );
    }
    text
}

/// The report.
pub fn document(results: &Results, tables: &str, plots: &[Plot]) -> String {
    let list = |column: &str| results.texts(column).join(", ");
    let mut text = format!(
        "<!-- SPDX-License-Identifier: GPL-2.0 -->\n\n# Benchmark: failslow\n\n\
         Written by `scripts/lab bench failslow`; [README.md](README.md) says how it is measured and \
         what the columns mean. All numbers of every cell, with seeds and a hash of the drives' \
         parameters, are in [failslow.csv](failslow.csv).\n\n\
         Latencies are in simulated milliseconds, mean / 99%, and in the tables of slow and hanging \
         drives the longest. Commit {}; kernel {}; seeds {}.\n",
        list("commit"),
        list("kernel"),
        list("seed")
    );
    text += tables;
    if !plots.is_empty() {
        text += "\n## Plots\n\nMeans, 5 turns, a request every 8 ms.\n";
    }
    for plot in plots {
        text += &format!("\n![{}]({})\n", plot.title, plot.file);
    }
    text
}
