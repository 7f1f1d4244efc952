// SPDX-License-Identifier: GPL-2.0

//! Memory for the tables of `eraid_core`, which allocate none.

use kernel::prelude::*;

/// As many entries as were made at the start.
pub(crate) struct Storage<T>(KVec<T>);

impl<T: Clone> Storage<T> {
    /// Makes `len` entries, all of them `value`. May sleep.
    pub(crate) fn new(value: T, len: usize) -> Result<Self> {
        Ok(Self(KVec::from_elem(value, len, GFP_KERNEL)?))
    }
}

impl<T> AsRef<[T]> for Storage<T> {
    fn as_ref(&self) -> &[T] {
        &self.0
    }
}

impl<T> AsMut<[T]> for Storage<T> {
    fn as_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}
