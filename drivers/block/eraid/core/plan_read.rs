// SPDX-License-Identifier: GPL-2.0

//! The read planner: which members to ask for some columns of a stripe, to answer a read or to
//! write the columns of a member anew.

use crate::geometry::{Geometry, Level};
use crate::regionmap::Region;
use crate::units::{Slot, SlotSet, StripeNo};

/// What is known about the members for some rows of a stripe.
///
/// It has to be made anew for every plan, retries and fallbacks included: a plan is only as right
/// as the tests behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Members whose blocks of this stripe are current and that take commands; see
    /// [`View::usable`].
    pub usable: SlotSet,
    /// Members that are not to be read while anything else works: they sit out, or are expected
    /// to be late.
    pub avoid: SlotSet,
    /// Members with a block in these rows that is known or was just found to be unreadable.
    pub bad: SlotSet,
    /// State of the region the stripe lies in, as
    /// [`RegionState::view`](crate::region::RegionState::view) gives it.
    pub region: Region,
}

impl View {
    /// The members whose blocks of a stripe are current.
    ///
    /// `in_sync`: members that hold all their data, but for the regions they missed writes of;
    /// `stale`: the members that missed writes of this region; `recovered`: members being rebuilt
    /// or caught up whose rebuild has passed this stripe, whatever their stale bit still says.
    /// Failed and missing members are in none of the first and the last.
    #[inline]
    pub const fn usable(in_sync: SlotSet, stale: SlotSet, recovered: SlotSet) -> SlotSet {
        in_sync.minus(stale).union(recovered)
    }

    /// Members whose blocks can be read and are current.
    #[inline]
    pub const fn readable(&self) -> SlotSet {
        self.usable.minus(self.bad)
    }
}

/// What to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPlan {
    /// The blocks themselves, of these slots; for RAID-1 of the one copy named.
    Direct(SlotSet),
    /// The blocks of `fetch`, from which those of `missing` are computed.
    Decode {
        /// Slots to read. They include the wanted blocks that can be read.
        fetch: SlotSet,
        /// Data slots that cannot be read, wanted or not: what the code has to solve for.
        missing: SlotSet,
    },
    /// No set of members that may be read gives the data.
    Lost,
}

/// Plans a read of the data columns `first` to `last` of `stripe`.
///
/// In this order: the blocks themselves without the avoided members, a decode without them, the
/// blocks themselves, a decode that reads as few of them as it can; a plan that needs avoided members
/// is the last ditch before an error. While parity may not match (`need_sync`) nothing is decoded. RAID-1 reads `prefer` when
/// nothing speaks against it; while its copies may differ all reads go to the same one, the
/// lowest, so that no two reads see different data.
pub fn plan_read(
    geom: &Geometry,
    stripe: StripeNo,
    first: u8,
    last: u8,
    view: &View,
    prefer: Option<Slot>,
) -> ReadPlan {
    let favoured = view.readable().minus(view.avoid);
    match geom.level() {
        Level::Raid1 => plan_copy(view, favoured, prefer),
        Level::Raid0 | Level::Raid5 | Level::Raid6 => {
            let wanted = geom.data_slots(stripe, first, last);
            plan_columns(geom, stripe, wanted, view).unwrap_or(ReadPlan::Lost)
        }
    }
}

/// Chooses the copy of RAID-1 to read.
#[inline]
fn plan_copy(view: &View, favoured: SlotSet, prefer: Option<Slot>) -> ReadPlan {
    let from = if view.region.need_sync || favoured.is_empty() {
        view.readable()
    } else {
        favoured
    };
    let preferred = prefer.filter(|slot| from.contains(*slot) && !view.region.need_sync);
    match preferred.or(from.first()) {
        Some(slot) => ReadPlan::Direct(SlotSet::single(slot)),
        None => ReadPlan::Lost,
    }
}

/// Plans a read of some data columns of a level with parity, or without any redundancy.
fn plan_columns(
    geom: &Geometry,
    stripe: StripeNo,
    wanted: SlotSet,
    view: &View,
) -> Option<ReadPlan> {
    let favoured = view.readable().minus(view.avoid);
    let plan = plan_from(geom, stripe, wanted, favoured, favoured, view);
    if plan.is_some() {
        return plan;
    }
    if wanted.is_subset(view.readable()) {
        return Some(ReadPlan::Direct(wanted));
    }
    // One more equation at a time, until there are enough.
    let mut from = favoured;
    view.readable()
        .intersect(view.avoid)
        .iter()
        .find_map(|slot| {
            from.insert(slot);
            plan_from(geom, stripe, wanted, from, favoured, view)
        })
}

/// Plans a read that asks members of `from` only; of two parities it takes one of `favoured`.
#[inline]
fn plan_from(
    geom: &Geometry,
    stripe: StripeNo,
    wanted: SlotSet,
    from: SlotSet,
    favoured: SlotSet,
    view: &View,
) -> Option<ReadPlan> {
    if wanted.is_subset(from) {
        return Some(ReadPlan::Direct(wanted));
    }
    if view.region.need_sync {
        return None;
    }
    let data = all_data(geom, stripe);
    let missing = data.minus(from);
    let parity = choose_parity(geom, stripe, missing.len(), from, favoured)?;
    Some(ReadPlan::Decode {
        fetch: data.minus(missing).union(parity),
        missing,
    })
}

/// What it takes to write the blocks of some members anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebuild {
    /// Slots to read.
    pub fetch: SlotSet,
    /// Slots to compute from these, the targets among them.
    pub compute: SlotSet,
}

/// Plans to compute the blocks of `targets` in `stripe` from those of the other members; of a level
/// with parity.
///
/// Parity comes from all data columns, data from a decode. As in [`plan_read`] nothing is decoded
/// while parity may not match, so that then parity is all that can be had, and avoided members
/// are read last. `None` when the others do not suffice.
pub fn plan_rebuild(
    geom: &Geometry,
    stripe: StripeNo,
    targets: SlotSet,
    view: &View,
) -> Option<Rebuild> {
    let data = all_data(geom, stripe);
    let wanted = match targets.is_subset(data) {
        true => targets,
        false => data,
    };
    let others = View {
        usable: view.usable.minus(targets),
        ..*view
    };
    let (fetch, missing) = match plan_columns(geom, stripe, wanted, &others)? {
        ReadPlan::Direct(fetch) => (fetch, SlotSet::EMPTY),
        ReadPlan::Decode { fetch, missing } => (fetch, missing),
        ReadPlan::Lost => return None,
    };
    Some(Rebuild {
        fetch,
        compute: missing.union(targets),
    })
}

/// The slots of all data columns of a stripe.
#[inline]
pub(crate) fn all_data(geom: &Geometry, stripe: StripeNo) -> SlotSet {
    geom.data_slots(stripe, 0, geom.data_columns().saturating_sub(1))
}

/// Takes `count` parity slots of `from`: P rather than Q, but first of all those of `favoured`.
#[inline]
pub(crate) fn choose_parity(
    geom: &Geometry,
    stripe: StripeNo,
    count: u32,
    from: SlotSet,
    favoured: SlotSet,
) -> Option<SlotSet> {
    let (p, q) = (geom.p_slot(stripe), geom.q_slot(stripe));
    let mut chosen = SlotSet::EMPTY;
    for allowed in [favoured, from] {
        for slot in [p, q].into_iter().flatten() {
            if chosen.len() < count && allowed.contains(slot) {
                chosen.insert(slot);
            }
        }
    }
    (chosen.len() == count).then_some(chosen)
}
