// SPDX-License-Identifier: GPL-2.0

//! Flushes: every live member's cache, in parallel.
//!
//! A member that cannot flush may have lost what it acknowledged. With redundancy it is failed, and
//! the flush succeeds once that is recorded on the others; without, the flush fails.

use crate::{
    kapi::{command::CommandOp, status::Status},
    op::{Context, Issue, Step},
};
use eraid_core::{
    resync::Goal,
    units::{RegionNo, Sector},
};

/// What a flush is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// A request.
    Request,
    /// The regions collected by [`crate::array::Array::begin_clear`] are marked as not written.
    Clear,
    /// A region was resynced or recovered.
    Synced(RegionNo, Goal),
}

enum Phase {
    Reserve,
    Flushing,
    Record,
}

/// See the [module description](self).
pub(crate) struct Flush {
    phase: Phase,
    after: After,
}

impl Flush {
    /// A flush for a purpose.
    pub(crate) fn with(after: After) -> Self {
        Self {
            phase: Phase::Reserve,
            after,
        }
    }

    #[inline(never)]
    pub(crate) fn advance(&mut self, cx: &mut Context<'_>) -> Step {
        loop {
            match self.phase {
                Phase::Reserve => {
                    let slots = cx.array.live();
                    if cx.array.is_broken() {
                        if let Some(request) = cx.request {
                            request.fail(Status::IOERR);
                        }
                        cx.array.forget_wait(cx.op);
                        self.end(cx, false);
                        return Step::Done;
                    }
                    if !cx.reserve(slots, 0) {
                        return Step::Wait;
                    }
                    self.phase = Phase::Flushing;
                    for slot in slots.iter() {
                        cx.prepare(slot, CommandOp::Flush, Sector::new(0), 0);
                    }
                    cx.op.clone().issue(cx, slots, Issue::default());
                    return Step::Wait;
                }
                Phase::Flushing => {
                    cx.give_back_all();
                    let kept = cx.array.write_failed(cx.errors);
                    let lost = !cx.errors.is_empty() && cx.array.is_broken();
                    if !kept.is_empty() || lost {
                        if let Some(request) = cx.request {
                            request.fail(Status::IOERR);
                        }
                        self.end(cx, false);
                        return Step::Done;
                    }
                    self.phase = Phase::Record;
                }
                Phase::Record => {
                    if !cx.array.failures_recorded(cx.op) {
                        return Step::Wait;
                    }
                    self.end(cx, true);
                    return Step::Done;
                }
            }
        }
    }

    pub(crate) fn abort(&mut self, cx: &mut Context<'_>) {
        cx.array.forget_wait(cx.op);
        self.end(cx, false);
    }

    fn end(&self, cx: &Context<'_>, flushed: bool) {
        match self.after {
            After::Request => {}
            After::Clear => cx.array.end_clear(flushed),
            After::Synced(region, goal) => {
                if flushed {
                    cx.array.synced(region, goal);
                }
                cx.array.sync.close(flushed);
                if flushed && !cx.array.has_work() {
                    cx.array.queue_uevent(c"ERAID_EVENT=sync_end", None);
                    cx.array.note_change();
                }
                cx.array.tick_soon();
            }
        }
    }
}
