// SPDX-License-Identifier: GPL-2.0

//! All arrays of the module: running ones, sets that wait for members, and zombies.
//!
//! All locks are held for short looks only; what keeps two lines to control files from getting in
//! each other's way is in [`crate::claims`].
//!
//! Lock order: `running`, then `zombies` or the claims.

use kernel::{
    new_mutex,
    prelude::*,
    str::CString,
    sync::{Arc, Mutex},
};

use crate::{
    array::{Array, Owner},
    assemble::Incomplete,
    claims::{Claim, Claims},
    disk_io::{self, Left, MemberIo},
    kapi::{class::ControlClass, device::MemberDevice, disk::Disk, sysfs::Kobject},
    member::Member,
    member_attrs::MemberDir,
    spares::ShownSpare,
};
use eraid_core::{
    control::Excerpt,
    refusal::{Errno, Refusal},
    refuse,
    text::TextBuf,
};

/// A member as user space sees it.
pub(crate) struct Shown {
    /// Its directory, until that is removed.
    pub(crate) directory: Option<Kobject<MemberDir>>,
    /// Name of the link to it, `rdSLOT`: kept, so that removing it needs no memory.
    pub(crate) link: CString,
    /// The member.
    pub(crate) member: Arc<Member>,
}

/// A running array with everything user space sees of it. Fields are dropped in this order.
pub(crate) struct Running {
    /// The members, by slot.
    pub(crate) members: KVec<Option<Shown>>,
    /// The spares.
    pub(crate) spares: KVec<ShownSpare>,
    /// Directory of the array.
    pub(crate) directory: Option<Kobject<Array>>,
    /// The disk.
    pub(crate) disk: Disk<Array>,
    /// The array.
    pub(crate) array: Arc<Array>,
    /// N of `eraidN`.
    pub(crate) number: u32,
    /// Name of the link to the disk among those of the class, once there is one.
    pub(crate) link: Option<CString>,
    /// What it is called and which devices it has.
    pub(crate) claim: Claim,
}

/// A device that holds commands nobody waits for.
pub(crate) enum Zombie {
    /// Those of an array that was stopped, or that it was a member of.
    Member {
        /// The array.
        array: Arc<Array>,
        /// The member.
        member: Arc<Member>,
    },
    /// One of a line to a control file, whose writer was killed.
    Line(Left),
}

impl Zombie {
    /// Device number.
    fn dev(&self) -> u32 {
        match self {
            Zombie::Member { member, .. } => member.device.dev(),
            Zombie::Line(left) => left.dev,
        }
    }

    /// Name of the device.
    pub(crate) fn device(&self) -> &str {
        match self {
            Zombie::Member { member, .. } => member.name(),
            Zombie::Line(left) => left.name.as_str(),
        }
    }

    /// Name of the array, `-` where there was none yet.
    pub(crate) fn array(&self) -> &str {
        match self {
            Zombie::Member { array, .. } => array.name(),
            Zombie::Line(_) => "-",
        }
    }

    /// Commands that the device still holds.
    pub(crate) fn in_flight(&self) -> u32 {
        match self {
            Zombie::Member { member, .. } => member.in_flight(),
            Zombie::Line(left) => u32::from(!left.command.is_over()),
        }
    }

    /// Why the device at `path` cannot be used.
    fn refusal(&self, path: &str) -> Refusal {
        match self {
            Zombie::Member { array, .. } => refuse!(
                Errno::Busy,
                "{path} still holds {} commands of {}, which was stopped",
                self.in_flight(),
                array.name()
            ),
            Zombie::Line(_) => refuse!(
                Errno::Busy,
                "{path} still holds a command of a line whose writer was killed"
            ),
        }
    }
}

/// The last refusal.
#[derive(Default)]
struct LastError {
    number: u64,
    text: TextBuf<400>,
}

/// See the [module description](self).
#[pin_data]
pub(crate) struct Registry {
    /// `/sys/class/eraid-control`.
    pub(crate) class: Arc<ControlClass>,
    /// What is taken.
    pub(crate) claims: Arc<Claims>,
    #[pin]
    pub(crate) running: Mutex<KVec<Running>>,
    #[pin]
    pub(crate) incomplete: Mutex<KVec<Incomplete>>,
    #[pin]
    pub(crate) zombies: Mutex<KVec<Zombie>>,
    #[pin]
    last_error: Mutex<LastError>,
}

impl Registry {
    /// Makes an empty registry.
    pub(crate) fn new(class: Arc<ControlClass>) -> Result<Arc<Self>> {
        let claims = Claims::new()?;
        Arc::pin_init(
            pin_init!(Self {
                class,
                claims,
                running <- new_mutex!(KVec::new(), "eraid::running"),
                incomplete <- new_mutex!(KVec::new(), "eraid::incomplete"),
                zombies <- new_mutex!(KVec::new(), "eraid::zombies"),
                last_error <- new_mutex!(LastError::default(), "eraid::last_error"),
            }),
            GFP_KERNEL,
        )
    }

    /// Remembers commands of `member` that never came back.
    pub(crate) fn add_zombie(&self, array: &Arc<Array>, member: Arc<Member>) {
        if member.in_flight() == 0 {
            return;
        }
        array_warn!(
            array.name(),
            "{} still holds {} commands",
            member.name(),
            member.in_flight()
        );
        self.remember(Zombie::Member {
            array: array.clone(),
            member,
        });
    }

    /// Remembers the command that `io` gave up, if it did.
    pub(crate) fn add_left(&self, io: &mut MemberIo) {
        if let Some(left) = io.take_left() {
            pr_warn!(
                "{} still holds a command of a killed line\n",
                left.name.as_str()
            );
            self.remember(Zombie::Line(left));
        }
    }

    fn remember(&self, zombie: Zombie) {
        // Without memory for the list the device is let go of all the same when it answers.
        let _ = self.zombies.lock().push(zombie, GFP_KERNEL);
    }

    /// Opens a member; says by whom it is used when it is, `opened` being what the line has opened
    /// already.
    pub(crate) fn open_member<'a>(
        &self,
        path: &str,
        read_only: bool,
        opened: impl IntoIterator<Item = &'a Arc<MemberDevice>>,
    ) -> Result<Arc<MemberDevice>, Refusal> {
        disk_io::open(path, read_only).map_err(|refusal| {
            let busy = refusal.errno == Errno::Busy;
            let dev = busy.then(|| disk_io::dev_of(path)).flatten();
            let user = dev.and_then(|dev| {
                let mut opened = opened.into_iter();
                match opened.find(|device| device.dev() == dev) {
                    Some(twin) => Some(refuse!(
                        Errno::Busy,
                        "{path} is {}, which the line names twice",
                        disk_io::name(twin)
                    )),
                    None => self.user_of(path, dev),
                }
            });
            user.unwrap_or(refusal)
        })
    }

    /// Says who of us uses the device at `path`.
    fn user_of(&self, path: &str, dev: u32) -> Option<Refusal> {
        self.reap();
        let zombies = self.zombies.lock();
        if let Some(zombie) = zombies.iter().find(|zombie| zombie.dev() == dev) {
            return Some(zombie.refusal(path));
        }
        drop(zombies);
        if let Some(user) = self.claims.user_of(dev) {
            return Some(refuse!(Errno::Busy, "{path} {}", user.as_str()));
        }
        let uuid = self.set_of(dev)?;
        Some(refuse!(
            Errno::Busy,
            "{path} waits in the set {uuid}, which abort lets go of"
        ))
    }

    /// Lets go of devices that answered after all.
    pub(crate) fn reap(&self) {
        loop {
            let mut zombies = self.zombies.lock();
            let found = zombies.iter().position(|zombie| zombie.in_flight() == 0);
            let zombie = found.and_then(|index| zombies.remove(index).ok());
            drop(zombies);
            // Dropped here, without the lock: it may be the last of its array.
            if zombie.is_none() {
                return;
            }
        }
    }

    /// Removes the directories of members that left their slots.
    pub(crate) fn forget_removed(&self, running: &mut Running) {
        for slot in running.array.geometry.all_slots().iter() {
            if running.array.member(slot).is_some() {
                continue;
            }
            if let Some(member) = running.hide_member(slot) {
                self.add_zombie(&running.array, member);
            }
        }
    }

    /// The text of `last_error`.
    pub(crate) fn last_error(&self) -> (u64, TextBuf<400>) {
        let last = self.last_error.lock();
        (last.number, last.text)
    }

    /// Notes a refusal, in the log and for `last_error`.
    pub(crate) fn note_refusal(&self, line: &[u8], refusal: &Refusal) {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let text = TextBuf::format(format_args!(
            "{}\n{}: {}",
            Excerpt(line),
            refusal.errno.as_str(),
            refusal.as_str()
        ));
        let mut last = self.last_error.lock();
        last.number = last.number.wrapping_add(1);
        last.text = text;
        drop(last);
        array_warn_ratelimited!(refusal.errno.as_str(), "{}", refusal.as_str());
    }
}

impl Owner for Registry {
    fn add_device(&self, array: &Arc<Array>, line: &[u8]) -> Result<(), Refusal> {
        self.take_new_device(array, line)
    }

    fn attend(&self, array: &Arc<Array>) {
        {
            let mut running = self.running.lock();
            if let Some(running) = running.iter_mut().find(|r| Arc::ptr_eq(&r.array, array)) {
                self.forget_removed(running);
                self.look_after_spares(running);
                while let Some((text, member)) = array.next_uevent() {
                    // Who missed it finds the state in the files.
                    let _ = send(&running.disk, text, member.as_deref());
                }
                if array.take_changed() {
                    notify(running);
                }
            }
        }
        self.reap();
    }

    fn refused(&self, line: &[u8], refusal: &Refusal) {
        self.note_refusal(line, refusal);
    }
}

/// Sends an event of the array, or of a member, to user space.
fn send(disk: &Disk<Array>, text: &CStr, member: Option<&Member>) -> Result {
    match member {
        Some(member) => {
            let name = disk_io::c_name(format_args!("ERAID_MEMBER={}", member.name()))?;
            disk.uevent(&[text, &name])
        }
        None => disk.uevent(&[text]),
    }
}

/// Wakes who polls the files of an array.
fn notify(running: &Running) {
    if let Some(directory) = &running.directory {
        for file in [c"degraded", c"array_state", c"sync_action", c"status"] {
            directory.notify(file);
        }
    }
    let shown = running.members.iter().flatten();
    for directory in shown.filter_map(|shown| shown.directory.as_ref()) {
        directory.notify(c"state");
        directory.notify(c"sit_out");
    }
}
