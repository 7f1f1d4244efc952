// SPDX-License-Identifier: GPL-2.0

//! The files of `/sys/class/eraid-control`.

use core::fmt::Write;

use kernel::{prelude::*, sync::Arc};

use crate::{
    error::code_of,
    kapi::{
        device::wait_closed,
        sysfs::{Attr, Attributes, SysfsText},
    },
    registry::Registry,
    running::CLOSE_WAIT_MS,
};
use eraid_core::{control::parse_stop, refusal::Refusal};

impl Attributes for Registry {
    fn files() -> &'static [Attr<Self>] {
        static FILES: [Attr<Registry>; 6] = [
            Attr::wo(c"create", |registry, line| {
                finish(registry, line, registry.create(line))
            }),
            Attr::wo(c"assemble", |registry, line| {
                finish(registry, line, registry.assemble(line))
            }),
            Attr::wo(c"abort", |registry, line| {
                finish(registry, line, registry.abort(line))
            }),
            Attr::wo(c"stop", |registry, line| {
                let stopped = parse_stop(line).and_then(|target| registry.stop(target));
                finish(registry, line, stopped)
            }),
            Attr::ro(c"last_error", show_last_error),
            Attr::ro(c"zombies", show_zombies),
        ];
        &FILES
    }
}

/// Ends a write to a control file: a refusal is noted and becomes the write's error.
fn finish(registry: &Arc<Registry>, line: &[u8], result: Result<(), Refusal>) -> Result {
    result.map_err(|refusal| {
        // So that what was opened for nothing can be used again at once.
        wait_closed(CLOSE_WAIT_MS);
        registry.note_refusal(line, &refusal);
        code_of(refusal.errno)
    })
}

fn show_last_error(registry: &Registry, text: &mut SysfsText<'_>) -> Result {
    let (number, last) = registry.last_error();
    writeln!(text, "{number}").map_err(|_| E2BIG)?;
    match number {
        0 => Ok(()),
        _ => writeln!(text, "{}", last.as_str()).map_err(|_| E2BIG),
    }
}

fn show_zombies(registry: &Registry, text: &mut SysfsText<'_>) -> Result {
    for zombie in registry.zombies.lock().iter() {
        writeln!(
            text,
            "{} {} {}",
            zombie.member.name(),
            zombie.array.name(),
            zombie.member.in_flight()
        )
        .map_err(|_| E2BIG)?;
    }
    Ok(())
}
