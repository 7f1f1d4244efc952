// SPDX-License-Identifier: GPL-2.0

//! What the programs share: devices opened for direct I/O, sizes and times on the command line,
//! random numbers that a seed repeats.

pub mod device;
pub mod rng;
pub mod size;
pub mod time;
