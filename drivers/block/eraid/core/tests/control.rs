// SPDX-License-Identifier: GPL-2.0

//! The parsers of control lines: what is taken, and what is refused with which error and words.

// As in the crate: a refusal carries its text.
#![allow(clippy::result_large_err)]

mod support;

use eraid_core::control::*;
use eraid_core::geometry::Level;
use eraid_core::refusal::{Errno, Refusal};
use eraid_core::units::Sectors;
use proptest::prelude::*;
use std::fmt::Debug;

const KIB: u64 = 1024;

fn paths(members: &Members<'_>) -> Vec<String> {
    let word = |member| match member {
        MemberSpec::Path(path) => String::from(path),
        MemberSpec::Missing => String::from("-"),
    };
    members.iter().map(word).collect()
}

fn create(line: &str) -> Result<Create<'_>, Refusal> {
    parse_create(line.as_bytes())
}

#[test]
fn a_full_create_line() {
    let line =
        "name=tank level=5 chunk=64K members=/dev/sda,/dev/disk/by-id/x=y,missing dev=eraid7 \
                m=0 k=0 assume_clean=1 consistency_policy=bitmap force=1\n";
    let create = create(line).unwrap();
    assert_eq!((create.name, create.level), ("tank", Level::Raid5));
    assert_eq!(create.chunk, Sectors::from_bytes(64 * KIB));
    assert_eq!(
        paths(&create.members),
        ["/dev/sda", "/dev/disk/by-id/x=y", "-"]
    );
    assert_eq!((create.members.count(), create.members.missing()), (3, 1));
    assert_eq!(
        (create.dev, create.assume_clean, create.force),
        (Some(7), true, true)
    );
}

#[test]
fn a_short_create_line() {
    let create = create("\t members=/dev/a,/dev/b   name=a.b-c_D9 \tlevel=1 \n").unwrap();
    assert_eq!((create.name, create.level), ("a.b-c_D9", Level::Raid1));
    assert_eq!(create.chunk, Sectors::from_bytes(512 * KIB), "md's default");
    assert_eq!(
        (create.dev, create.assume_clean, create.force),
        (None, false, false)
    );
}

#[test]
fn sizes_of_chunks() {
    for (text, bytes) in [
        ("8K", 8 * KIB),
        ("64K", 64 * KIB),
        ("1024K", 1024 * KIB),
        ("1M", 1024 * KIB),
        ("8192", 8 * KIB),
        ("65536", 64 * KIB),
        ("1048576", 1024 * KIB),
    ] {
        let line = format!("name=x level=0 members=/a,/b chunk={text}\n");
        assert_eq!(
            create(&line).unwrap().chunk,
            Sectors::from_bytes(bytes),
            "{text}"
        );
    }
}

#[test]
fn spares() {
    let line = "name=x level=1 members=/a,missing spares=/c,/d\n";
    let spares = create(line).unwrap().spares.unwrap();
    assert_eq!(
        spares.iter().collect::<Vec<_>>(),
        [MemberSpec::Path("/c"), MemberSpec::Path("/d")]
    );
    assert!(create("name=x level=1 members=/a,/b\n")
        .unwrap()
        .spares
        .is_none());
    let all: Vec<String> = (0..63).map(|i| format!("/m{i}")).collect();
    let with = |spares| format!("name=x level=5 members={} spares={spares}\n", all.join(","));
    assert!(create(&with("/s")).is_ok());
    let refusal = create(&with("/s,/t")).unwrap_err();
    assert!(
        refusal.as_str().contains("65 members and spares"),
        "{refusal}"
    );
}

#[test]
fn counts_of_members() {
    let line = |level: u8, count: usize, missing: usize| {
        let all: Vec<String> = (0..count)
            .map(|i| match i < missing {
                true => "missing".into(),
                false => format!("/dev/m{i}"),
            })
            .collect();
        format!("name=x level={level} members={}\n", all.join(","))
    };
    for (level, count, missing) in [
        (0, 2, 0),
        (1, 2, 1),
        (1, 4, 3),
        (5, 3, 1),
        (5, 64, 0),
        (6, 4, 0),
        (6, 4, 2),
        (6, 64, 0),
        (0, 64, 0),
    ] {
        assert!(
            create(&line(level, count, missing)).is_ok(),
            "{level} {count} {missing}"
        );
    }
    for (level, count, missing, words) in [
        (0, 1, 0, "level 0 takes at least 2 members, not 1"),
        (1, 1, 0, "level 1 takes at least 2 members, not 1"),
        (5, 2, 0, "level 5 takes at least 3 members, not 2"),
        (6, 3, 0, "level 6 takes at least 4 members, not 3"),
        (0, 65, 0, "lists 65 devices, at most 64"),
        (
            0,
            3,
            1,
            "1 members are missing; level 0 of 3 can start without 0",
        ),
        (
            1,
            2,
            2,
            "2 members are missing; level 1 of 2 can start without 1",
        ),
        (
            5,
            4,
            2,
            "2 members are missing; level 5 of 4 can start without 1",
        ),
        (
            6,
            5,
            3,
            "3 members are missing; level 6 of 5 can start without 2",
        ),
    ] {
        let line = line(level, count, missing);
        let refusal = create(&line).unwrap_err();
        assert_eq!(refusal.errno, Errno::Inval);
        assert!(refusal.as_str().contains(words), "{refusal}");
    }
}

/// The line is refused with this error, and the text has these words.
type Case<'a> = (&'a [u8], Errno, &'a str);

fn check<'a, T: Debug>(parse: fn(&'a [u8]) -> Result<T, Refusal>, cases: &[Case<'a>]) {
    for (line, errno, words) in cases {
        let shown = String::from_utf8_lossy(line);
        match parse(line) {
            Ok(value) => panic!("{shown:?} is taken: {value:?}"),
            Err(refusal) => {
                assert_eq!(refusal.errno, *errno, "{shown:?}: {refusal}");
                assert!(refusal.as_str().contains(words), "{shown:?}: {refusal}");
                assert!(refusal.as_str().is_ascii() && !refusal.as_str().contains('\n'));
            }
        }
    }
}

#[test]
fn bad_create_lines() {
    use Errno::{Inval, OpNotSupp, Range};
    let cases: &[Case<'_>] = &[
        // The line as a whole.
        (b"", Inval, "nothing was written"),
        (b"\n", Inval, "the line is empty"),
        (b" \t \n", Inval, "the line is empty"),
        (
            b"name=x level=1 members=/a,/b",
            Inval,
            "does not end in a newline",
        ),
        (
            b"name=x level=1 members=/a,/b\0\n",
            Inval,
            "byte 29 is 0x00",
        ),
        (
            b"name=x\nlevel=1 members=/a,/b\n",
            Inval,
            "more than one line",
        ),
        (
            b"name=x level=1 members=/a,/b\n\n",
            Inval,
            "more than one line",
        ),
        (
            b"name=x level=1 members=/a,/b\r\n",
            Inval,
            "byte 29 is 0x0d",
        ),
        (
            b"name=x level=1 members=/a,/\xc3\xa9\n",
            Inval,
            "only printable ASCII",
        ),
        (
            b"name=x level=1 members=/a,/\xff\n",
            Inval,
            "byte 28 is 0xff",
        ),
        (b"name=x level=1 members=/a,/b\x7f\n", Inval, "0x7f"),
        // Words and keys.
        (
            b"name=x level=1 members=/a,/b force\n",
            Inval,
            "force is not of the form key=value",
        ),
        (b"=x level=1 members=/a,/b\n", Inval, "= is not known"),
        (
            b"name=x level=1 members=/a,/b Force=1\n",
            Inval,
            "Force= is not known",
        ),
        (
            b"name=x level=1 members=/a,/b raid_disks=2\n",
            Inval,
            "raid_disks= is not known",
        ),
        (
            b"name=x level=1 members=/a,/b name=y\n",
            Inval,
            "name= is given twice",
        ),
        (
            b"name=x level=1 members=/a,/b force=1 force=1\n",
            Inval,
            "force= is given twice",
        ),
        (
            b"name= level=1 members=/a,/b\n",
            Inval,
            "name= has no value",
        ),
        (b"name=x level=1 members=\n", Inval, "members= has no value"),
        (b"level=1 members=/a,/b\n", Inval, "name= is needed"),
        (b"name=x members=/a,/b\n", Inval, "level= is needed"),
        (b"name=x level=1\n", Inval, "members= is needed"),
        (
            b"name=x level=1 members=/a, /b\n",
            Inval,
            "/b is not of the form",
        ),
        // Names.
        (b"name=.. level=1 members=/a,/b\n", Inval, "dot"),
        (b"name=a..b level=1 members=/a,/b\n", Inval, "two in a row"),
        (
            b"name=.x level=1 members=/a,/b\n",
            Inval,
            "starts with a dot",
        ),
        (
            b"name=../../x level=1 members=/a,/b\n",
            Inval,
            "other characters",
        ),
        (
            b"name=a/b level=1 members=/a,/b\n",
            Inval,
            "other characters",
        ),
        (
            b"name=a,b level=1 members=/a,/b\n",
            Inval,
            "other characters",
        ),
        (
            b"name=a=b level=1 members=/a,/b\n",
            Inval,
            "other characters",
        ),
        (
            b"name=a%s level=1 members=/a,/b\n",
            Inval,
            "other characters",
        ),
        (
            b"name=eraid0 level=1 members=/a,/b\n",
            Inval,
            "name of a disk",
        ),
        (
            b"name=uevent level=1 members=/a,/b\n",
            Inval,
            "taken by sysfs",
        ),
        (
            b"name=abcdefghijklmnopqrstuvwxyzabcdefg level=1 members=/a,/b\n",
            Inval,
            "longer than 32",
        ),
        // Levels.
        (
            b"name=x level=4 members=/a,/b\n",
            Inval,
            "level=4 is not 0, 1, 5 or 6",
        ),
        (b"name=x level=10 members=/a,/b\n", Inval, "level=10"),
        (
            b"name=x level=raid5 members=/a,/b,/c\n",
            Inval,
            "level=raid5",
        ),
        (b"name=x level=-1 members=/a,/b\n", Inval, "level=-1"),
        (b"name=x level=+1 members=/a,/b\n", Inval, "level=+1"),
        (
            b"name=x level=4294967301 members=/a,/b,/c\n",
            Inval,
            "level=4294967301",
        ),
        (
            b"name=x level=100000000000000000000 members=/a,/b\n",
            Inval,
            "level=1000",
        ),
        (b"name=x level=0x5 members=/a,/b,/c\n", Inval, "level=0x5"),
        // Chunks.
        (
            b"name=x level=0 members=/a,/b chunk=0\n",
            Inval,
            "power of two from 8K to 1M",
        ),
        (
            b"name=x level=0 members=/a,/b chunk=4K\n",
            Inval,
            "power of two from 8K to 1M",
        ),
        (
            b"name=x level=0 members=/a,/b chunk=64\n",
            Inval,
            "power of two from 8K to 1M",
        ),
        (
            b"name=x level=0 members=/a,/b chunk=2M\n",
            Inval,
            "power of two from 8K to 1M",
        ),
        (
            b"name=x level=0 members=/a,/b chunk=65K\n",
            Inval,
            "power of two from 8K to 1M",
        ),
        (
            b"name=x level=0 members=/a,/b chunk=65537\n",
            Inval,
            "power of two from 8K to 1M",
        ),
        (
            b"name=x level=0 members=/a,/b chunk=64k\n",
            Inval,
            "is not a size in bytes",
        ),
        (
            b"name=x level=0 members=/a,/b chunk=64KiB\n",
            Inval,
            "is not a size in bytes",
        ),
        (
            b"name=x level=0 members=/a,/b chunk=K\n",
            Inval,
            "is not a size in bytes",
        ),
        (
            b"name=x level=0 members=/a,/b chunk=-64K\n",
            Inval,
            "is not a size in bytes",
        ),
        (
            b"name=x level=0 members=/a,/b chunk=6.4K\n",
            Inval,
            "is not a size in bytes",
        ),
        (
            b"name=x level=0 members=/a,/b chunk=100000000000000000000\n",
            Range,
            "is too large",
        ),
        (
            b"name=x level=0 members=/a,/b chunk=18446744073709551615K\n",
            Range,
            "is too large",
        ),
        (
            b"name=x level=0 members=/a,/b chunk=18014398509481985K\n",
            Range,
            "is too large",
        ),
        // Members.
        (
            b"name=x level=1 members=/a,/a\n",
            Inval,
            "/a is listed twice",
        ),
        (
            b"name=x level=1 members=/a,/b,/a\n",
            Inval,
            "/a is listed twice",
        ),
        (
            b"name=x level=1 members=sda,sdb\n",
            Inval,
            "sda: the path is not absolute",
        ),
        (b"name=x level=1 members=./sda,/b\n", Inval, "not absolute"),
        (b"name=x level=1 members=/a,,/b\n", Inval, "empty place"),
        (b"name=x level=1 members=,/a,/b\n", Inval, "empty place"),
        (b"name=x level=1 members=/a,/b,\n", Inval, "empty place"),
        (
            b"name=x level=1 members=/dev/../a,/b\n",
            Inval,
            "contains '..'",
        ),
        (
            b"name=x level=1 members=/dev/..,/b\n",
            Inval,
            "contains '..'",
        ),
        (b"name=x level=1 members=/a,/\n", Inval, "ends in a slash"),
        (
            b"name=x level=1 members=/a,MISSING\n",
            Inval,
            "not absolute",
        ),
        // Disk names.
        (
            b"name=x level=1 members=/a,/b dev=sda\n",
            Inval,
            "sda is no disk name",
        ),
        (
            b"name=x level=1 members=/a,/b dev=eraid\n",
            Inval,
            "eraid is no disk name",
        ),
        (
            b"name=x level=1 members=/a,/b dev=eraid-1\n",
            Inval,
            "no disk name",
        ),
        (
            b"name=x level=1 members=/a,/b dev=eraid01\n",
            Inval,
            "no disk name",
        ),
        (
            b"name=x level=1 members=/a,/b dev=eraid0/../x\n",
            Inval,
            "no disk name",
        ),
        (
            b"name=x level=1 members=/a,/b dev=eraid1024\n",
            Range,
            "eraid0 to eraid1023",
        ),
        (
            b"name=x level=1 members=/a,/b dev=eraid100000000000000000000\n",
            Range,
            "out of range",
        ),
        // Flags.
        (
            b"name=x level=1 members=/a,/b force=yes\n",
            Inval,
            "force=yes is not 0 or 1",
        ),
        (
            b"name=x level=1 members=/a,/b force=2\n",
            Inval,
            "force=2 is not 0 or 1",
        ),
        (
            b"name=x level=1 members=/a,/b assume_clean=true\n",
            Inval,
            "not 0 or 1",
        ),
        // Well-formed, not offered.
        (
            b"name=x level=1 members=/a,/b m=16 k=1\n",
            OpNotSupp,
            "local parity",
        ),
        (
            b"name=x level=5 members=/a,/b,/c consistency_policy=ppl\n",
            OpNotSupp,
            "consistency_policy=ppl is not supported",
        ),
        // Not offered, and not well-formed.
        (b"name=x level=1 members=/a,/b m=16\n", Inval, "m=16 k=0"),
        (b"name=x level=1 members=/a,/b k=1\n", Inval, "m=0 k=1"),
        (
            b"name=x level=1 members=/a,/b m=x k=1\n",
            Inval,
            "m=x is not a number",
        ),
        (
            b"name=x level=1 members=/a,/b m=256 k=1\n",
            Range,
            "m=256 is out of range, 0 to 255",
        ),
        (
            b"name=x level=1 members=/a,/b m=16 k=3\n",
            Range,
            "k=3 is out of range, 0 to 2",
        ),
        (
            b"name=x level=1 members=/a,/b m=100000000000000000000 k=1\n",
            Range,
            "out of range",
        ),
        (
            b"name=x level=1 members=/a,/b spares=c\n",
            Inval,
            "not absolute",
        ),
        (
            b"name=x level=1 members=/a,/b spares=missing\n",
            Inval,
            "spare cannot be missing",
        ),
        (
            b"name=x level=1 members=/a,/b spares=/c,/a\n",
            Inval,
            "/a is listed in members= and spares=",
        ),
        (
            b"name=x level=0 members=/a,/b spares=/c\n",
            Inval,
            "RAID-0 has nothing to rebuild",
        ),
        (
            b"name=x level=1 members=/a,/b consistency_policy=journal\n",
            Inval,
            "not bitmap or ppl",
        ),
        (
            b"name=x level=6 members=/a,/b,/c,/d bogus=1\n",
            Inval,
            "bogus= is not known",
        ),
    ];
    check(parse_create, cases);
}

#[test]
fn lengths_of_lines() {
    let line = |len: usize| {
        let mut line = String::from("name=x level=1 members=/a,/b");
        line.push_str(&" ".repeat(len - 1 - line.len()));
        line.push('\n');
        line
    };
    assert_eq!(line(4095).len(), LINE_MAX);
    assert!(create(&line(4095)).is_ok());
    for len in [4096, 5000, 1 << 20] {
        let line = line(len);
        let refusal = create(&line).unwrap_err();
        assert_eq!(refusal.errno, Errno::Inval);
        assert!(
            refusal.as_str().contains("longer than 4095 bytes"),
            "{refusal}"
        );
    }
    let path = format!("/{}", "p".repeat(254));
    assert!(create(&format!("name=x level=1 members=/a,{path}\n")).is_ok());
    let line = format!("name=x level=1 members=/a,{path}p\n");
    let refusal = create(&line).unwrap_err();
    assert!(refusal.as_str().contains("longer than 255"), "{refusal}");
    assert!(
        refusal.as_str().contains("ppp...: the path"),
        "shortened: {refusal}"
    );
    let name = "n".repeat(32);
    assert!(create(&format!("name={name} level=1 members=/a,/b\n")).is_ok());
}

#[test]
fn assemble_lines() {
    let assemble = parse_assemble(b"members=/dev/sdb,/dev/sda dev=eraid0 degraded=1\n").unwrap();
    assert_eq!(paths(&assemble.members), ["/dev/sdb", "/dev/sda"]);
    assert_eq!(assemble.dev, Some(0));
    assert_eq!(
        (assemble.force, assemble.readonly, assemble.degraded),
        (false, false, true)
    );
    assert!(
        parse_assemble(b"members=/dev/sdb force=1 readonly=1\n").is_ok(),
        "one at a time"
    );
    use Errno::{Inval, Range};
    check(
        parse_assemble,
        &[
            (b"members=/a,missing\n", Inval, "missing is for create only"),
            (b"/dev/sda\n", Inval, "not of the form key=value"),
            (b"dev=eraid0\n", Inval, "assemble: members= is needed"),
            (b"members=/a name=x\n", Inval, "name= is not known"),
            (b"members=/a level=5\n", Inval, "level= is not known"),
            (b"members=/a,/a\n", Inval, "listed twice"),
            (b"members=/a dev=eraid9999\n", Range, "out of range"),
            (
                b"members=/a degraded=2\n",
                Inval,
                "degraded=2 is not 0 or 1",
            ),
            (b"members=/a", Inval, "newline"),
        ],
    );
}

#[test]
fn stop_lines() {
    assert_eq!(parse_stop(b"eraid0\n"), Ok(StopTarget::Dev(0)));
    assert_eq!(parse_stop(b" eraid1023 \n"), Ok(StopTarget::Dev(1023)));
    assert_eq!(parse_stop(b"tank\n"), Ok(StopTarget::Name("tank")));
    assert_eq!(parse_stop(b"eraidx\n"), Ok(StopTarget::Name("eraidx")));
    use Errno::{Inval, Range};
    check(
        parse_stop,
        &[
            (b"", Inval, "nothing"),
            (b"\n", Inval, "empty"),
            (b"eraid0", Inval, "newline"),
            (b"eraid0 eraid1\n", Inval, "one word is expected"),
            (b"eraid1024\n", Range, "out of range"),
            (b"eraid100000000000000000000\n", Range, "out of range"),
            (b"eraid00\n", Inval, "no disk name"),
            (b"..\n", Inval, "dot"),
            (b"/dev/eraid0\n", Inval, "other characters"),
            (b"\xe9\n", Inval, "ASCII"),
            (b"a\0\n", Inval, "0x00"),
        ],
    );
}

#[test]
fn abort_lines() {
    let uuid = parse_abort(b"01234567-89ab-cdef-0123-456789abcdef\n").unwrap();
    assert_eq!(uuid.to_string(), "01234567-89ab-cdef-0123-456789abcdef");
    use Errno::Inval;
    check(
        parse_abort,
        &[
            (b"\n", Inval, "empty"),
            (b"tank\n", Inval, "tank is no uuid"),
            (
                b"01234567-89ab-cdef-0123-456789abcde\n",
                Inval,
                "is no uuid",
            ),
            (
                b"01234567-89ab-cdef-0123-456789abcdef x\n",
                Inval,
                "one word",
            ),
            (b"01234567-89ab-cdef-0123-456789abcdef", Inval, "newline"),
        ],
    );
}

#[test]
fn attributes() {
    let number = |line: &'static str| parse_number("sync_speed_max", line.as_bytes(), 1..=1000);
    assert_eq!(number("1\n"), Ok(1));
    assert_eq!(number("1000"), Ok(1000));
    assert_eq!(number(" 0007 \n"), Ok(7));
    for (line, errno) in [
        ("", Errno::Inval),
        ("\n", Errno::Inval),
        ("x\n", Errno::Inval),
        ("-1\n", Errno::Inval),
        ("+1\n", Errno::Inval),
        ("1 2\n", Errno::Inval),
        ("1\n\n", Errno::Inval),
        ("1e3\n", Errno::Inval),
        ("0\n", Errno::Range),
        ("1001\n", Errno::Range),
        ("18446744073709551616\n", Errno::Range),
        ("100000000000000000000\n", Errno::Range),
    ] {
        let refusal = number(line).unwrap_err();
        assert_eq!(refusal.errno, errno, "{line:?}");
        assert!(
            refusal.as_str().starts_with("sync_speed_max: "),
            "{refusal}"
        );
    }
    assert_eq!(parse_path("new_dev", b"/dev/sdx\n"), Ok("/dev/sdx"));
    for bad in [
        "sdx\n",
        "8:16\n",
        "/dev/a /dev/b\n",
        "/dev/../a\n",
        "\n",
        "/a\u{0}\n",
    ] {
        assert_eq!(
            parse_path("new_dev", bad.as_bytes()).unwrap_err().errno,
            Errno::Inval,
            "{bad:?}"
        );
    }
}

#[test]
fn excerpts_are_short_and_printable() {
    assert_eq!(Excerpt(b"a\0b\n\xff\x1b[2J").to_string(), "a?b???[2J");
    let long = Excerpt(&[b'x'; 1000]).to_string();
    assert_eq!(long, format!("{}...", "x".repeat(64)));
}

fn parse_all(line: &[u8]) {
    let refusals = [
        parse_create(line).err(),
        parse_assemble(line).err(),
        parse_stop(line).err(),
        parse_abort(line).err(),
        parse_number("n", line, 3..=9).err(),
        parse_path("p", line).err(),
        eraid_core::sitout::Request::parse(line).err(),
        eraid_core::member::StateCommand::parse(line).err(),
    ];
    for refusal in refusals.into_iter().flatten() {
        assert!(!refusal.as_str().is_empty());
        let printable = |c: char| matches!(c, ' '..='~');
        assert!(refusal.as_str().chars().all(printable), "{refusal}");
    }
}

/// Lines of pieces that mean something, in wrong order and combination.
fn almost_right() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "name=",
        "level=",
        "chunk=",
        "members=",
        "spares=",
        "dev=",
        "m=",
        "k=",
        "force=",
        "assume_clean=",
        "consistency_policy=",
        "degraded=",
        "readonly=",
        "/dev/sda",
        "/dev/sdb",
        "missing",
        ",",
        "=",
        " ",
        "\t",
        "\n",
        "..",
        "/",
        "eraid",
        "0",
        "1",
        "5",
        "6",
        "64K",
        "M",
        "18446744073709551615",
        "tank",
        "ppl",
        "bitmap",
        "\u{0}",
        "\u{e9}",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat() + "\n")
}

proptest! {
    #![proptest_config(support::config(20_000))]

    #[test]
    fn random_bytes_never_panic(line in prop::collection::vec(any::<u8>(), 0..200)) {
        parse_all(&line);
        let mut ended = line;
        ended.push(b'\n');
        parse_all(&ended);
    }

    #[test]
    fn almost_right_lines_never_panic(line in almost_right()) {
        parse_all(line.as_bytes());
    }

    #[test]
    fn what_is_taken_is_what_was_written(
        name in "[A-Za-z0-9_][A-Za-z0-9_-]{0,31}",
        level in prop::sample::select(vec![0u32, 1, 5]),
        shift in 13u32..=20,
        count in 3usize..=64,
        dev in prop::option::of(0u32..=1023),
        clean in any::<bool>(),
        force in any::<bool>(),
    ) {
        prop_assume!(!["power", "subsystem", "uevent"].contains(&name.as_str()));
        prop_assume!(!name.strip_prefix("eraid").is_some_and(|n| n.bytes().all(|c| c.is_ascii_digit())
            && !n.is_empty()));
        let all: Vec<String> = (0..count).map(|i| format!("/dev/disk/{i}")).collect();
        let dev_word = dev.map(|n| format!(" dev=eraid{n}")).unwrap_or_default();
        let line = format!(
            "force={} name={name} chunk={} members={} level={level} assume_clean={}{dev_word}\n",
            u8::from(force), 1 << shift, all.join(","), u8::from(clean),
        );
        let create = create(&line).unwrap();
        prop_assert_eq!(create.name, &name);
        prop_assert_eq!(create.level.number(), level);
        prop_assert_eq!(create.chunk, Sectors::from_bytes(1 << shift));
        prop_assert_eq!(paths(&create.members), all);
        prop_assert_eq!((create.dev, create.assume_clean, create.force), (dev, clean, force));
    }
}
