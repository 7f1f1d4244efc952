// SPDX-License-Identifier: GPL-2.0

//! Geometry: where each sector of the array lies on its members, and back.
//!
//! A *stripe* is the row of chunks at the same place on every member. Its data chunks are its
//! *columns*, numbered in array order; a *row* is an offset into each chunk of the stripe. RAID-1
//! has one column, of which every member holds a copy.

use crate::refusal::{Errno, Refusal};
use crate::refuse;
use crate::units::{Sector, Sectors, Slot, SlotSet, StripeNo, MAX_SLOTS, SECTOR_SIZE};
use core::num::{NonZeroU32, NonZeroU64};

/// Smallest chunk, in sectors: one 4 KiB block.
pub const CHUNK_MIN: Sectors = Sectors(8);

/// Largest chunk, in sectors: 4 MiB.
pub const CHUNK_MAX: Sectors = Sectors(8192);

/// Largest array and largest member, in sectors: byte offsets have to fit a signed 64-bit number.
pub const CAPACITY_MAX: Sectors = Sectors(i64::MAX as u64 / SECTOR_SIZE as u64);

/// How the array spreads data and redundancy over its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// Striping without redundancy.
    Raid0,
    /// A copy on every member.
    Raid1,
    /// Striping with one rotating parity.
    Raid5,
    /// Striping with two rotating parities.
    Raid6,
}

impl Level {
    /// The level of this number: 0, 1, 5 or 6.
    pub const fn from_number(number: u32) -> Option<Level> {
        match number {
            0 => Some(Level::Raid0),
            1 => Some(Level::Raid1),
            5 => Some(Level::Raid5),
            6 => Some(Level::Raid6),
            _ => None,
        }
    }

    /// The number: 0, 1, 5 or 6.
    #[inline]
    pub const fn number(self) -> u32 {
        match self {
            Level::Raid0 => 0,
            Level::Raid1 => 1,
            Level::Raid5 => 5,
            Level::Raid6 => 6,
        }
    }

    /// The name md uses, such as `raid5`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Level::Raid0 => "raid0",
            Level::Raid1 => "raid1",
            Level::Raid5 => "raid5",
            Level::Raid6 => "raid6",
        }
    }

    /// The fewest members an array of this level has.
    pub const fn members_min(self) -> u8 {
        match self {
            Level::Raid0 | Level::Raid1 => 2,
            Level::Raid5 => 3,
            Level::Raid6 => 4,
        }
    }

    /// Whether there is parity.
    #[inline]
    pub const fn has_parity(self) -> bool {
        self.parity_columns() > 0
    }

    /// Chunks in a stripe that hold parity.
    #[inline]
    const fn parity_columns(self) -> u8 {
        match self {
            Level::Raid0 | Level::Raid1 => 0,
            Level::Raid5 => 1,
            Level::Raid6 => 2,
        }
    }
}

/// What a member holds in a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The data column of this number.
    Data(u8),
    /// The XOR of all data columns.
    P,
    /// The Reed-Solomon syndrome of RAID-6.
    Q,
    /// A copy of the only data column of RAID-1.
    Copy,
}

/// Where a sector of the array lies within its stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The stripe.
    pub stripe: StripeNo,
    /// The data column, counted from 0.
    pub column: u8,
    /// The offset into the chunk, in sectors.
    pub row: u32,
}

/// Shape of an array. Every value of this type is valid: [`Geometry::new`] checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    level: Level,
    members: u8,
    data_columns: u8,
    /// log2 of the chunk in sectors, 3 to 13.
    chunk_shift: u32,
    /// `members`, in the type that the rotation divides by.
    rotation: NonZeroU64,
    /// Sectors of data in a stripe, in the type that positions are divided by.
    stripe_data: NonZeroU64,
    /// Stripes that fit on every member, at least one.
    stripes: u64,
}

impl Geometry {
    /// The smallest array there is: a stripe of two copies.
    pub(crate) const SMALLEST: Geometry = Geometry {
        level: Level::Raid1,
        members: 2,
        data_columns: 1,
        chunk_shift: CHUNK_MIN.0.trailing_zeros(),
        rotation: NonZeroU64::MIN.saturating_add(1),
        stripe_data: NonZeroU64::MIN.saturating_add(CHUNK_MIN.0 - 1),
        stripes: 1,
    };

    /// Checks a shape.
    ///
    /// `chunk` is a power of two from [`CHUNK_MIN`] to [`CHUNK_MAX`]. `component` is what each
    /// member has for data; it is rounded down to whole chunks.
    ///
    /// # Errors
    ///
    /// `EINVAL` for too few or too many members, for a bad chunk and for a component smaller than
    /// a chunk; `EFBIG` where the array would exceed [`CAPACITY_MAX`].
    pub fn new(
        level: Level,
        members: u8,
        chunk: Sectors,
        component: Sectors,
    ) -> Result<Geometry, Refusal> {
        check_members(level, members)?;
        check_chunk(chunk)?;
        let chunk_shift = chunk.0.trailing_zeros();
        let stripes = component.0 >> chunk_shift;
        if stripes == 0 {
            return Err(refuse!(
                Errno::Inval,
                "members have {component} sectors for data, less than one chunk of {chunk} sectors"
            ));
        }
        let data_columns = match level {
            Level::Raid1 => 1,
            _ => members.saturating_sub(level.parity_columns()),
        };
        let stripe_data = u64::from(data_columns) << chunk_shift;
        let fits = stripes
            .checked_mul(stripe_data)
            .is_some_and(|sectors| sectors <= CAPACITY_MAX.0);
        if component > CAPACITY_MAX || !fits {
            return Err(refuse!(
                Errno::FBig,
                "{data_columns} data columns of {component} sectors exceed {CAPACITY_MAX} sectors"
            ));
        }
        // Both are at least 1 by the checks above; the type only has to be told.
        let rotation = NonZeroU64::from(NonZeroU32::MIN.saturating_add(u32::from(members) - 1));
        let stripe_data = NonZeroU64::MIN.saturating_add(stripe_data - 1);
        Ok(Geometry {
            level,
            members,
            data_columns,
            chunk_shift,
            rotation,
            stripe_data,
            stripes,
        })
    }

    /// The level.
    #[inline]
    pub const fn level(&self) -> Level {
        self.level
    }

    /// Members of the array, present or not: 2 to 64.
    #[inline]
    pub const fn members(&self) -> u8 {
        self.members
    }

    /// Sectors in a chunk: a power of two.
    #[inline]
    pub const fn chunk(&self) -> u32 {
        1 << self.chunk_shift
    }

    /// Data chunks in a stripe: 1 to 64.
    #[inline]
    pub const fn data_columns(&self) -> u8 {
        self.data_columns
    }

    /// How many members can be missing while every block can still be read.
    #[inline]
    pub const fn parity(&self) -> u8 {
        match self.level {
            Level::Raid1 => self.members.saturating_sub(1),
            level => level.parity_columns(),
        }
    }

    /// Size of the array.
    #[inline]
    pub const fn capacity(&self) -> Sectors {
        // `new` has checked that this fits.
        Sectors(self.stripes.saturating_mul(self.stripe_data.get()))
    }

    /// Stripes of the array, at least 1.
    #[inline]
    pub const fn stripes(&self) -> u64 {
        self.stripes
    }

    /// Data in a stripe.
    #[inline]
    pub const fn stripe_data(&self) -> Sectors {
        Sectors(self.stripe_data.get())
    }

    /// What each member holds of the array: whole chunks.
    #[inline]
    pub const fn component(&self) -> Sectors {
        Sectors(self.stripes << self.chunk_shift)
    }

    /// The slots of all members, present or not.
    #[inline]
    pub const fn all_slots(&self) -> SlotSet {
        SlotSet::first_n(self.members)
    }

    /// Whether all of a request lies within the array.
    #[inline]
    pub const fn contains(&self, start: Sector, len: Sectors) -> bool {
        match start.0.checked_add(len.0) {
            Some(end) => end <= self.capacity().0,
            None => false,
        }
    }

    /// What `slot` holds in `stripe`; meaningless for a slot beyond the members.
    ///
    /// Rotation as md's `ALGORITHM_LEFT_SYMMETRIC`, `raid5_compute_sector()` in drivers/md/raid5.c:
    /// parity starts on the last member and moves down by one a stripe, Q is behind P, and data
    /// starts behind the parity.
    #[inline]
    pub fn role(&self, stripe: StripeNo, slot: Slot) -> Role {
        let parity = self.level.parity_columns();
        if self.level == Level::Raid1 {
            return Role::Copy;
        }
        if parity == 0 {
            return Role::Data(slot.get());
        }
        // How far the slot lies behind P, all around.
        let behind = (u64::from(slot.get()) + u64::from(self.members) - self.p_number(stripe))
            % self.rotation;
        let behind = Slot::masked(behind).get();
        match behind.checked_sub(parity) {
            Some(column) => Role::Data(column),
            None if behind == 0 => Role::P,
            None => Role::Q,
        }
    }

    /// The slot that holds data column `column` of `stripe`: for RAID-1 slot 0, one of the copies.
    #[inline]
    pub fn slot_of_data(&self, stripe: StripeNo, column: u8) -> Slot {
        match self.level {
            Level::Raid0 => Slot::masked(u64::from(column)),
            Level::Raid1 => Slot::masked(0),
            Level::Raid5 | Level::Raid6 => {
                let parity = u64::from(self.level.parity_columns());
                self.slot_behind_p(stripe, parity + u64::from(column))
            }
        }
    }

    /// The slot that holds P in `stripe`, where the level has one.
    #[inline]
    pub fn p_slot(&self, stripe: StripeNo) -> Option<Slot> {
        match self.level {
            Level::Raid0 | Level::Raid1 => None,
            Level::Raid5 | Level::Raid6 => Some(self.slot_behind_p(stripe, 0)),
        }
    }

    /// The slot that holds Q in `stripe`, where the level has one.
    #[inline]
    pub fn q_slot(&self, stripe: StripeNo) -> Option<Slot> {
        match self.level {
            Level::Raid0 | Level::Raid1 | Level::Raid5 => None,
            Level::Raid6 => Some(self.slot_behind_p(stripe, 1)),
        }
    }

    /// The slots that hold parity in `stripe`.
    #[inline]
    pub fn parity_slots(&self, stripe: StripeNo) -> SlotSet {
        let slots = [self.p_slot(stripe), self.q_slot(stripe)];
        slots.into_iter().flatten().collect()
    }

    /// The slots of the data columns `first` to `last` of `stripe`; for RAID-1 all of its copies.
    #[inline]
    pub fn data_slots(&self, stripe: StripeNo, first: u8, last: u8) -> SlotSet {
        match self.level {
            Level::Raid1 => self.all_slots(),
            _ => (first..=last)
                .map(|column| self.slot_of_data(stripe, column))
                .collect(),
        }
    }

    /// Number of the slot with P: `raid_disks - 1 - stripe % raid_disks` in md.
    #[inline]
    fn p_number(&self, stripe: StripeNo) -> u64 {
        u64::from(self.members) - 1 - stripe.0 % self.rotation
    }

    /// The slot `distance` behind the one with P, all around.
    #[inline]
    fn slot_behind_p(&self, stripe: StripeNo, distance: u64) -> Slot {
        Slot::masked((self.p_number(stripe) + distance) % self.rotation)
    }

    /// Where `sector` of the array lies, or `None` beyond the end.
    #[inline]
    pub fn locate(&self, sector: Sector) -> Option<Location> {
        let stripe = sector.0 / self.stripe_data;
        let within = sector.0 % self.stripe_data;
        if stripe >= self.stripes {
            return None;
        }
        Some(Location {
            stripe: StripeNo(stripe),
            column: self.column_of(within),
            row: self.row_of(within),
        })
    }

    /// The column of an offset into the data of a stripe.
    #[inline]
    const fn column_of(&self, within: u64) -> u8 {
        // Less than data_columns, so at most 63.
        (within >> self.chunk_shift) as u8
    }

    /// The row of an offset into the data of a stripe.
    #[inline]
    const fn row_of(&self, within: u64) -> u32 {
        (within & ((1 << self.chunk_shift) - 1)) as u32
    }

    /// The sector of the array at a location, or `None` where the array has no such one.
    #[inline]
    pub const fn address(&self, stripe: StripeNo, column: u8, row: u32) -> Option<Sector> {
        if stripe.0 >= self.stripes || column >= self.data_columns || row >= self.chunk() {
            return None;
        }
        let start = stripe.0.saturating_mul(self.stripe_data.get());
        let within = ((column as u64) << self.chunk_shift) + row as u64;
        Some(Sector(start.saturating_add(within)))
    }

    /// Where a row of a stripe lies on every member, counted from where its data starts.
    ///
    /// Of use only for a stripe of the array and a row of the chunk.
    #[inline]
    pub const fn member_sector(&self, stripe: StripeNo, row: u32) -> Sector {
        Sector((stripe.0 << self.chunk_shift).saturating_add(row as u64))
    }

    /// The stripe that a position on a member belongs to, counted from where its data starts.
    #[inline]
    pub const fn stripe_at(&self, member_sector: Sector) -> StripeNo {
        StripeNo(member_sector.0 >> self.chunk_shift)
    }

    /// The bands of a request, in the order of stripes and rows.
    ///
    /// No band is higher than `max_rows` sectors (0 is taken as 1); cuts fall on multiples of it
    /// from the start of the chunk. Empty for a request that does not lie within the array:
    /// ask [`Geometry::contains`] first.
    #[inline]
    pub fn bands(&self, start: Sector, len: Sectors, max_rows: u32) -> Bands {
        let max_rows = NonZeroU32::new(max_rows).unwrap_or(NonZeroU32::MIN);
        Bands {
            stripes: StripeRanges::new(self, start, len),
            range: None,
            part: 0,
            row: 0,
            max_rows,
        }
    }

    /// The pieces of a request, one for each chunk it touches, in the order of the request.
    ///
    /// Empty for a request that does not lie within the array: ask [`Geometry::contains`] first.
    #[inline]
    pub fn pieces(&self, start: Sector, len: Sectors) -> Pieces {
        let len = if self.contains(start, len) {
            len
        } else {
            Sectors::ZERO
        };
        Pieces {
            geometry: *self,
            start,
            done: 0,
            len: len.0,
        }
    }
}

/// Checks the number of members of a level.
fn check_members(level: Level, members: u8) -> Result<(), Refusal> {
    let (min, max) = (level.members_min(), MAX_SLOTS);
    if members < min || usize::from(members) > max {
        return Err(refuse!(
            Errno::Inval,
            "{} takes {min} to {max} members, not {members}",
            level.as_str()
        ));
    }
    Ok(())
}

/// Checks the size of a chunk.
fn check_chunk(chunk: Sectors) -> Result<(), Refusal> {
    if !chunk.0.is_power_of_two() || chunk < CHUNK_MIN || chunk > CHUNK_MAX {
        return Err(refuse!(
            Errno::Inval,
            "chunk of {chunk} sectors: it has to be a power of two from {CHUNK_MIN} to {CHUNK_MAX}"
        ));
    }
    Ok(())
}

/// Rows of a stripe: sectors into each of its chunks, from `lo` to before `hi`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rows {
    /// The first row.
    pub lo: u32,
    /// The row behind the last one.
    pub hi: u32,
}

impl Rows {
    /// No row.
    pub const NONE: Rows = Rows { lo: 0, hi: 0 };

    /// How many rows there are.
    #[inline]
    pub const fn len(self) -> u32 {
        self.hi.saturating_sub(self.lo)
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.hi <= self.lo
    }

    /// Whether there is no row between these and `other`, neither being empty.
    #[inline]
    pub const fn touches(self, other: Rows) -> bool {
        self.lo <= other.hi && other.lo <= self.hi
    }

    /// Whether all rows of `other` are among these.
    #[inline]
    pub const fn contains(self, other: Rows) -> bool {
        other.is_empty() || (self.lo <= other.lo && other.hi <= self.hi)
    }

    /// The rows of both.
    #[inline]
    pub fn common(self, other: Rows) -> Rows {
        let lo = self.lo.max(other.lo);
        Rows {
            lo,
            hi: self.hi.min(other.hi).max(lo),
        }
    }

    /// From the first row of either to the last of either.
    #[inline]
    pub fn hull(self, other: Rows) -> Rows {
        match (self.is_empty(), other.is_empty()) {
            (true, _) => other,
            (_, true) => self,
            (false, false) => Rows {
                lo: self.lo.min(other.lo),
                hi: self.hi.max(other.hi),
            },
        }
    }
}

/// Rows of one stripe in which a request touches the same data columns, which are adjacent.
///
/// The part of a request in one stripe consists of at most three bands, before `max_rows` cuts
/// them: within one row of chunks a request starts somewhere in its first column and ends
/// somewhere in its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// The stripe.
    pub stripe: StripeNo,
    /// The rows.
    pub rows: Rows,
    /// The first data column touched.
    pub first: u8,
    /// The last data column touched.
    pub last: u8,
}

impl Band {
    /// How many data columns the band touches, at least 1.
    #[inline]
    pub const fn columns(&self) -> u8 {
        self.last.saturating_sub(self.first).saturating_add(1)
    }

    /// Whether the request touches every data column in these rows.
    #[inline]
    pub const fn is_full(&self, geometry: &Geometry) -> bool {
        self.columns() >= geometry.data_columns()
    }

    /// Whether the band touches `column`.
    #[inline]
    pub const fn has(&self, column: u8) -> bool {
        self.first <= column && column <= self.last
    }

    /// Whether any block of `other` is a block of this band.
    #[inline]
    pub fn meets(&self, other: &Band) -> bool {
        self.stripe == other.stripe
            && !self.rows.common(other.rows).is_empty()
            && self.first <= other.last
            && other.first <= self.last
    }

    /// Whether all blocks of `other` are blocks of this band.
    #[inline]
    pub fn contains(&self, other: &Band) -> bool {
        self.stripe == other.stripe
            && self.rows.lo <= other.rows.lo
            && other.rows.hi <= self.rows.hi
            && self.first <= other.first
            && other.last <= self.last
    }

    /// Where the rows of `column` lie in the request that starts at `start`.
    ///
    /// They are contiguous there, `rows.len()` sectors long. `None` for a column which the band
    /// does not touch.
    #[inline]
    pub fn request_offset(
        &self,
        geometry: &Geometry,
        start: Sector,
        column: u8,
    ) -> Option<Sectors> {
        if !self.has(column) {
            return None;
        }
        geometry
            .address(self.stripe, column, self.rows.lo)?
            .checked_since(start)
    }
}

/// The part of a request within one stripe, as offsets into the data of the stripe.
#[derive(Clone, Copy, Debug)]
struct StripeRange {
    stripe: StripeNo,
    from: u64,
    /// Behind the last sector, greater than `from`.
    to: u64,
}

/// Cuts a request at the borders of stripes.
#[derive(Clone, Debug)]
struct StripeRanges {
    geometry: Geometry,
    next: u64,
    end: u64,
}

impl StripeRanges {
    #[inline]
    fn new(geometry: &Geometry, start: Sector, len: Sectors) -> StripeRanges {
        let end = if geometry.contains(start, len) {
            start.0.saturating_add(len.0)
        } else {
            start.0
        };
        StripeRanges {
            geometry: *geometry,
            next: start.0,
            end,
        }
    }
}

impl Iterator for StripeRanges {
    type Item = StripeRange;

    #[inline]
    fn next(&mut self) -> Option<StripeRange> {
        if self.next >= self.end {
            return None;
        }
        let width = self.geometry.stripe_data;
        let from = self.next % width;
        let len = (self.end - self.next).min(width.get() - from);
        let stripe = StripeNo(self.next / width);
        self.next = self.next.saturating_add(len);
        Some(StripeRange {
            stripe,
            from,
            to: from + len,
        })
    }
}

/// Number of parts that [`StripeRange::part`] cuts a stripe's share of a request into.
const PARTS: u8 = 3;

impl StripeRange {
    /// The uncut band number `part` of the range, 0 to 2, in the order of rows; it can be empty.
    ///
    /// With c0, r0 the column and row of the first sector, c1, r1 those of the last one and
    /// r1' = r1 + 1, a row touches c0 if it is at least r0, c1 if it is below r1', and every
    /// column between. So the borders are r0 and r1', whichever comes first.
    #[inline]
    fn part(&self, geometry: &Geometry, part: u8) -> Band {
        let c0 = geometry.column_of(self.from);
        let r0 = geometry.row_of(self.from);
        let c1 = geometry.column_of(self.to - 1);
        let r1 = geometry.row_of(self.to - 1) + 1;
        let chunk = geometry.chunk();
        let (lo, hi, first, last) = if c0 == c1 {
            match part {
                0 => (r0, r1, c0, c0),
                _ => (r1, r1, c0, c0),
            }
        } else {
            match part {
                0 => (0, r0.min(r1), c0 + 1, c1),
                1 if r0 < r1 => (r0, r1, c0, c1),
                // No column at all where c0 and c1 are neighbours.
                1 if c0 + 1 == c1 => (r1, r1, c0, c0),
                1 => (r1, r0, c0 + 1, c1 - 1),
                _ => (r0.max(r1), chunk, c0, c1 - 1),
            }
        };
        Band {
            stripe: self.stripe,
            rows: Rows { lo, hi },
            first,
            last,
        }
    }
}

/// Iterator over the bands of a request; see [`Geometry::bands`].
#[derive(Clone, Debug)]
pub struct Bands {
    stripes: StripeRanges,
    /// The stripe at hand, if it has parts left.
    range: Option<StripeRange>,
    /// Number of the part at hand.
    part: u8,
    /// Rows below this one are done in the part at hand.
    row: u32,
    max_rows: NonZeroU32,
}

impl Bands {
    /// The part at hand, less what was handed out of it already.
    #[inline]
    fn rest(&mut self) -> Option<Band> {
        loop {
            let range = match self.range {
                Some(range) => range,
                None => {
                    self.part = 0;
                    self.row = 0;
                    self.stripes.next()?
                }
            };
            self.range = Some(range);
            let mut band = range.part(&self.stripes.geometry, self.part);
            band.rows.lo = band.rows.lo.max(self.row);
            if !band.rows.is_empty() {
                return Some(band);
            }
            self.part += 1;
            if self.part >= PARTS {
                self.range = None;
            }
        }
    }
}

impl Iterator for Bands {
    type Item = Band;

    #[inline]
    fn next(&mut self) -> Option<Band> {
        let mut band = self.rest()?;
        // The next multiple of max_rows; beyond the chunk where max_rows exceeds it.
        let cut = (band.rows.lo / self.max_rows)
            .saturating_add(1)
            .saturating_mul(self.max_rows.get());
        band.rows.hi = band.rows.hi.min(cut);
        self.row = band.rows.hi;
        Some(band)
    }
}

/// What a request touches of one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The stripe.
    pub stripe: StripeNo,
    /// The data column.
    pub column: u8,
    /// The first sector within the chunk.
    pub row: u32,
    /// How many sectors, at least 1, all within the chunk.
    pub len: u32,
    /// The member that holds it: for RAID-1 slot 0, one of the copies.
    pub slot: Slot,
    /// The first sector on the member, counted from where its data starts.
    pub at: Sector,
    /// Where the piece starts in the request.
    pub offset: Sectors,
}

/// Iterator over the pieces of a request; see [`Geometry::pieces`].
#[derive(Clone, Debug)]
pub struct Pieces {
    geometry: Geometry,
    start: Sector,
    done: u64,
    len: u64,
}

impl Iterator for Pieces {
    type Item = Piece;

    #[inline]
    fn next(&mut self) -> Option<Piece> {
        let left = self.len.checked_sub(self.done).filter(|left| *left > 0)?;
        let offset = Sectors(self.done);
        let Location {
            stripe,
            column,
            row,
        } = self.geometry.locate(self.start.checked_add(offset)?)?;
        let room = self.geometry.chunk().saturating_sub(row);
        // Bounded by the chunk, so it fits.
        let len = left.min(u64::from(room)) as u32;
        self.done = self.done.saturating_add(u64::from(len));
        Some(Piece {
            stripe,
            column,
            row,
            len,
            slot: self.geometry.slot_of_data(stripe, column),
            at: self.geometry.member_sector(stripe, row),
            offset,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(level: Level, members: u8) -> Geometry {
        Geometry::new(level, members, Sectors(128), Sectors(128 * 100 + 5)).unwrap()
    }

    #[test]
    fn shapes() {
        let raid5 = geometry(Level::Raid5, 5);
        assert_eq!((raid5.data_columns(), raid5.parity()), (4, 1));
        assert_eq!(raid5.capacity(), Sectors(128 * 100 * 4));
        assert_eq!(raid5.component(), Sectors(128 * 100));
        let raid1 = geometry(Level::Raid1, 3);
        assert_eq!((raid1.data_columns(), raid1.parity()), (1, 2));
        assert_eq!(raid1.capacity(), Sectors(128 * 100));
        let raid6 = geometry(Level::Raid6, 64);
        assert_eq!((raid6.data_columns(), raid6.parity()), (62, 2));
        assert_eq!(raid6.all_slots().len(), 64);
    }

    #[test]
    fn bad_shapes_are_refused() {
        let new = |level, members, chunk, component| {
            Geometry::new(level, members, Sectors(chunk), Sectors(component)).map_err(|e| e.errno)
        };
        assert_eq!(new(Level::Raid5, 2, 128, 1000), Err(Errno::Inval));
        assert_eq!(new(Level::Raid6, 3, 128, 1000), Err(Errno::Inval));
        assert_eq!(new(Level::Raid0, 1, 128, 1000), Err(Errno::Inval));
        assert_eq!(new(Level::Raid1, 65, 128, 1000), Err(Errno::Inval));
        for chunk in [0, 1, 4, 100, 16384, u64::MAX, 1 << 63] {
            assert_eq!(new(Level::Raid5, 3, chunk, 1 << 40), Err(Errno::Inval));
        }
        assert_eq!(new(Level::Raid5, 3, 128, 127), Err(Errno::Inval));
        assert_eq!(new(Level::Raid0, 64, 128, 1 << 50), Err(Errno::FBig));
        assert_eq!(new(Level::Raid1, 2, 128, u64::MAX), Err(Errno::FBig));
        assert!(new(Level::Raid1, 2, 128, CAPACITY_MAX.get()).is_ok());
    }

    /// The table in md's documentation of the default RAID-5 layout with 5 members.
    #[test]
    fn left_symmetric_by_hand() {
        let raid5 = geometry(Level::Raid5, 5);
        let rows = [[0, 1, 2, 3, -1], [5, 6, 7, -1, 4], [10, 11, -1, 8, 9]];
        for (stripe, row) in rows.iter().enumerate() {
            for (slot, chunk) in row.iter().enumerate() {
                let expected = match u8::try_from(*chunk) {
                    Ok(chunk) => Role::Data(chunk - 4 * stripe as u8),
                    Err(_) => Role::P,
                };
                let role = raid5.role(StripeNo(stripe as u64), Slot::masked(slot as u64));
                assert_eq!(role, expected, "stripe {stripe} slot {slot}");
            }
        }
    }

    #[test]
    fn a_request_over_the_end_has_no_parts() {
        let raid5 = geometry(Level::Raid5, 5);
        let end = Sector(raid5.capacity().get());
        assert_eq!(raid5.locate(end), None);
        assert_eq!(raid5.bands(Sector(end.0 - 1), Sectors(2), 8).count(), 0);
        assert_eq!(raid5.pieces(Sector(end.0 - 1), Sectors(2)).count(), 0);
        assert_eq!(raid5.bands(Sector(u64::MAX), Sectors(2), 8).count(), 0);
        assert_eq!(raid5.bands(Sector(end.0 - 1), Sectors(1), 8).count(), 1);
        assert_eq!(raid5.pieces(end, Sectors(0)).count(), 0);
    }

    #[test]
    fn three_bands() {
        let raid5 = geometry(Level::Raid5, 5);
        // From row 100 of column 1 to row 28 of column 3, of stripe 2.
        let start = raid5.address(StripeNo(2), 1, 100).unwrap();
        let bands: Vec<_> = raid5
            .bands(start, Sectors(28 + 128 + 28), 128)
            .map(|b| (b.rows.lo, b.rows.hi, b.first, b.last))
            .collect();
        assert_eq!(bands, [(0, 28, 2, 3), (28, 100, 2, 2), (100, 128, 1, 2)]);
        let offset = |band: Band, column| band.request_offset(&raid5, start, column);
        let band = raid5.bands(start, Sectors(184), 128).next().unwrap();
        assert_eq!(offset(band, 2), Some(Sectors(28)));
        assert_eq!(offset(band, 3), Some(Sectors(156)));
        assert_eq!(offset(band, 1), None);
    }

    #[test]
    fn bands_contain_bands() {
        let band = |stripe, lo, hi, first, last| Band {
            stripe: StripeNo::new(stripe),
            rows: Rows { lo, hi },
            first,
            last,
        };
        let outer = band(3, 8, 24, 1, 2);
        assert!(outer.contains(&outer));
        assert!(outer.contains(&band(3, 16, 24, 2, 2)));
        for other in [
            band(4, 8, 24, 1, 2),
            band(3, 0, 24, 1, 2),
            band(3, 8, 32, 1, 2),
            band(3, 8, 24, 0, 2),
            band(3, 8, 24, 1, 3),
        ] {
            assert!(!outer.contains(&other), "{other:?}");
        }
    }
}
