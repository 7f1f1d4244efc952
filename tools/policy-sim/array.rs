// SPDX-License-Identifier: GPL-2.0

//! An array of simulated drives that reads: requests arrive at random, members have queues, and each
//! request is read as the driver's rule says.

use crate::request::{span, Ask, Next, Request};
use eraid_core::estimate::{ArrayEstimate, End, MemberEstimate, ReadDone, Retries, Snapshot};
use eraid_core::fairness::{Fairness, Note};
use eraid_core::geometry::{Geometry, Level};
use eraid_core::policy::{choose, Policy, ReadMode};
use eraid_core::queue::{Class, Classes, Sweep, Waiting};
use eraid_core::units::{Micros, Sector, Sectors, Slot};
use eraid_hddsim_model::cache::CachedWrite;
use eraid_hddsim_model::drive::{Command, Drive, Event, Op, Outcome, Slot as Tag, TAGS};
use eraid_hddsim_model::hash::hash;
use eraid_hddsim_model::params::{Key, Params};
use eraid_hddsim_model::units::{Block, Extent, Nanos};
use std::collections::VecDeque;

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Setup {
    pub members: u8,
    pub chunk_kib: u64,
    pub size_kib: u64,
    /// Mean time between requests, in µs.
    pub every_us: u64,
    /// Parameters of all drives, and of drive 0.
    pub all: Vec<(Key, u64)>,
    pub one: Vec<(Key, u64)>,
    pub policy: Policy,
    pub depth: u32,
    /// Drive 0 has failed.
    pub removed: bool,
    /// Drive 0 stands still for this time, in ms, from the middle of the run on.
    pub stall_ms: u64,
    pub requests: u64,
    pub seed: u64,
}

/// What came out. Times in ms; counts for each request.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub mean: f64,
    pub p99: f64,
    pub max: f64,
    pub reads: f64,
    pub removed: f64,
    pub promoted: f64,
    /// Shares of the ways to read: normal, failfast, proactive low, proactive ordinary, left out.
    pub modes: [f64; 5],
    /// More requests piled up than can be served.
    pub unstable: bool,
}

/// Requests under way at which an array counts as overloaded for good.
const PILED_UP: usize = 4000;

struct Cmd {
    ask: Ask,
    /// The request, until it ends without this command.
    request: Option<usize>,
    first_block: u64,
    queued: u64,
    dispatched: u64,
    note: Note,
}

struct Member {
    drive: Drive<Vec<Tag>, Vec<Option<CachedWrite>>>,
    classes: Classes,
    ordinary: VecDeque<usize>,
    extra: VecDeque<usize>,
    sweep: Sweep,
    fairness: Fairness,
    /// Commands in the drive, by tag.
    held: [Option<usize>; TAGS],
    estimate: MemberEstimate,
}

impl Member {
    fn new(setup: &Setup, number: usize) -> Self {
        let mut params = Params::DEFAULT;
        let seed = hash(&[setup.seed, 77, number as u64]);
        params.set(Key::Seed, seed).unwrap();
        let own = setup.one.iter().filter(|_| number == 0);
        for (key, value) in setup.all.iter().chain(own) {
            params.set(*key, *value).unwrap();
        }
        Member {
            drive: Drive::new(params, vec![Tag::FREE; TAGS], vec![None; 1]),
            classes: Classes::new(setup.depth, u32::MAX),
            ordinary: VecDeque::new(),
            extra: VecDeque::new(),
            sweep: Sweep::default(),
            fairness: Fairness::default(),
            held: [None; TAGS],
            estimate: MemberEstimate::new(Micros::ZERO),
        }
    }

    fn list(&mut self, class: Class) -> &mut VecDeque<usize> {
        match class {
            Class::Ordinary => &mut self.ordinary,
            Class::Extra => &mut self.extra,
        }
    }

    fn snapshot(&self) -> Snapshot {
        let waiting = self.classes.waiting(Class::Ordinary);
        self.estimate.snapshot(waiting + self.classes.in_device())
    }

    /// The class of the command that may enter the drive now.
    fn dispatch(&mut self, now: u64) -> Option<Class> {
        let held_back = self.fairness.holds_back(Micros::new(now / 1000));
        (!held_back).then(|| self.classes.dispatch()).flatten()
    }

    /// Takes the command that enters the drive next.
    fn take_next(&mut self, class: Class, commands: &[Option<Cmd>], now: u64) -> usize {
        let next = match class {
            Class::Ordinary => {
                let waiting = self.ordinary.iter().map(|&id| {
                    let cmd = commands[id].as_ref().unwrap();
                    let block = cmd.first_block + u64::from(cmd.ask.from);
                    Waiting {
                        at: Some(Sector::new(block * 8)),
                        since: Micros::new(cmd.queued / 1000),
                    }
                });
                self.sweep.next(waiting, Micros::new(now / 1000)).unwrap()
            }
            Class::Extra => 0,
        };
        self.list(class).remove(next).unwrap()
    }

    /// Takes a waiting command out of its list; false if it is in the drive.
    fn take_out(&mut self, id: usize, class: Class) -> bool {
        let list = self.list(class);
        let Some(at) = list.iter().position(|&other| other == id) else {
            return false;
        };
        list.remove(at);
        self.classes.removed(class);
        true
    }

    fn send(&mut self, now: u64, cmd: &mut Cmd) -> usize {
        let seq = self.drive.number();
        let blocks = cmd.ask.to - cmd.ask.from;
        let first = Block(cmd.first_block + u64::from(cmd.ask.from));
        let law = self.drive.params().failures();
        let command = Command {
            op: Op::Read,
            extent: Extent {
                sector: first.0 * 8,
                sectors: blocks * 8,
            },
            seq,
            hint: cmd.ask.retries == Retries::Off,
            bad: law.of_read(seq, first, blocks, |_| false),
        };
        cmd.dispatched = now;
        cmd.note = self.fairness.entered(Micros::new(now / 1000));
        self.estimate.dispatched(Micros::new(now / 1000));
        self.drive.submit(Nanos(now), command).expect("a free tag")
    }
}

struct Array<'a> {
    setup: &'a Setup,
    geometry: Geometry,
    now: u64,
    members: Vec<Member>,
    estimate: ArrayEstimate,
    requests: Vec<Option<Request>>,
    free: Vec<usize>,
    commands: Vec<Option<Cmd>>,
    free_commands: Vec<usize>,
    latencies: Vec<u64>,
    arrived: u64,
    sent: u64,
    taken_out: u64,
    promoted: u64,
    modes: [u64; 5],
    /// Members that may have something to do, a bit each.
    kicked: u64,
}

/// Runs an array until all its requests are answered.
pub fn run(setup: &Setup) -> Report {
    let mut array = Array::new(setup);
    let stall_at = setup.requests / 2 * setup.every_us * 1000;
    let mut stall = (setup.stall_ms > 0).then_some(stall_at);
    let mut arrival = array.gap();
    let mut live = 0;
    while array.arrived < setup.requests || live > 0 {
        let drives = array.members.iter().map(|member| member.drive.wake_at());
        let drive = drives.flatten().map(|time| time.0).min();
        let next = match array.arrived < setup.requests {
            true => drive.map_or(arrival, |time| time.min(arrival)),
            false => drive.expect("a drive that is busy"),
        };
        array.now = array.now.max(next);
        if stall.is_some_and(|at| at <= array.now) {
            stall = None;
            let end = Nanos(array.now + setup.stall_ms * 1_000_000);
            array.members[0].drive.stall(end);
        }
        if array.arrived < setup.requests && array.now >= arrival {
            array.arrive();
            arrival += array.gap();
        }
        array.kicked = u64::MAX >> (64 - setup.members);
        while array.kicked != 0 {
            array.pump(array.kicked.trailing_zeros() as usize);
        }
        live = array.requests.iter().flatten().count();
        if live > PILED_UP {
            return Report {
                unstable: true,
                ..array.report()
            };
        }
    }
    array.report()
}

impl<'a> Array<'a> {
    fn new(setup: &'a Setup) -> Self {
        let chunk = Sectors::new(setup.chunk_kib * 2);
        let component = Sectors::new(Params::DEFAULT.get(Key::Size) / 512);
        let geometry = Geometry::new(Level::Raid5, setup.members, chunk, component).unwrap();
        Array {
            setup,
            geometry,
            now: 0,
            members: (0..usize::from(setup.members))
                .map(|number| Member::new(setup, number))
                .collect(),
            estimate: ArrayEstimate::new(setup.members, Micros::ZERO),
            requests: Vec::new(),
            free: Vec::new(),
            commands: Vec::new(),
            free_commands: Vec::new(),
            latencies: Vec::new(),
            arrived: 0,
            sent: 0,
            taken_out: 0,
            promoted: 0,
            modes: [0; 5],
            kicked: 0,
        }
    }

    fn us(&self) -> Micros {
        Micros::new(self.now / 1000)
    }

    /// Time to the next arrival, exponential.
    fn gap(&self) -> u64 {
        let draw = hash(&[self.setup.seed, 1, self.arrived]) >> 11;
        let uniform = (draw + 1) as f64 / (1u64 << 53) as f64;
        (-uniform.ln() * self.setup.every_us as f64 * 1000.0) as u64
    }

    fn arrive(&mut self) {
        let len = Sectors::new(self.setup.size_kib * 2);
        let places = (self.geometry.capacity().get() - len.get()) / 16;
        let place = hash(&[self.setup.seed, 2, self.arrived]) % places;
        let start = Sector::new(place * 16);
        let mut request = Request::new(&self.geometry, self.now, start, len);
        self.estimate.arrived(self.us());
        let gone = self.setup.removed.then_some(0);
        let members = self.members.iter().enumerate();
        let members = members.filter(|(number, _)| gone != Some(*number));
        let choice = choose(
            self.setup.policy,
            &request.demand,
            members.map(|(number, member)| (Slot::new(number as u8).unwrap(), member.snapshot())),
            &self.estimate.load(),
            self.us(),
            self.arrived,
        );
        request.choice = Some(choice);
        self.modes[match choice.mode {
            ReadMode::Normal => 0,
            ReadMode::Failfast => 1,
            ReadMode::Proactive(Class::Extra) => 2,
            ReadMode::Proactive(Class::Ordinary) => 3,
            ReadMode::LeaveOut { .. } => 4,
        }] += 1;
        self.arrived += 1;
        let asks = request.begin(choice.mode, gone);
        let id = self.free.pop().unwrap_or_else(|| {
            self.requests.push(None);
            self.requests.len() - 1
        });
        self.requests[id] = Some(request);
        asks.into_iter().for_each(|ask| self.ask(id, ask));
        self.advance(id);
    }

    fn ask(&mut self, id: usize, ask: Ask) {
        let request = self.requests[id].as_mut().unwrap();
        let part = &mut request.parts[ask.member];
        let rows = span(ask.from, ask.to);
        match ask.class {
            Class::Ordinary => part.coming |= rows,
            Class::Extra => part.waiting |= rows,
        }
        let cmd = Cmd {
            ask,
            request: Some(id),
            first_block: request.first_block,
            queued: self.now,
            dispatched: 0,
            note: Note::default(),
        };
        let number = self.free_commands.pop().unwrap_or_else(|| {
            self.commands.push(None);
            self.commands.len() - 1
        });
        self.commands[number] = Some(cmd);
        self.kicked |= 1 << ask.member;
        let member = &mut self.members[ask.member];
        member.classes.enqueued(ask.class);
        member.list(ask.class).push_back(number);
    }

    /// Lets a member do what it can.
    fn pump(&mut self, number: usize) {
        self.kicked &= !(1 << number);
        loop {
            let now = self.now;
            let member = &mut self.members[number];
            while let Some(class) = member.dispatch(now) {
                let id = member.take_next(class, &self.commands, now);
                let cmd = self.commands[id].as_mut().unwrap();
                self.sent += 1;
                let tag = member.send(now, cmd);
                member.held[tag] = Some(id);
                if let (Class::Extra, Some(request)) = (class, cmd.request) {
                    // It comes as surely as any.
                    let request = self.requests[request].as_mut().unwrap();
                    let part = &mut request.parts[number];
                    let rows = span(cmd.ask.from, cmd.ask.to);
                    part.waiting &= !rows;
                    part.coming |= rows;
                }
            }
            match member.drive.event(Nanos(now)) {
                Some(Event::Done { slot, outcome }) => self.done(number, slot, outcome),
                Some(Event::Durable(_)) => {}
                None => return,
            }
        }
    }

    fn done(&mut self, number: usize, tag: usize, outcome: Outcome) {
        let now = self.us();
        let member = &mut self.members[number];
        let id = member.held[tag].take().unwrap();
        let cmd = self.commands[id].take().unwrap();
        self.free_commands.push(id);
        member.classes.completed(false);
        member
            .fairness
            .left(cmd.note, Micros::new(cmd.dispatched / 1000));
        let ask = cmd.ask;
        let (end, good) = match outcome {
            Outcome::Unread { good } => (End::Bad { good: good / 8 }, good / 8),
            _ => (End::Good, ask.to - ask.from),
        };
        let read = ReadDone {
            class: ask.class,
            retries: ask.retries,
            blocks: ask.to - ask.from,
            queued: Micros::new(cmd.queued / 1000),
            dispatched: Micros::new(cmd.dispatched / 1000),
            end,
        };
        let retry_us = self.estimate.load().retry_us;
        let lesson = member.estimate.read_done(&read, retry_us, now);
        self.estimate.learn(lesson);
        let known = member.estimate.tells_place();
        let Some(id) = cmd.request else { return };
        let request = self.requests[id].as_mut().unwrap();
        let part = &mut request.parts[number];
        part.coming &= !span(ask.from, ask.to);
        part.have |= span(ask.from, ask.from + good);
        if end != End::Good {
            request.lose(&ask, good, known);
        }
        self.advance(id);
    }

    fn advance(&mut self, id: usize) {
        match self.requests[id].as_ref().unwrap().next() {
            Next::Wait => {}
            Next::Done => self.finish(id),
            Next::Promote(rows) => self.promote(id, rows),
            Next::Ask(asks) => asks.into_iter().for_each(|ask| self.ask(id, ask)),
        }
    }

    /// Extra reads of a request that wait become ordinary ones.
    fn promote(&mut self, id: usize, rows: u64) {
        for (number, member) in self.members.iter_mut().enumerate() {
            let waiting = member.extra.iter().copied();
            let own = waiting.filter(|&cmd| {
                let cmd = self.commands[cmd].as_ref().unwrap();
                cmd.request == Some(id) && span(cmd.ask.from, cmd.ask.to) & rows != 0
            });
            for cmd in own.collect::<Vec<_>>() {
                member.take_out(cmd, Class::Extra);
                member.classes.enqueued(Class::Ordinary);
                member.ordinary.push_back(cmd);
                self.kicked |= 1 << number;
                let ask = &mut self.commands[cmd].as_mut().unwrap().ask;
                ask.class = Class::Ordinary;
                let part = &mut self.requests[id].as_mut().unwrap().parts[number];
                part.waiting &= !span(ask.from, ask.to);
                part.coming |= span(ask.from, ask.to);
                self.promoted += 1;
            }
        }
    }

    /// Answers a request; what it still waits for is taken out of the queues.
    fn finish(&mut self, id: usize) {
        let request = self.requests[id].take().unwrap();
        self.free.push(id);
        let latency = (self.now - request.arrived) / 1000;
        self.latencies.push(latency);
        if !request.failed {
            let alone = request.choice.unwrap().alone;
            self.estimate.answered(Micros::new(latency), alone);
        }
        for number in 0..self.commands.len() {
            let Some(cmd) = self.commands[number]
                .as_mut()
                .filter(|cmd| cmd.request == Some(id))
            else {
                continue;
            };
            cmd.request = None;
            self.kicked |= 1 << cmd.ask.member;
            if self.members[cmd.ask.member].take_out(number, cmd.ask.class) {
                self.commands[number] = None;
                self.free_commands.push(number);
                self.taken_out += 1;
            }
        }
    }

    fn report(mut self) -> Report {
        let warm_up = self.latencies.len() / 10;
        let mut times = self.latencies.split_off(warm_up);
        times.sort_unstable();
        let each = |count: u64| count as f64 / self.arrived as f64;
        let at = |part: f64| {
            let index = (times.len() as f64 * part) as usize;
            times
                .get(index.min(times.len().saturating_sub(1)))
                .map_or(0.0, |&us| us as f64 / 1e3)
        };
        Report {
            mean: times.iter().sum::<u64>() as f64 / times.len() as f64 / 1e3,
            p99: at(0.99),
            max: at(1.0),
            reads: each(self.sent),
            removed: each(self.taken_out),
            promoted: each(self.promoted),
            modes: self.modes.map(each),
            unstable: false,
        }
    }
}
