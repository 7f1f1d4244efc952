// SPDX-License-Identifier: GPL-2.0

//! KEY=VALUE words, of which tables of cells and loads consist.

use std::str::FromStr;

/// The pairs of a line.
pub fn pairs(line: &str) -> impl Iterator<Item = Result<(&str, &str), String>> {
    line.split_whitespace().map(|word| {
        word.split_once('=')
            .ok_or_else(|| format!("'{word}' is not KEY=VALUE"))
    })
}

/// A number.
pub fn number<T: FromStr>(key: &str, text: &str) -> Result<T, String> {
    let number = text.parse();
    number.map_err(|_| format!("{key}={text} is not a number"))
}

/// What stands for a word in a table of words.
pub fn named<T: Copy>(key: &str, text: &str, all: &[(&str, T)]) -> Result<T, String> {
    let found = all.iter().find(|(word, _)| *word == text);
    found
        .map(|(_, value)| *value)
        .ok_or_else(|| format!("no {key} '{text}'"))
}
