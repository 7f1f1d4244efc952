// SPDX-License-Identifier: GPL-2.0

//! Assembling arrays from their members: at once, or one member at a time.

use kernel::{prelude::*, sync::Arc};

use crate::{
    array::{Array, Parts},
    disk_io::{self, PageIo},
    error::refused,
    kapi::{
        crc::crc32c,
        device::{wait_closed, MemberDevice},
    },
    member::Member,
    registry::Registry,
    running::CLOSE_WAIT_MS,
};
use eraid_core::{
    assembly::{self, decide, Assembly, Candidate, Decision, Options},
    control::{parse_abort, parse_assemble, Assemble, MemberSpec},
    geometry::Level,
    metapage::{PageId, Side},
    refusal::{Errno, Refusal},
    refuse,
    region::RegionState,
    regionmap::{self, MapPage, Region},
    superblock::{Policy, SlotState, Superblock},
    text::TextBuf,
    units::{Generation, Sectors, Slot, SlotSet, Uuid},
};

/// Largest region map, in pages: what create makes has one.
const MAP_PAGES_MAX: u32 = 16;

/// A device with a superblock.
pub(crate) struct Found {
    device: Arc<MemberDevice>,
    superblock: KBox<Superblock>,
    side: Side,
    /// Opened for reading only.
    read_only: bool,
}

/// A set that waits for more members.
pub(crate) struct Incomplete {
    uuid: Uuid,
    found: KVec<Found>,
}

impl Registry {
    /// Assembles what a line to `assemble` names.
    pub(crate) fn assemble(self: &Arc<Self>, line: &[u8]) -> Result<(), Refusal> {
        let request = parse_assemble(line)?;
        let _control = self.control.lock();
        let (new, waiting) = self.find_members(&request)?;
        let uuid = new
            .first()
            .map(|found| found.superblock.array)
            .or(waiting)
            .ok_or_else(|| refuse!(Errno::Inval, "an array needs members"))?;
        if self.runs(uuid) {
            return Err(refuse!(Errno::Busy, "the array {uuid} runs already"));
        }
        check_supported(&new)?;
        let mut set = self.take_incomplete(uuid);
        let known = set.found.len();
        for found in new {
            set.found
                .push(found, GFP_KERNEL)
                .map_err(|_| refused(ENOMEM, "assembling", "the array"))?;
        }
        let options = Options {
            force: request.force,
            readonly: request.readonly,
            degraded: request.degraded,
        };
        match judge(&set.found, options) {
            // Where it fails here, superblocks may have been written that those kept in the set do
            // not know of: the members are all let go of.
            Ok(Decision::Start(assembly)) => {
                self.start_assembled(&set.found, &assembly, options, request.dev)
            }
            Ok(Decision::Incomplete(incomplete)) => {
                tell_incomplete(&set, &incomplete);
                self.keep_incomplete(set)
            }
            Err(refusal) => {
                // What came with this line goes; what waited before goes on waiting.
                set.found.truncate(known);
                if known > 0 {
                    self.keep_incomplete(set)?;
                }
                Err(refusal)
            }
        }
    }

    /// Opens the members of a line and reads their superblocks; those that wait in a set already are
    /// left in it, and the set is named.
    #[inline(never)]
    fn find_members(&self, request: &Assemble<'_>) -> Result<(KVec<Found>, Option<Uuid>), Refusal> {
        let (mut all, mut waiting) = (KVec::new(), None);
        for spec in request.members.iter() {
            let MemberSpec::Path(path) = spec else {
                continue;
            };
            if let Some(uuid) = self.set_of(path) {
                waiting = Some(uuid);
                continue;
            }
            let device = self.open_member(path, request.readonly)?;
            let (superblock, side) =
                disk_io::read_superblock(&device).map_err(|unread| unread.refusal(&device))?;
            let found = Found {
                device,
                superblock,
                side,
                read_only: request.readonly,
            };
            all.push(found, GFP_KERNEL)
                .map_err(|_| refused(ENOMEM, "opening", path))?;
        }
        Ok((all, waiting))
    }

    /// The set in which the device at `path` waits.
    fn set_of(&self, path: &str) -> Option<Uuid> {
        let dev = disk_io::dev_of(path)?;
        let all = self.incomplete.lock();
        let holds = |set: &&Incomplete| set.found.iter().any(|found| found.device.dev() == dev);
        all.iter().find(holds).map(|set| set.uuid)
    }

    /// Lets go of an incomplete set.
    pub(crate) fn abort(&self, line: &[u8]) -> Result<(), Refusal> {
        let uuid = parse_abort(line)?;
        let _control = self.control.lock();
        match self.take_incomplete(uuid).found.is_empty() {
            true => Err(refuse!(Errno::NoEnt, "no set {uuid} waits for members")),
            false => {
                // So that they can be used again at once.
                wait_closed(CLOSE_WAIT_MS);
                Ok(())
            }
        }
    }

    fn take_incomplete(&self, uuid: Uuid) -> Incomplete {
        let mut all = self.incomplete.lock();
        let index = all.iter().position(|set| set.uuid == uuid);
        let empty = Incomplete {
            uuid,
            found: KVec::new(),
        };
        index
            .and_then(|index| all.remove(index).ok())
            .unwrap_or(empty)
    }

    fn keep_incomplete(&self, set: Incomplete) -> Result<(), Refusal> {
        let kept = self.incomplete.lock().push(set, GFP_KERNEL);
        kept.map_err(|_| refused(ENOMEM, "keeping", "the members"))
    }

    fn start_assembled(
        self: &Arc<Self>,
        found: &KVec<Found>,
        assembly: &Assembly,
        options: Options,
        dev: Option<u32>,
    ) -> Result<(), Refusal> {
        let number = self.choose_number(dev)?;
        let parts = self.prepare_parts(found, assembly, options)?;
        let block = parts.superblock.logical_block_size;
        let array = Array::new(parts).map_err(|error| refused(error, "starting", "the array"))?;
        self.start(array, block, number)
    }

    /// Makes of the members what an array is made of, and marks them as running.
    #[inline(never)]
    fn prepare_parts(
        self: &Arc<Self>,
        found: &KVec<Found>,
        assembly: &Assembly,
        options: Options,
    ) -> Result<KBox<Parts>, Refusal> {
        let no_memory = |_| refused(ENOMEM, "starting", "the array");
        let base = found
            .get(assembly.base)
            .ok_or_else(|| refuse!(Errno::Inval, "no members"))?;
        self.check_free(base.superblock.name.as_str())?;
        let superblock = disk_io::clone_superblock(&base.superblock)
            .map_err(|error| refused(error, "starting", "the array"))?;
        let (mut regions, map_generations) = load_regions(found, assembly, &superblock)?;
        resolve_doubt(&mut regions, assembly, &superblock, options)?;
        let parts = Parts {
            superblock,
            members: KVec::new(),
            regions,
            map_generations,
            sides: [Side::A; 64],
            read_only: options.readonly,
            owner: self.clone(),
            queues: self.queues.clone(),
        };
        let mut parts = KBox::new(parts, GFP_KERNEL).map_err(no_memory)?;
        add_members(&mut parts, found, assembly)?;
        record_members(&mut parts, assembly);
        if !options.readonly {
            write_map(&mut parts)?;
            mark_active(&mut parts)?;
        }
        Ok(parts)
    }
}

/// Adds the members in the order of their slots.
fn add_members(parts: &mut Parts, found: &KVec<Found>, assembly: &Assembly) -> Result<(), Refusal> {
    let failed = |error| refused(error, "starting", "the array");
    for slot in parts.superblock.geometry.all_slots().iter() {
        let member = match member_of(found, assembly, slot) {
            Some(found) => {
                if let Some(side) = parts.sides.get_mut(slot.index()) {
                    *side = found.side;
                }
                let device = found.device.clone();
                Some(Member::of(&parts.superblock, slot, device).map_err(failed)?)
            }
            None => None,
        };
        let added = parts.members.push(member, GFP_KERNEL);
        added.map_err(|_| failed(ENOMEM))?;
    }
    Ok(())
}

/// Refuses arrays that the on-disk format allows and this version cannot run.
fn check_supported(found: &KVec<Found>) -> Result<(), Refusal> {
    let raid6 = |found: &Found| found.superblock.geometry.level() == Level::Raid6;
    if found.iter().any(raid6) {
        return Err(refuse!(
            Errno::OpNotSupp,
            "level 6 is not supported by this version"
        ));
    }
    let map = |found: &Found| found.superblock.regions.pages() > MAP_PAGES_MAX;
    if found.iter().any(map) {
        return Err(refuse!(
            Errno::OpNotSupp,
            "a region map of more than {MAP_PAGES_MAX} pages is not supported by this version"
        ));
    }
    Ok(())
}

/// Says what a set waits for, and how to let go of it.
fn tell_incomplete(set: &Incomplete, incomplete: &assembly::Incomplete) {
    let name = set
        .found
        .first()
        .map_or("?", |found| found.superblock.name.as_str());
    let text = TextBuf::<160>::format(format_args!("{} has {incomplete}", set.uuid));
    array_info!(name, "{}", text.as_str());
}

#[inline(never)]
fn judge(found: &KVec<Found>, options: Options) -> Result<Decision, Refusal> {
    let mut candidates = KVec::new();
    for found in found {
        let candidate = Candidate {
            name: disk_io::name(&found.device),
            superblock: &found.superblock,
            size: Sectors::new(found.device.size_sectors()),
            read_only: found.read_only || found.device.is_read_only(),
        };
        candidates
            .push(candidate, GFP_KERNEL)
            .map_err(|_| refused(ENOMEM, "assembling", "the array"))?;
    }
    decide(&candidates, options)
}

/// The device that takes a slot; members being rebuilt do not take part yet.
fn member_of<'a>(found: &'a KVec<Found>, assembly: &Assembly, slot: Slot) -> Option<&'a Found> {
    if !assembly.in_sync.contains(slot) {
        return None;
    }
    let index = assembly.members.get(slot.index()).copied().flatten()?;
    found.get(usize::from(index))
}

/// Merges the region maps of the members that know of every write.
#[inline(never)]
fn load_regions(
    found: &KVec<Found>,
    assembly: &Assembly,
    superblock: &Superblock,
) -> Result<(KVec<RegionState>, KVec<Generation>), Refusal> {
    let no_memory = |_| refused(ENOMEM, "reading the map of", superblock.name.as_str());
    let mut states = KVec::new();
    let mut generations = KVec::new();
    if superblock.policy != Policy::Bitmap {
        return Ok((states, generations));
    }
    let current = assembly.in_sync.minus(assembly.caught_up);
    for number in 0..superblock.regions.pages() {
        let (_, count) = superblock.regions.regions_of(number);
        let mut newest = Generation::ZERO;
        let mut merged: KVec<Option<Region>> =
            KVec::from_elem(None, count, GFP_KERNEL).map_err(no_memory)?;
        for slot in current.iter() {
            if let Some(found) = member_of(found, assembly, slot) {
                let generation = merge_page(&found.device, superblock, number, &mut merged)?;
                newest = newest.max(generation);
            }
        }
        generations.push(newest, GFP_KERNEL).map_err(no_memory)?;
        for region in &merged {
            let region = region.unwrap_or(Region::UNKNOWN);
            states
                .push(RegionState::loaded(region), GFP_KERNEL)
                .map_err(no_memory)?;
        }
    }
    Ok((states, generations))
}

/// Adds one member's copy of a page of the map; returns its generation.
#[inline(never)]
fn merge_page(
    device: &MemberDevice,
    superblock: &Superblock,
    number: u32,
    merged: &mut KVec<Option<Region>>,
) -> Result<Generation, Refusal> {
    let mut sides = [PageIo::new()?, PageIo::new()?];
    for (side, io) in Side::BOTH.iter().zip(&mut sides) {
        let at = superblock.front.map.page(*side, number);
        // An unreadable copy is like a torn one: there are others.
        if at.is_none_or(|at| io.read(device, at).is_err()) {
            io.page.fill(0);
        }
    }
    let id = PageId {
        array: superblock.array,
        number,
    };
    let slots = superblock.geometry.all_slots();
    let decode = |io: &'_ PageIo| {
        MapPage::decode(&io.page, crc32c, id, &superblock.regions, slots)
            .ok()
            .map(|page| page.generation())
    };
    let [a, b] = &sides;
    let Some(side) = Side::newest(decode(a), decode(b)) else {
        return Ok(Generation::ZERO);
    };
    let io = match side {
        Side::A => a,
        Side::B => b,
    };
    let page = MapPage::decode(&io.page, crc32c, id, &superblock.regions, slots);
    let Ok(page) = page else {
        return Ok(Generation::ZERO);
    };
    for (entry, region) in merged.iter_mut().enumerate() {
        let own = page.get(entry);
        *region = Some(region.map_or(own, |others| others.merge(own)));
    }
    Ok(page.generation())
}

/// Refuses regions that nobody can vouch for, or with `force` takes them as they are and says so.
#[inline(never)]
fn resolve_doubt(
    regions: &mut KVec<RegionState>,
    assembly: &Assembly,
    superblock: &Superblock,
    options: Options,
) -> Result<(), Refusal> {
    let absent = assembly.absent(superblock);
    let in_doubt = |region: &RegionState| {
        let view = region.view();
        view.need_sync && !absent.union(view.stale).is_empty()
    };
    let doubtful = regions.iter().filter(|region| in_doubt(region)).count();
    assembly.check_doubt(superblock, doubtful as u64, options)?;
    for (number, region) in regions.iter_mut().enumerate() {
        if in_doubt(region)
            && options.force
            && region.accept_doubt(absent.union(region.view().stale))
        {
            array_warn!(
                superblock.name.as_str(),
                "region {} is taken as it is: what was written there last may be wrong",
                number
            );
        }
    }
    Ok(())
}

/// Gives members that missed writes the map that says so, before anything says that they are in
/// sync: should they be all that is left, they know what they lack.
#[inline(never)]
fn write_map(parts: &mut Parts) -> Result<(), Refusal> {
    if parts.regions.is_empty() {
        return Ok(());
    }
    let mut io = PageIo::new()?;
    let superblock = &parts.superblock;
    for number in 0..superblock.regions.pages() {
        let (first, count) = superblock.regions.regions_of(number);
        let id = PageId {
            array: superblock.array,
            number,
        };
        let states = parts.regions.iter().skip(first.get() as usize).take(count);
        let regions = states.map(|state| state.view());
        let Some(generation) = parts.map_generations.get_mut(number as usize) else {
            continue;
        };
        *generation = generation.next();
        regionmap::encode(&mut io.page, crc32c, id, *generation, regions);
        let at = superblock.front.map.page(Side::of(*generation), number);
        for member in parts.members.iter().flatten() {
            if let Some(at) = at {
                io.write(&member.device, at)?;
            }
        }
    }
    for region in parts.regions.iter_mut() {
        let written = region.begin_persist();
        region.persisted(written);
    }
    Ok(())
}

/// Takes into the superblock who is there and who is not.
fn record_members(parts: &mut Parts, assembly: &Assembly) {
    let superblock = &mut parts.superblock;
    let absent: SlotSet = assembly.absent(superblock);
    for slot in superblock.geometry.all_slots().iter() {
        let state = superblock.record(slot).state;
        if assembly.caught_up.contains(slot) {
            superblock.set_state(slot, SlotState::InSync);
        } else if absent.contains(slot) && state == SlotState::InSync {
            superblock.set_state(slot, SlotState::Missing);
        }
    }
}

/// Writes to all members that the array runs, and without whom.
#[inline(never)]
fn mark_active(parts: &mut Parts) -> Result<(), Refusal> {
    let superblock = &mut parts.superblock;
    superblock.active = true;
    superblock.generation = superblock.generation.next();
    let mut io = PageIo::new()?;
    for member in parts.members.iter().flatten() {
        superblock.slot = member.place;
        if let Some(side) = parts.sides.get_mut(member.place.index()) {
            *side = side.other();
            io.write_superblock(&member.device, superblock, *side)?;
        }
    }
    Ok(())
}
