//! The expected contents of a store: a state for each event, and the comparison with the real
//! contents.

use super::data::{Id, Key, Value};
use std::{collections::BTreeMap, fmt::Write, rc::Rc};
use wattle::{Engine, Result};

/// Of a tree.
pub type Records = BTreeMap<Key, Value>;
/// Records that a scan found, ascending.
pub type Found = Vec<(Key, Vec<u8>)>;

/// The contents of a store between two events.
#[derive(Clone, Default)]
pub struct State {
    /// The trees, by name.
    pub names: BTreeMap<String, Id>,
    /// Their records.
    pub trees: BTreeMap<Id, Rc<Records>>,
}

impl State {
    /// Adds a tree without records.
    pub fn create(&mut self, tree: Id, name: String) {
        self.names.insert(name, tree);
        self.trees.insert(tree, Rc::default());
    }

    /// The name of a tree that is there.
    pub fn name(&self, tree: Id) -> String {
        let (name, _) = self.names.iter().find(|(_, id)| **id == tree).expect("the tree is there");
        name.clone()
    }

    /// Changes a record, or removes it; of a tree that is gone, nothing.
    pub fn set(&mut self, tree: Id, key: &[u8], value: Option<Value>) {
        if let Some(records) = self.trees.get_mut(&tree) {
            set(records, key, value);
        }
    }

    /// Whether it is what a store holds.
    pub fn is(&self, store: &BTreeMap<String, Found>) -> bool {
        let same = |((name, found), (other, id)): ((&String, &Found), (&String, &Id))| {
            name == other && is(&self.trees[id], found)
        };
        store.len() == self.names.len() && store.iter().zip(&self.names).all(same)
    }

    /// Says what in a store is different.
    pub fn differences(&self, store: &BTreeMap<String, Found>) -> String {
        let names = (store.keys().collect::<Vec<_>>(), self.names.keys().collect::<Vec<_>>());
        let mut differences = format!("found {:?}, expected {:?}; ", names.0, names.1);
        for (name, tree) in &self.names {
            if let Some(found) = store.get(name) {
                differences += &format!("{name}: {}", self::differences(&self.trees[tree], found));
            }
        }
        differences
    }
}

/// Changes a record in a map that others may share, or removes it.
pub fn set(records: &mut Rc<Records>, key: &[u8], value: Option<Value>) {
    let records = Rc::make_mut(records);
    match value {
        Some(value) => records.insert(key.to_vec(), value),
        None => records.remove(key),
    };
}

/// Whether a scan found just these records.
pub fn is(records: &Records, found: &Found) -> bool {
    let same = |(found, (key, value)): (&(Key, Vec<u8>), (&Key, &Value))| {
        found.0 == *key && found.1 == **value
    };
    found.len() == records.len() && found.iter().zip(records).all(same)
}

/// Says what a scan found instead of these records.
pub fn differences(records: &Records, found: &Found) -> String {
    let found_by_key: BTreeMap<&Key, &Vec<u8>> =
        found.iter().map(|(key, value)| (key, value)).collect();
    let mut differences = String::new();
    let mut say = |key: &Key, what: &str| {
        write!(differences, "{} {what}; ", short(key)).expect("memory");
    };
    for (key, value) in records {
        match found_by_key.get(key) {
            None => say(key, "is missing"),
            Some(other) if **other != **value => {
                let at = other.iter().zip(value.iter()).position(|(a, b)| a != b);
                let lengths = (other.len(), value.len());
                say(
                    key,
                    &format!("has {} bytes instead of {}, differs at {at:?}", lengths.0, lengths.1),
                );
            }
            Some(_) => {}
        }
    }
    found_by_key
        .keys()
        .filter(|key| !records.contains_key(**key))
        .for_each(|key| say(key, "is too many"));
    if !found.is_sorted_by(|a, b| a.0 < b.0) {
        differences += "the order is wrong; ";
    }
    differences
}

/// The length of a key and its end.
pub fn short(key: &[u8]) -> String {
    format!("{} bytes ..{:02x?}", key.len(), &key[key.len().saturating_sub(6)..])
}

/// States, one for each event, numbered.
pub struct History {
    first: u64,
    states: Vec<Rc<State>>,
}

impl History {
    /// One that begins with a state.
    pub fn new(first: u64, state: Rc<State>) -> History {
        History { first, states: vec![state] }
    }

    /// Number of the first state.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Number of the newest state.
    pub fn newest(&self) -> u64 {
        self.first + self.states.len() as u64 - 1
    }

    /// The state of a number.
    pub fn at(&self, number: u64) -> &Rc<State> {
        &self.states[(number - self.first) as usize]
    }

    /// The newest state.
    pub fn now(&self) -> &Rc<State> {
        self.at(self.newest())
    }

    /// One more event.
    pub fn push(&mut self, state: State) {
        self.states.push(Rc::new(state));
    }

    /// Says of each state what is different in a store: the end of that, if it is long.
    pub fn differences(&self, store: &BTreeMap<String, Found>) -> String {
        let mut lines: Vec<String> = Vec::new();
        for number in self.first..=self.newest() {
            let state = self.at(number);
            let same = if state.is(store) { "it is this one! " } else { "" };
            lines.push(format!("{number}: {same}{}", state.differences(store)));
        }
        lines.split_off(lines.len().saturating_sub(12)).join("\n")
    }
}

/// All that a store holds.
///
/// # Errors
/// Of a scan.
pub fn read_all(engine: &Engine) -> Result<BTreeMap<String, Found>> {
    let session = engine.session()?;
    let mut store = BTreeMap::new();
    for name in engine.trees()? {
        let tree = engine.open_tree(&name)?.expect("it is listed");
        let found: Found = session.scan(&tree)?.collect::<Result<_>>()?;
        let mut back: Found = session.scan(&tree)?.rev().collect::<Result<_>>()?;
        back.reverse();
        assert!(found == back, "forwards and backwards differ in {name}");
        store.insert(name, found);
    }
    Ok(store)
}
