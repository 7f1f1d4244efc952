// SPDX-License-Identifier: GPL-2.0

//! Lines, words and numbers that an administrator writes, and excerpts of them for messages.
//!
//! A line is printable ASCII. `EINVAL` is for what is malformed, `ERANGE` for a number that is out
//! of its range.

use crate::refusal::{Errno, Refusal};
use crate::refuse;
use core::fmt::{self, Write};
use core::ops::RangeInclusive;

/// Longest line, its newline included.
pub const LINE_MAX: usize = 4095;

/// A piece of input for a message: shortened, and without anything unprintable.
#[derive(Clone, Copy, Debug)]
pub struct Excerpt<'a>(pub &'a [u8]);

impl Excerpt<'_> {
    /// Longest input shown in full.
    const SHOWN: usize = 64;
}

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.iter().take(Self::SHOWN) {
            f.write_char(match byte {
                b' '..=b'~' => char::from(*byte),
                _ => '?',
            })?;
        }
        if self.0.len() > Self::SHOWN {
            f.write_str("...")?;
        }
        Ok(())
    }
}

/// Parses a number written to an attribute: decimal digits.
///
/// # Errors
///
/// `EINVAL` for anything else, `ERANGE` for a number out of `range`.
pub fn parse_number(file: &str, line: &[u8], range: RangeInclusive<u64>) -> Result<u64, Refusal> {
    let text = one_line(file, line)?;
    let (min, max) = (range.start(), range.end());
    match decimal(text) {
        Ok(number) if range.contains(&number) => Ok(number),
        Ok(_) | Err(NotDecimal::TooLarge) => Err(refuse!(
            Errno::Range,
            "{file}: {} is out of range, {min} to {max}",
            Excerpt(text.as_bytes())
        )),
        Err(NotDecimal::Malformed) => Err(refuse!(
            Errno::Inval,
            "{file}: {} is no number, {min} to {max}",
            Excerpt(text.as_bytes())
        )),
    }
}

/// The text of a line written to an attribute, which may lack its newline, without blanks around.
///
/// # Errors
///
/// `EINVAL` for nothing, for several lines and for anything but printable ASCII.
pub fn one_line<'a>(file: &str, line: &'a [u8]) -> Result<&'a str, Refusal> {
    printable(file, line.strip_suffix(b"\n").unwrap_or(line))
}

/// The text of a line written to a control file.
pub(crate) fn control_line<'a>(file: &str, line: &'a [u8]) -> Result<&'a str, Refusal> {
    if line.len() > LINE_MAX {
        return Err(refuse!(
            Errno::Inval,
            "{file}: the line is longer than {LINE_MAX} bytes; long sets can be assembled one \
             member at a time"
        ));
    }
    if line.is_empty() {
        return Err(refuse!(Errno::Inval, "{file}: nothing was written"));
    }
    match line.strip_suffix(b"\n") {
        Some(text) => printable(file, text),
        None => Err(refuse!(
            Errno::Inval,
            "{file}: the line does not end in a newline (one line, at most {LINE_MAX} bytes, in \
             one write)"
        )),
    }
}

/// Checks that `text` is one line of printable ASCII, and takes the blanks around it off.
fn printable<'a>(file: &str, text: &'a [u8]) -> Result<&'a str, Refusal> {
    let bad = |byte: &u8| !matches!(byte, b' '..=b'~' | b'\t');
    if let Some((at, byte)) = text.iter().enumerate().find(|(_, byte)| bad(byte)) {
        return Err(match byte {
            b'\n' => refuse!(Errno::Inval, "{file}: more than one line was written"),
            byte => refuse!(
                Errno::Inval,
                "{file}: byte {} is {byte:#04x}; only printable ASCII is allowed",
                at.saturating_add(1)
            ),
        });
    }
    // Cannot fail: all of it is ASCII.
    let text = core::str::from_utf8(text).unwrap_or("");
    let text = text.trim_matches(BLANKS);
    if text.is_empty() {
        return Err(refuse!(Errno::Inval, "{file}: the line is empty"));
    }
    Ok(text)
}

/// What stands between words.
pub(crate) const BLANKS: [char; 2] = [' ', '\t'];

/// Checks that a line is one word.
pub(crate) fn one_word<'a>(file: &str, text: &'a str) -> Result<&'a str, Refusal> {
    if text.contains(BLANKS) {
        return Err(refuse!(
            Errno::Inval,
            "{file}: one word is expected, not {}",
            Excerpt(text.as_bytes())
        ));
    }
    Ok(text)
}

/// Why a text is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotDecimal {
    Malformed,
    TooLarge,
}

/// Parses decimal digits: no sign, no blanks.
pub(crate) fn decimal(text: &str) -> Result<u64, NotDecimal> {
    if text.is_empty() || !text.bytes().all(|c| c.is_ascii_digit()) {
        return Err(NotDecimal::Malformed);
    }
    text.parse().map_err(|_| NotDecimal::TooLarge)
}

/// Parses a size in bytes, or in KiB, MiB, GiB or TiB with K, M, G or T behind it.
pub(crate) fn size(text: &str) -> Result<u64, NotDecimal> {
    let units = [
        ('K', 1 << 10),
        ('M', 1 << 20),
        ('G', 1 << 30),
        ('T', 1 << 40),
    ];
    let suffixed = |(suffix, unit)| text.strip_suffix(suffix).map(|digits| (digits, unit));
    let (digits, unit) = units.into_iter().find_map(suffixed).unwrap_or((text, 1));
    decimal(digits)?
        .checked_mul(unit)
        .ok_or(NotDecimal::TooLarge)
}
