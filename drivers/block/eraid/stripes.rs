// SPDX-License-Identifier: GPL-2.0

//! The stripe lock, in shards with a spinlock each: operations on different stripes rarely share one.
//!
//! The spinlocks are followed at most by an operation's.

use core::pin::Pin;

use kernel::{new_spinlock_irq, prelude::*, sync::SpinLockIrq};

use crate::storage::Storage;
use eraid_core::{
    stripelock::{Bucket, Node, StripeLocks},
    units::StripeNo,
};

/// log2 of the number of shards. Each has a place for every operation.
const SHARD_SHIFT: u32 = 3;
const SHARDS: usize = 1 << SHARD_SHIFT;
/// Buckets of a shard.
const BUCKETS: usize = 128;

type Table = StripeLocks<Storage<Node>, Storage<Bucket>>;

#[pin_data]
struct Shard {
    #[pin]
    table: SpinLockIrq<Table>,
}

/// See the [module description](self).
pub(crate) struct StripeTable(KVec<Pin<KBox<Shard>>>);

impl StripeTable {
    /// Makes the table for `ops` operations. May sleep.
    pub(crate) fn new(ops: usize) -> Result<Self> {
        let mut shards = KVec::with_capacity(SHARDS, GFP_KERNEL)?;
        for _ in 0..SHARDS {
            let nodes = Storage::new(Node::IDLE, ops)?;
            let buckets = Storage::new(Bucket::EMPTY, BUCKETS)?;
            let table = StripeLocks::new(nodes, buckets).ok_or(EINVAL)?;
            let init = pin_init!(Shard {
                table <- new_spinlock_irq!(table, "eraid::stripes"),
            });
            shards.push(KBox::pin_init(init, GFP_KERNEL)?, GFP_KERNEL)?;
        }
        Ok(Self(shards))
    }

    /// Runs `act` on the table that a stripe belongs to, under its lock. Neighbours belong to
    /// different ones.
    ///
    /// An operation may have but one stripe at a time.
    pub(crate) fn with<R>(&self, stripe: StripeNo, act: impl FnOnce(&mut Table) -> R) -> Option<R> {
        let shard = self.0.get(stripe.get() as usize % SHARDS)?;
        let mut table = shard.table.lock();
        Some(act(&mut table))
    }
}
