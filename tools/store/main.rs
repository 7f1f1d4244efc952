// SPDX-License-Identifier: GPL-2.0

//! `eraid-store`: writes one line to a sysfs file as a test wants it written.
//!
//! A shell's `echo` hides the error number and may split a line. This says the error by its
//! name, and writes bytes as given.

use clap::Parser;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Writes to a sysfs file and prints `result=ok` or `result=ENAME`.
#[derive(Parser, Debug)]
#[command(name = "eraid-store", version)]
struct Args {
    /// The file.
    file: PathBuf,
    /// What to write, a newline added; standard input, unchanged, unless given.
    #[arg(long, allow_hyphen_values = true)]
    text: Option<String>,
}

/// The name of an error number, or the number.
fn name(error: &io::Error) -> String {
    const NAMES: [(i32, &str); 26] = [
        (libc::EPERM, "EPERM"),
        (libc::ENOENT, "ENOENT"),
        (libc::EINTR, "EINTR"),
        (libc::EIO, "EIO"),
        (libc::ENXIO, "ENXIO"),
        (libc::E2BIG, "E2BIG"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::ENOMEM, "ENOMEM"),
        (libc::EACCES, "EACCES"),
        (libc::ENOTBLK, "ENOTBLK"),
        (libc::EBUSY, "EBUSY"),
        (libc::EEXIST, "EEXIST"),
        (libc::ENODEV, "ENODEV"),
        (libc::ENOTDIR, "ENOTDIR"),
        (libc::EINVAL, "EINVAL"),
        (libc::EFBIG, "EFBIG"),
        (libc::ENOSPC, "ENOSPC"),
        (libc::EROFS, "EROFS"),
        (libc::ERANGE, "ERANGE"),
        (libc::ENAMETOOLONG, "ENAMETOOLONG"),
        (libc::ENODATA, "ENODATA"),
        (libc::EOPNOTSUPP, "EOPNOTSUPP"),
        (libc::ETIMEDOUT, "ETIMEDOUT"),
        (libc::EUCLEAN, "EUCLEAN"),
        (libc::EBADMSG, "EBADMSG"),
        (libc::ENOTUNIQ, "ENOTUNIQ"),
    ];
    let number = error.raw_os_error();
    let known = NAMES.iter().find(|(known, _)| Some(*known) == number);
    known.map_or_else(|| format!("{error}"), |(_, name)| (*name).to_string())
}

/// Writes all of `bytes`, as a shell would: what one call does not take goes into the next.
fn store(file: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    loop {
        let done = file.write(bytes)?;
        match bytes.get(done..) {
            Some(rest) if !rest.is_empty() && done > 0 => bytes = rest,
            _ => return Ok(()),
        }
    }
}

fn run(args: &Args) -> io::Result<bool> {
    let mut bytes = Vec::new();
    match &args.text {
        Some(text) => bytes.extend(text.bytes().chain([b'\n'])),
        None => {
            io::stdin().read_to_end(&mut bytes)?;
        }
    }
    let result = OpenOptions::new()
        .write(true)
        .open(&args.file)
        .and_then(|mut file| store(&mut file, &bytes));
    let word = result.as_ref().map_or_else(name, |()| "ok".into());
    println!("result={word}");
    Ok(result.is_ok())
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("eraid-store: {error}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_names() {
        assert_eq!(name(&io::Error::from_raw_os_error(libc::EBUSY)), "EBUSY");
        assert_eq!(
            name(&io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
            "EOPNOTSUPP"
        );
        assert!(name(&io::Error::from_raw_os_error(libc::EXDEV)).contains("18"));
    }

    #[test]
    fn a_missing_file_is_an_error_and_not_made() {
        let file = std::env::temp_dir().join(format!("eraid-store-{}", std::process::id()));
        let args = Args {
            file: file.clone(),
            text: Some("x".into()),
        };
        assert!(!run(&args).unwrap());
        assert!(!file.exists());
        std::fs::write(&file, "").unwrap();
        assert!(run(&args).unwrap());
        assert_eq!(std::fs::read(&file).unwrap(), b"x\n");
        std::fs::remove_file(file).unwrap();
    }
}
