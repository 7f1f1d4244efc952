// SPDX-License-Identifier: GPL-2.0

//! Geometry in both directions, for every level, width and chunk.

use eraid_core::geometry::{Band, Geometry, Level, Role};
use eraid_core::units::{Sector, Sectors, Slot, SlotSet, StripeNo};
use proptest::prelude::*;

const LEVELS: [Level; 4] = [Level::Raid0, Level::Raid1, Level::Raid5, Level::Raid6];

/// log2 of the chunks in sectors: 8 KiB to 1 MiB.
const CHUNK_SHIFTS: std::ops::RangeInclusive<u32> = 4..=11;

fn slot(number: usize) -> Slot {
    Slot::new(number as u8).unwrap()
}

/// All levels with all widths.
fn shapes() -> impl Iterator<Item = (Level, u8)> {
    LEVELS
        .into_iter()
        .flat_map(|level| (level.members_min()..=64).map(move |members| (level, members)))
}

fn geometry(level: Level, members: u8, chunk_shift: u32, stripes: u64) -> Geometry {
    let chunk = 1 << chunk_shift;
    let component = Sectors::new(chunk * stripes + chunk / 2);
    Geometry::new(level, members, Sectors::new(chunk), component).unwrap()
}

/// The roles of a stripe, built from the picture instead of a formula: write P, Q and the data in
/// a row that starts on the first member, then turn the row until P is on the last member, and on
/// one member less for every stripe.
fn roles_by_turning(level: Level, members: u8, stripe: u64) -> Vec<Role> {
    let parity: &[Role] = match level {
        Level::Raid0 => &[],
        Level::Raid1 => return vec![Role::Copy; usize::from(members)],
        Level::Raid5 => &[Role::P],
        Level::Raid6 => &[Role::P, Role::Q],
    };
    let data = members - parity.len() as u8;
    let mut row: Vec<Role> = parity
        .iter()
        .copied()
        .chain((0..data).map(Role::Data))
        .collect();
    if !parity.is_empty() {
        row.rotate_left(1);
        for _ in 0..stripe % u64::from(members) {
            row.rotate_left(1);
        }
    }
    row
}

#[test]
fn roles_are_left_symmetric() {
    for (level, members) in shapes() {
        let geometry = geometry(level, members, 4, 200);
        for stripe in (0..200).chain([u64::MAX / 3]) {
            let expected = roles_by_turning(level, members, stripe);
            let at = StripeNo::new(stripe);
            let roles: Vec<Role> = (0..usize::from(members))
                .map(|number| geometry.role(at, slot(number)))
                .collect();
            assert_eq!(
                roles, expected,
                "{level:?} {members} members, stripe {stripe}"
            );
        }
    }
}

/// The members' roles are a permutation, and the way from a role to its slot leads back.
#[test]
fn every_role_has_its_slot() {
    for (level, members) in shapes() {
        let geometry = geometry(level, members, 4, 200);
        for stripe in (0..u64::from(members) + 3).map(StripeNo::new) {
            if level == Level::Raid1 {
                assert_eq!(geometry.slot_of_data(stripe, 0), slot(0));
                assert_eq!(geometry.data_slots(stripe, 0, 0), geometry.all_slots());
                continue;
            }
            let mut seen = SlotSet::EMPTY;
            for column in 0..geometry.data_columns() {
                let slot = geometry.slot_of_data(stripe, column);
                assert_eq!(geometry.role(stripe, slot), Role::Data(column));
                seen.insert(slot);
            }
            let last = geometry.data_columns() - 1;
            assert_eq!(geometry.data_slots(stripe, 0, last), seen);
            for (slot, role) in [
                (geometry.p_slot(stripe), Role::P),
                (geometry.q_slot(stripe), Role::Q),
            ] {
                if let Some(slot) = slot {
                    assert_eq!(geometry.role(stripe, slot), role);
                    assert!(!seen.contains(slot));
                    seen.insert(slot);
                }
            }
            assert_eq!(seen, geometry.all_slots());
        }
    }
}

#[test]
fn places_lead_back_for_every_shape() {
    for (level, members) in shapes() {
        for shift in CHUNK_SHIFTS {
            let geometry = geometry(level, members, shift, 77);
            let capacity = geometry.capacity().get();
            assert_eq!(capacity >> shift, 77 * u64::from(geometry.data_columns()));
            // A stride that meets every column and many rows.
            let mut sector = 0;
            while sector < capacity {
                check_place(&geometry, sector);
                sector += capacity / 61 + 1;
            }
            check_place(&geometry, capacity - 1);
            assert_eq!(geometry.locate(Sector::new(capacity)), None);
        }
    }
}

fn check_place(geometry: &Geometry, sector: u64) {
    let place = geometry.locate(Sector::new(sector)).unwrap();
    assert!(place.stripe.get() < geometry.stripes());
    assert!(place.column < geometry.data_columns());
    assert!(place.row < geometry.chunk());
    let back = geometry.address(place.stripe, place.column, place.row);
    assert_eq!(back, Some(Sector::new(sector)));
    let on_member = geometry.member_sector(place.stripe, place.row);
    assert!(on_member.get() < geometry.component().get());
    assert_eq!(geometry.stripe_at(on_member), place.stripe);
}

#[test]
fn no_place_beyond_the_array() {
    let geometry = geometry(Level::Raid6, 7, 5, 10);
    let at = |stripe, column, row| geometry.address(StripeNo::new(stripe), column, row);
    assert!(at(9, 4, 31).is_some());
    assert_eq!(at(10, 0, 0), None);
    assert_eq!(at(0, 5, 0), None);
    assert_eq!(at(0, 0, 32), None);
    assert_eq!(at(u64::MAX, 255, u32::MAX), None);
}

/// A shape, a request in it and a height of bands.
fn request() -> impl Strategy<Value = (Geometry, u64, u64, u32)> {
    (
        prop::sample::select(LEVELS.to_vec()),
        2..=64u8,
        CHUNK_SHIFTS,
        1..40u64,
    )
        .prop_map(|(level, members, shift, stripes)| {
            geometry(level, members.max(level.members_min()), shift, stripes)
        })
        .prop_flat_map(|geometry| {
            let chunk = u64::from(geometry.chunk());
            let longest = (chunk * 9).min(geometry.capacity().get());
            let max_rows = prop_oneof![
                Just(geometry.chunk()),
                Just(geometry.chunk() / 2),
                Just(8),
                1..=300u32,
                Just(u32::MAX)
            ];
            (
                Just(geometry),
                1..=longest,
                any::<prop::sample::Index>(),
                max_rows,
            )
        })
        .prop_map(|(geometry, len, at, max_rows)| {
            let free = geometry.capacity().get() - len + 1;
            (geometry, at.index(free as usize) as u64, len, max_rows)
        })
}

/// Counts how often each sector of the request is in a band, by way of addresses.
fn count_in_bands(geometry: &Geometry, start: u64, len: u64, bands: &[Band]) -> Vec<u8> {
    let mut count = vec![0; len as usize];
    for band in bands {
        for column in band.first..=band.last {
            for row in band.rows.lo..band.rows.hi {
                let at = geometry.address(band.stripe, column, row).unwrap().get();
                count[(at - start) as usize] += 1;
            }
        }
    }
    count
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_place_leads_back(
        level in prop::sample::select(LEVELS.to_vec()),
        members in 2..=64u8,
        shift in CHUNK_SHIFTS,
        stripes in 1..1u64 << 36,
        at: prop::sample::Index,
    ) {
        let geometry = geometry(level, members.max(level.members_min()), shift, stripes);
        check_place(&geometry, at.index(geometry.capacity().get() as usize) as u64);
    }

    #[test]
    fn bands_cover_a_request_once((geometry, start, len, max_rows) in request()) {
        let at = Sector::new(start);
        let bands: Vec<Band> = geometry.bands(at, Sectors::new(len), max_rows).collect();
        let count = count_in_bands(&geometry, start, len, &bands);
        prop_assert!(count.iter().all(|n| *n == 1), "{bands:?}");
        for band in &bands {
            prop_assert!(!band.rows.is_empty() && band.rows.hi <= geometry.chunk());
            prop_assert!(band.rows.len() <= max_rows);
            // No multiple of the height lies within.
            prop_assert_eq!(band.rows.lo / max_rows, (band.rows.hi - 1) / max_rows);
            prop_assert_eq!(band.is_full(&geometry), band.columns() == geometry.data_columns());
            for column in 0..geometry.data_columns() {
                let offset = band.request_offset(&geometry, at, column);
                let touched = (band.first..=band.last).contains(&column);
                prop_assert_eq!(offset.is_some(), touched);
                if let Some(offset) = offset {
                    // The rows of a column are contiguous in the request.
                    let last = geometry.address(band.stripe, column, band.rows.hi - 1);
                    let end = last.unwrap().get() + 1 - start;
                    prop_assert_eq!(offset.get() + u64::from(band.rows.len()), end);
                }
            }
        }
    }

    #[test]
    fn bands_come_in_order_and_are_few((geometry, start, len, _) in request()) {
        let at = Sector::new(start);
        let bands: Vec<Band> = geometry.bands(at, Sectors::new(len), geometry.chunk()).collect();
        for pair in bands.windows(2) {
            let ordered = pair[0].stripe < pair[1].stripe
                || (pair[0].stripe == pair[1].stripe && pair[0].rows.hi <= pair[1].rows.lo);
            prop_assert!(ordered);
        }
        for band in &bands {
            let of_stripe = bands.iter().filter(|other| other.stripe == band.stripe);
            prop_assert!(of_stripe.count() <= 3);
        }
        // Whole stripes in between are one band each.
        let first = geometry.locate(at).unwrap().stripe;
        let last = geometry.locate(Sector::new(start + len - 1)).unwrap().stripe;
        for band in bands.iter().filter(|b| b.stripe != first && b.stripe != last) {
            prop_assert!(band.is_full(&geometry) && band.rows.len() == geometry.chunk());
        }
    }

    #[test]
    fn pieces_cover_a_request_once((geometry, start, len, _) in request()) {
        let mut next = 0;
        for piece in geometry.pieces(Sector::new(start), Sectors::new(len)) {
            prop_assert_eq!(piece.offset.get(), next);
            prop_assert!(piece.len > 0 && piece.row + piece.len <= geometry.chunk());
            let address = geometry.address(piece.stripe, piece.column, piece.row);
            prop_assert_eq!(address, Some(Sector::new(start + next)));
            prop_assert_eq!(piece.slot, geometry.slot_of_data(piece.stripe, piece.column));
            let on_member = piece.stripe.get() * u64::from(geometry.chunk()) + u64::from(piece.row);
            prop_assert_eq!(piece.at.get(), on_member);
            next += u64::from(piece.len);
        }
        prop_assert_eq!(next, len);
    }

    /// Whatever is asked for, in range or not: no panic, no endless walk.
    #[test]
    fn wild_requests(
        (geometry, ..) in request(),
        start: u64,
        len: u64,
        max_rows: u32,
        column: u8,
        row: u32,
    ) {
        let (at, sectors) = (Sector::new(start), Sectors::new(len));
        if !geometry.contains(at, sectors) {
            prop_assert_eq!(geometry.bands(at, sectors, max_rows).count(), 0);
            prop_assert_eq!(geometry.pieces(at, sectors).count(), 0);
        }
        let stripe = StripeNo::new(start);
        let _ = geometry.address(stripe, column, row);
        let _ = geometry.locate(at);
        let _ = geometry.member_sector(stripe, row);
        let _ = geometry.slot_of_data(stripe, column);
        let _ = geometry.role(stripe, slot(usize::from(column % 64)));
        let zero_rows = geometry.bands(Sector::ZERO, Sectors::new(9), 0);
        prop_assert_eq!(zero_rows.map(|band| band.rows.len()).max(), Some(1));
    }
}
