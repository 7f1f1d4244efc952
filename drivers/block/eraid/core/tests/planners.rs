// SPDX-License-Identifier: GPL-2.0

//! The planners against brute force over all sets of members.

use eraid_core::batch::Batch;
use eraid_core::geometry::{Band, Geometry, Level, Role, Rows};
use eraid_core::plan_read::{plan_read, plan_rebuild, ReadPlan, Rebuild, View};
use eraid_core::plan_write::{old_rows, plan_write, Conditions, Lost, WriteKind, WritePlan};
use eraid_core::regionmap::{Init, Region};
use eraid_core::units::{Sectors, Slot, SlotSet, StripeNo};

fn geometry(level: Level, members: u8) -> Geometry {
    Geometry::new(level, members, Sectors::new(8), Sectors::new(8 * 64)).unwrap()
}

fn slot(number: u8) -> Slot {
    Slot::new(number).unwrap()
}

fn set(slots: &[u8]) -> SlotSet {
    slots.iter().map(|n| slot(*n)).collect()
}

fn subsets(members: u8) -> impl Iterator<Item = SlotSet> + Clone {
    (0..1u64 << members).map(SlotSet::from_bits)
}

/// Data and parity slots of a stripe, from the roles.
fn split(geom: &Geometry, stripe: StripeNo) -> (SlotSet, SlotSet) {
    geom.all_slots()
        .iter()
        .map(|slot| match geom.role(stripe, slot) {
            Role::Data(_) | Role::Copy => (SlotSet::single(slot), SlotSet::EMPTY),
            Role::P | Role::Q => (SlotSet::EMPTY, SlotSet::single(slot)),
        })
        .fold((SlotSet::EMPTY, SlotSet::EMPTY), |a, b| {
            (a.0.union(b.0), a.1.union(b.1))
        })
}

/// The slots of the data columns, from the roles.
fn columns(geom: &Geometry, stripe: StripeNo, first: u8, last: u8) -> SlotSet {
    let wanted = |slot: &Slot| match geom.role(stripe, *slot) {
        Role::Data(column) => (first..=last).contains(&column),
        Role::Copy => true,
        Role::P | Role::Q => false,
    };
    geom.all_slots().iter().filter(wanted).collect()
}

/// How good a plan is, best first: 0 direct, 1 decoded, 2 and 3 the same with avoided members, 4
/// lost. Found by trying all sets of readable members.
fn best_tier(geom: &Geometry, stripe: StripeNo, wanted: SlotSet, view: &View) -> u8 {
    let (data, parity) = split(geom, stripe);
    let mut best = 4;
    for fetched in subsets(geom.members()) {
        if !fetched.is_subset(view.usable) || !fetched.intersect(view.bad).is_empty() {
            continue;
        }
        let direct = if geom.level() == Level::Raid1 {
            !fetched.is_empty()
        } else {
            wanted.is_subset(fetched)
        };
        let unknown = data.minus(fetched).len();
        let decodes = geom.level() != Level::Raid1
            && !view.region.need_sync
            && unknown <= parity.intersect(fetched).len();
        let base = if direct {
            0
        } else if decodes {
            1
        } else {
            continue;
        };
        let avoided = !fetched.intersect(view.avoid).is_empty();
        best = best.min(base + if avoided { 2 } else { 0 });
    }
    best
}

/// Checks that a plan is right, and returns how good it is.
fn tier_of(geom: &Geometry, stripe: StripeNo, wanted: SlotSet, view: &View, plan: &ReadPlan) -> u8 {
    let (data, parity) = split(geom, stripe);
    let (fetch, base) = match *plan {
        ReadPlan::Direct(fetch) if geom.level() == Level::Raid1 => {
            assert_eq!(fetch.len(), 1);
            (fetch, 0)
        }
        ReadPlan::Direct(fetch) => {
            assert_eq!(fetch, wanted);
            (fetch, 0)
        }
        ReadPlan::Decode { fetch, missing } => {
            assert!(!view.region.need_sync, "decoded in a need_sync region");
            assert_eq!(missing, data.minus(fetch));
            assert!(!missing.intersect(wanted).is_empty());
            // As many equations as unknowns, none too many.
            assert_eq!(fetch.intersect(parity).len(), missing.len());
            (fetch, 1)
        }
        ReadPlan::Lost => return 4,
    };
    assert!(fetch.is_subset(view.usable), "reads an unusable member");
    assert!(fetch.intersect(view.bad).is_empty(), "reads a bad block");
    let avoided = !fetch.intersect(view.avoid).is_empty();
    base + if avoided { 2 } else { 0 }
}

/// All plans of one geometry and stripe are as good as any.
fn check_reads(geom: &Geometry, stripe: StripeNo) -> usize {
    let members = geom.members();
    let mut count = 0;
    for need_sync in [false, true] {
        for (usable, bad) in subsets(members).flat_map(|u| subsets(members).map(move |b| (u, b))) {
            for avoid in subsets(members) {
                let region = Region {
                    need_sync,
                    ..Region::CLEAN
                };
                let view = View {
                    usable,
                    avoid,
                    bad,
                    region,
                };
                for first in 0..geom.data_columns() {
                    for last in first..geom.data_columns() {
                        let wanted = columns(geom, stripe, first, last);
                        let plan = plan_read(geom, stripe, first, last, &view, None);
                        let tier = tier_of(geom, stripe, wanted, &view, &plan);
                        let copies_differ = need_sync && geom.level() == Level::Raid1;
                        let best = best_tier(geom, stripe, wanted, &view);
                        if copies_differ {
                            assert_eq!(plan == ReadPlan::Lost, best == 4);
                        } else {
                            assert_eq!(tier, best, "{plan:?} {view:?}");
                        }
                        count += 1;
                    }
                }
            }
        }
    }
    count
}

#[test]
fn read_plans_are_right_and_the_best_there_are() {
    let mut count = 0;
    for (level, members) in [
        (Level::Raid0, 2),
        (Level::Raid0, 3),
        (Level::Raid1, 2),
        (Level::Raid1, 3),
        (Level::Raid5, 3),
        (Level::Raid5, 4),
        (Level::Raid6, 4),
    ] {
        let geom = geometry(level, members);
        for stripe in 0..u64::from(members) {
            count += check_reads(&geom, StripeNo::new(stripe));
        }
    }
    count += check_reads(&geometry(Level::Raid5, 5), StripeNo::new(3));
    println!("{count} plans");
}

#[test]
fn of_two_parities_avoided_ones_are_last() {
    let geom = geometry(Level::Raid6, 5);
    let stripe = StripeNo::new(0);
    let (p, q) = (geom.p_slot(stripe).unwrap(), geom.q_slot(stripe).unwrap());
    let lost = geom.slot_of_data(stripe, 0);
    let mut view = View {
        usable: geom.all_slots().without(lost),
        avoid: SlotSet::EMPTY,
        bad: SlotSet::EMPTY,
        region: Region::CLEAN,
    };
    let fetched = |view: &View| match plan_read(&geom, stripe, 0, 0, view, None) {
        ReadPlan::Decode { fetch, .. } => fetch,
        plan => panic!("{plan:?}"),
    };
    assert!(fetched(&view).contains(p) && !fetched(&view).contains(q));
    view.avoid = SlotSet::single(p);
    assert!(fetched(&view).contains(q) && !fetched(&view).contains(p));
}

/// The fewest avoided members with which `targets` can be computed, found by trying all sets of
/// others; `None` when no set suffices.
fn fewest_avoided(geom: &Geometry, stripe: StripeNo, targets: SlotSet, view: &View) -> Option<u32> {
    let (data, parity) = split(geom, stripe);
    let others = view.usable.minus(view.bad).minus(targets);
    let sets = subsets(geom.members()).filter(|set| set.is_subset(others));
    let enough = |set: &SlotSet| {
        let unknown = data.minus(*set).len();
        unknown == 0 || (!view.region.need_sync && unknown <= set.intersect(parity).len())
    };
    let sets = sets.filter(enough);
    sets.map(|set| set.intersect(view.avoid).len()).min()
}

#[test]
fn rebuilds_are_right_and_read_as_few_avoided_members_as_they_can() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid6, 4), (Level::Raid6, 5)] {
        let geom = geometry(level, members);
        let stripe = StripeNo::new(1);
        let (data, parity) = split(&geom, stripe);
        let singles = geom.all_slots().iter().map(SlotSet::single);
        for targets in singles.chain([parity]) {
            // Of five members not every set of bad ones: they only make others unusable.
            let bads = subsets(members).filter(|bad| members == 4 || bad.len() <= 1);
            for (usable, bad) in subsets(members).flat_map(|u| bads.clone().map(move |b| (u, b))) {
                for (avoid, need_sync) in
                    subsets(members).flat_map(|avoid| [(avoid, false), (avoid, true)])
                {
                    let region = Region {
                        need_sync,
                        ..Region::CLEAN
                    };
                    let view = View {
                        usable,
                        avoid,
                        bad,
                        region,
                    };
                    let fewest = fewest_avoided(&geom, stripe, targets, &view);
                    let Some(Rebuild { fetch, compute }) =
                        plan_rebuild(&geom, stripe, targets, &view)
                    else {
                        assert_eq!(fewest, None, "{targets:?} {view:?}");
                        continue;
                    };
                    assert!(fetch.is_subset(usable.minus(bad).minus(targets)));
                    assert_eq!(compute, data.minus(fetch).union(targets));
                    assert_eq!(fetch.intersect(parity).len(), data.minus(fetch).len());
                    // Reading a block that is wanted beats computing it.
                    let direct = data.is_subset(fetch);
                    assert!(direct || Some(fetch.intersect(avoid).len()) == fewest);
                }
            }
        }
    }
}

#[test]
fn mirrors_follow_the_preference_unless_copies_may_differ() {
    let geom = geometry(Level::Raid1, 3);
    let read = |view: &View, prefer| plan_read(&geom, StripeNo::new(0), 0, 0, view, prefer);
    let direct = |n| ReadPlan::Direct(SlotSet::single(slot(n)));
    let mut view = View {
        usable: geom.all_slots(),
        avoid: SlotSet::EMPTY,
        bad: SlotSet::EMPTY,
        region: Region::CLEAN,
    };
    assert_eq!(read(&view, Some(slot(2))), direct(2));
    assert_eq!(read(&view, None), direct(0));
    view.avoid = set(&[2]);
    assert_eq!(read(&view, Some(slot(2))), direct(0), "it sits out");
    view.bad = set(&[0, 1]);
    assert_eq!(
        read(&view, Some(slot(1))),
        direct(2),
        "last choice, never excluded"
    );
    view.bad = SlotSet::EMPTY;
    view.region.need_sync = true;
    view.avoid = set(&[0]);
    for prefer in [None, Some(slot(1)), Some(slot(2))] {
        assert_eq!(read(&view, prefer), direct(0), "always the same one");
    }
    view.usable = set(&[1, 2]);
    assert_eq!(read(&view, Some(slot(2))), direct(1));
}

#[test]
fn stale_members_are_usable_once_recovered() {
    let usable = View::usable(set(&[0, 1, 2]), set(&[1, 3]), set(&[3]));
    assert_eq!(usable, set(&[0, 2, 3]));
}

/// Plans a write of all rows of some columns.
fn plan_columns(
    geom: &Geometry,
    stripe: StripeNo,
    first: u8,
    last: u8,
    view: &View,
) -> Result<WritePlan, Lost> {
    let rows = Rows { lo: 0, hi: 8 };
    let mut batch = Batch::new(vec![Rows::NONE; usize::from(geom.data_columns())]);
    let band = Band {
        stripe,
        rows,
        first,
        last,
    };
    assert!(batch.join(&band, 8));
    let given = Conditions {
        view: *view,
        at_hand: SlotSet::EMPTY,
        can_modify: true,
    };
    let plan = plan_write(geom, &batch, &given);
    if let Ok(plan) = plan {
        for slot in plan.old {
            assert_eq!(old_rows(geom, &batch, plan.kind, slot), rows, "{plan:?}");
        }
    }
    plan
}

/// A way to write: how, what old blocks it takes, what it decodes, and which members become stale
/// because they were not vouched for.
type Way = (WriteKind, SlotSet, SlotSet, SlotSet);

/// The ways to write that a view allows, by the rules of the documentation.
fn allowed(geom: &Geometry, stripe: StripeNo, touched: SlotSet, view: &View) -> Vec<Way> {
    let none = SlotSet::EMPTY;
    let (data, parity) = split(geom, stripe);
    let live = parity.intersect(view.usable);
    let readable = view.usable.minus(view.bad);
    let unusable = geom.all_slots().minus(view.usable);
    let only_in_parity = !touched.is_subset(view.usable) && view.region.need_sync;
    match geom.level() {
        Level::Raid0 if touched.is_subset(view.usable) => {
            return vec![(WriteKind::Plain, none, none, none)]
        }
        Level::Raid1 if !view.usable.is_empty() => {
            return vec![(WriteKind::Copies, none, none, none)]
        }
        Level::Raid0 | Level::Raid1 => return Vec::new(),
        Level::Raid5 | Level::Raid6 => {}
    }
    if unusable.len() > u32::from(geom.parity()) || only_in_parity {
        return Vec::new();
    }
    if live.is_empty() {
        return vec![(WriteKind::DataOnly, none, none, none)];
    }
    if touched == data {
        return vec![(WriteKind::Full, none, none, none)];
    }
    let others = data.minus(touched);
    let blind = others.minus(readable);
    let vouched = view.region.init == Init::Full && !view.region.need_sync;
    let full = view.region.init == Init::Full;
    let stale = |blind: SlotSet| {
        if full || view.region.need_sync {
            none
        } else {
            blind
        }
    };
    let mut ways = Vec::new();
    if blind.is_empty() {
        ways.push((WriteKind::Reconstruct, others, none, none));
    }
    let old = touched.union(live);
    let one = parity.len() == 1 || view.region.need_sync;
    // What cannot be read can be written anew.
    let missing = view.region.need_sync || blind.intersect(view.usable).is_empty();
    if old.is_subset(readable) && (vouched || (!blind.is_empty() && one && missing)) {
        ways.push((WriteKind::Modify, old, none, stale(blind)));
    }
    let bearable = |way: &Way| {
        let missed = way.3.union(touched.union(parity).minus(view.usable));
        unusable.union(missed).len() <= parity.len()
    };
    ways.retain(bearable);
    if view.region.need_sync {
        return ways;
    }
    // Any set of data that is not read, with as many parities.
    for decode in subsets(geom.members()).filter(|set| set.is_subset(data) && !set.is_empty()) {
        let read = data.minus(decode);
        let trusted = vouched || decode.intersect(readable).is_empty();
        for p in subsets(geom.members()).filter(|set| set.is_subset(parity)) {
            let fetch = read.union(p);
            if fetch.is_subset(readable) && p.len() == decode.len() && trusted {
                let blind = decode.intersect(others).minus(view.usable);
                ways.push((WriteKind::Rebuild, fetch, decode, stale(blind)));
            }
        }
    }
    ways.retain(bearable);
    ways
}

/// Checks one write plan against all the ways that are allowed.
fn check_write(geom: &Geometry, stripe: StripeNo, first: u8, last: u8, view: &View) {
    let (_, parity) = split(geom, stripe);
    let touched = columns(geom, stripe, first, last);
    let ways = allowed(geom, stripe, touched, view);
    let Ok(plan) = plan_columns(geom, stripe, first, last, view) else {
        assert!(ways.is_empty(), "lost in spite of {ways:?}: {view:?}");
        return;
    };
    let targets = touched.union(parity);
    let vouched = view.region.init == Init::Full || view.region.need_sync;
    let repair = match plan.kind {
        WriteKind::Rebuild if !vouched => plan.decode.minus(touched).intersect(view.usable),
        _ => SlotSet::EMPTY,
    };
    assert_eq!(plan.repair, repair);
    assert_eq!(plan.write, targets.intersect(view.usable).union(repair));
    let stale = plan.missed.minus(targets.minus(view.usable));
    assert_eq!(plan.missed.minus(stale), targets.minus(view.usable));
    let way = ways.iter().find(|way| {
        let (kind, old, decode, more) = **way;
        (kind, old, decode) == (plan.kind, plan.old, plan.decode)
            && more.union(targets.minus(view.usable)) == plan.missed
    });
    let way = way.unwrap_or_else(|| panic!("{plan:?} is not allowed: {view:?}"));
    let cost = |(kind, old, _, more): &Way| {
        let kind = match kind {
            WriteKind::Modify => 1,
            WriteKind::Rebuild => 2,
            _ => 0,
        };
        let more = !more.minus(targets.minus(view.usable)).is_empty();
        (more, !old.intersect(view.avoid).is_empty(), old.len(), kind)
    };
    let best = ways.iter().map(cost).min();
    assert_eq!(Some(cost(way)), best, "{plan:?} {ways:?} {view:?}");
}

#[test]
fn write_plans_are_allowed_and_the_cheapest() {
    for (level, members) in [
        (Level::Raid0, 3),
        (Level::Raid1, 3),
        (Level::Raid5, 3),
        (Level::Raid5, 4),
        (Level::Raid6, 4),
    ] {
        let geom = geometry(level, members);
        let states = [Init::None, Init::Partial, Init::Full]
            .into_iter()
            .flat_map(|init| [(init, false), (init, true)]);
        for (init, need_sync) in states {
            let region = Region {
                init,
                need_sync,
                ..Region::NEW
            };
            for (usable, bad) in
                subsets(members).flat_map(|u| subsets(members).map(move |b| (u, b)))
            {
                for avoid in subsets(members) {
                    let view = View {
                        usable,
                        avoid,
                        bad,
                        region,
                    };
                    for first in 0..geom.data_columns() {
                        for last in first..geom.data_columns() {
                            check_write(&geom, StripeNo::new(1), first, last, &view);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn fewer_reads_win_and_a_tie_reconstructs() {
    let geom = geometry(Level::Raid5, 5);
    let stripe = StripeNo::new(0);
    let view = View {
        usable: geom.all_slots(),
        avoid: SlotSet::EMPTY,
        bad: SlotSet::EMPTY,
        region: Region::CLEAN,
    };
    let kind =
        |first, last, view: &View| plan_columns(&geom, stripe, first, last, view).unwrap().kind;
    assert_eq!(
        kind(0, 0, &view),
        WriteKind::Modify,
        "2 reads rather than 3"
    );
    assert_eq!(
        kind(0, 1, &view),
        WriteKind::Reconstruct,
        "2 reads rather than 3"
    );
    assert_eq!(kind(0, 3, &view), WriteKind::Full);
    let partial = View {
        region: Region {
            init: Init::Partial,
            ..Region::CLEAN
        },
        ..view
    };
    assert_eq!(kind(0, 0, &partial), WriteKind::Reconstruct);
    let four = geometry(Level::Raid5, 4);
    let view = View {
        usable: four.all_slots(),
        ..view
    };
    let plan = plan_columns(&four, stripe, 0, 0, &view).unwrap();
    assert_eq!(plan.kind, WriteKind::Reconstruct, "2 reads each");
    let avoided = View {
        avoid: SlotSet::single(four.slot_of_data(stripe, 2)),
        ..view
    };
    assert_eq!(
        plan_columns(&four, stripe, 0, 0, &avoided).unwrap().kind,
        WriteKind::Modify
    );
}

/// A write of column 0 while column 2 cannot be read, of a RAID-5 of four, in such a region.
fn plan_beside_a_bad_block(region: Region) -> Result<WritePlan, Lost> {
    let (geom, stripe) = (geometry(Level::Raid5, 4), StripeNo::new(0));
    let view = View {
        usable: geom.all_slots(),
        avoid: SlotSet::EMPTY,
        bad: SlotSet::single(geom.slot_of_data(stripe, 2)),
        region,
    };
    plan_columns(&geom, stripe, 0, 0, &view)
}

#[test]
fn a_block_that_nobody_vouches_for_is_written_anew() {
    let bad = SlotSet::single(geometry(Level::Raid5, 4).slot_of_data(StripeNo::new(0), 2));
    let partial = Region {
        init: Init::Partial,
        ..Region::NEW
    };
    let plan = plan_beside_a_bad_block(partial).unwrap();
    assert_eq!((plan.kind, plan.repair), (WriteKind::Rebuild, bad));
    assert!(plan.missed.is_empty(), "all else it has is as good as ever");
    assert!(bad.is_subset(plan.write));
}

#[test]
fn parity_that_was_resynced_is_vouched_for() {
    assert_eq!(Region::UNKNOWN.resynced(), Region::CLEAN);
    assert_eq!(Region::NEW.resynced(), Region::NEW, "nothing was written");
    let plan = plan_beside_a_bad_block(Region::UNKNOWN.resynced()).unwrap();
    assert_eq!(plan.kind, WriteKind::Modify);
    assert!(plan.missed.union(plan.repair).is_empty());
}

#[test]
fn who_is_gone_misses_nothing_where_another_one_is_caught_up() {
    for level in [Level::Raid1, Level::Raid5] {
        let geom = geometry(level, if level == Level::Raid1 { 2 } else { 4 });
        // The recovery of member 1 has passed this stripe, and not yet all others.
        let region = Region {
            stale: SlotSet::single(slot(1)),
            ..Region::CLEAN
        };
        let view = View {
            usable: geom.all_slots(),
            avoid: SlotSet::EMPTY,
            bad: SlotSet::EMPTY,
            region,
        };
        let plan = |view: &View| plan_columns(&geom, StripeNo::new(0), 0, 0, view);
        assert!(plan(&view).is_ok());
        let gone = View {
            usable: geom.all_slots().without(slot(0)),
            ..view
        };
        assert_eq!(plan(&gone), Err(Lost));
    }
}
