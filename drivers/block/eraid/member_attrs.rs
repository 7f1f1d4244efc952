// SPDX-License-Identifier: GPL-2.0

//! The files of a member: `/sys/block/eraidN/eraid/dev-NAME`.

use kernel::{
    prelude::*,
    sync::{atomic::Relaxed, Arc},
};

use crate::{
    array::{Array, Cause},
    attrs::{finish, line},
    events::Event,
    kapi::{
        sysfs::{Attr, Attributes, SysfsText},
        time::now_us,
    },
    member::Member,
};
use eraid_core::{
    member::{Event as MemberEvent, MemberState, StateCommand, StateText},
    refusal::{Errno, Refusal},
    refuse,
    sitout::{self, SitOut},
    units::Micros,
};

/// A member of an array, as its directory shows it.
pub(crate) struct MemberDir {
    /// The array.
    pub(crate) array: Arc<Array>,
    /// The member.
    pub(crate) member: Arc<Member>,
}

impl Attributes for MemberDir {
    fn files() -> &'static [Attr<Self>] {
        static FILES: [Attr<MemberDir>; 12] = [
            Attr::rw(c"state", show_state, |dir, bytes| {
                finish(&dir.array, bytes, dir.set_state(bytes))
            }),
            Attr::ro(c"slot", |dir, t| {
                line(t, format_args!("{}", dir.member.place))
            }),
            Attr::ro(c"errors", |dir, t| {
                let counters = &dir.member.counters;
                line(t, format_args!("{}", counters.read_errors.load(Relaxed)))
            }),
            Attr::ro(c"write_errors", |dir, t| {
                let counters = &dir.member.counters;
                line(t, format_args!("{}", counters.write_errors.load(Relaxed)))
            }),
            Attr::ro(c"size", |dir, t| {
                line(
                    t,
                    format_args!("{}", dir.array.geometry.component().get() / 2),
                )
            }),
            Attr::ro(c"offset", |dir, t| {
                line(t, format_args!("{}", dir.member.data_start))
            }),
            Attr::ro(c"recovery_start", show_recovery_start),
            Attr::ro(c"uuid", |dir, t| {
                line(t, format_args!("{}", dir.member.uuid))
            }),
            Attr::rw(c"sit_out", show_sit_out, |dir, bytes| {
                finish(&dir.array, bytes, dir.set_sit_out(bytes))
            }),
            Attr::ro(c"sit_out_reason", |dir, t| {
                line(t, format_args!("{}", dir.sit_out().reason()))
            }),
            Attr::ro(c"latency_us", |dir, t| {
                line(
                    t,
                    format_args!("{}", dir.member.counters.read_us.load(Relaxed)),
                )
            }),
            Attr::ro(c"queue", |dir, t| {
                let (in_device, waiting) = dir.member.queued();
                let orphans = dir.member.counters.orphans.load(Relaxed);
                line(
                    t,
                    format_args!("in_device {in_device} waiting {waiting} orphans {orphans}"),
                )
            }),
        ];
        &FILES
    }
}

fn show_state(dir: &MemberDir, text: &mut SysfsText<'_>) -> Result {
    let words = StateText {
        state: dir.state(),
        blocked: false,
        write_error: dir.member.counters.write_errors.load(Relaxed) > 0,
    };
    line(text, format_args!("{words}"))
}

fn show_recovery_start(dir: &MemberDir, text: &mut SysfsText<'_>) -> Result {
    let lacked = match dir.state() {
        MemberState::Recovering => dir.array.lacked_by(dir.member.place),
        _ => None,
    };
    match lacked {
        Some((first, _)) => line(text, format_args!("{first}")),
        None => line(text, format_args!("none")),
    }
}

fn show_sit_out(dir: &MemberDir, text: &mut SysfsText<'_>) -> Result {
    let shown = dir.sit_out().shown(Micros::new(now_us()));
    line(text, format_args!("{shown}"))
}

impl MemberDir {
    fn state(&self) -> MemberState {
        self.array
            .with_slot(self.member.place, |entry| entry.state)
            .unwrap_or(MemberState::Missing)
    }

    fn sit_out(&self) -> SitOut {
        self.array
            .with_slot(self.member.place, |entry| entry.sit_out)
            .unwrap_or_default()
    }

    fn set_state(&self, bytes: &[u8]) -> Result<(), Refusal> {
        let (array, slot) = (&self.array, self.member.place);
        let command = StateCommand::parse(bytes)?;
        let geometry = &array.geometry;
        let event = command.check(
            self.state(),
            Some(slot),
            array.in_sync(),
            geometry.members(),
            geometry.parity(),
        )?;
        match event {
            MemberEvent::Remove => {
                if array.take_failed(slot).is_some() {
                    array.report(&Event::removed(&self.member));
                    // The directory goes in a job: this file is in it.
                    array.note_change();
                }
                Ok(())
            }
            _ if self.state() == MemberState::Faulty => Ok(()),
            _ if array.is_needed_to_catch_up(slot) => Err(refuse!(
                Errno::Busy,
                "state: {} cannot be failed: others are still being caught up from it",
                self.member.name()
            )),
            _ => match array.fail_member(slot, "the administrator says so", Cause::Asked) {
                true => Ok(()),
                false => Err(refuse!(
                    Errno::Busy,
                    "state: {} cannot be failed: the data is nowhere else",
                    self.member.name()
                )),
            },
        }
    }

    fn set_sit_out(&self, bytes: &[u8]) -> Result<(), Refusal> {
        let request = sitout::Request::parse(bytes)?;
        let (array, slot) = (&self.array, self.member.place);
        let sit_out = SitOut::after(request, Micros::new(now_us()));
        array.set_sit_out(slot, sit_out, "the administrator says so")
    }
}
