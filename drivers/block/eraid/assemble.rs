// SPDX-License-Identifier: GPL-2.0

//! Assembling arrays from their members: at once, or one member at a time.

use kernel::{prelude::*, sync::Arc};

use crate::{
    array::{Array, Parts},
    claims::Claim,
    disk_io::{self, MemberIo},
    error::refused,
    kapi::{
        crc::crc32c,
        device::{wait_closed, MemberDevice},
    },
    member::Member,
    registry::Registry,
    running::CLOSE_WAIT_MS,
    spares::Spare,
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
        let mut io = MemberIo::new()?;
        let assembled = self.assemble_with(&request, &mut io);
        self.add_left(&mut io);
        assembled
    }

    fn assemble_with(
        self: &Arc<Self>,
        request: &Assemble<'_>,
        io: &mut MemberIo,
    ) -> Result<(), Refusal> {
        let (new, waiting) = self.find_members(request, io)?;
        let uuid = new
            .first()
            .map(|found| found.superblock.array)
            .or(waiting)
            .ok_or_else(|| refuse!(Errno::Inval, "an array needs members"))?;
        let claim = self.claims.claim(uuid)?;
        check_supported(&new)?;
        check_blocks(&new)?;
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
                self.start_assembled(&set.found, &assembly, options, request.dev, claim, io)
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
    fn find_members(
        &self,
        request: &Assemble<'_>,
        io: &mut MemberIo,
    ) -> Result<(KVec<Found>, Option<Uuid>), Refusal> {
        let (mut all, mut waiting) = (KVec::<Found>::new(), None);
        for spec in request.members.iter() {
            let MemberSpec::Path(path) = spec else {
                continue;
            };
            if let Some(uuid) = disk_io::dev_of(path).and_then(|dev| self.set_of(dev)) {
                waiting = Some(uuid);
                continue;
            }
            let opened = all.iter().map(|found| &found.device);
            let device = self.open_member(path, request.readonly, opened)?;
            let (superblock, side) =
                disk_io::read_superblock(io, &device).map_err(|unread| unread.refusal(&device))?;
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

    /// The set in which a device waits.
    pub(crate) fn set_of(&self, dev: u32) -> Option<Uuid> {
        let all = self.incomplete.lock();
        let holds = |set: &&Incomplete| set.found.iter().any(|found| found.device.dev() == dev);
        all.iter().find(holds).map(|set| set.uuid)
    }

    /// Lets go of an incomplete set.
    pub(crate) fn abort(&self, line: &[u8]) -> Result<(), Refusal> {
        let uuid = parse_abort(line)?;
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
        claim: Claim,
        io: &mut MemberIo,
    ) -> Result<(), Refusal> {
        let base = found
            .get(assembly.base)
            .ok_or_else(|| refuse!(Errno::Inval, "no members"))?;
        let number = claim.label(base.superblock.name, dev)?;
        for slot in assembly.present().union(assembly.spares).iter() {
            if let Some(member) = member_of(found, assembly, slot) {
                let added = claim.add_device(member.device.dev());
                added.map_err(|error| refused(error, "starting", "the array"))?;
            }
        }
        let parts = self.prepare_parts(found, assembly, options, number, io)?;
        let block = parts.superblock.logical_block_size;
        let array = Array::new(parts).map_err(|error| refused(error, "starting", "the array"))?;
        self.start(array, block, number, claim)
    }

    /// Makes of the members what an array is made of, and marks them as running.
    #[inline(never)]
    fn prepare_parts(
        self: &Arc<Self>,
        found: &KVec<Found>,
        assembly: &Assembly,
        options: Options,
        number: u32,
        io: &mut MemberIo,
    ) -> Result<KBox<Parts>, Refusal> {
        let no_memory = |_| refused(ENOMEM, "starting", "the array");
        let base = found
            .get(assembly.base)
            .ok_or_else(|| refuse!(Errno::Inval, "no members"))?;
        let superblock = disk_io::clone_superblock(&base.superblock)
            .map_err(|error| refused(error, "starting", "the array"))?;
        let (mut regions, map_generations) = load_regions(io, found, assembly, &superblock)?;
        let name = superblock.name.as_str();
        for generation in &map_generations {
            assembly::check_generation(name, *generation, options)?;
        }
        resolve_doubt(&mut regions, assembly, &superblock, options)?;
        let parts = Parts {
            superblock,
            members: KVec::new(),
            spares: KVec::new(),
            regions,
            map_generations,
            sides: [Side::A; 64],
            read_only: options.readonly,
            owner: self.clone(),
            number,
        };
        let mut parts = KBox::new(parts, GFP_KERNEL).map_err(no_memory)?;
        add_members(&mut parts, found, assembly)?;
        record_members(&mut parts, assembly);
        if !options.readonly {
            write_map(io, &mut parts)?;
            mark_active(io, &mut parts)?;
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
    for slot in assembly.spares.iter() {
        let Some(found) = member_of(found, assembly, slot) else {
            continue;
        };
        let uuid = parts.superblock.record(slot).uuid;
        let spare = Spare::new(slot, uuid, found.device.clone(), found.side).map_err(failed)?;
        let added = parts.spares.push(spare, GFP_KERNEL);
        added.map_err(|_| failed(ENOMEM))?;
    }
    Ok(())
}

/// Refuses devices that cannot address what the array does: copies of members on other disks.
fn check_blocks(found: &KVec<Found>) -> Result<(), Refusal> {
    for found in found {
        let (own, array) = (
            found.device.logical_block_size(),
            found.superblock.logical_block_size,
        );
        if own > array {
            return Err(refuse!(
                Errno::Inval,
                "{} has logical blocks of {own} bytes, the array has {array}",
                disk_io::name(&found.device)
            ));
        }
    }
    Ok(())
}

/// Refuses arrays that the on-disk format allows and this version cannot run.
fn check_supported(found: &KVec<Found>) -> Result<(), Refusal> {
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

/// The device that takes a slot.
fn member_of<'a>(found: &'a KVec<Found>, assembly: &Assembly, slot: Slot) -> Option<&'a Found> {
    if !assembly.present().union(assembly.spares).contains(slot) {
        return None;
    }
    let index = assembly.members.get(slot.index()).copied().flatten()?;
    found.get(usize::from(index))
}

/// Merges the region maps of the members that know of every write.
#[inline(never)]
fn load_regions(
    io: &mut MemberIo,
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
    // Where no map is left nobody knows what those lack who lack something.
    let unknown = Region {
        stale: assembly.present().minus(current),
        ..Region::UNKNOWN
    };
    for number in 0..superblock.regions.pages() {
        let (_, count) = superblock.regions.regions_of(number);
        let mut newest = Generation::ZERO;
        let mut merged: KVec<Option<Region>> =
            KVec::from_elem(None, count, GFP_KERNEL).map_err(no_memory)?;
        for slot in current.iter() {
            if let Some(found) = member_of(found, assembly, slot) {
                let generation = merge_page(io, &found.device, superblock, number, &mut merged)?;
                newest = newest.max(generation);
            }
        }
        generations.push(newest, GFP_KERNEL).map_err(no_memory)?;
        for region in &merged {
            let region = region.unwrap_or(unknown);
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
    io: &mut MemberIo,
    device: &Arc<MemberDevice>,
    superblock: &Superblock,
    number: u32,
    merged: &mut KVec<Option<Region>>,
) -> Result<Generation, Refusal> {
    let mut sides = [disk_io::blank_page()?, disk_io::blank_page()?];
    for (side, page) in Side::BOTH.iter().zip(&mut sides) {
        let Some(at) = superblock.front.map.page(*side, number) else {
            continue;
        };
        match io.read(device, at) {
            Ok(()) => core::mem::swap(page, &mut io.page),
            Err(refusal) if refusal.errno == Errno::Intr => return Err(refusal),
            // An unreadable copy is like a torn one: there are others.
            Err(_) => {}
        }
    }
    let id = PageId {
        array: superblock.array,
        number,
    };
    let slots = superblock.geometry.all_slots();
    let decode = |page| MapPage::decode(page, crc32c, id, &superblock.regions, slots).ok();
    let [a, b] = [decode(&sides[0]), decode(&sides[1])];
    let generation = |page: &Option<MapPage<'_>>| page.as_ref().map(MapPage::generation);
    let newest = match Side::newest(generation(&a), generation(&b)) {
        Some(Side::A) => a,
        Some(Side::B) => b,
        None => None,
    };
    let Some(page) = newest else {
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
    let level = superblock.geometry.level();
    let in_doubt = |region: &RegionState| {
        let view = region.view();
        // Copies can be made equal, whichever are there.
        level != Level::Raid1 && view.need_sync && !absent.union(view.stale).is_empty()
    };
    let doubtful = regions.iter().filter(|region| in_doubt(region)).count();
    assembly.check_doubt(superblock, doubtful as u64, options)?;
    for (number, region) in regions.iter_mut().enumerate() {
        if in_doubt(region)
            && options.force
            && region.accept_doubt(absent.union(region.view().stale), level)
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
fn write_map(io: &mut MemberIo, parts: &mut Parts) -> Result<(), Refusal> {
    if parts.regions.is_empty() {
        return Ok(());
    }
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
        let recovers = matches!(state, SlotState::Recovering(_));
        if assembly.caught_up.contains(slot) {
            superblock.set_state(slot, SlotState::InSync);
        } else if assembly.recovering.contains(slot) && !recovers {
            superblock.set_state(slot, SlotState::Recovering(Sectors::ZERO));
        } else if absent.contains(slot) && (recovers || state == SlotState::InSync) {
            superblock.set_state(slot, SlotState::Missing);
        }
    }
}

/// Writes to all members that the array runs, and without whom.
#[inline(never)]
fn mark_active(io: &mut MemberIo, parts: &mut Parts) -> Result<(), Refusal> {
    let superblock = &mut parts.superblock;
    superblock.active = true;
    superblock.generation = superblock.generation.next();
    for member in parts.members.iter().flatten() {
        superblock.slot = member.place;
        if let Some(side) = parts.sides.get_mut(member.place.index()) {
            *side = side.other();
            io.write_superblock(&member.device, superblock, *side)?;
        }
    }
    Ok(())
}
