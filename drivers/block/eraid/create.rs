// SPDX-License-Identifier: GPL-2.0

//! Creating arrays: what is written to the members before the array starts.

use kernel::{page::PAGE_SIZE, prelude::*, sync::Arc};

use crate::{
    array::Parts,
    disk_io::{self, PageIo},
    error::refused,
    kapi::{
        crc::crc32c,
        device::{MemberDevice, SyncFlags},
        module::uuid_gen,
        page::PageBuf,
    },
    member::Member,
    registry::Registry,
};
use eraid_core::{
    badblocks,
    control::{parse_create, Create, MemberSpec},
    geometry::{Geometry, Level},
    layout::{superblock as superblock_at, Area, FrontLayout},
    metapage::{Page, PageId, Side},
    refusal::{Errno, Refusal},
    refuse,
    region::RegionState,
    regionmap::{self, Region, Regions, REGION_SHIFT_MAX, REGION_SHIFT_MIN},
    signature,
    superblock::{ArrayName, Policy, SlotRecord, SlotState, Superblock},
    units::{Generation, Sectors, Slot, Uuid},
};

/// What is zeroed at the start of a member, and at its end where nothing of the array lies: all that
/// is searched for signatures.
const HEAD_BYTES: usize = signature::HEAD;
const TAIL_BYTES: usize = signature::TAIL;
/// Generation of all metadata of a new array.
const FIRST: Generation = Generation::new(1);
/// Largest logical block size of a member.
const BLOCK_MAX: u32 = 4096;

/// The devices of a new array, by slot.
type Devices = KVec<Option<Arc<MemberDevice>>>;

impl Registry {
    /// Creates and starts an array as a line to `create` says.
    pub(crate) fn create(self: &Arc<Self>, line: &[u8]) -> Result<(), Refusal> {
        let create = parse_create(line)?;
        let _control = self.control.lock();
        self.check_free(create.name)?;
        let devices = self.open_members(&create)?;
        let superblock = describe(&create, &devices)?;
        let regions = first_regions(&superblock, create.assume_clean);
        for (index, device) in devices.iter().enumerate() {
            if let Some(device) = device {
                format_member(device, &superblock, index, regions)?;
            }
        }
        let parts = self.parts_of_new(superblock, devices, regions)?;
        let block = parts.superblock.logical_block_size;
        self.start(parts, block, create.dev)
    }

    /// Opens and checks all members.
    #[inline(never)]
    fn open_members(&self, create: &Create<'_>) -> Result<Devices, Refusal> {
        let mut devices = KVec::new();
        for spec in create.members.iter() {
            let device = match spec {
                MemberSpec::Missing => None,
                MemberSpec::Path(path) => {
                    let device = self.open_member(path, false)?;
                    if !create.force {
                        disk_io::check_blank(&device)?;
                    }
                    Some(device)
                }
            };
            devices
                .push(device, GFP_KERNEL)
                .map_err(|_| refused(ENOMEM, "opening", "the members"))?;
        }
        Ok(devices)
    }

    /// Checks that no array of this name runs.
    pub(crate) fn check_free(&self, name: &str) -> Result<(), Refusal> {
        let running = self.running.lock();
        if running.iter().any(|running| running.array.name() == name) {
            return Err(refuse!(Errno::Exist, "an array {name} runs already"));
        }
        Ok(())
    }

    #[inline(never)]
    fn parts_of_new(
        self: &Arc<Self>,
        superblock: KBox<Superblock>,
        devices: Devices,
        region: Region,
    ) -> Result<KBox<Parts>, Refusal> {
        let make = || -> Result<KBox<Parts>> {
            let mut members = KVec::with_capacity(devices.len(), GFP_KERNEL)?;
            for (device, slot) in devices.into_iter().zip(superblock.geometry.all_slots().iter()) {
                let member = match device {
                    Some(device) => Some(Member::of(&superblock, slot, device)?),
                    None => None,
                };
                members.push(member, GFP_KERNEL)?;
            }
            let mut regions = KVec::new();
            if superblock.policy == Policy::Bitmap {
                for _ in 0..superblock.regions.count() {
                    regions.push(RegionState::loaded(region), GFP_KERNEL)?;
                }
            }
            let map_generations = KVec::from_elem(FIRST, 1, GFP_KERNEL)?;
            let parts = Parts {
                superblock,
                members,
                regions,
                map_generations,
                read_only: false,
                sides: [Side::of(FIRST.next()); 64],
                owner: self.clone(),
                queues: self.queues.clone(),
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

/// The superblock of a new array, as it is to be when it starts.
#[inline(never)]
fn describe(create: &Create<'_>, devices: &Devices) -> Result<KBox<Superblock>, Refusal> {
    let present = || devices.iter().flatten();
    let sizes = present().map(|device| Sectors::new(device.size_sectors()));
    let smallest = sizes
        .min()
        .ok_or_else(|| refuse!(Errno::Inval, "an array needs members"))?;
    for device in present() {
        // The message is to name the member.
        FrontLayout::for_member(Sectors::new(device.size_sectors())).map_err(|refusal| {
            refuse!(refusal.errno, "{}: {}", disk_io::name(device), refusal.as_str())
        })?;
    }
    let block = present().map(|device| device.logical_block_size()).max();
    let block = block.unwrap_or(512);
    if block > BLOCK_MAX {
        return Err(refuse!(
            Errno::Inval,
            "a member has logical blocks of {block} bytes, at most {BLOCK_MAX} are supported"
        ));
    }
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
    let mut superblock = disk_io::blank_superblock()
        .map_err(|error| refused(error, "creating", create.name))?;
    superblock.array = Uuid::from_random(uuid_gen());
    superblock.name = ArrayName::new(create.name)
        .ok_or_else(|| refuse!(Errno::Inval, "{} is no name for an array", create.name))?;
    superblock.generation = FIRST;
    superblock.geometry = geometry;
    superblock.logical_block_size = block;
    superblock.policy = Policy::of(create.level);
    superblock.active = true;
    superblock.front = front;
    superblock.regions = regions(&geometry, front.map)?;
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
    superblock.generation = generation.next();
    Ok(superblock)
}

/// Regions so small that one page of the map still holds them.
fn regions(geometry: &Geometry, map: Area) -> Result<Regions, Refusal> {
    (REGION_SHIFT_MIN..=REGION_SHIFT_MAX)
        .filter_map(|shift| Regions::new(geometry, shift, map))
        .find(|regions| regions.pages() == 1)
        .ok_or_else(|| refuse!(Errno::FBig, "the members are too large"))
}

/// The state all regions start in.
fn first_regions(superblock: &Superblock, assume_clean: bool) -> Region {
    match superblock.geometry.level() {
        Level::Raid0 => Region::CLEAN,
        _ if assume_clean => Region::CLEAN,
        _ => Region::NEW,
    }
}

/// Writes everything a new member carries, the superblocks last.
#[inline(never)]
fn format_member(
    device: &MemberDevice,
    superblock: &Superblock,
    index: usize,
    region: Region,
) -> Result<(), Refusal> {
    zero(device)?;
    let mut io = PageIo::new()?;
    for side in Side::BOTH {
        io.page.fill(0);
        io.write(device, superblock_at(side))?;
    }
    write_bad_blocks(device, superblock)?;
    let id = PageId {
        array: superblock.array,
        number: 0,
    };
    let (_, count) = superblock.regions.regions_of(0);
    let all = core::iter::repeat_n(region, count);
    regionmap::encode(&mut io.page, crc32c, id, FIRST, all);
    let map = superblock.front.map.page(Side::of(FIRST), 0);
    io.write(device, map.ok_or_else(|| refuse!(Errno::NoSpc, "no room for the map"))?)?;
    let mut own = disk_io::clone_superblock(superblock)
        .map_err(|error| refused(error, "writing", disk_io::name(device)))?;
    own.slot = u8::try_from(index)
        .ok()
        .and_then(Slot::new)
        .ok_or_else(|| refuse!(Errno::Inval, "too many members"))?;
    // The older one is never needed again: it is there so that both slots are valid from the start.
    own.generation = FIRST;
    io.write_superblock(device, &own, Side::of(own.generation))?;
    own.generation = superblock.generation;
    io.write_superblock(device, &own, Side::of(own.generation))
}

/// Zeroes what other software looks at.
#[inline(never)]
fn zero(device: &MemberDevice) -> Result<(), Refusal> {
    let zero = || -> Result {
        let buf = PageBuf::zeroed(HEAD_BYTES.max(TAIL_BYTES) / PAGE_SIZE)?;
        device.write_sync(0, &buf, 0, HEAD_BYTES, SyncFlags::NONE)?;
        let end = device.size_sectors() - TAIL_BYTES as u64 / 512;
        // Where the size is no multiple of 4 KiB the last sectors are part of it.
        let block = u64::from(device.logical_block_size() / 512).max(1);
        let end = end.next_multiple_of(block);
        let len = (device.size_sectors() - end) as usize * 512;
        device.write_sync(end, &buf, 0, len, SyncFlags::NONE)
    };
    zero().map_err(|error| refused(error, "zeroing the ends of", disk_io::name(device)))
}

/// Writes empty bad-block lists of all members.
#[inline(never)]
fn write_bad_blocks(device: &MemberDevice, superblock: &Superblock) -> Result<(), Refusal> {
    let area = superblock.front.bad_blocks;
    let members = superblock.geometry.members();
    let pages = badblocks::pages_per_slot(area, members) * u32::from(members);
    let write = || -> Result {
        let mut buf = PageBuf::zeroed(1)?;
        let mut many = PageBuf::zeroed(BATCH as usize)?;
        let mut page: KBox<Page> = KBox::init(pin_init::init_zeroed(), GFP_KERNEL)?;
        for first in (0..pages).step_by(BATCH as usize) {
            let count = BATCH.min(pages - first);
            for number in 0..count {
                encode_bad_blocks(&mut page, superblock, first + number);
                buf.write(0, &page[..])?;
                many.copy_from_buf(number as usize * PAGE_SIZE, &buf, 0, PAGE_SIZE)?;
            }
            let at = area.page(Side::of(FIRST), first).ok_or(EINVAL)?;
            let len = count as usize * PAGE_SIZE;
            device.write_sync(at.get(), &many, 0, len, SyncFlags::FUA)?;
        }
        Ok(())
    };
    write().map_err(|error| refused(error, "writing", disk_io::name(device)))
}

/// Pages of the bad-block lists written at once.
const BATCH: u32 = 64;

fn encode_bad_blocks(page: &mut Page, superblock: &Superblock, number: u32) {
    let id = PageId {
        array: superblock.array,
        number,
    };
    badblocks::encode(page, crc32c, id, FIRST, &[]);
}
