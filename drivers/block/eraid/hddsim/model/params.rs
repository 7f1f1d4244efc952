// SPDX-License-Identifier: GPL-2.0

//! The parameters of a drive: names, ranges, defaults, their text forms and their hash.
//!
//! The defaults are a common 7200 rpm drive of 2 TB, the one that measurements are made on;
//! Documentation/hddsim.rst has the source of each.

use crate::failure::{FailMode, Failures, PPM};
use crate::refusal::{Errno, Refusal};
use crate::refuse;
use crate::units::{Nanos, BLOCK_SIZE};
use crate::words::{decimal, size, Excerpt, NotDecimal};
use core::fmt;
use core::num::NonZeroU32;

/// How the text of a parameter is read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A decimal number.
    Number,
    /// Bytes; read with K, M, G or T (powers of 1024) behind it, too.
    Bytes,
    /// One of these words, standing for 0, 1 and so on.
    Words(&'static [&'static str]),
}

/// When a parameter can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// When the drive is made.
    Creation,
    /// At any time.
    Always,
}

/// What a parameter is.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Its name in control lines and sysfs.
    pub name: &'static str,
    /// When it can be set.
    pub when: When,
    /// Its text form.
    pub form: Form,
    /// Its value if none is given.
    pub default: u64,
    /// Its smallest value.
    pub min: u64,
    /// Its greatest value.
    pub max: u64,
}

/// Defines the parameters.
macro_rules! params {
    ($($(#[$doc:meta])* $key:ident $name:literal $when:ident $form:expr, $default:expr, $range:expr;)+) => {
        /// Names a parameter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Key {
            $($(#[$doc])* $key,)+
        }

        /// All parameters, in the order of [`Key`].
        pub const SPECS: [Spec; Key::COUNT] = [
            $(Spec {
                name: $name,
                when: When::$when,
                form: $form,
                default: $default,
                min: $range.0,
                max: $range.1,
            },)+
        ];

        /// The defaults, in the order of [`Key`].
        const DEFAULTS: [u64; Key::COUNT] = [$($default,)+];

        impl Key {
            /// The number of parameters.
            pub const COUNT: usize = [$(Key::$key,)+].len();

            /// All of them, in their order.
            pub const ALL: [Key; Self::COUNT] = [$(Key::$key,)+];
        }
    };
}

params! {
    /// Capacity in bytes.
    Size "size" Creation Form::Bytes, 2_000_000_000_000, (1 << 20, 1u64 << 46);
    /// Logical block size; physical blocks have 4 KiB always.
    LogicalBlock "logical_block" Creation Form::Words(&["512", "4096"]), 0, (0, 1);
    /// Seed of everything that is left to chance.
    Seed "seed" Always Form::Number, 1, (0, u64::MAX);
    /// Turns a minute.
    Rpm "rpm" Always Form::Number, 7200, (600, 60_000);
    /// Largest deviation of the speed, in millionths; the seed chooses the actual one.
    SpeedSpreadPpm "speed_spread_ppm" Always Form::Number, 1000, (0, 100_000);
    /// 4 KiB sectors of a track in the outermost zone.
    SectorsPerTrack "sectors_per_track" Always Form::Number, 293, (16, 10_000);
    /// The same in the innermost zone.
    SectorsPerTrackInner "sectors_per_track_inner" Always Form::Number, 293, (16, 10_000);
    /// Zones, each with as many cylinders.
    Zones "zones" Always Form::Number, 1, (1, 32);
    /// Heads, which are tracks of a cylinder.
    Heads "heads" Always Form::Number, 8, (1, 64);
    /// The constant of the seek curve, in microseconds.
    SeekMinUs "seek_min_us" Always Form::Number, 2000, (0, 1_000_000);
    /// The factor of the root in the seek curve, in microseconds.
    SeekSqrtUs "seek_sqrt_us" Always Form::Number, 13_000, (0, 1_000_000);
    /// Time to change to another head of the cylinder, in microseconds.
    HeadSwitchUs "head_switch_us" Always Form::Number, 0, (0, 100_000);
    /// Time of a command before the arm moves, in microseconds.
    OverheadUs "overhead_us" Always Form::Number, 150, (0, 1_000_000);
    /// Time of a command that needs no mechanics, in microseconds.
    HitUs "hit_us" Always Form::Number, 50, (0, 1_000_000);
    /// How far the drive reads on behind a read, in KiB.
    LookaheadKib "lookahead_kib" Always Form::Number, 4096, (0, 1 << 20);
    /// Whether what passes before the wanted blocks is kept, too.
    TrackBuffer "track_buffer" Always Form::Number, 0, (0, 1);
    /// The oldest so many commands are candidates when the next is chosen.
    QueueDepth "queue_depth" Always Form::Number, 32, (1, 64);
    /// From this age on, in milliseconds, a command may be preferred to nearer ones; 0 is never.
    AgeMs "age_ms" Always Form::Number, 1000, (0, 3_600_000);
    /// At most one in so many choices is by age.
    AgeEvery "age_every" Always Form::Number, 16, (1, 1_000_000);
    /// Probability that a 4 KiB sector fails to be read at once, in millionths.
    FailPpm "fail_ppm" Always Form::Number, 0, (0, PPM as u64);
    /// See [`FailMode`].
    FailMode "fail_mode" Always Form::Words(&["independent", "persistent"]), 0, (0, 1);
    /// So many sectors fail together.
    FailBurst "fail_burst" Always Form::Number, 1, (1, 65_536);
    /// Extra turns for a failed sector, after which it is read.
    RetryTurns "retry_turns" Always Form::Number, 5, (0, 10_000);
    /// See [`RetryOff`].
    RetryOff "retry_off" Always Form::Words(&["never", "hint", "always"]), 1, (0, 2);
    /// Blocks that are still read into the buffer behind one that ended a command.
    ErrorLookahead "error_lookahead" Always Form::Number, 0, (0, 65_536);
    /// What an error costs the host, in milliseconds, during which the drive does nothing else.
    ErrorStallMs "error_stall_ms" Always Form::Number, 0, (0, 600_000);
    /// Whether the host learns where the first bad block is (valid sense information).
    SenseInfo "sense_info" Always Form::Number, 1, (0, 1);
    /// All times of the drive, in percent.
    SlowPercent "slow_percent" Always Form::Number, 100, (1, 1_000_000);
    /// Added to each command on the medium, one after the other, in milliseconds.
    DelayMs "delay_ms" Always Form::Number, 0, (0, 3_600_000);
    /// Added to each answer, all at once, in milliseconds.
    LatencyMs "latency_ms" Always Form::Number, 0, (0, 3_600_000);
    /// Whether writes are acknowledged before they are durable.
    WriteCache "write_cache" Always Form::Number, 1, (0, 1);
    /// Size of the write cache in KiB.
    WriteCacheKib "write_cache_kib" Always Form::Number, 65_536, (0, 1 << 20);
}

/// When a read ends with an error at the first bad sector instead of retrying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryOff {
    /// Never.
    Never,
    /// When the command asks for it.
    Hint,
    /// Always, as with SCT ERC set to no time at all.
    Always,
}

impl Key {
    /// What the parameter is.
    #[inline]
    pub fn spec(self) -> &'static Spec {
        const NONE: Spec = SPECS[0];
        // Always there: the table has an entry for each.
        SPECS.get(self as usize).unwrap_or(&NONE)
    }

    /// The parameter of this name.
    pub fn named(name: &str) -> Option<Key> {
        Key::ALL.into_iter().find(|key| key.spec().name == name)
    }

    /// Parses a value of this parameter; `file` is where it was written to.
    ///
    /// # Errors
    ///
    /// `EINVAL` for what is no such value, `ERANGE` for a number out of the range.
    pub fn parse(self, file: &str, text: &str) -> Result<u64, Refusal> {
        let spec = self.spec();
        let parsed = match spec.form {
            Form::Number => decimal(text),
            Form::Bytes => size(text),
            Form::Words(words) => words
                .iter()
                .zip(0..)
                .find(|(word, _)| **word == text)
                .map(|(_, value)| value)
                .ok_or(NotDecimal::Malformed),
        };
        let shown = Excerpt(text.as_bytes());
        let name = spec.name;
        match parsed {
            Ok(value) if (spec.min..=spec.max).contains(&value) => self.check(file, value),
            Ok(_) | Err(NotDecimal::TooLarge) => Err(refuse!(
                Errno::Range,
                "{file}: {name}={shown} is out of range, {} to {}",
                spec.min,
                spec.max
            )),
            Err(NotDecimal::Malformed) => Err(match spec.form {
                Form::Words(words) => {
                    refuse!(Errno::Inval, "{file}: {name}={shown} is none of {words:?}")
                }
                _ => refuse!(Errno::Inval, "{file}: {name}={shown} is no number"),
            }),
        }
    }

    /// What a range does not say.
    fn check(self, file: &str, value: u64) -> Result<u64, Refusal> {
        if self == Key::Size && value % u64::from(BLOCK_SIZE) != 0 {
            return Err(refuse!(
                Errno::Inval,
                "{file}: size={value} is not a multiple of {BLOCK_SIZE}"
            ));
        }
        Ok(value)
    }
}

/// A value of each parameter, all in their ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    values: [u64; Key::COUNT],
}

impl Params {
    /// All at their defaults.
    pub const DEFAULT: Self = Params { values: DEFAULTS };

    /// The value of a parameter.
    #[inline]
    pub fn get(&self, key: Key) -> u64 {
        // Always there: the table has an entry for each.
        self.values.get(key as usize).copied().unwrap_or(0)
    }

    /// Sets a parameter.
    ///
    /// # Errors
    ///
    /// `ERANGE` if the value is out of the parameter's range; then nothing is changed.
    pub fn set(&mut self, key: Key, value: u64) -> Result<(), Refusal> {
        let spec = key.spec();
        if !(spec.min..=spec.max).contains(&value) {
            return Err(refuse!(
                Errno::Range,
                "{}={value} is out of range, {} to {}",
                spec.name,
                spec.min,
                spec.max
            ));
        }
        if let Some(place) = self.values.get_mut(key as usize) {
            *place = value;
        }
        Ok(())
    }

    /// The text form of a parameter's value.
    pub fn shown(&self, key: Key) -> Shown {
        Shown {
            form: key.spec().form,
            value: self.get(key),
        }
    }

    /// The 64-bit FNV-1a hash of all lines `name=value`, each with a newline, in the order of
    /// [`Key`]: equal for equal drives, whatever their names and the order in which they were set.
    pub fn hash(&self) -> u64 {
        let mut fnv = Fnv(0xcbf2_9ce4_8422_2325);
        // Writing to it does not fail.
        let _ = fmt::Write::write_fmt(&mut fnv, format_args!("{self}"));
        fnv.0
    }

    /// The logical block size in bytes.
    pub fn logical_block_size(&self) -> u32 {
        match self.get(Key::LogicalBlock) {
            0 => crate::units::SECTOR_SIZE,
            _ => BLOCK_SIZE,
        }
    }

    /// A parameter in microseconds.
    #[inline]
    pub fn micros(&self, key: Key) -> Nanos {
        Nanos::from_micros(self.get(key))
    }

    /// A parameter in milliseconds.
    #[inline]
    pub fn millis(&self, key: Key) -> Nanos {
        Nanos::from_millis(self.get(key))
    }

    /// Whether a switch is on.
    #[inline]
    pub fn is_on(&self, key: Key) -> bool {
        self.get(key) != 0
    }

    /// The law by which reads fail.
    pub fn failures(&self) -> Failures {
        // CAST: The range ends far below.
        let burst = NonZeroU32::new(self.get(Key::FailBurst) as u32);
        Failures {
            seed: self.get(Key::Seed),
            ppm: self.get(Key::FailPpm) as u32,
            mode: match self.get(Key::FailMode) {
                0 => FailMode::Independent,
                _ => FailMode::Persistent,
            },
            burst: burst.unwrap_or(NonZeroU32::MIN),
        }
    }

    /// When retries are off.
    pub fn retry_off(&self) -> RetryOff {
        match self.get(Key::RetryOff) {
            0 => RetryOff::Never,
            1 => RetryOff::Hint,
            _ => RetryOff::Always,
        }
    }
}

/// A line `name=value` for each parameter.
impl fmt::Display for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for key in Key::ALL {
            writeln!(f, "{}={}", key.spec().name, self.shown(key))?;
        }
        Ok(())
    }
}

/// The text form of a value.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    form: Form,
    value: u64,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.form {
            Form::Number | Form::Bytes => fmt::Display::fmt(&self.value, f),
            Form::Words(words) => {
                let word = usize::try_from(self.value).ok().and_then(|n| words.get(n));
                f.write_str(word.unwrap_or(&"?"))
            }
        }
    }
}

/// The 64-bit FNV-1a hash of what is written to it (Fowler, Noll and Vo).
struct Fnv(u64);

impl fmt::Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_in_range_and_round_trip() {
        let params = Params::DEFAULT;
        for key in Key::ALL {
            let text = params.shown(key).to_string();
            assert_eq!(key.parse("t", &text).unwrap(), key.spec().default, "{text}");
            assert_eq!(Key::named(key.spec().name), Some(key));
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for key in Key::ALL {
            let spec = key.spec();
            for value in [spec.min.checked_sub(1), spec.max.checked_add(1)] {
                let Some(value) = value else { continue };
                let mut params = Params::DEFAULT;
                assert_eq!(params.set(key, value).unwrap_err().errno, Errno::Range);
                if !matches!(spec.form, Form::Words(_)) {
                    let refusal = key.parse("t", &value.to_string()).unwrap_err();
                    assert_eq!(refusal.errno, Errno::Range, "{}", spec.name);
                }
            }
            for text in [
                "",
                "-1",
                "x",
                "1 ",
                "0x10",
                "1k",
                "99999999999999999999999 ",
            ] {
                assert_eq!(
                    key.parse("t", text).unwrap_err().errno,
                    Errno::Inval,
                    "{text:?}"
                );
            }
        }
        assert_eq!(
            Key::Size.parse("t", "1000001").unwrap_err().errno,
            Errno::Range
        );
        assert_eq!(
            Key::Size.parse("t", "2000001").unwrap_err().errno,
            Errno::Inval
        );
        assert_eq!(Key::Size.parse("t", "3T").unwrap(), 3 << 40);
        assert_eq!(Key::Size.parse("t", "1G").unwrap(), 1 << 30);
    }

    #[test]
    fn hash_is_of_the_lines() {
        let mut params = Params::DEFAULT;
        let before = params.hash();
        // FNV-1a of the empty text and of "a", from its authors' tables.
        assert_eq!(Fnv(0xcbf2_9ce4_8422_2325).0, 0xcbf2_9ce4_8422_2325);
        let mut fnv = Fnv(0xcbf2_9ce4_8422_2325);
        fmt::Write::write_str(&mut fnv, "a").unwrap();
        assert_eq!(fnv.0, 0xaf63_dc4c_8601_ec8c);
        for key in Key::ALL {
            let spec = key.spec();
            let other = if spec.default == spec.max {
                spec.min
            } else {
                spec.max
            };
            params.set(key, other).unwrap();
            assert_ne!(params.hash(), before, "{}", spec.name);
            params.set(key, spec.default).unwrap();
            assert_eq!(params.hash(), before);
        }
    }
}
