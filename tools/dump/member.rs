// SPDX-License-Identifier: GPL-2.0

//! Reads and judges everything in front of a member's data.

use crate::report::Report;
use eraid_core::badblocks::{self, BadBlocks, BadPage, BadRange, RANGES_MAX};
use eraid_core::checkpoint::Checkpoint;
use eraid_core::crc32c::reference;
use eraid_core::layout::{superblock, Area};
use eraid_core::metapage::{Page, PageError, PageId, Side, PAGE_SIZE};
use eraid_core::regionmap::{Init, MapPage, Region};
use eraid_core::superblock::{choose, SbError, SlotState, Superblock};
use eraid_core::units::{Generation, RegionNo, Sector, Sectors, Slot, SlotSet, SECTOR_SHIFT};
use eraid_tools::device::{Buffer, Device};
use std::io;

/// Pages of one side that are read at once.
const PAGES_AT_ONCE: u32 = 256;

/// The letter of a side.
const fn letter(side: Side) -> char {
    match side {
        Side::A => 'a',
        Side::B => 'b',
    }
}

/// Examines a member; `all` adds every page and every region.
///
/// # Errors
///
/// Those of reading where both superblocks are. What cannot be read behind them is a problem of the
/// member, and in the report.
pub(crate) fn examine(device: &Device, all: bool) -> io::Result<Report> {
    let mut report = Report::default();
    let size = Sectors::from_bytes(device.size()?);
    report.line("device", device.path().display());
    report.line("sectors", size);
    if let Some(superblock) = superblocks(device, &mut report)? {
        describe(&superblock, size, &mut report);
        let mut examiner = Examiner {
            device,
            superblock: &superblock,
            report: &mut report,
            all,
        };
        examiner.map();
        examiner.bad_blocks();
        examiner.checkpoint();
    }
    Ok(report)
}

/// The two superblocks; returns the one that counts.
fn superblocks(device: &Device, report: &mut Report) -> io::Result<Option<Superblock>> {
    let mut read = Vec::new();
    for side in Side::BOTH {
        let page = read_pages(device, superblock(side), 1)?;
        let found = page.first().ok_or(SbError::NotOurs);
        let found = found.and_then(|page| Superblock::decode(page, reference));
        let key = format!("superblock_{}", letter(side));
        report.line(
            &key,
            found.as_ref().map_or_else(|e| e.as_str(), |_| "valid"),
        );
        if let Ok(superblock) = &found {
            report.line(format!("{key}_generation"), superblock.generation);
        }
        read.push(found);
    }
    let [a, b] = read.as_slice() else {
        return Ok(None);
    };
    let side = match choose(a.as_ref().map_err(|e| *e), b.as_ref().map_err(|e| *e)) {
        Ok(side) => side,
        Err(error) => {
            report.line("superblock", "none");
            report.problem(format_args!("it {}", error.as_str()));
            return Ok(None);
        }
    };
    report.line("superblock", letter(side));
    match (a, b) {
        (Ok(a), Ok(b)) if a.generation == b.generation && a != b => {
            report.problem("both superblocks have the same generation, and differ");
        }
        (Ok(a), Ok(b)) if (a.slot, a.member()) != (b.slot, b.member()) => {
            report.problem("the superblocks are those of two members");
        }
        (Ok(_), Ok(_)) => {}
        _ => report.note("one superblock is torn"),
    }
    let index = usize::from(side == Side::B);
    Ok(read.swap_remove(index).ok())
}

/// What the superblock says.
fn describe(superblock: &Superblock, size: Sectors, report: &mut Report) {
    let geometry = &superblock.geometry;
    report.line("array", superblock.array);
    report.line("name", superblock.name.as_str());
    report.line("generation", superblock.generation);
    report.line("level", geometry.level().number());
    report.line("raid_disks", geometry.members());
    report.line("chunk", geometry.chunk());
    report.line("component", geometry.component());
    report.line("logical_block_size", superblock.logical_block_size);
    report.line("consistency_policy", superblock.policy.as_str());
    report.line("active", u8::from(superblock.active));
    report.line("read_only_features", superblock.read_only_features);
    report.line("data", superblock.front.data);
    let areas = [
        ("bad_blocks", superblock.front.bad_blocks),
        ("map", superblock.front.map),
        ("checkpoint", superblock.front.checkpoint),
        ("ppl", superblock.front.ppl),
    ];
    for (name, area) in areas {
        report.line(format!("{name}_start"), area.start);
        report.line(format!("{name}_sectors"), area.len);
    }
    report.line("region", 1u64 << superblock.regions.shift());
    report.line("regions", superblock.regions.count());
    report.line("slot", superblock.slot);
    report.line("member", superblock.member());
    for number in 0..64 {
        if let Some(slot) = Slot::new(number) {
            describe_slot(superblock, slot, report);
        }
    }
    let needed = superblock.front.size_for(geometry.component());
    if size < needed {
        report.problem(format_args!(
            "the member has {size} sectors, the array uses {needed} of it"
        ));
    }
}

/// What the superblock says of a slot.
fn describe_slot(superblock: &Superblock, slot: Slot, report: &mut Report) {
    let record = superblock.record(slot);
    if record.state == SlotState::Empty {
        return;
    }
    report.line(format!("slot_{slot}"), record.state.as_str());
    report.line(format!("slot_{slot}_member"), record.uuid);
    report.line(format!("slot_{slot}_generation"), record.generation);
    if let SlotState::Recovering(offset) = record.state {
        report.line(format!("slot_{slot}_recovered"), offset);
    }
}

/// Goes through the metadata pages of a member.
struct Examiner<'a> {
    device: &'a Device,
    superblock: &'a Superblock,
    report: &'a mut Report,
    all: bool,
}

/// Which of two copies of a page counts.
struct Chosen<'p> {
    page: &'p Page,
    generation: Generation,
}

impl Examiner<'_> {
    fn id(&self, number: u32) -> PageId {
        PageId {
            array: self.superblock.array,
            number,
        }
    }

    /// Reads both copies of the first `count` pages of an area and gives each pair to `each`.
    fn pages(
        &mut self,
        name: &str,
        area: Area,
        count: u32,
        mut each: impl FnMut(&mut Self, u32, &Page, &Page),
    ) {
        let mut first = 0;
        while first < count {
            let some = PAGES_AT_ONCE.min(count - first);
            let read = |side| match area.page(side, first) {
                Some(at) => read_pages(self.device, at, some),
                None => Err(io::Error::other("is behind the end of the area")),
            };
            match (read(Side::A), read(Side::B)) {
                (Ok(a), Ok(b)) => {
                    for (number, (a, b)) in (first..).zip(a.iter().zip(&b)) {
                        each(self, number, a, b);
                    }
                }
                (Err(error), _) | (_, Err(error)) => {
                    let what = format!("{name} pages from {first} on: {error}");
                    return self.report.problem(what);
                }
            }
            first += some;
        }
    }

    /// Judges both copies of a page by `decode`, and returns the one that counts.
    fn judge<'p>(
        &mut self,
        name: &str,
        [a, b]: [&'p Page; 2],
        decode: impl Fn(&Page) -> Result<Generation, PageError>,
    ) -> Option<Chosen<'p>> {
        let copies = [(Side::A, a, decode(a)), (Side::B, b, decode(b))];
        for (side, _, found) in &copies {
            let side = *side;
            if self.all {
                let key = format!("{name}_{}", letter(side));
                let word = found.as_ref().map_or_else(|e| e.as_str(), |_| "valid");
                self.report.line(&key, word);
                if let Ok(generation) = found {
                    self.report.line(key + "_generation", generation);
                }
            }
            let place = format!("{name}, copy {}", letter(side));
            match found {
                Ok(generation) if Side::of(*generation) != side => self.report.problem(
                    format_args!("{place}: generation {generation} belongs to the other place"),
                ),
                // What the place held before the array was created does not count.
                Ok(_) | Err(PageError::NotOurs | PageError::Foreign) => {}
                Err(PageError::Crc) => self.report.note(format_args!("{place} is torn")),
                Err(error) => self
                    .report
                    .problem(format_args!("{place} {}", error.as_str())),
            }
        }
        let [(_, _, found_a), (_, _, found_b)] = &copies;
        let side = Side::newest(found_a.ok(), found_b.ok());
        if self.all {
            let word = side.map_or("none".to_string(), |side| letter(side).to_string());
            self.report.line(name, word);
        }
        let side = side?;
        let chosen = copies.into_iter().find(|(of, _, _)| *of == side);
        chosen.and_then(|(_, page, found)| {
            let generation = found.ok()?;
            Some(Chosen { page, generation })
        })
    }

    /// The region map.
    fn map(&mut self) {
        let regions = self.superblock.regions;
        let slots = self.superblock.geometry.all_slots();
        let mut sum = MapSum::default();
        self.pages(
            "region map",
            self.superblock.front.map,
            regions.pages(),
            |this, number, a, b| {
                let id = this.id(number);
                let decode = |page: &Page| {
                    let page = MapPage::decode(page, reference, id, &regions, slots)?;
                    Ok(page.generation())
                };
                let name = format!("map_{number}");
                let Some(chosen) = this.judge(&name, [a, b], decode) else {
                    let what = format!("page {number} of the region map has no valid copy");
                    return this.report.problem(what);
                };
                sum.newest = sum.newest.max(chosen.generation);
                if let Ok(page) = MapPage::decode(chosen.page, reference, id, &regions, slots) {
                    this.regions(&mut sum, number, &page);
                }
            },
        );
        sum.print(self.report, slots);
    }

    /// The regions of a page of the map.
    fn regions(&mut self, sum: &mut MapSum, number: u32, page: &MapPage<'_>) {
        let (first, count) = self.superblock.regions.regions_of(number);
        for entry in 0..count {
            let region = page.get(entry);
            sum.add(&region);
            if self.all && region != Region::NEW {
                let number = RegionNo::new(first.get() + entry as u64);
                self.report
                    .line(format!("region_{number}"), in_words(&region));
            }
        }
    }

    /// The lists of bad blocks of all slots.
    fn bad_blocks(&mut self) {
        let area = self.superblock.front.bad_blocks;
        let members = self.superblock.geometry.members();
        let component = self.superblock.geometry.component();
        let per_slot = badblocks::pages_per_slot(area, members);
        let new_list = || BadBlocks::new(vec![BadRange::default(); RANGES_MAX]);
        let mut list = new_list();
        let count = per_slot.saturating_mul(u32::from(members));
        self.pages("bad-block", area, count, |this, number, a, b| {
            let (slot, part) = (number / per_slot.max(1), number % per_slot.max(1));
            if part == 0 {
                list = new_list();
            }
            let id = this.id(number);
            let decode = |page: &Page| {
                let page = BadPage::decode(page, reference, id, component)?;
                Ok(page.generation())
            };
            let name = format!("bad_{slot}_{part}");
            let chosen = this.judge(&name, [a, b], decode);
            let page = chosen.map(|chosen| BadPage::decode(chosen.page, reference, id, component));
            let wrong = match page {
                Some(Ok(page)) => list.append(&page).err().map(PageError::as_str),
                _ => Some("has no valid copy"),
            };
            if let Some(wrong) = wrong {
                this.report.problem(format_args!(
                    "part {part} of the bad-block list of slot {slot} {wrong}"
                ));
            }
            if part + 1 == per_slot {
                this.report
                    .line(format!("bad_blocks_{slot}"), list.ranges().len());
                for range in list.ranges() {
                    let range = format!("{} {}", range.start, range.len);
                    this.report.line(format!("bad_block_{slot}"), range);
                }
            }
        });
    }

    /// The checkpoint.
    fn checkpoint(&mut self) {
        let geometry = self.superblock.geometry;
        let array = self.superblock.array;
        let read = |page: &Page| {
            let (members, component) = (geometry.members(), geometry.component());
            Checkpoint::decode(page, reference, array, members, component)
        };
        let area = self.superblock.front.checkpoint;
        self.pages("checkpoint", area, 1, |this, _, a, b| {
            let decode = |page: &Page| read(page).map(|(generation, _)| generation);
            let chosen = this.judge("checkpoint", [a, b], decode);
            let Some(Ok((_, checkpoint))) = chosen.map(|chosen| read(chosen.page)) else {
                return;
            };
            if let Some(rebuild) = checkpoint.rebuild {
                this.report.line("rebuild_slot", rebuild.slot);
                this.report.line("rebuild_member", rebuild.member);
                this.report.line("rebuild_done", rebuild.done);
            }
            if let Some(scrub) = checkpoint.scrub {
                this.report
                    .line("scrub", format!("{:?}", scrub.kind).to_lowercase());
                this.report.line("scrub_done", scrub.done);
                this.report.line("scrub_mismatches", scrub.mismatches);
            }
        });
    }
}

/// What a member's region map says in all.
#[derive(Default)]
struct MapSum {
    newest: Generation,
    none: u64,
    partial: u64,
    full: u64,
    in_flight: u64,
    need_sync: u64,
    stale: Vec<u64>,
}

impl MapSum {
    fn add(&mut self, region: &Region) {
        let count = match region.init {
            Init::None => &mut self.none,
            Init::Partial => &mut self.partial,
            Init::Full => &mut self.full,
        };
        *count += 1;
        self.in_flight += u64::from(region.in_flight);
        self.need_sync += u64::from(region.need_sync);
        self.stale.resize(64, 0);
        for slot in region.stale.iter() {
            self.stale[slot.index()] += 1;
        }
    }

    fn print(&self, report: &mut Report, slots: SlotSet) {
        report.line("map_generation", self.newest);
        report.line("regions_none", self.none);
        report.line("regions_partial", self.partial);
        report.line("regions_full", self.full);
        report.line("regions_in_flight", self.in_flight);
        report.line("regions_need_sync", self.need_sync);
        for slot in slots.iter() {
            let stale = self.stale.get(slot.index()).copied().unwrap_or(0);
            report.line(format!("regions_stale_{slot}"), stale);
        }
    }
}

/// A region in words.
fn in_words(region: &Region) -> String {
    let init = match region.init {
        Init::None => "none",
        Init::Partial => "partial",
        Init::Full => "full",
    };
    let flags = [
        (region.in_flight, " in_flight"),
        (region.need_sync, " need_sync"),
    ];
    let mut words = init.to_string();
    flags
        .iter()
        .filter(|(set, _)| *set)
        .for_each(|(_, word)| words += word);
    if !region.stale.is_empty() {
        let slots: Vec<String> = region.stale.iter().map(|slot| slot.to_string()).collect();
        words += &format!(" stale {}", slots.join(","));
    }
    words
}

/// Reads pages that follow each other.
fn read_pages(device: &Device, at: Sector, count: u32) -> io::Result<Vec<Page>> {
    let len = count as usize * PAGE_SIZE;
    let mut buffer = Buffer::new(len);
    let offset = at.get().checked_shl(SECTOR_SHIFT);
    let offset = offset.ok_or_else(|| io::Error::other("an impossible position"))?;
    device.read(buffer.get_mut(len), offset)?;
    let pages = buffer.get(len).chunks_exact(PAGE_SIZE);
    Ok(pages.filter_map(|page| page.try_into().ok()).collect())
}
