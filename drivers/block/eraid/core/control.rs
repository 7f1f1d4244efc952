// SPDX-License-Identifier: GPL-2.0

//! Parsers of the lines written to the control files.
//!
//! A control line is words `key=value` with blanks between them, printable ASCII, one line, ended
//! by a newline. Nothing is guessed: what is unknown, double, empty or out of range is refused,
//! with the reason in words. `EINVAL` is for a line that is wrong, `ERANGE` for a number that is
//! too large, `EOPNOTSUPP` for what is right but not offered.

use crate::geometry::Level;
use crate::refusal::{Errno, Refusal};
use crate::refuse;
use crate::units::{Sectors, Uuid, MAX_SLOTS};
use crate::words::{control_line, decimal, one_line, one_word, size, NotDecimal, BLANKS};
use core::ops::RangeInclusive;

pub use crate::words::{parse_number, Excerpt, LINE_MAX};

/// Longest name of an array.
pub const NAME_MAX: usize = 32;

/// Longest path of a member.
pub const PATH_MAX: usize = 255;

/// Greatest N of a disk name `eraidN`.
pub const DEV_MAX: u32 = 1023;

/// Chunk sizes that can be asked for, in bytes.
const CHUNK_BYTES: RangeInclusive<u64> = 8 << 10..=1 << 20;

/// Chunk size when none is given, in bytes: md's default.
const CHUNK_DEFAULT: u64 = 512 << 10;

/// Names that sysfs itself uses in the directory with a link for every array.
const NAMES_TAKEN: [&str; 3] = ["power", "subsystem", "uevent"];

/// A line to `create`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Create<'a> {
    /// Name of the array.
    pub name: &'a str,
    /// Its level.
    pub level: Level,
    /// Its chunk, a power of two from 8 KiB to 1 MiB.
    pub chunk: Sectors,
    /// Its members in the order of their slots, as many as the level takes.
    pub members: Members<'a>,
    /// Spares, none of them `missing`.
    pub spares: Option<Members<'a>>,
    /// N of the disk name `eraidN`, where one is asked for.
    pub dev: Option<u32>,
    /// The members are known to match: no fill.
    pub assume_clean: bool,
    /// Members with foreign signatures are overwritten.
    pub force: bool,
}

/// A line to `assemble`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assemble<'a> {
    /// The members, in any order; none of them `missing`.
    pub members: Members<'a>,
    /// N of the disk name `eraidN`, where one is asked for.
    pub dev: Option<u32>,
    /// Doubtful data is accepted.
    pub force: bool,
    /// Nothing is written.
    pub readonly: bool,
    /// The array starts without its missing members.
    pub degraded: bool,
}

/// What a line to `stop` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopTarget<'a> {
    /// The disk `eraidN`.
    Dev(u32),
    /// The array of this name.
    Name(&'a str),
}

/// One place in a list of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberSpec<'a> {
    /// A block device, by its absolute path.
    Path(&'a str),
    /// `missing`: the slot stays empty.
    Missing,
}

/// A checked list of members: 1 to 64, none twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Members<'a> {
    list: &'a str,
    count: u8,
    missing: u8,
}

impl<'a> Members<'a> {
    /// Places in the list, missing ones included.
    #[inline]
    pub fn count(&self) -> u8 {
        self.count
    }

    /// How many of them are `missing`.
    #[inline]
    pub fn missing(&self) -> u8 {
        self.missing
    }

    /// The places, in order.
    pub fn iter(&self) -> impl Iterator<Item = MemberSpec<'a>> {
        self.list.split(',').map(|entry| match entry {
            "missing" => MemberSpec::Missing,
            path => MemberSpec::Path(path),
        })
    }

    /// Checks the list of `key`.
    fn parse(file: &str, key: &str, list: &'a str) -> Result<Self, Refusal> {
        let count = list.split(',').count();
        if count > MAX_SLOTS {
            return Err(refuse!(
                Errno::Inval,
                "{file}: {key}= lists {count} devices, at most {MAX_SLOTS} are possible"
            ));
        }
        let mut missing = 0;
        for (index, entry) in list.split(',').enumerate() {
            if entry == "missing" {
                missing += 1;
                continue;
            }
            check_path(file, entry)?;
            if list.split(',').take(index).any(|other| other == entry) {
                return Err(refuse!(
                    Errno::Inval,
                    "{file}: {} is listed twice in {key}=",
                    Excerpt(entry.as_bytes())
                ));
            }
        }
        Ok(Members {
            list,
            count: count as u8,
            missing,
        })
    }
}

/// Parses a line to `create`.
///
/// # Errors
///
/// `EINVAL`, `ERANGE`, and `EOPNOTSUPP` for local parity and the partial parity log, which
/// are not offered yet.
pub fn parse_create(line: &[u8]) -> Result<Create<'_>, Refusal> {
    const FILE: &str = "create";
    let fields = Fields::parse(
        FILE,
        control_line(FILE, line)?,
        [
            "name",
            "level",
            "chunk",
            "members",
            "spares",
            "dev",
            "m",
            "k",
            "assume_clean",
            "consistency_policy",
            "force",
        ],
    )?;
    let name = fields.required("name")?;
    check_name(FILE, name)?;
    let level = fields.level()?;
    let create = Create {
        name,
        level,
        chunk: fields.chunk()?,
        members: Members::parse(FILE, "members", fields.required("members")?)?,
        spares: fields
            .get("spares")
            .map(|list| Members::parse(FILE, "spares", list))
            .transpose()?,
        dev: fields.dev()?,
        assume_clean: fields.flag("assume_clean")?,
        force: fields.flag("force")?,
    };
    check_count(&create)?;
    check_spares(&create)?;
    check_offered(&fields)?;
    Ok(create)
}

/// Parses a line to `assemble`.
///
/// # Errors
///
/// `EINVAL`, `ERANGE`.
pub fn parse_assemble(line: &[u8]) -> Result<Assemble<'_>, Refusal> {
    const FILE: &str = "assemble";
    let fields = Fields::parse(
        FILE,
        control_line(FILE, line)?,
        ["members", "dev", "force", "readonly", "degraded"],
    )?;
    let members = Members::parse(FILE, "members", fields.required("members")?)?;
    if members.missing != 0 {
        return Err(refuse!(
            Errno::Inval,
            "assemble: missing is for create only; leave the member out, and write degraded=1"
        ));
    }
    Ok(Assemble {
        members,
        dev: fields.dev()?,
        force: fields.flag("force")?,
        readonly: fields.flag("readonly")?,
        degraded: fields.flag("degraded")?,
    })
}

/// Parses a line to `stop`: a disk name or the name of an array.
///
/// # Errors
///
/// `EINVAL`, `ERANGE`.
pub fn parse_stop(line: &[u8]) -> Result<StopTarget<'_>, Refusal> {
    const FILE: &str = "stop";
    let word = one_word(FILE, control_line(FILE, line)?)?;
    if looks_like_dev(word) {
        return Ok(StopTarget::Dev(parse_dev(FILE, word)?));
    }
    check_name(FILE, word)?;
    Ok(StopTarget::Name(word))
}

/// Parses a line to `abort`: the uuid of an array.
///
/// # Errors
///
/// `EINVAL`.
pub fn parse_abort(line: &[u8]) -> Result<Uuid, Refusal> {
    const FILE: &str = "abort";
    let word = one_word(FILE, control_line(FILE, line)?)?;
    Uuid::parse(word).ok_or_else(|| {
        refuse!(
            Errno::Inval,
            "abort: {} is no uuid (xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx)",
            Excerpt(word.as_bytes())
        )
    })
}

/// Parses the path of a device written to an attribute such as `new_dev`.
///
/// # Errors
///
/// `EINVAL`.
pub fn parse_path<'a>(file: &str, line: &'a [u8]) -> Result<&'a str, Refusal> {
    let path = one_word(file, one_line(file, line)?)?;
    check_path(file, path)?;
    Ok(path)
}

/// The `key=value` words of a line, each key at most once.
struct Fields<'a, const N: usize> {
    file: &'static str,
    keys: [&'static str; N],
    values: [Option<&'a str>; N],
}

impl<'a, const N: usize> Fields<'a, N> {
    fn parse(file: &'static str, text: &'a str, keys: [&'static str; N]) -> Result<Self, Refusal> {
        let mut fields = Fields {
            file,
            keys,
            values: [None; N],
        };
        for word in text.split(BLANKS).filter(|word| !word.is_empty()) {
            fields.take(word)?;
        }
        Ok(fields)
    }

    /// Takes one word of the line.
    fn take(&mut self, word: &'a str) -> Result<(), Refusal> {
        let file = self.file;
        let Some((key, value)) = word.split_once('=') else {
            return Err(refuse!(
                Errno::Inval,
                "{file}: {} is not of the form key=value",
                Excerpt(word.as_bytes())
            ));
        };
        let place = self.keys.iter().zip(&mut self.values);
        let Some((_, place)) = place.into_iter().find(|(known, _)| **known == key) else {
            return Err(refuse!(
                Errno::Inval,
                "{file}: {}= is not known",
                Excerpt(key.as_bytes())
            ));
        };
        if place.is_some() {
            return Err(refuse!(Errno::Inval, "{file}: {key}= is given twice"));
        }
        if value.is_empty() {
            return Err(refuse!(Errno::Inval, "{file}: {key}= has no value"));
        }
        *place = Some(value);
        Ok(())
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        let mut fields = self.keys.iter().zip(&self.values);
        fields
            .find(|(known, _)| **known == key)
            .and_then(|(_, value)| *value)
    }

    fn required(&self, key: &str) -> Result<&'a str, Refusal> {
        self.get(key)
            .ok_or_else(|| refuse!(Errno::Inval, "{}: {key}= is needed", self.file))
    }

    fn flag(&self, key: &str) -> Result<bool, Refusal> {
        match self.get(key) {
            None | Some("0") => Ok(false),
            Some("1") => Ok(true),
            Some(other) => Err(self.wrong(key, other, "0 or 1")),
        }
    }

    /// A number of at most `max`; 0 where it is not given.
    fn number(&self, key: &str, max: u64) -> Result<u64, Refusal> {
        let Some(value) = self.get(key) else {
            return Ok(0);
        };
        match decimal(value) {
            Ok(number) if number <= max => Ok(number),
            Ok(_) | Err(NotDecimal::TooLarge) => Err(refuse!(
                Errno::Range,
                "{}: {key}={} is out of range, 0 to {max}",
                self.file,
                Excerpt(value.as_bytes())
            )),
            Err(NotDecimal::Malformed) => Err(self.wrong(key, value, "a number")),
        }
    }

    fn level(&self) -> Result<Level, Refusal> {
        let value = self.required("level")?;
        let number = decimal(value).ok().and_then(|n| u32::try_from(n).ok());
        number
            .and_then(Level::from_number)
            .ok_or_else(|| self.wrong("level", value, "0, 1, 5 or 6"))
    }

    fn chunk(&self) -> Result<Sectors, Refusal> {
        let Some(value) = self.get("chunk") else {
            return Ok(Sectors::from_bytes(CHUNK_DEFAULT));
        };
        let bytes = match size(value) {
            Ok(bytes) => bytes,
            Err(NotDecimal::TooLarge) => {
                return Err(refuse!(
                    Errno::Range,
                    "{}: chunk={} is too large; 8K to 1M is possible",
                    self.file,
                    Excerpt(value.as_bytes())
                ))
            }
            Err(NotDecimal::Malformed) => {
                return Err(self.wrong("chunk", value, "a size in bytes, or with K or M behind it"))
            }
        };
        if !bytes.is_power_of_two() || !CHUNK_BYTES.contains(&bytes) {
            return Err(self.wrong("chunk", value, "a power of two from 8K to 1M"));
        }
        Ok(Sectors::from_bytes(bytes))
    }

    fn dev(&self) -> Result<Option<u32>, Refusal> {
        self.get("dev")
            .map(|value| parse_dev(self.file, value))
            .transpose()
    }

    /// A refusal of a value.
    fn wrong(&self, key: &str, value: &str, expected: &str) -> Refusal {
        refuse!(
            Errno::Inval,
            "{}: {key}={} is not {expected}",
            self.file,
            Excerpt(value.as_bytes())
        )
    }
}

/// Checks the number of members, and of missing ones, of a new array.
fn check_count(create: &Create<'_>) -> Result<(), Refusal> {
    let Members { count, missing, .. } = create.members;
    let (level, min) = (create.level, create.level.members_min());
    if count < min {
        return Err(refuse!(
            Errno::Inval,
            "create: level {} takes at least {min} members, not {count}",
            level.number()
        ));
    }
    let spare = match level {
        Level::Raid0 => 0,
        Level::Raid1 => count.saturating_sub(1),
        Level::Raid5 => 1,
        Level::Raid6 => 2,
    };
    if missing > spare {
        return Err(refuse!(
            Errno::Inval,
            "create: {missing} members are missing; level {} of {count} can start without {spare}",
            level.number()
        ));
    }
    Ok(())
}

/// Checks the spares against the members.
fn check_spares(create: &Create<'_>) -> Result<(), Refusal> {
    let Some(spares) = &create.spares else {
        return Ok(());
    };
    if spares.missing != 0 {
        return Err(refuse!(Errno::Inval, "create: a spare cannot be missing"));
    }
    if create.level == Level::Raid0 {
        return Err(refuse!(
            Errno::Inval,
            "create: RAID-0 has nothing to rebuild a spare from"
        ));
    }
    let all = usize::from(create.members.count()) + usize::from(spares.count());
    if all > MAX_SLOTS {
        return Err(refuse!(
            Errno::Inval,
            "create: {all} members and spares, at most {MAX_SLOTS} are possible"
        ));
    }
    match spares
        .iter()
        .find(|spare| create.members.iter().any(|member| member == *spare))
    {
        Some(MemberSpec::Path(path)) => Err(refuse!(
            Errno::Inval,
            "create: {} is listed in members= and spares=",
            Excerpt(path.as_bytes())
        )),
        Some(MemberSpec::Missing) | None => Ok(()),
    }
}

/// Refuses what is well-formed but not offered, and checks that it is well-formed.
fn check_offered<const N: usize>(fields: &Fields<'_, N>) -> Result<(), Refusal> {
    let m = fields.number("m", 255)?;
    let k = fields.number("k", 2)?;
    if (m == 0) != (k == 0) {
        return Err(refuse!(
            Errno::Inval,
            "create: m={m} k={k}: local parity takes both, or neither"
        ));
    }
    let policy = fields.get("consistency_policy").unwrap_or("bitmap");
    if !matches!(policy, "bitmap" | "ppl") {
        return Err(fields.wrong("consistency_policy", policy, "bitmap or ppl"));
    }
    let what = if m != 0 {
        "local parity (m=, k=)"
    } else if policy == "ppl" {
        "consistency_policy=ppl"
    } else {
        return Ok(());
    };
    Err(refuse!(
        Errno::OpNotSupp,
        "create: {what} is not supported by this version"
    ))
}

/// Checks the name of an array.
fn check_name(file: &str, name: &str) -> Result<(), Refusal> {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'-');
    let why = if name.len() > NAME_MAX {
        "is longer than 32 characters"
    } else if name.is_empty() || !name.bytes().all(allowed) {
        "has other characters than A-Z a-z 0-9 _ . -"
    } else if name.starts_with('.') || name.contains("..") {
        "starts with a dot or has two in a row"
    } else if looks_like_dev(name) {
        "is the name of a disk"
    } else if NAMES_TAKEN.contains(&name) {
        "is taken by sysfs"
    } else {
        return Ok(());
    };
    Err(refuse!(
        Errno::Inval,
        "{file}: the array name {} {why}",
        Excerpt(name.as_bytes())
    ))
}

/// Checks the path of a device.
fn check_path(file: &str, path: &str) -> Result<(), Refusal> {
    let why = if path.is_empty() {
        "a list has an empty place: devices are separated by one comma"
    } else if path.len() > PATH_MAX {
        "the path is longer than 255 characters"
    } else if !path.starts_with('/') {
        "the path is not absolute (a path with a comma or a blank in it cannot be used)"
    } else if path.split('/').any(|part| part == "..") {
        "the path contains '..'"
    } else if path.ends_with('/') {
        "the path ends in a slash"
    } else {
        return Ok(());
    };
    Err(refuse!(
        Errno::Inval,
        "{file}: {}: {why}",
        Excerpt(path.as_bytes())
    ))
}

/// Whether a word is meant as a disk name: `eraid` and digits.
fn looks_like_dev(word: &str) -> bool {
    word.strip_prefix("eraid")
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|c| c.is_ascii_digit()))
}

/// Parses a disk name, `eraidN`.
fn parse_dev(file: &str, word: &str) -> Result<u32, Refusal> {
    let digits = word.strip_prefix("eraid").unwrap_or("");
    let padded = digits.len() > 1 && digits.starts_with('0');
    if !looks_like_dev(word) || padded {
        return Err(refuse!(
            Errno::Inval,
            "{file}: {} is no disk name (eraid0 to eraid{DEV_MAX})",
            Excerpt(word.as_bytes())
        ));
    }
    let number = decimal(digits).ok().and_then(|n| u32::try_from(n).ok());
    match number {
        Some(number) if number <= DEV_MAX => Ok(number),
        _ => Err(refuse!(
            Errno::Range,
            "{file}: {} is out of range, eraid0 to eraid{DEV_MAX}",
            Excerpt(word.as_bytes())
        )),
    }
}
