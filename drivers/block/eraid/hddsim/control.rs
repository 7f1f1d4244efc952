// SPDX-License-Identifier: GPL-2.0

//! The files of `/sys/class/eraid-hddsim`.

use core::fmt::Write;

use kernel::prelude::*;

use crate::{
    kapi::sysfs::{Attr, Attributes, SysfsText},
    registry::Registry,
};

impl Attributes for Registry {
    fn files() -> &'static [Attr<Self>] {
        static FILES: [Attr<Registry>; 4] = [
            Attr::wo(c"create", |registry, line| {
                registry.refusals.finish(line, registry.create(line))
            }),
            Attr::wo(c"remove", |registry, line| {
                registry.refusals.finish(line, registry.remove(line))
            }),
            Attr::wo(c"power_cut", |registry, line| {
                registry.refusals.finish(line, registry.power_cut(line))
            }),
            Attr::ro(c"last_error", show_last_error),
        ];
        &FILES
    }
}

fn show_last_error(registry: &Registry, text: &mut SysfsText<'_>) -> Result {
    let (number, last) = registry.refusals.last();
    writeln!(text, "{number}").map_err(|_| E2BIG)?;
    match number {
        0 => Ok(()),
        _ => writeln!(text, "{}", last.as_str()).map_err(|_| E2BIG),
    }
}
