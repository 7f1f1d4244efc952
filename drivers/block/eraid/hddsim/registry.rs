// SPDX-License-Identifier: GPL-2.0

//! All drives of the module: making and removing them, and a loss of power of all at once.

use kernel::{
    new_mutex,
    prelude::*,
    str::CString,
    sync::{Arc, Mutex},
};

use crate::{
    drive::{Drive, SimDisk},
    error::refused,
    kapi::{
        class::ControlClass,
        device::lookup,
        disk::{Disk, DiskConfig},
        limits::{Limits, LimitsConfig},
        sysfs::Kobject,
        tagset::TagSet,
    },
    refusals::Refusals,
};
use eraid_hddsim_model::{
    control::{parse_create, parse_name, parse_seed},
    params::{Key, Params},
    refusal::{Errno, Refusal},
    refuse,
    units::{BLOCK_SIZE, SECTOR_SIZE},
};

/// The largest request, in sectors: 4 MiB.
const MAX_SECTORS: u32 = 8192;
/// Most drives.
const DRIVES_MAX: usize = 256;

/// A drive as user space sees it.
struct Entry {
    files: Option<Kobject<SimDisk>>,
    /// The class, once there is a link to the disk in it.
    class: Option<Arc<ControlClass>>,
    disk: Disk<SimDisk>,
    drive: Arc<SimDisk>,
}

/// See the [module description](self).
#[pin_data]
pub(crate) struct Registry {
    class: Arc<ControlClass>,
    /// Where refusals are noted.
    pub(crate) refusals: Arc<Refusals>,
    /// Held while drives are made and removed. The files of a drive do not take it.
    #[pin]
    drives: Mutex<KVec<Entry>>,
}

impl Registry {
    /// No drives.
    pub(crate) fn new(class: Arc<ControlClass>) -> Result<Arc<Self>> {
        let refusals = Refusals::new()?;
        Arc::pin_init(
            pin_init!(Self {
                class,
                refusals,
                drives <- new_mutex!(KVec::new(), "eraid_hddsim::drives"),
            }),
            GFP_KERNEL,
        )
    }

    /// Makes a drive as a line to `create` says.
    pub(crate) fn create(&self, line: &[u8]) -> Result<(), Refusal> {
        let create = parse_create(line)?;
        let mut drives = self.drives.lock();
        if drives.len() >= DRIVES_MAX {
            return Err(refuse!(
                Errno::TooMany,
                "there are {DRIVES_MAX} drives already"
            ));
        }
        let known = drives.iter().any(|entry| entry.drive.name() == create.name);
        let path = CString::try_from_fmt(fmt!("/dev/{}", create.name));
        // Also what is no block device would be in the way of the node.
        let taken = path.is_ok_and(|path| lookup(&path) != Err(ENOENT));
        if known || taken {
            return Err(refuse!(
                Errno::Exist,
                "there is a disk {} already",
                create.name
            ));
        }
        let made = drives.reserve(1, GFP_KERNEL).map_err(Error::from);
        let made = made.and_then(|()| self.add(create.name, create.params));
        let entry = made.map_err(|error| refused(error, "making", create.name))?;
        let name = create.name;
        array_info!(
            name,
            "{} bytes, {} rpm",
            create.params.get(Key::Size),
            create.params.get(Key::Rpm)
        );
        let _ = drives.push_within_capacity(entry);
        Ok(())
    }

    /// Makes a drive with its disk and files.
    fn add(&self, name: &str, params: Params) -> Result<Entry> {
        let name = CString::try_from_fmt(fmt!("{name}"))?;
        let drive = Drive::new(&name, params, self.refusals.clone())?;
        // CAST: 1 to 64.
        let tags = TagSet::new(params.get(Key::QueueDepth) as u32, 1)?;
        let config = DiskConfig {
            name: &name,
            limits: &limits(&params),
            capacity: params.get(Key::Size) / u64::from(SECTOR_SIZE),
            read_only: false,
        };
        let disk = Disk::add(config, tags, drive.clone())?;
        let mut entry = Entry {
            files: None,
            class: None,
            disk,
            drive,
        };
        let directory = entry.disk.kobject();
        entry.files = Some(Kobject::add(directory, c"hddsim", entry.drive.clone())?);
        self.class.link(&name, entry.disk.kobject())?;
        entry.class = Some(self.class.clone());
        Ok(entry)
    }

    /// Removes the drive that a line to `remove` names.
    pub(crate) fn remove(&self, line: &[u8]) -> Result<(), Refusal> {
        let name = parse_name("remove", line)?;
        let mut drives = self.drives.lock();
        let index = drives.iter().position(|entry| entry.drive.name() == name);
        let entry = index.and_then(|index| drives.get(index));
        let entry = entry.ok_or_else(|| refuse!(Errno::NoDev, "there is no drive {name}"))?;
        entry
            .disk
            .begin_stop()
            .map_err(|_| refuse!(Errno::Busy, "{name} is in use"))?;
        drop(index.map(|index| drives.remove(index)));
        Ok(())
    }

    /// All drives lose power at one moment: none does anything after the first has lost it.
    pub(crate) fn power_cut(&self, line: &[u8]) -> Result<(), Refusal> {
        let seed = parse_seed("power_cut", line)?;
        let drives = self.drives.lock();
        for entry in drives.iter() {
            entry.drive.hang(true);
        }
        for entry in drives.iter() {
            entry.drive.power_off(seed);
        }
        for entry in drives.iter() {
            entry.drive.hang(false);
        }
        Ok(())
    }
}

impl Drop for Entry {
    /// Deletes the disk, whatever its drive was told to do: what is under way fails.
    fn drop(&mut self) {
        if let Some(class) = &self.class {
            class.unlink(&self.drive.name);
        }
        self.files = None;
        self.drive.power_off(0);
        self.drive.hang(false);
    }
}

/// The limits of a drive's disk: one with physical sectors of 4 KiB.
fn limits(params: &Params) -> Limits {
    Limits::new(LimitsConfig {
        logical_block_size: params.logical_block_size(),
        physical_block_size: BLOCK_SIZE,
        io_min: BLOCK_SIZE,
        io_opt: 0,
        max_hw_sectors: MAX_SECTORS,
        max_write_zeroes_sectors: 0,
        discard: None,
        partial_stripes_expensive: false,
        write_cache: params.is_on(Key::WriteCache),
        rotational: true,
    })
}
