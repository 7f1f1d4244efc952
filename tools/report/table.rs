// SPDX-License-Identifier: GPL-2.0

//! Texts in rows and columns, and numbers as people compare them.

/// A table of texts, the first row its head.
pub struct Table(pub Vec<Vec<String>>);

impl Table {
    /// A table with this head.
    pub fn new(head: &[&str]) -> Self {
        Table(vec![head.iter().map(|&cell| cell.into()).collect()])
    }

    /// As Markdown, columns aligned; the first one to the left, numbers to the right.
    pub fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.0.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.0[0].len()).map(width).collect();
        let mut text = String::new();
        for (index, row) in self.0.iter().enumerate() {
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                text += &match column {
                    0 => format!("| {cell:<width$} |"),
                    _ => format!(" {cell:>width$} |"),
                };
            }
            text += "\n";
            if index == 0 {
                for (column, &width) in widths.iter().enumerate() {
                    text += &match column {
                        0 => format!("|{}|", "-".repeat(width + 2)),
                        _ => format!("{}:|", "-".repeat(width + 1)),
                    };
                }
                text += "\n";
            }
        }
        text
    }
}

/// A number with about three digits, as people compare them.
pub fn short(number: f64) -> String {
    match number.abs() {
        n if n >= 100.0 => format!("{number:.0}"),
        n if n >= 1.0 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

/// What there is to say, or a dash.
pub fn dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".into())
}
