// SPDX-License-Identifier: GPL-2.0

//! The partial parity log of a member in memory: what may be written to it, and when what is over.
//!
//! An entry is *appended*, is *durable* when it has been written with FUA, and from then on the write that
//! it announces may be issued. It is *over* when that write is durable on all members it went to: when
//! it was written with FUA, or by a flush of all of them that began after it was done. Its cell is
//! used again only when a durable entry says that it is over: until then a replay after a crash needs
//! it.
//!
//! At most one write of a log is under way: what is appended meanwhile goes out together with the
//! next.
//!
//! Calls are for one thread at a time (the caller's lock) and never wait.

use crate::geometry::Rows;
use crate::ppl::{LogLayout, Stamp};
use crate::units::{Generation, Sequence, StripeNo};

/// How far the write of an entry is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// It is over, or is none.
    #[default]
    Over,
    /// It is announced, or under way.
    Open,
    /// It is done, and waits for a flush.
    Done,
    /// It was done when the flush of this number began.
    Flushing(u64),
}

/// An entry in memory.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    stripe: StripeNo,
    rows: Rows,
    state: State,
}

impl Live {
    /// A cell that is not in use.
    pub const OVER: Live = Live {
        stripe: StripeNo::ZERO,
        rows: Rows::NONE,
        state: State::Over,
    };
}

/// Why nothing can be appended now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Entries wait to be written, or are: ask again when that is through.
    Write,
    /// A mark has to be appended and written.
    Mark,
    /// Cells belong to writes that are not durable: flush the members.
    Flush,
}

/// Entries that are written together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writing {
    first: Sequence,
    behind: Sequence,
    generation: Generation,
    oldest: Sequence,
}

impl Writing {
    /// The stamps of the entries, in their order.
    pub fn stamps(&self) -> impl Iterator<Item = Stamp> + '_ {
        (self.first.0..self.behind.0).map(|number| Stamp {
            generation: self.generation,
            sequence: Sequence(number),
            oldest: self.oldest,
            durable: Sequence(self.first.0.saturating_sub(1)),
        })
    }
}

/// See the [module documentation](self). `S` is the caller's storage: as many [`Live`] as the log
/// has cells.
#[derive(Clone, Debug)]
pub struct Ring<S> {
    layout: LogLayout,
    live: S,
    generation: Generation,
    /// The next entry.
    next: Sequence,
    /// The newest durable entry.
    durable: Sequence,
    /// The oldest entry that is not over.
    oldest: Sequence,
    /// The oldest entry of which no durable entry says that it is over.
    needed: Sequence,
    writing: Option<Writing>,
    /// Flushes begun so far.
    flushes: u64,
}

impl<S: AsRef<[Live]> + AsMut<[Live]>> Ring<S> {
    /// A log that begins anew, as of a generation of the superblock greater than that of all entries
    /// so far. Its first entry is a mark, and nothing is written to the member before that is durable.
    pub fn open(layout: LogLayout, generation: Generation, mut storage: S) -> Ring<S> {
        storage.as_mut().fill(Live::OVER);
        let first = Sequence(1);
        let mut ring = Ring {
            layout,
            live: storage,
            generation,
            next: first,
            durable: Sequence::ZERO,
            oldest: first,
            needed: first,
            writing: None,
            flushes: 0,
        };
        ring.push(StripeNo::ZERO, Rows::NONE, State::Over);
        ring
    }

    fn entry(&mut self, sequence: Sequence) -> Option<&mut Live> {
        let cell = self.layout.cell_of(sequence) as usize;
        self.live.as_mut().get_mut(cell)
    }

    fn state(&self, sequence: Sequence) -> State {
        let cell = self.layout.cell_of(sequence) as usize;
        let entry = self.live.as_ref().get(cell);
        entry.map_or(State::Over, |entry| entry.state)
    }

    fn push(&mut self, stripe: StripeNo, rows: Rows, state: State) -> Sequence {
        let sequence = self.next;
        if let Some(entry) = self.entry(sequence) {
            *entry = Live {
                stripe,
                rows,
                state,
            };
        }
        self.next = sequence.next();
        self.advance();
        sequence
    }

    /// Cells that are free.
    fn free(&self) -> u64 {
        let used = self.next.0.saturating_sub(self.needed.0);
        u64::from(self.layout.cells()).saturating_sub(used)
    }

    /// Whether a write of these rows, whose record is not over, has to be flushed before another one of
    /// them is appended. What a record says does not change must be durable.
    pub fn is_open(&self, stripe: StripeNo, rows: Rows) -> bool {
        self.live.as_ref().iter().any(|live| {
            live.state != State::Over && live.stripe == stripe && !live.rows.common(rows).is_empty()
        })
    }

    /// Appends the record of a write of `rows` of a stripe; none of them may be
    /// [open](Self::is_open).
    ///
    /// # Errors
    ///
    /// What has to happen first. The last cell is left to a mark.
    pub fn append(&mut self, stripe: StripeNo, rows: Rows) -> Result<Sequence, Wait> {
        if self.free() > 1 {
            return Ok(self.push(stripe, rows, State::Open));
        }
        let unwritten = self.next.0 > self.durable.0.saturating_add(1);
        match (unwritten, self.oldest > self.needed) {
            (true, _) => Err(Wait::Write),
            (false, true) => Err(Wait::Mark),
            (false, false) => Err(Wait::Flush),
        }
    }

    /// Appends a mark. `false` when there is no room for it.
    pub fn append_mark(&mut self) -> bool {
        let room = self.free() > 0;
        if room {
            self.push(StripeNo::ZERO, Rows::NONE, State::Over);
        }
        room
    }

    /// Takes what is to be written now, durably and each to its cell.
    pub fn begin_write(&mut self) -> Option<Writing> {
        let first = self.durable.next();
        if self.writing.is_some() || first >= self.next {
            return None;
        }
        self.writing = Some(Writing {
            first,
            behind: self.next,
            generation: self.generation,
            oldest: self.oldest.min(first),
        });
        self.writing
    }

    /// All that was taken is durable.
    pub fn written(&mut self) {
        if let Some(writing) = self.writing.take() {
            self.durable = Sequence(writing.behind.0.saturating_sub(1));
            self.needed = self.needed.max(writing.oldest);
        }
    }

    /// Whether an entry is durable, so that its write may be issued.
    #[inline]
    pub fn is_durable(&self, sequence: Sequence) -> bool {
        sequence <= self.durable
    }

    /// The write of an entry is done on all members that it went to; `durable` when all of that was
    /// written with FUA.
    pub fn done(&mut self, sequence: Sequence, durable: bool) {
        let state = if durable { State::Over } else { State::Done };
        if let Some(entry) = self.entry(sequence) {
            entry.state = state;
        }
        self.advance();
    }

    /// A flush of all members begins; returns its number.
    pub fn begin_flush(&mut self) -> u64 {
        self.flushes = self.flushes.saturating_add(1);
        let flush = self.flushes;
        let live = self.live.as_mut().iter_mut();
        live.filter(|live| live.state == State::Done)
            .for_each(|live| live.state = State::Flushing(flush));
        flush
    }

    /// The flush of this number ended well on all members.
    pub fn flushed(&mut self, flush: u64) {
        let live = self.live.as_mut().iter_mut();
        live.filter(|live| matches!(live.state, State::Flushing(number) if number <= flush))
            .for_each(|live| live.state = State::Over);
        self.advance();
    }

    /// Whether the write of an entry is durable.
    #[inline]
    pub fn is_over(&self, sequence: Sequence) -> bool {
        sequence < self.oldest || self.state(sequence) == State::Over
    }

    /// Moves `oldest` on.
    fn advance(&mut self) {
        while self.oldest < self.next && self.state(self.oldest) == State::Over {
            self.oldest = self.oldest.next();
        }
    }
}
