// SPDX-License-Identifier: GPL-2.0

//! Text in a buffer of fixed size, for messages that must not allocate.

use core::fmt;

/// What stands at the end of a text that did not fit.
const ELLIPSIS: &[u8] = b"...";

/// Text of at most `N` bytes; what does not fit is cut off at a character and marked with `...`.
#[derive(Clone, Copy)]
pub struct TextBuf<const N: usize> {
    buf: [u8; N],
    len: usize,
    truncated: bool,
}

impl<const N: usize> TextBuf<N> {
    /// An empty text.
    #[inline]
    pub const fn new() -> Self {
        TextBuf {
            buf: [0; N],
            len: 0,
            truncated: false,
        }
    }

    /// The text of `args`.
    pub fn format(args: fmt::Arguments<'_>) -> Self {
        let mut text = Self::new();
        // Writing into a buffer that truncates fails only where a Display of the arguments does;
        // what it wrote until then is kept.
        let _ = fmt::Write::write_fmt(&mut text, args);
        text
    }

    /// The text written so far.
    #[inline]
    pub fn as_str(&self) -> &str {
        let bytes = self.buf.get(..self.len).unwrap_or(&[]);
        // Only whole characters are ever kept, so this does not fail.
        core::str::from_utf8(bytes).unwrap_or("")
    }

    /// Whether nothing was written yet.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether something did not fit.
    #[inline]
    pub const fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// Copies as much of `bytes` as fits, without a look at characters.
    fn append(&mut self, bytes: &[u8]) {
        let room = self.buf.get_mut(self.len..).unwrap_or(&mut []);
        let mut copied = 0;
        for (to, from) in room.iter_mut().zip(bytes) {
            *to = *from;
            copied += 1;
        }
        self.len += copied;
    }

    /// Makes room for the ellipsis by dropping whole characters, and writes it.
    fn mark_truncated(&mut self) {
        let mut keep = N.saturating_sub(ELLIPSIS.len());
        while keep > 0 && self.buf.get(keep).is_some_and(|b| is_continuation(*b)) {
            keep -= 1;
        }
        self.len = keep;
        self.append(ELLIPSIS);
        self.truncated = true;
    }
}

/// Whether `byte` is not the first one of a character in UTF-8.
#[inline]
const fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

impl<const N: usize> fmt::Write for TextBuf<N> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        if self.truncated {
            return Ok(());
        }
        let fits = s.len() <= N.saturating_sub(self.len);
        self.append(s.as_bytes());
        if !fits {
            self.mark_truncated();
        }
        Ok(())
    }
}

impl<const N: usize> Default for TextBuf<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> PartialEq for TextBuf<N> {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl<const N: usize> Eq for TextBuf<N> {}

impl<const N: usize> fmt::Debug for TextBuf<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl<const N: usize> fmt::Display for TextBuf<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    #[test]
    fn text_that_fits_is_kept() {
        let text = TextBuf::<8>::format(format_args!("{}-{}", 1234, 567));
        assert_eq!(text.as_str(), "1234-567");
        assert!(!text.is_truncated());
    }

    #[test]
    fn text_that_does_not_fit_is_marked() {
        let mut text = TextBuf::<8>::new();
        for part in ["1234", "5678", "9", "tail"] {
            text.write_str(part).unwrap();
        }
        assert_eq!(text.as_str(), "12345...");
        assert!(text.is_truncated());
    }

    #[test]
    fn characters_are_never_cut() {
        // Every length of a prefix, so that the cut falls on every byte of a character.
        for prefix in 0..10 {
            let whole = format!(
                "{}{}",
                "x".repeat(prefix),
                "\u{20ac}\u{e9}\u{1f600}".repeat(3)
            );
            let text = TextBuf::<11>::format(format_args!("{whole}"));
            let kept = text.as_str().strip_suffix("...").unwrap();
            assert!(whole.starts_with(kept) && kept.len() >= 5, "{text}");
        }
    }

    #[test]
    fn tiny_buffers_work() {
        assert_eq!(TextBuf::<0>::format(format_args!("abc")).as_str(), "");
        assert_eq!(TextBuf::<2>::format(format_args!("abc")).as_str(), "..");
    }
}
