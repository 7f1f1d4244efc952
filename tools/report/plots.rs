// SPDX-License-Identifier: GPL-2.0

//! Plots of latency distributions: the share of requests slower than so many milliseconds.
//!
//! That is one minus the cumulative distribution; on a logarithmic scale the tail shows.

use crate::cells::{Group, Measure, GROUPS};
use crate::curves::{area, draw_curves, frame, range, Curve, Plot, COLOURS};
use crate::outcome::{Array, Bucket, ARRAYS};
use crate::Row;
use plotters::prelude::*;
use std::error::Error;
use std::io;
use std::path::Path;

/// The smallest share on a plot.
const SMALLEST: f64 = 1e-4;

/// Points whose coordinates are closer than this ratio are one on a plot: a pixel or less.
const NEAR: f64 = 1.015;

/// Writes the plots: one for each group and size that has latencies.
pub fn write(rows: &[Row], out: &Path, name: &str) -> io::Result<Vec<Plot>> {
    let mut plots = Vec::new();
    for (word, group) in GROUPS {
        // The first group is about the instrument, which the tables show better.
        if group.measure() != Measure::Latency || group == Group::Same {
            continue;
        }
        let of_group = |row: &&Row| row.cell.group == group;
        let mut sizes: Vec<&str> = Vec::new();
        for row in rows.iter().filter(of_group) {
            if !sizes.contains(&row.cell.size.as_str()) {
                sizes.push(&row.cell.size);
            }
        }
        for size in sizes {
            let rows: Vec<&Row> = rows
                .iter()
                .filter(of_group)
                .filter(|row| row.cell.size == size)
                .filter(|row| row.md.is_some() || row.eraid.is_some())
                .collect();
            if rows.is_empty() {
                continue;
            }
            let plot = Plot {
                title: format!("{}, {} KiB", title(group), size.trim_end_matches('K')),
                file: format!("{name}-{word}-{}.svg", size.to_lowercase()),
            };
            draw(&plot.title, &out.join(&plot.file), &rows)
                .map_err(|error| io::Error::other(format!("{}: {error}", plot.file)))?;
            plots.push(plot);
        }
    }
    Ok(plots)
}

fn title(group: Group) -> &'static str {
    match group {
        Group::Normal => "All drives alike, a request every 8 ms",
        Group::Calm => "All drives alike, a request every 16 ms",
        Group::Degraded => "One member failed",
        Group::One => "One bad drive",
        _ => "One bad drive, overload",
    }
}

/// The curve: the share of requests beyond each bucket's end, level where there are none. The last
/// point, where the share is zero, has no place on a logarithmic scale.
fn curve(histogram: &[Bucket]) -> Vec<(f64, f64)> {
    let all: u64 = histogram.iter().map(|bucket| bucket.count).sum();
    let share = |count: u64| count as f64 / all as f64;
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut left = all;
    for bucket in histogram {
        let before = (bucket.from_ms, share(left));
        left -= bucket.count;
        let behind = (bucket.to_ms, share(left));
        for point in [before, behind] {
            let far = |last: &(f64, f64)| point.0 / last.0 > NEAR || last.1 / point.1 > NEAR;
            if point.1 > 0.0 && points.last().is_none_or(far) {
                points.push(point);
            }
        }
    }
    points
}

fn draw(title: &str, path: &Path, rows: &[&Row]) -> Result<(), Box<dyn Error>> {
    let mut curves = Vec::new();
    for (row, colour) in rows.iter().zip(COLOURS.iter().cycle()) {
        for array in ARRAYS {
            let Some(outcome) = row.on(array) else {
                continue;
            };
            curves.push(Curve {
                label: format!("{}, {}", row.cell.label, array.name()),
                // md wide and pale, eRAID a thin line that stays visible on top of it.
                style: match array {
                    Array::Md => colour.mix(0.35).stroke_width(5),
                    Array::Eraid => colour.stroke_width(2),
                },
                points: curve(&outcome.histogram),
            });
        }
    }
    let (from, to) = range(&curves, |point| point.0, 10.0);
    let area = area(path)?;
    let mut chart = frame(&area, title)
        .build_cartesian_2d((from..to).log_scale(), (SMALLEST..1.0).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("latency, ms (simulated)")
        .y_desc("share of requests that took longer")
        .x_label_formatter(&|ms| {
            if *ms < 1.0 {
                format!("{ms:.1}")
            } else {
                format!("{ms:.0}")
            }
        })
        .y_label_formatter(&|share| format!("{}%", share * 100.0))
        .light_line_style(WHITE)
        .draw()?;
    for curve in &mut curves {
        curve.points.retain(|point| point.1 >= SMALLEST);
    }
    draw_curves(&mut chart, curves, SeriesLabelPosition::LowerLeft)?;
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_level_where_nothing_is() {
        let bucket = |from_ms, to_ms, count| Bucket {
            from_ms,
            to_ms,
            count,
        };
        let points = curve(&[bucket(10.0, 11.0, 3), bucket(1000.0, 1100.0, 1)]);
        assert_eq!(points, [(10.0, 1.0), (11.0, 0.25), (1000.0, 0.25)]);
        assert!(curve(&[]).is_empty());
        // What is closer than a pixel is left out.
        let close = [
            bucket(10.0, 10.01, 1),
            bucket(10.02, 10.03, 1),
            bucket(20.0, 21.0, 998),
        ];
        assert_eq!(curve(&close), [(10.0, 1.0), (20.0, 0.998)]);
    }
}
