// SPDX-License-Identifier: GPL-2.0

//! What an administrator is told: one trace event, one log line, and where it matters a uevent.

use kernel::{prelude::*, sync::Arc};

use crate::{
    array::Array,
    kapi::{status::Status, trace},
    member::Member,
};
use eraid_core::text::TextBuf;

/// Something that happened to an array or to one of its members.
pub(crate) struct Event<'a> {
    class: &'static str,
    member: Option<&'a Arc<Member>>,
    reason: TextBuf<64>,
    value: u64,
    /// For `ERAID_EVENT=` of a uevent, when the event is worth one.
    uevent: Option<&'static CStr>,
}

impl<'a> Event<'a> {
    fn of_member(class: &'static str, member: &'a Arc<Member>, reason: TextBuf<64>) -> Self {
        Self {
            class,
            member: Some(member),
            reason,
            value: 0,
            uevent: None,
        }
    }

    /// A command to a member failed; `value` is the sector on the member.
    pub(crate) fn io(member: &'a Arc<Member>, op: &str, sector: u64, status: Status) -> Self {
        let reason = TextBuf::format(format_args!("{op} failed: {}", status.as_str()));
        Self {
            value: sector,
            ..Self::of_member("ereport.block.eraid.io", member, reason)
        }
    }

    /// A block of a member was repaired, or was not; `value` is its sector on the member.
    pub(crate) fn repair(member: &'a Arc<Member>, sector: u64, what: &str) -> Self {
        let reason = TextBuf::format(format_args!("repair: {what}"));
        Self {
            value: sector,
            ..Self::of_member("ereport.block.eraid.repair", member, reason)
        }
    }

    /// Reads of a member that gave no answer are answered by the others; `value` is their number.
    pub(crate) fn stalled(member: &'a Arc<Member>, reads: u64) -> Self {
        let reason = TextBuf::format(format_args!("reads are answered by the other members"));
        Self {
            value: reads,
            ..Self::of_member("ereport.block.eraid.delay", member, reason)
        }
    }

    /// A member failed.
    pub(crate) fn failed(member: &'a Arc<Member>, reason: &str) -> Self {
        Self {
            uevent: Some(c"ERAID_EVENT=member_failed"),
            ..Self::of_member(
                "ereport.block.eraid.member",
                member,
                TextBuf::format(format_args!("failed: {reason}")),
            )
        }
    }

    /// A device was added to the array.
    pub(crate) fn added(member: &'a Arc<Member>, what: &str) -> Self {
        Self {
            uevent: Some(c"ERAID_EVENT=member_added"),
            ..Self::of_member(
                "ereport.block.eraid.member",
                member,
                TextBuf::format(format_args!("added: {what}")),
            )
        }
    }

    /// The rebuild of a member is complete.
    pub(crate) fn rebuilt(member: &'a Arc<Member>) -> Self {
        Self {
            uevent: Some(c"ERAID_EVENT=member_rebuilt"),
            ..Self::of_member(
                "ereport.block.eraid.member",
                member,
                TextBuf::format(format_args!("rebuilt: it is in sync")),
            )
        }
    }

    /// A failed member was removed from the array.
    pub(crate) fn removed(member: &'a Arc<Member>) -> Self {
        Self {
            uevent: Some(c"ERAID_EVENT=member_removed"),
            ..Self::of_member(
                "ereport.block.eraid.member",
                member,
                TextBuf::format(format_args!("removed")),
            )
        }
    }

    /// A member sits out.
    pub(crate) fn sit_out(member: &'a Arc<Member>, reason: &str) -> Self {
        Self {
            uevent: Some(c"ERAID_EVENT=sit_out_begin"),
            ..Self::of_member(
                "ereport.block.eraid.delay",
                member,
                TextBuf::format(format_args!("sits out: {reason}")),
            )
        }
    }

    /// A member is read again.
    pub(crate) fn sit_out_end(member: &'a Arc<Member>, reason: &str) -> Self {
        Self {
            uevent: Some(c"ERAID_EVENT=sit_out_end"),
            ..Self::of_member(
                "ereport.block.eraid.sitout_end",
                member,
                TextBuf::format(format_args!("is read again: {reason}")),
            )
        }
    }
}

impl Array {
    /// Posts an event. Any context; the uevent follows from task context.
    pub(crate) fn report(&self, event: &Event<'_>) {
        let name = event.member.map_or("", |member| member.name());
        trace::trace_ereport(&trace::Ereport {
            class: event.class,
            array: self.name(),
            member: name,
            slot: event.member.map_or(-1, |m| i32::from(m.place.get())),
            reason: event.reason.as_str(),
            value: event.value,
            peer: 0,
            fence: 0,
            windows: 0,
            duration_us: 0,
        });
        // What happens once in a while is never lost among errors that come in thousands.
        match event.uevent {
            Some(text) => {
                member_warn!(self.name(), name, "{}", event.reason.as_str());
                self.queue_uevent(text, event.member.cloned());
            }
            None => member_warn_ratelimited!(self.name(), name, "{}", event.reason.as_str()),
        }
    }
}
