//! The contents of a store: names of trees and their records.

use std::collections::BTreeMap;
use wattle::Engine;

pub type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// The contents in the model: trees by number, because names change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub names: BTreeMap<String, u64>,
    pub trees: BTreeMap<u64, Records>,
}

impl State {
    /// The records of each tree that has a name.
    pub fn by_name(&self) -> BTreeMap<String, Records> {
        self.names.iter().map(|(name, tree)| (name.clone(), self.trees[tree].clone())).collect()
    }
}

/// The contents of a store.
pub fn of_engine(engine: &Engine) -> BTreeMap<String, Records> {
    let session = engine.session().expect("session");
    let mut found = BTreeMap::new();
    for name in engine.trees().expect("names") {
        let tree = engine.open_tree(&name).expect("open").expect("it is listed");
        let records = session.scan(&tree).expect("scan");
        let records = records.map(|record| record.expect("record")).collect();
        found.insert(name, records);
    }
    found
}
