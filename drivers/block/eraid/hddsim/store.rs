// SPDX-License-Identifier: GPL-2.0

//! The content of a drive, and what of it would survive a loss of power.
//!
//! Blocks that were never written have no memory and read as zeros. Each other block has what reads
//! get, and, while some of its sectors are not durable, what the medium holds.

use kernel::{
    prelude::*,
    rbtree::{RBTree, RBTreeNodeReservation},
};

use crate::kapi::{page::PageBuf, request::Request};
use eraid_hddsim_model::{
    powercut::PowerCut,
    units::{Extent, BLOCK_SIZE, SECTORS_PER_BLOCK, SECTOR_SIZE},
};

/// Bytes of a block.
const BLOCK: usize = BLOCK_SIZE as usize;
/// Bytes of a sector.
const SECTOR: usize = SECTOR_SIZE as usize;
/// Blocks that one call of [`Store::resolve`] looks at.
const RESOLVE_BATCH: usize = 64;

/// A part of one block.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    /// The block.
    pub(crate) block: u64,
    /// The first byte in it.
    pub(crate) from: usize,
    /// The number of bytes.
    pub(crate) len: usize,
}

impl Part {
    /// The sectors of the block that the part has, one bit each.
    fn mask(self) -> u8 {
        (0..SECTORS_PER_BLOCK as usize)
            .filter(|index| (self.from..self.from + self.len).contains(&(index * SECTOR)))
            .fold(0, |mask, index| mask | 1 << index)
    }

    /// The parts of an extent, each with the byte of the extent that it starts at.
    pub(crate) fn all_of(extent: Extent) -> impl Iterator<Item = (usize, Part)> {
        let (mut at, end) = (extent.sector * SECTOR as u64, extent.end() * SECTOR as u64);
        let start = at;
        core::iter::from_fn(move || {
            let part = Part {
                block: at / BLOCK as u64,
                // CAST: Less than a block.
                from: (at % BLOCK as u64) as usize,
                len: (end.saturating_sub(at)).min(BLOCK as u64 - at % BLOCK as u64) as usize,
            };
            let offset = (at - start) as usize;
            at += part.len as u64;
            (part.len > 0).then_some((offset, part))
        })
    }
}

/// A block that was written.
pub(crate) struct Stored {
    /// What reads get.
    current: PageBuf,
    /// What the medium holds in sectors that are not durable; zeros if there is none.
    medium: Option<PageBuf>,
    /// Sectors that are not durable, one bit each.
    volatile: u8,
    /// The numbers of the writes that wrote these sectors last.
    writers: [u64; SECTORS_PER_BLOCK as usize],
    /// When it was written last, in terms of [`Store::epoch`].
    epoch: u64,
}

impl Stored {
    /// A block of zeros, in `page`.
    fn new(page: PageBuf) -> Self {
        Self {
            current: page,
            medium: None,
            volatile: 0,
            writers: [0; SECTORS_PER_BLOCK as usize],
            epoch: 0,
        }
    }

    /// Notes that write number `writer` wrote the sectors of `mask`.
    fn written(&mut self, mask: u8, writer: u64, epoch: u64) {
        self.volatile |= mask;
        self.epoch = epoch;
        for (index, last) in self.writers.iter_mut().enumerate() {
            if mask & 1 << index != 0 {
                *last = writer;
            }
        }
    }

    /// Keeps what the medium holds in those sectors of `mask` that are durable now; returns whether
    /// there was memory for it.
    fn keep_medium(&mut self, mask: u8, spare: &mut Option<PageBuf>) -> bool {
        let durable = mask & !self.volatile;
        if durable == 0 {
            return true;
        }
        // Sectors that are volatile already and have none here have zeros on the medium.
        let Some(mut medium) = self.medium.take().or_else(|| spare.take()) else {
            return false;
        };
        for index in bits(durable) {
            // Both have one page.
            let _ = medium.copy_from_buf(index * SECTOR, &self.current, index * SECTOR, SECTOR);
        }
        self.medium = Some(medium);
        true
    }

    /// The sectors of `mask` are on the medium as they are.
    fn durable(&mut self, mask: u8) {
        self.volatile &= !mask;
        if self.volatile == 0 {
            self.medium = None;
        }
    }

    /// Power is lost: each sector is what the cut leaves of it.
    fn resolve(&mut self, block: u64, cut: &PowerCut) {
        for index in bits(self.volatile) {
            let sector = block * u64::from(SECTORS_PER_BLOCK) + index as u64;
            let writer = self.writers.get(index).copied().unwrap_or(0);
            if cut.keeps(writer, sector) {
                continue;
            }
            let at = index * SECTOR;
            // Both have one page.
            let _ = match &self.medium {
                Some(medium) => self.current.copy_from_buf(at, medium, at, SECTOR),
                None => self.current.zero(at, SECTOR),
            };
        }
        self.volatile = 0;
        self.medium = None;
    }
}

/// The numbers of the bits that are set.
fn bits(mask: u8) -> impl Iterator<Item = usize> {
    (0..8).filter(move |index| mask & 1 << index != 0)
}

/// A part of a write on its way into the store, with memory for all that may be needed.
pub(crate) struct Incoming {
    stored: Stored,
    node: RBTreeNodeReservation<u64, Stored>,
    /// For what the medium holds.
    medium: Option<PageBuf>,
    part: Part,
    /// Whether all of it is zeros.
    zeros: bool,
}

/// What became of an [`Incoming`].
pub(crate) enum Entered {
    /// It is stored.
    Stored,
    /// It needs memory for what the medium holds.
    NeedsMedium(Incoming),
}

impl Incoming {
    /// Copies a part of a write out of its request. Task context; allocates memory.
    pub(crate) fn copy(rq: &Request, offset: usize, part: Part, zero: &PageBuf) -> Result<Self> {
        let mut page = PageBuf::zeroed(1)?;
        rq.copy_to_buf(offset, &mut page, part.from, part.len)?;
        Ok(Self {
            zeros: page.equals(part.from, zero, part.from, part.len)?,
            stored: Stored::new(page),
            node: RBTreeNodeReservation::new(GFP_KERNEL)?,
            medium: None,
            part,
        })
    }

    /// Adds memory for what the medium holds. Task context.
    pub(crate) fn with_medium(mut self) -> Result<Self> {
        self.medium = Some(PageBuf::zeroed(1)?);
        Ok(self)
    }
}

/// See the [module description](self).
pub(crate) struct Store {
    blocks: RBTree<u64, Stored>,
    /// Counts how often the law of failures changed: what was written since then is healed.
    epoch: u64,
}

impl Store {
    /// A drive full of zeros.
    pub(crate) fn new() -> Self {
        Self {
            blocks: RBTree::new(),
            epoch: 1,
        }
    }

    /// All blocks may fail again as the law says, written or not.
    pub(crate) fn new_epoch(&mut self) {
        self.epoch = self.epoch.saturating_add(1);
    }

    /// Whether a block was written in this epoch.
    pub(crate) fn is_rewritten(&self, block: u64) -> bool {
        self.blocks
            .get(&block)
            .is_some_and(|stored| stored.epoch == self.epoch)
    }

    /// Stores a part of write number `writer`, not durable yet. Any context.
    ///
    /// Zeros need no memory where there are zeros, unless `keep_zeros`.
    pub(crate) fn enter(
        &mut self,
        mut incoming: Incoming,
        writer: u64,
        keep_zeros: bool,
    ) -> Entered {
        let (part, epoch) = (incoming.part, self.epoch);
        let Some(stored) = self.blocks.get_mut(&part.block) else {
            if !incoming.zeros || keep_zeros {
                incoming.stored.written(part.mask(), writer, epoch);
                let node = incoming.node.into_node(part.block, incoming.stored);
                self.blocks.insert(node);
            }
            return Entered::Stored;
        };
        if !stored.keep_medium(part.mask(), &mut incoming.medium) {
            return Entered::NeedsMedium(incoming);
        }
        let new = &incoming.stored.current;
        // Both have one page.
        let _ = stored
            .current
            .copy_from_buf(part.from, new, part.from, part.len);
        stored.written(part.mask(), writer, epoch);
        Entered::Stored
    }

    /// Copies a part to a read, if there is anything but zeros; returns whether there is. Any context.
    pub(crate) fn copy_to(&self, rq: &Request, offset: usize, part: Part) -> Result<bool> {
        match self.blocks.get(&part.block) {
            Some(stored) => {
                rq.copy_from_buf(offset, &stored.current, part.from, part.len)?;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// What an extent holds now is on the medium. Any context.
    pub(crate) fn durable(&mut self, extent: Extent) {
        for (_, part) in Part::all_of(extent) {
            if let Some(stored) = self.blocks.get_mut(&part.block) {
                stored.durable(part.mask());
            }
        }
    }

    /// Applies a loss of power to some blocks from `block` on; returns the block to go on with, if
    /// there are more. Any context.
    pub(crate) fn resolve(&mut self, block: u64, cut: &PowerCut) -> Option<u64> {
        let mut cursor = self.blocks.cursor_lower_bound_mut(&block)?;
        for _ in 0..RESOLVE_BATCH {
            let (number, stored) = cursor.current_mut();
            stored.resolve(*number, cut);
            cursor = cursor.move_next()?;
        }
        Some(*cursor.current().0)
    }
}
