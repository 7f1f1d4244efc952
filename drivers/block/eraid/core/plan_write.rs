// SPDX-License-Identifier: GPL-2.0

//! The write planner: what to read before a batch of writes, what to compute, whom to write.

use crate::batch::Batch;
use crate::geometry::{Geometry, Level, Role, Rows};
use crate::plan_read::{all_data, choose_parity, View};
use crate::regionmap::Init;
use crate::units::{Slot, SlotSet};

/// How the blocks to write come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// RAID-0: the new data.
    Plain,
    /// RAID-1: the new data, on every copy.
    Copies,
    /// Every column is new in all rows; parity is computed from the new data alone.
    Full,
    /// Reconstruct-write: parity is computed from the new data and from the old data of the other
    /// columns. Right whatever parity was before.
    Reconstruct,
    /// Read-modify-write: old parity plus old data plus new data. Only as right as parity was.
    Modify,
    /// Old blocks that cannot be read, or are better not, are decoded first; then as `Reconstruct`.
    Rebuild,
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
            WriteKind::Rebuild => "rebuild",
            WriteKind::DataOnly => "data-only",
        }
    }
}

/// How to write a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritePlan {
    /// How the blocks come about.
    pub kind: WriteKind,
    /// Slots whose old blocks are needed, in the rows of [`old_rows`]: to be read, unless they are
    /// at hand.
    pub old: SlotSet,
    /// Data slots whose old blocks are computed from those of `old`.
    pub decode: SlotSet,
    /// Slots to write.
    pub write: SlotSet,
    /// Those of them that are written although the batch does not, as they were decoded: see
    /// [`plan_write`].
    pub repair: SlotSet,
    /// Slots that are stale in this region from this write on, because they should have been
    /// written and cannot be, or because they cannot be vouched for any more: see
    /// [`plan_write`]. None that is usable. To be durable before the write is acknowledged.
    pub missed: SlotSet,
}

/// Too many members are unusable for the write to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// What the planner goes by besides the batch.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// What is known about the members.
    pub view: View,
    /// Slots whose old blocks are at hand, in all rows that could be asked for.
    pub at_hand: SlotSet,
    /// Whether parity can be modified at all.
    pub can_modify: bool,
}

/// Plans a batch of writes.
///
/// A member with an unreadable block is written but never read: the write may cure it.
///
/// Parity:
/// * all columns written: [`Full`](WriteKind::Full), nothing is read;
/// * no parity member usable: [`DataOnly`](WriteKind::DataOnly);
/// * else what reads no avoided member, then what reads fewer, then `Reconstruct`, then `Modify`,
///   then `Rebuild`. Old blocks at hand count as not read.
///
/// `Modify` and `Rebuild` trust the old parity. Where it may never have matched the data (region
/// not filled) they are used only when a member is missing or unreadable and nothing else works,
/// `Modify` with one parity, `Rebuild` with two, which it makes agree. That is right as long as the
/// block that is not read is what parity says it is. So one that cannot be read is decoded, and
/// written along; a missing member becomes stale: it must be rebuilt before it is used again. While parity is known not to match (`need_sync`) nothing is
/// decoded, and what `Modify` does to parity the resync does again from the data.
///
/// # Errors
///
/// [`Lost`] when more members than the parity are unusable, or stale in the region; when unreadable blocks on top of
/// unusable members leave no way to compute parity, or none but to make more members stale than the
/// data can do without; when data would be kept by parity alone while
/// nothing may be decoded (`need_sync`), because it could not be read back.
pub fn plan_write<S>(
    geom: &Geometry,
    batch: &Batch<S>,
    given: &Conditions,
) -> Result<WritePlan, Lost>
where
    S: AsRef<[Rows]> + AsMut<[Rows]>,
{
    let view = &given.view;
    let touched = match geom.level() {
        Level::Raid1 => geom.all_slots(),
        _ => batch.slots(geom, |cover| cover),
    };
    if geom.level() != Level::Raid0 && is_lost(geom, view, SlotSet::EMPTY) {
        return Err(Lost);
    }
    match geom.level() {
        Level::Raid0 if touched.is_subset(view.usable) => {
            Ok(without_old(WriteKind::Plain, touched, view))
        }
        Level::Raid0 => Err(Lost),
        Level::Raid1 => Ok(without_old(WriteKind::Copies, touched, view)),
        Level::Raid5 | Level::Raid6 => plan_parity(geom, batch, touched, given),
    }
}

/// Whether redundancy cannot do without those that lack something in the region and those of `more`.
///
/// Who is usable in this stripe, because a recovery has passed it, may still lack the rest.
fn is_lost(geom: &Geometry, view: &View, more: SlotSet) -> bool {
    let lacking = geom.all_slots().minus(view.usable);
    let lacking = lacking.union(view.region.stale).union(more);
    lacking.len() > u32::from(geom.parity())
}

/// The rows of which a plan of `kind` needs the old blocks of `slot`; with all between them.
pub fn old_rows<S>(geom: &Geometry, batch: &Batch<S>, kind: WriteKind, slot: Slot) -> Rows
where
    S: AsRef<[Rows]> + AsMut<[Rows]>,
{
    let cover = match geom.role(batch.stripe(), slot) {
        Role::Data(column) => Some(batch.cover(column)),
        Role::P | Role::Q | Role::Copy => None,
    };
    match (kind, cover) {
        (WriteKind::Reconstruct, Some(cover)) => batch.unwritten(cover),
        (WriteKind::Modify, Some(cover)) => batch.written_outside_core(cover),
        (WriteKind::Modify, None) | (WriteKind::Rebuild, _) => batch.outside_core(),
        _ => Rows::NONE,
    }
}

/// The rows in which a plan writes `slot`: where parity is, and what is repaired, all of the hull.
pub fn new_rows<S>(geom: &Geometry, batch: &Batch<S>, plan: &WritePlan, slot: Slot) -> Rows
where
    S: AsRef<[Rows]> + AsMut<[Rows]>,
{
    match geom.role(batch.stripe(), slot) {
        Role::Data(_) if plan.repair.contains(slot) => batch.hull(),
        Role::Data(column) => batch.cover(column),
        Role::P | Role::Q | Role::Copy => batch.hull(),
    }
}

/// A plan that writes what it can of `targets` and reads nothing.
#[inline]
fn without_old(kind: WriteKind, targets: SlotSet, view: &View) -> WritePlan {
    WritePlan {
        kind,
        old: SlotSet::EMPTY,
        decode: SlotSet::EMPTY,
        write: targets.intersect(view.usable),
        repair: SlotSet::EMPTY,
        missed: targets.minus(view.usable),
    }
}

/// Plans a batch of a level with parity.
fn plan_parity<S>(
    geom: &Geometry,
    batch: &Batch<S>,
    touched: SlotSet,
    given: &Conditions,
) -> Result<WritePlan, Lost>
where
    S: AsRef<[Rows]> + AsMut<[Rows]>,
{
    let view = &given.view;
    if view.region.need_sync && !touched.is_subset(view.usable) {
        return Err(Lost);
    }
    let parity = geom.parity_slots(batch.stripe());
    let targets = touched.union(parity);
    if parity.intersect(view.usable).is_empty() {
        return Ok(without_old(WriteKind::DataOnly, targets, view));
    }
    if batch.outside_core().is_empty() {
        return Ok(without_old(WriteKind::Full, targets, view));
    }
    let base = without_old(WriteKind::Reconstruct, targets, view);
    let ways = [
        reconstruct(geom, batch, view, base),
        modify(geom, batch, given, base),
        rebuild(geom, batch, view, view.readable().minus(view.avoid), base),
        rebuild(geom, batch, view, view.readable(), base),
    ];
    // Nobody is made stale whom the data cannot do without: rather an error.
    let bearable = |plan: &WritePlan| !is_lost(geom, view, plan.missed);
    let cost = |plan: &WritePlan| {
        let read = plan.old.minus(given.at_hand);
        let avoided = !read.intersect(view.avoid).is_empty();
        (!plan.missed.is_subset(base.missed), avoided, read.len())
    };
    let ways = ways.into_iter().flatten().filter(bearable);
    ways.min_by_key(cost).ok_or(Lost)
}

/// From the old data of what is not written.
fn reconstruct<S>(
    geom: &Geometry,
    batch: &Batch<S>,
    view: &View,
    base: WritePlan,
) -> Option<WritePlan>
where
    S: AsRef<[Rows]> + AsMut<[Rows]>,
{
    let old = batch.slots(geom, |cover| batch.unwritten(cover));
    old.is_subset(view.readable())
        .then_some(WritePlan { old, ..base })
}

/// From the old parity and the old data of what is written.
fn modify<S>(
    geom: &Geometry,
    batch: &Batch<S>,
    given: &Conditions,
    base: WritePlan,
) -> Option<WritePlan>
where
    S: AsRef<[Rows]> + AsMut<[Rows]>,
{
    let view = &given.view;
    let stripe = batch.stripe();
    let parity = geom.parity_slots(stripe);
    let written = batch.slots(geom, |cover| batch.written_outside_core(cover));
    let old = written.union(parity.intersect(view.usable));
    let others = batch.slots(geom, |cover| batch.unwritten(cover));
    let blind = others.minus(view.readable());
    // Unless somebody is missing, reconstructing makes parity right, or rebuilding does.
    let missing = !blind.is_empty() && blind.intersect(view.usable).is_empty();
    let trusted = is_vouched(view)
        || !blind.is_empty() && view.region.need_sync
        || missing && geom.parity() == 1;
    let possible = given.can_modify && trusted && old.is_subset(view.readable());
    possible.then_some(WritePlan {
        kind: WriteKind::Modify,
        old,
        missed: base.missed.union(unvouched(blind, view)),
        ..base
    })
}

/// From all data, of which what is not among `from` is decoded.
fn rebuild<S>(
    geom: &Geometry,
    batch: &Batch<S>,
    view: &View,
    from: SlotSet,
    base: WritePlan,
) -> Option<WritePlan>
where
    S: AsRef<[Rows]> + AsMut<[Rows]>,
{
    let data = all_data(geom, batch.stripe());
    let decode = data.minus(from);
    // Where parity may not match, a block that can be read is not computed.
    let trusted = is_vouched(view) || decode.intersect(view.readable()).is_empty();
    if view.region.need_sync || decode.is_empty() || !trusted {
        return None;
    }
    let parity = choose_parity(geom, batch.stripe(), decode.len(), from, from)?;
    let others = batch.slots(geom, |cover| batch.unwritten(cover));
    let doubtful = unvouched(decode.intersect(others), view);
    let repair = doubtful.intersect(view.usable);
    Some(WritePlan {
        kind: WriteKind::Rebuild,
        old: data.intersect(from).union(parity),
        decode,
        write: base.write.union(repair),
        repair,
        missed: base.missed.union(doubtful.minus(repair)),
    })
}

/// Whether parity matches the data for sure.
#[inline]
fn is_vouched(view: &View) -> bool {
    view.region.init == Init::Full && !view.region.need_sync
}

/// The members of `blind` that are stale once parity alone says what their old blocks are; see
/// [`plan_write`].
#[inline]
fn unvouched(blind: SlotSet, view: &View) -> SlotSet {
    if view.region.init == Init::Full || view.region.need_sync {
        SlotSet::EMPTY
    } else {
        blind
    }
}
