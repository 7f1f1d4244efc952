// SPDX-License-Identifier: GPL-2.0

//! Safe wrappers of kernel interfaces that the kernel crate lacks.
//!
//! This is the only part of the driver with `unsafe` code and calls of C functions. Nothing here
//! knows about RAID.

// First, for its macros.
#[macro_use]
pub(crate) mod log;

pub(crate) mod blocks;
pub(crate) mod class;
pub(crate) mod command;
pub(crate) mod completion;
pub(crate) mod crc;
pub(crate) mod device;
pub(crate) mod disk;
pub(crate) mod guards;
pub(crate) mod limits;
pub(crate) mod module;
pub(crate) mod page;
pub(crate) mod params;
pub(crate) mod raid6;
pub(crate) mod request;
pub(crate) mod runtime;
pub(crate) mod status;
pub(crate) mod sync_io;
mod sys;
pub(crate) mod sysfs;
pub(crate) mod tagset;
pub(crate) mod time;
pub(crate) mod trace;
pub(crate) mod workqueue;
pub(crate) mod xor;
