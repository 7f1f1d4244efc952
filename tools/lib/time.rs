// SPDX-License-Identifier: GPL-2.0

//! Times in nanoseconds, as the programs keep them and as they are written on the command line.

use std::ops::{Add, AddAssign, Sub};

/// A length of time, or a point of time since the start of a run, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanos(pub u64);

/// Units of [`Nanos::parse`] with their length in nanoseconds; longer names first.
const UNITS: [(&str, u64); 4] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
];

impl Nanos {
    /// Parses `250ns`, `100us`, `8ms`, `400s`: a whole number with its unit.
    pub fn parse(text: &str) -> Result<Self, String> {
        let unit = UNITS.iter().find_map(|(name, nanos)| {
            let digits = text.strip_suffix(name)?;
            Some((digits, *nanos))
        });
        let (digits, unit) = unit.ok_or_else(|| format!("'{text}' has no unit: ns, us, ms, s"))?;
        let number: u64 = digits
            .parse()
            .map_err(|_| format!("'{text}' is not a time"))?;
        let nanos = number.checked_mul(unit);
        nanos
            .map(Nanos)
            .ok_or_else(|| format!("'{text}' is too long"))
    }

    /// The time since `earlier`, none if that is later.
    pub fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }

    /// In microseconds, for people.
    pub fn micros(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// In seconds, for rates.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add for Nanos {
    type Output = Nanos;

    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0 + other.0)
    }
}

impl Sub for Nanos {
    type Output = Nanos;

    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0 - other.0)
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        self.0 += other.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(Nanos::parse("250ns"), Ok(Nanos(250)));
        assert_eq!(Nanos::parse("100us"), Ok(Nanos(100_000)));
        assert_eq!(Nanos::parse("8ms"), Ok(Nanos(8_000_000)));
        assert_eq!(Nanos::parse("400s"), Ok(Nanos(400_000_000_000)));
        for bad in [
            "",
            "8",
            "ms",
            "-8ms",
            "8 ms",
            "1.5ms",
            "8m",
            "99999999999999s",
        ] {
            assert!(Nanos::parse(bad).is_err(), "{bad}");
        }
    }
}
