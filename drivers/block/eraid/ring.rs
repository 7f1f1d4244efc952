// SPDX-License-Identifier: GPL-2.0

//! A queue of fixed capacity that never allocates after it was made.

use kernel::prelude::*;

/// First in, first out, at most `capacity` entries.
pub(crate) struct Ring<T> {
    slots: KVec<Option<T>>,
    head: usize,
    len: usize,
}

impl<T> Ring<T> {
    /// Makes an empty ring. May sleep.
    pub(crate) fn new(capacity: usize) -> Result<Self> {
        let mut slots = KVec::with_capacity(capacity, GFP_KERNEL)?;
        for _ in 0..capacity {
            slots.push(None, GFP_KERNEL)?;
        }
        Ok(Self {
            slots,
            head: 0,
            len: 0,
        })
    }

    /// Entries in the ring.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds `value` at the end; gives it back when the ring is full.
    pub(crate) fn push_back(&mut self, value: T) -> Result<(), T> {
        let at = self.place(self.len);
        match self.slots.get_mut(at) {
            Some(slot) if slot.is_none() => {
                *slot = Some(value);
                self.len += 1;
                Ok(())
            }
            _ => Err(value),
        }
    }

    /// Adds `value` before the oldest entry; gives it back when the ring is full.
    pub(crate) fn push_front(&mut self, value: T) -> Result<(), T> {
        let Some(last) = self.slots.len().checked_sub(1) else {
            return Err(value);
        };
        let at = self.place(last);
        match self.slots.get_mut(at) {
            Some(slot) if slot.is_none() => {
                *slot = Some(value);
                self.head = at;
                self.len += 1;
                Ok(())
            }
            _ => Err(value),
        }
    }

    /// Takes the oldest entry.
    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let value = self.slots.get_mut(self.head)?.take()?;
        self.head = self.place(1);
        self.len -= 1;
        Some(value)
    }

    /// All entries, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len).filter_map(|i| self.slots.get(self.place(i))?.as_ref())
    }

    /// Takes the oldest entry for which `wanted` holds. Linear in the length.
    pub(crate) fn remove_first(&mut self, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let found = self.iter().position(wanted)?;
        self.remove(found)
    }

    /// Takes the entry that is number `index` from the oldest one on. Linear in the length.
    pub(crate) fn remove(&mut self, index: usize) -> Option<T> {
        if index >= self.len {
            return None;
        }
        let at = self.place(index);
        let value = self.slots.get_mut(at)?.take();
        for i in index + 1..self.len {
            let (from, to) = (self.place(i), self.place(i - 1));
            self.slots.swap(from, to);
        }
        self.len -= 1;
        value
    }

    /// Where the `i`th entry is, for `i` up to the capacity.
    fn place(&self, i: usize) -> usize {
        let at = self.head + i;
        if at >= self.slots.len() {
            at - self.slots.len()
        } else {
            at
        }
    }
}
