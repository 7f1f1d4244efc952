// SPDX-License-Identifier: GPL-2.0

//! Assembly: which members form an array, and in which state it starts.
//!
//! The newest superblock is believed; the others are judged by it. That is right because a write
//! which a member missed is acknowledged only when the others know that the member failed, or what
//! of it is stale.

use crate::geometry::Level;
use crate::metapage::GENERATION_MAX;
use crate::refusal::{Errno, Refusal};
use crate::refuse;
use crate::superblock::{SbError, SlotState, Superblock};
use crate::units::{Generation, Sectors, Slot, SlotSet, MAX_SLOTS};
use core::fmt;

/// Metadata writes for which there must be generations left when an array starts: at one a
/// millisecond seven weeks' worth. None of an array's own making is ever that great; it takes a
/// superblock that somebody made up.
const GENERATIONS_NEEDED: u64 = 1 << 32;

/// A device with a valid superblock.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Name of the device, for messages.
    pub name: &'a str,
    /// Its superblock, the newer one of the two.
    pub superblock: &'a Superblock,
    /// Size of the device.
    pub size: Sectors,
    /// The device cannot be written.
    pub read_only: bool,
}

/// What the administrator allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Doubtful data is accepted.
    pub force: bool,
    /// Nothing is written.
    pub readonly: bool,
    /// The array starts without members that it expects.
    pub degraded: bool,
}

/// What to do with a set of candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Start the array.
    Start(Assembly),
    /// Wait for more members.
    Incomplete(Incomplete),
}

/// An array that can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assembly {
    /// Index of the candidate with the newest superblock.
    pub base: usize,
    /// For each slot the index of the candidate that takes it. Candidates that are in no slot take
    /// no part.
    pub members: [Option<u8>; MAX_SLOTS],
    /// Members that hold all their data, but for stale regions.
    pub in_sync: SlotSet,
    /// Those of `in_sync` that were failed or missing and are taken back: their stale regions are
    /// to be recovered.
    pub caught_up: SlotSet,
    /// Slots of spares, behind those of the members.
    pub spares: SlotSet,
    /// Members being rebuilt: the regions they lack are stale in the map. They do not count as
    /// members that the data can be read from.
    pub recovering: SlotSet,
    /// The array was not stopped cleanly.
    pub unclean: bool,
}

impl Assembly {
    /// Members that take part: of those being rebuilt the region map says where.
    #[inline]
    pub fn present(&self) -> SlotSet {
        self.in_sync.union(self.recovering)
    }

    /// Members of the array that are not there.
    #[inline]
    pub fn absent(&self, superblock: &Superblock) -> SlotSet {
        superblock.geometry.all_slots().minus(self.present())
    }

    /// Checks what the region map says: `doubtful` regions need a resync, which is not possible
    /// because a member is absent or stale in them.
    ///
    /// # Errors
    ///
    /// `EUCLEAN` where there are any, unless forced. Copies of RAID-1 are never in doubt.
    pub fn check_doubt(
        &self,
        superblock: &Superblock,
        doubtful: u64,
        options: Options,
    ) -> Result<(), Refusal> {
        let copies = superblock.geometry.level() == Level::Raid1;
        if doubtful == 0 || copies || options.force {
            return Ok(());
        }
        Err(refuse!(
            Errno::Uclean,
            "{}: stopped uncleanly and degraded: {doubtful} regions cannot be vouched for; bring \
             the missing members, or accept with force=1",
            superblock.name.as_str()
        ))
    }
}

/// A set that waits for members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incomplete {
    /// Members that are there.
    pub present: SlotSet,
    /// Members that the array expects and that are not there.
    pub expected: SlotSet,
}

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} members, waits for slot", self.present.len())?;
        write_slots(f, self.expected)
    }
}

/// What a device is to an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A member, as the array records it.
    InSync,
    /// A member being rebuilt, as the array records it, or one that failed or was missing while it was
    /// and goes on from there.
    Recovering,
    /// It was failed or missing and holds all its data but for the regions that are stale.
    CatchUp,
    /// A spare.
    Spare,
    /// It was failed, and nothing says that the rest of it is right: to be rebuilt.
    Rebuild,
    /// It missed more than the array knows of: an old copy.
    Outdated,
    /// Its slot belongs to another member now.
    Replaced,
    /// It ran without the others, and they without it.
    Diverged,
}

/// Judges a device of an array by the newest superblock of the array.
///
/// Also for a device that comes back to a running array, `base` being what the array would write.
pub fn standing(base: &Superblock, device: &Superblock) -> Standing {
    let record = base.record(home_of(base, device));
    let own = device.record(device.slot).state;
    if record.uuid != device.member() {
        return Standing::Replaced;
    }
    if knows_more(base, device) {
        return Standing::Diverged;
    }
    match record.state {
        // The superblock that takes it in was cut short before it came here.
        SlotState::InSync if device.generation < record.generation => Standing::CatchUp,
        SlotState::Recovering(_) if device.generation < record.generation => Standing::Recovering,
        SlotState::InSync | SlotState::Recovering(_)
            if is_outdated(base, device, base.generation) =>
        {
            Standing::Outdated
        }
        SlotState::InSync => Standing::InSync,
        SlotState::Recovering(_) => Standing::Recovering,
        SlotState::Faulty | SlotState::Missing => match own {
            // It was written to after the array went on without it, or the array cannot have gone
            // on without it.
            SlotState::InSync if device.generation >= record.generation => Standing::Diverged,
            SlotState::InSync if !is_dispensable(device) => Standing::Diverged,
            SlotState::InSync | SlotState::Recovering(_)
                if is_outdated(base, device, record.generation) =>
            {
                Standing::Outdated
            }
            SlotState::InSync => Standing::CatchUp,
            // What it still lacked then is stale, as is what it missed since.
            SlotState::Recovering(_) => Standing::Recovering,
            _ => Standing::Rebuild,
        },
        SlotState::Spare if own == SlotState::Spare => Standing::Spare,
        SlotState::Empty | SlotState::Spare => Standing::Rebuild,
    }
}

/// The slot that a device takes. A spare that took one over, but was not told so before a crash, still
/// names the one it had.
pub fn home_of(base: &Superblock, device: &Superblock) -> Slot {
    match device.record(device.slot).state {
        SlotState::Spare => base.slot_of(device.member()).unwrap_or(device.slot),
        _ => device.slot,
    }
}

/// Whether a device knows of a change of a slot which the array does not know of.
///
/// An array that starts without a member, or loses it, records that before it writes anything. So
/// this is so for every device that was ever written to without a member of `base`.
fn knows_more(base: &Superblock, device: &Superblock) -> bool {
    let mut slots = base.slots.iter().zip(&device.slots);
    slots.any(|(known, own)| {
        own.generation > known.generation || own.generation == known.generation && own != known
    })
}

/// Whether enough other members were in sync, as far as a device knows, to go on without it.
fn is_dispensable(device: &Superblock) -> bool {
    let in_sync = device.slots_where(|state| state == SlotState::InSync);
    in_sync.without(device.slot).len() >= members_needed(device)
}

/// How many members in sync an array cannot do without.
fn members_needed(base: &Superblock) -> u32 {
    let geometry = &base.geometry;
    u32::from(geometry.members().saturating_sub(geometry.parity()))
}

/// Whether a device missed more superblock writes, up to generation `until` of the array, than a
/// crash explains.
///
/// A crash can leave it behind by the writes since the last complete one: each records changes of
/// slots, or that the array was stopped, or is the one that the crash cut short. An image of a
/// member, put back after the array was stopped and started again, is behind by more.
fn is_outdated(base: &Superblock, device: &Superblock, until: Generation) -> bool {
    let missed = |generation: Generation| device.generation < generation && generation <= until;
    let changes = base
        .slots
        .iter()
        .filter(|slot| missed(slot.generation))
        .count() as u64;
    let stops = u64::from(device.active && !base.active);
    let behind = until.get().saturating_sub(device.generation.get());
    behind > changes.saturating_add(stops).saturating_add(1)
}

/// Checks that there are generations left for what an array called `name` will have to record
/// behind `newest`: beyond the greatest, nothing written would be believed.
///
/// # Errors
///
/// `ERANGE` where there are not, unless nothing is going to be written.
pub fn check_generation(name: &str, newest: Generation, options: Options) -> Result<(), Refusal> {
    if options.readonly || newest.get() <= GENERATION_MAX - GENERATIONS_NEEDED {
        return Ok(());
    }
    Err(refuse!(
        Errno::Range,
        "{name}: no generations are left behind {newest} for its metadata; assemble with \
         readonly=1 and copy the data"
    ))
}

/// The refusal of a device whose superblock is not believed.
pub fn unreadable(name: &str, error: SbError) -> Refusal {
    let errno = match error {
        SbError::NotOurs | SbError::Crc | SbError::Nonsense(_) => Errno::Inval,
        SbError::Version | SbError::UnknownFeature => Errno::OpNotSupp,
    };
    refuse!(errno, "{name} {}", error.as_str())
}

/// Decides whether and how the candidates form an array.
///
/// Any order will do. A set that lacks members which the array expects is
/// [`Incomplete`](Decision::Incomplete), unless `degraded` allows it to start.
///
/// # Errors
///
/// * `EINVAL`: no candidates, members of different arrays, a device that is too small, out of date
///   or replaced;
/// * `EEXIST`: the same member twice;
/// * `EROFS`: a read-only device, or a feature that only allows reading, without `readonly`;
/// * `EUCLEAN`: members that ran apart, or data that only stale members have, without `force`;
/// * `ERANGE`: a generation at the end of its range, without `readonly`;
/// * `ENODEV`: too few members.
pub fn decide(candidates: &[Candidate<'_>], options: Options) -> Result<Decision, Refusal> {
    let (base, newest) = newest(candidates)?;
    let name = newest.superblock.name.as_str();
    check_generation(name, newest.superblock.generation, options)?;
    for (index, candidate) in candidates.iter().enumerate() {
        check_same_array(newest, candidate)?;
        check_device(newest.superblock, candidate, options)?;
        let mut others = candidates.iter().take(index);
        if let Some(twin) = others.find(|other| is_twin(other, candidate)) {
            return Err(refuse!(
                Errno::Exist,
                "{} and {} are the same member (slot {}): one is a copy, take it away",
                twin.name,
                candidate.name,
                candidate.superblock.slot
            ));
        }
    }
    let mut assembly = Assembly {
        base,
        members: [None; MAX_SLOTS],
        in_sync: SlotSet::EMPTY,
        caught_up: SlotSet::EMPTY,
        recovering: SlotSet::EMPTY,
        spares: SlotSet::EMPTY,
        unclean: newest.superblock.active,
    };
    for (index, candidate) in candidates.iter().enumerate() {
        assembly.place(index, newest, candidate, options)?;
    }
    if options.force && assembly.in_sync.len() < members_needed(newest.superblock) {
        // Old data is better than none, but not than what the others make up for.
        for (index, candidate) in candidates.iter().enumerate() {
            assembly.place_outdated(index, newest, candidate);
        }
    }
    // Nobody waits for a member that is there, however old it is.
    let is_old = |candidate: &&Candidate<'_>| {
        standing(newest.superblock, candidate.superblock) == Standing::Outdated
    };
    let old = candidates.iter().filter(is_old);
    let old = old.map(|candidate| candidate.superblock.slot).collect();
    assembly.conclude(newest.superblock, old, options)
}

impl Assembly {
    /// Gives a candidate its slot, or leaves it out.
    fn place(
        &mut self,
        index: usize,
        newest: &Candidate<'_>,
        candidate: &Candidate<'_>,
        options: Options,
    ) -> Result<(), Refusal> {
        let slot = home_of(newest.superblock, candidate.superblock);
        match standing(newest.superblock, candidate.superblock) {
            Standing::Spare => self.spares.insert(slot),
            Standing::InSync => self.in_sync.insert(slot),
            Standing::Recovering => self.recovering.insert(slot),
            Standing::CatchUp => {
                self.in_sync.insert(slot);
                self.caught_up.insert(slot);
            }
            Standing::Outdated if options.force => return Ok(()),
            Standing::Rebuild => return Ok(()),
            Standing::Diverged if options.force => return Ok(()),
            Standing::Diverged => return Err(diverged(newest, candidate)),
            Standing::Outdated => return Err(outdated(newest, candidate)),
            Standing::Replaced => {
                return Err(refuse!(
                Errno::Inval,
                "{} was replaced: slot {slot} of {} belongs to another member now; leave it out",
                candidate.name,
                newest.superblock.name.as_str()
            ))
            }
        }
        if let Some(member) = self.members.get_mut(slot.index()) {
            *member = u8::try_from(index).ok();
        }
        Ok(())
    }

    /// Gives an old copy of a member its slot.
    fn place_outdated(&mut self, index: usize, newest: &Candidate<'_>, candidate: &Candidate<'_>) {
        let slot = home_of(newest.superblock, candidate.superblock);
        if standing(newest.superblock, candidate.superblock) != Standing::Outdated {
            return;
        }
        match newest.superblock.record(slot).state {
            SlotState::InSync => self.in_sync.insert(slot),
            SlotState::Recovering(_) => self.recovering.insert(slot),
            _ => return,
        }
        if let Some(member) = self.members.get_mut(slot.index()) {
            *member = u8::try_from(index).ok();
        }
    }

    /// Decides whether the members suffice.
    fn conclude(
        self,
        base: &Superblock,
        old: SlotSet,
        options: Options,
    ) -> Result<Decision, Refusal> {
        let geometry = &base.geometry;
        let present = self.present();
        let expected = geometry
            .all_slots()
            .iter()
            .filter(|slot| expects(base, *slot))
            .collect::<SlotSet>()
            .minus(present)
            .minus(old);
        if !expected.is_empty() && !options.degraded {
            return Ok(Decision::Incomplete(Incomplete { present, expected }));
        }
        let needed = members_needed(base);
        let (current, all) = (self.in_sync.minus(self.caught_up), self.in_sync);
        if all.len() < needed {
            return Err(refuse!(
                Errno::NoDev,
                "{}: {} of {} members in sync, {needed} are needed; not there: slot{}",
                base.name.as_str(),
                all.len(),
                geometry.members(),
                Slots(geometry.all_slots().minus(all))
            ));
        }
        if current.len() < needed && !options.force {
            return Err(refuse!(
                Errno::Uclean,
                "{}: it takes members that missed writes to start: slot{}; bring the others, or \
                 lose what they missed with force=1",
                base.name.as_str(),
                Slots(self.caught_up)
            ));
        }
        Ok(Decision::Start(self))
    }
}

/// Checks that a device which carries a superblock of a running array can be taken back into its slot,
/// which is returned; `base` is what the array would write. A member lacks what is stale there in the
/// region map. It is the caller's to know that no spare is there twice.
///
/// # Errors
///
/// * `EBUSY`: the array has not given its slot up;
/// * `EINVAL`: it is too small, out of date or replaced, or nothing vouches for what it holds;
/// * `EROFS`: it cannot be written;
/// * `EUCLEAN`: it ran without the array.
pub fn rejoin(base: &Superblock, candidate: &Candidate<'_>) -> Result<Slot, Refusal> {
    let running = Candidate {
        name: "the running array",
        superblock: base,
        size: base.front.size_for(base.geometry.component()),
        read_only: false,
    };
    check_same_array(&running, candidate)?;
    check_device(base, candidate, Options::default())?;
    let (name, slot) = (candidate.name, home_of(base, candidate.superblock));
    let why = match (
        standing(base, candidate.superblock),
        base.record(slot).state,
    ) {
        (Standing::Diverged, _) => {
            return Err(refuse!(
                Errno::Uclean,
                "{name} ran without the array: clear it first, with wipefs or dd"
            ))
        }
        (Standing::Replaced, _) => "its slot belongs to another member now",
        (Standing::Outdated, _) => "it is out of date",
        (Standing::Rebuild, _) => "nothing says what of it is right",
        (
            Standing::CatchUp | Standing::Recovering | Standing::InSync,
            SlotState::Faulty | SlotState::Missing,
        )
        | (Standing::Spare, _) => return Ok(slot),
        (Standing::CatchUp | Standing::Recovering | Standing::InSync, _) => {
            return Err(refuse!(
                Errno::Busy,
                "{} counts on slot {slot} still: stop the array, then assemble it with {name}",
                base.name.as_str()
            ))
        }
    };
    Err(refuse!(
        Errno::Inval,
        "{name} cannot be taken back: {why}; to use it as a new member, clear it first with wipefs or dd"
    ))
}

/// The candidate with the newest superblock, the first of several.
fn newest<'c, 's>(candidates: &'c [Candidate<'s>]) -> Result<(usize, &'c Candidate<'s>), Refusal> {
    let indexed = candidates.iter().enumerate();
    indexed
        .rev()
        .max_by_key(|(_, candidate)| candidate.superblock.generation)
        .ok_or_else(|| refuse!(Errno::Inval, "no members"))
}

/// Checks that a candidate belongs to the array of another one, and describes the same.
fn check_same_array(newest: &Candidate<'_>, candidate: &Candidate<'_>) -> Result<(), Refusal> {
    let (base, other) = (newest.superblock, candidate.superblock);
    if base.array != other.array {
        return Err(refuse!(
            Errno::Inval,
            "{} belongs to array {} ({}), {} to {} ({})",
            candidate.name,
            other.name.as_str(),
            other.array,
            newest.name,
            base.name.as_str(),
            base.array
        ));
    }
    let same = base.name == other.name
        && base.geometry == other.geometry
        && base.front == other.front
        && base.regions == other.regions
        && base.policy == other.policy
        && base.logical_block_size == other.logical_block_size;
    if !same {
        return Err(refuse!(
            Errno::Inval,
            "{} and {} describe {} differently",
            newest.name,
            candidate.name,
            base.name.as_str()
        ));
    }
    Ok(())
}

/// Checks the device of a candidate.
fn check_device(
    base: &Superblock,
    candidate: &Candidate<'_>,
    options: Options,
) -> Result<(), Refusal> {
    let needed = base.front.size_for(base.geometry.component());
    if candidate.size < needed {
        return Err(refuse!(
            Errno::Inval,
            "{} has {} sectors, a member of {} needs {needed}",
            candidate.name,
            candidate.size,
            base.name.as_str()
        ));
    }
    if options.readonly {
        return Ok(());
    }
    if candidate.read_only {
        return Err(refuse!(
            Errno::RoFs,
            "{} is read-only; assemble with readonly=1",
            candidate.name
        ));
    }
    if candidate.superblock.read_only_features != 0 {
        return Err(refuse!(
            Errno::RoFs,
            "{} uses features {:#x} which this version can only read; assemble with readonly=1",
            candidate.name,
            candidate.superblock.read_only_features
        ));
    }
    Ok(())
}

/// Whether two candidates carry the same member.
fn is_twin(a: &Candidate<'_>, b: &Candidate<'_>) -> bool {
    a.superblock.member() == b.superblock.member()
}

/// Whether the array counts on the member of a slot.
fn expects(base: &Superblock, slot: Slot) -> bool {
    matches!(
        base.record(slot).state,
        SlotState::InSync | SlotState::Recovering(_)
    )
}

/// The refusal of members that ran apart.
fn diverged(newest: &Candidate<'_>, candidate: &Candidate<'_>) -> Refusal {
    refuse!(
        Errno::Uclean,
        "{} and {} ran without each other (generation {} and {}): leave one out, or take {} with \
         force=1",
        newest.name,
        candidate.name,
        newest.superblock.generation,
        candidate.superblock.generation,
        newest.name
    )
}

/// The refusal of an old member.
fn outdated(newest: &Candidate<'_>, candidate: &Candidate<'_>) -> Refusal {
    refuse!(
        Errno::Inval,
        "{} is out of date (generation {}, {} has {}): leave it out",
        candidate.name,
        candidate.superblock.generation,
        newest.name,
        newest.superblock.generation
    )
}

/// Slots for a message: ` 1, 4`.
struct Slots(SlotSet);

impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_slots(f, self.0)
    }
}

fn write_slots(f: &mut fmt::Formatter<'_>, slots: SlotSet) -> fmt::Result {
    for (index, slot) in slots.iter().enumerate() {
        write!(f, "{} {slot}", if index == 0 { "" } else { "," })?;
    }
    Ok(())
}
