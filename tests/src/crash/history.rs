//! The contents of the store after each event of a workload.
//!
//! An event is a list of changes. Events are added before they begin, so that whatever a crash
//! leaves can be compared with the state after any event that was begun.

use super::device::Bounds;
use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc};
use wattle::Engine;

/// Bytes of a value.
pub type Bytes = Arc<[u8]>;
/// Records of a tree.
pub type Records = BTreeMap<Vec<u8>, Bytes>;

/// Name of the tree that says which event was the last one.
pub const META: &str = "meta";
/// Key of the number of the last event that could say so.
pub const SEQUENCE: &[u8] = b"sequence";

/// One change.
#[derive(Clone, Debug)]
pub enum Change {
    /// A new tree.
    Create(String),
    /// A tree with everything in it is gone.
    Drop(String),
    /// From one name to another.
    Rename(String, String),
    /// A record has this value.
    Put(String, Vec<u8>, Bytes),
    /// A record is gone.
    Remove(String, Vec<u8>),
}

/// Everything that a store holds. Cheap to clone: trees are shared until they change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Trees by name.
    pub trees: BTreeMap<String, Arc<Records>>,
}

impl State {
    /// Makes a change.
    ///
    /// # Panics
    /// If it makes no sense here: the workload is wrong then.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Create(name) => {
                assert!(self.trees.insert(name.clone(), Arc::default()).is_none(), "{name} exists");
            }
            Change::Drop(name) => assert!(self.trees.remove(name).is_some(), "no tree {name}"),
            Change::Rename(old, new) => {
                let tree = self.trees.remove(old).expect("a tree to rename");
                assert!(self.trees.insert(new.clone(), tree).is_none(), "{new} exists");
            }
            Change::Put(name, key, value) => {
                self.records_mut(name).insert(key.clone(), value.clone());
            }
            Change::Remove(name, key) => {
                self.records_mut(name).remove(key);
            }
        }
    }

    fn records_mut(&mut self, name: &str) -> &mut Records {
        Arc::make_mut(self.trees.get_mut(name).expect("a tree of the workload"))
    }

    /// Records of a tree.
    ///
    /// # Panics
    /// If there is no such tree.
    pub fn records(&self, name: &str) -> &Records {
        self.trees.get(name).expect("a tree of the workload")
    }

    /// The last event that could leave its number.
    pub fn sequence(&self) -> u64 {
        let value = self.trees.get(META).and_then(|meta| meta.get(SEQUENCE));
        value.map_or(0, |value| u64::from_le_bytes(value[..8].try_into().expect("8 bytes")))
    }

    /// Reads everything that a store holds.
    ///
    /// # Errors
    /// What the engine says.
    pub fn read(engine: &Engine) -> wattle::Result<State> {
        let session = engine.session()?;
        let mut state = State::default();
        for name in engine.trees()? {
            let tree = engine.open_tree(&name)?.expect("a tree that was listed");
            let mut records = Records::new();
            let mut scan = session.scan(&tree)?;
            while let Some((key, value)) = scan.next_entry()? {
                assert!(records.insert(key.to_vec(), value.into()).is_none(), "a key came twice");
            }
            state.trees.insert(name, Arc::new(records));
        }
        Ok(state)
    }

    /// Says in a few lines how `found` differs.
    pub fn difference(&self, found: &State) -> String {
        let mut lines = Vec::new();
        for name in self.trees.keys().filter(|name| !found.trees.contains_key(*name)) {
            lines.push(format!("tree {name:?} is missing"));
        }
        for name in found.trees.keys().filter(|name| !self.trees.contains_key(*name)) {
            lines.push(format!("tree {name:?} should not be there"));
        }
        for (name, records) in &self.trees {
            let Some(there) = found.trees.get(name) else { continue };
            for (key, value) in &**records {
                match there.get(key) {
                    None => lines.push(format!("{name}: {} is missing", key.escape_ascii())),
                    Some(other) if other != value => lines.push(format!(
                        "{name}: {} has {} instead of {}",
                        key.escape_ascii(),
                        brief(other),
                        brief(value)
                    )),
                    Some(_) => {}
                }
            }
            for key in there.keys().filter(|key| !records.contains_key(*key)) {
                lines.push(format!("{name}: {} should not be there", key.escape_ascii()));
            }
        }
        let more = lines.len().saturating_sub(8);
        lines.truncate(8);
        format!(
            "{}{}",
            lines.join("; "),
            if more > 0 { format!("; and {more} more") } else { String::new() }
        )
    }
}

fn brief(value: &[u8]) -> String {
    let start = value[..value.len().min(12)].escape_ascii();
    format!("{} bytes {start}", value.len())
}

/// States are kept whole after this many events, and made from those when they are asked for.
const EVERY: u64 = 32;

/// See the module documentation.
pub struct History {
    inner: Mutex<Inner>,
}

struct Inner {
    /// States after an event, ascending.
    whole: Vec<(u64, State)>,
    /// The first event that is known.
    first: u64,
    events: Vec<Arc<Vec<Change>>>,
    newest: State,
}

impl History {
    /// A history that goes on from a state.
    pub fn from(number: u64, state: State) -> Arc<History> {
        let inner = Inner {
            whole: vec![(number, state.clone())],
            first: number + 1,
            events: Vec::new(),
            newest: state,
        };
        Arc::new(History { inner: Mutex::new(inner) })
    }

    /// The history up to an event; from there it may continue differently.
    pub fn branch(&self, number: u64) -> Arc<History> {
        let newest = self.state(number);
        let inner = self.inner.lock();
        let known = inner.whole.partition_point(|(whole, _)| *whole <= number);
        let events = inner.events[..(number + 1 - inner.first) as usize].to_vec();
        let whole = inner.whole[..known].to_vec();
        let inner = Inner { whole, first: inner.first, events, newest };
        Arc::new(History { inner: Mutex::new(inner) })
    }

    /// Adds an event; gives its number.
    pub fn add(&self, changes: Vec<Change>) -> u64 {
        let mut inner = self.inner.lock();
        for change in &changes {
            inner.newest.apply(change);
        }
        inner.events.push(Arc::new(changes));
        let number = inner.first + inner.events.len() as u64 - 1;
        if number.is_multiple_of(EVERY) {
            let state = inner.newest.clone();
            inner.whole.push((number, state));
        }
        number
    }

    /// The number of the newest event.
    pub fn newest(&self) -> u64 {
        let inner = self.inner.lock();
        inner.first + inner.events.len() as u64 - 1
    }

    /// The state after event `number`.
    pub fn state(&self, number: u64) -> State {
        let inner = self.inner.lock();
        let at = inner.whole.partition_point(|(whole, _)| *whole <= number);
        let (whole, mut state) = inner.whole[at.checked_sub(1).expect("known")].clone();
        for event in whole + 1..=number {
            for change in &*inner.events[(event - inner.first) as usize] {
                state.apply(change);
            }
        }
        state
    }

    /// The event that a store was found after.
    ///
    /// # Errors
    /// A sentence, when there is none between the bounds.
    pub fn find(&self, found: &State, bounds: Bounds) -> Result<u64, String> {
        let sequence = found.sequence();
        let mut closest: Option<(u64, String)> = None;
        // Most often nothing or the first few events that were not acknowledged are missing.
        let mut state = self.state(bounds.acked);
        for number in bounds.acked..=bounds.issued {
            if number > bounds.acked {
                let event = {
                    let inner = self.inner.lock();
                    inner.events[(number - inner.first) as usize].clone()
                };
                event.iter().for_each(|change| state.apply(change));
            }
            if state == *found {
                return Ok(number);
            }
            if state.sequence() == sequence || closest.is_none() {
                closest = Some((number, state.difference(found)));
            }
        }
        let (number, what) = closest.expect("at least one event");
        Err(format!(
            "no state after events {} to {} is what was found, whose sequence is {sequence}; \
             against event {number}: {what}",
            bounds.acked, bounds.issued
        ))
    }
}
