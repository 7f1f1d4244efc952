// SPDX-License-Identifier: GPL-2.0

//! Seeds for the property tests: fixed, printed, and changed by the environment.

use proptest::test_runner::{Config, RngSeed};

/// A configuration with `cases` cases and a fixed seed; `PROPTEST_CASES` and `PROPTEST_RNG_SEED`
/// take precedence.
pub(crate) fn config(cases: u32) -> Config {
    let mut config = Config::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(0xe7a1d);
    }
    config.failure_persistence = None;
    println!("cases {}, seed {:?}", config.cases, config.rng_seed);
    config
}
