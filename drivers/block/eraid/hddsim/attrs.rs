// SPDX-License-Identifier: GPL-2.0

//! The files of a drive: `/sys/block/NAME/hddsim`. One for each parameter, and what a drive shows and
//! can be made to do.

use core::fmt::{Display, Write};

use kernel::{prelude::*, sync::Arc};

use crate::{
    drive::SimDisk,
    kapi::sysfs::{Attr, Attributes, SysfsText},
};
use eraid_hddsim_model::{
    control::{parse_param, parse_seed},
    params::Key,
    refusal::{Errno, Refusal},
    refuse,
    words::{one_line, parse_number, Excerpt},
};

/// Longest stall: a day.
const STALL_MAX_MS: u64 = 86_400_000;

impl Attributes for SimDisk {
    fn files() -> &'static [Attr<Self>] {
        static FILES: [Attr<SimDisk>; 40] = [
            Attr::ro(c"size", show::<{ Key::Size as usize }>),
            Attr::ro(c"logical_block", show::<{ Key::LogicalBlock as usize }>),
            Attr::rw(
                c"seed",
                show::<{ Key::Seed as usize }>,
                store::<{ Key::Seed as usize }>,
            ),
            Attr::rw(
                c"rpm",
                show::<{ Key::Rpm as usize }>,
                store::<{ Key::Rpm as usize }>,
            ),
            Attr::rw(
                c"speed_spread_ppm",
                show::<{ Key::SpeedSpreadPpm as usize }>,
                store::<{ Key::SpeedSpreadPpm as usize }>,
            ),
            Attr::rw(
                c"sectors_per_track",
                show::<{ Key::SectorsPerTrack as usize }>,
                store::<{ Key::SectorsPerTrack as usize }>,
            ),
            Attr::rw(
                c"sectors_per_track_inner",
                show::<{ Key::SectorsPerTrackInner as usize }>,
                store::<{ Key::SectorsPerTrackInner as usize }>,
            ),
            Attr::rw(
                c"zones",
                show::<{ Key::Zones as usize }>,
                store::<{ Key::Zones as usize }>,
            ),
            Attr::rw(
                c"heads",
                show::<{ Key::Heads as usize }>,
                store::<{ Key::Heads as usize }>,
            ),
            Attr::rw(
                c"seek_min_us",
                show::<{ Key::SeekMinUs as usize }>,
                store::<{ Key::SeekMinUs as usize }>,
            ),
            Attr::rw(
                c"seek_sqrt_us",
                show::<{ Key::SeekSqrtUs as usize }>,
                store::<{ Key::SeekSqrtUs as usize }>,
            ),
            Attr::rw(
                c"head_switch_us",
                show::<{ Key::HeadSwitchUs as usize }>,
                store::<{ Key::HeadSwitchUs as usize }>,
            ),
            Attr::rw(
                c"overhead_us",
                show::<{ Key::OverheadUs as usize }>,
                store::<{ Key::OverheadUs as usize }>,
            ),
            Attr::rw(
                c"hit_us",
                show::<{ Key::HitUs as usize }>,
                store::<{ Key::HitUs as usize }>,
            ),
            Attr::rw(
                c"lookahead_kib",
                show::<{ Key::LookaheadKib as usize }>,
                store::<{ Key::LookaheadKib as usize }>,
            ),
            Attr::rw(
                c"track_buffer",
                show::<{ Key::TrackBuffer as usize }>,
                store::<{ Key::TrackBuffer as usize }>,
            ),
            Attr::rw(
                c"queue_depth",
                show::<{ Key::QueueDepth as usize }>,
                store::<{ Key::QueueDepth as usize }>,
            ),
            Attr::rw(
                c"age_ms",
                show::<{ Key::AgeMs as usize }>,
                store::<{ Key::AgeMs as usize }>,
            ),
            Attr::rw(
                c"age_every",
                show::<{ Key::AgeEvery as usize }>,
                store::<{ Key::AgeEvery as usize }>,
            ),
            Attr::rw(
                c"fail_ppm",
                show::<{ Key::FailPpm as usize }>,
                store::<{ Key::FailPpm as usize }>,
            ),
            Attr::rw(
                c"fail_mode",
                show::<{ Key::FailMode as usize }>,
                store::<{ Key::FailMode as usize }>,
            ),
            Attr::rw(
                c"fail_burst",
                show::<{ Key::FailBurst as usize }>,
                store::<{ Key::FailBurst as usize }>,
            ),
            Attr::rw(
                c"retry_turns",
                show::<{ Key::RetryTurns as usize }>,
                store::<{ Key::RetryTurns as usize }>,
            ),
            Attr::rw(
                c"retry_off",
                show::<{ Key::RetryOff as usize }>,
                store::<{ Key::RetryOff as usize }>,
            ),
            Attr::rw(
                c"error_lookahead",
                show::<{ Key::ErrorLookahead as usize }>,
                store::<{ Key::ErrorLookahead as usize }>,
            ),
            Attr::rw(
                c"error_stall_ms",
                show::<{ Key::ErrorStallMs as usize }>,
                store::<{ Key::ErrorStallMs as usize }>,
            ),
            Attr::rw(
                c"sense_info",
                show::<{ Key::SenseInfo as usize }>,
                store::<{ Key::SenseInfo as usize }>,
            ),
            Attr::rw(
                c"slow_percent",
                show::<{ Key::SlowPercent as usize }>,
                store::<{ Key::SlowPercent as usize }>,
            ),
            Attr::rw(
                c"delay_ms",
                show::<{ Key::DelayMs as usize }>,
                store::<{ Key::DelayMs as usize }>,
            ),
            Attr::rw(
                c"latency_ms",
                show::<{ Key::LatencyMs as usize }>,
                store::<{ Key::LatencyMs as usize }>,
            ),
            Attr::rw(
                c"write_cache",
                show::<{ Key::WriteCache as usize }>,
                store::<{ Key::WriteCache as usize }>,
            ),
            Attr::rw(
                c"write_cache_kib",
                show::<{ Key::WriteCacheKib as usize }>,
                store::<{ Key::WriteCacheKib as usize }>,
            ),
            Attr::ro(c"params", |disk, text| {
                put(text, disk.look(|state| *state.model.params()))
            }),
            Attr::ro(c"params_hash", |disk, text| {
                let hash = disk.look(|state| state.model.params().hash());
                put(text, format_args!("{hash:016x}\n"))
            }),
            Attr::ro(c"counters", show_counters),
            Attr::wo(c"reset", |disk, line| {
                finish(
                    disk,
                    line,
                    parse_number("reset", line, 1..=1).and_then(|_| disk.reset()),
                )
            }),
            Attr::wo(c"stall_ms", |disk, line| {
                let ms = parse_number("stall_ms", line, 0..=STALL_MAX_MS);
                finish(disk, line, ms.map(|ms| disk.stall(ms)))
            }),
            Attr::rw(
                c"hang",
                |disk, text| {
                    let hung = disk.look(|state| state.model.is_hung());
                    put(text, format_args!("{}\n", u8::from(hung)))
                },
                |disk, line| {
                    let hang = parse_number("hang", line, 0..=1);
                    finish(disk, line, hang.map(|hang| disk.hang(hang == 1)))
                },
            ),
            Attr::wo(c"power_cut", store_power_cut),
            Attr::rw(c"power", show_power, store_power),
        ];
        &FILES
    }
}

/// Writes text to a file.
fn put(text: &mut SysfsText<'_>, what: impl Display) -> Result {
    write!(text, "{what}").map_err(|_| E2BIG)
}

/// Ends a write to a file: a refusal is noted.
fn finish(disk: &SimDisk, line: &[u8], result: Result<(), Refusal>) -> Result {
    disk.refusals.finish(line, result)
}

/// The parameter number `K`.
fn key<const K: usize>() -> Result<Key> {
    Key::ALL.get(K).copied().ok_or(EINVAL)
}

fn show<const K: usize>(disk: &SimDisk, text: &mut SysfsText<'_>) -> Result {
    let key = key::<K>()?;
    let shown = disk.look(|state| state.model.params().shown(key));
    put(text, format_args!("{shown}\n"))
}

fn store<const K: usize>(disk: &Arc<SimDisk>, line: &[u8]) -> Result {
    let key = key::<K>()?;
    let value = parse_param(key, line);
    finish(
        disk,
        line,
        value.and_then(|value| disk.set_param(key, value)),
    )
}

fn show_counters(disk: &SimDisk, text: &mut SysfsText<'_>) -> Result {
    let (counters, queued, cached) = disk.look(|state| {
        let model = &state.model;
        (*model.counters(), model.queued(), model.cached())
    });
    put(text, counters)?;
    put(
        text,
        format_args!("in_flight {queued}\ndirty_writes {cached}\n"),
    )
}

fn store_power_cut(disk: &Arc<SimDisk>, line: &[u8]) -> Result {
    let seed = parse_seed("power_cut", line);
    let cut = |seed| {
        disk.power_off(seed);
        disk.hang(false);
    };
    finish(disk, line, seed.map(cut))
}

fn show_power(disk: &SimDisk, text: &mut SysfsText<'_>) -> Result {
    let on = disk.look(|state| state.model.is_powered());
    put(text, if on { "on\n" } else { "off\n" })
}

fn store_power(disk: &Arc<SimDisk>, line: &[u8]) -> Result {
    let on = one_line("power", line).and_then(|word| match word {
        "on" => Ok(()),
        other => Err(refuse!(
            Errno::Inval,
            "power: {} is not on; to switch it off, write a seed to power_cut",
            Excerpt(other.as_bytes())
        )),
    });
    finish(disk, line, on.map(|()| disk.power_on()))
}
