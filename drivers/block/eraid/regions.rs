// SPDX-License-Identifier: GPL-2.0

//! The states of all regions, in shards: writes to different regions share no lock.
//!
//! The locks of shards are leaf locks.

use kernel::{prelude::*, static_lock_class};

use crate::sharded::Sharded;
use eraid_core::{
    region::RegionState,
    regionmap::Regions,
    units::{RegionNo, StripeNo},
};

/// Number of shards.
const SHARDS: usize = 64;

/// See the [module description](self).
pub(crate) struct RegionTable {
    /// How the array is divided.
    pub(crate) layout: Regions,
    count: usize,
    /// Every [`SHARDS`]th region each.
    shards: Sharded<KVec<RegionState>>,
}

impl RegionTable {
    /// Takes the states of all regions, or none for an array without a map. May sleep.
    pub(crate) fn new(layout: Regions, states: KVec<RegionState>) -> Result<Self> {
        let count = states.len();
        let part = |shard| {
            let mut own = KVec::with_capacity(count.div_ceil(SHARDS), GFP_KERNEL)?;
            for state in states.iter().skip(shard).step_by(SHARDS) {
                own.push(*state, GFP_KERNEL)?;
            }
            Ok(own)
        };
        Ok(Self {
            layout,
            count,
            shards: Sharded::new(SHARDS, c"eraid::regions", static_lock_class!(), part)?,
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
        let number = number.get();
        let place = usize::try_from(number).ok()? / SHARDS;
        let found = self
            .shards
            .with(number, |states| states.get_mut(place).map(look));
        found.flatten()
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
        self.shards.any(|states| states.iter().any(&look))
    }

    /// Runs `change` on all regions, one after the other.
    pub(crate) fn for_each(&self, mut change: impl FnMut(&mut RegionState)) {
        self.shards.any(|states| {
            states.iter_mut().for_each(&mut change);
            false
        });
    }
}
