// SPDX-License-Identifier: GPL-2.0

//! The writes that one operation handles together: their shape, and the requests they belong to.

use kernel::prelude::*;

use crate::{
    kapi::{command::CommandFlags, page::PageBuf, request::Request, status::Status, time::now_us},
    storage::Storage,
};
use eraid_core::{
    batch::Batch,
    geometry::{Band, Geometry, Rows},
    units::Sector,
};

/// Writes of one batch: as many as blocks of 4 KiB in a chunk of 256 KiB.
const PARTS: usize = 64;

/// A band of a stripe that a request writes.
pub(crate) struct Part {
    /// The request; it does not end before the part is dropped.
    pub(crate) request: Request,
    /// The blocks.
    pub(crate) band: Band,
}

/// A write that is to become part of some.
pub(crate) struct NewWrite<'a> {
    /// The request.
    pub(crate) request: &'a Request,
    /// The blocks.
    pub(crate) band: Band,
    /// Its request goes on where another one ended.
    pub(crate) sequential: bool,
}

/// See the [module description](self).
pub(crate) struct Writes {
    /// Their shape.
    pub(crate) batch: Batch<Storage<Rows>>,
    /// When the last one came, in µs.
    pub(crate) joined_us: u64,
    /// One of them goes on where another write ended.
    pub(crate) sequential: bool,
    parts: KVec<Part>,
    /// The only one that is handled at the moment; else all are.
    alone: Option<usize>,
}

impl Writes {
    /// Makes room for the writes to a stripe of `columns` data columns. May sleep.
    pub(crate) fn new(columns: usize) -> Result<Self> {
        Ok(Self {
            batch: Batch::new(Storage::new(Rows::NONE, columns)?),
            parts: KVec::with_capacity(PARTS, GFP_KERNEL)?,
            joined_us: 0,
            sequential: false,
            alone: None,
        })
    }

    /// Adds a write where it fits: see [`Batch::join`].
    pub(crate) fn join(&mut self, write: &NewWrite<'_>, window: u32) -> bool {
        if self.parts.len() >= PARTS || !self.batch.join(&write.band, window) {
            return false;
        }
        self.joined_us = now_us();
        self.sequential |= write.sequential;
        let part = Part {
            request: write.request.clone(),
            band: write.band,
        };
        // There is room: see above.
        self.parts.push_within_capacity(part).is_ok()
    }

    /// Whether there is no reason to wait for more: nothing can join any more, or somebody waits
    /// for one of them to be durable.
    pub(crate) fn are_urgent(&self, window: u32) -> bool {
        self.parts.len() >= PARTS || self.batch.is_full(window) || self.are_fua()
    }

    /// Whether one of them is to be durable when it ends.
    pub(crate) fn are_fua(&self) -> bool {
        self.command_flags().contains(CommandFlags::FUA)
    }

    /// The writes, in the order they came.
    pub(crate) fn all(&self) -> &[Part] {
        &self.parts
    }

    /// The writes in work, in the order they came.
    fn parts(&self) -> &[Part] {
        match self.alone {
            Some(index) => self.parts.get(index..=index).unwrap_or(&[]),
            None => &self.parts,
        }
    }

    /// From here on one write after the other is in work; `false` when that is no change.
    pub(crate) fn begin_alone(&mut self, window: u32) -> bool {
        self.parts.len() > 1 && self.alone.is_none() && self.select(0, window)
    }

    /// Goes on to the next write, when one after the other is in work.
    pub(crate) fn next_alone(&mut self, window: u32) -> bool {
        self.alone
            .is_some_and(|index| self.select(index + 1, window))
    }

    fn select(&mut self, index: usize, window: u32) -> bool {
        let Some(part) = self.parts.get(index) else {
            return false;
        };
        self.batch.clear();
        self.alone = Some(index);
        self.batch.join(&part.band, window)
    }

    /// What the commands of the batch take over from its requests.
    pub(crate) fn command_flags(&self) -> CommandFlags {
        let mut flags = self.parts().iter().map(|part| part.request.command_flags());
        let first = flags.next().unwrap_or(CommandFlags::NONE);
        flags.fold(first, CommandFlags::joined)
    }

    /// Makes all requests end with an error.
    pub(crate) fn fail_all(&self, status: Status) {
        for part in self.parts.iter() {
            part.request.fail(status);
        }
    }

    /// Makes the requests of the writes in work end with an error.
    pub(crate) fn fail(&self, status: Status) {
        for part in self.parts() {
            part.request.fail(status);
        }
    }

    /// The newest write that has any of `wanted`, if it has all of it.
    pub(crate) fn newest(&self, wanted: &Band) -> Option<&Part> {
        let newest = self
            .parts()
            .iter()
            .rev()
            .find(|part| part.band.meets(wanted))?;
        newest.band.contains(wanted).then_some(newest)
    }

    /// Copies the data of `column` to `buf`, which begins with the first row of the batch.
    ///
    /// In the order the writes came, so that of two to the same place the later one stays. Once,
    /// and members are written from the copy: users change pages under direct I/O, and parity has to
    /// match what is written.
    pub(crate) fn fill(&self, geometry: &Geometry, column: u8, buf: &mut PageBuf) -> Result {
        let base = self.batch.hull().lo;
        for part in self.parts().iter().filter(|part| part.band.has(column)) {
            let (request, band) = (&part.request, &part.band);
            let start = Sector::new(request.sector());
            let from = band.request_offset(geometry, start, column).ok_or(EIO)?;
            let to = band.rows.lo.saturating_sub(base) as usize;
            let len = band.rows.len() as usize;
            request.copy_to_buf(from.get() as usize * 512, buf, to * 512, len * 512)?;
        }
        Ok(())
    }

    /// Forgets the writes; requests without other parts end. Any context, without locks.
    pub(crate) fn clear(&mut self) {
        self.batch.clear();
        self.alone = None;
        self.sequential = false;
        self.parts.clear();
    }
}
