// SPDX-License-Identifier: GPL-2.0

//! The states of all regions, in shards with a lock each: writes to different regions share none.
//!
//! The locks of shards are leaf locks.

use core::pin::Pin;

use kernel::{new_spinlock_irq, prelude::*, sync::SpinLockIrq};

use eraid_core::{
    region::RegionState,
    regionmap::Regions,
    units::{RegionNo, StripeNo},
};

/// log2 of the number of shards.
const SHARD_SHIFT: u32 = 6;
const SHARDS: usize = 1 << SHARD_SHIFT;

#[pin_data]
struct Shard {
    /// Every [`SHARDS`]th region.
    #[pin]
    states: SpinLockIrq<KVec<RegionState>>,
}

/// See the [module description](self).
pub(crate) struct RegionTable {
    /// How the array is divided.
    pub(crate) layout: Regions,
    count: usize,
    shards: KVec<Pin<KBox<Shard>>>,
}

impl RegionTable {
    /// Takes the states of all regions, or none for an array without a map. May sleep.
    pub(crate) fn new(layout: Regions, states: KVec<RegionState>) -> Result<Self> {
        let count = states.len();
        let mut shards = KVec::with_capacity(SHARDS, GFP_KERNEL)?;
        for shard in 0..SHARDS {
            let mut own = KVec::with_capacity(count.div_ceil(SHARDS), GFP_KERNEL)?;
            for state in states.iter().skip(shard).step_by(SHARDS) {
                own.push(*state, GFP_KERNEL)?;
            }
            let init = pin_init!(Shard {
                states <- new_spinlock_irq!(own, "eraid::regions"),
            });
            shards.push(KBox::pin_init(init, GFP_KERNEL)?, GFP_KERNEL)?;
        }
        Ok(Self {
            layout,
            count,
            shards,
        })
    }

    /// How many regions there are; 0 for an array without a map.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Runs `look` on the state of a region, under the lock of its shard; `None` for an array
    /// without a map.
    pub(crate) fn with<R>(
        &self,
        number: RegionNo,
        look: impl FnOnce(&mut RegionState) -> R,
    ) -> Option<R> {
        let number = usize::try_from(number.get()).ok()?;
        let mut states = self.shards.get(number % SHARDS)?.states.lock();
        states.get_mut(number >> SHARD_SHIFT).map(look)
    }

    /// As [`Self::with`], for the region of a stripe.
    pub(crate) fn with_stripe<R>(
        &self,
        stripe: StripeNo,
        look: impl FnOnce(&mut RegionState) -> R,
    ) -> Option<R> {
        self.with(self.layout.region_of(stripe), look)
    }

    /// Whether `look` holds for any region; each is looked at by itself.
    pub(crate) fn any(&self, look: impl Fn(&RegionState) -> bool) -> bool {
        let mut shards = self.shards.iter();
        shards.any(|shard| shard.states.lock().iter().any(&look))
    }

    /// Runs `change` on all regions, one after the other.
    pub(crate) fn for_each(&self, mut change: impl FnMut(&mut RegionState)) {
        for shard in self.shards.iter() {
            shard.states.lock().iter_mut().for_each(&mut change);
        }
    }
}
