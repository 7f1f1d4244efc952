// SPDX-License-Identifier: GPL-2.0

//! Spares: devices of an array that wait to take the slot of a member that is missing or fails.
//!
//! A device is prepared when it becomes a spare, so that it takes over without another command of its
//! own. The list is the array's; its directories, and what becomes of spares, are seen to by the look at
//! the array ([`Registry::look_after_spares`]), once a second and after every change.
//!
//! Lock order: the registry's `running`, then `list`.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, Mutex,
    },
};

use crate::{
    array::Array,
    attrs::{finish, line},
    disk_io::{self, c_name},
    error::refused,
    events::Event,
    kapi::{
        device::MemberDevice,
        sysfs::{Attr, Attributes, Kobject},
    },
    newdev::Place,
    registry::{Registry, Running},
    running::Escaped,
};
use eraid_core::{
    member::StateCommand,
    metapage::Side,
    refusal::{Errno, Refusal},
    refuse,
    units::{Slot, Uuid},
};

/// A spare.
pub(crate) struct Spare {
    /// Its slot, behind those of the members.
    pub(crate) slot: Slot,
    /// Its identity.
    pub(crate) uuid: Uuid,
    /// The block device.
    pub(crate) device: Arc<MemberDevice>,
    /// Where its newest superblock lies.
    pub(crate) side: Side,
    /// It is to be let go of.
    leaving: Atomic<bool>,
}

impl Spare {
    /// A spare whose device is prepared and carries a superblock. May sleep.
    pub(crate) fn new(
        slot: Slot,
        uuid: Uuid,
        device: Arc<MemberDevice>,
        side: Side,
    ) -> Result<Arc<Self>> {
        let spare = Self {
            slot,
            uuid,
            device,
            side,
            leaving: Atomic::new(false),
        };
        Ok(Arc::new(spare, GFP_KERNEL)?)
    }

    fn name(&self) -> &str {
        disk_io::name(&self.device)
    }
}

/// The spares of an array.
#[pin_data]
pub(crate) struct Spares {
    #[pin]
    list: Mutex<KVec<Arc<Spare>>>,
}

impl Spares {
    pub(crate) fn new(spares: KVec<Arc<Spare>>) -> impl PinInit<Self> {
        pin_init!(Self {
            list <- new_mutex!(spares, "eraid::spares"),
        })
    }

    /// Adds one, unless there is one in its slot already.
    pub(crate) fn add(&self, spare: Arc<Spare>) -> Result {
        let mut list = self.list.lock();
        if list.iter().any(|other| other.slot == spare.slot) {
            return Err(EEXIST);
        }
        Ok(list.push(spare, GFP_KERNEL)?)
    }

    /// Runs `look` on all of them.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&[Arc<Spare>]) -> R) -> R {
        look(&self.list.lock())
    }

    /// Takes them all out: the array is let go of.
    pub(crate) fn take_all(&self) -> KVec<Arc<Spare>> {
        core::mem::take(&mut *self.list.lock())
    }

    fn remove(&self, spare: &Arc<Spare>) {
        let mut list = self.list.lock();
        list.retain(|other| !Arc::ptr_eq(other, spare));
    }

    /// One for which `wanted` holds.
    fn find(&self, wanted: impl Fn(&Spare) -> bool) -> Option<Arc<Spare>> {
        let list = self.list.lock();
        let found = list.iter().find(|spare| wanted(spare)).cloned();
        found
    }
}

/// A spare as user space sees it.
pub(crate) struct ShownSpare {
    directory: Kobject<SpareDir>,
    spare: Arc<Spare>,
}

/// A spare of an array, as its directory shows it.
pub(crate) struct SpareDir {
    array: Arc<Array>,
    spare: Arc<Spare>,
}

impl Attributes for SpareDir {
    fn files() -> &'static [Attr<Self>] {
        static FILES: [Attr<SpareDir>; 3] = [
            Attr::rw(
                c"state",
                |_, t| line(t, format_args!("spare")),
                |dir, bytes| finish(&dir.array, bytes, dir.set_state(bytes)),
            ),
            Attr::ro(c"slot", |_, t| line(t, format_args!("none"))),
            Attr::ro(c"uuid", |dir, t| {
                line(t, format_args!("{}", dir.spare.uuid))
            }),
        ];
        &FILES
    }
}

impl SpareDir {
    fn set_state(&self, bytes: &[u8]) -> Result<(), Refusal> {
        match StateCommand::parse(bytes)? {
            StateCommand::Remove => {
                self.spare.leaving.store(true, Relaxed);
                // The directory goes in a job: this file is in it.
                self.array.note_change();
                Ok(())
            }
            StateCommand::Faulty => Err(refuse!(
                Errno::Inval,
                "state: a spare holds nothing that could fail; remove takes it out"
            )),
        }
    }
}

impl Running {
    /// Makes the directories of spares that have none, and takes away those of spares that left.
    pub(crate) fn show_spares(&mut self) -> Result {
        let array = self.array.clone();
        while let Some(index) = self.spares.iter().position(|shown| {
            let gone =
                |all: &[Arc<Spare>]| !all.iter().any(|spare| Arc::ptr_eq(spare, &shown.spare));
            array.spares.with(gone)
        }) {
            let shown = self.spares.remove(index).map_err(|_| EINVAL)?;
            self.disk.unlink_member(&shown.spare.device);
            drop(shown.directory);
        }
        while let Some(spare) = array.spares.find(|spare| {
            let mut shown = self.spares.iter();
            !shown.any(|shown| shown.spare.slot == spare.slot)
        }) {
            self.show_spare(spare)?;
        }
        Ok(())
    }

    fn show_spare(&mut self, spare: Arc<Spare>) -> Result {
        let directory = self.directory.as_ref().ok_or(ENODEV)?;
        self.spares.reserve(1, GFP_KERNEL)?;
        let name = c_name(format_args!("dev-{}", Escaped(spare.name())))?;
        let data = SpareDir {
            array: self.array.clone(),
            spare: spare.clone(),
        };
        let own = Kobject::add(directory.kobject(), &name, Arc::new(data, GFP_KERNEL)?)?;
        own.link(c"block", spare.device.kobject())?;
        self.disk.link_member(spare.device.clone())?;
        let shown = ShownSpare {
            directory: own,
            spare,
        };
        // There is room.
        let _ = self.spares.push_within_capacity(shown);
        Ok(())
    }
}

impl Registry {
    /// Sees to spares that are to leave, and to slots that a spare can take. Under `running`.
    pub(crate) fn look_after_spares(&self, running: &mut Running) {
        let array = running.array.clone();
        while let Some(spare) = array.spares.find(|spare| spare.leaving.load(Relaxed)) {
            array.spares.remove(&spare);
            array.record_spare_gone(spare.slot);
            running.claim.remove_device(spare.device.dev());
            array_info!(array.name(), "{} is no spare any more", spare.name());
        }
        self.fill_slot(running);
        if running.show_spares().is_err() {
            // The next look tries again.
            array_warn_ratelimited!(array.name(), "no memory for the files of a spare");
        }
    }

    /// Gives the first slot without a live member to a spare. A failed member that is still in it is
    /// removed, as if that had been written to its state.
    fn fill_slot(&self, running: &mut Running) {
        let array = running.array.clone();
        let Some(slot) = array.missing().first() else {
            return;
        };
        let Some(spare) = array.spares.find(|_| true) else {
            return;
        };
        if array.read_only || array.is_stopping() || array.is_broken() {
            return;
        }
        if let Some(failed) = array.take_failed(slot) {
            array.report(&Event::removed(&failed));
        }
        self.forget_removed(running);
        // As for any new member: first the map says what it lacks. When it does is seen at the next look.
        array.begin_empty(slot);
        if !array.is_emptied(slot) {
            return;
        }
        if let Err(refusal) = self.take_over(running, &spare, slot) {
            array_warn_ratelimited!(
                array.name(),
                "{} does not take over: {}",
                spare.name(),
                refusal.as_str()
            );
        }
    }

    #[inline(never)]
    fn take_over(
        &self,
        running: &mut Running,
        spare: &Arc<Spare>,
        slot: Slot,
    ) -> Result<(), Refusal> {
        let array = running.array.clone();
        let place = Place {
            slot,
            uuid: spare.uuid,
            blank: true,
            side: spare.side,
            spare: Some(spare.slot),
        };
        let member = array
            .new_member(slot, spare.uuid, spare.device.clone())
            .map_err(|error| refused(error, "adding", spare.name()))?;
        array.forget_device(slot);
        array.join(&member, &place)?;
        array.spares.remove(spare);
        // Its directory goes, and one of a member of the same name comes.
        let shown = running
            .show_spares()
            .and_then(|()| running.show_member(member.clone()))
            .and_then(|()| running.watch(&member));
        if shown.is_err() {
            array_warn!(array.name(), "no memory for the files of {}", member.name());
        }
        array.report(&Event::added(&member, "a spare takes over"));
        array.note_change();
        Ok(())
    }
}
