// SPDX-License-Identifier: GPL-2.0

//! Starting and stopping arrays.

use kernel::{
    prelude::*,
    sync::Arc,
    time::{delay::fsleep, Delta},
};

use crate::{
    array::Array,
    claims::Claim,
    disk_io::c_name,
    error::refused,
    flush::{After, Flush},
    intake::DEPTH,
    kapi::{
        device::{wait_closed, DeviceEvents},
        disk::{Disk, DiskConfig},
        limits::{DiscardLimits, Limits, LimitsConfig},
        sysfs::Kobject,
        tagset::TagSet,
        time::now_us,
    },
    member::Member,
    member_attrs::MemberDir,
    op::Work,
    registry::{Registry, Running, Shown},
};
use eraid_core::{
    control::StopTarget,
    discard,
    geometry::Level,
    refusal::{Errno, Refusal},
    refuse,
    units::{Micros, Slot},
};

/// How long a stop waits for users to close the disk and for requests to end.
const STOP_WAIT_US: u64 = 2_000_000;
/// How long it waits for the members to be flushed and marked clean.
const SETTLE_WAIT_US: u64 = 2_000_000;
/// How long it waits for devices to be closed.
pub(crate) const CLOSE_WAIT_MS: u32 = 2000;
/// Steps of such waits.
const STEP: Delta = Delta::from_millis(10);
/// Requests without an answer for so long are failed by a stop.
const STUCK_US: u64 = 1_000_000;

/// Tells an array that a member's device is gone.
struct Watch {
    array: Arc<Array>,
    slot: Slot,
}

impl DeviceEvents for Watch {
    fn device_dead(&self, _surprise: bool) {
        self.array.device_gone(self.slot);
    }
}

impl Registry {
    /// Starts an array of members whose superblocks say that it runs.
    pub(crate) fn start(
        self: &Arc<Self>,
        array: Arc<Array>,
        logical_block_size: u32,
        number: u32,
        claim: Claim,
    ) -> Result<(), Refusal> {
        let name = c_name(format_args!("eraid{number}"))
            .map_err(|error| refused(error, "naming", "the disk"))?;
        // Before the disk is added: partition tables are read then, from members that may hang.
        array.begin();
        let started = self.add_disk(&array, &name, logical_block_size);
        let disk = match started {
            Ok(disk) => disk,
            Err(error) => {
                array.close();
                array.end_tick();
                disconnect(&array);
                return Err(refused(error, "adding the disk of", array.name()));
            }
        };
        array.set_dev(disk.dev());
        let mut running = Running {
            members: KVec::new(),
            spares: KVec::new(),
            directory: None,
            disk,
            array: array.clone(),
            number,
            link: None,
            claim,
        };
        let shown = self.show(&mut running);
        let listed = shown.and_then(|()| {
            let mut all = self.running.lock();
            all.reserve(1, GFP_KERNEL)?;
            Ok(all)
        });
        match listed {
            Ok(mut all) => {
                // Before anybody can find the array and stop it.
                running.claim.set_running();
                let _ = all.push_within_capacity(running);
            }
            Err(error) => {
                let refusal = refused(error, "adding the files of", array.name());
                self.settle(&array);
                self.tear_down(running);
                return Err(refusal);
            }
        }
        array.queue_uevent(c"ERAID_EVENT=started", None);
        array.note_change();
        array_info!(
            array.name(),
            "eraid{number} started: {}, {} of {} members",
            array.geometry.level().as_str(),
            array.in_sync().len(),
            array.geometry.members()
        );
        Ok(())
    }

    #[inline(never)]
    fn add_disk(
        self: &Arc<Self>,
        array: &Arc<Array>,
        name: &CStr,
        logical_block_size: u32,
    ) -> Result<Disk<Array>> {
        let mut limits = limits(array, logical_block_size);
        for slot in array.geometry.all_slots().iter() {
            if let Some(member) = array.member(slot) {
                limits.stack_member(&member.device, member.data_start)?;
                let watch = Watch {
                    array: array.clone(),
                    slot,
                };
                member.device.connect(Arc::new(watch, GFP_KERNEL)?);
            }
        }
        array.spares.with(|spares| {
            let data_start = array.with_superblock(|superblock| superblock.front.data.get());
            let mut spares = spares.iter();
            spares.try_for_each(|spare| limits.stack_member(&spare.device, data_start))
        })?;
        let config = DiskConfig {
            name,
            limits: &limits,
            capacity: array.geometry.capacity().get(),
            read_only: array.read_only,
        };
        Disk::add(config, TagSet::new(DEPTH, 1)?, array.clone())
    }

    /// Makes the files and links of an array.
    #[inline(never)]
    fn show(&self, running: &mut Running) -> Result {
        let array = running.array.clone();
        let directory = Kobject::add(running.disk.kobject(), c"eraid", array.clone())?;
        running.directory = Some(directory);
        for slot in array.geometry.all_slots().iter() {
            running.members.push(None, GFP_KERNEL)?;
            if let Some(member) = array.member(slot) {
                running.show_member(member)?;
            }
        }
        running.show_spares()?;
        let link = c_name(format_args!("{}", array.name()))?;
        self.class.link(&link, running.disk.kobject())?;
        running.link = Some(link);
        Ok(())
    }

    /// Stops an array. `EBUSY` while it is open, and then nothing is changed; but when it hangs and
    /// nobody has claimed it, the requests that hang are failed so that their users can close it.
    pub(crate) fn stop(self: &Arc<Self>, target: StopTarget<'_>) -> Result<(), Refusal> {
        let deadline = now_us() + STOP_WAIT_US;
        let running = loop {
            match self.take_idle(target)? {
                Some(running) => break running,
                None if now_us() > deadline => {
                    return Err(refuse!(Errno::Busy, "the array is in use"))
                }
                None => fsleep(STEP),
            }
        };
        self.settle(&running.array);
        self.tear_down(running);
        Ok(())
    }

    /// Takes a closed array out of the list; `None` when it is open but may be closed soon.
    fn take_idle(&self, target: StopTarget<'_>) -> Result<Option<Running>, Refusal> {
        let mut all = self.running.lock();
        let wanted = |running: &Running| match target {
            StopTarget::Dev(number) => running.number == number,
            StopTarget::Name(name) => running.array.name() == name,
        };
        let index = all.iter().position(wanted).ok_or_else(|| match target {
            StopTarget::Dev(number) => refuse!(Errno::NoEnt, "eraid{number} does not run"),
            StopTarget::Name(name) => refuse!(Errno::NoEnt, "no array {name} runs"),
        })?;
        let Some(running) = all.get(index) else {
            return Ok(None);
        };
        if running.disk.begin_stop().is_ok() {
            running.claim.set_ending();
            return all
                .remove(index)
                .map(Some)
                .map_err(|_| refuse!(Errno::NoEnt, "the array is gone"));
        }
        if running.disk.openers() == 0 {
            // Somebody just closes it.
            return Ok(None);
        }
        let stuck = now_us().saturating_sub(STUCK_US);
        if running.disk.is_claimed() || !running.array.is_stuck(stuck) {
            return Err(self.in_use(running));
        }
        running.array.abort_stuck(stuck);
        Ok(None)
    }

    /// Says by whom an open array is used.
    fn in_use(&self, running: &Running) -> Refusal {
        let name = running.array.name();
        match self.claims.user_of(running.disk.dev()) {
            Some(user) => refuse!(Errno::Busy, "{name} {}", user.as_str()),
            None => refuse!(
                Errno::Busy,
                "{name}: in use by {} openers",
                running.disk.openers()
            ),
        }
    }

    /// Lets requests end, and marks the array as stopped cleanly, as far as the members answer.
    fn settle(&self, array: &Arc<Array>) {
        array.close();
        array.end_tick();
        let idle = || array.active() == 0;
        if !wait_until(now_us() + STOP_WAIT_US, idle) {
            array_warn!(array.name(), "requests without an answer are failed");
            abort_all(array);
        }
        if array.read_only {
            return;
        }
        let deadline = now_us() + SETTLE_WAIT_US;
        let flushed = !array.begin_clear_idle(Micros::ZERO)
            || (array.start_work(Work::Flush(Flush::with(After::Clear)))
                && wait_until(deadline, idle));
        if !flushed {
            abort_all(array);
        }
        array.record_stop();
        if !(wait_until(deadline, || array.settled()) && flushed) {
            array_warn!(
                array.name(),
                "could not be marked clean on all members; what was written last is resynced"
            );
        }
    }

    /// Removes everything user space sees of an array and lets go of its members.
    ///
    /// Needs no memory: it also runs because there is none.
    fn tear_down(&self, running: Running) {
        let Running {
            mut members,
            spares,
            directory,
            disk,
            array,
            number: _,
            link,
            claim,
        } = running;
        if let Some(link) = link {
            self.class.unlink(&link);
        }
        array.close();
        array.end_tick();
        for shown in members.iter_mut().flatten() {
            drop(shown.directory.take());
        }
        drop(spares);
        drop(directory);
        drop(disk);
        array.end();
        drop(array.spares.take_all());
        for slot in array.geometry.all_slots().iter() {
            let Some(member) = array.release(slot) else {
                continue;
            };
            let mut others = members.iter().flatten();
            if !others.any(|shown| Arc::ptr_eq(&shown.member, &member)) {
                self.let_go(&array, member);
            }
        }
        // Those that were removed and whose removal nobody saw to yet are among these.
        for shown in members.into_iter().flatten() {
            self.let_go(&array, shown.member);
        }
        while array.next_uevent().is_some() {}
        self.reap();
        array_info!(array.name(), "stopped");
        drop(array);
        // Nothing of it is left that another one could run into.
        drop(claim);
        // So that members can be opened again at once.
        wait_closed(CLOSE_WAIT_MS);
    }
}

impl Running {
    /// Makes the directory and the links of a member.
    #[inline(never)]
    pub(crate) fn show_member(&mut self, member: Arc<Member>) -> Result {
        let directory = self.directory.as_ref().ok_or(ENODEV)?;
        let place = self.members.get_mut(member.place.index()).ok_or(EINVAL)?;
        let name = c_name(format_args!("dev-{}", Escaped(member.name())))?;
        let slot = member.place;
        let link = c_name(format_args!("rd{slot}"))?;
        let data = Arc::new(
            MemberDir {
                array: self.array.clone(),
                member: member.clone(),
            },
            GFP_KERNEL,
        )?;
        self.disk.link_member(member.device.clone())?;
        let shown = place.insert(Shown {
            directory: None,
            link,
            member,
        });
        let own = Kobject::add(directory.kobject(), &name, data)?;
        let own = shown.directory.insert(own);
        own.link(c"block", shown.member.device.kobject())?;
        directory.link(&shown.link, own.kobject())
    }

    /// Takes away what [`Self::show_member`] made, as far as it came. The member is returned.
    pub(crate) fn hide_member(&mut self, slot: Slot) -> Option<Arc<Member>> {
        let shown = self.members.get_mut(slot.index())?.take()?;
        if let Some(directory) = &self.directory {
            directory.unlink(&shown.link);
        }
        shown.member.device.disconnect();
        self.disk.unlink_member(&shown.member.device);
        self.claim.remove_device(shown.member.device.dev());
        // Last: who sees that it is gone may rely on all of the above.
        drop(shown.directory);
        Some(shown.member)
    }

    /// Has the array told when the device of a member goes.
    pub(crate) fn watch(&self, member: &Member) -> Result {
        let watch = Watch {
            array: self.array.clone(),
            slot: member.place,
        };
        member.device.connect(Arc::new(watch, GFP_KERNEL)?);
        Ok(())
    }
}

impl Registry {
    /// Lets go of a member; what its device still holds is remembered.
    fn let_go(&self, array: &Arc<Array>, member: Arc<Member>) {
        member.device.disconnect();
        member.close(array);
        self.add_zombie(array, member);
    }
}

/// Breaks the circles of members and their array.
fn disconnect(array: &Array) {
    for slot in array.geometry.all_slots().iter() {
        if let Some(member) = array.member(slot) {
            member.device.disconnect();
        }
    }
}

/// Ends all operations; none of them waits for anything then.
fn abort_all(array: &Arc<Array>) {
    array.abort_all();
    wait_until(now_us() + STOP_WAIT_US, || array.active() == 0);
}

/// Waits until `done`; `false` when it was not by `deadline`.
fn wait_until(deadline: u64, done: impl Fn() -> bool) -> bool {
    while !done() {
        if now_us() > deadline {
            return false;
        }
        fsleep(STEP);
    }
    true
}

fn limits(array: &Array, logical_block_size: u32) -> Limits {
    let geometry = &array.geometry;
    let chunk = geometry.chunk() * 512;
    // Full stripes in one request, where that is not too much.
    let max_hw_sectors = (geometry.stripe_data().get() as u32).clamp(2048, 8192);
    Limits::new(LimitsConfig {
        logical_block_size,
        physical_block_size: logical_block_size,
        io_min: chunk,
        io_opt: chunk.saturating_mul(u32::from(geometry.data_columns())),
        max_hw_sectors,
        // Zeros are written as any data is.
        max_write_zeroes_sectors: max_hw_sectors,
        discard: array.can_discard().then(|| DiscardLimits {
            granularity: discard::granularity(&array.meta.regions.layout, geometry),
            max_sectors: u32::MAX / 512,
        }),
        partial_stripes_expensive: matches!(geometry.level(), Level::Raid5 | Level::Raid6),
        write_cache: true,
        rotational: false,
    })
}

/// A device name for sysfs: `!` for `/`.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl core::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        use core::fmt::Write;
        self.0
            .chars()
            .try_for_each(|c| f.write_char(if c == '/' { '!' } else { c }))
    }
}
