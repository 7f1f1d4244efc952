// SPDX-License-Identifier: GPL-2.0

//! The cells: what the drives do, and what is asked of the array.
//!
//! There is no table of them; a cell is an element of a product of lists, and its name says which.

use std::fmt;

/// Requests of a cell, and how many of them, the first ones, do not count.
const COUNT: u32 = 22_000;
pub const WARM_UP: u32 = 2_000;

/// Requests of a day: as many as its 600 s have, besides the warm-up.
const COUNT_OF_DAY: u32 = 32_000;

/// Which part of the benchmark a cell belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Set {
    /// Six drives, chunk 8 KiB: what rules of reading are made with.
    Grid,
    /// Held out, so not to be looked at while a rule is made: chunk 64 KiB.
    Chunk64,
    /// Held out: nine drives.
    Nine,
    /// Held out: 8 to 80 KiB, 20% of the requests are writes.
    Mixed,
    /// Held out: bursts of requests.
    Bursty,
    /// Held out: a day of 8 to 80 KiB.
    Day,
    /// One drive is slow.
    Slow,
    /// One drive does not answer for 30 s.
    Hung,
}

/// All sets with their words.
const SETS: [(Set, &str); 8] = [
    (Set::Grid, "grid"),
    (Set::Chunk64, "chunk64"),
    (Set::Nine, "nine"),
    (Set::Mixed, "mixed"),
    (Set::Bursty, "bursty"),
    (Set::Day, "day"),
    (Set::Slow, "slow"),
    (Set::Hung, "hung"),
];

impl Set {
    /// In a cell's name.
    pub fn word(self) -> &'static str {
        let found = SETS.iter().find(|(set, _)| *set == self);
        found.map_or("", |(_, word)| word)
    }

    /// Whether rules must not be made with it.
    pub fn is_held_out(self) -> bool {
        match self {
            Set::Chunk64 | Set::Nine | Set::Mixed | Set::Bursty | Set::Day => true,
            Set::Grid | Set::Slow | Set::Hung => false,
        }
    }
}

/// Drives of which something is the matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Drives {
    /// All of them.
    All,
    /// A single one, always the same.
    One,
}

/// What is the matter with the drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// Nothing.
    Well,
    /// Sectors of 4 KiB fail.
    Fails {
        /// More turns that it takes the drive to read such a sector.
        turns: u32,
        /// So many of 100 sectors.
        percent: u32,
        /// Of which drives.
        drives: Drives,
    },
    /// One drive takes so many times as long.
    Slow(u32),
    /// One drive stands still for 30 s.
    Hung,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Well => write!(f, "well"),
            Trouble::Fails {
                turns,
                percent,
                drives,
            } => {
                let drives = match drives {
                    Drives::All => "all",
                    Drives::One => "one",
                };
                write!(f, "{turns}x{percent}-{drives}")
            }
            Trouble::Slow(times) => write!(f, "x{times}"),
            Trouble::Hung => write!(f, "hung"),
        }
    }
}

impl Trouble {
    /// Words of the guest's line.
    fn words(self) -> String {
        match self {
            Trouble::Well => String::new(),
            Trouble::Fails {
                turns,
                percent,
                drives,
            } => {
                let whose = match drives {
                    Drives::All => "all",
                    Drives::One => "one",
                };
                format!(
                    " {whose}.fail_ppm={} {whose}.retry_turns={turns} {whose}.fail_mode=persistent",
                    percent * 10_000
                )
            }
            Trouble::Slow(times) => format!(" one.slow_percent={}", times * 100),
            // Seconds after the start of the load : milliseconds.
            Trouble::Hung => " stall=30:30000".into(),
        }
    }

    /// In words.
    pub fn label(self) -> String {
        match self {
            Trouble::Well => "no retries".into(),
            Trouble::Fails { turns, percent, .. } => format!("{turns} turns, {percent}%"),
            Trouble::Slow(times) => format!("one {times} times slower"),
            Trouble::Hung => "one hangs for 30 s".into(),
        }
    }
}

/// One cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// The part it belongs to.
    pub set: Set,
    /// KiB of a request, of the longest one where there are several.
    pub kib: u32,
    /// Milliseconds between two requests on average.
    pub every_ms: u32,
    /// What is the matter with the drives.
    pub trouble: Trouble,
}

impl Cell {
    /// `SET-SIZEk-EVERYms-TROUBLE`.
    pub fn name(&self) -> String {
        let Cell {
            set,
            kib,
            every_ms,
            trouble,
        } = self;
        format!("{}-{kib}k-{every_ms}ms-{trouble}", set.word())
    }

    /// The cell of a name.
    pub fn named(name: &str) -> Result<Self, String> {
        let found = all().into_iter().find(|cell| cell.name() == name);
        found.ok_or_else(|| format!("there is no cell '{name}'"))
    }

    /// Whether its requests have different sizes.
    fn is_mixed(&self) -> bool {
        matches!(self.set, Set::Mixed | Set::Day)
    }

    /// Its sizes in words.
    pub fn size(&self) -> String {
        match self.is_mixed() {
            true => format!("8-{} KiB", self.kib),
            false => format!("{} KiB", self.kib),
        }
    }

    /// The line for the guest; scripts/bench/cell.sh says what the words mean.
    pub fn line(&self) -> String {
        let size = match self.is_mixed() {
            true => format!("size=8K up_to={}K align=8K", self.kib),
            false if self.set == Set::Chunk64 => format!("size={}K align=4K", self.kib),
            false => format!("size={}K align=8K", self.kib),
        };
        let count = match self.set {
            Set::Day => COUNT_OF_DAY,
            _ => COUNT,
        };
        let set = match self.set {
            Set::Grid | Set::Slow | Set::Hung => "",
            Set::Chunk64 => " chunk=64K",
            Set::Nine => " drives=9",
            Set::Mixed => " write_percent=20 memory=2048",
            Set::Bursty => " shape=bursty",
            Set::Day => " shape=day",
        };
        format!(
            "{} {size} every={}ms count={count} warm_up={WARM_UP}{set}{}",
            self.name(),
            self.every_ms,
            self.trouble.words()
        )
    }
}

/// The same drives, nothing the matter with them, under the load of the grid at 8 ms.
pub fn well(kib: u32) -> Cell {
    Cell {
        set: Set::Grid,
        kib,
        every_ms: 8,
        trouble: Trouble::Well,
    }
}

/// Sizes of the grid, KiB.
pub const SIZES: [u32; 4] = [8, 24, 40, 80];
/// Arrivals of the grid, ms.
pub const EVERY: [u32; 2] = [8, 24];
/// Turns that a retry takes, in the grid.
pub const TURNS: [u32; 2] = [3, 5];
/// Failing sectors of 100, in the grid, besides none.
pub const PERCENT: [u32; 4] = [1, 2, 5, 10];

/// Sectors that fail.
pub fn fails(turns: u32, percent: u32, drives: Drives) -> Trouble {
    Trouble::Fails {
        turns,
        percent,
        drives,
    }
}

/// What is the matter in the grid.
fn of_grid() -> Vec<Trouble> {
    let mut all = vec![Trouble::Well];
    for drives in [Drives::All, Drives::One] {
        for turns in TURNS {
            all.extend(PERCENT.map(|percent| fails(turns, percent, drives)));
        }
    }
    all
}

/// What is the matter in the sets that are held out.
fn held_out() -> Vec<Trouble> {
    vec![
        Trouble::Well,
        fails(5, 2, Drives::All),
        fails(3, 5, Drives::All),
        fails(5, 10, Drives::One),
    ]
}

/// All cells, in the order of the report.
pub fn all() -> Vec<Cell> {
    let slow = || vec![Trouble::Slow(10), Trouble::Slow(100)];
    let hung = || vec![Trouble::Hung];
    let sets = [
        (Set::Grid, &SIZES[..], &EVERY[..], of_grid()),
        (Set::Chunk64, &[4, 64, 80, 256], &EVERY, held_out()),
        (Set::Nine, &SIZES, &EVERY, held_out()),
        (Set::Mixed, &[80], &[16, 24], held_out()),
        (Set::Bursty, &[24], &[24], held_out()),
        (Set::Day, &[80], &[20], held_out()),
        (Set::Slow, &[8], &[8], slow()),
        (Set::Hung, &SIZES, &[8], hung()),
    ];
    let mut cells = Vec::new();
    for (set, sizes, gaps, troubles) in sets {
        for &every_ms in gaps {
            for &kib in sizes {
                cells.extend(troubles.iter().map(|&trouble| Cell {
                    set,
                    kib,
                    every_ms,
                    trouble,
                }));
            }
        }
    }
    cells
}
