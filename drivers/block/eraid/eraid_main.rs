// SPDX-License-Identifier: GPL-2.0

//! eRAID: software RAID with bounded read latency.

#![crate_name = "eraid"]
#![deny(unsafe_code)]

use kernel::prelude::*;

#[allow(dead_code, unused_imports, unused_macros, unsafe_code)]
#[macro_use]
mod kapi;

module! {
    type: EraidModule,
    name: "eraid",
    authors: ["The eRAID authors"],
    description: "Software RAID with bounded read latency",
    license: "GPL",
}

struct EraidModule {
    /// Dropped last.
    _runtime: kapi::runtime::Runtime,
}

impl kernel::Module for EraidModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self {
            _runtime: kapi::runtime::Runtime::init()?,
        })
    }
}
