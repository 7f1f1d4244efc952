// SPDX-License-Identifier: GPL-2.0

//! What each block may hold, worked out from the log.
//!
//! A block holds the write that replaced it last. Where that is not settled, it may hold any of
//! several: a write that failed or was never answered is there or not, block by block, and of
//! two writes that were under way at once either may have come last. A write settles a block
//! when it returned without an error: everything that had returned before it was issued is gone.

use crate::content::Stamp;
use crate::log::{Header, Record};
use std::collections::HashMap;

/// One write a block may hold.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    stamp: Stamp,
    /// When it returned, well or not, in records of the log; `None` while it is out.
    done: Option<usize>,
}

/// A write that has not returned.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    first: u64,
    count: u64,
    issued: usize,
}

/// What each block of a device may hold.
pub struct Model {
    header: Header,
    /// The one write of each settled block.
    settled: Vec<Stamp>,
    /// The candidates of the others.
    open: HashMap<u64, Vec<Candidate>>,
    outstanding: HashMap<Stamp, Outstanding>,
    runs: u16,
    position: usize,
}

impl Model {
    /// The model of a device that no logged write has touched.
    pub fn new(header: Header) -> Self {
        Model {
            header,
            settled: vec![Stamp::NEVER; header.blocks as usize],
            open: HashMap::new(),
            outstanding: HashMap::new(),
            runs: 0,
            position: 0,
        }
    }

    /// The model after all of `records`.
    ///
    /// # Errors
    ///
    /// Says which record cannot follow the ones before it.
    pub fn replay(header: Header, records: &[Record]) -> Result<Self, String> {
        let mut model = Model::new(header);
        for record in records {
            model
                .apply(record)
                .map_err(|why| format!("record {}: {why}", model.position))?;
        }
        // The writer is gone, so what is still out has no outcome.
        model.give_up();
        Ok(model)
    }

    /// The log's header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How many runs the log has seen.
    pub fn runs(&self) -> u16 {
        self.runs
    }

    /// Every write that `block` may hold; [`Stamp::NEVER`] stands for what was there first.
    pub fn allowed(&self, block: u64) -> impl Iterator<Item = Stamp> + '_ {
        let open = self.open.get(&block);
        let settled = match open {
            Some(_) => None,
            None => self.settled.get(block as usize).copied(),
        };
        open.into_iter()
            .flatten()
            .map(|candidate| candidate.stamp)
            .chain(settled)
    }

    /// How many blocks hold a logged write for certain, and how many are in doubt.
    pub fn counts(&self) -> (u64, u64) {
        let never = self
            .settled
            .iter()
            .filter(|&&stamp| stamp == Stamp::NEVER)
            .count();
        let never_open = self
            .open
            .keys()
            .filter(|&&b| self.settled[b as usize] == Stamp::NEVER)
            .count();
        let open = self.open.len();
        let written = self.settled.len() - never - (open - never_open);
        (written as u64, open as u64)
    }

    fn apply(&mut self, record: &Record) -> Result<(), String> {
        self.position += 1;
        match *record {
            Record::Header(_) => Err("a second header".into()),
            Record::Run { run, .. } => {
                self.give_up();
                if run != self.runs + 1 {
                    return Err(format!("run {run} after run {}", self.runs));
                }
                self.runs = run;
                Ok(())
            }
            Record::Issued {
                stamp,
                first,
                count,
            } => self.issued(stamp, first, count),
            Record::Done { stamp, ok } => {
                let write = self.outstanding.remove(&stamp);
                let write = write.ok_or_else(|| format!("{stamp} returned but is not out"))?;
                self.done(stamp, write, ok);
                Ok(())
            }
        }
    }

    fn issued(&mut self, stamp: Stamp, first: u64, count: u64) -> Result<(), String> {
        let end = first
            .checked_add(count)
            .filter(|&end| end <= self.header.blocks);
        let end = end.ok_or_else(|| format!("{stamp} lies outside the device"))?;
        let write = Outstanding {
            first,
            count,
            issued: self.position,
        };
        if self.outstanding.insert(stamp, write).is_some() {
            return Err(format!("{stamp} issued twice"));
        }
        for block in first..end {
            let before = self.settled[block as usize];
            let open = self.open.entry(block);
            let open = open.or_insert_with(|| {
                vec![Candidate {
                    stamp: before,
                    done: Some(0),
                }]
            });
            open.push(Candidate { stamp, done: None });
        }
        Ok(())
    }

    fn done(&mut self, stamp: Stamp, write: Outstanding, ok: bool) {
        let now = self.position;
        for block in write.first..write.first + write.count {
            let Some(open) = self.open.get_mut(&block) else {
                continue;
            };
            for candidate in open.iter_mut().filter(|candidate| candidate.stamp == stamp) {
                candidate.done = Some(now);
            }
            if !ok {
                continue;
            }
            open.retain(|other| {
                other.stamp == stamp || other.done.is_none_or(|done| done > write.issued)
            });
            if let [last] = open[..] {
                self.settled[block as usize] = last.stamp;
                self.open.remove(&block);
            }
        }
    }

    /// Ends everything outstanding without an outcome.
    fn give_up(&mut self) {
        let lost: Vec<_> = self.outstanding.drain().collect();
        for (stamp, write) in lost {
            self.done(stamp, write, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        block_size: 512,
        blocks: 8,
        key: 5,
    };

    fn stamp(op: u64) -> Stamp {
        Stamp::new(1, 0, op)
    }
    fn issue(op: u64, first: u64, count: u64) -> Record {
        Record::Issued {
            stamp: stamp(op),
            first,
            count,
        }
    }
    fn done(op: u64, ok: bool) -> Record {
        Record::Done {
            stamp: stamp(op),
            ok,
        }
    }
    fn allowed(records: &[Record], block: u64) -> Vec<Stamp> {
        let model = Model::replay(HEADER, records).unwrap();
        let mut stamps: Vec<_> = model.allowed(block).collect();
        stamps.sort_unstable();
        stamps
    }

    #[test]
    fn the_last_write_settles() {
        let log = [issue(1, 0, 4), done(1, true), issue(2, 2, 4), done(2, true)];
        assert_eq!(allowed(&log, 1), [stamp(1)]);
        assert_eq!(allowed(&log, 2), [stamp(2)]);
        assert_eq!(allowed(&log, 5), [stamp(2)]);
        assert_eq!(allowed(&log, 6), [Stamp::NEVER]);
        assert_eq!(Model::replay(HEADER, &log).unwrap().counts(), (6, 0));
    }

    #[test]
    fn a_failed_or_lost_write_leaves_a_doubt() {
        let failed = [
            issue(1, 0, 1),
            done(1, true),
            issue(2, 0, 1),
            done(2, false),
        ];
        assert_eq!(allowed(&failed, 0), [stamp(1), stamp(2)]);
        let lost = [issue(1, 0, 1), done(1, true), issue(2, 0, 1)];
        assert_eq!(allowed(&lost, 0), [stamp(1), stamp(2)]);
        assert_eq!(Model::replay(HEADER, &lost).unwrap().counts(), (0, 1));
        let first = [issue(1, 0, 1), done(1, false)];
        assert_eq!(allowed(&first, 0), [Stamp::NEVER, stamp(1)]);
    }

    #[test]
    fn a_later_write_ends_the_doubt() {
        let log = [
            issue(1, 0, 2),
            done(1, false),
            issue(2, 0, 1),
            done(2, true),
        ];
        assert_eq!(allowed(&log, 0), [stamp(2)]);
        assert_eq!(allowed(&log, 1), [Stamp::NEVER, stamp(1)]);
        let over_runs = [
            Record::Run { run: 1, seed: 0 },
            issue(1, 0, 1),
            Record::Run { run: 2, seed: 0 },
            issue(2, 0, 1),
            done(2, true),
        ];
        assert_eq!(allowed(&over_runs, 0), [stamp(2)]);
    }

    #[test]
    fn writes_under_way_at_once_are_both_possible() {
        let both = [issue(1, 0, 1), issue(2, 0, 1), done(2, true), done(1, true)];
        assert_eq!(allowed(&both, 0), [stamp(1), stamp(2)]);
        // The one that failed was still out when the other was issued.
        let failed = [
            issue(1, 0, 1),
            issue(2, 0, 1),
            done(1, false),
            done(2, true),
        ];
        assert_eq!(allowed(&failed, 0), [stamp(1), stamp(2)]);
        let settled: Vec<_> = both
            .into_iter()
            .chain([issue(3, 0, 1), done(3, true)])
            .collect();
        assert_eq!(allowed(&settled, 0), [stamp(3)]);
    }

    #[test]
    fn nonsense_is_refused() {
        for log in [
            vec![done(1, true)],
            vec![issue(1, 0, 1), issue(1, 1, 1)],
            vec![issue(1, 7, 2)],
            vec![issue(1, u64::MAX, 2)],
            vec![Record::Run { run: 2, seed: 0 }],
            vec![Record::Header(HEADER)],
        ] {
            assert!(Model::replay(HEADER, &log).is_err(), "{log:?}");
        }
    }
}
