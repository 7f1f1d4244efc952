// SPDX-License-Identifier: GPL-2.0

//! Superblock: the description of the array that every member carries twice.
//!
//! Documentation/on-disk-format.rst has every field. Decoding checks all of them, so that a
//! [`Superblock`] never holds a value that the rest of the driver would have to doubt.

use crate::crc32c::{checksum_around, Crc32c};
use crate::geometry::{Geometry, Level};
use crate::layout::{superblock, Area, FrontLayout};
use crate::metapage::{Page, Side, GENERATION_MAX, PAGE_SIZE};
use crate::regionmap::Regions;
use crate::units::{Generation, Sector, Sectors, Slot, SlotSet, Uuid, MAX_SLOTS};
use core::fmt;
use core::mem::offset_of;
use zerocopy::little_endian::{U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of a superblock.
pub const MAGIC: [u8; 8] = *b"eRAIDsb1";

/// The format described here.
pub const VERSION: u32 = 1;

/// Longest name of an array, in bytes.
pub const NAME_MAX: usize = 32;

/// md's number of the left-symmetric layout, of RAID-5 and RAID-6.
const LAYOUT_LEFT_SYMMETRIC: u32 = 2;

/// Name of an array: 1 to [`NAME_MAX`] of `A-Z a-z 0-9 _ . -`, not starting with a dot.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ArrayName([u8; NAME_MAX]);

impl ArrayName {
    /// No name, which no array has.
    const BLANK: ArrayName = ArrayName([0; NAME_MAX]);

    /// Checks a name.
    pub fn new(name: &str) -> Option<ArrayName> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
        if name.is_empty() || name.starts_with('.') || !name.bytes().all(allowed) {
            return None;
        }
        let mut bytes = [0; NAME_MAX];
        bytes
            .get_mut(..name.len())?
            .copy_from_slice(name.as_bytes());
        Some(ArrayName(bytes))
    }

    /// Checks a name that is padded with zeros.
    fn from_padded(bytes: [u8; NAME_MAX]) -> Option<ArrayName> {
        let name = ArrayName::new(ArrayName(bytes).as_str())?;
        // What stands behind the first zero is not in the name.
        (name.0 == bytes).then_some(name)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        let len = self.0.iter().position(|b| *b == 0).unwrap_or(NAME_MAX);
        // The name is ASCII, so this does not fail.
        core::str::from_utf8(self.0.get(..len).unwrap_or(&[])).unwrap_or("")
    }
}

impl fmt::Debug for ArrayName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// How the array stays consistent over a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// There is no redundancy that could become inconsistent.
    None,
    /// The region map says where the resync has to look.
    Bitmap,
}

impl Policy {
    /// The policy of an array of this level.
    pub const fn of(level: Level) -> Policy {
        match level {
            Level::Raid0 => Policy::None,
            Level::Raid1 | Level::Raid5 | Level::Raid6 => Policy::Bitmap,
        }
    }

    /// The word of `consistency_policy`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Policy::None => "none",
            Policy::Bitmap => "bitmap",
        }
    }

    /// The number on the disk.
    const fn number(self) -> u32 {
        match self {
            Policy::None => 0,
            Policy::Bitmap => 1,
        }
    }
}

/// State of a slot, as all members agree on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlotState {
    /// Never had a member; only behind the members of the array.
    #[default]
    Empty,
    /// Holds the right data, except in regions where the map calls it stale.
    InSync,
    /// Was failed; what it holds is out of date.
    Faulty,
    /// Waits to replace a member; only behind the members of the array.
    Spare,
    /// Is being rebuilt and holds the right data below this offset from the start of its data.
    Recovering(Sectors),
    /// Is not there: never was, or was removed. Behind the members: a spare was there.
    Missing,
}

impl SlotState {
    /// A word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            SlotState::Empty => "empty",
            SlotState::InSync => "in_sync",
            SlotState::Faulty => "faulty",
            SlotState::Spare => "spare",
            SlotState::Recovering(_) => "recovering",
            SlotState::Missing => "missing",
        }
    }

    /// The number on the disk and the offset beside it.
    const fn to_disk(self) -> (u32, u64) {
        match self {
            SlotState::Empty => (0, 0),
            SlotState::InSync => (1, 0),
            SlotState::Faulty => (2, 0),
            SlotState::Spare => (3, 0),
            SlotState::Recovering(offset) => (4, offset.get()),
            SlotState::Missing => (5, 0),
        }
    }

    /// The state of what is on the disk.
    fn from_disk(number: u32, offset: u64) -> Option<SlotState> {
        let state = match number {
            0 => SlotState::Empty,
            1 => SlotState::InSync,
            2 => SlotState::Faulty,
            3 => SlotState::Spare,
            4 => SlotState::Recovering(Sectors::new(offset)),
            5 => SlotState::Missing,
            _ => return None,
        };
        (state.to_disk() == (number, offset)).then_some(state)
    }

    /// Whether a member in this state carries a superblock.
    const fn has_member(self) -> bool {
        match self {
            SlotState::InSync | SlotState::Faulty | SlotState::Spare | SlotState::Recovering(_) => {
                true
            }
            SlotState::Empty | SlotState::Missing => false,
        }
    }
}

/// What the array knows of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotRecord {
    /// The member that is, or was, in the slot; nil for none.
    pub uuid: Uuid,
    /// Its state.
    pub state: SlotState,
    /// The generation of the superblock at which the state last changed.
    pub generation: Generation,
}

impl SlotRecord {
    /// A slot that never had a member.
    pub const EMPTY: SlotRecord = SlotRecord {
        uuid: Uuid::NIL,
        state: SlotState::Empty,
        generation: Generation::ZERO,
    };
}

/// A superblock, about 3 KiB: keep it off the kernel's stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Identity of the array.
    pub array: Uuid,
    /// Name of the array.
    pub name: ArrayName,
    /// Counts the writes of the superblock, from 1.
    pub generation: Generation,
    /// Features this version does not know, with which the array may only be read: while there are
    /// any, nothing may be written to the members.
    pub read_only_features: u64,
    /// Level, members, chunk and component.
    pub geometry: Geometry,
    /// Logical block size of the array in bytes: 512, 1024, 2048 or 4096.
    pub logical_block_size: u32,
    /// How the array stays consistent over a crash.
    pub policy: Policy,
    /// The array is running, or stopped without saying so.
    pub active: bool,
    /// Where everything lies on the members.
    pub front: FrontLayout,
    /// How the array is divided into regions.
    pub regions: Regions,
    /// The slot of the member that carries this superblock.
    pub slot: Slot,
    /// All slots.
    pub slots: [SlotRecord; MAX_SLOTS],
}

/// Why a superblock is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SbError {
    /// There is no superblock.
    NotOurs,
    /// The checksum is wrong: torn or rotten.
    Crc,
    /// It has another format.
    Version,
    /// It uses a feature that this version does not know.
    UnknownFeature,
    /// A field has a value which is never written.
    Nonsense(&'static str),
}

impl SbError {
    /// What is wrong, to go behind the name of the member.
    pub const fn as_str(self) -> &'static str {
        match self {
            SbError::NotOurs => "has no eRAID superblock",
            SbError::Crc => "has a superblock with a wrong checksum",
            SbError::Version => "has a superblock of a later version",
            SbError::UnknownFeature => "uses a feature this version does not know",
            SbError::Nonsense(what) => what,
        }
    }

    /// Whether a torn write explains it, so that the other superblock can be believed.
    ///
    /// Otherwise the checksum is right: what stands there was meant, possibly by a later version,
    /// and the other superblock may be out of date.
    #[inline]
    const fn is_torn(self) -> bool {
        matches!(self, SbError::NotOurs | SbError::Crc)
    }
}

/// Which of a member's two superblocks to use and where the next one goes.
///
/// Returns the newer one's generation and place; the next is written to the *other* place, so that
/// this one survives a torn write.
///
/// # Errors
///
/// Where neither is valid, or one of them shows that neither can be trusted.
pub fn choose(
    a: Result<&Superblock, SbError>,
    b: Result<&Superblock, SbError>,
) -> Result<Side, SbError> {
    match (a, b) {
        (Ok(a), Ok(b)) if a.array != b.array => {
            Err(SbError::Nonsense("has superblocks of two different arrays"))
        }
        (Ok(a), Ok(b)) if a.generation >= b.generation => Ok(Side::A),
        (Ok(_), Ok(_)) => Ok(Side::B),
        (Ok(_), Err(torn)) if torn.is_torn() => Ok(Side::A),
        (Err(torn), Ok(_)) if torn.is_torn() => Ok(Side::B),
        (Ok(_), Err(error)) | (Err(error), Ok(_)) => Err(error),
        // Of two errors the one that says more.
        (Err(a), Err(b)) if a.is_torn() && (b != SbError::NotOurs) => Err(b),
        (Err(a), Err(_)) => Err(a),
    }
}

/// A slot on the disk.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSlot {
    uuid: [u8; 16],
    state: U32,
    reserved: U32,
    generation: U64,
    recovery_offset: U64,
}

/// Part of the front on the disk.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawArea {
    start: U64,
    len: U64,
}

impl RawArea {
    fn set(&mut self, area: Area) {
        self.start.set(area.start.get());
        self.len.set(area.len.get());
    }

    fn get(&self) -> Area {
        Area {
            start: Sector::new(self.start.get()),
            len: Sectors::new(self.len.get()),
        }
    }
}

/// The superblock on the disk.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSuperblock {
    magic: [u8; 8],
    crc: U32,
    version: U32,
    array: [u8; 16],
    name: [u8; NAME_MAX],
    generation: U64,
    incompat: U64,
    ro_compat: U64,
    compat: U64,
    level: U32,
    layout: U32,
    raid_disks: U32,
    chunk: U32,
    component: U64,
    logical_block_size: U32,
    policy: U32,
    local_m: U32,
    local_k: U32,
    local_interleave: U32,
    local_code: U32,
    region_shift: U32,
    active: U32,
    reserved: [u8; 8],
    superblocks: [U64; 2],
    bad_blocks: RawArea,
    map: RawArea,
    checkpoint: RawArea,
    ppl: RawArea,
    data: U64,
    reserved2: [u8; 8],
    slot: U32,
    reserved3: U32,
    member: [u8; 16],
    reshape: [u8; 232],
    slots: [RawSlot; MAX_SLOTS],
    reserved4: [u8; 1024],
}

const _: () = assert!(size_of::<RawSuperblock>() == PAGE_SIZE);
const _: () = assert!(offset_of!(RawSuperblock, level) == 96);
const _: () = assert!(offset_of!(RawSuperblock, superblocks) == 160);
const _: () = assert!(offset_of!(RawSuperblock, slot) == 256);
const _: () = assert!(offset_of!(RawSuperblock, slots) == 512);

/// Offset of the checksum.
const CRC_AT: usize = offset_of!(RawSuperblock, crc);

impl Superblock {
    /// A superblock of nothing, to decode into or to fill in.
    pub const BLANK: Superblock = Superblock {
        array: Uuid::NIL,
        name: ArrayName::BLANK,
        generation: Generation::ZERO,
        read_only_features: 0,
        geometry: Geometry::SMALLEST,
        logical_block_size: 512,
        policy: Policy::Bitmap,
        active: false,
        front: FrontLayout::standard(),
        regions: Regions::ONE,
        slot: Slot::FIRST,
        slots: [SlotRecord::EMPTY; MAX_SLOTS],
    };

    /// The record of a slot.
    #[inline]
    pub fn record(&self, slot: Slot) -> &SlotRecord {
        self.slots.get(slot.index()).unwrap_or(&SlotRecord::EMPTY)
    }

    /// Changes the state of a slot, as of the next generation.
    pub fn set_state(&mut self, slot: Slot, state: SlotState) {
        let generation = self.generation.next();
        if let Some(record) = self.slots.get_mut(slot.index()) {
            record.state = state;
            record.generation = generation;
        }
    }

    /// Gives a slot to a member, in `state` as of the next generation.
    pub fn set_member(&mut self, slot: Slot, member: Uuid, state: SlotState) {
        if let Some(record) = self.slots.get_mut(slot.index()) {
            record.uuid = member;
        }
        self.set_state(slot, state);
    }

    /// A slot behind the members in which there is no spare.
    pub fn spare_slot(&self) -> Option<Slot> {
        let behind = SlotSet::first_n(MAX_SLOTS as u8).minus(self.geometry.all_slots());
        let free = |slot: &Slot| {
            matches!(
                self.record(*slot).state,
                SlotState::Empty | SlotState::Missing
            )
        };
        behind.iter().find(free)
    }

    /// Takes a spare out of its slot, as of the next generation.
    pub fn forget_spare(&mut self, slot: Slot) {
        self.set_member(slot, Uuid::NIL, SlotState::Missing);
    }

    /// The slot of a member or spare, wherever it is by now.
    pub fn slot_of(&self, member: Uuid) -> Option<Slot> {
        let all = SlotSet::first_n(MAX_SLOTS as u8);
        let mut all = all.iter();
        all.find(|slot| !member.is_nil() && self.record(*slot).uuid == member)
    }

    /// Identity of the member that carries this superblock.
    #[inline]
    pub fn member(&self) -> Uuid {
        self.record(self.slot).uuid
    }

    /// The slots of all members in a state that `wanted` accepts.
    pub fn slots_where(&self, wanted: impl Fn(SlotState) -> bool) -> SlotSet {
        let all = self.geometry.all_slots().iter();
        all.filter(|slot| wanted(self.record(*slot).state))
            .collect()
    }

    /// Writes the superblock of the member in `self.slot`.
    pub fn encode(&self, crc: Crc32c, page: &mut Page) {
        page.fill(0);
        let raw: &mut RawSuperblock = zerocopy::transmute_mut!(page);
        raw.magic = MAGIC;
        raw.version.set(VERSION);
        raw.array = *self.array.bytes();
        raw.name = self.name.0;
        raw.generation.set(self.generation.get());
        raw.ro_compat.set(self.read_only_features);
        raw.set_shape(self);
        raw.set_front(&self.front);
        raw.slot.set(u32::from(self.slot.get()));
        raw.member = *self.member().bytes();
        for (raw, record) in raw.slots.iter_mut().zip(&self.slots) {
            raw.set(record);
        }
        let sum = checksum_around(crc, page, CRC_AT);
        let raw: &mut RawSuperblock = zerocopy::transmute_mut!(page);
        raw.crc.set(sum);
    }

    /// Reads a superblock and checks every field.
    ///
    /// For callers with a deep stack; in the kernel use [`Superblock::decode_into`].
    ///
    /// # Errors
    ///
    /// Why it is not believed.
    #[cfg(not(CONFIG_RUST))]
    pub fn decode(page: &Page, crc: Crc32c) -> Result<Superblock, SbError> {
        let mut superblock = Superblock::BLANK;
        superblock.decode_into(page, crc)?;
        Ok(superblock)
    }

    /// Reads a superblock into this one and checks every field.
    ///
    /// # Errors
    ///
    /// Why it is not believed; what this one holds is of no use then.
    pub fn decode_into(&mut self, page: &Page, crc: Crc32c) -> Result<(), SbError> {
        let raw: &RawSuperblock = zerocopy::transmute_ref!(page);
        raw.check_identity(page, crc)?;
        self.array = raw.array()?;
        self.name = ArrayName::from_padded(raw.name).ok_or(SbError::Nonsense(
            "has a superblock with an impossible name",
        ))?;
        self.generation = raw.generation()?;
        self.read_only_features = raw.ro_compat.get();
        self.geometry = raw.geometry()?;
        self.logical_block_size = raw.logical_block_size()?;
        self.policy = raw.policy(self.geometry.level())?;
        self.active = raw.active()?;
        self.front = raw.front(&self.geometry)?;
        self.regions = raw.regions(&self.geometry, self.front.map)?;
        self.slot = raw.slot()?;
        self.decode_slots(raw)
    }

    /// Reads and checks the slots.
    fn decode_slots(&mut self, raw: &RawSuperblock) -> Result<(), SbError> {
        for (number, (record, raw)) in self.slots.iter_mut().zip(&raw.slots).enumerate() {
            let behind = number >= usize::from(self.geometry.members());
            *record = raw
                .get(&self.geometry, self.generation, behind)
                .ok_or(SbError::Nonsense(
                    "has a superblock with an impossible slot",
                ))?;
        }
        if self.has_twins() {
            return Err(SbError::Nonsense(
                "has a superblock with one member in two slots",
            ));
        }
        let own = self.record(self.slot);
        if own.uuid.bytes() != &raw.member || !own.state.has_member() {
            return Err(SbError::Nonsense(
                "has a superblock that contradicts itself about its slot",
            ));
        }
        Ok(())
    }

    /// Whether a member is in two slots.
    fn has_twins(&self) -> bool {
        let mut rest = self.slots.iter();
        while let Some(record) = rest.next() {
            if !record.uuid.is_nil() && rest.clone().any(|other| other.uuid == record.uuid) {
                return true;
            }
        }
        false
    }
}

impl RawSlot {
    fn set(&mut self, record: &SlotRecord) {
        let (state, offset) = record.state.to_disk();
        self.uuid = *record.uuid.bytes();
        self.state.set(state);
        self.generation.set(record.generation.get());
        self.recovery_offset.set(offset);
    }

    /// The record, if it is possible in the array; `behind` says that it is behind the members.
    fn get(&self, geometry: &Geometry, now: Generation, behind: bool) -> Option<SlotRecord> {
        let record = SlotRecord {
            uuid: Uuid::new(self.uuid),
            state: SlotState::from_disk(self.state.get(), self.recovery_offset.get())?,
            generation: Generation::new(self.generation.get()),
        };
        let possible = match record.state {
            SlotState::Empty => behind && record == SlotRecord::EMPTY,
            SlotState::Spare => behind && !record.uuid.is_nil(),
            SlotState::InSync => !behind && !record.uuid.is_nil(),
            SlotState::Recovering(offset) => {
                !behind
                    && !record.uuid.is_nil()
                    && geometry.parity() > 0
                    && offset <= geometry.component()
            }
            // Created without a member, or it is remembered.
            SlotState::Faulty => !behind,
            // Behind the members it remembers when a spare left.
            SlotState::Missing => !behind || record.uuid.is_nil(),
        };
        (possible && self.reserved.get() == 0 && record.generation <= now).then_some(record)
    }
}

impl RawSuperblock {
    /// Writes what describes the shape of the array.
    fn set_shape(&mut self, sb: &Superblock) {
        let geometry = &sb.geometry;
        self.level.set(geometry.level().number());
        self.layout.set(layout_number(geometry.level()));
        self.raid_disks.set(u32::from(geometry.members()));
        self.chunk.set(geometry.chunk());
        self.component.set(geometry.component().get());
        self.logical_block_size.set(sb.logical_block_size);
        self.policy.set(sb.policy.number());
        self.region_shift.set(u32::from(sb.regions.shift()));
        self.active.set(u32::from(sb.active));
    }

    /// Writes where everything lies.
    fn set_front(&mut self, front: &FrontLayout) {
        self.superblocks = Side::BOTH.map(|side| U64::new(superblock(side).get()));
        self.bad_blocks.set(front.bad_blocks);
        self.map.set(front.map);
        self.checkpoint.set(front.checkpoint);
        self.ppl.set(front.ppl);
        self.data.set(front.data.get());
    }

    /// Checks that the page is a superblock this version may interpret.
    fn check_identity(&self, page: &Page, crc: Crc32c) -> Result<(), SbError> {
        if self.magic != MAGIC {
            return Err(SbError::NotOurs);
        }
        if self.crc.get() != checksum_around(crc, page, CRC_AT) {
            return Err(SbError::Crc);
        }
        if self.version.get() != VERSION {
            return Err(SbError::Version);
        }
        // No incompatible feature is known yet. Of the compatible ones none is either: they are
        // ignored, and vanish with the next write.
        if self.incompat.get() != 0 {
            return Err(SbError::UnknownFeature);
        }
        let local = [
            self.local_m.get(),
            self.local_k.get(),
            self.local_interleave.get(),
            self.local_code.get(),
        ];
        if local != [0; 4] {
            return Err(SbError::Nonsense(
                "has local parity in a superblock without that feature",
            ));
        }
        self.check_reserved()
    }

    /// Checks that what has no meaning is zero, unless a feature gives it one.
    fn check_reserved(&self) -> Result<(), SbError> {
        let fields: [&[u8]; 5] = [
            &self.reserved,
            &self.reserved2,
            self.reserved3.as_ref(),
            &self.reshape,
            &self.reserved4,
        ];
        let used = fields.iter().any(|field| field.iter().any(|b| *b != 0));
        if used && self.compat.get() == 0 && self.ro_compat.get() == 0 {
            return Err(SbError::Nonsense(
                "has a superblock with reserved fields in use",
            ));
        }
        Ok(())
    }

    fn array(&self) -> Result<Uuid, SbError> {
        let array = Uuid::new(self.array);
        if array.is_nil() {
            return Err(SbError::Nonsense("has a superblock without identity"));
        }
        Ok(array)
    }

    fn generation(&self) -> Result<Generation, SbError> {
        match self.generation.get() {
            generation @ 1..=GENERATION_MAX => Ok(Generation::new(generation)),
            _ => Err(SbError::Nonsense(
                "has a superblock with an impossible generation",
            )),
        }
    }

    fn geometry(&self) -> Result<Geometry, SbError> {
        const IMPOSSIBLE: SbError = SbError::Nonsense("has a superblock with an impossible shape");
        let level = Level::from_number(self.level.get()).ok_or(IMPOSSIBLE)?;
        let members = u8::try_from(self.raid_disks.get()).map_err(|_| IMPOSSIBLE)?;
        let chunk = Sectors::new(u64::from(self.chunk.get()));
        let component = Sectors::new(self.component.get());
        let geometry = Geometry::new(level, members, chunk, component).map_err(|_| IMPOSSIBLE)?;
        if geometry.component() != component || self.layout.get() != layout_number(level) {
            return Err(IMPOSSIBLE);
        }
        Ok(geometry)
    }

    fn logical_block_size(&self) -> Result<u32, SbError> {
        match self.logical_block_size.get() {
            size @ (512 | 1024 | 2048 | 4096) => Ok(size),
            _ => Err(SbError::Nonsense(
                "has a superblock with an impossible block size",
            )),
        }
    }

    fn policy(&self, level: Level) -> Result<Policy, SbError> {
        let policy = Policy::of(level);
        if self.policy.get() != policy.number() {
            return Err(SbError::Nonsense(
                "has a superblock with an impossible consistency policy",
            ));
        }
        Ok(policy)
    }

    fn active(&self) -> Result<bool, SbError> {
        match self.active.get() {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(SbError::Nonsense(
                "has a superblock with an impossible state of the array",
            )),
        }
    }

    fn front(&self, geometry: &Geometry) -> Result<FrontLayout, SbError> {
        const IMPOSSIBLE: SbError = SbError::Nonsense("has a superblock with an impossible layout");
        let front = FrontLayout {
            bad_blocks: self.bad_blocks.get(),
            map: self.map.get(),
            checkpoint: self.checkpoint.get(),
            ppl: self.ppl.get(),
            data: Sector::new(self.data.get()),
        };
        front.validate().map_err(|_| IMPOSSIBLE)?;
        // Without a page for its list, no slot could have a bad block.
        if front.bad_blocks.pages() < u32::from(geometry.members()) {
            return Err(IMPOSSIBLE);
        }
        let fixed = Side::BOTH.map(|side| superblock(side).get());
        if self.superblocks.map(U64::get) != fixed {
            return Err(IMPOSSIBLE);
        }
        Ok(front)
    }

    fn regions(&self, geometry: &Geometry, map: Area) -> Result<Regions, SbError> {
        u8::try_from(self.region_shift.get())
            .ok()
            .and_then(|shift| Regions::new(geometry, shift, map))
            .ok_or(SbError::Nonsense(
                "has a superblock with an impossible region size",
            ))
    }

    fn slot(&self) -> Result<Slot, SbError> {
        u8::try_from(self.slot.get())
            .ok()
            .and_then(Slot::new)
            .ok_or(SbError::Nonsense("has a superblock without a slot"))
    }
}

/// The number of the layout: md's for the levels that have one.
const fn layout_number(level: Level) -> u32 {
    match level {
        Level::Raid0 | Level::Raid1 => 0,
        Level::Raid5 | Level::Raid6 => LAYOUT_LEFT_SYMMETRIC,
    }
}
