// SPDX-License-Identifier: GPL-2.0

//! The partial parity log at work: a RAID-5 in memory on disks with volatile caches that loses power
//! and members at any command, and then still has what was flushed and what was never written to.
//!
//! A disk keeps every version of a sector of 512 bytes since its last flush, and a power cut leaves any
//! of them, of each sector on each disk independently: torn, reordered, half a command of one disk
//! and none of another. A flush covers only what was complete when it was sent.

mod common;

use common::Rng;
use eraid_core::batch::Batch;
use eraid_core::crc32c::reference;
use eraid_core::geometry::{Band, Geometry, Level, Rows};
use eraid_core::layout::Area;
use eraid_core::metapage::PAGE_SIZE;
use eraid_core::plan_read::View;
use eraid_core::plan_write::{plan_write, Conditions, WriteKind, WritePlan};
use eraid_core::ppl::{payload_crc, Entry, Header, LogId, LogLayout, Record, Stamp};
use eraid_core::ppl_replay::{scan, Failed, Found, LogError, Members, Replayed, Scratch};
use eraid_core::ppl_ring::{Live, Ring, Wait};
use eraid_core::regionmap::{Init, Region};
use eraid_core::units::{Generation, Sector, Sectors, Sequence, Slot, SlotSet, StripeNo, Uuid};
use std::collections::BTreeMap;

/// Histories that are played, each with several power cuts.
const HISTORIES: u64 = 800;

const STRIPES: u64 = 9;
const ARRAY: Uuid = Uuid::new(*b"the array itself");

type Block = [u8; 512];

fn xor(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len());
    into.iter_mut().zip(from).for_each(|(a, b)| *a ^= b);
}

/// A sector of a disk.
#[derive(Clone)]
struct Place {
    durable: Block,
    /// What was sent since, oldest first; each has a number.
    cached: Vec<(u64, Block)>,
    /// The last one that was answered.
    answered: u64,
}

impl Place {
    fn settle(&mut self, upto: u64) {
        while self.cached.first().is_some_and(|(id, _)| *id <= upto) {
            self.durable = self.cached.remove(0).1;
        }
    }

    fn latest(&self) -> Block {
        self.cached.last().map_or(self.durable, |(_, block)| *block)
    }
}

/// A disk with a volatile cache.
struct Disk(Vec<Place>);

impl Disk {
    fn read(&self, at: u64, to: &mut [u8]) {
        for (place, block) in self.0[at as usize..].iter().zip(to.chunks_exact_mut(512)) {
            block.copy_from_slice(&place.latest());
        }
    }

    /// Sends a write; it lands whenever, in any part.
    fn send(&mut self, at: u64, bytes: &[u8], id: u64) {
        for (place, block) in self.0[at as usize..]
            .iter_mut()
            .zip(bytes.chunks_exact(512))
        {
            place.cached.push((id, block.try_into().unwrap()));
        }
    }

    /// Answers it.
    fn answer(&mut self, at: u64, sectors: u64, id: u64, fua: bool) {
        for place in &mut self.0[at as usize..(at + sectors) as usize] {
            place.answered = place.answered.max(id);
            if fua {
                place.settle(id);
            }
        }
    }

    fn answered(&self) -> Vec<u64> {
        self.0.iter().map(|place| place.answered).collect()
    }

    fn flushed(&mut self, answered: &[u64]) {
        let places = self.0.iter_mut().zip(answered);
        places.for_each(|(place, id)| place.settle(*id));
    }

    fn lose_power(&mut self, rng: &mut Rng) {
        for place in &mut self.0 {
            let pick = rng.below(place.cached.len() as u64 + 1) as usize;
            if pick > 0 {
                place.durable = place.cached[pick - 1].1;
            }
            place.cached.clear();
        }
    }
}

/// A command of a write.
struct Command {
    slot: Slot,
    at: u64,
    bytes: Vec<u8>,
    /// Its number once it was sent.
    sent: Option<u64>,
}

enum Stage {
    /// Has its stripe, and looks what to do.
    Ready,
    /// Its record is in the log of this member.
    Logged(Slot, Sequence),
    /// Its commands are under way.
    Sent(Option<(Slot, Sequence)>),
}

/// A write of an array.
struct Op {
    number: u64,
    stripe: StripeNo,
    batch: Batch<Vec<Rows>>,
    fua: bool,
    stage: Stage,
    commands: Vec<Command>,
}

/// A flush of all members.
struct Flush {
    began: u64,
    tickets: Vec<u64>,
    /// What each disk had answered, until it ends there.
    pending: BTreeMap<usize, Vec<u64>>,
}

/// What a sector of the array may hold: first what it holds for sure, unless it was written to
/// since.
#[derive(Clone)]
struct Version {
    op: u64,
    value: Option<Block>,
    done: Option<u64>,
    /// Its member was away, so that it is in parity alone.
    away: bool,
}

/// Entries of a log that are appended, with their partial parity.
type Pending = BTreeMap<u64, (Entry, Vec<u8>)>;

/// A write of a log: the number of its commands, where they go and how long they are.
struct LogWrite {
    id: u64,
    places: Vec<(u64, u64)>,
}

struct World {
    rng: Rng,
    geometry: Geometry,
    layout: LogLayout,
    data: u64,
    region: Region,
    disks: Vec<Disk>,
    absent: SlotSet,
    generation: u64,
    rings: Vec<Ring<Vec<Live>>>,
    pending: Vec<Pending>,
    /// Log writes on their way, by slot.
    writing: Vec<Option<LogWrite>>,
    ops: Vec<Op>,
    flush: Option<Flush>,
    /// By stripe, column, row.
    truth: Vec<Vec<Vec<Vec<Version>>>>,
    /// Numbers of commands and points of time.
    clock: u64,
    /// Writes to the members that a replay still gets through.
    replay_writes: Option<u64>,
    doubts: u64,
    tally: Tally,
}

/// What was met.
#[derive(Default)]
struct Tally {
    cuts: u64,
    removed: u64,
    written: u64,
    left: u64,
    torn_replays: u64,
    records: u64,
    kinds: BTreeMap<&'static str, u64>,
    undefined: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng::with_seed(seed);
        let members = rng.between(3, 6) as u8;
        let chunk = rng.pick(&[8u64, 16]);
        let component = Sectors::new(chunk * STRIPES);
        let geometry = Geometry::new(Level::Raid5, members, Sectors::new(chunk), component);
        let geometry = geometry.unwrap();
        let cells = rng.pick(&[3, 3, 4, 4, 5, 7]);
        let area = Area {
            start: Sector::new(8),
            len: Sectors::new(cells * (8 + chunk)),
        };
        let layout = LogLayout::new(&geometry, area).unwrap();
        assert_eq!(u64::from(layout.cells()), cells);
        let data = 8 + area.len.get();
        let full = rng.once_in(2);
        let columns = usize::from(geometry.data_columns());
        let version = Version {
            op: 0,
            value: None,
            done: Some(0),
            away: false,
        };
        let rows = vec![vec![version]; chunk as usize];
        let mut world = World {
            geometry,
            layout,
            data,
            region: Region {
                init: if full { Init::Full } else { Init::Partial },
                in_flight: true,
                need_sync: false,
                stale: SlotSet::EMPTY,
            },
            disks: Vec::new(),
            absent: SlotSet::EMPTY,
            generation: 1,
            rings: Vec::new(),
            pending: vec![Pending::new(); usize::from(members)],
            writing: (0..members).map(|_| None).collect(),
            ops: Vec::new(),
            flush: None,
            truth: vec![vec![rows; columns]; STRIPES as usize],
            clock: 0,
            replay_writes: None,
            doubts: 0,
            tally: Tally::default(),
            rng,
        };
        for _ in 0..members {
            let place = |rng: &mut Rng| Place {
                durable: block(rng.next()),
                cached: Vec::new(),
                answered: 0,
            };
            let len = data + component.get();
            let places = (0..len).map(|_| place(&mut world.rng)).collect();
            world.disks.push(Disk(places));
        }
        if full {
            world.fill();
        }
        world.open_logs();
        world
    }

    /// Makes all parity right, and what lies there what is expected.
    fn fill(&mut self) {
        for stripe in 0..STRIPES {
            for row in 0..self.geometry.chunk() {
                let number = StripeNo::new(stripe);
                let mut parity = [0; 512];
                for column in 0..self.geometry.data_columns() {
                    let value =
                        self.sector(self.geometry.slot_of_data(number, column), stripe, row);
                    xor(&mut parity, &value);
                    let versions = self.versions(stripe, column, row);
                    versions[0].value = Some(value);
                }
                let slot = self.geometry.p_slot(number).unwrap();
                let at = self.position(stripe, row) as usize;
                self.disks[slot.index()].0[at].durable = parity;
            }
        }
    }

    fn now(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn position(&self, stripe: u64, row: u32) -> u64 {
        let sector = self.geometry.member_sector(StripeNo::new(stripe), row);
        self.data + sector.get()
    }

    fn sector(&self, slot: Slot, stripe: u64, row: u32) -> Block {
        let mut block = [0; 512];
        self.disks[slot.index()].read(self.position(stripe, row), &mut block);
        block
    }

    fn versions(&mut self, stripe: u64, column: u8, row: u32) -> &mut Vec<Version> {
        &mut self.truth[stripe as usize][usize::from(column)][row as usize]
    }

    fn present(&self) -> SlotSet {
        self.geometry.all_slots().minus(self.absent)
    }

    fn log_id(&self, holder: Slot) -> LogId<'static> {
        // The geometry lives as long as the process does: a few bytes for each history.
        LogId {
            array: ARRAY,
            geometry: Box::leak(Box::new(self.geometry)),
            layout: self.layout,
            holder,
        }
    }

    // --- writes ---------------------------------------------------------------

    /// A new write, to a stripe that is not in use.
    fn start(&mut self) {
        // Half of the time one with parity on the same member, whose log thus fills up.
        let hot = usize::from(self.geometry.members());
        let stripes: Vec<u64> = match self.rng.once_in(2) {
            true => (0..STRIPES).step_by(hot).collect(),
            false => (0..STRIPES).collect(),
        };
        let stripe = self.rng.pick(&stripes);
        let busy = self.ops.iter().any(|op| op.stripe.get() == stripe);
        // A rebuild needs a pause.
        let pause = !self.absent.is_empty() && self.clock % 400 > 250;
        if busy || pause || self.ops.len() >= 4 {
            return;
        }
        let columns = u64::from(self.geometry.data_columns());
        let chunk = u64::from(self.geometry.chunk());
        let mut batch = Batch::new(vec![Rows::NONE; columns as usize]);
        let whole = self.rng.once_in(6);
        for _ in 0..self.rng.between(1, 3) {
            let first = if whole { 0 } else { self.rng.below(columns) };
            let last = if whole {
                columns - 1
            } else {
                self.rng.between(first, columns - 1)
            };
            let lo = self.rng.below(chunk) as u32;
            let hi = lo + 1 + self.rng.below(chunk - u64::from(lo)) as u32;
            let band = Band {
                stripe: StripeNo::new(stripe),
                rows: Rows { lo, hi },
                first: first as u8,
                last: last as u8,
            };
            batch.join(&band, self.geometry.chunk());
        }
        let number = self.now();
        let fua = self.rng.once_in(3);
        self.ops.push(Op {
            number,
            stripe: StripeNo::new(stripe),
            batch,
            fua,
            stage: Stage::Ready,
            commands: Vec::new(),
        });
    }

    /// Plans an operation, and appends its record where it has one.
    fn plan(&mut self, op: &mut Op) {
        let avoid = match self.rng.once_in(4) {
            true => SlotSet::from_bits(self.rng.next()),
            false => SlotSet::EMPTY,
        };
        let given = Conditions {
            view: View {
                usable: self.present(),
                avoid,
                bad: SlotSet::EMPTY,
                region: self.region,
            },
            at_hand: SlotSet::EMPTY,
            can_modify: !self.rng.once_in(4),
        };
        let plan = match plan_write(&self.geometry, &op.batch, &given) {
            Ok(plan) => plan,
            Err(_) => plan_write(
                &self.geometry,
                &op.batch,
                &Conditions {
                    can_modify: true,
                    ..given
                },
            )
            .expect("one member at most is away"),
        };
        let record = Record::of_plan(&self.geometry, &op.batch, &plan, false);
        let Some(record) = record else {
            return self.send_all(op, &plan, None);
        };
        let holder = self.geometry.p_slot(op.stripe).unwrap();
        let ring = &mut self.rings[holder.index()];
        if ring.is_open(record.stripe, record.rows) {
            return self.begin_flush();
        }
        match ring.append(record.stripe, record.rows) {
            Ok(sequence) => {
                self.send_all(op, &plan, Some((&record, holder, sequence)));
            }
            Err(Wait::Mark) => {
                let next = self.pending[holder.index()].len();
                assert_eq!(next, 0, "a mark is asked for while entries wait");
                assert!(ring.append_mark());
                self.note_mark(holder);
            }
            Err(Wait::Flush) => self.begin_flush(),
            Err(Wait::Write) => {}
        }
    }

    fn note_mark(&mut self, holder: Slot) {
        self.pending[holder.index()].insert(u64::MAX, (Entry::Mark, Vec::new()));
    }

    /// Makes the commands of an operation, and the partial parity of its record.
    fn send_all(
        &mut self,
        op: &mut Op,
        plan: &WritePlan,
        record: Option<(&Record, Slot, Sequence)>,
    ) {
        *self.tally.kinds.entry(plan.kind.as_str()).or_default() += 1;
        let stripe = op.stripe.get();
        let columns = self.geometry.data_columns();
        let hull = op.batch.hull();
        let mut parity = Vec::new();
        let mut payload = Vec::new();
        let mut new: BTreeMap<(u8, u32), Block> = BTreeMap::new();
        for row in hull.lo..hull.hi {
            for column in 0..columns {
                let cover = op.batch.cover(column);
                if (cover.lo..cover.hi).contains(&row) {
                    new.insert((column, row), block(self.rng.next()));
                }
            }
            let of_row: Vec<Option<Block>> = (0..columns)
                .map(|column| new.get(&(column, row)).copied())
                .collect();
            let p = self.new_parity(op, plan, row, &of_row);
            parity.extend(p);
            if let Some((record, _, _)) = record {
                // New parity without the new data that is written.
                if record.partial_row(&self.geometry, row).is_some() {
                    let mut partial = p;
                    for (column, value) in of_row.iter().enumerate() {
                        let cover = record.covers[column];
                        if (cover.lo..cover.hi).contains(&row) {
                            xor(&mut partial, &value.unwrap());
                        }
                    }
                    payload.extend(partial);
                }
            }
        }
        for ((column, row), value) in &new {
            let version = Version {
                op: op.number,
                value: Some(*value),
                done: None,
                away: self
                    .absent
                    .contains(self.geometry.slot_of_data(op.stripe, *column)),
            };
            self.versions(stripe, *column, *row).push(version);
        }
        for column in 0..columns {
            let slot = self.geometry.slot_of_data(op.stripe, column);
            let cover = op.batch.cover(column);
            if plan.write.contains(slot) && !cover.is_empty() {
                let rows = cover.lo..cover.hi;
                let bytes = rows.flat_map(|row| new[&(column, row)]).collect();
                self.command(op, slot, cover.lo, bytes);
            }
        }
        let holder = self.geometry.p_slot(op.stripe).unwrap();
        if plan.write.contains(holder) {
            self.command(op, holder, hull.lo, parity);
        }
        op.stage = match record {
            Some((record, holder, sequence)) => {
                self.tally.records += 1;
                let entry = (Entry::Write(*record), payload);
                self.pending[holder.index()].insert(sequence.get(), entry);
                Stage::Logged(holder, sequence)
            }
            None => Stage::Sent(None),
        };
    }

    fn command(&mut self, op: &mut Op, slot: Slot, row: u32, bytes: Vec<u8>) {
        // Cut somewhere, as a device may be sent a part at a time.
        let at = self.position(op.stripe.get(), row);
        let cut = self.rng.below(bytes.len() as u64 / 512) as usize * 512;
        for (from, part) in [(0, &bytes[..cut]), (cut, &bytes[cut..])] {
            if !part.is_empty() {
                op.commands.push(Command {
                    slot,
                    at: at + from as u64 / 512,
                    bytes: part.to_vec(),
                    sent: None,
                });
            }
        }
    }

    /// Parity of a row, from what the plan reads and the new data alone.
    fn new_parity(&self, op: &Op, plan: &WritePlan, row: u32, new: &[Option<Block>]) -> Block {
        let stripe = op.stripe.get();
        let old = |slot: Slot| {
            assert!(
                plan.old.contains(slot),
                "{plan:?} does not read slot {slot}"
            );
            self.sector(slot, stripe, row)
        };
        let slot_of = |column: usize| self.geometry.slot_of_data(op.stripe, column as u8);
        let p_slot = self.geometry.p_slot(op.stripe).unwrap();
        let core = op.batch.core();
        let in_core = (core.lo..core.hi).contains(&row);
        let mut parity = [0; 512];
        if plan.kind == WriteKind::Modify && !in_core {
            parity = old(p_slot);
            for (column, new) in new.iter().enumerate() {
                if let Some(new) = new {
                    xor(&mut parity, &old(slot_of(column)));
                    xor(&mut parity, new);
                }
            }
            return parity;
        }
        if plan.kind == WriteKind::DataOnly {
            return parity;
        }
        for (column, new) in new.iter().enumerate() {
            let slot = slot_of(column);
            let value = match new {
                Some(new) => *new,
                None if plan.decode.contains(slot) => {
                    let others = self.geometry.all_slots().without(slot);
                    let mut value = [0; 512];
                    others.iter().for_each(|other| xor(&mut value, &old(other)));
                    value
                }
                None => old(slot),
            };
            xor(&mut parity, &value);
        }
        parity
    }

    /// Brings an operation on.
    fn step(&mut self) {
        if self.ops.is_empty() {
            return;
        }
        let index = self.rng.below(self.ops.len() as u64) as usize;
        let mut op = self.ops.swap_remove(index);
        match op.stage {
            Stage::Ready => self.plan(&mut op),
            Stage::Logged(holder, sequence) => {
                if self.rings[holder.index()].is_durable(sequence) {
                    op.stage = Stage::Sent(Some((holder, sequence)));
                }
            }
            Stage::Sent(record) => {
                if self.command_step(&mut op) {
                    return self.end(&op, record);
                }
            }
        }
        self.ops.push(op);
    }

    /// Sends or answers one of the commands; `true` when all are answered.
    fn command_step(&mut self, op: &mut Op) -> bool {
        if !op.commands.is_empty() {
            let index = self.rng.below(op.commands.len() as u64) as usize;
            let id = self.now();
            let command = &mut op.commands[index];
            let disk = &mut self.disks[command.slot.index()];
            match command.sent {
                None => {
                    disk.send(command.at, &command.bytes, id);
                    command.sent = Some(id);
                }
                Some(id) => {
                    disk.answer(command.at, command.bytes.len() as u64 / 512, id, op.fua);
                    op.commands.swap_remove(index);
                }
            }
        }
        op.commands.is_empty()
    }

    /// An operation is done, and acknowledged.
    fn end(&mut self, op: &Op, record: Option<(Slot, Sequence)>) {
        let now = self.now();
        if let Some((holder, sequence)) =
            record.filter(|(holder, _)| !self.absent.contains(*holder))
        {
            self.rings[holder.index()].done(sequence, op.fua);
        }
        for versions in self.truth[op.stripe.get() as usize].iter_mut().flatten() {
            for version in versions
                .iter_mut()
                .filter(|version| version.op == op.number)
            {
                version.done = Some(now);
            }
            if op.fua && versions.iter().any(|version| version.op == op.number) {
                keep_from(versions, |version| version.op == op.number);
            }
        }
    }

    // --- the logs ---------------------------------------------------------------

    /// Begins or ends a write of a log.
    fn log_step(&mut self) {
        let slots: Vec<Slot> = self.present().iter().collect();
        let slot = self.rng.pick(&slots);
        let index = slot.index();
        if let Some(LogWrite { id, places }) = self.writing[index].take() {
            for (at, sectors) in places {
                self.disks[index].answer(at, sectors, id, true);
            }
            self.rings[index].written();
            return;
        }
        let Some(writing) = self.rings[index].begin_write() else {
            return;
        };
        let stamps: Vec<Stamp> = writing.stamps().collect();
        let id = self.now();
        let mut places = Vec::new();
        for stamp in stamps {
            let (entry, payload) = self.take_pending(index, stamp.sequence);
            places.extend(self.write_entry(slot, &stamp, &entry, &payload, id));
        }
        self.writing[index] = Some(LogWrite { id, places });
    }

    fn take_pending(&mut self, index: usize, sequence: Sequence) -> (Entry, Vec<u8>) {
        let pending = &mut self.pending[index];
        let entry = pending.remove(&sequence.get());
        entry.unwrap_or_else(|| pending.remove(&u64::MAX).expect("an entry without content"))
    }

    /// Sends an entry to its cell.
    fn write_entry(
        &mut self,
        slot: Slot,
        stamp: &Stamp,
        entry: &Entry,
        payload: &[u8],
        id: u64,
    ) -> Vec<(u64, u64)> {
        let mut page = [0; PAGE_SIZE];
        let header = Header {
            stamp: *stamp,
            entry: *entry,
            payload_crc: payload_crc(reference, [payload]),
        };
        header.encode(&mut page, reference, &self.log_id(slot));
        let cell = self.layout.cell_of(stamp.sequence);
        let (header, body) = (self.layout.header(cell), self.layout.payload(cell));
        let disk = &mut self.disks[slot.index()];
        disk.send(header.get(), &page, id);
        disk.send(body.get(), payload, id);
        vec![(header.get(), 8), (body.get(), payload.len() as u64 / 512)]
    }

    /// Begins a log anew; `false` when the power fails before that is durable.
    fn open_log(&mut self, slot: Slot, survives: bool) -> bool {
        let cells = self.layout.cells() as usize;
        let storage = vec![Live::OVER; cells];
        let generation = Generation::new(self.generation);
        let mut ring = Ring::open(self.layout, generation, storage);
        let stamp = ring.begin_write().unwrap().stamps().next().unwrap();
        let id = self.now();
        let places = self.write_entry(slot, &stamp, &Entry::Mark, &[], id);
        if !survives {
            return false;
        }
        for (at, sectors) in places {
            self.disks[slot.index()].answer(at, sectors, id, true);
        }
        ring.written();
        match self.rings.get_mut(slot.index()) {
            Some(old) => *old = ring,
            None => self.rings.push(ring),
        }
        true
    }

    fn open_logs(&mut self) {
        self.generation += 1;
        for slot in self.geometry.all_slots() {
            assert!(self.open_log(slot, true));
        }
    }

    // --- flushes ------------------------------------------------------------------

    fn begin_flush(&mut self) {
        if self.flush.is_some() {
            return;
        }
        let began = self.now();
        let tickets = self.rings.iter_mut().map(Ring::begin_flush).collect();
        let present = self.present();
        let disks = (0..).zip(&self.disks);
        let pending = disks.filter(|(slot, _)| present.contains(Slot::new(*slot as u8).unwrap()));
        self.flush = Some(Flush {
            began,
            tickets,
            pending: pending
                .map(|(slot, disk)| (slot, disk.answered()))
                .collect(),
        });
    }

    /// A disk ends a flush.
    fn flush_step(&mut self) {
        let Some(flush) = &mut self.flush else {
            return;
        };
        let slots: Vec<usize> = flush.pending.keys().copied().collect();
        if !slots.is_empty() {
            let slot = self.rng.pick(&slots);
            let answered = flush.pending.remove(&slot).unwrap();
            self.disks[slot].flushed(&answered);
        }
        if !flush.pending.is_empty() {
            return;
        }
        for (ring, ticket) in self.rings.iter_mut().zip(&flush.tickets) {
            ring.flushed(*ticket);
        }
        let began = flush.began;
        for versions in self.truth.iter_mut().flatten().flatten() {
            let durable = |version: &Version| version.done.is_some_and(|done| done < began);
            keep_from(versions, durable);
        }
        self.flush = None;
    }

    // --- members -------------------------------------------------------------------

    /// A member fails: what it still owes is missed.
    fn fail(&mut self) {
        if !self.absent.is_empty() {
            return;
        }
        let slot = Slot::new(self.rng.below(u64::from(self.geometry.members())) as u8).unwrap();
        self.absent.insert(slot);
        self.writing[slot.index()] = None;
        self.pending[slot.index()].clear();
        if let Some(flush) = &mut self.flush {
            flush.pending.remove(&slot.index());
        }
        for op in &mut self.ops {
            op.commands.retain(|command| command.slot != slot);
            match op.stage {
                Stage::Logged(holder, _) | Stage::Sent(Some((holder, _))) if holder == slot => {
                    op.stage = Stage::Sent(None);
                }
                _ => {}
            }
        }
    }

    /// The member that was away is rebuilt, unless the power fails meanwhile.
    fn rebuild(&mut self) {
        let Some(slot) = self.absent.first().filter(|_| self.ops.is_empty()) else {
            return;
        };
        self.generation += 1;
        let survives = !self.rng.once_in(8);
        if !self.open_log(slot, survives) {
            return self.lose_power();
        }
        for stripe in 0..STRIPES {
            for row in 0..self.geometry.chunk() {
                let mut value = [0; 512];
                for other in self.present() {
                    xor(&mut value, &self.sector(other, stripe, row));
                }
                let id = self.now();
                let at = self.position(stripe, row);
                self.disks[slot.index()].send(at, &value, id);
                self.disks[slot.index()].answer(at, 1, id, false);
            }
        }
        if self.rng.once_in(8) {
            return self.lose_power();
        }
        // All are: what was written while there was no parity is in no record.
        for disk in &mut self.disks {
            let answered = disk.answered();
            disk.flushed(&answered);
        }
        self.absent.remove(slot);
        // Its commands were none of an earlier flush.
        self.flush = None;
    }

    // --- power --------------------------------------------------------------------

    /// The power fails; afterwards all members are there, or all but one.
    fn lose_power(&mut self) {
        self.tally.cuts += 1;
        self.cut();
        if self.absent.is_empty() && self.rng.once_in(2) {
            let slot = self.rng.below(u64::from(self.geometry.members())) as u8;
            self.absent.insert(Slot::new(slot).unwrap());
            self.tally.removed += 1;
        }
        // Some replays are cut short by the next power cut, and so are some new logs.
        loop {
            self.replay_writes = self.rng.once_in(3).then(|| self.rng.below(20));
            let replayed = self.replay();
            if self.replay_writes.take() == Some(0) {
                self.tally.torn_replays += 1;
                self.cut();
                continue;
            }
            let replayed = replayed.expect("the log is whole");
            self.tally.written += replayed.written;
            self.tally.left += replayed.left;
            for slot in self.present() {
                let answered = self.disks[slot.index()].answered();
                self.disks[slot.index()].flushed(&answered);
            }
            self.generation += 1;
            let mut opened = true;
            for slot in self.present() {
                let survives = !self.rng.once_in(20);
                opened = opened && self.open_log(slot, survives);
            }
            if opened {
                break;
            }
            self.cut();
        }
        assert_eq!(self.doubts, 0, "nothing was in doubt");
        self.observe();
    }

    /// All that was under way is gone, and what the disks had not made durable is as they please.
    fn cut(&mut self) {
        self.ops.clear();
        self.flush = None;
        self.writing.iter_mut().for_each(|writing| *writing = None);
        self.pending.iter_mut().for_each(Pending::clear);
        for disk in &mut self.disks {
            disk.lose_power(&mut self.rng);
        }
    }

    fn replay(&mut self) -> Result<Replayed, LogError> {
        let mut sum = Replayed::default();
        let bytes = self.layout.payload_rows() as usize * 512;
        let (mut page, mut payload) = ([0; PAGE_SIZE], vec![0; bytes]);
        let (mut parity, mut data) = (vec![0; bytes], vec![0; bytes]);
        for holder in self.present() {
            let id = self.log_id(holder);
            let mut scratch = Scratch {
                page: &mut page,
                payload: &mut payload,
                parity: &mut parity,
                data: &mut data,
            };
            let storage = vec![Found::NONE; self.layout.cells() as usize];
            let limit = Generation::new(self.generation);
            let log = scan(self, reference, &id, limit, &mut scratch, storage)?;
            let at = Sector::new(self.data);
            let replayed = log.replay(self, reference, &id, at, &mut scratch)?;
            sum.written += replayed.written;
            sum.left += replayed.left;
        }
        Ok(sum)
    }

    /// Looks at everything, and takes it for what is there from now on.
    fn observe(&mut self) {
        for stripe in 0..STRIPES {
            let number = StripeNo::new(stripe);
            for row in 0..self.geometry.chunk() {
                let columns = 0..self.geometry.data_columns();
                let under_write =
                    |world: &mut World, column| world.versions(stripe, column, row).len() > 1;
                let busy: Vec<bool> = columns.clone().map(|c| under_write(self, c)).collect();
                let mut sum = self.sector(self.geometry.p_slot(number).unwrap(), stripe, row);
                let mut known = true;
                for column in columns {
                    let slot = self.geometry.slot_of_data(number, column);
                    let away = self.absent.contains(slot);
                    let value = match away {
                        true => {
                            let mut value = [0; 512];
                            let others = self.present();
                            others.iter().for_each(|other| {
                                xor(&mut value, &self.sector(other, stripe, row));
                            });
                            value
                        }
                        false => self.sector(slot, stripe, row),
                    };
                    // A missing block that was being written together with others of its row, while
                    // its member was there, is the only one of which nothing is promised.
                    let others_busy = busy.iter().filter(|busy| **busy).count() > 1;
                    let versions = self.versions(stripe, column, row);
                    let was_there = versions.iter().skip(1).any(|version| !version.away);
                    let undefined = away && was_there && others_busy;
                    let fits = |version: &Version| version.value.is_none_or(|v| v == value);
                    let right = versions.iter().any(fits);
                    assert!(
                        right || undefined,
                        "stripe {stripe} column {column} row {row}"
                    );
                    known &= versions[0].value.is_some();
                    let defined = versions.iter().any(|version| version.value.is_some());
                    *versions = vec![Version {
                        op: 0,
                        // What was never written for sure may still be anything.
                        value: (versions[0].value.is_some() && defined).then_some(value),
                        done: Some(0),
                        away: false,
                    }];
                    self.tally.undefined += u64::from(!right);
                    xor(&mut sum, &value);
                }
                if known && self.absent.is_empty() {
                    assert_eq!(sum, [0; 512], "parity of stripe {stripe} row {row}");
                }
            }
        }
    }

    fn run(&mut self, ticks: u64) {
        for _ in 0..ticks {
            match self.rng.below(40) {
                0..=5 => self.start(),
                6..=26 => self.step(),
                27..=34 => self.log_step(),
                35 => self.begin_flush(),
                36..=38 => self.flush_step(),
                _ => match self.rng.below(20) {
                    0..=2 => self.lose_power(),
                    3 => self.fail(),
                    _ => self.rebuild(),
                },
            }
        }
        self.lose_power();
    }
}

impl Members for World {
    fn usable(&self, _: StripeNo) -> SlotSet {
        self.present()
    }

    fn read(&mut self, slot: Slot, at: Sector, to: &mut [u8]) -> Result<(), Failed> {
        assert!(self.present().contains(slot), "slot {slot} is not there");
        self.disks[slot.index()].read(at.get(), to);
        Ok(())
    }

    fn write(&mut self, slot: Slot, at: Sector, from: &[u8]) -> Result<(), Failed> {
        assert!(self.present().contains(slot), "slot {slot} is not there");
        if let Some(left) = &mut self.replay_writes {
            *left = left.saturating_sub(1);
        }
        let id = self.now();
        let disk = &mut self.disks[slot.index()];
        disk.send(at.get(), from, id);
        if self.replay_writes == Some(0) {
            return Err(Failed);
        }
        disk.answer(at.get(), from.len() as u64 / 512, id, false);
        Ok(())
    }

    fn xor(&mut self, into: &mut [u8], from: &[u8]) {
        xor(into, from);
    }

    fn doubt(&mut self, _: StripeNo) {
        self.doubts += 1;
    }
}

/// A block of one number.
fn block(value: u64) -> Block {
    let mut block = [0; 512];
    for word in block.chunks_exact_mut(8) {
        word.copy_from_slice(&value.to_le_bytes());
    }
    block
}

/// Forgets the versions before the last one of which `durable` says so.
fn keep_from(versions: &mut Vec<Version>, durable: impl Fn(&Version) -> bool) {
    if let Some(last) = versions.iter().rposition(durable) {
        versions.drain(..last);
    }
}

#[test]
fn nothing_flushed_or_untouched_is_lost() {
    let seed = common::seed("partial parity log");
    let soak = std::env::var_os("ERAID_SOAK").is_some();
    let histories = if soak { HISTORIES * 40 } else { HISTORIES };
    let mut sum = Tally::default();
    for number in 0..histories {
        let mut world = World::new(seed.wrapping_add(number));
        let ticks = 200 + number % 2000;
        let run = std::panic::AssertUnwindSafe(|| world.run(ticks));
        if let Err(panic) = std::panic::catch_unwind(run) {
            println!(
                "history {number}, to be repeated with ERAID_SEED={}",
                seed.wrapping_add(number)
            );
            std::panic::resume_unwind(panic);
        }
        sum.cuts += world.tally.cuts;
        sum.removed += world.tally.removed;
        sum.written += world.tally.written;
        sum.left += world.tally.left;
        sum.torn_replays += world.tally.torn_replays;
        sum.records += world.tally.records;
        sum.undefined += world.tally.undefined;
        for (kind, count) in world.tally.kinds {
            *sum.kinds.entry(kind).or_default() += count;
        }
    }
    println!(
        "{} power cuts, {} with a member removed; {} records of {:?}; {} rows of parity restored, {} \
         left; {} replays cut short; {} blocks undefined",
        sum.cuts,
        sum.removed,
        sum.records,
        sum.kinds,
        sum.written,
        sum.left,
        sum.torn_replays,
        sum.undefined
    );
    for kind in ["full", "reconstruct", "modify", "rebuild", "data-only"] {
        assert!(sum.kinds.get(kind).is_some_and(|n| *n > 100), "{kind}");
    }
    assert!(sum.written > 1000 && sum.left > 100 && sum.torn_replays > 100);
}
