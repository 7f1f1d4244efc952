// SPDX-License-Identifier: GPL-2.0

//! The stripe lock, in shards: operations on different stripes rarely share a spinlock.
//!
//! The spinlocks are followed at most by an operation's.

use kernel::{prelude::*, static_lock_class};

use crate::{sharded::Sharded, storage::Storage};
use eraid_core::{
    stripelock::{Bucket, Node, StripeLocks},
    units::StripeNo,
};

/// Number of shards. Each has a place for every operation.
const SHARDS: usize = 8;
/// Buckets of a shard.
const BUCKETS: usize = 128;

type Table = StripeLocks<Storage<Node>, Storage<Bucket>>;

/// See the [module description](self).
pub(crate) struct StripeTable(Sharded<Table>);

impl StripeTable {
    /// Makes the table for `ops` operations. May sleep.
    pub(crate) fn new(ops: usize) -> Result<Self> {
        let part = |_| {
            let nodes = Storage::new(Node::IDLE, ops)?;
            let buckets = Storage::new(Bucket::EMPTY, BUCKETS)?;
            StripeLocks::new(nodes, buckets).ok_or(EINVAL)
        };
        let shards = Sharded::new(SHARDS, c"eraid::stripes", static_lock_class!(), part)?;
        Ok(Self(shards))
    }

    /// Runs `act` on the table that a stripe belongs to, under its lock. Neighbours belong to
    /// different ones.
    ///
    /// An operation may have but one stripe at a time.
    pub(crate) fn with<R>(&self, stripe: StripeNo, act: impl FnOnce(&mut Table) -> R) -> Option<R> {
        self.0.with(stripe.get(), act)
    }
}
