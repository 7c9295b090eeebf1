//! Trees, as dictionaries.

use crate::{
    chunks::Chunks,
    errors::raise,
    input::{bytes, pair},
    range::{Part, Range, Source},
    shared::{Open, Shared},
};
use pyo3::{
    exceptions::{PyKeyError, PyValueError},
    prelude::*,
    types::{PyBytes, PyList, PyMapping},
};
use std::{borrow::Cow, ops::Bound as Limit, sync::Arc};
use wattle::{Direction, Result, Session, Transaction};

/// An ordered map from bytes to bytes. Each change of a tree of an engine is a transaction; changes
/// of `txn[tree]` belong to that transaction.
#[pyclass(frozen, module = "wattle")]
pub struct Tree {
    shared: Arc<Shared>,
    tree: wattle::Tree,
    txn: Option<Arc<Open>>,
}

/// The values of many keys, one after the other; where each is.
struct Found {
    bytes: Vec<u8>,
    places: Vec<Option<(usize, usize)>>,
}

impl Found {
    fn new(keys: usize) -> Found {
        Found { bytes: Vec::new(), places: vec![None; keys] }
    }

    fn note(&mut self, index: usize, value: Option<&[u8]>) {
        let Some(value) = value else { return };
        let start = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.places[index] = Some((start, self.bytes.len()));
    }
}

impl Tree {
    pub fn auto(shared: Arc<Shared>, tree: wattle::Tree) -> Tree {
        Tree { shared, tree, txn: None }
    }

    /// The same tree in a transaction.
    pub fn within(&self, shared: Arc<Shared>, txn: Arc<Open>) -> Tree {
        Tree { shared, tree: self.tree.clone(), txn: Some(txn) }
    }

    /// Runs an operation without the GIL: `auto` with a session, or `within` the transaction.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        auto: impl FnOnce(&Session) -> Result<T> + Send,
        within: impl FnOnce(&mut Transaction<'static>) -> Result<T> + Send,
    ) -> PyResult<T> {
        let result = py.detach(|| match &self.txn {
            None => self.shared.with_session(auto),
            Some(txn) => txn.with(within),
        });
        result.map_err(raise)
    }

    fn value(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<Vec<u8>>> {
        let tree = &self.tree;
        self.run(py, |session| session.get(tree, key), |txn| txn.get(tree, key))
    }

    fn removed(&self, py: Python<'_>, key: &[u8]) -> PyResult<bool> {
        let tree = &self.tree;
        self.run(py, |session| session.remove(tree, key), |txn| txn.remove(tree, key))
    }

    /// Runs `work` in the transaction of the tree, or in one of its own.
    fn in_txn<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Transaction<'_>, &wattle::Tree) -> Result<T> + Send,
    ) -> PyResult<T> {
        let result = py.detach(|| match &self.txn {
            Some(txn) => txn.with(|txn| work(txn, &self.tree)),
            None => {
                let mut txn = self.shared.engine()?.begin()?;
                let result = work(&mut txn, &self.tree)?;
                txn.commit().map(|()| result)
            }
        });
        result.map_err(raise)
    }

    fn open_range(
        &self,
        py: Python<'_>,
        low: Limit<Vec<u8>>,
        high: Limit<Vec<u8>>,
        direction: Direction,
        part: Part,
    ) -> PyResult<Range> {
        let source = py.detach(|| self.source()).map_err(raise)?;
        Ok(Range::new(Chunks::new(self.tree.clone(), low, high, direction), source, part))
    }

    fn source(&self) -> Result<Source> {
        match &self.txn {
            None => Source::own(&self.shared),
            Some(txn) => Ok(Source::Of(txn.clone())),
        }
    }

    fn all(&self, py: Python<'_>, part: Part) -> PyResult<Range> {
        self.open_range(py, Limit::Unbounded, Limit::Unbounded, Direction::Forward, part)
    }
}

fn direction(reverse: bool) -> Direction {
    if reverse { Direction::Backward } else { Direction::Forward }
}

fn missing(key: &[u8], py: Python<'_>) -> PyErr {
    PyKeyError::new_err(PyBytes::new(py, key).unbind())
}

#[pymethods]
impl Tree {
    /// The name it was created with.
    #[getter]
    fn name(&self) -> &str {
        self.tree.name()
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let (py, key) = (key.py(), bytes(key)?);
        match self.value(py, &key)? {
            Some(value) => Ok(PyBytes::new(py, &value)),
            None => Err(missing(&key, py)),
        }
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, key, value, tree) = (key.py(), bytes(key)?, bytes(value)?, &self.tree);
        self.run(py, |session| session.put(tree, &key, &value), |txn| txn.put(tree, &key, &value))
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, key) = (key.py(), bytes(key)?);
        if self.removed(py, &key)? { Ok(()) } else { Err(missing(&key, py)) }
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (py, key, tree) = (key.py(), bytes(key)?, &self.tree);
        self.run(py, |session| session.contains(tree, &key), |txn| txn.contains(tree, &key))
    }

    /// Keys in ascending order.
    fn __iter__(&self, py: Python<'_>) -> PyResult<Range> {
        self.all(py, Part::Key)
    }

    /// The number of records. Counts them: it reads the whole tree.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let count = py.detach(|| {
            let mut source = self.source()?;
            let (low, high) = (Limit::Unbounded, Limit::Unbounded);
            let mut chunks = Chunks::new(self.tree.clone(), low, high, Direction::Forward);
            let mut count = 0;
            while source.fill(&mut chunks)? {
                while chunks.step() {
                    count += 1;
                }
            }
            Ok(count)
        });
        count.map_err(raise)
    }

    /// Whether it has a record.
    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        let range = self.all(py, Part::Key)?;
        range.has_next(py)
    }

    fn __repr__(&self) -> String {
        format!("Tree({:?})", self.tree.name())
    }

    /// The value of a key, or `default`.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, key) = (key.py(), bytes(key)?);
        let value = self.value(py, &key)?;
        Ok(value.map(|value| PyBytes::new(py, &value).into_any()).or(default))
    }

    /// The values of many keys, None for those that do not exist. Much faster than one by one.
    fn get_many<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let py = keys.py();
        let keys = keys.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        let keys = keys.iter().map(bytes).collect::<PyResult<Vec<Cow<'_, [u8]>>>>()?;
        let tree = &self.tree;
        let found = self.run(
            py,
            |session| {
                let mut found = Found::new(keys.len());
                session.multi_get(tree, &keys, |index, value| found.note(index, value))?;
                Ok(found)
            },
            |txn| {
                let mut found = Found::new(keys.len());
                txn.multi_get(tree, &keys, |index, value| found.note(index, value))?;
                Ok(found)
            },
        )?;
        let value = |place: &Option<(usize, usize)>| {
            place.map(|(start, end)| PyBytes::new(py, &found.bytes[start..end]))
        };
        PyList::new(py, found.places.iter().map(value))
    }

    /// Adds a record; KeyExists if the key does.
    fn insert(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, key, value, tree) = (key.py(), bytes(key)?, bytes(value)?, &self.tree);
        self.run(
            py,
            |session| session.insert(tree, &key, &value),
            |txn| txn.insert(tree, &key, &value),
        )
    }

    /// Sets many records, of a mapping or of pairs, in one transaction.
    fn update(&self, records: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = records.py();
        let pairs = match records.cast::<PyMapping>() {
            Ok(mapping) => mapping.items()?.into_any(),
            Err(_) => records.clone(),
        };
        let pairs = pairs.try_iter()?.map(|record| pair(&record?)).collect::<PyResult<Vec<_>>>()?;
        self.in_txn(py, move |txn, tree| {
            pairs.iter().try_for_each(|(key, value)| txn.put(tree, key, value))
        })
    }

    /// Removes a key and gives its value, or `default` if there is none.
    #[pyo3(signature = (key, *default))]
    fn pop<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: &Bound<'py, pyo3::types::PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if default.len() > 1 {
            return Err(PyValueError::new_err("pop has a key and one default at most"));
        }
        let (py, key) = (key.py(), bytes(key)?);
        let value = self.in_txn(py, |txn, tree| {
            let value = txn.get(tree, &key)?;
            if value.is_some() {
                txn.remove(tree, &key)?;
            }
            Ok(value)
        })?;
        match (value, default.len()) {
            (Some(value), _) => Ok(PyBytes::new(py, &value).into_any()),
            (None, 0) => Err(missing(&key, py)),
            (None, _) => default.get_item(0),
        }
    }

    /// The value of a key, which becomes `value` if there is none.
    fn setdefault<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (py, key, value) = (key.py(), bytes(key)?, bytes(value)?);
        let found = self.in_txn(py, |txn, tree| {
            let found = txn.get(tree, &key)?;
            if found.is_none() {
                txn.put(tree, &key, &value)?;
            }
            Ok(found)
        })?;
        Ok(PyBytes::new(py, found.as_deref().unwrap_or(&value)))
    }

    /// Fills an empty tree from pairs in ascending order of their keys; gives their number. It is
    /// several times faster than inserts, and belongs to no transaction.
    fn bulk_load(&self, records: &Bound<'_, PyAny>) -> PyResult<u64> {
        if self.txn.is_some() {
            let message = "a bulk load belongs to no transaction: use the tree of the engine";
            return Err(PyValueError::new_err(message));
        }
        let py = records.py();
        let pairs =
            records.try_iter()?.map(|record| pair(&record?)).collect::<PyResult<Vec<_>>>()?;
        let load = |session: &Session| session.bulk_load(&self.tree, pairs);
        py.detach(|| self.shared.with_session(load)).map_err(raise)
    }

    /// Keys in ascending order.
    fn keys(&self, py: Python<'_>) -> PyResult<Range> {
        self.all(py, Part::Key)
    }

    /// Values in the order of their keys.
    fn values(&self, py: Python<'_>) -> PyResult<Range> {
        self.all(py, Part::Value)
    }

    /// Pairs of key and value in ascending order.
    fn items(&self, py: Python<'_>) -> PyResult<Range> {
        self.all(py, Part::Both)
    }

    /// Pairs from `low` (included) to `high` (excluded), in descending order with `reverse`.
    #[pyo3(signature = (low=None, high=None, *, reverse=false))]
    fn range(
        &self,
        py: Python<'_>,
        low: Option<Bound<'_, PyAny>>,
        high: Option<Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Range> {
        let low = match &low {
            Some(low) => Limit::Included(bytes(low)?.into_owned()),
            None => Limit::Unbounded,
        };
        let high = match &high {
            Some(high) => Limit::Excluded(bytes(high)?.into_owned()),
            None => Limit::Unbounded,
        };
        self.open_range(py, low, high, direction(reverse), Part::Both)
    }

    /// Pairs whose keys begin with `prefix`.
    #[pyo3(signature = (prefix, *, reverse=false))]
    fn prefix(&self, prefix: &Bound<'_, PyAny>, reverse: bool) -> PyResult<Range> {
        let (py, low) = (prefix.py(), bytes(prefix)?.into_owned());
        let high = after_prefix(&low);
        self.open_range(py, Limit::Included(low), high, direction(reverse), Part::Both)
    }
}

/// The end of the keys with a prefix: the prefix without its last bytes of 255, plus one.
fn after_prefix(prefix: &[u8]) -> Limit<Vec<u8>> {
    let mut end = prefix.to_vec();
    while end.last() == Some(&u8::MAX) {
        end.pop();
    }
    match end.last_mut() {
        Some(last) => {
            *last += 1;
            Limit::Excluded(end)
        }
        None => Limit::Unbounded,
    }
}
