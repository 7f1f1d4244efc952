// SPDX-License-Identifier: GPL-2.0

//! The books of the volatile write cache: which writes wait for the medium.
//!
//! The content is the caller's: it is told when an extent has reached the medium.

use crate::geometry::Place;
use crate::units::{Extent, Nanos};
use core::ops::DerefMut;

/// An acknowledged write that is not on the medium yet.
#[derive(Clone, Copy, Debug)]
pub struct CachedWrite {
    /// Its sectors.
    pub extent: Extent,
    /// Its number in the order of arrival.
    pub seq: u64,
    /// When it arrived.
    pub arrived: Nanos,
    /// Where it starts.
    pub place: Place,
    /// When its last block has passed, in media time.
    pub end: Nanos,
}

/// Writes that wait for the medium, in the order of their arrival.
#[derive(Debug)]
pub struct WriteCache<W> {
    /// Memory for as many writes as the drive can remember.
    entries: W,
    used: usize,
    bytes: u64,
}

impl<W: DerefMut<Target = [Option<CachedWrite>]>> WriteCache<W> {
    /// An empty cache.
    pub fn new(entries: W) -> Self {
        WriteCache {
            entries,
            used: 0,
            bytes: 0,
        }
    }

    /// The number of writes.
    #[inline]
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// The writes, oldest first.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &CachedWrite> {
        self.entries.iter().take(self.used).flatten()
    }

    /// Changes each write.
    pub fn for_each_mut(&mut self, f: impl FnMut(&mut CachedWrite)) {
        let used = self.entries.iter_mut().take(self.used);
        used.flatten().for_each(f);
    }

    /// Whether `sectors` more fit into `limit` bytes.
    pub fn has_room(&self, sectors: u32, limit: u64) -> bool {
        self.used < self.entries.len() && self.bytes + u64::from(sectors) * 512 <= limit
    }

    /// Whether more than three quarters are in use: the medium has to be written to at once.
    pub fn is_pressed(&self, limit: u64) -> bool {
        self.used > self.entries.len() / 4 * 3 || self.bytes > limit / 4 * 3
    }

    /// Adds a write; the caller has asked for room.
    pub fn push(&mut self, write: CachedWrite) {
        if let Some(entry) = self.entries.get_mut(self.used) {
            self.bytes += u64::from(write.extent.sectors) * 512;
            *entry = Some(write);
            self.used += 1;
        }
    }

    /// Takes the write number `seq` out.
    pub fn remove(&mut self, seq: u64) -> Option<CachedWrite> {
        let index = self.iter().position(|write| write.seq == seq)?;
        let rest = self.entries.get_mut(index..self.used)?;
        let removed = rest.first_mut()?.take()?;
        rest.rotate_left(1);
        self.used -= 1;
        self.bytes -= u64::from(removed.extent.sectors) * 512;
        Some(removed)
    }

    /// Whether a write that arrived before the number `seq` waits.
    pub fn holds_before(&self, seq: u64) -> bool {
        self.iter().any(|write| write.seq < seq)
    }

    /// Whether one write holds all of `extent`.
    pub fn covers(&self, extent: Extent) -> bool {
        self.iter().any(|write| write.extent.contains(extent))
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.used = 0;
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(seq: u64, sector: u64, sectors: u32) -> CachedWrite {
        CachedWrite {
            extent: Extent { sector, sectors },
            seq,
            arrived: Nanos(0),
            place: Place {
                cylinder: 0,
                head: 0,
                index: 0,
                media: Nanos(0),
                length: Nanos(1),
            },
            end: Nanos(1),
        }
    }

    #[test]
    fn books_are_kept_in_order() {
        let mut cache = WriteCache::new(vec![None; 4]);
        for seq in 1..=3 {
            assert!(cache.has_room(8, 4096 * 3));
            cache.push(write(seq, seq * 100, 8));
        }
        assert!(!cache.has_room(1, 4096 * 3) && cache.has_room(8, 4096 * 4));
        assert!(cache.covers(Extent {
            sector: 202,
            sectors: 6
        }));
        assert!(!cache.covers(Extent {
            sector: 202,
            sectors: 7
        }));
        assert!(cache.holds_before(2) && !cache.holds_before(1));
        assert_eq!(cache.remove(2).unwrap().seq, 2);
        assert!(cache.remove(2).is_none());
        assert_eq!(cache.iter().map(|w| w.seq).collect::<Vec<_>>(), [1, 3]);
        cache.push(write(4, 0, 8));
        cache.push(write(5, 0, 8));
        assert!(!cache.has_room(1, u64::MAX) && cache.is_pressed(u64::MAX));
        cache.clear();
        assert!(cache.is_empty() && cache.has_room(8, 4096));
    }
}
