// SPDX-License-Identifier: GPL-2.0

//! References to this module, and random UUIDs.

use kernel::{
    bindings,
    module::this_module, //
};

use crate::LocalModule;

/// A reference to this module: while one exists, rmmod answers `EBUSY`.
///
/// The module's code must not be the one to return after the last reference is gone, so drop it
/// where unloading waits for the caller: in a work item of an own queue (module exit waits until
/// it is destroyed), or with interrupts or preemption disabled (unloading waits for an RCU grace period).
///
/// # Invariants
///
/// A value owns one reference taken with `try_module_get`.
pub(crate) struct ModuleRef(());

impl ModuleRef {
    /// Takes a reference; any context. `None` when the module is being unloaded.
    pub(crate) fn get() -> Option<Self> {
        // SAFETY: The pointer is `THIS_MODULE`, which is valid (or NULL if built in) while this
        // code runs.
        let got = unsafe { bindings::try_module_get(this_module::<LocalModule>().as_ptr()) };
        // INVARIANT: A reference was taken.
        got.then_some(Self(()))
    }
}

impl Drop for ModuleRef {
    fn drop(&mut self) {
        // SAFETY: By the type invariant there is a reference to put.
        unsafe { bindings::module_put(this_module::<LocalModule>().as_ptr()) };
    }
}

/// A new random (version 4) UUID; any context.
pub(crate) fn uuid_gen() -> [u8; 16] {
    let mut uuid = [0u8; 16];
    // SAFETY: The pointer is valid for writes of 16 bytes.
    unsafe { bindings::generate_random_uuid(uuid.as_mut_ptr()) };
    uuid
}
