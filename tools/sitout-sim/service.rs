// SPDX-License-Identifier: GPL-2.0

//! How long members work on a read: samples of the drive model, and of a distribution for flash.

use eraid_core::latency::Kind;
use eraid_core::outlier::Media;
use eraid_hddsim_model::drive::{Command, Drive, Op, Slot, TAGS};
use eraid_hddsim_model::failure::Bad;
use eraid_hddsim_model::params::{Key, Params};
use eraid_hddsim_model::units::{Extent, Nanos};
use eraid_tools::rng::Rng;

/// Samples of each kind; a power of two.
const SAMPLES: usize = 1 << 14;

/// Bytes of a small and of a large read.
const SMALL: u32 = 8 << 10;
const LARGE: u32 = 256 << 10;

/// Times that a medium takes for reads, one at a time.
pub struct Service {
    small: Vec<u32>,
    large: Vec<u32>,
}

impl Service {
    /// The time of a read, in µs.
    pub fn draw(&self, kind: Kind, rng: &mut Rng) -> u64 {
        let times = match kind {
            Kind::LargeRead => &self.large,
            _ => &self.small,
        };
        times[rng.next_u64() as usize % SAMPLES].into()
    }

    /// Random reads of the drive model with its default parameters.
    fn rotational() -> Self {
        Self {
            small: random_reads(SMALL),
            large: random_reads(LARGE),
        }
    }

    /// 80 µs, twice that for large reads, times e^(0.25 z), z normal; one read in a thousand waits for
    /// 1 to 5 ms behind an erase.
    fn solid() -> Self {
        let mut rng = Rng::new(&[2]);
        let mut times = |median: f64| {
            let mut draw = || {
                let z = (0..12).map(|_| uniform(&mut rng)).sum::<f64>() - 6.0;
                let behind = match rng.below(1000) {
                    0 => 1000.0 + 4000.0 * uniform(&mut rng),
                    _ => 0.0,
                };
                (median * (0.25 * z).exp() + behind) as u32
            };
            (0..SAMPLES).map(|_| draw()).collect()
        };
        Self {
            small: times(80.0),
            large: times(160.0),
        }
    }
}

/// Both media.
pub struct Services {
    rotational: Service,
    solid: Service,
}

impl Services {
    /// Draws all samples; always the same ones.
    pub fn new() -> Self {
        Self {
            rotational: Service::rotational(),
            solid: Service::solid(),
        }
    }

    /// Those of a medium.
    pub fn of(&self, media: Media) -> &Service {
        match media {
            Media::Rotational => &self.rotational,
            Media::Solid => &self.solid,
        }
    }
}

/// A number from 0 to 1.
pub fn uniform(rng: &mut Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

fn random_reads(bytes: u32) -> Vec<u32> {
    let params = Params::DEFAULT;
    let sectors = bytes / 512;
    let places = (params.get(Key::Size) / 512 - u64::from(sectors)) / 16;
    let mut drive = Drive::new(params, vec![Slot::FREE; TAGS], vec![None; 1]);
    let mut rng = Rng::new(&[1, bytes.into()]);
    let mut now = Nanos::ZERO;
    let mut read = || {
        let seq = drive.number();
        let command = Command {
            op: Op::Read,
            extent: Extent {
                sector: rng.below(places) * 16,
                sectors,
            },
            seq,
            hint: false,
            bad: Bad::default(),
        };
        let start = now;
        drive.submit(now, command).expect("an idle drive");
        while drive.event(now).is_none() {
            now = drive.wake_at().expect("a drive that works").max(now);
        }
        let took = now.since(start).0 / 1000;
        // The next one comes at any angle of the platter.
        now = Nanos(now.0 + rng.below(20_000_000));
        took as u32
    };
    (0..SAMPLES).map(|_| read()).collect()
}
