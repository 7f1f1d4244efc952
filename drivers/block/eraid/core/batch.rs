// SPDX-License-Identifier: GPL-2.0

//! The shape of writes to one stripe that are handled together.
//!
//! Each data column is written in rows without a gap, and so is the stripe as a whole (its *hull*):
//! one command a member writes all of it. The rows in which every column is written, the *core*,
//! need no old block for parity; above and below it there may be a *head* and a *tail* that do.

use crate::geometry::{Band, Geometry, Rows};
use crate::units::{SlotSet, StripeNo};

/// See the [module documentation](self). `S` is the caller's storage: a place for each data column.
#[derive(Clone, Copy, Debug)]
pub struct Batch<S> {
    stripe: StripeNo,
    hull: Rows,
    cover: S,
}

impl<S: AsRef<[Rows]> + AsMut<[Rows]>> Batch<S> {
    /// A batch without a write.
    pub fn new(mut cover: S) -> Self {
        cover.as_mut().fill(Rows::NONE);
        Self {
            stripe: StripeNo::ZERO,
            hull: Rows::NONE,
            cover,
        }
    }

    /// Forgets all writes.
    pub fn clear(&mut self) {
        self.hull = Rows::NONE;
        self.cover.as_mut().fill(Rows::NONE);
    }

    /// Whether there is no write.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.hull.is_empty()
    }

    /// The stripe; meaningless for an empty batch.
    #[inline]
    pub const fn stripe(&self) -> StripeNo {
        self.stripe
    }

    /// Adds a write, if no gap comes about in any column or between them, and all of it lies in one
    /// window of `window` rows (0 is taken as 1), counted from the start of the chunk.
    pub fn join(&mut self, band: &Band, window: u32) -> bool {
        if band.rows.is_empty() {
            return false;
        }
        if self.is_empty() {
            self.stripe = band.stripe;
        } else if self.stripe != band.stripe
            || !self.hull.touches(band.rows)
            || window_of(self.hull, window) != window_of(band.rows, window)
        {
            return false;
        }
        let columns = usize::from(band.first)..=usize::from(band.last);
        let Some(covers) = self.cover.as_mut().get_mut(columns) else {
            return false;
        };
        let mut written = covers.iter().filter(|rows| !rows.is_empty());
        if !written.all(|rows| rows.touches(band.rows)) {
            return false;
        }
        for rows in covers {
            *rows = rows.hull(band.rows);
        }
        self.hull = self.hull.hull(band.rows);
        true
    }

    /// All rows in which anything is written.
    #[inline]
    pub const fn hull(&self) -> Rows {
        self.hull
    }

    /// The rows in which `column` is written.
    #[inline]
    pub fn cover(&self, column: u8) -> Rows {
        let rows = self.cover.as_ref().get(usize::from(column));
        rows.copied().unwrap_or(Rows::NONE)
    }

    /// The rows in which every column is written, or none at the end of the hull.
    pub fn core(&self) -> Rows {
        let covers = self.cover.as_ref().iter();
        let core = covers.fold(self.hull, |core, rows| core.common(*rows));
        match core.is_empty() {
            true => Rows {
                lo: self.hull.hi,
                hi: self.hull.hi,
            },
            false => core,
        }
    }

    /// The rows above and below the core.
    pub fn ends(&self) -> [Rows; 2] {
        let core = self.core();
        [
            Rows {
                lo: self.hull.lo,
                hi: core.lo,
            },
            Rows {
                lo: core.hi,
                hi: self.hull.hi,
            },
        ]
    }

    /// Whether every block of the window is written: nothing can join any more.
    pub fn is_full(&self, window: u32) -> bool {
        let core = self.core();
        core == self.hull && core.len() >= window
    }

    /// The slots of the columns of which `rows` wants any: it is given the rows in which a column is
    /// written.
    pub(crate) fn slots(&self, geometry: &Geometry, rows: impl Fn(Rows) -> Rows) -> SlotSet {
        (0..geometry.data_columns())
            .filter(|column| !rows(self.cover(*column)).is_empty())
            .map(|column| geometry.slot_of_data(self.stripe, column))
            .collect()
    }

    /// Of a column written in `cover`, the rows of the hull that are not; with all between them.
    pub(crate) fn unwritten(&self, cover: Rows) -> Rows {
        if cover.is_empty() {
            return self.hull;
        }
        let above = Rows {
            lo: self.hull.lo,
            hi: cover.lo,
        };
        above.hull(Rows {
            lo: cover.hi,
            hi: self.hull.hi,
        })
    }

    /// Of a column written in `cover`, the written rows outside the core; with all between them.
    pub(crate) fn written_outside_core(&self, cover: Rows) -> Rows {
        let [head, tail] = self.ends();
        cover.common(head).hull(cover.common(tail))
    }

    /// The rows outside the core; with all between them.
    pub(crate) fn outside_core(&self) -> Rows {
        let [head, tail] = self.ends();
        head.hull(tail)
    }
}

/// The window that rows begin in.
#[inline]
fn window_of(rows: Rows, window: u32) -> u32 {
    rows.lo / window.max(1)
}
