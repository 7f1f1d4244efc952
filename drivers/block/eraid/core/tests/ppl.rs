// SPDX-License-Identifier: GPL-2.0

//! The partial parity log: when its cells are used again, what of it is believed after a crash, and
//! logs that make no sense. How it works as a whole is in `ppl_model.rs`.

mod common;

use common::{images, number, reseal, set_number, Rng};
use eraid_core::crc32c::reference;
use eraid_core::geometry::{Geometry, Level, Rows};
use eraid_core::layout::{Area, FrontLayout};
use eraid_core::metapage::{Page, PAGE_SIZE};
use eraid_core::ppl::{payload_crc, Entry, Header, LogId, LogLayout, Record, Stamp, COLUMNS_MAX};
use eraid_core::ppl_replay::{scan, Failed, Found, LogError, Members, Replayed, Scratch};
use eraid_core::ppl_ring::{Live, Ring, Wait};
use eraid_core::units::{Generation, Sector, Sectors, Sequence, Slot, SlotSet, StripeNo, Uuid};
use std::collections::BTreeMap;

const ARRAY: Uuid = Uuid::new(*b"the array itself");

const STRIPES: u64 = 12;

/// Hostile logs, of several records each.
const LOGS: usize = 20_000;

fn geometry(chunk: u64) -> Geometry {
    let component = Sectors::new(chunk * STRIPES);
    Geometry::new(Level::Raid5, 4, Sectors::new(chunk), component).unwrap()
}

fn layout(geometry: &Geometry, cells: u64) -> LogLayout {
    let cell = 8 + u64::from(geometry.chunk().min(256));
    let area = Area {
        start: Sector::new(16),
        len: Sectors::new(cells * cell),
    };
    LogLayout::new(geometry, area).unwrap()
}

fn rows(lo: u32, hi: u32) -> Rows {
    Rows { lo, hi }
}

#[test]
fn cells_lie_in_the_area_and_apart() {
    for size in [16u64 << 11, 1 << 21, 16 << 21] {
        let area = FrontLayout::for_member(Sectors::new(size)).unwrap().ppl;
        for chunk in [8, 128, 256, 8192] {
            let geometry = geometry(chunk);
            let layout = LogLayout::new(&geometry, area).unwrap();
            assert_eq!(layout.payload_rows(), (chunk as u32).min(256));
            let end = area.start.get() + area.len.get();
            for cell in 0..layout.cells() {
                assert_eq!(layout.header(cell).get() % 8, 0);
                assert_eq!(layout.payload(cell).get(), layout.header(cell).get() + 8);
                let behind = layout.payload(cell).get() + u64::from(layout.payload_rows());
                assert!(behind <= end && behind <= layout.header(cell + 1).get());
            }
        }
    }
    let raid6 = Geometry::new(Level::Raid6, 4, Sectors::new(8), Sectors::new(8)).unwrap();
    let area = FrontLayout::standard().ppl;
    assert_eq!(LogLayout::new(&raid6, area), None);
    let short = Area {
        len: Sectors::new(3 * 16 - 1),
        ..area
    };
    assert_eq!(LogLayout::new(&geometry(8), short), None);
}

/// The rules of the log, under random use: nothing that a replay needs is overwritten, and the log
/// never gets stuck.
#[test]
fn a_cell_is_used_again_only_when_the_disk_says_so() {
    let mut rng = Rng::for_test("log ring");
    for _ in 0..300 {
        let geometry = geometry(8);
        let cells = rng.between(3, 9);
        let layout = layout(&geometry, cells);
        let storage = vec![Live::OVER; cells as usize];
        let mut ring = Ring::open(layout, Generation::new(7), storage);
        // What lies in each cell, and up to where a durable entry says that all is over.
        let mut disk: BTreeMap<u32, u64> = BTreeMap::new();
        let (mut over, mut durable, mut newest) = (0, 0, 1);
        let mut writing: Vec<Stamp> = Vec::new();
        let (mut open, mut flush) = (Vec::new(), None);
        let mut appended = 0;
        for _ in 0..2000 {
            match rng.below(6) {
                0 | 1 => {
                    let stripe = StripeNo::new(rng.below(STRIPES));
                    let rows = rows(0, rng.between(1, 8) as u32);
                    if ring.is_open(stripe, rows) {
                        continue;
                    }
                    match ring.append(stripe, rows) {
                        Ok(sequence) => {
                            newest += 1;
                            assert_eq!(sequence.get(), newest);
                            assert!(ring.is_open(stripe, rows) && !ring.is_over(sequence));
                            open.push(sequence);
                            appended += 1;
                        }
                        Err(Wait::Mark) => {
                            assert!(ring.append_mark());
                            newest += 1;
                        }
                        // Something is under way that makes room.
                        Err(Wait::Flush) => assert!(newest == durable),
                        Err(Wait::Write) => assert!(newest > durable),
                    }
                }
                2 if writing.is_empty() => {
                    let Some(taken) = ring.begin_write() else {
                        assert_eq!(newest, durable);
                        continue;
                    };
                    writing = taken.stamps().collect();
                    assert_eq!(writing[0].sequence.get(), durable + 1);
                    for stamp in &writing {
                        assert_eq!(stamp.durable.get(), durable);
                        assert!(stamp.oldest <= writing[0].sequence);
                        let first_open = open.iter().map(|s| s.get()).min();
                        assert!(first_open.is_none_or(|open| stamp.oldest.get() <= open));
                        let cell = layout.cell_of(stamp.sequence);
                        let before = disk.insert(cell, stamp.sequence.get());
                        assert!(before.is_none_or(|sequence| sequence < over), "{before:?}");
                    }
                }
                2 | 3 => {
                    if let Some(last) = writing.last() {
                        over = over.max(last.oldest.get());
                        durable = last.sequence.get();
                        ring.written();
                        assert!(ring.is_durable(last.sequence));
                        assert!(!ring.is_durable(last.sequence.next()));
                        writing.clear();
                    }
                }
                4 => {
                    let done = open.iter().position(|s| s.get() <= durable);
                    if let Some(index) = done {
                        let sequence = open[index];
                        if rng.once_in(2) {
                            ring.done(sequence, true);
                            assert!(ring.is_over(sequence));
                            open.swap_remove(index);
                        } else if flush.is_none() {
                            ring.done(sequence, false);
                            assert!(!ring.is_over(sequence));
                            flush = Some((ring.begin_flush(), sequence));
                        }
                    }
                }
                _ => {
                    if let Some((number, sequence)) = flush.take() {
                        ring.flushed(number - 1);
                        assert!(open.contains(&sequence) != ring.is_over(sequence));
                        ring.flushed(number);
                        assert!(ring.is_over(sequence));
                        open.retain(|s| *s != sequence);
                    }
                }
            }
        }
        assert!(appended > 50, "{appended} records in {cells} cells");
    }
}

/// Four members in memory.
struct Rig {
    geometry: Geometry,
    layout: LogLayout,
    /// Where the data of the members starts.
    data: u64,
    disks: Vec<Vec<u8>>,
    usable: SlotSet,
    unreadable: Option<(Slot, u64)>,
    doubted: Vec<u64>,
    written: Vec<(Slot, u64, u64)>,
}

impl Rig {
    fn new(chunk: u64, cells: u64) -> Rig {
        let geometry = geometry(chunk);
        let layout = layout(&geometry, cells);
        let data = layout.header(layout.cells()).get();
        let sectors = data + geometry.component().get();
        Rig {
            geometry,
            layout,
            data,
            disks: vec![vec![0; sectors as usize * 512]; 4],
            usable: SlotSet::first_n(4),
            unreadable: None,
            doubted: Vec::new(),
            written: Vec::new(),
        }
    }

    fn with_id<T>(&mut self, holder: Slot, f: impl FnOnce(&mut Rig, &LogId<'_>) -> T) -> T {
        let geometry = self.geometry;
        let id = LogId {
            array: ARRAY,
            geometry: &geometry,
            layout: self.layout,
            holder,
        };
        f(self, &id)
    }

    fn bytes(&mut self, slot: Slot, at: u64, sectors: u64) -> &mut [u8] {
        let range = at as usize * 512..(at + sectors) as usize * 512;
        &mut self.disks[slot.index()][range]
    }

    /// Puts an entry into the log of a member, with partial parity of one byte.
    fn put(&mut self, holder: Slot, stamp: Stamp, entry: Entry, byte: u8) {
        let rows = match &entry {
            Entry::Write(record) => record.partial_rows(&self.geometry),
            Entry::Mark => 0,
        };
        let payload = vec![byte; rows as usize * 512];
        let header = Header {
            stamp,
            entry,
            payload_crc: payload_crc(reference, [&payload[..]]),
        };
        let mut page = [0; PAGE_SIZE];
        self.with_id(holder, |_, id| header.encode(&mut page, reference, id));
        let cell = self.layout.cell_of(stamp.sequence);
        let (at, body) = (
            self.layout.header(cell).get(),
            self.layout.payload(cell).get(),
        );
        self.bytes(holder, at, 8).copy_from_slice(&page);
        self.bytes(holder, body, u64::from(rows))
            .copy_from_slice(&payload);
    }

    fn replay(&mut self, holder: Slot) -> Result<Replayed, LogError> {
        let room = self.layout.payload_rows() as usize * 512;
        let (mut payload, mut parity, mut data) = (vec![0; room], vec![0; room], vec![0; room]);
        let mut page = [0; PAGE_SIZE];
        self.with_id(holder, |rig, id| {
            let mut scratch = Scratch {
                page: &mut page,
                payload: &mut payload,
                parity: &mut parity,
                data: &mut data,
            };
            let storage = vec![Found::NONE; id.layout.cells() as usize];
            let limit = Generation::new(5);
            let log = scan(rig, reference, id, limit, &mut scratch, storage)?;
            let data = Sector::new(rig.data);
            log.replay(rig, reference, id, data, &mut scratch)
        })
    }
}

impl Members for Rig {
    fn usable(&self, _: StripeNo) -> SlotSet {
        self.usable
    }

    fn read(&mut self, slot: Slot, at: Sector, to: &mut [u8]) -> Result<(), Failed> {
        let sectors = to.len() as u64 / 512;
        let bad = self.unreadable.filter(|(of, _)| *of == slot);
        if bad.is_some_and(|(_, bad)| (at.get()..at.get() + sectors).contains(&bad)) {
            return Err(Failed);
        }
        to.copy_from_slice(self.bytes(slot, at.get(), sectors));
        Ok(())
    }

    fn write(&mut self, slot: Slot, at: Sector, from: &[u8]) -> Result<(), Failed> {
        let sectors = from.len() as u64 / 512;
        self.written.push((slot, at.get(), sectors));
        self.bytes(slot, at.get(), sectors).copy_from_slice(from);
        Ok(())
    }

    fn xor(&mut self, into: &mut [u8], from: &[u8]) {
        into.iter_mut().zip(from).for_each(|(a, b)| *a ^= b);
    }

    fn doubt(&mut self, stripe: StripeNo) {
        self.doubted.push(stripe.get());
    }
}

fn stamp(sequence: u64, oldest: u64, durable: u64) -> Stamp {
    Stamp {
        generation: Generation::new(5),
        sequence: Sequence::new(sequence),
        oldest: Sequence::new(oldest),
        durable: Sequence::new(durable),
    }
}

/// A write of column 0 in rows 2 to 5, and of all columns in rows 3 and 4.
fn record(stripe: u64) -> Record {
    let mut covers = [Rows::NONE; COLUMNS_MAX];
    covers[0] = rows(2, 6);
    covers[1] = rows(3, 5);
    covers[2] = rows(3, 5);
    Record {
        stripe: StripeNo::new(stripe),
        rows: rows(2, 6),
        covers,
        doubtful: false,
    }
}

/// Member 3 has parity of stripes 0, 4, 8, ...
const HOLDER: Slot = match Slot::new(3) {
    Some(slot) => slot,
    None => Slot::FIRST,
};

/// A log of a mark and three writes; the data columns hold 1, 2 and 4, and partial parity 0x10 for
/// stripe 0, 0x20 for 4, 0x30 for 8.
fn written_rig() -> Rig {
    let mut rig = Rig::new(16, 6);
    rig.put(HOLDER, stamp(1, 1, 0), Entry::Mark, 0);
    rig.put(HOLDER, stamp(2, 2, 1), Entry::Write(record(0)), 0x10);
    rig.put(HOLDER, stamp(3, 2, 2), Entry::Write(record(4)), 0x20);
    rig.put(HOLDER, stamp(4, 2, 3), Entry::Write(record(8)), 0x30);
    for (slot, value) in (0..3).zip([1, 2, 4]) {
        let slot = Slot::new(slot).unwrap();
        let len = rig.geometry.component().get();
        let data = rig.data;
        rig.bytes(slot, data, len).fill(value);
    }
    rig
}

/// Parity of the rows of a stripe.
fn parity(rig: &mut Rig, stripe: u64) -> Vec<u8> {
    let at = rig.data + stripe * 16;
    let rows = 0..16;
    rows.map(|row| rig.bytes(HOLDER, at + row, 1)[0]).collect()
}

#[test]
fn parity_is_partial_parity_and_what_was_written() {
    let mut rig = written_rig();
    let replayed = rig.replay(HOLDER).unwrap();
    assert_eq!(
        replayed,
        Replayed {
            written: 12,
            left: 0
        }
    );
    for (stripe, partial) in [(0, 0x10), (4, 0x20), (8, 0x30)] {
        let expected = [0, 0, partial ^ 1, 7, 7, partial ^ 1, 0, 0];
        assert_eq!(parity(&mut rig, stripe)[..8], expected);
    }
    assert!(rig.doubted.is_empty());
}

/// Of each row the newest record counts, also when it cannot be applied.
#[test]
fn the_newest_record_counts() {
    let mut rig = written_rig();
    let mut newer = record(0);
    newer.rows = rows(4, 8);
    newer.covers[..3].copy_from_slice(&[Rows::NONE, rows(5, 8), Rows::NONE]);
    rig.put(HOLDER, stamp(5, 2, 4), Entry::Write(newer), 0x40);
    rig.replay(HOLDER).unwrap();
    let expected = [0, 0, 0x11, 7, 0x40, 0x42, 0x42, 0x42, 0];
    assert_eq!(parity(&mut rig, 0)[..9], expected);
    // Column 1 is gone: what it was written in is left as it is.
    let mut rig = written_rig();
    rig.put(HOLDER, stamp(5, 2, 4), Entry::Write(newer), 0x40);
    rig.usable
        .remove(rig.geometry.slot_of_data(StripeNo::ZERO, 1));
    let replayed = rig.replay(HOLDER).unwrap();
    assert_eq!(replayed.left, 3 + 1 + 2 + 2);
    let expected = [0, 0, 0x11, 0, 0x40, 0, 0, 0, 0];
    assert_eq!(parity(&mut rig, 0)[..9], expected);
}

#[test]
fn what_is_over_is_left_alone() {
    let mut rig = written_rig();
    rig.put(HOLDER, stamp(5, 4, 4), Entry::Mark, 0);
    assert_eq!(rig.replay(HOLDER).unwrap().written, 4);
    assert_eq!(parity(&mut rig, 4), [0; 16]);
    // An older log says nothing, whatever its numbers.
    let mut rig = written_rig();
    let mut of_newer = stamp(1, 1, 0);
    of_newer.generation = Generation::new(4);
    rig.put(HOLDER, of_newer, Entry::Mark, 0);
    assert_eq!(rig.replay(HOLDER).unwrap().written, 12);
    let mut rig = Rig::new(16, 6);
    let mut older = stamp(8, 1, 7);
    older.generation = Generation::new(4);
    rig.put(HOLDER, older, Entry::Write(record(0)), 0x10);
    rig.put(HOLDER, stamp(1, 1, 0), Entry::Mark, 0);
    assert_eq!(rig.replay(HOLDER), Ok(Replayed::default()));
    // Parity that is not current is recovered from the data.
    let mut rig = written_rig();
    rig.usable.remove(HOLDER);
    assert_eq!(rig.replay(HOLDER), Ok(Replayed::default()));
}

#[test]
fn torn_is_not_lost() {
    let damage = |sequence: u64, byte: usize| {
        let mut rig = written_rig();
        let cell = rig.layout.cell_of(Sequence::new(sequence));
        let at = rig.layout.header(cell).get();
        rig.bytes(HOLDER, at, 16)[byte] ^= 1;
        rig.replay(HOLDER).map(|replayed| replayed.written)
    };
    // The last one, header or partial parity, may be torn: its write was not issued.
    for byte in [20, 200, 4096, 4096 + 1023] {
        assert_eq!(damage(4, byte), Ok(8), "byte {byte}");
        assert_eq!(damage(3, byte), Err(LogError::Damaged), "byte {byte}");
        assert_eq!(damage(2, byte), Err(LogError::Damaged), "byte {byte}");
    }
    // Behind the partial parity is nothing.
    assert_eq!(damage(3, 4096 + 1024), Ok(12));
    // Before the oldest one nothing is needed.
    assert_eq!(damage(1, 200), Ok(12));
    // What cannot be read may be anything.
    let mut rig = written_rig();
    rig.unreadable = Some((HOLDER, rig.layout.header(5).get()));
    assert_eq!(rig.replay(HOLDER), Err(LogError::Damaged));
}

#[test]
fn logs_that_cannot_be_are_damaged() {
    // Never begun.
    let mut rig = Rig::new(16, 6);
    assert_eq!(rig.replay(HOLDER), Err(LogError::Damaged));
    // From the future.
    let mut rig = written_rig();
    let mut future = stamp(5, 5, 4);
    future.generation = Generation::new(6);
    rig.put(HOLDER, future, Entry::Mark, 0);
    assert_eq!(rig.replay(HOLDER), Err(LogError::Damaged));
    // Sealed, and impossible.
    let mut rig = written_rig();
    let at = rig.layout.header(4).get();
    let mut page: Page = rig.bytes(HOLDER, at, 8).try_into().unwrap();
    assert_eq!(number(&page, 88, 8), 8);
    set_number(&mut page, 88, 8, 9);
    reseal(&mut page);
    rig.bytes(HOLDER, at, 8).copy_from_slice(&page);
    assert_eq!(rig.replay(HOLDER), Err(LogError::Damaged));
}

#[test]
fn doubt_is_passed_on() {
    let mut rig = written_rig();
    let mut doubtful = record(8);
    doubtful.doubtful = true;
    rig.put(HOLDER, stamp(5, 2, 4), Entry::Write(doubtful), 0);
    assert_eq!(rig.replay(HOLDER).unwrap().written, 8);
    rig.doubted.dedup();
    assert_eq!(rig.doubted, [8]);
    // A block that cannot be read leaves its stripe in doubt, and no other.
    let mut rig = written_rig();
    let slot = rig.geometry.slot_of_data(StripeNo::new(4), 0);
    rig.unreadable = Some((slot, rig.data + 4 * 16 + 2));
    rig.replay(HOLDER).unwrap();
    rig.doubted.dedup();
    assert_eq!(rig.doubted, [4]);
    assert_eq!(parity(&mut rig, 4)[2], 0);
    assert_eq!(parity(&mut rig, 8)[2], 0x31);
}

/// Rows in which every column is written may be more than a cell has room for.
#[test]
fn full_writes_are_restored_in_parts() {
    let mut rig = Rig::new(1024, 4);
    let mut covers = [Rows::NONE; COLUMNS_MAX];
    covers[..3].fill(rows(0, 1000));
    let full = Record {
        stripe: StripeNo::ZERO,
        rows: rows(0, 1000),
        covers,
        doubtful: false,
    };
    rig.put(HOLDER, stamp(1, 1, 0), Entry::Mark, 0);
    rig.put(HOLDER, stamp(2, 2, 1), Entry::Write(full), 0);
    for column in 0..3 {
        let slot = rig.geometry.slot_of_data(StripeNo::ZERO, column);
        let data = rig.data;
        let bytes = rig.bytes(slot, data, 1024);
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = ((index / 512 % 251) as u8).wrapping_mul(column + 1);
        }
    }
    assert_eq!(rig.replay(HOLDER).unwrap().written, 1000);
    for row in 0..1024u64 {
        let base = (row % 251) as u8;
        let sum = base ^ base.wrapping_mul(2) ^ base.wrapping_mul(3);
        let expected = if row < 1000 { sum } else { 0 };
        let at = rig.data + row;
        assert_eq!(rig.bytes(HOLDER, at, 1), [expected; 512]);
    }
}

/// What every replay satisfies, whatever the log says: it writes parity, on its own member, in the
/// array.
fn assert_sane_replay(rig: &Rig, holder: Slot) {
    for (slot, at, sectors) in &rig.written {
        assert_eq!(*slot, holder);
        let first = at.checked_sub(rig.data).expect("in front of the data");
        assert!(first + sectors <= rig.geometry.component().get());
        for sector in first..first + sectors {
            let stripe = rig.geometry.stripe_at(Sector::new(sector));
            assert_eq!(rig.geometry.p_slot(stripe), Some(holder));
        }
    }
}

#[test]
fn hostile_logs_write_parity_or_nothing() {
    let mut rng = Rng::for_test("hostile logs");
    let (mut replayed, mut damaged, mut written) = (0, 0, 0);
    let mut rig = written_rig();
    let fresh = rig.disks.clone();
    for _ in 0..images(LOGS) {
        rig.disks[HOLDER.index()].copy_from_slice(&fresh[HOLDER.index()]);
        rig.usable = SlotSet::first_n(4);
        rig.written.clear();
        rig.doubted.clear();
        for _ in 0..rng.between(1, 4) {
            let cell = rng.below(6) as u32;
            let at = rig.layout.header(cell).get();
            let mut page: Page = rig.bytes(HOLDER, at, 8).try_into().unwrap();
            for _ in 0..rng.between(0, 2) {
                // The numbers of the header, and the covers that there are.
                let at = rng.pick(&[32, 40, 44, 64, 72, 80, 88, 96, 100, 104, 108, 112, 116, 128]);
                let old = number(&page, at, 4);
                let value = match rng.below(4) {
                    0 => rng.below(20),
                    1 => old.wrapping_add(1),
                    2 => old.wrapping_sub(1),
                    _ => rng.next(),
                };
                set_number(&mut page, at, 4, value);
            }
            reseal(&mut page);
            // Also where it does not belong.
            let to = if rng.once_in(8) {
                rng.below(6) as u32
            } else {
                cell
            };
            let at = rig.layout.header(to).get();
            rig.bytes(HOLDER, at, 8).copy_from_slice(&page);
        }
        if rng.once_in(3) {
            rig.usable.remove(Slot::new(rng.below(3) as u8).unwrap());
        }
        match rig.replay(HOLDER) {
            Ok(_) => replayed += 1,
            Err(_) => damaged += 1,
        }
        written += rig.written.len();
        assert_sane_replay(&rig, HOLDER);
    }
    for (disk, before) in rig.disks.iter().zip(&fresh).take(HOLDER.index()) {
        assert!(disk == before);
    }
    println!("{replayed} logs replayed, {damaged} damaged, {written} writes of parity");
    assert!(replayed * 10 > damaged && damaged * 10 > replayed && written > replayed);
}
