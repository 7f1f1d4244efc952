// SPDX-License-Identifier: GPL-2.0

//! Something that is divided among shards with a spinlock each, so that what happens in different
//! shards shares no lock.

use core::pin::Pin;

use kernel::{
    prelude::*,
    sync::{LockClassKey, SpinLockIrq},
};

#[pin_data]
struct Shard<T> {
    #[pin]
    part: SpinLockIrq<T>,
}

/// See the [module description](self).
pub(crate) struct Sharded<T>(KVec<Pin<KBox<Shard<T>>>>);

impl<T: Unpin> Sharded<T> {
    /// Makes `count` shards, whose locks have this name and class, of what `part` gives for each.
    /// May sleep.
    pub(crate) fn new(
        count: usize,
        name: &'static CStr,
        class: Pin<&'static LockClassKey>,
        mut part: impl FnMut(usize) -> Result<T>,
    ) -> Result<Self> {
        let mut shards = KVec::with_capacity(count, GFP_KERNEL)?;
        for number in 0..count {
            let own = part(number)?;
            let init = pin_init!(Shard {
                part <- SpinLockIrq::new(own, name, class),
            });
            shards.push(KBox::pin_init(init, GFP_KERNEL)?, GFP_KERNEL)?;
        }
        Ok(Self(shards))
    }

    /// Runs `act` on the shard of `number`, under its lock; neighbours are in different ones. `None`
    /// when there are no shards. Any context.
    pub(crate) fn with<R>(&self, number: u64, act: impl FnOnce(&mut T) -> R) -> Option<R> {
        let index = number.checked_rem(self.0.len() as u64)?;
        // Below the number of shards, which is a `usize`.
        let mut part = self.0.get(index as usize)?.part.lock();
        Some(act(&mut part))
    }

    /// Runs `act` on each shard until it returns `true`; whether it did. Any context.
    pub(crate) fn any(&self, mut act: impl FnMut(&mut T) -> bool) -> bool {
        self.0.iter().any(|shard| act(&mut shard.part.lock()))
    }
}
