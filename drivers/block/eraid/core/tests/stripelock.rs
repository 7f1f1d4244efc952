// SPDX-License-Identifier: GPL-2.0

//! The stripe lock against a naive model.

mod support;

use eraid_core::stripelock::{Bucket, Grant, Mode, Node, StripeLocks};
use eraid_core::units::StripeNo;
use proptest::prelude::*;

const OPS: u32 = 8;
const STRIPES: u64 = 3;

type Locks = StripeLocks<Vec<Node>, Vec<Bucket>>;

fn locks(buckets: usize) -> Locks {
    StripeLocks::new(vec![Node::IDLE; OPS as usize], vec![Bucket::EMPTY; buckets]).unwrap()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Gathering,
    WaitShared,
    WaitPreread,
    Shared,
    Preread,
    Upgrading,
    Commit,
}

/// All operations that are not idle, in the order they came.
#[derive(Clone, Debug, Default)]
struct Model {
    ops: Vec<(u32, u64, State)>,
    /// Those of them in commit that offered their data.
    offered: Vec<u32>,
    commits: [u64; STRIPES as usize],
}

impl Model {
    fn state(&self, op: u32) -> Option<State> {
        self.ops.iter().find(|o| o.0 == op).map(|o| o.2)
    }

    fn any(&self, stripe: u64, states: &[State]) -> bool {
        self.ops
            .iter()
            .any(|o| o.1 == stripe && states.contains(&o.2))
    }

    /// Whether the operation at `index`, which waits, may go on.
    fn may_go(&self, index: usize) -> bool {
        let (_, stripe, state) = self.ops[index];
        let writers = [State::Preread, State::Upgrading, State::Commit];
        match state {
            State::WaitShared => !self.any(stripe, &writers[1..]),
            State::WaitPreread => {
                let earlier = &self.ops[..index];
                !self.any(stripe, &writers)
                    && !earlier
                        .iter()
                        .any(|o| o.1 == stripe && o.2 == State::WaitPreread)
            }
            State::Upgrading => !self.any(stripe, &[State::Shared]),
            State::Gathering | State::Shared | State::Preread | State::Commit => false,
        }
    }

    /// Lets go on what may, and returns it in the order it came.
    fn settle(&mut self) -> Vec<u32> {
        let mut went = Vec::new();
        while let Some(index) = (0..self.ops.len()).find(|i| self.may_go(*i)) {
            let (op, stripe, state) = &mut self.ops[index];
            *state = match state {
                State::WaitShared => State::Shared,
                State::WaitPreread => State::Preread,
                _ => State::Commit,
            };
            if *state == State::Commit {
                self.commits[*stripe as usize] += 1;
            }
            went.push((index, *op));
        }
        went.sort_unstable();
        went.into_iter().map(|(_, op)| op).collect()
    }

    fn check_exclusion(&self) {
        for stripe in 0..STRIPES {
            let count = |states: &[State]| {
                let held = self
                    .ops
                    .iter()
                    .filter(|o| o.1 == stripe && states.contains(&o.2));
                held.count()
            };
            let writers = count(&[State::Preread, State::Upgrading, State::Commit]);
            assert!(writers <= 1);
            if count(&[State::Commit]) == 1 {
                assert_eq!(count(&[State::Shared]), 0);
            }
        }
    }
}

/// The writes that can be joined, and whether a stripe is written at all.
fn check_open(locks: &Locks, model: &Model, stripe: u64, but: u32) {
    let of_stripe = |o: &&(u32, u64, State)| o.1 == stripe;
    let open = [State::Gathering, State::WaitPreread];
    let open = model
        .ops
        .iter()
        .filter(of_stripe)
        .filter(|o| open.contains(&o.2));
    let open: Vec<u32> = open.map(|o| o.0).collect();
    let mut asked = Vec::new();
    let stripe = StripeNo::new(stripe);
    let joined = locks.find_open(stripe, &mut |op| {
        asked.push(op);
        op == but
    });
    assert_eq!(joined, open.contains(&but));
    let until = open
        .iter()
        .position(|op| *op == but)
        .map_or(open.len(), |at| at + 1);
    assert_eq!(asked, open[..until]);
    let reads = [State::Shared, State::WaitShared];
    let mut writes = model
        .ops
        .iter()
        .filter(of_stripe)
        .filter(|o| !reads.contains(&o.2));
    assert_eq!(
        locks.is_written(stripe, None),
        writes.clone().next().is_some()
    );
    assert_eq!(
        locks.is_written(stripe, Some(but)),
        writes.any(|o| o.0 != but)
    );
}

/// Performs one action on both, and compares what they say.
fn step(locks: &mut Locks, model: &mut Model, action: u8, op: u32, stripe: u64) {
    let known = model.state(op);
    let mut granted = Vec::new();
    let grant = match action {
        0 | 1 => {
            let mode = [Mode::Shared, Mode::Preread][usize::from(action)];
            let grant = locks.lock(op, StripeNo::new(stripe), mode);
            let gathers = model
                .ops
                .iter()
                .position(|o| *o == (op, stripe, State::Gathering));
            let gathers = gathers.filter(|_| mode == Mode::Preread);
            let state = [State::WaitShared, State::WaitPreread][usize::from(action)];
            if let Some(index) = gathers {
                model.ops[index].2 = state;
            } else if known.is_none() {
                model.ops.push((op, stripe, state));
            }
            (known.is_none() || gathers.is_some(), grant)
        }
        2 => {
            let grant = locks.upgrade(op);
            let fits = known == Some(State::Preread);
            if fits {
                let own = model.ops.iter_mut().find(|o| o.0 == op).unwrap();
                own.2 = State::Upgrading;
            }
            (fits, grant)
        }
        3 => {
            let mut waiting = Vec::new();
            locks.offer(op, &mut |op| waiting.push(op));
            let mut expected = Vec::new();
            if known == Some(State::Commit) && !model.offered.contains(&op) {
                model.offered.push(op);
                let own = model.ops.iter().find(|o| o.0 == op).unwrap().1;
                let waits = |o: &&(u32, u64, State)| o.1 == own && o.2 == State::WaitShared;
                expected.extend(model.ops.iter().filter(waits).map(|o| o.0));
            }
            assert_eq!(waiting, expected, "offer of {op}, was {known:?}");
            return;
        }
        6 => {
            model.offered.retain(|o| *o != op);
            locks.downgrade(op, &mut |op| granted.push(op));
            if known == Some(State::Commit) {
                let own = model.ops.iter_mut().find(|o| o.0 == op).unwrap();
                own.2 = State::Preread;
            }
            assert_eq!(granted, model.settle(), "downgrade of {op}, was {known:?}");
            return;
        }
        4 => {
            locks.gather(op, StripeNo::new(stripe));
            if known.is_none() {
                model.ops.push((op, stripe, State::Gathering));
            }
            return;
        }
        _ => {
            model.offered.retain(|o| *o != op);
            locks.unlock(op, &mut |op| granted.push(op));
            model.ops.retain(|o| o.0 != op);
            assert_eq!(granted, model.settle(), "unlock of {op}, was {known:?}");
            return;
        }
    };
    let went = model.settle();
    let expected = match grant {
        (false, _) => Grant::Misuse,
        (true, _) if went == [op] => Grant::Granted,
        (true, _) => Grant::Queued,
    };
    assert_eq!(grant.1, expected);
    assert!(
        went.is_empty() || went == [op],
        "a request admits only itself"
    );
}

proptest! {
    #![proptest_config(support::config(2000))]

    #[test]
    fn behaves_as_the_model(
        buckets in 0u32..4,
        actions in prop::collection::vec((0u8..7, 0..OPS, 0..STRIPES), 1..300),
    ) {
        let mut locks = locks(1 << buckets);
        let mut model = Model::default();
        for (action, op, stripe) in actions {
            let before = [0, 1, 2].map(|s| locks.sequence(StripeNo::new(s)));
            let commits = model.commits;
            step(&mut locks, &mut model, action, op, stripe);
            model.check_exclusion();
            for s in 0..STRIPES {
                let now = locks.sequence(StripeNo::new(s));
                assert_eq!(now.is_none(), model.any(s, &[State::Commit]));
                let mut offers = model.ops.iter().filter(|o| o.1 == s && model.offered.contains(&o.0));
                assert_eq!(locks.offered(StripeNo::new(s)), offers.next().map(|o| o.0));
                check_open(&locks, &model, s, op);
                if model.commits[s as usize] != commits[s as usize] {
                    assert_ne!(now, before[s as usize], "a commit must show");
                }
            }
        }
        // Nobody is forgotten: whoever holds lets go, until all are gone.
        while let Some((op, ..)) = model.ops.iter().copied().find(|o| {
            !matches!(o.2, State::WaitShared | State::WaitPreread | State::Upgrading)
        }) {
            step(&mut locks, &mut model, 5, op, 0);
        }
        assert!(model.ops.is_empty(), "left over: {:?}", model.ops);
    }
}

#[test]
fn storage_is_checked() {
    let nodes = || vec![Node::IDLE; 2];
    assert!(StripeLocks::new(nodes(), Vec::<Bucket>::new()).is_none());
    assert!(StripeLocks::new(nodes(), vec![Bucket::EMPTY; 3]).is_none());
    let mut locks = StripeLocks::new(nodes(), vec![Bucket::EMPTY; 1]).unwrap();
    assert_eq!(locks.lock(2, StripeNo::new(0), Mode::Shared), Grant::Misuse);
    assert_eq!(locks.upgrade(0), Grant::Misuse);
    locks.unlock(7, &mut |_| panic!("nobody waits"));
}

#[test]
fn reads_pass_waiting_writers_but_not_a_commit() {
    let stripe = StripeNo::new(5);
    let mut locks = locks(4);
    assert_eq!(locks.lock(0, stripe, Mode::Preread), Grant::Granted);
    assert_eq!(locks.lock(1, stripe, Mode::Preread), Grant::Queued);
    assert_eq!(locks.lock(2, stripe, Mode::Shared), Grant::Granted);
    assert_eq!(locks.upgrade(0), Grant::Queued);
    assert_eq!(locks.lock(3, stripe, Mode::Shared), Grant::Queued);
    let before = locks.sequence(stripe);
    let mut granted = Vec::new();
    locks.unlock(2, &mut |op| granted.push(op));
    assert_eq!(granted, [0]);
    assert_eq!(locks.sequence(stripe), None);
    granted.clear();
    locks.unlock(0, &mut |op| granted.push(op));
    assert_eq!(granted, [1, 3], "the next write and the waiting read");
    assert_ne!(locks.sequence(stripe), before);
}

#[test]
fn cancelling_an_upgrade_lets_the_readers_in() {
    let stripe = StripeNo::new(1);
    let mut locks = locks(1);
    assert_eq!(locks.lock(0, stripe, Mode::Shared), Grant::Granted);
    assert_eq!(locks.lock(1, stripe, Mode::Preread), Grant::Granted);
    assert_eq!(locks.upgrade(1), Grant::Queued);
    assert_eq!(locks.lock(2, stripe, Mode::Shared), Grant::Queued);
    assert_eq!(locks.lock(3, stripe, Mode::Preread), Grant::Queued);
    let mut granted = Vec::new();
    locks.unlock(1, &mut |op| granted.push(op));
    assert_eq!(granted, [2, 3]);
}

#[test]
fn who_waits_for_a_commit_hears_of_its_offer() {
    let stripe = StripeNo::new(7);
    let mut locks = locks(1);
    assert_eq!(locks.lock(0, stripe, Mode::Preread), Grant::Granted);
    let mut heard = Vec::new();
    locks.offer(0, &mut |op| heard.push(op));
    assert_eq!(locks.offered(stripe), None, "not in commit yet");
    assert_eq!(locks.upgrade(0), Grant::Granted);
    assert_eq!(locks.lock(1, stripe, Mode::Shared), Grant::Queued);
    assert_eq!(locks.lock(2, stripe, Mode::Preread), Grant::Queued);
    assert_eq!(
        locks.lock(3, StripeNo::new(8), Mode::Shared),
        Grant::Granted
    );
    locks.offer(0, &mut |op| heard.push(op));
    assert_eq!(heard, [1], "the read of the stripe, not the next write");
    assert_eq!(locks.offered(stripe), Some(0));
    assert_eq!(
        locks.lock(4, stripe, Mode::Shared),
        Grant::Queued,
        "it may ask itself"
    );
    locks.unlock(1, &mut |op| panic!("{op} got what nobody gave up"));
    let mut granted = Vec::new();
    locks.unlock(0, &mut |op| granted.push(op));
    assert_eq!(granted, [2, 4]);
    assert_eq!(locks.offered(stripe), None);
}
