// SPDX-License-Identifier: GPL-2.0

//! Sizes on the command line, and the part of a device that a command works on.

use std::io;

/// Parses `4096`, `64K`, `1M`, `2G` into bytes.
pub fn parse(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| format!("'{text}' is not a size"))?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("'{text}' is too large"))
}

/// The part of a device to work on.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct Part {
    /// Where it starts, in bytes.
    #[arg(long, default_value = "0", value_parser = parse)]
    pub offset: u64,
    /// Its length in bytes; the rest of the device unless given.
    #[arg(long, value_parser = parse)]
    pub length: Option<u64>,
}

impl Part {
    /// First byte and length on a device of `size` bytes, whole blocks of `block_size` only.
    pub fn on(&self, size: u64, block_size: u64) -> io::Result<(u64, u64)> {
        let bad = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
        let rest = size.checked_sub(self.offset);
        let rest = rest.ok_or_else(|| bad(format!("offset {} is past the end", self.offset)))?;
        let length = match self.length {
            None => rest / block_size * block_size,
            Some(length) if length <= rest => length,
            Some(length) => return Err(bad(format!("length {length} reaches past the end"))),
        };
        if length == 0 || length % block_size != 0 || self.offset % block_size != 0 {
            return Err(bad(format!(
                "offset {} and length {length} are not whole blocks of {block_size}",
                self.offset
            )));
        }
        Ok((self.offset, length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse("512"), Ok(512));
        assert_eq!(parse("64K"), Ok(65536));
        assert_eq!(parse("3M"), Ok(3 << 20));
        assert_eq!(parse("1G"), Ok(1 << 30));
        for bad in ["", "K", "-1", "1T", "99999999999999999999", "99999999999G"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn parts() {
        let part = |offset, length| Part { offset, length };
        assert_eq!(part(0, None).on(10_000, 4096).unwrap(), (0, 8192));
        assert_eq!(part(4096, Some(4096)).on(8192, 4096).unwrap(), (4096, 4096));
        for bad in [
            part(0, Some(12288)),
            part(8192, None),
            part(1, None),
            part(9000, None),
        ] {
            assert!(bad.on(8192, 4096).is_err(), "{bad:?}");
        }
    }
}
