// SPDX-License-Identifier: GPL-2.0

//! Pure logic of a simulated hard drive: when each command is answered, and how.
//!
//! No allocation, no clock, no data, no floating point: time, memory and the content of sectors are
//! the caller's. So the same code runs in the kernel, in host tests, and behind any front, block layer
//! or SCSI. See Documentation/hddsim.rst for what is modelled, and where the numbers come
//! from.

// Kbuild itself passes no_std to every crate.
#![cfg_attr(not(any(CONFIG_RUST, test)), no_std)]
#![forbid(unsafe_code)]
// A refusal carries its text, for lack of an allocator; none is made in the I/O path.
#![allow(clippy::result_large_err)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_lossless,
        clippy::expect_used,
        clippy::float_arithmetic,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used
    )
)]

pub mod buffer;
pub mod cache;
pub mod control;
pub mod counters;
pub mod drive;
pub mod failure;
pub mod geometry;
pub mod hash;
pub mod params;
pub mod powercut;
pub mod seek;
pub mod units;

// Shared with the driver's core, by source: a refusal reads the same wherever it comes from.
#[path = "../../core/refusal.rs"]
pub mod refusal;
#[path = "../../core/text.rs"]
pub mod text;
#[path = "../../core/words.rs"]
pub mod words;
