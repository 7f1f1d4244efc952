// SPDX-License-Identifier: GPL-2.0

//! Which numbers are free, as bits, without a lock.

use kernel::{
    prelude::*,
    sync::atomic::{Acquire, Atomic, Full, Relaxed},
};

/// Numbers of one word. Words are apart by a cache line, so that processors that look at different
/// ones do not meet.
#[repr(align(64))]
struct Word(Atomic<u64>);

/// See the [module description](self).
pub(crate) struct FreeNumbers(KVec<Word>);

impl FreeNumbers {
    /// All numbers below `count` are free. May sleep.
    pub(crate) fn new(count: u32) -> Result<Self> {
        let mut words = KVec::with_capacity(count.div_ceil(u64::BITS) as usize, GFP_KERNEL)?;
        for first in (0..count).step_by(u64::BITS as usize) {
            let bits = match count - first {
                some @ 0..64 => (1 << some) - 1,
                _ => u64::MAX,
            };
            words.push(Word(Atomic::new(bits)), GFP_KERNEL)?;
        }
        Ok(Self(words))
    }

    /// Takes a number; where the search for it begins depends on `hint`. Any context.
    pub(crate) fn take(&self, hint: u64) -> Option<u32> {
        let count = self.0.len();
        let begin = hint.checked_rem(count as u64)? as usize;
        (0..count).find_map(|step| {
            let index = (begin + step) % count;
            let bit = self.0.get(index)?.take()?;
            // CAST: There are at most 2^32 numbers.
            Some(index as u32 * u64::BITS + bit)
        })
    }

    /// Gives a number back that was taken. Any context.
    ///
    /// Fully ordered, as [`Self::any`] is not: who asks that has to order it himself.
    pub(crate) fn give(&self, number: u32) {
        if let Some(word) = self.0.get((number / u64::BITS) as usize) {
            // The bit is 0, so this sets it.
            word.0.fetch_add(1 << (number % u64::BITS), Full);
        }
    }

    /// Whether a number is free. Any context.
    pub(crate) fn any(&self) -> bool {
        self.0.iter().any(|word| word.0.load(Relaxed) != 0)
    }
}

impl Word {
    fn take(&self) -> Option<u32> {
        let mut bits = self.0.load(Relaxed);
        while bits != 0 {
            match self.0.cmpxchg(bits, bits & (bits - 1), Acquire) {
                Ok(_) => return Some(bits.trailing_zeros()),
                Err(now) => bits = now,
            }
        }
        None
    }
}
