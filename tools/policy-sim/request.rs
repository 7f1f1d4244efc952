// SPDX-License-Identifier: GPL-2.0

//! A read request: which blocks it has, and what it does next.
//!
//! Rows of blocks are bits, the first row that the request touches being bit 0. In each row all
//! blocks but one are enough for that one.

use eraid_core::estimate::Retries;
use eraid_core::geometry::Geometry;
use eraid_core::policy::{Choice, Demand, ReadMode};
use eraid_core::queue::Class;
use eraid_core::units::{Sector, Sectors, Slot};

/// Rows, one bit each.
pub type Rows = u64;

/// Undelivered blocks of a command from which on they are read again, not computed.
const REREAD_FROM: u32 = 4;

/// What the request asks a member for: rows `from` to before `to`.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub member: usize,
    pub from: u32,
    pub to: u32,
    pub class: Class,
    pub retries: Retries,
}

/// What a request knows of a member.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part {
    pub wanted: Rows,
    pub have: Rows,
    /// What a command without retries did not deliver, if it is cheaper to compute it.
    pub lost: Rows,
    /// The part of it that is bad, as far as is known.
    pub bad: Rows,
    /// What commands under way will bring.
    pub coming: Rows,
    /// The same, of those that wait at low priority.
    pub waiting: Rows,
}

/// A read request.
#[derive(Clone, Debug)]
pub struct Request {
    pub demand: Demand,
    pub choice: Option<Choice>,
    pub arrived: u64,
    pub first_block: u64,
    pub rows: u32,
    pub parts: Vec<Part>,
    pub failed: bool,
}

/// What to do next.
#[derive(Debug)]
pub enum Next {
    Done,
    Wait,
    /// Extra reads that wait are needed now.
    Promote(Rows),
    Ask(Vec<Ask>),
}

/// The rows `from` to before `to`.
pub fn span(from: u32, to: u32) -> Rows {
    let below = |n: u32| 1u64.checked_shl(n).map_or(Rows::MAX, |bit| bit - 1);
    below(to) & !below(from)
}

/// A command for `rows`, and for what lies between.
fn hull(member: usize, rows: Rows, class: Class, retries: Retries) -> Option<Ask> {
    (rows != 0).then(|| Ask {
        member,
        from: rows.trailing_zeros(),
        to: 64 - rows.leading_zeros(),
        class,
        retries,
    })
}

impl Request {
    pub fn new(geometry: &Geometry, arrived: u64, start: Sector, len: Sectors) -> Self {
        let bands = || geometry.bands(start, len, u32::MAX);
        let block = |stripe, row| geometry.member_sector(stripe, row).get() / 8;
        let first_block = bands().map(|b| block(b.stripe, b.rows.lo)).min().unwrap();
        let mut parts = vec![Part::default(); usize::from(geometry.members())];
        let mut rows = 0;
        for band in bands() {
            let from = (block(band.stripe, band.rows.lo) - first_block) as u32;
            let to = from + band.rows.len() / 8;
            rows = rows.max(to);
            for slot in geometry
                .data_slots(band.stripe, band.first, band.last)
                .iter()
            {
                parts[slot.index()].wanted |= span(from, to);
            }
        }
        assert!(rows <= 64);
        Request {
            demand: Demand::new(geometry, bands()),
            choice: None,
            arrived,
            first_block,
            rows,
            parts,
            failed: false,
        }
    }

    /// The first commands of a way to read; `gone` is a member that the array lacks.
    pub fn begin(&mut self, mode: ReadMode, gone: Option<usize>) -> Vec<Ask> {
        let all = span(0, self.rows);
        let mut asks = Vec::new();
        for (member, part) in self.parts.iter_mut().enumerate() {
            let is = |slot: Slot| slot.index() == member;
            let ordinary = Class::Ordinary;
            let (rows, class, retries) = match mode {
                _ if gone == Some(member) => {
                    (part.lost, part.bad) = (all, all);
                    continue;
                }
                ReadMode::Normal => (part.wanted, ordinary, Retries::On),
                ReadMode::Failfast => (part.wanted, ordinary, Retries::Off),
                ReadMode::Proactive(_) if part.wanted != 0 => (all, ordinary, Retries::Off),
                ReadMode::Proactive(class) => (all, class, Retries::Off),
                ReadMode::LeaveOut { slot, probe } if is(slot) => {
                    let rows = if probe { all } else { 0 };
                    (rows, Class::Extra, Retries::Off)
                }
                ReadMode::LeaveOut { .. } => (all, ordinary, Retries::Off),
            };
            asks.extend(hull(member, rows, class, retries));
        }
        asks
    }

    /// Rows of which wanted blocks are missing and cannot be computed, though all of `from` be there.
    fn unsolved(&self, from: impl Fn(&Part) -> Rows) -> Rows {
        let missing = |part| span(0, self.rows) & !from(part);
        let wanted = self.parts.iter().map(|part| missing(part) & part.wanted);
        let wanted = wanted.fold(0, |all, rows| all | rows);
        wanted & at_least_two(self.parts.iter().map(missing))
    }

    /// A command without retries failed: what it did not deliver is computed, or, if it is long, read
    /// again but for the block that is known to be bad.
    pub fn lose(&mut self, ask: &Ask, good: u32, known: bool) {
        let part = &mut self.parts[ask.member];
        let behind = ask.from + good + 1;
        let rest = span(behind, ask.to) & !part.have;
        let bad = span(ask.from + good, behind);
        self.failed = true;
        part.lost |= match known && (rest & part.wanted).count_ones() >= REREAD_FROM {
            true => bad,
            false => bad | rest,
        };
        part.bad |= if known { bad } else { bad | rest };
    }

    pub fn next(&self) -> Next {
        if self.unsolved(|part| part.have) == 0 {
            return Next::Done;
        }
        let unsolved = self.unsolved(|part| part.have | part.coming);
        if unsolved == 0 {
            return Next::Wait;
        }
        if self.unsolved(|part| part.have | part.coming | part.waiting) != unsolved {
            return Next::Promote(unsolved);
        }
        Next::Ask(self.fallback(unsolved))
    }

    /// Commands for rows that what is under way does not solve: the other members' blocks, or if too
    /// many of those are bad, the wanted ones with retries.
    fn fallback(&self, rows: Rows) -> Vec<Ask> {
        let lost = at_least_two(self.parts.iter().map(|part| part.lost & !part.have));
        let bad = at_least_two(self.parts.iter().map(|part| part.bad & !part.have));
        let any = self
            .parts
            .iter()
            .fold(0, |any, part| any | part.lost & !part.have);
        let mut asks = Vec::new();
        for (member, part) in self.parts.iter().enumerate() {
            let open = rows & !part.have & !part.coming & !part.waiting;
            let again = part.wanted & !part.lost | any & !lost & !part.lost;
            let undelivered = lost & !bad & !part.bad;
            let off = open & (again | undelivered);
            let on = open & bad & part.wanted & part.lost;
            asks.extend(hull(member, off, Class::Ordinary, Retries::Off));
            asks.extend(hull(member, on, Class::Ordinary, Retries::LastResort));
        }
        asks
    }
}

/// Rows that are in at least two of these.
fn at_least_two(of: impl Iterator<Item = Rows>) -> Rows {
    of.fold((0, 0), |(one, two), rows| (one | rows, two | one & rows))
        .1
}
