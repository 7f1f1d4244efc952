// SPDX-License-Identifier: GPL-2.0

//! Foreign signatures: every kind is found at its place and nothing else is.

mod support;

use eraid_core::signature::{find, HEAD, TAIL};
use eraid_core::units::Sectors;
use proptest::prelude::*;

/// A device of zeros with some bytes written to it.
#[derive(Clone)]
struct Device {
    sectors: u64,
    written: Vec<(u64, Vec<u8>)>,
}

impl Device {
    fn new(sectors: u64) -> Device {
        Device {
            sectors,
            written: Vec::new(),
        }
    }

    fn with(mut self, at: u64, bytes: &[u8]) -> Device {
        assert!(at + bytes.len() as u64 <= self.sectors * 512);
        self.written.push((at, bytes.to_vec()));
        self
    }

    fn read(&self, from: u64, len: usize) -> Vec<u8> {
        let mut read = vec![0; len];
        for (at, bytes) in &self.written {
            for (i, byte) in (*at..).zip(bytes) {
                let inside = i.checked_sub(from).and_then(|i| read.get_mut(i as usize));
                if let Some(to) = inside {
                    *to = *byte;
                }
            }
        }
        read
    }

    /// Both ends, as long as the device allows.
    fn ends(&self) -> (Vec<u8>, Vec<u8>) {
        let bytes = self.sectors * 512;
        let (head, tail) = (bytes.min(HEAD as u64), bytes.min(TAIL as u64));
        (
            self.read(0, head as usize),
            self.read(bytes - tail, tail as usize),
        )
    }

    fn find(&self) -> Option<&'static str> {
        let (head, tail) = self.ends();
        find(&head, &tail, Sectors::new(self.sectors))
    }
}

/// A size in sectors that is a multiple of nothing but one.
const SIZE: u64 = 2_000_003;

/// Start of the last ZFS label.
const LAST_LABEL: u64 = ((SIZE * 512) / 262_144 - 1) * 262_144;

/// What is found: the offset of the magic and the magic itself.
#[rustfmt::skip]
const KNOWN: &[(&str, u64, &[u8])] = &[
    ("an md 1.0 member", ((SIZE - 16) & !7) * 512, &[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0]),
    ("an md 1.1 member", 0, &[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0]),
    ("an md 1.2 member", 4096, &[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0]),
    ("an md 0.90 member", ((SIZE & !127) - 128) * 512, &[0xfc, 0x4e, 0x2b, 0xa9, 0, 0, 0, 0]),
    ("an md 0.90 member", ((SIZE & !127) - 128) * 512, &[0xa9, 0x2b, 0x4e, 0xfc, 0, 0, 0, 0]),
    ("an Intel RAID member", (SIZE - 2) * 512, b"Intel Raid ISM Cfg Sig. "),
    ("an Intel RAID member", (SIZE / 8 - 2) * 4096, b"Intel Raid ISM Cfg Sig. "),
    ("a DDF RAID member", (SIZE - 1) * 512, &[0xde, 0x11, 0xde, 0x11]),
    ("a DDF RAID member", (SIZE / 8 - 1) * 4096, &[0xde, 0x11, 0xde, 0x11]),
    ("a DRBD device", ((SIZE & !7) - 8) * 512 + 60, &[0x83, 0x74, 0x02, 0x6b]),
    ("a DRBD device", ((SIZE & !7) - 8) * 512 + 60, &[0x83, 0x74, 0x02, 0x6c]),
    ("a DRBD device", ((SIZE & !7) - 8) * 512 + 60, &[0x83, 0x74, 0x02, 0x6d]),
    ("an LVM2 physical volume", 24, b"LVM2 001"),
    ("an LVM2 physical volume", 536, b"LVM2 001"),
    ("an LVM2 physical volume", 1560, b"LVM2 001"),
    ("a LUKS volume", 0, b"LUKS\xba\xbe"),
    ("a LUKS volume", 16_384, b"SKUL\xba\xbe"),
    ("a LUKS volume", 32_768, b"SKUL\xba\xbe"),
    ("a LUKS volume", 65_536, b"SKUL\xba\xbe"),
    ("a LUKS volume", 131_072, b"SKUL\xba\xbe"),
    ("a LUKS volume", 262_144, b"SKUL\xba\xbe"),
    ("a BitLocker volume", 3, b"-FVE-FS-"),
    ("a bcache device", 4120, &[
        0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca,
        0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81,
    ]),
    ("a ZFS label", 131_072, &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0]),
    ("a ZFS label", 135_168, &[0, 0, 0, 0, 0, 0xba, 0xb1, 0x0c]),
    ("a ZFS label", 261_120, &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0]),
    ("a ZFS label", LAST_LABEL + 131_072, &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0]),
    ("a ZFS label", LAST_LABEL + 253_952, &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0]),
    ("a Ceph BlueStore device", 0, b"bluestore block device"),
    ("a GPT partition table", 512, b"EFI PART"),
    ("a GPT partition table", 4096, b"EFI PART"),
    ("a GPT partition table", (SIZE - 1) * 512, b"EFI PART"),
    ("a GPT partition table", (SIZE / 8 - 1) * 4096, b"EFI PART"),
    ("an ext2/3/4 file system", 1080, &[0x53, 0xef]),
    ("an XFS file system", 0, b"XFSB"),
    ("a btrfs file system", 65_600, b"_BHRfS_M"),
    ("a bcachefs file system", 4120, &[
        0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9,
        0xd9, 0x6a, 0x60, 0xcf, 0x80, 0x3d, 0xf7, 0xef,
    ]),
    ("an f2fs file system", 1024, &[0x10, 0x20, 0xf5, 0xf2]),
    ("an f2fs file system", 5120, &[0x10, 0x20, 0xf5, 0xf2]),
    ("a ReiserFS file system", 8244, b"ReIsErFs"),
    ("a ReiserFS file system", 65_588, b"ReIsErFs"),
    ("a ReiserFS file system", 65_588, b"ReIsEr2Fs"),
    ("a ReiserFS file system", 65_588, b"ReIsEr3Fs"),
    ("a JFS file system", 32_768, b"JFS1"),
    ("a GFS2 file system", 65_536, &[0x01, 0x16, 0x19, 0x70, 0, 0, 0, 1]),
    ("an OCFS2 file system", 1024, b"OCFSV2"),
    ("an OCFS2 file system", 8192, b"OCFSV2"),
    ("an NTFS file system", 3, b"NTFS    "),
    ("an exFAT file system", 3, b"EXFAT   "),
    ("a FAT file system", 54, b"FAT12   "),
    ("a FAT file system", 54, b"FAT16   "),
    ("a FAT file system", 54, b"FAT     "),
    ("a FAT file system", 82, b"FAT32   "),
    ("a swap area", 4086, b"SWAPSPACE2"),
    ("a swap area", 65_526, b"SWAPSPACE2"),
    ("a swap area", 4086, b"SWAP-SPACE"),
    ("a swap area", 4086, b"S1SUSPEND\0"),
    ("an MBR partition table", 510, &[0x55, 0xaa]),
];

#[test]
fn each_is_found() {
    for (name, at, magic) in KNOWN {
        let device = Device::new(SIZE).with(*at, magic);
        assert_eq!(device.find(), Some(*name), "{at}");
    }
}

/// Whether `magic` at `at` is still on the device.
fn fits(at: u64, magic: &[u8]) -> bool {
    at + magic.len() as u64 <= SIZE * 512
}

#[test]
fn one_byte_off_is_not_found() {
    for (name, at, magic) in KNOWN {
        for at in [at.checked_sub(1), at.checked_add(1)].into_iter().flatten() {
            if fits(at, magic) {
                let device = Device::new(SIZE).with(at, magic);
                assert_eq!(device.find(), None, "{name} at {at}");
            }
        }
    }
}

#[test]
fn one_bit_wrong_is_not_found() {
    for (name, at, magic) in KNOWN {
        for bit in 0..magic.len() * 8 {
            let mut wrong = magic.to_vec();
            wrong[bit / 8] ^= 1 << (bit % 8);
            if !KNOWN.iter().any(|(_, _, magic)| *magic == wrong) {
                let device = Device::new(SIZE).with(*at, &wrong);
                assert_eq!(device.find(), None, "{name} with bit {bit}");
            }
        }
    }
}

#[test]
fn end_is_found_at_every_size() {
    for sectors in SIZE..SIZE + 1024 {
        let label_end = sectors / 512 * 262_144;
        for (name, at, magic) in [
            ("an md 1.0 member", ((sectors - 16) & !7) * 512, KNOWN[0].2),
            (
                "an md 0.90 member",
                ((sectors & !127) - 128) * 512,
                KNOWN[3].2,
            ),
            ("a GPT partition table", (sectors - 1) * 512, b"EFI PART"),
            // The last slot of 8 KiB, the greatest an uberblock has.
            (
                "a ZFS label",
                label_end - 8192,
                &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0],
            ),
        ] {
            let device = Device::new(sectors).with(at, magic);
            assert_eq!(device.find(), Some(name), "{sectors} sectors");
        }
    }
}

#[test]
fn nothing_is_found_in_zeros() {
    for sectors in [0, 1, 8, 127, 128, 600, SIZE] {
        assert_eq!(Device::new(sectors).find(), None);
    }
}

#[test]
fn nothing_is_found_in_noise() {
    let mut state: u64 = 0xe7a1d;
    let mut noise = |len: usize| -> Vec<u8> {
        // SplitMix64.
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        };
        (0..len / 8).flat_map(|_| next().to_le_bytes()).collect()
    };
    for _ in 0..100 {
        assert_eq!(find(&noise(HEAD), &noise(TAIL), Sectors::new(SIZE)), None);
    }
}

/// On a small device both ends overlap and the superblock at its end is in either.
#[test]
fn small_devices() {
    let device = Device::new(300).with(65_536, KNOWN[3].2);
    let (head, tail) = device.ends();
    let size = Sectors::new(300);
    assert_eq!((head.len(), tail.len()), (300 * 512, 300 * 512));
    assert_eq!(find(&head, &[], size), Some("an md 0.90 member"));
    assert_eq!(find(&[], &tail, size), Some("an md 0.90 member"));
    // A tail that is longer than the device is on no known place.
    assert_eq!(find(&[], &tail, Sectors::new(299)), None);
    assert_eq!(find(&[], &tail, Sectors::new(u64::MAX)), None);
}

#[test]
fn short_magics_need_more() {
    let ext = Device::new(SIZE).with(1080, &[0x53, 0xef]);
    assert_eq!(ext.clone().with(1048, &[6]).find(), ext.find());
    assert_eq!(ext.clone().with(1048, &[7]).find(), None);
    assert_eq!(ext.with(1051, &[1]).find(), None);
    let mbr = Device::new(SIZE).with(510, &[0x55, 0xaa]);
    assert_eq!(mbr.clone().with(462, &[0x80]).find(), mbr.find());
    for at in [446, 462, 478, 494] {
        assert_eq!(mbr.clone().with(at, &[1]).find(), None);
    }
}

#[test]
fn the_outer_one_is_reported() {
    let boot = Device::new(SIZE).with(510, &[0x55, 0xaa]);
    let gpt = boot.clone().with(512, b"EFI PART");
    assert_eq!(gpt.find(), Some("a GPT partition table"));
    let fat = boot.with(82, b"FAT32   ");
    assert_eq!(fat.find(), Some("a FAT file system"));
    let xfs = Device::new(SIZE).with(0, b"XFSB");
    let stale = xfs.clone().with((SIZE - 1) * 512, b"EFI PART");
    assert_eq!(stale.find(), Some("an XFS file system"));
    let md = xfs.with(KNOWN[0].1, KNOWN[0].2);
    assert_eq!(md.find(), Some("an md 1.0 member"));
}

proptest! {
    #![proptest_config(support::config(2000))]

    /// Ends of any length, cut from a device that holds something, and any size.
    #[test]
    fn never_panics(
        known in 0..KNOWN.len(),
        head in 0..=HEAD,
        tail in 0..=TAIL,
        sectors in prop_oneof![0u64..2000, SIZE - 2000..SIZE + 2000, any::<u64>()],
    ) {
        let (_, at, magic) = KNOWN[known];
        let (whole_head, whole_tail) = Device::new(SIZE).with(at, magic).ends();
        find(&whole_head[..head], &whole_tail[TAIL - tail..], Sectors::new(sectors));
    }

    /// What is found in a part of the ends is what is found in all of them.
    #[test]
    fn short_ends_hide_but_do_not_rename(
        known in 0..KNOWN.len(),
        head in 0..=HEAD,
        tail in 0..=TAIL,
    ) {
        let (name, at, magic) = KNOWN[known];
        let (whole_head, whole_tail) = Device::new(SIZE).with(at, magic).ends();
        let found = find(&whole_head[..head], &whole_tail[TAIL - tail..], Sectors::new(SIZE));
        let seen = at + magic.len() as u64 <= head as u64 || at >= SIZE * 512 - tail as u64;
        prop_assert!(found.is_none() || found == Some(name));
        // The condition beside the short magics lies before them.
        prop_assert_eq!(found.is_some(), seen);
    }
}
