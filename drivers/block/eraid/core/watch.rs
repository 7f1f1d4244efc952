// SPDX-License-Identifier: GPL-2.0

//! The watch over an array's members: detectors, and the sit-outs they lead to.
//!
//! One [`Watch`] for each array, behind a lock of the caller's. [`Watch::check`] is called at every
//! `outlier_check_interval_ms`; everything else when it happens. None of it waits or allocates.

use crate::outlier::{Detector, Members, Observation, Peer, Stall, Tukey, Tuning};
use crate::refusal::Refusal;
use crate::sitout::{Action, Request, Rules, SitOut, SitOuts};
use crate::units::{Micros, Slot, SlotSet};

/// Which detector looks for outliers; stalls are looked for beside either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// [`Tukey`].
    Tukey,
    /// [`Peer`].
    #[default]
    Peer,
}

/// All parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `outlier_detector`.
    pub detector: Choice,
    /// Those of detectors.
    pub tuning: Tuning,
    /// Those of sit-outs.
    pub rules: Rules,
}

/// What the array can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Members in sync.
    pub in_sync: SlotSet,
    /// How many members may sit out: [`crate::sitout::cap`].
    pub allowed: u8,
}

/// Detectors and sit-outs of an array. Some 11 KiB: it belongs on no kernel stack.
#[derive(Clone, Debug)]
pub struct Watch {
    peer: Peer,
    tukey: Tukey,
    stall: Stall,
    sit_outs: SitOuts,
}

impl Watch {
    /// Nothing is known yet, and all members are read.
    pub const fn new() -> Self {
        Self {
            peer: Peer::new(),
            tukey: Tukey::new(),
            stall: Stall::new(),
            sit_outs: SitOuts::new(),
        }
    }

    /// Looks at the members, `seen` by slot; to be called until there is nothing to be done.
    pub fn check(
        &mut self,
        seen: &[Observation],
        standing: Standing,
        settings: &Settings,
        now: Micros,
    ) -> Option<Action> {
        let (tuning, rules) = (&settings.tuning, &settings.rules);
        if let Some(action) = self.sit_outs.due(rules, standing.allowed, now) {
            return Some(self.noted(action));
        }
        if !rules.is_on() {
            return None;
        }
        let compared = standing.in_sync.minus(self.sit_outs.sitting());
        let members = Members::new(seen, compared);
        let stalled = self.stall.look(members, tuning, now);
        let slow = match settings.detector {
            Choice::Tukey => self.tukey.look(members, tuning, now),
            Choice::Peer => self.peer.look(members, tuning, now),
        };
        let mut found = stalled.into_iter().chain(slow);
        let action =
            found.find_map(|found| self.sit_outs.found(&found, rules, standing.allowed, now))?;
        Some(self.noted(action))
    }

    /// The administrator says something about a member.
    ///
    /// # Errors
    ///
    /// As [`SitOuts::request`].
    pub fn request(
        &mut self,
        slot: Slot,
        request: Request,
        standing: Standing,
        now: Micros,
    ) -> Result<Option<Action>, Refusal> {
        let action = self
            .sit_outs
            .request(slot, request, standing.allowed, now)?;
        Ok(action.map(|action| self.noted(action)))
    }

    /// See [`SitOuts::probed`].
    pub fn probed(
        &mut self,
        slot: Slot,
        own: Micros,
        peers: Micros,
        rules: &Rules,
        now: Micros,
    ) -> Option<Action> {
        let action = self.sit_outs.probed(slot, own, peers, rules, now)?;
        Some(self.noted(action))
    }

    /// See [`SitOuts::gone`].
    pub fn gone(&mut self, slot: Slot, now: Micros) -> Option<Action> {
        self.forget(slot);
        self.sit_outs.gone(slot, now)
    }

    /// The state of a member.
    pub fn state(&self, slot: Slot) -> SitOut {
        self.sit_outs.state(slot)
    }

    /// Members that sit out, and what reads of a stripe avoid.
    pub fn sit_outs(&self) -> &SitOuts {
        &self.sit_outs
    }

    /// `slow_score` of a member, 0 to 100: how close it is to being found, by either detector in use.
    pub fn slow_score(&self, slot: Slot, settings: &Settings) -> u32 {
        let outlier = match settings.detector {
            Choice::Tukey => self.tukey.score(slot, &settings.tuning),
            Choice::Peer => self.peer.score(slot, &settings.tuning),
        };
        outlier.max(self.stall.score(slot, &settings.tuning))
    }

    /// Who comes and goes starts afresh.
    fn noted(&mut self, action: Action) -> Action {
        if let Action::Begin { slot, .. } | Action::End { slot, .. } = action {
            self.forget(slot);
        }
        action
    }

    fn forget(&mut self, slot: Slot) {
        self.peer.forget(slot);
        self.tukey.forget(slot);
        self.stall.forget(slot);
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}
