// SPDX-License-Identifier: GPL-2.0

//! What the cells run on: an array, and how it has been told to read.

use crate::failslow::cells::{Cell, Trouble};

/// An array and its way to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stack {
    /// Linux md as it is.
    Md,
    /// The same on drives that never retry.
    MdNoRetry,
    /// The same without the member that is bad elsewhere.
    MdFailed,
    /// eRAID with `read_policy` normal.
    Normal,
    /// The same, failfast.
    Failfast,
    /// The same, proactive.
    Proactive,
    /// The same, auto: eRAID as it is.
    Auto,
}

/// All stacks, in the order of the tables.
pub const STACKS: [Stack; 7] = [
    Stack::Md,
    Stack::MdNoRetry,
    Stack::MdFailed,
    Stack::Normal,
    Stack::Failfast,
    Stack::Proactive,
    Stack::Auto,
];

/// eRAID with a policy that is the same for all requests.
pub const FIXED: [Stack; 3] = [Stack::Normal, Stack::Failfast, Stack::Proactive];

impl Stack {
    /// In names of files.
    pub fn word(self) -> &'static str {
        match self {
            Stack::Md => "md",
            Stack::MdNoRetry => "md-noretry",
            Stack::MdFailed => "md-failed",
            Stack::Normal => "normal",
            Stack::Failfast => "failfast",
            Stack::Proactive => "proactive",
            Stack::Auto => "auto",
        }
    }

    /// The head of its column.
    pub fn title(self) -> &'static str {
        match self {
            Stack::Md => "md",
            Stack::MdNoRetry => "md, drives' retries off",
            Stack::MdFailed => "md, one failed",
            Stack::Normal => "eRAID normal",
            Stack::Failfast => "eRAID failfast",
            Stack::Proactive => "eRAID proactive",
            Stack::Auto => "eRAID auto",
        }
    }

    /// The stack of a word.
    pub fn named(word: &str) -> Result<Self, String> {
        let found = STACKS.into_iter().find(|stack| stack.word() == word);
        found.ok_or_else(|| format!("there is no stack '{word}'"))
    }

    /// Whether it is eRAID.
    pub fn is_eraid(self) -> bool {
        !matches!(self, Stack::Md | Stack::MdNoRetry | Stack::MdFailed)
    }

    /// The array, as scripts/bench/cell.sh calls it.
    pub fn array(self) -> &'static str {
        match self.is_eraid() {
            true => "eraid",
            false => "md",
        }
    }

    /// What the guest's line has besides the cell's.
    pub fn words(self) -> String {
        match self {
            Stack::Md => String::new(),
            // md can throw out a drive that keeps failing, and gets nowhere when most reads fail.
            Stack::MdNoRetry => "all.retry_off=always may_fail=1".into(),
            Stack::MdFailed => "fail=1".into(),
            _ => format!("array.read_policy={}", self.word()),
        }
    }

    /// Whether it says something that no other stack, or the same in another cell, does.
    pub fn runs(self, cell: &Cell) -> bool {
        match self {
            Stack::MdNoRetry => matches!(cell.trouble, Trouble::Fails { .. }),
            // What is the matter with the failed drive does not matter any more.
            Stack::MdFailed => cell.trouble == Trouble::Well,
            _ => true,
        }
    }
}
