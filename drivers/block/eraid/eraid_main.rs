// SPDX-License-Identifier: GPL-2.0

//! eRAID: software RAID with bounded read latency.

#![crate_name = "eraid"]
#![deny(unsafe_code)]
// A refusal carries its text; it is made on slow paths only.
#![allow(clippy::result_large_err)]

use kernel::{prelude::*, sync::Arc};

#[allow(unsafe_code)]
#[macro_use]
mod kapi;

mod array;
mod assemble;
mod attrs;
mod claims;
mod control;
mod create;
mod direct;
mod discard;
mod disk_io;
mod error;
mod events;
mod flush;
mod free;
mod gather;
mod intake;
mod member;
mod member_attrs;
mod meta;
mod newdev;
mod op;
mod parity;
mod pool;
mod queues;
mod read;
mod reading;
mod regions;
mod registry;
mod repair;
mod resync;
mod retained;
mod ring;
mod running;
mod sharded;
mod spares;
mod storage;
mod stripes;
mod sub;
mod write;
mod writes;

use kapi::{
    class::{ControlClass, ControlFiles},
    runtime::Runtime,
};
use registry::Registry;

module! {
    type: EraidModule,
    name: "eraid",
    authors: ["The eRAID authors"],
    description: "Software RAID with bounded read latency",
    license: "GPL",
}

/// Fields are dropped in this order.
struct EraidModule {
    _files: ControlFiles<Registry>,
    _registry: Arc<Registry>,
    /// Waits for disks and devices that are still being closed.
    _runtime: Runtime,
}

impl kernel::Module for EraidModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let runtime = Runtime::init()?;
        let class = Arc::new(ControlClass::new(c"eraid-control", c"arrays")?, GFP_KERNEL)?;
        let registry = Registry::new(class.clone())?;
        Ok(Self {
            _files: ControlFiles::add(class, registry.clone())?,
            _registry: registry,
            _runtime: runtime,
        })
    }
}
