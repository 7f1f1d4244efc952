// SPDX-License-Identifier: GPL-2.0

//! The parity of one stripe over the columns of an operation: P of RAID-5, P and Q of RAID-6.
//!
//! All of it works in place on a range of the columns' buffers. Task context only: see
//! [`check_context`](crate::kapi::xor) of the kernel's libraries, lib/raid.

use kernel::prelude::*;

use crate::{
    array::Array,
    kapi::{
        page::PageBuf,
        raid6::{self, Scratch, TargetP},
        xor::{xor_into, ByteRange},
    },
    op::Columns,
};
use eraid_core::{
    geometry::{Geometry, Level, Role},
    units::{Slot, SlotSet, StripeNo, MAX_SLOTS},
};

/// Data columns by their number; `None` for those that take no part.
type Data<'a> = [Option<&'a PageBuf>; MAX_SLOTS];

/// The parity of one stripe. See the [module description](self).
pub(crate) struct Parity<'a> {
    geometry: &'a Geometry,
    stripe: StripeNo,
    scratch: &'a Scratch,
}

impl Array {
    /// The parity of a stripe.
    pub(crate) fn parity(&self, stripe: StripeNo) -> Parity<'_> {
        Parity {
            geometry: &self.geometry,
            stripe,
            scratch: &self.scratch,
        }
    }
}

/// Whether [`Parity::remove`] and [`Parity::add`] work on this machine, so that read-modify-write
/// is possible: Q needs an algorithm that has it.
pub(crate) fn can_modify(level: Level) -> bool {
    level != Level::Raid6 || raid6::can_xor_syndrome()
}

impl Parity<'_> {
    /// Computes the parity columns among `targets` from all data columns.
    ///
    /// # Errors
    ///
    /// `EIO` when one of the columns has no buffer; else those of [`xor_into`].
    pub(crate) fn generate(
        &self,
        columns: &mut Columns,
        targets: SlotSet,
        range: ByteRange,
    ) -> Result {
        let all = self.all_data();
        self.with_parity(columns, targets, |columns, p, q| {
            let data = self.data(columns, all)?;
            match (p, q) {
                (p, Some(q)) => {
                    let p = TargetP::or_scratch(p, self.scratch);
                    raid6::gen_syndrome(self.by_number(&data), p, q, range)
                }
                (Some(p), None) => xor_all(p, &data, range),
                (None, None) => Ok(()),
            }
        })
    }

    /// Takes what the data columns `touched` hold out of the parity columns among `targets`.
    ///
    /// # Errors
    ///
    /// As [`Self::generate`], and `EOPNOTSUPP` unless [`can_modify`].
    pub(crate) fn remove(
        &self,
        columns: &mut Columns,
        touched: SlotSet,
        targets: SlotSet,
        range: ByteRange,
    ) -> Result {
        // In this field adding and taking out are the same.
        self.add(columns, touched, targets, range)
    }

    /// Adds what the data columns `touched` hold to the parity columns among `targets`.
    ///
    /// # Errors
    ///
    /// As [`Self::remove`].
    pub(crate) fn add(
        &self,
        columns: &mut Columns,
        touched: SlotSet,
        targets: SlotSet,
        range: ByteRange,
    ) -> Result {
        self.with_parity(columns, targets, |columns, p, q| {
            let data = self.data(columns, touched)?;
            match (p, q) {
                (p, Some(q)) => {
                    let p = TargetP::or_scratch(p, self.scratch);
                    raid6::xor_syndrome(self.by_number(&data), p, q, range)
                }
                (Some(p), None) => xor_into(p, &data, range),
                (None, None) => Ok(()),
            }
        })
    }

    /// Computes the columns of `missing` from those of `from`: as many data columns as there are
    /// parity columns in `from`, and parity columns. P is used before Q.
    ///
    /// # Errors
    ///
    /// `EIO` when one of the columns has no buffer, and when `from` is not enough; else those of
    /// [`xor_into`].
    pub(crate) fn recover(
        &self,
        columns: &mut Columns,
        missing: SlotSet,
        from: SlotSet,
        range: ByteRange,
    ) -> Result {
        let all = self.all_data();
        let lost = missing.intersect(all);
        let present = all.minus(lost);
        let mut parity = missing.minus(all);
        let available = |slot: Option<Slot>| slot.filter(|slot| from.contains(*slot));
        let p = available(self.geometry.p_slot(self.stripe));
        let q = available(self.geometry.q_slot(self.stripe));
        if !present.is_subset(from) {
            return Err(EIO);
        }
        let mut each = lost.iter();
        match (each.next(), each.next(), p, q) {
            (None, ..) => {}
            (Some(one), None, Some(p), _) => self.by_p(columns, one, present, p, range)?,
            (Some(one), None, None, Some(q)) => {
                let p = self.geometry.p_slot(self.stripe);
                let wanted = p.filter(|p| parity.contains(*p));
                self.by_q(columns, one, wanted, present, q, range)?;
                if let Some(p) = wanted {
                    parity.remove(p);
                }
            }
            (Some(one), Some(other), Some(p), Some(q)) if lost.len() == 2 => {
                self.by_both(columns, [one, other], present, [p, q], range)?;
            }
            _ => return Err(EIO),
        }
        self.generate(columns, parity, range)
    }

    /// Data column `one` from `present` and P.
    fn by_p(
        &self,
        columns: &mut Columns,
        one: Slot,
        present: SlotSet,
        p: Slot,
        range: ByteRange,
    ) -> Result {
        with_two(columns, Some(one), None, |columns, one, _| {
            let one = one.ok_or(EIO)?;
            xor_all(one, &self.data(columns, present)?, range)?;
            xor_into(one, &[Some(buffer(columns, p)?)], range)
        })
    }

    /// Data column `one`, and P where its slot is given, from `present` and Q.
    fn by_q(
        &self,
        columns: &mut Columns,
        one: Slot,
        p: Option<Slot>,
        present: SlotSet,
        q: Slot,
        range: ByteRange,
    ) -> Result {
        let number = self.number(one)?;
        with_two(columns, Some(one), p, |columns, one, p| {
            let data = self.data(columns, present)?;
            raid6::recov_datap(
                self.by_number(&data),
                (number, one.ok_or(EIO)?),
                TargetP::or_scratch(p, self.scratch),
                buffer(columns, q)?,
                range,
            )
        })
    }

    /// Two data columns from `present`, P and Q.
    fn by_both(
        &self,
        columns: &mut Columns,
        [one, other]: [Slot; 2],
        present: SlotSet,
        [p, q]: [Slot; 2],
        range: ByteRange,
    ) -> Result {
        let (a, b) = (self.number(one)?, self.number(other)?);
        let (low, high) = if a < b { (one, other) } else { (other, one) };
        with_two(columns, Some(low), Some(high), |columns, low, high| {
            let data = self.data(columns, present)?;
            raid6::recov_2data(
                self.by_number(&data),
                (a.min(b), low.ok_or(EIO)?),
                (a.max(b), high.ok_or(EIO)?),
                buffer(columns, p)?,
                buffer(columns, q)?,
                range,
            )
        })
    }

    /// Runs `compute` on the buffers of the parity columns among `targets`.
    fn with_parity(
        &self,
        columns: &mut Columns,
        targets: SlotSet,
        compute: impl FnOnce(&Columns, Option<&mut PageBuf>, Option<&mut PageBuf>) -> Result,
    ) -> Result {
        let wanted = |slot: Option<Slot>| slot.filter(|slot| targets.contains(*slot));
        let p = wanted(self.geometry.p_slot(self.stripe));
        let q = wanted(self.geometry.q_slot(self.stripe));
        with_two(columns, p, q, compute)
    }

    /// The slots of all data columns.
    fn all_data(&self) -> SlotSet {
        let last = self.geometry.data_columns().saturating_sub(1);
        self.geometry.data_slots(self.stripe, 0, last)
    }

    /// The number of the data column in a slot.
    fn number(&self, slot: Slot) -> Result<usize> {
        match self.geometry.role(self.stripe, slot) {
            Role::Data(number) => Ok(usize::from(number)),
            _ => Err(EIO),
        }
    }

    /// The buffers of the data columns in `slots`.
    fn data<'a>(&self, columns: &'a Columns, slots: SlotSet) -> Result<Data<'a>> {
        let mut data: Data<'a> = [None; MAX_SLOTS];
        for slot in slots.iter() {
            let place = data.get_mut(self.number(slot)?).ok_or(EIO)?;
            *place = Some(buffer(columns, slot)?);
        }
        Ok(data)
    }

    /// As many as there are data columns.
    fn by_number<'d, 'a>(&self, data: &'d Data<'a>) -> &'d [Option<&'a PageBuf>] {
        let count = usize::from(self.geometry.data_columns());
        data.get(..count).unwrap_or(data)
    }
}

/// The buffer of a column.
fn buffer(columns: &Columns, slot: Slot) -> Result<&PageBuf> {
    Ok(&columns.get(slot).ok_or(EIO)?.buf)
}

/// Runs `compute` on the buffers of up to two columns, while the others can be read.
///
/// # Errors
///
/// `EIO` when one of them has none.
fn with_two(
    columns: &mut Columns,
    first: Option<Slot>,
    second: Option<Slot>,
    compute: impl FnOnce(&Columns, Option<&mut PageBuf>, Option<&mut PageBuf>) -> Result,
) -> Result {
    let mut one = first.and_then(|slot| columns.take(slot));
    let mut two = second.and_then(|slot| columns.take(slot));
    let computed = match (one.is_some(), two.is_some()) == (first.is_some(), second.is_some()) {
        true => compute(
            columns,
            one.as_mut().map(|cmd| &mut cmd.buf),
            two.as_mut().map(|cmd| &mut cmd.buf),
        ),
        false => Err(EIO),
    };
    for (slot, cmd) in [(first, one), (second, two)] {
        if let (Some(slot), Some(cmd)) = (slot, cmd) {
            columns.put(slot, cmd);
        }
    }
    computed
}

/// Sets `dst` to the sum of all `sources` that are given.
fn xor_all(dst: &mut PageBuf, sources: &[Option<&PageBuf>], range: ByteRange) -> Result {
    let mut sources = sources;
    while let Some((first, rest)) = sources.split_first() {
        sources = rest;
        if let Some(first) = first {
            dst.copy_from_buf(range.start(), first, range.start(), range.len())?;
            return xor_into(dst, rest, range);
        }
    }
    dst.zero(range.start(), range.len())
}
