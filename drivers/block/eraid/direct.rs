// SPDX-License-Identifier: GPL-2.0

//! Direct reads: blocks as they lie on their members, one command a member over any number of
//! stripes, no lock. What cannot be read that way is handed to [`StripeRead`], piece by piece.
//!
//! Where reads may be overtaken by others the commands read into their own pages, which are copied
//! to the request. An array whose reads are not [gathered](crate::gather) saves the copy: its
//! commands *borrow* the request's memory, and the request cannot end before the device has given
//! them back.

use kernel::{page::PAGE_SIZE, prelude::*};

use crate::{
    array::Array,
    kapi::{command::CommandOp, page::PageBuf, request::Request, status::Status},
    op::{Context, Issue, Step},
    pool::COMMAND_PAGES,
    read::StripeRead,
};
use eraid_core::{
    geometry::{Band, Level, Piece, Rows},
    plan_read::ReadPlan,
    spans::Span,
    units::{Sector, Sectors, Slot, SlotSet},
};

/// Sectors in a page.
const PAGE_SECTORS: usize = PAGE_SIZE / 512;
/// Longest command, in sectors.
pub(crate) const COMMAND_SECTORS: u32 = (COMMAND_PAGES * PAGE_SECTORS) as u32;
/// Largest read that is copied right in the context of its completion: 16 KiB.
pub(crate) const COPY_ANYWHERE: u64 = 32;

enum Phase {
    Reserve,
    Reading,
    /// Pieces of `failed` members are read anew, one by one; `done` of them are settled.
    Fallback {
        failed: SlotSet,
        /// They were asked; else the plan was outdated before.
        issued: bool,
        done: usize,
        current: Option<StripeRead>,
    },
}

/// See the [module description](self).
pub(crate) struct Direct {
    start: Sector,
    len: Sectors,
    /// For RAID-1 the copy to read.
    copy: Option<Slot>,
    /// The commands are to borrow the request's memory.
    borrows: bool,
    /// Memory was not there at once, so that the plan may be outdated.
    waited: bool,
    phase: Phase,
}

/// Reads through a gap, of one chunk at most: a parity chunk between two wanted ones.
fn extend(span: &mut Span, piece: &Piece, len: u32, gap: u32) -> bool {
    span.extend(piece.at, len, gap, COMMAND_SECTORS)
}

impl Direct {
    /// The longest direct read from `start` on, of at most `len`; `None` when not even the first
    /// sectors can be read directly.
    pub(crate) fn plan(array: &Array, start: Sector, len: Sectors) -> Option<Self> {
        let geometry = &array.geometry;
        let borrows = !array.reading.gathers(geometry);
        // There is no memory for what lies in a gap.
        let gap = if borrows { 0 } else { geometry.chunk() };
        let mut spans = [Span::EMPTY; 64];
        let (mut taken, mut copy) = (0, None);
        'pieces: for piece in geometry.pieces(start, len) {
            let view = array.view(piece.stripe);
            let plan = crate::array::plan_read(
                array,
                piece.stripe,
                piece.column,
                piece.column,
                &view,
                copy,
            );
            let ReadPlan::Direct(slots) = plan else {
                break;
            };
            let Some(slot) = slots.first() else { break };
            if geometry.level() == Level::Raid1 && *copy.get_or_insert(slot) != slot {
                break;
            }
            let Some(span) = spans.get_mut(slot.index()) else {
                break;
            };
            // A piece longer than a command is cut; the rest is the next operation's.
            let room = COMMAND_SECTORS.saturating_sub(span.len);
            for part in [piece.len, piece.len.min(room)] {
                if part > 0 && extend(span, &piece, part, gap) {
                    taken += u64::from(part);
                    if part < piece.len {
                        break 'pieces;
                    }
                    continue 'pieces;
                }
            }
            break;
        }
        (taken > 0).then_some(Self {
            start,
            len: Sectors::new(taken),
            copy,
            borrows,
            waited: false,
            phase: Phase::Reserve,
        })
    }

    /// Sectors of the request this reads.
    pub(crate) fn len(&self) -> Sectors {
        self.len
    }

    #[inline(never)]
    pub(crate) fn advance(&mut self, cx: &mut Context<'_>) -> Step {
        loop {
            match &mut self.phase {
                Phase::Reserve => {
                    let slots = self.slots(cx);
                    if !self.reserve(cx, slots) {
                        self.waited = true;
                        return Step::Wait;
                    }
                    self.phase = if self.waited && !self.is_current(cx) {
                        cx.give_back_all();
                        Phase::Fallback {
                            failed: slots,
                            issued: false,
                            done: 0,
                            current: None,
                        }
                    } else if self.borrows && self.borrow(cx).is_err() {
                        // Too many pieces of memory for a command: one after the other then.
                        cx.give_back_all();
                        self.borrows = false;
                        continue;
                    } else {
                        self.issue(cx, slots);
                        self.phase = Phase::Reading;
                        return Step::Wait;
                    };
                }
                Phase::Reading => {
                    self.deliver(cx);
                    cx.give_back_all();
                    if cx.errors.is_empty() {
                        cx.array
                            .read_done(cx.request, "normal", self.start, self.len);
                        return Step::Done;
                    }
                    self.phase = Phase::Fallback {
                        failed: cx.errors,
                        issued: true,
                        done: 0,
                        current: None,
                    };
                }
                Phase::Fallback {
                    failed,
                    issued,
                    done,
                    current,
                } => {
                    if let Some(read) = current {
                        if read.advance(cx) == Step::Wait {
                            return Step::Wait;
                        }
                        *done += 1;
                    }
                    let (failed, done, issued) = (*failed, *done, *issued);
                    let max_rows = cx.array.max_rows;
                    let Some(piece) = self.failed_piece(cx, failed, done) else {
                        return Step::Done;
                    };
                    if let Phase::Fallback { current, .. } = &mut self.phase {
                        let bad = if issued { failed } else { SlotSet::EMPTY };
                        *current = Some(StripeRead::new(band_of(&piece), max_rows, bad));
                    }
                }
            }
        }
    }

    pub(crate) fn abort(&mut self, cx: &mut Context<'_>) {
        match &mut self.phase {
            Phase::Reserve => cx.array.forget_wait(cx.op),
            Phase::Fallback {
                current: Some(read),
                ..
            } => read.abort(cx),
            Phase::Reading | Phase::Fallback { .. } => {}
        }
    }

    fn pieces(&self, cx: &Context<'_>) -> impl Iterator<Item = Piece> {
        let copy = self.copy;
        let pieces = cx.array.geometry.pieces(self.start, self.len);
        pieces.map(move |piece| Piece {
            slot: copy.unwrap_or(piece.slot),
            ..piece
        })
    }

    /// The piece number `index` among those of failed members.
    fn failed_piece(&self, cx: &Context<'_>, failed: SlotSet, index: usize) -> Option<Piece> {
        self.pieces(cx)
            .filter(|piece| failed.contains(piece.slot))
            .nth(index)
    }

    /// The members to read; sets their ranges.
    fn slots(&self, cx: &mut Context<'_>) -> SlotSet {
        let chunk = cx.array.geometry.chunk();
        cx.columns.spans.fill(Span::EMPTY);
        let mut slots = SlotSet::EMPTY;
        for piece in self.pieces(cx) {
            if let Some(span) = cx.columns.spans.get_mut(piece.slot.index()) {
                // As planned; it fits as it did then.
                let _ = extend(span, &piece, piece.len, chunk);
                slots.insert(piece.slot);
            }
        }
        slots
    }

    /// Reserves one command for each member; `false` to wait for memory.
    fn reserve(&self, cx: &mut Context<'_>, slots: SlotSet) -> bool {
        let longest = cx.columns.spans.iter().map(|span| span.len).max();
        let copied = longest.filter(|_| !self.borrows);
        cx.reserve(slots, copied.unwrap_or(0))
    }

    /// Lets the commands read straight into the request.
    fn borrow(&self, cx: &mut Context<'_>) -> Result {
        let request = cx.request.ok_or(EINVAL)?;
        for piece in self.pieces(cx) {
            let cmd = cx.columns.get_mut(piece.slot).ok_or(EINVAL)?;
            let to = self.place_of(request, &piece);
            cmd.borrow_from(request, to, piece.len as usize * 512)?;
        }
        Ok(())
    }

    /// Where in the request a piece is, in bytes.
    fn place_of(&self, request: &Request, piece: &Piece) -> usize {
        let base = self.start.get().saturating_sub(request.sector());
        (base + piece.offset.get()) as usize * 512
    }

    /// Whether the members to read still have current data.
    fn is_current(&self, cx: &Context<'_>) -> bool {
        let mut pieces = self.pieces(cx);
        pieces.all(|piece| cx.array.view(piece.stripe).usable.contains(piece.slot))
    }

    /// Issues one command for each member.
    fn issue(&self, cx: &mut Context<'_>, slots: SlotSet) {
        for slot in slots.iter() {
            let span = cx.columns.spans.get(slot.index()).copied();
            let span = span.unwrap_or(Span::EMPTY);
            cx.prepare(slot, CommandOp::Read, span.at, span.len);
        }
        let how = Issue {
            ends_anywhere: self.borrows || self.len.get() <= COPY_ANYWHERE,
            rescuable: !self.borrows && cx.array.geometry.parity() > 0,
            borrows: self.borrows,
            ..Issue::default()
        };
        cx.op.clone().issue(cx, slots, how);
    }

    /// Copies what arrived to the request.
    fn deliver(&self, cx: &mut Context<'_>) {
        let Some(request) = cx.request.filter(|_| !self.borrows) else {
            return;
        };
        for piece in self.pieces(cx) {
            if cx.errors.contains(piece.slot) {
                continue;
            }
            let to = self.place_of(request, &piece);
            let copied = cx
                .columns
                .spans
                .get(piece.slot.index())
                .and_then(|span| span.offset_of(&piece))
                .zip(cx.columns.get(piece.slot))
                .map(|(from, cmd)| copy(request, to, &cmd.buf, from, piece.len));
            if !matches!(copied, Some(Ok(()))) {
                request.fail(Status::IOERR);
            }
        }
    }
}

fn copy(request: &Request, to: usize, from: &PageBuf, sector: u32, sectors: u32) -> Result {
    request.copy_from_buf(to, from, sector as usize * 512, sectors as usize * 512)
}

/// A piece as a band of its stripe.
pub(crate) fn band_of(piece: &Piece) -> Band {
    Band {
        stripe: piece.stripe,
        rows: Rows {
            lo: piece.row,
            hi: piece.row + piece.len,
        },
        first: piece.column,
        last: piece.column,
    }
}
