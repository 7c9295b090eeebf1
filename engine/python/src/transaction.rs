//! Transactions.

use crate::{
    errors::{ClosedError, raise},
    shared::{Open, Shared},
    tree::Tree,
};
use parking_lot::Mutex;
use pyo3::{exceptions::PyValueError, prelude::*};
use std::sync::Arc;
use wattle::Savepoint;

/// A transaction. `txn[tree]` is a tree in it. As a context manager it commits at the end, or is
/// rolled back after an exception.
#[pyclass(frozen, module = "wattle")]
pub struct Transaction {
    shared: Arc<Shared>,
    open: Arc<Open>,
    savepoints: Mutex<Vec<Savepoint>>,
}

impl Transaction {
    pub fn new(shared: Arc<Shared>, open: Arc<Open>) -> Transaction {
        Transaction { shared, open, savepoints: Mutex::new(Vec::new()) }
    }
}

#[pymethods]
impl Transaction {
    fn __getitem__(&self, tree: &Tree) -> Tree {
        tree.within(self.shared.clone(), self.open.clone())
    }

    /// Commits, and waits until that is durable. After a Conflict the transaction was rolled back.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.open.take()?.commit()).map_err(raise)
    }

    /// Rolls all changes back.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.open.take()?.abort()).map_err(raise)
    }

    /// Makes a savepoint and gives its number.
    fn savepoint(&self) -> PyResult<usize> {
        let mut savepoints = self.savepoints.lock();
        savepoints.push(self.open.with(|txn| Ok(txn.savepoint())).map_err(raise)?);
        Ok(savepoints.len() - 1)
    }

    /// Undoes every change after a savepoint. Later savepoints end; this one stays.
    fn rollback_to(&self, py: Python<'_>, savepoint: usize) -> PyResult<()> {
        let found = self.savepoints.lock().get(savepoint).cloned();
        let count = self.savepoints.lock().len();
        let found = found.ok_or_else(|| {
            PyValueError::new_err(format!("there is no savepoint {savepoint}: {count} were made"))
        })?;
        py.detach(|| self.open.with(|txn| txn.rollback_to(&found))).map_err(raise)?;
        self.savepoints.lock().truncate(savepoint + 1);
        Ok(())
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Bound<'_, PyAny>,
        _error: Bound<'_, PyAny>,
        _trace: Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let ended = if kind.is_none() { self.commit(py) } else { self.abort(py) };
        match ended {
            // Ended within the block.
            Err(error) if error.is_instance_of::<ClosedError>(py) => Ok(false),
            ended => ended.map(|()| false),
        }
    }
}
