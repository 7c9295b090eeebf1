//! Functions of SQL. GlueSQL borrows them, so a connection has them in memory, as they are in its
//! transaction. All of them are one record: two transactions that change functions meet a conflict.

use crate::{
    catalog::FUNCTIONS_KEY,
    error::{damaged, not_stored},
    storage::WattleStorage,
};
use gluesql_core::{
    data::CustomFunction as Function,
    error::Result,
    store::{CustomFunction, CustomFunctionMut},
};
use std::collections::BTreeMap;

#[derive(Default)]
pub struct Functions {
    /// The record that they were decoded from.
    bytes: Option<Vec<u8>>,
    by_name: BTreeMap<String, Function>,
}

impl Functions {
    /// Makes these the functions of a record. A transaction begins with it, which also takes back
    /// what one has left that was rolled back.
    pub fn load(&mut self, bytes: Option<Vec<u8>>) -> Result<()> {
        if bytes != self.bytes {
            self.by_name = match &bytes {
                Some(bytes) => postcard::from_bytes(bytes).map_err(damaged)?,
                None => BTreeMap::new(),
            };
            self.bytes = bytes;
        }
        Ok(())
    }
}

impl WattleStorage {
    fn put_functions(&mut self, by_name: BTreeMap<String, Function>) -> Result<()> {
        let bytes = postcard::to_stdvec(&by_name).map_err(not_stored)?;
        self.put(FUNCTIONS_KEY, &bytes)?;
        self.functions = Functions { bytes: Some(bytes), by_name };
        Ok(())
    }
}

impl CustomFunction for WattleStorage {
    fn fetch_function<'a>(&'a self, name: &str) -> Result<Option<&'a Function>> {
        Ok(self.functions.by_name.get(&name.to_uppercase()))
    }

    fn fetch_all_functions(&self) -> Result<Vec<&Function>> {
        Ok(self.functions.by_name.values().collect())
    }
}

impl CustomFunctionMut for WattleStorage {
    fn insert_function(&mut self, function: Function) -> Result<()> {
        let mut by_name = self.functions.by_name.clone();
        by_name.insert(function.func_name.to_uppercase(), function);
        self.put_functions(by_name)
    }

    fn delete_function(&mut self, name: &str) -> Result<()> {
        let mut by_name = self.functions.by_name.clone();
        match by_name.remove(&name.to_uppercase()) {
            Some(_) => self.put_functions(by_name),
            None => Ok(()),
        }
    }
}
