// SPDX-License-Identifier: GPL-2.0

//! Devices that are added to a running array: a new member for a slot without one, the member of that
//! slot, which is back, or a spare.
//!
//! Members are rebuilt, region by region, by what the map says they lack: a new one all that was ever
//! written, one that is back only what it missed. From the moment it is in its slot it gets what is
//! written where it lacks nothing, and is read there, too; the array counts on it once it lacks nothing
//! at all. What makes it a member, its superblock, is written last and by the array itself.

use kernel::{
    prelude::*,
    sync::Arc,
    time::{delay::fsleep, Delta},
};

use crate::{
    array::Array,
    create::{check_shape, clear_member},
    disk_io::{self, MemberIo, Unread},
    error::refused,
    events::Event,
    kapi::{
        device::{wait_closed, MemberDevice},
        module::uuid_gen,
        time::now_us,
    },
    registry::{Registry, Running},
    running::CLOSE_WAIT_MS,
    spares::Spare,
};
use eraid_core::{
    assembly::{rejoin, Candidate},
    control::parse_path,
    geometry::Level,
    metapage::Side,
    refusal::{Errno, Refusal},
    refuse,
    superblock::Superblock,
    units::{Sectors, Slot, Uuid},
};

/// How long the map may take to say what a new member lacks.
const MAP_WAIT_US: u64 = 5_000_000;
/// Steps of that wait.
const STEP: Delta = Delta::from_millis(10);

/// The place that a device takes.
pub(crate) struct Place {
    /// Its slot.
    pub(crate) slot: Slot,
    /// Its identity.
    pub(crate) uuid: Uuid,
    /// It holds nothing of the array, which the region map says of its slot; else it lacks what the map
    /// says.
    pub(crate) blank: bool,
    /// Where its newest superblock lies.
    pub(crate) side: Side,
    /// The slot it had as a spare.
    pub(crate) spare: Option<Slot>,
}

/// What a device is to become.
enum Role {
    Member(Place),
    Spare(Arc<Spare>),
}

/// Refuses what adds devices to arrays in modules for users: there are known ways in which that loses
/// data.
pub(crate) fn check_finished(what: &str) -> Result<(), Refusal> {
    match cfg!(eraid_unfinished) {
        true => Ok(()),
        false => Err(refuse!(
            Errno::OpNotSupp,
            "{} is not supported yet: devices cannot be added to arrays",
            what
        )),
    }
}

impl Registry {
    /// Adds a device to a running array, as a line to its `new_dev` says.
    pub(crate) fn take_new_device(&self, array: &Arc<Array>, line: &[u8]) -> Result<(), Refusal> {
        let path = parse_path("new_dev", line)?;
        check_finished("new_dev")?;
        check_takes_members(array)?;
        // Not for longer: a stop waits for this line.
        let mut io = MemberIo::for_clean_up()?;
        let added = self.add_new_device(array, path, &mut io);
        self.add_left(&mut io);
        if added.is_err() {
            // So that what was opened for nothing can be used again at once.
            wait_closed(CLOSE_WAIT_MS);
        }
        added
    }

    fn add_new_device(
        &self,
        array: &Arc<Array>,
        path: &str,
        io: &mut MemberIo,
    ) -> Result<(), Refusal> {
        let device = self.open_member(path, false, None)?;
        check_shape(&device)?;
        let superblock = superblock_of(array)?;
        check_size(&superblock, &device)?;
        let role = match find_own(array, &superblock, &device, io)? {
            Some(role) => role,
            None => prepare_blank(array, &superblock, &device, io)?,
        };
        let taken = self.seat(array, &device, &role);
        if let (Err(_), Role::Spare(spare)) = (&taken, &role) {
            array.record_spare_gone(spare.slot);
        }
        taken
    }

    /// Gives a device its place in the array, its directory and its links.
    #[inline(never)]
    fn seat(
        &self,
        array: &Arc<Array>,
        device: &Arc<MemberDevice>,
        role: &Role,
    ) -> Result<(), Refusal> {
        let mut all = self.running.lock();
        let running = all.iter_mut().find(|r| Arc::ptr_eq(&r.array, array));
        let Some(running) = running else {
            return Err(refuse!(Errno::NoDev, "the array is being stopped"));
        };
        if !running.disk.is_aligned_for(device) {
            return Err(refuse!(
                Errno::Inval,
                "{} wants memory aligned better than the array's disk asks for",
                disk_io::name(device)
            ));
        }
        let failed = |error| refused(error, "adding", disk_io::name(device));
        let claimed = running.claim.add_device(device.dev()).map_err(failed);
        let seated = claimed.and_then(|()| match role {
            Role::Member(place) => self.seat_member(running, device, place),
            Role::Spare(spare) => seat_spare(running, spare).map_err(failed),
        });
        match seated.is_ok() {
            true => array.note_change(),
            false => running.claim.remove_device(device.dev()),
        }
        seated
    }

    fn seat_member(
        &self,
        running: &mut Running,
        device: &Arc<MemberDevice>,
        place: &Place,
    ) -> Result<(), Refusal> {
        let array = running.array.clone();
        // What is still shown of the member before.
        self.forget_removed(running);
        if array.member(place.slot).is_some() {
            return Err(refuse!(Errno::Busy, "slot {} is taken", place.slot));
        }
        array.forget_device(place.slot);
        let failed = |error| refused(error, "adding", disk_io::name(device));
        let member = array.new_member(place.slot, place.uuid, device.clone());
        let member = member.map_err(failed)?;
        let shown = running
            .show_member(member.clone())
            .and_then(|()| running.watch(&member));
        let joined = shown
            .map_err(failed)
            .and_then(|()| array.join(&member, place));
        if joined.is_err() {
            running.hide_member(place.slot);
            return joined;
        }
        let what = match place.blank {
            true => "is being rebuilt",
            false => "is given what it missed",
        };
        array.report(&Event::added(&member, what));
        Ok(())
    }
}

fn seat_spare(running: &mut Running, spare: &Arc<Spare>) -> Result {
    let array = running.array.clone();
    array.spares.add(spare.clone())?;
    let name = disk_io::name(&spare.device);
    array_info!(array.name(), "{name} is a spare");
    if running.show_spares().is_err() {
        // The next look at the array tries again.
        array_warn!(array.name(), "no memory for the files of {name}");
    }
    Ok(())
}

/// Refuses arrays that cannot take a member.
fn check_takes_members(array: &Array) -> Result<(), Refusal> {
    if array.geometry.level() == Level::Raid0 {
        return Err(refuse!(
            Errno::Inval,
            "new_dev: RAID-0 has nothing to rebuild a member from"
        ));
    }
    if array.read_only {
        return Err(refuse!(Errno::RoFs, "new_dev: the array is read-only"));
    }
    Ok(())
}

/// What the array would write to its members now.
#[inline(never)]
fn superblock_of(array: &Array) -> Result<KBox<Superblock>, Refusal> {
    let mut own =
        disk_io::blank_superblock().map_err(|error| refused(error, "adding", "a device"))?;
    array.with_superblock(|superblock| Superblock::clone_from(&mut own, superblock));
    Ok(own)
}

/// The role of a device that carries a superblock of this array; `None` for any other device.
#[inline(never)]
fn find_own(
    array: &Array,
    base: &Superblock,
    device: &Arc<MemberDevice>,
    io: &mut MemberIo,
) -> Result<Option<Role>, Refusal> {
    let (superblock, side) = match disk_io::read_superblock(io, device) {
        Ok(found) => found,
        // Whatever it is, it is looked at again before anything is written.
        Err(Unread::Superblock(_)) => return Ok(None),
        Err(Unread::Device(refusal)) => return Err(refusal),
    };
    if superblock.array != array.uuid {
        return Ok(None);
    }
    let candidate = Candidate {
        name: disk_io::name(device),
        superblock: &superblock,
        size: Sectors::new(device.size_sectors()),
        read_only: device.is_read_only(),
    };
    let (slot, uuid) = (rejoin(base, &candidate)?, superblock.member());
    let role = match base.geometry.all_slots().contains(slot) {
        true => Role::Member(Place {
            slot,
            uuid,
            blank: false,
            side,
            spare: None,
        }),
        false => Role::Spare(new_spare(slot, uuid, device, side)?),
    };
    Ok(Some(role))
}

fn new_spare(
    slot: Slot,
    uuid: Uuid,
    device: &Arc<MemberDevice>,
    side: Side,
) -> Result<Arc<Spare>, Refusal> {
    Spare::new(slot, uuid, device.clone(), side)
        .map_err(|error| refused(error, "adding", disk_io::name(device)))
}

/// Prepares a device that carries nothing: for a slot that nobody is in, else as a spare.
#[inline(never)]
fn prepare_blank(
    array: &Arc<Array>,
    superblock: &Superblock,
    device: &Arc<MemberDevice>,
    io: &mut MemberIo,
) -> Result<Role, Refusal> {
    disk_io::check_blank(io, device, "clear it first, with wipefs or dd")?;
    let uuid = Uuid::from_random(uuid_gen());
    let Some(slot) = array.vacancy() else {
        return prepare_spare(array, superblock, device, uuid, io);
    };
    // First, so that no crash finds a member that is taken for the one before.
    array.begin_empty(slot);
    let deadline = now_us() + MAP_WAIT_US;
    while !array.is_emptied(slot) {
        if now_us() > deadline {
            return Err(refuse!(
                Errno::Busy,
                "the region map cannot be written: a member does not answer"
            ));
        }
        fsleep(STEP);
    }
    clear_member(io, device, superblock)?;
    Ok(Role::Member(Place {
        slot,
        uuid,
        blank: true,
        side: Side::B,
        spare: None,
    }))
}

/// Makes a spare of a device.
#[inline(never)]
fn prepare_spare(
    array: &Arc<Array>,
    superblock: &Superblock,
    device: &Arc<MemberDevice>,
    uuid: Uuid,
    io: &mut MemberIo,
) -> Result<Role, Refusal> {
    clear_member(io, device, superblock)?;
    let slot = array.record_spare(uuid).ok_or_else(|| {
        refuse!(
            Errno::TooMany,
            "new_dev: the array has no place for a spare"
        )
    })?;
    let written = superblock_of(array).and_then(|mut own| {
        own.slot = slot;
        io.write_superblock(device, &own, Side::A)?;
        new_spare(slot, uuid, device, Side::A)
    });
    match written {
        Ok(spare) => Ok(Role::Spare(spare)),
        Err(refusal) => {
            array.record_spare_gone(slot);
            Err(refusal)
        }
    }
}

/// Refuses a device that does not hold what each member does, or whose blocks are too large.
fn check_size(superblock: &Superblock, device: &MemberDevice) -> Result<(), Refusal> {
    let (name, array) = (disk_io::name(device), superblock.name.as_str());
    let needed = superblock.front.size_for(superblock.geometry.component());
    let size = Sectors::new(device.size_sectors());
    if size < needed {
        return Err(refuse!(
            Errno::NoSpc,
            "{name} has {size} sectors, a member of {array} needs {needed}"
        ));
    }
    let (own, block) = (device.logical_block_size(), superblock.logical_block_size);
    if own > block {
        return Err(refuse!(
            Errno::Inval,
            "{name} has logical blocks of {own} bytes, {array} has {block}"
        ));
    }
    Ok(())
}
