// SPDX-License-Identifier: GPL-2.0

//! Declarations of the C shim, and of kernel items that `kernel::bindings` lacks.
//!
//! Generated from `shim/eraid_bindgen.h` when the module is built; see the Kbuild file.

#[allow(
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    unreachable_pub,
    unused_imports,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]
mod generated {
    use kernel::{bindings::*, ffi};

    include!(concat!(env!("ERAID_OBJ"), "/shim/eraid_bindings.rs"));
}

pub(super) use generated::*;
