// SPDX-License-Identifier: GPL-2.0

//! Checkpoint: how far a rebuild and a scrub have come, in a page of its own.
//!
//! It may lag behind, never run ahead: what lies below an offset was done and flushed before the
//! page was written. Without a valid page, a rebuild goes on from what the superblock says and a
//! scrub starts over.

use crate::crc32c::Crc32c;
use crate::metapage::{seal, Kind, Page, PageError, PageId, RawHeader, BODY_SIZE};
use crate::units::{Generation, Sectors, Slot, Uuid};
use zerocopy::little_endian::{U32, U64};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Number of the only page.
pub const PAGE_NUMBER: u32 = 0;

/// How far a rebuild has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebuild {
    /// The slot.
    pub slot: Slot,
    /// The member in it; of no use for any other.
    pub member: Uuid,
    /// From the start of its data up to here it is right.
    pub done: Sectors,
}

/// What a scrub does with a stripe that does not add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubKind {
    /// Counts it.
    Check,
    /// Counts and corrects it.
    Repair,
}

/// How far a scrub has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scrub {
    /// What it does.
    pub kind: ScrubKind,
    /// From the start of the members' data up to here it is done.
    pub done: Sectors,
    /// Sectors that did not add up so far.
    pub mismatches: u64,
}

/// How far everything has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// The rebuild, if there is one.
    pub rebuild: Option<Rebuild>,
    /// The scrub, if there is one.
    pub scrub: Option<Scrub>,
}

/// The page on the disk.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawCheckpoint {
    header: RawHeader,
    rebuild: U32,
    slot: U32,
    member: [u8; 16],
    rebuild_done: U64,
    scrub: U32,
    reserved: U32,
    scrub_done: U64,
    mismatches: U64,
    reserved2: [u8; BODY_SIZE - 56],
}

/// Value of `rebuild` while there is one.
const REBUILD: u32 = 1;

/// Value of `scrub` while there is a check.
const SCRUB_CHECK: u32 = 1;

/// Value of `scrub` while there is a repair.
const SCRUB_REPAIR: u32 = 2;

impl Checkpoint {
    /// Writes the page.
    pub fn encode(&self, page: &mut Page, crc: Crc32c, array: Uuid, generation: Generation) {
        page.fill(0);
        let raw: &mut RawCheckpoint = zerocopy::transmute_mut!(page);
        let number = PAGE_NUMBER;
        raw.header = RawHeader::new(Kind::Checkpoint, PageId { array, number }, generation, 0);
        if let Some(rebuild) = &self.rebuild {
            raw.rebuild.set(REBUILD);
            raw.slot.set(u32::from(rebuild.slot.get()));
            raw.member = *rebuild.member.bytes();
            raw.rebuild_done.set(rebuild.done.get());
        }
        if let Some(scrub) = &self.scrub {
            raw.scrub.set(match scrub.kind {
                ScrubKind::Check => SCRUB_CHECK,
                ScrubKind::Repair => SCRUB_REPAIR,
            });
            raw.scrub_done.set(scrub.done.get());
            raw.mismatches.set(scrub.mismatches);
        }
        seal(page, crc);
    }

    /// Reads the page of an array with `members` slots and `component` of data on each.
    ///
    /// # Errors
    ///
    /// Why the page is not believed.
    pub fn decode(
        page: &Page,
        crc: Crc32c,
        array: Uuid,
        members: u8,
        component: Sectors,
    ) -> Result<(Generation, Checkpoint), PageError> {
        let raw: &RawCheckpoint = zerocopy::transmute_ref!(page);
        let number = PAGE_NUMBER;
        let id = PageId { array, number };
        let generation = raw.header.check(Kind::Checkpoint, id, page, crc)?;
        let unused = raw.reserved.get() == 0 && raw.reserved2.iter().all(|b| *b == 0);
        if !unused || raw.header.count() != 0 {
            return Err(PageError::Nonsense("has reserved fields in use"));
        }
        let checkpoint = Checkpoint {
            rebuild: raw
                .rebuild(members, component)
                .ok_or(PageError::Nonsense("has an impossible rebuild"))?,
            scrub: raw
                .scrub(component)
                .ok_or(PageError::Nonsense("has an impossible scrub"))?,
        };
        Ok((generation, checkpoint))
    }
}

impl RawCheckpoint {
    /// The rebuild, or `None` where it is impossible.
    fn rebuild(&self, members: u8, component: Sectors) -> Option<Option<Rebuild>> {
        let slot = u8::try_from(self.slot.get()).ok().and_then(Slot::new)?;
        let rebuild = Rebuild {
            slot,
            member: Uuid::new(self.member),
            done: Sectors::new(self.rebuild_done.get()),
        };
        match self.rebuild.get() {
            0 => {
                let unused =
                    slot == Slot::FIRST && rebuild.member.is_nil() && rebuild.done == Sectors::ZERO;
                unused.then_some(None)
            }
            REBUILD => {
                let possible =
                    slot.get() < members && !rebuild.member.is_nil() && rebuild.done <= component;
                possible.then_some(Some(rebuild))
            }
            _ => None,
        }
    }

    /// The scrub, or `None` where it is impossible.
    fn scrub(&self, component: Sectors) -> Option<Option<Scrub>> {
        let kind = match self.scrub.get() {
            0 => {
                let unused = self.scrub_done.get() == 0 && self.mismatches.get() == 0;
                return unused.then_some(None);
            }
            SCRUB_CHECK => ScrubKind::Check,
            SCRUB_REPAIR => ScrubKind::Repair,
            _ => return None,
        };
        let scrub = Scrub {
            kind,
            done: Sectors::new(self.scrub_done.get()),
            mismatches: self.mismatches.get(),
        };
        (scrub.done <= component).then_some(Some(scrub))
    }
}
