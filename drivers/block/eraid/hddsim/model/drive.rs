// SPDX-License-Identifier: GPL-2.0

//! The drive: takes commands, and says when each is answered, and how.
//!
//! The caller numbers each command, submits it, asks for the events that are due, and comes back
//! when [`Drive::wake_at`] says so. All times are of one clock that never goes back.
//!
//! One command at a time uses the mechanics. When they are free, the next one is the one whose first
//! block is reached soonest; see [`Drive::choose`]. Writes go to the cache if there is room, and from
//! there to the medium when no command waits, when a flush waits for them, or when the cache fills up.

use crate::buffer::Buffer;
use crate::cache::{CachedWrite, WriteCache};
use crate::counters::Counters;
use crate::failure::{Bad, FailMode};
use crate::geometry::{Geometry, Place};
use crate::params::{Key, Params, RetryOff};
use crate::units::{Block, Extent, Nanos, BLOCK_SIZE, SECTORS_PER_BLOCK};
use core::ops::DerefMut;

/// Commands that a drive can hold.
pub const TAGS: usize = 64;

/// Cached writes of which the nearest is chosen; the oldest ones.
const DESTAGE_WINDOW: usize = 64;

/// What a command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read.
    Read,
    /// Write.
    Write {
        /// The answer is only given when the data is durable (FUA).
        durable: bool,
    },
    /// Make all writes durable that were answered before.
    Flush,
}

/// A command.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// What it asks for.
    pub op: Op,
    /// Where; nothing for a flush. Ends within the drive.
    pub extent: Extent,
    /// Its number, from [`Drive::number`].
    pub seq: u64,
    /// Whether it asks for an answer without retries.
    pub hint: bool,
    /// For reads, what fails at the first attempt.
    pub bad: Bad,
}

/// The answer to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is well.
    Good,
    /// A read stopped at a bad block.
    Unread {
        /// The sectors before it, which the host knows to be good.
        good: u32,
    },
    /// The drive has no power.
    PowerLost,
}

/// Something that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The command in a slot is answered; the slot is free again.
    Done {
        /// The slot, from [`Drive::submit`].
        slot: usize,
        /// The answer.
        outcome: Outcome,
    },
    /// What these sectors hold now is on the medium.
    Durable(Extent),
}

/// Where a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nowhere: the slot is free.
    Free,
    /// It waits for the mechanics, or a flush for the cache.
    Waiting,
    /// Its answer is given at this time.
    Answering(Nanos, Outcome),
}

/// Room for a command.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    state: State,
    command: Command,
    arrived: Nanos,
    /// Where it starts.
    place: Place,
    /// When its last block has passed, in media time.
    end: Nanos,
}

impl Slot {
    /// A free slot.
    pub const FREE: Self = Slot {
        state: State::Free,
        command: Command {
            op: Op::Flush,
            extent: Extent {
                sector: 0,
                sectors: 0,
            },
            seq: 0,
            hint: false,
            bad: Bad { count: 0, first: 0 },
        },
        arrived: Nanos::ZERO,
        place: NOWHERE,
        end: Nanos::ZERO,
    };

    /// Whether it is a command that needs the mechanics.
    fn waits(&self) -> bool {
        self.state == State::Waiting && self.command.op != Op::Flush
    }
}

/// The place of commands that have none.
const NOWHERE: Place = Place {
    cylinder: 0,
    head: 0,
    index: 0,
    media: Nanos::ZERO,
    length: Nanos::ZERO,
};

/// Who uses the mechanics next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// The command in a slot.
    Slot(usize),
    /// The cached write of this number.
    Cached(u64),
}

/// A use of the mechanics.
#[derive(Clone, Copy, Debug)]
struct Service {
    until: Nanos,
    /// What it writes.
    writes: Option<Extent>,
    /// The cached write that this was.
    cached: Option<u64>,
}

/// How a read goes.
struct ReadPlan {
    /// When it is answered.
    answer: Nanos,
    outcome: Outcome,
    /// When the mechanics are free again.
    free: Nanos,
    /// The buffer then.
    buffer: Option<Buffer>,
}

/// A hard drive.
#[derive(Debug)]
pub struct Drive<S, W> {
    params: Params,
    geometry: Geometry,
    slots: S,
    cache: WriteCache<W>,
    buffer: Option<Buffer>,
    /// Cylinder and head when there is no buffer.
    at: (u64, u64),
    service: Option<Service>,
    counters: Counters,
    next_number: u64,
    /// Choices since one was by age.
    since_aged: u64,
    stalled_until: Nanos,
    hung: bool,
    powered: bool,
}

impl<S, W> Drive<S, W>
where
    S: DerefMut<Target = [Slot]>,
    W: DerefMut<Target = [Option<CachedWrite>]>,
{
    /// A drive with its head at block 0. `slots` are [`TAGS`] free ones, `cached` is room for the
    /// cache's books.
    pub fn new(params: Params, slots: S, cached: W) -> Self {
        Drive {
            geometry: Geometry::new(&params),
            params,
            slots,
            cache: WriteCache::new(cached),
            buffer: None,
            at: (0, 0),
            service: None,
            counters: Counters::default(),
            next_number: 0,
            since_aged: 0,
            stalled_until: Nanos::ZERO,
            hung: false,
            powered: true,
        }
    }

    /// The parameters.
    #[inline]
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The geometry.
    #[inline]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The counters.
    #[inline]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Commands that are not answered yet.
    pub fn queued(&self) -> usize {
        let taken = |slot: &&Slot| slot.state != State::Free;
        self.slots.iter().filter(taken).count()
    }

    /// Cached writes that are not on the medium yet.
    #[inline]
    pub fn cached(&self) -> usize {
        self.cache.len()
    }

    /// Whether it has power.
    #[inline]
    pub fn is_powered(&self) -> bool {
        self.powered
    }

    /// Whether it hangs.
    #[inline]
    pub fn is_hung(&self) -> bool {
        self.hung
    }

    /// Changes the parameters. What is under way goes on as it was.
    pub fn set_params(&mut self, params: Params) {
        let geometry = Geometry::new(&params);
        self.params = params;
        if geometry == self.geometry {
            return;
        }
        self.geometry = geometry;
        self.buffer = None;
        for slot in self.slots.iter_mut() {
            (slot.place, slot.end) = span(&self.geometry, slot.command.extent);
        }
        self.cache.for_each_mut(|write| {
            (write.place, write.end) = span(&self.geometry, write.extent);
        });
    }

    /// Back to the start: head, buffer, numbers and counters. Returns false, and does nothing, unless
    /// the drive has nothing to do.
    #[must_use]
    pub fn reset(&mut self) -> bool {
        let idle = self.queued() == 0 && self.cache.is_empty() && self.service.is_none();
        if idle {
            self.buffer = None;
            self.at = (0, 0);
            self.counters = Counters::default();
            self.next_number = 0;
            self.since_aged = 0;
        }
        idle
    }

    /// Stands still until `until`: no answers, no movement.
    pub fn stall(&mut self, until: Nanos) {
        self.stalled_until = until;
    }

    /// Answers nothing any more, or again.
    pub fn hang(&mut self, hung: bool) {
        self.hung = hung;
    }

    /// Loses power: the cache is gone, and all commands fail, later ones too.
    ///
    /// What becomes of the content of writes that were not durable is the caller's part.
    pub fn power_off(&mut self) {
        self.powered = false;
        self.service = None;
        self.buffer = None;
        self.cache.clear();
        self.stalled_until = Nanos::ZERO;
        for slot in self.slots.iter_mut() {
            if slot.state != State::Free {
                slot.state = State::Answering(Nanos::ZERO, Outcome::PowerLost);
            }
        }
    }

    /// Has power again.
    pub fn power_on(&mut self) {
        self.powered = true;
    }

    /// A number for the next command.
    pub fn number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number = number.saturating_add(1);
        number
    }

    /// Takes a command, and returns its slot; `None` if there is none free.
    pub fn submit(&mut self, now: Nanos, command: Command) -> Option<usize> {
        let free = |slot: &Slot| slot.state == State::Free;
        let index = self.slots.iter().position(free)?;
        let (place, end) = span(&self.geometry, command.extent);
        let state = self.on_arrival(now, &command, place, end);
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = Slot {
                state,
                command,
                arrived: now,
                place,
                end,
            };
        }
        self.counters.max_queued = self.counters.max_queued.max(self.queued() as u64);
        Some(index)
    }

    /// What happens to a command at once.
    fn on_arrival(&mut self, now: Nanos, command: &Command, place: Place, end: Nanos) -> State {
        let extent = command.extent;
        match command.op {
            Op::Read => {
                self.counters.reads += 1;
                self.counters.read_blocks += extent.blocks();
            }
            Op::Write { .. } => {
                self.counters.writes += 1;
                self.counters.written_blocks += extent.blocks();
            }
            Op::Flush => self.counters.flushes += 1,
        }
        if !self.powered {
            return State::Answering(now, Outcome::PowerLost);
        }
        let hit = now + self.scaled(self.params.micros(Key::HitUs)) + self.latency();
        let limit = self.cache_limit();
        match command.op {
            Op::Read if self.cache.covers(extent) => {
                self.counters.cache_hits += 1;
                State::Answering(hit, Outcome::Good)
            }
            Op::Write { durable: false } if self.cache.has_room(extent.sectors, limit) => {
                self.cache.push(CachedWrite {
                    extent,
                    seq: command.seq,
                    arrived: now,
                    place,
                    end,
                });
                State::Answering(hit, Outcome::Good)
            }
            _ => State::Waiting,
        }
    }

    /// The next thing that has happened by now; to be called until there is nothing.
    pub fn event(&mut self, now: Nanos) -> Option<Event> {
        if self.hung || now < self.stalled_until {
            return None;
        }
        loop {
            if let Some(extent) = self.finish_service(now) {
                return Some(Event::Durable(extent));
            }
            if let Some(done) = self.answer(now) {
                return Some(done);
            }
            let busy = self.service.is_some();
            if !self.answer_flushes(now) && (busy || !self.start(now)) {
                return None;
            }
        }
    }

    /// When [`Self::event`] has something to say again, if nothing else happens.
    pub fn wake_at(&self) -> Option<Nanos> {
        if self.hung {
            return None;
        }
        let answers = self.slots.iter().filter_map(|slot| match slot.state {
            State::Answering(due, _) => Some(due),
            State::Free => None,
            // Nothing waits for idle mechanics but during a stall.
            State::Waiting => self.service.is_none().then_some(self.stalled_until),
        });
        let service = self.service.iter().map(|service| service.until);
        let destage = (self.service.is_none() && !self.cache.is_empty()).then_some(Nanos::ZERO);
        let next = answers.chain(service).chain(destage).min()?;
        Some(next.max(self.stalled_until))
    }

    /// Ends a use of the mechanics that is over; returns what was written.
    fn finish_service(&mut self, now: Nanos) -> Option<Extent> {
        let service = self.service.filter(|service| service.until <= now)?;
        self.service = None;
        if let Some(seq) = service.cached {
            self.cache.remove(seq);
        }
        service.writes
    }

    /// Gives the answer that is due first.
    fn answer(&mut self, now: Nanos) -> Option<Event> {
        let due = |(index, slot): (usize, &Slot)| match slot.state {
            State::Answering(due, outcome) if due <= now => Some((due, index, outcome)),
            _ => None,
        };
        let all = self.slots.iter().enumerate().filter_map(due);
        let (_, slot, outcome) = all.min_by_key(|(due, index, _)| (*due, *index))?;
        self.slots.get_mut(slot)?.state = State::Free;
        Some(Event::Done { slot, outcome })
    }

    /// Answers flushes that nothing holds up any more; returns whether there were any.
    fn answer_flushes(&mut self, now: Nanos) -> bool {
        let due = now + self.scaled(self.params.micros(Key::OverheadUs)) + self.latency();
        let mut any = false;
        for slot in self.slots.iter_mut() {
            let flush = slot.state == State::Waiting && slot.command.op == Op::Flush;
            if flush && !self.cache.holds_before(slot.command.seq) {
                slot.state = State::Answering(due, Outcome::Good);
                any = true;
            }
        }
        any
    }

    /// Puts the mechanics to work; returns false if there is none.
    fn start(&mut self, now: Nanos) -> bool {
        let Some(target) = self.choose(now) else {
            return false;
        };
        let before = self.head(now).0;
        let service = match target {
            Target::Slot(index) => self.start_slot(now, index),
            Target::Cached(seq) => self.start_cached(now, seq),
        };
        let Some((service, cylinder)) = service else {
            return false;
        };
        self.counters.seeks += u64::from(before != cylinder);
        self.counters.busy_us += service.until.since(now).0 / 1000;
        self.service = Some(service);
        true
    }

    /// Starts the command of a slot; returns the cylinder that this needs, too.
    fn start_slot(&mut self, now: Nanos, index: usize) -> Option<(Service, u64)> {
        let slot = *self.slots.get(index)?;
        let (answer, outcome, service, cylinder) = match slot.command.op {
            Op::Read => {
                let plan = self.plan_read(now, &slot);
                let buffered = self.reach_in_buffer(now, &slot).is_some();
                let cylinder = match buffered {
                    true => self.head(now).0,
                    false => slot.place.cylinder,
                };
                self.buffer = plan.buffer;
                let service = Service {
                    until: plan.free,
                    writes: None,
                    cached: None,
                };
                (plan.answer, plan.outcome, service, cylinder)
            }
            Op::Write { .. } => {
                let start = now + self.params.micros(Key::OverheadUs);
                let until =
                    self.write_until(now, start, slot.command.extent, &slot.place, slot.end);
                let service = Service {
                    until,
                    writes: Some(slot.command.extent),
                    cached: None,
                };
                (until, Outcome::Good, service, slot.place.cylinder)
            }
            Op::Flush => return None,
        };
        self.park(slot.command.extent);
        let due = answer + self.latency();
        self.slots.get_mut(index)?.state = State::Answering(due, outcome);
        Some((service, cylinder))
    }

    /// Starts to write a cached write to the medium. No command is involved, so it has no overhead,
    /// and the next one in a row is written without loss of a turn.
    fn start_cached(&mut self, now: Nanos, seq: u64) -> Option<(Service, u64)> {
        let write = *self.cache.iter().find(|write| write.seq == seq)?;
        let until = self.write_until(now, now, write.extent, &write.place, write.end);
        self.park(write.extent);
        self.counters.destages += 1;
        let service = Service {
            until,
            writes: Some(write.extent),
            cached: Some(seq),
        };
        Some((service, write.place.cylinder))
    }

    /// When blocks have been written.
    fn write_until(
        &mut self,
        now: Nanos,
        start: Nanos,
        extent: Extent,
        place: &Place,
        end: Nanos,
    ) -> Nanos {
        let access = self.geometry.access(start, self.head(now), place, end);
        self.buffer = None;
        let mut until = access.end;
        if !extent.is_whole_blocks() {
            // The rest of a physical sector has to be read first.
            until += self.geometry.rotation();
        }
        now + self.scaled(until.since(now)) + self.params.millis(Key::DelayMs)
    }

    /// The head stays where the extent ends.
    fn park(&mut self, extent: Extent) {
        let last = self.geometry.place(extent.end_block().minus(1));
        self.at = (last.cylinder, last.head);
    }

    /// Where the head is: it may be reading on.
    fn head(&self, now: Nanos) -> (u64, u64) {
        match &self.buffer {
            Some(buffer) => {
                let block = buffer.reached(&self.geometry, now).min(self.last_block());
                let place = self.geometry.place(block);
                (place.cylinder, place.head)
            }
            None => self.at,
        }
    }

    /// Who uses the mechanics next: what is reached soonest.
    ///
    /// Of commands, the oldest `queue_depth` are considered. Cached writes join when there are no
    /// commands, when a flush waits for them, or when the cache is pressed. At most once in
    /// `age_every` choices the oldest of all is taken instead, if it has waited longer than `age_ms`:
    /// so nothing starves, and old commands never take over, which would turn the queue into first
    /// come, first served just when it is too long.
    fn choose(&mut self, now: Nanos) -> Option<Target> {
        if !self.powered {
            return None;
        }
        let limit = self.host_limit();
        let host = || {
            self.slots
                .iter()
                .enumerate()
                .filter(move |(_, slot)| slot.waits() && slot.command.seq <= limit)
        };
        let all_cached = host().next().is_none() || self.cache.is_pressed(self.cache_limit());
        let flush = self.newest_flush();
        let cached = || {
            self.cache
                .iter()
                .take(DESTAGE_WINDOW)
                .filter(move |write| all_cached || flush.is_some_and(|seq| write.seq < seq))
        };
        let ages = host()
            .map(|(index, slot)| (slot.arrived, slot.command.seq, Target::Slot(index)))
            .chain(cached().map(|write| (write.arrived, write.seq, Target::Cached(write.seq))));
        let oldest = ages.min_by_key(|(arrived, seq, _)| (*arrived, *seq));
        if let Some((arrived, _, target)) = oldest {
            if self.is_turn_of_age(now.since(arrived)) {
                self.since_aged = 0;
                self.counters.aged_picks += 1;
                return Some(target);
            }
        }
        let head = self.head(now);
        let costs = host()
            .map(|(index, slot)| {
                (
                    self.reach(now, head, slot),
                    slot.command.seq,
                    Target::Slot(index),
                )
            })
            .chain(cached().map(|write| {
                let access = self.geometry.access(now, head, &write.place, write.end);
                (access.begin, write.seq, Target::Cached(write.seq))
            }));
        let nearest = costs.min_by_key(|(begin, seq, _)| (*begin, *seq));
        self.since_aged = self.since_aged.saturating_add(1);
        nearest.map(|(_, _, target)| target)
    }

    /// Whether the oldest, of this age, is to be taken whatever it costs.
    fn is_turn_of_age(&self, age: Nanos) -> bool {
        let limit = self.params.millis(Key::AgeMs);
        let turn = self.since_aged.saturating_add(1) >= self.params.get(Key::AgeEvery);
        limit > Nanos::ZERO && turn && age > limit
    }

    /// The number of the last command that is a candidate.
    fn host_limit(&self) -> u64 {
        let depth = self.params.get(Key::QueueDepth) as usize;
        let waiting = || self.slots.iter().filter(|slot| slot.waits());
        if waiting().count() <= depth {
            return u64::MAX;
        }
        let older = |seq: u64| waiting().filter(move |slot| slot.command.seq < seq).count();
        let numbers = waiting().map(|slot| slot.command.seq);
        numbers.filter(|seq| older(*seq) < depth).max().unwrap_or(0)
    }

    /// The number of the last flush that waits.
    fn newest_flush(&self) -> Option<u64> {
        let flush = |slot: &&Slot| slot.state == State::Waiting && slot.command.op == Op::Flush;
        let numbers = self.slots.iter().filter(flush).map(|slot| slot.command.seq);
        numbers.max()
    }

    /// When the first block of a command is reached.
    ///
    /// A read that goes on where the head is counts as reached, even if the next block is in another
    /// cylinder: or a stream would be left there for a later part of it.
    fn reach(&self, now: Nanos, head: (u64, u64), slot: &Slot) -> Nanos {
        let start = now + self.params.micros(Key::OverheadUs);
        let begin = self
            .geometry
            .access(start, head, &slot.place, slot.end)
            .begin;
        let first = slot.command.extent.first_block();
        let reached = |buffer: &Buffer| first <= buffer.reached(&self.geometry, now);
        match self.reach_in_buffer(now, slot) {
            Some(_) if self.buffer.as_ref().is_some_and(reached) => now,
            Some(buffered) => buffered,
            None => begin,
        }
    }

    /// When the first block of a read is in the buffer, if the buffer holds it, or will do so sooner
    /// than the mechanics could get there.
    fn reach_in_buffer(&self, now: Nanos, slot: &Slot) -> Option<Nanos> {
        let extent = slot.command.extent;
        let buffer = self.buffer.as_ref().filter(|buffer| {
            slot.command.op == Op::Read && buffer.holds(extent.first_block(), extent.end_block())
        })?;
        let hit = now + self.params.micros(Key::HitUs);
        let buffered = buffer.passed(slot.place.media).max(hit);
        let start = now + self.params.micros(Key::OverheadUs);
        let access = self
            .geometry
            .access(start, self.head(now), &slot.place, slot.end);
        (buffered <= access.begin).then_some(buffered)
    }

    /// How a read goes that starts now.
    fn plan_read(&mut self, now: Nanos, slot: &Slot) -> ReadPlan {
        let extent = slot.command.extent;
        let buffered = self.reach_in_buffer(now, slot).and(self.buffer);
        let hit = now + self.params.micros(Key::HitUs);
        let access = {
            let start = now + self.params.micros(Key::OverheadUs);
            let head = self.head(now);
            self.geometry.access(start, head, &slot.place, slot.end)
        };
        // When what lies before a media time has arrived.
        let passed = |media: Nanos| match &buffered {
            Some(buffer) => buffer.passed(media).max(hit),
            None => access.begin + media.since(slot.place.media),
        };
        // What was delivered once is in the buffer, unless nothing ever reads it.
        let delivered = !self.is_never_read()
            && buffered.is_some_and(|buffer| extent.end_block() <= buffer.delivered);
        let bad = match delivered {
            true => Bad::default(),
            false => slot.command.bad,
        };
        self.counters.buffer_hits += u64::from(buffered.is_some());
        if bad.count > 0 && self.is_retry_off(slot.command.hint) {
            let first = extent.first_block().plus(u64::from(bad.first));
            let media = self.geometry.media_end(first, 1);
            return self.plan_error(now, extent, first, media, passed(media));
        }
        let turns = u64::from(bad.count) * self.params.get(Key::RetryTurns);
        self.counters.recovered_sectors += u64::from(bad.count);
        self.counters.retry_turns += turns;
        let end = passed(slot.end) + self.geometry.rotation().times(turns);
        let end = now + self.scaled(end.since(now)) + self.params.millis(Key::DelayMs);
        let kept = buffered.filter(|_| turns == 0);
        ReadPlan {
            answer: end,
            outcome: Outcome::Good,
            free: end,
            buffer: Some(self.buffer_after(kept, slot, access.waited, end)),
        }
    }

    /// How a read goes that ends at a bad block, which has passed at `at`.
    fn plan_error(
        &mut self,
        now: Nanos,
        extent: Extent,
        bad: Block,
        media: Nanos,
        at: Nanos,
    ) -> ReadPlan {
        self.counters.unrecovered_reads += 1;
        let good = match self.params.is_on(Key::SenseInfo) {
            true => (bad.0 * u64::from(SECTORS_PER_BLOCK)).saturating_sub(extent.sector),
            false => 0,
        };
        let delay = self.params.millis(Key::DelayMs) + self.params.millis(Key::ErrorStallMs);
        let answer = now + self.scaled(at.since(now)) + delay;
        let next = bad.plus(1);
        let limit = self.clamp(next.plus(self.params.get(Key::ErrorLookahead)));
        let mut free = answer;
        let mut buffer = None;
        if limit > next {
            let ahead = Buffer {
                start: next,
                delivered: next,
                limit,
                anchor: answer,
                media,
            };
            let end = self.geometry.media_end(next, limit.0 - next.0);
            free = answer + self.scaled(ahead.passed(end).since(answer));
            buffer = Some(ahead);
        }
        ReadPlan {
            answer,
            outcome: Outcome::Unread { good: good as u32 },
            free,
            buffer,
        }
    }

    /// The buffer after a read that ends at `end`; `kept` is the one that it came from.
    fn buffer_after(&self, kept: Option<Buffer>, slot: &Slot, waited: Nanos, end: Nanos) -> Buffer {
        let (first, last) = (
            slot.command.extent.first_block(),
            slot.command.extent.end_block(),
        );
        let ahead = self.params.get(Key::LookaheadKib) * 1024 / u64::from(BLOCK_SIZE);
        let limit = self.clamp(last.plus(ahead));
        let exact = self.params.get(Key::SlowPercent) == 100;
        if let Some(mut buffer) = kept.filter(|_| exact) {
            buffer.extend(&self.geometry, end, last, limit);
            return buffer;
        }
        let before = match self.params.is_on(Key::TrackBuffer) && kept.is_none() {
            true => self.geometry.blocks_before(&slot.place, waited),
            false => 0,
        };
        Buffer {
            start: kept.map_or(first.minus(before), |buffer| buffer.start),
            delivered: last,
            limit,
            // A drive that is made slower or faster has no angle to speak of: it just reads on.
            anchor: match exact {
                true => end + self.geometry.wait(end, slot.end),
                false => end,
            },
            media: slot.end,
        }
    }

    /// Whether bad blocks cannot be read at all until they are written.
    fn is_never_read(&self) -> bool {
        self.params.retry_off() == RetryOff::Always
            && self.params.failures().mode == FailMode::Persistent
    }

    /// Whether a read ends at its first bad block.
    fn is_retry_off(&self, hint: bool) -> bool {
        match self.params.retry_off() {
            RetryOff::Never => false,
            RetryOff::Hint => hint,
            RetryOff::Always => true,
        }
    }

    /// A time as long as this drive takes.
    fn scaled(&self, time: Nanos) -> Nanos {
        time.percent(self.params.get(Key::SlowPercent))
    }

    fn latency(&self) -> Nanos {
        self.params.millis(Key::LatencyMs)
    }

    /// Bytes that the write cache may hold.
    fn cache_limit(&self) -> u64 {
        match self.params.is_on(Key::WriteCache) {
            true => self.params.get(Key::WriteCacheKib) * 1024,
            false => 0,
        }
    }

    fn last_block(&self) -> Block {
        Block(self.params.get(Key::Size) / u64::from(BLOCK_SIZE)).minus(1)
    }

    /// The block, or the end of the drive.
    fn clamp(&self, block: Block) -> Block {
        block.min(self.last_block().plus(1))
    }
}

/// Where an extent starts, and when it has passed, in media time.
fn span(geometry: &Geometry, extent: Extent) -> (Place, Nanos) {
    let first = extent.first_block();
    match extent.blocks() {
        0 => (NOWHERE, Nanos::ZERO),
        blocks => (geometry.place(first), geometry.media_end(first, blocks)),
    }
}
