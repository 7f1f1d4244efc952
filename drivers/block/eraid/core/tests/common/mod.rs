// SPDX-License-Identifier: GPL-2.0

//! What the tests of the on-disk structures share: random numbers, pages, and their mutation.

#![allow(dead_code)] // Every test crate uses its part.

use eraid_core::crc32c::{checksum_around, reference};
use eraid_core::metapage::{Page, PAGE_SIZE};
use eraid_core::units::Uuid;
use std::collections::BTreeMap;

/// Offset of the checksum in superblocks and metadata pages.
const CRC_AT: usize = 8;

/// The seed of a test: `ERAID_SEED`, or a fixed one; printed.
pub(crate) fn seed(name: &str) -> u64 {
    let seed = match std::env::var("ERAID_SEED") {
        Ok(text) => text.parse().expect("ERAID_SEED has to be a number"),
        Err(_) => 20_240_229,
    };
    println!("{name}: ERAID_SEED={seed}");
    seed
}

/// A small random number generator: splitmix64.
pub(crate) struct Rng(u64);

impl Rng {
    /// The generator of a test: `ERAID_SEED` overrides its fixed seed, which is printed.
    pub(crate) fn for_test(name: &str) -> Rng {
        Rng(seed(name))
    }

    pub(crate) fn with_seed(seed: u64) -> Rng {
        Rng(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A number from `lo` to `hi`.
    pub(crate) fn between(&mut self, lo: u64, hi: u64) -> u64 {
        lo + self.below(hi - lo + 1)
    }

    /// True once in `n` times.
    pub(crate) fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of `choices`.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    pub(crate) fn uuid(&mut self) -> Uuid {
        let halves = u128::from(self.next()) << 64 | u128::from(self.next());
        Uuid::from_random(halves.to_be_bytes())
    }
}

/// How many mutated images a test makes: `few`, or a million in a soak (`ERAID_SOAK`).
pub(crate) fn images(few: usize) -> usize {
    match std::env::var_os("ERAID_SOAK") {
        Some(_) => few.max(1_000_000),
        None => few,
    }
}

/// The little-endian number of `size` bytes at `at`.
pub(crate) fn number(page: &Page, at: usize, size: usize) -> u64 {
    let bytes = page[at..at + size].iter().rev();
    bytes.fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Writes the low `size` bytes of `value`.
pub(crate) fn set_number(page: &mut Page, at: usize, size: usize, value: u64) {
    page[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
}

/// Whether all of these bytes are zero.
pub(crate) fn is_zero(page: &Page, from: usize, to: usize) -> bool {
    page[from..to].iter().all(|byte| *byte == 0)
}

/// Makes the checksum right.
pub(crate) fn reseal(page: &mut Page) {
    let sum = checksum_around(reference, page, CRC_AT);
    set_number(page, CRC_AT, 4, u64::from(sum));
}

/// Whether the checksum is right.
pub(crate) fn is_sealed(page: &Page) -> bool {
    number(page, CRC_AT, 4) == u64::from(checksum_around(reference, page, CRC_AT))
}

/// Every mix of the sectors of two versions of a page: all that a torn write can leave.
pub(crate) fn torn<'a>(old: &'a Page, new: &'a Page) -> impl Iterator<Item = Box<Page>> + 'a {
    (0..=255u32).map(move |mask| {
        let mut mix = Box::new(*old);
        for sector in (0..8).filter(|sector| mask & 1 << sector != 0) {
            let range = sector * 512..(sector + 1) * 512;
            mix[range.clone()].copy_from_slice(&new[range]);
        }
        mix
    })
}

/// A field of an on-disk structure.
#[derive(Clone)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) at: usize,
    pub(crate) size: usize,
}

/// The fields of a structure, which have to cover the page without gap or overlap.
pub(crate) struct Fields {
    fields: Vec<Field>,
    mutated: BTreeMap<String, u32>,
}

impl Fields {
    /// Starts a table; fields follow each other.
    pub(crate) fn new() -> Fields {
        Fields {
            fields: Vec::new(),
            mutated: BTreeMap::new(),
        }
    }

    /// Adds fields behind those there are.
    pub(crate) fn add(&mut self, fields: &[(&str, usize)]) {
        for (name, size) in fields {
            self.fields.push(Field {
                name: (*name).to_string(),
                at: self.end(),
                size: *size,
            });
        }
    }

    /// Where the next field starts.
    pub(crate) fn end(&self) -> usize {
        self.fields.last().map_or(0, |f| f.at + f.size)
    }

    /// Changes one to three fields, one of them number `turn` in turn, and says which.
    pub(crate) fn mutate(&mut self, page: &mut Page, rng: &mut Rng, turn: usize) -> Vec<String> {
        assert_eq!(self.end(), PAGE_SIZE, "the table does not cover the page");
        let mut names = Vec::new();
        for i in 0..rng.pick(&[1, 1, 1, 2, 3]) {
            let any = rng.below(self.fields.len() as u64) as usize;
            let index = if i == 0 {
                turn % self.fields.len()
            } else {
                any
            };
            let field = self.fields[index].clone();
            let before = *page;
            match field.size {
                4 | 8 => mutate_number(page, rng, &field),
                _ => mutate_bytes(page, rng, &field),
            }
            if before != *page {
                *self.mutated.entry(field.name.clone()).or_default() += 1;
            }
            names.push(field.name);
        }
        names
    }

    /// Asserts that every field was changed at least `times` times.
    pub(crate) fn assert_all_mutated(&self, times: u32) {
        for field in &self.fields {
            let seen = self.mutated.get(&field.name).copied().unwrap_or(0);
            assert!(seen >= times, "{} was mutated {seen} times", field.name);
        }
    }
}

/// Gives a number another value: near the old one, at a border, or anything.
fn mutate_number(page: &mut Page, rng: &mut Rng, field: &Field) {
    let old = number(page, field.at, field.size);
    let bits = field.size as u64 * 8;
    let value = match rng.below(10) {
        0 => rng.below(8),
        1 => old.wrapping_add(1),
        2 => old.wrapping_sub(1),
        3 => old ^ 1 << rng.below(bits),
        4 => u64::MAX,
        5 => 1 << rng.below(bits),
        6 => (1u64 << rng.below(bits)).wrapping_sub(1),
        7 => old << rng.below(8),
        8 => rng.below(100),
        _ => rng.next() >> rng.below(64),
    };
    set_number(page, field.at, field.size, value);
}

/// Changes bytes of a field that is no number.
fn mutate_bytes(page: &mut Page, rng: &mut Rng, field: &Field) {
    let at = field.at + rng.below(field.size as u64) as usize;
    match rng.below(5) {
        0 => page[field.at..field.at + field.size].fill(0),
        1 => page[at] ^= 1 << rng.below(8),
        2 => page[at] = rng.pick(b"\0/.a\xff\x80 "),
        3 => {
            // What stands elsewhere: twins, shifted structures.
            let from = rng.below((PAGE_SIZE - field.size) as u64) as usize;
            page.copy_within(from..from + field.size, field.at);
        }
        _ => page[at] = rng.next() as u8,
    }
}

/// The table of the fields of a superblock.
pub(crate) fn superblock_fields() -> Fields {
    let mut fields = Fields::new();
    fields.add(&[
        ("magic", 8),
        ("crc", 4),
        ("version", 4),
        ("array", 16),
        ("name", 32),
        ("generation", 8),
        ("incompat", 8),
        ("ro_compat", 8),
        ("compat", 8),
        ("level", 4),
        ("layout", 4),
        ("raid_disks", 4),
        ("chunk", 4),
        ("component", 8),
        ("logical_block_size", 4),
        ("policy", 4),
        ("local_m", 4),
        ("local_k", 4),
        ("local_interleave", 4),
        ("local_code", 4),
        ("region_shift", 4),
        ("active", 4),
        ("reserved", 8),
        ("superblock_a", 8),
        ("superblock_b", 8),
    ]);
    for area in ["bad_blocks", "map", "checkpoint", "ppl"] {
        fields.add(&[(&format!("{area}.start"), 8), (&format!("{area}.len"), 8)]);
    }
    fields.add(&[
        ("data", 8),
        ("reserved2", 8),
        ("slot", 4),
        ("reserved3", 4),
        ("member", 16),
        ("reshape", 232),
    ]);
    assert_eq!(fields.end(), 512);
    for slot in 0..64 {
        let name = |field: &str| format!("slots[{slot}].{field}");
        fields.add(&[
            (&name("uuid"), 16),
            (&name("state"), 4),
            (&name("reserved"), 4),
            (&name("generation"), 8),
            (&name("recovery_offset"), 8),
        ]);
    }
    fields.add(&[("reserved4", 1024)]);
    fields
}

/// Counts mutated images that got past the checksum.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) images: u32,
    pub(crate) past_crc: u32,
    pub(crate) accepted: u32,
}

impl Tally {
    /// Asserts that the mutations reached the checks behind the checksum.
    pub(crate) fn assert_deep(&self) {
        println!(
            "{} images, {} past the checksum, {} accepted",
            self.images, self.past_crc, self.accepted
        );
        assert!(self.past_crc * 2 >= self.images);
        assert!(self.accepted > 0 && self.accepted < self.past_crc);
    }
}
