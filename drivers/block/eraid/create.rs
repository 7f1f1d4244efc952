// SPDX-License-Identifier: GPL-2.0

//! Creating arrays: what is written to the members before the array starts.

use kernel::{prelude::*, sync::Arc};

use crate::{
    array::{Array, Parts},
    claims::Claim,
    disk_io::{self, MemberIo},
    error::refused,
    kapi::{crc::crc32c, device::MemberDevice, module::uuid_gen},
    member::Member,
    newdev::check_finished,
    registry::Registry,
    spares::Spare,
};
use eraid_core::{
    badblocks,
    control::{parse_create, Create, MemberSpec},
    geometry::{Geometry, Level},
    layout::{superblock as superblock_at, FrontLayout},
    metapage::{PageId, Side},
    refusal::{Errno, Refusal},
    refuse,
    region::RegionState,
    regionmap::{self, Region, Regions},
    superblock::{ArrayName, Policy, SlotRecord, SlotState, Superblock},
    units::{Generation, Sectors, Slot, SlotSet, Uuid, MAX_SLOTS},
};

/// What is zeroed at the start of a member, up to superblock B, and at its end, where nothing of the
/// array lies: all places where signatures are known to be.
const HEAD_BYTES: usize = 1 << 20;
const TAIL_BYTES: usize = 512 << 10;
/// Generation of all metadata of a new array.
const FIRST: Generation = Generation::new(1);
/// Pages of the region map that a new array uses at most. Writes anywhere then come back to every
/// region before it is marked as clean.
const MAP_PAGES: u32 = 1;
/// Largest logical block size of a member.
const BLOCK_MAX: u32 = 4096;

/// The devices of a new array, by slot.
type Devices = KVec<Option<Arc<MemberDevice>>>;

impl Registry {
    /// Creates and starts an array as a line to `create` says.
    pub(crate) fn create(self: &Arc<Self>, line: &[u8]) -> Result<(), Refusal> {
        let create = parse_create(line)?;
        let name = ArrayName::new(create.name)
            .ok_or_else(|| refuse!(Errno::Inval, "{} is no name for an array", create.name))?;
        let uuid = Uuid::from_random(uuid_gen());
        let claim = self.claims.claim(uuid)?;
        let number = claim.label(name, create.dev)?;
        let mut io = MemberIo::new()?;
        let created = self.create_claimed(&create, name, number, claim, &mut io);
        self.add_left(&mut io);
        created
    }

    fn create_claimed(
        self: &Arc<Self>,
        create: &Create<'_>,
        name: ArrayName,
        number: u32,
        claim: Claim,
        io: &mut MemberIo,
    ) -> Result<(), Refusal> {
        let failed = |error| refused(error, "creating", create.name);
        let devices = self.open_members(create, &claim, io)?;
        let spares = self.open_spares(create, &claim, &devices, io)?;
        let superblock = describe(create, claim.uuid(), name, &devices, &spares)?;
        let block = superblock.logical_block_size;
        let regions = first_regions(&superblock, create.assume_clean);
        // All that may fail for other reasons than the members comes before the first write to them.
        let template = disk_io::clone_superblock(&superblock).map_err(failed)?;
        let mut own = disk_io::clone_superblock(&superblock).map_err(failed)?;
        let mut undo = MemberIo::for_clean_up()?;
        let parts = self.parts_of_new(superblock, &devices, &spares, regions, number)?;
        let array = Array::new(parts).map_err(failed)?;
        let started = format_members(io, &devices, &spares, &template, &mut own, regions)
            .and_then(|()| self.start(array, block, number, claim));
        if started.is_ok() {
            tell_left_over(&template, &devices);
        } else {
            unformat(&mut undo, &devices, io);
            unformat(&mut undo, &spares, io);
            self.add_left(&mut undo);
        }
        started
    }

    /// Opens and checks all members.
    #[inline(never)]
    fn open_members(
        &self,
        create: &Create<'_>,
        claim: &Claim,
        io: &mut MemberIo,
    ) -> Result<Devices, Refusal> {
        let mut devices: Devices = KVec::new();
        for spec in create.members.iter() {
            let device = match spec {
                MemberSpec::Missing => None,
                MemberSpec::Path(path) => {
                    let opened = devices.iter().flatten();
                    Some(self.open_new(path, create, claim, opened, io)?)
                }
            };
            devices
                .push(device, GFP_KERNEL)
                .map_err(|_| refused(ENOMEM, "opening", "the members"))?;
        }
        Ok(devices)
    }

    /// Opens and checks all spares, after the members.
    #[inline(never)]
    fn open_spares(
        &self,
        create: &Create<'_>,
        claim: &Claim,
        members: &Devices,
        io: &mut MemberIo,
    ) -> Result<Devices, Refusal> {
        if create.spares.is_some() {
            check_finished("spares=")?;
        }
        let mut devices: Devices = KVec::new();
        for spec in create.spares.iter().flat_map(|spares| spares.iter()) {
            let MemberSpec::Path(path) = spec else {
                continue;
            };
            let opened = Iterator::chain(members.iter(), &devices).flatten();
            let device = self.open_new(path, create, claim, opened, io)?;
            devices
                .push(Some(device), GFP_KERNEL)
                .map_err(|_| refused(ENOMEM, "opening", "the spares"))?;
        }
        Ok(devices)
    }

    /// Opens and checks a device for a new array; `opened` are those it has already.
    fn open_new<'a>(
        &self,
        path: &str,
        create: &Create<'_>,
        claim: &Claim,
        opened: impl IntoIterator<Item = &'a Arc<MemberDevice>>,
        io: &mut MemberIo,
    ) -> Result<Arc<MemberDevice>, Refusal> {
        let device = self.open_member(path, false, opened)?;
        claim
            .add_device(device.dev())
            .map_err(|error| refused(error, "opening", path))?;
        check_shape(&device)?;
        if !create.force {
            disk_io::check_blank(io, &device, "force=1 overwrites it")?;
        }
        Ok(device)
    }

    #[inline(never)]
    fn parts_of_new(
        self: &Arc<Self>,
        superblock: KBox<Superblock>,
        devices: &Devices,
        spares: &Devices,
        region: Region,
        number: u32,
    ) -> Result<KBox<Parts>, Refusal> {
        let make = || -> Result<KBox<Parts>> {
            let mut members = KVec::with_capacity(devices.len(), GFP_KERNEL)?;
            for (device, slot) in devices.iter().zip(superblock.geometry.all_slots().iter()) {
                let member = match device {
                    Some(device) => Some(Member::of(&superblock, slot, device.clone())?),
                    None => None,
                };
                members.push(member, GFP_KERNEL)?;
            }
            let mut waiting = KVec::with_capacity(spares.len(), GFP_KERNEL)?;
            for (device, slot) in spares.iter().zip(spare_slots(&superblock.geometry)) {
                if let Some(device) = device {
                    let uuid = superblock.record(slot).uuid;
                    let side = Side::of(FIRST.next());
                    waiting.push(Spare::new(slot, uuid, device.clone(), side)?, GFP_KERNEL)?;
                }
            }
            let mut regions = KVec::new();
            if superblock.policy == Policy::Bitmap {
                for _ in 0..superblock.regions.count() {
                    regions.push(RegionState::loaded(region), GFP_KERNEL)?;
                }
            }
            let pages = superblock.regions.pages() as usize;
            let map_generations = KVec::from_elem(FIRST, pages, GFP_KERNEL)?;
            let parts = Parts {
                superblock,
                members,
                spares: waiting,
                regions,
                map_generations,
                read_only: false,
                sides: [Side::of(FIRST.next()); 64],
                owner: self.clone(),
                number,
            };
            Ok(KBox::new(parts, GFP_KERNEL)?)
        };
        make().map_err(|error| refused(error, "starting", "the array"))
    }
}

impl Member {
    /// The member of a slot, as the superblock describes it.
    pub(crate) fn of(
        superblock: &Superblock,
        slot: Slot,
        device: Arc<MemberDevice>,
    ) -> Result<Arc<Self>> {
        let uuid = superblock.record(slot).uuid;
        let commands = crate::array::commands_for(superblock.geometry.members());
        Member::new(slot, uuid, device, superblock.front.data.get(), commands)
    }
}

/// Refuses a device that is too small, or whose blocks are too large.
pub(crate) fn check_shape(device: &MemberDevice) -> Result<(), Refusal> {
    FrontLayout::for_member(Sectors::new(device.size_sectors())).map_err(|refusal| {
        refuse!(
            refusal.errno,
            "{}: {}",
            disk_io::name(device),
            refusal.as_str()
        )
    })?;
    let block = device.logical_block_size();
    if block > BLOCK_MAX {
        return Err(refuse!(
            Errno::Inval,
            "{} has logical blocks of {block} bytes, at most {BLOCK_MAX} are supported",
            disk_io::name(device)
        ));
    }
    Ok(())
}

/// The superblock of a new array, as it is to be when it starts.
#[inline(never)]
fn describe(
    create: &Create<'_>,
    uuid: Uuid,
    name: ArrayName,
    devices: &Devices,
    spares: &Devices,
) -> Result<KBox<Superblock>, Refusal> {
    let present = || Iterator::chain(devices.iter(), spares).flatten();
    let sizes = present().map(|device| Sectors::new(device.size_sectors()));
    let smallest = sizes
        .min()
        .ok_or_else(|| refuse!(Errno::Inval, "an array needs members"))?;
    let block = present().map(|device| device.logical_block_size()).max();
    let block = block.unwrap_or(512);
    let front = FrontLayout::for_member(smallest)?;
    let count = create.members.count();
    let geometry = Geometry::new(create.level, count, create.chunk, front.component(smallest))?;
    if create.members.missing() > geometry.parity() {
        return Err(refuse!(
            Errno::Inval,
            "{} of {count} members missing, {} can do without {}",
            create.members.missing(),
            create.level.as_str(),
            geometry.parity()
        ));
    }
    let mut superblock =
        disk_io::blank_superblock().map_err(|error| refused(error, "creating", create.name))?;
    superblock.array = uuid;
    superblock.name = name;
    superblock.generation = FIRST;
    superblock.geometry = geometry;
    superblock.logical_block_size = block;
    superblock.policy = Policy::of(create.level);
    superblock.active = true;
    superblock.front = front;
    superblock.regions = Regions::smallest(&geometry, front.map, MAP_PAGES)
        .ok_or_else(|| refuse!(Errno::FBig, "the members are too large"))?;
    let generation = superblock.generation;
    for (record, device) in superblock.slots.iter_mut().zip(devices) {
        *record = SlotRecord {
            uuid: Uuid::from_random(uuid_gen()),
            state: match device {
                Some(_) => SlotState::InSync,
                None => SlotState::Missing,
            },
            generation,
        };
    }
    for (slot, _) in spare_slots(&superblock.geometry).zip(spares) {
        if let Some(record) = superblock.slots.get_mut(slot.index()) {
            *record = SlotRecord {
                uuid: Uuid::from_random(uuid_gen()),
                state: SlotState::Spare,
                generation,
            };
        }
    }
    superblock.generation = generation.next();
    Ok(superblock)
}

/// The slots of spares: those behind the members.
fn spare_slots(geometry: &Geometry) -> impl Iterator<Item = Slot> {
    let all = SlotSet::first_n(MAX_SLOTS as u8);
    all.minus(geometry.all_slots()).iter()
}

/// Says what of members larger than the smallest one is not used.
fn tell_left_over(superblock: &Superblock, devices: &Devices) {
    let used = superblock.geometry.component();
    for device in devices.iter().flatten() {
        let size = Sectors::new(device.size_sectors());
        let left = superblock.front.component(size).saturating_sub(used);
        if left > Sectors::ZERO {
            array_info!(
                superblock.name.as_str(),
                "{} KiB of {} are not used: the smallest member rules",
                left.get() / 2,
                disk_io::name(device)
            );
        }
    }
}

/// The state all regions start in.
fn first_regions(superblock: &Superblock, assume_clean: bool) -> Region {
    match superblock.geometry.level() {
        Level::Raid0 => Region::CLEAN,
        _ if assume_clean => Region::CLEAN,
        _ => Region::NEW,
    }
}

/// Writes what the members of a new array carry; `own` is room for a superblock.
fn format_members(
    io: &mut MemberIo,
    devices: &Devices,
    spares: &Devices,
    superblock: &Superblock,
    own: &mut Superblock,
    regions: Region,
) -> Result<(), Refusal> {
    let geometry = &superblock.geometry;
    let members = geometry.all_slots().iter().zip(devices);
    let spares = spare_slots(geometry).zip(spares);
    for (slot, device) in Iterator::chain(members, spares) {
        if let Some(device) = device {
            own.slot = slot;
            format_member(io, device, own, regions)?;
        }
    }
    Ok(())
}

/// Takes the superblocks of an array that never ran off its members again, as far as they answer:
/// not off one that has a command of `format` still.
fn unformat(io: &mut MemberIo, devices: &Devices, format: &MemberIo) {
    io.page.fill(0);
    for device in devices.iter().flatten() {
        if format.has_left(device) {
            continue;
        }
        for side in Side::BOTH {
            let _ = io.write(device, superblock_at(side));
        }
    }
}

/// Writes everything a new member carries, the superblocks last.
#[inline(never)]
fn format_member(
    io: &mut MemberIo,
    device: &Arc<MemberDevice>,
    superblock: &mut Superblock,
    region: Region,
) -> Result<(), Refusal> {
    clear_member(io, device, superblock)?;
    write_map(io, device, superblock, region)?;
    // The older one is never needed again: it is there so that both slots are valid from the start.
    for generation in [FIRST, FIRST.next()] {
        superblock.generation = generation;
        io.write_superblock(device, superblock, Side::of(generation))?;
    }
    Ok(())
}

/// Takes off a device what others, or another array, left on it, and writes empty bad-block lists.
pub(crate) fn clear_member(
    io: &mut MemberIo,
    device: &Arc<MemberDevice>,
    superblock: &Superblock,
) -> Result<(), Refusal> {
    zero_ends(io, device)?;
    io.page.fill(0);
    for side in Side::BOTH {
        io.write(device, superblock_at(side))?;
    }
    write_bad_blocks(io, device, superblock)
}

/// Zeroes what other software looks at.
#[inline(never)]
fn zero_ends(io: &mut MemberIo, device: &Arc<MemberDevice>) -> Result<(), Refusal> {
    // The size may change any time; what counts is that of one moment.
    let size = device.size_sectors();
    let block = u64::from(device.logical_block_size() / 512).max(1);
    let tail = size
        .checked_sub(TAIL_BYTES as u64 / 512)
        .ok_or_else(|| refused(ENODEV, "zeroing the ends of", disk_io::name(device)))?;
    io.zero(device, 0, HEAD_BYTES as u64 / 512)?;
    io.zero(device, tail.next_multiple_of(block), size)
}

/// Writes the map of an array all of whose regions are in the same state.
#[inline(never)]
fn write_map(
    io: &mut MemberIo,
    device: &Arc<MemberDevice>,
    superblock: &Superblock,
    region: Region,
) -> Result<(), Refusal> {
    let regions = superblock.regions;
    let map = superblock.front.map.page(Side::of(FIRST), 0);
    let at = map.ok_or_else(|| refuse!(Errno::NoSpc, "no room for the map"))?;
    io.write_pages(device, at, regions.pages(), |page, number| {
        let id = PageId {
            array: superblock.array,
            number,
        };
        let (_, count) = regions.regions_of(number);
        let all = core::iter::repeat_n(region, count);
        regionmap::encode(page, crc32c, id, FIRST, all);
    })
}

/// Writes empty bad-block lists of all members.
#[inline(never)]
fn write_bad_blocks(
    io: &mut MemberIo,
    device: &Arc<MemberDevice>,
    superblock: &Superblock,
) -> Result<(), Refusal> {
    let area = superblock.front.bad_blocks;
    let members = superblock.geometry.members();
    let pages = badblocks::pages_per_slot(area, members) * u32::from(members);
    let at = area
        .page(Side::of(FIRST), 0)
        .ok_or_else(|| refuse!(Errno::NoSpc, "no room for the bad-block lists"))?;
    io.write_pages(device, at, pages, |page, number| {
        let id = PageId {
            array: superblock.array,
            number,
        };
        badblocks::encode(page, crc32c, id, FIRST, &[]);
    })
}
