// SPDX-License-Identifier: GPL-2.0

//! Member states, in md's words, and how they may change.

use crate::refusal::{Errno, Refusal};
use crate::refuse;
use crate::units::{Slot, SlotSet};
use crate::words::{one_line, Excerpt};
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

#[cfg(test)]
mod tests {
    use super::*;

    use Event::{Fail, Gone, ReAdd, Recovered, Remove, StartRecovery};
    use MemberState::{Faulty, InSync, Missing, Recovering, Spare};

    fn set(slots: &[u8]) -> SlotSet {
        slots.iter().filter_map(|n| Slot::new(*n)).collect()
    }

    #[test]
    fn transitions() {
        let legal = [
            (InSync, Fail, Faulty),
            (InSync, Gone, Faulty),
            (Recovering, Fail, Faulty),
            (Recovering, Gone, Faulty),
            (Recovering, Recovered, InSync),
            (Spare, Fail, Faulty),
            (Spare, Gone, Faulty),
            (Spare, Remove, Missing),
            (Spare, StartRecovery, Recovering),
            (Faulty, Fail, Faulty),
            (Faulty, Gone, Faulty),
            (Faulty, Remove, Missing),
            (Missing, StartRecovery, Recovering),
            (Missing, ReAdd, InSync),
        ];
        for state in [InSync, Recovering, Spare, Faulty, Missing] {
            for event in [Fail, Gone, Remove, StartRecovery, ReAdd, Recovered] {
                let found = legal.iter().find(|l| (l.0, l.1) == (state, event));
                assert_eq!(
                    state.after(event),
                    found.map(|l| l.2),
                    "{state:?} {event:?}"
                );
            }
        }
    }

    #[test]
    fn a_failed_member_is_never_in_sync_without_a_rebuild_or_a_removal() {
        for event in [StartRecovery, ReAdd, Recovered] {
            assert_eq!(Faulty.after(event), None);
        }
    }

    #[test]
    fn words_of_md() {
        let text = |state, blocked, write_error| {
            let text = StateText {
                state,
                blocked,
                write_error,
            };
            text.to_string()
        };
        assert_eq!(text(InSync, false, false), "in_sync");
        assert_eq!(text(InSync, true, true), "in_sync,blocked,write_error");
        assert_eq!(text(Recovering, false, false), "spare");
        assert_eq!(text(Faulty, true, false), "faulty,blocked");
    }

    #[test]
    fn commands() {
        let parse = |line: &'static str| StateCommand::parse(line.as_bytes());
        assert_eq!(parse("faulty\n"), Ok(StateCommand::Faulty));
        assert_eq!(parse("remove"), Ok(StateCommand::Remove));
        for (line, errno) in [
            ("want_replacement\n", Errno::OpNotSupp),
            ("-blocked\n", Errno::OpNotSupp),
            ("re-add\n", Errno::OpNotSupp),
            ("in_sync\n", Errno::OpNotSupp),
            ("Faulty\n", Errno::Inval),
            ("--blocked\n", Errno::Inval),
            ("-faulty\n", Errno::Inval),
            ("faulty remove\n", Errno::Inval),
            ("faulty\nremove\n", Errno::Inval),
            ("fa\u{0}lty\n", Errno::Inval),
            ("\n", Errno::Inval),
            ("", Errno::Inval),
        ] {
            let refusal = parse(line).unwrap_err();
            assert_eq!(refusal.errno, errno, "{line:?}: {refusal}");
            assert!(refusal.as_str().starts_with("state: "), "{refusal}");
        }
    }

    #[test]
    fn commands_are_checked_against_the_array() {
        let check = |command: StateCommand, state, slot, in_sync: &[u8], parity| {
            let slot = Slot::new(slot);
            command
                .check(state, slot, set(in_sync), 3, parity)
                .map_err(|r| r.errno)
        };
        use StateCommand::{Faulty as SetFaulty, Remove as SetRemove};
        assert_eq!(check(SetFaulty, InSync, 1, &[0, 1, 2], 1), Ok(Fail));
        assert_eq!(
            check(SetFaulty, InSync, 1, &[0, 1], 1),
            Err(Errno::Busy),
            "the data needs it"
        );
        assert_eq!(
            check(SetFaulty, InSync, 1, &[0, 1, 2], 0),
            Err(Errno::Busy),
            "RAID-0"
        );
        assert_eq!(
            check(SetFaulty, InSync, 1, &[1], 2),
            Err(Errno::Busy),
            "the last copy"
        );
        assert_eq!(check(SetFaulty, Recovering, 2, &[0, 1], 1), Ok(Fail));
        assert_eq!(check(SetFaulty, Faulty, 2, &[0, 1], 1), Ok(Fail), "again");
        assert_eq!(check(SetFaulty, Missing, 2, &[0, 1], 1), Err(Errno::NoDev));
        assert_eq!(check(SetRemove, Faulty, 2, &[0, 1], 1), Ok(Remove));
        assert_eq!(check(SetRemove, InSync, 1, &[0, 1, 2], 1), Err(Errno::Busy));
        assert_eq!(
            check(SetRemove, Recovering, 2, &[0, 1], 1),
            Err(Errno::Busy)
        );
    }

    #[test]
    fn summaries() {
        let summary = |raid_disks, in_sync: &[u8]| {
            let in_sync = set(in_sync);
            Summary {
                raid_disks,
                in_sync,
            }
            .to_string()
        };
        assert_eq!(summary(6, &[0, 1, 2, 4, 5]), "[6/5] [UUU_UU]");
        assert_eq!(summary(2, &[0, 1]), "[2/2] [UU]");
        assert_eq!(summary(3, &[]), "[3/0] [___]");
        assert_eq!(
            summary(2, &[0, 5]),
            "[2/1] [U_]",
            "only members of the array count"
        );
        assert_eq!(degraded(6, set(&[0, 1, 2, 4, 5])), 1);
        assert_eq!(degraded(64, SlotSet::first_n(64)), 0);
    }
}
