// SPDX-License-Identifier: GPL-2.0

//! What is to be printed of a member: lines, and whether something is wrong.

use std::fmt;

/// See the [module documentation](self).
#[derive(Debug, Default)]
pub(crate) struct Report {
    lines: Vec<(String, String)>,
    problems: usize,
}

impl Report {
    /// Adds a line.
    pub(crate) fn line(&mut self, key: impl Into<String>, value: impl fmt::Display) {
        self.lines.push((key.into(), value.to_string()));
    }

    /// Adds what a crash may leave.
    pub(crate) fn note(&mut self, what: impl fmt::Display) {
        self.line("note", what);
    }

    /// Adds what should never be.
    pub(crate) fn problem(&mut self, what: impl fmt::Display) {
        self.problems += 1;
        self.line("problem", what);
    }

    /// Whether there is no problem.
    pub(crate) fn is_ok(&self) -> bool {
        self.problems == 0
    }

    /// The values of a key, in their order.
    #[cfg(test)]
    pub(crate) fn values(&self, key: &str) -> Vec<&str> {
        let of_key = self.lines.iter().filter(|(k, _)| k == key);
        of_key.map(|(_, value)| value.as_str()).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (key, value) in &self.lines {
            writeln!(f, "{key}={value}")?;
        }
        let result = if self.is_ok() { "ok" } else { "wrong" };
        writeln!(f, "result={result}")
    }
}
