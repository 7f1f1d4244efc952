// SPDX-License-Identifier: GPL-2.0

//! Seeds and counts of the property tests.

use proptest::test_runner::{Config, RngSeed};

/// A configuration with `cases` cases and a fixed seed, which are printed; the environment
/// overrides them with `PROPTEST_CASES` and `ERAID_SEED`.
pub(crate) fn config(cases: u32) -> Config {
    let mut config = Config::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    let seed = match std::env::var("ERAID_SEED") {
        Ok(text) => text.parse().expect("ERAID_SEED has to be a number"),
        Err(_) => 20_240_229,
    };
    config.rng_seed = RngSeed::Fixed(seed);
    config.failure_persistence = None;
    println!("ERAID_SEED={seed} PROPTEST_CASES={}", config.cases);
    config
}
