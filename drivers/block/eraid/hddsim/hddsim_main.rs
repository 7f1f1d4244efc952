// SPDX-License-Identifier: GPL-2.0

//! Simulated hard drives, for tests and measurements.

#![crate_name = "eraid_hddsim"]
#![deny(unsafe_code)]
// A refusal carries its text; it is made on slow paths only.
#![allow(clippy::result_large_err)]

use kernel::{prelude::*, sync::Arc};

// The other half of it is the driver's, whose build says what nobody uses.
#[expect(dead_code, unused_macros)]
#[allow(unsafe_code)]
#[macro_use]
mod kapi;

mod attrs;
mod control;
mod drive;
mod error;
mod refusals;
mod registry;
mod store;

use kapi::{
    class::{ControlClass, ControlFiles},
    runtime::Runtime,
};
use registry::Registry;

module! {
    type: HddSimModule,
    name: "eraid_hddsim",
    authors: ["The eRAID authors"],
    description: "Simulated hard drives",
    license: "GPL",
}

/// Fields are dropped in this order.
struct HddSimModule {
    _files: ControlFiles<Registry>,
    _registry: Arc<Registry>,
    /// Waits for disks that are still being closed.
    _runtime: Runtime,
}

impl kernel::Module for HddSimModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let runtime = Runtime::init()?;
        let class = Arc::new(ControlClass::new(c"eraid-hddsim", c"drives")?, GFP_KERNEL)?;
        let registry = Registry::new(class.clone())?;
        Ok(Self {
            _files: ControlFiles::add(class, registry.clone())?,
            _registry: registry,
            _runtime: runtime,
        })
    }
}
