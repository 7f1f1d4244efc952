// SPDX-License-Identifier: GPL-2.0

//! Limits of a disk, from its own needs and those of its members, if it has any.
//!
//! C header: [`include/linux/blkdev.h`](srctree/include/linux/blkdev.h)

use kernel::{
    bindings,
    error::code::*,
    prelude::*, //
};

use super::{
    device::MemberDevice,
    page::SECTOR_SIZE,
    sys, //
};

/// What a disk is like, apart from its members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LimitsConfig {
    /// The unit that can be addressed, in bytes: a power of two from 512 to the page size.
    pub(crate) logical_block_size: u32,
    /// The unit that is written at once, in bytes: a power of two, not below the logical block size.
    /// Members with larger ones make it larger.
    pub(crate) physical_block_size: u32,
    /// The preferred smallest request, in bytes: the chunk.
    pub(crate) io_min: u32,
    /// The preferred request, in bytes: the data of a stripe.
    pub(crate) io_opt: u32,
    /// The largest request, in 512-byte sectors. At least a page; rounded down to logical blocks.
    pub(crate) max_hw_sectors: u32,
    /// The largest request to write zeros, in 512-byte sectors; 0 if there are none.
    pub(crate) max_write_zeroes_sectors: u32,
    /// What requests to discard are for; `None` if there are none.
    pub(crate) discard: Option<DiscardLimits>,
    /// Whether small writes need reads first, as with parity.
    pub(crate) partial_stripes_expensive: bool,
    /// Whether there is a volatile write cache, so that flushes make a difference.
    pub(crate) write_cache: bool,
    /// Whether the disk rotates itself; it does, too, if a member does.
    pub(crate) rotational: bool,
}

/// What of a disk can be discarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DiscardLimits {
    /// The unit in which discards take effect, in bytes: a power of two, since the block layer
    /// rounds by bits.
    pub(crate) granularity: u32,
    /// The largest request, in 512-byte sectors.
    pub(crate) max_sectors: u32,
}

/// The limits of a disk.
///
/// Data is copied between requests and the members' commands, or these borrow whole blocks of the
/// requests' memory. So limits on its shape are not taken from members but for alignment; the members'
/// own queues split commands as needed.
#[derive(Clone)]
pub(crate) struct Limits {
    config: LimitsConfig,
    stacked: bindings::queue_limits,
}

impl Limits {
    /// Limits of a disk without members yet.
    pub(crate) fn new(config: LimitsConfig) -> Self {
        let mut stacked = pin_init::zeroed();

        // SAFETY: The limits are valid for writes.
        unsafe { bindings::blk_set_stacking_limits(&mut stacked) };
        stacked.logical_block_size = config.logical_block_size;
        stacked.physical_block_size = config.physical_block_size;
        // Multiples of the physical block size are expected, or members count as misaligned.
        stacked.io_min = config.physical_block_size;
        Self { config, stacked }
    }

    /// Adds a member whose data starts at sector `data_start`. Task context.
    ///
    /// # Errors
    ///
    /// [`EINVAL`] if the member cannot address blocks as small as the disk's; then nothing is
    /// changed.
    pub(crate) fn stack_member(&mut self, dev: &MemberDevice, data_start: u64) -> Result {
        if dev.logical_block_size() > self.config.logical_block_size {
            return Err(EINVAL);
        }
        // SAFETY: The limits and the device are valid, the prefix is a C string.
        unsafe {
            bindings::queue_limits_stack_bdev(
                &mut self.stacked,
                dev.bdev(),
                data_start,
                c"eraid".as_char_ptr(),
            )
        };
        Ok(())
    }

    /// The limits in the form of the block layer.
    ///
    /// Of what was stacked only this is kept: physical block size, alignment, DMA alignment and
    /// whether members rotate. The rest is set here or left to the block layer's defaults, which
    /// zero stands for.
    pub(super) fn to_raw(&self) -> bindings::queue_limits {
        let mut features = self.stacked.features & sys::ERAID_CONST_BLK_FEAT_ROTATIONAL;
        if self.config.rotational {
            features |= sys::ERAID_CONST_BLK_FEAT_ROTATIONAL;
        }
        if self.config.write_cache {
            features |= sys::ERAID_CONST_BLK_FEAT_WRITE_CACHE | sys::ERAID_CONST_BLK_FEAT_FUA;
        }
        if self.config.partial_stripes_expensive {
            features |= sys::ERAID_CONST_BLK_FEAT_RAID_PARTIAL_STRIPES_EXPENSIVE;
        }

        bindings::queue_limits {
            features,
            flags: self.stacked.flags,
            logical_block_size: self.config.logical_block_size,
            physical_block_size: self.stacked.physical_block_size,
            alignment_offset: self.stacked.alignment_offset,
            io_min: self.config.io_min,
            io_opt: self.config.io_opt,
            max_hw_sectors: self.config.max_hw_sectors,
            max_write_zeroes_sectors: self.config.max_write_zeroes_sectors,
            max_hw_discard_sectors: self.config.discard.map_or(0, |discard| discard.max_sectors),
            max_user_discard_sectors: u32::MAX,
            discard_granularity: self.config.discard.map_or(0, |discard| discard.granularity),
            max_segments: u16::MAX,
            max_segment_size: u32::MAX,
            dma_alignment: self.stacked.dma_alignment,
            ..pin_init::zeroed()
        }
    }

    /// Tests what the block layer would refuse with a warning.
    pub(super) fn check(&self) -> Result {
        let block = self.config.logical_block_size;

        if !block.is_power_of_two()
            || (block as usize) < SECTOR_SIZE
            || block as usize > kernel::page::PAGE_SIZE
            || !self.config.physical_block_size.is_power_of_two()
            || self.config.physical_block_size < block
            || (self.config.max_hw_sectors as usize) < kernel::page::PAGE_SIZE / SECTOR_SIZE
        {
            return Err(EINVAL);
        }
        Ok(())
    }
}
