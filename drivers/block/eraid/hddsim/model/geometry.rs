// SPDX-License-Identifier: GPL-2.0

//! Where blocks lie, and when they pass under a head.
//!
//! Blocks follow each other along the tracks of a cylinder, head by head, and then cylinder by
//! cylinder. Outer cylinders may have more blocks a track than inner ones (zones). Tracks and
//! cylinders are skewed by exactly the time that the switch to the next one takes. So reading on and on
//! from block 0 meets each block at one point in time, its *media time*: the block starts to pass
//! under its head whenever the spindle's angle, in time, equals the media time modulo a turn, and the
//! time from one block to a later one is the difference of their media times.

use crate::hash::{below, hash};
use crate::params::{Key, Params};
use crate::seek::SeekCurve;
use crate::units::{Block, Nanos, BLOCK_SIZE};
use core::num::NonZeroU64;

/// Most zones.
pub const ZONES_MAX: usize = 32;

/// Keeps these hashes apart from others of the same seed.
const SPINDLE: u64 = 3;

/// Some cylinders with equally many blocks a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Zone {
    first_block: u64,
    first_cylinder: u64,
    /// Blocks of a track.
    track: NonZeroU64,
}

/// A place on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the cylinder.
    pub cylinder: u64,
    /// Number of the head.
    pub head: u64,
    /// Number of the block on the track.
    pub index: u64,
    /// When it starts to pass, see the [module description](self).
    pub media: Nanos,
    /// How long it takes to pass.
    pub length: Nanos,
}

/// The way to some blocks, and over them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The first block starts to pass.
    pub begin: Nanos,
    /// The last one has passed.
    pub end: Nanos,
    /// How long the head had waited on the track.
    pub waited: Nanos,
}

/// Shape and motion of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    zones: [Zone; ZONES_MAX],
    zone_count: usize,
    heads: NonZeroU64,
    rotation: NonZeroU64,
    phase: Nanos,
    /// From the start of a track to that of the next one in the cylinder.
    track_time: NonZeroU64,
    /// From the start of a cylinder to that of the next one.
    cylinder_time: NonZeroU64,
    head_switch: Nanos,
    seek: SeekCurve,
}

/// A number that must not be 0 and is not.
fn non_zero(n: u64) -> NonZeroU64 {
    NonZeroU64::new(n).unwrap_or(NonZeroU64::MIN)
}

impl Geometry {
    /// The geometry that the parameters describe.
    pub fn new(params: &Params) -> Self {
        let seed = params.get(Key::Seed);
        let rotation = rotation(params);
        let heads = non_zero(params.get(Key::Heads));
        let blocks = params.get(Key::Size) / u64::from(BLOCK_SIZE);
        let (zones, zone_count, cylinders) = zones(params, blocks, heads);
        let seek = SeekCurve {
            min: Nanos::from_micros(params.get(Key::SeekMinUs)),
            sqrt: Nanos::from_micros(params.get(Key::SeekSqrtUs)),
            cylinders,
        };
        let head_switch = Nanos::from_micros(params.get(Key::HeadSwitchUs));
        let track = Nanos(rotation.get()) + head_switch;
        // The last track of a cylinder is followed by a seek instead of a switch.
        let cylinder = track.times(heads.get() - 1) + Nanos(rotation.get()) + seek.time(0, 1);
        Geometry {
            zones,
            zone_count,
            heads,
            rotation,
            phase: Nanos(hash(&[seed, SPINDLE, 1]) % rotation),
            track_time: non_zero(track.0),
            cylinder_time: non_zero(cylinder.0),
            head_switch,
            seek,
        }
    }

    /// The time of one turn.
    #[inline]
    pub fn rotation(&self) -> Nanos {
        Nanos(self.rotation.get())
    }

    /// The number of cylinders.
    #[inline]
    pub fn cylinders(&self) -> u64 {
        self.seek.cylinders.get()
    }

    /// The last zone that is not `behind` what is looked for.
    fn zone(&self, behind: impl Fn(&Zone) -> bool) -> Zone {
        find_zone(self.zones.get(..self.zone_count).unwrap_or(&[]), behind)
    }

    /// The place of a block.
    pub fn place(&self, block: Block) -> Place {
        let zone = self.zone(|zone| zone.first_block > block.0);
        let offset = block.0.saturating_sub(zone.first_block);
        let (track, index) = (offset / zone.track, offset % zone.track);
        let (cylinder, head) = (track / self.heads, track % self.heads);
        let cylinder = zone.first_cylinder + cylinder;
        let passed = (index * self.rotation.get()) / zone.track;
        let next = ((index + 1) * self.rotation.get()) / zone.track;
        let start = Nanos(self.cylinder_time.get()).times(cylinder)
            + Nanos(self.track_time.get()).times(head);
        Place {
            cylinder,
            head,
            index,
            media: start + Nanos(passed),
            length: Nanos(next - passed),
        }
    }

    /// When the last of `blocks` blocks from `first` on has passed, in media time.
    pub fn media_end(&self, first: Block, blocks: u64) -> Nanos {
        let last = self.place(first.plus(blocks).minus(1));
        last.media + last.length
    }

    /// The first block that has not passed completely at a media time.
    pub fn block_at(&self, media: Nanos) -> Block {
        let cylinder = media.0 / self.cylinder_time;
        let rest = media.0 % self.cylinder_time;
        let head = (rest / self.track_time).min(self.heads.get() - 1);
        let rest = rest - head * self.track_time.get();
        let zone = self.zone(|zone| zone.first_cylinder > cylinder);
        let index = (rest.min(self.rotation.get()) * zone.track.get() + zone.track.get() - 1)
            / self.rotation;
        let tracks = cylinder.saturating_sub(zone.first_cylinder) * self.heads.get() + head;
        Block(zone.first_block + tracks * zone.track.get() + index.min(zone.track.get()))
    }

    /// How long from `now` until what lies at media time `media` starts to pass.
    #[inline]
    pub fn wait(&self, now: Nanos, media: Nanos) -> Nanos {
        let angle = (now + self.phase).0 % self.rotation;
        let target = media.0 % self.rotation;
        if target >= angle {
            Nanos(target - angle)
        } else {
            Nanos(target + self.rotation.get() - angle)
        }
    }

    /// The time to move from one place to another, and to choose its head.
    #[inline]
    pub fn movement(&self, cylinder: u64, head: u64, to: &Place) -> Nanos {
        if cylinder == to.cylinder && head != to.head {
            self.head_switch
        } else {
            self.seek.time(cylinder, to.cylinder)
        }
    }

    /// The access to blocks that start at `to` and end at media time `end`, from a start at `now`
    /// with the head at a cylinder and a head number.
    #[inline]
    pub fn access(&self, now: Nanos, at: (u64, u64), to: &Place, end: Nanos) -> Access {
        let arrived = now + self.movement(at.0, at.1, to);
        let waited = self.wait(arrived, to.media);
        let begin = arrived + waited;
        Access {
            begin,
            end: begin + end.since(to.media),
            waited,
        }
    }

    /// How many blocks right before `place` on its track pass within `time`.
    #[inline]
    pub fn blocks_before(&self, place: &Place, time: Nanos) -> u64 {
        (time.0 / non_zero(place.length.0)).min(place.index)
    }
}

/// Zones that are not used.
const NO_ZONE: Zone = Zone {
    first_block: 0,
    first_cylinder: 0,
    track: NonZeroU64::MIN,
};

/// The last zone that is not `behind` what is looked for.
fn find_zone(zones: &[Zone], behind: impl Fn(&Zone) -> bool) -> Zone {
    let index = zones.partition_point(|zone| !behind(zone));
    let found = zones.get(index.saturating_sub(1));
    found.copied().unwrap_or(NO_ZONE)
}

/// The time of one turn: what `rpm` says, off by a part of `speed_spread_ppm` that the seed chooses.
fn rotation(params: &Params) -> NonZeroU64 {
    const MINUTE: u64 = 60_000_000_000;
    let nominal = MINUTE / non_zero(params.get(Key::Rpm));
    let spread = params.get(Key::SpeedSpreadPpm).min(u64::from(u32::MAX) / 2);
    // CAST: Bounded by the line above.
    let width = (2 * spread + 1) as u32;
    let offset = u64::from(below(hash(&[params.get(Key::Seed), SPINDLE, 0]), width));
    non_zero((nominal * (1_000_000 + offset)).saturating_sub(nominal * spread) / 1_000_000)
}

/// The zones for a number of blocks, and how many cylinders these take.
fn zones(
    params: &Params,
    blocks: u64,
    heads: NonZeroU64,
) -> ([Zone; ZONES_MAX], usize, NonZeroU64) {
    let count = params.get(Key::Zones).clamp(1, ZONES_MAX as u64);
    let track = |zone: u64| track_length(params, zone, count);
    // All zones have as many cylinders; the last ones may not be needed in full.
    let one_each: u64 = (0..count).map(|zone| track(zone).get() * heads.get()).sum();
    let cylinders = (blocks / non_zero(one_each)) + 1;
    let mut zones = [NO_ZONE; ZONES_MAX];
    let mut first_block = 0;
    for (zone, number) in zones.iter_mut().zip(0..count) {
        *zone = Zone {
            first_block,
            first_cylinder: number * cylinders,
            track: track(number),
        };
        first_block += cylinders * heads.get() * zone.track.get();
    }
    // CAST: At most `ZONES_MAX`.
    let count = count as usize;
    let last = blocks.saturating_sub(1);
    let zone = find_zone(zones.get(..count).unwrap_or(&[]), |zone| {
        zone.first_block > last
    });
    let used = last.saturating_sub(zone.first_block) / zone.track / heads;
    (zones, count, non_zero(zone.first_cylinder + used + 1))
}

/// The blocks of a track in zone number `zone` of `count`: linear from the outer to the inner one.
fn track_length(params: &Params, zone: u64, count: u64) -> NonZeroU64 {
    let outer = params.get(Key::SectorsPerTrack);
    let inner = params.get(Key::SectorsPerTrackInner);
    let steps = non_zero(count - 1);
    let change = |from: u64, to: u64| to.saturating_sub(from) * zone / steps;
    non_zero(outer + change(outer, inner) - change(inner, outer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn params(changes: &[(Key, u64)]) -> Params {
        let mut params = Params::DEFAULT;
        for (key, value) in changes {
            params.set(*key, *value).unwrap();
        }
        params
    }

    #[test]
    fn default_drive_is_the_one_described() {
        let g = Geometry::new(&params(&[(Key::SpeedSpreadPpm, 0)]));
        assert_eq!(g.rotation(), Nanos(8_333_333));
        assert_eq!(
            g.cylinders(),
            2_000_000_000_000u64.div_ceil(4096).div_ceil(293 * 8)
        );
        let long = g.media_end(Block(0), 293 * 8 * 1000);
        let rate = 293.0 * 8.0 * 1000.0 * 4096.0 / (long.0 as f64 / 1e9) / 1e6;
        // 293 blocks a turn, less a seek in each cylinder.
        assert!((139.0..140.5).contains(&rate), "{rate} MB/s");
    }

    #[test]
    fn drives_differ_in_speed_and_phase() {
        let turns = |seed| Geometry::new(&params(&[(Key::Seed, seed)]));
        let all: Vec<_> = (0..50).map(turns).collect();
        for g in &all {
            let turn = g.rotation().0;
            assert!((8_325_000..=8_341_667).contains(&turn), "{turn}");
        }
        let same = |a: &Geometry, b: &Geometry| a.rotation() == b.rotation() || a.phase == b.phase;
        assert!(all.windows(2).all(|pair| !same(&pair[0], &pair[1])));
    }

    #[test]
    fn zones_get_shorter_inwards_and_hold_everything() {
        let g = Geometry::new(&params(&[
            (Key::Zones, 16),
            (Key::SectorsPerTrack, 400),
            (Key::SectorsPerTrackInner, 200),
        ]));
        let blocks = 2_000_000_000_000 / 4096;
        let last = g.place(Block(blocks - 1));
        assert_eq!(last.cylinder, g.cylinders() - 1);
        let first = g.place(Block(0));
        assert_eq!(last.length.0.div_ceil(first.length.0), 2);
    }

    #[test]
    fn waiting_is_for_the_angle() {
        let g = Geometry::new(&Params::DEFAULT);
        let place = g.place(Block(1_000_000));
        for now in (0..100_000_000).step_by(7_777_777) {
            let wait = g.wait(Nanos(now), place.media);
            assert!(wait < g.rotation());
            assert_eq!(g.wait(Nanos(now) + wait, place.media), Nanos::ZERO);
            assert_eq!(
                g.wait(Nanos(now) + wait + g.rotation(), place.media),
                Nanos::ZERO
            );
        }
    }

    proptest! {
        #[test]
        fn media_time_and_blocks_are_inverse(
            zones in 1u64..=32, outer in 100u64..2000, inner in 100u64..2000, heads in 1u64..=16,
            switch in 0u64..2000, at in 0u64..480_000_000, seed: u64,
        ) {
            let g = Geometry::new(&params(&[
                (Key::Zones, zones), (Key::SectorsPerTrack, outer), (Key::Heads, heads),
                (Key::SectorsPerTrackInner, inner), (Key::HeadSwitchUs, switch), (Key::Seed, seed),
            ]));
            let place = g.place(Block(at));
            prop_assert!(place.cylinder < g.cylinders());
            prop_assert_eq!(g.block_at(place.media + place.length), Block(at + 1));
            prop_assert!(g.block_at(place.media + Nanos(place.length.0 - 1)) <= Block(at + 1));
            prop_assert!(g.block_at(place.media) >= Block(at));
            prop_assert!(g.place(Block(at + 1)).media >= place.media + place.length);
        }
    }
}
