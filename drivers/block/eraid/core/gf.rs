// SPDX-License-Identifier: GPL-2.0

//! Parity: a scalar reference of the codes, which the tests compare the kernel's with.
//!
//! The field is GF(2^8) modulo x^8 + x^4 + x^3 + x^2 + 1 (0x11d) with generator 2, as in RAID-6:
//! H. P. Anvin, "The mathematics of RAID-6", and lib/raid6 in the kernel.

/// The product with the generator.
#[inline]
pub const fn double(a: u8) -> u8 {
    let reduced = if a & 0x80 != 0 { 0x1d } else { 0 };
    (a << 1) ^ reduced
}

/// The product of two elements.
pub const fn multiply(a: u8, b: u8) -> u8 {
    let mut product = 0;
    let mut power = a;
    let mut rest = b;
    while rest != 0 {
        if rest & 1 != 0 {
            product ^= power;
        }
        power = double(power);
        rest >>= 1;
    }
    product
}

/// The power `exponent` of the generator; exponents count modulo 255.
pub const fn generator_power(exponent: u8) -> u8 {
    let mut power = 1;
    let mut left = exponent;
    while left > 0 {
        power = double(power);
        left -= 1;
    }
    power
}

/// The element whose product with `a` is 1, or 0 for 0.
pub const fn inverse(a: u8) -> u8 {
    // a^255 is 1, so a^254 is the inverse: the product of a^2, a^4, up to a^128.
    let mut square = multiply(a, a);
    let mut product = square;
    let mut count = 1;
    while count < 7 {
        square = multiply(square, square);
        product = multiply(product, square);
        count += 1;
    }
    product
}

/// Adds `from` to `to`, byte by byte; what one has more than the other is left alone.
pub fn xor_into(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to ^= from;
    }
}

/// P and Q of the data columns, which come in their order from column 0 on.
///
/// P is the sum of D_i, Q the sum of 2^i D_i; of the shortest of all given lengths.
pub fn syndromes<'a, I>(columns: I, p: &mut [u8], q: &mut [u8])
where
    I: IntoIterator<Item = &'a [u8]>,
    I::IntoIter: DoubleEndedIterator,
{
    p.fill(0);
    q.fill(0);
    // Horner's rule, from the highest power down.
    for column in columns.into_iter().rev() {
        for ((p, q), data) in p.iter_mut().zip(q.iter_mut()).zip(column) {
            *p ^= data;
            *q = double(*q) ^ data;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn field() {
        assert_eq!(multiply(0x80, 2), 0x1d);
        assert_eq!(generator_power(255), 1);
        for a in 1..=255 {
            assert_eq!(multiply(a, inverse(a)), 1, "{a}");
            assert_eq!(multiply(a, 2), double(a));
        }
        assert_eq!(inverse(0), 0);
        // The generator reaches every element but 0.
        let mut reached = [false; 256];
        (0..255).for_each(|i| reached[usize::from(generator_power(i))] = true);
        assert_eq!(reached.iter().filter(|r| **r).count(), 255);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn multiplication_distributes(a: u8, b: u8, c: u8) {
            prop_assert_eq!(multiply(a, b ^ c), multiply(a, b) ^ multiply(a, c));
            prop_assert_eq!(multiply(a, b), multiply(b, a));
            prop_assert_eq!(multiply(multiply(a, b), c), multiply(a, multiply(b, c)));
        }

        /// The sums as the definition has them, and any two data columns back out of them.
        #[test]
        fn two_columns_come_back(
            data in prop::collection::vec(prop::collection::vec(any::<u8>(), 16), 2..20),
            x: prop::sample::Index,
            y: prop::sample::Index,
        ) {
            let (mut p, mut q) = ([0; 16], [0; 16]);
            syndromes(data.iter().map(Vec::as_slice), &mut p, &mut q);
            let (x, y) = (x.index(data.len()), y.index(data.len()));
            for at in 0..16 {
                let term = |i: usize| multiply(generator_power(i as u8), data[i][at]);
                prop_assert_eq!(p[at], data.iter().fold(0, |sum, column| sum ^ column[at]));
                prop_assert_eq!(q[at], (0..data.len()).fold(0, |sum, i| sum ^ term(i)));
                if x == y {
                    continue;
                }
                let others = (0..data.len()).filter(|i| *i != x && *i != y);
                let (mut px, mut qx) = (p[at], q[at]);
                others.for_each(|i| {
                    px ^= data[i][at];
                    qx ^= term(i);
                });
                // px = Dx + Dy, qx = g^x Dx + g^y Dy.
                let (gx, gy) = (generator_power(x as u8), generator_power(y as u8));
                let dx = multiply(qx ^ multiply(gy, px), inverse(gx ^ gy));
                prop_assert_eq!(dx, data[x][at]);
                prop_assert_eq!(px ^ dx, data[y][at]);
            }
        }
    }
}
