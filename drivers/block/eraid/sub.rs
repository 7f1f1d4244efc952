// SPDX-License-Identifier: GPL-2.0

//! A command to one member: how it gets to the device, and who is told of its end.
//!
//! It owns the pages it reads into or writes from, or a share of the request whose memory it borrows:
//! so it may outlive whoever asked for it.

use kernel::{alloc::KBox, sync::Arc};

use crate::{
    array::Array,
    kapi::{
        blocks::Blocks,
        command::{Command, CommandContext, CommandFlags, CommandIo, CommandOp},
        device::MemberDevice,
        status::Status,
    },
    member::Member,
    op::Ticket,
};
use eraid_core::{
    estimate::{End, ReadDone, Retries},
    fairness::Note,
    queue::Class,
    units::{Micros, Slot},
};

/// A command of the pool, with its pages.
pub(crate) type Cmd = KBox<Command<Sub>>;

/// Who is told when a command ends.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// An operation, if it still waits for it.
    Op(Ticket),
    /// The superblock writer.
    Superblock,
    /// The region map writer.
    Map,
}

/// How a command gets to its device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// As a bio, which every block device takes.
    Bio,
}

/// What a command carries besides its pages.
pub(crate) struct Sub {
    /// The array, while the command is in flight: its pool takes the command back.
    pub(crate) array: Option<Arc<Array>>,
    /// The member, while the command is in flight.
    pub(crate) member: Option<Arc<Member>>,
    /// Who is told.
    pub(crate) target: Target,
    /// The slot it was made for.
    pub(crate) slot: Slot,
    /// Its importance.
    pub(crate) class: Class,
    /// What it asks the device for, and whether that may retry; sectors are the member's own.
    pub(crate) io: CommandIo,
    /// How it gets there.
    pub(crate) transport: Transport,
    /// What its drive may do about a block that it cannot read.
    pub(crate) retries: Retries,
    /// It is part of a repair: its failure is no news.
    pub(crate) repairs: bool,
    /// How many sectors of a read that failed came before the first bad block; `None` if any block
    /// may be bad.
    pub(crate) good: Option<u32>,
    /// When its member got it.
    pub(crate) queued_us: u64,
    /// When it entered the device.
    pub(crate) dispatched_us: u64,
    /// Where its member noted that.
    pub(crate) note: Note,
}

impl Sub {
    /// The context of a command that is in the pool.
    pub(crate) fn idle() -> Self {
        Self {
            array: None,
            member: None,
            target: Target::Op(Ticket::default()),
            slot: Slot::default(),
            class: Class::Ordinary,
            io: CommandIo {
                op: CommandOp::Flush,
                flags: CommandFlags::NONE,
                sector: 0,
                buf_off: 0,
                len: 0,
                origin: None,
            },
            transport: Transport::Bio,
            retries: Retries::On,
            repairs: false,
            good: None,
            queued_us: 0,
            dispatched_us: 0,
            note: Note::default(),
        }
    }

    /// Whether the device ended it with `status` only because it was not to wait.
    fn would_wait(&self, status: Status) -> bool {
        self.io.flags.contains(CommandFlags::NOWAIT)
            && matches!(status, Status::AGAIN | Status::NOTSUPP)
    }
}

/// Hands `cmd` to `device`, page by page if there are `blocks`;
/// [`Sub::done`](CommandContext::done) gets it back. Contexts are those of [`Command::submit`].
pub(crate) fn send(cmd: Cmd, device: Arc<MemberDevice>, blocks: Option<KBox<Blocks>>) {
    let io = cmd.ctx.io;
    match (cmd.ctx.transport, blocks) {
        (Transport::Bio, None) => Command::submit(cmd, device, io),
        (Transport::Bio, Some(blocks)) => Command::submit_in_blocks(cmd, device, io, blocks),
    }
}

/// Sectors of a block, of which [`ReadDone`] counts.
pub(crate) const SECTORS_PER_BLOCK: u32 = 8;

/// A command that ended, as its member's books want to know it.
pub(crate) struct Ended {
    /// What it did.
    pub(crate) op: CommandOp,
    /// How it was read, if it was.
    pub(crate) read: ReadDone,
    /// Where its member noted that it entered the device.
    pub(crate) note: Note,
}

impl Ended {
    fn of(cmd: &Cmd, status: Status) -> Self {
        let sub = &cmd.ctx;
        Self {
            op: sub.io.op,
            note: sub.note,
            read: ReadDone {
                class: sub.class,
                retries: sub.retries,
                // CAST: A command is shorter than 4 GiB.
                blocks: sub.io.len.div_ceil(4096) as u32,
                queued: Micros::new(sub.queued_us),
                dispatched: Micros::new(sub.dispatched_us),
                end: match status.is_ok() {
                    true => End::Good,
                    false => End::Bad {
                        good: sub.good.unwrap_or(0) / SECTORS_PER_BLOCK,
                    },
                },
            },
        }
    }
}

impl CommandContext for Sub {
    fn done(mut cmd: Cmd, mut status: Status) {
        let (Some(array), Some(member)) = (cmd.ctx.array.take(), cmd.ctx.member.take()) else {
            // Every submitted command carries both; without them nobody waits for it.
            return;
        };
        if cmd.ctx.would_wait(status) {
            match member.refused(&array, cmd, status) {
                Ok(()) => return,
                Err(back) => (cmd, status) = (back, Status::OFFLINE),
            }
        }
        cmd.ctx.good = match status.is_ok() {
            true => None,
            // CAST: A command is shorter than 4 GiB.
            false => member.bad_place(status, cmd.good_len().map(|len| (len / 512) as u32)),
        };
        if let Some(blocks) = cmd.take_blocks() {
            member.keep_blocks(blocks);
        }
        member.completed(&array, &cmd, status);
        let ended = Ended::of(&cmd, status);
        let orphan = array.returned(cmd, status);
        member.left_device(&array, &ended, orphan);
        member.leave(&array);
    }
}
