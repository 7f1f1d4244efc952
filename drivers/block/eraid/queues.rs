// SPDX-License-Identifier: GPL-2.0

//! The module's work queues, one for each level: work of a level waits for lower levels at most.

use kernel::prelude::*;

use crate::kapi::workqueue::{Concurrency, WorkQueue};

/// See the [module description](self). All of them make progress under memory reclaim.
pub(crate) struct Queues {
    /// Parity, copies, ends of requests. Never waits.
    pub(crate) complete: WorkQueue,
    /// Superblock and region map. Waits for nothing but its own commands.
    pub(crate) meta: WorkQueue,
    /// Commands to members, which may wait for a tag of the member; looking after arrays.
    pub(crate) submit: WorkQueue,
    /// What user space and the administrator's files are told; removal of members.
    pub(crate) notify: WorkQueue,
}

impl Queues {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            complete: WorkQueue::new(c"eraid_complete", Concurrency::PerCpu, 0)?,
            meta: WorkQueue::new(c"eraid_meta", Concurrency::Unbound, 0)?,
            submit: WorkQueue::new(c"eraid_submit", Concurrency::Unbound, 0)?,
            notify: WorkQueue::new(c"eraid_notify", Concurrency::Unbound, 0)?,
        })
    }
}
