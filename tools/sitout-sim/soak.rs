// SPDX-License-Identifier: GPL-2.0

//! The soak: arrays without slow members, or with one that is a little slower than the others, for
//! days. Nobody may sit out.

use crate::array::{run, Setup};
use crate::load::{Fault, Shape, SECOND};
use crate::service::Services;
use crate::Common;
use clap::Args;

/// Runs arrays whose members are well.
#[derive(Args, Debug, Clone)]
pub struct Soak {
    #[command(flatten)]
    pub common: Common,
    /// How long, in days.
    #[arg(long, default_value_t = 30.0)]
    pub days: f64,
    /// How many times as long the first member takes.
    #[arg(long, default_value_t = 1.0)]
    pub factor: f64,
}

impl Soak {
    /// Runs all arrays and prints a line for each.
    pub fn run(&self, services: &Services) {
        println!(
            "{} days, first member x{}, {} reads/s, a check every {} ms",
            self.days, self.factor, self.common.rate, self.common.check
        );
        println!("detector,rig,width,seed,reads,false,first_at_s,replace");
        for &which in &self.common.detector {
            for &rig in &self.common.rig {
                for &width in &self.common.width {
                    for &seed in &self.common.seed {
                        let fault = Fault {
                            from: 0,
                            shape: Shape::Constant,
                            factor: self.factor,
                        };
                        let setup = Setup {
                            rig,
                            width,
                            rate: self.common.rate,
                            faults: vec![(0, fault)],
                            until_found: false,
                            allowed: 2,
                            settings: self.common.settings(which),
                            check: self.common.check * 1000,
                            length: (self.days * 86400.0) as u64 * SECOND,
                            left_out: 1,
                            seed,
                        };
                        let outcome = run(&setup, services);
                        let first = outcome.verdicts.first().map_or(0, |v| v.at / SECOND);
                        println!(
                            "{},{},{width},{seed},{},{},{first},{}",
                            which.name(),
                            format!("{rig:?}").to_lowercase(),
                            outcome.reads,
                            outcome.verdicts.len(),
                            outcome.replace
                        );
                    }
                }
            }
        }
    }
}
