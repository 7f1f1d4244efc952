// SPDX-License-Identifier: GPL-2.0

//! Pure logic of the eRAID block driver: everything that can be decided without a kernel.
//!
//! No allocation, no I/O, no clock: time, storage and the crc function come in as arguments, so the
//! same code runs in the kernel, in the host tools and under the host tests.

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

pub mod assembly;
pub mod badblocks;
pub mod balance;
pub mod batch;
pub mod checkpoint;
pub mod control;
pub mod crc32c;
pub mod discard;
pub mod estimate;
pub mod fairness;
pub mod gather;
pub mod geometry;
pub mod gf;
pub mod latency;
pub mod layout;
pub mod line;
pub mod member;
pub mod metapage;
pub mod outlier;
pub mod patience;
pub mod plan_read;
pub mod plan_write;
pub mod policy;
pub mod ppl;
pub mod ppl_replay;
pub mod ppl_ring;
pub mod queue;
pub mod refusal;
pub mod region;
pub mod regionmap;
pub mod resync;
pub mod signature;
pub mod sitout;
pub mod spans;
pub mod stripelock;
pub mod superblock;
pub mod text;
pub mod units;
pub mod watch;
pub mod words;
