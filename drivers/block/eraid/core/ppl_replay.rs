// SPDX-License-Identifier: GPL-2.0

//! After a crash: parity is brought up to date from the partial parity logs.
//!
//! For each member that has current parity: [`scan`] its log, then [`Log::replay`]. When that is done
//! for all, the members are flushed, the superblock gets a new generation, and every log begins anew
//! with a mark of it ([`Ring::open`](crate::ppl_ring::Ring::open)); only then is anything else written.
//! A crash on the way changes nothing: all of it can be done again.
//!
//! Runs in a context that may wait: [`Members`] reads and writes.

use crate::crc32c::Crc32c;
use crate::geometry::{Geometry, Rows};
use crate::metapage::{Page, PageError};
use crate::ppl::{payload_crc, Entry, Header, LogId, Record, Stamp, COLUMNS_MAX};
use crate::units::{Generation, Sector, Sequence, Slot, SlotSet, StripeNo, SECTOR_SIZE};

/// A member could not be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

/// The members, as a replay sees them. Positions are from the start of the member.
pub trait Members {
    /// The members whose blocks of a stripe are current: in sync, not stale in its region, or rebuilt
    /// past it. See [`View::usable`](crate::plan_read::View::usable).
    fn usable(&self, stripe: StripeNo) -> SlotSet;

    /// Reads whole sectors.
    ///
    /// # Errors
    ///
    /// [`Failed`] when any of them cannot be read.
    fn read(&mut self, slot: Slot, at: Sector, to: &mut [u8]) -> Result<(), Failed>;

    /// Writes whole sectors, durable after the next flush.
    ///
    /// # Errors
    ///
    /// [`Failed`] when any of them cannot be written.
    fn write(&mut self, slot: Slot, at: Sector, from: &[u8]) -> Result<(), Failed>;

    /// XORs `from` into `into`; both have the same length, whole sectors.
    fn xor(&mut self, into: &mut [u8], from: &[u8]);

    /// Parity of a stripe may not match, and the log does not tell what it should be: its region
    /// needs a resync. May be said more than once.
    fn doubt(&mut self, stripe: StripeNo);
}

/// Why a log cannot be used. Of every region that is marked as in flight parity is in doubt then, as
/// it is without a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogError {
    /// Entries are lost that were durable and may be needed, or what is there contradicts itself.
    Damaged,
    /// Parity could not be written.
    WriteFailed,
}

/// An entry that was found.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    sequence: Sequence,
    stripe: StripeNo,
    rows: Rows,
}

impl Found {
    /// Room for an entry.
    pub const NONE: Found = Found {
        sequence: Sequence::ZERO,
        stripe: StripeNo::ZERO,
        rows: Rows::NONE,
    };
}

/// Memory for a replay, the caller's.
#[derive(Debug)]
pub struct Scratch<'a> {
    /// For a header.
    pub page: &'a mut Page,
    /// For the partial parity of a record: as many bytes as a cell has room for.
    pub payload: &'a mut [u8],
    /// As long as `payload`.
    pub parity: &'a mut [u8],
    /// As long as `payload`.
    pub data: &'a mut [u8],
}

/// What is known of a log while its headers are read.
struct Scan<S> {
    found: S,
    len: usize,
    newest: Generation,
    oldest: Sequence,
    durable: Sequence,
    last: Sequence,
}

impl<S: AsRef<[Found]> + AsMut<[Found]>> Scan<S> {
    /// Takes in a stamp; `false` when it belongs to an older log.
    fn stamp(&mut self, stamp: &Stamp) -> bool {
        if stamp.generation < self.newest {
            return false;
        }
        if stamp.generation > self.newest {
            self.newest = stamp.generation;
            self.len = 0;
            (self.oldest, self.durable, self.last) =
                (Sequence::ZERO, Sequence::ZERO, Sequence::ZERO);
        }
        self.oldest = self.oldest.max(stamp.oldest);
        self.durable = self.durable.max(stamp.durable);
        self.last = self.last.max(stamp.sequence);
        true
    }

    /// Takes in a complete entry.
    fn add(&mut self, header: &Header) -> Result<(), LogError> {
        let (stripe, rows) = match &header.entry {
            Entry::Write(record) => (record.stripe, record.rows),
            Entry::Mark => (StripeNo::ZERO, Rows::NONE),
        };
        let place = self.found.as_mut().get_mut(self.len);
        *place.ok_or(LogError::Damaged)? = Found {
            sequence: header.stamp.sequence,
            stripe,
            rows,
        };
        self.len = self.len.saturating_add(1);
        Ok(())
    }

    /// Leaves what is not over, and checks that nothing durable of it is missing.
    fn conclude(mut self, cells: u32, limit: Generation) -> Result<Log<S>, LogError> {
        let found = self.found.as_mut().get_mut(..self.len);
        let found = found.ok_or(LogError::Damaged)?;
        found.sort_unstable_by_key(|entry| entry.sequence);
        let over = found.partition_point(|entry| entry.sequence < self.oldest);
        found.rotate_left(over);
        let len = self.len.saturating_sub(over);
        let live = found.get(..len).unwrap_or(&[]);
        let durable = live.partition_point(|entry| entry.sequence <= self.durable);
        let expected = self.durable.next().get().saturating_sub(self.oldest.get());
        let spread = self.last.get().saturating_sub(self.oldest.get());
        // Entries behind the last durable one may be torn; those before it are all there, a mark at
        // least, and none has taken the place of another one.
        let complete = durable as u64 >= expected;
        let possible = self.last > Sequence::ZERO && spread < u64::from(cells);
        match complete && possible && self.newest <= limit {
            true => Ok(Log {
                found: self.found,
                len,
            }),
            false => Err(LogError::Damaged),
        }
    }
}

/// Reads the log of a member. `limit` is the generation of the newest superblock, `storage` has room
/// for an entry of each cell.
///
/// # Errors
///
/// [`LogError::Damaged`], also when anything cannot be read: it may have been the newest.
pub fn scan<M: Members, S: AsRef<[Found]> + AsMut<[Found]>>(
    members: &mut M,
    crc: Crc32c,
    id: &LogId<'_>,
    limit: Generation,
    scratch: &mut Scratch<'_>,
    storage: S,
) -> Result<Log<S>, LogError> {
    let mut scan = Scan {
        found: storage,
        len: 0,
        newest: Generation::ZERO,
        oldest: Sequence::ZERO,
        durable: Sequence::ZERO,
        last: Sequence::ZERO,
    };
    for cell in 0..id.layout.cells() {
        let at = id.layout.header(cell);
        let read = members.read(id.holder, at, &mut scratch.page[..]);
        read.map_err(|_| LogError::Damaged)?;
        let header = match Header::decode(scratch.page, crc, id, cell) {
            Ok(header) => header,
            // A record that makes no sense and is sealed was not made by this driver.
            Err(PageError::Nonsense(_)) => return Err(LogError::Damaged),
            Err(_) => continue,
        };
        if scan.stamp(&header.stamp) && is_complete(members, crc, id, cell, &header, scratch)? {
            scan.add(&header)?;
        }
    }
    scan.conclude(id.layout.cells(), limit)
}

/// Reads the partial parity of an entry, and says whether all of it is there.
fn is_complete<M: Members>(
    members: &mut M,
    crc: Crc32c,
    id: &LogId<'_>,
    cell: u32,
    header: &Header,
    scratch: &mut Scratch<'_>,
) -> Result<bool, LogError> {
    let payload = scratch.payload.get_mut(..header.payload_len(id.geometry));
    let payload = payload.ok_or(LogError::Damaged)?;
    if !payload.is_empty() {
        let read = members.read(id.holder, id.layout.payload(cell), payload);
        read.map_err(|_| LogError::Damaged)?;
    }
    let sum = payload_crc(crc, [&*payload]);
    Ok(sum == header.payload_crc)
}

/// The entries of a log that are not known to be over.
#[derive(Clone, Debug)]
pub struct Log<S> {
    found: S,
    /// In front, by their sequence.
    len: usize,
}

/// What a replay did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Rows of parity that were written.
    pub written: u64,
    /// Rows of parity that were left as they are, because a member is missing that the write went to. If
    /// that write was not durable, what it wrote there is lost, or mixed with what was there before.
    pub left: u64,
}

impl<S: AsRef<[Found]> + AsMut<[Found]>> Log<S> {
    /// The entries, oldest first.
    fn live(&self) -> &[Found] {
        self.found.as_ref().get(..self.len).unwrap_or(&[])
    }

    /// Brings parity up to date in all rows that entries name. `data` is where the data starts on the
    /// members.
    ///
    /// A row is done by the newest entry that names it: an older one does not know what that changed.
    ///
    /// # Errors
    ///
    /// See [`LogError`]. What was done up to there is right.
    pub fn replay<M: Members>(
        &self,
        members: &mut M,
        crc: Crc32c,
        id: &LogId<'_>,
        data: Sector,
        scratch: &mut Scratch<'_>,
    ) -> Result<Replayed, LogError> {
        let mut job = Job {
            members,
            crc,
            id,
            data,
            scratch,
            replayed: Replayed::default(),
        };
        for (index, entry) in self.live().iter().enumerate() {
            // The member was not always there: what it missed is recovered from the data.
            if entry.rows.is_empty() || !job.members.usable(entry.stripe).contains(id.holder) {
                continue;
            }
            let record = job.load(entry.sequence)?;
            let mut row = record.rows.lo;
            while let Some(rows) = self.piece(index, &record, row) {
                if !self.is_void(index, rows) {
                    job.restore(&record, rows)?;
                }
                row = rows.hi;
            }
        }
        Ok(job.replayed)
    }

    /// The rows of a record from `row` on that it treats alike, and that newer entries name all or not
    /// at all.
    fn piece(&self, index: usize, record: &Record, row: u32) -> Option<Rows> {
        let newer = self.live().get(index.saturating_add(1)..).unwrap_or(&[]);
        let newer = newer.iter().filter(|entry| entry.stripe == record.stripe);
        let named = newer.map(|entry| entry.rows).chain(record.covers);
        let borders = named.flat_map(|rows| [rows.lo, rows.hi]);
        let inside =
            borders.filter(|border| (row.saturating_add(1)..record.rows.hi).contains(border));
        let rows = Rows {
            lo: row,
            hi: inside.min().unwrap_or(record.rows.hi),
        };
        (!rows.is_empty()).then_some(rows)
    }

    /// Whether a newer entry names these rows of the stripe.
    fn is_void(&self, index: usize, rows: Rows) -> bool {
        let entries = self.live();
        let newer = entries.get(index.saturating_add(1)..).unwrap_or(&[]);
        let stripe = entries.get(index).map(|entry| entry.stripe);
        newer
            .iter()
            .any(|entry| Some(entry.stripe) == stripe && !entry.rows.common(rows).is_empty())
    }
}

/// The restoration of parity, a record at a time.
struct Job<'a, 'b, 'c, M> {
    members: &'a mut M,
    crc: Crc32c,
    id: &'a LogId<'b>,
    data: Sector,
    scratch: &'a mut Scratch<'c>,
    replayed: Replayed,
}

impl<M: Members> Job<'_, '_, '_, M> {
    /// Reads a record again, and its partial parity into memory.
    fn load(&mut self, sequence: Sequence) -> Result<Record, LogError> {
        let (id, crc) = (self.id, self.crc);
        let cell = id.layout.cell_of(sequence);
        let at = id.layout.header(cell);
        let read = self.members.read(id.holder, at, &mut self.scratch.page[..]);
        read.map_err(|_| LogError::Damaged)?;
        let header = Header::decode(self.scratch.page, crc, id, cell);
        let header = header.map_err(|_| LogError::Damaged)?;
        let complete = is_complete(self.members, crc, id, cell, &header, self.scratch)?;
        match header.entry {
            Entry::Write(record) if complete => Ok(record),
            _ => Err(LogError::Damaged),
        }
    }

    /// Writes parity in rows that the record treats alike.
    fn restore(&mut self, record: &Record, rows: Rows) -> Result<(), LogError> {
        if record.doubtful {
            self.members.doubt(record.stripe);
            return Ok(());
        }
        let geometry = self.id.geometry;
        let written = written(geometry, record, rows);
        if !written.is_subset(self.members.usable(record.stripe)) {
            let left = &mut self.replayed.left;
            *left = left.saturating_add(u64::from(rows.len()));
            return Ok(());
        }
        // Rows in which every column is written may be more than fit at once.
        let room = self.scratch.data.len().min(self.scratch.parity.len());
        let most = u32::try_from(room / SECTOR_SIZE as usize).unwrap_or(u32::MAX);
        if most == 0 {
            return Err(LogError::Damaged);
        }
        let mut lo = rows.lo;
        while lo < rows.hi {
            let hi = rows.hi.min(lo.saturating_add(most));
            self.restore_part(record, written, Rows { lo, hi })?;
            lo = hi;
        }
        Ok(())
    }

    /// As many of them as fit.
    fn restore_part(
        &mut self,
        record: &Record,
        written: SlotSet,
        rows: Rows,
    ) -> Result<(), LogError> {
        let geometry = self.id.geometry;
        let bytes = |rows: u32| rows.saturating_mul(SECTOR_SIZE) as usize;
        let len = bytes(rows.len());
        let at = geometry.member_sector(record.stripe, rows.lo);
        let at = Sector(self.data.get().saturating_add(at.get()));
        let parity = self.scratch.parity.get_mut(..len);
        let parity = parity.ok_or(LogError::Damaged)?;
        let data = self.scratch.data.get_mut(..len).ok_or(LogError::Damaged)?;
        match record.partial_row(geometry, rows.lo) {
            Some(row) => {
                let start = bytes(row);
                let payload = self.scratch.payload.get(start..start.saturating_add(len));
                parity.copy_from_slice(payload.ok_or(LogError::Damaged)?);
            }
            None => parity.fill(0),
        }
        for slot in written {
            if self.members.read(slot, at, data).is_err() {
                self.members.doubt(record.stripe);
                return Ok(());
            }
            self.members.xor(parity, data);
        }
        let write = self.members.write(self.id.holder, at, parity);
        write.map_err(|_| LogError::WriteFailed)?;
        let count = &mut self.replayed.written;
        *count = count.saturating_add(u64::from(rows.len()));
        Ok(())
    }
}

/// The members that the record's write went to in `rows`, which it treats alike.
fn written(geometry: &Geometry, record: &Record, rows: Rows) -> SlotSet {
    let columns = (0..geometry.data_columns()).zip(record.covers.iter().take(COLUMNS_MAX));
    columns
        .filter(|(_, cover)| !cover.common(rows).is_empty())
        .map(|(column, _)| geometry.slot_of_data(record.stripe, column))
        .collect()
}
