// SPDX-License-Identifier: GPL-2.0

//! One stripe: which of its chunks follow from the others, by the scalar reference of the codes.

use eraid_core::gf;

/// A parity chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parity {
    /// The sum of the data.
    P,
    /// The syndrome of RAID-6.
    Q,
}

/// The chunks of a stripe, all of one length; `None` where the member is absent or the level has
/// no such parity.
pub struct Stripe {
    /// The data columns in their order.
    pub data: Vec<Option<Vec<u8>>>,
    /// The sum of the data.
    pub p: Option<Vec<u8>>,
    /// The syndrome of RAID-6.
    pub q: Option<Vec<u8>>,
    /// Bytes in a chunk.
    pub chunk: usize,
}

/// More chunks are absent than the parity there is can replace.
#[derive(Debug, PartialEq, Eq)]
pub struct TooFew;

impl Stripe {
    /// All data columns, the absent ones computed from what is there.
    ///
    /// One comes from P if that is there, else from Q; two from both.
    pub fn data(&self) -> Result<Vec<Vec<u8>>, TooFew> {
        let absent: Vec<usize> = (0..self.data.len())
            .filter(|&column| self.data[column].is_none())
            .collect();
        let zeros = || vec![0; self.chunk];
        let mut data: Vec<Vec<u8>> = self
            .data
            .iter()
            .map(|column| column.clone().unwrap_or_else(zeros))
            .collect();
        // With zeros for the absent columns, what differs from P and Q is theirs.
        let (mut p, mut q) = self.parities(&data);
        match (absent.as_slice(), &self.p, &self.q) {
            ([], _, _) => {}
            ([x], Some(held), _) => {
                gf::xor_into(&mut p, held);
                data[*x] = p;
            }
            ([x], None, Some(held)) => {
                gf::xor_into(&mut q, held);
                scale(&mut q, gf::inverse(power(*x)));
                data[*x] = q;
            }
            ([x, y], Some(held_p), Some(held_q)) => {
                // p = Dx + Dy and q = g^x Dx + g^y Dy, so Dx = (q + g^y p) / (g^x + g^y).
                gf::xor_into(&mut p, held_p);
                gf::xor_into(&mut q, held_q);
                let mut other = p.clone();
                scale(&mut other, power(*y));
                gf::xor_into(&mut q, &other);
                scale(&mut q, gf::inverse(power(*x) ^ power(*y)));
                gf::xor_into(&mut p, &q);
                data[*x] = q;
                data[*y] = p;
            }
            _ => return Err(TooFew),
        }
        Ok(data)
    }

    /// The parity chunks that are not those of `data`, with the first byte that differs.
    pub fn wrong_parity(&self, data: &[Vec<u8>]) -> Vec<(Parity, usize)> {
        let (p, q) = self.parities(data);
        let held = [(Parity::P, &self.p, p), (Parity::Q, &self.q, q)];
        held.into_iter()
            .filter_map(|(name, held, right)| {
                let at = first_difference(held.as_ref()?, &right)?;
                Some((name, at))
            })
            .collect()
    }

    fn parities(&self, data: &[Vec<u8>]) -> (Vec<u8>, Vec<u8>) {
        let (mut p, mut q) = (vec![0; self.chunk], vec![0; self.chunk]);
        gf::syndromes(data.iter().map(Vec::as_slice), &mut p, &mut q);
        (p, q)
    }
}

/// Where two chunks first differ.
pub fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    if a == b {
        return None;
    }
    a.iter().zip(b).position(|(a, b)| a != b)
}

/// What column `number` counts in Q.
fn power(number: usize) -> u8 {
    // At most 62 data columns.
    gf::generator_power(number as u8)
}

/// Multiplies each byte by `factor`.
fn scale(bytes: &mut [u8], factor: u8) {
    let products: Vec<u8> = (0..=255).map(|byte| gf::multiply(byte, factor)).collect();
    for byte in bytes {
        *byte = products[usize::from(*byte)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eraid_tools::rng::Rng;

    const CHUNK: usize = 64;

    /// A whole stripe of this many data columns.
    fn stripe(columns: usize) -> Stripe {
        let mut rng = Rng::new(&[columns as u64]);
        let data: Vec<Vec<u8>> = (0..columns)
            .map(|_| (0..CHUNK).map(|_| rng.below(256) as u8).collect())
            .collect();
        let mut stripe = Stripe {
            data: data.iter().cloned().map(Some).collect(),
            p: None,
            q: None,
            chunk: CHUNK,
        };
        // By the definition, not as the code above has it.
        let sum = |weight: &dyn Fn(usize) -> u8| -> Vec<u8> {
            (0..CHUNK)
                .map(|at| (0..columns).fold(0, |sum, i| sum ^ gf::multiply(weight(i), data[i][at])))
                .collect()
        };
        stripe.p = Some(sum(&|_| 1));
        stripe.q = Some(sum(&power));
        stripe
    }

    /// Takes away chunk `number`: data columns, then P, then Q.
    fn take(stripe: &mut Stripe, number: usize) {
        let columns = stripe.data.len();
        match number.checked_sub(columns) {
            None => stripe.data[number] = None,
            Some(0) => stripe.p = None,
            Some(_) => stripe.q = None,
        }
    }

    #[test]
    fn any_two_chunks_may_be_absent() {
        for columns in [2, 3, 6, 62] {
            let whole = stripe(columns);
            let right = whole.data().unwrap();
            assert_eq!(whole.wrong_parity(&right), []);
            for a in 0..columns + 2 {
                for b in a..columns + 2 {
                    let mut stripe = stripe(columns);
                    take(&mut stripe, a);
                    take(&mut stripe, b);
                    assert_eq!(
                        stripe.data().as_ref(),
                        Ok(&right),
                        "{a} and {b} of {columns}"
                    );
                    assert_eq!(stripe.wrong_parity(&right), []);
                }
            }
        }
    }

    #[test]
    fn one_parity_replaces_one_chunk() {
        let mut stripe = stripe(4);
        stripe.q = None;
        let right = stripe.data().unwrap();
        take(&mut stripe, 2);
        assert_eq!(stripe.data(), Ok(right));
        take(&mut stripe, 3);
        assert_eq!(stripe.data(), Err(TooFew));
        stripe.p = None;
        take(&mut stripe, 0);
        assert_eq!(stripe.data(), Err(TooFew));
    }

    #[test]
    fn a_wrong_bit_is_noticed() {
        for (at, name) in [(1, Parity::P), (63, Parity::Q)] {
            let mut stripe = stripe(5);
            let held = match name {
                Parity::P => stripe.p.as_mut(),
                Parity::Q => stripe.q.as_mut(),
            };
            held.unwrap()[at] ^= 0x10;
            let data = stripe.data().unwrap();
            assert_eq!(stripe.wrong_parity(&data), [(name, at)]);
        }
        // Wrong data is in both.
        let mut stripe = stripe(5);
        stripe.data[3].as_mut().unwrap()[7] ^= 1;
        let data = stripe.data().unwrap();
        let both = [(Parity::P, 7), (Parity::Q, 7)];
        assert_eq!(stripe.wrong_parity(&data), both);
        // And with one chunk absent, one parity is left to tell.
        take(&mut stripe, 0);
        let data = stripe.data().unwrap();
        assert_eq!(stripe.wrong_parity(&data), [(Parity::Q, 7)]);
    }
}
