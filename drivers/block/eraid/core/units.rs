// SPDX-License-Identifier: GPL-2.0

//! Units: one type for each kind of number, so that a sector is never taken for a stripe.

use core::fmt;

/// Bytes in a sector; the block layer counts in these whatever the device's block size is.
pub const SECTOR_SIZE: u32 = 512;

/// log2 of [`SECTOR_SIZE`].
pub const SECTOR_SHIFT: u32 = 9;

/// Most members an array can have; a [`SlotSet`] has one bit for each.
pub const MAX_SLOTS: usize = 64;

/// Defines a unit that wraps a `u64`.
macro_rules! unit {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) u64);

        impl $name {
            /// Zero.
            pub const ZERO: Self = Self(0);

            /// Wraps a plain number.
            #[inline]
            pub const fn new(value: u64) -> Self {
                Self(value)
            }

            /// The plain number.
            #[inline]
            pub const fn get(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

unit! {
    /// A position on a device or in an array, in 512-byte sectors from its start.
    Sector
}

unit! {
    /// A length, in 512-byte sectors.
    Sectors
}

unit! {
    /// Number of a stripe: the row of chunks at the same place on every member.
    StripeNo
}

unit! {
    /// Number of a region: a range of stripes whose state the region map holds.
    RegionNo
}

unit! {
    /// Counts the metadata writes of an array; the greater one is the newer.
    Generation
}

unit! {
    /// Number of a record in the partial parity log of a member, from 1.
    Sequence
}

unit! {
    /// A point in time or a duration, in microseconds of a monotonic clock.
    Micros
}

impl Sector {
    /// The position `len` further on, or `None` where that overflows.
    #[inline]
    pub const fn checked_add(self, len: Sectors) -> Option<Sector> {
        match self.0.checked_add(len.0) {
            Some(at) => Some(Sector(at)),
            None => None,
        }
    }

    /// How far this position lies behind `start`, or `None` where it lies before it.
    #[inline]
    pub const fn checked_since(self, start: Sector) -> Option<Sectors> {
        match self.0.checked_sub(start.0) {
            Some(len) => Some(Sectors(len)),
            None => None,
        }
    }
}

impl Sectors {
    /// The length of `bytes`, rounded down to whole sectors.
    #[inline]
    pub const fn from_bytes(bytes: u64) -> Sectors {
        Sectors(bytes >> SECTOR_SHIFT)
    }

    /// The length in bytes, or `None` where that does not fit.
    #[inline]
    pub const fn bytes(self) -> Option<u64> {
        self.0.checked_mul(SECTOR_SIZE as u64)
    }

    /// The sum, or `None` where it overflows.
    #[inline]
    pub const fn checked_add(self, other: Sectors) -> Option<Sectors> {
        match self.0.checked_add(other.0) {
            Some(len) => Some(Sectors(len)),
            None => None,
        }
    }

    /// The difference, or `None` where `other` is the longer one.
    #[inline]
    pub const fn checked_sub(self, other: Sectors) -> Option<Sectors> {
        match self.0.checked_sub(other.0) {
            Some(len) => Some(Sectors(len)),
            None => None,
        }
    }

    /// The difference, or nothing where `other` is the longer one.
    #[inline]
    pub const fn saturating_sub(self, other: Sectors) -> Sectors {
        Sectors(self.0.saturating_sub(other.0))
    }
}

impl StripeNo {
    /// The stripe behind this one; the last number stays where it is.
    #[inline]
    pub const fn next(self) -> StripeNo {
        StripeNo(self.0.saturating_add(1))
    }
}

impl Generation {
    /// The generation of the next metadata write; the last number stays where it is.
    #[inline]
    pub const fn next(self) -> Generation {
        Generation(self.0.saturating_add(1))
    }
}

impl Sequence {
    /// The number of the next record; the last number stays where it is.
    #[inline]
    pub const fn next(self) -> Sequence {
        Sequence(self.0.saturating_add(1))
    }
}

impl Micros {
    /// The time `duration` later; the end of time stays where it is.
    #[inline]
    pub const fn saturating_add(self, duration: Micros) -> Micros {
        Micros(self.0.saturating_add(duration.0))
    }

    /// The time since `earlier`, or zero where that lies ahead.
    #[inline]
    pub const fn saturating_sub(self, earlier: Micros) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }
}

/// Place of a member in its array, 0 to 63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u8);

impl Slot {
    /// Slot 0.
    pub const FIRST: Slot = Slot(0);

    /// The slot of this number, or `None` above 63.
    #[inline]
    pub const fn new(number: u8) -> Option<Slot> {
        if (number as usize) < MAX_SLOTS {
            Some(Slot(number))
        } else {
            None
        }
    }

    /// The slot of the low six bits of `number`, for numbers that were reduced already.
    #[inline]
    pub(crate) const fn masked(number: u64) -> Slot {
        Slot((number & (MAX_SLOTS as u64 - 1)) as u8)
    }

    /// The number, 0 to 63.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The slot's bit in a set. The mask changes nothing; it spares a check of the shift.
    #[inline]
    const fn bit(self) -> u64 {
        1 << (self.0 & 63)
    }

    /// The number as an index, 0 to 63.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A set of slots.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SlotSet(u64);

impl SlotSet {
    /// The set without any slot.
    pub const EMPTY: SlotSet = SlotSet(0);

    /// The set of one slot.
    #[inline]
    pub const fn single(slot: Slot) -> SlotSet {
        SlotSet(slot.bit())
    }

    /// The set of the slots 0 to `count` - 1; all 64 where `count` is greater.
    #[inline]
    pub const fn first_n(count: u8) -> SlotSet {
        match 1u64.checked_shl(count as u32) {
            Some(bit) => SlotSet(bit - 1),
            None => SlotSet(u64::MAX),
        }
    }

    /// The set of a bit mask, bit 0 being slot 0.
    #[inline]
    pub const fn from_bits(bits: u64) -> SlotSet {
        SlotSet(bits)
    }

    /// The bit mask, bit 0 being slot 0.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether `slot` is in the set.
    #[inline]
    pub const fn contains(self, slot: Slot) -> bool {
        self.0 & slot.bit() != 0
    }

    /// The set with `slot` in it.
    #[inline]
    #[must_use]
    pub const fn with(self, slot: Slot) -> SlotSet {
        SlotSet(self.0 | slot.bit())
    }

    /// The set with `slot` not in it.
    #[inline]
    #[must_use]
    pub const fn without(self, slot: Slot) -> SlotSet {
        SlotSet(self.0 & !slot.bit())
    }

    /// Puts `slot` in.
    #[inline]
    pub fn insert(&mut self, slot: Slot) {
        *self = self.with(slot);
    }

    /// Takes `slot` out.
    #[inline]
    pub fn remove(&mut self, slot: Slot) {
        *self = self.without(slot);
    }

    /// What is in either set.
    #[inline]
    #[must_use]
    pub const fn union(self, other: SlotSet) -> SlotSet {
        SlotSet(self.0 | other.0)
    }

    /// What is in both sets.
    #[inline]
    #[must_use]
    pub const fn intersect(self, other: SlotSet) -> SlotSet {
        SlotSet(self.0 & other.0)
    }

    /// What is in this set but not in `other`.
    #[inline]
    #[must_use]
    pub const fn minus(self, other: SlotSet) -> SlotSet {
        SlotSet(self.0 & !other.0)
    }

    /// How many slots are in the set, 0 to 64.
    #[inline]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether no slot is in the set.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all of this set is in `other`.
    #[inline]
    pub const fn is_subset(self, other: SlotSet) -> bool {
        self.0 & !other.0 == 0
    }

    /// The lowest slot of the set.
    #[inline]
    pub const fn first(self) -> Option<Slot> {
        Slot::new(self.0.trailing_zeros() as u8)
    }

    /// The slots of the set, lowest first.
    #[inline]
    pub const fn iter(self) -> SlotIter {
        SlotIter(self)
    }
}

impl fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Slot::get)).finish()
    }
}

impl FromIterator<Slot> for SlotSet {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> SlotSet {
        slots.into_iter().fold(SlotSet::EMPTY, SlotSet::with)
    }
}

impl IntoIterator for SlotSet {
    type Item = Slot;
    type IntoIter = SlotIter;

    #[inline]
    fn into_iter(self) -> SlotIter {
        self.iter()
    }
}

/// The slots of a [`SlotSet`], lowest first.
#[derive(Clone, Debug)]
pub struct SlotIter(SlotSet);

impl Iterator for SlotIter {
    type Item = Slot;

    #[inline]
    fn next(&mut self) -> Option<Slot> {
        let slot = self.0.first()?;
        self.0.remove(slot);
        Some(slot)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.0.len() as usize;
        (left, Some(left))
    }
}

/// Identity of an array or of a member, as RFC 9562 writes it.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid([u8; 16]);

impl Uuid {
    /// The uuid of nothing.
    pub const NIL: Uuid = Uuid([0; 16]);

    /// Wraps the 16 bytes, in the order they are written.
    #[inline]
    pub const fn new(bytes: [u8; 16]) -> Uuid {
        Uuid(bytes)
    }

    /// A version 4 uuid of 16 random bytes.
    pub const fn from_random(bytes: [u8; 16]) -> Uuid {
        let mut value = u128::from_be_bytes(bytes);
        // RFC 9562, 5.4: version 4 in bits 48 to 51, variant 0b10 in bits 64 and 65.
        value = value & !(0xf << 76) | (4 << 76);
        value = value & !(0x3 << 62) | (2 << 62);
        Uuid(value.to_be_bytes())
    }

    /// The 16 bytes, in the order they are written.
    #[inline]
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Whether this is the uuid of nothing.
    #[inline]
    pub fn is_nil(&self) -> bool {
        *self == Uuid::NIL
    }

    /// Reads `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`, digits in either case.
    pub fn parse(text: &str) -> Option<Uuid> {
        if text.len() != 36 {
            return None;
        }
        let mut value: u128 = 0;
        for (i, c) in text.bytes().enumerate() {
            if Self::dash_before(i) {
                if c != b'-' {
                    return None;
                }
            } else {
                value = (value << 4) | u128::from(char::from(c).to_digit(16)?);
            }
        }
        Some(Uuid(value.to_be_bytes()))
    }

    /// Whether the text has a dash at byte `i`.
    const fn dash_before(i: usize) -> bool {
        matches!(i, 8 | 13 | 18 | 23)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_bounded() {
        assert_eq!(Slot::new(63).map(Slot::get), Some(63));
        assert_eq!(Slot::new(64), None);
        assert_eq!(Slot::masked(65).get(), 1);
    }

    #[test]
    fn set_operations() {
        let set: SlotSet = [3, 0, 63].into_iter().filter_map(Slot::new).collect();
        let numbers: Vec<u8> = set.iter().map(Slot::get).collect();
        assert_eq!(numbers, [0, 3, 63]);
        assert_eq!(set.len(), 3);
        assert_eq!(SlotSet::first_n(64).len(), 64);
        assert_eq!(SlotSet::first_n(200).len(), 64);
        assert_eq!(SlotSet::first_n(0), SlotSet::EMPTY);
        assert_eq!(SlotSet::first_n(4).minus(set).bits(), 0b0110);
        assert!(set.intersect(SlotSet::first_n(4)).is_subset(set));
        assert!(!set.is_subset(SlotSet::first_n(4)));
        assert_eq!(format!("{set:?}"), "{0, 3, 63}");
        let mut set = set;
        set.remove(Slot::masked(0));
        assert_eq!(set.first(), Some(Slot::masked(3)));
        assert_eq!(SlotSet::EMPTY.first(), None);
    }

    #[test]
    fn uuid_text_round_trip() {
        let text = "01234567-89ab-cdef-0123-456789abcdef";
        let uuid = Uuid::parse(text).unwrap();
        assert_eq!(uuid.to_string(), text);
        assert_eq!(Uuid::parse(&text.to_uppercase()), Some(uuid));
        for bad in [
            "",
            "01234567-89ab-cdef-0123-456789abcde",
            "01234567-89ab-cdef-0123-456789abcdeg",
            "01234567-89ab-cdef-0123+456789abcdef",
            "0123456-789ab-cdef-0123-456789abcdef",
            "01234567-89ab-cdef-0123-456789abcd\u{e9}",
        ] {
            assert_eq!(Uuid::parse(bad), None, "{bad}");
        }
        let random = Uuid::from_random([0xff; 16]).to_string();
        assert_eq!(random, "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }

    #[test]
    fn lengths_do_not_wrap() {
        assert_eq!(Sectors::new(u64::MAX).bytes(), None);
        assert_eq!(Sectors::from_bytes(1023), Sectors::new(1));
        assert_eq!(Sector::new(u64::MAX).checked_add(Sectors::new(1)), None);
        assert_eq!(Sector::new(1).checked_since(Sector::new(2)), None);
        assert_eq!(Generation::new(u64::MAX).next().get(), u64::MAX);
    }
}
