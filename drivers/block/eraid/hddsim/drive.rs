// SPDX-License-Identifier: GPL-2.0

//! A drive as a block device: requests go to the model, and end when it says so.
//!
//! Data is copied when a request arrives, in the task that submits it, where memory can be allocated:
//! a read gets what is stored then, a write is visible from then on. Both are within the time in which
//! the request is under way, so nobody can tell; only the answer is late. The answers are given in
//! the interrupt of a timer that is set to exactly the time of the next event.

use kernel::{
    new_spinlock_irq,
    prelude::*,
    str::CString,
    sync::{Arc, ArcBorrow, SpinLockIrq},
};

use crate::{
    kapi::{
        alarm::{Alarm, Rings},
        noio::without_io,
        page::PageBuf,
        request::{self, Request},
        status::Status,
        tagset::Driver,
        time::now_ns,
    },
    refusals::Refusals,
    store::{Entered, Incoming, Part, Store},
};
use eraid_hddsim_model::{
    cache::CachedWrite,
    drive::{Command, Drive as Model, Event, Op, Outcome, Slot, TAGS},
    failure::{Bad, FailMode},
    params::{Key, Params},
    powercut::PowerCut,
    refusal::{Errno, Refusal},
    refuse,
    units::{Extent, Nanos, SECTOR_SIZE},
};

/// Writes that the cache of a drive can hold.
const CACHED_WRITES: usize = 1024;
/// Answers given at once, without letting go of the lock.
const BATCH: usize = 8;

/// A drive, and the timer of its next event.
pub(crate) type SimDisk = Alarm<Drive>;

/// The model, with its memory.
type ModelBox = KBox<Model<KVec<Slot>, KVec<Option<CachedWrite>>>>;

/// What changes.
pub(crate) struct State {
    /// When requests are answered.
    pub(crate) model: ModelBox,
    /// The requests that the model holds, by slot.
    requests: KVec<Option<Request>>,
    /// The content.
    store: Store,
}

/// A simulated drive.
#[pin_data]
pub(crate) struct Drive {
    /// The name of the disk.
    pub(crate) name: CString,
    /// Where refused settings are noted.
    pub(crate) refusals: Arc<Refusals>,
    /// A page of zeros.
    zero: PageBuf,
    #[pin]
    state: SpinLockIrq<State>,
}

/// An answer that is due.
struct Answer {
    request: Request,
    outcome: Outcome,
}

/// The time of the model.
fn now() -> Nanos {
    Nanos(now_ns())
}

#[inline(never)]
fn new_model(params: Params) -> Result<ModelBox> {
    let slots = KVec::from_elem(Slot::FREE, TAGS, GFP_KERNEL)?;
    let cached = KVec::from_elem(None, CACHED_WRITES, GFP_KERNEL)?;
    Ok(KBox::new(Model::new(params, slots, cached), GFP_KERNEL)?)
}

impl Drive {
    /// Makes a drive full of zeros.
    pub(crate) fn new(
        name: &CStr,
        params: Params,
        refusals: Arc<Refusals>,
    ) -> Result<Arc<SimDisk>> {
        let mut requests = KVec::with_capacity(TAGS, GFP_KERNEL)?;
        for _ in 0..TAGS {
            requests.push(None, GFP_KERNEL)?;
        }
        let state = State {
            model: new_model(params)?,
            requests,
            store: Store::new(),
        };
        let name = CString::try_from(name)?;
        let zero = PageBuf::zeroed(1)?;
        let drive = try_pin_init!(Self {
            name,
            refusals,
            zero,
            state <- new_spinlock_irq!(state, "eraid_hddsim::state"),
        });
        Arc::pin_init(Alarm::new(drive), GFP_KERNEL)
    }

    /// The name of the disk, for messages.
    pub(crate) fn name(&self) -> &str {
        self.name.to_str().unwrap_or("?")
    }

    /// Looks at the state.
    pub(crate) fn look<R>(&self, f: impl FnOnce(&State) -> R) -> R {
        f(&self.state.lock())
    }
}

impl Driver for SimDisk {
    type Data = Self;

    fn queue_rq(drive: ArcBorrow<'_, Self>, rq: Request, _last: bool) {
        let op = match rq.op() {
            request::Op::Read => Op::Read,
            request::Op::Write => Op::Write {
                durable: rq.is_fua(),
            },
            request::Op::Flush => Op::Flush,
            _ => return rq.fail(Status::NOTSUPP),
        };
        // Nothing that is allocated here may wait for I/O, maybe to this very drive.
        let taken = without_io(|| drive.take(op, &rq));
        match taken {
            Ok(command) => drive.submit(command, rq),
            Err(_) => rq.fail(Status::RESOURCE),
        }
    }
}

impl Rings for Drive {
    fn ring(this: &SimDisk) {
        this.run();
    }
}

/// The sectors of a request.
fn extent_of(rq: &Request) -> Extent {
    Extent {
        sector: rq.sector(),
        // CAST: A request has less than 4 GiB.
        sectors: (rq.len() / SECTOR_SIZE as usize) as u32,
    }
}

impl SimDisk {
    /// Numbers a request, and copies its data.
    fn take(&self, op: Op, rq: &Request) -> Result<Command> {
        let extent = extent_of(rq);
        let (seq, bad) = self.number(op, extent);
        match op {
            Op::Read => self.copy_to(rq, extent)?,
            Op::Write { .. } => self.copy_from(rq, extent, seq)?,
            Op::Flush => {}
        }
        Ok(Command {
            op,
            extent,
            seq,
            hint: rq.is_failfast() || rq.duration_limit() != 0,
            bad,
        })
    }

    /// The number of a command, and what of it fails.
    fn number(&self, op: Op, extent: Extent) -> (u64, Bad) {
        let mut state = self.state.lock();
        let seq = state.model.number();
        let law = state.model.params().failures();
        let bad = match op {
            Op::Read => {
                let store = &state.store;
                // CAST: A request has less than 4 GiB.
                let blocks = extent.blocks() as u32;
                law.of_read(seq, extent.first_block(), blocks, |block| {
                    store.is_rewritten(block.0)
                })
            }
            _ => Bad::default(),
        };
        (seq, bad)
    }

    /// Copies what is stored to a read.
    fn copy_to(&self, rq: &Request, extent: Extent) -> Result {
        for (offset, part) in Part::all_of(extent) {
            let found = self.state.lock().store.copy_to(rq, offset, part)?;
            if !found {
                rq.fill_zero(offset, part.len)?;
            }
        }
        Ok(())
    }

    /// Copies the data of a write to the store.
    fn copy_from(&self, rq: &Request, extent: Extent, seq: u64) -> Result {
        for (offset, part) in Part::all_of(extent) {
            let mut incoming = Incoming::copy(rq, offset, part, &self.zero)?;
            while let Some(refused) = self.enter(incoming, seq) {
                incoming = refused.with_medium()?;
            }
        }
        Ok(())
    }

    /// Stores a part of a write; gives it back if it needs more memory.
    fn enter(&self, incoming: Incoming, seq: u64) -> Option<Incoming> {
        let mut state = self.state.lock();
        if !state.model.is_powered() {
            return None;
        }
        // A bad block of zeros is healed by zeros, and that has to be remembered.
        let law = state.model.params().failures();
        let keep_zeros = law.ppm > 0 && law.mode == FailMode::Persistent;
        match state.store.enter(incoming, seq, keep_zeros) {
            Entered::Stored => None,
            Entered::NeedsMedium(incoming) => Some(incoming),
        }
    }

    /// Hands a request to the model.
    fn submit(&self, command: Command, rq: Request) {
        let mut state = self.state.lock();
        let slot = state.model.submit(now(), command);
        let place = slot.and_then(|slot| state.requests.get_mut(slot));
        let Some(place) = place else {
            // There are not more tags than slots.
            drop(state);
            return rq.fail(Status::RESOURCE);
        };
        *place = Some(rq);
        drop(state);
        self.run();
    }

    /// Lets the model go on to the present, and ends the requests that are answered. Any context.
    fn run(&self) {
        loop {
            let mut answers = [const { None }; BATCH];
            let more = self.collect(&mut answers);
            for answer in answers.into_iter().flatten() {
                end(answer);
            }
            if !more {
                return;
            }
        }
    }

    /// Collects answers that are due, and sets the alarm for the next; returns whether there may be
    /// more by now.
    fn collect(&self, answers: &mut [Option<Answer>; BATCH]) -> bool {
        let mut state = self.state.lock();
        let state = &mut *state;
        let now = now();
        let mut places = answers.iter_mut();
        let mut place = places.next();
        while let Some(free) = place.take() {
            match state.model.event(now) {
                Some(Event::Durable(extent)) => {
                    state.store.durable(extent);
                    place = Some(free);
                }
                Some(Event::Done { slot, outcome }) => {
                    let held = state.requests.get_mut(slot).and_then(Option::take);
                    *free = held.map(|request| Answer { request, outcome });
                    place = places.next();
                }
                None => {
                    if let Some(wake) = state.model.wake_at() {
                        self.set(wake.0);
                    }
                    return false;
                }
            }
        }
        true
    }
}

/// Ends a request.
fn end(answer: Answer) {
    let Answer { request, outcome } = answer;
    match outcome {
        Outcome::Good => {}
        Outcome::PowerLost => request.fail(Status::IOERR),
        Outcome::Unread { good } => {
            let good = (good as usize * SECTOR_SIZE as usize).min(request.len());
            let rest = request.len() - good;
            // Nobody shall take for data what was not read.
            let _ = request.fill_zero(good, rest);
            request.fail_range(good, rest, Status::MEDIUM);
        }
    }
}

/// What is done to a drive from outside.
impl SimDisk {
    /// Sets a parameter. Task context.
    ///
    /// # Errors
    ///
    /// `ERANGE`.
    pub(crate) fn set_param(&self, key: Key, value: u64) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        let old = state.model.params().failures();
        let mut params = *state.model.params();
        params.set(key, value)?;
        if params.failures() != old {
            state.store.new_epoch();
        }
        state.model.set_params(params);
        drop(state);
        self.run();
        Ok(())
    }

    /// Puts everything but the content back to the start.
    ///
    /// # Errors
    ///
    /// `EBUSY` while the drive has something to do.
    pub(crate) fn reset(&self) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        if !state.model.reset() {
            return Err(refuse!(
                Errno::Busy,
                "{} has {} commands and {} cached writes",
                self.name(),
                state.model.queued(),
                state.model.cached()
            ));
        }
        state.store.new_epoch();
        Ok(())
    }

    /// Stands still for `ms` milliseconds.
    pub(crate) fn stall(&self, ms: u64) {
        let until = now() + Nanos::from_millis(ms);
        self.state.lock().model.stall(until);
        self.run();
    }

    /// Answers nothing any more, or again.
    pub(crate) fn hang(&self, hung: bool) {
        self.state.lock().model.hang(hung);
        self.run();
    }

    /// Has power again.
    pub(crate) fn power_on(&self) {
        self.state.lock().model.power_on();
    }

    /// Loses power, with all that it forgets. The answers that this makes are held back until the
    /// drive does not hang any more. Task context.
    pub(crate) fn power_off(&self, seed: u64) {
        let mut state = self.state.lock();
        let drive = state.model.params().get(Key::Seed);
        state.model.power_off();
        drop(state);
        let cut = PowerCut { seed, drive };
        let mut next = Some(0);
        while let Some(block) = next {
            next = self.state.lock().store.resolve(block, &cut);
        }
    }
}
