// SPDX-License-Identifier: GPL-2.0

//! Metadata of members outside of running arrays: opening, reading and writing that waits.

use core::fmt::Write;

use kernel::{page::PAGE_SIZE, prelude::*, str::CString, sync::Arc};

use crate::{
    error::refused,
    kapi::{
        command::CommandFlags,
        crc::crc32c,
        device::{self, MemberDevice},
        sync_io::{Abandoned, Patience, SyncIo},
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

/// Pages of the buffer, and so of the largest transfer: 256 KiB.
const IO_PAGES: usize = 64;
/// The largest transfer.
const IO_BYTES: usize = IO_PAGES * PAGE_SIZE;
/// How long a device may take for a command of a clean-up.
const CLEAN_UP_MS: u32 = 5000;

/// A command that nobody waits for any more.
pub(crate) struct Left {
    /// Name of the device that has it.
    pub(crate) name: TextBuf<48>,
    /// Device number.
    pub(crate) dev: u32,
    /// The command.
    pub(crate) command: Abandoned,
}

/// Reads and writes of members, one at a time, and the memory for them.
pub(crate) struct MemberIo {
    io: SyncIo,
    /// Content of a metadata page on its way.
    pub(crate) page: KBox<Page>,
    /// The first command that was given up.
    left: Option<Left>,
}

impl MemberIo {
    /// Waits for each command until it ends or the task is killed.
    pub(crate) fn new() -> Result<Self, Refusal> {
        Self::with(Patience::UntilKilled)
    }

    /// For the clean-up behind a task that may have been killed: waits a few seconds at most.
    pub(crate) fn for_clean_up() -> Result<Self, Refusal> {
        Self::with(Patience::Millis(CLEAN_UP_MS))
    }

    #[inline(never)]
    fn with(patience: Patience) -> Result<Self, Refusal> {
        let make = || -> Result<Self> {
            Ok(Self {
                io: SyncIo::new(IO_PAGES, patience)?,
                page: KBox::init(pin_init::init_zeroed(), GFP_KERNEL)?,
                left: None,
            })
        };
        make().map_err(|error| refused(error, "memory for", "the members"))
    }

    /// Reads a metadata page of a member.
    pub(crate) fn read(&mut self, device: &Arc<MemberDevice>, at: Sector) -> Result<(), Refusal> {
        let read = self.io.read(device, at.get(), META_PAGE);
        let read = read.and_then(|()| self.io.buf()?.read(0, &mut self.page[..]));
        self.ended(read, "reading", device)
    }

    /// Writes the metadata page durably to a member, behind all that was written before.
    pub(crate) fn write(&mut self, device: &Arc<MemberDevice>, at: Sector) -> Result<(), Refusal> {
        let flags = CommandFlags::PREFLUSH | CommandFlags::FUA;
        let filled = self.io.buf().and_then(|buf| buf.write(0, &self.page[..]));
        let written = filled.and_then(|()| self.io.write(device, at.get(), META_PAGE, flags));
        self.ended(written, "writing", device)
    }

    /// Writes a superblock to one side of a member.
    pub(crate) fn write_superblock(
        &mut self,
        device: &Arc<MemberDevice>,
        superblock: &Superblock,
        side: Side,
    ) -> Result<(), Refusal> {
        superblock.encode(crc32c, &mut self.page);
        self.write(device, layout::superblock(side))
    }

    /// Reads whole sectors of a member.
    fn read_bytes(
        &mut self,
        device: &Arc<MemberDevice>,
        sector: u64,
        bytes: &mut [u8],
    ) -> Result<(), Refusal> {
        let mut read = || -> Result {
            let mut at = sector;
            for part in bytes.chunks_mut(IO_BYTES) {
                self.io.read(device, at, part.len())?;
                self.io.buf()?.read(0, part)?;
                at += part.len() as u64 / 512;
            }
            Ok(())
        };
        let result = read();
        self.ended(result, "reading", device)
    }

    /// Zeroes the sectors from `start` to before `end`, not durably.
    pub(crate) fn zero(
        &mut self,
        device: &Arc<MemberDevice>,
        start: u64,
        end: u64,
    ) -> Result<(), Refusal> {
        let mut zero = || -> Result {
            self.io.buf()?.zero(0, IO_BYTES)?;
            for at in (start..end).step_by(IO_BYTES / 512) {
                let len = (end - at).min(IO_BYTES as u64 / 512) as usize * 512;
                self.io.write(device, at, len, CommandFlags::NONE)?;
            }
            Ok(())
        };
        let result = zero();
        self.ended(result, "zeroing the ends of", device)
    }

    /// Writes `count` metadata pages to `at` and behind it, not durably; `encode` makes each.
    pub(crate) fn write_pages(
        &mut self,
        device: &Arc<MemberDevice>,
        at: Sector,
        count: u32,
        encode: impl Fn(&mut Page, u32),
    ) -> Result<(), Refusal> {
        let mut write = || -> Result {
            for first in (0..count).step_by(IO_PAGES) {
                let some = count.saturating_sub(first).min(IO_PAGES as u32);
                for number in 0..some {
                    encode(&mut self.page, first + number);
                    let buf = self.io.buf()?;
                    buf.write(number as usize * META_PAGE, &self.page[..])?;
                }
                let at = at.get() + u64::from(first) * (META_PAGE as u64 / 512);
                let len = some as usize * META_PAGE;
                self.io.write(device, at, len, CommandFlags::NONE)?;
            }
            Ok(())
        };
        let result = write();
        self.ended(result, "writing", device)
    }

    /// Puts the end of `doing` something with `device` in words, and remembers a command that was
    /// given up in it.
    fn ended(&mut self, result: Result, doing: &str, device: &MemberDevice) -> Result<(), Refusal> {
        if self.left.is_none() {
            self.left = self.io.abandoned().map(|command| Left {
                name: TextBuf::format(format_args!("{}", name(device))),
                dev: device.dev(),
                command,
            });
        }
        result.map_err(|error| refused(error, doing, name(device)))
    }

    /// Whether the device has a command of this that was given up.
    pub(crate) fn has_left(&self, device: &MemberDevice) -> bool {
        self.left
            .as_ref()
            .is_some_and(|left| left.dev == device.dev())
    }

    /// Takes what is known of the command that was given up.
    pub(crate) fn take_left(&mut self) -> Option<Left> {
        self.left.take()
    }
}

/// An empty metadata page.
#[inline(never)]
pub(crate) fn blank_page() -> Result<KBox<Page>, Refusal> {
    KBox::init(pin_init::init_zeroed(), GFP_KERNEL)
        .map_err(|error| refused(error, "memory for", "metadata"))
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
pub(crate) fn read_superblock(
    io: &mut MemberIo,
    device: &Arc<MemberDevice>,
) -> Result<(KBox<Superblock>, Side), Unread> {
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
            Err(refusal) if unreadable_sides == 0 && refusal.errno != Errno::Intr => {
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

/// Refuses a device that carries anything known; `hint` says what to do then.
#[inline(never)]
pub(crate) fn check_blank(
    io: &mut MemberIo,
    device: &Arc<MemberDevice>,
    hint: &str,
) -> Result<(), Refusal> {
    match read_superblock(io, device) {
        Ok((superblock, _)) => {
            return Err(refuse!(
                Errno::Exist,
                "{} is a member of the eRAID array {}; {hint}",
                name(device),
                superblock.name.as_str()
            ))
        }
        Err(Unread::Superblock(SbError::NotOurs)) => {}
        Err(Unread::Superblock(error)) => {
            return Err(refuse!(
                Errno::Exist,
                "{} {}; {hint}",
                name(device),
                error.as_str()
            ))
        }
        Err(Unread::Device(refusal)) => return Err(refusal),
    }
    let size = device.size_sectors();
    let (head, tail) = read_ends(io, device, size)?;
    match signature::find(&head, &tail, Sectors::new(size)) {
        Some(what) => Err(refuse!(
            Errno::Exist,
            "{} carries {what}; {hint}",
            name(device)
        )),
        None => Ok(()),
    }
}

/// Reads the ends of a device.
#[inline(never)]
fn read_ends(
    io: &mut MemberIo,
    device: &Arc<MemberDevice>,
    size: u64,
) -> Result<(KVVec<u8>, KVVec<u8>), Refusal> {
    let room = |len| {
        let bytes = KVVec::from_elem(0u8, len, GFP_KERNEL);
        bytes.map_err(|_| refused(ENOMEM, "reading", name(device)))
    };
    let bytes = usize::try_from(size.saturating_mul(512)).unwrap_or(usize::MAX);
    let mut head = room(signature::HEAD.min(bytes))?;
    io.read_bytes(device, 0, &mut head)?;
    let mut tail = room(signature::TAIL.min(bytes))?;
    let start = size.saturating_sub(tail.len() as u64 / 512);
    io.read_bytes(device, start, &mut tail)?;
    Ok((head, tail))
}

/// Formats a name for sysfs or devtmpfs.
pub(crate) fn c_name(args: core::fmt::Arguments<'_>) -> Result<CString> {
    let mut text = TextBuf::<64>::new();
    text.write_fmt(args).map_err(|_| ENAMETOOLONG)?;
    CString::try_from_fmt(fmt!("{}", text.as_str()))
}
