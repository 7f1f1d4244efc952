// SPDX-License-Identifier: GPL-2.0

//! The files of `/sys/class/eraid-control`.

use core::fmt::Write;

use kernel::{prelude::*, sync::Arc};

use crate::{
    error::code_of,
    kapi::{
        device::wait_closed,
        module::ModuleRef,
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
                take(registry, line, Registry::create)
            }),
            Attr::wo(c"assemble", |registry, line| {
                take(registry, line, Registry::assemble)
            }),
            Attr::wo(c"abort", |registry, line| {
                take(registry, line, |registry, line| registry.abort(line))
            }),
            Attr::wo(c"stop", |registry, line| {
                take(registry, line, |registry, line| {
                    registry.stop(parse_stop(line)?)
                })
            }),
            Attr::ro(c"last_error", show_last_error),
            Attr::ro(c"zombies", show_zombies),
        ];
        &FILES
    }
}

/// Does what a line to a control file says; a refusal is noted and becomes the write's error.
fn take(
    registry: &Arc<Registry>,
    line: &[u8],
    act: impl FnOnce(&Arc<Registry>, &[u8]) -> Result<(), Refusal>,
) -> Result {
    // While a line waits for devices, rmmod is refused instead of waiting for it. The end of this
    // function is safe: the files are removed, which waits for it, before the module goes.
    let _module = ModuleRef::get().ok_or(ENODEV)?;
    act(registry, line).map_err(|refusal| {
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
    registry.reap();
    for zombie in registry.zombies.lock().iter() {
        let (device, array) = (zombie.device(), zombie.array());
        writeln!(text, "{device} {array} {}", zombie.in_flight()).map_err(|_| E2BIG)?;
    }
    Ok(())
}
