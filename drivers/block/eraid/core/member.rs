// SPDX-License-Identifier: GPL-2.0

//! Member states, in md's words, and how they may change.

use crate::control::{one_line, Excerpt};
use crate::refusal::{Errno, Refusal};
use crate::refuse;
use crate::units::{Slot, SlotSet};
use core::fmt;

/// State of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// It holds all its data, but for regions it is stale in.
    InSync,
    /// It has a slot and is being rebuilt.
    Recovering,
    /// It has no slot and waits to replace a member.
    Spare,
    /// It is out of use until removed.
    Faulty,
    /// There is no device.
    Missing,
}

/// What happens to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A write to it failed and could not be recorded otherwise, or `faulty` was written.
    Fail,
    /// The device went away.
    Gone,
    /// It was removed from the array.
    Remove,
    /// A device came to the place, to be rebuilt.
    StartRecovery,
    /// A member that left came back and needs no more than its stale regions.
    ReAdd,
    /// The rebuild is complete.
    Recovered,
}

impl MemberState {
    /// The state after `event`; `None` where that cannot happen to a member in this state.
    #[inline]
    pub const fn after(self, event: Event) -> Option<MemberState> {
        use MemberState::{Faulty, InSync, Missing, Recovering, Spare};
        match (self, event) {
            (InSync | Recovering | Spare, Event::Fail | Event::Gone) => Some(Faulty),
            (Faulty, Event::Fail | Event::Gone) => Some(Faulty),
            (Faulty | Spare, Event::Remove) => Some(Missing),
            (Missing | Spare, Event::StartRecovery) => Some(Recovering),
            (Missing, Event::ReAdd) => Some(InSync),
            (Recovering, Event::Recovered) => Some(InSync),
            _ => None,
        }
    }

    /// md's word for `state`; a member being rebuilt is a spare there.
    #[inline]
    pub const fn as_str(self) -> &'static str {
        match self {
            MemberState::InSync => "in_sync",
            MemberState::Recovering | MemberState::Spare => "spare",
            MemberState::Faulty => "faulty",
            MemberState::Missing => "missing",
        }
    }
}

/// What a member's `state` reads: its words with commas between them.
#[derive(Clone, Copy, Debug)]
pub struct StateText {
    /// The state.
    pub state: MemberState,
    /// Writes wait until its failure is recorded.
    pub blocked: bool,
    /// It has failed a write.
    pub write_error: bool,
}

impl fmt::Display for StateText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.state.as_str())?;
        if self.blocked {
            f.write_str(",blocked")?;
        }
        if self.write_error {
            f.write_str(",write_error")?;
        }
        Ok(())
    }
}

/// What can be written to a member's `state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateCommand {
    /// Fail the member.
    Faulty,
    /// Take it out of the array.
    Remove,
}

impl StateCommand {
    /// Parses a line.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for md's other words, `EINVAL` for anything else.
    pub fn parse(line: &[u8]) -> Result<StateCommand, Refusal> {
        match one_line("state", line)? {
            "faulty" => Ok(StateCommand::Faulty),
            "remove" => Ok(StateCommand::Remove),
            word if MD_WORDS.contains(&word.strip_prefix('-').unwrap_or(word)) => Err(refuse!(
                Errno::OpNotSupp,
                "state: {word} cannot be set; faulty and remove can"
            )),
            word => Err(refuse!(
                Errno::Inval,
                "state: {} is not known; faulty and remove can be written",
                Excerpt(word.as_bytes())
            )),
        }
    }

    /// Checks the command against the array: `slot` is the member's, if it has one, `in_sync` the
    /// members that are in sync, `parity` how many of `raid_disks` may be missing.
    ///
    /// Returns what then happens to the member.
    ///
    /// # Errors
    ///
    /// `EBUSY` for failing a member that the data needs, and for removing one in use.
    pub fn check(
        self,
        state: MemberState,
        slot: Option<Slot>,
        in_sync: SlotSet,
        raid_disks: u8,
        parity: u8,
    ) -> Result<Event, Refusal> {
        let event = match self {
            StateCommand::Faulty => Event::Fail,
            StateCommand::Remove => Event::Remove,
        };
        if self == StateCommand::Faulty && state == MemberState::InSync {
            let left = slot.map_or(in_sync, |slot| in_sync.without(slot));
            let needed = raid_disks.saturating_sub(parity);
            if left.len() < u32::from(needed) {
                return Err(refuse!(
                    Errno::Busy,
                    "state: faulty would lose the data: it leaves {} members in sync of {needed} \
                     needed",
                    left.len()
                ));
            }
        }
        if state.after(event).is_none() {
            return Err(match self {
                StateCommand::Remove => refuse!(
                    Errno::Busy,
                    "state: the member is in use; write faulty first, then remove"
                ),
                StateCommand::Faulty => refuse!(Errno::NoDev, "state: the member is missing"),
            });
        }
        Ok(event)
    }
}

/// Words that md takes or prints in `state` and that cannot be written here.
const MD_WORDS: [&str; 13] = [
    "in_sync",
    "insync",
    "spare",
    "want_replacement",
    "replacement",
    "write_error",
    "blocked",
    "writemostly",
    "write_mostly",
    "re-add",
    "failfast",
    "journal",
    "external_bbl",
];

/// How many members lack.
#[inline]
pub fn degraded(raid_disks: u8, in_sync: SlotSet) -> u8 {
    let there = in_sync.intersect(SlotSet::first_n(raid_disks)).len();
    raid_disks.saturating_sub(there as u8)
}

/// md's `[6/5] [UUU_UU]`: members, members in sync, and each of them.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// Members of the array.
    pub raid_disks: u8,
    /// Those in sync.
    pub in_sync: SlotSet,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let there = self
            .raid_disks
            .saturating_sub(degraded(self.raid_disks, self.in_sync));
        write!(f, "[{}/{there}] [", self.raid_disks)?;
        for slot in SlotSet::first_n(self.raid_disks) {
            f.write_str(if self.in_sync.contains(slot) {
                "U"
            } else {
                "_"
            })?;
        }
        f.write_str("]")
    }
}
