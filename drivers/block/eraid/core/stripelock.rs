// SPDX-License-Identifier: GPL-2.0

//! The stripe lock: who may read for a decode, preread or write one stripe.
//!
//! A decode combines blocks of several members and is only right when no write
//! of the same stripe falls between its reads. Reads of single blocks take no
//! lock. A write goes through two phases:
//!
//! * *preread*: it reads old blocks; decodes may read beside it, other writes
//!   of the stripe wait;
//! * *commit*: it writes; nothing else may hold the stripe.
//!
//! Fairness: writes of a stripe proceed in the order they came. A shared hold
//! waits only for a commit that is held or asked for, never for writes that
//! themselves still wait, so that a queue of writes behind a slow member delays
//! no read. A write that asked for its commit lets no new shared hold in, and
//! the end of a commit admits every shared hold that waited: neither side can
//! starve.
//!
//! A write can be known to the table before it asks for its stripe: it *gathers*. Until it has the
//! stripe, later writes may join it instead of waiting behind it.
//!
//! A write in commit can *offer* its data: a shared hold that waits for it may
//! take what it wants from there, if that has it, instead of waiting on.
//!
//! The table owns no memory: the caller gives one [`Node`] for every operation
//! that can exist at a time and a power of two of [`Bucket`]s. All calls are
//! for one thread at a time (the caller's spinlock), take no lock, never wait.
//! Cost: one walk over the nodes that hash to the same bucket.

use crate::units::StripeNo;

/// End of a list of nodes.
const NIL: u32 = u32::MAX;

/// What an operation asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Reads for a decode.
    Shared,
    /// First phase of a write or of a repair.
    Preread,
}

/// Answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Grant {
    /// The operation has what it asked for.
    Granted,
    /// It waits; a later call on another operation reports it as granted.
    Queued,
    /// The caller's bookkeeping is wrong (unknown operation, already in use,
    /// not in the preread phase). Nothing changed.
    Misuse,
}

/// What a node does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// A write that has not asked for the stripe yet.
    Gathering,
    WaitShared,
    WaitPreread,
    Shared,
    Preread,
    /// Preread, and waits for the shared holds to end.
    Upgrading,
    Commit {
        /// Who waits may take the data from the operation.
        offered: bool,
    },
}

/// Lock state of one operation; all of it private to the table.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    stripe: StripeNo,
    state: State,
    prev: u32,
    next: u32,
}

impl Node {
    /// A node that holds nothing: what the caller fills its storage with.
    pub const IDLE: Node = Node {
        stripe: StripeNo::new(0),
        state: State::Idle,
        prev: NIL,
        next: NIL,
    };
}

/// Nodes of the stripes with one hash value, in order of arrival.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    first: u32,
    last: u32,
    /// Commits begun so far.
    commits: u64,
}

impl Bucket {
    /// A bucket without nodes: what the caller fills its storage with.
    pub const EMPTY: Bucket = Bucket {
        first: NIL,
        last: NIL,
        commits: 0,
    };
}

/// Who holds a stripe.
#[derive(Clone, Copy, Default)]
struct Holders {
    shared: bool,
    /// The one write in preread, upgrade or commit.
    writer: Option<(u32, State)>,
}

impl Holders {
    /// Whether shared holds are kept out.
    #[inline]
    fn excludes_shared(&self) -> bool {
        matches!(
            self.writer,
            Some((_, State::Upgrading | State::Commit { .. }))
        )
    }
}

/// The lock table of one array.
#[derive(Debug)]
pub struct StripeLocks<N, B> {
    nodes: N,
    buckets: B,
}

impl<N, B> StripeLocks<N, B>
where
    N: AsRef<[Node]> + AsMut<[Node]>,
    B: AsRef<[Bucket]> + AsMut<[Bucket]>,
{
    /// Makes a table of the caller's storage, which is reset.
    ///
    /// `nodes` bounds the operation numbers: 0 to its length - 1. `None` when
    /// there are no buckets or their number is no power of two.
    pub fn new(mut nodes: N, mut buckets: B) -> Option<Self> {
        if !buckets.as_ref().len().is_power_of_two() {
            return None;
        }
        nodes.as_mut().fill(Node::IDLE);
        buckets.as_mut().fill(Bucket::EMPTY);
        Some(Self { nodes, buckets })
    }

    /// The idle operation `op` is to write to `stripe`, and asks for it later.
    pub fn gather(&mut self, op: u32, stripe: StripeNo) {
        if matches!(self.node(op), Some(node) if node.state == State::Idle) {
            self.append(op, stripe, State::Gathering);
        }
    }

    /// Calls `join` with the writes of `stripe` that do not have it yet, in the order they came,
    /// until it returns true, and returns whether it did. Some of them may be other work that
    /// waits for the stripe as a write does.
    pub fn find_open(&self, stripe: StripeNo, join: &mut dyn FnMut(u32) -> bool) -> bool {
        let mut at = self.first(stripe);
        while let Some(node) = self.node(at) {
            let open = matches!(node.state, State::Gathering | State::WaitPreread);
            if node.stripe == stripe && open && join(at) {
                return true;
            }
            at = node.next;
        }
        false
    }

    /// Whether anybody but `op` writes to `stripe`, or is about to.
    pub fn is_written(&self, stripe: StripeNo, op: Option<u32>) -> bool {
        let mut at = self.first(stripe);
        while let Some(node) = self.node(at) {
            let reads = matches!(node.state, State::Shared | State::WaitShared);
            if node.stripe == stripe && !reads && Some(at) != op {
                return true;
            }
            at = node.next;
        }
        false
    }

    /// Asks for a hold of `stripe` for the operation `op`, which is idle or, for a preread, gathers.
    pub fn lock(&mut self, op: u32, stripe: StripeNo, mode: Mode) -> Grant {
        let gathers = match self.node(op) {
            Some(node) if node.state == State::Idle => false,
            Some(node) if node.state == State::Gathering => {
                if mode != Mode::Preread || node.stripe != stripe {
                    return Grant::Misuse;
                }
                true
            }
            _ => return Grant::Misuse,
        };
        let holders = self.holders(stripe);
        // A free writer's place means that no write waits either: the end of
        // a write hands the place to the next one.
        let (grant, state) = match mode {
            Mode::Shared if holders.excludes_shared() => (Grant::Queued, State::WaitShared),
            Mode::Shared => (Grant::Granted, State::Shared),
            Mode::Preread if holders.writer.is_some() => (Grant::Queued, State::WaitPreread),
            Mode::Preread => (Grant::Granted, State::Preread),
        };
        match gathers {
            true => self.set_state(op, state),
            false => self.append(op, stripe, state),
        }
        grant
    }

    /// Asks for the commit phase for `op`, which is in its preread phase.
    ///
    /// Waits for the shared holds of the stripe to end and lets no new one in.
    pub fn upgrade(&mut self, op: u32) -> Grant {
        let stripe = match self.node(op) {
            Some(node) if node.state == State::Preread => node.stripe,
            _ => return Grant::Misuse,
        };
        if self.holders(stripe).shared {
            self.set_state(op, State::Upgrading);
            return Grant::Queued;
        }
        self.commit(op, stripe);
        Grant::Granted
    }

    /// Takes `op` from its commit phase back to its preread phase, for another round of both.
    ///
    /// `granted` is called as by [`unlock`](Self::unlock).
    pub fn downgrade(&mut self, op: u32, granted: &mut dyn FnMut(u32)) {
        if let Some(Node {
            state: State::Commit { .. },
            stripe,
            ..
        }) = self.node(op)
        {
            self.set_state(op, State::Preread);
            self.admit(stripe, granted);
        }
    }

    /// Gives up whatever `op` has: a hold in any phase, or its place among the
    /// waiting. An idle operation is left alone.
    ///
    /// `granted` is called with every operation that thereby got what it waits
    /// for, in the order they came, before this returns.
    pub fn unlock(&mut self, op: u32, granted: &mut dyn FnMut(u32)) {
        let stripe = match self.node(op) {
            Some(node) if node.state != State::Idle => node.stripe,
            _ => return,
        };
        self.remove(op);
        self.admit(stripe, granted);
    }

    /// Notes that what `op`, which is in its commit phase, writes can be had from it until it
    /// gives up its hold.
    ///
    /// `waiting` is called with every operation that waits for a shared hold of the stripe, in the
    /// order they came, before this returns: see [`offered`](Self::offered).
    pub fn offer(&mut self, op: u32, waiting: &mut dyn FnMut(u32)) {
        let stripe = match self.node(op) {
            Some(node) if node.state == (State::Commit { offered: false }) => node.stripe,
            _ => return,
        };
        self.set_state(op, State::Commit { offered: true });
        let mut at = self.first(stripe);
        while let Some(node) = self.node(at) {
            if node.stripe == stripe && node.state == State::WaitShared {
                waiting(at);
            }
            at = node.next;
        }
    }

    /// The operation that is in its commit phase in `stripe` and offered what it writes.
    pub fn offered(&self, stripe: StripeNo) -> Option<u32> {
        match self.holders(stripe).writer {
            Some((op, State::Commit { offered: true })) => Some(op),
            _ => None,
        }
    }

    /// Number of commits so far of this stripe and of those that share its
    /// bucket; `None` while the stripe is in commit.
    ///
    /// Blocks read without a lock belong together when this answered the same
    /// number before the first was issued and after the last arrived.
    pub fn sequence(&self, stripe: StripeNo) -> Option<u64> {
        if let Some((_, State::Commit { .. })) = self.holders(stripe).writer {
            return None;
        }
        self.bucket(stripe).map(|bucket| bucket.commits)
    }

    /// Grants what can be granted now that a hold of `stripe` ended.
    fn admit(&mut self, stripe: StripeNo, granted: &mut dyn FnMut(u32)) {
        let holders = self.holders(stripe);
        match holders.writer {
            Some((op, State::Upgrading)) if !holders.shared => {
                self.commit(op, stripe);
                granted(op);
                return;
            }
            Some((_, State::Upgrading | State::Commit { .. })) => return,
            _ => {}
        }
        let mut writer = holders.writer.is_some();
        let mut at = self.first(stripe);
        while let Some(node) = self.node(at) {
            let state = match node.state {
                _ if node.stripe != stripe => None,
                State::WaitShared => Some(State::Shared),
                State::WaitPreread if !writer => Some(State::Preread),
                _ => None,
            };
            if let Some(state) = state {
                writer |= state == State::Preread;
                self.set_state(at, state);
                granted(at);
            }
            at = node.next;
        }
    }

    /// Who holds `stripe`.
    fn holders(&self, stripe: StripeNo) -> Holders {
        let mut holders = Holders::default();
        let mut at = self.first(stripe);
        while let Some(node) = self.node(at) {
            if node.stripe == stripe {
                match node.state {
                    State::Shared => holders.shared = true,
                    State::Preread | State::Upgrading | State::Commit { .. } => {
                        holders.writer = Some((at, node.state));
                    }
                    State::Idle | State::Gathering | State::WaitShared | State::WaitPreread => {}
                }
            }
            at = node.next;
        }
        holders
    }

    /// Puts `op` into its commit phase and counts it.
    fn commit(&mut self, op: u32, stripe: StripeNo) {
        self.set_state(op, State::Commit { offered: false });
        if let Some(bucket) = self.bucket_mut(stripe) {
            bucket.commits = bucket.commits.wrapping_add(1);
        }
    }

    /// Adds an idle node at the end of its bucket.
    fn append(&mut self, op: u32, stripe: StripeNo, state: State) {
        let Some(bucket) = self.bucket_mut(stripe) else {
            return;
        };
        let prev = core::mem::replace(&mut bucket.last, op);
        if prev == NIL {
            bucket.first = op;
        }
        if let Some(before) = self.node_mut(prev) {
            before.next = op;
        }
        if let Some(node) = self.node_mut(op) {
            *node = Node {
                stripe,
                state,
                prev,
                next: NIL,
            };
        }
    }

    /// Takes a node out of its bucket.
    fn remove(&mut self, op: u32) {
        let Some(node) = self.node_mut(op) else {
            return;
        };
        let Node {
            stripe, prev, next, ..
        } = core::mem::replace(node, Node::IDLE);
        if let Some(before) = self.node_mut(prev) {
            before.next = next;
        }
        if let Some(after) = self.node_mut(next) {
            after.prev = prev;
        }
        if let Some(bucket) = self.bucket_mut(stripe) {
            if bucket.first == op {
                bucket.first = next;
            }
            if bucket.last == op {
                bucket.last = prev;
            }
        }
    }

    #[inline]
    fn set_state(&mut self, op: u32, state: State) {
        if let Some(node) = self.node_mut(op) {
            node.state = state;
        }
    }

    #[inline]
    fn first(&self, stripe: StripeNo) -> u32 {
        self.bucket(stripe).map_or(NIL, |bucket| bucket.first)
    }

    #[inline]
    fn node(&self, op: u32) -> Option<Node> {
        self.nodes.as_ref().get(op as usize).copied()
    }

    #[inline]
    fn node_mut(&mut self, op: u32) -> Option<&mut Node> {
        self.nodes.as_mut().get_mut(op as usize)
    }

    #[inline]
    fn bucket(&self, stripe: StripeNo) -> Option<&Bucket> {
        let buckets = self.buckets.as_ref();
        buckets.get(bucket_index(stripe, buckets.len()))
    }

    #[inline]
    fn bucket_mut(&mut self, stripe: StripeNo) -> Option<&mut Bucket> {
        let buckets = self.buckets.as_mut();
        let index = bucket_index(stripe, buckets.len());
        buckets.get_mut(index)
    }
}

/// Fibonacci hashing: neighbouring stripes spread over the table.
#[inline]
fn bucket_index(stripe: StripeNo, buckets: usize) -> usize {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let hash = stripe.get().wrapping_mul(GOLDEN) >> 32;
    hash as usize & buckets.wrapping_sub(1)
}
