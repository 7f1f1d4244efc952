// SPDX-License-Identifier: GPL-2.0

//! Claims: which identities, names, disk numbers and devices are taken, by arrays and by lines that
//! make or end them.
//!
//! What a line to a control file needs is claimed before anything is written, and kept for the life
//! of the array. So no lock is held while members are opened, read and written: one that does not
//! answer holds up the lines that want the same array, and no others.
//!
//! `list` is a leaf lock, held for short looks only.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{Arc, Mutex},
};

use crate::{error::refused, kapi::completion::Completion};
use eraid_core::{
    control::DEV_MAX,
    refusal::{Errno, Refusal},
    refuse,
    superblock::ArrayName,
    text::TextBuf,
    units::Uuid,
};

/// What an array, or a line that makes or ends one, has taken.
struct Entry {
    uuid: Uuid,
    /// Name and N of `eraidN`, once the array is to be started.
    label: Option<(ArrayName, u32)>,
    /// Device numbers of the members.
    devices: KVec<u32>,
    /// The array runs; else a line is at work on it.
    running: bool,
    /// That line is done.
    done: Arc<Completion>,
}

/// See the [module description](self).
#[pin_data]
pub(crate) struct Claims {
    #[pin]
    list: Mutex<KVec<Entry>>,
}

/// The right to an identity, and what was claimed with it. Given up when dropped.
pub(crate) struct Claim {
    claims: Arc<Claims>,
    uuid: Uuid,
}

impl Claims {
    /// Nothing is claimed yet.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                list <- new_mutex!(KVec::new(), "eraid::claims"),
            }),
            GFP_KERNEL,
        )
    }

    /// Claims the identity of an array; waits for a line that is at work on it. Task context.
    ///
    /// # Errors
    ///
    /// * `EBUSY`: the array runs;
    /// * `EINTR`: killed while waiting;
    /// * `ENOMEM`.
    pub(crate) fn claim(self: &Arc<Self>, uuid: Uuid) -> Result<Claim, Refusal> {
        let no_memory = |error: Error| refused(error, "starting", "the array");
        let done = Arc::pin_init(Completion::new(), GFP_KERNEL).map_err(no_memory)?;
        loop {
            let other = {
                let mut list = self.list.lock();
                match list.iter().find(|entry| entry.uuid == uuid) {
                    Some(entry) if entry.running => {
                        return Err(refuse!(
                            Errno::Busy,
                            "the array {} ({uuid}) runs already",
                            entry.name()
                        ))
                    }
                    Some(entry) => entry.done.clone(),
                    None => {
                        let entry = Entry {
                            uuid,
                            label: None,
                            devices: KVec::new(),
                            running: false,
                            done,
                        };
                        list.push(entry, GFP_KERNEL)
                            .map_err(|_| no_memory(ENOMEM))?;
                        return Ok(Claim {
                            claims: self.clone(),
                            uuid,
                        });
                    }
                }
            };
            other
                .wait_killable()
                .map_err(|error| refused(error, "waiting for", "another line for the array"))?;
        }
    }

    /// Says for what array a device is taken, for a message that starts with the device.
    pub(crate) fn user_of(&self, dev: u32) -> Option<TextBuf<120>> {
        let list = self.list.lock();
        let entry = list.iter().find(|entry| entry.devices.contains(&dev))?;
        Some(match (entry.running, entry.label) {
            (true, Some((name, number))) => TextBuf::format(format_args!(
                "is a member of array '{}' (eraid{number})",
                name.as_str()
            )),
            _ => TextBuf::format(format_args!(
                "is taken by another line, for array '{}'",
                entry.name()
            )),
        })
    }
}

impl Entry {
    fn name(&self) -> &str {
        self.label.as_ref().map_or("?", |(name, _)| name.as_str())
    }
}

impl Claim {
    /// The identity.
    pub(crate) fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// Claims the name, and the N of `eraidN` asked for or the lowest that is free, which is
    /// returned.
    ///
    /// # Errors
    ///
    /// `EEXIST` when the name or the number is taken; `E2BIG` when all numbers are.
    pub(crate) fn label(&self, name: ArrayName, number: Option<u32>) -> Result<u32, Refusal> {
        let mut list = self.claims.list.lock();
        let label = |entry: &Entry| entry.label;
        if let Some(other) = list
            .iter()
            .find(|entry| label(entry).is_some_and(|(taken, _)| taken == name))
        {
            return Err(match other.running {
                true => refuse!(Errno::Exist, "an array {} runs already", name.as_str()),
                false => refuse!(
                    Errno::Exist,
                    "another line is making or stopping an array {}",
                    name.as_str()
                ),
            });
        }
        let taken = |number: u32| {
            let mut labels = list.iter().filter_map(label);
            labels.any(|(_, taken)| taken == number)
        };
        let number = match number {
            Some(number) if taken(number) => {
                return Err(refuse!(Errno::Exist, "eraid{number} exists"))
            }
            Some(number) => number,
            None => (0..=DEV_MAX)
                .find(|number| !taken(*number))
                .ok_or_else(|| refuse!(Errno::TooMany, "there are too many arrays"))?,
        };
        if let Some(own) = list.iter_mut().find(|entry| entry.uuid == self.uuid) {
            own.label = Some((name, number));
        }
        Ok(number)
    }

    /// Adds a device, for [`Claims::user_of`].
    pub(crate) fn add_device(&self, dev: u32) -> Result {
        self.with(|entry| entry.devices.push(dev, GFP_KERNEL))
            .unwrap_or(Ok(()))?;
        Ok(())
    }

    /// The array has let go of a device.
    pub(crate) fn remove_device(&self, dev: u32) {
        self.with(|entry| entry.devices.retain(|own| *own != dev));
    }

    /// The array runs: who waits for the line that made it goes on.
    pub(crate) fn set_running(&self) {
        self.with(|entry| {
            entry.running = true;
            entry.done.complete_all();
        });
    }

    /// A line ends the array.
    pub(crate) fn set_ending(&self) {
        self.with(|entry| {
            entry.running = false;
            // Whoever still waits from before sleeps on, until the claim is given up.
            entry.done.reinit();
        });
    }

    fn with<R>(&self, change: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        let mut list = self.claims.list.lock();
        let own = list.iter_mut().find(|entry| entry.uuid == self.uuid);
        own.map(change)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut list = self.claims.list.lock();
        let own = list.iter().position(|entry| entry.uuid == self.uuid);
        if let Some(entry) = own.and_then(|index| list.remove(index).ok()) {
            drop(list);
            entry.done.complete_all();
        }
    }
}
