// SPDX-License-Identifier: GPL-2.0

//! Parsers of the lines written to the control files and parameters.
//!
//! A control line is words `key=value` with blanks between them, printable ASCII, one line, ended
//! by a newline. `EINVAL` is for a line that is wrong, `ERANGE` for a number out of its range.

use crate::params::{Key, Params, When};
use crate::refusal::{Errno, Refusal};
use crate::refuse;
use crate::words::{control_line, one_line, one_word, parse_number, Excerpt, BLANKS};

/// Longest name of a drive.
pub const NAME_MAX: usize = 24;

/// A line to `create`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Create<'a> {
    /// Name of the drive and its disk.
    pub name: &'a str,
    /// Its parameters.
    pub params: Params,
}

/// Parses a line to `create`: `name=`, and any parameters.
///
/// # Errors
///
/// `EINVAL`, `ERANGE`.
pub fn parse_create(line: &[u8]) -> Result<Create<'_>, Refusal> {
    const FILE: &str = "create";
    let text = control_line(FILE, line)?;
    let mut name = None;
    let mut params = Params::DEFAULT;
    let mut given = [false; Key::COUNT];
    for word in text.split(BLANKS).filter(|word| !word.is_empty()) {
        let Some((key, value)) = word.split_once('=') else {
            return Err(refuse!(
                Errno::Inval,
                "{FILE}: {} is not of the form key=value",
                Excerpt(word.as_bytes())
            ));
        };
        let again = if key == "name" {
            name.replace(value).is_some()
        } else {
            let Some(key) = Key::named(key) else {
                return Err(refuse!(
                    Errno::Inval,
                    "{FILE}: {}= is not known",
                    Excerpt(key.as_bytes())
                ));
            };
            params.set(key, key.parse(FILE, value)?)?;
            let seen = given.get_mut(key as usize);
            seen.is_some_and(|seen| core::mem::replace(seen, true))
        };
        if again {
            return Err(refuse!(
                Errno::Inval,
                "{FILE}: {}= is given twice",
                Excerpt(key.as_bytes())
            ));
        }
    }
    let name = name.ok_or_else(|| refuse!(Errno::Inval, "{FILE}: name= is needed"))?;
    check_name(FILE, name)?;
    Ok(Create { name, params })
}

/// Parses a line that is the name of a drive.
///
/// # Errors
///
/// `EINVAL`.
pub fn parse_name<'a>(file: &str, line: &'a [u8]) -> Result<&'a str, Refusal> {
    let name = one_word(file, one_line(file, line)?)?;
    check_name(file, name)?;
    Ok(name)
}

/// Parses a value written to the file of a parameter.
///
/// # Errors
///
/// `EINVAL`, `ERANGE`; `EPERM` for one that cannot be changed any more.
pub fn parse_param(key: Key, line: &[u8]) -> Result<u64, Refusal> {
    let name = key.spec().name;
    if key.spec().when == When::Creation {
        return Err(refuse!(
            Errno::Perm,
            "{name} is fixed when the drive is made"
        ));
    }
    key.parse(name, one_word(name, one_line(name, line)?)?)
}

/// Parses a seed.
///
/// # Errors
///
/// `EINVAL`, `ERANGE`.
pub fn parse_seed(file: &str, line: &[u8]) -> Result<u64, Refusal> {
    parse_number(file, line, 0..=u64::MAX)
}

/// Checks the name of a drive, which is that of its disk and directory, too.
fn check_name(file: &str, name: &str) -> Result<(), Refusal> {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_' || c == b'-';
    let why = if name.is_empty() || name.len() > NAME_MAX {
        "has to have 1 to 24 characters"
    } else if !name.bytes().all(plain) {
        "may have a-z, 0-9, _ and - only"
    } else if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        "has to start with a letter"
    } else if matches!(name, "power" | "subsystem" | "uevent") {
        "is taken by sysfs"
    } else {
        return Ok(());
    };
    Err(refuse!(
        Errno::Inval,
        "{file}: the name {} {why}",
        Excerpt(name.as_bytes())
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_are_parsed() {
        let create = parse_create(b"name=h0 size=1G  seed=5\tfail_mode=persistent\n").unwrap();
        assert_eq!(create.name, "h0");
        assert_eq!(create.params.get(Key::Size), 1 << 30);
        assert_eq!(create.params.get(Key::Seed), 5);
        assert_eq!(create.params.get(Key::FailMode), 1);
        assert_eq!(create.params.get(Key::Rpm), 7200);
        assert_eq!(parse_name("remove", b"h0\n").unwrap(), "h0");
        assert_eq!(parse_param(Key::FailPpm, b"20000\n").unwrap(), 20_000);
        assert_eq!(parse_seed("power_cut", b"7").unwrap(), 7);
    }

    #[test]
    fn wrong_lines_are_refused() {
        let wrong: [(&[u8], Errno); 16] = [
            (b"", Errno::Inval),
            (b"\n", Errno::Inval),
            (b"name=h0", Errno::Inval),
            (b"size=1G\n", Errno::Inval),
            (b"name=\n", Errno::Inval),
            (b"name=h0 name=h1\n", Errno::Inval),
            (b"name=h0 seed=1 seed=1\n", Errno::Inval),
            (b"name=h0 colour=red\n", Errno::Inval),
            (b"name=h0 seed\n", Errno::Inval),
            (b"name=h0 rpm=0\n", Errno::Range),
            (b"name=h0 size=1P\n", Errno::Inval),
            (b"name=h0 size=999999999T\n", Errno::Range),
            (b"name=../x\n", Errno::Inval),
            (b"name=0h\n", Errno::Inval),
            (b"name=abcdefghijklmnopqrstuvwxy\n", Errno::Inval),
            (b"name=h0\nname=h1\n", Errno::Inval),
        ];
        for (line, errno) in wrong {
            let refusal = parse_create(line).unwrap_err();
            assert_eq!(refusal.errno, errno, "{refusal}");
        }
        assert_eq!(
            parse_param(Key::Size, b"1G\n").unwrap_err().errno,
            Errno::Perm
        );
        assert_eq!(
            parse_param(Key::Rpm, b"1 2\n").unwrap_err().errno,
            Errno::Inval
        );
    }

    proptest! {
        #[test]
        fn nothing_panics(line: Vec<u8>) {
            let _ = parse_create(&line);
            let _ = parse_name("remove", &line);
            for key in Key::ALL {
                let _ = parse_param(key, &line);
            }
        }
    }
}
