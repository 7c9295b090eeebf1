//! Ranges, as iterators.

use crate::{
    chunks::Chunks,
    errors::{Error, raise},
    shared::{Open, Shared},
};
use parking_lot::Mutex;
use pyo3::{prelude::*, types::PyBytes};
use std::sync::Arc;
use wattle::{Transaction, TxnOptions};

/// The parts of a record that an iterator gives.
#[derive(Clone, Copy)]
pub enum Part {
    Key,
    Value,
    Both,
}

/// The transaction that a range reads in.
pub enum Source {
    Own(Transaction<'static>),
    Of(Arc<Open>),
}

impl Source {
    /// A read-only transaction of its own, from a snapshot of this moment.
    pub fn own(shared: &Shared) -> wattle::Result<Source> {
        let read = TxnOptions { read_only: true, ..TxnOptions::default() };
        shared.engine()?.begin_with(read).map(Source::Own)
    }

    pub fn fill(&mut self, chunks: &mut Chunks) -> wattle::Result<bool> {
        match self {
            Source::Own(txn) => chunks.fill(txn),
            Source::Of(open) => open.with(|txn| chunks.fill(txn)),
        }
    }
}

/// Records in the order of their keys, from one snapshot.
#[pyclass(frozen, module = "wattle")]
pub struct Range {
    part: Part,
    /// `None` after the end: a range that was read to its end keeps no snapshot.
    reader: Mutex<Option<(Chunks, Source)>>,
}

impl Range {
    pub fn new(chunks: Chunks, source: Source, part: Part) -> Range {
        Range { part, reader: Mutex::new(Some((chunks, source))) }
    }

    /// Whether a new range has a record.
    pub fn has_next(&self, py: Python<'_>) -> PyResult<bool> {
        let first = py.detach(|| match self.reader.lock().as_mut() {
            Some((chunks, source)) => source.fill(chunks),
            None => Ok(false),
        });
        first.map_err(raise)
    }
}

#[pymethods]
impl Range {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut reader = self.reader.try_lock().ok_or_else(|| {
            Error::new_err(
                "another thread reads the range at this moment: open one for each thread",
            )
        })?;
        let Some((chunks, source)) = &mut *reader else { return Ok(None) };
        if !chunks.step() {
            let more = py.detach(|| source.fill(chunks)).map_err(raise)?;
            if !more {
                *reader = None;
                return Ok(None);
            }
            chunks.step();
        }
        let (key, value) = chunks.record();
        Ok(Some(match self.part {
            Part::Key => PyBytes::new(py, key).into_any(),
            Part::Value => PyBytes::new(py, value).into_any(),
            Part::Both => {
                (PyBytes::new(py, key), PyBytes::new(py, value)).into_pyobject(py)?.into_any()
            }
        }))
    }
}
