// SPDX-License-Identifier: GPL-2.0

//! Commands that a task waits for, and can be killed while it does.
//!
//! Between the commands the buffer belongs to the task. Who stops waiting leaves it, with the whole
//! command, to the device: what that may still write to is nobody else's.

use kernel::{
    error::code::*,
    new_spinlock_irq,
    prelude::*,
    sync::{
        Arc,
        SpinLockIrq, //
    }, //
};

use super::{
    command::{
        Command,
        CommandContext,
        CommandFlags,
        CommandIo,
        CommandOp, //
    },
    completion::Completion,
    device::MemberDevice,
    page::PageBuf,
    status::Status, //
};

type Cmd = KBox<Command<Waiter>>;

/// How long to wait for a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    /// Until it ends or the task is killed.
    UntilKilled,
    /// So many milliseconds, killed or not.
    Millis(u32),
}

/// Where a command is.
enum Place {
    /// With its owner.
    Home,
    /// With the device.
    Out,
    /// Back from the device.
    Back(Cmd, Status),
    /// With the device, and nobody waits for it.
    Abandoned,
    /// It came back to nobody and was freed.
    Gone,
}

/// What the waiting task and the command share.
#[pin_data]
struct Shared {
    #[pin]
    place: SpinLockIrq<Place>,
    #[pin]
    ended: Completion,
}

/// The part of a command that says who waits for it; empty while nobody does.
struct Waiter(Option<Arc<Shared>>);

impl CommandContext for Waiter {
    fn done(mut cmd: Cmd, status: Status) {
        let Some(shared) = cmd.ctx.0.take() else {
            return;
        };
        let mut place = shared.place.lock();
        let unwanted = match *place {
            Place::Abandoned => {
                *place = Place::Gone;
                Some(cmd)
            }
            _ => {
                *place = Place::Back(cmd, status);
                None
            }
        };
        // Under the lock: the owner, who may have been killed and look there first, is not to find
        // the command of now back and the event of now during the next one.
        shared.ended.complete();
        drop(place);
        drop(unwanted);
    }
}

/// A command that its owner stopped waiting for.
pub(crate) struct Abandoned(Arc<Shared>);

impl Abandoned {
    /// Whether the device has given it back. Any context.
    pub(crate) fn is_over(&self) -> bool {
        matches!(*self.0.place.lock(), Place::Gone)
    }
}

/// One command after the other, with a buffer of its own. Task context.
pub(crate) struct SyncIo {
    /// `None` once a command was abandoned.
    cmd: Option<Cmd>,
    shared: Arc<Shared>,
    patience: Patience,
}

impl SyncIo {
    /// Makes one with a buffer of `pages` zeroed pages, at most 1024.
    ///
    /// # Errors
    ///
    /// [`ENOMEM`]; [`EINVAL`] for more pages.
    pub(crate) fn new(pages: usize, patience: Patience) -> Result<Self> {
        let mut cmd = Command::new(pages, Waiter(None))?;
        cmd.buf = PageBuf::zeroed(pages)?;
        let shared = Arc::pin_init(
            pin_init!(Shared {
                place <- new_spinlock_irq!(Place::Home, "eraid_sync_io"),
                ended <- Completion::new(),
            }),
            GFP_KERNEL,
        )?;
        Ok(Self {
            cmd: Some(cmd),
            shared,
            patience,
        })
    }

    /// The buffer.
    ///
    /// # Errors
    ///
    /// [`EINTR`] when a command was abandoned, and the buffer with it.
    pub(crate) fn buf(&mut self) -> Result<&mut PageBuf> {
        let cmd = self.cmd.as_mut().ok_or(EINTR)?;
        Ok(&mut cmd.buf)
    }

    /// Reads `len` bytes at `sector` to the start of the buffer.
    ///
    /// # Errors
    ///
    /// The device's; [`EINVAL`] for a range that does not fit the buffer or is not made of sectors;
    /// [`EINTR`] when the task was killed, or patience ran out: then and from then on there is no
    /// buffer any more, and the device is closed when it has answered.
    pub(crate) fn read(&mut self, dev: &Arc<MemberDevice>, sector: u64, len: usize) -> Result {
        self.transfer(CommandOp::Read, CommandFlags::NONE, dev, sector, len)
    }

    /// Writes `len` bytes from the start of the buffer to `sector`.
    ///
    /// # Errors
    ///
    /// As for [`Self::read`].
    pub(crate) fn write(
        &mut self,
        dev: &Arc<MemberDevice>,
        sector: u64,
        len: usize,
        flags: CommandFlags,
    ) -> Result {
        self.transfer(CommandOp::Write, flags, dev, sector, len)
    }

    /// The command that was abandoned, if one was.
    pub(crate) fn abandoned(&self) -> Option<Abandoned> {
        match self.cmd {
            Some(_) => None,
            None => Some(Abandoned(self.shared.clone())),
        }
    }

    fn transfer(
        &mut self,
        op: CommandOp,
        flags: CommandFlags,
        dev: &Arc<MemberDevice>,
        sector: u64,
        len: usize,
    ) -> Result {
        let mut cmd = self.cmd.take().ok_or(EINTR)?;
        cmd.ctx.0 = Some(self.shared.clone());
        *self.shared.place.lock() = Place::Out;
        self.shared.ended.reinit();
        let io = CommandIo {
            op,
            flags: flags | CommandFlags::SYNC | CommandFlags::META,
            sector,
            buf_off: 0,
            len,
            origin: None,
        };
        Command::submit(cmd, dev.clone(), io);
        self.wait();

        let mut place = self.shared.place.lock();
        match core::mem::replace(&mut *place, Place::Abandoned) {
            Place::Back(cmd, status) => {
                *place = Place::Home;
                self.cmd = Some(cmd);
                status.to_result()
            }
            _ => {
                drop(place);
                dev.keep_module();
                Err(EINTR)
            }
        }
    }

    /// Waits until the command is back, or patience ends.
    fn wait(&self) {
        match self.patience {
            // Whether it is back is seen from its place.
            Patience::UntilKilled => drop(self.shared.ended.wait_killable()),
            Patience::Millis(ms) => {
                let _ = self.shared.ended.wait_timeout(ms);
            }
        }
    }
}
