//! Wrong handles of every kind, at random: each call is an error, and none is undefined.

use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::{collections::BTreeMap, ptr::null, thread};
use wattle_capi::*;

fn bytes(text: &[u8]) -> WattleBytes {
    WattleBytes { data: text.as_ptr(), length: text.len() }
}

/// Handles by their kind: the open ones and the closed ones, and numbers that were never given.
#[derive(Default)]
struct Handles {
    open: Vec<u64>,
    closed: Vec<u64>,
}

impl Handles {
    /// A handle and whether it is open.
    fn draw(&self, rng: &mut StdRng, others: &[u64]) -> (u64, bool) {
        match rng.random_range(0..8) {
            0 => (0, false),
            1 => (rng.random::<u64>() | 1 << 62, false),
            2 if !self.closed.is_empty() => {
                (self.closed[rng.random_range(0..self.closed.len())], false)
            }
            3 if !others.is_empty() => (others[rng.random_range(0..others.len())], false),
            _ if !self.open.is_empty() => (self.open[rng.random_range(0..self.open.len())], true),
            _ => (0, false),
        }
    }

    fn close(&mut self, number: u64) {
        self.open.retain(|open| *open != number);
        self.closed.push(number);
    }
}

struct Round {
    rng: StdRng,
    seed: u64,
    engine: WattleEngine,
    tree: WattleTree,
    sessions: Handles,
    txns: Handles,
    ranges: Handles,
    counts: BTreeMap<(&'static str, bool), u64>,
}

impl Round {
    fn new(seed: u64) -> Round {
        let mut engine = WattleEngine { number: 0 };
        let mut tree = WattleTree { number: 0 };
        let options = WattleOptions { io: WATTLE_IO_MEMORY, ..WattleOptions::default() };
        // SAFETY: the arguments are those of this function.
        let code = unsafe { wattle_open(c"handles".as_ptr(), &options, &mut engine) };
        assert_eq!(code, WattleCode::Ok);
        // SAFETY: as above.
        let code = unsafe { wattle_tree(engine, c"tree".as_ptr(), &mut tree) };
        assert_eq!(code, WattleCode::Ok);
        let rng = StdRng::seed_from_u64(seed);
        let (sessions, txns, ranges) = Default::default();
        Round { rng, seed, engine, tree, sessions, txns, ranges, counts: BTreeMap::new() }
    }

    /// Checks that a call was refused exactly if its handle was not open.
    fn check(&mut self, call: &'static str, code: WattleCode, is_open: bool) {
        let is_refused = matches!(code, WattleCode::ClosedHandle | WattleCode::WrongThread);
        assert_eq!(is_refused, !is_open, "{call}: {code:?}, seed {}", self.seed);
        assert_ne!(code, WattleCode::Panic, "{call}, seed {}", self.seed);
        *self.counts.entry((call, is_open)).or_default() += 1;
    }

    fn step(&mut self) {
        let (mut txn, mut range) = (WattleTxn { number: 0 }, WattleRange { number: 0 });
        let key = [self.rng.random_range(0..16)];
        let others: Vec<u64> = [&self.sessions.open, &self.txns.open, &self.ranges.open]
            .into_iter()
            .flatten()
            .copied()
            .collect();
        let strangers = |own: &Handles| -> Vec<u64> {
            others.iter().copied().filter(|other| !own.open.contains(other)).collect()
        };
        let (session, has_session) = self.sessions.draw(&mut self.rng, &strangers(&self.sessions));
        let (number, has_txn) = self.txns.draw(&mut self.rng, &strangers(&self.txns));
        let (walk, has_range) = self.ranges.draw(&mut self.rng, &strangers(&self.ranges));
        let (session, own) = (WattleSession { number: session }, WattleTxn { number });
        let (walk, tree) = (WattleRange { number: walk }, self.tree);
        let (mut a, mut b) = (bytes(b""), bytes(b""));
        match self.rng.random_range(0..10) {
            0 if self.sessions.open.len() < 4 => {
                let mut session = WattleSession { number: 0 };
                // SAFETY: the place is a local variable.
                let code = unsafe { wattle_session(self.engine, &mut session) };
                assert_eq!(code, WattleCode::Ok);
                self.sessions.open.push(session.number);
            }
            1 => {
                let code = wattle_session_close(session);
                self.check("close a session", code, has_session);
                self.sessions.close(session.number);
            }
            2 => {
                // SAFETY: the bytes are those of a local variable.
                let code = unsafe { wattle_put(session, tree, bytes(&key), bytes(&key)) };
                self.check("put", code, has_session);
            }
            3 if self.txns.open.len() < 4 => {
                // SAFETY: the place is a local variable.
                let code = unsafe { wattle_begin(self.engine, null(), &mut txn) };
                assert_eq!(code, WattleCode::Ok);
                self.txns.open.push(txn.number);
            }
            4 => {
                // SAFETY: the bytes are those of a local variable.
                let code = unsafe { wattle_txn_put(own, tree, bytes(&key), bytes(&key)) };
                self.check("put in a transaction", code, has_txn);
            }
            5 => {
                let commit = self.rng.random();
                let code = if commit { wattle_commit(own) } else { wattle_rollback(own) };
                self.check("end a transaction", code, has_txn);
                self.txns.close(own.number);
            }
            6 if self.ranges.open.len() < 4 => {
                // SAFETY: the place is a local variable.
                let code = unsafe { wattle_range(session, tree, null(), null(), 0, &mut range) };
                self.check("open a range", code, has_session);
                self.ranges.open.extend(has_session.then_some(range.number));
            }
            7 => {
                // SAFETY: the places are local variables.
                let code = unsafe { wattle_range_next(walk, &mut a, &mut b) };
                self.check("read a range", code, has_range);
                if code == WattleCode::Ok {
                    // SAFETY: the library lends the bytes until the next call.
                    let key = unsafe { std::slice::from_raw_parts(a.data, a.length) };
                    assert_eq!(key.len(), 1);
                }
            }
            8 => {
                let code = wattle_range_close(walk);
                self.check("close a range", code, has_range);
                self.ranges.close(walk.number);
            }
            _ => {
                let code = thread::spawn(move || wattle_session_close(session)).join().unwrap();
                self.check("another thread", code, false);
            }
        }
    }

    fn end(mut self) {
        for number in std::mem::take(&mut self.ranges.open) {
            assert_eq!(wattle_range_close(WattleRange { number }), WattleCode::Ok);
        }
        for number in std::mem::take(&mut self.txns.open) {
            assert_eq!(wattle_rollback(WattleTxn { number }), WattleCode::Ok);
        }
        let busy = !self.sessions.open.is_empty();
        let code = wattle_close(self.engine);
        assert_eq!(code, if busy { WattleCode::InUse } else { WattleCode::Ok });
        for number in std::mem::take(&mut self.sessions.open) {
            assert_eq!(wattle_session_close(WattleSession { number }), WattleCode::Ok);
        }
        if busy {
            assert_eq!(wattle_close(self.engine), WattleCode::Ok);
        }
        assert_eq!(wattle_sync(self.engine), WattleCode::ClosedHandle);
        for call in ["put", "put in a transaction", "end a transaction", "read a range"] {
            for is_open in [true, false] {
                let count = self.counts.get(&(call, is_open));
                assert!(count.is_some(), "{call}, open {is_open}: never, seed {}", self.seed);
            }
        }
    }
}

#[test]
fn wrong_handles_are_refused() {
    for seed in 0..8 {
        let mut round = Round::new(seed);
        for _ in 0..3000 {
            round.step();
        }
        round.end();
    }
}

#[test]
fn a_thread_that_ends_leaves_nothing_open() {
    let round = Round::new(0);
    let (engine, tree) = (round.engine, round.tree);
    let left_open = move || {
        let (mut session, mut txn) = (WattleSession { number: 0 }, WattleTxn { number: 0 });
        let mut range = WattleRange { number: 0 };
        // SAFETY: the places are local variables.
        assert_eq!(unsafe { wattle_session(engine, &mut session) }, WattleCode::Ok);
        // SAFETY: as above.
        assert_eq!(unsafe { wattle_begin(engine, null(), &mut txn) }, WattleCode::Ok);
        // SAFETY: as above.
        let code = unsafe { wattle_txn_put(txn, tree, bytes(b"key"), bytes(b"value")) };
        assert_eq!(code, WattleCode::Ok);
        // SAFETY: as above.
        let code = unsafe { wattle_range(session, tree, null(), null(), 0, &mut range) };
        assert_eq!(code, WattleCode::Ok);
    };
    thread::spawn(left_open).join().unwrap();
    let mut session = WattleSession { number: 0 };
    // SAFETY: the place is a local variable.
    assert_eq!(unsafe { wattle_session(engine, &mut session) }, WattleCode::Ok);
    let mut length = 0;
    // SAFETY: as above.
    let code =
        unsafe { wattle_get(session, tree, bytes(b"key"), std::ptr::null_mut(), 0, &mut length) };
    assert_eq!(code, WattleCode::NotFound);
    assert_eq!(wattle_session_close(session), WattleCode::Ok);
    assert_eq!(wattle_close(engine), WattleCode::Ok);
}
