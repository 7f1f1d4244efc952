// SPDX-License-Identifier: GPL-2.0

//! Partial parity log of RAID-5: its records, where they lie, and what they say.
//!
//! A write that is cut short leaves parity that does not match the data, and then a block that is
//! nowhere but in parity is lost although nobody wrote to it: the write hole. So before such a
//! write, a *record* of it goes to the log of the member that has the stripe's parity. It names
//! what is going to be written and holds the *partial parity*: what is XORed from the rest, which
//! stays as it is. Whatever then becomes of the write, parity is partial parity XOR what lies in
//! the named ranges.
//!
//! Partial parity is the new parity without the new data that is written: that holds for every
//! [`WriteKind`]. New data of a column whose member is missing is not written, so it is in the
//! partial parity, and survives.
//!
//! The rules that make a log of such records right are in Documentation/design/ppl.rst;
//! [`ppl_ring`](crate::ppl_ring) keeps those about the order of records, and
//! [`ppl_replay`](crate::ppl_replay) brings parity up to date after a crash.

use crate::batch::Batch;
use crate::crc32c::Crc32c;
use crate::geometry::{Geometry, Level, Rows};
use crate::layout::{Area, PAGE_SECTORS};
use crate::metapage::{seal, Kind, Page, PageError, PageId, RawHeader, BODY_SIZE};
use crate::plan_write::{WriteKind, WritePlan};
use crate::units::{Generation, Sector, Sequence, Slot, StripeNo, Uuid, SECTOR_SIZE};
use zerocopy::little_endian::{U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Most rows of partial parity in a record: 128 KiB.
pub const PAYLOAD_ROWS_MAX: u32 = 256;

/// Most data columns of RAID-5.
pub const COLUMNS_MAX: usize = 63;

/// Fewest cells that make a log: one record, one that follows it, and one that is a mark.
const CELLS_MIN: u64 = 3;

/// Greatest sequence that is believed.
const SEQUENCE_MAX: u64 = i64::MAX as u64;

/// Where the records lie in the log of each member: in *cells* of the same size, a page for the
/// header and the partial parity behind it. Record *n* goes to cell *n* mod the number of cells, so
/// partial parity, which users can influence, never lies where a header is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLayout {
    start: Sector,
    cells: u32,
    /// Sectors in a cell.
    cell: u64,
}

impl LogLayout {
    /// The layout of the logs in `area` of the members of an array; `None` where it is not RAID-5, or
    /// has no room for a log.
    pub fn new(geometry: &Geometry, area: Area) -> Option<LogLayout> {
        if geometry.level() != Level::Raid5 {
            return None;
        }
        let payload = u64::from(geometry.chunk().min(PAYLOAD_ROWS_MAX));
        let cell = PAGE_SECTORS.get() + payload.next_multiple_of(PAGE_SECTORS.get());
        let cells = area.len.get().checked_div(cell)?;
        Some(LogLayout {
            start: area.start,
            cells: u32::try_from(cells).unwrap_or(u32::MAX),
            cell,
        })
        .filter(|_| cells >= CELLS_MIN)
    }

    /// How many cells there are, at least 3.
    #[inline]
    pub const fn cells(&self) -> u32 {
        self.cells
    }

    /// The cell of a record.
    #[inline]
    pub const fn cell_of(&self, sequence: Sequence) -> u32 {
        match sequence.0.checked_rem(self.cells as u64) {
            // Less than the number of cells.
            Some(cell) => cell as u32,
            None => 0,
        }
    }

    /// Where the header of a cell lies on the member; meaningless behind the last cell.
    #[inline]
    pub const fn header(&self, cell: u32) -> Sector {
        Sector(
            self.start
                .0
                .saturating_add((cell as u64).saturating_mul(self.cell)),
        )
    }

    /// Where the partial parity of a cell lies on the member.
    #[inline]
    pub const fn payload(&self, cell: u32) -> Sector {
        Sector(self.header(cell).0.saturating_add(PAGE_SECTORS.0))
    }

    /// Most rows of partial parity that a cell has room for.
    #[inline]
    pub const fn payload_rows(&self) -> u32 {
        // As `new` has made it; at most PAYLOAD_ROWS_MAX.
        self.cell.saturating_sub(PAGE_SECTORS.0) as u32
    }
}

/// What a record says of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The stripe.
    pub stripe: StripeNo,
    /// The rows in which parity is written.
    pub rows: Rows,
    /// The rows in which each data column is written to its member, [`Rows::NONE`] for none; among
    /// `rows`.
    pub covers: [Rows; COLUMNS_MAX],
    /// Parity is not known to match, so there is no partial parity: after a crash the region needs
    /// a resync.
    pub doubtful: bool,
}

impl Record {
    /// The record of a write, or `None` for one that does not write parity.
    ///
    /// Every other write has one, also where it could do without: it makes the records before it of
    /// the same rows void, which would undo it otherwise. `need_sync` as in the
    /// [`View`](crate::plan_read::View) that the plan was made from.
    pub fn of_plan<S>(
        geometry: &Geometry,
        batch: &Batch<S>,
        plan: &WritePlan,
        need_sync: bool,
    ) -> Option<Record>
    where
        S: AsRef<[Rows]> + AsMut<[Rows]>,
    {
        let stripe = batch.stripe();
        let parity = geometry.p_slot(stripe)?;
        if geometry.level() != Level::Raid5 || !plan.write.contains(parity) {
            return None;
        }
        let mut covers = [Rows::NONE; COLUMNS_MAX];
        for (column, cover) in (0..geometry.data_columns()).zip(&mut covers) {
            // What is only repaired, because it cannot be read, stays what parity says it is.
            if plan.write.contains(geometry.slot_of_data(stripe, column)) {
                *cover = batch.cover(column);
            }
        }
        Some(Record {
            stripe,
            rows: batch.hull(),
            covers,
            doubtful: need_sync && plan.kind == WriteKind::Modify,
        })
    }

    /// The rows that have partial parity, above and below those in which every column is written. It
    /// lies one row after the other behind the header.
    pub fn partial(&self, geometry: &Geometry) -> [Rows; 2] {
        if self.doubtful {
            return [Rows::NONE; 2];
        }
        let columns = usize::from(geometry.data_columns());
        let covers = self.covers.iter().take(columns);
        let full = covers.fold(self.rows, |full, cover| full.common(*cover));
        if full.is_empty() {
            return [self.rows, Rows::NONE];
        }
        let rows = |lo, hi| Rows { lo, hi };
        [rows(self.rows.lo, full.lo), rows(full.hi, self.rows.hi)]
    }

    /// How many rows of partial parity there are.
    #[inline]
    pub fn partial_rows(&self, geometry: &Geometry) -> u32 {
        let [above, below] = self.partial(geometry);
        above.len().saturating_add(below.len())
    }

    /// Which row of the partial parity is that of `row`, if there is one.
    pub fn partial_row(&self, geometry: &Geometry, row: u32) -> Option<u32> {
        let [above, below] = self.partial(geometry);
        let within = |rows: Rows| (rows.lo..rows.hi).contains(&row);
        match (within(above), within(below)) {
            (true, _) => Some(row.saturating_sub(above.lo)),
            (_, true) => Some(above.len().saturating_add(row.saturating_sub(below.lo))),
            _ => None,
        }
    }

    /// Whether a log may have it: everything within the array and of the right member.
    fn is_possible(&self, geometry: &Geometry, holder: Slot, room: u32) -> bool {
        let columns = usize::from(geometry.data_columns());
        let fits = |cover: &Rows| match cover.is_empty() {
            true => *cover == Rows::NONE,
            false => self.rows.contains(*cover),
        };
        self.stripe.get() < geometry.stripes()
            && geometry.p_slot(self.stripe) == Some(holder)
            && !self.rows.is_empty()
            && self.rows.hi <= geometry.chunk()
            && self.covers.iter().all(fits)
            && self.covers.iter().skip(columns).all(|c| c.is_empty())
            && self.partial_rows(geometry) <= room
    }
}

/// What an entry of the log is.
// There is no allocator to put the record elsewhere.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A write that is going to be made.
    Write(Record),
    /// Nothing but its [`Stamp`]: the log begins here, or records before it are over.
    Mark,
}

/// Which entry of which log this is, and what was known when it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The generation of the superblock when the log began.
    pub generation: Generation,
    /// Its number in the log.
    pub sequence: Sequence,
    /// The oldest entry whose write may not be durable; all before are over.
    pub oldest: Sequence,
    /// The newest entry that was durable, [`Sequence::ZERO`] for none: one up to here that cannot be
    /// read later is not torn but lost.
    pub durable: Sequence,
}

impl Stamp {
    fn is_possible(&self) -> bool {
        (1..=SEQUENCE_MAX).contains(&self.sequence.0)
            && (1..=self.sequence.0).contains(&self.oldest.0)
            && self.durable < self.sequence
    }
}

/// Rows on the disk.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRows {
    lo: U32,
    hi: U32,
}

impl RawRows {
    fn set(&mut self, rows: Rows) {
        self.lo.set(rows.lo);
        self.hi.set(rows.hi);
    }

    fn get(&self) -> Rows {
        Rows {
            lo: self.lo.get(),
            hi: self.hi.get(),
        }
    }
}

/// Bytes of the header page in use behind the common header.
const USED: usize = 48 + 8 * COLUMNS_MAX;

/// The header of a cell on the disk.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRecord {
    header: RawHeader,
    sequence: U64,
    oldest: U64,
    durable: U64,
    stripe: U64,
    kind: U32,
    payload_crc: U32,
    rows: RawRows,
    covers: [RawRows; COLUMNS_MAX],
    reserved: [u8; BODY_SIZE - USED],
}

/// Values of `kind`.
const KIND_MARK: u32 = 0;
const KIND_WRITE: u32 = 1;
const KIND_DOUBTFUL: u32 = 2;

/// What the codec has to know of a log.
#[derive(Clone, Copy, Debug)]
pub struct LogId<'a> {
    /// The array.
    pub array: Uuid,
    /// Its shape.
    pub geometry: &'a Geometry,
    /// Where records lie.
    pub layout: LogLayout,
    /// The slot of the member that has the log.
    pub holder: Slot,
}

impl LogId<'_> {
    fn page(&self, cell: u32) -> PageId {
        PageId {
            array: self.array,
            number: cell,
        }
    }
}

/// Checksum of partial parity, given in parts.
pub fn payload_crc<'a>(crc: Crc32c, parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    !parts.into_iter().fold(!0, crc)
}

/// The header of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Which entry of which log.
    pub stamp: Stamp,
    /// What it is.
    pub entry: Entry,
    /// Checksum of its partial parity, see [`payload_crc`]; 0 where there is none.
    pub payload_crc: u32,
}

impl Header {
    /// Writes the header. Its partial parity goes behind it, and is padded with anything to whole
    /// pages there.
    pub fn encode(&self, page: &mut Page, crc: Crc32c, id: &LogId<'_>) {
        page.fill(0);
        let raw: &mut RawRecord = zerocopy::transmute_mut!(page);
        let mut count = 0;
        raw.sequence.set(self.stamp.sequence.0);
        raw.oldest.set(self.stamp.oldest.0);
        raw.durable.set(self.stamp.durable.0);
        match &self.entry {
            Entry::Mark => raw.kind.set(KIND_MARK),
            Entry::Write(record) => {
                count = record.partial_rows(id.geometry);
                raw.set(record);
                raw.payload_crc.set(self.payload_crc);
            }
        }
        let cell = id.page(id.layout.cell_of(self.stamp.sequence));
        raw.header = RawHeader::new(Kind::LogRecord, cell, self.stamp.generation, count);
        seal(page, crc);
    }

    /// Reads and checks the header in `cell`.
    ///
    /// # Errors
    ///
    /// Why it is not believed.
    pub fn decode(
        page: &Page,
        crc: Crc32c,
        id: &LogId<'_>,
        cell: u32,
    ) -> Result<Header, PageError> {
        let raw: &RawRecord = zerocopy::transmute_ref!(page);
        let generation = raw
            .header
            .check(Kind::LogRecord, id.page(cell), page, crc)?;
        let stamp = Stamp {
            generation,
            sequence: Sequence(raw.sequence.get()),
            oldest: Sequence(raw.oldest.get()),
            durable: Sequence(raw.durable.get()),
        };
        if !stamp.is_possible() {
            return Err(PageError::Nonsense("has an impossible place in the log"));
        }
        if id.layout.cell_of(stamp.sequence) != cell {
            return Err(PageError::Misplaced);
        }
        let entry = raw
            .entry(id)
            .ok_or(PageError::Nonsense("has an impossible record"))?;
        Ok(Header {
            stamp,
            entry,
            payload_crc: raw.payload_crc.get(),
        })
    }

    /// The length of the partial parity in bytes.
    #[inline]
    pub fn payload_len(&self, geometry: &Geometry) -> usize {
        match &self.entry {
            // At most PAYLOAD_ROWS_MAX rows.
            Entry::Write(record) => (record.partial_rows(geometry) * SECTOR_SIZE) as usize,
            Entry::Mark => 0,
        }
    }
}

impl RawRecord {
    /// Writes what the record says.
    fn set(&mut self, record: &Record) {
        self.kind.set(match record.doubtful {
            true => KIND_DOUBTFUL,
            false => KIND_WRITE,
        });
        self.stripe.set(record.stripe.0);
        self.rows.set(record.rows);
        for (raw, cover) in self.covers.iter_mut().zip(&record.covers) {
            raw.set(*cover);
        }
    }

    /// What the header says, if that is possible in this log.
    fn entry(&self, id: &LogId<'_>) -> Option<Entry> {
        let mut covers = [Rows::NONE; COLUMNS_MAX];
        for (cover, raw) in covers.iter_mut().zip(&self.covers) {
            *cover = raw.get();
        }
        let record = Record {
            stripe: StripeNo(self.stripe.get()),
            rows: self.rows.get(),
            covers,
            doubtful: self.kind.get() == KIND_DOUBTFUL,
        };
        let unused = self.reserved.iter().all(|byte| *byte == 0)
            && (self.header.count() > 0 || self.payload_crc.get() == 0);
        let possible = match self.kind.get() {
            KIND_MARK => {
                let nothing = Record {
                    stripe: StripeNo::ZERO,
                    rows: Rows::NONE,
                    covers: [Rows::NONE; COLUMNS_MAX],
                    doubtful: false,
                };
                record == nothing && self.header.count() == 0
            }
            KIND_WRITE | KIND_DOUBTFUL => {
                record.is_possible(id.geometry, id.holder, id.layout.payload_rows())
                    && self.header.count() == record.partial_rows(id.geometry)
            }
            _ => false,
        };
        if !possible || !unused {
            return None;
        }
        match self.kind.get() {
            KIND_MARK => Some(Entry::Mark),
            _ => Some(Entry::Write(record)),
        }
    }
}
