// SPDX-License-Identifier: GPL-2.0

//! Foreign signatures: what else may live on a device that is about to become a member.
//!
//! A name given here makes the driver refuse the device, so a signature is only in the table when
//! its magic cannot be an accident: four bytes or more, or fewer together with a second condition.

use crate::units::Sectors;

/// Bytes that [`find`] needs from the start of a device.
///
/// The furthest place is that of a secondary LUKS2 header at 256 KiB.
pub const HEAD: usize = 260 << 10;

/// Bytes that [`find`] needs from the end of a device.
///
/// The last ZFS label can end almost 256 KiB before the end of the device. The 16 KiB of it that
/// are always seen belong to its ring of uberblocks, all of which a pool soon has written.
pub const TAIL: usize = 272 << 10;

const _: () = assert!(HEAD % 4096 == 0 && TAIL % 4096 == 0);

/// Looks for a foreign signature and returns its name, to go behind "carries".
///
/// `head` is the first [`HEAD`] bytes of the device and `tail` its last [`TAIL`] bytes; on a
/// smaller device both are the whole device. `size` is the size of the device. A place outside of
/// what was given counts as empty. eRAID's own superblock is not looked for.
pub fn find(head: &[u8], tail: &[u8], size: Sectors) -> Option<&'static str> {
    let ends = Ends::new(head, tail, size);
    let found = SIGNATURES.iter().find(|signature| signature.is_on(&ends))?;
    Some(found.name)
}

/// Both ends of a device.
struct Ends<'a> {
    head: &'a [u8],
    tail: &'a [u8],
    /// Size of the device in bytes.
    size: Option<u64>,
    /// Offset of `tail` on the device.
    tail_at: Option<u64>,
}

impl<'a> Ends<'a> {
    fn new(head: &'a [u8], tail: &'a [u8], size: Sectors) -> Ends<'a> {
        let size = size.bytes();
        Ends {
            head,
            tail,
            size,
            tail_at: size.and_then(|size| size.checked_sub(tail.len() as u64)),
        }
    }

    /// The `len` bytes at offset `at` of the device, if they are in one of its ends.
    fn get(&self, at: u64, len: usize) -> Option<&'a [u8]> {
        slice(self.head, at, len).or_else(|| slice(self.tail, at.checked_sub(self.tail_at?)?, len))
    }

    /// Whether `magic` stands at offset `at` of the device.
    fn has(&self, at: u64, magic: &[u8]) -> bool {
        self.get(at, magic.len()) == Some(magic)
    }
}

/// The `len` bytes at `at`, if there are so many.
fn slice(bytes: &[u8], at: u64, len: usize) -> Option<&[u8]> {
    let at = usize::try_from(at).ok()?;
    bytes.get(at..at.checked_add(len)?)
}

/// What the offset of a [`Place`] is counted from.
enum Origin {
    /// The start of the device, forwards.
    Start,
    /// The end of the device rounded down to a multiple of this power of two, backwards.
    End(u64),
}

/// Where a magic stands: once, or several times at equal distances.
struct Place {
    origin: Origin,
    offset: u64,
    step: u64,
    count: u64,
}

/// The place `offset` bytes behind the start of the device.
const fn start(offset: u64) -> Place {
    Place::once(Origin::Start, offset)
}

/// The place `offset` bytes before the end of the last whole `unit` of the device.
const fn end(unit: u64, offset: u64) -> Place {
    Place::once(Origin::End(unit), offset)
}

impl Place {
    const fn once(origin: Origin, offset: u64) -> Place {
        Place {
            origin,
            offset,
            step: 0,
            count: 1,
        }
    }

    /// This place and those behind it, `count` in all and `step` bytes from one to the next.
    const fn every(mut self, step: u64, count: u64) -> Place {
        self.step = step;
        self.count = count;
        self
    }

    /// Offset of the first place on a device of `size` bytes, or `None` where it has no such place.
    fn first(&self, size: Option<u64>) -> Option<u64> {
        match self.origin {
            Origin::Start => Some(self.offset),
            Origin::End(unit) => (size? & unit.wrapping_neg()).checked_sub(self.offset),
        }
    }

    /// Whether one of `magics` stands here.
    fn has_any(&self, ends: &Ends<'_>, magics: &[&[u8]]) -> bool {
        let Some(first) = self.first(ends.size) else {
            return false;
        };
        (0..self.count).any(|i| {
            let at = first.saturating_add(i.saturating_mul(self.step));
            magics.iter().any(|magic| ends.has(at, magic))
        })
    }
}

/// A kind of content and how to recognise it.
struct Signature {
    name: &'static str,
    places: &'static [Place],
    /// Any of these at any of the places will do.
    magics: &'static [&'static [u8]],
    /// A condition beside the magic.
    also: fn(&Ends<'_>) -> bool,
}

impl Signature {
    /// A signature whose magic is long enough to stand alone.
    const fn new(
        name: &'static str,
        places: &'static [Place],
        magics: &'static [&'static [u8]],
    ) -> Signature {
        Signature {
            name,
            places,
            magics,
            also: |_| true,
        }
    }

    /// The signature with one more condition.
    const fn also(mut self, also: fn(&Ends<'_>) -> bool) -> Signature {
        self.also = also;
        self
    }

    fn is_on(&self, ends: &Ends<'_>) -> bool {
        let anywhere = |place: &Place| place.has_any(ends, self.magics);
        self.places.iter().any(anywhere) && (self.also)(ends)
    }
}

/// Whether the block size of an ext superblock is one: log2 of it minus 10, a le32.
///
/// Source: fs/ext4/ext4.h, `s_log_block_size` and `EXT4_MAX_BLOCK_LOG_SIZE`.
fn ext_block_size(ends: &Ends<'_>) -> bool {
    matches!(ends.get(1024 + 24, 4), Some([0..=6, 0, 0, 0]))
}

/// Whether the boot indicators of all four partitions are valid.
///
/// Source: block/partitions/msdos.c, `msdos_partition()`.
fn boot_indicators(ends: &Ends<'_>) -> bool {
    let valid = |at| matches!(ends.get(at, 1), Some([0 | 0x80]));
    [446, 462, 478, 494].into_iter().all(valid)
}

/// `MD_SB_MAGIC` and the major version 1.
const MD_1: &[u8] = b"\xfc\x4e\x2b\xa9\x01\0\0\0";

/// Everything that is recognised.
///
/// The first match is the one reported: what holds other things comes before what may be inside of
/// it, and remains at the end of the device, which are easily left behind, come late.
static SIGNATURES: [Signature; 31] = [
    // include/uapi/linux/raid/md_p.h, struct mdp_superblock_1; drivers/md/md.c, super_1_load().
    Signature::new("an md 1.0 member", &[end(4096, 8192)], &[MD_1]),
    Signature::new("an md 1.1 member", &[start(0)], &[MD_1]),
    Signature::new("an md 1.2 member", &[start(4096)], &[MD_1]),
    // include/uapi/linux/raid/md_p.h, struct mdp_superblock_s, whose byte order is that of the
    // host, with the major version 0, and MD_NEW_SIZE_SECTORS().
    Signature::new(
        "an md 0.90 member",
        &[end(65536, 65536)],
        &[b"\xfc\x4e\x2b\xa9\0\0\0\0", b"\xa9\x2b\x4e\xfc\0\0\0\0"],
    ),
    // mdadm, super-intel.c, MPB_SIGNATURE and load_imsm_mpb(): the last block but one.
    Signature::new(
        "an Intel RAID member",
        &[end(512, 1024), end(4096, 8192)],
        &[b"Intel Raid ISM Cfg Sig. "],
    ),
    // SNIA Common RAID Disk Data Format 2.0, 5.5: the anchor header, in the last block.
    Signature::new(
        "a DDF RAID member",
        &[end(512, 512), end(4096, 4096)],
        &[b"\xde\x11\xde\x11"],
    ),
    // include/uapi/linux/drbd.h, DRBD_MD_MAGIC_08 and _84_UNCLEAN; DRBD 9, drbd_meta_data.h,
    // DRBD_MD_MAGIC_09; drivers/block/drbd/drbd_int.h, drbd_md_ss(), internal metadata.
    Signature::new(
        "a DRBD device",
        &[end(4096, 4096 - 60)],
        &[
            b"\x83\x74\x02\x6b",
            b"\x83\x74\x02\x6c",
            b"\x83\x74\x02\x6d",
        ],
    ),
    // LVM2, lib/label/label.h, struct label_header in one of the first LABEL_SCAN_SECTORS;
    // lib/format_text/layout.h, LVM2_LABEL.
    Signature::new(
        "an LVM2 physical volume",
        &[start(24).every(512, 4)],
        &[b"LVM2 001"],
    ),
    // LUKS1 On-Disk Format Specification 1.2.3, figure 1; LUKS2 1.1.1, 2.1.
    Signature::new("a LUKS volume", &[start(0)], &[b"LUKS\xba\xbe"]),
    // LUKS2 On-Disk Format Specification 1.1.1, 2.1: the secondary header of LUKS2.
    Signature::new(
        "a LUKS volume",
        &[
            start(0x4000),
            start(0x8000),
            start(0x10000),
            start(0x20000),
            start(0x40000),
        ],
        &[b"SKUL\xba\xbe"],
    ),
    // cryptsetup, lib/bitlk/bitlk.c, BITLK_SIGNATURE.
    Signature::new("a BitLocker volume", &[start(3)], &[b"-FVE-FS-"]),
    // drivers/md/bcache/bcache_ondisk.h, struct cache_sb_disk and SB_OFFSET; super.c, bcache_magic.
    Signature::new(
        "a bcache device",
        &[start(4096 + 24)],
        &[b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"],
    ),
    // OpenZFS, sys/uberblock_impl.h, UBERBLOCK_MAGIC in the byte order of the host;
    // sys/vdev_impl.h, struct vdev_label, the first and the last of the four labels.
    Signature::new(
        "a ZFS label",
        &[
            start(128 << 10).every(1024, 128),
            end(256 << 10, 128 << 10).every(1024, 128),
        ],
        &[b"\x0c\xb1\xba\0\0\0\0\0", b"\0\0\0\0\0\xba\xb1\x0c"],
    ),
    // Ceph, src/os/bluestore/bluestore_types.cc, bluestore_bdev_label_t.
    Signature::new(
        "a Ceph BlueStore device",
        &[start(0)],
        &[b"bluestore block device"],
    ),
    // UEFI Specification 2.10, 5.3.2: the header, in LBA 1.
    Signature::new(
        "a GPT partition table",
        &[start(512), start(4096)],
        &[b"EFI PART"],
    ),
    // fs/ext4/ext4.h, struct ext4_super_block; include/uapi/linux/magic.h, EXT4_SUPER_MAGIC.
    Signature::new(
        "an ext2/3/4 file system",
        &[start(1024 + 56)],
        &[b"\x53\xef"],
    )
    .also(ext_block_size),
    // fs/xfs/libxfs/xfs_format.h, XFS_SB_MAGIC.
    Signature::new("an XFS file system", &[start(0)], &[b"XFSB"]),
    // include/uapi/linux/btrfs_tree.h, BTRFS_MAGIC; fs/btrfs/fs.h, BTRFS_SUPER_INFO_OFFSET.
    Signature::new(
        "a btrfs file system",
        &[start((64 << 10) + 64)],
        &[b"_BHRfS_M"],
    ),
    // bcachefs, bcachefs_format.h, BCHFS_MAGIC, struct bch_sb and BCH_SB_SECTOR.
    Signature::new(
        "a bcachefs file system",
        &[start(4096 + 24)],
        &[b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"],
    ),
    // include/linux/f2fs_fs.h, F2FS_SUPER_OFFSET, in the first and the second block.
    Signature::new(
        "an f2fs file system",
        &[start(1024), start(4096 + 1024)],
        &[b"\x10\x20\xf5\xf2"],
    ),
    // Linux 6.12, fs/reiserfs/reiserfs.h, REISERFS_DISK_OFFSET_IN_BYTES and the place before 3.6.
    Signature::new(
        "a ReiserFS file system",
        &[start((64 << 10) + 52), start((8 << 10) + 52)],
        &[b"ReIsErFs", b"ReIsEr2Fs", b"ReIsEr3Fs"],
    ),
    // fs/jfs/jfs_superblock.h, JFS_MAGIC; fs/jfs/jfs_filsys.h, SUPER1_OFF.
    Signature::new("a JFS file system", &[start(32 << 10)], &[b"JFS1"]),
    // include/uapi/linux/gfs2_ondisk.h, GFS2_MAGIC with GFS2_METATYPE_SB, and GFS2_SB_ADDR.
    Signature::new(
        "a GFS2 file system",
        &[start(64 << 10)],
        &[b"\x01\x16\x19\x70\0\0\0\x01"],
    ),
    // fs/ocfs2/ocfs2_fs.h, OCFS2_SUPER_BLOCK_SIGNATURE, in block 2 of 512 bytes to 4 KiB.
    Signature::new(
        "an OCFS2 file system",
        &[start(1024), start(2048), start(4096), start(8192)],
        &[b"OCFSV2"],
    ),
    // fs/ntfs3/ntfs.h, struct NTFS_BOOT.
    Signature::new("an NTFS file system", &[start(3)], &[b"NTFS    "]),
    // fs/exfat/exfat_raw.h, STR_EXFAT and struct boot_sector.
    Signature::new("an exFAT file system", &[start(3)], &[b"EXFAT   "]),
    // Microsoft FAT32 File System Specification 1.03, BS_FilSysType of FAT12 and FAT16.
    Signature::new(
        "a FAT file system",
        &[start(54)],
        &[b"FAT12   ", b"FAT16   ", b"FAT     "],
    ),
    // Microsoft FAT32 File System Specification 1.03, BS_FilSysType of FAT32.
    Signature::new("a FAT file system", &[start(82)], &[b"FAT32   "]),
    // include/linux/swap.h, union swap_header, and kernel/power/swap.c, HIBERNATE_SIG, for pages
    // of 4 KiB to 64 KiB.
    Signature::new(
        "a swap area",
        &[
            start(0x1000 - 10),
            start(0x2000 - 10),
            start(0x4000 - 10),
            start(0x8000 - 10),
            start(0x10000 - 10),
        ],
        &[b"SWAPSPACE2", b"SWAP-SPACE", b"S1SUSPEND\0"],
    ),
    // UEFI Specification 2.10, 5.3.2: the backup header, in the last block.
    Signature::new(
        "a GPT partition table",
        &[end(512, 512), end(4096, 4096)],
        &[b"EFI PART"],
    ),
    // block/partitions/msdos.c, MSDOS_LABEL_MAGIC1 and 2. Boot sectors of file systems have the
    // same magic, so this comes behind them.
    Signature::new("an MBR partition table", &[start(510)], &[b"\x55\xaa"]).also(boot_indicators),
];
