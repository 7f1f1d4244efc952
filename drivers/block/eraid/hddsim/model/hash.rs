// SPDX-License-Identifier: GPL-2.0

//! The only source of chance: a hash of numbers, so that one seed gives the same digits every time.

/// Mixes all bits of `x` (the finaliser of splitmix64, by Sebastiano Vigna, public domain).
#[inline]
const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The hash of a list of numbers; the order counts.
#[inline]
pub fn hash(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |state, number| {
        mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ mix(number.wrapping_add(1)))
    })
}

/// A number below `n` for a hash, each as likely; 0 for `n` = 0.
#[inline]
pub const fn below(hash: u64, n: u32) -> u32 {
    // CAST: The product of two 32-bit numbers, whose upper half is below `n`.
    (((hash >> 32) * n as u64) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_numbers_and_their_order_count() {
        assert_ne!(hash(&[1, 2]), hash(&[2, 1]));
        assert_ne!(hash(&[1]), hash(&[1, 0]));
        assert_ne!(hash(&[0]), hash(&[0, 0]));
    }

    #[test]
    fn numbers_are_evenly_spread() {
        let mut counts = [0u32; 10];
        for n in 0..100_000 {
            counts[below(hash(&[7, n]), 10) as usize] += 1;
        }
        // 10,000 each, standard deviation 95.
        assert!(
            counts.iter().all(|count| (9_600..=10_400).contains(count)),
            "{counts:?}"
        );
    }
}
