// SPDX-License-Identifier: GPL-2.0

//! Plots of the grid: mean latency over the share of sectors that fail.

use crate::curves::{area, draw_curves, frame, range, Curve, Plot, COLOURS};
use crate::failslow::cells::{fails, well, Cell, Drives, Trouble, PERCENT, SIZES};
use crate::failslow::results::Results;
use crate::failslow::stacks::{Stack, STACKS};
use crate::failslow::summary::Summary;
use plotters::prelude::*;
use std::error::Error;
use std::io;
use std::path::Path;

/// Turns of a retry on the plots.
const TURNS: u32 = 5;

/// Writes a plot for each size, all drives alike and one drive bad.
pub fn write(results: &Results, out: &Path) -> io::Result<Vec<Plot>> {
    let mut plots = Vec::new();
    for (drives, words, file) in [
        (Drives::All, "all drives", "all"),
        (Drives::One, "one drive", "one"),
    ] {
        for kib in SIZES {
            let curves = curves(results, kib, drives);
            if curves.is_empty() {
                continue;
            }
            let plot = Plot {
                title: format!("Sectors of {words} fail, {kib} KiB"),
                file: format!("failslow-{file}-{kib}k.svg"),
            };
            draw(&plot.title, &out.join(&plot.file), curves)
                .map_err(|error| io::Error::other(format!("{}: {error}", plot.file)))?;
            plots.push(plot);
        }
    }
    Ok(plots)
}

/// The curves of all stacks that have at least two points: their means by percent.
fn curves(results: &Results, kib: u32, drives: Drives) -> Vec<Curve> {
    let mut troubles = vec![(0, Trouble::Well)];
    troubles.extend(PERCENT.map(|percent| (percent, fails(TURNS, percent, drives))));
    let of_stack = |stack| {
        let points = troubles.iter().filter_map(|&(percent, trouble)| {
            let cell = Cell {
                trouble,
                ..well(kib)
            };
            let summary = Summary::of(results, cell, stack)?;
            Some((f64::from(percent), summary.mean))
        });
        points.collect()
    };
    let with_points = STACKS.into_iter().map(|stack| (stack, of_stack(stack)));
    let drawn = with_points.filter(|(_, points): &(_, Vec<_>)| points.len() > 1);
    let curve = |((stack, points), colour): ((Stack, _), &RGBColor)| Curve {
        label: stack.title().into(),
        style: colour.stroke_width(if stack == Stack::Auto { 4 } else { 2 }),
        points,
    };
    drawn.zip(COLOURS.iter().cycle()).map(curve).collect()
}

fn draw(title: &str, path: &Path, curves: Vec<Curve>) -> Result<(), Box<dyn Error>> {
    let (from, to) = range(&curves, |point| point.1, 2.0);
    let area = area(path)?;
    let mut chart =
        frame(&area, title).build_cartesian_2d(0.0..10.0, (from * 0.9..to * 1.1).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("sectors that fail")
        .y_desc("mean latency, ms (simulated)")
        .x_label_formatter(&|percent| format!("{percent:.0}%"))
        .y_label_formatter(&|ms| format!("{ms:.0}"))
        .light_line_style(WHITE)
        .draw()?;
    draw_curves(&mut chart, curves, SeriesLabelPosition::UpperLeft)?;
    area.present()?;
    Ok(())
}
