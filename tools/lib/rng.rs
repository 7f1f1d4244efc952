// SPDX-License-Identifier: GPL-2.0

//! The random numbers of a run: SplitMix64, so that a seed means the same writes everywhere.

/// Mixes a 64-bit value into one that looks independent of it (SplitMix64's output function,
/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[inline]
pub fn mix(value: u64) -> u64 {
    let mut z = value;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A SplitMix64 generator.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator whose numbers depend on all of `parts`.
    pub fn new(parts: &[u64]) -> Self {
        let mut state = 0;
        for &part in parts {
            state = mix(state ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        }
        Rng(state)
    }

    /// The next number, any 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number in `0..bound`; 0 when `bound` is 0. The bias is below 2^-32 for our bounds.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True in `percent` of 100 cases.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < u64::from(percent)
    }

    /// A number in `1..=max`, small ones and large ones equally likely: first a power of two,
    /// then a number below it. Most writes are smaller than a stripe, some are several stripes.
    pub fn log_uniform(&mut self, max: u64) -> u64 {
        if max <= 1 {
            return 1;
        }
        let steps = u64::from(64 - (max - 1).leading_zeros());
        let ceiling = 1u64 << (self.below(steps) + 1).min(63);
        1 + self.below(ceiling.min(max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_numbers_never_change() {
        // A recorded seed must replay for ever: these are part of the tool's interface.
        let mut rng = Rng::new(&[1, 2]);
        assert_eq!(
            [rng.next_u64(), rng.next_u64()],
            [0x802f_a57f_1294_e6e8, 0xaac2_88c3_53ed_5ce4]
        );
        assert_ne!(Rng::new(&[1, 2]).next_u64(), Rng::new(&[2, 1]).next_u64());
    }

    #[test]
    fn bounds_hold() {
        let mut rng = Rng::new(&[7]);
        let mut sizes = [0u32; 65];
        for _ in 0..100_000 {
            assert!(rng.below(10) < 10);
            let size = rng.log_uniform(64);
            assert!((1..=64).contains(&size));
            sizes[size as usize] += 1;
        }
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.log_uniform(1), 1);
        assert!(sizes[1] > 5_000 && sizes[33..].iter().sum::<u32>() > 5_000);
    }
}
