// SPDX-License-Identifier: GPL-2.0

//! Metadata of members outside of running arrays: opening, reading and writing that waits.

use core::fmt::Write;

use kernel::{page::PAGE_SIZE, prelude::*, str::CString, sync::Arc};

use crate::{
    error::refused,
    kapi::{
        crc::crc32c,
        device::{self, MemberDevice, SyncFlags},
        page::PageBuf,
    },
};
use eraid_core::{
    assembly::unreadable,
    layout,
    metapage::{Page, Side, PAGE_SIZE as META_PAGE},
    refusal::{Errno, Refusal},
    refuse, signature,
    superblock::{choose, SbError, Superblock},
    text::TextBuf,
    units::{Sector, Sectors},
};

/// A metadata page on its way from or to members.
pub(crate) struct PageIo {
    buf: PageBuf,
    /// Its content.
    pub(crate) page: KBox<Page>,
}

impl PageIo {
    /// An empty page.
    #[inline(never)]
    pub(crate) fn new() -> Result<Self, Refusal> {
        let make = || -> Result<Self> {
            Ok(Self {
                buf: PageBuf::zeroed(1)?,
                page: KBox::init(pin_init::init_zeroed(), GFP_KERNEL)?,
            })
        };
        make().map_err(|error| refused(error, "metadata of", "the array"))
    }

    /// Reads a page of a member.
    pub(crate) fn read(&mut self, device: &MemberDevice, at: Sector) -> Result<(), Refusal> {
        device
            .read_sync(at.get(), &mut self.buf, 0, META_PAGE)
            .and_then(|()| self.buf.read(0, &mut self.page[..]))
            .map_err(|error| refused(error, "reading", name(device)))
    }

    /// Writes the page durably to a member.
    pub(crate) fn write(&mut self, device: &MemberDevice, at: Sector) -> Result<(), Refusal> {
        self.buf
            .write(0, &self.page[..])
            .and_then(|()| {
                device.write_sync(at.get(), &self.buf, 0, META_PAGE, SyncFlags::PREFLUSH_FUA)
            })
            .map_err(|error| refused(error, "writing", name(device)))
    }

    /// Writes a superblock to one side of a member.
    pub(crate) fn write_superblock(
        &mut self,
        device: &MemberDevice,
        superblock: &Superblock,
        side: Side,
    ) -> Result<(), Refusal> {
        superblock.encode(crc32c, &mut self.page);
        self.write(device, layout::superblock(side))
    }
}

/// A superblock of nothing, on the heap: it is too large for the stack.
#[inline(never)]
pub(crate) fn blank_superblock() -> Result<KBox<Superblock>> {
    Ok(KBox::new(Superblock::BLANK, GFP_KERNEL)?)
}

/// A copy of a superblock.
#[inline(never)]
pub(crate) fn clone_superblock(superblock: &Superblock) -> Result<KBox<Superblock>> {
    Ok(KBox::new(superblock.clone(), GFP_KERNEL)?)
}

/// Name of a device for messages.
pub(crate) fn name(device: &MemberDevice) -> &str {
    device.name().to_str().unwrap_or("?")
}

/// Opens a member; nobody else can while it is open.
pub(crate) fn open(path: &str, read_only: bool) -> Result<Arc<MemberDevice>, Refusal> {
    let open = || {
        let path = CString::try_from_fmt(fmt!("{path}"))?;
        MemberDevice::open(&path, read_only)
    };
    let device = open().map_err(|error| refused(error, "opening", path))?;
    if device.is_read_only() && !read_only {
        return Err(refuse!(Errno::RoFs, "{path} is read-only"));
    }
    Ok(device)
}

/// The device number behind a path.
pub(crate) fn dev_of(path: &str) -> Option<u32> {
    let path = CString::try_from_fmt(fmt!("{path}")).ok()?;
    device::lookup(&path).ok()
}

/// Why there is no superblock of a device.
pub(crate) enum Unread {
    /// The device did not deliver it.
    Device(Refusal),
    /// It is not one to be believed.
    Superblock(SbError),
}

impl Unread {
    /// What the administrator is told.
    pub(crate) fn refusal(self, device: &MemberDevice) -> Refusal {
        match self {
            Unread::Device(refusal) => refusal,
            Unread::Superblock(error) => unreadable(name(device), error),
        }
    }
}

/// The newer superblock of a device, and where it lies.
pub(crate) fn read_superblock(device: &MemberDevice) -> Result<(KBox<Superblock>, Side), Unread> {
    let mut io = PageIo::new().map_err(Unread::Device)?;
    let no_memory = |error| Unread::Device(refused(error, "reading", name(device)));
    let mut copies = [
        blank_superblock().map_err(no_memory)?,
        blank_superblock().map_err(no_memory)?,
    ];
    let mut errors = [None; 2];
    let mut unreadable_sides = 0;
    for ((side, copy), error) in Side::BOTH.iter().zip(&mut copies).zip(&mut errors) {
        match io.read(device, layout::superblock(*side)) {
            Ok(()) => *error = copy.decode_into(&io.page, crc32c).err(),
            // There are two of them for this.
            Err(_) if unreadable_sides == 0 => {
                unreadable_sides += 1;
                *error = Some(SbError::Crc);
            }
            Err(refusal) => return Err(Unread::Device(refusal)),
        }
    }
    let [a, b] = copies;
    let side = match (errors[0], errors[1]) {
        (None, None) => choose(Ok(&a), Ok(&b)),
        (None, Some(error)) => choose(Ok(&a), Err(error)),
        (Some(error), None) => choose(Err(error), Ok(&b)),
        (Some(first), Some(second)) => choose(Err(first), Err(second)),
    };
    match side {
        Ok(Side::A) => Ok((a, Side::A)),
        Ok(Side::B) => Ok((b, Side::B)),
        Err(error) => Err(Unread::Superblock(error)),
    }
}

/// Refuses a device that carries anything known.
#[inline(never)]
pub(crate) fn check_blank(device: &MemberDevice) -> Result<(), Refusal> {
    match read_superblock(device) {
        Ok((superblock, _)) => {
            return Err(refuse!(
                Errno::Exist,
                "{} is a member of the eRAID array {}; force=1 overwrites it",
                name(device),
                superblock.name.as_str()
            ))
        }
        Err(Unread::Superblock(SbError::NotOurs)) => {}
        Err(Unread::Superblock(error)) => {
            return Err(refuse!(
                Errno::Exist,
                "{} {}; force=1 overwrites it",
                name(device),
                error.as_str()
            ))
        }
        Err(Unread::Device(refusal)) => return Err(refusal),
    }
    let size = device.size_sectors();
    let (head, tail) =
        read_ends(device, size).map_err(|error| refused(error, "reading", name(device)))?;
    match signature::find(&head, &tail, Sectors::new(size)) {
        Some(what) => Err(refuse!(
            Errno::Exist,
            "{} carries {what}; force=1 overwrites it",
            name(device)
        )),
        None => Ok(()),
    }
}

/// Reads the ends of a device.
#[inline(never)]
fn read_ends(device: &MemberDevice, size: u64) -> Result<(KVVec<u8>, KVVec<u8>)> {
    let bytes = usize::try_from(size.saturating_mul(512)).unwrap_or(usize::MAX);
    let head = read_bytes(device, 0, signature::HEAD.min(bytes))?;
    let len = signature::TAIL.min(bytes);
    let tail = read_bytes(device, size.saturating_sub(len as u64 / 512), len)?;
    Ok((head, tail))
}

fn read_bytes(device: &MemberDevice, sector: u64, len: usize) -> Result<KVVec<u8>> {
    let mut buf = PageBuf::zeroed(len.div_ceil(PAGE_SIZE))?;
    let mut bytes = KVVec::from_elem(0u8, len, GFP_KERNEL)?;
    device.read_sync(sector, &mut buf, 0, len)?;
    buf.read(0, &mut bytes)?;
    Ok(bytes)
}

/// Formats a name for sysfs or devtmpfs.
pub(crate) fn c_name(args: core::fmt::Arguments<'_>) -> Result<CString> {
    let mut text = TextBuf::<64>::new();
    text.write_fmt(args).map_err(|_| ENAMETOOLONG)?;
    CString::try_from_fmt(fmt!("{}", text.as_str()))
}
