// SPDX-License-Identifier: GPL-2.0

//! The files of an array: `/sys/block/eraidN/eraid`. Names and meanings are md's where md has them.

use core::fmt::Write;

use kernel::{prelude::*, sync::Arc};

use crate::{
    array::Array,
    disk_io::name,
    error::{code_of, refused},
    intake::HOLD_MAX_US,
    kapi::{
        params::ReadPolicy,
        sysfs::{Attr, Attributes, SysfsText},
        time::now_us,
    },
    reading::{Count, HEDGE_MAX_MS},
    resync::Progress,
};
use eraid_core::{
    control::parse_number,
    geometry::Level,
    line::Amount,
    member::{degraded, StateText, Summary},
    refusal::{Errno, Refusal},
    refuse,
    resync::Goal,
    units::{Micros, Sectors},
};
use kernel::sync::atomic::Relaxed;

/// Largest depth that can be set.
const DEPTH_MAX: u64 = 1024;
/// Largest limit of the speed of a resync, in KiB/s: more than any device's.
const SPEED_LIMIT: u64 = 100_000_000;

impl Attributes for Array {
    fn files() -> &'static [Attr<Self>] {
        static FILES: [Attr<Array>; 40] = [
            Attr::rw(
                c"level",
                |a, t| line(t, format_args!("{}", a.geometry.level().as_str())),
                refuse_reshape,
            ),
            Attr::rw(
                c"layout",
                |a, t| line(t, format_args!("{}", layout_of(a))),
                refuse_reshape,
            ),
            Attr::rw(
                c"chunk_size",
                |a, t| line(t, format_args!("{}", u64::from(a.geometry.chunk()) * 512)),
                refuse_reshape,
            ),
            Attr::rw(
                c"raid_disks",
                |a, t| line(t, format_args!("{}", a.geometry.members())),
                refuse_reshape,
            ),
            Attr::rw(
                c"component_size",
                |a, t| line(t, format_args!("{}", a.geometry.component().get() / 2)),
                refuse_reshape,
            ),
            Attr::ro(c"uuid", |a, t| line(t, format_args!("{}", a.uuid))),
            Attr::ro(c"name", |a, t| line(t, format_args!("{}", a.name()))),
            Attr::ro(c"array_state", |a, t| {
                line(t, format_args!("{}", a.state_word()))
            }),
            Attr::ro(c"degraded", |a, t| {
                line(
                    t,
                    format_args!("{}", degraded(a.geometry.members(), a.in_sync())),
                )
            }),
            Attr::ro(c"sync_action", |a, t| {
                line(t, format_args!("{}", a.progress().action))
            }),
            Attr::ro(c"last_sync_action", |a, t| {
                line(t, format_args!("{}", a.progress().last))
            }),
            Attr::ro(c"sync_completed", show_sync_completed),
            Attr::ro(c"sync_speed", show_sync_speed),
            Attr::rw(
                c"sync_speed_min",
                |a, t| line(t, format_args!("{}", a.progress().pace.min())),
                |a, bytes| {
                    let set = parse_number("sync_speed_min", bytes, 0..=SPEED_LIMIT);
                    let set = set.map(|kib| a.sync.set_pace(|pace| pace.set_min(kib as u32)));
                    finish(a, bytes, set)
                },
            ),
            Attr::rw(
                c"sync_speed_max",
                |a, t| line(t, format_args!("{}", a.progress().pace.max())),
                |a, bytes| {
                    let set = parse_number("sync_speed_max", bytes, 1..=SPEED_LIMIT);
                    let set = set.map(|kib| a.sync.set_pace(|pace| pace.set_max(kib as u32)));
                    finish(a, bytes, set)
                },
            ),
            Attr::wo(c"new_dev", |a, bytes| {
                finish(a, bytes, a.owner.add_device(a, bytes))
            }),
            Attr::ro(c"unsynced_regions", |a, t| {
                line(t, format_args!("{}", a.unsynced_regions()))
            }),
            Attr::ro(c"consistency_policy", |a, t| {
                let policy = a.with_superblock(|superblock| superblock.policy.as_str());
                line(t, format_args!("{policy}"))
            }),
            Attr::ro(c"metadata_version", |_, t| line(t, format_args!("eraid-1"))),
            Attr::ro(c"local_m", |_, t| line(t, format_args!("0"))),
            Attr::ro(c"local_k", |_, t| line(t, format_args!("0"))),
            Attr::rw(
                c"read_policy",
                |a, t| line(t, format_args!("{}", a.reading.policy().as_str())),
                store_read_policy,
            ),
            Attr::rw(
                c"hedge_min_ms",
                |a, t| line(t, format_args!("{}", a.reading.hedge_min_ms())),
                |a, bytes| {
                    let set = parse_number("hedge_min_ms", bytes, 0..=HEDGE_MAX_MS);
                    finish(
                        a,
                        bytes,
                        set.map(|ms| a.reading.set_hedge_min_ms(ms as u32)),
                    )
                },
            ),
            Attr::rw(
                c"hedge_max_ms",
                |a, t| line(t, format_args!("{}", a.reading.hedge_max_ms())),
                |a, bytes| {
                    let set = parse_number("hedge_max_ms", bytes, 0..=HEDGE_MAX_MS);
                    let set = set.map(|ms| a.reading.set_hedge_max_ms(ms as u32));
                    a.learn_patience();
                    finish(a, bytes, set)
                },
            ),
            Attr::rw(
                c"hedge_budget_pct",
                |a, t| line(t, format_args!("{}", a.reading.budget.lock().percent())),
                |a, bytes| {
                    let set = parse_number("hedge_budget_pct", bytes, 0..=100);
                    let set = set.map(|pct| a.reading.budget.lock().set_percent(pct as u32));
                    finish(a, bytes, set)
                },
            ),
            Attr::ro(c"reads_normal", |a, t| count(a, t, Count::Normal)),
            Attr::ro(c"reads_failfast", |a, t| count(a, t, Count::Failfast)),
            Attr::ro(c"reads_proactive", |a, t| count(a, t, Count::Proactive)),
            Attr::ro(c"reads_avoided", |a, t| count(a, t, Count::Avoided)),
            Attr::ro(c"reads_left_out", |a, t| count(a, t, Count::LeftOut)),
            Attr::ro(c"reads_hedged", |a, t| count(a, t, Count::Hedged)),
            Attr::ro(c"reads_fallback", |a, t| count(a, t, Count::Fallback)),
            Attr::ro(c"reads_removed", |a, t| count(a, t, Count::Removed)),
            Attr::ro(c"reads_promoted", |a, t| count(a, t, Count::Promoted)),
            Attr::ro(c"reads_extra", |a, t| count(a, t, Count::Extra)),
            Attr::ro(c"reads_repaired", |a, t| count(a, t, Count::Repaired)),
            Attr::rw(c"queue_depth", show_queue_depth, store_queue_depth),
            Attr::rw(
                c"write_hold_us",
                |a, t| line(t, format_args!("{}", a.intake.hold_us.load(Relaxed))),
                store_write_hold,
            ),
            Attr::ro(c"pool", show_pool),
            Attr::ro(c"status", show_status),
        ];
        &FILES
    }
}

/// Writes one line.
pub(crate) fn line(text: &mut SysfsText<'_>, args: core::fmt::Arguments<'_>) -> Result {
    text.write_fmt(args).map_err(|_| E2BIG)?;
    text.write_char('\n').map_err(|_| E2BIG)
}

/// Ends a write to a file of an array or member: a refusal is noted.
pub(crate) fn finish(array: &Array, line: &[u8], result: Result<(), Refusal>) -> Result {
    result.map_err(|refusal| {
        array.owner.refused(line, &refusal);
        code_of(refusal.errno)
    })
}

/// A write to a file that says what the array is like: in md that changes it.
fn refuse_reshape(array: &Arc<Array>, bytes: &[u8]) -> Result {
    let refusal = refuse!(
        Errno::OpNotSupp,
        "resizing and reshaping are not supported: the array keeps its level, layout, chunk, members and size"
    );
    finish(array, bytes, Err(refusal))
}

fn layout_of(array: &Array) -> &'static str {
    match array.geometry.level() {
        // md's number of left-symmetric.
        Level::Raid5 | Level::Raid6 => "2",
        Level::Raid0 | Level::Raid1 => "0",
    }
}

fn show_sync_completed(array: &Array, text: &mut SysfsText<'_>) -> Result {
    match array.done_of(&array.progress()) {
        Some((done, total)) => line(text, format_args!("{done} / {total}")),
        None => line(text, format_args!("none")),
    }
}

fn show_sync_speed(array: &Array, text: &mut SysfsText<'_>) -> Result {
    let progress = array.progress();
    match progress.run {
        Some(_) => line(text, format_args!("{}", progress.pace.speed())),
        None => line(text, format_args!("none")),
    }
}

fn show_queue_depth(array: &Array, text: &mut SysfsText<'_>) -> Result {
    let members = array.geometry.all_slots();
    let mut depths = members.iter().filter_map(|slot| array.member(slot));
    let depth = depths.next().map_or(0, |member| member.depth());
    line(text, format_args!("{depth}"))
}

fn store_queue_depth(array: &Arc<Array>, bytes: &[u8]) -> Result {
    let set = parse_number("queue_depth", bytes, 0..=DEPTH_MAX).map(|depth| {
        for slot in array.geometry.all_slots().iter() {
            if let Some(member) = array.member(slot) {
                member.set_depth(array, depth as u32);
            }
        }
    });
    finish(array, bytes, set)
}

fn store_write_hold(array: &Arc<Array>, bytes: &[u8]) -> Result {
    let set = parse_number("write_hold_us", bytes, 0..=HOLD_MAX_US)
        .map(|us| array.intake.hold_us.store(us as u32, Relaxed));
    finish(array, bytes, set)
}

fn store_read_policy(array: &Arc<Array>, bytes: &[u8]) -> Result {
    let set = ReadPolicy::parse(bytes)
        .map(|policy| array.reading.set_policy(policy))
        .map_err(|error| {
            let words = "can be auto, normal, failfast or proactive";
            refused(error, "read_policy", words)
        });
    finish(array, bytes, set)
}

fn count(array: &Array, text: &mut SysfsText<'_>, what: Count) -> Result {
    line(text, format_args!("{}", array.reading.counts.get(what)))
}

fn show_pool(array: &Array, text: &mut SysfsText<'_>) -> Result {
    let Amount { commands, pages } = array.pool.available();
    line(
        text,
        format_args!(
            "commands {commands} of {}, pages {pages} of {}, operations {}",
            array.pool.commands,
            array.pool.pages,
            array.active()
        ),
    )
}

impl Array {
    fn progress(&self) -> Progress {
        self.sync.progress()
    }

    /// Sectors of each member that are done, and in all: of the whole of a member that is being rebuilt,
    /// else of the region in work.
    fn done_of(&self, progress: &Progress) -> Option<(u64, u64)> {
        let (goal, done, all) = progress.run?;
        let chunk = u64::from(self.geometry.chunk());
        let (done, all) = (done * chunk, all * chunk);
        match goal {
            Goal::Member(slot) if self.rebuilding().contains(slot) => {
                let total = self.geometry.component().get();
                let lacked = self.lacked_by(slot).map_or(0, |(_, lacked)| lacked.get());
                Some((total.saturating_sub(lacked) + done, total))
            }
            _ => Some((done, all)),
        }
    }

    /// md's word for the state of the array.
    fn state_word(&self) -> &'static str {
        let needed = self.geometry.members() - self.geometry.parity();
        if self.in_sync().len() < u32::from(needed) {
            "broken"
        } else if self.read_only {
            "readonly"
        } else if self.is_marked() {
            "active"
        } else {
            "clean"
        }
    }
}

/// One look at everything.
fn show_status(array: &Array, text: &mut SysfsText<'_>) -> Result {
    let summary = Summary {
        raid_disks: array.geometry.members(),
        in_sync: array.in_sync(),
    };
    line(
        text,
        format_args!(
            "{} : {} {} {}k chunk {summary}",
            array.name(),
            array.state_word(),
            array.geometry.level().as_str(),
            array.geometry.chunk() / 2
        ),
    )?;
    show_progress(array, text)?;
    show_pool(array, text)?;
    for slot in array.geometry.all_slots().iter() {
        // Room for what the longest line needs; the others have their own directories.
        if text.remaining() < 200 {
            return line(text, format_args!("  ..."));
        }
        show_member(array, slot, text)?;
    }
    array.spares.with(|spares| {
        for spare in spares {
            if text.remaining() < 80 {
                return line(text, format_args!("  ..."));
            }
            line(text, format_args!("  - {} spare", name(&spare.device)))?;
        }
        Ok(())
    })
}

/// md's line about what the background does; the time that is left only where all of it is known.
fn show_progress(array: &Array, text: &mut SysfsText<'_>) -> Result {
    let progress = array.progress();
    let Some((done, total)) = array.done_of(&progress) else {
        return Ok(());
    };
    let percent = (done * 100).checked_div(total).unwrap_or(100);
    let regions = array.unsynced_regions();
    let (action, speed) = (progress.action, progress.pace.speed());
    let rebuilds =
        matches!(progress.run, Some((Goal::Member(slot), ..)) if array.rebuilding().contains(slot));
    if !rebuilds {
        return line(
            text,
            format_args!(
                "  {action} of a region: {percent}% speed={speed}K/sec; {regions} regions not in sync"
            ),
        );
    }
    write!(text, "  {action} = {percent}% ({}/{})", done / 2, total / 2).map_err(|_| E2BIG)?;
    let left = Sectors::new(total.saturating_sub(done));
    if let Some(seconds) = progress.pace.seconds_for(left) {
        write!(text, " finish={}min", seconds.div_ceil(60)).map_err(|_| E2BIG)?;
    }
    line(
        text,
        format_args!(" speed={speed}K/sec; {regions} regions not in sync"),
    )
}

fn show_member(array: &Array, slot: eraid_core::units::Slot, text: &mut SysfsText<'_>) -> Result {
    let look = array.with_slot(slot, |entry| (entry.state, entry.sit_out));
    let Some((state, sit_out)) = look else {
        return Ok(());
    };
    let Some(member) = array.member(slot) else {
        return line(text, format_args!("  {slot} - missing"));
    };
    let words = StateText {
        state,
        blocked: false,
        write_error: false,
    };
    let (in_device, waiting) = member.queued();
    line(
        text,
        format_args!(
            "  {slot} {} {words} read {} us, in device {in_device}, waiting {waiting}, errors {} read {} write, sit_out {}",
            member.name(),
            member.counters.read_us.load(Relaxed),
            member.counters.read_errors.load(Relaxed),
            member.counters.write_errors.load(Relaxed),
            sit_out.shown(Micros::new(now_us()))
        ),
    )
}
