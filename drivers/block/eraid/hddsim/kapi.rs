// SPDX-License-Identifier: GPL-2.0

//! The driver's wrappers of kernel interfaces, as far as the drive model needs them.
//!
//! They are the same sources, built into this module as well: the two do not depend on each other.

// First, for its macros.
#[macro_use]
#[path = "../kapi/log.rs"]
pub(crate) mod log;

// The driver needs these no more than the model needs the rest of the others.
#[warn(dead_code)]
#[path = "../kapi/alarm.rs"]
pub(crate) mod alarm;
#[warn(dead_code)]
#[path = "../kapi/drive_request.rs"]
mod drive_request;
#[warn(dead_code)]
#[path = "../kapi/noio.rs"]
pub(crate) mod noio;
#[warn(dead_code)]
#[path = "../kapi/page_compare.rs"]
mod page_compare;

#[path = "../kapi/blocks.rs"]
pub(crate) mod blocks;
#[path = "../kapi/class.rs"]
pub(crate) mod class;
#[path = "../kapi/command.rs"]
pub(crate) mod command;
#[path = "../kapi/device.rs"]
pub(crate) mod device;
#[path = "../kapi/disk.rs"]
pub(crate) mod disk;
#[path = "../kapi/guards.rs"]
pub(crate) mod guards;
#[path = "../kapi/limits.rs"]
pub(crate) mod limits;
#[path = "../kapi/module.rs"]
pub(crate) mod module;
#[path = "../kapi/page.rs"]
pub(crate) mod page;
#[path = "../kapi/request.rs"]
pub(crate) mod request;
#[path = "../kapi/runtime.rs"]
pub(crate) mod runtime;
#[path = "../kapi/status.rs"]
pub(crate) mod status;
#[path = "../kapi/sys.rs"]
mod sys;
#[path = "../kapi/sysfs.rs"]
pub(crate) mod sysfs;
#[path = "../kapi/tagset.rs"]
pub(crate) mod tagset;
#[path = "../kapi/time.rs"]
pub(crate) mod time;
#[path = "../kapi/workqueue.rs"]
pub(crate) mod workqueue;
