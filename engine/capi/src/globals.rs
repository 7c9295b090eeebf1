//! Handles that all threads may use: engines and trees.
//!
//! A handle is a number that is never given twice. A closed one is not found here, so its use is an
//! error and touches no freed memory.

use crate::code::{Failure, Outcome, WattleCode};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};
use wattle::{Engine, Tree};

/// An open store. All threads may use it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WattleEngine {
    /// Number of the handle; 0 is none.
    pub number: u64,
}

/// A tree: an ordered map from keys to values. All threads may use it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WattleTree {
    /// Number of the handle; 0 is none.
    pub number: u64,
}

type Table<T> = RwLock<HashMap<u64, T, FixedState>>;

static ENGINES: Table<Engine> = RwLock::new(HashMap::with_hasher(FixedState::with_seed(1)));
static TREES: Table<Tree> = RwLock::new(HashMap::with_hasher(FixedState::with_seed(2)));

fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

fn closed(what: &str, number: u64) -> Failure {
    let message = format!("the handle {number} is no open {what}: it was closed, or never opened");
    Failure::new(WattleCode::ClosedHandle, message)
}

pub fn add_engine(engine: Engine) -> WattleEngine {
    let number = next_number();
    ENGINES.write().insert(number, engine);
    WattleEngine { number }
}

pub fn engine(handle: WattleEngine) -> Outcome<Engine> {
    let found = ENGINES.read().get(&handle.number).cloned();
    found.ok_or_else(|| closed("engine", handle.number))
}

/// Closes an engine. If handles of it are alive the handle of the engine stays open.
pub fn close_engine(handle: WattleEngine) -> Outcome<()> {
    let found = ENGINES.write().remove(&handle.number);
    let engine = found.ok_or_else(|| closed("engine", handle.number))?;
    engine.close().map_err(|refused| {
        let failure = Failure::from(refused.error().clone());
        if let Some(engine) = refused.into_engine() {
            ENGINES.write().insert(handle.number, engine);
        }
        failure
    })
}

pub fn add_tree(tree: Tree) -> WattleTree {
    let number = next_number();
    TREES.write().insert(number, tree);
    WattleTree { number }
}

pub fn tree(handle: WattleTree) -> Outcome<Tree> {
    let found = TREES.read().get(&handle.number).cloned();
    found.ok_or_else(|| closed("tree", handle.number))
}

pub fn take_tree(handle: WattleTree) -> Outcome<Tree> {
    let found = TREES.write().remove(&handle.number);
    found.ok_or_else(|| closed("tree", handle.number))
}
