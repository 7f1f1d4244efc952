// SPDX-License-Identifier: GPL-2.0

//! An array's work queues, one for each level: work of a level waits for lower levels at most.
//!
//! Each array has its own. An array may be a member of another one, whose `submit` jobs then wait
//! for tags of the lower array's disk, which that array's jobs give back: they must not stand in
//! the same line, least of all under memory reclaim, when a queue may have its rescuer only.

use kernel::prelude::*;

use crate::{
    disk_io::c_name,
    kapi::workqueue::{Concurrency, WorkQueue},
};

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
    /// Makes the queues of `eraidNUMBER`. May sleep.
    pub(crate) fn new(number: u32) -> Result<Self> {
        let queue = |level: &str, concurrency| {
            let name = c_name(format_args!("eraid{number}_{level}"))?;
            WorkQueue::new(&name, concurrency, 0)
        };
        Ok(Self {
            complete: queue("complete", Concurrency::PerCpu)?,
            meta: queue("meta", Concurrency::Unbound)?,
            submit: queue("submit", Concurrency::Unbound)?,
            notify: queue("notify", Concurrency::Unbound)?,
        })
    }
}
