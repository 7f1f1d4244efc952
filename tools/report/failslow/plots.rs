// SPDX-License-Identifier: GPL-2.0

//! Plots of the grid: mean latency over the share of sectors that fail.

use crate::failslow::cells::{fails, well, Cell, Drives, Trouble, PERCENT, SIZES};
use crate::failslow::results::Results;
use crate::failslow::stacks::{Stack, STACKS};
use crate::failslow::summary::Summary;
use crate::plots::{Plot, COLOURS, SIZE};
use plotters::prelude::*;
use std::error::Error;
use std::io;
use std::path::Path;

/// Turns of a retry on the plots.
const TURNS: u32 = 5;

/// One stack's means by percent.
struct Curve {
    stack: Stack,
    points: Vec<(f64, f64)>,
}

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
            draw(&plot.title, &out.join(&plot.file), &curves)
                .map_err(|error| io::Error::other(format!("{}: {error}", plot.file)))?;
            plots.push(plot);
        }
    }
    Ok(plots)
}

/// The curves of all stacks that have at least two points.
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
        Curve {
            stack,
            points: points.collect(),
        }
    };
    let curves = STACKS.into_iter().map(of_stack);
    curves.filter(|curve| curve.points.len() > 1).collect()
}

fn draw(title: &str, path: &Path, curves: &[Curve]) -> Result<(), Box<dyn Error>> {
    let means = || curves.iter().flat_map(|curve| curve.points.iter());
    let from = means()
        .map(|point| point.1)
        .fold(f64::MAX, f64::min)
        .max(0.1);
    let to = means().map(|point| point.1).fold(from * 2.0, f64::max);
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..10.0, (from * 0.9..to * 1.1).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("sectors that fail")
        .y_desc("mean latency, ms (simulated)")
        .x_label_formatter(&|percent| format!("{percent:.0}%"))
        .y_label_formatter(&|ms| format!("{ms:.0}"))
        .light_line_style(WHITE)
        .draw()?;
    for (curve, colour) in curves.iter().zip(COLOURS.iter().cycle()) {
        let style = colour.stroke_width(if curve.stack == Stack::Auto { 4 } else { 2 });
        let points = curve.points.iter().copied();
        chart
            .draw_series(LineSeries::new(points, style))?
            .label(curve.stack.title())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .legend_area_size(30)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    area.present()?;
    Ok(())
}
