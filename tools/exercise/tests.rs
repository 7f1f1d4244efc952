// SPDX-License-Identifier: GPL-2.0

//! The commands as a whole, on a file.

use crate::{run, Cli};
use clap::Parser;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A scratch folder with a device file, gone at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, bytes: u64) -> Self {
        // Not in /tmp: a tmpfs may refuse direct I/O.
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join("target");
        let folder = folder.join(format!("exercise-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        File::create(folder.join("dev"))
            .unwrap()
            .set_len(bytes)
            .unwrap();
        Scratch(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Runs a command line in which `DEV`, `LOG`, `OLD` stand for the scratch files.
    fn run(&self, line: &str) -> std::io::Result<bool> {
        let words = line.split_whitespace().map(|word| match word {
            "DEV" => self.path("dev"),
            "LOG" => self.path("log"),
            "OLD" => self.path("old"),
            word => word.into(),
        });
        run(
            &Cli::try_parse_from(std::iter::once("x".into()).chain(words))
                .unwrap()
                .command,
        )
    }

    fn ok(&self, line: &str) {
        assert!(self.run(line).unwrap(), "{line}");
    }

    fn flip(&self, at: u64) {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.path("dev"))
            .unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const DEVICE: u64 = 8 << 20;

#[test]
fn what_was_written_verifies() {
    let scratch = Scratch::new("basic", DEVICE);
    scratch.ok("write DEV --log LOG --seed 5 --count 300 --read-back-pct 50 --dsync-pct 10");
    scratch.ok("verify DEV --log LOG --unwritten zero");
    scratch.ok("write DEV --log LOG --seed 6 --count 400 --threads 4 --unit 64K --sync-every 7");
    scratch.ok("verify DEV --log LOG --unwritten zero --threads 3 --seed 9 --max-size 64K");
    scratch.ok("write DEV --log LOG --seed 7 --count 400 --threads 4 --overlap --max-size 2M");
    scratch.ok("verify DEV --log LOG --unwritten zero");
    scratch.ok("fill DEV --log LOG --seed 8 --size 256K");
    scratch.ok("verify DEV --log LOG --unwritten zero");
}

#[test]
fn every_kind_of_wrong_byte_is_found() {
    let scratch = Scratch::new("wrong", DEVICE);
    scratch.ok("fill DEV --log LOG --seed 5");
    for at in [0, 1, 4095, 4096, 1 << 20, DEVICE / 2 + 513, DEVICE - 1] {
        scratch.flip(at);
        assert!(!scratch.run("verify DEV --log LOG").unwrap(), "byte {at}");
        scratch.flip(at);
    }
    scratch.ok("verify DEV --log LOG");
    // A lost write, and a write to another place, are wrong blocks too.
    fs::copy(scratch.path("dev"), scratch.path("old")).unwrap();
    scratch.ok("write DEV --log LOG --seed 6 --count 1 --max-size 4K");
    scratch.ok("verify DEV --log LOG");
    fs::copy(scratch.path("old"), scratch.path("dev")).unwrap();
    assert!(!scratch.run("verify DEV --log LOG").unwrap());
}

#[test]
fn unwritten_blocks_are_watched() {
    let scratch = Scratch::new("unwritten", DEVICE);
    scratch.ok("pattern DEV --seed 3");
    scratch.ok("pattern DEV --seed 3 --check");
    assert!(!scratch.run("pattern DEV --seed 4 --check").unwrap());
    fs::copy(scratch.path("dev"), scratch.path("old")).unwrap();
    scratch.ok("write DEV --log LOG --seed 3 --count 20 --offset 1M --length 2M");
    scratch.ok("verify DEV --log LOG --unwritten pattern");
    let old = format!("verify DEV --log LOG --unwritten {}", scratch.path("old"));
    scratch.ok(&old);
    assert!(!scratch
        .run("verify DEV --log LOG --unwritten zero")
        .unwrap());
    scratch.flip(DEVICE - 1);
    assert!(!scratch.run(&old).unwrap());
    assert!(!scratch
        .run("verify DEV --log LOG --unwritten pattern")
        .unwrap());
    scratch.ok("verify DEV --log LOG");
}

#[test]
fn the_same_seed_writes_the_same_bytes() {
    let (one, two) = (Scratch::new("one", DEVICE), Scratch::new("two", DEVICE));
    for scratch in [&one, &two] {
        scratch.ok("write DEV --log LOG --seed 11 --count 200 --threads 3 --unit 128K");
    }
    one.ok(&format!("compare DEV {}", two.path("dev")));
    two.flip(70_000);
    assert!(!one
        .run(&format!("compare DEV {}", two.path("dev")))
        .unwrap());
    let shifted = format!("compare DEV {} --length 64K", two.path("dev"));
    one.ok(&shifted);
    assert!(!one
        .run(&format!("{shifted} --offset 4K --offset-b 0"))
        .unwrap());
}

#[test]
fn a_log_of_another_device_is_refused() {
    let scratch = Scratch::new("other", DEVICE);
    scratch.ok("write DEV --log LOG --seed 1 --count 2");
    let device = OpenOptions::new()
        .write(true)
        .open(scratch.path("dev"))
        .unwrap();
    device.set_len(DEVICE / 2).unwrap();
    assert!(scratch.run("verify DEV --log LOG").is_err());
    assert!(scratch
        .run("write DEV --log LOG --seed 1 --count 2")
        .is_err());
}

#[test]
fn load_reads_and_counts_errors() {
    let scratch = Scratch::new("load", DEVICE);
    scratch.ok("read-load DEV --count 50 --size 64K --threads 4");
    scratch.ok("read-load DEV --count 50 --size 64K --sequential");
    assert!(scratch.run("read-load DEV --count 1 --size 16M").is_err());
}
