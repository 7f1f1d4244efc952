// SPDX-License-Identifier: GPL-2.0

//! Curves in a frame with a legend: how the plots of all reports look.

use plotters::coord::ranged1d::Ranged;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::error::Error;
use std::path::Path;

/// A plot that was written.
pub struct Plot {
    /// Its title.
    pub title: String,
    /// Its file, in the directory of the report.
    pub file: String,
}

/// What plots are drawn on.
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// A frame with its two axes.
type Chart<'a, X, Y> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>;

/// Width and height in pixels.
const SIZE: (u32, u32) = (900, 520);

/// Colours that people who do not see all colours can tell apart (Okabe and Ito, 2008).
pub const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

/// A line through points.
pub struct Curve {
    /// In the legend.
    pub label: String,
    /// How it is drawn.
    pub style: ShapeStyle,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

/// The smallest and the largest of what `of` takes from all points, for a logarithmic axis: above 0,
/// and the largest `least` times the smallest if there is none larger.
pub fn range(curves: &[Curve], of: impl Fn(&(f64, f64)) -> f64, least: f64) -> (f64, f64) {
    let values = || curves.iter().flat_map(|curve| curve.points.iter()).map(&of);
    let from = values().fold(f64::MAX, f64::min).max(0.1);
    (from, values().fold(from * least, f64::max))
}

/// An empty plot that becomes the file `path`.
pub fn area(path: &Path) -> Result<Area<'_>, Box<dyn Error>> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    Ok(area)
}

/// A frame that still needs its axes.
pub fn frame<'a, 'b>(area: &'a Area<'b>, title: &str) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut frame = ChartBuilder::on(area);
    frame
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64);
    frame
}

/// Draws the curves and a legend.
pub fn draw_curves<X, Y>(
    chart: &mut Chart<'_, X, Y>,
    curves: Vec<Curve>,
    legend: SeriesLabelPosition,
) -> Result<(), Box<dyn Error>>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    for Curve {
        label,
        style,
        points,
    } in curves
    {
        chart
            .draw_series(LineSeries::new(points, style))?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], style));
    }
    chart
        .configure_series_labels()
        .position(legend)
        .legend_area_size(30)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}
