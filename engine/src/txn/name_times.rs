//! When names of trees were changed: a snapshot before that cannot use the name.
//!
//! The catalog keeps no versions. So a transaction that asks for a name, or changes it, after
//! another one has changed it and committed, gets a conflict. Changes that every snapshot includes
//! are forgotten.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use wattle_buffer::{Error, Result};

/// See the module documentation.
#[derive(Default)]
pub(crate) struct NameTimes {
    /// The time of the last change of each name, without those that every snapshot includes.
    changed: Mutex<BTreeMap<String, u64>>,
}

impl NameTimes {
    /// These names were changed at `time`. The caller still has the lock of the catalog. No
    /// snapshot is below `horizon`.
    pub fn note<'n>(&self, names: impl Iterator<Item = &'n str>, time: u64, horizon: u64) {
        let mut changed = self.changed.lock();
        changed.retain(|_, time| *time > horizon);
        for name in names {
            changed.insert(name.to_string(), time);
        }
    }

    /// Fails if the name was changed after the snapshot. The caller checks afterwards that the
    /// snapshot was not cancelled.
    ///
    /// # Errors
    /// [`Error::Conflict`].
    pub fn check(&self, name: &str, snapshot: u64) -> Result<()> {
        match self.changed.lock().get(name) {
            Some(time) if *time > snapshot => Err(Error::Conflict(format!(
                "it changed the tree named {name:?} after this one began"
            ))),
            _ => Ok(()),
        }
    }
}
