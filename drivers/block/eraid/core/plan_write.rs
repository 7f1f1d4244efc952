// SPDX-License-Identifier: GPL-2.0

//! The write planner: what to read before a write, what to compute, whom to write.

use crate::geometry::{Geometry, Level};
use crate::plan_read::{all_data, View};
use crate::regionmap::Init;
use crate::units::{SlotSet, StripeNo};

/// How the blocks to write come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// RAID-0: the new data.
    Plain,
    /// RAID-1: the new data, on every copy.
    Copies,
    /// Every column is new; parity is computed from the request alone.
    Full,
    /// Reconstruct-write: parity is computed from the new data and from the old data of the other
    /// columns. Right whatever parity was before.
    Reconstruct,
    /// Read-modify-write: old parity plus old data plus new data. Only as right as parity was.
    Modify,
    /// No parity member is there: the data alone.
    DataOnly,
}

impl WriteKind {
    /// The word for traces.
    pub const fn as_str(self) -> &'static str {
        match self {
            WriteKind::Plain => "plain",
            WriteKind::Copies => "copies",
            WriteKind::Full => "full",
            WriteKind::Reconstruct => "reconstruct",
            WriteKind::Modify => "modify",
            WriteKind::DataOnly => "data-only",
        }
    }
}

/// How to write some columns of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritePlan {
    /// How the blocks come about.
    pub kind: WriteKind,
    /// Slots to read first, all rows of the band.
    pub preread: SlotSet,
    /// Slots to write.
    pub write: SlotSet,
    /// Slots that are stale in this region from this write on, because they should have been
    /// written and cannot be, or because they cannot be vouched for any more: see
    /// [`plan_write`]. To be durable before the write is acknowledged.
    pub missed: SlotSet,
}

/// Too many members are unusable for the write to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// Plans a write of the data columns `first` to `last` of `stripe`, in rows where all of them are
/// written.
///
/// A member with an unreadable block is written but never read: the write may cure it.
///
/// Parity:
/// * all columns written: [`Full`](WriteKind::Full), nothing is read;
/// * no parity member usable: [`DataOnly`](WriteKind::DataOnly);
/// * a written member missing: [`Reconstruct`](WriteKind::Reconstruct), its data goes into parity;
/// * an unwritten member missing: [`Modify`](WriteKind::Modify), parity goes on standing for it;
/// * else what reads no avoided member, then what reads fewer, then `Reconstruct`. `Modify` is out
///   while parity may not match the data (region not filled, or `need_sync`).
///
/// `Modify` in a region that is not filled updates a parity that may never have matched. That is
/// right as long as the missing member's block is what parity says it is, so the member becomes
/// stale: it must be rebuilt before it is used again. In a `need_sync` region the resync recomputes
/// parity from the data and nothing more is needed.
///
/// `can_modify` is false where the machine cannot do `Modify`.
///
/// # Errors
///
/// [`Lost`] when more members than the parity are unusable; when unreadable blocks on top of
/// unusable members leave no way to compute parity; when data would be kept by parity alone while
/// nothing may be decoded (`need_sync`), because it could not be read back. RAID-6 needs a decode
/// before the write in two more cases, which are lost here: one written and one unwritten data
/// block missing, and an unwritten one missing while P and Q may not agree on it.
pub fn plan_write(
    geom: &Geometry,
    stripe: StripeNo,
    first: u8,
    last: u8,
    view: &View,
    can_modify: bool,
) -> Result<WritePlan, Lost> {
    let touched = geom.data_slots(stripe, first, last);
    match geom.level() {
        Level::Raid0 if touched.is_subset(view.usable) => {
            Ok(without_preread(WriteKind::Plain, touched, view))
        }
        Level::Raid1 if !touched.intersect(view.usable).is_empty() => {
            Ok(without_preread(WriteKind::Copies, touched, view))
        }
        Level::Raid0 | Level::Raid1 => Err(Lost),
        Level::Raid5 | Level::Raid6 => plan_parity(geom, stripe, touched, view, can_modify),
    }
}

/// A plan that writes what it can of `targets` and reads nothing.
#[inline]
fn without_preread(kind: WriteKind, targets: SlotSet, view: &View) -> WritePlan {
    WritePlan {
        kind,
        preread: SlotSet::EMPTY,
        write: targets.intersect(view.usable),
        missed: targets.minus(view.usable),
    }
}

/// Plans a write of a level with parity.
fn plan_parity(
    geom: &Geometry,
    stripe: StripeNo,
    touched: SlotSet,
    view: &View,
    can_modify: bool,
) -> Result<WritePlan, Lost> {
    let unusable = geom.all_slots().minus(view.usable);
    let unreadable_after = view.region.need_sync && !touched.is_subset(view.usable);
    if unusable.len() > u32::from(geom.parity()) || unreadable_after {
        return Err(Lost);
    }
    let data = all_data(geom, stripe);
    let parity = geom.all_slots().minus(data);
    let live_parity = parity.intersect(view.usable);
    let targets = touched.union(parity);
    if live_parity.is_empty() {
        return Ok(without_preread(WriteKind::DataOnly, targets, view));
    }
    if touched == data {
        return Ok(without_preread(WriteKind::Full, targets, view));
    }

    let others = data.minus(touched);
    let old = touched.union(live_parity);
    let can_reconstruct = others.is_subset(view.readable());
    let can_modify = can_modify && old.is_subset(view.readable());
    let vouched = view.region.init == Init::Full && !view.region.need_sync;
    let modify = if can_reconstruct {
        can_modify && vouched && prefer_modify(old, others, view.avoid)
    } else if can_modify && (vouched || geom.parity() == 1) {
        true
    } else {
        return Err(Lost);
    };
    let plan = without_preread(WriteKind::Reconstruct, targets, view);
    Ok(if modify {
        WritePlan {
            kind: WriteKind::Modify,
            preread: old,
            missed: plan.missed.union(unvouched(others, view)),
            ..plan
        }
    } else {
        WritePlan {
            preread: others,
            ..plan
        }
    })
}

/// Whether reading `old` is better than reading `others`.
#[inline]
fn prefer_modify(old: SlotSet, others: SlotSet, avoid: SlotSet) -> bool {
    let cost = |read: SlotSet| (!read.intersect(avoid).is_empty(), read.len());
    cost(old) < cost(others)
}

/// The members of `others` that a read-modify-write makes stale; see [`plan_write`].
#[inline]
fn unvouched(others: SlotSet, view: &View) -> SlotSet {
    if view.region.init == Init::Full || view.region.need_sync {
        SlotSet::EMPTY
    } else {
        others.minus(view.readable())
    }
}
